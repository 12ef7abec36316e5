//! Who may speak for a client: an honest one that moves, and attackers who know all that is no secret (names, verifiers, client
//! IDs, numbers) and do all that they can.

use super::clients::{Callback, CreateSession, ExchangeId, Exchanged, SetClientId};
use super::identity::Requester;
use super::locks::{Locker, Span};
use super::opens::{BOTH, FileKey};
use super::sessions::NewSession;
use super::*;
use crate::limited::{Limit, Limits};
use crate::limits;
use crate::limits::CLIENT_ADDRESSES_MAX;
use bytes::Bytes;
use landfast_nfs::v4::{ChannelAttrs, LockType};
use landfast_nfs::v4::{NfsStat, SessionId};
use proptest::prelude::*;
use std::net::IpAddr;

const LEASE: Millis = 90_000;
const ROOT: Principal = Principal { flavor: 1, uid: 0 };
const USER: Principal = Principal { flavor: 1, uid: 1000 };
const NAME: Bytes = Bytes::from_static(b"Linux NFSv4.2 client.example");
const OWNER: Bytes = Bytes::from_static(b"owner");
const F: FileKey = Bytes::from_static(b"f");
const SECRET: SessionId = [0xee; 16];
type S = State<u32>;

fn host(n: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, n])
}

fn root(n: u8) -> Requester {
    Requester { principal: ROOT, addr: host(n) }
}

fn fresh() -> S {
    State::new(1, LEASE, Bounds::new(None))
}

fn exchange(st: &mut S, now: Millis, by: Requester, verifier: u8) -> Result<Exchanged, NfsStat> {
    exchange_as(st, now, by, verifier, false)
}

fn exchange_as(
    st: &mut S,
    now: Millis,
    by: Requester,
    verifier: u8,
    update: bool,
) -> Result<Exchanged, NfsStat> {
    let ask = ExchangeId { owner: NAME, verifier: [verifier; 8], by, update };
    let found = st.exchange_id(now, &ask)?;
    if let Some(old) = found.replaced {
        st.remove_client(old);
    }
    Ok(found)
}

fn channel() -> ChannelAttrs {
    ChannelAttrs {
        header_pad_size: 0,
        max_request_size: 1 << 20,
        max_response_size: 1 << 20,
        max_response_size_cached: 4096,
        max_operations: 64,
        max_requests: 2,
        rdma_ird: Vec::new(),
    }
}

/// As the shell does it. A replay shows the name of a session.
fn create_session(
    st: &mut S,
    now: Millis,
    by: Requester,
    (client, sequence): (u64, u32),
    name: SessionId,
) -> Result<Option<Bytes>, NfsStat> {
    if let CreateSession::Replay(reply) = st.clients.check_create_session(client, sequence, by)? {
        return Ok(Some(reply));
    }
    if let Some(old) = st.sessions.to_evict(client) {
        st.remove_session(&old);
    }
    let v = st.next_version();
    if let Some(old) = st.clients.created(client, now, Bytes::copy_from_slice(&name), v) {
        st.succeed_client(now, client, old);
    }
    let v = st.next_version();
    let (fore, back, callback_cred) = (channel(), channel(), None);
    let new = NewSession { id: name, client, fore, back, callback_program: 1, callback_cred, flags: 0 };
    st.sessions.insert(new, v, now);
    Ok(None)
}

fn open_and_lock(st: &mut S, client: u64) {
    let opened = st.files.open(&F, client, &OWNER, BOTH, 0, Some(1)).expect("an open");
    let locker = Locker::New { open: opened, owner: OWNER };
    let span = Span::new(0, 10).expect("a span");
    st.files.lock(client, &F, &locker, LockType::Write, span).expect("a lock");
}

/// The client at 192.0.2.1 with a session, an open and a lock.
fn holder(st: &mut S) -> u64 {
    let client = exchange(st, 0, root(1), 1).expect("a client ID").client;
    assert_eq!(create_session(st, 0, root(1), (client, 1), SECRET), Ok(None));
    open_and_lock(st, client);
    client
}

fn holds(st: &S, client: u64) -> bool {
    let locked = st.files.lock_test(0, &F, &OWNER, false, Span::new(3, 1).expect("a span"));
    st.files.opens_of(client) == 1 && locked.is_some_and(|d| d.client == client)
}

#[test]
fn hosts_of_one_name_are_two_clients_and_neither_ends_the_other() {
    let mut st = fresh();
    let a = holder(&mut st);
    // Another verifier, as after a restart; the same, as of the same instance; and the machine next door has the name, too.
    for verifier in [2, 1] {
        let b = exchange(&mut st, 1, root(2), verifier).expect("a client of its own");
        assert!(b.client != a && !b.confirmed);
        assert_eq!(create_session(&mut st, 1, root(2), (b.client, 1), [verifier; 16]), Ok(None));
        assert!(holds(&st, a) && st.sessions.get(&SECRET).is_some());
    }
    // Each finds its own again, and each restarts for itself.
    assert_eq!(exchange(&mut st, 2, root(1), 1).map(|e| (e.client, e.confirmed)), Ok((a, true)));
    let again = exchange(&mut st, 2, root(1), 9).expect("restarted").client;
    assert_eq!(create_session(&mut st, 2, root(1), (again, 1), [9; 16]), Ok(None));
    assert!(st.clients.get(a).is_none() && st.files.is_empty());
    assert_eq!(st.clients.len(), 2, "the other stays");
}

#[test]
fn a_client_goes_on_from_another_address_with_its_session() {
    let mut st = fresh();
    let a = holder(&mut st);
    assert_eq!(st.may_end_session(&SECRET, root(2)), Err(NfsStat::NFS4ERR_BADSESSION));
    assert_eq!(st.may_end_client(a, root(2)), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
    let next = |st: &S| st.clients.check_create_session(a, 2, root(2));
    assert_eq!(next(&st), Err(NfsStat::NFS4ERR_STALE_CLIENTID));
    // It has the session's name, which nobody else was told.
    assert_eq!(st.heard_on(&SECRET, host(2)), Ok(a));
    assert_eq!(next(&st), Ok(CreateSession::New));
    assert_eq!(st.may_end_session(&SECRET, root(2)), Ok(a));
    let user = Requester { principal: USER, ..root(2) };
    assert_eq!(st.may_end_session(&SECRET, user), Err(NfsStat::NFS4ERR_WRONG_CRED));
    assert_eq!(st.binds(&SECRET, user), Err(NfsStat::NFS4ERR_BADSESSION));
    // There it restarts, too.
    let again = exchange(&mut st, 1, root(2), 2).expect("restarted").client;
    assert_eq!(create_session(&mut st, 1, root(2), (again, 1), [2; 16]), Ok(None));
    assert!(st.clients.get(a).is_none());
}

#[test]
fn a_client_that_comes_back_elsewhere_waits_a_lease_at_most_for_what_it_held() {
    let mut st = fresh();
    let a = holder(&mut st);
    let b = exchange(&mut st, 1, root(2), 2).expect("at once").client;
    assert_eq!(create_session(&mut st, 1, root(2), (b, 1), [2; 16]), Ok(None));
    assert!(holds(&st, a) && !st.lapsed(a, LEASE));
    // Whoever is in the way then gives way (the shell removes it).
    assert!(st.lapsed(a, LEASE + 1));
}

#[test]
fn addresses_are_few_and_stand_in_the_log() {
    let mut st = fresh();
    let a = holder(&mut st);
    for n in 2..2 + CLIENT_ADDRESSES_MAX as u8 {
        st.heard_on(&SECRET, host(n)).expect("its session");
    }
    let addrs = st.clients.get(a).expect("the client").addrs.clone();
    assert_eq!(addrs.all().len(), CLIENT_ADDRESSES_MAX);
    assert!(!addrs.has(host(1)) && addrs.has(host(2)));
    let notes = st.snapshot();
    let mut st = State::<u32>::new(2, LEASE, Bounds::new(None));
    st.restore(notes.clone(), 0);
    assert_eq!(st.clients.get(a).expect("the client").addrs, addrs);
    assert_eq!(st.may_end_session(&SECRET, root(1)), Err(NfsStat::NFS4ERR_BADSESSION));
    // A version before this one wrote no addresses: such a client is the one that comes first.
    let mut st = State::<u32>::new(2, LEASE, Bounds::new(None));
    st.restore(notes.into_iter().filter(|s| !matches!(s.note, notes::Note::Addrs(_))), 0);
    assert_eq!(st.heard_on(&SECRET, host(7)), Ok(a));
    assert_eq!(st.may_end_session(&SECRET, root(8)), Err(NfsStat::NFS4ERR_BADSESSION));
}

#[test]
fn after_a_restart_only_its_host_inherits_the_right_to_reclaim() {
    let mut st = fresh();
    let a = holder(&mut st);
    st.note_holding(a).expect("a note");
    let notes = st.snapshot();
    let mut st = State::<u32>::new(2, LEASE, Bounds::new(None));
    assert_eq!(st.restore(notes, 0).reclaiming, 1);
    let stranger = exchange(&mut st, 1, root(2), 1).expect("a client of its own").client;
    assert_eq!(create_session(&mut st, 1, root(2), (stranger, 1), [2; 16]), Ok(None));
    assert_eq!(st.may_reclaim(stranger, 1), Err(NfsStat::NFS4ERR_RECLAIM_BAD));
    let b = exchange(&mut st, 1, root(1), 1).expect("another client ID").client;
    assert_eq!(create_session(&mut st, 1, root(1), (b, 1), [1; 16]), Ok(None));
    assert_eq!(st.may_reclaim(b, 1), Ok(()));
}

#[test]
fn at_the_limit_of_clients_who_has_most_gives_up_its_own() {
    let mut st = fresh();
    let named = |st: &mut S, n: u8, by: Requester| {
        let ask = ExchangeId { owner: Bytes::from(vec![n]), verifier: [1; 8], by, update: false };
        st.exchange_id(u64::from(n), &ask).expect("a client ID").client
    };
    let honest = named(&mut st, 0, root(1));
    assert_eq!(create_session(&mut st, 0, root(1), (honest, 1), SECRET), Ok(None));
    let crowd: Vec<_> = (1..9).map(|n| named(&mut st, n, root(2))).collect();
    for (i, id) in crowd.iter().enumerate() {
        assert_eq!(create_session(&mut st, 9, root(2), (*id, 1), [i as u8; 16]), Ok(None));
    }
    for _ in 0..crowd.len() - 1 {
        st.make_room_for_client(9, host(3)).expect("room");
        assert!(st.clients.get(honest).is_some(), "the oldest of all, and alone at its address");
    }
}

#[test]
fn an_address_whose_clients_all_hold_something_keeps_nobody_out() {
    let bounds = Limits::default().with(Limit::Clients, 64);
    let mut st = S::new(1, LEASE, Bounds::with(None, bounds));
    let named = |st: &mut S, n: u8, by: Requester| {
        let ask = ExchangeId { owner: Bytes::from(vec![n]), verifier: [1; 8], by, update: false };
        st.room_for_client(0, by.addr)?;
        st.exchange_id(0, &ask).map(|found| found.client)
    };
    let idle = named(&mut st, 0, root(1)).expect("a client ID");
    assert_eq!(create_session(&mut st, 0, root(1), (idle, 1), SECRET), Ok(None));
    let (owner, file) = (Bytes::from_static(b"o"), FileKey::from_static(b"f"));
    let mut greedy = 0;
    for n in 1..100 {
        let Ok(id) = named(&mut st, n, root(2)) else { continue };
        assert_eq!(create_session(&mut st, 0, root(2), (id, 1), [n; 16]), Ok(None));
        st.files.open(&file, id, &owner, BOTH, 0, Some(1)).expect("an open");
        greedy += 1;
    }
    assert_eq!(greedy, 64 - 64 / limits::CLIENTS_KEPT_DIVISOR - 1);
    assert!(st.clients.get(idle).is_some(), "its address has one");
    for n in 3..7 {
        named(&mut st, n, root(n)).expect("a newcomer's");
    }
}

fn set(st: &mut S, now: Millis, by: Requester, verifier: u8, confirm: u8) -> Result<u64, ()> {
    let callback = Callback::default();
    let ask = SetClientId { owner: NAME, verifier: [verifier; 8], by, callback, confirm: [confirm; 8] };
    st.set_client_id(now, ask).map(|(id, _)| id).map_err(|_| ())
}

#[test]
fn a_client_of_nfsv40_that_moves_is_heard_when_its_lease_is_over() {
    let mut st = fresh();
    let c = set(&mut st, 0, root(1), 1, 1).expect("a client ID");
    st.confirm_client_id(0, c, [1; 8], root(1)).expect("confirmed");
    st.files.open(&F, c, &OWNER, BOTH, 0, Some(1)).expect("an open");
    assert_eq!(st.speaks40(LEASE, c, host(2)), Err(NfsStat::NFS4ERR_DELAY));
    assert_eq!(st.speaks40(LEASE, c, host(1)), Ok(()), "it was there all the time");
    assert_eq!(st.speaks40(2 * LEASE, c, host(2)), Err(NfsStat::NFS4ERR_DELAY));
    assert_eq!(st.speaks40(2 * LEASE + 1, c, host(2)), Ok(()), "it is heard no more where it was");
    assert_eq!(st.files.opens_of(c), 1, "and has what it had");
    assert_eq!(st.speaks40(2 * LEASE + 2, c, host(2)), Ok(()));
}

/// What attackers do. They know all but the session's name and the verifier that confirms a client ID of NFSv4.0.
#[derive(Debug, Clone)]
enum Step {
    Exchange { verifier: u8, update: bool },
    Create { client: usize, sequence: u32 },
    EndSession { name: u8 },
    EndClient { client: usize },
    Bind { name: u8 },
    Set { verifier: u8 },
    Confirm { client: usize, confirm: u8 },
    Speak { client: usize },
    Room,
    Wait { ms: Millis },
}

fn step() -> impl Strategy<Value = (bool, u8, Step)> {
    let what = prop_oneof![
        3 => (0u8..4, any::<bool>()).prop_map(|(verifier, update)| Step::Exchange { verifier, update }),
        4 => (0usize..6, 0u32..4).prop_map(|(client, sequence)| Step::Create { client, sequence }),
        1 => (1u8..120).prop_map(|name| Step::EndSession { name }),
        2 => (0usize..6).prop_map(|client| Step::EndClient { client }),
        1 => (1u8..120).prop_map(|name| Step::Bind { name }),
        3 => (0u8..4).prop_map(|verifier| Step::Set { verifier }),
        3 => (0usize..6, 2u8..6).prop_map(|(client, confirm)| Step::Confirm { client, confirm }),
        2 => (0usize..6).prop_map(|client| Step::Speak { client }),
        1 => Just(Step::Room),
        1 => (0..LEASE).prop_map(|ms| Step::Wait { ms }),
    ];
    // Another user of the victim's machine, or anybody elsewhere.
    (any::<bool>(), 2u8..5, what)
}

proptest! {
    #[test]
    fn nobody_changes_what_another_holds(steps in proptest::collection::vec(step(), 1..120), user in any::<bool>()) {
        let mut st = fresh();
        let victim = holder(&mut st);
        let victim40 = set(&mut st, 0, root(1), 1, 1).expect("a client ID");
        st.confirm_client_id(0, victim40, [1; 8], root(1)).expect("confirmed");
        let g: FileKey = Bytes::from_static(b"g");
        st.files.open(&g, victim40, &OWNER, BOTH, 0, Some(2)).expect("an open");
        let before = |st: &S| {
            let (c, d) = (st.clients.get(victim).cloned(), st.clients.get(victim40).cloned());
            let c = c.map(|c| (c.owner, c.verifier, c.principal, c.addrs, c.confirmed, c.create_sequence));
            let d = d.map(|c| (c.owner, c.verifier, c.principal, c.addrs, c.confirmed, c.v40.map(|v| (v.confirm, v.callback))));
            (c, d, st.sessions.of_client(victim), st.files.opens_of(victim40), holds(st, victim))
        };
        let then = before(&st);
        let mut ids = vec![victim, victim40, victim + 1, 0];
        let (mut now, mut next_confirm, mut name) = (0, 2, 0_u8);
        for (same_host, n, step) in steps {
            let by = match (same_host, user) {
                (true, _) => Requester { principal: USER, addr: host(1) },
                (false, true) => Requester { principal: USER, addr: host(n) },
                (false, false) => root(n),
            };
            // The victims are alive.
            st.clients.renew(victim, now);
            st.clients.renew(victim40, now);
            let id = |i: usize| ids.get(i % ids.len()).copied().unwrap_or(victim);
            match step {
                Step::Exchange { verifier, update } => {
                    if let Ok(found) = exchange_as(&mut st, now, by, verifier, update) {
                        prop_assert!(found.client != victim, "was given the victim's client ID");
                        ids.push(found.client);
                    }
                }
                Step::Create { client, sequence } => {
                    name += 1;
                    let shown = create_session(&mut st, now, by, (id(client), sequence), [name; 16]);
                    if let Ok(Some(reply)) = shown {
                        prop_assert!(reply[..] != SECRET, "was told the victim's session");
                    }
                }
                Step::EndSession { name } => {
                    if st.may_end_session(&[name; 16], by).is_ok() {
                        st.remove_session(&[name; 16]);
                    }
                }
                Step::EndClient { client } => {
                    let client = id(client);
                    if st.may_end_client(client, by).is_ok() {
                        st.remove_client(client);
                    }
                }
                Step::Bind { name } => drop(st.binds(&[name; 16], by)),
                Step::Set { verifier } => {
                    if let Ok(id) = set(&mut st, now, by, verifier, next_confirm) {
                        ids.push(id);
                        next_confirm = 2 + (next_confirm - 1) % 4;
                    }
                }
                Step::Confirm { client, confirm } => {
                    drop(st.confirm_client_id(now, id(client), [confirm; 8], by));
                }
                Step::Speak { client } => {
                    let client = id(client);
                    let spoken = st.speaks40(now, client, by.addr);
                    prop_assert!(spoken.is_err() || client != victim40 || same_host);
                }
                Step::Room => drop(st.make_room_for_client(now, by.addr)),
                Step::Wait { ms } => now += ms,
            }
            prop_assert_eq!(before(&st), then.clone());
        }
    }
}

#[test]
fn a_client_that_is_about_to_go_is_not_served() {
    let mut st = fresh();
    let a = holder(&mut st);
    assert_eq!(st.heard_on(&SECRET, host(1)), Ok(a));
    st.clients.get_mut(a).expect("a client").leaves = true;
    assert_eq!(st.heard_on(&SECRET, host(1)), Err(NfsStat::NFS4ERR_DELAY));
    assert_eq!(st.binds(&SECRET, root(1)), Err(NfsStat::NFS4ERR_DELAY));
    st.remove_client(a);
    assert_eq!(st.heard_on(&SECRET, host(1)), Err(NfsStat::NFS4ERR_BADSESSION));
}
