//! Wakes requests that wait for another request's answer.
//!
//! A retry waits for the slot, or for the call without a session, that is in progress, and is woken for that alone.
//! Otherwise clients that retry slow requests (a COPY) by the thousand would all be checked again at each answer to
//! anybody.

use landfast_nfs::v4::SessionId;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use tokio::sync::Notify;

/// Slots and calls are woken in this many groups: usually more than clients have in progress.
const SHARDS: usize = 1024;

/// What stands in the way of a request that was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The request that has its slot.
    Slot,
    /// Room for its reply. Each answer wakes one that waits for it, and that one's answer the next.
    Room,
    /// A delegation of another client: its end, or what its holder says. Either wakes all that wait for one.
    Delegation,
    /// Something else of its client. Each answer wakes all that wait for that.
    Other,
}

pub(crate) type Slot = (SessionId, u32);

pub(crate) struct Wakeups {
    others: Notify,
    room: Notify,
    /// Told by the state.
    delegation_ended: Arc<Notify>,
    shards: Vec<Notify>,
    hasher: RandomState,
}

impl Wakeups {
    pub(crate) fn new(delegation_ended: Arc<Notify>) -> Wakeups {
        Wakeups {
            delegation_ended,
            others: Notify::new(),
            room: Notify::new(),
            shards: (0..SHARDS).map(|_| Notify::new()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// The notifier of this slot or call.
    pub(crate) fn of(&self, thing: &impl Hash) -> &Notify {
        let at = self.hasher.hash_one(thing) as usize % SHARDS;
        self.shards.get(at).unwrap_or(&self.others)
    }

    /// The notifier of what a request waits for; `slot` is the one that it uses.
    pub(crate) fn awaited(&self, awaited: Awaited, slot: Option<Slot>) -> &Notify {
        match (awaited, slot) {
            (Awaited::Slot, Some(slot)) => self.of(&slot),
            (Awaited::Room, _) => &self.room,
            (Awaited::Delegation, _) => &self.delegation_ended,
            (Awaited::Slot, None) | (Awaited::Other, _) => &self.others,
        }
    }

    /// A request was answered; it may have had this slot.
    pub(crate) fn answered(&self, slot: Option<Slot>) {
        self.others.notify_waiters();
        self.room.notify_one();
        if let Some(slot) = slot {
            self.of(&slot).notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// An answer wakes who waits for its slot, one who waits for room, and all who wait for what cannot be told; nobody else.
    #[test]
    fn an_answer_wakes_those_who_wait_for_it() {
        let wakeups = Wakeups::new(Arc::default());
        let slot = |n: u8| ([n; 16], 0);
        let other = (1..=u8::MAX).find(|n| !std::ptr::eq(wakeups.of(&slot(*n)), wakeups.of(&slot(0))));
        let other = slot(other.expect("another shard"));
        let mut cx = Context::from_waker(Waker::noop());
        let waiting = [
            (Awaited::Slot, slot(0)),
            (Awaited::Slot, slot(0)),
            (Awaited::Slot, other),
            (Awaited::Room, other),
            (Awaited::Room, slot(0)),
            (Awaited::Other, other),
        ];
        let mut waits: Vec<_> = waiting
            .iter()
            .map(|(awaited, slot)| Box::pin(wakeups.awaited(*awaited, Some(*slot)).notified()))
            .collect();
        for wait in &mut waits {
            wait.as_mut().enable();
        }
        wakeups.answered(Some(slot(0)));
        let woken: Vec<bool> = waits.iter_mut().map(|w| pin!(w).poll(&mut cx) == Poll::Ready(())).collect();
        assert_eq!(woken, [true, true, false, true, false, true]);
        wakeups.answered(None);
        assert!(waits[4].as_mut().poll(&mut cx).is_ready() && waits[2].as_mut().poll(&mut cx).is_pending());
    }
}
