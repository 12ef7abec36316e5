//! Resolving handles and names to nodes; reading symbolic links.

use bytes::Bytes;
use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;

use super::check_dir;
use crate::error::Error;
use crate::kernel;
use crate::kernel::{AsFd, OwnedFd, btime_ns};
use crate::limits::DEPTH_MAX;
use crate::node::Node;
use crate::node_fd::NodeFd;
use crate::record::ObjId;
use crate::types::{Cred, Kind};
use crate::volume::Volume;

impl Volume {
    pub fn root(&self) -> Node {
        match self.0.root.get() {
            Some(root) => root.clone(),
            None => unreachable!("set before the volume is given out"),
        }
    }

    /// The object of a wire handle. [`Error::BadHandle`] if the handle is not from this volume, [`Error::Stale`] if the
    /// object is gone.
    pub fn resolve(&self, fh: &[u8]) -> Result<Node, Error> {
        let told = self.0.codec.decode(fh)?;
        let id = self.0.remap.read().inward(&told).cloned().unwrap_or(told);
        match self.0.cache.get(&id.kh) {
            Some(node) if node.0.id != id || (node.0.is_dead() && !node.0.is_open()) => Err(Error::Stale),
            Some(node) => Ok(node),
            None => self.resolve_unknown(&id),
        }
    }

    /// As [`Volume::resolve`], for the object's present identity.
    pub(super) fn resolve_id(&self, id: &ObjId) -> Result<Node, Error> {
        match self.0.cache.get(&id.kh) {
            Some(node) if node.0.id == *id => Ok(node),
            _ => self.resolve_unknown(id),
        }
    }

    fn resolve_unknown(&self, id: &ObjId) -> Result<Node, Error> {
        self.assume_root()?;
        let fd = match kernel::open_handle(&self.0.mount, &id.kh) {
            Ok(fd) => fd,
            Err(Errno::STALE | Errno::NOENT) => return Err(Error::Stale),
            // Without privileges a handle cannot be opened: an experiment has lost its object.
            Err(Errno::PERM) if self.0.unprivileged => return Err(Error::Stale),
            Err(e) => return Err(e.into()),
        };
        let look = kernel::look(&fd)?;
        if look.stx_nlink == 0 || btime_ns(&look) != id.btime_ns {
            return Err(Error::Stale);
        }
        let node = self.node_of(id.kh.clone(), self.0.mount_id, &look)?;
        self.0.cache.keep_fd(&node, fd);
        Ok(node)
    }

    pub fn lookup(&self, cred: &Cred, dir: &Node, name: &[u8]) -> Result<Node, Error> {
        self.entry(dir, name, Error::NoEnt)?;
        let dir_fd = self.fd(dir)?;
        self.assume(cred)?;
        // Shared: the found object must not be half made, or a client could build on it before it is in the log.
        let _names = dir.0.names.read();
        self.found(dir, &dir_fd, name)
    }

    /// The object of a name. [`Error::NoEnt`] without it, and [`Error::Stale`] if the directory was removed. Call under the directory's names lock.
    pub(super) fn found(&self, dir: &Node, dir_fd: &NodeFd, name: &[u8]) -> Result<Node, Error> {
        match self.named(dir_fd, name) {
            Err(Error::NoEnt) if dir.0.is_dead() => Err(Error::Stale),
            found => found,
        }
    }

    /// The directory that holds `dir`. [`Error::NoEnt`] for the root.
    pub fn lookup_parent(&self, cred: &Cred, dir: &Node) -> Result<Node, Error> {
        check_dir(dir)?;
        let root = self.root();
        if *dir == root {
            return Err(Error::NoEnt);
        }
        let fd = self.fd(dir)?;
        self.assume(cred)?;
        let parent = open_above(&*fd)?;
        let (kh, mount_id) = kernel::handle_of(&parent)?;
        let look = kernel::look(&parent)?;
        // A local process may have moved the directory out of the volume; then no client may see its parents.
        self.assume_root()?;
        let place = |look: &Statx| (look.stx_ino, (look.stx_dev_major, look.stx_dev_minor));
        let (mut at, mut above) = (place(&look), None);
        for _ in 0..DEPTH_MAX {
            if at == (root.0.ino, self.0.device) {
                let node = self.node_of(kh, mount_id, &look)?;
                self.0.cache.keep_fd(&node, parent);
                return Ok(node);
            }
            let next = open_above(above.as_ref().unwrap_or(&parent))?;
            let seen = place(&kernel::look(&next)?);
            if seen == at {
                break;
            }
            (at, above) = (seen, Some(next));
        }
        Err(Error::Stale)
    }

    /// The target of a symbolic link. [`Error::WrongKind`] for any other object.
    pub fn readlink(&self, cred: &Cred, node: &Node) -> Result<Bytes, Error> {
        if node.kind() != Kind::Symlink {
            return Err(Error::WrongKind);
        }
        let fd = self.fd(node)?;
        self.assume(cred)?;
        let target = kernel::read_link(&*fd)?;
        Ok(Bytes::from(target.into_bytes()))
    }
}

/// Opens the directory above, only to look at it. [`Error::Stale`] for one that a local process has moved out of a bind mount: it has nothing
/// above it there.
fn open_above(dir: impl AsFd) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match kernel::openat(dir, c"..", flags, Mode::empty()) {
        Err(Errno::NOENT) => Err(Error::Stale),
        above => Ok(above?),
    }
}
