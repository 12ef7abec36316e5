//! The arguments of operations (RFC 8881 section 18, RFC 7862 section 15, RFC 8276 section 8.4).
//!
//! An operation that this crate has no arguments for decodes as [`ArgOp::Other`], one whose arguments are malformed as
//! [`ArgOp::Malformed`]; nothing behind either can be decoded, and a COMPOUND stops there anyway.

use super::OpNum;
use super::attr::{Bitmap, Fattr};
use super::data::{CloneArgs, CopyArgs, IoAdviseArgs, RangeArgs, SeekArgs};
use super::limits;
use super::types::{
    ChannelAttrs, ClientOwner, FileHandle, ImplId, LockType, NfsTime, Opaque1024, SessionId, SpecData,
    StableHow, StateOwner, Stateid, Verifier,
};
use super::v40::{OpenConfirmArgs, SetclientidArgs, SetclientidConfirmArgs};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};

/// BACKCHANNEL_CTL (RFC 8881 section 18.33).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct BackchannelCtlArgs {
    pub cb_program: u32,
    #[xdr(max = limits::SEC_PARMS_MAX)]
    pub sec_parms: Vec<CallbackSecParms>,
}

/// `callback_sec_parms4` (RFC 8881 section 18.33).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum CallbackSecParms {
    #[xdr(tag = super::flags::AUTH_NONE)]
    None,
    #[xdr(tag = super::flags::AUTH_SYS)]
    Sys(AuthSysParms),
    #[xdr(tag = super::flags::RPCSEC_GSS)]
    Gss {
        /// 1 none, 2 integrity, 3 privacy.
        service: u32,
        handle_from_server: Bytes,
        handle_from_client: Bytes,
    },
}

/// `authsys_parms` (RFC 5531 appendix A).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AuthSysParms {
    pub stamp: u32,
    #[xdr(max = limits::MACHINE_NAME_MAX)]
    pub machine_name: Bytes,
    pub uid: u32,
    pub gid: u32,
    /// Other groups.
    #[xdr(max = limits::AUTH_SYS_GIDS_MAX)]
    pub gids: Vec<u32>,
}

/// BIND_CONN_TO_SESSION (RFC 8881 section 18.34).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct BindConnToSessionArgs {
    pub sessid: SessionId,
    /// `CDFC4_*`.
    pub dir: u32,
    /// Not over TCP.
    pub use_conn_in_rdma_mode: bool,
}

/// EXCHANGE_ID (RFC 8881 section 18.35).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeIdArgs {
    pub client_owner: ClientOwner,
    /// `EXCHGID4_FLAG_*`.
    pub flags: u32,
    pub state_protect: StateProtectArgs,
    #[xdr(max = limits::IMPL_IDS_MAX)]
    pub client_impl_id: Vec<ImplId>,
}

/// `state_protect4_a` (RFC 8881 section 18.35).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum StateProtectArgs {
    #[xdr(tag = 0)]
    None,
    #[xdr(tag = 1)]
    MachCred(StateProtectOps),
    #[xdr(tag = 2)]
    Ssv {
        ops: StateProtectOps,
        #[xdr(max = limits::SSV_ALGORITHMS_MAX)]
        hash_algs: Vec<Bytes>,
        #[xdr(max = limits::SSV_ALGORITHMS_MAX)]
        encr_algs: Vec<Bytes>,
        /// Secrets to remember.
        window: u32,
        num_gss_handles: u32,
    },
}

/// `state_protect_ops4` (RFC 8881 section 18.35).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct StateProtectOps {
    pub must_enforce: Bitmap,
    pub must_allow: Bitmap,
}

/// CREATE_SESSION (RFC 8881 section 18.36).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateSessionArgs {
    /// From EXCHANGE_ID.
    pub clientid: u64,
    /// From EXCHANGE_ID, then counted.
    pub sequence: u32,
    /// `CREATE_SESSION4_FLAG_*`.
    pub flags: u32,
    /// What the client would like, client to server.
    pub fore_chan_attrs: ChannelAttrs,
    /// What the client would like, server to client.
    pub back_chan_attrs: ChannelAttrs,
    pub cb_program: u32,
    #[xdr(max = limits::SEC_PARMS_MAX)]
    pub sec_parms: Vec<CallbackSecParms>,
}

/// SEQUENCE (RFC 8881 section 18.46).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SequenceArgs {
    pub sessionid: SessionId,
    /// The slot's next number.
    pub sequenceid: u32,
    pub slotid: u32,
    /// The highest slot in use by the client.
    pub highest_slotid: u32,
    /// Keep the reply for replay.
    pub cachethis: bool,
}

/// CLOSE (RFC 8881 section 18.2).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CloseArgs {
    /// Ignored in NFSv4.1.
    pub seqid: u32,
    pub open_stateid: Stateid,
}

/// COMMIT (RFC 8881 section 18.3).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CommitArgs {
    pub offset: u64,
    /// Bytes; 0 for all to the end.
    pub count: u32,
}

/// `createtype4` (RFC 8881 section 18.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateType {
    /// Symbolic link to this text.
    Lnk(Bytes),
    Blk(SpecData),
    Chr(SpecData),
    Sock,
    Fifo,
    Dir,
    /// A type that CREATE does not make (the server answers BADTYPE).
    Other(u32),
}

impl Encode for CreateType {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            CreateType::Lnk(text) => {
                5u32.encode(out);
                text.encode(out);
            }
            CreateType::Blk(d) => {
                3u32.encode(out);
                d.encode(out);
            }
            CreateType::Chr(d) => {
                4u32.encode(out);
                d.encode(out);
            }
            CreateType::Sock => 6u32.encode(out),
            CreateType::Fifo => 7u32.encode(out),
            CreateType::Dir => 2u32.encode(out),
            CreateType::Other(n) => n.encode(out),
        }
    }
}

impl Decode for CreateType {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(match r.u32()? {
            2 => CreateType::Dir,
            3 => CreateType::Blk(SpecData::decode(r)?),
            4 => CreateType::Chr(SpecData::decode(r)?),
            5 => CreateType::Lnk(Bytes::decode(r)?),
            6 => CreateType::Sock,
            7 => CreateType::Fifo,
            n => CreateType::Other(n),
        })
    }
}

/// CREATE (RFC 8881 section 18.4).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateArgs {
    pub kind: CreateType,
    pub name: Bytes,
    pub attrs: Fattr,
}

/// LOCK (RFC 8881 section 18.10).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LockArgs {
    pub locktype: LockType,
    pub reclaim: bool,
    pub offset: u64,
    /// Bytes; `u64::MAX` for all to the end.
    pub length: u64,
    pub locker: Locker,
}

/// `locker4` (RFC 8881 section 18.10). The discriminant is a boolean: `new_lock_owner`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Locker {
    /// A lock owner that has locks on this file already.
    #[xdr(tag = 0)]
    Existing {
        lock_stateid: Stateid,
        /// Ignored in NFSv4.1.
        lock_seqid: u32,
    },
    /// A lock owner's first lock on this file.
    #[xdr(tag = 1)]
    New {
        /// Ignored in NFSv4.1.
        open_seqid: u32,
        open_stateid: Stateid,
        /// Ignored in NFSv4.1.
        lock_seqid: u32,
        lock_owner: StateOwner,
    },
}

/// LOCKT (RFC 8881 section 18.11).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LocktArgs {
    pub locktype: LockType,
    pub offset: u64,
    /// Bytes; `u64::MAX` for all to the end.
    pub length: u64,
    pub owner: StateOwner,
}

/// LOCKU (RFC 8881 section 18.12).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LockuArgs {
    /// Ignored.
    pub locktype: LockType,
    /// Ignored in NFSv4.1.
    pub seqid: u32,
    /// The lock owner's stateid.
    pub lock_stateid: Stateid,
    pub offset: u64,
    /// Bytes; `u64::MAX` for all to the end.
    pub length: u64,
}

/// OPEN (RFC 8881 section 18.16).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OpenArgs {
    /// Ignored in NFSv4.1.
    pub seqid: u32,
    /// `OPEN4_SHARE_ACCESS_*`.
    pub share_access: u32,
    /// `OPEN4_SHARE_DENY_*`.
    pub share_deny: u32,
    pub owner: StateOwner,
    /// Whether and how to create.
    pub openhow: OpenHow,
    /// By what right.
    pub claim: OpenClaim,
}

/// `openflag4` (RFC 8881 section 18.16).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum OpenHow {
    #[xdr(tag = 0)]
    NoCreate,
    /// The file may be made.
    #[xdr(tag = 1)]
    Create(CreateHow),
}

/// `createhow4` (RFC 8881 section 18.16).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum CreateHow {
    /// An existing file is opened.
    #[xdr(tag = 0)]
    Unchecked(Fattr),
    /// An existing file is an error.
    #[xdr(tag = 1)]
    Guarded(Fattr),
    /// An existing file is an error unless it was made with this verifier.
    #[xdr(tag = 2)]
    Exclusive(Verifier),
    /// The same, with attributes.
    #[xdr(tag = 3)]
    Exclusive41 {
        verf: Verifier,
        /// Attributes out of `suppattr_exclcreat`.
        attrs: Fattr,
    },
}

/// `open_claim4` (RFC 8881 section 18.16).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum OpenClaim {
    /// This name in the current directory.
    #[xdr(tag = 0)]
    Null(Bytes),
    /// The current file, open before the server restarted; the delegation type held then.
    #[xdr(tag = 1)]
    Previous(u32),
    /// This name, under a delegation.
    #[xdr(tag = 2)]
    DelegateCur { delegate_stateid: Stateid, file: Bytes },
    /// This name, under a delegation from before the client restarted.
    #[xdr(tag = 3)]
    DelegatePrev(Bytes),
    /// The current file.
    #[xdr(tag = 4)]
    Fh,
    /// The current file, under a delegation from before the client restarted.
    #[xdr(tag = 6)]
    DelegPrevFh,
    /// The current file, under a delegation.
    #[xdr(tag = 5)]
    DelegCurFh(Stateid),
}

/// OPEN_DOWNGRADE (RFC 8881 section 18.18).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OpenDowngradeArgs {
    pub open_stateid: Stateid,
    /// Ignored in NFSv4.1.
    pub seqid: u32,
    pub share_access: u32,
    pub share_deny: u32,
}

/// READ (RFC 8881 section 18.22).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadArgs {
    /// The open, lock or special stateid.
    pub stateid: Stateid,
    pub offset: u64,
    /// Bytes.
    pub count: u32,
}

/// READDIR (RFC 8881 section 18.23).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirArgs {
    /// Where to go on; 0 for the start.
    pub cookie: u64,
    /// From the reply that the cookie came in.
    pub cookieverf: Verifier,
    /// Hint: bytes of names and cookies.
    pub dircount: u32,
    /// Limit: bytes of the whole result.
    pub maxcount: u32,
    pub attr_request: Bitmap,
}

/// RENAME (RFC 8881 section 18.26): from the saved directory to the current one.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RenameArgs {
    pub oldname: Bytes,
    pub newname: Bytes,
}

/// SETATTR (RFC 8881 section 18.30).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetattrArgs {
    /// Needed to set the size.
    pub stateid: Stateid,
    pub attrs: Fattr,
}

/// WRITE (RFC 8881 section 18.32).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteArgs {
    /// The open, lock or special stateid.
    pub stateid: Stateid,
    pub offset: u64,
    pub stable: StableHow,
    pub data: Bytes,
}

/// `setxattr_option4` (RFC 8276 section 8.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SetxattrOption {
    #[xdr(tag = 0)]
    Either,
    #[xdr(tag = 1)]
    Create,
    #[xdr(tag = 2)]
    Replace,
}

/// SETXATTR (RFC 8276 section 8.4.2).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetxattrArgs {
    pub option: SetxattrOption,
    /// Name, without a namespace.
    pub key: Bytes,
    pub value: Bytes,
}

/// GET_DIR_DELEGATION (RFC 8881 section 18.39).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetDirDelegationArgs {
    /// If there is none now: the server is to say when there may be one.
    pub signal: bool,
    /// Changes that the client wants to be told (`NOTIFY4_*`), instead of losing the delegation.
    pub notifications: Bitmap,
    /// How late it may be told of an entry's attributes.
    pub child_attr_delay: NfsTime,
    /// How late it may be told of the directory's attributes.
    pub dir_attr_delay: NfsTime,
    /// Attributes of entries that it wants to be told.
    pub child_attributes: Bitmap,
    /// Attributes of the directory that it wants to be told.
    pub dir_attributes: Bitmap,
}

impl GetDirDelegationArgs {
    /// Asks with these `NOTIFY4_*`, and to be told of no attributes.
    pub fn new(notifications: Bitmap) -> GetDirDelegationArgs {
        GetDirDelegationArgs {
            signal: false,
            notifications,
            child_attr_delay: NfsTime::default(),
            dir_attr_delay: NfsTime::default(),
            child_attributes: Bitmap::default(),
            dir_attributes: Bitmap::default(),
        }
    }
}

/// LISTXATTRS (RFC 8276 section 8.4.3).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ListxattrsArgs {
    /// Where to go on; 0 for the start.
    pub cookie: u64,
    /// Limit: bytes of the whole result.
    pub maxcount: u32,
}

/// READ_PLUS (RFC 7862 section 15.10).
pub type ReadPlusArgs = ReadArgs;

macro_rules! arguments {
    (
        { $($(#[$doc:meta])* $op:ident = $value:literal: $variant:ident $(($args:ty))? $(-> $res:ty)?;)* }
        { $($other:tt)* }
    ) => {
        /// One operation of a COMPOUND with its arguments.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum ArgOp {
            $($(#[$doc])* $variant $(($args))?,)*
            /// An operation whose arguments this crate does not know; what follows it cannot be decoded.
            Other(OpNum),
            /// An operation whose arguments do not decode (the server answers BADXDR).
            Malformed(OpNum),
        }

        impl ArgOp {
            pub fn op(&self) -> OpNum {
                match self {
                    $(ArgOp::$variant { .. } => OpNum::$op,)*
                    ArgOp::Other(op) | ArgOp::Malformed(op) => *op,
                }
            }

            fn decode_args(op: OpNum, r: &mut Reader) -> Result<ArgOp, Error> {
                Ok(match op {
                    $(OpNum::$op => ArgOp::$variant $((<$args>::decode(r)?))?,)*
                    _ => ArgOp::Other(op),
                })
            }
        }

        impl Encode for ArgOp {
            fn encode(&self, out: &mut BytesMut) {
                self.op().0.encode(out);
                match self {
                    $($(ArgOp::$variant(args) => <$args as Encode>::encode(args, out),)?)*
                    _ => {}
                }
            }
        }
    };
}
super::op::operations!(arguments);

impl ArgOp {
    /// Takes an operation from the front of `r`; never fails once the number is there.
    /// Errors: [`Error::Short`] when not even the number is there.
    pub fn decode_lenient(r: &mut Reader) -> Result<ArgOp, Error> {
        let op = OpNum(r.u32()?);
        Ok(ArgOp::decode_args(op, r).unwrap_or(ArgOp::Malformed(op)))
    }

    /// Whether nothing behind this operation can be decoded.
    pub fn ends_decoding(&self) -> bool {
        matches!(self, ArgOp::Other(_) | ArgOp::Malformed(_))
    }
}

/// An owner as the types of this module want it.
pub fn owner(clientid: u64, name: &[u8]) -> StateOwner {
    StateOwner { clientid, owner: Opaque1024(Bytes::copy_from_slice(name)) }
}
