//! NLM version 4 and NSM, the lock manager and the status monitor of NFSv3 (RFC 1813 appendix II; C702 chapters 10, 11,
//! 14), on the same port as NFS, over TCP and UDP.
//!
//! - [`procs`]: the lock manager's procedures; their state is [`crate::state::nlm`], in the tables of all versions;
//! - `grants`: telling clients of locks that they waited for;
//! - `monitor`: the status monitor: telling clients of a restart of this server, hearing of theirs;
//! - `peers`: calls to a client, whose port its port mapper knows.
//!
//! What a host holds is changed from the address that it was taken from, or from another one that the host's name leads to, too
//! ([`Nlm::meant`]); and only while the rules of the export let that address in.
//!
//! Invariants: a client hears GRANTED only when the log says that it may hold something; a lock that a client may have
//! heard of is taken from it only by its own word.

mod grants;
mod monitor;
mod peers;
mod procs;

use crate::admission::{Admission, is_for_all};
use crate::server::Shared;
use crate::state::nlm::By;
use crate::state::notes::Stamped;
use bytes::Bytes;
use landfast_nfs::{nlm, nsm};
use landfast_rpc::conn::{CallHeader, Program, Response};
use peers::Peers;
use std::net::SocketAddr;
use std::sync::Arc;

/// The programs served here.
pub(crate) const PROGRAMS: &[Program] = &[
    Program { number: nlm::PROGRAM, low: nlm::VERSION, high: nlm::VERSION },
    Program { number: nsm::PROGRAM, low: nsm::VERSION, high: nsm::VERSION },
];

/// The lock manager and the status monitor of a server.
#[derive(Clone)]
pub(crate) struct Nlm {
    sh: Arc<Shared>,
    peers: Arc<Peers>,
    /// The state of the status monitor: odd, and another after each start.
    number: i32,
}

impl Nlm {
    /// For the server instance `epoch`; clients' port mappers are at this port.
    pub(crate) fn new(sh: Arc<Shared>, epoch: u32, portmapper: u16) -> Nlm {
        let number = ((epoch & 0x3fff_ffff) << 1 | 1) as i32;
        Nlm { sh, peers: Arc::new(Peers::new(portmapper)), number }
    }

    /// All that goes on besides answering calls; ends with the runtime or when dropped.
    pub(crate) async fn run(self) {
        tokio::join!(grants::run(self.clone()), monitor::notify_all(self));
    }

    /// Serves a call by datagram, whose sender may be made up: a stranger hears nothing, but for NULL.
    pub(crate) async fn datagram(&self, peer: SocketAddr, call: CallHeader, body: Bytes) -> Response {
        if !is_for_all(call.prog, call.proc) && self.sh.admission(peer).await != Admission::Taken {
            self.sh.counters.stranger();
            return Response::Close;
        }
        self.call(peer, true, call, body).await
    }

    /// Serves a call of one of [`PROGRAMS`].
    pub(crate) async fn call(&self, peer: SocketAddr, udp: bool, call: CallHeader, body: Bytes) -> Response {
        match call.prog {
            nlm::PROGRAM => self.lock_manager(peer, By { udp, message: false }, call, body).await,
            _ => self.status_monitor(peer, &call, body).await,
        }
    }

    /// Writes notes into the log and waits until they are stable. Where there is no log there is nothing to wait for.
    async fn keep(&self, notes: Vec<Stamped>) -> Result<(), landfast_volume::Error> {
        let exports = self.sh.exports();
        let Some(keeper) = exports.keeper().filter(|_| !notes.is_empty()) else {
            return Ok(());
        };
        let receipt = {
            let mut tx = keeper.volume.tx();
            for note in &notes {
                tx.note(note.to_bytes());
            }
            tx.finish()
        };
        receipt.wait().await
    }

    /// Sees to it that the log knows of this host before it hears that it has something.
    async fn keep_host(&self, host: u64, mut notes: Vec<Stamped>) -> Result<(), landfast_volume::Error> {
        let new = self.sh.state().nlm_note(host);
        let noted = new.is_some();
        notes.extend(new);
        self.keep(notes).await?;
        if noted {
            self.sh.state().nlm_is_noted(host);
        }
        Ok(())
    }
}
