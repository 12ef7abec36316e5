//! A session with a server: COMPOUNDs in, replies out, through lost connections and server restarts.
//!
//! | version | how | exactly once by |
//! |---|---|---|
//! | 4.1, 4.2 | `engine`: slots of a session on several connections | the session's reply cache |
//! | 4.0 | `v40`: COMPOUNDs without sessions | owners' numbers, and the server's duplicate request cache |
//! | 3 | `three`: procedures that do the same | the server's duplicate request cache |
//!
//! What a lost reply leaves in doubt, and no cache can tell any more, is [`SessionError::Unknown`].

mod back;
mod engine;
mod first;
mod setup;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::{ArgOp, CompoundRes, FileHandle, Stateid};
use landfast_xdr::Encode;

pub(crate) use back::CopyEnd;
use engine::Engine;
pub(crate) use first::FirstReply;
pub use first::{FirstRequest, Trailing};

pub use crate::counters::SessionStats;
pub use crate::error::SessionError;
use crate::limits;
pub use crate::options::{SessionLimits, SessionOptions};
use crate::peer::Peer;
use crate::three::Three;
use crate::url::Version;
use crate::v40::Forty;

/// A session with a server. Cheap to clone; end it with [`Session::destroy`].
///
/// With a server of version 3 or 4.0 it is one in form only: COMPOUNDs are executed by what those versions have.
#[derive(Clone)]
pub struct Session {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Slots(Arc<Engine>),
    Forty(Arc<Forty>),
    Three(Arc<Three>),
}

impl Session {
    /// Connects and makes a session, of the version asked for or the highest that both sides have.
    ///
    /// # Errors
    /// When the server cannot be reached, does not speak the version, or refuses.
    pub async fn connect(options: SessionOptions) -> Result<Session, SessionError> {
        Self::connect_with(options, FirstRequest::default()).await.map(|(session, _)| session)
    }

    /// The same, with operations that may go in the session's first request. Their results, up to the first that failed;
    /// `None` when they were not sent, which is so with versions 3 and 4.0 and where the server takes too few operations.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub async fn connect_with(
        options: SessionOptions,
        first: FirstRequest<'_>,
    ) -> Result<(Session, Option<CompoundRes>), SessionError> {
        let (session, mut answer) = Self::connect_with_reply(options, first).await?;
        Ok((session, answer.wait().await))
    }

    /// The same, before the answer has come if anything goes behind what is asked, and the server begins requests in their order.
    ///
    /// # Errors
    /// As [`Session::connect`].
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

    /// What [`Session::connect_with_reply`] does in a session's first request, in a request of one that there is already.
    pub(crate) async fn first_request(&self, mut first: FirstRequest<'_>) -> FirstReply {
        match &self.kind {
            Kind::Slots(engine) => engine.first_request(&mut first).await,
            Kind::Forty(_) | Kind::Three(_) => FirstReply::ready(None),
        }
    }

    async fn connect_as(
        options: SessionOptions,
        version: Version,
        first: &mut FirstRequest<'_>,
    ) -> Result<(Session, FirstReply), SessionError> {
        let options = SessionOptions { version: Some(version), ..options };
        let (kind, answer) = match version {
            Version::V3 => (Kind::Three(Arc::new(Three::connect(options).await?)), FirstReply::ready(None)),
            Version::V40 => (Kind::Forty(Forty::connect(options).await?), FirstReply::ready(None)),
            Version::V41 | Version::V42 => {
                let (engine, answer) = Engine::connect(options, version.minor(), first).await?;
                (Kind::Slots(engine), answer)
            }
        };
        Ok((Session { kind }, answer))
    }

    fn peer(&self) -> &Peer {
        match &self.kind {
            Kind::Slots(engine) => engine.peer(),
            Kind::Forty(forty) => forty.peer(),
            Kind::Three(three) => three.peer(),
        }
    }

    /// Sends `ops` behind a SEQUENCE and waits for the reply, through lost connections and server restarts.
    /// The result has no entry for the SEQUENCE. An operation's failure is part of the reply, not an error
    /// here; DELAY and GRACE of operations too.
    ///
    /// `cachethis` asks the server to keep the reply for a repetition; the reply must then fit in
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
    ///
    /// # Errors
    /// As [`Session::compound`].
    pub async fn compound_encoded(
        &self,
        ops: Bytes,
        count: usize,
        cachethis: bool,
    ) -> Result<CompoundRes, SessionError> {
        // A task of its own, so that a caller who goes away leaves no slot in an unknown state.
        let task = match self.kind.clone() {
            Kind::Slots(engine) => tokio::spawn(async move { engine.compound(ops, count, cachethis).await }),
            Kind::Forty(forty) => tokio::spawn(async move { forty.compound(ops, count).await }),
            Kind::Three(three) => tokio::spawn(async move { three.compound(ops, count).await }),
        };
        task.await.unwrap_or(Err(SessionError::Ended))
    }

    /// The limits of the session in force.
    pub fn limits(&self) -> SessionLimits {
        match &self.kind {
            Kind::Slots(engine) => engine.epoch().limits,
            Kind::Forty(forty) => forty.limits(),
            Kind::Three(three) => three.limits(),
        }
    }

    /// The version that is spoken.
    pub fn version(&self) -> Version {
        self.options().version.unwrap_or(Version::V42)
    }

    /// The operations of a COMPOUND cost a round trip each, one after another: many small COMPOUNDs are quicker than few
    /// large ones.
    pub(crate) fn one_by_one(&self) -> bool {
        matches!(self.kind, Kind::Three(_))
    }

    /// Whether a COMPOUND may hold several READs and READDIRs. Of several READs the kernel's server (6.12) sends, from the second on, what
    /// happened to be in its memory; of several READDIRs 6.1 writes beyond its reply, and the machine stops. What either reads behind a
    /// page of other results is false, too. Of the data of WRITEs and SETXATTRs it takes what begins in the first page of a request; of other
    /// data wrong bytes. So only servers that are known to be others get them.
    pub(crate) fn packs_data(&self) -> bool {
        match &self.kind {
            Kind::Slots(engine) => engine.packs_data(),
            Kind::Forty(_) => false,
            // They are calls of their own.
            Kind::Three(_) => true,
        }
    }

    /// Whether both sessions are with one server, whatever the URLs say: by the owner and the scope that it names itself by
    /// (RFC 8881 sections 2.10.4 and 2.10.5), and by its taking a connection for either. Filehandles of one are then those of
    /// the other. Versions before 4.1 do not tell.
    pub async fn is_beside(&self, other: &Session) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Slots(one), Kind::Slots(two)) => Arc::ptr_eq(one, two) || one.is_beside(two).await,
            (Kind::Forty(one), Kind::Forty(two)) => Arc::ptr_eq(one, two),
            (Kind::Three(one), Kind::Three(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    /// How long an answer has taken, where that is known.
    pub(crate) fn answered_in(&self) -> Duration {
        match &self.kind {
            Kind::Slots(engine) => engine.answered_in(),
            Kind::Forty(_) | Kind::Three(_) => Duration::ZERO,
        }
    }

    /// The server is Landfast.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(&self.kind, Kind::Slots(engine) if engine.is_ours())
    }

    /// Whether the server can tell by itself how a copy ended: a connection of its own is bound to the back channel of the session in
    /// force, now if it is not yet.
    pub async fn listens(&self) -> bool {
        match &self.kind {
            Kind::Slots(engine) => engine.listens().await,
            Kind::Forty(_) | Kind::Three(_) => false,
        }
    }

    /// Whether it could do so now, over the connection that it had before.
    pub(crate) async fn hears(&self) -> bool {
        match &self.kind {
            Kind::Slots(engine) => engine.hears().await,
            Kind::Forty(_) | Kind::Three(_) => false,
        }
    }

    /// What the server has told of the end of a copy to this file, or tells within this time.
    pub(crate) async fn copy_end(
        &self,
        file: &FileHandle,
        copy: &Stateid,
        patience: Duration,
    ) -> Option<CopyEnd> {
        match &self.kind {
            Kind::Slots(engine) => engine.copy_end(file, copy, patience).await,
            Kind::Forty(_) | Kind::Three(_) => None,
        }
    }

    /// The server's lease time.
    pub fn lease(&self) -> Duration {
        match &self.kind {
            Kind::Slots(engine) => engine.epoch().lease(),
            Kind::Forty(forty) => forty.lease(),
            Kind::Three(_) => limits::LEASE_DEFAULT,
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

    /// Waits until what was sent before over the first connection is with the network.
    pub(crate) async fn flushed(&self) {
        if let Kind::Slots(engine) = &self.kind {
            engine.flushed().await;
        }
    }

    /// Ends the session and the client ID on the server. Compounds under way are lost. The server has been told when this
    /// returns; its answers are waited for no longer than [`limits::GOODBYE_HEARD`]. One to which nothing can be sent within
    /// [`limits::GOODBYE_PATIENCE`] is left to its lease timer.
    pub async fn destroy(self) {
        match &self.kind {
            Kind::Slots(engine) => engine.destroy().await,
            Kind::Forty(forty) => forty.destroy().await,
            Kind::Three(three) => three.destroy().await,
        }
    }
}
