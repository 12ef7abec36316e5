//! An honest client beside one of another address that asks for 64 MiB and reads no reply, and beside one that floods the server with
//! requests.
//!
//! A second server runs beside, with a client of its own and nobody else. The processors are the same, so whatever the neighbour and the
//! burdened server take from everybody, that client misses, too. What the honest client waits longer than that one is what the server
//! makes it wait for its neighbour.

use crate::error::{Context, Error, Result};
use crate::experiments::{Check, Findings, Progress, Row};
use crate::latencies::OneAtATime;
use crate::load::ATTRS;
use crate::memory_disk::MemoryDisk;
use crate::neighbour::{Flood, Unread};
use crate::served::{Durability, ServeOptions, Served};
use landfast_nfs::v4::args::WriteArgs;
use landfast_nfs::v4::{ArgOp, FileHandle, StableHow, Stateid};
use landfast_xdr::Bytes;
use std::net::Ipv4Addr;
use std::time::Instant;

const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const FLOOD_CONNECTIONS: u64 = 4;
const FILE: &str = "file";
const FILE_BYTES: usize = 1 << 20;
const LOG_BYTES: u64 = 64 << 20;

/// Operations of each kind in a round, and rounds. In each round the two clients follow each other, so what else the machine does is about the same for
/// both; the median of the rounds counts.
const OPERATIONS: u64 = 500;
const ROUNDS: u64 = 15;

/// Clients that are served like the one that is measured: with it more than the server has threads for clients of their own.
const COMPANIONS: usize = 3;
/// Calls with which a client shows that it makes one at a time.
const CALLS_OF_COMPANIONS: u64 = 100;

/// The claim: an honest client's median latency, as a multiple of that on the server beside in the same round.
const SLOW_MAX: f64 = 1.1;
/// The same with a flood, for GETATTR and for WRITE FILE_SYNC. The goal is 1.1 for both; the rest is the spread of measurements on two processors.
const FLOOD_MAX: [f64; 2] = [1.15, 1.2];

#[derive(Clone, Copy, PartialEq)]
enum Neighbour {
    None,
    Unread,
    Flood,
    /// A flood, while more clients than have threads of their own make one call at a time.
    FloodOfMany,
}

impl Neighbour {
    fn name(self) -> &'static str {
        match self {
            Neighbour::None => "no neighbour",
            Neighbour::Unread => "a neighbour that reads no reply",
            Neighbour::Flood => "a neighbour that floods",
            Neighbour::FloodOfMany => "one that floods, beside four clients",
        }
    }

    fn floods(self) -> bool {
        matches!(self, Neighbour::Flood | Neighbour::FloodOfMany)
    }

    fn companions(self) -> usize {
        if self == Neighbour::FloodOfMany { COMPANIONS } else { 0 }
    }
}

/// A server with a client.
struct Side {
    server: Served,
    client: OneAtATime,
    companions: Vec<OneAtATime>,
    file: FileHandle,
    getattr: Vec<f64>,
    write: Vec<f64>,
}

impl Side {
    fn start(disk: &MemoryDisk, name: &str) -> Result<Side> {
        let dir = disk.export().join(name);
        std::fs::create_dir(&dir).context(|| dir.display().to_string())?;
        let file = dir.join(FILE);
        std::fs::write(&file, vec![7; FILE_BYTES]).context(|| file.display().to_string())?;
        let log = disk.scratch().join(format!("{name}.log"));
        let server = Served::start(&ServeOptions {
            log_bytes: Some(LOG_BYTES),
            // From a file, which lets clients of every address in.
            limits: vec![("clients", 4096)],
            ..ServeOptions::new(&dir, Some(&log), Durability::Log)
        })?;
        let mut client = OneAtATime::connect(server.addr(), "honest")?;
        let file = client.0.walk(FILE)?;
        let (companions, getattr, write) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Side { server, client, companions, file, getattr, write })
    }

    fn have_companions(&mut self, number: usize) -> Result<()> {
        self.companions.truncate(number);
        while self.companions.len() < number {
            let owner = format!("companion {}", self.companions.len());
            self.companions.push(OneAtATime::connect(self.server.addr(), &owner)?);
        }
        Ok(())
    }

    fn round(&mut self) -> Result<()> {
        let file = self.file.clone();
        let getattr = |_| vec![ArgOp::Putfh(file.clone()), ArgOp::Getattr(ATTRS)];
        for companion in &mut self.companions {
            companion.times(CALLS_OF_COMPANIONS, getattr)?;
        }
        self.getattr.push(self.client.times(OPERATIONS, getattr)?.us(0.5));
        let data = Bytes::from(vec![7; 4096]);
        let write = |_| {
            let (stateid, stable, data) = (Stateid::ANONYMOUS, StableHow::FileSync, data.clone());
            let write = WriteArgs { stateid, offset: 0, stable, data };
            vec![ArgOp::Putfh(file.clone()), ArgOp::Write(write), ArgOp::Getattr(ATTRS)]
        };
        self.write.push(self.client.times(OPERATIONS, write)?.us(0.5));
        Ok(())
    }

    /// The rounds' medians of GETATTR and WRITE; begins anew.
    fn medians(&mut self) -> [Vec<f64>; 2] {
        [std::mem::take(&mut self.getattr), std::mem::take(&mut self.write)]
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(super) fn measure(_: Option<u64>, progress: Progress<'_>) -> Result<Findings> {
    let disk = MemoryDisk::new()?;
    let (mut honest, mut beside) = (Side::start(&disk, "burdened")?, Side::start(&disk, "beside")?);
    let (mut lines, mut checks) = (Vec::new(), Vec::new());
    for neighbour in [Neighbour::None, Neighbour::Unread, Neighbour::Flood, Neighbour::FloodOfMany] {
        progress(neighbour.name());
        honest.server.forget_peak()?;
        honest.have_companions(neighbour.companions())?;
        beside.have_companions(neighbour.companions())?;
        let addr = honest.server.addr();
        let unread =
            (neighbour == Neighbour::Unread).then(|| Unread::start(NEIGHBOUR, addr, FILE)).transpose()?;
        let flood =
            neighbour.floods().then(|| Flood::start(NEIGHBOUR, addr, FILE, FLOOD_CONNECTIONS)).transpose()?;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            honest.round()?;
            beside.round()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        drop(unread);
        let answered = flood.map(Flood::end).transpose()?.unwrap_or(0);
        let (ours, theirs) = (honest.medians(), beside.medians());
        let ratio = |n: usize| median(std::iter::zip(&ours[n], &theirs[n]).map(|(a, b)| a / b).collect());
        let ratios = [ratio(0), ratio(1)];
        let (ours, theirs) = (ours.map(median), theirs.map(median));
        lines.push(Row::new(
            neighbour.name(),
            [
                ("getattr_p50_us", ours[0]),
                ("beside_getattr_p50_us", theirs[0]),
                ("getattr_ratio", ratios[0]),
                ("write_p50_us", ours[1]),
                ("beside_write_p50_us", theirs[1]),
                ("write_ratio", ratios[1]),
                ("neighbour_requests_per_s", answered as f64 / seconds),
                ("peak_rss_mib", super::mebibytes(honest.server.peak_rss_bytes().unwrap_or(0))),
            ],
        ));
        let bound = match neighbour {
            Neighbour::None => continue,
            Neighbour::Unread => [SLOW_MAX; 2],
            Neighbour::Flood | Neighbour::FloodOfMany => FLOOD_MAX,
        };
        for (what, ratio, bound) in
            [("GETATTR", ratios[0], bound[0]), ("WRITE FILE_SYNC", ratios[1], bound[1])]
        {
            let what = format!("{}: median latency of {what}, times that beside", neighbour.name());
            checks.push(Check::at_most(&what, ratio, bound));
        }
    }
    for side in [honest, beside] {
        drop((side.client, side.companions));
        side.server.stop().map_err(|e| Error::Child { role: "server", what: e.to_string() })?;
    }
    Ok(Findings { lines, checks, ..Findings::default() })
}
