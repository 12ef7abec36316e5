//! The results of operations (RFC 8881 section 18, RFC 7862 section 15).

use super::args::CallbackSecParms;
use super::attr::{Bitmap, Fattr};
use super::data::{CopyRequirements, CopyRes, OffloadStatusRes, SeekRes};
use super::types::{
    ChangeInfo, ChannelAttrs, FileHandle, ImplId, LockType, NfsAce, Opaque1024, SecInfo, ServerOwner,
    SessionId, StableHow, StateOwner, Stateid, Verifier,
};
use super::v40::{ClientAddr, SetclientidRes};
use super::{NfsStat, OpNum};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};

/// ACCESS (RFC 8881 section 18.1).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AccessRes {
    /// What the server can tell about.
    pub supported: u32,
    pub access: u32,
}

/// CREATE (RFC 8881 section 18.4).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateRes {
    /// The directory's change attribute.
    pub cinfo: ChangeInfo,
    /// What was set.
    pub attrset: Bitmap,
}

/// `LOCK4denied` (RFC 8881 section 18.10).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LockDenied {
    /// First byte of the lock in the way.
    pub offset: u64,
    /// Bytes; `u64::MAX` for all to the end.
    pub length: u64,
    pub locktype: LockType,
    pub owner: StateOwner,
}

/// OPEN (RFC 8881 section 18.16).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OpenRes {
    pub stateid: Stateid,
    /// The directory's change attribute.
    pub cinfo: ChangeInfo,
    /// `OPEN4_RESULT_*`.
    pub rflags: u32,
    /// What was set at creation.
    pub attrset: Bitmap,
    /// A delegation, or none.
    pub delegation: OpenDelegation,
}

/// `nfs_space_limit4` (RFC 8881 section 18.16).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum SpaceLimit {
    /// The file may grow to this size in bytes.
    #[xdr(tag = 1)]
    Size(u64),
    /// So many blocks may be dirty.
    #[xdr(tag = 2)]
    Blocks { num_blocks: u32, bytes_per_block: u32 },
}

/// `open_delegation4` (RFC 8881 section 18.16, RFC 9754 section 8.1).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum OpenDelegation {
    #[xdr(tag = 0)]
    None,
    #[xdr(tag = 1)]
    Read(ReadDelegation),
    #[xdr(tag = 2)]
    Write(WriteDelegation),
    /// None, and why.
    #[xdr(tag = 3)]
    NoneExt(WhyNone),
    /// The holder answers for the time of last access, too.
    #[xdr(tag = 4)]
    ReadAttrs(ReadDelegation),
    /// The holder answers for the times of last access and change, too.
    #[xdr(tag = 5)]
    WriteAttrs(WriteDelegation),
}

/// `open_read_delegation4` (RFC 8881 section 18.16).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadDelegation {
    pub stateid: Stateid,
    /// To be returned at once.
    pub recall: bool,
    /// Who needs no ACCESS.
    pub permissions: NfsAce,
}

/// `open_write_delegation4` (RFC 8881 section 18.16).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteDelegation {
    pub stateid: Stateid,
    /// To be returned at once.
    pub recall: bool,
    /// How much may be dirty after close.
    pub space_limit: SpaceLimit,
    /// Who needs no ACCESS.
    pub permissions: NfsAce,
}

/// `open_none_delegation4` (RFC 8881 section 18.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WhyNone {
    /// `WND4_*`.
    pub why: u32,
    /// For WND4_CONTENTION (1) and WND4_RESOURCE (2): the server will say when.
    pub will_signal: bool,
}

impl Encode for WhyNone {
    fn encode(&self, out: &mut BytesMut) {
        self.why.encode(out);
        if matches!(self.why, 1 | 2) {
            self.will_signal.encode(out);
        }
    }
}

impl Decode for WhyNone {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let why = r.u32()?;
        let will_signal = if matches!(why, 1 | 2) { bool::decode(r)? } else { false };
        Ok(WhyNone { why, will_signal })
    }
}

/// READ (RFC 8881 section 18.22).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadRes {
    /// The end of the file was reached.
    pub eof: bool,
    pub data: Bytes,
}

/// One segment of a READ_PLUS reply (RFC 7862 section 15.10).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum ReadPlusContent {
    #[xdr(tag = 0)]
    Data { offset: u64, data: Bytes },
    #[xdr(tag = 1)]
    Hole {
        offset: u64,
        /// How many bytes.
        length: u64,
    },
}

/// READ_PLUS (RFC 7862 section 15.10).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadPlusRes {
    /// The end of the file was reached.
    pub eof: bool,
    pub contents: Vec<ReadPlusContent>,
}

/// An entry of a READDIR reply (RFC 8881 section 18.23).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Go on behind this entry; never 0, 1 or 2.
    pub cookie: u64,
    pub name: Bytes,
    pub attrs: Fattr,
}

/// READDIR (RFC 8881 section 18.23).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaddirRes {
    /// To be sent with the cookies.
    pub cookieverf: Verifier,
    pub entries: Vec<DirEntry>,
    /// No more behind them.
    pub eof: bool,
}

impl Encode for ReaddirRes {
    fn encode(&self, out: &mut BytesMut) {
        self.cookieverf.encode(out);
        for e in &self.entries {
            true.encode(out);
            e.cookie.encode(out);
            e.name.encode(out);
            e.attrs.encode(out);
        }
        false.encode(out);
        self.eof.encode(out);
    }
}

impl Decode for ReaddirRes {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let cookieverf = Verifier::decode(r)?;
        let mut entries = Vec::new();
        while bool::decode(r)? {
            entries.push(DirEntry { cookie: r.u64()?, name: Bytes::decode(r)?, attrs: Fattr::decode(r)? });
        }
        Ok(ReaddirRes { cookieverf, entries, eof: bool::decode(r)? })
    }
}

/// GET_DIR_DELEGATION (RFC 8881 section 18.39): `gddrnf_status`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum GetDirDelegationRes {
    /// `GDD4_OK`.
    #[xdr(tag = 0)]
    Given(DirDelegation),
    /// `GDD4_UNAVAIL`. The server will say when there may be one.
    #[xdr(tag = 1)]
    Unavailable(bool),
}

/// A directory delegation.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DirDelegation {
    pub cookieverf: Verifier,
    pub stateid: Stateid,
    /// Changes that the holder will be told (`NOTIFY4_*`).
    pub notifications: Bitmap,
    /// Attributes of entries that it will be told.
    pub child_attributes: Bitmap,
    /// Attributes of the directory that it will be told.
    pub dir_attributes: Bitmap,
}

/// LISTXATTRS (RFC 8276 section 8.4.3).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ListxattrsRes {
    /// Go on behind the last name.
    pub cookie: u64,
    /// Names, without a namespace.
    pub names: Vec<Bytes>,
    /// No more behind them.
    pub eof: bool,
}

/// RENAME (RFC 8881 section 18.26).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RenameRes {
    /// The saved directory's change attribute.
    pub source_cinfo: ChangeInfo,
    /// The current directory's change attribute.
    pub target_cinfo: ChangeInfo,
}

/// WRITE (RFC 8881 section 18.32).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteRes {
    /// Bytes written.
    pub count: u32,
    /// How stable they are.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost.
    pub writeverf: Verifier,
}

/// BIND_CONN_TO_SESSION (RFC 8881 section 18.34).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct BindConnToSessionRes {
    pub sessid: SessionId,
    /// `CDFS4_*`.
    pub dir: u32,
    /// Not over TCP.
    pub use_conn_in_rdma_mode: bool,
}

/// EXCHANGE_ID (RFC 8881 section 18.35).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeIdRes {
    pub clientid: u64,
    /// For its first CREATE_SESSION.
    pub sequenceid: u32,
    /// `EXCHGID4_FLAG_*`.
    pub flags: u32,
    pub state_protect: StateProtectRes,
    pub server_owner: ServerOwner,
    /// Within what scope client IDs and handles are the same.
    pub server_scope: Opaque1024,
    /// At most one element.
    pub server_impl_id: Vec<ImplId>,
}

/// `state_protect4_r` (RFC 8881 section 18.35), SP4_SSV left out: no server here grants it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum StateProtectRes {
    #[xdr(tag = 0)]
    None,
    #[xdr(tag = 1)]
    MachCred(super::args::StateProtectOps),
}

/// CREATE_SESSION (RFC 8881 section 18.36).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateSessionRes {
    pub sessionid: SessionId,
    /// As in the request.
    pub sequence: u32,
    /// `CREATE_SESSION4_FLAG_*` that were granted.
    pub flags: u32,
    /// What holds, client to server.
    pub fore_chan_attrs: ChannelAttrs,
    /// What holds, server to client.
    pub back_chan_attrs: ChannelAttrs,
}

/// SEQUENCE (RFC 8881 section 18.46).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SequenceRes {
    pub sessionid: SessionId,
    /// As in the request.
    pub sequenceid: u32,
    pub slotid: u32,
    /// The highest slot that the server takes.
    pub highest_slotid: u32,
    /// The highest slot that the server would like.
    pub target_highest_slotid: u32,
    /// `SEQ4_STATUS_*`.
    pub status_flags: u32,
}

macro_rules! results {
    (
        { $($(#[$doc:meta])* $op:ident = $value:literal: $variant:ident $(($args:ty))? $(-> $res:ty)?;)* }
        { $($other:tt)* }
    ) => {
        /// What an operation returned besides its status.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum ResBody {
            Empty,
            $($($variant($res),)?)*
            /// LOCK and LOCKT with status DENIED.
            Denied(LockDenied),
            /// SETCLIENTID with status CLID_INUSE.
            ClientInUse(ClientAddr),
            /// COPY with status OFFLOAD_NO_REQS.
            CopyRequirements(CopyRequirements),
            /// Any of these, encoded already; never what decoding gives.
            Encoded(Bytes),
        }

        impl ResBody {
            fn decode_success(op: OpNum, r: &mut Reader) -> Result<ResBody, Error> {
                Ok(match op {
                    $($(OpNum::$op => ResBody::$variant(<$res>::decode(r)?),)?)*
                    // It has SECINFO's results (RFC 8881 section 18.45.2).
                    OpNum::SECINFO_NO_NAME => ResBody::Secinfo(Decode::decode(r)?),
                    _ => ResBody::Empty,
                })
            }
        }

        impl Encode for ResBody {
            fn encode(&self, out: &mut BytesMut) {
                match self {
                    ResBody::Empty => {}
                    $($(ResBody::$variant(body) => <$res as Encode>::encode(body, out),)?)*
                    ResBody::Denied(body) => body.encode(out),
                    ResBody::ClientInUse(body) => body.encode(out),
                    ResBody::CopyRequirements(body) => body.encode(out),
                    ResBody::Encoded(bytes) => out.extend_from_slice(bytes),
                }
            }
        }
    };
}
super::op::operations!(results);

/// One operation's result in a COMPOUND's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResOp {
    pub op: OpNum,
    pub status: NfsStat,
    pub body: ResBody,
}

impl ResOp {
    pub fn ok(op: OpNum, body: ResBody) -> ResOp {
        ResOp { op, status: NfsStat::NFS4_OK, body }
    }

    /// A failure; SETATTR says that nothing was set.
    pub fn failed(op: OpNum, status: NfsStat) -> ResOp {
        let body = match (op, status) {
            (OpNum::SETATTR, _) => ResBody::Setattr(Bitmap::default()),
            (OpNum::SETCLIENTID, NfsStat::NFS4ERR_CLID_INUSE) => ResBody::ClientInUse(ClientAddr::default()),
            _ => ResBody::Empty,
        };
        ResOp { op, status, body }
    }
}

impl Encode for ResOp {
    fn encode(&self, out: &mut BytesMut) {
        self.op.0.encode(out);
        self.status.encode(out);
        self.body.encode(out);
    }
}

impl Decode for ResOp {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let op = OpNum(r.u32()?);
        let status = NfsStat::decode(r)?;
        let body = match (op, status) {
            (_, NfsStat::NFS4_OK) => ResBody::decode_success(op, r)?,
            // Linux (nfsd4_encode_operation) omits the bitmap when it runs out of room or of operations: with NFSv4.0 at
            // the fifty-first operation. Such a result is the last one of its reply.
            (OpNum::SETATTR, _) if r.remaining() == 0 => ResBody::Setattr(Bitmap::default()),
            (OpNum::SETATTR, _) => ResBody::Setattr(Decode::decode(r)?),
            (OpNum::LOCK | OpNum::LOCKT, NfsStat::NFS4ERR_DENIED) => ResBody::Denied(Decode::decode(r)?),
            (OpNum::SETCLIENTID, NfsStat::NFS4ERR_CLID_INUSE) => ResBody::ClientInUse(Decode::decode(r)?),
            (OpNum::COPY, NfsStat::NFS4ERR_OFFLOAD_NO_REQS) => ResBody::CopyRequirements(Decode::decode(r)?),
            _ => ResBody::Empty,
        };
        Ok(ResOp { op, status, body })
    }
}

/// Callback security that a server without GSS can use.
pub fn usable_callback_security(parms: &[CallbackSecParms]) -> Option<&CallbackSecParms> {
    parms.iter().find(|p| !matches!(p, CallbackSecParms::Gss { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7530 section 16.32.2 gives SETATTR4res its bitmap whatever the status; Linux's server leaves it out with RESOURCE.
    #[test]
    fn a_setattr_that_linux_refuses_for_lack_of_room_has_no_bitmap() {
        let mut bytes = BytesMut::new();
        OpNum::SETATTR.0.encode(&mut bytes);
        NfsStat::NFS4ERR_RESOURCE.encode(&mut bytes);
        let res = ResOp::decode(&mut Reader::new(bytes.clone().freeze())).unwrap();
        assert_eq!(res, ResOp::failed(OpNum::SETATTR, NfsStat::NFS4ERR_RESOURCE));
        // What succeeded has one.
        let mut bytes = BytesMut::new();
        OpNum::SETATTR.0.encode(&mut bytes);
        NfsStat::NFS4_OK.encode(&mut bytes);
        assert!(ResOp::decode(&mut Reader::new(Bytes::from(bytes.to_vec()))).is_err());
    }
}
