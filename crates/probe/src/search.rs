//! Finds out how many operations a server accepts in one COMPOUND, whatever it promises.

use crate::limits::{OPERATIONS_MAX, SEARCH_PATIENCE, SEARCH_SESSIONS_MAX};
use landfast_nfs::v4::ArgOp;
use landfast_verify::Target;
use landfast_verify::blocking::v4::Client;
use landfast_verify::error::{Error, Result};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// The limit in the server's reply to CREATE_SESSION (versions 4.1 and 4.2).
    pub promised: Option<u32>,
    /// The number that it accepted, SEQUENCE included.
    pub taken: u32,
    /// It may accept more; larger numbers were not tried.
    pub at_least: bool,
    /// Its answer to a larger COMPOUND.
    pub refusal: Option<String>,
}

/// Decides which number to try next. No I/O.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    taken: u32,
    /// The smallest number that was refused.
    refused: u32,
    cap: u32,
    promised: Option<u32>,
}

impl Search {
    /// `taken` operations are known to be accepted. Numbers above `cap` are not tried.
    pub fn new(taken: u32, promised: Option<u32>, cap: u32) -> Search {
        let cap = cap.max(taken);
        Search { taken, refused: cap.saturating_add(1), cap, promised }
    }

    /// The next number to try. `None`: finished.
    pub fn next(&self) -> Option<u32> {
        let open = |n: u32| n > self.taken && n < self.refused;
        if self.refused - self.taken <= 1 {
            return None;
        }
        // Most servers keep their promise. Those that do not often have no limit at all.
        let likely = [self.promised, self.promised.map(|p| p.saturating_add(1)), Some(self.cap)];
        let likely =
            likely.into_iter().flatten().find(|n| open(*n) && (*n < self.cap || self.refused > self.cap));
        Some(likely.unwrap_or(self.taken + (self.refused - self.taken) / 2))
    }

    pub fn tried(&mut self, n: u32, taken: bool) {
        match taken {
            true => self.taken = self.taken.max(n),
            false => self.refused = self.refused.min(n),
        }
    }

    pub fn taken(&self) -> u32 {
        self.taken
    }

    pub fn at_cap(&self) -> bool {
        self.taken >= self.cap
    }
}

/// Every server accepts this many.
const FEW: u32 = 3;

/// Runs the search with sessions of its own. Fails if there is no session, or if a few operations are refused.
pub fn operations(target: &Target, minor: u32, stop: &AtomicBool) -> Result<Operations> {
    let mut client = crate::v4::client(target, minor, SEARCH_PATIENCE)?;
    let granted = client.session.granted();
    let promised = granted.map(|g| g.max_operations);
    // An operation without arguments takes four bytes, its result eight.
    let fits = granted.map_or(u32::MAX, |g| {
        (g.max_request_size.saturating_sub(512) / 4).min(g.max_response_size.saturating_sub(512) / 8)
    });
    let mut search = Search::new(FEW, promised, OPERATIONS_MAX.min(fits));
    let (mut refusal, mut sessions) = (None, 1);
    ask(&mut client, FEW)?;
    while let Some(n) = search.next().filter(|_| !stop.load(Ordering::Acquire)) {
        match ask(&mut client, n) {
            Ok(done) if done >= n => search.tried(n, true),
            // Linux's server (6.1) executes as many as it accepts and ignores the others.
            Ok(done) => {
                search.tried(done.max(FEW), true);
                search.tried(n, false);
                refusal = Some(format!("of {n} it executes {done} and says nothing of the others"));
            }
            Err(e) => {
                search.tried(n, false);
                refusal = Some(e.to_string());
                if e.is_gone() || (!is_operations(&e) && !regain(&mut client)) {
                    sessions += 1;
                    if sessions > SEARCH_SESSIONS_MAX {
                        break;
                    }
                    leave(&mut client);
                    client = crate::v4::client(target, minor, SEARCH_PATIENCE)?;
                }
            }
        }
    }
    leave(&mut client);
    Ok(Operations { promised, taken: search.taken(), at_least: search.at_cap(), refusal })
}

/// Whether a single operation was refused. Then it is known whether the SEQUENCE before it counted.
fn is_operations(e: &Error) -> bool {
    matches!(e, Error::Refused { op, .. } if op == "SEQUENCE" || op == "PUTROOTFH")
}

/// After a COMPOUND was refused as a whole: brings the slot's sequence number in line with the server's again.
/// Returns whether that worked.
fn regain(client: &mut Client) -> bool {
    if client.session.minor() == 0 {
        return true;
    }
    // If it did not count, the next call uses the same number. If it counted, the one after that is right.
    client.session.not_counted(0);
    match ask(client, FEW) {
        Ok(_) => true,
        Err(e) if e.is_gone() => false,
        Err(e) => {
            if matches!(&e, Error::Refused { op, .. } if op == "SEQUENCE") {
                drop(client.session.sequence(0));
            }
            ask(client, FEW).is_ok()
        }
    }
}

fn leave(client: &mut Client) {
    landfast_verify::blocking::nfs::Nfs::leave(client);
}

/// Sends a COMPOUND of `n` operations without effect, SEQUENCE included. Returns how many were executed.
fn ask(client: &mut Client, n: u32) -> Result<u32> {
    let before = u32::from(client.session.minor() > 0);
    let done = client.session.compound(vec![ArgOp::Putrootfh; n.saturating_sub(before) as usize])?;
    Ok(u32::try_from(done.len()).unwrap_or(u32::MAX).saturating_add(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_limit_is_found(limit in 3u32..10_000, promised in prop::option::of(0u32..10_000), cap in 3u32..5000) {
            let mut search = Search::new(FEW, promised, cap);
            let mut tries = 0;
            while let Some(n) = search.next() {
                prop_assert!(n > FEW && n <= cap);
                search.tried(n, n <= limit);
                tries += 1;
                prop_assert!(tries <= 16, "{search:?}");
            }
            prop_assert_eq!(search.taken(), limit.min(cap).max(FEW));
            prop_assert_eq!(search.at_cap(), limit >= cap);
        }
    }

    #[test]
    fn who_keeps_a_promise_is_asked_twice() {
        let mut search = Search::new(FEW, Some(50), 4096);
        assert_eq!(search.next(), Some(50));
        search.tried(50, true);
        assert_eq!(search.next(), Some(51));
        search.tried(51, false);
        assert_eq!((search.next(), search.taken()), (None, 50));
    }
}
