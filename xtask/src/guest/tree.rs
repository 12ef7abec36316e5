//! Two directory trees compared file by file: names, types, modes, owners, times, links and contents.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes compared at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// Differences kept; the rest is counted.
const DIFFERENCES_MAX: usize = 50;

#[derive(Debug, Default)]
pub struct Comparison {
    pub files: u64,
    /// Other objects compared: directories, symbolic links, devices.
    pub others: u64,
    pub bytes: u64,
    pub differing: u64,
    /// The first differences, as sentences.
    pub differences: Vec<String>,
}

impl Comparison {
    fn differs(&mut self, path: &Path, what: &str) {
        self.differing += 1;
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(format!("{}: {what}", path.display()));
        }
    }
}

/// Compares everything below two directories; their own attributes are left out.
pub fn compare(wanted: &Path, got: &Path) -> Result<Comparison, String> {
    let mut found = Comparison::default();
    let mut links = HashMap::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(dir) = pending.pop() {
        let (mut ours, theirs) = (entries(&wanted.join(&dir))?, entries(&got.join(&dir))?);
        for (name, theirs) in theirs {
            let path = dir.join(&name);
            let Some(ours) = ours.remove(&name) else {
                found.differs(&path, "should not be there");
                continue;
            };
            object(&mut found, &path, (wanted, &ours), (got, &theirs), &mut links)?;
            if ours.is_dir() && theirs.is_dir() {
                pending.push(path);
            }
        }
        for name in ours.keys() {
            found.differs(&dir.join(name), "is missing");
        }
    }
    Ok(found)
}

/// The entries of a directory with what `lstat` says.
fn entries(dir: &Path) -> Result<BTreeMap<OsString, Metadata>, String> {
    let read = || -> io::Result<_> {
        fs::read_dir(dir)?
            .map(|entry| entry.and_then(|entry| Ok((entry.file_name(), entry.metadata()?))))
            .collect()
    };
    read().map_err(|e| format!("{}: {e}", dir.display()))
}

/// Compares one object; `links` maps the inodes of files with several names, wanted to got.
fn object(
    found: &mut Comparison,
    path: &Path,
    (wanted, ours): (&Path, &Metadata),
    (got, theirs): (&Path, &Metadata),
    links: &mut HashMap<u64, u64>,
) -> Result<(), String> {
    if ours.file_type() != theirs.file_type() {
        found.differs(path, &format!("is {:?}, should be {:?}", theirs.file_type(), ours.file_type()));
        return Ok(());
    }
    let mut number = |what: &str, ours: i64, theirs: i64| {
        if ours != theirs {
            found.differs(path, &format!("{what} is {theirs}, should be {ours}"));
        }
    };
    if ours.mode() != theirs.mode() {
        number("mode", i64::from(ours.mode()), i64::from(theirs.mode()));
    }
    number("owner", i64::from(ours.uid()), i64::from(theirs.uid()));
    number("group", i64::from(ours.gid()), i64::from(theirs.gid()));
    number("modification time", ours.mtime(), theirs.mtime());
    number("nanosecond of the modification time", ours.mtime_nsec(), theirs.mtime_nsec());
    if !ours.is_dir() {
        number("link count", ours.nlink().cast_signed(), theirs.nlink().cast_signed());
        number("size", ours.size().cast_signed(), theirs.size().cast_signed());
    }
    if ours.file_type().is_block_device() || ours.file_type().is_char_device() {
        number("device", ours.rdev().cast_signed(), theirs.rdev().cast_signed());
    }
    if ours.nlink() > 1 && !ours.is_dir() && *links.entry(ours.ino()).or_insert(theirs.ino()) != theirs.ino()
    {
        found.differs(path, "is not the same file as its other names");
    }
    if ours.is_file() {
        found.files += 1;
        found.bytes += ours.len();
        if ours.len() == theirs.len() && !same_contents(&wanted.join(path), &got.join(path))? {
            found.differs(path, "has other contents");
        }
    } else {
        found.others += 1;
        if ours.is_symlink() {
            let read =
                |root: &Path| fs::read_link(root.join(path)).map_err(|e| format!("{}: {e}", path.display()));
            if read(wanted)? != read(got)? {
                found.differs(path, "points elsewhere");
            }
        }
    }
    Ok(())
}

/// Whether two files hold the same bytes.
fn same_contents(a: &Path, b: &Path) -> Result<bool, String> {
    let open = |path: &Path| File::open(path).map_err(|e| format!("{}: {e}", path.display()));
    let (mut file_a, mut file_b) = (open(a)?, open(b)?);
    let (mut chunk_a, mut chunk_b) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let got_a = fill(&mut file_a, &mut chunk_a).map_err(|e| format!("{}: {e}", a.display()))?;
        let got_b = fill(&mut file_b, &mut chunk_b).map_err(|e| format!("{}: {e}", b.display()))?;
        if chunk_a[..got_a] != chunk_b[..got_b] {
            return Ok(false);
        }
        if got_a == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the chunk is full or the file ends.
fn fill(file: &mut File, chunk: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < chunk.len() {
        match file.read(&mut chunk[got..])? {
            0 => break,
            more => got += more,
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A small tree of files, a hard link, a symbolic link and a directory.
    fn make(root: &Path) {
        fs::create_dir(root.join("dir")).expect("dir");
        fs::write(root.join("dir/file"), "contents").expect("file");
        fs::write(root.join("empty"), "").expect("empty");
        fs::hard_link(root.join("dir/file"), root.join("hard")).expect("hard");
        symlink("dir/file", root.join("soft")).expect("soft");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for name in ["dir/file", "empty", "dir"] {
            File::open(root.join(name)).and_then(|file| file.set_modified(time)).expect("time");
        }
        let soft = root.join("soft");
        let status = std::process::Command::new("touch").args(["-h", "-d", "@1000000"]).arg(soft).status();
        assert!(status.expect("touch").success());
    }

    fn change(how: impl FnOnce(&Path)) -> Vec<String> {
        let (a, b) = (tempfile::tempdir().expect("a"), tempfile::tempdir().expect("b"));
        make(a.path());
        make(b.path());
        how(b.path());
        compare(a.path(), b.path()).expect("comparison").differences
    }

    #[test]
    fn like_trees_are_alike_and_counted() {
        assert_eq!(change(|_| ()), Vec::<String>::new());
        let dir = tempfile::tempdir().expect("dir");
        make(dir.path());
        let found = compare(dir.path(), dir.path()).expect("comparison");
        assert_eq!((found.files, found.others, found.bytes), (3, 2, 16));
    }

    #[test]
    fn each_difference_is_found() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        type Change = fn(&Path);
        let cases: [(&str, Change); 5] = [
            ("is missing", |root| fs::remove_file(root.join("soft")).expect("remove")),
            ("should not be there", |root| fs::write(root.join("new"), "").expect("write")),
            ("mode", |root| {
                fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o600)).expect("chmod");
            }),
            ("points elsewhere", |root| {
                fs::remove_file(root.join("soft")).expect("remove");
                symlink("elsewher", root.join("soft")).expect("symlink");
            }),
            ("modification time", |root| {
                File::open(root.join("empty"))
                    .and_then(|file| file.set_modified(SystemTime::now()))
                    .expect("time");
            }),
        ];
        for (what, how) in cases {
            assert!(change(how).iter().any(|line| line.contains(what)), "{what}");
        }
        let contents = change(|root| {
            fs::write(root.join("hard"), "CONTENTS").expect("write");
            File::open(root.join("hard")).and_then(|file| file.set_modified(time)).expect("time");
        });
        assert_eq!(contents.len(), 2, "both names: {contents:?}");
        let link = change(|root| {
            fs::remove_file(root.join("hard")).expect("remove");
            fs::write(root.join("hard"), "contents").expect("write");
        });
        assert!(link.iter().any(|line| line.contains("link count")), "{link:?}");
    }
}
