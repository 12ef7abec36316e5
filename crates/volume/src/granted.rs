//! Whether a caller may go on with a file that is open already: each access asks, whoever opened it.
//!
//! An open file remembers for its opener alone that he may read or write, and since when. Invariants:
//!
//! - What is remembered is what an open by him would be told now: it is worth nothing when the volume has changed the file's
//!   owner, mode or access list since (`rights` counts that), or when it is as old as [`BRIEF_OPEN`], which bounds how long
//!   what a local process changes goes unnoticed.
//! - Of any other caller nothing is remembered: each access of his costs the system call that asks.

use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::Error;
use crate::kernel;
use crate::limits::BRIEF_OPEN;
use crate::node::{Node, NodeFd, OpenFile};
use crate::types::{Cred, OpenMode};
use crate::volume::Volume;

/// When the opener was last let in, and how often the file's rights had been changed then.
#[derive(Clone, Copy)]
struct Grant {
    at: Instant,
    rights: u64,
}

/// What an open file remembers: of reading, of writing.
#[derive(Default)]
pub(crate) struct Granted(Mutex<[Option<Grant>; 2]>);

impl Granted {
    /// The opener may do what `mode` says; `rights` was the file's count before he was asked about.
    pub(crate) fn note(&self, mode: OpenMode, rights: u64, at: Instant) {
        let mut known = self.0.lock();
        let [read, write] = &mut *known;
        for (wanted, known) in [(mode.read, read), (mode.write, write)] {
            if wanted {
                *known = Some(Grant { at, rights });
            }
        }
    }

    fn holds(&self, mode: OpenMode, rights: u64, now: Instant) -> bool {
        let [read, write] = *self.0.lock();
        let good = |known: Option<Grant>| {
            known.is_some_and(|g| g.rights == rights && now.saturating_duration_since(g.at) < BRIEF_OPEN)
        };
        (!mode.read || good(read)) && (!mode.write || good(write))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_remembered_holds_for_what_was_asked_and_until_rights_change_or_time_is_over() {
        let (granted, at) = (Granted::default(), Instant::now());
        let late = at + BRIEF_OPEN;
        assert!(!granted.holds(OpenMode::READ, 0, at), "nothing was asked yet");
        granted.note(OpenMode::READ, 3, at);
        assert!(granted.holds(OpenMode::READ, 3, late - Duration::from_nanos(1)));
        assert!(!granted.holds(OpenMode::READ, 3, late));
        assert!(!granted.holds(OpenMode::READ, 4, at));
        assert!(!granted.holds(OpenMode::WRITE, 3, at));
        assert!(!granted.holds(OpenMode::BOTH, 3, at));
        granted.note(OpenMode::WRITE, 4, at);
        assert!(granted.holds(OpenMode::WRITE, 4, at));
        assert!(!granted.holds(OpenMode::BOTH, 4, at), "reading was asked about before the change");
        granted.note(OpenMode::BOTH, 4, at);
        assert!(granted.holds(OpenMode::BOTH, 4, at));
    }
}
