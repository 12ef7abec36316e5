//! A file below many directories, opened and read for the first time: by the library, which sends a path whole, and by a client
//! that looks up one name after another.
//!
//! Both through the same emulated link, in turns, each time as a client that knows nothing yet; its session is made before the
//! clock starts. What both have read is compared with what was written.

use super::{Check, Choices, Findings, Progress, Row, client_failed, connect};
use crate::error::{Context, Error, Result};
use crate::memory_disk::MemoryDisk;
use crate::net::Link;
use crate::serial::Actor;
use landfast_client::fs::Nfs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

const ROUND_TRIPS_MS: [f64; 3] = [0.1, 1.0, 10.0];

/// Runs of each side; the one in the middle counts.
const ROUNDS: usize = 5;

/// How many times as long the library may take below most directories as below one, at the longest round trip.
const TIMES_SHALLOW: f64 = 1.5;

const LOG_BYTES: u64 = 64 << 20;

/// One open: seconds and calls.
type Opened = (f64, u64);

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let round_trips_ms = choices.round_trips(&ROUND_TRIPS_MS);
    crate::namespace::run_private(|| measure(&round_trips_ms, progress))?
}

/// The directory at this depth. Its file contains the path.
pub(crate) fn directory(depth: usize) -> String {
    (0..depth).map(|n| format!("below{depth}-{n}")).collect::<Vec<_>>().join("/")
}

fn measure(round_trips_ms: &[f64], progress: Progress<'_>) -> Result<Findings> {
    let disk = MemoryDisk::new()?;
    let mut paths = Vec::new();
    for depth in DEPTHS {
        let dir = directory(depth);
        let at = disk.export().join(&dir);
        std::fs::create_dir_all(&at).context(|| format!("create {}", at.display()))?;
        std::fs::write(at.join("file"), &dir).context(|| format!("write in {}", at.display()))?;
        paths.push(dir);
    }
    let server = disk.serve(LOG_BYTES)?;
    let runtime = Runtime::new().context(|| "start threads".to_owned())?;
    let mut found = Findings::default();
    let (mut most, mut ends) = (0, Vec::new());
    for &rtt_ms in round_trips_ms {
        progress(&format!("round trips of {rtt_ms} ms"));
        let link = Link::start(server.addr(), Duration::from_secs_f64(rtt_ms / 1000.0))?;
        for (depth, path) in DEPTHS.iter().zip(&paths) {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                ours.push(runtime.block_on(at_once(link.addr(), path))?);
                theirs.push(name_by_name(link.addr(), path, &format!("{rtt_ms} {depth} {round}"))?);
            }
            let rpcs = |all: &[Opened]| all.iter().map(|o| o.1).max().unwrap_or(0);
            let ms = |all: &[Opened]| super::middle(all.iter().map(|o| o.0 * 1000.0).collect());
            most = most.max(rpcs(&ours));
            found.lines.push(Row::new(
                &format!("{rtt_ms} ms, depth {depth}"),
                [
                    ("landfast_rpcs", rpcs(&ours) as f64),
                    ("landfast_ms", ms(&ours)),
                    ("name_by_name_rpcs", rpcs(&theirs) as f64),
                    ("name_by_name_ms", ms(&theirs)),
                ],
            ));
            ends.push(ms(&ours));
        }
    }
    server.stop()?;
    let last = &ends[ends.len().saturating_sub(DEPTHS.len())..];
    let longest = round_trips_ms.last().copied().unwrap_or_default();
    found.checks = vec![
        Check::exactly("RPCs of a first open and read, the most at any depth", most as f64, 1.0),
        Check::at_most(
            &format!("depth {}: times as long as depth 1, at {longest} ms", DEPTHS[DEPTHS.len() - 1]),
            last[last.len() - 1] / last[0],
            TIMES_SHALLOW,
        ),
    ];
    found.notes.push(
        "`name_by_name` stands for a kernel's client without anything in its caches: a LOOKUP for each name, then READ; a \
         kernel's has an OPEN and a CLOSE as well"
            .to_owned(),
    );
    Ok(found)
}

/// With a new connection of the library.
async fn at_once(addr: SocketAddr, path: &str) -> Result<Opened> {
    let nfs = connect(addr).await?;
    let opened = open(&nfs, path).await;
    nfs.disconnect().await;
    opened
}

/// With a library that is connected.
pub(crate) async fn open(nfs: &Nfs, path: &str) -> Result<Opened> {
    let before = nfs.stats().rpcs;
    let start = Instant::now();
    let read = nfs.read_files([format!("{path}/file")]).await.remove(0);
    let opened = (start.elapsed().as_secs_f64(), nfs.stats().rpcs - before);
    same(path, &read.into_result().map_err(|e| client_failed(&e))?)?;
    Ok(opened)
}

fn name_by_name(addr: SocketAddr, path: &str, client: &str) -> Result<Opened> {
    let mut actor = Actor::connect(addr, client, "/")?;
    let before = actor.session().counts();
    let start = Instant::now();
    let fh = actor.handle(format!("{path}/file").as_bytes())?;
    let data = actor.read(&fh, 0, 4096)?;
    let seconds = start.elapsed().as_secs_f64();
    let rpcs = actor.session().counts().since(&before).rpcs;
    actor.into_session().close()?;
    same(path, &data)?;
    Ok((seconds, rpcs))
}

pub(crate) fn same(path: &str, data: &[u8]) -> Result<()> {
    if data == path.as_bytes() {
        Ok(())
    } else {
        Err(Error::WrongData(format!("{path}/file: other contents")))
    }
}
