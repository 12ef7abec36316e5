use super::*;
use crate::limited::{Limit, Limits};
use crate::limits;
use crate::state::Bounds;
use crate::state::ranges::Span;
use landfast_nfs::v4::Opaque1024;
use std::net::Ipv4Addr;

type S = State<u32>;

const ADDR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const BY: RequestForm = RequestForm { udp: false, message: false, at: None };

fn state() -> S {
    State::new(1, 90_000, Bounds::new(None))
}

fn host(st: &mut S, name: &'static [u8]) -> u64 {
    st.nlm_host(ADDR, &Bytes::from_static(name), 0).expect("a host").0
}

fn ask(host: u64, svid: i32, file: u32, offset: u64, length: u64) -> LockRequest {
    let span = Span::new(offset, length).expect("a span");
    let file = Bytes::copy_from_slice(&file.to_be_bytes());
    LockRequest { host, from: ADDR, owner: owner(svid, b"oh"), file, span, exclusive: true }
}

fn wire() -> Lock {
    let none = || Opaque1024(Bytes::new());
    Lock { caller_name: none(), fh: none(), oh: none(), svid: 0, offset: 0, length: 0 }
}

fn wait(st: &mut S, ask: LockRequest) -> Result<(), NfsStat> {
    st.files.nlm_wait(ask, wire(), BY)
}

/// A client that locks a million ranges: it gets what one file may have and what one client may have, others what is
/// left, and what is given back can be had again.
#[test]
fn a_million_ranges_are_bounded() {
    let mut st = state();
    let hosts = [host(&mut st, b"a"), host(&mut st, b"b")];
    let mut given = 0;
    for i in 0..1_000_000u64 {
        given += usize::from(st.files.nlm_lock(&ask(hosts[0], 1, 0, 2 * i, 1)).is_ok());
    }
    assert_eq!(given, limits::LOCKS_PER_FILE_MAX);
    assert_eq!(st.files.nlm_lock(&ask(hosts[0], 1, 0, 0, 1)), Ok(()), "what it has it has");
    for file in 1..4 {
        for i in 0..limits::LOCKS_PER_FILE_MAX as u64 {
            given += usize::from(st.files.nlm_lock(&ask(hosts[0], 1, file, 2 * i, 1)).is_ok());
        }
    }
    assert_eq!(given, limits::LOCKS_PER_CLIENT_MAX);
    assert_eq!(st.files.locked_ranges(), given);
    let full = Err(LockError::Status(NfsStat::NFS4ERR_NOSPC));
    assert_eq!(st.files.nlm_lock(&ask(hosts[0], 1, 9, 0, 1)), full);
    assert_eq!(st.files.nlm_lock(&ask(hosts[1], 1, 9, 0, 10)), Ok(()), "another client");
    assert_eq!(st.files.nlm_lock(&ask(hosts[1], 1, 0, 1, 1)), full, "a full file");
    // Joined into one, the first client has room again.
    assert_eq!(st.files.nlm_lock(&ask(hosts[0], 1, 0, 0, u64::MAX)), Ok(()));
    assert_eq!(st.files.nlm_lock(&ask(hosts[0], 1, 9, 10, 1)), Ok(()));
    assert!(st.nlm_free(hosts[0]).is_none());
    assert_eq!(st.files.locked_ranges(), 1);
    assert!(st.files.nlm_unlock(&ask(hosts[1], 1, 9, 0, u64::MAX)).is_ok());
    assert_eq!((st.files.locked_ranges(), st.files.files.len(), st.files.locks.len()), (0, 0, 0));
    assert!(st.files.clients.is_empty());
}

#[test]
fn waiting_requests_are_bounded_and_granted_in_order() {
    let mut st = state();
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    assert_eq!(st.files.nlm_lock(&ask(a, 1, 0, 0, u64::MAX)), Ok(()));
    let mut waiting = 0;
    for i in 0..=limits::NLM_WAITERS_PER_FILE_MAX {
        waiting += usize::from(wait(&mut st, ask(b, i as i32, 0, i as u64, 2)).is_ok());
        assert!(wait(&mut st, ask(b, 0, 0, 0, 2)).is_ok(), "the same is one");
    }
    assert_eq!(waiting, limits::NLM_WAITERS_PER_FILE_MAX);
    assert_eq!(wait(&mut st, ask(b, 1, 1, 0, 1)), Err(NfsStat::NFS4ERR_NOSPC), "of one host");
    assert!(!st.files.waiters.any_freed() && st.files.nlm_grant().is_empty());
    st.files.nlm_unlock(&ask(a, 1, 0, 0, u64::MAX)).expect("unlocked");
    assert!(st.files.waiters.any_freed());
    // Each other one: neighbours are in each other's way.
    let granted: Vec<u64> = st.files.nlm_grant().iter().map(|w| w.span.offset()).collect();
    assert_eq!(granted.len(), limits::NLM_WAITERS_PER_FILE_MAX / 2);
    assert!(granted.iter().enumerate().all(|(i, offset)| *offset == 2 * i as u64));
    assert!(!st.files.waiters.any_freed());
    st.nlm_free(b);
    assert!(st.files.waiters.is_empty());
    assert_eq!(st.files.nlm_lock(&ask(a, 1, 0, 0, u64::MAX)), Ok(()), "all is free");
}

#[test]
fn who_is_told_and_who_refuses() {
    let mut st = state();
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    let whole = |host| ask(host, 1, 0, 0, u64::MAX);
    assert_eq!(st.files.nlm_lock(&whole(a)), Ok(()));
    wait(&mut st, whole(b)).expect("waits");
    st.files.nlm_unlock(&whole(a)).expect("unlocked");
    let told = st.files.nlm_grant().remove(0);
    assert!(matches!(st.files.nlm_lock(&whole(a)), Err(LockError::Denied(_))), "b has it before it is told");
    assert!(!st.files.nlm_told(|h| h == a, told.id), "another host's answer");
    st.files.nlm_refused(|h| h == b, told.id);
    assert_eq!(st.files.nlm_lock(&whole(a)), Ok(()));
    // Cancelled while it is told.
    wait(&mut st, whole(b)).expect("waits");
    st.files.nlm_unlock(&whole(a)).expect("unlocked");
    let told = st.files.nlm_grant().remove(0);
    assert!(st.files.nlm_cancel(&whole(b)) && !st.files.nlm_granting(told.id));
    assert_eq!(st.files.nlm_lock(&whole(a)), Ok(()));
    // Asked for again while it is told: it has it, and a late refusal means nothing.
    wait(&mut st, whole(b)).expect("waits");
    st.files.nlm_unlock(&whole(a)).expect("unlocked");
    let told = st.files.nlm_grant().remove(0);
    assert_eq!(st.files.nlm_lock(&whole(b)), Ok(()));
    st.files.nlm_refused(|h| h == b, told.id);
    assert!(matches!(st.files.nlm_lock(&whole(a)), Err(LockError::Denied(_))));
}

fn shared(ask: LockRequest) -> LockRequest {
    LockRequest { exclusive: false, ..ask }
}

/// `by` waits until `from` unlocks, and gets it: the number of its grant.
fn granted(st: &mut S, by: &LockRequest, from: &LockRequest) -> u64 {
    wait(st, by.clone()).expect("waits");
    st.files.nlm_unlock(from).expect("unlocked");
    let told = st.files.nlm_grant();
    assert_eq!(told.len(), 1);
    told[0].id
}

/// GRANTED was heard but its reply lost. A client takes a late one for another request by the same process for the same
/// range.
#[test]
fn who_unlocks_is_not_told_that_it_was_granted() {
    let mut st = state();
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    let (of_a, of_b) = (ask(a, 1, 0, 0, 100), ask(b, 1, 0, 0, 100));
    assert_eq!(st.files.nlm_lock(&of_b), Ok(()));
    let old = granted(&mut st, &of_a, &of_b);
    st.files.nlm_unlock(&of_a).expect("unlocked");
    assert!(!st.files.nlm_granting(old));
    assert_eq!(st.files.nlm_lock(&of_b), Ok(()));
    wait(&mut st, of_a.clone()).expect("waits");
    st.files.nlm_refused(|_| true, old);
    assert!(!st.files.nlm_told(|_| true, old) && !st.files.nlm_sends(old, true));
    assert!(st.files.nlm_grant().is_empty());
    st.files.nlm_unlock(&of_b).expect("unlocked");
    assert!(st.files.nlm_grant().iter().map(|w| w.host).eq([a]), "the second request");
    // A late refusal of the first takes nothing of a later lock.
    st.files.nlm_unlock(&of_a).expect("unlocked");
    assert_eq!(st.files.nlm_lock(&ask(a, 1, 0, 0, 50)), Ok(()));
    st.files.nlm_refused(|_| true, old);
    assert!(matches!(st.files.nlm_lock(&of_b), Err(LockError::Denied(_))));
    // Another thread of the process makes a part of it a shared lock: nobody is told of an exclusive one.
    st.files.nlm_unlock(&of_a).expect("unlocked");
    assert_eq!(st.files.nlm_lock(&of_b), Ok(()));
    let old = granted(&mut st, &of_a, &of_b);
    assert_eq!(st.files.nlm_lock(&shared(ask(a, 1, 0, 10, 10))), Ok(()));
    assert!(!st.files.nlm_granting(old));
}

/// It has heard the first time: it no longer waits, so it refuses the second.
#[test]
fn who_refuses_what_it_is_told_again_keeps_it() {
    let mut st = state();
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    let (of_a, of_b) = (ask(a, 1, 0, 0, 100), ask(b, 1, 0, 0, 100));
    assert_eq!(st.files.nlm_lock(&of_b), Ok(()));
    let told = granted(&mut st, &of_a, &of_b);
    assert!(st.files.nlm_sends(told, false) && st.files.nlm_sends(told, true));
    st.files.nlm_refused(|_| true, told);
    assert!(!st.files.nlm_granting(told));
    assert!(matches!(st.files.nlm_lock(&of_b), Err(LockError::Denied(_))));
}

#[test]
fn what_is_taken_back_is_what_was_granted() {
    let mut st = state();
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    let range = |host| ask(host, 1, 0, 0, 10);
    for cancels in [true, false] {
        assert_eq!(st.files.nlm_lock(&shared(range(a))), Ok(()));
        assert_eq!(st.files.nlm_lock(&shared(range(b))), Ok(()));
        let told = granted(&mut st, &range(a), &range(b));
        if cancels {
            assert!(st.files.nlm_cancel(&range(a)));
        } else {
            st.files.nlm_refused(|_| true, told);
        }
        assert!(matches!(st.files.nlm_lock(&range(b)), Err(LockError::Denied(_))), "a has its shared lock");
        assert_eq!(st.files.nlm_lock(&shared(range(b))), Ok(()), "and no other");
    }
    // What it has locked or unlocked since stays so.
    let told = granted(&mut st, &ask(a, 1, 0, 0, 100), &range(b));
    assert_eq!(st.files.nlm_lock(&ask(a, 1, 0, 50, 10)), Ok(()));
    st.files.nlm_refused(|_| true, told);
    assert!(st.files.lock_test(b, &range(b).file, &range(b).owner, false, range(b).span).is_none());
    for (offset, free) in [(0, false), (10, true), (49, true), (50, false), (59, false), (60, true)] {
        let span = Span::new(offset, 1).expect("a span");
        let held = st.files.lock_test(b, &range(b).file, &range(b).owner, true, span);
        assert_eq!(held.is_none(), free, "{offset}: {held:?}");
    }
    assert_eq!(st.files.locked_ranges(), 2);
    // A lock whose note the log does not take, and what another has got since is not taken from it.
    let before = st.files.nlm_held(&range(a));
    assert_eq!(st.files.nlm_lock(&range(a)), Ok(()));
    st.files.nlm_unlock(&ask(a, 1, 0, 0, 5)).expect("unlocked");
    assert_eq!(st.files.nlm_lock(&ask(b, 1, 0, 0, 5)), Ok(()));
    assert!(st.files.nlm_give_back(&range(a), &before));
    assert_eq!(st.files.nlm_lock(&shared(ask(b, 1, 0, 0, 10))), Ok(()));
    assert!(matches!(st.files.nlm_lock(&ask(b, 1, 0, 5, 1)), Err(LockError::Denied(_))));
    // Too much to remember: CANCEL says that it was granted before, and Linux unlocks.
    for n in 0..=limits::NLM_RANGES_REMEMBERED_MAX as u64 {
        assert_eq!(st.files.nlm_lock(&ask(a, 1, 1, 2 * n, 1)), Ok(()));
    }
    assert_eq!(st.files.nlm_lock(&ask(b, 1, 1, 1000, 1)), Ok(()));
    let told = granted(&mut st, &ask(a, 1, 1, 0, u64::MAX), &ask(b, 1, 1, 1000, 1));
    assert!(!st.files.nlm_cancel(&ask(a, 1, 1, 0, u64::MAX)) && !st.files.nlm_granting(told));
    assert!(matches!(st.files.nlm_lock(&ask(b, 1, 1, 1000, 1)), Err(LockError::Denied(_))));
}

#[test]
fn a_share_reservation_that_is_taken_back_is_the_one_before() {
    let mut st = state();
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    let (oh, file) = (Bytes::from_static(b"oh"), Bytes::from_static(b"file"));
    assert_eq!(st.files.nlm_shared(a, &oh, &file), None);
    assert_eq!(st.files.nlm_share((a, ADDR), &oh, &file, 1, 2), Ok(Ok(())));
    let before = st.files.nlm_shared(a, &oh, &file);
    assert_eq!(before, Some((1, 2)));
    assert_eq!(st.files.nlm_share((a, ADDR), &oh, &file, 1, 0), Ok(Ok(())));
    st.files.nlm_share_back((a, ADDR), &oh, &file, before);
    assert_eq!(st.files.nlm_shared(a, &oh, &file), before);
    // Others have got what it would deny.
    assert_eq!(st.files.nlm_share((a, ADDR), &oh, &file, 1, 0), Ok(Ok(())));
    assert_eq!(st.files.nlm_share((b, ADDR), &oh, &file, 2, 0), Ok(Ok(())));
    st.files.nlm_share_back((a, ADDR), &oh, &file, before);
    assert_eq!(st.files.nlm_shared(a, &oh, &file), Some((1, 0)));
    st.files.nlm_share_back((a, ADDR), &oh, &file, None);
    assert_eq!(st.files.nlm_shared(a, &oh, &file), None);
}

#[test]
fn a_restart_that_is_reported_again_frees_nothing() {
    let mut st = state();
    let a = host(&mut st, b"a.example");
    assert_eq!(st.files.nlm_lock(&ask(a, 1, 0, 0, 1)), Ok(()));
    st.nlm_restarted((ADDR, b"a.example"), 5, vec![a], 0);
    assert!(st.hosts.get(a).is_none());
    let a = host(&mut st, b"a.example");
    st.nlm_asks_in(a, Some(3), 0);
    assert_eq!(st.files.nlm_lock(&ask(a, 1, 0, 0, 1)), Ok(()));
    st.nlm_restarted((ADDR, b"A"), 5, vec![a], 0);
    assert!(st.hosts.get(a).is_some(), "the same report");
    st.nlm_restarted((ADDR, b"A"), 7, vec![a], 0);
    assert!(st.hosts.get(a).is_none(), "the next one");
    // What was asked for in that state; not if something was asked for before.
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    st.nlm_asks_in(b, Some(7), 0);
    assert_eq!(st.files.nlm_lock(&ask(b, 1, 0, 1, 1)), Ok(()));
    for id in [a, b] {
        st.nlm_asks_in(id, Some(9), 0);
        assert_eq!(st.files.nlm_lock(&ask(id, 1, 0, id, 1)), Ok(()));
    }
    st.nlm_restarted((ADDR, b"a"), 9, vec![a], 0);
    st.nlm_restarted((ADDR, b"b"), 9, vec![b], 0);
    assert!(st.hosts.get(a).is_some() && st.hosts.get(b).is_none());
    // At another address, which is not told from it when it comes again.
    st.nlm_restarted((OTHER, b"a"), 11, vec![a], 0);
    assert!(st.hosts.get(a).is_none());
    let a = host(&mut st, b"a");
    st.nlm_restarted((ADDR, b"a"), 11, vec![a], 0);
    assert!(st.hosts.get(a).is_some());
    // A machine whose disk is as it was reports the same state at each start.
    st.nlm_asks_in(a, Some(11), 0);
    st.nlm_restarted((ADDR, b"a"), 11, vec![a], limits::NSM_REPEATED_MS);
    assert!(st.hosts.get(a).is_none());
}

/// A grant that is taken back takes nothing of what its owner has got elsewhere meanwhile.
#[test]
fn what_was_got_beside_a_grant_stays_as_it_is() {
    let mut st = state();
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    let middle = |host| ask(host, 1, 0, 50, 10);
    assert_eq!(st.files.nlm_lock(&middle(b)), Ok(()));
    let told = granted(&mut st, &shared(middle(a)), &middle(b));
    assert_eq!(st.files.nlm_lock(&shared(ask(a, 1, 0, 0, 100))), Ok(()));
    assert_eq!(st.files.nlm_lock(&ask(a, 1, 0, 0, 10)), Ok(()));
    st.files.nlm_refused(|_| true, told);
    assert!(
        matches!(st.files.nlm_lock(&shared(ask(b, 1, 0, 0, 10))), Err(LockError::Denied(_))),
        "it is exclusive"
    );
    assert_eq!(st.files.nlm_lock(&shared(middle(b))), Ok(()));
    assert!(matches!(st.files.nlm_lock(&middle(b)), Err(LockError::Denied(_))), "it is shared");
}

#[test]
fn what_is_remembered_of_reports_is_bounded() {
    let mut reported = hosts::Reported::default();
    assert!(!reported.hears(OTHER, b"other", 1, 0));
    for n in 0..100u32 {
        assert!(!reported.hears(ADDR, &n.to_be_bytes(), 1, 0));
    }
    assert_eq!(reported.len(), limits::NSM_STATES_PER_ADDRESS_MAX + 1);
    assert!(reported.hears(ADDR, &99u32.to_be_bytes(), 1, 0) && reported.hears(OTHER, b"other", 1, 0));
    for n in 0..limits::NSM_STATES_MAX as u32 {
        reported.hears(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)), b"x", 1, 0);
    }
    assert_eq!(reported.len(), limits::NSM_STATES_MAX);
}

#[test]
fn hosts_are_bounded_and_those_that_hold_something_stay() {
    let mut st = State::<u32>::new(1, 90_000, Bounds { nlm_hosts: 2, ..Bounds::new(None) });
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    assert_eq!(st.files.nlm_lock(&ask(a, 1, 0, 0, 1)), Ok(()));
    let c = host(&mut st, b"c");
    assert!(st.hosts.get(a).is_some() && st.hosts.get(b).is_none() && a != c && b != c);
    assert_eq!(st.files.nlm_lock(&ask(c, 1, 0, 1, 1)), Ok(()));
    assert_eq!(st.nlm_host(ADDR, &Bytes::from_static(b"d"), 0).map(|h| h.0), Err(NfsStat::NFS4ERR_NOSPC));
}

fn named(st: &mut S, addr: IpAddr, n: u32) -> Result<u64, NfsStat> {
    st.nlm_host(addr, &Bytes::copy_from_slice(&n.to_be_bytes()), u64::from(n)).map(|(id, _)| id)
}

const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const THIRD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3));

#[test]
fn an_address_whose_hosts_all_hold_something_keeps_nobody_out() {
    let mut st = State::<u32>::new(1, 90_000, Bounds { nlm_hosts: 64, ..Bounds::new(None) });
    let idle = named(&mut st, OTHER, 0).expect("a host");
    let mut greedy = 0;
    for n in 1..100 {
        let Ok(id) = named(&mut st, ADDR, n) else { continue };
        assert_eq!(st.files.nlm_lock(&ask(id, 1, n, 0, 1)), Ok(()));
        greedy += 1;
    }
    assert_eq!(greedy, 64 - 64 / limits::CLIENTS_KEPT_DIVISOR - 1);
    assert!(st.hosts.get(idle).is_some(), "its address has one");
    for n in 100..103 {
        named(&mut st, THIRD, n).expect("a newcomer's");
    }
}

#[test]
fn an_address_with_many_hosts_leaves_locks_waits_and_shares_to_others() {
    let limits = Limits::default().with(Limit::Locks, 64).with(Limit::Opens, 64);
    let mut st = State::<u32>::new(1, 90_000, Bounds::with(None, limits));
    let file = |n: u32| Bytes::copy_from_slice(&n.to_be_bytes());
    // Ranges, each of another host's.
    let locked = (0..64).filter(|n| {
        let id = named(&mut st, ADDR, *n).expect("a host");
        st.files.nlm_lock(&ask(id, 1, 0, u64::from(2 * n), 1)).is_ok()
    });
    assert_eq!(locked.count(), 32);
    let other = named(&mut st, OTHER, 0).expect("a host");
    assert_eq!(st.files.nlm_lock(&LockRequest { from: OTHER, ..ask(other, 1, 0, 1000, 1) }), Ok(()));
    // Share reservations.
    let shared = (0..64).filter(|n| {
        let id = named(&mut st, ADDR, *n).expect("a host");
        st.files.nlm_share((id, ADDR), &file(*n), &file(*n), 1, 0).is_ok_and(|shared| shared.is_ok())
    });
    assert_eq!(shared.count(), 32);
    assert_eq!(st.files.nlm_share((other, OTHER), &file(1), &file(1), 1, 0), Ok(Ok(())));
    assert_eq!(
        st.files.refusals.due(0),
        [
            ("what one address may have of limits.opens", 32),
            ("what one address may have of limits.locks", 32)
        ]
    );
}

#[test]
fn an_address_with_many_waiting_requests_leaves_room_to_others() {
    let mut st = state();
    let mut waiting = 0;
    for n in 0..20 {
        let id = named(&mut st, ADDR, n).expect("a host");
        for i in 0..limits::NLM_WAITERS_PER_HOST_MAX as u64 {
            waiting += usize::from(wait(&mut st, ask(id, 1, n, i, 1)).is_ok());
        }
    }
    assert_eq!(waiting, limits::NLM_WAITERS_MAX / 2);
    let other = named(&mut st, OTHER, 0).expect("a host");
    wait(&mut st, LockRequest { from: OTHER, ..ask(other, 1, 100, 0, 1) }).expect("waits");
}

#[test]
fn names_of_a_host() {
    let mut st = state();
    let a = host(&mut st, b"Web.example.org");
    for (name, same) in [
        (&b"web"[..], true),
        (b"WEB.other", true),
        (b"192.0.2.1", true),
        (b"192.0.2.2", false),
        (b"web2", false),
        (b"", false),
    ] {
        let host = st.hosts.get(a).expect("a host");
        assert_eq!(host.is_called(name, ADDR), same, "{name:?}");
    }
    // As an address it is nobody's but the one who calls from there.
    let other = IpAddr::from([192, 0, 2, 2]);
    assert!(!st.hosts.get(a).expect("a host").is_called(b"192.0.2.1", other));
    assert!(!st.hosts.get(a).expect("a host").is_called(b"192.0.2.2", other));
}

#[test]
fn what_the_log_keeps_of_hosts() {
    let mut st = state();
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    assert_eq!(st.files.nlm_lock(&ask(a, 1, 0, 0, 1)), Ok(()));
    let note = st.nlm_note(a).expect("a note");
    assert!(st.nlm_note(a).is_some(), "until it is stable");
    st.nlm_is_noted(a);
    assert!(st.nlm_note(a).is_none());
    let old = st.nlm_note(b).expect("a note");
    let gone = st.nlm_free(b).expect("a note");
    // Whatever the order: b is gone.
    let mut again = state();
    let restored = again.restore([gone.clone(), note, old], 0);
    assert_eq!(restored.reclaiming, 1);
    assert!(!again.grace.waits_for_nfs4(0));
    assert!(again.grace.active(0) && again.nlm_to_notify().iter().map(|h| h.id).eq([a]));
    assert_eq!(again.snapshot().len(), 1);
    // Who has not reclaimed by the end of the grace period may not after the next restart; who locks again may.
    let mut late = state();
    late.restore(again.snapshot(), 0);
    let notes = late.end_grace(90_000).expect("it is over");
    assert_eq!(state().restore(notes, 0).reclaiming, 0);
    assert!(late.hosts.get(a).is_some_and(|h| !h.restored) && late.nlm_note(a).is_some());
    assert_eq!(state().restore(late.snapshot(), 0).reclaiming, 1);
    // A clean stop forgets who holds nothing.
    again.settle_holders();
    assert_eq!(state().restore(again.snapshot(), 0).reclaiming, 0);
}

/// Its export is served no more.
#[test]
fn locks_and_waiters_end_with_their_files() {
    let mut st = state();
    let (a, b) = (host(&mut st, b"a"), host(&mut st, b"b"));
    for file in [1, 2] {
        assert_eq!(st.files.nlm_lock(&ask(a, 1, file, 0, 10)), Ok(()));
        st.files.nlm_wait(ask(b, 1, file, 0, 10), wire(), BY).expect("it waits");
    }
    let first = ask(a, 1, 1, 0, 10).file;
    drop(st.remove_files(|file| *file == first));
    assert!(!st.files.waiters.any_of_file(&first) && !st.files.waiters.any_freed());
    assert_eq!(st.files.nlm_lock(&ask(b, 2, 1, 0, 10)), Ok(()), "it is free");
    assert!(matches!(st.files.nlm_lock(&ask(b, 2, 2, 0, 10)), Err(LockError::Denied(_))), "the other is not");
    assert!(st.files.nlm_busy(a));
    drop(st.remove_files(|_| true));
    assert!(!st.files.nlm_busy(a) && !st.files.nlm_busy(b));
}
