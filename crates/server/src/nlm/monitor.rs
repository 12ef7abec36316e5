//! The status monitor (C702 chapter 11). Its clients are this server's own lock manager and the monitors of its lock
//! clients: of the procedures for others on this host only the refusal is here.

use super::manager::Nlm;
use crate::limits;
use crate::state::nlm::Host;
use bytes::Bytes;
use landfast_nfs::nsm::{self, MonId, MyId, SmName, Stat, StatChange, StatRes, proc};
use landfast_nfs::v4::Opaque1024;
use landfast_rpc::conn::{CallHeader, Response};
use landfast_xdr::{Decode, Encode};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

impl Nlm {
    pub(super) async fn status_monitor(&self, peer: SocketAddr, call: &CallHeader, body: Bytes) -> Response {
        let state = self.number;
        let stat = |decodes: bool, res: Bytes| {
            if decodes { Response::Success(res) } else { Response::GarbageArgs }
        };
        let failed = StatRes { res_stat: nsm::STAT_FAIL, state }.to_bytes();
        match call.proc {
            proc::NULL => Response::Success(Bytes::new()),
            proc::STAT => stat(SmName::from_bytes(body).is_ok(), failed),
            proc::MON => stat(nsm::Mon::from_bytes(body).is_ok(), failed),
            proc::UNMON => stat(MonId::from_bytes(body).is_ok(), Stat { state }.to_bytes()),
            proc::UNMON_ALL => stat(MyId::from_bytes(body).is_ok(), Stat { state }.to_bytes()),
            // Nobody may make this server forget.
            proc::SIMU_CRASH => Response::Success(Bytes::new()),
            proc::NOTIFY => match StatChange::from_bytes(body) {
                Ok(change) => {
                    self.restarted(peer, &change.mon_name.0, Some(change.state)).await;
                    Response::Success(Bytes::new())
                }
                Err(_) => Response::GarbageArgs,
            },
            _ => Response::ProcUnavail,
        }
    }
}

/// Tells each host that may have held something that this server has restarted, so that it reclaims. Each again until it
/// answers or the attempts are over; not all at once.
pub(super) async fn notify_all(nlm: Nlm) {
    let hosts = nlm.sh.state().nlm_to_notify();
    if hosts.is_empty() {
        return;
    }
    // The kernel's own word: there is no name that all clients know this server by, and they look at the address, too.
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: Bytes = name.trim_ascii().to_vec().into();
    let room = Arc::new(Semaphore::new(limits::NSM_NOTIFIES_MAX));
    let mut telling = JoinSet::new();
    for host in hosts {
        telling.spawn(notify(nlm.clone(), host, name.clone(), room.clone()));
    }
    while telling.join_next().await.is_some() {}
}

async fn notify(nlm: Nlm, host: Host, name: Bytes, room: Arc<Semaphore>) {
    let args = StatChange { mon_name: Opaque1024(name), state: nlm.number }.to_bytes();
    for pause in limits::NSM_NOTIFY_PAUSES {
        // It may have said itself that it has restarted.
        if nlm.sh.state().hosts.get(host.id).is_none() {
            return;
        }
        let told = {
            // The semaphore is never closed.
            let _permit = room.acquire().await;
            nlm.peers.notify(host.addr, args.clone()).await
        };
        if told.is_ok() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
    tracing::warn!("the lock client at {} was not told of the restart: it does not answer", host.addr);
}
