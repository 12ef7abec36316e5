//! Writes tar archives: ustar blocks, and pax records (POSIX.1-2001) for what does not fit in them. Blocking.
//!
//! The `tar` crate makes the blocks. A pax header is written only where it is needed: for times with a fraction, long names,
//! large numbers, extended attributes. An archive that was not [finished](ArchiveWriter::finish) has no end marker, so that
//! it does not look complete.

use std::io::{self, Read, Write};

use tar::{Builder, EntryType, Header};

use super::compress::Compressor;
use super::header::{Kind, Time};
use super::reader::Member;

/// The largest numbers that fit into a header's octal digits.
const SEVEN_DIGITS: u64 = 0o777_7777;
const ELEVEN_DIGITS: u64 = 0o777_7777_7777;
/// The longest names that fit into a header block, in bytes.
const NAME_BYTES: usize = 100;
const OWNER_BYTES: usize = 31;
/// The size of an archive is a multiple of this many bytes, as with GNU tar.
const RECORD: u64 = 20 * 512;

pub struct ArchiveWriter<W: Write> {
    tar: Builder<Tap<W>>,
}

/// The output. Once it is shut, it drops what is written.
struct Tap<W: Write> {
    inner: Option<Compressor<W>>,
    written: u64,
}

impl<W: Write> Write for Tap<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let Some(inner) = &mut self.inner else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let n = inner.write(buf)?;
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl<W: Write> Drop for ArchiveWriter<W> {
    fn drop(&mut self) {
        // The builder would write an end marker.
        self.tar.get_mut().inner = None;
    }
}

/// Device numbers do not fit into a header, and pax has no records for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("device number out of range")]
pub struct DeviceRange;

pub fn check_device((major, minor): (u32, u32)) -> Result<(), DeviceRange> {
    let fits = |n: u32| u64::from(n) <= SEVEN_DIGITS;
    if fits(major) && fits(minor) { Ok(()) } else { Err(DeviceRange) }
}

/// Whether an archive can hold an extended attribute of this name: a record cannot express one that contains `=` or is not UTF-8.
pub(crate) fn holds_xattr(name: &[u8]) -> bool {
    !name.contains(&b'=') && std::str::from_utf8(name).is_ok()
}

impl<W: Write> ArchiveWriter<W> {
    pub fn new(out: Compressor<W>) -> ArchiveWriter<W> {
        ArchiveWriter { tar: Builder::new(Tap { inner: Some(out), written: 0 }) }
    }

    /// Writes a member. `data` must give [`Member::stored`] bytes. [`Member::sparse`] is ignored, and so are extended
    /// attributes with names that an archive cannot hold. A directory's name must end in `/`.
    ///
    /// # Errors
    /// When nothing can be written, or `data` fails or ends too soon. After that the archive is unusable.
    pub fn member(&mut self, member: &Member, data: impl Read) -> io::Result<()> {
        let mut header = Header::new_ustar();
        let mut pax: Vec<(String, Vec<u8>)> = Vec::new();
        let number = |pax: &mut Vec<_>, key: &str, value: u64, most: u64| match value <= most {
            true => value,
            false => {
                pax.push((key.to_owned(), value.to_string().into_bytes()));
                0
            }
        };
        let size = if member.kind == Kind::File { member.stored } else { 0 };
        header.set_entry_type(match member.kind {
            Kind::File => EntryType::Regular,
            Kind::HardLink => EntryType::Link,
            Kind::Symlink => EntryType::Symlink,
            Kind::Char => EntryType::Char,
            Kind::Block => EntryType::Block,
            Kind::Dir => EntryType::Directory,
            Kind::Fifo => EntryType::Fifo,
            Kind::Socket => return Err(io::Error::other("no archive can hold a socket")),
        });
        header.set_mode(member.mode & 0o7777);
        header.set_uid(number(&mut pax, "uid", member.uid.into(), SEVEN_DIGITS));
        header.set_gid(number(&mut pax, "gid", member.gid.into(), SEVEN_DIGITS));
        header.set_size(number(&mut pax, "size", size, ELEVEN_DIGITS));
        header.set_mtime(match u64::try_from(member.mtime.seconds) {
            Ok(seconds) if seconds <= ELEVEN_DIGITS => seconds,
            _ => 0,
        });
        if member.mtime.nanos != 0 || header.mtime()? != member.mtime.seconds.cast_unsigned() {
            pax.push(("mtime".to_owned(), decimal(member.mtime).into_bytes()));
        }
        if matches!(member.kind, Kind::Char | Kind::Block) {
            check_device(member.device).map_err(io::Error::other)?;
            header.set_device_major(member.device.0)?;
            header.set_device_minor(member.device.1)?;
        }
        if let Some(ustar) = header.as_ustar_mut() {
            let texts: [(&str, &[u8], &mut [u8], usize); 4] = [
                ("path", &member.path, &mut ustar.name, NAME_BYTES),
                ("linkpath", &member.link, &mut ustar.linkname, NAME_BYTES),
                ("uname", &member.user, &mut ustar.uname, OWNER_BYTES),
                ("gname", &member.group, &mut ustar.gname, OWNER_BYTES),
            ];
            for (key, text, field, most) in texts {
                let fits = text.len().min(most);
                field[..fits].copy_from_slice(&text[..fits]);
                if fits < text.len() {
                    pax.push((key.to_owned(), text.to_vec()));
                }
            }
        }
        for (name, value) in &member.xattrs {
            if let (Ok(name), true) = (std::str::from_utf8(name), holds_xattr(name)) {
                pax.push((format!("SCHILY.xattr.{name}"), value.to_vec()));
            }
        }
        header.set_cksum();
        self.tar.append_pax_extensions(pax.iter().map(|(key, value)| (key.as_str(), &value[..])))?;
        let mut data = data.take(size);
        self.tar.append(&header, &mut data)?;
        if data.limit() > 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Bytes of the archive so far, before compression.
    pub fn written(&self) -> u64 {
        self.tar.get_ref().written
    }

    /// Writes the end of the archive, and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.tar.finish()?;
        let tap = self.tar.get_mut();
        let padding = tap.written.next_multiple_of(RECORD) - tap.written;
        io::copy(&mut io::repeat(0).take(padding), tap)?;
        match tap.inner.take() {
            Some(inner) => inner.finish(),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Seconds with a fraction, as in a pax record.
fn decimal(time: Time) -> String {
    if time.nanos == 0 {
        return time.seconds.to_string();
    }
    // A time before 1970 is written as a negative number, but its nanoseconds count upwards.
    let (sign, seconds, nanos) = match time.seconds < 0 {
        true => ("-", (time.seconds + 1).unsigned_abs(), 1_000_000_000 - time.nanos),
        false => ("", time.seconds.unsigned_abs(), time.nanos),
    };
    let text = format!("{sign}{seconds}.{nanos:09}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::{ArchiveReader, Compression};
    use super::*;

    fn member() -> impl Strategy<Value = (Member, Vec<u8>)> {
        let name = || {
            proptest::collection::vec(
                any::<u8>().prop_map(|b| if matches!(b, 0 | b'/') { b'_' } else { b }),
                1..140,
            )
        };
        let device = || 0..=SEVEN_DIGITS as u32;
        let numbers = (any::<u32>(), any::<u32>(), 0..0o10000u32, (device(), device()));
        let time = (any::<i32>(), prop_oneof![Just(0), 0..1_000_000_000u32]);
        let time = prop_oneof![4 => time.prop_map(|(s, n)| (i64::from(s), n)), 1 => Just((1 << 40, 5))];
        let kind = prop_oneof![
            Just(Kind::File),
            Just(Kind::HardLink),
            Just(Kind::Symlink),
            Just(Kind::Char),
            Just(Kind::Dir),
            Just(Kind::Fifo)
        ];
        let xattrs = proptest::collection::btree_map("user\\.[a-z]{1,9}", name(), 0..3);
        let data = proptest::collection::vec(any::<u8>(), 0..1500);
        (kind, name(), name(), numbers, time, xattrs, data).prop_map(
            |(kind, path, link, (uid, gid, mode, device), (seconds, nanos), xattrs, mut data)| {
                let path = if kind == Kind::Dir { [&path[..], b"/"].concat() } else { path };
                let is_link = matches!(kind, Kind::HardLink | Kind::Symlink);
                if kind != Kind::File {
                    data.clear();
                }
                let member = Member {
                    path,
                    kind,
                    mode,
                    uid,
                    gid,
                    user: b"ann".to_vec(),
                    group: b"g".repeat(40),
                    mtime: Time { seconds, nanos },
                    atime: None,
                    link: if is_link { link } else { Vec::new() },
                    device: if kind == Kind::Char { device } else { (0, 0) },
                    size: data.len() as u64,
                    stored: data.len() as u64,
                    sparse: None,
                    xattrs: xattrs.into_iter().map(|(k, v)| (k.into_bytes(), Bytes::from(v))).collect(),
                };
                (member, data)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn what_is_written_is_read_again(members in proptest::collection::vec(member(), 0..5)) {
            let mut archive = ArchiveWriter::new(Compressor::new(Vec::new(), Compression::None).unwrap());
            for (member, data) in &members {
                archive.member(member, &data[..]).unwrap();
            }
            let bytes = archive.finish().unwrap();
            prop_assert_eq!(bytes.len() as u64 % RECORD, 0);
            let mut reader = ArchiveReader::new(&bytes[..]);
            for (member, data) in &members {
                let read = reader.next_member().unwrap();
                prop_assert_eq!(read.as_ref(), Some(member));
                prop_assert_eq!(&reader.data(usize::MAX).unwrap()[..], &data[..]);
            }
            prop_assert_eq!(reader.next_member().unwrap(), None);
        }
    }

    #[test]
    fn an_archive_that_was_given_up_does_not_pass_for_whole() {
        let mut bytes = Vec::new();
        let mut archive = ArchiveWriter::new(Compressor::new(&mut bytes, Compression::None).unwrap());
        let (mut file, data) = (some_file(), b"hello");
        archive.member(&file, &data[..]).unwrap();
        file.stored = 6;
        assert_eq!(archive.member(&file, &data[..]).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        drop(archive);
        let mut reader = ArchiveReader::new(&bytes[..]);
        assert!(reader.next_member().unwrap().is_some());
        let end =
            reader.next_member().and_then(|_| reader.data(usize::MAX)).and_then(|_| reader.next_member());
        assert!(matches!(end, Err(super::super::ArchiveError::Truncated(_))), "{end:?}");
    }

    fn some_file() -> Member {
        Member { mode: 0o644, size: 5, stored: 5, ..Member::plain(b"f", Kind::File) }
    }
}
