//! Every limit of this crate, in one place.

use std::time::Duration;

pub use landfast_intentlog::limits::WATCH_EVERY;

/// How often a lock on a directory is tried.
pub const LOCK_TRIES: u32 = 5;
pub const LOCK_TRY_PAUSE: Duration = Duration::from_millis(20);

/// How many looks in a row must find something of the state directory missing before the server believes it: a deletion of
/// the whole exported directory removes the state directory first.
pub const MISSING_LOOKS: u32 = 2;

/// Longest component of a path, bytes (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// Longest target of a symbolic link, bytes (`PATH_MAX` without its NUL).
pub const SYMLINK_BYTES_MAX: usize = 4095;

/// Longest kernel handle that this crate accepts, bytes. ext4 uses 8, XFS 8 to 24, btrfs 20 to 40; the kernel's
/// limit is 128. A handle of this size fits, with its frame, into a wire filehandle and, in hex, into a staging name.
pub const HANDLE_BYTES_MAX: usize = 64;

/// How often a handle is opened before the kernel's "out of memory" is believed.
pub const HANDLE_TRIES: u32 = 64;

/// Longest name of an extended attribute, bytes (`XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Longest value of an extended attribute, bytes (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65536;

/// Namespace of the extended attributes that clients can use; names on the wire omit it.
pub const XATTR_USER_PREFIX: &str = "user.";

/// Largest list of the extended attribute names of an object, bytes (`XATTR_LIST_MAX`).
pub const XATTR_LIST_BYTES_MAX: usize = 65536;

/// Maximum number of entries of an access control list. The filesystems accept: ext4 about 500, XFS 8,191, btrfs about 1,000.
pub const ACL_ENTRIES_MAX: usize = 1024;

/// How many inode numbers of lost objects stay reserved; beyond that the oldest are forgotten. 8 bytes each.
pub const CLAIMS_MAX: usize = 1 << 20;

/// Maximum number of recovery threads: what they make goes through one journal.
pub const RECOVERY_THREADS_MAX: usize = 8;

/// Objects that a recovery thread takes at a time.
pub const RECOVERY_PORTION: usize = 256;

/// How many changes by others recovery reports in a line each; it only counts the rest.
pub const RECOVERY_LINES_MAX: usize = 100;

/// Disk space of an object without its contents: an inode, an entry, and the rest of its last block.
pub const RECOVERY_OBJECT_BYTES: u64 = 16 << 10;

/// Descriptors that each recovery thread keeps open for objects that it uses again.
pub const DESCRIPTORS_KEPT: usize = 64;

/// Minimum number of commits that recovery makes on btrfs. A crash may lose the transaction being committed and the one
/// after it, and clients may hold handles from both that are not in the log.
pub const BTRFS_COMMITS_MIN: u32 = 2;

/// Maximum number of commits that recovery makes on btrfs to bring its generation past that of all known handles. A
/// crash loses one or two.
pub const BTRFS_COMMITS_MAX: u32 = 64;

/// Largest space reserve for recovery, bytes.
pub const RESERVE_BYTES_MAX: u64 = 256 << 20;

/// Smallest space reserve, bytes; with less space there is none.
pub const RESERVE_BYTES_MIN: u64 = 64 << 10;

/// How often a checkpoint that has no room for its number tries again.
pub const ROOM_PAUSE: Duration = Duration::from_secs(1);

/// The space reserve is at most this fraction of the filesystem (a divisor).
pub const RESERVE_PART: u64 = 64;

/// Truncations of one file that may be pending at once; further ones are told to retry.
/// So few in the crate's own tests that they are reached.
pub const TRUNCATION_NOTES_MAX: usize = if cfg!(test) { 3 } else { 16 };

/// Maximum size of the attribute that lists them, bytes: a handle, a time and [`TRUNCATION_NOTES_MAX`] pairs of numbers.
pub const TRUNCATION_NOTES_BYTES_MAX: usize = HANDLE_BYTES_MAX + 24 + 20 * TRUNCATION_NOTES_MAX;

/// Files without a name that are kept over a restart because clients have them open, about 250 bytes each. One more is kept only while the
/// server runs. So few in the crate's own tests that they are reached.
pub const ORPHANS_MAX: usize = if cfg!(test) { 3 } else { 131_072 };

/// So long is the directory of files without a name made ahead, bytes (on ext4 and XFS). That is room for [`ORPHANS_ON_A_FULL_DISK`]. The simulated kernel of the crate's own
/// tests has no blocks of directories.
pub const ORPHANS_ROOM_BYTES: u64 = if cfg!(test) { 0 } else { 96 << 10 };

/// At most so many names are used to make it so long. Fewer than an inode may have on ext4.
pub const ORPHANS_ROOM_NAMES_MAX: usize = 2048;

/// So many files without a name are kept on ext4 and XFS whose blocks or quota are used up, and mostly more. ext4 puts a name where its hash says: of blocks of 1 KiB, as small
/// filesystems have them, each gets one or two of these names and has room for 15, of 4 KiB six, and room for 85. XFS has 504 places for all of a directory's names in the block that
/// finds them.
pub const ORPHANS_ON_A_FULL_DISK: usize = 128;

/// Nodes kept in memory, about 500 bytes each. More are held only while clients' requests, open files or the change
/// attribute's rule (a second after an own change) need them.
pub const NODES_MAX: usize = 65_536;

/// How long looked-up attributes are valid unless an operation changes them: the change of an exported object by a local
/// process becomes visible at most this much later.
pub const ATTRS_FRESH: Duration = Duration::from_secs(1);

/// With `relatime` a read renews an access time of this age, seconds. An hour less than the kernel's.
pub const ATIME_STAYS_SECS: i64 = 23 * 3600;

/// Maximum number of descriptors that nodes keep open; the process's own limit may lower it.
pub const NODE_FDS_MAX: usize = 16_384;

/// The process's descriptor limit divided by this is what nodes may use; the rest is for open files, sockets and directories
/// being read.
pub const NODE_FDS_DIVISOR: u64 = 3;

/// How many files accessed without an open stay open for the next access; the oldest is closed first.
pub const DESCRIPTOR_CACHE_MAX: usize = 1024;

/// How long such a descriptor serves before the file is opened again. A local process's change of rights takes effect at
/// most this much later.
pub const DESCRIPTOR_CACHE_TIME: Duration = Duration::from_millis(500);

/// How many files may have unstable data: each needs a descriptor that reports write-back errors. The process's descriptor
/// limit may lower it. Beyond that, writes to further files are made stable at once.
/// So few in the crate's own tests that they are reached.
pub const WITNESSES_MAX: usize = if cfg!(test) { 3 } else { 4096 };

/// The process's descriptor limit divided by this is what those descriptors may use.
pub const WITNESS_FDS_DIVISOR: u64 = 8;

/// The server itself commits unstable data that no client has committed for this long.
pub const UNSTABLE_OLD: Duration = Duration::from_secs(10);

pub const NODE_SHARDS: usize = 16;

/// Stable writes and commits up to this many bytes go into the log; larger ones are flushed to the file itself.
/// So few in the crate's own tests that a simulated file can have more.
pub const LOGGED_DATA_MAX: u64 = if cfg!(test) { 2 << 10 } else { 1 << 20 };

/// Bytes that one step of a larger copy copies; a step cannot be interrupted.
pub const COPY_PIECE_BYTES: u64 = 8 << 20;

/// Buffer for copies that the kernel cannot make itself, bytes.
pub const COPY_BUFFER_BYTES: u64 = 1 << 20;

/// How many objects a request remembers because its reply may depend on them; of further ones it keeps only the latest batch.
pub const RESTING_NODES_MAX: usize = 64;

/// Ranges of unstable data remembered per file; COMMIT flushes a file with more as a whole.
pub const DIRTY_RANGES_MAX: usize = 64;

/// Maximum bytes of one read.
pub const READ_BYTES_MAX: u32 = 16 << 20;

/// Maximum entries of one page of a directory.
pub const READDIR_ENTRIES_MAX: usize = 16_384;

/// Buffer for reading a directory, bytes.
pub const READDIR_BUFFER_BYTES: usize = 32 << 10;

/// How many directory listings are kept for the next reader.
pub const LISTINGS_MAX: usize = 8;
/// Maximum size of a kept listing, bytes; a larger directory is read each time.
pub const LISTING_BYTES_MAX: usize = 256 << 10;

/// How many stacked devices are searched for the file that holds their bytes.
pub const STACKED_MAX: usize = 8;

/// Maximum number of directories between an object and the root when a directory's parent is looked up.
pub const DEPTH_MAX: usize = 4_096;

/// Largest offset or size of a file, bytes.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// Default size of a new log, bytes.
pub const LOG_SIZE_BYTES: u64 = 256 << 20;
