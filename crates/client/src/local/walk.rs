//! Walks a tree depth first: each directory before its contents, names sorted by their bytes.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use landfast_nfs::v4::{FileType, Fsid, NfsTime};
use rustix::fs::{Access, AtFlags, CWD, Dir, Mode, OFlags, Stat, accessat, openat, readlinkat, statat};

use crate::fs::{Meta, Owner};

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Follow {
    /// None (`-P`).
    #[default]
    Never,
    /// The one that a walk starts at (`-H`).
    Start,
    /// All (`-L`).
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalkOptions {
    pub follow: Follow,
    /// Return directories of other filesystems, but do not enter them.
    pub one_file_system: bool,
    /// Do not enter directories: only the start is returned.
    pub flat: bool,
}

/// An object of the tree.
#[derive(Debug)]
pub struct Found {
    /// Its path, from what the start is called on.
    pub path: Vec<u8>,
    /// The number of levels below the start.
    pub depth: usize,
    pub meta: Meta,
    /// The target of a symbolic link.
    pub text: Vec<u8>,
    /// `None`: the name is a path from the working directory.
    dir: Option<Arc<OwnedFd>>,
    name: CString,
    follow: bool,
}

impl Found {
    /// Opens it for reading. It may have been replaced meanwhile, so this never blocks (as a FIFO would), and follows a symbolic
    /// link only if the walk does.
    pub fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = if self.follow { flags } else { flags | OFlags::NOFOLLOW };
        Ok(open_at(self.dir.as_ref(), &self.name, flags)?.into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Read the attributes, or a symbolic link's target.
    Stat,
    /// List a directory.
    List,
}

/// An object that could not be read. The walk continues with the next one.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .path.escape_ascii())]
pub struct Trouble {
    /// Its path, from what the start is called on.
    pub path: Vec<u8>,
    /// What was tried.
    pub attempt: Attempt,
    /// Why it failed.
    pub error: io::Error,
}

/// A directory that is being walked.
struct Level {
    dir: Arc<OwnedFd>,
    path: Vec<u8>,
    id: (u64, u64),
    /// The last is the next.
    names: Vec<CString>,
}

/// A directory that is walked next.
struct Entering {
    dir: Option<Arc<OwnedFd>>,
    name: CString,
    path: Vec<u8>,
    follow: bool,
    id: (u64, u64),
}

/// An iterator over a tree.
pub struct Walk {
    options: WalkOptions,
    start: Option<(CString, Vec<u8>)>,
    device: u64,
    levels: Vec<Level>,
    /// The latest object, if it is a directory. It is entered next.
    entering: Option<Entering>,
}

impl Walk {
    /// Starts at `path`. Results name it `shown`.
    pub fn new(path: &Path, shown: Vec<u8>, options: WalkOptions) -> Walk {
        // A path with a NUL byte names nothing. The empty path then fails in the same way.
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        Walk { options, start: Some((name, shown)), device: 0, levels: Vec::new(), entering: None }
    }

    /// Does not enter the latest directory.
    pub fn pass_over(&mut self) {
        self.entering = None;
    }

    fn enter(&mut self) -> Result<(), Trouble> {
        let Some(Entering { dir, name, path, follow, id }) = self.entering.take() else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
        let trouble =
            |path: &[u8], error: io::Error| Trouble { path: path.to_vec(), attempt: Attempt::List, error };
        if self.levels.iter().any(|level| level.id == id) {
            return Err(trouble(&path, io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error())));
        }
        let opened = open_at(dir.as_ref(), &name, flags).map_err(|e| trouble(&path, e))?;
        let names = names(&opened).map_err(|e| trouble(&path, e))?;
        self.levels.push(Level { dir: Arc::new(opened), path, id, names });
        Ok(())
    }

    fn look(&mut self, dir: Option<Arc<OwnedFd>>, name: CString, path: Vec<u8>) -> Result<Found, Trouble> {
        let depth = self.levels.len();
        let follow = match self.options.follow {
            Follow::Never => false,
            Follow::Start => depth == 0,
            Follow::Always => true,
        };
        let looked = look(dir.as_ref(), &name, follow);
        let (meta, text) = match looked {
            Ok(found) => found,
            Err(error) => return Err(Trouble { path, attempt: Attempt::Stat, error }),
        };
        if depth == 0 {
            self.device = meta.fsid.major;
        }
        let elsewhere = self.options.one_file_system && meta.fsid.major != self.device;
        if meta.is_dir() && !elsewhere && !self.options.flat {
            let id = (meta.fsid.major, meta.fileid);
            let (dir, name, path) = (dir.clone(), name.clone(), path.clone());
            self.entering = Some(Entering { dir, name, path, follow, id });
        }
        Ok(Found { path, depth, meta, text, dir, name, follow })
    }
}

impl Iterator for Walk {
    type Item = Result<Found, Trouble>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((name, shown)) = self.start.take() {
            return Some(self.look(None, name, shown));
        }
        if let Err(trouble) = self.enter() {
            return Some(Err(trouble));
        }
        loop {
            let level = self.levels.last_mut()?;
            match level.names.pop() {
                Some(name) => {
                    let path = crate::fs::join(&level.path, name.to_bytes());
                    let dir = level.dir.clone();
                    return Some(self.look(Some(dir), name, path));
                }
                None => drop(self.levels.pop()),
            }
        }
    }
}

fn open_at(dir: Option<&Arc<OwnedFd>>, name: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
    let opened = match dir {
        Some(dir) => openat(dir.as_fd(), name, flags, Mode::empty()),
        None => openat(CWD, name, flags, Mode::empty()),
    };
    Ok(opened?)
}

/// The names in a directory, in reverse order.
fn names(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

fn look(dir: Option<&Arc<OwnedFd>>, name: &CStr, follow: bool) -> io::Result<(Meta, Vec<u8>)> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let stat = match dir {
        Some(dir) => statat(dir.as_fd(), name, flags),
        None => statat(CWD, name, flags),
    }?;
    let meta = meta(&stat);
    let text = match (meta.is_link(), dir) {
        (false, _) => Vec::new(),
        (true, Some(dir)) => readlinkat(dir.as_fd(), name, Vec::new())?.into_bytes(),
        (true, None) => readlinkat(CWD, name, Vec::new())?.into_bytes(),
    };
    Ok((meta, text))
}

/// The attributes of the object at a path. Does not follow a symbolic link.
pub fn meta_of(path: &Path) -> io::Result<Meta> {
    Ok(meta(&statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Whether this process may write to the object at a path.
pub fn writable(path: &Path) -> bool {
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

#[allow(clippy::unnecessary_cast)] // the fields' types differ between architectures
pub(crate) fn meta(stat: &Stat) -> Meta {
    use rustix::fs::FileType as Local;
    let time = |seconds: i64, nanos: u32| NfsTime { seconds, nseconds: nanos };
    Meta {
        kind: match Local::from_raw_mode(stat.st_mode as _) {
            Local::RegularFile => Some(FileType::Reg),
            Local::Directory => Some(FileType::Dir),
            Local::Symlink => Some(FileType::Lnk),
            Local::Fifo => Some(FileType::Fifo),
            Local::Socket => Some(FileType::Sock),
            Local::CharacterDevice => Some(FileType::Chr),
            Local::BlockDevice => Some(FileType::Blk),
            Local::Unknown => None,
        },
        mode: stat.st_mode as u32 & 0o7777,
        links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        owner: Owner::Id(stat.st_uid),
        group: Owner::Id(stat.st_gid),
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        used: u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512),
        fileid: stat.st_ino as u64,
        fsid: Fsid { major: stat.st_dev as u64, minor: 0 },
        rdev: (rustix::fs::major(stat.st_rdev as _), rustix::fs::minor(stat.st_rdev as _)),
        accessed: time(stat.st_atime as i64, stat.st_atime_nsec as u32),
        modified: time(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        changed: time(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
        born: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn walk(dir: &Path, options: WalkOptions) -> Vec<String> {
        let all = Walk::new(dir, b"t".to_vec(), options);
        all.map(|found| match found {
            Ok(f) if f.meta.is_link() => {
                format!("{} -> {}", f.path.escape_ascii(), f.text.escape_ascii())
            }
            Ok(f) => format!("{} {:?} {}", f.path.escape_ascii(), f.meta.kind.expect("a kind"), f.depth),
            Err(e) => format!("{} {:?}", e.path.escape_ascii(), e.attempt),
        })
        .collect()
    }

    #[test]
    fn depth_first_by_bytes_and_links_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("b/c")).unwrap();
        std::fs::write(at("b/c/f"), "x").unwrap();
        std::fs::write(at("B"), "x").unwrap();
        symlink("..", at("b/up")).unwrap();
        symlink("nowhere", at("a")).unwrap();
        let all = walk(dir.path(), WalkOptions::default());
        let want = [
            "t Dir 0",
            "t/B Reg 1",
            "t/a -> nowhere",
            "t/b Dir 1",
            "t/b/c Dir 2",
            "t/b/c/f Reg 3",
            "t/b/up -> ..",
        ];
        assert_eq!(all, want);
        let all = walk(dir.path(), WalkOptions { follow: Follow::Always, ..WalkOptions::default() });
        let want = [
            "t Dir 0",
            "t/B Reg 1",
            "t/a Stat",
            "t/b Dir 1",
            "t/b/c Dir 2",
            "t/b/c/f Reg 3",
            "t/b/up Dir 2",
            "t/b/up List",
        ];
        assert_eq!(all, want, "a loop ends where it closes");
        let flat = WalkOptions { flat: true, ..WalkOptions::default() };
        assert_eq!(walk(&at("b/up"), flat), ["t -> .."]);
        assert_eq!(walk(&at("b/up"), WalkOptions { follow: Follow::Start, ..flat }), ["t Dir 0"]);
        assert_eq!(walk(&at("no"), flat), ["t Stat"]);
    }

    #[test]
    fn deeper_than_a_path_may_be_long() {
        let dir = tempfile::tempdir().unwrap();
        let name = "n".repeat(200);
        let mut at: OwnedFd = File::open(dir.path()).unwrap().into();
        for _ in 0..30 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = openat(&at, &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let mut walk = Walk::new(dir.path(), Vec::new(), WalkOptions::default());
        assert_eq!(walk.by_ref().map(|f| f.expect("found").depth).max(), Some(30));
    }
}
