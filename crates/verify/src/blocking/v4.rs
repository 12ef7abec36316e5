//! NFS versions 4.0, 4.1 and 4.2 (RFC 7530, RFC 8881, RFC 7862, RFC 8276): one slot of one session, or one open owner.

use super::nfs::{Attr, Created, Creation, Fh, Nfs, SetAttr, Written, patiently, verifier};
use super::session::{Options, Session, attributes, filehandle, result_of};
use super::wire::Wire;
use crate::error::{Error, Result};
use crate::judge::FileKind;
use crate::limits::{OPENS_MAX, READDIR_BYTES};
use crate::plan::Abilities;
use crate::url::Target;
use landfast_nfs::v4::args::{
    CloseArgs, CommitArgs, CreateArgs, CreateHow, CreateType, OpenArgs, OpenClaim, OpenHow, ReadArgs,
    ReaddirArgs, RenameArgs, SetattrArgs, SetxattrArgs, SetxattrOption, WriteArgs, owner,
};
use landfast_nfs::v4::attr::number;
use landfast_nfs::v4::data::RangeArgs;
use landfast_nfs::v4::v40::OpenConfirmArgs;
use landfast_nfs::v4::{
    ArgOp, AttrValues, Bitmap, FileHandle, FileType, NfsStat, NfsTime, ResOp, SetTime, StableHow, Stateid,
    flags,
};
use landfast_xdr::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// A client that does one thing at a time.
pub struct Client {
    pub session: Session,
    path: Vec<Vec<u8>>,
    /// The path of the URL, for people.
    shown: String,
    opens: VecDeque<(Fh, Stateid)>,
}

const ATTRS: Bitmap =
    Bitmap::of(&[number::TYPE, number::SIZE, number::FILEID, number::MODE, number::TIME_MODIFY]);

const ONE_BY_ONE: Options =
    Options { operations: 16, slots: 1, request_bytes: 64 << 10, persistent: false, callbacks: None };

const OWNER: &[u8] = b"landfast verify";

fn put(fh: &Fh) -> ArgOp {
    ArgOp::Putfh(FileHandle(Bytes::copy_from_slice(fh)))
}

fn name(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn attrs(results: &[ResOp]) -> Result<Attr> {
    let v = attributes(results)?;
    let kind = match v.kind {
        Some(FileType::Reg) => FileKind::File,
        Some(FileType::Dir) => FileKind::Dir,
        Some(FileType::Lnk) => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let mtime = v.time_modify.map_or((0, 0), |t| (t.seconds, t.nseconds));
    match (v.fileid, v.mode, v.size) {
        (Some(fileid), Some(mode), Some(size)) => Ok(Attr { kind, mode: mode & 0o7777, size, fileid, mtime }),
        _ => Err(Error::Nonsense("the server has no file ids, modes or sizes".into())),
    }
}

fn handle(results: &[ResOp]) -> Result<Fh> {
    Ok(filehandle(results)?.0.to_vec())
}

fn mode_of(mode: u32) -> AttrValues {
    AttrValues { mode: Some(mode), ..AttrValues::default() }
}

impl Client {
    /// Connects and makes itself known.
    /// Errors: No server, or it refuses.
    pub fn connect(target: &Target, minor: u32, patience: Duration) -> Result<Client> {
        Self::connect_as("landfast verify", &ONE_BY_ONE, target, minor, patience)
    }

    /// The same for other programs: their name begins the client's, which is unique.
    /// Errors: No server, or it refuses.
    pub fn connect_as(
        program: &str,
        options: &Options,
        target: &Target,
        minor: u32,
        patience: Duration,
    ) -> Result<Client> {
        let wire = Wire::connect(&target.addresses(target.port)?, patience)?;
        let owner_id = format!("{program} {}", crate::op::hex(&verifier()?));
        Ok(Client {
            session: Session::start(wire, minor, owner_id, options)?,
            path: target.path.clone(),
            shown: target.shown(usize::MAX),
            opens: VecDeque::new(),
        })
    }

    fn compound(&mut self, ops: Vec<ArgOp>) -> Result<Vec<ResOp>> {
        self.session.compound(ops)
    }

    fn stateid(&self, fh: &Fh) -> Stateid {
        self.opens.iter().find(|(f, _)| f == fh).map_or(Stateid::ANONYMOUS, |(_, s)| *s)
    }

    fn close_oldest(&mut self) -> Result<()> {
        let Some((fh, open_stateid)) = self.opens.pop_front() else { return Ok(()) };
        let done = patiently(|| {
            let close = ArgOp::Close(CloseArgs { seqid: self.session.owner_seq(), open_stateid });
            self.compound(vec![put(&fh), close])
        });
        match done {
            // A file that has been removed need not have its open any more.
            Err(e) if !e.is_gone() => Ok(()),
            done => done.map(drop),
        }
    }

    fn make(&mut self, dir: &Fh, name_: &str, kind: CreateType, attrs_: &AttrValues) -> Result<Created> {
        let create = CreateArgs { kind, name: name(name_), attrs: attrs_.to_fattr(&AttrValues::KNOWN) };
        let results =
            self.compound(vec![put(dir), ArgOp::Create(create), ArgOp::Getfh, ArgOp::Getattr(ATTRS)])?;
        Ok(Created {
            fh: handle(&results)?,
            fileid: attrs(&results)?.fileid,
            mode_set: true,
            looked_up: false,
        })
    }
}

impl Nfs for Client {
    fn base(&mut self) -> Result<(Fh, Attr)> {
        let mut ops = vec![ArgOp::Putrootfh];
        ops.extend(self.path.iter().map(|n| ArgOp::Lookup(Bytes::copy_from_slice(n))));
        ops.extend([ArgOp::Getfh, ArgOp::Getattr(ATTRS)]);
        let path = self.shown.clone();
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

    fn create(&mut self, dir: &Fh, name_: &str, mode: u32, how: Creation) -> Result<Created> {
        while self.opens.len() >= OPENS_MAX {
            self.close_oldest()?;
        }
        let size = (how == Creation::Truncated).then_some(0);
        let attrs_ = AttrValues { size, ..mode_of(mode) }.to_fattr(&AttrValues::KNOWN);
        let exclusive = matches!(how, Creation::Exclusive(_));
        let how = match (how, self.session.minor()) {
            (Creation::Guarded, _) => CreateHow::Guarded(attrs_),
            (Creation::Unchecked | Creation::Truncated, _) => CreateHow::Unchecked(attrs_),
            (Creation::Exclusive(verf), 0) => CreateHow::Exclusive(verf),
            (Creation::Exclusive(verf), _) => CreateHow::Exclusive41 { verf, attrs: attrs_ },
        };
        let no_delegation =
            if self.session.minor() == 0 { 0 } else { flags::OPEN4_SHARE_ACCESS_WANT_NO_DELEG };
        let open = OpenArgs {
            seqid: self.session.owner_seq(),
            share_access: flags::OPEN4_SHARE_ACCESS_BOTH | no_delegation,
            share_deny: flags::OPEN4_SHARE_DENY_NONE,
            owner: owner(self.session.clientid(), OWNER),
            openhow: OpenHow::Create(how),
            claim: OpenClaim::Null(name(name_)),
        };
        let results =
            self.compound(vec![put(dir), ArgOp::Open(open), ArgOp::Getfh, ArgOp::Getattr(ATTRS)])?;
        let (fh, fileid) = (handle(&results)?, attrs(&results)?.fileid);
        let open = result_of!(results, "OPEN", Open)?;
        let mut stateid = open.stateid;
        if open.rflags & flags::OPEN4_RESULT_CONFIRM != 0 {
            let confirm = OpenConfirmArgs { open_stateid: stateid, seqid: self.session.owner_seq() };
            let results = self.compound(vec![put(&fh), ArgOp::OpenConfirm(confirm)])?;
            stateid = result_of!(results, "OPEN_CONFIRM", OpenConfirm)?;
        }
        let mode_set = !exclusive || open.attrset.has(number::MODE);
        self.opens.push_back((fh.clone(), stateid));
        Ok(Created { fh, fileid, mode_set, looked_up: false })
    }

    fn mkdir(&mut self, dir: &Fh, name: &str, mode: u32) -> Result<Created> {
        self.make(dir, name, CreateType::Dir, &mode_of(mode))
    }

    fn symlink(&mut self, dir: &Fh, name: &str, text: &str) -> Result<Created> {
        let kind = CreateType::Lnk(Bytes::copy_from_slice(text.as_bytes()));
        self.make(dir, name, kind, &AttrValues::default())
    }

    fn write(&mut self, fh: &Fh, offset: u64, data: Vec<u8>, stable: bool) -> Result<Written> {
        let stable = if stable { StableHow::FileSync } else { StableHow::Unstable };
        let args = WriteArgs { stateid: self.stateid(fh), offset, stable, data: Bytes::from(data) };
        let results = self.compound(vec![put(fh), ArgOp::Write(args)])?;
        let ok = result_of!(results, "WRITE", Write)?;
        Ok(Written { count: ok.count, stable: ok.committed == StableHow::FileSync, verf: ok.writeverf })
    }

    fn commit(&mut self, fh: &Fh) -> Result<[u8; 8]> {
        let results = self.compound(vec![put(fh), ArgOp::Commit(CommitArgs { offset: 0, count: 0 })])?;
        result_of!(results, "COMMIT", Commit)
    }

    fn set(&mut self, fh: &Fh, what: SetAttr) -> Result<()> {
        let values = match what {
            SetAttr::Mode(mode) => mode_of(mode),
            SetAttr::Size(size) => AttrValues { size: Some(size), ..AttrValues::default() },
            SetAttr::Mtime(seconds) => AttrValues {
                time_modify_set: Some(SetTime::ClientTime(NfsTime {
                    seconds: i64::from(seconds),
                    nseconds: 0,
                })),
                ..AttrValues::default()
            },
        };
        // Only a change of size is an I/O under the open (RFC 8881 section 18.30.3).
        let stateid = if matches!(what, SetAttr::Size(_)) { self.stateid(fh) } else { Stateid::ANONYMOUS };
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
            let ok = result_of!(results, "READDIR", Readdir)?;
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
        result_of!(results, "READ", Read).map(|ok| (ok.data.to_vec(), ok.eof))
    }

    fn readlink(&mut self, fh: &Fh) -> Result<String> {
        let results = self.compound(vec![put(fh), ArgOp::Readlink])?;
        result_of!(results, "READLINK", Readlink).map(|text| String::from_utf8_lossy(&text).into_owned())
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
            Ok(results) => result_of!(results, "GETXATTR", Getxattr).map(|value| Some(value.to_vec())),
            Err(Error::Refused { code: Some(code), .. }) if NfsStat(code) == NfsStat::NFS4ERR_NOXATTR => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn abilities(&mut self) -> Result<Abilities> {
        let exclusive_is_bare = self.session.minor() == 0;
        if self.session.minor() < 2 {
            return Ok(Abilities { xattrs: false, exclusive_is_bare });
        }
        let (fh, _) = self.base()?;
        let asked = ArgOp::Getattr(Bitmap::of(&[number::XATTR_SUPPORT]));
        let results = patiently(|| self.compound(vec![put(&fh), asked.clone()]))?;
        let fattr = result_of!(results, "GETATTR", Getattr)?;
        let xattrs = AttrValues::from_fattr(&fattr).is_ok_and(|v| v.xattr_support == Some(true));
        Ok(Abilities { xattrs, exclusive_is_bare })
    }

    fn leave(&mut self) {
        while !self.opens.is_empty() {
            if self.close_oldest().is_err() {
                return;
            }
        }
        let _ = self.session.destroy();
    }
}
