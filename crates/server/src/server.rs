//! What all compounds of one server share: the volume, the state, the identity, the clock.

use crate::pseudo::Pseudo;
use crate::state::notes::Stamped;
use crate::state::opens::Files;
use crate::state::{Bounds, Millis, State};
use crate::stats::Counters;
use bytes::Bytes;
use landfast_volume::{Node, NoteKeeper, OpenFile, Volume};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Instant;

/// Shared by all threads of a server.
pub struct Shared {
    /// The tree that is served.
    pub(crate) volume: Volume,
    /// Its root.
    pub(crate) root: Node,
    /// The synthetic directories above it.
    pub(crate) pseudo: Pseudo,
    /// `so_major_id` and `eir_server_scope`: the volume's identity, so unique and the same after a restart.
    pub(crate) name: Bytes,
    /// Lease time in seconds.
    pub(crate) lease_seconds: u32,
    /// Replies, sessions and clients survive a crash.
    pub(crate) persist: bool,
    /// Counters.
    pub(crate) counters: Counters,
    started: Instant,
    state: SharedState,
}

/// Apart from what else is shared, so that the log, which asks for it, does not keep the volume alive.
type SharedState = Arc<Mutex<State<OpenFile>>>;

impl Shared {
    pub(crate) fn new(volume: Volume, pseudo: Pseudo, lease_seconds: u32, epoch: u32) -> Self {
        let bounds = Bounds::new(volume.stats().log.map(|log| log.capacity));
        let id: String = volume.id().iter().map(|b| format!("{b:02x}")).collect();
        Shared {
            root: volume.root(),
            pseudo,
            name: Bytes::from(format!("landfast-{id}")),
            lease_seconds,
            persist: volume.keeps_notes(),
            counters: Counters::default(),
            started: Instant::now(),
            state: Arc::new(Mutex::new(State::new(epoch, u64::from(lease_seconds) * 1000, bounds))),
            volume,
        }
    }

    /// Milliseconds since the server started.
    pub(crate) fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }

    /// What the volume asks for at each checkpoint.
    pub(crate) fn keeper(&self) -> Arc<dyn NoteKeeper> {
        Arc::new(Keeper(self.state.clone()))
    }

    /// The state. A leaf lock: nothing that takes a lock or a system call may be done under it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State<OpenFile>> {
        self.state.lock()
    }
}

impl Drop for Shared {
    /// Open files know their volume, whose log knows the state: that ring is opened here.
    fn drop(&mut self) {
        let files = std::mem::replace(&mut self.state().files, Files::new(0));
        drop(files);
    }
}

/// Gives the log what has to stand in it at each checkpoint.
struct Keeper(SharedState);

impl NoteKeeper for Keeper {
    fn snapshot(&self) -> Vec<Vec<u8>> {
        self.0.lock().snapshot().iter().map(Stamped::to_bytes).collect()
    }
}
