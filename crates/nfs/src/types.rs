//! Types that are the same in versions 3 and 4.

use landfast_xdr::{BytesMut, Decode, Encode, Error, Reader};

/// `specdata3`, `specdata4`: a device number (RFC 1813 section 2.5, RFC 8881 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct SpecData {
    pub major: u32,
    pub minor: u32,
}

/// `stable_how`, `stable_how4` (RFC 1813 section 3.3.7, RFC 8881 section 18.32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum StableHow {
    /// May be lost until COMMIT.
    #[xdr(tag = 0)]
    Unstable,
    /// The data, and what is needed to read it, is stable.
    #[xdr(tag = 1)]
    DataSync,
    /// All is stable.
    #[xdr(tag = 2)]
    FileSync,
}

/// A linked list (`T *next`), as XDR writes it: each element behind a `TRUE`, a `FALSE` at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<T: Encode> Encode for List<T> {
    fn encode(&self, out: &mut BytesMut) {
        for item in &self.0 {
            true.encode(out);
            item.encode(out);
        }
        false.encode(out);
    }
}

impl<T: Decode> Decode for List<T> {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let mut items = Vec::new();
        while bool::decode(r)? {
            items.push(T::decode(r)?);
        }
        Ok(List(items))
    }
}
