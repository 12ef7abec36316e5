//! The back channel: calls from the server to this client (RFC 8881 sections 2.10.3.1 and 20).
//!
//! Three callbacks are executed: CB_OFFLOAD, the end of a copy (RFC 7862 section 16.1), and CB_RECALL and CB_RECALL_ANY, if somebody listens
//! ([`crate::Session::recalls`]). The channel has one slot. A retried callback gets the reply of the first time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::callback::{
    CB_PROC_COMPOUND, CB_PROC_NULL, CB_VERSION, CbCompoundRes, CbOp, CbRes, CbSequenceArgs, CbSequenceRes,
    OP_CB_GETATTR, OP_CB_OFFLOAD, OP_CB_RECALL, OP_CB_RECALL_ANY, OP_CB_SEQUENCE, RCA4_TYPE_MASK_DIR_DLG,
};
use landfast_nfs::v4::data::WriteResponse;
use landfast_nfs::v4::{FileHandle, NfsStat, OpNum, SessionId, Stateid};
use landfast_rpc::Service;
use landfast_rpc::conn::{CallHeader, ConnInfo, Program, Response};
use landfast_xdr::{Decode, Encode, Error, Reader};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::limits::{COPY_ENDS_MAX, RECALLS_MAX};

/// The program number of the callbacks.
pub(super) const CALLBACKS: u32 = 0x4000_0000;

const PROGRAMS: &[Program] = &[Program { number: CALLBACKS, low: CB_VERSION, high: CB_VERSION }];

/// How a copy ended: what was written, or the error and the bytes before it.
pub(crate) type CopyEnd = Result<WriteResponse, (NfsStat, u64)>;

/// The server wants a delegation back (CB_RECALL, RFC 8881 section 20.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall {
    pub stateid: Stateid,
    /// The file or directory that was delegated.
    pub fh: FileHandle,
}

/// What a server asks of the holder of delegations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// This one back.
    One(Recall),
    /// Directories' delegations of the client's choice, so that it keeps no more than these (CB_RECALL_ANY, RFC 8881 section 20.6).
    Any { keep: u32 },
}

/// The callbacks that a server has made.
#[derive(Default)]
pub(super) struct Callbacks {
    state: Mutex<State>,
    came: Notify,
}

#[derive(Default)]
struct State {
    session: SessionId,
    /// The slot's last sequence number and its reply.
    last: (u32, Bytes),
    /// Ends that nobody has asked for yet. When there are too many, the oldest are dropped.
    ends: VecDeque<(FileHandle, Stateid, CopyEnd)>,
    /// Where recalls go. `None`: this client has no delegations.
    recalls: Option<mpsc::Sender<Asked>>,
}

impl Callbacks {
    /// Recalls from now on. Those of an earlier call end.
    pub(super) fn recalls(&self) -> mpsc::Receiver<Asked> {
        let (send, recalls) = mpsc::channel(RECALLS_MAX);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).recalls = Some(send);
        recalls
    }

    /// Waits for the end of a copy to `file`, for at most `patience`.
    pub(super) async fn end_of(
        &self,
        file: &FileHandle,
        copy: &Stateid,
        patience: Duration,
    ) -> Option<CopyEnd> {
        let until = Instant::now() + patience;
        loop {
            let came = self.came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                let is = |(fh, id, _): &(FileHandle, Stateid, CopyEnd)| fh == file && id.other == copy.other;
                if let Some(at) = state.ends.iter().position(is) {
                    return state.ends.remove(at).map(|(_, _, end)| end);
                }
            }
            timeout_at(until, came).await.ok()?;
        }
    }

    /// Executes a CB_COMPOUND; `None`: it cannot be decoded.
    fn execute(&self, body: Bytes) -> Option<Bytes> {
        let mut r = Reader::new(body);
        let (tag, _minor, _ident) = (Bytes::decode(&mut r).ok()?, r.u32().ok()?, r.u32().ok()?);
        let count = r.u32().ok()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut results: Vec<CbRes> = Vec::new();
        let mut status = NfsStat::NFS4_OK;
        let mut number = 0;
        for at in 0..count {
            let result = match (CbOp::decode(&mut r), at) {
                (Ok(CbOp::Sequence(args)), 0) => {
                    if args.sessionid == state.session && args.sequenceid == state.last.0 && args.slotid == 0
                    {
                        return Some(state.last.1.clone());
                    }
                    number = args.sequenceid;
                    sequence(&mut state, &args)
                }
                (Ok(CbOp::Sequence(_)), _) => refused(OP_CB_SEQUENCE, NfsStat::NFS4ERR_SEQUENCE_POS),
                // There are no delegations of files.
                (Ok(CbOp::Getattr(_)), 0) => refused(OP_CB_GETATTR, NfsStat::NFS4ERR_OP_NOT_IN_SESSION),
                (Ok(CbOp::Getattr(_)), _) => refused(OP_CB_GETATTR, NfsStat::NFS4ERR_BADHANDLE),
                (Ok(CbOp::Recall(_)), 0) => refused(OP_CB_RECALL, NfsStat::NFS4ERR_OP_NOT_IN_SESSION),
                (Ok(CbOp::Recall(args)), _) => {
                    let recall = Recall { stateid: args.stateid, fh: args.fh };
                    refused(OP_CB_RECALL, passed_on(state.recalls.as_ref(), Asked::One(recall)))
                }
                (Ok(CbOp::RecallAny(_)), 0) => refused(OP_CB_RECALL_ANY, NfsStat::NFS4ERR_OP_NOT_IN_SESSION),
                (Ok(CbOp::RecallAny(args)), _) => {
                    if args.types.has(RCA4_TYPE_MASK_DIR_DLG) {
                        // If it cannot be passed on, the server asks again or takes what it needs.
                        let _ = passed_on(state.recalls.as_ref(), Asked::Any { keep: args.objects_to_keep });
                    }
                    refused(OP_CB_RECALL_ANY, NfsStat::NFS4_OK)
                }
                (Ok(CbOp::Offload(_)), 0) => refused(OP_CB_OFFLOAD, NfsStat::NFS4ERR_OP_NOT_IN_SESSION),
                (Ok(CbOp::Offload(args)), _) => {
                    if state.ends.len() >= COPY_ENDS_MAX {
                        state.ends.pop_front();
                    }
                    state.ends.push_back((args.fh, args.stateid, args.outcome));
                    self.came.notify_waiters();
                    refused(OP_CB_OFFLOAD, NfsStat::NFS4_OK)
                }
                (Err(Error::BadTag { value, .. }), _) => refused(OpNum(value), NfsStat::NFS4ERR_NOTSUPP),
                (Err(_), _) => return None,
            };
            status = result.status;
            results.push(result);
            if !status.is_ok() {
                break;
            }
        }
        let counted = results.first().is_some_and(|first| first.sequence.is_some());
        let reply = CbCompoundRes { status, tag, results }.to_bytes();
        if counted {
            state.last = (number, reply.clone());
        }
        Some(reply)
    }
}

/// Passes a recall on. Whether the delegation is there is for the listener: the recall may overtake the reply that gives it.
fn passed_on(recalls: Option<&mpsc::Sender<Asked>>, recall: Asked) -> NfsStat {
    match recalls.map(|to| to.try_send(recall)) {
        Some(Ok(())) => NfsStat::NFS4_OK,
        Some(Err(mpsc::error::TrySendError::Full(_))) => NfsStat::NFS4ERR_DELAY,
        Some(Err(mpsc::error::TrySendError::Closed(_))) | None => NfsStat::NFS4ERR_BAD_STATEID,
    }
}

/// A result without a body.
fn refused(op: OpNum, status: NfsStat) -> CbRes {
    CbRes { op, status, sequence: None, attrs: None }
}

/// CB_SEQUENCE with the slot's next number.
fn sequence(state: &mut State, args: &CbSequenceArgs) -> CbRes {
    if args.slotid != 0 {
        return refused(OP_CB_SEQUENCE, NfsStat::NFS4ERR_BADSLOT);
    }
    if args.sessionid != state.session {
        *state = State { session: args.sessionid, recalls: state.recalls.take(), ..State::default() };
    }
    if args.sequenceid != state.last.0.wrapping_add(1) {
        return refused(OP_CB_SEQUENCE, NfsStat::NFS4ERR_SEQ_MISORDERED);
    }
    let CbSequenceArgs { sessionid, sequenceid, slotid, .. } = *args;
    let sequence =
        CbSequenceRes { sessionid, sequenceid, slotid, highest_slotid: 0, target_highest_slotid: 0 };
    CbRes { op: OP_CB_SEQUENCE, status: NfsStat::NFS4_OK, sequence: Some(sequence), attrs: None }
}

impl Service for Callbacks {
    fn programs(&self) -> &[Program] {
        PROGRAMS
    }

    async fn call(&self, _conn: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        match call.proc {
            CB_PROC_NULL => Response::Success(BytesMut::new().freeze()),
            CB_PROC_COMPOUND => self.execute(body).map_or(Response::GarbageArgs, Response::Success),
            _ => Response::ProcUnavail,
        }
    }
}

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::Bitmap;
    use landfast_nfs::v4::StableHow;
    use landfast_nfs::v4::callback::{CbCompoundArgs, CbOffloadArgs, CbRecallAnyArgs, CbRecallArgs};

    use super::*;

    fn file() -> FileHandle {
        FileHandle(Bytes::from_static(b"f"))
    }

    fn copy(n: u8) -> Stateid {
        Stateid { seqid: 1, other: [n; 12] }
    }

    fn call(session: u8, sequenceid: u32, slotid: u32, ended: u8) -> Bytes {
        let sequence = CbSequenceArgs {
            sessionid: [session; 16],
            sequenceid,
            slotid,
            highest_slotid: slotid,
            cachethis: false,
            referring: Vec::new(),
        };
        let done = WriteResponse {
            callback_id: None,
            count: ended.into(),
            committed: StableHow::FileSync,
            writeverf: [0; 8],
        };
        let offload = CbOffloadArgs { fh: file(), stateid: copy(ended), outcome: Ok(done) };
        let ops = vec![CbOp::Sequence(sequence), CbOp::Offload(offload)];
        CbCompoundArgs { tag: Bytes::from_static(b"t"), minor_version: 2, callback_ident: 0, ops }.to_bytes()
    }

    fn answer(callbacks: &Callbacks, body: Bytes) -> CbCompoundRes {
        CbCompoundRes::from_bytes(callbacks.execute(body).expect("an answer")).expect("a reply")
    }

    #[tokio::test]
    async fn rfc8881_20_9_a_callback_that_comes_again_is_executed_once() {
        let callbacks = Callbacks::default();
        let first = answer(&callbacks, call(1, 1, 0, 7));
        assert_eq!((first.status, first.results.len(), &first.tag[..]), (NfsStat::NFS4_OK, 2, &b"t"[..]));
        assert_eq!(answer(&callbacks, call(1, 1, 0, 7)), first);
        let count = |end: Option<CopyEnd>| end.map(|end| end.expect("a copy").count);
        assert_eq!(count(callbacks.end_of(&file(), &copy(7), Duration::ZERO).await), Some(7));
        assert_eq!(count(callbacks.end_of(&file(), &copy(7), Duration::ZERO).await), None);
        for (call, status) in [
            (call(1, 3, 0, 8), NfsStat::NFS4ERR_SEQ_MISORDERED),
            (call(1, 2, 1, 8), NfsStat::NFS4ERR_BADSLOT),
            // Another session begins anew.
            (call(2, 2, 0, 8), NfsStat::NFS4ERR_SEQ_MISORDERED),
            (call(2, 1, 0, 9), NfsStat::NFS4_OK),
        ] {
            assert_eq!(answer(&callbacks, call).status, status);
        }
        assert_eq!(count(callbacks.end_of(&file(), &copy(8), Duration::ZERO).await), None);
        assert_eq!(count(callbacks.end_of(&file(), &copy(9), Duration::ZERO).await), Some(9));
    }

    #[tokio::test]
    async fn ends_that_nobody_asks_for_are_forgotten() {
        let callbacks = Callbacks::default();
        for n in 1..=COPY_ENDS_MAX as u32 + 1 {
            let ended = if n == 1 { 1 } else { 2 };
            assert_eq!(answer(&callbacks, call(1, n, 0, ended)).status, NfsStat::NFS4_OK);
        }
        assert!(callbacks.end_of(&file(), &copy(1), Duration::ZERO).await.is_none());
        assert!(callbacks.end_of(&file(), &copy(2), Duration::ZERO).await.is_some());
    }

    #[tokio::test]
    async fn rfc8881_20_2_a_recall_goes_to_whoever_listens_and_is_refused_if_nobody_does() {
        let callbacks = Callbacks::default();
        let recall = |sequenceid| {
            let sequence = CbSequenceArgs {
                sessionid: [1; 16],
                sequenceid,
                slotid: 0,
                highest_slotid: 0,
                cachethis: false,
                referring: Vec::new(),
            };
            let recall = CbRecallArgs { stateid: copy(3), truncate: false, fh: file() };
            let ops = vec![CbOp::Sequence(sequence), CbOp::Recall(recall)];
            CbCompoundArgs { tag: Bytes::new(), minor_version: 1, callback_ident: 0, ops }.to_bytes()
        };
        assert_eq!(answer(&callbacks, recall(1)).status, NfsStat::NFS4ERR_BAD_STATEID);
        let mut recalls = callbacks.recalls();
        assert_eq!(answer(&callbacks, recall(2)).status, NfsStat::NFS4_OK);
        assert_eq!(recalls.recv().await, Some(Asked::One(Recall { stateid: copy(3), fh: file() })));
        // Another session has the same listener.
        let mut other = BytesMut::from(&recall(1)[..]);
        other[4 + 4 + 4 + 4 + 4..][..16].fill(2);
        assert_eq!(answer(&callbacks, other.freeze()).status, NfsStat::NFS4_OK);
        assert!(recalls.recv().await.is_some());
        drop(recalls);
        let mut last = BytesMut::from(&recall(2)[..]);
        last[4 + 4 + 4 + 4 + 4..][..16].fill(2);
        assert_eq!(answer(&callbacks, last.freeze()).status, NfsStat::NFS4ERR_BAD_STATEID);
    }

    #[tokio::test]
    async fn rfc8881_20_6_a_request_for_some_delegations_of_directories_is_passed_on() {
        let callbacks = Callbacks::default();
        let any = |number: u32, kind: u32| {
            let sequence = CbSequenceArgs {
                sessionid: [1; 16],
                sequenceid: number,
                slotid: 0,
                highest_slotid: 0,
                cachethis: false,
                referring: Vec::new(),
            };
            let any = CbRecallAnyArgs { objects_to_keep: 5, types: Bitmap::of(&[kind]) };
            let ops = vec![CbOp::Sequence(sequence), CbOp::RecallAny(any)];
            CbCompoundArgs { tag: Bytes::new(), minor_version: 1, callback_ident: 0, ops }.to_bytes()
        };
        assert_eq!(answer(&callbacks, any(1, 2)).status, NfsStat::NFS4_OK, "nobody listens");
        let mut asked = callbacks.recalls();
        // Of files it has none.
        assert_eq!(answer(&callbacks, any(2, 0)).status, NfsStat::NFS4_OK);
        assert_eq!(answer(&callbacks, any(3, 2)).status, NfsStat::NFS4_OK);
        assert_eq!(asked.recv().await, Some(Asked::Any { keep: 5 }));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let callbacks = Callbacks::default();
        let mut body = BytesMut::from(&call(1, 1, 0, 7)[..]);
        // CB_LAYOUTRECALL in place of CB_OFFLOAD; a reader has come to it behind the header, CB_SEQUENCE and its number.
        let at = 8 + 4 + 4 + 4 + 4 + 16 + 5 * 4;
        assert_eq!(body[at..at + 4], OP_CB_OFFLOAD.0.to_be_bytes());
        body[at..at + 4].copy_from_slice(&5u32.to_be_bytes());
        let res = answer(&callbacks, body.freeze());
        assert_eq!((res.status, res.results[1].op), (NfsStat::NFS4ERR_NOTSUPP, OpNum(5)));
        assert!(callbacks.execute(Bytes::from_static(b"no call")).is_none());
    }
}
