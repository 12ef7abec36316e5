//! Which requests fail, and what must come of it.

use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// The intent log.
    Log,
    /// The directory's filesystem.
    Data,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub name: &'static str,
    pub about: &'static str,
    pub(super) disk: Disk,
    /// For `ctl`.
    pub(super) words: &'static str,
    /// The server must notice: it cannot have gone well. A single write of the data disk that fails may be one that the
    /// filesystem makes good by itself (a second copy of its metadata).
    pub(super) noticed: bool,
    /// The log goes on with its other half.
    pub(super) mirror: bool,
    /// Nobody is refused anything.
    pub(super) harmless: bool,
    /// The server stops at this pass of a point of its code; the fault meets a flush of somebody else's, then the server goes on.
    pub(super) beside: Option<&'static str>,
}

const fn fault(name: &'static str, about: &'static str, disk: Disk, words: &'static str) -> Fault {
    Fault { name, about, disk, words, noticed: true, mirror: false, harmless: false, beside: None }
}

/// A log of a mebibyte is full long before that.
pub(super) const SLOW: &str = "flush_us=1500000";

/// Where the block is, the disk shows.
pub(super) const UNREADABLE: &str = "fail=read";

/// The same.
pub(super) const UNWRITTEN: &str = "fail=write, and somebody else is told";

pub const ALL: &[Fault] = &[
    fault("log-write", "every write of the log fails", Disk::Log, "fail=write"),
    fault("log-write-once", "one write of the log fails", Disk::Log, "fail=write:once"),
    fault("log-flush", "every flush of the log fails", Disk::Log, "fail=flush"),
    fault("log-flush-once", "one flush of the log fails", Disk::Log, "fail=flush:once"),
    fault("log-superblock", "the log's superblocks cannot be written", Disk::Log, "fail=write:to=8192"),
    fault("log-full", "the log's device says that it is full", Disk::Log, "fail=write:full"),
    Fault {
        mirror: true,
        harmless: true,
        ..fault("log-half", "one half of the log fails", Disk::Log, "fail=write fail=flush")
    },
    fault("data-write", "every write of the data disk fails", Disk::Data, "fail=write"),
    Fault {
        noticed: false,
        ..fault("data-write-once", "one write of the data disk fails", Disk::Data, "fail=write:once")
    },
    fault(
        "data-unwritten",
        "unstable data cannot be written back, and somebody else is told",
        Disk::Data,
        UNWRITTEN,
    ),
    fault("data-flush", "every flush of the data disk fails", Disk::Data, "fail=flush"),
    Fault {
        noticed: false,
        ..fault("data-flush-once", "one flush of the data disk fails", Disk::Data, "fail=flush:once")
    },
    // Points are in debug builds only. Each start passes this one twice.
    #[cfg(debug_assertions)]
    Fault {
        beside: Some("volume.tagged:4"),
        ..fault(
            "data-flush-beside",
            "somebody else's flush of the data disk fails just before the server's own",
            Disk::Data,
            "fail=flush:once",
        )
    },
    Fault {
        noticed: false,
        ..fault("data-full", "the data disk's device says that it is full", Disk::Data, "fail=write:full")
    },
    Fault {
        harmless: true,
        noticed: false,
        ..fault("data-read", "one block of a file cannot be read", Disk::Data, UNREADABLE)
    },
    Fault {
        harmless: true,
        noticed: false,
        ..fault("data-slow", "flushes of the data disk take 1.5 s: the log fills", Disk::Data, SLOW)
    },
];

impl std::str::FromStr for Fault {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let names = || ALL.iter().map(|f| f.name).collect::<Vec<_>>().join(", ");
        ALL.iter()
            .find(|f| f.name == name)
            .copied()
            .ok_or_else(|| Error::Unable(format!("`{name}` is not a fault: use one of {}", names())))
    }
}
