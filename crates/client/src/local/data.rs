//! The data segments of a sparse file, and its extended attributes.

use std::ffi::CStr;
use std::fs::File;
use std::io;

use bytes::Bytes;
use rustix::fs::{SeekFrom, fgetxattr, flistxattr, seek};
use rustix::io::Errno;

use crate::archive::Segment;

/// The segments that hold data in a file of `size` bytes, in order (SEEK_DATA, SEEK_HOLE). Between them the file reads as
/// zeroes. Moves the file's position. A filesystem without holes gives one segment.
pub fn segments(file: &File, size: u64) -> io::Result<Vec<Segment>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < size {
        let from = match seek(file, SeekFrom::Data(at)) {
            Ok(from) => from,
            // Only a hole up to the end.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![Segment { offset: 0, len: size }]),
            Err(e) => return Err(e.into()),
        };
        let end = seek(file, SeekFrom::Hole(from))?.min(size);
        if end <= from {
            break;
        }
        all.push(Segment { offset: from, len: end - from });
        at = end;
    }
    Ok(all)
}

/// The user extended attributes (`user.`), with names without that prefix. Only these exist in NFS, too (RFC 8276
/// section 1). On a filesystem without extended attributes the list is empty.
pub fn xattrs(file: &File) -> io::Result<Vec<(Bytes, Bytes)>> {
    let names = match grown(|buf| flistxattr(file, buf)) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let mut all = Vec::new();
    for whole in names.split_inclusive(|b| *b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(whole) else { continue };
        let Some(short) = name.to_bytes().strip_prefix(b"user.") else { continue };
        match grown(|buf| fgetxattr(file, name, buf)) {
            Ok(value) => all.push((Bytes::copy_from_slice(short), value.into())),
            // Removed since.
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e.into()),
        }
    }
    all.sort();
    Ok(all)
}

/// Calls `get` with a larger and larger buffer, until the value fits.
fn grown(get: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0; 1024];
    loop {
        match get(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            // Linux has no values larger than 64 KiB.
            Err(Errno::RANGE) if buf.len() < 1 << 20 => buf.resize(buf.len() * 4, 0),
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    #[test]
    fn holes_are_no_segments() {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.seek(SeekFrom::Start(4 << 20)).unwrap();
        file.write_all(&[7; 4096]).unwrap();
        file.set_len(8 << 20).unwrap();
        let found = segments(&file, 8 << 20).unwrap();
        let data: u64 = found.iter().map(|s| s.len).sum();
        assert!(
            found.iter().any(|s| s.offset <= 4 << 20 && s.offset + s.len >= (4 << 20) + 4096),
            "{found:?}"
        );
        assert!(data < 8 << 20, "{found:?}");
        file.set_len(0).unwrap();
        assert!(segments(&file, 0).unwrap().is_empty());
    }
}
