//! NFSv4 server: sessions, replies kept for replay, opens, locks, leases, dispatch.
