//! Archives as the lab needs them: a plain tar made of random files, and the members of any plain
//! tar, read with the `tar` crate (not with Landfast's own reader, which is under test).

use crate::error::{Context, Error, Result};
use crate::limits::MEMBER_BYTES_MAX;
use landfast_verify::rng::Rng;
use landfast_xdr::Bytes;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

/// Headers and contents of a tar are padded to a multiple of so many bytes.
const BLOCK: u64 = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File(Bytes),
    Dir,
    Symlink(Vec<u8>),
    /// A hard link to the member with this path.
    Hardlink(Vec<u8>),
    Fifo,
    /// Major, minor.
    Char(u32, u32),
    /// Major, minor.
    Block(u32, u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Names joined by `/`; no `.`, no `..`, no slash at either end.
    pub path: Vec<u8>,
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Modification time: seconds, nanoseconds.
    pub mtime: (i64, u32),
}

/// Calls `each` with one member of a plain tar after another, until it breaks off.
pub fn read(from: impl Read, mut each: impl FnMut(Member) -> Result<ControlFlow<()>>) -> Result<()> {
    let bad = || "read the archive".to_owned();
    let mut archive = tar::Archive::new(from);
    for entry in archive.entries().context(bad)? {
        let mut entry = entry.context(bad)?;
        if let Some(member) = member(&mut entry)?
            && each(member)?.is_break()
        {
            break;
        }
    }
    Ok(())
}

/// A reader that counts what was read.
struct Counted<R> {
    from: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.from.read(buf)?;
        self.bytes += n as u64;
        Ok(n)
    }
}

/// Writes a plain tar of all members up to the regular file with this number, counted from 1. Returns how many regular files it
/// has, which are fewer if the archive ends before, and the bytes of their contents.
pub fn write_first(files: u64, tar: &Path, to: &mut impl Write) -> Result<(u64, u64)> {
    let what = || format!("copy the first members of {}", tar.display());
    let mut from = Counted { from: BufReader::new(File::open(tar).context(what)?), bytes: 0 };
    let (mut there, mut bytes) = (0, 0);
    read(&mut from, |member| {
        if let Kind::File(data) = member.kind {
            there += 1;
            bytes += data.len() as u64;
        }
        Ok(if there < files { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    let end = from.bytes.next_multiple_of(BLOCK);
    let mut members = File::open(tar).context(what)?.take(end);
    std::io::copy(&mut members, to).and_then(|_| to.write_all(&[0; 2 * BLOCK as usize])).context(what)?;
    Ok((there, bytes))
}

/// One member; `None` for headers that are none, and for the archive's own top directory.
fn member(entry: &mut tar::Entry<'_, impl Read>) -> Result<Option<Member>> {
    use tar::EntryType as T;
    let bad = || "read the archive".to_owned();
    let path = clean(&entry.path_bytes())?;
    let header = entry.header().clone();
    let device = |n: std::io::Result<Option<u32>>| n.ok().flatten().unwrap_or(0);
    let kind = match header.entry_type() {
        T::Regular | T::Continuous | T::GNUSparse => {
            if entry.size() > MEMBER_BYTES_MAX {
                return Err(Error::Unable(format!("{}: too large for the lab", path.escape_ascii())));
            }
            let mut data = Vec::new();
            entry.read_to_end(&mut data).context(bad)?;
            Kind::File(data.into())
        }
        T::Directory => Kind::Dir,
        T::Symlink => Kind::Symlink(entry.link_name_bytes().unwrap_or_default().into_owned()),
        T::Link => Kind::Hardlink(clean(&entry.link_name_bytes().unwrap_or_default())?),
        T::Fifo => Kind::Fifo,
        T::Char => Kind::Char(device(header.device_major()), device(header.device_minor())),
        T::Block => Kind::Block(device(header.device_major()), device(header.device_minor())),
        _ => return Ok(None),
    };
    if path.is_empty() {
        return Ok(None);
    }
    let mut mtime = (header.mtime().context(bad)? as i64, 0);
    if let Some(pax) = entry.pax_extensions().context(bad)? {
        for e in pax.flatten() {
            if e.key() == Ok("mtime")
                && let Some(t) = e.value().ok().and_then(seconds)
            {
                mtime = t;
            }
        }
    }
    Ok(Some(Member {
        path,
        kind,
        mode: header.mode().context(bad)? & 0o7777,
        uid: u32::try_from(header.uid().context(bad)?).unwrap_or(u32::MAX),
        gid: u32::try_from(header.gid().context(bad)?).unwrap_or(u32::MAX),
        mtime,
    }))
}

/// A decimal time such as `1700000000.25` (pax).
fn seconds(text: &str) -> Option<(i64, u32)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain(std::iter::repeat('0')).take(9).collect();
    Some((whole.parse().ok()?, digits.parse().ok()?))
}

/// Names joined by `/`; an archive that climbs is refused.
fn clean(path: &[u8]) -> Result<Vec<u8>> {
    let names: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|n| !n.is_empty() && *n != b".").collect();
    if names.contains(&&b".."[..]) {
        return Err(Error::Unable(format!("{}: the lab extracts no `..`", path.escape_ascii())));
    }
    Ok(names.join(&b'/'))
}

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub files: u64,
    pub file_bytes: usize,
    pub per_dir: u64,
    pub seed: u64,
}

impl Default for Shape {
    /// 4,096 files of 4 KiB in directories of 64.
    fn default() -> Self {
        Shape { files: 4096, file_bytes: 4096, per_dir: 64, seed: 1 }
    }
}

/// Writes a plain tar of random files below one top directory, with various modes, owners and
/// times. It is a stream: nothing but one file is held in memory.
pub fn write_random(shape: Shape, to: impl Write) -> std::io::Result<()> {
    let mut builder = tar::Builder::new(to);
    let mut rng = Rng::new(shape.seed);
    let mut data = vec![0; shape.file_bytes];
    let mut put = |path: &str, kind: tar::EntryType, mode: u32, n: u64, data: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(data.len() as u64);
        header.set_mtime(1_600_000_000 + n);
        header.set_uid(1000 + n % 3);
        header.set_gid(1000 + n % 2);
        builder.append_data(&mut header, path, data)
    };
    put("tree/", tar::EntryType::Directory, 0o755, 0, &[])?;
    let per_dir = shape.per_dir.max(1);
    for n in 0..shape.files {
        let dir = n / per_dir;
        if n % per_dir == 0 {
            put(&format!("tree/d{dir:05}/"), tar::EntryType::Directory, 0o755, dir, &[])?;
        }
        rng.fill(&mut data);
        let mode = [0o644, 0o600, 0o755, 0o664][(n % 4) as usize];
        put(&format!("tree/d{dir:05}/f{n:07}"), tar::EntryType::Regular, mode, n, &data)?;
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(tar: &[u8]) -> Vec<Member> {
        let mut out = Vec::new();
        read(tar, |m| {
            out.push(m);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        out
    }

    #[test]
    fn a_random_archive_is_read_back() {
        let mut tar = Vec::new();
        let shape = Shape { files: 5, file_bytes: 100, per_dir: 2, seed: 3 };
        write_random(shape, &mut tar).unwrap();
        let members = all(&tar);
        assert_eq!(members.len(), 1 + 3 + 5);
        assert_eq!(members[2].path, b"tree/d00000/f0000000");
        assert!(matches!(&members[2].kind, Kind::File(d) if d.len() == 100));
        let mut other = Vec::new();
        write_random(Shape { seed: 4, ..shape }, &mut other).unwrap();
        assert!(all(&other) != members);
    }

    #[test]
    fn the_first_files_are_an_archive_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let tar = dir.path().join("a.tar");
        let shape = Shape { files: 5, file_bytes: 700, per_dir: 2, seed: 3 };
        let mut whole = Vec::new();
        write_random(shape, &mut whole).unwrap();
        std::fs::write(&tar, &whole).unwrap();
        let first = |files| {
            let mut out = Vec::new();
            let counted = write_first(files, &tar, &mut out).unwrap();
            (counted, out)
        };
        let (counted, three) = first(3);
        assert_eq!(counted, (3, 2100));
        // The top, two directories, three files; then the two empty blocks with which an archive ends.
        assert_eq!(all(&three), all(&whole)[..6]);
        assert_eq!((three.len() % 512, &three[three.len() - 1024..]), (0, &[0; 1024][..]));
        let (counted, more) = first(9);
        assert_eq!((counted, all(&more)), ((5, 3500), all(&whole)));
    }

    #[test]
    fn an_archive_that_climbs_is_refused() {
        assert!(clean(b"a/../b").is_err());
        assert_eq!(clean(b"./a//b/").unwrap(), b"a/b");
    }

    #[test]
    fn pax_times_have_fractions() {
        assert_eq!(seconds("12.5"), Some((12, 500_000_000)));
        assert_eq!(seconds("12"), Some((12, 0)));
        assert_eq!(seconds("x"), None);
    }
}
