//! LOCK, LOCKT, LOCKU (RFC 8881 sections 18.10 to 18.12).

use super::context::{Context, Obj, OpError, OpResult, key};
use super::io::mode_for;
use crate::state::locks::{self, Denied, LockError, Locker, Span};
use crate::state::opens::{READ, WRITE};
use landfast_nfs::v4::args::{LockArgs, Locker as WireLocker, LocktArgs, LockuArgs};
use landfast_nfs::v4::res::LockDenied;
use landfast_nfs::v4::{LockType, NfsStat, Opaque1024, ResBody, StateOwner};
use landfast_volume::Error;

fn denied(d: Denied) -> OpError {
    OpError {
        status: NfsStat::NFS4ERR_DENIED,
        body: Some(Box::new(ResBody::Denied(LockDenied {
            offset: d.span.offset(),
            length: d.span.length(),
            locktype: if d.exclusive { LockType::Write } else { LockType::Read },
            owner: StateOwner { clientid: d.client, owner: Opaque1024(d.owner) },
        }))),
    }
}

/// A caller that may neither read nor write a file must not learn who has locked it. Either right is enough: a program
/// asks about locks of both kinds however it has opened the file.
fn may_know_locks(obj: &Obj) -> Result<(), Error> {
    match obj.volume().may(obj.cred(), &obj.node, mode_for(READ)) {
        Err(Error::Access) => obj.volume().may(obj.cred(), &obj.node, mode_for(WRITE)),
        other => other,
    }
}

impl Context<'_> {
    /// The status at a limit. NFSv4.1 has no special status for this that LOCK and LOCKU may return (RFC 8881 section
    /// 15.2). So it is the one for what "does not map to any of the legal error values" (section 15.1.1.9). Linux
    /// reports it as EIO at once and keeps its other locks. With `DELAY` it would ask without end; `DENIED` would name
    /// a holder that is not in the way. NFSv4.0 has `RESOURCE`.
    fn at_limit(&self, status: NfsStat) -> NfsStat {
        match status {
            NfsStat::NFS4ERR_NOSPC if self.minor > 0 => NfsStat::NFS4ERR_SERVERFAULT,
            NfsStat::NFS4ERR_NOSPC => NfsStat::NFS4ERR_RESOURCE,
            other => other,
        }
    }

    /// LOCK. Nobody is queued: a client that waits asks again. If the lock's holder in turn waits for this client by
    /// NLM, the reply reports the deadlock.
    pub(super) fn lock(&mut self, a: &LockArgs) -> OpResult {
        let obj = self.file()?;
        let file = key(&obj.node);
        let client = self.client()?;
        let span = Span::new(a.offset, a.length)?;
        let locker = match &a.locker {
            WireLocker::Existing { lock_stateid, .. } => {
                Locker::Known(self.resolve_stateid(lock_stateid, false)?)
            }
            WireLocker::New { open_stateid, lock_owner, .. } => Locker::New {
                open: self.resolve_stateid(open_stateid, false)?,
                owner: lock_owner.owner.0.clone(),
            },
        };
        let want = locks::needed(a.locktype);
        let opened = {
            let mut st = self.sh.state();
            if a.reclaim {
                st.may_reclaim(client, self.now)?;
            } else if st.must_wait_for_grace(client, self.now) {
                return Err(NfsStat::NFS4ERR_GRACE.into());
            }
            let (Locker::New { open: held, .. } | Locker::Known(held)) = &locker;
            st.adopt(self.now, client, &file, held, want)?;
            st.files.lock_handle(client, &file, &locker, a.locktype)?
        };
        // The caller needs the right that the lock is for, as for READ and WRITE, whoever opened the file.
        if want == WRITE {
            obj.writable()?;
        }
        match opened {
            Some(opened) => obj.volume().as_caller(obj.cred(), &opened, mode_for(want)).map(drop)?,
            None => obj.volume().may(obj.cred(), &obj.node, mode_for(want))?,
        }
        let mut notes = Vec::new();
        let (result, unsettled) = {
            let mut st = self.sh.state();
            let result = loop {
                match st.files.lock(client, &file, &locker, a.locktype, span) {
                    Err(LockError::Denied(d)) if d.client != client && st.lapsed(d.client, self.now) => {
                        notes.extend(st.remove_client(d.client));
                    }
                    Err(LockError::Denied(_))
                        if matches!(a.locktype, LockType::ReadW | LockType::WriteW)
                            && st.files.would_deadlock_v4(
                                client,
                                &file,
                                &locker,
                                locks::exclusive(a.locktype),
                                span,
                            ) =>
                    {
                        break Err(LockError::Status(NfsStat::NFS4ERR_DEADLOCK));
                    }
                    Ok(stateid) => {
                        notes.extend(st.log_locks(&stateid));
                        break Ok(stateid);
                    }
                    refused => break refused,
                }
            };
            (result, st.removals.unsettled())
        };
        notes.extend(self.exports.relied_on(unsettled));
        self.note(notes);
        match result {
            Ok(stateid) => {
                self.stateid = stateid;
                Ok(ResBody::Lock(stateid))
            }
            Err(LockError::Status(s)) => Err(self.at_limit(s).into()),
            Err(LockError::Denied(d)) => Err(denied(d)),
        }
    }

    /// LOCKT for the session's client. It finds exactly the locks that would stop a LOCK: a lock of a client whose
    /// lease has expired is not one of them.
    pub(super) fn lockt(&mut self, a: &LocktArgs) -> OpResult {
        let obj = self.file()?;
        let file = key(&obj.node);
        let client = self.client()?;
        let span = Span::new(a.offset, a.length)?;
        may_know_locks(&obj)?;
        let mut notes = Vec::new();
        let (in_the_way, unsettled) = {
            let mut st = self.sh.state();
            if st.must_wait_for_grace(client, self.now) {
                return Err(NfsStat::NFS4ERR_GRACE.into());
            }
            let found = loop {
                let kind = locks::exclusive(a.locktype);
                match st.files.lock_test(client, &file, &a.owner.owner.0, kind, span) {
                    Some(d) if d.client != client && st.lapsed(d.client, self.now) => {
                        notes.extend(st.remove_client(d.client));
                    }
                    other => break other,
                }
            };
            (found, st.removals.unsettled())
        };
        notes.extend(self.exports.relied_on(unsettled));
        self.note(notes);
        in_the_way.map_or(Ok(ResBody::Empty), |d| Err(denied(d)))
    }

    pub(super) fn locku(&mut self, a: &LockuArgs) -> OpResult {
        let file = self.stateful()?;
        let client = self.client()?;
        let span = Span::new(a.offset, a.length)?;
        let stateid = self.resolve_stateid(&a.lock_stateid, false)?;
        let (new, notes) = {
            let mut st = self.sh.state();
            let new = st.files.unlock(client, &file, &stateid, span);
            let notes = new.as_ref().map_or_else(|_| Vec::new(), |new| st.log_locks(new));
            (new.map_err(|s| self.at_limit(s))?, notes)
        };
        self.note(notes);
        self.stateid = new;
        Ok(ResBody::Locku(new))
    }
}
