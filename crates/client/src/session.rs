//! A session with a server: COMPOUNDs in, replies out, through lost connections and server restarts.
//!
//! | version | how | exactly once by |
//! |---|---|---|
//! | 4.1, 4.2 | `v41`: slots of a session on several connections | the session's reply cache |
//! | 4.0 | `v40`: COMPOUNDs without sessions | owners' numbers, and the server's duplicate request cache |
//! | 3 | `v3`: procedures that do the same | the server's duplicate request cache |
//!
//! If a reply is lost and no cache can tell what happened, the outcome is [`SessionError::Unknown`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::{ArgOp, CompoundRes, FileHandle, Stateid};
use landfast_rpc::OpaqueAuth;
use landfast_xdr::Encode;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::caller;
pub use crate::counters::SessionStats;
use crate::cred::Identity;
pub use crate::error::SessionError;
use crate::limits;
pub use crate::options::{SessionLimits, SessionOptions};
use crate::peer::Peer;
pub use crate::standing::Standing;
use crate::url::Version;
pub use crate::v41::{Asked, FirstRequest, Recall, Trailing};
pub(crate) use crate::v41::{CopyEnd, FirstReply};
use crate::{v3, v40, v41};

/// A session with a server. Cheap to clone; end it with [`Session::destroy`].
///
/// Versions 3 and 4.0 have no sessions: there, COMPOUNDs are executed with the operations that these versions have.
#[derive(Clone)]
pub struct Session {
    kind: Kind,
    /// `None`: the session's own identity.
    caller: Option<OpaqueAuth>,
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Clone)]
enum Kind {
    V41(Arc<v41::Client>),
    V40(Arc<v40::Client>),
    V3(Arc<v3::Client>),
}

impl Session {
    /// Connects and makes a session of the requested version, or of the highest that both sides have.
    ///
    /// # Errors
    /// When the server cannot be reached, does not speak the version, or refuses.
    pub async fn connect(options: SessionOptions) -> Result<Session, SessionError> {
        Self::connect_with(options, FirstRequest::default()).await.map(|(session, _)| session)
    }

    /// As [`Session::connect`], with operations added to the session's first request. Returns their results, up to
    /// the first failure. `None`: they were not sent, because the version is 3 or 4.0 or the server takes too few
    /// operations.
    pub async fn connect_with(
        options: SessionOptions,
        first: FirstRequest<'_>,
    ) -> Result<(Session, Option<CompoundRes>), SessionError> {
        let (session, mut answer) = Self::connect_with_reply(options, first).await?;
        Ok((session, answer.wait().await))
    }

    /// As [`Session::connect_with`], but returns before the reply if there are trailing operations and the server
    /// starts requests in their order.
    pub(crate) async fn connect_with_reply(
        options: SessionOptions,
        mut first: FirstRequest<'_>,
    ) -> Result<(Session, FirstReply), SessionError> {
        if let Some(version) = options.version {
            return Self::connect_as(options, version, &mut first).await;
        }
        let mut last = None;
        for version in [Version::V42, Version::V41, Version::V40, Version::V3] {
            match Self::connect_as(options.clone(), version, &mut first).await {
                Err(e) if e.is_other_version() => last = Some(e),
                other => return other,
            }
        }
        Err(last.unwrap_or(SessionError::Ended))
    }

    /// Sends in one request of this session what [`Session::connect_with_reply`] adds to the first request of a new
    /// one.
    // A function and not an `async fn`, as [`Session::start`] is.
    pub(crate) fn first_request<'a>(&self, mut first: FirstRequest<'a>) -> Boxed<'a, FirstReply> {
        let kind = self.kind.clone();
        Box::pin(async move {
            match kind {
                Kind::V41(client) => client.first_request(&mut first).await,
                Kind::V40(_) | Kind::V3(_) => FirstReply::ready(None),
            }
        })
    }

    // A function and not an `async fn`, as [`Session::start`] is.
    fn connect_as<'a>(
        options: SessionOptions,
        version: Version,
        first: &'a mut FirstRequest<'_>,
    ) -> Boxed<'a, Result<(Session, FirstReply), SessionError>> {
        let options = SessionOptions { version: Some(version), ..options };
        Box::pin(async move {
            let (kind, answer) = match version {
                Version::V3 => {
                    (Kind::V3(Arc::new(v3::Client::connect(options).await?)), FirstReply::ready(None))
                }
                Version::V40 => (Kind::V40(v40::Client::connect(options).await?), FirstReply::ready(None)),
                Version::V41 | Version::V42 => {
                    let (client, answer) = v41::Client::connect(options, version.minor(), first).await?;
                    (Kind::V41(client), answer)
                }
            };
            Ok((Session { kind, caller: None }, answer))
        })
    }

    /// The same session for another caller: COMPOUNDs sent through it are executed with the rights of `identity`. What the session does
    /// for itself stays under its own identity.
    #[must_use]
    pub fn on_behalf_of(&self, identity: &Identity) -> Session {
        Session { kind: self.kind.clone(), caller: Some(identity.credential().to_opaque()) }
    }

    fn peer(&self) -> &Peer {
        match &self.kind {
            Kind::V41(client) => client.peer(),
            Kind::V40(client) => client.peer(),
            Kind::V3(client) => client.peer(),
        }
    }

    /// Sends `ops` behind a SEQUENCE and waits for the reply, through lost connections and server restarts. The
    /// result has no entry for the SEQUENCE. A failed operation, DELAY and GRACE included, is part of the reply and
    /// no error here.
    ///
    /// `cachethis` asks the server to keep the reply for a retry. The reply must then fit in
    /// [`SessionLimits::response_cached`]. Dropping the future does not stop the compound.
    ///
    /// # Errors
    /// [`SessionError::Unknown`] when it may have been executed without its reply being known;
    /// [`SessionError::Refused`] when the server takes no such compound; others when it was not executed.
    pub async fn compound(&self, ops: Vec<ArgOp>, cachethis: bool) -> Result<CompoundRes, SessionError> {
        let mut body = BytesMut::new();
        ops.iter().for_each(|op| op.encode(&mut body));
        self.compound_encoded(body.freeze(), ops.len(), cachethis).await
    }

    /// As [`Session::compound`], with `count` operations that are encoded already.
    pub async fn compound_encoded(
        &self,
        ops: Bytes,
        count: usize,
        cachethis: bool,
    ) -> Result<CompoundRes, SessionError> {
        self.run(ops, count, cachethis, None).await
    }

    /// As [`Session::compound`], in the session of this number ([`Session::standing`]) and no other: for what is right only while state
    /// of that session lasts.
    ///
    /// # Errors
    /// BADSESSION when another session is in force: nothing was executed.
    pub async fn compound_in(
        &self,
        number: u64,
        ops: &[ArgOp],
        cachethis: bool,
    ) -> Result<CompoundRes, SessionError> {
        let mut body = BytesMut::new();
        ops.iter().for_each(|op| op.encode(&mut body));
        self.run(body.freeze(), ops.len(), cachethis, Some(number)).await
    }

    async fn run(
        &self,
        ops: Bytes,
        count: usize,
        cachethis: bool,
        only: Option<u64>,
    ) -> Result<CompoundRes, SessionError> {
        self.start(ops, count, cachethis, only).await.unwrap_or(Err(SessionError::Ended))
    }

    /// Starts a COMPOUND in a task of its own: a caller that drops the future must not leave a slot in an unknown state.
    ///
    /// A function and not an `async fn`: the body of an `async fn` is compiled again in each crate that awaits it, with all that it
    /// awaits, and these are the clients of all versions.
    fn start(
        &self,
        ops: Bytes,
        count: usize,
        cachethis: bool,
        only: Option<u64>,
    ) -> JoinHandle<Result<CompoundRes, SessionError>> {
        let (kind, caller) = (self.kind.clone(), self.caller.clone());
        tokio::spawn(caller::under(caller, async move {
            match kind {
                Kind::V41(client) => client.compound(ops, count, cachethis, only).await,
                Kind::V40(client) => client.compound(ops, count).await,
                Kind::V3(client) => client.compound(ops, count).await,
            }
        }))
    }

    /// The limits of the session in force.
    pub fn limits(&self) -> SessionLimits {
        match &self.kind {
            Kind::V41(client) => client.epoch().limits,
            Kind::V40(client) => client.limits(),
            Kind::V3(client) => client.limits(),
        }
    }

    /// The version that is spoken.
    pub fn version(&self) -> Version {
        self.options().version.unwrap_or(Version::V42)
    }

    /// Each operation of a COMPOUND costs its own round trip. Many small COMPOUNDs are then faster than a few large
    /// ones.
    pub(crate) fn is_sequential(&self) -> bool {
        matches!(self.kind, Kind::V3(_))
    }

    /// Whether a COMPOUND may hold several READs and READDIRs, or data at any offset. Only servers known not to be
    /// Linux get such COMPOUNDs, because Linux corrupts data:
    ///
    /// | kernel | request | result |
    /// |---|---|---|
    /// | 6.12 | several READs | from the second on, the reply holds unrelated memory |
    /// | 6.1 | several READDIRs | the server writes beyond its reply, and the machine stops |
    /// | both | a read after a page of other results | false data |
    /// | both | a WRITE, and with 6.1 a SETXATTR, whose data begins after the first page of the request | other bytes are stored |
    pub fn packs_data(&self) -> bool {
        match &self.kind {
            Kind::V41(client) => client.packs_data(),
            Kind::V40(_) => false,
            // Each operation is a call of its own.
            Kind::V3(_) => true,
        }
    }

    /// Whether both sessions are with the same server, whatever the URLs say. Filehandles of one are then valid in the other. The server's
    /// owner and scope must be equal (RFC 8881 sections 2.10.4 and 2.10.5), and it must accept one connection for both sessions.
    /// Versions before 4.1 do not tell: `false`.
    pub async fn is_same_server(&self, other: &Session) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::V41(one), Kind::V41(two)) => Arc::ptr_eq(one, two) || one.is_same_server(two).await,
            (Kind::V40(one), Kind::V40(two)) => Arc::ptr_eq(one, two),
            (Kind::V3(one), Kind::V3(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    /// The server's response time for a request, or zero if unknown.
    pub(crate) fn response_time(&self) -> Duration {
        match &self.kind {
            Kind::V41(client) => client.response_time(),
            Kind::V40(_) | Kind::V3(_) => Duration::ZERO,
        }
    }

    pub(crate) fn is_landfast(&self) -> bool {
        matches!(&self.kind, Kind::V41(client) if client.is_landfast())
    }

    /// Binds a connection to the back channel of the current session, unless one is bound. `true`: the server can
    /// report the end of a copy (CB_OFFLOAD).
    pub async fn binds_back_channel(&self) -> bool {
        match &self.kind {
            Kind::V41(client) => client.binds_back_channel().await,
            Kind::V40(_) | Kind::V3(_) => false,
        }
    }

    /// What is asked of the holder of delegations from now on, as the server makes them over the back channel ([`Session::binds_back_channel`]). `None`: this
    /// version has none.
    pub fn recalls(&self) -> Option<mpsc::Receiver<Asked>> {
        match &self.kind {
            Kind::V41(client) => Some(client.recalls()),
            Kind::V40(_) | Kind::V3(_) => None,
        }
    }

    /// The session in force, and what the server says of this client's state. Versions 3 and 4.0 have none.
    pub fn standing(&self) -> Standing {
        match &self.kind {
            Kind::V41(client) => client.standing(),
            Kind::V40(_) | Kind::V3(_) => Standing::default(),
        }
    }

    /// Whether a connection for the back channel is open.
    pub(crate) async fn has_back_channel(&self) -> bool {
        match &self.kind {
            Kind::V41(client) => client.has_back_channel().await,
            Kind::V40(_) | Kind::V3(_) => false,
        }
    }

    /// The end of a copy to this file, if the server has reported it or reports it within `patience`.
    pub(crate) async fn copy_end(
        &self,
        file: &FileHandle,
        copy: &Stateid,
        patience: Duration,
    ) -> Option<CopyEnd> {
        match &self.kind {
            Kind::V41(client) => client.copy_end(file, copy, patience).await,
            Kind::V40(_) | Kind::V3(_) => None,
        }
    }

    /// The server's lease time.
    pub fn lease(&self) -> Duration {
        match &self.kind {
            Kind::V41(client) => client.epoch().lease(),
            Kind::V40(client) => client.lease(),
            Kind::V3(_) => limits::LEASE_DEFAULT,
        }
    }

    /// The options that the session was made with.
    pub fn options(&self) -> &SessionOptions {
        self.peer().options()
    }

    /// Host and port, for messages.
    pub fn server(&self) -> &str {
        self.peer().server()
    }

    /// What went over the wire so far.
    pub fn stats(&self) -> SessionStats {
        self.peer().stats()
    }

    /// Waits until everything sent so far over the first connection has left this process.
    pub(crate) async fn flushed(&self) {
        if let Kind::V41(client) = &self.kind {
            client.flushed().await;
        }
    }

    /// Ends the session and the client ID on the server. Compounds in flight are lost. The requests were sent when
    /// this returns; it waits for replies no longer than [`limits::GOODBYE_HEARD`]. If nothing can be sent within
    /// [`limits::GOODBYE_PATIENCE`], the server's lease timer ends the session.
    pub async fn destroy(self) {
        self.end().await;
    }

    // A function and not an `async fn`, as [`Session::start`] is.
    fn end(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            match &self.kind {
                Kind::V41(client) => client.destroy().await,
                Kind::V40(client) => client.destroy().await,
                Kind::V3(client) => client.destroy().await,
            }
        })
    }
}
