//! `cargo xtask guest work`: what people do on a mount, first undisturbed, then while the server is restarted.
//!
//! Each work is a script under `xtask/guest/work`. The second time the server is ended and started again in its middle,
//! once by SIGTERM and once by SIGKILL: after a quarter and after half of the RPCs that the work took undisturbed. No error
//! may reach the application, and what it made must be what it should be.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use super::archive;
use super::client::{Client, Whose};
use super::machine::Hardware;
use super::mountstats::Counts;
use super::recipe::Vers;
use super::report::{Report, Row};
use super::setup::{MOUNTPOINT, Setup, Stage};

/// The archive whose files are copied and committed.
pub const ARCHIVE: &str = "openvswitch";

const PREPARE: &str = include_str!("../../guest/work/prepare.sh");

/// The work of one client.
const WORKS: [(&str, &str); 5] = [
    ("git", include_str!("../../guest/work/git.sh")),
    ("make", include_str!("../../guest/work/make.sh")),
    ("sqlite", include_str!("../../guest/work/sqlite.sh")),
    ("rsync", include_str!("../../guest/work/rsync.sh")),
    ("sparse", include_str!("../../guest/work/sparse.sh")),
];

/// The work of two clients, and what is looked at when both are done.
const APPEND: &str = "append";
const APPEND_EACH: &str = include_str!("../../guest/work/append.sh");
const APPEND_AFTER: &str = include_str!("../../guest/work/append-after.sh");

/// Starts what comes on standard input, and returns at once.
pub const START: &str = r#"rm -f /run/landfast/code
cat >/run/landfast/work.sh
(bash /run/landfast/work.sh >/run/landfast/work.out 2>&1; echo $? >/run/landfast/code.part; mv /run/landfast/code.part /run/landfast/code) </dev/null >/dev/null 2>&1 &"#;

/// The client's counters; a first line `over` when the work has ended.
const PROGRESS: &str = "[ ! -e /run/landfast/code ] || echo over\ncounters";

/// Waits for the end of the work, at most so many SECONDS; prints what it printed, and fails if it failed.
pub const END: &str = r#"until [ -e /run/landfast/code ]; do
    [ $SECONDS -lt $LIMIT ] || { cat /run/landfast/work.out; die "not over after $LIMIT seconds"; }
    sleep 0.1
done
cat /run/landfast/work.out
exit "$(cat /run/landfast/code)""#;

/// What the work's processes wait for, should they hang; then they are ended.
pub const PROCESSES: &str = r#"for process in /proc/[0-9]*; do
    command=$(tr '\0' ' ' <"$process/cmdline" | cut -c 1-100) || continue # it may have ended
    [ -z "$command" ] || { echo "$command"; cat "$process/stack" || true; }
done
cat /proc/locks
pkill -KILL -f /run/landfast/work.sh || true"#;

/// Between two looks at the client's counters: each takes time of the work's only processor.
const LOOK: Duration = Duration::from_millis(300);

/// Options of `guest work`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Whose client mounts the server. With `mount` there is no work of two clients.
    #[arg(long, value_enum, default_value_t = Whose::Linux)]
    client: Whose,
    /// Only these: git, make, sqlite, rsync, sparse, append.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leave the server alone.
    #[arg(long)]
    undisturbed: bool,
    /// Seconds that one work may take.
    #[arg(long, default_value_t = 900)]
    limit: u64,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        archive::plain(&archive::find(ARCHIVE)?)?;
        self.setup.fetch_for(self.client)
    }
}

/// Does the work; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    let archive = archive::find(ARCHIVE)?;
    let hardware = Hardware { disk: Some(archive::plain(&archive)?), ..Hardware::default() };
    let mut stage = options.setup.start_served_as(options.client, hardware, options.limit)?;
    let report = Report {
        kernel: stage.client.machine.release.clone(),
        server: options.setup.server.to_string(),
        archive: archive.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        files: 250,
        rows: Vec::new(),
    };
    stage.client.run(None, &format!("WORKS='{}'\n{PREPARE}", options.only.join(" ")))?;
    let mut session = Session { options, stage: &mut stage, report };
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

/// The guest, the server and what was found so far.
struct Session<'a> {
    options: &'a Options,
    stage: &'a mut Stage,
    report: Report,
}

impl Session<'_> {
    /// All work with one NFS version.
    fn version(&mut self, vers: Vers) -> Result<(), String> {
        self.stage.client.run(Some(vers), "mount_export\nmkdir -p $WORK")?;
        let restarts = self.stage.server.is_some() && !self.options.undisturbed;
        for (name, script) in WORKS {
            if !self.wanted(name) {
                continue;
            }
            let rpcs = self.timed(vers, name, |this| this.stage.client.run(Some(vers), script).map(drop))?;
            if let (Some(rpcs), true) = (rpcs, restarts) {
                let name = format!("{name}+restarts");
                self.timed(vers, &name, |this| this.disturbed(vers, script, rpcs))?;
            }
        }
        if self.wanted(APPEND) && self.stage.server.is_some() && self.options.client == Whose::Linux {
            let mut peer = self.peer(vers)?;
            let rpcs = self.timed(vers, APPEND, |this| this.append(vers, &mut peer, None))?;
            if let (Some(rpcs), true) = (rpcs, restarts) {
                let name = format!("{APPEND}+restarts");
                self.timed(vers, &name, |this| this.append(vers, &mut peer, Some(rpcs)))?;
            }
        }
        self.stage.client.run(Some(vers), "cd /\nrm -rf $WORK\nunmount_export").map(drop)
    }

    fn wanted(&self, name: &str) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|wanted| wanted == name)
    }

    /// Does one work, counts its RPCs and notes how it ended; returns the RPCs if it ended well. An error means that the
    /// guest or the server is gone.
    fn timed(
        &mut self,
        vers: Vers,
        name: &str,
        work: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<Option<u64>, String> {
        let before = self.counts(vers)?;
        let start = Instant::now();
        let result = work(self);
        let seconds = start.elapsed().as_secs_f64();
        let passed = result.is_ok();
        eprintln!("{vers} {name}: {} ({seconds:.1} s)", if passed { "passed" } else { "FAILED" });
        if let Err(why) = result {
            eprintln!("{why}");
            self.stage.explain()?;
            eprintln!("The guest's processes:\n{}", self.stage.client.run(None, PROCESSES)?);
            // What it left is in the way of the others.
            self.stage.client.run(Some(vers), "cd /\nrm -rf $WORK\nmkdir $WORK")?;
        }
        let counts = self.counts(vers)?.since(&before);
        let rpcs = counts.total();
        self.report.rows.push(Row::new(&vers.to_string(), name, seconds, passed, None, counts));
        Ok(passed.then_some(rpcs))
    }

    /// Does one work and restarts the server twice in its middle.
    fn disturbed(&mut self, vers: Vers, script: &str, rpcs: u64) -> Result<(), String> {
        let from = self.counts(vers)?.total();
        let whole = self.stage.client.script(Some(vers), script);
        self.stage.client.run_with(None, START, whole.as_bytes())?;
        let restarted = self.restarts(from, rpcs);
        let end = self.end();
        // The work's own end says more than a restart that came too late.
        self.stage.client.run(None, &end).map(drop).and(restarted)
    }

    /// The script that waits for the end of what was started: it gives up before we do, so that the guest can be asked why.
    fn end(&self) -> String {
        format!("LIMIT={}\n{END}", self.options.limit * 9 / 10)
    }

    /// Two clients append at the same time; with `rpcs`, those of the first client undisturbed, the server is restarted.
    fn append(&mut self, vers: Vers, peer: &mut Client, rpcs: Option<u64>) -> Result<(), String> {
        let from = self.counts(vers)?.total();
        for (client, name) in [(&mut self.stage.client, "one"), (&mut *peer, "two")] {
            let script = client.script(Some(vers), &format!("CLIENT={name}\n{APPEND_EACH}"));
            client.run_with(None, START, script.as_bytes())?;
        }
        let restarted = rpcs.map_or(Ok(()), |rpcs| self.restarts(from, rpcs));
        let end = self.end();
        let ends = [self.stage.client.run(None, &end), peer.run(None, &end)];
        for end in ends {
            end?;
        }
        self.stage.client.run(Some(vers), APPEND_AFTER)?;
        restarted
    }

    /// Boots a second client, which mounts the export too.
    fn peer(&mut self, vers: Vers) -> Result<Client, String> {
        let mut peer = self.stage.peer()?;
        peer.run(Some(vers), "mount_export")?;
        Ok(peer)
    }

    /// Restarts the server after a quarter (SIGTERM) and after half (SIGKILL) of these RPCs.
    fn restarts(&mut self, from: u64, rpcs: u64) -> Result<(), String> {
        for (part, kill) in [(4, false), (2, true)] {
            self.wait_for(from + rpcs / part)?;
            let Some(server) = &mut self.stage.server else { return Ok(()) };
            if kill {
                server.kill()?
            } else {
                server.stop()?
            }
            server.start_again()?;
        }
        Ok(())
    }

    /// Waits until the client has made so many RPCs; an error if the work is over before.
    fn wait_for(&mut self, rpcs: u64) -> Result<(), String> {
        let deadline = Instant::now() + self.stage.client.limit;
        loop {
            let said = self.stage.client.run(None, PROGRESS)?;
            if Counts::parse(&said, MOUNTPOINT)?.total() >= rpcs {
                return Ok(());
            }
            if said.lines().any(|line| line == "over") {
                return Err("the work was over before the server was restarted".to_owned());
            }
            if Instant::now() > deadline {
                return Err("the work makes no progress".to_owned());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The client's counters, after all that it has to write is written.
    fn counts(&mut self, vers: Vers) -> Result<Counts, String> {
        Counts::parse(&self.stage.client.run(Some(vers), "sync\ncounters")?, MOUNTPOINT)
    }
}
