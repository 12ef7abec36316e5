//! Every limit and fixed size of the log, in one place.

use std::time::Duration;

/// Unit of every offset and length on the device, in bytes. Batches and superblocks start and end on it.
pub const BLOCK_BYTES: usize = 4096;

/// Offset of the self-test's scratch blocks on the device.
pub const SCRATCH_OFFSET: u64 = 2 * BLOCK_BYTES as u64;

/// Offset of the ring on the device. Before it are the two superblocks, the scratch blocks and room for later versions.
pub const RING_OFFSET: u64 = 64 * 1024;

/// Smallest device that is accepted, in bytes.
pub const DEVICE_BYTES_MIN: u64 = 256 * 1024;

/// Most bytes of a device that are used; the rest is left alone.
pub const DEVICE_BYTES_MAX: u64 = 1 << 40;

/// A batch of this many bytes takes no further transactions, so that the first in it do not wait for the last. In small
/// rings [`BATCH_RING_FRACTION`] sets a lower limit.
pub const BATCH_BYTES_MAX: u64 = 4 << 20;

/// A batch is closed, at the latest, at the ring's size divided by this.
pub const BATCH_RING_FRACTION: u64 = 16;

/// Bytes not yet flushed above which [`crate::Log::admit`] waits, as a multiple of the largest batch.
pub const PENDING_BATCHES_MAX: u64 = 4;

/// Part of the ring that only a checkpoint's state snapshot may use: the ring's size divided by this, or
/// twice the last snapshot if that is more, and never more than half of the ring.
pub const RESERVE_RING_FRACTION: u64 = 16;

/// Bytes of a part of a snapshot, about: transactions wait while one part is taken. In small rings
/// [`SNAPSHOT_PART_RING_FRACTION`] sets a lower limit.
pub const SNAPSHOT_PART_BYTES: u64 = 1 << 20;

/// A part of a snapshot has, at most, about the ring's size divided by this.
pub const SNAPSHOT_PART_RING_FRACTION: u64 = 64;

/// A checkpoint starts at the latest when this many percent of the usable ring (without the reserve) are used.
pub const CHECKPOINT_PERCENT: u64 = 50;

/// Checkpoints after which the lost half of a mirror is certain to be refused as an older copy. The volume's tag may be one
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

/// Longest time that a seal waits for announced requests ([`crate::Intent`]).
pub const INTENT_WAIT_MAX: Duration = Duration::from_micros(500);

/// A waiting thread writes its batch itself only while flushes take at most this long: a longer flush would keep the
/// thread from other work. Two changes of threads cost tens of microseconds, about as much as a short flush.
pub const LEAD_FLUSH_MAX: Duration = Duration::from_micros(400);

/// After a batch with several transactions, a request counts as alone again after this many batches with one
/// ([`crate::Intent::in_company`]).
pub const COMPANY_BATCHES: u32 = 8;

/// A batch waits for company only if at least this many transactions recently ran together.
pub const COMPANY_MIN: u64 = 2;

/// If more than this many percent of the recent waits for company were in vain, only few are made.
pub const COMPANY_VAIN_PERCENT: u32 = 70;

/// In that case one wait in this many is made, to see whether that is still so.
pub const COMPANY_TRIES: u32 = 16;

/// Waits for company in the running mean that is compared with [`COMPANY_VAIN_PERCENT`].
pub const RECENT_COMPANY: u32 = 8;

/// A batch waits for company for three quarters of a recent flush, and never longer than this.
pub const COMPANY_WAIT_MAX: Duration = Duration::from_millis(2);

/// Waits for company that would be shorter than this are left out: to sleep and wake takes about as long.
pub const COMPANY_WAIT_MIN: Duration = Duration::from_micros(10);

/// Flushes in the running mean that is compared with [`LEAD_FLUSH_MAX`] and that limits waits for company.
pub const RECENT_FLUSHES: u64 = 8;

/// A closed gate opens for a moment if transactions are still open after this time: the holder of a lock that they need
/// may be waiting to begin.
pub const GATE_WAIT_MAX: Duration = Duration::from_millis(2);

/// Interval of the checks that the log is still there and unchanged.
pub const WATCH_EVERY: Duration = Duration::from_millis(400);

/// One check in this many also reads back what was written last.
pub const WATCH_CONTENTS_EVERY: u32 = 2;

/// Longest wait, after a failure, for transactions that are still open.
pub const QUIESCE_MAX: Duration = Duration::from_secs(5);

/// A lost log is replaced only if the writer can begin within this time.
pub const RENEW_WAIT_MAX: Duration = Duration::from_secs(5);

/// Most files that are kept under other names beside one log because they were at its path.
pub const ASIDE_MAX: u32 = 100;

/// Flushes of which at least one must reach a device that counts them.
pub const FLUSH_TRIES: u32 = 3;

/// Most devices below a log that are described.
pub const DEVICE_LAYERS_MAX: usize = 16;

/// Most rounds of the self-test for each way of flushing.
pub const SELF_TEST_ROUNDS: usize = 64;

/// The self-test stops after this time, once each way has had [`SELF_TEST_ROUNDS_MIN`] rounds.
pub const SELF_TEST_TIME: Duration = Duration::from_millis(150);

/// Fewest rounds of the self-test for each way of flushing.
pub const SELF_TEST_ROUNDS_MIN: usize = 3;

/// Injected flush latencies shorter than this are spun, because a sleep is less precise than that.
pub const SPIN_BELOW: Duration = Duration::from_micros(200);

/// Size of one read, or of one write of zeroes, in a pass over the whole ring, in bytes.
pub const STREAM_BYTES: usize = 1 << 20;

/// Each thread that searches a log for lost batches has at least so many bytes of it.
pub const HOLE_SEARCH_BYTES_EACH: u64 = 64 << 20;

/// Threads that search a log at most: as many reads as a fast device needs at once to be busy.
pub const HOLE_SEARCH_THREADS_MAX: u64 = 4;

/// Smallest buffer of a batch, in bytes.
pub const BUFFER_BYTES_MIN: usize = 64 * 1024;

/// Larger buffers are returned to the system after use, in bytes. A batch takes what the transactions that are open when it is full still
/// append: with many large requests at a time that is more than twice [`BATCH_BYTES_MAX`].
pub const BUFFER_BYTES_KEPT: usize = 16 << 20;

/// Buffers kept for the next batches.
pub const BUFFERS_KEPT: usize = 2;

/// Bytes at the front of a device without superblocks that must be zero before it is made a log.
pub const BLANK_CHECK_BYTES: u64 = 64 << 20;

/// How long to wait for a block device that another program has claimed, before the log counts as in use.
pub const BUSY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Interval of the attempts meanwhile.
pub const BUSY_POLL: Duration = Duration::from_millis(20);
