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
//!
//! Here are the values; `authority`, [`super::clients`] and [`super::v40`] apply the rules.

use crate::limits;
use landfast_rpc::Credential;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Who sent a request: the flavour and the user of the RPC credential (RFC 8881 section 2.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Principal {
    /// The RPC flavour: 0 none, 1 AUTH_SYS.
    pub flavor: u32,
    /// The user ID of AUTH_SYS; 0 for AUTH_NONE.
    pub uid: u32,
}

impl Principal {
    pub fn of(cred: &Credential) -> Principal {
        match cred {
            Credential::None => Principal { flavor: 0, uid: 0 },
            Credential::Sys(a) => Principal { flavor: 1, uid: a.uid },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    pub principal: Principal,
    pub addr: IpAddr,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addrs(Vec<IpAddr>);

impl Addrs {
    /// A client that was first heard of from here.
    pub fn at(addr: IpAddr) -> Addrs {
        Addrs(vec![addr])
    }

    /// The addresses from the log; an earlier version of the server wrote none.
    pub fn restored(addrs: Vec<IpAddr>) -> Addrs {
        Addrs(addrs)
    }

    /// Whether the client calls from this address. A client without known addresses may call from anywhere.
    pub fn has(&self, addr: IpAddr) -> bool {
        self.0.is_empty() || self.0.contains(&addr)
    }

    /// Adds an address that the client has proved to use. At the limit the oldest one is forgotten.
    pub fn add(&mut self, addr: IpAddr) {
        if self.0.contains(&addr) {
            return;
        }
        if self.0.len() >= limits::CLIENT_ADDRESSES_MAX {
            self.0.remove(0);
        }
        self.0.push(addr);
    }

    /// The one that it was heard of from last, for the first time.
    pub fn latest(&self) -> Option<IpAddr> {
        self.0.last().copied()
    }

    /// Whether two records may be of one host.
    pub fn overlaps(&self, other: &Addrs) -> bool {
        (self.0.is_empty() && other.0.is_empty()) || self.0.iter().any(|a| other.0.contains(a))
    }

    pub fn all(&self) -> &[IpAddr] {
        &self.0
    }
}
