//! Deliberate faults, to test the tests: the simulation and real power cuts, or a test of its own, must detect each bug. A
//! process can also be stopped at a named point, to cut the power of its disks there.
//!
//! Only programs with debug assertions have this. In a release build [`bug`] is the constant `false`, [`point`] is empty and
//! the environment is not read.
//!
//! A bug is chosen for the whole process by `LANDFAST_BUG=NAME`, or for one thread by [`with`]. A stop is chosen by
//! `LANDFAST_STOP_AT=NAME[:N]`: the N-th pass of that point stops the process with SIGSTOP, after a line on standard
//! error that says so; the thread that passes does nothing more before SIGCONT. [`from_environment`] reports what was chosen,
//! and refuses unknown names. A test that runs the code in its own process holds threads at a point instead, with `hold`.

use std::fmt;
use std::str::FromStr;

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal,)+) => {
        /// A deliberate bug: one thing done in the wrong order, or left out. The oracle of every check must see it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Bug {
            $($(#[$doc])* $bug,)+
        }

        impl Bug {
            pub const ALL: [Bug; [$(Bug::$bug),+].len()] = [$(Bug::$bug),+];

            fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)+
                }
            }
        }
    };
}

bugs! {
    /// A ticket succeeds when its batch is about to be written.
    ReplyBeforeFlush = "reply-before-flush",
    /// The tail moves though the volume was not made durable.
    CheckpointBeforeSyncfs = "checkpoint-before-syncfs",
    /// The cut of a checkpoint is taken after the volume was made durable: what came meanwhile is freed.
    CutLate = "cut-late",
    /// Recovery's barrier keeps no rows: handles of objects that were made again lead nowhere.
    LostRemapRow = "lost-remap-row",
    /// Recovery empties the log before it has made the volume durable.
    EmptyBeforeSync = "empty-before-sync",
    /// A reply is logged apart from its effect, later, and nobody waits for it.
    ReplyApart = "reply-apart",
    /// The write verifier is the same after an unclean start.
    VerifierKept = "verifier-kept",
    /// An error of a log write is taken for success.
    FlushErrorIgnored = "flush-error-ignored",
    /// The marker stays as it is: a disk that is ahead of the log goes unnoticed.
    MarkerUnset = "marker-unset",
    /// A rename over something says nothing of what was there.
    VictimUnlogged = "victim-unlogged",
    /// An answer does not wait for what others have done to the objects that it tells of.
    AnswerUnflushed = "answer-unflushed",
    /// A request that waits for a device keeps its thread, and nobody looks at what else that thread had to do.
    FlushInPlace = "flush-in-place",
    /// The reply to a request whose effects are in several logs is written down with the last of them.
    ReplyKeptEarly = "reply-kept-early",
    /// Notes of a log from before a time without it come back.
    OldReplyKept = "old-reply-kept",
    /// A log that is removed, truncated or overwritten while it is used is not noticed.
    LostLogUnnoticed = "lost-log-unnoticed",
    /// A filesystem or device that drops flushes is taken.
    VolatileUnnoticed = "volatile-unnoticed",
    /// A directory within another server's, or around it, is served.
    OverlapUnlocked = "overlap-unlocked",
    /// Recovery stops at what an administrator has removed or moved.
    StrangerStops = "stranger-stops",
    /// Recovery makes objects without the project of the directory that they belong to.
    ProjectIgnored = "project-ignored",
    /// COMMIT trusts a descriptor that was opened after the write: an error in writing back is told to somebody else, or forgotten.
    WriteErrorForgotten = "write-error-forgotten",
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Bug {
    type Err = FaultError;

    fn from_str(name: &str) -> Result<Bug, FaultError> {
        let found = Bug::ALL.into_iter().find(|bug| bug.name() == name);
        found.ok_or_else(|| FaultError::Bug { name: name.to_owned() })
    }
}

/// The points at which a process can be stopped, and the state there.
pub const POINTS: [(&str, &str); 39] = [
    ("log.before-write", "a batch is sealed, nothing of it is on the device"),
    ("log.written", "a batch is durable, nobody has been told"),
    ("log.acknowledged", "those who wait for a batch have been told"),
    ("log.wrapped", "a batch that goes over the end of the ring is durable, nobody has been told"),
    ("checkpoint.cut", "the cut is made and the first part of the snapshot taken"),
    ("volume.tagged", "the volume bears the number of the checkpoint, nothing of it is made durable"),
    ("checkpoint.synced", "the volume is durable up to the cut, the superblock is not yet written"),
    ("checkpoint.freed", "the superblock with the new tail is durable"),
    ("tx.joined", "a transaction has set its marker, nothing is changed"),
    ("op.applied", "an operation is in the page cache, nothing of it is logged"),
    ("listing.begun", "READDIR has seen no delegations, and nothing of the directory"),
    ("sparse.data-found", "READ_PLUS has found data, and has not looked for a hole behind it"),
    ("cross.delegation", "a delegation may be given, and is not given yet"),
    ("cross.session", "CREATE_SESSION has come, nothing is done"),
    ("cross.times", "a holder has answered CB_GETATTR, no time of its file is set yet"),
    ("request.ran", "a request has run and its reply is made, which still waits for the log"),
    ("answer.rests", "without a log: an answer is about to wait for what another request is flushing"),
    ("reply.before-send", "all that a reply says is durable, it is not sent"),
    ("volume.flushing", "a flush of the volume's filesystem is asked for, nothing of it is done"),
    ("volume.flushed", "a flush of the volume's filesystem has ended, nobody has been told"),
    ("range.watched", "a range of a file is about to be allocated, copied or cloned, nothing of it is done"),
    ("commit.flushed", "a file is flushed to its place, the log does not say so"),
    ("recovery.begin", "the log is read, nothing is changed"),
    ("recovery.materialised", "what was lost is made again in staging"),
    ("recovery.barrier", "that is durable, and so are the rows of the remap table"),
    ("recovery.detached", "wrong entries are taken away"),
    ("recovery.attached", "wanted entries are in place"),
    ("recovery.contents", "contents, attributes and times are right"),
    ("recovery.synced", "all that is durable, the log is as it was"),
    ("recovery.emptied", "the log is emptied, nothing is served"),
    ("mirror.one-written", "the first half of a mirror has a write, the second has nothing of it"),
    ("mirror.lost", "a half of a mirror has failed, nothing is acknowledged without it"),
    ("lost.cut", "the log is lost, nothing is acknowledged or changed any more, nothing is made durable yet"),
    ("lost.synced", "all that was acknowledged is durable without the log"),
    ("lost.marked", "the volume says so, and needs no log to start"),
    ("lost.built", "a new log is whole and has no name yet"),
    ("lost.placed", "it stands where the lost one stood, and says that it was shut down cleanly"),
    ("lost.resumed", "the volume says that it is in use again"),
    ("lost.renewed", "so does the new log, and nobody has been told"),
];

/// See [`weak_accepted`].
pub const ACCEPT_WEAK: &str = "LANDFAST_ACCEPT_WEAK";

/// The environment names a fault that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    #[error("LANDFAST_BUG={name}: no such bug; there are {}", list(Bug::ALL.map(Bug::name)))]
    Bug { name: String },
    /// No such point, or not a number of passes.
    #[error("LANDFAST_STOP_AT={at}: no such point; there are {}, each with an optional :N from 1", list(POINTS.map(|p| p.0)))]
    Point { at: String },
}

fn list<const N: usize>(names: [&str; N]) -> String {
    names.join(", ")
}

#[cfg(debug_assertions)]
pub use armed::{Hold, bug, from_environment, hold, passes, point, stops_at, weak_accepted, with};
#[cfg(not(debug_assertions))]
pub use disarmed::{bug, from_environment, passes, point, stops_at, weak_accepted, with};

#[cfg(debug_assertions)]
mod armed {
    use std::cell::Cell;
    use std::str::FromStr;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, OnceLock};

    use parking_lot::{Condvar, Mutex};
    use rustix::process::Signal;

    use super::{Bug, FaultError, POINTS};

    static CHOSEN: OnceLock<Result<Chosen, FaultError>> = OnceLock::new();
    static PASSES: [AtomicU64; POINTS.len()] = [const { AtomicU64::new(0) }; POINTS.len()];
    /// All holds, and their number: without one, no lock is taken.
    static HOLDS: Mutex<Vec<Arc<HeldPoint>>> = Mutex::new(Vec::new());
    static HOLDING: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        /// The choice of [`with`] on this thread, which overrides the environment.
        static HERE: Cell<Option<Option<Bug>>> = const { Cell::new(None) };
    }

    #[derive(Debug, Clone, Copy, Default)]
    struct Chosen {
        bug: Option<Bug>,
        stop: Option<Stop>,
    }

    impl Chosen {
        fn read() -> Result<Chosen, FaultError> {
            let text = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
            Ok(Chosen {
                bug: text("LANDFAST_BUG").map(|name| name.parse()).transpose()?,
                stop: text("LANDFAST_STOP_AT").map(|at| at.parse()).transpose()?,
            })
        }
    }

    fn chosen() -> Chosen {
        let chosen = CHOSEN.get_or_init(|| {
            let chosen = Chosen::read();
            if let Err(error) = &chosen {
                tracing::error!("{error}");
            }
            chosen
        });
        chosen.clone().unwrap_or_default()
    }

    /// A point and the pass that stops there.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Stop {
        /// Index in [`POINTS`].
        pub(super) point: usize,
        pub(super) pass: u64,
    }

    impl FromStr for Stop {
        type Err = FaultError;

        fn from_str(at: &str) -> Result<Stop, FaultError> {
            let unknown = || FaultError::Point { at: at.to_owned() };
            let (name, pass) = match at.split_once(':') {
                Some((name, pass)) => (name, pass.parse().ok().filter(|pass| *pass > 0).ok_or_else(unknown)?),
                None => (at, 1),
            };
            Ok(Stop { point: index(name).ok_or_else(unknown)?, pass })
        }
    }

    fn index(name: &str) -> Option<usize> {
        POINTS.iter().position(|(point, _)| *point == name)
    }

    /// Whether `LANDFAST_ACCEPT_WEAK` is set. Filesystems that cannot keep the promise are then accepted silently, so that tests
    /// which cut no power run on any developer's disk.
    pub fn weak_accepted() -> bool {
        std::env::var_os(super::ACCEPT_WEAK).is_some()
    }

    /// What the environment has chosen, in one line; `None`: nothing.
    /// Errors: It names a bug or a point that does not exist.
    pub fn from_environment() -> Result<Option<String>, FaultError> {
        let Chosen { bug, stop } = Chosen::read()?;
        let bug = bug.map(|bug| format!("the deliberate bug {bug} is in"));
        let stop = stop.and_then(|stop| Some((POINTS.get(stop.point)?.0, stop.pass)));
        let stop = stop.map(|(name, pass)| format!("this process stops at {name}, pass {pass}"));
        let all: Vec<String> = bug.into_iter().chain(stop).collect();
        Ok((!all.is_empty()).then(|| all.join("; ")))
    }

    pub fn bug(bug: Bug) -> bool {
        HERE.get().unwrap_or_else(|| chosen().bug) == Some(bug)
    }

    /// Runs `body` with this bug, or with none, on this thread.
    pub fn with<T>(bug: Option<Bug>, body: impl FnOnce() -> T) -> T {
        struct Before(Option<Option<Bug>>);
        impl Drop for Before {
            fn drop(&mut self) {
                HERE.set(self.0);
            }
        }
        let _before = Before(HERE.replace(Some(bug)));
        body()
    }

    /// The process passes `name`, and stops here if it was told to.
    pub fn point(name: &'static str) {
        let Some(index) = index(name) else {
            debug_assert!(false, "{name} is not in the list of points");
            return;
        };
        let Some(passes) = PASSES.get(index) else { return };
        if HOLDING.load(Ordering::SeqCst) > 0 {
            let held: Vec<_> = HOLDS.lock().iter().filter(|held| held.point == index).cloned().collect();
            held.iter().for_each(|held| held.wait());
        }
        let pass = passes.fetch_add(1, Ordering::SeqCst) + 1;
        if chosen().stop == Some(Stop { point: index, pass }) {
            eprintln!("stopped at {name}");
            // If it does not stop, the test that waits for that times out.
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            while stop_is_pending() {
                std::thread::yield_now();
            }
        }
    }

    #[derive(Debug)]
    struct HeldPoint {
        point: usize,
        state: Mutex<HoldState>,
        changed: Condvar,
    }

    #[derive(Debug, Default)]
    struct HoldState {
        here: usize,
        /// Threads that come now are not held.
        open: bool,
        /// This many held threads may go on.
        let_go: usize,
        /// All held threads may go on.
        over: bool,
    }

    impl HeldPoint {
        fn wait(&self) {
            let mut state = self.state.lock();
            if state.open {
                return;
            }
            state.here += 1;
            self.changed.notify_all();
            while !state.over && state.let_go == 0 {
                self.changed.wait(&mut state);
            }
            state.let_go = state.let_go.saturating_sub(1);
            state.here -= 1;
            self.changed.notify_all();
        }
    }

    /// Holds threads of this process at one point until it is dropped.
    #[derive(Debug)]
    pub struct Hold(Arc<HeldPoint>);

    /// Holds each thread that passes `name` from now on. Other points and other threads are not affected.
    ///
    /// # Panics
    /// There is no such point.
    pub fn hold(name: &'static str) -> Hold {
        let point = index(name).unwrap_or(POINTS.len());
        assert!(point < POINTS.len(), "{name} is not in the list of points");
        let held = Arc::new(HeldPoint { point, state: Mutex::default(), changed: Condvar::new() });
        HOLDS.lock().push(held.clone());
        HOLDING.fetch_add(1, Ordering::SeqCst);
        Hold(held)
    }

    impl Hold {
        pub fn here(&self) -> usize {
            self.0.state.lock().here
        }

        /// Waits until so many threads are held; false when they are not within this time.
        pub fn has(&self, threads: usize, within: std::time::Duration) -> bool {
            let until = std::time::Instant::now() + within;
            let mut state = self.0.state.lock();
            while state.here < threads {
                if self.0.changed.wait_until(&mut state, until).timed_out() {
                    return state.here >= threads;
                }
            }
            true
        }

        pub fn pass_one(&self) {
            self.0.state.lock().let_go += 1;
            self.0.changed.notify_all();
        }

        /// Threads that come from now on are not held. Those that are held stay.
        pub fn lets_others_by(&self) {
            self.0.state.lock().open = true;
        }
    }

    impl Drop for Hold {
        fn drop(&mut self) {
            HOLDS.lock().retain(|held| !Arc::ptr_eq(held, &self.0));
            HOLDING.fetch_sub(1, Ordering::SeqCst);
            let mut state = self.0.state.lock();
            (state.open, state.over) = (true, true);
            self.0.changed.notify_all();
            while state.here > 0 {
                self.0.changed.wait(&mut state);
            }
        }
    }

    /// Whether no thread has taken the signal yet. The kernel gives it to any thread, mostly the first, so this thread could run on
    /// for a moment. When a thread takes the signal, the kernel tells all threads to stop, in one step. So when this thread finds
    /// the signal taken, it stops at the end of the system call that says so.
    fn stop_is_pending() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
        pending >> (Signal::STOP.as_raw() - 1) & 1 == 1
    }

    /// Whether the process will stop at `name`: code that works in parallel then works step by step.
    pub fn stops_at(name: &str) -> bool {
        chosen().stop.is_some_and(|stop| Some(stop.point) == index(name))
    }

    /// How often the process has passed `name`.
    pub fn passes(name: &str) -> u64 {
        index(name).and_then(|at| PASSES.get(at)).map_or(0, |passes| passes.load(Ordering::SeqCst))
    }
}

#[cfg(not(debug_assertions))]
mod disarmed {
    use super::{Bug, FaultError};

    pub fn from_environment() -> Result<Option<String>, FaultError> {
        Ok(None)
    }

    #[inline(always)]
    pub const fn weak_accepted() -> bool {
        false
    }

    #[inline(always)]
    pub const fn bug(_: Bug) -> bool {
        false
    }

    #[inline(always)]
    pub fn with<T>(_: Option<Bug>, body: impl FnOnce() -> T) -> T {
        body()
    }

    #[inline(always)]
    pub const fn point(_: &'static str) {}

    #[inline(always)]
    pub const fn stops_at(_: &str) -> bool {
        false
    }

    #[inline(always)]
    pub const fn passes(_: &str) -> u64 {
        0
    }

    // Constant, so the program contains no code of a bug or a stop.
    const _: () = {
        let mut at = 0;
        while at < Bug::ALL.len() {
            assert!(!bug(Bug::ALL[at]));
            at += 1;
        }
        assert!(!stops_at("log.written"));
    };
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_others_are_refused() {
        for bug in Bug::ALL {
            assert_eq!(bug.to_string().parse(), Ok(bug));
        }
        assert_eq!(Bug::ALL.into_iter().collect::<HashSet<_>>().len(), Bug::ALL.len());
        let error = "reply-after-flush".parse::<Bug>().unwrap_err().to_string();
        assert!(error.contains("no such bug") && error.contains("cut-late"), "{error}");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_stop_is_a_point_and_a_pass_from_1() {
        use armed::Stop;
        let stop = |at: &str| at.parse::<Stop>();
        for (at, (name, _)) in POINTS.iter().enumerate() {
            assert_eq!(stop(name), Ok(Stop { point: at, pass: 1 }));
            assert_eq!(stop(&format!("{name}:17")), Ok(Stop { point: at, pass: 17 }));
        }
        for bad in ["", "log", "log.written:", "log.written:0", "log.written:x", "log.written:1:2", ":1"] {
            let error = stop(bad).unwrap_err().to_string();
            assert!(error.contains("no such point") && error.contains("recovery.emptied"), "{error}");
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_bug_is_in_for_one_thread_and_one_call_only() {
        assert!(!bug(Bug::CutLate));
        with(Some(Bug::CutLate), || {
            assert!(bug(Bug::CutLate) && !bug(Bug::MarkerUnset));
            with(None, || assert!(!bug(Bug::CutLate)));
            assert!(bug(Bug::CutLate), "the inner call is over");
            std::thread::scope(|s| s.spawn(|| assert!(!bug(Bug::CutLate))).join()).unwrap();
        });
        assert!(!bug(Bug::CutLate));
        let panicked =
            std::panic::catch_unwind(|| with(Some(Bug::CutLate), || std::panic::resume_unwind(Box::new(()))));
        assert!(panicked.is_err() && !bug(Bug::CutLate), "also after a panic");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_hold_keeps_whom_it_was_told_to_until_it_is_dropped() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        // A point that no other test of this crate comes by.
        const POINT: &str = "volume.flushing";
        let (gone, held) = (AtomicUsize::new(0), hold(POINT));
        let comes = || {
            point(POINT);
            gone.fetch_add(1, Ordering::SeqCst);
        };
        std::thread::scope(|s| {
            let first = s.spawn(comes);
            while held.here() == 0 {
                std::thread::yield_now();
            }
            s.spawn(|| point("recovery.begin")).join().unwrap();
            held.lets_others_by();
            s.spawn(comes).join().unwrap();
            assert_eq!((held.here(), gone.load(Ordering::SeqCst)), (1, 1));
            drop(held);
            first.join().unwrap();
        });
        comes();
        assert_eq!(gone.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn the_page_lists_all_of_them() {
        let page = include_str!("../../../docs/internals/intent-log.md");
        let named = POINTS.map(|(name, so)| format!("| `{name}` | {so} |"));
        for row in named.into_iter().chain(Bug::ALL.map(|bug| format!("| `{bug}` |"))) {
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    #[cfg(not(debug_assertions))]
    fn a_release_build_has_none_of_it() {
        // Another test's environment cannot be meant: nothing reads it.
        for each in Bug::ALL {
            assert!(!with(Some(each), || bug(each)));
        }
        point("log.written");
        assert_eq!((passes("log.written"), from_environment()), (0, Ok(None)));
    }
}
