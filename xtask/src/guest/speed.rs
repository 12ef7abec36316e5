//! `cargo xtask guest speed`: compares Linux's NFS client with Landfast's, in one guest and on one server. The
//! guest's kernel emulates the network's round trip (netem).
//!
//! The guest has one emulated processor for both clients, so computing costs some ten times as much as on real
//! hardware. RPC counts are exact. Times are fair between the two, and good where round trips dominate. The results
//! of both are checked, and they are durable when a clock stops.

mod many_files;
mod measure;
mod promise;
mod small_work;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::client::{Client, Server};
use super::image;
use super::machine::Hardware;
use super::network;
use super::recipe::Vers;
use super::report;
use super::server;
use super::setup::Setup;
use crate::proc::{command, run as run_program};
use promise::Promise;

const PREPARE: &str = include_str!("../../guest/speed/prepare.sh");
const DELAY: &str = include_str!("../../guest/speed/delay.sh");

/// The guest's disk with the command and the archives.
const KIT: &str = "kit.tar";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A tree of small files: tar -x, ls -lR, du, rm -r.
    Files,
    /// A file below 1 to 32 directories, opened for the first time.
    NestedOpen,
    /// A web page's hundred files, looked at, read and written.
    WebPage,
}

/// Options of `guest speed`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Round trips to emulate, in milliseconds.
    #[arg(long, value_delimiter = ',', default_values_t = [0.1, 1.0, 10.0, 50.0])]
    round_trips: Vec<f64>,
    /// Small files of the tree; where a round trip is long there are fewer.
    #[arg(long, default_value_t = 4096)]
    files: u64,
    /// Only these.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Subject>,
    /// Extract, list and remove the tree also on `landfast mount`, with each of the versions.
    #[arg(long)]
    mount: bool,
    /// Seconds that one command may take.
    #[arg(long, default_value_t = 900)]
    limit: u64,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        self.setup.fetch()?;
        self.setup.binary().map(drop)
    }

    fn wants(&self, subject: Subject) -> bool {
        self.only.is_empty() || self.only.contains(&subject)
    }
}

/// Whose client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Landfast,
    Linux(Vers),
    /// `landfast mount`.
    Mount(Vers),
}

impl Side {
    /// What Landfast's rows are called.
    const OURS: &str = "Landfast";
    /// The others' without their versions.
    const LINUX: &str = "Linux";
    const MOUNT: &str = "landfast mount";

    fn vers(self) -> Option<Vers> {
        match self {
            Side::Landfast => None,
            Side::Linux(vers) | Side::Mount(vers) => Some(vers),
        }
    }

    fn word(self) -> String {
        match self {
            Side::Landfast => "landfast".to_owned(),
            Side::Linux(vers) => format!("linux-{vers}"),
            Side::Mount(vers) => format!("mount-{vers}"),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Side::Landfast => f.write_str(Self::OURS),
            Side::Linux(vers) => write!(f, "{}, v{vers}", Self::LINUX),
            Side::Mount(vers) => write!(f, "{}, v{vers}", Self::MOUNT),
        }
    }
}

/// One work of one client at one round trip.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it belongs to.
    pub subject: Subject,
    /// What was done: a command, how many directories there are above the file, or whether the page came for the first time.
    pub work: String,
    /// The emulated round trip.
    pub round_trip_ms: f64,
    /// `Landfast`, or `Linux, v` or `landfast mount, v` and a version.
    pub client: String,
    /// Files of the tree; else 1.
    pub objects: u64,
    /// How long it took.
    pub seconds: f64,
    /// RPCs that the client sent.
    pub rpcs: f64,
    /// The same by operation, of a mount: without what the kernel does not count so.
    pub operations: BTreeMap<String, u64>,
}

impl Row {
    /// Whether this is another client's row of the same work.
    fn is_beside(&self, other: &Row) -> bool {
        self.client != other.client
            && (self.subject, &self.work) == (other.subject, &other.work)
            && self.round_trip_ms == other.round_trip_ms
    }
}

/// A round trip as it was.
#[derive(Clone, Debug, Serialize)]
pub struct RoundTrip {
    /// What was emulated.
    pub emulated_ms: f64,
    /// What the quickest of some connections took.
    pub connection_ms: f64,
}

/// What `--json` prints. `landfast lab report` reads it.
#[derive(Serialize)]
pub struct Report {
    /// The form of this object.
    pub form: u32,
    /// Which of the guest's commands made it.
    pub guest: &'static str,
    /// The guest's kernel.
    pub kernel: String,
    /// Who serves: `landfast` or `kernel`.
    pub server: String,
    /// The round trips.
    pub round_trips: Vec<RoundTrip>,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What is claimed of it.
    pub promises: Vec<Promise>,
}

/// The guest, the server and what was found so far.
struct Speed<'a> {
    client: &'a mut Client,
    /// What the server serves, if that is on this machine.
    volume: Option<PathBuf>,
    /// Where the archives are.
    dir: PathBuf,
    files: u64,
    vers: Vec<Vers>,
    mount: bool,
    rows: Vec<Row>,
    /// What the last page was written with.
    seed: u64,
}

impl Speed<'_> {
    fn sides(&self) -> Vec<Side> {
        [Side::Landfast].into_iter().chain(self.vers.iter().copied().map(Side::Linux)).collect()
    }

    /// The same with mounts of ours, if these are wanted.
    fn sides_and_mounts(&self) -> Vec<Side> {
        let mounts = self.vers.iter().copied().filter(|_| self.mount).map(Side::Mount);
        self.sides().into_iter().chain(mounts).collect()
    }

    /// The server's root, as Landfast's client in the guest calls it.
    fn url(&self) -> String {
        match self.client.server {
            Server::Landfast(port) => format!("nfs://{}:{port}", network::SERVER),
            Server::FromFile(port) => format!("nfs://{}:{port}{}", network::SERVER, server::NAME),
            Server::Guest(address) => format!("nfs://{address}:2049"),
            Server::Ganesha(_) => format!("nfs://{}:2049", network::SERVER),
            Server::Kernel | Server::Local => "nfs://127.0.0.1:2049".to_owned(),
        }
    }

    fn hear(&self, what: &str) {
        eprintln!("  {what}");
    }
}

/// Measures; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    let scratch = image::run_dir("speed")?;
    let dir = scratch.path().to_owned();
    let mut counts: Vec<u64> =
        options.round_trips.iter().map(|ms| many_files::files_at(options.files, *ms)).collect();
    counts.sort_unstable();
    counts.dedup();
    let archives = many_files::make_archives(&dir, &counts)?;
    let binary = options.setup.binary()?;
    let kit = dir.join(KIT);
    let mut tar = command("tar", ["-cf"]);
    tar.arg(&kit).arg("-C").arg(binary.parent().unwrap_or(&dir)).args(binary.file_name());
    tar.arg("--transform").arg("s|.*/||").args(archives).arg("--absolute-names");
    run_program(&mut tar)?;

    let hardware = Hardware { disk: Some(kit), ..Hardware::default() };
    let mut stage = options.setup.start_served(hardware, options.limit)?;
    let (kernel, volume) = (stage.client.machine.release.clone(), stage.volume());
    let name = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
    stage.client.run(
        None,
        &format!("{PREPARE}\n[ {name} = landfast ] || mv {name} landfast\nmkdir -p bin\nln landfast bin"),
    )?;
    let mut speed = Speed {
        client: &mut stage.client,
        volume,
        dir,
        files: options.files,
        vers: options.setup.vers.clone(),
        mount: options.mount,
        rows: Vec::new(),
        seed: 0,
    };
    let round_trips = measure_all(options, &mut speed);
    let rows = std::mem::take(&mut speed.rows);
    let round_trips = match round_trips {
        Ok(round_trips) => round_trips,
        Err(why) => {
            stage.explain()?;
            return Err(why);
        }
    };
    stage.end()?;
    let promises = promise::judge(&rows, options.setup.server);
    let server = options.setup.server.to_string();
    let report = Report { form: report::FORM, guest: "speed", kernel, server, round_trips, rows, promises };
    if options.setup.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else {
        print!("{}", table::text(&report));
    }
    let kept = report.promises.iter().all(|promise| promise.kept);
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure_all(options: &Options, speed: &mut Speed<'_>) -> Result<Vec<RoundTrip>, String> {
    let mut round_trips = Vec::new();
    if options.wants(Subject::NestedOpen) || options.wants(Subject::WebPage) {
        small_work::make(speed)?;
    }
    for ms in &options.round_trips {
        let said = speed.client.run(None, &format!("ROUND_TRIP_US={}\n{DELAY}", (ms * 1000.0).round()))?;
        let micros: u64 = said.trim().parse().map_err(|_| format!("how long a connection takes: {said}"))?;
        speed.hear(&format!("round trips of {ms} ms: a connection takes {} ms", micros as f64 / 1000.0));
        round_trips.push(RoundTrip { emulated_ms: *ms, connection_ms: micros as f64 / 1000.0 });
        if options.wants(Subject::Files) {
            many_files::run_at(speed, *ms)?;
        }
        if options.wants(Subject::NestedOpen) {
            small_work::nested_open(speed, *ms)?;
        }
        if options.wants(Subject::WebPage) {
            small_work::web_page(speed, *ms)?;
        }
    }
    Ok(round_trips)
}
