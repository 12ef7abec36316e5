//! A COMPOUND as received.

use super::context::InSession;
use crate::exports::Caller;
use crate::looks::Looks;
use crate::shared::Shared;
use crate::state::Principal;
use crate::state::drc::CallKey;
use crate::state::sessions::ConnId;
use bytes::Bytes;
use landfast_nfs::v4::CompoundArgs;
use landfast_nfs::v4::res::SequenceRes;
use landfast_rpc::ConnInfo;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Request {
    pub(crate) conn: ConnId,
    /// The same connection, to see whether it is still open.
    pub(crate) reply_conn: Arc<ConnInfo>,
    pub(crate) principal: Principal,
    pub(crate) caller: Caller,
    pub(crate) args: CompoundArgs,
    /// Its key in the duplicate request cache, if its reply is kept there (NFSv4.0).
    pub(crate) key: Option<CallKey>,
    /// Bytes of the request, RPC header included.
    pub(crate) bytes: usize,
    /// Digest of caller and operations after the SEQUENCE.
    pub(crate) fingerprint: u64,
    pub(crate) parked: Parked,
}

/// What SEQUENCE decides.
pub(super) enum Sequenced {
    /// Run the rest. The limits are of the reply, and of a kept reply.
    New {
        res: SequenceRes,
        max_response: u32,
        max_cached: u32,
    },
    Replay(Bytes),
    Uncached(SequenceRes),
}

/// A request that waits until a delegation is no longer in its way. It has its slot, and has done nothing yet.
#[derive(Default)]
pub(crate) struct Parked {
    begun: Mutex<Option<(InSession, Sequenced, Looks)>>,
    /// It has waited long enough.
    over: AtomicBool,
}

impl Parked {
    pub(super) fn put(&self, session: InSession, begun: Sequenced, looks: Looks) {
        *self.begun.lock() = Some((session, begun, looks));
    }

    /// Whether it still has to wait.
    pub(crate) fn still_waits(&self, sh: &Shared) -> bool {
        let mut parked = self.begun.lock();
        parked.as_mut().is_some_and(|(_, _, looks)| looks.still_waits(&sh.state()))
    }

    pub(super) fn take(&self) -> Option<(InSession, Sequenced, Looks)> {
        self.begun.lock().take()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Makes the next run the last. Returns whether there has to be one, since it has a slot.
    pub(crate) fn ends(&self) -> bool {
        !self.over.swap(true, Ordering::AcqRel) && self.begun.lock().is_some()
    }
}
