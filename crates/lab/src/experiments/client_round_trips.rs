//! A tree of small files put on a server over networks of several round trips, by our client and by others, in turns.
//!
//! All go through the same emulated link to the same server, on a filesystem and a log in memory: what is measured is the
//! network's round trips and processor time. Each run writes into a directory of its own, which is compared with the archive
//! and removed, by all sides alike. What is slow is stopped after a while, and its pace counts. Ours does more than the others: it
//! sets modes, owners and times as in the archive, and its time holds its start, its session and its end; the others' directories
//! are made before their clock starts. What a side needed from its start to its end, mount, session and directories among it, stands
//! beside where it has put all files there. RPCs are those that the server answered in all that time.

use super::{Check, Choices, Findings, Hear, Line, Relation};
use crate::error::{Context, Error, Result};
use crate::measure::{Budget, serial_untar_with};
use crate::memory_disk::MemoryDisk;
use crate::net::Link;
use crate::peers::libnfs;
use crate::peers::program::{self, KNOWN, Pace, Way};
use crate::scrape;
use crate::serial::{Actor, Connect, Session};
use crate::served::{Durability, ServeOptions, Served, free_port};
use crate::tarball::{Shape, write_random};
use crate::tools;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Round trips, in milliseconds.
const ROUND_TRIPS_MS: [f64; 4] = [0.1, 1.0, 10.0, 50.0];

/// Files, unless chosen otherwise.
const FILES: u64 = 4096;

/// So many times as many, for what is claimed of the longest round trip.
const MANY: u64 = 8;

/// Runs of each side at each round trip; the one in the middle counts.
const ROUNDS: u64 = 5;
/// The same of the others, whose pace is measured for so long.
const PEER_ROUNDS: u64 = 3;
const PEER_TIME: Duration = Duration::from_secs(2);

/// How many times the files a second of the quickest of the others are claimed at 1 ms.
const TIMES_PEERS: f64 = 3.0;

/// How many times as long as at the shortest round trip many files may take at the longest.
const TIMES_SHORTEST: f64 = 2.0;

/// Round trips that one extraction, or copy, may wait for, one after another, from its start to its end.
const WAITED_MAX: f64 = 4.0;

const LOG_BYTES: u64 = 256 << 20;

/// A side.
#[derive(Debug, Clone)]
enum Side {
    Untar,
    Copy,
    Serial,
    NfsCp(usize),
    Program(PathBuf, Way),
}

impl Side {
    fn name(&self) -> String {
        match self {
            Side::Untar => "landfast untar".into(),
            Side::Copy => "landfast cp -r".into(),
            Side::Serial => "one operation at a time".into(),
            Side::NfsCp(n) => format!("libnfs nfs-cp, {n} at a time"),
            Side::Program(path, way) => {
                format!("{} {}, {} at a time", program::name(path), way.name, way.at_a_time)
            }
        }
    }

    fn is_ours(&self) -> bool {
        matches!(self, Side::Untar | Side::Copy)
    }

    /// Whether it is another's that puts many files into a call.
    fn is_vectored_peer(&self) -> bool {
        matches!(self, Side::Program(_, way) if way.vectored)
    }
}

/// What a run came to.
struct Run {
    pace: Pace,
    /// From its start to its end.
    whole_s: f64,
    /// Calls that the server answered.
    rpcs: f64,
}

/// The runs of one side at one round trip.
#[derive(Debug, Clone, Default)]
struct Runs {
    /// Seconds for all files.
    seconds: Vec<f64>,
    /// Seconds of runs that have put all files there.
    whole_s: Vec<f64>,
    rpcs_per_file: Vec<f64>,
}

impl Runs {
    fn push(&mut self, run: &Run, files: u64) {
        let written = run.pace.files.max(1) as f64;
        self.seconds.push(run.pace.seconds / written * files as f64);
        self.rpcs_per_file.push(run.rpcs / written);
        if run.pace.files == files {
            self.whole_s.push(run.whole_s);
        }
    }

    /// The figures in the middle, the seconds, and those of the whole of a run.
    fn line(self, name: &str, rtt_ms: f64, files: u64) -> (Line, f64, Option<f64>) {
        let seconds = super::middle(self.seconds);
        let mut values = Line::new(
            name,
            [
                ("rtt_ms", rtt_ms),
                ("files_per_s", files as f64 / seconds),
                ("seconds", seconds),
                ("rpcs_per_file", super::middle(self.rpcs_per_file)),
            ],
        );
        let whole_s = (!self.whole_s.is_empty()).then(|| super::middle(self.whole_s));
        values.values.extend(whole_s.map(|s| ("whole_s".to_owned(), s)));
        (values, seconds, whole_s)
    }
}

/// What all runs share.
struct Bench {
    // The server goes before what it stands on.
    server: Served,
    metrics: SocketAddr,
    archive: PathBuf,
    /// The archive's tree, here.
    tree: PathBuf,
    /// Its files, by their names from there.
    names: Vec<String>,
    files: u64,
    runs: u64,
    disk: MemoryDisk,
}

impl Bench {
    fn new(files: u64) -> Result<Bench> {
        let disk = MemoryDisk::new()?;
        let archive = disk.scratch().join("archive.tar");
        let tree = disk.filesystem().join("source");
        let what = || format!("write {}", archive.display());
        let mut out = BufWriter::new(File::create(&archive).context(what)?);
        write_random(Shape { files, ..Shape::default() }, &mut out)
            .and_then(|()| out.flush())
            .context(what)?;
        std::fs::create_dir(&tree).context(|| format!("create {}", tree.display()))?;
        crate::measure::local_untar(&archive, &tree)?;
        let mut names = Vec::new();
        crate::tarball::read(open(&archive)?, |member| {
            if let crate::tarball::Kind::File(_) = member.kind {
                names.push(String::from_utf8_lossy(&member.path).into_owned());
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        let (metrics, log) = (free_port()?, disk.scratch().join("log"));
        let server = Served::start(&ServeOptions {
            log_bytes: Some(LOG_BYTES),
            metrics: Some(metrics),
            ..ServeOptions::new(disk.export(), Some(&log), Durability::Log)
        })?;
        Ok(Bench { server, metrics, archive, tree, names, files, runs: 0, disk })
    }

    /// A URL of the server itself, not through a link.
    fn near(&self, path: &str) -> String {
        format!("nfs://{}/{path}", self.server.addr())
    }

    /// Calls that the server has answered.
    fn calls(&self) -> Result<f64> {
        scrape::page(self.metrics).map(|page| scrape::calls(&page))
    }

    /// One run in a directory of its own, which is compared and removed.
    fn run(&mut self, side: &Side, link: &Link) -> Result<Run> {
        self.runs += 1;
        let dir = format!("run{}", self.runs);
        tools::run(&["mkdir", &self.near(&dir)])?;
        if let Side::NfsCp(_) = side {
            let dirs: Vec<String> = self.dirs().iter().map(|d| self.near(&format!("{dir}/{d}"))).collect();
            let args: Vec<&str> =
                ["mkdir", "-p"].into_iter().chain(dirs.iter().map(String::as_str)).collect();
            tools::run(&args)?;
        }
        let (before, start) = (self.calls()?, Instant::now());
        let pace = self.go(side, link, &dir)?;
        let whole_s = start.elapsed().as_secs_f64();
        let rpcs = self.calls()? - before;
        let at = self.disk.export().join(&dir);
        let there = crate::verify::same_contents(open(&self.archive)?, &at)?;
        if there < pace.files || (side.is_ours() && there != self.files) {
            let what = format!("{}: {there} files are there, {} were said to be", side.name(), pace.files);
            return Err(Error::Unable(what));
        }
        if let Side::Untar = side {
            crate::verify::compare(open(&self.archive)?, &at)?.into_result()?;
        }
        tools::run(&["rm", "-r", &self.near(&dir)])?;
        Ok(Run { pace, whole_s, rpcs })
    }

    fn go(&self, side: &Side, link: &Link, dir: &str) -> Result<Pace> {
        let url = format!("nfs://{}/{dir}", link.addr());
        let text = |path: &Path| path.to_string_lossy().into_owned();
        // With version 3 an export is mounted by its own path.
        let path = format!("{}/{dir}", text(self.disk.export()));
        let ours = |ran: tools::Ran| Pace { files: self.files, seconds: ran.took.as_secs_f64() };
        match side {
            Side::Untar => tools::run(&["untar", "-p", &text(&self.archive), &url]).map(ours),
            Side::Copy => tools::run(&["cp", "-r", &text(&self.tree.join("tree")), &url]).map(ours),
            Side::Serial => {
                let mut session = Session::connect(&Connect::new(link.addr(), format!("serial {dir}")))?;
                let root = session.walk(dir)?;
                let mut actor = Actor::new(session, root);
                let budget = Budget { files: u64::MAX, time: PEER_TIME };
                let taken = serial_untar_with(&mut actor, open(&self.archive)?, budget)?;
                actor.into_session().close()?;
                Ok(Pace { files: taken.files, seconds: taken.seconds })
            }
            Side::NfsCp(n) => libnfs::copy(link.addr(), &path, &self.tree, &self.names, *n, PEER_TIME),
            Side::Program(program, way) => {
                let url = if way.is_v3() { format!("nfs://{}{path}", link.addr()) } else { url };
                program::copy(program, &url, &self.tree, way, PEER_TIME)
            }
        }
    }

    /// The archive's directories of files.
    fn dirs(&self) -> Vec<&str> {
        let mut dirs: Vec<&str> =
            self.names.iter().filter_map(|n| n.rsplit_once('/').map(|(d, _)| d)).collect();
        dirs.dedup();
        dirs
    }
}

fn open(archive: &Path) -> Result<BufReader<File>> {
    Ok(BufReader::new(File::open(archive).context(|| format!("open {}", archive.display()))?))
}

pub(super) fn run(choices: &Choices, hear: Hear<'_>) -> Result<Findings> {
    let files = choices.files.unwrap_or(FILES).max(1);
    let mut sides = vec![Side::Untar, Side::Copy, Side::Serial];
    let mut notes = vec!["`one operation at a time` stands for GNU tar over a kernel's client: the lab's own client of version 4.2, with the RPCs of a kernel's and no cost of one".to_owned()];
    match libnfs::possible() {
        Ok(()) => sides.extend([Side::NfsCp(1), Side::NfsCp(16)]),
        Err(why) => notes.push(format!("libnfs is not measured: {why}")),
    }
    for program in &choices.peers {
        match program::ways(program) {
            Ok(ways) => sides.extend(ways.into_iter().map(|way| Side::Program(program.clone(), way))),
            Err(e @ Error::Missing(_)) => return Err(e),
            Err(why) => notes.push(format!("{} is not measured: {why}", program::name(program))),
        }
    }
    for (name, packages) in KNOWN {
        if !choices.peers.iter().any(|program| program::name(program) == name) {
            let packages = packages.map(|p| format!(" (Debian packages {p})")).unwrap_or_default();
            notes.push(format!(
                "{name} is not measured: build peers/{name}{packages} and name its program with --peer"
            ));
        }
    }
    let mut found = crate::namespace::run_private(|| measure(files, &sides, hear))??;
    found.notes.extend(notes);
    Ok(found)
}

fn measure(files: u64, sides: &[Side], hear: Hear<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let mut bench = Bench::new(files)?;
    // Seconds for all files, by round trip and side, and those from start to end.
    let mut table: Vec<Vec<f64>> = Vec::new();
    let mut whole: Vec<Vec<Option<f64>>> = Vec::new();
    let mut round_trips = Vec::new();
    for rtt_ms in ROUND_TRIPS_MS {
        let link = Link::start(bench.server.addr(), Duration::from_secs_f64(rtt_ms / 1000.0))?;
        let really_ms = crate::measure::ms(link.measure()?);
        round_trips.push(really_ms);
        let mut runs = vec![Runs::default(); sides.len()];
        for round in 0..ROUNDS {
            for (side, runs) in sides.iter().zip(&mut runs) {
                if !side.is_ours() && round >= PEER_ROUNDS {
                    continue;
                }
                hear(&format!("{rtt_ms} ms, round {} of {ROUNDS}: {}", round + 1, side.name()));
                runs.push(&bench.run(side, &link)?, files);
            }
        }
        let (mut row, mut row_whole) = (Vec::new(), Vec::new());
        for (side, runs) in sides.iter().zip(runs) {
            let (mut line, seconds, whole_s) =
                runs.line(&format!("{rtt_ms} ms, {}", side.name()), really_ms, files);
            row.push(seconds);
            row_whole.push(whole_s);
            line.values.insert("times_untar".into(), seconds / row[0]);
            found.lines.push(line);
        }
        table.push(row);
        whole.push(row_whole);
    }
    let ones = sides.iter().zip(&table[1]).filter(|(side, _)| !side.is_ours() && !side.is_vectored_peer());
    let best = ones.map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    found.checks.push(Check::new(
        "untar at a round trip of 1 ms: times the files a second of the quickest of the others that put one file into a call",
        best / table[1][0],
        Relation::AtLeast,
        TIMES_PEERS,
    ));
    for (rtt_ms, row) in ROUND_TRIPS_MS.iter().zip(&whole) {
        let many = sides.iter().zip(row).filter(|(side, _)| side.is_vectored_peer());
        let best = many.filter_map(|(_, whole_s)| *whole_s).min_by(f64::total_cmp);
        if let (Some(best), [Some(untar), Some(copy), ..]) = (best, row.as_slice()) {
            found.notes.push(format!(
                "from its start to its end the quickest of the others that put many files into a call takes {:.2} times as long \
                 as untar at {rtt_ms} ms, and {:.2} times as long as cp -r, which reads the same files",
                best / untar,
                best / copy
            ));
        }
    }
    let last = ROUND_TRIPS_MS.len() - 1;
    let (short, long) = (table[0][0], table[last][0]);
    let waited = (long - short) * 1000.0 / (round_trips[last] - round_trips[0]);
    found.checks.push(Check::new(
        &format!(
            "round trips that untar of {files} files waits for, from what it takes longer at {} ms",
            ROUND_TRIPS_MS[last]
        ),
        waited,
        Relation::AtMost,
        WAITED_MAX,
    ));
    found.notes.push(format!(
        "untar of {files} files takes {:.1} times as long at {} ms as at {} ms: a session costs two round trips whatever is \
         done in it, directories and files one",
        long / short,
        ROUND_TRIPS_MS[last],
        ROUND_TRIPS_MS[0]
    ));
    found.checks.push(Check::new(
        &format!(
            "round trips that cp -r of {files} files waits for, from what it takes longer at {} ms",
            ROUND_TRIPS_MS[last]
        ),
        (table[last][1] - table[0][1]) * 1000.0 / (round_trips[last] - round_trips[0]),
        Relation::AtMost,
        WAITED_MAX,
    ));
    let Bench { server, disk, .. } = bench;
    server.stop()?;
    drop(disk);
    many(files * MANY, hear, &mut found)?;
    Ok(found)
}

/// Many files at the shortest and the longest round trip.
fn many(files: u64, hear: Hear<'_>, found: &mut Findings) -> Result<()> {
    let mut bench = Bench::new(files)?;
    let ends = [ROUND_TRIPS_MS[0], ROUND_TRIPS_MS[ROUND_TRIPS_MS.len() - 1]];
    let mut seconds = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for (rtt_ms, seconds) in ends.iter().zip(&mut seconds) {
            hear(&format!("{files} files, {rtt_ms} ms, round {} of {ROUNDS}", round + 1));
            let link = Link::start(bench.server.addr(), Duration::from_secs_f64(rtt_ms / 1000.0))?;
            seconds.push(bench.run(&Side::Untar, &link)?.pace.seconds);
        }
    }
    let [short, long] = seconds.map(super::middle);
    for (rtt_ms, seconds) in [(ends[0], short), (ends[1], long)] {
        let values = [("files_per_s", files as f64 / seconds), ("seconds", seconds)];
        found.lines.push(Line::new(&format!("{rtt_ms} ms, landfast untar, {files} files"), values));
    }
    found.checks.push(Check::new(
        &format!("untar of {files} files: the time at {} ms, times that at {} ms", ends[1], ends[0]),
        long / short,
        Relation::AtMost,
        TIMES_SHORTEST,
    ));
    bench.server.stop()
}
