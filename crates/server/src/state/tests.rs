//! Tests of the state as a whole: what a client sees over its life, a restart included.

use super::clients::{CreateSession, ExchangeId, Exchanged};
use super::identity::Requester;
use super::locks::{LockError, Locker, Span};
use super::notes::{Note, Stamped};
use super::opens::{BOTH, FileKey, READ, ShareConflict, WRITE};
use super::restore::Restored;
use super::sessions::{Begin, CachedReply, CallbackEnd, NewSession, NoCallback, Session, SlotUse, UNKNOWN};
use super::*;
use crate::limited::{Limit, Limits};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::flags::SEQ4_STATUS_RESTART_RECLAIM_NEEDED;
use landfast_nfs::v4::flags::{
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, SEQ4_STATUS_BACKCHANNEL_FAULT, SEQ4_STATUS_CB_PATH_DOWN,
    SEQ4_STATUS_CB_PATH_DOWN_SESSION,
};
use landfast_nfs::v4::{ChannelAttrs, LockType, Stateid};
use landfast_nfs::v4::{NfsStat, SessionId};
use landfast_rpc::OpaqueAuth;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

const LEASE: Millis = 90_000;
const ROOT: Principal = Principal { flavor: 1, uid: 0 };
const OTHER: Principal = Principal { flavor: 1, uid: 1000 };
type S = State<u32>;

fn fresh() -> S {
    State::new(1, LEASE, Bounds::new(None))
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn by(principal: Principal) -> Requester {
    Requester { principal, addr: HERE }
}

fn ask(owner: &'static [u8], verifier: u8, principal: Principal) -> ExchangeId {
    let by = by(principal);
    ExchangeId { owner: Bytes::from_static(owner), verifier: [verifier; 8], by, update: false }
}

fn exchange(st: &mut S, now: Millis, ask: &ExchangeId) -> Result<Exchanged, NfsStat> {
    let found = st.exchange_id(now, ask)?;
    if let Some(old) = found.replaced {
        st.remove_client(old);
    }
    Ok(found)
}

fn confirm(st: &mut S, id: u64, now: Millis) {
    let v = st.next_version();
    if let Some(old) = st.clients.created(id, now, Bytes::from_static(b"reply"), v) {
        st.remove_client(old);
    }
}

fn client(st: &mut S, owner: &'static [u8]) -> u64 {
    let id = exchange(st, 0, &ask(owner, 1, ROOT)).expect("a client ID").client;
    confirm(st, id, 0);
    id
}

fn channel(slots: u32) -> ChannelAttrs {
    ChannelAttrs {
        header_pad_size: 0,
        max_request_size: 1 << 20,
        max_response_size: 1 << 20,
        max_response_size_cached: 4096,
        max_operations: 64,
        max_requests: slots,
        rdma_ird: Vec::new(),
    }
}

fn session(st: &mut S, client: u64, name: u8) -> SessionId {
    session_with(st, client, name, 1)
}

fn session_with(st: &mut S, client: u64, name: u8, flags: u32) -> SessionId {
    let id = [name; 16];
    let v = st.next_version();
    let new = NewSession {
        id,
        client,
        fore: channel(4),
        back: channel(2),
        callback_program: 0x4000_0000,
        callback_cred: Some(OpaqueAuth::NONE),
        flags,
    };
    st.sessions.insert(new, v, 0);
    id
}

fn on_slot(slot: u32, sequence: u32) -> SlotUse {
    SlotUse { slot, sequence, highest: 3, fingerprint: u64::from(sequence), solo: false }
}

fn begin(st: &mut S, id: &SessionId, ask: &SlotUse) -> Result<Begin, NfsStat> {
    st.sessions.get_mut(id).expect("the session").begin(0, ask, true, || Ok(()))
}

fn reply_with(st: &mut S, id: &SessionId, slot: u32, kept: CachedReply) -> Option<Stamped> {
    let v = st.next_version();
    let note = st.sessions.get_mut(id)?.stage(slot, kept, v, None)?;
    Some(Stamped { v, note: Note::Slot(note) })
}

fn release(st: &mut S, id: &SessionId, slot: u32) {
    st.sessions.get_mut(id).expect("the session").release(slot);
}

fn file(name: &'static [u8]) -> FileKey {
    Bytes::from_static(name)
}

const OWNER: Bytes = Bytes::from_static(b"owner");

#[test]
fn rfc8881_18_35_a_new_owner_and_the_same_again() {
    let mut st = fresh();
    let first = exchange(&mut st, 0, &ask(b"c", 1, ROOT)).expect("new");
    assert!(!first.confirmed);
    // Not confirmed yet: replaced.
    let second = exchange(&mut st, 0, &ask(b"c", 1, ROOT)).expect("replaced");
    assert_ne!(first.client, second.client);
    assert!(st.clients.get(first.client).is_none());
    confirm(&mut st, second.client, 0);
    let third = exchange(&mut st, 0, &ask(b"c", 1, ROOT)).expect("found");
    assert_eq!((third.client, third.confirmed), (second.client, true));
    assert_eq!(third.sequence, 2);
}

#[test]
fn rfc8881_18_35_a_restarted_client_loses_its_state_only_at_create_session() {
    let mut st = fresh();
    let old = client(&mut st, b"c");
    let sess = session(&mut st, old, 1);
    st.files.open(&file(b"f"), old, &OWNER, READ, 0, None).expect("opened");
    let new = exchange(&mut st, 1, &ask(b"c", 2, ROOT)).expect("a new instance").client;
    assert!(st.sessions.get(&sess).is_some() && st.files.opens_of(old) == 1);
    confirm(&mut st, new, 1);
    assert!(st.clients.get(old).is_none() && st.sessions.get(&sess).is_none());
    assert_eq!(st.files.len(), 0);
}

#[test]
fn rfc8881_18_35_who_guesses_an_owner_cannot_take_its_state() {
    let mut st = fresh();
    let old = client(&mut st, b"c");
    st.files.open(&file(b"f"), old, &OWNER, READ, 0, None).expect("opened");
    assert_eq!(exchange(&mut st, 1, &ask(b"c", 2, OTHER)), Err(NfsStat::NFS4ERR_CLID_INUSE));
    // Its lease over, somebody else may have the name (case 3).
    assert!(exchange(&mut st, LEASE + 1, &ask(b"c", 2, OTHER)).is_ok());
    assert!(st.clients.get(old).is_none() && st.files.is_empty());
    // A session is state; without one there is nothing to lose.
    let d = client(&mut st, b"d");
    let sess = session(&mut st, d, 4);
    assert_eq!(exchange(&mut st, 1, &ask(b"d", 1, OTHER)), Err(NfsStat::NFS4ERR_CLID_INUSE));
    st.remove_session(&sess);
    assert!(exchange(&mut st, 1, &ask(b"d", 1, OTHER)).is_ok_and(|e| e.client != d));
    assert!(st.clients.get(d).is_none());
}

#[test]
fn rfc8881_18_35_updates() {
    let mut st = fresh();
    let update = |verifier, principal| ExchangeId { update: true, ..ask(b"c", verifier, principal) };
    assert_eq!(exchange(&mut st, 0, &update(1, ROOT)), Err(NfsStat::NFS4ERR_NOENT));
    let id = client(&mut st, b"c");
    assert_eq!(exchange(&mut st, 0, &update(1, ROOT)).map(|e| e.client), Ok(id));
    assert_eq!(exchange(&mut st, 0, &update(2, ROOT)), Err(NfsStat::NFS4ERR_NOT_SAME));
    assert_eq!(exchange(&mut st, 0, &update(1, OTHER)), Err(NfsStat::NFS4ERR_PERM));
}

#[test]
fn rfc8881_18_36_create_session_has_a_slot_of_its_own() {
    let mut st = fresh();
    let id = exchange(&mut st, 0, &ask(b"c", 1, ROOT)).expect("new").client;
    let check = |st: &S, seq, who| st.clients.check_create_session(id, seq, by(who));
    assert_eq!(st.clients.check_create_session(id + 1, 1, by(ROOT)), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
    assert_eq!(check(&st, 0, ROOT), Err(NfsStat::NFS4ERR_SEQ_MISORDERED));
    assert_eq!(check(&st, 1, OTHER), Err(NfsStat::NFS4ERR_CLID_INUSE));
    assert_eq!(check(&st, 1, ROOT), Ok(CreateSession::New));
    confirm(&mut st, id, 0);
    assert_eq!(check(&st, 1, ROOT), Ok(CreateSession::Replay(Bytes::from_static(b"reply"))));
    assert_eq!(check(&st, 2, ROOT), Ok(CreateSession::New));
    // Others would fill the client's sessions, or be told the name of one by the replay.
    for seq in [1, 2] {
        assert_eq!(check(&st, seq, OTHER), Err(NfsStat::NFS4ERR_CLID_INUSE));
    }
    assert_eq!(check(&st, 3, ROOT), Err(NfsStat::NFS4ERR_SEQ_MISORDERED));
}

#[test]
fn rfc8881_2_10_6_1_a_slot_replays_its_last_request_and_nothing_else() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let s = session(&mut st, c, 1);
    assert_eq!(begin(&mut st, &s, &on_slot(0, 2)), Err(NfsStat::NFS4ERR_SEQ_MISORDERED));
    assert_eq!(begin(&mut st, &s, &on_slot(0, 0)), Err(NfsStat::NFS4ERR_SEQ_MISORDERED));
    assert_eq!(begin(&mut st, &s, &on_slot(4, 1)), Err(NfsStat::NFS4ERR_BADSLOT));
    let low = SlotUse { highest: 0, ..on_slot(1, 1) };
    assert_eq!(begin(&mut st, &s, &low), Err(NfsStat::NFS4ERR_BAD_HIGH_SLOT));
    assert_eq!(begin(&mut st, &s, &on_slot(0, 1)), Ok(Begin::New));
    // While it is worked on, and while its reply is not durable.
    assert_eq!(begin(&mut st, &s, &on_slot(0, 1)), Err(NfsStat::NFS4ERR_DELAY));
    assert_eq!(begin(&mut st, &s, &on_slot(0, 2)), Err(NfsStat::NFS4ERR_SEQ_MISORDERED));
    reply_with(&mut st, &s, 0, CachedReply::Reply(Bytes::from_static(b"done")));
    assert_eq!(begin(&mut st, &s, &on_slot(0, 1)), Err(NfsStat::NFS4ERR_DELAY));
    release(&mut st, &s, 0);
    assert_eq!(begin(&mut st, &s, &on_slot(0, 1)), Ok(Begin::Replay(Bytes::from_static(b"done"))));
    let other = SlotUse { fingerprint: 99, ..on_slot(0, 1) };
    assert_eq!(begin(&mut st, &s, &other), Err(NfsStat::NFS4ERR_SEQ_FALSE_RETRY));
    // A lone SEQUENCE asks only whether the number is known (how Linux finds out about an interrupted slot).
    let probe = SlotUse { solo: true, ..other };
    assert_eq!(begin(&mut st, &s, &probe), Ok(Begin::Uncached));
    assert_eq!(begin(&mut st, &s, &on_slot(0, 2)), Ok(Begin::New));
    reply_with(&mut st, &s, 0, CachedReply::Uncached);
    release(&mut st, &s, 0);
    assert_eq!(begin(&mut st, &s, &on_slot(0, 2)), Ok(Begin::Uncached));
    assert_eq!(begin(&mut st, &s, &on_slot(0, 1)), Err(NfsStat::NFS4ERR_SEQ_MISORDERED));
}

#[test]
fn a_request_that_fails_its_checks_leaves_the_slot_alone() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let s = session(&mut st, c, 1);
    let too_many = || Err(NfsStat::NFS4ERR_TOO_MANY_OPS);
    let refused = st.sessions.get_mut(&s).expect("the session").begin(0, &on_slot(0, 1), true, too_many);
    assert_eq!(refused, Err(NfsStat::NFS4ERR_TOO_MANY_OPS));
    assert_eq!(begin(&mut st, &s, &on_slot(0, 1)), Ok(Begin::New));
}

#[test]
fn a_sequence_number_wraps() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let s = session(&mut st, c, 1);
    let note =
        super::notes::SlotNote { session: s, slot: 0, sequence: u32::MAX, fingerprint: 0, reply: None };
    st.sessions.get_mut(&s).expect("the session").restore_slot(&note, 1);
    assert_eq!(begin(&mut st, &s, &on_slot(0, 0)), Ok(Begin::New));
}

#[test]
fn rfc8881_18_36_a_session_never_gets_more_than_it_asked_for() {
    let st = fresh();
    let ask = ChannelAttrs { max_requests: 4000, max_operations: 8, ..channel(1) };
    let got = st.sessions.negotiate(&ask, UNKNOWN).expect("a channel");
    assert_eq!((got.max_operations, got.max_response_size), (8, ask.max_response_size));
    assert!(got.max_requests <= limits::SLOTS_MAX && got.max_requests > 0);
    let small = ChannelAttrs { max_response_size: 100, ..channel(1) };
    assert_eq!(st.sessions.negotiate(&small, UNKNOWN), Err(NfsStat::NFS4ERR_TOOSMALL));
    let zero = ChannelAttrs { max_requests: 0, max_operations: 0, ..channel(1) };
    assert_eq!(st.sessions.negotiate(&zero, UNKNOWN).map(|c| (c.max_requests, c.max_operations)), Ok((1, 1)));
}

#[test]
fn what_sessions_may_keep_is_bounded() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let greedy = ChannelAttrs { max_response_size_cached: u32::MAX, max_requests: u32::MAX, ..channel(1) };
    let mut made = 0u32;
    let refused = loop {
        match st.sessions.negotiate(&greedy, UNKNOWN) {
            Ok(fore) => {
                assert!(made < 100_000);
                let mut id = [0; 16];
                id[..4].copy_from_slice(&made.to_be_bytes());
                let back = ChannelAttrs::default();
                let new = NewSession {
                    id,
                    client: c,
                    fore,
                    back,
                    callback_program: 0,
                    flags: 0,
                    callback_cred: None,
                };
                st.sessions.insert(new, 1, 0);
                made += 1;
            }
            Err(e) => break e,
        }
    };
    assert_eq!(refused, NfsStat::NFS4ERR_NOSPC);
    // Each has room for one largest reply; more only as long as there is some.
    let kept: u64 = st.sessions.iter().map(|s| u64::from(s.fore.max_response_size_cached)).sum();
    let (reserved, bound) = st.sessions.reserved();
    assert!(kept <= reserved && reserved <= bound && bound == limits::CACHED_BYTES_TOTAL_MAX);
    // A client that keeps little still gets a session; and room comes back.
    let modest = ChannelAttrs { max_response_size_cached: 1024, ..channel(1) };
    assert!(st.sessions.negotiate(&modest, UNKNOWN).is_ok());
    st.remove_client(c);
    assert!(st.sessions.negotiate(&greedy, UNKNOWN).is_ok());
}

#[test]
fn what_has_to_stand_in_the_log_is_bounded_by_its_size() {
    for log_bytes in [256 << 10, 16 << 20, 1 << 30] {
        let b = Bounds::new(Some(log_bytes));
        let clients = b.clients as u64 * limits::CLIENT_NOTE_BYTES;
        assert!(b.reply_bytes + clients <= log_bytes / 4 + limits::CLIENT_NOTE_BYTES, "{log_bytes}");
    }
    let mut st: S = State::new(1, LEASE, Bounds::new(Some(1 << 20)));
    let c = client(&mut st, b"c");
    let mut snapshot = 0;
    for name in 0..limits::SESSIONS_PER_CLIENT_MAX as u8 {
        let Ok(fore) = st.sessions.negotiate(&channel(256), UNKNOWN) else { break };
        let (id, slots, reply) =
            ([name; 16], fore.max_requests, vec![0xaa; fore.max_response_size_cached as usize]);
        let back = ChannelAttrs::default();
        st.sessions.insert(
            NewSession { id, client: c, fore, back, callback_program: 0, flags: 0, callback_cred: None },
            1,
            0,
        );
        for slot in 0..slots {
            let ask = SlotUse { highest: slot, ..on_slot(slot, 1) };
            begin(&mut st, &id, &ask).expect("new");
            reply_with(&mut st, &id, slot, CachedReply::Reply(Bytes::from(reply.clone())));
            release(&mut st, &id, slot);
        }
        snapshot = st.snapshot().iter().map(|n| n.to_bytes().len()).sum();
    }
    assert!(snapshot > 1 << 15 && snapshot <= (1 << 20) / 4, "{snapshot} bytes");
}

#[test]
fn rfc8881_9_7_share_reservations() {
    let mut st = fresh();
    let a = client(&mut st, b"a");
    let f = file(b"f");
    st.files.open(&f, a, &OWNER, READ, WRITE, None).expect("opened");
    assert!(st.files.check_share(&f, READ, 0).is_ok());
    assert_eq!(st.files.check_share(&f, WRITE, 0).map_err(|w| w.client), Err(a));
    assert_eq!(st.files.check_share(&f, READ, READ).map_err(|w| w.client), Err(a));
    assert!(st.files.check_anonymous(&f, WRITE).is_err() && st.files.check_anonymous(&f, READ).is_ok());
    assert!(st.files.check_share(&file(b"g"), BOTH, BOTH).is_ok());
}

#[test]
fn rfc8881_18_16_an_open_is_widened_and_narrowed_under_one_stateid() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let f = file(b"f");
    let s1 = st.files.open(&f, c, &OWNER, READ, 0, Some(1)).expect("opened");
    let s2 = st.files.open(&f, c, &OWNER, WRITE, 0, Some(2)).expect("widened");
    assert_eq!((s1.other, s1.seqid, s2.seqid), (s2.other, 1, 2));
    assert_eq!(st.files.find(c, &s1), Err(NfsStat::NFS4ERR_OLD_STATEID));
    assert_eq!(st.files.find(c, &Stateid { seqid: 3, ..s2 }), Err(NfsStat::NFS4ERR_BAD_STATEID));
    assert!(st.files.find(c, &Stateid { seqid: 0, ..s2 }).is_ok());
    assert_eq!(st.files.io(c, &f, &s2, READ), Ok(Some(1)));
    assert_eq!(st.files.io(c, &f, &s2, WRITE), Ok(Some(2)));
    assert_eq!(st.files.io(c, &file(b"g"), &s2, READ), Err(NfsStat::NFS4ERR_BAD_STATEID));
    // BOTH was never opened in one, but it is the union of two.
    let s3 = st.files.downgrade(c, &f, &s2, BOTH, 0).expect("the union");
    assert_eq!(st.files.downgrade(c, &f, &s3, READ, WRITE), Err(NfsStat::NFS4ERR_INVAL));
    let s4 = st.files.downgrade(c, &f, &s3, READ, 0).expect("narrowed");
    assert_eq!(st.files.io(c, &f, &s4, WRITE), Err(NfsStat::NFS4ERR_OPENMODE));
    assert_eq!(st.files.downgrade(c, &f, &s4, WRITE, 0), Err(NfsStat::NFS4ERR_INVAL));
    let mut closed = st.files.close(c, &f, &s4).expect("closed");
    closed.sort_unstable();
    assert_eq!(closed, [1, 2]);
    assert_eq!(st.files.close(c, &f, &s4), Err(NfsStat::NFS4ERR_BAD_STATEID));
    assert!(st.files.is_empty());
}

#[test]
fn reading_under_an_open_for_writing_is_left_to_the_shell() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let s = st.files.open(&file(b"f"), c, &OWNER, WRITE, 0, Some(1)).expect("opened");
    assert_eq!(st.files.io(c, &file(b"f"), &s, READ), Ok(None));
}

#[test]
fn rfc8881_9_1_2_nobody_reads_what_another_denies_under_an_open_for_writing() {
    let mut st = fresh();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    let f = file(b"f");
    let s = st.files.open(&f, a, &OWNER, WRITE, 0, Some(1)).expect("opened");
    let denies = st.files.open(&f, b, &OWNER, WRITE, READ, Some(2)).expect("opened");
    assert_eq!(st.files.io(a, &f, &s, READ), Err(NfsStat::NFS4ERR_LOCKED));
    assert_eq!(st.files.check_denied_read(a, &f, &s), Err(ShareConflict { client: b }));
    assert_eq!(st.files.io(a, &f, &s, WRITE), Ok(Some(1)));
    assert_eq!(st.files.io(b, &f, &denies, READ), Ok(None), "its own is in nobody's way");
    st.files.close(b, &f, &denies).expect("closed");
    assert_eq!(st.files.io(a, &f, &s, READ), Ok(None));
}

#[test]
fn rfc8881_8_2_stateids_of_others_and_of_former_instances_are_bad() {
    let mut st = fresh();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    let s = st.files.open(&file(b"f"), a, &OWNER, READ, 0, None).expect("opened");
    assert_eq!(st.files.find(b, &s), Err(NfsStat::NFS4ERR_BAD_STATEID));
    let mut later: S = State::new(2, LEASE, Bounds::new(None));
    let c = client(&mut later, b"a");
    later.files.open(&file(b"f"), c, &OWNER, READ, 0, None).expect("opened");
    assert_eq!(later.files.find(c, &s), Err(NfsStat::NFS4ERR_BAD_STATEID));
}

fn span(offset: u64, length: u64) -> Span {
    Span::new(offset, length).expect("a span")
}

#[test]
fn rfc8881_18_10_spans() {
    assert_eq!(Span::new(0, 0), Err(NfsStat::NFS4ERR_INVAL));
    assert_eq!(Span::new(3, u64::MAX - 1), Err(NfsStat::NFS4ERR_INVAL));
    assert_eq!(span(5, u64::MAX).length(), u64::MAX);
    assert_eq!(Span::new(u64::MAX, 1), Err(NfsStat::NFS4ERR_INVAL));
    assert_eq!(span(u64::MAX, u64::MAX).length(), u64::MAX);
    assert_eq!(span(u64::MAX - 1, 1).length(), 1);
    assert_eq!((span(5, 3).offset(), span(5, 3).length()), (5, 3));
}

#[test]
fn rfc8881_18_10_locks() {
    let mut st = fresh();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    let f = file(b"f");
    let oa = st.files.open(&f, a, &OWNER, BOTH, 0, None).expect("opened");
    let ob = st.files.open(&f, b, &OWNER, BOTH, 0, None).expect("opened");
    let new = |open| Locker::New { open, owner: OWNER };
    let la = st.files.lock(a, &f, &new(oa), LockType::Write, span(10, 10)).expect("locked");
    let Err(LockError::Denied(d)) = st.files.lock(b, &f, &new(ob), LockType::Read, span(0, 11)) else {
        panic!("the byte is locked")
    };
    assert_eq!((d.client, d.span.offset(), d.span.length(), d.exclusive), (a, 10, 10, true));
    assert_eq!(d.owner, OWNER);
    assert!(st.files.lock_test(b, &f, &OWNER, false, span(19, 1)).is_some());
    assert!(st.files.lock_test(b, &f, &OWNER, false, span(20, 1)).is_none());
    assert!(st.files.lock_test(a, &f, &OWNER, true, span(0, 100)).is_none());
    // Unlocking the middle leaves both ends.
    let la = st.files.unlock(a, &f, &la, span(12, 4)).expect("unlocked");
    assert_eq!(la.seqid, 2);
    st.files.lock(b, &f, &new(ob), LockType::Write, span(12, 4)).expect("free now");
    assert!(st.files.lock_test(b, &f, &OWNER, true, span(16, 1)).is_some());
    assert_eq!(st.files.free(a, &la), Err(NfsStat::NFS4ERR_LOCKS_HELD));
    let la = st.files.unlock(a, &f, &la, span(0, u64::MAX)).expect("unlocked");
    assert_eq!(st.files.free(a, &la), Ok(()));
    assert_eq!(st.files.find(a, &la), Err(NfsStat::NFS4ERR_BAD_STATEID));
    // Locks go with their open.
    st.files.close(b, &f, &ob).expect("closed");
    assert!(st.files.lock_test(a, &f, &OWNER, true, span(0, u64::MAX)).is_none());
}

#[test]
fn rfc8881_18_10_a_lock_needs_an_open_for_its_kind() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let open = st.files.open(&file(b"f"), c, &OWNER, READ, 0, None).expect("opened");
    let locker = Locker::New { open, owner: OWNER };
    assert_eq!(
        st.files.lock(c, &file(b"f"), &locker, LockType::WriteW, span(0, 1)),
        Err(LockError::Status(NfsStat::NFS4ERR_OPENMODE))
    );
    assert!(st.files.lock(c, &file(b"f"), &locker, LockType::ReadW, span(0, 1)).is_ok());
}

fn restart(st: &S, log: Vec<Stamped>) -> (S, Restored) {
    let mut next = State::new(2, st.lease_ms, st.bounds);
    let bytes: Vec<_> = log.iter().map(Stamped::to_bytes).collect();
    let r = next.restore(bytes.iter().filter_map(|b| Stamped::from_bytes(b)), 0);
    (next, r)
}

#[test]
fn a_persistent_session_goes_on_after_a_restart_and_replays() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let s = session(&mut st, c, 7);
    let mut log = st.snapshot();
    begin(&mut st, &s, &on_slot(0, 1)).expect("new");
    log.extend(reply_with(&mut st, &s, 0, CachedReply::Reply(Bytes::from_static(b"made"))));
    release(&mut st, &s, 0);
    // Reads that the log never saw.
    for n in 2..9 {
        begin(&mut st, &s, &on_slot(1, n - 1)).expect("new");
        reply_with(&mut st, &s, 1, CachedReply::Uncached);
        release(&mut st, &s, 1);
    }
    let (mut st, r) = restart(&st, log);
    assert_eq!((r.clients, r.sessions, r.replies, r.reclaiming), (1, 1, 1, 0));
    assert_eq!(begin(&mut st, &s, &on_slot(0, 1)), Ok(Begin::Replay(Bytes::from_static(b"made"))));
    assert_eq!(begin(&mut st, &s, &on_slot(0, 2)), Ok(Begin::New));
    assert_eq!(begin(&mut st, &s, &on_slot(1, 8)), Ok(Begin::New));
    reply_with(&mut st, &s, 1, CachedReply::Uncached);
    release(&mut st, &s, 1);
    // From then on strictly.
    assert_eq!(begin(&mut st, &s, &on_slot(1, 10)), Err(NfsStat::NFS4ERR_SEQ_MISORDERED));
    assert!(!st.grace.active(0));
}

#[test]
fn a_snapshot_shows_a_busy_slot_as_it_was() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let s = session(&mut st, c, 7);
    begin(&mut st, &s, &on_slot(0, 1)).expect("new");
    reply_with(&mut st, &s, 0, CachedReply::Reply(Bytes::from_static(b"one")));
    release(&mut st, &s, 0);
    begin(&mut st, &s, &on_slot(0, 2)).expect("new");
    let (mut after, _) = restart(&st, st.snapshot());
    assert_eq!(begin(&mut after, &s, &on_slot(0, 1)), Ok(Begin::Replay(Bytes::from_static(b"one"))));
    assert_eq!(
        begin(&mut after, &s, &on_slot(0, 2)),
        Ok(Begin::New),
        "it was not executed as far as the log knows"
    );
    // Staged, not yet released: the log has it.
    reply_with(&mut st, &s, 0, CachedReply::Reply(Bytes::from_static(b"two")));
    let (mut after, _) = restart(&st, st.snapshot());
    assert_eq!(begin(&mut after, &s, &on_slot(0, 2)), Ok(Begin::Replay(Bytes::from_static(b"two"))));
}

#[test]
fn what_is_gone_stays_gone_whatever_the_order_of_notes() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    session(&mut st, c, 7);
    let d = client(&mut st, b"d");
    let mut log = st.snapshot();
    let gone = st.remove_client(c);
    log.extend(gone);
    log.reverse();
    let (after, r) = restart(&st, log);
    assert_eq!((r.clients, r.sessions), (1, 0));
    assert!(after.clients.get(d).is_some());
}

fn holder() -> (S, u64, Vec<Stamped>) {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    session(&mut st, c, 7);
    let mut log = st.snapshot();
    st.files.open(&file(b"f"), c, &OWNER, READ, 0, None).expect("opened");
    log.extend(st.note_holding(c));
    st.holding_is_noted(c, u64::MAX);
    assert!(st.note_holding(c).is_none(), "once is enough");
    (st, c, log)
}

/// Who has closed all is waited for no longer than until the log knows; who opens again is, before anybody hears of that.
#[test]
fn rfc8881_8_4_2_1_grace_is_not_for_those_who_hold_nothing_any_more() {
    for again in [false, true] {
        let (mut st, c, mut log) = holder();
        assert!(st.tick(0).is_empty(), "it holds something");
        st.files.remove_client(c);
        log.extend(st.tick(0));
        assert!(st.tick(0).is_empty(), "once is enough");
        if again {
            st.files.open(&file(b"f"), c, &OWNER, READ, 0, None).expect("opened");
            log.push(st.note_holding(c).expect("a note"));
        }
        // In whatever order the log has them.
        log.reverse();
        let (after, found) = restart(&st, log);
        assert_eq!((found.reclaiming, after.grace.active(0)), (usize::from(again), again));
    }
}

#[test]
fn rfc8881_8_4_2_grace_is_for_those_who_held_something() {
    let (st, c, log) = holder();
    let (mut st, r) = restart(&st, log);
    assert_eq!(r.reclaiming, 1);
    let d = client(&mut st, b"d");
    assert!(st.grace.active(0) && st.must_wait_for_grace(d, 0));
    assert_eq!(st.may_reclaim(c, 0), Ok(()));
    assert_eq!(st.may_reclaim(d, 0), Err(NfsStat::NFS4ERR_RECLAIM_BAD));
    assert_eq!(st.status_flags(c), SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
    assert_eq!(st.status_flags(d), 0);
    // A client that was not recorded may say that it has nothing; that ends nothing for others.
    assert!(st.reclaim_complete(d).is_ok());
    assert!(st.grace.active(0));
    assert!(st.reclaim_complete(c).is_ok());
    assert_eq!(st.reclaim_complete(c), Err(NfsStat::NFS4ERR_COMPLETE_ALREADY));
    assert!(!st.grace.active(0) && !st.must_wait_for_grace(d, 0));
    assert_eq!(st.status_flags(c), 0);
    assert_eq!(st.may_reclaim(c, 0), Err(NfsStat::NFS4ERR_NO_GRACE));
}

#[test]
fn rfc8881_8_4_2_grace_ends_with_the_lease() {
    let (st, c, log) = holder();
    let (mut st, _) = restart(&st, log);
    assert!(st.grace.active(LEASE), "until the log knows of it");
    let notes = st.end_grace(LEASE).expect("its end");
    assert!(st.grace.active(LEASE) && st.may_reclaim(c, LEASE).is_err());
    st.grace.ended();
    assert!(!st.grace.active(LEASE) && st.end_grace(LEASE).is_none());
    // It has not been heard of. Under another ID it has to say that it is done before it opens anything new.
    assert!(notes.iter().any(|n| n.note == Note::ClientGone(c)));
    assert_eq!(st.may_reclaim(c, LEASE), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
}

#[test]
fn the_end_of_grace_that_the_log_refused_is_tried_again() {
    let (st, c, log) = holder();
    let (mut st, _) = restart(&st, log.clone());
    let refused = st.end_grace(LEASE).expect("its end");
    assert!(!refused.is_empty());
    // As often as it has to be, with all that has to be said, and until then nobody gets anything.
    for later in [LEASE, LEASE + 5_000, LEASE * 2] {
        assert_eq!(st.end_grace(later).as_ref(), Some(&refused));
        assert!(
            st.grace.active(later) && st.must_wait_for_grace(c, later) && st.may_reclaim(c, later).is_err()
        );
    }
    st.grace.ended();
    assert!(!st.grace.active(LEASE * 2) && st.end_grace(LEASE * 2).is_none());
    // What was said the last time is what the next restart goes by.
    let (after, restored) = restart(&st, log.into_iter().chain(refused).collect());
    assert_eq!((restored.reclaiming, after.may_reclaim(c, 0)), (0, Err(NfsStat::NFS4ERR_STALE_CLIENTID)));
}

#[test]
fn what_a_limit_refuses_is_counted_for_the_log() {
    let limits = Limits::default().with(Limit::ClientOpens, 1).with(Limit::ClientLocks, 1);
    let mut st = S::new(1, LEASE, Bounds { clients: 1, ..Bounds::with(None, limits) });
    let c = client(&mut st, b"c");
    let (owner, f, g) = (Bytes::from_static(b"o"), FileKey::from_static(b"f"), FileKey::from_static(b"g"));
    let open = st.files.open(&f, c, &owner, BOTH, 0, Some(1)).expect("an open");
    for _ in 0..2 {
        assert_eq!(st.files.open(&g, c, &owner, BOTH, 0, Some(1)), Err(NfsStat::NFS4ERR_NOSPC));
    }
    let locker = Locker::New { open, owner };
    for (offset, fits) in [(0, true), (10, false)] {
        let span = Span::new(offset, 1).expect("a range");
        assert_eq!(st.files.lock(c, &f, &locker, LockType::Write, span).is_ok(), fits);
    }
    assert_eq!(
        st.make_room_for_client(0, [192, 0, 2, 1].into()).err(),
        Some(NfsStat::NFS4ERR_DELAY),
        "it holds something"
    );
    let due = st.files.refusals.due(7);
    assert_eq!(due, [("limits.client_opens", 2), ("limits.client_locks", 1), ("limits.clients", 1)]);
    assert_eq!(st.files.refusals.due(8), []);
}

#[test]
fn a_clean_stop_with_nothing_open_needs_no_grace() {
    let (mut st, c, _) = holder();
    st.settle_holders();
    let (after, r) = restart(&st, st.snapshot());
    assert_eq!(r.reclaiming, 1, "it holds something");
    drop(after);
    st.files.remove_client(c);
    st.settle_holders();
    let (after, r) = restart(&st, st.snapshot());
    assert_eq!(r.reclaiming, 0);
    assert!(!after.grace.active(0));
}

#[test]
fn a_restarted_client_that_comes_back_under_a_new_id_ends_the_wait_for_the_old_one() {
    let (st, c, log) = holder();
    let (mut st, _) = restart(&st, log);
    let new = exchange(&mut st, 1, &ask(b"c", 2, ROOT)).expect("a new instance").client;
    assert!(st.grace.active(1));
    confirm(&mut st, new, 1);
    assert!(st.clients.get(c).is_none() && !st.grace.active(1));
}

#[test]
fn time_alone_ends_unconfirmed_and_long_silent_clients() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    let d = client(&mut st, b"d");
    st.files.open(&file(b"f"), d, &OWNER, READ, 0, None).expect("opened");
    exchange(&mut st, 0, &ask(b"u", 1, ROOT)).expect("new");
    assert!(st.tick(LEASE + 1).is_empty());
    assert_eq!(st.clients.len(), 2);
    assert!(st.tick(limits::IDLE_MS).is_empty());
    assert!(st.tick(limits::IDLE_MS + 1).iter().any(|n| n.note == Note::ClientGone(c)));
    assert!(st.tick(limits::COURTESY_MS).is_empty());
    assert!(st.tick(limits::COURTESY_MS + 1).iter().any(|n| n.note == Note::ClientGone(d)));
    assert!(st.clients.is_empty());
}

#[test]
fn what_is_no_note_is_not_read() {
    assert_eq!(Stamped::from_bytes(&[]), None);
    assert_eq!(Stamped::from_bytes(&[9, 1, 2]), None);
    assert_eq!(Stamped::from_bytes(&[1, 0xff]), None);
}

#[derive(Debug, Clone)]
enum Step {
    Lock(u8, bool, u8, u8),
    Unlock(u8, u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3u8, any::<bool>(), 0..40u8, 1..20u8).prop_map(|(w, x, o, l)| Step::Lock(w, x, o, l)),
        (0..3u8, 0..40u8, 1..20u8).prop_map(|(w, o, l)| Step::Unlock(w, o, l)),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// The table against a model that keeps each byte's holders.
    #[test]
    fn locks_behave_like_a_table_of_bytes(steps in steps()) {
        let mut st = fresh();
        let f = file(b"f");
        let clients = [client(&mut st, b"0"), client(&mut st, b"1"), client(&mut st, b"2")];
        let opens = clients.map(|c| st.files.open(&f, c, &OWNER, BOTH, 0, None).expect("opened"));
        let mut states: [Option<Stateid>; 3] = [None; 3];
        // For each byte and client: none, shared, exclusive.
        let mut model = [[0u8; 3]; 64];
        for step in steps {
            match step {
                Step::Lock(who, exclusive, at, len) => {
                    let who = usize::from(who);
                    let range = usize::from(at)..usize::from(at + len);
                    let free = range.clone().all(|b| {
                        (0..3).all(|o| o == who || model[b][o] == 0 || (model[b][o] == 1 && !exclusive))
                    });
                    let kind = if exclusive { LockType::Write } else { LockType::Read };
                    let locker = match states[who] {
                        Some(s) => Locker::Known(s),
                        None => Locker::New { open: opens[who], owner: OWNER },
                    };
                    let test = st.files.lock_test(clients[who], &f, &OWNER, super::locks::exclusive(kind), span(at.into(), len.into()));
                    prop_assert_eq!(test.is_none(), free);
                    match st.files.lock(clients[who], &f, &locker, kind, span(at.into(), len.into())) {
                        Ok(s) => {
                            prop_assert!(free);
                            states[who] = Some(s);
                            range.for_each(|b| model[b][who] = if exclusive { 2 } else { 1 });
                        }
                        Err(LockError::Denied(d)) => {
                            prop_assert!(!free);
                            let holder = clients.iter().position(|c| *c == d.client).expect("a client");
                            let b = d.span.offset() as usize;
                            prop_assert_eq!(model[b][holder] == 2, d.exclusive);
                        }
                        Err(e) => prop_assert!(false, "{:?}", e),
                    }
                }
                Step::Unlock(who, at, len) => {
                    let who = usize::from(who);
                    if let Some(s) = states[who] {
                        let new = st.files.unlock(clients[who], &f, &s, span(at.into(), len.into()));
                        states[who] = Some(new.expect("unlocked"));
                        (usize::from(at)..usize::from(at + len)).for_each(|b| model[b][who] = 0);
                    }
                }
            }
        }
    }

    /// Whatever a client does to a slot, each number is executed once.
    #[test]
    fn a_slot_executes_each_number_at_most_once(
        tries in prop::collection::vec((0..6u32, any::<bool>(), any::<bool>()), 1..80)
    ) {
        let mut st = fresh();
        let c = client(&mut st, b"c");
        let s = session(&mut st, c, 1);
        let (mut executed, mut busy) = (0u32, false);
        for (offset, finish, restarts) in tries {
            let sequence = (executed + offset).saturating_sub(2);
            match begin(&mut st, &s, &on_slot(0, sequence)) {
                Ok(Begin::New) => {
                    prop_assert!(!busy && sequence == executed + 1);
                    (executed, busy) = (sequence, true);
                }
                Ok(Begin::Replay(r)) => {
                    prop_assert!(!busy && sequence == executed);
                    prop_assert_eq!(r.to_vec(), sequence.to_be_bytes().to_vec());
                }
                Ok(Begin::Uncached) => prop_assert!(false, "all replies are kept"),
                Err(_) => prop_assert!(busy || (sequence != executed + 1 && (sequence != executed || executed == 0))),
            }
            if busy && finish {
                let reply = Bytes::copy_from_slice(&executed.to_be_bytes());
                reply_with(&mut st, &s, 0, CachedReply::Reply(reply));
                release(&mut st, &s, 0);
                busy = false;
            }
            if restarts && !busy {
                let (next, _) = restart(&st, st.snapshot());
                st = next;
                // A restored slot takes any number ahead; this client only ever sends the next.
                if executed > 0 {
                    let again = begin(&mut st, &s, &on_slot(0, executed));
                    prop_assert_eq!(again, Ok(Begin::Replay(Bytes::copy_from_slice(&executed.to_be_bytes()))));
                }
                begin(&mut st, &s, &on_slot(0, executed + 1)).expect("the next");
                executed += 1;
                let reply = Bytes::copy_from_slice(&executed.to_be_bytes());
                reply_with(&mut st, &s, 0, CachedReply::Reply(reply));
                release(&mut st, &s, 0);
            }
        }
    }

    /// Any OPEN_DOWNGRADE ends in a union of OPENs that were made, or changes nothing.
    #[test]
    fn a_downgrade_is_a_union_of_opens(
        opens in prop::collection::vec((1..4u8, 0..4u8), 1..6), to in (1..4u8, 0..4u8)
    ) {
        let mut st = fresh();
        let c = client(&mut st, b"c");
        let f = file(b"f");
        let mut last = Stateid::ANONYMOUS;
        for (a, d) in &opens {
            last = st.files.open(&f, c, &OWNER, *a, *d, None).expect("opened");
        }
        let inside: Vec<_> = opens.iter().filter(|(a, d)| a & !to.0 == 0 && d & !to.1 == 0).collect();
        let union = inside.iter().fold((0, 0), |u, (a, d)| (u.0 | a, u.1 | d));
        let got = st.files.downgrade(c, &f, &last, to.0, to.1);
        prop_assert_eq!(got.is_ok(), union == to);
    }

    #[test]
    fn any_bytes_are_a_note_or_none(b in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut one = vec![1];
        one.extend(b);
        if let Some(s) = Stamped::from_bytes(&one) {
            let mut st = fresh();
            st.restore([s], 0);
        }
    }
}

#[test]
fn rfc8881_20_9_slots_of_the_back_channel_count_what_was_executed() {
    let mut st = fresh();
    let id = session(&mut st, 1, 1);
    let mut s = st.sessions.get_mut(&id).expect("the session");
    assert_eq!(s.callback_begin().err(), Some(NoCallback::NotNow), "no connection");
    assert!(!s.can_call_back());
    s.bind_back(5);
    assert!(s.can_call_back());
    let one = s.callback_begin().expect("a slot");
    assert_eq!((one.slot, one.sequence, one.unsure, one.highest), (0, 1, false, 0));
    assert_eq!((one.conns, one.program), (vec![5], 0x4000_0000));
    let two = s.callback_begin().expect("a slot");
    assert_eq!((two.slot, two.sequence, two.highest), (1, 1, 1));
    assert_eq!(s.callback_begin().err(), Some(NoCallback::NotNow), "no slot");
    // Not executed: the same number again. Unanswered: the same number, and it may be known already.
    s.callback_end(0, CallbackEnd::NotExecuted(1));
    let one = s.callback_begin().expect("a slot");
    assert_eq!((one.slot, one.sequence, one.unsure), (0, 1, false));
    s.callback_end(0, CallbackEnd::Unanswered(1));
    let one = s.callback_begin().expect("a slot");
    assert_eq!((one.slot, one.sequence, one.unsure), (0, 1, true));
    // It was: number 2 is next, and its callback was refused for now.
    s.callback_end(0, CallbackEnd::NotExecuted(2));
    let one = s.callback_begin().expect("a slot");
    assert_eq!((one.sequence, one.unsure), (2, false));
    // The same, and the answer to number 2 is lost: a lower one would be misordered.
    s.callback_end(0, CallbackEnd::Unanswered(2));
    let one = s.callback_begin().expect("a slot");
    assert_eq!((one.sequence, one.unsure), (2, true));
    s.callback_end(0, CallbackEnd::Unanswered(3));
    let one = s.callback_begin().expect("a slot");
    assert_eq!((one.sequence, one.unsure), (3, true));
    s.callback_end(0, CallbackEnd::Executed(2));
    assert_eq!(s.callback_begin().map(|u| u.sequence).ok(), Some(3));
    s.callback_end(1, CallbackEnd::Broken);
    assert!(s.back_fault && !s.can_call_back());
    assert_eq!(s.callback_begin().err(), Some(NoCallback::Never));
}

#[test]
fn rfc8881_18_46_3_what_a_restart_leaves_of_a_back_channel() {
    let mut st = fresh();
    let c = client(&mut st, b"c");
    // 1 was never called back; 2 was; 3 had no back channel until a connection was bound to one; 4 never has.
    for name in 1..=4 {
        let flags = if name < 3 { CREATE_SESSION4_FLAG_CONN_BACK_CHAN } else { 0 };
        session_with(&mut st, c, name, flags);
    }
    let s = |st: &mut S, name: u8, act: &mut dyn FnMut(&mut Session)| {
        act(&mut st.sessions.get_mut(&[name; 16]).expect("the session"));
    };
    s(&mut st, 2, &mut |s| assert!(s.callback_is_news() && s.callback_is_news(), "until the log knows"));
    s(&mut st, 2, &mut |s| {
        s.calls_are_noted();
        assert!(!s.callback_is_news());
    });
    s(&mut st, 3, &mut |s| assert!(s.bind_back(3) && !s.bind_back(4), "the first is news"));
    let notes = st.snapshot();
    let fault = SEQ4_STATUS_BACKCHANNEL_FAULT;
    let down = SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION;
    let says = |st: &S| [1u8, 2, 3, 4].map(|name| st.sessions.back_status(&[name; 16]));
    let mut st: S = State::new(2, LEASE, Bounds::new(None));
    st.restore(notes.clone(), 0);
    assert_eq!(says(&st), [down, fault, down, 0]);
    // One that was never used goes on where it was, at its beginning; one that was used is of no use.
    s(&mut st, 1, &mut |s| {
        s.bind_back(6);
        assert_eq!(s.callback_begin().map(|u| (u.sequence, u.unsure)).ok(), Some((1, false)));
    });
    s(&mut st, 2, &mut |s| {
        s.bind_back(6);
        assert_eq!(s.callback_begin().err(), Some(NoCallback::Never));
    });
    assert_eq!(says(&st), [0, fault, SEQ4_STATUS_CB_PATH_DOWN_SESSION, 0]);
    // Where an earlier version of the server wrote the log, nothing is known of what the client asked for.
    let mut st: S = State::new(2, LEASE, Bounds::new(None));
    st.restore(notes.into_iter().filter(|n| !matches!(n.note, Note::Backchannel(_))), 0);
    assert_eq!(says(&st), [fault, fault, 0, 0]);
}

/// An open is wanted and there is no room: clients whose lease is over go, the one that was silent longest first, and no more than
/// are in the way.
#[test]
fn opens_of_lapsed_clients_go_to_whoever_needs_them() {
    let mut st = S::new(1, LEASE, Bounds::with(None, Limits::default().with(Limit::Opens, 16)));
    let addr = |n: u8| std::net::IpAddr::from([192, 0, 2, n]);
    let open = |st: &mut S, now, client, from, n: u8| {
        let f = FileKey::copy_from_slice(&[n]);
        let (room, notes) = st.make_room_for_open(now, client, Some((&OWNER, &f)), addr(from));
        let room = room.map(|()| st.files.open_from(addr(from), &f, client, &OWNER, BOTH, 0, Some(n.into())));
        (room.map(|opened| opened.is_ok()), notes)
    };
    let (a, b, c) = (client(&mut st, b"a"), client(&mut st, b"b"), client(&mut st, b"c"));
    for n in 0..8 {
        assert_eq!(open(&mut st, 0, a, 1, n).0, Ok(true));
    }
    assert_eq!(open(&mut st, 0, a, 1, 100).0, Err(NfsStat::NFS4ERR_DELAY), "it has as many as are free");
    assert_eq!(open(&mut st, 0, a, 1, 3).0, Ok(true), "what it has it has");
    for n in 10..14 {
        assert_eq!(open(&mut st, 0, b, 2, n).0, Ok(true));
    }
    // All leases go on: nobody gives anything up.
    assert_eq!(open(&mut st, LEASE, b, 2, 15).0, Err(NfsStat::NFS4ERR_DELAY));
    st.clients.renew(b, LEASE + 1);
    st.clients.renew(c, LEASE + 1);
    let (opened, notes) = open(&mut st, LEASE + 1, b, 2, 15);
    assert_eq!(opened, Ok(true));
    assert!(notes.iter().any(|n| n.note == Note::ClientGone(a)), "the log knows that it is gone");
    assert_eq!(st.files.len(), 5);
    // The shell closes what it had opened when it has let go of the state.
    let mut closed = std::mem::take(&mut st.files.closed);
    closed.sort_unstable();
    assert_eq!(closed, (0..8).collect::<Vec<_>>());
}

/// The same for ranges: whoever has many client IDs at one address leaves some to others.
#[test]
fn an_address_locks_no_more_ranges_than_are_free() {
    let mut st = S::new(1, LEASE, Bounds::with(None, Limits::default().with(Limit::Locks, 16)));
    let addr = |n: u8| std::net::IpAddr::from([192, 0, 2, n]);
    let lock_all = |st: &mut S, name: &'static [u8], from: u8| {
        let c = client(st, name);
        let f = FileKey::from_static(name);
        let open = st.files.open_from(addr(from), &f, c, &OWNER, BOTH, 0, None).expect("opened");
        let locker = Locker::New { open, owner: OWNER };
        (0..100)
            .take_while(|i| {
                let span = Span::new(10 * i, 1).expect("a range");
                st.files.lock(c, &f, &locker, LockType::Write, span).is_ok()
            })
            .count()
    };
    assert_eq!(lock_all(&mut st, b"a", 1), 8);
    assert_eq!(lock_all(&mut st, b"b", 1), 0);
    assert_eq!(lock_all(&mut st, b"c", 2), 4);
    assert_eq!(lock_all(&mut st, b"d", 3), 2);
}
