//! Descriptors that stay open for a while after an access without an open: READ and WRITE of NFSv3 and NFSv4's special stateids.
//!
//! A file keeps at most one such descriptor for reading and one for writing, each for the caller for whom it was opened,
//! with all groups. Invariants:
//!
//! - A kept descriptor serves only a caller that could open the file again. It is closed when the volume changes the file's
//!   owner, mode or access list (`rights` counts that), and at the age of [`DESCRIPTOR_CACHE_TIME`], which bounds how long a local
//!   process's change goes unnoticed.
//! - A local process cannot run a program that is open for writing. So a descriptor for writing is kept only while writes
//!   continue: a stable write keeps it only if another came within [`DESCRIPTOR_CACHE_TIME`] before ([`Keep::IfAgain`]; a small file is
//!   written in one go). COMMIT and a change of rights close it.
//! - The descriptor with which a file was made is kept for its first write, since most files are written as soon as they are made. Then
//!   the rule for writes decides whether it stays.
//! - A dead file keeps none, so that its space is freed with its last open.
//! - Kept descriptors do not count as opens: whoever removes a file's last name is told that it is gone.
//! - Each has a row in a queue, oldest first, of at most [`crate::limits::DESCRIPTOR_CACHE_MAX`] rows; removing a row closes the descriptor.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::DESCRIPTOR_CACHE_TIME;
use crate::node_fd::NodeFd;
use crate::types::{Cred, OpenMode};

pub(crate) struct CachedDescriptor {
    pub(crate) fd: Arc<NodeFd>,
    pub(crate) cred: Cred,
    pub(crate) mode: OpenMode,
    pub(crate) opened: Instant,
    pub(crate) rights: u64,
    /// It was opened to make the file, and has not been used since.
    pub(crate) unused: bool,
}

#[derive(Default)]
pub(crate) struct CachedDescriptors(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    /// One for reading, one for writing.
    kept: [Option<CachedDescriptor>; 2],
    /// The last access with [`Keep::IfAgain`].
    last: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It stays open: more accesses are likely.
    Now,
    /// It stays open if the previous such access was a moment ago.
    IfAgain,
}

impl CachedDescriptors {
    /// The kept descriptor that this caller would get by opening the file now.
    pub(crate) fn get(&self, cred: &Cred, mode: OpenMode, rights: u64, now: Instant) -> Option<Arc<NodeFd>> {
        let kept = &self.0.lock().kept;
        let kept = kept[usize::from(mode.write)].as_ref()?;
        let young = now.saturating_duration_since(kept.opened) < DESCRIPTOR_CACHE_TIME;
        (young && kept.rights == rights && kept.mode == mode && kept.cred == *cred).then(|| kept.fd.clone())
    }

    /// A write uses the descriptor with which the file was made. It stays only if `again`.
    pub(crate) fn used(&self, again: bool) {
        let closed = {
            let write = &mut self.0.lock().kept[1];
            if let Some(kept) = write.as_mut().filter(|_| again) {
                kept.unused = false;
            }
            write.take_if(|kept| kept.unused)
        };
        drop(closed);
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.0.lock().kept[1].as_ref().is_some_and(|kept| kept.unused)
    }

    /// Keeps a descriptor in place of the previous one for reading or writing.
    pub(crate) fn keep(&self, kept: CachedDescriptor) {
        let replaced = self.0.lock().kept[usize::from(kept.mode.write)].replace(kept);
        drop(replaced);
    }

    /// Closes descriptors that were opened at `until` or before.
    pub(crate) fn close_until(&self, until: Instant) {
        let closed = {
            let mut kept = self.0.lock();
            kept.kept.each_mut().map(|k| k.take_if(|k| k.opened <= until))
        };
        drop(closed);
    }

    pub(crate) fn close(&self) {
        let closed = std::mem::take(&mut *self.0.lock());
        drop(closed);
    }

    pub(crate) fn close_writing(&self) {
        let closed = self.0.lock().kept[1].take();
        drop(closed);
    }

    /// Whether an access with [`Keep::IfAgain`] follows another one closely.
    pub(crate) fn is_again(&self, now: Instant) -> bool {
        let last = self.0.lock().last.replace(now);
        last.is_some_and(|last| now.saturating_duration_since(last) < DESCRIPTOR_CACHE_TIME)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().kept.iter().flatten().count()
    }
}
