//! Counts what a session has sent and received.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionStats {
    /// Calls sent, with retransmissions and session setup.
    pub rpcs: u64,
    pub retransmissions: u64,
    /// Sessions made after the first.
    pub renewals: u64,
    /// Calls given up because the server's reply was no RPC record.
    pub garbled: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) rpcs: AtomicU64,
    pub(crate) retransmissions: AtomicU64,
    pub(crate) renewals: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
    pub(crate) garbled: AtomicU64,
}

impl Counters {
    /// Counts a call that is sent with these arguments, for the first time or `again`.
    pub(crate) fn sent(&self, args: &[Bytes], again: bool) {
        self.rpcs.fetch_add(1, Ordering::Relaxed);
        self.retransmissions.fetch_add(u64::from(again), Ordering::Relaxed);
        let bytes = args.iter().map(Bytes::len).sum::<usize>() as u64;
        self.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, results: &Bytes) {
        self.bytes_received.fetch_add(results.len() as u64, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> SessionStats {
        SessionStats {
            rpcs: self.rpcs.load(Ordering::Relaxed),
            retransmissions: self.retransmissions.load(Ordering::Relaxed),
            renewals: self.renewals.load(Ordering::Relaxed),
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
            garbled: self.garbled.load(Ordering::Relaxed),
        }
    }
}
