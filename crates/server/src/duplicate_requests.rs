//! The duplicate request cache as NFS versions 3 and 4.0 use it: a call without a session is executed once.

use crate::limits;
use crate::shared::Shared;
use crate::state::drc::{Begin, CallKey, Origin};
use crate::wakeups::Wakeups;
use bytes::Bytes;
use std::pin::pin;
use tokio::time::{Instant, timeout_at};

/// A call that is being executed, and is busy in the duplicate request cache. If this is dropped, a retry is a new call.
pub(crate) struct BusyCall<'a> {
    sh: &'a Shared,
    wakeups: &'a Wakeups,
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
        self.wakeups.of(&self.key).notify_waiters();
    }
}

/// What to do with a call whose reply is kept.
pub(crate) enum CallDecision<'a> {
    Execute(BusyCall<'a>),
    /// A retry: send this reply.
    Replay(Bytes),
    /// It has been in progress for too long: the client may retry.
    Busy,
}

/// Looks the call up in the duplicate request cache. A retry of a call in progress (its client has lost the connection)
/// waits for that call's reply, for at most [`limits::RETRY_WAIT`].
pub(crate) async fn look_up<'a>(
    sh: &'a Shared,
    wakeups: &'a Wakeups,
    key: &CallKey,
    from: Origin,
) -> CallDecision<'a> {
    let give_up = Instant::now() + limits::RETRY_WAIT;
    loop {
        // Registered before the look-up, so that no wake-up is missed.
        let mut answered = pin!(wakeups.of(key).notified());
        answered.as_mut().enable();
        let begun = sh.state().drc.begin(key, from);
        match begun {
            Begin::New => return CallDecision::Execute(BusyCall { sh, wakeups, key: key.clone() }),
            Begin::Replay(reply) => return CallDecision::Replay(reply),
            Begin::Busy => {}
        }
        if timeout_at(give_up, answered).await.is_err() {
            return CallDecision::Busy;
        }
    }
}
