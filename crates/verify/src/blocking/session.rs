//! The state that a server keeps of one client of NFSv4: the client id of version 4.0 (RFC 7530), the session of 4.1 and 4.2
//! (RFC 8881); and COMPOUNDs that are sent with it.

use super::nfs::{patiently, verifier};
use super::wire::{Procedure, Wire};
use crate::error::{Error, Result};
use crate::limits::REPLY_BYTES_MAX;
use landfast_nfs::v4::args::{
    CallbackSecParms, CreateSessionArgs, ExchangeIdArgs, SequenceArgs, StateProtectArgs,
};
use landfast_nfs::v4::v40::{
    CALLBACKS, CallbackClient, ClientAddr, NfsClientId, SetclientidArgs, SetclientidConfirmArgs,
};
use landfast_nfs::v4::{
    ArgOp, AttrValues, ChannelAttrs, ClientOwner, CompoundArgs, CompoundRes, FileHandle, NfsStat, OpNum,
    Opaque1024, PROC_COMPOUND, ResBody, ResOp, SessionId, VERSION, flags,
};
use landfast_rpc::rpcbind::universal;
use landfast_xdr::{Bytes, Decode};
use std::net::{Ipv4Addr, SocketAddr};

/// The result of the first operation of this kind among the results of a COMPOUND.
#[macro_export]
macro_rules! result_of {
    ($results:expr, $name:literal, $body:ident) => {
        $crate::blocking::session::find($results, $name, |body| match body {
            landfast_nfs::v4::ResBody::$body(result) => Some(result),
            _ => None,
        })
    };
}
pub use result_of;

/// What a client asks of the server when it starts.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Operations in a COMPOUND.
    pub operations: u32,
    /// Requests in flight.
    pub slots: u32,
    pub request_bytes: u32,
    /// Ask for a session that survives a restart of the server (RFC 8881 section 2.10.6.5).
    pub persistent: bool,
    /// A port of this machine where callbacks of version 4.0 are answered; without one nobody listens.
    pub callbacks: Option<u16>,
}

/// A client id of version 4.0, or a session of 4.1 and 4.2, with its connection.
pub struct Session {
    wire: Wire,
    minor: u32,
    clientid: u64,
    sessionid: SessionId,
    /// The fore channel as the server granted it (versions 4.1 and 4.2).
    granted: Option<ChannelAttrs>,
    persistent: bool,
    /// The last sequence id of each slot.
    slots: Vec<u32>,
    /// The open owner's next sequence id (version 4.0).
    owner_seq: u32,
}

impl Session {
    /// Makes the client known to the server. Two clients with the same `owner_id` take each other's state away.
    /// Errors: The server refuses, or does not answer.
    pub fn start(wire: Wire, minor: u32, owner_id: String, options: &Options) -> Result<Session> {
        let mut session = Session {
            wire,
            minor,
            clientid: 0,
            sessionid: [0; 16],
            granted: None,
            persistent: false,
            slots: vec![0],
            owner_seq: 0,
        };
        let (id, verifier) = (Opaque1024(Bytes::from(owner_id)), verifier()?);
        if minor == 0 {
            session.set_clientid(options, verifier, id)?;
        } else {
            session.create_session(options, verifier, id)?;
        }
        Ok(session)
    }

    /// RFC 7530 section 16.33.5.
    fn set_clientid(&mut self, options: &Options, verifier: [u8; 8], id: Opaque1024) -> Result<()> {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let here = options.callbacks.map(|port| Ok(SocketAddr::new(self.wire.local_ip()?, port)));
        let here = here.transpose()?.unwrap_or(nowhere);
        let netid: &[u8] = if here.is_ipv6() { b"tcp6" } else { b"tcp" };
        let location = ClientAddr { netid: Bytes::from_static(netid), addr: Bytes::from(universal(here)) };
        let args = SetclientidArgs {
            client: NfsClientId { verifier, id },
            callback: CallbackClient { program: CALLBACKS, location },
            callback_ident: 0,
        };
        let results = patiently(|| self.raw(vec![ArgOp::Setclientid(args.clone())]))?;
        let ok = result_of!(results, "SETCLIENTID", Setclientid)?;
        self.clientid = ok.clientid;
        let confirm = SetclientidConfirmArgs { clientid: ok.clientid, confirm: ok.confirm };
        patiently(|| self.raw(vec![ArgOp::SetclientidConfirm(confirm.clone())])).map(drop)
    }

    /// RFC 8881 sections 18.35, 18.36, 18.51.
    fn create_session(&mut self, options: &Options, verifier: [u8; 8], owner_id: Opaque1024) -> Result<()> {
        let args = ExchangeIdArgs {
            client_owner: ClientOwner { verifier, owner_id },
            flags: flags::EXCHGID4_FLAG_USE_NON_PNFS,
            state_protect: StateProtectArgs::None,
            client_impl_id: Vec::new(),
        };
        let results = patiently(|| self.raw(vec![ArgOp::ExchangeId(args.clone())]))?;
        let id = result_of!(results, "EXCHANGE_ID", ExchangeId)?;
        self.clientid = id.clientid;
        let fore = ChannelAttrs {
            max_request_size: options.request_bytes,
            max_response_size: REPLY_BYTES_MAX as u32,
            max_response_size_cached: 4096,
            max_operations: options.operations,
            max_requests: options.slots,
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
            clientid: id.clientid,
            sequence: id.sequenceid,
            flags: if options.persistent { flags::CREATE_SESSION4_FLAG_PERSIST } else { 0 },
            fore_chan_attrs: fore,
            back_chan_attrs: back,
            cb_program: CALLBACKS,
            sec_parms: vec![CallbackSecParms::None],
        };
        let results = patiently(|| self.raw(vec![ArgOp::CreateSession(args.clone())]))?;
        let session = result_of!(results, "CREATE_SESSION", CreateSession)?;
        self.sessionid = session.sessionid;
        self.persistent = session.flags & flags::CREATE_SESSION4_FLAG_PERSIST != 0;
        let granted = session.fore_chan_attrs;
        self.slots = vec![0; granted.max_requests.clamp(1, options.slots.max(1)) as usize];
        self.granted = Some(granted);
        patiently(|| self.compound(vec![ArgOp::ReclaimComplete(false)])).map(drop)
    }

    /// Sends operations as they are. Returns the results of all of them, or the failure of the one at which the server stopped.
    fn raw(&mut self, ops: Vec<ArgOp>) -> Result<Vec<ResOp>> {
        let seq_ids: Vec<OpNum> = ops.iter().map(ArgOp::op).filter(|op| has_seqid(*op)).collect();
        let res = decoded(self.send(&self.args(ops))?)?;
        let counted =
            res.results.iter().filter(|r| seq_ids.contains(&r.op) && r.status.advances_seqid()).count();
        self.owner_seq = self.owner_seq.wrapping_add(counted as u32);
        all_done(res)
    }

    pub fn args(&self, ops: Vec<ArgOp>) -> CompoundArgs {
        CompoundArgs { tag: Bytes::new(), minor_version: self.minor, announced: ops.len() as u32, ops }
    }

    /// Sends a COMPOUND as it is. Returns its results as they came; [`results`] decodes them.
    /// Errors: [`Error::Gone`]; [`Error::Refused`] when the RPC itself is refused.
    pub fn send(&mut self, args: &CompoundArgs) -> Result<Bytes> {
        let to = Procedure { prog: landfast_nfs::PROGRAM, vers: VERSION, proc: PROC_COMPOUND };
        self.wire.call(to, args)
    }

    /// The connection, for calls that are made beside this client's own.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    pub fn minor(&self) -> u32 {
        self.minor
    }

    pub fn clientid(&self) -> u64 {
        self.clientid
    }

    /// What the server granted of what was asked for; `None` in version 4.0.
    pub fn granted(&self) -> Option<&ChannelAttrs> {
        self.granted.as_ref()
    }

    /// Whether the server promised to keep the session over a restart.
    pub fn persistent(&self) -> bool {
        self.persistent
    }

    /// How many requests may be in flight.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The open owner's next sequence id (version 4.0).
    pub(super) fn owner_seq(&self) -> u32 {
        self.owner_seq
    }

    /// The next SEQUENCE of a slot that has no call in flight; `None` in version 4.0. [`Session::compound`] uses slot 0.
    pub fn sequence(&mut self, slot: usize) -> Option<ArgOp> {
        // No call is ever sent again, so the server need not keep the reply.
        (self.minor > 0).then(|| self.next_in_slot(slot, false)).flatten()
    }

    /// The next SEQUENCE of a slot. With `cachethis` the server keeps the reply for a retry.
    pub fn next_in_slot(&mut self, slot: usize, cachethis: bool) -> Option<ArgOp> {
        let highest_slotid = self.slots.len().saturating_sub(1) as u32;
        let last = self.slots.get_mut(slot)?;
        *last = last.wrapping_add(1);
        let (sessionid, sequenceid, slotid) = (self.sessionid, *last, slot as u32);
        Some(ArgOp::Sequence(SequenceArgs { sessionid, sequenceid, slotid, highest_slotid, cachethis }))
    }

    /// Takes a slot's last sequence id back: the SEQUENCE itself failed, so the server has not counted it (RFC 8881 section 18.46.3).
    pub fn not_counted(&mut self, slot: usize) {
        if let Some(last) = self.slots.get_mut(slot) {
            *last = last.wrapping_sub(1);
        }
    }

    /// Sends operations, behind a SEQUENCE where there are sessions. Returns the results without that of SEQUENCE.
    /// Errors: The failure of the operation at which the server stopped, or no answer.
    pub fn compound(&mut self, ops: Vec<ArgOp>) -> Result<Vec<ResOp>> {
        if self.minor == 0 {
            return self.raw(ops);
        }
        let mut all: Vec<ArgOp> = self.sequence(0).into_iter().collect();
        all.extend(ops);
        let mut results = self.raw(all).inspect_err(|e| {
            if matches!(e, Error::Refused { op, .. } if op == "SEQUENCE") {
                self.not_counted(0);
            }
        })?;
        if !results.is_empty() {
            results.remove(0);
        }
        Ok(results)
    }

    /// Gives session and client id back (versions 4.1 and 4.2): a client that never comes back would keep the next server in
    /// its grace period. If the session is refused, the client id is given back all the same.
    /// Errors: As [`Session::compound`]; of two failures the first.
    pub fn destroy(&mut self) -> Result<()> {
        if self.minor == 0 {
            return Ok(());
        }
        let session = self.raw(vec![ArgOp::DestroySession(self.sessionid)]);
        let client = self.raw(vec![ArgOp::DestroyClientid(self.clientid)]);
        session.and(client).map(drop)
    }
}

/// Operations of an open owner in version 4.0 (RFC 7530 section 9.1.7).
fn has_seqid(op: OpNum) -> bool {
    matches!(op, OpNum::OPEN | OpNum::CLOSE | OpNum::OPEN_CONFIRM)
}

fn decoded(reply: Bytes) -> Result<CompoundRes> {
    CompoundRes::from_bytes(reply).map_err(|e| Error::Nonsense(e.to_string()))
}

fn all_done(res: CompoundRes) -> Result<Vec<ResOp>> {
    match res.results.last() {
        _ if res.status.is_ok() => Ok(res.results),
        Some(last) => Err(refused(last.op, last.status)),
        None => Err(refused(OpNum::ILLEGAL, res.status)),
    }
}

/// The results of all operations of a COMPOUND, or its first failure.
/// Errors: [`Error::Refused`]; [`Error::Nonsense`] for what is no reply to a COMPOUND.
pub fn results(reply: Bytes) -> Result<Vec<ResOp>> {
    all_done(decoded(reply)?)
}

/// The error of an operation that failed.
pub fn refused(op: OpNum, status: NfsStat) -> Error {
    // No operation at all: the COMPOUND as a whole.
    let name = if op == OpNum::ILLEGAL { Some("COMPOUND") } else { op.name() };
    let op = name.map_or_else(|| op.0.to_string(), str::to_owned);
    Error::refused(op, status.0, status.to_string())
}

/// The result of the first operation that `pick` takes; `what` names it for the error.
/// Errors: [`Error::Nonsense`]: there is none.
pub fn find<T>(results: Vec<ResOp>, what: &str, pick: impl Fn(ResBody) -> Option<T>) -> Result<T> {
    results.into_iter().find_map(|r| pick(r.body)).ok_or_else(|| missing(what))
}

fn missing(what: &str) -> Error {
    Error::Nonsense(format!("no result of {what}"))
}

/// The handle that a GETFH among `results` returned.
/// Errors: [`Error::Nonsense`]: there is none.
pub fn filehandle(results: &[ResOp]) -> Result<FileHandle> {
    let found = results.iter().find_map(|r| match &r.body {
        ResBody::Getfh(fh) => Some(fh.clone()),
        _ => None,
    });
    found.ok_or_else(|| missing("GETFH"))
}

/// The attributes that a GETATTR among `results` returned.
/// Errors: [`Error::Nonsense`]: there are none, or they do not decode.
pub fn attributes(results: &[ResOp]) -> Result<AttrValues> {
    let found = results.iter().find_map(|r| match &r.body {
        ResBody::Getattr(fattr) => Some(fattr),
        _ => None,
    });
    AttrValues::from_fattr(found.ok_or_else(|| missing("GETATTR"))?)
        .map_err(|_| Error::Nonsense("attributes that do not decode".into()))
}
