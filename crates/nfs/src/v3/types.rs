//! What arguments and results are made of (RFC 1813 sections 2.4 to 2.6).

use super::FHSIZE;
use crate::common::opaque;
pub use crate::common::{SpecData, StableHow, Verifier};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};

opaque! {
    /// `nfs_fh3`.
    FileHandle, opaque of at most FHSIZE
}

/// `ftype3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum FileType {
    #[xdr(tag = 1)]
    Reg,
    #[xdr(tag = 2)]
    Dir,
    #[xdr(tag = 3)]
    Blk,
    #[xdr(tag = 4)]
    Chr,
    #[xdr(tag = 5)]
    Lnk,
    #[xdr(tag = 6)]
    Sock,
    #[xdr(tag = 7)]
    Fifo,
}

/// `nfstime3`: since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Time {
    pub seconds: u32,
    pub nseconds: u32,
}

/// `fattr3`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Fattr {
    pub file_type: FileType,
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Bytes of storage.
    pub used: u64,
    /// Of a device.
    pub rdev: SpecData,
    pub fsid: u64,
    /// File id within it.
    pub fileid: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

/// `wcc_attr`: what of an object, before an operation, tells whether a cache was current.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WccAttr {
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
}

/// `wcc_data`: before and after an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct WccData {
    /// Only when nothing else happened between the two.
    pub before: Option<WccAttr>,
    pub after: Option<Fattr>,
}

/// `set_atime`, `set_mtime`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub enum SetTime {
    /// Leave it.
    #[default]
    #[xdr(tag = 0)]
    Dont,
    /// The server's clock.
    #[xdr(tag = 1)]
    Server,
    #[xdr(tag = 2)]
    Client(Time),
}

/// `sattr3`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Sattr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: SetTime,
    pub mtime: SetTime,
}

/// A name in a directory (`diropargs3`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DirOp {
    pub dir: FileHandle,
    /// The name, any bytes.
    pub name: Bytes,
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
