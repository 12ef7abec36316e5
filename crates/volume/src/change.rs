//! The change attribute (RFC 8881 section 5.8.1.4): grows with every change, never repeats for different contents.
//!
//! User space can neither set nor read the kernel's change counter, and `ctime` goes back when a crash loses changes. So
//! a value is real time in nanoseconds plus a *floor*, which grows by an hour at each unclean start. A node remembers its
//! last value and the ctime at which it was last seen. The next value is:
//!
//! - after an own change: `max(value + 1, now + floor)`;
//! - for a ctime never seen before (left by a local process, or by an own change): `max(value + 1, derived)`;
//! - if nothing is remembered: `derived`;
//! - for a ctime that was seen young and that no own change left: `max(value, derived)`. Another local process may have
//!   made a change since within the same tick of the kernel's clock, so the value grows once more when the ctime has settled.
//!
//! `derived` is the time of looking, but not before the ctime and not later than [`SETTLED_NS`] after it. A ctime in the
//! future (the clock was once ahead) counts as now. So `derived`
//! - is a function of the ctime alone once that is old enough, so it is the same each time a node is forgotten and seen again;
//! - exceeds whatever was derived while the ctime was young;
//! - exceeds whatever an own change gave, since the kernel's clock lags behind real time by much less than that.
//!
//! Until it is final, that is, for [`REMEMBER_NS`] after an own change, the node must be remembered.

/// A ctime older than this is final: no new change can get the same one, ns. The kernel's coarse clock lags behind the
/// real one by much less (a tick is at most 10 ms).
pub(crate) const SETTLED_NS: u64 = 50_000_000;

/// How long the state of a node must be kept after an own change, ns.
pub(crate) const REMEMBER_NS: u64 = 1_000_000_000;

/// A step back of the clock of at most this size does not count: two threads have read it, or it is slewed.
pub(crate) const STEP_NS: u64 = 100_000_000;

/// By how much an unclean start raises the floor, ns. More than any crash can set clocks and ctimes back.
pub(crate) const FLOOR_STEP_NS: u64 = 3_600_000_000_000;

/// What a node remembers; by default nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    value: u64,
    ctime_ns: u64,
    /// The last event is an own change whose ctime has not been seen yet.
    own_is_unseen: bool,
    /// Somebody else left `ctime_ns`, and it was young when last seen: it may hide a later change.
    is_young: bool,
    /// The last look found a ctime that no own change has left.
    is_foreign: bool,
}

impl Change {
    pub(crate) fn seen(&mut self, ctime_ns: u64, now_ns: u64, floor_ns: u64) -> u64 {
        let is_new = self.value == 0 || self.ctime_ns != ctime_ns;
        if self.value == 0 {
            self.value = derived(ctime_ns, now_ns, floor_ns);
        } else if is_new {
            self.value = self.value.saturating_add(1).max(derived(ctime_ns, now_ns, floor_ns));
        } else if self.is_young {
            self.value = self.value.max(derived(ctime_ns, now_ns, floor_ns));
        }
        if is_new || self.is_young {
            let is_settled =
                now_ns >= ctime_ns.saturating_add(SETTLED_NS) || is_of_the_future(ctime_ns, now_ns);
            self.is_young = !self.own_is_unseen && !is_settled;
        }
        self.is_foreign = is_new && !self.own_is_unseen;
        self.ctime_ns = ctime_ns;
        self.own_is_unseen = false;
        self.value
    }

    /// True if the last look found a change by somebody else since the look before.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Somebody else left the last ctime, and the value grows with the next look even if nothing changes. Any own change ends that.
    pub(crate) fn is_young(&self) -> bool {
        self.is_young
    }

    /// Notes an own change whose ctime is not known yet. The next look counts it as one more change, which is harmless.
    pub(crate) fn bump(&mut self, now_ns: u64, floor_ns: u64) {
        self.value = self.value.saturating_add(1).max(now_ns.saturating_add(floor_ns));
        self.own_is_unseen = true;
        self.is_young = false;
    }

    /// Notes an own change that left `ctime_ns`; returns the value after it. Only correct if the lock that orders changes of
    /// this object was held since the last [`Change::seen`].
    pub(crate) fn changed(&mut self, ctime_ns: u64, now_ns: u64, floor_ns: u64) -> u64 {
        self.bump(now_ns, floor_ns);
        self.ctime_ns = ctime_ns;
        self.own_is_unseen = false;
        self.value
    }
}

/// True if the clock was set back since, so that the age of the ctime is unknown.
fn is_of_the_future(ctime_ns: u64, now_ns: u64) -> bool {
    ctime_ns > now_ns.saturating_add(STEP_NS)
}

fn derived(ctime_ns: u64, now_ns: u64, floor_ns: u64) -> u64 {
    let at_ns = match is_of_the_future(ctime_ns, now_ns) {
        true => now_ns,
        false => now_ns.clamp(ctime_ns, ctime_ns.saturating_add(SETTLED_NS)),
    };
    at_ns.saturating_add(floor_ns).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_700_000_000_000_000_000;

    #[test]
    fn each_own_change_gives_a_larger_value_even_within_one_tick() {
        let mut c = Change::default();
        let mut last = c.seen(T, T + 10, 0);
        for _ in 0..100 {
            let after = c.changed(T, T + 10, 0);
            assert!(after > last);
            last = c.seen(T, T + 10, 0);
            assert_eq!(last, after);
        }
    }

    #[test]
    fn a_foreign_change_shows() {
        let mut c = Change::default();
        let a = c.seen(T, T + 1_000_000_000, 0);
        assert_eq!(c.seen(T, T + 2_000_000_000, 0), a);
        assert!(c.seen(T + 1, T + 2_000_000_000, 0) > a);
    }

    #[test]
    fn two_foreign_changes_within_one_tick_show() {
        let mut c = Change::default();
        let first = c.seen(T, T + 1, 0);
        // The second one is made now: the kernel's clock still says T.
        let second = c.seen(T, T + REMEMBER_NS, 0);
        assert!(second > first);
        assert_eq!(c.seen(T, T + 2 * REMEMBER_NS, 0), second, "settled");
        assert_eq!(Change::default().seen(T, T + 2 * REMEMBER_NS, 0), second, "as if it had been forgotten");
        // The same of one that is seen young after others.
        let later = T + 2 * REMEMBER_NS;
        let third = c.seen(later, later + 1, 0);
        assert!(third > second);
        assert!(c.seen(later, later + REMEMBER_NS, 0) > third);
    }

    #[test]
    fn an_own_change_is_one_change() {
        // Whether its ctime is known at once or seen later: a client need not look at the object again.
        let mut c = Change::default();
        let own = c.changed(T, T + 1, 0);
        assert_eq!(c.seen(T, T + REMEMBER_NS, 0), own);
        c.bump(T + 2 * REMEMBER_NS, 0);
        let own = c.seen(T + 2 * REMEMBER_NS, T + 2 * REMEMBER_NS + 1, 0);
        assert_eq!(c.seen(T + 2 * REMEMBER_NS, T + 3 * REMEMBER_NS, 0), own);
    }

    #[test]
    fn a_ctime_that_goes_back_still_counts_up() {
        let mut c = Change::default();
        let a = c.seen(T, T + 1_000_000_000, 0);
        assert!(c.seen(T - 5_000_000_000, T + 1_000_000_000, 0) > a);
    }

    #[test]
    fn what_is_derived_later_exceeds_what_an_own_change_gave() {
        // The kernel's clock lags by up to a tick: the change at T left a ctime of T - 10 ms.
        let mut c = Change::default();
        let own = c.changed(T - 10_000_000, T, 7);
        let later = T + REMEMBER_NS + 1;
        let first = Change::default().seen(T - 10_000_000, later, 7);
        assert!(first > own);
        assert_eq!(Change::default().seen(T - 10_000_000, later + 5, 7), first, "stable once settled");
    }

    #[test]
    fn what_is_derived_later_exceeds_what_was_derived_earlier() {
        let mut last = 0;
        for age in (0..100_000_000).step_by(1_000_000) {
            let now = Change::default().seen(T, T + age, 0);
            assert!(now >= last);
            last = now;
        }
        assert_eq!(last, Change::default().seen(T, T + 10 * REMEMBER_NS, 0));
    }

    #[test]
    fn a_ctime_from_the_future_counts_as_now() {
        // Five seconds ahead when it was changed, and then the clock was put right: the floor has grown by as much.
        let before = Change::default().changed(T, T, 0);
        let floor = 5_000_000_000;
        let after = Change::default().seen(T, T - 5_000_000_000 + REMEMBER_NS, floor);
        assert!(after > before);
        // So a change now exceeds it, though its ctime is older.
        let own = Change::default().changed(T - 3_000_000_000, T - 3_000_000_000, floor);
        assert!(own > after);
    }

    #[test]
    fn an_unclean_start_exceeds_everything_before_it() {
        let before = Change::default().changed(T, T, 0);
        // The crash lost the change: the ctime is a minute older.
        let after = Change::default().seen(T - 60_000_000_000, T + 1, FLOOR_STEP_NS);
        assert!(after > before);
    }
}
