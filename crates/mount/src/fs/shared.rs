//! What all requests of the kernel share.
//!
//! | state | changed by | lock order |
//! |---|---|---|
//! | `handles` | open, release | before `tree` |
//! | `tree` | every reply | before `hidden` |
//! | `hidden` | removals of open files, and their last closes | before a file's `state` |
//! | a file's `locks` | requests for locks; held over replies of the server | before all others |
//! | a file's `turn` | whoever sends its data; held over replies of the server | behind `locks` |
//! | the `lanes`' changes | programs, in own directories; replies | behind `tree` |
//! | a file's `state` | writes, and who sends its data | behind these |
//! | `space` | all that is let in, and all that is sent | last |

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use landfast_nfs::v4::flags::{OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE};
use landfast_nfs::v4::{FileHandle, NfsTime};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle as Runtime;
use tokio::time::Instant;

use super::callers::Callers;
use super::convert::nfs_time;
use super::hidden::{HiddenNames, Removed};
use crate::core::attrs::Attrs;
use crate::core::bugs::{Bug, bug};
use crate::core::file::File;
use crate::core::space::{Needs, Space};
use crate::core::tree::{Ages, Tree};
use crate::core::{Ino, Time};
use crate::errno::Errno;
use crate::limits::{DIRTY_BYTES_MAX, FAILURES_KEPT};
use crate::options::Options;
use crate::remote::{Caller, LockRange, Remote};

/// An open file, shared by all who have it open.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) state: Mutex<File>,
    /// Whoever sends this file's data holds it.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Held over the server's replies to what concerns its locks.
    pub(super) locks: tokio::sync::Mutex<super::held_locks::Locks>,
    /// Open file descriptions that read and write: the kernel lets programs change a mapping of them.
    mappable: AtomicU32,
    /// Open file descriptions whose end the kernel has told, and which are still being closed here.
    pub(super) closing: AtomicU32,
    /// Open file descriptions whose last request was FLUSH: each is closed by now, or has a copy that is not.
    flushed: AtomicU32,
    /// One of them is closed.
    pub(super) closed: tokio::sync::Notify,
}

impl Open {
    /// Whether a program may have changed pages of a mapping that the kernel has not written yet.
    pub(super) fn may_be_mapped(&self) -> bool {
        self.mappable.load(Ordering::Acquire) > 0
    }
}

impl Removed for Open {
    fn is_closed(&self) -> bool {
        let file = self.state.lock();
        match file.opens {
            // Its last close has taken the name, to remove it.
            0 => file.removed_as.is_none(),
            opens => self.closing.load(Ordering::Acquire) >= opens,
        }
    }

    fn may_be_closed(&self) -> bool {
        // Locked, so that no close ends meanwhile; one that begins is closing before it is no longer flushed.
        let file = self.state.lock();
        let flushed = self.flushed.load(Ordering::Acquire);
        flushed + self.closing.load(Ordering::Acquire) >= file.opens
    }
}

/// An open file description.
#[derive(Debug)]
pub(super) struct Handle {
    /// [`Shared::add_handle`] gives it.
    pub(super) number: u64,
    pub(super) ino: Ino,
    pub(super) open: Arc<Open>,
    /// Who opened it: data is read and written in this name.
    pub(super) who: Caller,
    /// Errors before this one were reported, or came before it was opened.
    pub(super) seen: Mutex<u64>,
    pub(super) ahead: Mutex<super::ahead::Ahead>,
    /// As open(2) got them.
    pub(super) flags: i32,
    /// Its last request was FLUSH.
    pub(super) flushed: AtomicBool,
}

impl Handle {
    /// close(2) of it, or of a copy of it. The kernel tells of the end only later, by RELEASE.
    pub(super) fn set_flushed(&self) {
        if !self.flushed.swap(true, Ordering::AcqRel) {
            self.open.flushed.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// It is used again, so that was a copy; or its end has come.
    fn clear_flushed(&self) {
        if self.flushed.load(Ordering::Acquire) && self.flushed.swap(false, Ordering::AcqRel) {
            self.open.flushed.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// `OPEN4_SHARE_ACCESS_*`
    pub(super) fn access(&self) -> u32 {
        match self.flags & libc::O_ACCMODE {
            libc::O_RDONLY => OPEN4_SHARE_ACCESS_READ,
            libc::O_WRONLY => OPEN4_SHARE_ACCESS_WRITE,
            _ => OPEN4_SHARE_ACCESS_BOTH,
        }
    }
}

/// Paths that failed after their program was told otherwise, or that nobody asked about.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub(super) named: Vec<String>,
    pub(super) more: u64,
}

pub(super) struct Shared {
    pub(super) remote: Remote,
    pub(super) options: Options,
    pub(super) runtime: Runtime,
    pub(super) callers: Callers,
    started: Instant,
    /// Nanoseconds of the last [`Shared::now`].
    last: AtomicU64,
    tree: Mutex<Tree<Open>>,
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    next_handle: AtomicU64,
    /// Files with data or a creation that the server does not have, since when, and in whose name they are sent: who wrote first.
    dirty: Mutex<BTreeMap<Ino, (Time, Caller)>>,
    dirty_bytes: AtomicU64,
    /// Bytes of first data that waits for its READ.
    first_bytes: AtomicU64,
    failures: Mutex<Failures>,
    /// Files that are removed and still open, each under a hidden name in a directory.
    pub(super) hidden: HiddenNames<Open>,
    /// Changes that programs were told are done, on their way to the server.
    pub(super) lanes: Arc<super::lanes::Lanes>,
    /// Room at the server for what waits. Behind all others in the order of locks.
    pub(super) space: Mutex<Space>,
    pub(super) notifier: OnceLock<fuser::Notifier>,
    /// Makes names for files that are removed while they are open.
    pub(super) unique: u64,
}

impl Shared {
    pub(super) fn new(
        remote: Remote,
        options: Options,
        runtime: Runtime,
        root: (FileHandle, Attrs),
        unique: u64,
    ) -> Shared {
        let squashed = options.url.iter().any(|(k, _)| k == "uid" || k == "gid");
        let callers = Callers::new(squashed.then(|| remote.own().clone()));
        let ages = Ages { files: options.memory, dirs: options.dir_memory };
        let tree = Tree::new(root.0, root.1, Time::ZERO, ages);
        Shared {
            remote,
            options,
            runtime,
            callers,
            started: Instant::now(),
            last: AtomicU64::new(0),
            tree: Mutex::new(tree),
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
            dirty: Mutex::default(),
            dirty_bytes: AtomicU64::new(0),
            first_bytes: AtomicU64::new(0),
            failures: Mutex::default(),
            hidden: Default::default(),
            lanes: Arc::default(),
            space: Mutex::default(),
            notifier: OnceLock::new(),
            unique,
        }
    }

    /// Later than each call before, so that of two events one is the earlier, however coarse the clock is.
    pub(super) fn now(&self) -> Time {
        let clock = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let after = |last: u64| clock.max(last.saturating_add(1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
        // It always updates.
        Time::from_nanos(last.map_or(clock, after))
    }

    pub(super) fn clock(&self) -> NfsTime {
        #[cfg(test)]
        if let crate::remote::Wire::Model(line) = self.remote.session() {
            return line.clock();
        }
        nfs_time(std::time::SystemTime::now())
    }

    pub(super) fn tree(&self) -> MutexGuard<'_, Tree<Open>> {
        self.tree.lock()
    }

    pub(super) fn number(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// An open file description, for a request that uses it.
    pub(super) fn handle(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        let handle = self.handles.lock().get(&number).cloned().ok_or(Errno::BADF)?;
        handle.clear_flushed();
        Ok(handle)
    }

    pub(super) fn add_handle(&self, mut handle: Handle) -> u64 {
        let number = self.number();
        handle.number = number;
        if handle.access() == OPEN4_SHARE_ACCESS_BOTH {
            handle.open.mappable.fetch_add(1, Ordering::AcqRel);
        }
        self.handles.lock().insert(number, Arc::new(handle));
        number
    }

    /// For [`super::files::release`] alone.
    pub(super) fn take_handle(&self, number: u64) -> Option<Arc<Handle>> {
        let handle = self.handles.lock().remove(&number)?;
        handle.open.closing.fetch_add(1, Ordering::AcqRel);
        handle.clear_flushed();
        if handle.access() == OPEN4_SHARE_ACCESS_BOTH {
            handle.open.mappable.fetch_sub(1, Ordering::AcqRel);
        }
        Some(handle)
    }

    /// Whether a directory may have a name of a file that is open.
    pub(super) fn has_open_in(&self, dir: Ino) -> bool {
        let handles = self.handles.lock();
        let tree = self.tree();
        handles
            .values()
            .any(|h| tree.get(h.ino).is_some_and(|n| n.place.as_ref().is_some_and(|p| p.0 == dir)))
    }

    /// Files with pages that a mapping may have changed and the kernel has not written yet.
    pub(super) fn mapped(&self) -> BTreeSet<Ino> {
        let handles = self.handles.lock();
        handles.values().filter(|handle| handle.open.may_be_mapped()).map(|handle| handle.ino).collect()
    }

    /// The numbers of all open file descriptions.
    pub(super) fn open_handles(&self) -> Vec<u64> {
        self.handles.lock().keys().copied().collect()
    }

    /// The server's handle of a node. A file that is held back has none.
    pub(super) fn server_handle(&self, ino: Ino) -> Result<FileHandle, Errno> {
        self.tree().get(ino).and_then(|n| n.handle.clone()).ok_or(Errno::STALE)
    }

    /// Where the server has a file now: its directory, and its name there.
    pub(super) fn place(&self, ino: Ino) -> Option<(FileHandle, Bytes)> {
        let tree = self.tree();
        let node = tree.get(ino)?;
        let hidden = node.file.as_ref().and_then(|open| open.state.lock().removed_as.clone());
        let (dir, name) = hidden.or_else(|| node.place.clone())?;
        Some((tree.get(dir)?.handle.clone()?, name))
    }

    /// The attributes of a node as programs see them, if memory may answer.
    pub(super) fn view(&self, ino: Ino) -> Option<Attrs> {
        let tree = self.tree();
        let attrs = tree.fresh(ino, self.now())?.clone();
        if self.is_outdated(&tree, ino) {
            return None;
        }
        Some(self.seen_by_programs(&tree, ino, attrs))
    }

    /// Whether the data of an open file that the kernel, or an open, has read is older than what its attributes say. Nothing of ours is on
    /// its way: that would change the attributes itself.
    pub(super) fn is_outdated(&self, tree: &Tree<Open>, ino: Ino) -> bool {
        let Some(node) = tree.get(ino) else { return false };
        if !node.opened || node.handle.is_none() || node.pages == Some(node.attrs.change) {
            return false;
        }
        node.file.as_ref().is_some_and(|open| {
            let file = open.state.lock();
            file.held.is_none() && file.content.is_empty()
        })
    }

    /// The same with attributes that the server has just given.
    pub(super) fn seen_by_programs(&self, tree: &Tree<Open>, ino: Ino, attrs: Attrs) -> Attrs {
        match tree.get(ino).and_then(|n| n.file.as_ref()) {
            Some(open) => open.state.lock().view(attrs),
            None => attrs,
        }
    }

    /// Counts what a file holds.
    pub(super) fn charge(&self, file: &mut File) {
        let (before, after) = (file.charged, file.content.bytes());
        file.charged = after;
        if after >= before {
            self.dirty_bytes.fetch_add(after - before, Ordering::AcqRel);
        } else {
            // First: what leaves the one sum is in the other.
            self.space.lock().spend(Needs::data(before - after));
            self.dirty_bytes.fetch_sub(before - after, Ordering::AcqRel);
        }
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Acquire)
    }

    /// Whether writers must wait for room.
    pub(super) fn is_full(&self) -> bool {
        self.dirty_bytes() > DIRTY_BYTES_MAX
    }

    pub(super) fn first_reads(&self) -> u64 {
        self.first_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn add_first(&self, bytes: usize) {
        self.first_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn drop_first(&self, bytes: usize) {
        self.first_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// A file has something that the server does not have.
    pub(super) fn is_dirty(&self, ino: Ino, who: &Caller) {
        let now = self.now();
        self.dirty.lock().entry(ino).or_insert_with(|| (now, who.clone()));
    }

    pub(super) fn is_clean(&self, ino: Ino) {
        self.dirty.lock().remove(&ino);
    }

    /// In whose name a file's data is written.
    pub(super) fn writer(&self, ino: Ino) -> Option<Caller> {
        self.dirty.lock().get(&ino).map(|(_, who)| who.clone())
    }

    pub(super) fn dirty_count(&self) -> usize {
        self.dirty.lock().len()
    }

    /// Files that have been dirty for longer than `age`.
    pub(super) fn dirty_since(&self, age: Time) -> Vec<(Ino, Caller)> {
        let now = self.now();
        let old = |(ino, (since, who)): (&Ino, &(Time, Caller))| {
            (now.saturating_sub(*since) >= age).then(|| (*ino, who.clone()))
        };
        self.dirty.lock().iter().filter_map(old).collect()
    }

    /// Has the kernel forget a file's pages and attributes.
    pub(super) async fn drop_pages(self: &Arc<Self>, ino: Ino) {
        self.drop_pages_of(ino, LockRange { offset: 0, length: u64::MAX }).await;
    }

    /// The same of the pages of a part of it. What a mapping has changed there is written first.
    pub(super) async fn drop_pages_of(self: &Arc<Self>, ino: Ino, part: LockRange) {
        let Ok(offset) = i64::try_from(part.offset) else { return };
        // To the end, for the kernel.
        let length = i64::try_from(part.length).unwrap_or(0);
        if self.notifier.get().is_none() {
            return;
        }
        let shared = self.clone();
        // The kernel may wait for pages that are being read: not on a thread that others need.
        let done = tokio::task::spawn_blocking(move || {
            shared.notifier.get().map(|notifier| notifier.inval_inode(fuser::INodeNo(ino), offset, length))
        });
        if let Ok(Some(Err(e))) = done.await {
            tracing::debug!("pages of {ino}: {e}");
        }
    }

    /// Notes that what was written to a path is lost.
    pub(super) fn failed(&self, path: &str, why: &str) {
        tracing::error!("{path}: {why}");
        if bug(Bug::FailureUntold) {
            return;
        }
        let mut failures = self.failures.lock();
        match failures.named.len() < FAILURES_KEPT {
            true => failures.named.push(format!("{path}: {why}")),
            false => failures.more += 1,
        }
    }

    /// What failed since the last time. Whoever takes it says when it is told ([`Shared::failures_are_told`]), or gives it back.
    pub(super) fn take_failures(&self) -> Failures {
        std::mem::take(&mut *self.failures.lock())
    }

    /// The same for whoever hears of it now.
    pub(super) fn tell_failures(&self) -> Failures {
        let failures = self.take_failures();
        self.failures_are_told();
        failures
    }

    /// Somebody has heard of all that failed.
    pub(super) fn failures_are_told(&self) {
        self.lanes.are_named();
    }

    /// Nobody has heard of these.
    pub(super) fn give_failures_back(&self, mut earlier: Failures) {
        let mut failures = self.failures.lock();
        earlier.named.append(&mut failures.named);
        let over = earlier.named.len().saturating_sub(FAILURES_KEPT);
        earlier.named.truncate(FAILURES_KEPT);
        earlier.more += failures.more + over as u64;
        *failures = earlier;
    }
}
