//! Open owners and lock owners, and the numbers of their next requests (RFC 7530 section 9.1.7), as values. No I/O.
//!
//! | state of an owner | meaning | leaves it by |
//! |---|---|---|
//! | idle | the server and this side agree on its number | [`Owners::take`] |
//! | taken | one request of it may be at the server; or it has an open | [`Owners::give_back`], or it is dropped |
//!
//! An owner is given back only when its number is known: one for which it is not is dropped, and its name never used
//! again. Owners belong to a client ID and go with it.

use bytes::Bytes;
use landfast_nfs::v4::{NfsStat, Stateid};

/// An open owner.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The client ID that it belongs to, by order of their creation.
    pub(super) generation: u64,
    /// `open_owner4.owner`.
    pub(super) name: Bytes,
    /// The number of its next request.
    pub(super) seqid: u32,
}

impl Owner {
    /// A request with its number was answered. Returns `false` if the two sides disagree: then the owner is useless.
    #[must_use]
    pub(super) fn answered(&mut self, status: NfsStat) -> bool {
        count(&mut self.seqid, status)
    }
}

/// Moves a number on as the server does. Returns `false` if the two sides disagree.
fn count(seqid: &mut u32, status: NfsStat) -> bool {
    if status.advances_seqid() {
        // RFC 7530 section 9.1.3: after the largest number comes 1.
        *seqid = seqid.checked_add(1).unwrap_or(1);
    }
    status != NfsStat::NFS4ERR_BAD_SEQID
}

/// A lock owner, which has locks on one file only, under one open.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LockOwner {
    /// The client ID that it belongs to, by order of their creation.
    pub(super) generation: u64,
    /// The open that its locks belong to.
    pub(super) open: [u8; 12],
    /// As the server gave it last. `None`: its first lock is being asked for.
    pub(super) stateid: Option<Stateid>,
    /// The number of its next request.
    pub(super) seqid: u32,
}

impl LockOwner {
    /// Before its first lock, under this open.
    pub(super) fn of(open: &Owner, stateid: Stateid) -> LockOwner {
        LockOwner { generation: open.generation, open: stateid.other, stateid: None, seqid: 1 }
    }

    /// A request with its number was answered. Returns `false` if it is useless now.
    #[must_use]
    pub(super) fn answered(&mut self, status: NfsStat) -> bool {
        count(&mut self.seqid, status)
    }
}

/// The idle owners of the current client ID.
#[derive(Debug, Default)]
pub(super) struct Owners {
    generation: u64,
    idle: Vec<Owner>,
    named: u64,
}

impl Owners {
    /// An owner that the server knows, or a new one.
    pub(super) fn take(&mut self) -> Owner {
        if let Some(owner) = self.idle.pop() {
            return owner;
        }
        self.named += 1;
        let name = Bytes::from(format!("landfast {}", self.named));
        Owner { generation: self.generation, name, seqid: 1 }
    }

    /// It has nothing open and no request in flight.
    pub(super) fn give_back(&mut self, owner: Owner) {
        if owner.generation == self.generation {
            self.idle.push(owner);
        }
    }

    /// A new client ID: all owners are dropped.
    pub(super) fn start_over(&mut self, generation: u64) {
        self.generation = generation;
        self.idle.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc7530_9_1_7_numbers_move_on_as_the_server_counts_them() {
        let mut owners = Owners::default();
        let mut o = owners.take();
        for (status, useful, next) in [
            (NfsStat::NFS4_OK, true, 2),
            (NfsStat::NFS4ERR_GRACE, true, 3),
            (NfsStat::NFS4ERR_STALE_CLIENTID, true, 3),
            (NfsStat::NFS4ERR_RESOURCE, true, 3),
            (NfsStat::NFS4ERR_BAD_SEQID, false, 3),
        ] {
            assert_eq!((o.answered(status), o.seqid), (useful, next), "{status}");
        }
        o.seqid = u32::MAX;
        assert!(o.answered(NfsStat::NFS4_OK));
        assert_eq!(o.seqid, 1);
    }

    #[test]
    fn rfc7530_16_10_a_lock_owner_has_a_number_of_its_own() {
        let mut open = Owners::default().take();
        open.seqid = 7;
        let stateid = Stateid { seqid: 3, other: [5; 12] };
        let mut lock = LockOwner::of(&open, stateid);
        assert_eq!((lock.open, lock.stateid, lock.seqid), ([5; 12], None, 1));
        for (status, useful, next) in [
            (NfsStat::NFS4ERR_DENIED, true, 2),
            (NfsStat::NFS4_OK, true, 3),
            (NfsStat::NFS4ERR_STALE_STATEID, true, 3),
            (NfsStat::NFS4ERR_BAD_SEQID, false, 3),
        ] {
            assert_eq!((lock.answered(status), lock.seqid), (useful, next), "{status}");
        }
        assert_eq!(open.seqid, 7);
    }

    #[test]
    fn owners_go_with_their_client_and_names_are_never_used_twice() {
        let mut owners = Owners::default();
        let (a, b) = (owners.take(), owners.take());
        assert_ne!(a.name, b.name);
        let name = a.name.clone();
        owners.give_back(a);
        assert_eq!(owners.take().name, name);
        owners.start_over(1);
        owners.give_back(b);
        let c = owners.take();
        assert!(c.generation == 1 && c.name != name && c.seqid == 1);
    }
}
