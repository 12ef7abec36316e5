//! What a reply rests on: changes by other requests that may not be durable yet.
//!
//! The rule: **the server answers an operation that the protocol makes synchronous, with success or with an error, only
//! when everything that has happened to the objects it names is durable, whoever did it.** `EXIST` says that there is a
//! file, `NOENT` that there is none, COMMIT that nothing will be missing. The client may forget the request then, so a
//! power cut must not undo it. Operations that only read wait for nothing. `docs/durability.md` has the table.
//!
//! With a log, each object remembers the batch with the last record about it ([`crate::node::NodeInner::last_batch`]). A
//! request whose own record is in that batch or a later one waits for it anyway. Any other request asks the log for
//! the latest batch among its objects. Where nothing is pending this costs two loads and no flush.
//!
//! Without a log, an operation flushes its changes before the reply. A short list ([`OngoingFlushes`]) has the changes that are not
//! flushed yet; a request that rests on one waits for that flush.
//!
//! Invariants:
//! - A mark is set under the lock under which the change was made, before the lock is released. So whoever has seen the change
//!   and then takes that lock sees the mark. Operations that flush a file to its place (large writes; ALLOCATE, CLONE, large
//!   COPY) and change it without that lock set the mark before.
//! - When the cache drops a node, all nodes that come later inherit its mark ([`crate::cache`]).
//! - The removal of a last name is announced before it happens: a request that finds a handle stale, with no node to ask,
//!   rests on that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::faults::point;
use crate::limits::RESTING_NODES_MAX;
use crate::node::Node;

#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    nodes: Vec<Node>,
    /// The latest batch of nodes that are no longer in `nodes`.
    batch: u64,
    /// It was told that an object is gone.
    gone: bool,
}

impl Dependencies {
    /// The reply depends on this object. Call without its attribute lock.
    pub(crate) fn on(&mut self, node: &Node, with_log: bool) {
        if self.nodes.iter().rev().take(4).any(|known| known == node) {
            return;
        }
        if self.nodes.len() >= RESTING_NODES_MAX && with_log {
            self.fold();
        }
        self.nodes.push(node.clone());
    }

    /// The reply reveals that some object is gone that has no node.
    pub(crate) fn on_removals(&mut self) {
        self.gone = true;
    }

    pub(crate) fn any(&self) -> bool {
        self.gone || self.batch > 0 || !self.nodes.is_empty()
    }

    fn fold(&mut self) {
        for node in self.nodes.drain(..) {
            // Once its lock is free, a change that was seen is marked.
            drop(node.0.state.lock());
            self.batch = self.batch.max(node.0.last_batch.load(Ordering::Acquire));
        }
    }

    /// The latest batch on which the reply rests; 0: none. Call without locks.
    pub(crate) fn batch(&mut self, removals: &AtomicU64) -> u64 {
        self.fold();
        let removals = if self.gone { removals.load(Ordering::Acquire) } else { 0 };
        self.batch.max(removals)
    }
}

/// Without a log: changes that are made but not flushed yet, one entry per request.
#[derive(Debug, Default)]
pub(crate) struct OngoingFlushes(Mutex<Vec<Arc<OngoingFlush>>>);

#[derive(Debug, Default)]
pub(crate) struct OngoingFlush {
    changed: Mutex<Changed>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Changed {
    nodes: Vec<Node>,
    /// It removes a last name.
    removes: bool,
    /// Set once: whether all of it was flushed.
    end: Option<bool>,
}

impl OngoingFlushes {
    /// Enters a request that begins to change something.
    pub(crate) fn begin(&self) -> Arc<OngoingFlush> {
        let settling = Arc::new(OngoingFlush::default());
        self.0.lock().push(settling.clone());
        settling
    }

    /// Removes a request. `flushed`: all its changes are durable.
    pub(crate) fn end(&self, settling: &Arc<OngoingFlush>, flushed: bool) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, settling));
        settling.changed.lock().end = Some(flushed);
        settling.ended.notify_all();
    }

    /// Waits until the changes that `rests` has seen are flushed. Blocks; call when the caller's own changes are flushed and ended.
    /// Returns false if a request failed before its flush, so that somebody else must flush its changes.
    pub(crate) fn wait(&self, rests: &Dependencies) -> bool {
        for node in &rests.nodes {
            drop(node.0.state.lock());
        }
        let at_work = self.0.lock().clone();
        let (mut all_flushed, mut rests_here) = (true, false);
        for settling in at_work {
            let mut changed = settling.changed.lock();
            let seen =
                rests.gone && changed.removes || changed.nodes.iter().any(|node| rests.nodes.contains(node));
            if !seen {
                continue;
            }
            if changed.end.is_none() && !rests_here {
                rests_here = true;
                point("answer.rests");
            }
            let flushed = loop {
                match changed.end {
                    Some(flushed) => break flushed,
                    None => settling.ended.wait(&mut changed),
                }
            };
            all_flushed &= flushed;
        }
        all_flushed
    }
}

impl OngoingFlush {
    pub(crate) fn changes(&self, nodes: &[&Node]) {
        self.changed.lock().nodes.extend(nodes.iter().map(|node| (*node).clone()));
    }

    pub(crate) fn removes(&self) {
        self.changed.lock().removes = true;
    }
}
