//! Dispatch of RPC calls: checks that the caller is admitted, then takes each call to its program.

use crate::admission::is_for_all;
use crate::exports::caller::Admission;
use crate::exports::name_cache::Wait;
use crate::mount::Mounts;
use crate::nlm::Nlm;
use crate::path::Executor;
use crate::refused_clients::Reason;
use crate::state::nlm::RequestForm;
use crate::{sys, v3, v4};
use bytes::Bytes;
use landfast_nfs::v4::{PROC_COMPOUND, PROC_NULL, VERSION};
use landfast_nfs::{mount, nfsacl};
use landfast_rpc::conn::{CallHeader, ConnInfo, Program, Response, Service};
use landfast_rpc::{AuthStat, Standing, Turn};
use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::Arc;

/// Takes each call to its program: NFS, NFSACL, MOUNT, NLM or NSM.
pub(crate) struct Dispatcher {
    pub(crate) executor: Executor,
    pub(crate) nlm: Nlm,
    pub(crate) mounts: Mounts,
    pub(crate) programs: Vec<Program>,
}

impl Service for Dispatcher {
    fn programs(&self) -> &[Program] {
        &self.programs
    }

    async fn call(&self, conn: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        let begun = std::time::Instant::now();
        let program = match (call.prog, call.vers) {
            (landfast_nfs::PROGRAM, VERSION) => 0,
            (landfast_nfs::PROGRAM, _) => 1,
            (nfsacl::PROGRAM, _) => 2,
            (mount::PROGRAM, _) => 3,
            _ => 4,
        };
        let response = self.executor.workers.during(pin!(self.serve(conn, call, body))).await;
        self.executor.sh.counters.took(program, begun.elapsed());
        response
    }

    fn standing(&self, addr: IpAddr) -> Standing {
        self.executor.sh.standing(addr)
    }

    fn standings(&self) -> u64 {
        self.executor.sh.tables()
    }

    fn holders(&self) -> HashSet<IpAddr> {
        self.executor.sh.state().holders()
    }

    fn stalls(&self) -> bool {
        self.executor.workers.hand_over()
    }

    fn closed(&self, conn: &Arc<ConnInfo>) {
        self.executor.sh.callback_conns.remove(conn.id());
        let mut st = self.executor.sh.state();
        st.sessions.disconnected(conn.id());
        st.drc.connection_ended(conn.id());
    }

    fn drained(&self, conn: &Arc<ConnInfo>, socket: BorrowedFd<'_>) {
        if sys::unacknowledged(socket).is_ok_and(|bytes| bytes == 0) {
            self.executor.sh.state().drc.connection_answered(conn.id());
        }
    }
}

impl Dispatcher {
    async fn serve(&self, conn: &Arc<ConnInfo>, mut call: CallHeader, body: Bytes) -> Response {
        let mut known = true;
        if !is_for_all(call.prog, call.proc) {
            let sh = &self.executor.sh;
            let admission = pin!(sh.admission_to(conn.peer(), call.prog, call.proc, Wait::ALittle));
            match call.turn.before(admission).await {
                Admission::Taken => {}
                Admission::NotYet => known = false,
                Admission::Refused(why) => {
                    self.executor.sh.counters.stranger();
                    let reason = if why == AuthStat::TOOWEAK { Reason::Port } else { Reason::Address };
                    let peer = conn.peer();
                    self.executor.sh.refused_clients.log(peer.ip().to_canonical(), peer.port(), None, reason);
                    return Response::AuthError(why);
                }
            }
        }
        match (call.prog, call.vers) {
            (landfast_nfs::PROGRAM, landfast_nfs::v3::VERSION) => {
                return v3::nfs(&self.executor, conn, call, body).await;
            }
            (landfast_nfs::PROGRAM, _) => {}
            (nfsacl::PROGRAM, _) => return v3::nfsacl(&self.executor, conn, call, body).await,
            (mount::PROGRAM, _) => return self.mounts.call(&self.executor.sh, conn, call, body).await,
            _ => {
                let mut turn = std::mem::replace(&mut call.turn, Turn::free());
                let at = Some(conn.local().ip().to_canonical());
                let by = RequestForm { udp: false, message: false, at };
                return turn.during(pin!(self.nlm.call(conn.peer(), by, call, body))).await;
            }
        }
        match call.proc {
            PROC_NULL => Response::Success(Bytes::new()),
            PROC_COMPOUND if !known => v4::compound_not_yet(body),
            PROC_COMPOUND => v4::compound(&self.executor, conn, call, body).await,
            _ => Response::ProcUnavail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that `_` makes.
    fn bytes<'a, F: Future>(
        _: impl FnOnce(&'a Dispatcher, &'a Arc<ConnInfo>, CallHeader, Bytes) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// The future is written, and partly copied, for each call.
    #[test]
    fn a_call_under_way_takes_little_room() {
        let all = [
            ("compound", bytes(|d, conn, call, body| v4::compound(&d.executor, conn, call, body))),
            ("v3", bytes(|d, conn, call, body| v3::nfs(&d.executor, conn, call, body))),
            ("nfsacl", bytes(|d, conn, call, body| v3::nfsacl(&d.executor, conn, call, body))),
            ("mount", bytes(|d, conn, call, body| d.mounts.call(&d.executor.sh, conn, call, body))),
            ("serve", bytes(Dispatcher::serve)),
            ("call", bytes(<Dispatcher as Service>::call)),
        ];
        assert!(all.iter().all(|(_, bytes)| *bytes <= 4096), "{all:?}");
    }
}
