//! Deliberate bugs, by name. The simulation of the mount must see each of them ([`crate::simulation`]). A program that is built without it
//! has none.

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
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
}

impl Bug {
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

#[cfg(not(test))]
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
