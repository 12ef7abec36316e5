//! A clock that jumps: leases, courtesy, grace and owners depend on the time that is given, and on nothing else. The
//! caller's clock is monotonic, so it jumps forwards (a machine that slept); a caller that broke its word and went backwards
//! would not make anything panic.

use super::clients::ExchangeId;
use super::identity::Requester;
use super::opens::{BOTH, FileKey};
use super::*;
use crate::limits::{COURTESY_MS, IDLE_MS};
use bytes::Bytes;
use proptest::prelude::*;
use std::net::IpAddr;

const LEASE: Millis = 90_000;
type S = State<u32>;

fn client(st: &mut S, owner: &'static [u8], now: Millis) -> u64 {
    let ask = ExchangeId {
        owner: Bytes::from_static(owner),
        verifier: [1; 8],
        by: Requester { principal: Principal { flavor: 1, uid: 0 }, addr: IpAddr::from([192, 0, 2, 1]) },
        update: false,
    };
    let id = st.exchange_id(now, &ask).expect("a client ID").client;
    let v = st.next_version();
    assert_eq!(st.clients.created(id, now, Bytes::from_static(b"reply"), v), None);
    id
}

fn open(st: &mut S, client: u64, file: &'static [u8]) {
    let (file, owner): (FileKey, _) = (Bytes::from_static(file), Bytes::from_static(b"owner"));
    st.files.open(&file, client, &owner, BOTH, 0, Some(1)).expect("an open");
}

/// Jumps: mostly some leases, sometimes a day, sometimes all there is.
fn jump() -> impl Strategy<Value = Millis> {
    prop_oneof![
        4 => 0..3 * LEASE,
        2 => (COURTESY_MS - 5)..(COURTESY_MS + 5),
        1 => (IDLE_MS - 5)..(IDLE_MS + 5),
        1 => any::<u64>(),
    ]
}

proptest! {
    #[test]
    fn who_renews_keeps_all_and_who_is_silent_keeps_it_for_the_time_of_courtesy(
        jumps in prop::collection::vec((jump(), any::<bool>()), 1..30),
    ) {
        let mut st = S::new(1, LEASE, Bounds::new(None));
        let mut now = 0;
        let (busy, silent, idle) =
            (client(&mut st, b"busy", now), client(&mut st, b"silent", now), client(&mut st, b"idle", now));
        open(&mut st, busy, b"a");
        open(&mut st, silent, b"b");
        let (mut renewed, mut silent_is_there, mut idle_is_there) = (0, true, true);
        for (by, wakes) in jumps {
            now = now.saturating_add(by);
            // The first thing that a client sends after the jump renews its lease, before time is looked at.
            st.clients.renew(busy, now);
            prop_assert!(!st.lapsed(busy, now));
            if wakes && silent_is_there {
                st.clients.renew(silent, now);
                renewed = now;
            }
            prop_assert_eq!(st.lapsed(silent, now), !silent_is_there || now - renewed > LEASE);
            st.tick(now);
            silent_is_there &= now - renewed <= COURTESY_MS;
            idle_is_there &= now <= IDLE_MS;
            prop_assert_eq!(st.files.opens_of(busy), 1);
            prop_assert_eq!(st.files.opens_of(silent), usize::from(silent_is_there), "after {} of silence", now - renewed);
            prop_assert_eq!(st.clients.get(silent).is_some(), silent_is_there);
            prop_assert_eq!(st.clients.get(idle).is_some(), idle_is_there);
        }
    }

    #[test]
    fn grace_ends_once_however_the_clock_jumps(jumps in prop::collection::vec(jump(), 1..30)) {
        let mut st = S::new(2, LEASE, Bounds::new(None));
        let waited_for = client(&mut st, b"before", 0);
        st.grace.begin([waited_for], LEASE);
        let mut now: Millis = 0;
        let mut over = false;
        for by in jumps {
            now = now.saturating_add(by);
            prop_assert_eq!(st.grace.active(now), !over, "nobody gets anything before the log knows that it is over");
            prop_assert_eq!(st.grace.is_over(now), !over && now >= LEASE);
            if st.grace.is_over(now) {
                st.end_grace(now);
                st.grace.ended();
                over = true;
            }
            prop_assert_eq!(st.grace.may_reclaim(now), !over);
        }
        prop_assert!(!over || !st.grace.active(0), "a clock that goes back begins no other");
    }

    /// Any times in any order: no overflow, no panic.
    #[test]
    fn no_time_is_too_early_or_too_late(times in prop::collection::vec(any::<u64>(), 1..30)) {
        let mut st = S::new(1, LEASE, Bounds::new(None));
        let mut ids = Vec::new();
        for (i, now) in times.into_iter().enumerate() {
            if i < 5 {
                ids.push(client(&mut st, [b"a", b"b", b"c", b"d", b"e"][i], now));
                open(&mut st, ids[i], b"f");
            }
            for id in &ids {
                let _ = st.lapsed(*id, now);
                let _ = st.must_wait_for_grace(*id, now);
                let _ = st.may_reclaim(*id, now);
                let _ = st.has_state(*id, now);
            }
            st.grace.begin(ids.first().copied(), now.saturating_add(LEASE));
            st.tick(now);
            st.tick_owners(now);
        }
    }
}
