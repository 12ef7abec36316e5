//! Delegations: who may have one, recall, revocation, limits; and against a model of who holds what.

use super::asked::{AsGiven, Asking};
use super::clients::ExchangeId;
use super::delegations::{GivenTo, Right, Signals, Touch};
use super::identity::Requester;
use super::notes::Note;
use super::opens::{BOTH, READ, WRITE};
use super::{Bounds, Millis, Principal, State};
use crate::limited::{Limit, Limits};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::flags::{SEQ4_STATUS_RECALLABLE_STATE_REVOKED, WND4_CONTENTION, WND4_RESOURCE};
use landfast_nfs::v4::{NfsStat, Stateid};
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

const LEASE: Millis = 90_000;
pub(super) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const GIVEN_TO: GivenTo = GivenTo { session: [7; 16], slot: 0, sequence: 1, minor: 2 };

pub(super) fn state() -> State<u32> {
    State::new(1, LEASE, Bounds::new(Some(1 << 30)))
}

pub(super) fn client(st: &mut State<u32>, name: &[u8]) -> u64 {
    let by = Requester { principal: Principal { flavor: 1, uid: 0 }, addr: HERE };
    let ask = ExchangeId { owner: Bytes::copy_from_slice(name), verifier: [1; 8], by, update: false };
    let id = st.exchange_id(0, &ask).expect("a client ID").client;
    let v = st.next_version();
    st.clients.created(id, 0, Bytes::from_static(b"reply"), v);
    id
}

pub(super) fn file(n: u8) -> Bytes {
    Bytes::from(vec![n])
}

fn asking() -> Asking {
    Asking::new(Some(AsGiven { change: 100, by_owner: true }))
}

pub(super) fn delegate(st: &mut State<u32>, c: u64, f: &Bytes, right: Right) -> Stateid {
    st.files.may_delegate(0, c, f, right).expect("it may");
    st.files
        .delegate(c, f, right, (false, GIVEN_TO, f.clone()), asking(), (HERE, Some(5)))
        .expect("a delegation")
}

fn recalls(st: &mut State<u32>) -> Vec<super::delegations::Recall> {
    std::iter::from_fn(|| st.files.take_recall(|_| true)).collect()
}

#[test]
fn who_had_a_delegation_on_an_export_that_has_left_hears_of_it() {
    let (mut st, a, b) = two();
    let stateid = delegate(&mut st, a, &file(1), Right::Write);
    let (handles, notes) = st.remove_files(|f| *f == file(1));
    assert_eq!((handles, notes.is_empty()), (vec![5], false));
    assert_eq!(st.status_flags(a), SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    assert_eq!(st.status_flags(b), 0);
    assert_eq!(st.files.find(a, &stateid).err(), Some(NfsStat::NFS4ERR_DELEG_REVOKED));
    st.files.free(a, &stateid).expect("it may be freed");
    assert_eq!(st.status_flags(a), 0);
}

#[test]
fn only_who_had_something_is_waited_for_when_he_has_left() {
    let (mut st, a, b) = two();
    delegate(&mut st, b, &file(1), Right::Read);
    st.remove_client(a);
    assert!(st.removals.unsettled().is_empty());
    st.remove_client(b);
    assert_eq!(st.removals.unsettled().len(), 1);
}

/// Two clients that have confirmed themselves.
fn two() -> (State<u32>, u64, u64) {
    let mut st = state();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    (st, a, b)
}

#[test]
fn who_fights_over_a_file_gets_no_delegation_of_it_for_a_while() {
    let (mut st, a, b) = two();
    let f = file(1);
    let given = delegate(&mut st, a, &f, Right::Write);
    assert!(st.clear_delegations(10, &f, Some(a), Touch::Changes), "the holder itself");
    assert!(st.clear_delegations(10, &file(2), Some(b), Touch::Changes), "another file");
    assert!(!st.clear_delegations(10, &f, Some(b), Touch::Reads));
    assert!(!st.clear_delegations(10, &f, None, Touch::Reads));
    assert_eq!(recalls(&mut st).len(), 1, "one recall, however many ask");
    st.files.return_delegation(a, &f, &given).expect("returned");
    assert!(st.clear_delegations(10, &f, Some(b), Touch::Changes));
    assert_eq!(st.files.may_delegate(10, a, &f, Right::Read), Err(WND4_CONTENTION));
    assert_eq!(st.files.may_delegate(10 + limits::CONTENDED_MS, a, &f, Right::Read), Ok(()));
    // As many other files later it is forgotten.
    for n in 0..limits::CONTENDED_FILES_MAX {
        let other = Bytes::from(n.to_be_bytes().to_vec());
        let given = delegate(&mut st, a, &other, Right::Write);
        st.clear_delegations(11, &other, Some(b), Touch::Changes);
        st.files.return_delegation(a, &other, &given).expect("returned");
    }
    assert_eq!(st.files.may_delegate(12, a, &f, Right::Read), Ok(()));
}

#[test]
fn rfc8881_10_4_read_delegations_are_shared_and_go_with_the_first_writer() {
    let (mut st, a, b) = two();
    let f = file(1);
    delegate(&mut st, a, &f, Right::Read);
    delegate(&mut st, b, &f, Right::Read);
    assert_eq!(st.files.may_delegate(0, a, &f, Right::Read), Err(WND4_RESOURCE), "it has one");
    assert_eq!(st.files.may_delegate(0, a, &f, Right::Write), Err(WND4_RESOURCE));
    assert!(st.clear_delegations(1, &f, None, Touch::Reads));
    assert!(!st.clear_delegations(1, &f, Some(a), Touch::Changes));
    let recalls = recalls(&mut st);
    assert_eq!(recalls.iter().map(|r| r.client).collect::<Vec<_>>(), [b]);
}

#[test]
fn a_client_whose_lease_is_over_loses_all_and_is_not_waited_for() {
    let (mut st, a, b) = two();
    let f = file(1);
    delegate(&mut st, a, &f, Right::Write);
    let later = 2 * LEASE;
    st.clients.renew(b, later);
    assert!(!st.clear_delegations(later, &f, Some(b), Touch::Changes));
    assert_eq!((recalls(&mut st).len(), st.files.delegations.take_lapsed()), (0, Some(a)));
    let notes = st.note_expulsion(a);
    assert!(notes.iter().any(|n| n.note == Note::ClientGone(a)));
    assert!(!st.clear_delegations(later, &f, Some(b), Touch::Changes), "not before the log has it");
    st.remove_client(a);
    assert!(st.clear_delegations(later, &f, Some(b), Touch::Changes));
    assert_eq!(st.files.delegations.live(), 0);
    assert!(st.files.delegations.signals().ended, "those who wait are told");
}

#[test]
fn a_client_that_returns_nothing_loses_everything_in_the_end() {
    let (mut st, a, b) = two();
    for n in 0..=limits::REVOKED_MAX {
        let f = Bytes::from(n.to_be_bytes().to_vec());
        let given = delegate(&mut st, a, &f, Right::Write);
        st.clear_delegations(1, &f, Some(b), Touch::Changes);
        let recall = st.files.take_recall(|_| true).expect("a recall");
        let notes = st.note_revocation(recall.id);
        if n == limits::REVOKED_MAX {
            assert!(notes.iter().any(|n| n.note == Note::ClientGone(a)));
            assert!(!st.clear_delegations(2, &f, Some(b), Touch::Changes), "not before the log has it");
            st.revoke(recall.client, recall.id);
            assert!(st.clients.get(a).is_none() && st.clear_delegations(2, &f, Some(b), Touch::Changes));
            break;
        }
        assert!(notes.iter().any(|note| matches!(&note.note, Note::Revoked(r) if r.files.len() == n + 1)));
        st.revoke(recall.client, recall.id);
        assert_eq!(st.files.find(a, &given), Err(NfsStat::NFS4ERR_DELEG_REVOKED));
        assert_eq!(st.files.find(b, &given), Err(NfsStat::NFS4ERR_BAD_STATEID));
        assert_eq!(st.status_flags(a), SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    }
}

#[test]
fn what_was_revoked_is_known_after_a_restart_until_the_file_is_opened_anew() {
    let (mut st, a, b) = two();
    let f = file(1);
    delegate(&mut st, a, &f, Right::Write);
    st.clear_delegations(1, &f, Some(b), Touch::Changes);
    let recall = st.files.take_recall(|_| true).expect("a recall");
    st.note_revocation(recall.id);
    st.revoke(recall.client, recall.id);
    let again = |st: &State<u32>| {
        let mut next: State<u32> = State::new(9, LEASE, Bounds::new(None));
        next.restore(st.snapshot(), 0);
        next
    };
    assert!(again(&st).files.is_barred(a, &f));
    assert!(!st.is_opened_anew(a, &f).is_empty() && st.is_opened_anew(a, &f).is_empty());
    assert!(!again(&st).files.is_barred(a, &f));
}

#[test]
fn delegations_leave_half_of_the_opens_to_opens() {
    let limits = Limits::default().with(Limit::Opens, 16).with(Limit::ClientOpens, 12);
    let mut st: State<u32> = State::new(1, LEASE, Bounds::with(None, limits));
    let c = client(&mut st, b"c");
    let may = (0..20).take_while(|n| {
        let may = st.files.may_delegate(0, c, &file(*n), Right::Write) == Ok(());
        if may {
            delegate(&mut st, c, &file(*n), Right::Write);
        }
        may
    });
    assert_eq!(may.count(), 8);
    assert_eq!(st.files.may_delegate(0, c, &file(99), Right::Write), Err(WND4_RESOURCE));
}

/// What clients do in the model.
#[derive(Debug, Clone)]
enum Move {
    /// Opens a file with this access, and takes what delegation there is instead.
    Open(usize, u8, u8),
    Close(usize, u8),
    Touch(Option<usize>, u8, bool),
    /// Answers the oldest recall.
    Return,
    /// The oldest recall is not answered within a lease.
    Revoke,
    Gone(usize),
    Later(Millis),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        (0..3usize, 0..3u8, 1..4u8).prop_map(|(c, f, a)| Move::Open(c, f, a)),
        (0..3usize, 0..3u8).prop_map(|(c, f)| Move::Close(c, f)),
        (proptest::option::of(0..3usize), 0..3u8, any::<bool>()).prop_map(|(c, f, w)| Move::Touch(c, f, w)),
        Just(Move::Return),
        Just(Move::Revoke),
        (0..3usize).prop_map(Move::Gone),
        (1..80_000u64).prop_map(Move::Later),
    ];
    proptest::collection::vec(one, 1..80)
}

proptest! {
    /// However clients open, touch, return and fall silent: what was let through conflicts with no live delegation, no two clients hold
    /// conflicting rights, and each delegation is live, returned, revoked, or went with its client.
    #[test]
    fn no_two_clients_hold_conflicting_rights(all in moves()) {
        let mut st = state();
        let mut clients: Vec<u64> = (0..3u8).map(|n| client(&mut st, &[n])).collect();
        let mut now: Millis = 0;
        // What each client believes to hold: access by file; and the delegations' stateids.
        let mut believes: HashMap<(u64, u8), (u8, Stateid)> = HashMap::new();
        let mut recalls = std::collections::VecDeque::new();
        let mut names = 3u8;
        for m in all {
            for c in &clients {
                st.clients.renew(*c, now);
            }
            match m {
                Move::Open(at, f, access) => {
                    let c = clients[at];
                    let touch = if access & WRITE != 0 { Touch::Changes } else { Touch::Reads };
                    if st.clear_delegations(now, &file(f), Some(c), touch) {
                        let right = Right::of_access(access);
                        if st.files.may_delegate(now, c, &file(f), right).is_ok() {
                            let given = delegate_at(&mut st, c, f, right);
                            let held = if right == Right::Write { BOTH } else { READ };
                            believes.insert((c, f), (held, given));
                        } else {
                            st.files.open(&file(f), c, &Bytes::from_static(b"o"), access, 0, None).expect("open");
                        }
                    }
                }
                Move::Close(at, f) => {
                    let owner = Bytes::from_static(b"o");
                    st.files.close_owner(clients[at], &owner, &file(f));
                }
                Move::Touch(by, f, write) => {
                    let by = by.map(|at| clients[at]);
                    let touch = if write { Touch::Changes } else { Touch::Reads };
                    let clear = st.clear_delegations(now, &file(f), by, touch);
                    let in_the_way = believes
                        .iter()
                        .any(|((c, g), (access, _))| *g == f && Some(*c) != by && (write || access & WRITE != 0));
                    prop_assert_eq!(clear, !in_the_way, "{:?} of {} by {:?}", touch, f, by);
                }
                Move::Return => {
                    if let Some(recall) = next_live(&st, &mut recalls) {
                        let f = recall.fh[0];
                        prop_assert_eq!(st.files.return_delegation(recall.client, &file(f), &recall.stateid).map(|h| h.len()), Ok(1));
                        prop_assert!(st.files.find(recall.client, &recall.stateid).is_err());
                        believes.remove(&(recall.client, f));
                    }
                }
                Move::Revoke => {
                    if let Some(recall) = next_live(&st, &mut recalls) {
                        prop_assert!(!st.note_revocation(recall.id).is_empty());
                        st.revoke(recall.client, recall.id);
                        prop_assert_eq!(st.files.find(recall.client, &recall.stateid), Err(NfsStat::NFS4ERR_DELEG_REVOKED));
                        believes.remove(&(recall.client, recall.fh[0]));
                    }
                }
                Move::Gone(at) => {
                    st.remove_client(clients[at]);
                    believes.retain(|(c, _), _| *c != clients[at]);
                    clients[at] = client(&mut st, &[names]);
                    names = names.wrapping_add(1);
                }
                Move::Later(by) => now += by,
            }
            recalls.extend(std::iter::from_fn(|| st.files.take_recall(|_| true)));
            // Rights do not conflict.
            for ((c, f), (access, stateid)) in &believes {
                prop_assert!(st.files.find(*c, stateid).is_ok(), "a delegation that nobody took back");
                for ((d, g), (other, _)) in &believes {
                    prop_assert!(c == d || f != g || (access | other) & WRITE == 0);
                }
            }
            prop_assert_eq!(st.files.delegations.live(), believes.len());
        }
    }
}

fn delegate_at(st: &mut State<u32>, c: u64, f: u8, right: Right) -> Stateid {
    st.files
        .delegate(c, &file(f), right, (false, GIVEN_TO, file(f)), asking(), (HERE, Some(5)))
        .expect("a delegation")
}

fn next_live(
    st: &State<u32>,
    recalls: &mut std::collections::VecDeque<super::delegations::Recall>,
) -> Option<super::delegations::Recall> {
    while let Some(recall) = recalls.pop_front() {
        if st.files.is_delegated(recall.id) {
            return Some(recall);
        }
    }
    None
}

#[test]
fn what_stands_in_the_log_is_there_after_a_restart_and_what_has_ended_is_not() {
    let (mut st, a, b) = two();
    let kept = delegate(&mut st, a, &file(1), Right::Write);
    let ended = delegate(&mut st, a, &file(2), Right::Write);
    let early = [kept, ended].map(|s| st.log_given(&s).expect("room in the log"));
    assert_eq!((st.files.opens_of(a), st.unlogged_of(a)), (2, 0));
    assert!(st.note_holding(a).is_none(), "the log knows all that it holds");
    let mut notes = st.snapshot();
    st.files.return_delegation(a, &file(2), &ended).expect("returned");
    let gone = st.take_gone();
    assert_eq!(gone.len(), 1);
    // In any order, and more than once.
    notes.extend(gone);
    notes.extend(early);
    for reversed in [false, true] {
        if reversed {
            notes.reverse();
        }
        let mut next: State<u32> = State::new(9, LEASE, Bounds::new(Some(1 << 30)));
        assert_eq!(next.restore(notes.clone(), 0).reclaiming, 0);
        assert!(next.files.find_on(a, &file(1), &kept).is_ok());
        assert_eq!(next.files.io(a, &file(1), &kept, WRITE), Ok(None), "the shell opens it again");
        assert_eq!(next.files.find(a, &ended), Err(NfsStat::NFS4ERR_BAD_STATEID));
        assert!(!next.clear_delegations(1, &file(1), Some(b), Touch::Reads));
        assert_eq!(next.files.take_recall(|_| true).map(|r| r.stateid), Some(kept));
        let fresh = delegate(&mut next, a, &file(3), Right::Write);
        assert_ne!(fresh.other[..4], kept.other[..4], "each instance has its mark");
        // And once more.
        let mut last: State<u32> = State::new(10, LEASE, Bounds::new(Some(1 << 30)));
        last.restore(next.snapshot(), 0);
        assert!(last.files.find_on(a, &file(1), &kept).is_ok() && last.files.find(a, &fresh).is_err());
        last.files.return_delegation(a, &file(1), &kept).expect("returned");
    }
}

#[test]
fn a_small_log_has_room_for_few_delegations_and_the_clients_of_others_reclaim() {
    let most = 1 << 20;
    let mut st: State<u32> = State::new(1, LEASE, Bounds::new(Some(most)));
    let c = client(&mut st, b"c");
    let fit = (most / limits::LOG_PARTS / limits::DELEGATION_NOTE_BYTES) as u8;
    for n in 0..fit {
        let given = delegate(&mut st, c, &file(n), Right::Write);
        let note = st.log_given(&given).expect("room in the log");
        assert!(note.to_bytes().len() <= limits::DELEGATION_NOTE_BYTES as usize);
    }
    let given = delegate(&mut st, c, &file(fit), Right::Write);
    assert!(st.log_given(&given).is_none() && st.note_holding(c).is_some());
}

#[test]
fn directories_leave_half_of_the_log_to_files_and_a_client_leaves_others_as_many_as_it_has() {
    let most = 1 << 20;
    let mut st: State<u32> = State::new(1, LEASE, Bounds::new(Some(most)));
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    let fit = (most / limits::LOG_PARTS / limits::DELEGATION_NOTE_BYTES) as usize
        / limits::DELEGATED_DIRECTORIES_DIVISOR;
    let mut given = Vec::new();
    while st.has_room_for_directory(a) {
        given.push(delegate(&mut st, a, &file(given.len() as u8), Right::Names));
    }
    assert_eq!(given.len(), fit.div_ceil(2));
    let mut others = 0;
    while st.has_room_for_directory(b) {
        delegate(&mut st, b, &file(others), Right::Names);
        others += 1;
    }
    assert_eq!(usize::from(others), (fit - given.len()).div_ceil(2));
    assert!(others > 0 && st.files.delegations.directories() <= fit);
    let directory = given.first().expect("one at least");
    st.files.return_delegation(a, &file(0), directory).expect("returned");
    assert!(st.has_room_for_directory(b));
}

#[test]
fn what_was_given_without_the_log_stands_there_a_tick_later() {
    for right in [Right::Read, Right::Names] {
        stands_in_the_log_a_tick_later(right);
    }
}

fn stands_in_the_log_a_tick_later(right: Right) {
    let (mut st, a, _) = two();
    let given = delegate(&mut st, a, &file(1), right);
    let open = st.files.open(&file(2), a, &Bytes::from_static(b"o"), READ, WRITE, None).expect("an open");
    assert!(st.note_holding(a).is_some());
    st.holding_is_noted(a, u64::MAX);
    let after = |st: &State<u32>| {
        let mut next: State<u32> = State::new(9, LEASE, Bounds::new(Some(1 << 30)));
        let restored = next.restore(st.snapshot(), 0);
        let directories = next.files.delegations.directories();
        assert_eq!(directories == 1, right == Right::Names && next.files.delegations.live() == 1);
        (restored.reclaiming, next.files.find(a, &given).is_ok())
    };
    assert_eq!(after(&st), (1, false), "who has to reclaim keeps nothing");
    assert!(st.tick(0).is_empty() && st.tick(0).is_empty(), "its OPEN is not answered yet");
    st.grants_are_answered(0, a, GIVEN_TO.session, GIVEN_TO.slot);
    let notes = st.tick(1);
    assert!(matches!(notes.iter().map(|n| &n.note).next(), Some(Note::Delegation(d)) if d.right == right));
    assert_eq!(after(&st), (1, false), "it still denies something");
    st.files.close(a, &file(2), &open).expect("closed");
    let notes = st.tick(2);
    assert!(notes.iter().any(|n| matches!(&n.note, Note::Client(c) if !c.holds)));
    assert_eq!(after(&st), (0, true));
}

#[test]
fn rfc8881_10_9_a_directory_is_in_the_way_of_changes_until_it_is_gone() {
    let (mut st, a, b) = two();
    let dir = file(1);
    let given = delegate(&mut st, a, &dir, Right::Names);
    delegate(&mut st, b, &dir, Right::Names);
    assert_eq!(st.files.delegations.directories(), 2);
    assert!(st.clear_delegations(1, &dir, None, Touch::Reads));
    assert!(!st.clear_delegations(1, &dir, Some(b), Touch::Changes));
    assert_eq!(recalls(&mut st).into_iter().map(|r| r.stateid).collect::<Vec<_>>(), [given]);
    st.files.directory_is_gone(&dir);
    assert_eq!((st.files.delegations.live(), st.files.delegations.directories()), (0, 0));
    assert!(st.clear_delegations(1, &dir, Some(b), Touch::Changes));
    assert_eq!(st.files.find(a, &given), Err(NfsStat::NFS4ERR_BAD_STATEID));
}

#[test]
fn rfc8881_10_9_5_a_revoked_directory_is_forgotten_once_it_is_freed() {
    let (mut st, a, b) = two();
    for n in 0..2 {
        let right = if n == 0 { Right::Names } else { Right::Read };
        let given = delegate(&mut st, a, &file(n), right);
        assert!(!st.clear_delegations(1, &file(n), Some(b), Touch::Changes));
        let id = recalls(&mut st).first().expect("a recall").id;
        st.note_revocation(id);
        st.revoke(a, id);
        assert_eq!(st.files.find(a, &given), Err(NfsStat::NFS4ERR_DELEG_REVOKED));
        st.files.free(a, &given).expect("freed");
        assert_eq!(st.files.is_barred(a, &file(n)), right == Right::Read);
    }
}

#[test]
fn rfc8881_10_9_5_a_revoked_directory_is_forgotten_once_it_is_freed_after_a_restart_too() {
    let (mut st, a, b) = two();
    let given = [Right::ChangeNames, Right::Read].map(|right| {
        let f = file(right as u8);
        let given = delegate(&mut st, a, &f, right);
        st.clear_delegations(1, &f, Some(b), Touch::Changes);
        let id = recalls(&mut st).first().expect("a recall").id;
        st.note_revocation(id);
        st.revoke(a, id);
        given
    });
    let mut next = restarted(&st, 9, 0);
    assert_eq!(next.status_flags(a), SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    for stateid in &given {
        assert_eq!(next.files.find(a, stateid), Err(NfsStat::NFS4ERR_DELEG_REVOKED));
        next.files.free(a, stateid).expect("freed");
    }
    let kept = next.note_client(a).into_iter().filter_map(|noted| match noted.note {
        Note::Revoked(note) => Some(note.files.len()),
        Note::RevokedStateids(note) => Some(note.stateids.len()),
        _ => None,
    });
    assert_eq!(kept.collect::<Vec<_>>(), [1, 0], "of the file there is the bar");
    let last = restarted(&next, 10, 0);
    assert!(last.status_flags(a) == 0 && last.files.is_barred(a, &file(Right::Read as u8)));
}

#[test]
fn who_opens_a_file_while_its_revocation_is_written_down_loses_the_delegation_and_nothing_else() {
    let (mut st, a, b) = two();
    let given = delegate(&mut st, a, &file(1), Right::Write);
    st.clear_delegations(1, &file(1), Some(b), Touch::Changes);
    let id = recalls(&mut st).first().expect("a recall").id;
    st.note_revocation(id);
    st.is_opened_anew(a, &file(1));
    st.revoke(a, id);
    assert_eq!(st.files.find(a, &given), Err(NfsStat::NFS4ERR_DELEG_REVOKED));
    assert!(st.clients.get(a).is_some());
}

#[test]
fn what_rests_on_a_holder_that_is_gone_writes_that_down_for_its_files_only() {
    let (mut st, a, b) = two();
    delegate(&mut st, a, &file(1), Right::Write);
    let gone = st.remove_client(a);
    let note = gone.iter().filter(|n| n.note == Note::ClientGone(a)).cloned().collect::<Vec<_>>();
    assert_eq!((st.removals.of_file(&file(1)), st.removals.of_holders()), (note, 1));
    assert!(st.removals.of_file(&file(2)).is_empty());
    st.removals.settled(super::removals::Removals::among(&gone));
    assert_eq!((st.removals.of_file(&file(1)), st.removals.of_holders()), (Vec::new(), 0));
    delegate(&mut st, b, &file(1), Right::Write);
}

#[test]
fn of_two_in_the_log_that_exclude_each_other_the_later_one_is_there_after_a_restart() {
    let (mut st, a, b) = two();
    let mut log = Vec::new();
    for (client, n) in [(a, 1), (b, 2)] {
        log.extend(st.client_notes(client));
        // The log does not know yet that the first one has come back.
        let given = delegate(&mut st, client, &file(n), Right::ChangeNames);
        log.extend(st.log_given(&given));
        if client == a {
            st.files.return_delegation(a, &file(1), &given).expect("returned");
            let again = delegate(&mut st, b, &file(1), Right::Names);
            log.extend(st.log_given(&again));
        }
    }
    let mut next: State<u32> = State::new(9, LEASE, Bounds::new(Some(1 << 30)));
    next.restore(log, 0);
    assert_eq!((next.files.opens_of(a), next.files.opens_of(b)), (0, 2));
    assert!(next.take_gone().iter().any(|gone| matches!(gone.note, Note::DelegationGone(_))));
}

#[test]
fn who_looks_is_in_no_directorys_way() {
    let (mut st, a, b) = two();
    delegate(&mut st, a, &file(1), Right::Names);
    assert!(!st.files.delegations.others_have_any(Some(b)));
    let given = delegate(&mut st, a, &file(2), Right::Read);
    let d = &st.files.delegations;
    assert!(d.others_have_any(Some(b)) && d.others_have_any(None) && !d.others_have_any(Some(a)));
    st.files.return_delegation(a, &file(2), &given).expect("returned");
    assert!(!st.files.delegations.others_have_any(None));
}

#[test]
fn who_returns_nothing_keeps_nobody_elses_recalls_back() {
    let (mut st, a, b) = two();
    for n in 0..3 {
        delegate(&mut st, a, &file(n), Right::Write);
        st.clear_delegations(1, &file(n), None, Touch::Changes);
    }
    delegate(&mut st, b, &file(9), Right::Write);
    st.clear_delegations(1, &file(9), None, Touch::Changes);
    assert_eq!(st.files.take_recall(|client| client != a).map(|r| r.client), Some(b));
    assert!(st.files.take_recall(|client| client != a).is_none());
    assert_eq!(recalls(&mut st).len(), 3);
    let signals = |due| Signals { ended: false, answered: false, due, unsettled: false };
    assert_eq!(st.files.delegations.signals(), signals(true));
    assert_eq!(st.files.delegations.signals(), signals(false), "told once");
}

/// The state after a restart, where these clients have to reclaim.
fn restarted(st: &State<u32>, epoch: u32, reclaiming: usize) -> State<u32> {
    let mut next: State<u32> = State::new(epoch, LEASE, Bounds::new(Some(1 << 30)));
    assert_eq!(next.restore(st.snapshot(), 0).reclaiming, reclaiming);
    next
}

#[test]
fn rfc8881_8_4_2_1_who_sleeps_through_a_grace_period_does_not_go_on_after_a_further_restart() {
    let (mut st, a, b) = two();
    delegate(&mut st, a, &file(1), Right::Write);
    assert!(st.note_holding(a).is_some(), "the log does not know this delegation");
    let mut next = restarted(&st, 2, 1);
    let ends = next.end_grace(LEASE).expect("it is over");
    assert!(ends.iter().any(|n| n.note == Note::ClientGone(a)));
    next.grace.ended();
    // Others may have anything now. The client must hear that it has lost all.
    assert!(next.clear_delegations(LEASE, &file(1), Some(b), Touch::Changes));
    let last = restarted(&next, 3, 0);
    assert!(last.clients.get(a).is_none() && last.clients.get(b).is_some());
}

#[test]
fn who_has_reclaimed_and_denies_nobody_anything_counts_as_a_holder_no_longer() {
    let (mut st, a, _) = two();
    delegate(&mut st, a, &file(1), Right::Write);
    assert!(st.note_holding(a).is_some());
    let mut next = restarted(&st, 2, 1);
    let anew = client(&mut next, b"a");
    assert_ne!(anew, a, "it reclaims under another ID");
    next.succeed_client(0, anew, a);
    next.may_reclaim(anew, 0).expect("it may");
    next.files.open(&file(1), anew, &Bytes::from_static(b"o"), BOTH, 0, None).expect("an open");
    next.reclaim_complete(anew).expect("once");
    next.tick(1);
    restarted(&next, 3, 0);
}

#[test]
fn a_note_that_is_late_does_not_hide_that_the_client_holds_something_again() {
    let (mut st, a, _) = two();
    let f = file(1);
    let open = |st: &mut State<u32>| {
        st.files.open(&f, a, &Bytes::from_static(b"o"), READ, WRITE, None).expect("an open")
    };
    let opened = open(&mut st);
    let first = st.note_holding(a).expect("a note").v;
    st.holding_is_noted(a, first);
    st.files.close(a, &f, &opened).expect("closed");
    st.tick(1);
    // Another request had the same note; its flush ends now.
    st.holding_is_noted(a, first);
    open(&mut st);
    let second = st.note_holding(a).expect("the log says that it holds nothing").v;
    // And one more: the second note is not durable yet.
    st.holding_is_noted(a, first);
    assert!(st.note_holding(a).is_some(), "who opens now waits for a note of its own");
    st.holding_is_noted(a, second);
    assert!(st.note_holding(a).is_none());
}

#[test]
fn of_two_delegations_of_a_file_in_the_log_the_later_one_is_there_after_a_restart() {
    let (mut st, a, _) = two();
    let f = file(1);
    let first = delegate(&mut st, a, &f, Right::Read);
    let mut log = st.snapshot();
    log.extend(st.log_given(&first));
    st.files.return_delegation(a, &f, &first).expect("returned");
    let second = delegate(&mut st, a, &f, Right::Read);
    log.extend(st.log_given(&second));
    let mut next: State<u32> = State::new(2, LEASE, Bounds::new(Some(1 << 30)));
    assert_eq!(next.restore(log, 0).reclaiming, 0);
    assert_eq!((next.files.len(), next.files.delegations.live()), (1, 1));
    next.files.find(a, &second).expect("the later one");
    assert_eq!(next.take_gone().len(), 1, "the log is told of the other");
}
