//! The results of the procedures (RFC 1813 section 3.3).

use super::status::NfsStat3;
use super::types::{Fattr, FileHandle, List, StableHow, Time, Verifier, WccData};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};

/// A result: `T` with [`NfsStat3::OK`], else the status and `F`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Res<T, F> {
    Ok(T),
    Fail(NfsStat3, F),
}

impl<T, F> Res<T, F> {
    pub fn status(&self) -> NfsStat3 {
        match self {
            Res::Ok(_) => NfsStat3::OK,
            Res::Fail(status, _) => *status,
        }
    }
}

impl<T: Encode, F: Encode> Encode for Res<T, F> {
    fn encode(&self, out: &mut BytesMut) {
        self.status().encode(out);
        match self {
            Res::Ok(ok) => ok.encode(out),
            Res::Fail(_, fail) => fail.encode(out),
        }
    }
}

impl<T: Decode, F: Decode> Decode for Res<T, F> {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        match NfsStat3::decode(r)? {
            NfsStat3::OK => T::decode(r).map(Res::Ok),
            status => F::decode(r).map(|f| Res::Fail(status, f)),
        }
    }
}

/// Attributes after an operation, of what it looked at or did not change.
pub type PostOp = Option<Fattr>;

/// GETATTR (section 3.3.1).
pub type GetattrRes = Res<Fattr, ()>;
/// SETATTR (section 3.3.2).
pub type SetattrRes = Res<WccData, WccData>;
/// LOOKUP (section 3.3.3); with an error, the directory's attributes.
pub type LookupRes = Res<LookupOk, PostOp>;
/// ACCESS (section 3.3.4).
pub type AccessRes = Res<AccessOk, PostOp>;
/// READLINK (section 3.3.5).
pub type ReadlinkRes = Res<ReadlinkOk, PostOp>;
/// READ (section 3.3.6).
pub type ReadRes = Res<ReadOk, PostOp>;
/// WRITE (section 3.3.7).
pub type WriteRes = Res<WriteOk, WccData>;
/// CREATE, MKDIR, SYMLINK, MKNOD (sections 3.3.8 to 3.3.11).
pub type MakeRes = Res<MakeOk, WccData>;
/// REMOVE, RMDIR (sections 3.3.12 and 3.3.13).
pub type RemoveRes = Res<WccData, WccData>;
/// RENAME (section 3.3.14).
pub type RenameRes = Res<RenameWcc, RenameWcc>;
/// LINK (section 3.3.15).
pub type LinkRes = Res<LinkWcc, LinkWcc>;
/// READDIR (section 3.3.16).
pub type ReaddirRes = Res<ReaddirOk, PostOp>;
/// READDIRPLUS (section 3.3.17).
pub type ReaddirplusRes = Res<ReaddirplusOk, PostOp>;
/// FSSTAT (section 3.3.18).
pub type FsstatRes = Res<FsstatOk, PostOp>;
/// FSINFO (section 3.3.19).
pub type FsinfoRes = Res<FsinfoOk, PostOp>;
/// PATHCONF (section 3.3.20).
pub type PathconfRes = Res<PathconfOk, PostOp>;
/// COMMIT (section 3.3.21).
pub type CommitRes = Res<CommitOk, WccData>;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LookupOk {
    pub object: FileHandle,
    pub attrs: PostOp,
    pub dir: PostOp,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AccessOk {
    pub attrs: PostOp,
    /// Those of the bits asked for that are granted.
    pub access: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadlinkOk {
    pub attrs: PostOp,
    pub target: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadOk {
    pub attrs: PostOp,
    /// Bytes of `data`.
    pub count: u32,
    /// The data reaches the file's end.
    pub eof: bool,
    pub data: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteOk {
    pub wcc: WccData,
    /// Bytes written.
    pub count: u32,
    /// How stable they are.
    pub committed: StableHow,
    /// Changes when unstable data may be lost.
    pub verf: Verifier,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MakeOk {
    pub object: Option<FileHandle>,
    pub attrs: PostOp,
    pub dir: WccData,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct RenameWcc {
    pub from: WccData,
    pub to: WccData,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct LinkWcc {
    pub attrs: PostOp,
    pub dir: WccData,
}

/// `entry3`, without its link to the next.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    pub fileid: u64,
    pub name: Bytes,
    pub cookie: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirOk {
    pub dir: PostOp,
    /// To be sent with its cookies.
    pub cookieverf: Verifier,
    pub entries: List<Entry>,
    /// The last of them is the directory's last.
    pub eof: bool,
}

/// `entryplus3`, without its link to the next.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct EntryPlus {
    pub fileid: u64,
    pub name: Bytes,
    pub cookie: u64,
    pub attrs: PostOp,
    pub object: Option<FileHandle>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirplusOk {
    pub dir: PostOp,
    /// To be sent with its cookies.
    pub cookieverf: Verifier,
    pub entries: List<EntryPlus>,
    /// The last of them is the directory's last.
    pub eof: bool,
}

/// FSSTAT: sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FsstatOk {
    pub attrs: PostOp,
    /// Size of the filesystem.
    pub tbytes: u64,
    /// Free.
    pub fbytes: u64,
    /// Free for this caller.
    pub abytes: u64,
    /// Objects that fit.
    pub tfiles: u64,
    /// Free.
    pub ffiles: u64,
    /// Free for this caller.
    pub afiles: u64,
    /// Seconds for which this is not expected to change.
    pub invarsec: u32,
}

/// FSINFO: sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FsinfoOk {
    pub attrs: PostOp,
    pub rtmax: u32,
    pub rtpref: u32,
    /// READs should be multiples of this.
    pub rtmult: u32,
    pub wtmax: u32,
    pub wtpref: u32,
    /// WRITEs should be multiples of this.
    pub wtmult: u32,
    pub dtpref: u32,
    pub maxfilesize: u64,
    /// Granularity of times.
    pub time_delta: Time,
    /// Bits of [`super::fsf`].
    pub properties: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct PathconfOk {
    pub attrs: PostOp,
    /// Names that an object can have.
    pub linkmax: u32,
    pub name_max: u32,
    /// Longer names are refused, not cut.
    pub no_trunc: bool,
    /// Only the superuser gives files away.
    pub chown_restricted: bool,
    /// `A` and `a` are one name.
    pub case_insensitive: bool,
    /// ... and are kept as they were given.
    pub case_preserving: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CommitOk {
    pub wcc: WccData,
    /// Changes when unstable data may be lost.
    pub verf: Verifier,
}
