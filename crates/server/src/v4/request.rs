//! A COMPOUND as received.

use crate::exports::Caller;
use crate::state::Principal;
use crate::state::drc::CallKey;
use crate::state::sessions::ConnId;
use landfast_nfs::v4::CompoundArgs;
use landfast_rpc::ConnInfo;
use std::sync::Arc;

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
}
