//! What can be typed behind `landfast predict`.

use crate::units;
use clap::{ArgGroup, Args, ValueEnum};
use landfast_model::predict::{Change, Version};
use std::path::PathBuf;
use std::time::Duration;

/// `landfast predict`.
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
    /// The chart also where standard output is no terminal
    #[arg(long, conflicts_with = "json")]
    pub chart: bool,
    /// All of it, for programs
    #[arg(long)]
    pub json: bool,
}

/// What calls cost.
#[derive(Debug, Args)]
#[command(next_help_heading = "What calls cost")]
#[command(group = ArgGroup::new("costs").required(true).args(["trace", "probe", "rtt"]))]
#[group(skip)]
pub struct WayArgs {
    /// As in a trace: what `landfast trace --json` printed; - for standard input
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// As a probe found: what `landfast probe --json` printed; - for standard input
    #[arg(long, value_name = "FILE")]
    pub probe: Option<PathBuf>,
    /// Round trip, such as 1ms
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub rtt: Option<Duration>,
    /// What a call takes longer whose effect has to be stable before the answer
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "rtt")]
    pub persistence: Option<Duration>,
    /// What the server needs for any call
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "rtt")]
    pub server: Option<Duration>,
    /// What the client lets pass between an answer and its next call; a probe does not see it
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "trace")]
    pub think: Option<Duration>,
    /// What the program lets pass before each file, beyond that: its own work, whatever its calls are
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "trace")]
    pub file_think: Option<Duration>,
    /// Bytes a second from the client to the server, such as 100M
    #[arg(long, value_name = "BYTES", value_parser = units::size, requires = "rtt")]
    pub bandwidth: Option<u64>,
}

/// What is extracted.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is extracted (with --trace also nothing: what was seen, again)")]
pub struct WhatArgs {
    /// A tar archive, also compressed; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "files"])]
    pub archive: Option<PathBuf>,
    /// An archive of this directory
    #[arg(long, value_name = "DIR", conflicts_with = "files")]
    pub dir: Option<PathBuf>,
    /// So many files
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// Of this size each
    #[arg(long, value_name = "BYTES", value_parser = units::size, default_value = "4K", requires = "files")]
    pub size: u64,
    /// In so many directories
    #[arg(long, value_name = "N", default_value_t = 1, requires = "files")]
    pub dirs: u64,
}

/// How.
#[derive(Debug, Args)]
#[command(next_help_heading = "How tar and the client do it")]
pub struct MannerArgs {
    /// NFS version [default: that of most calls of the trace, else 4.2]
    #[arg(long, value_name = "VERSION")]
    pub vers: Option<VersArg>,
    /// The client looks for each name before it is made, and at directories again, as Linux does on some servers [default: as in
    /// the trace]
    #[arg(long)]
    pub lookups: bool,
    /// Files are not made exclusively, so their first attributes need no SETATTR: sessions that outlive the server
    #[arg(long)]
    pub guarded: bool,
    /// Largest WRITE
    #[arg(long, value_name = "BYTES", value_parser = units::size, default_value = "1M")]
    pub write_size: u64,
    /// tar does not set owners (the default of all but root)
    #[arg(long)]
    pub no_same_owner: bool,
    /// tar does not set modes (the default of all but root)
    #[arg(long)]
    pub no_same_permissions: bool,
    /// tar does not set times
    #[arg(short = 'm', long)]
    pub touch: bool,
}

/// NFS versions.
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

/// What would be changed.
#[derive(Debug, Args)]
#[command(next_help_heading = "What would be changed [default: some of each kind]")]
pub struct ChangeArgs {
    /// The server makes things stable on a device that needs so long for it, such as 50us
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub log_device: Vec<Duration>,
    /// A client that makes so many files with one COMPOUND: on a server as it is, and on one that makes a COMPOUND stable at once
    #[arg(long, value_name = "FILES")]
    pub compound: Vec<u64>,
    /// So many clients, or COMPOUNDs under way, at once
    #[arg(long, value_name = "N")]
    pub streams: Vec<u64>,
    /// Delegations in place of opens, with times that the client is trusted with (RFC 9754)
    #[arg(long)]
    pub delegations: bool,
    /// Another network, with this round trip
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub round_trip: Vec<Duration>,
    /// A link of so many bytes a second, such as 125M
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    pub link: Vec<u64>,
    /// A server so many times as fast, in all but making things stable
    #[arg(long, value_name = "TIMES")]
    pub faster_server: Vec<f64>,
}

impl ChangeArgs {
    /// As the model takes them; none: none was chosen.
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

/// What goes together with it.
pub const HELP: &str = "\
Together with the others:
  landfast trace --json work.pcap | landfast predict --trace -
  landfast probe --json nfs://SERVER/PATH | landfast predict --probe - --dir /srv/data
  landfast predict --rtt 1ms --persistence 4ms --files 290000 --log-device 50us

Exit status: 0 done, 1 part of a directory could not be read and is not counted, 2 nothing could be said.";
