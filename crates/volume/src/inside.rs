//! Checks whether a file lies inside a served directory, so that clients of that directory could read or change it.
//!
//! The filesystem's own tree counts, not the path: symbolic links and bind mounts lead to one object by many paths. A file on
//! another filesystem is not inside, even if its path is, since an export ends where something else is mounted.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::kernel::{self, OwnedFd};
use crate::limits::{DEPTH_MAX, STACKED_MAX};

const UP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// How clients of a directory could reach a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inside {
    /// It lies there, or will when it is made.
    There,
    /// It is a device whose bytes are in this file, which lies there.
    Backed(PathBuf),
    /// It has several names on the directory's filesystem, and any of them may lie there.
    Linked,
    /// It is a file mounted from the directory's filesystem: its place there cannot be found out.
    Mounted,
}

impl std::fmt::Display for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Inside::There => f.write_str("lies inside it"),
            Inside::Backed(file) => write!(f, "is kept in {}, which lies inside it", file.display()),
            Inside::Linked => f.write_str(
                "has several names (hard links) on its filesystem, any of which may lie inside it",
            ),
            Inside::Mounted => {
                f.write_str("is a bind mount of a file on its filesystem, which may lie inside it")
            }
        }
    }
}

/// Whether `what` lies inside the directory `dir`. The file need not exist yet, but if its directory does not exist either,
/// nothing is inside. Fails if something could not be looked at.
pub fn lies_inside(dir: &Path, what: &Path) -> io::Result<Option<Inside>> {
    lies_inside_by(dir, what, 0)
}

fn lies_inside_by(dir: &Path, what: &Path, stacked: usize) -> io::Result<Option<Inside>> {
    let Some(top) = if_exists(kernel::open(dir, DIRECTORY, Mode::empty()))? else { return Ok(None) };
    let top_look = kernel::look(&top)?;
    let file = if_exists(kernel::open(what, FILE, Mode::empty()))?;
    let look = file.as_ref().map(kernel::look).transpose()?;
    let kind = look.as_ref().map(|look| FileType::from_raw_mode(u32::from(look.stx_mode)));
    if let (Some(look), Some(FileType::BlockDevice)) = (&look, kind) {
        // A file that cannot be looked at (in another mount namespace) is in no directory of ours.
        for backing in kernel::files_below((look.stx_rdev_major, look.stx_rdev_minor)) {
            if stacked < STACKED_MAX && matches!(lies_inside_by(dir, &backing, stacked + 1), Ok(Some(_))) {
                return Ok(Some(Inside::Backed(backing)));
            }
        }
    }
    let holder = match (file, kind) {
        (Some(file), Some(FileType::Directory)) => file,
        _ => {
            // A link to a file leads to the file's directory.
            let resolved = kernel::canonicalize(what).unwrap_or_else(|_| what.to_owned());
            let above = match resolved.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            let Some(above) = if_exists(kernel::open(above, UP, Mode::empty()))? else { return Ok(None) };
            let above_look = kernel::look(&above)?;
            if let Some(look) = look.filter(|look| device(look) == device(&top_look)) {
                if kind == Some(FileType::RegularFile) && look.stx_nlink > 1 {
                    return Ok(Some(Inside::Linked));
                }
                if look.stx_mnt_id != above_look.stx_mnt_id {
                    return Ok(Some(Inside::Mounted));
                }
            }
            above
        }
    };
    Ok(is_below(&top, &holder)?.then_some(Inside::There))
}

/// Turns "does not exist" into `None`.
fn if_exists(opened: Result<OwnedFd, Errno>) -> io::Result<Option<OwnedFd>> {
    match opened {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn device(look: &Statx) -> (u32, u32) {
    (look.stx_dev_major, look.stx_dev_minor)
}

/// Whether the directory `inner` is `top` (which is open for reading) or lies below it on the same filesystem, through
/// whichever mount it was reached.
pub(crate) fn is_below(top: &OwnedFd, inner: &OwnedFd) -> Result<bool, Errno> {
    let (above, below) = (kernel::look(top)?, kernel::look(inner)?);
    if device(&above) != device(&below) {
        return Ok(false);
    }
    // Reopens `inner` through the mount of `top`. If that mount shows another part of the filesystem, there is no way up.
    let handle = kernel::handle_of(inner).and_then(|(handle, _)| kernel::open_handle(top, &handle));
    let mut at = match handle {
        Ok(at) => at,
        // Without the right to open handles, follows the path.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::OVERFLOW) => {
            kernel::openat(inner, c".", UP, Mode::empty())?
        }
        Err(Errno::STALE) => return Ok(false),
        Err(e) => return Err(e),
    };
    for _ in 0..DEPTH_MAX {
        let here = kernel::look(&at)?;
        if (here.stx_ino, device(&here)) == (above.stx_ino, device(&above)) {
            return Ok(true);
        }
        let next = match kernel::openat(&at, c"..", UP, Mode::empty()) {
            Ok(next) => next,
            // A directory below `top` is also below the root of any mount that shows `top`.
            Err(Errno::NOENT) => return Ok(false),
            Err(e) => return Err(e),
        };
        let seen = kernel::look(&next)?;
        if (seen.stx_ino, device(&seen)) == (here.stx_ino, device(&here)) || device(&seen) != device(&above) {
            return Ok(false);
        }
        at = next;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(dir: &Path, what: PathBuf) -> Option<Inside> {
        lies_inside(dir, &what).unwrap()
    }

    #[test]
    fn links_and_names_of_all_kinds_lead_to_where_a_file_is() {
        let temp = tempfile::tempdir().unwrap();
        let (a, b) = (temp.path().join("a"), temp.path().join("ab"));
        std::fs::create_dir_all(a.join("deep/er")).unwrap();
        std::fs::create_dir(&b).unwrap();
        for (name, at) in [("file", &a), ("file", &b)] {
            std::fs::write(at.join(name), b"x").unwrap();
        }
        std::os::unix::fs::symlink(a.join("deep"), b.join("to-a")).unwrap();
        std::os::unix::fs::symlink(b.join("file"), a.join("to-b")).unwrap();
        std::os::unix::fs::symlink(a.join("file"), b.join("file-of-a")).unwrap();
        for what in [
            a.join("file"),
            a.join("not-yet"),
            a.join("deep/er/not-yet"),
            a.join("deep"),
            a.clone(),
            b.join("to-a/not-yet"),
            b.join("to-a/er"),
            b.join("file-of-a"),
            b.join("../a/file"),
        ] {
            assert_eq!(inside(&a, what.clone()), Some(Inside::There), "{}", what.display());
        }
        for what in
            [b.join("file"), b.join("not-yet"), a.join("to-b"), temp.path().to_owned(), a.join("no/where")]
        {
            assert_eq!(inside(&a, what.clone()), None, "{}", what.display());
        }
        assert_eq!(inside(&temp.path().join("none"), b.join("file")), None);
        std::fs::hard_link(b.join("file"), b.join("again")).unwrap();
        assert_eq!(inside(&a, b.join("file")), Some(Inside::Linked));
    }
}
