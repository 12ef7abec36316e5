//! Replay over damaged, torn and stale devices (pure core): never wrong records, never a panic.

use std::io;

use landfast_intentlog::aligned::AlignedBuf;
use landfast_intentlog::format::{
    BATCH_HEADER_BYTES, BatchBuf, BatchPlace, FORMAT_VERSION, Identity, Superblock, padded_bytes,
};
use landfast_intentlog::limits::{BLOCK_BYTES, DEVICE_BYTES_MIN, HOLE_SEARCH_BYTES_EACH, RING_OFFSET};
use landfast_intentlog::replay::{ReadAt, Scan, ScanError, Superblocks, read_superblocks, scan};
use landfast_intentlog::ring::Ring;
use landfast_intentlog::sim::SimDisk;
use landfast_intentlog::{Checkpoint, Config, Log};
use proptest::prelude::*;

/// A log of each version: its superblocks and the first blocks of its ring.
const LOGS: &[(u32, &[u8])] = &[(1, include_bytes!("data/log-v1.bin"))];
const RING_BYTES: u64 = 16 * BLOCK_BYTES as u64;
const IDENTITY: Identity = Identity { log_id: [3; 16], salt: 99 };

/// A device as bytes, and the writer's arithmetic without the writer.
#[derive(Clone)]
struct Image {
    bytes: Vec<u8>,
    superblock: Superblock,
    head: u64,
    seq: u64,
    /// Position, sequence number and records of each batch that is still in the ring.
    live: Vec<(u64, u64, Vec<Vec<u8>>)>,
}

impl ReadAt for Image {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let offset = offset as usize;
        buf.copy_from_slice(self.bytes.get(offset..offset + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Image {
    fn new() -> Self {
        let superblock = Superblock {
            version: FORMAT_VERSION,
            identity: IDENTITY,
            volume_id: [1; 16],
            serial: 1,
            ring_bytes: RING_BYTES,
            tail: 0,
            tail_seq: 1,
            checkpoint: 0,
            durable_end: (0, 0),
            clean_end: None,
        };
        let mut image = Image {
            bytes: vec![0; (RING_OFFSET + RING_BYTES) as usize],
            superblock,
            head: 0,
            seq: 1,
            live: Vec::new(),
        };
        image.write_superblock(0);
        image.write_superblock(1);
        image
    }

    fn ring(&self) -> Ring {
        Ring { bytes: RING_BYTES }
    }

    fn write_superblock(&mut self, slot: usize) {
        self.superblock.serial += 1;
        let block = self.superblock.encode();
        self.bytes[slot * BLOCK_BYTES..(slot + 1) * BLOCK_BYTES].copy_from_slice(&block);
    }

    fn seal(&self, records: &[Vec<u8>], identity: &Identity, restart: bool) -> AlignedBuf {
        let mut buf = BatchBuf::default();
        for record in records {
            assert!(buf.push(&[record]));
        }
        let place = BatchPlace {
            offset: self.ring().offset(self.head),
            generation: self.ring().generation(self.head),
            first_seq: self.seq,
            checkpoint: self.superblock.checkpoint + u64::from(restart),
            restart,
        };
        buf.seal(&place, identity);
        buf.into_memory()
    }

    fn put(&mut self, position: u64, bytes: &[u8]) {
        let [(first, first_len), (second, second_len)] = self.ring().extents(position, bytes.len() as u64);
        let (head, rest) = bytes.split_at(first_len as usize);
        self.bytes[first as usize..(first + first_len) as usize].copy_from_slice(head);
        self.bytes[second as usize..(second + second_len) as usize].copy_from_slice(rest);
    }

    /// Appends a batch if it fits; frees the older half first if it does not.
    fn append(&mut self, records: Vec<Vec<u8>>) {
        let batch = self.seal(&records, &IDENTITY, false);
        while self.head + batch.len() as u64 - self.superblock.tail > RING_BYTES {
            self.checkpoint();
        }
        self.put(self.head, &batch);
        self.live.push((self.head, self.seq, records.clone()));
        self.head += batch.len() as u64;
        self.seq += records.len() as u64;
    }

    /// Moves the tail past the older half of the batches.
    fn checkpoint(&mut self) {
        self.live.drain(..self.live.len().div_ceil(2));
        let (tail, seq) = self.live.first().map_or((self.head, self.seq), |(at, seq, _)| (*at, *seq));
        self.superblock.tail = tail;
        self.superblock.tail_seq = seq;
        self.superblock.checkpoint += 1;
        self.write_superblock((self.superblock.checkpoint % 2) as usize);
    }

    fn records(&self) -> Vec<Vec<u8>> {
        self.live.iter().flat_map(|(_, _, records)| records.clone()).collect()
    }

    fn replay(&self) -> Result<Scan, ScanError> {
        match read_superblocks(self)? {
            Superblocks::Found(superblock, _) => scan(self, &superblock),
            Superblocks::Blank => panic!("the image has superblocks"),
        }
    }

    /// Device offset of byte `index` of the batch at `position`.
    fn at(&self, position: u64, index: u64) -> usize {
        (RING_OFFSET + self.ring().offset(position + index)) as usize
    }
}

/// A large log of which only one batch was ever written.
struct Sparse {
    ring_bytes: u64,
    /// Its offset in the ring.
    at: u64,
    batch: AlignedBuf,
    /// A read of this piece of the ring fails.
    unreadable: Option<u64>,
}

impl ReadAt for Sparse {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (start, end) = (offset - RING_OFFSET, offset - RING_OFFSET + buf.len() as u64);
        assert!(end <= self.ring_bytes);
        if self.unreadable.is_some_and(|at| (start..end).contains(&at)) {
            return Err(io::ErrorKind::Other.into());
        }
        buf.fill(0);
        if (start..end).contains(&self.at) {
            let from = (self.at - start) as usize;
            buf[from..from + self.batch.len()].copy_from_slice(&self.batch);
        }
        Ok(())
    }
}

/// A large ring is searched by several threads: they leave no block out, whoever comes to it.
#[test]
fn a_batch_behind_a_lost_one_is_found_anywhere_in_a_large_log() {
    let block = BLOCK_BYTES as u64;
    let ring_bytes = 4 * HOLE_SEARCH_BYTES_EACH + 3 * block;
    let superblock = Superblock { ring_bytes, ..Image::new().superblock };
    let sparse = |at: u64, first_seq: u64, unreadable| {
        let mut buf = BatchBuf::default();
        assert!(buf.push(&[b"later"]));
        buf.seal(
            &BatchPlace { offset: at, generation: 0, first_seq, checkpoint: 0, restart: false },
            &IDENTITY,
        );
        Sparse { ring_bytes, at, batch: buf.into_memory(), unreadable }
    };
    let each = HOLE_SEARCH_BYTES_EACH;
    for at in [block, each - block, each, 2 * each, 3 * each + 7 * block, ring_bytes - block] {
        let Err(ScanError::Corrupt(what)) = scan(&sparse(at, 8, None), &superblock) else {
            panic!("the batch at {at} was overlooked")
        };
        assert!(what.contains(&format!("stands at offset {}", RING_OFFSET + at)), "{what}");
        // One that is older than the end of the log is none that was lost.
        assert_eq!(scan(&sparse(at, 1, None), &superblock).unwrap().records.len(), 0);
        let read = scan(&sparse(at, 1, Some(ring_bytes - block)), &superblock);
        assert!(matches!(read, Err(ScanError::Io(_))), "{read:?}");
    }
}

fn payload_of(records: &[Vec<u8>]) -> usize {
    records.iter().map(|record| record.len() + 4).sum()
}

fn batches() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    // Lengths are drawn; contents follow from them, which is much faster than drawing each byte.
    let record = (0usize..3000, any::<u8>()).prop_map(|(length, start)| {
        (0..length).map(|index| (index as u8).wrapping_mul(31).wrapping_add(start)).collect()
    });
    prop::collection::vec(prop::collection::vec(record, 1..5), 1..60)
}

fn image_of(batches: Vec<Vec<Vec<u8>>>) -> Image {
    let mut image = Image::new();
    for batch in batches {
        image.append(batch);
    }
    image
}

proptest! {
    #[test]
    fn replays_what_the_superblock_vouches_for_however_often_the_ring_wraps(batches in batches()) {
        let image = image_of(batches);
        let scan = image.replay().unwrap();
        prop_assert_eq!(scan.records, image.records());
        prop_assert_eq!((scan.end, scan.end_seq), (image.head, image.seq));
        prop_assert_eq!(scan.batches, image.live.len() as u64);
        prop_assert_eq!(scan.checkpoint, image.superblock.checkpoint);
    }

    #[test]
    fn a_torn_last_batch_ends_replay(batches in batches(), tear in any::<prop::sample::Index>(),
                                     sectors in any::<u64>(), zero in any::<bool>()) {
        let mut image = image_of(batches);
        let Some((position, _, last)) = image.live.last().cloned() else { return Ok(()) };
        let meaningful = BATCH_HEADER_BYTES + payload_of(&last);
        let length = padded_bytes(payload_of(&last)) as usize;
        let whole = image.records();
        // Either everything from one byte on, or any choice of sectors, is not what was written.
        let from = tear.index(length);
        let mut damaged = false;
        for index in 0..length {
            if if zero { index >= from } else { sectors >> (index / 512 % 64) & 1 == 1 } {
                let at = image.at(position, index as u64);
                let torn = if zero { 0 } else { image.bytes[at] ^ 0x5a };
                damaged |= index < meaningful && image.bytes[at] != torn;
                image.bytes[at] = torn;
            }
        }
        let expected = if damaged { whole[..whole.len() - last.len()].to_vec() } else { whole };
        prop_assert_eq!(image.replay().unwrap().records, expected);
    }

    #[test]
    fn a_flipped_bit_in_a_batch_is_found(batches in batches(), which in any::<prop::sample::Index>(),
                                         byte in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut image = image_of(batches);
        if image.live.is_empty() { return Ok(()); }
        let index = which.index(image.live.len());
        let (position, _, records) = image.live[index].clone();
        let byte = byte.index(padded_bytes(payload_of(&records)) as usize);
        let at = image.at(position, byte as u64);
        image.bytes[at] ^= 1 << bit;
        let last = index + 1 == image.live.len();
        match image.replay() {
            // Padding means nothing.
            Ok(scan) if byte >= BATCH_HEADER_BYTES + payload_of(&records) => {
                prop_assert_eq!(scan.records, image.records());
            }
            // The last one cannot be told from a torn one.
            Ok(scan) => {
                prop_assert!(last, "a damaged batch in the middle was not noticed");
                let whole = image.records();
                prop_assert_eq!(&scan.records[..], &whole[..whole.len() - records.len()]);
            }
            Err(ScanError::Corrupt(what)) => {
                prop_assert!(!last);
                let offset = RING_OFFSET + image.ring().offset(position);
                prop_assert!(what.contains(&format!("offset {offset} ")), "{}", what);
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn a_flipped_bit_in_a_superblock_never_gives_wrong_records(batches in batches(), byte in 0..2 * BLOCK_BYTES,
                                                               bit in 0u8..8) {
        let mut image = image_of(batches);
        image.bytes[byte] ^= 1 << bit;
        match image.replay() {
            // The other superblock is at most one checkpoint older: what it adds stands before the rest.
            Ok(scan) => {
                let expected = image.records();
                prop_assert!(scan.records.ends_with(&expected));
                prop_assert!(scan.checkpoint + 1 >= image.superblock.checkpoint);
                prop_assert_eq!(scan.end, image.head);
            }
            Err(ScanError::Corrupt(_)) => {}
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn batches_of_another_run_or_log_do_not_exist(batches in batches(), salt in 1000u64.., id in any::<[u8; 16]>()) {
        let mut image = image_of(batches);
        let expected = image.records();
        let free = image.superblock.tail + RING_BYTES - image.head;
        for identity in [Identity { salt, ..IDENTITY }, Identity { log_id: id, ..IDENTITY }] {
            let foreign = image.seal(&[b"foreign".to_vec()], &identity, false);
            if foreign.len() as u64 <= free {
                image.put(image.head, &foreign);
                prop_assert_eq!(image.replay().unwrap().records, expected.clone());
            }
        }
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..4 * BLOCK_BYTES), at in 0usize..20 * BLOCK_BYTES) {
        let mut image = image_of(vec![vec![vec![1; 100]]; 5]);
        let end = (at + noise.len()).min(image.bytes.len());
        let length = end.saturating_sub(at);
        image.bytes[at.min(end)..end].copy_from_slice(&noise[..length]);
        let _ = image.replay();
    }
}

#[test]
fn a_tail_torn_at_every_byte_ends_replay() {
    let mut image = image_of(vec![vec![vec![1; 10]], vec![vec![2; 5000], vec![3; 70]]]);
    let (position, _, last) = image.live[1].clone();
    let meaningful = BATCH_HEADER_BYTES + payload_of(&last);
    for from in (0..meaningful).rev() {
        let at = image.at(position, from as u64);
        let was = std::mem::replace(&mut image.bytes[at], 0);
        if was != 0 {
            assert_eq!(image.replay().unwrap().records, vec![vec![1; 10]], "torn from byte {from}");
        }
    }
}

#[test]
fn a_lost_batch_with_a_later_one_behind_it_is_damage() {
    for lost in 0..4 {
        let mut image = image_of((0..5).map(|i| vec![vec![i; 100]]).collect());
        let at = image.at(image.live[lost].0, 0);
        image.bytes[at..at + BLOCK_BYTES].fill(0);
        match image.replay() {
            Err(ScanError::Corrupt(what)) => {
                assert!(what.contains(&format!("offset {at} with sequence number {}", lost + 1)), "{what}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_restart_batch_discards_what_stands_before_it() {
    let mut image = image_of(vec![vec![vec![1; 10]], vec![vec![2; 10]]]);
    let batch = image.seal(&[b"snapshot".to_vec()], &IDENTITY, true);
    image.put(image.head, &batch);
    image.head += batch.len() as u64;
    image.seq += 1;
    image.append(vec![b"after".to_vec()]);
    let scan = image.replay().unwrap();
    assert_eq!(scan.records, vec![b"snapshot".to_vec(), b"after".to_vec()]);
    assert_eq!(scan.checkpoint, image.superblock.checkpoint + 1);
}

#[test]
fn a_clean_end_that_is_not_reached_is_damage() {
    let mut image = image_of(vec![vec![vec![1; 10]], vec![vec![2; 10]]]);
    image.superblock.clean_end = Some((image.head, image.seq));
    image.write_superblock(0);
    assert_eq!(image.replay().unwrap().records.len(), 2);
    let at = image.at(image.live[1].0, 0);
    image.bytes[at] ^= 1;
    assert!(matches!(image.replay(), Err(ScanError::Corrupt(_))));
}

#[test]
fn superblocks_tell_blank_foreign_damaged_and_other_versions_apart() {
    let mut image = Image::new();
    let pair = |image: &Image| read_superblocks(image);
    image.bytes[..2 * BLOCK_BYTES].fill(0);
    assert!(matches!(pair(&image), Ok(Superblocks::Blank)));
    image.bytes[1080] = 0x53;
    assert!(matches!(pair(&image), Err(ScanError::Foreign)));

    let mut image = Image::new();
    image.bytes[100] ^= 1;
    image.bytes[BLOCK_BYTES + 100] ^= 1;
    assert!(matches!(pair(&image), Err(ScanError::Corrupt(_))));

    // One of the two is enough: a newer program was cut short in its first start.
    for slots in [0..2, 0..1, 1..2] {
        let mut image = Image::new();
        slots.for_each(|slot| make_newer(&mut image.bytes[slot * BLOCK_BYTES..][..BLOCK_BYTES]));
        assert!(matches!(pair(&image), Err(ScanError::Version(version)) if version == FORMAT_VERSION + 1));
    }
}

fn make_newer(block: &mut [u8]) {
    block[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let crc = crc32c::crc32c(&block[..BLOCK_BYTES - 4]);
    block[BLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// The format as version 1 wrote it: if this fails, logs in the field can no longer be read, and the version
/// has to change.
#[test]
fn version_1_is_read_byte_for_byte() {
    let golden = include_bytes!("data/log-v1.bin");
    let image = image_of(vec![vec![b"one".to_vec(), b"two".to_vec()], vec![b"three".to_vec()]]);
    // Superblocks and the first four blocks of the ring.
    let written: Vec<u8> = [
        &image.bytes[..2 * BLOCK_BYTES],
        &image.bytes[RING_OFFSET as usize..RING_OFFSET as usize + 2 * BLOCK_BYTES],
    ]
    .concat();
    if std::env::var_os("LANDFAST_WRITE_GOLDEN").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/log-v1.bin"), &written).unwrap();
    }
    assert!(written == golden, "the writer's bytes have changed");
    let mut old = Image::new();
    old.bytes[..2 * BLOCK_BYTES].copy_from_slice(&golden[..2 * BLOCK_BYTES]);
    old.bytes[RING_OFFSET as usize..RING_OFFSET as usize + 2 * BLOCK_BYTES]
        .copy_from_slice(&golden[2 * BLOCK_BYTES..]);
    let scan = old.replay().unwrap();
    assert_eq!(scan.records, vec![b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
}

/// A log of an older version is opened, replayed and from then on written in the present one.
#[test]
fn a_log_of_each_version_is_taken_over() {
    for (version, golden) in LOGS.iter().copied() {
        let disk = SimDisk::new(DEVICE_BYTES_MIN as usize, 1);
        disk.edit(|bytes| {
            bytes[..2 * BLOCK_BYTES].copy_from_slice(&golden[..2 * BLOCK_BYTES]);
            bytes[RING_OFFSET as usize..][..2 * BLOCK_BYTES].copy_from_slice(&golden[2 * BLOCK_BYTES..]);
        });
        let Ok(Superblocks::Found(old, _)) = read_superblocks(&disk) else { panic!("version {version}") };
        assert_eq!(old.version, version);
        let config = || Config::new("simulated", 0, old.volume_id);
        let (log, replay) = Log::open_device(disk.device(), config()).unwrap();
        assert_eq!(replay.records, [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
        assert_eq!((replay.checkpoint, replay.log_id), (old.checkpoint, old.identity.log_id));
        log.start(std::sync::Arc::new(Nothing)).unwrap();
        let mut txn = log.begin().unwrap();
        txn.append(b"four");
        txn.commit().wait_blocking().unwrap();
        drop(log);
        let Ok(Superblocks::Found(new, _)) = read_superblocks(&disk) else { panic!("version {version}") };
        assert_eq!(new.version, FORMAT_VERSION);
        assert!(new.checkpoint > old.checkpoint);
        let (_, replay) = Log::open_device(disk.device(), config()).unwrap();
        assert_eq!(replay.records, [b"four".to_vec()]);
    }
}

#[test]
fn a_newer_version_is_refused_by_name_and_left_as_it_is() {
    let disk = SimDisk::new(DEVICE_BYTES_MIN as usize, 1);
    let volume_id = Image::new().superblock.volume_id;
    disk.edit(|bytes| {
        bytes[..2 * BLOCK_BYTES].copy_from_slice(&include_bytes!("data/log-v1.bin")[..2 * BLOCK_BYTES]);
        make_newer(&mut bytes[..BLOCK_BYTES]);
    });
    let before = disk.image();
    let error =
        Log::open_device(disk.device(), Config::new("simulated", 0, volume_id)).unwrap_err().to_string();
    assert!(error.contains("written by a newer Landfast, in format version 2"), "{error}");
    assert!(disk.image() == before);
}

struct Nothing;

impl Checkpoint for Nothing {
    fn snapshot(&self) -> Box<dyn landfast_intentlog::Snapshot> {
        Box::new(Vec::new())
    }

    fn sync(&self, _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// Power goes while the first superblock of a new log is written: any of its sectors is there, whole or its beginning. The next start
/// makes the log; anything else on the device is somebody's.
#[test]
fn a_log_whose_creation_was_cut_short_is_made_again() {
    const SECTOR: usize = 512;
    let open = |image: &[u8]| {
        let disk = SimDisk::new(image.len(), 1);
        disk.edit(|bytes| bytes.copy_from_slice(image));
        Log::open_device(disk.device(), Config::new("/simulated", image.len() as u64, [1; 16]))
    };
    let blank = vec![0; DEVICE_BYTES_MIN as usize];
    let made = SimDisk::new(blank.len(), 1);
    drop(Log::open_device(made.device(), Config::new("/simulated", blank.len() as u64, [1; 16])).unwrap());
    let whole = made.image();
    let mut torn = Vec::new();
    for first in (0..=121).chain([SECTOR]) {
        for last in [0, SECTOR - 4, SECTOR - 3, SECTOR - 1, SECTOR] {
            let mut image = blank.clone();
            image[..first].copy_from_slice(&whole[..first]);
            let from = BLOCK_BYTES - SECTOR;
            image[from..from + last].copy_from_slice(&whole[from..from + last]);
            let (_, replay) = open(&image).unwrap_or_else(|e| panic!("{first} and {last} bytes: {e}"));
            let is_whole = image[..BLOCK_BYTES] == whole[..BLOCK_BYTES];
            assert_eq!(replay.fresh, !is_whole, "{first} and {last} bytes");
            if !is_whole {
                torn.push(image);
            }
        }
    }
    for mut image in torn.into_iter().step_by(7) {
        for at in [200, 3000, BLOCK_BYTES, 2 * BLOCK_BYTES, RING_OFFSET as usize + 77, blank.len() - 1] {
            image[at] ^= 1;
            assert!(open(&image).is_err(), "a byte at {at}");
            image[at] ^= 1;
        }
    }
    // Of a newer version, and what begins as no superblock does.
    for (at, byte) in [(8, 2), (0, b'X'), (7, b'X'), (12, 2)] {
        let mut image = blank.clone();
        image[..SECTOR].copy_from_slice(&whole[..SECTOR]);
        image[at] = byte;
        assert!(open(&image).is_err(), "{byte} at {at}");
    }
}
