//! Which host a client is, and so who may speak for it.
//!
//! With AUTH_SYS a principal is only what a host says: its user 0 looks like every other host's. What tells two hosts apart is
//! the address that they call from, so a client is an owner's name *at an address*, under the principal that made it:
//!
//! | what comes | from an address of the client | from another |
//! |---|---|---|
//! | EXCHANGE_ID, SETCLIENTID | the cases of the RFCs, `CLID_INUSE` for another principal among them | another client, whatever it calls itself: neither can end the other or keep it out |
//! | CREATE_SESSION, SETCLIENTID_CONFIRM, DESTROY_CLIENTID | by the principal that made the client | `STALE_CLIENTID` |
//! | DESTROY_SESSION | by the principal that made the client | `BADSESSION` |
//! | SEQUENCE, BIND_CONN_TO_SESSION | any user of the client; a binding by the principal that made it | the same: a session's name is a secret between server and client, so whoever has it is the client, and its address is known from now on |
//! | BACKCHANNEL_CTL, RECLAIM_COMPLETE | by the principal that made the client; others `INVAL` | the same |
//! | a client ID of NFSv4.0 in RENEW, OPEN, LOCK, LOCKT, RELEASE_LOCKOWNER | any user of the client | see [`super::State::speaks40`]: not before the lease is over |
//!
//! So a client whose address changes (DHCP, another interface, NAT) goes on with the session that it has. One that comes back
//! without it is a new client at once; what the former one held is in its way for the rest of that one's lease, as after any
//! client that died. Hosts behind one address cannot be told apart, and two of them with one name are one client.

use super::{Principal, State};
use crate::limits;
use landfast_nfs::v4::{NfsStat, SessionId};
use std::net::IpAddr;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// As whom.
    pub principal: Principal,
    /// From where, in canonical form.
    pub addr: IpAddr,
}

/// Where a client calls from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addrs(Vec<IpAddr>);

impl Addrs {
    /// A client that was first heard of from here.
    #[must_use]
    pub fn at(addr: IpAddr) -> Addrs {
        Addrs(vec![addr])
    }

    /// As the log has it; an earlier version of the server wrote none.
    #[must_use]
    pub fn restored(addrs: Vec<IpAddr>) -> Addrs {
        Addrs(addrs)
    }

    /// Whether the client calls from here. One of which no address is known may call from anywhere.
    #[must_use]
    pub fn has(&self, addr: IpAddr) -> bool {
        self.0.is_empty() || self.0.contains(&addr)
    }

    /// The client has shown that it is here, too; the address that was heard of first is forgotten at the limit.
    pub fn add(&mut self, addr: IpAddr) {
        if self.0.contains(&addr) {
            return;
        }
        if self.0.len() >= limits::CLIENT_ADDRESSES_MAX {
            self.0.remove(0);
        }
        self.0.push(addr);
    }

    /// Whether two records may be of one host.
    #[must_use]
    pub fn meets(&self, other: &Addrs) -> bool {
        (self.0.is_empty() && other.0.is_empty()) || self.0.iter().any(|a| other.0.contains(a))
    }

    /// All that are known.
    #[must_use]
    pub fn all(&self) -> &[IpAddr] {
        &self.0
    }
}

impl<F> State<F> {
    /// Whether this session is the asker's to end: its client.
    ///
    /// # Errors
    /// `BADSESSION` from another address, `WRONG_CRED` for another principal.
    pub fn may_end_session(&self, id: &SessionId, by: Asker) -> Result<u64, NfsStat> {
        let client = self.sessions.get(id).ok_or(NfsStat::NFS4ERR_BADSESSION)?.client;
        self.may_end(client, by, NfsStat::NFS4ERR_BADSESSION)
    }

    /// Whether this client is the asker, who may end it.
    ///
    /// # Errors
    /// `STALE_CLIENTID` from another address, `WRONG_CRED` for another principal.
    pub fn may_end_client(&self, id: u64, by: Asker) -> Result<u64, NfsStat> {
        self.may_end(id, by, NfsStat::NFS4ERR_STALE_CLIENTID)
    }

    fn may_end(&self, id: u64, by: Asker, elsewhere: NfsStat) -> Result<u64, NfsStat> {
        let c = self.clients.get(id).filter(|c| c.addrs.has(by.addr)).ok_or(elsewhere)?;
        if c.principal != by.principal {
            return Err(NfsStat::NFS4ERR_WRONG_CRED);
        }
        Ok(id)
    }

    /// Somebody uses a session by its name: that is its client, wherever it calls from. Which client.
    ///
    /// # Errors
    /// `BADSESSION`.
    pub fn heard_on(&mut self, id: &SessionId, addr: IpAddr) -> Result<u64, NfsStat> {
        let client = self.sessions.get(id).ok_or(NfsStat::NFS4ERR_BADSESSION)?.client;
        self.clients.heard_at(client, addr);
        Ok(client)
    }

    /// The same of a connection that is bound for callbacks: they are the host's, not one of its users'.
    ///
    /// # Errors
    /// `BADSESSION`.
    pub fn binds(&mut self, id: &SessionId, by: Asker) -> Result<u64, NfsStat> {
        if !self.is_spoken_for_by(id, by.principal) {
            return Err(NfsStat::NFS4ERR_BADSESSION);
        }
        self.heard_on(id, by.addr)
    }

    /// Whether this principal says for the session's client where callbacks go, and that it has reclaimed all: the one that made it.
    #[must_use]
    pub fn is_spoken_for_by(&self, id: &SessionId, by: Principal) -> bool {
        let client = self.sessions.get(id).and_then(|s| self.clients.get(s.client));
        client.is_some_and(|c| c.principal == by)
    }
}
