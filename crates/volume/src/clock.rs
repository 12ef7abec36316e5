//! The wall clock for change attributes: setting it back must not make values smaller.
//!
//! A change attribute is the wall clock's time plus a floor ([`crate::change`]). When a reading is earlier than the one before
//! it, the floor grows by the difference and a little more. So everything derived from the clock from now on exceeds all that was
//! derived before. Setting the clock forward needs nothing. When the floor grows it is saved, so that the next start has it. The
//! time of saving, and after an unclean stop that of the last transaction at the marker, tell the next start whether the clock was set
//! back while nothing was served.
//!
//! Steps of less than [`STEP_NS`] need nothing, either: an object is remembered for longer
//! ([`crate::change::REMEMBER_NS`]), and its remembered value counts up.

use crate::change::REMEMBER_NS;
use crate::change::STEP_NS;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Clock {
    latest_ns: AtomicU64,
    floor_ns: AtomicU64,
}

impl Clock {
    pub(crate) fn new(floor_ns: u64) -> Clock {
        Clock { latest_ns: AtomicU64::new(0), floor_ns: AtomicU64::new(floor_ns) }
    }

    /// The floor for the time that was just read, and whether it has grown.
    pub(crate) fn floor_at(&self, now_ns: u64) -> (u64, bool) {
        let latest = self.latest_ns.load(Ordering::Acquire);
        let back = latest.saturating_sub(now_ns);
        if back <= STEP_NS {
            if now_ns > latest {
                self.latest_ns.fetch_max(now_ns, Ordering::AcqRel);
            }
            return (self.floor_ns(), false);
        }
        // A second more than the difference, for values that counted up from the latest reading.
        let by = back.saturating_add(REMEMBER_NS);
        // The floor first: whoever sees the new latest reading sees the new floor. If two threads both add, that does no harm.
        let raise = |floor: u64| Some(floor.saturating_add(by));
        let _ = self.floor_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, raise);
        let _ = self.latest_ns.compare_exchange(latest, now_ns, Ordering::AcqRel, Ordering::Acquire);
        (self.floor_ns(), true)
    }

    pub(crate) fn floor_ns(&self) -> u64 {
        self.floor_ns.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use proptest::prelude::*;

    const T: u64 = 1_700_000_000_000_000_000;
    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn only_a_clock_that_is_set_back_raises_the_floor() {
        let clock = Clock::new(7);
        assert_eq!(clock.floor_at(T), (7, false));
        assert_eq!(clock.floor_at(T + HOUR), (7, false));
        assert_eq!(clock.floor_at(T + HOUR - STEP_NS), (7, false), "two threads");
        assert_eq!(clock.floor_at(T), (7 + HOUR + REMEMBER_NS, true));
        assert_eq!(clock.floor_at(T + 1), (7 + HOUR + REMEMBER_NS, false));
        assert_eq!(clock.floor_at(0), (7 + HOUR + T + 1 + 2 * REMEMBER_NS, true));
        assert_eq!(clock.floor_at(u64::MAX), (7 + HOUR + T + 1 + 2 * REMEMBER_NS, false));
        assert_eq!(clock.floor_at(0), (u64::MAX, true), "at the end it stays");
    }

    proptest! {
        /// Changes one object at random times on a clock that jumps, and forgets it whenever that is allowed. Its values must
        /// grow, and stay the same when nothing has changed.
        #[test]
        fn values_grow_whatever_the_clock_does(
            steps in prop::collection::vec((-400i64..400, 0u64..10_000_000, any::<[bool; 3]>()), 1..60),
        ) {
            let (clock, mut now) = (Clock::new(0), T);
            let (mut change, mut ctime) = (Change::default(), T);
            now += 1_500_000_000;
            let mut last = change.seen(ctime, now, clock.floor_at(now).0);
            let mut changed_at = ctime;
            for (jump, lag, [jumps, changes, forgets]) in steps {
                // Jumps by days; or a second and a half passes, after which an object may be forgotten.
                now = if jumps { now.saturating_add_signed(jump * 24 * HOUR.cast_signed()) } else { now + 1_500_000_000 };
                let floor = clock.floor_at(now).0;
                let young = changed_at <= now && changed_at + REMEMBER_NS > now;
                if forgets && !young {
                    change = Change::default();
                    let seen = change.seen(ctime, now, floor);
                    prop_assert!(seen >= last, "{seen} after {last}");
                    last = seen;
                }
                if changes {
                    // The kernel's clock lags behind by a tick.
                    (ctime, changed_at) = (now - lag, now);
                    let after = change.changed(ctime, now, floor);
                    prop_assert!(after > last, "{after} after {last}");
                    last = after;
                } else {
                    prop_assert_eq!(change.seen(ctime, now, floor), last);
                }
            }
        }
    }
}
