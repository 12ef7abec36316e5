//! Power cuts under the kernel's own NFS server, seen by `landfast verify` on the host.
//!
//! The guest exports a filesystem on an emulated disk with a volatile write cache (`landfast lab disk`), which QEMU uses
//! without a cache of its own (`cache=none`: a write goes to the disk at once, a flush of the guest becomes a flush of the
//! disk). A cut is SIGKILL for QEMU, so that the guest's memory is gone and no reply leaves it any more, and then the cut of
//! the disk, which loses what no flush covered. The guest boots again on the same disk, its kernel replays the filesystem's
//! journal, and the check comes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::disk::Disk;
use super::image::{self, Image};
use super::knfsd;
use super::machine::{Hardware, Machine};
use super::network::Link;
use super::recipe::{Kernel, VERSIONS, Vers};
use super::report;
use super::server::chosen_binary;
use crate::proc::{self, command};

/// Bytes of the scratch disk; the emulated disk takes its memory as it is written.
const DISK_BYTES: u64 = 400 << 20;

/// How long a script or a command of `landfast verify` may take.
const LIMIT: Duration = Duration::from_secs(300);

/// A cut comes after so many acknowledgements at least ...
const ACKS: u64 = 100;

/// ... and within this time more, which is longer than the time after which ext4 writes its journal by itself.
const WITHIN_MS: u64 = 7000;

/// How often the journal is looked at: it alone tells how far the writer is.
const POLL: Duration = Duration::from_millis(20);

/// Options of `guest verify`.
#[derive(Args)]
pub struct Options {
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// Export options to try: sync, async.
    #[arg(long, value_delimiter = ',', default_value = "sync,async")]
    exports: Vec<String>,
    /// The exported filesystem: ext4 or xfs.
    #[arg(long, default_value = "ext4")]
    fs: String,
    /// NFS versions, one a cut in turns.
    #[arg(long, value_delimiter = ',', default_values_t = VERSIONS)]
    vers: Vec<Vers>,
    /// Cuts for each of the export options.
    #[arg(long, default_value_t = 4)]
    cuts: u32,
    /// Clients at work at the same time.
    #[arg(long, default_value_t = 2)]
    clients: u32,
    /// Where everything random comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The binary with `landfast verify`, instead of building the release one.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        image::build(self.kernel)?;
        chosen_binary(self.binary.as_deref()).map(drop)
    }
}

/// Counts of one kind of operation.
#[derive(Clone, Copy, Default, Serialize)]
struct Count {
    acknowledged: u64,
    checked: u64,
    lost: u64,
}

/// What the cuts under one server have shown.
#[derive(Default, Serialize)]
struct Summary {
    title: String,
    cuts: u32,
    cuts_with_losses: u32,
    kinds: BTreeMap<usize, (String, Count)>,
    all: Count,
    handles: u64,
    stale: u64,
    renumbered: u64,
    strange: u64,
    verifier_changed: u32,
    verifier_kept: u32,
}

impl Summary {
    /// Adds a report of `landfast verify check --json`.
    fn add(&mut self, report: &Value, losses: bool) {
        let number = |v: &Value| v.as_u64().unwrap_or(0);
        self.cuts += 1;
        self.cuts_with_losses += u32::from(losses);
        for row in report["rows"].as_array().into_iter().flatten() {
            let lost = number(&row["lost"]);
            // What promises nothing is not checked.
            let promised = row["kind"] != "write-unstable" || lost > 0;
            let place = KINDS.iter().position(|k| row["kind"] == *k).unwrap_or(KINDS.len());
            let name = row["operation"].as_str().unwrap_or_default().to_owned();
            let kind = &mut self.kinds.entry(place).or_insert((name, Count::default())).1;
            for count in [kind, &mut self.all] {
                count.acknowledged += number(&row["acknowledged"]);
                if promised {
                    count.checked += number(&row["checked"]);
                    count.lost += lost;
                }
            }
        }
        self.handles += number(&report["handles"]);
        self.stale += number(&report["stale"]["count"]);
        self.renumbered += number(&report["renumbered"]["count"]);
        self.strange += number(&report["strange"]["count"]);
        match report["verifier"].as_str() {
            Some("changed") => self.verifier_changed += 1,
            Some("kept") => self.verifier_kept += 1,
            _ => {}
        }
    }
}

/// What `--json` prints. `landfast lab report` reads it.
#[derive(Serialize)]
struct Report<'a> {
    /// The form of this object.
    form: u32,
    /// Which of the guest's commands made it.
    guest: &'static str,
    kernel: String,
    servers: &'a [Summary],
}

/// The kinds of operations in the order of the table, as `landfast verify` calls them.
const KINDS: [&str; 17] = [
    "create",
    "create-exclusive",
    "write",
    "write-unstable",
    "commit",
    "setattr-mode",
    "setattr-size",
    "setattr-times",
    "mkdir",
    "rmdir",
    "symlink",
    "link",
    "rename",
    "rename-over",
    "remove",
    "setxattr",
    "removexattr",
];

/// What all cuts of one run share.
struct Run<'a> {
    options: &'a Options,
    binary: PathBuf,
    image: &'a Image,
    hardware: Hardware,
    disk: Disk,
    dir: PathBuf,
    exports: &'a str,
    random: u64,
}

pub fn run(options: &Options) -> Result<ExitCode, String> {
    let dir = image::run_dir("verify")?;
    let binary = chosen_binary(options.binary.as_deref())?;
    let image = image::build(options.kernel)?;
    let link = Link::new()?;
    let mut summaries = Vec::new();
    for exports in &options.exports {
        let place = dir.path().join(exports);
        fs::create_dir(&place).map_err(|e| format!("{}: {e}", place.display()))?;
        let disk = Disk::start(&binary, &place.join("disk"), DISK_BYTES, &format!("seed={}", options.seed))?;
        let hardware =
            Hardware { link: Some(link.clone()), scratch: Some(disk.image()), ..Hardware::default() };
        let mut run = Run {
            options,
            binary: binary.clone(),
            image: &image,
            hardware,
            disk,
            dir: place,
            exports,
            random: options.seed,
        };
        summaries.push(run.cuts()?);
    }
    if options.json {
        let kernel = options.kernel.to_string();
        let report = Report { form: report::FORM, guest: "verify", kernel, servers: &summaries };
        println!("{}", serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?);
    } else {
        print(&summaries);
    }
    Ok(ExitCode::SUCCESS)
}

impl Run<'_> {
    fn cuts(&mut self) -> Result<Summary, String> {
        let mkfs: &[&str] =
            if self.options.fs == "xfs" { &["-q", "-f", "-K"] } else { &["-q", "-F", "-E", "nodiscard"] };
        proc::run(command(&format!("mkfs.{}", self.options.fs), mkfs).arg(self.disk.image()))?;
        proc::run(command("sync", ["--file-system"]).arg(self.disk.image()))?;
        let mut guest = self.boot()?;
        let title = format!("Linux {} knfsd, {} {}", self.options.kernel, self.options.fs, self.exports);
        let mut summary = Summary { title, ..Summary::default() };
        for n in 0..self.options.cuts {
            let vers = self.options.vers[n as usize % self.options.vers.len()];
            let journal = self.dir.join(format!("journal-{n}"));
            let url = knfsd::url(&self.hardware, vers)?;
            self.write_until_cut(guest, &url, &journal)?;
            guest = self.boot()?;
            let (report, losses) = self.check(&url, &journal)?;
            eprintln!(
                "{}: cut {} over NFS {vers}: {} acknowledged, {} checked, {} lost",
                summary.title,
                n + 1,
                report["acknowledged"],
                report["checked"],
                report["lost"]
            );
            summary.add(&report, losses);
        }
        guest.end();
        Ok(summary)
    }

    fn below(&mut self, n: u64) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }

    fn boot(&self) -> Result<Machine, String> {
        knfsd::boot(self.image, &self.hardware, &self.options.fs, self.exports)
    }

    /// `landfast verify write` until some moment, and then neither guest nor disk have power.
    fn write_until_cut(&mut self, mut guest: Machine, url: &str, journal: &Path) -> Result<(), String> {
        let keep = [0, 300, 700, 950][self.below(4) as usize];
        let torn = self.below(2);
        self.disk.control(&format!("keep_permille={keep} torn={torn}"))?;
        let (seed, after, acks) = (self.below(u64::MAX), self.below(WITHIN_MS), ACKS + self.below(ACKS));
        let mut writer = command("setpriv", ["--pdeathsig", "KILL"])
            .arg(&self.binary)
            .args(["verify", "write", url, "--json", "--clients", &self.options.clients.to_string()])
            .args(["--seed", &seed.to_string(), "--journal"])
            .arg(journal)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("landfast verify write: {e}"))?;
        let until = Instant::now() + LIMIT;
        while acknowledged(journal) < acks {
            let ended = writer.try_wait().map_err(|e| format!("landfast verify write: {e}"))?;
            if let Some(status) = ended {
                return Err(format!("landfast verify write ended: {status}\n{}", guest.console()));
            }
            if Instant::now() > until {
                // It may have ended by itself.
                let _ = writer.kill();
                return Err(format!("landfast verify write gets nowhere\n{}", guest.console()));
            }
            std::thread::sleep(POLL);
        }
        std::thread::sleep(Duration::from_millis(after));
        guest.end();
        self.disk.control("cut")?;
        let status = writer.wait().map_err(|e| format!("landfast verify write: {e}"))?;
        self.disk.control("on")?;
        if status.code() == Some(1) {
            Ok(())
        } else {
            Err(format!("landfast verify write ended: {status}, not 1"))
        }
    }

    /// What `landfast verify check` says, and whether something is lost.
    fn check(&self, url: &str, journal: &Path) -> Result<(Value, bool), String> {
        let out =
            command(&self.binary.to_string_lossy(), ["verify", "check", url, "--json", "--wait", "120"])
                .arg("--journal")
                .arg(journal)
                .output()
                .map_err(|e| format!("landfast verify check: {e}"))?;
        let losses = match out.status.code() {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(format!("landfast verify check: {}", String::from_utf8_lossy(&out.stderr))),
        };
        let report =
            serde_json::from_slice(&out.stdout).map_err(|e| format!("landfast verify check: {e}"))?;
        Ok((report, losses))
    }
}

fn acknowledged(journal: &Path) -> u64 {
    let text = fs::read_to_string(journal).unwrap_or_default();
    text.matches("{\"ack\"").count() as u64
}

/// The table in Markdown: how many were lost of how many that could be checked.
fn print(all: &[Summary]) {
    let row = |name: &str, cell: &dyn Fn(&Summary) -> String| {
        let cells: Vec<String> = all.iter().map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    };
    let count = |c: &Count| {
        let text = format!("{} / {}", c.lost, c.checked);
        if c.lost > 0 { format!("**{text}**") } else { text }
    };
    row("lost / checked", &|s| s.title.clone());
    println!("|---|{}", "---:|".repeat(all.len()));
    let mut names: BTreeMap<usize, &str> = BTreeMap::new();
    for (place, (name, c)) in all.iter().flat_map(|s| &s.kinds) {
        if c.checked > 0 {
            names.insert(*place, name);
        }
    }
    for (place, name) in names {
        row(name, &|s| s.kinds.get(&place).map_or("-".to_owned(), |(_, c)| count(c)));
    }
    row("all", &|s| count(&s.all));
    row("acknowledged", &|s| s.all.acknowledged.to_string());
    row("cuts with losses / cuts", &|s| format!("{} / {}", s.cuts_with_losses, s.cuts));
    row("stale handles / tried", &|s| format!("{} / {}", s.stale, s.handles));
    row("changed file ids", &|s| s.renumbered.to_string());
    row("what nobody made", &|s| s.strange.to_string());
    row("write verifier changed / kept", &|s| format!("{} / {}", s.verifier_changed, s.verifier_kept));
}
