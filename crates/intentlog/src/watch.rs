//! The thread that looks whether the log is still where and what it was.
//!
//! A log file that is unlinked, truncated or overwritten takes writes as before: acknowledgements would go on, and the next start would
//! find nothing of them. So device and owner are asked several times a second ([`Device::look`], [`Checkpoint::look`]). Once
//! either says that something is lost, nothing more is acknowledged. What was acknowledged meanwhile is applied, so its owner
//! can still make it durable: [`Checkpoint::lost`].

use std::sync::Arc;
use std::time::Instant;

use crate::checkpoint::Checkpoint;
use crate::core::Core;
use crate::device::Device;
use crate::faults::{self, Bug};
use crate::limits::{WATCH_CONTENTS_EVERY, WATCH_EVERY};

pub(crate) struct Watch {
    core: Arc<Core>,
    device: Arc<dyn Device>,
    checkpoint: Arc<dyn Checkpoint>,
    /// [`Bug::LostLogUnnoticed`] was in when the log was started.
    blind: bool,
}

impl Watch {
    pub(crate) fn new(core: Arc<Core>, device: Arc<dyn Device>, checkpoint: Arc<dyn Checkpoint>) -> Watch {
        Watch { core, device, checkpoint, blind: faults::bug(Bug::LostLogUnnoticed) }
    }

    /// The thread: runs until the log stops or fails.
    pub(crate) fn run(&self) {
        let mut looks = 0u32;
        while self.wait() {
            if self.blind {
                continue;
            }
            looks = looks.wrapping_add(1);
            let looked = self.device.look(looks.is_multiple_of(WATCH_CONTENTS_EVERY));
            // A half of a mirror that is found lost is the checkpoint thread's business.
            let mut state = self.core.state.lock();
            self.core.look_for_loss(&mut state);
            drop(state);
            if let Err(why) = looked.and_then(|()| self.checkpoint.look()) {
                if !self.core.state.lock().dead() {
                    self.checkpoint.lost(&why);
                    self.core.fail(&why);
                }
                return;
            }
        }
    }

    /// Waits for the next look; false: there is none.
    fn wait(&self) -> bool {
        let until = Instant::now() + WATCH_EVERY;
        let mut state = self.core.state.lock();
        while !state.dead() {
            if self.core.watcher.wait_until(&mut state, until).timed_out() {
                return !state.dead();
            }
        }
        false
    }
}
