//! What a volume must know about itself after a restart: one small file in the state directory.
//!
//! Written at each opening (before anything is served) and at each clean stop. Invariant: `clean` on disk means that
//! nothing was served since the last clean stop.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::change::STEP_NS;
use crate::change::{FLOOR_STEP_NS, REMEMBER_NS};
use crate::kernel::{self, OwnedFd};
use crate::record::ObjId;
use crate::state;

pub(crate) const IDENTITY_FILE: &str = "volume";

/// First byte of the file. Since version 2 the remap table always exists too, so a missing one has been lost.
const VERSION: u8 = 2;
/// Has the same fields.
const VERSION_WITHOUT_REMAP: u8 = 1;

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Random, made with the volume.
    pub(crate) volume_id: [u8; 16],
    /// Random and secret: signs handles.
    pub(crate) key: [u8; 16],
    /// The directory's identity. A copy of the tree has another one and becomes a volume of its own.
    pub(crate) root: ObjId,
    /// Number of this opening, from 1.
    pub(crate) epoch: u64,
    /// Part of every change attribute: grows by an hour for each unclean start, and by each step back of the clock.
    pub(crate) floor_ns: u64,
    pub(crate) clean: bool,
    /// The last log in use. While the volume is not `clean`, that log holds acknowledged operations.
    pub(crate) log_in_use: Option<LogInUse>,
    /// The remap table has been written, so it must be there.
    #[serde(skip)]
    pub(crate) has_remap: bool,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogInUse {
    /// The log's own identity, since the paths of devices and files change.
    pub(crate) id: [u8; 16],
    /// Its path at that time, for messages.
    pub(crate) path: PathBuf,
}

impl Identity {
    pub(crate) fn new(root: ObjId) -> Result<Identity, getrandom::Error> {
        let mut fresh = Identity {
            volume_id: [0; 16],
            key: [0; 16],
            root,
            epoch: 0,
            floor_ns: 0,
            clean: true,
            log_in_use: None,
            has_remap: false,
        };
        kernel::fill_random(&mut fresh.volume_id)?;
        kernel::fill_random(&mut fresh.key)?;
        Ok(fresh)
    }

    /// `None` if the volume is new.
    pub(crate) fn load(state_dir: &OwnedFd) -> std::io::Result<Option<Identity>> {
        let Some(bytes) = state::read(state_dir, IDENTITY_FILE)? else { return Ok(None) };
        let bad = |why: String| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
        match bytes.split_first() {
            Some((&version @ (VERSION | VERSION_WITHOUT_REMAP), rest)) => {
                let known: Identity = postcard::from_bytes(rest).map_err(|e| bad(e.to_string()))?;
                Ok(Some(Identity { has_remap: version == VERSION, ..known }))
            }
            Some((version, _)) => {
                Err(bad(format!("version {version}, this program knows version {VERSION}")))
            }
            None => Err(bad("empty".to_owned())),
        }
    }

    /// Writes it durably. Save the remap table first.
    pub(crate) fn save(&self, state_dir: &OwnedFd) -> std::io::Result<()> {
        let bytes = postcard::to_extend(self, vec![VERSION]).map_err(std::io::Error::other)?;
        state::replace(state_dir, IDENTITY_FILE, &bytes)
    }

    /// Call before [`Identity::begin`] with the latest time that is known of before. If that is in the future, the clock was set back since.
    pub(crate) fn clock_was_at(&mut self, written_ns: u64, now_ns: u64) {
        let back = written_ns.saturating_sub(now_ns);
        if back > STEP_NS {
            self.floor_ns = self.floor_ns.saturating_add(back).saturating_add(REMEMBER_NS);
        }
    }

    pub(crate) fn begin(&mut self, clean: bool, log: Option<LogInUse>) {
        self.epoch += 1;
        if !clean {
            self.floor_ns = self.floor_ns.saturating_add(FLOOR_STEP_NS);
        }
        self.clean = false;
        self.log_in_use = log;
    }

    pub(crate) fn number(&self) -> u32 {
        let [a, b, c, d, ..] = self.volume_id;
        u32::from_be_bytes([a, b, c, d])
    }

    pub(crate) fn fsid(volume_id: &[u8; 16]) -> (u64, u64) {
        let n = u128::from_be_bytes(*volume_id);
        ((n >> 64) as u64, n as u64)
    }
}
