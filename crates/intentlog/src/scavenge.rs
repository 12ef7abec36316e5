//! Finds every valid batch of a log, however damaged the rest is. Of superblocks only the size of the ring is used, if one is
//! valid.
//!
//! A batch's header names its log and run, and the checksums are seeded with both, so each batch can be checked alone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::format::{BatchHeader, Identity};
use crate::inspect::{Batch, open_to_read};
use crate::limits::{BLOCK_BYTES, RING_OFFSET, STREAM_BYTES};
use crate::replay::{self, ReadAt, Superblocks};
use crate::ring::Ring;

#[derive(Debug)]
pub struct Remains {
    file: File,
    path: PathBuf,
    bytes: u64,
    ring: Ring,
    /// Valid headers in the order in which they were written, with their logs and runs.
    batches: Vec<(BatchHeader, Identity)>,
    /// Blocks that begin as a batch does but are not valid.
    pub damaged: u64,
    /// Batches of other logs that this device had before.
    pub foreign: u64,
    pub has_superblock: bool,
}

struct ZeroPadded<'a>(&'a File, u64);

impl ReadAt for ZeroPadded<'_> {
    /// Beyond the end of a file that was cut off it reads zeroes.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        let there = self.1.saturating_sub(offset).min(buf.len() as u64) as usize;
        match buf.get_mut(..there) {
            Some(buf) => self.0.read_exact_at(buf, offset),
            None => Ok(()),
        }
    }
}

impl Remains {
    /// Searches a file or device for batches. Takes no lock, so a server may start meanwhile.
    /// Errors: It cannot be opened. Blocks that cannot be read count as damaged.
    pub fn open(path: &Path) -> Result<Remains, OpenError> {
        let (file, bytes) = open_to_read(path)?;
        let block = BLOCK_BYTES as u64;
        let superblock = match replay::read_superblocks(&ZeroPadded(&file, bytes)) {
            Ok(Superblocks::Found(superblock, _)) => Some(superblock),
            _ => None,
        };
        let ring_bytes = match superblock {
            Some(superblock) => superblock.ring_bytes,
            None => (bytes.saturating_sub(RING_OFFSET) / block * block).max(block),
        };
        let mut remains = Remains {
            file,
            path: path.into(),
            bytes,
            ring: Ring { bytes: ring_bytes },
            batches: Vec::new(),
            damaged: 0,
            foreign: 0,
            has_superblock: superblock.is_some(),
        };
        remains.index();
        remains.sort(superblock.map(|superblock| superblock.identity.log_id));
        Ok(remains)
    }

    fn index(&mut self) {
        let bytes = self.bytes;
        let device = ZeroPadded(&self.file, bytes);
        let end = (RING_OFFSET + self.ring.bytes).min(bytes);
        let mut chunk = vec![0; STREAM_BYTES];
        let mut start = RING_OFFSET;
        while start < end {
            let length = (end - start).min(STREAM_BYTES as u64);
            let Some(part) = chunk.get_mut(..length as usize) else { break };
            let mut piece = length;
            if device.read_at(start, part).is_err() {
                // Block by block, so that a bad block costs only itself.
                piece = (BLOCK_BYTES as u64).min(length);
                let one = part.get_mut(..piece as usize).unwrap_or_default();
                if device.read_at(start, one).is_err() {
                    one.fill(0);
                    self.damaged += 1;
                }
            }
            let part = chunk.get(..piece as usize).unwrap_or_default();
            for (n, block) in part.chunks(BLOCK_BYTES).enumerate() {
                if !BatchHeader::resembles(block) {
                    continue;
                }
                let offset = start - RING_OFFSET + (n * BLOCK_BYTES) as u64;
                // A record may contain the image of a log: a batch at the wrong offset does not count.
                match BatchHeader::of_any(block) {
                    Some((header, identity)) if header.offset == offset => {
                        self.batches.push((header, identity));
                    }
                    _ => self.damaged += 1,
                }
            }
            start += piece;
        }
    }

    /// Keeps the batches of one log, in the order in which they were written: a later run replaces what it wrote over.
    fn sort(&mut self, log_id: Option<[u8; 16]>) {
        let last = |id: &[u8; 16]| {
            let of = self.batches.iter().filter(|(_, identity)| identity.log_id == *id);
            of.map(|(header, _)| header.last_seq).max()
        };
        let log_id = log_id
            .filter(|id| last(id).is_some())
            .or_else(|| self.batches.iter().map(|(_, identity)| identity.log_id).max_by_key(|id| last(id)));
        let all = self.batches.len();
        self.batches.retain(|(_, identity)| Some(identity.log_id) == log_id);
        self.foreign = (all - self.batches.len()) as u64;
        self.batches.sort_by_key(|(header, _)| (header.generation, header.offset));
        // The next run may have begun to write over the last, unacknowledged batches of a run.
        let mut kept: Vec<(BatchHeader, Identity)> = Vec::with_capacity(self.batches.len());
        for (header, identity) in std::mem::take(&mut self.batches) {
            while kept.last().is_some_and(|(before, _)| before.last_seq >= header.first_seq) {
                kept.pop();
            }
            kept.push((header, identity));
        }
        self.batches = kept;
    }

    /// Calls `each` for every valid batch, in order, with whether its predecessor is there too.
    pub fn each(&mut self, mut each: impl FnMut(&Batch, bool, Vec<Vec<u8>>)) {
        let device = ZeroPadded(&self.file, self.bytes);
        let mut next = None;
        for (header, identity) in &self.batches {
            let length = header.padded_bytes();
            let mut batch = vec![0; usize::try_from(length.min(self.ring.bytes)).unwrap_or(0)];
            let [(first, first_len), (second, _)] =
                self.ring.extents(header.offset, length.min(self.ring.bytes));
            let (head, rest) = batch.split_at_mut(first_len as usize);
            let read = device.read_at(first, head).and_then(|()| match rest.is_empty() {
                true => Ok(()),
                false => device.read_at(second, rest),
            });
            let records = read.ok().and_then(|()| header.records(&batch, identity));
            let Some(records) = records else {
                self.damaged += 1;
                continue;
            };
            let follows = next.is_none_or(|next| next == header.first_seq);
            each(&Batch::of(header, self.ring), follows, records);
            next = Some(header.last_seq + 1);
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BatchBuf, BatchPlace};

    const BLOCK: u64 = BLOCK_BYTES as u64;

    /// Block in the ring, generation, first number, run, records.
    type Made<'a> = (u64, u64, u64, u64, &'a [&'a [u8]]);

    /// A device without superblocks and these batches.
    fn device(blocks: u64, batches: &[Made<'_>]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(RING_OFFSET + blocks * BLOCK).unwrap();
        for (block, generation, first_seq, salt, records) in batches {
            let identity = Identity { log_id: [7; 16], salt: *salt };
            let mut batch = BatchBuf::default();
            records.iter().for_each(|r| assert!(batch.push(&[r])));
            let place = BatchPlace {
                offset: block * BLOCK,
                generation: *generation,
                first_seq: *first_seq,
                checkpoint: 1,
                restart: false,
            };
            let bytes = batch.seal(&place, &identity);
            let ring = Ring { bytes: blocks * BLOCK };
            let [(first, len), (second, _)] = ring.extents(block * BLOCK, bytes.len() as u64);
            let (head, rest) = bytes.split_at(len as usize);
            file.as_file().write_all_at(head, first).unwrap();
            file.as_file().write_all_at(rest, second).unwrap();
        }
        file
    }

    fn all(file: &tempfile::NamedTempFile) -> (Vec<(u64, bool, usize)>, u64) {
        let mut remains = Remains::open(file.path()).unwrap();
        let mut found = Vec::new();
        remains.each(|batch, joined, records| found.push((batch.first_seq, joined, records.len())));
        (found, remains.damaged)
    }

    #[test]
    fn what_is_whole_is_found_in_order_around_what_is_not() {
        let long = vec![5; 5000];
        let batches: &[Made<'_>] = &[
            (2, 0, 10, 1, &[b"a", b"b"]),
            (3, 0, 12, 1, &[b"c"]),
            (4, 0, 13, 1, &[b"d"]),
            // The next run goes on after the last that it took for whole, over the end of the ring.
            (5, 0, 13, 2, &[&long]),
            (1, 1, 14, 2, &[b"f"]),
        ];
        let file = device(6, batches);
        assert_eq!(all(&file), (vec![(10, true, 2), (12, true, 1), (13, true, 1), (14, true, 1)], 0));
        // In the middle of the first one's contents, and in the second one's header.
        file.as_file().write_all_at(b"x", RING_OFFSET + 2 * BLOCK + 114).unwrap();
        file.as_file().write_all_at(b"x", RING_OFFSET + 3 * BLOCK + 40).unwrap();
        assert_eq!(all(&file), (vec![(13, true, 1), (14, true, 1)], 2));
        file.as_file().write_all_at(&[0; 8], RING_OFFSET + 5 * BLOCK).unwrap();
        assert_eq!(all(&file).0, vec![(13, true, 1), (14, true, 1)], "the one that had been written over");
        // Cut off in the middle.
        file.as_file().set_len(RING_OFFSET + 5 * BLOCK).unwrap();
        assert_eq!(all(&file).0.len(), 2);
    }

    #[test]
    fn any_bytes_are_looked_through() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(all(&file).0, vec![]);
        file.as_file().write_all_at(&[0x5a; 20_000], 0).unwrap();
        assert_eq!(all(&file).0, vec![]);
    }
}
