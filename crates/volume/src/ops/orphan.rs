//! Files that have lost their last name and are kept for those who have them open ([`crate::orphans`]).

use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::record;
use crate::error::Error;
use crate::kernel;
use crate::node::Node;
use crate::node_fd::NodeFd;
use crate::record::Fact;
use crate::tx::Tx;
use crate::volume::Volume;

impl Volume {
    /// Whether files that lose their last name can be kept over a restart ([`Volume::remove_keeping`]).
    pub fn keeps_orphans(&self) -> bool {
        self.0.orphans.is_some()
    }

    /// How many files without a name are kept.
    pub fn orphans_len(&self) -> usize {
        self.0.orphans.as_ref().map_or(0, |orphans| orphans.len())
    }

    /// The files without a name that are kept, as after a restart.
    pub fn orphans(&self) -> Vec<Node> {
        let all = self.0.orphans.as_ref().map(|orphans| orphans.all()).unwrap_or_default();
        let node = |id| match self.resolve_id(&id) {
            Ok(node) => Some(node),
            Err(e) => {
                tracing::warn!("a file without a name in {}/.landfast/open: {e}", self.0.dir.display());
                None
            }
        };
        all.into_iter().filter_map(node).collect()
    }

    /// Whether the file outlasts a restart: it has a name, or is kept without one. Waits for a removal that is under way.
    pub fn outlasts(&self, node: &Node) -> bool {
        let _state = node.0.state.lock();
        !node.0.is_dead()
    }

    /// Runs `f` unless the file is kept without a name. Waits for a removal that is under way, and none begins meanwhile.
    pub fn unless_orphan(&self, node: &Node, f: impl FnOnce()) {
        let _state = node.0.state.lock();
        if !node.0.is_orphan() {
            f();
        }
    }

    /// Gives an object its place among the orphans, as the superuser. `None` if it cannot be kept. The space reserve is recovery's, and it alone may
    /// use it. The caller takes the last name away then, with his own rights: so the kernel says whether he may. Call under the object's lock.
    /// Errors: `Busy`, if somebody was promised that it is kept, and there is no space for that.
    pub(super) fn give_place(
        &self,
        node: &Node,
        fd: &NodeFd,
        promised: bool,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(orphans) = &self.0.orphans else { return Ok(None) };
        let Some(name) = orphans.reserve(&node.0.id) else { return Ok(None) };
        self.assume_root()?;
        let Err(e) = kernel::link_open(fd, orphans.dir(), &name) else {
            orphans.full.store(false, Ordering::Release);
            return Ok(Some(name));
        };
        orphans.forget(&node.0.id);
        match e {
            Errno::NOSPC | Errno::DQUOT if promised => {
                if !orphans.full.swap(true, Ordering::AcqRel) {
                    tracing::warn!(
                        "{}: there is no space to keep files that are removed while they are open: those that were promised to outlast that are not removed: {e}",
                        self.0.dir.display()
                    );
                }
                Err(Error::Busy)
            }
            // What must not be linked must not be removed either, as the caller is told next.
            Errno::PERM => Ok(None),
            e => {
                tracing::warn!(
                    "{}: a file that loses its last name is open, and cannot be kept over a restart: {e}",
                    self.0.dir.display()
                );
                Ok(None)
            }
        }
    }

    /// Takes the place back, since the object keeps its name. Call under the object's lock.
    pub(super) fn take_place(&self, node: &Node, name: &[u8]) -> Result<(), Error> {
        let Some(orphans) = &self.0.orphans else { return Ok(()) };
        self.assume_root()?;
        orphans.forget(&node.0.id);
        kernel::unlinkat(orphans.dir(), name, AtFlags::empty())
            .map_err(|e| self.fail(format!("taking back the place of an open file: {e}")))
    }

    /// The facts of a removal that leaves the object among the orphans.
    pub(super) fn bind_orphan(&self, node: &Node, name: &[u8]) -> Option<Fact> {
        let dir = self.0.orphans.as_ref()?.id().clone();
        Some(Fact::Bind { dir, name: Bytes::copy_from_slice(name), obj: node.0.id.clone() })
    }

    /// Removes a file that is kept without a name, if `free` says that nobody has it open. Returns whether it is gone. `free` is asked
    /// under the file's lock, so nobody opens it in between ([`Volume::outlasts`]).
    pub fn release(&self, tx: &mut Tx, node: &Node, free: impl FnOnce() -> bool) -> Result<bool, Error> {
        let Some(orphans) = &self.0.orphans else { return Ok(false) };
        tx.rests_on(node);
        tx.join()?;
        self.assume_root()?;
        let mut state = node.0.state.lock();
        let Some(name) = orphans.name(&node.0.id) else { return Ok(false) };
        if !free() {
            return Ok(false);
        }
        tx.removes_last_name();
        match kernel::unlinkat(orphans.dir(), name.as_slice(), AtFlags::empty()) {
            // A local process has removed it.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        orphans.forget(&node.0.id);
        self.changed(node, &mut state, None);
        node.0.orphan.store(false, Ordering::Release);
        node.0.dead.store(true, Ordering::Release);
        record(tx, &[node], || {
            let (dir, obj) = (orphans.id().clone(), node.0.id.clone());
            vec![
                Fact::Unbind { dir, name: Bytes::from(name), obj: obj.clone() },
                Fact::Links { obj, nlink: 0 },
            ]
        })?;
        drop(state);
        self.bury(node);
        Ok(true)
    }
}
