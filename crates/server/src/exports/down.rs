//! Exports that are configured and cannot be served now: their volume cannot be opened, mostly since it cannot be recovered.
//!
//! The others are served. What such an export's clients ask for is answered as by a server that is not up yet: `DELAY` to a LOOKUP
//! of its name and to its handles, `JUKEBOX` in NFSv3. So what is mounted from it hangs as hard mounts do, and goes on when it
//! has been mended and a reload has found it so. A new NFSv4 mount waits, too; MOUNT, which knows no such status, refuses. In
//! listings of the synthetic directories its name is left out, so that nobody waits who only looks.

use super::caller::{Caller, Refused};
use super::number::number_from;
use super::pseudo::components;
use super::rules::Rules;
use bytes::Bytes;
use landfast_volume::Volume;
use std::path::PathBuf;

/// An export that cannot be served now, and why.
#[derive(Debug, Clone)]
pub struct Unavailable {
    /// Its directory.
    pub path: PathBuf,
    /// Its name in the pseudo root.
    pub name: PathBuf,
    /// Who may use it.
    pub rules: Rules,
    /// Users have the groups that this system says.
    pub manage_gids: bool,
    /// What is in the way.
    pub why: String,
}

/// The same in the table.
#[derive(Debug)]
pub(crate) struct Down {
    pub(crate) of: Unavailable,
    pub(crate) name: Vec<Bytes>,
    /// The number in its handles, if its directory says it.
    number: Option<u32>,
}

impl Down {
    pub(super) fn new(of: Unavailable) -> Down {
        let number = Volume::id_at(&of.path).map(|id| number_from(&id));
        Down { name: components(&of.name), number, of }
    }

    /// Whether it may be named by handles with this number.
    pub(super) fn may_have(&self, number: u32) -> bool {
        self.number.is_none_or(|n| n == number)
    }

    pub(super) fn number(&self) -> Option<u32> {
        self.number
    }

    /// Whether this caller may know of it.
    ///
    /// # Errors
    /// It may not, or that is not known yet.
    pub(crate) fn access(&self, caller: &Caller) -> Result<(), Refused> {
        match self.of.rules.access(caller, self.of.manage_gids) {
            Ok(_) | Err(Refused::Flavor) => Ok(()),
            Err(why) => Err(why),
        }
    }
}
