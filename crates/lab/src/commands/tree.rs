//! The tree on this machine: names, kinds, sizes, modes and times of every sort that a server over NFS keeps.

use crate::error::{Context, Result};
use landfast_verify::rng::Rng;
use rustix::fs::XattrFlags;
use std::fs::{self, FileTimes, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Several reads and writes of any server.
const LARGE_BYTES: usize = 3_000_000;
/// An extended attribute of some of its objects, where the filesystem has any.
pub(super) const XATTR: &str = "user.landfast";
/// Files that are neither small nor large, and by how much each is larger than the one before.
const MEDIUM_FILES: usize = 40;
/// The same in bytes.
const MEDIUM_STEP_BYTES: usize = 700;
const PER_DIR: u64 = 50;

pub(super) fn make(top: &Path, files: u64) -> Result<()> {
    make_all(top, files).context(|| format!("make a tree at {}", top.display()))
}

fn make_all(top: &Path, files: u64) -> io::Result<()> {
    for dir in ["empty", "a b", "deep/1/2/3/4/5/6/7/8", "closed"] {
        fs::create_dir_all(top.join(dir))?;
    }
    for n in 0..files {
        let dir = top.join(format!("many{}", n / PER_DIR));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("f{n}")), format!("line {n}\n"))?;
    }
    // Several of them are more than a page of a request.
    fs::create_dir(top.join("medium"))?;
    for n in 0..MEDIUM_FILES {
        let mut data = vec![0; n * MEDIUM_STEP_BYTES];
        Rng::new(files + n as u64).fill(&mut data);
        fs::write(top.join(format!("medium/{n}")), data)?;
    }
    let mut large = vec![0; LARGE_BYTES];
    Rng::new(files).fill(&mut large);
    fs::write(top.join("large"), large)?;
    for name in [" lead", "it's", "new\nline", "quote\"", "back\\slash", "*", "100%", "what?", "é", "-dash"]
    {
        fs::write(top.join("a b").join(name), name)?;
    }
    fs::write(top.join("empty file"), "")?;
    fs::write(top.join("deep/1/2/3/4/5/6/7/8/bottom"), "bottom\n")?;
    fs::write(top.join("closed/in"), "behind a directory that cannot be written\n")?;
    symlink("large", top.join("link"))?;
    symlink("nowhere/at all", top.join("broken"))?;
    fs::hard_link(top.join("large"), top.join("deep/hard"))?;
    for (name, mode) in [("large", 0o600), ("empty file", 0o4755), ("empty", 0o1777), ("closed", 0o555)] {
        fs::set_permissions(top.join(name), Permissions::from_mode(mode))?;
    }
    // Filesystems without extended attributes serve as well.
    for (name, value) in [
        ("large", "1"),
        ("a b", "2"),
        ("a b/é", "3"),
        ("medium/9", "4"),
        ("medium/10", "5"),
        ("medium/11", "6"),
    ] {
        let _ = rustix::fs::setxattr(top.join(name), XATTR, value.as_bytes(), XattrFlags::empty());
    }
    age(top, &mut 1_000_000_000)
}

/// Gives everything in it a time of its own, a directory after what is in it.
fn age(dir: &Path, seconds: &mut u64) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            age(&entry.path(), seconds)?;
        } else if kind.is_file() {
            stamp(&entry.path(), seconds)?;
        }
    }
    stamp(dir, seconds)
}

fn stamp(path: &Path, seconds: &mut u64) -> io::Result<()> {
    *seconds += 1_000;
    let time = SystemTime::UNIX_EPOCH + Duration::new(*seconds, 0);
    fs::File::open(path)?.set_times(FileTimes::new().set_accessed(time).set_modified(time))
}
