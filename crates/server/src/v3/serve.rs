//! From a received call to the path that it takes ([`crate::path`]).

use super::{DecodedCall, Parked, Request, run};
use crate::path::{Executor, Outcome, Plan, Work};
use crate::reply_sizes;
use crate::shared::Shared;
use bytes::Bytes;
use landfast_nfs::nfsacl::{self, GetaclArgs, SetaclArgs};
use landfast_nfs::v3::Call;
use landfast_nfs::v3::args::NoCall;
use landfast_rpc::conn::{CallHeader, ConnInfo, Response};
use landfast_xdr::Decode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Serves a call of NFS version 3.
pub(crate) async fn nfs(
    executor: &Executor,
    conn: &Arc<ConnInfo>,
    header: CallHeader,
    body: Bytes,
) -> Response {
    let call = match Call::decode(header.proc, body.clone()) {
        Ok(Call::Null) => return Response::Success(Bytes::new()),
        Ok(call) => call,
        Err(NoCall::NoProcedure) => return Response::ProcUnavail,
        Err(NoCall::Garbage(_)) => return Response::GarbageArgs,
    };
    answer(executor, conn, header, DecodedCall::V3(call), body).await
}

pub(crate) async fn nfsacl(
    executor: &Executor,
    conn: &Arc<ConnInfo>,
    header: CallHeader,
    body: Bytes,
) -> Response {
    let call = match header.proc {
        nfsacl::proc::NULL => return Response::Success(Bytes::new()),
        nfsacl::proc::GETACL => GetaclArgs::from_bytes(body.clone()).map(DecodedCall::Getacl),
        nfsacl::proc::SETACL => SetaclArgs::from_bytes(body.clone()).map(DecodedCall::Setacl),
        _ => return Response::ProcUnavail,
    };
    match call {
        Ok(call) => answer(executor, conn, header, call, body).await,
        Err(_) => Response::GarbageArgs,
    }
}

async fn answer(
    executor: &Executor,
    conn: &Arc<ConnInfo>,
    header: CallHeader,
    call: DecodedCall,
    body: Bytes,
) -> Response {
    let changed = call.changes();
    let export = changed.and_then(|changed| executor.sh.exports().of_handle(&changed.0).cloned());
    let plan = Plan {
        slow: export.as_ref().is_some_and(|e| call.may_flush(e)),
        exports: export.into_iter().collect(),
        kept: call.is_kept(),
        reply_max: reply_sizes::v3(&call),
    };
    executor
        .answer(conn, header, body, plan, |caller, key| Request {
            caller,
            call,
            key,
            parked: Parked::default(),
        })
        .await
}

impl Work for Request {
    fn run(&self, sh: &Shared) -> Outcome {
        run(sh, self)
    }

    fn still_waits(&self, sh: &Shared) -> bool {
        let mut looks = self.parked.looks.lock();
        looks.as_mut().is_some_and(|looks| looks.still_waits(&sh.state()))
    }

    fn has_another_run(&self) -> bool {
        let over = self.parked.over.swap(true, Ordering::AcqRel);
        !over && self.parked.looks.lock().is_some()
    }
}
