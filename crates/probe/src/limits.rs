//! Every named limit of this crate, in one place.

use std::time::Duration;

/// Rounds of single calls, unless it is told otherwise.
pub const COUNT: u64 = 100;

/// How long a run measures, unless it is told otherwise; connecting and clearing up come on top.
pub const SECONDS: f64 = 6.0;

/// The longest that a run may be told to measure: below any lease, so that no state goes meanwhile.
pub const SECONDS_MAX: f64 = 60.0;

/// Of that time: for rounds of single calls ...
pub const ROUNDS_PART: f64 = 0.5;

/// ... for many calls under way, over all numbers of them and both operations ...
pub const CONCURRENCY_PART: f64 = 0.35;

/// ... and for the burst of WRITEs.
pub const BANDWIDTH_PART: f64 = 0.15;

/// How many calls are kept under way.
pub const IN_FLIGHT: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Calls at most at each number of calls under way.
pub const CALLS_MAX: u64 = 4000;

/// Connections that are made to time how long that takes.
pub const CONNECTS: u64 = 5;

/// Bytes of a WRITE whose time is taken.
pub const WRITE_BYTES: usize = 4096;

/// Bytes of a WRITE of the burst: every server takes so many.
pub const BURST_WRITE_BYTES: usize = 64 << 10;

/// WRITEs of the burst under way: 2 MiB.
pub const BURST_IN_FLIGHT: usize = 32;

/// Bytes of the whole burst at most.
pub const BURST_BYTES_MAX: u64 = 64 << 20;

/// Bytes of the file that the burst goes around in.
pub const BURST_FILE_BYTES: u64 = 16 << 20;

/// Operations in a COMPOUND that are asked for and tried at most.
pub const OPERATIONS_MAX: u32 = 4096;

/// Sessions that a search for the largest COMPOUND may cost.
pub const SEARCH_SESSIONS_MAX: u32 = 6;

/// How many times a delegation is asked for: a server may first find out whether it can call back.
pub const DELEGATION_TRIES: u32 = 4;

/// Pause between two of them.
pub const DELEGATION_PAUSE: Duration = Duration::from_millis(50);

/// How long a server of version 4.0 may take to call back before files are opened; it may also do so later.
pub const CALLED_PATIENCE: Duration = Duration::from_secs(1);

/// How long callbacks that are being answered are waited for at the end.
pub const CALLED_SHUTDOWN: Duration = Duration::from_millis(100);

/// Longest wait for one reply.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Longest wait for a reply to a COMPOUND that is perhaps too large.
pub const SEARCH_PATIENCE: Duration = Duration::from_secs(3);

/// How long a server may say "later" to one call: a grace period and more.
pub const LATER_PATIENCE: Duration = Duration::from_secs(120);

/// Pause before such a call is made again.
pub const LATER_PAUSE: Duration = Duration::from_millis(100);

/// Answers "later" to calls of a burst after which it ends.
pub const LATERS_MAX: u64 = 1000;

/// Names of the directory of the URL that are looked through for what another probe has left.
pub const NAMES_MAX: usize = 4096;

/// Names of the probe's own directory that are removed at a time.
pub const REMOVED_AT_ONCE: usize = 16 << 10;

/// Single calls that take so long are remembered with their times, for what comes at equal distances.
pub const LONG: Duration = Duration::from_millis(10);

/// So many of them; later ones are in the distributions only.
pub const LONG_MAX: usize = 4096;
