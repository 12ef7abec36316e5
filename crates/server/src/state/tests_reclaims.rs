//! Grace periods: what is not used, and what is not reclaimed, while others may still reclaim what it excludes. And what a restart makes of locks that were
//! given to two owners one after the other.

use super::delegations::{Right, Touch};
use super::locks::{Locker, Span};
use super::notes::{Note, Stamped};
use super::opens::{BOTH, FileKey, READ, Share, WRITE};
use super::tests_delegations::{client, delegate, file, state};
use super::{Bounds, Millis, State};
use bytes::Bytes;
use landfast_nfs::v4::{LockType, NfsStat, Stateid};

const LEASE: Millis = 90_000;

fn owner(n: u8) -> Bytes {
    Bytes::copy_from_slice(&[b'o', n])
}

fn open(st: &mut State<u32>, f: &FileKey, c: u64, by: u8, access: Share, deny: Share) -> Stateid {
    st.files.open(f, c, &owner(by), access, deny, None).expect("an open")
}

/// The next instance, from what the log has; so many clients have to reclaim.
fn restarted(log: impl IntoIterator<Item = Stamped>, epoch: u32, reclaiming: usize) -> State<u32> {
    let mut next: State<u32> = State::new(epoch, LEASE, Bounds::new(Some(1 << 30)));
    assert_eq!(next.restore(log, 0).reclaiming, reclaiming);
    next
}

/// The client comes back, and has another ID.
fn comes_back(st: &mut State<u32>, name: &[u8], old: u64) -> u64 {
    let anew = client(st, name);
    assert_ne!(anew, old);
    st.succeed_client(0, anew, old);
    anew
}

#[test]
fn rfc8881_8_4_2_1_an_open_that_the_last_instance_did_not_know_is_not_used_while_others_may_reclaim() {
    for older in [true, false] {
        let mut st = state();
        let (mut a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
        let (f, g) = (file(1), file(2));
        if older {
            // The next instance does not know this one.
            open(&mut st, &f, a, 1, BOTH, 0);
            st = restarted(st.snapshot(), 2, 0);
            delegate(&mut st, b, &f, Right::Write);
        } else {
            open(&mut st, &f, a, 1, BOTH, 0);
            delegate(&mut st, b, &g, Right::Write);
        }
        open(&mut st, &file(3), a, 1, BOTH, READ);
        assert!(st.note_holding(a).is_some() && st.note_holding(b).is_some());
        let mut st = restarted(st.snapshot(), 3, 2);
        a = comes_back(&mut st, b"a", a);
        assert_eq!(st.may_reclaim(a, 1), Ok(()));
        let reclaimed = open(&mut st, &f, a, 1, BOTH, 0);
        let waits = if older { Err(NfsStat::NFS4ERR_GRACE) } else { Ok(()) };
        for want in [0, READ, WRITE] {
            assert_eq!(st.may_use_in_grace(1, a, &f, &reclaimed, want), waits);
        }
        // The same over one more restart in which nobody has come back.
        let mut again = restarted(st.snapshot(), 4, 2);
        let anew = comes_back(&mut again, b"a", a);
        let reclaimed_again = open(&mut again, &f, anew, 1, BOTH, 0);
        assert_eq!(again.may_use_in_grace(1, anew, &f, &reclaimed_again, WRITE), waits);
        // Itself it does not wait for.
        st.reclaim_complete(b).expect("it holds nothing any more");
        assert_eq!(st.may_use_in_grace(1, a, &f, &reclaimed, WRITE), Ok(()));
    }
}

#[test]
fn rfc8881_9_1_2_reading_by_an_open_for_writing_waits_while_whoever_denies_it_may_reclaim() {
    let mut st = state();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    let (f, g) = (file(1), file(2));
    let writes = open(&mut st, &f, a, 1, WRITE, 0);
    let both = open(&mut st, &g, a, 1, BOTH, 0);
    open(&mut st, &f, b, 2, READ, READ);
    assert!(st.note_holding(a).is_none() && st.note_holding(b).is_some());
    let mut st = restarted(st.snapshot(), 2, 1);
    let reads = |st: &State<u32>, f, by| st.may_use_in_grace(1, a, f, by, READ);
    assert_eq!(reads(&st, &f, &writes), Err(NfsStat::NFS4ERR_GRACE));
    assert_eq!(reads(&st, &g, &both), Ok(()));
    assert_eq!(st.may_use_in_grace(1, a, &f, &writes, WRITE), Ok(()));
    // Also once the server knows it again.
    st.adopt(1, a, &f, &writes, WRITE).expect("the last instance gave it");
    assert_eq!(reads(&st, &f, &writes), Err(NfsStat::NFS4ERR_GRACE));
    // And by one that is reclaimed.
    let b = comes_back(&mut st, b"b", b);
    let c = client(&mut st, b"c");
    st.grace.wait_for(c);
    let reclaimed = open(&mut st, &f, b, 3, WRITE, 0);
    assert_eq!(st.may_use_in_grace(1, b, &f, &reclaimed, READ), Err(NfsStat::NFS4ERR_GRACE));
    st.grace.done(c);
    st.reclaim_complete(b).expect("once");
    assert_eq!(reads(&st, &f, &writes), Ok(()));
}

#[test]
fn an_open_from_which_reading_was_taken_away_is_reclaimed() {
    let mut st = state();
    let (a, f) = (client(&mut st, b"a"), file(1));
    open(&mut st, &f, a, 1, BOTH, 0);
    let both = open(&mut st, &f, a, 1, WRITE, 0);
    assert_eq!(st.unlogged_of(a), 0);
    let writes = st.files.downgrade(a, &f, &both, WRITE, 0).expect("one of its OPENs");
    assert_eq!(st.unlogged_of(a), 1, "nothing else says that it does not read");
    assert!(st.note_holding(a).is_some());
    restarted(st.snapshot(), 2, 1);
    open(&mut st, &f, a, 1, READ, 0);
    assert_eq!(st.unlogged_of(a), 0);
    st.files.downgrade(a, &f, &Stateid { seqid: 0, ..writes }, WRITE, 0).expect("again");
    st.files.close(a, &f, &Stateid { seqid: 0, ..writes }).expect("closed");
    assert_eq!(st.unlogged_of(a), 0);
}

/// The log lacks that the first owner has released some of its bytes, or shares them, and has what another was given then.
#[test]
fn of_a_range_that_was_released_in_part_the_rest_is_locked_after_a_restart() {
    for (kind, released) in [(LockType::Write, true), (LockType::Read, false)] {
        let mut st = state();
        let (a, b, c) = (client(&mut st, b"a"), client(&mut st, b"b"), client(&mut st, b"c"));
        let f = file(1);
        let span = |first, last| Span::of(first, last).expect("bytes");
        let lock = |st: &mut State<u32>, who, kind, (first, last)| {
            let opened = open(st, &f, who, 1, BOTH, 0);
            let locker = Locker::New { open: opened, owner: owner(1) };
            let held = st.files.lock(who, &f, &locker, kind, span(first, last)).expect("a lock");
            (held, st.log_locks(&held))
        };
        let (held, _) = lock(&mut st, a, LockType::Write, (0, 9));
        let mut log = st.snapshot();
        if released {
            st.files.unlock(a, &f, &held, span(3, 4)).expect("released");
        } else {
            lock(&mut st, a, LockType::Read, (3, 4));
        }
        let (_, notes) = lock(&mut st, b, kind, (3, 4));
        log.extend(notes);
        let st = restarted(log, 2, 0);
        let denied = |who, exclusive, first, last| {
            st.files.lock_test(who, &f, &owner(2), exclusive, span(first, last)).map(|d| d.client)
        };
        for (first, last) in [(0, 2), (5, 9)] {
            assert_eq!(denied(c, false, first, last), Some(a), "{kind:?}: bytes {first} to {last}");
        }
        assert_eq!(denied(c, false, 3, 4), released.then_some(b));
        // Of what they share both have their part.
        assert_eq!(st.files.locked_ranges(), if released { 3 } else { 4 });
    }
}

#[test]
fn rfc8881_8_4_3_who_has_not_reclaimed_all_in_a_grace_period_reclaims_nothing_after_the_next_restart() {
    for late in [false, true] {
        let mut st = state();
        let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
        open(&mut st, &file(1), a, 1, BOTH, WRITE);
        open(&mut st, &file(2), a, 1, BOTH, WRITE);
        assert!(st.note_holding(a).is_some());
        let mut st = restarted(st.snapshot(), 2, 1);
        let a = comes_back(&mut st, b"a", a);
        open(&mut st, &file(1), a, 1, BOTH, WRITE);
        let ends = st.end_grace(LEASE + 1).expect("it is over");
        assert!(ends.iter().any(|note| note.note == Note::MissedGrace(a)));
        st.grace.ended();
        // What it has not reclaimed may be anybody's now.
        delegate(&mut st, b, &file(2), Right::Write);
        if late {
            // It has been told of each that it is lost, and says that it knows.
            st.reclaim_complete(a).expect("once");
        }
        assert!(st.note_holding(b).is_some());
        let mut st = restarted(st.snapshot(), 3, 2);
        assert!(st.grace.active(1), "until it comes back, it goes by what it had");
        let a = comes_back(&mut st, b"a", a);
        let may = if late { Ok(()) } else { Err(NfsStat::NFS4ERR_RECLAIM_BAD) };
        assert_eq!(st.may_reclaim(a, 1), may);
        st.reclaim_complete(a).expect("it hears that all is lost");
        st.tick(2);
        let next = restarted(st.snapshot(), 4, 1);
        assert!(next.clients.get(a).is_some_and(|c| !c.needs_reclaim));
    }
}

#[test]
fn a_client_that_is_about_to_go_does_not_renew_its_lease() {
    let mut st = state();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    delegate(&mut st, a, &file(1), Right::Write);
    let now = LEASE + 1;
    assert!(!st.clients.get(a).is_some_and(|c| c.leaves));
    assert!(!st.clear_delegations(now, &file(1), Some(b), Touch::Changes));
    assert_eq!(st.files.delegations.take_lapsed(), Some(a));
    assert!(st.clients.get(a).is_some_and(|c| c.leaves));
    // A log that does not take it keeps everybody from going on, and the client as it was.
    st.is_not_expelled(a);
    assert!(!st.clients.get(a).is_some_and(|c| c.leaves));
    assert!(!st.clear_delegations(now, &file(1), Some(b), Touch::Changes));
    assert_eq!(st.files.delegations.take_lapsed(), Some(a), "it is tried again");
}
