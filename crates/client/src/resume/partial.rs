//! Large files that an earlier run left unfinished.

use std::collections::HashMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartialFile {
    /// The hash of the object, or the number of the archive member.
    pub(super) object: u64,
    /// Durable bytes. 0: start over.
    pub(super) upto: u64,
    /// The filehandle, or the identity of a local file.
    pub(super) fh: Vec<u8>,
    /// The digest up to there of an archive that cannot be read twice.
    pub(super) digest: Option<u64>,
}

/// The first object at each path in this run. `None`: there were several.
#[derive(Debug, Default)]
pub(super) struct FirstMembers(HashMap<u64, Option<u64>>);

impl FirstMembers {
    pub(super) fn add(&mut self, path: u64, object: u64) {
        self.0.entry(path).and_modify(|first| *first = None).or_insert(Some(object));
    }

    pub(super) fn is_first(&self, path: u64, object: u64) -> bool {
        self.0.get(&path) == Some(&Some(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_first_to_its_path_goes_on() {
        let mut first_members = FirstMembers::default();
        assert!(!first_members.is_first(1, 5));
        first_members.add(1, 5);
        assert!(first_members.is_first(1, 5) && !first_members.is_first(1, 6));
        first_members.add(1, 6);
        assert!(!first_members.is_first(1, 5) && !first_members.is_first(1, 6));
    }
}
