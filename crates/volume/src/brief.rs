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
//! - Each has a row in the queue, oldest first, of at most [`BRIEF_OPENS_MAX`] rows; a row that goes closes it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::Error;
use crate::kernel;
use crate::limits::{BRIEF_OPEN, BRIEF_OPENS_MAX};
use crate::node::{Node, NodeFd, NodeInner, OpenFile};
use crate::types::{Cred, OpenMode};
use crate::volume::Volume;

/// One kept descriptor.
struct Kept {
    fd: Arc<NodeFd>,
    cred: Cred,
    mode: OpenMode,
    opened: Instant,
    rights: u64,
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

    /// Closes what was opened at `until` or before.
    fn close_until(&self, until: Instant) {
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
    fn is_again(&self, now: Instant) -> bool {
        let last = self.0.lock().last.replace(now);
        last.is_some_and(|last| now.saturating_duration_since(last) < BRIEF_OPEN)
    }

    fn count(&self) -> usize {
        self.0.lock().kept.iter().flatten().count()
    }
}

/// Who keeps descriptors since when, oldest first.
#[derive(Default)]
pub(crate) struct BriefQueue(Mutex<VecDeque<(Weak<NodeInner>, Instant)>>);

impl BriefQueue {
    fn push(&self, node: &Node, opened: Instant) {
        let over = {
            let mut rows = self.0.lock();
            rows.push_back((Arc::downgrade(&node.0), opened));
            if rows.len() > BRIEF_OPENS_MAX { rows.pop_front() } else { None }
        };
        close(over);
    }

    fn has_old(&self, now: Instant) -> bool {
        let rows = self.0.lock();
        rows.front().is_some_and(|(_, opened)| now.saturating_duration_since(*opened) >= BRIEF_OPEN)
    }

    fn pop_old(&self, now: Instant) -> Option<(Weak<NodeInner>, Instant)> {
        let mut rows = self.0.lock();
        let (_, opened) = rows.front()?;
        if now.saturating_duration_since(*opened) < BRIEF_OPEN { None } else { rows.pop_front() }
    }

    /// Descriptors that are kept.
    pub(crate) fn len(&self) -> usize {
        let rows = self.0.lock();
        let mut nodes: Vec<_> = rows.iter().filter_map(|(node, _)| node.upgrade()).collect();
        drop(rows);
        nodes.sort_unstable_by_key(Arc::as_ptr);
        nodes.dedup_by_key(|n| Arc::as_ptr(n));
        nodes.iter().map(|n| n.brief.count()).sum()
    }
}

fn close(row: Option<(Weak<NodeInner>, Instant)>) {
    if let Some((node, opened)) = row
        && let Some(node) = node.upgrade()
    {
        node.brief.close_until(opened);
    }
}

impl Volume {
    /// Opens a regular file for one access, for reading or writing: as [`Volume::open_file`], but the same caller's next
    /// access may find it still open.
    pub fn open_briefly(
        &self,
        cred: &Cred,
        node: &Node,
        mode: OpenMode,
        keep: Keep,
    ) -> Result<OpenFile, Error> {
        let now = kernel::instant();
        // Before the file is opened: who takes the right away meanwhile makes what comes of it useless.
        let rights = node.0.rights.load(Ordering::Acquire);
        if let Some(fd) = node.0.brief.get(cred, mode, rights, now)
            && !node.0.is_dead()
        {
            return Ok(OpenFile::new(self, node.clone(), fd, mode.read, mode.write, cred));
        }
        let file = self.open_file(cred, node, mode)?;
        if keep == Keep::IfAgain && !node.0.brief.is_again(now) {
            return Ok(file);
        }
        let kept = Kept { fd: file.0.fd.clone(), cred: cred.clone(), mode, opened: now, rights };
        let replaced = node.0.brief.0.lock().kept[usize::from(mode.write)].replace(kept);
        drop(replaced);
        self.0.brief.push(node, now);
        // It is marked as dead before its descriptors are closed, so one of us sees the other.
        if node.0.is_dead() {
            node.0.brief.close();
        }
        Ok(file)
    }

    /// Whether there is anything for [`Volume::close_idle`] to do.
    pub fn has_idle(&self) -> bool {
        let now = kernel::instant();
        self.0.brief.has_old(now) || self.0.witnesses.has_old(now)
    }

    /// Closes files that nobody has opened and that [`Volume::open_briefly`] opened [`BRIEF_OPEN`] ago. Call as often as
    /// that: a local process cannot run a file that is open for writing. Then commits files whose unstable data is older than
    /// [`crate::limits::UNSTABLE_OLD`]: this may wait for the disk.
    pub fn close_idle(&self) {
        let now = kernel::instant();
        while let Some(row) = self.0.brief.pop_old(now) {
            close(Some(row));
        }
        if self.0.witnesses.has_old(now) {
            self.settle_unstable();
        }
    }
}
