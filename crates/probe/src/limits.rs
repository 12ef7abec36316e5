//! All named limits of this crate.

use std::time::Duration;

/// Default number of rounds of single calls.
pub const COUNT: u64 = 100;

/// Default duration of the measurement in seconds. Connecting and removing come on top.
pub const SECONDS: f64 = 6.0;

/// The longest allowed measurement in seconds: shorter than any lease, so that no state expires meanwhile.
pub const SECONDS_MAX: f64 = 60.0;

/// Part of the time for rounds of single calls.
pub const ROUNDS_PART: f64 = 0.5;

/// Part of the time for many calls in flight, over all numbers of calls and both operations.
pub const CONCURRENCY_PART: f64 = 0.35;

/// Part of the time for the burst of WRITEs.
pub const BANDWIDTH_PART: f64 = 0.15;

/// If twice as many WRITEs in flight are faster by this factor, the bandwidth was not reached.
pub const BANDWIDTH_RISE: f64 = 1.25;

/// Numbers of calls in flight that are measured.
pub const IN_FLIGHT: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// The most calls for each of these numbers.
pub const CALLS_MAX: u64 = 4000;

/// Connections made to measure the time for connecting.
pub const CONNECTS: u64 = 5;

/// Bytes of a measured WRITE.
pub const WRITE_BYTES: usize = 4096;

/// Bytes of a WRITE in the burst. Every server accepts this size.
pub const BURST_WRITE_BYTES: usize = 64 << 10;

/// WRITEs of the burst in flight: 2 MiB.
pub const BURST_IN_FLIGHT: usize = 32;

/// The most bytes of the whole burst.
pub const BURST_BYTES_MAX: u64 = 64 << 20;

/// Size of the file that the burst writes cyclically, in bytes.
pub const BURST_FILE_BYTES: u64 = 16 << 20;

/// The most operations of a COMPOUND that are requested and tried.
pub const OPERATIONS_MAX: u32 = 4096;

/// The most sessions for finding the largest COMPOUND.
pub const SEARCH_SESSIONS_MAX: u32 = 6;

/// How often a delegation is requested. A server may first have to test whether it can call back.
pub const DELEGATION_TRIES: u32 = 4;

/// Pause between two such requests.
pub const DELEGATION_PAUSE: Duration = Duration::from_millis(50);

/// How long to wait for a 4.0 server's test of the callback path before opening files. The server may still do it
/// later.
pub const CALLED_PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait at the end for callbacks in progress.
pub const CALLED_SHUTDOWN: Duration = Duration::from_millis(100);

/// The longest wait for a reply.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The longest wait for the reply to a COMPOUND that may be too large.
pub const SEARCH_PATIENCE: Duration = Duration::from_secs(3);

/// How long a server may answer one call with "later": more than a grace period.
pub const LATER_PATIENCE: Duration = Duration::from_secs(120);

/// Pause before such a call is repeated.
pub const LATER_PAUSE: Duration = Duration::from_millis(100);

/// A burst ends after this many "later" replies.
pub const LATERS_MAX: u64 = 1000;

/// How many names of the URL's directory are searched for leftovers of other probes.
pub const NAMES_MAX: usize = 4096;

/// How many names of the probe's directory are removed at a time.
pub const REMOVED_AT_ONCE: usize = 16 << 10;

/// Single calls of at least this length are remembered with their times, to find periodic stalls.
pub const LONG: Duration = Duration::from_millis(10);

/// The most calls remembered. Later ones are only in the distributions.
pub const LONG_MAX: usize = 4096;
