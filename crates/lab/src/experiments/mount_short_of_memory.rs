//! A mount whose process shares little memory with the programs that use it. They write more than that, through the page cache and through a
//! mapping, so that the kernel wants to write pages back whenever either needs memory, and the mount's process needs memory to write them.
//!
//! The server is not in the group: what is short is the client's memory.

use super::{Check, Choices, Findings, Progress, Row, mebibytes};
use crate::child::{Child, Output, Role};
use crate::error::{Context, Error, Result};
use crate::fuse_mount::FuseMount;
use crate::limits::{SHORT_OF_MEMORY_BYTES, SHORT_OF_MEMORY_PATIENCE};
use crate::memory_limit::MemoryLimit;
use crate::served::{Durability, ServeOptions, Served};
use crate::sparse_disk::SparseDisk;
use crate::tarball::{Shape, write_random};
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

/// What is written in each way, in times of the limit.
const TIMES: u64 = 4;

const FILES: u64 = 20_000;
const FILE_BYTES: usize = 4096;

/// What the mapped file is full of.
const FILLED_WITH: u8 = 7;

const DISK_BYTES: u64 = 4 << 30;

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::machine::needs_root()?;
    crate::namespace::run_private(|| measure(choices, progress))?
}

fn measure(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let files = choices.files.unwrap_or(FILES);
    let dir = crate::machine::scratch_dir("landfast-short-of-memory-")?;
    let disk = SparseDisk::new(dir.path(), DISK_BYTES + files * FILE_BYTES as u64)?;
    let export = disk.path().join("export");
    std::fs::create_dir(&export).context(|| format!("create {}", export.display()))?;
    let archive = dir.path().join("archive.tar");
    let file = std::fs::File::create(&archive).context(|| archive.display().to_string())?;
    let shape = Shape { files, file_bytes: FILE_BYTES, per_dir: 64, seed: 11 };
    write_random(shape, BufWriter::new(file)).context(|| archive.display().to_string())?;
    let options = ServeOptions::new(&export, Some(&dir.path().join("log")), Durability::Log);
    let server =
        Served::start(&ServeOptions { log_bytes: Some(256 << 20), write_delegations: true, ..options })?;
    let limit = MemoryLimit::new(SHORT_OF_MEMORY_BYTES)?;
    let at = dir.path().join("mounted");
    let mount = FuseMount::start(&format!("nfs://{}/", server.addr()), &at, &choices.mount_options)?;
    limit.take(mount.process().pid())?;
    let bytes = TIMES * SHORT_OF_MEMORY_BYTES;
    let words = |words: &[&str]| Role::Program(words.iter().map(|word| (*word).to_owned()).collect());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let works = [
        (
            "dd",
            words(&[
                "dd",
                "if=/dev/zero",
                &format!("of={}", text(&at.join("written"))),
                "bs=1M",
                &format!("count={}", bytes >> 20),
            ]),
        ),
        ("a mapping", Role::FillMapped { file: at.join("mapped"), bytes, with: FILLED_WITH }),
        ("tar xf", words(&["tar", "-xf", &text(&archive), "-C", &text(&at)])),
    ];
    let mut found = Findings::default();
    let flusher = is_flusher(mount.process().pid())?;
    let not = if flusher { "" } else { " not" };
    found.notes.push(format!("memory cgroup {limit}; the mount's process is{not} a PR_SET_IO_FLUSHER"));
    for (name, role) in works {
        progress(name);
        let (before, start) = (limit.refusals()?.0, Instant::now());
        let mut program = Child::start("program", role, Output::Keep)?;
        limit.take(program.pid())?;
        if !program.ends_within(SHORT_OF_MEMORY_PATIENCE) {
            // Neither of them can be killed while they wait for each other.
            mount.abort()?;
            found.checks.push(Check::exactly(
                &format!("{name}: programs and mounts that wait for each other"),
                1.0,
                0.0,
            ));
            return Ok(found);
        }
        let (status, _) = program.finish(SHORT_OF_MEMORY_PATIENCE);
        if !status.is_some_and(|status| status.success()) {
            let killed = limit.refusals()?.1;
            let what = format!("{name}: {status:?}, {killed} processes killed: {}", program.last_words());
            return Err(Error::Child { role: "program", what });
        }
        mount.sync()?;
        let seconds = start.elapsed().as_secs_f64();
        let refused = limit.refusals()?.0 - before;
        found.lines.push(Row::new(
            name,
            [
                ("seconds", seconds),
                ("limit_mib", mebibytes(SHORT_OF_MEMORY_BYTES)),
                ("times_at_the_limit", refused as f64),
                ("mount_peak_rss_mib", mebibytes(mount.process().peak_rss_bytes().unwrap_or(0))),
            ],
        ));
        let what = format!("{name}: times that memory had to be given back first");
        found.checks.push(Check::at_least(&what, refused as f64, 1.0));
    }
    mount.stop()?;
    found.checks.push(Check::exactly("processes killed", limit.refusals()?.1 as f64, 0.0));
    progress("what is there");
    let wrong = [("written", 0), ("mapped", FILLED_WITH)]
        .into_iter()
        .map(|(name, byte)| wrong_bytes(&export.join(name), bytes, byte))
        .sum::<Result<u64>>()?;
    found.checks.push(Check::of_data("bytes that are not there or wrong", wrong as f64, 0.0));
    let there = super::server_memory::count_files(&export)?;
    found.checks.push(Check::of_data("files there", there as f64, (files + 2) as f64));
    server.stop()?;
    Ok(found)
}

/// Whether the kernel knows that a process writes pages back (`PR_SET_IO_FLUSHER`): a flag in proc_pid_stat(5).
fn is_flusher(pid: u32) -> Result<bool> {
    const PF_MEMALLOC_NOIO: u64 = 0x0008_0000;
    const FLAGS: usize = 6;
    let file = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&file).context(|| file.clone())?;
    let flags =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(FLAGS)?.parse::<u64>().ok());
    let flags = flags.ok_or_else(|| Error::Unable(format!("{file}: no flags")))?;
    Ok(flags & PF_MEMALLOC_NOIO != 0)
}

/// How many bytes of a file of this length are not `byte`, or missing.
fn wrong_bytes(path: &Path, length: u64, byte: u8) -> Result<u64> {
    use std::io::Read;
    let what = || path.display().to_string();
    let mut file = std::fs::File::open(path).context(what)?;
    let (mut part, mut right, mut wrong) = (vec![0; 1 << 20], 0, 0);
    loop {
        let read = file.read(&mut part).context(what)?;
        if read == 0 {
            return Ok(wrong + length.saturating_sub(right));
        }
        let good = part[..read].iter().filter(|&&b| b == byte).count() as u64;
        right += good;
        wrong += read as u64 - good;
    }
}
