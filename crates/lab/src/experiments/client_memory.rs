//! What the client's commands need for a long tree: peak memory at two sizes, so that what each file adds is seen, and
//! processor time for each file.
//!
//! The archive is a stream that is made while it is extracted. Volume and copies are directories of this machine's own disk.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::served::{Durability, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use crate::tools::{self, Input, ToolRun};
use std::path::Path;

/// Files, unless chosen otherwise; the claims are made for 1,000,000 and more.
const FILES: u64 = 100_000;

const FILE_BYTES: usize = 64;

/// The smaller tree has so many times fewer.
const FEWER: u64 = 10;

/// What the commands need whatever the number of files, in MiB: buffers that are bounded by the client's limits, and the
/// program itself.
const BASE_MIB_MAX: f64 = 160.0;

/// What each file may add, in bytes: of a name that is remembered in a temporary file, 2 are in memory. Ten million files then
/// need less than 256 MiB.
const FILE_BYTES_MAX: f64 = 8.0;

/// From so many files on everything that is bounded is at its bound but the table of names, which grows up to the first number.
const SETTLED_FILES: u64 = 100_000;

/// What each further file may add, in bytes, if the smaller tree is settled: that table is 18 MiB.
const MORE_BYTES_MAX: f64 = 32.0;

const LOG_BYTES: u64 = 256 << 20;

/// The commands in the order in which they run.
const COMMANDS: [&str; 6] =
    ["untar", "ls -lR", "du -s", "cp -r to the server", "cp -r from the server", "rm -r"];

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::machine::needs_root()?;
    let files = choices.files.unwrap_or(FILES).max(FEWER);
    let (few, many) = (files / FEWER, files);
    let small = commands(few, progress)?;
    let large = commands(many, progress)?;
    let mut found = Findings::default();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for (i, name) in COMMANDS.iter().enumerate() {
        let (small, large) = (&small[i].usage, &large[i].usage);
        let more = large.peak_rss_bytes.saturating_sub(small.peak_rss_bytes);
        let each = more as f64 / (many - few) as f64;
        found.lines.push(Row::new(
            name,
            [
                ("files", many as f64),
                ("peak_rss_mib", mib(large.peak_rss_bytes)),
                ("peak_rss_mib_of_a_tenth", mib(small.peak_rss_bytes)),
                ("bytes_per_file_more", each),
                ("cpu_us_per_file", large.cpu.as_secs_f64() * 1e6 / many as f64),
            ],
        ));
        let bound = BASE_MIB_MAX + mib((FILE_BYTES_MAX * many as f64) as u64);
        let what =
            format!("{name}: peak memory in MiB, for {BASE_MIB_MAX} MiB and {FILE_BYTES_MAX} bytes a file");
        found.checks.push(Check::at_most(&what, mib(large.peak_rss_bytes), bound));
        if few >= SETTLED_FILES {
            let what = format!("{name}: bytes that each file adds beyond {few}");
            found.checks.push(Check::at_most(&what, each, MORE_BYTES_MAX));
        }
    }
    let most = found.lines.iter().map(|l| l.values["cpu_us_per_file"]).fold(0.0, f64::max);
    found.notes = vec![
        format!(
            "the volume is on this machine's own disk; {most:.0} us of the client's processor time a file at most"
        ),
        "a process counts at least what the lab had resident when it started it".to_owned(),
    ];
    Ok(found)
}

/// All commands, in the order of [`COMMANDS`], on a tree of so many files.
fn commands(files: u64, progress: Progress<'_>) -> Result<Vec<ToolRun>> {
    let dir = crate::machine::scratch_dir("landfast-memory-")?;
    let (export, back) = (dir.path().join("export"), dir.path().join("back"));
    for made in [&export, &back] {
        std::fs::create_dir(made).context(|| format!("create {}", made.display()))?;
    }
    let server = Served::start(&ServeOptions {
        log_bytes: Some(LOG_BYTES),
        ..ServeOptions::new(&export, Some(&dir.path().join("log")), Durability::Log)
    })?;
    let url = |name: &str| format!("nfs://{}/{name}", server.addr());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut doing = |what: &str| progress(&format!("{files} files: {what}"));
    let shape = Shape { files, file_bytes: FILE_BYTES, per_dir: 64, seed: 5 };
    let mut all = Vec::with_capacity(COMMANDS.len());

    doing("untar");
    let mut archive =
        |to: &mut dyn std::io::Write| write_random(shape, std::io::BufWriter::with_capacity(1 << 20, to));
    all.push(tools::run_with(&["untar", "-p", "-", &url("")], Input::From(&mut archive))?);
    for args in [["ls", "-lR"], ["du", "-s"]] {
        doing(&args.join(" "));
        all.push(tools::run(&[args[0], args[1], &url("tree")])?);
    }
    doing("cp -r to the server");
    all.push(tools::run(&["cp", "-r", &text(&export.join("tree")), &url("copy")])?);
    doing("cp -r from the server");
    all.push(tools::run(&["cp", "-r", &url("tree"), &text(&back.join("tree"))])?);
    // What each says that it dealt with, and what is there.
    for ran in &all {
        if ran.objects < files {
            return Err(Error::Unable(format!("{} objects of {files} files", ran.objects)));
        }
    }
    for tree in [export.join("tree"), export.join("copy"), back.join("tree")] {
        let there = super::server_memory::count_files(&tree)?;
        if there != files {
            return Err(Error::Unable(format!("{}: {there} files of {files}", tree.display())));
        }
    }
    doing("rm -r");
    all.push(tools::run(&["rm", "-r", &url("tree")])?);
    if export.join("tree").exists() {
        return Err(Error::Unable("rm -r has left the tree behind".into()));
    }
    server.stop()?;
    Ok(all)
}
