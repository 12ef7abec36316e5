//! CB_RECALL_ANY: who is asked for how many delegations, and how often.

use super::delegations::{GivenTo, Right};
use super::recall_any::RecallAny;
use super::tests_delegations::{client, file};
use super::{Bounds, Millis, State};
use crate::limited::{Limit, Limits};
use crate::limits;
use std::net::{IpAddr, Ipv4Addr};

const LEASE: Millis = 90_000;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const GIVEN_TO: GivenTo = GivenTo { session: [7; 16], slot: 0, sequence: 1, minor: 2 };

fn state(opens: usize, of_client: usize, logged: usize) -> State<u32> {
    let limits = Limits::default().with(Limit::Opens, opens).with(Limit::ClientOpens, of_client);
    let bounds = Bounds { delegations: logged, ..Bounds::with(Some(1 << 30), limits) };
    State::new(1, LEASE, bounds)
}

/// Gives delegations of so many files from this one on; who was asked.
fn give(
    st: &mut State<u32>,
    now: Millis,
    c: u64,
    files: std::ops::Range<u8>,
    right: Right,
) -> Vec<RecallAny> {
    for n in files {
        if st.files.may_delegate(now, c, &file(n), right).is_ok() {
            let holder = (false, GIVEN_TO, file(n));
            st.files.delegate(c, &file(n), right, holder, Default::default(), (HERE, None)).expect("given");
        }
        st.make_room_for_delegations(now, c);
    }
    std::iter::from_fn(|| st.files.delegations.take_any()).collect()
}

fn asked(client: u64, keep: u32) -> RecallAny {
    let GivenTo { session, minor, .. } = GIVEN_TO;
    RecallAny { client, keep, files: true, directories: false, session, minor }
}

#[test]
fn rfc8881_20_6_a_client_near_its_limit_is_asked_once_a_lease() {
    let mut st = state(1 << 10, 16, 1 << 10);
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    assert_eq!(give(&mut st, 0, a, 0..13, Right::Write), []);
    assert_eq!(give(&mut st, 0, b, 20..30, Right::Read), [], "each has its own");
    assert!(!st.files.delegations.signals().due);
    assert_eq!(
        give(&mut st, 0, a, 13..14, Right::Write),
        [asked(a, 12)],
        "7 of 8 parts are in use, 6 may be"
    );
    assert!(st.files.delegations.signals().due);
    assert_eq!(give(&mut st, LEASE - 1, a, 14..20, Right::Write), [], "it was asked already");
    assert_eq!(st.files.delegations.of_client(a), [15, 0], "one is left to opens");
    assert_eq!(
        give(&mut st, LEASE, a, 19..20, Right::Write),
        [asked(a, 12)],
        "also when none could be given"
    );
    assert_eq!(st.files.delegations.counts.asked_any, 2);
}

#[test]
fn rfc8881_20_6_who_was_silent_longest_is_asked_first() {
    // Opens in all, of which delegations are half; delegations in the log.
    for (opens, logged) in [(128, 1 << 10), (1 << 10, 64)] {
        let mut st = state(opens, 1 << 10, logged);
        let [a, b, c, gone] = [b"a", b"b", b"c", b"g"].map(|name| client(&mut st, name));
        for (client, heard) in [(b, LEASE + 1), (a, LEASE + 2), (c, LEASE + 3)] {
            st.clients.renew(client, heard);
        }
        let now = LEASE + 5;
        let given = [(c, 0..22), (b, 30..40), (a, 50..70), (gone, 80..83)];
        for (client, files) in given {
            assert_eq!(give(&mut st, now, client, files, Right::Read), []);
        }
        assert_eq!(st.files.delegations.take_lapsed(), None);
        // 56 of 64, with those of one whose lease is over: 8 must go, of them these 3.
        assert_eq!(give(&mut st, now, c, 22..23, Right::Read), [asked(b, 5)]);
        assert_eq!(st.files.delegations.take_lapsed(), Some(gone));
        st.remove_client(gone);
        let soon = now + limits::CROWDED_LOOK_MS - 1;
        assert_eq!(give(&mut st, soon, c, 23..28, Right::Read), []);
        // Now 11 must, and b has 10 and was asked already.
        assert_eq!(give(&mut st, soon + 1, c, 28..29, Right::Read), [asked(a, 19)]);
    }
}

#[test]
fn rfc8881_20_6_directories_are_asked_for_as_such() {
    let mut st = state(1 << 10, 8, 1 << 10);
    let a = client(&mut st, b"a");
    let [what] = give(&mut st, 0, a, 0..7, Right::Names)[..] else { panic!("it is asked once") };
    assert_eq!(what, RecallAny { files: false, directories: true, ..asked(a, 6) });
    give(&mut st, 0, a, 7..8, Right::Read);
    let [what] = give(&mut st, LEASE, a, 7..8, Right::Read)[..] else { panic!("it is asked once") };
    assert_eq!(what, RecallAny { directories: true, ..asked(a, 6) });
    st.remove_client(a);
    let b = client(&mut st, b"b");
    assert_eq!(give(&mut st, 0, b, 0..7, Right::Write), [asked(b, 6)]);
}
