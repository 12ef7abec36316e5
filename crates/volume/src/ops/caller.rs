//! Whether a caller may go on with a file that is open already: each access asks, whoever opened it ([`crate::granted`]).

use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::kernel;
use crate::node::Node;
use crate::node_fd::NodeFd;
use crate::open_file::OpenFile;
use crate::types::{Cred, OpenMode};
use crate::volume::Volume;

impl Volume {
    /// An open file for an access by this caller, who need not have opened it: as [`Volume::open_file`] with
    /// [`OpenMode::owner_override`] would give it to him, without opening it again. What is written through it is written by
    /// him.
    ///
    /// # Errors
    /// [`Error::Access`] when he may not.
    pub fn as_caller(&self, cred: &Cred, file: &OpenFile, mode: OpenMode) -> Result<OpenFile, Error> {
        let now = kernel::instant();
        // Before he is asked about: who takes the right away meanwhile makes the answer useless.
        let rights = file.0.node.0.rights.load(Ordering::Acquire);
        let is_opener = file.0.cred == *cred;
        if is_opener && file.0.granted.holds(mode, rights, now) {
            return Ok(file.clone());
        }
        self.ask(cred, &file.0.fd, mode)?;
        if is_opener {
            file.0.granted.note(mode, rights, now);
            return Ok(file.clone());
        }
        let (node, fd) = (file.0.node.clone(), file.0.fd.clone());
        Ok(OpenFile::new(self, node, fd, file.0.read, file.0.write, cred))
    }

    /// Whether the caller may do to the file what `mode` says, its owner whatever the file's mode.
    ///
    /// # Errors
    /// [`Error::Access`] when he may not.
    pub fn may(&self, cred: &Cred, node: &Node, mode: OpenMode) -> Result<(), Error> {
        let mode = OpenMode { owner_override: true, ..mode };
        let rights = node.0.rights.load(Ordering::Acquire);
        // He has just accessed it without an open.
        if node.0.brief.get(cred, mode, rights, kernel::instant()).is_some() {
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
        // A filesystem that turned read-only under us: what matters to the caller is why.
        Err(self.check().err().unwrap_or(Error::Access))
    }
}
