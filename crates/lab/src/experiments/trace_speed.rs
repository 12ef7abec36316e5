//! `landfast trace` beside `tshark -q -z rpc,srt,100003,3` and `nfstrace` on one capture: processor time, memory, and whether all
//! three count the same.
//!
//! A serial client extracts files over NFSv3. Its traffic is recorded once and then replicated, with another client's address in
//! each copy. All three programs read the same file, which is in the page cache. The quickest turn of each counts: a shared
//! machine makes turns slower, never quicker.

use super::{Check, Choices, Findings, Progress, Row};
use crate::capture::{self, Tap};
use crate::error::{Context, Error, Result};
use crate::serial::tar::Extraction;
use crate::serial::v3::Actor3;
use crate::served::{Durability, ServeOptions, Served};
use crate::sys::{Usage, wait_usage};
use crate::tarball::{self, Shape};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Files that all clients together extract, unless chosen otherwise; the claims are about 62,500: 500,000 calls.
const FILES: u64 = 12_500;

/// Files that one client extracts, and bytes in each.
const FILES_EACH: u64 = 250;
const FILE_BYTES: usize = 4200;

const ROUNDS: usize = 3;

const LOG_BYTES: u64 = 64 << 20;

/// The plugin of nfstrace that counts procedures.
const BREAKDOWN: &str = "/usr/lib/nfstrace/libbreakdown.so";

/// What is claimed of processor time, speed and memory.
const TSHARK_MIN: f64 = 13.0;
// nfstrace takes up to three times as long when its threads get in each other's way; this is below its best.
const NFSTRACE_MIN: f64 = 1.3;
const MB_PER_S_MIN: f64 = 400.0;
const MIB_MAX: f64 = 64.0;

/// A program's quickest turn, and what it printed.
struct ProgramRun {
    took: Duration,
    usage: Usage,
    printed: String,
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::machine::needs_root()?;
    let clients = (choices.files.unwrap_or(FILES) / FILES_EACH).max(1);
    let dir = crate::machine::scratch_dir("landfast-trace-")?;
    let path = dir.path().join("capture.pcap");
    progress("one client extracts files over NFSv3");
    let bytes = make(dir.path(), &path, clients)?;
    let exe = crate::machine::exe()?;
    let (exe, file) = (exe.to_string_lossy(), path.to_string_lossy());
    let breakdown = format!("--analysis={BREAKDOWN}");
    let programs: [(&str, Vec<&str>, &str); 3] = [
        ("landfast trace", vec![&exe, "trace", &file], "landfast"),
        ("tshark", vec!["tshark", "-r", &file, "-q", "-z", "rpc,srt,100003,3"], "tshark"),
        ("nfstrace", vec!["nfstrace", "--mode=stat", "-I", &file, &breakdown], "nfstrace"),
    ];
    let mut best: [Option<ProgramRun>; 3] = [None, None, None];
    for round in 1..=ROUNDS {
        for ((name, command, package), best) in programs.iter().zip(&mut best) {
            progress(&format!(
                "{:.0} MB, {clients} clients: {name}, turn {round} of {ROUNDS}",
                bytes as f64 / 1e6
            ));
            let turn = turn(command, package, dir.path())?;
            if best.as_ref().is_none_or(|best| turn.usage.cpu < best.usage.cpu) {
                *best = Some(turn);
            }
        }
    }
    let [Some(ours), Some(tshark), Some(nfstrace)] = best else { return Ok(Findings::default()) };
    let (own, theirs) = (rows(&ours.printed), rows(&tshark.printed));
    let calls: u64 = own.values().map(|row| row.0).sum();
    let mut found = Findings::default();
    let cpu = |turn: &ProgramRun| turn.usage.cpu.as_secs_f64();
    let mib = |turn: &ProgramRun| turn.usage.peak_rss_bytes as f64 / f64::from(1 << 20);
    let others = counts_of_nfstrace(&nfstrace.printed);
    let counts = [calls, theirs.values().map(|row| row.0).sum(), others.values().sum()];
    for (((name, ..), turn), calls) in programs.iter().zip([&ours, &tshark, &nfstrace]).zip(counts) {
        found.lines.push(Row::new(
            name,
            [
                ("cpu_s", cpu(turn)),
                ("wall_s", turn.took.as_secs_f64()),
                ("mb_per_cpu_s", bytes as f64 / 1e6 / cpu(turn)),
                ("peak_rss_mib", mib(turn)),
                ("calls", calls as f64),
            ],
        ));
    }
    let differ = theirs.iter().filter(|(name, row)| own.get(*name) != Some(row)).count()
        + own.keys().filter(|name| !theirs.contains_key(*name)).count();
    let same = own.iter().map(|(name, row)| (name, &row.0)).eq(&others);
    found.checks = vec![
        Check::exactly("procedures of which tshark has other counts or times", differ as f64, 0.0),
        Check::exactly(
            "whether nfstrace counts the same calls of each procedure",
            f64::from(u8::from(same)),
            1.0,
        ),
        Check::at_least("tshark's processor time, in times of ours", cpu(&tshark) / cpu(&ours), TSHARK_MIN),
        Check::at_least(
            "nfstrace's processor time, in times of ours",
            cpu(&nfstrace) / cpu(&ours),
            NFSTRACE_MIN,
        ),
        Check::at_least("MB a second of processor time", bytes as f64 / 1e6 / cpu(&ours), MB_PER_S_MIN),
        Check::at_most("peak memory in MiB", mib(&ours), MIB_MAX),
    ];
    found.notes = vec![
        format!("a capture of {:.0} MB with {calls} calls of {clients} clients, in the page cache", bytes as f64 / 1e6),
        "counts and shortest, longest, mean and summed service times are compared as printed, to the microsecond".to_owned(),
        "a process counts at least what the lab had resident when it started it".to_owned(),
    ];
    Ok(found)
}

fn make(dir: &Path, to: &Path, clients: u64) -> Result<u64> {
    let export = dir.join("export");
    std::fs::create_dir(&export).context(|| format!("create {}", export.display()))?;
    let options = ServeOptions::new(&export, Some(&dir.join("log")), Durability::Log);
    let server = Served::start(&ServeOptions { log_bytes: Some(LOG_BYTES), ..options })?;
    let tap = Tap::start(server.addr())?;
    extract(&mut Actor3::connect(tap.addr(), "", 1)?)?;
    let frames = capture::frames(&tap.finish()?);
    server.stop()?;
    let what = || format!("write {}", to.display());
    let file = File::create(to).context(what)?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    capture::write(&frames, clients, &mut file).context(what)?;
    Ok(std::fs::metadata(to).context(what)?.len())
}

/// Looks each name up and asks for attributes around the operations that tar makes, as a kernel's client does.
fn extract(actor: &mut Actor3) -> Result<()> {
    let shape = Shape { files: FILES_EACH, file_bytes: FILE_BYTES, ..Shape::default() };
    let mut archive = Vec::new();
    tarball::write_random(shape, &mut archive).context(|| "make an archive".to_owned())?;
    let mut extraction = Extraction::new();
    tarball::read(&archive[..], |member| {
        let (dir, _) = crate::serial::action::split(&member.path);
        let dir = actor.handle(dir)?;
        actor.getattr(&dir)?;
        match actor.handle(&member.path) {
            Err(Error::Nfs { .. }) => {}
            found => return found.map(|_| ControlFlow::Break(())),
        }
        for action in extraction.plan(&member) {
            actor.act(&action)?;
        }
        let made = actor.handle(&member.path)?;
        actor.getattr(&made)?;
        Ok(ControlFlow::Continue(()))
    })?;
    extraction.finish().iter().try_for_each(|action| actor.act(action).map(drop))
}

/// Runs a program in a directory where it may leave files, and without a user's settings.
fn turn(command: &[&str], package: &'static str, dir: &Path) -> Result<ProgramRun> {
    let [program, args @ ..] = command else { return Err(Error::Unable("no program".into())) };
    let said = dir.join("said");
    let what = || format!("run {}", command.join(" "));
    let stderr = File::create(&said).context(what)?;
    let start = Instant::now();
    let child = Command::new(program)
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env_remove("WIRESHARK_CONFIG_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn();
    let mut child = match child {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::NoTool { tool: (*program).to_owned(), package });
        }
        child => child.context(what)?,
    };
    let mut printed = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut printed).context(what)?;
    }
    let (status, usage) = wait_usage(child.id()).context(what)?;
    let took = start.elapsed();
    if !status.success() {
        let stderr = std::fs::read(&said).context(what)?;
        return Err(Error::Tool {
            command: command.join(" "),
            status: status.to_string(),
            stderr: String::from_utf8_lossy(&stderr[..stderr.len().min(4096)]).into_owned(),
        });
    }
    Ok(ProgramRun { took, usage, printed })
}

/// Calls, and shortest, longest, mean and summed service times in microseconds, by procedure.
type Rows = BTreeMap<String, (u64, [u64; 4])>;

/// The rows of a table in tshark's format; text behind the columns is ignored.
fn rows(printed: &str) -> Rows {
    let micros = |s: &str| s.replace('.', "").parse().ok();
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [index, name, calls, min, max, avg, sum, ..] = words[..] else { return None };
        let _: u32 = index.parse().ok()?;
        Some((
            name.to_owned(),
            (calls.parse().ok()?, [micros(min)?, micros(max)?, micros(avg)?, micros(sum)?]),
        ))
    };
    printed.lines().filter_map(row).collect()
}

/// The calls of NFSv3 by procedure, as nfstrace counts them.
fn counts_of_nfstrace(printed: &str) -> BTreeMap<String, u64> {
    let lines = printed.lines().skip_while(|line| !line.starts_with("NFS v3 protocol"));
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, calls, percent] = words[..] else { return None };
        let calls = calls.parse().ok().filter(|calls| *calls > 0 && percent.ends_with('%'))?;
        Some((name.to_owned(), calls))
    };
    lines.take_while(|line| !line.starts_with("Per connection")).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_tshark_and_ours_have_the_same_rows() {
        let tshark = "\
============================================================
NFS Version 3 SRT Statistics:
Index  Procedure              Calls    Min SRT    Max SRT    Avg SRT    Sum SRT
    1  GETATTR                  351   0.000099   1.001000   0.000201   0.070551
";
        let ours = "NFS version 3: service response times in seconds\n\
Index  Procedure              Calls    Min SRT    Max SRT    Avg SRT    Sum SRT     Median   99th pct
    1  GETATTR                  351   0.000099   1.001000   0.000201   0.070551   0.000190   0.000400

351 of 351 calls matched with their replies; 0 sent again; 0 TCP segments sent again
";
        let row = ("GETATTR".to_owned(), (351, [99, 1_001_000, 201, 70_551]));
        assert_eq!((rows(tshark), rows(ours)), (Rows::from([row.clone()]), Rows::from([row])));
    }

    #[test]
    fn of_nfstrace_the_counts_of_all_connections_are_taken() {
        let printed = "\
NFS v3 protocol
Total operations: 3. Per operation:
NULL            0   0.00%
GETATTR      5100  25.06%
LOOKUP          1   0.10%
Per connection info: 
Session: 10.0.0.1:777 --> 10.255.0.1:2049 [TCP]
Total operations: 2035. Per operation:
WRITE          7   1.00%
";
        let counts = [("GETATTR".to_owned(), 5100), ("LOOKUP".to_owned(), 1)];
        assert_eq!(counts_of_nfstrace(printed), counts.into());
    }
}
