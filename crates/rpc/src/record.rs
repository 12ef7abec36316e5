//! Record marking (RFC 5531 section 11): messages in a byte stream.
//!
//! A record is one or more fragments. A fragment is a four-byte header (top bit: last fragment of the record; 31 bits:
//! length) and that many bytes. [`Assembler`] is pure: bytes in, records out. A record of one fragment, the usual case,
//! is a slice of the read buffer; only records of several fragments are copied together.
//!
//! Invariants:
//! - A fragment that would exceed the record limit is refused when its header is read, before room is made for it. So
//!   the record limit also bounds the number of fragments that are not empty.
//! - Empty fragments have a limit of their own, so that they cannot keep a reader busy for ever.

use bytes::{Buf, Bytes, BytesMut};

use crate::limits::{EMPTY_FRAGMENTS_MAX, FRAGMENT_MAX};

pub const HEADER_LEN: usize = 4;
const LAST: u32 = 0x8000_0000;

/// Why a byte stream no longer has record boundaries. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("a record of at least {announced} bytes was announced, the limit is {max}")]
    TooLarge {
        /// Bytes of the record up to the end of the refused fragment.
        announced: u64,
        max: usize,
    },
    /// More empty fragments than [`EMPTY_FRAGMENTS_MAX`].
    #[error("a record has more than {EMPTY_FRAGMENTS_MAX} empty fragments")]
    TooManyEmptyFragments,
}

/// The header of the last (or only) fragment of a record, `len` bytes long.
///
/// `len` must not exceed [`FRAGMENT_MAX`]; cut larger records into fragments.
pub fn last_fragment_header(len: usize) -> [u8; HEADER_LEN] {
    debug_assert!(len <= FRAGMENT_MAX);
    (LAST | (len as u32 & !LAST)).to_be_bytes()
}

#[derive(Debug)]
pub struct Assembler {
    max: usize,
    /// Payload so far of a record of several fragments.
    joined: BytesMut,
    /// A fragment of the record, or its header, has arrived.
    begun: bool,
    /// Empty fragments of the record.
    empty: usize,
    /// The fragment whose header was read and whose bytes are still to come: length and "last".
    open: Option<(usize, bool)>,
}

impl Assembler {
    pub fn new(max: usize) -> Self {
        Assembler { max, joined: BytesMut::new(), begun: false, empty: 0, open: None }
    }

    /// Takes one whole record off the front of `buf`. `None`: more bytes are needed. After an error the record boundary
    /// is lost.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<Bytes>, RecordError> {
        loop {
            let (len, last) = match self.open {
                Some(open) => open,
                None => {
                    let Some(header) = buf.first_chunk::<HEADER_LEN>() else { return Ok(None) };
                    let header = u32::from_be_bytes(*header);
                    let len = (header & !LAST) as usize;
                    let announced = self.joined.len() as u64 + len as u64;
                    if announced > self.max as u64 {
                        return Err(RecordError::TooLarge { announced, max: self.max });
                    }
                    self.empty += usize::from(len == 0);
                    if self.empty > EMPTY_FRAGMENTS_MAX {
                        return Err(RecordError::TooManyEmptyFragments);
                    }
                    self.begun = true;
                    buf.advance(HEADER_LEN);
                    *self.open.insert((len, header & LAST != 0))
                }
            };
            if buf.len() < len {
                return Ok(None);
            }
            self.open = None;
            let fragment = buf.split_to(len);
            if !last {
                self.joined.extend_from_slice(&fragment);
                continue;
            }
            (self.begun, self.empty) = (false, 0);
            if self.joined.is_empty() {
                return Ok(Some(fragment.freeze()));
            }
            self.joined.extend_from_slice(&fragment);
            return Ok(Some(std::mem::take(&mut self.joined).freeze()));
        }
    }

    /// Sets the record limit, from the next header on.
    pub fn limit(&mut self, max: usize) {
        self.max = max;
    }

    /// Whether a record has begun to arrive. Its first bytes may still be in the read buffer.
    pub fn within(&self) -> bool {
        self.begun
    }

    /// Bytes of a record of several fragments that have arrived, not counting the read buffer.
    pub fn joined(&self) -> usize {
        self.joined.len()
    }

    /// Bytes that are missing until the open fragment is whole, or until the next header can be read. `buffered` is the
    /// length of the read buffer.
    pub fn missing(&self, buffered: usize) -> usize {
        self.open.map_or(HEADER_LEN, |(len, _)| len).saturating_sub(buffered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment(last: bool, body: &[u8]) -> Vec<u8> {
        let mut v = ((if last { LAST } else { 0 }) | body.len() as u32).to_be_bytes().to_vec();
        v.extend_from_slice(body);
        v
    }

    #[test]
    fn four_gib_is_refused_at_the_header() {
        let mut a = Assembler::new(1 << 20);
        let mut buf = BytesMut::from(&[0xff, 0xff, 0xff, 0xff][..]);
        assert_eq!(a.next(&mut buf), Err(RecordError::TooLarge { announced: 0x7fff_ffff, max: 1 << 20 }));
        assert!(buf.capacity() < 1024);
    }

    #[test]
    fn fragments_add_up_to_the_limit_and_not_over() {
        let mut a = Assembler::new(8);
        let mut buf = BytesMut::from(&[fragment(false, b"1234"), fragment(true, b"5678")].concat()[..]);
        assert_eq!(a.next(&mut buf).unwrap().unwrap(), &b"12345678"[..]);
        let mut buf = BytesMut::from(&[fragment(false, b"1234"), fragment(true, b"56789")].concat()[..]);
        assert_eq!(a.next(&mut buf), Err(RecordError::TooLarge { announced: 9, max: 8 }));
    }

    #[test]
    fn endless_empty_fragments_are_refused() {
        let mut a = Assembler::new(8);
        let mut buf = BytesMut::from(&fragment(false, b"").repeat(EMPTY_FRAGMENTS_MAX + 1)[..]);
        assert_eq!(a.next(&mut buf), Err(RecordError::TooManyEmptyFragments));
        // Also between others; each record has its own.
        let some = [fragment(false, b"1"), fragment(false, b"").repeat(EMPTY_FRAGMENTS_MAX)].concat();
        let whole = [some.clone(), fragment(true, b"2")].concat();
        let mut a = Assembler::new(8);
        let mut buf = BytesMut::from(&[whole.clone(), whole, some, fragment(false, b"")].concat()[..]);
        assert_eq!(a.next(&mut buf).unwrap().unwrap(), &b"12"[..]);
        assert_eq!(a.next(&mut buf).unwrap().unwrap(), &b"12"[..]);
        assert_eq!(a.next(&mut buf), Err(RecordError::TooManyEmptyFragments));
    }

    #[test]
    fn a_record_may_come_in_as_many_fragments_as_it_has_bytes() {
        const BYTES: usize = 1 << 20;
        for size in [1, 3, 2048] {
            let body = vec![b'x'; BYTES];
            let mut stream = BytesMut::new();
            for part in body.chunks(size) {
                stream.extend_from_slice(&fragment(false, part));
            }
            stream.extend_from_slice(&fragment(true, b""));
            let mut a = Assembler::new(BYTES);
            let record = a.next(&mut stream).unwrap().unwrap();
            assert!(record == body, "in fragments of {size}");
            assert!(!a.within());
        }
    }

    #[test]
    fn empty_record_is_a_record() {
        let mut a = Assembler::new(8);
        let mut buf = BytesMut::from(&fragment(true, b"")[..]);
        assert_eq!(a.next(&mut buf), Ok(Some(Bytes::new())));
        assert_eq!(a.next(&mut buf), Ok(None));
    }

    proptest! {
        #[test]
        fn any_cutting_into_fragments_and_reads_gives_the_records_back(
            records in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), 1usize..50), 1..10),
            read in 1usize..64,
        ) {
            let mut stream = Vec::new();
            for (body, cut) in &records {
                let parts: Vec<&[u8]> = body.chunks(*cut).collect();
                if parts.is_empty() { stream.extend(fragment(true, b"")); }
                for (i, part) in parts.iter().enumerate() {
                    stream.extend(fragment(i + 1 == parts.len(), part));
                }
            }
            let mut a = Assembler::new(4096);
            let (mut buf, mut got) = (BytesMut::new(), Vec::new());
            for chunk in stream.chunks(read) {
                buf.extend_from_slice(chunk);
                while let Some(r) = a.next(&mut buf).unwrap() { got.push(r.to_vec()); }
                prop_assert!(a.missing(buf.len()) > 0);
            }
            prop_assert_eq!(got, records.into_iter().map(|r| r.0).collect::<Vec<_>>());
        }
    }
}
