//! One large file, written and read by 1, 4 and 16 clients, each with its own session, connection and range: Landfast beside
//! nfs-ganesha and beside threads of this program that use the same filesystem without any server.
//!
//! Each server has an ext4 of its own, in memory. A turn ends with the last COMMIT, so all that was written is durable on that
//! filesystem. The reads come from the page cache. The servers take turns; the quickest turn of each counts, because other
//! work of the machine makes turns slower, never quicker. All rows have as many turns, whatever they show. A local turn precedes
//! each turn of a server: it leaves the same memory free to both (pages that a virtual machine touches for the first time cost more
//! than the whole request).
//!
//! The peak of a server's memory is forgotten before each turn, so each row has its own.

use super::{Check, Choices, Findings, Progress, Row, mebibytes};
use crate::error::{Context, Error, Result};
use crate::memory_disk::MemoryDisk;
use crate::peers::ganesha::{self, Ganesha};
use crate::served::Served;
use crate::streams::{REQUEST_BYTES, Streams};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const CLIENTS: [u64; 3] = [1, 4, 16];

/// Requests that each client has in flight.
const IN_FLIGHT: u64 = 8;

/// Size of the file in MiB, unless chosen otherwise (`--files`). The claim is about 4,096 as well.
const FILE_MIB: u64 = 1024;
/// The other size for which the server's memory is measured: a part of it.
const SMALL_PART: u64 = 4;

/// Turns of each row.
const ROUNDS: u64 = 4;

/// The claim: at least so many times ganesha's speed.
const RATIO_MIN: f64 = 1.0;
/// The claim: peak memory of the server with a file four times as large, as a multiple.
const MEMORY_GROWTH_MAX: f64 = 1.25;
/// The claim: peak memory of the server, in MiB. Requests in flight bound it (16 clients have 128 of 1 MiB each), and the
/// server's own limit for one address (`client_request_bytes`, `client_reply_bytes`), from which all these clients come.
const PEAK_MIB_MAX: f64 = 384.0;

const LOG_BYTES: u64 = 256 << 20;

/// What wrote and read.
#[derive(Clone, Copy)]
struct Turn {
    write: Duration,
    read: Duration,
    write_cpu: Duration,
    read_cpu: Duration,
    peak_bytes: u64,
}

impl Turn {
    const NONE: Turn = Turn {
        write: Duration::MAX,
        read: Duration::MAX,
        write_cpu: Duration::MAX,
        read_cpu: Duration::MAX,
        peak_bytes: 0,
    };

    /// The better of both in each figure; of the peaks the worse.
    fn best(self, other: Turn) -> Turn {
        Turn {
            write: self.write.min(other.write),
            read: self.read.min(other.read),
            write_cpu: self.write_cpu.min(other.write_cpu),
            read_cpu: self.read_cpu.min(other.read_cpu),
            peak_bytes: self.peak_bytes.max(other.peak_bytes),
        }
    }
}

/// A server process, whichever it is.
trait Server {
    fn addr(&self) -> SocketAddr;
    fn cpu(&self) -> Option<Duration>;
    fn peak_rss_bytes(&self) -> Option<u64>;
    fn forget_peak(&self) -> Result<()>;
}

macro_rules! server {
    ($ty:ty) => {
        impl Server for $ty {
            fn addr(&self) -> SocketAddr {
                <$ty>::addr(self)
            }
            fn cpu(&self) -> Option<Duration> {
                <$ty>::cpu(self)
            }
            fn peak_rss_bytes(&self) -> Option<u64> {
                <$ty>::peak_rss_bytes(self)
            }
            fn forget_peak(&self) -> Result<()> {
                <$ty>::forget_peak(self)
            }
        }
    };
}

server!(Served);
server!(Ganesha);

/// Writes and reads the file on a server, and removes it.
fn turn(server: &dyn Server, clients: u64, bytes: u64) -> Result<Turn> {
    let cpu = || server.cpu().ok_or_else(|| Error::Child { role: "server", what: "ended".into() });
    let streams = Streams::new(server.addr(), "stream", clients)?;
    server.forget_peak()?;
    let before = cpu()?;
    let write = streams.write(bytes, IN_FLIGHT)?;
    let between = cpu()?;
    let read = streams.read(bytes, IN_FLIGHT)?;
    let after = cpu()?;
    let peak_bytes = server.peak_rss_bytes().unwrap_or(0);
    streams.end()?;
    let (write_cpu, read_cpu) = (between.saturating_sub(before), after.saturating_sub(between));
    Ok(Turn { write, read, write_cpu, read_cpu, peak_bytes })
}

/// The same by threads of this process, without a server.
fn local(dir: &Path, threads: u64, bytes: u64) -> Result<Turn> {
    let path = dir.join("local");
    let what = || path.display().to_string();
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.context(what)?;
    let share = bytes.div_ceil(threads).next_multiple_of(REQUEST_BYTES);
    let each = |work: &(dyn Fn(u64, &mut [u8]) -> std::io::Result<()> + Sync)| -> Result<Duration> {
        let start = Instant::now();
        std::thread::scope(|s| {
            let running: Vec<_> = (0..threads)
                .map(|n| {
                    s.spawn(move || {
                        let mut buffer = vec![7; REQUEST_BYTES as usize];
                        let mut offset = n * share;
                        while offset < ((n + 1) * share).min(bytes) {
                            work(offset, &mut buffer)?;
                            offset += REQUEST_BYTES;
                        }
                        Ok::<_, std::io::Error>(())
                    })
                })
                .collect();
            for thread in running {
                let panic = |_| Error::Child { role: "local", what: "panic".into() };
                thread.join().map_err(panic)?.context(what)?;
            }
            Ok::<_, Error>(())
        })?;
        Ok(start.elapsed())
    };
    let wrote = each(&|offset, buffer| file.write_all_at(buffer, offset))?;
    let start = Instant::now();
    file.sync_data().context(what)?;
    let write = wrote + start.elapsed();
    let read = each(&|offset, buffer| file.read_exact_at(buffer, offset))?;
    std::fs::remove_file(&path).context(what)?;
    Ok(Turn { write, read, ..Turn::NONE })
}

/// The best turns of one number of clients.
struct Best {
    clients: u64,
    ours: Turn,
    theirs: Turn,
    local: Turn,
}

impl Best {
    fn write_ratio(&self) -> f64 {
        self.theirs.write.as_secs_f64() / self.ours.write.as_secs_f64()
    }

    fn read_ratio(&self) -> f64 {
        self.theirs.read.as_secs_f64() / self.ours.read.as_secs_f64()
    }

    fn lines(&self, mib: f64) -> [Row; 2] {
        let line = |what: &str, ratio: f64, time: fn(&Turn) -> Duration, cpu: fn(&Turn) -> Duration| {
            let speed = |turn: &Turn| mib / time(turn).as_secs_f64();
            let us_per_mib = |turn: &Turn| cpu(turn).as_secs_f64() * 1e6 / mib;
            Row::new(
                &format!("{what}, {} clients", self.clients),
                [
                    ("landfast_mib_per_s", speed(&self.ours)),
                    ("ganesha_mib_per_s", speed(&self.theirs)),
                    ("local_mib_per_s", speed(&self.local)),
                    ("ratio", ratio),
                    ("landfast_us_cpu_per_mib", us_per_mib(&self.ours)),
                    ("ganesha_us_cpu_per_mib", us_per_mib(&self.theirs)),
                    ("landfast_peak_mib", mebibytes(self.ours.peak_bytes)),
                    ("ganesha_peak_mib", mebibytes(self.theirs.peak_bytes)),
                ],
            )
        };
        [
            line("write", self.write_ratio(), |t| t.write, |t| t.write_cpu),
            line("read", self.read_ratio(), |t| t.read, |t| t.read_cpu),
        ]
    }
}

/// Gives both servers and the local threads their turns.
fn turns(
    disks: &[MemoryDisk; 2],
    ours: &Served,
    theirs: &Ganesha,
    clients: u64,
    bytes: u64,
    progress: Progress<'_>,
) -> Result<Best> {
    let mut best = Best { clients, ours: Turn::NONE, theirs: Turn::NONE, local: Turn::NONE };
    for round in 1..=ROUNDS {
        progress(&format!("{clients} clients, round {round}"));
        for (disk, server, best_turn) in
            [(&disks[0], ours as &dyn Server, &mut best.ours), (&disks[1], theirs, &mut best.theirs)]
        {
            best.local = best.local.best(local(disk.filesystem(), clients, bytes)?);
            disk.trim()?;
            *best_turn = best_turn.best(turn(server, clients, bytes)?);
            disk.trim()?;
        }
    }
    Ok(best)
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    ganesha::possible()?;
    let mib = choices.files.unwrap_or(FILE_MIB).max(CLIENTS[2] * SMALL_PART);
    crate::namespace::run_private(|| measure(mib, progress))?
}

fn measure(mib: u64, progress: Progress<'_>) -> Result<Findings> {
    let disks = [MemoryDisk::new()?, MemoryDisk::new()?];
    let ours = disks[0].serve(LOG_BYTES)?;
    let theirs = Ganesha::start(disks[1].export())?;
    let bytes = mib << 20;
    let (mut lines, mut checks) = (Vec::new(), Vec::new());
    let mut peaks = Vec::new();
    for clients in CLIENTS {
        let best = turns(&disks, &ours, &theirs, clients, bytes, progress)?;
        for (what, ratio) in [("write", best.write_ratio()), ("read", best.read_ratio())] {
            checks.push(Check::at_least(
                &format!("{what}, {clients} clients: times ganesha's speed"),
                ratio,
                RATIO_MIN,
            ));
        }
        lines.extend(best.lines(mib as f64));
        peaks.push(mebibytes(best.ours.peak_bytes));
    }
    progress("a smaller file, for the memory");
    let clients = CLIENTS[1];
    let small = mebibytes(turn(&ours, clients, bytes / SMALL_PART)?.peak_bytes);
    lines.push(Row::new(
        &format!("a file of {} MiB, {clients} clients", mib / SMALL_PART),
        [("landfast_peak_mib", small)],
    ));
    checks.push(Check::at_most(
        "peak memory of the server with a file four times as large, as a multiple",
        peaks[1] / small,
        MEMORY_GROWTH_MAX,
    ));
    checks.push(Check::at_most(
        "peak memory of the server in MiB, any number of clients",
        peaks.iter().copied().fold(0.0, f64::max),
        PEAK_MIB_MAX,
    ));
    drop(theirs);
    ours.stop()?;
    let notes = vec![
        format!(
            "a file of {mib} MiB on ext4 in memory, requests of 1 MiB, {IN_FLIGHT} of each client in flight; writes end with COMMIT"
        ),
        "processor time is the server process's own; that of the kernel's loop device, through which both servers' COMMITs go, is \
         in the speed"
            .to_owned(),
    ];
    Ok(Findings { lines, checks, notes, ..Findings::default() })
}
