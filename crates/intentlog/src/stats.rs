//! Figures about a running log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::limits::RECENT_FLUSHES;

/// Upper ends of the buckets of [`Waits`], in microseconds. One more bucket has no upper end.
pub const WAIT_BUCKETS_US: [u64; 12] =
    [100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];

/// How long requests waited for something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waits {
    pub buckets: [u64; WAIT_BUCKETS_US.len() + 1],
    pub sum_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct WaitCounters {
    buckets: [AtomicU64; WAIT_BUCKETS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl WaitCounters {
    pub(crate) fn waited(&self, time: Duration) {
        let bucket = WAIT_BUCKETS_US.iter().position(|us| time <= Duration::from_micros(*us));
        if let Some(count) = self.buckets.get(bucket.unwrap_or(WAIT_BUCKETS_US.len())) {
            count.fetch_add(1, Relaxed);
        }
        self.sum_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn read(&self) -> Waits {
        Waits { buckets: self.buckets.each_ref().map(|n| n.load(Relaxed)), sum_ns: self.sum_ns.load(Relaxed) }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counted while running; read into [`Stats`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)+
            pub(crate) flush_ns_recent: AtomicU64,
            pub(crate) gate_waits: WaitCounters,
            pub(crate) room_waits: WaitCounters,
        }

        /// Figures of one log since it was started. Counts only grow.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
            /// Transactions that waited while a batch was being sealed or a cut made.
            pub gate_waits: Waits,
            /// Admissions that were delayed or waited for space.
            pub room_waits: Waits,
            pub checkpointing: bool,
            pub used: u64,
            /// Bytes appended and not yet on the device.
            pub pending: u64,
            pub capacity: u64,
            pub checkpoint: u64,
            /// Trouble with the device that needs the operator, although the log still works.
            pub trouble: Option<String>,
            pub device: String,
        }

        impl Counters {
            /// The counts; the other fields are left empty.
            pub(crate) fn read(&self) -> Stats {
                Stats {
                    $($name: self.$name.load(Relaxed),)+
                    gate_waits: self.gate_waits.read(),
                    room_waits: self.room_waits.read(),
                    ..Stats::default()
                }
            }
        }
    };
}

counters! {
    /// Records appended by transactions.
    records,
    record_bytes,
    batches,
    /// Bytes of batches written, with headers and padding.
    batch_bytes,
    /// Flushes of the device: one for each batch and each superblock.
    flushes,
    /// Time that writes took, with their flushes, in nanoseconds.
    flush_ns,
    flush_ns_max,
    /// Batches that a waiting thread wrote itself because no other transaction was at work ([`crate::Ticket::wait`]).
    led,
    checkpoints,
    /// Time that making the volume durable took, in nanoseconds.
    checkpoint_ns,
    checkpoint_ns_max,
    /// Checkpoints that made batches durable which did not fit the ring.
    absorbed,
    /// Times that the log was lost and replaced with a new one.
    renewed,
    /// Seals that waited for more transactions to join (`pace.rs`).
    company_waits,
    /// Those that no transaction joined meanwhile.
    company_vain,
    /// Seals that waited for announced requests ([`crate::Intent`]).
    intent_waits,
    /// Those that gave up after [`INTENT_WAIT_MAX`](crate::limits::INTENT_WAIT_MAX).
    intent_timeouts,
    /// Times that a closed gate was opened again because open transactions did not end.
    gate_reopened,
    admit_slowed,
    /// Admissions that waited for space.
    admit_waited,
}

impl Counters {
    pub(crate) fn record(&self, bytes: u64) {
        self.records.fetch_add(1, Relaxed);
        self.record_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn batch(&self, bytes: u64) {
        self.batches.fetch_add(1, Relaxed);
        self.batch_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn flush(&self, took: Duration) {
        let ns = took.as_nanos() as u64;
        self.flushes.fetch_add(1, Relaxed);
        self.flush_ns.fetch_add(ns, Relaxed);
        self.flush_ns_max.fetch_max(ns, Relaxed);
        // The device has one user at a time, so no other update comes between load and store.
        let recent = match self.flush_ns_recent.load(Relaxed) {
            0 => ns,
            recent => recent - recent / RECENT_FLUSHES + ns / RECENT_FLUSHES,
        };
        self.flush_ns_recent.store(recent.max(1), Relaxed);
    }

    /// Running mean of what a flush takes; `None` before the first.
    pub(crate) fn recent_flush(&self) -> Option<Duration> {
        Some(self.flush_ns_recent.load(Relaxed)).filter(|ns| *ns > 0).map(Duration::from_nanos)
    }

    pub(crate) fn checkpoint(&self, took: Duration) {
        let ns = took.as_nanos() as u64;
        self.checkpoints.fetch_add(1, Relaxed);
        self.checkpoint_ns.fetch_add(ns, Relaxed);
        self.checkpoint_ns_max.fetch_max(ns, Relaxed);
    }
}
