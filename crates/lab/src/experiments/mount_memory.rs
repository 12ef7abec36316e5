//! What the process that serves a mount needs for a long tree: `tar` makes it through the mount, `ls -lR` lists it, `rm -rf` removes it.
//!
//! The archive is a stream that is made while it is extracted; the server's volume is on an XFS whose image is a sparse file of this
//! machine's own disk.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::fuse_mount::FuseMount;
use crate::served::{Durability, ServeOptions, Served};
use crate::sparse_disk::SparseDisk;
use crate::tarball::{Shape, write_random};
use std::io::BufWriter;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Files, unless chosen otherwise; the claim is made for 1,000,000 and more.
const FILES: u64 = 100_000;

const FILE_BYTES: usize = 64;
const PER_DIR: u64 = 64;

/// What a file takes of the volume, in bytes.
const DISK_BYTES_EACH: u64 = 6 << 10;

/// The smaller tree has so many times fewer.
const FEWER: u64 = 10;

const LOG_BYTES: u64 = 256 << 20;

/// The most that the process may have resident, whatever the number of files, in MiB.
const PEAK_MIB_MAX: f64 = 256.0;

const WORKS: [&str; 3] = ["tar xf", "ls -lR", "rm -rf"];

/// Of one work.
struct Needed {
    peak_bytes: u64,
    /// Objects that the process remembers at its end.
    nodes: u64,
    seconds: f64,
    rpcs: u64,
    cpu_s: f64,
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::machine::needs_root()?;
    crate::namespace::run_private(|| measure(choices, progress))?
}

fn measure(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let many = choices.files.unwrap_or(FILES).max(FEWER);
    let few = many / FEWER;
    let small = works(few, &choices.mount_options, progress)?;
    let large = works(many, &choices.mount_options, progress)?;
    let mut found = Findings::default();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for ((name, small), large) in WORKS.iter().zip(&small).zip(&large) {
        let more = large.peak_bytes.saturating_sub(small.peak_bytes);
        found.lines.push(Row::new(
            name,
            [
                ("files", many as f64),
                ("peak_rss_mib", mib(large.peak_bytes)),
                ("nodes", large.nodes as f64),
                ("fewer_files", few as f64),
                ("peak_rss_mib_of_fewer", mib(small.peak_bytes)),
                ("bytes_per_file_more", more as f64 / (many - few) as f64),
                ("files_per_s", many as f64 / large.seconds),
                ("cpu_us_per_file", large.cpu_s * 1e6 / many as f64),
                ("rpcs_per_file", large.rpcs as f64 / many as f64),
            ],
        ));
        let what = format!("{name}: peak memory of the mount's process in MiB");
        found.checks.push(Check::at_most(&what, mib(large.peak_bytes), PEAK_MIB_MAX));
    }
    Ok(found)
}

/// All works, in the order of [`WORKS`], on a tree of so many files.
fn works(files: u64, options: &str, progress: Progress<'_>) -> Result<Vec<Needed>> {
    let dir = crate::machine::scratch_dir("landfast-mount-memory-")?;
    let disk = SparseDisk::new(dir.path(), DISK_BYTES_EACH * files)?;
    let export = disk.path().join("export");
    std::fs::create_dir(&export).context(|| format!("create {}", export.display()))?;
    let server = Served::start(&ServeOptions {
        log_bytes: Some(LOG_BYTES),
        ..ServeOptions::new(&export, Some(&dir.path().join("log")), Durability::Log)
    })?;
    let at = dir.path().join("mounted");
    let mount = FuseMount::start(&format!("nfs://{}/", server.addr()), &at, options)?;
    let mut all = Vec::new();
    for name in WORKS {
        progress(&format!("{files} files: {name}"));
        mount.process().forget_peak()?;
        let cpu_s = || mount.process().cpu().map(|cpu| cpu.as_secs_f64()).ok_or_else(gone);
        let (rpcs, cpu, start) = (mount.rpcs()?, cpu_s()?, Instant::now());
        match name {
            "tar xf" => extract(files, &at)?,
            "ls -lR" => program(Command::new("ls").arg("-lR").arg(at.join("tree")))?,
            _ => program(Command::new("rm").arg("-rf").arg(at.join("tree")))?,
        }
        mount.sync()?;
        let needed = Needed {
            peak_bytes: mount.process().peak_rss_bytes().ok_or_else(gone)?,
            nodes: mount.state("nodes")?,
            seconds: start.elapsed().as_secs_f64(),
            rpcs: mount.rpcs()? - rpcs,
            cpu_s: cpu_s()? - cpu,
        };
        let mib = needed.peak_bytes >> 20;
        progress(&format!("{files} files: {name}: at most {mib} MiB, in {:.0} s", needed.seconds));
        let there = super::server_memory::count_files(&export)?;
        if there != if name == "rm -rf" { 0 } else { files } {
            return Err(Error::WrongData(format!("{name}: {there} files of {files} are there")));
        }
        all.push(needed);
    }
    mount.stop()?;
    server.stop()?;
    Ok(all)
}

fn gone() -> Error {
    Error::Child { role: "mount", what: "ended".into() }
}

/// Extracts a synthetic archive with `tar`.
fn extract(files: u64, to: &std::path::Path) -> Result<()> {
    let what = || "run `tar`".to_owned();
    let mut tar = Command::new("tar");
    tar.args(["-xpf", "-", "-C"]).arg(to).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut tar = tar.spawn().context(what)?;
    if let Some(pipe) = tar.stdin.take() {
        let shape = Shape { files, file_bytes: FILE_BYTES, per_dir: PER_DIR, seed: 7 };
        // When it ends early its exit status tells why.
        let _ = write_random(shape, BufWriter::with_capacity(1 << 20, pipe));
    }
    let out = tar.wait_with_output().context(what)?;
    ended("tar", &out)
}

fn program(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    ended(&name, &out.context(|| format!("run `{name}`"))?)
}

fn ended(name: &str, out: &std::process::Output) -> Result<()> {
    if out.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&out.stderr).chars().take(2000).collect();
    Err(Error::Tool { command: name.to_owned(), status: out.status.to_string(), stderr })
}
