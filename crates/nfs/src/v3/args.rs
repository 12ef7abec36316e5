//! The arguments of the procedures (RFC 1813 section 3.3).

use super::proc;
use super::types::{DirOp, FileHandle, FileType, Sattr, SpecData, StableHow, Time, Verifier};
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
    Exclusive(Verifier),
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
    pub cookieverf: Verifier,
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
    pub cookieverf: Verifier,
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

macro_rules! calls {
    ($($proc:ident: $variant:ident($args:ty);)*) => {
        /// A call of one of the 22 procedures.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Call {
            Null,
            $($variant($args),)*
        }

        impl Call {
            /// Decodes the arguments of procedure `number`, which must be all of `body`.
            pub fn decode(number: u32, body: Bytes) -> Result<Call, NoCall> {
                Ok(match number {
                    proc::NULL => <()>::from_bytes(body).map(|()| Call::Null)?,
                    $(proc::$proc => Call::$variant(<$args>::from_bytes(body)?),)*
                    _ => return Err(NoCall::NoProcedure),
                })
            }

            pub fn number(&self) -> u32 {
                match self {
                    Call::Null => proc::NULL,
                    $(Call::$variant(_) => proc::$proc,)*
                }
            }
        }

        impl Encode for Call {
            /// The arguments alone.
            fn encode(&self, out: &mut BytesMut) {
                match self {
                    Call::Null => {}
                    $(Call::$variant(args) => args.encode(out),)*
                }
            }
        }
    };
}

calls! {
    GETATTR: Getattr(FileHandle);
    SETATTR: Setattr(SetattrArgs);
    LOOKUP: Lookup(DirOp);
    ACCESS: Access(AccessArgs);
    READLINK: Readlink(FileHandle);
    READ: Read(ReadArgs);
    WRITE: Write(WriteArgs);
    CREATE: Create(CreateArgs);
    MKDIR: Mkdir(MkdirArgs);
    SYMLINK: Symlink(SymlinkArgs);
    MKNOD: Mknod(MknodArgs);
    REMOVE: Remove(DirOp);
    RMDIR: Rmdir(DirOp);
    RENAME: Rename(RenameArgs);
    LINK: Link(LinkArgs);
    READDIR: Readdir(ReaddirArgs);
    READDIRPLUS: Readdirplus(ReaddirplusArgs);
    FSSTAT: Fsstat(FileHandle);
    FSINFO: Fsinfo(FileHandle);
    PATHCONF: Pathconf(FileHandle);
    COMMIT: Commit(CommitArgs);
}
