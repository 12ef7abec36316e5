//! Opens and locks of a former instance, under whatever open they are.

use super::delegations::{Right, Touch};
use super::locks::{Locker, Span};
use super::notes::Note;
use super::opens::{BOTH, READ, WRITE};
use super::tests_delegations::{client, delegate, file, state};
use super::{Bounds, State};
use bytes::Bytes;
use landfast_nfs::v4::{LockType, NfsStat};

fn owner() -> Bytes {
    Bytes::from_static(b"o")
}

/// The state after a restart from what the log has.
fn restarted(st: &State<u32>, epoch: u32) -> State<u32> {
    let mut next: State<u32> = State::new(epoch, 90_000, Bounds::new(Some(1 << 30)));
    assert_eq!(next.restore(st.snapshot(), 0).reclaiming, 0);
    next
}

#[test]
fn locks_end_with_the_open_that_took_the_place_of_theirs_also_over_a_further_restart() {
    let mut st = state();
    let (a, f) = (client(&mut st, b"a"), file(1));
    let open = st.files.open(&f, a, &owner(), READ, 0, None).expect("an open");
    let locker = Locker::New { open, owner: owner() };
    let span = Span::new(0, 10).expect("bytes");
    let held = st.files.lock(a, &f, &locker, LockType::Read, span).expect("a lock");
    assert_eq!(st.log_locks(&held).len(), 1);
    let mut st = restarted(&st, 2);
    let anew = st.files.open(&f, a, &owner(), BOTH, 0, None).expect("an open");
    assert_ne!(anew.other, open.other);
    let notes = st.is_opened_anew(a, &f);
    assert_eq!(notes.len(), 1, "the log hears under which open the lock is");
    let mut st = restarted(&st, 3);
    assert!(!st.is_unused_former(a, &anew), "its CLOSE has something to do");
    assert!(st.files.find_open(a, &f, &open).is_err());
    st.files.close(a, &f, &anew).expect("closed");
    assert_eq!((st.files.locked_ranges(), st.files.len()), (0, 0));
    restarted(&st, 4).files.find(a, &held).expect_err("it is gone");
}

/// The last instance did not know it, and gave a delegation that the log does not know.
#[test]
fn an_open_of_an_older_instance_waits_until_nobody_may_reclaim() {
    for used in [false, true] {
        let mut st = state();
        let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
        let (f, g) = (file(1), file(2));
        let open = st.files.open(&f, a, &owner(), BOTH, 0, None).expect("an open");
        let mut st = restarted(&st, 2);
        let later = st.files.open(&g, a, &owner(), BOTH, 0, None).expect("an open");
        delegate(&mut st, b, &f, Right::Write);
        let mut log = st.snapshot();
        log.extend(st.note_holding(b));
        let mut st: State<u32> = State::new(3, 90_000, Bounds::new(Some(1 << 30)));
        assert_eq!(st.restore(log, 0).reclaiming, 1);
        st.adopt(1, a, &g, &later, WRITE).expect("the last instance gave it");
        assert_eq!(st.files.io(a, &g, &later, WRITE), Ok(None));
        if used {
            assert_eq!(st.adopt(1, a, &f, &open, WRITE), Err(NfsStat::NFS4ERR_GRACE));
            assert!(st.files.find(a, &open).is_err());
        }
        st.reclaim_complete(b).expect("it has reclaimed nothing");
        st.adopt(2, a, &f, &open, WRITE).expect("nobody may reclaim");
        assert_eq!(st.files.io(a, &f, &open, WRITE), Ok(None));
    }
}

#[test]
fn a_former_open_is_widened_by_what_is_done_with_its_locks() {
    let mut st = state();
    let (a, f) = (client(&mut st, b"a"), file(1));
    let open = st.files.open(&f, a, &owner(), BOTH, 0, None).expect("an open");
    let mut st = restarted(&st, 2);
    let locker = Locker::New { open, owner: owner() };
    let span = Span::new(0, 10).expect("bytes");
    st.adopt(1, a, &f, &open, READ).expect("nobody reclaims");
    let held = st.files.lock(a, &f, &locker, LockType::Read, span).expect("a lock");
    st.adopt(1, a, &f, &held, WRITE).expect("nobody reclaims");
    assert_eq!(st.files.io(a, &f, &held, WRITE), Ok(None));
    st.files.lock(a, &f, &Locker::Known(held), LockType::Write, span).expect("it may write");
}

/// Its CLOSE does not wait for a flush when it releases nothing, so power may go before the log knows.
#[test]
fn an_open_whose_locks_were_released_is_in_nobodys_way_after_a_restart() {
    let mut st = state();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    let f = file(1);
    let open = st.files.open(&f, a, &owner(), BOTH, 0, None).expect("an open");
    let locker = Locker::New { open, owner: owner() };
    let span = Span::new(0, 10).expect("bytes");
    let held = st.files.lock(a, &f, &locker, LockType::Write, span).expect("a lock");
    st.log_locks(&held);
    let mut locked = restarted(&st, 2);
    assert!(locked.files.check_share(&f, READ, WRITE).is_err(), "it holds bytes");
    let held = st.files.unlock(a, &f, &held, span).expect("unlocked");
    st.log_locks(&held);
    let mut st = restarted(&st, 2);
    assert!(st.files.check_share(&f, READ, BOTH).is_ok());
    delegate(&mut st, b, &f, Right::Read);
    assert!(!st.clear_delegations(1, &f, Some(a), Touch::Changes), "whoever uses it asks");
    st.adopt(1, a, &f, &held, WRITE).expect("nobody reclaims");
    assert_eq!(st.files.io(a, &f, &held, WRITE), Ok(None), "it goes on");
    assert!(st.files.check_share(&f, READ, WRITE).is_err());
    locked.files.close(a, &f, &open).expect("closed");
}

/// RFC 8881 sections 9.5 and 18.2.3: a lock ends with the open through which it was last asked for, and with no other.
#[test]
fn rfc8881_9_5_a_lock_ends_with_the_open_through_which_it_was_asked_for() {
    let mut st = state();
    let (a, f) = (client(&mut st, b"a"), file(1));
    let other = Bytes::from_static(b"p");
    let [first, second] =
        [owner(), other].map(|owner| st.files.open(&f, a, &owner, BOTH, 0, None).expect("an open"));
    let span = Span::new(0, 10).expect("bytes");
    let by = |open| Locker::New { open, owner: owner() };
    let held = st.files.lock(a, &f, &by(first), LockType::Write, span).expect("a lock");
    st.files.unlock(a, &f, &held, span).expect("unlocked");
    let held = st.files.lock(a, &f, &by(second), LockType::Write, span).expect("a lock");
    st.log_locks(&held);
    st.files.close(a, &f, &first).expect("closed");
    assert_eq!(st.files.locked_ranges(), 1, "the other open is not affected");
    let mut st = restarted(&st, 2);
    assert_eq!(st.files.locked_ranges(), 1);
    st.files.close(a, &f, &second).expect("closed");
    assert_eq!((st.files.locked_ranges(), st.files.len()), (0, 0));
}

/// A CLOSE of an open whose locks were released waits for no flush: after a power cut the open is there again beside the one that took
/// its place.
#[test]
fn a_lock_after_a_power_cut_belongs_to_the_open_that_it_was_asked_through() {
    let mut st = state();
    let (a, f) = (client(&mut st, b"a"), file(1));
    let open = st.files.open(&f, a, &owner(), BOTH, 0, None).expect("an open");
    let mut st = restarted(&st, 2);
    let (span, by) = (Span::new(0, 10).expect("bytes"), |open| Locker::New { open, owner: owner() });
    st.adopt(1, a, &f, &open, WRITE).expect("nobody reclaims");
    let held = st.files.lock(a, &f, &by(open), LockType::Write, span).expect("a lock");
    let held = st.files.unlock(a, &f, &held, span).expect("unlocked");
    st.log_locks(&held);
    let mut st = restarted(&st, 3);
    let anew = st.files.open(&f, a, &owner(), BOTH, 0, None).expect("an open");
    assert_ne!(anew.other, open.other);
    let log = st.snapshot();
    st.files.close(a, &f, &open).expect("closed");
    let mut st: State<u32> = State::new(4, 90_000, Bounds::new(Some(1 << 30)));
    assert_eq!(st.restore(log, 0).reclaiming, 0);
    st.adopt(1, a, &f, &anew, WRITE).expect("nobody reclaims");
    st.files.lock(a, &f, &by(anew), LockType::Write, span).expect("a lock");
    st.files.close(a, &f, &anew).expect("closed");
    assert_eq!(st.files.locked_ranges(), 0, "nothing is locked after the CLOSE");
}

/// RFC 8881 section 8.4.3: a client goes whole, or it is told. What the log hears of its locks it does not hear before it hears of the
/// client.
#[test]
fn whatever_is_left_of_the_log_a_client_is_gone_whole_or_not_at_all() {
    let mut st = state();
    let (a, f) = (client(&mut st, b"a"), file(1));
    let open = st.files.open(&f, a, &owner(), BOTH, 0, None).expect("an open");
    let by = Locker::New { open, owner: owner() };
    let held = st.files.lock(a, &f, &by, LockType::Write, Span::new(0, 10).expect("bytes")).expect("a lock");
    st.log_locks(&held);
    let mut log = st.snapshot();
    // These notes are in a transaction that power takes; another request's is there.
    assert!(!st.remove_client(a).is_empty());
    log.extend(st.take_gone());
    let mut st: State<u32> = State::new(2, 90_000, Bounds::new(Some(1 << 30)));
    assert_eq!(st.restore(log, 0).reclaiming, 0);
    assert!(st.clients.get(a).is_none() || st.files.find(a, &held).is_ok());
}

/// RFC 8881 sections 9.7, 18.18: OPEN_DOWNGRADE gives nothing that another's share reservation denies.
#[test]
fn rfc8881_9_7_a_former_open_is_not_widened_against_what_another_denies() {
    let mut st = state();
    let (a, b, f) = (client(&mut st, b"a"), client(&mut st, b"b"), file(1));
    let open = st.files.open(&f, a, &owner(), BOTH, 0, None).expect("an open");
    let mut st = restarted(&st, 2);
    st.adopt(1, a, &f, &open, READ).expect("nobody reclaims");
    st.files.open(&f, b, &owner(), READ, WRITE, None).expect("nobody is known to write");
    st.adopt(1, a, &f, &open, WRITE).expect("nobody reclaims");
    assert_eq!(st.files.downgrade(a, &f, &open, WRITE, 0), Err(NfsStat::NFS4ERR_BAD_STATEID));
    assert_eq!(st.files.io(a, &f, &open, WRITE), Err(NfsStat::NFS4ERR_OPENMODE));
    assert!(st.files.downgrade(a, &f, &open, READ, 0).is_ok());
}

/// A LOCK that notes what was locked while the log had no room may be lost with its note, after the log was told that its client holds nothing that it does not know.
#[test]
fn locks_for_which_there_was_no_room_are_noted_once_more_before_their_client_holds_nothing_else() {
    let mut st = state();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    let span = Span::new(0, 10).expect("bytes");
    let [of_b, of_a] = [(b, 1), (a, 2)].map(|(c, n)| {
        let open = st.files.open(&file(n), c, &owner(), READ, 0, None).expect("an open");
        let locker = Locker::New { open, owner: owner() };
        let held = st.files.lock(c, &file(n), &locker, LockType::Read, span).expect("a lock");
        assert_eq!(st.log_locks(&held).len(), usize::from(c == b));
        // No more fits.
        st.bounds.lock_bytes = st.files.logged_locks.bytes;
        (open, held)
    });
    let mut log = st.snapshot();
    log.extend(st.note_holding(a));
    st.holding_is_noted(a, u64::MAX);
    st.files.close(b, &file(1), &of_b.0).expect("closed");
    let again = Locker::Known(of_a.1);
    let held = st.files.lock(a, &file(2), &again, LockType::Read, span).expect("a lock");
    let lost = st.log_locks(&held);
    assert!(matches!(&lost[..], [note] if matches!(note.note, Note::Locks(_))));
    log.extend(st.tick(0));
    let mut next: State<u32> = State::new(2, 90_000, Bounds::new(Some(1 << 30)));
    assert_eq!(next.restore(log, 0).reclaiming, 0);
    assert!(next.files.locked_ranges() == 1 && next.files.find(a, &held).is_ok());
    // It is noted once more only if the log may not have it, and released once.
    assert!(st.tick(1).is_empty() && st.unlogged_of(a) == 0);
    st.files.close(a, &file(2), &of_a.0).expect("closed");
    assert_eq!((st.unlogged_of(a), st.files.logged_locks.bytes), (0, 0));
}

/// RFC 8881 sections 8.2.4, 18.6: after its DELEGRETURN a stateid is good for nothing, whoever shows it (the simulation's seed 2356649).
#[test]
fn a_delegation_that_has_ended_is_no_open_that_comes_back() {
    let mut st = state();
    let (a, b, f) = (client(&mut st, b"a"), client(&mut st, b"b"), file(1));
    let given = delegate(&mut st, a, &f, Right::Read);
    st.log_given(&given).expect("room");
    let mut next = restarted(&st, 2);
    let shown = |st: &mut State<u32>, c| {
        st.adopt(1, c, &f, &given, WRITE).expect("no grace period");
        (st.close_unused_former(c, &f, &given), st.files.io(c, &f, &given, WRITE).map(drop))
    };
    next.files.return_delegation(a, &f, &given).expect("it is there");
    for c in [a, b] {
        assert_eq!(shown(&mut next, c), (false, Err(NfsStat::NFS4ERR_BAD_STATEID)));
    }
    assert_eq!((next.files.opens_of(a), next.files.opens_of(b)), (0, 0));
}
