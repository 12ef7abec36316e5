//! Accesses without an open, and closing what they left open ([`crate::brief`]).

use std::sync::atomic::Ordering;

use crate::brief::{Keep, Kept};
use crate::brief_queue::close;
use crate::error::Error;
use crate::kernel;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::types::{Cred, OpenMode};
use crate::volume::Volume;

impl Volume {
    /// Opens a regular file for one access, for reading or writing: as [`Volume::open_file`], but the same caller's next
    /// access may find it still open.
    pub fn open_briefly(
        &self,
        cred: &Cred,
        node: &Node,
        mode: OpenMode,
        keep: Keep,
    ) -> Result<OpenFile, Error> {
        let now = kernel::instant();
        // Before the file is opened: who takes the right away meanwhile makes what comes of it useless.
        let rights = node.0.rights.load(Ordering::Acquire);
        if let Some(fd) = node.0.brief.get(cred, mode, rights, now)
            && !node.0.is_dead()
        {
            return Ok(OpenFile::new(self, node.clone(), fd, mode.read, mode.write, cred));
        }
        let file = self.open_file(cred, node, mode)?;
        if keep == Keep::IfAgain && !node.0.brief.is_again(now) {
            return Ok(file);
        }
        let kept = Kept { fd: file.0.fd.clone(), cred: cred.clone(), mode, opened: now, rights };
        node.0.brief.keep(kept);
        self.0.brief.push(node, now);
        // It is marked as dead before its descriptors are closed, so one of us sees the other.
        if node.0.is_dead() {
            node.0.brief.close();
        }
        Ok(file)
    }

    /// Whether there is anything for [`Volume::close_idle`] to do.
    pub fn has_idle(&self) -> bool {
        let now = kernel::instant();
        self.0.brief.has_old(now) || self.0.witnesses.has_old(now)
    }

    /// Closes files that nobody has opened and that [`Volume::open_briefly`] opened [`crate::limits::BRIEF_OPEN`] ago. Call as often as
    /// that: a local process cannot run a file that is open for writing. Then commits files whose unstable data is older than
    /// [`crate::limits::UNSTABLE_OLD`]: this may wait for the disk.
    pub fn close_idle(&self) {
        let now = kernel::instant();
        while let Some(row) = self.0.brief.pop_old(now) {
            close(Some(row));
        }
        if self.0.witnesses.has_old(now) {
            self.settle_unstable();
        }
    }
}
