//! The files of a web page: a hundred of 10 to 100 KB; some are looked at, as many read, and every tenth is written. The library
//! does this with three calls at once, and another client does one thing at a time.
//!
//! Both through the same emulated link, in turns, each with a client that has served a page before: directories are known,
//! files are not kept. What is read is compared with what is there, what is written is read from the server's disk.

use super::{Check, Choices, Findings, Progress, Row, client_failed, connect};
use crate::error::{Context, Error, Result};
use crate::memory_disk::MemoryDisk;
use crate::net::Link;
use crate::serial::{Action, Actor};
use landfast_client::fs::{NewFile, Nfs};
use landfast_verify::rng::Rng;
use landfast_xdr::Bytes;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const FILES: usize = 100;
/// One file of so many is written; of the others one half is looked at, the other half is read.
const WRITTEN: usize = 10;
/// Their sizes in bytes, and how many lie in a directory.
const BYTES: (usize, usize) = (10_000, 100_000);
const PER_DIR: usize = 10;

const ROUND_TRIPS_MS: [f64; 3] = [0.1, 1.0, 10.0];

/// Pages of each side; the one in the middle counts.
const ROUNDS: usize = 5;

/// RPCs for a page, at most.
const RPCS_MAX: f64 = 16.0;

/// The claim at this round trip: a page is so many times as quick as with one thing at a time.
const CLAIMED_MS: f64 = 1.0;
const TIMES_SERIAL: f64 = 5.0;

const LOG_BYTES: u64 = 256 << 20;

/// What a page does with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Look,
    Read,
    Write,
}

pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) data: Bytes,
    pub(crate) used: Use,
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let round_trips_ms = choices.round_trips(&ROUND_TRIPS_MS);
    crate::namespace::run_private(|| measure(&round_trips_ms, progress))?
}

pub(crate) fn files() -> Vec<File> {
    let mut rng = Rng::new(7);
    let file = |n: usize| {
        let size = BYTES.0 + (BYTES.1 - BYTES.0) * n / (FILES - 1);
        let mut data = vec![0; size];
        rng.fill(&mut data);
        let used = match n % WRITTEN {
            0 => Use::Write,
            k if k % 2 == 1 => Use::Look,
            _ => Use::Read,
        };
        File { path: format!("site/htdocs/part{}/file{n}", n / PER_DIR), data: data.into(), used }
    };
    (0..FILES).map(file).collect()
}

fn measure(round_trips_ms: &[f64], progress: Progress<'_>) -> Result<Findings> {
    let disk = MemoryDisk::new()?;
    let mut files = files();
    for file in &files {
        let at = disk.export().join(&file.path);
        let dir = at.parent().unwrap_or(disk.export());
        std::fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
        std::fs::write(&at, &file.data).context(|| format!("write {}", at.display()))?;
    }
    let server = disk.serve(LOG_BYTES)?;
    let runtime = Runtime::new().context(|| "start threads".to_owned())?;
    let mut found = Findings::default();
    let (mut most, mut times) = (0, Vec::new());
    for &rtt_ms in round_trips_ms {
        progress(&format!("round trips of {rtt_ms} ms"));
        let link = Link::start(server.addr(), Duration::from_secs_f64(rtt_ms / 1000.0))?;
        let nfs = runtime.block_on(connect(link.addr()))?;
        let mut actor = Actor::connect(link.addr(), format!("page {rtt_ms}"), "/")?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first page is not counted: both sides are warm then.
        for round in 0..=ROUNDS {
            // New contents each time show who has written them.
            files.iter_mut().filter(|f| f.used == Use::Write).for_each(turn);
            let page = runtime.block_on(at_once(&nfs, &files))?;
            written(disk.export(), &files)?;
            files.iter_mut().filter(|f| f.used == Use::Write).for_each(turn);
            let slow = one_by_one(&mut actor, &files)?;
            written(disk.export(), &files)?;
            if round > 0 {
                most = most.max(page.1);
                ours.push(page);
                theirs.push(slow);
            }
        }
        runtime.block_on(nfs.disconnect());
        actor.into_session().close()?;
        let ms = |all: &[(f64, u64)]| super::middle(all.iter().map(|p| p.0 * 1000.0).collect());
        let rpcs = |all: &[(f64, u64)]| all.iter().map(|p| p.1).max().unwrap_or(0) as f64;
        let (our_ms, their_ms) = (ms(&ours), ms(&theirs));
        times.push(their_ms / our_ms);
        found.lines.push(Row::new(
            &format!("{rtt_ms} ms"),
            [
                ("landfast_rpcs", rpcs(&ours)),
                ("landfast_ms", our_ms),
                ("one_by_one_rpcs", rpcs(&theirs)),
                ("one_by_one_ms", their_ms),
                ("times", their_ms / our_ms),
            ],
        ));
    }
    server.stop()?;
    found.checks = vec![Check::at_most("RPCs for a page of 100 files, the most", most as f64, RPCS_MAX)];
    if let Some(at) = round_trips_ms.iter().position(|ms| *ms == CLAIMED_MS) {
        let what =
            format!("a page at a round trip of {CLAIMED_MS} ms: times as quick as one thing at a time");
        found.checks.push(Check::at_least(&what, times[at], TIMES_SERIAL));
    }
    found.notes.push(
        "`one_by_one` stands for a kernel's client that knows the directories: GETATTR, READ and stable WRITE, without the \
         OPEN and CLOSE that a kernel's sends as well"
            .to_owned(),
    );
    Ok(found)
}

/// Replaces the contents by others of the same length.
fn turn(file: &mut File) {
    let turned: Vec<u8> = file.data.iter().map(|b| b.wrapping_add(1)).collect();
    file.data = turned.into();
}

/// Checks that the server's disk has what was written.
fn written(export: &Path, files: &[File]) -> Result<()> {
    for file in files.iter().filter(|f| f.used == Use::Write) {
        let there = std::fs::read(export.join(&file.path)).context(|| format!("read {}", file.path))?;
        expect(file, &there)?;
    }
    Ok(())
}

pub(crate) fn expect(file: &File, data: &[u8]) -> Result<()> {
    if data == &file.data[..] {
        Ok(())
    } else {
        Err(Error::WrongData(format!("{}: other contents", file.path)))
    }
}

/// Seconds and calls of a page by the library.
pub(crate) async fn at_once(nfs: &Nfs, files: &[File]) -> Result<(f64, u64)> {
    let of = |used: Use| files.iter().filter(move |f| f.used == used);
    let before = nfs.stats().rpcs;
    let start = Instant::now();
    let news = of(Use::Write).map(|f| NewFile::new(f.path.clone(), f.data.clone()));
    let (looked, read, written) = tokio::join!(
        nfs.getattrs(of(Use::Look).map(|f| &f.path)),
        nfs.read_files(of(Use::Read).map(|f| &f.path)),
        nfs.write_files(news),
    );
    let page = (start.elapsed().as_secs_f64(), nfs.stats().rpcs - before);
    for (file, object) in of(Use::Look).zip(looked) {
        let size = object.into_result().map_err(|e| client_failed(&e))?.attrs.size;
        if size != Some(file.data.len() as u64) {
            return Err(Error::WrongData(format!("{}: {size:?} bytes", file.path)));
        }
    }
    for (file, data) in of(Use::Read).zip(read) {
        expect(file, &data.into_result().map_err(|e| client_failed(&e))?)?;
    }
    for outcome in written {
        outcome.into_result().map_err(|e| client_failed(&e))?;
    }
    Ok(page)
}

fn one_by_one(actor: &mut Actor, files: &[File]) -> Result<(f64, u64)> {
    let before = actor.session().counts();
    let start = Instant::now();
    let mut read = Vec::new();
    for file in files {
        let path = file.path.as_bytes();
        let fh = actor.handle(path)?;
        match file.used {
            Use::Look => drop(actor.getattr(&fh)?),
            Use::Read => {
                actor.getattr(&fh)?;
                read.push((file, actor.read(&fh, 0, BYTES.1 as u32)?));
            }
            Use::Write => {
                let data = file.data.clone();
                actor.perform(&Action::Write { path: path.to_vec(), offset: 0, data, stable: true })?;
            }
        }
    }
    let page = (start.elapsed().as_secs_f64(), actor.session().counts().since(&before).rpcs);
    read.iter().try_for_each(|(file, data)| expect(file, data))?;
    Ok(page)
}
