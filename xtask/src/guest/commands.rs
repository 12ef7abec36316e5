//! The client's commands and `landfast mount` on the kernel's own NFS server, in each version: `landfast lab commands` and `landfast lab
//! mount-checks` here, the server in a guest.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::folded;
use super::image;
use super::knfsd;
use super::large_copy::Stage;
use super::machine::{Hardware, Machine};
use super::network::Link;
use super::probed;
use super::recipe::{Kernel, VERSIONS, Vers};
use super::server::chosen_binary;
use super::squashed;
use crate::proc::{self, command};

/// Bytes of the exported disk.
const DISK_BYTES: u64 = 2 << 30;

/// How long the commands may take on all versions.
const LIMIT: Duration = Duration::from_secs(600);

/// What is done on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The client's commands.
    Commands,
    /// `landfast mount`.
    Mount,
}

/// Options of `guest commands`.
#[derive(Args)]
pub struct Options {
    /// Only these.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// The exported filesystem: ext4 or xfs.
    #[arg(long, default_value = "ext4")]
    fs: String,
    /// NFS versions.
    #[arg(long, value_delimiter = ',', default_values_t = VERSIONS)]
    vers: Vec<Vers>,
    /// Small files of the tree.
    #[arg(long, default_value_t = 200)]
    files: u64,
    /// Leave out the copy of a large file.
    #[arg(long)]
    small: bool,
    /// The binary with the commands, instead of building the release one.
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        image::build(self.kernel)?;
        chosen_binary(self.binary.as_deref()).map(drop)
    }
}

pub fn run(options: &Options) -> Result<ExitCode, String> {
    let dir = image::run_dir("commands")?;
    let binary = chosen_binary(options.binary.as_deref())?;
    let image = image::build(options.kernel)?;
    let disk = dir.path().join("disk.img");
    let made = std::fs::File::create(&disk).and_then(|file| file.set_len(DISK_BYTES));
    made.map_err(|e| format!("{}: {e}", disk.display()))?;
    let folds = options.fs == "ext4";
    let mut mkfs = command(&format!("mkfs.{}", options.fs), ["-q"]);
    proc::run(mkfs.args(if folds { &folded::MKFS[..] } else { &[] }).arg(&disk))?;
    if folds {
        folded::make(&disk)?;
    }
    let hardware = Hardware { link: Some(Link::new()?), scratch: Some(disk), ..Hardware::default() };
    let mut guest = knfsd::boot(&image, &hardware, &options.fs, "sync")?;
    let urls = options.vers.iter().map(|vers| knfsd::url(&hardware, *vers));
    let urls = urls.collect::<Result<Vec<_>, _>>()?;
    let why =
        |why: String, guest: &Machine| format!("{why}\n{}{}", knfsd::stands(&hardware), guest.console());
    if options.wants(Part::Mount) {
        let mut checks = command(&binary.to_string_lossy(), ["lab", "mount-checks"]);
        proc::run_within(LIMIT, checks.args(&urls)).map_err(|e| why(e, &guest))?;
    }
    if !options.wants(Part::Commands) {
        guest.end();
        return Ok(ExitCode::SUCCESS);
    }
    squashed::export(&mut guest, LIMIT)?;
    let to_probe = urls.clone();
    let mut commands = command(&binary.to_string_lossy(), ["lab", "commands", "--files"]);
    commands.arg(options.files.to_string()).args(urls);
    let mut done = proc::run_within(LIMIT, &mut commands);
    for (vers, url) in options.vers.iter().zip(to_probe) {
        done = done.and_then(|()| probed::check(&binary.to_string_lossy(), &url, *vers));
    }
    for vers in options.vers.iter().filter(|vers| **vers != Vers::V3) {
        done = done.and_then(|()| {
            let url = knfsd::url_of(&hardware, *vers, squashed::NAME)?;
            squashed::check(&binary.to_string_lossy(), dir.path(), &url)
        });
    }
    for vers in options.vers.iter().filter(|_| folds) {
        done = done.and_then(|()| {
            let url = knfsd::url_of(&hardware, *vers, folded::NAME)?;
            folded::check(&binary.to_string_lossy(), dir.path(), &url)
        });
    }
    done.map_err(|e| why(e, &guest))?;
    // Where the filesystem clones, nothing is copied.
    if folds && !options.small && options.vers.contains(&Vers::V4_2) {
        let (binary, fs) = (&binary.to_string_lossy(), &options.fs);
        let kernel = options.kernel;
        guest = Stage { binary, image: &image, hardware: &hardware, fs, kernel, guest }.check()?;
    }
    guest.end();
    Ok(ExitCode::SUCCESS)
}
