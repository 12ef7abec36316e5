//! What arguments and results are made of (RFC 1813 sections 2.4 to 2.6).

use super::FHSIZE;
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
    /// Regular file.
    #[xdr(tag = 1)]
    Reg,
    /// Directory.
    #[xdr(tag = 2)]
    Dir,
    /// Block device.
    #[xdr(tag = 3)]
    Blk,
    /// Character device.
    #[xdr(tag = 4)]
    Chr,
    /// Symbolic link.
    #[xdr(tag = 5)]
    Lnk,
    /// Socket.
    #[xdr(tag = 6)]
    Sock,
    /// Named pipe.
    #[xdr(tag = 7)]
    Fifo,
}

/// `specdata3`: a device number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct SpecData {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// `nfstime3`: since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Time {
    /// Seconds.
    pub seconds: u32,
    /// Nanoseconds.
    pub nseconds: u32,
}

/// `fattr3`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Fattr {
    /// Kind of object.
    pub file_type: FileType,
    /// Permission bits.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage.
    pub used: u64,
    /// Of a device.
    pub rdev: SpecData,
    /// Filesystem.
    pub fsid: u64,
    /// File id within it.
    pub fileid: u64,
    /// Last access.
    pub atime: Time,
    /// Last modification of the content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

/// `wcc_attr`: what of an object, before an operation, tells whether a cache was current.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WccAttr {
    /// Size in bytes.
    pub size: u64,
    /// Last modification of the content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

/// `wcc_data`: before and after an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct WccData {
    /// Only when nothing else happened between the two.
    pub before: Option<WccAttr>,
    /// As it is now.
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
    /// This time.
    #[xdr(tag = 2)]
    Client(Time),
}

/// `sattr3`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Sattr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

/// A name in a directory (`diropargs3`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DirOp {
    /// The directory.
    pub dir: FileHandle,
    /// The name, any bytes.
    pub name: Bytes,
}

/// `stable_how`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum StableHow {
    /// Until COMMIT only in memory.
    #[xdr(tag = 0)]
    Unstable,
    /// Data and what is needed to read it.
    #[xdr(tag = 1)]
    DataSync,
    /// All.
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
