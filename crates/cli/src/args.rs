//! The command line: what can be typed, with its help texts.

use crate::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use landfast_trace::filter::{Moment, Network, Procedure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// NFS that lands many small files on stable storage fast.
#[derive(Debug, Parser)]
#[command(
    name = "landfast",
    version,
    about = "NFS that lands many small files on stable storage fast",
    max_term_width = 100
)]
pub struct Cli {
    /// Say more on standard error: once what happens, twice each request; LANDFAST_LOG chooses by module
    #[arg(long = "debug", global = true, action = clap::ArgAction::Count)]
    pub debug: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Export directories over NFS (versions 3, 4.0, 4.1 and 4.2), with an intent log in front of each
    Serve(ServeArgs),
    /// List what a configuration file serves, to whom and how
    Exports(ExportsArgs),
    /// Say all that is wrong with a configuration file
    Check(CheckArgs),
    /// Make, resize, check and read intent logs
    #[command(subcommand)]
    Log(LogCommand),
    /// Extract a tar archive onto an NFS server; durable when it returns
    Untar(UntarArgs),
    /// What GNU tools do, on an NFS server
    #[command(flatten)]
    Tool(crate::commands::args::Tools),
    /// Where the time goes: what bounds the NFS work in a capture, why, and what would change it
    #[command(after_help = TRACE_HELP)]
    Trace(TraceArgs),
    /// What each call to a live server takes from here, and what bounds small files on it
    #[command(
        after_help = "A directory of its own is made there and removed, also after Ctrl-C. Exit status: 0 done, \
2 nothing could be measured, 130 interrupted."
    )]
    Probe(ProbeArgs),
    /// How long `tar -x` takes onto a server, now and with other devices, clients or networks
    #[command(after_help = PREDICT_HELP)]
    Predict(crate::predict::args::PredictArgs),
    /// Whether any NFS server keeps what it acknowledged when its power is cut
    #[command(subcommand)]
    Verify(VerifyCommand),
    /// The main job against its peers on emulated disks and an emulated network, in one table
    #[cfg(feature = "lab")]
    Demo(crate::lab_args::DemoArgs),
    /// The emulated disk, the experiments, the power cuts
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(crate::lab_args::LabCommand),
}

/// What makes a reply durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// Each reply waits for one flush of the intent log, shared with all who wait
    Log,
    /// No log: each operation syncs what it changed, and its directory
    Sync,
    /// Replies before anything is stable: a power cut loses acknowledged work
    Unsafe,
}

/// Whom to squash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SquashArg {
    /// Nobody: root is root
    None,
    /// Root is nobody, all others are who the client says
    Root,
    /// Everyone is nobody
    All,
}

/// Whether to register with the port mapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RpcbindArg {
    /// If one runs, and others than this machine can reach the server
    Auto,
    /// No
    Off,
    /// Do not start without one
    Require,
}

/// `landfast serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The directory to export; on ext4, XFS or btrfs
    #[arg(required_unless_present = "config")]
    pub dir: Option<PathBuf>,
    /// Serve what this file says (docs/exports.md); SIGHUP reads it again
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "dir", "log", "log_mirror", "log_size", "listen", "metrics", "durability", "lease", "allow", "squash", "strict_recovery",
        "protocols", "rpcbind", "unprivileged"
    ])]
    pub config: Option<PathBuf>,
    /// The intent log: a file (made when it does not exist) or a block device, best on a small fast device of its own
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// A second file or device that holds the same as the log: acknowledged is what both have, and one may be lost
    #[arg(long, value_name = "PATH", requires = "log")]
    pub log_mirror: Option<PathBuf>,
    /// Serve these clients: an address, a network, a host name, a pattern, @netgroup or '*'; may be given more than once. Without it
    /// only this machine is served
    #[arg(long, value_name = "CLIENT", value_parser = landfast_server::exports::rules::ClientSpec::parse)]
    pub allow: Vec<landfast_server::exports::rules::ClientSpec>,
    /// Who is not who the client says, but nobody (65534)
    #[arg(long, value_enum, value_name = "WHO", default_value = "none")]
    pub squash: SquashArg,
    /// Size of a log file that does not exist yet
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::log_size)]
    pub log_size: u64,
    /// Do not start where somebody has changed the directory since the server was killed; otherwise recovery keeps what is there
    /// and says what it did
    #[arg(long)]
    pub strict_recovery: bool,
    /// Address and port to listen on; 0.0.0.0:2049 with --allow or --squash, else 127.0.0.1:2049 and [::1]:2049
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Give metrics for Prometheus by HTTP at this address, under /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// What makes a reply durable
    #[arg(long, value_enum, default_value = "log")]
    pub durability: DurabilityArg,
    /// Lease and grace time of clients, in whole seconds
    #[arg(long, value_name = "DURATION", default_value = "90s", value_parser = units::duration)]
    pub lease: Duration,
    /// Serve these protocols only, of 3, 4.0, 4.1, 4.2, nlm (locks of version 3) and udp (these by datagram)
    #[arg(long, value_name = "LIST", default_value_t)]
    pub protocols: landfast_server::Protocols,
    /// Whether to register with the machine's port mapper, for showmount and mounts of version 3 without port numbers
    #[arg(long, value_enum, default_value = "auto")]
    pub rpcbind: RpcbindArg,
    /// For experiments: add this latency to each sync call of the volume
    #[arg(long, value_name = "DURATION", hide = true, value_parser = units::duration)]
    pub inject_volume_flush: Option<Duration>,
    /// For experiments: add this latency to each flush of the log
    #[arg(long, value_name = "DURATION", hide = true, value_parser = units::duration)]
    pub inject_log_flush: Option<Duration>,
    /// For experiments without root: act as the own user for every caller; only on a loopback address
    #[arg(long, hide = true)]
    pub unprivileged: bool,
    /// Serve although the filesystem or device looks as if it could not keep acknowledged work over a power cut (no journal,
    /// nobarrier, flushes that do not arrive): it warns instead of refusing
    #[arg(long)]
    pub accept_weak: bool,
    /// For experiments: write counters as JSON to this file when stopped
    #[arg(long, value_name = "FILE", hide = true)]
    pub stats_file: Option<PathBuf>,
}

/// How captures are made and read.
const TRACE_HELP: &str = "\
A capture of the work, at the client or at the server:
  tcpdump -i any -s 0 -w work.pcap host SERVER     or: ... -w - host SERVER | landfast trace -
  landfast trace work.pcap                         the verdict, why, what would change it; the table; calls for each file
  landfast trace --report page.html work.pcap      the same with charts, for whoever decides
  landfast trace --merge server.pcap client.pcap   of both ends: the network's part of each call
Without a file:
  landfast trace --interface eth0 --server SERVER  until Ctrl-C
  landfast trace --mountstats --interval 30        from the client's counters

Exit status: 0 done, 1 something of --fail-if is so, 2 nothing could be said.";

/// What goes together.
const PREDICT_HELP: &str = "\
Together with the others:
  landfast trace --json work.pcap | landfast predict --trace -
  landfast probe --json nfs://SERVER/PATH | landfast predict --probe - --dir /srv/data
  landfast predict --rtt 1ms --persistence 4ms --files 290000 --log-device 50us

Exit status: 0 done, 1 part of a directory could not be read and is not counted, 2 nothing could be said.";

/// `landfast trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// A capture: pcap or pcapng as tcpdump and Wireshark write them, also in gzip, bzip2, xz or zstd; - for standard input
    #[arg(
        required = false,
        required_unless_present_any = ["mountstats", "interface"],
        default_value_ifs([
            ("mountstats", clap::builder::ArgPredicate::IsPresent, crate::trace::MOUNTSTATS),
            ("interface", clap::builder::ArgPredicate::IsPresent, "-"),
        ])
    )]
    pub file: PathBuf,
    /// No FILE, but what comes at a network interface of this machine, until Ctrl-C; needs root or CAP_NET_RAW
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "mountstats", "merge", "anonymise"])]
    pub interface: Option<String>,
    /// With --interface: end after so many seconds
    #[arg(long, value_name = "SECONDS", requires = "interface", value_parser = crate::trace::interval)]
    pub seconds: Option<Duration>,
    /// With --interface: end after so many calls with their replies
    #[arg(long, value_name = "CALLS", requires = "interface")]
    pub count: Option<u64>,
    /// With --mountstats: a later reading, from which the first is taken
    #[arg(requires = "mountstats", conflicts_with = "interval")]
    pub after: Option<PathBuf>,
    /// FILE has the counters of a Linux client's mounts; this machine's if there is no FILE
    #[arg(long, conflicts_with_all = ["list", "report", "OnlyArgs"])]
    pub mountstats: bool,
    /// With --mountstats: read again after so many seconds, and tell what came in between
    #[arg(long, value_name = "SECONDS", requires = "mountstats", value_parser = crate::trace::interval)]
    pub interval: Option<Duration>,
    /// One line for each call and each reply, as tshark prints them
    #[arg(long)]
    pub list: bool,
    /// The tables and what was seen of the capture, for programs
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
    /// Also write all of it into one page of HTML: verdict, charts, what would change it, tables
    #[arg(long, value_name = "OUT.html")]
    pub report: Option<PathBuf>,
    /// Write a copy that can be shown to others: names, addresses and handles hashed, data zeros; the same calls at the same times; - for standard output
    #[arg(long, value_name = "OUT.pcap", conflicts_with_all = ["list", "json", "report", "OnlyArgs", "merge", "fail_if"])]
    pub anonymise: Option<PathBuf>,
    /// A second capture of the same traffic, made at the other end: the network's part of each call is the difference
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "mountstats"])]
    pub merge: Option<PathBuf>,
    /// A capture of the same work before a change: what the change did, beside what the equation says of it
    #[arg(long, value_name = "BEFORE", conflicts_with_all = ["list", "report", "mountstats", "merge", "anonymise", "interface", "fail_if"])]
    pub compare: Option<PathBuf>,
    /// End with status 1 if this is so, and say what it is: rtt>50%, WRITE.p99>20ms, matched<95%; may be given more than once
    #[arg(long, value_name = "BOUND", value_parser = crate::trace::fail_if, conflicts_with_all = ["list", "mountstats"])]
    pub fail_if: Vec<crate::trace::FailIf>,
    /// Of the calls, which
    #[command(flatten)]
    pub only: OnlyArgs,
}

/// Which calls of a capture are looked at.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which calls; all of what is given has to fit")]
pub struct OnlyArgs {
    /// Only calls of this client
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub client: Option<Network>,
    /// Only calls to this server
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub server: Option<Network>,
    /// Only calls about files of this name (shell wildcards), or with this handle, as --list shows it: 0x1d14c75e
    #[arg(long = "file", value_name = "NAME|0xFH", value_parser = crate::trace::file)]
    pub about: Option<landfast_trace::filter::File>,
    /// Only these procedures, and COMPOUNDs sent for these operations: WRITE,COMMIT; also of callbacks: CB_RECALL
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub procedure: Vec<Procedure>,
    /// Only calls that began then or later: seconds since the first frame, or as 2026-11-23T05:13:00.5Z
    #[arg(long, value_name = "TIME", value_parser = crate::trace::moment)]
    pub from: Option<Moment>,
    /// Only calls that began before
    #[arg(long, value_name = "TIME", value_parser = crate::trace::moment)]
    pub to: Option<Moment>,
}

/// `landfast probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Where to: nfs://HOST[:PORT]/PATH[?version=3|4.0|4.1|4.2]; the highest version that is offered when none is named
    pub url: String,
    /// Rounds of single calls at most
    #[arg(long, value_name = "N", default_value_t = landfast_probe::limits::COUNT, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub count: u64,
    /// How long to measure; connecting and clearing up come on top
    #[arg(long, value_name = "SECONDS", default_value_t = landfast_probe::limits::SECONDS, value_parser = crate::probe::seconds)]
    pub seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `landfast log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Make a file or block device ready to become a log, and measure how it is flushed
    Create(LogCreateArgs),
    /// Give a log another size; its server must have stopped cleanly
    Resize(LogResizeArgs),
    /// What a log is, whose, and what would be replayed
    Info(LogArgs),
    /// Whether all of a log is whole: exit status 0, or 1 with what is damaged and where
    Check(LogArgs),
    /// Each record that would be replayed
    Dump(LogArgs),
    /// What can be had out of any log, also a damaged one and without its volume: files, and a REPORT of what is whole
    Salvage(LogSalvageArgs),
}

/// `landfast log salvage`.
#[derive(Debug, Args)]
pub struct LogSalvageArgs {
    /// The log: a file or a block device; it is only read
    pub path: PathBuf,
    /// A directory that does not exist yet, or is empty
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// `landfast log create`.
#[derive(Debug, Args)]
pub struct LogCreateArgs {
    /// A file that does not exist yet, or a block device without contents
    pub path: PathBuf,
    /// Size of the file; a block device is used whole
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::log_size)]
    pub size: u64,
}

/// `landfast log resize`.
#[derive(Debug, Args)]
pub struct LogResizeArgs {
    /// The log
    pub path: PathBuf,
    /// The new size of a file; a block device is used whole, whatever its size is now
    #[arg(long, value_name = "SIZE", value_parser = units::log_size)]
    pub size: Option<u64>,
}

/// Which log.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The log: a file or a block device that no server runs on
    pub path: PathBuf,
    /// For programs; `dump`: an object on each line
    #[arg(long)]
    pub json: bool,
}

/// `landfast exports`.
#[derive(Debug, Args)]
pub struct ExportsArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/landfast.toml")]
    pub config: PathBuf,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

/// `landfast check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file
    pub config: PathBuf,
}

/// `landfast untar`. Letters and names are those of GNU tar where it has them.
#[derive(Debug, Args)]
pub struct UntarArgs {
    /// The archive, or - for standard input; plain, gzip, bzip2, xz or zstd, recognised by content
    pub archive: PathBuf,
    /// Where to: nfs://HOST[:PORT]/PATH
    pub url: String,
    /// Make the directory that URL names, and those above it, if they are not there
    #[arg(long)]
    pub mkdir: bool,
    /// Name each member as it is done
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Set modes as in the archive, whatever the umask (default for root)
    #[arg(short = 'p', long, alias = "same-permissions")]
    pub preserve_permissions: bool,
    /// Apply the umask to modes (default for others than root)
    #[arg(long, conflicts_with = "preserve_permissions")]
    pub no_same_permissions: bool,
    /// Leave modification times as they come
    #[arg(short = 'm', long)]
    pub touch: bool,
    /// Take off so many leading components of each name
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub strip_components: usize,
    /// Leave out members that match this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Files belong to the caller (default for others than root)
    #[arg(long, conflicts_with = "same_owner")]
    pub no_same_owner: bool,
    /// Files belong to whom the archive says (default for root)
    #[arg(long)]
    pub same_owner: bool,
    /// Set extended attributes as in the archive (`user.`, NFSv4.2)
    #[arg(long)]
    pub xattrs: bool,
    /// An existing file is an error, and stays as it is
    #[arg(short = 'k', long, conflicts_with = "overwrite")]
    pub keep_old_files: bool,
    /// Write into existing files instead of replacing them
    #[arg(long)]
    pub overwrite: bool,
    /// Note in this file what is on stable storage, and go on from there when it is there already
    #[arg(long, value_name = "JOURNAL")]
    pub resume: Option<PathBuf>,
    /// Print the summary as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
    /// TCP connections to the server, 1 to 16
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub connections: u16,
    /// Give up when the server has not replied for so long; otherwise it is waited for for ever
    #[arg(long, value_name = "DURATION", value_parser = crate::units::patience)]
    pub timeout: Option<Duration>,
}

/// `landfast verify`.
#[derive(Debug, Subcommand)]
pub enum VerifyCommand {
    /// Perform operations on an NFS server, and note on this machine what it acknowledged
    #[command(
        after_help = "Cut the power of the server meanwhile; when it is back, run `landfast verify check`. \
The journal must be on another machine's disk than the server's.\n\nExit status: 0 all was done, or it was interrupted; \
1 the server went away or refused; 2 nothing could be begun."
    )]
    Write(VerifyWriteArgs),
    /// Say what the server has lost of what it acknowledged, by operation
    #[command(after_help = "Exit status: 0 nothing is lost; 1 something is; 2 it could not be checked.")]
    Check(VerifyCheckArgs),
}

/// `landfast verify write`.
#[derive(Debug, Args)]
pub struct VerifyWriteArgs {
    /// Where to: nfs://HOST[:PORT]/PATH[?version=3|4.0|4.1|4.2]; a directory of its own is made there
    pub url: String,
    /// Where to note what was acknowledged; a file that does not exist yet, not on the server
    #[arg(long, value_name = "FILE")]
    pub journal: PathBuf,
    /// End after so many operations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// End after this time
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Clients at work at the same time, each with a connection and a directory of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Which operations come, and in which order, depends on it
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Only these kinds of operations, and what they need to work on
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub kinds: Vec<landfast_verify::op::Kind>,
    /// Beside them so many pairs of clients, of which one does something to what the other has not been answered about yet
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    pub pairs: u32,
    /// What they do, as FIRST:SECOND, such as remove:commit [default: everything that has a name in common]
    #[arg(long, value_name = "FIRST:SECOND,...", value_delimiter = ',')]
    pub meet: Vec<landfast_verify::rounds::Meeting>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `landfast verify check`.
#[derive(Debug, Args)]
pub struct VerifyCheckArgs {
    /// The same directory: nfs://HOST[:PORT]/PATH
    pub url: String,
    /// The journal of `landfast verify write`
    #[arg(long, value_name = "FILE")]
    pub journal: PathBuf,
    /// How long to wait for the server to come back, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait: u64,
    /// Remove the directory of the run from the server afterwards
    #[arg(long)]
    pub remove: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
