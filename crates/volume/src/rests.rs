//! What an answer rests on: changes by other requests that may not be durable yet.
//!
//! The rule: **an operation that the protocol makes synchronous is answered, with success or with an error, when everything
//! that has happened to the objects it names is durable, whoever did it.** `EXIST` says that there is a file, `NOENT`
//! that there is none, COMMIT that nothing will be missing: the client may forget it, so a power cut must not take it
//! back. Operations that only read wait for nothing. `docs/durability.md` has the table.
//!
//! With a log, each object remembers the batch that holds the last record about it ([`crate::node::NodeInner::last_batch`]). A
//! request whose own record is in a later batch, or in the same one, waits for that anyway; any other asks the log
//! for the latest batch among its objects. Where nothing is pending this costs two loads and no flush.
//!
//! Without a log, an operation flushes what it changed before it is answered, so what others have changed and not flushed yet
//! is in a short list ([`Settlings`]). A request that rests on it waits for those flushes to end.
//!
//! Invariants:
//! - A mark is set under the lock under which the change was made, before that is released. Whoever has seen the change and
//!   takes that lock afterwards sees the mark. What flushes a file to its place (large writes; ALLOCATE, CLONE, large COPY) and
//!   changes it without that lock is marked before.
//! - A node that the cache drops leaves its mark to all nodes that come later ([`crate::cache`]).
//! - A last name is announced before it is taken away: who finds a handle stale, with no node to ask, rests on that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::faults::point;
use crate::limits::RESTING_NODES_MAX;
use crate::node::Node;

/// What one request has looked at so far.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    nodes: Vec<Node>,
    /// The latest batch of what is not in `nodes` any more.
    batch: u64,
    /// It was told that an object is gone.
    gone: bool,
}

impl Rests {
    /// The answer tells of this object. Call without its attribute lock.
    pub(crate) fn on(&mut self, node: &Node, with_log: bool) {
        if self.nodes.iter().rev().take(4).any(|known| known == node) {
            return;
        }
        if self.nodes.len() >= RESTING_NODES_MAX && with_log {
            self.fold();
        }
        self.nodes.push(node.clone());
    }

    /// The answer tells that some object is gone, and there is no node of it.
    pub(crate) fn on_removals(&mut self) {
        self.gone = true;
    }

    /// True if the request has looked at anything.
    pub(crate) fn any(&self) -> bool {
        self.gone || self.batch > 0 || !self.nodes.is_empty()
    }

    fn fold(&mut self) {
        for node in self.nodes.drain(..) {
            // A change that was seen is marked when its lock is free.
            drop(node.0.state.lock());
            self.batch = self.batch.max(node.0.last_batch.load(Ordering::Acquire));
        }
    }

    /// The latest batch that the answer rests on; 0: none. Call without locks.
    pub(crate) fn batch(&mut self, removals: &AtomicU64) -> u64 {
        self.fold();
        let removals = if self.gone { removals.load(Ordering::Acquire) } else { 0 };
        self.batch.max(removals)
    }
}

/// Changes that are made and not flushed yet, without a log: one entry for each request at work.
#[derive(Debug, Default)]
pub(crate) struct Settlings(Mutex<Vec<Arc<Settling>>>);

/// One request's.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    changed: Mutex<Changed>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Changed {
    nodes: Vec<Node>,
    /// A last name is being taken away.
    removes: bool,
    /// Set once: whether all of it was flushed.
    end: Option<bool>,
}

impl Settlings {
    /// A request begins to change something.
    pub(crate) fn begin(&self) -> Arc<Settling> {
        let settling = Arc::new(Settling::default());
        self.0.lock().push(settling.clone());
        settling
    }

    /// It has ended. `flushed`: all that it changed is durable.
    pub(crate) fn end(&self, settling: &Arc<Settling>, flushed: bool) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, settling));
        settling.changed.lock().end = Some(flushed);
        settling.ended.notify_all();
    }

    /// Waits until the changes that `rests` has seen are flushed. Blocks; call when the caller's own are flushed and ended. False:
    /// a request has failed before it came to its flush, so that somebody else must flush what it had changed.
    pub(crate) fn wait(&self, rests: &Rests) -> bool {
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

impl Settling {
    /// The request has changed these.
    pub(crate) fn changes(&self, nodes: &[&Node]) {
        self.changed.lock().nodes.extend(nodes.iter().map(|node| (*node).clone()));
    }

    /// The request is about to take a last name away.
    pub(crate) fn removes(&self) {
        self.changed.lock().removes = true;
    }
}
