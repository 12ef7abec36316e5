//! Whether a directory has been changed by anybody else since its names were learnt.
//!
//! The server tells with each change of ours what the directory's change attribute was before and after it, and whether nothing came
//! between (`change_info4`, RFC 8881 section 3.3.3). Replies come in any order, so what is known is a chain: the names are those of one
//! value, and each change of ours leads from one value to the next. A value that no change of ours leads to is somebody else's.

use std::collections::{BTreeMap, BTreeSet};

use landfast_nfs::v4::ChangeInfo;

use super::Time;

/// What is known of a directory that has names in memory.
#[derive(Debug, Clone)]
pub struct Known {
    /// The names in memory are those of this value.
    at: u64,
    /// A request sent at this time had this value in its reply.
    verified: Time,
    /// Changes of ours behind which one is missing: from, to.
    ahead: BTreeMap<u64, u64>,
    /// Values that a reply showed while changes of ours were under way, and that are not explained yet.
    unexplained: BTreeSet<u64>,
    in_flight: u32,
}

impl Known {
    /// The names are those of `at`, as a reply to a request sent at `asked` says.
    pub fn new(at: u64, asked: Time) -> Known {
        Known { at, verified: asked, ahead: BTreeMap::new(), unexplained: BTreeSet::new(), in_flight: 0 }
    }

    /// Whether the names may be used at `now`.
    pub fn is_fresh(&self, now: Time, age: Time) -> bool {
        now.saturating_sub(self.verified) < age
    }

    pub fn verified(&self) -> Time {
        self.verified
    }

    /// A change of ours is sent.
    pub fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// Its reply came. `None`: it failed, or the server told nothing useful. Returns `false` when somebody else has changed the
    /// directory, or may have.
    #[must_use]
    pub fn end(&mut self, change: Option<ChangeInfo>, failed: bool, now: Time) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        match change {
            Some(c) if c.atomic => {
                self.ahead.insert(c.before, c.after);
                while let Some(to) = self.ahead.remove(&self.at) {
                    self.at = to;
                    self.verified = self.verified.max(now);
                    self.unexplained.remove(&to);
                }
            }
            None if failed => {}
            _ => return false,
        }
        self.in_flight > 0 || self.ahead.is_empty() && self.unexplained.is_empty()
    }

    /// A reply to a request sent at `asked` shows `value`. Returns `false` when somebody else has changed the directory.
    #[must_use]
    pub fn seen(&mut self, value: u64, asked: Time) -> bool {
        if value == self.at {
            self.verified = self.verified.max(asked);
            return true;
        }
        if self.in_flight == 0 {
            return false;
        }
        // One value for each change that is under way is the most that can turn out to be ours.
        self.unexplained.insert(value);
        self.unexplained.len() <= self.in_flight as usize + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info(before: u64, after: u64) -> Option<ChangeInfo> {
        Some(ChangeInfo { atomic: true, before, after })
    }

    /// What happens at the server, in its order.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        Ours,
        Theirs,
        Look,
    }

    fn events() -> impl Strategy<Value = Vec<(Event, u8)>> {
        let event = prop_oneof![4 => Just(Event::Ours), 1 => Just(Event::Theirs), 2 => Just(Event::Look)];
        proptest::collection::vec((event, any::<u8>()), 1..12)
    }

    proptest! {
        /// All requests are under way together, and their replies come in any order.
        #[test]
        fn a_change_by_somebody_else_is_found_once_it_was_seen_or_one_of_ours_came_behind_it(events in events()) {
            let mut known = Known::new(100, Time::ZERO);
            let (mut value, mut replies, mut last_theirs, mut last_told) = (100, Vec::new(), None, None);
            for (n, (event, order)) in events.iter().enumerate() {
                match event {
                    Event::Ours => {
                        known.begin();
                        replies.push((*order, n, info(value, value + 1), value + 1));
                        (value, last_told) = (value + 1, Some(n));
                    }
                    Event::Theirs => (value, last_theirs) = (value + 1, Some(n)),
                    Event::Look => {
                        replies.push((*order, n, None, value));
                        last_told = Some(n);
                    }
                }
            }
            replies.sort_by_key(|r| (r.0, r.1));
            let mut valid = true;
            for (_, _, change, value) in replies {
                valid &= match change {
                    Some(c) => known.end(Some(c), false, Time::ZERO),
                    None => known.seen(value, Time::ZERO),
                };
            }
            if last_theirs.is_some_and(|t| last_told.is_some_and(|told| told > t)) {
                prop_assert!(!valid);
            } else if last_theirs.is_none() && valid {
                prop_assert_eq!(known.at, value);
            }
        }

        #[test]
        fn changes_of_ours_alone_in_any_order_leave_the_names_valid(order in Just((0..8u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut known = Known::new(0, Time::ZERO);
            order.iter().for_each(|_| known.begin());
            for n in order {
                prop_assert!(known.end(info(n, n + 1), false, Time::from_secs(1)));
            }
            prop_assert!(known.seen(8, Time::from_secs(1)));
            prop_assert!(known.is_fresh(Time::from_millis(1900), Time::from_secs(1)));
            prop_assert!(!known.is_fresh(Time::from_millis(2000), Time::from_secs(1)));
        }
    }

    #[test]
    fn what_a_server_cannot_tell_is_taken_for_somebody_elses() {
        let mut known = Known::new(1, Time::ZERO);
        known.begin();
        assert!(!known.end(Some(ChangeInfo { atomic: false, before: 1, after: 2 }), false, Time::ZERO));
        let mut known = Known::new(1, Time::ZERO);
        known.begin();
        assert!(!known.end(None, false, Time::ZERO));
    }

    #[test]
    fn a_change_that_failed_changes_nothing() {
        let mut known = Known::new(1, Time::ZERO);
        known.begin();
        assert!(known.end(None, true, Time::ZERO));
        assert!(!known.seen(2, Time::ZERO));
    }
}
