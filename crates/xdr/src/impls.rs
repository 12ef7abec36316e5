//! The traits for primitive types, opaque data, arrays and optional data.

use crate::{BufMut, Bytes, BytesMut, Decode, DecodeAtMost, Encode, Error, Reader, padding};

/// Appends variable-length opaque data: length, bytes, padding (RFC 4506 section 4.10).
#[inline]
pub fn put_opaque(data: &[u8], out: &mut BytesMut) {
    out.put_u32(data.len() as u32);
    put_fixed(data, out);
}

#[inline]
fn put_fixed(data: &[u8], out: &mut BytesMut) {
    out.put_slice(data);
    out.put_bytes(0, padding(data.len()));
}

impl Encode for u32 {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        out.put_u32(*self);
    }
}

impl Decode for u32 {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        r.u32()
    }
}

impl Encode for i32 {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        out.put_i32(*self);
    }
}

impl Decode for i32 {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(r.u32()? as i32)
    }
}

impl Encode for u64 {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(*self);
    }
}

impl Decode for u64 {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        r.u64()
    }
}

impl Encode for i64 {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        out.put_i64(*self);
    }
}

impl Decode for i64 {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(r.u64()? as i64)
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        out.put_u32(u32::from(*self));
    }
}

impl Decode for bool {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        match r.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Error::BadTag { name: "bool", value }),
        }
    }
}

impl Encode for () {
    #[inline]
    fn encode(&self, _out: &mut BytesMut) {}
}

impl Decode for () {
    #[inline]
    fn decode(_r: &mut Reader) -> Result<Self, Error> {
        Ok(())
    }
}

/// Variable-length opaque data, or a string, of any length that the record holds.
impl Encode for Bytes {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        put_opaque(self, out);
    }
}

impl Decode for Bytes {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        r.opaque(usize::MAX)
    }
}

/// Fixed-length opaque data.
impl<const N: usize> Encode for [u8; N] {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        put_fixed(self, out);
    }
}

impl<const N: usize> Decode for [u8; N] {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let data = r.fixed(N)?;
        let mut a = [0; N];
        a.copy_from_slice(&data);
        Ok(a)
    }
}

/// A variable-length array.
impl<T: Encode> Encode for Vec<T> {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        out.put_u32(self.len() as u32);
        for item in self {
            item.encode(out);
        }
    }
}

impl<T: Decode> Decode for Vec<T> {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Vec::decode_at_most(r, usize::MAX)
    }
}

impl DecodeAtMost for Bytes {
    #[inline]
    fn decode_at_most(r: &mut Reader, max: usize) -> Result<Self, Error> {
        r.opaque(max)
    }
}

impl<T: Decode> DecodeAtMost for Vec<T> {
    fn decode_at_most(r: &mut Reader, max: usize) -> Result<Self, Error> {
        let n = r.count()?;
        if n > max {
            return Err(Error::TooLong { len: n, max });
        }
        // An element in memory may be larger than on the wire: grow with what is really there.
        let mut items = Vec::with_capacity(n.min(64));
        for _ in 0..n {
            items.push(T::decode(r)?);
        }
        Ok(items)
    }
}

/// Optional data (RFC 4506 section 4.19).
impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        match self {
            None => out.put_u32(0),
            Some(value) => {
                out.put_u32(1);
                value.encode(out);
            }
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        if bool::decode(r)? { T::decode(r).map(Some) } else { Ok(None) }
    }
}

impl<T: Encode + ?Sized> Encode for Box<T> {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        (**self).encode(out);
    }
}

impl<T: Decode> Decode for Box<T> {
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        T::decode(r).map(Box::new)
    }
}
