//! Checks whether a file lies inside a served directory, so that clients of that directory could read or change it.
//!
//! The filesystem's own tree counts, not the path: symbolic links and bind mounts lead to one object by many paths. A file on
//! another filesystem is not inside, even if its path is, since an export ends where something else is mounted.

use std::collections::HashMap;
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

/// Whether `what` lies inside the directory `dir`: [`Directories::holding`] for one directory.
///
/// # Errors
/// Something could not be looked at.
pub fn lies_inside(dir: &Path, what: &Path) -> io::Result<Option<Inside>> {
    let only = Directories::open([dir]);
    match (only.holding(what)?, only.unseen().next()) {
        (None, Some((_, e))) => Err(e),
        (found, _) => Ok(found.map(|(_, how)| how)),
    }
}

/// Directories, in which things are looked for in time that does not grow with their number: the way up from a thing is
/// gone once for each mount on which directories are.
#[derive(Debug, Default)]
pub struct Directories {
    mounts: Vec<OfMount>,
    /// Those that could not be looked at, and why. One that does not exist has nothing in it.
    unseen: Vec<(usize, Errno)>,
}

/// The directories on one mount.
#[derive(Debug)]
struct OfMount {
    id: u64,
    device: (u32, u32),
    /// One of them, open for reading: through it handles are opened on this mount.
    top: OwnedFd,
    /// Which of the directories have this inode number.
    by_inode: HashMap<u64, Vec<usize>>,
}

impl Directories {
    /// The directories with these paths. They are numbered in this order.
    pub fn open<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Directories {
        let mut all = Directories::default();
        for (n, path) in paths.into_iter().enumerate() {
            let top = match kernel::open(path, DIRECTORY, Mode::empty()) {
                Ok(top) => top,
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(e) => {
                    all.unseen.push((n, e));
                    continue;
                }
            };
            if let Err(e) = all.add(n, &top) {
                all.unseen.push((n, e));
            }
        }
        all
    }

    /// Adds directory number `n`, which is open for reading.
    pub(crate) fn add(&mut self, n: usize, top: &OwnedFd) -> Result<(), Errno> {
        let look = kernel::look(top)?;
        let (id, device) = (look.stx_mnt_id, device(&look));
        let known = self.mounts.iter().position(|mount| (mount.id, mount.device) == (id, device));
        let mount = match known {
            Some(known) => &mut self.mounts[known],
            None => {
                let top = kernel::openat(top, c".", DIRECTORY, Mode::empty())?;
                self.mounts.push(OfMount { id, device, top, by_inode: HashMap::new() });
                let last = self.mounts.len() - 1;
                &mut self.mounts[last]
            }
        };
        mount.by_inode.entry(look.stx_ino).or_default().push(n);
        Ok(())
    }

    /// The directories that could not be looked at, and why.
    pub fn unseen(&self) -> impl Iterator<Item = (usize, io::Error)> {
        self.unseen.iter().map(|(n, e)| (*n, (*e).into()))
    }

    /// The number of a directory in which `what` lies, and how. The file need not exist yet, but if its directory does not exist
    /// either, it lies in none. Nothing is found in directories that could not be looked at ([`Directories::unseen`]).
    ///
    /// # Errors
    /// `what` could not be looked at.
    pub fn holding(&self, what: &Path) -> io::Result<Option<(usize, Inside)>> {
        self.holding_by(what, 0)
    }

    fn holding_by(&self, what: &Path, stacked: usize) -> io::Result<Option<(usize, Inside)>> {
        if self.mounts.is_empty() {
            return Ok(None);
        }
        let file = if_exists(kernel::open(what, FILE, Mode::empty()))?;
        let look = file.as_ref().map(kernel::look).transpose()?;
        let kind = look.as_ref().map(|look| FileType::from_raw_mode(u32::from(look.stx_mode)));
        if let (Some(look), Some(FileType::BlockDevice)) = (&look, kind) {
            // A file that cannot be looked at (in another mount namespace) is in no directory of ours.
            for backing in kernel::files_below((look.stx_rdev_major, look.stx_rdev_minor)) {
                if stacked < STACKED_MAX
                    && let Ok(Some((n, _))) = self.holding_by(&backing, stacked + 1)
                {
                    return Ok(Some((n, Inside::Backed(backing))));
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
                if let Some(look) = look
                    && let Some(n) = self.first_on(device(&look))
                {
                    if kind == Some(FileType::RegularFile) && look.stx_nlink > 1 {
                        return Ok(Some((n, Inside::Linked)));
                    }
                    if look.stx_mnt_id != above_look.stx_mnt_id {
                        return Ok(Some((n, Inside::Mounted)));
                    }
                }
                above
            }
        };
        Ok(self.above(&holder)?.into_iter().min().map(|n| (n, Inside::There)))
    }

    /// The first directory on this filesystem.
    fn first_on(&self, device: (u32, u32)) -> Option<usize> {
        let on = self.mounts.iter().filter(|mount| mount.device == device);
        on.flat_map(|mount| mount.by_inode.values().flatten().copied()).min()
    }

    /// The directories that `inner` is or lies below on the same filesystem, through whichever mount it was reached.
    pub(crate) fn above(&self, inner: &OwnedFd) -> Result<Vec<usize>, Errno> {
        let on = device(&kernel::look(inner)?);
        let mut found = Vec::new();
        for mount in self.mounts.iter().filter(|mount| mount.device == on) {
            mount.above(inner, &mut found)?;
        }
        Ok(found)
    }
}

impl OfMount {
    fn above(&self, inner: &OwnedFd, found: &mut Vec<usize>) -> Result<(), Errno> {
        // Reopens `inner` through this mount. If the mount shows another part of the filesystem, there is no way up.
        let handle = kernel::handle_of(inner).and_then(|(handle, _)| kernel::open_handle(&self.top, &handle));
        let mut at = match handle {
            Ok(at) => at,
            // Without the right to open handles, follows the path.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::OVERFLOW) => {
                kernel::openat(inner, c".", UP, Mode::empty())?
            }
            Err(Errno::STALE) => return Ok(()),
            Err(e) => return Err(e),
        };
        let mut here = kernel::look(&at)?;
        for _ in 0..DEPTH_MAX {
            if device(&here) == self.device {
                found.extend(self.by_inode.get(&here.stx_ino).into_iter().flatten());
            }
            let next = match kernel::openat(&at, c"..", UP, Mode::empty()) {
                Ok(next) => next,
                // A directory below one of these is also below the root of any mount that shows it.
                Err(Errno::NOENT) => return Ok(()),
                Err(e) => return Err(e),
            };
            let seen = kernel::look(&next)?;
            if (seen.stx_ino, device(&seen)) == (here.stx_ino, device(&here)) || device(&seen) != self.device
            {
                return Ok(());
            }
            (at, here) = (next, seen);
        }
        Ok(())
    }
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
        let all = Directories::open([&*temp.path().join("none"), &*a.join("deep"), &*a, &*b]);
        let holding = |what: PathBuf| all.holding(&what).unwrap();
        assert_eq!(holding(a.join("deep/er/not-yet")), Some((1, Inside::There)));
        assert_eq!(holding(a.join("to-b")), Some((3, Inside::There)));
        assert_eq!(holding(temp.path().join("not-yet")), None);
        let deep = kernel::open(a.join("deep/er"), DIRECTORY, Mode::empty()).unwrap();
        assert_eq!(all.above(&deep).unwrap(), [1, 2], "the nearest comes first");
        std::fs::hard_link(b.join("file"), b.join("again")).unwrap();
        assert_eq!(inside(&a, b.join("file")), Some(Inside::Linked));
    }
}
