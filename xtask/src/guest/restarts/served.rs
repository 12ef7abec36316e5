//! Servers that are stopped and restarted: Landfast, nfs-ganesha, and the kernel's in a guest.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::guest::ganesha::{self, Ganesha};
use crate::guest::image;
use crate::guest::knfsd;
use crate::guest::machine::{Hardware, Machine};
use crate::guest::network::{Link, SERVER};
use crate::guest::recipe::{Kernel, Vers};
use crate::guest::server::{Scratch, Server};
use crate::proc;

/// Bytes of the exported filesystem (sparse).
const DISK_BYTES: u64 = 4 << 30;

/// How long one script may take in a guest.
const SCRIPT_LIMIT: Duration = Duration::from_secs(300);

/// How long a server may take to listen again.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);

/// Objects and bytes below DIR, of which something may go meanwhile, and when the last of them changed: data that was not stable is
/// sent once more without making anything longer.
const AMOUNT: &str = r#"{ find "$DIR" -printf '%y %s %C@\n' 2>/dev/null || true; } |
    awk '{ objects++; if ($1 == "f") bytes += $2; if ($3 > last) last = $3 } END { printf "%d %d %.6f\n", objects, bytes, last }'"#;

/// Directories, and each file with the sum of its bytes.
pub const SUMS: &str =
    r#"cd "$DIR" && { find . -type d | sort; find . -type f -print0 | sort -z | xargs -0r md5sum; }"#;

/// Ends the kernel's server, as an administrator does: it has no process to be killed. Its clients stay known.
const KERNEL_ENDS: &str = "rpc.nfsd 0";

/// Starts it again.
const KERNEL_BEGINS: &str = "rpc.nfsd --nfs-version 3 --tcp --no-udp 8";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ServerKind {
    /// `landfast serve`.
    Landfast,
    /// nfs-ganesha with its VFS backend.
    Ganesha,
    /// The kernel's, in a guest.
    Kernel,
}

impl ServerKind {
    pub fn name(self) -> &'static str {
        match self {
            ServerKind::Landfast => "Landfast",
            ServerKind::Ganesha => "nfs-ganesha",
            ServerKind::Kernel => "Linux",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Amount {
    pub objects: u64,
    pub bytes: u64,
    /// Seconds, by the server's clock.
    pub changed: f64,
}

impl Amount {
    fn parsed(text: &str) -> Result<Amount, String> {
        let of = |n: usize| text.split_whitespace().nth(n);
        let number = |n: usize| of(n).and_then(|word| word.parse::<u64>().ok());
        match (number(0), number(1), of(2).and_then(|word| word.parse::<f64>().ok())) {
            (Some(objects), Some(bytes), Some(changed)) => Ok(Amount { objects, bytes, changed }),
            _ => Err(format!("no amount: {text}")),
        }
    }
}

/// The amount below a local path.
pub fn amount(at: &Path) -> Result<Amount, String> {
    Amount::parsed(&local(AMOUNT, at)?)
}

/// Runs one of the scripts here.
pub fn local(script: &str, dir: &Path) -> Result<String, String> {
    proc::output(Command::new("bash").args(["-euo", "pipefail", "-c", script]).env("DIR", dir))
}

pub enum Served {
    Landfast { server: Server, scratch: Scratch },
    Ganesha { server: Option<Ganesha>, scratch: Scratch, dir: tempfile::TempDir, volume: PathBuf },
    Kernel { guest: Box<Machine>, hardware: Box<Hardware>, _dir: tempfile::TempDir },
}

impl Served {
    /// Starts one with an empty filesystem.
    pub fn start(who: ServerKind, binary: &Path, kernel: Kernel) -> Result<Served, String> {
        if who == ServerKind::Kernel {
            let dir = image::run_dir("restarts")?;
            let disk = dir.path().join("disk.img");
            let made = std::fs::File::create(&disk).and_then(|file| file.set_len(DISK_BYTES));
            made.map_err(|e| format!("{}: {e}", disk.display()))?;
            proc::run(proc::command("mkfs.ext4", ["-q"]).arg(&disk))?;
            let hardware = Hardware { link: Some(Link::new()?), scratch: Some(disk), ..Hardware::default() };
            let guest = knfsd::boot(&image::build(kernel)?, &hardware, "ext4", "sync")?;
            return Ok(Served::Kernel { guest: Box::new(guest), hardware: Box::new(hardware), _dir: dir });
        }
        let scratch = Scratch::new("ext4", DISK_BYTES)?;
        if who == ServerKind::Landfast {
            let server = Server::start(binary, &scratch, "log")?;
            return Ok(Served::Landfast { server, scratch });
        }
        let (dir, volume) = (image::run_dir("ganesha")?, scratch.volume());
        let server = Some(Ganesha::start(dir.path(), &[("/", &volume)])?);
        Ok(Served::Ganesha { server, scratch, dir, volume })
    }

    pub fn url(&self, vers: Vers, below: &str) -> Result<String, String> {
        let three = vers == Vers::V3;
        let (address, path, options) = match self {
            Served::Landfast { server, scratch } => (server.address().to_string(), scratch.volume(), ""),
            Served::Ganesha { volume, .. } => {
                (format!("{SERVER}:{}", ganesha::PORTS[0]), volume.clone(), "&mountport=20048")
            }
            Served::Kernel { hardware, .. } => return knfsd::url_of(hardware, vers, below),
        };
        let path = if three { path.display().to_string() } else { String::new() };
        let options = if three { options } else { "" };
        Ok(format!("nfs://{address}{path}/{below}?version={vers}{options}"))
    }

    /// Ends it: at once, or in order. The kernel's server supports only the second.
    pub fn end(&mut self, at_once: bool) -> Result<(), String> {
        match self {
            Served::Landfast { server, .. } if at_once => server.kill(),
            Served::Landfast { server, .. } => server.stop(),
            Served::Ganesha { server, .. } => {
                drop(server.take());
                Ok(())
            }
            Served::Kernel { guest, .. } => script(guest, KERNEL_ENDS).map(drop),
        }
    }

    /// Starts it again; returns when it takes connections.
    pub fn begin(&mut self) -> Result<(), String> {
        match self {
            Served::Landfast { server, .. } => server.start_again(),
            Served::Ganesha { server, dir, volume, .. } => {
                *server = Some(Ganesha::start(dir.path(), &[("/", volume.as_path())])?);
                Ok(())
            }
            Served::Kernel { guest, hardware, .. } => {
                script(guest, KERNEL_BEGINS)?;
                let host = hardware.link.as_ref().map_or("", |link| link.host()).to_owned();
                let begin = Instant::now();
                while TcpStream::connect((host.as_str(), 2049)).is_err() {
                    if begin.elapsed() > LISTEN_LIMIT {
                        return Err("the kernel's server does not listen".to_owned());
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            }
        }
    }

    /// What one of the scripts says of something in the export.
    pub fn ask(&mut self, what: &str, below: &str) -> Result<String, String> {
        match self {
            Served::Landfast { scratch, .. } | Served::Ganesha { scratch, .. } => {
                local(what, &scratch.volume().join(below))
            }
            Served::Kernel { guest, .. } => script(guest, &format!("DIR=/srv/export/{below}\n{what}")),
        }
    }

    /// How much of it there is.
    pub fn amount(&mut self, below: &str) -> Result<Amount, String> {
        Amount::parsed(&self.ask(AMOUNT, below)?)
    }

    /// What it said, for a failure.
    pub fn said(&self) -> String {
        match self {
            Served::Landfast { server, .. } => server.said(),
            Served::Ganesha { server, .. } => server.as_ref().map_or(String::new(), Ganesha::said),
            Served::Kernel { guest, .. } => guest.console(),
        }
    }
}

fn script(guest: &mut Machine, script: &str) -> Result<String, String> {
    let mut said = Vec::new();
    let code = guest.run(&format!("set -euo pipefail\n{script}"), &[], SCRIPT_LIMIT, &mut said)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    if code == 0 { Ok(said) } else { Err(format!("{script}: {code}: {said}")) }
}
