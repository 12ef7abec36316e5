//! The key by which the duplicate request cache ([`super::drc`]) recognises a retry.

use super::identity::Principal;
use crate::fnv;
use crate::limits;
use landfast_rpc::share_of;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallKey {
    /// The client's address; an IPv4 address in its IPv6 form.
    client: [u8; 16],
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    digest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallNumbers {
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
}

impl CallKey {
    pub fn new(client: IpAddr, call: CallNumbers, principal: Principal, args: &[u8]) -> CallKey {
        let client = match client {
            IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
            IpAddr::V6(a) => a.octets(),
        };
        let CallNumbers { xid, program, version, procedure } = call;
        CallKey { client, xid, program, version, procedure, digest: digest(principal, args) }
    }

    /// The client whose share of the cache it counts for ([`share_of`]).
    pub(super) fn share(&self) -> IpAddr {
        share_of(Ipv6Addr::from(self.client).into())
    }
}

/// 64-bit FNV-1a over the caller, and the length and the beginning of the arguments. It is stored in the log, so it
/// must not change with restarts or versions.
fn digest(principal: Principal, args: &[u8]) -> u64 {
    let beginning = args.get(..limits::FINGERPRINT_BYTES.min(args.len())).unwrap_or_default();
    let head = [principal.flavor.to_be_bytes(), principal.uid.to_be_bytes()].concat();
    let parts = [&head[..], &(args.len() as u64).to_be_bytes(), beginning];
    parts.into_iter().fold(fnv::BEGIN, fnv::add)
}
