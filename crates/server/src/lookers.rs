//! Who has looked into which directory lately: a write directory delegation is given to a client that is alone in a directory, so that two clients do not
//! take it from each other all the time. Pure: time is an argument.
//!
//! The table remembers at least the last [`limits::LOOKERS_MAX`] directories, and of each the last two clients. That is enough to know of any client when
//! another one was there last.

use crate::limits;
use crate::state::Millis;
use crate::state::ids::FileKey;
use std::collections::HashMap;

/// A client; `None` for all who cannot be told apart (NFSv3, NFSv4.0, MOUNT).
pub(crate) type Who = Option<u64>;

/// The last look into a directory, and the last of another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Looks {
    last: (Who, Millis),
    other: Option<(Who, Millis)>,
}

impl Looks {
    fn add(&mut self, who: Who, now: Millis) {
        if self.last.0 != who {
            self.other = Some(self.last);
        }
        self.last = (who, now);
    }

    /// When somebody else was there last.
    fn of_others(&self, client: u64) -> Option<Millis> {
        match self.last {
            (Some(who), _) if who == client => self.other.map(|(_, at)| at),
            (_, at) => Some(at),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Lookers {
    /// Directories that were looked into since `before` was put aside; and those of before.
    young: HashMap<FileKey, Looks>,
    before: HashMap<FileKey, Looks>,
    /// The last look of all that are forgotten.
    forgotten: Option<Millis>,
}

impl Lookers {
    /// This client looks into the directory now, or changes it.
    pub(crate) fn looks(&mut self, now: Millis, dir: &FileKey, who: Who) {
        if let Some(looks) = self.young.get_mut(dir) {
            return looks.add(who, now);
        }
        if self.young.len() >= limits::LOOKERS_MAX {
            let last = self.before.values().map(|looks| looks.last.1).max();
            self.forgotten = self.forgotten.max(last);
            self.before = std::mem::take(&mut self.young);
        }
        let mut looks = self.before.remove(dir).unwrap_or(Looks { last: (who, now), other: None });
        looks.add(who, now);
        self.young.insert(dir.clone(), looks);
    }

    /// Whether this client was alone in the directory for a while. What is forgotten does not count.
    pub(crate) fn was_alone(&self, now: Millis, dir: &FileKey, client: u64) -> bool {
        self.others(dir, client).is_none_or(|at| at + limits::ALONE_MS <= now)
    }

    /// Whether nobody else has ever looked into the directory, which was made after `since`.
    pub(crate) fn is_untouched(&self, dir: &FileKey, client: u64, since: Millis) -> bool {
        self.others(dir, client).is_none() && self.forgotten.is_none_or(|at| at < since)
    }

    fn others(&self, dir: &FileKey, client: u64) -> Option<Millis> {
        self.young.get(dir).or_else(|| self.before.get(dir))?.of_others(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(n: usize) -> FileKey {
        n.to_be_bytes().to_vec().into()
    }

    const A: u64 = 1;
    const B: u64 = 2;
    const C: u64 = 3;

    #[test]
    fn who_was_alone_for_ten_seconds() {
        let mut l = Lookers::default();
        assert!(l.was_alone(0, &dir(1), A), "nobody was there");
        l.looks(0, &dir(1), Some(A));
        assert!(
            l.was_alone(0, &dir(1), A) && !l.was_alone(9_999, &dir(1), B) && l.was_alone(10_000, &dir(1), B)
        );
        l.looks(5_000, &dir(1), Some(B));
        for at in [6_000, 7_000] {
            l.looks(at, &dir(1), Some(A));
        }
        assert!(!l.was_alone(14_999, &dir(1), A) && l.was_alone(15_000, &dir(1), A));
        assert!(!l.was_alone(16_999, &dir(1), B) && !l.was_alone(16_999, &dir(1), C));
        assert!(l.was_alone(17_000, &dir(1), C) && l.was_alone(0, &dir(2), C));
        // Who cannot be told apart is somebody else.
        l.looks(20_000, &dir(1), None);
        assert!(!l.was_alone(29_999, &dir(1), A) && l.was_alone(30_000, &dir(1), A));
    }

    #[test]
    fn as_many_directories_are_remembered_as_it_says() {
        let mut l = Lookers::default();
        let most = limits::LOOKERS_MAX;
        for n in 0..3 * most {
            l.looks(n as Millis, &dir(n), Some(B));
            assert!(l.young.len() + l.before.len() <= 2 * most);
        }
        let now = 3 * most as Millis;
        for n in 2 * most..3 * most {
            assert!(!l.was_alone(now, &dir(n), A), "{n}");
        }
        assert!(l.was_alone(now, &dir(0), A), "it is forgotten");
        // A new directory is not known to be untouched if something was forgotten that is as young.
        assert!(!l.is_untouched(&dir(3 * most), A, 0) && l.is_untouched(&dir(3 * most), A, now));
        l.looks(now, &dir(3 * most), Some(B));
        assert!(!l.is_untouched(&dir(3 * most), A, now) && l.is_untouched(&dir(3 * most), B, now));
    }

    proptest::proptest! {
        /// The table against all that has happened.
        #[test]
        fn the_last_of_others_is_known_exactly(looks in proptest::collection::vec((0..4u64, 0..3usize, 0..9_000u64), 1..60)) {
            let (mut l, mut all, mut now) = (Lookers::default(), Vec::new(), 0);
            for (who, at, passes) in looks {
                now += passes;
                let who = (who > 0).then_some(who);
                l.looks(now, &dir(at), who);
                all.push((dir(at), who, now));
                for client in [A, B, C] {
                    for d in (0..3).map(dir) {
                        let others = all.iter().filter(|(of, who, _)| *of == d && *who != Some(client));
                        let last = others.map(|(.., at)| *at).max();
                        let alone = last.is_none_or(|at| at + limits::ALONE_MS <= now);
                        proptest::prop_assert_eq!(l.was_alone(now, &d, client), alone);
                        proptest::prop_assert_eq!(l.is_untouched(&d, client, 0), last.is_none());
                    }
                }
            }
        }
    }
}
