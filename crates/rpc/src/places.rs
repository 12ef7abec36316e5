//! Which connections stay when there are more than places, as a pure decision.
//!
//! - An address that no export names (an outsider) has few places, and so have all outsiders together. A new outsider
//!   takes the place of the oldest. So NULL is answered whatever other outsiders do, and no other client is touched.
//! - A client at its own limit gets the place of a connection of its own that was idle for long, or none.
//! - Where all places are taken, these make room for a named newcomer, in this order: outsiders; idle connections
//!   without state, of the client that has most the one unused longest; connections of clients that hold state or are
//!   busy, and have many.
//! - A client that holds state always keeps a few.

use crate::limits::{OWN_IDLE_MIN_MS, PLACES_KEPT};
use std::collections::HashMap;
use std::net::IpAddr;

/// What is known of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// No export names it: it gets only answers to NULL, and refusals.
    Outsider,
    /// It must be looked up.
    Unknown,
    Named,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) id: u64,
    pub(crate) client: IpAddr,
    pub(crate) standing: Standing,
    /// When the last whole record arrived, or the connection itself; milliseconds.
    pub(crate) active_ms: u64,
    /// Calls of it are being served.
    pub(crate) busy: bool,
    pub(crate) holds: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Newcomer {
    pub(crate) client: IpAddr,
    pub(crate) standing: Standing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) all: usize,
    pub(crate) outsiders: usize,
    pub(crate) client: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) all: usize,
    pub(crate) client: usize,
    pub(crate) outsiders: usize,
    pub(crate) outsider: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    Free,
    /// This connection is closed to make room.
    InPlaceOf(u64),
    /// The client is at its limit.
    ClientFull,
    Full,
}

/// Decides whether a newcomer gets a place, and whose. `seen` is called only where places are short.
pub(crate) fn admit(
    new: Newcomer,
    now_ms: u64,
    open: Open,
    places: Places,
    seen: impl FnOnce() -> Vec<Seen>,
) -> Admitted {
    let Places { all, client, outsiders, outsider } = places;
    if new.standing == Standing::Outsider {
        let own = open.client >= outsider.min(client);
        if !own && open.outsiders < outsiders && open.all < all {
            return Admitted::Free;
        }
        let of = |s: &Seen| s.standing == Standing::Outsider && (!own || s.client == new.client);
        return oldest(seen(), of).map_or(Admitted::Full, Admitted::InPlaceOf);
    }
    if open.client >= client {
        let idle = |s: &Seen| s.client == new.client && idle_for_long(s, now_ms);
        return oldest(seen(), idle).map_or(Admitted::ClientFull, Admitted::InPlaceOf);
    }
    if open.all < all {
        return Admitted::Free;
    }
    let seen = seen();
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for s in &seen {
        *counts.entry(s.client).or_default() += 1;
    }
    let fair = 2 * (open.client + 1);
    let rank = |s: &Seen| {
        let has = counts.get(&s.client).copied().unwrap_or(0);
        let many = has > PLACES_KEPT.max(fair);
        Some(match s.standing {
            Standing::Outsider => 0,
            // A client makes room for itself only with a connection that was idle for long.
            _ if s.client == new.client && !idle_for_long(s, now_ms) => return None,
            Standing::Unknown if !s.busy && !s.holds => 1,
            Standing::Named if new.standing < Standing::Named => return None,
            Standing::Named if !s.busy && !s.holds => 2,
            Standing::Named if !s.busy && many => 3,
            _ if many => 4,
            _ => return None,
        })
    };
    let ranked = seen.iter().filter_map(|s| {
        let has = counts.get(&s.client).copied().unwrap_or(0);
        Some(((rank(s)?, usize::MAX - has, s.active_ms, s.id), s.id))
    });
    ranked.min().map_or(Admitted::Full, |(_, id)| Admitted::InPlaceOf(id))
}

fn idle_for_long(s: &Seen, now_ms: u64) -> bool {
    !s.busy && now_ms.saturating_sub(s.active_ms) >= OWN_IDLE_MIN_MS
}

/// Of the client that has most of these connections, the one unused longest.
fn oldest(seen: Vec<Seen>, of: impl Fn(&Seen) -> bool) -> Option<u64> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    let these: Vec<Seen> = seen.into_iter().filter(of).collect();
    for s in &these {
        *counts.entry(s.client).or_default() += 1;
    }
    let has = |s: &Seen| counts.get(&s.client).copied().unwrap_or(0);
    these.iter().min_by_key(|s| (usize::MAX - has(s), s.active_ms, s.id)).map(|s| s.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACES: Places = Places { all: 64, client: 48, outsiders: 8, outsider: 2 };

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn named(id: u64, client: u8) -> Seen {
        Seen { id, client: ip(client), standing: Standing::Named, active_ms: id, busy: false, holds: false }
    }

    fn comes(client: u8, standing: Standing, seen: &[Seen]) -> Admitted {
        let client = ip(client);
        let open = Open {
            all: seen.len(),
            outsiders: seen.iter().filter(|s| s.standing == Standing::Outsider).count(),
            client: seen.iter().filter(|s| s.client == client).count(),
        };
        admit(Newcomer { client, standing }, 1000, open, PLACES, || seen.to_vec())
    }

    #[test]
    fn outsiders_take_the_places_of_outsiders_only() {
        let mut seen: Vec<Seen> = (0..56).map(|n| named(n, 1 + n as u8)).collect();
        for n in 100..108 {
            assert_eq!(comes(n as u8, Standing::Outsider, &seen), Admitted::Free);
            seen.push(Seen { standing: Standing::Outsider, ..named(n, n as u8) });
        }
        assert_eq!(comes(200, Standing::Outsider, &seen), Admitted::InPlaceOf(100), "the oldest");
        assert_eq!(comes(201, Standing::Named, &seen), Admitted::InPlaceOf(100), "before any other");
        let two = [named(1, 9), named(2, 9)].map(|s| Seen { standing: Standing::Outsider, ..s });
        assert_eq!(comes(9, Standing::Outsider, &two), Admitted::InPlaceOf(1), "its own");
        let full: Vec<Seen> = (0..64).map(|n| named(n, 1 + n as u8)).collect();
        assert_eq!(comes(200, Standing::Outsider, &full), Admitted::Full);
    }

    #[test]
    fn the_client_with_most_connections_makes_room_and_who_holds_state_keeps_some() {
        let mut seen: Vec<Seen> = (0..32).map(|n| named(n, 1)).collect();
        seen.extend((32..64).map(|n| named(n, n as u8)));
        assert_eq!(comes(200, Standing::Named, &seen), Admitted::InPlaceOf(0));
        // All hold state, and are busy: still the one that has so many.
        for s in &mut seen {
            (s.holds, s.busy) = (true, true);
        }
        assert_eq!(comes(200, Standing::Named, &seen), Admitted::InPlaceOf(0));
        // Who holds state and has no more than others stays; one that holds none makes room, though it came last.
        for (n, s) in seen.iter_mut().enumerate() {
            (s.client, s.busy) = (ip(n as u8), false);
        }
        assert_eq!(comes(200, Standing::Named, &seen), Admitted::Full);
        seen[63].holds = false;
        assert_eq!(comes(200, Standing::Named, &seen), Admitted::InPlaceOf(63));
    }

    #[test]
    fn a_client_at_its_limit_gets_only_what_it_has_not_used_for_long() {
        let mut seen: Vec<Seen> = (0..48).map(|n| Seen { active_ms: 900, ..named(n, 1) }).collect();
        assert_eq!(comes(1, Standing::Named, &seen), Admitted::ClientFull);
        seen[7].active_ms = 0;
        let at = |now| {
            let open = Open { all: 48, outsiders: 0, client: 48 };
            admit(Newcomer { client: ip(1), standing: Standing::Named }, now, open, PLACES, || seen.clone())
        };
        assert_eq!(at(OWN_IDLE_MIN_MS - 1), Admitted::ClientFull);
        assert_eq!(at(OWN_IDLE_MIN_MS), Admitted::InPlaceOf(7));
    }

    proptest! {
        /// Whatever comes in whatever order: nobody is over; an outsider displaces outsiders only; who holds state keeps a
        /// few; a named client with few connections is refused only where each place is of one that keeps it.
        #[test]
        fn places_are_kept(
            steps in prop::collection::vec((0u8..30, 0u8..3, any::<bool>(), any::<bool>()), 1..400),
        ) {
            let mut seen: Vec<Seen> = Vec::new();
            for (id, (who, class, busy, holds)) in steps.into_iter().enumerate() {
                let standing = match (class, who) {
                    (0, _) => Standing::Outsider,
                    (_, 0..5) => Standing::Unknown,
                    _ => Standing::Named,
                };
                let client = if standing == Standing::Outsider { 100 + who } else { who };
                match comes(client, standing, &seen) {
                    Admitted::Free => {}
                    Admitted::InPlaceOf(gone) => {
                        let at = seen.iter().position(|s| s.id == gone).expect("it is open");
                        let old = seen.remove(at);
                        prop_assert!(old.standing <= standing);
                        let left = seen.iter().filter(|s| s.client == old.client).count();
                        prop_assert!(!(old.holds || old.busy) || old.standing == Standing::Outsider || left >= PLACES_KEPT);
                    }
                    Admitted::ClientFull => {
                        prop_assert_eq!(seen.iter().filter(|s| s.client == ip(client)).count(), PLACES.client);
                        continue;
                    }
                    Admitted::Full => {
                        prop_assert!(seen.len() == PLACES.all);
                        let free = |s: &Seen| !s.busy && !s.holds && s.client != ip(client);
                        prop_assert!(standing != Standing::Named || !seen.iter().any(free));
                        continue;
                    }
                }
                let id = id as u64;
                seen.push(Seen { id, client: ip(client), standing, active_ms: id, busy, holds });
                prop_assert!(seen.len() <= PLACES.all);
                let outsiders = seen.iter().filter(|s| s.standing == Standing::Outsider);
                prop_assert!(outsiders.count() <= PLACES.outsiders);
            }
        }
    }
}
