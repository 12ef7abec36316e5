//! The basic types that operations share (RFC 8881 section 3).

use super::limits;
use crate::common::opaque;
pub use crate::common::{SpecData, StableHow, Verifier};
use landfast_xdr::{Bytes, Decode, Encode, Error, Reader};

/// The longest filehandle, in bytes (RFC 8881 section 3.1).
pub const FHSIZE: usize = 128;
/// The longest owner, client owner or server scope, in bytes (RFC 8881 section 3.1).
pub const OPAQUE_LIMIT: usize = 1024;

/// A session's name (RFC 8881 section 3.1).
pub type SessionId = [u8; 16];

/// `stateid4` (RFC 8881 sections 3.3.12 and 8.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Stateid {
    /// Incremented with each change of the state; zero asks for the most recent.
    pub seqid: u32,
    pub other: [u8; 12],
}

impl Stateid {
    /// No state: the anonymous stateid (RFC 8881 section 8.2.3).
    pub const ANONYMOUS: Stateid = Stateid { seqid: 0, other: [0; 12] };
    /// READ that bypasses share denial (RFC 8881 section 8.2.3).
    pub const READ_BYPASS: Stateid = Stateid { seqid: u32::MAX, other: [0xff; 12] };
    /// The current stateid of the COMPOUND (RFC 8881 sections 8.2.3 and 16.2.3.1.2).
    pub const CURRENT: Stateid = Stateid { seqid: 1, other: [0; 12] };
    /// Names no state, for replies (RFC 8881 section 8.2.3).
    pub const INVALID: Stateid = Stateid { seqid: u32::MAX, other: [0; 12] };
}

/// `nfs_ftype4` (RFC 8881 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
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
    #[xdr(tag = 8)]
    AttrDir,
    #[xdr(tag = 9)]
    NamedAttr,
}

/// `nfstime4` (RFC 8881 section 3.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
pub struct NfsTime {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// 0 to 999,999,999; more is invalid (the server answers INVAL).
    pub nseconds: u32,
}

/// `settime4` (RFC 8881 section 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SetTime {
    /// The server's clock.
    #[xdr(tag = 0)]
    ServerTime,
    #[xdr(tag = 1)]
    ClientTime(NfsTime),
}

/// `fsid4` (RFC 8881 section 3.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Fsid {
    pub major: u64,
    pub minor: u64,
}

/// `change_info4`: a directory's change attribute around an operation (RFC 8881 section 3.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct ChangeInfo {
    /// Whether nothing came between `before` and `after` but this operation.
    pub atomic: bool,
    pub before: u64,
    pub after: u64,
}

/// `state_owner4`, for open owners and lock owners (RFC 8881 sections 3.3.10, 3.3.11). The client ID is that of the
/// session and is ignored (RFC 8881 section 18.16.3).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub struct StateOwner {
    /// Ignored in NFSv4.1.
    pub clientid: u64,
    /// At most [`OPAQUE_LIMIT`] bytes; longer is BADXDR.
    pub owner: Opaque1024,
}

opaque! {
    /// An owner, client owner or server scope. Servers keep owners for a long time, so it has memory of its own.
    Opaque1024, opaque_copied of at most OPAQUE_LIMIT
}

opaque! {
    /// `nfs_fh4` (RFC 8881 section 3.2).
    FileHandle, opaque of at most FHSIZE
}

/// `nfs_impl_id4` (RFC 8881 section 3.3.8).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ImplId {
    /// The implementor's DNS domain.
    pub domain: Bytes,
    /// Product and version.
    pub name: Bytes,
    /// When it was built.
    pub date: NfsTime,
}

/// `client_owner4` (RFC 8881 section 3.3.9).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ClientOwner {
    /// Changes with each start of the client.
    pub verifier: Verifier,
    pub owner_id: Opaque1024,
}

/// `server_owner4` (RFC 8881 section 3.3.13).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ServerOwner {
    /// Distinguishes the parts of one server.
    pub minor_id: u64,
    pub major_id: Opaque1024,
}

/// `channel_attrs4` (RFC 8881 section 18.36).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct ChannelAttrs {
    /// Padding in front of a WRITE's data, in bytes; not used.
    pub header_pad_size: u32,
    /// The largest request, in bytes, RPC header included.
    pub max_request_size: u32,
    /// The largest reply, in bytes, RPC header included.
    pub max_response_size: u32,
    /// The largest reply that is kept for replay, in bytes.
    pub max_response_size_cached: u32,
    /// Operations in one COMPOUND, SEQUENCE included.
    pub max_operations: u32,
    pub max_requests: u32,
    /// Not used over TCP.
    #[xdr(max = limits::RDMA_IRDS_MAX)]
    pub rdma_ird: Vec<u32>,
}

/// `nfs_lock_type4` (RFC 8881 section 18.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum LockType {
    #[xdr(tag = 1)]
    Read,
    #[xdr(tag = 2)]
    Write,
    /// Shared; the client would block.
    #[xdr(tag = 3)]
    ReadW,
    /// Exclusive; the client would block.
    #[xdr(tag = 4)]
    WriteW,
}

/// One entry of a SECINFO reply (RFC 8881 section 18.29).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecInfo {
    /// A flavour without parameters (AUTH_NONE, AUTH_SYS).
    Flavor(u32),
    /// RPCSEC_GSS with mechanism, quality of protection and service.
    Gss {
        /// The mechanism's OID, DER-encoded.
        oid: Bytes,
        qop: u32,
        /// 1 none, 2 integrity, 3 privacy.
        service: u32,
    },
}

impl Encode for SecInfo {
    fn encode(&self, out: &mut landfast_xdr::BytesMut) {
        match self {
            SecInfo::Flavor(f) => f.encode(out),
            SecInfo::Gss { oid, qop, service } => {
                super::flags::RPCSEC_GSS.encode(out);
                oid.encode(out);
                qop.encode(out);
                service.encode(out);
            }
        }
    }
}

impl Decode for SecInfo {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        match r.u32()? {
            super::flags::RPCSEC_GSS => {
                Ok(SecInfo::Gss { oid: Bytes::decode(r)?, qop: r.u32()?, service: r.u32()? })
            }
            flavor => Ok(SecInfo::Flavor(flavor)),
        }
    }
}

/// `nfsace4` (RFC 8881 section 6.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NfsAce {
    /// Allow, deny, audit, alarm.
    pub kind: u32,
    /// Inheritance and group flags.
    pub flag: u32,
    pub access_mask: u32,
    pub who: Bytes,
}
