//! Which log to open, and how.

use std::time::Duration;

use crate::device::{LogPlace, SyncMethod};
use crate::faults;
use crate::limits::{CHECKPOINT_AFTER, INTENT_WAIT_MAX, LEAD_FLUSH_MAX};

#[derive(Debug, Clone)]
pub struct Config {
    /// Where the log stands.
    pub place: LogPlace,
    /// Size of a file that is created, in bytes; at least [`DEVICE_BYTES_MIN`](crate::limits::DEVICE_BYTES_MIN).
    pub create_size: u64,
    /// The volume that the log belongs to. A log of another volume is refused.
    pub volume_id: [u8; 16],
    /// Accept a filesystem or device that cannot keep what a flush promises, and warn of it.
    pub accept_weak: bool,
    /// How writes are made durable; `None` measures both ways and takes the faster.
    pub sync_method: Option<SyncMethod>,
    /// Shortest time that a flush takes, for experiments: the rest is spun or slept. `None`: as fast as it goes.
    pub injected_flush: Option<Duration>,
    /// Longest time from a record to the checkpoint that covers it.
    pub checkpoint_after: Duration,
    /// Longest time that a seal waits for announced requests ([`crate::Intent`]).
    pub intent_wait: Duration,
    /// A waiting thread that is alone flushes itself while flushes take no longer than this; zero: never.
    pub lead_flush: Duration,
    /// For simulations: the log's identity and salt are derived from this number. Each opening of a log needs another
    /// number: with the same salt, batches of an earlier run would count as this one's.
    pub seed: Option<u64>,
}

impl Config {
    pub fn new(place: impl Into<LogPlace>, create_size: u64, volume_id: [u8; 16]) -> Self {
        Config {
            place: place.into(),
            create_size,
            volume_id,
            accept_weak: faults::weak_accepted(),
            sync_method: None,
            injected_flush: None,
            checkpoint_after: CHECKPOINT_AFTER,
            intent_wait: INTENT_WAIT_MAX,
            lead_flush: LEAD_FLUSH_MAX,
            seed: None,
        }
    }
}
