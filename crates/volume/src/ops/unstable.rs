//! Unstable data: gives every file that has some a witness, and commits it when it is old ([`crate::witness`]).

use std::time::Instant;

use rustix::fs::OFlags;

use crate::dirty::Dirty;
use crate::error::Error;
use crate::faults::{Bug, bug};
use crate::kernel;
use crate::node::{Node, NodeState};
use crate::node_fd::NodeFd;
use crate::open_file::OpenFile;
use crate::options::Durability;
use crate::volume::Volume;
use crate::witness::Witness;

impl OpenFile {
    /// Confirms that data just read from the file is what was written to it, as far as that is unstable. Then the data may be
    /// promised as part of another file.
    pub(crate) fn verified(&self) -> Result<(), Error> {
        self.0.volume.verified_node(&self.0.node)
    }
}

impl Volume {
    /// Notes that none of the file's data is unstable any more.
    pub(crate) fn now_clean(&self, node: &Node, state: &mut NodeState) {
        let before = std::mem::take(&mut state.dirty);
        if before != Dirty::Clean
            && let Some(witness) = &state.witness
        {
            self.0.witnesses.cleaned(node, witness);
        }
    }

    /// Notes that everything written to the file before `since` is on disk.
    pub(crate) fn renew_witness(&self, node: &Node, state: &mut NodeState, since: Instant) {
        let Some(witness) = &mut state.witness else { return };
        *witness = witness.renewed(since);
        self.0.witnesses.push(node, witness);
        if state.dirty == Dirty::Clean {
            self.0.witnesses.cleaned(node, witness);
        }
    }

    /// Makes sure that the file has a witness, before an unstable change of its data. Returns false if no place is free for one;
    /// with `must` there is always one. Call under the attribute lock; may leave the thread acting as the superuser.
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

    /// Gives a file the witness that it had before a change which took no lock. Call under the attribute lock, after noting the
    /// change. Returns a later witness that it replaces, to be closed without the lock.
    pub(crate) fn put_witness_back(
        &self,
        state: &mut NodeState,
        witness: Option<Witness>,
    ) -> Option<Witness> {
        let witness = witness.filter(|_| state.dirty != Dirty::Clean)?;
        match &state.witness {
            Some(now) if now.is_same_descriptor(&witness) => None,
            // A later descriptor may not know of errors during the change.
            _ => state.witness.replace(witness),
        }
    }

    /// Where nothing is promised at all, data needs no witness.
    pub(crate) fn witnesses_matter(&self) -> bool {
        self.0.durability != Durability::Unsafe
    }

    /// Confirms that what was written to the file and is not [`Dirty::Clean`] can still be read from it, and that a flush which
    /// has just succeeded has brought it to the disk. An error is final. Call under the attribute lock.
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

    /// As [`Volume::verified`]. Call without locks.
    pub(crate) fn verified_node(&self, node: &Node) -> Result<(), Error> {
        let state = node.0.state.lock();
        if node.0.is_dead() { Ok(()) } else { self.verified(&state) }
    }

    /// Drops the witness of a dead file, which needs none.
    pub(crate) fn dismiss_witness(&self, node: &Node) {
        let gone = {
            let mut state = node.0.state.lock();
            state.dirty = Dirty::Clean;
            state.witness.take()
        };
        drop(gone);
    }

    /// Commits files that nobody has committed for [`crate::limits::UNSTABLE_OLD`], and more if places are short, with one flush of
    /// the whole filesystem. Waits for the disk.
    pub(crate) fn settle_unstable(&self) {
        let witnesses = &self.0.witnesses;
        let Some(_alone) = witnesses.alone() else { return };
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
