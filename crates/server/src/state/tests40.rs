//! Tests of NFSv4.0's part of the state: client IDs, owners' sequence numbers, reclaim; and a model of a network that loses,
//! repeats and reorders, against which each operation has its effect at most once.

use super::clients::{Callback, SetClientId, SetClientIdError};
use super::identity::Requester;
use super::locks::{LockError, Locker, Span};
use super::notes::{Note, Stamped};
use super::opens::{BOTH, FileKey, READ};
use super::owners::{Kind, OwnerKey, Request};
use super::v40::{SeqidRequest, Started, Step, Subject};
use super::*;
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::NfsStat;
use landfast_nfs::v4::v40::{CallbackClient, ClientAddr};
use landfast_nfs::v4::{LockType, OpNum, ResBody, ResOp, Stateid};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

const LEASE: Millis = 90_000;
const ROOT: Principal = Principal { flavor: 1, uid: 0 };
const OTHER: Principal = Principal { flavor: 1, uid: 1000 };
type S = State<u32>;

fn fresh() -> S {
    State::new(1, LEASE, Bounds::new(None))
}

fn at(port: &'static [u8]) -> Callback {
    let location = ClientAddr { netid: Bytes::from_static(b"tcp"), addr: Bytes::from_static(port) };
    Callback { client: CallbackClient { program: 1, location }, ident: 0 }
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn by(principal: Principal) -> Requester {
    Requester { principal, addr: HERE }
}

/// SETCLIENTID {v, x, k}; `confirm` is t.
fn set(
    st: &mut S,
    x: &'static [u8],
    v: u8,
    k: &'static [u8],
    t: u8,
    principal: Principal,
) -> Result<u64, SetClientIdError> {
    let ask = SetClientId {
        owner: Bytes::from_static(x),
        verifier: [v; 8],
        by: by(principal),
        callback: at(k),
        confirm: [t; 8],
    };
    st.set_client_id(0, ask).map(|(id, _)| id)
}

fn confirm(st: &mut S, c: u64, t: u8) -> Result<Vec<Stamped>, NfsStat> {
    st.confirm_client_id(0, c, [t; 8], by(ROOT))
}

fn client(st: &mut S, x: &'static [u8]) -> u64 {
    let c = set(st, x, 1, b"1", 1, ROOT).expect("a client ID");
    confirm(st, c, 1).expect("confirmed");
    c
}

fn callback(st: &S, c: u64) -> Callback {
    st.clients.get(c).and_then(|c| c.v40.as_ref()).expect("a client of 4.0").callback.clone()
}

const F: FileKey = Bytes::from_static(b"f");

fn owner(n: &'static [u8]) -> Bytes {
    Bytes::from_static(n)
}

fn open_ask(client: u64, name: &'static [u8], seqid: u32) -> SeqidRequest {
    let subject = Subject::Open { client, owner: owner(name), reclaim: false };
    SeqidRequest { subject, seqid, request: Request { op: OpNum::OPEN, fingerprint: u64::from(seqid) } }
}

fn of_open(op: OpNum, s: Stateid, seqid: u32) -> SeqidRequest {
    let subject = if op == OpNum::OPEN_CONFIRM { Subject::Confirm(s) } else { Subject::OfOpen(s) };
    SeqidRequest { subject, seqid, request: Request { op, fingerprint: u64::from(seqid) } }
}

fn new_lock(client: u64, s: Stateid, seqid: u32, name: &'static [u8], lock_seqid: u32) -> SeqidRequest {
    let subject = Subject::NewLock { open: s, client, owner: owner(name), seqid: lock_seqid };
    SeqidRequest { subject, seqid, request: Request { op: OpNum::LOCK, fingerprint: u64::from(seqid) } }
}

fn of_lock(op: OpNum, s: Stateid, seqid: u32) -> SeqidRequest {
    SeqidRequest {
        subject: Subject::OfLock(s),
        seqid,
        request: Request { op, fingerprint: u64::from(seqid) },
    }
}

/// What the shell does for an operation, on file `f`, with bytes 0 to 9 for locks. How often anything was executed is
/// counted in `effects`.
fn serve(st: &mut S, now: Millis, ask: &SeqidRequest, effects: &mut u32) -> ResOp {
    let op = ask.request.op;
    let Some(taken) = st.take_owners([&ask.subject].into_iter()) else {
        return ResOp::failed(op, NfsStat::NFS4ERR_DELAY);
    };
    let res = match st.begin40(now, ask, &taken) {
        Ok(Step::Replay(last)) => last.res,
        Err(status) => ResOp::failed(op, status),
        Ok(Step::Run(begun)) => {
            let done = execute(st, ask, &begun);
            *effects += u32::from(done.is_ok());
            let res = match done {
                Ok(body) => ResOp::ok(op, body),
                Err(status) => ResOp::failed(op, status),
            };
            st.end40(now, &begun, &res, None);
            res
        }
    };
    st.owners.give_back(&taken);
    res
}

fn execute(st: &mut S, ask: &SeqidRequest, begun: &Started<u32>) -> Result<ResBody, NfsStat> {
    let c = begun.client;
    let span = Span::new(0, 10)?;
    let locked = |r| match r {
        Ok(s) => Ok(ResBody::Lock(s)),
        Err(LockError::Status(s)) => Err(s),
        Err(LockError::Denied(_)) => Err(NfsStat::NFS4ERR_DENIED),
    };
    match &ask.subject {
        Subject::Open { owner, .. } => st.files.open(&F, c, owner, BOTH, 0, None).map(ResBody::OpenConfirm),
        Subject::Confirm(s) => st.confirm_open(begun, &F, s).map(ResBody::OpenConfirm),
        Subject::OfOpen(s) => {
            st.files.exact(s)?;
            if ask.request.op == OpNum::OPEN_DOWNGRADE {
                return st.files.downgrade(c, &F, s, BOTH, 0).map(ResBody::OpenDowngrade);
            }
            let owners = st.begin_close(begun.open.expect("an open"));
            st.files.close(c, &F, s)?;
            st.lock_states_gone(&owners);
            Ok(ResBody::Close(Stateid::INVALID))
        }
        Subject::NewLock { open, owner, .. } => {
            st.files.exact(open)?;
            let locker = Locker::New { open: *open, owner: owner.clone() };
            locked(st.files.lock(c, &F, &locker, LockType::Write, span))
        }
        Subject::OfLock(s) => {
            st.files.exact(s)?;
            if ask.request.op == OpNum::LOCKU {
                return st.files.unlock(c, &F, s, span).map(ResBody::Locku);
            }
            locked(st.files.lock(c, &F, &Locker::Known(*s), LockType::Write, span))
        }
    }
}

fn stateid(res: &ResOp) -> Stateid {
    match &res.body {
        ResBody::OpenConfirm(s)
        | ResBody::OpenDowngrade(s)
        | ResBody::Lock(s)
        | ResBody::Locku(s)
        | ResBody::Close(s) => *s,
        other => panic!("{other:?} has no stateid"),
    }
}

/// An open that is confirmed; the owner's last number is 2.
fn opened(st: &mut S, c: u64, name: &'static [u8]) -> Stateid {
    let mut n = 0;
    let s = stateid(&serve(st, 0, &open_ask(c, name, 1), &mut n));
    let s = stateid(&serve(st, 0, &of_open(OpNum::OPEN_CONFIRM, s, 2), &mut n));
    assert_eq!((n, s.seqid), (2, 2));
    s
}

#[test]
fn rfc7530_16_33_5_case_1_the_same_instance_updates_its_callback() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    opened(&mut st, c, b"o");
    assert_eq!(set(&mut st, b"x", 1, b"2", 2, ROOT), Ok(c), "the same client ID");
    assert_eq!(callback(&st, c), at(b"1"), "not before it is confirmed");
    assert!(confirm(&mut st, c, 3).is_err());
    assert!(confirm(&mut st, c, 1).is_ok(), "the former confirmation again changes nothing");
    assert_eq!(callback(&st, c), at(b"1"));
    assert_eq!(confirm(&mut st, c, 2), Ok(vec![]));
    assert_eq!(callback(&st, c), at(b"2"));
    assert_eq!(st.files.opens_of(c), 1, "no state is lost");
    assert_eq!(confirm(&mut st, c, 2), Ok(vec![]), "a retry");
    assert_eq!(confirm(&mut st, c, 1), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
}

#[test]
fn rfc7530_16_33_5_cases_2_and_3_a_restarted_client_loses_its_state_only_when_it_confirms() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let s = opened(&mut st, c, b"o");
    let d = set(&mut st, b"x", 2, b"1", 2, ROOT).expect("a client ID");
    let e = set(&mut st, b"x", 3, b"1", 3, ROOT).expect("a client ID");
    assert!(c != d && d != e && c != e);
    assert_eq!(confirm(&mut st, d, 2), Err(NfsStat::NFS4ERR_STALE_CLIENTID), "replaced by the third");
    assert_eq!((st.files.opens_of(c), st.live40(0, c)), (1, Ok(())));
    assert_eq!(st.live40(0, e), Err(NfsStat::NFS4ERR_STALE_CLIENTID), "not confirmed");
    let notes = confirm(&mut st, e, 3).expect("confirmed");
    assert!(notes.iter().any(|n| n.note == Note::ClientGone(c)));
    assert_eq!(st.live40(0, c), Err(NfsStat::NFS4ERR_EXPIRED));
    assert_eq!(st.locate40(0, &s), Err(NfsStat::NFS4ERR_EXPIRED), "what was its open");
    assert!(st.owners.is_empty());
}

#[test]
fn rfc7530_16_33_5_cases_4_and_5_without_a_confirmed_record() {
    let mut st = fresh();
    let c = set(&mut st, b"x", 1, b"1", 1, ROOT).expect("a client ID");
    let d = set(&mut st, b"x", 1, b"1", 2, ROOT).expect("a client ID");
    assert_ne!(c, d);
    assert_eq!(confirm(&mut st, c, 1), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
    assert_eq!(confirm(&mut st, d, 1), Err(NfsStat::NFS4ERR_STALE_CLIENTID), "the wrong confirmation");
    assert_eq!(st.confirm_client_id(0, d, [2; 8], by(OTHER)), Err(NfsStat::NFS4ERR_CLID_INUSE));
    assert!(confirm(&mut st, d, 2).is_ok());
    assert_eq!(confirm(&mut st, 0, 0), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
}

#[test]
fn rfc7530_16_33_5_another_principal_waits_until_nothing_is_held() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let s = opened(&mut st, c, b"o");
    let using = at(b"1").client.location;
    assert_eq!(set(&mut st, b"x", 1, b"2", 2, OTHER), Err(SetClientIdError::InUse(using)));
    let mut n = 0;
    assert!(serve(&mut st, 0, &of_open(OpNum::CLOSE, s, 3), &mut n).status.is_ok());
    let d = set(&mut st, b"x", 1, b"2", 2, OTHER).expect("it holds nothing");
    assert_ne!(c, d);
    assert!(st.confirm_client_id(0, d, [2; 8], by(OTHER)).is_ok());
    assert_eq!(st.confirm_client_id(0, d, [2; 8], by(ROOT)), Err(NfsStat::NFS4ERR_CLID_INUSE));
}

#[test]
fn the_owners_of_two_minor_versions_do_not_meet() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let ask = clients::ExchangeId {
        owner: Bytes::from_static(b"x"),
        verifier: [9; 8],
        by: by(ROOT),
        update: false,
    };
    let d = st.clients.exchange_id(0, &ask, |_| true).expect("a client ID").client;
    let v = st.next_version();
    assert_eq!(st.clients.created(d, 0, Bytes::new(), v), None, "nobody's record goes");
    assert_eq!(st.live40(0, c), Ok(()));
    assert_eq!(st.live40(0, d), Err(NfsStat::NFS4ERR_STALE_CLIENTID), "a client ID of 4.1");
    // Its share reservations and locks count all the same.
    let s = opened(&mut st, c, b"o");
    assert!(st.files.check_share(&F, READ, BOTH).is_err());
    st.files.open(&F, d, &owner(b"o"), BOTH, 0, None).expect("opened");
    let mut n = 0;
    let lock = serve(&mut st, 0, &new_lock(c, s, 3, b"l", 0), &mut n);
    assert!(lock.status.is_ok());
    let span = Span::new(5, 1).expect("a span");
    let denied = st.files.lock_test(d, &F, &owner(b"l"), false, span).expect("a lock in the way");
    assert_eq!(denied.client, c);
    assert_eq!(st.locate40(0, &s).map(|(_, of)| of), Ok(c));
}

#[test]
fn rfc7530_9_1_7_each_kind_is_replayed() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let mut n = 0;
    let twice = |st: &mut S, ask: SeqidRequest, n: &mut u32| {
        let before = *n;
        let first = serve(st, 0, &ask, n);
        assert_eq!(first.status, NfsStat::NFS4_OK, "{ask:?}");
        assert_eq!(serve(st, 0, &ask, n), first);
        assert_eq!(*n, before + 1, "once");
        // The same number for something else is no retry, and the number after the next comes too early.
        for (seqid, fingerprint) in [(ask.seqid, 77), (ask.seqid + 2, 77), (ask.seqid.wrapping_sub(1), 77)] {
            let mut other = ask.clone();
            (other.seqid, other.request.fingerprint) = (seqid, fingerprint);
            if ask.request.op != OpNum::OPEN || ask.seqid > 2 {
                let res = serve(st, 0, &other, n);
                assert_eq!(res.status, NfsStat::NFS4ERR_BAD_SEQID, "{other:?} after {ask:?}");
            }
        }
        stateid(&first)
    };
    let s = twice(&mut st, open_ask(c, b"o", 1), &mut n);
    let s = twice(&mut st, of_open(OpNum::OPEN_CONFIRM, s, 2), &mut n);
    let s = twice(&mut st, of_open(OpNum::OPEN_DOWNGRADE, s, 3), &mut n);
    let l = twice(&mut st, new_lock(c, s, 4, b"l", 7), &mut n);
    let l = twice(&mut st, of_lock(OpNum::LOCK, l, 8), &mut n);
    twice(&mut st, of_lock(OpNum::LOCKU, l, 9), &mut n);
    let s = twice(&mut st, open_ask(c, b"o", 5), &mut n);
    twice(&mut st, of_open(OpNum::CLOSE, s, 6), &mut n);
    assert_eq!((n, st.files.len()), (8, 0));
    // The next request of the owner ends the memory of the CLOSE.
    let again = twice(&mut st, open_ask(c, b"o", 7), &mut n);
    assert_eq!(serve(&mut st, 0, &of_open(OpNum::CLOSE, s, 6), &mut n).status, NfsStat::NFS4ERR_BAD_STATEID);
    assert_eq!(again.seqid, 1, "another open");
}

#[test]
fn rfc7530_9_1_7_errors_that_do_not_count() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let s = opened(&mut st, c, b"o");
    let mut n = 0;
    // OLD_STATEID counts, ...
    let old = Stateid { seqid: 1, ..s };
    let ask = of_open(OpNum::OPEN_DOWNGRADE, old, 3);
    assert_eq!(serve(&mut st, 0, &ask, &mut n).status, NfsStat::NFS4ERR_OLD_STATEID);
    assert_eq!(serve(&mut st, 0, &ask, &mut n).status, NfsStat::NFS4ERR_OLD_STATEID);
    let zero = of_open(OpNum::OPEN_DOWNGRADE, Stateid { seqid: 0, ..s }, 4);
    assert_eq!(serve(&mut st, 0, &zero, &mut n).status, NfsStat::NFS4ERR_OLD_STATEID, "0 is no wildcard");
    // ... these do not.
    let later = Stateid { seqid: 9, ..s };
    for (bad, status) in [
        (later, NfsStat::NFS4ERR_BAD_STATEID),
        (Stateid::ANONYMOUS, NfsStat::NFS4ERR_BAD_STATEID),
        (Stateid::READ_BYPASS, NfsStat::NFS4ERR_BAD_STATEID),
        (Stateid::CURRENT, NfsStat::NFS4ERR_BAD_STATEID),
        (Stateid { seqid: 1, other: [7; 12] }, NfsStat::NFS4ERR_STALE_STATEID),
    ] {
        assert_eq!(serve(&mut st, 0, &of_open(OpNum::OPEN_DOWNGRADE, bad, 5), &mut n).status, status);
    }
    assert!(serve(&mut st, 0, &of_open(OpNum::OPEN_DOWNGRADE, s, 5), &mut n).status.is_ok());
    assert_eq!(n, 1);
    assert!(!NfsStat::NFS4ERR_RESOURCE.advances_seqid() && !NfsStat::NFS4ERR_NOFILEHANDLE.advances_seqid());
    assert!(NfsStat::NFS4ERR_GRACE.advances_seqid() && NfsStat::NFS4ERR_EXPIRED.advances_seqid());
}

#[test]
fn rfc7530_9_1_3_numbers_wrap() {
    for next in [0, 1] {
        let mut st = fresh();
        let c = client(&mut st, b"x");
        let mut n = 0;
        let s = stateid(&serve(&mut st, 0, &open_ask(c, b"o", u32::MAX), &mut n));
        let s = serve(&mut st, 0, &of_open(OpNum::OPEN_CONFIRM, s, next), &mut n);
        assert_eq!(s.status, NfsStat::NFS4_OK, "{next} after the largest");
    }
}

#[test]
fn rfc7530_16_18_an_open_that_is_not_confirmed() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let mut n = 0;
    let s = stateid(&serve(&mut st, 0, &open_ask(c, b"o", 5), &mut n));
    assert_eq!(st.client_of_io40(0, &s), Err(NfsStat::NFS4ERR_BAD_STATEID), "no I/O under it");
    for ask in [of_open(OpNum::CLOSE, s, 6), of_open(OpNum::OPEN_DOWNGRADE, s, 6), new_lock(c, s, 6, b"l", 0)]
    {
        assert_eq!(serve(&mut st, 0, &ask, &mut n).status, NfsStat::NFS4ERR_BAD_STATEID);
    }
    // Another OPEN takes its place, whatever its number.
    let t = stateid(&serve(&mut st, 0, &open_ask(c, b"o", 9), &mut n));
    assert_eq!((st.files.len(), t.other == s.other), (1, false));
    assert_eq!(
        serve(&mut st, 0, &of_open(OpNum::OPEN_CONFIRM, s, 10), &mut n).status,
        NfsStat::NFS4ERR_BAD_STATEID
    );
    // A wrong number ends it, and a retry is told the same; the right number comes too late.
    for (seqid, status) in [
        (50, NfsStat::NFS4ERR_BAD_SEQID),
        (50, NfsStat::NFS4ERR_BAD_SEQID),
        (10, NfsStat::NFS4ERR_BAD_STATEID),
    ] {
        let confirm = of_open(OpNum::OPEN_CONFIRM, t, seqid);
        assert_eq!(serve(&mut st, 0, &confirm, &mut n).status, status);
        assert_eq!((st.files.len(), st.owners.len()), (0, 1));
    }
    // The OPEN itself is no retry then: it opens again. Time alone forgets such an owner, too.
    let u = stateid(&serve(&mut st, 0, &open_ask(c, b"o", 9), &mut n));
    assert!(u.other != t.other && st.files.len() == 1);
    serve(&mut st, 0, &of_open(OpNum::OPEN_CONFIRM, u, 50), &mut n);
    assert_eq!((st.tick_owners(LEASE * 3).len(), st.owners.len()), (0, 0));
    // Confirmed twice.
    let s = opened(&mut st, c, b"p");
    assert_eq!(
        serve(&mut st, 0, &of_open(OpNum::OPEN_CONFIRM, s, 3), &mut n).status,
        NfsStat::NFS4ERR_BAD_STATEID
    );
    assert_eq!(st.client_of_io40(0, &s), Ok(c));
}

#[test]
fn rfc7530_16_10_5_lock_owners() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let s = opened(&mut st, c, b"o");
    let mut n = 0;
    let l = stateid(&serve(&mut st, 0, &new_lock(c, s, 3, b"l", 0), &mut n));
    assert_eq!(
        serve(&mut st, 0, &new_lock(c, s, 4, b"l", 1), &mut n).status,
        NfsStat::NFS4ERR_BAD_SEQID,
        "it has locks under this open"
    );
    // Both numbers are looked at.
    assert_eq!(serve(&mut st, 0, &new_lock(c, s, 50, b"m", 0), &mut n).status, NfsStat::NFS4ERR_BAD_SEQID);
    let stranger = new_lock(0, s, 4, b"m", 0);
    assert_eq!(serve(&mut st, 0, &stranger, &mut n).status, NfsStat::NFS4ERR_STALE_CLIENTID);
    // One that is denied is not made known: its name may come back with another number.
    assert_eq!(serve(&mut st, 0, &new_lock(c, s, 4, b"m", 6), &mut n).status, NfsStat::NFS4ERR_DENIED);
    let known =
        |st: &S, name| st.owners.get(&OwnerKey { client: c, kind: Kind::Lock, name: owner(name) }).is_some();
    assert!(known(&st, b"l") && !known(&st, b"m"));
    assert_eq!(st.release_lock_owner(0, c, &owner(b"l")), Err(NfsStat::NFS4ERR_LOCKS_HELD));
    let l = stateid(&serve(&mut st, 0, &of_lock(OpNum::LOCKU, l, 1), &mut n));
    assert_eq!(serve(&mut st, 0, &new_lock(c, s, 5, b"m", 0), &mut n).status, NfsStat::NFS4_OK);
    assert_eq!(st.release_lock_owner(0, c, &owner(b"l")), Ok(()));
    assert_eq!(st.release_lock_owner(0, c, &owner(b"never seen")), Ok(()));
    assert_eq!(st.release_lock_owner(0, 77, &owner(b"l")), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
    assert!(!known(&st, b"l"));
    assert_eq!(serve(&mut st, 0, &of_lock(OpNum::LOCK, l, 2), &mut n).status, NfsStat::NFS4ERR_BAD_STATEID);
    // CLOSE takes locks and lock owners along.
    assert_eq!(serve(&mut st, 0, &of_open(OpNum::CLOSE, s, 6), &mut n).status, NfsStat::NFS4_OK);
    assert!(!known(&st, b"m"));
    assert_eq!(st.owners.len(), 1);
}

#[test]
fn a_busy_owner_makes_its_retry_wait() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let ask = open_ask(c, b"o", 1);
    let taken = st.take_owners([&ask.subject].into_iter()).expect("free");
    assert!(st.take_owners([&ask.subject].into_iter()).is_none());
    assert!(st.take_owners([&open_ask(c, b"p", 1).subject].into_iter()).is_some());
    st.owners.give_back(&taken);
    assert!(st.take_owners([&ask.subject].into_iter()).is_some());
    assert_eq!(st.begin40(0, &open_ask(c, b"q", 1), &taken).err(), Some(NfsStat::NFS4ERR_RESOURCE));
}

/// RFC 7530 section 9.1.7: the retry of a CLOSE that arrives while the open is gone and the reply is not kept yet.
#[test]
fn a_close_in_its_middle_makes_its_retry_wait() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let s = opened(&mut st, c, b"o");
    let ask = of_open(OpNum::CLOSE, s, 3);
    let taken = st.take_owners([&ask.subject].into_iter()).expect("free");
    let Ok(Step::Run(begun)) = st.begin40(0, &ask, &taken) else { panic!("a new request") };
    let done = execute(&mut st, &ask, &begun).expect("closed");
    assert!(st.take_owners([&ask.subject].into_iter()).is_none(), "the owner is busy");
    let res = ResOp::ok(OpNum::CLOSE, done);
    st.end40(0, &begun, &res, None);
    st.owners.give_back(&taken);
    assert_eq!(serve(&mut st, 0, &ask, &mut 0), res, "the kept reply");
}

#[test]
fn an_address_with_many_clients_leaves_owners_to_others() {
    let mut st = fresh();
    let at = |st: &mut S, n: u8| {
        let addr = IpAddr::from([192, 0, 2, n / 16]);
        let by = Requester { principal: ROOT, addr };
        let owner = Bytes::from(vec![n]);
        let ask = SetClientId { owner, verifier: [1; 8], by, callback: at(b"1"), confirm: [1; 8] };
        let (c, _) = st.set_client_id(0, ask).expect("a client ID");
        st.confirm_client_id(0, c, [1; 8], by).expect("confirmed");
        c
    };
    let begin = |st: &mut S, client: u64, n: u32| {
        let name = Bytes::copy_from_slice(&n.to_be_bytes());
        let subject = Subject::Open { client, owner: name, reclaim: false };
        let ask = SeqidRequest { subject, seqid: 1, request: Request { op: OpNum::OPEN, fingerprint: 1 } };
        let taken = st.take_owners([&ask.subject].into_iter()).expect("not busy");
        let step = st.begin40(0, &ask, &taken);
        if let Ok(Step::Run(begun)) = &step {
            st.end40(0, begun, &ResOp::failed(OpNum::OPEN, NfsStat::NFS4ERR_NOENT), None);
        }
        st.owners.give_back(&taken);
        step.map(drop)
    };
    for n in 0..8 {
        let c = at(&mut st, n);
        for i in 0..limits::OWNERS_PER_CLIENT_MAX as u32 - 1 {
            if begin(&mut st, c, i).is_err() {
                break;
            }
        }
    }
    assert!(st.owners.len() <= limits::OWNERS_MAX / 2, "{}", st.owners.len());
    let other = at(&mut st, 16);
    assert_eq!(begin(&mut st, other, 0), Ok(()));
}

#[test]
fn what_idle_owners_take_is_given_back() {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let mut n = 0;
    let s = opened(&mut st, c, b"o");
    opened(&mut st, c, b"kept");
    serve(&mut st, 0, &open_ask(c, b"never confirmed", 1), &mut n);
    assert!(serve(&mut st, 0, &of_open(OpNum::CLOSE, s, 3), &mut n).status.is_ok());
    assert_eq!((st.owners.len(), st.files.len()), (3, 2));
    st.tick_owners(2 * LEASE);
    assert_eq!(st.owners.len(), 3);
    st.tick_owners(2 * LEASE + 1);
    assert_eq!((st.owners.len(), st.files.len()), (1, 1));
    // One that was forgotten has to confirm again.
    let ask = open_ask(c, b"o", 9);
    let taken = st.take_owners([&ask.subject].into_iter()).expect("free");
    assert!(matches!(st.begin40(0, &ask, &taken), Ok(Step::Run(b)) if b.confirm));
}

fn restart(st: &S, epoch: u32, log: &[Stamped]) -> S {
    let mut next = State::new(epoch, LEASE, Bounds::new(None));
    let all: Vec<_> = st.snapshot().into_iter().chain(log.iter().cloned()).collect();
    let bytes: Vec<_> = all.iter().map(Stamped::to_bytes).collect();
    next.restore(bytes.iter().filter_map(|b| Stamped::from_bytes(b)), 0);
    next
}

/// A client that holds an open, as the log knows.
fn holder() -> (S, u64, Stateid) {
    let mut st = fresh();
    let c = client(&mut st, b"x");
    let s = opened(&mut st, c, b"o");
    assert!(st.note_holding(c).is_some());
    st.holding_is_noted(c, u64::MAX);
    (st, c, s)
}

#[test]
fn rfc7530_9_6_2_after_a_restart_old_names_are_stale_and_state_is_reclaimed() {
    let (st, c, s) = holder();
    let mut st = restart(&st, 2, &[]);
    assert_eq!(st.live40(0, c), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
    assert_eq!(st.locate40(0, &s), Err(NfsStat::NFS4ERR_STALE_STATEID));
    assert_eq!(confirm(&mut st, c, 1), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
    let d = client(&mut st, b"x");
    assert_ne!(c, d);
    let stranger = client(&mut st, b"y");
    assert_eq!(st.may_reclaim(d, 0), Ok(()));
    assert_eq!(st.may_reclaim(stranger, 0), Err(NfsStat::NFS4ERR_RECLAIM_BAD));
    assert!(st.must_wait_for_grace(d, 0) && st.must_wait_for_grace(stranger, 0));
    // A reclaim needs no confirmation.
    let ask = SeqidRequest {
        subject: Subject::Open { client: d, owner: owner(b"o"), reclaim: true },
        ..open_ask(d, b"o", 1)
    };
    let mut n = 0;
    let s = stateid(&serve(&mut st, 0, &ask, &mut n));
    assert_eq!(st.client_of_io40(0, &s), Ok(d));
    // Grace is over with the lease, and then for good.
    let notes = st.end_grace(LEASE).expect("its end");
    assert!(st.must_wait_for_grace(d, LEASE), "until that is in the log");
    st.grace.ended();
    assert!(!st.must_wait_for_grace(d, LEASE) && !st.must_wait_for_grace(stranger, LEASE));
    assert_eq!(st.may_reclaim(d, LEASE), Err(NfsStat::NFS4ERR_NO_GRACE));
    // It holds something again, so the next restart lets it reclaim again.
    let mut st = restart(&st, 3, &notes);
    let e = client(&mut st, b"x");
    assert_eq!(st.may_reclaim(e, 0), Ok(()));
}

#[test]
fn rfc7530_9_6_3_4_2_who_missed_the_grace_period_reclaims_never() {
    let (st, ..) = holder();
    let mut st = restart(&st, 2, &[]);
    let log = st.snapshot();
    let notes = st.end_grace(LEASE).expect("its end");
    st.grace.ended();
    let all: Vec<_> = log.into_iter().chain(notes).collect();
    let mut st = restart(&fresh(), 3, &all);
    let d = client(&mut st, b"x");
    assert_eq!(st.may_reclaim(d, 0), Err(NfsStat::NFS4ERR_NO_GRACE), "no grace period without anybody");
}

#[test]
fn rfc7530_9_6_3_4_1_who_was_expired_reclaims_never() {
    let (mut st, c, s) = holder();
    let log = st.snapshot();
    let notes = st.remove_client(c);
    assert_eq!(st.live40(0, c), Err(NfsStat::NFS4ERR_EXPIRED));
    assert_eq!(st.locate40(0, &s), Err(NfsStat::NFS4ERR_EXPIRED));
    let all: Vec<_> = log.into_iter().chain(notes).collect();
    let mut st = restart(&fresh(), 2, &all);
    let d = client(&mut st, b"x");
    assert!(st.may_reclaim(d, 0).is_err());
}

#[test]
fn a_client_that_restarted_as_well_has_nothing_to_reclaim() {
    let (st, ..) = holder();
    let mut st = restart(&st, 2, &[]);
    let d = set(&mut st, b"x", 2, b"1", 1, ROOT).expect("a client ID");
    confirm(&mut st, d, 1).expect("confirmed");
    assert!(st.may_reclaim(d, 0).is_err());
    assert!(!st.grace.active(0), "nobody is waited for");
}

#[test]
fn rfc7530_9_6_3_a_lease_is_kept_until_somebody_needs_it() {
    let (mut st, c, _) = holder();
    assert!(!st.lapsed(c, LEASE) && st.lapsed(c, LEASE + 1));
    assert_eq!(st.live40(LEASE * 5, c), Ok(()), "a courtesy");
    assert!(!st.lapsed(c, LEASE * 6));
    assert!(st.tick(LEASE * 7).is_empty());
}

#[derive(Debug, Clone, Copy)]
enum Act {
    OpenOrClose,
    Downgrade,
    LockOrUnlock,
}

/// One client with one open owner and one lock owner, which does one thing at a time and repeats it until it is answered.
struct Model {
    st: S,
    c: u64,
    open_seq: u32,
    lock_seq: u32,
    open: Option<Stateid>,
    unconfirmed: bool,
    lock: Option<Stateid>,
    locked: bool,
    effects: u32,
    sent: Vec<SeqidRequest>,
}

impl Model {
    fn next(&self, deed: Act) -> SeqidRequest {
        let (o, l) = (self.open_seq + 1, self.lock_seq + 1);
        match (deed, self.open, self.lock) {
            (_, None, _) => open_ask(self.c, b"o", o),
            (_, Some(s), _) if self.unconfirmed => of_open(OpNum::OPEN_CONFIRM, s, o),
            (Act::OpenOrClose, Some(s), _) => of_open(OpNum::CLOSE, s, o),
            (Act::Downgrade, Some(s), _) => of_open(OpNum::OPEN_DOWNGRADE, s, o),
            (Act::LockOrUnlock, Some(s), None) => new_lock(self.c, s, o, b"l", l),
            (Act::LockOrUnlock, _, Some(l_id)) if self.locked => of_lock(OpNum::LOCKU, l_id, l),
            (Act::LockOrUnlock, _, Some(l_id)) => of_lock(OpNum::LOCK, l_id, l),
        }
    }

    fn answered(&mut self, ask: &SeqidRequest, res: &ResOp) {
        let s = stateid(res);
        match &ask.subject {
            Subject::OfLock(_) => (self.lock, self.locked) = (Some(s), ask.request.op == OpNum::LOCK),
            Subject::NewLock { .. } => (self.lock, self.locked) = (Some(s), true),
            Subject::Open { .. } => self.open = Some(s),
            _ if ask.request.op == OpNum::CLOSE => (self.open, self.lock, self.locked) = (None, None, false),
            _ => self.open = Some(s),
        }
        match &ask.subject {
            Subject::OfLock(_) => self.lock_seq += 1,
            Subject::NewLock { .. } => {
                (self.open_seq, self.lock_seq) = (self.open_seq + 1, self.lock_seq + 1)
            }
            _ => self.open_seq += 1,
        }
    }
}

fn deeds() -> impl Strategy<Value = Vec<(Act, u8, Vec<prop::sample::Index>)>> {
    let deed = prop_oneof![Just(Act::OpenOrClose), Just(Act::Downgrade), Just(Act::LockOrUnlock)];
    prop::collection::vec((deed, 1u8..4, prop::collection::vec(any::<prop::sample::Index>(), 0..4)), 1..60)
}

proptest! {
    /// Each request of the client takes effect exactly once, and each of its copies gets the same answer, however often the
    /// network repeats it and whatever old requests arrive in between.
    #[test]
    fn rfc7530_9_1_7_any_repetition_and_order_gives_exactly_once(deeds in deeds()) {
        let mut st = fresh();
        let c = client(&mut st, b"x");
        let mut m = Model {
            st, c, open_seq: 0, lock_seq: 0, open: None, unconfirmed: false, lock: None, locked: false, effects: 0,
            sent: Vec::new(),
        };
        for (deed, copies, stray) in deeds {
            let ask = m.next(deed);
            let known = m.st.owners.get(&OwnerKey { client: c, kind: Kind::Open, name: owner(b"o") }).is_some();
            let before = m.effects;
            let mut answer: Option<ResOp> = None;
            for _ in 0..copies {
                let res = serve(&mut m.st, 0, &ask, &mut m.effects);
                prop_assert_eq!(res.status, NfsStat::NFS4_OK, "{:?}", ask);
                if let Some(first) = &answer {
                    prop_assert_eq!(first, &res);
                }
                answer = Some(res);
            }
            prop_assert_eq!(m.effects, before + 1, "{:?}", ask);
            let res = answer.expect("an answer");
            m.answered(&ask, &res);
            m.unconfirmed = ask.request.op == OpNum::OPEN && !known;
            // What the network kept back: requests before the last one of their owner. They change nothing.
            let (opens, locks) = (m.st.files.len(), m.st.files.locks.len());
            let strays: Vec<SeqidRequest> = m.sent.iter().filter(|old| match &old.subject {
                Subject::OfLock(_) => old.seqid < m.lock_seq,
                _ => old.seqid < m.open_seq && !m.unconfirmed,
            }).cloned().collect();
            for i in stray {
                if strays.is_empty() {
                    break;
                }
                let old = i.get(&strays);
                let before = m.effects;
                let res = serve(&mut m.st, 0, old, &mut m.effects);
                prop_assert!(!res.status.is_ok(), "{:?} was answered with {:?}", old, res);
                prop_assert_eq!(m.effects, before);
            }
            prop_assert_eq!((m.st.files.len(), m.st.files.locks.len()), (opens, locks));
            m.sent.push(ask);
        }
    }
}
