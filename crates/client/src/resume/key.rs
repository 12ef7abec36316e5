//! The hashes that stand for paths and objects in the journal.

use std::hash::Hasher as _;
use std::sync::{Arc, OnceLock};

use siphasher::sip::SipHasher24;

use crate::archive::{Kind, Member};

/// The key of these hashes. Only the journal has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(pub(super) u64, pub(super) u64);

impl Key {
    /// The hash of a path. It depends only on the names, not on how they are separated.
    pub(super) fn path(self, path: &[u8]) -> u64 {
        self.names(path.split(|b| *b == b'/'))
    }

    /// The hash of a path's names. Empty names and `.` do not count.
    pub(super) fn names<'a>(self, names: impl IntoIterator<Item = &'a [u8]>) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
        for name in names.into_iter().filter(|name| !matches!(*name, b"" | b".")) {
            hasher.write(name);
            // No name contains the separator.
            hasher.write(b"/");
        }
        hasher.finish()
    }

    /// The hash of the source object. It changes when the source changes.
    pub(super) fn object(self, member: &Member) -> u64 {
        // The halves of the key are swapped, so that these hashes are independent of those of paths.
        let mut hasher = SipHasher24::new_with_keys(self.1, self.0);
        let kind = match member.kind {
            Kind::File => 1,
            Kind::Dir => 2,
            Kind::HardLink => 3,
            Kind::Symlink => 4,
            Kind::Char => 5,
            Kind::Block => 6,
            Kind::Fifo => 7,
            Kind::Socket => 8,
        };
        for number in [
            kind,
            member.size,
            member.mtime.seconds as u64,
            u64::from(member.mtime.nanos),
            u64::from(member.mode),
            u64::from(member.uid),
            u64::from(member.gid),
            u64::from(member.device.0),
            u64::from(member.device.1),
        ] {
            hasher.write(&number.to_le_bytes());
        }
        hasher.write(&member.link);
        hasher.finish()
    }
}

/// A journal entry. It is written when the member is durable.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// A member of an archive.
    Member {
        number: u64,
        /// The archive's digest after the member's data; set when that has been read. `None`: the archive can be read again.
        digest: Option<Arc<OnceLock<u64>>>,
    },
    /// An object of a tree.
    Object {
        /// The hash of the path.
        path: u64,
        object: u64,
    },
}
