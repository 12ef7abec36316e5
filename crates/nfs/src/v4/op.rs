//! The operations of NFSv4 (RFC 7530, RFC 8881 section 18, RFC 7862 section 15, RFC 8276 section 8.4): one table of their
//! numbers, arguments and results.
//!
//! Three macros read it: `numbers` below, `arguments` in `args.rs`, `results` in `res.rs`. Each generates its part.

use std::fmt;

/// Calls `$generate!` with the table. A row of the first block is
/// `NUMBER = value: Variant(arguments) -> results`. `Variant` is the name in `ArgOp`, and in `ResBody` if there are results.
///
/// - An operation without arguments or without results omits them.
/// - Results are those of success. Results that some operations have with an error are in `res.rs`.
/// - The second block has the operations of which only the number is known.
macro_rules! operations {
    ($generate:ident) => {
        $generate! {
            {
                /// Which kinds of access would be allowed (`ACCESS4_*`).
                ACCESS = 3: Access(u32) -> AccessRes;
                CLOSE = 4: Close(CloseArgs) -> Stateid;
                /// Make unstable data stable.
                COMMIT = 5: Commit(CommitArgs) -> Verifier;
                /// Make anything but a regular file.
                CREATE = 6: Create(CreateArgs) -> CreateRes;
                DELEGRETURN = 8: DelegReturn(Stateid);
                /// Read these attributes.
                GETATTR = 9: Getattr(Bitmap) -> Fattr;
                GETFH = 10: Getfh -> FileHandle;
                /// Link the saved file under this name into the current directory.
                LINK = 11: Link(Bytes) -> ChangeInfo;
                LOCK = 12: Lock(LockArgs) -> Stateid;
                LOCKT = 13: Lockt(LocktArgs);
                LOCKU = 14: Locku(LockuArgs) -> Stateid;
                /// Go to this name.
                LOOKUP = 15: Lookup(Bytes);
                LOOKUPP = 16: Lookupp;
                /// Go on only if these attributes differ.
                NVERIFY = 17: Nverify(Fattr);
                /// Open, and perhaps make, a regular file.
                OPEN = 18: Open(OpenArgs) -> OpenRes;
                /// Confirm an open owner's numbers (NFSv4.0).
                OPEN_CONFIRM = 20: OpenConfirm(OpenConfirmArgs) -> Stateid;
                /// Give up part of an open.
                OPEN_DOWNGRADE = 21: OpenDowngrade(OpenDowngradeArgs) -> Stateid;
                /// Go to this filehandle.
                PUTFH = 22: Putfh(FileHandle);
                PUTPUBFH = 23: Putpubfh;
                PUTROOTFH = 24: Putrootfh;
                READ = 25: Read(ReadArgs) -> ReadRes;
                READDIR = 26: Readdir(ReaddirArgs) -> ReaddirRes;
                READLINK = 27: Readlink -> Bytes;
                REMOVE = 28: Remove(Bytes) -> ChangeInfo;
                RENAME = 29: Rename(RenameArgs) -> RenameRes;
                /// Renew the lease of a client ID (NFSv4.0).
                RENEW = 30: Renew(u64);
                RESTOREFH = 31: Restorefh;
                SAVEFH = 32: Savefh;
                /// Which security flavours this name wants.
                SECINFO = 33: Secinfo(Bytes) -> Vec<SecInfo>;
                SETATTR = 34: Setattr(SetattrArgs) -> Bitmap;
                SETCLIENTID = 35: Setclientid(SetclientidArgs) -> SetclientidRes;
                /// Make use of what SETCLIENTID gave (NFSv4.0).
                SETCLIENTID_CONFIRM = 36: SetclientidConfirm(SetclientidConfirmArgs);
                /// Go on only if these attributes are the same.
                VERIFY = 37: Verify(Fattr);
                WRITE = 38: Write(WriteArgs) -> WriteRes;
                /// Forget a lock owner (NFSv4.0).
                RELEASE_LOCKOWNER = 39: ReleaseLockowner(StateOwner);
                /// Change the back channel.
                BACKCHANNEL_CTL = 40: BackchannelCtl(BackchannelCtlArgs);
                /// Add this connection to a session.
                BIND_CONN_TO_SESSION = 41: BindConnToSession(BindConnToSessionArgs) -> BindConnToSessionRes;
                EXCHANGE_ID = 42: ExchangeId(ExchangeIdArgs) -> Box<ExchangeIdRes>;
                CREATE_SESSION = 43: CreateSession(CreateSessionArgs) -> Box<CreateSessionRes>;
                DESTROY_SESSION = 44: DestroySession(SessionId);
                FREE_STATEID = 45: FreeStateid(Stateid);
                /// Be told before others change the current directory's names.
                GET_DIR_DELEGATION = 46: GetDirDelegation(GetDirDelegationArgs) -> GetDirDelegationRes;
                /// Which security flavours the current object wants (`SECINFO_STYLE4_*`).
                SECINFO_NO_NAME = 52: SecinfoNoName(u32);
                /// First in almost every COMPOUND.
                SEQUENCE = 53: Sequence(SequenceArgs) -> SequenceRes;
                /// Are these stateids valid?
                TEST_STATEID = 55: TestStateid(Vec<Stateid>) -> Vec<NfsStat>;
                DESTROY_CLIENTID = 57: DestroyClientid(u64);
                /// The client has reclaimed all; the boolean is `rca_one_fs`.
                RECLAIM_COMPLETE = 58: ReclaimComplete(bool);
                /// Reserve space.
                ALLOCATE = 59: Allocate(RangeArgs);
                COPY = 60: Copy(CopyArgs) -> CopyRes;
                /// Give space back.
                DEALLOCATE = 62: Deallocate(RangeArgs);
                /// Say how the file will be used.
                IO_ADVISE = 63: IoAdvise(IoAdviseArgs) -> Bitmap;
                OFFLOAD_CANCEL = 66: OffloadCancel(Stateid);
                /// How far is this copy?
                OFFLOAD_STATUS = 67: OffloadStatus(Stateid) -> OffloadStatusRes;
                /// Read data and holes.
                READ_PLUS = 68: ReadPlus(ReadPlusArgs) -> ReadPlusRes;
                SEEK = 69: Seek(SeekArgs) -> SeekRes;
                /// Share the saved file's blocks.
                CLONE = 71: Clone(CloneArgs);
                /// Read the extended attribute of this name.
                GETXATTR = 72: Getxattr(Bytes) -> Bytes;
                SETXATTR = 73: Setxattr(SetxattrArgs) -> ChangeInfo;
                LISTXATTRS = 74: Listxattrs(ListxattrsArgs) -> ListxattrsRes;
                /// Remove the extended attribute of this name.
                REMOVEXATTR = 75: Removexattr(Bytes) -> ChangeInfo;
            }
            {
                DELEGPURGE = 7;
                OPENATTR = 19;
                GETDEVICEINFO = 47;
                GETDEVICELIST = 48;
                LAYOUTCOMMIT = 49;
                LAYOUTGET = 50;
                LAYOUTRETURN = 51;
                SET_SSV = 54;
                WANT_DELEGATION = 56;
                COPY_NOTIFY = 61;
                LAYOUTERROR = 64;
                LAYOUTSTATS = 65;
                WRITE_SAME = 70;
                ILLEGAL = 10044;
            }
        }
    };
}
pub(super) use operations;

/// The number of an operation in a COMPOUND (`nfs_opnum4`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpNum(pub u32);

macro_rules! numbers {
    (
        { $($(#[$doc:meta])* $name:ident = $value:literal: $variant:ident $(($args:ty))? $(-> $res:ty)?;)* }
        { $($other:ident = $number:literal;)* }
    ) => {
        impl OpNum {
            $(pub const $name: OpNum = OpNum($value);)*
            $(pub const $other: OpNum = OpNum($number);)*

            /// The RFC's name without `OP_`, or `None` for a number that no RFC here defines.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    $($number => Some(stringify!($other)),)*
                    _ => None,
                }
            }
        }
    };
}
operations!(numbers);

impl fmt::Display for OpNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "operation {}", self.0),
        }
    }
}

impl fmt::Debug for OpNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
