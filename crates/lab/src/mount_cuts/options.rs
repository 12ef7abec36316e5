//! What a run is to do, and what it reports.

use crate::error::Error;
use crate::mounts::Filesystem;
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;

/// What is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// `kill -9` of the process that serves the mount.
    Kill,
    /// The power of the server and its disks, or only the server; programs go on.
    Server,
    /// Both.
    Both,
    /// The network, for longer than a lease; another client changes the same directories meanwhile.
    Network,
    /// Nothing: another client lists and reads all the time.
    Look,
}

impl What {
    /// All of them, in the order of tables.
    pub const ALL: [(&str, What); 5] = [
        ("kill", What::Kill),
        ("server", What::Server),
        ("both", What::Both),
        ("network", What::Network),
        ("look", What::Look),
    ];

    pub fn name(self) -> &'static str {
        What::ALL.iter().find(|(_, w)| *w == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for What {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        let found = What::ALL.iter().find(|(name, _)| *name == s).map(|(_, what)| *what);
        found.ok_or_else(|| {
            let names: Vec<&str> = What::ALL.iter().map(|(name, _)| *name).collect();
            Error::Unable(format!("`{s}` cannot be cut: use {}", names.join(", ")))
        })
    }
}

#[derive(Debug, Clone)]
pub struct Options {
    /// Rounds of each kind.
    pub rounds: u32,
    pub what: Vec<What>,
    /// `close=local`; otherwise `close=wait`.
    pub local: bool,
    /// The data disk's filesystem.
    pub fs: Filesystem,
    pub seed: u64,
    /// No round begins after this time.
    pub time_limit: Option<Duration>,
    /// How much longer than usual a flush and a request may take, because the machine is busy.
    pub slack: Duration,
    /// The deliberate bug that the mount is to have; needs debug assertions.
    pub bug: Option<String>,
    /// End after the first round with something wrong.
    pub until_wrong: bool,
    /// Print the server's messages.
    pub show: bool,
}

/// One round.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    pub round: u32,
    pub what: What,
    /// Milliseconds that a request of the mount takes on its way to the server and back.
    pub round_trip_ms: u64,
    /// Milliseconds from the beginning of the work to the cut.
    pub after_ms: u64,
    /// Calls of programs that returned.
    pub calls: u64,
    /// Names that were compared with what the programs did.
    pub names: u64,
    /// Calls that promised that something is stable.
    pub syncs: u64,
    /// Changes that are gone, as they may be.
    pub lost: u64,
    /// How long before the cut the oldest of them was done.
    pub oldest_lost_ms: u64,
    /// The longest that a request of the second client took.
    pub longest_wait_ms: u64,
    /// Errors that the mount told of, as it should.
    pub told: u64,
    pub wrong: Vec<String>,
}

/// All rounds of a kind.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub what: What,
    pub rounds: u32,
    pub calls: u64,
    pub names: u64,
    pub syncs: u64,
    pub lost: u64,
    pub oldest_lost_ms: u64,
    pub longest_wait_ms: u64,
    pub told: u64,
    pub wrong: u32,
}

impl Row {
    pub fn new(what: What) -> Row {
        Row {
            what,
            rounds: 0,
            calls: 0,
            names: 0,
            syncs: 0,
            lost: 0,
            oldest_lost_ms: 0,
            longest_wait_ms: 0,
            told: 0,
            wrong: 0,
        }
    }

    pub fn add(&mut self, round: &Round) {
        self.rounds += 1;
        self.calls += round.calls;
        self.names += round.names;
        self.syncs += round.syncs;
        self.lost += round.lost;
        self.told += round.told;
        self.oldest_lost_ms = self.oldest_lost_ms.max(round.oldest_lost_ms);
        self.longest_wait_ms = self.longest_wait_ms.max(round.longest_wait_ms);
        self.wrong += u32::from(!round.wrong.is_empty());
    }
}
