//! COMPOUNDs of NFSv4.0 (RFC 7530). They have no session: the duplicate request cache keeps their replies, and their owners are busy
//! while they run. Their operations: [`super::dispatch40`].

use super::context::Context;
use super::dispatch40::ask;
use super::reply::{Budget, RPC_REPLY_HEAD, Reply};
use super::request::Request;
use super::step::{flavor_later, step};
use crate::errors;
use crate::limits;
use crate::path::{LateReply, Later, Outcome, Pending};
use crate::state::notes::{Note, Stamped};
use crate::state::v40::Subject;
use crate::wakeups::Awaited;
use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, NfsStat};

pub(super) fn run(mut ctx: Context<'_>, req: &Request, first: &ArgOp) -> Outcome {
    let tag = &req.args.tag;
    let subjects: Vec<Subject> = req.args.ops.iter().filter_map(|op| ask(op).map(|a| a.subject)).collect();
    let addr = ctx.caller.addr;
    let taken = {
        let mut st = ctx.sh.state();
        let subjects: Vec<_> = subjects.into_iter().filter(|s| st.may_take(s, addr)).collect();
        st.take_owners(subjects.iter())
    };
    let Some(owners) = taken else {
        let waits = Some((Awaited::Other, limits::RETRY_WAIT));
        return Outcome { waits, ..Reply::failed(tag, Some(first.op()), NfsStat::NFS4ERR_DELAY) };
    };
    ctx.owners = owners;
    let max = (limits::RESPONSE_BYTES_MAX as usize).saturating_sub(RPC_REPLY_HEAD);
    let budget = Budget { max, over: NfsStat::NFS4ERR_RESOURCE };
    let mut reply = Reply::new(tag);
    for (i, op) in req.args.ops.iter().enumerate() {
        ctx.last = i + 1 == req.args.announced as usize;
        ctx.flavor_later = flavor_later(req.args.ops.get(i + 1..).unwrap_or_default());
        step(&mut ctx, op, budget, &mut reply);
        if !reply.status.is_ok() {
            break;
        }
    }
    finish(ctx, req, reply)
}

/// Whether the duplicate request cache keeps the reply of a COMPOUND: if it changes something, and no owner's sequence
/// number identifies its retry. (After a restart a stateid in a kept reply would be useless.)
pub(crate) fn is_kept(ops: &[ArgOp]) -> bool {
    let changes = |op: &ArgOp| {
        matches!(
            op,
            ArgOp::Create(_)
                | ArgOp::Link(_)
                | ArgOp::Remove(_)
                | ArgOp::Rename(_)
                | ArgOp::Setattr(_)
                | ArgOp::Write(_)
                | ArgOp::Setclientid(_)
                | ArgOp::SetclientidConfirm(_)
        )
    };
    ops.iter().any(changes) && !ops.iter().any(|op| ask(op).is_some())
}

/// Puts the reply into the duplicate request cache; and into the log, with the COMPOUND's changes or later.
fn keep(ctx: &mut Context<'_>, req: &Request, status: NfsStat, reply: &Bytes) -> Option<Later> {
    let key = req.key.as_ref()?;
    // "Try again later" is not kept.
    if matches!(status, NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE | NfsStat::NFS4ERR_RESOURCE)
        || reply.len() > limits::DRC_COMPOUND_REPLY_MAX
    {
        return None;
    }
    let home = ctx.home().filter(|_| ctx.txs.lasting());
    if let Some(home) = home.clone().filter(|home| ctx.txs.waits_elsewhere(home)) {
        ctx.sh.state().drc.answered(key, reply.clone(), None);
        return Some(Later { home, reply: LateReply::Call(key.clone()), noted: true });
    }
    let note = {
        let mut st = ctx.sh.state();
        let noted = home.map(|home| (st.next_version(), home.id()));
        st.drc.answered(key, reply.clone(), noted).zip(noted)
    };
    ctx.note(note.map(|(note, (v, _))| Stamped { v, note: Note::Call(note) }));
    None
}

/// Ends a complete reply; the owners stay busy until it may be sent.
fn finish(mut ctx: Context<'_>, req: &Request, reply: Reply) -> Outcome {
    let (status, plain) = (reply.status, reply.plain());
    let reply = reply.finish();
    ctx.rests_on_removals(status, &req.args);
    let later = keep(&mut ctx, req, status, &reply);
    let holder = match ctx.client40 {
        Some(client) if ctx.home().is_some() => {
            ctx.sh.state().note_holding(client).map(|note| ((client, note.v), note))
        }
        _ => None,
    };
    let (holder, note) = holder.unzip();
    ctx.note(note);
    let owners = std::mem::take(&mut ctx.owners);
    let changed = ctx.txs.modified() || ctx.noted;
    let receipts = ctx.txs.finish();
    if !changed && !receipts.settle(errors::says_failed(status)) {
        ctx.sh.state().owners.give_back(&owners);
        return Outcome::at_once(vec![reply]);
    }
    let failure = plain.refused(&reply, &req.args);
    let pending = Pending { owners, holder, gone: ctx.gone, later, ..Pending::new(receipts, failure) };
    Outcome { pending: Some(pending), ..Outcome::at_once(vec![reply]) }
}
