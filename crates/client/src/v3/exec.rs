//! Executes one COMPOUND, operation by operation.

use bytes::Bytes;
use landfast_nfs::mount::MountStat;
use landfast_nfs::v3::args::{
    CommitArgs, CreateArgs, CreateHow, LinkArgs, MkdirArgs, MknodArgs, MknodWhat, ReadArgs, ReaddirArgs,
    ReaddirplusArgs, RenameArgs, SetattrArgs, SymlinkArgs, WriteArgs,
};
use landfast_nfs::v3::res::{
    AccessRes, CommitRes, FsstatRes, GetattrRes, LinkRes, LookupRes, MakeRes, PostOp, ReadRes, ReaddirRes,
    ReaddirplusRes, ReadlinkRes, RemoveRes, RenameRes, SetattrRes, WriteRes,
};
use landfast_nfs::v3::types::{DirOp, FileType as Type3};
use landfast_nfs::v3::{self, Call, FileHandle as Fh3, NfsStat3, Res};
use landfast_nfs::v4;
use landfast_nfs::v4::args::{CreateHow as CreateHow4, CreateType, OpenArgs, OpenClaim, OpenHow};
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::res::{CreateRes, DirEntry, OpenDelegation, OpenRes, ReaddirRes as Readdir4, ResOp};
use landfast_nfs::v4::{
    ArgOp, ChangeInfo, CompoundRes, Fattr, FileHandle, NfsStat, ResBody, StableHow, Stateid,
};

use landfast_xdr::Decode;

use super::convert::{change_info, fattr, sattr, status, values};
use super::locks;
use super::stop::{Done, Stop};
use super::wire::Wire;
use crate::error::SessionError;

/// What FSSTAT tells.
const SPACE: Bitmap = Bitmap::of(&[
    number::SPACE_TOTAL,
    number::SPACE_FREE,
    number::SPACE_AVAIL,
    number::FILES_TOTAL,
    number::FILES_FREE,
    number::FILES_AVAIL,
]);

/// The stateid of every open: NFSv3 has none.
const OPEN: Stateid = Stateid { seqid: 1, other: *b"NFSv3 stands" };

#[derive(Debug, Clone)]
enum Current {
    Nowhere,
    /// Above all exports that are known so far: MNT refused the path.
    Above(Vec<Bytes>),
    Object(Fh3, PostOp),
    /// An object by its path from the server's root: another export may be mounted below it.
    Rooted(Fh3, PostOp, Vec<Bytes>),
}

/// The result of a procedure; its status becomes the operation's.
fn ok<T, F>(res: Res<T, F>) -> Done<T> {
    match res {
        Res::Ok(ok) => Ok(ok),
        Res::Fail(s, _) => Err(Stop::Status(status(s))),
    }
}

pub(super) struct Exec<'a> {
    wire: &'a Wire,
    at: Current,
    saved: Current,
}

impl<'a> Exec<'a> {
    pub(super) fn new(wire: &'a Wire) -> Exec<'a> {
        Exec { wire, at: Current::Nowhere, saved: Current::Nowhere }
    }

    /// Executes all operations up to the first that fails. Fails when a reply is lost for good: then it is not known
    /// which operations were executed.
    pub(super) async fn run(mut self, ops: Vec<ArgOp>) -> Result<CompoundRes, SessionError> {
        let mut results = Vec::with_capacity(ops.len());
        let mut last = NfsStat::NFS4_OK;
        for op in ops {
            let number = op.op();
            match self.one_or_link(op).await {
                Ok(body) => results.push(ResOp { op: number, status: NfsStat::NFS4_OK, body }),
                Err(Stop::Denied(denied)) => {
                    last = NfsStat::NFS4ERR_DENIED;
                    results.push(ResOp { op: number, status: last, body: ResBody::Denied(denied) });
                    break;
                }
                Err(Stop::Status(status)) => {
                    let body = match number {
                        v4::OpNum::SETATTR => ResBody::Setattr(Bitmap::default()),
                        _ => ResBody::Empty,
                    };
                    results.push(ResOp { op: number, status, body });
                    last = status;
                    break;
                }
                Err(Stop::Session(e)) => return Err(e),
            }
        }
        Ok(CompoundRes { status: last, tag: Bytes::new(), results })
    }

    /// As `one`, with NFSv4's status where the cause is that the object is a symbolic link.
    async fn one_or_link(&mut self, op: ArgOp) -> Done<ResBody> {
        let data = matches!(op, ArgOp::Read(_) | ArgOp::Write(_) | ArgOp::Readdir(_));
        match self.one(op).await {
            Err(Stop::Status(NfsStat::NFS4ERR_INVAL | NfsStat::NFS4ERR_NOTDIR))
                if data && self.is_link().await? =>
            {
                Err(NfsStat::NFS4ERR_SYMLINK.into())
            }
            done => done,
        }
    }

    async fn is_link(&mut self) -> Done<bool> {
        Ok(self.look().await?.file_type == Type3::Lnk)
    }

    async fn one(&mut self, op: ArgOp) -> Done<ResBody> {
        match op {
            ArgOp::Putrootfh => self.at = self.mounted(Vec::new()).await?,
            ArgOp::Putfh(fh) => self.at = Current::Object(Fh3(fh.0), None),
            ArgOp::Savefh => self.saved = self.at.clone(),
            ArgOp::Restorefh => self.at = self.saved.clone(),
            ArgOp::Lookup(name) => self.lookup(name).await?,
            ArgOp::Lookupp => self.lookup(Bytes::from_static(b"..")).await?,
            ArgOp::Getfh => return Ok(ResBody::Getfh(FileHandle(self.object()?.0))),
            ArgOp::Getattr(mask) => return Ok(ResBody::Getattr(self.attrs(&mask).await?)),
            ArgOp::Verify(wanted) => self.compare(&wanted, true).await?,
            ArgOp::Nverify(wanted) => self.compare(&wanted, false).await?,
            ArgOp::Access(bits) => {
                let call = Call::Access(v3::args::AccessArgs { object: self.object()?, access: bits & 0x3f });
                let res = ok(self.wire.call::<AccessRes>(call).await?)?;
                return Ok(ResBody::Access(v4::res::AccessRes {
                    supported: bits & 0x3f,
                    access: res.access,
                }));
            }
            ArgOp::Readlink => {
                let call = Call::Readlink(self.object()?);
                return Ok(ResBody::Readlink(ok(self.wire.call::<ReadlinkRes>(call).await?)?.target));
            }
            ArgOp::Read(args) => {
                let call =
                    Call::Read(ReadArgs { file: self.object()?, offset: args.offset, count: args.count });
                let res = ok(self.wire.call::<ReadRes>(call).await?)?;
                self.learnt(res.attrs);
                return Ok(ResBody::Read(v4::res::ReadRes { eof: res.eof, data: res.data }));
            }
            ArgOp::Write(args) => return self.write(args).await,
            ArgOp::Commit(args) => {
                let call =
                    Call::Commit(CommitArgs { file: self.object()?, offset: args.offset, count: args.count });
                self.changed();
                let res = ok(self.wire.call::<CommitRes>(call).await?)?;
                self.learnt(res.wcc.after);
                return Ok(ResBody::Commit(res.verf));
            }
            ArgOp::Open(args) => return self.open(args).await,
            ArgOp::Close(_) => return Ok(ResBody::Close(Stateid::INVALID)),
            ArgOp::Create(args) => return self.create(args).await,
            ArgOp::Setattr(args) => {
                let attrs = sattr(&args.attrs)?;
                let call = Call::Setattr(SetattrArgs { object: self.object()?, attrs, guard: None });
                self.changed();
                let after = ok(self.wire.call::<SetattrRes>(call).await?)?.after;
                self.learnt(after);
                // Some servers ignore an owner that the caller may not set, and report success.
                let set = self.is_set(&args.attrs).await?;
                if !args.attrs.mask.minus(&set).is_empty() {
                    return Err(NfsStat::NFS4ERR_PERM.into());
                }
                return Ok(ResBody::Setattr(args.attrs.mask));
            }
            ArgOp::Remove(name) => {
                return Ok(ResBody::Remove(self.remove(name).await?));
            }
            ArgOp::Rename(args) => {
                let from = DirOp { dir: object(&self.saved)?, name: args.oldname };
                let to = DirOp { dir: self.object()?, name: args.newname };
                self.changed();
                let call = Call::Rename(RenameArgs { from, to });
                let from_dir = object(&self.saved)?;
                let wcc = ok(self.once::<RenameRes>(call, NfsStat3::NOENT).await?)?;
                let (source_cinfo, target_cinfo) = (change_info(&wcc.from), change_info(&wcc.to));
                self.dir_changed(&from_dir, wcc.from.after);
                self.learnt(wcc.to.after);
                return Ok(ResBody::Rename(v4::res::RenameRes { source_cinfo, target_cinfo }));
            }
            ArgOp::Link(name) => {
                let link = DirOp { dir: self.object()?, name };
                self.changed();
                return Ok(ResBody::Link(self.link(object(&self.saved)?, link).await?));
            }
            ArgOp::Readdir(args) => return self.readdir(args).await,
            ArgOp::Lock(args) => return locks::lock(self.wire, &self.object()?, &args).await,
            ArgOp::Lockt(args) => return locks::test(self.wire, &self.object()?, &args).await,
            ArgOp::Locku(args) => return locks::unlock(self.wire, &self.object()?, &args).await,
            _ => return Err(NfsStat::NFS4ERR_NOTSUPP.into()),
        }
        Ok(ResBody::Empty)
    }

    fn object(&self) -> Done<Fh3> {
        object(&self.at)
    }

    /// The known attributes of the object are those before the change.
    fn changed(&mut self) {
        if let Current::Object(_, attrs) | Current::Rooted(_, attrs, _) = &mut self.at {
            *attrs = None;
        }
    }

    /// A directory was changed, and is `after` now: what is saved of it is no longer so.
    fn dir_changed(&mut self, dir: &Fh3, after: PostOp) {
        if let Current::Object(fh, attrs) | Current::Rooted(fh, attrs, _) = &mut self.saved
            && fh == dir
        {
            *attrs = after;
        }
    }

    /// Takes the attributes of a reply.
    fn learnt(&mut self, new: PostOp) {
        if let (Current::Object(_, attrs) | Current::Rooted(_, attrs, _), Some(new)) = (&mut self.at, new) {
            *attrs = Some(new);
        }
    }

    /// Finds the place of a path from the server's root: an export, or above one.
    async fn mounted(&self, names: Vec<Bytes>) -> Done<Current> {
        let path: Vec<u8> = match names.is_empty() {
            true => b"/".to_vec(),
            false => names.iter().flat_map(|n| [&b"/"[..], n].concat()).collect(),
        };
        match self.wire.mount(&path).await? {
            Ok(fh) => {
                self.wire.learn_sizes(&fh).await?;
                Ok(Current::Rooted(fh, None, names))
            }
            // It may lie above an export: the following names decide.
            Err(
                MountStat::NOENT | MountStat::ACCES | MountStat::PERM | MountStat::NOTDIR | MountStat::INVAL,
            ) => Ok(Current::Above(names)),
            Err(MountStat(status)) => Err(NfsStat(status).into()),
        }
    }

    async fn lookup(&mut self, name: Bytes) -> Done<()> {
        let dir = match &self.at {
            Current::Above(names) => {
                let mut names = names.clone();
                match &name[..] {
                    b".." if names.pop().is_none() => return Err(NfsStat::NFS4ERR_NOENT.into()),
                    b".." => {}
                    _ => names.push(name),
                }
                self.at = self.mounted(names).await?;
                return Ok(());
            }
            at => object(at)?,
        };
        let call = Call::Lookup(DirOp { dir, name: name.clone() });
        let res = self.wire.call::<LookupRes>(call).await?;
        let names = match &self.at {
            Current::Rooted(_, _, names) if &name[..] != b".." => Some([&names[..], &[name]].concat()),
            _ => None,
        };
        self.at = match (res, names) {
            (Res::Fail(NfsStat3::NOENT, _), Some(names)) => self.mounted(names).await?,
            (res, names) => {
                let found = ok(res)?;
                match names {
                    Some(names) => Current::Rooted(found.object, found.attrs, names),
                    None => Current::Object(found.object, found.attrs),
                }
            }
        };
        Ok(())
    }

    /// The attributes of the current object; asks for them if no reply had them.
    async fn look(&mut self) -> Done<v3::Fattr> {
        let fh = match &self.at {
            Current::Object(_, Some(attrs)) | Current::Rooted(_, Some(attrs), _) => return Ok(attrs.clone()),
            at => object(at)?,
        };
        let attrs = ok(self.wire.call::<GetattrRes>(Call::Getattr(fh.clone())).await?)?;
        self.at = Current::Object(fh, Some(attrs.clone()));
        Ok(attrs)
    }

    async fn attrs(&mut self, mask: &Bitmap) -> Done<Fattr> {
        let attrs = self.look().await?;
        let fh = FileHandle(self.object()?.0);
        if mask.and(&SPACE).is_empty() {
            return Ok(fattr(&attrs, Some(&fh), mask));
        }
        let space = ok(self.wire.call::<FsstatRes>(Call::Fsstat(self.object()?)).await?)?;
        let all = AttrValues {
            space_total: Some(space.tbytes),
            space_free: Some(space.fbytes),
            space_avail: Some(space.abytes),
            files_total: Some(space.tfiles),
            files_free: Some(space.ffiles),
            files_avail: Some(space.afiles),
            ..values(&attrs, Some(&fh))
        };
        Ok(all.to_fattr(mask))
    }

    /// VERIFY (`same`) and NVERIFY.
    async fn compare(&mut self, wanted: &Fattr, same: bool) -> Done<()> {
        let is = self.attrs(&wanted.mask).await?;
        match (is == *wanted, same) {
            (true, false) => Err(NfsStat::NFS4ERR_SAME.into()),
            (false, true) => Err(NfsStat::NFS4ERR_NOT_SAME.into()),
            _ => Ok(()),
        }
    }

    async fn write(&mut self, args: v4::args::WriteArgs) -> Done<ResBody> {
        let file = self.object()?;
        self.changed();
        let mut count = 0;
        let mut worst: Option<(StableHow, [u8; 8])> = None;
        while count < args.data.len() || worst.is_none() {
            let part = args.data.slice(count..args.data.len().min(count + self.wire.write_bytes()));
            let call = Call::Write(WriteArgs {
                file: file.clone(),
                offset: args.offset + count as u64,
                count: part.len() as u32,
                stable: args.stable,
                data: part.clone(),
            });
            let res = ok(self.wire.call::<WriteRes>(call).await?)?;
            if worst.is_some_and(|(_, verf)| verf != res.verf) {
                // The server has restarted between two parts: the later ones count as not written.
                break;
            }
            count += res.count as usize;
            self.learnt(res.wcc.after);
            let least = worst.map_or(res.committed, |(before, _)| before.min(res.committed));
            worst = Some((least, res.verf));
            if (res.count as usize) < part.len() {
                break;
            }
        }
        let (committed, writeverf) = worst.unwrap_or((StableHow::Unstable, [0; 8]));
        Ok(ResBody::Write(v4::res::WriteRes { count: count as u32, committed, writeverf }))
    }

    async fn open(&mut self, args: OpenArgs) -> Done<ResBody> {
        let name = match args.claim {
            OpenClaim::Null(name) => name,
            OpenClaim::Fh if matches!(args.openhow, OpenHow::NoCreate) => {
                self.object()?;
                return Ok(ResBody::Open(opened(ChangeInfo::default(), Bitmap::default())));
            }
            _ => return Err(NfsStat::NFS4ERR_NOTSUPP.into()),
        };
        let dir = self.object()?;
        let (mut made_with, mut cinfo) = (None, ChangeInfo::default());
        match args.openhow {
            OpenHow::NoCreate => self.lookup(name).await?,
            OpenHow::Create(how) => {
                let (how, attrs) = match how {
                    CreateHow4::Unchecked(attrs) => (CreateHow::Unchecked(sattr(&attrs)?), attrs),
                    CreateHow4::Guarded(attrs) => (CreateHow::Guarded(sattr(&attrs)?), attrs),
                    CreateHow4::Exclusive(verifier) => (CreateHow::Exclusive(verifier), Fattr::default()),
                    CreateHow4::Exclusive41 { .. } => return Err(NfsStat::NFS4ERR_NOTSUPP.into()),
                };
                let unchecked = matches!(how, CreateHow::Unchecked(_));
                let guarded = matches!(how, CreateHow::Guarded(_));
                let at = DirOp { dir: dir.clone(), name: name.clone() };
                let call = Call::Create(CreateArgs { at, how });
                let made: MakeRes = match guarded {
                    true => self.once(call, NfsStat3::EXIST).await?,
                    false => self.wire.call(call).await?,
                };
                match made {
                    // The existing object is no regular file: OPEN tells what it is.
                    Res::Fail(NfsStat3::EXIST | NfsStat3::ISDIR | NfsStat3::INVAL, _) if unchecked => {
                        self.lookup(name).await?;
                    }
                    made => cinfo = self.made(made, dir, name).await?,
                }
                made_with = Some(attrs);
            }
        }
        match self.look().await?.file_type {
            Type3::Reg => {}
            Type3::Dir => return Err(NfsStat::NFS4ERR_ISDIR.into()),
            Type3::Lnk => return Err(NfsStat::NFS4ERR_SYMLINK.into()),
            _ => return Err(NfsStat::NFS4ERR_WRONG_TYPE.into()),
        }
        let attrset = match made_with {
            Some(attrs) => self.is_set(&attrs).await?,
            None => Bitmap::default(),
        };
        Ok(ResBody::Open(opened(cinfo, attrset)))
    }

    /// What of attributes that were asked for, without a complaint of the server's, the object has. When it makes something for a
    /// caller who may not give it away, a server may leave the owner out and say nothing, as Linux' does.
    async fn is_set(&mut self, asked: &Fattr) -> Done<Bitmap> {
        let values = sattr(asked)?;
        if values.uid.is_none() && values.gid.is_none() {
            return Ok(asked.mask);
        }
        let has = self.look().await?;
        let mut passed_over = Vec::with_capacity(2);
        if values.uid.is_some_and(|uid| uid != has.uid) {
            passed_over.push(number::OWNER);
        }
        if values.gid.is_some_and(|gid| gid != has.gid) {
            passed_over.push(number::OWNER_GROUP);
        }
        Ok(asked.mask.minus(&Bitmap::of(&passed_over)))
    }

    /// Goes to what was made. A server need not give its handle.
    async fn made(&mut self, res: MakeRes, dir: Fh3, name: Bytes) -> Done<ChangeInfo> {
        let made = ok(res)?;
        let info = change_info(&made.dir);
        self.dir_changed(&dir, made.dir.after);
        match made.object {
            Some(fh) => {
                self.at = Current::Object(fh, made.attrs);
            }
            None => {
                self.at = Current::Object(dir, None);
                self.lookup(name).await?;
            }
        }
        Ok(info)
    }

    async fn create(&mut self, args: v4::args::CreateArgs) -> Done<ResBody> {
        let dir = self.object()?;
        let attrs = sattr(&args.attrs)?;
        let at = DirOp { dir: dir.clone(), name: args.name.clone() };
        let call = match args.kind {
            CreateType::Dir => Call::Mkdir(MkdirArgs { at, attrs }),
            CreateType::Lnk(target) => Call::Symlink(SymlinkArgs { at, attrs, target }),
            CreateType::Blk(d) => Call::Mknod(MknodArgs { at, what: MknodWhat::Blk(attrs, d) }),
            CreateType::Chr(d) => Call::Mknod(MknodArgs { at, what: MknodWhat::Chr(attrs, d) }),
            CreateType::Sock => Call::Mknod(MknodArgs { at, what: MknodWhat::Sock(attrs) }),
            CreateType::Fifo => Call::Mknod(MknodArgs { at, what: MknodWhat::Fifo(attrs) }),
            CreateType::Other(_) => return Err(NfsStat::NFS4ERR_BADTYPE.into()),
        };
        let made: MakeRes = self.once(call, NfsStat3::EXIST).await?;
        let cinfo = self.made(made, dir, args.name).await?;
        let attrset = self.is_set(&args.attrs).await?;
        Ok(ResBody::Create(CreateRes { cinfo, attrset }))
    }

    /// A call whose second execution would fail with `echo`. DELAY does not say whether there was a first.
    async fn once<R: Answers>(&self, call: Call, echo: NfsStat3) -> Done<R> {
        let (res, again) = self.wire.call_again::<R>(call).await?;
        if again && res.failure().is_some_and(|s| s == echo || s == NfsStat3::JUKEBOX) {
            let why = format!(
                "it was sent again after its reply was lost, and {} may be of the second time",
                status(echo)
            );
            return Err(SessionError::Unknown(why).into());
        }
        Ok(res)
    }

    /// REMOVE or RMDIR. If the removal was sent again, a missing name counts as removed.
    async fn removed(&self, call: Call) -> Done<RemoveRes> {
        let (res, again) = self.wire.call_again::<RemoveRes>(call).await?;
        match res {
            Res::Fail(NfsStat3::NOENT, wcc) if again => Ok(Res::Ok(wcc)),
            Res::Fail(NfsStat3::JUKEBOX, _) if again => {
                Err(SessionError::Unknown("sent again after its reply was lost, and put off".into()).into())
            }
            res => Ok(res),
        }
    }

    async fn link(&mut self, file: Fh3, link: DirOp) -> Done<ChangeInfo> {
        let call = Call::Link(LinkArgs { file: file.clone(), link: link.clone() });
        let (res, again) = self.wire.call_again::<LinkRes>(call).await?;
        if again && matches!(res, Res::Fail(NfsStat3::EXIST, _)) {
            let found = ok(self.wire.call::<LookupRes>(Call::Lookup(link)).await?)?;
            if found.object == file {
                return Ok(ChangeInfo::default());
            }
        }
        if again && matches!(res, Res::Fail(NfsStat3::JUKEBOX, _)) {
            return Err(
                SessionError::Unknown("sent again after its reply was lost, and put off".into()).into()
            );
        }
        let wcc = ok(res)?;
        let info = change_info(&wcc.dir);
        self.dir_changed(&file, wcc.attrs);
        self.learnt(wcc.dir.after);
        Ok(info)
    }

    async fn remove(&mut self, name: Bytes) -> Done<ChangeInfo> {
        let at = DirOp { dir: self.object()?, name };
        self.changed();
        let res = self.removed(Call::Remove(at.clone())).await?;
        let wcc = match res {
            // For a directory, servers answer with one or the other.
            Res::Fail(NfsStat3::ISDIR | NfsStat3::PERM | NfsStat3::INVAL, _) => {
                let res = self.removed(Call::Rmdir(at)).await?;
                match res {
                    // It is no directory: the first refusal counts.
                    Res::Fail(NfsStat3::NOTDIR, _) => return Err(NfsStat::NFS4ERR_PERM.into()),
                    // Servers answer differently for a directory that is not empty.
                    Res::Fail(NfsStat3::EXIST, _) => return Err(NfsStat::NFS4ERR_NOTEMPTY.into()),
                    res => ok(res)?,
                }
            }
            res => ok(res)?,
        };
        let info = change_info(&wcc);
        self.learnt(wcc.after);
        Ok(info)
    }

    async fn readdir(&mut self, args: v4::args::ReaddirArgs) -> Done<ResBody> {
        let dir = self.object()?;
        let (mut cookie, mut cookieverf) = (args.cookie, args.cookieverf);
        loop {
            let call = Call::Readdirplus(ReaddirplusArgs {
                dir: dir.clone(),
                cookie,
                cookieverf,
                dircount: args.maxcount,
                maxcount: args.maxcount,
            });
            let (verf, entries, eof) = match self.wire.call::<ReaddirplusRes>(call).await? {
                Res::Fail(NfsStat3::NOTSUPP, _) => {
                    let count = args.maxcount;
                    let call = Call::Readdir(ReaddirArgs { dir: dir.clone(), cookie, cookieverf, count });
                    let page = ok(self.wire.call::<ReaddirRes>(call).await?)?;
                    let entries =
                        page.entries.0.into_iter().map(|e| (e.name, e.cookie, None, None)).collect();
                    (page.cookieverf, entries, page.eof)
                }
                res => {
                    let page = ok(res)?;
                    let plus = page.entries.0.into_iter();
                    let entries: Vec<_> = plus.map(|e| (e.name, e.cookie, e.attrs, e.object)).collect();
                    (page.cookieverf, entries, page.eof)
                }
            };
            (cookieverf, cookie) = (verf, entries.last().map_or(cookie, |e| e.1));
            let none = entries.is_empty();
            let mut out = Vec::with_capacity(entries.len());
            for (name, cookie, attrs, object) in entries {
                // NFSv4 does not list them.
                if &name[..] == b"." || &name[..] == b".." {
                    continue;
                }
                if let Some(attrs) = self.entry(&dir, &name, attrs, object, &args.attr_request).await? {
                    out.push(DirEntry { cookie, name, attrs });
                }
            }
            if eof || !out.is_empty() {
                return Ok(ResBody::Readdir(Readdir4 { cookieverf, entries: out, eof }));
            }
            if none {
                return Err(NfsStat::NFS4ERR_TOOSMALL.into());
            }
        }
    }

    /// The attributes of an entry; `None` if it is gone.
    async fn entry(
        &self,
        dir: &Fh3,
        name: &Bytes,
        attrs: PostOp,
        object: Option<Fh3>,
        wanted: &Bitmap,
    ) -> Done<Option<Fattr>> {
        let (attrs, object) = match (attrs, object) {
            (Some(attrs), Some(object)) => (attrs, object),
            (None, None) | (Some(_), None) => {
                let at = DirOp { dir: dir.clone(), name: name.clone() };
                match self.wire.call::<LookupRes>(Call::Lookup(at)).await? {
                    Res::Ok(found) => match found.attrs {
                        Some(attrs) => (attrs, found.object),
                        None => {
                            let call = Call::Getattr(found.object.clone());
                            (ok(self.wire.call::<GetattrRes>(call).await?)?, found.object)
                        }
                    },
                    Res::Fail(NfsStat3::NOENT, _) => return Ok(None),
                    res => return ok(res).map(|_| None),
                }
            }
            (None, Some(object)) => {
                match self.wire.call::<GetattrRes>(Call::Getattr(object.clone())).await? {
                    Res::Ok(attrs) => (attrs, object),
                    Res::Fail(NfsStat3::STALE | NfsStat3::NOENT, ()) => return Ok(None),
                    res => return ok(res).map(|_| None),
                }
            }
        };
        Ok(Some(fattr(&attrs, Some(&FileHandle(object.0)), wanted)))
    }
}

/// A result with a status.
trait Answers: Decode {
    fn failure(&self) -> Option<NfsStat3>;
}

impl<T, F> Answers for Res<T, F>
where
    Res<T, F>: Decode,
{
    fn failure(&self) -> Option<NfsStat3> {
        match self {
            Res::Ok(_) => None,
            Res::Fail(status, _) => Some(*status),
        }
    }
}

fn opened(cinfo: ChangeInfo, attrset: Bitmap) -> OpenRes {
    OpenRes { stateid: OPEN, cinfo, rflags: 0, attrset, delegation: OpenDelegation::None }
}

fn object(at: &Current) -> Done<Fh3> {
    match at {
        Current::Object(fh, _) | Current::Rooted(fh, _, _) => Ok(fh.clone()),
        Current::Above(_) => Err(NfsStat::NFS4ERR_NOENT.into()),
        Current::Nowhere => Err(NfsStat::NFS4ERR_NOFILEHANDLE.into()),
    }
}
