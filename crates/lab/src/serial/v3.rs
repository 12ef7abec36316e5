//! The same single file operations over NFS version 3 (RFC 1813), as a kernel client of that version makes them: one
//! call for each, each with an xid of its own; a call that broke off is repeated with the xid that it had.

use super::action::{Action, Change, Done, Node, Path, is_below, split};
use super::wire::Wire;
use crate::error::{Error, Result};
use crate::limits::{RETRY_WAIT, RETRY_WAIT_MAX, SERIAL_WRITE_BYTES_MAX, V3_REMEMBERED_MAX};
use landfast_nfs::mount::{self, MntRes};
use landfast_nfs::v3::args::{
    Call, CommitArgs, CreateArgs, CreateHow, LinkArgs, MkdirArgs, MknodArgs, MknodWhat, ReadArgs, RenameArgs,
    SetattrArgs, SymlinkArgs, WriteArgs,
};
use landfast_nfs::v3::res::{CommitOk, LinkWcc, LookupOk, MakeOk, PostOp, ReadOk, RenameWcc, Res, WriteOk};
use landfast_nfs::v3::types::{DirOp, FileType, SetTime, SpecData, StableHow};
use landfast_nfs::v3::{self, Fattr, FileHandle as Handle3, NfsStat3, PROC_NAMES, Sattr, Time, WccData};
use landfast_nfs::v4::{self, AttrValues, FileHandle, NfsStat, NfsTime};
use landfast_rpc::{AuthSys, Credential};
use landfast_xdr::{Bytes, Decode};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// A call that went out, and what came back.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Its number.
    pub xid: u32,
    /// The call.
    pub call: Call,
    /// Its results as they came; none when the connection broke first, or when it failed.
    pub reply: Option<Bytes>,
}

impl Sent {
    /// Whether a repetition must find the first reply: everything that changes something but COMMIT, which may be
    /// executed again, and unstable writes, whose replies are in memory only.
    pub fn is_kept(&self) -> bool {
        match &self.call {
            Call::Write(w) => w.stable != StableHow::Unstable,
            call => modifies(call),
        }
    }
}

/// Whether a call changes something on stable storage.
fn modifies(call: &Call) -> bool {
    matches!(
        call,
        Call::Setattr(_)
            | Call::Write(_)
            | Call::Create(_)
            | Call::Mkdir(_)
            | Call::Symlink(_)
            | Call::Mknod(_)
            | Call::Remove(_)
            | Call::Rmdir(_)
            | Call::Rename(_)
            | Call::Link(_)
    )
}

/// Does actions over NFSv3, one at a time.
pub struct Actor3 {
    wire: Wire,
    xid: u32,
    handles: HashMap<Path, FileHandle>,
    dirs: HashMap<Path, bool>,
    /// The last calls that changed something, oldest first.
    recent: VecDeque<Sent>,
}

fn handle3(fh: &FileHandle) -> Handle3 {
    Handle3(fh.0.clone())
}

fn lost(what: &str) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.to_owned();
    move |source| Error::Lost { what, source }
}

fn failed(proc: u32, status: NfsStat3) -> Error {
    let op = PROC_NAMES.get(proc as usize).map_or_else(|| proc.to_string(), |n| (*n).to_owned());
    // Both versions number their errors alike, as far as there are the same.
    Error::Nfs { op, status: NfsStat(status.0) }
}

fn undecodable(e: impl std::fmt::Display) -> Error {
    Error::Protocol(format!("a reply that does not decode: {e}"))
}

impl Actor3 {
    /// Connects, mounts `/` and goes to the directory `dir` below it. The xids begin at `xid`.
    ///
    /// # Errors
    /// No connection, or the server refuses.
    pub fn connect(addr: SocketAddr, dir: &str, xid: u32) -> Result<Self> {
        let sys =
            AuthSys { stamp: 0, machine_name: b"one at a time".to_vec(), uid: 0, gid: 0, gids: Vec::new() };
        let cred = Credential::Sys(Arc::new(sys)).to_opaque();
        let mut wire = Wire::connect(addr, cred).map_err(lost("connect"))?;
        let path = Bytes::from_static(b"/");
        let reply = wire
            .call_as(xid, (mount::PROGRAM, mount::VERSION), mount::proc::MNT, &path)
            .map_err(lost("MNT"))?;
        let root = match MntRes::from_bytes(reply).map_err(undecodable)? {
            MntRes::Ok(mounted) => FileHandle(mounted.handle.0),
            MntRes::Fail(status) => return Err(Error::Protocol(format!("MNT: {status:?}"))),
        };
        let mut actor = Actor3 {
            wire,
            xid,
            handles: HashMap::from([(Path::new(), root)]),
            dirs: HashMap::new(),
            recent: VecDeque::new(),
        };
        let at = actor.handle(dir.as_bytes())?;
        actor.handles = HashMap::from([(Path::new(), at)]);
        Ok(actor)
    }

    /// Remembers a handle from an earlier connection.
    pub fn remember(&mut self, path: Path, fh: FileHandle) {
        self.handles.insert(path, fh);
    }

    /// Every handle that it has seen, by path.
    pub fn handles(&self) -> &HashMap<Path, FileHandle> {
        &self.handles
    }

    /// The last calls that changed something, oldest first.
    pub fn recent(&self) -> Vec<Sent> {
        self.recent.iter().cloned().collect()
    }

    /// The number of the last call.
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Connects to where the server is now, as the same client.
    ///
    /// # Errors
    /// No connection.
    pub fn reconnect(&mut self, addr: SocketAddr) -> Result<()> {
        self.wire = self.wire.again(addr).map_err(lost("connect"))?;
        Ok(())
    }

    /// Sends a call once more, with its number. Returns the results as they come.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn repeat(&mut self, sent: &Sent) -> Result<Bytes> {
        let number = sent.call.number();
        self.wire
            .call_as(sent.xid, (landfast_nfs::PROGRAM, v3::VERSION), number, &sent.call)
            .map_err(lost("a repeated call"))
    }

    /// Makes a call; waits and tries again, with a new number, while the server says JUKEBOX.
    fn call<T: Decode, F: Decode>(&mut self, call: Call) -> Result<T> {
        let since = Instant::now();
        let number = call.number();
        loop {
            self.xid = self.xid.wrapping_add(1);
            let reply = self
                .wire
                .call_as(self.xid, (landfast_nfs::PROGRAM, v3::VERSION), number, &call)
                .map_err(lost(PROC_NAMES.get(number as usize).copied().unwrap_or("a call")));
            let first = reply.as_ref().ok().cloned();
            let outcome = reply.and_then(|reply| Res::<T, F>::from_bytes(reply).map_err(undecodable));
            if matches!(&outcome, Ok(Res::Fail(NfsStat3::JUKEBOX, _)) if since.elapsed() < RETRY_WAIT_MAX) {
                // RFC 1813 section 2.6: the client waits and tries again.
                std::thread::sleep(RETRY_WAIT);
                continue;
            }
            if modifies(&call) {
                // An answer that promises nothing is as good as none.
                let reply = first.filter(|_| matches!(outcome, Ok(Res::Ok(_))));
                self.recent.push_back(Sent { xid: self.xid, call: call.clone(), reply });
                if self.recent.len() > V3_REMEMBERED_MAX {
                    self.recent.pop_front();
                }
            }
            return match outcome? {
                Res::Ok(ok) => Ok(ok),
                Res::Fail(status, _) => Err(failed(number, status)),
            };
        }
    }

    /// The handle at `path`, looked up when it is not remembered.
    ///
    /// # Errors
    /// [`Error::Nfs`], [`Error::Lost`].
    pub fn handle(&mut self, path: &[u8]) -> Result<FileHandle> {
        if let Some(fh) = self.handles.get(path) {
            return Ok(fh.clone());
        }
        let at = self.at(path)?;
        let found: LookupOk = self.call::<_, PostOp>(Call::Lookup(at))?;
        let fh = FileHandle(found.object.0);
        self.handles.insert(path.to_vec(), fh.clone());
        Ok(fh)
    }

    /// A name in its directory.
    fn at(&mut self, path: &[u8]) -> Result<DirOp> {
        let (dir, name) = split(path);
        let dir = handle3(&self.handle(dir)?);
        Ok(DirOp { dir, name: Bytes::copy_from_slice(name) })
    }

    /// Does one action; CLOSE is nothing here, and there are neither extended attributes nor access lists.
    ///
    /// # Errors
    /// [`Error::Nfs`]; after [`Error::Lost`] it is not known whether it was done.
    pub fn act(&mut self, action: &Action) -> Result<Done> {
        let attrs = |a: Option<Fattr>| Done { attrs: a.as_ref().map(values), ..Done::default() };
        match action {
            Action::Create { path, mode } => {
                let sattr = Sattr { mode: Some(*mode), ..Sattr::default() };
                let create = CreateArgs { at: self.at(path)?, how: CreateHow::Guarded(sattr) };
                self.make(path, Call::Create(create)).map(attrs)
            }
            Action::Make { path, node, mode } => {
                let at = self.at(path)?;
                let sattr = Sattr { mode: Some(*mode), ..Sattr::default() };
                let device = |major: &u32, minor: &u32| SpecData { major: *major, minor: *minor };
                let mknod = |what| Call::Mknod(MknodArgs { at: at.clone(), what });
                let call = match node {
                    Node::Dir => Call::Mkdir(MkdirArgs { at, attrs: sattr }),
                    Node::Symlink(to) => {
                        Call::Symlink(SymlinkArgs { at, attrs: sattr, target: Bytes::copy_from_slice(to) })
                    }
                    Node::Fifo => mknod(MknodWhat::Fifo(sattr)),
                    Node::Socket => mknod(MknodWhat::Sock(sattr)),
                    Node::Char(a, b) => mknod(MknodWhat::Chr(sattr, device(a, b))),
                    Node::Block(a, b) => mknod(MknodWhat::Blk(sattr, device(a, b))),
                };
                self.dirs.insert(path.clone(), *node == Node::Dir);
                self.make(path, call).map(attrs)
            }
            Action::Write { path, offset, data, stable } => self.write(path, *offset, data, *stable),
            Action::Commit { path } => {
                let file = handle3(&self.handle(path)?);
                let commit = CommitArgs { file, offset: 0, count: 0 };
                let done: CommitOk = self.call::<_, WccData>(Call::Commit(commit))?;
                Ok(Done { verifier: Some(done.verf), ..attrs(done.wcc.after) })
            }
            Action::Set { path, change } => {
                let object = handle3(&self.handle(path)?);
                let set = SetattrArgs { object, attrs: sattr(change), guard: None };
                let wcc: WccData = self.call::<_, WccData>(Call::Setattr(set))?;
                Ok(attrs(wcc.after))
            }
            Action::Link { from, to } => {
                let fh = self.handle(from)?;
                let link = LinkArgs { file: handle3(&fh), link: self.at(to)? };
                let done: LinkWcc = self.call::<_, LinkWcc>(Call::Link(link))?;
                self.handles.insert(to.clone(), fh);
                Ok(attrs(done.attrs))
            }
            Action::Rename { from, to } => {
                let rename = RenameArgs { from: self.at(from)?, to: self.at(to)? };
                let _: RenameWcc = self.call::<_, RenameWcc>(Call::Rename(rename))?;
                super::action::move_keys(&mut self.handles, from, to);
                super::action::move_keys(&mut self.dirs, from, to);
                Ok(Done::default())
            }
            Action::Remove { path } => {
                let at = self.at(path)?;
                let call = if self.is_dir(path)? { Call::Rmdir(at) } else { Call::Remove(at) };
                let _: WccData = self.call::<_, WccData>(call)?;
                self.handles.retain(|p, _| !is_below(p, path));
                self.dirs.retain(|p, _| !is_below(p, path));
                Ok(Done::default())
            }
            Action::Close { .. } => Ok(Done::default()),
            Action::Xattr { .. } | Action::Acl { .. } => {
                Err(Error::Protocol("NFSv3 has no such operation".into()))
            }
        }
    }

    fn is_dir(&mut self, path: &Path) -> Result<bool> {
        if let Some(is) = self.dirs.get(path) {
            return Ok(*is);
        }
        let fh = self.handle(path)?;
        let is = self.getattr(&fh)?.kind == Some(v4::FileType::Dir);
        self.dirs.insert(path.clone(), is);
        Ok(is)
    }

    fn make(&mut self, path: &Path, call: Call) -> Result<Option<Fattr>> {
        let made: MakeOk = self.call::<_, WccData>(call)?;
        match made.object {
            Some(fh) => drop(self.handles.insert(path.clone(), FileHandle(fh.0))),
            None => drop(self.handles.remove(path)),
        }
        Ok(made.attrs)
    }

    fn write(&mut self, path: &Path, offset: u64, data: &Bytes, stable: bool) -> Result<Done> {
        let file = handle3(&self.handle(path)?);
        let wanted = if stable { StableHow::FileSync } else { StableHow::Unstable };
        let mut done = 0;
        let mut last = Done::default();
        while done < data.len() {
            let piece = data.slice(done..data.len().min(done + SERIAL_WRITE_BYTES_MAX));
            let write = WriteArgs {
                file: file.clone(),
                offset: offset + done as u64,
                count: piece.len() as u32,
                stable: wanted,
                data: piece,
            };
            let ok: WriteOk = self.call::<_, WccData>(Call::Write(write))?;
            if ok.count == 0 || (stable && ok.committed != StableHow::FileSync) {
                return Err(Error::Protocol("a WRITE that wrote nothing, or less stable than asked".into()));
            }
            done += ok.count as usize;
            last =
                Done { attrs: ok.wcc.after.as_ref().map(values), verifier: Some(ok.verf), ..Done::default() };
        }
        Ok(last)
    }

    /// The attributes of the object behind a handle.
    ///
    /// # Errors
    /// [`Error::Nfs`], [`Error::Lost`].
    pub fn getattr(&mut self, fh: &FileHandle) -> Result<AttrValues> {
        let found: Fattr = self.call::<_, ()>(Call::Getattr(handle3(fh)))?;
        Ok(values(&found))
    }

    /// Up to `count` bytes of a file.
    ///
    /// # Errors
    /// [`Error::Nfs`], [`Error::Lost`].
    pub fn read(&mut self, fh: &FileHandle, offset: u64, count: u32) -> Result<Bytes> {
        let read = Call::Read(ReadArgs { file: handle3(fh), offset, count });
        let ok: ReadOk = self.call::<_, PostOp>(read)?;
        Ok(ok.data)
    }
}

/// Whether a reply says that the call was executed; with what it says of its object.
///
/// # Errors
/// [`Error::Nfs`] with the server's status.
pub fn learn(call: &Call, reply: Bytes) -> Result<Done> {
    fn of<T: Decode, F: Decode>(proc: u32, reply: Bytes) -> Result<T> {
        match Res::<T, F>::from_bytes(reply).map_err(undecodable)? {
            Res::Ok(ok) => Ok(ok),
            Res::Fail(status, _) => Err(failed(proc, status)),
        }
    }
    let n = call.number();
    let attrs = |a: Option<Fattr>| Done { attrs: a.as_ref().map(values), ..Done::default() };
    Ok(match call {
        Call::Setattr(_) => attrs(of::<WccData, WccData>(n, reply)?.after),
        Call::Write(_) => attrs(of::<WriteOk, WccData>(n, reply)?.wcc.after),
        Call::Create(_) | Call::Mkdir(_) | Call::Symlink(_) | Call::Mknod(_) => {
            attrs(of::<MakeOk, WccData>(n, reply)?.attrs)
        }
        Call::Remove(_) | Call::Rmdir(_) => of::<WccData, WccData>(n, reply).map(|_| Done::default())?,
        Call::Rename(_) => of::<RenameWcc, RenameWcc>(n, reply).map(|_| Done::default())?,
        Call::Link(_) => attrs(of::<LinkWcc, LinkWcc>(n, reply)?.attrs),
        _ => return Err(Error::Protocol("a call that changes nothing".into())),
    })
}

fn sattr(change: &Change) -> Sattr {
    let now = if change.touch { SetTime::Server } else { SetTime::Dont };
    // Version 3 has times from 1970 to 2106.
    let client = |(s, n): (i64, u32)| SetTime::Client(Time { seconds: s.max(0) as u32, nseconds: n });
    Sattr {
        mode: change.mode,
        uid: change.owner.map(|o| o.0),
        gid: change.owner.map(|o| o.1),
        size: change.size,
        atime: now,
        mtime: change.mtime.map_or(now, client),
    }
}

/// Attributes as the other version has them.
fn values(a: &Fattr) -> AttrValues {
    let kind = match a.file_type {
        FileType::Reg => v4::FileType::Reg,
        FileType::Dir => v4::FileType::Dir,
        FileType::Blk => v4::FileType::Blk,
        FileType::Chr => v4::FileType::Chr,
        FileType::Lnk => v4::FileType::Lnk,
        FileType::Sock => v4::FileType::Sock,
        FileType::Fifo => v4::FileType::Fifo,
    };
    AttrValues {
        kind: Some(kind),
        size: Some(a.size),
        fileid: Some(a.fileid),
        numlinks: Some(a.nlink),
        mode: Some(a.mode),
        time_modify: Some(NfsTime { seconds: i64::from(a.mtime.seconds), nseconds: a.mtime.nseconds }),
        ..AttrValues::default()
    }
}
