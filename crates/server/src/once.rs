//! The duplicate request cache as NFS versions 3 and 4.0 use it: a call without a session is executed once.

use crate::limits;
use crate::released::Released;
use crate::shared::Shared;
use crate::state::drc::{Begin, CallKey, Origin};
use bytes::Bytes;
use std::pin::pin;
use tokio::time::{Instant, timeout_at};

/// A call that is being executed, and is busy in the duplicate request cache. If this is dropped, a retry is a new call.
pub(crate) struct BusyCall<'a> {
    sh: &'a Shared,
    released: &'a Released,
    key: CallKey,
}

impl BusyCall<'_> {
    /// The reply may be sent, and sent again: it is durable, if it has to be.
    pub(crate) fn settle(self) {
        self.sh.state().drc.settle(&self.key);
    }
}

impl Drop for BusyCall<'_> {
    fn drop(&mut self) {
        // A settled entry is not forgotten.
        self.sh.state().drc.forget(&self.key);
        self.released.of(&self.key).notify_waiters();
    }
}

/// What to do with a call whose reply is kept.
pub(crate) enum Once<'a> {
    Execute(BusyCall<'a>),
    /// A retry: send this reply.
    Replay(Bytes),
    /// It has been in progress for too long: the client may retry.
    Busy,
}

/// Looks the call up in the duplicate request cache. A retry of a call in progress (its client has lost the connection)
/// waits for that call's reply, for at most [`limits::RETRY_WAIT`].
pub(crate) async fn ask<'a>(sh: &'a Shared, released: &'a Released, key: &CallKey, from: Origin) -> Once<'a> {
    let give_up = Instant::now() + limits::RETRY_WAIT;
    loop {
        // Registered before the look-up, so that no wake-up is missed.
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
