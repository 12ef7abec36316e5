//! Who may end or use a session or a client: applies the rules of [`super::identity`].

use super::State;
use super::bugs::{Bug, bug};
use super::identity::{Principal, Requester};
use landfast_nfs::v4::{NfsStat, SessionId};
use std::net::IpAddr;

impl<F> State<F> {
    /// Checks that the requester may end this session; returns its client.
    /// Errors: `BADSESSION` from another address, `WRONG_CRED` for another principal.
    pub fn may_end_session(&self, id: &SessionId, by: Requester) -> Result<u64, NfsStat> {
        let client = self.sessions.get(id).ok_or(NfsStat::NFS4ERR_BADSESSION)?.client;
        self.may_end(client, by, NfsStat::NFS4ERR_BADSESSION)
    }

    /// Checks that the requester is this client and may end it; returns its ID.
    /// Errors: `STALE_CLIENTID` from another address, `WRONG_CRED` for another principal.
    pub fn may_end_client(&self, id: u64, by: Requester) -> Result<u64, NfsStat> {
        self.may_end(id, by, NfsStat::NFS4ERR_STALE_CLIENTID)
    }

    fn may_end(&self, id: u64, by: Requester, elsewhere: NfsStat) -> Result<u64, NfsStat> {
        let c = self.clients.get(id).filter(|c| c.addrs.has(by.addr)).ok_or(elsewhere)?;
        if c.principal != by.principal {
            return Err(NfsStat::NFS4ERR_WRONG_CRED);
        }
        Ok(id)
    }

    /// A request used this session. Whoever knows its name is its client, from any address; returns that client.
    /// Errors: `BADSESSION`; `DELAY` while the log is told that the client goes, as its lease was over: it must not believe that it has renewed that.
    pub fn heard_on(&mut self, id: &SessionId, addr: IpAddr) -> Result<u64, NfsStat> {
        let client = self.sessions.get(id).ok_or(NfsStat::NFS4ERR_BADSESSION)?.client;
        if self.clients.get(client).is_some_and(|c| c.leaves) && !bug(Bug::ExpelledRenews) {
            return Err(NfsStat::NFS4ERR_DELAY);
        }
        self.clients.heard_at(client, addr);
        Ok(client)
    }

    /// The same for a connection that is bound for callbacks. Only the principal that made the client may bind one.
    /// Errors: `BADSESSION`.
    pub fn binds(&mut self, id: &SessionId, by: Requester) -> Result<u64, NfsStat> {
        if !self.is_spoken_for_by(id, by.principal) {
            return Err(NfsStat::NFS4ERR_BADSESSION);
        }
        self.heard_on(id, by.addr)
    }

    /// Did this principal make the session's client? Only it may say where callbacks go, and that all is reclaimed.
    pub fn is_spoken_for_by(&self, id: &SessionId, by: Principal) -> bool {
        let client = self.sessions.get(id).and_then(|s| self.clients.get(s.client));
        client.is_some_and(|c| c.principal == by)
    }
}
