//! What is known of an address before anything of it is read: whether any export names it. Cheap, and nobody is asked: where
//! names of hosts decide, and are not known, it is not known either, until a call has made somebody ask.

use crate::exports::Exports;
use crate::exports::rules::{Found, Names};
use crate::server::Shared;
use landfast_rpc::Standing;
use std::net::IpAddr;

impl Shared {
    /// What this address is.
    pub(crate) fn standing(&self, addr: IpAddr) -> Standing {
        let exports = self.exports();
        match of(&exports, addr, None) {
            Standing::Unknown => of(&exports, addr, self.names_now(addr).as_deref()),
            known => known,
        }
    }
}

fn of(exports: &Exports, addr: IpAddr, names: Option<&Names>) -> Standing {
    let of = |e: &crate::exports::Export| match e.rules.find(addr, names) {
        Found::Rule(_) => Standing::Named,
        Found::NeedsNames => Standing::Unknown,
        Found::None => Standing::Outsider,
    };
    exports.iter().map(|e| of(e)).max().unwrap_or(Standing::Outsider)
}
