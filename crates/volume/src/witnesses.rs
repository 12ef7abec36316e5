//! All witnesses of a volume ([`crate::witness`]): which files have one, which are old, which can be closed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::dirty::Dirty;
use crate::kernel::{self, OwnedFd};
use crate::limits::{UNSTABLE_OLD, WITNESSES_MAX};
use crate::node::{Node, NodeInner};
use crate::witness::{Inner, Witness};

/// How many rows are checked to find a witness that can be closed when a place is needed.
const STEPS_PER_PLACE: usize = 8;

type Row = (Weak<NodeInner>, Weak<Inner>);

#[derive(Default)]
pub(crate) struct Witnesses {
    /// Oldest first; may contain rows of closed witnesses.
    rows: Mutex<VecDeque<Row>>,
    /// Witnesses of files that have become clean; some may be dirty again.
    clean: Mutex<VecDeque<Row>>,
    count: Arc<AtomicUsize>,
    max: usize,
    /// Held while old files are committed.
    settling: Mutex<()>,
}

impl Witnesses {
    /// Room for `max` witnesses, but never more than [`WITNESSES_MAX`].
    pub(crate) fn new(max: usize) -> Witnesses {
        Witnesses { max: max.min(WITNESSES_MAX), ..Witnesses::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn push(&self, node: &Node, witness: &Witness) {
        add(&mut self.rows.lock(), node, witness, self.max);
    }

    pub(crate) fn make(&self, node: &Node, fd: OwnedFd, doubtful: u64) -> Witness {
        let witness = Witness::new(fd, kernel::instant(), doubtful, &self.count);
        self.push(node, &witness);
        witness
    }

    /// Whether there is a place for one more. Takes a clean file's place if one is quickly found. Call with at most one node
    /// locked.
    pub(crate) fn has_place(&self) -> bool {
        let mut closed = Vec::new();
        for _ in 0..STEPS_PER_PLACE {
            if self.len() - closed.len().min(self.len()) < self.max {
                break;
            }
            let Some((node, row)) = self.clean.lock().pop_front() else { break };
            let (Some(held), Some(witness)) = (node.upgrade(), row.upgrade()) else { continue };
            match held.state.try_lock() {
                // A file that is dirty again gets a new row when it is clean.
                Some(mut state) => {
                    let clean = state.dirty == Dirty::Clean;
                    closed.extend(state.witness.take_if(|w| clean && w.is(&witness)));
                }
                // Somebody is using the file.
                None => self.clean.lock().push_back((node, row)),
            }
        }
        drop(closed);
        self.len() < self.max
    }

    pub(crate) fn cleaned(&self, node: &Node, witness: &Witness) {
        add(&mut self.clean.lock(), node, witness, self.max);
    }

    /// The old ones, and as many of the oldest as make half of the places free.
    pub(crate) fn old(&self, now: Instant) -> Vec<(Node, Arc<Inner>)> {
        let mut excess = self.len().saturating_sub(self.max / 2);
        let rows = self.rows.lock();
        let alive = rows.iter().filter_map(|(node, row)| Some((Node(node.upgrade()?), row.upgrade()?)));
        alive
            .filter(|(_, row)| {
                let old = now.saturating_duration_since(row.since) >= UNSTABLE_OLD || excess > 0;
                excess = excess.saturating_sub(1);
                old
            })
            .collect()
    }

    /// Waits until nobody commits old files, and prevents it while the guard lives.
    pub(crate) fn quiet(&self) -> MutexGuard<'_, ()> {
        self.settling.lock()
    }

    /// As [`Witnesses::quiet`], but does not wait: `None` while somebody else commits old files.
    pub(crate) fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        self.settling.try_lock()
    }

    pub(crate) fn has_old(&self, now: Instant) -> bool {
        if self.len() > self.max / 2 {
            return true;
        }
        let rows = self.rows.lock();
        rows.iter()
            .filter_map(|(_, row)| row.upgrade())
            .any(|row| now.saturating_duration_since(row.since) >= UNSTABLE_OLD)
    }
}

fn add(rows: &mut VecDeque<Row>, node: &Node, witness: &Witness, max: usize) {
    while rows.front().is_some_and(|(_, w)| w.strong_count() == 0) {
        rows.pop_front();
    }
    let row = (Arc::downgrade(&node.0), Arc::downgrade(&witness.0));
    if rows.len() > 2 * max {
        // A witness has at most one row in one queue, and a second in the other only if it was clean twice.
        rows.retain(|(_, w)| w.strong_count() > 0 && !w.ptr_eq(&row.1));
    }
    rows.push_back(row);
}
