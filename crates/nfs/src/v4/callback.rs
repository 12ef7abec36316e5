//! Callbacks: CB_COMPOUND and the operations that this server sends (RFC 8881 section 20, RFC 7862 section 16).

use super::data::WriteResponse;
use super::types::{FileHandle, SessionId, Stateid};
use super::{Bitmap, Fattr, NfsStat, OpNum, limits};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};

/// The procedure that does nothing (RFC 8881 section 20.1).
pub const CB_PROC_NULL: u32 = 0;
/// The procedure that carries operations (RFC 8881 section 20.2).
pub const CB_PROC_COMPOUND: u32 = 1;
/// The RPC version of callback programs (RFC 8881 section 20).
pub const CB_VERSION: u32 = 1;

/// CB_GETATTR (RFC 8881 section 20.1).
pub const OP_CB_GETATTR: OpNum = OpNum(3);
/// CB_RECALL (RFC 8881 section 20.2).
pub const OP_CB_RECALL: OpNum = OpNum(4);
/// CB_RECALL_ANY (RFC 8881 section 20.6).
pub const OP_CB_RECALL_ANY: OpNum = OpNum(8);
/// CB_SEQUENCE (RFC 8881 section 20.9).
pub const OP_CB_SEQUENCE: OpNum = OpNum(11);
/// CB_OFFLOAD (RFC 7862 section 16.1).
pub const OP_CB_OFFLOAD: OpNum = OpNum(15);

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbCompoundArgs {
    /// Comes back in the reply.
    pub tag: Bytes,
    /// That of the session.
    pub minor_version: u32,
    /// NFSv4.0 only.
    pub callback_ident: u32,
    pub ops: Vec<CbOp>,
}

/// One operation of a CB_COMPOUND.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CbOp {
    /// Say these attributes of a delegated file.
    Getattr(CbGetattrArgs),
    /// Return this delegation.
    Recall(CbRecallArgs),
    /// Return some delegations, whichever.
    RecallAny(CbRecallAnyArgs),
    /// First in each, as SEQUENCE is.
    Sequence(CbSequenceArgs),
    /// A copy has ended.
    Offload(CbOffloadArgs),
}

/// Lists of referring calls in a CB_SEQUENCE, and calls in each, that are taken.
pub const REFERRING_MAX: u32 = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CbSequenceArgs {
    pub sessionid: SessionId,
    /// The slot's next number.
    pub sequenceid: u32,
    pub slotid: u32,
    /// The highest slot in use by the server.
    pub highest_slotid: u32,
    /// Keep the reply for replay.
    pub cachethis: bool,
    /// The calls whose replies the client must have had before this callback makes sense.
    pub referring: Vec<ReferringCalls>,
}

/// `referring_call_list4` (RFC 8881 section 20.9): calls of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferringCalls {
    pub sessionid: SessionId,
    pub calls: Vec<ReferringCall>,
}

/// `referring_call4` (RFC 8881 section 20.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReferringCall {
    pub sequenceid: u32,
    pub slotid: u32,
}

impl Encode for CbSequenceArgs {
    fn encode(&self, out: &mut BytesMut) {
        self.sessionid.encode(out);
        self.sequenceid.encode(out);
        self.slotid.encode(out);
        self.highest_slotid.encode(out);
        self.cachethis.encode(out);
        (self.referring.len() as u32).encode(out);
        for list in &self.referring {
            list.sessionid.encode(out);
            list.calls.encode(out);
        }
    }
}

impl Decode for CbSequenceArgs {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let mut args = CbSequenceArgs {
            sessionid: Decode::decode(r)?,
            sequenceid: r.u32()?,
            slotid: r.u32()?,
            highest_slotid: r.u32()?,
            cachethis: bool::decode(r)?,
            referring: Vec::new(),
        };
        for _ in 0..bounded(r.u32()?)? {
            let mut list = ReferringCalls { sessionid: Decode::decode(r)?, calls: Vec::new() };
            for _ in 0..bounded(r.u32()?)? {
                list.calls.push(ReferringCall::decode(r)?);
            }
            args.referring.push(list);
        }
        Ok(args)
    }
}

/// CB_GETATTR (RFC 8881 section 20.1).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbGetattrArgs {
    pub fh: FileHandle,
    /// The attributes asked for.
    pub wanted: Bitmap,
}

/// CB_RECALL (RFC 8881 section 20.2).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbRecallArgs {
    pub stateid: Stateid,
    /// The file is about to be truncated to nothing: what the client has not written yet it need not write.
    pub truncate: bool,
    pub fh: FileHandle,
}

/// Delegations for reading: `RCA4_TYPE_MASK_RDATA_DLG` (RFC 8881 section 20.6).
pub const RCA4_TYPE_MASK_RDATA_DLG: u32 = 0;
/// Delegations for writing: `RCA4_TYPE_MASK_WDATA_DLG`.
pub const RCA4_TYPE_MASK_WDATA_DLG: u32 = 1;
/// Delegations of directories: `RCA4_TYPE_MASK_DIR_DLG`.
pub const RCA4_TYPE_MASK_DIR_DLG: u32 = 2;

/// CB_RECALL_ANY (RFC 8881 section 20.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbRecallAnyArgs {
    /// How many of these kinds the client may keep.
    pub objects_to_keep: u32,
    /// The kinds: `RCA4_TYPE_MASK_*`.
    pub types: Bitmap,
}

/// A number of referring calls that is taken.
fn bounded(len: u32) -> Result<u32, Error> {
    match len {
        0..=REFERRING_MAX => Ok(len),
        _ => Err(Error::TooLong { len: len as usize, max: REFERRING_MAX as usize }),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CbOffloadArgs {
    /// The destination.
    pub fh: FileHandle,
    /// The copy.
    pub stateid: Stateid,
    /// How it ended.
    pub outcome: Result<WriteResponse, (NfsStat, u64)>,
}

impl Encode for CbOffloadArgs {
    fn encode(&self, out: &mut BytesMut) {
        self.fh.encode(out);
        self.stateid.encode(out);
        match &self.outcome {
            Ok(done) => {
                NfsStat::NFS4_OK.encode(out);
                done.encode(out);
            }
            Err((status, copied)) => {
                status.encode(out);
                copied.encode(out);
            }
        }
    }
}

impl Decode for CbOffloadArgs {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let (fh, stateid) = (Decode::decode(r)?, Decode::decode(r)?);
        let status = NfsStat::decode(r)?;
        let outcome = if status.is_ok() { Ok(Decode::decode(r)?) } else { Err((status, r.u64()?)) };
        Ok(CbOffloadArgs { fh, stateid, outcome })
    }
}

impl CbOp {
    pub fn op(&self) -> OpNum {
        match self {
            CbOp::Getattr(_) => OP_CB_GETATTR,
            CbOp::Recall(_) => OP_CB_RECALL,
            CbOp::RecallAny(_) => OP_CB_RECALL_ANY,
            CbOp::Sequence(_) => OP_CB_SEQUENCE,
            CbOp::Offload(_) => OP_CB_OFFLOAD,
        }
    }
}

impl Encode for CbOp {
    fn encode(&self, out: &mut BytesMut) {
        self.op().0.encode(out);
        match self {
            CbOp::Getattr(a) => a.encode(out),
            CbOp::Recall(a) => a.encode(out),
            CbOp::RecallAny(a) => a.encode(out),
            CbOp::Sequence(a) => a.encode(out),
            CbOp::Offload(a) => a.encode(out),
        }
    }
}

impl Decode for CbOp {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        match OpNum(r.u32()?) {
            OP_CB_GETATTR => Ok(CbOp::Getattr(Decode::decode(r)?)),
            OP_CB_RECALL => Ok(CbOp::Recall(Decode::decode(r)?)),
            OP_CB_RECALL_ANY => Ok(CbOp::RecallAny(Decode::decode(r)?)),
            OP_CB_SEQUENCE => Ok(CbOp::Sequence(Decode::decode(r)?)),
            OP_CB_OFFLOAD => Ok(CbOp::Offload(Decode::decode(r)?)),
            OpNum(value) => Err(Error::BadTag { name: "nfs_cb_opnum4", value }),
        }
    }
}

/// The reply to a CB_COMPOUND.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbCompoundRes {
    /// The status of the last operation executed.
    pub status: NfsStat,
    /// From the request.
    pub tag: Bytes,
    /// One for each operation executed.
    #[xdr(max = limits::CB_RESULTS_MAX)]
    pub results: Vec<CbRes>,
}

/// One operation's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CbRes {
    pub op: OpNum,
    pub status: NfsStat,
    /// What CB_SEQUENCE returns when it succeeds.
    pub sequence: Option<CbSequenceRes>,
    /// What CB_GETATTR returns when it succeeds.
    pub attrs: Option<Fattr>,
}

/// CB_SEQUENCE, when it succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbSequenceRes {
    pub sessionid: SessionId,
    /// As in the request.
    pub sequenceid: u32,
    pub slotid: u32,
    /// The highest slot that the client takes.
    pub highest_slotid: u32,
    /// The highest slot that the client would like.
    pub target_highest_slotid: u32,
}

impl Encode for CbRes {
    fn encode(&self, out: &mut BytesMut) {
        self.op.0.encode(out);
        self.status.encode(out);
        if let Some(sequence) = &self.sequence {
            sequence.encode(out);
        }
        if let Some(attrs) = &self.attrs {
            attrs.encode(out);
        }
    }
}

impl Decode for CbRes {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let (op, status) = (OpNum(r.u32()?), NfsStat::decode(r)?);
        let has = |wanted| op == wanted && status.is_ok();
        let sequence = if has(OP_CB_SEQUENCE) { Some(Decode::decode(r)?) } else { None };
        let attrs = if has(OP_CB_GETATTR) { Some(Decode::decode(r)?) } else { None };
        Ok(CbRes { op, status, sequence, attrs })
    }
}

#[cfg(test)]
mod tests {
    use super::super::StableHow;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rfc8881_20_and_rfc7862_16_round_trip() {
        let sequence = CbSequenceArgs {
            sessionid: [1; 16],
            sequenceid: 2,
            slotid: 3,
            highest_slotid: 4,
            cachethis: false,
            referring: vec![ReferringCalls {
                sessionid: [8; 16],
                calls: vec![ReferringCall { sequenceid: 9, slotid: 10 }],
            }],
        };
        let response =
            WriteResponse { callback_id: None, count: 5, committed: StableHow::FileSync, writeverf: [6; 8] };
        let (fh, stateid) = (FileHandle(Bytes::from_static(b"fh")), Stateid { seqid: 1, other: [7; 12] });
        for outcome in [Ok(response), Err((NfsStat::NFS4ERR_NOSPC, 8))] {
            let offload = CbOffloadArgs { fh: fh.clone(), stateid, outcome };
            let ops = vec![CbOp::Sequence(sequence.clone()), CbOp::Offload(offload)];
            let args = CbCompoundArgs { tag: Bytes::new(), minor_version: 2, callback_ident: 0, ops };
            assert_eq!(CbCompoundArgs::from_bytes(args.to_bytes()), Ok(args));
        }
        let wanted = Bitmap::of(&[3, 4, 84, 85]);
        let getattr = CbOp::Getattr(CbGetattrArgs { fh: fh.clone(), wanted });
        assert_eq!(CbOp::from_bytes(getattr.to_bytes()), Ok(getattr));
        let recall = CbOp::Recall(CbRecallArgs { stateid, truncate: true, fh });
        assert_eq!(CbOp::from_bytes(recall.to_bytes()), Ok(recall));
        let types = Bitmap::of(&[RCA4_TYPE_MASK_RDATA_DLG, RCA4_TYPE_MASK_DIR_DLG]);
        let any = CbOp::RecallAny(CbRecallAnyArgs { objects_to_keep: 6, types }).to_bytes();
        // The operation, what is kept, one word of a bitmap.
        assert_eq!(&any[..], [0, 0, 0, 8, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 5]);
        assert_eq!(CbOp::from_bytes(any), Ok(CbOp::RecallAny(CbRecallAnyArgs { objects_to_keep: 6, types })));
        let sequence = CbSequenceRes {
            sessionid: [1; 16],
            sequenceid: 2,
            slotid: 3,
            highest_slotid: 4,
            target_highest_slotid: 5,
        };
        let attrs = Fattr { mask: wanted, values: Bytes::from_static(b"values") };
        let results = vec![
            CbRes { op: OP_CB_SEQUENCE, status: NfsStat::NFS4_OK, sequence: Some(sequence), attrs: None },
            CbRes { op: OP_CB_GETATTR, status: NfsStat::NFS4_OK, sequence: None, attrs: Some(attrs) },
            CbRes { op: OP_CB_OFFLOAD, status: NfsStat::NFS4ERR_DELAY, sequence: None, attrs: None },
        ];
        let res = CbCompoundRes { status: NfsStat::NFS4ERR_DELAY, tag: Bytes::new(), results };
        assert_eq!(CbCompoundRes::from_bytes(res.to_bytes()), Ok(res));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_reply_or_an_error(b in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = CbCompoundRes::from_bytes(Bytes::from(b.clone()));
            let _ = CbCompoundArgs::from_bytes(Bytes::from(b));
        }
    }
}
