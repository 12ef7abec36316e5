//! Every limit and fixed size of the log, in one place.

use std::time::Duration;

/// Unit of every offset and length on the device, in bytes. Batches and superblocks start and end on it.
pub const BLOCK_BYTES: usize = 4096;

/// Offset of the self-test's scratch blocks on the device.
pub const SCRATCH_OFFSET: u64 = 2 * BLOCK_BYTES as u64;

/// Offset of the first byte of the ring on the device. What lies before it are the two superblocks, the
/// scratch blocks and room for later versions.
pub const RING_OFFSET: u64 = 64 * 1024;

/// Smallest device that is accepted, in bytes.
pub const DEVICE_BYTES_MIN: u64 = 256 * 1024;

/// Largest device that is used, in bytes; what lies beyond is left alone.
pub const DEVICE_BYTES_MAX: u64 = 1 << 40;

/// A batch that has grown to this many bytes is closed for further transactions, so that the first in it
/// do not wait for the last. Smaller rings use [`BATCH_RING_FRACTION`] of their size.
pub const BATCH_BYTES_MAX: u64 = 4 << 20;

/// A batch is closed, at the latest, at the ring's size divided by this.
pub const BATCH_RING_FRACTION: u64 = 16;

/// Bytes not yet flushed above which [`crate::Log::admit`] waits, as a multiple of the largest batch.
pub const PENDING_BATCHES_MAX: u64 = 4;

/// Part of the ring that only a checkpoint's state snapshot may use: the ring's size divided by this, or
/// twice the last snapshot if that is more, and never more than half of the ring.
pub const RESERVE_RING_FRACTION: u64 = 16;

/// A part of a snapshot has about so many bytes, so that nobody waits for more of it at once; in smaller rings
/// [`SNAPSHOT_PART_RING_FRACTION`] of their size.
pub const SNAPSHOT_PART_BYTES: u64 = 1 << 20;

/// A part of a snapshot has, at most, about the ring's size divided by this.
pub const SNAPSHOT_PART_RING_FRACTION: u64 = 64;

/// A checkpoint starts at the latest when this many percent of the usable ring (without the reserve) are used.
pub const CHECKPOINT_PERCENT: u64 = 50;

/// Checkpoints after which a half of a mirror that was lost is surely known to be behind: the volume's tag may be one
/// ahead of a log after a crash, so one is not enough.
pub const CHECKPOINTS_ALONE: u64 = 2;

/// Above this many percent of the usable ring [`crate::Log::admit`] slows its callers.
pub const SLOW_PERCENT: u64 = 75;

/// Above this many percent of the usable ring [`crate::Log::admit`] holds its callers back.
pub const WAIT_PERCENT: u64 = 95;

/// Longest delay that [`crate::Log::admit`] adds between [`SLOW_PERCENT`] and [`WAIT_PERCENT`].
pub const SLOW_DELAY_MAX: Duration = Duration::from_millis(20);

/// A checkpoint starts at the latest this long after the first record that none covers.
pub const CHECKPOINT_AFTER: Duration = Duration::from_secs(5);

/// Longest time that a seal waits for requests already in hand (see [`crate::Intent`]).
pub const INTENT_WAIT_MAX: Duration = Duration::from_micros(500);

/// A waiter writes its batch on its own thread only while flushes take at most this long, so that a thread that has
/// other work is not kept from it: two changes of threads cost tens of microseconds, about what such a flush costs.
pub const LEAD_FLUSH_MAX: Duration = Duration::from_micros(400);

/// After a batch that several transactions shared, so many batches of one pass before a request counts as alone
/// again ([`crate::Intent::in_company`]).
pub const COMPANY_BATCHES: u32 = 8;

/// A batch waits for company only where so many transactions were of late at work together.
pub const COMPANY_MIN: u64 = 3;

/// Where more than this part of the recent waits for company were in vain, few are made.
pub const COMPANY_VAIN_PERCENT: u32 = 70;

/// There one wait in this many is made all the same, to see whether that is still so.
pub const COMPANY_TRIES: u32 = 16;

/// How many waits for company the running mean is about that [`COMPANY_VAIN_PERCENT`] is held against.
pub const RECENT_COMPANY: u32 = 8;

/// A batch waits for company for three quarters of what a flush takes these days, and never longer than this.
pub const COMPANY_WAIT_MAX: Duration = Duration::from_millis(2);

/// Waits for company that would be shorter than this are none: falling asleep and waking takes about as long.
pub const COMPANY_WAIT_MIN: Duration = Duration::from_micros(10);

/// How many flushes the running mean is about that [`LEAD_FLUSH_MAX`] is held against, and that waits for company are
/// measured by.
pub const RECENT_FLUSHES: u64 = 8;

/// A closed gate that open transactions do not leave within this time is opened for a moment: whoever holds
/// what they wait for may be waiting to begin.
pub const GATE_WAIT_MAX: Duration = Duration::from_millis(2);

/// How often it is looked whether the log is still where and what it was.
pub const WATCH_EVERY: Duration = Duration::from_millis(400);

/// Every so many looks also read back what was written last.
pub const WATCH_CONTENTS_EVERY: u32 = 2;

/// Longest time that is waited, after a failure, for transactions that are still open.
pub const QUIESCE_MAX: Duration = Duration::from_secs(5);

/// A log that was found lost is written anew only if what was being done to it ends within this time.
pub const RENEW_WAIT_MAX: Duration = Duration::from_secs(5);

/// Lost logs, or what stood in their place, that are put aside beside one log.
pub const ASIDE_MAX: u32 = 100;

/// Flushes of which at least one must reach the device, where it counts them.
pub const FLUSH_TRIES: u32 = 3;

/// Devices below a log that are looked at to say what it is on.
pub const DEVICE_LAYERS_MAX: usize = 16;

/// Most rounds of the self-test for each way of flushing.
pub const SELF_TEST_ROUNDS: usize = 15;

/// The self-test stops after this time, once each way has had [`SELF_TEST_ROUNDS_MIN`] rounds.
pub const SELF_TEST_TIME: Duration = Duration::from_millis(150);

/// Fewest rounds of the self-test for each way of flushing.
pub const SELF_TEST_ROUNDS_MIN: usize = 3;

/// Injected flush latencies shorter than this are spun, because a sleep is less precise than that.
pub const SPIN_BELOW: Duration = Duration::from_micros(200);

/// Size of one read or zeroing write where the whole ring is gone through, in bytes.
pub const STREAM_BYTES: usize = 1 << 20;

/// Smallest buffer of a batch, in bytes.
pub const BUFFER_BYTES_MIN: usize = 64 * 1024;

/// Buffers larger than this are given back to the system after use, in bytes.
pub const BUFFER_BYTES_KEPT: usize = 8 << 20;

/// Buffers kept for the next batches.
pub const BUFFERS_KEPT: usize = 3;

/// Bytes at the front of a device without superblocks that must be zero before it is made a log.
pub const BLANK_CHECK_BYTES: u64 = 64 << 20;

/// How long a log's block device that somebody else has claimed is waited for; then the log counts as in use.
pub const BUSY_WAIT_MAX: Duration = Duration::from_secs(1);

/// So often it is tried meanwhile.
pub const BUSY_POLL: Duration = Duration::from_millis(20);
