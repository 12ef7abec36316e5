//! Executes the COMPOUNDs of NFSv4.1 on a server of NFSv4.0 (RFC 7530), so that code for sessions runs without them.
//!
//! A COMPOUND is executed as one or more COMPOUNDs of version 4.0 ("legs"). Each leg starts at the filehandle where the one before it
//! ended. The differences, and how each is handled:
//!
//! | in NFSv4.1 | here |
//! |---|---|
//! | a slot makes the COMPOUND exactly once | the leg is sent again under its transaction id; see below |
//! | OPEN by any owner | an owner of its own for each OPEN under way, from a pool, with its number (RFC 7530 section 9.1.7) |
//! | an OPEN counts at once | OPEN_CONFIRM of an owner's first OPEN, in a leg behind (section 16.18) |
//! | READ, WRITE, SETATTR with the current stateid | the anonymous stateid; if the server refuses that, the open's own in the next leg |
//! | CLOSE of the current stateid | in the last leg, with the handle that GETFH gave: the answer is given before, since data that is stable needs no open |
//! | OPEN by handle (CLAIM_FH) | no open at all: the anonymous stateid |
//! | LOCK by any owner under any open | the number of the lock owner and, for its first lock, of the open's owner (section 16.10); an open by name |
//! | limits of the session | one leg is as long as servers are known to take, and shorter where RESOURCE says so |
//! | RECLAIM_COMPLETE: nothing is reclaimed, do not wait for it | SETCLIENTID of another instance of the client, with a verifier of its own, after a restart, and at the end where an open was held (sections 9.1.1, 16.33) |
//! | GRACE ends with RECLAIM_COMPLETE of the clients that were there | one request asks until it ends, and the others wait for that one |
//! | SEQUENCE renews the lease | RENEW, [`crate::limits::RENEWALS_PER_LEASE`] times a lease |
//!
//! Exactly once: a leg holds operations with an owner's number, which the server knows again by it, or operations that
//! change names, which its duplicate request cache knows again; never both, and a RENAME is the only one in its leg. Where a
//! restarted server knows neither: an OPEN that was sent before a new client ID was needed is unknown; so is EXIST for a
//! CREATE or LINK and NOENT for a RENAME that was sent again; a name that is gone when its REMOVE was sent again is removed.

mod client;
mod exec;
mod locking;
mod locks;
mod owners;
mod place;

use bytes::Bytes;
use landfast_nfs::v4::CompoundRes;

pub(crate) use client::Client;
use exec::Exec;

use crate::compound::decode_ops;
use crate::error::SessionError;

impl Client {
    /// Executes `count` encoded operations.
    pub(crate) async fn compound(&self, ops: Bytes, count: usize) -> Result<CompoundRes, SessionError> {
        Exec::new(self, decode_ops(ops, count)?).run().await
    }
}
