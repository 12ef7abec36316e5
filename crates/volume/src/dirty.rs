//! The bytes of a file that were written unstably and are not committed yet.

use crate::limits::{DIRTY_RANGES_MAX, LOGGED_DATA_MAX};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dirty {
    #[default]
    Clean,
    /// Byte ranges (start, end): sorted, disjoint, not touching.
    Ranges(Vec<(u64, u64)>),
    /// Too many to remember, or unknown.
    Unknown,
}

impl Dirty {
    pub(crate) fn add(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        if *self == Dirty::Clean {
            *self = Dirty::Ranges(Vec::new());
        }
        let Dirty::Ranges(ranges) = self else { return };
        let (mut start, mut end) = (offset, offset.saturating_add(len));
        let from = ranges.partition_point(|r| r.1 < start);
        let to = ranges.partition_point(|r| r.0 <= end);
        if let Some(first) = ranges.get(from).filter(|_| from < to) {
            start = start.min(first.0);
        }
        if let Some(last) = to.checked_sub(1).filter(|_| from < to).and_then(|i| ranges.get(i)) {
            end = end.max(last.1);
        }
        ranges.splice(from..to, [(start, end)]);
        if ranges.len() > DIRTY_RANGES_MAX {
            *self = Dirty::Unknown;
        }
    }

    /// The ranges, if they are few and small enough to go into the log.
    pub(crate) fn loggable(&self) -> Option<&[(u64, u64)]> {
        match self {
            Dirty::Clean => Some(&[]),
            Dirty::Ranges(ranges) => {
                let bytes = ranges.iter().fold(0u64, |sum, r| sum.saturating_add(r.1 - r.0));
                (bytes <= LOGGED_DATA_MAX).then_some(ranges)
            }
            Dirty::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_and_overlaps_merge() {
        let mut d = Dirty::Clean;
        d.add(10, 10);
        d.add(30, 10);
        d.add(20, 10);
        assert_eq!(d, Dirty::Ranges(vec![(10, 40)]));
        d.add(50, 1);
        d.add(0, 5);
        assert_eq!(d, Dirty::Ranges(vec![(0, 5), (10, 40), (50, 51)]));
        d.add(3, 48);
        assert_eq!(d, Dirty::Ranges(vec![(0, 51)]));
    }

    #[test]
    fn too_many_or_too_large_is_flushed_as_a_whole() {
        let mut d = Dirty::Clean;
        for i in 0..=DIRTY_RANGES_MAX as u64 {
            d.add(i * 2, 1);
        }
        assert_eq!(d, Dirty::Unknown);
        let mut d = Dirty::Clean;
        d.add(0, LOGGED_DATA_MAX);
        assert!(d.loggable().is_some());
        d.add(LOGGED_DATA_MAX, 1);
        assert!(d.loggable().is_none());
    }

    proptest! {
        #[test]
        fn the_ranges_are_the_union_of_what_was_added(adds in prop::collection::vec((0u64..60, 0u64..12), 0..20)) {
            let mut d = Dirty::Clean;
            let mut bytes = [false; 80];
            for (offset, len) in adds {
                d.add(offset, len);
                bytes[offset as usize..(offset + len) as usize].fill(true);
            }
            let got = match &d { Dirty::Ranges(r) => r.clone(), _ => vec![] };
            let mut seen = [false; 80];
            for w in got.windows(2) {
                prop_assert!(w[0].1 < w[1].0);
            }
            for (s, e) in got {
                seen[s as usize..e as usize].fill(true);
            }
            prop_assert_eq!(seen, bytes);
        }
    }
}
