//! Exports that are configured but cannot be served now: their volume cannot be opened, mostly because it cannot be
//! recovered.
//!
//! The other exports are served. Clients of such an export are answered as if the server were not up yet: `DELAY` for a
//! LOOKUP of its name and for its handles, `JUKEBOX` in NFSv3. So its mounts hang as hard mounts do, and continue after
//! a repair and a reload. A new NFSv4 mount waits, too. MOUNT has no such status and refuses. Listings of the synthetic
//! directories leave its name out, so that a client that only lists does not wait.

use super::caller::{Caller, Refused};
use super::number::number_from;
use super::pseudo::components;
use super::rules::Rules;
use bytes::Bytes;
use landfast_volume::Volume;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct Unavailable {
    pub path: PathBuf,
    pub name: PathBuf,
    pub rules: Rules,
    pub manage_gids: bool,
    /// Bytes of its log, as far as that is known; `None` if it has no log.
    pub log_bytes: Option<u64>,
    pub why: String,
}

#[derive(Debug)]
pub(crate) struct UnavailableExport {
    pub(crate) of: Unavailable,
    pub(crate) name: Vec<Bytes>,
    /// The number in its handles, if it can be read from the directory.
    number: Option<u32>,
}

impl UnavailableExport {
    pub(super) fn new(of: Unavailable) -> UnavailableExport {
        let number = Volume::id_at(&of.path).map(|id| number_from(&id));
        UnavailableExport { name: components(&of.name), number, of }
    }

    /// Whether handles with this number may belong to it.
    pub(super) fn may_have(&self, number: u32) -> bool {
        self.number.is_none_or(|n| n == number)
    }

    pub(super) fn number(&self) -> Option<u32> {
        self.number
    }

    /// Whether this caller may know of it; an error if not, or if that is not known yet.
    pub(crate) fn access(&self, caller: &Caller) -> Result<(), Refused> {
        match self.of.rules.access(caller, self.of.manage_gids) {
            Ok(_) | Err(Refused::Flavor) => Ok(()),
            Err(why) => Err(why),
        }
    }
}
