//! Accesses without an open; closing the descriptors that they leave open ([`crate::descriptor_cache`]).

use std::sync::atomic::Ordering;

use crate::descriptor_cache::{CachedDescriptor, Keep};
use crate::descriptor_queue::close;
use crate::error::Error;
use crate::kernel;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::results::Created;
use crate::types::{Cred, OpenMode};
use crate::volume::Volume;

impl Volume {
    /// Opens a regular file for one access, as [`Volume::open_file`]. The same caller's next access may find it still open.
    pub fn open_stateless(
        &self,
        cred: &Cred,
        node: &Node,
        mode: OpenMode,
        keep: Keep,
    ) -> Result<OpenFile, Error> {
        let now = kernel::instant();
        // Read before the file is opened: if somebody revokes the right meanwhile, the descriptor is not reused.
        let rights = node.0.rights.load(Ordering::Acquire);
        if let Some(fd) = node.0.cached_descriptors.get(cred, mode, rights, now)
            && !node.0.is_dead()
        {
            if mode.write && node.0.cached_descriptors.is_unused() {
                let again = keep == Keep::Now || node.0.cached_descriptors.is_again(now);
                node.0.cached_descriptors.used(again);
            }
            return Ok(OpenFile::new(self, node.clone(), fd, mode.read, mode.write, cred));
        }
        let file = self.open_file(cred, node, mode)?;
        if keep == Keep::IfAgain && !node.0.cached_descriptors.is_again(now) {
            return Ok(file);
        }
        let fd = file.0.fd.clone();
        let kept = CachedDescriptor { fd, cred: cred.clone(), mode, opened: now, rights, unused: false };
        self.keep_descriptor(node, kept);
        Ok(file)
    }

    /// Keeps the descriptor of a file that this caller has just made for the caller's first write without an open.
    pub fn keep_for_first_write(&self, cred: &Cred, made: &Created) {
        let Some(rights) = made.rights else { return };
        let mode = OpenMode { read: false, write: true, owner_override: true };
        let (fd, opened) = (made.file.0.fd.clone(), kernel::instant());
        let kept = CachedDescriptor { fd, cred: cred.clone(), mode, opened, rights, unused: true };
        self.keep_descriptor(&made.node, kept);
    }

    fn keep_descriptor(&self, node: &Node, kept: CachedDescriptor) {
        let opened = kept.opened;
        node.0.cached_descriptors.keep(kept);
        self.0.descriptor_queue.push(node, opened);
        // A node is marked as dead before its descriptors are closed, so either this thread or that one closes this descriptor.
        if node.0.is_dead() {
            node.0.cached_descriptors.close();
        }
    }

    pub fn has_idle(&self) -> bool {
        let now = kernel::instant();
        self.0.descriptor_queue.has_old(now) || self.0.witnesses.has_old(now)
    }

    /// Closes files that [`Volume::open_stateless`] opened [`crate::limits::DESCRIPTOR_CACHE_TIME`] ago and that nobody else has open. Call at
    /// that interval, since a local process cannot run a file that is open for writing. Then commits files whose unstable data
    /// is older than [`crate::limits::UNSTABLE_OLD`]; this may wait for the disk.
    pub fn close_idle(&self) {
        let now = kernel::instant();
        while let Some(row) = self.0.descriptor_queue.pop_old(now) {
            close(Some(row));
        }
        if self.0.witnesses.has_old(now) {
            self.settle_unstable();
        }
    }
}
