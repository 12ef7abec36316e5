//! `cargo xtask guest injected`: slows down the work of Linux's NFS client in a known way, captures it at both ends,
//! and checks that `landfast trace` finds the cause and agrees with tshark. The causes: a long path, a slow disk, a
//! slow or lossy link, a server without a processor, a program that thinks.

pub mod cases;
pub mod slow;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use super::captures::tables::{procedures_of_tshark, rows_of_ours, same};
use super::client::{self, Client, Whose};
use super::ether::Ether;
use super::ganesha::{self, Ganesha};
use super::image;
use super::machine::{Hardware, Machine};
use super::network::{Link, SERVER};
use super::recipe::{Kernel, Vers};
use super::server::{Server, chosen_binary};
use crate::packages;
use crate::proc::{command, output, run as run_program};
pub use cases::Who;
use cases::{CASES, Case};
use slow::{Starved, Volume};

/// Archives: directories, files per directory, and the file sizes in turn; then five separate files.
const TWO: (usize, usize, [usize; 5]) = (8, 25, [120, 1024, 3000, 6000, 12_000]);
const FIVE: [usize; 5] = [0, 1 << 10, 32 << 10, 33 << 10, 64 << 10];

/// Where what is served is, for version 4.
const EXPORTS: [&str; 2] = ["/data", "/stable"];

/// A server that gets no processor stands still and runs once in so much time. It is long beside what the client computes between two calls
/// when other work has the machine's processors, too.
const STARVED_EVERY: Duration = Duration::from_millis(25);

/// Waits until the client has no connection any more: its last call may be answered after the mount has gone.
pub const CLOSED: &str =
    "for _ in $(seq 500); do [ -n \"$(ss -Htn state established dst $SERVER)\" ] || break; sleep 0.01; done";

/// Options of `guest injected`.
#[derive(Args)]
pub struct Options {
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// Only these cases.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// All cases, not only the core of them.
    #[arg(long)]
    all: bool,
    /// Keep the captures in this directory, as CASE/client.pcap and CASE/server.pcap.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// The binary, instead of building the release one.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Seconds that one work may take.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        packages::require(&packages::INJECTED)?;
        image::build(self.kernel)?;
        chosen_binary(self.binary.as_deref()).map(drop)
    }

    fn wants(&self, case: &Case) -> bool {
        if self.only.is_empty() {
            self.all || case.core
        } else {
            self.only.iter().any(|name| name == case.name)
        }
    }
}

/// Captures and compares; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    let scratch = image::run_dir("injected")?;
    let dir = image::kept_in(options.keep.as_deref(), scratch.path())?;
    let binary = chosen_binary(options.binary.as_deref())?;
    let mut stage = Stage::new(options.kernel, options.limit, &binary, scratch.path())?;
    let mut failed = 0;
    for case in CASES.iter().filter(|case| options.wants(case)) {
        let start = Instant::now();
        let files = ["client", "server"].map(|end| dir.join(case.name).join(format!("{end}.pcap")));
        let mut once = || stage.capture(case, &files).and_then(|port| judge(case, &binary, &files, port));
        let result = once().or_else(|why| {
            eprintln!("{}: once more: {why}", case.name);
            once()
        });
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(row) => println!("{}: {row} ({seconds:.1} s)", case.name),
            Err(why) => {
                failed += 1;
                println!("{}: FAILED: {why} ({seconds:.1} s)", case.name);
            }
        }
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub struct Stage {
    pub client: Client,
    pub ether: Ether,
    ganesha: Ganesha,
    landfast: Server,
    data: Volume,
    stable: Volume,
}

impl Stage {
    pub fn new(kernel: Kernel, limit: u64, binary: &Path, dir: &Path) -> Result<Stage, String> {
        let data = Volume::new(binary, dir, "ext4", "")?;
        let stable = Volume::new(binary, dir, "xfs", ",wsync")?;
        let [one, two, own] = [data.path.join("ganesha"), stable.path.join("ganesha"), data.path.join("own")];
        for dir in [&one, &two, &own] {
            fs::create_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        let ganesha = Ganesha::start(dir, &[(EXPORTS[0], &one), (EXPORTS[1], &two)])?;
        let log = data.path.join("log");
        let landfast = Server::start_on(binary, own, [log, dir.join("messages")], "log")?;
        let mut link = Link::new()?;
        let ether = Ether::new(&link.device, dir)?;
        link.netdev = Some(ether.netdev());
        let hardware = Hardware { link: Some(link), disk: Some(archives(dir)?), ..Hardware::default() };
        let machine = Machine::boot(&image::build(kernel)?, &hardware)?;
        eprintln!("Linux {} was ready after {:.1} s", machine.release, machine.boot.as_secs_f64());
        let port = landfast.address().port();
        let limit = Duration::from_secs(limit);
        let mut client =
            Client { machine, server: client::Server::Landfast(port), whose: Whose::Linux, limit };
        client.run(None, "tar -C /root -xf $ARCHIVE")?;
        Ok(Stage { client, ether, ganesha, landfast, data, stable })
    }

    /// Does a case's work while its captures are made; the server's port.
    fn capture(&mut self, case: &Case, files: &[PathBuf; 2]) -> Result<u16, String> {
        if let Some(dir) = files[0].parent() {
            fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        self.ether.set(Default::default());
        let port = self.port(case.who, case.each_ms)?;
        let mount = self.mount(case.who, case.vers, case.options, port);
        let run = |this: &mut Stage, script: &str| this.client.run(Some(case.vers), script);
        run(self, &format!("{mount}\nrm -rf $WORK\nmkdir $WORK\n{}\nforget\numount $MNT", case.prepare))?;
        self.disks(&format!("flush_us={} read_us={}", case.flush_ms * 1e3, case.read_ms * 1e3))?;
        if case.read_ms > 0.0 {
            fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| format!("drop_caches: {e}"))?;
        }
        self.ether.set(case.line);
        let server = self.pid(case.who);
        let [still, runs] = [case.starved, 10 - case.starved].map(|tenths| STARVED_EVERY * tenths / 10);
        let starved =
            server.filter(|_| case.starved > 0).and_then(|server| Starved::new(server, still, runs));
        let lost = self.ether.lost();
        self.ether.capture([&files[0], &files[1]])?;
        let done = run(self, &format!("{mount}\n{}\nsync\numount $MNT\n{CLOSED}", case.work));
        drop(starved);
        self.ether.end_capture()?;
        let lost = self.ether.lost() - lost;
        if lost == 0 && case.line.lost_of_1000 > 0 {
            return Err("nothing was lost".to_owned());
        }
        self.disks("flush_us=0 read_us=0")?;
        self.ether.set(Default::default());
        done.map(|_| port).map_err(|why| {
            let _ = self.client.run(None, "umount -lf $MNT");
            format!("{why}\n{}", self.said())
        })
    }

    pub fn pid(&self, who: Who) -> Option<u32> {
        match who {
            Who::Landfast => self.landfast.pid(),
            _ => Some(self.ganesha.pid()),
        }
    }

    /// What the servers said last.
    pub fn said(&self) -> String {
        format!("{}\n{}", self.ganesha.said(), self.landfast.said())
    }

    /// From now on the disks are so.
    pub fn disks(&self, words: &str) -> Result<(), String> {
        self.data.disk.control(words)?;
        self.stable.disk.control(words)
    }

    /// Where a server is that takes so many milliseconds longer for each answer.
    pub fn port(&self, who: Who, each_ms: u64) -> Result<u16, String> {
        let server = match who {
            Who::Landfast => self.landfast.address(),
            _ => {
                let address = SERVER.parse().map_err(|e| format!("{SERVER}: {e}"))?;
                SocketAddr::new(address, ganesha::PORTS[0])
            }
        };
        match each_ms {
            0 => Ok(server.port()),
            ms => slow::delayed(server, Duration::from_millis(ms)),
        }
    }

    /// Of what a server serves the path, as version 3 knows it, and the port of MOUNT.
    pub fn path(&self, who: Who, port: u16) -> (String, u16) {
        let [_, mount] = ganesha::PORTS;
        let (path, mount) = match who {
            Who::Landfast => (self.data.path.join("own"), port),
            Who::Ganesha => (self.data.path.join("ganesha"), mount),
            Who::GaneshaStable => (self.stable.path.join("ganesha"), mount),
        };
        (path.display().to_string(), mount)
    }

    /// The script that mounts what a server serves.
    pub fn mount(&self, who: Who, vers: Vers, options: &str, port: u16) -> String {
        let name = match who {
            Who::Landfast => return format!("PORT={port}\nmount_export {options}"),
            Who::Ganesha => EXPORTS[0],
            Who::GaneshaStable => EXPORTS[1],
        };
        let (what, more) = match vers {
            Vers::V3 => {
                let (path, mount) = self.path(who, port);
                (path, format!(",nolock,mountport={mount},mountproto=tcp"))
            }
            _ => (name.to_owned(), String::new()),
        };
        format!("mount -t nfs -o vers=$VERS,proto=tcp,port={port}{more}{options} $SERVER:{what} $MNT")
    }
}

/// What both captures of a case say; an error if one says something wrong.
fn judge(case: &Case, binary: &Path, files: &[PathBuf; 2], port: u16) -> Result<String, String> {
    let mut said = Vec::new();
    let mut wrong = Vec::new();
    for (end, file) in ["client", "server"].iter().zip(files) {
        let json = output(command(&binary.to_string_lossy(), ["trace", "--json"]).arg(file))?;
        let report: Value = serde_json::from_str(&json).map_err(|e| format!("--json: {e}"))?;
        let verdict = &report["verdict"];
        let bound = verdict["bound"].as_str().unwrap_or_default();
        if !case.bounds.is_empty() && !case.bounds.contains(&bound) {
            wrong.push(format!("{end}: {bound}"));
        }
        let side = report["capture_side"].as_str().unwrap_or_default();
        if case.line.round_trip >= Duration::from_millis(1) && side != *end {
            wrong.push(format!("{end}: captured at {side}"));
        }
        let (seen, matched) = (&report["calls_seen"], &report["calls_matched"]);
        if seen != matched {
            wrong.push(format!("{end}: {matched} of {seen} calls matched"));
        }
        // Of calls of which something was sent again tshark leaves out some, also where only what came at last came by.
        let again = &report["capture"]["segments_retransmitted"];
        if again == 0 && report["capture"]["segments_early"] == 0 {
            let theirs = procedures_of_tshark(file, port, case.vers)?;
            if let Err(why) = same("procedures", &rows_of_ours(&report, case.vers, false)?, &theirs) {
                wrong.push(format!("{end}: {why}"));
            }
        }
        let shares = verdict["shares"].as_object().into_iter().flatten();
        let mut shares: Vec<(&String, f64)> =
            shares.filter_map(|(name, s)| s.as_f64().map(|s| (name, s))).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        let total: f64 = shares.iter().map(|(_, s)| s).sum();
        let shares: Vec<String> =
            shares.iter().map(|(name, s)| format!("{name} {:.0}%", s / total * 100.0)).collect();
        said.push(format!("{end} ({side}, {seen} calls, {total:.1} s): {bound}: {}", shares.join(" ")));
    }
    let row = said.join("; ");
    if wrong.is_empty() { Ok(row) } else { Err(format!("{}: {row}", wrong.join("; "))) }
}

/// The guest's disk: an archive of archives.
fn archives(dir: &Path) -> Result<PathBuf, String> {
    let at = dir.join("archives");
    let write = |path: &Path, bytes: usize| {
        let content: Vec<u8> = (0..bytes).map(|i| (i * 31 + bytes) as u8).collect();
        fs::write(path, content).map_err(|e| format!("{}: {e}", path.display()))
    };
    let make = |path: &Path| fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()));
    let (directories, files, lengths) = TWO;
    for directory in 0..directories {
        let path = at.join(format!("two/d{directory}"));
        make(&path)?;
        for (file, bytes) in (0..files).zip(lengths.iter().cycle()) {
            write(&path.join(format!("file{file:03}")), *bytes)?;
        }
    }
    make(&at.join("five"))?;
    for (file, bytes) in FIVE.iter().enumerate() {
        write(&at.join(format!("five/file{file}")), *bytes)?;
    }
    for name in ["two", "five"] {
        let archive = at.join(format!("{name}.tar"));
        run_program(command("tar", ["-cf"]).arg(archive).arg("-C").arg(at.join(name)).arg("."))?;
    }
    let all = dir.join("archives.tar");
    run_program(command("tar", ["-cf"]).arg(&all).arg("-C").arg(&at).args(["two.tar", "five.tar"]))?;
    Ok(all)
}
