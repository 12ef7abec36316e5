//! Witnesses: descriptors that know of every error in writing a file's data back since before its unstable data was written.
//!
//! The kernel writes data back when it likes. If that fails it notes an error for the file and takes the data for clean; sooner or
//! later a reader gets what is on the disk instead. Linux tells each open file description (open(2)) of such an error once,
//! and only of errors since it was opened (`errseq_t`, `lib/errseq.c`): a descriptor opened later learns of an earlier error
//! only if nobody has been told yet, and of none that was noted on an inode the kernel has evicted since. So a COMMIT that
//! opens the file anew may hear of nothing although the data is lost.
//!
//! Invariants:
//!
//! - A file that is not [`Dirty::Clean`] has a witness that was opened before the first of these changes. It stays open,
//!   whoever closes the file, and keeps the inode in memory.
//! - A witness is asked only under the node's attribute lock, and an error fails the volume before the lock is given up. So nobody
//!   finds it silent because it has just told somebody else. Nothing else is done with it but reading: a flush through it would
//!   take the error away.
//! - Flushing the whole filesystem through the descriptor that is open since the start tells of errors of every file
//!   ([`crate::together`]). What was written before such a flush needs no witness any more.
//! - It is open for reading only, so a local process can run the file.
//! - A dead file has none, so that its space is free with its last open.
//! - There are at most [`WITNESSES_MAX`]. Those of clean files go first. Files that nobody has committed for [`UNSTABLE_OLD`] the
//!   server commits itself, on a thread that may wait for the disk. Should all places be taken nevertheless, unstable writes to
//!   further files are done stably (RFC 1813 section 3.3.7 and RFC 8881 section 18.32.3 let the server do more than was asked
//!   for): that costs only those who write, and keeps no worker waiting.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::OFlags;

use crate::dirty::Dirty;
use crate::error::Error;
use crate::faults::{Bug, bug};
use crate::kernel::{self, AsFd, BorrowedFd, OwnedFd};
use crate::limits::{UNSTABLE_OLD, WITNESSES_MAX};
use crate::node::{Node, NodeFd, NodeInner, NodeState, OpenFile};
use crate::volume::{Durability, Volume};

/// How many rows are looked at for a witness that can go, when a place is wanted.
const STEPS_PER_PLACE: usize = 8;

/// A file's witness. See the module's comment.
#[derive(Debug, Clone)]
pub(crate) struct Witness(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fd: Arc<Opened>,
    /// What was written before needs no witness.
    since: Instant,
    /// [`NodeState::logged_at`] then: the log may hold facts that are older than the witness. 0: none that anybody need doubt.
    doubtful: u64,
}

/// The descriptor, counted.
#[derive(Debug)]
struct Opened {
    fd: OwnedFd,
    count: Arc<AtomicUsize>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl AsFd for Witness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.fd.as_fd()
    }
}

impl Witness {
    /// See [`Inner::doubtful`].
    pub(crate) fn doubtful(&self) -> u64 {
        self.0.doubtful
    }

    fn is(&self, row: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.0, row)
    }
}

type Row = (Weak<NodeInner>, Weak<Inner>);

/// All witnesses of a volume.
#[derive(Default)]
pub(crate) struct Witnesses {
    /// Oldest first; rows of witnesses that are gone may be among them.
    rows: Mutex<VecDeque<Row>>,
    /// Those of files that have become clean since; some may not be any more.
    clean: Mutex<VecDeque<Row>>,
    count: Arc<AtomicUsize>,
    max: usize,
    /// Held while old files are committed.
    settling: Mutex<()>,
}

impl Witnesses {
    /// At most so many, and never more than [`WITNESSES_MAX`].
    pub(crate) fn new(max: usize) -> Witnesses {
        Witnesses { max: max.min(WITNESSES_MAX), ..Witnesses::default() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn push(&self, node: &Node, witness: &Witness) {
        add(&mut self.rows.lock(), node, witness, self.max);
    }

    fn make(&self, node: &Node, fd: OwnedFd, doubtful: u64) -> Witness {
        self.count.fetch_add(1, Ordering::AcqRel);
        let fd = Arc::new(Opened { fd, count: self.count.clone() });
        let witness = Witness(Arc::new(Inner { fd, since: kernel::instant(), doubtful }));
        self.push(node, &witness);
        witness
    }

    /// Whether there is a place for one more. Takes it from a clean file where that is quickly found. Call with at most one node
    /// locked.
    fn has_place(&self) -> bool {
        let mut closed = Vec::new();
        for _ in 0..STEPS_PER_PLACE {
            if self.len() - closed.len().min(self.len()) < self.max {
                break;
            }
            let Some((node, row)) = self.clean.lock().pop_front() else { break };
            let (Some(held), Some(witness)) = (node.upgrade(), row.upgrade()) else { continue };
            match held.state.try_lock() {
                // One that is dirty again comes again when it is clean.
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

    /// The file has become clean.
    fn cleaned(&self, node: &Node, witness: &Witness) {
        add(&mut self.clean.lock(), node, witness, self.max);
    }

    /// Those that are old, and so many of the oldest that half of the places are free.
    fn old(&self, now: Instant) -> Vec<(Node, Arc<Inner>)> {
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

    /// Waits until nobody commits old files, and keeps it so.
    pub(crate) fn quiet(&self) -> MutexGuard<'_, ()> {
        self.settling.lock()
    }

    /// Whether [`Volume::settle_unstable`] has anything to do.
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

/// One more row, in a bounded queue of them.
fn add(rows: &mut VecDeque<Row>, node: &Node, witness: &Witness, max: usize) {
    while rows.front().is_some_and(|(_, w)| w.strong_count() == 0) {
        rows.pop_front();
    }
    let row = (Arc::downgrade(&node.0), Arc::downgrade(&witness.0));
    if rows.len() > 2 * max {
        // A witness has one row at a time in one queue, and two in the other only if it was clean twice.
        rows.retain(|(_, w)| w.strong_count() > 0 && !w.ptr_eq(&row.1));
    }
    rows.push_back(row);
}

impl OpenFile {
    /// What was just read from it is what was written to it, as far as that is unstable: it may be promised of another file.
    pub(crate) fn verified(&self) -> Result<(), Error> {
        self.0.volume.verified_node(&self.0.node)
    }
}

impl Volume {
    /// Nothing of the file's data is unstable any more.
    pub(crate) fn now_clean(&self, node: &Node, state: &mut NodeState) {
        let before = std::mem::take(&mut state.dirty);
        if before != Dirty::Clean
            && let Some(witness) = &state.witness
        {
            self.0.witnesses.cleaned(node, witness);
        }
    }

    /// All that was written to the file before this moment is known to be on the disk.
    pub(crate) fn renew_witness(&self, node: &Node, state: &mut NodeState, since: Instant) {
        let Some(witness) = &mut state.witness else { return };
        // The same descriptor.
        *witness = Witness(Arc::new(Inner { fd: witness.0.fd.clone(), since, doubtful: 0 }));
        self.0.witnesses.push(node, witness);
        if state.dirty == Dirty::Clean {
            self.0.witnesses.cleaned(node, witness);
        }
    }

    /// Makes sure that the file has a witness, before something is done to its data that is not stable at once. False when there
    /// is no place for one, unless there `must` be. Call under the attribute lock; may leave the thread acting as the superuser.
    pub(crate) fn witness(
        &self,
        node: &Node,
        state: &mut NodeState,
        fd: &NodeFd,
        must: bool,
    ) -> Result<bool, Error> {
        if state.witness.is_some() || !self.witnesses_matter() || node.0.is_dead() {
            return Ok(true);
        }
        if !must && !self.0.witnesses.has_place() {
            return Ok(false);
        }
        self.assume_root()?;
        match kernel::reopen(fd, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(fd) => state.witness = Some(self.0.witnesses.make(node, fd, state.logged_at)),
            Err(e) if must => return Err(e.into()),
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Nothing is promised of data where nothing is promised at all.
    pub(crate) fn witnesses_matter(&self) -> bool {
        self.0.durability != Durability::Unsafe
    }

    /// What was written to the file and is not [`Dirty::Clean`] can still be read from it, and a flush that has just succeeded has
    /// brought it to the disk. An error is final. Call under the attribute lock.
    pub(crate) fn verified(&self, state: &NodeState) -> Result<(), Error> {
        match &state.witness {
            Some(witness) if bug(Bug::WriteErrorForgotten) => {
                let late = kernel::reopen(witness, OFlags::RDONLY | OFlags::NONBLOCK)?;
                self.written_back(&late)
            }
            Some(witness) => self.written_back(witness),
            None if state.dirty == Dirty::Clean || !self.witnesses_matter() => Ok(()),
            None => Err(self.fail("unstable data of a file that nobody watched over".to_owned())),
        }
    }

    /// The same. Call without locks.
    pub(crate) fn verified_node(&self, node: &Node) -> Result<(), Error> {
        let state = node.0.state.lock();
        if node.0.is_dead() { Ok(()) } else { self.verified(&state) }
    }

    /// A dead file needs none, whatever was written to it.
    pub(crate) fn dismiss_witness(&self, node: &Node) {
        let gone = {
            let mut state = node.0.state.lock();
            state.dirty = Dirty::Clean;
            state.witness.take()
        };
        drop(gone);
    }

    /// Commits files that nobody has committed for [`UNSTABLE_OLD`], or more where places are short, with one flush of the
    /// whole filesystem. Waits for the disk.
    pub(crate) fn settle_unstable(&self) {
        let witnesses = &self.0.witnesses;
        let Some(_alone) = witnesses.settling.try_lock() else { return };
        let begun = kernel::instant();
        let mut dirty = Vec::new();
        for (node, row) in witnesses.old(begun) {
            let gone = {
                let mut state = node.0.state.lock();
                if state.dirty != Dirty::Clean {
                    dirty.push((node.clone(), row, state.at_flush()));
                    continue;
                }
                state.witness.take_if(|w| w.is(&row))
            };
            drop(gone);
        }
        if dirty.is_empty()
            || self.check().is_err()
            || self.assume_root().is_err()
            || self.flush_all().is_err()
        {
            return;
        }
        for (node, row, at) in dirty {
            let mut tx = self.tx();
            let settled = tx.join().and_then(|()| {
                let mut state = node.0.state.lock();
                let Some(witness) = state.witness.clone().filter(|w| w.is(&row)) else { return Ok(()) };
                self.flushed(&mut tx, &node, &mut state, &witness, at)?;
                if state.dirty == Dirty::Clean {
                    state.witness = None;
                } else {
                    self.renew_witness(&node, &mut state, begun);
                }
                Ok(())
            });
            if settled.is_err() {
                return;
            }
        }
    }
}
