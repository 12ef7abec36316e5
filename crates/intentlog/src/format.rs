//! The bytes on the device: superblocks and batches. Pure: bytes in, values out.
//!
//! All integers are little endian. `docs/internals/intent-log.md` draws the layout. Invariants:
//! - a superblock or batch is valid or absent, decided by CRC32C alone;
//! - a batch's CRCs are seeded with the log's identity and the run's salt, so that neither another log's
//!   batches, nor an earlier run's, nor bytes inside a record can pass for one.

use crate::aligned::AlignedBuf;
use crate::limits::{BLOCK_BYTES, BUFFER_BYTES_MIN, RING_OFFSET};

/// Version of the format that this code writes, and the newest that it reads.
///
/// A change to version 2 must keep the reader of version 1, and add a reader to [`Superblock::decode`] (and, if batches
/// differ, to [`BatchHeader::decode`], by [`Superblock::version`]) and a log in `tests/data/` that version 2 wrote. A start
/// replays a log of an older version and then writes its own version.
pub const FORMAT_VERSION: u32 = 1;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"LANDFLOG";
const BATCH_MAGIC: [u8; 8] = *b"LANDFBAT";
const SUPERBLOCK_CRC_AT: usize = BLOCK_BYTES - 4;
/// Bytes of a superblock's fields; zeroes up to the checksum follow.
const SUPERBLOCK_FIELDS: usize = 120;

/// Bytes of a batch before its first record.
pub const BATCH_HEADER_BYTES: usize = 112;

/// Bytes before each record in a batch: its length.
pub const RECORD_HEADER_BYTES: usize = 4;

const FLAG_CLEAN: u32 = 1;
const FLAG_RESTART: u32 = 1;

/// Identifies the log and the run that wrote a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Random, drawn when the log was created.
    pub log_id: [u8; 16],
    /// Random, drawn at each start.
    pub salt: u64,
}

impl Identity {
    fn crc_seed(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.log_id), &self.salt.to_le_bytes())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Version of the format that it and the batches of its run are in.
    pub version: u32,
    /// The log's identity in the run that wrote this.
    pub identity: Identity,
    /// The volume that the log belongs to.
    pub volume_id: [u8; 16],
    /// Strictly increasing; the valid superblock with the highest serial counts.
    pub serial: u64,
    /// Bytes of the ring, a multiple of [`BLOCK_BYTES`]. It starts at [`RING_OFFSET`].
    pub ring_bytes: u64,
    /// Position (see [`crate::ring`]) of the first batch to replay.
    pub tail: u64,
    /// Sequence number of that batch's first record.
    pub tail_seq: u64,
    pub checkpoint: u64,
    /// Position and sequence number after the last batch that was durable when this was written: the log must not end
    /// before them. Zero: not known.
    pub durable_end: (u64, u64),
    /// Set by a clean shutdown: position and sequence number after the last batch.
    pub clean_end: Option<(u64, u64)>,
}

/// Why a block is not a usable superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuperblockFault {
    Blank,
    /// No magic number of Landfast.
    Foreign,
    Version(u32),
    /// The magic number is there, the checksum is wrong or a field is impossible.
    Damaged,
}

impl Superblock {
    pub fn encode(&self) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
        let mut out = Writer { bytes: &mut block, at: 0 };
        out.put(&SUPERBLOCK_MAGIC);
        out.put(&self.version.to_le_bytes());
        out.put(&(if self.clean_end.is_some() { FLAG_CLEAN } else { 0 }).to_le_bytes());
        out.put(&self.identity.log_id);
        out.put(&self.volume_id);
        let (end, end_seq) = self.clean_end.unwrap_or(self.durable_end);
        for value in [
            self.identity.salt,
            self.serial,
            RING_OFFSET,
            self.ring_bytes,
            self.tail,
            self.tail_seq,
            self.checkpoint,
            end,
            end_seq,
        ] {
            out.put(&value.to_le_bytes());
        }
        let crc = crc32c::crc32c(&block[..SUPERBLOCK_CRC_AT]);
        block[SUPERBLOCK_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Whether a power cut during the write of a new log's first superblock may have left this block: zeroes, or all or the
    /// beginning of either or both of the two sectors that are not zero (fields and checksum).
    pub(crate) fn may_be_torn_creation(block: &[u8]) -> bool {
        let (Some(fields), Some(between)) =
            (block.get(..SUPERBLOCK_FIELDS), block.get(SUPERBLOCK_FIELDS..SUPERBLOCK_CRC_AT))
        else {
            return false;
        };
        // The magic number, the version and no flag.
        let mut begin = [0; 16];
        begin[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        begin[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let written = fields.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        between.iter().all(|b| *b == 0)
            && fields.iter().zip(begin).take(written).all(|(found, begin)| *found == begin)
    }

    /// `block` must be [`BLOCK_BYTES`] long. Magic number, version and checksum have the same place in every version, so that
    /// a program can name a version that it does not know.
    pub fn decode(block: &[u8]) -> Result<Superblock, SuperblockFault> {
        if block.len() != BLOCK_BYTES {
            return Err(SuperblockFault::Damaged);
        }
        if block.iter().all(|b| *b == 0) {
            return Err(SuperblockFault::Blank);
        }
        let mut fields = Reader { bytes: block, at: 0 };
        if fields.take::<8>() != SUPERBLOCK_MAGIC {
            return Err(SuperblockFault::Foreign);
        }
        let crc = crc32c::crc32c(&block[..SUPERBLOCK_CRC_AT]);
        if block[SUPERBLOCK_CRC_AT..] != crc.to_le_bytes() {
            return Err(SuperblockFault::Damaged);
        }
        match fields.u32() {
            1 => Superblock::version_1(fields),
            version => Err(SuperblockFault::Version(version)),
        }
    }

    /// The fields behind the version number, in version 1.
    fn version_1(mut fields: Reader<'_>) -> Result<Superblock, SuperblockFault> {
        let flags = fields.u32();
        let log_id = fields.take();
        let volume_id = fields.take();
        let salt = fields.u64();
        let serial = fields.u64();
        let ring_offset = fields.u64();
        let ring_bytes = fields.u64();
        let tail = fields.u64();
        let tail_seq = fields.u64();
        let checkpoint = fields.u64();
        let end = (fields.u64(), fields.u64());
        let block = BLOCK_BYTES as u64;
        let possible = ring_offset == RING_OFFSET
            && ring_bytes >= block
            && ring_bytes.is_multiple_of(block)
            && tail.is_multiple_of(block)
            && flags & !FLAG_CLEAN == 0;
        if !possible {
            return Err(SuperblockFault::Damaged);
        }
        Ok(Superblock {
            version: 1,
            identity: Identity { log_id, salt },
            volume_id,
            serial,
            ring_bytes,
            tail,
            tail_seq,
            checkpoint,
            durable_end: end,
            clean_end: (flags & FLAG_CLEAN != 0).then_some(end),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the batch in the ring, in bytes.
    pub offset: u64,
    /// How often the ring had been filled when the batch was written.
    pub generation: u64,
    /// Sequence number of its first record.
    pub first_seq: u64,
    pub last_seq: u64,
    /// Bytes of the records with their lengths, without header and padding.
    pub payload_bytes: u32,
    /// Number of the last completed checkpoint when the batch was written.
    pub checkpoint: u64,
    /// Everything before this batch is durable on the volume: replay starts here.
    pub restart: bool,
    payload_crc: u32,
}

impl BatchHeader {
    /// Whether a block begins as a batch of any log does, whole or not.
    pub fn resembles(block: &[u8]) -> bool {
        block.starts_with(&BATCH_MAGIC)
    }

    /// The header at the start of `bytes`, of any log and run; `None` if it is not valid.
    pub fn of_any(bytes: &[u8]) -> Option<(BatchHeader, Identity)> {
        let mut fields = Reader { bytes: bytes.get(..BATCH_HEADER_BYTES)?, at: 16 };
        let identity = Identity { log_id: fields.take(), salt: fields.u64() };
        BatchHeader::decode(bytes, &identity).map(|header| (header, identity))
    }

    /// The header at the start of `bytes`; `None` if it is not a valid one of this `identity`.
    pub fn decode(bytes: &[u8], identity: &Identity) -> Option<BatchHeader> {
        let bytes = bytes.get(..BATCH_HEADER_BYTES)?;
        let mut fields = Reader { bytes, at: 0 };
        if fields.take::<8>() != BATCH_MAGIC {
            return None;
        }
        let header_crc = fields.u32();
        if crc32c::crc32c_append(identity.crc_seed(), &bytes[12..]) != header_crc {
            return None;
        }
        let payload_crc = fields.u32();
        let log_id: [u8; 16] = fields.take();
        let salt = fields.u64();
        let offset = fields.u64();
        let generation = fields.u64();
        let first_seq = fields.u64();
        let last_seq = fields.u64();
        let payload_bytes = fields.u32();
        let flags = fields.u32();
        let checkpoint = fields.u64();
        let possible = log_id == identity.log_id
            && salt == identity.salt
            && first_seq <= last_seq
            && payload_bytes > 0
            && flags & !FLAG_RESTART == 0;
        possible.then_some(BatchHeader {
            offset,
            generation,
            first_seq,
            last_seq,
            payload_bytes,
            checkpoint,
            restart: flags & FLAG_RESTART != 0,
            payload_crc,
        })
    }

    /// Bytes that the batch takes in the ring: header, records, padding.
    pub fn padded_bytes(&self) -> u64 {
        padded_bytes(self.payload_bytes as usize)
    }

    /// The records of `batch` (header and payload, padding allowed); `None` if the checksum or the lengths are wrong.
    pub fn records(&self, batch: &[u8], identity: &Identity) -> Option<Vec<Vec<u8>>> {
        let mut payload =
            batch.get(BATCH_HEADER_BYTES..BATCH_HEADER_BYTES.checked_add(self.payload_bytes as usize)?)?;
        if crc32c::crc32c_append(identity.crc_seed(), payload) != self.payload_crc {
            return None;
        }
        let mut records = Vec::new();
        while let Some((length, rest)) = payload.split_first_chunk::<RECORD_HEADER_BYTES>() {
            let length = u32::from_le_bytes(*length) as usize;
            records.push(rest.get(..length)?.to_vec());
            payload = &rest[length..];
        }
        let count = (self.last_seq - self.first_seq).checked_add(1)?;
        (payload.is_empty() && records.len() as u64 == count).then_some(records)
    }
}

/// Bytes in the ring of a batch with `payload_bytes` of records.
pub fn padded_bytes(payload_bytes: usize) -> u64 {
    (BATCH_HEADER_BYTES as u64 + payload_bytes as u64).next_multiple_of(BLOCK_BYTES as u64)
}

/// The fields of a batch's header that are known when it is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlace {
    pub offset: u64,
    pub generation: u64,
    pub first_seq: u64,
    pub checkpoint: u64,
    pub restart: bool,
}

/// A batch that is being collected: room for the header, then the records as they will be on the device.
#[derive(Debug)]
pub struct BatchBuf {
    bytes: AlignedBuf,
    records: u64,
}

impl Default for BatchBuf {
    fn default() -> Self {
        BatchBuf::with_capacity(BUFFER_BYTES_MIN)
    }
}

impl BatchBuf {
    pub fn with_capacity(bytes: usize) -> Self {
        BatchBuf::reusing(AlignedBuf::with_capacity(bytes))
    }

    /// Bytes of a batch that fit without growing.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn reusing(mut bytes: AlignedBuf) -> Self {
        bytes.clear();
        bytes.resize(BATCH_HEADER_BYTES);
        BatchBuf { bytes, records: 0 }
    }

    pub fn into_memory(self) -> AlignedBuf {
        self.bytes
    }

    /// Adds one record, given in parts. `false`, and nothing added, if its length does not fit the format.
    pub fn push(&mut self, parts: &[&[u8]]) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let payload = self.payload_bytes() + RECORD_HEADER_BYTES + length;
        let (Ok(length), Ok(_)) = (u32::try_from(length), u32::try_from(payload)) else { return false };
        self.bytes.extend(&length.to_le_bytes());
        for part in parts {
            self.bytes.extend(part);
        }
        self.records += 1;
        true
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of records so far, with their lengths.
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len() - BATCH_HEADER_BYTES
    }

    /// Bytes in the ring if sealed now; 0 if there are no records.
    pub fn padded_bytes(&self) -> u64 {
        if self.records == 0 { 0 } else { padded_bytes(self.payload_bytes()) }
    }

    /// Writes header and padding; the bytes to write. There must be at least one record.
    pub fn seal(&mut self, place: &BatchPlace, identity: &Identity) -> &[u8] {
        debug_assert!(self.records > 0, "an empty batch has no sequence numbers");
        let seed = identity.crc_seed();
        let payload_bytes = self.payload_bytes();
        let payload_crc = crc32c::crc32c_append(seed, &self.bytes[BATCH_HEADER_BYTES..]);
        self.bytes.resize(padded_bytes(payload_bytes) as usize);
        let mut out = Writer { bytes: &mut self.bytes, at: 0 };
        out.put(&BATCH_MAGIC);
        out.put(&[0; 4]);
        out.put(&payload_crc.to_le_bytes());
        out.put(&identity.log_id);
        for value in [
            identity.salt,
            place.offset,
            place.generation,
            place.first_seq,
            place.first_seq + self.records - 1,
        ] {
            out.put(&value.to_le_bytes());
        }
        // `push` keeps the payload within u32.
        out.put(&(payload_bytes as u32).to_le_bytes());
        out.put(&(if place.restart { FLAG_RESTART } else { 0 }).to_le_bytes());
        out.put(&place.checkpoint.to_le_bytes());
        out.put(&[0; 16]);
        let header_crc = crc32c::crc32c_append(seed, &self.bytes[12..BATCH_HEADER_BYTES]);
        self.bytes[8..12].copy_from_slice(&header_crc.to_le_bytes());
        &self.bytes
    }
}

struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }
}

/// Reads fixed fields from a slice whose length the caller has checked.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        field
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}
