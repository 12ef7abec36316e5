//! What can be typed behind `landfast serve`, `landfast exports` and `landfast check`.

use crate::units;
use clap::{Args, ValueEnum};
use landfast_volume::LogPlace;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

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

impl ServeArgs {
    /// Where the log stands, if one was named.
    pub fn log_place(&self) -> Option<LogPlace> {
        self.log.as_ref().map(|path| LogPlace::new(path, self.log_mirror.clone()))
    }
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
