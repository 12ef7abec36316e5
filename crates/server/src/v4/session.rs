//! Clients and sessions: EXCHANGE_ID, CREATE_SESSION, SEQUENCE, and what ends them (RFC 8881 sections 18.33 to 18.37,
//! 18.46, 18.50, 18.51).

use super::context::{Context, InSession, OpResult};
use super::matrix::may_modify;
use super::request::{Request, Sequenced};
use crate::limits;
use crate::state::clients::{CreateSession, ExchangeId};
use crate::state::sessions::{Begin, NewSession, SlotUse};
use crate::wakeups::Awaited;
use bytes::Bytes;
use landfast_nfs::v4::args::{
    BackchannelCtlArgs, BindConnToSessionArgs, CallbackSecParms, CreateSessionArgs, ExchangeIdArgs,
    SequenceArgs, StateProtectArgs,
};
use landfast_nfs::v4::flags::{
    AUTH_SYS, CDFC4_BACK, CDFC4_BACK_OR_BOTH, CDFC4_FORE, CDFC4_FORE_OR_BOTH, CDFS4_BACK, CDFS4_BOTH,
    CDFS4_FORE, CREATE_SESSION4_FLAG_CONN_BACK_CHAN, CREATE_SESSION4_FLAG_CONN_RDMA,
    CREATE_SESSION4_FLAG_PERSIST, EXCHGID4_FLAG_BIND_PRINC_STATEID, EXCHGID4_FLAG_CONFIRMED_R,
    EXCHGID4_FLAG_MASK_PNFS, EXCHGID4_FLAG_SUPP_FENCE_OPS, EXCHGID4_FLAG_SUPP_MOVED_MIGR,
    EXCHGID4_FLAG_SUPP_MOVED_REFER, EXCHGID4_FLAG_UPD_CONFIRMED_REC_A, EXCHGID4_FLAG_USE_NON_PNFS,
};
use landfast_nfs::v4::res::{
    BindConnToSessionRes, CreateSessionRes, ExchangeIdRes, SequenceRes, StateProtectRes,
    usable_callback_security,
};
use landfast_nfs::v4::{ChannelAttrs, ImplId, NfsStat, NfsTime, Opaque1024, ResBody, ServerOwner, SessionId};
use landfast_rpc::{OpaqueAuth, share_of};
use landfast_volume::faults::point;
use landfast_xdr::{Decode, Encode};

/// The flags that a client may send in EXCHANGE_ID; from minor version 2 also `EXCHGID4_FLAG_SUPP_FENCE_OPS`.
const EXCHANGE_FLAGS: u32 = EXCHGID4_FLAG_SUPP_MOVED_REFER
    | EXCHGID4_FLAG_SUPP_MOVED_MIGR
    | EXCHGID4_FLAG_BIND_PRINC_STATEID
    | EXCHGID4_FLAG_MASK_PNFS
    | EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;
const CREATE_FLAGS: u32 =
    CREATE_SESSION4_FLAG_PERSIST | CREATE_SESSION4_FLAG_CONN_BACK_CHAN | CREATE_SESSION4_FLAG_CONN_RDMA;

impl Context<'_> {
    /// SEQUENCE (RFC 8881 section 18.46).
    pub(super) fn sequence(&mut self, a: &SequenceArgs, req: &Request) -> Result<Sequenced, NfsStat> {
        let mut st = self.sh.state();
        let client = st.heard_on(&a.sessionid, self.caller.addr)?;
        let dead = st.clients.is_dead(client);
        let mut session = st.sessions.get_mut(&a.sessionid).ok_or(NfsStat::NFS4ERR_BADSESSION)?;
        session.used_from(share_of(self.caller.addr));
        let keeps = a.cachethis || req.args.ops.iter().any(|op| may_modify(op, self.minor));
        let fore = session.fore.clone();
        let ask = SlotUse {
            slot: a.slotid,
            sequence: a.sequenceid,
            highest: a.highest_slotid,
            fingerprint: req.fingerprint,
            solo: req.args.announced == 1,
        };
        let begun = session.begin(self.now, &ask, keeps, || {
            if dead {
                Err(NfsStat::NFS4ERR_DEADSESSION)
            } else if req.bytes > fore.max_request_size as usize {
                Err(NfsStat::NFS4ERR_REQ_TOO_BIG)
            } else if req.args.announced > fore.max_operations {
                Err(NfsStat::NFS4ERR_TOO_MANY_OPS)
            } else if a.cachethis && (fore.max_response_size_cached as usize) < 128 + req.args.tag.len() {
                Err(NfsStat::NFS4ERR_REP_TOO_BIG_TO_CACHE)
            } else if (fore.max_response_size as usize) < 128 + req.args.tag.len() {
                Err(NfsStat::NFS4ERR_REP_TOO_BIG)
            } else {
                Ok(())
            }
        })?;
        match (&begun, session.asked_from(a.slotid)) {
            (Begin::New, _) => session.is_asked_from(a.slotid, self.caller.addr),
            // A reply contains what its caller might read. If the exports' rules treat this caller differently, the
            // reply is not for it (C6).
            (Begin::Replay(_), Some(from)) if !self.exports.same_access_from(&self.caller, from) => {
                return Err(NfsStat::NFS4ERR_SEQ_FALSE_RETRY);
            }
            (Begin::Replay(_) | Begin::Uncached, _) => {}
        }
        let (highest, target) = (session.highest_slot(), session.target_slot());
        drop(session);
        st.clients.renew(client, self.now);
        let res = SequenceRes {
            sessionid: a.sessionid,
            sequenceid: a.sequenceid,
            slotid: a.slotid,
            highest_slotid: highest,
            target_highest_slotid: target,
            status_flags: st.status_flags(client) | st.sessions.back_status(&a.sessionid),
        };
        match begun {
            Begin::New => {
                self.session = Some(InSession { id: a.sessionid, client, slot: a.slotid });
                Ok(Sequenced::New {
                    res,
                    max_response: fore.max_response_size,
                    max_cached: fore.max_response_size_cached,
                })
            }
            Begin::Replay(reply) => Ok(Sequenced::Replay(reply)),
            Begin::Uncached => Ok(Sequenced::Uncached(res)),
        }
    }

    /// EXCHANGE_ID (RFC 8881 section 18.35).
    pub(super) fn exchange_id(&mut self, a: &ExchangeIdArgs) -> OpResult {
        let known =
            if self.minor >= 2 { EXCHANGE_FLAGS | EXCHGID4_FLAG_SUPP_FENCE_OPS } else { EXCHANGE_FLAGS };
        if a.flags & !known != 0 {
            return Err(NfsStat::NFS4ERR_INVAL.into());
        }
        match a.state_protect {
            StateProtectArgs::None => {}
            // Needs RPCSEC_GSS, which nobody here can have used.
            StateProtectArgs::MachCred(_) => return Err(NfsStat::NFS4ERR_INVAL.into()),
            StateProtectArgs::Ssv { .. } => return Err(NfsStat::NFS4ERR_ENCR_ALG_UNSUPP.into()),
        }
        let ask = ExchangeId {
            owner: a.client_owner.owner_id.0.clone(),
            verifier: a.client_owner.verifier,
            by: self.requester(),
            update: a.flags & EXCHGID4_FLAG_UPD_CONFIRMED_REC_A != 0,
        };
        // Release the state before going on to the log: sealing the log locks the state.
        let (found, gone) = {
            let mut st = self.sh.state();
            let mut gone = st.room_for_client(self.now, self.caller.addr)?;
            let found = st.exchange_id(self.now, &ask)?;
            if let Some(old) = found.replaced {
                gone.extend(st.remove_client(old));
            }
            (found, gone)
        };
        let mut flags = EXCHGID4_FLAG_USE_NON_PNFS;
        if found.confirmed {
            flags |= EXCHGID4_FLAG_CONFIRMED_R;
        }
        let name = Opaque1024(self.sh.name.clone());
        let res = ExchangeIdRes {
            clientid: found.client,
            sequenceid: found.sequence,
            flags,
            state_protect: StateProtectRes::None,
            server_owner: ServerOwner { minor_id: 0, major_id: name.clone() },
            server_scope: name,
            server_impl_id: vec![ImplId {
                domain: Bytes::from_static(b"landfast"),
                name: Bytes::from_static(concat!("landfast ", env!("CARGO_PKG_VERSION")).as_bytes()),
                date: NfsTime::default(),
            }],
        };
        self.note(gone);
        Ok(ResBody::ExchangeId(Box::new(res)))
    }

    /// CREATE_SESSION (RFC 8881 section 18.36).
    pub(super) fn create_session(&mut self, a: &CreateSessionArgs) -> OpResult {
        if a.flags & !CREATE_FLAGS != 0 {
            return Err(NfsStat::NFS4ERR_INVAL.into());
        }
        point("cross.session");
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| NfsStat::NFS4ERR_SERVERFAULT)?;
        let mut notes = Vec::new();
        let res = {
            let mut st = self.sh.state();
            match st.clients.check_create_session(a.clientid, a.sequence, self.requester())? {
                CreateSession::Replay(reply) => {
                    let res =
                        CreateSessionRes::from_bytes(reply).map_err(|_| NfsStat::NFS4ERR_SERVERFAULT)?;
                    return Ok(ResBody::CreateSession(Box::new(res)));
                }
                CreateSession::New => {}
            }
            let back = back_channel(&a.back_chan_attrs)?;
            // Make room before counting it, so that a client can always replace its own sessions.
            if let Some(old) = st.sessions.to_evict(a.clientid) {
                notes.extend(st.remove_session(&old));
            }
            let share = share_of(self.caller.addr);
            let (fore, ended) = st.room_for_session(self.now, &a.fore_chan_attrs, share)?;
            notes.extend(ended);
            let mut id: SessionId = [0; 16];
            id[..8].copy_from_slice(&a.clientid.to_be_bytes());
            id[8..].copy_from_slice(&random);
            let mut flags = a.flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
            if self.sh.persist {
                flags |= a.flags & CREATE_SESSION4_FLAG_PERSIST;
            }
            let res = CreateSessionRes {
                sessionid: id,
                sequence: a.sequence,
                flags,
                fore_chan_attrs: fore.clone(),
                back_chan_attrs: back,
            };
            let v = st.next_version();
            if let Some(old) = st.clients.created(a.clientid, self.now, res.to_bytes(), v) {
                notes.extend(st.succeed_client(self.now, a.clientid, old));
            }
            notes.extend(st.client_notes(a.clientid));
            let v = st.next_version();
            let new = NewSession {
                id,
                client: a.clientid,
                fore,
                back: res.back_chan_attrs.clone(),
                callback_program: a.cb_program,
                flags,
                callback_cred: callback_cred(&a.sec_parms),
            };
            st.sessions.insert(new, v, self.now);
            if let Some(mut s) = st.sessions.get_mut(&id) {
                s.used_from(share);
                if flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0 {
                    s.bind_back(self.conn);
                }
                notes.extend(s.notes());
            }
            if flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0 && self.exports.delegate() {
                st.files.delegations.try_out(id);
            }
            res
        };
        self.back_is_bound();
        self.note(notes);
        Ok(ResBody::CreateSession(Box::new(res)))
    }

    /// DESTROY_SESSION (RFC 8881 section 18.37).
    pub(super) fn destroy_session(&mut self, id: &SessionId) -> OpResult {
        let own = self.session.as_ref().filter(|s| s.id == *id).map(|s| s.slot);
        if own.is_some() && !self.last {
            return Err(NfsStat::NFS4ERR_NOT_ONLY_OP.into());
        }
        let note = {
            let mut st = self.sh.state();
            st.may_end_session(id, self.requester())?;
            let s = st.sessions.get(id).ok_or(NfsStat::NFS4ERR_BADSESSION)?;
            let busy = own.map_or_else(|| s.busy(), |slot| s.busy_beside(slot));
            if busy {
                return Err(NfsStat::NFS4ERR_DELAY.into());
            }
            st.remove_session(id)
        };
        self.note(note);
        Ok(ResBody::Empty)
    }

    /// DESTROY_CLIENTID (RFC 8881 section 18.50): refused while the client has anything, even an idle session. Its
    /// DESTROY_SESSION may have arrived before and still be running: a client that sends both at once need not wait for
    /// the first reply.
    pub(super) fn destroy_clientid(&mut self, id: u64) -> OpResult {
        let notes = {
            let mut st = self.sh.state();
            st.may_end_client(id, self.requester())?;
            let own = self.session.as_ref().is_some_and(|s| s.client == id);
            if own || st.has_state(id, self.now) || st.sessions.client_is_busy(id) {
                let only_sessions = self.session.is_none() && st.files.opens_of(id) == 0;
                self.waits = only_sessions.then_some((Awaited::Other, limits::FAREWELL_WAIT));
                return Err(NfsStat::NFS4ERR_CLIENTID_BUSY.into());
            }
            st.remove_client(id)
        };
        self.note(notes);
        Ok(ResBody::Empty)
    }

    /// BIND_CONN_TO_SESSION (RFC 8881 section 18.34).
    pub(super) fn bind_conn_to_session(&mut self, a: &BindConnToSessionArgs) -> OpResult {
        let (back, dir) = match a.dir {
            CDFC4_FORE => (false, CDFS4_FORE),
            CDFC4_BACK => (true, CDFS4_BACK),
            CDFC4_FORE_OR_BOTH | CDFC4_BACK_OR_BOTH => (true, CDFS4_BOTH),
            _ => return Err(NfsStat::NFS4ERR_INVAL.into()),
        };
        let notes = {
            let mut st = self.sh.state();
            let v = st.next_version();
            st.binds(&a.sessid, self.requester())?;
            let mut session = st.sessions.get_mut(&a.sessid).ok_or(NfsStat::NFS4ERR_BADSESSION)?;
            let news = back && session.bind_back(self.conn);
            if news {
                session.version = v;
            }
            let notes = news.then(|| session.notes());
            let tried = session.back_tried;
            drop(session);
            if back && !tried && self.exports.delegate() {
                st.files.delegations.try_out(a.sessid);
            }
            notes
        };
        self.back_is_bound();
        self.note(notes.into_iter().flatten());
        Ok(ResBody::BindConnToSession(BindConnToSessionRes {
            sessid: a.sessid,
            dir,
            use_conn_in_rdma_mode: false,
        }))
    }

    /// After this connection was bound to a back channel: callbacks that wait for one go on. If it was closed before, nobody else takes it out again.
    fn back_is_bound(&self) {
        if self.work.reply_conn().is_closed() {
            self.sh.state().sessions.disconnected(self.conn);
        }
        self.sh.callback_conns.bound();
    }

    /// BACKCHANNEL_CTL (RFC 8881 section 18.33).
    pub(super) fn backchannel_ctl(&mut self, a: &BackchannelCtlArgs) -> OpResult {
        if usable_callback_security(&a.sec_parms).is_none() {
            return Err(NfsStat::NFS4ERR_NOENT.into());
        }
        let id = self.session.as_ref().map(|s| s.id).ok_or(NfsStat::NFS4ERR_OP_NOT_IN_SESSION)?;
        let note = {
            let mut st = self.sh.state();
            if !st.is_spoken_for_by(&id, self.requester().principal) {
                return Err(NfsStat::NFS4ERR_INVAL.into());
            }
            let v = st.next_version();
            let mut s = st.sessions.get_mut(&id).ok_or(NfsStat::NFS4ERR_BADSESSION)?;
            s.set_callback(a.cb_program, callback_cred(&a.sec_parms));
            s.version = v;
            let notes = s.notes();
            drop(s);
            notes
        };
        self.note(note);
        Ok(ResBody::Empty)
    }

    /// RECLAIM_COMPLETE (RFC 8881 section 18.51). For one filesystem it has no effect: there is no migration. Only the
    /// client's own principal may send it. If any user could, it would take from the other users what they have not
    /// reclaimed yet.
    pub(super) fn reclaim_complete(&mut self, one_fs: bool) -> OpResult {
        if one_fs {
            self.fh()?;
            return Ok(ResBody::Empty);
        }
        let client = self.client()?;
        let id = self.session.as_ref().map(|s| s.id).ok_or(NfsStat::NFS4ERR_OP_NOT_IN_SESSION)?;
        let note = {
            let mut st = self.sh.state();
            if !st.is_spoken_for_by(&id, self.requester().principal) {
                return Err(NfsStat::NFS4ERR_INVAL.into());
            }
            st.reclaim_complete(client)?
        };
        self.note(note);
        Ok(ResBody::Empty)
    }
}

/// The RPC credential of callbacks: the first that the client offers and that needs no GSS.
fn callback_cred(parms: &[CallbackSecParms]) -> Option<OpaqueAuth> {
    Some(match usable_callback_security(parms)? {
        CallbackSecParms::Sys(sys) => OpaqueAuth { flavor: AUTH_SYS, body: sys.to_bytes() },
        _ => OpaqueAuth::NONE,
    })
}

/// The back channel that the client offers: it never gets more than it offered (RFC 8881 section 18.36.3).
fn back_channel(offer: &ChannelAttrs) -> Result<ChannelAttrs, NfsStat> {
    if offer.max_request_size.min(offer.max_response_size) < limits::BACK_CHANNEL_BYTES_MIN
        || offer.max_operations < limits::BACK_CHANNEL_OPS_MIN
    {
        return Err(NfsStat::NFS4ERR_TOOSMALL);
    }
    Ok(ChannelAttrs {
        header_pad_size: 0,
        max_request_size: offer.max_request_size,
        max_response_size: offer.max_response_size,
        max_response_size_cached: offer.max_response_size_cached,
        max_operations: offer.max_operations,
        max_requests: offer.max_requests.min(limits::SLOTS_MAX),
        rdma_ird: Vec::new(),
    })
}
