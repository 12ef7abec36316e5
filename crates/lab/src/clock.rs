//! Precise waiting: monotonic nanoseconds, an absolute sleep, and a busy wait for the last part.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    (t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64)
}

/// Returns at `due_ns` of [`now_ns`] or a little later; busy-waits for the last `spin_ns`.
pub fn sleep_until(due_ns: u64, spin_ns: u64) {
    let wake_ns = due_ns.saturating_sub(spin_ns);
    while now_ns() < wake_ns {
        let until =
            Timespec { tv_sec: (wake_ns / 1_000_000_000) as i64, tv_nsec: (wake_ns % 1_000_000_000) as i64 };
        // An interrupted sleep is slept again; the loop's condition ends it.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
    }
    while now_ns() < due_ns {
        std::hint::spin_loop();
    }
}

/// Lets this thread's sleeps end as near to their time as the kernel can.
pub fn sharpen_this_thread() {
    // Without it timers may be up to 50 us late; then only the busy wait is precise.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

pub fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_never_ends_early() {
        for us in [0u64, 50, 300, 2000] {
            let due = now_ns() + us * 1000;
            sleep_until(due, 60_000);
            assert!(now_ns() >= due);
        }
    }
}
