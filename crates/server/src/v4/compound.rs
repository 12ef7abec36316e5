//! One COMPOUND (RFC 8881 section 16.2, RFC 7530 section 15.2): from the first operation to the reply, and what the
//! reply must wait for.
//!
//! Runs on a worker thread and never waits for the log. Room for the reply is known before a modifying operation runs.
//! An operation that only reads gets `REP_TOO_BIG` if its result turns out too large.

use super::allowance::Allowance;
use super::context::Context;
use super::dispatch::result;
use super::matrix::{self, Place};
use super::reply::{Budget, RPC_REPLY_HEAD, Reply, whole};
use super::request::{Request, Sequenced};
use super::step::{flavor_later, step};
use super::v40;
use crate::errors;
use crate::exports::{Accesses, Txs};
use crate::limits;
use crate::looks::Looks;
use crate::path::{LateReply, Later, Outcome, Pending};
use crate::shared::Shared;
use crate::state::notes::{Note, Stamped};
use crate::state::sessions::{CachedReply, Session};
use crate::wakeups::Awaited;
use bytes::Bytes;
use landfast_nfs::v4::res::SequenceRes;
use landfast_nfs::v4::{ArgOp, CompoundArgs, NfsStat, OpNum, ResBody, ResOp, Stateid};

pub(crate) fn run(sh: &Shared, req: &Request) -> Outcome {
    sh.counters.compound();
    let tag = req.args.tag.clone();
    if !sh.protocols.minor(req.args.minor_version) {
        return Reply::failed(&tag, None, NfsStat::NFS4ERR_MINOR_VERS_MISMATCH);
    }
    // Each session negotiated its own limit; one from before a restart may have a higher one.
    let most = if req.args.minor_version == 0 { sh.operations_max } else { limits::OPS_MAX };
    if req.args.announced > most {
        if req.args.minor_version == 0 {
            return Reply::failed(&tag, None, NfsStat::NFS4ERR_RESOURCE);
        }
        return Reply::failed(&tag, Some(OpNum::SEQUENCE), NfsStat::NFS4ERR_TOO_MANY_OPS);
    }
    let Some(first) = req.args.ops.first() else {
        return Reply::failed(&tag, None, NfsStat::NFS4_OK);
    };
    let ctx = Context {
        sh,
        now: sh.now(),
        conn: req.conn,
        principal: req.principal,
        caller: req.caller.clone(),
        exports: sh.exports(),
        accesses: Accesses::default(),
        minor: req.args.minor_version,
        session: None,
        client40: None,
        owners: Vec::new(),
        fh: None,
        saved: None,
        stateid: Stateid::ANONYMOUS,
        txs: Txs::default(),
        noted: false,
        made: Vec::new(),
        gone: Vec::new(),
        offloads: Vec::new(),
        work: Allowance::new(&req.reply_conn),
        waits: None,
        touching: Vec::new(),
        looks: Looks::default(),
        may_park: false,
        parks: false,
        room: limits::RESPONSE_BYTES_MAX as usize,
        last: true,
        flavor_later: false,
    };
    match first {
        _ if req.args.minor_version == 0 => v40::run(ctx, req, first),
        ArgOp::Sequence(_) => in_session(ctx, req),
        alone => match may_stand_alone(alone, &req.args) {
            Ok(()) => alone_in_compound(ctx, req, alone),
            Err((op, status)) => Reply::failed(&tag, Some(op), status),
        },
    }
}

/// RFC 8881 sections 2.10.2.1 and 18.46: without SEQUENCE, only operations that create and end clients and sessions,
/// each alone.
fn may_stand_alone(first: &ArgOp, args: &CompoundArgs) -> Result<(), (OpNum, NfsStat)> {
    let op = first.op();
    if matches!(first, ArgOp::Malformed(OpNum::ILLEGAL)) {
        return Err((op, NfsStat::NFS4ERR_BADXDR));
    }
    let spec = matrix::find(op, args.minor_version).ok_or((OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL))?;
    // RFC 8881 section 8.8: takes precedence over other errors.
    if args.minor_version > spec.last {
        return Err((op, NfsStat::NFS4ERR_NOTSUPP));
    }
    if matches!(first, ArgOp::Malformed(_)) {
        return Err((op, NfsStat::NFS4ERR_BADXDR));
    }
    match spec.place {
        Place::InSession | Place::First => Err((op, NfsStat::NFS4ERR_OP_NOT_IN_SESSION)),
        Place::Alone | Place::InSessionOrAlone if args.announced != 1 => {
            Err((op, NfsStat::NFS4ERR_NOT_ONLY_OP))
        }
        Place::Alone | Place::InSessionOrAlone => Ok(()),
    }
}

fn alone_in_compound(mut ctx: Context<'_>, req: &Request, op: &ArgOp) -> Outcome {
    let mut reply = Reply::new(&req.args.tag);
    let res = result(op.op(), ctx.dispatch(op));
    ctx.sh.counters.op(ctx.minor, res.op, res.status, false);
    reply.push(&res);
    let reply = reply.finish();
    if !ctx.noted {
        return Outcome { waits: ctx.waits, ..Outcome::at_once(vec![reply]) };
    }
    let failure = Reply::of_failed(&req.args.tag, Some(op.op()), NfsStat::NFS4ERR_SERVERFAULT);
    let pending = Pending { gone: ctx.gone, ..Pending::new(ctx.txs.finish(), failure) };
    Outcome { pending: Some(pending), ..Outcome::at_once(vec![reply]) }
}

fn in_session(mut ctx: Context<'_>, req: &Request) -> Outcome {
    let args = &req.args;
    let ArgOp::Sequence(sequence) = &args.ops[0] else {
        return Reply::failed(&args.tag, Some(OpNum::SEQUENCE), NfsStat::NFS4ERR_SERVERFAULT);
    };
    let begun = match req.parked.take() {
        Some((session, begun, mut looks)) => {
            looks.again();
            (ctx.session, ctx.looks) = (Some(session), looks);
            Ok(begun)
        }
        None => {
            let begun = ctx.sequence(sequence, req);
            let status = begun.as_ref().err().copied().unwrap_or(NfsStat::NFS4_OK);
            ctx.sh.counters.op(ctx.minor, OpNum::SEQUENCE, status, false);
            begun
        }
    };
    let begun = match begun {
        Ok(begun) => begun,
        Err(status) => {
            let busy = |s: &Session| s.is_busy(sequence.slotid);
            let waits = (status == NfsStat::NFS4ERR_DELAY).then(|| {
                let busy = ctx.sh.state().sessions.get(&sequence.sessionid).is_some_and(busy);
                (if busy { Awaited::Slot } else { Awaited::Room }, limits::RETRY_WAIT)
            });
            return Outcome { waits, ..Reply::failed(&args.tag, Some(OpNum::SEQUENCE), status) };
        }
    };
    let (res, max_response, max_cached) = match begun {
        Sequenced::Replay(reply) => {
            ctx.sh.counters.replay();
            return Outcome::at_once(vec![reply]);
        }
        Sequenced::Uncached(res) => {
            ctx.sh.counters.replay();
            return Outcome::at_once(vec![uncached(args, &res)]);
        }
        Sequenced::New { res, max_response, max_cached } => (res, max_response, max_cached),
    };
    ctx.may_park = !req.parked.is_over();
    let cap = |max: u32, over| Budget { max: (max as usize).saturating_sub(RPC_REPLY_HEAD), over };
    let budget = if sequence.cachethis && max_cached < max_response {
        cap(max_cached, NfsStat::NFS4ERR_REP_TOO_BIG_TO_CACHE)
    } else {
        cap(max_response, NfsStat::NFS4ERR_REP_TOO_BIG)
    };

    let mut reply = Reply::new(&args.tag);
    reply.push(&ResOp::ok(OpNum::SEQUENCE, ResBody::Sequence(res.clone())));
    for (i, op) in args.ops.iter().enumerate().skip(1) {
        ctx.last = i + 1 == args.announced as usize;
        ctx.flavor_later = flavor_later(&args.ops[i + 1..]);
        step(&mut ctx, op, budget, &mut reply);
        if !reply.status.is_ok() {
            break;
        }
    }
    if ctx.parks
        && let Some(session) = ctx.session.take()
    {
        // Its slot stays busy, and it goes on from here.
        req.parked.put(session, Sequenced::New { res, max_response, max_cached }, ctx.looks);
        let waits = Some((Awaited::Delegation, limits::RECALL_WAIT));
        return Outcome { waits, ..Outcome::at_once(Vec::new()) };
    }
    finish(ctx, req, reply, max_cached as usize, sequence.cachethis)
}

/// RFC 8881 section 2.10.6.1.3: the reply to a retry whose first reply was not kept.
fn uncached(args: &CompoundArgs, res: &SequenceRes) -> Bytes {
    let mut reply = Reply::new(&args.tag);
    reply.push(&ResOp::ok(OpNum::SEQUENCE, ResBody::Sequence(res.clone())));
    if let Some(second) = args.ops.get(1) {
        reply.push(&ResOp::failed(second.op(), NfsStat::NFS4ERR_RETRY_UNCACHED_REP));
    }
    reply.finish()
}

/// Ends a complete reply: it goes into the slot, and into the log if anything else of the COMPOUND did. A COMPOUND that
/// only wrote unstable data waits for nothing: a retry after a crash writes it again, which the write verifier asks for
/// anyway.
fn finish(mut ctx: Context<'_>, req: &Request, reply: Reply, max_cached: usize, cachethis: bool) -> Outcome {
    let Some(session) = ctx.session.clone() else { return Outcome::at_once(vec![reply.finish()]) };
    let offloads = std::mem::take(&mut ctx.offloads);
    let (changed, lasting) = (ctx.txs.modified() || ctx.noted, ctx.txs.lasting() || ctx.noted);
    // The reply to a modifying request is kept whether the client asked or not, if it fits, so that a retry finds it.
    let (len, reply_status, plain) = (reply.len(), reply.status, reply.plain());
    let keep = (cachethis || changed) && len + RPC_REPLY_HEAD <= max_cached;
    let mut pieces = reply.into_pieces();
    if keep {
        pieces = vec![whole(len, pieces)];
    }
    let kept = match pieces.first() {
        Some(whole) if keep => CachedReply::Reply(whole.clone()),
        _ => CachedReply::Uncached,
    };
    ctx.rests_on_removals(reply_status, &req.args);
    let home = ctx.home();
    let (gone, holder_note) = match home {
        None => (Vec::new(), None),
        Some(_) => {
            let mut st = ctx.sh.state();
            let gone = if changed { st.take_gone() } else { Vec::new() };
            st.grants_are_answered(ctx.now, session.client, session.id, session.slot);
            (gone, st.note_holding(session.client))
        }
    };
    ctx.note(gone);
    let holder = holder_note.as_ref().map(|note| (session.client, note.v));
    ctx.note(holder_note);
    let noted = lasting || holder.is_some();
    let (kept, later) = match home.clone().filter(|home| ctx.txs.waits_elsewhere(home)) {
        None => (Some(kept), None),
        Some(home) => {
            let reply = LateReply::Slot(session.id, session.slot, kept);
            (None, Some(Later { home, reply, noted }))
        }
    };
    let slot_note = {
        let mut st = ctx.sh.state();
        let v = st.next_version();
        let home = home.map(|e| e.id());
        let slot = st.sessions.get_mut(&session.id).zip(kept);
        let note = slot.and_then(|(mut s, kept)| s.stage(session.slot, kept, v, home));
        note.map(|n| Stamped { v, note: Note::Slot(n) })
    };
    if noted {
        ctx.note(slot_note);
    }
    let receipts = ctx.txs.finish();
    let settles = receipts.settle(errors::says_failed(reply_status));
    if !changed && holder.is_none() && later.is_none() && !settles {
        if let Some(mut s) = ctx.sh.state().sessions.get_mut(&session.id) {
            s.release(session.slot);
        }
        return Outcome { offloads, ..Outcome::at_once(pieces) };
    }
    let failure = plain.refused(pieces.first().map_or(&[], |first| &first[..]), &req.args);
    let slot = Some((session.id, session.slot));
    let pending = Pending { slot, holder, gone: ctx.gone, later, ..Pending::new(receipts, failure) };
    Outcome { pending: Some(pending), offloads, ..Outcome::at_once(vec![whole(len, pieces)]) }
}
