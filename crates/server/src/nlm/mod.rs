//! NLM version 4 and NSM, the lock manager and the status monitor of NFSv3 (RFC 1813 appendix II; C702 chapters 10, 11,
//! 14), on the same port as NFS, over TCP and UDP.
//!
//! - [`procs`]: the lock manager's procedures; their state is [`crate::state::nlm`], in the tables of all versions;
//! - `manager`: what these share, and what the log has to know;
//! - `grants`: tells clients of locks that they waited for;
//! - `monitor`: the status monitor: tells clients of a restart of this server, and hears of theirs;
//! - `peers`: calls to a client, whose port its port mapper knows.
//!
//! What a host holds may be changed only from the address that it was taken from, or from another address that the
//! host's name resolves to (`meant`); and only while the rules of the export admit that address.
//!
//! Invariants: a client hears GRANTED only when the log says that it may hold something. A lock that a client may have
//! heard of is taken from it only at its own request.

mod grants;
mod manager;
mod monitor;
mod peers;
mod procs;

use crate::admission::is_for_all;
use crate::exports::caller::Admission;
use crate::state::nlm::RequestForm;
use bytes::Bytes;
use landfast_nfs::nlm;
use landfast_rpc::conn::{CallHeader, Response};
pub(crate) use manager::Nlm;
use std::net::{IpAddr, SocketAddr};

impl Nlm {
    /// The background tasks: grants locks that become free, tells clients of the restart. Ends with the runtime or when dropped.
    pub(crate) async fn run(self) {
        tokio::join!(grants::run(self.clone()), monitor::notify_all(self));
    }

    /// Serves a call by datagram. Its source address may be forged, so a caller that is not admitted gets no reply, except to NULL.
    /// `at` is the address that it came to, if known.
    pub(crate) async fn datagram(
        &self,
        peer: SocketAddr,
        at: Option<IpAddr>,
        call: CallHeader,
        body: Bytes,
    ) -> Response {
        if !is_for_all(call.prog, call.proc) && self.sh.admission(peer).await != Admission::Taken {
            self.sh.counters.stranger();
            return Response::Close;
        }
        self.call(peer, RequestForm { udp: true, message: false, at }, call, body).await
    }

    /// Serves a call of one of [`crate::protocols::LOCK_PROGRAMS`].
    pub(crate) async fn call(
        &self,
        peer: SocketAddr,
        by: RequestForm,
        call: CallHeader,
        body: Bytes,
    ) -> Response {
        match call.prog {
            nlm::PROGRAM => self.lock_manager(peer, by, call, body).await,
            _ => self.status_monitor(peer, &call, body).await,
        }
    }
}
