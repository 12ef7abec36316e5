//! A COMPOUND as received.

use super::context::InSession;
use crate::exports::Caller;
use crate::limits;
use crate::looks::Looks;
use crate::shared::Shared;
use crate::state::Principal;
use crate::state::drc::CallKey;
use crate::state::sessions::ConnId;
use bytes::Bytes;
use landfast_nfs::v4::CompoundArgs;
use landfast_nfs::v4::res::SequenceRes;
use landfast_rpc::ConnInfo;
use landfast_xdr::Reader;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) conn: ConnId,
    /// The same connection, to see whether it is still open.
    pub(crate) reply_conn: Arc<ConnInfo>,
    pub(crate) principal: Principal,
    pub(crate) caller: Caller,
    /// With [`Request::undecoded`] only the first operation.
    pub(crate) args: CompoundArgs,
    /// The arguments as received, if they have more than [`limits::OPS_KEPT_DECODED`] operations.
    pub(crate) undecoded: Option<Bytes>,
    /// Its key in the duplicate request cache, if its reply is kept there (NFSv4.0).
    pub(crate) key: Option<CallKey>,
    /// Bytes of the request, RPC header included.
    pub(crate) bytes: usize,
    /// Digest of caller and operations after the SEQUENCE.
    pub(crate) fingerprint: u64,
    pub(crate) parked: Arc<Parked>,
}

impl Request {
    /// The request with all its operations. They are decoded for each run and not kept while the request waits: some take 44 times the
    /// memory that they took on the wire. `None`: they do not decode.
    pub(super) fn decoded(&self) -> Option<Request> {
        let body = self.undecoded.clone()?;
        let args = CompoundArgs::decode_limited(&mut Reader::new(body), limits::OPS_MAX).ok()?;
        Some(Request { args, undecoded: None, ..self.clone() })
    }
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
