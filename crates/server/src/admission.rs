//! Whose calls are accepted: only an address that some export names gets any state, memory or place.
//!
//! This is checked before a call is decoded. NULL is answered for everybody. MOUNT keeps nothing of a stranger and
//! itself decides what to refuse ([`crate::mount`]). Whom no export names any more may still give up its locks of NFSv3, since these have no
//! lease and nobody else can. Everything else is refused at the RPC level, as Linux' server does.

use crate::exports::Exports;
use crate::exports::caller::Admission;
use crate::exports::hosts::Names;
use crate::exports::name_cache::Wait;
use crate::shared::Shared;
use landfast_nfs::{mount, nlm, nsm};
use landfast_rpc::AuthStat;
use std::net::{IpAddr, SocketAddr};

/// Whether a call of this procedure is taken from whomever.
pub(crate) fn is_for_all(program: u32, proc: u32) -> bool {
    proc == 0 || program == mount::PROGRAM
}

/// Whether all that a call of this procedure does is to end what its caller holds or waits for.
fn gives_up(program: u32, proc: u32) -> bool {
    use nlm::proc::*;
    let of_nlm = [UNLOCK, UNLOCK_MSG, CANCEL, CANCEL_MSG, UNSHARE, FREE_ALL];
    program == nlm::PROGRAM && of_nlm.contains(&proc) || program == nsm::PROGRAM && proc == nsm::proc::NOTIFY
}

impl Shared {
    /// Whether a call of this procedure is taken from this address and port.
    pub(crate) async fn admission_to(
        &self,
        peer: SocketAddr,
        program: u32,
        proc: u32,
        wait: Wait,
    ) -> Admission {
        let admitted = self.admission(peer, wait).await;
        let unnamed = admitted == Admission::Refused(AuthStat::BADCRED);
        let holds = || self.state().hosts.any_at(peer.ip().to_canonical());
        if unnamed && gives_up(program, proc) && holds() { Admission::Taken } else { admitted }
    }

    /// Whether anything is served to this address and port.
    pub(crate) async fn admission(&self, peer: SocketAddr, wait: Wait) -> Admission {
        let exports = self.exports();
        let addr = peer.ip().to_canonical();
        match admit(&exports, addr, peer.port(), None) {
            Admission::NotYet => {
                let names = self.names_of(addr, &exports, wait).await;
                admit(&exports, addr, peer.port(), names.as_deref())
            }
            known => known,
        }
    }
}

pub(crate) fn admit(exports: &Exports, addr: IpAddr, port: u16, names: Option<&Names>) -> Admission {
    let mut found = Admission::Refused(AuthStat::BADCRED);
    for rules in exports.rules() {
        match (rules.admits(addr, port, names), found) {
            (Admission::Taken, _) => return Admission::Taken,
            (Admission::NotYet, _) => found = Admission::NotYet,
            (refused, Admission::Refused(AuthStat::BADCRED)) => found = refused,
            _ => {}
        }
    }
    found
}
