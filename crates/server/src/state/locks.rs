//! Byte-range locks (RFC 8881 section 9.1, 18.10 to 18.12): POSIX semantics, one table for each file
//! ([`super::ranges`]).

use super::ids::FileKey;
use super::opens::{ClientState, File, Files, LockState, OpenOrLock, READ, Share, WRITE, bump};
pub use super::ranges::Span;
use super::ranges::{Growth, Range};
use super::refusals::AtLimit;
use super::share::is_over_its_share;
use crate::limited::Limit;
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::{LockType, NfsStat, Stateid};
use std::net::IpAddr;

/// `LOCK4denied`: the lock that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub span: Span,
    pub exclusive: bool,
    pub client: u64,
    pub owner: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    Status(NfsStat),
    Denied(Denied),
}

impl From<NfsStat> for LockError {
    fn from(s: NfsStat) -> Self {
        LockError::Status(s)
    }
}

/// Who asks for a lock (`locker4`, RFC 8881 section 18.10.1).
#[derive(Debug, Clone)]
pub enum Locker {
    /// The first lock of this owner under this open.
    New {
        open: Stateid,
        owner: Bytes,
    },
    Known(Stateid),
}

/// Whether a lock type is exclusive. The blocking types are treated alike: a client that waits asks again.
pub fn exclusive(kind: LockType) -> bool {
    matches!(kind, LockType::Write | LockType::WriteW)
}

/// The access that the open, and the caller's right to the file, must include.
pub fn needed(kind: LockType) -> Share {
    if exclusive(kind) { WRITE } else { READ }
}

impl<F> Files<F> {
    pub(super) fn drop_lock_state(&mut self, id: u64) {
        let Some(l) = self.locks.remove(&id) else { return };
        let dropped = self.files.get_mut(&l.file).map_or(0, |f| f.ranges.drop_state(id));
        self.ranges -= dropped;
        let settled = !self.logged_locks.no_room.remove(&id) && l.logged.is_some();
        if let Some(logged) = &l.logged {
            self.logged_locks.dropped(id, logged);
        }
        if let Some(c) = self.clients.get_mut(&l.client) {
            c.ranges -= dropped;
            c.unlogged_locks -= usize::from(!settled);
            c.locks.remove(&(l.owner, l.file.clone()));
            if c.opens.is_empty() && c.locks.is_empty() {
                self.clients.remove(&l.client);
            }
        }
        if self.files.get(&l.file).is_some_and(File::unused) {
            self.files.remove(&l.file);
        }
        self.waiters.freed(&l.file);
        if let Some(o) = l.open.and_then(|open| self.opens.get_mut(&open)) {
            o.lock_states.retain(|s| *s != id);
        }
        // A former open is there for its locks, or while it is used; or for a file that outlasts its last name for its sake.
        if let Some(open) = l.open
            && self.opens.get(&open).is_some_and(|o| o.former.is_some() && o.lock_states.is_empty())
            && self.preserved.logged(open).is_none()
            && !self.preserved.is_orphan(&l.file)
        {
            let handles = self.drop_open(open);
            self.closed.extend(handles);
        }
    }

    pub(super) fn denied(&self, r: &Range) -> Denied {
        let holder = self.locks.get(&r.state);
        Denied {
            span: r.span,
            exclusive: r.exclusive,
            client: holder.map_or(0, |l| l.client),
            owner: holder.map(|l| l.owner.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn lock_state(&self, client: u64, owner: &Bytes, file: &FileKey) -> Option<u64> {
        self.clients.get(&client)?.locks.get(&(owner.clone(), file.clone())).copied()
    }

    /// Checks the limits of ranges: of the file, of the client, of all.
    pub(super) fn room_for_ranges(
        &mut self,
        client: u64,
        from: Option<IpAddr>,
        file: &FileKey,
        growth: Growth,
    ) -> Result<(), NfsStat> {
        let more = usize::try_from(growth).unwrap_or(0);
        if more == 0 {
            return Ok(());
        }
        let of_file = self.files.get(file).map_or(0, |f| f.ranges.len());
        let of_client = self.clients.get(&client).map_or(0, |c| c.ranges);
        let full = if of_file + more > limits::LOCKS_PER_FILE_MAX {
            AtLimit::FileLocks
        } else if of_client + more > self.limits[Limit::ClientLocks] {
            AtLimit::ClientLocks
        } else if self.ranges + more > self.limits[Limit::Locks] {
            AtLimit::Locks
        } else if self.address_is_full(from, self.ranges, more, |c| c.ranges) {
            AtLimit::AddressLocks
        } else {
            return Ok(());
        };
        self.refusals.at(full);
        Err(NfsStat::NFS4ERR_NOSPC)
    }

    pub(super) fn address_of(&self, client: u64) -> Option<IpAddr> {
        self.clients.get(&client).and_then(|c| c.from)
    }

    /// Whether the clients at an address would exceed their share of something limited as locks are, with `more` in
    /// addition. `used` is what all have, `of` what one client has.
    fn address_is_full(
        &self,
        from: Option<IpAddr>,
        used: usize,
        more: usize,
        of: fn(&ClientState) -> usize,
    ) -> bool {
        let own = || self.clients.values().filter(|c| c.from == from).map(of).sum();
        from.is_some() && is_over_its_share(used, self.limits[Limit::Locks], more, own)
    }

    pub(super) fn new_lock_state(
        &mut self,
        client: u64,
        from: Option<IpAddr>,
        owner: &Bytes,
        file: &FileKey,
        open: Option<u64>,
    ) -> Result<u64, NfsStat> {
        let of_client = self.clients.get(&client).map_or(0, |c| c.locks.len());
        let full = if of_client >= limits::LOCK_OWNERS_PER_CLIENT_MAX {
            Some(AtLimit::LockOwners)
        } else if self.locks.len() >= self.limits[Limit::Locks] {
            Some(AtLimit::Locks)
        } else {
            let full = self.address_is_full(from, self.locks.len(), 1, |c| c.locks.len());
            full.then_some(AtLimit::AddressLocks)
        };
        if let Some(limit) = full {
            self.refusals.at(limit);
            return Err(NfsStat::NFS4ERR_NOSPC);
        }
        let id = self.fresh();
        self.clients.entry(client).or_default().from = from;
        let (mark, logged) = (self.mark, None);
        let state =
            LockState { client, owner: owner.clone(), file: file.clone(), open, seqid: 0, mark, logged };
        self.enter_lock_state(id, state);
        Ok(id)
    }

    pub(super) fn enter_lock_state(&mut self, id: u64, state: LockState) {
        let of_client = self.clients.entry(state.client).or_default();
        of_client.locks.insert((state.owner.clone(), state.file.clone()), id);
        of_client.unlogged_locks += usize::from(state.logged.is_none());
        if let Some(o) = state.open.and_then(|open| self.opens.get_mut(&open)) {
            o.lock_states.push(id);
        }
        self.locks.insert(id, state);
    }

    /// Gives `span` to a lock state or takes it away (`None`), and counts. The caller has checked that there is room.
    pub(super) fn change_ranges(&mut self, id: u64, span: Span, exclusive: Option<bool>) {
        let Some(l) = self.locks.get(&id) else { return };
        let (Some(f), Some(c)) = (self.files.get_mut(&l.file), self.clients.get_mut(&l.client)) else {
            return;
        };
        let before = f.ranges.len();
        match exclusive {
            Some(exclusive) => f.ranges.set(span, exclusive, id),
            None => {
                f.ranges.clear(&span, id);
            }
        }
        c.ranges = c.ranges + f.ranges.len() - before;
        self.ranges = self.ranges + f.ranges.len() - before;
        self.waiters.freed(&l.file);
    }

    pub fn locked_ranges(&self) -> usize {
        self.ranges
    }

    /// The open of a LOCK, which must allow the kind, and the lock owner's state, if it has one.
    fn locker_open(
        &self,
        client: u64,
        file: &FileKey,
        locker: &Locker,
        kind: LockType,
    ) -> Result<(u64, Option<u64>), NfsStat> {
        let (open, known) = match locker {
            Locker::New { open, owner } => {
                let open = self.find_open(client, file, open)?;
                (open, self.lock_state(client, owner, file))
            }
            Locker::Known(stateid) => match self.find_on(client, file, stateid)? {
                OpenOrLock::Lock(id) => {
                    (self.locks.get(&id).and_then(|l| l.open).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?, Some(id))
                }
                OpenOrLock::Open(_) => return Err(NfsStat::NFS4ERR_BAD_STATEID),
            },
        };
        let access = self.opens.get(&open).map(|o| o.access).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
        if access & needed(kind) == 0 { Err(NfsStat::NFS4ERR_OPENMODE) } else { Ok((open, known)) }
    }

    /// The handle that the shell has open for a LOCK, to check the caller's access; `None` if none serves.
    /// Errors: Those of [`Files::lock`], but not for limits or locks in the way.
    pub fn lock_handle(
        &self,
        client: u64,
        file: &FileKey,
        locker: &Locker,
        kind: LockType,
    ) -> Result<Option<F>, NfsStat>
    where
        F: Clone,
    {
        let (open, _) = self.locker_open(client, file, locker, kind)?;
        Ok(self.opens.get(&open).and_then(|o| Self::handle(o, needed(kind))))
    }

    /// LOCK (RFC 8881 section 18.10).
    /// Errors: `OPENMODE` when the open does not allow the kind; `NOSPC` at the limits of ranges and of lock owners;
    /// the stateid's errors; or the lock that is in the way.
    pub fn lock(
        &mut self,
        client: u64,
        file: &FileKey,
        locker: &Locker,
        kind: LockType,
        span: Span,
    ) -> Result<Stateid, LockError> {
        let (open, known) = self.locker_open(client, file, locker, kind)?;
        let exclusive = exclusive(kind);
        let ranges = self.files.get(file).map(|f| &f.ranges).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
        if let Some(r) = ranges.conflict(&span, exclusive, known) {
            return Err(LockError::Denied(self.denied(&r)));
        }
        let growth = known.map_or(1, |id| ranges.growth_of_set(&span, id));
        let from = self.address_of(client);
        self.room_for_ranges(client, from, file, growth)?;
        let id = match (known, locker) {
            (Some(id), _) => {
                self.begins_under(id, open);
                id
            }
            (None, Locker::Known(_)) => return Err(NfsStat::NFS4ERR_BAD_STATEID.into()),
            (None, Locker::New { owner, .. }) => {
                self.new_lock_state(client, from, owner, file, Some(open))?
            }
        };
        self.change_ranges(id, span, Some(exclusive));
        Ok(self.bumped(id))
    }

    /// A lock owner that has nothing locked begins again through this open: what it locks belongs to this one and ends with it, whichever
    /// open it used before (RFC 8881 sections 9.5, 18.2.3).
    fn begins_under(&mut self, id: u64, open: u64) {
        let Some(l) = self.locks.get_mut(&id) else { return };
        let holds = self.files.get(&l.file).is_some_and(|f| f.ranges.holds(id));
        let Some(before) = l.open.filter(|before| *before != open && !holds) else { return };
        l.open = Some(open);
        if let Some(o) = self.opens.get_mut(&before) {
            o.lock_states.retain(|s| *s != id);
        }
        if let Some(o) = self.opens.get_mut(&open) {
            o.lock_states.push(id);
        }
    }

    fn bumped(&mut self, id: u64) -> Stateid {
        let (mark, seqid) = self.locks.get_mut(&id).map_or((self.mark, 1), |l| (l.mark, bump(&mut l.seqid)));
        Self::marked(mark, id, seqid)
    }

    /// LOCKT (RFC 8881 section 18.11): returns the lock that would be in the way.
    pub fn lock_test(
        &self,
        client: u64,
        file: &FileKey,
        owner: &Bytes,
        exclusive: bool,
        span: Span,
    ) -> Option<Denied> {
        let own = self.lock_state(client, owner, file);
        let r = self.files.get(file)?.ranges.conflict(&span, exclusive, own)?;
        Some(self.denied(&r))
    }

    /// LOCKU (RFC 8881 section 18.12).
    /// Errors: The stateid's errors; `NOSPC` when a range would become two at the limits of ranges.
    pub fn unlock(
        &mut self,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
        span: Span,
    ) -> Result<Stateid, NfsStat> {
        let OpenOrLock::Lock(id) = self.find_on(client, file, stateid)? else {
            return Err(NfsStat::NFS4ERR_BAD_STATEID);
        };
        let growth = self.files.get(file).map_or(0, |f| f.ranges.growth_of_clear(&span, id));
        self.room_for_ranges(client, self.address_of(client), file, growth)?;
        self.change_ranges(id, span, None);
        Ok(self.bumped(id))
    }
}
