//! Opens: open owners, share reservations, and the stateids of opens and locks (RFC 8881 sections 8.2, 9.7, 18.16).
//!
//! A stateid's `other` is the mark of the server instance and a number that is never used twice. So a stateid of a
//! former instance is recognised and gets `BAD_STATEID` (`STALE_STATEID` in NFSv4.0); it never names another file. The
//! number cannot be guessed ([`super::ids`]).

use super::bugs::{Bug, bug};
use super::delegations::{Delegation, Delegations, Right};
use super::expired_stateids::ExpiredStateids;
pub use super::ids::FileKey;
use super::ids::{Ids, Kind, Secret};
use super::logged_locks::{Former, Logged, LoggedLocks, UNKNOWN_SEQID};
use super::nlm::waiters::Waiters;
use super::preserved::Preserved;
use super::ranges::Ranges;
use super::refusals::{AtLimit, Refusals};
use super::share::is_over_its_share;
use crate::limited::{Limit, Limits};
use bytes::Bytes;
use landfast_nfs::v4::{NfsStat, Stateid};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Access or deny bits: `OPEN4_SHARE_ACCESS_*`, `OPEN4_SHARE_DENY_*`.
pub type Share = u8;
pub const READ: Share = 1;
pub const WRITE: Share = 2;
pub const BOTH: Share = 3;

/// The open of a file by an open owner (RFC 8881 section 9.1.1: at most one for each pair).
#[derive(Debug)]
pub(super) struct Open<F> {
    pub(super) client: u64,
    pub(super) owner: Bytes,
    pub(super) file: FileKey,
    pub(super) seqid: u32,
    pub(super) access: Share,
    pub(super) deny: Share,
    /// Each (access, deny) pair that an OPEN has asked for and no OPEN_DOWNGRADE has taken back: bit `access * 4 +
    /// deny`.
    pub(super) seen: u16,
    /// What the shell opened, with the access that it was opened for. At most two, neither covering the other; none for an
    /// access for which there was no descriptor to spare.
    pub(super) handles: Vec<(Share, F)>,
    /// Lock states that were created under this open.
    pub(super) lock_states: Vec<u64>,
    /// It is a delegation.
    pub(super) delegation: Option<Delegation>,
    /// The mark of the instance that gave it.
    pub(super) mark: u32,
    /// A former instance of the server gave it: see [`super::former`].
    pub(super) former: Option<Former>,
    /// An OPEN_DOWNGRADE took reading away from it, which its number does not say ([`OPENED_FOR_WRITING`]).
    pub(super) narrowed: bool,
}

/// A lock owner's locks on one file, named by a lock stateid.
#[derive(Debug)]
pub(super) struct LockState {
    pub(super) client: u64,
    pub(super) owner: Bytes,
    pub(super) file: FileKey,
    /// The open that it was created under; `None` for NLM, whose locks need no open.
    pub(super) open: Option<u64>,
    pub(super) seqid: u32,
    /// The mark of the instance that gave it.
    pub(super) mark: u32,
    /// Its note, if it stands in the log.
    pub(super) logged: Option<Logged>,
}

#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) opens: Vec<u64>,
    pub(super) ranges: Ranges,
}

impl File {
    pub(super) fn unused(&self) -> bool {
        self.opens.is_empty() && self.ranges.len() == 0
    }
}

#[derive(Debug, Default)]
pub(super) struct ClientState {
    pub(super) opens: HashMap<(Bytes, FileKey), u64>,
    pub(super) locks: HashMap<(Bytes, FileKey), u64>,
    pub(super) ranges: usize,
    /// How many of its opens deny others something.
    pub(super) denying: usize,
    /// How many of its lock states found no room in the log, and were not noted at a tick since.
    pub(super) unlogged_locks: usize,
    /// How many of its opens are for writing only, and their numbers do not say so.
    pub(super) narrowed: usize,
    /// How many handles its opens keep.
    kept: usize,
    /// The address that it last opened a file from, if known.
    pub(super) from: Option<IpAddr>,
}

/// Added to an instance's epoch it gives the instance's mark in stateids. A young server has a small epoch, and clients
/// and test suites make up stateids with small numbers: these must look like another instance's.
pub(super) const MARK: u32 = 0x4c46_0000;

/// The bit of an open's number which says that its first OPEN was for writing only. After a restart that is all that is known of such an open: a READ by its
/// stateid is one that others may deny (RFC 8881 section 9.1.2).
pub(super) const OPENED_FOR_WRITING: u64 = 1 << 63;

#[derive(Debug)]
pub struct Files<F> {
    pub(super) mark: u32,
    pub(super) limits: Limits,
    ids: Ids,
    pub(super) opens: HashMap<u64, Open<F>>,
    pub(super) locks: HashMap<u64, LockState>,
    pub(super) files: HashMap<FileKey, File>,
    pub(super) clients: HashMap<u64, ClientState>,
    pub(super) expired: ExpiredStateids,
    pub(super) ranges: usize,
    /// How many handles all opens keep.
    kept: usize,
    pub waiters: Waiters,
    pub delegations: Delegations,
    pub(super) logged_locks: LoggedLocks,
    /// Delegations that stood in the log at the last restart, of clients that have to reclaim. Others may have an open beside one ([`super::State::log_beside`]).
    pub(super) unreclaimed: HashMap<FileKey, (u64, Right)>,
    /// Which opens stand in the log, and which files are kept without a name.
    pub preserved: Preserved,
    /// Refusals at a limit, of this and of all other state.
    pub refusals: Refusals,
    /// What the shell had opened for clients that are gone. The shell closes it after it has released the state lock.
    pub closed: Vec<F>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareConflict {
    pub client: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenOrLock {
    Open(u64),
    Lock(u64),
}

/// The number in a stateid.
pub(super) fn number(stateid: &Stateid) -> u64 {
    let [_, _, _, _, number @ ..] = stateid.other;
    u64::from_be_bytes(number)
}

/// The mark of the instance in a stateid.
pub(super) fn mark(stateid: &Stateid) -> u32 {
    let [mark @ .., _, _, _, _, _, _, _, _] = stateid.other;
    u32::from_be_bytes(mark)
}

pub(super) fn bump(seqid: &mut u32) -> u32 {
    *seqid = seqid.wrapping_add(1).max(1);
    *seqid
}

impl<F> Open<F> {
    /// An open that gives no access yet.
    pub(super) fn new(client: u64, owner: Bytes, file: FileKey, mark: u32) -> Self {
        Open {
            client,
            owner,
            file,
            seqid: 0,
            access: 0,
            deny: 0,
            seen: 0,
            handles: Vec::new(),
            lock_states: Vec::new(),
            delegation: None,
            mark,
            former: None,
            narrowed: false,
        }
    }
}

impl<F: Clone> Files<F> {
    pub(super) fn handle(open: &Open<F>, want: Share) -> Option<F> {
        open.handles.iter().find(|(a, _)| a & want == want).map(|(_, f)| f.clone())
    }

    /// The handle for I/O under this stateid (RFC 8881 sections 18.22.3, 18.32.3). Reading under a write-only open is
    /// allowed, since a client's page cache needs it, unless another open denies it (section 9.1.2). Then there may be no handle, nor where descriptors are
    /// short, and the shell opens one.
    /// Errors: Those of [`Files::find`]; `OPENMODE` when the open does not allow `want`; `LOCKED` when another denies it ([`Files::check_denied_read`]).
    pub fn io(
        &self,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
        want: Share,
    ) -> Result<Option<F>, NfsStat> {
        let id = self.open_of(client, file, stateid)?;
        let open = self.opens.get(&id).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
        if want == WRITE && open.access & WRITE == 0 {
            return Err(NfsStat::NFS4ERR_OPENMODE);
        }
        // An open for reading stands beside none that denies it.
        if open.access & want == 0 && self.check_read(file, id).is_err() {
            return Err(NfsStat::NFS4ERR_LOCKED);
        }
        Ok(Self::handle(open, want))
    }
}

impl<F> Files<F> {
    pub fn new(epoch: u32, limits: Limits, secret: Secret) -> Self {
        Files {
            mark: epoch.wrapping_add(MARK),
            limits,
            ids: Ids::new(secret, Kind::State),
            opens: HashMap::new(),
            locks: HashMap::new(),
            files: HashMap::new(),
            clients: HashMap::new(),
            expired: Default::default(),
            ranges: 0,
            kept: 0,
            waiters: Waiters::default(),
            delegations: Delegations::default(),
            logged_locks: LoggedLocks::default(),
            unreclaimed: HashMap::new(),
            preserved: Preserved::default(),
            refusals: Refusals::default(),
            closed: Vec::new(),
        }
    }

    /// The most opens of one client, and the most locked ranges of one client.
    pub fn most(&self) -> (usize, usize) {
        let most = |f: fn(&ClientState) -> usize| self.clients.values().map(f).max().unwrap_or(0);
        (most(|c| c.opens.len()), most(|c| c.ranges))
    }

    pub fn len(&self) -> usize {
        self.opens.len()
    }

    /// How many handles the opens keep, each of which holds a descriptor.
    pub fn kept(&self) -> usize {
        self.kept
    }

    pub fn is_empty(&self) -> bool {
        self.opens.is_empty()
    }

    /// The number of a client's opens. An NFSv4 client without opens has no locks; an NLM host may have some.
    pub fn opens_of(&self, client: u64) -> usize {
        self.clients.get(&client).map_or(0, |c| c.opens.len())
    }

    pub(super) fn fresh(&mut self) -> u64 {
        loop {
            let id = self.ids.fresh();
            // A former instance's numbers may still be in use.
            if !self.opens.contains_key(&id) && !self.locks.contains_key(&id) {
                return id;
            }
        }
    }

    /// Enters an open under its number, without a descriptor.
    pub(super) fn enter_open(&mut self, id: u64, open: Open<F>) {
        let of_client = self.clients.entry(open.client).or_default();
        of_client.opens.insert((open.owner.clone(), open.file.clone()), id);
        of_client.denying += usize::from(open.deny != 0);
        self.files.entry(open.file.clone()).or_default().opens.push(id);
        self.opens.insert(id, open);
    }

    /// A stateid for a copy; it names no open and no lock.
    pub fn copy_stateid(&mut self) -> Stateid {
        let id = self.fresh();
        self.stateid(id, 1)
    }

    pub(super) fn stateid(&self, id: u64, seqid: u32) -> Stateid {
        Self::marked(self.mark, id, seqid)
    }

    pub(super) fn marked(mark: u32, id: u64, seqid: u32) -> Stateid {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&mark.to_be_bytes());
        other[4..].copy_from_slice(&id.to_be_bytes());
        Stateid { seqid, other }
    }

    /// Finds what a stateid names and checks that its seqid is current (RFC 8881 section 8.2.2: 0 stands for the
    /// current one).
    /// Errors: `BAD_STATEID` for a stateid of another client, of a former instance, or with a seqid not yet issued;
    /// `OLD_STATEID`; `DELEG_REVOKED`.
    pub fn find(&self, client: u64, stateid: &Stateid) -> Result<OpenOrLock, NfsStat> {
        const BAD: NfsStat = NfsStat::NFS4ERR_BAD_STATEID;
        let (mark, id) = (mark(stateid), number(stateid));
        if self.delegations.revocations.is_revoked(id, mark, client) {
            return Err(NfsStat::NFS4ERR_DELEG_REVOKED);
        }
        let (which, given_by, owner, seqid) = if let Some(o) = self.opens.get(&id) {
            let of = if o.former.is_some() && bug(Bug::FormerOfAnother) { client } else { o.client };
            (OpenOrLock::Open(id), o.mark, of, o.seqid)
        } else if let Some(l) = self.locks.get(&id) {
            (OpenOrLock::Lock(id), l.mark, l.client, l.seqid)
        } else {
            return Err(BAD);
        };
        if owner != client || mark != given_by {
            return Err(BAD);
        }
        match stateid.seqid {
            0 => Ok(which),
            _ if seqid == UNKNOWN_SEQID => Ok(which),
            s if s == seqid => Ok(which),
            s if (seqid.wrapping_sub(s) as i32) > 0 => Err(NfsStat::NFS4ERR_OLD_STATEID),
            _ => Err(BAD),
        }
    }

    /// [`Files::find`], restricted to state on this file.
    /// Errors: Those of [`Files::find`]; `BAD_STATEID` for another file's.
    pub fn find_on(&self, client: u64, file: &FileKey, stateid: &Stateid) -> Result<OpenOrLock, NfsStat> {
        let which = self.find(client, stateid)?;
        let on = match which {
            OpenOrLock::Open(id) => self.opens.get(&id).map(|o| &o.file),
            OpenOrLock::Lock(id) => self.locks.get(&id).map(|l| &l.file),
        };
        if on == Some(file) { Ok(which) } else { Err(NfsStat::NFS4ERR_BAD_STATEID) }
    }

    /// The open that a stateid names, or under which the locks are that it names.
    /// Errors: Those of [`Files::find_on`]; `BAD_STATEID` for locks of NLM.
    pub(super) fn open_of(&self, client: u64, file: &FileKey, stateid: &Stateid) -> Result<u64, NfsStat> {
        match self.find_on(client, file, stateid)? {
            OpenOrLock::Open(id) => Ok(id),
            OpenOrLock::Lock(id) => {
                self.locks.get(&id).and_then(|l| l.open).ok_or(NfsStat::NFS4ERR_BAD_STATEID)
            }
        }
    }

    /// [`Files::find_on`] for an operation that takes only the stateid of an open.
    /// Errors: Those of [`Files::find_on`]; `BAD_STATEID` for a lock's or a delegation's.
    pub fn find_open(&self, client: u64, file: &FileKey, stateid: &Stateid) -> Result<u64, NfsStat> {
        match self.find_on(client, file, stateid)? {
            OpenOrLock::Open(id) if !self.is_delegated(id) => Ok(id),
            _ => Err(NfsStat::NFS4ERR_BAD_STATEID),
        }
    }

    pub fn present(&self, which: OpenOrLock) -> Option<Stateid> {
        match which {
            OpenOrLock::Open(id) => self.opens.get(&id).map(|o| Self::marked(o.mark, id, o.seqid)),
            OpenOrLock::Lock(id) => self.locks.get(&id).map(|l| Self::marked(l.mark, id, l.seqid)),
        }
    }

    /// Checks an OPEN against all share reservations, the same owner's included (RFC 8881 section 9.7). The error names
    /// the holder.
    pub fn check_share(&self, file: &FileKey, access: Share, deny: Share) -> Result<(), ShareConflict> {
        let Some(f) = self.files.get(file) else { return Ok(()) };
        // A delegation denies nothing; what it is in the way of is decided before ([`super::delegations`]).
        for o in f.opens.iter().filter_map(|id| self.opens.get(id)).filter(|o| o.delegation.is_none()) {
            if o.deny & access != 0 || deny & o.access != 0 {
                return Err(ShareConflict { client: o.client });
            }
        }
        Ok(())
    }

    /// Checks I/O without an open against share reservations (RFC 8881 section 8.2.3: the anonymous stateid). The error
    /// names the holder.
    pub fn check_anonymous(&self, file: &FileKey, want: Share) -> Result<(), ShareConflict> {
        let Some(f) = self.files.get(file) else { return Ok(()) };
        match f.opens.iter().filter_map(|id| self.opens.get(id)).find(|o| o.deny & want != 0) {
            Some(o) => Err(ShareConflict { client: o.client }),
            None => Ok(()),
        }
    }

    /// Checks a READ under an open that is for writing only against the share reservations of all other opens. The error names the holder.
    fn check_read(&self, file: &FileKey, open: u64) -> Result<(), ShareConflict> {
        let of_file = self.files.get(file).map(|f| f.opens.as_slice()).unwrap_or_default();
        let others = of_file.iter().filter(|id| **id != open).filter_map(|id| self.opens.get(id));
        match others.filter(|_| !bug(Bug::DeniedRead)).find(|o| o.deny & READ != 0) {
            Some(o) => Err(ShareConflict { client: o.client }),
            None => Ok(()),
        }
    }

    /// Whoever denies the READ that [`Files::io`] has refused with `LOCKED`.
    pub fn check_denied_read(
        &self,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
    ) -> Result<(), ShareConflict> {
        self.open_of(client, file, stateid).map_or(Ok(()), |open| self.check_read(file, open))
    }

    /// Whether this owner has the file open.
    pub fn has_open(&self, client: u64, owner: &Bytes, file: &FileKey) -> bool {
        self.clients.get(&client).is_some_and(|c| c.opens.contains_key(&(owner.clone(), file.clone())))
    }

    fn opens_from(&self, from: IpAddr) -> usize {
        self.clients.values().filter(|c| c.from == Some(from)).map(|c| c.opens.len()).sum()
    }

    /// Whether a client at this address may have one more open. An open that it already has (`known`) may always
    /// change. An address may have as many opens as are free: one alone leaves half of them, a second leaves a quarter,
    /// so a newcomer always finds some. The error says which limit was reached.
    pub fn room_for_open(
        &self,
        client: u64,
        known: Option<(&Bytes, &FileKey)>,
        from: IpAddr,
    ) -> Result<(), AtLimit> {
        let of_client = self.clients.get(&client);
        let is_known = |(owner, file): (&Bytes, &FileKey)| {
            of_client.is_some_and(|c| c.opens.contains_key(&(owner.clone(), file.clone())))
        };
        if known.is_some_and(is_known) {
            return Ok(());
        }
        if self.opens_of(client) >= self.limits[Limit::ClientOpens] {
            return Err(AtLimit::ClientOpens);
        }
        let (used, max) = (self.opens.len(), self.limits[Limit::Opens]);
        if used >= max {
            Err(AtLimit::Opens)
        } else if is_over_its_share(used, max, 1, || self.opens_from(from)) {
            Err(AtLimit::AddressOpens)
        } else {
            Ok(())
        }
    }

    /// Whether opens of this address may keep one more handle: a share like that of opens.
    fn may_keep(&self, from: IpAddr) -> bool {
        let of_address = || self.clients.values().filter(|c| c.from == Some(from)).map(|c| c.kept).sum();
        !is_over_its_share(self.kept, self.limits[Limit::OpenDescriptors], 1, of_address)
    }

    /// [`Files::open`] for a client at this address; errors as of [`Files::room_for_open`]. The handle is kept if the address
    /// may keep one more.
    #[allow(clippy::too_many_arguments)] // those of `open`
    pub fn open_from(
        &mut self,
        from: IpAddr,
        file: &FileKey,
        client: u64,
        owner: &Bytes,
        access: Share,
        deny: Share,
        handle: Option<F>,
    ) -> Result<Stateid, NfsStat> {
        let (handle, spare) = if self.may_keep(from) { (handle, None) } else { (None, handle) };
        self.closed.extend(spare);
        let opened = self.open(file, client, owner, access, deny, handle)?;
        if let Some(c) = self.clients.get_mut(&client) {
            c.from = Some(from);
        }
        Ok(opened)
    }

    /// Opens the file, or widens the owner's open of it. The caller has called [`Files::check_share`].
    /// Errors: `NOSPC` at the limits of opens.
    pub fn open(
        &mut self,
        file: &FileKey,
        client: u64,
        owner: &Bytes,
        access: Share,
        deny: Share,
        handle: Option<F>,
    ) -> Result<Stateid, NfsStat> {
        let key = (owner.clone(), file.clone());
        let known = self.clients.get(&client).and_then(|c| c.opens.get(&key)).copied();
        let id = match known {
            Some(id) => id,
            None => {
                let of_client = self.opens_of(client) >= self.limits[Limit::ClientOpens];
                if of_client || self.opens.len() >= self.limits[Limit::Opens] {
                    self.refusals.at(if of_client { AtLimit::ClientOpens } else { AtLimit::Opens });
                    return Err(NfsStat::NFS4ERR_NOSPC);
                }
                let id = self.fresh() | if access == WRITE { OPENED_FOR_WRITING } else { 0 };
                let mark = self.mark;
                self.enter_open(id, Open::new(client, owner.clone(), file.clone(), mark));
                let gone = self.preserved.gone();
                self.end_unused_of_owner(client, owner, file);
                self.replace_former(id);
                if self.preserved.gone() > gone {
                    // The log must not forget what the owner had before it knows this one: a file without a name would go.
                    self.preserved.urgent.push(id);
                }
                id
            }
        };
        let Some(open) = self.opens.get_mut(&id) else { return Err(NfsStat::NFS4ERR_SERVERFAULT) };
        open.access |= access;
        if open.access & READ != 0
            && std::mem::take(&mut open.narrowed)
            && let Some(c) = self.clients.get_mut(&client)
        {
            c.narrowed -= 1;
        }
        if open.deny == 0
            && deny != 0
            && let Some(c) = self.clients.get_mut(&client)
        {
            c.denying += 1;
        }
        open.deny |= deny;
        open.seen |= 1 << (access * 4 + deny);
        if let Some(handle) = handle
            && !open.handles.iter().any(|(a, _)| a & access == access)
        {
            let before = open.handles.len();
            open.handles.retain(|(a, _)| access & a != *a);
            open.handles.push((access, handle));
            let after = open.handles.len();
            self.kept = self.kept + after - before;
            if let Some(c) = self.clients.get_mut(&client) {
                c.kept = c.kept + after - before;
            }
        }
        let seqid = bump(&mut open.seqid);
        Ok(Self::marked(open.mark, id, seqid))
    }

    /// OPEN_DOWNGRADE (RFC 8881 section 18.18) to the union of some of the OPENs in effect.
    /// Errors: Those of [`Files::find_open`]; `INVAL` if there is no such union.
    pub fn downgrade(
        &mut self,
        client: u64,
        file: &FileKey,
        stateid: &Stateid,
        access: Share,
        deny: Share,
    ) -> Result<Stateid, NfsStat> {
        let id = self.find_open(client, file, stateid)?;
        let new = self.downgrade_to(client, id, stateid, access, deny)?;
        if let Some(open) = self.opens.get_mut(&id)
            && access == WRITE
            && id & OPENED_FOR_WRITING == 0
            && !std::mem::replace(&mut open.narrowed, true)
            && let Some(c) = self.clients.get_mut(&client)
        {
            c.narrowed += 1;
        }
        Ok(new)
    }

    fn downgrade_to(
        &mut self,
        client: u64,
        id: u64,
        stateid: &Stateid,
        access: Share,
        deny: Share,
    ) -> Result<Stateid, NfsStat> {
        let open = self.opens.get_mut(&id).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
        if open.former.is_some() {
            return open.downgrade_former(id, stateid, access, deny);
        }
        let (mut kept, mut union) = (0u16, (0, 0));
        for a in 1..4u8 {
            for d in 0..4u8 {
                let bit = 1 << (a * 4 + d);
                if open.seen & bit != 0 && a & !access == 0 && d & !deny == 0 {
                    kept |= bit;
                    union = (union.0 | a, union.1 | d);
                }
            }
        }
        if union != (access, deny) || kept == 0 {
            return Err(NfsStat::NFS4ERR_INVAL);
        }
        if open.deny != 0
            && deny == 0
            && let Some(c) = self.clients.get_mut(&client)
        {
            c.denying -= 1;
        }
        (open.access, open.deny, open.seen) = (access, deny, kept);
        let seqid = bump(&mut open.seqid);
        Ok(Self::marked(open.mark, id, seqid))
    }

    /// CLOSE (RFC 8881 section 18.2): removes the open and the locks created under it.
    pub fn close(&mut self, client: u64, file: &FileKey, stateid: &Stateid) -> Result<Vec<F>, NfsStat> {
        let id = self.find_open(client, file, stateid)?;
        Ok(self.drop_open(id))
    }

    pub(super) fn close_owner(&mut self, client: u64, owner: &Bytes, file: &FileKey) {
        let key = (owner.clone(), file.clone());
        if let Some(id) = self.clients.get(&client).and_then(|c| c.opens.get(&key)).copied() {
            self.drop_open(id);
        }
    }

    /// Sets the share reservation of an owner's open. Returns the former one, if there is such an open.
    pub(super) fn set_share(
        &mut self,
        file: &FileKey,
        client: u64,
        owner: &Bytes,
        access: Share,
        deny: Share,
    ) -> Option<(Share, Share)> {
        let key = (owner.clone(), file.clone());
        let id = self.clients.get(&client)?.opens.get(&key)?;
        let open = self.opens.get_mut(id)?;
        if let Some(c) = self.clients.get_mut(&client) {
            c.denying = c.denying + usize::from(deny != 0) - usize::from(open.deny != 0);
        }
        Some((std::mem::replace(&mut open.access, access), std::mem::replace(&mut open.deny, deny)))
    }

    /// Removes an open. Returns what the shell had opened for it.
    pub(super) fn drop_open(&mut self, id: u64) -> Vec<F> {
        let Some(open) = self.opens.remove(&id) else { return Vec::new() };
        if let Some(delegation) = &open.delegation {
            self.delegations.dropped(id, open.client, delegation);
            if open.mark != self.mark {
                self.delegations.ended_of_former.insert(id);
            }
        }
        for lock in &open.lock_states {
            self.drop_lock_state(*lock);
        }
        self.kept -= open.handles.len();
        if let Some(c) = self.clients.get_mut(&open.client) {
            c.kept -= open.handles.len();
            c.denying -= usize::from(open.deny != 0);
            c.narrowed -= usize::from(open.narrowed);
            c.opens.remove(&(open.owner, open.file.clone()));
            if c.opens.is_empty() && c.locks.is_empty() {
                self.clients.remove(&open.client);
            }
        }
        if let Some(f) = self.files.get_mut(&open.file) {
            f.opens.retain(|o| *o != id);
            if f.unused() {
                self.files.remove(&open.file);
            }
        }
        if open.delegation.as_ref().is_some_and(|d| d.logged.is_some()) {
            self.delegation_ended(open.client, &open.file);
        }
        self.open_ended(id, &open.file);
        open.handles.into_iter().map(|(_, f)| f).collect()
    }

    /// Removes all opens, locks and delegations on the files that `which` selects. Returns what the shell had opened for them, and of each delegation the
    /// client, number and mark.
    pub(super) fn remove_files(
        &mut self,
        which: impl Fn(&FileKey) -> bool,
    ) -> (Vec<F>, Vec<(u64, u64, u32)>) {
        let ids: Vec<u64> = self.opens.iter().filter(|(_, o)| which(&o.file)).map(|(id, _)| *id).collect();
        self.preserved.remove_files(&which);
        let delegation = |id: &u64| {
            let open = self.opens.get(id).filter(|o| o.delegation.is_some())?;
            Some((open.client, *id, open.mark))
        };
        let delegations = ids.iter().filter_map(delegation).collect();
        let handles = ids.into_iter().flat_map(|id| self.drop_open(id)).collect();
        // Those of NLM have no open.
        let locks: Vec<u64> = self.locks.iter().filter(|(_, l)| which(&l.file)).map(|(id, _)| *id).collect();
        locks.into_iter().for_each(|id| self.drop_lock_state(id));
        self.waiters.remove_files(&which);
        (handles, delegations)
    }

    /// Whether it has anything that may be in somebody's way.
    pub fn holds_anything(&self, client: u64) -> bool {
        self.delegations.of_client(client).iter().any(|n| *n > 0)
            || self.clients.get(&client).is_some_and(|c| !c.opens.is_empty() || !c.locks.is_empty())
    }

    /// The files and directories that this client has delegations of.
    pub(super) fn delegated_to(&self, client: u64) -> HashSet<FileKey> {
        let ids = self.clients.get(&client).into_iter().flat_map(|c| c.opens.values());
        let delegations = ids.filter_map(|id| self.opens.get(id)).filter(|open| open.delegation.is_some());
        delegations.map(|open| open.file.clone()).collect()
    }

    pub fn remove_client(&mut self, client: u64) {
        self.delegations.forget_client(client);
        self.end_unused_of_client(client);
        let Some(c) = self.clients.get(&client) else { return };
        let (opens, locks): (Vec<u64>, Vec<u64>) =
            (c.opens.values().copied().collect(), c.locks.values().copied().collect());
        for id in opens {
            let handles = self.drop_open(id);
            self.closed.extend(handles);
        }
        // Lock states without an open.
        for id in locks {
            self.drop_lock_state(id);
        }
        self.clients.remove(&client);
    }

    /// FREE_STATEID (RFC 8881 section 18.38): frees a lock stateid that holds no lock, or a revoked delegation's.
    /// Errors: Those of [`Files::find`]; `LOCKS_HELD` for an open, or for locks that are held.
    pub fn free(&mut self, client: u64, stateid: &Stateid) -> Result<(), NfsStat> {
        let found = match self.find(client, stateid) {
            Err(NfsStat::NFS4ERR_DELEG_REVOKED) => {
                self.delegations.revocations.free(client, number(stateid));
                return Ok(());
            }
            found => found?,
        };
        match found {
            OpenOrLock::Open(_) => Err(NfsStat::NFS4ERR_LOCKS_HELD),
            OpenOrLock::Lock(id) => {
                let file = self.locks.get(&id).map(|l| l.file.clone()).ok_or(NfsStat::NFS4ERR_BAD_STATEID)?;
                if self.files.get(&file).is_some_and(|f| f.ranges.holds(id)) {
                    return Err(NfsStat::NFS4ERR_LOCKS_HELD);
                }
                self.drop_lock_state(id);
                Ok(())
            }
        }
    }
}
