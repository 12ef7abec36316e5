//! The path of a request, the same for all versions of NFS, from the decoded call to its reply:
//!
//! 1. The client's turn has come ([`landfast_rpc::Turn`]). It is given back wherever the request waits.
//! 2. The caller is looked up. A call without a session is looked up in the duplicate request cache ([`CallDecision`]).
//! 3. The request waits for back-pressure of the logs that it may write to, and for room for a large reply.
//! 4. It is announced to those logs.
//! 5. It runs here, or on the threads for work that waits for the disk ([`crate::pool`]). The turn goes to the next
//!    request.
//! 6. Other requests that have arrived may run, so that they share its flush. This step is skipped after a request that
//!    ran for long: a flush of its own then costs little, and its client continues sooner. It is also skipped for a client
//!    that has a thread of its own (`landfast_rpc::CallHeader::lone`), which then flushes in place if nobody else is at work.
//! 7. The logs are flushed up to its last record. If there are several, one of them then takes the reply and is
//!    flushed.
//! 8. Its slot, its owners and its place in the duplicate request cache become free, and the reply is sent.
//!
//! Decoding and execution belong to the protocols: [`Plan`] is what must be known before a request runs, [`Work`] runs
//! it, [`Outcome`] is its result.
//!
//! Invariants:
//! - A request that changed something is answered once the logs hold the change and the reply; otherwise it gets
//!   [`Pending::failure`].
//! - Nothing waits after step 5 while it holds a turn or an announcement.

use crate::duplicate_requests::{self, CallDecision};
use crate::exports::name_cache::Wait;
use crate::exports::{Caller, Export, Receipts};
use crate::limits;
use crate::offload::{self, Offload};
use crate::pool::Pool;
use crate::shared::Shared;
use crate::state::drc::{CallKey, CallNumbers, Origin};
use crate::state::notes::{LogId, Note, Stamped};
use crate::state::owners::OwnerKey;
use crate::state::sessions::CachedReply;
use crate::state::{Principal, State};
use crate::wakeups::{Awaited, Slot, Wakeups};
use crate::workers::Workers;
use bytes::Bytes;
use landfast_nfs::v4::SessionId;
use landfast_rpc::Turn;
use landfast_rpc::conn::{CallHeader, ConnInfo, Response};
use landfast_rpc::on_lone_thread;
use landfast_volume::faults::point;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What must be known of a request before it runs.
pub(crate) struct Plan {
    /// The exports whose logs it may write to; empty if it changes nothing.
    pub(crate) exports: Vec<Arc<Export>>,
    /// It may wait for the disk itself.
    pub(crate) slow: bool,
    /// Its reply is kept in the duplicate request cache.
    pub(crate) kept: bool,
    /// The largest size of its reply, in bytes.
    pub(crate) reply_max: usize,
}

/// A request that can run without waiting for any log.
pub(crate) trait Work: Send + Sync + 'static {
    fn run(&self, sh: &Shared) -> Outcome;

    fn slot(&self) -> Option<Slot> {
        None
    }

    /// Whether a request that waits for delegations has to wait longer. Asked after each end of one, and each answer of a holder.
    fn still_waits(&self, sh: &Shared) -> bool;

    /// Called when it has waited long enough: whether it must run once more to give an answer.
    fn has_another_run(&self) -> bool {
        false
    }
}

/// A reply, and what must happen before it is sent.
pub(crate) struct Outcome {
    /// The pieces of the reply.
    pub(crate) reply: Vec<Bytes>,
    pub(crate) pending: Option<Pending>,
    /// A request in progress is, or may be, in the way. Run this one again when that one was answered, for at most this
    /// long.
    pub(crate) waits: Option<(Awaited, Duration)>,
    pub(crate) offloads: Vec<Offload>,
}

/// What remains to be done for a reply that waits for the log.
pub(crate) struct Pending {
    pub(crate) receipts: Receipts,
    /// The slot that is busy until then.
    pub(crate) slot: Option<(SessionId, u32)>,
    /// The NFSv4.0 owners that are busy until then.
    pub(crate) owners: Vec<OwnerKey>,
    /// The client whose record, once durable, says that it may hold opens; the version of that note.
    pub(crate) holder: Option<(u64, u64)>,
    /// The versions of its notes of clients that are gone ([`crate::state::removals`]).
    pub(crate) gone: Vec<u64>,
    /// The reply to send instead if the log fails.
    pub(crate) failure: Bytes,
    /// The reply, if it may be recorded only when all the effects in several logs are durable.
    pub(crate) later: Option<Later>,
}

/// A reply that goes into a log only when all logs have the effects, its own and those of others that it reports. After
/// a crash in between, a retry is a new request.
pub(crate) struct Later {
    /// The export whose log takes it.
    pub(crate) home: Arc<Export>,
    pub(crate) reply: LateReply,
    /// Write it to the log at once. Otherwise, if the request changed nothing, it stands in snapshots only.
    pub(crate) noted: bool,
}

/// See [`Later`]. Until it is recorded, the request counts as one in progress.
pub(crate) enum LateReply {
    /// The reply of a slot, which stays busy.
    Slot(SessionId, u32, CachedReply),
    /// The reply of a call in the duplicate request cache.
    Call(CallKey),
}

impl LateReply {
    /// The reply to record when the effects may not be durable. A call without a slot is forgotten then.
    fn failed(self, failure: &Bytes) -> Option<LateReply> {
        match self {
            LateReply::Slot(session, slot, _) => {
                Some(LateReply::Slot(session, slot, CachedReply::Reply(failure.clone())))
            }
            LateReply::Call(_) => None,
        }
    }

    /// The note for the log; `None` when nobody can ask for the reply any more.
    fn note<F>(self, st: &mut State<F>, home: LogId) -> Option<Stamped> {
        let v = st.next_version();
        let note = match self {
            LateReply::Slot(session, slot, kept) => {
                let mut s = st.sessions.get_mut(&session)?;
                Note::Slot(s.stage(slot, kept, v, Some(home))?)
            }
            LateReply::Call(key) => Note::Call(st.drc.noted(&key, v, home)?),
        };
        Some(Stamped { v, note })
    }
}

impl Outcome {
    pub(crate) fn at_once(reply: Vec<Bytes>) -> Outcome {
        Outcome { reply, pending: None, waits: None, offloads: Vec::new() }
    }
}

impl Pending {
    /// Waits only for the logs.
    pub(crate) fn new(receipts: Receipts, failure: Bytes) -> Pending {
        Pending {
            receipts,
            slot: None,
            owners: Vec::new(),
            holder: None,
            gone: Vec::new(),
            failure,
            later: None,
        }
    }
}

pub(crate) struct Executor {
    pub(crate) sh: Arc<Shared>,
    /// Threads for requests that wait for the disk, so that they do not block others.
    pub(crate) slow: Arc<Pool>,
    pub(crate) copying: Arc<Pool>,
    /// The threads of the runtime, which run all other requests.
    pub(crate) workers: Workers,
    /// Wakes retries that wait for the answer of a slot, or of a call without a session.
    pub(crate) wakeups: Wakeups,
}

impl Executor {
    /// Runs a decoded call up to its reply. `make` gets the caller, and the call's key in the duplicate request cache
    /// if it has one.
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
        let CallHeader { xid, prog: program, vers: version, proc: procedure, cred, mut turn, lone, .. } =
            call;
        let caller = turn.before(pin!(self.sh.caller(conn.peer(), cred, Wait::ALittle))).await;
        let key = kept.then(|| {
            let numbers = CallNumbers { xid, program, version, procedure };
            CallKey::new(caller.addr, numbers, principal, &body)
        });
        drop(body);
        let busy = match &key {
            None => None,
            Some(key) => {
                let from = Origin { conn: conn.id(), port: caller.port };
                match turn.before(pin!(duplicate_requests::look_up(&self.sh, &self.wakeups, key, from))).await
                {
                    CallDecision::Execute(busy) => Some(busy),
                    CallDecision::Replay(reply) => {
                        self.sh.counters.replay();
                        return Response::Success(reply);
                    }
                    CallDecision::Busy => return Response::Close,
                }
            }
        };
        for export in &exports {
            // Ignore the result: a volume that has failed reports it again to each operation.
            let _ = turn.before(pin!(export.volume.admit())).await;
        }
        let room = turn.before(pin!(conn.room(reply_max))).await;
        let client = landfast_rpc::share_of(caller.addr);
        let work = Arc::new(make(caller, key));
        let mut until = None;
        let mut awaited = Awaited::Slot;
        loop {
            turn.again().await;
            // Registered before the slot is looked at, so that no release is missed.
            let mut wakeup = pin!(self.wakeups.awaited(awaited, work.slot()).notified());
            wakeup.as_mut().enable();
            let announced: Vec<_> =
                exports.iter().filter(|_| !slow).filter_map(|e| e.volume.expect()).collect();
            // A request that changes nothing waits for no flush, so it needs no time.
            let started = (!exports.is_empty()).then(Instant::now);
            let outcome = self.run(&work, client, (slow, !exports.is_empty()), &mut turn).await;
            let ran = started.map(|started| started.elapsed()).unwrap_or_default();
            let in_company = announced.iter().any(|intent| intent.in_company());
            drop(announced);
            let Some(Outcome { reply, pending, waits, offloads }) = outcome else { return Response::Close };
            for offload in offloads {
                self.workers.spawn(offload::run(self.sh.clone(), self.copying.clone(), offload));
            }
            let Some((stands_in_its_way, patience)) = waits else {
                point("request.ran");
                // A call that has waited for something is no longer on that thread.
                let lone = lone && on_lone_thread();
                let failure = match pending {
                    Some(pending) => {
                        if lone {
                            // Nobody is there to share a flush with.
                        } else if ran > limits::RUN_IN_COMPANY_MAX {
                            pending.receipts.request();
                        } else if pending.receipts.waits() {
                            // Requests that are already here share a flush. Those received together with this one are
                            // begun before it continues in a task of its own; this lets those of other connections run.
                            tokio::task::yield_now().await;
                            if in_company {
                                tokio::task::yield_now().await;
                            }
                        }
                        let failure = self.settle(pending, lone).await.err();
                        point("reply.before-send");
                        failure
                    }
                    None => None,
                };
                // After a failure of the log a retry is a new call.
                if let Some(busy) = busy.filter(|_| failure.is_none()) {
                    busy.settle();
                }
                self.wakeups.answered(work.slot());
                return Response::Segments(failure.map_or(reply, |failure| vec![failure])).in_room(room);
            };
            // A client that lost its connection retries requests that are still in progress. `DELAY` would cost it
            // seconds.
            let until = *until.get_or_insert_with(|| Instant::now() + patience);
            if awaited != stands_in_its_way {
                // It may be finished already.
                awaited = stands_in_its_way;
                if awaited != Awaited::Delegation && Instant::now() < until {
                    continue;
                }
                wakeup.set(self.wakeups.awaited(awaited, work.slot()).notified());
                wakeup.as_mut().enable();
            }
            let waits_since = Instant::now();
            let came = loop {
                if awaited == Awaited::Delegation && !work.still_waits(&self.sh) {
                    break true;
                }
                if timeout_at(until, wakeup.as_mut()).await.is_err() {
                    break false;
                }
                if awaited != Awaited::Delegation {
                    break true;
                }
                wakeup.set(self.wakeups.awaited(awaited, work.slot()).notified());
                wakeup.as_mut().enable();
            };
            if awaited == Awaited::Delegation {
                self.sh.counters.waited_for_delegation(waits_since.elapsed());
            }
            if !came && !work.has_another_run() {
                return Response::Segments(reply);
            }
        }
    }

    /// Runs a request and gives its turn back. `None` if that failed.
    async fn run<W: Work>(
        &self,
        work: &Arc<W>,
        client: IpAddr,
        (slow, changes): (bool, bool),
        turn: &mut Turn,
    ) -> Option<Outcome> {
        if !slow {
            // If nobody else waits for this thread, nobody waits for its place either.
            let outcome = match changes {
                true => self.workers.change(client, || turn.give(), || work.run(&self.sh)).await,
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
            // The receiver waits until the job has run or was dropped.
            let _ = done.send(outcome);
        });
        outcome.await.ok()
    }

    /// Waits for the logs, on this thread if it is a `lone` client's; then frees the slot and the owners. The error is the reply to send instead when the effects
    /// may not be durable.
    async fn settle(&self, pending: Pending, lone: bool) -> Result<(), Bytes> {
        let Pending { receipts, slot, owners, holder, gone, failure, later } = pending;
        let mut stable = if lone { receipts.wait_here().await } else { receipts.wait().await }.is_ok();
        if let Some(Later { home, reply, noted }) = later {
            let reply = if stable { Some(reply) } else { reply.failed(&failure) };
            let note = reply.and_then(|reply| reply.note(&mut *self.sh.state(), home.id()));
            // A failure is not recorded in any log.
            if let Some(note) = note.filter(|_| stable && noted) {
                stable = Box::pin(home.write_down(&[note]).wait()).await.is_ok();
            }
        }
        if slot.is_some() || holder.is_some() || !owners.is_empty() || !gone.is_empty() {
            let mut st = self.sh.state();
            if stable {
                st.removals.settled(gone);
            }
            if let Some((client, v)) = holder.filter(|_| stable) {
                st.holding_is_noted(client, v);
            }
            if let Some((session, slot)) = slot
                && let Some(mut s) = st.sessions.get_mut(&session)
            {
                if !stable {
                    s.replace_reply(slot, CachedReply::Reply(failure.clone()));
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
