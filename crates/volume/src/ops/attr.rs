//! Attributes, access rights, filesystem statistics.

use std::sync::atomic::Ordering;

use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;

use super::{check_file, ctime, owned, record, set_owner, set_times};
use crate::error::Error;
use crate::exclusive;
use crate::kernel;
use crate::limits::{FILE_SIZE_MAX, NAME_BYTES_MAX};
use crate::node::{Node, NodeState};
use crate::node_fd::NodeFd;
use crate::open_file::OpenFile;
use crate::options::Durability;
use crate::record::Fact;
use crate::tx::Tx;
use crate::types::{AccessMask, Attrs, AttrsSet, Cred, FsStat, Guard, Kind, SetAttrs};
use crate::volume::Volume;

impl Volume {
    pub fn getattr(&self, node: &Node) -> Result<Attrs, Error> {
        if let Some(attrs) = node.0.state.lock().fresh(kernel::instant())
            && !node.0.is_dead()
        {
            return Ok(*attrs);
        }
        let fd = self.fd(node)?;
        let mut state = node.0.state.lock();
        let look = kernel::look(&*fd)?;
        if look.stx_nlink == 0 && !node.0.is_open() {
            return Err(Error::Stale);
        }
        Ok(self.attrs(node, &mut state, &look))
    }

    pub fn access(&self, cred: &Cred, node: &Node, mask: AccessMask) -> Result<AccessMask, Error> {
        let fd = self.fd(node)?;
        self.assume(cred)?;
        let asked = |bit, asked| if asked { bit } else { 0 };
        let all =
            asked(libc::R_OK, mask.read) | asked(libc::W_OK, mask.write) | asked(libc::X_OK, mask.execute);
        // Usually everything is granted, or one right was asked for: one call.
        if all == 0 || kernel::access(&*fd, all)? {
            return Ok(mask);
        }
        let granted = |bit| Ok::<bool, Errno>(all & bit != 0 && all != bit && kernel::access(&*fd, bit)?);
        Ok(AccessMask {
            read: granted(libc::R_OK)?,
            write: granted(libc::W_OK)?,
            execute: granted(libc::X_OK)?,
        })
    }

    /// Sets attributes in the order size, owner and group, mode, times. After an error those before the failing one are set.
    /// A symbolic link's mode is left alone and not reported as set. A size is set through `file` if given, else with the
    /// caller's own right to write.
    pub fn setattr(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        node: &Node,
        file: Option<&OpenFile>,
        attrs: SetAttrs,
    ) -> Result<AttrsSet, Error> {
        Ok(self.setattr_guarded(tx, cred, node, file, attrs, None)?.unwrap_or_default())
    }

    /// As [`Volume::setattr`]. With a `guard` it does nothing and returns `None` unless the object is as that says.
    pub fn setattr_guarded(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        node: &Node,
        file: Option<&OpenFile>,
        attrs: SetAttrs,
        guard: Option<Guard>,
    ) -> Result<Option<AttrsSet>, Error> {
        tx.rests_on(node);
        tx.join()?;
        let fd = self.fd(node)?;
        self.assume(cred)?;
        let mut set = AttrsSet::default();
        let mut state = node.0.state.lock();
        let before = if guard.is_some() || tx.watches() { Some(kernel::look(&*fd)?) } else { None };
        if let (Some(guard), Some(before)) = (guard, &before) {
            let met = match guard {
                Guard::Ctime(at) => ctime(before) == at,
                // What somebody else has left a moment ago gets larger change attributes by itself, until its ctime is final.
                Guard::Change(_, at) if state.change.is_young() && ctime(before) == at => true,
                Guard::Change(change, _) => self.attrs(node, &mut state, before).change == change,
            };
            if !met {
                return Ok(None);
            }
        }
        if attrs.size.is_some() && self.0.durability == Durability::Sync && node.kind() == Kind::File {
            // The rest of the last block is data, which the following flush must not lose.
            self.witness(node, &mut state, &fd, true)?;
            self.assume(cred)?;
        }
        let done = match attrs.size {
            Some(size) => self.set_size(tx, cred, node, &state, (&fd, file), size),
            None => Ok(()),
        };
        set.size = done.is_ok() && attrs.size.is_some();
        let done = done.and_then(|()| Volume::apply(node, &fd, &attrs, &mut set));
        // The steps before a failure have happened and are recorded.
        if set.mode || set.uid || set.gid {
            node.0.rights.fetch_add(1, Ordering::AcqRel);
        }
        if done.is_ok() || set != AttrsSet::default() {
            let ends = set.size || set.atime || set.mtime;
            let ended = if ends { exclusive::end(node, &mut state, &*fd) } else { None };
            let look =
                kernel::look(&*fd).map_err(|e| self.fail(format!("looking at a changed object: {e}")))?;
            self.changed(node, &mut state, Some(&look));
            self.watched(tx, node, &mut state, before.as_ref(), &look);
            if node.0.is_dead() || look.stx_nlink == 0 {
                // It cannot come back after a crash, and the log may no longer know that it is gone (or never did, if a local
                // process removed it).
                tx.touch();
            } else {
                self.content_logged(&mut state, u64::from(set.size && tx.logs()));
                record(tx, &[node], || {
                    let mut facts = attr_facts(node, set.size, &look);
                    facts.extend(ended);
                    facts
                })?;
                tx.has_said(node);
            }
        }
        drop(state);
        if set.mode || set.uid || set.gid {
            // It serves nobody any more.
            node.0.cached_descriptors.close_writing();
        }
        // Reports what was set before an error, too.
        if done.is_ok() || set != AttrsSet::default() {
            self.settle(tx, &[], Some((node, &fd)))?;
        }
        done?;
        Ok(Some(set))
    }

    fn apply(node: &Node, fd: &NodeFd, attrs: &SetAttrs, set: &mut AttrsSet) -> Result<(), Error> {
        if attrs.uid.is_some() || attrs.gid.is_some() {
            set_owner(fd, attrs.uid, attrs.gid)?;
            (set.uid, set.gid) = (attrs.uid.is_some(), attrs.gid.is_some());
        }
        if let Some(mode) = attrs.mode {
            // A symbolic link's mode cannot be set, and nobody needs it. Neither NFSv3 nor v4 has a status for that; the Linux
            // server and ganesha ignore it, too.
            if node.kind() != Kind::Symlink {
                kernel::chmod(fd, mode & 0o7777)?;
                set.mode = true;
            }
        }
        if attrs.atime.is_some() || attrs.mtime.is_some() {
            set_times(fd, attrs.atime, attrs.mtime)?;
            (set.atime, set.mtime) = (attrs.atime.is_some(), attrs.mtime.is_some());
        }
        Ok(())
    }

    /// Cuts or extends a file, through an open one if that is open for writing. Call joined, as the caller, under the
    /// attribute lock.
    fn set_size(
        &self,
        tx: &Tx,
        cred: &Cred,
        node: &Node,
        state: &NodeState,
        (fd, file): (&NodeFd, Option<&OpenFile>),
        size: u64,
    ) -> Result<(), Error> {
        match check_file(node) {
            Err(Error::IsDir) => return Err(Error::IsDir),
            Err(_) => return Err(Error::Inval),
            Ok(()) if size > FILE_SIZE_MAX => return Err(Error::TooBig),
            Ok(()) => {}
        }
        if let Some(file) = file.filter(|f| f.can_write() && f.node() == node) {
            return self.cut(tx, node, state, &*file.0.fd, size);
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let writable = match kernel::reopen(fd, flags) {
            // The owner always may: locally, whoever opened the file before its mode was restricted could do so, too.
            Err(Errno::ACCESS) if kernel::look(fd)?.stx_uid == cred.uid => {
                self.assume_root()?;
                let opened = kernel::reopen(fd, flags);
                // The cut itself runs as the owner, so that the kernel clears set-uid bits.
                self.assume(cred)?;
                opened?
            }
            opened => opened?,
        };
        self.cut(tx, node, state, &writable, size)
    }

    pub fn statfs(&self) -> Result<FsStat, Error> {
        let s = kernel::fstatvfs(&self.0.mount)?;
        Ok(FsStat {
            total_bytes: s.f_blocks.saturating_mul(s.f_frsize),
            free_bytes: s.f_bfree.saturating_mul(s.f_frsize),
            avail_bytes: s.f_bavail.saturating_mul(s.f_frsize),
            total_files: s.f_files,
            free_files: s.f_ffree,
            name_max: s.f_namemax.min(NAME_BYTES_MAX as u64) as u32,
        })
    }
}

/// Facts for an object whose attributes, and perhaps size, were set.
pub(super) fn attr_facts(node: &Node, sized: bool, look: &Statx) -> Vec<Fact> {
    let obj = &node.0.id;
    let mut facts = Vec::with_capacity(2);
    if sized {
        facts.push(Fact::Size { obj: obj.clone(), size: look.stx_size });
    }
    facts.push(Fact::Attrs { obj: obj.clone(), owned: owned(look) });
    facts
}
