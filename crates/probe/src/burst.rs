//! Keeps calls in flight and measures their times.

use crate::ask::{Answer, Ask, Calls};
use crate::limits::{LATER_PATIENCE, LATER_PAUSE, LATERS_MAX};
use landfast_verify::error::{Error, Meaning, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Burst {
    /// From the first call to the last reply.
    pub took: Duration,
    /// Calls answered with "later" (NFS4ERR_DELAY, JUKEBOX) and not repeated.
    pub later: u64,
}

/// When to stop making calls.
#[derive(Debug, Clone, Copy)]
pub struct Until<'a> {
    pub time: Instant,
    pub stop: &'a AtomicBool,
}

impl Until<'_> {
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire) || Instant::now() >= self.time
    }
}

/// Keeps a call in flight in each of the first `lanes` lanes for as long as `next` supplies calls. `done` receives
/// each reply with its time. After a refusal it makes no further call, but still collects the replies to those in
/// flight.
/// Errors: The first refusal, or a lost server.
pub fn burst(
    calls: &mut dyn Calls,
    lanes: usize,
    until: Until<'_>,
    next: &mut dyn FnMut(usize) -> Option<Ask>,
    done: &mut dyn FnMut(usize, &Ask, Answer, Duration),
) -> Result<Burst> {
    let mut under_way: Vec<Option<(u32, Instant, Ask)>> = vec![None; lanes.min(calls.lanes())];
    let started = Instant::now();
    let mut burst = Burst::default();
    let mut failed = None;
    loop {
        for (lane, place) in under_way.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
            if failed.is_some() || until.is_over() {
                break;
            }
            if let Some(ask) = next(lane) {
                let at = Instant::now();
                *place = Some((calls.submit(lane, &ask)?, at, ask));
            }
        }
        if under_way.iter().all(Option::is_none) {
            burst.took = started.elapsed();
            return failed.map_or(Ok(burst), Err);
        }
        let (xid, outcome) = calls.next_reply()?;
        let is = |place: &Option<(u32, Instant, Ask)>| place.as_ref().is_some_and(|(x, ..)| *x == xid);
        let Some(lane) = under_way.iter().position(is) else { continue };
        let Some((_, at, ask)) = under_way[lane].take() else { continue };
        let took = at.elapsed();
        match calls.answer(lane, &ask, outcome) {
            Ok(answer) => done(lane, &ask, answer, took),
            Err(e) if e.meaning() == Some(Meaning::Later) && burst.later < LATERS_MAX => burst.later += 1,
            Err(e) => drop(failed.get_or_insert(e)),
        }
    }
}

/// Makes one call in the first lane with nothing else in flight, and repeats it while the server says "later".
/// Returns the reply, the time of the successful attempt, and the number of the others.
/// Errors: A refusal, "later" for too long, or a lost server.
pub fn one(calls: &mut dyn Calls, stop: &AtomicBool, ask: &Ask) -> Result<(Answer, Duration, u64)> {
    let since = Instant::now();
    let mut later = 0;
    loop {
        let at = Instant::now();
        let xid = calls.submit(0, ask)?;
        let outcome = loop {
            match calls.next_reply()? {
                (to, outcome) if to == xid => break outcome,
                _ => {}
            }
        };
        let took = at.elapsed();
        match calls.answer(0, ask, outcome) {
            Ok(answer) => return Ok((answer, took, later)),
            Err(e) if is_later(&e) && since.elapsed() < LATER_PATIENCE && !stop.load(Ordering::Acquire) => {
                later += 1;
                // The client waits and retries (RFC 8881 section 15.1.1.3).
                std::thread::sleep(LATER_PAUSE);
            }
            Err(e) => return Err(e),
        }
    }
}

/// Whether the server asks to retry later.
pub fn is_later(e: &Error) -> bool {
    e.meaning() == Some(Meaning::Later)
}
