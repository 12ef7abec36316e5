//! The server around the state: what `v4/`, `v3/`, `nlm/`, `backchannel/` and `path.rs` do with it, in the same order, without sockets, files and threads.

mod before;
mod by_itself;
mod opens;
mod operations;
mod restart;
mod v3;

use super::super::asked::Told;
use super::super::clock::Millis;
use super::super::delegations::{GivenTo, Recall};
use super::super::ids::FileKey;
use super::super::looking::Question;
use super::super::notes::{Note, Stamped};
use super::super::removals::Removals;
use super::super::sessions::{Begin, CachedReply, SlotUse};
use super::super::snapshot::Snapshot;
use super::super::{Bounds, State};
use super::log::Log;
use super::model::Model;
use super::op::{Call, Done, Op, Reply};
use super::rights::{DIRECTORY, File, Kind, NAMES, Names, Who};
use crate::limits;
use crate::touches::{Touches, Touching};
use bytes::Bytes;
use landfast_nfs::v4::{NfsStat, SessionId, Stateid};
use landfast_volume::{Attrs, Kind as FileKind, Timestamp};
use std::net::IpAddr;
use std::sync::Arc;
pub(super) use v3::Nlm;

const TICK: Millis = 5000;
const LOG: [u8; 16] = [1; 16];
const ID: [u8; 16] = [2; 16];

pub(super) fn key(file: File) -> FileKey {
    Bytes::copy_from_slice(&file.to_be_bytes())
}

pub(super) fn owner(n: u8) -> Bytes {
    Bytes::copy_from_slice(&[b'o', n])
}

/// Who asks, in the server.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub(super) who: Who,
    /// `None`: NFSv3, which speaks for no client.
    pub(super) client: Option<u64>,
    pub(super) session: Option<(SessionId, u32)>,
    pub(super) from: IpAddr,
}

/// A request that is under way.
pub(super) struct Work {
    pub(super) by: Asker,
    pub(super) call: Call,
    flags: u32,
    until: Millis,
    may_wait: bool,
    since: Option<u64>,
    waits: Vec<(u64, u64)>,
    parks: bool,
    touching: Vec<Touching>,
    notes: Vec<Stamped>,
    modified: bool,
    renamed: bool,
    made: Option<File>,
    told: Option<Told>,
    /// What the holder had when this began to look: its size.
    had: Option<u64>,
    second: bool,
}

/// A reply that waits for the log.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) reply: Reply,
    group: u64,
    holder: Option<(u64, u64)>,
    /// The versions of its notes of clients that are gone.
    gone: Vec<u64>,
}

struct Recalling {
    recall: Recall,
    until: Millis,
    next: Millis,
    pause: Millis,
    unknown: u32,
    answered: bool,
}

/// What a client says to a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Ok,
    Later,
    Unknown,
    None,
}

/// What is said to a client beside its requests.
pub(super) trait Holders {
    /// CB_RECALL. `referring`: the session, slot and number of the OPEN, if it is named.
    fn recalled(
        &mut self,
        m: &mut Model,
        client: u64,
        stateid: &Stateid,
        referring: Option<&GivenTo>,
    ) -> Answer;
    /// CB_GETATTR: the size that the holder has.
    fn asked(&mut self, m: &mut Model, question: &Question) -> Option<u64>;
    /// The size of the file at its holder, now.
    fn size_at_holder(&self, m: &Model, file: File) -> Option<u64>;
    /// Whether callbacks reach the client.
    fn is_reached(&self, client: u64) -> bool;
}

pub(super) struct Server {
    pub(super) st: State<u32>,
    pub(super) log: Log,
    pub(super) touches: Arc<Touches>,
    pub(super) names: Names,
    pub(super) files: File,
    pub(super) sizes: Vec<u64>,
    change: u64,
    pub(super) epoch: u32,
    pub(super) now: Millis,
    next_tick: Millis,
    pub(super) parked: Vec<Work>,
    pub(super) working: Vec<Work>,
    pub(super) pending: Vec<Pending>,
    /// Replies on their way.
    pub(super) sent: Vec<(Call, Reply)>,
    recalls: Vec<Recalling>,
    questions: Vec<(Question, Millis)>,
    tells: Vec<(Question, Told, u64)>,
    expelling: Vec<(u64, u64)>,
    revoking: Vec<(u64, u64, u64)>,
    ends_grace: Option<u64>,
    /// Something has just been taken from a client, and somebody else goes on: a good moment for trouble.
    pub(super) took: bool,
    /// A client whose lease was over has been removed, and the log need not know yet.
    pub(super) removed: bool,
    snapshot: Option<(Snapshot, u64)>,
    bounds: Bounds,
    kept: Vec<Reply>,
    /// How many requests were executed.
    pub(super) executed: u64,
    /// How many of these by former instances.
    pub(super) executed_before: u64,
}

pub(super) fn lease() -> Millis {
    90_000
}

fn attrs(size: u64, change: u64) -> Attrs {
    let at = Timestamp { secs: change as i64, nanos: 0 };
    Attrs {
        kind: FileKind::File,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: (0, 0),
        size,
        used: size,
        fsid: (0, 0),
        fileid: 1,
        atime: at,
        mtime: at,
        ctime: at,
        btime: at,
        change,
    }
}

fn instance(epoch: u32, bounds: Bounds) -> State<u32> {
    let mut secret = [7; 16];
    secret[..4].copy_from_slice(&epoch.to_be_bytes());
    State::of_instance(epoch, secret, lease(), bounds)
}

impl Server {
    pub(super) fn new(bounds: Bounds) -> Server {
        let mut server = Server {
            st: instance(1, bounds),
            log: Log::default(),
            touches: Touches::new(),
            names: [None; NAMES],
            files: DIRECTORY,
            sizes: vec![0],
            change: 100,
            epoch: 1,
            now: 0,
            next_tick: TICK,
            parked: Vec::new(),
            working: Vec::new(),
            pending: Vec::new(),
            sent: Vec::new(),
            recalls: Vec::new(),
            questions: Vec::new(),
            tells: Vec::new(),
            expelling: Vec::new(),
            revoking: Vec::new(),
            ends_grace: None,
            took: false,
            removed: false,
            snapshot: None,
            bounds,
            kept: Vec::new(),
            executed: 0,
            executed_before: 0,
        };
        let first = server.st.snapshot_in(LOG, ID, 1);
        server.log.begins_with(first, server.names);
        server
    }

    /// What whoever has had the state says when it lets go of it.
    fn lets_go(&mut self) {
        let signals = self.st.files.delegations.signals();
        if signals.ended {
            self.touches.some_ended();
        }
        self.touches.set_holders_gone(self.st.removals.of_holders());
        let live = &self.st.files.delegations;
        self.touches.set_delegations(live.live(), live.whole_directories());
        self.st.files.closed.clear();
    }

    /// A client is in the way whose lease is over.
    fn removes(&mut self, client: u64) -> Vec<Stamped> {
        self.removed = true;
        self.st.remove_client(client)
    }

    /// Writes notes that belong to no request.
    fn write_down(&mut self, notes: Vec<Stamped>) -> u64 {
        if notes.is_empty() { 0 } else { self.log.append(notes, None) }
    }

    pub(super) fn reply(&self, kept: &Bytes) -> Option<Reply> {
        let place = kept.first_chunk::<8>().map(|place| u64::from_be_bytes(*place))?;
        self.kept.get(place as usize).cloned()
    }

    fn keep(&mut self, reply: &Reply) -> CachedReply {
        self.kept.push(reply.clone());
        let place = (self.kept.len() - 1) as u64;
        CachedReply::Reply(Bytes::copy_from_slice(&place.to_be_bytes()))
    }

    /// A request of a session arrives.
    pub(super) fn arrives(
        &mut self,
        m: &mut Model,
        holders: &dyn Holders,
        call: Call,
        from: IpAddr,
        split: bool,
    ) {
        let sequence = |status| Reply { sequence: status, flags: 0, done: Done::of(status) };
        let begun = self.sequence(&call, from);
        self.lets_go();
        match begun {
            Err(status) => self.sent.push((call, sequence(status))),
            Ok((Begin::Replay(kept), ..)) => {
                let reply = self.reply(&kept).unwrap_or_else(|| sequence(NfsStat::NFS4ERR_SERVERFAULT));
                self.sent.push((call, reply));
            }
            Ok((Begin::Uncached, _, flags)) => {
                let done = Done::of(NfsStat::NFS4ERR_RETRY_UNCACHED_REP);
                let done = if call.op == Op::Nothing { Done::of(NfsStat::NFS4_OK) } else { done };
                self.sent.push((call, Reply { sequence: NfsStat::NFS4_OK, flags, done }));
            }
            Ok((Begin::New, client, flags)) => {
                m.figures.requests += 1;
                if flags
                    & !landfast_nfs::v4::flags::SEQ4_STATUS_CB_PATH_DOWN
                    & !landfast_nfs::v4::flags::SEQ4_STATUS_CB_PATH_DOWN_SESSION
                    & !landfast_nfs::v4::flags::SEQ4_STATUS_BACKCHANNEL_FAULT
                    == 0
                {
                    self.all_is_well(m, call.who, client);
                }
                let by = Asker {
                    who: call.who,
                    client: Some(client),
                    session: Some((call.session, call.slot)),
                    from,
                };
                let work = Work::new(by, call, flags, self.now + limits::RECALL_WAIT.as_millis() as Millis);
                self.runs(m, holders, work, split);
            }
        }
    }

    /// A client is told that all is well: the server knows whatever it holds.
    fn all_is_well(&mut self, m: &mut Model, who: Who, client: u64) {
        m.is_told_all_is_well(who);
        let lost = m.of(who).filter(|r| !r.reclaim).find(|r| {
            let found = self.st.files.find(client, &r.stateid);
            let unused =
                matches!(r.kind, Kind::Open { deny: 0, .. }) && self.st.is_unused_former(client, &r.stateid);
            // A recall or a revocation that is on its way will tell it.
            found.is_err() && found != Err(NfsStat::NFS4ERR_OLD_STATEID) && !unused
        });
        if let Some(lost) = lost.cloned() {
            let found = self.st.files.find(client, &lost.stateid);
            m.fails(format!(
                "client {who} is told that all is well, but the server knows nothing of {lost:?}: {found:?}"
            ));
        }
    }

    fn sequence(&mut self, call: &Call, from: IpAddr) -> Result<(Begin, u64, u32), NfsStat> {
        let st = &mut self.st;
        let client = st.heard_on(&call.session, from)?;
        let dead = st.clients.is_dead(client);
        let mut session = st.sessions.get_mut(&call.session).ok_or(NfsStat::NFS4ERR_BADSESSION)?;
        session.used_from(from);
        let ask = SlotUse {
            slot: call.slot,
            sequence: call.sequence,
            highest: 1,
            fingerprint: call.print,
            solo: call.op == Op::Nothing,
        };
        let begun = session
            .begin(self.now, &ask, true, || if dead { Err(NfsStat::NFS4ERR_DEADSESSION) } else { Ok(()) })?;
        drop(session);
        st.clients.renew(client, self.now);
        let flags = st.status_flags(client) | st.sessions.back_status(&call.session);
        Ok((begun, client, flags))
    }

    /// Runs a request as far as it goes; `split`: it is interrupted half-way.
    pub(super) fn runs(&mut self, m: &mut Model, holders: &dyn Holders, mut work: Work, split: bool) {
        if !work.second {
            if let Err(status) = self.before(m, holders, &mut work) {
                if work.parks {
                    work.touching.clear();
                    self.lets_go();
                    return self.parked.push(work);
                }
                self.lets_go();
                return self.finishes(m, work, Done::of(status));
            }
            work.second = true;
            let may = matches!(
                work.call.op,
                Op::Read { .. }
                    | Op::Write { .. }
                    | Op::SetAttributes { .. }
                    | Op::OpenFile { .. }
                    | Op::Lock { .. }
            ) || work.made.is_some();
            if split && may {
                self.lets_go();
                return self.working.push(work);
            }
        }
        let done = self.second(m, &mut work).unwrap_or_else(Done::of);
        if matches!(work.call.op, Op::Open { .. } | Op::OpenFile { .. }) && done.status.is_ok() {
            let mark = self.st.files.mark.to_be_bytes();
            m.may_be_unknown_again(work.by.who, done.file, mark);
        }
        self.lets_go();
        self.finishes(m, work, done);
    }

    /// Parked requests go on whose delegations have ended, or that have waited long enough.
    pub(super) fn unparks(&mut self, m: &mut Model, holders: &dyn Holders) {
        let mut at = 0;
        while let Some(work) = self.parked.get(at) {
            let waits = work.waits.iter().any(|(id, since)| self.st.files.is_waited_for(*id, *since));
            let over = self.now >= work.until;
            if waits && !over {
                at += 1;
                continue;
            }
            let mut work = self.parked.remove(at);
            work.may_wait = !over;
            work.waits.clear();
            (work.parks, work.told) = (false, None);
            self.runs(m, holders, work, false);
        }
    }

    /// The end of a request of a session.
    fn finishes(&mut self, m: &mut Model, mut w: Work, done: Done) {
        w.touching.clear();
        let mut notes = std::mem::take(&mut w.notes);
        self.executed += 1;
        let done = Done { at: self.executed, ..done };
        let reply = Reply { sequence: NfsStat::NFS4_OK, flags: w.flags, done };
        let Some((session, slot)) = w.by.session else { return };
        let client = w.by.client.unwrap_or(0);
        let lasting = w.modified || !notes.is_empty();
        if lasting {
            let gone = self.st.take_gone();
            notes.extend(gone);
        }
        let holder = self.st.note_holding(client);
        let holds = holder.as_ref().map(|note| (client, note.v));
        notes.extend(holder);
        let kept = self.keep(&reply);
        let v = self.st.next_version();
        let staged = self.st.sessions.get_mut(&session).and_then(|mut s| s.stage(slot, kept, v, Some(LOG)));
        if lasting || holds.is_some() {
            notes.extend(staged.map(|note| Stamped { v, note: Note::Slot(note) }));
        }
        m.tells(|| {
            format!("    {:?}{}", reply.done, if notes.is_empty() { "" } else { " (waits for the log)" })
        });
        if notes.is_empty() {
            if let Some(mut s) = self.st.sessions.get_mut(&session) {
                s.release(slot);
            }
            self.sent.push((w.call, reply));
            return;
        }
        let gone = Removals::among(&notes).collect();
        // Only what has changed nothing on the volume joins the log after it has let go of the state.
        let group = if w.modified {
            self.log.append(notes, w.renamed.then_some(self.names))
        } else {
            self.log.append_late(notes)
        };
        self.pending.push(Pending { call: w.call, reply, group, holder: holds, gone });
    }

    /// Flushes the log; what waited for it goes on.
    pub(super) fn flushes(&mut self, m: &mut Model) {
        self.log.flush();
        let mut at = 0;
        while let Some(pending) = self.pending.get(at) {
            if !self.log.is_durable(pending.group) {
                at += 1;
                continue;
            }
            let pending = self.pending.remove(at);
            if let Some((client, v)) = pending.holder {
                self.st.holding_is_noted(client, v);
            }
            self.st.removals.settled(pending.gone);
            if let Some(mut s) = self.st.sessions.get_mut(&pending.call.session) {
                s.release(pending.call.slot);
            }
            self.sent.push((pending.call, pending.reply));
        }
        self.goes_on(m);
    }

    /// Whether the server still has anything to do for somebody.
    pub(super) fn is_at_rest(&self) -> bool {
        self.parked.is_empty()
            && self.working.is_empty()
            && self.pending.is_empty()
            && self.recalls.is_empty()
            && self.questions.is_empty()
            && self.tells.is_empty()
            && self.expelling.is_empty()
            && self.revoking.is_empty()
    }
}

impl Work {
    pub(super) fn new(by: Asker, call: Call, flags: u32, until: Millis) -> Work {
        Work {
            by,
            call,
            flags,
            until,
            may_wait: true,
            since: None,
            waits: Vec::new(),
            parks: false,
            touching: Vec::new(),
            notes: Vec::new(),
            modified: false,
            renamed: false,
            made: None,
            told: None,
            had: None,
            second: false,
        }
    }
}
