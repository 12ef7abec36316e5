//! What can be typed behind `landfast trace`.

use super::fail_if::{FailIf, fail_if};
use clap::Args;
use landfast_trace::filter::{self, Moment, Network, Procedure};
use std::path::PathBuf;
use std::time::Duration;

/// Where the kernel prints the counters of its mounts.
pub const MOUNTSTATS_FILE: &str = "/proc/self/mountstats";

/// How captures are made and read.
pub const HELP: &str = "\
A capture of the work, at the client or at the server:
  tcpdump -i any -s 0 -w work.pcap host SERVER     or: ... -w - host SERVER | landfast trace -
  landfast trace work.pcap                         the verdict, why, what would change it; the table; calls for each file
  landfast trace --report page.html work.pcap      the same with charts, for whoever decides
  landfast trace --merge server.pcap client.pcap   of both ends: the network's part of each call
Without a file:
  landfast trace --interface eth0 --server SERVER  until Ctrl-C
  landfast trace --mountstats --interval 30        from the client's counters

Exit status: 0 done, 1 something of --fail-if is so, 2 nothing could be said.";

/// `landfast trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// A capture: pcap or pcapng as tcpdump and Wireshark write them, also in gzip, bzip2, xz or zstd; - for standard input
    #[arg(
        required = false,
        required_unless_present_any = ["mountstats", "interface"],
        default_value_ifs([
            ("mountstats", clap::builder::ArgPredicate::IsPresent, MOUNTSTATS_FILE),
            ("interface", clap::builder::ArgPredicate::IsPresent, "-"),
        ])
    )]
    pub file: PathBuf,
    /// No FILE, but what comes at a network interface of this machine, until Ctrl-C; needs root or CAP_NET_RAW
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "mountstats", "merge", "anonymise"])]
    pub interface: Option<String>,
    /// With --interface: end after so many seconds
    #[arg(long, value_name = "SECONDS", requires = "interface", value_parser = interval)]
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
    #[arg(long, value_name = "SECONDS", requires = "mountstats", value_parser = interval)]
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
    #[arg(long, value_name = "BOUND", value_parser = fail_if, conflicts_with_all = ["list", "mountstats"])]
    pub fail_if: Vec<FailIf>,
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
    #[arg(long = "file", value_name = "NAME|0xFH", value_parser = file)]
    pub about: Option<landfast_trace::filter::File>,
    /// Only these procedures, and COMPOUNDs sent for these operations: WRITE,COMMIT; also of callbacks: CB_RECALL
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub procedure: Vec<Procedure>,
    /// Only calls that began then or later: seconds since the first frame, or as 2026-11-23T05:13:00.5Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Moment>,
    /// Only calls that began before
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Moment>,
}

/// A file as it is given on the command line.
///
/// # Errors
/// It is none.
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

/// A time as it is given on the command line.
///
/// # Errors
/// It is none.
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

/// A time between two readings as it is given on the command line.
///
/// # Errors
/// It is none.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.1..=86_400.0).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "wanted: seconds, 0.1 to 86400".to_owned())
}
