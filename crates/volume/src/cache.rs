//! The node cache: one node per object in use or used lately.
//!
//! Invariants:
//! - A node that anybody holds is in its shard's map, unless its object is dead. So an object never has two nodes, hence never
//!   two sets of locks.
//! - A node is dropped only when nobody but the cache holds it, its change state is no longer needed, and none of its data is
//!   unstable. So a file with unstable data always has a node.
//!
//! A clock hand bounds the cache: a node used since the hand last passed gets another round. Few files have unstable data
//! ([`crate::witness`]).

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::change::REMEMBER_NS;
use crate::dirty::Dirty;
use crate::kernel::OwnedFd;
use crate::limits::NODE_SHARDS;
use crate::node::{Node, NodeInner, NodeState};
use crate::node_fd::NodeFd;
use crate::record::KernelHandle;

// The tables use foldhash with random seeds. Their keys are kernel handles and inode numbers, which a client can influence
// only through the filesystem.

/// How many nodes the hand checks for each new node beyond the limit.
const STEPS_PER_INSERT: usize = 4;

struct Shard {
    map: HashMap<KernelHandle, Arc<NodeInner>, RandomState>,
    hand: VecDeque<Arc<NodeInner>>,
}

type Numbers = HashMap<u64, Weak<NodeInner>, RandomState>;

pub(crate) struct Cache {
    shards: Vec<Mutex<Shard>>,
    /// The latest node for each inode number: a hint for listings, which have only numbers.
    numbers: Vec<Mutex<Numbers>>,
    hasher: RandomState,
    count: AtomicUsize,
    nodes_max: usize,
    /// The highest [`NodeState::logged_at`] of a node that was dropped.
    logged_dropped: AtomicU64,
    /// The highest [`NodeInner::last_batch`] of a node that was dropped.
    batch_dropped: AtomicU64,
    /// Never drops a living node: it could not be opened again.
    pinned: bool,
    fds: Arc<AtomicUsize>,
    fds_max: usize,
    fd_hand: Mutex<VecDeque<Weak<NodeInner>>>,
}

impl Cache {
    /// An empty cache of at most `nodes_max` nodes, not counting those in use, which keep at most `fds_max` descriptors.
    /// `pinned`: nodes and their descriptors stay.
    pub(crate) fn new(nodes_max: usize, fds_max: usize, pinned: bool) -> Cache {
        // The tables have keys of their own, so that the entries of one shard spread within it.
        let shard = || Shard { map: HashMap::with_hasher(RandomState::default()), hand: VecDeque::new() };
        Cache {
            nodes_max,
            shards: (0..NODE_SHARDS).map(|_| Mutex::new(shard())).collect(),
            numbers: (0..NODE_SHARDS)
                .map(|_| Mutex::new(HashMap::with_hasher(RandomState::default())))
                .collect(),
            hasher: RandomState::default(),
            count: AtomicUsize::new(0),
            logged_dropped: AtomicU64::new(0),
            batch_dropped: AtomicU64::new(0),
            pinned,
            fds: Arc::new(AtomicUsize::new(0)),
            fds_max,
            fd_hand: Mutex::new(VecDeque::new()),
        }
    }

    fn shard(&self, kh: &KernelHandle) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(kh) as usize % NODE_SHARDS]
    }

    pub(crate) fn get(&self, kh: &KernelHandle) -> Option<Node> {
        let node = self.shard(kh).lock().map.get(kh).cloned()?;
        node.touched.store(true, Ordering::Relaxed);
        Some(Node(node))
    }

    fn number(&self, ino: u64) -> &Mutex<Numbers> {
        &self.numbers[self.hasher.hash_one(ino) as usize % NODE_SHARDS]
    }

    /// The node of the object with this inode number, if known. Only to look at: the cache may just have dropped the node, and
    /// then its locks no longer protect the object.
    pub(crate) fn by_number(&self, ino: u64) -> Option<Node> {
        let node = self.number(ino).lock().get(&ino)?.upgrade()?;
        if !node.touched.load(Ordering::Relaxed) {
            node.touched.store(true, Ordering::Relaxed);
        }
        Some(Node(node))
    }

    /// Call when the node is no longer in the map.
    fn forget_number(&self, node: &NodeInner) {
        let mut numbers = self.number(node.ino).lock();
        if numbers.get(&node.ino).is_some_and(|known| std::ptr::eq(known.as_ptr(), node)) {
            numbers.remove(&node.ino);
        }
    }

    /// The initial state of a new node.
    pub(crate) fn unknown(&self) -> NodeState {
        let logged_at = self.logged_dropped.load(Ordering::Relaxed);
        NodeState { logged_at, ..NodeState::default() }
    }

    /// Takes in a new node, or returns the one that the object already has.
    pub(crate) fn intern(&self, mut new: NodeInner, now_ns: u64) -> Node {
        let mut dropped = Vec::new();
        let mut shard = self.shard(&new.id.kh).lock();
        if let Some(known) = shard.map.get(&new.id.kh) {
            known.touched.store(true, Ordering::Relaxed);
            return Node(known.clone());
        }
        // Again, under the lock: the object may have had a node that was dropped since [`Cache::unknown`].
        let state = new.state.get_mut();
        state.logged_at = state.logged_at.max(self.logged_dropped.load(Ordering::Relaxed));
        new.last_batch.fetch_max(self.batch_dropped.load(Ordering::Relaxed), Ordering::Relaxed);
        let node = Arc::new(new);
        shard.map.insert(node.id.kh.clone(), node.clone());
        shard.hand.push_back(node.clone());
        self.number(node.ino).lock().insert(node.ino, Arc::downgrade(&node));
        self.count.fetch_add(1, Ordering::Relaxed);
        if shard.map.len() > self.nodes_max / NODE_SHARDS && !self.pinned {
            for _ in 0..STEPS_PER_INSERT {
                dropped.extend(self.step(&mut shard, now_ns));
            }
        }
        drop(shard);
        // Closes descriptors here, outside the lock.
        drop(dropped);
        Node(node)
    }

    /// Moves the hand to the next node; returns the node if it was dropped.
    fn step(&self, shard: &mut Shard, now_ns: u64) -> Option<Arc<NodeInner>> {
        let node = shard.hand.pop_front()?;
        if !shard.map.get(&node.id.kh).is_some_and(|n| Arc::ptr_eq(n, &node)) {
            // Forgotten already.
            return Some(node);
        }
        // Two references: the map's and ours. New ones come only from the map, which is locked.
        let in_use = Arc::strong_count(&node) > 2;
        // A change time in the future is from before the clock was set back, which has made up for it (`crate::clock`).
        let changed_ns = node.changed_ns.load(Ordering::Relaxed);
        let young = changed_ns.saturating_add(REMEMBER_NS) > now_ns
            && changed_ns <= now_ns.saturating_add(REMEMBER_NS);
        if in_use || young || node.touched.swap(false, Ordering::Relaxed) {
            shard.hand.push_back(node);
            return None;
        }
        let state = node.state.lock();
        if state.dirty != Dirty::Clean {
            drop(state);
            shard.hand.push_back(node);
            return None;
        }
        self.logged_dropped.fetch_max(state.logged_at, Ordering::Relaxed);
        self.batch_dropped.fetch_max(node.last_batch.load(Ordering::Relaxed), Ordering::Relaxed);
        drop(state);
        shard.map.remove(&node.id.kh);
        self.forget_number(&node);
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(node)
    }

    pub(crate) fn forget(&self, node: &Node) {
        let removed = {
            let mut shard = self.shard(&node.0.id.kh).lock();
            match shard.map.get(&node.0.id.kh) {
                Some(known) if Arc::ptr_eq(known, &node.0) => shard.map.remove(&node.0.id.kh),
                _ => None,
            }
        };
        if removed.is_some() {
            self.forget_number(&node.0);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        // The hand may hold the node for a while; its descriptor would keep the dead object's blocks.
        drop(node.0.drop_fd());
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn fds(&self) -> usize {
        self.fds.load(Ordering::Relaxed)
    }

    /// Lets `node` keep `fd` as its own; if there are too many, another node loses its descriptor.
    pub(crate) fn keep_fd(&self, node: &Node, fd: OwnedFd) -> Arc<NodeFd> {
        self.keep_shared(node, self.counted(fd))
    }

    /// Makes a descriptor for [`Cache::keep_shared`].
    pub(crate) fn counted(&self, fd: OwnedFd) -> Arc<NodeFd> {
        NodeFd::counted(fd, &self.fds)
    }

    pub(crate) fn keep_shared(&self, node: &Node, fd: Arc<NodeFd>) -> Arc<NodeFd> {
        let (fd, new) = node.0.keep_fd(fd);
        if new && !self.pinned {
            let mut closed = Vec::new();
            let mut hand = self.fd_hand.lock();
            hand.push_back(Arc::downgrade(&node.0));
            for _ in 0..STEPS_PER_INSERT {
                if self.fds() - closed.len().min(self.fds()) <= self.fds_max && hand.len() <= 2 * self.fds_max
                {
                    break;
                }
                let Some(oldest) = hand.pop_front().and_then(|w| w.upgrade()) else { continue };
                if oldest.touched.swap(false, Ordering::Relaxed) {
                    hand.push_back(Arc::downgrade(&oldest));
                } else {
                    closed.extend(oldest.drop_fd());
                }
            }
            drop(hand);
            drop(closed);
        }
        fd
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("nodes", &self.len()).field("fds", &self.fds()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel;
    use crate::record::ObjId;
    use crate::types::Kind;
    use bytes::Bytes;

    const NODES: usize = 64;
    const FDS: usize = 10;
    const NOW: u64 = 10 * REMEMBER_NS;

    fn new(n: u64, dirty: Dirty) -> NodeInner {
        let kh = KernelHandle { kind: 1, bytes: n.to_be_bytes()[..].into() };
        NodeInner::new(
            ObjId { kh, btime_ns: 0 },
            Kind::File,
            n,
            n,
            Bytes::new(),
            NodeState { dirty, logged_at: n, ..NodeState::default() },
        )
    }

    fn fd() -> OwnedFd {
        std::fs::File::open("/").unwrap().into()
    }

    #[test]
    fn one_object_has_one_node_as_long_as_anybody_holds_it() {
        let cache = Cache::new(NODES, FDS, false);
        let held: Vec<Node> = (0..500).map(|n| cache.intern(new(n, Dirty::Clean), NOW)).collect();
        for n in 1000..20_000 {
            cache.intern(new(n, Dirty::Clean), NOW);
        }
        for node in &held {
            assert!(cache.get(&node.0.id.kh).as_ref() == Some(node));
            assert!(cache.intern(new(node.0.ino, Dirty::Clean), NOW) == *node);
        }
        drop(held);
        for n in 20_000..40_000 {
            cache.intern(new(n, Dirty::Clean), NOW);
        }
        assert!(cache.len() <= 2 * NODES, "{}", cache.len());
        assert_eq!(cache.shards.iter().map(|s| s.lock().hand.len()).sum::<usize>(), cache.len());
    }

    #[test]
    fn what_has_just_changed_is_remembered() {
        let cache = Cache::new(NODES, FDS, false);
        let now = NOW;
        for n in 0..1000 {
            cache.intern(new(n, Dirty::Clean), now).0.changed_ns.store(now, Ordering::Relaxed);
        }
        for n in 1000..9000 {
            cache.intern(new(n, Dirty::Clean), now + REMEMBER_NS / 2);
        }
        let known = |n: u64| cache.get(&new(n, Dirty::Clean).id.kh).is_some();
        assert!((0..1000).all(known));
        for n in 9000..40_000 {
            cache.intern(new(n, Dirty::Clean), now + 2 * REMEMBER_NS);
        }
        assert!(cache.len() <= 2 * NODES, "{}", cache.len());
    }

    #[test]
    fn a_node_with_unstable_data_stays_until_that_is_stable() {
        let cache = Cache::new(NODES, FDS, false);
        let kh = cache.intern(new(5000, Dirty::Unknown), NOW).0.id.kh.clone();
        for n in 10_000..20_000 {
            cache.intern(new(n, Dirty::Clean), NOW);
        }
        assert!(cache.len() <= 2 * NODES + 1, "{}", cache.len());
        cache.get(&kh).expect("it is there").0.state.lock().dirty = Dirty::Clean;
        for n in 20_000..40_000 {
            cache.intern(new(n, Dirty::Clean), NOW);
        }
        assert!(cache.get(&kh).is_none());
        assert!(cache.unknown().logged_at >= 5000, "what the log holds of it is not forgotten");
    }

    #[test]
    fn a_node_knows_of_another_that_was_dropped_while_it_was_made() {
        let cache = Cache::new(NODES, FDS, false);
        let mut late = new(5000, Dirty::Clean);
        late.state.get_mut().logged_at = cache.unknown().logged_at;
        cache.intern(new(5000, Dirty::Clean), NOW);
        for n in 0..1000 {
            cache.intern(new(n, Dirty::Clean), NOW);
        }
        assert!(cache.get(&late.id.kh).is_none());
        assert_eq!(cache.intern(late, NOW).0.state.lock().logged_at, 5000);
    }

    #[test]
    fn descriptors_are_bounded_and_those_in_use_stay_open() {
        let cache = Cache::new(NODES * 100, FDS, false);
        let nodes: Vec<Node> = (0..500).map(|n| cache.intern(new(n, Dirty::Clean), NOW)).collect();
        let used: Vec<_> = nodes.iter().take(5).map(|n| cache.keep_fd(n, fd())).collect();
        for node in &nodes {
            cache.keep_fd(node, fd());
        }
        assert!(cache.fds() <= 2 * FDS + used.len(), "{}", cache.fds());
        for fd in &used {
            kernel::fstat(&**fd).unwrap();
        }
        drop((used, nodes));
        drop(cache);
    }

    #[test]
    fn a_dead_node_is_dropped_with_its_descriptor() {
        let cache = Cache::new(NODES, FDS, true);
        let node = cache.intern(new(1, Dirty::Clean), NOW);
        cache.keep_fd(&node, fd());
        assert_eq!((cache.len(), cache.fds()), (1, 1));
        cache.forget(&node);
        cache.forget(&node);
        assert_eq!((cache.len(), cache.fds()), (0, 0));
        assert!(cache.get(&node.0.id.kh).is_none());
        // Then the same handle is another object (btrfs may do that after a crash).
        assert!(cache.intern(new(1, Dirty::Clean), NOW) != node);
    }
}
