//! The arguments of `landfast lab` and `landfast demo`.

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
    /// Install the Debian packages of the other servers and clients that are not here, with apt-get, as root
    #[arg(long)]
    pub install_peers: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Mount an emulated disk: a file with chosen latencies, a volatile write cache and a power switch
    Disk(DiskArgs),
    /// Run one experiment with its peers and limits, and say whether its claims hold
    Run(RunArgs),
    /// Measure the field's experiments beside real peers, and write one page with pictures
    Report(ReportArgs),
    /// Cut the power of the data and log disks during work, restart the server, and check what it acknowledged
    Powercut(PowercutArgs),
    /// Cut the power under a server, Landfast or another, and let `landfast verify` find what is lost
    Verify(LabVerifyArgs),
    /// Make requests to the data or log disk fail during work, and check how the server reacts
    Faults(FaultsArgs),
    /// Run the client's commands on servers, and compare each with GNU's tools on the same tree on this machine
    Commands(CommandsArgs),
    /// Mount servers with `landfast mount`, twice each, and check what one mount does and the other sees
    MountChecks(MountChecksArgs),
    /// Kill `landfast mount`, cut its server's power or its network while programs work on it, and check what a new client finds
    MountCuts(MountCutsArgs),
    /// Open nested files or load a web page's files, through the library on a server or by system calls in a directory
    At(AtArgs),
    /// Used by the lab itself
    #[command(hide = true)]
    Child {
        /// The task of this process
        json: String,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Control words: flush_us=N write_us=N read_us=N spin_us=N (microseconds), bw_mib=N drain_mib=N \
(MiB/s), keep_permille=N torn=0|1 ignore_flush=0|1 seed=N (what survives a cut), profile=hdd|sata|plp|null, fail=read|write|flush[:once][:times=N][:after=N][:from=BYTE][:to=BYTE][:full], mend, reset, cut, on. The same words \
can be written to MOUNTPOINT/ctl while it runs; MOUNTPOINT/stats has the counters. SIGUSR1 cuts the power, SIGUSR2 \
turns it on."
)]
pub struct DiskArgs {
    /// Directory to mount on; the disk is the file MOUNTPOINT/disk.img
    pub mountpoint: PathBuf,
    /// Size of the disk
    #[arg(value_parser = units::size)]
    pub size: u64,
    /// Control words, as listed below
    pub settings: Vec<String>,
    /// Store flushed data in this file, so that it outlives the process
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Number of threads that serve requests
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// End the process at a power cut
    #[arg(long)]
    pub exit_on_cut: bool,
    /// Allocate all memory at the start (twice the size of the disk)
    #[arg(long)]
    pub prefault: bool,
}

#[derive(Debug, Args)]
pub struct PowercutArgs {
    /// The data disk's filesystem: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4")]
    pub fs: landfast_lab::mounts::Filesystem,
    /// Number of power cuts
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub cuts: u32,
    /// Kind of work: untar, resume, copy, serial, v3, mixed, overwrite, clients, pairs or scenes
    #[arg(long, value_name = "LOAD", default_value = "mixed")]
    pub workload: landfast_lab::powercut::Load,
    /// Seed of everything random: the same seed gives the same work and the same losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of clients that work at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// What is cut: power, kill, slow-log, log-lost or half-lost (default: chosen at random)
    #[arg(long, value_name = "HOW")]
    pub variant: Option<landfast_lab::powercut::Variant>,
    /// Cut at this named point of the server's code, or at `each` of them; needs a server with debug assertions
    #[arg(long, value_name = "NAME")]
    pub point: Option<String>,
    /// Give the server this deliberate bug, which the check must find; needs debug assertions
    #[arg(long, value_name = "NAME")]
    pub bug: Option<String>,
    /// Stop after the first cut that shows something wrong
    #[arg(long)]
    pub until_wrong: bool,
    /// The server's binary (default: this one)
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// The server's durability; with anything but `log` the check must find losses
    #[arg(long, value_enum, default_value = "log", hide = true)]
    pub durability: DurabilityArg,
    /// Print the server's messages
    #[arg(long)]
    pub show: bool,
    /// Print a JSON object for each cut, and one for the whole run
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 nothing is wrong; 1 something is; 2 it could not be done. With --bugs: 0 each was found; 1 one was not."
)]
pub struct MountCutsArgs {
    /// Number of rounds of each kind [default: 2; with --bugs 40]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// What is cut: kill, server, both, network, or nothing while another client looks (look)
    #[arg(
        long,
        value_name = "WHAT,...",
        value_delimiter = ',',
        default_value = "kill,server,both,network,look"
    )]
    pub what: Vec<landfast_lab::mount_cuts::What>,
    /// Mount option `close`: whether programs wait for the server
    #[arg(long, value_enum, default_value = "local")]
    pub close: CloseArg,
    /// The data disk's filesystem: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4")]
    pub fs: landfast_lab::mounts::Filesystem,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Begin no round after this time
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub time_limit: Option<Duration>,
    /// On a busy machine: changes may be lost that are so much older than the mount's flush_age, and the other client may wait so much longer
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub slack: Option<Duration>,
    /// Give the mount this deliberate bug; needs debug assertions
    #[arg(long, value_name = "NAME", value_parser = bug_names())]
    pub bug: Option<String>,
    /// Give the mount one deliberate bug after another: each must be found within --rounds; needs debug assertions
    #[arg(long, conflicts_with_all = ["bug", "what", "close"])]
    pub bugs: bool,
    /// Stop after the first round with something wrong
    #[arg(long)]
    pub until_wrong: bool,
    /// Print the server's messages
    #[arg(long)]
    pub show: bool,
    /// Print a JSON object for each round, and one array for the whole run
    #[arg(long)]
    pub json: bool,
}

/// The names of the mount's deliberate bugs, in a program that has them.
fn bug_names() -> clap::builder::PossibleValuesParser {
    #[cfg(all(feature = "mount", debug_assertions))]
    let names = landfast_mount::core::bugs::Bug::IN_PROGRAMS.map(|one| one.name);
    #[cfg(not(all(feature = "mount", debug_assertions)))]
    let names: [&str; 0] = [];
    names.into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CloseArg {
    Local,
    Wait,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 nothing is lost; 1 something is; 2 it could not be done.")]
pub struct LabVerifyArgs {
    /// Server under test: landfast or ganesha
    #[arg(long, default_value = "landfast")]
    pub server: landfast_lab::peercut::Server,
    /// Durability of a Landfast server
    #[arg(long, value_enum, default_value = "log")]
    pub durability: DurabilityArg,
    /// The filesystem: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4")]
    pub fs: landfast_lab::mounts::Filesystem,
    /// Mount options of the filesystem: wsync, sync, ...
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    pub mount_options: String,
    /// Test the servers of docs/durability.md, one after another
    #[arg(long, conflicts_with_all = ["server", "durability", "fs", "mount_options", "vers", "kinds"])]
    pub all: bool,
    /// Number of power cuts under each server
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub cuts: u32,
    /// Number of clients that work at the same time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// NFS versions, used in turns [default: 3,4.0,4.1,4.2; 4.1 for ganesha]
    #[arg(long, value_name = "V,...", value_delimiter = ',')]
    pub vers: Vec<String>,
    /// Use only these kinds of operations, and those that they depend on
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub kinds: Vec<landfast_verify::op::Kind>,
    /// Number of pairs of clients that work on one object at the same time, in addition to the clients
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    pub pairs: u32,
    /// What the pairs do, as FIRST:SECOND [default: every combination that shares a name]
    #[arg(long, value_name = "FIRST:SECOND,...", value_delimiter = ',')]
    pub meet: Vec<landfast_verify::rounds::Race>,
    /// Let writing back fail for data that was written UNSTABLE, before its COMMIT; another client is told of the error
    #[arg(long, conflicts_with = "pairs")]
    pub writeback_fails: bool,
    /// How long a flush of the data disk takes
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = units::duration)]
    pub flush: Duration,
    /// How long a flush of the log disk takes
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = units::duration)]
    pub log_flush: Duration,
    /// Another `landfast` binary as the server
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct FaultsArgs {
    /// The data disk's filesystem: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4")]
    pub fs: landfast_lab::mounts::Filesystem,
    /// Fault to inject; may be given more than once (default: all of them)
    #[arg(long, value_name = "NAME")]
    pub fault: Vec<landfast_lab::trouble::Fault>,
    /// List the faults
    #[arg(long)]
    pub list: bool,
    /// Number of rounds of each fault
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rounds: u32,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of clients that work at the same time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Print the server's messages
    #[arg(long)]
    pub show: bool,
    /// Print a JSON object for each round, and one for the whole run
    #[arg(long)]
    pub json: bool,
}

/// Checks a URL and keeps it as typed.
fn url_text(text: &str) -> Result<String, landfast_client::url::UrlError> {
    text.parse::<landfast_client::NfsUrl>().map(|_| text.to_owned())
}

#[derive(Debug, Args)]
pub struct CommandsArgs {
    /// Directories on servers, with the version in each URL; a subdirectory is made there and removed at the end
    #[arg(value_name = "URL", required = true, value_parser = url_text)]
    pub urls: Vec<String>,
    /// Number of small files in the tree
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(60..=100_000))]
    pub files: u64,
    /// Print one JSON object for each command on each server
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct MountChecksArgs {
    /// Directories on servers, with the version in each URL
    #[arg(value_name = "URL", required = true, value_parser = url_text)]
    pub urls: Vec<String>,
    /// Options of `landfast mount`
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    pub mount_options: String,
    /// Print one JSON object for each check on each server
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkArg {
    /// Open, read and close a file below --depth directories
    NestedOpen,
    /// Load a hundred files of 10 to 100 KB: stat half of them, read four in ten, write one in ten
    WebPage,
}

#[derive(Debug, Args)]
#[command(
    after_help = "For a directory on an NFS mount the RPCs are those that the mount's connections have sent during the run; for \
other directories no RPCs are printed. For a client with empty caches mount it just before; the library's client is always new."
)]
pub struct AtArgs {
    /// The work to do
    #[arg(value_enum)]
    pub work: WorkArg,
    /// A directory on a server (nfs://HOST/PATH), or an absolute path on this machine
    pub place: landfast_lab::place::Place,
    /// Number of directories above the file of nested-open
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,
    /// Number of rounds, all by one client
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Seed of the contents that web-page writes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Only make the files
    #[arg(long, conflicts_with = "check")]
    pub make: bool,
    /// Only check that a run with this seed has written the files of web-page
    #[arg(long)]
    pub check: bool,
    /// Print one JSON object for each round
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Name of the experiment
    #[arg(required_unless_present = "list")]
    pub name: Option<String>,
    /// List the experiments
    #[arg(long)]
    pub list: bool,
    /// Number of files, if the experiment has files
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// A client program to measure beside ours, such as those in `peers/`, if the experiment has clients; may be given more than once
    #[arg(long = "peer", value_name = "PROGRAM")]
    pub peers: Vec<PathBuf>,
    /// Round trips of the network in milliseconds, for `mount`
    #[arg(long, value_name = "MS,...", value_delimiter = ',')]
    pub round_trips: Vec<f64>,
    /// How long a flush of either disk takes in milliseconds, for `mount`
    #[arg(long, value_name = "MS,...", value_delimiter = ',')]
    pub flushes: Vec<f64>,
    /// Only these works of `mount`, by the first words of their names: tar, ls, cp, rsync, rm, git, install, make, sqlite
    #[arg(long, value_name = "WORK,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Options of `landfast mount`, for `mount`, `mount-memory` and `mount-short-of-memory`
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    pub mount_options: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "DIR gets report.html, report.json, results.md with its pictures in results/, and a file for each row in rows/. Rows that \
are there are not measured again. Results of guests are taken from files *.json in DIR: what `cargo xtask guest speed --json` and \
`cargo xtask guest verify --json` print. Exit status: 0 all claims hold; 1 one does not, or a row has failed; 2 nothing was measured."
)]
pub struct ReportArgs {
    /// Directory of the report
    #[arg(long, value_name = "DIR", default_value = "landfast-report")]
    pub out: PathBuf,
    /// Only these rows
    #[arg(long, value_name = "ROW,...", value_delimiter = ',')]
    pub only: Vec<u8>,
    /// Measure these rows again
    #[arg(long, value_name = "ROW,...", value_delimiter = ',')]
    pub again: Vec<u8>,
    /// Begin no measurement after this time; the next run goes on
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub limit: Option<Duration>,
    /// Small sizes: all rows in some minutes, of which only the counts are judged
    #[arg(long)]
    pub quick: bool,
    /// Archive of a real source tree, compressed or not, for the row of the Linux tree
    #[arg(long, value_name = "FILE")]
    pub archive: Option<PathBuf>,
    /// List the rows
    #[arg(long)]
    pub list: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
