//! The session in force, shared by its requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use landfast_nfs::v4::res::SequenceRes;
use landfast_nfs::v4::{SessionId, flags};
use tokio::sync::Notify;

use super::setup::Opening;
use super::slots::{Slot, SlotTable};
use crate::limits;
use crate::options::SessionLimits;

/// One session ID and its slots.
pub(crate) struct Epoch {
    pub(super) number: u64,
    pub(super) id: SessionId,
    pub(crate) limits: SessionLimits,
    pub(super) lease: OnceLock<Duration>,
    /// Its first request is in flight. Further requests are sent after it, over the same connection.
    pub(super) opening_in_flight: AtomicBool,
    pub(super) opening: Mutex<OpeningState>,
    /// Notified when `opening` changes.
    pub(super) opening_changed: Notify,
    pub(super) table: Mutex<SlotTable>,
    pub(super) freed: Notify,
    pub(super) dead: AtomicBool,
    /// The server restarted and waits for RECLAIM_COMPLETE.
    pub(super) reclaim_wanted: AtomicBool,
    /// Replies that said so.
    pub(super) restarts: AtomicU64,
    /// The last reply says that state was revoked (RFC 8881 section 18.46.3).
    pub(super) revoked: AtomicBool,
}

/// State of the client that the server has given up, and of which the client has not said that it knows (FREE_STATEID).
const REVOKED: u32 = flags::SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED
    | flags::SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED
    | flags::SEQ4_STATUS_ADMIN_STATE_REVOKED
    | flags::SEQ4_STATUS_RECALLABLE_STATE_REVOKED;

/// Whether the operations that the session's first request must carry were sent, if that is left to the first compound.
pub(super) enum OpeningState {
    /// `true`: they go alone.
    Pending(Opening, bool),
    InFlight,
    Done,
}

impl Epoch {
    /// The operations that this compound must carry first. While another one carries them this waits, unless requests are executed in their
    /// order (`ordered`).
    pub(super) async fn take_opening(&self, ordered: bool) -> Option<(Opening, bool)> {
        loop {
            let changed = self.opening_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut opening = self.opening();
                match std::mem::replace(&mut *opening, OpeningState::InFlight) {
                    OpeningState::Pending(opening, alone) => return Some((opening, alone)),
                    OpeningState::InFlight if ordered => return None,
                    OpeningState::InFlight => {}
                    OpeningState::Done => {
                        *opening = OpeningState::Done;
                        return None;
                    }
                }
            }
            changed.await;
        }
    }

    pub(super) fn opening(&self) -> MutexGuard<'_, OpeningState> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_opening(&self, state: OpeningState) {
        *self.opening() = state;
        self.opening_changed.notify_waiters();
    }

    /// Waits until they were executed, or never will be.
    pub(super) async fn wait_opened(&self) {
        loop {
            let changed = self.opening_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if matches!(*self.opening(), OpeningState::Done) {
                return;
            }
            changed.await;
        }
    }

    /// The server's lease time, as far as it is known.
    pub(crate) fn lease(&self) -> Duration {
        self.lease.get().copied().unwrap_or(limits::LEASE_DEFAULT)
    }

    pub(super) fn table(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot and the highest one in use; `None` when the session is gone.
    pub(super) async fn take(&self) -> Option<(Slot, u32)> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.dead.load(Ordering::Acquire) {
                return None;
            }
            {
                let mut table = self.table();
                if let Some(slot) = table.take() {
                    return Some((slot, table.highest()));
                }
            }
            freed.await;
        }
    }

    pub(super) fn put_back(&self, slot: Slot, used: bool) {
        self.table().put_back(slot, used);
        self.freed.notify_one();
    }

    pub(super) fn follow(&self, seq: &SequenceRes) {
        if seq.status_flags & flags::SEQ4_STATUS_RESTART_RECLAIM_NEEDED != 0 {
            self.reclaim_wanted.store(true, Ordering::Release);
            self.restarts.fetch_add(1, Ordering::AcqRel);
        }
        self.revoked.store(seq.status_flags & REVOKED != 0, Ordering::Release);
        let mut table = self.table();
        let before = table.usable();
        table.set_target(seq.target_highest_slotid);
        let more = table.usable() > before;
        drop(table);
        if more {
            self.freed.notify_waiters();
        }
    }

    pub(super) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
        self.freed.notify_waiters();
    }
}
