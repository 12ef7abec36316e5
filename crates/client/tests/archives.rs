//! The archive reader on archives that GNU tar makes, in every format it knows.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use landfast_client::archive::{ArchiveError, ArchiveReader, Compression, Kind, Member, open};
use proptest::prelude::*;

/// A file's contents with its holes filled.
fn contents<R: Read>(archive: &mut ArchiveReader<R>, member: &Member) -> Result<Vec<u8>, ArchiveError> {
    let mut stored = Vec::new();
    loop {
        let part = archive.data(1000)?;
        if part.is_empty() {
            break;
        }
        stored.extend_from_slice(&part);
    }
    assert_eq!(stored.len() as u64, member.stored);
    let Some(map) = &member.sparse else { return Ok(stored) };
    let mut whole = vec![0; member.size as usize];
    let mut at = 0;
    for s in map {
        whole[s.offset as usize..(s.offset + s.len) as usize]
            .copy_from_slice(&stored[at..at + s.len as usize]);
        at += s.len as usize;
    }
    Ok(whole)
}

type Members = BTreeMap<String, (Member, Vec<u8>)>;

fn read_all(bytes: &[u8]) -> Result<Members, ArchiveError> {
    let (_, plain) = open(Box::new(std::io::Cursor::new(bytes.to_vec())))?;
    let mut archive = ArchiveReader::new(plain);
    let mut all = BTreeMap::new();
    while let Some(member) = archive.next_member()? {
        let data = contents(&mut archive, &member)?;
        all.insert(String::from_utf8_lossy(&member.path).into_owned(), (member, data));
    }
    Ok(all)
}

fn tar(dir: &Path, options: &[&str]) -> Option<Vec<u8>> {
    let out = dir.with_extension("tar");
    let mut command = Command::new("tar");
    command.arg("-cf").arg(&out).args(options).arg("-C").arg(dir).arg(".");
    match command.output() {
        Ok(done) if done.status.success() => Some(fs::read(out).unwrap()),
        Ok(done) => panic!("tar {options:?}: {}", String::from_utf8_lossy(&done.stderr)),
        Err(_) => {
            println!("skipped: needs GNU tar");
            None
        }
    }
}

fn set_time(path: &Path, seconds: i64, nanos: u32) {
    let when = match u64::try_from(seconds) {
        Ok(s) => std::time::UNIX_EPOCH + std::time::Duration::new(s, nanos),
        Err(_) => std::time::UNIX_EPOCH - std::time::Duration::from_secs(seconds.unsigned_abs()),
    };
    fs::File::open(path).unwrap().set_modified(when).unwrap();
}

/// A tree with one of each. `long`: names that v7 and ustar cannot hold.
fn make_tree(dir: &Path, long: bool) {
    fs::create_dir_all(dir.join("sub/deep")).unwrap();
    fs::write(dir.join("small"), b"hello\n").unwrap();
    fs::set_permissions(dir.join("small"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::write(dir.join("empty"), b"").unwrap();
    fs::write(dir.join("sub/block"), vec![7; 512]).unwrap();
    fs::write(dir.join("sub/deep/odd"), (0..100_000u32).map(|i| i as u8).collect::<Vec<_>>()).unwrap();
    fs::hard_link(dir.join("small"), dir.join("zlink")).unwrap();
    symlink("sub/deep/odd", dir.join("sym")).unwrap();
    assert!(Command::new("mkfifo").arg(dir.join("fifo")).status().unwrap().success());
    // Up to 255 bytes that a '/' splits into 155 and 100: ustar's prefix.
    let split = dir.join("p".repeat(60)).join("q".repeat(60));
    fs::create_dir_all(&split).unwrap();
    fs::write(split.join("n".repeat(90)), b"prefixed").unwrap();
    if long {
        let far = (0..5).fold(dir.to_path_buf(), |d, i| d.join(i.to_string().repeat(80)));
        fs::create_dir_all(&far).unwrap();
        fs::write(far.join("l".repeat(200)), b"far away").unwrap();
        symlink("t".repeat(300), dir.join("long-target")).unwrap();
    }
    set_time(&dir.join("small"), 1_234_567_890, 123_456_789);
}

fn compare(dir: &Path, members: &Members, nanos: bool) {
    let mut seen = 0;
    let mut stack = vec![dir.to_path_buf()];
    while let Some(d) = stack.pop() {
        for entry in fs::read_dir(&d).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let mut name = format!("./{}", path.strip_prefix(dir).unwrap().display());
            if meta.is_dir() {
                name.push('/');
                stack.push(path.clone());
            }
            let (m, data) = members.get(&name).unwrap_or_else(|| panic!("{name} is not in the archive"));
            seen += 1;
            let kind = match meta.mode() & 0o170_000 {
                0o040_000 => Kind::Dir,
                0o120_000 => Kind::Symlink,
                0o010_000 => Kind::Fifo,
                _ if m.kind == Kind::HardLink => Kind::HardLink,
                _ => Kind::File,
            };
            assert_eq!(m.kind, kind, "{name}");
            if kind == Kind::HardLink {
                let target = dir.join(String::from_utf8_lossy(&m.link).as_ref());
                assert_eq!(fs::metadata(target).unwrap().ino(), meta.ino(), "{name}");
                continue;
            }
            assert_eq!(m.mode, meta.mode() & 0o7777, "{name}");
            assert_eq!((m.uid, m.gid), (meta.uid(), meta.gid()), "{name}");
            assert_eq!(m.mtime.seconds, meta.mtime(), "{name}");
            if nanos {
                assert_eq!(i64::from(m.mtime.nanos), meta.mtime_nsec(), "{name}");
            }
            match kind {
                Kind::File => {
                    assert_eq!(m.size, meta.len(), "{name}");
                    assert_eq!(data, &fs::read(&path).unwrap(), "{name}");
                }
                Kind::Symlink => {
                    assert_eq!(m.link, fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes())
                }
                _ => {}
            }
        }
    }
    assert_eq!(members.len(), seen + 1, "and `./` itself");
}

#[test]
fn every_format_of_gnu_tar() {
    for format in ["v7", "ustar", "oldgnu", "gnu", "posix"] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("tree");
        make_tree(&dir, matches!(format, "oldgnu" | "gnu" | "posix"));
        if format == "v7" {
            // v7 has no FIFOs, and no names over 99 bytes.
            fs::remove_file(dir.join("fifo")).unwrap();
            fs::remove_dir_all(dir.join("p".repeat(60))).unwrap();
        }
        let Some(bytes) = tar(&dir, &[&format!("--format={format}")]) else { return };
        compare(&dir, &read_all(&bytes).unwrap(), format == "posix");
    }
}

#[test]
fn times_before_1970_and_global_headers() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("old"), b"x").unwrap();
    set_time(&dir.join("old"), -1_000_000, 0);
    for options in [&["--format=gnu"][..], &["--format=posix"]] {
        let Some(bytes) = tar(&dir, options) else { return };
        assert_eq!(read_all(&bytes).unwrap()["./old"].0.mtime.seconds, -1_000_000, "{options:?}");
    }
    fs::write(dir.join("new"), b"y").unwrap();
    set_time(&dir.join("new"), 1_000_000, 0);
    let options = ["--format=posix", "--pax-option=gid=4711,mtime=99.5"];
    let Some(bytes) = tar(&dir, &options) else { return };
    let all = read_all(&bytes).unwrap();
    let m = &all["./new"].0;
    assert_eq!((m.gid, m.mtime.seconds, m.mtime.nanos), (4711, 99, 500_000_000));
    // This one's time needs a record of its own, which hides the global one.
    assert_eq!(all["./old"].0.mtime.seconds, -1_000_000);
}

#[test]
fn every_sparse_format() {
    for options in [
        &["--format=gnu", "-S"][..],
        &["--format=posix", "-S", "--sparse-version=0.0"],
        &["--format=posix", "-S", "--sparse-version=0.1"],
        &["--format=posix", "-S", "--sparse-version=1.0"],
    ] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("tree");
        fs::create_dir(&dir).unwrap();
        // 40 runs: more than fit in GNU's header and in one block of its map, and a hole at the end.
        let mut f = fs::File::create(dir.join("holes")).unwrap();
        for i in 0..40u64 {
            f.seek(SeekFrom::Start(i * 65_536 + 4096)).unwrap();
            f.write_all(&[i as u8 + 1; 5000]).unwrap();
        }
        f.set_len(5_000_000).unwrap();
        fs::File::create(dir.join("all-hole")).unwrap().set_len(1 << 20).unwrap();
        fs::write(dir.join("after"), b"still in step").unwrap();
        let Some(bytes) = tar(&dir, options) else { return };
        let members = read_all(&bytes).unwrap();
        let holes = &members["./holes"].0;
        assert!(holes.sparse.is_some() && holes.stored < 1 << 20, "{options:?}: stored {}", holes.stored);
        compare(&dir, &members, options.len() == 3);
    }
}

#[test]
fn compression_is_recognised_by_content() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("tree");
    make_tree(&dir, true);
    for (option, compression) in [
        ("--no-auto-compress", Compression::None),
        ("--gzip", Compression::Gzip),
        ("--bzip2", Compression::Bzip2),
        ("--xz", Compression::Xz),
        ("--zstd", Compression::Zstd),
    ] {
        let Some(bytes) = tar(&dir, &[option]) else { return };
        let (found, _) = open(Box::new(std::io::Cursor::new(bytes.clone()))).unwrap();
        assert_eq!(found, compression);
        compare(&dir, &read_all(&bytes).unwrap(), false);
        // Cut off anywhere: an error, whatever the compression.
        for keep in [bytes.len() / 4, bytes.len() / 2, bytes.len() - bytes.len() / 8, bytes.len() - 10] {
            if compression == Compression::None && keep == bytes.len() - 10 {
                continue; // only padding behind the end marker is missing
            }
            assert!(read_all(&bytes[..keep]).is_err(), "{option} cut to {keep} of {}", bytes.len());
        }
    }
    assert!(matches!(read_all(&[0x1f, 0x9d, 0x90]), Err(ArchiveError::Compression(_))));
}

#[test]
fn what_is_no_archive() {
    for bytes in [&b""[..], b"short", &[b'x'; 2000]] {
        assert!(matches!(read_all(bytes), Err(ArchiveError::NotTar)), "{bytes:?}");
    }
}

#[test]
fn every_cut_of_a_plain_archive_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a"), vec![1; 700]).unwrap();
    fs::write(dir.join("b"), b"b").unwrap();
    let Some(bytes) = tar(&dir, &["--format=posix", "--blocking-factor=1"]) else { return };
    let end = bytes.len() - 1024;
    for keep in 0..=end {
        assert!(read_all(&bytes[..keep]).is_err(), "cut to {keep}");
    }
}

proptest! {
    /// A damaged archive gives members or an error, never a panic, and no more data than there is.
    #[test]
    fn damaged_archives(changes in prop::collection::vec((0usize..6000, any::<u8>()), 1..8)) {
        let mut bytes = include_bytes!("data/mixed.tar").to_vec();
        for (at, b) in changes {
            let at = at % bytes.len();
            bytes[at] = b;
            // Mend the sum of the header that was hit, so that the damage gets past it.
            let block = &mut bytes[at / 512 * 512..][..512];
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        if let Ok((_, plain)) = open(Box::new(std::io::Cursor::new(bytes.clone()))) {
            let mut archive = ArchiveReader::new(plain);
            let mut total = 0;
            while let Ok(Some(_)) = archive.next_member() {
                while let Ok(part) = archive.data(1 << 16) {
                    if part.is_empty() { break; }
                    total += part.len();
                }
            }
            prop_assert!(total <= bytes.len());
        }
    }
}
