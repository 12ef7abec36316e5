//! Sending: a COMPOUND, again for as long as the server is away or busy.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use landfast_client::compound::Results;
use landfast_client::{Session, SessionError, Version};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{ArgOp, CompoundRes, Fattr, NfsStat, OpNum};
use tokio::time::sleep;

use super::in_order::InOrder;
use super::owners::Owners;
use super::wire::Wire;
use crate::core::attrs::Attrs;
use crate::errno::Errno;
use crate::limits::{PAUSE_MAX, PAUSE_MIN};

/// For whom a request is executed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

/// Why a request has no good reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The server refuses it.
    Op(OpNum, NfsStat),
    /// It may have been executed: its reply was lost for good.
    Unknown,
    /// It was not executed, or nothing is to be learnt of it.
    Failed(Errno),
}

impl Fault {
    pub fn errno(self) -> Errno {
        match self {
            Fault::Op(_, status) => status.into(),
            Fault::Unknown => Errno::IO,
            Fault::Failed(e) => e,
        }
    }

    pub fn status(self) -> Option<NfsStat> {
        match self {
            Fault::Op(_, status) => Some(status),
            _ => None,
        }
    }
}

impl From<Fault> for Errno {
    fn from(fault: Fault) -> Errno {
        fault.errno()
    }
}

impl From<landfast_client::compound::OpError> for Fault {
    fn from(e: landfast_client::compound::OpError) -> Fault {
        use landfast_client::compound::OpError;
        match e {
            OpError::Failed { op, status } => Fault::Op(op, status),
            OpError::Missing { op } => Fault::Op(op, NfsStat::NFS4ERR_IO),
        }
    }
}

tokio::task_local! {
    /// Requests of this task are not given up, also if the mount is soft.
    static PATIENT: ();
}

/// Gives no request of `work` up, also if the mount is soft: a program was told that it is done.
pub async fn patiently<T>(work: impl Future<Output = T>) -> T {
    PATIENT.scope((), work).await
}

/// Whether a creation may have been executed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    None,
    /// A reply was lost.
    Maybe,
    /// The same, and nobody else could have made something of this name.
    OursIfThere,
}

/// A server, and how patiently it is asked.
pub struct Remote {
    session: Wire,
    /// The identity of the mount itself.
    own: Caller,
    /// Give up a request after so long (`soft`). `None`: never (`hard`).
    soft: Option<Duration>,
    /// What is sent behind requests that were given up.
    order: InOrder,
    owners: Owners,
    /// Open owners get numbers, so that opens that run at the same time are not one open to the server.
    numbers: AtomicU64,
}

/// Pauses between tries, each twice as long as the one before.
struct Pause(Duration);

impl Pause {
    async fn next(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSE_MAX);
    }
}

impl Remote {
    pub fn new(session: Session, soft: Option<Duration>) -> Remote {
        Remote::over(Wire::Session(session), soft)
    }

    pub(crate) fn over(session: Wire, soft: Option<Duration>) -> Remote {
        let (uid, gid, groups) = session.own();
        Remote {
            own: Caller { uid, gid, groups: groups.into() },
            session,
            soft,
            order: InOrder::default(),
            owners: Owners::new(),
            numbers: AtomicU64::new(0),
        }
    }

    pub fn session(&self) -> &Wire {
        &self.session
    }

    pub fn version(&self) -> Version {
        self.session.version()
    }

    /// Whether one request has several operations; in version 3 each is a request of its own.
    pub fn has_compounds(&self) -> bool {
        self.version() != Version::V3
    }

    /// The identity of the mount itself, as a caller.
    pub fn own(&self) -> &Caller {
        &self.own
    }

    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Attributes as the tree has them.
    pub fn attrs(&self, fattr: &Fattr) -> Result<Attrs, Fault> {
        let values = AttrValues::from_fattr(fattr).map_err(|status| Fault::Op(OpNum::GETATTR, status))?;
        self.attrs_of(&values).ok_or(Fault::Op(OpNum::GETATTR, NfsStat::NFS4ERR_IO))
    }

    pub fn attrs_of(&self, values: &AttrValues) -> Option<Attrs> {
        Attrs::of(values, |name, group| self.owners.number(name, group))
    }

    /// Sends a COMPOUND that does no harm when it is executed twice.
    pub async fn ask(&self, who: &Caller, ops: Vec<ArgOp>) -> Result<Results, Fault> {
        let mut pause = Pause(PAUSE_MIN);
        self.bounded(async {
            loop {
                match self.once(who, ops.clone(), false).await {
                    Ok(reply) if is_busy(reply.status) => {}
                    Err(Fault::Unknown) => {}
                    other => return other.map(Results::new),
                }
                pause.next().await;
            }
        })
        .await
    }

    /// Sends a COMPOUND in which the operation `changing` must not be executed twice. The reply may show that it succeeded and that
    /// the server was too busy for a later one.
    pub async fn change(&self, who: &Caller, ops: Vec<ArgOp>, changing: OpNum) -> Result<CompoundRes, Fault> {
        let mut pause = Pause(PAUSE_MIN);
        self.bounded(async {
            loop {
                let reply = self.once(who, ops.clone(), true).await?;
                let done = reply.results.iter().any(|r| r.op == changing && r.status.is_ok());
                if done || !is_busy(reply.status) {
                    return Ok(reply);
                }
                pause.next().await;
            }
        })
        .await
    }

    /// As [`Remote::change`], sent again while it is unknown whether the server has executed it. Returns also whether it was sent again: then the
    /// reply may be that to a second execution.
    pub async fn change_surely(
        &self,
        who: &Caller,
        ops: Vec<ArgOp>,
        changing: OpNum,
    ) -> Result<(CompoundRes, bool), Fault> {
        let mut lost = false;
        loop {
            match self.change(who, ops.clone(), changing).await {
                Err(Fault::Unknown) => lost = true,
                reply => return Ok((reply?, lost)),
            }
        }
    }

    /// The session, for a caller.
    fn session_for(&self, who: &Caller) -> Wire {
        match *who == self.own {
            true => self.session.clone(),
            false => self.session.on_behalf_of(who.uid, who.gid, &who.groups),
        }
    }

    /// Sends a COMPOUND of changes until the server has taken it, in the session of this number and no other. It is given up with the
    /// mount only.
    ///
    /// # Errors
    /// BADSESSION of SEQUENCE: another session is in force, and nothing was executed.
    pub(super) async fn once_in(
        &self,
        who: &Caller,
        ops: &[ArgOp],
        number: u64,
    ) -> Result<CompoundRes, Fault> {
        let session = self.session_for(who);
        let mut pause = Pause(PAUSE_MIN);
        loop {
            match session.compound_in(number, ops, true).await {
                Ok(reply) => return Ok(reply),
                Err(e) => self.fault(who, e)?,
            }
            pause.next().await;
        }
    }

    /// What an error of a session means. `Ok`: it is sent again, after a pause.
    fn fault(&self, who: &Caller, e: SessionError) -> Result<(), Fault> {
        match e {
            SessionError::Unknown(why) => {
                tracing::debug!("a reply of {} was lost: {why}", self.session.server());
                Err(Fault::Unknown)
            }
            SessionError::Refused(status) if is_busy(status) => Ok(()),
            SessionError::Refused(status) => Err(Fault::Op(OpNum::SEQUENCE, status)),
            SessionError::Ended | SessionError::GivenUp { .. } => Err(Fault::Failed(Errno::IO)),
            SessionError::Rpc(landfast_rpc::CallError::Denied(e)) => {
                tracing::warn!("{} refuses the user {}: {e:?}", self.session.server(), who.uid);
                Err(Fault::Failed(Errno(libc::EACCES)))
            }
            // The server is away: a hard mount waits for it.
            e => {
                tracing::warn!("{}: {e}; trying again", self.session.server());
                Ok(())
            }
        }
    }

    /// Sends a COMPOUND until the server has taken it.
    async fn once(&self, who: &Caller, ops: Vec<ArgOp>, cachethis: bool) -> Result<CompoundRes, Fault> {
        let session = self.session_for(who);
        let mut pause = Pause(PAUSE_MIN);
        loop {
            let done = match self.soft {
                None => session.compound(ops.clone(), cachethis).await,
                Some(_) => {
                    let (session, ops) = (session.clone(), ops.clone());
                    let work = async move { session.compound(ops, cachethis).await };
                    self.order.run(work).await.unwrap_or(Err(SessionError::Ended))
                }
            };
            match done {
                Ok(reply) => return Ok(reply),
                Err(e) => self.fault(who, e)?,
            }
            pause.next().await;
        }
    }

    /// Bounds the time of a request, if the mount is soft.
    async fn bounded<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let patient = PATIENT.try_with(|()| ()).is_ok();
        match self.soft.filter(|_| !patient) {
            None => work.await,
            Some(patience) => {
                let done = tokio::time::timeout(patience, work).await;
                done.unwrap_or(Err(Fault::Failed(Errno::TIMEDOUT)))
            }
        }
    }
}

pub(crate) fn is_busy(status: NfsStat) -> bool {
    matches!(status, NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE)
}
