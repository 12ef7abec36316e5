//! Calls without a session, executed once: the duplicate request cache as versions 3 and 4.0 use it.

use crate::limits;
use crate::released::Released;
use crate::shared::Shared;
use crate::state::drc::{Begin, CallKey, Origin};
use bytes::Bytes;
use std::pin::pin;
use tokio::time::{Instant, timeout_at};

/// A call that is busy in the duplicate request cache. Dropping it makes a retry a new call.
pub(crate) struct BusyCall<'a> {
    sh: &'a Shared,
    released: &'a Released,
    key: CallKey,
}

impl BusyCall<'_> {
    /// The reply is stable, if it has to be.
    pub(crate) fn settle(self) {
        self.sh.state().drc.settle(&self.key);
    }
}

impl Drop for BusyCall<'_> {
    fn drop(&mut self) {
        // What is settled stays.
        self.sh.state().drc.forget(&self.key);
        self.released.of(&self.key).notify_waiters();
    }
}

/// What becomes of a call whose reply is kept.
pub(crate) enum Once<'a> {
    Execute(BusyCall<'a>),
    Replay(Bytes),
    /// It has been worked on for too long: its sender may ask again.
    Busy,
}

/// Asks the duplicate request cache. A client that has lost its connection repeats what is still being worked on: it
/// gets the one reply when there is one.
pub(crate) async fn ask<'a>(sh: &'a Shared, released: &'a Released, key: &CallKey, from: Origin) -> Once<'a> {
    let give_up = Instant::now() + limits::RETRY_WAIT;
    loop {
        // Asked for before the cache, so that no release is missed.
        let mut answered = pin!(released.of(key).notified());
        answered.as_mut().enable();
        let begun = sh.state().drc.begin(key, from);
        match begun {
            Begin::New => return Once::Execute(BusyCall { sh, released, key: key.clone() }),
            Begin::Replay(reply) => return Once::Replay(reply),
            Begin::Busy => {}
        }
        if timeout_at(give_up, answered).await.is_err() {
            return Once::Busy;
        }
    }
}
