//! Files that stay open for a while after an access without an open: READ and WRITE of NFSv3 and NFSv4's special stateids.
//!
//! A file keeps at most one such descriptor for reading and one for writing, each for the caller that it was opened for,
//! with all of its groups. Invariants:
//!
//! - A kept descriptor serves only a caller that would get it again: it is given up when the volume changes the file's owner,
//!   mode or access list (`rights` counts that), and when it is as old as [`BRIEF_OPEN`], which bounds how long what a
//!   local process changes goes unnoticed.
//! - A local process cannot run a program that is open for writing. So a descriptor for writing is kept only while writes go
//!   on: stable ones keep it from the second within [`BRIEF_OPEN`] on ([`Keep::IfAgain`]: a small file is written at
//!   once), and COMMIT and a change of rights close it.
//! - A dead file keeps none, so that its space is free with its last open.
//! - Kept descriptors do not count as opens: who removed a file's last name is told that it is gone.
//! - Each has a row in the queue, oldest first, of at most [`crate::limits::BRIEF_OPENS_MAX`] rows; a row that goes closes it.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::BRIEF_OPEN;
use crate::node_fd::NodeFd;
use crate::types::{Cred, OpenMode};

/// One kept descriptor.
pub(crate) struct Kept {
    pub(crate) fd: Arc<NodeFd>,
    pub(crate) cred: Cred,
    pub(crate) mode: OpenMode,
    pub(crate) opened: Instant,
    pub(crate) rights: u64,
}

/// What a node keeps.
#[derive(Default)]
pub(crate) struct Brief(Mutex<Briefly>);

#[derive(Default)]
struct Briefly {
    /// One for reading, one for writing.
    kept: [Option<Kept>; 2],
    /// When it was last opened with [`Keep::IfAgain`].
    last: Option<Instant>,
}

/// Whether a file stays open after an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It does: more accesses are likely.
    Now,
    /// If it was opened so a moment ago, too.
    IfAgain,
}

impl Brief {
    /// The descriptor that such a caller would get by opening the file now.
    pub(crate) fn get(&self, cred: &Cred, mode: OpenMode, rights: u64, now: Instant) -> Option<Arc<NodeFd>> {
        let kept = &self.0.lock().kept;
        let kept = kept[usize::from(mode.write)].as_ref()?;
        let young = now.saturating_duration_since(kept.opened) < BRIEF_OPEN;
        (young && kept.rights == rights && kept.mode == mode && kept.cred == *cred).then(|| kept.fd.clone())
    }

    /// Keeps a descriptor instead of the one that is kept for the same.
    pub(crate) fn keep(&self, kept: Kept) {
        let replaced = self.0.lock().kept[usize::from(kept.mode.write)].replace(kept);
        drop(replaced);
    }

    /// Closes what was opened at `until` or before.
    pub(crate) fn close_until(&self, until: Instant) {
        let closed = {
            let mut kept = self.0.lock();
            kept.kept.each_mut().map(|k| k.take_if(|k| k.opened <= until))
        };
        drop(closed);
    }

    /// Closes all.
    pub(crate) fn close(&self) {
        let closed = std::mem::take(&mut *self.0.lock());
        drop(closed);
    }

    /// Closes what is open for writing.
    pub(crate) fn close_writing(&self) {
        let closed = self.0.lock().kept[1].take();
        drop(closed);
    }

    /// Whether an access that asks with [`Keep::IfAgain`] is one of several.
    pub(crate) fn is_again(&self, now: Instant) -> bool {
        let last = self.0.lock().last.replace(now);
        last.is_some_and(|last| now.saturating_duration_since(last) < BRIEF_OPEN)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().kept.iter().flatten().count()
    }
}
