//! A round: programs work on a mount, something is cut, and what is there is compared with what they did.

use super::archive;
use super::history::{Done, Id, Kind, Stable};
use super::looker::{Seen, look};
use super::options::{Options, Round, What};
use super::oracle::{Forest, Verdict, check};
use super::program::{Manner, Program};
use super::record::Record;
use super::rival::{Rival, Told};
use super::stand::Stand;
use crate::error::{Context, Error, Result};
use crate::fuse_mount::FuseMount;
use crate::limits::{
    MOUNT_CUTS_LEASE, MOUNT_CUTS_LOST_MAX, MOUNT_CUTS_OWN_WAIT, MOUNT_CUTS_PATIENCE, MOUNT_CUTS_WAIT_MAX,
    READY_POLL,
};
use landfast_verify::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Programs beside `tar`.
const PROGRAMS: u64 = 2;

/// Numbers of objects of one program.
const NUMBERS: Id = 1 << 32;

/// How long programs work before the cut, and after it where they go on; in milliseconds.
const BEFORE_MS: (u64, u64) = (200, 4500);
const AFTER_MS: (u64, u64) = (300, 1500);

/// How long the server is down, the longest, in milliseconds.
const DOWN_MS: u64 = 1500;

/// How long a second client looks, in milliseconds.
const LOOK_MS: u64 = 4000;

/// Programs at work on a mount.
struct Work {
    mount: FuseMount,
    round_trip_ms: u64,
    programs: Vec<Worker>,
}

struct Worker {
    dir: String,
    top: Id,
    record: Arc<Record>,
    thread: Option<JoinHandle<()>>,
}

fn between(rng: &mut Rng, (least, most): (u64, u64)) -> Duration {
    Duration::from_millis(least + rng.below(most - least))
}

impl Work {
    /// Mounts a new directory of the server, and lets programs work there.
    fn begin(stand: &mut Stand<'_>, options: &Options, what: What, dir: &str, rng: &mut Rng) -> Result<Work> {
        let round_trip_ms = stand.next(dir, rng)?;
        let url = format!("nfs://{}/{dir}?version=4.2", stand.link.addr());
        let close = if options.local { "close=local" } else { "close=wait" };
        let bug = options.bug.iter().map(|bug| ("LANDFAST_MOUNT_BUG".to_owned(), bug.clone()));
        let at = stand.scratch().join(format!("at-{dir}"));
        let mount = FuseMount::start_with(&url, &at, close, &bug.collect::<Vec<_>>())?;
        let mut work = Work { mount, round_trip_ms, programs: Vec::new() };
        let start = Instant::now();
        let tar = u64::from(what != What::Network);
        for n in 0..PROGRAMS + tar {
            let name = if n < PROGRAMS { format!("program{n}") } else { "tar".to_owned() };
            let dir = work.own_dir(options, &name)?;
            let record = Arc::new(Record::new(start, !options.local, n * NUMBERS));
            let top = record.with(|h, _| h.add(Kind::Dir));
            work.programs.push(Worker { dir, top, record, thread: None });
        }
        for (n, worker) in work.programs.iter_mut().enumerate() {
            let (record, at, top, seed) =
                (worker.record.clone(), at.join(&worker.dir), worker.top, rng.next_u64());
            let scratch = stand.scratch().to_owned();
            let manner = match what {
                What::Network => Manner::Alone,
                What::Look => Manner::Seen,
                What::Kill | What::Server | What::Both => Manner::All,
            };
            let run = move || {
                if let Err(e) = crate::sys::own_files() {
                    return record.failed(&format!("open files of its own: {e}"));
                }
                match n < PROGRAMS as usize {
                    true => Program::new(record, &at, top, seed, manner).run(),
                    false => archive::run(&record, &at, top, &scratch, seed),
                }
            };
            let thread = std::thread::Builder::new().name(worker.dir.clone());
            worker.thread = Some(thread.spawn(run).context(|| "start a thread".to_owned())?);
        }
        Ok(work)
    }

    /// A new directory, stable, of the mount's own where it can be: once the server's callbacks reach the mount.
    fn own_dir(&self, options: &Options, name: &str) -> Result<String> {
        let begin = Instant::now();
        for n in 0.. {
            let delegations = || self.mount.state("directory delegations");
            let before = if options.local { delegations()? } else { 0 };
            let dir = format!("{name}-{n}");
            let at = self.mount.path().join(&dir);
            let what = || format!("create {}", at.display());
            std::fs::create_dir(&at).context(what)?;
            self.mount.sync()?;
            if !options.local || delegations()? > before {
                return Ok(dir);
            }
            std::fs::remove_dir(&at).context(what)?;
            if begin.elapsed() > MOUNT_CUTS_OWN_WAIT {
                break;
            }
        }
        Err(Error::Unable("the server gives no write directory delegation".to_owned()))
    }

    fn now(&self) -> Duration {
        self.programs.first().map_or(Duration::ZERO, |p| p.record.now())
    }

    /// Whether each call is stable when it returns.
    fn waits(&self) -> bool {
        self.programs.iter().all(|p| p.record.waits())
    }

    fn calls(&self) -> u64 {
        self.programs.iter().map(|p| p.record.calls()).sum()
    }

    fn syncs(&self) -> u64 {
        self.programs.iter().map(|p| p.record.with(|h, _| h.syncs)).sum()
    }

    fn tell_to_end(&self, closes: bool) {
        self.programs.iter().for_each(|p| p.record.end(closes));
    }

    /// Waits until all programs have ended.
    /// Errors: They do not, in [`MOUNT_CUTS_PATIENCE`]. The mount is killed then, so that they do.
    fn join(&mut self) -> Result<()> {
        let begin = Instant::now();
        let mut late = false;
        for program in &mut self.programs {
            let Some(thread) = program.thread.take() else { continue };
            // A thread has no end that can be waited for with a limit.
            while !thread.is_finished() {
                if begin.elapsed() > MOUNT_CUTS_PATIENCE && !late {
                    late = true;
                    self.mount.kill();
                }
                std::thread::sleep(READY_POLL);
            }
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        match late {
            false => Ok(()),
            true => Err(Error::Protocol(format!(
                "programs waited for {} s; the mount says: {}",
                MOUNT_CUTS_PATIENCE.as_secs(),
                self.mount.process().words()
            ))),
        }
    }

    /// What a call of a program that failed says.
    fn failures(&self) -> Vec<String> {
        self.programs.iter().filter_map(|p| p.record.failure()).collect()
    }

    /// The process that serves the mount is killed, and programs end with it.
    fn kill(&mut self) -> Result<()> {
        self.mount.kill();
        self.tell_to_end(false);
        self.join()
    }

    fn verdict(&self, stand: &mut Stand<'_>, dir: &str, end: Duration, age_max: Duration) -> Result<Verdict> {
        let tree = stand.tree(dir)?;
        let forest = Forest::new(&tree);
        let mut all = Verdict::default();
        let tops = forest.entries(b"");
        for program in &self.programs {
            if !tops.contains_key(&program.dir) {
                all.wrong.push(format!("{}: missing", program.dir));
                continue;
            }
            let top = (&forest, program.dir.as_bytes());
            all.add(program.record.with(|h, _| check(h, program.top, top, end, age_max)));
        }
        Ok(all)
    }

    /// All that was done must be there: nothing was cut for good.
    fn whole(&self, stand: &mut Stand<'_>, dir: &str) -> Result<Verdict> {
        for program in &self.programs {
            program.record.with(|h, _| h.stable_below(program.top));
        }
        self.verdict(stand, dir, self.now(), Duration::ZERO)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.tell_to_end(false);
        self.mount.kill();
        // It was told; a panic was shown.
        self.programs.iter_mut().filter_map(|p| p.thread.take()).for_each(|t| drop(t.join()));
    }
}

/// One round.
/// Errors: What keeps the lab from working; what is wrong is in the report.
pub(super) fn round(stand: &mut Stand<'_>, options: &Options, what: What, n: u32) -> Result<Round> {
    let mut rng = Rng::new(options.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(n) * 8 + what as u64));
    let mut report = Round {
        round: n,
        what,
        round_trip_ms: 0,
        after_ms: 0,
        calls: 0,
        names: 0,
        syncs: 0,
        lost: 0,
        oldest_lost_ms: 0,
        longest_wait_ms: 0,
        told: 0,
        wrong: Vec::new(),
    };
    let dir = format!("{}{n}", what.name());
    let mut work = Work::begin(stand, options, what, &dir, &mut rng)?;
    report.round_trip_ms = work.round_trip_ms;
    let place = Place { stand, dir: &dir, slack: options.slack };
    let done = match what {
        What::Kill => kill(place, &mut work, &mut rng, &mut report),
        What::Server => server(place, &mut work, &mut rng, &mut report),
        What::Both => both(place, &mut work, &mut rng, &mut report),
        What::Network => network(place, &mut work, &mut rng, &mut report),
        What::Look => second_client(place, &mut work, &mut rng, &mut report),
    };
    report.calls = work.calls();
    report.syncs = work.syncs();
    match done {
        Ok(verdict) => {
            report.names += verdict.names;
            report.lost = verdict.lost;
            report.oldest_lost_ms = millis(verdict.oldest_lost);
            report.wrong.extend(verdict.wrong);
        }
        Err(e @ (Error::Protocol(_) | Error::Nfs { .. } | Error::Lost { .. })) => {
            report.wrong.push(e.to_string());
        }
        Err(e) => return Err(e),
    }
    report.wrong.extend(stand.panics());
    if !report.wrong.is_empty() {
        report.wrong.extend(work.failures().into_iter().map(|e| format!("(a program ended with {e})")));
        let words = work.mount.process().words();
        report.wrong.extend(Some(format!("(the mount says: {words})")).filter(|_| !words.is_empty()));
        stand.spoilt();
    }
    Ok(report)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Where a round is.
struct Place<'a, 'b> {
    stand: &'a mut Stand<'b>,
    dir: &'a str,
    /// See [`Options::slack`].
    slack: Duration,
}

fn kill(place: Place<'_, '_>, work: &mut Work, rng: &mut Rng, report: &mut Round) -> Result<Verdict> {
    std::thread::sleep(between(rng, BEFORE_MS));
    let end = work.now();
    report.after_ms = millis(end);
    report.wrong.extend(work.failures());
    work.kill()?;
    place.stand.mount_is_gone(rng)?;
    work.verdict(place.stand, place.dir, end, MOUNT_CUTS_LOST_MAX + place.slack)
}

fn server(place: Place<'_, '_>, work: &mut Work, rng: &mut Rng, report: &mut Round) -> Result<Verdict> {
    std::thread::sleep(between(rng, BEFORE_MS));
    report.after_ms = millis(work.now());
    let process_only = rng.chance(250);
    place.stand.cut(process_only, rng)?;
    std::thread::sleep(between(rng, (0, DOWN_MS)));
    place.stand.recover(process_only)?;
    std::thread::sleep(between(rng, AFTER_MS));
    work.tell_to_end(true);
    work.join()?;
    all_is_there(place, work, report)
}

/// The mount sends what it has; then all that programs did must be there, and no call of theirs has failed.
fn all_is_there(place: Place<'_, '_>, work: &mut Work, report: &mut Round) -> Result<Verdict> {
    report.wrong.extend(work.failures());
    let told = work.mount.told(MOUNT_CUTS_PATIENCE)?;
    report.told = told.len() as u64;
    report.wrong.extend(told.into_iter().map(|line| format!("the mount tells: {line}")));
    work.whole(place.stand, place.dir)
}

fn both(place: Place<'_, '_>, work: &mut Work, rng: &mut Rng, report: &mut Round) -> Result<Verdict> {
    std::thread::sleep(between(rng, BEFORE_MS));
    let end = work.now();
    report.after_ms = millis(end);
    report.wrong.extend(work.failures());
    let (server_first, process_only) = (rng.chance(500), rng.chance(150));
    let gap = Duration::from_millis(rng.below(300));
    if server_first {
        place.stand.cut(process_only, rng)?;
        std::thread::sleep(gap);
        work.kill()?;
    } else {
        work.mount.kill();
        // What it sent last may be on its way, or in the middle of its execution.
        std::thread::sleep(if rng.chance(500) { Duration::ZERO } else { gap });
        place.stand.cut(process_only, rng)?;
        work.kill()?;
    }
    place.stand.recover(process_only)?;
    work.programs.iter().for_each(|p| p.record.with(|h, _| h.torn = true));
    work.verdict(place.stand, place.dir, end, MOUNT_CUTS_LOST_MAX + place.slack)
}

fn network(place: Place<'_, '_>, work: &mut Work, rng: &mut Rng, report: &mut Round) -> Result<Verdict> {
    std::thread::sleep(between(rng, (BEFORE_MS.0, BEFORE_MS.1 / 2)));
    report.after_ms = millis(work.now());
    report.wrong.extend(work.failures());
    place.stand.link.cut();
    let before: Vec<Stable> = work.programs.iter().map(|p| p.record.with(|h, _| h.stable_now())).collect();
    if rng.chance(500) {
        // The ends have found out; otherwise what was sent arrives when the network is back.
        place.stand.link.sever();
    }
    let begin = Instant::now();
    let mut rival = Rival::default();
    let mut client = place.stand.client(place.dir)?;
    for program in &work.programs {
        rival.work(&mut client, &program.dir, rng)?;
    }
    client.into_session().close()?;
    let longer = MOUNT_CUTS_LEASE + between(rng, AFTER_MS);
    std::thread::sleep(longer.saturating_sub(begin.elapsed()));
    // Nothing that they do can be in the rival's way from here on.
    work.tell_to_end(false);
    let done: Vec<Done> = work.programs.iter().map(|p| p.record.with(|h, _| h.done_now())).collect();
    place.stand.link.heal();
    work.join()?;
    let told = Told::new(work.mount.told(MOUNT_CUTS_PATIENCE)?);
    report.told = told.count();
    // What a mount that waits has not done the program was told, by an error of its call.
    let told = if work.waits() { Told::new(Vec::new()) } else { told };
    let tree = place.stand.tree(place.dir)?;
    let forest = Forest::new(&tree);
    let mut all = Verdict::default();
    for ((program, before), done) in work.programs.iter().zip(&before).zip(&done) {
        let at = (program.top, program.dir.as_str());
        all.add(rival.check(&program.record, at, &forest, (&told, before, done)));
    }
    Ok(all)
}

fn second_client(
    place: Place<'_, '_>,
    work: &mut Work,
    rng: &mut Rng,
    report: &mut Round,
) -> Result<Verdict> {
    let over = AtomicBool::new(false);
    let mut client = place.stand.client(place.dir)?;
    let tops: Vec<(String, Id, &Record)> =
        work.programs.iter().map(|p| (p.dir.clone(), p.top, &*p.record)).collect();
    std::thread::sleep(between(rng, (0, BEFORE_MS.1 / 2)));
    let seen: Result<Seen> = std::thread::scope(|s| {
        let looking = s.spawn(|| look(&mut client, &tops, &over));
        std::thread::sleep(Duration::from_millis(LOOK_MS));
        over.store(true, Ordering::Release);
        looking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let seen = seen?;
    report.after_ms = millis(work.now());
    report.names = seen.names;
    report.longest_wait_ms = millis(seen.longest);
    report.wrong.extend(seen.wrong);
    if seen.longest > MOUNT_CUTS_WAIT_MAX + place.slack {
        report.wrong.push(format!("the second client has waited for {} ms", report.longest_wait_ms));
    }
    client.into_session().close()?;
    work.tell_to_end(true);
    work.join()?;
    all_is_there(place, work, report)
}
