//! One client that does one thing at a time, with the log: exactly one log flush per modifying
//! operation, none on the data disk outside checkpoints, and near the limit of the equation.
//!
//! The window ends before the first checkpoint (the server's and the filesystem's own come every
//! 5 s), so that every flush of the data disk in it would be one too many.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::Result;
use crate::measure::{Budget, Terms, Untarred, serial_untar_with};
use crate::net::Link;
use crate::rig::{Latency, Rig, RigOptions};
use crate::serial::{Action, Actor, Connect, Node, Session};
use crate::served::{Durability, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use std::time::{Duration, Instant};

/// The share of the limit that is claimed; and what no share may be above, or the limit would be none.
const SHARE: f64 = 0.7;
const SHARE_MAX: f64 = 1.05;

/// Files, unless chosen otherwise; the rounds that they are spread over, each with a new server, and the turns of a round; and the time
/// after which a round begins no more. Other work of the machine makes a term or a turn longer, never shorter: of each term the least
/// of all rounds makes the limit, and the quickest turn is held against it. A turn is about as long as what the terms are means of.
const FILES: u64 = 1000;
const ROUNDS: u64 = 8;
const TURNS: u64 = 4;
const WINDOW: Duration = Duration::from_secs(2);

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(choices.files.unwrap_or(FILES), progress))?
}

/// The terms by themselves, and the turns that followed.
struct Round {
    terms: Terms,
    turns: Vec<Untarred>,
    log_flushes: u64,
    disk_flushes: u64,
}

/// The least of each term.
fn least(rounds: &[Round]) -> Terms {
    let of = |term: fn(&Terms) -> f64| rounds.iter().map(|r| term(&r.terms)).fold(f64::INFINITY, f64::min);
    Terms {
        rtt_ms: of(|t| t.rtt_ms),
        log_write_ms: of(|t| t.log_write_ms),
        data_write_ms: of(|t| t.data_write_ms),
        syscalls_ms: of(|t| t.syscalls_ms),
    }
}

/// The share that the quickest turn reached of the limit that the least terms make.
fn share(rounds: &[Round]) -> f64 {
    let terms = least(rounds);
    let of = |taken: &Untarred| {
        let each = |n: u64| n as f64 / taken.files.max(1) as f64;
        let limit = terms.limit(each(taken.rpcs), each(taken.modifying_rpcs), terms.log_write_ms);
        taken.files as f64 / taken.seconds / limit
    };
    rounds.iter().flat_map(|round| &round.turns).map(of).fold(0.0, f64::max)
}

fn measure(files: u64, progress: Progress<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions::default())?;
    let link = Link::start(([127, 0, 0, 1], 9).into(), Duration::from_micros(200))?;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        progress(&format!("round {} of {ROUNDS}", round + 1));
        rounds.push(one_round(&mut rig, &link, files.div_ceil(ROUNDS * TURNS), round)?);
    }
    let sum = |of: fn(&Round) -> u64| rounds.iter().map(of).sum::<u64>() as f64;
    let turns = || rounds.iter().flat_map(|round| &round.turns);
    let of_turns = |of: fn(&Untarred) -> u64| turns().map(of).sum::<u64>().max(1) as f64;
    let seconds: f64 = turns().map(|turn| turn.seconds).sum();
    let (files, rpcs) = (of_turns(|t| t.files), of_turns(|t| t.rpcs));
    let modifying = of_turns(|t| t.modifying_rpcs);
    let (log_flushes, disk_flushes) = (sum(|r| r.log_flushes), sum(|r| r.disk_flushes));
    let terms = least(&rounds);
    let share = share(&rounds);
    let line = Row::new(
        "log",
        [
            ("files", files),
            ("files_per_s", files / seconds),
            ("limit_files_per_s", terms.limit(rpcs / files, modifying / files, terms.log_write_ms)),
            ("share", share),
            ("rpcs_per_file", rpcs / files),
            ("modifying_rpcs_per_file", modifying / files),
            ("log_flushes", log_flushes),
            ("disk_flushes", disk_flushes),
            ("us_per_rpc", seconds * 1e6 / rpcs),
        ],
    );
    let checks = vec![
        Check::exactly("log flushes per modifying operation", log_flushes / modifying, 1.0),
        Check::exactly("flushes of the data disk", disk_flushes, 0.0),
        Check::at_least("share of the limit of the equation", share, SHARE),
        Check::at_most("the same: more would say that the limit is none", share, SHARE_MAX),
    ];
    Ok(Findings { terms: Some(terms), lines: vec![line], checks, notes: Vec::new() })
}

/// The terms by themselves, then files one at a time against a server that has just started.
fn one_round(rig: &mut Rig, link: &Link, files: u64, round: u64) -> Result<Round> {
    let latency = Latency { data_flush: Duration::from_millis(10), log_flush: Duration::from_micros(50) };
    rig.format()?;
    rig.set_latency(latency)?;
    let terms = Terms::measure(rig, link)?;

    rig.format()?;
    // The server tries at its start which way of flushing is quicker on this device.
    rig.set_latency(latency)?;
    let log = rig.log_device()?.to_owned();
    let server = Served::start(&ServeOptions::new(&rig.export(), Some(&log), Durability::Log))?;
    link.retarget(server.addr());
    let mut session = Session::connect(&Connect::new(link.addr(), format!("serial-flushes-{round}")))?;
    let mut tar = Vec::new();
    let shape = Shape { files, ..Shape::default() };
    write_random(shape, &mut tar).map_err(|source| crate::Error::Io { what: "archive".into(), source })?;
    let (begun, mut turns, mut flushes) = (Instant::now(), Vec::new(), [0, 0]);
    for turn in 0..TURNS {
        let Some(time) = WINDOW.checked_sub(begun.elapsed()) else { break };
        let root = session.walk("/")?;
        let mut actor = Actor::new(session, root);
        let dir = format!("turn{turn}").into_bytes();
        actor.perform(&Action::Make { path: dir.clone(), node: Node::Dir, mode: 0o755 })?;
        let own = actor.handle(&dir)?;
        let mut actor = Actor::new(actor.into_session(), own);
        let before = rig.stats()?;
        turns.push(serial_untar_with(&mut actor, &tar[..], Budget { files, time })?);
        let did = rig.stats()?.since(&before);
        flushes = [flushes[0] + did.log.flushes, flushes[1] + did.data.flushes];
        session = actor.into_session();
    }
    rig.set_latency(Latency::default())?;
    drop(session);
    server.stop()?;

    Ok(Round { terms, turns, log_flushes: flushes[0], disk_flushes: flushes[1] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(slower: f64, seconds: f64) -> Round {
        let terms = Terms {
            rtt_ms: 0.2 * slower,
            log_write_ms: 0.1 * slower,
            data_write_ms: 10.0 * slower,
            syscalls_ms: 0.05 * slower,
        };
        let taken = Untarred { files: 100, seconds, rpcs: 600, modifying_rpcs: 500, complete: true };
        let slow = Untarred { seconds: seconds * 2.0, ..taken };
        Round { terms, turns: vec![slow, taken], log_flushes: 1000, disk_flushes: 0 }
    }

    #[test]
    fn terms_that_were_held_up_in_a_round_do_not_raise_the_share() {
        // The limit is 1.2 + 0.5 + 0.05 ms for a file; the quickest turn took 2.5 ms.
        let quiet = share(&[round(1.0, 0.25), round(1.0, 0.3)]);
        assert!((quiet - 0.7).abs() < 1e-9, "{quiet}");
        assert_eq!(share(&[round(1.0, 0.25), round(2.0, 0.3)]), quiet);
        assert_eq!(share(&[round(2.0, 0.25), round(1.0, 0.3)]), quiet);
    }
}
