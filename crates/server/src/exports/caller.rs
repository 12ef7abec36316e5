//! Who sends a request, and what the rules of an export give them.

use super::hosts::Names;
use landfast_rpc::{AuthStat, Credential};
use landfast_volume::Cred;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// What a call from an address gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is looked at.
    Taken,
    /// What the address is called decides, and is being asked for: it may try again.
    NotYet,
    /// Nothing.
    Refused(AuthStat),
}

/// Who sends a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// From where; an IPv4 address that came over IPv6 stands here as IPv4.
    pub(crate) addr: IpAddr,
    /// From which port.
    pub(crate) port: u16,
    /// As whom.
    pub(crate) credential: Credential,
    /// What the address is called, where that matters and is known.
    pub(crate) names: Option<Arc<Names>>,
    /// The user's groups as looked up, where that matters and is known.
    pub(crate) groups: Option<Arc<[u32]>>,
}

impl Caller {
    pub(crate) fn new(peer: SocketAddr, credential: Credential) -> Caller {
        Caller { addr: peer.ip().to_canonical(), port: peer.port(), credential, names: None, groups: None }
    }
}

/// What a caller may do on an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    /// It may change nothing.
    pub(crate) read_only: bool,
    /// As whom the volume sees it.
    pub(crate) cred: Cred,
}

/// Why a caller may not use an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Not from that address: for this caller the export is not there.
    Access,
    /// Not with that flavor of credential; another might do.
    Flavor,
    /// What decides is being asked for: it may try again.
    NotYet,
}
