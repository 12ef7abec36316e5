//! How much other work the machine had while something was measured.

use crate::sys;
use std::time::{Duration, Instant};

/// The part of the processors with other work from which on a machine was busy: times that were measured meanwhile say little.
const BUSY_SHARE: f64 = 0.15;

/// Whether a machine of so many processors was busy if so many of them had other work.
pub fn was_busy(others: f64, processors: u64) -> bool {
    others > BUSY_SHARE * processors.max(1) as f64
}

/// The processors that may be used; 0: the kernel does not tell.
pub fn processors() -> u64 {
    std::thread::available_parallelism().map_or(0, |n| n.get() as u64)
}

/// Watches the processors from its beginning on.
#[derive(Debug)]
pub struct Watch {
    start: Instant,
    /// Time of all processors with work, and of that what we have used. `None`: the kernel does not tell.
    before: Option<(Duration, Duration)>,
}

impl Watch {
    pub fn begin() -> Watch {
        Watch { start: Instant::now(), before: used() }
    }

    /// How many processors had other work on average: that of other programs, of the kernel's own threads, and what the host of a
    /// virtual machine took. `None`: the kernel does not tell.
    pub fn others(&self) -> Option<f64> {
        let ((all_before, ours_before), (all, ours)) = (self.before?, used()?);
        let others =
            all.saturating_sub(all_before).as_secs_f64() - ours.saturating_sub(ours_before).as_secs_f64();
        Some((others / self.start.elapsed().as_secs_f64().max(1e-3)).max(0.0))
    }
}

/// Time of all processors with work, and that of this process and of its children that have ended.
fn used() -> Option<(Duration, Duration)> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    Some((busy(&stat)?, sys::own_cpu().ok()? + sys::ended_children_cpu().ok()?))
}

/// proc(5): user, nice, system, idle, iowait, irq, softirq, steal, in ticks. Guests' time is within that of user and nice.
fn busy(stat: &str) -> Option<Duration> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|i| ticks.get(*i)).sum();
    Some(Duration::from_secs_f64(busy as f64 / rustix::param::clock_ticks_per_second().max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_processors_and_those_that_wait_for_disks_have_no_work() {
        let hz = rustix::param::clock_ticks_per_second();
        let stat = format!("cpu  {hz} {hz} {hz} 77 88 {hz} {hz} {hz} 99 99\ncpu0 1 2 3\n");
        assert_eq!(busy(&stat), Some(Duration::from_secs(6)));
        assert_eq!(busy("intr 1"), None);
    }
}
