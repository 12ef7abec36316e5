//! Truncation notes: notes on a file of what a truncation is about to remove.
//!
//! A truncation may be on disk without its record being in the log: the disk is *ahead* ([`crate::marker`]). Recovery then
//! writes the log's data of the file and must know of the truncation. Of the removed bytes the log has only those since the
//! last checkpoint; putting these back would leave zeros where the others were. The file's size does not help, since the
//! file may have grown again.
//!
//! So before the server truncates a file of which the log may hold contents, it notes the transaction's number and the new
//! size in an extended attribute. That is metadata, so it is on disk if the truncation is. Recovery over a disk that is
//! ahead completes each such cut: it writes nothing beyond it and sets the size.
//!
//! Invariants:
//! - For every truncation to a smaller size that is on disk but not in the log, the attribute has an entry with its
//!   number and a size that is not larger, or the log holds nothing of the file's contents.
//! - The last entry has the size that was set last. So while a cut is not known to be in the log, growth is noted, too.
//! - Entries whose transaction is known to be in the log are dropped when the next one is added; recovery ignores them.
//!
//! This costs no flush, and one or two system calls only for files written since the last checkpoints. The attribute names
//! its file, so a copy on another file (`cp -a`) has no effect.

use std::sync::atomic::Ordering;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::kernel::{self, AsFd};
use crate::limits::{TRUNCATION_NOTES_BYTES_MAX, TRUNCATION_NOTES_MAX};
use crate::node::{Node, NodeState};
use crate::record::ObjId;
use crate::tx::Tx;
use crate::volume::Volume;

/// The name of the attribute. Only root can use the `trusted` namespace, and ordinary tools do not copy it.
pub(crate) const TRUNCATION_XATTR: &str = "trusted.landfast.cut";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TruncationNotes {
    /// The file to which it belongs.
    of: ObjId,
    /// Transaction number and the size that it set, in order; sizes ascend.
    set: Vec<(u64, u64)>,
}

impl TruncationNotes {
    pub(crate) fn none(of: &ObjId) -> TruncationNotes {
        TruncationNotes { of: of.clone(), set: Vec::new() }
    }

    /// The cuts of a file in `bytes` from transactions after `seq`; none if `bytes` are malformed or of another file.
    pub(crate) fn after(seq: u64, of: &ObjId, bytes: &[u8]) -> TruncationNotes {
        match postcard::from_bytes::<TruncationNotes>(bytes) {
            Ok(mut said) if said.of == *of => {
                said.set.retain(|(n, _)| *n > seq);
                said
            }
            _ => TruncationNotes::none(of),
        }
    }

    /// Adds a cut. Drops those to the same or a larger size, which it covers.
    fn push(&mut self, seq: u64, size: u64) {
        self.set.retain(|(_, lower)| *lower < size);
        self.set.push((seq, size));
    }

    /// The offset from which everything has been cut off.
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.set.first().map(|(_, size)| *size)
    }

    pub(crate) fn last(&self) -> Option<u64> {
        self.set.last().map(|(_, size)| *size)
    }

    /// The size that was set last after `seq`, whatever the file.
    #[cfg(test)]
    pub(crate) fn last_after(seq: u64, bytes: &[u8]) -> Option<u64> {
        let said = postcard::from_bytes::<TruncationNotes>(bytes).ok()?;
        said.set.last().filter(|(n, _)| *n > seq).map(|(_, size)| *size)
    }

    fn leave(&self, fd: impl AsFd) -> Result<(), Errno> {
        let Ok(bytes) = postcard::to_allocvec(self) else { return Err(Errno::NOMEM) };
        kernel::fsetxattr(fd, TRUNCATION_XATTR, &bytes, XattrFlags::empty())
    }
}

impl Volume {
    /// Notes that this many facts about contents are appended to the log. Call within the transaction.
    pub(crate) fn content_logged(&self, state: &mut NodeState, facts: u64) {
        if facts > 0 {
            state.data_facts += facts;
            state.logged_at = self.0.syncing.load(Ordering::SeqCst) + 1;
        }
    }

    /// Whether the log may hold facts about the contents of a file. Call within a transaction.
    ///
    /// A fact appended after the sync of checkpoint n began, and before that of n + 1 began, is older than the cut of n + 2:
    /// that cut comes after the sync of n + 1 and waits for the transaction.
    fn may_hold(&self, state: &NodeState) -> bool {
        self.may_hold_from(state.logged_at)
    }

    /// The same for facts up to the one that left this value in [`NodeState::logged_at`].
    pub(crate) fn may_hold_from(&self, logged_at: u64) -> bool {
        let Some((log, _)) = self.log() else { return false };
        logged_at > 0 && log.stats().checkpoint < logged_at + 1
    }

    /// Sets the size of a file that is open for writing. Call joined, under the attribute lock.
    pub(crate) fn cut(
        &self,
        tx: &Tx,
        node: &Node,
        state: &NodeState,
        fd: impl AsFd,
        size: u64,
    ) -> Result<(), Error> {
        let Some(seq) = tx.seq().filter(|_| !self.0.unprivileged && self.may_hold(state)) else {
            return Ok(kernel::ftruncate(fd, size)?);
        };
        let look = kernel::look(&fd)?;
        let before = self.not_known_to_be_logged(node, &fd)?;
        // A file without a name cannot come back.
        if look.stx_nlink == 0 || size >= look.stx_size && before.set.is_empty() {
            return Ok(kernel::ftruncate(fd, size)?);
        }
        let mut cuts = before.clone();
        cuts.push(seq, size);
        if cuts.set.len() > TRUNCATION_NOTES_MAX {
            return Err(Error::Resources);
        }
        match cuts.leave(&fd) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => {
                // Cutting must be possible on a full disk: it is after a checkpoint, when nothing needs to be noted.
                if let Some((log, _)) = self.log() {
                    log.ask_checkpoint();
                }
                return Err(Error::Resources);
            }
            Err(e) => return Err(e.into()),
        }
        kernel::ftruncate(&fd, size).map_err(|e| match before.leave(&fd) {
            Ok(()) => e.into(),
            Err(still) => self.fail(format!("taking back that a file is to be cut: {still}")),
        })
    }

    fn not_known_to_be_logged(&self, node: &Node, fd: impl AsFd) -> Result<TruncationNotes, Error> {
        let mut bytes = [0; TRUNCATION_NOTES_BYTES_MAX];
        match kernel::fgetxattr(fd, TRUNCATION_XATTR, &mut bytes) {
            Ok(len) => {
                let known = self.0.durable_seq.load(Ordering::SeqCst);
                Ok(TruncationNotes::after(known, &node.0.id, bytes.get(..len).unwrap_or_default()))
            }
            // RANGE: too large to be ours.
            Err(Errno::NODATA | Errno::RANGE) => Ok(TruncationNotes::none(&node.0.id)),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::KernelHandle;

    fn file(n: i64) -> ObjId {
        ObjId { kh: KernelHandle { kind: 1, bytes: vec![7; 8].into() }, btime_ns: n }
    }

    fn read(cuts: &TruncationNotes, seq: u64) -> TruncationNotes {
        TruncationNotes::after(seq, &cuts.of, &postcard::to_allocvec(cuts).unwrap())
    }

    #[test]
    fn whatever_the_log_has_the_lowest_and_the_last_size_since_are_known() {
        let sizes = [900u64, 300, 500, 400, 700, 700, 800];
        let mut cuts = TruncationNotes::none(&file(1));
        for (seq, size) in (10..).zip(sizes) {
            cuts.push(seq, size);
        }
        for logged in 9..=16u64 {
            let since = &sizes[(logged - 9) as usize..];
            let left = read(&cuts, logged);
            assert_eq!(left.lowest(), since.iter().min().copied(), "{logged}");
            assert_eq!(left.last(), since.last().copied(), "{logged}");
        }
    }

    #[test]
    fn another_files_attribute_says_nothing() {
        let mut cuts = TruncationNotes::none(&file(1));
        cuts.push(5, 100);
        let bytes = postcard::to_allocvec(&cuts).unwrap();
        assert_eq!(TruncationNotes::after(4, &file(1), &bytes).last(), Some(100));
        assert_eq!(TruncationNotes::after(4, &file(2), &bytes), TruncationNotes::none(&file(2)));
        assert_eq!(
            TruncationNotes::after(4, &file(1), &bytes[..bytes.len() - 1]),
            TruncationNotes::none(&file(1))
        );
        assert_eq!(TruncationNotes::after(4, &file(1), b""), TruncationNotes::none(&file(1)));
    }

    #[test]
    fn the_attribute_is_never_larger_than_what_is_read() {
        let kh = KernelHandle { kind: 255, bytes: vec![0xff; crate::limits::HANDLE_BYTES_MAX].into() };
        let mut cuts = TruncationNotes::none(&ObjId { kh, btime_ns: i64::MIN });
        for n in 0..crate::limits::TRUNCATION_NOTES_MAX as u64 {
            cuts.set.push((u64::MAX - n, u64::MAX - n));
        }
        assert!(postcard::to_allocvec(&cuts).unwrap().len() <= TRUNCATION_NOTES_BYTES_MAX);
    }
}
