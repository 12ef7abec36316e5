//! The watch thread checks that the log is still there and unchanged.
//!
//! A log file that was unlinked, truncated or overwritten takes writes without an error, but the next start would find none
//! of them. So this thread asks the device and the owner several times a second ([`Device::look`], [`Checkpoint::look`]). If
//! something is lost, nothing more is acknowledged. If it is the log, the writer makes a new one ([`crate::renew`]). If that
//! fails, or if something else is lost, the owner makes durable what was acknowledged ([`Checkpoint::lost`]).

use std::sync::Arc;
use std::time::Instant;

use crate::core::Core;
use crate::device::Device;
use crate::faults::{self, Bug};
use crate::limits::{RENEW_WAIT_MAX, WATCH_CONTENTS_EVERY, WATCH_EVERY};
use crate::loss::RenewalStage;
use crate::owner::Checkpoint;

pub(crate) struct Watch {
    core: Arc<Core>,
    device: Arc<dyn Device>,
    checkpoint: Arc<dyn Checkpoint>,
    /// [`Bug::LostLogUnnoticed`] was chosen when the log was started.
    blind: bool,
}

enum Lost {
    /// The log; the writer has been told to make a new one.
    Log(String),
    /// Something that cannot be replaced.
    ForGood(String),
}

impl Watch {
    pub(crate) fn new(core: Arc<Core>, device: Arc<dyn Device>, checkpoint: Arc<dyn Checkpoint>) -> Watch {
        Watch { core, device, checkpoint, blind: faults::bug(Bug::LostLogUnnoticed) }
    }

    /// The thread: runs until the log stops or fails.
    pub(crate) fn run(&self) {
        let mut looks = 0u32;
        while self.wait() {
            looks = looks.wrapping_add(1);
            let why = match self.look(looks.is_multiple_of(WATCH_CONTENTS_EVERY)) {
                None => continue,
                Some(Lost::Log(_)) if self.await_renewal() => continue,
                Some(Lost::Log(why) | Lost::ForGood(why)) => why,
            };
            return self.give_up(&why);
        }
    }

    /// For simulations: does not wait for a new log.
    pub(crate) fn look_once(&self, contents: bool) -> Option<String> {
        match self.look(contents)? {
            Lost::Log(why) => Some(why),
            Lost::ForGood(why) => {
                self.give_up(&why);
                Some(why)
            }
        }
    }

    fn look(&self, contents: bool) -> Option<Lost> {
        // A log that is being replaced is not checked.
        if self.blind || self.core.state.lock().loss.is_some() {
            return None;
        }
        let looked = self.device.look(contents);
        // If half of a mirror is found lost, the checkpoint thread records that.
        let mut state = self.core.state.lock();
        self.core.look_for_loss(&mut state);
        drop(state);
        match (looked, self.checkpoint.look()) {
            (Ok(()), Ok(())) => None,
            (Err(why), Ok(())) if self.core.hold(&why) => Some(Lost::Log(why)),
            (Err(why), _) | (Ok(()), Err(why)) => Some(Lost::ForGood(why)),
        }
    }

    fn give_up(&self, why: &str) {
        if !self.core.state.lock().dead() {
            self.checkpoint.lost(why);
            self.core.fail(why);
        }
    }

    /// Waits until the writer has made a new log or has failed. `false`: it could not begin in time, because a write to the
    /// lost log or a transaction does not end.
    fn await_renewal(&self) -> bool {
        let until = Instant::now() + RENEW_WAIT_MAX;
        let mut state = self.core.state.lock();
        loop {
            if state.dead() {
                return true;
            }
            match &mut state.loss {
                None => return true,
                Some(loss) if loss.stage == RenewalStage::Noticed && Instant::now() >= until => {
                    loss.stage = RenewalStage::GivenUp;
                    return false;
                }
                Some(loss) if loss.stage == RenewalStage::Noticed => {
                    self.core.watcher.wait_until(&mut state, until);
                }
                Some(_) => self.core.watcher.wait(&mut state),
            }
        }
    }

    /// Waits until the next check is due; `false` when the log has stopped or failed.
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
