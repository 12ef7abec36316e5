//! Small files of the state directory (`DIR/.landfast`) that survive power cuts.
//!
//! A file is replaced as a whole: written under another name, fsynced, renamed, directory fsynced. So a reader finds the
//! old contents or the new, and after [`replace`] has returned only the new. Each file has a magic number and a
//! CRC32C: a damaged file gives an error, never a shorter or empty state.

use std::io::{Error, ErrorKind, Result};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::flush;
use crate::kernel::{self, OwnedFd};
use crate::reserve;

pub(crate) const STATE_DIR: &str = ".landfast";

const MAGIC: [u8; 8] = *b"LFSTATE1";

/// Durably replaces the file `name` in `dir` by `payload`. On a full filesystem the space reserve provides the room for the new
/// file beside the old one, since a volume must be able to start and stop there.
pub(crate) fn replace(dir: &OwnedFd, name: &str, payload: &[u8]) -> Result<()> {
    match write(dir, name, payload) {
        Err(e) if is_full(&e) => {
            reserve::release(dir)?;
            write(dir, name, payload)?;
            reserve::take(dir)
        }
        done => done,
    }
}

/// As [`replace`], but leaves the space reserve alone, since others may take its room before it is taken again. Returns false if
/// the filesystem is full; then the file is as it was.
pub(crate) fn replace_if_room(dir: &OwnedFd, name: &str, payload: &[u8]) -> Result<bool> {
    match write(dir, name, payload) {
        Err(e) if is_full(&e) => {
            let _ = kernel::unlinkat(dir, temp_name(name), AtFlags::empty());
            Ok(false)
        }
        done => done.map(|()| true),
    }
}

pub(crate) fn is_full(e: &Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::NOSPC | Errno::DQUOT))
}

fn temp_name(name: &str) -> String {
    format!("{name}.new")
}

fn write(dir: &OwnedFd, name: &str, payload: &[u8]) -> Result<()> {
    let temp = temp_name(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = kernel::openat(dir, &temp, flags, Mode::from_raw_mode(0o600))?;
    let mut bytes = Vec::with_capacity(MAGIC.len() + 4 + payload.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    bytes.extend_from_slice(payload);
    kernel::write_all(&file, &bytes)?;
    flush::file(&file, dir)?;
    kernel::renameat(dir, &temp, dir, name)?;
    flush::file(dir, dir)
}

/// When [`replace`] wrote an existing file, by the wall clock at that time.
pub(crate) fn written_ns(dir: &OwnedFd, name: &str) -> Result<u64> {
    let stat = kernel::statat(dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    let (secs, nanos) = (u64::try_from(stat.st_mtime).unwrap_or(0), stat.st_mtime_nsec as u64);
    Ok(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The payload that [`replace`] wrote last, or `None` if there is no such file. `InvalidData` if it is damaged.
pub(crate) fn read(dir: &OwnedFd, name: &str) -> Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match kernel::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let bytes = kernel::read_to_end(&file)?;
    let damaged = |what: &str| Error::new(ErrorKind::InvalidData, format!("state file {name}: {what}"));
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| damaged("too short"))?;
    let (crc, payload) = rest.split_first_chunk::<4>().ok_or_else(|| damaged("too short"))?;
    if *magic != MAGIC {
        return Err(damaged("wrong magic number"));
    }
    if u32::from_le_bytes(*crc) != crc32c::crc32c(payload) {
        return Err(damaged("wrong checksum"));
    }
    Ok(Some(payload.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_whole_and_damage_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let dir = kernel::open(temp.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert_eq!(read(&dir, "x").unwrap(), None);
        replace(&dir, "x", b"first, longer").unwrap();
        replace(&dir, "x", b"second").unwrap();
        assert_eq!(read(&dir, "x").unwrap().as_deref(), Some(&b"second"[..]));
        let good = std::fs::read(temp.path().join("x")).unwrap();
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 1;
            std::fs::write(temp.path().join("x"), &bad).unwrap();
            assert_eq!(read(&dir, "x").unwrap_err().kind(), ErrorKind::InvalidData);
        }
        std::fs::write(temp.path().join("x"), b"").unwrap();
        assert_eq!(read(&dir, "x").unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
