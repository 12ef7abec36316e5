//! How long operations took, and a client that does one thing at a time and notes it.

use crate::error::Result;
use crate::serial::{Connect, Session};
use landfast_nfs::v4::ArgOp;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long operations took.
#[derive(Debug, Clone)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn new(mut all: Vec<Duration>) -> Latencies {
        all.sort_unstable();
        Latencies(all)
    }

    /// The latency in microseconds that a part of the operations kept: 0.5 for the median. 0 if there are none.
    pub fn us(&self, part: f64) -> f64 {
        let at = (self.0.len() as f64 * part) as usize;
        self.0.get(at.min(self.0.len().saturating_sub(1))).map_or(0.0, |d| d.as_nanos() as f64 / 1e3)
    }
}

/// A client that does one COMPOUND at a time.
pub struct OneAtATime(pub Session);

impl OneAtATime {
    pub fn connect(addr: SocketAddr, owner: &str) -> Result<OneAtATime> {
        Session::connect(&Connect::new(addr, owner)).map(OneAtATime)
    }

    /// Sends `count` COMPOUNDs, one after the other, and notes how long each took.
    ///
    /// # Errors
    /// The first that fails.
    pub fn times(&mut self, count: u64, mut ops: impl FnMut(u64) -> Vec<ArgOp>) -> Result<Latencies> {
        let mut took = Vec::new();
        for n in 0..count {
            let ops = ops(n);
            let start = Instant::now();
            self.0.compound(ops)?;
            took.push(start.elapsed());
        }
        Ok(Latencies::new(took))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_taken_from_the_sorted_ones() {
        let all = Latencies::new((1..=1000).rev().map(Duration::from_micros).collect());
        assert_eq!((all.us(0.5), all.us(0.99), all.us(1.0)), (501.0, 991.0, 1000.0));
        assert_eq!(Latencies::new(Vec::new()).us(0.5), 0.0);
    }
}
