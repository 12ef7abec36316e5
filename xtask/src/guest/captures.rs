//! `cargo xtask guest captures`: captures what Linux's NFS client sends while it extracts a few files, on the host's
//! side of its network. Compares `landfast trace` with tshark's tables and with the client's own counters. Then the
//! same with a lot of work.

mod listing;
pub mod tables;
pub mod tcpdump;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use serde_json::Value;

use super::client::Server;
use super::image;
use super::machine::Hardware;
use super::mountstats::{self, Counts};
use super::recipe::Vers;
use super::setup::{MOUNTPOINT, Setup, Stage, Who};
use crate::packages;
use crate::proc::{command, output, run as run_program};
use listing::{expanded, sequence};
use tables::{calls_by_name, operations_of_tshark, procedures_of_tshark, rows_of_ours, same};
use tcpdump::Tcpdump;

/// Bytes of a WRITE.
const WRITE_BYTES: u64 = 32 << 10;

/// Files below and above that, and five that are alike.
const FILES: [(&str, u64); 9] = [
    ("1kfile", 1 << 10),
    ("32kfile", 32 << 10),
    ("33kfile", 33 << 10),
    ("64kfile", 64 << 10),
    ("test1", 1 << 10),
    ("test2", 1 << 10),
    ("test3", 1 << 10),
    ("test4", 1 << 10),
    ("test5", 1 << 10),
];

/// What is done to files of which each call is looked at, and what is only counted and timed.
const EXTRACT: &str = include_str!("../../guest/captures/files.sh");
const MUCH: &str = include_str!("../../guest/captures/much.sh");

const END: &str = "rm -r $WORK\numount $MNT";

/// The parts of a verdict.
const BOUNDS: [&str; 7] = ["rtt", "persistence", "server", "bandwidth", "client", "loss", "mixed"];

/// What Linux's client counts apart of version 4, and the main operation of its COMPOUND.
const COUNTED_APART: [(&str, &str); 9] = [
    ("OPEN_NOATTR", "OPEN"),
    ("SYMLINK", "CREATE"),
    ("LOOKUP_ROOT", "PUTROOTFH"),
    ("GET_LEASE_TIME", "PUTROOTFH"),
    ("FSINFO", "GETATTR"),
    ("PATHCONF", "GETATTR"),
    ("STATFS", "GETATTR"),
    ("SERVER_CAPS", "GETATTR"),
    ("GETACL", "GETATTR"),
];

/// Options of `guest captures`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Keep the captures in this directory, as guest-vVERSION.pcap.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Seconds that one script of the guest may take.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        packages::require(&packages::CAPTURERS)?;
        self.setup.fetch()?;
        self.setup.binary().map(drop)
    }
}

/// Captures and compares; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    if options.setup.server != Who::Landfast {
        return Err(
            "what the guest sends to itself does not go over its network: --server landfast".to_owned()
        );
    }
    let scratch = image::run_dir("captures")?;
    let dir = image::kept_in(options.keep.as_deref(), scratch.path())?;
    let binary = options.setup.binary()?;
    let hardware = Hardware { disk: Some(archive(scratch.path())?), ..Hardware::default() };
    let mut stage = options.setup.start_served(hardware, options.limit)?;
    let (mut failed, mut rows) = (0, Vec::new());
    for vers in &options.setup.vers {
        let start = Instant::now();
        let names = FILES.map(|(name, _)| name).join(" ");
        let extract = format!("WRITE_BYTES={WRITE_BYTES} FILES='{names}'\n{EXTRACT}");
        let few = capture(&mut stage, *vers, &extract, &dir.join(format!("guest-v{vers}.pcap")))?;
        let much = capture(&mut stage, *vers, MUCH, &dir.join(format!("guest-v{vers}-much.pcap")))?;
        let result = few.judge_files(&binary).and_then(|few| Ok([few, much.judge_sums(&binary)?]));
        let seconds = start.elapsed().as_secs_f64();
        let row = match &result {
            Ok([few, much]) => {
                format!("{few} and {much} calls, as tshark and the client count and time them")
            }
            Err(why) => format!("FAILED: {why}"),
        };
        eprintln!("{vers}: {row} ({seconds:.1} s)");
        rows.push(
            serde_json::json!({"vers": vers.to_string(), "seconds": seconds, "calls": result.as_ref().ok(),
            "failed": result.as_ref().err()}),
        );
        failed += usize::from(result.is_err());
    }
    stage.end()?;
    if options.setup.json {
        println!("{}", serde_json::json!({"versions": rows}));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The files in an archive.
fn archive(dir: &Path) -> Result<PathBuf, String> {
    let archive = dir.join("files.tar");
    let mut tar = command("tar", ["-cf"]);
    tar.arg(&archive).arg("-C").arg(dir);
    for (name, bytes) in FILES {
        let content: Vec<u8> = name.bytes().cycle().take(bytes as usize).collect();
        std::fs::write(dir.join(name), content).map_err(|e| format!("{name}: {e}"))?;
        tar.arg(name);
    }
    run_program(&mut tar)?;
    Ok(archive)
}

/// A capture of the mount's life until now, and what the client counted in it.
struct Captured {
    vers: Vers,
    file: PathBuf,
    /// The server's.
    port: u16,
    mountstats: String,
}

fn capture(stage: &mut Stage, vers: Vers, script: &str, file: &Path) -> Result<Captured, String> {
    let (Server::Landfast(port) | Server::FromFile(port)) = stage.client.server else {
        return Err("nobody serves here".to_owned());
    };
    let link = stage.link().ok_or("the guest has no address")?;
    let (device, address) = (link.device.clone(), link.host().to_owned());
    let tcpdump = Tcpdump::start(&device, file)?;
    let mountstats = match stage.client.run(Some(vers), script) {
        Ok(text) => text,
        Err(why) => {
            stage.explain()?;
            return Err(why);
        }
    };
    tcpdump.end(&address)?;
    stage.client.run(Some(vers), END)?;
    Ok(Captured { vers, file: file.to_owned(), port, mountstats })
}

impl Captured {
    /// `landfast trace` of it.
    fn trace(&self, binary: &Path, options: &[&str]) -> Result<String, String> {
        output(command(&binary.to_string_lossy(), ["trace"]).args(options).arg(&self.file))
    }

    fn report(&self, binary: &Path) -> Result<Value, String> {
        serde_json::from_str(&self.trace(binary, &["--json"])?).map_err(|e| format!("--json: {e}"))
    }

    /// What holds of all calls; returns how many there are.
    fn judge_sums(&self, binary: &Path) -> Result<u64, String> {
        let report = self.report(binary)?;
        let theirs = procedures_of_tshark(&self.file, self.port, self.vers)?;
        same("procedures", &rows_of_ours(&report, self.vers, false)?, &theirs)?;
        let calls = self.compare_counters(&report)?;
        verdict(&report)?;
        let listed = listing::calls(&self.trace(binary, &["--list"])?)?.len() as u64;
        if listed == calls { Ok(calls) } else { Err(format!("--list has {listed} calls of {calls}")) }
    }

    /// That, and what holds of each file.
    fn judge_files(&self, binary: &Path) -> Result<u64, String> {
        let calls = self.judge_sums(binary)?;
        let report = self.report(binary)?;
        if self.vers != Vers::V3 {
            let theirs = operations_of_tshark(&self.file, self.port)?;
            same("main operations", &rows_of_ours(&report, self.vers, true)?, &theirs)?;
        }
        let mut sequences: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for (name, bytes) in FILES {
            let calls = listing::calls(&self.trace(binary, &["--list", "--file", name])?)?;
            self.form(bytes, &calls).map_err(|why| format!("{name}: {why}: {calls:#?}"))?;
            *sequences.entry(sequence(&calls)).or_default() += 1;
        }
        shapes(&report, &sequences)?;
        Ok(calls)
    }

    /// With what the client says that it has sent.
    fn compare_counters(&self, report: &Value) -> Result<u64, String> {
        let count = |key: &str| report[key].as_u64().ok_or(format!("--json: no {key}"));
        let (seen, matched) = (count("calls_seen")?, count("calls_matched")?);
        // Goes over the same connection.
        let acls =
            report["procedures"].as_array().into_iter().flatten().filter(|row| row["program"] == "NFSACL");
        let acls: u64 = acls.filter_map(|row| row["calls"].as_u64()).sum();
        let sent = mountstats::sent(&self.mountstats, MOUNTPOINT)?;
        if (seen, matched) != (sent.saturating_sub(acls), seen) {
            return Err(format!(
                "{matched} of {seen} calls have replies; the client sent {sent}, {acls} of ACLs"
            ));
        }
        let counted = self.counted()?;
        let ours = calls_by_name(report, self.vers, self.vers != Vers::V3);
        if ours == counted {
            Ok(seen)
        } else {
            Err(format!("calls {ours:?}; the client counted {counted:?}"))
        }
    }

    /// What the client counted, as the table has it: by procedure, or by main operation, of which NULL has none.
    fn counted(&self) -> Result<BTreeMap<String, u64>, String> {
        let Counts(counted) = Counts::parse(&self.mountstats, MOUNTPOINT)?;
        if self.vers == Vers::V3 {
            return Ok(counted);
        }
        let mut by_operation = BTreeMap::new();
        for (name, calls) in counted.into_iter().filter(|(name, _)| name != "NULL") {
            let main = COUNTED_APART.iter().find(|(apart, _)| *apart == name);
            *by_operation.entry(main.map_or(name, |(_, main)| (*main).to_owned())).or_default() += calls;
        }
        Ok(by_operation)
    }

    /// What the calls for one file have to look like, among others: not there, made, written, its owner, mode and time set. What does not fit
    /// into one WRITE is made stable by a COMMIT behind, what does by its WRITE.
    fn form(&self, bytes: u64, calls: &[listing::Call]) -> Result<(), String> {
        let names = sequence(calls);
        let has = |name: &str| names.iter().filter(|found| *found == name).count();
        let pieces = bytes.div_ceil(WRITE_BYTES);
        let (missing, made) = match self.vers {
            Vers::V3 => ("LOOKUP(NFS3ERR_NOENT)", "CREATE"),
            _ => ("LOOKUP(NFS4ERR_NOENT)", "OPEN"),
        };
        // An exclusive create without a session has no room for attributes.
        let guarded = matches!(self.vers, Vers::V4_1 | Vers::V4_2);
        let mut steps = vec![missing, made];
        steps.extend((!guarded).then_some("SETATTR"));
        steps.extend((0..pieces).map(|_| "WRITE"));
        steps.extend((pieces > 1).then_some("COMMIT"));
        steps.push("SETATTR");
        steps.extend((self.vers != Vers::V3).then_some("CLOSE"));
        let mut found = names.iter();
        if let Some(step) = steps.iter().find(|step| !found.any(|name| name == *step)) {
            return Err(format!("no {step} where it belongs"));
        }
        if has("CLOSE") != usize::from(self.vers != Vers::V3) || has("COMMIT") != usize::from(pieces > 1) {
            return Err("closed or committed otherwise".to_owned());
        }
        let mut writes: Vec<_> =
            calls.iter().filter(|call| call.name == "WRITE").map(listing::Call::write).collect();
        writes.sort_unstable();
        let wanted = |piece: u64, how: &'static str| {
            let from = piece * WRITE_BYTES;
            Some((from, WRITE_BYTES.min(bytes - from), how))
        };
        // The last of several may say FILE_SYNC: then nothing was answered yet that would want a COMMIT.
        let right = writes.len() as u64 == pieces
            && writes.iter().zip(0..).all(|(found, piece)| {
                let last = piece + 1 == pieces;
                *found == wanted(piece, "FILE_SYNC") && last
                    || *found == wanted(piece, "UNSTABLE") && pieces > 1
            });
        if right { Ok(()) } else { Err("written otherwise".to_owned()) }
    }
}

/// There is one, with its shares.
fn verdict(report: &Value) -> Result<(), String> {
    let verdict = &report["verdict"];
    let bound = verdict["bound"].as_str().filter(|bound| BOUNDS.contains(bound));
    let seconds = |part: &&str| verdict["shares"][*part].as_f64();
    let shares: Vec<f64> = BOUNDS.iter().filter_map(seconds).collect();
    if bound.is_some() && shares.len() + 1 == BOUNDS.len() && shares.iter().sum::<f64>() > 0.0 {
        Ok(())
    } else {
        Err(format!("no verdict: {verdict}"))
    }
}

/// The shapes have the files' sequences, each as often as the listing.
fn shapes(report: &Value, sequences: &BTreeMap<Vec<String>, u64>) -> Result<(), String> {
    let shapes = report["files"].as_array().into_iter().flatten();
    let shape = |shape: &Value| Some((expanded(shape["sequence"].as_str()?), shape["files"].as_u64()?));
    let found: BTreeMap<Vec<String>, u64> = shapes.filter_map(shape).collect();
    if found == *sequences {
        Ok(())
    } else {
        Err(format!("shapes {found:#?}; the listing has {sequences:#?}"))
    }
}
