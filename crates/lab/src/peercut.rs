//! Power cuts under any server, seen by `landfast verify`: the command that people run, against servers whose disks lose
//! their power.
//!
//! The server runs on the rig's emulated disks with their volatile caches; `landfast verify write` works on it with its journal
//! elsewhere; server and disks stop at a random moment; the filesystem is mounted again, the server started again, and
//! `landfast verify check` says what is lost.

use crate::child::{Child, Output, Role};
use crate::error::{Context, Error, Result};
use crate::limits::{
    PEERCUT_ACKS, PEERCUT_BOOT, PEERCUT_LATE, PEERCUT_PATIENCE, PEERCUT_POLL, PEERCUT_WITHIN,
};
use crate::mounts::Filesystem;
use crate::pairs;
use crate::peers::ganesha::{self, Ganesha};
use crate::rig::{Latency, Rig, RigOptions};
use crate::served::{Durability, ServeOptions, Served};
use landfast_verify::limits::LATE_FILES;
use landfast_verify::op::Kind;
use landfast_verify::report::{Report, Verifier};
use landfast_verify::rng::Rng;
use landfast_verify::rounds::{Race, RaceOp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    Landfast,
    /// nfs-ganesha with its VFS backend.
    Ganesha,
}

impl std::str::FromStr for Server {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "landfast" => Ok(Server::Landfast),
            "ganesha" => Ok(Server::Ganesha),
            _ => Err(Error::Unable(format!("`{s}` is not a server of the lab: use landfast or ganesha"))),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Options {
    pub server: Server,
    /// What Landfast promises.
    pub durability: Durability,
    pub fs: Filesystem,
    /// Mount options of the filesystem: `wsync`, `sync`, ...
    pub mount_options: String,
    pub cuts: u32,
    pub clients: u32,
    /// Versions of NFS, in turns.
    pub versions: Vec<String>,
    pub kinds: Vec<Kind>,
    /// Pairs of clients that race on one object.
    pub pairs: u32,
    /// Their races; empty is all.
    pub meetings: Vec<Race>,
    /// What is written UNSTABLE cannot be written back before its COMMIT.
    pub writeback_fails: bool,
    /// How long the disks take to flush.
    pub latency: Latency,
    /// The server's `landfast`, if it is not this one.
    pub binary: Option<PathBuf>,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Options {
    /// The versions that a server is asked in, unless one is named. Of nfs-ganesha those that need no port mapper.
    pub fn versions_of(server: Server) -> Vec<String> {
        let all: &[&str] = match server {
            Server::Landfast => &["3", "4.0", "4.1", "4.2"],
            Server::Ganesha => &["4.1"],
        };
        all.iter().map(|v| (*v).to_owned()).collect()
    }

    /// The title of a column of the table.
    pub fn title(&self) -> String {
        let options =
            if self.mount_options.is_empty() { String::new() } else { format!(" {}", self.mount_options) };
        let kinds = if self.kinds.is_empty() { "" } else { ", some kinds only" };
        let pairs = if self.pairs == 0 { "" } else { ", pairs" };
        let writeback = if self.writeback_fails { ", write-back fails" } else { "" };
        let kinds = format!("{kinds}{pairs}{writeback}");
        match (self.server, self.durability) {
            (Server::Ganesha, _) => format!("nfs-ganesha, {}{options}{kinds}", self.fs),
            (Server::Landfast, Durability::Log) => format!("Landfast, {}{options}{kinds}", self.fs),
            (Server::Landfast, other) => format!("Landfast {}, {}{options}{kinds}", other.word(), self.fs),
        }
    }

    /// The servers of the table in docs/durability.md.
    pub fn all(cuts: u32, clients: u32, seed: u64) -> Vec<Options> {
        use Filesystem::{Btrfs, Ext4, Xfs};
        let one = |server, durability, fs, mount: &str| Options {
            server,
            durability,
            fs,
            mount_options: mount.to_owned(),
            cuts,
            clients,
            versions: Options::versions_of(server),
            kinds: Vec::new(),
            pairs: 0,
            meetings: Vec::new(),
            writeback_fails: false,
            latency: Latency::default(),
            binary: None,
            seed,
        };
        vec![
            one(Server::Landfast, Durability::Log, Ext4, ""),
            one(Server::Landfast, Durability::Log, Xfs, ""),
            one(Server::Landfast, Durability::Log, Btrfs, ""),
            one(Server::Landfast, Durability::Sync, Ext4, ""),
            one(Server::Ganesha, Durability::Log, Xfs, "wsync"),
            one(Server::Ganesha, Durability::Log, Ext4, ""),
            one(Server::Landfast, Durability::Unsafe, Ext4, ""),
        ]
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub acknowledged: u64,
    pub checked: u64,
    pub lost: u64,
}

/// Results of the races of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaceCount {
    pub rounds: u64,
    /// Rounds in which only the second was answered.
    pub second_alone: u64,
    /// Rounds after which a reply is not true.
    pub broken: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Summary {
    pub title: String,
    pub cuts: u32,
    /// Cuts after which something was lost.
    pub cuts_with_losses: u32,
    pub all: Count,
    pub kinds: BTreeMap<Kind, Count>,
    /// Objects that are there, with a handle that went stale.
    pub stale: u64,
    pub renumbered: u64,
    pub strange: u64,
    pub handles: u64,
    pub in_doubt: u64,
    /// Operations in doubt that are there in part.
    pub partly: u64,
    /// Cuts after which the write verifier was another one.
    pub verifier_changed: u32,
    /// Cuts after which it was the same.
    pub verifier_kept: u32,
    /// Unstable writes that were gone, of which the changed verifier tells.
    pub unstable_lost: u64,
    /// Results of races, by the second operation and the first.
    pub met: BTreeMap<RaceOp, BTreeMap<RaceOp, RaceCount>>,
    /// Rounds whose replies fit no order of the two operations.
    pub unexplained: u64,
    /// Some of what is lost.
    pub examples: Vec<String>,
}

impl Summary {
    fn add(&mut self, report: &Report) {
        self.cuts += 1;
        self.cuts_with_losses += u32::from(report.has_losses());
        for row in &report.rows {
            for count in [&mut self.all, self.kinds.entry(row.kind).or_default()] {
                count.acknowledged += row.acknowledged;
                // What promises nothing is not checked.
                if row.kind != Kind::WriteUnstable || row.lost > 0 {
                    count.checked += row.checked;
                    count.lost += row.lost;
                }
            }
            self.examples.extend(row.examples.iter().take(1).map(|e| format!("{}: {e}", row.operation)));
        }
        for m in &report.met {
            let count = self.met.entry(m.meeting.second).or_default().entry(m.meeting.first).or_default();
            count.rounds += m.rounds;
            count.second_alone += m.second_alone;
            count.broken += m.broken;
            self.examples.extend(m.examples.iter().take(1).cloned());
        }
        self.unexplained += report.unexplained.count;
        self.stale += report.stale.count;
        self.renumbered += report.renumbered.count;
        self.strange += report.strange.count;
        self.handles += report.handles;
        self.in_doubt += report.in_doubt;
        self.partly += report.partly.count;
        self.unstable_lost += report.unstable_lost;
        match report.verifier {
            Verifier::Changed => self.verifier_changed += 1,
            Verifier::Kept => self.verifier_kept += 1,
            Verifier::Unknown => {}
        }
        for found in [&report.stale, &report.renumbered, &report.strange] {
            self.examples.extend(found.examples.iter().take(1).cloned());
        }
        self.examples.truncate(EXAMPLES_MAX);
    }
}

const EXAMPLES_MAX: usize = 12;

enum Running {
    Landfast(Served),
    Ganesha(Ganesha),
}

impl Running {
    fn addr(&self) -> SocketAddr {
        match self {
            Running::Landfast(s) => s.addr(),
            Running::Ganesha(s) => s.addr(),
        }
    }

    fn freeze(&self) {
        match self {
            Running::Landfast(s) => s.freeze(),
            Running::Ganesha(s) => s.freeze(),
        }
    }

    fn kill(self) {
        match self {
            Running::Landfast(s) => s.kill(),
            Running::Ganesha(s) => s.kill(),
        }
    }
}

/// Runs all cuts and calls `progress` after each. Call it on a thread of [`crate::namespace::run_private`].
/// Errors: What keeps the harness from working; what is lost is in the summary.
pub fn run(options: &Options, mut progress: impl FnMut(u32, &Report)) -> Result<Summary> {
    if options.server == Server::Ganesha {
        ganesha::possible()?;
    }
    let mut rig = Rig::new(&RigOptions {
        fs: options.fs,
        data_bytes: options.fs.size_min().max(512 << 20),
        log_bytes: 32 << 20,
        mirror: false,
        seed: options.seed,
    })?;
    rig.set_mount_options(&options.mount_options);
    rig.format()?;
    let mut rng = Rng::new(options.seed);
    let mut summary = Summary { title: options.title(), ..Summary::default() };
    for n in 0..options.cuts {
        let version = options.versions.get(n as usize % options.versions.len().max(1));
        let version = version.map_or("4.1", String::as_str);
        let report = cut(&mut rig, options, &mut rng, n, version)?;
        progress(n + 1, &report);
        summary.add(&report);
    }
    Ok(summary)
}

fn serve(rig: &Rig, options: &Options) -> Result<Running> {
    Ok(match options.server {
        Server::Landfast => Running::Landfast(Served::start(&ServeOptions {
            lease: Duration::from_secs(2),
            binary: options.binary.clone(),
            ..ServeOptions::new(&rig.export(), Some(rig.log_device()?), options.durability)
        })?),
        Server::Ganesha => Running::Ganesha(Ganesha::start(&rig.export())?),
    })
}

fn cut(rig: &mut Rig, options: &Options, rng: &mut Rng, n: u32, version: &str) -> Result<Report> {
    let server = serve(rig, options)?;
    // Of the blocks that no flush covered, some survive or none does; sectors may be torn.
    let keep = [0, 300, 700, 950][rng.below(4) as usize];
    rig.control(&format!("keep_permille={keep} torn={}", rng.below(2)))?;
    if options.fs != Filesystem::Ext4 {
        // XFS and btrfs take 4 KiB for one write: what tears within does not mount again.
        rig.control_data("torn=0")?;
    }
    rig.set_latency(options.latency)?;
    let journal = rig.scratch().join(format!("journal-{n}"));
    let url = |server: &Running| format!("nfs://{}/?version={version}", server.addr());
    let words = |command: &str, url: String, more: &[&str]| {
        let fixed = ["verify", command, &url, "--journal", &journal.to_string_lossy(), "--json"];
        Role::Run(fixed.iter().chain(more).map(|w| (*w).to_owned()).collect())
    };
    let (clients, seed) = (options.clients.to_string(), rng.next_u64().to_string());
    let kinds: Vec<String> = options.kinds.iter().map(ToString::to_string).collect();
    let kinds = kinds.join(",");
    let mut more = vec!["--clients", &clients, "--seed", &seed];
    if !kinds.is_empty() {
        more.extend(["--kinds", &kinds]);
    }
    let (acks, micros) =
        (rng.below(PEERCUT_ACKS) + 1, u64::try_from(PEERCUT_WITHIN.as_micros()).unwrap_or(u64::MAX));
    let then = Duration::from_micros(rng.below(micros));
    let power_goes = |rig: &mut Rig, server: Running| {
        server.freeze();
        rig.cut()?;
        server.kill();
        rig.set_latency(Latency::default())
    };
    if options.pairs > 0 || options.writeback_fails {
        let work = pairs::Work::start(
            &url(&server),
            landfast_verify::write::Options {
                kinds: options.kinds.clone(),
                pairs: options.pairs,
                meetings: options.meetings.clone(),
                ..pairs::options(&journal, options.clients, rng.next_u64())
            },
        )?;
        if options.writeback_fails {
            let mut acknowledged = 0;
            let mut failed = 0;
            for turn in 1..=PEERCUT_LATE {
                acknowledged = work.wait_for_late(turn)?;
                // The first time, and when all files are too new, they get a place on the disk: what comes next is written over it.
                if turn > 1 {
                    failed = crate::writeback::fails(rig)?;
                }
                if failed > 0 {
                    break;
                }
                crate::mounts::syncfs(&rig.export())?;
            }
            if failed == 0 {
                return Err(Error::Unable("no write-back could be made to fail".into()));
            }
            work.wait_for_acks(acknowledged + LATE_FILES as u64)?;
        } else {
            work.wait_for_acks(acks)?;
            work.wait_for_alone(options.pairs);
        }
        power_goes(rig, server)?;
        let done = work.end()?;
        // A server that knows of its failing disk may well refuse to go on.
        if done.end == landfast_verify::journal::End::Refused && !options.writeback_fails {
            return Err(Error::Child { role: "verify write", what: done.why.unwrap_or_default() });
        }
    } else {
        let write = words("write", url(&server), &more);
        let mut writer = Child::start("verify write", write, Output::Keep)?;
        wait_for_acks(&mut writer, &journal, acks)?;
        std::thread::sleep(then);
        power_goes(rig, server)?;
        let (status, printed) = writer.finish(PEERCUT_PATIENCE);
        if status.and_then(|s| s.code()) != Some(1) {
            let what = format!("ended with {status:?} when the power was cut: {} {printed}", writer.words());
            return Err(Error::Child { role: "verify write", what });
        }
    }
    // No machine is back within the second; a server may rely on that (write verifiers are often times).
    std::thread::sleep(PEERCUT_BOOT);
    rig.power_on()?;
    rig.mount_or_repair()?;
    let server = serve(rig, options)?;
    let check = words("check", url(&server), &["--wait", "60"]);
    let mut checker = Child::start("verify check", check, Output::Keep)?;
    let (status, printed) = checker.finish(PEERCUT_PATIENCE);
    let failed = || {
        let what = format!("ended with {status:?}: {} {printed}", checker.words());
        Error::Child { role: "verify check", what }
    };
    let report: Report = serde_json::from_str(&printed).map_err(|_| failed())?;
    // What it says and how it ends are one.
    if status.and_then(|s| s.code()) != Some(i32::from(report.has_losses())) {
        return Err(failed());
    }
    server.kill();
    Ok(report)
}

/// Waits until the journal has so many acknowledgements.
fn wait_for_acks(writer: &mut Child, journal: &Path, count: u64) -> Result<()> {
    let until = Instant::now() + PEERCUT_PATIENCE;
    loop {
        let text = match std::fs::read(journal) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            text => text.context(|| format!("read {}", journal.display()))?,
        };
        let word = b"{\"ack\"";
        let acks = text.windows(word.len()).filter(|w| w == word).count() as u64;
        if acks >= count {
            return Ok(());
        }
        if writer.ended().is_some() || Instant::now() > until {
            let (status, printed) = writer.finish(Duration::ZERO);
            let what = format!("{acks} acknowledgements, {status:?}: {} {printed}", writer.words());
            return Err(Error::Child { role: "verify write", what });
        }
        // The writer is a command like any other: only its journal tells how far it is.
        std::thread::sleep(PEERCUT_POLL);
    }
}
