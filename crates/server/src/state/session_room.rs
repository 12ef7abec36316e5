//! Room for sessions: where there is none, sessions of clients whose lease has expired are removed.

use super::notes::Stamped;
use super::refusals::AtLimit;
use super::{Millis, State};
use landfast_nfs::v4::{ChannelAttrs, NfsStat, SessionId};
use landfast_rpc::share_of;
use std::collections::HashSet;
use std::net::IpAddr;

impl<F> State<F> {
    /// Negotiates the fore channel of a session for a client at this address. Also returns the log's notes about
    /// sessions that were removed for it.
    ///
    /// # Errors
    /// - `TOOSMALL`;
    /// - `DELAY` while others, or this client's other sessions, have all the room: their clients have been told to use
    ///   fewer slots;
    /// - `NOSPC` when there is too little room although there is no session.
    pub fn room_for_session(
        &mut self,
        now: Millis,
        ask: &ChannelAttrs,
        share: IpAddr,
    ) -> Result<(ChannelAttrs, Vec<Stamped>), NfsStat> {
        let mut gone = Vec::new();
        loop {
            match self.sessions.negotiate(ask, share) {
                Err(NfsStat::NFS4ERR_NOSPC) => {}
                Err(other) => return Err(other),
                Ok(fore) => return Ok((fore, gone)),
            }
            let Some(lapsed) = self.lapsed_session(now) else { break };
            gone.extend(self.remove_session(&lapsed));
        }
        self.files.refusals.at(AtLimit::ReplayBytes);
        // The log must learn of removed sessions in any case; it does with the next snapshot.
        Err(if self.sessions.is_empty() { NfsStat::NFS4ERR_NOSPC } else { NfsStat::NFS4ERR_DELAY })
    }

    /// The session, with an expired lease, whose client was silent longest. The client keeps its opens; when it returns
    /// it makes another session.
    fn lapsed_session(&self, now: Millis) -> Option<SessionId> {
        let over = self.clients.iter().filter(|c| now.saturating_sub(c.renewed) > self.lease_ms);
        let idle = over.filter(|c| !self.sessions.client_is_busy(c.id));
        let with = idle.filter_map(|c| Some((c.renewed, *self.sessions.of_client(c.id).first()?)));
        with.min_by_key(|(renewed, _)| *renewed).map(|(_, id)| id)
    }

    /// The clients, by address, that hold state: sessions or NLM locks.
    pub fn holders(&self) -> HashSet<IpAddr> {
        let hosts = self.hosts.iter().filter(|h| self.files.nlm_busy(h.id));
        self.sessions.shares().chain(hosts.map(|h| share_of(h.addr))).collect()
    }
}
