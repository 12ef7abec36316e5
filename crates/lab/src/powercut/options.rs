//! What a run of power cuts is to do, and what it reports.

use crate::error::Error;
use crate::mounts::Filesystem;
use crate::served::Durability;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    Untar,
    /// The same with `--resume`, by a client that dies with the server.
    Resume,
    /// A tree that the server copies itself, as `landfast cp` asks it to.
    Copy,
    /// `tar -x` as a kernel client does it, over NFSv4.1.
    Serial,
    /// The same over NFSv3, and everything that changes a tree.
    V3,
    /// Everything that changes a tree, over NFSv4.2.
    Mixed,
    /// Unstable writes and COMMITs over files that are there.
    Overwrite,
    /// Several clients of all these kinds at once.
    Clients,
    /// Pairs of clients that race on one object, with slow flushes.
    Pairs,
    /// Scenes ([`super::scenes`]), one for each cut.
    Scenes,
}

impl Load {
    /// All of them, in the order of tables.
    pub const ALL: [(&str, Load); 10] = [
        ("untar", Load::Untar),
        ("resume", Load::Resume),
        ("copy", Load::Copy),
        ("serial", Load::Serial),
        ("v3", Load::V3),
        ("mixed", Load::Mixed),
        ("overwrite", Load::Overwrite),
        ("clients", Load::Clients),
        ("pairs", Load::Pairs),
        ("scenes", Load::Scenes),
    ];
}

/// How the power goes, if it is not random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// The power of all disks at once.
    Power,
    /// `kill -9` of the server; the disks keep their power and the kernel its page cache.
    Kill,
    /// A log device whose flush takes tens of milliseconds.
    SlowLog,
    /// At the next start the log is another device at first, or none.
    LogLost,
    /// The log is a mirror, and one half does not come back from the cut.
    HalfLost,
}

impl Variant {
    pub const ALL: [(&str, Variant); 5] = [
        ("power", Variant::Power),
        ("kill", Variant::Kill),
        ("slow-log", Variant::SlowLog),
        ("log-lost", Variant::LogLost),
        ("half-lost", Variant::HalfLost),
    ];

    pub fn name(self) -> &'static str {
        Variant::ALL.iter().find(|(_, v)| *v == self).map_or("", |(name, _)| name)
    }
}

/// The named points of the server's code at which the power goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Points {
    /// At no named point: at random moments.
    None,
    /// At any of them, and sometimes at a random moment.
    Each,
    /// At this one, whenever the server passes it.
    One(String),
}

fn named<T: Copy>(all: &[(&str, T)], name: &str, what: &str) -> Result<T, Error> {
    all.iter().find(|(n, _)| *n == name).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(n, _)| *n).collect();
        Error::Unable(format!("`{name}` is not a {what}: use {}", names.join(", ")))
    })
}

impl FromStr for Load {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        named(&Load::ALL, s, "workload")
    }
}

impl FromStr for Variant {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        named(&Variant::ALL, s, "way to lose power")
    }
}

#[derive(Debug, Clone)]
pub struct Options {
    pub fs: Filesystem,
    pub cuts: u32,
    pub load: Load,
    /// Seed of all random choices.
    pub seed: u64,
    /// Clients that work at the same time, each in a directory of its own; `untar` is one.
    pub clients: u32,
    /// How the server makes replies durable. Pairs run with [`Durability::Sync`] as well. Otherwise anything but
    /// [`Durability::Log`] only shows that the oracle finds losses.
    pub durability: Durability,
    /// How the power goes; `None`: random, from the seed.
    pub variant: Option<Variant>,
    /// Named points need a server with debug assertions.
    pub points: Points,
    /// The deliberate bug that the server is to have; it needs debug assertions, too.
    pub bug: Option<String>,
    /// The server's binary, when it is not this one.
    pub binary: Option<PathBuf>,
    /// End after the first cut with something wrong.
    pub until_wrong: bool,
    pub show: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CutReport {
    pub cut: u32,
    pub how: String,
    /// The named points at which the server was stopped for it.
    pub points: Vec<String>,
    /// Milliseconds from the start of the work to the cut.
    pub after_ms: u64,
    pub acknowledged: u64,
    /// The request in flight of each client that had one.
    pub under_way: Vec<String>,
    /// Times that the power went again while the server recovered.
    pub cuts_in_recovery: u32,
    /// Seconds from the server's start to its first connection.
    pub recovery_s: f64,
    pub objects: u64,
    pub handles: u64,
    /// Acknowledged requests that were repeated and had to get their first answer.
    pub repeated: u64,
    /// Requests in flight whose effect reached the disk before the log: the reply to the repetition says that it was done before.
    pub ahead: u64,
    /// Starts with another log than the volume's, or none, that had to be refused.
    pub refused: u64,
    /// What is wrong; empty when nothing is.
    pub wrong: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub fs: Filesystem,
    pub workload: Load,
    pub seed: u64,
    pub cuts: u32,
    pub acknowledged: u64,
    pub handles: u64,
    pub repeated: u64,
    pub recovery_s_max: f64,
    pub blocks_lost: u64,
    pub failures: u32,
    pub failed: Vec<CutReport>,
}
