//! What the client's commands need for a long tree: peak memory at two sizes, so that what each file adds is seen, and
//! processor time for each file.
//!
//! The archive is a stream that is made while it is extracted. Volume and copies are on an XFS whose image is a sparse file of this
//! machine's own disk. At most two trees are there at a time: ten million empty files are 6 GB of inodes and directories in each.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::served::{Durability, ServeOptions, Served};
use crate::sparse_disk::SparseDisk;
use crate::tarball::{Shape, write_random};
use crate::tools::{self, Input, ToolRun};
use std::path::Path;

/// Files, unless chosen otherwise; the claims are made for 1,000,000 and more.
const FILES: u64 = 100_000;

/// Bytes of each file, and up to how many files. Larger trees have empty files: each other one takes a block of 4 KiB.
const FILE_BYTES: usize = 64;
const FILES_WITH_DATA_MAX: u64 = 1_000_000;

/// The image's size: room for two trees, of which each file takes so much.
const IMAGE_BYTES_EACH: u64 = 1 << 10;
const IMAGE_BYTES_EACH_WITH_DATA: u64 = 10 << 10;

/// The smaller tree has so many times fewer, and at most [`SETTLED_FILES`].
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
const COMMANDS: [&str; 8] = [
    "untar",
    "ls -lR",
    "du -s",
    "find",
    "cp -r from the server",
    "rm -r",
    "cp -r --resume to the server",
    "cp -r --resume, once more",
];

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::machine::needs_root()?;
    crate::namespace::run_private(|| measure(choices, progress))?
}

fn measure(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let files = choices.files.unwrap_or(FILES).max(FEWER);
    let (few, many) = ((files / FEWER).min(SETTLED_FILES), files);
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
                ("fewer_files", few as f64),
                ("peak_rss_mib_of_fewer", mib(small.peak_rss_bytes)),
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
    let with_data = files <= FILES_WITH_DATA_MAX;
    let each = if with_data { IMAGE_BYTES_EACH_WITH_DATA } else { IMAGE_BYTES_EACH };
    let disk = SparseDisk::new(dir.path(), each * files)?;
    let (export, back) = (disk.path().join("export"), disk.path().join("back"));
    for made in [&export, &back] {
        std::fs::create_dir(made).context(|| format!("create {}", made.display()))?;
    }
    let server = Served::start(&ServeOptions {
        log_bytes: Some(LOG_BYTES),
        ..ServeOptions::new(&export, Some(&dir.path().join("log")), Durability::Log)
    })?;
    let url = |name: &str| format!("nfs://{}/{name}", server.addr());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let journal = text(&dir.path().join("journal"));
    let file_bytes = if with_data { FILE_BYTES } else { 0 };
    let shape = Shape { files, file_bytes, per_dir: 64, seed: 5 };
    let all_there = |tree: &Path| {
        let there = super::server_memory::count_files(tree)?;
        let lacking = || Error::WrongData(format!("{}: {there} files of {files}", tree.display()));
        if there == files { Ok(()) } else { Err(lacking()) }
    };
    let mut steps = Steps { files, progress, all: Vec::with_capacity(COMMANDS.len()) };

    let mut archive =
        |to: &mut dyn std::io::Write| write_random(shape, std::io::BufWriter::with_capacity(1 << 20, to));
    steps.add(|| tools::run_with(&["untar", "-p", "-", &url("")], Input::From(&mut archive)))?;
    all_there(&export.join("tree"))?;
    for args in [&["ls", "-lR"][..], &["du", "-s"], &["find"]] {
        steps.add(|| tools::run(&[args, &[&url("tree")]].concat()))?;
    }
    steps.add(|| tools::run(&["cp", "-r", &url("tree"), &text(&back.join("tree"))]))?;
    all_there(&back.join("tree"))?;
    steps.add(|| tools::run(&["rm", "-r", &url("tree")]))?;
    if export.join("tree").exists() {
        return Err(Error::WrongData("rm -r has left the tree behind".into()));
    }
    // A directory in a file's place: so the first run leaves something to the second.
    let obstacle = export.join("copy/d00000/f0000000");
    std::fs::create_dir_all(&obstacle).context(|| format!("create {}", obstacle.display()))?;
    let copy = ["cp", "-r", "-T", "--resume", &journal, &text(&back.join("tree")), &url("copy")];
    steps.add(|| tools::run_partly(&copy))?;
    std::fs::remove_dir(&obstacle).context(|| format!("remove {}", obstacle.display()))?;
    steps.add(|| tools::run(&copy))?;
    all_there(&export.join("copy"))?;
    server.stop()?;
    Ok(steps.all)
}

/// Runs the commands, and says what each has needed.
struct Steps<'a> {
    files: u64,
    progress: Progress<'a>,
    all: Vec<ToolRun>,
}

impl Steps<'_> {
    fn add(&mut self, run: impl FnOnce() -> Result<ToolRun>) -> Result<()> {
        let name = COMMANDS[self.all.len()];
        (self.progress)(&format!("{} files: {name}", self.files));
        let ran = run()?;
        let peak = ran.usage.peak_rss_bytes >> 20;
        let seconds = ran.took.as_secs();
        (self.progress)(&format!("{} files: {name}: at most {peak} MiB, in {seconds} s", self.files));
        self.all.push(ran);
        Ok(())
    }
}
