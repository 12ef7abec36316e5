//! The command line of the lab: what can be typed after `landfast lab` and `landfast demo`, with its help texts.

use crate::serve::args::DurabilityArg;
use crate::units;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

impl From<DurabilityArg> for landfast_lab::served::Durability {
    fn from(d: DurabilityArg) -> Self {
        match d {
            DurabilityArg::Log => Self::Log,
            DurabilityArg::Sync => Self::Sync,
            DurabilityArg::Unsafe => Self::Unsafe,
        }
    }
}

/// `landfast demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The archive to extract (default: 4,096 files of 4 KiB)
    #[arg(long, value_name = "FILE")]
    pub archive: Option<PathBuf>,
    /// How long a flush of the data disk takes
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = units::duration)]
    pub flush: Duration,
    /// How long a flush of the log device takes
    #[arg(long, value_name = "DURATION", default_value = "0.05ms", value_parser = units::duration)]
    pub log_flush: Duration,
    /// The network's round-trip time
    #[arg(long, value_name = "DURATION", default_value = "0.2ms", value_parser = units::duration)]
    pub rtt: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `landfast lab ...`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// A disk with chosen latencies, a volatile write cache and a power-cut switch, as a file on a FUSE mount
    Disk(DiskArgs),
    /// Run one experiment with its peers and limits, and say whether its claims hold
    Run(RunArgs),
    /// Cut the power of data and log disk in the middle of work, restart, and check what was acknowledged
    Powercut(PowercutArgs),
    /// Cut the power under a server, Landfast's or another, and ask `landfast verify` what it has lost
    Verify(LabVerifyArgs),
    /// Let requests of the data or log disk fail in the middle of work, and check what the server makes of it
    Faults(FaultsArgs),
    /// Run the client's commands on servers, and hold each against what GNU's tools say of the same tree here
    Commands(CommandsArgs),
    /// Open files below many directories, or a web page's files, on a server by the library or in a directory by system calls
    At(AtArgs),
    /// For the lab's own use
    #[command(hide = true)]
    Child {
        /// What the child is for
        json: String,
    },
}

/// `landfast lab disk`.
#[derive(Debug, Args)]
#[command(
    after_help = "Control words: flush_us=N write_us=N read_us=N spin_us=N (microseconds), bw_mib=N drain_mib=N \
(MiB/s), keep_permille=N torn=0|1 seed=N (what survives a cut), profile=hdd|sata|plp|null, fail=read|write|flush[:once][:times=N][:after=N][:from=BYTE][:to=BYTE][:full], mend, reset, cut, on. The same words \
can be written to MOUNTPOINT/ctl while it runs; MOUNTPOINT/stats has the counters. SIGUSR1 cuts the power, SIGUSR2 \
turns it on."
)]
pub struct DiskArgs {
    /// Directory to mount on; the disk is MOUNTPOINT/disk.img
    pub mountpoint: PathBuf,
    /// Size of the disk
    #[arg(value_parser = units::size)]
    pub size: u64,
    /// Control words
    pub settings: Vec<String>,
    /// Keep what is flushed in this file, so that it outlives the process
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Threads that serve requests
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// A power cut ends the process
    #[arg(long)]
    pub exit_on_cut: bool,
    /// Take all memory (twice the size) at the start
    #[arg(long)]
    pub prefault: bool,
}

/// `landfast lab powercut`.
#[derive(Debug, Args)]
pub struct PowercutArgs {
    /// The data disk's filesystem: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4")]
    pub fs: landfast_lab::mounts::Filesystem,
    /// How many cuts
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub cuts: u32,
    /// What is going on: untar, resume, copy, serial, v3, mixed, overwrite, clients, pairs or scenes
    #[arg(long, value_name = "LOAD", default_value = "mixed")]
    pub workload: landfast_lab::powercut::Load,
    /// Where everything random comes from; the same seed makes the same work and the same losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Clients at work at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// How the power goes: power, kill, slow-log, log-lost, half-lost; all of these by chance when none is named
    #[arg(long, value_name = "HOW")]
    pub variant: Option<landfast_lab::powercut::Variant>,
    /// Cut at this named point of the server's code, or at `each` of them; takes a server with debug assertions
    #[arg(long, value_name = "NAME")]
    pub point: Option<String>,
    /// Give the server this deliberate bug, which the check must find; takes debug assertions
    #[arg(long, value_name = "NAME")]
    pub bug: Option<String>,
    /// End after the first cut with something wrong
    #[arg(long)]
    pub until_wrong: bool,
    /// The server's binary, when it is not this one
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// What the server promises; with another than `log` the check must find what is lost
    #[arg(long, value_enum, default_value = "log", hide = true)]
    pub durability: DurabilityArg,
    /// Show the server's messages
    #[arg(long)]
    pub show: bool,
    /// Print a JSON object for each cut, and one for all
    #[arg(long)]
    pub json: bool,
}

/// `landfast lab verify`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 nothing is lost; 1 something is; 2 it could not be done.")]
pub struct LabVerifyArgs {
    /// Whose server: landfast or ganesha
    #[arg(long, default_value = "landfast")]
    pub server: landfast_lab::peercut::Server,
    /// What Landfast promises
    #[arg(long, value_enum, default_value = "log")]
    pub durability: DurabilityArg,
    /// The filesystem: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4")]
    pub fs: landfast_lab::mounts::Filesystem,
    /// How it is mounted: wsync, sync, ...
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    pub mount_options: String,
    /// Several servers instead of one: those of docs/durability.md
    #[arg(long, conflicts_with_all = ["server", "durability", "fs", "mount_options", "vers", "kinds"])]
    pub all: bool,
    /// How many cuts under each
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub cuts: u32,
    /// Clients at work at the same time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Versions of NFS, one a cut in turns [default: 3,4.0,4.1,4.2; 4.1 for ganesha]
    #[arg(long, value_name = "V,...", value_delimiter = ',')]
    pub vers: Vec<String>,
    /// Only these kinds of operations, and what they need to work on
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub kinds: Vec<landfast_verify::op::Kind>,
    /// Beside them so many pairs of clients that meet on one object
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    pub pairs: u32,
    /// What they do, as FIRST:SECOND [default: everything that has a name in common]
    #[arg(long, value_name = "FIRST:SECOND,...", value_delimiter = ',')]
    pub meet: Vec<landfast_verify::rounds::Race>,
    /// What is written UNSTABLE cannot be written back before its COMMIT: the disk fails, somebody else is told
    #[arg(long, conflicts_with = "pairs")]
    pub writeback_fails: bool,
    /// How long a flush of the data disk takes
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = units::duration)]
    pub flush: Duration,
    /// How long a flush of the log disk takes
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = units::duration)]
    pub log_flush: Duration,
    /// Another `landfast` as the server than this one
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// Where everything random comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

/// `landfast lab faults`.
#[derive(Debug, Args)]
pub struct FaultsArgs {
    /// The data disk's filesystem: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4")]
    pub fs: landfast_lab::mounts::Filesystem,
    /// What fails; may be given more than once. All faults when it is not given
    #[arg(long, value_name = "NAME")]
    pub fault: Vec<landfast_lab::trouble::Fault>,
    /// Name the faults
    #[arg(long)]
    pub list: bool,
    /// Rounds of each
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rounds: u32,
    /// Where everything random comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Clients at work at the same time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Show the server's messages
    #[arg(long)]
    pub show: bool,
    /// Print a JSON object for each round, and one for all
    #[arg(long)]
    pub json: bool,
}

/// A URL that can be read, as it was typed.
fn url_text(text: &str) -> Result<String, landfast_client::url::UrlError> {
    text.parse::<landfast_client::NfsUrl>().map(|_| text.to_owned())
}

/// `landfast lab commands`.
#[derive(Debug, Args)]
pub struct CommandsArgs {
    /// Directories on servers, each with the version to speak: a directory is made there, and removed in the end
    #[arg(value_name = "URL", required = true, value_parser = url_text)]
    pub urls: Vec<String>,
    /// Small files of the tree
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(60..=100_000))]
    pub files: u64,
    /// Print one JSON object for each command on each server
    #[arg(long)]
    pub json: bool,
}

/// What is done at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkArg {
    /// A file below --depth directories is opened, read and closed
    NestedOpen,
    /// A hundred files of 10 to 100 KB: half are looked at, four in ten read, one in ten written
    WebPage,
}

/// `landfast lab at`.
#[derive(Debug, Args)]
#[command(
    after_help = "In a directory of an NFS mount the RPCs are those that its connections have sent meanwhile; of another \
directory none are told. A client that knows nothing yet is one that has just been mounted; the library's is new each time."
)]
pub struct AtArgs {
    /// The work
    #[arg(value_enum)]
    pub work: WorkArg,
    /// A directory on a server (nfs://HOST/PATH), or on this machine, in absolute form
    pub place: landfast_lab::place::Place,
    /// Directories above the file of nested-open
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,
    /// How many times, as one client
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// What the files of web-page are written with
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Make the files, and do nothing else
    #[arg(long, conflicts_with = "check")]
    pub make: bool,
    /// See that a run with this seed has written the files of web-page, and do nothing else
    #[arg(long)]
    pub check: bool,
    /// Print one JSON object a round
    #[arg(long)]
    pub json: bool,
}

/// `landfast lab run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The experiment
    #[arg(required_unless_present = "list")]
    pub name: Option<String>,
    /// Name the experiments
    #[arg(long)]
    pub list: bool,
    /// How many files, where the experiment has files
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// A client to measure beside ours, where the experiment has such: a program as those in `peers/`; may be given more than once
    #[arg(long = "peer", value_name = "PROGRAM")]
    pub peers: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
