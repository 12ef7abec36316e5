//! The checks.

use super::pair::Pair;
use crate::error::{Context, Error, Result};
use crate::tarball::{Shape, write_random};
use landfast_verify::rng::Rng;
use rustix::fs::{FlockOperation, XattrFlags, fcntl_lock, flock};
use rustix::io::Errno;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// What a check is called, and what it does.
pub(super) type Named = (&'static str, fn(&Pair) -> Result<()>);

pub(super) const ALL: [Named; 13] = [
    ("tar", tar),
    ("open sees what was closed", close_to_open),
    ("large file", large_file),
    ("sparse file", sparse_file),
    ("rename over an open file", rename_over_open),
    ("unlink of an open file", unlink_of_open),
    ("exclusive", exclusive),
    ("append", append),
    ("links and attributes", links_and_attributes),
    ("renamed directory", renamed_directory),
    ("listing", listing),
    ("locks", locks),
    ("extended attributes", extended_attributes),
];

const TAR_FILES: u64 = 150;
const LARGE_BYTES: usize = 5_000_000;
const LISTED: usize = 700;

/// The longest that a file which was removed while it was open is there after its last close.
const CLOSED_MAX: Duration = Duration::from_secs(20);

fn differs(what: &str, wanted: &dyn std::fmt::Debug, got: &dyn std::fmt::Debug) -> Error {
    Error::WrongData(format!("{what}: {got:?}, not {wanted:?}"))
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<()> {
    if got == wanted { Ok(()) } else { Err(differs(what, &wanted, &got)) }
}

/// The same of what a system call says.
fn expect_error<T>(what: &str, done: io::Result<T>, wanted: Errno) -> Result<()> {
    let got = done.map(drop).map_err(|e| e.raw_os_error());
    expect(what, got, Err(Some(wanted.raw_os_error())))
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let what = || format!("list {}", dir.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).context(what)? {
        names.push(entry.context(what)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

pub(super) fn is_empty(dir: &Path) -> Result<()> {
    let begin = Instant::now();
    // The kernel tells the last close of a removed file afterwards, and waits for nobody.
    while begin.elapsed() < CLOSED_MAX && names(dir)?.iter().any(|name| name.starts_with(".nfs")) {
        std::thread::yield_now();
    }
    expect("names that are left", names(dir)?, Vec::new())
}

fn write(path: &Path, data: &[u8]) -> Result<()> {
    fs::write(path, data).context(|| format!("write {}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).context(|| format!("read {}", path.display()))
}

fn open(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.context(|| format!("open {}", path.display()))
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).context(|| format!("remove {}", path.display()))
}

/// An archive made by one and compared by the other, attributes and all.
fn tar(pair: &Pair) -> Result<()> {
    let archive = tempfile::NamedTempFile::new().context(|| "make a temporary file".to_owned())?;
    let what = || format!("write {}", archive.path().display());
    let shape = Shape { files: TAR_FILES, ..Shape::default() };
    write_random(shape, io::BufWriter::new(archive.as_file())).context(what)?;
    let mut tar = Command::new("tar");
    crate::mounts::run(tar.arg("-xpf").arg(archive.path()).arg("-C").arg(&pair.one), "tar")?;
    for side in [&pair.two, &pair.one] {
        let archive = archive.reopen().context(what)?;
        crate::verify::compare(io::BufReader::new(archive), side)?.into_result()?;
    }
    let tree = pair.one.join("tree");
    fs::remove_dir_all(&tree).context(|| format!("remove {}", tree.display()))
}

/// Each open sees what the other had closed before, also of the same size and within the same second.
fn close_to_open(pair: &Pair) -> Result<()> {
    let (one, two) = (pair.one.join("f"), pair.two.join("f"));
    for n in 0..20 {
        let (writer, reader) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let data = format!("contents {n:03}");
        write(writer, data.as_bytes())?;
        expect("what the other reads", read(reader)?, data.into_bytes())?;
    }
    // Longer and shorter than what a cache may have.
    for len in [100_000, 10, 70_000, 0] {
        write(&one, &vec![len as u8; len])?;
        expect("bytes that the other reads", read(&two)?.len(), len)?;
    }
    remove(&two)
}

fn large_file(pair: &Pair) -> Result<()> {
    let (one, two) = (pair.one.join("large"), pair.two.join("large"));
    let mut data = vec![0; LARGE_BYTES];
    Rng::new(11).fill(&mut data);
    write(&one, &data)?;
    expect("the other's file is the same", read(&two)? == data, true)?;
    // Written over in pieces that are on no boundary, by the other.
    let file = open(&two)?;
    let what = || format!("write {}", two.display());
    for (n, piece) in data.chunks_mut(333_333).enumerate().filter(|(n, _)| n % 3 == 1) {
        Rng::new(n as u64).fill(piece);
        file.write_all_at(piece, n as u64 * 333_333).context(what)?;
    }
    // One who has written reads it before anybody else does.
    let mut got = vec![0; LARGE_BYTES];
    file.read_exact_at(&mut got, 0).context(what)?;
    expect("what it reads through the same descriptor is right", got == data, true)?;
    file.sync_all().context(what)?;
    drop(file);
    expect("the file of the first is the same", read(&one)? == data, true)?;
    remove(&one)
}

fn sparse_file(pair: &Pair) -> Result<()> {
    let (one, two) = (pair.one.join("sparse"), pair.two.join("sparse"));
    let what = || format!("write {}", one.display());
    let file = File::create(&one).context(what)?;
    file.write_all_at(b"end", 3_000_000).context(what)?;
    file.set_len(4_000_000).context(what)?;
    file.write_all_at(b"start", 5).context(what)?;
    drop(file);
    let mut wanted = vec![0; 4_000_000];
    wanted[3_000_000..3_000_003].copy_from_slice(b"end");
    wanted[5..10].copy_from_slice(b"start");
    expect("the other's file is the same", read(&two)? == wanted, true)?;
    // Shrunk and grown: what was cut off is zero.
    let file = open(&two)?;
    file.set_len(7).and_then(|()| file.set_len(20)).context(what)?;
    drop(file);
    let mut wanted = vec![0; 20];
    wanted[5..7].copy_from_slice(b"st");
    expect("after it was cut", read(&one)?, wanted)?;
    remove(&one)
}

/// Who has the old file open goes on with it; everybody else gets the new one.
fn rename_over_open(pair: &Pair) -> Result<()> {
    let (old, new) = (pair.one.join("old"), pair.one.join("new"));
    write(&old, b"old")?;
    let mut file = open(&old)?;
    let what = || format!("work with {}", old.display());
    write(&new, b"new")?;
    fs::rename(&new, &old).context(what)?;
    expect("the name", read(&old)?, b"new".to_vec())?;
    expect("the name, seen by the other", read(&pair.two.join("old"))?, b"new".to_vec())?;
    let mut got = String::new();
    file.read_to_string(&mut got).context(what)?;
    expect("the descriptor", got.as_str(), "old")?;
    file.write_all(b" and more").context(what)?;
    let mut got = vec![0; 12];
    file.read_exact_at(&mut got, 0).context(what)?;
    expect("the descriptor, after a write", got.as_slice(), b"old and more")?;
    drop(file);
    expect("the name, at the end", read(&pair.two.join("old"))?, b"new".to_vec())?;
    remove(&old)
}

/// A file that is removed while it is open is there until it is closed.
fn unlink_of_open(pair: &Pair) -> Result<()> {
    let what = || "work with a removed file".to_owned();
    for written_before in [false, true] {
        let path = pair.one.join("removed");
        let file = File::options().read(true).write(true).create_new(true).open(&path).context(what)?;
        if written_before {
            file.write_all_at(b"before ", 0).and_then(|()| file.sync_all()).context(what)?;
        }
        remove(&path)?;
        expect_error("its name", fs::metadata(&path), Errno::NOENT)?;
        // Other clients see `.nfs...` at most.
        let seen = names(&pair.two)?.iter().any(|name| name == "removed");
        expect("its name, listed by the other", seen, false)?;
        file.write_all_at(b"after it", 7).and_then(|()| file.sync_all()).context(what)?;
        let mut got = vec![0; 15];
        file.read_exact_at(&mut got, 0).context(what)?;
        let wanted = if written_before { &b"before after it"[..] } else { b"\0\0\0\0\0\0\0after it" };
        expect("what it reads", got.as_slice(), wanted)?;
        expect("its size", file.metadata().context(what)?.len(), 15)?;
        // A new file of the name is another one.
        write(&path, b"another")?;
        drop(file);
        expect("the new one", read(&path)?, b"another".to_vec())?;
        // The other has listed the directory without it, and may say so for a second; a listing is always the server's.
        let seen = names(&pair.two)?.iter().any(|name| name == "removed");
        expect("the new one, listed by the other", seen, true)?;
        remove(&path)?;
    }
    Ok(())
}

fn exclusive(pair: &Pair) -> Result<()> {
    let what = || "make a file".to_owned();
    let make = |dir: &Path| File::create_new(dir.join("f"));
    for (first, second) in [(&pair.one, &pair.two), (&pair.two, &pair.one)] {
        let file = make(first).context(what)?;
        // It is on the server once it is synced.
        file.sync_all().context(what)?;
        expect_error("a second one", make(second), Errno::EXIST)?;
        drop(file);
        expect_error("a second one of the same mount", make(first), Errno::EXIST)?;
        expect_error("a directory of the name", fs::create_dir(second.join("f")), Errno::EXIST)?;
        remove(&second.join("f"))?;
    }
    Ok(())
}

/// Appended in turns: nothing is written over.
fn append(pair: &Pair) -> Result<()> {
    let mut wanted = String::new();
    for n in 0..16 {
        let dir = if n % 2 == 0 { &pair.one } else { &pair.two };
        let line = format!("line {n}\n");
        let file = OpenOptions::new().append(true).create(true).open(dir.join("log"));
        file.and_then(|mut f| f.write_all(line.as_bytes())).context(|| "append".to_owned())?;
        wanted.push_str(&line);
    }
    for dir in [&pair.one, &pair.two] {
        expect("the lines", String::from_utf8_lossy(&read(&dir.join("log"))?).into_owned(), wanted.clone())?;
    }
    remove(&pair.one.join("log"))
}

fn links_and_attributes(pair: &Pair) -> Result<()> {
    let (one, two) = (&pair.one, &pair.two);
    let what = || "links and attributes".to_owned();
    write(&one.join("f"), b"data")?;
    fs::hard_link(one.join("f"), one.join("hard")).context(what)?;
    symlink("f", one.join("soft")).context(what)?;
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 0);
    fs::set_permissions(one.join("f"), Permissions::from_mode(0o640)).context(what)?;
    std::os::unix::fs::chown(one.join("f"), Some(1234), Some(4321)).context(what)?;
    open(&one.join("f"))?.set_times(FileTimes::new().set_modified(time)).context(what)?;
    for dir in [two, one] {
        let seen = fs::metadata(dir.join("hard")).context(what)?;
        expect("links", seen.nlink(), 2)?;
        expect("mode", seen.mode() & 0o7777, 0o640)?;
        expect("owner", (seen.uid(), seen.gid()), (1234, 4321))?;
        expect("time", seen.mtime(), 1_234_567_890)?;
        expect("the link's text", fs::read_link(dir.join("soft")).context(what)?, "f".into())?;
        expect("the link's file", read(&dir.join("soft"))?, b"data".to_vec())?;
    }
    remove(&two.join("hard"))?;
    // Attributes of a file come from memory for a second; an open asks.
    expect("what is left", read(&one.join("f"))?, b"data".to_vec())?;
    remove(&one.join("soft"))?;
    remove(&one.join("f"))
}

fn renamed_directory(pair: &Pair) -> Result<()> {
    let what = || "rename a directory".to_owned();
    let (from, to) = (pair.one.join("from/deep"), pair.one.join("to"));
    fs::create_dir_all(&from).context(what)?;
    write(&from.join("f"), b"in it")?;
    let file = open(&from.join("f"))?;
    fs::rename(pair.one.join("from"), &to).context(what)?;
    file.write_all_at(b"IN", 0).and_then(|()| file.sync_all()).context(what)?;
    drop(file);
    expect("a file below it", read(&pair.two.join("to/deep/f"))?, b"IN it".to_vec())?;
    expect_error("the old name", fs::metadata(pair.one.join("from")), Errno::NOENT)?;
    expect_error("a full directory", fs::remove_dir(&to), Errno::NOTEMPTY)?;
    fs::remove_dir_all(&to).context(what)
}

/// More names than a page of READDIR has.
fn listing(pair: &Pair) -> Result<()> {
    let mut wanted: Vec<String> = (0..LISTED).map(|n| format!("a name of some length {n:05}")).collect();
    for name in &wanted {
        write(&pair.one.join(name), b"")?;
    }
    expect("names", names(&pair.two)?, wanted.clone())?;
    for name in wanted.drain(..LISTED / 2) {
        remove(&pair.two.join(name))?;
    }
    expect("names that are left", names(&pair.one)?, wanted.clone())?;
    wanted.iter().try_for_each(|name| remove(&pair.one.join(name)))
}

/// A lock of one keeps the other from it, and brings what was written under it.
fn locks(pair: &Pair) -> Result<()> {
    write(&pair.one.join("f"), b"0")?;
    let (one, two) = (open(&pair.one.join("f"))?, open(&pair.two.join("f"))?);
    let whole = |file: &File, what: FlockOperation| flock(file, what).map_err(io::Error::from);
    let range = |file: &File, what: FlockOperation| fcntl_lock(file, what).map_err(io::Error::from);
    type Lock<'a> = &'a dyn Fn(&File, FlockOperation) -> io::Result<()>;
    let both: [(&str, Lock<'_>); 2] = [("flock", &whole), ("fcntl", &range)];
    for (name, lock) in both {
        let take = FlockOperation::NonBlockingLockExclusive;
        if !pair.locks
            && lock(&one, take).is_err_and(|e| e.raw_os_error() == Some(Errno::NOLCK.raw_os_error()))
        {
            continue;
        }
        let what = || format!("{name}: lock a file");
        for n in 1..4u8 {
            lock(&one, take).context(what)?;
            let refused = lock(&two, take).map_err(|e| e.kind());
            expect(&format!("{name}: while the other has it"), refused, Err(ErrorKind::WouldBlock))?;
            one.write_all_at(&[b'0' + n], 0).context(what)?;
            lock(&one, FlockOperation::Unlock).context(what)?;
            lock(&two, take).context(what)?;
            let mut got = [0];
            two.read_exact_at(&mut got, 0).context(what)?;
            expect(&format!("{name}: what was written under the lock"), got[0], b'0' + n)?;
            lock(&two, FlockOperation::Unlock).context(what)?;
        }
        let shared = FlockOperation::NonBlockingLockShared;
        lock(&one, shared).and_then(|()| lock(&two, shared)).context(what)?;
        for file in [&one, &two] {
            lock(file, FlockOperation::Unlock).context(what)?;
        }
    }
    drop((one, two));
    remove(&pair.one.join("f"))
}

fn extended_attributes(pair: &Pair) -> Result<()> {
    write(&pair.one.join("f"), b"")?;
    let set = |name: &str| rustix::fs::setxattr(pair.one.join("f"), name, b"value", XattrFlags::empty());
    let done = set("user.landfast").map_err(io::Error::from);
    // A server of version 4.2 need not have them.
    match done {
        Ok(()) if pair.xattrs => {
            let mut value = [0; 16];
            let got = rustix::fs::getxattr(pair.two.join("f"), "user.landfast", &mut value[..]);
            let got = got.map(|len| value[..len].to_vec());
            expect("the value, seen by the other", got, Ok(b"value".to_vec()))?;
            let removed = rustix::fs::removexattr(pair.two.join("f"), "user.landfast");
            removed.context(|| "remove an extended attribute".to_owned())?;
        }
        done => expect_error("setxattr", done, Errno::OPNOTSUPP)?,
    }
    remove(&pair.two.join("f"))
}
