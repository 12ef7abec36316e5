//! Counters of a running server.

use landfast_nfs::v3::PROC_NAMES;
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
    v3: [AtomicU64; PROC_NAMES.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            compounds: AtomicU64::new(0),
            modifying: AtomicU64::new(0),
            replays: AtomicU64::new(0),
            ops: [const { AtomicU64::new(0) }; OPS],
            v3: [const { AtomicU64::new(0) }; PROC_NAMES.len()],
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

    pub(crate) fn v3(&self, procedure: u32, modified: bool) {
        if let Some(c) = self.v3.get(procedure as usize) {
            c.fetch_add(1, Ordering::Relaxed);
        }
        if modified {
            self.modifying.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn v3_procedures(&self) -> Vec<(&'static str, u64)> {
        let counts = self.v3.iter().map(|c| c.load(Ordering::Relaxed));
        PROC_NAMES.into_iter().zip(counts).filter(|(_, c)| *c > 0).collect()
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
    /// COMPOUNDs and calls without a session that were answered with a kept reply.
    pub replays: u64,
    /// Operations executed, successful or not, by number.
    pub ops: Vec<(OpNum, u64)>,
    /// Calls of NFS version 3 that were executed, by procedure.
    pub v3_procedures: Vec<(&'static str, u64)>,
    /// Replies that are kept for calls without a session.
    pub calls_kept: usize,
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
