//! What a client can know of the state that it has at the server.

use std::time::Duration;

/// See [`crate::Session::standing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// The number of the session in force; another one after the server has lost it.
    pub session: u64,
    /// The server's last reply says that it has given up some of this client's state (RFC 8881 section 18.46.3): TEST_STATEID tells which.
    pub revoked: bool,
    /// How often it has restarted with this session kept, and without what is not reclaimed (RFC 8881 section 8.4.2.1); it may be counted more
    /// than once. Delegations are to be tested when it is another number.
    pub restarts: u64,
    /// The time since its last reply. After a lease of silence all state may be gone.
    pub silence: Duration,
}
