//! Limits for everything that a capture could make grow, and what happens beyond each.

/// Bytes read at once from a capture, and the largest frame that needs no larger buffer.
pub const READ_BUFFER: usize = 512 << 10;

/// The largest frame or block that is read. A larger one is skipped.
pub const BLOCK_MAX: usize = 1 << 20;

/// The largest frame or block that is skipped. A larger one counts as damage, where the capture ends.
pub const SKIPPED_MAX: u32 = 16 << 20;

/// Bytes of a frame. What is beyond counts as not captured.
pub const FRAME_MAX: usize = 256 << 10;

/// Interfaces of one section of a pcapng file. Frames of later ones are counted as unreadable.
pub const INTERFACES_MAX: usize = 4096;

/// The longest RPC record. A longer record mark is not one: the stream is searched for the next plausible mark.
pub const RECORD_MAX: u32 = 32 << 20;

/// The longest piece of a record that is held for decoding: an operation's arguments without data. A longer one is
/// not decoded, but its record is still counted.
pub const PIECE_MAX: usize = 64 << 10;

/// Bytes of such pieces over all connections. Beyond that, a record that needs more is not decoded further.
pub const HELD_ALL_MAX: usize = 4 << 20;

/// Capacity for such pieces that a connection keeps between records, in bytes.
pub const HELD_IDLE_MAX: usize = 2 << 10;

/// Operations remembered per COMPOUND. Later ones are ignored.
pub const OPERATIONS_MAX: usize = 1024;

/// Operations that are kept of an incomplete COMPOUND if all memory for incomplete records is used. A pending call
/// counts once more for each so many.
pub const OPERATIONS_KEPT: usize = 64;

/// Messages that are taken at a time of the segments behind a hole.
pub const MESSAGES_MAX: usize = 512;

/// Memory in bytes for segments after a hole, per direction of a connection. Beyond that the hole counts as one of
/// the capture. On a path with a long delay, a whole receive window arrives before the retransmission. The part of it
/// that is data of the record with the hole is not held.
pub const STORED_BYTES_MAX: usize = 5 << 20;

/// The same over all connections.
pub const STORED_BYTES_ALL_MAX: usize = 6 << 20;

/// Segments held after a hole, per direction, with or without their bytes. Beyond that the hole counts as one of the
/// capture.
pub const STORED_SEGMENTS_MAX: usize = 8192;

/// Segments after a hole that the other end has acknowledged. Then it has received what the capture lacks, so the
/// hole is one of the capture.
pub const STORED_ACKNOWLEDGED_MAX: usize = 16;

/// The largest jump of a sequence number in bytes. Beyond that the segment belongs to other traffic on the same
/// ports.
pub const WINDOW_MAX: i32 = 64 << 20;

/// Bytes of a stream that are searched for RPC at any offset. After that only the beginnings of segments are.
pub const SEARCHED_MAX: u64 = 256 << 10;

/// Incomplete fragmented datagrams. Beyond that the oldest is dropped.
pub const FRAGMENTED_MAX: usize = 64;

/// Bytes of their fragments. Beyond that the oldest datagram is dropped.
pub const FRAGMENTED_BYTES_MAX: usize = 1 << 20;

/// Nanoseconds between fragments of one datagram. Later ones belong to another datagram with the same identification.
pub const FRAGMENTED_NS_MAX: u64 = 5_000_000_000;

/// Connections followed at the same time. Beyond that the quarter that was silent longest is forgotten.
pub const CONNECTIONS_MAX: usize = 3_500;

/// Pending calls over all connections. Beyond that the older half counts as unanswered.
pub const CALLS_MAX: usize = 20_000;

/// Pending calls beyond which a frame's further calls are not remembered. The older half is forgotten after the frame.
pub const CALLS_HARD_MAX: usize = CALLS_MAX + 2048;

/// Transaction ids remembered per connection of recently answered calls, to recognise retransmissions.
pub const ANSWERED_MAX: usize = 32;

/// Unanswered calls remembered of the previous connection on the same ports. Retransmissions of others count as new
/// calls.
pub const UNANSWERED_MAX: usize = 256;

/// Handles of files that are selected by name. Beyond that, calls are found only by the names in them.
pub const FILES_MAX: usize = 1 << 14;

/// Bytes held of a record for `--anonymise`. A longer one is truncated.
pub const WHOLE_MAX: usize = 4 << 20;

/// Memory in bytes for these over all connections.
pub const WHOLE_ALL_MAX: usize = 8 << 20;

/// Memory in bytes for frames that wait until their records are complete (`--anonymise`). Records completed later
/// stay zeroed.
pub const WAITING_MAX: usize = 12 << 20;

/// Rows of a table. Further programs, versions and operations count only in the totals.
pub const ROWS_MAX: usize = 88;

/// Bytes read of a client's counters: ten thousand mounts.
pub const MOUNTSTATS_BYTES_MAX: u64 = 64 << 20;

/// NFS mounts read of a client's counters.
pub const MOUNTS_MAX: usize = 16 << 10;

/// Operations of a mount.
pub const MOUNT_OPERATIONS_MAX: usize = 256;

/// Connections of a mount.
pub const MOUNT_TRANSPORTS_MAX: usize = 64;
