//! Room for what sessions keep: many clients on the default log, greedy ones beside others, dead ones, and which replies may go.

use super::clients::ExchangeId;
use super::identity::Requester;
use super::sessions::{Begin, CachedReply, NewSession, SlotUse};
use super::*;
use bytes::Bytes;
use landfast_nfs::v4::ChannelAttrs;
use landfast_nfs::v4::{NfsStat, SessionId};
use proptest::prelude::*;
use std::collections::HashSet;
use std::net::IpAddr;

const LEASE: Millis = 90_000;
const ROOT: Principal = Principal { flavor: 1, uid: 0 };
/// The log of a server that nobody has configured, without its head.
const LOG: u64 = (256 << 20) - (64 << 10);
type S = State<u32>;

fn address(n: usize) -> IpAddr {
    IpAddr::from([10, 0, (n >> 8) as u8, n as u8])
}

/// What Linux asks for.
fn linux() -> ChannelAttrs {
    ChannelAttrs {
        header_pad_size: 0,
        max_request_size: 1 << 20,
        max_response_size: 1 << 20,
        max_response_size_cached: 7584,
        max_operations: 8,
        max_requests: 64,
        rdma_ird: Vec::new(),
    }
}

/// A client that asks for a session like this.
fn mounts(st: &mut S, n: usize, addr: IpAddr, now: Millis, ask: &ChannelAttrs) -> Result<SessionId, NfsStat> {
    let owner = Bytes::from(format!("Linux NFSv4.2 client {n}"));
    let by = Requester { principal: ROOT, addr };
    let ask_id = ExchangeId { owner, verifier: [1; 8], by, update: false };
    let client = st.exchange_id(now, &ask_id).expect("a client ID").client;
    let (fore, _) = st.room_for_session(now, ask, addr)?;
    let v = st.next_version();
    st.clients.created(
        client,
        now,
        Bytes::from_static(b"a CREATE_SESSION reply of about a hundred bytes"),
        v,
    );
    let mut id = [0; 16];
    id[..8].copy_from_slice(&client.to_be_bytes());
    let back = ChannelAttrs::default();
    let new = NewSession { id, client, fore, back, callback_program: 0, flags: 0, callback_cred: None };
    let v = st.next_version();
    st.sessions.insert(new, v, now);
    st.sessions.get_mut(&id).expect("it").used_from(addr);
    Ok(id)
}

fn ask(slot: u32, sequence: u32, highest: u32) -> SlotUse {
    SlotUse { slot, sequence, highest, fingerprint: u64::from(sequence), solo: false }
}

/// A request with a reply of so many bytes; the highest slot that its client is to use from then on.
fn request(st: &mut S, id: &SessionId, ask: &SlotUse, reply: usize) -> Result<u32, NfsStat> {
    let v = st.next_version();
    let mut s = st.sessions.get_mut(id).expect("the session");
    assert_eq!(s.begin(0, ask, true, || Ok(()))?, Begin::New);
    s.stage(ask.slot, CachedReply::Reply(vec![7; reply].into()), v, None);
    s.release(ask.slot);
    Ok(s.target_slot())
}

fn snapshot_bytes(st: &S) -> u64 {
    st.snapshot().iter().map(|n| n.to_bytes().len() as u64).sum()
}

#[test]
fn four_thousand_linux_clients_on_the_default_log() {
    const CLIENTS: usize = 4096;
    let bounds = Bounds::new(Some(LOG));
    let mut st: S = State::new(1, LEASE, bounds);
    assert!(bounds.clients >= CLIENTS);
    let mut sessions = Vec::new();
    for n in 0..CLIENTS {
        let id = mounts(&mut st, n, address(n), 0, &linux()).expect("a session");
        let fore = &st.sessions.get(&id).expect("it").fore;
        assert_eq!((fore.max_requests, fore.max_response_size_cached), (64, 7584), "client {n}");
        sessions.push((id, [0u32; 64], 63u32));
    }
    // Each is busy once, on as many slots as it is told to use, and then renews its lease.
    let (mut used_by_first, mut used_by_last) = (0, 0);
    for (n, (id, sequences, target)) in sessions.iter_mut().enumerate() {
        for slot in 0..64u32 {
            if slot > *target {
                break;
            }
            sequences[slot as usize] += 1;
            *target = request(&mut st, id, &ask(slot, sequences[slot as usize], slot), 400).expect("room");
            if n == 0 {
                used_by_first += 1
            } else if n == CLIENTS - 1 {
                used_by_last += 1
            }
        }
        let (reserved, bound) = st.sessions.reserved();
        assert!(reserved <= bound, "client {n}: {reserved} of {bound}");
    }
    assert!(used_by_first == 64 && used_by_last >= 1, "{used_by_first} and {used_by_last} slots");
    for (id, sequences, target) in &mut sessions {
        for _ in 0..2 {
            sequences[0] += 1;
            *target = request(&mut st, id, &ask(0, sequences[0], 0), 200).expect("the first slot has room");
        }
    }
    // Those that were busy have their replies, and say so: there is room for more again.
    let spread = sessions.iter().map(|(_, _, target)| *target).min().expect("some");
    assert!(spread >= 1, "{:?}", st.sessions.reserved());
    assert!(snapshot_bytes(&st) < LOG / 4, "{} bytes", snapshot_bytes(&st));
    // All of it stands in the log.
    let notes = st.snapshot();
    let mut again: S = State::new(2, LEASE, bounds);
    assert_eq!(again.restore(notes, 0).sessions, CLIENTS);
    for (n, (id, sequences, _)) in sessions.iter().enumerate() {
        again.sessions.get_mut(id).expect("it").used_from(address(n));
        request(&mut again, id, &ask(0, sequences[0] + 1, 0), 400).expect("served after the restart");
    }
    // And one more comes.
    assert!(mounts(&mut again, CLIENTS, address(CLIENTS), 0, &linux()).is_ok());
}

#[test]
fn who_asks_for_all_leaves_room_for_others() {
    let mut st: S = State::new(1, LEASE, Bounds::new(Some(LOG)));
    let greedy = ChannelAttrs { max_response_size_cached: u32::MAX, max_requests: u32::MAX, ..linux() };
    // One address, as many clients and sessions as it gets, each slot with the largest reply that it may keep.
    let mut made = 0;
    while let Ok(id) = mounts(&mut st, made, address(1), 0, &greedy) {
        made += 1;
        let fore = st.sessions.get(&id).expect("it").fore.clone();
        for slot in 0..fore.max_requests {
            let reply = fore.max_response_size_cached as usize;
            match request(&mut st, &id, &ask(slot, 1, slot), reply) {
                Ok(_) => {}
                Err(e) => {
                    assert_eq!(e, NfsStat::NFS4ERR_DELAY);
                    break;
                }
            }
        }
    }
    assert!(made >= 2, "{made}");
    for n in 0..200 {
        let id = mounts(&mut st, 10_000 + n, address(100 + n), 0, &linux()).expect("a session");
        assert_eq!(st.sessions.get(&id).expect("it").fore.max_requests, 64);
        for slot in 0..8 {
            request(&mut st, &id, &ask(slot, 1, slot), 400).expect("room");
        }
    }
    let (reserved, bound) = st.sessions.reserved();
    assert!(reserved <= bound);
}

#[test]
fn whose_lease_is_over_makes_room_for_whoever_asks() {
    let mut st: S = State::new(1, LEASE, Bounds::new(Some(8 << 20)));
    let mut first = None;
    let mut n = 0;
    let full = loop {
        match mounts(&mut st, n, address(n), n as u64, &linux()) {
            Ok(id) => drop(first.get_or_insert(id)),
            Err(e) => break e,
        }
        n += 1;
    };
    assert_eq!(full, NfsStat::NFS4ERR_DELAY, "to be tried again");
    let first = first.expect("one");
    assert!(st.sessions.get(&first).is_some());
    // The lease of the first is over; the others go on.
    let now = LEASE + 10;
    for id in st.clients.ids() {
        if st.clients.get(id).is_some_and(|c| c.renewed > 0) {
            st.clients.renew(id, now);
        }
    }
    mounts(&mut st, n, address(n), now, &linux()).expect("in the place of the first");
    assert!(st.sessions.get(&first).is_none());
    assert_eq!(st.sessions.len(), n);
    assert_eq!(mounts(&mut st, n + 1, address(n + 1), now, &linux()), Err(NfsStat::NFS4ERR_DELAY));
}

/// What a client knows of a slot.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    sequence: u32,
    outstanding: bool,
    /// On its way to the server, with the highest slot in use when it was sent.
    on_its_way: Option<u32>,
    /// The server has answered, and the answer has not come.
    answered: bool,
}

proptest! {
    /// Requests on different slots overtake each other, replies come late: whatever has not come yet is sent again.
    #[test]
    fn only_replies_that_have_come_are_forgotten(
        steps in prop::collection::vec((0u8..4, 0usize..6), 1..200),
    ) {
        let mut st: S = State::new(1, LEASE, Bounds { reply_bytes: 40_000, ..Bounds::new(None) });
        let channel = ChannelAttrs { max_response_size_cached: 2000, max_requests: 6, ..linux() };
        let id = mounts(&mut st, 0, address(0), 0, &channel).expect("a session");
        // Others have more than half, so that room is short.
        for n in 1..9 {
            mounts(&mut st, n, address(n), 0, &channel).expect("a session");
        }
        let (used, all) = st.sessions.reserved();
        prop_assert!(used > all / 2);
        let mut slots = [Sent::default(); 6];
        for (what, slot) in steps {
            let in_use = slots.iter().rposition(|s| s.outstanding);
            let s = &mut slots[slot];
            match what {
                0 if !s.outstanding => {
                    let highest = in_use.unwrap_or(0).max(slot) as u32;
                    *s = Sent { sequence: s.sequence + 1, outstanding: true, on_its_way: Some(highest), answered: false };
                }
                1 | 2 => if let Some(highest) = s.on_its_way {
                    let ask = ask(slot as u32, s.sequence, highest);
                    if request(&mut st, &id, &ask, 300).is_ok() {
                        (s.on_its_way, s.answered) = (None, true);
                    }
                },
                _ if s.answered => (s.outstanding, s.answered) = (false, false),
                _ => {}
            }
            // Whoever waits for an answer gets it again.
            for (slot, s) in slots.iter().enumerate().filter(|(_, s)| s.answered) {
                let again = st.sessions.get_mut(&id).expect("it").begin(0, &ask(slot as u32, s.sequence, 5), true, || Ok(()));
                prop_assert!(matches!(again, Ok(Begin::Replay(_))), "{slot}: {again:?} {slots:?}");
            }
            let (used, all) = st.sessions.reserved();
            prop_assert!(used <= all);
        }
    }
}

/// Whoever waits for the state waits for one part of a snapshot, and no part copies what is kept.
#[test]
fn a_snapshot_is_taken_in_parts_that_share_what_is_kept() {
    let mut st: S = State::new(1, LEASE, Bounds::new(Some(LOG)));
    let mut sessions = Vec::new();
    for n in 0..200 {
        let id = mounts(&mut st, n, address(n), 0, &linux()).expect("a session");
        for slot in 0..32 {
            request(&mut st, &id, &ask(slot, 1, slot), 4096).expect("room");
        }
        sessions.push(id);
    }
    let kept_at = |reply: &Option<notes::KeptBytes>| reply.as_ref().map(|kept| kept.0.as_ptr());
    let mut kept: HashSet<_> = HashSet::new();
    for s in st.sessions.iter() {
        kept.extend(s.slot_notes(0, None).map(|(_, note)| kept_at(&note.reply)));
    }
    let mut snapshot = st.begin_snapshot(Some([1; 16]));
    let (mut parts, mut replies) = (0, 0);
    let mut all = Vec::new();
    let most = snapshot::PartMax { notes: crate::limits::SNAPSHOT_PART, bytes: 1 << 20 };
    while !snapshot.is_over() {
        let part = st.snapshot_part(&mut snapshot, most);
        // What is one more may be a client's second note, or the bytes of one reply.
        assert!(part.len() <= 2 * most.notes, "{}", part.len());
        let bytes: usize = part.iter().map(notes::Stamped::reply_bytes).sum();
        assert!(bytes < most.bytes + 4096, "{bytes}");
        for note in &part {
            if let notes::Note::Slot(slot) = &note.note {
                assert!(kept.contains(&kept_at(&slot.reply)), "a reply was copied");
                replies += 1;
            }
        }
        parts += 1;
        all.extend(part);
    }
    assert!(parts >= 200 * 32 * 4096 / most.bytes && replies == 200 * 32, "{parts} parts");
    assert_eq!(all.len() + 2, st.snapshot_in([1; 16], [2; 16], 3).len());
}

/// What comes and goes between two parts: the mark does not call what is new gone, and what went is said by its own note.
#[test]
fn what_changes_between_two_parts_of_a_snapshot_is_not_lost() {
    let mut st: S = State::new(1, LEASE, Bounds::new(Some(LOG)));
    let first = mounts(&mut st, 0, address(0), 0, &linux()).expect("a session");
    let mut snapshot = st.begin_snapshot(Some([1; 16]));
    let mut log = vec![snapshot.begins()];
    let late = mounts(&mut st, 1, address(1), 0, &linux()).expect("a session");
    let late_notes: Vec<_> = {
        let client = st.sessions.get(&late).expect("it").client;
        let c = st.clients.get(client).expect("it").notes();
        c.into_iter().chain(st.sessions.get(&late).expect("it").notes()).collect()
    };
    while !snapshot.is_over() {
        log.extend(st.snapshot_part(&mut snapshot, snapshot::PartMax { notes: 1, bytes: 1 }));
    }
    log.push(snapshot.ends([2; 16], 1));
    let gone = st.remove_session(&first).expect("it was there");
    log.extend(late_notes);
    log.push(gone);
    let merged = merge::merge(&[log]);
    let mut again: S = State::new(2, LEASE, Bounds::new(Some(LOG)));
    assert_eq!(again.restore(merged.notes, 0).sessions, 1);
    assert!(again.sessions.get(&late).is_some() && again.sessions.get(&first).is_none());
}
