//! Executes COMPOUNDs on a server of NFS version 3, so that code for NFSv4 runs there.
//!
//! Each operation becomes procedures of version 3 that do the same (RFC 1813). The COMPOUND stops at the first operation that fails,
//! with its status; the numbers of `nfsstat3` are those of `nfsstat4`. COMPOUNDs run concurrently over several connections, but the
//! operations of one run one after another. So [`crate::fs`] puts one item into each.
//!
//! | operation | procedures |
//! |---|---|
//! | PUTROOTFH, LOOKUP down to an export | MNT of the path so far (RFC 1813 section 5.2.1) |
//! | LOOKUP, LOOKUPP | LOOKUP; its attributes serve a GETATTR behind it |
//! | OPEN | CREATE or LOOKUP; there are no opens, so CLOSE does nothing and every stateid is as good |
//! | CREATE | MKDIR, SYMLINK, MKNOD |
//! | REMOVE | REMOVE; RMDIR when the server says that it is a directory |
//! | READDIR | READDIRPLUS; READDIR and LOOKUP where the server has no such procedure |
//! | VERIFY, NVERIFY | GETATTR |
//! | LOCK, LOCKT, LOCKU | NM_LOCK, TEST, UNLOCK of the Network Lock Manager; see `locks` |
//!
//! OPEN by handle (CLAIM_FH) is done without a call.
//!
//! A call whose reply is lost is sent again under its transaction ID, so that the server's duplicate request cache can answer
//! (RFC 1813 section 4.5). If the server has lost its cache, that reply may be of a second execution. Then the client finds out what
//! happened, or the outcome is unknown:
//!
//! | procedure, sent again | status | outcome |
//! |---|---|---|
//! | REMOVE, RMDIR | NOENT | done: the name is gone |
//! | LINK | EXIST | done if the name leads to the file |
//! | CREATE (GUARDED), MKDIR, SYMLINK, MKNOD | EXIST | unknown |
//! | RENAME | NOENT | unknown |

mod beside;
mod convert;
mod exec;
mod locks;
mod stop;
mod wire;

use bytes::Bytes;
use landfast_nfs::v4::CompoundRes;

use crate::compound::decode_ops;
use crate::error::SessionError;
use crate::limits;
use crate::options::{SessionLimits, SessionOptions};
use crate::peer::Peer;
use exec::Exec;
use wire::Wire;

pub(crate) struct Client {
    wire: Wire,
}

impl Client {
    pub(crate) async fn connect(options: SessionOptions) -> Result<Client, SessionError> {
        Ok(Client { wire: Wire::connect(options).await? })
    }

    /// Executes `count` encoded operations.
    pub(crate) async fn compound(&self, ops: Bytes, count: usize) -> Result<CompoundRes, SessionError> {
        Exec::new(&self.wire).run(decode_ops(ops, count)?).await
    }

    pub(crate) fn limits(&self) -> SessionLimits {
        SessionLimits { slots: limits::CALLS_IN_FLIGHT_MAX, ..SessionLimits::ASK }
    }

    pub(crate) fn peer(&self) -> &Peer {
        self.wire.peer()
    }

    pub(crate) async fn destroy(&self) {
        self.wire.close().await;
    }
}
