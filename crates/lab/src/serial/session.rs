//! An NFSv4.1 or 4.2 session whose slots take turns, one request in flight at a time. It counts what it sends and remembers the
//! last request of each slot, which a test repeats after a power cut.

use crate::error::{Error, Result};
use crate::limits::{RETRY_WAIT, RETRY_WAIT_MAX, SERIAL_OPS_MAX, SERIAL_PATIENCE, SERIAL_WRITE_BYTES_MAX};
use landfast_nfs::v4::args::{OpenArgs, OpenHow};
use landfast_nfs::v4::{ArgOp, CompoundArgs, FileHandle, NfsStat, ResOp, StableHow};
use landfast_rpc::message::OpaqueAuth;
use landfast_rpc::{AuthSys, Credential};
use landfast_verify::blocking::session as blocking;
use landfast_verify::blocking::session::filehandle;
use landfast_verify::blocking::wire::Wire;
use landfast_xdr::Bytes;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, Clone)]
pub struct Connect {
    /// The server, or the emulated link to it.
    pub addr: SocketAddr,
    /// Two clients with one name take each other's state away.
    pub owner: String,
    /// 1 or 2.
    pub minor: u32,
    /// Slots that take turns; each remembers its last request.
    pub slots: u32,
    /// Operations in a COMPOUND that are asked for.
    pub operations: u32,
}

impl Connect {
    /// NFSv4.2 as root.
    pub fn new(addr: SocketAddr, owner: impl Into<String>) -> Self {
        Connect { addr, owner: owner.into(), minor: 2, slots: 1, operations: SERIAL_OPS_MAX }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub rpcs: u64,
    /// COMPOUNDs with an operation that must be on stable storage before its reply.
    pub modifying_rpcs: u64,
}

impl Counts {
    /// What was sent since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts { rpcs: self.rpcs - before.rpcs, modifying_rpcs: self.modifying_rpcs - before.modifying_rpcs }
    }
}

/// A request that went out, and what came back.
#[derive(Debug, Clone)]
pub struct Sent {
    pub args: CompoundArgs,
    /// Its results as they came; none when the connection broke first, or when it failed.
    pub reply: Option<Bytes>,
}

impl Sent {
    /// Whether a repetition must get the first reply. That holds for every request that changes something, except
    /// COMMIT, which may be executed again, and unstable writes, whose effect is in memory only.
    pub fn is_kept(&self) -> bool {
        self.args.ops.iter().any(|op| match op {
            ArgOp::Commit(_) => false,
            ArgOp::Write(w) => w.stable != StableHow::Unstable,
            op => modifies(op),
        })
    }
}

/// A session with one request in flight at a time.
pub struct Session {
    inner: blocking::Session,
    last: Vec<Option<Sent>>,
    /// The slot of the last request.
    turn: usize,
    counts: Counts,
}

/// The credential of root on a machine of this name.
pub(crate) fn credential(machine_name: &str) -> OpaqueAuth {
    let machine_name = machine_name.as_bytes().to_vec();
    Credential::Sys(Arc::new(AuthSys { stamp: 0, machine_name, uid: 0, gid: 0, gids: Vec::new() }))
        .to_opaque()
}

impl Session {
    /// Connects, makes itself known, makes a session (persistent, if the server grants it) and says
    /// that it has nothing to reclaim.
    pub fn connect(to: &Connect) -> Result<Self> {
        let cred = credential(&to.owner);
        let wire = Wire::connect_as(to.addr, cred, 1, SERIAL_PATIENCE)?;
        let options = blocking::Options {
            operations: to.operations,
            slots: to.slots.max(1),
            request_bytes: (SERIAL_WRITE_BYTES_MAX + 4096) as u32,
            persistent: true,
            callbacks: None,
        };
        let inner = blocking::Session::start(wire, to.minor, to.owner.clone(), &options)?;
        let last = vec![None; inner.slots()];
        Ok(Session { inner, last, turn: 0, counts: Counts::default() })
    }

    /// Connects to where the server is now, and goes on with the same session.
    pub fn reconnect(&mut self, addr: SocketAddr) -> Result<()> {
        Ok(self.inner.wire().reconnect(addr)?)
    }

    /// The last request of each slot that was used.
    pub fn last_requests(&self) -> Vec<Sent> {
        self.last.iter().flatten().cloned().collect()
    }

    /// Sends a request once more as it was: same session, slot and number. Returns the results as they come.
    pub fn repeat(&mut self, sent: &Sent) -> Result<Bytes> {
        Ok(self.inner.send(&sent.args)?)
    }

    /// Sends operations behind a SEQUENCE; returns the results without that of SEQUENCE. Waits and
    /// tries again while the server says DELAY or GRACE.
    /// Errors: [`Error::Nfs`] with the operation that failed; [`Error::Lost`] when no reply came: the outcome is then
    /// unknown.
    pub fn compound(&mut self, ops: Vec<ArgOp>) -> Result<Vec<ResOp>> {
        let since = Instant::now();
        let mut waited: Option<Error> = None;
        loop {
            self.turn = (self.turn + 1) % self.last.len();
            let mut all = Vec::with_capacity(ops.len() + 1);
            all.extend(self.inner.next_in_slot(self.turn, ops.iter().any(modifies)));
            all.extend_from_slice(&ops);
            self.counts.rpcs += 1;
            self.counts.modifying_rpcs += u64::from(ops.iter().any(modifies));
            let args = self.inner.args(all);
            let reply = self.inner.send(&args).map_err(Error::from);
            let first = reply.as_ref().ok().cloned();
            let outcome = reply.and_then(results);
            // An answer that promises nothing is as good as none.
            self.last[self.turn] = Some(Sent { args, reply: first.filter(|_| outcome.is_ok()) });
            match outcome {
                Ok(mut results) => {
                    results.remove(0);
                    return Ok(results);
                }
                Err(e @ Error::Nfs { status: NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE, .. })
                    if since.elapsed() < RETRY_WAIT_MAX =>
                {
                    // RFC 8881 section 15.1.1.3: the client waits and tries again.
                    waited = Some(e);
                    std::thread::sleep(RETRY_WAIT);
                }
                Err(Error::Nfs { op, status }) => {
                    // The operations before the one that was delayed have been done twice.
                    let before = waited.map(|e| format!(", again after {e}")).unwrap_or_default();
                    return Err(Error::Nfs { op: op + &before, status });
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The handle of `path` below the server's root; one LOOKUP for each name, in one COMPOUND.
    pub fn walk(&mut self, path: &str) -> Result<FileHandle> {
        let names = path.split('/').filter(|n| !n.is_empty());
        let mut ops = vec![ArgOp::Putrootfh];
        ops.extend(names.map(|n| ArgOp::Lookup(Bytes::copy_from_slice(n.as_bytes()))));
        ops.push(ArgOp::Getfh);
        let results = self.compound(ops)?;
        Ok(filehandle(&results)?)
    }

    /// Whether the server promised to keep the session over a restart.
    pub fn persistent(&self) -> bool {
        self.inner.persistent()
    }

    pub fn clientid(&self) -> u64 {
        self.inner.clientid()
    }

    pub fn write_max(&self) -> usize {
        let request = self.inner.granted().map_or(0, |granted| granted.max_request_size as usize);
        request.saturating_sub(4096).clamp(4096, SERIAL_WRITE_BYTES_MAX)
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Gives the session and the client back to the server.
    pub fn close(mut self) -> Result<()> {
        Ok(self.inner.destroy()?)
    }
}

/// The results of all operations of a COMPOUND, or its first failure.
/// Errors: [`Error::Nfs`]; [`Error::Protocol`] for what is no reply to a COMPOUND.
pub fn results(reply: Bytes) -> Result<Vec<ResOp>> {
    Ok(blocking::results(reply)?)
}

/// Whether an operation must be on stable storage before its reply (RFC 8881 section 2.10.6: those
/// that change the filesystem; an UNSTABLE WRITE need not be, and is counted all the same).
fn modifies(op: &ArgOp) -> bool {
    matches!(
        op,
        ArgOp::Open(OpenArgs { openhow: OpenHow::Create(_), .. })
            | ArgOp::Create(_)
            | ArgOp::Write(_)
            | ArgOp::Setattr(_)
            | ArgOp::Commit(_)
            | ArgOp::Link(_)
            | ArgOp::Remove(_)
            | ArgOp::Rename(_)
            | ArgOp::Setxattr(_)
            | ArgOp::Removexattr(_)
    )
}
