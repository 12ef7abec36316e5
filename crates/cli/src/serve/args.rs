//! The arguments of `landfast serve`, `landfast exports` and `landfast check`.

use crate::units;
use clap::{Args, ValueEnum};
use landfast_volume::LogPlace;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// Each reply waits for a flush of the intent log, which all waiting replies share
    Log,
    /// No log: each operation syncs what it changed, and its directory
    Sync,
    /// Replies before data is stable: a power cut loses acknowledged work
    Unsafe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SquashArg {
    /// Nobody: root is root
    None,
    /// Root becomes nobody, all others are who the client says
    Root,
    /// Everyone becomes nobody
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RpcbindArg {
    /// If a port mapper runs, and other machines can reach the server
    Auto,
    /// Never
    Off,
    /// Always; do not start without a port mapper
    Require,
}

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The directory to export, on ext4, XFS or btrfs
    #[arg(required_unless_present = "config")]
    pub dir: Option<PathBuf>,
    /// Serve the exports of this file (docs/exports.md); SIGHUP reads it again
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "dir", "log", "log_mirror", "log_size", "listen", "metrics", "durability", "lease", "allow", "squash", "strict_recovery",
        "protocols", "rpcbind", "unprivileged"
    ])]
    pub config: Option<PathBuf>,
    /// The intent log: a block device or a file (made if it does not exist), best on a small fast device of its own
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// A mirror of the log, a file or block device. A reply waits for both; one of them may be lost
    #[arg(long, value_name = "PATH", requires = "log")]
    pub log_mirror: Option<PathBuf>,
    /// Clients to serve: an address, a network, a host name, a pattern, @netgroup or '*'; may be given more than once
    /// (default: only this machine)
    #[arg(long, value_name = "CLIENT", value_parser = landfast_server::exports::rules::ClientSpec::parse)]
    pub allow: Vec<landfast_server::exports::rules::ClientSpec>,
    /// Users that become nobody (65534), whoever the client says they are
    #[arg(long, value_enum, value_name = "WHO", default_value = "none")]
    pub squash: SquashArg,
    /// Size of a new log file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::log_size)]
    pub log_size: u64,
    /// Refuse to start if somebody has changed the directory since the server was killed (default: recovery keeps such
    /// changes and reports them)
    #[arg(long)]
    pub strict_recovery: bool,
    /// Address and port to listen on; 0.0.0.0:2049 with --allow or --squash, else 127.0.0.1:2049 and [::1]:2049
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Serve metrics for Prometheus over HTTP at this address, under /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// When a reply may be sent
    #[arg(long, value_enum, default_value = "log")]
    pub durability: DurabilityArg,
    /// Lease and grace time of clients, in whole seconds
    #[arg(long, value_name = "DURATION", default_value = "90s", value_parser = units::duration)]
    pub lease: Duration,
    /// Protocols to serve: 3, 4.0, 4.1, 4.2, nlm (locks of version 3) and udp (those two over UDP)
    #[arg(long, value_name = "LIST", default_value_t)]
    pub protocols: landfast_server::Protocols,
    /// Whether to register with the machine's port mapper, for showmount and for mounts of version 3 without port numbers
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
    /// Serve even if the filesystem or device seems unable to keep acknowledged work over a power cut (no journal,
    /// nobarrier, flushes that do not reach the device): warn, do not refuse
    #[arg(long)]
    pub accept_weak: bool,
    /// For experiments: write counters as JSON to this file when the server stops
    #[arg(long, value_name = "FILE", hide = true)]
    pub stats_file: Option<PathBuf>,
}

impl ServeArgs {
    /// Where the log stands, if one was named.
    pub fn log_place(&self) -> Option<LogPlace> {
        self.log.as_ref().map(|path| LogPlace::new(path, self.log_mirror.clone()))
    }
}

#[derive(Debug, Args)]
pub struct ExportsArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/landfast.toml")]
    pub config: PathBuf,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file
    pub config: PathBuf,
}
