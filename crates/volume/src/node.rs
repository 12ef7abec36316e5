//! Nodes: the objects that operations work on, with their locks and descriptors.
//!
//! A node holds the locks of its object, so an object never has more than one node: only the cache ([`crate::cache`])
//! makes nodes. A node opens its `O_PATH` descriptor when first needed and may close it at any time; while the file is
//! open, the open file's descriptor serves.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::change::Change;
use crate::descriptor_cache::CachedDescriptors;
use crate::dirty::Dirty;
use crate::kernel;
use crate::limits::ATTRS_FRESH;
use crate::node_fd::NodeFd;
use crate::record::ObjId;
use crate::types::{Attrs, Kind};
use crate::witness::Witness;

/// An object of a volume. Cheap to clone. Two nodes are equal if they are the same object.
#[derive(Clone)]
pub struct Node(pub(crate) Arc<NodeInner>);

pub(crate) struct NodeInner {
    pub(crate) id: ObjId,
    pub(crate) kind: Kind,
    pub(crate) ino: u64,
    pub(crate) fileid: u64,
    /// The creation time for clients, ns since 1970. For an object that recovery made again: that of the first one.
    pub(crate) created_ns: i64,
    fh: Bytes,
    /// Orders operations on the entries of a directory: shared to look, exclusive to change.
    pub(crate) names: RwLock<()>,
    pub(crate) state: Mutex<NodeState>,
    fd: Mutex<FdSlot>,
    /// The node was used since the cache's clock hand last passed.
    pub(crate) touched: AtomicBool,
    /// When an operation last changed it, ns since 1970. The cache must keep it for a while after that.
    pub(crate) changed_ns: AtomicU64,
    pub(crate) opens: AtomicU32,
    pub(crate) dead: AtomicBool,
    /// Its only name is the one among the orphans, which clients do not know of.
    pub(crate) orphan: AtomicBool,
    /// The log's batch with the last record about this object, or a later batch; replies about it rest on that batch
    /// ([`crate::dependencies`]). Set under the lock under which the object was changed.
    pub(crate) last_batch: AtomicU64,
    /// How often the volume has changed who may open it.
    pub(crate) rights: AtomicU64,
    /// Descriptors kept from accesses without an open.
    pub(crate) cached_descriptors: CachedDescriptors,
}

#[derive(Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) change: Change,
    pub(crate) dirty: Dirty,
    /// Learns of every error in writing the data back. A clean file may have one, too.
    pub(crate) witness: Option<Witness>,
    /// Unstable writes so far. A flush covers those counted when it began.
    pub(crate) dirty_writes: u64,
    /// `Data`, `Size` and `Zero` facts appended so far; recovery must know which of them a flush did not cover.
    pub(crate) data_facts: u64,
    /// When the last of those facts was appended: one more than the number of the checkpoint that was being made durable
    /// last; 0 if there is no such fact.
    pub(crate) logged_at: u64,
    /// For a directory: the ctime at which it was checked for a default ACL, and whether it had one.
    pub(crate) default_acl: Option<(u64, bool)>,
    /// The attributes as last looked up, unless an operation has changed any since.
    pub(crate) looked: Option<Looked>,
    /// The file is known to carry the verifier of an exclusive create ([`crate::exclusive`]).
    pub(crate) holds_verifier: bool,
    /// When a change by somebody else was last noticed.
    pub(crate) foreign_at: Option<Instant>,
}

/// Attributes and when they were looked up. They serve for at most [`ATTRS_FRESH`], since a local process may change the
/// object without our knowledge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) attrs: Attrs,
    pub(crate) at: Instant,
    /// Reading the file does not change its atime (`relatime`, mount(8)).
    pub(crate) atime_stays: bool,
}

/// A file's counters when a flush of it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtFlush {
    pub(crate) facts: u64,
    pub(crate) writes: u64,
}

impl NodeState {
    /// Call just before a flush begins.
    pub(crate) fn at_flush(&self) -> AtFlush {
        AtFlush { facts: self.data_facts, writes: self.dirty_writes }
    }

    /// The change attribute of an object just seen with this ctime. Notes a change by somebody else.
    pub(crate) fn seen(&mut self, ctime_ns: u64, now_ns: u64, floor_ns: u64) -> u64 {
        let change = self.change.seen(ctime_ns, now_ns, floor_ns);
        if self.change.is_foreign() {
            self.foreign_at = Some(kernel::instant());
        }
        change
    }

    /// The attributes, if known without a system call.
    pub(crate) fn fresh(&self, now: Instant) -> Option<&Attrs> {
        let looked = self.looked.as_ref()?;
        (now.saturating_duration_since(looked.at) < ATTRS_FRESH).then_some(&looked.attrs)
    }

    /// As [`NodeState::fresh`], if they were looked up after `since`.
    pub(crate) fn fresh_since(&self, now: Instant, since: Option<Instant>) -> Option<&Attrs> {
        let looked = self.looked.as_ref()?;
        if since.is_some_and(|since| looked.at <= since) { None } else { self.fresh(now) }
    }

    /// Call after the file was read.
    pub(crate) fn was_read(&mut self) {
        self.looked = self.looked.filter(|l| l.atime_stays);
    }
}

#[derive(Default)]
struct FdSlot {
    /// Opened with `O_PATH`.
    own: Option<Arc<NodeFd>>,
    /// The descriptor of the file opened last.
    open: Weak<NodeFd>,
    /// The descriptors that all open files share: for reading, for writing, for both.
    shared: [Weak<NodeFd>; 3],
}

impl NodeInner {
    pub(crate) fn new(
        id: ObjId,
        kind: Kind,
        ino: u64,
        fileid: u64,
        fh: Bytes,
        state: NodeState,
    ) -> NodeInner {
        NodeInner {
            created_ns: id.btime_ns,
            id,
            kind,
            ino,
            fileid,
            fh,
            names: RwLock::new(()),
            state: Mutex::new(state),
            fd: Mutex::new(FdSlot::default()),
            touched: AtomicBool::new(true),
            changed_ns: AtomicU64::new(0),
            opens: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
            last_batch: AtomicU64::new(0),
            rights: AtomicU64::new(0),
            cached_descriptors: CachedDescriptors::default(),
        }
    }

    /// An open descriptor of the object, if any; always `O_PATH` for a directory.
    pub(crate) fn open_fd(&self) -> Option<Arc<NodeFd>> {
        let slot = self.fd.lock();
        slot.own.clone().or_else(|| slot.open.upgrade())
    }

    /// The descriptor of the file opened last, while it is open.
    pub(crate) fn file_fd(&self) -> Option<Arc<NodeFd>> {
        self.fd.lock().open.upgrade()
    }

    /// Keeps `fd` as the node's own unless it has one. Returns the node's descriptor and whether it is new.
    pub(crate) fn keep_fd(&self, fd: Arc<NodeFd>) -> (Arc<NodeFd>, bool) {
        let mut slot = self.fd.lock();
        match &slot.own {
            Some(own) => (own.clone(), false),
            None => {
                slot.own = Some(fd.clone());
                (fd, true)
            }
        }
    }

    pub(crate) fn drop_fd(&self) -> Option<Arc<NodeFd>> {
        self.fd.lock().own.take()
    }

    /// The descriptor that serves everyone who has the file open in this mode: the one open already, or else `fd`, which has
    /// just been opened. Sharing is safe: the caller's open was the check of who may open the file, each operation runs under
    /// its own user's rights, and offsets are explicit, so nobody notices other users.
    pub(crate) fn share_fd(&self, fd: Arc<NodeFd>, read: bool, write: bool) -> Arc<NodeFd> {
        let mut slot = self.fd.lock();
        let [reading, writing, both] = &mut slot.shared;
        let shared = match (read, write) {
            (_, false) => reading,
            (false, true) => writing,
            (true, true) => both,
        };
        if let Some(shared) = shared.upgrade() {
            return shared;
        }
        *shared = Arc::downgrade(&fd);
        fd
    }

    pub(crate) fn set_open(&self, fd: &Arc<NodeFd>) {
        self.fd.lock().open = Arc::downgrade(fd);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.load(Ordering::Acquire)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0
    }
}

impl Node {
    /// The signed wire handle: at most 128 bytes (64 on ext4, XFS and btrfs); never changes.
    pub fn fh(&self) -> Bytes {
        self.0.fh.clone()
    }

    /// As [`Node::fh`], borrowed.
    pub fn wire(&self) -> &Bytes {
        &self.0.fh
    }

    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// File id: never 0, never changes.
    pub fn fileid(&self) -> u64 {
        self.0.fileid
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Node {}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({:?} {})", self.0.kind, self.0.id)
    }
}

/// Attribute locks of up to four objects. All operations take them in the same order: that of the nodes' addresses, which
/// do not change while they are held.
pub(crate) struct StateLocks<'a> {
    held: [Option<(usize, MutexGuard<'a, NodeState>)>; 4],
}

impl<'a> StateLocks<'a> {
    /// Locks all of `nodes` (at most four; duplicates are allowed).
    pub(crate) fn lock<const N: usize>(nodes: [Option<&'a Node>; N]) -> StateLocks<'a> {
        const { assert!(N <= 4) };
        let mut sorted = nodes;
        sorted.sort_unstable_by_key(|n| n.map(Node::address));
        let mut held = [None, None, None, None];
        let mut last = 0;
        let mut free = held.iter_mut();
        for node in sorted.into_iter().flatten() {
            if node.address() == last {
                continue;
            }
            last = node.address();
            if let Some(slot) = free.next() {
                *slot = Some((last, node.0.state.lock()));
            }
        }
        StateLocks { held }
    }

    /// The state of one of the locked nodes. Panics for any other node, which would be a bug of the operation.
    pub(crate) fn get(&mut self, node: &Node) -> &mut NodeState {
        let address = node.address();
        match self.held.iter_mut().flatten().find(|(a, _)| *a == address) {
            Some((_, guard)) => guard,
            None => unreachable!("the operation has not locked {node:?}"),
        }
    }
}

/// The lock order of two directories' names locks: true when `a` comes first.
pub(crate) fn in_order(a: &Node, b: &Node) -> bool {
    a.address() <= b.address()
}
