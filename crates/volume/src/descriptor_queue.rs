//! The files that are open from accesses without an open ([`crate::descriptor_cache`]), oldest first.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::{DESCRIPTOR_CACHE_MAX, DESCRIPTOR_CACHE_TIME};
use crate::node::{Node, NodeInner};

/// Nodes that keep descriptors, with the time of opening, oldest first.
#[derive(Default)]
pub(crate) struct DescriptorQueue(Mutex<VecDeque<(Weak<NodeInner>, Instant)>>);

impl DescriptorQueue {
    pub(crate) fn push(&self, node: &Node, opened: Instant) {
        let over = {
            let mut rows = self.0.lock();
            rows.push_back((Arc::downgrade(&node.0), opened));
            if rows.len() > DESCRIPTOR_CACHE_MAX { rows.pop_front() } else { None }
        };
        close(over);
    }

    pub(crate) fn has_old(&self, now: Instant) -> bool {
        let rows = self.0.lock();
        rows.front()
            .is_some_and(|(_, opened)| now.saturating_duration_since(*opened) >= DESCRIPTOR_CACHE_TIME)
    }

    pub(crate) fn pop_old(&self, now: Instant) -> Option<(Weak<NodeInner>, Instant)> {
        let mut rows = self.0.lock();
        let (_, opened) = rows.front()?;
        if now.saturating_duration_since(*opened) < DESCRIPTOR_CACHE_TIME { None } else { rows.pop_front() }
    }

    pub(crate) fn len(&self) -> usize {
        let rows = self.0.lock();
        let mut nodes: Vec<_> = rows.iter().filter_map(|(node, _)| node.upgrade()).collect();
        drop(rows);
        nodes.sort_unstable_by_key(Arc::as_ptr);
        nodes.dedup_by_key(|n| Arc::as_ptr(n));
        nodes.iter().map(|n| n.cached_descriptors.count()).sum()
    }
}

pub(crate) fn close(row: Option<(Weak<NodeInner>, Instant)>) {
    if let Some((node, opened)) = row
        && let Some(node) = node.upgrade()
    {
        node.cached_descriptors.close_until(opened);
    }
}
