//! One step of a COMPOUND: checks whether the operation may run at its place, runs it, appends its result.

use super::context::{Context, Fh};
use super::dispatch::result;
use super::matrix::{self, Does, Place};
use super::reply::{Budget, Reply, STATUS_ONLY};
use landfast_nfs::v4::args::OpenClaim;
use landfast_nfs::v4::{ArgOp, CompoundArgs, NfsStat, OpNum, ResOp, StableHow};

/// Runs one operation and appends its result; the COMPOUND stops after a result with an error.
pub(super) fn step(ctx: &mut Context<'_>, op: &ArgOp, budget: Budget, reply: &mut Reply) {
    let number = op.op();
    let (mark, before) = (reply.mark(), reply.len());
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
    let res = match ctx.before(op) {
        Err(status) => ResOp::failed(number, status),
        Ok(()) if ctx.minor == 0 => ctx.dispatch40(op),
        Ok(()) => result(number, ctx.dispatch(op)),
    };
    ctx.touching.clear();
    ctx.looks.next();
    if ctx.parks {
        return reply.push(&res);
    }
    ctx.may_park &= spec.does == Does::Reads;
    ctx.sh.counters.op(ctx.minor, number, res.status, spec.does == Does::Modifies && res.status.is_ok());
    reply.push(&res);
    if reply.len() - before > ctx.room && (spec.does == Does::Reads || !res.status.is_ok()) {
        reply.pop(mark);
        reply.push(&ResOp::failed(number, budget.over));
    }
}

/// Checks whether an operation may run at its place.
/// Errors: The operation number and the status of its result.
fn ready(ctx: &Context<'_>, op: &ArgOp, budget: Budget) -> Result<&'static matrix::OpSpec, (OpNum, NfsStat)> {
    let number = op.op();
    if matches!(op, ArgOp::Malformed(OpNum::ILLEGAL)) {
        return Err((number, NfsStat::NFS4ERR_BADXDR));
    }
    let spec = matrix::find(number, ctx.minor).ok_or((OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL))?;
    let problem = match spec.place {
        _ if ctx.minor > spec.last || ctx.minor < spec.served_since => Some(NfsStat::NFS4ERR_NOTSUPP),
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

/// May the operation that sets a filehandle leave `WRONGSEC` to what follows it, `rest`? (RFC 8881 sections 2.6.3.1.1.1 to
/// 2.6.3.1.1.7)
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

impl Context<'_> {
    /// Notes that the reply to a modifying operation depends on the objects that it names: their earlier changes must be durable, too.
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

    /// Notes that the reply `STALE` to a COMPOUND that would have changed something depends on removals: they must be durable, too.
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
}
