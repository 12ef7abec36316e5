//! `cargo xtask guest linux-source`: the main job at full size. A kernel source archive of tens of thousands of
//! files goes onto `landfast serve`, by `landfast untar` or by Linux's NFS client, and is compared file by file
//! with what `tar` extracts locally.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::archive;
use super::image;
use super::machine::{Hardware, Machine};
use super::mountstats::Counts;
use super::network::{Link, SERVER};
use super::recipe::{Kernel, Vers};
use super::server::{Scratch, ServeOptions, Server};
use super::setup::MOUNTPOINT;
use super::tree;
use crate::proc::{command, run as run_program};

/// Bytes of the scratch volume (sparse).
const VOLUME_BYTES: u64 = 16 << 30;

/// The directory in the export that the archive goes to.
const DESTINATION: &str = "tree";

/// Who extracts.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Client {
    /// `landfast untar` on this machine.
    Landfast,
    /// GNU tar in the guest, on a mount of Linux's NFS client.
    Kernel,
}

/// Options of `guest linux-source`.
#[derive(Args)]
pub struct Options {
    /// Who extracts.
    #[arg(long, value_enum, default_value_t = Client::Landfast)]
    client: Client,
    /// The archive: `linux`, `newlib`, `openvswitch` (from Debian's packages), or a file.
    #[arg(long, default_value = "linux")]
    archive: String,
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// The NFS version that the guest mounts with.
    #[arg(long, default_value_t = Vers::V4_2)]
    vers: Vers,
    #[command(flatten)]
    serve: ServeOptions,
    /// Seconds that the extraction may take.
    #[arg(long, default_value_t = 10_800)]
    limit: u64,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    archive: String,
    client: &'static str,
    files: u64,
    others: u64,
    bytes: u64,
    local_seconds: f64,
    seconds: f64,
    files_per_s: f64,
    rpcs: Option<u64>,
    rpcs_per_file: Option<f64>,
    differing: u64,
    differences: Vec<String>,
}

impl Options {
    pub fn fetch(&self) -> Result<(), String> {
        archive::plain(&archive::find(&self.archive)?)?;
        if self.client == Client::Kernel {
            image::build(self.kernel)?;
        }
        self.serve.binary().map(drop)
    }
}

/// Extracts, compares and reports; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    let archive = archive::find(&options.archive)?;
    let plain = archive::plain(&archive)?;
    let binary = options.serve.binary()?;
    // The local extraction goes to a filesystem of the same kind, so that its time can be compared.
    let reference = Scratch::new(&options.serve.fs, VOLUME_BYTES)?;
    let start = Instant::now();
    let local = reference.volume().join(DESTINATION);
    fs::create_dir(&local).map_err(|e| format!("{}: {e}", local.display()))?;
    // Without the delay tar leaves wrong times on directories that the archive comes back to.
    run_program(command("tar", ["-x", "--delay-directory-restore", "-f"]).arg(&plain).arg("-C").arg(&local))?;
    run_program(command("sync", ["-f"]).arg(&local))?;
    let local_seconds = start.elapsed().as_secs_f64();

    let scratch = Scratch::new(&options.serve.fs, VOLUME_BYTES)?;
    // Before the server starts: nobody else changes a volume that is served.
    let destination = scratch.volume().join(DESTINATION);
    fs::create_dir(&destination).map_err(|e| format!("{}: {e}", destination.display()))?;
    let mut server = Server::start(&binary, &scratch, &options.serve.durability)?;
    let (seconds, rpcs) = match options.client {
        Client::Landfast => by_landfast(&binary, &plain, &server)?,
        Client::Kernel => by_kernel(options, &plain, &server)?,
    };
    server.stop()?;
    let found = tree::compare(&local, &destination)?;
    let report = Report {
        archive: archive.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        client: if options.client == Client::Kernel { "kernel" } else { "landfast" },
        files: found.files,
        others: found.others,
        bytes: found.bytes,
        local_seconds,
        seconds,
        files_per_s: found.files as f64 / seconds,
        rpcs,
        rpcs_per_file: rpcs.map(|rpcs| rpcs as f64 / found.files.max(1) as f64),
        differing: found.differing,
        differences: found.differences,
    };
    if options.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else {
        print(&report);
    }
    Ok(if report.differing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &Report) {
    println!(
        "{}: {} files, {} other objects, {} bytes compared with the local extraction: {} differences",
        report.archive, report.files, report.others, report.bytes, report.differing
    );
    for line in &report.differences {
        println!("  {line}");
    }
    println!("local tar -x and sync: {:.1} s", report.local_seconds);
    println!("{} client: {:.1} s, {:.0} files/s", report.client, report.seconds, report.files_per_s);
    if let (Some(rpcs), Some(per_file)) = (report.rpcs, report.rpcs_per_file) {
        println!("RPCs: {rpcs}, {per_file:.3} per file");
    }
}

/// Extracts with `landfast untar`; returns seconds and RPCs.
fn by_landfast(binary: &Path, archive: &Path, server: &Server) -> Result<(f64, Option<u64>), String> {
    let url = format!("nfs://{}/{DESTINATION}", server.address());
    let start = Instant::now();
    let mut untar = command(&binary.to_string_lossy(), ["untar", "--json", "--same-owner", "-p"]);
    let said = crate::proc::output(untar.arg(archive).arg(url))
        .map_err(|why| format!("{why}\nThe server said last:\n{}", server.said()))?;
    let seconds = start.elapsed().as_secs_f64();
    let json: serde_json::Value =
        serde_json::from_str(&said).map_err(|e| format!("untar --json: {e}: {said}"))?;
    Ok((seconds, json.get("rpcs").and_then(serde_json::Value::as_u64)))
}

/// Extracts with GNU tar in a guest; returns seconds and RPCs.
fn by_kernel(options: &Options, archive: &Path, server: &Server) -> Result<(f64, Option<u64>), String> {
    let image = image::build(options.kernel)?;
    let hardware =
        Hardware { disk: Some(archive.to_owned()), link: Some(Link::new()?), ..Hardware::default() };
    let mut machine = Machine::boot(&image, &hardware)?;
    let limit = Duration::from_secs(options.limit);
    let mut guest = |script: &str| {
        let mut output = Vec::new();
        let code = machine.run(&format!("set -e\n{script}"), &[], limit, &mut output)?;
        let output = String::from_utf8_lossy(&output).into_owned();
        if code == 0 {
            Ok(output)
        } else {
            Err(format!("exit code {code}: {output}\nThe server said last:\n{}", server.said()))
        }
    };
    guest(&format!(
        "mount -t nfs -o vers={},proto=tcp,port={} {SERVER}:/ {MOUNTPOINT}",
        options.vers,
        server.address().port()
    ))?;
    let start = Instant::now();
    guest(&format!("tar -C {MOUNTPOINT}/{DESTINATION} --delay-directory-restore -xf /dev/vdb\nsync"))?;
    let seconds = start.elapsed().as_secs_f64();
    let counts = Counts::parse(&guest("cat /proc/self/mountstats")?, MOUNTPOINT)?;
    guest(&format!("umount {MOUNTPOINT}"))?;
    Ok((seconds, Some(counts.total())))
}
