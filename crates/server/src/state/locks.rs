//! Byte-range locks (RFC 8881 section 9.1, 18.10 to 18.12): POSIX semantics, one table for each file.
//!
//! Invariant of a table: ranges of one owner never overlap; ranges of two owners overlap only when both are shared.

use super::opens::{FileKey, Files, READ, WRITE, Which};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::{LockType, NfsStat, Stateid};

/// A lock owner's locks on one file: what a lock stateid names.
#[derive(Debug)]
pub(super) struct LockState {
    pub(super) client: u64,
    pub(super) owner: Bytes,
    pub(super) file: FileKey,
    pub(super) open: u64,
    pub(super) seqid: u32,
}

/// Bytes `start` to `end`, both included; `end` of `u64::MAX` is "to the end of the file, wherever it is".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// The span of `offset4` and `length4` (RFC 8881 section 18.10.3): a length of all ones reaches to the end.
    ///
    /// # Errors
    /// `INVAL` for length 0, and for a span that ends beyond the 64 bits.
    pub fn new(offset: u64, length: u64) -> Result<Span, NfsStat> {
        match length {
            0 => Err(NfsStat::NFS4ERR_INVAL),
            u64::MAX => Ok(Span { start: offset, end: u64::MAX }),
            n => match offset.checked_add(n - 1) {
                Some(end) => Ok(Span { start: offset, end }),
                None => Err(NfsStat::NFS4ERR_INVAL),
            },
        }
    }

    /// The offset on the wire.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.start
    }

    /// The length on the wire.
    #[must_use]
    pub fn length(&self) -> u64 {
        if self.end == u64::MAX { u64::MAX } else { self.end - self.start + 1 }
    }

    fn overlaps(&self, other: &Span) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    span: Span,
    exclusive: bool,
    state: u64,
}

/// The locks of one file, ordered by start.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    list: Vec<Range>,
}

impl Ranges {
    /// A lock of another state that is in the way.
    fn conflict(&self, span: &Span, exclusive: bool, state: Option<u64>) -> Option<Range> {
        self.list
            .iter()
            .find(|r| Some(r.state) != state && (r.exclusive || exclusive) && r.span.overlaps(span))
            .copied()
    }

    /// Whether the state holds anything.
    pub(super) fn holds(&self, state: u64) -> bool {
        self.list.iter().any(|r| r.state == state)
    }

    /// Takes `span` away from what `state` holds, splitting where it has to.
    fn clear(&mut self, span: &Span, state: u64) {
        let mut out = Vec::with_capacity(self.list.len() + 1);
        for r in self.list.drain(..) {
            if r.state != state || !r.span.overlaps(span) {
                out.push(r);
                continue;
            }
            if r.span.start < span.start {
                out.push(Range { span: Span { start: r.span.start, end: span.start - 1 }, ..r });
            }
            if r.span.end > span.end {
                out.push(Range { span: Span { start: span.end + 1, end: r.span.end }, ..r });
            }
        }
        self.list = out;
    }

    fn set(&mut self, span: Span, exclusive: bool, state: u64) {
        self.clear(&span, state);
        self.list.push(Range { span, exclusive, state });
        self.list.sort_by_key(|r| (r.span.start, r.state));
        self.merge(state);
    }

    /// Joins neighbours of one state and kind.
    fn merge(&mut self, state: u64) {
        let mut last: Option<usize> = None;
        let mut out: Vec<Range> = Vec::with_capacity(self.list.len());
        for r in self.list.drain(..) {
            if r.state == state {
                if let Some(before) = last.and_then(|i| out.get_mut(i))
                    && before.exclusive == r.exclusive
                    && before.span.end.checked_add(1) == Some(r.span.start)
                {
                    before.span.end = r.span.end;
                    continue;
                }
                last = Some(out.len());
            }
            out.push(r);
        }
        self.list = out;
    }

    fn drop_state(&mut self, state: u64) {
        self.list.retain(|r| r.state != state);
    }

    fn len(&self) -> usize {
        self.list.len()
    }
}

/// `LOCK4denied`: the lock that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Its bytes.
    pub span: Span,
    /// Whether it is exclusive.
    pub exclusive: bool,
    /// Its client.
    pub client: u64,
    /// Its lock owner.
    pub owner: Bytes,
}

/// Why a lock was not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    /// An error of the protocol.
    Status(NfsStat),
    /// Another lock is in the way.
    Denied(Denied),
}

impl From<NfsStat> for LockError {
    fn from(s: NfsStat) -> Self {
        LockError::Status(s)
    }
}

/// Who asks for a lock (RFC 8881 section 18.10.1: `locker4`).
#[derive(Debug, Clone)]
pub enum Locker {
    /// The first lock of this owner under this open.
    New {
        /// The open.
        open: Stateid,
        /// The lock owner.
        owner: Bytes,
    },
    /// A lock owner that has a stateid.
    Known(Stateid),
}

/// Whether a lock type is exclusive. The blocking kinds are not different here: a client that waits asks again.
#[must_use]
pub fn exclusive(kind: LockType) -> bool {
    matches!(kind, LockType::Write | LockType::WriteW)
}

impl<F> Files<F> {
    pub(super) fn drop_lock_state(&mut self, id: u64) {
        let Some(l) = self.locks.remove(&id) else { return };
        if let Some(f) = self.files.get_mut(&l.file) {
            f.ranges.drop_state(id);
        }
        if let Some(c) = self.clients.get_mut(&l.client) {
            c.locks.remove(&(l.owner, l.file));
        }
        if let Some(o) = self.opens.get_mut(&l.open) {
            o.lock_states.retain(|s| *s != id);
        }
    }

    fn denied(&self, r: &Range) -> Denied {
        let holder = self.locks.get(&r.state);
        Denied {
            span: r.span,
            exclusive: r.exclusive,
            client: holder.map_or(0, |l| l.client),
            owner: holder.map(|l| l.owner.clone()).unwrap_or_default(),
        }
    }

    /// LOCK (RFC 8881 section 18.10).
    ///
    /// # Errors
    /// `OPENMODE` when the open does not allow the kind; `NOSPC` at the limit of ranges; the stateid's errors; or the
    /// lock that is in the way.
    pub fn lock(
        &mut self,
        client: u64,
        file: &FileKey,
        locker: &Locker,
        kind: LockType,
        span: Span,
    ) -> Result<Stateid, LockError> {
        let (open, known) = match locker {
            Locker::New { open, owner } => {
                let open = self.find_open(client, file, open)?;
                let known =
                    self.clients.get(&client).and_then(|c| c.locks.get(&(owner.clone(), file.clone())));
                (open, known.copied())
            }
            Locker::Known(stateid) => match self.find_on(client, file, stateid)? {
                Which::Lock(id) => {
                    (self.locks.get(&id).map(|l| l.open).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?, Some(id))
                }
                Which::Open(_) => return Err(NfsStat::NFS4ERR_BAD_STATEID.into()),
            },
        };
        let access = self.opens.get(&open).map(|o| o.access).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
        let exclusive = exclusive(kind);
        if access & (if exclusive { WRITE } else { READ }) == 0 {
            return Err(NfsStat::NFS4ERR_OPENMODE.into());
        }
        let ranges = self.files.get(file).map(|f| &f.ranges).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
        if let Some(r) = ranges.conflict(&span, exclusive, known) {
            return Err(LockError::Denied(self.denied(&r)));
        }
        if ranges.len() >= limits::LOCKS_PER_FILE_MAX {
            return Err(NfsStat::NFS4ERR_NOSPC.into());
        }
        let id = match (known, locker) {
            (Some(id), _) => id,
            (None, Locker::Known(_)) => return Err(NfsStat::NFS4ERR_BAD_STATEID.into()),
            (None, Locker::New { owner, .. }) => {
                let id = self.fresh();
                self.clients.entry(client).or_default().locks.insert((owner.clone(), file.clone()), id);
                if let Some(o) = self.opens.get_mut(&open) {
                    o.lock_states.push(id);
                }
                let state = LockState { client, owner: owner.clone(), file: file.clone(), open, seqid: 0 };
                self.locks.insert(id, state);
                id
            }
        };
        if let Some(f) = self.files.get_mut(file) {
            f.ranges.set(span, exclusive, id);
        }
        Ok(self.bumped(id))
    }

    fn bumped(&mut self, id: u64) -> Stateid {
        let seqid = self.locks.get_mut(&id).map_or(1, |l| {
            l.seqid = l.seqid.wrapping_add(1).max(1);
            l.seqid
        });
        self.stateid(id, seqid)
    }

    /// LOCKT (RFC 8881 section 18.11): the lock that would be in the way.
    #[must_use]
    pub fn lock_test(
        &self,
        client: u64,
        file: &FileKey,
        owner: &Bytes,
        kind: LockType,
        span: Span,
    ) -> Option<Denied> {
        let own =
            self.clients.get(&client).and_then(|c| c.locks.get(&(owner.clone(), file.clone()))).copied();
        let r = self.files.get(file)?.ranges.conflict(&span, exclusive(kind), own)?;
        Some(self.denied(&r))
    }

    /// LOCKU (RFC 8881 section 18.12).
    ///
    /// # Errors
    /// The stateid's errors.
    pub fn unlock(
        &mut self,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
        span: Span,
    ) -> Result<Stateid, NfsStat> {
        let Which::Lock(id) = self.find_on(client, file, stateid)? else {
            return Err(NfsStat::NFS4ERR_BAD_STATEID);
        };
        if let Some(f) = self.files.get_mut(file) {
            if f.ranges.len() >= limits::LOCKS_PER_FILE_MAX {
                return Err(NfsStat::NFS4ERR_NOSPC);
            }
            f.ranges.clear(&span, id);
        }
        Ok(self.bumped(id))
    }
}
