//! Types that NFS versions 3 and 4 have in common, on the wire and in meaning. `v3::types` and `v4::types` re-export them.
//!
//! File types, times, set-times and statuses are not here: version 4 has other values or another width.

use landfast_xdr::{Decode, Encode};

/// An eight-byte opaque value, compared for equality only (RFC 1813 section 2.4, RFC 8881 section 3.1).
pub type Verifier = [u8; 8];

/// `specdata3`, `specdata4`: a device number (RFC 1813 section 2.6, RFC 8881 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct SpecData {
    /// `specdata1`
    pub major: u32,
    /// `specdata2`
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

/// Makes an opaque type of limited length. Longer data does not decode. `opaque` shares the memory of its record,
/// `opaque_copied` has memory of its own.
macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident, $decode:ident of at most $max:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub landfast_xdr::Bytes);

        impl landfast_xdr::Encode for $name {
            fn encode(&self, out: &mut landfast_xdr::BytesMut) {
                self.0.encode(out);
            }
        }

        impl landfast_xdr::Decode for $name {
            fn decode(r: &mut landfast_xdr::Reader) -> Result<Self, landfast_xdr::Error> {
                r.$decode($max).map($name)
            }
        }
    };
}
pub(crate) use opaque;
