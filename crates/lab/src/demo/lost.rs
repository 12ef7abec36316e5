//! What a power cut took of the files that a client was told are there.

use super::archive::Archive;
use crate::error::{Context, Result};
use crate::tarball::{self, Kind};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Names and contents only: what a client was told of owners, modes and times is not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Files that were acknowledged before the cut.
    pub acknowledged: u64,
    /// Of these, files that were then renamed, and acknowledged again.
    pub renamed: u64,
    /// Of these, files that do not have the last name that was acknowledged.
    pub names: u64,
    /// Of these, files that are there with other contents.
    pub damaged: u64,
    /// Bytes of the acknowledged files that are not at their places.
    pub bytes: u64,
}

impl Lost {
    /// Files that are not as they were acknowledged.
    pub fn files(&self) -> u64 {
        self.names + self.damaged
    }
}

/// Which files of the archive were acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) enum Acknowledged<'a> {
    /// The first so many.
    First(u64),
    /// The first so many; the last so many of these were renamed to [`new_name`].
    Renamed(u64, u64),
    Named(&'a [String]),
}

/// What a file of the archive is renamed to.
pub(super) fn new_name(path: &[u8]) -> Vec<u8> {
    [path, b".done"].concat()
}

/// Looks for the acknowledged files below `root`.
/// Errors: The archive or the tree cannot be read. What is lost is no error.
pub(super) fn count(archive: &Archive, acknowledged: Acknowledged<'_>, root: &Path) -> Result<Lost> {
    let named: HashSet<&[u8]> = match acknowledged {
        Acknowledged::First(_) | Acknowledged::Renamed(..) => HashSet::new(),
        Acknowledged::Named(names) => names.iter().map(String::as_bytes).collect(),
    };
    let (mut lost, mut nth) = (Lost::default(), 0);
    tarball::read(archive.open()?, |member| {
        let Kind::File(data) = &member.kind else { return Ok(ControlFlow::Continue(())) };
        nth += 1;
        match acknowledged {
            Acknowledged::First(files) | Acknowledged::Renamed(files, _) if nth > files => {
                return Ok(ControlFlow::Break(()));
            }
            Acknowledged::Named(_) if !named.contains(&member.path[..]) => {
                return Ok(ControlFlow::Continue(()));
            }
            _ => {}
        }
        lost.acknowledged += 1;
        let renamed = matches!(acknowledged, Acknowledged::Renamed(files, last) if nth + last > files);
        lost.renamed += u64::from(renamed);
        let name = if renamed { new_name(&member.path) } else { member.path.clone() };
        let found = read(root, name)?;
        lost.names += u64::from(found.is_none());
        lost.damaged += u64::from(found.as_ref().is_some_and(|found| *found != data[..]));
        // Without its new name its contents may still be under the old one.
        let there = match found {
            None if renamed => read(root, member.path.clone())?,
            found => found,
        };
        let there = there.unwrap_or_default();
        let same = there.iter().zip(data.iter()).filter(|(a, b)| a == b).count();
        lost.bytes += (data.len() - same) as u64;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(lost)
}

/// The contents of a file, if it is there.
fn read(root: &Path, path: Vec<u8>) -> Result<Option<Vec<u8>>> {
    let at = root.join(PathBuf::from(OsString::from_vec(path)));
    match std::fs::read(&at) {
        Ok(found) => Ok(Some(found)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).context(|| format!("read {}", at.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tarball::{Shape, write_random};

    #[test]
    fn names_contents_and_bytes_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let given = dir.path().join("given.tar");
        let shape = Shape { files: 8, file_bytes: 100, per_dir: 4, seed: 5 };
        write_random(shape, std::fs::File::create(&given).unwrap()).unwrap();
        let archive = Archive::prepare(Some(&given), dir.path()).unwrap();
        let tree = archive.sources(dir.path().join("root")).unwrap();
        let of = |acknowledged| count(&archive, acknowledged, &tree.tree).unwrap();
        assert_eq!(of(Acknowledged::First(6)), Lost { acknowledged: 6, ..Lost::default() });
        // The second has lost its name, the third a byte at its end, the seventh everything.
        std::fs::remove_file(tree.tree.join(&tree.files[1])).unwrap();
        let third = tree.tree.join(&tree.files[2]);
        let data = std::fs::read(&third).unwrap();
        std::fs::write(&third, &data[..99]).unwrap();
        std::fs::write(tree.tree.join(&tree.files[6]), "").unwrap();
        let lost = of(Acknowledged::First(6));
        assert_eq!(lost, Lost { acknowledged: 6, renamed: 0, names: 1, damaged: 1, bytes: 101 });
        assert_eq!(lost.files(), 2);
        let lost = of(Acknowledged::Named(&tree.files[5..]));
        assert_eq!(lost, Lost { acknowledged: 3, renamed: 0, names: 0, damaged: 1, bytes: 100 });
        // Of two that were renamed one has its new name, the other its old.
        let new = tree.tree.join(String::from_utf8(new_name(tree.files[4].as_bytes())).unwrap());
        std::fs::rename(tree.tree.join(&tree.files[4]), new).unwrap();
        let lost = of(Acknowledged::Renamed(6, 2));
        assert_eq!(lost, Lost { acknowledged: 6, renamed: 2, names: 2, damaged: 1, bytes: 101 });
        // The whole tree.
        std::fs::remove_dir_all(tree.tree.join("tree")).unwrap();
        assert_eq!(
            of(Acknowledged::First(8)),
            Lost { acknowledged: 8, renamed: 0, names: 8, damaged: 0, bytes: 800 }
        );
    }
}
