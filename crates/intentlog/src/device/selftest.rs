//! Measures which way of flushing is faster on this device. A write with FUA is one command, write and flush are two, but some
//! drives take several times longer for FUA.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::aligned::AlignedBuf;
use crate::limits::{BLOCK_BYTES, SCRATCH_OFFSET, SELF_TEST_ROUNDS, SELF_TEST_ROUNDS_MIN, SELF_TEST_TIME};

/// How a write is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMethod {
    /// The write itself is synchronous (O_DSYNC): one write-through command where the device has it.
    WriteThrough,
    /// A write, then fdatasync.
    Flush,
}

impl fmt::Display for SyncMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncMethod::WriteThrough => "O_DSYNC",
            SyncMethod::Flush => "fdatasync",
        })
    }
}

/// Writes one block each way in turn; returns the faster way, and what both took, in words.
///
/// It compares the lower quartiles, which other work on the machine disturbs least. Write-through must be clearly faster:
/// without FUA it is two flushes.
pub(super) fn run(
    write: impl Fn(SyncMethod, u64, &[u8]) -> io::Result<()>,
) -> io::Result<(SyncMethod, String)> {
    let methods = [SyncMethod::WriteThrough, SyncMethod::Flush];
    let mut times: [Vec<Duration>; 2] = Default::default();
    let block = AlignedBuf::zeroed(BLOCK_BYTES);
    let began = Instant::now();
    for round in 0..SELF_TEST_ROUNDS {
        if round >= SELF_TEST_ROUNDS_MIN && began.elapsed() > SELF_TEST_TIME {
            break;
        }
        for (slot, method) in methods.into_iter().enumerate() {
            let start = Instant::now();
            write(method, SCRATCH_OFFSET + (slot * BLOCK_BYTES) as u64, &block)?;
            times[slot].push(start.elapsed());
        }
    }
    let [through, flush] = times.map(lower_quartile);
    let method = if through * 10 <= flush * 9 { SyncMethod::WriteThrough } else { SyncMethod::Flush };
    Ok((method, format!("{method} chosen (O_DSYNC {through:.0?}, fdatasync {flush:.0?})")))
}

fn lower_quartile(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 4).copied().unwrap_or_default()
}
