//! Changes on their way, and what is known of delegations: the state that [`super::changes`], [`super::delegations`] and
//! [`super::flusher`] share.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use landfast_client::Recall;
use landfast_nfs::v4::Stateid;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::core::pending::Pending;
use crate::core::{Ino, Time};
use crate::errno::Errno;
use crate::limits::{EARLY_RETURNS_MAX, FAILURES_KEPT, NAMES_MAX, PENDING_MAX};
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
    lost: Mutex<Kept>,
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
    pub(super) early: Mutex<Early>,
    /// What waits is so old that programs wait, too: the server takes nothing.
    pub(super) overdue: AtomicBool,
    pub(super) recalls: AtomicU64,
    /// Delegations that were returned since the server asked for some.
    pub(super) given_back: AtomicU64,
    /// Directories in which changes have failed that nobody was told of.
    failures: Mutex<Kept>,
}

/// Recalls of delegations that are not known yet.
#[derive(Default)]
pub(super) struct Early {
    /// When they came.
    pub(super) waiting: VecDeque<(Recall, Time)>,
    /// The delegations that were returned for such a recall, the last ones. The reply that gives one may still be on its way, or its
    /// directory may be being listed.
    returned: VecDeque<[u8; 12]>,
}

impl Early {
    /// Takes those that have waited for `age`: their delegations are returned now.
    pub(super) fn take_old(&mut self, now: Time, age: Time) -> Vec<Recall> {
        let count = self.waiting.iter().take_while(|(_, at)| now.saturating_sub(*at) >= age).count();
        let old: Vec<Recall> = self.waiting.drain(..count).map(|(recall, _)| recall).collect();
        self.returned.extend(old.iter().map(|recall| recall.stateid.other));
        let over = self.returned.len().saturating_sub(EARLY_RETURNS_MAX);
        self.returned.drain(..over);
        old
    }

    /// Whether a delegation was returned before it was known here. It is told once.
    pub(super) fn take_returned(&mut self, stateid: &Stateid) -> bool {
        let before = self.returned.len();
        self.returned.retain(|other| *other != stateid.other);
        self.returned.len() < before
    }
}

/// Errors of objects, until they are told.
#[derive(Default)]
struct Kept {
    of: BTreeMap<Ino, Errno>,
    /// One for which there was no room. It may be anybody's, so all who ask are told, until `landfast sync` has named what failed.
    more: Option<Errno>,
}

impl Kept {
    /// Returns whether it is the first of this object, and there was room for it.
    fn add(&mut self, ino: Ino, e: Errno) -> bool {
        if self.of.contains_key(&ino) {
            return false;
        }
        let room = self.of.len() < FAILURES_KEPT;
        match room {
            true => _ = self.of.insert(ino, e),
            false => _ = self.more.get_or_insert(e),
        }
        room
    }
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
        self.lost.lock().add(ino, e);
    }

    /// Why the data of a closed file was lost. It is told once, to who gives it another name: what has that name may be the better one.
    pub(super) fn take_lost(&self, ino: Ino) -> Option<Errno> {
        let mut lost = self.lost.lock();
        lost.of.remove(&ino).or(lost.more)
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

    /// Returns whether it is noted, and is the first of this directory.
    pub(super) fn failed(&self, dir: Ino, e: Errno) -> bool {
        self.failures.lock().add(dir, e)
    }

    /// The directories for which `is_asked` in which a change has failed that nobody was told of, and the error.
    pub(super) fn take_failures(&self, is_asked: impl Fn(Ino) -> bool) -> (Vec<Ino>, Option<Errno>) {
        let mut failures = self.failures.lock();
        let asked: Vec<Ino> = failures.of.keys().copied().filter(|dir| is_asked(*dir)).collect();
        let found = asked.iter().filter_map(|dir| failures.of.remove(dir)).last();
        (asked, found.or(failures.more))
    }

    /// `landfast sync` names all that failed.
    pub(super) fn are_named(&self) {
        self.lost.lock().more = None;
        self.failures.lock().more = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_for_which_there_is_no_room_are_told_to_all_until_they_are_named() {
        let lanes = Lanes::default();
        let most = FAILURES_KEPT as Ino;
        for ino in 0..=most {
            lanes.failed(ino, Errno::EXIST);
            lanes.lose(ino, Errno::IO);
        }
        assert_eq!(lanes.take_failures(|dir| dir == 1), (vec![1], Some(Errno::EXIST)));
        for _ in 0..2 {
            assert_eq!(lanes.take_failures(|dir| dir == most).1, Some(Errno::EXIST));
            assert_eq!(lanes.take_lost(most), Some(Errno::IO));
        }
        lanes.are_named();
        assert_eq!((lanes.take_failures(|dir| dir == most).1, lanes.take_lost(most)), (None, None));
        assert_eq!(lanes.take_lost(2), Some(Errno::IO));
    }
}
