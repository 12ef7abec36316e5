//! Every named limit of this crate, in one place.

use std::time::Duration;

/// Unit in which the emulated disk remembers what is not flushed, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// The smallest piece of a block that a torn write may leave behind, in bytes.
pub const SECTOR_BYTES: usize = 512;

/// Unit of memory and of locking of the emulated disk, in bytes.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Largest emulated disk, in bytes: it lives in memory, twice.
pub const DISK_BYTES_MAX: u64 = 64 << 30;

/// Largest read or write that the emulated disk takes from FUSE in one request, in bytes.
pub const DISK_TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Requests that may wait in the kernel for the emulated disk at once.
pub const DISK_QUEUE_MAX: u16 = 128;

/// Threads that serve one emulated disk.
pub const DISK_THREADS: usize = 8;

/// Longest latency that a disk setting may ask for.
pub const LATENCY_MAX: Duration = Duration::from_secs(60);

/// The last part of a short delay that is busy-waited: a sleep wakes up some 35 us late.
pub const SPIN: Duration = Duration::from_micros(60);

/// Delays below this are precise only when their end is busy-waited.
pub const SPIN_BELOW: Duration = Duration::from_micros(200);

/// How often a free loop device is looked for again after another process took it.
pub const LOOP_TRIES: u32 = 64;

/// Longest wait for a process that the lab started to say that it is ready.
pub const READY_WAIT: Duration = Duration::from_secs(60);

/// Bytes that one direction of an emulated link may hold before its sender is held back.
pub const LINK_BYTES_MAX: usize = 8 << 20;

/// Bytes that the emulated link reads at once.
pub const LINK_READ_BYTES: usize = 256 << 10;

/// Round trips of one self-check of an emulated link.
pub const LINK_CHECK_ROUNDS: u32 = 200;

/// Longest wait of the one-at-a-time client for a connection or a reply.
pub const SERIAL_PATIENCE: Duration = Duration::from_secs(60);

/// Largest WRITE of the one-at-a-time client, in bytes.
pub const SERIAL_WRITE_BYTES_MAX: usize = 1 << 20;

/// Operations in one COMPOUND that the one-at-a-time client asks for: enough to walk to an export.
pub const SERIAL_OPS_MAX: u32 = 32;

/// Wait before a request is sent again that the server answered with DELAY or GRACE.
pub const RETRY_WAIT: Duration = Duration::from_millis(20);

/// After this long such a request is given up.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(120);

/// Largest file of an archive that the lab handles in memory, in bytes.
pub const MEMBER_BYTES_MAX: u64 = 1 << 30;

/// Pause between two attempts to connect to a server that is starting.
pub const READY_POLL: Duration = Duration::from_millis(5);

/// Lines that are kept of what a child process says on standard error.
pub const CHILD_LINES_MAX: usize = 200;

/// Time after which a row of the demo begins no further file: what it did then is its pace.
pub const DEMO_ROW_TIME: Duration = Duration::from_secs(8);

/// On another server `untar` gets so many times the files that one operation at a time put there in its time: with fewer, what it needs
/// once (directories, the first flushes) would make it look slow.
pub const UNTAR_FILES_TIMES: u64 = 64;

/// Files that a row of the demo renames after its extraction, one after another, before the power is cut.
pub const DEMO_RENAMED_FILES: u64 = 32;

/// Files of the demo's archive that a client which copies single files gets to see.
pub const DEMO_COPIED_FILES_MAX: usize = 4096;

/// A power cut comes after fewer acknowledgements than this ...
pub const CUT_AFTER_ACKS: u64 = 500;

/// ... and within this time after the last of them.
pub const CUT_WITHIN: Duration = Duration::from_millis(30);

/// After this time it comes in any case.
pub const CUT_PATIENCE: Duration = Duration::from_secs(20);

/// Handles of removed objects that are tried after each power cut.
pub const REMOVED_HANDLES_MAX: usize = 40;
/// How long after a restart a file may stay that was removed while it was open, and how often it is looked at.
pub const REMOVED_GONE_WITHIN: Duration = Duration::from_secs(10);
pub const REMOVED_LOOKED_EACH: Duration = Duration::from_millis(20);

/// Under `landfast verify` a power cut comes after fewer acknowledgements than this ...
pub const PEERCUT_ACKS: u64 = 600;

/// ... and within this time after the last of them.
pub const PEERCUT_WITHIN: Duration = Duration::from_millis(1500);

/// Times that files are waited for whose write-back can fail.
pub const PEERCUT_LATE: u64 = 12;

/// How long `landfast verify check` waits for a server that has just recovered.
pub const VERIFY_WAIT: Duration = Duration::from_secs(60);

/// For so long the cut waits until of a quarter of the pairs only the second has been answered ...
pub const PAIRS_ALONE: Duration = Duration::from_millis(1500);

/// ... and then for so long until it is so of one.
pub const PAIRS_ALONE_FEWER: Duration = Duration::from_millis(500);

/// Longest wait for one of its commands.
pub const PEERCUT_PATIENCE: Duration = Duration::from_secs(120);

/// How often its journal is looked at.
pub const PEERCUT_POLL: Duration = Duration::from_millis(10);

/// How long the machine is without power at least.
pub const PEERCUT_BOOT: Duration = Duration::from_millis(1100);

/// Calls of a version 3 client that are repeated after each power cut.
pub const V3_REMEMBERED_MAX: usize = 6;

/// Size of the log of each further export of a server.
pub const OTHER_LOG_BYTES: u64 = 16 << 20;

/// Longest wait in a scene of a power cut for what the server or the kernel does by itself.
pub const SCENE_PATIENCE: Duration = Duration::from_secs(30);

/// Longest wait for a server to come by a named point.
pub const POINT_PATIENCE: Duration = Duration::from_secs(3);

/// Passes of a named point that are left for the making of each client's session ...
pub const POINT_PASSES_SESSION: u64 = 6;

/// ... and before so many more the server is stopped there ...
pub const POINT_PASSES: u64 = 120;

/// ... or so many, of one that it seldom passes.
pub const POINT_PASSES_RARE: u64 = 2;

/// The lease of the server under a mount that is cut off: longer than the longest pause of a client that waits for its server
/// (`landfast_client::limits::BACKOFF_MAX`, 2 s), so that a server which was away for a moment is found again within it.
pub const MOUNT_CUTS_LEASE: Duration = Duration::from_secs(5);

/// Size of its data disk.
pub const MOUNT_CUTS_DISK_BYTES: u64 = 1 << 30;

/// What a mount with `close=local` may lose at most: the age at which it sends what it has (`flush_age`), and the time that sending
/// takes on a busy machine.
pub const MOUNT_CUTS_LOST_MAX: Duration = Duration::from_millis(1000 + 1500);

/// Longest wait of a second client for one request.
pub const MOUNT_CUTS_WAIT_MAX: Duration = Duration::from_secs(2);

/// Longest wait for a mount to be given a directory.
pub const MOUNT_CUTS_OWN_WAIT: Duration = Duration::from_secs(30);

/// Longest wait for programs to end, and for a mount to send all that it has.
pub const MOUNT_CUTS_PATIENCE: Duration = Duration::from_secs(60);

/// What a mount and the programs that use it have together, where memory is short (`landfast lab run mount-short-of-memory`).
pub const SHORT_OF_MEMORY_BYTES: u64 = 96 << 20;

/// Longest wait for one of those programs.
pub const SHORT_OF_MEMORY_PATIENCE: Duration = Duration::from_secs(180);
