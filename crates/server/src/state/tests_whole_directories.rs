//! Write directory delegations in the tables: who is in their way, the upgrade of an ordinary one, the log.

use super::delegations::{GivenTo, Right, Touch};
use super::ids::FileKey;
use super::notes::{Note, Stamped};
use super::tests_delegations::{client, file, state};
use super::{Bounds, Millis, State};
use crate::limits;
use landfast_nfs::v4::flags::{WND4_CONTENTION, WND4_RESOURCE};
use landfast_nfs::v4::{NfsStat, Stateid};
use std::net::{IpAddr, Ipv4Addr};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const LEASE: Millis = 90_000;

fn by(sequence: u32) -> GivenTo {
    GivenTo { session: [7; 16], slot: 0, sequence, minor: 2 }
}

fn give(st: &mut State<u32>, c: u64, dir: &FileKey, right: Right) -> Stateid {
    st.files.may_delegate(0, c, dir, right).expect("it may");
    let holder = (false, by(1), dir.clone());
    st.files.delegate(c, dir, right, holder, Default::default(), (HERE, None)).expect("a delegation")
}

fn live(st: &State<u32>) -> [usize; 3] {
    let d = &st.files.delegations;
    [d.live(), d.directories(), d.whole_directories()]
}

fn two() -> (State<u32>, u64, u64) {
    let mut st = state();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    (st, a, b)
}

#[test]
fn whoever_looks_is_in_its_way_and_nobody_is_given_another() {
    for touch in [Touch::Looks, Touch::Reads, Touch::Changes] {
        let (mut st, a, b) = two();
        let dir = file(1);
        let given = give(&mut st, a, &dir, Right::ChangeNames);
        assert_eq!(live(&st), [1, 1, 1]);
        for right in [Right::Names, Right::ChangeNames] {
            assert_eq!(st.files.may_delegate(0, b, &dir, right), Err(WND4_CONTENTION));
            assert_eq!(st.files.may_delegate(0, a, &dir, right), Err(WND4_RESOURCE), "it has it");
        }
        let d = &st.files.delegations;
        assert!(d.others_have_any(Some(b)) && d.others_have_any(None) && !d.others_have_any(Some(a)));
        assert!(st.clear_delegations(1, &dir, Some(a), touch), "the holder is not in its own way");
        for by in [Some(b), None] {
            assert!(!st.clear_delegations(1, &dir, by, touch));
        }
        let recall = st.files.take_recall(|_| true).expect("a recall");
        assert_eq!((recall.stateid, st.files.take_recall(|_| true).is_none()), (given, true));
        st.files.return_delegation(a, &dir, &given).expect("returned");
        assert_eq!(live(&st), [0; 3]);
        assert!(st.clear_delegations(2, &dir, None, touch));
        let over = 1 + limits::CONTENDED_MS;
        for (now, may) in [(over - 1, Err(WND4_CONTENTION)), (over, Ok(()))] {
            assert_eq!(st.files.may_delegate(now, a, &dir, Right::ChangeNames), may);
        }
    }
}

/// Nobody is asked what its holder knows: it is recalled.
#[test]
fn who_looks_at_its_attributes_waits_until_it_is_back() {
    use super::looking::Look;
    let (mut st, a, b) = two();
    let dir = file(1);
    give(&mut st, a, &dir, Right::ChangeNames);
    let since = st.files.questions_sent();
    let Look::Waits(id) = st.look(1, &dir, Some(b), since, true) else { panic!("it does not wait") };
    assert!(st.files.take_question(|_| true).is_none());
    assert_eq!(st.files.take_recall(|_| true).map(|r| r.id), Some(id));
    assert!(st.files.is_waited_for(id, since));
    st.files.delegation_is_unknown(id);
    assert!(!st.files.is_waited_for(id, since));
    assert_eq!(st.look(2, &dir, Some(b), since, true), Look::Clear);
}

#[test]
fn an_ordinary_one_becomes_one_for_writing_and_back() {
    let (mut st, a, b) = two();
    let dir = file(1);
    assert_eq!(st.files.upgrade(a, &dir, by(1)), None, "it has none");
    let given = give(&mut st, a, &dir, Right::Names);
    assert_eq!(st.files.may_delegate(0, a, &dir, Right::ChangeNames), Ok(()));
    assert_eq!(st.files.upgrade(b, &dir, by(1)), None);
    assert_eq!(st.files.upgrade(a, &dir, by(2)), Some(given));
    assert_eq!((live(&st), st.files.upgrade(a, &dir, by(3))), ([1, 1, 1], None));
    // Nobody has heard of it.
    st.files.withdraw_upgrade(&given);
    st.files.withdraw_upgrade(&given);
    assert_eq!(live(&st), [1, 1, 0]);
    assert!(st.clear_delegations(1, &dir, Some(b), Touch::Looks), "it is an ordinary one");
    assert_eq!(st.files.upgrade(a, &dir, by(4)), Some(given));
    assert!(!st.clear_delegations(1, &dir, Some(b), Touch::Looks));
    assert_eq!(st.files.take_recall(|_| true).map(|r| r.given_to), Some(by(4)), "the later request");
    st.files.return_delegation(a, &dir, &given).expect("returned");
    assert_eq!(live(&st), [0; 3]);
    // One that is recalled stays what it is.
    let other = file(2);
    give(&mut st, a, &other, Right::Names);
    assert!(!st.clear_delegations(1, &other, Some(b), Touch::Changes));
    assert_eq!(st.files.upgrade(a, &other, by(5)), None);
    // Two that look share nothing that one could have for itself.
    let shared = file(3);
    give(&mut st, a, &shared, Right::Names);
    give(&mut st, b, &shared, Right::Names);
    assert_eq!(st.files.may_delegate(0, a, &shared, Right::ChangeNames), Err(WND4_CONTENTION));
}

fn after_a_restart(st: &State<u32>) -> State<u32> {
    let mut next: State<u32> = State::new(9, LEASE, Bounds::new(Some(1 << 30)));
    assert_eq!(next.restore(st.snapshot(), 0).reclaiming, 0);
    next
}

#[test]
fn what_stands_in_the_log_is_for_writing_after_a_restart() {
    let (mut st, a, b) = two();
    let (made, upgraded, read) = (file(1), file(2), file(3));
    let of_made = give(&mut st, a, &made, Right::ChangeNames);
    let note = st.log_whole_directory(&of_made).expect("room").expect("a log");
    assert!(matches!(note.note, Note::Delegation(d) if d.right == Right::ChangeNames));
    let of_upgraded = give(&mut st, a, &upgraded, Right::Names);
    let first = st.log_given(&of_upgraded).expect("room");
    st.files.upgrade(a, &upgraded, by(2)).expect("an upgrade");
    let second = st.log_whole_directory(&of_upgraded).expect("room").expect("a log");
    assert!(second.v > first.v, "the later note counts");
    let of_read = give(&mut st, a, &read, Right::Names);
    st.log_given(&of_read).expect("room");
    assert_eq!(st.files.delegations.unlogged(), 0);
    let mut next = after_a_restart(&st);
    assert_eq!(live(&next), [3, 3, 2]);
    for (dir, given, waits) in [(made, of_made, true), (upgraded, of_upgraded, true), (read, of_read, false)]
    {
        assert_eq!(next.clear_delegations(1, &dir, Some(b), Touch::Looks), !waits);
        next.files.return_delegation(a, &dir, &given).expect("returned");
    }
    assert_eq!((live(&next), live(&after_a_restart(&next))), ([0; 3], [0; 3]));
}

#[test]
fn where_the_log_is_full_none_is_given_but_one_that_is_there_may_change() {
    let most = 1 << 20;
    let mut st: State<u32> = State::new(1, LEASE, Bounds::new(Some(most)));
    let a = client(&mut st, b"a");
    let dir = file(0);
    let given = give(&mut st, a, &dir, Right::Names);
    st.log_given(&given).expect("room");
    let mut n = 0;
    loop {
        n += 1;
        let other = give(&mut st, a, &file(n), Right::ChangeNames);
        match st.log_whole_directory(&other) {
            Ok(note) => assert!(note.is_some()),
            Err(why) => break assert_eq!(why, WND4_RESOURCE),
        }
    }
    st.files.upgrade(a, &dir, by(2)).expect("an upgrade");
    assert!(matches!(st.log_whole_directory(&given), Ok(Some(_))));
    // Without a log there is nothing to be full.
    let mut st: State<u32> = State::new(1, LEASE, Bounds::new(None));
    let a = client(&mut st, b"a");
    let given = give(&mut st, a, &dir, Right::ChangeNames);
    assert_eq!(st.log_whole_directory(&given), Ok(None));
}

#[test]
fn a_revoked_one_is_known_until_it_is_freed_and_forgotten_then() {
    let (mut st, a, b) = two();
    let dir = file(1);
    let given = give(&mut st, a, &dir, Right::ChangeNames);
    assert!(!st.clear_delegations(1, &dir, Some(b), Touch::Looks));
    let id = st.files.take_recall(|_| true).expect("a recall").id;
    assert!(!st.note_revocation(id).is_empty());
    assert!(!st.clear_delegations(1, &dir, Some(b), Touch::Looks), "the log does not know it yet");
    st.revoke(a, id);
    assert!(st.clear_delegations(1, &dir, Some(b), Touch::Looks));
    assert_eq!((live(&st), st.files.find(a, &given)), ([0; 3], Err(NfsStat::NFS4ERR_DELEG_REVOKED)));
    st.files.free(a, &given).expect("freed");
    assert!(!st.files.is_barred(a, &dir));
}

/// It is written down for others.
#[test]
fn its_number_in_the_log_is_three() {
    let of = |right: Right| postcard::to_allocvec(&right).expect("encoded");
    let all = [Right::Read, Right::Write, Right::Names, Right::ChangeNames];
    assert_eq!(all.map(of), [[0], [1], [2], [3]]);
    let (mut st, a, _) = two();
    let given = give(&mut st, a, &file(1), Right::ChangeNames);
    let note = st.log_whole_directory(&given).expect("room").expect("a log");
    assert_eq!(Stamped::from_bytes(&note.to_bytes()), Some(note));
}

/// What a server knows that starts with these notes.
fn restarted_with(log: &[Stamped]) -> State<u32> {
    let mut next: State<u32> = State::new(9, LEASE, Bounds::new(Some(1 << 30)));
    next.restore(log.to_vec(), 0);
    next
}

/// A request for one for writing may be lost with its note, after the log was told that the client holds nothing that it does not know
/// (the simulation's seed 2270525).
#[test]
fn a_power_cut_that_takes_the_upgrade_leaves_the_ordinary_one_or_has_it_reclaimed() {
    let (mut st, a, _) = two();
    let dir = file(1);
    let given = give(&mut st, a, &dir, Right::Names);
    // It is answered on the word that its client holds something.
    st.grants_are_answered(0, a, [7; 16], 0);
    let mut log = st.snapshot();
    log.extend(st.note_holding(a));
    st.holding_is_noted(a, u64::MAX);
    st.files.upgrade(a, &dir, by(2)).expect("an upgrade");
    let lost = st.log_whole_directory(&given).expect("room").expect("a log");
    let whole = |st: &State<u32>| (live(st), st.clients.get(a).map(|c| c.needs_reclaim));
    assert_eq!(whole(&restarted_with(&log)), ([0; 3], Some(true)), "its client is told");
    // A checkpoint has what the request has written.
    assert!(st.snapshot().contains(&lost));
    log.extend(st.settle(limits::GRANTS_SETTLE_MS));
    assert_eq!(whole(&restarted_with(&log)), ([1, 1, 1], Some(false)), "it has all that it was told of");
    log.push(lost);
    assert_eq!(whole(&restarted_with(&log)), ([1, 1, 1], Some(false)));
    // It is noted once more only if the log may not have it.
    assert!(st.settle(1000).is_empty() && st.tick(1000).is_empty());
    st.files.return_delegation(a, &dir, &given).expect("returned");
    log.extend(st.tick(2000));
    assert_eq!(whole(&restarted_with(&log)), ([0; 3], Some(false)));
}

/// The same where the request that the ordinary one was given to still runs: its reply waits for a note, too.
#[test]
fn a_reply_does_not_rest_on_the_note_of_a_later_request() {
    let (mut st, a, _) = two();
    let dir = file(1);
    let given = give(&mut st, a, &dir, Right::Names);
    let later = GivenTo { slot: 1, ..by(1) };
    st.files.upgrade(a, &dir, later).expect("an upgrade");
    st.log_whole_directory(&given).expect("room").expect("a log");
    st.grants_are_answered(0, a, [7; 16], 0);
    assert!(st.note_holding(a).is_some());
    st.grants_are_answered(0, a, [7; 16], 1);
    let notes = st.settle(limits::GRANTS_SETTLE_MS);
    assert!(
        matches!(&notes[..], [Stamped { note: Note::Delegation(d), .. }, Stamped { note: Note::Client(c), .. }]
        if d.right == Right::ChangeNames && !c.holds)
    );
}

/// An upgrade that is withdrawn leaves no trace: another client may be given an ordinary one, and both are there after a power cut.
#[test]
fn what_is_not_decided_is_not_in_the_log() {
    let (mut st, a, b) = two();
    let dir = file(1);
    let of_a = give(&mut st, a, &dir, Right::Names);
    let mut log = st.snapshot();
    st.grants_are_answered(0, a, [7; 16], 0);
    st.files.upgrade(a, &dir, by(2)).expect("an upgrade");
    log.extend(st.settle(limits::GRANTS_SETTLE_MS));
    log.extend(st.snapshot());
    st.files.withdraw_upgrade(&of_a);
    let of_b = give(&mut st, b, &dir, Right::Names);
    log.extend(st.log_given(&of_b));
    let next = restarted_with(&log);
    assert_eq!(live(&next), [2, 2, 0]);
    assert!(next.files.find(a, &of_a).is_ok() && next.files.find(b, &of_b).is_ok());
}
