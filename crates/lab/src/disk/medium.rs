//! The memory of an emulated disk: what reads see, and what a power cut leaves.
//!
//! Two images are kept. Every write lands in the *cache* image at once; a block gets into the
//! *durable* image only through a flush. A dirty bit per 4 KiB block says that the two may differ.
//!
//! Invariants:
//! - A block that is not dirty is equal in both images.
//! - A flush makes durable at least what was written before [`Medium::mark`] and, for the same
//!   blocks, whatever was written until [`Medium::commit`]: a device may persist early, never late.
//!   A block written meanwhile stays dirty: its own flush costs what a flush costs.
//! - No I/O and no clock in here except the backing file of a durable image; no allocation
//!   after [`Medium::new`] (the caller of a disk may be the kernel trying to free memory).

use crate::limits::{BLOCK_BYTES, CHUNK_BYTES, SECTOR_BYTES};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU32, Ordering};

const BLOCKS: usize = CHUNK_BYTES / BLOCK_BYTES;
const WORDS: usize = BLOCKS / 64;

type Bits = [u64; WORDS];

/// One chunk's images and dirty bits.
struct Chunk {
    cache: Box<[u8]>,
    /// Absent when the durable image is the backing file.
    durable: Option<Box<[u8]>>,
    dirty: Bits,
    /// Blocks written since the last [`Medium::mark`]: a flush in progress does not make them clean.
    written: Bits,
}

struct Cell {
    /// Number of dirty blocks, so that a flush passes clean chunks without their lock.
    dirty: AtomicU32,
    chunk: Mutex<Chunk>,
}

pub struct Medium {
    size: u64,
    cells: Box<[Cell]>,
    image: Option<File>,
}

/// The blocks that a flush in progress will make durable.
pub struct Marked {
    chunks: Vec<(usize, Bits)>,
    blocks: u64,
}

impl Marked {
    /// How many blocks were dirty when the flush began.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
}

/// What a power cut did to the blocks that were not flushed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loss {
    /// Blocks that went back to their durable content, wholly or in part.
    pub lost_blocks: u64,
    /// Un-flushed blocks that happened to be on the medium.
    pub kept_blocks: u64,
}

fn zeroed(bytes: usize) -> Box<[u8]> {
    vec![0; bytes].into_boxed_slice()
}

impl Medium {
    /// A disk of `size` bytes of zeros, or with the contents of `image`, which then holds the
    /// durable image and is extended to `size`.
    pub fn new(size: u64, image: Option<File>) -> io::Result<Self> {
        let count = usize::try_from(size.div_ceil(CHUNK_BYTES as u64)).map_err(io::Error::other)?;
        let cell = || Cell {
            dirty: AtomicU32::new(0),
            chunk: Mutex::new(Chunk {
                cache: zeroed(CHUNK_BYTES),
                durable: image.is_none().then(|| zeroed(CHUNK_BYTES)),
                dirty: [0; WORDS],
                written: [0; WORDS],
            }),
        };
        let cells = std::iter::repeat_with(cell).take(count).collect();
        if let Some(file) = &image {
            file.set_len(size)?;
        }
        let medium = Medium { size, cells, image };
        medium.load()?;
        Ok(medium)
    }

    /// Reads the image into the cache; holes stay untouched memory.
    fn load(&self) -> io::Result<()> {
        let Some(file) = &self.image else { return Ok(()) };
        if file.metadata()?.blocks() == 0 {
            return Ok(());
        }
        let mut buf = zeroed(CHUNK_BYTES);
        for (i, cell) in self.cells.iter().enumerate() {
            let at = (i * CHUNK_BYTES) as u64;
            let len = CHUNK_BYTES.min(usize::try_from(self.size - at).unwrap_or(CHUNK_BYTES));
            file.read_exact_at(&mut buf[..len], at)?;
            if buf[..len].iter().any(|&b| b != 0) {
                cell.chunk.lock().cache[..len].copy_from_slice(&buf[..len]);
            }
        }
        Ok(())
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Touches all memory now, so that no later operation waits for a page.
    pub fn prefault(&self) {
        for cell in &self.cells {
            let mut chunk = cell.chunk.lock();
            let Chunk { cache, durable, .. } = &mut *chunk;
            for image in [Some(cache), durable.as_mut()].into_iter().flatten() {
                image.iter_mut().step_by(BLOCK_BYTES).for_each(|b| *b = std::hint::black_box(*b));
            }
        }
    }

    /// Splits `off..off + len` at chunk borders: (chunk, offset in it, bytes).
    fn pieces(off: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let (mut at, end) = (off, off + len as u64);
        std::iter::from_fn(move || {
            let inside = (at % CHUNK_BYTES as u64) as usize;
            let n = (CHUNK_BYTES - inside).min((end - at) as usize);
            let piece = ((at / CHUNK_BYTES as u64) as usize, inside, n);
            at += n as u64;
            (n > 0).then_some(piece)
        })
    }

    /// Fills `buf` with what is at `off`.
    /// Errors: `InvalidInput` past the end.
    pub fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(off, buf.len())?;
        let mut done = 0;
        for (c, inside, n) in Self::pieces(off, buf.len()) {
            buf[done..done + n].copy_from_slice(&self.cells[c].chunk.lock().cache[inside..inside + n]);
            done += n;
        }
        Ok(())
    }

    /// Puts `data` at `off` into the cache image.
    /// Errors: `InvalidInput` past the end.
    pub fn write(&self, off: u64, data: &[u8]) -> io::Result<()> {
        self.check(off, data.len())?;
        let mut done = 0;
        for (c, inside, n) in Self::pieces(off, data.len()) {
            let cell = &self.cells[c];
            let mut chunk = cell.chunk.lock();
            chunk.cache[inside..inside + n].copy_from_slice(&data[done..done + n]);
            for b in inside / BLOCK_BYTES..(inside + n).div_ceil(BLOCK_BYTES) {
                chunk.dirty[b / 64] |= 1 << (b % 64);
                chunk.written[b / 64] |= 1 << (b % 64);
            }
            cell.dirty.store(count(&chunk.dirty), Ordering::Release);
            done += n;
        }
        Ok(())
    }

    fn check(&self, off: u64, len: usize) -> io::Result<()> {
        match off.checked_add(len as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// An empty list with room for every chunk.
    pub fn marked(&self) -> Marked {
        Marked { chunks: Vec::with_capacity(self.cells.len()), blocks: 0 }
    }

    /// A flush begins: notes in `marked` which blocks it has to make durable.
    pub fn mark(&self, marked: &mut Marked) {
        marked.chunks.clear();
        marked.blocks = 0;
        for (i, cell) in self.cells.iter().enumerate() {
            if cell.dirty.load(Ordering::Acquire) > 0 {
                let mut chunk = cell.chunk.lock();
                let dirty = chunk.dirty;
                chunk.written = [0; WORDS];
                marked.blocks += u64::from(count(&dirty));
                marked.chunks.push((i, dirty));
            }
        }
    }

    /// A flush ends: the marked blocks are durable now, and clean unless they were written since.
    /// Errors: When the backing file cannot be written; the blocks that failed stay dirty.
    pub fn commit(&self, marked: &Marked) -> io::Result<()> {
        for (c, bits) in &marked.chunks {
            let cell = &self.cells[*c];
            let mut chunk = cell.chunk.lock();
            for b in each(bits) {
                self.persist(*c, &mut chunk, b * BLOCK_BYTES, BLOCK_BYTES)?;
                let clean = 1 << (b % 64) & !chunk.written[b / 64];
                chunk.dirty[b / 64] &= !clean;
                cell.dirty.store(count(&chunk.dirty), Ordering::Release);
            }
        }
        Ok(())
    }

    /// Copies a piece of one chunk from the cache image to the durable one.
    fn persist(&self, c: usize, chunk: &mut Chunk, at: usize, len: usize) -> io::Result<()> {
        let Chunk { cache, durable, .. } = chunk;
        match (durable, &self.image) {
            (Some(durable), _) => durable[at..at + len].copy_from_slice(&cache[at..at + len]),
            (None, Some(file)) => {
                let off = (c * CHUNK_BYTES + at) as u64;
                let len = len.min(usize::try_from(self.size.saturating_sub(off)).unwrap_or(len));
                file.write_all_at(&cache[at..at + len], off)?;
            }
            (None, None) => return Err(io::Error::other("disk without a durable image")),
        }
        Ok(())
    }

    /// Copies a piece of one chunk back from the durable image.
    fn revert(&self, c: usize, chunk: &mut Chunk, at: usize, len: usize) -> io::Result<()> {
        let Chunk { cache, durable, .. } = chunk;
        match (durable, &self.image) {
            (Some(durable), _) => cache[at..at + len].copy_from_slice(&durable[at..at + len]),
            (None, Some(file)) => {
                let off = (c * CHUNK_BYTES + at) as u64;
                let len = len.min(usize::try_from(self.size.saturating_sub(off)).unwrap_or(len));
                file.read_exact_at(&mut cache[at..at + len], off)?;
            }
            (None, None) => return Err(io::Error::other("disk without a durable image")),
        }
        Ok(())
    }

    /// Power cut: asks `survives` for every un-flushed block (`torn`: for every 512-byte sector of
    /// it) whether it had reached the medium, and makes both images agree on the answer.
    /// No read, write or flush may run at the same time; [`super::device::Device`] sees to that.
    pub fn cut(&self, torn: bool, mut survives: impl FnMut() -> bool) -> io::Result<Loss> {
        let mut loss = Loss::default();
        let unit = if torn { SECTOR_BYTES } else { BLOCK_BYTES };
        for (c, cell) in self.cells.iter().enumerate() {
            let mut chunk = cell.chunk.lock();
            let dirty = chunk.dirty;
            for b in each(&dirty) {
                let start = b * BLOCK_BYTES;
                let mut whole = true;
                for at in (start..start + BLOCK_BYTES).step_by(unit) {
                    if survives() {
                        self.persist(c, &mut chunk, at, unit)?;
                    } else {
                        whole = false;
                        self.revert(c, &mut chunk, at, unit)?;
                    }
                }
                if whole {
                    loss.kept_blocks += 1;
                } else {
                    loss.lost_blocks += 1;
                }
            }
            chunk.dirty = [0; WORDS];
            chunk.written = [0; WORDS];
            cell.dirty.store(0, Ordering::Release);
        }
        Ok(loss)
    }

    pub fn dirty_blocks(&self) -> u64 {
        self.cells.iter().map(|c| u64::from(c.dirty.load(Ordering::Acquire))).sum()
    }
}

fn count(bits: &Bits) -> u32 {
    bits.iter().map(|w| w.count_ones()).sum()
}

/// The numbers of the bits that are set.
fn each(bits: &Bits) -> impl Iterator<Item = usize> {
    let bits = *bits;
    (0..BLOCKS).filter(move |b| bits[b / 64] & (1 << (b % 64)) != 0)
}
