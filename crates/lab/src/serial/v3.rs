//! The same single file operations over NFS version 3 (RFC 1813), as a kernel client of that version makes them: one
//! call for each, each with an xid of its own; a call that broke off is repeated with the xid that it had.

use super::action::{Action, Change, Done, Node, Path, is_below, split};
use super::session::credential;
use crate::error::{Error, Result};
use crate::limits::{RETRY_WAIT, RETRY_WAIT_MAX, SERIAL_PATIENCE, SERIAL_WRITE_BYTES_MAX, V3_REMEMBERED_MAX};
use landfast_nfs::v3::args::{
    Call, CommitArgs, CreateArgs, CreateHow, LinkArgs, MkdirArgs, MknodArgs, MknodWhat, ReadArgs, RenameArgs,
    SetattrArgs, SymlinkArgs, WriteArgs,
};
use landfast_nfs::v3::res::{CommitOk, LinkWcc, LookupOk, MakeOk, PostOp, ReadOk, RenameWcc, WriteOk};
use landfast_nfs::v3::types::{DirOp, FileType, SetTime, SpecData, StableHow};
use landfast_nfs::v3::{Fattr, FileHandle as Handle3, Sattr, Time, WccData};
use landfast_nfs::v4::{self, AttrValues, FileHandle, NfsTime};
use landfast_verify::blocking::v3::{mount_path, procedure, result};
use landfast_verify::blocking::wire::Wire;
use landfast_verify::error::Meaning;
use landfast_xdr::{Bytes, Decode};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

/// A call that went out, and what came back.
#[derive(Debug, Clone)]
pub struct Sent {
    pub xid: u32,
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
    handles: HashMap<Path, FileHandle>,
    dirs: HashMap<Path, bool>,
    recent: VecDeque<Sent>,
}

impl Actor3 {
    /// Connects, mounts `/` and goes to the directory `dir` below it. The xids begin at `xid`.
    pub fn connect(addr: SocketAddr, dir: &str, xid: u32) -> Result<Self> {
        let cred = credential("one at a time");
        let mut wire = Wire::connect_as(addr, cred, xid, SERIAL_PATIENCE)?;
        let root = FileHandle(mount_path(&mut wire, "/")?.0);
        let mut actor = Actor3 {
            wire,
            handles: HashMap::from([(Path::new(), root)]),
            dirs: HashMap::new(),
            recent: VecDeque::new(),
        };
        let at = actor.handle(dir.as_bytes())?;
        actor.handles = HashMap::from([(Path::new(), at)]);
        Ok(actor)
    }

    pub fn remember(&mut self, path: Path, fh: FileHandle) {
        self.handles.insert(path, fh);
    }

    pub fn handles(&self) -> &HashMap<Path, FileHandle> {
        &self.handles
    }

    pub fn recent(&self) -> Vec<Sent> {
        self.recent.iter().cloned().collect()
    }

    pub fn xid(&self) -> u32 {
        self.wire.xid()
    }

    /// Connects to where the server is now, as the same client.
    pub fn reconnect(&mut self, addr: SocketAddr) -> Result<()> {
        Ok(self.wire.reconnect(addr)?)
    }

    /// Sends a call once more, with its number. Returns the results as they come.
    pub fn repeat(&mut self, sent: &Sent) -> Result<Bytes> {
        Ok(self.wire.call_again(sent.xid, procedure(&sent.call), &sent.call)?)
    }

    fn call<T: Decode, F: Decode>(&mut self, call: Call) -> Result<T> {
        self.send(&call, |reply| result::<T, F>(call.number(), reply))
    }

    /// Makes a call; waits and tries again, with a new xid, while the server says JUKEBOX.
    fn send<R>(&mut self, call: &Call, decode: impl Fn(Bytes) -> Decoded<R>) -> Result<R> {
        let since = Instant::now();
        loop {
            let reply = self.wire.call(procedure(call), call);
            let first = reply.as_ref().ok().cloned();
            let outcome = reply.and_then(&decode);
            let later = matches!(&outcome, Err(e) if e.meaning() == Some(Meaning::Later));
            if later && since.elapsed() < RETRY_WAIT_MAX {
                // RFC 1813 section 2.6: the client waits and tries again.
                std::thread::sleep(RETRY_WAIT);
                continue;
            }
            if modifies(call) {
                // An answer that promises nothing is as good as none.
                let reply = first.filter(|_| outcome.is_ok());
                self.recent.push_back(Sent { xid: self.wire.xid(), call: call.clone(), reply });
                if self.recent.len() > V3_REMEMBERED_MAX {
                    self.recent.pop_front();
                }
            }
            return Ok(outcome?);
        }
    }

    /// The handle at `path`, looked up when it is not remembered.
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

    fn object(&mut self, path: &[u8]) -> Result<Handle3> {
        Ok(Handle3(self.handle(path)?.0))
    }

    fn at(&mut self, path: &[u8]) -> Result<DirOp> {
        let (dir, name) = split(path);
        Ok(DirOp { dir: self.object(dir)?, name: Bytes::copy_from_slice(name) })
    }

    /// Does one action; CLOSE is nothing here, and there are neither extended attributes nor access lists.
    /// Errors: [`Error::Nfs`]; after [`Error::Lost`] it is not known whether it was done.
    pub fn act(&mut self, action: &Action) -> Result<Done> {
        let call = match action {
            Action::Create { path, mode } => {
                self.dirs.insert(path.clone(), false);
                let sattr = Sattr { mode: Some(*mode), ..Sattr::default() };
                Call::Create(CreateArgs { at: self.at(path)?, how: CreateHow::Guarded(sattr) })
            }
            Action::Make { path, node, mode } => {
                self.dirs.insert(path.clone(), *node == Node::Dir);
                make(self.at(path)?, node, *mode)
            }
            Action::Write { path, offset, data, stable } => {
                return self.write(path, *offset, data, *stable);
            }
            Action::Commit { path } => {
                Call::Commit(CommitArgs { file: self.object(path)?, offset: 0, count: 0 })
            }
            Action::Set { path, change } => {
                let (object, attrs) = (self.object(path)?, sattr(change));
                Call::Setattr(SetattrArgs { object, attrs, guard: None })
            }
            Action::Link { from, to } => {
                Call::Link(LinkArgs { file: self.object(from)?, link: self.at(to)? })
            }
            Action::Rename { from, to } => {
                Call::Rename(RenameArgs { from: self.at(from)?, to: self.at(to)? })
            }
            Action::Remove { path } => {
                let at = self.at(path)?;
                if self.is_dir(path)? { Call::Rmdir(at) } else { Call::Remove(at) }
            }
            Action::Close { .. } => return Ok(Done::default()),
            Action::Xattr { .. } | Action::Acl { .. } => {
                return Err(Error::Protocol("NFSv3 has no such operation".into()));
            }
        };
        let (done, made) = self.send(&call, |reply| answer(&call, reply))?;
        match action {
            Action::Create { path, .. } | Action::Make { path, .. } => match made {
                Some(fh) => drop(self.handles.insert(path.clone(), fh)),
                None => drop(self.handles.remove(path)),
            },
            Action::Link { from, to } => {
                let fh = self.handle(from)?;
                self.handles.insert(to.clone(), fh);
            }
            Action::Rename { from, to } => {
                super::action::move_keys(&mut self.handles, from, to);
                super::action::move_keys(&mut self.dirs, from, to);
            }
            Action::Remove { path } => {
                self.handles.retain(|p, _| !is_below(p, path));
                self.dirs.retain(|p, _| !is_below(p, path));
            }
            _ => {}
        }
        Ok(done)
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

    fn write(&mut self, path: &Path, offset: u64, data: &Bytes, stable: bool) -> Result<Done> {
        let file = self.object(path)?;
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
            last = Done { verifier: Some(ok.verf), ..with_attrs(ok.wcc.after) };
        }
        Ok(last)
    }

    /// Makes a call whose results do not matter.
    /// Errors: [`Error::Protocol`] if it is refused.
    pub fn ask(&mut self, call: &Call) -> Result<()> {
        let reply = self.wire.call(procedure(call), call)?;
        match reply.first_chunk() {
            Some([0, 0, 0, 0]) => Ok(()),
            _ => Err(Error::Protocol(format!("procedure {} was refused", call.number()))),
        }
    }

    pub fn null(&mut self) -> Result<()> {
        Ok(self.wire.call(procedure(&Call::Null), &()).map(drop)?)
    }

    /// The attributes of the object behind a handle.
    pub fn getattr(&mut self, fh: &FileHandle) -> Result<AttrValues> {
        let found: Fattr = self.call::<_, ()>(Call::Getattr(Handle3(fh.0.clone())))?;
        Ok(values(&found))
    }

    /// Up to `count` bytes of a file.
    pub fn read(&mut self, fh: &FileHandle, offset: u64, count: u32) -> Result<Bytes> {
        let read = Call::Read(ReadArgs { file: Handle3(fh.0.clone()), offset, count });
        let ok: ReadOk = self.call::<_, PostOp>(read)?;
        Ok(ok.data)
    }
}

type Decoded<T> = landfast_verify::error::Result<T>;

/// What a reply says of the object of its call.
/// Errors: [`Error::Nfs`] with the server's status.
pub fn learn(call: &Call, reply: Bytes) -> Result<Done> {
    Ok(answer(call, reply)?.0)
}

/// The same, and the handle of what the call made.
fn answer(call: &Call, reply: Bytes) -> Decoded<(Done, Option<FileHandle>)> {
    let n = call.number();
    let done = match call {
        Call::Setattr(_) => with_attrs(result::<WccData, WccData>(n, reply)?.after),
        Call::Write(_) => with_attrs(result::<WriteOk, WccData>(n, reply)?.wcc.after),
        Call::Commit(_) => {
            let ok = result::<CommitOk, WccData>(n, reply)?;
            Done { verifier: Some(ok.verf), ..with_attrs(ok.wcc.after) }
        }
        Call::Create(_) | Call::Mkdir(_) | Call::Symlink(_) | Call::Mknod(_) => {
            let ok = result::<MakeOk, WccData>(n, reply)?;
            return Ok((with_attrs(ok.attrs), ok.object.map(|fh| FileHandle(fh.0))));
        }
        Call::Rename(_) => result::<RenameWcc, RenameWcc>(n, reply).map(|_| Done::default())?,
        Call::Link(_) => with_attrs(result::<LinkWcc, LinkWcc>(n, reply)?.attrs),
        // REMOVE and RMDIR.
        _ => result::<WccData, WccData>(n, reply).map(|_| Done::default())?,
    };
    Ok((done, None))
}

fn with_attrs(attrs: Option<Fattr>) -> Done {
    Done { attrs: attrs.as_ref().map(values), ..Done::default() }
}

fn make(at: DirOp, node: &Node, mode: u32) -> Call {
    let attrs = Sattr { mode: Some(mode), ..Sattr::default() };
    let device = |major: &u32, minor: &u32| SpecData { major: *major, minor: *minor };
    let what = match node {
        Node::Dir => return Call::Mkdir(MkdirArgs { at, attrs }),
        Node::Symlink(to) => {
            return Call::Symlink(SymlinkArgs { at, attrs, target: Bytes::copy_from_slice(to) });
        }
        Node::Fifo => MknodWhat::Fifo(attrs),
        Node::Socket => MknodWhat::Sock(attrs),
        Node::Char(a, b) => MknodWhat::Chr(attrs, device(a, b)),
        Node::Block(a, b) => MknodWhat::Blk(attrs, device(a, b)),
    };
    Call::Mknod(MknodArgs { at, what })
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
