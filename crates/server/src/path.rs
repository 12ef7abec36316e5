//! The path of one request, the same for all versions of NFS, from the decoded call to its reply:
//!
//! 1. its client's turn has come ([`landfast_rpc::Turn`]); it is let go of wherever the request waits;
//! 2. who calls is looked up; a call without a session is looked for in the duplicate request cache ([`Once`]);
//! 3. back-pressure of the logs that it may write to; room for a large reply;
//! 4. it is announced to those logs;
//! 5. it runs here, or on the threads for what waits for the disk ([`crate::pool`]); the next request has the turn;
//! 6. the others that were received have their turn to run, so that they join its flush, unless it ran for long itself: a
//!    flush of its own is the lesser part then, and its client goes on sooner;
//! 7. the logs are flushed up to its last record; where those are several, one takes the reply then, and is flushed;
//! 8. its slot, its owners and its place in the duplicate request cache are free; the reply is sent.
//!
//! What is decoded and how it runs is the protocols' own: [`Plan`] says what has to be known of a request before it runs,
//! [`Work`] runs it, [`Outcome`] is what came of it.
//!
//! Invariants: what changed something is answered when the logs hold the change and the reply, and otherwise with
//! [`Pending::failure`]; nothing waits after 5 while it holds a turn or an announcement.

use crate::exports::{Caller, Export, Receipts};
use crate::limits;
use crate::offload::{self, Offload};
use crate::once::{self, Once};
use crate::pool::Pool;
use crate::released::{Awaited, Released, Slot};
use crate::shared::Shared;
use crate::state::drc::{CallKey, CallNumbers, Origin};
use crate::state::notes::{LogId, Note, Stamped};
use crate::state::owners::OwnerKey;
use crate::state::sessions::Kept;
use crate::state::{Principal, State};
use crate::workers::Workers;
use bytes::Bytes;
use landfast_nfs::v4::SessionId;
use landfast_rpc::Turn;
use landfast_rpc::conn::{CallHeader, ConnInfo, Response};
use landfast_volume::faults::point;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What has to be known of a request before it runs.
pub(crate) struct Plan {
    /// The exports whose logs it may write to; none where it changes nothing.
    pub(crate) exports: Vec<Arc<Export>>,
    /// It may wait for the disk itself.
    pub(crate) slow: bool,
    /// Its reply is kept in the duplicate request cache.
    pub(crate) kept: bool,
    /// Bytes that its reply may have.
    pub(crate) reply_max: usize,
}

/// A request that can run, without waiting for any log.
pub(crate) trait Work: Send + Sync + 'static {
    /// Runs it.
    fn run(&self, sh: &Shared) -> Outcome;

    /// The slot that it asks for.
    fn slot(&self) -> Option<Slot> {
        None
    }
}

/// A reply and what has to happen before it is sent.
pub(crate) struct Outcome {
    /// In pieces.
    pub(crate) reply: Vec<Bytes>,
    pub(crate) pending: Option<Pending>,
    /// What is being worked on stands in its way, or may: it runs again when that was answered, for this long.
    pub(crate) waits: Option<(Awaited, Duration)>,
    /// Copies to be begun.
    pub(crate) offloads: Vec<Offload>,
}

/// What a reply that waits for the log leaves to be done.
pub(crate) struct Pending {
    pub(crate) receipts: Receipts,
    /// The slot that is busy until then.
    pub(crate) slot: Option<(SessionId, u32)>,
    /// The owners of NFSv4.0 that are busy until then.
    pub(crate) owners: Vec<OwnerKey>,
    /// The client whose record says, once it is stable, that it may hold opens.
    pub(crate) holder: Option<u64>,
    /// The reply to send instead when the log fails.
    pub(crate) failure: Bytes,
    /// The reply to be kept when all the rest is stable: that is in several logs.
    pub(crate) later: Option<Later>,
}

/// A reply that no log may have before all logs have the effects, and what it tells of others' effects: a retry after a crash in
/// between is a new request.
pub(crate) struct Later {
    /// Whose log takes it.
    pub(crate) home: Arc<Export>,
    pub(crate) reply: LateReply,
    /// It is written down at once; else, where the request changed nothing, it stands in snapshots only.
    pub(crate) noted: bool,
}

/// See [`Later`]. Until then the request is as one that is being executed.
pub(crate) enum LateReply {
    /// Of a slot, which stays busy.
    Slot(SessionId, u32, Kept),
    /// Of a call that the duplicate request cache knows.
    Call(CallKey),
}

impl LateReply {
    /// The same where the effects may not be stable. A call that is not in a slot is forgotten then.
    fn failed(self, failure: &Bytes) -> Option<LateReply> {
        match self {
            LateReply::Slot(session, slot, _) => {
                Some(LateReply::Slot(session, slot, Kept::Reply(failure.clone())))
            }
            LateReply::Call(_) => None,
        }
    }

    /// What is to be written down; `None` when nobody can ask for it any more.
    fn note<F>(self, st: &mut State<F>, home: LogId) -> Option<Stamped> {
        let v = st.next_version();
        let note = match self {
            LateReply::Slot(session, slot, kept) => {
                let mut s = st.sessions.get_mut(&session)?;
                Note::Slot(s.stage_in(slot, kept, v, Some(home))?)
            }
            LateReply::Call(key) => Note::Call(st.drc.noted(&key, v, home)?),
        };
        Some(Stamped { v, note })
    }
}

impl Outcome {
    /// A reply that can be sent at once.
    pub(crate) fn at_once(reply: Vec<Bytes>) -> Outcome {
        Outcome { reply, pending: None, waits: None, offloads: Vec::new() }
    }
}

impl Pending {
    /// Waits for the logs and for nothing else.
    pub(crate) fn new(receipts: Receipts, failure: Bytes) -> Pending {
        Pending { receipts, slot: None, owners: Vec::new(), holder: None, failure, later: None }
    }
}

/// Executes decoded requests: replay check, execution, wait for the log, reply.
pub(crate) struct Executor {
    /// What all requests share.
    pub(crate) sh: Arc<Shared>,
    /// Threads for requests that wait for the disk, so that others keep theirs.
    pub(crate) slow: Arc<Pool>,
    /// Threads for copies that continue after the reply to their COPY.
    pub(crate) copying: Arc<Pool>,
    /// The threads of the runtime, on which all other requests run.
    pub(crate) workers: Workers,
    /// Notifies waiting retries when a slot, or a call without a session, has been answered.
    pub(crate) released: Released,
}

impl Executor {
    /// Runs a decoded call to its reply; `make` gets who calls, and the call's name in the duplicate request cache if it
    /// has one.
    pub(crate) async fn answer<W: Work>(
        &self,
        conn: &Arc<ConnInfo>,
        call: CallHeader,
        body: Bytes,
        plan: Plan,
        make: impl FnOnce(Caller, Option<CallKey>) -> W,
    ) -> Response {
        let Plan { exports, slow, kept, reply_max } = plan;
        let principal = Principal::of(&call.cred);
        let CallHeader { xid, prog: program, vers: version, proc: procedure, cred, mut turn, .. } = call;
        let caller = turn.before(pin!(self.sh.caller(conn.peer(), cred))).await;
        let key = kept.then(|| {
            let numbers = CallNumbers { xid, program, version, procedure };
            CallKey::new(caller.addr, numbers, principal, &body)
        });
        drop(body);
        let busy = match &key {
            None => None,
            Some(key) => {
                let from = Origin { conn: conn.id(), port: caller.port };
                match turn.before(pin!(once::ask(&self.sh, &self.released, key, from))).await {
                    Once::Execute(busy) => Some(busy),
                    Once::Replay(reply) => {
                        self.sh.counters.replay();
                        return Response::Success(reply);
                    }
                    Once::Busy => return Response::Close,
                }
            }
        };
        for export in &exports {
            // A volume that has failed says so again to each operation.
            let _ = turn.before(pin!(export.volume.admit())).await;
        }
        let room = turn.before(pin!(conn.room(reply_max))).await;
        let client = landfast_rpc::share_of(caller.addr);
        let work = Arc::new(make(caller, key));
        let mut until = None;
        let mut awaited = Awaited::Slot;
        loop {
            turn.again().await;
            // Asked for before the slot is looked at, so that no release is missed.
            let mut released = pin!(self.released.awaited(awaited, work.slot()).notified());
            released.as_mut().enable();
            let announced: Vec<_> =
                exports.iter().filter(|_| !slow).filter_map(|e| e.volume.expect()).collect();
            // What changes nothing waits for no flush: the clock is not asked for it.
            let started = (!exports.is_empty()).then(Instant::now);
            let outcome = self.run(&work, client, (slow, !exports.is_empty()), &mut turn).await;
            let ran = started.map(|started| started.elapsed()).unwrap_or_default();
            let in_company = announced.iter().any(|intent| intent.in_company());
            drop(announced);
            let Some(Outcome { reply, pending, waits, offloads }) = outcome else { return Response::Close };
            for offload in offloads {
                let (workers, sh, pool) = (self.workers.clone(), self.sh.clone(), self.copying.clone());
                tokio::spawn(async move { workers.during(pin!(offload::run(sh, pool, offload))).await });
            }
            let Some((stands_in_its_way, patience)) = waits else {
                point("request.ran");
                let failure = match pending {
                    Some(pending) => {
                        if ran > limits::RUN_IN_COMPANY_MAX {
                            pending.receipts.request();
                        } else if pending.receipts.waits() {
                            // Requests that are here already share a flush. Those that were received with this one are begun
                            // before it goes on, in a task of its own; then those of others have their turn.
                            tokio::task::yield_now().await;
                            if in_company {
                                tokio::task::yield_now().await;
                            }
                        }
                        let failure = self.settle(pending).await.err();
                        point("reply.before-send");
                        failure
                    }
                    None => None,
                };
                // Where the log failed a retry is a new call.
                if let Some(busy) = busy.filter(|_| failure.is_none()) {
                    busy.settle();
                }
                self.released.answered(work.slot());
                return Response::Segments(failure.map_or(reply, |failure| vec![failure])).in_room(room);
            };
            // A client that has lost its connection repeats what is still being worked on; `DELAY` would cost it seconds.
            let until = *until.get_or_insert_with(|| Instant::now() + patience);
            if awaited != stands_in_its_way {
                // It may be out of the way already.
                awaited = stands_in_its_way;
                if Instant::now() < until {
                    continue;
                }
            }
            if timeout_at(until, released).await.is_err() {
                return Response::Segments(reply);
            }
        }
    }

    /// Runs a request, and lets go of its turn; `None` when that failed.
    async fn run<W: Work>(
        &self,
        work: &Arc<W>,
        client: IpAddr,
        (slow, changes): (bool, bool),
        turn: &mut Turn,
    ) -> Option<Outcome> {
        if !slow {
            // Where nobody else waits for the thread that it runs on, nobody has to wait for its place either.
            let outcome = match changes {
                true => self.workers.change(|| turn.give(), || work.run(&self.sh)),
                false => work.run(&self.sh),
            };
            turn.give();
            return Some(outcome);
        }
        turn.give();
        let (done, outcome) = tokio::sync::oneshot::channel();
        let (sh, work) = (self.sh.clone(), work.clone());
        self.slow.run_for(client, move || {
            let outcome = work.run(&sh);
            if let Some(pending) = &outcome.pending {
                pending.receipts.request();
            }
            // The other end waits until the job has run or was dropped.
            let _ = done.send(outcome);
        });
        outcome.await.ok()
    }

    /// Waits for the logs, frees the slot and the owners.
    ///
    /// # Errors
    /// What the request did may not be stable: the reply to send instead.
    async fn settle(&self, pending: Pending) -> Result<(), Bytes> {
        let Pending { receipts, slot, owners, holder, failure, later } = pending;
        let mut stable = receipts.wait().await.is_ok();
        if let Some(Later { home, reply, noted }) = later {
            let reply = if stable { Some(reply) } else { reply.failed(&failure) };
            let note = reply.and_then(|reply| reply.note(&mut *self.sh.state(), home.id()));
            // No log needs to know of a failure.
            if let Some(note) = note.filter(|_| stable && noted) {
                stable = Box::pin(write_down_in(&home, note)).await;
            }
        }
        if slot.is_some() || holder.is_some() || !owners.is_empty() {
            let mut st = self.sh.state();
            if let Some(client) = holder.filter(|_| stable) {
                st.holding_is_noted(client);
            }
            if let Some((session, slot)) = slot
                && let Some(mut s) = st.sessions.get_mut(&session)
            {
                if !stable {
                    s.replace_reply(slot, Kept::Reply(failure.clone()));
                }
                s.release(slot);
            }
            if !stable {
                st.owners.spoil_all(&owners);
            }
            st.owners.give_back(&owners);
        }
        if stable { Ok(()) } else { Err(failure) }
    }
}

/// Writes a note down that goes with no effect; whether it is stable.
async fn write_down_in(export: &Export, note: Stamped) -> bool {
    let receipt = {
        let mut tx = export.volume.tx();
        tx.note(note.to_bytes());
        tx.finish()
    };
    receipt.wait().await.is_ok()
}
