//! Delegations that were given where nothing else goes into the log: whatever of the log is left after a crash, a client that was told of one goes on
//! with it or reclaims.

use super::delegations::{GivenTo, Right};
use super::notes::{Note, Stamped};
use super::opens::{READ, WRITE};
use super::snapshot::PartMax;
use super::tests_delegations::{client, file};
use super::{Bounds, Millis, State};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::Stateid;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

const LEASE: Millis = 90_000;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const FIT: usize = 1 << 30;

fn state() -> State<u32> {
    State::new(1, LEASE, Bounds::new(Some(FIT as u64)))
}

/// Gives one to the request on this slot.
fn give(st: &mut State<u32>, c: u64, f: &Bytes, slot: u32) -> Option<Stateid> {
    st.files.may_delegate(0, c, f, Right::Read).ok()?;
    let given_to = GivenTo { session: [7; 16], slot, sequence: 1, minor: 2 };
    let holder = (false, given_to, f.clone());
    st.files.delegate(c, f, Right::Read, holder, Default::default(), (HERE, None)).ok()
}

/// What a server knows that starts with these notes.
fn after(notes: impl IntoIterator<Item = Stamped>) -> State<u32> {
    let mut next: State<u32> = State::new(9, LEASE, Bounds::new(Some(FIT as u64)));
    next.restore(notes, 0);
    next
}

/// Whether a client goes on, and with this delegation.
fn goes_on(notes: impl IntoIterator<Item = Stamped>, c: u64, given: &Stateid) -> (bool, bool) {
    let next = after(notes);
    (next.clients.get(c).is_some_and(|c| !c.needs_reclaim), next.files.find(c, given).is_ok())
}

#[test]
fn the_first_of_a_client_are_in_the_log_before_they_are_answered_and_more_with_time() {
    let mut st = state();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    let mut n = 0u8;
    let mut waits = |st: &mut State<u32>, now, c| {
        n += 1;
        let given = give(st, c, &file(n), 0).expect("a delegation");
        let note = st.log_given_alone(now, c, &given);
        st.grants_are_answered(now, c, [7; 16], 0);
        note.is_some()
    };
    let at_once = limits::GRANTS_AWAITED_AT_ONCE;
    assert_eq!((0..2 * at_once).filter(|_| waits(&mut st, 50, a)).count() as u64, at_once);
    assert!(waits(&mut st, 50, b), "another client");
    assert!(!waits(&mut st, 50 + limits::GRANTS_AWAITED_EACH_MS - 1, a));
    assert!(waits(&mut st, 50 + limits::GRANTS_AWAITED_EACH_MS, a));
    assert!(!waits(&mut st, 50 + limits::GRANTS_AWAITED_EACH_MS, a));
    let long = 1_000_000;
    assert_eq!(
        (0..2 * at_once).filter(|_| waits(&mut st, long, a)).count() as u64,
        at_once,
        "no more at once"
    );
    // Who is noted to hold something waits for nothing.
    assert!(st.note_holding(b).is_none() && st.note_holding(a).is_some());
    st.holding_is_noted(a, u64::MAX);
    assert!(!waits(&mut st, 2 * long, a) && waits(&mut st, 2 * long, b));
}

#[test]
fn the_others_follow_when_their_client_was_given_none_for_a_while() {
    let mut st = state();
    let a = client(&mut st, b"a");
    let first = give(&mut st, a, &file(1), 0).expect("a delegation");
    assert_eq!(goes_on(st.snapshot(), a, &first), (true, false), "nobody was told yet");
    st.grants_are_answered(5, a, [7; 16], 0);
    assert!(st.note_holding(a).is_some());
    st.holding_is_noted(a, u64::MAX);
    let second = give(&mut st, a, &file(2), 1).expect("a delegation");
    st.grants_are_answered(9, a, [7; 16], 0);
    assert_eq!(st.settle_due(), Some(5 + limits::GRANTS_SETTLE_MS), "on another slot");
    st.grants_are_answered(9, a, [7; 16], 1);
    assert!(st.files.delegations.signals().unsettled && !st.files.delegations.signals().unsettled);
    assert_eq!(st.settle_due(), Some(9 + limits::GRANTS_SETTLE_MS));
    assert!(st.settle(8 + limits::GRANTS_SETTLE_MS).is_empty());
    // One whose request still runs is not settled, and keeps its client from holding nothing.
    let third = give(&mut st, a, &file(3), 2).expect("a delegation");
    let notes = st.settle(9 + limits::GRANTS_SETTLE_MS);
    assert!(notes.iter().all(|n| matches!(n.note, Note::Delegation(_))) && notes.len() == 2);
    assert_eq!((goes_on(st.snapshot(), a, &second), st.settle_due()), ((false, false), None));
    st.grants_are_answered(300, a, [7; 16], 2);
    let notes = st.settle(300 + limits::GRANTS_SETTLE_MS);
    assert!(matches!(notes.last().map(|n| &n.note), Some(Note::Client(c)) if !c.holds));
    for given in [first, second, third] {
        assert_eq!(goes_on(st.snapshot(), a, &given), (true, true));
    }
}

#[test]
fn where_the_log_has_no_room_the_client_reclaims() {
    let mut st: State<u32> = State::new(1, LEASE, Bounds { delegations: 1, ..Bounds::new(Some(FIT as u64)) });
    let a = client(&mut st, b"a");
    let [fits, more] = [1, 2].map(|n| give(&mut st, a, &file(n), 0).expect("a delegation"));
    assert!(st.log_given_alone(0, a, &fits).is_some() && st.log_given_alone(0, a, &more).is_none());
    st.grants_are_answered(0, a, [7; 16], 0);
    assert!(st.note_holding(a).is_some());
    st.holding_is_noted(a, u64::MAX);
    assert!(st.settle(limits::GRANTS_SETTLE_MS).is_empty());
    assert_eq!(goes_on(st.snapshot(), a, &more), (false, false));
    st.files.return_delegation(a, &file(1), &fits).expect("returned");
    st.tick(1000);
    assert_eq!(goes_on(st.snapshot(), a, &more), (true, true));
}

/// Others' requests note a delegation in the log of what they change. What says later that its client holds nothing may be in another log.
#[test]
fn what_another_request_has_noted_is_noted_once_more_before_the_client_holds_nothing_else() {
    for unlinked in [false, true] {
        let mut st = state();
        let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
        let denies =
            st.files.open(&file(2), a, &Bytes::from_static(b"o"), READ, WRITE, None).expect("an open");
        let given = give(&mut st, a, &file(1), 0).expect("a delegation");
        st.grants_are_answered(0, a, [7; 16], 0);
        let mut log = st.snapshot();
        log.extend(st.note_holding(a));
        st.holding_is_noted(a, u64::MAX);
        let other = match unlinked {
            true => st.keep_unlinked(&file(1)).expect("it is open"),
            false => st.log_beside(&file(1), Some(b)),
        };
        assert!(matches!(&other[..], [Stamped { note: Note::Delegation(_), .. }]));
        st.files.close(a, &file(2), &denies).expect("closed");
        log.extend(st.tick(0));
        assert_eq!(goes_on(log, a, &given), (true, true), "{unlinked}");
    }
}

/// What happens in the model.
#[derive(Debug, Clone)]
enum Move {
    /// A request on this slot is given a delegation, after so many others that it makes no room for in time.
    Give(usize, u8, u32),
    /// The request on this slot ends.
    End(u32),
    /// So many hundredths of what was written and is not durable are now.
    Flush(usize),
    Return(usize, u8),
    /// Opens a file so that others may not, or closes it.
    Deny(usize),
    Settle,
    Tick,
    Later(Millis),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (0..2usize, 0..20u8, 0..3u32).prop_map(|(c, f, s)| Move::Give(c, f, s)),
        6 => (0..3u32).prop_map(Move::End),
        3 => (0..=150usize).prop_map(|part| Move::Flush(part.min(100))),
        2 => (0..2usize, 0..20u8).prop_map(|(c, f)| Move::Return(c, f)),
        1 => (0..2usize).prop_map(Move::Deny),
        4 => Just(Move::Settle),
        1 => Just(Move::Tick),
        3 => (1..200u64).prop_map(Move::Later),
    ];
    proptest::collection::vec(one, 1..120)
}

/// A request with what it was given.
struct Asked {
    client: usize,
    /// It has written something.
    wrote: bool,
    files: Vec<(u8, Stateid)>,
}

/// A reply that leaves when the log is durable up to there.
struct Reply {
    after: usize,
    client: usize,
    /// The version of its note that the client holds something.
    notes_holding: Option<u64>,
    files: Vec<(u8, Stateid)>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The log is one sequence of notes. Replies leave when it is durable up to what they wait for. After a crash any number of the notes behind that
    /// may be left.
    #[test]
    fn whatever_is_left_of_the_log_no_delegation_is_forgotten(all in moves()) {
        let mut st = state();
        let clients = [client(&mut st, b"a"), client(&mut st, b"b")];
        let (mut log, mut durable, mut now) = (st.snapshot(), 0, 0);
        let mut asked: Vec<Option<Asked>> = vec![None, None, None];
        let mut replies: Vec<Reply> = Vec::new();
        let mut held: Vec<(usize, u8, Stateid)> = Vec::new();
        let mut denying = [None, None];
        durable += log.len();
        // An allowance that is used up soon.
        for c in clients {
            for _ in 0..limits::GRANTS_AWAITED_AT_ONCE - 2 {
                st.files.delegations.grants.waits(now, c);
            }
        }
        for one in all {
            match one {
                Move::Give(c, f, slot) => {
                    let of_slot = asked[slot as usize].get_or_insert(Asked { client: c, wrote: false, files: Vec::new() });
                    if of_slot.client == c && let Some(given) = give(&mut st, clients[c], &file(f), slot) {
                        let note = st.log_given_alone(now, clients[c], &given);
                        of_slot.wrote |= note.is_some();
                        log.extend(note);
                        of_slot.files.push((f, given));
                    }
                }
                Move::End(slot) => {
                    let Some(ends) = asked[slot as usize].take() else { continue };
                    let c = clients[ends.client];
                    st.grants_are_answered(now, c, [7; 16], slot);
                    let note = st.note_holding(c);
                    let notes_holding = note.as_ref().map(|note| note.v);
                    log.extend(note);
                    let after = if ends.wrote || notes_holding.is_some() { log.len() } else { 0 };
                    replies.push(Reply { after, client: ends.client, notes_holding, files: ends.files });
                }
                Move::Flush(part) => durable += ((log.len() - durable) * part).div_ceil(100),
                Move::Return(c, f) => {
                    let Some(at) = held.iter().position(|h| (h.0, h.1) == (c, f)) else { continue };
                    let (.., given) = held.swap_remove(at);
                    st.files.return_delegation(clients[c], &file(f), &given).expect("returned");
                }
                Move::Deny(c) => {
                    let (f, owner) = (file(100 + c as u8), Bytes::from_static(b"o"));
                    match denying[c].take() {
                        Some(open) => drop(st.files.close(clients[c], &f, &open).expect("closed")),
                        None => {
                            denying[c] = st.files.open(&f, clients[c], &owner, READ, WRITE, None).ok();
                            let note = st.note_holding(clients[c]);
                            let notes_holding = note.as_ref().map(|note| note.v);
                            log.extend(note);
                            let after = if notes_holding.is_some() { log.len() } else { 0 };
                            replies.push(Reply { after, client: c, notes_holding, files: Vec::new() });
                        }
                    }
                }
                Move::Settle => log.extend(st.settle(now)),
                Move::Tick => log.extend(st.tick(now)),
                Move::Later(ms) => now += ms,
            }
            replies.retain(|reply| {
                let leaves = reply.after <= durable;
                if leaves {
                    if let Some(v) = reply.notes_holding {
                        st.holding_is_noted(clients[reply.client], v);
                    }
                    held.extend(reply.files.iter().map(|(f, given)| (reply.client, *f, *given)));
                }
                !leaves
            });
            for left in durable..=log.len() {
                let next = after(log.iter().take(left).cloned());
                for (c, f, given) in &held {
                    let goes_on = next.clients.get(clients[*c]).is_some_and(|c| !c.needs_reclaim);
                    let known = next.files.find(clients[*c], given).is_ok();
                    prop_assert!(!goes_on || known, "{} of {}: client {c} was told of file {f}", left, log.len());
                }
            }
        }
    }
}

#[test]
fn a_part_of_a_snapshot_has_what_is_on_its_way_to_the_log() {
    let mut st = state();
    let a = client(&mut st, b"a");
    let given = give(&mut st, a, &file(1), 0).expect("a delegation");
    assert!(st.note_holding(a).is_some());
    st.holding_is_noted(a, u64::MAX);
    st.grants_are_answered(5, a, [7; 16], 0);
    let before = st.snapshot();
    assert!(!goes_on(before.clone(), a, &given).0, "it reclaims");
    let notes = st.settle(st.settle_due().expect("some time"));
    // Their log loses them; the other one has the beginning of a snapshot.
    let part = |st: &State<u32>| {
        let most = PartMax { notes: 1, bytes: usize::MAX };
        [&before[..], &st.snapshot_part(&mut st.begin_snapshot(None), most)].concat()
    };
    assert_eq!(goes_on(part(&st), a, &given), (true, false), "what must not be");
    st.unwritten.begin(&notes);
    assert_eq!(goes_on(part(&st), a, &given), (true, true));
    st.unwritten.end(&notes);
    assert!(st.unwritten.notes().is_empty());
}
