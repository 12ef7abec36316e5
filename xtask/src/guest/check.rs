//! `cargo xtask guest check`: Linux's NFS client against `landfast serve`, check by check.
//!
//! Each check is a script under `xtask/guest/checks` that the guest runs; the host starts and restarts the server
//! between them. The first failure of a version ends that version: what follows builds on it.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use super::archive;
use super::client::Client;
use super::machine::Hardware;
use super::mountstats::Counts;
use super::recipe::Vers;
use super::report::{Report, Row};
use super::setup::{MOUNTPOINT, Setup, Stage};

macro_rules! script {
    ($name:literal) => {
        ($name, include_str!(concat!("../../guest/checks/", $name, ".sh")))
    };
}

type Script = (&'static str, &'static str);

const REFERENCE: Script = script!("reference");
const MOUNT: Script = script!("mount");
const UNMOUNT: Script = script!("unmount");

/// Checks that go over the whole archive: their RPCs are given per file.
const OVER_ARCHIVE: [Script; 5] =
    [script!("untar"), script!("compare"), script!("copy"), script!("compare-copy"), script!("remove")];

/// The other checks that leave the server alone.
const OTHERS: [Script; 8] = [
    script!("git"),
    script!("locks"),
    script!("types"),
    script!("data"),
    script!("access"),
    script!("xattr"),
    script!("acl"),
    script!("listing"),
];

/// What the guest does before and after the server is restarted.
const RESTART: (Script, Script) = (script!("restart-before"), script!("restart-after"));
const CUT: (Script, Script) = (script!("cut-before"), script!("cut-after"));

/// The checks with a restart.
const RESTARTS: [(&str, (Script, Script), Restart); 4] = [
    ("restart-stop", RESTART, Restart::Stop),
    ("restart-kill", RESTART, Restart::Kill),
    ("untar-stop", CUT, Restart::Stop),
    ("untar-kill", CUT, Restart::Kill),
];

/// The check with a second client.
const TOGETHER: &str = "two-clients";

/// What two clients do in turn; the second one loses its power before the last script.
const TWO_CLIENTS: [Script; 5] = [
    script!("two-clients-1"),
    script!("two-clients-2"),
    script!("two-clients-3"),
    script!("two-clients-4"),
    script!("two-clients-5"),
];

/// What they do to each other's files before that, once the second one has mounted.
const DELEGATED: [Script; 3] = [script!("delegated-1"), script!("delegated-2"), script!("delegated-3")];

/// What they do besides with version 3, before the second one loses its power: the first one waits for the lock, and is told
/// when it has it. No lease ends a lock there: the second one comes back and says that it holds nothing.
const WAITS: Script = script!("two-clients-waits");
const RELEASED: Script = script!("two-clients-released");
const GRANTED: Script = script!("two-clients-granted");
const KEPT: Script = script!("two-clients-kept");

/// What a client's status monitor has to know after a restart: written on its disk, which here goes with the guest.
const MONITORED: &str = "tar -C /var/lib/nfs -c sm sm.bak state | base64";
const MONITORED_AGAIN: &str = "base64 -d | tar -C /var/lib/nfs -xp\nmount_export";

/// Options of `guest check`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Megabytes of the guest's memory.
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// The guest's processors; a second one helps only where the host has more than two.
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// The archive: `openvswitch`, `newlib`, `linux` (from Debian's packages), or a file.
    #[arg(long, default_value = "openvswitch")]
    archive: String,
    /// Only so many files of it, the first ones.
    #[arg(long)]
    files: Option<u64>,
    /// Only these checks (mount and unmount always run); those that build on others fail without them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// All but these checks.
    #[arg(long, value_delimiter = ',', conflicts_with = "only")]
    except: Vec<String>,
    /// Seconds that one check may take.
    #[arg(long, default_value_t = 900)]
    limit: u64,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        archive::first_files(&archive::plain(&archive::find(&self.archive)?)?, self.files)?;
        self.setup.fetch()
    }

    /// Whether this check is to be run.
    fn wants(&self, name: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|wanted| wanted == name);
        (self.only.is_empty() || named(&self.only)) && !named(&self.except)
    }

    /// An error if a check is named that there is not.
    fn known(&self) -> Result<(), String> {
        match self.only.iter().chain(&self.except).find(|name| !names().any(|known| known == name.as_str())) {
            Some(unknown) => {
                Err(format!("no check {unknown}; there are {}", names().collect::<Vec<_>>().join(", ")))
            }
            None => Ok(()),
        }
    }
}

/// The checks that can be chosen, in the order in which they run.
pub fn names() -> impl Iterator<Item = &'static str> {
    let scripts = OVER_ARCHIVE.into_iter().chain(OTHERS).map(|(name, _)| name);
    scripts.chain(RESTARTS.map(|(name, ..)| name)).chain([TOGETHER])
}

/// Runs the checks; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    options.known()?;
    let archive = archive::find(&options.archive)?;
    let plain = archive::first_files(&archive::plain(&archive)?, options.files)?;
    let hardware =
        Hardware { memory_mb: options.memory, cpus: options.cpus, disk: Some(plain), ..Hardware::default() };
    let mut stage = options.setup.start_served(hardware, options.limit)?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut session = Session {
        options,
        report: Report {
            kernel: stage.client.machine.release.clone(),
            server: options.setup.server.to_string(),
            archive: name,
            files: 0,
            rows: Vec::new(),
        },
        stage: &mut stage,
        peer: None,
        monitored: String::new(),
    };
    session.prepare()?;
    for vers in &options.setup.vers {
        session.version(*vers)?;
    }
    let report = session.report;
    stage.end()?;
    if options.setup.json {
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
    stage: &'a mut Stage,
    /// The second client, while there is one.
    peer: Option<Client>,
    /// What its status monitor had written when its power was cut.
    monitored: String,
    report: Report,
}

impl Session<'_> {
    /// What all versions share: the archive on the guest's own disk.
    fn prepare(&mut self) -> Result<(), String> {
        let files = self.stage.client.run(None, REFERENCE.1)?;
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
        for (name, (before, after), restart) in RESTARTS {
            if self.stage.server.is_some() {
                let parts = [Part::Guest(before.1), Part::Server(restart), Part::Guest(after.1)];
                good = good && self.wanted(name, |this| this.check(vers, name, None, &parts))?;
            }
        }
        if self.stage.server.is_some() {
            let [first, second, third, fourth, fifth] = TWO_CLIENTS.map(|(_, script)| script);
            let [held, changed, seen] = DELEGATED.map(|(_, script)| script);
            let mut parts = vec![
                Part::Guest(first),
                Part::PeerOn,
                Part::Peer(second),
                Part::Guest(held),
                Part::Peer(changed),
                Part::Guest(seen),
                Part::Guest(third),
                Part::Peer(fourth),
            ];
            if vers == Vers::V3 {
                parts.extend([
                    Part::Guest(WAITS.1),
                    Part::Peer(RELEASED.1),
                    Part::Guest(GRANTED.1),
                    Part::Peer(fourth),
                    Part::PeerOff,
                    Part::Guest(KEPT.1),
                    Part::PeerBack,
                ]);
            } else {
                parts.push(Part::PeerOff);
            }
            parts.push(Part::Guest(fifth));
            good = good && self.wanted(TOGETHER, |this| this.check(vers, TOGETHER, None, &parts))?;
            self.peer = None;
        }
        if good {
            self.check(vers, UNMOUNT.0, None, &[Part::Guest(UNMOUNT.1)])?;
        } else {
            // The next version starts afresh, whatever this one left: also if this guest answers no more.
            self.stage.boot_again()?;
            self.prepare()?;
        }
        Ok(())
    }

    /// Runs a check unless others were asked for, or all but it.
    fn wanted(
        &mut self,
        name: &str,
        run: impl FnOnce(&mut Self) -> Result<bool, String>,
    ) -> Result<bool, String> {
        if self.options.wants(name) { run(self) } else { Ok(true) }
    }

    /// Runs one check, counts its RPCs and notes how it ended. An error means that the guest or the server is gone.
    fn check(&mut self, vers: Vers, name: &str, files: Option<u64>, parts: &[Part]) -> Result<bool, String> {
        let before = self.counts().unwrap_or_default();
        let start = Instant::now();
        let mut result = Ok(());
        let mut output = String::new();
        for part in parts {
            result = match part {
                Part::Guest(script) => self.stage.client.run(Some(vers), script).map(|text| output += &text),
                Part::Server(restart) => self.restart(*restart),
                Part::PeerOn => self.stage.peer().map(|peer| self.peer = Some(peer)),
                Part::Peer(script) => {
                    let peer = self.peer.as_mut().ok_or("there is no second client".to_owned());
                    peer.and_then(|peer| peer.run(Some(vers), script)).map(|text| output += &text)
                }
                Part::PeerOff => self.peer_off(vers),
                Part::PeerBack => self.peer_back(vers),
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
            self.stage.explain()?;
        }
        self.report
            .rows
            .push(Row::new(&vers.to_string(), name, seconds, passed, files, counts).showing(&output));
        Ok(passed)
    }

    /// Cuts the second client's power. What its status monitor had written is kept.
    fn peer_off(&mut self, vers: Vers) -> Result<(), String> {
        if let (Some(mut peer), Vers::V3) = (self.peer.take(), vers) {
            self.monitored = peer.run(None, MONITORED)?;
        }
        Ok(())
    }

    /// Boots the second client again, with what its status monitor had written.
    fn peer_back(&mut self, vers: Vers) -> Result<(), String> {
        let peer = self.peer.insert(self.stage.peer()?);
        peer.run_with(Some(vers), MONITORED_AGAIN, self.monitored.as_bytes()).map(drop)
    }

    /// Ends the server and starts it again on the same volume, log and port.
    fn restart(&mut self, restart: Restart) -> Result<(), String> {
        let Some(server) = &mut self.stage.server else { return Ok(()) };
        match restart {
            Restart::Stop => server.stop()?,
            Restart::Kill => server.kill()?,
        }
        server.start_again()
    }

    /// The client's counters, after all that it has to write is written.
    fn counts(&mut self) -> Result<Counts, String> {
        let script = format!("sync; cat /proc/self/mountstats; mountpoint -q {MOUNTPOINT}");
        Counts::parse(&self.stage.client.run(None, &script)?, MOUNTPOINT)
    }
}

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
    /// The second guest boots again.
    PeerBack,
}
