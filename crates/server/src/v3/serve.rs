//! From a received call to its reply: once only, announced to the log, and not before the log has it.

use super::{Asked, Outcome, Request, run};
use crate::once::{InHand, Once};
use crate::replies;
use crate::serve::{Nfs, principal};
use crate::state::drc::{CallKey, CallNumbers, Origin};
use bytes::Bytes;
use landfast_nfs::nfsacl::{self, GetaclArgs, SetaclArgs};
use landfast_nfs::v3::args::NoCall;
use landfast_nfs::v3::{Call, NfsStat3};
use landfast_rpc::Turn;
use landfast_rpc::conn::{CallHeader, ConnInfo, Response};
use landfast_xdr::Decode;
use std::sync::Arc;

impl Nfs {
    /// Serves a call of NFS version 3.
    pub(crate) async fn v3(&self, conn: &Arc<ConnInfo>, header: CallHeader, body: Bytes) -> Response {
        let call = match Call::decode(header.proc, body.clone()) {
            Ok(Call::Null) => return Response::Success(Bytes::new()),
            Ok(call) => call,
            Err(NoCall::NoProcedure) => return Response::ProcUnavail,
            Err(NoCall::Garbage(_)) => return Response::GarbageArgs,
        };
        self.asked(conn, header, Asked::V3(call), &body).await
    }

    /// Serves a call of NFSACL.
    pub(crate) async fn nfsacl(&self, conn: &Arc<ConnInfo>, header: CallHeader, body: Bytes) -> Response {
        let call = match header.proc {
            nfsacl::proc::NULL => return Response::Success(Bytes::new()),
            nfsacl::proc::GETACL => GetaclArgs::from_bytes(body.clone()).map(Asked::Getacl),
            nfsacl::proc::SETACL => SetaclArgs::from_bytes(body.clone()).map(Asked::Setacl),
            _ => return Response::ProcUnavail,
        };
        match call {
            Ok(call) => self.asked(conn, header, call, &body).await,
            Err(_) => Response::GarbageArgs,
        }
    }

    async fn asked(&self, conn: &Arc<ConnInfo>, header: CallHeader, call: Asked, body: &[u8]) -> Response {
        let principal = principal(&header.cred);
        let CallHeader { xid, prog: program, vers: version, proc: procedure, cred, mut turn, .. } = header;
        let caller = turn.before(self.sh.caller(conn.peer(), cred)).await;
        let Some(changed) = call.changes() else {
            let room = turn.before(conn.room(replies::v3(&call))).await;
            let req = Arc::new(Request { caller, call, key: None });
            let outcome = self.run_v3(&req, false, &mut turn).await;
            return self.conclude(&req, None, outcome).await.in_room(room);
        };
        let key = call.is_kept().then(|| {
            let numbers = CallNumbers { xid, program, version, procedure };
            CallKey::new(caller.addr, numbers, principal, body)
        });
        let in_hand = match &key {
            None => None,
            Some(key) => {
                match turn.before(self.once(key, Origin { conn: conn.id(), port: caller.port })).await {
                    Once::Execute(in_hand) => Some(in_hand),
                    Once::Replay(reply) => {
                        self.sh.counters.replay();
                        return Response::Success(reply);
                    }
                    Once::Busy => return Response::Close,
                }
            }
        };
        let export = self.sh.exports().of_handle(&changed.0).cloned();
        let slow = export.as_ref().is_some_and(|e| call.may_flush(e));
        if let Some(export) = &export {
            // A volume that has failed says so again to each call.
            let _ = turn.before(export.volume.admit()).await;
        }
        // Requests that are here already share a flush: see `Nfs::compound`.
        let announced = export.filter(|_| !slow).and_then(|e| e.volume.expect());
        if announced.as_ref().is_some_and(|intent| intent.in_company()) {
            tokio::task::yield_now().await;
        }
        let req = Arc::new(Request { caller, call, key });
        let outcome = self.run_v3(&req, slow, &mut turn).await;
        drop(announced);
        self.conclude(&req, in_hand, outcome).await
    }

    /// Waits for the log, if the call changed anything.
    async fn conclude(
        &self,
        req: &Request,
        in_hand: Option<InHand<'_>>,
        outcome: Option<Outcome>,
    ) -> Response {
        let Some(Outcome { reply, receipts }) = outcome else { return Response::Close };
        if let Some(receipts) = receipts
            && receipts.wait().await.is_err()
        {
            return Response::Success(req.call.failed(NfsStat3::IO));
        }
        if let Some(in_hand) = in_hand {
            in_hand.settle();
        }
        Response::Segments(reply)
    }

    /// Runs a call, and lets go of its turn; `None` when that failed.
    async fn run_v3(&self, req: &Arc<Request>, slow: bool, turn: &mut Turn) -> Option<Outcome> {
        if !slow {
            let outcome = run(&self.sh, req);
            turn.give();
            return Some(outcome);
        }
        turn.give();
        let (done, outcome) = tokio::sync::oneshot::channel();
        let (sh, req) = (self.sh.clone(), req.clone());
        self.slow.run_for(req.caller.addr, move || {
            let outcome = run(&sh, &req);
            if let Some(receipts) = &outcome.receipts {
                receipts.request();
            }
            // The other end waits until the job has run or was dropped.
            let _ = done.send(outcome);
        });
        outcome.await.ok()
    }
}
