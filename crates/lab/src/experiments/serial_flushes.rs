//! One client that does one thing at a time, with the log: exactly one log flush per modifying
//! operation, none on the data disk outside checkpoints, and near the limit of the equation.
//!
//! The window ends before the first checkpoint (the server's and the filesystem's own come every
//! 5 s), so that every flush of the data disk in it would be one too many.

use super::{Check, Choices, Findings, Hear, Line, Relation};
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

/// Files, unless chosen otherwise, and the time after which no more are begun.
const FILES: u64 = 1000;
const WINDOW: Duration = Duration::from_secs(3);

pub(super) fn run(choices: &Choices, hear: Hear<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(choices.files.unwrap_or(FILES), hear))?
}

fn measure(files: u64, hear: Hear<'_>) -> Result<Findings> {
    hear("measuring the disks and the network by themselves");
    let mut rig = Rig::new(&RigOptions::default())?;
    let latency = Latency { data_flush: Duration::from_millis(10), log_flush: Duration::from_micros(50) };
    let link = Link::start(([127, 0, 0, 1], 9).into(), Duration::from_micros(200))?;
    rig.format()?;
    rig.set_latency(latency)?;
    let terms = Terms::measure(&rig, &link)?;

    hear("one file at a time");
    rig.format()?;
    // The server tries at its start which way of flushing is quicker on this device.
    rig.set_latency(latency)?;
    let log = rig.log_device()?.to_owned();
    let server = Served::start(&ServeOptions::new(&rig.export(), Some(&log), Durability::Log))?;
    link.retarget(server.addr());
    let mut session = Session::connect(&Connect::new(link.addr(), "serial-flushes"))?;
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
    let modifying = taken.modifying_rpcs.max(1) as f64;
    let per_s = n / taken.seconds;
    let (rpcs, synchronous) = (taken.rpcs as f64 / n, modifying / n);
    let limit = terms.limit(rpcs, synchronous, terms.log_write_ms);
    let line = Line::new(
        "log",
        [
            ("files", n),
            ("files_per_s", per_s),
            ("limit_files_per_s", limit),
            ("rpcs_per_file", rpcs),
            ("modifying_rpcs_per_file", synchronous),
            ("log_flushes", did.log.flushes as f64),
            ("disk_flushes", did.data.flushes as f64),
            ("us_per_rpc", taken.seconds * 1e6 / taken.rpcs.max(1) as f64),
        ],
    );
    let checks = vec![
        Check::new(
            "log flushes per modifying operation",
            did.log.flushes as f64 / modifying,
            Relation::Exactly,
            1.0,
        ),
        Check::new("flushes of the data disk", did.data.flushes as f64, Relation::Exactly, 0.0),
        Check::new("share of the limit of the equation", per_s / limit, Relation::AtLeast, SHARE),
    ];
    Ok(Findings { terms: Some(terms), lines: vec![line], checks, notes: Vec::new() })
}
