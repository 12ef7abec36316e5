//! The limits of everything that a capture could make grow, and what happens at each.

/// Bytes read at once from a capture, and the largest frame that needs no larger buffer.
pub const READ_BUFFER: usize = 1 << 20;

/// The largest frame or block. A larger one is damage: the capture is read up to there.
pub const BLOCK_MAX: usize = 16 << 20;

/// Interfaces of one section of a pcapng file. Frames of later ones are counted as unreadable.
pub const INTERFACES_MAX: usize = 4096;

/// The longest RPC record. A longer record mark is none: the stream is searched for the next plausible one.
pub const RECORD_MAX: u32 = 32 << 20;

/// The longest piece of a record that is held to be decoded: an operation's arguments without its data. What is longer is not
/// decoded; its record is counted all the same.
pub const PIECE_MAX: usize = 64 << 10;

/// Bytes of such pieces of all connections together. Beyond that a record that needs more is not decoded further.
pub const HELD_ALL_MAX: usize = 8 << 20;

/// Bytes of room for them that a connection keeps between records.
pub const HELD_IDLE_MAX: usize = 2 << 10;

/// Operations of one COMPOUND that are remembered. Later ones are not looked at.
pub const OPERATIONS_MAX: usize = 1024;

/// Memory in bytes that one direction of a connection takes for what came behind a hole. Then that is taken for a hole in the
/// capture. Over a long way a whole receive window comes before the segment that was lost; what of it is data of the record with the hole is
/// not held.
pub const STORED_BYTES_MAX: usize = 5 << 20;

/// The same for all connections together.
pub const STORED_BYTES_ALL_MAX: usize = 6 << 20;

/// Segments that one direction holds behind a hole, with or without their bytes. Then as above.
pub const STORED_SEGMENTS_MAX: usize = 8192;

/// Segments behind a hole that the other end has acknowledged. It has what the capture has not: then as above.
pub const STORED_ACKNOWLEDGED_MAX: usize = 16;

/// Bytes by which a sequence number may be off. Beyond that it belongs to something else that used the same ports.
pub const WINDOW_MAX: i32 = 64 << 20;

/// Bytes in which a stream is searched for RPC anywhere. Later only the beginnings of its segments are looked at.
pub const SEARCHED_MAX: u64 = 256 << 10;

/// Datagrams whose fragments are arriving. Beyond that the one that began first is given up.
pub const FRAGMENTED_MAX: usize = 64;

/// Bytes of their fragments. Beyond that as above.
pub const FRAGMENTED_BYTES_MAX: usize = 1 << 20;

/// Nanoseconds between fragments of one datagram. Later ones are of another with its number.
pub const FRAGMENTED_NS_MAX: u64 = 5_000_000_000;

/// Connections that are followed at a time. Beyond that the quarter that was silent longest is forgotten.
pub const CONNECTIONS_MAX: usize = 3_500;

/// Calls that wait for their replies, of all connections. Beyond that the older half is counted as unanswered.
pub const CALLS_MAX: usize = 20_000;

/// Transaction ids of a connection that were answered last, by which what is sent again is known.
pub const ANSWERED_MAX: usize = 32;

/// Unanswered calls that are remembered of the connection that had the same ports before. Others count again when they are sent again.
pub const UNANSWERED_MAX: usize = 256;

/// Handles of files that are asked for by name. Calls about further ones are found by the names in them only.
pub const FILES_MAX: usize = 1 << 14;

/// Bytes of a record that are held where whole records are wanted (`--anonymise`). A longer one is cut.
pub const WHOLE_MAX: usize = 4 << 20;

/// Memory in bytes for the same of all connections.
pub const WHOLE_ALL_MAX: usize = 8 << 20;

/// Memory in bytes for frames that wait until the records in them are whole (`--anonymise`). What comes to its end later stays zeros.
pub const WAITING_MAX: usize = 12 << 20;

/// Rows of a table. Programs, versions and operations beyond that are counted in the totals only.
pub const ROWS_MAX: usize = 96;

/// Bytes of a client's counters that are read: ten thousand mounts.
pub const MOUNTSTATS_BYTES_MAX: u64 = 64 << 20;

/// NFS mounts in a client's counters that are looked at.
pub const MOUNTS_MAX: usize = 16 << 10;

/// Operations of a mount.
pub const MOUNT_OPERATIONS_MAX: usize = 256;

/// Connections of a mount.
pub const MOUNT_TRANSPORTS_MAX: usize = 64;
