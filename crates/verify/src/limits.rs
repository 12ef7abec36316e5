//! Every named limit of this crate, in one place.

use std::time::Duration;

/// Longest wait for a connection or a reply while writing: after it the server is gone.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(15);

/// Longest wait for one reply while checking: a server that has just recovered may be slow.
pub const CHECK_REPLY_PATIENCE: Duration = Duration::from_secs(60);

/// How long `check` waits for a server that does not answer yet, or says GRACE, by default.
pub const CHECK_PATIENCE: Duration = Duration::from_secs(300);

/// How long a writer repeats an operation that is answered with DELAY, JUKEBOX or GRACE.
pub const DELAY_PATIENCE: Duration = Duration::from_secs(180);

/// Pause before it is repeated.
pub const DELAY_PAUSE: Duration = Duration::from_millis(100);

/// Pause between two attempts to reach a server that is not back yet.
pub const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

/// Clients of one run at most.
pub const CLIENTS_MAX: u32 = 64;

/// Pairs of clients of one run at most; each has two connections.
pub const PAIRS_MAX: u32 = 64;

/// Rounds of one pair at most; a run does not remove what they made.
pub const ROUNDS_MAX: u32 = 20_000;

/// How long after the first client of a pair the second one sends its operation: one of these. In most cases the server has
/// then executed the first operation and not flushed it.
pub const GAPS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(3), Duration::from_millis(8)];

/// How long a late COMMIT waits behind its WRITEs, in milliseconds: servers close files that nobody uses in less.
pub const LATE_MS: u32 = 1500;

/// Files that are written together before a late COMMIT of each.
pub const LATE_FILES: usize = 6;

/// Operations of one run at most: they are numbered with 32 bits.
pub const OPERATIONS_MAX: u64 = 1 << 31;

/// Objects that a client keeps; above this number it removes more than it creates, so that a run can last for hours.
pub const LIVE_MAX: usize = 400;

/// Directories that a client keeps.
pub const DIRS_MAX: usize = 24;

/// Depth of directories below a client's own.
pub const DEPTH_MAX: usize = 4;

/// Different names in a directory: few, so that names are used again.
pub const NAMES: u64 = 60;

/// Largest file, in bytes; one READ fetches it.
pub const FILE_BYTES_MAX: u64 = 48 << 10;

/// Bytes of one WRITE at least: a lost one must not look right by chance.
pub const WRITE_BYTES_MIN: u64 = 64;

/// Bytes of one WRITE at most.
pub const WRITE_BYTES_MAX: u64 = 16 << 10;

/// Open files that an NFSv4 client keeps.
pub const OPENS_MAX: usize = 32;

/// Largest reply that is taken, in bytes.
pub const REPLY_BYTES_MAX: usize = (1 << 20) + 8192;

/// Bytes of READDIR's replies that are asked for.
pub const READDIR_BYTES: u32 = 32 << 10;

/// Entries of one directory that are listed at most.
pub const ENTRIES_MAX: usize = 1 << 20;

/// Examples of what was lost that are kept for each kind of operation.
pub const EXAMPLES_MAX: usize = 5;
/// Files that a COMMIT is tried on, for the server's write verifier.
pub const COMMITS_TRIED_MAX: usize = 64;

/// Longest line of a journal, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;
