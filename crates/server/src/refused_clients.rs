//! Log messages about refused clients: once an hour for each address, export and reason, with what to change.
//!
//! [`KeyedRateLimit`] bounds them, so that nobody fills a disk with them by calling from many addresses.

use crate::exports::rules::{Found, PRIVILEGED_PORTS};
use crate::exports::{Caller, Export};
use landfast_rpc::{KeyedRateLimit, share_of};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// No rule names its address.
    Address,
    /// The rule for its address takes privileged ports only.
    Port,
}

#[derive(Debug, Default)]
pub(crate) struct RefusedClients(KeyedRateLimit<(IpAddr, Option<PathBuf>, Reason)>);

impl RefusedClients {
    /// Logs that a caller was refused an export ([`crate::exports::Refused::Access`]). `asked`: it asked for this export, not for a list.
    pub(crate) fn log_export(&self, caller: &Caller, export: &Export, asked: bool) {
        let reason = match export.rules.find(caller.addr, caller.names.as_deref()) {
            Found::Rule(_) => Reason::Port,
            Found::None | Found::NeedsNames => Reason::Address,
        };
        // A client that no rule names is not meant to see the export: no message for a list. A wrong port is a mistake worth telling.
        if asked || reason == Reason::Port {
            self.log(caller.addr, caller.port, Some(&export.path), reason);
        }
    }

    /// Logs that a client was refused an export; `None` for all exports.
    pub(crate) fn log(&self, addr: IpAddr, port: u16, export: Option<&Path>, reason: Reason) {
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
