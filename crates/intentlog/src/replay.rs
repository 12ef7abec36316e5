//! Reads a log: which superblock counts, and which records follow it. Pure apart from the reads.
//!
//! The log ends at the first position without the expected batch: one batch is in flight at a time, and nothing is
//! acknowledged before its batch is durable. A valid header of this run with a *higher* sequence number elsewhere in
//! the ring means that an acknowledged batch has been lost. That is damage, not a torn end: it is an error.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::aligned::AlignedBuf;
use crate::format::{BatchHeader, FORMAT_VERSION, Superblock, SuperblockFault, padded_bytes};
use crate::limits::{
    BLOCK_BYTES, HOLE_SEARCH_BYTES_EACH, HOLE_SEARCH_THREADS_MAX, RING_OFFSET, STREAM_BYTES,
};
use crate::ring::Ring;

/// Reads bytes of a device. Offsets and lengths are multiples of the block size, buffers are aligned.
pub trait ReadAt: Sync {
    /// Fills `buf` from `offset`. An error if that is not possible in full.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// Why a device cannot be used as it is.
#[derive(Debug)]
pub enum ScanError {
    Io(io::Error),
    /// It holds something other than a log.
    Foreign,
    Version(u32),
    /// Damaged; says what and where.
    Corrupt(String),
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> Self {
        ScanError::Io(error)
    }
}

/// The pair of superblocks, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Superblocks {
    /// Both blocks are zero: never used.
    Blank,
    /// The one that counts, and its slot (0 or 1).
    Found(Superblock, usize),
}

/// Reads the pair at the start of the device.
pub fn read_superblocks(device: &dyn ReadAt) -> Result<Superblocks, ScanError> {
    let mut pair = AlignedBuf::zeroed(2 * BLOCK_BYTES);
    device.read_at(0, &mut pair)?;
    let slots = [Superblock::decode(&pair[..BLOCK_BYTES]), Superblock::decode(&pair[BLOCK_BYTES..])];
    // A newer program has begun to use the log, so the other superblock is out of date even if it can be read.
    if let Some(SuperblockFault::Version(version)) = slots
        .iter()
        .filter_map(|slot| slot.err())
        .find(|fault| matches!(fault, SuperblockFault::Version(version) if *version > FORMAT_VERSION))
    {
        return Err(ScanError::Version(version));
    }
    let newest =
        (0..2).filter_map(|slot| slots[slot].ok().map(|sb| (sb, slot))).max_by_key(|(sb, _)| sb.serial);
    if let Some((superblock, slot)) = newest {
        return Ok(Superblocks::Found(superblock, slot));
    }
    use SuperblockFault::*;
    let faults = slots.map(|slot| slot.err().unwrap_or(Damaged));
    if faults == [Blank, Blank] {
        return Ok(Superblocks::Blank);
    }
    if faults.contains(&Damaged) {
        // A crash can damage at most the one that is being written, except while a log is being created.
        return Err(ScanError::Corrupt(format!(
            "neither superblock (offsets 0 and {BLOCK_BYTES}) is valid for format version {FORMAT_VERSION}"
        )));
    }
    Err(ScanError::Foreign)
}

/// The offset of a superblock that is torn or damaged while the other one is valid.
pub fn damaged_superblock(device: &dyn ReadAt) -> io::Result<Option<u64>> {
    let mut pair = AlignedBuf::zeroed(2 * BLOCK_BYTES);
    device.read_at(0, &mut pair)?;
    Ok(match pair.split_at(BLOCK_BYTES) {
        (a, b) if Superblock::decode(a).is_err() && Superblock::decode(b).is_ok() => Some(0),
        (a, b) if Superblock::decode(a).is_ok() && Superblock::decode(b).is_err() => Some(BLOCK_BYTES as u64),
        _ => None,
    })
}

/// The records after a superblock, and where the log ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Records to replay, oldest first.
    pub records: Vec<Vec<u8>>,
    pub batches: u64,
    /// For each batch in `records`: the number of records up to its end.
    pub ends: Vec<usize>,
    /// Position of the first batch to replay, and sequence number of its first record.
    pub tail: u64,
    pub tail_seq: u64,
    /// Position after the last batch.
    pub end: u64,
    /// Sequence number after the last record.
    pub end_seq: u64,
    /// Number of the last completed checkpoint.
    pub checkpoint: u64,
}

/// Reads every valid batch from the tail that `superblock` names.
pub fn scan(device: &dyn ReadAt, superblock: &Superblock) -> Result<Scan, ScanError> {
    let (mut replayed, mut ends) = (Vec::new(), Vec::new());
    let scan = walk(device, superblock, |header, records| {
        if header.restart {
            replayed.clear();
            ends.clear();
        }
        replayed.extend(records);
        ends.push(replayed.len());
    })?;
    Ok(Scan { records: replayed, ends, ..scan })
}

/// As [`scan`], but passes each batch to `each`, oldest first, and keeps no records.
pub fn walk(
    device: &dyn ReadAt,
    superblock: &Superblock,
    mut each: impl FnMut(&BatchHeader, Vec<Vec<u8>>),
) -> Result<Scan, ScanError> {
    let ring = Ring { bytes: superblock.ring_bytes };
    let mut scan = Scan {
        tail: superblock.tail,
        tail_seq: superblock.tail_seq,
        end: superblock.tail,
        end_seq: superblock.tail_seq,
        checkpoint: superblock.checkpoint,
        ..Scan::default()
    };
    let mut window = Window { device, ring, start: 0, bytes: AlignedBuf::default() };
    let mut left = ring.bytes;
    while let Some((header, records)) = window.batch_at(scan.end, scan.end_seq, left, superblock)? {
        if header.restart {
            (scan.tail, scan.tail_seq) = (scan.end, scan.end_seq);
            scan.checkpoint = header.checkpoint;
        }
        each(&header, records);
        scan.batches += 1;
        scan.end += header.padded_bytes();
        scan.end_seq = header.last_seq + 1;
        left -= header.padded_bytes();
    }
    if let Some((end, end_seq)) = superblock.clean_end
        && (end, end_seq) != (scan.end, scan.end_seq)
    {
        return Err(ScanError::Corrupt(format!(
            "it was shut down cleanly with its end at offset {} and sequence number {end_seq}, but the last \
             valid batch ends at offset {} with sequence number {}",
            RING_OFFSET + ring.offset(end),
            RING_OFFSET + ring.offset(scan.end),
            scan.end_seq
        )));
    }
    let (_, known_seq) = superblock.durable_end;
    if scan.end_seq < known_seq {
        return Err(ScanError::Corrupt(format!(
            "the batch at offset {} with sequence number {} is missing or damaged, but a superblock knows of records up \
             to sequence number {}",
            RING_OFFSET + ring.offset(scan.end),
            scan.end_seq,
            known_seq - 1
        )));
    }
    if superblock.clean_end.is_none() {
        refuse_hole(device, superblock, &scan)?;
    }
    Ok(scan)
}

/// Searches the whole ring for a batch of this run that is newer than the end of `scan`: an error. This is most of the time that a
/// large log takes to be opened, so several threads read a large one.
fn refuse_hole(device: &dyn ReadAt, superblock: &Superblock, scan: &Scan) -> Result<(), ScanError> {
    let bytes = superblock.ring_bytes;
    let next = AtomicU64::new(0);
    let search = || search_pieces(device, superblock, scan, &next);
    let more = (bytes / HOLE_SEARCH_BYTES_EACH).clamp(1, HOLE_SEARCH_THREADS_MAX) - 1;
    let found = std::thread::scope(|scope| {
        // If the system gives no thread, the others do its part.
        let threads: Vec<_> = (0..more)
            .map_while(|_| {
                std::thread::Builder::new().name("log-search".into()).spawn_scoped(scope, search).ok()
            })
            .collect();
        let mut found = search();
        for thread in threads {
            let theirs = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            found = match (found, theirs) {
                (Ok(None), other) | (other, Ok(None)) => other,
                // The one nearest to the ring's start, as one thread would find it. A device that fails says more than a hole.
                (Ok(Some(a)), Ok(Some(b))) => Ok(Some(if a.offset < b.offset { a } else { b })),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        found
    })?;
    let Some(later) = found else { return Ok(()) };
    let ring = Ring { bytes };
    Err(ScanError::Corrupt(format!(
        "the batch at offset {} with sequence number {} is missing or damaged, but a later one with sequence numbers {} \
         to {} stands at offset {}",
        RING_OFFSET + ring.offset(scan.end),
        scan.end_seq,
        later.first_seq,
        later.last_seq,
        RING_OFFSET + later.offset
    )))
}

/// Takes pieces of the ring until all are taken; the first batch in them that is newer than the end of `scan`.
fn search_pieces(
    device: &dyn ReadAt,
    superblock: &Superblock,
    scan: &Scan,
    next: &AtomicU64,
) -> io::Result<Option<BatchHeader>> {
    let bytes = superblock.ring_bytes;
    let mut chunk = AlignedBuf::zeroed(STREAM_BYTES.min(bytes as usize));
    loop {
        let start = next.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        if start >= bytes {
            return Ok(None);
        }
        let length = (bytes - start).min(chunk.len() as u64) as usize;
        device.read_at(RING_OFFSET + start, &mut chunk[..length])?;
        let later = chunk[..length].chunks(BLOCK_BYTES).enumerate().find_map(|(index, block)| {
            let header = BatchHeader::decode(block, &superblock.identity)?;
            let offset = start + (index * BLOCK_BYTES) as u64;
            (header.offset == offset && header.first_seq > scan.end_seq).then_some(header)
        });
        if later.is_some() {
            return Ok(later);
        }
    }
}

type Found = (BatchHeader, Vec<Vec<u8>>);

/// Reads the ring in large pieces. Most batches are one block, and one read for each would be slow.
struct Window<'a> {
    device: &'a dyn ReadAt,
    ring: Ring,
    start: u64,
    bytes: AlignedBuf,
}

impl Window<'_> {
    /// The batch at `position`, if it is valid, begins with sequence number `seq` and has at most `left` bytes.
    fn batch_at(
        &mut self,
        position: u64,
        seq: u64,
        left: u64,
        superblock: &Superblock,
    ) -> Result<Option<Found>, ScanError> {
        if left < BLOCK_BYTES as u64 {
            return Ok(None);
        }
        let block = self.view(position, BLOCK_BYTES as u64, left)?;
        let Some(header) = BatchHeader::decode(block, &superblock.identity) else { return Ok(None) };
        let here = header.offset == self.ring.offset(position)
            && header.generation == self.ring.generation(position)
            && header.first_seq == seq;
        let length = padded_bytes(header.payload_bytes as usize);
        if !here || length > left {
            return Ok(None);
        }
        let batch = self.view(position, length, left)?;
        Ok(header.records(batch, &superblock.identity).map(|records| (header, records)))
    }

    /// The `length` bytes at `position`, read ahead up to `left`.
    fn view(&mut self, position: u64, length: u64, left: u64) -> io::Result<&[u8]> {
        let have = self.start..self.start + self.bytes.len() as u64;
        if !(have.contains(&position) && position + length <= have.end) {
            let want = length.max(STREAM_BYTES as u64).min(left);
            self.bytes.resize(want as usize);
            let [(first, first_len), (second, second_len)] = self.ring.extents(position, want);
            let (head, rest) = self.bytes.split_at_mut(first_len as usize);
            let read = self
                .device
                .read_at(first, head)
                .and_then(|()| if second_len > 0 { self.device.read_at(second, rest) } else { Ok(()) });
            if let Err(error) = read {
                self.bytes.clear();
                return Err(error);
            }
            self.start = position;
        }
        let from = (position - self.start) as usize;
        Ok(&self.bytes[from..from + length as usize])
    }
}
