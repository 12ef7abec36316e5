//! Counters of a running server.

use landfast_nfs::v4::OpNum;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operation numbers that have a counter of their own; all others share the last.
const OPS: usize = 80;

/// Counters that only grow.
#[derive(Debug)]
pub(crate) struct Counters {
    compounds: AtomicU64,
    modifying: AtomicU64,
    replays: AtomicU64,
    ops: [AtomicU64; OPS],
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            compounds: AtomicU64::new(0),
            modifying: AtomicU64::new(0),
            replays: AtomicU64::new(0),
            ops: [const { AtomicU64::new(0) }; OPS],
        }
    }
}

impl Counters {
    pub(crate) fn compound(&self) {
        self.compounds.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn replay(&self) {
        self.replays.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn op(&self, op: OpNum, modified: bool) {
        if let Some(c) = self.ops.get((op.0 as usize).min(OPS - 1)) {
            c.fetch_add(1, Ordering::Relaxed);
        }
        if modified {
            self.modifying.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn ops(&self) -> Vec<(OpNum, u64)> {
        self.ops
            .iter()
            .enumerate()
            .map(|(n, c)| (OpNum(n as u32), c.load(Ordering::Relaxed)))
            .filter(|(_, c)| *c > 0)
            .collect()
    }

    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        (get(&self.compounds), get(&self.modifying), get(&self.replays))
    }
}

/// What a server has done and holds.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// COMPOUNDs answered.
    pub compounds: u64,
    /// Operations that changed something and succeeded.
    pub modifying_ops: u64,
    /// COMPOUNDs answered from the reply cache.
    pub replays: u64,
    /// Operations executed, successful or not, by number.
    pub ops: Vec<(OpNum, u64)>,
    /// Connections that are open.
    pub connections: usize,
    /// Client records.
    pub clients: usize,
    /// Sessions.
    pub sessions: usize,
    /// Opens.
    pub opens: usize,
}

impl Stats {
    /// Operations of this number.
    #[must_use]
    pub fn op(&self, op: OpNum) -> u64 {
        self.ops.iter().find(|(n, _)| *n == op).map_or(0, |(_, c)| *c)
    }

    /// Operations in all.
    #[must_use]
    pub fn ops_total(&self) -> u64 {
        self.ops.iter().map(|(_, c)| c).sum()
    }
}
