//! Processor time for an operation, beside nfs-ganesha: the same client program, the same directory (on an ext4 in
//! memory), both servers at once, in short turns.
//!
//! Nothing here waits for a disk: the filesystem's image and Landfast's log are files in memory. Landfast does all the work that
//! its promise needs (records, checksums, group commit); ganesha makes none of its metadata stable. Other work of the machine
//! slows both, and each is idle while the other has its turn. The quickest turn of each server counts, because a shared machine
//! makes turns slower, never quicker. Both have as many turns, whatever these show.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Error, Result};
use crate::load::{Kind, Load};
use crate::memory_disk::MemoryDisk;
use crate::peers::ganesha::{self, Ganesha};
use std::net::SocketAddr;
use std::time::Duration;

/// Kinds of operation, their number in all rounds, and the claim: at least so many times ganesha's operations per second of
/// processor time.
const KINDS: [(Kind, u64, f64); 5] = [
    (Kind::Getattr, 64_000, 2.0),
    (Kind::Lookup, 64_000, 2.0),
    (Kind::Read4k, 64_000, 2.0),
    (Kind::Readdirplus, 1_280, 2.0),
    (Kind::CreateWriteSetattr, 12_800, 1.3),
];

const IN_FLIGHT: u64 = 16;

/// Turns of each server with each kind of operation, and with the streams.
const ROUNDS: u64 = 8;
const STREAM_ROUNDS: u64 = 4;

/// Bytes streamed in a turn, and the claim: at least this part of ganesha's speed.
const STREAM_BYTES: u64 = 1 << 30;
const STREAM_IN_FLIGHT: u64 = 8;
const STREAM_MIN: f64 = 0.9;

const LOG_BYTES: u64 = 256 << 20;

/// The part of the operations that warms both sides up and is not counted.
const WARM_PART: u64 = 10;

struct Side<'a> {
    name: &'static str,
    load: Load,
    cpu: &'a dyn Fn() -> Option<Duration>,
    /// For each kind: the least time of a turn, and the least processor time of the server.
    kinds: [(Duration, Duration); KINDS.len()],
    written: Duration,
    read: Duration,
}

impl<'a> Side<'a> {
    fn new(name: &'static str, addr: SocketAddr, cpu: &'a dyn Fn() -> Option<Duration>) -> Result<Side<'a>> {
        let load = Load::new(addr, name)?;
        let (kinds, written, read) = ([(Duration::MAX, Duration::MAX); _], Duration::MAX, Duration::MAX);
        Ok(Side { name, load, cpu, kinds, written, read })
    }

    fn cpu(&self) -> Result<Duration> {
        (self.cpu)().ok_or_else(|| Error::Child { role: "server", what: "ended".into() })
    }

    /// One turn with kind number `i`.
    fn turn(&mut self, i: usize, count: u64) -> Result<()> {
        let before = self.cpu()?;
        let took = self.load.run(KINDS[i].0, count, IN_FLIGHT)?;
        let used = self.cpu()?.saturating_sub(before);
        let (least_time, least_cpu) = &mut self.kinds[i];
        *least_time = took.min(*least_time);
        *least_cpu = used.min(*least_cpu);
        Ok(())
    }

    fn stream(&mut self) -> Result<()> {
        let (written, read) = self.load.stream(STREAM_BYTES, STREAM_IN_FLIGHT)?;
        self.written = written.min(self.written);
        self.read = read.min(self.read);
        Ok(())
    }
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    ganesha::possible()?;
    // `--files` is the number of files that are made.
    let scale = choices.files.map_or(1.0, |files| files as f64 / KINDS[4].1 as f64);
    crate::namespace::run_private(|| measure(scale, progress))?
}

fn measure(scale: f64, progress: Progress<'_>) -> Result<Findings> {
    let disk = MemoryDisk::new()?;
    let server = disk.serve(LOG_BYTES)?;
    let peer = Ganesha::start(disk.export())?;
    let (our_cpu, their_cpu) = (|| server.cpu(), || peer.cpu());
    let mut sides =
        [Side::new("landfast", server.addr(), &our_cpu)?, Side::new("nfs-ganesha", peer.addr(), &their_cpu)?];
    work(&mut sides, scale, progress)?;
    let findings = judge(&sides, scale);
    drop(sides);
    drop(peer);
    server.stop()?;
    Ok(findings)
}

fn work(sides: &mut [Side<'_>; 2], scale: f64, progress: Progress<'_>) -> Result<()> {
    for (i, (kind, count, _)) in KINDS.iter().enumerate() {
        progress(kind.name());
        let count = scaled(*count, scale);
        for side in sides.iter() {
            side.load.run(*kind, (count / WARM_PART).max(1), IN_FLIGHT)?;
        }
        in_turns(sides, ROUNDS, |side| side.turn(i, count / ROUNDS))?;
    }
    let stream = |side: &mut Side<'_>| {
        progress(&format!("stream, {}", side.name));
        side.stream()
    };
    in_turns(sides, STREAM_ROUNDS, stream)
}

/// Gives both sides so many turns, one after the other. What a turn shows does not matter: a side that got turns until a claim holds
/// would be given its luck.
fn in_turns<S>(sides: &mut [S; 2], rounds: u64, mut turn: impl FnMut(&mut S) -> Result<()>) -> Result<()> {
    for _ in 0..rounds {
        for side in sides.iter_mut() {
            turn(side)?;
        }
    }
    Ok(())
}

fn ratio(ours: Duration, theirs: Duration) -> f64 {
    theirs.as_secs_f64() / ours.as_secs_f64()
}

fn judge([ours, theirs]: &[Side<'_>; 2], scale: f64) -> Findings {
    let (mut lines, mut checks) = (Vec::new(), Vec::new());
    for (i, (kind, count, at_least)) in KINDS.iter().enumerate() {
        let count = (scaled(*count, scale) / ROUNDS) as f64;
        let ((our_time, our_cpu), (their_time, their_cpu)) = (ours.kinds[i], theirs.kinds[i]);
        let ratio = ratio(our_cpu, their_cpu);
        lines.push(Row::new(
            kind.name(),
            [
                ("landfast_ops_per_s", count / our_time.as_secs_f64()),
                ("ganesha_ops_per_s", count / their_time.as_secs_f64()),
                ("landfast_us_cpu_per_op", our_cpu.as_secs_f64() * 1e6 / count),
                ("ganesha_us_cpu_per_op", their_cpu.as_secs_f64() * 1e6 / count),
                ("ratio", ratio),
            ],
        ));
        let what = format!("operations for each second of processor time, {}: times ganesha's", kind.name());
        checks.push(Check::at_least(&what, ratio, *at_least));
    }
    for (name, our_time, their_time) in
        [("stream: write", ours.written, theirs.written), ("stream: read", ours.read, theirs.read)]
    {
        let mib = STREAM_BYTES as f64 / f64::from(1 << 20);
        let ratio = ratio(our_time, their_time);
        lines.push(Row::new(
            name,
            [
                ("landfast_mib_per_s", mib / our_time.as_secs_f64()),
                ("ganesha_mib_per_s", mib / their_time.as_secs_f64()),
                ("ratio", ratio),
            ],
        ));
        checks.push(Check::at_least(&format!("{name}: times ganesha's speed"), ratio, STREAM_MIN));
    }
    let notes = vec![
        "processor time is the server process's own, user and system; the filesystem is ext4 in memory"
            .to_owned(),
        "ganesha does not make metadata stable; Landfast's log is in memory, so nothing here waits"
            .to_owned(),
    ];
    Findings { lines, checks, notes, ..Findings::default() }
}

fn scaled(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale) as u64).max(ROUNDS).next_multiple_of(ROUNDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_all_turns_whatever_they_take() {
        // The times of the turns to come, and those that were taken: the first of ours is already the best.
        let mut sides = [(vec![3, 2, 1], Vec::new()), (vec![9, 8, 7], Vec::new())];
        in_turns(&mut sides, 3, |(left, taken)| {
            taken.extend(left.pop());
            Ok(())
        })
        .unwrap();
        assert_eq!(sides.map(|(_, taken)| taken), [[1, 2, 3], [7, 8, 9]]);
    }
}
