//! RPCs per file of the client's commands, by their own counters (sessions made and all), on our server as it is and
//! limited to fewer operations in a COMPOUND; and of a file that is opened by its path at every depth.
//!
//! What the commands leave behind is compared with the archive each time. Nothing is timed: the figures are the same on any
//! machine, but for a COMPOUND more or less where what is packed depends on what has come in.

use super::{Check, Choices, Findings, Progress, Row, client_failed, connect};
use crate::error::{Context, Error, Result};
use crate::memory_disk::MemoryDisk;
use crate::served::{Durability, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use crate::tools;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;

const FILES: u64 = 4096;

/// Directories above a file that is opened.
const DEPTH_MAX: u64 = 32;

const LOG_BYTES: u64 = 64 << 20;

/// The most RPCs per file of each command, on a server that takes so many operations in a COMPOUND.
struct Claim {
    operations: u64,
    untar: f64,
    list: f64,
    copy: f64,
    remove: f64,
}

/// A removal is an operation for each file, so with 50 in a COMPOUND, a SEQUENCE and a PUTFH among them, 1/48 is the least.
const CLAIMS: [Claim; 3] = [
    Claim { operations: 4096, untar: 0.05, list: 0.02, copy: 0.05, remove: 0.02 },
    Claim { operations: 200, untar: 0.05, list: 0.02, copy: 0.05, remove: 0.02 },
    Claim { operations: 50, untar: 0.16, list: 0.02, copy: 0.16, remove: 0.04 },
];

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let files = choices.files.unwrap_or(FILES).max(1);
    crate::namespace::run_private(|| {
        let mut found = Findings::default();
        for claim in &CLAIMS {
            progress(&format!("{} operations in a COMPOUND", claim.operations));
            on_one_server(claim, files, &mut found)?;
        }
        Ok(found)
    })?
}

fn on_one_server(claim: &Claim, files: u64, found: &mut Findings) -> Result<()> {
    let disk = MemoryDisk::new()?;
    let at = |name: &str| disk.scratch().join(name);
    let (export, archive, back) = (disk.export().to_owned(), at("archive.tar"), at("back"));
    std::fs::create_dir(&back).context(|| format!("create {}", back.display()))?;
    let what = || format!("write {}", archive.display());
    let mut out = BufWriter::new(File::create(&archive).context(what)?);
    write_random(Shape { files, ..Shape::default() }, &mut out).and_then(|()| out.flush()).context(what)?;
    let server = Served::start(&ServeOptions {
        log_bytes: Some(LOG_BYTES),
        limits: vec![("compound_operations", claim.operations)],
        ..ServeOptions::new(&export, Some(&at("log")), Durability::Log)
    })?;
    let url = |name: &str| format!("nfs://{}/{name}", server.addr());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let same = |tree: &Path| {
        let archive = File::open(&archive).context(|| format!("open {}", archive.display()))?;
        crate::verify::compare(BufReader::new(archive), tree)?.into_result()
    };

    let operations = claim.operations;
    let mut put = |command: &str, rpcs: u64, bound: f64| {
        let each = rpcs as f64 / files as f64;
        found.lines.push(Row::new(
            &format!("{command}, {operations}"),
            [("files", files as f64), ("rpcs", rpcs as f64), ("rpcs_per_file", each)],
        ));
        let what = format!("{command}: RPCs per file at {operations} operations");
        found.checks.push(Check::at_most(&what, each, bound));
    };
    let untar = tools::run(&["untar", "-p", &text(&archive), &url("")])?;
    put("untar", untar.rpcs, claim.untar);
    same(&export)?;
    // Each command must have counted all files, and the directories.
    for command in [&["ls", "-lR"][..], &["du", "-s"], &["find"]] {
        let ran = tools::run(&[command, &[&url("tree")]].concat())?;
        if ran.objects < files {
            return Err(Error::WrongData(format!(
                "{}: {} objects of {files} files",
                command[0], ran.objects
            )));
        }
        put(command[0], ran.rpcs, claim.list);
    }
    let there = tools::run(&["cp", "-a", &text(&export.join("tree")), &url("copy")])?;
    put("cp to the server", there.rpcs, claim.copy);
    let from = tools::run(&["cp", "-a", &url("copy"), &text(&back.join("tree"))])?;
    put("cp from the server", from.rpcs, claim.copy);
    same(&back)?;
    let removed = tools::run(&["rm", "-r", &url("tree"), &url("copy")])?;
    // Two trees.
    put("rm -r", removed.rpcs.div_ceil(2), claim.remove);
    for name in ["tree", "copy"] {
        if export.join(name).exists() {
            return Err(Error::WrongData(format!("rm -r has left `{name}` behind")));
        }
    }
    let most = nested_opens(server.addr(), &export)?;
    found.lines.push(Row::new(
        &format!("nested open, {operations}"),
        [("depth_max", DEPTH_MAX as f64), ("rpcs", most as f64)],
    ));
    let what = format!(
        "RPCs of the first open of a file at depth 1 to {DEPTH_MAX}, the most, at {operations} operations"
    );
    found.checks.push(Check::exactly(&what, most as f64, 1.0));
    server.stop()
}

/// Opens and reads a file at each depth for the first time. Returns the most calls that one of them took.
fn nested_opens(addr: SocketAddr, export: &Path) -> Result<u64> {
    let mut paths = Vec::new();
    for depth in 1..=DEPTH_MAX {
        let names: Vec<String> = (0..depth).map(|n| format!("below{depth}-{n}")).collect();
        let path = names.join("/");
        let dir = export.join(&path);
        std::fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
        std::fs::write(dir.join("file"), &path).context(|| format!("write in {}", dir.display()))?;
        paths.push(path);
    }
    let runtime = tokio::runtime::Runtime::new().context(|| "start threads".to_owned())?;
    runtime.block_on(async {
        let nfs = connect(addr).await?;
        let mut most = 0;
        for path in &paths {
            let before = nfs.stats().rpcs;
            let read = nfs.read_files([format!("{path}/file")]).await.remove(0);
            let data = read.into_result().map_err(|e| client_failed(&e))?;
            if data != path.as_bytes() {
                return Err(Error::WrongData(format!("{path}/file: other contents")));
            }
            most = most.max(nfs.stats().rpcs - before);
        }
        nfs.disconnect().await;
        Ok(most)
    })
}
