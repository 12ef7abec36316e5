//! Clients that are refused, as the log is told of them: once an hour for each address, export and reason, with what to change.
//!
//! Bounded by [`SeldomOf`]: whoever calls from many addresses fills no disk with it.

use crate::exports::rules::{Found, PRIVILEGED_PORTS};
use crate::exports::{Caller, Export};
use landfast_rpc::{SeldomOf, share_of};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Why nothing is served to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// No rule names its address.
    Address,
    /// The rule that does takes privileged ports only.
    Port,
}

/// Who was told of.
#[derive(Debug, Default)]
pub(crate) struct TurnedAway(SeldomOf<(IpAddr, Option<PathBuf>, Reason)>);

impl TurnedAway {
    /// A caller has got [`crate::exports::Refused::Access`] of an export. `asked`: it had named it, and did not just look around.
    pub(crate) fn tell_of(&self, caller: &Caller, export: &Export, asked: bool) {
        let reason = match export.rules.find(caller.addr, caller.names.as_deref()) {
            Found::Rule(_) => Reason::Port,
            Found::None | Found::NeedsNames => Reason::Address,
        };
        // Whom no rule names is not meant to see it. Who calls from another port than the rule wants is surprised.
        if asked || reason == Reason::Port {
            self.tell(caller.addr, caller.port, Some(&export.path), reason);
        }
    }

    /// A client is refused an export, or all of them.
    pub(crate) fn tell(&self, addr: IpAddr, port: u16, export: Option<&Path>, reason: Reason) {
        self.0.warn((share_of(addr), export.map(Path::to_path_buf), reason), |more| {
            let what = export.map_or_else(|| "everything".to_owned(), |e| e.display().to_string());
            match reason {
                Reason::Address => tracing::warn!(
                    "{addr} is refused {what}: no rule names this address; to serve it, add it to the clients of the export, \
                     or with --allow{more}"
                ),
                Reason::Port => tracing::warn!(
                    "{addr} is refused {what}: it calls from port {port}, and its rule takes ports below {PRIVILEGED_PORTS} only; \
                     to serve it, add \"insecure\" to the options of the rule, or call as root from such a port{more}"
                ),
            }
        });
    }
}
