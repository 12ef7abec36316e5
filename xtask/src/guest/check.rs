//! `cargo xtask guest check`: Linux's NFS client against `landfast serve`, check by check.
//!
//! Each check is a script under `xtask/guest/checks` that the guest runs; the host starts and restarts the server
//! between them. The first failure of a version ends that version: what follows builds on it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use super::archive;
use super::image::{self, Image};
use super::machine::{Hardware, Machine};
use super::mountstats::Counts;
use super::recipe::{Kernel, Vers};
use super::report::{Report, Row};
use super::server::{Scratch, Server, release_binary};

/// Bytes of the scratch volume (sparse).
const VOLUME_BYTES: u64 = 8 << 30;

/// Where the guest mounts the export; as in `lib.sh`.
const MOUNTPOINT: &str = "/mnt/nfs";

/// What stands in front of every check.
pub const LIB: &str = include_str!("../../guest/lib.sh");
/// The kernel's server in the guest.
pub const KNFSD: &str = include_str!("../../guest/knfsd.sh");

macro_rules! script {
    ($name:literal) => {
        ($name, include_str!(concat!("../../guest/checks/", $name, ".sh")))
    };
}

/// A check's name and script.
type Script = (&'static str, &'static str);

const REFERENCE: Script = script!("reference");
const MOUNT: Script = script!("mount");
const UNMOUNT: Script = script!("unmount");

/// Checks that go over the whole archive: their RPCs are given per file.
const OVER_ARCHIVE: [Script; 5] =
    [script!("untar"), script!("compare"), script!("copy"), script!("compare-copy"), script!("remove")];

/// The other checks that leave the server alone.
const OTHERS: [Script; 5] =
    [script!("git"), script!("locks"), script!("types"), script!("data"), script!("access")];

/// What the guest does before and after the server is restarted.
const RESTART: (Script, Script) = (script!("restart-before"), script!("restart-after"));
const CUT: (Script, Script) = (script!("cut-before"), script!("cut-after"));

/// What two clients do in turn; the second one loses its power before the last script.
const TWO_CLIENTS: [Script; 5] = [
    script!("two-clients-1"),
    script!("two-clients-2"),
    script!("two-clients-3"),
    script!("two-clients-4"),
    script!("two-clients-5"),
];

/// Who serves.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Who {
    /// `landfast serve` on the host.
    Landfast,
    /// The kernel's server in the guest itself: a peer for the RPC counts, and a test of the checks.
    Kernel,
}

/// Options of `guest check`.
#[derive(Args)]
pub struct Options {
    /// The guest's kernel: 6.1 or 6.12.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// NFS versions to mount with.
    #[arg(long, value_delimiter = ',', default_values_t = [Vers::V3, Vers::V4_1, Vers::V4_2])]
    vers: Vec<Vers>,
    /// Megabytes of the guest's memory.
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// The guest's processors; a second one helps only where the host has more than two.
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// The archive: `openvswitch`, `newlib`, `linux` (from Debian's packages), or a file.
    #[arg(long, default_value = "openvswitch")]
    archive: String,
    /// Who serves.
    #[arg(long, value_enum, default_value_t = Who::Landfast)]
    server: Who,
    /// The server's binary, instead of building the release one.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// The path to mount.
    #[arg(long, default_value = "/")]
    export: String,
    /// The server's durability: log, sync or unsafe.
    #[arg(long, default_value = "log")]
    durability: String,
    /// The scratch volume's filesystem: ext4, xfs or btrfs.
    #[arg(long, default_value = "ext4")]
    fs: String,
    /// Only these checks (mount and unmount always run); those that build on others fail without them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds that one check may take.
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs the checks; needs root and a mount namespace of its own.
pub fn run(options: &Options) -> Result<ExitCode, String> {
    let image = image::build(options.kernel)?;
    let archive = archive::find(&options.archive)?;
    let plain = archive::plain(&archive)?;
    let mut server = match options.server {
        Who::Kernel => None,
        Who::Landfast => {
            let binary = match &options.binary {
                Some(binary) => fs::canonicalize(binary).map_err(|e| format!("{}: {e}", binary.display()))?,
                None => release_binary()?,
            };
            let scratch = Scratch::new(&options.fs, VOLUME_BYTES)?;
            Some((Server::start(&binary, &scratch, &options.durability)?, scratch))
        }
    };
    let hardware =
        Hardware { memory_mb: options.memory, cpus: options.cpus, disk: Some(plain), ..Hardware::default() };
    let machine = Machine::boot(&image, &hardware)?;
    eprintln!("Linux {} was ready after {:.1} s", machine.release, machine.boot.as_secs_f64());
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut session = Session {
        options,
        image: &image,
        hardware,
        peer: None,
        server: server.as_mut().map(|(server, _)| server),
        report: Report {
            kernel: machine.release.clone(),
            server: if options.server == Who::Kernel { "kernel".into() } else { "landfast".into() },
            archive: name,
            files: 0,
            rows: Vec::new(),
        },
        machine,
    };
    session.prepare()?;
    for vers in &options.vers {
        session.version(*vers)?;
    }
    if let Some(server) = session.server.as_deref_mut() {
        server.stop()?;
    }
    let report = session.report;
    if options.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else {
        println!("{}", report.table());
    }
    Ok(if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is done to the server while a check waits.
#[derive(Clone, Copy)]
enum Restart {
    /// SIGTERM: a checkpoint, then a clean end.
    Stop,
    /// SIGKILL: the log is replayed.
    Kill,
}

/// The guest, the server and what was found so far.
struct Session<'a> {
    options: &'a Options,
    image: &'a Image,
    hardware: Hardware,
    /// The second client, while there is one.
    peer: Option<Machine>,
    server: Option<&'a mut Server>,
    machine: Machine,
    report: Report,
}

impl Session<'_> {
    /// What all versions share: the kernel's server if it is wanted, and the archive on the guest's own disk.
    fn prepare(&mut self) -> Result<(), String> {
        if self.options.server == Who::Kernel {
            self.guest("knfsd", KNFSD)?;
        }
        let script = self.script(Vers::V4_1, REFERENCE.1);
        let files = self.guest(REFERENCE.0, &script)?;
        self.report.files =
            files.trim().parse().map_err(|_| format!("{}: {files:?} is no number of files", REFERENCE.0))?;
        Ok(())
    }

    /// All checks with one NFS version.
    fn version(&mut self, vers: Vers) -> Result<(), String> {
        let mut good = self.check(vers, MOUNT.0, None, &[Part::Guest(MOUNT.1)])?;
        let files = Some(self.report.files);
        for (name, script) in OVER_ARCHIVE {
            good = good && self.wanted(name, |this| this.check(vers, name, files, &[Part::Guest(script)]))?;
        }
        for (name, script) in OTHERS {
            good = good && self.wanted(name, |this| this.check(vers, name, None, &[Part::Guest(script)]))?;
        }
        let restarts = [
            ("restart-stop", RESTART, Restart::Stop),
            ("restart-kill", RESTART, Restart::Kill),
            ("untar-stop", CUT, Restart::Stop),
            ("untar-kill", CUT, Restart::Kill),
        ];
        for (name, (before, after), restart) in restarts {
            if self.server.is_some() {
                let parts = [Part::Guest(before.1), Part::Server(restart), Part::Guest(after.1)];
                good = good && self.wanted(name, |this| this.check(vers, name, None, &parts))?;
            }
        }
        // Version 3 is mounted with `nolock`: two clients do not see each other's locks.
        if self.server.is_some() && vers != Vers::V3 {
            let [first, second, third, fourth, fifth] = TWO_CLIENTS.map(|(_, script)| script);
            let parts = [
                Part::Guest(first),
                Part::PeerOn,
                Part::Peer(second),
                Part::Guest(third),
                Part::Peer(fourth),
                Part::PeerOff,
                Part::Guest(fifth),
            ];
            good =
                good && self.wanted("two-clients", |this| this.check(vers, "two-clients", None, &parts))?;
            self.peer = None;
        }
        if good {
            self.check(vers, UNMOUNT.0, None, &[Part::Guest(UNMOUNT.1)])?;
        } else {
            // The next version starts afresh, whatever this one left: also if this guest answers no more.
            self.machine = Machine::boot(self.image, &self.hardware)?;
            self.prepare()?;
        }
        Ok(())
    }

    /// Runs a check unless others were asked for.
    fn wanted(
        &mut self,
        name: &str,
        run: impl FnOnce(&mut Self) -> Result<bool, String>,
    ) -> Result<bool, String> {
        let only = &self.options.only;
        if only.is_empty() || only.iter().any(|wanted| wanted == name) { run(self) } else { Ok(true) }
    }

    /// Runs one check, counts its RPCs and notes how it ended. An error means that the guest or the server is gone.
    fn check(&mut self, vers: Vers, name: &str, files: Option<u64>, parts: &[Part]) -> Result<bool, String> {
        let before = self.counts().unwrap_or_default();
        let start = Instant::now();
        let mut result = Ok(());
        for part in parts {
            result = match part {
                Part::Guest(script) => {
                    let script = self.script(vers, script);
                    self.guest(name, &script).map(|_| ())
                }
                Part::Server(restart) => self.restart(*restart),
                Part::PeerOn => self.peer_on(),
                Part::Peer(script) => {
                    let script = self.script(vers, script);
                    let limit = Duration::from_secs(self.options.limit);
                    let peer = self.peer.as_mut().ok_or("there is no second client".to_owned());
                    peer.and_then(|peer| guest(peer, limit, name, &script)).map(|_| ())
                }
                Part::PeerOff => {
                    self.peer = None;
                    Ok(())
                }
            };
            if result.is_err() {
                break;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let counts = self.counts().unwrap_or_default().since(&before);
        let passed = result.is_ok();
        eprintln!("{vers} {name}: {} ({seconds:.1} s)", if passed { "passed" } else { "FAILED" });
        if let Err(why) = result {
            eprintln!("{why}");
            if let Some(server) = self.server.as_deref_mut() {
                eprintln!("The server said last:\n{}", server.said());
                server.alive()?;
            }
            eprintln!("The guest's console:\n{}", self.machine.console());
        }
        self.report.rows.push(Row::new(&vers.to_string(), name, seconds, passed, files, counts));
        Ok(passed)
    }

    /// Ends the server and starts it again on the same volume, log and port.
    fn restart(&mut self, restart: Restart) -> Result<(), String> {
        let Some(server) = self.server.as_deref_mut() else { return Ok(()) };
        match restart {
            Restart::Stop => server.stop()?,
            Restart::Kill => server.kill()?,
        }
        server.start_again()
    }

    /// A script with the settings of the run and the library in front.
    fn script(&self, vers: Vers, script: &str) -> String {
        let (server, port, export) = match &self.server {
            Some(server) => ("10.0.2.2", server.port(), self.options.export.as_str()),
            None => ("127.0.0.1", 2049, "/"),
        };
        format!("SERVER={server} PORT={port} EXPORT='{export}' VERS={vers}\n{LIB}\n{script}")
    }

    /// Boots the second client.
    fn peer_on(&mut self) -> Result<(), String> {
        let hardware = Hardware::default();
        let hardware = Hardware { name: format!("{}-peer", hardware.name), ..hardware };
        self.peer = Some(Machine::boot(self.image, &hardware)?);
        Ok(())
    }

    /// Runs a script in the guest and returns what it printed; an error if its exit code is not 0.
    fn guest(&mut self, name: &str, script: &str) -> Result<String, String> {
        guest(&mut self.machine, Duration::from_secs(self.options.limit), name, script)
    }

    /// The client's counters, after all that it has to write is written.
    fn counts(&mut self) -> Result<Counts, String> {
        let script = format!("sync; cat /proc/self/mountstats; mountpoint -q {MOUNTPOINT}");
        Counts::parse(&self.guest("mountstats", &script)?, MOUNTPOINT)
    }
}

/// Runs a script in a guest and returns what it printed; an error if its exit code is not 0.
fn guest(machine: &mut Machine, limit: Duration, name: &str, script: &str) -> Result<String, String> {
    let mut output = Vec::new();
    let code = machine.run(script, &[], limit, &mut output);
    let output = String::from_utf8_lossy(&output).into_owned();
    match code {
        Ok(0) => Ok(output),
        Ok(code) => Err(format!("{name}: exit code {code}\n{output}")),
        Err(why) => Err(format!("{name}: {why}\n{output}")),
    }
}

/// A part of a check.
enum Part<'a> {
    /// The guest runs a script.
    Guest(&'a str),
    /// The server is restarted.
    Server(Restart),
    /// A second guest boots.
    PeerOn,
    /// The second guest runs a script.
    Peer(&'a str),
    /// The second guest's power is cut.
    PeerOff,
}
