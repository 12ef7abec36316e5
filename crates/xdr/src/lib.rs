//! RFC 4506 (XDR) encoding and decoding, zero-copy for opaque data.
//!
//! [`Encode`] writes into a [`BytesMut`]; [`Decode`] reads from a [`Reader`] over [`Bytes`]. So a variable-length
//! opaque (the data of a WRITE) is a slice of the received record, not a copy. Both are derived for structs (fields in
//! order) and for enums (`#[xdr(tag = N)]` on each variant: a discriminated union, or an enumeration when no variant
//! carries data). `#[xdr(max = N)]` on a field bounds a variable-length opaque or array.
//!
//! Invariants: decoding never panics. Whatever lengths the input announces, it never allocates more than a multiple of the
//! bytes that are really there: an element of an array may take four bytes on the wire and some dozens in memory. What
//! comes from strangers bounds such arrays.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]
#![forbid(unsafe_code)]

mod error;
mod impls;
mod reader;

pub use bytes::{BufMut, Bytes, BytesMut};
pub use error::Error;
pub use impls::put_opaque;
pub use landfast_xdr_derive::{Decode, Encode};
pub use reader::Reader;

/// A value with an XDR representation (RFC 4506).
pub trait Encode {
    /// Appends the representation to `out`; its length is a multiple of four bytes.
    fn encode(&self, out: &mut BytesMut);

    /// The representation as bytes of its own.
    fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out.freeze()
    }
}

/// A value that can be read from its XDR representation (RFC 4506).
pub trait Decode: Sized {
    /// Takes the representation from the front of `r`.
    ///
    /// # Errors
    /// [`Error`] when the bytes end too soon or are no representation of `Self`; the reader's position is then
    /// unspecified.
    fn decode(r: &mut Reader) -> Result<Self, Error>;

    /// Decodes a whole buffer.
    ///
    /// # Errors
    /// As [`Decode::decode`], and [`Error::Trailing`] when bytes are left over.
    fn from_bytes(bytes: Bytes) -> Result<Self, Error> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        match r.remaining() {
            0 => Ok(value),
            n => Err(Error::Trailing(n)),
        }
    }
}

/// Data of variable length whose length a field bounds with `#[xdr(max = N)]` (RFC 4506 sections 4.10 to 4.13).
pub trait DecodeAtMost: Decode {
    /// Takes at most `max` bytes or elements from the front of `r`.
    ///
    /// # Errors
    /// As [`Decode::decode`], and [`Error::TooLong`].
    fn decode_at_most(r: &mut Reader, max: usize) -> Result<Self, Error>;
}

/// The bytes of padding that follow `len` bytes of opaque data (RFC 4506 section 4.10).
#[must_use]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}
