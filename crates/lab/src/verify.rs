//! An extracted tree against its archive, byte for byte and attribute for attribute.

use crate::error::{Context, Error, Result};
use crate::tarball::{Kind, Member};
use std::collections::HashMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// At most so many differences are described; the others are counted.
const SHOWN_MAX: usize = 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub members: u64,
    pub files: u64,
    /// Bytes of contents that were compared.
    pub bytes: u64,
    pub differences: u64,
    /// The first of them, described.
    pub shown: Vec<String>,
}

impl Comparison {
    fn differ(&mut self, path: &[u8], what: impl std::fmt::Display) {
        self.differences += 1;
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(format!("{}: {what}", path.escape_ascii()));
        }
    }

    /// An error that shows the differences, if there are any.
    /// Errors: [`Error::WrongData`] when there is a difference.
    pub fn into_result(self) -> Result<Comparison> {
        if self.differences == 0 {
            return Ok(self);
        }
        Err(Error::WrongData(format!(
            "{} differences between tree and archive: {}",
            self.differences,
            self.shown.join("; ")
        )))
    }
}

/// Compares what is below `root` with the members of a plain tar: nothing may be missing, different
/// or additional. With several members of one path the last one counts.
/// Errors: When the archive or the tree cannot be read; differences are no errors.
pub fn compare(archive: impl Read, root: &Path) -> Result<Comparison> {
    let mut out = Comparison::default();
    // Directories that members imply may be there without a member of their own.
    let mut expected: HashMap<Vec<u8>, bool> = HashMap::new();
    crate::tarball::read(archive, |member| {
        for (i, _) in member.path.iter().enumerate().filter(|(_, b)| **b == b'/') {
            expected.entry(member.path[..i].to_vec()).or_insert(false);
        }
        expected.insert(member.path.clone(), true);
        compare_member(&member, root, &mut out);
        Ok(ControlFlow::Continue(()))
    })?;
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        let at = root.join(&dir);
        for entry in std::fs::read_dir(&at).context(|| format!("read {}", at.display()))? {
            let entry = entry.context(|| format!("read {}", at.display()))?;
            let path = dir.join(entry.file_name());
            if dir.as_os_str().is_empty() && entry.file_name() == ".landfast" {
                continue;
            }
            if !expected.contains_key(path.as_os_str().as_bytes()) {
                out.differ(path.as_os_str().as_bytes(), "is not in the archive");
            } else if entry.file_type().is_ok_and(|t| t.is_dir()) {
                dirs.push(path);
            }
        }
    }
    Ok(out)
}

/// Files of a plain tar that are below `root` with their contents, whatever their attributes. What is not there is not
/// counted.
/// Errors: The archive or a file cannot be read; [`Error::WrongData`]: a file that is there has other contents.
pub fn same_contents(archive: impl Read, root: &Path) -> Result<u64> {
    let mut files = 0;
    crate::tarball::read(archive, |member| {
        let Kind::File(data) = &member.kind else { return Ok(ControlFlow::Continue(())) };
        let at = root.join(PathBuf::from(std::ffi::OsString::from_vec(member.path.clone())));
        match std::fs::read(&at) {
            Ok(found) if found == data[..] => files += 1,
            Ok(_) => return Err(Error::WrongData(format!("{}: other contents", at.display()))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).context(|| format!("read {}", at.display())),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(files)
}

fn compare_member(member: &Member, root: &Path, out: &mut Comparison) {
    let at = root.join(PathBuf::from(std::ffi::OsString::from_vec(member.path.clone())));
    out.members += 1;
    let meta = match std::fs::symlink_metadata(&at) {
        Ok(meta) => meta,
        Err(e) => return out.differ(&member.path, e),
    };
    let t = meta.file_type();
    let same_type = match &member.kind {
        Kind::File(_) => t.is_file(),
        Kind::Dir => t.is_dir(),
        Kind::Symlink(_) => t.is_symlink(),
        Kind::Hardlink(_) => !t.is_dir(),
        Kind::Fifo => t.is_fifo(),
        Kind::Char(..) => t.is_char_device(),
        Kind::Block(..) => t.is_block_device(),
    };
    if !same_type {
        return out.differ(&member.path, format!("is of another type: {t:?}"));
    }
    match &member.kind {
        Kind::File(data) => {
            out.files += 1;
            out.bytes += data.len() as u64;
            match std::fs::read(&at) {
                Ok(got) if got == data[..] => {}
                Ok(got) if got.len() != data.len() => {
                    out.differ(&member.path, format!("has {} bytes, not {}", got.len(), data.len()));
                }
                Ok(_) => out.differ(&member.path, "has other contents"),
                Err(e) => out.differ(&member.path, e),
            }
        }
        Kind::Symlink(to) => match std::fs::read_link(&at) {
            Ok(got) if got.as_os_str().as_bytes() == to => {}
            Ok(got) => out.differ(&member.path, format!("points to {}", got.display())),
            Err(e) => out.differ(&member.path, e),
        },
        Kind::Hardlink(to) => {
            let target = root.join(PathBuf::from(std::ffi::OsString::from_vec(to.clone())));
            match std::fs::symlink_metadata(&target) {
                Ok(t) if (t.dev(), t.ino()) == (meta.dev(), meta.ino()) => {}
                Ok(_) => out.differ(&member.path, "is not the same file as its target"),
                Err(e) => out.differ(&member.path, e),
            }
            // Its attributes are those of the target's own member.
            return;
        }
        Kind::Char(major, minor) | Kind::Block(major, minor) => {
            let got = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
            if got != (*major, *minor) {
                out.differ(&member.path, format!("is device {got:?}"));
            }
        }
        Kind::Dir | Kind::Fifo => {}
    }
    if !t.is_symlink() && meta.mode() & 0o7777 != member.mode {
        out.differ(&member.path, format!("has mode {:o}, not {:o}", meta.mode() & 0o7777, member.mode));
    }
    // Only root can give files away.
    if rustix::process::geteuid().is_root() && (meta.uid(), meta.gid()) != (member.uid, member.gid) {
        out.differ(
            &member.path,
            format!("belongs to {}:{}, not {}:{}", meta.uid(), meta.gid(), member.uid, member.gid),
        );
    }
    if (meta.mtime(), meta.mtime_nsec()) != (member.mtime.0, i64::from(member.mtime.1)) {
        out.differ(&member.path, format!("has mtime {}.{:09}", meta.mtime(), meta.mtime_nsec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tarball::{Shape, write_random};
    use std::process::{Command, Stdio};

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn a_tree_that_tar_made_is_equal_until_it_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let tar = dir.path().join("a.tar");
        let shape = Shape { files: 20, file_bytes: 1000, per_dir: 7, seed: 2 };
        write_random(shape, std::fs::File::create(&tar).unwrap()).unwrap();
        let tree = dir.path().join("x");
        std::fs::create_dir(&tree).unwrap();
        let done =
            Command::new("tar").arg("-xpf").arg(&tar).arg("-C").arg(&tree).stdin(Stdio::null()).status();
        assert!(done.unwrap().success());
        let compared = || compare(std::fs::File::open(&tar).unwrap(), &tree).unwrap();
        assert_eq!((compared().differences, compared().files, compared().bytes), (0, 20, 20_000));

        let file = tree.join("tree/d00000/f0000003");
        let mut data = std::fs::read(&file).unwrap();
        data[999] ^= 1;
        std::fs::write(&file, data).unwrap();
        std::fs::write(tree.join("tree/more"), "").unwrap();
        std::fs::remove_file(tree.join("tree/d00001/f0000008")).unwrap();
        // Contents and time of the one, both directories' times, one too many, one too few.
        assert_eq!(compared().differences, 6);
    }
}
