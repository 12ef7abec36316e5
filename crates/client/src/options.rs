//! Options of a session, and the limits that the server granted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use landfast_nfs::v4::{ClientOwner, Opaque1024, Verifier};

use crate::cred::Identity;
use crate::error::SessionError;
use crate::limits;
use crate::outage::Watch;
use crate::url::{NfsUrl, Version};

#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Host name or address.
    pub host: String,
    pub port: u16,
    /// `None`: the highest version that both sides have.
    pub version: Option<Version>,
    /// The port of MOUNT, for NFSv3. `None`: asked of the port mapper, or else the port of NFS.
    pub mount_port: Option<u16>,
    /// The caller.
    pub identity: Identity,
    /// The number by which the server shall know this client; `None`: one of its own. A later client with the same number
    /// and identity takes its place: the server forgets the opens of the earlier one and refuses its requests. Two such
    /// clients must not run at the same time.
    pub instance: Option<u64>,
    /// TCP connections; at least one.
    pub connections: usize,
    /// What to ask for. The server may grant less.
    pub ask: SessionLimits,
    /// How long a call waits for its reply before it is sent again on a new connection.
    pub call_patience: Duration,
    /// How long the server may be unreachable before calls fail.
    pub reconnect_patience: Duration,
    /// How long a refused first connection is tried again, for a server that is being restarted; never longer than
    /// `reply_patience`. Zero: one try.
    pub refused_patience: Duration,
    /// How long a pending call may see no reply at all; `None`: for ever. Then the session is given up, and all its
    /// calls fail with [`SessionError::GivenUp`].
    pub reply_patience: Option<Duration>,
    /// Hears when the server does not answer.
    pub watch: Option<Arc<dyn Watch>>,
}

impl SessionOptions {
    /// A session with the server of `url`, with the identity of this process.
    pub fn for_url(url: &NfsUrl) -> SessionOptions {
        let process = Identity::of_process();
        SessionOptions {
            host: url.host.clone(),
            port: url.port,
            version: url.version,
            mount_port: url.mount_port,
            identity: Identity {
                uid: url.uid.unwrap_or(process.uid),
                gid: url.gid.unwrap_or(process.gid),
                ..process
            },
            instance: None,
            connections: url.nconnect.unwrap_or(limits::CONNECTIONS),
            ask: SessionLimits::ASK,
            call_patience: limits::CALL_PATIENCE,
            reconnect_patience: limits::RECONNECT_PATIENCE,
            refused_patience: Duration::ZERO,
            reply_patience: None,
            watch: None,
        }
    }

    /// The client's name for a server (RFC 8881 section 2.4). No other client has the owner ID, no other run the
    /// verifier. Fails when the system has no random numbers.
    pub(crate) fn client_owner(&self) -> Result<ClientOwner, SessionError> {
        let mut verifier = Verifier::default();
        let mut unique = [0; 8];
        getrandom::fill(&mut verifier)
            .and_then(|()| getrandom::fill(&mut unique))
            .map_err(|e| SessionError::Unknown(format!("no random numbers: {e}")))?;
        if let Some(instance) = self.instance {
            unique = instance.to_be_bytes();
        }
        let unique: Vec<u8> = unique.iter().flat_map(|b| format!("{b:02x}").into_bytes()).collect();
        let id = [&b"landfast "[..], &self.identity.host, &unique].join(&b' ');
        Ok(ClientOwner { verifier, owner_id: Opaque1024(Bytes::from(id)) })
    }
}

/// The limits of a session's fore channel (RFC 8881 section 18.36.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    pub request: u32,
    pub response: u32,
    pub response_cached: u32,
    pub ops: u32,
    pub slots: u32,
}

impl SessionLimits {
    /// The default request.
    pub const ASK: SessionLimits = SessionLimits {
        request: limits::REQUEST_ASK,
        response: limits::RESPONSE_ASK,
        response_cached: limits::RESPONSE_CACHED_ASK,
        ops: limits::OPS_ASK,
        slots: limits::SLOTS_ASK,
    };
}
