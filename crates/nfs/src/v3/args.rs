//! The arguments of the procedures (RFC 1813 section 3.3).

use super::proc;
use super::types::{DirOp, FileHandle, FileType, Sattr, SpecData, StableHow, Time};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};

/// SETATTR (section 3.3.2).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetattrArgs {
    pub object: FileHandle,
    pub attrs: Sattr,
    /// Only if its ctime is this.
    pub guard: Option<Time>,
}

/// ACCESS (section 3.3.4).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AccessArgs {
    pub object: FileHandle,
    /// Bits of [`super::access`].
    pub access: u32,
}

/// READ (section 3.3.6).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadArgs {
    pub file: FileHandle,
    pub offset: u64,
    /// How many bytes at most.
    pub count: u32,
}

/// WRITE (section 3.3.7).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteArgs {
    pub file: FileHandle,
    pub offset: u64,
    /// Bytes of `data`.
    pub count: u32,
    pub stable: StableHow,
    pub data: Bytes,
}

/// `createhow3`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum CreateHow {
    /// An existing file will do.
    #[xdr(tag = 0)]
    Unchecked(Sattr),
    /// An existing name is an error.
    #[xdr(tag = 1)]
    Guarded(Sattr),
    /// An existing name is an error unless it was made with this verifier.
    #[xdr(tag = 2)]
    Exclusive([u8; 8]),
}

/// CREATE (section 3.3.8).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateArgs {
    pub at: DirOp,
    pub how: CreateHow,
}

/// MKDIR (section 3.3.9).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MkdirArgs {
    pub at: DirOp,
    pub attrs: Sattr,
}

/// SYMLINK (section 3.3.10).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SymlinkArgs {
    pub at: DirOp,
    pub attrs: Sattr,
    pub target: Bytes,
}

/// `mknoddata3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MknodWhat {
    Chr(Sattr, SpecData),
    Blk(Sattr, SpecData),
    Sock(Sattr),
    Fifo(Sattr),
    /// What MKNOD does not make.
    Other(FileType),
}

impl Encode for MknodWhat {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            MknodWhat::Chr(attrs, dev) | MknodWhat::Blk(attrs, dev) => {
                let kind = if matches!(self, MknodWhat::Chr(..)) { FileType::Chr } else { FileType::Blk };
                kind.encode(out);
                attrs.encode(out);
                dev.encode(out);
            }
            MknodWhat::Sock(attrs) => {
                FileType::Sock.encode(out);
                attrs.encode(out);
            }
            MknodWhat::Fifo(attrs) => {
                FileType::Fifo.encode(out);
                attrs.encode(out);
            }
            MknodWhat::Other(kind) => kind.encode(out),
        }
    }
}

impl Decode for MknodWhat {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(match FileType::decode(r)? {
            FileType::Chr => MknodWhat::Chr(Sattr::decode(r)?, SpecData::decode(r)?),
            FileType::Blk => MknodWhat::Blk(Sattr::decode(r)?, SpecData::decode(r)?),
            FileType::Sock => MknodWhat::Sock(Sattr::decode(r)?),
            FileType::Fifo => MknodWhat::Fifo(Sattr::decode(r)?),
            other => MknodWhat::Other(other),
        })
    }
}

/// MKNOD (section 3.3.11).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MknodArgs {
    pub at: DirOp,
    pub what: MknodWhat,
}

/// RENAME (section 3.3.14).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RenameArgs {
    pub from: DirOp,
    pub to: DirOp,
}

/// LINK (section 3.3.15).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LinkArgs {
    /// What gets a further name.
    pub file: FileHandle,
    pub link: DirOp,
}

/// READDIR (section 3.3.16).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirArgs {
    pub dir: FileHandle,
    /// After which entry; 0 is the beginning.
    pub cookie: u64,
    /// What came with the cookie.
    pub cookieverf: [u8; 8],
    /// Bytes of the result at most.
    pub count: u32,
}

/// READDIRPLUS (section 3.3.17).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirplusArgs {
    pub dir: FileHandle,
    /// After which entry; 0 is the beginning.
    pub cookie: u64,
    /// What came with the cookie.
    pub cookieverf: [u8; 8],
    /// Bytes of names, cookies and file ids at most.
    pub dircount: u32,
    /// Bytes of the result at most.
    pub maxcount: u32,
}

/// COMMIT (section 3.3.21).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CommitArgs {
    pub file: FileHandle,
    pub offset: u64,
    /// How many bytes; 0 is all.
    pub count: u32,
}

/// A call of one of the 22 procedures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Null,
    Getattr(FileHandle),
    Setattr(SetattrArgs),
    Lookup(DirOp),
    Access(AccessArgs),
    Readlink(FileHandle),
    Read(ReadArgs),
    Write(WriteArgs),
    Create(CreateArgs),
    Mkdir(MkdirArgs),
    Symlink(SymlinkArgs),
    Mknod(MknodArgs),
    Remove(DirOp),
    Rmdir(DirOp),
    Rename(RenameArgs),
    Link(LinkArgs),
    Readdir(ReaddirArgs),
    Readdirplus(ReaddirplusArgs),
    Fsstat(FileHandle),
    Fsinfo(FileHandle),
    Pathconf(FileHandle),
    Commit(CommitArgs),
}

/// Why a call has no arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoCall {
    /// The program has no such procedure.
    NoProcedure,
    /// The bytes are not the procedure's arguments.
    Garbage(Error),
}

impl From<Error> for NoCall {
    fn from(e: Error) -> Self {
        NoCall::Garbage(e)
    }
}

impl Call {
    /// Decodes the arguments of procedure `number`, which must be all of `body`.
    pub fn decode(number: u32, body: Bytes) -> Result<Call, NoCall> {
        Ok(match number {
            proc::NULL => <()>::from_bytes(body).map(|()| Call::Null)?,
            proc::GETATTR => Call::Getattr(FileHandle::from_bytes(body)?),
            proc::SETATTR => Call::Setattr(SetattrArgs::from_bytes(body)?),
            proc::LOOKUP => Call::Lookup(DirOp::from_bytes(body)?),
            proc::ACCESS => Call::Access(AccessArgs::from_bytes(body)?),
            proc::READLINK => Call::Readlink(FileHandle::from_bytes(body)?),
            proc::READ => Call::Read(ReadArgs::from_bytes(body)?),
            proc::WRITE => Call::Write(WriteArgs::from_bytes(body)?),
            proc::CREATE => Call::Create(CreateArgs::from_bytes(body)?),
            proc::MKDIR => Call::Mkdir(MkdirArgs::from_bytes(body)?),
            proc::SYMLINK => Call::Symlink(SymlinkArgs::from_bytes(body)?),
            proc::MKNOD => Call::Mknod(MknodArgs::from_bytes(body)?),
            proc::REMOVE => Call::Remove(DirOp::from_bytes(body)?),
            proc::RMDIR => Call::Rmdir(DirOp::from_bytes(body)?),
            proc::RENAME => Call::Rename(RenameArgs::from_bytes(body)?),
            proc::LINK => Call::Link(LinkArgs::from_bytes(body)?),
            proc::READDIR => Call::Readdir(ReaddirArgs::from_bytes(body)?),
            proc::READDIRPLUS => Call::Readdirplus(ReaddirplusArgs::from_bytes(body)?),
            proc::FSSTAT => Call::Fsstat(FileHandle::from_bytes(body)?),
            proc::FSINFO => Call::Fsinfo(FileHandle::from_bytes(body)?),
            proc::PATHCONF => Call::Pathconf(FileHandle::from_bytes(body)?),
            proc::COMMIT => Call::Commit(CommitArgs::from_bytes(body)?),
            _ => return Err(NoCall::NoProcedure),
        })
    }

    pub fn number(&self) -> u32 {
        match self {
            Call::Null => proc::NULL,
            Call::Getattr(_) => proc::GETATTR,
            Call::Setattr(_) => proc::SETATTR,
            Call::Lookup(_) => proc::LOOKUP,
            Call::Access(_) => proc::ACCESS,
            Call::Readlink(_) => proc::READLINK,
            Call::Read(_) => proc::READ,
            Call::Write(_) => proc::WRITE,
            Call::Create(_) => proc::CREATE,
            Call::Mkdir(_) => proc::MKDIR,
            Call::Symlink(_) => proc::SYMLINK,
            Call::Mknod(_) => proc::MKNOD,
            Call::Remove(_) => proc::REMOVE,
            Call::Rmdir(_) => proc::RMDIR,
            Call::Rename(_) => proc::RENAME,
            Call::Link(_) => proc::LINK,
            Call::Readdir(_) => proc::READDIR,
            Call::Readdirplus(_) => proc::READDIRPLUS,
            Call::Fsstat(_) => proc::FSSTAT,
            Call::Fsinfo(_) => proc::FSINFO,
            Call::Pathconf(_) => proc::PATHCONF,
            Call::Commit(_) => proc::COMMIT,
        }
    }
}

impl Encode for Call {
    /// The arguments alone.
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Call::Null => {}
            Call::Getattr(a) | Call::Readlink(a) | Call::Fsstat(a) | Call::Fsinfo(a) | Call::Pathconf(a) => {
                a.encode(out);
            }
            Call::Setattr(a) => a.encode(out),
            Call::Lookup(a) | Call::Remove(a) | Call::Rmdir(a) => a.encode(out),
            Call::Access(a) => a.encode(out),
            Call::Read(a) => a.encode(out),
            Call::Write(a) => a.encode(out),
            Call::Create(a) => a.encode(out),
            Call::Mkdir(a) => a.encode(out),
            Call::Symlink(a) => a.encode(out),
            Call::Mknod(a) => a.encode(out),
            Call::Rename(a) => a.encode(out),
            Call::Link(a) => a.encode(out),
            Call::Readdir(a) => a.encode(out),
            Call::Readdirplus(a) => a.encode(out),
            Call::Commit(a) => a.encode(out),
        }
    }
}
