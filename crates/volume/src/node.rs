//! Nodes: the objects that operations work on, their locks and descriptors.
//!
//! A node is the one place for the locks of an object, so there is at most one node for an object at any time: nodes
//! are made through the cache ([`crate::cache`]) only. A node's `O_PATH` descriptor is opened when first needed and
//! may be closed again at any time; while the file is open, the open file's descriptor serves.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::brief::Brief;
use crate::change::Change;
use crate::dirty::Dirty;
use crate::kernel;
use crate::limits::ATTRS_FRESH;
use crate::node_fd::NodeFd;
use crate::record::ObjId;
use crate::types::{Attrs, Kind};
use crate::witness::Witness;

/// An object of a volume. Cheap to clone; equal when it is the same object.
#[derive(Clone)]
pub struct Node(pub(crate) Arc<NodeInner>);

/// What there is to know about an object. See the module's comment.
pub(crate) struct NodeInner {
    /// The kernel's present identity.
    pub(crate) id: ObjId,
    pub(crate) kind: Kind,
    /// Inode number.
    pub(crate) ino: u64,
    /// What clients are told as fileid.
    pub(crate) fileid: u64,
    /// What they are told as the time of its creation: of one that recovery made again, that of the first, ns since 1970.
    pub(crate) created_ns: i64,
    fh: Bytes,
    /// Orders operations on the entries of a directory: shared to look, exclusive to change.
    pub(crate) names: RwLock<()>,
    /// Orders operations on attributes and data.
    pub(crate) state: Mutex<NodeState>,
    fd: Mutex<FdSlot>,
    /// Used since the cache's hand last came by.
    pub(crate) touched: AtomicBool,
    /// When an operation last changed it, ns since 1970: it must be remembered for a while.
    pub(crate) changed_ns: AtomicU64,
    /// Open files.
    pub(crate) opens: AtomicU32,
    /// The last name is gone.
    pub(crate) dead: AtomicBool,
    /// The log's batch that holds the last record about it, or a later one: what its answers rest on ([`crate::rests`]). Set
    /// under the lock under which the object was changed.
    pub(crate) last_batch: AtomicU64,
    /// How often the volume has changed who may open it.
    pub(crate) rights: AtomicU64,
    /// Open from accesses without an open.
    pub(crate) brief: Brief,
}

/// Guarded by the node's attribute lock.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) change: Change,
    /// Data written and not yet stable.
    pub(crate) dirty: Dirty,
    /// Knows of every error in writing it back. A clean file may have one, too.
    pub(crate) witness: Option<Witness>,
    /// Unstable writes so far: a flush covers those that were counted when it began.
    pub(crate) dirty_writes: u64,
    /// `Data`, `Size` and `Zero` facts appended so far; recovery must know which of them a flush did not cover.
    pub(crate) data_facts: u64,
    /// One more than the number of the checkpoint that was being made durable last when one of them was appended; 0: none
    /// was.
    pub(crate) logged_at: u64,
    /// A directory: whether it has a default ACL, as found when its ctime was the first number.
    pub(crate) default_acl: Option<(u64, bool)>,
    /// The attributes as last looked at, unless an operation has changed any since.
    pub(crate) looked: Option<Looked>,
    /// When it was last noticed that somebody else has changed it.
    pub(crate) foreign_at: Option<Instant>,
}

/// Attributes and when they were looked at. Good for [`ATTRS_FRESH`] at most: a local process may change the object
/// without our knowledge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) attrs: Attrs,
    pub(crate) at: Instant,
    /// Reading the file leaves its atime as it is (`relatime`, mount(8)).
    pub(crate) atime_stays: bool,
}

/// How far a file had come when a flush of it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtFlush {
    /// [`NodeState::data_facts`].
    pub(crate) facts: u64,
    /// [`NodeState::dirty_writes`].
    pub(crate) writes: u64,
}

impl NodeState {
    /// A flush is about to begin.
    pub(crate) fn at_flush(&self) -> AtFlush {
        AtFlush { facts: self.data_facts, writes: self.dirty_writes }
    }

    /// The change attribute of an object that has just been seen with this ctime; notes when somebody else has changed it.
    pub(crate) fn seen(&mut self, ctime_ns: u64, now_ns: u64, floor_ns: u64) -> u64 {
        let change = self.change.seen(ctime_ns, now_ns, floor_ns);
        if self.change.is_foreign() {
            self.foreign_at = Some(kernel::instant());
        }
        change
    }

    /// The attributes, if they are known without looking.
    pub(crate) fn fresh(&self, now: Instant) -> Option<&Attrs> {
        let looked = self.looked.as_ref()?;
        (now.saturating_duration_since(looked.at) < ATTRS_FRESH).then_some(&looked.attrs)
    }

    /// The same, if they were looked at after this moment.
    pub(crate) fn fresh_since(&self, now: Instant, since: Option<Instant>) -> Option<&Attrs> {
        let looked = self.looked.as_ref()?;
        if since.is_some_and(|since| looked.at <= since) { None } else { self.fresh(now) }
    }

    /// The file has been read.
    pub(crate) fn was_read(&mut self) {
        self.looked = self.looked.filter(|l| l.atime_stays);
    }
}

#[derive(Default)]
struct FdSlot {
    /// `O_PATH`.
    own: Option<Arc<NodeFd>>,
    /// The descriptor of the latest open file.
    open: Weak<NodeFd>,
    /// Those of all open files: one for reading, one for writing, one for both.
    shared: [Weak<NodeFd>; 3],
}

impl NodeInner {
    /// A node for the cache to take in.
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
            last_batch: AtomicU64::new(0),
            rights: AtomicU64::new(0),
            brief: Brief::default(),
        }
    }

    /// A descriptor of the object if there is one open. For directories always `O_PATH`.
    pub(crate) fn open_fd(&self) -> Option<Arc<NodeFd>> {
        let slot = self.fd.lock();
        slot.own.clone().or_else(|| slot.open.upgrade())
    }

    /// The descriptor of an open file, the latest, if any is open.
    pub(crate) fn file_fd(&self) -> Option<Arc<NodeFd>> {
        self.fd.lock().open.upgrade()
    }

    /// Keeps `fd` as the node's own unless it has one; gives the one that it has then and whether it is new.
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

    /// Gives up the node's own descriptor.
    pub(crate) fn drop_fd(&self) -> Option<Arc<NodeFd>> {
        self.fd.lock().own.take()
    }

    /// The descriptor that serves whoever has the file open for this: `fd`, which has just been opened so, or the one that is
    /// open already. Who may open the file was asked by opening it; what is done with it is done under its user's own rights,
    /// at offsets that are said, so that nobody sees who else uses it.
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

    /// The latest open file.
    pub(crate) fn set_open(&self, fd: &Arc<NodeFd>) {
        self.fd.lock().open = Arc::downgrade(fd);
    }

    /// True when the last name is gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// True while somebody has the file open.
    pub(crate) fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0
    }
}

impl Node {
    /// The signed wire handle: at most 128 bytes (64 on ext4, XFS and btrfs), the same for the life of the object.
    pub fn fh(&self) -> Bytes {
        self.0.fh.clone()
    }

    /// The same, where it stands.
    pub fn wire(&self) -> &Bytes {
        &self.0.fh
    }

    /// The kind of the object; it never changes.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// File id: never 0, the same for the life of the object.
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

/// Attribute locks of up to four objects, taken in one order for all operations: the order of nodes in memory, which
/// does not change while they are held.
pub(crate) struct StateLocks<'a> {
    held: [Option<(usize, MutexGuard<'a, NodeState>)>; 4],
}

impl<'a> StateLocks<'a> {
    /// Locks all of `nodes` (at most four; the same one may be named twice).
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

    /// The state of one of the nodes locked.
    ///
    /// # Panics
    /// For any other node, which would be a bug of the operation.
    pub(crate) fn get(&mut self, node: &Node) -> &mut NodeState {
        let address = node.address();
        match self.held.iter_mut().flatten().find(|(a, _)| *a == address) {
            Some((_, guard)) => guard,
            None => unreachable!("the operation has not locked {node:?}"),
        }
    }
}

/// The order in which two directories' names locks are taken: true when `a` comes first.
pub(crate) fn in_order(a: &Node, b: &Node) -> bool {
    a.address() <= b.address()
}
