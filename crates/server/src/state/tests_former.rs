//! Opens and locks of a former instance, under whatever open they are.

use super::delegations::{Right, Touch};
use super::locks::{Locker, Span};
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
