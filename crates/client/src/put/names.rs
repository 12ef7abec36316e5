//! The names in a directory, in little memory. No I/O.
//!
//! An archive may contain a name twice, so all names are remembered. For nearly all of them it only matters that they exist
//! and are not directories. Of these only a hash of 8 bytes is kept; its key is random for each directory of each run. If two
//! names had the same hash, a free name would be taken for an existing one. That does no harm: the existing object is looked
//! up or removed first, is not there, and the new one is made.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use bytes::Bytes;
use landfast_nfs::v4::FileHandle;

use super::ids::{DirId, ItemId};

/// What a name stands for.
#[derive(Debug, Clone)]
pub(super) enum Name {
    /// A directory in the table.
    Dir(DirId),
    /// An existing directory that has not been needed yet.
    Found(FileHandle),
    /// This item is making it.
    Busy(ItemId),
    /// As `Other`, while this many hard links to it are being made. `last` is the latest one.
    Pinned { links: u32, last: ItemId },
    /// Anything but a directory.
    Other,
    /// The same, made by this run, where it matters.
    Ours,
}

static OTHER: Name = Name::Other;
static OURS: Name = Name::Ours;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names of which more is known.
    named: HashMap<Bytes, Name>,
    others: Numbers,
    ours: Numbers,
}

type Numbers = HashSet<u64, BuildHasherDefault<Number>>;

#[derive(Debug, Default)]
struct Number(u64);

impl Hasher for Number {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |all, b| all << 8 | u64::from(*b));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

impl Names {
    pub(super) fn get(&self, name: &Bytes) -> Option<&Name> {
        if let Some(known) = self.named.get(name) {
            return Some(known);
        }
        let number = self.number(name);
        let named = |numbers: &Numbers, what: &'static Name| numbers.contains(&number).then_some(what);
        named(&self.ours, &OURS).or_else(|| named(&self.others, &OTHER))
    }

    pub(super) fn insert(&mut self, name: Bytes, what: Name) {
        self.remove(&name);
        match what {
            Name::Other => drop(self.others.insert(self.number(&name))),
            Name::Ours => drop(self.ours.insert(self.number(&name))),
            what => drop(self.named.insert(name, what)),
        }
    }

    pub(super) fn remove(&mut self, name: &Bytes) {
        /// Tables below this size are not shrunk.
        const SMALL: usize = 16;
        if self.named.remove(name).is_some() {
            // Many items were in progress at a time, and are settled now. Free the memory.
            if self.named.capacity() > SMALL && self.named.len() <= self.named.capacity() / 8 {
                self.named.shrink_to_fit();
            }
            return;
        }
        let number = self.number(name);
        self.others.remove(&number);
        self.ours.remove(&number);
    }

    fn number(&self, name: &Bytes) -> u64 {
        self.named.hasher().hash_one(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn what(n: u32) -> Name {
        match n % 5 {
            0 => Name::Dir(DirId(n)),
            1 => Name::Busy(ItemId(n)),
            2 => Name::Pinned { links: n, last: ItemId(n) },
            3 => Name::Other,
            _ => Name::Ours,
        }
    }

    proptest! {
        #[test]
        fn as_a_table_of_names(steps in prop::collection::vec((0u8..40, prop::option::of(any::<u32>())), 0..300)) {
            let mut names = Names::default();
            let mut want: HashMap<Bytes, Name> = HashMap::new();
            for (name, step) in steps {
                let name = Bytes::from(vec![b'n', name]);
                match step.map(what) {
                    Some(what) => {
                        names.insert(name.clone(), what.clone());
                        want.insert(name, what);
                    }
                    None => {
                        names.remove(&name);
                        want.remove(&name);
                    }
                }
                for name in (0..40).map(|n| Bytes::from(vec![b'n', n])) {
                    prop_assert_eq!(format!("{:?}", names.get(&name)), format!("{:?}", want.get(&name)));
                }
            }
        }
    }

    #[test]
    fn settled_names_take_little_memory() {
        let mut names = Names::default();
        for n in 0..1000u32 {
            names.insert(Bytes::from(format!("name-{n}")), Name::Busy(ItemId(n)));
        }
        for n in 0..1000u32 {
            names.insert(Bytes::from(format!("name-{n}")), Name::Other);
        }
        assert!(names.named.capacity() <= 32, "{}", names.named.capacity());
        assert_eq!(names.others.len(), 1000);
    }
}
