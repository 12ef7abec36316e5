//! Dispatch of operations in NFSv4.0 (RFC 7530). What differs from NFSv4.1 is here:
//!
//! - a client ID or a stateid says which client it is;
//! - operations with owners carry sequence numbers;
//! - client IDs have operations of their own;
//! - some errors of the later versions do not exist.

use super::context::{Context, OpError, OpResult, key};
use super::dispatch::result;
use crate::fnv;
use crate::state::Principal;
use crate::state::clients::{Callback, SetClientId, SetClientIdError};
use crate::state::owners::{Last, Request as OwnerRequest};
use crate::state::v40::{SeqidRequest, Started, Step, Subject};
use landfast_nfs::v4::args::{CreateHow, Locker, OpenArgs, OpenClaim, OpenHow};
use landfast_nfs::v4::flags::OPEN4_RESULT_CONFIRM;
use landfast_nfs::v4::v40::{SetclientidArgs, SetclientidConfirmArgs, SetclientidRes};
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat, OpNum, ResBody, ResOp};
use landfast_volume::OpenFile;
use landfast_xdr::Encode;

/// A digest of an operation's arguments: 64-bit FNV-1a.
fn digest(op: &ArgOp) -> u64 {
    fnv::add(fnv::BEGIN, &op.to_bytes())
}

/// The owners, sequence number and digest of an operation; `None` if it carries no sequence number.
pub(super) fn ask(op: &ArgOp) -> Option<SeqidRequest> {
    let (subject, seqid) = match op {
        ArgOp::Open(a) => {
            let reclaim = matches!(a.claim, OpenClaim::Previous(_));
            (Subject::Open { client: a.owner.clientid, owner: a.owner.owner.0.clone(), reclaim }, a.seqid)
        }
        ArgOp::OpenConfirm(a) => (Subject::Confirm(a.open_stateid), a.seqid),
        ArgOp::OpenDowngrade(a) => (Subject::OfOpen(a.open_stateid), a.seqid),
        ArgOp::Close(a) => (Subject::OfOpen(a.open_stateid), a.seqid),
        ArgOp::Lock(a) => match &a.locker {
            Locker::New { open_seqid, open_stateid, lock_seqid, lock_owner } => {
                let (client, owner) = (lock_owner.clientid, lock_owner.owner.0.clone());
                (Subject::NewLock { open: *open_stateid, client, owner, seqid: *lock_seqid }, *open_seqid)
            }
            Locker::Existing { lock_stateid, lock_seqid } => (Subject::OfLock(*lock_stateid), *lock_seqid),
        },
        ArgOp::Locku(a) => (Subject::OfLock(a.lock_stateid), a.seqid),
        _ => return None,
    };
    Some(SeqidRequest { subject, seqid, request: OwnerRequest { op: op.op(), fingerprint: digest(op) } })
}

/// Whether this OPEN has a claim or a kind of create that only later versions have (RFC 7531).
fn is_later(a: &OpenArgs) -> bool {
    matches!(a.claim, OpenClaim::Fh | OpenClaim::DelegPrevFh | OpenClaim::DelegCurFh(_))
        || matches!(a.openhow, OpenHow::Create(CreateHow::Exclusive41 { .. }))
}

/// The status of NFSv4.0 for one of the later versions (RFC 7530 section 13).
fn status40(op: OpNum, status: NfsStat) -> NfsStat {
    match (status, op) {
        (NfsStat::NFS4ERR_WRONG_TYPE, OpNum::OPEN) => NfsStat::NFS4ERR_SYMLINK,
        (NfsStat::NFS4ERR_WRONG_TYPE, _) => NfsStat::NFS4ERR_INVAL,
        (NfsStat::NFS4ERR_ROFS, OpNum::LOCK) => NfsStat::NFS4ERR_ACCESS,
        (
            NfsStat::NFS4ERR_SYMLINK,
            OpNum::CREATE | OpNum::LINK | OpNum::READDIR | OpNum::REMOVE | OpNum::RENAME | OpNum::SECINFO,
        ) => NfsStat::NFS4ERR_NOTDIR,
        (
            NfsStat::NFS4ERR_SYMLINK,
            OpNum::LOCK
            | OpNum::LOCKT
            | OpNum::LOCKU
            | OpNum::CLOSE
            | OpNum::OPEN_CONFIRM
            | OpNum::OPEN_DOWNGRADE,
        ) => NfsStat::NFS4ERR_INVAL,
        (
            NfsStat::NFS4ERR_REP_TOO_BIG
            | NfsStat::NFS4ERR_REP_TOO_BIG_TO_CACHE
            | NfsStat::NFS4ERR_REQ_TOO_BIG
            | NfsStat::NFS4ERR_TOO_MANY_OPS,
            _,
        ) => NfsStat::NFS4ERR_RESOURCE,
        (status, _) => status,
    }
}

fn result40(op: OpNum, done: OpResult) -> ResOp {
    let mut res = result(op, done);
    res.status = status40(op, res.status);
    res
}

impl Context<'_> {
    pub(super) fn dispatch40(&mut self, op: &ArgOp) -> ResOp {
        if let Some(mut ask) = ask(op) {
            // A retry must come from the same sender: others must not get its reply. It must also be about the same
            // object, since a name means another file in another directory.
            let Principal { flavor, uid } = self.principal;
            let by = [flavor.to_be_bytes(), uid.to_be_bytes()].concat();
            let at = self.fh.as_ref().map(|fh| self.wire(fh)).unwrap_or_default();
            ask.request.fingerprint = fnv::add(ask.request.fingerprint, by.iter().chain(&at));
            return self.in_turn(op, &ask);
        }
        let done = match op {
            ArgOp::Setclientid(a) => self.setclientid(a),
            ArgOp::SetclientidConfirm(a) => self.setclientid_confirm(a),
            // Neither operation has `DELAY`. With this status a client that has moved believes that its lease is
            // renewed, and asks again.
            ArgOp::Renew(id) => match self.speaks_for(*id) {
                Err(f) if f.status != NfsStat::NFS4ERR_DELAY => Err(f),
                _ => Ok(ResBody::Empty),
            },
            ArgOp::ReleaseLockowner(o) => match self.speaks_for(o.clientid) {
                Err(f) if f.status == NfsStat::NFS4ERR_DELAY => Err(NfsStat::NFS4ERR_RESOURCE.into()),
                Err(f) => Err(f),
                Ok(()) => {
                    let released = self.sh.state().release_lock_owner(self.now, o.clientid, &o.owner.0);
                    released.map(|()| ResBody::Empty).map_err(OpError::from)
                }
            },
            ArgOp::Lockt(a) => self.speaks_for(a.owner.clientid).and_then(|()| self.lockt(a)),
            op => self.dispatch(op),
        };
        result40(op.op(), done)
    }

    fn speaks_for(&mut self, id: u64) -> Result<(), OpError> {
        self.sh.state().speaks40(self.now, id, self.caller.addr)?;
        self.client40 = Some(id);
        Ok(())
    }

    /// An operation with a sequence number (RFC 7530 section 9.1.7): runs it or repeats its reply.
    fn in_turn(&mut self, op: &ArgOp, ask: &SeqidRequest) -> ResOp {
        let number = op.op();
        if matches!(op, ArgOp::Open(a) if is_later(a)) {
            return ResOp::failed(number, NfsStat::NFS4ERR_BADXDR);
        }
        let named = match &ask.subject {
            Subject::Open { client, .. } | Subject::NewLock { client, .. } => Some(*client),
            Subject::Confirm(_) | Subject::OfOpen(_) | Subject::OfLock(_) => None,
        };
        let started = {
            let mut st = self.sh.state();
            let spoken = named.map_or(Ok(()), |id| st.speaks40(self.now, id, self.caller.addr));
            spoken.and_then(|()| st.begin40(self.now, ask, &self.owners))
        };
        let mut started = match started {
            Ok(Step::Run(started)) => started,
            Ok(Step::Replay(last)) => return self.again(*last),
            Err(status) => return ResOp::failed(number, status),
        };
        drop(std::mem::take(&mut started.freed));
        self.client40 = Some(started.client);
        let mut res = result40(number, self.new40(op, &started));
        if let ResBody::Open(open) = &mut res.body
            && started.confirm
        {
            open.rflags |= OPEN4_RESULT_CONFIRM;
        }
        let opened = (number == OpNum::OPEN && res.status.is_ok()).then_some(self.fh.as_ref()).flatten();
        let fh = opened.map(|fh| self.wire(fh));
        self.sh.state().end40(self.now, &started, &res, fh);
        res
    }

    /// A retry: returns the first result and sets the filehandle that goes with it.
    fn again(&mut self, last: Last) -> ResOp {
        self.sh.counters.replay();
        if let Some(fh) = last.fh
            && self.putfh(&FileHandle(fh)).is_err()
        {
            self.fh = None;
        }
        last.res
    }

    fn new40(&mut self, op: &ArgOp, started: &Started<OpenFile>) -> OpResult {
        let exact = |stateid| self.sh.state().files.exact(stateid);
        match op {
            ArgOp::Open(a) => self.open(a),
            ArgOp::OpenConfirm(a) => {
                let file = key(&self.file()?.node);
                let new = self.sh.state().confirm_open(started, &file, &a.open_stateid)?;
                Ok(ResBody::OpenConfirm(new))
            }
            ArgOp::OpenDowngrade(a) => {
                exact(&a.open_stateid)?;
                self.open_downgrade(a)
            }
            ArgOp::Close(a) => {
                exact(&a.open_stateid)?;
                let open = started.open.ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
                let owners = self.sh.state().begin_close(open);
                let done = self.close(a)?;
                self.sh.state().lock_states_gone(&owners);
                Ok(done)
            }
            ArgOp::Lock(a) => {
                match &a.locker {
                    Locker::New { open_stateid, .. } => exact(open_stateid)?,
                    Locker::Existing { lock_stateid, .. } => exact(lock_stateid)?,
                }
                self.touches_lock(a)?;
                self.lock(a)
            }
            ArgOp::Locku(a) => {
                exact(&a.lock_stateid)?;
                self.locku(a)
            }
            _ => Err(NfsStat::NFS4ERR_SERVERFAULT.into()),
        }
    }

    /// SETCLIENTID (RFC 7530 section 16.33).
    fn setclientid(&mut self, a: &SetclientidArgs) -> OpResult {
        let mut confirm = [0; 8];
        getrandom::fill(&mut confirm).map_err(|_| NfsStat::NFS4ERR_SERVERFAULT)?;
        let ask = SetClientId {
            owner: a.client.id.0.clone(),
            verifier: a.client.verifier,
            by: self.requester(),
            callback: Callback { client: a.callback.clone(), ident: a.callback_ident },
            confirm,
        };
        let found = self.sh.state().set_client_id(self.now, ask);
        match found {
            Ok((clientid, gone)) => {
                self.note(gone);
                Ok(ResBody::Setclientid(SetclientidRes { clientid, confirm }))
            }
            Err(SetClientIdError::InUse(by)) => {
                let body = Some(Box::new(ResBody::ClientInUse(by)));
                Err(OpError { status: NfsStat::NFS4ERR_CLID_INUSE, body })
            }
            Err(SetClientIdError::Status(status)) => Err(status.into()),
        }
    }

    /// SETCLIENTID_CONFIRM (RFC 7530 section 16.34).
    fn setclientid_confirm(&mut self, a: &SetclientidConfirmArgs) -> OpResult {
        let notes = self.sh.state().confirm_client_id(self.now, a.clientid, a.confirm, self.requester())?;
        self.note(notes);
        Ok(ResBody::Empty)
    }
}
