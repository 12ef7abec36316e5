//! The clients' requests: every operation of the volume, on so few names that they collide.

use bytes::Bytes;

use super::world::World;
use crate::acl::{Acl, SetAcls};
use crate::kernel::sim::{self, Serial};
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::tx::Tx;
use crate::types::{
    AccessMask, CreateHow, EntryDetail, Hint, Kind, OpenMode, Piece, SetAttrs, SetXattr, Special, Stable,
    TimeSet, Timestamp, Verifier,
};
use crate::{Cred, Error, Held, Keep};

const FILE_BYTES: u64 = 1800;

/// The object of an operation, for the oracle.
#[derive(Default)]
struct Done {
    /// Its contents are stable, from this position on.
    stable: Option<(Node, u64)>,
}

impl World {
    fn dir(&mut self) -> Node {
        let n = self.rng.below(self.dirs.len() as u64) as usize;
        // The root more often than others.
        if self.rng.one_in(3) { self.volume().root() } else { self.dirs[n].clone() }
    }

    fn a_file(&mut self) -> Option<Node> {
        let n = self.rng.below(self.files.len() as u64) as usize;
        self.files.get(n).cloned()
    }

    fn any(&mut self) -> Node {
        let all = (self.dirs.len() + self.files.len() + self.others.len()) as u64;
        let mut n = self.rng.below(all) as usize;
        for list in [&self.files, &self.others, &self.dirs] {
            match list.get(n) {
                Some(node) => return node.clone(),
                None => n -= list.len(),
            }
        }
        self.volume().root()
    }

    fn name(&mut self) -> Vec<u8> {
        vec![b'a' + self.rng.below(6) as u8]
    }

    /// Usually an existing name.
    fn name_in(&mut self, dir: &Node) -> Vec<u8> {
        let names: Vec<Vec<u8>> = sim::with(|k| {
            let serial = k.serial_of(&dir.0.id)?;
            let meta = k.peek(serial)?;
            Some(
                meta.entries
                    .keys()
                    .filter(|n| !n.starts_with(b".") && !n.starts_with(b"stranger"))
                    .map(|n| n.to_vec())
                    .collect(),
            )
        })
        .unwrap_or_default();
        if names.is_empty() || self.rng.one_in(8) { self.name() } else { self.rng.pick(&names).clone() }
    }

    fn cred(&mut self) -> Cred {
        if self.rng.one_in(8) { Cred { uid: 1000, gid: 1000, groups: [].into() } } else { Cred::root() }
    }

    fn attrs(&mut self) -> SetAttrs {
        let mut attrs = SetAttrs {
            mode: Some(*self.rng.pick(&[0o644, 0o755, 0o600, 0o4755, 0o777])),
            ..SetAttrs::default()
        };
        if self.rng.one_in(5) {
            attrs.uid = Some(1000 + self.rng.below(3) as u32);
            attrs.gid = Some(1000);
        }
        if self.rng.one_in(6) {
            attrs.mtime = Some(self.time());
        }
        attrs
    }

    fn time(&mut self) -> TimeSet {
        if self.rng.one_in(2) {
            return TimeSet::Now;
        }
        TimeSet::At(Timestamp {
            secs: self.rng.below(1 << 32) as i64,
            nanos: self.rng.below(1_000_000_000) as u32,
        })
    }

    fn bytes(&mut self, len: u64) -> Bytes {
        // Never zero, and different for each write.
        let byte = 1 + self.rng.below(255) as u8;
        Bytes::from((0..len).map(|n| byte.wrapping_add((n / 64) as u8).max(1)).collect::<Vec<_>>())
    }

    fn acls(&mut self, kind: Kind) -> SetAcls {
        let mut acl = Acl::from_mode(*self.rng.pick(&[0o640, 0o755, 0o777]));
        if !self.rng.one_in(4) {
            acl.users.insert(1000 + self.rng.below(2) as u32, self.rng.below(8) as u8);
            acl.mask = Some(self.rng.below(8) as u8);
        }
        let default =
            (kind == Kind::Dir && self.rng.one_in(2)).then(|| (!self.rng.one_in(3)).then(|| acl.clone()));
        SetAcls { access: (!self.rng.one_in(3)).then_some(acl), default }
    }

    /// A file open for reading and writing.
    fn opened(&mut self) -> Result<OpenFile, Error> {
        if !self.open.is_empty() && self.rng.one_in(2) {
            return Ok(self.rng.pick(&self.open).clone());
        }
        let Some(node) = self.a_file() else { return Err(Error::NoEnt) };
        let file = if self.rng.one_in(3) {
            self.volume().open_stateless(&Cred::root(), &node, OpenMode::BOTH, Keep::Now)?
        } else {
            self.volume().open_file(&Cred::root(), &node, OpenMode::BOTH)?
        };
        self.keep(&file);
        Ok(file)
    }

    fn keep(&mut self, file: &OpenFile) {
        if self.rng.one_in(3) {
            if self.open.len() > 4 {
                let at = self.rng.below(self.open.len() as u64) as usize;
                self.open.swap_remove(at);
            }
            self.open.push(file.clone());
        }
    }

    /// One operation in the transaction. Returns the metadata position of the last change of what its reply depends on. An error
    /// is the oracle's finding.
    pub(super) fn operate(&mut self, tx: &mut Tx, client: u8) -> Result<u64, String> {
        let before = sim::with(|k| k.position());
        self.names.clear();
        self.entries.clear();
        let mut what = String::new();
        let done = self.one_of_all(tx, &mut what);
        self.say(|| {
            format!(
                "client {client}: {what}: {}",
                done.as_ref().map_or_else(|e| e.to_string(), |_| "done".to_owned())
            )
        });
        let after = sim::with(|k| k.position());
        // Other errors come before any name is looked up.
        if !matches!(done, Ok(_) | Err(Error::Exists | Error::NotEmpty | Error::IsDir | Error::NotDir)) {
            self.entries.clear();
        }
        let told = self.told(before, done.is_ok());
        match done {
            Ok(done) => {
                if let Some((node, from)) = done.stable
                    && let Some(serial) = sim::with(|k| k.serial_of(&node.0.id))
                {
                    self.past.stable(after, serial, from);
                }
            }
            Err(_) => {
                self.figures.refused += 1;
                if self.volume().failed().is_some() {
                    self.failed_from.get_or_insert(before);
                }
            }
        }
        Ok(told)
    }

    fn one_of_all(&mut self, tx: &mut Tx, what: &mut String) -> Result<Done, Error> {
        let volume = self.volume();
        let cred = self.cred();
        let position = sim::with(|k| k.position());
        let mut done = Done::default();
        let commits = self.suspect.is_some() && self.rng.one_in(3);
        match if commits { 28 } else { self.rng.below(41) } {
            0..=5 => {
                let (dir, name, attrs) = (self.dir(), self.name(), self.attrs());
                *what = format!("create {} in {}", shown(&name), self.number(&dir));
                let how = match self.rng.below(4) {
                    0 => CreateHow::Unchecked(SetAttrs { size: Some(0), ..attrs }),
                    1 => CreateHow::Exclusive {
                        verifier: Verifier {
                            create: self.rng.below(4).to_be_bytes(),
                            instance: self.rng.one_in(2).then_some([1; 8]),
                        },
                        attrs: SetAttrs { mtime: None, ..attrs },
                    },
                    2 if self.rng.one_in(3) => {
                        CreateHow::Guarded(SetAttrs { size: Some(self.rng.below(900)), ..attrs })
                    }
                    _ => CreateHow::Guarded(attrs),
                };
                match how {
                    CreateHow::Guarded(_) => self.name_object(&dir),
                    CreateHow::Unchecked(_) | CreateHow::Exclusive { .. } => self.name_entry(&dir, &name),
                }
                let acls = if self.rng.one_in(8) { self.acls(Kind::File) } else { SetAcls::default() };
                let made = volume.create_with_acls(tx, &cred, &dir, &name, how, OpenMode::BOTH, &acls)?;
                self.know(&made.node);
                self.keep(&made.file);
            }
            6..=8 => {
                let (dir, name, attrs) = (self.dir(), self.name(), self.attrs());
                *what = format!("mkdir {} in {}", shown(&name), self.number(&dir));
                self.name_object(&dir);
                let acls = if self.rng.one_in(6) { self.acls(Kind::Dir) } else { SetAcls::default() };
                let made = volume.mkdir_with_acls(tx, &cred, &dir, &name, attrs, &acls)?;
                self.know(&made.node);
            }
            9 => {
                let (dir, name) = (self.dir(), self.name());
                *what = format!("symlink {} in {}", shown(&name), self.number(&dir));
                self.name_object(&dir);
                let target = vec![b'x'; 1 + self.rng.below(90) as usize];
                let made = volume.symlink(tx, &cred, &dir, &name, &target, SetAttrs::default())?;
                self.know(&made.node);
            }
            10 => {
                let (dir, name, attrs) = (self.dir(), self.name(), self.attrs());
                *what = format!("mknod {} in {}", shown(&name), self.number(&dir));
                self.name_object(&dir);
                let special = *self.rng.pick(&[
                    Special::Fifo,
                    Special::Socket,
                    Special::CharDev(1, 3),
                    Special::BlockDev(7, 9),
                ]);
                let made = volume.mknod(tx, &cred, &dir, &name, special, attrs)?;
                self.know(&made.node);
            }
            11 | 12 => {
                let (node, dir, name) = (self.any(), self.dir(), self.name());
                *what = format!("link {} as {} in {}", self.number(&node), shown(&name), self.number(&dir));
                self.name_object(&node);
                self.name_object(&dir);
                volume.link(tx, &cred, &node, &dir, &name)?;
            }
            13..=16 => {
                let dir = self.dir();
                let name = self.name_in(&dir);
                *what = format!("remove {} from {}", shown(&name), self.number(&dir));
                self.name_entry(&dir, &name);
                let held = if self.rng.one_in(2) { Held::Promised } else { Held::ByNobody };
                volume.remove_keeping(tx, &cred, &dir, &name, |_| Ok(()), |_| held)?;
            }
            17..=20 => {
                let (from, to) = (self.dir(), self.dir());
                let name = self.name_in(&from);
                let new = if self.rng.one_in(2) { self.name_in(&to) } else { self.name() };
                *what = format!(
                    "rename {} from {} to {} in {}",
                    shown(&name),
                    self.number(&from),
                    shown(&new),
                    self.number(&to)
                );
                self.name_entry(&from, &name);
                self.name_entry(&to, &new);
                let held = if self.rng.one_in(2) { Held::Promised } else { Held::ByNobody };
                volume.rename_keeping(tx, &cred, (&from, &name), (&to, &new), |_| Ok(()), |_| held)?;
            }
            21 | 22 => {
                let node = self.any();
                let mut attrs = self.attrs();
                if self.rng.one_in(2) {
                    attrs.mode = None;
                }
                if node.kind() == Kind::Symlink {
                    attrs.mode = None;
                }
                if node.kind() == Kind::File && self.rng.one_in(2) {
                    attrs.size = Some(self.rng.below(FILE_BYTES));
                }
                *what = format!("setattr of {}, size {:?}", self.number(&node), attrs.size);
                self.name_object(&node);
                volume.setattr(tx, &cred, &node, None, attrs)?;
            }
            23..=27 => {
                let file = self.opened()?;
                let large = self.rng.one_in(8);
                let (offset, len) = if large {
                    (self.rng.below(500), 2049 + self.rng.below(600))
                } else {
                    (self.rng.below(FILE_BYTES), 1 + self.rng.below(600))
                };
                let stable =
                    *self.rng.pick(&[Stable::Unstable, Stable::Unstable, Stable::DataSync, Stable::FileSync]);
                *what = format!("write {len} at {offset} of {}, {stable:?}", self.number(file.node()));
                if stable != Stable::Unstable {
                    self.name_object(file.node());
                }
                let data = self.bytes(len);
                let (_, as_stable) = volume.write(tx, &file, offset, data, stable)?;
                if as_stable != Stable::Unstable {
                    // A large write flushes everything that was written before.
                    let from = if len > crate::limits::LOGGED_DATA_MAX { 0 } else { position };
                    done.stable = Some((file.node().clone(), from));
                }
            }
            28 | 29 => {
                let suspect = self.suspect.take().filter(|_| commits);
                let Some(node) = suspect.or_else(|| self.a_file()) else { return Err(Error::NoEnt) };
                *what = format!("commit {}", self.number(&node));
                self.name_object(&node);
                volume.commit(tx, &node, 0, 0)?;
                done.stable = Some((node, 0));
            }
            30 | 31 => {
                let node = self.any();
                let name = *self.rng.pick(&[&b"one"[..], b"two"]);
                if self.rng.one_in(3) {
                    *what = format!("remove an attribute of {}", self.number(&node));
                    self.name_object(&node);
                    volume.removexattr(tx, &cred, &node, name)?;
                } else {
                    *what = format!("set an attribute of {}", self.number(&node));
                    self.name_object(&node);
                    let len = self.rng.below(200);
                    let value = self.bytes(len);
                    volume.setxattr(tx, &cred, &node, name, &value, SetXattr::Either)?;
                }
            }
            32 => {
                let node = self.any();
                *what = format!("set the ACLs of {}", self.number(&node));
                let acls = self.acls(node.kind());
                self.name_object(&node);
                volume.set_acls(tx, &Cred::root(), &node, &acls)?;
            }
            33 | 34 => {
                let file = self.opened()?;
                let (offset, len) = (self.rng.below(FILE_BYTES), 1 + self.rng.below(700));
                let node = file.node().clone();
                self.name_object(&node);
                if self.rng.one_in(2) {
                    *what = format!("allocate {len} at {offset} of {}", self.number(&node));
                    volume.allocate(tx, &file, offset, len)?;
                    done.stable = Some((node, 0));
                } else {
                    *what = format!("deallocate {len} at {offset} of {}", self.number(&node));
                    volume.deallocate(tx, &file, offset, len)?;
                }
            }
            35 => {
                let (from, to) = (self.opened()?, self.opened()?);
                let block = sim::BLOCK as u64;
                let node = to.node().clone();
                self.name_object(&node);
                if self.rng.one_in(2) {
                    let (at, len) = (self.rng.below(4) * block, self.rng.below(3) * block);
                    *what = format!(
                        "clone {len} of {} to {at} of {}",
                        self.number(from.node()),
                        self.number(&node)
                    );
                    volume.clone_range(tx, &from, 0, &to, at, len)?;
                    done.stable = Some((node, 0));
                } else {
                    let (at, len) = (self.rng.below(FILE_BYTES), self.rng.below(3000));
                    *what = format!(
                        "copy {len} of {} to {at} of {}",
                        self.number(from.node()),
                        self.number(&node)
                    );
                    volume.copy_range(tx, &from, 0, &to, at, len)?;
                    let from = if len > crate::limits::LOGGED_DATA_MAX { 0 } else { position };
                    done.stable = Some((node, from));
                }
            }
            40 => {
                let orphans = volume.orphans();
                if orphans.is_empty() {
                    return Err(Error::NoEnt);
                }
                let node = self.rng.pick(&orphans).clone();
                *what = format!("release {}", self.number(&node));
                self.name_object(&node);
                volume.release(tx, &node, || true)?;
            }
            _ => self.look(what)?,
        }
        Ok(done)
    }

    fn look(&mut self, what: &mut String) -> Result<(), Error> {
        let volume = self.volume();
        match self.rng.below(6) {
            0 => {
                let dir = self.dir();
                *what = format!("readdir {}", self.number(&dir));
                volume.readdir(&Cred::root(), &dir, 0, 100, EntryDetail::Names)?;
            }
            1 => {
                let dir = self.dir();
                let name = self.name_in(&dir);
                *what = format!("lookup {} in {}", shown(&name), self.number(&dir));
                let node = volume.lookup(&Cred::root(), &dir, &name)?;
                self.know(&node);
            }
            2 => {
                let file = self.opened()?;
                *what = format!("read {}", self.number(file.node()));
                volume.read(&file, 0, 5000)?;
                volume.seek(&file, 0, Piece::Hole)?;
                volume.advise(&file, 0, 0, Hint::WillNeed)?;
            }
            3 => {
                let dir = self.dir();
                *what = format!("lookup the parent of {}", self.number(&dir));
                volume.lookup_parent(&Cred::root(), &dir)?;
                volume.access(&Cred::root(), &dir, AccessMask { read: true, write: true, execute: false })?;
            }
            _ => {
                let node = self.any();
                *what = format!("getattr {}", self.number(&node));
                let attrs = volume.getattr(&node)?;
                self.saw.push((node, attrs.change));
            }
        }
        Ok(())
    }

    /// The oracle's number of an object.
    fn number(&self, node: &Node) -> Serial {
        sim::with(|k| k.serial_of(&node.0.id)).unwrap_or(0)
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
