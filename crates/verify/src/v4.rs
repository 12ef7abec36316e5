//! NFS versions 4.0, 4.1 and 4.2 (RFC 7530, RFC 8881, RFC 7862, RFC 8276): one slot of one session, or one open owner.

use crate::client::{Attr, Fh, How, Made, Nfs, Set, Written, patiently, verifier};
use crate::error::{Error, Meaning, Result};
use crate::judge::SeenKind;
use crate::limits::{OPENS_MAX, READDIR_BYTES, REPLY_BYTES_MAX};
use crate::plan::Abilities;
use crate::url::Target;
use crate::wire::{Procedure, Wire};
use landfast_nfs::v4::args::{
    CallbackSecParms, CloseArgs, CommitArgs, CreateArgs, CreateHow, CreateSessionArgs, CreateType,
    ExchangeIdArgs, OpenArgs, OpenClaim, OpenHow, ReadArgs, ReaddirArgs, RenameArgs, SequenceArgs,
    SetattrArgs, SetxattrArgs, SetxattrOption, StateProtectArgs, WriteArgs, owner,
};
use landfast_nfs::v4::attr::number;
use landfast_nfs::v4::data::RangeArgs;
use landfast_nfs::v4::v40::{
    CALLBACKS, CallbackClient, ClientAddr, NfsClientId, OpenConfirmArgs, SetclientidArgs,
    SetclientidConfirmArgs,
};
use landfast_nfs::v4::{
    ArgOp, AttrValues, Bitmap, ChannelAttrs, ClientOwner, CompoundArgs, CompoundRes, FileHandle, FileType,
    NfsStat, NfsTime, OpNum, Opaque1024, PROC_COMPOUND, ResBody, ResOp, SessionId, SetTime, StableHow,
    Stateid, VERSION, flags,
};
use landfast_rpc::rpcbind::universal;
use landfast_xdr::{Bytes, Decode};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A client.
pub struct Client {
    wire: Wire,
    minor: u32,
    path: Vec<Vec<u8>>,
    target: Target,
    clientid: u64,
    session: SessionId,
    /// The fore channel as the server granted it (versions 4.1 and 4.2).
    granted: Option<ChannelAttrs>,
    /// The last number of each slot.
    slots: Vec<u32>,
    /// The open owner's next number (version 4.0).
    owner_seq: u32,
    opens: VecDeque<(Fh, Stateid)>,
}

const ATTRS: Bitmap =
    Bitmap::of(&[number::TYPE, number::SIZE, number::FILEID, number::MODE, number::TIME_MODIFY]);

/// Who a client is, and what it asks of its session.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    /// What its name begins with.
    pub who: &'static str,
    /// Operations in a COMPOUND.
    pub operations: u32,
    /// Requests under way.
    pub slots: u32,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// A port of this machine where callbacks of version 4.0 are answered; without one nobody listens.
    pub callbacks: Option<u16>,
}

impl Wants {
    const ONE_BY_ONE: Wants =
        Wants { who: "landfast verify", operations: 16, slots: 1, request_bytes: 64 << 10, callbacks: None };
}

const OWNER: &[u8] = b"landfast verify";

fn put(fh: &Fh) -> ArgOp {
    ArgOp::Putfh(FileHandle(Bytes::copy_from_slice(fh)))
}

fn name(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn missing(what: &str) -> Error {
    Error::Nonsense(format!("no result of {what}"))
}

/// That an operation failed.
#[must_use]
pub fn refused(op: OpNum, status: NfsStat) -> Error {
    let meaning = match status {
        NfsStat::NFS4ERR_NOENT | NfsStat::NFS4ERR_NOXATTR => Meaning::NoEntry,
        NfsStat::NFS4ERR_EXIST => Meaning::Exists,
        NfsStat::NFS4ERR_NOTEMPTY => Meaning::NotEmpty,
        NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_BADHANDLE | NfsStat::NFS4ERR_FHEXPIRED => Meaning::Stale,
        NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE => Meaning::Later,
        NfsStat::NFS4ERR_NOTSUPP | NfsStat::NFS4ERR_ATTRNOTSUPP => Meaning::NotSupported,
        _ => Meaning::Other,
    };
    // No operation at all: all of them together.
    let name = if op == OpNum::ILLEGAL { Some("COMPOUND") } else { op.name() };
    let op = name.map_or_else(|| op.0.to_string(), str::to_owned);
    Error::Refused { op, status: status.to_string(), meaning }
}

/// The result of the first operation that `pick` takes.
///
/// # Errors
/// [`Error::Nonsense`]: there is none, `what` is missing.
pub fn find<T>(results: Vec<ResOp>, what: &str, pick: impl Fn(ResBody) -> Option<T>) -> Result<T> {
    results.into_iter().find_map(|r| pick(r.body)).ok_or_else(|| missing(what))
}

fn handle(results: &[ResOp]) -> Result<Fh> {
    let fh = results.iter().find_map(|r| match &r.body {
        ResBody::Getfh(fh) => Some(fh.0.to_vec()),
        _ => None,
    });
    fh.ok_or_else(|| missing("GETFH"))
}

fn attrs(results: &[ResOp]) -> Result<Attr> {
    let fattr = results.iter().find_map(|r| match &r.body {
        ResBody::Getattr(f) => Some(f),
        _ => None,
    });
    let values = AttrValues::from_fattr(fattr.ok_or_else(|| missing("GETATTR"))?);
    let v = values.map_err(|_| Error::Nonsense("attributes that do not decode".into()))?;
    let kind = match v.kind {
        Some(FileType::Reg) => SeenKind::File,
        Some(FileType::Dir) => SeenKind::Dir,
        Some(FileType::Lnk) => SeenKind::Symlink,
        _ => SeenKind::Other,
    };
    let mtime = v.time_modify.map_or((0, 0), |t| (t.seconds, t.nseconds));
    match (v.fileid, v.mode, v.size) {
        (Some(fileid), Some(mode), Some(size)) => Ok(Attr { kind, mode: mode & 0o7777, size, fileid, mtime }),
        _ => Err(Error::Nonsense("the server has no file ids, modes or sizes".into())),
    }
}

fn mode_of(mode: u32) -> AttrValues {
    AttrValues { mode: Some(mode), ..AttrValues::default() }
}

impl Client {
    /// Connects, and makes itself known.
    ///
    /// # Errors
    /// No server, or it refuses.
    pub fn connect(target: &Target, minor: u32, patience: Duration) -> Result<Client> {
        Self::connect_as(&Wants::ONE_BY_ONE, target, minor, patience)
    }

    /// The same for others, with wants of their own.
    ///
    /// # Errors
    /// No server, or it refuses.
    pub fn connect_as(wants: &Wants, target: &Target, minor: u32, patience: Duration) -> Result<Client> {
        let wire = Wire::connect(&target.addresses(target.port)?, patience)?;
        let mut client = Client {
            wire,
            minor,
            path: target.path.clone(),
            target: target.clone(),
            clientid: 0,
            session: [0; 16],
            granted: None,
            slots: vec![0],
            owner_seq: 0,
            opens: VecDeque::new(),
        };
        let verifier = verifier()?;
        let id = Opaque1024(Bytes::from(format!("{} {}", wants.who, crate::op::hex(&verifier))));
        if minor == 0 {
            client.set_clientid(wants, verifier, id)?;
        } else {
            client.make_session(wants, verifier, id)?;
        }
        Ok(client)
    }

    /// RFC 7530 section 16.33.5.
    fn set_clientid(&mut self, wants: &Wants, verifier: [u8; 8], id: Opaque1024) -> Result<()> {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let here = wants.callbacks.map(|port| Ok(SocketAddr::new(self.wire.local_ip()?, port)));
        let here = here.transpose()?.unwrap_or(nowhere);
        let netid: &[u8] = if here.is_ipv6() { b"tcp6" } else { b"tcp" };
        let location = ClientAddr { netid: Bytes::from_static(netid), addr: Bytes::from(universal(here)) };
        let args = SetclientidArgs {
            client: NfsClientId { verifier, id },
            callback: CallbackClient { program: CALLBACKS, location },
            callback_ident: 0,
        };
        let results = patiently(|| self.raw(vec![ArgOp::Setclientid(args.clone())]))?;
        let ok = find(results, "SETCLIENTID", |b| match b {
            ResBody::Setclientid(r) => Some(r),
            _ => None,
        })?;
        self.clientid = ok.clientid;
        let confirm = SetclientidConfirmArgs { clientid: ok.clientid, confirm: ok.confirm };
        patiently(|| self.raw(vec![ArgOp::SetclientidConfirm(confirm.clone())])).map(drop)
    }

    /// RFC 8881 sections 18.35, 18.36, 18.51.
    fn make_session(&mut self, wants: &Wants, verifier: [u8; 8], owner_id: Opaque1024) -> Result<()> {
        let args = ExchangeIdArgs {
            client_owner: ClientOwner { verifier, owner_id },
            flags: flags::EXCHGID4_FLAG_USE_NON_PNFS,
            state_protect: StateProtectArgs::None,
            client_impl_id: Vec::new(),
        };
        let results = patiently(|| self.raw(vec![ArgOp::ExchangeId(args.clone())]))?;
        let id = find(results, "EXCHANGE_ID", |b| match b {
            ResBody::ExchangeId(r) => Some(r),
            _ => None,
        })?;
        self.clientid = id.clientid;
        let fore = ChannelAttrs {
            max_request_size: wants.request_bytes,
            max_response_size: REPLY_BYTES_MAX as u32,
            max_response_size_cached: 4096,
            max_operations: wants.operations,
            max_requests: wants.slots,
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
            flags: 0,
            fore_chan_attrs: fore,
            back_chan_attrs: back,
            cb_program: CALLBACKS,
            sec_parms: vec![CallbackSecParms::None],
        };
        let results = patiently(|| self.raw(vec![ArgOp::CreateSession(args.clone())]))?;
        let session = find(results, "CREATE_SESSION", |b| match b {
            ResBody::CreateSession(r) => Some(r),
            _ => None,
        })?;
        self.session = session.sessionid;
        let granted = session.fore_chan_attrs;
        self.slots = vec![0; granted.max_requests.clamp(1, wants.slots.max(1)) as usize];
        self.granted = Some(granted);
        patiently(|| self.compound(vec![ArgOp::ReclaimComplete(false)])).map(drop)
    }

    /// A COMPOUND as it is: the results of all operations, or the failure of the one at which it stopped.
    fn raw(&mut self, ops: Vec<ArgOp>) -> Result<Vec<ResOp>> {
        let seq_ids: Vec<OpNum> = ops.iter().map(ArgOp::op).filter(|op| has_seqid(*op)).collect();
        let announced = ops.len() as u32;
        let args = CompoundArgs { tag: Bytes::new(), minor_version: self.minor, announced, ops };
        let to = Procedure { prog: landfast_nfs::PROGRAM, vers: VERSION, proc: PROC_COMPOUND };
        let reply = self.wire.call(to, &args)?;
        let res = CompoundRes::from_bytes(reply).map_err(|e| Error::Nonsense(e.to_string()))?;
        let counted =
            res.results.iter().filter(|r| seq_ids.contains(&r.op) && r.status.advances_seqid()).count();
        self.owner_seq = self.owner_seq.wrapping_add(counted as u32);
        match res.results.last() {
            _ if res.status.is_ok() => Ok(res.results),
            Some(last) => Err(refused(last.op, last.status)),
            None => Err(refused(OpNum::ILLEGAL, res.status)),
        }
    }

    /// The minor version.
    #[must_use]
    pub fn minor(&self) -> u32 {
        self.minor
    }

    /// Who this is to the server.
    #[must_use]
    pub fn clientid(&self) -> u64 {
        self.clientid
    }

    /// What the server granted of what was asked for; nothing without sessions.
    #[must_use]
    pub fn granted(&self) -> Option<&ChannelAttrs> {
        self.granted.as_ref()
    }

    /// The connection, for calls that are made beside this client's own.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// The next SEQUENCE of a slot, which has no call under way; `None` without sessions. This client's own calls use slot 0.
    pub fn sequence(&mut self, slot: usize) -> Option<ArgOp> {
        let highest_slotid = self.slots.len().saturating_sub(1) as u32;
        let last = self.slots.get_mut(slot).filter(|_| self.minor > 0)?;
        *last = last.wrapping_add(1);
        Some(ArgOp::Sequence(SequenceArgs {
            sessionid: self.session,
            sequenceid: *last,
            slotid: slot as u32,
            highest_slotid,
            // No call is ever sent again.
            cachethis: false,
        }))
    }

    /// The SEQUENCE itself failed: the server has not counted it (RFC 8881 section 18.46.3).
    pub fn not_counted(&mut self, slot: usize) {
        if let Some(last) = self.slots.get_mut(slot) {
            *last = last.wrapping_sub(1);
        }
    }

    /// Operations, behind a SEQUENCE where there are sessions; the results without its.
    ///
    /// # Errors
    /// The failure of the operation at which it stopped, or no answer.
    pub fn compound(&mut self, ops: Vec<ArgOp>) -> Result<Vec<ResOp>> {
        if self.minor == 0 {
            return self.raw(ops);
        }
        let mut all: Vec<ArgOp> = self.sequence(0).into_iter().collect();
        all.extend(ops);
        let mut results = match self.raw(all) {
            Err(e @ Error::Refused { .. }) if is_sequence(&e) => {
                self.not_counted(0);
                return Err(e);
            }
            done => done?,
        };
        if !results.is_empty() {
            results.remove(0);
        }
        Ok(results)
    }

    fn stateid(&self, fh: &Fh) -> Stateid {
        self.opens.iter().find(|(f, _)| f == fh).map_or(Stateid::ANONYMOUS, |(_, s)| *s)
    }

    fn close_oldest(&mut self) -> Result<()> {
        let Some((fh, open_stateid)) = self.opens.pop_front() else { return Ok(()) };
        let done = patiently(|| {
            let close = ArgOp::Close(CloseArgs { seqid: self.owner_seq, open_stateid });
            self.compound(vec![put(&fh), close])
        });
        match done {
            // A file that has been removed need not have its open any more.
            Err(e) if !e.is_gone() => Ok(()),
            done => done.map(drop),
        }
    }

    fn make(&mut self, dir: &Fh, name_: &str, kind: CreateType, attrs_: &AttrValues) -> Result<Made> {
        let create = CreateArgs { kind, name: name(name_), attrs: attrs_.to_fattr(&AttrValues::KNOWN) };
        let results =
            self.compound(vec![put(dir), ArgOp::Create(create), ArgOp::Getfh, ArgOp::Getattr(ATTRS)])?;
        Ok(Made { fh: handle(&results)?, fileid: attrs(&results)?.fileid, mode_set: true, looked_up: false })
    }
}

/// Operations of an open owner in version 4.0 (RFC 7530 section 9.1.7).
fn has_seqid(op: OpNum) -> bool {
    matches!(op, OpNum::OPEN | OpNum::CLOSE | OpNum::OPEN_CONFIRM)
}

fn is_sequence(e: &Error) -> bool {
    matches!(e, Error::Refused { op, .. } if op == "SEQUENCE")
}

impl Nfs for Client {
    fn base(&mut self) -> Result<(Fh, Attr)> {
        let mut ops = vec![ArgOp::Putrootfh];
        ops.extend(self.path.iter().map(|n| ArgOp::Lookup(Bytes::copy_from_slice(n))));
        ops.extend([ArgOp::Getfh, ArgOp::Getattr(ATTRS)]);
        let path = self.target.shown(usize::MAX);
        let results = patiently(|| self.compound(ops.clone()));
        let results = results.map_err(|why| match why.meaning() {
            Some(_) => Error::Path { path, why: Box::new(why) },
            None => why,
        })?;
        Ok((handle(&results)?, attrs(&results)?))
    }

    fn lookup(&mut self, dir: &Fh, name_: &str) -> Result<(Fh, Attr)> {
        let results =
            self.compound(vec![put(dir), ArgOp::Lookup(name(name_)), ArgOp::Getfh, ArgOp::Getattr(ATTRS)])?;
        Ok((handle(&results)?, attrs(&results)?))
    }

    fn getattr(&mut self, fh: &Fh) -> Result<Attr> {
        attrs(&self.compound(vec![put(fh), ArgOp::Getattr(ATTRS)])?)
    }

    fn create(&mut self, dir: &Fh, name_: &str, mode: u32, how: How) -> Result<Made> {
        while self.opens.len() >= OPENS_MAX {
            self.close_oldest()?;
        }
        let size = (how == How::Truncated).then_some(0);
        let attrs_ = AttrValues { size, ..mode_of(mode) }.to_fattr(&AttrValues::KNOWN);
        let exclusive = matches!(how, How::Exclusive(_));
        let how = match (how, self.minor) {
            (How::Guarded, _) => CreateHow::Guarded(attrs_),
            (How::Unchecked | How::Truncated, _) => CreateHow::Unchecked(attrs_),
            (How::Exclusive(verf), 0) => CreateHow::Exclusive(verf),
            (How::Exclusive(verf), _) => CreateHow::Exclusive41 { verf, attrs: attrs_ },
        };
        let no_delegation = if self.minor == 0 { 0 } else { flags::OPEN4_SHARE_ACCESS_WANT_NO_DELEG };
        let open = OpenArgs {
            seqid: self.owner_seq,
            share_access: flags::OPEN4_SHARE_ACCESS_BOTH | no_delegation,
            share_deny: flags::OPEN4_SHARE_DENY_NONE,
            owner: owner(self.clientid, OWNER),
            openhow: OpenHow::Create(how),
            claim: OpenClaim::Null(name(name_)),
        };
        let results =
            self.compound(vec![put(dir), ArgOp::Open(open), ArgOp::Getfh, ArgOp::Getattr(ATTRS)])?;
        let (fh, fileid) = (handle(&results)?, attrs(&results)?.fileid);
        let open = find(results, "OPEN", |b| match b {
            ResBody::Open(o) => Some(o),
            _ => None,
        })?;
        let mut stateid = open.stateid;
        if open.rflags & flags::OPEN4_RESULT_CONFIRM != 0 {
            let confirm = OpenConfirmArgs { open_stateid: stateid, seqid: self.owner_seq };
            let results = self.compound(vec![put(&fh), ArgOp::OpenConfirm(confirm)])?;
            stateid = find(results, "OPEN_CONFIRM", |b| match b {
                ResBody::OpenConfirm(s) => Some(s),
                _ => None,
            })?;
        }
        let mode_set = !exclusive || open.attrset.has(number::MODE);
        self.opens.push_back((fh.clone(), stateid));
        Ok(Made { fh, fileid, mode_set, looked_up: false })
    }

    fn mkdir(&mut self, dir: &Fh, name: &str, mode: u32) -> Result<Made> {
        self.make(dir, name, CreateType::Dir, &mode_of(mode))
    }

    fn symlink(&mut self, dir: &Fh, name: &str, text: &str) -> Result<Made> {
        let kind = CreateType::Lnk(Bytes::copy_from_slice(text.as_bytes()));
        self.make(dir, name, kind, &AttrValues::default())
    }

    fn write(&mut self, fh: &Fh, offset: u64, data: Vec<u8>, stable: bool) -> Result<Written> {
        let stable = if stable { StableHow::FileSync } else { StableHow::Unstable };
        let args = WriteArgs { stateid: self.stateid(fh), offset, stable, data: Bytes::from(data) };
        let results = self.compound(vec![put(fh), ArgOp::Write(args)])?;
        find(results, "WRITE", |b| match b {
            ResBody::Write(w) => Some(Written {
                count: w.count,
                stable: w.committed == StableHow::FileSync,
                verf: w.writeverf,
            }),
            _ => None,
        })
    }

    fn commit(&mut self, fh: &Fh) -> Result<[u8; 8]> {
        let results = self.compound(vec![put(fh), ArgOp::Commit(CommitArgs { offset: 0, count: 0 })])?;
        find(results, "COMMIT", |b| match b {
            ResBody::Commit(verf) => Some(verf),
            _ => None,
        })
    }

    fn set(&mut self, fh: &Fh, what: Set) -> Result<()> {
        let values = match what {
            Set::Mode(mode) => mode_of(mode),
            Set::Size(size) => AttrValues { size: Some(size), ..AttrValues::default() },
            Set::Mtime(seconds) => AttrValues {
                time_modify_set: Some(SetTime::ClientTime(NfsTime {
                    seconds: i64::from(seconds),
                    nseconds: 0,
                })),
                ..AttrValues::default()
            },
        };
        // Only a change of size is an I/O under the open (RFC 8881 section 18.30.3).
        let stateid = if matches!(what, Set::Size(_)) { self.stateid(fh) } else { Stateid::ANONYMOUS };
        let args = SetattrArgs { stateid, attrs: values.to_fattr(&AttrValues::KNOWN) };
        self.compound(vec![put(fh), ArgOp::Setattr(args)]).map(drop)
    }

    fn link(&mut self, fh: &Fh, dir: &Fh, name_: &str) -> Result<()> {
        self.compound(vec![put(fh), ArgOp::Savefh, put(dir), ArgOp::Link(name(name_))]).map(drop)
    }

    fn rename(&mut self, from: &Fh, old: &str, to: &Fh, new: &str) -> Result<()> {
        let names = RenameArgs { oldname: name(old), newname: name(new) };
        self.compound(vec![put(from), ArgOp::Savefh, put(to), ArgOp::Rename(names)]).map(drop)
    }

    fn remove(&mut self, dir: &Fh, name_: &str, _: bool) -> Result<()> {
        self.compound(vec![put(dir), ArgOp::Remove(name(name_))]).map(drop)
    }

    fn names(&mut self, dir: &Fh, max: usize) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let (mut cookie, mut cookieverf) = (0, [0; 8]);
        loop {
            let args = ReaddirArgs {
                cookie,
                cookieverf,
                dircount: READDIR_BYTES,
                maxcount: READDIR_BYTES,
                attr_request: Bitmap::of(&[number::FILEID]),
            };
            let results = self.compound(vec![put(dir), ArgOp::Readdir(args)])?;
            let ok = find(results, "READDIR", |b| match b {
                ResBody::Readdir(r) => Some(r),
                _ => None,
            })?;
            let last = ok.entries.last().map(|e| e.cookie);
            names.extend(ok.entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()));
            match last {
                Some(next) if !ok.eof && names.len() < max => (cookie, cookieverf) = (next, ok.cookieverf),
                _ => return Ok(names),
            }
        }
    }

    fn read(&mut self, fh: &Fh, offset: u64, count: u32) -> Result<(Vec<u8>, bool)> {
        let args = ReadArgs { stateid: Stateid::ANONYMOUS, offset, count };
        let results = self.compound(vec![put(fh), ArgOp::Read(args)])?;
        find(results, "READ", |b| match b {
            ResBody::Read(r) => Some((r.data.to_vec(), r.eof)),
            _ => None,
        })
    }

    fn readlink(&mut self, fh: &Fh) -> Result<String> {
        let results = self.compound(vec![put(fh), ArgOp::Readlink])?;
        find(results, "READLINK", |b| match b {
            ResBody::Readlink(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            _ => None,
        })
    }

    fn set_xattr(&mut self, fh: &Fh, key: &str, value: Option<Vec<u8>>) -> Result<()> {
        let op = match value {
            Some(value) => ArgOp::Setxattr(SetxattrArgs {
                option: SetxattrOption::Either,
                key: name(key),
                value: Bytes::from(value),
            }),
            None => ArgOp::Removexattr(name(key)),
        };
        self.compound(vec![put(fh), op]).map(drop)
    }

    fn new_xattr(&mut self, fh: &Fh, key: &str, value: Vec<u8>) -> Result<()> {
        let option = SetxattrOption::Create;
        let args = SetxattrArgs { option, key: name(key), value: Bytes::from(value) };
        self.compound(vec![put(fh), ArgOp::Setxattr(args)]).map(drop)
    }

    fn allocate(&mut self, fh: &Fh, len: u64) -> Result<()> {
        let args = RangeArgs { stateid: self.stateid(fh), offset: 0, length: len };
        self.compound(vec![put(fh), ArgOp::Allocate(args)]).map(drop)
    }

    fn close_all(&mut self) -> Result<()> {
        while !self.opens.is_empty() {
            self.close_oldest()?;
        }
        Ok(())
    }

    fn xattr(&mut self, fh: &Fh, key: &str) -> Result<Option<Vec<u8>>> {
        match self.compound(vec![put(fh), ArgOp::Getxattr(name(key))]) {
            Ok(results) => find(results, "GETXATTR", |b| match b {
                ResBody::Getxattr(value) => Some(Some(value.to_vec())),
                _ => None,
            }),
            Err(Error::Refused { status, .. }) if status == NfsStat::NFS4ERR_NOXATTR.to_string() => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn abilities(&mut self) -> Result<Abilities> {
        let exclusive_is_bare = self.minor == 0;
        if self.minor < 2 {
            return Ok(Abilities { xattrs: false, exclusive_is_bare });
        }
        let (fh, _) = self.base()?;
        let asked = ArgOp::Getattr(Bitmap::of(&[number::XATTR_SUPPORT]));
        let results = patiently(|| self.compound(vec![put(&fh), asked.clone()]))?;
        let fattr = find(results, "GETATTR", |b| match b {
            ResBody::Getattr(f) => Some(f),
            _ => None,
        })?;
        let xattrs = AttrValues::from_fattr(&fattr).is_ok_and(|v| v.xattr_support == Some(true));
        Ok(Abilities { xattrs, exclusive_is_bare })
    }

    fn leave(&mut self) {
        while !self.opens.is_empty() {
            if self.close_oldest().is_err() {
                return;
            }
        }
        if self.minor > 0 {
            // A client that never comes back would keep the next server in its grace period.
            let _ = self.raw(vec![ArgOp::DestroySession(self.session)]);
            let _ = self.raw(vec![ArgOp::DestroyClientid(self.clientid)]);
        }
    }
}
