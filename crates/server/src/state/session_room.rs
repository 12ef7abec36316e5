//! Room for sessions: where there is none, clients whose lease is over make room for whoever asks.

use super::notes::Stamped;
use super::refusals::AtLimit;
use super::{Millis, State};
use landfast_nfs::v4::{ChannelAttrs, NfsStat, SessionId};
use landfast_rpc::share_of;
use std::collections::HashSet;
use std::net::IpAddr;

impl<F> State<F> {
    /// The fore channel of a session for a client at this address, and what the log has to know of the sessions that made room
    /// for it.
    ///
    /// # Errors
    /// `TOOSMALL`; `DELAY` while others, or this client's other sessions, have all the room: their clients have been told to
    /// use fewer slots.
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
        // What was taken from clients whose lease is over must be said in any case; it is, with the next snapshot.
        Err(if self.sessions.is_empty() { NfsStat::NFS4ERR_NOSPC } else { NfsStat::NFS4ERR_DELAY })
    }

    /// The session of the client that was silent longest, if its lease is over. The client keeps what it has open: when it comes
    /// back it makes another session.
    fn lapsed_session(&self, now: Millis) -> Option<SessionId> {
        let over = self.clients.iter().filter(|c| now.saturating_sub(c.renewed) > self.lease_ms);
        let idle = over.filter(|c| !self.sessions.client_is_busy(c.id));
        let with = idle.filter_map(|c| Some((c.renewed, *self.sessions.of_client(c.id).first()?)));
        with.min_by_key(|(renewed, _)| *renewed).map(|(_, id)| id)
    }

    /// The clients, by address, that hold state: sessions, or locks by NLM.
    #[must_use]
    pub fn holders(&self) -> HashSet<IpAddr> {
        let hosts = self.hosts.iter().filter(|h| self.files.nlm_busy(h.id));
        self.sessions.shares().chain(hosts.map(|h| share_of(h.addr))).collect()
    }
}
