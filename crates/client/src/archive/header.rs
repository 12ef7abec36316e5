//! The 512-byte header block: v7, ustar (POSIX.1-1988), GNU.

use landfast_nfs::v4::FileType;

pub const BLOCK: usize = 512;

/// A time since 1970-01-01T00:00:00Z. `nanos` counts forward, also before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Another name of an earlier member.
    HardLink,
    Symlink,
    /// Character device.
    Char,
    /// Block device.
    Block,
    Dir,
    Fifo,
    /// An archive cannot hold a socket, but a tree can.
    Socket,
}

impl Kind {
    /// The kind of an NFS object. `None`: a type that is not an object of a tree.
    #[must_use]
    pub fn of(object: FileType) -> Option<Kind> {
        Some(match object {
            FileType::Reg => Kind::File,
            FileType::Dir => Kind::Dir,
            FileType::Lnk => Kind::Symlink,
            FileType::Chr => Kind::Char,
            FileType::Blk => Kind::Block,
            FileType::Fifo => Kind::Fifo,
            FileType::Sock => Kind::Socket,
            _ => return None,
        })
    }
}

/// Offsets and lengths of a sparse map, not checked yet.
pub(super) type RawMap = Vec<(u64, u64)>;

/// A header block with a valid checksum.
pub(super) struct Header<'a>(&'a [u8; BLOCK]);

type Field = std::ops::Range<usize>;

impl<'a> Header<'a> {
    /// `None`: the checksum is wrong. Sums of signed bytes are accepted, too: some old implementations wrote them.
    pub(super) fn new(block: &'a [u8; BLOCK]) -> Option<Header<'a>> {
        let stored = number(&block[148..156])?;
        // The checksum field itself counts as blanks.
        const BLANKS: u32 = 8 * b' ' as u32;
        let sum = |bytes: &[u8]| bytes.iter().map(|b| u32::from(*b)).sum::<u32>();
        let unsigned = sum(&block[..148]) + BLANKS + sum(&block[156..]);
        // In a signed sum, a byte of 128 or more counts 256 less.
        let signed = || {
            let high = |bytes: &[u8]| bytes.iter().filter(|b| **b >= 128).count() as i64;
            i64::from(unsigned) - 256 * (high(&block[..148]) + high(&block[156..]))
        };
        (stored == u64::from(unsigned) || i64::try_from(stored) == Ok(signed())).then_some(Header(block))
    }

    pub(super) fn typeflag(&self) -> u8 {
        self.0[156]
    }

    fn is_posix(&self) -> bool {
        &self.0[257..263] == b"ustar\0"
    }

    fn is_gnu(&self) -> bool {
        &self.0[257..265] == b"ustar  \0"
    }

    /// The name, including the prefix of ustar.
    pub(super) fn name(&self) -> Vec<u8> {
        let name = text(&self.0[0..100]);
        let prefix = if self.is_posix() { text(&self.0[345..500]) } else { &[] };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    pub(super) fn link(&self) -> Vec<u8> {
        text(&self.0[157..257]).to_vec()
    }

    /// The owner's name. Empty in a v7 header.
    pub(super) fn user(&self) -> Vec<u8> {
        self.owner(265..297)
    }

    pub(super) fn group(&self) -> Vec<u8> {
        self.owner(297..329)
    }

    fn owner(&self, field: Field) -> Vec<u8> {
        let has = self.is_posix() || self.is_gnu();
        if has { text(&self.0[field]).to_vec() } else { Vec::new() }
    }

    pub(super) fn mode(&self) -> Option<u32> {
        Some((self.field(100..108)? & 0o7777) as u32)
    }

    pub(super) fn uid(&self) -> Option<u64> {
        self.field(108..116)
    }

    pub(super) fn gid(&self) -> Option<u64> {
        self.field(116..124)
    }

    pub(super) fn size(&self) -> Option<u64> {
        self.field(124..136)
    }

    pub(super) fn mtime(&self) -> Option<i64> {
        signed(&self.0[136..148])
    }

    /// Device numbers. Zero in a v7 header.
    pub(super) fn device(&self) -> Option<(u32, u32)> {
        if !self.is_posix() && !self.is_gnu() {
            return Some((0, 0));
        }
        let part = |f: Field| self.field(f).and_then(|n| u32::try_from(n).ok());
        Some((part(329..337)?, part(337..345)?))
    }

    /// GNU's old sparse format: up to four entries of the map, the real size, and whether more blocks of the map follow.
    pub(super) fn gnu_sparse(&self) -> Option<(RawMap, u64, bool)> {
        let map = sparse_entries(&self.0[386..482])?;
        Some((map, self.field(483..495)?, self.0[482] != 0))
    }

    fn field(&self, f: Field) -> Option<u64> {
        number(&self.0[f])
    }
}

/// A further block of GNU's old sparse map, and whether another one follows.
pub(super) fn gnu_sparse_block(block: &[u8; BLOCK]) -> Option<(RawMap, bool)> {
    Some((sparse_entries(&block[..504])?, block[504] != 0))
}

/// Pairs of offset and length. An empty one ends the list.
fn sparse_entries(bytes: &[u8]) -> Option<RawMap> {
    let mut map = Vec::new();
    for entry in bytes.chunks_exact(24) {
        if entry[0] == 0 {
            break;
        }
        map.push((number(&entry[..12])?, number(&entry[12..])?));
    }
    Some(map)
}

/// The field up to the first NUL.
fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|b| *b == 0).unwrap_or(field.len())]
}

/// Reads octal digits or GNU's base-256. An empty field is zero. `None`: neither, or negative.
fn number(field: &[u8]) -> Option<u64> {
    signed(field).and_then(|n| u64::try_from(n).ok())
}

fn signed(field: &[u8]) -> Option<i64> {
    match field[0] {
        // Base-256: two's complement after a marker bit.
        0x80 | 0xff => {
            let start = if field[0] == 0xff { -1i64 } else { 0 };
            let (high, low) = field[1..].split_at(field.len().saturating_sub(9));
            // Bytes beyond 64 bits may only repeat the sign.
            let sign = if start < 0 { 0xff } else { 0 };
            let negative = low.first().is_some_and(|b| low.len() == 8 && b & 0x80 != 0);
            if high.iter().any(|b| *b != sign) || (low.len() == 8 && negative != (start < 0)) {
                return None;
            }
            Some(low.iter().fold(start, |n, b| n << 8 | i64::from(*b)))
        }
        0x81..=0xfe => None,
        _ => {
            let digits = field.trim_ascii_start();
            let end = digits.iter().position(|b| matches!(b, 0 | b' ')).unwrap_or(digits.len());
            digits[..end].iter().try_fold(0i64, |n, b| match b {
                b'0'..=b'7' => n.checked_mul(8)?.checked_add(i64::from(b - b'0')),
                _ => None,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"  644 \0\0", Some(0o644)),
            (b"77777777777\0", Some(0o77_777_777_777)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"000064x\0", None),
            (&[0x80, 0, 0, 0, 0, 0, 1, 0], Some(256)),
            (&[0x80, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], Some(2 << 56)),
            (&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], None),
            (&[0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0], None),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe], Some(-2)),
            (&[0x90, 0, 0, 0, 0, 0, 0, 0], None),
        ] {
            assert_eq!(signed(field), value, "{field:?}");
        }
        assert_eq!(number(&[0xff; 12]), None);
    }

    #[test]
    fn a_block_with_a_wrong_sum_is_no_header() {
        let mut block = [0; BLOCK];
        block[0] = b'a';
        block[148..156].copy_from_slice(b"000541\0 ");
        assert_eq!(u64::from(b'a') + 8 * 32, 0o541);
        assert!(Header::new(&block).is_some());
        block[1] = b'b';
        assert!(Header::new(&block).is_none());
        // Either way of counting, before the field and behind it.
        (block[1], block[500]) = (0xff, 0x80);
        for sum in [0o541 + 255 + 128, 0o541 - 1 - 128] {
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            assert!(Header::new(&block).is_some(), "{sum}");
        }
        block[148..156].copy_from_slice(format!("{:06o}\0 ", 0o541 + 255 - 128).as_bytes());
        assert!(Header::new(&block).is_none());
    }
}
