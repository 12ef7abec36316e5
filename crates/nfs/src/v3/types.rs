//! What arguments and results are made of (RFC 1813 sections 2.4 to 2.6).

use super::FHSIZE;
pub use crate::types::{List, SpecData, StableHow};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader, put_opaque};

/// `nfs_fh3`: at most [`FHSIZE`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileHandle(pub Bytes);

impl Encode for FileHandle {
    fn encode(&self, out: &mut BytesMut) {
        put_opaque(&self.0, out);
    }
}

impl Decode for FileHandle {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        r.opaque(FHSIZE).map(FileHandle)
    }
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
    pub name: Bytes,
}
