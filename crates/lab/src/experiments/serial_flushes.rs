//! One client that does one thing at a time, with the log: exactly one log flush per modifying
//! operation, none on the data disk outside checkpoints, and near the limit of the equation.
//!
//! The window ends before the first checkpoint (the server's and the filesystem's own come every
//! 5 s), so that every flush of the data disk in it would be one too many.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::Result;
use crate::measure::{Budget, Terms, serial_untar_with};
use crate::net::Link;
use crate::rig::{Latency, Rig, RigOptions};
use crate::serial::{Actor, Connect, Session};
use crate::served::{Durability, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use std::time::Duration;

/// The share of the limit that is claimed.
const SHARE: f64 = 0.7;

/// Files, unless chosen otherwise; the rounds that they are spread over; and the time after which a round begins
/// no more. The limit's terms are measured anew before each round, and each round is held against its own limit: on a
/// machine that has other work both change from one second to the next. The round that was disturbed least counts.
const FILES: u64 = 1000;
const ROUNDS: u64 = 8;
const WINDOW: Duration = Duration::from_secs(2);

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(choices.files.unwrap_or(FILES), progress))?
}

#[derive(Default)]
struct Sum {
    files: f64,
    seconds: f64,
    /// What the equation allows for the same files.
    limit_seconds: f64,
    /// The largest share of its limit that a round reached.
    share: f64,
    rpcs: f64,
    modifying: f64,
    log_flushes: f64,
    disk_flushes: f64,
}

fn measure(files: u64, progress: Progress<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions::default())?;
    let link = Link::start(([127, 0, 0, 1], 9).into(), Duration::from_micros(200))?;
    let mut sum = Sum::default();
    let mut terms = None;
    for round in 0..ROUNDS {
        progress(&format!("round {} of {ROUNDS}", round + 1));
        terms = Some(one_round(&mut rig, &link, files.div_ceil(ROUNDS), round, &mut sum)?);
    }
    let per_file = |x: f64| x / sum.files.max(1.0);
    let line = Row::new(
        "log",
        [
            ("files", sum.files),
            ("files_per_s", sum.files / sum.seconds),
            ("limit_files_per_s", sum.files / sum.limit_seconds),
            ("share_of_all_rounds", sum.limit_seconds / sum.seconds),
            ("rpcs_per_file", per_file(sum.rpcs)),
            ("modifying_rpcs_per_file", per_file(sum.modifying)),
            ("log_flushes", sum.log_flushes),
            ("disk_flushes", sum.disk_flushes),
            ("us_per_rpc", sum.seconds * 1e6 / sum.rpcs.max(1.0)),
        ],
    );
    let flushes = sum.log_flushes / sum.modifying.max(1.0);
    let checks = vec![
        Check::exactly("log flushes per modifying operation", flushes, 1.0),
        Check::exactly("flushes of the data disk", sum.disk_flushes, 0.0),
        Check::at_least("share of the limit of the equation", sum.share, SHARE),
    ];
    Ok(Findings { terms, lines: vec![line], checks, notes: Vec::new() })
}

/// The terms by themselves, then files one at a time against a server that has just started.
fn one_round(rig: &mut Rig, link: &Link, files: u64, round: u64, sum: &mut Sum) -> Result<Terms> {
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
    let root = session.walk("/")?;
    let mut actor = Actor::new(session, root);
    let mut tar = Vec::new();
    let shape = Shape { files, ..Shape::default() };
    write_random(shape, &mut tar).map_err(|source| crate::Error::Io { what: "archive".into(), source })?;
    let before = rig.stats()?;
    let taken = serial_untar_with(&mut actor, &tar[..], Budget { files, time: WINDOW })?;
    let did = rig.stats()?.since(&before);
    rig.set_latency(Latency::default())?;
    drop(actor);
    server.stop()?;

    let n = taken.files.max(1) as f64;
    let limit = terms.limit(taken.rpcs as f64 / n, taken.modifying_rpcs as f64 / n, terms.log_write_ms);
    sum.files += n;
    sum.seconds += taken.seconds;
    sum.limit_seconds += n / limit;
    sum.share = sum.share.max(n / taken.seconds / limit);
    sum.rpcs += taken.rpcs as f64;
    sum.modifying += taken.modifying_rpcs as f64;
    sum.log_flushes += did.log.flushes as f64;
    sum.disk_flushes += did.data.flushes as f64;
    Ok(terms)
}
