//! The thirty cases: what is done to the work, which is also the correct answer.

use std::time::Duration;

use super::altered::Altered;
use crate::guest::ether::Line;
use crate::guest::injected::Who;
use crate::guest::injected::cases::{BULK, FOUR_SOME, LARGE, READ, SOME, TWO};
use crate::guest::recipe::Vers::{self, V3, V4_0, V4_1, V4_2};

#[derive(Clone, Copy, Debug)]
pub enum Client {
    /// Linux in the guest: what is mounted, and more options of the mount.
    Linux(Vers, &'static str),
    /// libnfs, with version 3.
    Libnfs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturedAt {
    Client,
    Server,
    /// At both.
    Merged,
    /// At the server, with another client's traffic.
    Beside,
}

/// Another client's work meanwhile: libnfs's.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    pub line: Line,
    pub work: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub client: Client,
    pub who: Who,
    pub line: Line,
    /// Time of a flush of the server's disk.
    pub flush_ms: f64,
    /// Additional time of the server for each reply.
    pub each_ms: u64,
    /// A quota: the server is stopped for the first number of milliseconds, then runs for the second.
    pub quota_ms: Option<(u64, u64)>,
    /// Stops of the server: milliseconds until each, and its length in milliseconds.
    pub stops: &'static [(u64, u64)],
    /// Work before the capture.
    pub prepare: &'static str,
    pub work: &'static str,
    /// Another client's work at the same time.
    pub beside: Option<Beside>,
    /// Where the capture is made.
    pub seen: CapturedAt,
    /// What was done to the capture.
    pub altered: Altered,
    /// The cause, in words for the table.
    pub done: &'static str,
    pub causes: &'static [&'static str],
    /// The capture does not allow a certain answer.
    pub doubted: bool,
}

impl Case {
    pub fn is_linux(&self) -> bool {
        matches!(self.client, Client::Linux(..))
    }

    /// The causes, whatever was done to the capture.
    pub fn made(&self) -> &'static [&'static str] {
        if self.altered == Altered::RepliesOnly { RTT } else { self.causes }
    }

    /// The capture, in words for the table.
    pub fn what(&self) -> String {
        let who = match self.who {
            Who::Landfast => "Landfast",
            Who::Ganesha => "ganesha",
            Who::GaneshaStable => "ganesha on XFS wsync",
        };
        let client = match self.client {
            Client::Linux(vers, options) => format!("Linux v{vers}{}", options.replace(',', " ")),
            Client::Libnfs => "libnfs v3".to_owned(),
        };
        let beside = if self.beside.is_some() { " and libnfs v3" } else { "" };
        let seen = match self.seen {
            CapturedAt::Client => "at the client",
            CapturedAt::Server | CapturedAt::Beside => "at the server",
            CapturedAt::Merged => "both ends",
        };
        let altered = match self.altered {
            Altered::No => String::new(),
            Altered::NoAcks => ", no bare ACKs".to_owned(),
            Altered::NoAcksSharedNumbers => ", no bare ACKs, host-wide IP IDs".to_owned(),
            Altered::Twice => ", each frame twice, out of order".to_owned(),
            Altered::SetBack => ", clock set back by 1.5 s".to_owned(),
            Altered::Cut(bytes) => format!(", {bytes} bytes of a frame"),
            Altered::RepliesOnly => ", replies alone".to_owned(),
            Altered::Holes(each) => format!(", one frame of {each} missing"),
        };
        format!("{}: {client}{beside}, {who}, {seen}{altered}", self.name)
    }
}

const BASE: Case = Case {
    name: "",
    client: Client::Linux(V3, ""),
    who: Who::Ganesha,
    line: Line { round_trip: Duration::ZERO, megabits: 0, lost_of_1000: 0 },
    flush_ms: 0.0,
    each_ms: 0,
    quota_ms: None,
    stops: &[],
    prepare: "",
    work: TWO,
    beside: None,
    seen: CapturedAt::Client,
    altered: Altered::No,
    done: "",
    causes: &[],
    doubted: false,
};

const fn line(ms: u64, megabits: u64, lost_of_1000: u64) -> Line {
    Line { round_trip: Duration::from_millis(ms), megabits, lost_of_1000 }
}

const PUT: &str = "for i in $(seq 60); do put small s$i; done";
const PUT_MANY: &str = "for i in $(seq 150); do put larger m$i; done";
const PUT_LARGE: &str = "put large l1; put large l2";
const THINK: &str = "for i in $(seq 25); do put small t$i; sleep 0.3; done";
const IDLE: &str =
    "for j in 1 2 3 4; do for i in $(seq 12); do echo x >$WORK/f$j.$i; done; sync; sleep 5; done";

const RTT: &[&str] = &["rtt"];
const PERSISTENCE: &[&str] = &["persistence"];
const LOSS: &[&str] = &["loss"];
const STALL: &[&str] = &["stall"];
const QUOTA: &[&str] = &["quota"];
const BANDWIDTH: &[&str] = &["bandwidth"];

pub const CASES: [Case; 30] = [
    Case { name: "stop", stops: &[(700, 6000)], done: "server stopped for 6 s", causes: STALL, ..BASE },
    Case {
        name: "stop-twice",
        client: Client::Linux(V4_1, ""),
        who: Who::Landfast,
        stops: &[(700, 4000), (700, 5000)],
        done: "server stopped for 4 s and 5 s",
        causes: STALL,
        ..BASE
    },
    Case {
        name: "stop-libnfs",
        client: Client::Libnfs,
        stops: &[(800, 5000)],
        work: PUT_MANY,
        done: "server stopped for 5 s",
        causes: STALL,
        ..BASE
    },
    Case {
        name: "stop-libnfs-landfast",
        client: Client::Libnfs,
        who: Who::Landfast,
        stops: &[(800, 5000)],
        work: PUT_MANY,
        seen: CapturedAt::Server,
        done: "server stopped for 5 s",
        causes: STALL,
        ..BASE
    },
    Case {
        name: "stop-merged",
        client: Client::Linux(V4_0, ""),
        line: line(4, 0, 0),
        stops: &[(700, 12_000)],
        seen: CapturedAt::Merged,
        done: "server stopped for 12 s",
        causes: STALL,
        ..BASE
    },
    Case {
        name: "quota",
        quota_ms: Some((180, 20)),
        work: SOME,
        done: "server runs 20 of 200 ms",
        causes: QUOTA,
        ..BASE
    },
    Case {
        name: "quota-landfast",
        client: Client::Linux(V4_2, ""),
        who: Who::Landfast,
        quota_ms: Some((90, 10)),
        work: SOME,
        done: "server runs 10 of 100 ms",
        causes: QUOTA,
        ..BASE
    },
    Case {
        name: "quota-libnfs",
        client: Client::Libnfs,
        quota_ms: Some((180, 20)),
        work: PUT_MANY,
        seen: CapturedAt::Server,
        done: "server runs 20 of 200 ms",
        causes: QUOTA,
        ..BASE
    },
    Case {
        name: "loss",
        client: Client::Linux(V4_1, ""),
        line: line(2, 0, 40),
        work: SOME,
        done: "4 % of the frames lost",
        causes: LOSS,
        ..BASE
    },
    Case {
        name: "loss-at-server",
        who: Who::Landfast,
        line: line(2, 0, 50),
        work: SOME,
        seen: CapturedAt::Server,
        done: "5 % of the frames lost",
        causes: LOSS,
        ..BASE
    },
    Case {
        name: "loss-libnfs",
        client: Client::Libnfs,
        line: line(2, 0, 40),
        work: PUT_MANY,
        done: "4 % of the frames lost",
        causes: LOSS,
        ..BASE
    },
    Case {
        name: "loss-no-acks",
        line: line(2, 0, 50),
        work: SOME,
        altered: Altered::NoAcks,
        done: "5 % of the frames lost",
        causes: LOSS,
        ..BASE
    },
    Case {
        name: "idle-no-acks",
        line: line(30, 0, 0),
        work: IDLE,
        altered: Altered::NoAcksSharedNumbers,
        done: "round trip of 30 ms; idle for 5 s at times",
        causes: RTT,
        ..BASE
    },
    Case {
        name: "flush-no-acks",
        who: Who::GaneshaStable,
        flush_ms: 20.0,
        work: SOME,
        altered: Altered::NoAcksSharedNumbers,
        done: "flush of 20 ms",
        causes: PERSISTENCE,
        ..BASE
    },
    Case {
        name: "rtt-twice",
        client: Client::Linux(V4_1, ""),
        line: line(20, 0, 0),
        work: SOME,
        altered: Altered::Twice,
        done: "round trip of 20 ms",
        causes: RTT,
        ..BASE
    },
    Case {
        name: "set-back",
        client: Client::Linux(V4_1, ""),
        who: Who::GaneshaStable,
        flush_ms: 20.0,
        work: SOME,
        altered: Altered::SetBack,
        done: "flush of 20 ms",
        causes: PERSISTENCE,
        doubted: true,
        ..BASE
    },
    Case {
        name: "cut",
        who: Who::Landfast,
        flush_ms: 20.0,
        work: SOME,
        altered: Altered::Cut(96),
        done: "flush of the log's disk of 20 ms",
        causes: PERSISTENCE,
        ..BASE
    },
    Case {
        name: "replies",
        line: line(20, 0, 0),
        work: SOME,
        altered: Altered::RepliesOnly,
        done: "round trip of 20 ms",
        causes: &["nothing"],
        ..BASE
    },
    Case {
        name: "holes",
        client: Client::Libnfs,
        line: line(20, 0, 0),
        work: PUT,
        altered: Altered::Holes(33),
        done: "round trip of 20 ms",
        causes: RTT,
        doubted: true,
        ..BASE
    },
    Case {
        name: "narrow-nconnect",
        client: Client::Linux(V4_1, ",nconnect=4"),
        line: line(0, 20, 0),
        work: BULK,
        done: "20 Mbit/s",
        causes: BANDWIDTH,
        ..BASE
    },
    Case {
        name: "narrow-libnfs",
        client: Client::Libnfs,
        who: Who::Landfast,
        line: line(0, 20, 0),
        work: PUT_LARGE,
        done: "20 Mbit/s",
        causes: BANDWIDTH,
        ..BASE
    },
    Case {
        name: "narrow-read",
        who: Who::Landfast,
        line: line(0, 20, 0),
        prepare: LARGE,
        work: READ,
        done: "20 Mbit/s",
        causes: BANDWIDTH,
        ..BASE
    },
    Case {
        name: "rtt-libnfs",
        client: Client::Libnfs,
        line: line(20, 0, 0),
        work: PUT,
        done: "round trip of 20 ms",
        causes: RTT,
        ..BASE
    },
    Case {
        name: "flush-libnfs",
        client: Client::Libnfs,
        who: Who::GaneshaStable,
        flush_ms: 20.0,
        work: PUT,
        done: "flush of 20 ms",
        causes: PERSISTENCE,
        ..BASE
    },
    Case {
        name: "flush-libnfs-landfast",
        client: Client::Libnfs,
        who: Who::Landfast,
        flush_ms: 20.0,
        work: PUT,
        seen: CapturedAt::Server,
        done: "flush of the log's disk of 20 ms",
        causes: PERSISTENCE,
        ..BASE
    },
    Case {
        name: "each",
        client: Client::Linux(V4_2, ""),
        who: Who::Landfast,
        each_ms: 10,
        work: SOME,
        done: "each answer 10 ms later",
        causes: &["server"],
        ..BASE
    },
    Case {
        name: "think-libnfs",
        client: Client::Libnfs,
        work: THINK,
        done: "0.3 s between files",
        causes: &["client"],
        ..BASE
    },
    Case {
        name: "rtt-nconnect",
        client: Client::Linux(V4_1, ",nconnect=4"),
        line: line(30, 0, 0),
        work: FOUR_SOME,
        done: "round trip of 30 ms, four programs",
        causes: RTT,
        ..BASE
    },
    Case {
        name: "two-rtt-think",
        line: line(30, 0, 0),
        work: SOME,
        beside: Some(Beside { line: line(0, 0, 0), work: THINK }),
        seen: CapturedAt::Beside,
        done: "Linux: round trip of 30 ms; libnfs: 0.3 s between files",
        causes: &["client and rtt"],
        ..BASE
    },
    Case {
        name: "two-flush-rtt",
        who: Who::GaneshaStable,
        flush_ms: 20.0,
        work: SOME,
        beside: Some(Beside { line: line(200, 0, 0), work: "for i in $(seq 8); do put small b$i; done" }),
        seen: CapturedAt::Beside,
        done: "flush of 20 ms; libnfs: round trip of 200 ms, too",
        causes: &["persistence and rtt"],
        ..BASE
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own_and_an_answer() {
        let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
        assert!(CASES.iter().all(|case| !case.causes.is_empty() && !case.done.is_empty()));
    }
}
