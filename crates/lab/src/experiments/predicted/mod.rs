//! What `landfast predict` says beside what is measured, in one run: now, and after each kind of change.
//!
//! A case has a place as it is (version, round trip, where data is made stable) and a place as it will be. At the first a short
//! probe measures the terms: calls that do nothing, calls that change nothing, and a few files one operation after another. From
//! them and the archive's counts the model says how long the work takes at the second, and then that is measured. What a log
//! device needs is measured at the device itself, what a network needs with calls that do nothing: both are known before they are bought.
//!
//! Other work on the machine makes everything longer: of several rounds the quickest of each figure counts, of the terms and of
//! the measured times alike. Where prediction and measurement are far apart after these, one of them may have been held up in each
//! round: there are more rounds for both. No round is chosen for its error, but a case whose figures lie near each other after the
//! first rounds gets no more, and one whose error is larger does: the errors are a little smaller than those of a fixed number of
//! rounds would be. The report's notes say so.
//!
//! The report as JSON is what the model's error bars are made of (`crates/model/src/predict/earned.json`, `earned-links.json`).
//!
//! `predicted` has round trips and flushes alone. `predicted-links` has links with a bandwidth as well, servers that need longer for
//! each call, and files that the link takes longer for; of it the range is tried.

mod cases;

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::measure;
use crate::net::Link;
use crate::powercut::peer::Peer;
use crate::rig::{Latency, Rig, RigOptions};
use crate::serial::tar::Extraction;
use crate::serial::v3::Actor3;
use crate::serial::{Action, Actor, Connect, Node, Session};
use crate::served::{Durability, ServeOptions, Served};
use crate::tarball::{self, Kind, Member, Shape, write_random};
use cases::Stable::{self, Disk, Log};
use cases::{CASES, Case, Client, LINKS, Place};
use landfast_client::put::{PutOptions, Silent, Tuning};
use landfast_client::untar::{self, Archive};
use landfast_client::url::NfsUrl;
use landfast_model::Terms;
use landfast_model::predict::{Job, Looks, Manner, Outlook, Tree, Version, WRITE_BYTES, predict};
use landfast_verify::blocking::wire::null_call;
use landfast_xdr::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest error of a prediction, as a part of what is measured; and the least number of cases.
const ERROR_MAX: f64 = 0.20;
const CASES_MIN: f64 = 10.0;

/// For the cases over links (`predicted-links`): the least part of them inside the predicted range, and the largest width of a
/// range.
const INSIDE_MIN: f64 = 0.9;
const WIDTH_MAX: f64 = 2.5;

/// Rounds, and rounds of cases whose error is above half of the largest one; the time for which a case has files, unless their
/// number is chosen; the least files of each client and COMPOUNDs of each in flight.
const ROUNDS: u32 = 2;
const ROUNDS_MAX: u32 = 7;
/// No round begins after this time.
const ROUNDS_TIME: Duration = Duration::from_secs(240);
const CASE_TIME: Duration = Duration::from_millis(300);
const FILES_MIN: u64 = 8;
const FILES_MAX: u64 = 2000;
const COMPOUNDS_MIN: u64 = 6;

/// Calls of a probe that do nothing, and as many that change nothing; its files, and the time after which it begins no more.
const PROBE_CALLS: usize = 8;
const PROBE_FILES: u64 = 24;
const PROBE_FILES_MIN: u64 = 3;
const PROBE_TIME: Duration = Duration::from_millis(150);

/// Bytes of each of these files; of the WRITEs that show a link's bandwidth, and their number.
const PROBE_FILE_BYTES: usize = 4 << 10;
const PROBE_UPLOAD_BYTES: usize = 256 << 10;
const PROBE_UPLOADS: u64 = 3;

/// What a flush takes while a server starts and tries which way of flushing is quicker.
const START_FLUSH: Duration = Duration::from_millis(2);

/// Connects one client that does operations one after another.
fn connect(addr: SocketAddr, vers: u32, name: &str, dir: &str) -> Result<Peer> {
    if vers == 30 {
        return Ok(Peer::V3(Box::new(Actor3::connect(addr, dir, 1)?)));
    }
    let mut session = Session::connect(&Connect { minor: vers % 10, ..Connect::new(addr, name) })?;
    let root = session.walk(dir)?;
    Ok(Peer::V4(Box::new(Actor::new(session, root))))
}

fn getattr(peer: &mut Peer) -> Result<()> {
    let root = peer.handle(b"")?;
    peer.getattr(&root).map(drop)
}

/// How such a client works, for the model. Its first attributes never need a SETATTR of their own: Landfast keeps an exclusive
/// create's verifier beside a file's times, not in them.
fn manner(peer: &Peer) -> Manner {
    let version = match peer {
        Peer::V3(_) => Version::V3,
        Peer::V4(_) => Version::V4,
    };
    Manner { exclusive: false, looks: Looks::Never, ..Manner::new(version) }
}

fn members(tar: &[u8]) -> Result<Vec<Member>> {
    let mut all = Vec::new();
    tarball::read(tar, |member| {
        all.push(member);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(all)
}

fn archive(files: u64, file_bytes: usize) -> Result<Vec<u8>> {
    let mut tar = Vec::new();
    write_random(Shape { files, file_bytes, ..Shape::default() }, &mut tar)
        .context(|| "make an archive".to_owned())?;
    Ok(tar)
}

fn count(tar: &[u8], tree: &mut Tree) -> Result<()> {
    for member in members(tar)? {
        match member.kind {
            Kind::File(data) => tree.add_files(1, data.len() as u64, WRITE_BYTES),
            _ => tree.dirs += 1,
        }
    }
    Ok(())
}

/// A server and what it stands on.
struct Site {
    // The server goes before its disks.
    server: Option<Served>,
    rig: Rig,
}

impl Site {
    fn start(durability: Durability) -> Result<Site> {
        let mut rig = Rig::new(&RigOptions::default())?;
        rig.format()?;
        let log = match durability {
            Durability::Log => Some(rig.log_device()?.to_owned()),
            _ => None,
        };
        rig.set_latency(Latency { data_flush: START_FLUSH, log_flush: START_FLUSH })?;
        let server = Served::start(&ServeOptions::new(&rig.export(), log.as_deref(), durability))?;
        Ok(Site { server: Some(server), rig })
    }

    fn addr(&self) -> Result<SocketAddr> {
        let server = self.server.as_ref();
        server.map(Served::addr).ok_or_else(|| Error::Unable("the server has been stopped".into()))
    }

    fn stop(mut self) -> Result<()> {
        self.rig.set_latency(Latency::default())?;
        self.server.take().map_or(Ok(()), Served::stop)
    }
}

struct Bench {
    disk: Site,
    log: Site,
    /// Disks that no server has.
    spare: Rig,
    /// What one durable write takes at a log device, by its flush latency in microseconds.
    log_s: BTreeMap<u64, f64>,
    links: BTreeMap<(u64, bool), Link>,
    runtime: tokio::runtime::Runtime,
    dirs: u64,
}

impl Bench {
    fn new() -> Result<Bench> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context(|| "start a runtime".to_owned())?;
        let mut spare = Rig::new(&RigOptions::default())?;
        spare.format()?;
        Ok(Bench {
            disk: Site::start(Durability::Sync)?,
            log: Site::start(Durability::Log)?,
            spare,
            log_s: BTreeMap::new(),
            links: BTreeMap::new(),
            runtime,
            dirs: 0,
        })
    }

    fn site(&mut self, stable: Stable) -> &mut Site {
        match stable {
            Disk(_) => &mut self.disk,
            Log(_) => &mut self.log,
        }
    }

    /// Sets the disks for a place and returns the address to reach it.
    fn go_to(&mut self, place: Place) -> Result<SocketAddr> {
        let latency = match place.stable {
            Disk(us) => Latency { data_flush: Duration::from_micros(us), ..Latency::default() },
            Log(us) => {
                Latency { data_flush: Duration::from_millis(10), log_flush: Duration::from_micros(us) }
            }
        };
        let site = self.site(place.stable);
        site.rig.set_latency(latency)?;
        let target = site.addr()?;
        let link = match self.links.entry((place.rtt_us, matches!(place.stable, Log(_)))) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(Link::start_raw(target, Duration::from_micros(place.rtt_us))?)
            }
        };
        link.set_bandwidth(place.bytes_per_s());
        link.set_server_work(Duration::from_micros(place.work_us));
        Ok(link.addr())
    }

    /// A new directory, made without latency and not over a link.
    fn dir(&mut self, stable: Stable) -> Result<String> {
        self.dirs += 1;
        let dir = format!("dir{}", self.dirs);
        let site = self.site(stable);
        let addr = site.addr()?;
        site.rig.without_latency(|_| {
            let mut maker = Actor::connect(addr, format!("maker of {dir}"), "/")?;
            let path = dir.clone().into_bytes();
            maker.perform(&Action::Make { path, node: Node::Dir, mode: 0o777 })?;
            maker.into_session().close()
        })?;
        Ok(dir)
    }

    /// Measures what a log device needs by itself, and keeps the shortest time so far.
    fn look_at_log(&mut self, flush_us: u64) -> Result<()> {
        let log_flush = Duration::from_micros(flush_us);
        self.spare.set_latency(Latency { log_flush, ..Latency::default() })?;
        let new = measure::log_write(self.spare.log_device()?)?.as_secs_f64();
        self.log_s.entry(flush_us).and_modify(|old| *old = old.min(new)).or_insert(new);
        Ok(())
    }

    fn probe(&mut self, place: Place) -> Result<Probed> {
        let addr = self.go_to(place)?;
        let dir = self.dir(place.stable)?;
        let null_s = null_calls(addr)?;
        let mut one = connect(addr, place.vers, &dir, &dir)?;
        let manner = manner(&one);
        getattr(&mut one)?;
        let looked = (0..PROBE_CALLS).map(|_| timed(|| getattr(&mut one))).collect::<Result<Vec<_>>>()?;
        let looked_s = super::middle(looked);
        // What each kind of operation takes; a SETATTR is one whatever it sets.
        let mut took: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let mut extraction = Extraction::new();
        let (start, mut files) = (Instant::now(), 0);
        for member in members(&archive(PROBE_FILES, PROBE_FILE_BYTES)?)? {
            if files >= PROBE_FILES_MIN && start.elapsed() > PROBE_TIME {
                break;
            }
            let file = matches!(member.kind, Kind::File(_));
            files += u64::from(file);
            for action in extraction.plan(&member) {
                let seconds = timed(|| one.act(&action).map(drop))?;
                let kind = match action {
                    Action::Create { .. } => "create",
                    Action::Write { .. } => "write",
                    Action::Set { .. } => "set",
                    _ => continue,
                };
                took.entry(kind).or_default().push(seconds);
            }
        }
        let of = |kind: &str| took.get(kind).cloned().map_or(f64::NAN, super::middle);
        let upload_bytes_per_s = match place.mbit {
            0 => None,
            _ => Some(upload(&mut one, of("write"))?),
        };
        one.end()?;
        let sets = 3.0;
        let synchronous = 2.0 + sets;
        // The data's own time on the link is a term of its own.
        let data_s = upload_bytes_per_s.map_or(0.0, |rate| PROBE_FILE_BYTES as f64 / rate);
        let stable_s = (of("create") + of("write") - data_s + sets * of("set")) / synchronous;
        Ok(Probed { null_s, looked_s, stable_s, upload_bytes_per_s, manner })
    }

    fn work(&mut self, case: &Case, archives: &[Vec<u8>]) -> Result<f64> {
        let addr = self.go_to(case.to)?;
        match case.way {
            Client::Serial(_) => {
                let mut ones = Vec::new();
                for tar in archives {
                    let dir = self.dir(case.to.stable)?;
                    let mut one = connect(addr, case.to.vers, &dir, &dir)?;
                    getattr(&mut one)?;
                    ones.push((one, members(tar)?));
                }
                let start = Instant::now();
                let done: Result<Vec<Peer>> = std::thread::scope(|s| {
                    let running: Vec<_> = ones
                        .into_iter()
                        .map(|(one, members)| s.spawn(move || extract(one, &members)))
                        .collect();
                    let panic = |_| Error::Child { role: "client", what: "panic".into() };
                    running.into_iter().map(|r| r.join().map_err(panic)?).collect()
                });
                let seconds = start.elapsed().as_secs_f64();
                done?.into_iter().try_for_each(Peer::end)?;
                Ok(seconds)
            }
            Client::Compounds(files, under_way) => {
                let dir = self.dir(case.to.stable)?;
                let text = format!("nfs://{addr}/{dir}?version=4.{}", case.to.vers % 10);
                let url: NfsUrl = text.parse().map_err(|e| super::client_failed(&e))?;
                let tuning = Tuning {
                    members_per_compound: files as usize,
                    compounds_in_flight: under_way as usize,
                    connections: 1,
                    ..Tuning::default()
                };
                let options = PutOptions { tuning, same_owner: Some(true), ..PutOptions::default() };
                let source = Archive::reader(Cursor::new(archives.concat()));
                let start = Instant::now();
                let report = self
                    .runtime
                    .block_on(untar::run(options, source, &url, Arc::new(Silent)))
                    .map_err(|e| super::client_failed(&e))?;
                let seconds = start.elapsed().as_secs_f64();
                if !report.complete() {
                    return Err(Error::Protocol(format!("untar: {:?}", report.failed)));
                }
                Ok(seconds)
            }
        }
    }
}

fn extract(mut one: Peer, members: &[Member]) -> Result<Peer> {
    let mut extraction = Extraction::new();
    for member in members {
        extraction.plan(member).iter().try_for_each(|action| one.act(action).map(drop))?;
    }
    extraction.finish().iter().try_for_each(|action| one.act(action).map(drop))?;
    Ok(one)
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Bytes a second that a WRITE's data take to the server: of a large one beside one of [`PROBE_FILE_BYTES`], which took `small_s`.
fn upload(one: &mut Peer, small_s: f64) -> Result<f64> {
    let path = b"upload".to_vec();
    one.act(&Action::Create { path: path.clone(), mode: 0o600 })?;
    let data = Bytes::from(vec![0x5a; PROBE_UPLOAD_BYTES]);
    let mut took = Vec::new();
    for n in 0..PROBE_UPLOADS {
        let offset = n * PROBE_UPLOAD_BYTES as u64;
        let action = Action::Write { path: path.clone(), offset, data: data.clone(), stable: true };
        took.push(timed(|| one.act(&action).map(drop))?);
    }
    one.act(&Action::Close { path })?;
    let quickest = took.into_iter().fold(f64::INFINITY, f64::min);
    Ok((PROBE_UPLOAD_BYTES - PROBE_FILE_BYTES) as f64 / (quickest - small_s).max(1e-6))
}

fn null_calls(addr: SocketAddr) -> Result<f64> {
    let what = || "a call that does nothing".to_owned();
    let mut stream = TcpStream::connect(addr).context(what)?;
    stream.set_nodelay(true).context(what)?;
    let call = null_call();
    let mut times = Vec::new();
    for _ in 0..PROBE_CALLS {
        let start = Instant::now();
        stream.write_all(&call).context(what)?;
        // Record mark, transaction id, reply, accepted, verifier of no flavour and no length, success.
        stream.read_exact(&mut [0; 28]).context(what)?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(super::middle(times))
}

/// What a probe found, in seconds.
#[derive(Debug, Clone, Copy)]
struct Probed {
    /// A call that does nothing.
    null_s: f64,
    /// A call that changes nothing.
    looked_s: f64,
    /// A call that must be stable before its reply, on average over those for a file.
    stable_s: f64,
    /// Bytes a second to the server; `None`: no link is emulated.
    upload_bytes_per_s: Option<f64>,
    manner: Manner,
}

impl Probed {
    fn quicker(self, other: Probed) -> Probed {
        Probed {
            null_s: self.null_s.min(other.null_s),
            looked_s: self.looked_s.min(other.looked_s),
            stable_s: self.stable_s.min(other.stable_s),
            upload_bytes_per_s: self.upload_bytes_per_s.zip(other.upload_bytes_per_s).map(|(a, b)| a.max(b)),
            ..self
        }
    }

    fn terms(&self) -> Terms {
        Terms {
            round_trip_s: self.null_s,
            server_s: (self.looked_s - self.null_s).max(0.0),
            persistence_s: (self.stable_s - self.looked_s).max(0.0),
            think_s: 0.0,
            file_think_s: 0.0,
            upload_bytes_per_s: self.upload_bytes_per_s,
            download_bytes_per_s: None,
            in_flight: 1.0,
        }
    }
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(&CASES, choices.files, progress))?
}

/// The cases over links: of each what is predicted and its range, from what was measured before it, and what it took.
pub(super) fn run_links(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(&LINKS, choices.files, progress))?
}

/// A case with its archives, one for each client.
struct Trial {
    case: Case,
    archives: Vec<Vec<u8>>,
    tree: Tree,
    measured_s: f64,
}

impl Trial {
    fn new(case: Case, files: u64) -> Result<Trial> {
        let clients = match case.way {
            Client::Serial(n) => n,
            Client::Compounds(..) => 1,
        };
        let each = files.div_ceil(clients);
        let archives = (0..clients).map(|_| archive(each, case.file_bytes)).collect::<Result<Vec<_>>>()?;
        let mut tree = Tree::default();
        archives.iter().try_for_each(|tar| count(tar, &mut tree))?;
        Ok(Trial { case, archives, tree, measured_s: f64::INFINITY })
    }
}

type ProbeResults = BTreeMap<Place, Probed>;

fn measure(cases: &[Case], files: Option<u64>, progress: Progress<'_>) -> Result<Findings> {
    let mut bench = Bench::new()?;
    let mut known = ProbeResults::new();
    let mut trials = Vec::new();
    let mut off = vec![true; cases.len()];
    let begun = Instant::now();
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && begun.elapsed() > ROUNDS_TIME {
            break;
        }
        let (mut seen, mut logs) = (BTreeSet::new(), BTreeSet::new());
        for (n, &case) in cases.iter().enumerate() {
            if round >= ROUNDS && !off[n] {
                continue;
            }
            progress(&format!("round {}: {}", round + 1, case.name()));
            for place in [case.from, case.to] {
                if seen.insert(place) {
                    let new = bench.probe(place)?;
                    known.entry(place).and_modify(|old| *old = old.quicker(new)).or_insert(new);
                }
            }
            if let Log(us) = case.to.stable
                && case.to.stable != case.from.stable
                && logs.insert(us)
            {
                bench.look_at_log(us)?;
            }
            if round == 0 {
                trials.push(Trial::new(case, files.map_or_else(|| enough(&case, &known, &bench), Ok)?)?);
            }
            let trial = &mut trials[n];
            trial.measured_s = trial.measured_s.min(bench.work(&case, &trial.archives)?);
        }
        for (trial, off) in trials.iter().zip(&mut off) {
            let (_, predicted) = foretell(&trial.case, &trial.tree, &known, &bench)?;
            *off = (predicted.seconds / trial.measured_s - 1.0).abs() > ERROR_MAX / 2.0;
        }
    }
    let mut found = Findings::default();
    let mut worst: BTreeMap<&str, f64> = BTreeMap::new();
    let (mut inside, mut widest) = (0, 0f64);
    for trial in &trials {
        let (terms, predicted) = foretell(&trial.case, &trial.tree, &known, &bench)?;
        let there = known.get(&trial.case.to).map_or(terms, Probed::terms);
        let (predicted_s, measured_s) = (predicted.seconds, trial.measured_s);
        let error = predicted_s / measured_s - 1.0;
        let (from_s, to_s) = predicted.within_s.unwrap_or((0.0, f64::INFINITY));
        let is_inside = predicted.within_s.is_some() && (from_s..=to_s).contains(&measured_s);
        let mut line = Row::new(
            &trial.case.name(),
            [
                ("files", trial.tree.files as f64),
                ("predicted_s", predicted_s),
                ("measured_s", measured_s),
                ("error", error),
                ("round_trip_s", terms.round_trip_s),
                ("server_s", terms.server_s),
                ("persistence_s", terms.persistence_s),
                ("persistence_there_s", there.persistence_s),
            ],
        );
        if predicted.within_s.is_some() {
            let range = [("from_s", from_s), ("to_s", to_s), ("inside", f64::from(u8::from(is_inside)))];
            line.values.extend(range.map(|(name, value)| (name.to_owned(), value)));
        }
        line.values.extend(terms.upload_bytes_per_s.map(|rate| ("upload_bytes_per_s".to_owned(), rate)));
        found.lines.push(line);
        let worst = worst.entry(trial.case.kind).or_default();
        *worst = worst.max(error.abs());
        inside += u32::from(is_inside);
        widest = widest.max(to_s / from_s);
    }
    found.checks.push(Check::at_least("cases", trials.len() as f64, CASES_MIN));
    if trials.iter().any(|trial| trial.case.to.mbit > 0) {
        let part = f64::from(inside) / trials.len() as f64;
        let what = "the part of what was measured that is inside its range";
        found.checks.push(Check::at_least(what, part, INSIDE_MIN));
        let what = "the widest range: its end as a multiple of its beginning";
        found.checks.push(Check::at_most(what, widest, WIDTH_MAX));
    } else {
        for (kind, error) in worst {
            let what =
                format!("{kind}: how far a prediction was off at most, as a part of what was measured");
            found.checks.push(Check::at_most(&what, error, ERROR_MAX));
        }
    }
    found.notes.push(format!(
        "each case had {ROUNDS} rounds, and up to {ROUNDS_MAX} while its error was above {} %, as other work of the machine makes it: the errors are a little smaller than those of a fixed number of \
         rounds would be",
        ERROR_MAX * 50.0
    ));
    bench.disk.stop()?;
    bench.log.stop()?;
    Ok(found)
}

/// The terms where a case begins, and what the model says of where it ends.
fn foretell(case: &Case, tree: &Tree, known: &ProbeResults, bench: &Bench) -> Result<(Terms, Outlook)> {
    let unknown = || Error::Unable(format!("{}: its place was not looked at", case.name()));
    let from = known.get(&case.from).ok_or_else(unknown)?;
    let to = known.get(&case.to).ok_or_else(unknown)?;
    let terms = from.terms();
    let log_s = match case.to.stable {
        Log(us) => bench.log_s.get(&us).copied().unwrap_or(0.0),
        Disk(_) => 0.0,
    };
    let changes = case.changes(to.null_s, log_s, [terms.server_s, to.terms().server_s]);
    let prediction = predict(&terms, &Job::extract(tree, &to.manner), &changes)
        .map_err(|e| Error::Unable(format!("{}: {e}", case.name())))?;
    let each = prediction.each.first().and_then(|outcome| outcome.outlook);
    Ok((terms, prediction.together.or(each).unwrap_or(prediction.now)))
}

/// Files that take about [`CASE_TIME`].
fn enough(case: &Case, known: &ProbeResults, bench: &Bench) -> Result<u64> {
    const SOME: u64 = 1024;
    let mut tree = Tree::default();
    tree.add_files(SOME, case.file_bytes as u64, WRITE_BYTES);
    let (_, predicted) = foretell(case, &tree, known, bench)?;
    let files = (SOME as f64 * CASE_TIME.as_secs_f64() / predicted.seconds) as u64;
    let at_least = match case.way {
        Client::Serial(n) => n * FILES_MIN,
        Client::Compounds(files, under_way) => files * under_way * COMPOUNDS_MIN,
    };
    Ok(files.clamp(at_least, FILES_MAX))
}
