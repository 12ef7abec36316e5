//! The tag: which log belongs to this tree, and up to which checkpoint the tree is durable.
//!
//! The tag is an extended attribute with the log's identity, the number of the last checkpoint, and whether the last stop
//! was clean. It is set before the `syncfs` of each checkpoint, so it is as old as the tree on which it stands. A restored
//! snapshot or backup has an older number; another disk has no tag or another identity. Replaying a log over such a
//! tree would mix two histories, so it is refused.
//!
//! Setting the tag changes the ctime of its directory, and clients see the root's ctime. So there are two tags:
//! - On the root, set only at the start and at a clean stop. It says whether there is a log and whether the last stop was clean,
//!   since a removed state directory takes its own tag with it.
//! - On the state directory, set at each checkpoint.
//!
//! The larger number counts. Earlier versions had only the root's tag and set it each time.
//!
//! A crash between the tag and the log's superblock leaves the tag one ahead. The log still has the records from the
//! older cut on, so both numbers are right.

use std::io::Result;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::kernel::{self, AsFd};

/// The name of the attribute. Only root can use the `trusted` namespace, and ordinary tools do not copy it.
pub(crate) const TAG_XATTR: &str = "trusted.landfast.tag";
const TAG_VERSION: u8 = 1;
const TAG_BYTES: usize = 1 + 16 + 8 + 1 + 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The identity of the volume's log.
    pub volume_id: [u8; 16],
    /// The last checkpoint that has begun.
    pub checkpoint: u64,
    /// The last stop was clean: the log has nothing that is missing here.
    pub clean: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    pub volume_id: [u8; 16],
    /// The number of the last completed checkpoint.
    pub checkpoint: u64,
    pub fresh: bool,
    pub records: bool,
    pub clean: bool,
}

impl LogState {
    /// It was created but never started.
    fn is_unused(&self) -> bool {
        self.checkpoint == 0 && !self.records
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error(
        "this log has been used with another directory (this one carries no xattr {TAG_XATTR}, as a copy that was made \
         without extended attributes): serve the directory that it belongs to, or give up what the log holds and use a \
         new log"
    )]
    Untagged,
    #[error(
        "this log belongs to another volume: serve the directory that it belongs to, or give this one's own log"
    )]
    OtherVolume,
    #[error(
        "this directory is at checkpoint {tree} and the log at {log}: an older copy or snapshot was put back. \
         Put the newest state back, or give up what the log holds and use a new log (remove xattr {TAG_XATTR} first)"
    )]
    OlderTree { tree: u64, log: u64 },
    #[error(
        "this directory is at checkpoint {tree} and the log at {log}: this is an older copy of the log. \
         Give the newest one"
    )]
    OlderLog { tree: u64, log: u64 },
    #[error(
        "this directory was stopped cleanly at checkpoint {tree}, the log at {log} was not: this is an older copy of the \
         log. Give the newest one, or a new one"
    )]
    OlderThanStop { tree: u64, log: u64 },
    /// A new log, but the old one is still needed.
    #[error(
        "this directory was not stopped cleanly and its log is not here: acknowledged operations may be in it. \
         Give that log; if it is lost, and so are they, remove xattr {TAG_XATTR} of the directory"
    )]
    LogLost,
}

/// Checks whether the log may be used with, and replayed over, the tree.
pub fn check(tag: Option<Tag>, log: LogState) -> std::result::Result<(), Mismatch> {
    match tag {
        None if log.fresh || (!log.records && log.checkpoint == 0) => Ok(()),
        None => Err(Mismatch::Untagged),
        Some(tag) if log.fresh => {
            if tag.clean {
                Ok(())
            } else {
                Err(Mismatch::LogLost)
            }
        }
        Some(tag) if tag.volume_id != log.volume_id => Err(Mismatch::OtherVolume),
        // A start with a new log was interrupted.
        Some(tag) if tag.clean && log.is_unused() => Ok(()),
        Some(tag) if tag.checkpoint < log.checkpoint => {
            Err(Mismatch::OlderTree { tree: tag.checkpoint, log: log.checkpoint })
        }
        Some(tag) if tag.checkpoint - log.checkpoint > 1 => {
            Err(Mismatch::OlderLog { tree: tag.checkpoint, log: log.checkpoint })
        }
        // At a stop the log is marked clean before the tree; at a start the tree is marked unclean before the log.
        Some(tag) if tag.clean && !(log.clean && log.checkpoint == tag.checkpoint) => {
            Err(Mismatch::OlderThanStop { tree: tag.checkpoint, log: log.checkpoint })
        }
        Some(_) => Ok(()),
    }
}

/// The tag of a volume, from its root and its state directory. Fails if one of the two is malformed.
pub fn read_both(root: impl AsFd, state_dir: impl AsFd) -> Result<Option<Tag>> {
    let (root, state) = (read(root)?, read(state_dir)?);
    Ok(root.map(|root| together(root, state)))
}

fn together(root: Tag, state: Option<Tag>) -> Tag {
    let state = state.filter(|state| state.volume_id == root.volume_id);
    Tag { checkpoint: state.map_or(0, |state| state.checkpoint).max(root.checkpoint), ..root }
}

/// Reads the tag of an open directory. A malformed tag is an error.
pub fn read(dir: impl AsFd) -> Result<Option<Tag>> {
    let mut value = [0u8; TAG_BYTES + 1];
    let n = match kernel::fgetxattr(dir, TAG_XATTR, &mut value[..]) {
        Ok(n) => n,
        Err(Errno::NODATA) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    decode(value.get(..n).unwrap_or_default()).map(Some).ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            format!(
                "xattr {TAG_XATTR} is damaged or of a newer version; restore it, or give up what the log holds and \
                 remove it (docs/internals/recovery.md)"
            ),
        )
    })
}

/// Sets the tag. The next `syncfs` makes it durable.
pub fn write(dir: impl AsFd, tag: Tag) -> Result<()> {
    Ok(kernel::fsetxattr(dir, TAG_XATTR, &encode(tag), XattrFlags::empty())?)
}

fn encode(tag: Tag) -> [u8; TAG_BYTES] {
    let mut b = [0u8; TAG_BYTES];
    b[0] = TAG_VERSION;
    b[1..17].copy_from_slice(&tag.volume_id);
    b[17..25].copy_from_slice(&tag.checkpoint.to_le_bytes());
    b[25] = u8::from(tag.clean);
    let crc = crc32c::crc32c(&b[..26]);
    b[26..].copy_from_slice(&crc.to_le_bytes());
    b
}

fn decode(bytes: &[u8]) -> Option<Tag> {
    let b: &[u8; TAG_BYTES] = bytes.try_into().ok()?;
    let crc = u32::from_le_bytes(b[26..].try_into().ok()?);
    if b[0] != TAG_VERSION || b[25] > 1 || crc != crc32c::crc32c(&b[..26]) {
        return None;
    }
    Some(Tag {
        volume_id: b[1..17].try_into().ok()?,
        checkpoint: u64::from_le_bytes(b[17..25].try_into().ok()?),
        clean: b[25] == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogState =
        LogState { volume_id: [7; 16], checkpoint: 5, fresh: false, records: true, clean: false };

    fn tag(checkpoint: u64) -> Option<Tag> {
        Some(Tag { volume_id: [7; 16], checkpoint, clean: false })
    }

    #[test]
    fn only_the_logs_own_tree_at_its_own_time() {
        assert_eq!(check(tag(5), LOG), Ok(()));
        assert_eq!(check(tag(6), LOG), Ok(()));
        assert_eq!(check(tag(4), LOG), Err(Mismatch::OlderTree { tree: 4, log: 5 }));
        assert_eq!(check(tag(7), LOG), Err(Mismatch::OlderLog { tree: 7, log: 5 }));
        assert_eq!(check(None, LOG), Err(Mismatch::Untagged));
        assert_eq!(check(tag(5), LogState { volume_id: [8; 16], ..LOG }), Err(Mismatch::OtherVolume));
    }

    #[test]
    fn a_new_log_only_after_a_clean_stop() {
        let fresh = LogState { volume_id: [9; 16], checkpoint: 0, fresh: true, records: false, clean: true };
        assert_eq!(check(None, fresh), Ok(()));
        assert_eq!(check(tag(5), fresh), Err(Mismatch::LogLost));
        assert_eq!(check(tag(5).map(|t| Tag { clean: true, ..t }), fresh), Ok(()));
        // The same when the start with it was interrupted: before it marked the tree, and after.
        let unused = LogState { checkpoint: 0, records: false, ..LOG };
        assert_eq!(check(tag(5).map(|t| Tag { clean: true, ..t }), unused), Ok(()));
        assert_eq!(check(tag(1), unused), Ok(()));
        assert_eq!(check(tag(5), unused), Err(Mismatch::OlderLog { tree: 5, log: 0 }));
    }

    #[test]
    fn after_a_clean_stop_only_the_log_that_was_stopped() {
        let stopped = Some(Tag { volume_id: [7; 16], checkpoint: 5, clean: true });
        assert_eq!(check(stopped, LogState { clean: true, records: false, ..LOG }), Ok(()));
        assert_eq!(check(stopped, LOG), Err(Mismatch::OlderThanStop { tree: 5, log: 5 }));
        let before = LogState { checkpoint: 4, clean: true, ..LOG };
        assert_eq!(check(stopped, before), Err(Mismatch::OlderThanStop { tree: 5, log: 4 }));
        // The next start has marked the tree, but not yet the log.
        assert_eq!(check(tag(6), LogState { clean: true, records: false, ..LOG }), Ok(()));
    }

    #[test]
    fn the_larger_number_counts_and_the_root_says_how_it_was_stopped() {
        let root = Tag { volume_id: [7; 16], checkpoint: 5, clean: false };
        assert_eq!(together(root, None), root, "as of an earlier version");
        assert_eq!(together(root, tag(9)), Tag { checkpoint: 9, ..root });
        assert_eq!(together(root, tag(4)), root, "a start that got no further than the root");
        let stopped = Tag { clean: true, ..root };
        assert_eq!(together(stopped, tag(5)), stopped);
        let other = Tag { volume_id: [8; 16], checkpoint: 90, clean: false };
        assert_eq!(together(root, Some(other)), root);
    }

    #[test]
    fn damage_is_seen() {
        let t = Tag { volume_id: [3; 16], checkpoint: u64::MAX, clean: true };
        let good = encode(t);
        assert_eq!(decode(&good), Some(t));
        for i in 0..TAG_BYTES {
            let mut bad = good;
            bad[i] ^= 0x40;
            assert_eq!(decode(&bad), None);
        }
        assert_eq!(decode(&good[..10]), None);
        assert_eq!(decode(&[]), None);
    }
}
