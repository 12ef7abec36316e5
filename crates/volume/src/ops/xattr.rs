//! Extended attributes in the `user.` namespace (RFC 8276). All others, including the server's own, cannot be seen or
//! changed.
//!
//! On the wire names come without the namespace. The kernel decides who may do what: reading needs the right to read the
//! object, changing the right to write it. Only regular files and directories can have such attributes; setting one on
//! another object gives `Perm`. Listing names needs the right to read, too; the kernel alone would not check that.

use bytes::Bytes;
use rustix::fs::XattrFlags;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

use super::record;
use crate::error::Error;
use crate::kernel;
use crate::limits::{XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_USER_PREFIX, XATTR_VALUE_BYTES_MAX};
use crate::node::Node;
use crate::node_fd::NodeFd;
use crate::record::Fact;
use crate::tx::Tx;
use crate::types::{ChangeInfo, Cred, SetXattr, XattrEntry};
use crate::volume::Volume;

fn full_name(name: &[u8]) -> Result<Vec<u8>, Error> {
    match name {
        b"" => Err(Error::NameEmpty),
        n if n.contains(&0) => Err(Error::NameChar),
        n if n.len() > XATTR_NAME_BYTES_MAX - XATTR_USER_PREFIX.len() => Err(Error::NameTooLong),
        n => Ok([XATTR_USER_PREFIX.as_bytes(), n].concat()),
    }
}

/// The position of a name in lists: a hash of the name, independent of other names. Never 0.
fn cookie(name: &[u8]) -> u64 {
    let mut h = SipHasher24::new();
    h.write(name);
    h.finish().max(1)
}

impl Volume {
    pub fn getxattr(&self, cred: &Cred, node: &Node, name: &[u8]) -> Result<Bytes, Error> {
        let name = full_name(name)?;
        let fd = self.fd(node)?;
        self.assume(cred)?;
        let mut value = vec![0u8; XATTR_VALUE_BYTES_MAX];
        let len = kernel::getxattr(&*fd, &name[..], &mut value[..])?;
        Ok(Bytes::copy_from_slice(value.get(..len).unwrap_or_default()))
    }

    /// The names of an object's extended attributes after `cookie` (0: all), ordered by cookie.
    pub fn listxattrs(&self, cred: &Cred, node: &Node, behind: u64) -> Result<Vec<XattrEntry>, Error> {
        let fd = self.fd(node)?;
        self.assume(cred)?;
        if !kernel::access(&*fd, libc::R_OK)? {
            return Err(Error::Access);
        }
        let mut list = vec![0u8; XATTR_LIST_BYTES_MAX];
        let len = kernel::listxattr(&*fd, &mut list[..])?;
        list.truncate(len);
        let mut entries: Vec<XattrEntry> = list
            .split(|b| *b == 0)
            .filter_map(|name| name.strip_prefix(XATTR_USER_PREFIX.as_bytes()))
            .map(|name| XattrEntry { cookie: cookie(name), name: Bytes::copy_from_slice(name) })
            .filter(|entry| entry.cookie > behind)
            .collect();
        entries.sort_unstable_by(|a, b| (a.cookie, &a.name).cmp(&(b.cookie, &b.name)));
        Ok(entries)
    }

    /// Returns the object's change attribute before and after.
    pub fn setxattr(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        node: &Node,
        name: &[u8],
        value: &Bytes,
        how: SetXattr,
    ) -> Result<ChangeInfo, Error> {
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Error::XattrTooBig);
        }
        let flags = match how {
            SetXattr::Either => XattrFlags::empty(),
            SetXattr::Create => XattrFlags::CREATE,
            SetXattr::Replace => XattrFlags::REPLACE,
        };
        self.change_xattr(tx, cred, node, name, Some(value), |fd, name| {
            Ok(kernel::setxattr(fd, name, value, flags)?)
        })
    }

    /// Returns the object's change attribute before and after.
    pub fn removexattr(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        node: &Node,
        name: &[u8],
    ) -> Result<ChangeInfo, Error> {
        self.change_xattr(tx, cred, node, name, None, |fd, name| Ok(kernel::removexattr(fd, name)?))
    }

    pub fn has_xattrs(&self) -> bool {
        let probe = kernel::fgetxattr(&self.0.mount, "user.landfast", &mut [0u8; 0][..]);
        !matches!(probe, Err(rustix::io::Errno::OPNOTSUPP))
    }

    fn change_xattr(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        node: &Node,
        name: &[u8],
        value: Option<&Bytes>,
        change: impl FnOnce(&NodeFd, &[u8]) -> Result<(), Error>,
    ) -> Result<ChangeInfo, Error> {
        tx.rests_on(node);
        let name = full_name(name)?;
        tx.join()?;
        let fd = self.fd(node)?;
        self.assume(cred)?;
        let mut state = node.0.state.lock();
        let before = self.before_change(&mut state, &fd)?;
        let unnamed = before.look.stx_nlink == 0;
        if unnamed && !node.0.is_open() {
            return Err(Error::Stale);
        }
        change(&fd, &name)?;
        let (change, _) = self.after(tx, node, &mut state, &fd, &before)?;
        if unnamed || node.0.is_dead() {
            // It cannot come back after a crash, and the log may no longer know that it is gone.
            tx.touch();
        } else {
            record(tx, &[node], || {
                vec![Fact::Xattr { obj: node.0.id.clone(), name: name.into(), value: value.cloned() }]
            })?;
        }
        drop(state);
        self.settle(tx, &[], Some((node, &fd)))?;
        Ok(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_their_namespace_and_each_bad_one_its_error() {
        assert_eq!(full_name(b"x"), Ok(b"user.x".to_vec()));
        assert_eq!(full_name(b"user.x"), Ok(b"user.user.x".to_vec()));
        assert_eq!(full_name(b""), Err(Error::NameEmpty));
        assert_eq!(full_name(b"a\0b"), Err(Error::NameChar));
        assert_eq!(full_name(&[b'a'; 251]), Err(Error::NameTooLong));
        assert_eq!(full_name(&[b'a'; 250]).map(|n| n.len()), Ok(255));
    }
}
