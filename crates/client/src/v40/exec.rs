//! Executes one COMPOUND of NFSv4.1, leg by leg.

use bytes::Bytes;
use landfast_nfs::v4::args::{CloseArgs, CreateHow, OpenArgs, OpenClaim, OpenHow, owner};
use landfast_nfs::v4::attr::Bitmap;
use landfast_nfs::v4::flags::{OPEN4_RESULT_CONFIRM, OPEN4_SHARE_ACCESS_BOTH};
use landfast_nfs::v4::res::{OpenDelegation, OpenRes};
use landfast_nfs::v4::v40::OpenConfirmArgs;
use landfast_nfs::v4::{ArgOp, ChangeInfo, CompoundRes, FileHandle, NfsStat, OpNum, ResBody, ResOp, Stateid};
use tracing::debug;

use super::client::{Client, Replied, Turn};
use super::locking::Locking;
use super::owners::Owner;
use super::place::{HandlePath, Place, uses_current, uses_saved};
use crate::error::SessionError;
use crate::limits;
use crate::patience::Patience;

/// What an operation of a leg means for the COMPOUND.
#[derive(Debug)]
pub(super) enum Role {
    /// It leads to the place.
    Hidden,
    /// It is an operation of the COMPOUND.
    Own,
    Open(usize),
    /// As `Own`, with the anonymous stateid in place of this open's.
    Instead(usize),
    /// The CLOSE of an open from an earlier COMPOUND.
    Close(Owner, Stateid),
    /// LOCK or LOCKU.
    Lock(Locking),
    /// Answered here: the CLOSE of this open is sent at the end.
    Later(usize),
}

#[derive(Debug)]
pub(super) enum Step {
    Send(ArgOp),
    Given(ResOp),
}

#[derive(Debug)]
struct Entry {
    deed: Step,
    role: Role,
    /// The operation of the COMPOUND that it is or leads to.
    index: usize,
    /// Where the COMPOUND was before it.
    before: (Place, Place),
}

/// An OPEN of this COMPOUND.
#[derive(Debug)]
struct Opened {
    /// Until the open is closed or the number is in doubt.
    owner: Option<Owner>,
    way: HandlePath,
    /// Set by the result of the OPEN.
    stateid: Option<Stateid>,
    confirm: bool,
    delegation: Option<Stateid>,
    /// The index of its result.
    result: usize,
    close: bool,
    /// It needs its own stateid, not the anonymous one.
    real: bool,
}

/// Decides which operations may share a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Uses an owner's number.
    Numbered,
    Names,
    /// Changes names, and an operation after it could make a repetition mean something else.
    Alone,
    /// May be executed twice.
    Plain,
}

/// What happens after the reply to a leg.
enum Continue {
    GoOn,
    Stop(NfsStat),
}

pub(super) struct Exec<'a> {
    pub(super) client: &'a Client,
    ops: Vec<ArgOp>,
    /// The next operation for a leg.
    next: usize,
    leg: Vec<Entry>,
    at: Place,
    saved: Place,
    opened: Vec<Opened>,
    out: Vec<ResOp>,
    /// Operations before this one may have been executed.
    doubtful: usize,
    tries: u32,
    /// This COMPOUND asks a server that is in its grace period, on behalf of all.
    asking: Option<Turn<'a>>,
}

impl<'a> Exec<'a> {
    pub(super) fn new(client: &'a Client, ops: Vec<ArgOp>) -> Exec<'a> {
        Exec {
            client,
            ops,
            next: 0,
            leg: Vec::new(),
            at: Place::default(),
            saved: Place::default(),
            opened: Vec::new(),
            out: Vec::new(),
            doubtful: 0,
            tries: 0,
            asking: None,
        }
    }

    /// Executes all operations up to the first that fails. Fails when it is not known whether something was executed,
    /// or when nothing was.
    pub(super) async fn run(mut self) -> Result<CompoundRes, SessionError> {
        let status = loop {
            while self.next < self.ops.len() && self.fits() {
                self.put().await?;
            }
            if self.leg.is_empty() {
                break NfsStat::NFS4_OK;
            }
            if let Continue::Stop(status) = self.flush().await? {
                break status;
            }
        };
        let all: Vec<usize> = (0..self.opened.len()).collect();
        self.confirm(&all).await;
        self.close().await;
        for open in self.opened.iter_mut().filter(|o| !o.close) {
            if let (Some(owner), Some(stateid)) = (open.owner.take(), open.stateid) {
                self.client.keep(stateid, owner);
            }
        }
        Ok(CompoundRes { status, tag: Bytes::new(), results: self.out })
    }

    fn kind(&self, op: &ArgOp) -> Kind {
        match op {
            ArgOp::Open(args) if !matches!(args.claim, OpenClaim::Fh) => Kind::Numbered,
            ArgOp::Close(args) if args.open_stateid != Stateid::CURRENT => Kind::Numbered,
            ArgOp::Lock(_) | ArgOp::Locku(_) => Kind::Numbered,
            ArgOp::Create(_) | ArgOp::Remove(_) | ArgOp::Link(_) => Kind::Names,
            ArgOp::Rename(_) => Kind::Alone,
            _ => Kind::Plain,
        }
    }

    /// Whether the next operation may join the leg.
    fn fits(&self) -> bool {
        if self.leg.is_empty() {
            return true;
        }
        let kind = self.kind(&self.ops[self.next]);
        let rivals = self.leg.iter().filter(|e| !matches!(e.role, Role::Hidden)).any(|e| {
            let other = self.kind(&self.ops[e.index]);
            match (kind, other) {
                (Kind::Plain, _) | (_, Kind::Plain) => false,
                (Kind::Alone, _) | (_, Kind::Alone) => true,
                (kind, other) => kind != other,
            }
        });
        !rivals && self.leg.len() < self.client.leg_ops()
    }

    pub(super) fn enter(&mut self, deed: Step, role: Role) {
        let before = (self.at.clone(), self.saved.clone());
        self.leg.push(Entry { deed, role, index: self.next, before });
    }

    fn hidden(&mut self, op: ArgOp) {
        self.enter(Step::Send(op), Role::Hidden);
    }

    pub(super) fn given(&mut self, status: NfsStat, body: ResBody, role: Role) {
        let op = self.ops[self.next].op();
        self.enter(Step::Given(ResOp { op, status, body }), role);
    }

    /// Goes to where the COMPOUND is, as far as the following operations need it.
    fn walk(&mut self) {
        let rest = &self.ops[self.next..];
        let (saved, current) = (uses_saved(rest), uses_current(rest));
        if let Some(way) = self.saved.way.clone().filter(|_| saved) {
            way.ops().for_each(|op| self.hidden(op.clone()));
            self.hidden(ArgOp::Savefh);
        }
        if let Some(way) = self.at.way.clone().filter(|_| current) {
            way.ops().for_each(|op| self.hidden(op.clone()));
        }
    }

    /// Adds the next operation to the leg.
    async fn put(&mut self) -> Result<(), SessionError> {
        if self.leg.is_empty() {
            self.walk();
        }
        let op = self.ops[self.next].clone();
        let number = self.leg.len();
        match op {
            ArgOp::Putfh(_) | ArgOp::Putrootfh | ArgOp::Putpubfh => {
                self.own(op.clone());
                self.at = Place::at(op);
            }
            ArgOp::Lookup(_) | ArgOp::Lookupp => {
                self.own(op.clone());
                self.at.open = None;
                if let Some(way) = &mut self.at.way {
                    way.step(op);
                }
            }
            ArgOp::Savefh => {
                self.own(op);
                self.saved = self.at.clone();
            }
            ArgOp::Restorefh => {
                self.own(op);
                self.at = self.saved.clone();
            }
            ArgOp::Getfh => {
                self.own(op);
                if let Some(way) = &mut self.at.way {
                    way.told(number);
                    if let Some(open) = self.at.open.and_then(|n| self.opened.get_mut(n)) {
                        open.way = way.clone();
                    }
                }
            }
            ArgOp::Open(args) => self.open(args).await?,
            ArgOp::Close(args) => self.put_close(&args),
            ArgOp::Lock(args) => self.put_lock(args).await?,
            ArgOp::Lockt(args) => self.put_lock_test(args).await?,
            ArgOp::Locku(args) => self.put_unlock(args),
            ArgOp::Create(args) => {
                let name = args.name.clone();
                self.own(ArgOp::Create(args));
                self.at.open = None;
                if let Some(way) = &mut self.at.way {
                    way.name(&name);
                }
            }
            ArgOp::Read(mut args) => {
                let role = self.stateid(&mut args.stateid);
                self.enter(Step::Send(ArgOp::Read(args)), role);
            }
            ArgOp::Write(mut args) => {
                let role = self.stateid(&mut args.stateid);
                self.enter(Step::Send(ArgOp::Write(args)), role);
            }
            ArgOp::Setattr(mut args) => {
                let role = self.stateid(&mut args.stateid);
                self.enter(Step::Send(ArgOp::Setattr(args)), role);
            }
            ArgOp::Access(_)
            | ArgOp::Commit(_)
            | ArgOp::Getattr(_)
            | ArgOp::Link(_)
            | ArgOp::Nverify(_)
            | ArgOp::Readdir(_)
            | ArgOp::Readlink
            | ArgOp::Remove(_)
            | ArgOp::Rename(_)
            | ArgOp::Secinfo(_)
            | ArgOp::Verify(_) => self.own(op),
            _ => self.given(NfsStat::NFS4ERR_NOTSUPP, ResBody::Empty, Role::Own),
        }
        self.next += 1;
        Ok(())
    }

    pub(super) fn own(&mut self, op: ArgOp) {
        self.enter(Step::Send(op), Role::Own);
    }

    /// NFSv4.0 has no current stateid.
    fn stateid(&self, stateid: &mut Stateid) -> Role {
        if *stateid != Stateid::CURRENT {
            return Role::Own;
        }
        *stateid = Stateid::ANONYMOUS;
        match self.at.open.and_then(|n| Some((n, self.opened.get(n)?))) {
            Some((_, Opened { real: true, stateid: Some(real), .. })) => {
                *stateid = *real;
                Role::Own
            }
            Some((n, _)) => Role::Instead(n),
            None => Role::Own,
        }
    }

    async fn open(&mut self, mut args: OpenArgs) -> Result<(), SessionError> {
        let OpenClaim::Null(name) = &args.claim else {
            let no_open = OpenRes {
                stateid: Stateid::ANONYMOUS,
                cinfo: ChangeInfo::default(),
                rflags: 0,
                attrset: Bitmap::default(),
                delegation: OpenDelegation::None,
            };
            let (status, body) = match args.claim {
                OpenClaim::Fh => (NfsStat::NFS4_OK, ResBody::Open(no_open)),
                _ => (NfsStat::NFS4ERR_NOTSUPP, ResBody::Empty),
            };
            self.given(status, body, Role::Own);
            return Ok(());
        };
        if matches!(args.openhow, OpenHow::Create(CreateHow::Exclusive41 { .. })) {
            self.given(NfsStat::NFS4ERR_NOTSUPP, ResBody::Empty, Role::Own);
            return Ok(());
        }
        let name = name.clone();
        let (clientid, taken) = self.client.take_owner().await?;
        args.seqid = taken.seqid;
        args.share_access &= OPEN4_SHARE_ACCESS_BOTH;
        args.owner = owner(clientid, &taken.name);
        let number = self.opened.len();
        self.enter(Step::Send(ArgOp::Open(args)), Role::Open(number));
        let mut way = self.at.way.clone().unwrap_or_else(|| HandlePath::to(ArgOp::Putrootfh));
        way.name(&name);
        self.at = Place { way: Some(way.clone()), open: Some(number) };
        self.opened.push(Opened {
            owner: Some(taken),
            way,
            stateid: None,
            confirm: false,
            delegation: None,
            result: 0,
            close: false,
            real: false,
        });
        Ok(())
    }

    fn put_close(&mut self, args: &CloseArgs) {
        let done = ResBody::Close(Stateid::INVALID);
        match (args.open_stateid, self.at.open) {
            (Stateid::CURRENT, Some(open)) => {
                self.given(NfsStat::NFS4_OK, done, Role::Later(open));
                self.at.open = None;
            }
            (Stateid::CURRENT, None) => {
                self.given(NfsStat::NFS4ERR_BAD_STATEID, ResBody::Empty, Role::Own);
            }
            (Stateid::ANONYMOUS, _) => self.given(NfsStat::NFS4_OK, done, Role::Own),
            (open_stateid, _) => match self.client.owner_of(open_stateid) {
                Some(owner) => {
                    let close = CloseArgs { seqid: owner.seqid, open_stateid };
                    self.enter(Step::Send(ArgOp::Close(close)), Role::Close(owner, open_stateid));
                }
                // It is lost with its client ID.
                None => self.given(NfsStat::NFS4ERR_BAD_STATEID, ResBody::Empty, Role::Own),
            },
        }
    }

    /// Sends the leg and reads its reply.
    async fn flush(&mut self) -> Result<Continue, SessionError> {
        let leg = std::mem::take(&mut self.leg);
        let ops: Vec<ArgOp> = leg
            .iter()
            .filter_map(|e| match &e.deed {
                Step::Send(op) => Some(op.clone()),
                Step::Given(_) => None,
            })
            .collect();
        let Replied { reply, again } = self.send(&ops).await?;
        if again {
            self.doubtful = self.doubtful.max(self.next);
        }
        let whole = reply.status;
        let mut results = reply.results.into_iter();
        let mut told: Vec<(usize, FileHandle)> = Vec::new();
        let mut entries = leg.into_iter().enumerate();
        while let Some((number, entry)) = entries.next() {
            let result = match entry.deed {
                Step::Given(result) => result,
                Step::Send(ref op) => match results.next() {
                    Some(result) => result,
                    None if whole.is_ok() => {
                        return Err(SessionError::Unknown("the server's reply ends too early".into()));
                    }
                    // Refused before the first operation was executed.
                    None => ResOp { op: op.op(), status: whole, body: ResBody::Empty },
                },
            };
            if result.status.is_ok() {
                if let ResBody::Getfh(fh) = &result.body {
                    told.push((number, fh.clone()));
                }
                self.accept(entry.role, result);
                continue;
            }
            let rest: Vec<Entry> = entries.map(|(_, e)| e).collect();
            self.not_reached(rest);
            (self.at, self.saved) = entry.before;
            self.learn(&told);
            if result.status != NfsStat::NFS4ERR_GRACE {
                self.asking = None;
            }
            return self.failed(entry.role, entry.index, result, ops.len()).await;
        }
        self.asking = None;
        self.learn(&told);
        Ok(Continue::GoOn)
    }

    async fn send(&self, ops: &[ArgOp]) -> Result<Replied, SessionError> {
        if ops.is_empty() {
            let reply = CompoundRes { status: NfsStat::NFS4_OK, tag: Bytes::new(), results: Vec::new() };
            return Ok(Replied { reply, again: false });
        }
        let mut patience = Patience::new();
        let mut before = false;
        loop {
            let mut replied = self.client.send(ops).await?;
            replied.again |= before;
            // The first transmission is still being executed.
            let busy = replied.reply.status == NfsStat::NFS4ERR_DELAY && replied.reply.results.len() <= 1;
            if !(busy && replied.again && patience.wait().await) {
                return Ok(replied);
            }
            before = true;
        }
    }

    fn accept(&mut self, role: Role, result: ResOp) {
        match role {
            Role::Hidden => return,
            Role::Own | Role::Instead(_) => {}
            Role::Later(n) => {
                if let Some(open) = self.opened.get_mut(n) {
                    open.close = true;
                }
            }
            Role::Open(n) => {
                if let (Some(open), ResBody::Open(res)) = (self.opened.get_mut(n), &result.body) {
                    open.stateid = Some(res.stateid);
                    open.confirm = res.rflags & OPEN4_RESULT_CONFIRM != 0;
                    open.delegation = match &res.delegation {
                        OpenDelegation::Read(given) => Some(given.stateid),
                        OpenDelegation::Write(given) => Some(given.stateid),
                        _ => None,
                    };
                    open.result = self.out.len();
                    answered(&mut open.owner, result.status);
                    self.client.opened();
                }
            }
            Role::Close(owner, stateid) => {
                self.client.forget_locks(stateid);
                self.settle(owner, result.status);
            }
            Role::Lock(locking) => locking.answered(self.client, result.status, &result.body),
        }
        self.out.push(result);
    }

    /// The request of an owner without an open was answered.
    fn settle(&self, owner: Owner, status: NfsStat) {
        let mut owner = Some(owner);
        answered(&mut owner, status);
        if let Some(owner) = owner {
            self.client.give_back(owner);
        }
    }

    fn not_reached(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            match entry.role {
                Role::Open(n) => {
                    if let Some(owner) = self.opened.get_mut(n).and_then(|o| o.owner.take()) {
                        self.client.give_back(owner);
                    }
                }
                Role::Close(owner, stateid) => self.client.keep(stateid, owner),
                Role::Lock(locking) => locking.not_reached(self.client),
                Role::Hidden | Role::Own | Role::Instead(_) | Role::Later(_) => {}
            }
        }
    }

    /// Handles that GETFH returned replace the paths to them. Handles that were not returned are unknown in the next
    /// leg.
    fn learn(&mut self, told: &[(usize, FileHandle)]) {
        let places = [&mut self.at.way, &mut self.saved.way].into_iter().flatten();
        for way in places.chain(self.opened.iter_mut().map(|o| &mut o.way)) {
            told.iter().for_each(|(number, fh)| way.learn(*number, fh));
            way.forget();
        }
    }

    /// An operation failed: it ends the COMPOUND or is tried in another way.
    async fn failed(
        &mut self,
        role: Role,
        index: usize,
        result: ResOp,
        sent: usize,
    ) -> Result<Continue, SessionError> {
        let status = result.status;
        let again = index < self.doubtful;
        let op = self.ops[index].op();
        self.tries += 1;
        let may_try = self.tries <= limits::LEG_TRIES_MAX;
        // From here on it is the next operation, unless it was answered.
        self.next = index;
        let unknown = || {
            let why =
                format!("it was sent again after its reply was lost, and {status} may be of the second time");
            Err(SessionError::Unknown(why))
        };
        let closes = matches!(role, Role::Close(..));
        match role {
            Role::Open(n) => {
                let mut owner = self.opened.get_mut(n).and_then(|o| o.owner.take());
                let generation = owner.as_ref().map_or(0, |o| o.generation);
                answered(&mut owner, status);
                if let Some(owner) = owner {
                    self.client.give_back(owner);
                }
                match status {
                    NfsStat::NFS4ERR_STALE_CLIENTID | NfsStat::NFS4ERR_EXPIRED if may_try => {
                        self.client.renew_client(generation).await?;
                        return if again { unknown() } else { Ok(Continue::GoOn) };
                    }
                    NfsStat::NFS4ERR_BAD_SEQID if may_try => {
                        return if again { unknown() } else { Ok(Continue::GoOn) };
                    }
                    _ => {}
                }
            }
            Role::Instead(n) if may_try && wants_an_open(status) => {
                self.confirm(&[n]).await;
                if let Some(open) = self.opened.get_mut(n).filter(|o| o.stateid.is_some() && !o.real) {
                    open.real = true;
                    return Ok(Continue::GoOn);
                }
            }
            Role::Close(owner, stateid) => {
                self.client.forget_locks(stateid);
                self.settle(owner, status);
            }
            Role::Lock(locking) => locking.answered(self.client, status, &result.body),
            _ => {}
        }
        if matches!(
            status,
            NfsStat::NFS4ERR_GRACE | NfsStat::NFS4ERR_STALE_STATEID | NfsStat::NFS4ERR_EXPIRED
        ) {
            self.client.look_after_client().await;
        }
        // DELAY does not say whether an earlier transmission was executed.
        let in_doubt =
            again && matches!(op, OpNum::CREATE | OpNum::LINK | OpNum::RENAME | OpNum::REMOVE | OpNum::OPEN);
        if status == NfsStat::NFS4ERR_GRACE
            && !in_doubt
            && !closes
            && self.client.grace(&mut self.asking).await
        {
            self.tries -= 1;
            return Ok(Continue::GoOn);
        }
        match (op, status) {
            (OpNum::REMOVE, NfsStat::NFS4ERR_NOENT) if again && result.op == op => {
                self.out.push(ResOp {
                    op,
                    status: NfsStat::NFS4_OK,
                    body: ResBody::Remove(ChangeInfo::default()),
                });
                self.next = index + 1;
                return Ok(Continue::GoOn);
            }
            // A server may execute the first OPEN of an owner again (RFC 7530 section 16.18.5).
            (OpNum::CREATE | OpNum::LINK | OpNum::OPEN, NfsStat::NFS4ERR_EXIST)
            | (OpNum::RENAME, NfsStat::NFS4ERR_NOENT)
            // DELAY does not say whether an earlier transmission was executed.
            | (
                OpNum::CREATE | OpNum::LINK | OpNum::RENAME | OpNum::REMOVE | OpNum::OPEN,
                NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE,
            )
                if again && result.op == op =>
            {
                return unknown();
            }
            (_, NfsStat::NFS4ERR_RESOURCE) if may_try && self.client.shorter_legs(sent) => {
                return Ok(Continue::GoOn);
            }
            _ => {}
        }
        // A failure on the path to an operation is the operation's failure.
        let result = if result.op == op { result } else { ResOp::failed(op, status) };
        self.out.push(result);
        Ok(Continue::Stop(status))
    }

    /// Sends OPEN_CONFIRM for those of these opens whose owners the server does not know. The next use of the stateid
    /// shows a failure.
    async fn confirm(&mut self, which: &[usize]) {
        let of = |open: &Opened| {
            let (owner, stateid) = (open.owner.as_ref()?, open.stateid?);
            open.confirm
                .then(|| ArgOp::OpenConfirm(OpenConfirmArgs { open_stateid: stateid, seqid: owner.seqid }))
        };
        self.each(which, of, |open, out, body| {
            open.confirm = false;
            if let Some(ResBody::OpenConfirm(stateid)) = body {
                open.stateid = Some(stateid);
                if let Some(ResBody::Open(res)) = out.get_mut(open.result).map(|r| &mut r.body) {
                    res.stateid = stateid;
                    res.rflags &= !OPEN4_RESULT_CONFIRM;
                }
            }
        })
        .await;
    }

    /// Closes all opens that are to be closed. Returns delegations, which nobody asked for.
    async fn close(&mut self) {
        let all: Vec<usize> = (0..self.opened.len()).collect();
        self.each(&all, |open| open.delegation.map(ArgOp::DelegReturn), |open, _, _| open.delegation = None)
            .await;
        let of = |open: &Opened| {
            let (owner, stateid) = (open.owner.as_ref()?, open.stateid?);
            open.close.then(|| ArgOp::Close(CloseArgs { seqid: owner.seqid, open_stateid: stateid }))
        };
        let mut idle = Vec::new();
        self.each(&all, of, |open, _, body| {
            open.stateid = None;
            idle.extend(open.owner.take().filter(|_| body.is_some()));
        })
        .await;
        idle.into_iter().for_each(|owner| self.client.give_back(owner));
    }

    /// Sends one more operation for each of these opens, as many in a leg as fit. `done` gets each open when its
    /// operation was answered: `None` if it was refused. DELAY is no answer.
    async fn each(
        &mut self,
        which: &[usize],
        of: impl Fn(&Opened) -> Option<ArgOp>,
        mut done: impl FnMut(&mut Opened, &mut Vec<ResOp>, Option<ResBody>),
    ) {
        let mut patience = Patience::new();
        loop {
            let mut ops = Vec::new();
            let mut whose: Vec<(usize, usize)> = Vec::new();
            for n in which {
                let Some((open, op)) = self.opened.get(*n).and_then(|o| Some((o, of(o)?))) else { continue };
                let len = open.way.ops().count() + 1;
                if !whose.is_empty() && ops.len() + len > self.client.leg_ops() {
                    break;
                }
                ops.extend(open.way.ops().cloned());
                ops.push(op);
                whose.push((*n, len));
            }
            if whose.is_empty() {
                return;
            }
            let reply = match self.send(&ops).await {
                Ok(replied) => replied.reply,
                Err(e) => {
                    debug!("opens are left to the lease: {e}");
                    for (n, _) in whose {
                        self.opened[n].owner = None;
                    }
                    return;
                }
            };
            let whole = reply.status;
            let mut results = reply.results.into_iter();
            for (n, len) in whose {
                let mine: Vec<ResOp> = results.by_ref().take(len).collect();
                let open = &mut self.opened[n];
                let status = mine.last().map_or(whole, |r| r.status);
                let reached = mine.len() == len;
                let numbered = !matches!(mine.last().map(|r| r.op), Some(OpNum::DELEGRETURN));
                if reached && numbered {
                    answered(&mut open.owner, status);
                }
                let later = matches!(status, NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE);
                let shorter = status == NfsStat::NFS4ERR_RESOURCE && self.client.shorter_legs(ops.len());
                if (later || shorter) && patience.wait().await {
                    // Sent again.
                } else if status.is_ok() && reached {
                    done(open, &mut self.out, mine.into_iter().next_back().map(|r| r.body));
                } else {
                    debug!("an open is lost: {status}");
                    open.owner = None;
                    done(open, &mut self.out, None);
                }
                if !status.is_ok() || !reached {
                    break;
                }
            }
        }
    }
}

/// The owner's request was answered. An owner whose number is in doubt is dropped.
fn answered(owner: &mut Option<Owner>, status: NfsStat) {
    *owner = owner.take().and_then(|mut owner| owner.answered(status).then_some(owner));
}

/// The statuses with which some servers demand an open for reading and writing: by the mode of a new file, by another's
/// share reservation or lock, or always.
fn wants_an_open(status: NfsStat) -> bool {
    matches!(
        status,
        NfsStat::NFS4ERR_ACCESS
            | NfsStat::NFS4ERR_PERM
            | NfsStat::NFS4ERR_LOCKED
            | NfsStat::NFS4ERR_BAD_STATEID
            | NfsStat::NFS4ERR_OPENMODE
            | NfsStat::NFS4ERR_SHARE_DENIED
    )
}
