//! Checks whether a caller may use a file that is already open. Each access asks, whoever opened the file ([`crate::access_cache`]).

use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::kernel;
use crate::node::Node;
use crate::node_fd::NodeFd;
use crate::open_file::OpenFile;
use crate::types::{Cred, OpenMode};
use crate::volume::Volume;

impl Volume {
    /// An open file for an access by this caller, who need not have opened it. The result is what [`Volume::open_file`] with
    /// [`OpenMode::owner_override`] would give, without opening the file again. Writes through it run as this caller.
    /// [`Error::Access`] if the caller may not.
    pub fn as_caller(&self, cred: &Cred, file: &OpenFile, mode: OpenMode) -> Result<OpenFile, Error> {
        let now = kernel::instant();
        // Read before the check: if somebody revokes the right meanwhile, the answer does not count.
        let rights = file.0.node.0.rights.load(Ordering::Acquire);
        let is_opener = file.0.cred == *cred;
        if is_opener && file.0.access.holds(mode, rights, now) {
            return Ok(file.clone());
        }
        self.ask(cred, &file.0.fd, mode)?;
        if is_opener {
            file.0.access.note(mode, rights, now);
            return Ok(file.clone());
        }
        let (node, fd) = (file.0.node.clone(), file.0.fd.clone());
        Ok(OpenFile::new(self, node, fd, file.0.read, file.0.write, cred))
    }

    /// Checks whether the caller may use the file as `mode` says; its owner may, whatever the file's mode. [`Error::Access`]
    /// if not.
    pub fn may(&self, cred: &Cred, node: &Node, mode: OpenMode) -> Result<(), Error> {
        let mode = OpenMode { owner_override: true, ..mode };
        let rights = node.0.rights.load(Ordering::Acquire);
        // The caller has just accessed it without an open.
        if node.0.cached_descriptors.get(cred, mode, rights, kernel::instant()).is_some() {
            return Ok(());
        }
        self.ask(cred, &*self.fd(node)?, mode)
    }

    fn ask(&self, cred: &Cred, fd: &NodeFd, mode: OpenMode) -> Result<(), Error> {
        self.assume(cred)?;
        let bit = |bit, wanted| if wanted { bit } else { 0 };
        let wanted = bit(libc::R_OK, mode.read) | bit(libc::W_OK, mode.write);
        let mode = OpenMode { owner_override: true, ..mode };
        if kernel::access(fd, wanted)? || self.may_pass(cred, fd, mode)? {
            return Ok(());
        }
        // If the filesystem turned read-only after an error, the reason matters to the caller.
        Err(self.check().err().unwrap_or(Error::Access))
    }
}
