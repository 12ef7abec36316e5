//! Finds lock requests that would wait for ever: walks through who waits for whom (C702 chapter 10, `NLM4_DEADLCK`; RFC
//! 8881 section 18.10.4, `NFS4ERR_DEADLOCK`).
//!
//! An owner waits for another when its request is in the queue and a range of the other is in its way. Only NLM
//! requests are queued. An NFSv4 client that waits asks again, so the server does not know that it waits. So a cycle is
//! found only if all its requests but the closing one came by NLM.
//!
//! The walk is bounded by [`limits::DEADLOCK_STEPS_MAX`]. A longer cycle is not found, and its requests wait.

use super::locks::Locker;
use super::opens::{FileKey, Files, OpenOrLock};
use super::ranges::Span;
use crate::limits;
use bytes::Bytes;
use std::collections::HashSet;

type Owner = (u64, Bytes);

impl<F> Files<F> {
    /// Whether `owner` of `client` would wait for itself if it waited for these bytes.
    pub fn would_deadlock(
        &self,
        client: u64,
        owner: &Bytes,
        file: &FileKey,
        exclusive: bool,
        span: Span,
    ) -> bool {
        let asks: Owner = (client, owner.clone());
        let mut left = limits::DEADLOCK_STEPS_MAX;
        let mut seen = HashSet::new();
        let mut next = self.in_the_way(&asks, file, exclusive, span, &mut left);
        while let Some(holder) = next.pop() {
            if holder == asks {
                return true;
            }
            if !seen.insert(holder.clone()) {
                continue;
            }
            for w in self.waiters.of_owner(holder.0, &holder.1).filter(|w| !w.granting) {
                next.extend(self.in_the_way(&holder, &w.file, w.exclusive, w.span, &mut left));
            }
        }
        false
    }

    /// [`would_deadlock`](Self::would_deadlock) for a LOCK of NFSv4.
    pub fn would_deadlock_v4(
        &self,
        client: u64,
        file: &FileKey,
        locker: &Locker,
        exclusive: bool,
        span: Span,
    ) -> bool {
        let owner = match locker {
            Locker::New { owner, .. } => Some(owner.clone()),
            Locker::Known(stateid) => match self.find_on(client, file, stateid) {
                Ok(OpenOrLock::Lock(id)) => self.locks.get(&id).map(|l| l.owner.clone()),
                _ => None,
            },
        };
        owner.is_some_and(|owner| self.would_deadlock(client, &owner, file, exclusive, span))
    }

    /// The owners that hold what `owner` waits for; counts its steps down in `left`.
    fn in_the_way(
        &self,
        owner: &Owner,
        file: &FileKey,
        exclusive: bool,
        span: Span,
        left: &mut usize,
    ) -> Vec<Owner> {
        let Some(f) = self.files.get(file) else { return Vec::new() };
        let own = self.lock_state(owner.0, &owner.1, file);
        let (states, looked) = f.ranges.all_in_the_way(&span, exclusive, own, *left);
        *left = left.saturating_sub(looked.max(1));
        states.iter().filter_map(|s| self.locks.get(s)).map(|l| (l.client, l.owner.clone())).collect()
    }
}
