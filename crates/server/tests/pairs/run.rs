//! All pairs of one version at once: one held flush, two power cuts.
//!
//! 1. Each first client's act is sent while the flush that it needs is held before it writes anything. It is done when the request
//!    has run, or is held itself.
//! 2. Each second client's act is sent, and runs. Without a log its own flush goes by.
//! 3. What rests on the first's may not be answered now; what only reads, and what has nothing to wait for, must be.
//! 4. The power is cut: what was answered must be so on the disk.
//! 5. The flush goes on, all is answered, and the power is cut again: everything must be as it was.

use crate::acts::{self, Act, Asks, Op, Version};
use crate::common::Rig;
use crate::image::{Image, Kernel};
use crate::say::{Heard, Place, Said, Speaker, places};
use crate::tree::{self, Tree};
use landfast_server::limited::{Limit, Limits};
use landfast_server::limits::{SLOW_WORKERS, SLOW_WORKERS_KEPT_DIVISOR};
use landfast_volume::Durability;
use landfast_volume::faults::{self, Hold};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long anything may take that does take place.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long an answer may take that has nothing to wait for, when the request has run.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Two acts and what came of them.
struct Pair {
    first: &'static Act,
    second: &'static Act,
    /// Of the directory.
    name: String,
    answers: [Arc<Slot>; 2],
}

/// Where an answer comes to.
#[derive(Default)]
struct Slot {
    heard: OnceLock<(Heard, bool)>,
}

impl Slot {
    fn status(&self) -> u32 {
        self.heard.get().map_or(u32::MAX, |(heard, _)| heard.status)
    }

    /// Whether the answer has come, and that before the flush went on.
    fn early(&self) -> bool {
        self.heard.get().is_some_and(|(_, early)| *early)
    }
}

impl Pair {
    /// What was changed and not flushed, that the second names.
    fn rests(&self, durability: Durability) -> bool {
        self.answers[0].status() == 0 && self.second.rests_on(self.first, durability)
    }

    /// The second has nothing to wait for. Said before anything is known of answers.
    fn is_free(&self, durability: Durability) -> bool {
        match self.second.asks {
            Asks::Nothing => true,
            // Of a file that is gone, it says so when that is durable.
            Asks::Later => !self.second.shares(self.first, durability),
            // Its own flush goes by without a log.
            Asks::Stable => {
                !self.second.shares(self.first, durability)
                    && (durability == Durability::Sync
                        || (!self.second.own && self.first.changes.is_empty() && !self.first.own))
            }
        }
    }

    /// Data of `x` is left that nobody has committed. `held`: nor has the first, which was about to.
    fn is_unstable(&self, held: bool) -> bool {
        let unstable = |act: &Act| act.asks == Asks::Later;
        let commits = |act: &Act| matches!(act.op, Op::Commit | Op::CommitOwn | Op::CommitOpen);
        let first = unstable(self.first) || held && commits(self.first);
        unstable(self.second) || first && !commits(self.second)
    }

    fn said(&self) -> String {
        format!("{:?}, then {:?}", self.first.op, self.second.op)
    }
}

/// What was found wrong, by what it is.
#[derive(Default)]
struct Findings(BTreeMap<&'static str, Vec<String>>);

impl Findings {
    fn add(&mut self, what: &'static str, pair: String) {
        self.0.entry(what).or_default().push(pair);
    }

    fn end(self, title: &str) {
        let mut text = String::new();
        for (what, pairs) in &self.0 {
            let _ = writeln!(text, "{title}: {} pairs: {what}", pairs.len());
            pairs.iter().for_each(|pair| {
                let _ = writeln!(text, "    {pair}");
            });
        }
        assert!(self.0.is_empty(), "\n{text}");
    }
}

/// Waits until `so`; says what it waited for where that does not come.
async fn until(what: &str, patience: Duration, so: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !so() {
        if begin.elapsed() > patience {
            println!("not within {patience:?}: {what}");
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    true
}

/// Sends them all.
fn send(said: Vec<Said>, slots: impl Iterator<Item = Arc<Slot>>, released: &Arc<AtomicBool>) {
    for (said, slot) in said.into_iter().zip(slots) {
        let released = released.clone();
        tokio::spawn(async move {
            let heard = said.send().await;
            let early = !released.load(Ordering::SeqCst);
            assert!(slot.heard.set((heard, early)).is_ok(), "one answer");
        });
    }
}

pub fn every_pair(version: Version, durability: Durability, kernel: Kernel) {
    // First: threads that are made from here on see what is mounted.
    let Some(mut image) = Image::new(kernel) else { return };
    if kernel == Kernel::Ext4 {
        // Its journal would bring to the disk within seconds what nobody has flushed, and the cut would show less.
        let seldom = ["-o", "remount,noatime,commit=300", image.path().to_str().expect("a path")];
        let done = std::process::Command::new("mount").args(seldom).status();
        assert!(done.is_ok_and(|status| status.success()), "remount");
    }
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    threads.expect("threads").block_on(all(version, durability, &mut image));
}

async fn all(version: Version, durability: Durability, image: &mut Image) {
    let title = format!("NFSv{}, {durability:?}, {:?}", version.said(), image.kernel);
    let mut begin = Instant::now();
    let mut lap = |what: &str| {
        println!("{title}: {what} in {:.1} s", begin.elapsed().as_secs_f32());
        begin = Instant::now();
    };
    let acts: Vec<_> = acts::of(version).collect();
    let pairs = acts.iter().flat_map(|first| acts.iter().map(move |second| (*first, *second)));
    let pairs = pairs.enumerate().map(|(i, (first, second))| {
        let name = format!("p{i:04}");
        Pair { first, second, name, answers: [Arc::default(), Arc::default()] }
    });
    let pairs: Vec<Pair> = pairs.collect();

    let dir = tempfile::Builder::new().tempdir_in(image.path()).expect("a directory");
    std::fs::create_dir(dir.path().join("data")).expect("the export");
    pairs.iter().for_each(|pair| tree::prepare(&dir.path().join("data").join(&pair.name)));
    let mount = std::fs::File::open(image.path()).expect("the mount point");
    rustix::fs::syncfs(mount).expect("syncfs");
    let log = image.beside().join("log");
    let mut rig = Rig::stopped(dir, durability, 3600, Some(log.clone()));
    rig.limits = Limits::default()
        .with(Limit::Requests, 1 << 20)
        .with(Limit::ClientRequests, 1 << 20)
        .with(Limit::ConnectionRequests, 1 << 20);
    rig.log_size = 64 << 20;
    // So long that nobody who waits for a batch writes it himself, and would be held himself.
    rig.log_flush = Some(Duration::from_millis(1));
    // Without a log each request has a thread until it is flushed, and what it rests on is.
    let held = pairs.iter().filter(|pair| pair.first.own_flush()).count();
    let resting = pairs.iter().filter(|pair| pair.second.rests_on(pair.first, durability)).count();
    // With those that are kept for other clients: all of these are one client's.
    let workers = SLOW_WORKERS + held + resting;
    let workers = workers + workers / (SLOW_WORKERS_KEPT_DIVISOR - 1) + 1;
    rig.slow_workers = (durability == Durability::Sync).then_some(workers);
    rig.start().await;
    lap("prepared");

    let names: Vec<_> = pairs.iter().map(|pair| pair.name.clone()).collect();
    let places = places(&rig, &names).await;
    let mut first = Speaker::new(&rig, version, b'1', pairs.len()).await;
    let mut second = Speaker::new(&rig, version, b'2', pairs.len()).await;
    for (i, pair) in pairs.iter().enumerate() {
        first.prepare(i, &places[i], pair.first.op).await;
        second.prepare(i, &places[i], pair.second.op).await;
    }
    lap("opened");

    let released = Arc::new(AtomicBool::new(false));
    let hold = run(&pairs, &places, (&mut first, &mut second), &released, durability).await;
    lap("run");
    second.fence().await;
    let free = || pairs.iter().filter(|pair| pair.is_free(durability));
    until("answers that wait for nothing", AT_ONCE, || {
        free().all(|pair| pair.answers[1].heard.get().is_some())
    })
    .await;
    let beside = [&*log];
    let beside: &[&Path] = if durability == Durability::Log { &beside } else { &[] };
    image.cut_as("held", beside);
    // What was answered up to here was so when the power was cut, or came before.
    released.store(true, Ordering::SeqCst);
    drop(hold);
    let answered = || pairs.iter().all(|pair| pair.answers.iter().all(|slot| slot.heard.get().is_some()));
    assert!(until("all answers", PATIENCE, answered).await, "{title}");
    let looks = |rig: &Rig| pairs.iter().map(|p| Tree::of(&rig.export().join(&p.name))).collect::<Vec<_>>();
    let wanted = looks(&rig);
    image.cut_as("released", beside);
    lap("answered and cut");

    let mut findings = Findings::default();
    check_answers(&pairs, version, durability, &mut findings);
    for cut in ["held", "released"] {
        rig.running.take().expect("a server").stop().await.expect("a clean stop");
        image.load_when_free(cut, beside);
        rig.start().await;
        for ((pair, found), wanted) in pairs.iter().zip(looks(&rig)).zip(&wanted) {
            let status = pair.answers[1].status();
            if cut == "released" {
                if let Err(why) = found.is(wanted, pair.is_unstable(false)) {
                    findings.add("after the cut when all was answered", format!("{}: {why}", pair.said()));
                }
            } else if pair.answers[1].early() && pair.second.asks == Asks::Stable {
                let names = pair.second.names;
                if let Err(why) = found.agrees(wanted, names, pair.is_unstable(true)) {
                    let what = "answered before the cut, and not so after it";
                    findings.add(what, format!("{} ({status}): {why}", pair.said()));
                }
            }
        }
        lap(cut);
    }
    rig.running.take().expect("a server").stop().await.expect("a clean stop");
    let (resting, free) = (pairs.iter().filter(|p| p.rests(durability)).count(), free().count());
    println!(
        "{title}: {} pairs; {resting} seconds had to wait for the first, {free} for nothing",
        pairs.len()
    );
    let stale = pairs.iter().filter(|p| p.answers[1].status() == 70 && p.rests(durability)).count();
    assert!(stale > 0, "handles of what is gone are among them");
    assert!(resting > pairs.len() / 8 && free > pairs.len() / 8, "the table has both");
    findings.end(&title);
}

/// Sends the firsts, has them run, sends the seconds, has them run. Gives what holds the flush.
async fn run(
    pairs: &[Pair],
    places: &[Place],
    (first, second): (&mut Speaker, &mut Speaker),
    released: &Arc<AtomicBool>,
    durability: Durability,
) -> Hold {
    let hold = match durability {
        Durability::Log => faults::hold("log.before-write"),
        _ => faults::hold("volume.flushing"),
    };
    // Requests that have run, that are held in their flush, that wait for another's.
    let passes = || faults::passes("request.ran") + faults::passes("answer.rests");
    let before = passes();
    let held = || if durability == Durability::Log { 0 } else { hold.here() as u64 };
    let done = || passes() - before + held();
    for (which, speaker) in [first, second].into_iter().enumerate() {
        let op = |pair: &Pair| if which == 0 { pair.first.op } else { pair.second.op };
        let said = pairs.iter().zip(places).enumerate();
        let said = said.map(|(i, (pair, place))| speaker.say(i, place, op(pair))).collect();
        send(said, pairs.iter().map(|pair| pair.answers[which].clone()), released);
        let all = (pairs.len() * (which + 1)) as u64;
        let ran = until("requests that have run", PATIENCE, || done() >= all).await;
        assert!(ran, "{} of {all} requests have run or are held", done());
        speaker.fence().await;
        if durability == Durability::Sync {
            hold.lets_others_by();
        }
    }
    hold
}

/// Who was answered when, and how.
fn check_answers(pairs: &[Pair], version: Version, durability: Durability, findings: &mut Findings) {
    for pair in pairs {
        let (first, second) = (&pair.answers[0], &pair.answers[1]);
        let status = first.status();
        if !pair.first.answer.is(status, pair.first.op, version) {
            findings.add("the first's answer is another one", format!("{:?}: {status}", pair.first.op));
        }
        let flushes = match durability {
            Durability::Log => pair.first.own,
            _ => !pair.first.changes.is_empty(),
        };
        if status == 0 && flushes && first.early() {
            findings.add("the first was answered before its flush", pair.said());
        }
        let told = format!("{} ({})", pair.said(), second.status());
        if pair.rests(durability) && second.early() {
            findings.add("answered before the first's flush had ended", told);
        } else if pair.is_free(durability) && !second.early() {
            findings.add("waited for a flush that it has nothing to do with", told);
        }
    }
}
