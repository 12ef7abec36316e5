//! The server around the state: what `v4/`, `v3/`, `nlm/`, `backchannel/` and `path.rs` do with it, in the same order, without sockets, files and threads.

use super::super::asked::{AsGiven, Asking, Told};
use super::super::bugs::{Bug, bug};
use super::super::clock::Millis;
use super::super::delegations::{GivenTo, Recall, Right as Given, Touch};
use super::super::ids::FileKey;
use super::super::locks::{self, LockError, Locker, Span};
use super::super::looking::{Look, Question};
use super::super::merge::merge;
use super::super::nlm::LockRequest;
use super::super::notes::{Note, Stamped};
use super::super::opens::{READ, Share, WRITE};
use super::super::removals::Removals;
use super::super::sessions::{Begin, CachedReply, SlotUse};
use super::super::snapshot::{PartMax, Snapshot};
use super::super::{Bounds, State};
use super::log::Log;
use super::model::Model;
use super::rights::{Effect, File, Kind, NAMES, Names, Who};
use crate::limits;
use crate::touches::{Touches, Touching};
use bytes::Bytes;
use landfast_nfs::v4::flags::{WND4_CONTENTION, WND4_RESOURCE};
use landfast_nfs::v4::{LockType, NfsStat, SessionId, Stateid};
use landfast_volume::{Attrs, Kind as FileKind, Timestamp};
use std::net::IpAddr;
use std::sync::Arc;

pub(super) const DIRECTORY: File = 0;

const TICK: Millis = 5000;
const LOG: [u8; 16] = [1; 16];
const ID: [u8; 16] = [2; 16];

pub(super) fn key(file: File) -> FileKey {
    Bytes::copy_from_slice(&file.to_be_bytes())
}

pub(super) fn owner(n: u8) -> Bytes {
    Bytes::copy_from_slice(&[b'o', n])
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    Nothing,
    /// CLAIM_NULL; `make`: it may make the file.
    Open {
        name: usize,
        owner: u8,
        access: Share,
        deny: Share,
        instead: bool,
        make: bool,
    },
    /// CLAIM_FH, and with a delegation's stateid CLAIM_DELEG_CUR_FH.
    OpenFile {
        file: File,
        owner: u8,
        access: Share,
        deny: Share,
        instead: bool,
        by: Option<Stateid>,
    },
    /// CLAIM_PREVIOUS.
    Reclaim {
        file: File,
        owner: u8,
        access: Share,
        deny: Share,
    },
    Downgrade {
        file: File,
        stateid: Stateid,
        access: Share,
        deny: Share,
    },
    Close {
        file: File,
        stateid: Stateid,
    },
    Lock {
        file: File,
        open: Stateid,
        owner: u8,
        known: Option<Stateid>,
        exclusive: bool,
        range: (u64, u64),
        reclaim: bool,
    },
    Unlock {
        file: File,
        stateid: Stateid,
        range: (u64, u64),
    },
    TestLock {
        file: File,
        owner: u8,
        exclusive: bool,
        range: (u64, u64),
    },
    Read {
        file: File,
        stateid: Stateid,
    },
    Write {
        file: File,
        stateid: Stateid,
    },
    SetAttributes {
        file: File,
    },
    Look {
        file: File,
    },
    Remove {
        name: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Return {
        file: File,
        stateid: Stateid,
    },
    Test {
        stateids: Vec<Stateid>,
    },
    Free {
        stateid: Stateid,
    },
    Directory {
        write: bool,
    },
    Complete,
}

/// What comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) status: NfsStat,
    pub(super) stateid: Stateid,
    pub(super) file: File,
    /// A delegation, and whether it is one for writing.
    pub(super) delegation: Option<(Stateid, bool)>,
    /// It is in place of an open.
    pub(super) alone: bool,
    /// The open was entered beside a delegation that somebody has of the file.
    pub(super) beside: bool,
    pub(super) tests: Vec<NfsStat>,
}

impl Done {
    fn of(status: NfsStat) -> Done {
        Done {
            status,
            stateid: Stateid::ANONYMOUS,
            file: DIRECTORY,
            delegation: None,
            alone: false,
            beside: false,
            tests: Vec::new(),
        }
    }

    fn with(stateid: Stateid, file: File) -> Done {
        Done { stateid, file, ..Done::of(NfsStat::NFS4_OK) }
    }
}

/// A reply: of SEQUENCE and of what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) sequence: NfsStat,
    pub(super) flags: u32,
    pub(super) done: Done,
}

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) who: Who,
    pub(super) session: SessionId,
    pub(super) slot: u32,
    pub(super) sequence: u32,
    pub(super) op: Op,
    /// The same for a retry.
    pub(super) print: u64,
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
    snapshot: Option<(Snapshot, u64)>,
    bounds: Bounds,
    kept: Vec<Reply>,
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
            snapshot: None,
            bounds,
            kept: Vec::new(),
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
        let live = &self.st.files.delegations;
        self.touches.set_delegations(live.live(), live.whole_directories());
        self.st.files.closed.clear();
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

    fn clear(
        &mut self,
        m: &Model,
        holders: &dyn Holders,
        w: &mut Work,
        file: File,
        touch: Touch,
    ) -> Result<(), NfsStat> {
        let kind = if file == DIRECTORY { FileKind::Dir } else { FileKind::File };
        w.touching.push(self.touches.begin_as(kind, touch, &key(file)));
        if !self.touches.any_in_the_way(kind, touch) {
            return Ok(());
        }
        let may_wait = w.may_wait && w.notes.is_empty() && !w.modified;
        let clear = if touch == Touch::Looks {
            let since = match w.since {
                Some(since) => since,
                None => {
                    w.had = holders.size_at_holder(m, file);
                    *w.since.insert(self.st.files.questions_sent())
                }
            };
            match self.st.look(self.now, &key(file), w.by.client, since, may_wait) {
                Look::Clear => true,
                Look::Told(told) => {
                    w.told = Some(told);
                    true
                }
                Look::Waits(id) => {
                    w.waits.push((id, since));
                    false
                }
            }
        } else {
            let ids = self.st.recall_from_others(self.now, &key(file), w.by.client, touch);
            let clear = ids.is_empty();
            w.waits.extend(ids.into_iter().map(|id| (id, u64::MAX)));
            clear
        };
        if clear {
            return Ok(());
        }
        w.parks = may_wait;
        Err(NfsStat::NFS4ERR_DELAY)
    }

    fn at(&self, name: usize) -> Option<File> {
        self.names.get(name).copied().flatten()
    }

    /// What comes before an operation does anything.
    fn before(&mut self, m: &mut Model, holders: &dyn Holders, w: &mut Work) -> Result<(), NfsStat> {
        let op = w.call.op.clone();
        match op {
            Op::Read { file, .. } => self.clear(m, holders, w, file, Touch::Reads),
            Op::Write { file, .. } | Op::SetAttributes { file } => {
                self.clear(m, holders, w, file, Touch::Changes)
            }
            Op::Look { file } => self.clear(m, holders, w, file, Touch::Looks),
            Op::TestLock { file, exclusive, .. } => {
                self.clear(m, holders, w, file, Touch::of_lock(exclusive))
            }
            Op::Lock { file, exclusive, .. } => self.clear(m, holders, w, file, Touch::of_lock(exclusive)),
            Op::Downgrade { file, access, .. } => {
                self.clear(m, holders, w, file, Touch::of_lock(access & WRITE != 0))
            }
            Op::Remove { name } => {
                let dir = self.clear(m, holders, w, DIRECTORY, Touch::Changes);
                self.clear_name(m, holders, w, name).and(dir)
            }
            Op::Rename { from, to } => {
                self.clear(m, holders, w, DIRECTORY, Touch::Changes)?;
                self.clear_name(m, holders, w, from)?;
                if bug(Bug::RenamedOverUnasked) { Ok(()) } else { self.clear_name(m, holders, w, to) }
            }
            Op::Open { name, access, deny, make, .. } => {
                if !bug(Bug::LookUnasked) {
                    self.clear(m, holders, w, DIRECTORY, Touch::Looks)?;
                }
                self.effect(m, w, DIRECTORY, Effect::Reads, "an OPEN by name");
                let client = w.by.client.unwrap_or(0);
                if self.st.must_wait_for_grace(client, self.now) {
                    return Err(NfsStat::NFS4ERR_GRACE);
                }
                match self.at(name) {
                    Some(file) => self.may_open(m, holders, w, file, access, deny, false),
                    None if make => {
                        self.clear(m, holders, w, DIRECTORY, Touch::Changes)?;
                        let (room, gone) = self.st.make_room_for_open(self.now, client, None, w.by.from);
                        w.notes.extend(gone);
                        room?;
                        self.files += 1;
                        self.sizes.push(0);
                        if let Some(place) = self.names.get_mut(name) {
                            *place = Some(self.files);
                        }
                        (w.modified, w.renamed, w.made) = (true, true, Some(self.files));
                        self.effect(m, w, DIRECTORY, Effect::Renames, "an OPEN that makes a file");
                        Ok(())
                    }
                    None => Err(NfsStat::NFS4ERR_NOENT),
                }
            }
            Op::OpenFile { file, access, deny, by, .. } => {
                let client = w.by.client.unwrap_or(0);
                match by {
                    None if self.st.must_wait_for_grace(client, self.now) => {
                        return Err(NfsStat::NFS4ERR_GRACE);
                    }
                    None => {}
                    Some(by) => {
                        self.st.files.find(client, &by)?;
                        let found = self.st.files.delegation(client, &key(file), &by);
                        let (given, _) = found.map_err(|_| NfsStat::NFS4ERR_INVAL)?;
                        if access & !given != 0 {
                            return Err(NfsStat::NFS4ERR_OPENMODE);
                        }
                    }
                }
                self.may_open(m, holders, w, file, access, deny, false)
            }
            Op::Reclaim { file, access, deny, .. } => {
                let client = w.by.client.unwrap_or(0);
                self.st.may_reclaim(client, self.now)?;
                if self.st.files.delegations.is_barred(client, &key(file)) {
                    return Err(NfsStat::NFS4ERR_RECLAIM_BAD);
                }
                self.may_open(m, holders, w, file, access, deny, true)
            }
            _ => Ok(()),
        }
    }

    fn clear_name(
        &mut self,
        m: &Model,
        holders: &dyn Holders,
        w: &mut Work,
        name: usize,
    ) -> Result<(), NfsStat> {
        let announced = self.touches.begin_names();
        match self.at(name) {
            Some(file) if self.touches.any_delegation() => self.clear(m, holders, w, file, Touch::Changes),
            _ => {
                w.touching.push(announced);
                Ok(())
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // those of an OPEN
    fn may_open(
        &mut self,
        m: &Model,
        holders: &dyn Holders,
        w: &mut Work,
        file: File,
        access: Share,
        deny: Share,
        reclaims: bool,
    ) -> Result<(), NfsStat> {
        let changes = access & WRITE != 0 || deny != 0;
        self.clear(m, holders, w, file, if changes { Touch::Changes } else { Touch::Reads })?;
        self.share(w, file, access, deny, reclaims)
    }

    fn share(
        &mut self,
        w: &mut Work,
        file: File,
        access: Share,
        deny: Share,
        reclaims: bool,
    ) -> Result<(), NfsStat> {
        if deny != 0 && !reclaims && self.st.may_have_unknown_opens(self.now) {
            return Err(NfsStat::NFS4ERR_GRACE);
        }
        let done = loop {
            match self.st.files.check_share(&key(file), access, deny) {
                Ok(()) => break Ok(()),
                Err(who) if self.st.lapsed(who.client, self.now) => {
                    w.notes.extend(self.st.remove_client(who.client));
                }
                Err(_) => break Err(NfsStat::NFS4ERR_SHARE_DENIED),
            }
        };
        w.notes.extend(self.st.removals.unsettled());
        done
    }

    /// Something is done. Without an open it may be done to files of a client that has to reclaim its delegations, in the grace period.
    fn effect(&self, m: &mut Model, w: &Work, file: File, effect: Effect, what: &str) {
        let without_open = !matches!(w.call.op, Op::Read { stateid, .. } | Op::Write { stateid, .. } if stateid != Stateid::ANONYMOUS);
        let dead = |id: &u64| self.st.clients.get(*id).is_some_and(|c| c.needs_reclaim);
        let excused: Vec<bool> = m.ids.iter().map(|id| without_open && dead(id)).collect();
        let by = w.by.client.map(|_| w.by.who);
        m.effect(by, file, effect, what, |who| excused.get(who).is_some_and(|dead| *dead));
    }

    /// Share reservations are for NFSv4: NFSv3 does not look at them.
    fn reads_or_writes(&self, m: &mut Model, w: &Work, file: File, want: Share) {
        if w.by.client.is_some() {
            m.reads_or_writes(w.by.who, file, want);
        }
    }

    /// What an operation does.
    fn second(&mut self, m: &mut Model, w: &mut Work) -> Result<Done, NfsStat> {
        let client = w.by.client.unwrap_or(0);
        match w.call.op.clone() {
            Op::Nothing => Ok(Done::of(NfsStat::NFS4_OK)),
            Op::Read { file, stateid } => {
                self.opened(w, file, &stateid, READ)?;
                m.used(w.by.who, &stateid, READ);
                self.effect(m, w, file, Effect::Reads, "a READ");
                self.reads_or_writes(m, w, file, READ);
                Ok(Done::with(stateid, file))
            }
            Op::Write { file, stateid } => {
                self.opened(w, file, &stateid, WRITE)?;
                m.used(w.by.who, &stateid, WRITE);
                self.effect(m, w, file, Effect::Changes, "a WRITE");
                self.reads_or_writes(m, w, file, WRITE);
                self.writes(w, file);
                Ok(Done::with(stateid, file))
            }
            Op::SetAttributes { file } => {
                self.effect(m, w, file, Effect::Changes, "a SETATTR");
                self.change += 2;
                w.modified = true;
                Ok(Done::with(Stateid::ANONYMOUS, file))
            }
            Op::Look { file } => {
                if file == DIRECTORY {
                    self.effect(m, w, file, Effect::Reads, "a GETATTR");
                }
                let mut shown = attrs(self.size(file), self.change);
                if let Some(told) = w.told {
                    told.show_in(&mut shown);
                    m.figures.told += 1;
                }
                if let Some(had) = w.had.filter(|had| w.told.is_some() && shown.size < *had) {
                    let size = shown.size;
                    m.fails(format!("a GETATTR of file {file} is told {size} bytes where its holder had {had} before it asked"));
                }
                Ok(Done::with(Stateid::ANONYMOUS, file))
            }
            Op::TestLock { file, owner: by, exclusive, range } => {
                let span = Span::of(range.0, range.1).ok_or(NfsStat::NFS4ERR_INVAL)?;
                if self.st.must_wait_for_grace(client, self.now) {
                    return Err(NfsStat::NFS4ERR_GRACE);
                }
                let done = loop {
                    match self.st.files.lock_test(client, &key(file), &owner(by), exclusive, span) {
                        Some(d) if d.client != client && self.st.lapsed(d.client, self.now) => {
                            w.notes.extend(self.st.remove_client(d.client));
                        }
                        Some(_) => break Err(NfsStat::NFS4ERR_DENIED),
                        None => break Ok(Done::with(Stateid::ANONYMOUS, file)),
                    }
                };
                w.notes.extend(self.st.removals.unsettled());
                done
            }
            Op::Remove { name } => {
                self.must_not_wait(w)?;
                let file = self.at(name).ok_or(NfsStat::NFS4ERR_NOENT)?;
                self.effect(m, w, file, Effect::Changes, "a REMOVE");
                self.renames(m, w, [(name, None), (name, None)]);
                Ok(Done::with(Stateid::ANONYMOUS, file))
            }
            Op::Rename { from, to } => {
                self.must_not_wait(w)?;
                let file = self.at(from).ok_or(NfsStat::NFS4ERR_NOENT)?;
                self.effect(m, w, file, Effect::Changes, "a RENAME");
                if let Some(over) = self.at(to).filter(|over| *over != file) {
                    self.effect(m, w, over, Effect::Changes, "a RENAME over");
                }
                if from != to {
                    self.renames(m, w, [(from, None), (to, Some(file))]);
                }
                Ok(Done::with(Stateid::ANONYMOUS, file))
            }
            Op::Open { name, owner, access, deny, instead, .. } => match w.made {
                Some(file) => {
                    let before = w.waits.len();
                    // The OPEN must not fail any more: it has made the file.
                    let beside = self.recalls_from(w, file);
                    w.waits.truncate(before);
                    w.notes.extend(self.st.log_beside(&key(file), w.by.client));
                    self.opens(w, file, owner, access, deny, Some(instead), false)
                        .map(|done| Done { beside, ..done })
                }
                None => {
                    let file = self.at(name).ok_or(NfsStat::NFS4ERR_NOENT)?;
                    self.opens(w, file, owner, access, deny, Some(instead), false)
                }
            },
            Op::OpenFile { file, owner, access, deny, instead, by } => {
                self.opens(w, file, owner, access, deny, by.is_none().then_some(instead), false)
            }
            Op::Reclaim { file, owner, access, deny } => self.opens(w, file, owner, access, deny, None, true),
            Op::Downgrade { file, stateid, access, deny } => {
                let adopted = self.st.adopt(self.now, client, &key(file), &stateid, access);
                adopted.map_err(|_| NfsStat::NFS4ERR_DELAY)?;
                let new = self.st.files.downgrade(client, &key(file), &stateid, access, deny)?;
                Ok(Done::with(new, file))
            }
            Op::Close { file, stateid } => {
                if !self.st.close_unused_former(client, &key(file), &stateid) {
                    let open = self.st.files.find_open(client, &key(file), &stateid)?;
                    let releases = self.st.files.has_logged_locks(open);
                    self.st.files.close(client, &key(file), &stateid)?;
                    if releases {
                        let gone = self.st.take_gone();
                        w.notes.extend(gone);
                    }
                }
                Ok(Done::with(Stateid::INVALID, file))
            }
            Op::Lock { file, open, owner: by, known, exclusive, range, reclaim } => {
                let span = Span::of(range.0, range.1).ok_or(NfsStat::NFS4ERR_INVAL)?;
                let kind = if exclusive { LockType::Write } else { LockType::Read };
                let locker = match known {
                    Some(known) => Locker::Known(known),
                    None => Locker::New { open, owner: owner(by) },
                };
                self.locks(w, file, &locker, kind, span, reclaim)
            }
            Op::Unlock { file, stateid, range } => {
                let span = Span::of(range.0, range.1).ok_or(NfsStat::NFS4ERR_INVAL)?;
                let new = self.st.files.unlock(client, &key(file), &stateid, span)?;
                let notes = self.st.log_locks(&new);
                w.notes.extend(notes);
                Ok(Done::with(new, file))
            }
            Op::Return { file, stateid } => {
                self.st.files.return_delegation(client, &key(file), &stateid)?;
                if self.st.many_gone() {
                    let gone = self.st.take_gone();
                    w.notes.extend(gone);
                }
                Ok(Done::with(stateid, file))
            }
            Op::Test { stateids } => {
                let each = |s: &Stateid| self.st.files.find(client, s).err().unwrap_or(NfsStat::NFS4_OK);
                Ok(Done { tests: stateids.iter().map(each).collect(), ..Done::of(NfsStat::NFS4_OK) })
            }
            Op::Free { stateid } => {
                let revoked = self.st.files.find(client, &stateid) == Err(NfsStat::NFS4ERR_DELEG_REVOKED);
                self.st.files.free(client, &stateid)?;
                if revoked {
                    let notes = self.st.note_client(client);
                    w.notes.extend(notes);
                }
                Ok(Done::with(stateid, DIRECTORY))
            }
            Op::Directory { write } => {
                if !self.st.has_room_for_directory(client) || self.st.must_wait_for_grace(client, self.now) {
                    return Err(NfsStat::NFS4ERR_DIRDELEG_UNAVAIL);
                }
                let whole = if write { self.gives_whole_directory(w).ok() } else { None };
                let (given, write) = match whole {
                    Some(given) => (given, true),
                    None => {
                        let by = self.may_delegate(w, DIRECTORY, Given::Names);
                        let given = by.and_then(|by| self.gives(w, DIRECTORY, Given::Names, by));
                        (given.map_err(|_| NfsStat::NFS4ERR_DIRDELEG_UNAVAIL)?, false)
                    }
                };
                let notes = self.st.is_opened_anew(client, &key(DIRECTORY));
                w.notes.extend(notes);
                Ok(Done { delegation: Some((given, write)), ..Done::with(given, DIRECTORY) })
            }
            Op::Complete => {
                let note = self.st.reclaim_complete(client)?;
                w.notes.extend(note);
                Ok(Done::of(NfsStat::NFS4_OK))
            }
        }
    }

    /// REMOVE and RENAME wait for the end of the grace period.
    fn must_not_wait(&self, w: &Work) -> Result<(), NfsStat> {
        match w.by.client {
            Some(client) if self.st.must_wait_for_grace(client, self.now) => Err(NfsStat::NFS4ERR_GRACE),
            _ => Ok(()),
        }
    }

    pub(super) fn size(&self, file: File) -> u64 {
        self.sizes.get(usize::from(file)).copied().unwrap_or(0)
    }

    pub(super) fn grows(&mut self, file: File, to: u64) {
        if let Some(size) = self.sizes.get_mut(usize::from(file)) {
            *size = (*size).max(to);
        }
        self.change += 2;
    }

    fn writes(&mut self, w: &mut Work, file: File) {
        self.grows(file, self.size(file) + 1);
        w.modified = true;
    }

    fn renames(&mut self, m: &mut Model, w: &mut Work, changes: [(usize, Option<File>); 2]) {
        for (name, file) in changes {
            if let Some(place) = self.names.get_mut(name) {
                *place = file;
            }
        }
        (w.modified, w.renamed) = (true, true);
        self.effect(m, w, DIRECTORY, Effect::Renames, "a change of names");
    }

    /// Whether a delegation is in the way of who made a file; it is recalled.
    fn recalls_from(&mut self, w: &mut Work, file: File) -> bool {
        w.touching.push(self.touches.begin(&key(file)));
        self.touches.any_delegation()
            && !self.st.recall_from_others(self.now, &key(file), w.by.client, Touch::Changes).is_empty()
    }

    fn opened(&mut self, w: &mut Work, file: File, stateid: &Stateid, want: Share) -> Result<(), NfsStat> {
        let Some(client) = w.by.client else { return Ok(()) };
        if *stateid == Stateid::ANONYMOUS {
            if self.st.grace.active(self.now) {
                return Err(NfsStat::NFS4ERR_GRACE);
            }
            let done = loop {
                match self.st.files.check_anonymous(&key(file), want) {
                    Ok(()) => break Ok(()),
                    Err(who) if self.st.lapsed(who.client, self.now) => {
                        w.notes.extend(self.st.remove_client(who.client));
                    }
                    Err(_) => break Err(NfsStat::NFS4ERR_LOCKED),
                }
            };
            w.notes.extend(self.st.removals.unsettled());
            return done;
        }
        self.st.adopt(self.now, client, &key(file), stateid, want)?;
        let done = loop {
            match self.st.files.io(client, &key(file), stateid, want) {
                Err(NfsStat::NFS4ERR_LOCKED) => {}
                done => break done.map(drop),
            }
            match self.st.files.check_denied_read(client, &key(file), stateid) {
                Err(who) if self.st.lapsed(who.client, self.now) => {
                    w.notes.extend(self.st.remove_client(who.client));
                }
                _ => break Err(NfsStat::NFS4ERR_LOCKED),
            }
        };
        w.notes.extend(self.st.removals.unsettled());
        done
    }

    fn may_delegate(&mut self, w: &Work, file: File, right: Given) -> Result<GivenTo, u32> {
        let (Some(client), Some((session, slot))) = (w.by.client, w.by.session) else {
            return Err(WND4_RESOURCE);
        };
        let s = self.st.sessions.get(&session).ok_or(WND4_RESOURCE)?;
        if !s.can_call_back() {
            return Err(WND4_RESOURCE);
        }
        let (tried, sequence) = (s.back_tried, s.last_sequence(slot));
        if !tried {
            self.st.files.delegations.try_out(session);
            return Err(WND4_RESOURCE);
        }
        self.st.files.may_delegate(self.now, client, &key(file), right)?;
        Ok(GivenTo { session, slot, sequence, minor: 2 })
    }

    fn gives(&mut self, w: &Work, file: File, right: Given, by: GivenTo) -> Result<Stateid, u32> {
        let client = w.by.client.ok_or(WND4_RESOURCE)?;
        self.st.files.may_delegate(self.now, client, &key(file), right)?;
        let given = (right == Given::Write).then_some(AsGiven { change: self.change, by_owner: true });
        let handle = (right != Given::Names).then_some(1);
        let holder = (false, by, key(file));
        let given = self.st.files.delegate(
            client,
            &key(file),
            right,
            holder,
            Asking::new(given),
            (w.by.from, handle),
        );
        let stateid = given.map_err(|_| WND4_RESOURCE)?;
        let live = &self.st.files.delegations;
        self.touches.set_delegations(live.live(), live.whole_directories());
        if !bug(Bug::WorkUnseen) && self.touches.others_touch(&key(file), &w.touching) {
            self.st.files.withdraw_delegation(client, &key(file), &stateid);
            return Err(WND4_CONTENTION);
        }
        Ok(stateid)
    }

    /// One for writing the directory. Who was alone in it is not asked here: the promise does not rest on it.
    fn gives_whole_directory(&mut self, w: &mut Work) -> Result<Stateid, u32> {
        let client = w.by.client.ok_or(WND4_RESOURCE)?;
        let (file, right) = (key(DIRECTORY), Given::ChangeNames);
        let by = self.may_delegate(w, DIRECTORY, right)?;
        let upgraded = self.st.files.upgrade(client, &file, by);
        let stateid = match upgraded {
            Some(stateid) => stateid,
            None => {
                let holder = (false, by, file.clone());
                let place = (w.by.from, None);
                let given = self.st.files.delegate(client, &file, right, holder, Asking::default(), place);
                given.map_err(|_| WND4_RESOURCE)?
            }
        };
        let live = &self.st.files.delegations;
        self.touches.set_delegations(live.live(), live.whole_directories());
        let note = match !bug(Bug::WorkUnseen) && self.touches.others_look(&file, &w.touching) {
            true => Err(WND4_CONTENTION),
            false => self.st.log_whole_directory(&stateid),
        };
        match note {
            Ok(note) => {
                w.notes.extend(note);
                Ok(stateid)
            }
            Err(why) => {
                match upgraded {
                    Some(_) => self.st.files.withdraw_upgrade(&stateid),
                    None => self.st.files.withdraw_delegation(client, &file, &stateid),
                }
                Err(why)
            }
        }
    }

    /// The second half of OPEN. `wish`: whether a delegation would do in place of an open; `None` where none is given.
    #[allow(clippy::too_many_arguments)] // those of an OPEN
    fn opens(
        &mut self,
        w: &mut Work,
        file: File,
        by: u8,
        access: Share,
        deny: Share,
        wish: Option<bool>,
        reclaims: bool,
    ) -> Result<Done, NfsStat> {
        let client = w.by.client.unwrap_or(0);
        let right = Given::of_access(access);
        let wanted = wish.is_some_and(|instead| instead || right == Given::Read);
        let given = if wanted && w.by.session.is_some() {
            self.may_delegate(w, file, right).and_then(|to| self.gives(w, file, right, to)).ok()
        } else {
            None
        };
        if let Some(given) = given
            && w.modified
        {
            let note = self.st.log_given(&given);
            w.notes.extend(note);
        }
        let alone = given.is_some()
            && wish == Some(true)
            && deny == 0
            && !self.st.files.has_open(client, &owner(by), &key(file));
        let stateid = if alone {
            let notes = self.st.is_opened_anew(client, &key(file));
            w.notes.extend(notes);
            Stateid::ANONYMOUS
        } else {
            match self.enters(w, client, file, by, access, deny, reclaims) {
                Ok(stateid) => stateid,
                Err(status) => {
                    if let Some(given) = given {
                        self.st.files.withdraw_delegation(client, &key(file), &given);
                    }
                    return Err(status);
                }
            }
        };
        let delegation = given.map(|given| (given, right == Given::Write));
        Ok(Done { delegation, alone, ..Done::with(stateid, file) })
    }

    #[allow(clippy::too_many_arguments)] // those of an OPEN
    fn enters(
        &mut self,
        w: &mut Work,
        client: u64,
        file: File,
        by: u8,
        access: Share,
        deny: Share,
        reclaims: bool,
    ) -> Result<Stateid, NfsStat> {
        let (known, from) = (owner(by), w.by.from);
        let (room, gone) = self.st.make_room_for_open(self.now, client, Some((&known, &key(file))), from);
        w.notes.extend(gone);
        room?;
        self.share(w, file, access, deny, reclaims)?;
        if self.st.clients.get(client).is_none() {
            return Err(NfsStat::NFS4ERR_STALE_CLIENTID);
        }
        let stateid = self.st.files.open_from(from, &key(file), client, &known, access, deny, Some(1))?;
        let notes = self.st.is_opened_anew(client, &key(file));
        w.notes.extend(notes);
        Ok(stateid)
    }

    fn locks(
        &mut self,
        w: &mut Work,
        file: File,
        locker: &Locker,
        kind: LockType,
        span: Span,
        reclaim: bool,
    ) -> Result<Done, NfsStat> {
        let client = w.by.client.unwrap_or(0);
        if reclaim {
            self.st.may_reclaim(client, self.now)?;
        } else if self.st.must_wait_for_grace(client, self.now) {
            return Err(NfsStat::NFS4ERR_GRACE);
        }
        let (Locker::New { open: held, .. } | Locker::Known(held)) = locker;
        self.st.adopt(self.now, client, &key(file), held, locks::needed(kind))?;
        self.st.files.lock_handle(client, &key(file), locker, kind)?;
        let done = loop {
            match self.st.files.lock(client, &key(file), locker, kind, span) {
                Err(LockError::Denied(d)) if d.client != client && self.st.lapsed(d.client, self.now) => {
                    w.notes.extend(self.st.remove_client(d.client));
                }
                Ok(stateid) => {
                    let notes = self.st.log_locks(&stateid);
                    w.notes.extend(notes);
                    break Ok(Done::with(stateid, file));
                }
                Err(LockError::Denied(_)) => break Err(NfsStat::NFS4ERR_DENIED),
                Err(LockError::Status(status)) => break Err(status),
            }
        };
        w.notes.extend(self.st.removals.unsettled());
        done
    }

    /// The end of a request of a session.
    fn finishes(&mut self, m: &mut Model, mut w: Work, done: Done) {
        w.touching.clear();
        let mut notes = std::mem::take(&mut w.notes);
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

    /// What the server does by itself once the log has what it waits for.
    fn goes_on(&mut self, m: &mut Model) {
        let mut again = Vec::new();
        for (client, group) in std::mem::take(&mut self.expelling) {
            if self.log.is_durable(group) {
                m.figures.lapsed += 1;
                self.took = true;
                m.tells(|| format!("  client {client:x} is expelled"));
                let notes = self.st.remove_client(client);
                self.write_down(notes);
            } else {
                again.push((client, group));
            }
        }
        self.expelling = again;
        for (id, client, group) in std::mem::take(&mut self.revoking) {
            if self.log.is_durable(group) {
                m.tells(|| format!("  delegation {id:x} is revoked"));
                self.took = true;
                let notes = self.st.revoke(client, id);
                self.write_down(notes);
            } else {
                self.revoking.push((id, client, group));
            }
        }
        for (question, told, group) in std::mem::take(&mut self.tells) {
            if self.log.is_durable(group) {
                self.st.files.is_told(&question, told);
            } else {
                self.tells.push((question, told, group));
            }
        }
        if self.ends_grace.is_some_and(|group| self.log.is_durable(group)) {
            self.ends_grace = None;
            self.st.grace.ended();
            m.tells(|| "  the grace period is over".to_owned());
        }
        self.lets_go();
    }

    /// What the server does by itself: callbacks, recalls, revocations.
    pub(super) fn polls(&mut self, m: &mut Model, holders: &mut dyn Holders) {
        for session in self.st.files.delegations.take_untried() {
            let reached = self
                .st
                .sessions
                .get(&session)
                .is_some_and(|s| s.can_call_back() && holders.is_reached(s.client));
            if let Some(mut s) = self.st.sessions.get_mut(&session).filter(|_| reached) {
                s.back_tried = true;
            }
        }
        while let Some(client) = self.st.files.delegations.take_lapsed() {
            let notes = self.st.note_expulsion(client);
            let group = if bug(Bug::ExpulsionUnlogged) { 0 } else { self.write_down(notes) };
            self.expelling.push((client, group));
        }
        let of = |recalls: &[Recalling], client| recalls.iter().filter(|r| r.recall.client == client).count();
        while let Some(recall) = {
            let recalls = &self.recalls;
            self.st.files.take_recall(|client| of(recalls, client) < limits::RECALLS_AT_ONCE)
        } {
            m.tells(|| format!("  delegation {:x} of client {:x} is recalled", recall.id, recall.client));
            m.is_recalled(recall.client, &recall.stateid);
            let (until, next) = (self.now + lease(), self.now);
            let pause = limits::RECALL_PAUSE.as_millis() as Millis;
            self.recalls.push(Recalling { recall, until, next, pause, unknown: 0, answered: false });
        }
        self.recalls_go_on(m, holders);
        while let Some(question) = self.st.files.take_question(|_| true) {
            let reached = holders.is_reached(question.client) && {
                let sessions = self.st.sessions.of_client(question.client);
                sessions.iter().any(|id| self.st.sessions.get(id).is_some_and(|s| s.can_call_back()))
            };
            let said = if reached { holders.asked(m, &question) } else { None };
            match said {
                Some(size) => {
                    self.st.files.answers(question.client, true);
                    self.change += 4;
                    let told = Told::of(&attrs(size, self.change - 1));
                    let group = self.log.append(Vec::new(), None);
                    self.tells.push((question, told, group));
                }
                None => {
                    self.questions.push((question, self.now + limits::GETATTR_PATIENCE.as_millis() as Millis))
                }
            }
        }
        for (question, until) in std::mem::take(&mut self.questions) {
            if self.now >= until {
                self.st.files.answers(question.client, false);
                self.st.files.is_not_told(self.now, &question);
            } else {
                self.questions.push((question, until));
            }
        }
        self.goes_on(m);
    }

    fn recalls_go_on(&mut self, m: &mut Model, holders: &mut dyn Holders) {
        for mut r in std::mem::take(&mut self.recalls) {
            let id = r.recall.id;
            if !self.st.files.is_delegated(id) {
                continue;
            }
            if !r.answered && self.now >= r.next && self.now < r.until {
                let by = r.recall.given_to;
                let sessions = self.st.sessions.of_client(r.recall.client);
                let reached = holders.is_reached(r.recall.client)
                    && sessions.iter().any(|id| self.st.sessions.get(id).is_some_and(|s| s.can_call_back()));
                let last = self.st.sessions.get(&by.session).map(|s| s.last_sequence(by.slot));
                let referring = (last == Some(by.sequence) && !bug(Bug::UnknownAtOnce)).then_some(&by);
                let said = if reached {
                    holders.recalled(m, r.recall.client, &r.recall.stateid, referring)
                } else {
                    Answer::None
                };
                match said {
                    Answer::Ok => r.answered = true,
                    Answer::Unknown => {
                        r.unknown += 1;
                        if r.unknown >= limits::RECALL_UNKNOWN_TRIES || bug(Bug::UnknownAtOnce) {
                            m.tells(|| format!("  delegation {id:x} is not known to its holder"));
                            self.st.files.delegation_is_unknown(id);
                            continue;
                        }
                    }
                    Answer::Later | Answer::None => {}
                }
                if said != Answer::None {
                    self.st.files.answers(r.recall.client, true);
                }
                r.next = self.now + r.pause;
                r.pause = (r.pause * 2).min(limits::RECALL_PAUSE_MAX.as_millis() as Millis);
            }
            if self.now >= r.until {
                let notes = self.st.note_revocation(id);
                let group = self.write_down(notes);
                self.revoking.push((id, r.recall.client, group));
                continue;
            }
            self.recalls.push(r);
        }
        self.lets_go();
    }

    /// What runs every few seconds.
    pub(super) fn ticks(&mut self, m: &mut Model) {
        if self.now < self.next_tick {
            return;
        }
        self.next_tick = self.now + TICK;
        let now = self.now;
        let mut notes = self.st.tick(now);
        self.st.tick_owners(now);
        let over = self.st.end_grace(now);
        let ends = over.is_some();
        notes.extend(over.unwrap_or_default());
        let group = self.write_down(notes);
        if ends {
            self.ends_grace = Some(group);
        }
        self.lets_go();
        self.goes_on(m);
    }

    /// One more part of a snapshot, which makes the log begin anew.
    pub(super) fn snapshots(&mut self) {
        if self.working.iter().any(|work| work.modified) {
            return;
        }
        // While a part is taken no transaction is joined: a reply is in its slot only when its request has joined the log.
        while self.log.late() > 0 {
            self.log.arrives(0);
        }
        let (mut snapshot, first) = match self.snapshot.take() {
            Some(begun) => begun,
            None => {
                let snapshot = self.st.begin_snapshot(Some(LOG));
                let first = self.log.append(vec![snapshot.begins()], Some(self.names));
                (snapshot, first)
            }
        };
        let part = self.st.snapshot_part(&mut snapshot, PartMax { notes: 5, bytes: usize::MAX });
        self.log.append(part, None);
        if snapshot.is_over() {
            let ends = snapshot.ends(ID, self.epoch);
            self.log.append(vec![ends], None);
            self.log.flush();
            self.log.forget_before(first);
        } else {
            self.snapshot = Some((snapshot, first));
        }
    }

    /// Power goes, and takes so much of what was not flushed; then the server starts again.
    pub(super) fn restarts(&mut self, m: &mut Model, takes: usize, in_order: bool) {
        let counts = self.st.files.delegations.counts;
        m.figures.recalled += counts.recalled;
        m.figures.returned += counts.returned;
        m.figures.revoked += counts.revoked;
        if in_order {
            let settled = self.st.settle_holders();
            self.log.append(settled, None);
            let whole = self.st.snapshot_in(LOG, ID, self.epoch);
            self.log.append(whole, Some(self.names));
            self.log.flush();
        }
        let (notes, names) = self.log.cut(takes);
        let notes: Vec<Stamped> =
            notes.iter().filter_map(|note| Stamped::from_bytes(&note.to_bytes())).collect();
        let merged = merge(&[notes]);
        self.epoch += 1;
        self.st = instance(self.epoch, self.bounds);
        self.st.restore(merged.notes, self.now);
        self.touches = Touches::new();
        self.names = names;
        let first = self.st.snapshot_in(LOG, ID, self.epoch);
        self.log.begins_with(first, names);
        self.parked.clear();
        self.working.clear();
        self.pending.clear();
        self.sent.clear();
        self.recalls.clear();
        self.questions.clear();
        self.tells.clear();
        self.expelling.clear();
        self.revoking.clear();
        self.ends_grace = None;
        self.snapshot = None;
        self.next_tick = self.now + TICK;
        self.lets_go();
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

    /// A call of NFSv3.
    pub(super) fn serves_v3(
        &mut self,
        m: &mut Model,
        holders: &dyn Holders,
        who: Who,
        op: Op,
        from: IpAddr,
    ) -> NfsStat {
        let by = Asker { who, client: None, session: None, from };
        let call = Call { who, session: [0; 16], slot: 0, sequence: 0, op, print: 0 };
        let mut work = Work::new(by, call, 0, 0);
        work.may_wait = false;
        let done = self.before(m, holders, &mut work).and_then(|()| self.second(m, &mut work));
        work.touching.clear();
        let mut notes = std::mem::take(&mut work.notes);
        if work.modified {
            notes.extend(self.st.take_gone());
            self.log.append(notes, work.renamed.then_some(self.names));
        } else {
            self.write_down(notes);
        }
        self.lets_go();
        done.map_or_else(|status| status, |done| done.status)
    }

    /// LOCK or SHARE of NLM. Returns the group that the log must have before the host is told, and whether the host is noted by that.
    pub(super) fn serves_nlm(
        &mut self,
        m: &Model,
        (from, name): (IpAddr, &Bytes),
        file: File,
        ask: &Nlm,
        reclaim: bool,
    ) -> Option<(u64, u64, bool)> {
        let touch = match ask {
            Nlm::Lock { exclusive, .. } => Touch::of_lock(*exclusive),
            Nlm::Share { access, deny, .. } => Touch::of_lock(access & WRITE != 0 || *deny != 0),
        };
        if self.touches.any_delegation() && !self.st.clear_delegations(self.now, &key(file), None, touch) {
            return None;
        }
        let refused =
            if reclaim { !self.st.grace.may_reclaim(self.now) } else { self.st.grace.active(self.now) };
        if refused {
            return None;
        }
        let (host, note) = self.st.nlm_host(from, name, self.now).ok()?;
        if reclaim && self.st.hosts.get(host).is_none_or(|h| !h.restored) {
            return None;
        }
        let mut notes: Vec<Stamped> = note.into_iter().collect();
        let granted = loop {
            let lapsed = match ask {
                Nlm::Lock { owner: by, exclusive, range } => {
                    let span = Span::of(range.0, range.1)?;
                    let ask = LockRequest {
                        host,
                        from,
                        owner: owner(*by),
                        file: key(file),
                        span,
                        exclusive: *exclusive,
                    };
                    match self.st.files.nlm_lock(&ask) {
                        Ok(()) => break true,
                        Err(LockError::Denied(d)) => d.client,
                        Err(LockError::Status(_)) => break false,
                    }
                }
                Nlm::Share { owner: by, access, deny } => {
                    if *deny != 0 && !reclaim && self.st.may_have_unknown_opens(self.now) {
                        break false;
                    }
                    match self.st.files.nlm_share((host, from), &owner(*by), &key(file), *access, *deny) {
                        Ok(Ok(())) => break true,
                        Ok(Err(who)) => who.client,
                        Err(_) => break false,
                    }
                }
            };
            if !self.st.lapsed(lapsed, self.now) {
                break false;
            }
            notes.extend(self.st.remove_client(lapsed));
        };
        let _ = m;
        notes.extend(self.st.removals.unsettled());
        let noted = if granted { self.st.nlm_note(host) } else { None };
        let news = noted.is_some();
        notes.extend(noted);
        let group = if notes.is_empty() { 0 } else { self.log.append_late(notes) };
        self.lets_go();
        granted.then_some((host, group, news))
    }
}

/// What an NLM host asks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Nlm {
    Lock { owner: u8, exclusive: bool, range: (u64, u64) },
    Share { owner: u8, access: Share, deny: Share },
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
