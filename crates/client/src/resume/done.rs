//! What the journal says earlier runs did. No I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::batch::Batch;
use super::partial::PartialFile;
use crate::overflow::{Key, OverflowError, Table};

/// A set of numbers, stored as ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// The start of each range, and its end (exclusive).
    all: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds `from..to`.
    pub(super) fn add(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        // Merge with the ranges that it touches or overlaps, from the last one backwards.
        while let Some((&start, &end)) = self.all.range(..=to).next_back()
            && end >= from
        {
            self.all.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.all.insert(from, to);
    }

    pub(super) fn has(&self, n: u64) -> bool {
        self.all.range(..=n).next_back().is_some_and(|(_, end)| n < *end)
    }

    /// One more than the greatest number; 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        self.all.last_key_value().map_or(0, |(_, end)| *end)
    }

    pub(super) fn count(&self) -> u64 {
        self.all.iter().fold(0, |sum: u64, (from, to)| sum.saturating_add(to - from))
    }

    pub(super) fn pairs(&self) -> Vec<(u64, u64)> {
        self.all.iter().map(|(from, to)| (*from, *to)).collect()
    }
}

/// Hashes of objects by the hashes of their paths: a table, which goes to a temporary file when it is long. What cannot be read back
/// from there counts as not done, so it is done again.
#[derive(Debug, Default)]
pub(super) struct Objects {
    by_path: Table,
    count: u64,
}

impl Objects {
    pub(super) fn insert(&mut self, path: u64, object: u64) {
        self.count += u64::from(self.get(path).is_none());
        self.by_path.insert(Key::of_hash(path), Objects::stored(object));
    }

    fn get(&self, path: u64) -> Option<u64> {
        self.by_path.get(Key::of_hash(path)).ok().flatten()
    }

    pub(super) fn has(&self, path: u64, object: u64) -> bool {
        self.get(path) == Some(Objects::stored(object))
    }

    pub(super) fn has_path(&self, path: u64) -> bool {
        self.get(path).is_some()
    }

    /// A table cannot hold the greatest number.
    fn stored(object: u64) -> u64 {
        object.min(u64::MAX - 1)
    }
}

#[cfg(test)]
impl PartialEq for Objects {
    fn eq(&self, other: &Objects) -> bool {
        (self.count, self.by_path.pairs()) == (other.count, other.by_path.pairs())
    }
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct DoneBefore {
    /// Numbers of archive members.
    pub(super) members: Ranges,
    /// Objects of trees: the hash of the path, and of what was copied.
    pub(super) objects: Objects,
    /// Unfinished large files, by the hash of the path.
    pub(super) parts: HashMap<u64, PartialFile>,
    /// Paths of directories that were made.
    pub(super) made_dirs: HashSet<u64>,
    /// Paths of directories that existed.
    pub(super) existing_dirs: HashSet<u64>,
    /// The archive's digest before the member of this number.
    pub(super) marks: BTreeMap<u64, u64>,
    /// Operands (by number) whose removal was started, with their filehandles.
    pub(super) removals_started: BTreeMap<u32, Vec<u8>>,
    /// Operands that are removed completely.
    pub(super) removals_done: BTreeSet<u32>,
    /// The number of removed objects.
    pub(super) removed: u64,
}

impl DoneBefore {
    pub(super) fn take(&mut self, batch: Batch) {
        for (from, to) in batch.members {
            self.members.add(from, to);
        }
        batch.objects.into_iter().for_each(|(path, object)| self.objects.insert(path, object));
        for (path, object, upto, fh) in batch.parts {
            self.parts.insert(path, PartialFile { object, upto, fh, digest: None });
        }
        for (path, object, upto, fh, digest) in batch.streamed {
            self.parts.insert(path, PartialFile { object, upto, fh, digest: Some(digest) });
        }
        self.made_dirs.extend(batch.made);
        self.existing_dirs.extend(batch.met);
        self.marks.extend(batch.marks);
        self.removals_started.extend(batch.begun);
        self.removals_done.extend(batch.gone);
        self.removed = self.removed.saturating_add(batch.removed);
    }

    pub(super) fn is_empty(&self) -> bool {
        let DoneBefore { members, objects, parts, made_dirs, existing_dirs, marks, .. } = self;
        members.all.is_empty()
            && objects.count == 0
            && parts.is_empty()
            && made_dirs.is_empty()
            && existing_dirs.is_empty()
            && marks.is_empty()
            && self.removals_started.is_empty()
            && self.removals_done.is_empty()
            && self.removed == 0
    }

    pub(super) fn count(&self) -> u64 {
        self.members.count().saturating_add(self.objects.count).saturating_add(self.removed)
    }

    /// Why something is in memory that should be in a temporary file; once.
    pub(super) fn trouble(&mut self) -> Option<OverflowError> {
        self.objects.by_path.trouble()
    }

    pub(super) fn dir(&self, path: u64) -> bool {
        self.made_dirs.contains(&path) || self.existing_dirs.contains(&path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_hold_what_was_added(parts in prop::collection::vec((0u64..60, 0u64..8), 0..40)) {
            let mut ranges = Ranges::default();
            let mut want = BTreeSet::new();
            for (from, len) in parts {
                ranges.add(from, from + len);
                want.extend(from..from + len);
            }
            for n in 0..80 {
                prop_assert_eq!(ranges.has(n), want.contains(&n));
            }
            prop_assert_eq!(ranges.count(), want.len() as u64);
            prop_assert_eq!(ranges.end(), want.last().map_or(0, |n| n + 1));
            // None touches the next.
            let pairs = ranges.pairs();
            prop_assert!(pairs.windows(2).all(|w| w[0].1 < w[1].0));
        }
    }
}
