//! Single file operations by path, each its own COMPOUND in the kernel's shape.
//!
//! An [`Action`] says what is to change, an [`Actor`] does it over a session, with the handles it
//! remembers as the kernel's dentry cache would. The power-cut harness keeps a journal of actions
//! and knows of each whether it was acknowledged.

use super::session::{Connect, Session};
use crate::error::{Error, Result};
use landfast_nfs::v4::args::{
    CloseArgs, CommitArgs, CreateArgs, CreateHow, CreateType, ListxattrsArgs, OpenArgs, OpenClaim, OpenHow,
    ReadArgs, ReaddirArgs, RenameArgs, SetattrArgs, SetxattrArgs, SetxattrOption, WriteArgs, owner,
};
use landfast_nfs::v4::attr::number;
use landfast_nfs::v4::types::NfsAce;
use landfast_nfs::v4::{
    ArgOp, AttrValues, Bitmap, FileHandle, NfsTime, ResBody, ResOp, SetTime, SpecData, StableHow, Stateid,
    flags,
};
use landfast_verify::blocking::session::{attributes, filehandle, result_of};
use landfast_xdr::Bytes;
use std::collections::HashMap;
use std::net::SocketAddr;

/// What of a file may hold an exclusive create's verifier.
const TIMES: Bitmap = Bitmap::of(&[number::TIME_ACCESS, number::TIME_MODIFY]);

/// A path below the directory that the actor works in: names joined by `/`, none at either end.
pub type Path = Vec<u8>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Dir,
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    /// Major, minor.
    Char(u32, u32),
    /// Major, minor.
    Block(u32, u32),
}

/// Attributes to set; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    pub mode: Option<u32>,
    /// User and group.
    pub owner: Option<(u32, u32)>,
    pub size: Option<u64>,
    /// Seconds, nanoseconds.
    pub mtime: Option<(i64, u32)>,
    /// Access and modification time become the server's current time.
    pub touch: bool,
}

impl Change {
    fn values(&self) -> AttrValues {
        let id = |n: u32| Some(Bytes::from(n.to_string()));
        let now = || self.touch.then_some(SetTime::ServerTime);
        let mtime = self.mtime.map(|(seconds, nseconds)| SetTime::ClientTime(NfsTime { seconds, nseconds }));
        AttrValues {
            mode: self.mode,
            size: self.size,
            owner: self.owner.and_then(|o| id(o.0)),
            owner_group: self.owner.and_then(|o| id(o.1)),
            time_access_set: now(),
            time_modify_set: mtime.or_else(now),
            ..AttrValues::default()
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make a regular file that must not exist, and open it for writing.
    Create {
        path: Path,
        mode: u32,
    },
    /// Write to an open file: FILE_SYNC if `stable`, else UNSTABLE.
    Write {
        path: Path,
        offset: u64,
        data: Bytes,
        stable: bool,
    },
    /// Make all unstable data of a file stable.
    Commit {
        path: Path,
    },
    Set {
        path: Path,
        change: Change,
    },
    /// CLOSE of a file that the actor has open.
    Close {
        path: Path,
    },
    /// Make anything but a regular file.
    Make {
        path: Path,
        node: Node,
        mode: u32,
    },
    /// Make the hard link `to` of the existing name `from`.
    Link {
        from: Path,
        to: Path,
    },
    /// Rename, over whatever is at `to`.
    Rename {
        from: Path,
        to: Path,
    },
    /// REMOVE or RMDIR.
    Remove {
        path: Path,
    },
    /// Set an extended attribute, or remove it if `value` is `None` (RFC 8276). The name has no namespace.
    Xattr {
        path: Path,
        name: Vec<u8>,
        value: Option<Bytes>,
    },
    /// SETATTR of the access list.
    Acl {
        path: Path,
        acl: Vec<NfsAce>,
    },
}

/// What a reply says about its object.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// The object's attributes after the action, when the COMPOUND asked for them.
    pub attrs: Option<AttrValues>,
    /// The write verifier of a WRITE or COMMIT.
    pub verifier: Option<[u8; 8]>,
    /// Directories whose entries changed, with their change attributes after it.
    pub dirs: Vec<(Path, u64)>,
}

impl Action {
    /// Whether the reply promises stable storage.
    pub fn is_durable(&self) -> bool {
        !matches!(self, Action::Close { .. } | Action::Write { stable: false, .. })
    }

    /// Whether the disk's own names and attributes show that it was done; otherwise only NFS does.
    pub fn shows_on_disk(&self) -> bool {
        !matches!(self, Action::Xattr { .. } | Action::Acl { .. })
    }
}

/// Splits a path into its directory's and its last name.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(i) => (&path[..i], &path[i + 1..]),
        None => (&[], path),
    }
}

fn name(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// The attributes that the kernel's client wants back with almost everything.
const POST: Bitmap = Bitmap::of(&[
    number::CHANGE,
    number::SIZE,
    number::FILEID,
    number::NUMLINKS,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
    number::TYPE,
]);

/// What is looked at when a tree is compared.
const ALL: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FILEID,
    number::NUMLINKS,
    number::TIME_MODIFY,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::ACL,
    number::FILEHANDLE,
]);

pub struct Actor {
    session: Session,
    handles: HashMap<Path, FileHandle>,
    opens: HashMap<Path, Stateid>,
    creates: u64,
    /// Ask for access lists where they may have changed.
    lists: bool,
}

impl Actor {
    /// An actor that works below `root`.
    pub fn new(session: Session, root: FileHandle) -> Self {
        Actor {
            session,
            handles: HashMap::from([(Path::new(), root)]),
            opens: HashMap::new(),
            creates: 0,
            lists: false,
        }
    }

    /// An actor of a client of its own, below `path`.
    pub fn connect(addr: SocketAddr, client: impl Into<String>, path: &str) -> Result<Self> {
        let mut session = Session::connect(&Connect::new(addr, client))?;
        let root = session.walk(path)?;
        Ok(Actor::new(session, root))
    }

    /// Asks for the access list whenever a mode was set.
    pub fn with_lists(mut self) -> Self {
        self.lists = true;
        self
    }

    /// The session, to repeat requests on it.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn into_session(self) -> Session {
        self.session
    }

    pub fn handles(&self) -> &HashMap<Path, FileHandle> {
        &self.handles
    }

    pub fn remember(&mut self, path: Path, fh: FileHandle) {
        self.handles.insert(path, fh);
    }

    /// The handle at `path`, looked up when it is not remembered.
    pub fn handle(&mut self, path: &[u8]) -> Result<FileHandle> {
        if let Some(fh) = self.handles.get(path) {
            return Ok(fh.clone());
        }
        let (dir, last) = split(path);
        let dir = self.handle(dir)?;
        let results = self.session.compound(vec![
            ArgOp::Putfh(dir),
            ArgOp::Lookup(name(last)),
            ArgOp::Getfh,
            ArgOp::Getattr(POST),
        ])?;
        let fh = filehandle(&results)?;
        self.handles.insert(path.to_vec(), fh.clone());
        Ok(fh)
    }

    /// Does one action. Returns the attributes of its object afterwards, when the COMPOUND in the
    /// kernel's shape asks for them.
    /// Errors: As [`Session::compound`]; after [`Error::Lost`] it is not known whether it was done.
    pub fn perform(&mut self, action: &Action) -> Result<Option<AttrValues>> {
        self.dispatch(action).map(|results| attributes(&results).ok())
    }

    /// As [`Actor::perform`], with all that the reply says.
    pub fn act(&mut self, action: &Action) -> Result<Done> {
        let results = self.dispatch(action)?;
        Ok(Actor::learn(action, &results))
    }

    /// What the results of an action's COMPOUND say.
    pub fn learn(action: &Action, results: &[ResOp]) -> Done {
        let mut done = Done { attrs: attributes(results).ok(), ..Done::default() };
        let dir = |path: &Path| split(path).0.to_vec();
        for result in results {
            match (&result.body, action) {
                (ResBody::Write(w), _) => done.verifier = Some(w.writeverf),
                (ResBody::Commit(verf), _) => done.verifier = Some(*verf),
                (ResBody::Open(o), Action::Create { path, .. }) => done.dirs.push((dir(path), o.cinfo.after)),
                (ResBody::Create(c), Action::Make { path, .. }) => done.dirs.push((dir(path), c.cinfo.after)),
                (ResBody::Link(c), Action::Link { to, .. }) => done.dirs.push((dir(to), c.after)),
                (ResBody::Remove(c), Action::Remove { path }) => done.dirs.push((dir(path), c.after)),
                (ResBody::Rename(r), Action::Rename { from, to }) => {
                    done.dirs.push((dir(from), r.source_cinfo.after));
                    if dir(from) != dir(to) {
                        done.dirs.push((dir(to), r.target_cinfo.after));
                    }
                }
                _ => {}
            }
        }
        done
    }

    fn dispatch(&mut self, action: &Action) -> Result<Vec<ResOp>> {
        match action {
            Action::Create { path, mode } => self.create(path, *mode),
            Action::Write { path, offset, data, stable } => self.write(path, *offset, data, *stable),
            Action::Commit { path } => {
                let fh = self.handle(path)?;
                let commit = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
                self.session.compound(vec![ArgOp::Putfh(fh), commit, ArgOp::Getattr(POST)])
            }
            Action::Set { path, change } => self.set(path, change),
            Action::Close { path } => {
                let fh = self.handle(path)?;
                let open_stateid = self.opens.remove(path).unwrap_or(Stateid::ANONYMOUS);
                let close = ArgOp::Close(CloseArgs { seqid: 0, open_stateid });
                self.session.compound(vec![ArgOp::Putfh(fh), ArgOp::Getattr(POST), close])
            }
            Action::Make { path, node, mode } => self.make(path, node, *mode),
            Action::Link { from, to } => {
                let file = self.handle(from)?;
                let (dir, last) = split(to);
                let dir = self.handle(dir)?;
                let results = self.session.compound(vec![
                    ArgOp::Putfh(file.clone()),
                    ArgOp::Savefh,
                    ArgOp::Putfh(dir),
                    ArgOp::Link(name(last)),
                    ArgOp::Restorefh,
                    ArgOp::Getattr(POST),
                ])?;
                self.handles.insert(to.clone(), file);
                Ok(results)
            }
            Action::Rename { from, to } => self.rename(from, to),
            Action::Remove { path } => {
                let (dir, last) = split(path);
                let dir = self.handle(dir)?;
                let results = self.session.compound(vec![ArgOp::Putfh(dir), ArgOp::Remove(name(last))])?;
                self.handles.remove(path);
                self.opens.remove(path);
                Ok(results)
            }
            Action::Xattr { path, name: key, value } => {
                let fh = self.handle(path)?;
                let op = match value {
                    Some(value) => ArgOp::Setxattr(SetxattrArgs {
                        option: SetxattrOption::Either,
                        key: name(key),
                        value: value.clone(),
                    }),
                    None => ArgOp::Removexattr(name(key)),
                };
                self.session.compound(vec![ArgOp::Putfh(fh), op, ArgOp::Getattr(POST)])
            }
            Action::Acl { path, acl } => {
                let values = AttrValues { acl: Some(acl.clone()), ..AttrValues::default() };
                self.setattr(path, Stateid::ANONYMOUS, &values, true)
            }
        }
    }

    /// As the kernel does for `open(O_CREAT|O_EXCL)`: a guarded create on a persistent session, else
    /// an exclusive one and, if the verifier stands in the times, a SETATTR for these (RFC 8881 section 18.16.4).
    fn create(&mut self, path: &Path, mode: u32) -> Result<Vec<ResOp>> {
        let (dir, last) = split(path);
        let dir = self.handle(dir)?;
        let attrs = AttrValues { mode: Some(mode), ..AttrValues::default() }.to_fattr(&AttrValues::KNOWN);
        self.creates += 1;
        let how = if self.session.persistent() {
            CreateHow::Guarded(attrs)
        } else {
            let verf = (crate::clock::now_ns() ^ (self.creates << 48)).to_be_bytes();
            CreateHow::Exclusive41 { verf, attrs }
        };
        let open = OpenArgs {
            seqid: 0,
            share_access: flags::OPEN4_SHARE_ACCESS_WRITE | flags::OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: flags::OPEN4_SHARE_DENY_NONE,
            owner: owner(self.session.clientid(), b"one at a time"),
            openhow: OpenHow::Create(how),
            claim: OpenClaim::Null(name(last)),
        };
        let results = self.session.compound(vec![
            ArgOp::Putfh(dir),
            ArgOp::Open(open),
            ArgOp::Getfh,
            ArgOp::Access(flags::ACCESS4_READ | flags::ACCESS4_MODIFY | flags::ACCESS4_EXTEND),
            ArgOp::Getattr(POST),
        ])?;
        let opened = results.iter().find_map(|r| match &r.body {
            ResBody::Open(o) => Some((o.stateid, o.attrset)),
            _ => None,
        });
        let (stateid, set) = opened.ok_or_else(|| Error::Protocol("OPEN without a stateid".into()))?;
        self.handles.insert(path.clone(), filehandle(&results)?);
        self.opens.insert(path.clone(), stateid);
        if !self.session.persistent() && !set.and(&TIMES).is_empty() {
            return self.set(path, &Change { touch: true, ..Change::default() });
        }
        Ok(results)
    }

    fn write(&mut self, path: &Path, offset: u64, data: &Bytes, stable: bool) -> Result<Vec<ResOp>> {
        let fh = self.handle(path)?;
        let stateid = self.opens.get(path).copied().unwrap_or(Stateid::ANONYMOUS);
        let mut done = 0;
        let mut last = Vec::new();
        while done < data.len() {
            let piece = data.slice(done..data.len().min(done + self.session.write_max()));
            let write = WriteArgs {
                stateid,
                offset: offset + done as u64,
                stable: if stable { StableHow::FileSync } else { StableHow::Unstable },
                data: piece,
            };
            let results = self.session.compound(vec![
                ArgOp::Putfh(fh.clone()),
                ArgOp::Write(write),
                ArgOp::Getattr(POST),
            ])?;
            let count = results.iter().find_map(|r| match &r.body {
                ResBody::Write(w) if !stable || w.committed == StableHow::FileSync => Some(w.count),
                _ => None,
            });
            match count {
                Some(n @ 1..) => {
                    done += n as usize;
                    last = results;
                }
                _ => {
                    return Err(Error::Protocol(
                        "a WRITE that wrote nothing, or less stable than asked".into(),
                    ));
                }
            }
        }
        Ok(last)
    }

    fn set(&mut self, path: &Path, change: &Change) -> Result<Vec<ResOp>> {
        // Only a change of size is an I/O under the open (RFC 8881 section 18.30.3).
        let open = change.size.and_then(|_| self.opens.get(path).copied());
        // A new mode changes the mask of the access list.
        let with_list = self.lists && change.mode.is_some();
        self.setattr(path, open.unwrap_or(Stateid::ANONYMOUS), &change.values(), with_list)
    }

    fn setattr(
        &mut self,
        path: &Path,
        stateid: Stateid,
        values: &AttrValues,
        with_list: bool,
    ) -> Result<Vec<ResOp>> {
        let fh = self.handle(path)?;
        let set = SetattrArgs { stateid, attrs: values.to_fattr(&AttrValues::KNOWN) };
        let mut wanted = POST;
        if with_list {
            wanted.set(number::ACL);
        }
        self.session.compound(vec![ArgOp::Putfh(fh), ArgOp::Setattr(set), ArgOp::Getattr(wanted)])
    }

    fn make(&mut self, path: &Path, node: &Node, mode: u32) -> Result<Vec<ResOp>> {
        let (dir, last) = split(path);
        let dir = self.handle(dir)?;
        let device = |major: &u32, minor: &u32| SpecData { major: *major, minor: *minor };
        let kind = match node {
            Node::Dir => CreateType::Dir,
            Node::Symlink(to) => CreateType::Lnk(name(to)),
            Node::Fifo => CreateType::Fifo,
            Node::Socket => CreateType::Sock,
            Node::Char(major, minor) => CreateType::Chr(device(major, minor)),
            Node::Block(major, minor) => CreateType::Blk(device(major, minor)),
        };
        let attrs = AttrValues { mode: Some(mode), ..AttrValues::default() }.to_fattr(&AttrValues::KNOWN);
        let results = self.session.compound(vec![
            ArgOp::Putfh(dir),
            ArgOp::Create(CreateArgs { kind, name: name(last), attrs }),
            ArgOp::Getfh,
            ArgOp::Getattr(POST),
        ])?;
        self.handles.insert(path.clone(), filehandle(&results)?);
        Ok(results)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<Vec<ResOp>> {
        let ((from_dir, old), (to_dir, new)) = (split(from), split(to));
        let (from_dir, to_dir) = (self.handle(from_dir)?, self.handle(to_dir)?);
        let names = RenameArgs { oldname: name(old), newname: name(new) };
        let results = self.session.compound(vec![
            ArgOp::Putfh(from_dir),
            ArgOp::Savefh,
            ArgOp::Putfh(to_dir),
            ArgOp::Rename(names),
        ])?;
        move_keys(&mut self.handles, from, to);
        move_keys(&mut self.opens, from, to);
        Ok(results)
    }

    pub fn getattr(&mut self, fh: &FileHandle) -> Result<AttrValues> {
        let results = self.session.compound(vec![ArgOp::Putfh(fh.clone()), ArgOp::Getattr(POST)])?;
        Ok(attributes(&results)?)
    }

    pub fn read(&mut self, fh: &FileHandle, offset: u64, count: u32) -> Result<Bytes> {
        let read = ReadArgs { stateid: Stateid::ANONYMOUS, offset, count };
        let results = self.on(fh, ArgOp::Read(read))?;
        Ok(result_of!(results, "READ", Read)?.data)
    }

    /// The entries of a directory, each with all attributes that this client knows of.
    pub fn list(&mut self, dir: &FileHandle) -> Result<Vec<(Path, AttrValues)>> {
        let mut out = Vec::new();
        let (mut cookie, mut cookieverf) = (0, [0; 8]);
        loop {
            let args = ReaddirArgs {
                cookie,
                cookieverf,
                dircount: LIST_BYTES,
                maxcount: LIST_BYTES,
                attr_request: ALL,
            };
            let results = self.on(dir, ArgOp::Readdir(args))?;
            let page = result_of!(results, "READDIR", Readdir)?;
            cookieverf = page.cookieverf;
            for entry in page.entries {
                cookie = entry.cookie;
                let attrs = AttrValues::from_fattr(&entry.attrs)
                    .map_err(|status| Error::Nfs { op: "READDIR".into(), status })?;
                out.push((entry.name.to_vec(), attrs));
            }
            if page.eof {
                return Ok(out);
            }
        }
    }

    pub fn readlink(&mut self, fh: &FileHandle) -> Result<Vec<u8>> {
        let results = self.on(fh, ArgOp::Readlink)?;
        Ok(result_of!(results, "READLINK", Readlink)?.to_vec())
    }

    pub fn xattrs(&mut self, fh: &FileHandle) -> Result<Vec<(Vec<u8>, Bytes)>> {
        let mut out = Vec::new();
        let mut cookie = 0;
        loop {
            let list = ArgOp::Listxattrs(ListxattrsArgs { cookie, maxcount: LIST_BYTES });
            let results = self.on(fh, list)?;
            let page = result_of!(results, "LISTXATTRS", Listxattrs)?;
            for key in page.names {
                let results = self.on(fh, ArgOp::Getxattr(key.clone()))?;
                let value = result_of!(results, "GETXATTR", Getxattr)?;
                out.push((key.to_vec(), value));
            }
            cookie = page.cookie;
            if page.eof {
                return Ok(out);
            }
        }
    }

    /// COMMIT of a whole file: the write verifier.
    pub fn verifier(&mut self, fh: &FileHandle) -> Result<[u8; 8]> {
        let commit = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
        let results = self.on(fh, commit)?;
        Ok(result_of!(results, "COMMIT", Commit)?)
    }

    /// Does one operation on the object behind a handle.
    fn on(&mut self, fh: &FileHandle, op: ArgOp) -> Result<Vec<ResOp>> {
        self.session.compound(vec![ArgOp::Putfh(fh.clone()), op])
    }
}

/// Bytes of a piece of a listing.
const LIST_BYTES: u32 = 32 << 10;

/// What was remembered under `from`, and below it, is under `to` now; what was at `to` is gone.
pub(super) fn move_keys<V>(map: &mut HashMap<Path, V>, from: &[u8], to: &[u8]) {
    map.retain(|path, _| !is_below(path, to) || is_below(path, from));
    let moved: Vec<Path> = map.keys().filter(|p| is_below(p, from)).cloned().collect();
    for old in moved {
        if let Some(v) = map.remove(&old) {
            map.insert([to, &old[from.len()..]].concat(), v);
        }
    }
}

/// Whether `path` is `dir` or below it.
pub fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || dir.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_at_the_last_slash() {
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split(b"a"), (&b""[..], &b"a"[..]));
    }

    #[test]
    fn a_rename_moves_what_is_below() {
        let mut m: HashMap<Path, u32> =
            [("a", 1), ("a/x", 2), ("ab", 3), ("b", 4), ("b/y", 5)].map(|(k, v)| (k.into(), v)).into();
        move_keys(&mut m, b"a", b"b");
        let mut got: Vec<_> = m.into_iter().collect();
        got.sort();
        assert_eq!(got, [(b"ab".to_vec(), 3), (b"b".to_vec(), 1), (b"b/x".to_vec(), 2)]);
    }
}
