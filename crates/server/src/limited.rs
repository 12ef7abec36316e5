//! The limits that an administrator may set (`[limits]` of the configuration file), as one table: the file's keys, the
//! metrics and `docs/limits.md` are made from it or held against it. The other limits are constants ([`crate::limits`]).

use crate::limits;
use std::ops::Index;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Connections,
    ClientConnections,
    Requests,
    ClientRequests,
    ConnectionRequests,
    RequestBytes,
    ClientRequestBytes,
    ConnectionRequestBytes,
    ReplyBytes,
    ClientReplyBytes,
    ConnectionReplyBytes,
    Clients,
    ClientSessions,
    SessionSlots,
    CompoundOperations,
    Opens,
    ClientOpens,
    OpenDescriptors,
    Locks,
    ClientLocks,
}

/// What a limit is called, what it is and what it may be.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    pub limit: Limit,
    /// The key in the file, and the resource in the metrics.
    pub key: &'static str,
    pub default: usize,
    pub min: usize,
    pub max: usize,
    pub bytes: bool,
}

const fn spec(limit: Limit, key: &'static str, default: usize, min: usize, max: usize) -> Spec {
    Spec { limit, key, default, min, max, bytes: false }
}

/// Anything below would not take the largest request or reply.
const BYTES_MIN: usize = 8 << 20;
const BYTES_MAX: usize = 64 << 30;

const fn bytes(limit: Limit, key: &'static str, default: usize) -> Spec {
    Spec { limit, key, default, min: BYTES_MIN, max: BYTES_MAX, bytes: true }
}

pub const SPECS: [Spec; 20] = [
    spec(Limit::Connections, "connections", limits::CONNECTIONS_MAX, 1, limits::CONNECTIONS_CONFIGURED_MAX),
    spec(
        Limit::ClientConnections,
        "client_connections",
        limits::CLIENT_CONNECTIONS_MAX,
        1,
        limits::CONNECTIONS_CONFIGURED_MAX,
    ),
    spec(Limit::Requests, "requests", limits::SERVER_COMPOUNDS_MAX, 16, 1 << 20),
    spec(Limit::ClientRequests, "client_requests", limits::CLIENT_COMPOUNDS_MAX, 1, 1 << 20),
    spec(Limit::ConnectionRequests, "connection_requests", limits::CONNECTION_COMPOUNDS_MAX, 1, 1 << 20),
    bytes(Limit::RequestBytes, "request_bytes", limits::SERVER_BYTES_MAX),
    bytes(Limit::ClientRequestBytes, "client_request_bytes", limits::CLIENT_BYTES_MAX),
    bytes(Limit::ConnectionRequestBytes, "connection_request_bytes", limits::CONNECTION_BYTES_MAX),
    bytes(Limit::ReplyBytes, "reply_bytes", limits::SERVER_REPLY_BYTES_MAX),
    bytes(Limit::ClientReplyBytes, "client_reply_bytes", limits::CLIENT_REPLY_BYTES_MAX),
    bytes(Limit::ConnectionReplyBytes, "connection_reply_bytes", limits::CONNECTION_REPLY_BYTES_MAX),
    spec(Limit::Clients, "clients", limits::CLIENTS_MAX, 1, 1 << 20),
    spec(Limit::ClientSessions, "client_sessions", limits::SESSIONS_PER_CLIENT_MAX, 1, 256),
    spec(Limit::SessionSlots, "session_slots", limits::SLOTS_MAX as usize, 1, limits::SLOTS_MAX as usize),
    spec(
        Limit::CompoundOperations,
        "compound_operations",
        limits::OPS_MAX as usize,
        limits::OPS_CONFIGURED_MIN,
        limits::OPS_MAX as usize,
    ),
    spec(Limit::Opens, "opens", limits::OPENS_MAX, 16, 16 << 20),
    spec(Limit::ClientOpens, "client_opens", limits::OPENS_PER_CLIENT_MAX, 1, 16 << 20),
    spec(Limit::OpenDescriptors, "open_descriptors", limits::OPEN_DESCRIPTORS_MAX, 0, 32 << 20),
    spec(Limit::Locks, "locks", limits::LOCKS_MAX, 16, 16 << 20),
    spec(Limit::ClientLocks, "client_locks", limits::LOCKS_PER_CLIENT_MAX, 1, 16 << 20),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits([usize; SPECS.len()]);

impl Default for Limits {
    fn default() -> Self {
        Limits(SPECS.map(|s| s.default))
    }
}

impl Index<Limit> for Limits {
    type Output = usize;

    fn index(&self, of: Limit) -> &usize {
        &self.0[of as usize]
    }
}

impl Limits {
    pub fn with(mut self, limit: Limit, value: usize) -> Self {
        self.0[limit as usize] = value;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_found_by_its_place_and_its_default_may_be_asked_for() {
        for (i, s) in SPECS.iter().enumerate() {
            assert_eq!(s.limit as usize, i, "{}", s.key);
            assert!((s.min..=s.max).contains(&s.default), "{}", s.key);
            assert_eq!(Limits::default()[s.limit], s.default);
            assert_eq!(Limits::default().with(s.limit, s.min)[s.limit], s.min);
        }
    }

    #[test]
    fn each_key_stands_in_the_documents_with_its_default() {
        let page = include_str!("../../../docs/limits.md");
        for s in SPECS {
            let shown = match s.default {
                n if s.bytes => format!("{}M", n >> 20),
                n => n.to_string(),
            };
            let row = page.lines().find(|l| l.starts_with(&format!("| `{}` |", s.key)));
            assert!(
                row.is_some_and(|r| r.contains(&format!("| {shown} |"))),
                "{}: {shown} in {row:?}",
                s.key
            );
        }
    }
}
