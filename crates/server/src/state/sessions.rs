//! Sessions, slots and the reply cache (RFC 8881 section 2.10.6).
//!
//! A slot goes through these phases:
//! - free -> busy ([`Session::begin`]);
//! - busy -> staged ([`Session::stage`]): its reply is known and stands in snapshots, but is not yet durable;
//! - staged -> free (`release`): the reply may be sent, and sent again.
//!
//! A retry gets `DELAY` until the slot is free. So a reply never leaves the server before it is durable.
//!
//! The log records the last *modifying* request of each slot, but not the reads after it. So after a restart the first
//! request on a slot may have any higher sequence number. A request between the last logged one and this one was not
//! executed, or was lost together with its effect, or changed nothing, or wrote unstable data, which may be written
//! again.
//!
//! The bytes that slots keep are counted against the address that uses the session ([`ShareCounts`]). The first slot of a
//! session always has room for its largest reply. The other slots share what is left: a request that finds no room gets
//! `DELAY`. Before that happens, `sr_target_highest_slotid` tells the client to use fewer slots (RFC 8881 section
//! 2.10.6.1).
//!
//! Where room is short, the server drops replies that the client has acknowledged:
//! - A request on a slot acknowledges the reply to the one before on that slot.
//! - It also acknowledges slots above `sa_highest_slotid`, if their requests began before that earlier reply was sent.
//!
//! Of the back channel the log records the credential and whether a callback was ever sent, but not the slots' sequence
//! numbers. After a restart, an unused back channel works again when the client binds a connection to it. A used one
//! has an unrecoverable fault (RFC 8881 section 18.46.3: "it has lost track of the sequence ID for a slot").

use super::clock::Millis;
pub use super::ids::ConnId;
use super::notes::{
    BackchannelNote, KeptBytes, LogId, Note, SessionNote, SlotNote, Stamped, channel_to_note,
};
use crate::limited::{Limit, Limits};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::flags::{
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, SEQ4_STATUS_BACKCHANNEL_FAULT, SEQ4_STATUS_CB_PATH_DOWN,
    SEQ4_STATUS_CB_PATH_DOWN_SESSION,
};
use landfast_nfs::v4::{ChannelAttrs, NfsStat, SessionId};
use landfast_rpc::OpaqueAuth;
use landfast_rpc::shares::ShareCounts;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut};

/// What a slot keeps of its last request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedReply {
    /// The request did not ask for its reply to be kept.
    Uncached,
    Reply(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Free,
    Busy,
    Staged,
}

#[derive(Debug, Clone)]
struct Slot {
    /// The sequence number of the last request that was begun; 0 before the first.
    seqid: u32,
    phase: Phase,
    kept: CachedReply,
    fingerprint: u64,
    /// Restored from the log, and not used since.
    restored: bool,
    version: u64,
    /// Sequence number, reply, fingerprint and version of the request before the one that is busy or staged. Snapshots
    /// show these until the new request's own may be shown.
    before: Option<Box<(u32, CachedReply, u64, u64)>>,
    /// The log that the staged reply goes into; `None` when any snapshot may show it.
    staged_in: Option<LogId>,
    held: usize,
    /// The client has received the last reply, so it is no longer kept.
    acknowledged: bool,
    /// When the last request was begun and the last reply released, in units of [`Session::order`].
    begun_at: u64,
    released_at: u64,
    /// The address that the last request came from; `None` after a restart.
    asked_from: Option<IpAddr>,
}

impl Slot {
    fn new() -> Self {
        Slot {
            seqid: 0,
            phase: Phase::Free,
            kept: CachedReply::Uncached,
            fingerprint: 0,
            restored: false,
            version: 0,
            before: None,
            staged_in: None,
            held: 0,
            acknowledged: false,
            begun_at: 0,
            released_at: 0,
            asked_from: None,
        }
    }
}

#[derive(Debug)]
pub struct Session {
    pub id: SessionId,
    pub client: u64,
    pub fore: ChannelAttrs,
    pub back: ChannelAttrs,
    pub callback_program: u32,
    /// `csr_flags`.
    pub flags: u32,
    /// Version of the last change of the session itself, without its slots.
    pub version: u64,
    pub used: Millis,
    /// The [`landfast_rpc::share_of`] of the address that uses the session; [`UNKNOWN`] between a restart and the first
    /// use.
    share: IpAddr,
    /// Bytes of all slots but the first, and the total that was counted last.
    beyond: usize,
    counted: usize,
    /// Grows with each request that is begun or released.
    order: u64,
    slots: Vec<Slot>,
    /// Connections that callbacks may use. Requests may come on any connection (RFC 8881 section 2.10.3.1), so their
    /// connections are not kept.
    back_conns: HashSet<ConnId>,
    /// The RPC credential for callbacks; `None` when the client offered no usable one.
    callback_cred: Option<OpaqueAuth>,
    /// The client has asked for a back channel, with CREATE_SESSION or by binding a connection.
    back_asked: bool,
    /// A callback was sent or is about to be sent.
    called: bool,
    /// The log records that callbacks were sent.
    called_noted: bool,
    back_slots: Vec<BackSlot>,
    /// A CB_NULL was answered on it.
    pub back_tried: bool,
    /// Client and server disagree about the back channel's sequence numbers (RFC 8881 section 18.46.3:
    /// SEQ4_STATUS_BACKCHANNEL_FAULT).
    pub back_fault: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct BackSlot {
    /// The sequence number of the last callback that was executed.
    sequence: u32,
    busy: bool,
    /// The next sequence number was sent, but it is not known whether the client executed it.
    unsure: bool,
}

/// A slot for one callback, and how to reach the client.
#[derive(Debug)]
pub struct CallbackSlot {
    pub slot: u32,
    pub sequence: u32,
    /// An earlier callback with this number may have been executed.
    pub unsure: bool,
    pub highest: u32,
    pub conns: Vec<ConnId>,
    pub program: u32,
    pub cred: OpaqueAuth,
}

/// Why no callback can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoCallback {
    /// No slot or connection is free.
    NotNow,
    /// There is no usable back channel.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackEnd {
    /// The client executed the callback with this sequence number.
    Executed(u32),
    /// The client did not execute the callback with this sequence number.
    NotExecuted(u32),
    /// No reply came: it is not known whether the client executed the callback with this sequence number.
    Unanswered(u32),
    /// The client disagrees about the sequence number.
    Broken,
}

/// The fields of a SEQUENCE that concern its slot (RFC 8881 section 18.46).
#[derive(Debug, Clone, Copy)]
pub struct SlotUse {
    pub slot: u32,
    pub sequence: u32,
    pub highest: u32,
    /// Digest of the caller and of the operations after the SEQUENCE.
    pub fingerprint: u64,
    /// The COMPOUND consists of this SEQUENCE alone.
    pub solo: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// Execute it; the slot is busy.
    New,
    /// Send this encoded COMPOUND result again.
    Replay(Bytes),
    /// A retry whose reply was not kept: SEQUENCE succeeds, and the next operation gets `RETRY_UNCACHED_REP` (RFC 8881
    /// section 2.10.6.1.3). A lone SEQUENCE just succeeds.
    Uncached,
}

#[derive(Debug)]
pub struct Sessions {
    by_id: HashMap<SessionId, Session>,
    by_client: HashMap<u64, Vec<SessionId>>,
    /// Bytes that sessions keep, by address.
    room: ShareCounts,
    per_client: usize,
    slots_max: u32,
    operations_max: u32,
}

/// Stands for the address of sessions that nobody has used since a restart.
pub const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The most bytes that one slot keeps.
fn slot_bytes(cached: u32) -> usize {
    cached as usize + limits::SLOT_NOTE_BYTES as usize
}

/// The bytes that every session is guaranteed: its own record and the largest reply of one slot.
fn guaranteed(cached: u32) -> usize {
    slot_bytes(cached) + limits::SESSION_NOTE_BYTES as usize
}

/// Mutable access to a session. Dropping it counts the session's bytes again.
#[derive(Debug)]
pub struct SessionMut<'a> {
    session: &'a mut Session,
    room: &'a mut ShareCounts,
}

impl Deref for SessionMut<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for SessionMut<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}

impl Drop for SessionMut<'_> {
    fn drop(&mut self) {
        self.count();
    }
}

impl SessionMut<'_> {
    fn count(&mut self) {
        let (before, now) = (self.session.counted, self.session.holds());
        self.session.counted = now;
        if now >= before {
            self.room.force(self.session.share, now - before);
        } else {
            self.room.give(self.session.share, before - now);
        }
    }

    pub fn used_from(&mut self, share: IpAddr) {
        if self.session.share != share {
            self.room.give(self.session.share, self.session.counted);
            self.room.force(share, self.session.counted);
            self.session.share = share;
        }
    }

    /// Decides about a request on a slot, as [`Session::begin`] does. If the reply may be kept, checks that there is
    /// room for it.
    /// Errors: Those of [`Session::begin`]; `DELAY` when there is no room.
    pub fn begin(
        &mut self,
        now: Millis,
        ask: &SlotUse,
        keeps: bool,
        check: impl FnOnce() -> Result<(), NfsStat>,
    ) -> Result<Begin, NfsStat> {
        if self.room.used() > self.room.most_allowed().0 / 2 {
            self.session.forget_acknowledged(ask);
            self.count();
        }
        let cached = if keeps { self.session.fore.max_response_size_cached } else { 0 };
        let has = self.session.slots.get(ask.slot as usize).map_or(0, |s| s.held);
        let more = slot_bytes(cached).saturating_sub(has);
        let fits = ask.slot == 0 || more == 0 || self.room.may(self.session.share, more);
        let begun = self.session.begin(now, ask, || {
            check()?;
            if fits { Ok(()) } else { Err(NfsStat::NFS4ERR_DELAY) }
        })?;
        if begun == Begin::New {
            self.session.hold(ask.slot, slot_bytes(cached).max(has));
        }
        Ok(begun)
    }

    /// The highest slot that the client should use (`sr_target_highest_slotid`).
    pub fn target_slot(&self) -> u32 {
        let most = self.session.highest_slot();
        let each = slot_bytes(self.session.fore.max_response_size_cached);
        let more = u32::try_from(self.room.spare(self.session.share) / each).unwrap_or(u32::MAX);
        if more >= most {
            return most;
        }
        // Busy slots already have their room.
        let busy = self.session.slots.iter().skip(1).filter(|s| s.phase != Phase::Free).count() as u32;
        busy.saturating_add(more).min(most)
    }
}

impl Sessions {
    /// The sessions together may keep at most `bound` bytes.
    pub fn new(bound: u64, limits: &Limits) -> Self {
        let (per_client, slots_max) = (limits[Limit::ClientSessions], limits[Limit::SessionSlots] as u32);
        let operations_max = limits[Limit::CompoundOperations] as u32;
        let bound = usize::try_from(bound).unwrap_or(usize::MAX / 4);
        Sessions {
            by_id: HashMap::new(),
            by_client: HashMap::new(),
            // One address gets at most three quarters, so that something is left for others.
            room: ShareCounts::new(bound, bound / 4 * 3, 0),
            per_client,
            slots_max,
            operations_max,
        }
    }

    /// Negotiates the fore channel (RFC 8881 section 18.36.3). Sizes never exceed what the client asked for. It gets
    /// the operations that it asked for, up to the limit, and at least one slot.
    /// Errors: `TOOSMALL` when the client's buffers are too small for any request; `NOSPC` when there is no room for
    /// one slot.
    pub fn negotiate(&self, ask: &ChannelAttrs, share: IpAddr) -> Result<ChannelAttrs, NfsStat> {
        if ask.max_request_size < limits::CHANNEL_BYTES_MIN
            || ask.max_response_size < limits::CHANNEL_BYTES_MIN
        {
            return Err(NfsStat::NFS4ERR_TOOSMALL);
        }
        let response = ask.max_response_size.min(limits::RESPONSE_BYTES_MAX);
        let mut cached = ask.max_response_size_cached.min(limits::CACHED_BYTES_MAX).min(response);
        // A large reply cache is granted only while there is plenty of room.
        if cached > limits::CACHED_BYTES_COMMON && !self.room.may(share, 8 * guaranteed(cached)) {
            cached = limits::CACHED_BYTES_COMMON;
        }
        // Leave room for the next session.
        if !self.room.may(share, 2 * guaranteed(cached)) {
            return Err(NfsStat::NFS4ERR_NOSPC);
        }
        let fits = limits::SESSION_CACHED_BYTES_MAX.min(self.room.most_allowed().1 as u64);
        let fits = (fits / slot_bytes(cached) as u64).max(1);
        let slots =
            ask.max_requests.clamp(1, self.slots_max.max(1)).min(u32::try_from(fits).unwrap_or(u32::MAX));
        Ok(ChannelAttrs {
            header_pad_size: 0,
            max_request_size: ask.max_request_size.min(limits::REQUEST_BYTES_MAX),
            max_response_size: response,
            max_response_size_cached: cached,
            max_operations: ask.max_operations.clamp(1, self.operations_max.max(1)),
            max_requests: slots,
            rdma_ird: Vec::new(),
        })
    }

    pub fn insert(&mut self, session: NewSession, version: u64, now: Millis) {
        let slots = vec![Slot::new(); session.fore.max_requests as usize];
        let back_slots = vec![BackSlot::default(); back_slots(&session.back)];
        let counted = guaranteed(session.fore.max_response_size_cached);
        self.room.force(UNKNOWN, counted);
        self.by_client.entry(session.client).or_default().push(session.id);
        self.by_id.insert(
            session.id,
            Session {
                id: session.id,
                client: session.client,
                fore: session.fore,
                back: session.back,
                callback_program: session.callback_program,
                flags: session.flags,
                version,
                used: now,
                share: UNKNOWN,
                beyond: 0,
                counted,
                order: 0,
                slots,
                back_conns: HashSet::new(),
                back_slots,
                callback_cred: session.callback_cred,
                back_asked: session.flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0,
                called: false,
                called_noted: false,
                back_tried: false,
                back_fault: false,
            },
        );
    }

    pub fn get(&self, id: &SessionId) -> Option<&Session> {
        self.by_id.get(id)
    }

    pub fn get_mut(&mut self, id: &SessionId) -> Option<SessionMut<'_>> {
        let session = self.by_id.get_mut(id)?;
        Some(SessionMut { session, room: &mut self.room })
    }

    pub fn shares(&self) -> impl Iterator<Item = IpAddr> {
        self.by_id.values().map(|s| s.share).filter(|s| *s != UNKNOWN)
    }

    /// In order, as client IDs are.
    pub fn ids(&self) -> Vec<SessionId> {
        let mut ids: Vec<SessionId> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.by_id.values()
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The session by which this client is called back: the wanted one, or another if that is gone or cannot be used now.
    pub fn to_call_back(&self, client: u64, wanted: &SessionId) -> Option<SessionId> {
        let can = |id: &SessionId| self.get(id).is_some_and(Session::can_call_back);
        if can(wanted) {
            return Some(*wanted);
        }
        let all = self.of_client(client);
        let other = all.iter().find(|id| can(id)).or_else(|| all.iter().find(|id| *id == wanted));
        other.or(all.first()).copied()
    }

    pub fn of_client(&self, client: u64) -> Vec<SessionId> {
        self.by_client.get(&client).cloned().unwrap_or_default()
    }

    /// The most sessions of one client, the most slots of one session, and the most operations that one COMPOUND may
    /// have.
    pub fn most(&self) -> (usize, usize, usize) {
        let sessions = self.by_client.values().map(Vec::len).max().unwrap_or(0);
        let slots = self.by_id.values().map(|s| s.slots.len()).max().unwrap_or(0);
        (sessions, slots, self.by_id.values().map(|s| s.fore.max_operations as usize).max().unwrap_or(0))
    }

    /// The bytes that all sessions keep, guaranteed room included, and their bound.
    pub fn reserved(&self) -> (u64, u64) {
        (self.room.used() as u64, self.room.most_allowed().0 as u64)
    }

    /// Whether this request on a slot was not answered yet.
    pub fn is_under_way(&self, id: &SessionId, slot: u32, sequence: u32) -> bool {
        self.get(id).is_some_and(|s| s.is_busy(slot) && s.last_sequence(slot) == sequence)
    }

    pub fn client_is_busy(&self, client: u64) -> bool {
        self.by_client
            .get(&client)
            .is_some_and(|ids| ids.iter().filter_map(|id| self.by_id.get(id)).any(Session::busy))
    }

    /// The session to remove so that the client can create another: the one unused longest that is not busy. `None`
    /// while the client is below its limit.
    pub fn to_evict(&self, client: u64) -> Option<SessionId> {
        let ids = self.by_client.get(&client)?;
        if ids.len() < self.per_client {
            return None;
        }
        ids.iter()
            .filter_map(|id| self.by_id.get(id))
            .filter(|s| !s.busy())
            .min_by_key(|s| s.used)
            .map(|s| s.id)
    }

    pub fn remove(&mut self, id: &SessionId) -> Option<Session> {
        let session = self.by_id.remove(id)?;
        self.room.give(session.share, session.counted);
        if let Some(ids) = self.by_client.get_mut(&session.client) {
            ids.retain(|other| other != id);
            if ids.is_empty() {
                self.by_client.remove(&session.client);
            }
        }
        Some(session)
    }

    /// The back channel's status flags in a SEQUENCE reply (RFC 8881 section 18.46.3). No flag is set when the client
    /// asked for no back channel, or offered no usable credential.
    pub fn back_status(&self, id: &SessionId) -> u32 {
        let Some(s) = self.by_id.get(id) else { return 0 };
        let mut flags = if s.back_fault { SEQ4_STATUS_BACKCHANNEL_FAULT } else { 0 };
        if s.lacks_back_path() {
            flags |= SEQ4_STATUS_CB_PATH_DOWN_SESSION;
            let mut of_client = self.by_client.get(&s.client).into_iter().flatten();
            if !of_client.any(|id| self.by_id.get(id).is_some_and(Session::can_call_back)) {
                flags |= SEQ4_STATUS_CB_PATH_DOWN;
            }
        }
        flags
    }

    /// No callback reaches its client on this connection any more.
    pub fn disconnected(&mut self, conn: ConnId) {
        for s in self.by_id.values_mut() {
            s.back_conns.remove(&conn);
        }
    }
}

/// How many slots of the back channel are used. A channel that takes fewer than two operations has none, since a
/// callback needs two.
fn back_slots(back: &ChannelAttrs) -> usize {
    if back.max_operations < 2 { 0 } else { back.max_requests.min(limits::BACK_SLOTS_MAX) as usize }
}

#[derive(Debug, Clone)]
pub struct NewSession {
    pub id: SessionId,
    pub client: u64,
    pub fore: ChannelAttrs,
    pub back: ChannelAttrs,
    pub callback_program: u32,
    /// `csr_flags`.
    pub flags: u32,
    pub callback_cred: Option<OpaqueAuth>,
}

impl Session {
    pub fn can_call_back(&self) -> bool {
        self.callback_cred.is_some()
            && !self.back_fault
            && !self.back_slots.is_empty()
            && !self.back_conns.is_empty()
    }

    /// Has a back channel that no connection serves: the client must bind one (RFC 8881 section 18.34).
    fn lacks_back_path(&self) -> bool {
        self.back_asked
            && self.callback_cred.is_some()
            && !self.back_fault
            && !self.back_slots.is_empty()
            && self.back_conns.is_empty()
    }

    /// The connections, program and credential for a call on the back channel that needs no slot.
    pub fn back_path(&self) -> Option<(Vec<ConnId>, u32, OpaqueAuth)> {
        let cred = self.callback_cred.clone().filter(|_| self.can_call_back())?;
        Some((self.back_conns.iter().copied().collect(), self.callback_program, cred))
    }

    /// The sequence number of the last request that was begun on a slot.
    pub fn last_sequence(&self, slot: u32) -> u32 {
        self.slots.get(slot as usize).map_or(0, |s| s.seqid)
    }

    pub fn set_callback(&mut self, program: u32, cred: Option<OpaqueAuth>) {
        (self.callback_program, self.callback_cred) = (program, cred);
    }

    /// Called before a callback is sent. Returns whether the log must first record that there are callbacks.
    pub fn callback_is_news(&mut self) -> bool {
        self.called = true;
        !self.called_noted
    }

    pub fn calls_are_noted(&mut self) {
        self.called_noted = true;
    }

    /// Restores the back channel from the log. `None`: an earlier version of the server wrote the note.
    pub fn restore_back(&mut self, note: Option<BackchannelNote>) {
        let lost = note.as_ref().map_or(self.back_asked, |n| n.called);
        if let Some(note) = note {
            self.callback_cred = note.cred.map(|(flavor, body)| OpaqueAuth { flavor, body: body.into() });
            self.back_asked |= note.asked;
        }
        (self.called, self.called_noted, self.back_fault) = (lost, lost, lost);
    }

    pub fn callback_begin(&mut self) -> Result<CallbackSlot, NoCallback> {
        let cred = self.callback_cred.clone().ok_or(NoCallback::Never)?;
        if self.back_fault || self.back_slots.is_empty() {
            return Err(NoCallback::Never);
        }
        if self.back_conns.is_empty() {
            return Err(NoCallback::NotNow);
        }
        let free = self.back_slots.iter().position(|s| !s.busy).ok_or(NoCallback::NotNow)?;
        self.back_slots[free].busy = true;
        let highest = self.back_slots.iter().rposition(|s| s.busy).unwrap_or(free);
        Ok(CallbackSlot {
            slot: free as u32,
            sequence: self.back_slots[free].sequence.wrapping_add(1),
            unsure: self.back_slots[free].unsure,
            highest: highest as u32,
            conns: self.back_conns.iter().copied().collect(),
            program: self.callback_program,
            cred,
        })
    }

    pub fn callback_end(&mut self, slot: u32, end: CallbackEnd) {
        let Some(s) = self.back_slots.get_mut(slot as usize) else { return };
        s.busy = false;
        match end {
            CallbackEnd::Executed(sequence) => (s.sequence, s.unsure) = (sequence, false),
            CallbackEnd::NotExecuted(sequence) => {
                let last = sequence.wrapping_sub(1);
                // If the number differs from before, the earlier callback turned out to have been executed.
                s.unsure &= last == s.sequence;
                s.sequence = last;
            }
            CallbackEnd::Unanswered(sequence) => (s.sequence, s.unsure) = (sequence.wrapping_sub(1), true),
            CallbackEnd::Broken => self.back_fault = true,
        }
    }

    /// The session's own notes in the log, without its slots.
    pub fn notes(&self) -> [Stamped; 2] {
        let back = BackchannelNote {
            session: self.id,
            cred: self.callback_cred.as_ref().map(|c| (c.flavor, c.body.to_vec())),
            asked: self.back_asked,
            called: self.called,
        };
        [Note::Session(self.to_note()), Note::Backchannel(back)].map(|note| Stamped { v: self.version, note })
    }

    pub fn to_note(&self) -> SessionNote {
        SessionNote {
            id: self.id,
            client: self.client,
            fore: channel_to_note(&self.fore),
            back: channel_to_note(&self.back),
            callback_program: self.callback_program,
            flags: self.flags,
        }
    }

    pub fn busy(&self) -> bool {
        self.slots.iter().any(|s| s.phase != Phase::Free)
    }

    pub fn is_busy(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|s| s.phase != Phase::Free)
    }

    /// Whether a request on another slot is in progress.
    pub fn busy_beside(&self, slot: u32) -> bool {
        self.slots.iter().enumerate().any(|(i, s)| i != slot as usize && s.phase != Phase::Free)
    }

    pub fn highest_slot(&self) -> u32 {
        (self.slots.len() as u32).saturating_sub(1)
    }

    /// Binds a connection to the back channel (RFC 8881 sections 2.10.3.1 and 18.34). Connections above
    /// [`limits::BACK_CONNECTIONS_MAX`] are not kept: callbacks have enough to choose from. Returns whether this is the
    /// first request for a back channel, which the log does not yet record.
    pub fn bind_back(&mut self, conn: ConnId) -> bool {
        if self.back_conns.len() < limits::BACK_CONNECTIONS_MAX {
            self.back_conns.insert(conn);
        }
        !std::mem::replace(&mut self.back_asked, true)
    }

    fn holds(&self) -> usize {
        guaranteed(self.fore.max_response_size_cached) + self.beyond
    }

    /// Sets the bytes that a slot counts for. The first slot's room is guaranteed, so it is not counted.
    fn hold(&mut self, slot: u32, bytes: usize) {
        if let Some(s) = self.slots.get_mut(slot as usize) {
            let before = std::mem::replace(&mut s.held, bytes);
            if slot > 0 {
                self.beyond = self.beyond.saturating_sub(before) + bytes;
            }
        }
    }

    /// Drops the replies that this next request acknowledges.
    fn forget_acknowledged(&mut self, ask: &SlotUse) {
        let Some(s) = self.slots.get(ask.slot as usize) else { return };
        if s.phase != Phase::Free || ask.sequence != s.seqid.wrapping_add(1) {
            return;
        }
        let known = s.released_at;
        for slot in ask.highest.saturating_add(1)..self.slots.len() as u32 {
            let Some(s) = self.slots.get_mut(slot as usize) else { return };
            if s.phase == Phase::Free && s.held > 0 && s.begun_at < known {
                (s.kept, s.acknowledged) = (CachedReply::Uncached, true);
                self.hold(slot, 0);
            }
        }
    }

    /// Decides about a request on a slot (RFC 8881 section 18.46.3). After [`Begin::New`] the slot is busy and its
    /// sequence number has advanced; otherwise nothing has changed. `check` tests sizes and the number of operations.
    /// It runs only for a new request, before anything changes.
    /// Errors: `BADSLOT`, `BAD_HIGH_SLOT`, `SEQ_MISORDERED`, `SEQ_FALSE_RETRY`, `DELAY` for a retry of a request in
    /// progress, and the errors of `check`.
    fn begin(
        &mut self,
        now: Millis,
        ask: &SlotUse,
        check: impl FnOnce() -> Result<(), NfsStat>,
    ) -> Result<Begin, NfsStat> {
        let slot = self.slots.get_mut(ask.slot as usize).ok_or(NfsStat::NFS4ERR_BADSLOT)?;
        if ask.highest < ask.slot {
            return Err(NfsStat::NFS4ERR_BAD_HIGH_SLOT);
        }
        let ahead = ask.sequence.wrapping_sub(slot.seqid);
        if ahead == 0 && (slot.seqid != 0 || slot.version != 0 || slot.restored) {
            if slot.phase != Phase::Free {
                return Err(NfsStat::NFS4ERR_DELAY);
            }
            self.used = now;
            if ask.solo {
                return Ok(Begin::Uncached);
            }
            if slot.fingerprint != ask.fingerprint {
                return Err(NfsStat::NFS4ERR_SEQ_FALSE_RETRY);
            }
            return Ok(match &slot.kept {
                CachedReply::Reply(reply) => Begin::Replay(reply.clone()),
                CachedReply::Uncached => Begin::Uncached,
            });
        }
        let next = ahead == 1 || (slot.restored && ahead > 0 && ahead < 1 << 31);
        if !next || slot.phase != Phase::Free {
            return Err(NfsStat::NFS4ERR_SEQ_MISORDERED);
        }
        check()?;
        slot.before = Some(Box::new((
            slot.seqid,
            std::mem::replace(&mut slot.kept, CachedReply::Uncached),
            slot.fingerprint,
            slot.version,
        )));
        slot.seqid = ask.sequence;
        slot.fingerprint = ask.fingerprint;
        slot.phase = Phase::Busy;
        slot.restored = false;
        slot.acknowledged = false;
        self.order += 1;
        slot.begun_at = self.order;
        self.used = now;
        Ok(Begin::New)
    }

    /// Stages the reply of the busy request and returns the note for the log. Call it before the request's last record
    /// goes into the log, so that a snapshot taken after that record has the reply. A reply that goes into `log`:
    /// snapshots in other logs show the slot as it was before until the reply is released, since its effect may still
    /// be lost.
    pub fn stage(
        &mut self,
        slot: u32,
        kept: CachedReply,
        version: u64,
        log: Option<LogId>,
    ) -> Option<SlotNote> {
        let session = self.id;
        let s = self.slots.get_mut(slot as usize)?;
        s.staged_in = log;
        s.kept = kept;
        s.version = version;
        s.phase = Phase::Staged;
        Some(s.to_note(session, slot))
    }

    /// Where the last request of a slot came from, if that is known.
    pub fn asked_from(&self, slot: u32) -> Option<IpAddr> {
        self.slots.get(slot as usize)?.asked_from
    }

    /// The request that has just begun on a slot came from here.
    pub fn is_asked_from(&mut self, slot: u32, addr: IpAddr) {
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.asked_from = Some(addr);
        }
    }

    /// The staged reply is durable, as far as it has to be: it may be sent, and the slot is free.
    pub fn release(&mut self, slot: u32) {
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.phase = Phase::Free;
            (s.before, s.staged_in) = (None, None);
            self.order += 1;
            s.released_at = self.order;
            let held = limits::SLOT_NOTE_BYTES as usize + s.kept.len();
            self.hold(slot, held);
        }
    }

    /// Replaces the staged reply (its effect could not be made durable).
    pub fn replace_reply(&mut self, slot: u32, kept: CachedReply) {
        if let Some(s) = self.slots.get_mut(slot as usize) {
            s.kept = kept;
        }
    }

    /// Puts a slot back that the log kept.
    pub fn restore_slot(&mut self, note: &SlotNote, version: u64) {
        if let Some(s) = self.slots.get_mut(note.slot as usize) {
            s.seqid = note.sequence;
            s.fingerprint = note.fingerprint;
            s.kept = match &note.reply {
                Some(reply) => CachedReply::Reply(reply.0.clone()),
                None => CachedReply::Uncached,
            };
            s.version = version;
            let held = limits::SLOT_NOTE_BYTES as usize + s.kept.len();
            self.hold(note.slot, held);
        }
    }

    /// After a restart: the next request of each slot may be any number ahead.
    pub fn expect_any(&mut self) {
        for s in &mut self.slots {
            s.restored = true;
        }
    }

    /// The used slots from `from` on, for a snapshot in this log (or in none that can be told from others). A busy slot
    /// is shown as it was before its request, and so is one whose staged reply goes into another log.
    pub fn slot_notes(&self, from: usize, log: Option<LogId>) -> impl Iterator<Item = (u64, SlotNote)> + '_ {
        self.slots.iter().enumerate().skip(from).filter(|(_, s)| s.seqid != 0 && !s.acknowledged).filter_map(
            move |(i, s)| {
                let mut note = s.to_note(self.id, i as u32);
                let here = s.staged_in.is_none() || log.is_none() || s.staged_in == log;
                let shown = s.phase == Phase::Free || (s.phase == Phase::Staged && here);
                let Some(before) = s.before.as_ref().filter(|_| !shown) else {
                    return Some((s.version, note));
                };
                let (sequence, kept, fingerprint, version) = &**before;
                if *sequence == 0 {
                    return None;
                }
                note.sequence = *sequence;
                note.reply = kept.to_note();
                note.fingerprint = *fingerprint;
                Some((*version, note))
            },
        )
    }
}

impl CachedReply {
    fn len(&self) -> usize {
        match self {
            CachedReply::Uncached => 0,
            CachedReply::Reply(b) => b.len(),
        }
    }

    fn to_note(&self) -> Option<KeptBytes> {
        match self {
            CachedReply::Uncached => None,
            CachedReply::Reply(b) => Some(KeptBytes(b.clone())),
        }
    }
}

impl Slot {
    fn to_note(&self, session: SessionId, slot: u32) -> SlotNote {
        SlotNote {
            session,
            slot,
            sequence: self.seqid,
            fingerprint: self.fingerprint,
            reply: self.kept.to_note(),
        }
    }
}
