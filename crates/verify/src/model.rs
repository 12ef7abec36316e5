//! The tree that acknowledged operations make: each fact (a name, a mode, a time, a byte) with the operation that made it
//! so. Pure.
//!
//! Each client works in a directory of its own and has one operation in flight at a time, so each has a model of its own,
//! and of each at most one operation is in doubt.

use crate::contents::{Contents, OpNo, Pending};
use crate::op::{Op, Reply, data, split};
use std::collections::{BTreeMap, HashMap};

pub type Id = u32;

/// The directory of the URL: not ours.
pub const BASE: Id = 0;

/// A value and the operation that set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact<T> {
    pub value: T,
    pub op: OpNo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Dir {
        /// Every name that ever was in it, with its object; `None` if the name is gone.
        entries: BTreeMap<String, Fact<Option<Id>>>,
        /// Other clients put names into it as well.
        shared: bool,
    },
    File(Contents),
    Symlink(String),
}

impl Node {
    fn dir(shared: bool) -> Node {
        Node::Dir { entries: BTreeMap::new(), shared }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub what: Node,
    pub born: OpNo,
    /// Its handle as the server gave it, in hexadecimal.
    pub fh: Option<String>,
    pub fileid: Option<u64>,
    /// Permission bits, when they are known.
    pub mode: Option<Fact<u32>>,
    /// Modification time in seconds, when the last thing that changed it was SETATTR.
    pub mtime: Option<Fact<u32>>,
    /// Extended attributes that were ever set; `None` if they were removed.
    pub xattrs: BTreeMap<String, Fact<Option<Vec<u8>>>>,
}

/// An operation that the tree does not allow. No run of this program can have written such a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {op} does not fit the tree: {why}")]
pub struct Contradiction {
    pub op: OpNo,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    objects: BTreeMap<Id, Object>,
    next: Id,
    /// The object that each file id belonged to last.
    owners: HashMap<u64, Id>,
}

impl Default for Model {
    fn default() -> Self {
        Model::new()
    }
}

impl Model {
    /// Nothing but the directory of the URL.
    pub fn new() -> Model {
        let base = Object {
            what: Node::dir(true),
            born: 0,
            fh: None,
            fileid: None,
            mode: None,
            mtime: None,
            xattrs: BTreeMap::new(),
        };
        Model { objects: BTreeMap::from([(BASE, base)]), next: 1, owners: HashMap::new() }
    }

    pub fn object(&self, id: Id) -> Option<&Object> {
        self.objects.get(&id)
    }

    /// All objects that have a name.
    pub fn objects(&self) -> impl Iterator<Item = (Id, &Object)> {
        self.objects.iter().map(|(id, o)| (*id, o))
    }

    /// The object to which a file id belonged last.
    pub fn owner(&self, fileid: u64) -> Option<Id> {
        self.owners.get(&fileid).copied()
    }

    /// The names in a directory that lead somewhere.
    pub fn names(&self, dir: Id) -> impl Iterator<Item = (&str, Id)> {
        let entries = match self.objects.get(&dir).map(|o| &o.what) {
            Some(Node::Dir { entries, .. }) => Some(entries),
            _ => None,
        };
        entries.into_iter().flatten().filter_map(|(n, f)| Some((n.as_str(), f.value?)))
    }

    pub fn find(&self, path: &str) -> Option<Id> {
        let mut names = path.split('/').filter(|n| !n.is_empty());
        names.try_fold(BASE, |at, name| match &self.objects.get(&at)?.what {
            Node::Dir { entries, .. } => entries.get(name)?.value,
            _ => None,
        })
    }

    /// Every path below `top` with its object, parents first.
    pub fn paths(&self, top: &str) -> Vec<(String, Id)> {
        let mut out = Vec::new();
        let mut todo: Vec<(String, Id)> = self.find(top).map(|id| (top.to_owned(), id)).into_iter().collect();
        while let Some((path, id)) = todo.pop() {
            for (name, child) in self.names(id) {
                let below = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                out.push((below.clone(), child));
                todo.push((below, child));
            }
        }
        out
    }

    pub fn links(&self, id: Id) -> usize {
        self.objects.keys().flat_map(|dir| self.names(*dir)).filter(|(_, child)| *child == id).count()
    }

    /// Marks a directory into which other clients put names as well.
    pub fn share(&mut self, path: &str) {
        if let Some(Node::Dir { shared, .. }) =
            self.find(path).and_then(|id| self.objects.get_mut(&id)).map(|o| &mut o.what)
        {
            *shared = true;
        }
    }

    fn bind(&mut self, path: &str, value: Option<Id>, op: OpNo) -> Result<Option<Id>, Contradiction> {
        let (dir, name) = split(path);
        let object = self.find(dir).and_then(|id| self.objects.get_mut(&id));
        let Some(Object { what: Node::Dir { entries, .. }, mtime, .. }) = object else {
            return Err(Contradiction { op, why: format!("{dir} is no directory") });
        };
        *mtime = None;
        Ok(entries.insert(name.to_owned(), Fact { value, op }).and_then(|f| f.value))
    }

    fn add(
        &mut self,
        path: &str,
        what: Node,
        mode: Option<u32>,
        op: OpNo,
        reply: &Reply,
    ) -> Result<(), Contradiction> {
        if self.find(path).is_some() {
            return Err(Contradiction { op, why: format!("{path} exists") });
        }
        let id = self.next;
        self.bind(path, Some(id), op)?;
        self.next += 1;
        if let Some(fileid) = reply.fileid {
            self.owners.insert(fileid, id);
        }
        self.objects.insert(
            id,
            Object {
                what,
                born: op,
                fh: reply.fh.clone(),
                fileid: reply.fileid,
                mode: mode.map(|value| Fact { value, op }),
                mtime: None,
                xattrs: BTreeMap::new(),
            },
        );
        Ok(())
    }

    /// Forgets an object that has lost its last name.
    fn forget(&mut self, id: Option<Id>) {
        if let Some(id) = id.filter(|id| self.links(*id) == 0) {
            self.objects.remove(&id);
        }
    }

    fn at(&mut self, path: &str, op: OpNo) -> Result<&mut Object, Contradiction> {
        let found = self.find(path).and_then(|id| self.objects.get_mut(&id));
        found.ok_or_else(|| Contradiction { op, why: format!("nothing at {path}") })
    }

    fn file(
        &mut self,
        path: &str,
        op: OpNo,
    ) -> Result<(&mut Contents, &mut Option<Fact<u32>>), Contradiction> {
        match self.at(path, op)? {
            Object { what: Node::File(contents), mtime, .. } => Ok((contents, mtime)),
            _ => Err(Contradiction { op, why: format!("{path} is no file") }),
        }
    }

    pub fn apply(&mut self, no: OpNo, op: &Op, reply: &Reply) -> Result<(), Contradiction> {
        match op {
            Op::Create { path, mode, exclusive } => {
                let mode = (!exclusive || reply.mode_set).then_some(*mode);
                self.add(path, Node::File(Contents::default()), mode, no, reply)
            }
            Op::Mkdir { path, mode } => self.add(path, Node::dir(false), Some(*mode), no, reply),
            Op::Symlink { path, text } => self.add(path, Node::Symlink(text.clone()), None, no, reply),
            Op::Write { path, offset, len, tag, .. } => {
                let (contents, mtime) = self.file(path, no)?;
                *mtime = None;
                let mut data = data(*tag, *len as usize);
                data.truncate(reply.count.map_or(data.len(), |n| n as usize));
                let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
                if reply.stable {
                    contents.write(offset, &data, no);
                } else {
                    contents.write_unstable(Pending { op: no, offset, data, verf: reply.verf.clone() });
                }
                Ok(())
            }
            Op::Commit { path, .. } => {
                let (contents, _) = self.file(path, no)?;
                contents.commit(reply.verf.as_deref(), no);
                Ok(())
            }
            Op::SetMode { path, mode } => {
                self.at(path, no)?.mode = Some(Fact { value: *mode, op: no });
                Ok(())
            }
            Op::SetSize { path, size } => {
                let (contents, mtime) = self.file(path, no)?;
                *mtime = None;
                contents.resize(usize::try_from(*size).unwrap_or(usize::MAX), no);
                Ok(())
            }
            Op::SetTimes { path, mtime } => {
                let object = self.at(path, no)?;
                // While data is not stable its time is not either: the server may set it again when it writes.
                let pending = matches!(&object.what, Node::File(c) if !c.pending().is_empty());
                object.mtime = (!pending).then_some(Fact { value: *mtime, op: no });
                Ok(())
            }
            Op::Rmdir { path } | Op::Remove { path } => {
                let gone = self.bind(path, None, no)?;
                if gone.is_none() {
                    return Err(Contradiction { op: no, why: format!("nothing at {path}") });
                }
                self.forget(gone);
                Ok(())
            }
            Op::Link { from, to } => {
                let id = self.find(from);
                if id.is_none() || self.find(to).is_some() {
                    return Err(Contradiction { op: no, why: format!("no link from {from} to {to}") });
                }
                self.bind(to, id, no).map(drop)
            }
            Op::Rename { from, to, .. } => {
                let below = to.strip_prefix(from.as_str()).is_some_and(|rest| rest.starts_with('/'));
                let id = self.find(from).filter(|_| !below);
                let Some(id) = id else {
                    return Err(Contradiction { op: no, why: format!("no rename of {from} to {to}") });
                };
                self.bind(from, None, no)?;
                let victim = self.bind(to, Some(id), no)?;
                self.forget(victim);
                // Servers differ on whether a rename changes the time of a directory that moved.
                if let Some(Object { what: Node::Dir { .. }, mtime, .. }) = self.objects.get_mut(&id) {
                    *mtime = None;
                }
                Ok(())
            }
            Op::SetXattr { path, name, len, tag } => {
                let value = Some(data(*tag, *len as usize));
                self.at(path, no)?.xattrs.insert(name.clone(), Fact { value, op: no });
                Ok(())
            }
            Op::RemoveXattr { path, name } => {
                self.at(path, no)?.xattrs.insert(name.clone(), Fact { value: None, op: no });
                Ok(())
            }
        }
    }

    /// The trees that are possible when `op` was sent and not answered: without it and with it. A write may be done in part, so
    /// it gives one tree in which it is pending; a truncation may have begun.
    pub fn variants(&self, no: OpNo, op: &Op) -> Result<Vec<Model>, Contradiction> {
        let mut with = self.clone();
        match op {
            Op::Write { path, offset, len, tag, .. } => {
                let (contents, mtime) = with.file(path, no)?;
                *mtime = None;
                let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
                let data = data(*tag, *len as usize);
                contents.write_unstable(Pending { op: no, offset, data, verf: None });
                Ok(vec![with])
            }
            Op::SetSize { path, size } => {
                with.apply(no, op, &Reply::default())?;
                let mut begun = self.clone();
                let (contents, _) = begun.file(path, no)?;
                contents.cut_begun(usize::try_from(*size).unwrap_or(usize::MAX), no);
                Ok(vec![begun, with])
            }
            // Pending data is possible before and after the truncation.
            Op::Commit { path, .. } => with.file(path, no).map(drop).map(|()| vec![with]),
            _ => {
                with.apply(no, op, &Reply::default())?;
                Ok(vec![self.clone(), with])
            }
        }
    }

    /// The operations of all facts; one may come several times.
    pub fn ops(&self) -> impl Iterator<Item = OpNo> + '_ {
        self.objects.values().flat_map(|o| {
            let names: Box<dyn Iterator<Item = OpNo> + '_> = match &o.what {
                Node::Dir { entries, .. } => Box::new(entries.values().map(|f| f.op)),
                Node::File(contents) => Box::new(contents.ops()),
                Node::Symlink(_) => Box::new(std::iter::empty()),
            };
            let xattrs = o.xattrs.values().map(|f| f.op);
            names.chain(xattrs).chain(o.mode.iter().map(|f| f.op)).chain(o.mtime.iter().map(|f| f.op))
        })
    }
}
