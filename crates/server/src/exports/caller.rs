//! Callers, and what an export's rules decide about them.

use super::hosts::Names;
use landfast_rpc::{AuthStat, Credential};
use landfast_volume::Cred;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Whether a call from an address is accepted at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Taken,
    /// The names of the address decide and are being looked up: the client may retry.
    NotYet,
    Refused(AuthStat),
}

#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Its address; an IPv4 address that came over IPv6 is an IPv4 address here.
    pub(crate) addr: IpAddr,
    pub(crate) port: u16,
    pub(crate) credential: Credential,
    /// The names of the address, if a rule needs them and they are known.
    pub(crate) names: Option<Arc<Names>>,
    /// The user's groups on this system, if an export needs them and they are known.
    pub(crate) groups: Option<Arc<[u32]>>,
}

impl Caller {
    pub(crate) fn new(peer: SocketAddr, credential: Credential) -> Caller {
        Caller { addr: peer.ip().to_canonical(), port: peer.port(), credential, names: None, groups: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) read_only: bool,
    pub(crate) cred: Cred,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No rule names its address, or its port is not privileged: the export does not exist for this caller.
    Access,
    /// The rule does not take its flavor of credential; another may do.
    Flavor,
    /// Names or groups decide and are being looked up: the client may retry.
    NotYet,
}

/// What the exports that a request uses let its caller do. Each export's rules are evaluated once: they may be long.
#[derive(Debug, Default)]
pub(crate) struct Accesses(RefCell<Vec<(usize, Result<Access, Refused>)>>);

impl Accesses {
    /// The access to the export at this place of the table; `evaluate` finds it out.
    pub(crate) fn to(
        &self,
        place: usize,
        evaluate: impl FnOnce() -> Result<Access, Refused>,
    ) -> Result<Access, Refused> {
        if let Some((_, known)) = self.0.borrow().iter().find(|(at, _)| *at == place) {
            return known.clone();
        }
        let access = evaluate();
        self.0.borrow_mut().push((place, access.clone()));
        access
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_each_export_are_evaluated_once() {
        let (all, mut evaluated) = (Accesses::default(), Vec::new());
        let granted = |read_only| Ok(Access { read_only, cred: Cred::root() });
        for place in [0, 1, 0, 1, 2, 2] {
            let found = match place {
                2 => Err(Refused::Access),
                place => granted(place == 1),
            };
            let access = all.to(place, || {
                evaluated.push(place);
                found.clone()
            });
            assert_eq!(access, found);
        }
        assert_eq!(evaluated, [0, 1, 2]);
    }
}
