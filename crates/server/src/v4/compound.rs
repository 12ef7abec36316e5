//! One COMPOUND (RFC 8881 section 16.2, RFC 7530 section 15.2): from the first operation to the reply and what it has to wait for.
//!
//! Runs on a worker thread and never waits for the log. The reply's room is known before an operation that changes
//! something runs; an operation that only reads is answered `REP_TOO_BIG` when its result turns out too large.

use super::context::{Ctx, Fail, Fh};
use super::matrix::{self, Does, Place};
use super::session::Sequenced;
use super::v40;
use super::work::Allowance;
use crate::errors;
use crate::exports::{Caller, Txs};
use crate::limits;
use crate::path::{LateReply, Later, Outcome, Pending};
use crate::released::Awaited;
use crate::shared::Shared;
use crate::state::Principal;
use crate::state::drc::CallKey;
use crate::state::notes::{Note, Stamped};
use crate::state::sessions::{ConnId, Kept, Session};
use bytes::{BufMut, Bytes, BytesMut};
use landfast_nfs::v4::args::OpenClaim;
use landfast_nfs::v4::res::SequenceRes;
use landfast_nfs::v4::{ArgOp, CompoundArgs, NfsStat, OpNum, ResBody, ResOp, StableHow, Stateid};
use landfast_rpc::ConnInfo;
use landfast_xdr::{Encode, padding};
use std::cell::RefCell;
use std::sync::Arc;

/// A decoded request and who sent it.
pub(crate) struct Request {
    pub(crate) conn: ConnId,
    /// The connection that its reply goes to.
    pub(crate) line: Arc<ConnInfo>,
    pub(crate) principal: Principal,
    pub(crate) caller: Caller,
    pub(crate) args: CompoundArgs,
    /// Its name in the duplicate request cache, where its reply is kept there (NFSv4.0).
    pub(crate) key: Option<CallKey>,
    /// Bytes of the request, RPC header included.
    pub(crate) bytes: usize,
    /// Digest of caller and operations after the SEQUENCE.
    pub(crate) fingerprint: u64,
}

/// Bytes of an RPC reply's header: transaction, reply, accepted, verifier, status (RFC 5531 section 9).
pub(super) const RPC_REPLY_HEAD: usize = 24;
/// Bytes of a result that is only a status; every COMPOUND has room for one more.
const STATUS_ONLY: usize = 8;

/// A reply that grows.
pub(super) struct Reply {
    out: BytesMut,
    /// Data that is not copied into `out`, and before which of its bytes it belongs.
    data: Vec<(usize, Bytes)>,
    count_at: usize,
    count: u32,
    plain: Plain,
    pub(super) status: NfsStat,
}

/// The first results of a reply, those that say nothing of an object but its handle: they stand whatever was not made stable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    /// Where the number of results stands.
    count_at: usize,
    /// So many, and where they end.
    count: u32,
    end: usize,
    /// The same without the last one.
    all_but_one: (u32, usize),
}

impl Plain {
    fn push(&mut self, count: u32, end: usize) {
        self.all_but_one = (self.count, self.end);
        (self.count, self.end) = (count, end);
    }

    /// The answer instead of `whole`, whose first results these are, when something of it may not be stable: they stay, and the
    /// operation behind them has the error.
    pub(super) fn refused(self, whole: &[u8], args: &CompoundArgs) -> Bytes {
        let (mut count, mut end) = (self.count, self.end);
        let mut op = args.ops.get(count as usize);
        if op.is_none() && count > 1 {
            (count, end) = self.all_but_one;
            op = args.ops.get(count as usize);
        }
        let Some(kept) = whole.get(..end) else {
            let first = args.ops.first().map(ArgOp::op);
            return Reply::of_failed(&args.tag, first, NfsStat::NFS4ERR_SERVERFAULT);
        };
        let mut reply = Reply { out: kept.into(), count_at: self.count_at, count, ..Reply::new(&args.tag) };
        if let Some(op) = op.map(ArgOp::op) {
            reply.push(&ResOp::failed(op, errors::status_of_failed(op)));
        }
        reply.finish()
    }
}

/// Whether the result of an operation says nothing of an object but its handle.
fn is_plain(op: OpNum) -> bool {
    matches!(
        op,
        OpNum::SEQUENCE
            | OpNum::PUTFH
            | OpNum::PUTROOTFH
            | OpNum::PUTPUBFH
            | OpNum::SAVEFH
            | OpNum::RESTOREFH
            | OpNum::GETFH
    )
}

impl Reply {
    pub(super) fn new(tag: &Bytes) -> Reply {
        let mut out = BytesMut::with_capacity(512);
        out.put_u32(0);
        tag.encode(&mut out);
        let count_at = out.len();
        out.put_u32(0);
        let end = out.len();
        let plain = Plain { count_at, count: 0, end, all_but_one: (0, end) };
        Reply { out, data: Vec::new(), count_at, count: 0, plain, status: NfsStat::NFS4_OK }
    }

    fn push(&mut self, res: &ResOp) {
        match &res.body {
            ResBody::Read(read) if read.data.len() >= limits::REPLY_COPY_MAX => {
                res.op.0.encode(&mut self.out);
                res.status.encode(&mut self.out);
                read.eof.encode(&mut self.out);
                self.out.put_u32(read.data.len() as u32);
                self.data.push((self.out.len(), read.data.clone()));
                self.out.put_bytes(0, padding(read.data.len()));
            }
            _ => res.encode(&mut self.out),
        }
        self.count += 1;
        self.status = res.status;
        if res.status.is_ok() && self.plain.count + 1 == self.count && is_plain(res.op) {
            self.plain.push(self.count, self.out.len());
        }
    }

    /// See [`Plain`].
    pub(super) fn plain(&self) -> Plain {
        self.plain
    }

    fn len(&self) -> usize {
        self.out.len() + self.data.iter().map(|(_, data)| data.len()).sum::<usize>()
    }

    /// Takes the last result back, which began when `out` had this length.
    fn pop(&mut self, out: usize) {
        self.out.truncate(out);
        self.data.retain(|(at, _)| *at <= out);
        self.count -= 1;
        if self.plain.count > self.count {
            (self.plain.count, self.plain.end) = self.plain.all_but_one;
        }
    }

    /// The reply in pieces, at least one.
    fn into_pieces(mut self) -> Vec<Bytes> {
        self.out[..4].copy_from_slice(&self.status.0.to_be_bytes());
        self.out[self.count_at..self.count_at + 4].copy_from_slice(&self.count.to_be_bytes());
        let mut out = self.out.freeze();
        let (mut pieces, mut done) = (Vec::with_capacity(2 * self.data.len() + 1), 0);
        for (at, data) in self.data {
            pieces.push(out.split_to(at - done));
            pieces.push(data);
            done = at;
        }
        pieces.push(out);
        pieces
    }

    pub(super) fn finish(self) -> Bytes {
        let len = self.len();
        whole(len, self.into_pieces())
    }

    /// The whole reply of one failed operation, or of none.
    pub(super) fn failed(tag: &Bytes, op: Option<OpNum>, status: NfsStat) -> Outcome {
        Outcome::at_once(vec![Reply::of_failed(tag, op, status)])
    }

    /// The same, as bytes.
    pub(super) fn of_failed(tag: &Bytes, op: Option<OpNum>, status: NfsStat) -> Bytes {
        let mut reply = Reply::new(tag);
        reply.status = status;
        if let Some(op) = op {
            reply.push(&ResOp::failed(op, status));
        }
        reply.finish()
    }
}

/// A reply of pieces as one.
fn whole(len: usize, mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(len);
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    all.freeze()
}

/// How large the reply may become.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// Bytes of the COMPOUND result.
    pub(super) max: usize,
    /// What to answer above.
    pub(super) over: NfsStat,
}

/// Runs a request.
pub(crate) fn run(sh: &Shared, req: &Request) -> Outcome {
    sh.counters.compound();
    let tag = req.args.tag.clone();
    if !sh.protocols.minor(req.args.minor_version) {
        return Reply::failed(&tag, None, NfsStat::NFS4ERR_MINOR_VERS_MISMATCH);
    }
    // Sessions have been told what they may send; one from before a restart may have been told more.
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
    let ctx = Ctx {
        sh,
        now: sh.now(),
        conn: req.conn,
        principal: req.principal,
        caller: req.caller.clone(),
        exports: sh.exports(),
        accesses: RefCell::default(),
        minor: req.args.minor_version,
        session: None,
        client40: None,
        owners: Vec::new(),
        fh: None,
        saved: None,
        stateid: Stateid::ANONYMOUS,
        txs: Txs::default(),
        noted: false,
        offloads: Vec::new(),
        work: Allowance::new(&req.line),
        waits: None,
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

/// RFC 8881 section 2.10.2.1 and 18.46: without SEQUENCE only what makes and ends clients and sessions, and it alone.
fn may_stand_alone(first: &ArgOp, args: &CompoundArgs) -> Result<(), (OpNum, NfsStat)> {
    let op = first.op();
    if matches!(first, ArgOp::Malformed(OpNum::ILLEGAL)) {
        return Err((op, NfsStat::NFS4ERR_BADXDR));
    }
    let spec = matrix::find(op, args.minor_version).ok_or((OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL))?;
    // RFC 8881 section 8.8: whatever else is wrong with it.
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

fn alone_in_compound(mut ctx: Ctx<'_>, req: &Request, op: &ArgOp) -> Outcome {
    let mut reply = Reply::new(&req.args.tag);
    let res = result(op.op(), ctx.dispatch(op));
    ctx.sh.counters.op(ctx.minor, res.op, res.status, false);
    reply.push(&res);
    let reply = reply.finish();
    if !ctx.noted {
        return Outcome { waits: ctx.waits, ..Outcome::at_once(vec![reply]) };
    }
    let failure = Reply::of_failed(&req.args.tag, Some(op.op()), NfsStat::NFS4ERR_SERVERFAULT);
    let pending = Pending::new(ctx.txs.finish(), failure);
    Outcome { pending: Some(pending), ..Outcome::at_once(vec![reply]) }
}

pub(super) fn result(op: OpNum, done: Result<ResBody, Fail>) -> ResOp {
    match done {
        Ok(body) => ResOp::ok(op, body),
        // Not every operation may say so.
        Err(Fail { status: NfsStat::NFS4ERR_IO, .. }) => ResOp::failed(op, errors::status_of_failed(op)),
        Err(Fail { status, body: Some(body) }) => ResOp { op, status, body: *body },
        Err(Fail { status, body: None }) => ResOp::failed(op, status),
    }
}

fn in_session(mut ctx: Ctx<'_>, req: &Request) -> Outcome {
    let args = &req.args;
    let ArgOp::Sequence(sequence) = &args.ops[0] else {
        return Reply::failed(&args.tag, Some(OpNum::SEQUENCE), NfsStat::NFS4ERR_SERVERFAULT);
    };
    let begun = ctx.sequence(sequence, req);
    let status = begun.as_ref().err().copied().unwrap_or(NfsStat::NFS4_OK);
    ctx.sh.counters.op(ctx.minor, OpNum::SEQUENCE, status, false);
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
    finish(ctx, req, reply, max_cached as usize, sequence.cachethis)
}

/// RFC 8881 sections 2.6.3.1.1.1 to 2.6.3.1.1.7, by what follows an operation that sets a filehandle.
pub(super) fn flavor_later(rest: &[ArgOp]) -> bool {
    match rest.iter().find(|op| !matches!(op, ArgOp::Savefh)) {
        None | Some(ArgOp::Putfh(_) | ArgOp::Putrootfh | ArgOp::Putpubfh | ArgOp::Restorefh) => true,
        Some(ArgOp::Lookup(_) | ArgOp::Lookupp | ArgOp::Secinfo(_) | ArgOp::SecinfoNoName(_)) => true,
        Some(ArgOp::Open(a)) => {
            matches!(a.claim, OpenClaim::Null(_) | OpenClaim::DelegateCur { .. } | OpenClaim::DelegatePrev(_))
        }
        Some(_) => false,
    }
}

/// One operation, its result appended.
pub(super) fn step(ctx: &mut Ctx<'_>, op: &ArgOp, budget: Budget, reply: &mut Reply) {
    let number = op.op();
    let (out_before, before) = (reply.out.len(), reply.len());
    let after = if ctx.last { 0 } else { STATUS_ONLY };
    ctx.room = budget.max.saturating_sub(before + after);
    let spec = match ready(ctx, op, budget) {
        Ok(spec) => spec,
        Err((number, status)) => {
            ctx.sh.counters.op(ctx.minor, number, status, false);
            return reply.push(&ResOp::failed(number, status));
        }
    };
    ctx.rests(op, spec);
    let res = if ctx.minor == 0 { ctx.dispatch40(op) } else { result(number, ctx.dispatch(op)) };
    ctx.sh.counters.op(ctx.minor, number, res.status, spec.does == Does::Modifies && res.status.is_ok());
    reply.push(&res);
    if reply.len() - before > ctx.room && (spec.does == Does::Reads || !res.status.is_ok()) {
        reply.pop(out_before);
        reply.push(&ResOp::failed(number, budget.over));
    }
}

/// Whether an operation may run where it stands.
fn ready(ctx: &Ctx<'_>, op: &ArgOp, budget: Budget) -> Result<&'static matrix::OpSpec, (OpNum, NfsStat)> {
    let number = op.op();
    if matches!(op, ArgOp::Malformed(OpNum::ILLEGAL)) {
        return Err((number, NfsStat::NFS4ERR_BADXDR));
    }
    let spec = matrix::find(number, ctx.minor).ok_or((OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL))?;
    let problem = match spec.place {
        _ if ctx.minor > spec.last => Some(NfsStat::NFS4ERR_NOTSUPP),
        Place::First => Some(NfsStat::NFS4ERR_SEQUENCE_POS),
        Place::Alone => Some(NfsStat::NFS4ERR_NOT_ONLY_OP),
        // RFC 8881 section 18.47.3: no client has SP4_SSV here.
        Place::InSession if number == OpNum::SET_SSV => Some(NfsStat::NFS4ERR_INVAL),
        Place::InSession | Place::InSessionOrAlone if spec.does == Does::Unsupported => {
            Some(NfsStat::NFS4ERR_NOTSUPP)
        }
        _ if op.ends_decoding() => Some(NfsStat::NFS4ERR_BADXDR),
        _ if spec.needs_fh && ctx.fh.is_none() => Some(NfsStat::NFS4ERR_NOFILEHANDLE),
        // RFC 7530 section 16.29.4 has a status of its own for it.
        _ if spec.needs_saved && ctx.saved.is_none() && ctx.minor == 0 && number == OpNum::RESTOREFH => {
            Some(NfsStat::NFS4ERR_RESTOREFH)
        }
        _ if spec.needs_saved && ctx.saved.is_none() => Some(NfsStat::NFS4ERR_NOFILEHANDLE),
        _ if spec.result_max > ctx.room => Some(budget.over),
        _ => None,
    };
    problem.map_or(Ok(spec), |status| Err((number, status)))
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

/// The reply is whole: it joins the slot, and the log when anything else of the compound did. One that wrote unstable data
/// and changed nothing else waits for nothing: a retry after a crash writes it again, which its verifier asks for anyway.
fn finish(mut ctx: Ctx<'_>, req: &Request, reply: Reply, max_cached: usize, cachethis: bool) -> Outcome {
    let Some(session) = ctx.session.clone() else { return Outcome::at_once(vec![reply.finish()]) };
    let offloads = std::mem::take(&mut ctx.offloads);
    let (changed, lasting) = (ctx.txs.modified() || ctx.noted, ctx.txs.lasting() || ctx.noted);
    // What changed something is kept whether the client asked or not, when it fits: then a retry finds it.
    let (len, reply_status, plain) = (reply.len(), reply.status, reply.plain());
    let keep = (cachethis || changed) && len + RPC_REPLY_HEAD <= max_cached;
    let mut pieces = reply.into_pieces();
    if keep {
        pieces = vec![whole(len, pieces)];
    }
    let kept = match pieces.first() {
        Some(whole) if keep => Kept::Reply(whole.clone()),
        _ => Kept::Uncached,
    };
    ctx.rests_on_removals(reply_status, &req.args);
    let home = ctx.home();
    let holder_note = home.as_ref().and_then(|_| ctx.sh.state().note_holding(session.client));
    let holder = holder_note.as_ref().map(|_| session.client);
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
        let note = slot.and_then(|(mut s, kept)| s.stage_in(session.slot, kept, v, home));
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
    let pending = Pending { slot, holder, later, ..Pending::new(receipts, failure) };
    Outcome { pending: Some(pending), offloads, ..Outcome::at_once(vec![whole(len, pieces)]) }
}

impl Ctx<'_> {
    /// What an operation that must be durable is answered rests on the objects that it names.
    fn rests(&mut self, op: &ArgOp, spec: &matrix::OpSpec) {
        let unstable = matches!(op, ArgOp::Write(a) if a.stable == StableHow::Unstable);
        if unstable || !matrix::may_modify(op, self.minor) {
            return;
        }
        let saved = self.saved.as_ref().map(|(fh, _)| fh).filter(|_| spec.needs_saved);
        for fh in [self.fh.as_ref(), saved].into_iter().flatten() {
            if let Fh::Node { export, node, .. } = fh {
                self.txs.rests_on(export, node);
            }
        }
    }

    /// A COMPOUND that would have changed something is told that an object is gone.
    pub(super) fn rests_on_removals(&mut self, status: NfsStat, args: &CompoundArgs) {
        if status != NfsStat::NFS4ERR_STALE || !args.ops.iter().any(|op| matrix::may_modify(op, self.minor)) {
            return;
        }
        for op in &args.ops {
            if let ArgOp::Putfh(fh) = op
                && let Some(export) = self.exports.of_handle(&fh.0)
            {
                self.txs.rests_on_removals(export);
            }
        }
    }

    /// Runs an operation that [`matrix`] says is served.
    pub(super) fn dispatch(&mut self, op: &ArgOp) -> Result<ResBody, Fail> {
        match op {
            ArgOp::Access(a) => self.access(*a),
            ArgOp::Close(a) => self.close(a),
            ArgOp::Commit(a) => self.commit(a),
            ArgOp::Create(a) => self.create(a),
            ArgOp::Getattr(a) => self.getattr(a),
            ArgOp::Getfh => self.getfh(),
            ArgOp::Link(a) => self.link(a),
            ArgOp::Lock(a) => self.lock(a),
            ArgOp::Lockt(a) => self.lockt(a),
            ArgOp::Locku(a) => self.locku(a),
            ArgOp::Lookup(a) => self.lookup(a),
            ArgOp::Lookupp => self.lookupp(),
            ArgOp::Nverify(a) => self.verify(a, NfsStat::NFS4ERR_SAME),
            ArgOp::Verify(a) => self.verify(a, NfsStat::NFS4ERR_NOT_SAME),
            ArgOp::Open(a) => self.open(a),
            ArgOp::OpenDowngrade(a) => self.open_downgrade(a),
            ArgOp::Putfh(a) => self.putfh(a),
            ArgOp::Putpubfh | ArgOp::Putrootfh => self.putrootfh(),
            ArgOp::Read(a) => self.read(a),
            ArgOp::Readdir(a) => self.readdir(a),
            ArgOp::Readlink => self.readlink(),
            ArgOp::Remove(a) => self.remove(a),
            ArgOp::Rename(a) => self.rename(a),
            ArgOp::Restorefh => self.restorefh(),
            ArgOp::Savefh => self.savefh(),
            ArgOp::Secinfo(a) => self.secinfo(a),
            ArgOp::SecinfoNoName(a) => self.secinfo_no_name(*a),
            ArgOp::Setattr(a) => self.setattr(a),
            ArgOp::Write(a) => self.write(a),
            ArgOp::BackchannelCtl(a) => self.backchannel_ctl(a),
            ArgOp::BindConnToSession(a) => self.bind_conn_to_session(a),
            ArgOp::ExchangeId(a) => self.exchange_id(a),
            ArgOp::CreateSession(a) => self.create_session(a),
            ArgOp::DestroySession(a) => self.destroy_session(a),
            ArgOp::DestroyClientid(a) => self.destroy_clientid(*a),
            ArgOp::FreeStateid(a) => self.free_stateid(a),
            ArgOp::TestStateid(a) => self.test_stateid(a),
            ArgOp::ReclaimComplete(a) => self.reclaim_complete(*a),
            ArgOp::Getxattr(name) => self.getxattr(name),
            ArgOp::Setxattr(a) => self.setxattr(a),
            ArgOp::Listxattrs(a) => self.listxattrs(a),
            ArgOp::Removexattr(name) => self.removexattr(name),
            ArgOp::Sequence(_) => Err(NfsStat::NFS4ERR_SEQUENCE_POS.into()),
            ArgOp::Allocate(a) => self.allocate(a),
            ArgOp::Clone(a) => self.clone_file(a),
            ArgOp::Copy(a) => self.copy(a),
            ArgOp::Deallocate(a) => self.deallocate(a),
            ArgOp::IoAdvise(a) => self.io_advise(a),
            ArgOp::OffloadCancel(a) => self.offload_cancel(a),
            ArgOp::OffloadStatus(a) => self.offload_status(a),
            ArgOp::ReadPlus(a) => self.read_plus(a),
            ArgOp::Seek(a) => self.seek(a),
            ArgOp::DelegReturn(_) | ArgOp::Other(_) => Err(NfsStat::NFS4ERR_NOTSUPP.into()),
            // Only in NFSv4.0, which has its own way here: `v40`.
            ArgOp::Setclientid(_)
            | ArgOp::SetclientidConfirm(_)
            | ArgOp::Renew(_)
            | ArgOp::ReleaseLockowner(_)
            | ArgOp::OpenConfirm(_) => Err(NfsStat::NFS4ERR_NOTSUPP.into()),
            ArgOp::Malformed(_) => Err(NfsStat::NFS4ERR_BADXDR.into()),
        }
    }
}
