//! Every limit of this crate, in one place.

use std::time::Duration;

pub use landfast_intentlog::limits::WATCH_EVERY;

/// Times that a lock on a directory is tried for, and the pause between two tries.
pub const LOCK_TRIES: u32 = 5;
/// See [`LOCK_TRIES`].
pub const LOCK_TRY_PAUSE: Duration = Duration::from_millis(20);

/// Looks in a row that must find something of the state directory missing before that is believed: whoever deletes the whole exported
/// directory deletes that first.
pub const MISSING_LOOKS: u32 = 2;

/// Longest component of a path, bytes (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// Longest target of a symbolic link, bytes (`PATH_MAX` without its NUL).
pub const SYMLINK_BYTES_MAX: usize = 4095;

/// Longest kernel handle that this crate takes, bytes. ext4 uses 8, XFS 8 to 24, btrfs 20 to 40; the kernel's own
/// limit is 128. Small enough that a handle fits a wire filehandle with its frame, and a staging name in hex.
pub const HANDLE_BYTES_MAX: usize = 64;

/// Times that a handle is opened before the kernel's "out of memory" is believed.
pub const HANDLE_TRIES: u32 = 64;

/// Longest name of an extended attribute, bytes (`XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Longest value of an extended attribute, bytes (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65536;

/// Namespace of the extended attributes that clients can have; their names on the wire come without it.
pub const XATTR_USER_PREFIX: &str = "user.";

/// Largest list of the names of an object's extended attributes, bytes (`XATTR_LIST_MAX`).
pub const XATTR_LIST_BYTES_MAX: usize = 65536;

/// Entries of an access control list at most. The filesystems take less: ext4 about 500, XFS 8,191, btrfs about 1,000.
pub const ACL_ENTRIES_MAX: usize = 1024;

/// Numbers of lost inodes that are remembered as taken; the oldest are forgotten beyond. 8 bytes each.
pub const CLAIMS_MAX: usize = 1 << 20;

/// Threads that recovery uses at most: what they make goes through one journal.
pub const RECOVERY_THREADS_MAX: usize = 8;

/// Objects that a thread of recovery takes at a time.
pub const RECOVERY_PORTION: usize = 256;

/// Lines that recovery says about what others have changed; the rest is counted.
pub const RECOVERY_LINES_MAX: usize = 100;

/// Room on the disk for what of an object is not its contents: an inode, an entry, and the rest of its last block.
pub const RECOVERY_OBJECT_BYTES: u64 = 16 << 10;

/// Descriptors that each thread of recovery keeps open for objects it comes back to.
pub const DESCRIPTORS_KEPT: usize = 64;

/// Commits that recovery does on btrfs at least: a crash may lose one transaction that was being committed and the one
/// after it, and clients may know handles from both that the log does not.
pub const BTRFS_COMMITS_MIN: u32 = 2;

/// Commits that recovery does on btrfs at most, to bring its generation past that of the handles that are known. A
/// crash loses one or two.
pub const BTRFS_COMMITS_MAX: u32 = 64;

/// Largest space reserve for recovery, bytes.
pub const RESERVE_BYTES_MAX: u64 = 256 << 20;

/// Smallest space reserve, bytes: where there is not even that, there is none.
pub const RESERVE_BYTES_MIN: u64 = 64 << 10;

/// The space reserve is this part of the filesystem, if that is less.
pub const RESERVE_PART: u64 = 64;

/// Truncations of one file that are known to be under way at once; more are told to try again.
/// In the crate's own tests so few that they are reached.
pub const CUTS_MAX: usize = if cfg!(test) { 3 } else { 16 };

/// The attribute that says them, bytes at most: a handle, a time and [`CUTS_MAX`] pairs of numbers.
pub const CUT_BYTES_MAX: usize = HANDLE_BYTES_MAX + 24 + 20 * CUTS_MAX;

/// Nodes kept in memory. Each takes about 500 bytes. More are held only while clients' requests, open files or the
/// change attribute's rule (a second after an own change) need them.
pub const NODES_MAX: usize = 65_536;

/// How long attributes that were looked at are good, unless an operation changes them before: what a local process does
/// to an exported object is seen this much later at most.
pub const ATTRS_FRESH: Duration = Duration::from_secs(1);

/// With `relatime` an access time that is as old as this is renewed by reading, seconds. An hour less than the kernel's.
pub const ATIME_STAYS_SECS: i64 = 23 * 3600;

/// Descriptors that nodes keep open at most; the process's own limit may make it fewer.
pub const NODE_FDS_MAX: usize = 16_384;

/// Part of the process's descriptor limit that nodes may use, as a divisor: the rest is for open files, sockets and
/// directories being read.
pub const NODE_FDS_DIVISOR: u64 = 3;

/// Descriptors of files that were accessed without an open and stay open for the next access; the oldest is closed first.
pub const BRIEF_OPENS_MAX: usize = 1024;

/// How long such a descriptor serves before the file is opened again. What a local process does to the rights of a file
/// that is being accessed is seen this much later at most.
pub const BRIEF_OPEN: Duration = Duration::from_millis(500);

/// Files of which unstable data may be out, which are those that have a descriptor to tell of errors in writing it back; the
/// process's own limit of descriptors may make it fewer. Beyond, unstable writes to further files are done stably.
/// In the crate's own tests so few that they are reached.
pub const WITNESSES_MAX: usize = if cfg!(test) { 3 } else { 4096 };

/// Part of the process's descriptor limit that these may use, as a divisor.
pub const WITNESS_FDS_DIVISOR: u64 = 8;

/// A file whose unstable data nobody has committed for so long is committed by the server itself.
pub const UNSTABLE_OLD: Duration = Duration::from_secs(10);

/// Separately locked parts of the node cache.
pub const NODE_SHARDS: usize = 16;

/// Stable writes and commits up to this many bytes go into the log; larger ones are flushed to the file itself.
/// In the crate's own tests so few that a simulated file can have more.
pub const LOGGED_DATA_MAX: u64 = if cfg!(test) { 2 << 10 } else { 1 << 20 };

/// Bytes that one step of a larger copy copies: the step cannot be stopped.
pub const COPY_PIECE_BYTES: u64 = 8 << 20;

/// Buffer for copying where the kernel cannot, bytes.
pub const COPY_BUFFER_BYTES: u64 = 1 << 20;

/// Objects that a request keeps in mind because its answer may tell of them; of more only the latest batch.
pub const RESTING_NODES_MAX: usize = 64;

/// Ranges of unstable data remembered for a file; a file with more is flushed as a whole at its commit.
pub const DIRTY_RANGES_MAX: usize = 64;

/// Bytes of one read.
pub const READ_BYTES_MAX: u32 = 16 << 20;

/// Entries of one page of a directory.
pub const READDIR_ENTRIES_MAX: usize = 16_384;

/// Buffer for reading a directory, bytes.
pub const READDIR_BUFFER_BYTES: usize = 32 << 10;

/// Listings of directories that are kept for the next reader, each of at most so many bytes.
pub const LISTINGS_MAX: usize = 8;
/// See [`LISTINGS_MAX`]; a larger directory is read each time.
pub const LISTING_BYTES_MAX: usize = 256 << 10;

/// Devices upon devices that are looked through for the file that keeps their bytes.
pub const STACKED_MAX: usize = 8;

/// Directories between an object and the root, at most, when a directory's parent is looked up.
pub const DEPTH_MAX: usize = 4_096;

/// Largest offset or size of a file, bytes.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// Size of a new log, unless told otherwise, bytes.
pub const LOG_SIZE_BYTES: u64 = 256 << 20;
