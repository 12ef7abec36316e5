//! NFS version 3 (RFC 1813).

use super::nfs::{Attr, Created, Creation, Fh, Nfs, SetAttr, Written, patiently};
use super::wire::{Procedure, Wire};
use crate::error::{Error, Meaning, Result};
use crate::judge::FileKind;
use crate::limits::READDIR_BYTES;
use crate::plan::Abilities;
use crate::url::Target;
use landfast_nfs::mount::MntRes;
use landfast_nfs::v3::args::{
    CommitArgs, CreateArgs, CreateHow, LinkArgs, MkdirArgs, ReadArgs, ReaddirArgs, RenameArgs, SetattrArgs,
    SymlinkArgs, WriteArgs,
};
use landfast_nfs::v3::res::{
    CommitOk, LinkWcc, LookupOk, MakeOk, PostOp, ReadOk, ReaddirOk, ReadlinkOk, RenameWcc, WriteOk,
};
use landfast_nfs::v3::types::{DirOp, FileType, SetTime, StableHow};
use landfast_nfs::v3::{Call, Fattr, FileHandle, NfsStat3, PROC_NAMES, Res, Sattr, Time, WccData};
use landfast_nfs::{PROGRAM, mount, v3};
use landfast_xdr::{Bytes, Decode};
use std::time::Duration;

pub struct Client {
    wire: Wire,
    base: FileHandle,
}

fn fh(fh: &Fh) -> FileHandle {
    FileHandle(Bytes::copy_from_slice(fh))
}

fn at(dir: &Fh, name: &str) -> DirOp {
    DirOp { dir: fh(dir), name: Bytes::copy_from_slice(name.as_bytes()) }
}

fn attr(f: &Fattr) -> Attr {
    let kind = match f.file_type {
        FileType::Reg => FileKind::File,
        FileType::Dir => FileKind::Dir,
        FileType::Lnk => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let mtime = (i64::from(f.mtime.seconds), f.mtime.nseconds);
    Attr { kind, mode: f.mode & 0o7777, size: f.size, fileid: f.fileid, mtime }
}

fn refused(proc: u32, status: NfsStat3) -> Error {
    let op = PROC_NAMES.get(proc as usize).map_or_else(|| proc.to_string(), |n| (*n).to_owned());
    Error::refused(op, status.0, status.to_string())
}

/// The RPC procedure of a call.
pub fn procedure(call: &Call) -> Procedure {
    Procedure { prog: PROGRAM, vers: v3::VERSION, proc: call.number() }
}

/// The results of a procedure that succeeded.
/// Errors: [`Error::Refused`] with its status; [`Error::Nonsense`] for what does not decode.
pub fn result<T: Decode, F: Decode>(proc: u32, reply: Bytes) -> Result<T> {
    match Res::<T, F>::from_bytes(reply).map_err(garbled)? {
        Res::Ok(ok) => Ok(ok),
        Res::Fail(status, _) => Err(refused(proc, status)),
    }
}

fn garbled(e: landfast_xdr::Error) -> Error {
    Error::Nonsense(e.to_string())
}

impl Client {
    /// Connects, and asks MOUNT for the handle of the export.
    /// Errors: No server, or no such export.
    pub fn connect(target: &Target, patience: Duration) -> Result<Client> {
        let mut wire = Wire::connect(&target.addresses(target.port)?, patience)?;
        let (root, used) = match target.mount_port {
            Some(port) => mount_longest(&mut Wire::connect(&target.addresses(port)?, patience)?, target)?,
            // Some servers have all on one port; others are found by the port mapper.
            None => match mount_longest(&mut wire, target) {
                Ok(found) => found,
                Err(first) => match mount_port(target, patience) {
                    Some(port) => {
                        mount_longest(&mut Wire::connect(&target.addresses(port)?, patience)?, target)?
                    }
                    None => return Err(first),
                },
            },
        };
        let mut client = Client { wire, base: root };
        for (n, name) in target.path.iter().enumerate().skip(used) {
            let place = DirOp { dir: client.base.clone(), name: Bytes::copy_from_slice(name) };
            let found = patiently(|| client.call::<LookupOk, PostOp>(&Call::Lookup(place.clone())));
            client.base =
                found.map_err(|why| Error::Path { path: target.shown(n + 1), why: Box::new(why) })?.object;
        }
        Ok(client)
    }

    /// The connection, for calls that are made beside this client's own.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    fn call<T: Decode, F: Decode>(&mut self, call: &Call) -> Result<T> {
        result::<T, F>(call.number(), self.wire.call(procedure(call), call)?)
    }

    /// What a creation made; a server may leave out what it is (RFC 1813 section 3.3.8), then it is looked up.
    fn made(&mut self, dir: &Fh, name: &str, ok: MakeOk, mode_set: bool) -> Result<Created> {
        match (ok.object, ok.attrs) {
            (Some(fh), Some(attrs)) => {
                Ok(Created { fh: fh.0.to_vec(), fileid: attrs.fileid, mode_set, looked_up: false })
            }
            _ => {
                let (fh, attr) = self.lookup(dir, name)?;
                Ok(Created { fh, fileid: attr.fileid, mode_set, looked_up: true })
            }
        }
    }
}

/// Mounts the path, or the longest beginning of it that is exported. Returns the handle, and how many names were mounted.
fn mount_longest(wire: &mut Wire, target: &Target) -> Result<(FileHandle, usize)> {
    let mut first = None;
    for names in (0..=target.path.len()).rev() {
        let path = if names == 0 { "/".to_owned() } else { target.shown(names) };
        match mount_path(wire, &path) {
            Ok(handle) => return Ok((handle, names)),
            Err(why @ Error::Path { .. }) => {
                first.get_or_insert(why);
            }
            Err(why) => return Err(why),
        }
    }
    Err(first.unwrap_or_else(|| Error::Nonsense("no path to mount".into())))
}

/// MNT of one path: its handle.
/// Errors: [`Error::Path`]: the server does not export it to this client.
pub fn mount_path(wire: &mut Wire, path: &str) -> Result<FileHandle> {
    let to = Procedure { prog: mount::PROGRAM, vers: mount::VERSION, proc: mount::proc::MNT };
    match MntRes::from_bytes(wire.call(to, &Bytes::from(path.to_owned()))?).map_err(garbled)? {
        MntRes::Ok(mounted) => Ok(mounted.handle),
        MntRes::Fail(status) => {
            let (op, status) = ("MNT".into(), status_name(status));
            let why = Error::Refused { op, status, meaning: Meaning::NoEntry, code: None };
            Err(Error::Path { path: path.to_owned(), why: Box::new(why) })
        }
    }
}

fn status_name(status: mount::MountStat) -> String {
    match status {
        mount::MountStat::NOENT => "MNT3ERR_NOENT".to_owned(),
        mount::MountStat::ACCES => "MNT3ERR_ACCES".to_owned(),
        mount::MountStat::NOTDIR => "MNT3ERR_NOTDIR".to_owned(),
        mount::MountStat(n) => format!("mountstat3 {n}"),
    }
}

/// The port of MOUNT, as the port mapper of the server's host knows it (RFC 1833 section 3.2: PMAPPROC_GETPORT).
fn mount_port(target: &Target, patience: Duration) -> Option<u16> {
    const TCP: u32 = 6;
    let getport = Procedure { prog: 100_000, vers: 2, proc: 3 };
    let mut wire = Wire::connect(&target.addresses(111).ok()?, patience).ok()?;
    let mut args = landfast_xdr::BytesMut::new();
    for word in [mount::PROGRAM, mount::VERSION, TCP, 0] {
        landfast_xdr::Encode::encode(&word, &mut args);
    }
    let reply = wire.call(getport, &Raw(args.freeze())).ok()?;
    u32::from_bytes(reply).ok().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
}

/// Arguments that are encoded already.
struct Raw(Bytes);

impl landfast_xdr::Encode for Raw {
    fn encode(&self, out: &mut landfast_xdr::BytesMut) {
        out.extend_from_slice(&self.0);
    }
}

impl Nfs for Client {
    fn base(&mut self) -> Result<(Fh, Attr)> {
        let base = self.base.0.to_vec();
        let attr = self.getattr(&base)?;
        Ok((base, attr))
    }

    fn lookup(&mut self, dir: &Fh, name: &str) -> Result<(Fh, Attr)> {
        let ok: LookupOk = self.call::<_, PostOp>(&Call::Lookup(at(dir, name)))?;
        let fh = ok.object.0.to_vec();
        let attr = match ok.attrs {
            Some(a) => attr(&a),
            None => self.getattr(&fh)?,
        };
        Ok((fh, attr))
    }

    fn getattr(&mut self, handle: &Fh) -> Result<Attr> {
        self.call::<Fattr, ()>(&Call::Getattr(fh(handle))).map(|a| attr(&a))
    }

    fn create(&mut self, dir: &Fh, name: &str, mode: u32, how: Creation) -> Result<Created> {
        let attrs = Sattr { mode: Some(mode), ..Sattr::default() };
        let exclusive = matches!(how, Creation::Exclusive(_));
        let how = match how {
            Creation::Guarded => CreateHow::Guarded(attrs),
            Creation::Unchecked => CreateHow::Unchecked(attrs),
            Creation::Truncated => CreateHow::Unchecked(Sattr { size: Some(0), ..attrs }),
            Creation::Exclusive(verf) => CreateHow::Exclusive(verf),
        };
        let ok = self.call::<MakeOk, WccData>(&Call::Create(CreateArgs { at: at(dir, name), how }))?;
        self.made(dir, name, ok, !exclusive)
    }

    fn mkdir(&mut self, dir: &Fh, name: &str, mode: u32) -> Result<Created> {
        let attrs = Sattr { mode: Some(mode), ..Sattr::default() };
        let ok = self.call::<MakeOk, WccData>(&Call::Mkdir(MkdirArgs { at: at(dir, name), attrs }))?;
        self.made(dir, name, ok, true)
    }

    fn symlink(&mut self, dir: &Fh, name: &str, text: &str) -> Result<Created> {
        let target = Bytes::copy_from_slice(text.as_bytes());
        let args = SymlinkArgs { at: at(dir, name), attrs: Sattr::default(), target };
        let ok = self.call::<MakeOk, WccData>(&Call::Symlink(args))?;
        self.made(dir, name, ok, false)
    }

    fn write(&mut self, file: &Fh, offset: u64, data: Vec<u8>, stable: bool) -> Result<Written> {
        let args = WriteArgs {
            file: fh(file),
            offset,
            count: data.len() as u32,
            stable: if stable { StableHow::FileSync } else { StableHow::Unstable },
            data: Bytes::from(data),
        };
        let ok = self.call::<WriteOk, WccData>(&Call::Write(args))?;
        Ok(Written { count: ok.count, stable: ok.committed == StableHow::FileSync, verf: ok.verf })
    }

    fn commit(&mut self, file: &Fh) -> Result<[u8; 8]> {
        let args = CommitArgs { file: fh(file), offset: 0, count: 0 };
        self.call::<CommitOk, WccData>(&Call::Commit(args)).map(|ok| ok.verf)
    }

    fn set(&mut self, object: &Fh, what: SetAttr) -> Result<()> {
        let attrs = match what {
            SetAttr::Mode(mode) => Sattr { mode: Some(mode), ..Sattr::default() },
            SetAttr::Size(size) => Sattr { size: Some(size), ..Sattr::default() },
            SetAttr::Mtime(seconds) => {
                let mtime = SetTime::Client(Time { seconds, nseconds: 0 });
                Sattr { mtime, ..Sattr::default() }
            }
        };
        let args = SetattrArgs { object: fh(object), attrs, guard: None };
        self.call::<WccData, WccData>(&Call::Setattr(args)).map(drop)
    }

    fn link(&mut self, file: &Fh, dir: &Fh, name: &str) -> Result<()> {
        let args = LinkArgs { file: fh(file), link: at(dir, name) };
        self.call::<LinkWcc, LinkWcc>(&Call::Link(args)).map(drop)
    }

    fn rename(&mut self, from: &Fh, old: &str, to: &Fh, new: &str) -> Result<()> {
        let args = RenameArgs { from: at(from, old), to: at(to, new) };
        self.call::<RenameWcc, RenameWcc>(&Call::Rename(args)).map(drop)
    }

    fn remove(&mut self, dir: &Fh, name: &str, is_dir: bool) -> Result<()> {
        let place = at(dir, name);
        let call = if is_dir { Call::Rmdir(place) } else { Call::Remove(place) };
        self.call::<WccData, WccData>(&call).map(drop)
    }

    fn names(&mut self, dir: &Fh, max: usize) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let (mut cookie, mut cookieverf) = (0, [0; 8]);
        loop {
            let args = ReaddirArgs { dir: fh(dir), cookie, cookieverf, count: READDIR_BYTES };
            let ok = self.call::<ReaddirOk, PostOp>(&Call::Readdir(args))?;
            let last = ok.entries.0.last().map(|e| e.cookie);
            let found = ok.entries.0.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned());
            names.extend(found.filter(|n| n != "." && n != ".."));
            match last {
                Some(next) if !ok.eof && names.len() < max => (cookie, cookieverf) = (next, ok.cookieverf),
                _ => return Ok(names),
            }
        }
    }

    fn read(&mut self, file: &Fh, offset: u64, count: u32) -> Result<(Vec<u8>, bool)> {
        let args = ReadArgs { file: fh(file), offset, count };
        self.call::<ReadOk, PostOp>(&Call::Read(args)).map(|ok| (ok.data.to_vec(), ok.eof))
    }

    fn readlink(&mut self, link: &Fh) -> Result<String> {
        let ok = self.call::<ReadlinkOk, PostOp>(&Call::Readlink(fh(link)))?;
        Ok(String::from_utf8_lossy(&ok.target).into_owned())
    }

    fn set_xattr(&mut self, _: &Fh, _: &str, _: Option<Vec<u8>>) -> Result<()> {
        Err(no_xattrs())
    }

    fn new_xattr(&mut self, _: &Fh, _: &str, _: Vec<u8>) -> Result<()> {
        Err(no_xattrs())
    }

    fn allocate(&mut self, _: &Fh, _: u64) -> Result<()> {
        Err(Error::Unable("NFS version 3 has no ALLOCATE".to_owned()))
    }

    fn close_all(&mut self) -> Result<()> {
        // Nothing is open in version 3.
        Ok(())
    }

    fn xattr(&mut self, _: &Fh, _: &str) -> Result<Option<Vec<u8>>> {
        Err(no_xattrs())
    }

    fn abilities(&mut self) -> Result<Abilities> {
        Ok(Abilities { xattrs: false, exclusive_is_bare: true })
    }

    fn leave(&mut self) {}
}

fn no_xattrs() -> Error {
    Error::Unable("NFS version 3 has no extended attributes".to_owned())
}
