//! The arguments of `landfast trace`.

use super::fail_if::{FailIf, fail_if};
use clap::Args;
use landfast_trace::filter::{self, Moment, Network, Procedure};
use std::path::PathBuf;
use std::time::Duration;

/// The kernel's counters of NFS mounts.
pub const MOUNTSTATS_FILE: &str = "/proc/self/mountstats";

pub const HELP: &str = "\
Capture the work at the client or at the server, then read the capture:
  tcpdump -i any -s 0 -w work.pcap host SERVER     or: ... -w - host SERVER | landfast trace -
  landfast trace work.pcap                         the verdict with reasons and advice, service times, calls for each file
  landfast trace --report page.html work.pcap      the same with charts, as a page
  landfast trace --merge server.pcap client.pcap   captures of both ends: also the network's part of each call
Without a capture file:
  landfast trace --interface eth0 --server SERVER  capture until Ctrl-C
  landfast trace --mountstats --interval 30        read the counters of the client's mounts

Exit status: 0 done, 1 a condition of --fail-if is true, 2 no result.";

#[derive(Debug, Args)]
pub struct TraceArgs {
    /// A capture: pcap or pcapng, as tcpdump and Wireshark write them, also compressed with gzip, bzip2, xz or zstd; - for standard input
    #[arg(
        required = false,
        required_unless_present_any = ["mountstats", "interface"],
        default_value_ifs([
            ("mountstats", clap::builder::ArgPredicate::IsPresent, MOUNTSTATS_FILE),
            ("interface", clap::builder::ArgPredicate::IsPresent, "-"),
        ])
    )]
    pub file: PathBuf,
    /// Capture at a network interface of this machine until Ctrl-C, without FILE; needs root or CAP_NET_RAW
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "mountstats", "merge", "anonymise"])]
    pub interface: Option<String>,
    /// With --interface: stop after this many seconds
    #[arg(long, value_name = "SECONDS", requires = "interface", value_parser = interval)]
    pub seconds: Option<Duration>,
    /// With --interface: stop after this many calls with their replies
    #[arg(long, value_name = "CALLS", requires = "interface")]
    pub count: Option<u64>,
    /// With --mountstats: a later reading, to look at the time between both
    #[arg(requires = "mountstats", conflicts_with = "interval")]
    pub after: Option<PathBuf>,
    /// FILE is a reading of a Linux client's counters of its mounts (default: those of this machine)
    #[arg(long, conflicts_with_all = ["list", "report", "OnlyArgs"])]
    pub mountstats: bool,
    /// With --mountstats: read again after this many seconds, to look at the time between both readings
    #[arg(long, value_name = "SECONDS", requires = "mountstats", value_parser = interval)]
    pub interval: Option<Duration>,
    /// Print one line for each call and each reply, as tshark does
    #[arg(long)]
    pub list: bool,
    /// Print the tables and the properties of the capture as JSON
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
    /// Write one page of HTML as well: verdict, charts, what would change it, tables
    #[arg(long, value_name = "OUT.html")]
    pub report: Option<PathBuf>,
    /// Write a copy that can be shown to others: names, addresses and handles are hashed, data becomes zeros, calls
    /// and times stay; - for standard output
    #[arg(long, value_name = "OUT.pcap", conflicts_with_all = ["list", "json", "report", "OnlyArgs", "merge", "fail_if"])]
    pub anonymise: Option<PathBuf>,
    /// A second capture of the same traffic from the other end: the difference is the network's part of each call
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "mountstats"])]
    pub merge: Option<PathBuf>,
    /// A capture of the same work before a change: print what the change did, and what the equation predicts for it
    #[arg(long, value_name = "BEFORE", conflicts_with_all = ["list", "report", "mountstats", "merge", "anonymise", "interface", "fail_if"])]
    pub compare: Option<PathBuf>,
    /// End with status 1 if this is true, and print the value: rtt>50%, WRITE.p99>20ms, matched<95%; may be given more than once
    #[arg(long, value_name = "BOUND", value_parser = fail_if, conflicts_with_all = ["list", "mountstats"])]
    pub fail_if: Vec<FailIf>,
    #[command(flatten)]
    pub only: OnlyArgs,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Filter: a call must match all of these options")]
pub struct OnlyArgs {
    /// Calls of this client
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub client: Option<Network>,
    /// Calls to this server
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub server: Option<Network>,
    /// Calls about files with this name (shell wildcards), or with this handle, as --list prints it: 0x1d14c75e
    #[arg(long = "file", value_name = "NAME|0xFH", value_parser = file)]
    pub about: Option<landfast_trace::filter::File>,
    /// Calls of these procedures, and COMPOUNDs with these main operations: WRITE,COMMIT; also callbacks: CB_RECALL
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub procedure: Vec<Procedure>,
    /// Calls from this time on: seconds since the first frame, or a time such as 2026-11-23T05:13:00.5Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Moment>,
    /// Calls before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Moment>,
}

/// Parses a file's name or handle.
pub fn file(text: &str) -> Result<filter::File, String> {
    if let Some(digest) = text.strip_prefix("0x").filter(|digits| digits.len() == 8)
        && let Ok(digest) = u32::from_str_radix(digest, 16)
    {
        return Ok(filter::File::Digest(digest));
    }
    if text.is_empty() || text.contains('/') {
        return Err("wanted: a name without its directory; * and ? stand for others".into());
    }
    Ok(filter::File::Name { pattern: text.as_bytes().to_vec(), matches: landfast_client::glob::matches })
}

pub fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(s) = text.parse::<f64>() {
        let ns = s * 1e9;
        return if ns.is_finite() {
            Ok(Moment::Since(ns.round() as i64))
        } else {
            Err("too many seconds".into())
        };
    }
    let at = text.parse::<jiff::Timestamp>().map_err(|e| {
        format!(
            "wanted: seconds since the first frame, or a time with its zone, as 2026-11-23T05:13:00Z ({e})"
        )
    })?;
    i64::try_from(at.as_nanosecond()).map(Moment::At).map_err(|_| "too far away".to_owned())
}

/// Parses the time between two readings.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.1..=86_400.0).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "wanted: seconds, 0.1 to 86400".to_owned())
}
