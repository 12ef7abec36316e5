//! The programs that are served, and what answers which call.

use crate::admission::{Admission, is_for_all};
use crate::mount::Mounts;
use crate::nlm::Nlm;
use crate::pool::Pool;
use crate::released::Released;
use crate::server::Shared;
use crate::state::Principal;
use crate::turned_away::Why;
use crate::v4::compound_not_yet;
use crate::workers::Workers;
use bytes::Bytes;
use landfast_nfs::v4::{PROC_COMPOUND, PROC_NULL, VERSION};
use landfast_nfs::{mount, nfsacl, v3};
use landfast_rpc::conn::{CallHeader, ConnInfo, Program, Response, Service};
use landfast_rpc::{AuthStat, Credential, Standing, Turn};
use std::collections::HashSet;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

/// What answers the calls of all programs.
pub(crate) struct Nfs {
    pub(crate) sh: Arc<Shared>,
    pub(crate) nlm: Nlm,
    /// For what waits for the disk, so that it takes no thread from what does not.
    pub(crate) slow: Arc<Pool>,
    /// For copies that go on after their COPY was answered.
    pub(crate) copying: Arc<Pool>,
    /// The threads that calls run on.
    pub(crate) workers: Workers,
    /// Tells of slots, and calls without a session, that have been answered.
    pub(crate) released: Released,
    /// Who has mounted what with MOUNT.
    pub(crate) mounts: Mounts,
    /// What is served, with the versions.
    pub(crate) programs: Vec<Program>,
}

impl Service for Nfs {
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
        let response = self.workers.during(pin!(self.serve(conn, call, body))).await;
        self.sh.counters.took(program, begun.elapsed());
        response
    }

    fn standing(&self, addr: IpAddr) -> Standing {
        self.sh.standing(addr)
    }

    fn standings(&self) -> u64 {
        self.sh.tables()
    }

    fn holders(&self) -> HashSet<IpAddr> {
        self.sh.state().holders()
    }

    fn closed(&self, conn: &Arc<ConnInfo>) {
        self.sh.lines.remove(conn.id());
        let mut st = self.sh.state();
        st.sessions.disconnected(conn.id());
        st.drc.connection_ended(conn.id(), conn.ended_by_peer());
    }
}

impl Nfs {
    async fn serve(&self, conn: &Arc<ConnInfo>, mut call: CallHeader, body: Bytes) -> Response {
        let mut known = true;
        if !is_for_all(call.prog, call.proc) {
            match call.turn.before(pin!(self.sh.admission(conn.peer()))).await {
                Admission::Taken => {}
                Admission::NotYet => known = false,
                Admission::Refused(why) => {
                    self.sh.counters.stranger();
                    let reason = if why == AuthStat::TOOWEAK { Why::Port } else { Why::Address };
                    let peer = conn.peer();
                    self.sh.turned_away.tell(peer.ip().to_canonical(), peer.port(), None, reason);
                    return Response::AuthError(why);
                }
            }
        }
        match (call.prog, call.vers) {
            (landfast_nfs::PROGRAM, v3::VERSION) => return self.v3(conn, call, body).await,
            (landfast_nfs::PROGRAM, _) => {}
            (nfsacl::PROGRAM, _) => return self.nfsacl(conn, call, body).await,
            (mount::PROGRAM, _) => return self.mount(conn, call, body).await,
            _ => {
                let mut turn = std::mem::replace(&mut call.turn, Turn::free());
                return turn.during(pin!(self.nlm.call(conn.peer(), false, call, body))).await;
            }
        }
        match call.proc {
            PROC_NULL => Response::Success(Bytes::new()),
            PROC_COMPOUND if !known => compound_not_yet(body),
            PROC_COMPOUND => self.compound(conn, call, body).await,
            _ => Response::ProcUnavail,
        }
    }
}

/// Who calls, for sessions.
pub(crate) fn principal(cred: &Credential) -> Principal {
    match cred {
        Credential::None => Principal { flavor: 0, uid: 0 },
        Credential::Sys(a) => Principal { flavor: 1, uid: a.uid },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the future that this makes.
    fn bytes<'a, F: Future>(_: impl FnOnce(&'a Nfs, &'a Arc<ConnInfo>, CallHeader, Bytes) -> F) -> usize {
        size_of::<F>()
    }

    /// It is written, and some of it copied, for each call.
    #[test]
    fn a_call_under_way_takes_little_room() {
        let all = [
            ("compound", bytes(Nfs::compound)),
            ("v3", bytes(Nfs::v3)),
            ("nfsacl", bytes(Nfs::nfsacl)),
            ("mount", bytes(Nfs::mount)),
            ("serve", bytes(Nfs::serve)),
            ("call", bytes(<Nfs as Service>::call)),
        ];
        assert!(all.iter().all(|(_, bytes)| *bytes <= 4096), "{all:?}");
    }
}
