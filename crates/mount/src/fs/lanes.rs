//! Changes on their way, and what is known of delegations: the state that [`super::changes`], [`super::delegations`] and
//! [`super::flusher`] share.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use landfast_client::Recall;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::core::pending::Pending;
use crate::core::{Ino, Time};
use crate::errno::Errno;
use crate::limits::{FAILURES_KEPT, NAMES_MAX, PENDING_MAX};
use crate::remote::Caller;

/// Changes on their way, and what is known of delegations.
#[derive(Default)]
pub(super) struct Lanes {
    pub(super) pending: Mutex<Pending<Caller>>,
    /// Notified when something was sent, or a directory returned.
    pub(super) changed: Notify,
    /// Notified when there may be something to send.
    pub(super) work: Notify,
    pub(super) in_flight: AtomicUsize,
    /// Files that were made and whose data is still being written, and their directories. Behind `pending` in the order of locks.
    unfinished: Mutex<HashMap<Ino, Ino>>,
    /// Files whose data was lost behind their creation, and why.
    lost: Mutex<HashMap<Ino, Errno>>,
    /// The session in which all delegations were found good.
    pub(super) session: AtomicU64,
    /// The server's restarts before which that was ([`landfast_client::Standing::restarts`]).
    pub(super) restarts: AtomicU64,
    /// The directory of which the server was asked last how much space there is.
    pub(super) asked_of: AtomicU64,
    /// Held by who looks after delegations.
    pub(super) looking_after: tokio::sync::Mutex<()>,
    pub(super) checking: tokio::sync::Mutex<()>,
    /// The server has no write delegations.
    pub(super) never: AtomicBool,
    /// Directories that the server has given no delegation of, and when.
    pub(super) refused: Mutex<HashMap<Ino, Time>>,
    /// Directories whose delegation is being asked for.
    pub(super) asking: Mutex<HashSet<Ino>>,
    /// Recalls of delegations that are not known yet, and when they came.
    pub(super) early: Mutex<VecDeque<(Recall, Time)>>,
    /// What waits is so old that programs wait, too: the server takes nothing.
    pub(super) overdue: AtomicBool,
    pub(super) recalls: AtomicU64,
    /// Delegations that were returned since the server asked for some.
    pub(super) given_back: AtomicU64,
    /// Directories in which changes have failed that nobody was told of.
    pub(super) failures: Mutex<BTreeMap<Ino, Errno>>,
}

impl Lanes {
    pub(super) fn pending(&self) -> MutexGuard<'_, Pending<Caller>> {
        self.pending.lock()
    }

    pub(super) fn unfinished(&self) -> MutexGuard<'_, HashMap<Ino, Ino>> {
        self.unfinished.lock()
    }

    pub(super) fn is_unfinished(&self, ino: Ino) -> bool {
        self.unfinished.lock().contains_key(&ino)
    }

    /// The data of a closed file is lost.
    pub(super) fn lose(&self, ino: Ino, e: Errno) {
        let mut lost = self.lost.lock();
        if lost.len() < FAILURES_KEPT {
            lost.insert(ino, e);
        }
    }

    /// Why the data of a closed file was lost. It is told once, to who gives it another name: what has that name may be the better one.
    pub(super) fn take_lost(&self, ino: Ino) -> Option<Errno> {
        self.lost.lock().remove(&ino)
    }

    /// Whether one more change may wait.
    pub(super) fn have_room(&self) -> bool {
        !self.overdue.load(Ordering::Acquire) && self.pending().len() < PENDING_MAX
    }

    /// Looks whether what waits is older than it should become.
    pub(super) fn look_at_age(&self, now: Time, most: Time) {
        let oldest = self.pending().oldest();
        self.overdue.store(oldest.is_some_and(|at| now.saturating_sub(at) >= most), Ordering::Release);
    }

    /// A file that kept its directory's changes back is closed.
    pub(super) fn file_is_whole(&self) {
        self.work.notify_one();
    }

    pub(super) fn recalls(&self) -> u64 {
        self.recalls.load(Ordering::Relaxed)
    }

    /// Whether directories that are made should be this mount's own.
    /// `names`: those in memory.
    pub(super) fn asks(&self, names: usize) -> bool {
        let begun = self.session.load(Ordering::Relaxed) > 0;
        begun && !self.never.load(Ordering::Relaxed) && names < NAMES_MAX / 2
    }

    pub(super) fn failed(&self, dir: Ino, e: Errno) {
        let mut failures = self.failures.lock();
        if failures.len() < FAILURES_KEPT {
            failures.entry(dir).or_insert(e);
        }
    }
}
