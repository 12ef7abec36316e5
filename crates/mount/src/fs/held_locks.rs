//! What the server has of a file's locks. Pure.

use std::collections::HashMap;

use landfast_nfs::v4::Stateid;

use crate::remote::LockName;

/// A lock owner that has, or had, locks on the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) stateid: Stateid,
    /// The number of the try that gave it its first lock.
    pub(super) attempt: u32,
    /// The open file description that it locked through last. The kernel's number of a flock(2) owner may be that of another one, which is closed,
    /// and of whose end the kernel tells later.
    pub(super) through: u64,
}

/// The locks of one file, and the opens that they belong to.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// The open, and its access (`OPEN4_SHARE_ACCESS_*`).
    pub(super) open: Option<(Stateid, u32)>,
    /// Opens with less access, which earlier locks may belong to (version 4.0).
    pub(super) earlier: Vec<Stateid>,
    /// The number of its open owner.
    pub(super) number: Option<u64>,
    pub(super) owners: HashMap<u64, Owner>,
    /// Tries to get the first lock of an owner.
    pub(super) attempts: u32,
    /// The server has forgotten locks.
    pub(super) lost: bool,
}

impl Locks {
    /// The name by which the server knows a lock owner, or would.
    pub(super) fn name(&self, owner: u64) -> LockName {
        let attempt = self.owners.get(&owner).map_or(self.attempts, |held| held.attempt);
        LockName { file: self.number.unwrap_or(0), owner, attempt }
    }

    /// The owner, if the open file description of this number has locked last in its name.
    pub(super) fn through(&self, owner: u64, handle: u64) -> Option<Owner> {
        self.owners.get(&owner).copied().filter(|owner| owner.through == handle)
    }

    /// The server does not know what it had of the file any more. Returns whether that were locks.
    pub(super) fn forgotten(&mut self) -> bool {
        self.lost |= !self.owners.is_empty();
        self.owners.clear();
        self.open = None;
        self.earlier.clear();
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel gives the number of a closed file description to a new one, and tells of the end of the closed one later.
    #[test]
    fn a_late_close_is_not_that_of_a_later_open() {
        const OWNER: u64 = 7;
        let mut locks = Locks::default();
        let owner = |through| Owner { stateid: Stateid::ANONYMOUS, attempt: 0, through };
        locks.owners.insert(OWNER, owner(1));
        assert!(locks.through(OWNER, 1).is_some());
        locks.owners.insert(OWNER, owner(2));
        assert!(locks.through(OWNER, 1).is_none() && locks.through(OWNER, 2).is_some());
    }
}
