//! POSIX access control lists.
//!
//! The kernel keeps and applies them. It checks that the caller owns the object, makes the permission bits agree, clears
//! the set-group-id bit if the caller is not in the group, and stores no list where permission bits express
//! everything. So the result of a change is read back before it is recorded.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::attr::attr_facts;
use super::{ACL_ACCESS, ACL_DEFAULT, record};
use crate::acl::{Acl, Acls, SetAcls};
use crate::error::Error;
use crate::kernel;
use crate::limits::{ACL_ENTRIES_MAX, XATTR_VALUE_BYTES_MAX};
use crate::node::Node;
use crate::node_fd::NodeFd;
use crate::record::Fact;
use crate::tx::Tx;
use crate::types::{Attrs, Cred, Kind};
use crate::volume::Volume;

/// The value of one of the two attributes. `None` if it is absent, or the filesystem has no ACLs.
fn read_raw(fd: &NodeFd, name: &str) -> Result<Option<Vec<u8>>, Error> {
    // Room for a usual list first; for the largest only if needed.
    let mut value = vec![0u8; 4 + 8 * 32];
    loop {
        match kernel::getxattr(fd, name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                return Ok(Some(value));
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(Errno::RANGE) if value.len() < XATTR_VALUE_BYTES_MAX => {
                value.resize(XATTR_VALUE_BYTES_MAX, 0)
            }
            Err(e) => return Err(e.into()),
        }
    }
}

fn read(fd: &NodeFd, name: &str) -> Result<Option<Acl>, Error> {
    // No client can be given a list with more entries than this crate supports.
    read_raw(fd, name)?.map(|bytes| Acl::decode(&bytes).map_err(|_| Error::TooBig)).transpose()
}

fn write(fd: &NodeFd, name: &str, acl: &Acl) -> Result<(), Error> {
    Ok(kernel::setxattr(fd, name, &acl.encode(), XattrFlags::empty())?)
}

fn remove(fd: &NodeFd, name: &str) -> Result<(), Error> {
    match kernel::removexattr(fd, name) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Refuses, before any change, what no filesystem accepts.
pub(super) fn check(kind: Kind, set: &SetAcls) -> Result<(), Error> {
    if kind == Kind::Symlink {
        return Err(Error::NotSupported);
    }
    if kind != Kind::Dir && matches!(set.default, Some(Some(_))) {
        return Err(Error::Inval);
    }
    let default = set.default.iter().flatten();
    for acl in set.access.iter().chain(default) {
        acl.check()
            .map_err(|_| if acl.entries() > ACL_ENTRIES_MAX { Error::NoSpace } else { Error::Inval })?;
    }
    Ok(())
}

/// Sets ACLs under the thread's rights. `done` tells whether anything was set before an error.
pub(super) fn apply(fd: &NodeFd, set: &SetAcls, done: &mut bool) -> Result<(), Error> {
    if let Some(access) = &set.access {
        write(fd, ACL_ACCESS, access)?;
        *done = true;
    }
    match &set.default {
        Some(Some(default)) => write(fd, ACL_DEFAULT, default)?,
        Some(None) => remove(fd, ACL_DEFAULT)?,
        None => return Ok(()),
    }
    *done = true;
    Ok(())
}

impl Volume {
    /// Attributes and ACLs of an object, as one snapshot. A symbolic link has none ([`Error::NotSupported`]).
    pub fn acls(&self, node: &Node) -> Result<(Attrs, Acls), Error> {
        if node.kind() == Kind::Symlink {
            return Err(Error::NotSupported);
        }
        let fd = self.fd(node)?;
        self.assume_root()?;
        let mut state = node.0.state.lock();
        let look = kernel::look(&*fd)?;
        if look.stx_nlink == 0 && !node.0.is_open() {
            return Err(Error::Stale);
        }
        let attrs = self.attrs(node, &mut state, &look);
        let access = read(&fd, ACL_ACCESS)?.unwrap_or_else(|| Acl::from_mode(attrs.mode));
        let default = if node.kind() == Kind::Dir { read(&fd, ACL_DEFAULT)? } else { None };
        Ok((attrs, Acls { access, default }))
    }

    pub fn has_acls(&self) -> bool {
        let probe = kernel::fgetxattr(&self.0.mount, ACL_ACCESS, &mut [0u8; 0][..]);
        !matches!(probe, Err(Errno::OPNOTSUPP))
    }

    /// Sets ACLs, the access ACL first. After an error that one may have been set.
    pub fn set_acls(&self, tx: &mut Tx, cred: &Cred, node: &Node, set: &SetAcls) -> Result<(), Error> {
        tx.rests_on(node);
        check(node.kind(), set)?;
        tx.join()?;
        let fd = self.fd(node)?;
        self.assume(cred)?;
        let mut state = node.0.state.lock();
        let mut any = false;
        let done = apply(&fd, set, &mut any);
        if any {
            state.default_acl = None;
            node.0.rights.fetch_add(1, Ordering::AcqRel);
            let look =
                kernel::look(&*fd).map_err(|e| self.fail(format!("looking at a changed object: {e}")))?;
            self.changed(node, &mut state, Some(&look));
            if node.0.is_dead() || look.stx_nlink == 0 {
                // It cannot come back after a crash, and the log may no longer know that it is gone.
                tx.touch();
            } else {
                let acls = self.acl_facts(node, &fd, true);
                let mut facts = acls.map_err(|e| self.fail(format!("reading a list just set: {e}")))?;
                facts.extend(attr_facts(node, false, &look));
                record(tx, &[node], || facts)?;
            }
        }
        drop(state);
        if any {
            node.0.cached_descriptors.close_writing();
        }
        if done.is_ok() || any {
            self.settle(tx, &[], Some((node, &fd)))?;
        }
        done
    }

    /// The ACLs of an object as facts; with `all` also the absent ones.
    pub(super) fn acl_facts(&self, node: &Node, fd: &NodeFd, all: bool) -> Result<Vec<Fact>, Error> {
        let mut facts = Vec::new();
        let names: &[&'static str] = match node.kind() {
            Kind::Symlink => &[],
            Kind::Dir => &[ACL_ACCESS, ACL_DEFAULT],
            _ => &[ACL_ACCESS],
        };
        for name in names {
            let value = read_raw(fd, name)?.map(Bytes::from);
            if all || value.is_some() {
                let name = Bytes::from_static(name.as_bytes());
                facts.push(Fact::Xattr { obj: node.0.id.clone(), name, value });
            }
        }
        Ok(facts)
    }
}
