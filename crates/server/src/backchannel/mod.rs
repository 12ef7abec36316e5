//! Callbacks to clients, on the back channels of their sessions (RFC 8881 sections 2.10.3.1 and 20).
//!
//! [`crate::state::sessions`] has the slots and sequence numbers; this module handles connections and time. A callback
//! takes a slot of the session and goes, with CB_SEQUENCE in front, to one of the connections bound to its back
//! channel. If no answer comes, it goes to another. Each wait is bounded. A connection on which nothing comes any more is bound no longer, so that the client
//! is told to bind another.

pub(crate) mod conns;
mod getattr;
pub(crate) mod recall;

use crate::limits;
use crate::shared::Shared;
use crate::state::delegations::GivenTo;
use crate::state::sessions::{CallbackEnd, NoCallback};
use bytes::Bytes;
use landfast_nfs::v4::callback::{
    CB_PROC_COMPOUND, CB_VERSION, CbCompoundArgs, CbCompoundRes, CbOp, CbSequenceArgs, ReferringCall,
    ReferringCalls,
};
use landfast_nfs::v4::{Fattr, NfsStat, SessionId};
use landfast_rpc::CallError;
use landfast_rpc::conn::Target;
use landfast_xdr::{Decode, Encode};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Why a callback has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    /// No connection, no free slot, or no answer in time: it may have been executed, and may be tried again.
    Unreachable,
    /// The session is gone, or its back channel cannot be used any more.
    Gone,
}

/// Asks the client to execute one operation, and returns the operation's status. The client waits until it has the replies to the
/// `referring` calls.
pub(crate) async fn call(
    sh: &Shared,
    client: u64,
    session: SessionId,
    minor: u32,
    referring: &[ReferringCalls],
    op: CbOp,
) -> Result<NfsStat, Error> {
    let patience = Duration::from_millis(limits::CALLBACK_PATIENCE_MS);
    ask(sh, client, session, minor, referring, op, patience).await.map(|done| done.status)
}

/// What a client has executed.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    status: NfsStat,
    /// What CB_GETATTR returned.
    attrs: Option<Fattr>,
}

/// [`call`], with what the operation returns; it waits so long for an answer on each connection.
async fn ask(
    sh: &Shared,
    client: u64,
    wanted: SessionId,
    minor: u32,
    referring: &[ReferringCalls],
    op: CbOp,
    patience: Duration,
) -> Result<Done, Error> {
    let until = Instant::now() + Duration::from_millis(limits::CALLBACK_SLOT_WAIT_MS);
    let (session, mut take) = loop {
        let mut freed = std::pin::pin!(sh.callback_conns.freed.notified());
        freed.as_mut().enable();
        {
            let mut st = sh.state();
            // Each time anew: the client may have bound a connection to another session.
            let session = st.sessions.to_call_back(client, &wanted).ok_or(Error::Gone)?;
            match st.sessions.get_mut(&session).ok_or(Error::Gone)?.callback_begin() {
                Ok(take) => break (session, take),
                Err(NoCallback::Never) => return Err(Error::Gone),
                Err(NoCallback::NotNow) => {}
            }
        }
        timeout_at(until, freed).await.map_err(|_| Error::Unreachable)?;
    };
    // Given back as it was when nothing is sent.
    let unsent = CallbackEnd::NotExecuted(take.sequence);
    let mut held = HeldSlot { sh, session, slot: take.slot, end: unsent };
    if !session_is_logged(sh, session).await {
        return Err(Error::Unreachable);
    }
    held.end = CallbackEnd::Unanswered(take.sequence);
    let mut sent = false;
    let mut conns = sh.callback_conns.open_ones(&take.conns).into_iter();
    let mut next = conns.next();
    while let Some(conn) = &next {
        if conn.is_closed() {
            next = conns.next();
            continue;
        }
        let sequence = CbSequenceArgs {
            sessionid: session,
            sequenceid: take.sequence,
            slotid: take.slot,
            highest_slotid: take.highest,
            // Clients refuse to keep replies (RFC 8881 section 20.9 lets them).
            cachethis: false,
            referring: referring.to_vec(),
        };
        let args = CbCompoundArgs {
            tag: Bytes::new(),
            minor_version: minor,
            callback_ident: 0,
            ops: vec![CbOp::Sequence(sequence), op.clone()],
        };
        let to = Target { prog: take.program, vers: CB_VERSION, proc: CB_PROC_COMPOUND };
        let heard = conn.active_ms();
        match conn.call(to, &take.cred, vec![args.to_bytes()], patience).await {
            Ok(reply) => match verdict(reply, take.unsure) {
                Verdict::Done(done) => {
                    held.end = CallbackEnd::Executed(take.sequence);
                    return Ok(done);
                }
                // An earlier callback on this slot, whose reply was lost, had been executed after all.
                Verdict::EarlierOne => {
                    take.sequence = take.sequence.wrapping_add(1);
                    take.unsure = false;
                    held.end = CallbackEnd::Unanswered(take.sequence);
                }
                Verdict::Refused => {
                    held.end = CallbackEnd::Broken;
                    return Err(Error::Gone);
                }
                // On another connection it may be under way.
                Verdict::Later => {
                    held.end = not_executed(sent, take.sequence);
                    return Err(Error::Unreachable);
                }
            },
            Err(e @ (CallError::Closed(_) | CallError::Timeout(_))) => {
                sent = true;
                let silent = matches!(e, CallError::Timeout(_)) && conn.active_ms() == heard;
                if silent && patience >= Duration::from_millis(limits::CALLBACK_PATIENCE_MS) {
                    tracing::debug!(client, "nothing comes on a connection: it serves no back channel");
                    sh.state().sessions.disconnected(conn.id());
                }
                next = conns.next();
            }
            // The client's RPC layer would not have it: another connection will not help.
            Err(e) => {
                tracing::debug!(client, "a callback was refused: {e}");
                held.end = not_executed(sent, take.sequence);
                return Err(Error::Gone);
            }
        }
    }
    held.end = not_executed(sent, take.sequence);
    Err(Error::Unreachable)
}

/// The end of a callback that the client has refused, where it was not sent before.
fn not_executed(sent: bool, sequence: u32) -> CallbackEnd {
    if sent { CallbackEnd::Unanswered(sequence) } else { CallbackEnd::NotExecuted(sequence) }
}

/// The OPEN that a delegation was given to, while its reply may still be under way: once the client has used the slot again it has had it.
fn referring(sh: &Shared, by: &GivenTo) -> Option<ReferringCalls> {
    let is_last =
        sh.state().sessions.get(&by.session).is_some_and(|s| s.last_sequence(by.slot) == by.sequence);
    is_last.then(|| ReferringCalls {
        sessionid: by.session,
        calls: vec![ReferringCall { sequenceid: by.sequence, slotid: by.slot }],
    })
}

/// Records in the log, before the first callback of a session is sent, that there are callbacks. Returns whether the log
/// has it.
async fn session_is_logged(sh: &Shared, session: SessionId) -> bool {
    let notes = {
        let mut st = sh.state();
        let v = st.next_version();
        let Some(mut s) = st.sessions.get_mut(&session) else { return false };
        if !s.callback_is_news() {
            return true;
        }
        s.version = v;
        s.notes()
    };
    let told = sh.write_down(notes.into()).await;
    if let Some(mut s) = sh.state().sessions.get_mut(&session).filter(|_| told) {
        s.calls_are_noted();
    }
    told
}

/// A slot in use; given back whatever happens to the one who uses it.
struct HeldSlot<'a> {
    sh: &'a Shared,
    session: SessionId,
    slot: u32,
    end: CallbackEnd,
}

impl Drop for HeldSlot<'_> {
    fn drop(&mut self) {
        if let Some(mut s) = self.sh.state().sessions.get_mut(&self.session) {
            s.callback_end(self.slot, self.end);
        }
        self.sh.callback_conns.freed.notify_waiters();
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The operation was executed, now or by an earlier sending.
    Done(Done),
    /// The number had been used for something else.
    EarlierOne,
    Later,
    /// The numbers do not agree, or the client does not know the session.
    Refused,
}

/// What a reply means; `unsure` when the reply to an earlier callback with this number was lost.
fn verdict(reply: Bytes, unsure: bool) -> Verdict {
    let Ok(mut res) = CbCompoundRes::from_bytes(reply) else { return Verdict::Refused };
    if res
        .results
        .iter()
        .any(|r| matches!(r.status, NfsStat::NFS4ERR_RETRY_UNCACHED_REP | NfsStat::NFS4ERR_SEQ_FALSE_RETRY))
    {
        let lost = Done { status: NfsStat::NFS4_OK, attrs: None };
        return if unsure { Verdict::EarlierOne } else { Verdict::Done(lost) };
    }
    let attrs = res.results.get_mut(1).and_then(|op| op.attrs.take());
    match (res.results.first(), res.results.get(1)) {
        (Some(sequence), Some(op)) if sequence.status.is_ok() => {
            Verdict::Done(Done { status: op.status, attrs })
        }
        (Some(sequence), _) if sequence.status == NfsStat::NFS4ERR_DELAY => Verdict::Later,
        _ => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_nfs::v4::callback::{CbRes, CbSequenceRes, OP_CB_OFFLOAD, OP_CB_SEQUENCE};

    fn reply(sequence: NfsStat, op: Option<NfsStat>) -> Bytes {
        let ok = CbSequenceRes {
            sessionid: [0; 16],
            sequenceid: 1,
            slotid: 0,
            highest_slotid: 0,
            target_highest_slotid: 0,
        };
        let mut results = vec![CbRes {
            op: OP_CB_SEQUENCE,
            status: sequence,
            sequence: sequence.is_ok().then_some(ok),
            attrs: None,
        }];
        results.extend(op.map(|status| CbRes { op: OP_CB_OFFLOAD, status, sequence: None, attrs: None }));
        let status = results.last().map_or(NfsStat::NFS4_OK, |r| r.status);
        CbCompoundRes { status, tag: Bytes::new(), results }.to_bytes()
    }

    #[test]
    fn rfc8881_20_9_what_a_reply_means() {
        let (ok, retry) = (NfsStat::NFS4_OK, NfsStat::NFS4ERR_RETRY_UNCACHED_REP);
        let bad = NfsStat::NFS4ERR_BADHANDLE;
        let done = |status| Verdict::Done(Done { status, attrs: None });
        assert_eq!(verdict(reply(ok, Some(ok)), false), done(ok));
        assert_eq!(verdict(reply(ok, Some(bad)), true), done(bad));
        assert_eq!(verdict(reply(ok, Some(retry)), true), Verdict::EarlierOne);
        assert_eq!(verdict(reply(ok, Some(retry)), false), done(ok));
        assert_eq!(verdict(reply(retry, None), true), Verdict::EarlierOne);
        assert_eq!(verdict(reply(NfsStat::NFS4ERR_DELAY, None), false), Verdict::Later);
        assert_eq!(verdict(reply(NfsStat::NFS4ERR_SEQ_MISORDERED, None), true), Verdict::Refused);
        assert_eq!(verdict(reply(NfsStat::NFS4ERR_BADSESSION, None), false), Verdict::Refused);
        assert_eq!(verdict(reply(ok, None), false), Verdict::Refused);
        assert_eq!(verdict(Bytes::from_static(b"no reply"), false), Verdict::Refused);
    }
}
