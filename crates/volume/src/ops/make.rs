//! Making directories, symbolic links, special files and hard links.

use bytes::Bytes;
use rustix::fs::{FileType, Mode, Statx};

use super::acl;
use super::{HalfMade, NewLook, Umask, born_facts, creation_mode, record};
use crate::acl::SetAcls;
use crate::error::Error;
use crate::kernel;
use crate::limits::SYMLINK_BYTES_MAX;
use crate::node::{Node, StateLocks};
use crate::node_fd::NodeFd;
use crate::record::Fact;
use crate::results::Made;
use crate::tx::Tx;
use crate::types::{AttrsSet, ChangeInfo, Cred, Kind, SetAttrs, Special};
use crate::volume::Volume;

#[derive(Clone, Copy)]
enum NewKind<'a> {
    Dir,
    Symlink(&'a [u8]),
    Special(Special),
}

impl NewKind<'_> {
    fn kind(self) -> Kind {
        match self {
            NewKind::Dir => Kind::Dir,
            NewKind::Symlink(_) => Kind::Symlink,
            NewKind::Special(Special::Fifo) => Kind::Fifo,
            NewKind::Special(Special::Socket) => Kind::Socket,
            NewKind::Special(Special::CharDev(..)) => Kind::CharDev,
            NewKind::Special(Special::BlockDev(..)) => Kind::BlockDev,
        }
    }

    fn make(self, dir: &NodeFd, name: &[u8], attrs: &SetAttrs) -> Result<(), Error> {
        let (mode, umask) = creation_mode(attrs);
        let _umask = Umask::set(umask);
        let mode = Mode::from_raw_mode(mode);
        let node = |kind, device| kernel::mknodat(dir, name, kind, mode, device);
        match self {
            NewKind::Dir => kernel::mkdirat(dir, name, mode)?,
            NewKind::Symlink(target) => kernel::symlinkat(target, dir, name)?,
            NewKind::Special(Special::Fifo) => node(FileType::Fifo, 0)?,
            NewKind::Special(Special::Socket) => node(FileType::Socket, 0)?,
            NewKind::Special(Special::CharDev(major, minor)) => {
                node(FileType::CharacterDevice, kernel::makedev(major, minor))?;
            }
            NewKind::Special(Special::BlockDev(major, minor)) => {
                node(FileType::BlockDevice, kernel::makedev(major, minor))?;
            }
        }
        Ok(())
    }
}

impl Volume {
    pub fn mkdir(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        attrs: SetAttrs,
    ) -> Result<Made, Error> {
        self.mkdir_with_acls(tx, cred, dir, name, attrs, &SetAcls::default())
    }

    /// As [`Volume::mkdir`]. The directory also gets these ACLs, after its other attributes, or is not made.
    pub fn mkdir_with_acls(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        attrs: SetAttrs,
        acls: &SetAcls,
    ) -> Result<Made, Error> {
        self.make(tx, cred, dir, name, NewKind::Dir, &attrs, acls)
    }

    /// Makes a symbolic link; ignores a mode among the attributes.
    pub fn symlink(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        target: &[u8],
        attrs: SetAttrs,
    ) -> Result<Made, Error> {
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Inval);
        }
        if target.len() > SYMLINK_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        self.make(tx, cred, dir, name, NewKind::Symlink(target), &attrs, &SetAcls::default())
    }

    pub fn mknod(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        special: Special,
        attrs: SetAttrs,
    ) -> Result<Made, Error> {
        self.mknod_with_acls(tx, cred, dir, name, special, attrs, &SetAcls::default())
    }

    /// As [`Volume::mknod`]. The object also gets these ACLs, after its other attributes, or is not made.
    #[allow(clippy::too_many_arguments)] // each is one of the request's
    pub fn mknod_with_acls(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        special: Special,
        attrs: SetAttrs,
        acls: &SetAcls,
    ) -> Result<Made, Error> {
        self.make(tx, cred, dir, name, NewKind::Special(special), &attrs, acls)
    }

    #[allow(clippy::too_many_arguments)] // each is one of the request's
    fn make(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        what: NewKind<'_>,
        attrs: &SetAttrs,
        acls: &SetAcls,
    ) -> Result<Made, Error> {
        tx.rests_on(dir);
        self.entry(dir, name, Error::Access)?;
        if !acls.is_empty() {
            acl::check(what.kind(), acls)?;
        }
        tx.join()?;
        let dir_fd = self.fd(dir)?;
        self.assume(cred)?;
        let names = dir.0.names.write();
        let mut state = dir.0.state.lock();
        let before = self.before(&mut state, &dir_fd)?;
        what.make(&dir_fd, name, attrs)?;
        let inherits = tx.logs() && self.inherits_acl(&mut state, &dir_fd, &before);
        let (node, set, look, acl_facts) =
            match self.complete_made(cred, &dir_fd, name, what.kind(), attrs, acls, inherits) {
                Ok(made) => made,
                Err(e) => {
                    let (state, before) = (&mut state, &before);
                    let half = HalfMade { dir, dir_fd: &dir_fd, state, before, name, kind: what.kind() };
                    return Err(self.undo(tx, half, e));
                }
            };
        let (dir_change, dir_mtime) = self.after(tx, dir, &mut state, &dir_fd, &before)?;
        self.changed(&node, &mut node.0.state.lock(), None);
        record(tx, &[dir, &node], || {
            let target = if let NewKind::Symlink(target) = what { target } else { b"" };
            let mut facts = born_facts(dir, name, &node, &look, target, dir_mtime);
            facts.extend(acl_facts);
            facts
        })?;
        drop(state);
        drop(names);
        let fd = self.fd(&node)?;
        // What cannot be opened is durable with its directory as it was made. If it was changed after that, it is flushed as by SETATTR.
        let changed =
            attrs.uid.is_some() || attrs.gid.is_some() || attrs.atime.is_some() || attrs.mtime.is_some();
        let with_directory = node.kind() == Kind::Dir || (!changed && acls.is_empty());
        let dirs: &[&Node] = if with_directory { &[dir] } else { &[] };
        self.settle(tx, dirs, Some((&node, &fd)))?;
        Ok(Made { node, dir_change, attrs_set: set })
    }

    /// The steps of making an object that can still fail.
    #[allow(clippy::too_many_arguments)] // each is one of the request's
    fn complete_made(
        &self,
        cred: &Cred,
        dir_fd: &NodeFd,
        name: &[u8],
        kind: Kind,
        attrs: &SetAttrs,
        acls: &SetAcls,
        inherits_acl: bool,
    ) -> Result<(Node, AttrsSet, Statx, Vec<Fact>), Error> {
        let fd = self.0.cache.counted(kernel::open_path(dir_fd, name)?);
        let born = kernel::look(&*fd)?;
        if Kind::from_mode(u32::from(born.stx_mode)) != Some(kind) {
            // A local process has put something else there.
            return Err(Error::Busy);
        }
        let (kh, mount_id) = kernel::handle_of(&*fd)?;
        let (set, dressed) = self.dress(&fd, kind, &born, cred, attrs)?;
        let mut with_acls = false;
        acl::apply(&fd, acls, &mut with_acls)?;
        let look = NewLook::of(born, dressed, with_acls, || kernel::look(&*fd))?.into_inner();
        let node = self.node_of(kh, mount_id, &look)?;
        let facts =
            if inherits_acl || with_acls { self.acl_facts(&node, &fd, with_acls)? } else { Vec::new() };
        self.0.cache.keep_shared(&node, fd);
        Ok((node, set, look, facts))
    }

    /// Gives `node` (not a directory) one more name, `name` in `dir`.
    pub fn link(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        node: &Node,
        dir: &Node,
        name: &[u8],
    ) -> Result<ChangeInfo, Error> {
        tx.rests_on(dir);
        tx.rests_on(node);
        self.entry(dir, name, Error::Access)?;
        if node.kind() == Kind::Dir {
            return Err(Error::IsDir);
        }
        tx.join()?;
        let (dir_fd, fd) = (self.fd(dir)?, self.fd(node)?);
        self.assume(cred)?;
        let names = dir.0.names.write();
        let mut states = StateLocks::lock([Some(dir), Some(node)]);
        let before = self.before(states.get(dir), &dir_fd)?;
        // For clients it has no name left.
        if node.0.is_orphan() {
            return Err(Error::Stale);
        }
        // Through /proc, since linking the descriptor itself needs a capability that the caller does not have.
        match kernel::link_open(&*fd, &*dir_fd, name) {
            Ok(()) => {}
            // The directory was found just now, so it is the object that has no name left.
            Err(rustix::io::Errno::NOENT) => return Err(Error::Stale),
            Err(e) => return Err(e.into()),
        }
        let look = kernel::look(&*fd).map_err(|e| self.fail(format!("looking at a linked object: {e}")))?;
        self.changed(node, states.get(node), Some(&look));
        let (change, dir_mtime) = self.after(tx, dir, states.get(dir), &dir_fd, &before)?;
        record(tx, &[dir, node], || {
            let (dir, obj) = (&dir.0.id, &node.0.id);
            vec![
                Fact::Bind { dir: dir.clone(), name: Bytes::copy_from_slice(name), obj: obj.clone() },
                Fact::Links { obj: obj.clone(), nlink: look.stx_nlink },
                Fact::Mtime { obj: dir.clone(), mtime: dir_mtime },
            ]
        })?;
        drop(states);
        drop(names);
        self.settle(tx, &[dir], Some((node, &fd)))?;
        Ok(change)
    }
}
