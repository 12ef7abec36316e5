//! An NFSv4.1 or 4.2 session of one slot, and COMPOUNDs in the shapes that Linux gives them.

use super::wire::Wire;
use crate::error::{Error, Result};
use crate::limits::{
    RETRY_WAIT, RETRY_WAIT_MAX, SERIAL_OPS_MAX, SERIAL_REPLY_BYTES_MAX, SERIAL_WRITE_BYTES_MAX,
};
use landfast_nfs::v4::args::{
    CallbackSecParms, CreateSessionArgs, ExchangeIdArgs, OpenArgs, OpenHow, SequenceArgs, StateProtectArgs,
};
use landfast_nfs::v4::{
    ArgOp, ChannelAttrs, ClientOwner, CompoundArgs, CompoundRes, FileHandle, NfsStat, Opaque1024,
    PROC_COMPOUND, ResBody, ResOp, SessionId, StableHow, flags,
};
use landfast_rpc::{AuthSys, Credential};
use landfast_xdr::{Bytes, Decode};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// How to connect.
#[derive(Debug, Clone)]
pub struct Connect {
    /// The server, or the emulated link to it.
    pub addr: SocketAddr,
    /// Name of this client; two clients with one name take each other's state away.
    pub owner: String,
    /// Minor version, 1 or 2.
    pub minor: u32,
    /// Caller's user and group.
    pub ids: (u32, u32),
    /// Slots that take turns; each remembers its last request.
    pub slots: u32,
}

impl Connect {
    /// NFSv4.2 as root.
    pub fn new(addr: SocketAddr, owner: impl Into<String>) -> Self {
        Connect { addr, owner: owner.into(), minor: 2, ids: (0, 0), slots: 1 }
    }
}

/// What a client sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// COMPOUNDs.
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
    /// The whole COMPOUND.
    pub args: CompoundArgs,
    /// Its results as they came; none when the connection broke first, or when it failed.
    pub reply: Option<Bytes>,
}

impl Sent {
    /// Whether a repetition must find the first reply: all that changes something, but COMMIT, which may be executed
    /// again, and unstable writes, whose effect is in memory only.
    pub fn is_kept(&self) -> bool {
        self.args.ops.iter().any(|op| match op {
            ArgOp::Commit(_) => false,
            ArgOp::Write(w) => w.stable != StableHow::Unstable,
            op => modifies(op),
        })
    }
}

/// One slot: its number goes up by one with each request.
#[derive(Debug, Clone, Default)]
struct Slot {
    sequenceid: u32,
    last: Option<Sent>,
}

/// A session with one request under way at a time.
pub struct Session {
    wire: Wire,
    minor: u32,
    clientid: u64,
    sessionid: SessionId,
    slots: Vec<Slot>,
    /// The slot whose turn it was.
    turn: usize,
    persistent: bool,
    write_max: usize,
    counts: Counts,
}

/// An operation's failure.
fn refused(op: &ResOp) -> Error {
    let name = op.op.name().map_or_else(|| op.op.0.to_string(), str::to_owned);
    Error::Nfs { op: name, status: op.status }
}

fn unexpected(what: &str) -> Error {
    Error::Protocol(format!("the server's reply has no {what}"))
}

impl Session {
    /// Connects, makes itself known, makes a session (persistent, if the server grants it) and says
    /// that it has nothing to reclaim.
    ///
    /// # Errors
    /// No connection, or the server refuses.
    pub fn connect(to: &Connect) -> Result<Self> {
        let sys = AuthSys {
            stamp: 0,
            machine_name: to.owner.clone().into_bytes(),
            uid: to.ids.0,
            gid: to.ids.1,
            gids: Vec::new(),
        };
        let cred = Credential::Sys(Arc::new(sys)).to_opaque();
        let wire = Wire::connect(to.addr, cred)
            .map_err(|source| Error::Lost { what: format!("connect to {}", to.addr), source })?;
        let mut s = Session {
            wire,
            minor: to.minor,
            clientid: 0,
            sessionid: [0; 16],
            slots: vec![Slot::default(); to.slots.max(1) as usize],
            turn: 0,
            persistent: false,
            write_max: 0,
            counts: Counts::default(),
        };
        let mut sequence = s.exchange_id(&to.owner)?;
        s.create_session(&mut sequence)?;
        s.compound(vec![ArgOp::ReclaimComplete(false)])?;
        s.counts = Counts::default();
        Ok(s)
    }

    fn exchange_id(&mut self, owner: &str) -> Result<u32> {
        let args = ExchangeIdArgs {
            client_owner: ClientOwner {
                verifier: crate::clock::now_ns().to_be_bytes(),
                owner_id: Opaque1024(Bytes::copy_from_slice(owner.as_bytes())),
            },
            flags: 0,
            state_protect: StateProtectArgs::None,
            client_impl_id: Vec::new(),
        };
        match self.call(vec![ArgOp::ExchangeId(args)])?.pop().map(|r| r.body) {
            Some(ResBody::ExchangeId(r)) => {
                self.clientid = r.clientid;
                Ok(r.sequenceid)
            }
            _ => Err(unexpected("EXCHANGE_ID")),
        }
    }

    fn create_session(&mut self, sequence: &mut u32) -> Result<()> {
        let fore = ChannelAttrs {
            max_request_size: (SERIAL_WRITE_BYTES_MAX + 4096) as u32,
            max_response_size: SERIAL_REPLY_BYTES_MAX as u32,
            max_response_size_cached: 4096,
            max_operations: SERIAL_OPS_MAX,
            max_requests: self.slots.len() as u32,
            ..ChannelAttrs::default()
        };
        let back = ChannelAttrs {
            max_request_size: 4096,
            max_response_size: 4096,
            max_operations: 2,
            max_requests: 1,
            ..ChannelAttrs::default()
        };
        let args = CreateSessionArgs {
            clientid: self.clientid,
            sequence: *sequence,
            flags: flags::CREATE_SESSION4_FLAG_PERSIST,
            fore_chan_attrs: fore,
            back_chan_attrs: back,
            cb_program: 0,
            sec_parms: vec![CallbackSecParms::None],
        };
        *sequence += 1;
        match self.call(vec![ArgOp::CreateSession(args)])?.pop().map(|r| r.body) {
            Some(ResBody::CreateSession(r)) => {
                self.sessionid = r.sessionid;
                self.persistent = r.flags & flags::CREATE_SESSION4_FLAG_PERSIST != 0;
                let room = (r.fore_chan_attrs.max_request_size as usize).saturating_sub(4096);
                self.write_max = room.clamp(4096, SERIAL_WRITE_BYTES_MAX);
                self.slots.truncate(r.fore_chan_attrs.max_requests.max(1) as usize);
                Ok(())
            }
            _ => Err(unexpected("CREATE_SESSION")),
        }
    }

    /// Sends a COMPOUND as it is; the results of all its operations, or the first failure.
    fn call(&mut self, ops: Vec<ArgOp>) -> Result<Vec<ResOp>> {
        let args = self.args(ops);
        results(self.send(&args)?)
    }

    fn args(&self, ops: Vec<ArgOp>) -> CompoundArgs {
        CompoundArgs { tag: Bytes::new(), minor_version: self.minor, announced: ops.len() as u32, ops }
    }

    fn send(&mut self, args: &CompoundArgs) -> Result<Bytes> {
        let lost = |source| Error::Lost { what: "COMPOUND".into(), source };
        self.wire.call(PROC_COMPOUND, args).map_err(lost)
    }

    /// Connects to where the server is now, and goes on with the same session.
    ///
    /// # Errors
    /// No connection.
    pub fn reconnect(&mut self, addr: SocketAddr) -> Result<()> {
        let lost = |source| Error::Lost { what: format!("connect to {addr}"), source };
        self.wire = self.wire.again(addr).map_err(lost)?;
        Ok(())
    }

    /// The last request of each slot that was used.
    pub fn last_requests(&self) -> Vec<Sent> {
        self.slots.iter().filter_map(|s| s.last.clone()).collect()
    }

    /// Sends a request once more as it was: same session, slot and number. Returns the results as they come.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn repeat(&mut self, sent: &Sent) -> Result<Bytes> {
        self.send(&sent.args)
    }

    /// Sends operations behind a SEQUENCE; returns the results without that of SEQUENCE. Waits and
    /// tries again while the server says DELAY or GRACE.
    ///
    /// # Errors
    /// [`Error::Nfs`] with the operation that failed; [`Error::Lost`] when no reply came: the
    /// outcome is then unknown.
    pub fn compound(&mut self, ops: Vec<ArgOp>) -> Result<Vec<ResOp>> {
        let since = Instant::now();
        let mut waited: Option<Error> = None;
        loop {
            self.turn = (self.turn + 1) % self.slots.len();
            let (turn, highest) = (self.turn, self.slots.len() - 1);
            let slot = &mut self.slots[turn];
            slot.sequenceid = slot.sequenceid.wrapping_add(1);
            let sequence = SequenceArgs {
                sessionid: self.sessionid,
                sequenceid: slot.sequenceid,
                slotid: turn as u32,
                highest_slotid: highest as u32,
                cachethis: ops.iter().any(modifies),
            };
            let mut all = Vec::with_capacity(ops.len() + 1);
            all.push(ArgOp::Sequence(sequence));
            all.extend_from_slice(&ops);
            self.counts.rpcs += 1;
            self.counts.modifying_rpcs += u64::from(ops.iter().any(modifies));
            let args = self.args(all);
            let reply = self.send(&args);
            let first = reply.as_ref().ok().cloned();
            let outcome = reply.and_then(results);
            // An answer that promises nothing is as good as none.
            self.slots[turn].last = Some(Sent { args, reply: first.filter(|_| outcome.is_ok()) });
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
                    // An operation that was done before what was to come later is done twice.
                    let before = waited.map(|e| format!(", again after {e}")).unwrap_or_default();
                    return Err(Error::Nfs { op: op + &before, status });
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The handle of `path` below the server's root; one LOOKUP for each name, in one COMPOUND.
    ///
    /// # Errors
    /// As [`Session::compound`].
    pub fn walk(&mut self, path: &str) -> Result<FileHandle> {
        let names = path.split('/').filter(|n| !n.is_empty());
        let mut ops = vec![ArgOp::Putrootfh];
        ops.extend(names.map(|n| ArgOp::Lookup(Bytes::copy_from_slice(n.as_bytes()))));
        ops.push(ArgOp::Getfh);
        let results = self.compound(ops)?;
        Self::filehandle(&results)
    }

    /// The filehandle that a GETFH among `results` returned.
    ///
    /// # Errors
    /// When there is none.
    pub fn filehandle(results: &[ResOp]) -> Result<FileHandle> {
        let found = results.iter().find_map(|r| match &r.body {
            ResBody::Getfh(fh) => Some(fh.clone()),
            _ => None,
        });
        found.ok_or_else(|| unexpected("GETFH"))
    }

    /// Whether the server promised to keep the session over a restart.
    pub fn persistent(&self) -> bool {
        self.persistent
    }

    /// The client's number.
    pub fn clientid(&self) -> u64 {
        self.clientid
    }

    /// Largest WRITE, in bytes.
    pub fn write_max(&self) -> usize {
        self.write_max
    }

    /// What was sent since the session was made.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Gives the session and the client back to the server.
    ///
    /// # Errors
    /// As [`Session::compound`].
    pub fn close(mut self) -> Result<()> {
        self.call(vec![ArgOp::DestroySession(self.sessionid)])?;
        self.call(vec![ArgOp::DestroyClientid(self.clientid)]).map(drop)
    }
}

/// The results of all operations of a COMPOUND, or its first failure.
///
/// # Errors
/// [`Error::Nfs`]; [`Error::Protocol`] for what is no reply to a COMPOUND.
pub fn results(reply: Bytes) -> Result<Vec<ResOp>> {
    let res = CompoundRes::from_bytes(reply)
        .map_err(|e| Error::Protocol(format!("a reply that does not decode: {e}")))?;
    match res.results.last() {
        _ if res.status.is_ok() => Ok(res.results),
        Some(last) => Err(refused(last)),
        None => Err(Error::Nfs { op: "COMPOUND".into(), status: res.status }),
    }
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
