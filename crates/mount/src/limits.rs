//! Every limit of the mount, in one place. Sizes in bytes unless the name says otherwise.

use std::time::Duration;

/// How long attributes and names are answered from memory after the server gave them, unless `actimeo=` says otherwise.
pub const MEMORY_AGE: Duration = Duration::from_secs(1);
/// The same for directories and names that lead to them, unless `acdirmin=` says otherwise: what Linux's client has.
pub const DIR_MEMORY_AGE: Duration = Duration::from_secs(30);
/// The most that `actimeo=` and `acdirmin=` may say.
pub const MEMORY_AGE_MAX: Duration = Duration::from_secs(3600);
/// How long a new file stays held back if nobody closes it, unless `hold=` says otherwise.
pub const HOLD_AGE: Duration = Duration::from_secs(1);
/// The most that `hold=` may say: a file that is open for longer is on the server all the same.
pub const HOLD_AGE_MAX: Duration = Duration::from_secs(30);
/// How often held files are looked through for those that are too old.
pub const HOLD_LOOKED_EACH: Duration = Duration::from_millis(100);
/// The kernel does not wait for the end of a close, and tells of it later. How long rmdir waits for that, if all that keeps the directory
/// is a removed file that may be closed by now.
pub const CLOSE_TOLD_WITHIN: Duration = Duration::from_millis(500);
/// Files held back at the same time. The next one is made on the server at once.
pub const HELD_FILES_MAX: usize = 8192;
/// Data of one held file. With more it is made on the server, and written as an existing one.
pub const HELD_BYTES_MAX: u64 = 512 << 10;
/// Data that waits to be written, or for its COMMIT, in all files. Writers wait while there is more.
pub const DIRTY_BYTES_MAX: u64 = 64 << 20;
/// The same for one file.
pub const DIRTY_FILE_BYTES_MAX: u64 = 24 << 20;
/// Data of one file that is written before anybody asks for it. Also the most in one WRITE.
pub const PIECE_BYTES: usize = 1 << 20;
/// WRITEs of one file that are under way.
pub const PIECES_IN_FLIGHT: usize = 8;
/// Data written and kept for its COMMIT, in one file. Then a COMMIT is sent.
pub const UNCOMMITTED_BYTES_MAX: u64 = 16 << 20;
/// What a part of a file's data in memory is counted as at least, however short it is: so much goes with it.
pub const EXTENT_BYTES_MIN: u64 = 128;
/// WRITEs whose data is kept for a COMMIT, in one file. Then a COMMIT is sent.
pub const UNCOMMITTED_PIECES_MAX: usize = 1024;
/// Files that are flushed at the same time when all are.
pub const FLUSHES_TOGETHER: usize = 32;
/// Times that data is written again because the server restarted before its COMMIT.
pub const REWRITES_MAX: u32 = 64;

/// Bytes of one copy that the server makes.
pub const COPY_BYTES_MAX: u64 = 1 << 30;

/// How old a change that a program was told is done may become before it is sent, unless `flush_age=` says otherwise.
pub const FLUSH_AGE: Duration = Duration::from_secs(1);
/// The most that `flush_age=` may say.
pub const FLUSH_AGE_MAX: Duration = Duration::from_secs(30);
/// How long such changes go on while the server takes none, beyond the age at which they are sent, unless `offline=` says otherwise.
pub const OFFLINE_AGE: Duration = Duration::from_secs(30);
/// The most that `offline=` may say.
pub const OFFLINE_AGE_MAX: Duration = Duration::from_secs(3600);
/// Names that are tried for one file or directory whose name somebody else has.
pub const CONFLICT_NAMES_MAX: u32 = 1000;
/// Such changes that wait, in all directories. With more, programs wait.
pub const PENDING_MAX: usize = 8192;
/// With so many, all are sent, however old.
pub const PENDING_MANY: usize = 4096;
/// Data of one new file that waits with its directory. With more it is made on the server, and written as an existing one.
pub const LOCAL_FILE_BYTES_MAX: u64 = 1 << 20;
/// What the server keeps for a user who is told how much space, and how many objects, he has: this part,
pub const ROOM_PART: u64 = 8;
/// but no more than so many bytes
pub const ROOM_BYTES_MAX: u64 = 256 << 20;
/// and so many objects (docs/internals/write-directory-delegations.md).
pub const ROOM_FILES_MAX: u64 = 16_384;
/// Of that so much is left free
pub const ROOM_BYTES_MARGIN: u64 = 256 << 10;
/// and so many objects.
pub const ROOM_FILES_MARGIN: u64 = 16;
/// What one change of names may take beside data, bytes: a block of its directory, and the end of a file's last block.
pub const ROOM_OF_CHANGE: u64 = 8 << 10;
/// Users whose room is remembered. For a further one all are asked for again.
pub const ROOM_USERS_MAX: usize = 256;
/// Directories that changes are sent to at the same time.
pub const LANES_IN_FLIGHT: usize = 16;
/// How long no delegation is asked for after the server has given none.
pub const DELEGATION_ASKED_EACH: Duration = Duration::from_secs(10);
/// Delegations in one DELEGRETURN or TEST_STATEID request.
pub const RETURNED_TOGETHER: usize = 64;
/// Recalls that came before the reply that gives the delegation.
pub const EARLY_RECALLS_MAX: usize = 64;
/// Delegations that were returned before the mount had the reply that gives them.
pub const EARLY_RETURNS_MAX: usize = 1024;
/// How often the back channel is looked after.
pub const BACK_CHANNEL_LOOKED_EACH: Duration = Duration::from_secs(1);

/// Entries of a directory of which all names are remembered. A larger one is asked for each name.
pub const COMPLETE_DIR_MAX: usize = 20_000;
/// Names remembered in all directories. With more, directories are forgotten until half of them are left.
pub const NAMES_MAX: usize = 400_000;
/// Nodes that listings told of and that the kernel does not refer to. With more, the oldest are forgotten.
pub const LISTED_NODES_MAX: usize = 20_000;
/// Nodes in memory. With more, the kernel is asked to forget files that are not open.
pub const NODES_MAX: usize = 100_000;
/// How many fewer there are then.
pub const NODES_GIVEN_BACK: usize = NODES_MAX / 8;
/// How often they are counted.
pub const NODES_COUNTED_EACH: Duration = Duration::from_millis(100);
/// Bytes asked for in one READDIR.
pub const READDIR_BYTES: u32 = 128 << 10;
/// Data of a small file that is read in the request that opens it.
pub const FIRST_READ_BYTES: u32 = 64 << 10;
/// Such data that waits for its READ, in all open files.
pub const FIRST_READS_BYTES_MAX: u64 = 32 << 20;
/// How far the kernel reads ahead of a program that reads in order, where this side may say so.
pub const READ_AHEAD_BYTES: u64 = 4 << 20;

/// The largest FUSE_WRITE asked of the kernel.
pub const KERNEL_WRITE_BYTES: u32 = 1 << 20;
/// Requests that the kernel sends in the background (readahead, direct I/O).
pub const KERNEL_BACKGROUND: u16 = 128;
/// Threads that read the kernel's requests. Those that wait for the server are tasks.
pub const KERNEL_THREADS: usize = 2;

/// Longest text of a symbolic link.
pub const LINK_BYTES_MAX: usize = 4096;
/// Longest name.
pub const NAME_BYTES_MAX: usize = 255;
/// Failed paths that are kept for `landfast sync`; more are counted.
pub const FAILURES_KEPT: usize = 256;
/// Longest answer to `landfast sync` and `landfast status`: what one extended attribute can hold.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;

/// First pause before a request is sent again.
pub const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest such pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a server may be away: for ever, as with `hard`. `soft` bounds each request instead.
pub const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// `timeo=` where `soft` is given without it.
pub const SOFT_DEFAULT: Duration = Duration::from_secs(60);
/// How often a lock that another owner holds is asked for again.
pub const LOCK_ASKED_EACH: Duration = Duration::from_millis(200);
/// How often a process whose request waits for the server is looked at, whether it was killed.
pub const KILLED_ASKED_EACH: Duration = Duration::from_secs(1);
/// Users and groups whose names or supplementary groups are remembered.
pub const OWNERS_KNOWN_MAX: usize = 4096;
/// How long the number of an owner or a group is remembered that this machine has found.
pub const OWNER_AGE: Duration = Duration::from_secs(10 * 60);
/// The same where it has found none, or could not look it up.
pub const OWNER_MISSING_AGE: Duration = Duration::from_secs(5);
/// How long a process's supplementary groups are remembered.
pub const GROUPS_AGE: Duration = Duration::from_secs(1);
