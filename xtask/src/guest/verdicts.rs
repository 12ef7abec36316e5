//! `cargo xtask guest verdicts`: makes thirty captures with known causes, of Linux's client and of libnfs, with
//! nfs-ganesha and Landfast as servers, and judges what `landfast trace` says about each.
//!
//! The answer of a case is fixed in [`cases`] before the capture: it is what is done to the work. Some captures are
//! altered as captures are in the field (duplicate frames, only replies, a clock that is set back), which changes no
//! cause.

mod altered;
mod cases;
mod libnfs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::image;
use super::injected::slow::Starved;
use super::injected::{CLOSED, Stage};
use super::recipe::Kernel;
use super::server::chosen_binary;
use crate::packages;
use crate::proc::command;
use altered::Altered;
use cases::{CASES, CapturedAt, Case, Client};
use libnfs::Libnfs;

/// How many of the whole set have to be right.
const RIGHT_MIN: usize = 28;

/// How often a case is tried whose work was over before all was done to it.
const TRIES: u32 = 2;

/// Options of `guest verdicts`.
#[derive(Args)]
pub struct Options {
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// Only these cases.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Keep the captures in this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Capture nothing: judge what was kept in this directory.
    #[arg(long, conflicts_with = "keep")]
    judge: Option<PathBuf>,
    /// Judge each capture also as it would be if it were altered in each way that there is.
    #[arg(long)]
    altered: bool,
    /// The binary, instead of building the release one.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Seconds that one work may take.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        packages::require(&packages::VERDICTS)?;
        if self.judge.is_none() {
            image::build(self.kernel)?;
        }
        chosen_binary(self.binary.as_deref()).map(drop)
    }

    fn wants(&self, case: &Case) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == case.name)
    }
}

/// What was said of a capture.
struct CaptureVerdict {
    /// What bounds the work, or whether stalls do; of several clients each.
    answer: String,
    confidence: String,
}

impl CaptureVerdict {
    fn right(&self, case: &Case) -> bool {
        case.causes.contains(&self.answer.as_str()) && !(case.doubted && self.sure())
    }

    fn sure(&self) -> bool {
        self.confidence == "high"
    }
}

/// Captures and judges; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    let scratch = image::run_dir("verdicts")?;
    let dir = image::kept_in(options.keep.as_deref().or(options.judge.as_deref()), scratch.path())?;
    let binary = chosen_binary(options.binary.as_deref())?;
    let mut rig = match options.judge {
        Some(_) => None,
        None => Some(Rig::new(options, &binary, scratch.path())?),
    };
    println!("| capture | cause that was made | said | confidence | |\n|---|---|---|---|---|");
    let (mut judged, mut right, mut wrong_and_sure) = (0, 0, 0);
    for case in CASES.iter().filter(|case| options.wants(case)) {
        let at = dir.join(case.name);
        let files = ["client", "server"].map(|end| at.join(format!("{end}.pcap")));
        let taken = rig.as_mut().map_or(Ok(()), |rig| rig.capture(case, &at, &files));
        let said = taken.and_then(|()| judge(case, case.altered, &binary, &at, &files));
        judged += 1;
        let row = match said {
            Ok(said) => {
                let fits = said.right(case);
                right += usize::from(fits);
                let answers = case.causes.contains(&said.answer.as_str());
                wrong_and_sure += usize::from(!answers && said.sure());
                let mark = if fits { "right" } else { "**wrong**" };
                format!("{} | {} | {mark}", said.answer, said.confidence)
            }
            Err(why) => format!("not captured: {} | | **wrong**", why.lines().next().unwrap_or_default()),
        };
        println!("| {} | {} | {row} |", case.what(), case.done);
    }
    println!("\n{right} of {judged} right, {wrong_and_sure} wrong with high confidence");
    if options.altered {
        wrong_and_sure += judge_altered(options, &binary, &dir)?;
    }
    let all_of_set = judged < CASES.len() && right == judged || right >= RIGHT_MIN;
    Ok(if all_of_set && wrong_and_sure == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Servers, the guest, and libnfs beside it.
struct Rig {
    stage: Stage,
    libnfs: Libnfs,
}

impl Rig {
    fn new(options: &Options, binary: &Path, dir: &Path) -> Result<Rig, String> {
        let stage = Stage::new(options.kernel, options.limit, binary, dir)?;
        Ok(Rig { stage, libnfs: Libnfs::new(dir)? })
    }

    /// Does a case's work, again if it was over too soon.
    fn capture(&mut self, case: &Case, at: &Path, files: &[PathBuf; 2]) -> Result<(), String> {
        fs::create_dir_all(at).map_err(|e| format!("{}: {e}", at.display()))?;
        let start = Instant::now();
        let mut once = || self.work(case, at, files);
        let mut done = once();
        for _ in 1..TRIES {
            done = done.or_else(|why| {
                eprintln!("{}: once more: {why}", case.name);
                once()
            });
        }
        eprintln!("{} ({:.1} s)", case.name, start.elapsed().as_secs_f64());
        done
    }

    fn work(&mut self, case: &Case, at: &Path, files: &[PathBuf; 2]) -> Result<(), String> {
        let stage = &mut self.stage;
        stage.ether.set(Default::default());
        let port = stage.port(case.who, case.each_ms)?;
        let linux = match case.client {
            Client::Linux(vers, options) => Some((vers, stage.mount(case.who, vers, options, port))),
            Client::Libnfs => None,
        };
        if let Some((vers, mount)) = &linux {
            let prepare = format!(
                "{mount}\nrm -rf $WORK\nmkdir $WORK\n{}\nforget\numount $MNT\n{CLOSED}",
                case.prepare
            );
            stage.client.run(Some(*vers), &prepare)?;
        }
        let path = stage.path(case.who, port);
        stage.disks(&format!("flush_us={} read_us=0", case.flush_ms * 1e3))?;
        let [ether, other] = match linux {
            Some(_) => [&stage.ether, &self.libnfs.ether],
            None => [&self.libnfs.ether, &stage.ether],
        };
        ether.set(case.line);
        other.set(case.beside.map_or_else(Default::default, |beside| beside.line));
        let lost = ether.lost();
        ether.capture([&files[0], &files[1]])?;
        let beside = ["beside.client.pcap", "beside.server.pcap"].map(|name| at.join(name));
        if case.beside.is_some() {
            other.capture([&beside[0], &beside[1]])?;
        }
        let server = stage.pid(case.who).and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let starved = case.quota_ms.and_then(|(still, runs)| {
            Starved::new(stage.pid(case.who)?, Duration::from_millis(still), Duration::from_millis(runs))
        });
        let stops = server.filter(|_| !case.stops.is_empty()).map(|server| Stops::begin(server, case.stops));
        let asked = case.beside.map(|beside| self.libnfs.start(&path, port, case.name, beside.work));
        let done = match linux {
            Some((vers, mount)) => {
                let work = format!("{mount}\n{}\nsync\numount $MNT\n{CLOSED}", case.work);
                stage.client.run(Some(vers), &work).map(drop)
            }
            None => self.libnfs.start(&path, port, case.name, case.work).and_then(libnfs::wait),
        };
        let asked = asked.map_or(Ok(()), |child| child.and_then(libnfs::wait));
        drop(starved);
        let stopped = stops.map_or(Ok(()), Stops::end);
        let ethers = [&self.stage.ether, &self.libnfs.ether];
        ethers.iter().try_for_each(|ether| ether.end_capture())?;
        let ether = if case.is_linux() { ethers[0] } else { ethers[1] };
        let lost = ether.lost() - lost;
        ethers.iter().for_each(|ether| ether.set(Default::default()));
        self.stage.disks("flush_us=0 read_us=0")?;
        if done.is_err() && case.is_linux() {
            let _ = self.stage.client.run(None, "umount -lf $MNT");
        }
        done.and(asked).map_err(|why| format!("{why}\n{}", self.stage.said()))?;
        if lost == 0 && case.line.lost_of_1000 > 0 {
            return Err("nothing was lost".to_owned());
        }
        stopped
    }
}

/// Stops a server at some times for some time each.
struct Stops {
    thread: JoinHandle<Instant>,
}

impl Stops {
    /// `stops`: milliseconds until each, and of each.
    fn begin(server: Pid, stops: &'static [(u64, u64)]) -> Stops {
        let thread = std::thread::spawn(move || {
            for (until, for_ms) in stops {
                // The cause that is made is a time: nothing is waited for here.
                std::thread::sleep(Duration::from_millis(*until));
                let stopped = kill_process(server, Signal::STOP);
                std::thread::sleep(Duration::from_millis(*for_ms));
                if kill_process(server, Signal::CONT).and(stopped).is_err() {
                    break;
                }
            }
            Instant::now()
        });
        Stops { thread }
    }

    /// When the work is over; an error if it was before all that was to happen.
    fn end(self) -> Result<(), String> {
        let over = Instant::now();
        let ended = self.thread.join().map_err(|_| "what stops the server has ended badly".to_owned())?;
        if ended <= over { Ok(()) } else { Err("the work was over before the server was stopped".to_owned()) }
    }
}

/// Judges each capture in each way that it may be altered; how many were wrong with high confidence.
fn judge_altered(options: &Options, binary: &Path, dir: &Path) -> Result<usize, String> {
    println!("\n| altered | right | wrong | wrong with high confidence |\n|---|---|---|---|");
    let mut all = 0;
    for altered in Altered::ALL {
        let (mut right, mut wrong, mut sure) = (0, 0, Vec::new());
        let of = |case: &&Case| options.wants(case) && case.seen != CapturedAt::Merged;
        for case in CASES.iter().filter(of) {
            let at = dir.join(case.name);
            let files = ["client", "server"].map(|end| at.join(format!("{end}.pcap")));
            let said = judge(case, altered, binary, &at, &files)?;
            let causes = if altered == Altered::RepliesOnly { &["nothing"][..] } else { case.made() };
            match causes.contains(&said.answer.as_str()) {
                true => right += 1,
                false if said.sure() => sure.push(format!("{}: {}", case.name, said.answer)),
                false => {
                    wrong += 1;
                    eprintln!("{altered:?}: {}: {}, {}", case.name, said.answer, said.confidence);
                }
            }
        }
        println!("| {altered:?} | {right} | {wrong} | {} |", sure.join(", "));
        all += sure.len();
    }
    Ok(all)
}

/// What is said of a case's capture, altered.
fn judge(
    case: &Case,
    altered: Altered,
    binary: &Path,
    at: &Path,
    files: &[PathBuf; 2],
) -> Result<CaptureVerdict, String> {
    let mut trace = command(&binary.to_string_lossy(), ["trace", "--json"]);
    let file = at.join("judged.pcap");
    match case.seen {
        CapturedAt::Merged => trace.arg("--merge").args([&files[1], &files[0]]),
        CapturedAt::Client | CapturedAt::Server | CapturedAt::Beside => {
            let of = match case.seen {
                CapturedAt::Client => vec![files[0].clone()],
                CapturedAt::Server => vec![files[1].clone()],
                _ => vec![files[1].clone(), at.join("beside.server.pcap")],
            };
            altered::write(&of, altered, &file)?;
            trace.arg(&file)
        }
    };
    let output = trace.output().map_err(|e| format!("landfast trace: {e}"))?;
    if altered == Altered::RepliesOnly && output.status.code() == Some(2) {
        return Ok(CaptureVerdict { answer: "nothing".to_owned(), confidence: "-".to_owned() });
    }
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("--json: {e}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let verdict = &report["verdict"];
    let answer = if verdict["several_causes"] == true {
        let pairs = report["pairs"].as_array().into_iter().flatten();
        let mut each: Vec<String> =
            pairs.map(|pair| answer(&pair["stalls"], &pair["shares"], &pair["verdict"]["bound"])).collect();
        each.sort_unstable();
        each.join(" and ")
    } else if verdict.is_null() || verdict["bound"].is_null() {
        "nothing".to_owned()
    } else {
        answer(&verdict["stalls"], &verdict["shares"], &verdict["bound"])
    };
    let confidence = verdict["words"]["confidence"].as_str().unwrap_or("-").to_owned();
    Ok(CaptureVerdict { answer, confidence })
}

/// What comes first in the verdict: stalls if they took more than any part.
fn answer(stalls: &Value, shares: &Value, bound: &Value) -> String {
    let parts = shares.as_object().into_iter().flatten();
    let most = parts.filter_map(|(_, s)| s.as_f64()).fold(0.0, f64::max);
    let bound = bound.as_str().unwrap_or("nothing").to_owned();
    if stalls["seconds"].as_f64().is_none_or(|s| s <= most) {
        return bound;
    }
    if stalls["period_s"].as_f64().is_some_and(|s| s <= 1.0) {
        return "quota".to_owned();
    }
    let network = stalls["longest"].as_array().into_iter().flatten().any(|stall| stall["who"] == "network");
    if network { "stall of the network".to_owned() } else { "stall".to_owned() }
}
