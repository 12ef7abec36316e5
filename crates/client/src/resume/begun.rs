//! Large files that were begun.

use std::collections::HashMap;

/// What the journal has of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Begun {
    /// Which object, or member of an archive.
    pub(super) object: u64,
    /// Bytes that are stable; 0: it is begun again.
    pub(super) upto: u64,
    /// Where they are.
    pub(super) fh: Vec<u8>,
    /// That of an archive that cannot be read twice, up to there.
    pub(super) digest: Option<u64>,
}

/// Where a large file comes for the first time in a run, and as what.
#[derive(Debug, Default)]
pub(super) struct Came(HashMap<u64, Option<u64>>);

impl Came {
    /// Something is done at this path, of which a part was done.
    pub(super) fn comes(&mut self, path: u64, object: u64) {
        self.0.entry(path).and_modify(|first| *first = None).or_insert(Some(object));
    }

    /// Whether nothing else of this run has been there.
    pub(super) fn is_first(&self, path: u64, object: u64) -> bool {
        self.0.get(&path) == Some(&Some(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_first_to_its_path_goes_on() {
        let mut came = Came::default();
        assert!(!came.is_first(1, 5));
        came.comes(1, 5);
        assert!(came.is_first(1, 5) && !came.is_first(1, 6));
        came.comes(1, 6);
        assert!(!came.is_first(1, 5) && !came.is_first(1, 6));
    }
}
