//! Deliberate bugs, by name. The simulation of the state must see each of them ([`super::simulation`]). A program that is built without it has none.

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A delegation is given without a look at what others have open.
    RivalUnseen,
    /// A writer leaves read delegations alone.
    ReaderUnasked,
    /// A RENAME over a file does not recall its delegation.
    RenamedOverUnasked,
    /// A revocation does not go into the log.
    RevocationUnlogged,
    /// A client whose lease is over goes before the log knows.
    ExpulsionUnlogged,
    /// A delegation is given to one client while another is at work on the file.
    WorkUnseen,
    /// A former open's stateid serves any client.
    FormerOfAnother,
    /// A client's record does not say that it holds something.
    HoldingUnlogged,
    /// The log is not told of locks.
    LocksUnlogged,
    /// Everything is given out in the grace period.
    GraceIgnored,
    /// A client that does not know a delegation is not asked again: the reply that brings it may be on its way.
    UnknownAtOnce,
    /// A revoked delegation is counted for ever.
    CountKept,
    /// A name is looked up beside a write delegation of its directory.
    LookUnasked,
    /// An answer that found nobody in its way does not wait until the log knows who is gone.
    RemovalUnlogged,
    /// An open of an older instance than the last is used in the grace period.
    OlderAdopted,
    /// Whoever has opened a file only for writing reads it, though another denies that.
    DeniedRead,
    /// The same in a grace period, in which the other may still have to reclaim.
    DeniedReadInGrace,
    /// Who has not said in the grace period that it has reclaimed all may reclaim all after the next restart.
    ReclaimedLater,
    /// A client renews its lease while the log is told that it goes.
    ExpelledRenews,
    /// The note of a delegation that becomes one for writing counts before it is durable.
    UpgradeSettles,
}

impl Bug {
    pub const ALL: [Bug; 20] = [
        Bug::RivalUnseen,
        Bug::ReaderUnasked,
        Bug::RenamedOverUnasked,
        Bug::RevocationUnlogged,
        Bug::ExpulsionUnlogged,
        Bug::WorkUnseen,
        Bug::FormerOfAnother,
        Bug::HoldingUnlogged,
        Bug::LocksUnlogged,
        Bug::GraceIgnored,
        Bug::UnknownAtOnce,
        Bug::CountKept,
        Bug::LookUnasked,
        Bug::RemovalUnlogged,
        Bug::OlderAdopted,
        Bug::DeniedRead,
        Bug::DeniedReadInGrace,
        Bug::ReclaimedLater,
        Bug::ExpelledRenews,
        Bug::UpgradeSettles,
    ];
}

#[cfg(any(test, feature = "simulation"))]
mod chosen {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this thread has this bug.
    pub fn bug(bug: Bug) -> bool {
        CHOSEN.get() == Some(bug)
    }

    /// Runs this with a bug.
    pub fn with<T>(bug: Option<Bug>, run: impl FnOnce() -> T) -> T {
        let before = CHOSEN.replace(bug);
        let done = run();
        CHOSEN.set(before);
        done
    }
}

#[cfg(any(test, feature = "simulation"))]
pub use chosen::{bug, with};

#[cfg(not(any(test, feature = "simulation")))]
pub(super) const fn bug(_: Bug) -> bool {
    false
}
