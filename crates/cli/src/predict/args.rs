//! The arguments of `landfast predict`.

use crate::units;
use clap::{ArgGroup, Args, ValueEnum};
use landfast_model::predict::{Change, Version};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct PredictArgs {
    #[command(flatten)]
    pub way: WayArgs,
    #[command(flatten)]
    pub what: WhatArgs,
    #[command(flatten)]
    pub manner: MannerArgs,
    #[command(flatten)]
    pub changes: ChangeArgs,
    /// Print the chart even if standard output is not a terminal
    #[arg(long, conflicts_with = "json")]
    pub chart: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Cost of a call")]
#[command(group = ArgGroup::new("costs").required(true).args(["trace", "probe", "rtt"]))]
#[group(skip)]
pub struct WayArgs {
    /// Take the costs from a trace: the output of `landfast trace --json`; - for standard input
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Take the costs from a probe: the output of `landfast probe --json`; - for standard input
    #[arg(long, value_name = "FILE")]
    pub probe: Option<PathBuf>,
    /// Round-trip time, such as 1ms
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub rtt: Option<Duration>,
    /// Additional time of a call whose effect must be stable before the reply
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "rtt")]
    pub persistence: Option<Duration>,
    /// Time that the server needs for any call
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "rtt")]
    pub server: Option<Duration>,
    /// Time of the client between a reply and its next call; a probe cannot measure it
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "trace")]
    pub think: Option<Duration>,
    /// Additional time of the program before each file: its own work, whatever its calls are
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "trace")]
    pub file_think: Option<Duration>,
    /// Bandwidth from the client to the server in bytes a second, such as 100M
    #[arg(long, value_name = "BYTES", value_parser = units::size, requires = "rtt")]
    pub bandwidth: Option<u64>,
}

#[derive(Debug, Args)]
#[command(
    next_help_heading = "Files to extract (with --trace optional: without them the work of the trace is repeated)"
)]
pub struct WhatArgs {
    /// A tar archive, also compressed; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "files"])]
    pub archive: Option<PathBuf>,
    /// An archive of this directory
    #[arg(long, value_name = "DIR", conflicts_with = "files")]
    pub dir: Option<PathBuf>,
    /// Number of files
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// Size of each file
    #[arg(long, value_name = "BYTES", value_parser = units::size, default_value = "4K", requires = "files")]
    pub size: u64,
    /// Number of directories
    #[arg(long, value_name = "N", default_value_t = 1, requires = "files")]
    pub dirs: u64,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Behaviour of tar and the client")]
pub struct MannerArgs {
    /// NFS version [default: that of most calls of the trace, else 4.2]
    #[arg(long, value_name = "VERSION")]
    pub vers: Option<VersArg>,
    /// The client looks each name up before it makes it, and revalidates directories, as Linux does on some servers
    /// [default: as in the trace]
    #[arg(long)]
    pub lookups: bool,
    /// Files are made with GUARDED, not EXCLUSIVE, so that their first attributes need no SETATTR (the server has persistent sessions)
    #[arg(long)]
    pub guarded: bool,
    /// Largest size of a WRITE
    #[arg(long, value_name = "BYTES", value_parser = units::size, default_value = "1M")]
    pub write_size: u64,
    /// tar does not set owners (the default unless root)
    #[arg(long)]
    pub no_same_owner: bool,
    /// tar does not set modes (the default unless root)
    #[arg(long)]
    pub no_same_permissions: bool,
    /// tar does not set times
    #[arg(short = 'm', long)]
    pub touch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VersArg {
    /// NFSv3
    #[value(name = "3")]
    V3,
    /// NFSv4.0
    #[value(name = "4.0")]
    V40,
    /// NFSv4.1
    #[value(name = "4.1")]
    V41,
    /// NFSv4.2
    #[value(name = "4.2", alias = "4")]
    V42,
}

impl From<VersArg> for Version {
    fn from(vers: VersArg) -> Version {
        if vers == VersArg::V3 { Version::V3 } else { Version::V4 }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Changes to predict [default: some of each kind]")]
pub struct ChangeArgs {
    /// The server makes data stable on a device with this flush latency, such as 50us
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub log_device: Vec<Duration>,
    /// A client that makes this many files with one COMPOUND: on the same server, and on one that makes a COMPOUND stable at once
    #[arg(long, value_name = "FILES")]
    pub compound: Vec<u64>,
    /// This many clients, or COMPOUNDs in flight, at a time
    #[arg(long, value_name = "N")]
    pub streams: Vec<u64>,
    /// Delegations in place of opens, which let the client set times (RFC 9754)
    #[arg(long)]
    pub delegations: bool,
    /// Another network with this round-trip time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub round_trip: Vec<Duration>,
    /// A link with this bandwidth in bytes a second, such as 125M
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    pub link: Vec<u64>,
    /// A server that is this many times as fast, except for making data stable
    #[arg(long, value_name = "TIMES")]
    pub faster_server: Vec<f64>,
}

impl ChangeArgs {
    /// The chosen changes for the model; empty if none was chosen.
    pub fn chosen(&self) -> Vec<Change> {
        let mut all: Vec<Change> = Vec::new();
        all.extend(self.log_device.iter().map(|t| Change::LogDevice { persistence_s: t.as_secs_f64() }));
        for &files in &self.compound {
            all.extend([false, true].map(|at_once| Change::Compound { files, at_once }));
        }
        all.extend(self.streams.iter().map(|&streams| Change::Streams { streams }));
        all.extend(self.delegations.then_some(Change::Delegations));
        all.extend(self.round_trip.iter().map(|t| Change::RoundTrip { round_trip_s: t.as_secs_f64() }));
        all.extend(self.link.iter().map(|&bytes| Change::Link { bytes_per_s: bytes as f64 }));
        all.extend(self.faster_server.iter().map(|&times| Change::Server { times }));
        all
    }
}

pub const HELP: &str = "\
Examples:
  landfast trace --json work.pcap | landfast predict --trace -
  landfast probe --json nfs://SERVER/PATH | landfast predict --probe - --dir /srv/data
  landfast predict --rtt 1ms --persistence 4ms --files 290000 --log-device 50us

Exit status: 0 done, 1 part of a directory could not be read and is not counted, 2 no prediction was possible.";
