//! What a run of power cuts is to do, and what it reports.

use crate::error::Error;
use crate::mounts::Filesystem;
use crate::served::Durability;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

/// What is going on when the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// `landfast untar`.
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
    /// Pairs of clients that meet on one object, with slow flushes.
    Pairs,
    /// Scenes that take more than clients at work, one a cut.
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

/// How the power goes, where it is not left to chance.
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
    /// All of them.
    pub const ALL: [(&str, Variant); 5] = [
        ("power", Variant::Power),
        ("kill", Variant::Kill),
        ("slow-log", Variant::SlowLog),
        ("log-lost", Variant::LogLost),
        ("half-lost", Variant::HalfLost),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Variant::ALL.iter().find(|(_, v)| *v == self).map_or("", |(name, _)| name)
    }
}

/// At which named points of the server's code the power goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Points {
    /// At no named point: at random moments.
    None,
    /// At any of them, now and then at a random moment.
    Each,
    /// At this one, whenever the server comes by.
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

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data disk's filesystem.
    pub fs: Filesystem,
    /// How many cuts.
    pub cuts: u32,
    /// What is going on.
    pub load: Load,
    /// Everything random comes from here.
    pub seed: u64,
    /// Clients that work at the same time, each in a directory of its own; `untar` is one.
    pub clients: u32,
    /// What the server promises. Pairs are asked for with [`Durability::Sync`] as well; otherwise anything but
    /// [`Durability::Log`] is for showing that the oracle finds what is lost.
    pub durability: Durability,
    /// How the power goes; `None`: the seed says.
    pub variant: Option<Variant>,
    /// At which named points; more than none takes a server with debug assertions.
    pub points: Points,
    /// The deliberate bug of the server, which takes debug assertions as well.
    pub bug: Option<String>,
    /// The server's binary, when it is not this one.
    pub binary: Option<PathBuf>,
    /// End after the first cut with something wrong.
    pub until_wrong: bool,
    /// Show the server's messages.
    pub show: bool,
}

/// One cut.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CutReport {
    /// Counted from 1.
    pub cut: u32,
    /// How the power went.
    pub how: String,
    /// The named points at which the server was stopped for it.
    pub points: Vec<String>,
    /// Milliseconds from the start of the work to the cut.
    pub after_ms: u64,
    /// Operations acknowledged since the last cut.
    pub acknowledged: u64,
    /// What was under way, for each client that had something under way.
    pub under_way: Vec<String>,
    /// Times that the power went again while the server recovered.
    pub cuts_in_recovery: u32,
    /// Seconds from the server's start to its first connection.
    pub recovery_s: f64,
    /// Objects compared over NFS.
    pub objects: u64,
    /// Handles from before the cut that were tried.
    pub handles: u64,
    /// Acknowledged requests that were repeated and had to get their first answer.
    pub repeated: u64,
    /// Requests under way whose effect came to the disk ahead of the log: the repetition is told that it was done.
    pub ahead: u64,
    /// Starts with another log than the volume's, or none, that had to be refused.
    pub refused: u64,
    /// What is wrong; empty when nothing is.
    pub wrong: Vec<String>,
}

/// All cuts of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The data disk's filesystem.
    pub fs: Filesystem,
    /// What was going on.
    pub workload: Load,
    /// The seed.
    pub seed: u64,
    /// Cuts made.
    pub cuts: u32,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Handles tried.
    pub handles: u64,
    /// Acknowledged requests repeated.
    pub repeated: u64,
    /// Longest recovery in seconds.
    pub recovery_s_max: f64,
    /// Blocks that the cuts took from all disks.
    pub blocks_lost: u64,
    /// Cuts after which something was wrong.
    pub failures: u32,
    /// The cuts with something wrong.
    pub failed: Vec<CutReport>,
}
