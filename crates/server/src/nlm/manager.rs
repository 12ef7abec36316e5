//! The state that NLM and NSM share, and their notes in the log.

use super::peers::Peers;
use crate::shared::Shared;
use crate::state::notes::Stamped;
use crate::state::removals::Removals;
use std::sync::Arc;

/// The lock manager (NLM) and the status monitor (NSM) of a server.
#[derive(Clone)]
pub(crate) struct Nlm {
    pub(super) sh: Arc<Shared>,
    pub(super) peers: Arc<Peers>,
    /// The state number of the status monitor: odd, and different after each start.
    pub(super) number: i32,
}

impl Nlm {
    /// For the server instance `epoch`; `portmapper` is the port of the clients' port mappers.
    pub(crate) fn new(sh: Arc<Shared>, epoch: u32, portmapper: u16) -> Nlm {
        let number = ((epoch & 0x3fff_ffff) << 1 | 1) as i32;
        Nlm { sh, peers: Arc::new(Peers::new(portmapper)), number }
    }

    /// Writes notes into the log and waits until they are durable. Without a log this does nothing.
    pub(super) async fn keep(&self, notes: Vec<Stamped>) -> Result<(), landfast_volume::Error> {
        let exports = self.sh.exports();
        let Some(keeper) = exports.keeper().filter(|_| !notes.is_empty()) else {
            return Ok(());
        };
        let receipt = {
            let mut tx = keeper.volume.tx();
            for note in &notes {
                tx.note(note.to_bytes());
            }
            tx.finish()
        };
        receipt.wait().await?;
        self.sh.state().removals.settled(Removals::among(&notes));
        Ok(())
    }

    /// Makes the record of a host durable, with `notes`. Called before the host hears that it holds a lock.
    pub(super) async fn keep_host(
        &self,
        host: u64,
        mut notes: Vec<Stamped>,
    ) -> Result<(), landfast_volume::Error> {
        let new = self.sh.state().nlm_note(host);
        let noted = new.is_some();
        notes.extend(new);
        self.keep(notes).await?;
        if noted {
            self.sh.state().nlm_is_noted(host);
        }
        Ok(())
    }
}
