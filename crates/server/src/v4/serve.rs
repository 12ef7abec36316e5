//! From a received COMPOUND to the path that it takes ([`crate::path`]).

use super::compound::run;
use super::reply::Reply;
use super::request::Request;
use super::{matrix, v40};
use crate::exports::{Export, Exports};
use crate::fnv;
use crate::limits;
use crate::path::{Executor, Outcome, Plan, Work};
use crate::reply_sizes;
use crate::shared::Shared;
use crate::state::Principal;
use crate::wakeups::Slot;
use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, CompoundArgs, NfsStat};
use landfast_rpc::conn::{CallHeader, ConnInfo, Response};
use landfast_xdr::{Reader, padding};
use std::sync::Arc;

pub(crate) async fn compound(
    executor: &Executor,
    conn: &Arc<ConnInfo>,
    call: CallHeader,
    body: Bytes,
) -> Response {
    let principal = Principal::of(&call.cred);
    let mut reader = Reader::new(body.clone());
    let Ok(mut args) = CompoundArgs::decode_limited(&mut reader, limits::OPS_MAX) else {
        return Response::GarbageArgs;
    };
    let modifies = args.ops.iter().any(|op| matrix::may_modify(op, args.minor_version));
    let exports = if modifies { touched(&executor.sh.exports(), &args) } else { Vec::new() };
    let slow = exports.iter().any(|e| e.synced()) || matrix::waits_for_the_disk(&args.ops);
    if args.ops.iter().any(|op| matches!(op, ArgOp::CreateSession(_) | ArgOp::BindConnToSession(_))) {
        executor.sh.callback_conns.add(conn);
    }
    let plan = Plan {
        exports,
        slow,
        // NFSv4.0 has no slots.
        kept: args.minor_version == 0 && v40::is_kept(&args.ops),
        reply_max: reply_sizes::compound(&args.ops),
    };
    let (conn_id, reply_conn, bytes) = (conn.id(), conn.clone(), call.message_bytes);
    let fingerprint = fingerprint(principal, &args, &body);
    let undecoded = (args.ops.len() > limits::OPS_KEPT_DECODED).then(|| body.clone());
    if undecoded.is_some() {
        args.ops.truncate(1);
        args.ops.shrink_to_fit();
    }
    executor
        .answer(conn, call, body, plan, move |caller, key| Request {
            conn: conn_id,
            reply_conn,
            principal,
            caller,
            bytes,
            fingerprint,
            args,
            undecoded,
            key,
            parked: Arc::default(),
        })
        .await
}

/// The reply to a COMPOUND whose caller is still being looked up: `DELAY`.
pub(crate) fn compound_not_yet(body: Bytes) -> Response {
    let mut reader = Reader::new(body);
    match CompoundArgs::decode_limited(&mut reader, limits::OPS_MAX) {
        Ok(args) => {
            let first = args.ops.first().map(ArgOp::op);
            Response::Success(Reply::of_failed(&args.tag, first, NfsStat::NFS4ERR_DELAY))
        }
        Err(_) => Response::GarbageArgs,
    }
}

impl Work for Request {
    fn run(&self, sh: &Shared) -> Outcome {
        if self.undecoded.is_none() {
            return run(sh, self);
        }
        match self.decoded() {
            Some(whole) => run(sh, &whole),
            None => Reply::failed(&self.args.tag, None, NfsStat::NFS4ERR_SERVERFAULT),
        }
    }

    fn still_waits(&self, sh: &Shared) -> bool {
        self.parked.still_waits(sh)
    }

    fn has_another_run(&self) -> bool {
        self.parked.ends()
    }

    fn slot(&self) -> Option<Slot> {
        match self.args.ops.first() {
            Some(ArgOp::Sequence(sequence)) => Some((sequence.sessionid, sequence.slotid)),
            _ => None,
        }
    }
}

/// The exports that a COMPOUND may change: those that its handles name, and all when it starts at the root.
fn touched(exports: &Exports, args: &CompoundArgs) -> Vec<Arc<Export>> {
    let mut found: Vec<Arc<Export>> = Vec::new();
    for op in &args.ops {
        match op {
            ArgOp::Putfh(fh) => match exports.of_handle(&fh.0) {
                Some(e) if !found.iter().any(|f| f.id() == e.id()) => found.push(e.clone()),
                Some(_) => {}
                None => return exports.iter().cloned().collect(),
            },
            ArgOp::Putrootfh | ArgOp::Putpubfh => return exports.iter().cloned().collect(),
            _ => {}
        }
    }
    found
}

/// Bytes of an encoded SEQUENCE, number included.
const SEQUENCE_BYTES: usize = 4 + 16 + 4 * 4;

/// A digest of caller and operations (RFC 8881 section 2.10.6.1.3.1). It covers everything that a retry repeats; not
/// the SEQUENCE itself, whose hints may differ. 64-bit FNV-1a over the beginning and the length. It is stored in the
/// log, so it must not change with restarts or versions.
fn fingerprint(principal: Principal, args: &CompoundArgs, body: &Bytes) -> u64 {
    let skip = 4 + args.tag.len() + padding(args.tag.len()) + 8 + SEQUENCE_BYTES;
    let rest = body.get(skip..).unwrap_or_default();
    let beginning = rest.get(..limits::FINGERPRINT_BYTES.min(rest.len())).unwrap_or_default();
    let (flavor, uid) = (principal.flavor.to_be_bytes(), principal.uid.to_be_bytes());
    let (announced, len) = (args.announced.to_be_bytes(), (rest.len() as u64).to_be_bytes());
    [&flavor[..], &uid, &announced, &len, beginning].into_iter().fold(fnv::BEGIN, fnv::add)
}
