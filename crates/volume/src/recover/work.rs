//! Work on a single object: its contents, attributes and times. No object's work depends on another's, so several
//! threads share it ([`Tree::spread`]).

use bytes::Bytes;

use super::{Counts, Error, io, surprise};
use crate::fold::Plan;
use crate::record::{Kind, ObjId, Owned};
use crate::recover::tree::{Meta, Tree};

/// Setuid and setgid, which a change of the owner clears.
const SET_ID: u32 = 0o6000;

const ACL_ACCESS: &str = "system.posix_acl_access";
const ACL_DEFAULT: &str = "system.posix_acl_default";

pub(super) struct Work<'b> {
    pub(super) tree: &'b mut dyn Tree,
    pub(super) done: Counts,
}

pub(super) struct Object<'b> {
    /// Its identity in the log.
    pub(super) id: &'b ObjId,
    pub(super) plan: &'b Plan,
    pub(super) now: ObjId,
    /// Its attributes when this run made it, if that was just now: nothing has changed it since.
    pub(super) made: Option<Meta>,
}

impl Work<'_> {
    pub(super) fn new(tree: &mut dyn Tree) -> Work<'_> {
        Work { tree, done: Counts::default() }
    }

    /// Does everything. Sets times last, since all other steps change them.
    pub(super) fn complete(&mut self, object: &Object<'_>) -> Result<(), Error> {
        self.contents(object)?;
        self.attributes(object)?;
        self.times(object)
    }

    pub(super) fn look(&mut self, object: &Object<'_>) -> Result<Meta, Error> {
        if let Some(meta) = &object.made {
            return Ok(meta.clone());
        }
        let meta = self.tree.probe(&object.now).map_err(io("looking at an object", object.id))?;
        meta.ok_or_else(|| surprise("an object has gone meanwhile", object.id, None))
    }

    /// Removes inherited ACLs from an object that was just made: the log says which ones it has.
    pub(super) fn disinherit(&mut self, id: &ObjId, now: &ObjId, meta: Meta) -> Result<Meta, Error> {
        if meta.kind == Kind::Symlink {
            return Ok(meta);
        }
        for acl in [ACL_ACCESS, ACL_DEFAULT] {
            let acl = acl.as_bytes();
            if self.tree.xattr(now, acl).map_err(io("reading an ACL", id))?.is_some() {
                self.tree.set_xattr(now, acl, None).map_err(io("removing an ACL", id))?;
            }
        }
        let meta = self.tree.probe(now).map_err(io("looking at an object", id))?;
        meta.ok_or_else(|| surprise("an object has gone meanwhile", id, None))
    }

    /// Sets the owner, then extended attributes (an ACL sets permission bits), then the mode (a change of the owner clears setuid bits).
    pub(super) fn attributes(&mut self, object: &Object<'_>) -> Result<(), Error> {
        let Object { id, plan, now, .. } = object;
        if plan.owned.is_none() && plan.xattrs.is_empty() && plan.links.is_none() {
            return Ok(());
        }
        let meta = self.look(object)?;
        // If the disk certainly had them, any difference is somebody's later change and stays.
        let dressed = plan.dressed && object.made.is_none();
        // Whether anything was set, and whether that may have changed the mode.
        let (mut set, mut changed) = (false, false);
        if let Some(Owned { uid, gid, .. }) = plan.owned
            && !dressed
            && (meta.owned.uid, meta.owned.gid) != (uid, gid)
        {
            self.tree.chown(now, uid, gid).map_err(io("setting the owner", id))?;
            (set, changed) = (true, meta.owned.mode & SET_ID != 0);
        }
        if self.xattrs(object)? {
            (set, changed) = (true, true);
        }
        if let Some(Owned { mode, .. }) = plan.owned
            && !dressed
            && meta.kind != Kind::Symlink
            && (changed || meta.owned.mode != mode)
        {
            self.tree.chmod(now, mode).map_err(io("setting the mode", id))?;
            set = true;
        }
        self.done.attrs += u64::from(set);
        // A new object does not have all its names yet, and none that the log does not know.
        let odd = object.made.is_none() && plan.links.is_some_and(|n| n != meta.nlink);
        self.done.odd_links += u64::from(odd && meta.kind != Kind::Dir);
        Ok(())
    }

    /// Makes the extended attributes what they must be. A filesystem may have room only for all of them together, as ext4 has in an
    /// inode and one block. So first those go that must be absent, and others shrink; then the rest grows. The large ones come
    /// first, since they fit in fewer places. Returns whether any was different.
    fn xattrs(&mut self, object: &Object<'_>) -> Result<bool, Error> {
        let Object { id, plan, now, .. } = object;
        let (mut less, mut more) = (Vec::new(), Vec::new());
        for (name, value) in &plan.xattrs {
            let found = self.tree.xattr(now, name).map_err(io("reading an extended attribute", id))?;
            if found == *value {
                continue;
            }
            let len = |value: Option<&Bytes>| value.map_or(0, Bytes::len);
            let grows = value.is_some() && (found.is_none() || len(found.as_ref()) < len(value.as_ref()));
            if grows { more.push((name, value.as_ref())) } else { less.push((name, value.as_ref())) }
        }
        more.sort_by_key(|(_, value)| std::cmp::Reverse(value.map_or(0, Bytes::len)));
        for (name, value) in less.iter().chain(&more) {
            self.tree.set_xattr(now, name, *value).map_err(io("setting an extended attribute", id))?;
        }
        Ok(!(less.is_empty() && more.is_empty()))
    }

    pub(super) fn times(&mut self, object: &Object<'_>) -> Result<(), Error> {
        let plan = object.plan;
        let (atime, mtime) = match (plan.owned, plan.mtime) {
            (Some(owned), _) => (Some(owned.atime), owned.mtime),
            (None, Some(mtime)) => (None, mtime),
            (None, None) => return Ok(()),
        };
        let right = object.made.is_none() && {
            let meta = self.look(object)?;
            meta.owned.mtime == mtime && atime.is_none_or(|atime| meta.owned.atime == atime)
        };
        if !right {
            self.tree.set_times(&object.now, atime, mtime).map_err(io("setting times", object.id))?;
        }
        Ok(())
    }
}
