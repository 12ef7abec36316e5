//! Making a client ID and a session: EXCHANGE_ID, CREATE_SESSION, RECLAIM_COMPLETE,
//! BIND_CONN_TO_SESSION (RFC 8881 sections 18.35, 18.36, 18.51, 18.34).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::args::{
    BindConnToSessionArgs, CallbackSecParms, CreateSessionArgs, ExchangeIdArgs, SequenceArgs,
    StateProtectArgs,
};
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::flags;
use landfast_nfs::v4::res::{CreateSessionRes, ExchangeIdRes};
use landfast_nfs::v4::{
    ArgOp, ChannelAttrs, ClientOwner, CompoundRes, ImplId, NfsStat, NfsTime, OpNum, Opaque1024, ResBody,
    SessionId, Verifier,
};
use landfast_rpc::{CallError, ConnInfo, OpaqueAuth};
use landfast_xdr::{Decode, Encode};

use super::callback::CALLBACKS;
use crate::compound::{COMPOUND, OpError, Results, compound_header};
use crate::limits;
use crate::options::SessionLimits;
use crate::requests;

/// Operations of a session's first request beside its caller's.
pub(super) const FIRST_OPS: usize = 4;
/// What they take of the request and of its reply, beside the heads, bytes at most.
pub(super) const FIRST_BYTES: usize = 512;

/// Why a step failed.
#[derive(Debug)]
pub(super) enum SetupError {
    Call(CallError),
    Garbled,
    Op(OpError),
}

impl SetupError {
    pub(super) fn status(&self) -> Option<NfsStat> {
        match self {
            SetupError::Op(e) => Some(e.status()),
            _ => None,
        }
    }
}

/// One connection and what calls on it need.
pub(super) struct Caller<'a> {
    pub(super) conn: &'a ConnInfo,
    pub(super) cred: &'a OpaqueAuth,
    pub(super) minor: u32,
    pub(super) patience: Duration,
}

/// The operations after the first SEQUENCE of a session: RECLAIM_COMPLETE, since nothing is reclaimed (RFC 8881 section 18.51), the
/// lease time, and the caller's operations.
pub(super) struct Opening {
    pub(super) body: Bytes,
    pub(super) ops: usize,
    /// How many of them are not the caller's.
    own: usize,
    reclaims: bool,
}

impl Opening {
    /// `reclaims` is false for a session of a client that had reclaimed before.
    pub(super) fn new(reclaims: bool, queries: &[ArgOp], trailing: Option<(Bytes, usize)>) -> Opening {
        let mut ops = Vec::with_capacity(FIRST_OPS + queries.len());
        if reclaims {
            ops.push(ArgOp::ReclaimComplete(false));
        }
        ops.extend([ArgOp::Putrootfh, ArgOp::Getattr(Bitmap::of(&[number::LEASE_TIME]))]);
        let own = ops.len();
        ops.extend_from_slice(queries);
        let mut body = BytesMut::new();
        ops.iter().for_each(|op| op.encode(&mut body));
        let (trailing, more) = trailing.unwrap_or_default();
        body.extend_from_slice(&trailing);
        Opening { body: body.freeze(), ops: ops.len() + more, own, reclaims }
    }

    /// Splits the results. The session is there even if some of them failed.
    pub(super) fn answer(&self, mut reply: CompoundRes) -> Answered {
        let results = (reply.results.len() > self.own).then(|| reply.results.split_off(self.own));
        let answer = results.map(|results| CompoundRes { results, ..reply.clone() });
        let reclaimed = match reply.results.first() {
            Some(first) if self.reclaims => first.status != NfsStat::NFS4ERR_DELAY,
            None => !self.reclaims,
            _ => true,
        };
        let mut results = Results::new(reply);
        let lease = || {
            if self.reclaims {
                results.take(OpNum::RECLAIM_COMPLETE).ok()?;
            }
            results.take(OpNum::PUTROOTFH).ok()?;
            let seconds = AttrValues::from_fattr(&results.getattr().ok()?).ok()?.lease_time?;
            Some(Duration::from_secs(u64::from(seconds.max(1))))
        };
        let lease = { lease }().unwrap_or(limits::LEASE_DEFAULT);
        Answered { lease, results: answer, reclaimed }
    }
}

/// The results of a session's first request.
pub(super) struct Answered {
    pub(super) lease: Duration,
    /// The results that are the caller's.
    pub(super) results: Option<CompoundRes>,
    /// RECLAIM_COMPLETE need not be sent again.
    pub(super) reclaimed: bool,
}

/// A client ID and where its CREATE_SESSION sequence stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientId {
    pub(super) id: u64,
    pub(super) next_seq: u32,
}

impl Caller<'_> {
    /// A COMPOUND as it is, without a slot.
    pub(super) async fn raw(&self, ops: &[ArgOp]) -> Result<CompoundRes, SetupError> {
        self.raw_with(ops, None).await
    }

    /// The same, followed by encoded operations and their count.
    async fn raw_with(
        &self,
        ops: &[ArgOp],
        trailing: Option<(Bytes, usize)>,
    ) -> Result<CompoundRes, SetupError> {
        let (trailing, more) = trailing.unwrap_or_default();
        let mut args = BytesMut::new();
        compound_header(self.minor, ops.len() + more, &mut args);
        ops.iter().for_each(|op| op.encode(&mut args));
        let args = vec![args.freeze(), trailing];
        let reply = self.conn.call(COMPOUND, self.cred, args.clone(), self.patience);
        let reply = requests::logged(COMPOUND, &args, reply).await;
        CompoundRes::from_bytes(reply.map_err(SetupError::Call)?).map_err(|_| SetupError::Garbled)
    }

    pub(super) async fn exchange_id(
        &self,
        owner_id: &Opaque1024,
        verifier: Verifier,
    ) -> Result<ExchangeIdRes, SetupError> {
        let reply = self
            .raw(&[ArgOp::ExchangeId(ExchangeIdArgs {
                client_owner: ClientOwner { verifier, owner_id: owner_id.clone() },
                flags: flags::EXCHGID4_FLAG_USE_NON_PNFS,
                state_protect: StateProtectArgs::None,
                client_impl_id: vec![ImplId {
                    // The kernel's server refuses an empty one with BADXDR.
                    domain: Bytes::from_static(b"landfast"),
                    name: Bytes::from_static(concat!("landfast ", env!("CARGO_PKG_VERSION")).as_bytes()),
                    date: NfsTime::default(),
                }],
            })])
            .await?;
        match Results::new(reply).take(OpNum::EXCHANGE_ID).map_err(SetupError::Op)? {
            ResBody::ExchangeId(res) => Ok(*res),
            _ => Err(SetupError::Garbled),
        }
    }

    pub(super) async fn create_session(
        &self,
        client: ClientId,
        ask: &SessionLimits,
    ) -> Result<CreateSessionRes, SetupError> {
        let fore_chan_attrs = ChannelAttrs {
            max_request_size: ask.request,
            max_response_size: ask.response,
            max_response_size_cached: ask.response_cached,
            max_operations: ask.ops,
            max_requests: ask.slots,
            ..ChannelAttrs::default()
        };
        // Nothing is called back but the ends of copies, on a connection that is bound when one is begun.
        let back_chan_attrs = ChannelAttrs {
            max_request_size: 4096,
            max_response_size: 4096,
            max_operations: 2,
            max_requests: 1,
            ..ChannelAttrs::default()
        };
        let reply = self
            .raw(&[ArgOp::CreateSession(CreateSessionArgs {
                clientid: client.id,
                sequence: client.next_seq,
                flags: flags::CREATE_SESSION4_FLAG_PERSIST,
                fore_chan_attrs,
                back_chan_attrs,
                cb_program: CALLBACKS,
                sec_parms: vec![CallbackSecParms::None],
            })])
            .await?;
        match Results::new(reply).take(OpNum::CREATE_SESSION).map_err(SetupError::Op)? {
            ResBody::CreateSession(res) => Ok(*res),
            _ => Err(SetupError::Garbled),
        }
    }

    /// Sends the first request of a session, on slot 0.
    pub(super) async fn first_request(
        &self,
        id: SessionId,
        opening: &Opening,
    ) -> Result<Answered, SetupError> {
        let sequence = ArgOp::Sequence(SequenceArgs {
            sessionid: id,
            sequenceid: 1,
            slotid: 0,
            highest_slotid: 0,
            cachethis: false,
        });
        let behind = (opening.body.clone(), opening.ops);
        let mut reply = self.raw_with(&[sequence], Some(behind)).await?;
        let results = reply.results.split_off(reply.results.len().min(1));
        let rest = CompoundRes { results, ..reply.clone() };
        Results::new(reply).take(OpNum::SEQUENCE).map_err(SetupError::Op)?;
        // From here on the slot is used.
        Ok(opening.answer(rest))
    }

    /// Binds the connection to a session's channels, `dir` (`CDFC4_*`).
    pub(super) async fn bind(&self, sessid: SessionId, dir: u32) -> Result<(), SetupError> {
        let reply = self
            .raw(&[ArgOp::BindConnToSession(BindConnToSessionArgs {
                sessid,
                dir,
                use_conn_in_rdma_mode: false,
            })])
            .await?;
        Results::new(reply).take(OpNum::BIND_CONN_TO_SESSION).map(drop).map_err(SetupError::Op)
    }
}
