//! Deliberate bugs, to test the tests. In tests the simulation of the mount chooses one for its thread, and must see it
//! (`crate::simulation`). In a program with debug assertions `LANDFAST_MOUNT_BUG=NAME` chooses one of [`Bug::IN_PROGRAMS`] for the whole
//! process, and `landfast lab mount-cuts --bugs` must find it. In a release build there is none, and the environment is not read.

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A creation and its removal are folded whatever was done to the directory's names in between.
    FoldedAcross,
    /// A creation that is on its way gets a new name as if it were not.
    FoldedSent,
    /// A directory is removed before what was removed in it.
    DirBeforeNames,
    /// A directory's changes are sent before it is made known to be there: lanes go on behind a creation that has failed.
    AbandonedKept,
    /// After a lost delegation a name is removed whoever has it.
    RemovesAnything,
    /// After a lost delegation a rename replaces whatever is there.
    ReplacesAnything,
    /// A delegation is returned before what waits is sent.
    ReturnedEarly,
    /// While a delegation is recalled programs go on changing the directory.
    RecallUnheeded,
    /// In a new session delegations count as good without a test.
    Untested,
    /// What stands behind a change that has failed is sent without a look.
    DamageIgnored,
    /// Data of a creation that was not executed is not sent again.
    DataDropped,
    /// fsync of a directory does not wait for those below.
    BelowUnsynced,
    /// A change that has failed is told to nobody.
    FailureUntold,
    /// A change that was executed before its reply was lost is executed again as if it were new.
    NeverDone,
    /// All that waits is sent only when somebody asks for it.
    AgeForgotten,
    /// A program's file gets whatever file has taken its name meanwhile.
    AdoptsAnything,
    /// fsync of a file does not wait for what is sent later.
    FsyncLocal,
    /// Changes are sent when they are 30 s old, whatever `flush_age=` says.
    FlushLate,
    /// A new file is made without its data, which follows.
    ContentLate,
    /// A new file goes before what waits in its directory.
    OrderLost,
    /// In a directory that is not this mount's own any more, changes are sent as if it still were.
    GuardLost,
    /// `close` returns before anything is sent.
    CloseEarly,
    /// What the server has written counts as stable without a COMMIT.
    CommitForgotten,
}

/// A bug that a program can have.
#[derive(Debug, Clone, Copy)]
pub struct InProgram {
    pub name: &'static str,
    pub bug: Bug,
    /// What `landfast lab mount-cuts` is to cut ...
    pub cut: &'static str,
    /// ... with `close=local`; otherwise with `close=wait`.
    pub local: bool,
}

impl InProgram {
    const fn new(name: &'static str, bug: Bug, cut: &'static str, local: bool) -> InProgram {
        InProgram { name, bug, cut, local }
    }
}

impl Bug {
    pub const IN_PROGRAMS: [InProgram; 9] = [
        InProgram::new("fsync-local", Bug::FsyncLocal, "kill", true),
        InProgram::new("flush-late", Bug::FlushLate, "kill", true),
        InProgram::new("returned-early", Bug::ReturnedEarly, "look", true),
        // Who looks waits until it is there, by the delegation: only a crash shows it.
        InProgram::new("content-late", Bug::ContentLate, "kill", true),
        InProgram::new("order-lost", Bug::OrderLost, "kill", true),
        InProgram::new("guard-lost", Bug::GuardLost, "network", true),
        InProgram::new("failure-untold", Bug::FailureUntold, "network", true),
        InProgram::new("close-early", Bug::CloseEarly, "both", false),
        InProgram::new("commit-forgotten", Bug::CommitForgotten, "server", false),
    ];

    /// Those that the simulation sees.
    #[cfg(test)]
    pub(crate) const ALL: [Bug; 16] = [
        Bug::FoldedAcross,
        Bug::FoldedSent,
        Bug::DirBeforeNames,
        Bug::AbandonedKept,
        Bug::RemovesAnything,
        Bug::ReplacesAnything,
        Bug::ReturnedEarly,
        Bug::RecallUnheeded,
        Bug::Untested,
        Bug::DamageIgnored,
        Bug::DataDropped,
        Bug::BelowUnsynced,
        Bug::FailureUntold,
        Bug::NeverDone,
        Bug::AgeForgotten,
        Bug::AdoptsAnything,
    ];
}

#[cfg(test)]
pub(crate) use chosen::{bug, with};

/// Whether this process has this bug.
#[cfg(all(not(test), debug_assertions))]
pub(crate) fn bug(bug: Bug) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<Option<Bug>> = OnceLock::new();
    let chosen = || {
        let name = std::env::var("LANDFAST_MOUNT_BUG").ok()?;
        Bug::IN_PROGRAMS.iter().find(|one| one.name == name).map(|one| one.bug)
    };
    *CHOSEN.get_or_init(chosen) == Some(bug)
}

#[cfg(not(any(test, debug_assertions)))]
pub(crate) const fn bug(_: Bug) -> bool {
    false
}

#[cfg(test)]
mod chosen {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this thread has this bug.
    pub(crate) fn bug(bug: Bug) -> bool {
        CHOSEN.get() == Some(bug)
    }

    /// Runs this with a bug.
    pub(crate) fn with<T>(bug: Option<Bug>, run: impl FnOnce() -> T) -> T {
        let before = CHOSEN.replace(bug);
        let done = run();
        CHOSEN.set(before);
        done
    }
}
