//! Filehandles of directories that earlier walks passed through, so that a deep path is walked once.
//!
//! A directory that another client renames keeps its handle, so a path may lead to its former object: for at most
//! [`DIR_FRESH`], as with the attribute cache of a kernel's client. Time is an argument.

use std::collections::BTreeMap;
use std::time::Instant;

use landfast_nfs::v4::FileHandle;

use super::path::Step;
use crate::limits::{DIR_FRESH, DIRS_KEPT_MAX};

#[derive(Debug, Default)]
pub(super) struct Dirs {
    /// Ordered by path, so that everything below a directory follows it.
    known: BTreeMap<Vec<Step>, (FileHandle, Instant)>,
}

impl Dirs {
    /// The longest known beginning of `steps`, at most `most` steps long, and its handle.
    pub(super) fn nearest(&self, steps: &[Step], most: usize, now: Instant) -> Option<(usize, FileHandle)> {
        (1..=steps.len().min(most)).rev().find_map(|n| {
            let (fh, since) = self.known.get(&steps[..n])?;
            (now.saturating_duration_since(*since) < DIR_FRESH).then(|| (n, fh.clone()))
        })
    }

    /// A walk by `steps` reached this directory.
    pub(super) fn learn(&mut self, steps: &[Step], fh: FileHandle, now: Instant) {
        if self.known.len() >= DIRS_KEPT_MAX {
            self.known.retain(|_, (_, since)| now.saturating_duration_since(*since) < DIR_FRESH);
        }
        if self.known.len() < DIRS_KEPT_MAX {
            self.known.insert(steps.to_vec(), (fh, now));
        }
    }

    /// Forgets what `steps` names and everything below it.
    pub(super) fn forget(&mut self, steps: &[Step]) {
        let below = self.known.range(steps.to_vec()..).map(|(known, _)| known);
        let gone: Vec<Vec<Step>> = below.take_while(|known| known.starts_with(steps)).cloned().collect();
        for known in gone {
            self.known.remove(&known);
        }
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Forgets a handle that is stale.
    pub(super) fn forget_handle(&mut self, fh: &FileHandle) {
        self.known.retain(|_, (known, _)| known != fh);
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::steps;
    use super::*;

    fn fh(n: u8) -> FileHandle {
        FileHandle(vec![n].into())
    }

    #[test]
    fn the_longest_fresh_beginning_is_found_and_what_moved_is_forgotten() {
        let mut dirs = Dirs::default();
        let start = Instant::now();
        dirs.learn(&steps(b"a"), fh(1), start);
        dirs.learn(&steps(b"a/b"), fh(2), start + DIR_FRESH / 2);
        let path = steps(b"a/b/c");
        assert_eq!(dirs.nearest(&path, 9, start), Some((2, fh(2))));
        assert_eq!(dirs.nearest(&path, 1, start), Some((1, fh(1))));
        assert_eq!(dirs.nearest(&path, 1, start + DIR_FRESH), None);
        assert_eq!(dirs.nearest(&path, 9, start + DIR_FRESH), Some((2, fh(2))));
        dirs.forget(&steps(b"a/b"));
        assert_eq!(dirs.nearest(&path, 9, start), Some((1, fh(1))));
        dirs.forget_handle(&fh(1));
        assert_eq!(dirs.nearest(&path, 9, start), None);
    }

    #[test]
    fn there_are_never_more_than_the_limit() {
        let mut dirs = Dirs::default();
        let now = Instant::now();
        for n in 0..DIRS_KEPT_MAX + 10 {
            dirs.learn(&steps(n.to_string().as_bytes()), fh(0), now);
        }
        assert_eq!(dirs.known.len(), DIRS_KEPT_MAX);
        dirs.learn(&steps(b"later"), fh(1), now + DIR_FRESH);
        assert_eq!(dirs.known.len(), 1);
    }
}
