//! The names in a directory of which more is known than that they exist. No I/O.
//!
//! An archive may contain a name twice, so all names are remembered. For nearly all of them it only matters that they exist and
//! are not directories: those are in [`super::tree::Tree`]'s table, as hashes.

use std::collections::HashMap;

use bytes::Bytes;
use landfast_nfs::v4::FileHandle;

use super::ids::{DirId, ItemId};

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<Bytes, Name>);

impl Names {
    pub(super) fn get(&self, name: &Bytes) -> Option<&Name> {
        self.0.get(name)
    }

    pub(super) fn insert(&mut self, name: Bytes, what: Name) {
        self.0.insert(name, what);
    }

    pub(super) fn remove(&mut self, name: &Bytes) {
        /// Tables below this size are not shrunk.
        const SMALL: usize = 16;
        // Many items were in progress at a time, and are settled now. Free the memory.
        if self.0.remove(name).is_some() && self.0.capacity() > SMALL && self.0.len() <= self.0.capacity() / 8
        {
            self.0.shrink_to_fit();
        }
    }

    /// Whether nothing in progress needs a name, and no directory in memory has one.
    pub(super) fn is_quiet(&self) -> bool {
        self.0.values().all(|what| matches!(what, Name::Found(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_settled_take_no_memory() {
        let mut names = Names::default();
        let name = |n: u32| Bytes::from(format!("name-{n}"));
        (0..1000).for_each(|n| names.insert(name(n), Name::Busy(ItemId(n))));
        (0..1000).for_each(|n| names.remove(&name(n)));
        assert!(names.0.capacity() <= 32, "{}", names.0.capacity());
    }
}
