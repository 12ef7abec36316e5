//! What a session is asked to be, and what was granted.

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
    /// Server's name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Which version; `None`: the highest that both sides have.
    pub version: Option<Version>,
    /// Port of MOUNT, for version 3; `None`: the port mapper's, or that of NFS.
    pub mount_port: Option<u16>,
    /// Who calls.
    pub identity: Identity,
    /// By what number the server is to know this client; `None`: one of its own. A later client of the same number and
    /// identity takes its place: the server forgets what the earlier one had open, and refuses what may still be on its way
    /// from it. Two of them must not be at work at the same time.
    pub instance: Option<u64>,
    /// TCP connections, at least one.
    pub connections: usize,
    /// What to ask for; the server may grant less.
    pub ask: SessionLimits,
    /// How long one call waits for its reply before it is sent again on a new connection.
    pub call_patience: Duration,
    /// How long the server may be unreachable before calls fail.
    pub reconnect_patience: Duration,
    /// How long a first connection that is refused is tried again, as a server that is just being started again does; never
    /// longer than `reply_patience`. Zero: it is tried once.
    pub refused_patience: Duration,
    /// How long no reply at all may come while one is waited for; `None`: as long as it takes. Then the session is given up: all
    /// that waits fails with [`SessionError::GivenUp`], and all that comes later.
    pub reply_patience: Option<Duration>,
    /// Who is told that the server does not answer.
    pub watch: Option<Arc<dyn Watch>>,
}

impl SessionOptions {
    /// A session with the server of `url`, as this process.
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

    /// Names this client to a server (RFC 8881 section 2.4): no other client has the owner ID, no other run of this one the verifier.
    ///
    /// # Errors
    /// When the system has no random numbers.
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
    /// Bytes of a request, RPC header included.
    pub request: u32,
    /// Bytes of a reply, RPC header included.
    pub response: u32,
    /// Bytes of a reply that the server keeps for replay.
    pub response_cached: u32,
    /// Operations in one COMPOUND, SEQUENCE included.
    pub ops: u32,
    /// Requests under way at the same time.
    pub slots: u32,
}

impl SessionLimits {
    /// What is asked for when the caller does not say otherwise.
    pub const ASK: SessionLimits = SessionLimits {
        request: limits::REQUEST_ASK,
        response: limits::RESPONSE_ASK,
        response_cached: limits::RESPONSE_CACHED_ASK,
        ops: limits::OPS_ASK,
        slots: limits::SLOTS_ASK,
    };
}
