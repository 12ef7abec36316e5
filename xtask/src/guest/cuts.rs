//! `cargo xtask guest cuts`: cuts the power of the server and of its disks, again and again, while programs in a guest work on its export.
//!
//! A cut stops the server wherever it is, takes the power from both disks, of which some of what was not flushed survives, and kills the server. In
//! half of the cuts the network goes before, so that the client hears no end of its connections, as when a machine loses its power. Then the
//! disks have power again, the filesystem is mounted and the server recovers and answers, before the client reaches it again.
//!
//! No program may see an error: each ends with status 0 and prints nothing. What it has made has to be right as it sees it; and, since all is told
//! to be durable when the mount has ended, on a mount that has seen nothing after one more cut. SQLite's database is looked at after each
//! cut: every change that SQLite had said to be committed is there. How much the client had to reclaim is read from a capture.

mod disks;
mod seen;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;

use super::captures::tcpdump::Tcpdump;
use super::chance::Chance;
use super::client::{self, Client, Whose};
use super::image::{self, Image};
use super::machine::{Hardware, Machine};
use super::markdown;
use super::network::Link;
use super::recipe::{Kernel, Vers};
use super::rpcs::attributes::{LOOK, compare};
use super::rpcs::kit::Kit;
use super::rpcs::served::on_this_machine;
use super::server::{ServeOptions, Server};
use super::work::{END, PROCESSES, START};
use crate::packages;
use crate::proc::{command, output};
use disks::Disks;
use seen::{Moment, Seen};

const PREPARE: &str = include_str!("../../guest/cuts/prepare.sh");
const TAR: &str = include_str!("../../guest/cuts/tar.sh");
const GIT: &str = include_str!("../../guest/cuts/git.sh");
const GIT_CHECK: &str = include_str!("../../guest/cuts/git-check.sh");
const SQLITE: &str = include_str!("../../guest/cuts/sqlite.sh");
const SQLITE_CUT: &str = include_str!("../../guest/cuts/sqlite-cut.sh");
const SQLITE_CHECK: &str = include_str!("../../guest/cuts/sqlite-check.sh");
const COMPLAINTS: &str = include_str!("../../guest/cuts/complaints.sh");

/// Where the guest notes what SQLite has acknowledged: in its memory.
const ACKNOWLEDGED: &str = "ACKNOWLEDGED=/run/landfast/acknowledged\n";

/// Whether the work is over; it has to be known while no server answers.
const OVER: &str = "[ ! -e /run/landfast/code ] || echo over";

/// What is done while the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// `tar xf` of files with times, modes and owners, as root.
    Tar,
    /// `git clone` of a bare repository in the guest.
    Git,
    /// Four processes that change one SQLite database.
    Sqlite,
}

impl Work {
    const ALL: [Work; 3] = [Work::Tar, Work::Git, Work::Sqlite];

    fn name(self) -> &'static str {
        match self {
            Work::Tar => "tar",
            Work::Git => "git",
            Work::Sqlite => "sqlite",
        }
    }

    fn script(self) -> &'static str {
        match self {
            Work::Tar => TAR,
            Work::Git => GIT,
            Work::Sqlite => SQLITE,
        }
    }
}

/// Cuts in one run of a work, at most.
const CUTS_PER_ROUND: u32 = 6;

/// Runs of a work for each cut that is wanted, at most: one may be over before its moment comes.
const ROUNDS_PER_CUT: u32 = 6;

/// One cut of so many does not wait until the one before has been survived, and comes within this time.
const EARLY: u64 = 4;
const EARLY_WITHIN: Duration = Duration::from_secs(5);

/// Between two looks at the work.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a work may make no progress after a cut: several leases.
const PROGRESS_LIMIT: Duration = Duration::from_secs(120);

/// Differences that are shown of one tree.
const SHOWN_MAX: usize = 5;

/// Options of `guest cuts`.
#[derive(Args)]
pub struct Options {
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_12)]
    kernel: Kernel,
    /// NFS versions to mount with, of version 4.
    #[arg(long, value_delimiter = ',', default_values_t = [Vers::V4_2])]
    vers: Vec<Vers>,
    /// Which delegations the guest is given: off, read, write or times.
    #[arg(long, default_value = "times", value_name = "LEVEL")]
    delegations: String,
    /// Only these: tar, git, sqlite.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Work>,
    /// Cuts in the middle of each work.
    #[arg(long, default_value_t = 3)]
    cuts: u32,
    /// What decides the moments, and what survives on the disks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A client that reclaims anything is an error.
    #[arg(long)]
    no_reclaim: bool,
    /// Before each cut the filesystem writes out all that it has in memory: the disk is ahead of the log.
    #[arg(long)]
    ahead: bool,
    /// Files of the tree that tar extracts and git clones.
    #[arg(long, default_value_t = 300)]
    files: u64,
    /// Changes of each of SQLite's four processes.
    #[arg(long, default_value_t = 40)]
    changes: u32,
    /// The server's lease, and so its grace period, in seconds.
    #[arg(long, default_value_t = 15)]
    lease: u64,
    #[command(flatten)]
    serve: ServeOptions,
    /// Keep the captures in this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Seconds that one work may take.
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        if self.vers.contains(&Vers::V3) {
            return Err("version 3 has no opens that could be reclaimed: --vers 4.0,4.1,4.2".to_owned());
        }
        packages::require(&packages::CAPTURERS)?;
        packages::require(&["fusermount3", "losetup", &format!("mkfs.{}", self.serve.fs)])?;
        image::build(self.kernel)?;
        self.serve.binary().map(drop)
    }

    fn wants(&self, work: Work) -> bool {
        self.only.is_empty() || self.only.contains(&work)
    }
}

/// All cuts in the middle of one work.
#[derive(Serialize)]
struct Row {
    #[serde(serialize_with = "in_words")]
    vers: Vers,
    work: Work,
    cuts: u32,
    /// How often the work was done, with the one time undisturbed.
    rounds: u32,
    /// What programs and the client's kernel have complained of.
    errors: Vec<String>,
    /// What was not right afterwards.
    differences: Vec<String>,
    opens_reclaimed: u64,
    locks_reclaimed: u64,
    reclaims_complete: u64,
    client_ids: u64,
    sessions: u64,
    graces: u64,
    /// From a cut until the client could reach a server that had recovered.
    longest_absence_s: f64,
    /// From then until work went on.
    median_pause_s: f64,
    longest_pause_s: f64,
    blocks_lost: u64,
    /// Why no more was done.
    given_up: Option<String>,
}

fn in_words<S: serde::Serializer>(what: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(what)
}

#[derive(Serialize)]
struct Report {
    kernel: String,
    delegations: String,
    fs: String,
    durability: String,
    seed: u64,
    rows: Vec<Row>,
}

/// Cuts; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    let binary = options.serve.binary()?;
    let scratch = image::run_dir("cuts")?;
    let captures = image::kept_in(options.keep.as_deref(), scratch.path())?;
    let kit_dir = scratch.path().join("made");
    fs::create_dir(&kit_dir).map_err(|e| format!("{}: {e}", kit_dir.display()))?;
    let kit = Kit::make(&kit_dir, options.files)?;
    let image = image::build(options.kernel)?;
    let disks = Disks::new(&binary, scratch.path(), &options.serve.fs, options.seed)?;
    let files = [disks.log(), scratch.path().join("messages")];
    let config = (scratch.path().join("server.toml"), &*format!("delegations = {:?}\n", options.delegations));
    let durability = &options.serve.durability;
    let server = Server::start_configured(&binary, disks.export(), files, durability, options.lease, config)?;
    let link = Link::new()?;
    let hardware = Hardware { disk: Some(kit.disk()), link: Some(link.clone()), ..Hardware::default() };
    let machine = Machine::boot(&image, &hardware)?;
    let mut report = Report {
        kernel: machine.release.clone(),
        delegations: options.delegations.clone(),
        fs: options.serve.fs.clone(),
        durability: durability.clone(),
        seed: options.seed,
        rows: Vec::new(),
    };
    let serves = client::Server::FromFile(server.address().port());
    let client =
        Client { machine, server: serves, whose: Whose::Linux, limit: Duration::from_secs(options.limit) };
    let tree = on_this_machine(&kit.source("many"), LOOK)?;
    // The generator must not begin with 0.
    let chance = Chance(options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut session = Session {
        options,
        image,
        hardware,
        link,
        scratch: scratch.path().to_owned(),
        captures,
        tree,
        disks,
        server,
        client,
        chance,
    };
    session.client.run(None, PREPARE)?;
    for vers in &options.vers {
        for work in Work::ALL.into_iter().filter(|work| options.wants(*work)) {
            let row = session.work(*vers, work)?;
            eprintln!("{}", row.cells().join(" | "));
            if row.given_up.is_some() {
                session.boot_again()?;
            }
            report.rows.push(row);
        }
    }
    session.server.stop()?;
    if options.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else {
        print!("{}", report.text());
    }
    let right = |row: &Row| {
        let reclaimed = row.opens_reclaimed + row.locks_reclaimed > 0;
        row.errors.is_empty()
            && row.differences.is_empty()
            && row.given_up.is_none()
            && !(options.no_reclaim && reclaimed)
    };
    Ok(if report.rows.iter().all(right) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One run of a work.
#[derive(Default)]
struct Round {
    took: Duration,
    cuts: Vec<Moment>,
    errors: Vec<String>,
    differences: Vec<String>,
    seen: Seen,
}

/// The guest, the server and its disks.
struct Session<'a> {
    options: &'a Options,
    image: Image,
    hardware: Hardware,
    link: Link,
    /// For what the run makes and nobody keeps.
    scratch: PathBuf,
    captures: PathBuf,
    /// What tar's tree has to look like.
    tree: String,
    // The server goes before its disks.
    server: Server,
    disks: Disks,
    client: Client,
    chance: Chance,
}

impl Session<'_> {
    /// All cuts in the middle of one work, in as many runs of it as they take.
    fn work(&mut self, vers: Vers, work: Work) -> Result<Row, String> {
        let lost_before = self.disks.lost_blocks()?;
        let mut all = Round::default();
        let (mut rounds, mut quiet, mut given_up) = (0, Duration::ZERO, None);
        let wanted = self.options.cuts;
        while all.cuts.len() < wanted as usize || rounds == 0 {
            if rounds > wanted.saturating_mul(ROUNDS_PER_CUT) {
                given_up = Some("it is over too soon".to_owned());
                break;
            }
            let left = wanted - u32::try_from(all.cuts.len()).unwrap_or(wanted);
            let now = if rounds == 0 { 0 } else { left.min(CUTS_PER_ROUND) };
            let capture = self.captures.join(format!("{}-{vers}-{rounds}.pcap", work.name()));
            rounds += 1;
            let mut round = Round::default();
            let done = self.round(vers, work, now, quiet, &capture, &mut round);
            // It may have been slow the first time, and is over before its moment comes since.
            if now == 0 || round.cuts.is_empty() {
                quiet = if now == 0 { round.took } else { quiet.min(round.took) };
            }
            for line in round.errors.iter().chain(&round.differences) {
                eprintln!("{vers} {}: {line}", work.name());
            }
            eprintln!(
                "{vers} {}: {} cuts in {:.1} s, {} reclaims",
                work.name(),
                round.cuts.len(),
                round.took.as_secs_f64(),
                round.seen.reclaims()
            );
            all.cuts.extend(round.cuts);
            all.errors.extend(round.errors);
            all.differences.extend(round.differences);
            all.seen.add(round.seen);
            if let Err(why) = done {
                eprintln!("The server said last:\n{}", self.server.said());
                self.server.alive()?;
                eprintln!("The guest's console:\n{}", self.client.machine.console());
                given_up = Some(why);
                break;
            }
        }
        let mut pauses = all.seen.pauses;
        pauses.sort_unstable();
        let seconds = |pause: Option<&Duration>| pause.map_or(0.0, Duration::as_secs_f64);
        Ok(Row {
            vers,
            work,
            cuts: u32::try_from(all.cuts.len()).unwrap_or(u32::MAX),
            rounds,
            errors: all.errors,
            differences: all.differences,
            opens_reclaimed: all.seen.opens,
            locks_reclaimed: all.seen.locks,
            reclaims_complete: all.seen.completes,
            client_ids: all.seen.exchanges,
            sessions: all.seen.sessions,
            graces: all.seen.graces,
            longest_absence_s: all.cuts.iter().map(|cut| cut.back - cut.gone).fold(0.0, f64::max),
            median_pause_s: seconds(pauses.get(pauses.len() / 2)),
            longest_pause_s: seconds(pauses.last()),
            blocks_lost: self.disks.lost_blocks()? - lost_before,
            given_up,
        })
    }

    /// One run of a work with at most so many cuts in its middle, and the checks. `quiet`: how long it takes undisturbed.
    fn round(
        &mut self,
        vers: Vers,
        work: Work,
        cuts: u32,
        quiet: Duration,
        capture: &Path,
        round: &mut Round,
    ) -> Result<(), String> {
        self.client.run(Some(vers), "mount_export ,hard\nmkdir -p $WORK")?;
        let tcpdump = Tcpdump::start(&self.link.device, capture)?;
        let begin = Instant::now();
        let script = self.client.script(Some(vers), &self.words(work.script()));
        self.client.run_with(None, START, script.as_bytes())?;
        for _ in 0..cuts {
            // Short of the whole work, so that most moments lie in it.
            std::thread::sleep(self.chance.within(quiet * 3 / 2 / (cuts + 1)));
            let Some(moment) = self.cut(vers, work, round)? else { break };
            round.cuts.push(moment);
            if self.chance.below(EARLY) == 0 {
                std::thread::sleep(self.chance.within(EARLY_WITHIN));
            } else if !self.goes_on(vers)? {
                break;
            }
        }
        let end = format!("LIMIT={}\n{END}", self.options.limit * 9 / 10);
        match self.client.run(None, &end) {
            Ok(said) if said.trim().is_empty() => {}
            Ok(said) => round.errors.push(format!("it printed: {}", said.trim())),
            Err(why) => round.errors.push(why),
        }
        round.took = begin.elapsed();
        let complaints = self.client.run(None, COMPLAINTS)?;
        round.errors.extend(complaints.lines().map(|line| format!("the client's kernel: {line}")));
        if !self.over()? {
            eprintln!("The guest's processes:\n{}", self.client.run(None, PROCESSES)?);
            return Err(format!("it does not end: {}", round.errors.join("\n")));
        }
        self.check(vers, work, "as the client sees it", round);
        self.client.run(Some(vers), "umount $MNT")?;
        tcpdump.end(self.link.host())?;
        round.seen = seen::read(capture, self.link.host(), self.server.address().port(), &round.cuts)?;
        if self.options.keep.is_none() {
            fs::remove_file(capture).map_err(|e| format!("{}: {e}", capture.display()))?;
        }
        // All is durable now. What was not is gone with the power.
        self.power_off(false)?;
        self.power_on()?;
        self.link.connect(true)?;
        if work == Work::Tar {
            let extracted = self.disks.export().join(format!("check-{vers}")).join(work.name());
            round.differ("on the server's disk", &self.tree, on_this_machine(&extracted, LOOK));
        }
        self.client.run(Some(vers), "mount_export ,hard")?;
        self.check(vers, work, "on a new mount", round);
        self.client.run(Some(vers), &format!("rm -rf $WORK/{}\numount $MNT", work.name())).map(drop)
    }

    /// What the scripts of a work need to know, in front of one.
    fn words(&self, script: &str) -> String {
        format!("CHANGES={}\n{ACKNOWLEDGED}{script}", self.options.changes)
    }

    fn over(&mut self) -> Result<bool, String> {
        Ok(self.client.run(None, OVER)?.trim() == "over")
    }

    /// A power cut with all that follows until a server can be reached again. None if the work was over before.
    fn cut(&mut self, vers: Vers, work: Work, round: &mut Round) -> Result<Option<Moment>, String> {
        let silent = self.chance.below(2) == 1;
        let gone = now();
        self.power_off(silent)?;
        let over = self.over()?;
        self.power_on()?;
        if work == Work::Sqlite {
            let database = self.disks.export().join(format!("check-{vers}")).join(work.name());
            if let Err(why) = self.look_at_database(&database) {
                round.differences.push(format!("after a cut: {why}"));
            }
        }
        self.link.connect(true)?;
        Ok((!over).then(|| Moment { gone, back: now() }))
    }

    /// Server and disks have no power any more, and nobody is on the network. `silent`: the network goes first.
    fn power_off(&mut self, silent: bool) -> Result<(), String> {
        if silent {
            self.link.connect(false)?;
        }
        self.server.freeze()?;
        if self.options.ahead {
            self.disks.write_out()?;
        }
        self.disks.cut(&mut self.chance)?;
        self.server.kill()?;
        self.link.connect(false)
    }

    /// The disks have power and the server has recovered.
    fn power_on(&mut self) -> Result<(), String> {
        self.disks.power_on()?;
        self.server.start_again()?;
        self.server.answers()
    }

    /// What the server has of SQLite's database has all that SQLite had acknowledged.
    fn look_at_database(&mut self, directory: &Path) -> Result<(), String> {
        if !fs::exists(directory.join("db")).map_err(|e| format!("{}: {e}", directory.display()))? {
            // It was not made yet; then nothing is acknowledged, which the work's end shows.
            return Ok(());
        }
        let mut names = vec!["db"];
        if fs::exists(directory.join("db-journal")).is_ok_and(|there| there) {
            names.push("db-journal");
        }
        let archive = self.scratch.join("database.tar");
        output(command("tar", ["-cf"]).arg(&archive).arg("-C").arg(directory).args(names))?;
        let bytes = fs::read(&archive).map_err(|e| format!("{}: {e}", archive.display()))?;
        self.client.run_with(None, &format!("{ACKNOWLEDGED}{SQLITE_CUT}"), &bytes).map(drop)
    }

    /// Waits until the server has something new of the work, or the work is over; whether it is not.
    fn goes_on(&mut self, vers: Vers) -> Result<bool, String> {
        let before = self.listing(vers)?;
        let deadline = Instant::now() + PROGRESS_LIMIT;
        loop {
            if self.over()? {
                return Ok(false);
            }
            if self.listing(vers)? != before {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Err("the work makes no progress after a cut".to_owned());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// What the server has of the works: names, sizes and times.
    fn listing(&self, vers: Vers) -> Result<String, String> {
        let at = self.disks.export().join(format!("check-{vers}"));
        // A file may go while it is looked at.
        on_this_machine(&at, r#"find "$AT" -printf '%p %s %T@ %C@\n' 2>/dev/null | sort || true"#)
    }

    /// The work has made what it should; whatever is not so is a difference.
    fn check(&mut self, vers: Vers, work: Work, place: &str, round: &mut Round) {
        let script = match work {
            Work::Tar => {
                let got = self.client.run(Some(vers), &format!("AT=$WORK/{}\n{LOOK}", work.name()));
                return round.differ(place, &self.tree, got);
            }
            Work::Git => GIT_CHECK,
            Work::Sqlite => SQLITE_CHECK,
        };
        if let Err(why) = self.client.run(Some(vers), &self.words(script)) {
            round.differences.push(format!("{place}: {why}"));
        }
    }

    /// A new guest in place of one whose mount may be of no use any more.
    fn boot_again(&mut self) -> Result<(), String> {
        self.link.connect(true)?;
        self.client.machine.end();
        self.client.machine = Machine::boot(&self.image, &self.hardware)?;
        self.client.run(None, PREPARE).map(drop)
    }
}

impl Round {
    /// Adds what differs between two trees.
    fn differ(&mut self, place: &str, wanted: &str, got: Result<String, String>) {
        match got.and_then(|got| compare(wanted, &got)) {
            Ok(found) if found.differences() == 0 => {}
            Ok(found) => {
                let examples: Vec<String> = found.examples.into_iter().take(SHOWN_MAX).collect();
                let counts = format!(
                    "{} absent, {} times, {} modes, {} owners, {} contents",
                    found.absent, found.times, found.modes, found.owners, found.contents
                );
                self.differences.push(format!(
                    "{place}: {counts} of {}: {}",
                    found.objects,
                    examples.join("; ")
                ));
            }
            Err(why) => self.differences.push(format!("{place}: {why}")),
        }
    }
}

/// As a capture has it.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let seconds = |s: f64| format!("{s:.1} s");
        vec![
            self.vers.to_string(),
            self.work.name().to_owned(),
            self.cuts.to_string(),
            self.rounds.to_string(),
            self.errors.len().to_string(),
            self.differences.len().to_string(),
            self.opens_reclaimed.to_string(),
            self.locks_reclaimed.to_string(),
            self.client_ids.to_string(),
            self.reclaims_complete.to_string(),
            self.graces.to_string(),
            seconds(self.longest_absence_s),
            format!("{}, {}", seconds(self.median_pause_s), seconds(self.longest_pause_s)),
            self.blocks_lost.to_string(),
            self.given_up.as_deref().map_or("", |_| "**given up**").to_owned(),
        ]
    }
}

impl Report {
    fn text(&self) -> String {
        let head = [
            "version",
            "work",
            "cuts",
            "runs",
            "errors",
            "differences",
            "OPENs reclaimed",
            "LOCKs reclaimed",
            "EXCHANGE_ID",
            "RECLAIM_COMPLETE",
            "results GRACE",
            "longest absence",
            "pause after it, median and longest",
            "blocks lost",
            "",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(Row::cells));
        let mut text = format!(
            "Linux {}, delegations {:?}, {} and durability {}, seed {}\n\n{}",
            self.kernel,
            self.delegations,
            self.fs,
            self.durability,
            self.seed,
            markdown::table(&lines)
        );
        for row in &self.rows {
            for line in row.errors.iter().chain(&row.differences).chain(&row.given_up) {
                text.push_str(&format!("\n{} {}: {line}\n", row.vers, row.work.name()));
            }
        }
        text
    }
}
