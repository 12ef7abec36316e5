//! The bytes of files: extents of one block, each with everything written to it since its last flush.

use std::rc::Rc;

use rustix::io::Errno;

use super::calls::CAPABILITIES;
use super::meta::{Meta, Serial};
use super::{DataEvent, Kernel, Result, Rng};

/// Bytes of a block. Small, so that small files have several.
pub const BLOCK: usize = 256;

/// Maximum size of a file: the simulation keeps every byte.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// How many versions of a block are kept beside the durable one.
const VERSIONS_MAX: usize = 6;

type Bytes = [u8; BLOCK];

#[derive(Clone)]
pub struct Extent {
    durable: Bytes,
    versions: Vec<Bytes>,
    /// A flush failed, and the kernel treats the block as clean.
    lost: bool,
}

impl Default for Extent {
    fn default() -> Extent {
        Extent { durable: [0; BLOCK], versions: Vec::new(), lost: false }
    }
}

impl Extent {
    fn now(&self) -> &Bytes {
        self.versions.last().unwrap_or(&self.durable)
    }

    fn put(&mut self, block: Bytes, rng: &mut Rng) {
        if self.versions.len() == VERSIONS_MAX {
            self.versions.remove(rng.below(VERSIONS_MAX as u64 - 1) as usize);
        }
        self.versions.push(block);
        self.lost = false;
    }

    fn flush(&mut self) {
        if !self.lost
            && let Some(last) = self.versions.pop()
        {
            self.durable = last;
            self.versions.clear();
        }
    }

    /// Whether the kernel has data of it to write.
    pub(super) fn is_dirty(&self) -> bool {
        !self.lost && !self.versions.is_empty()
    }

    /// Called when it could not be written: it counts as clean.
    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// Drops lost data from memory. Returns whether there was any.
    pub(super) fn drop_lost(&mut self) -> bool {
        let lost = std::mem::take(&mut self.lost);
        if lost {
            self.versions.clear();
        }
        lost
    }

    fn survivor(&self, rng: &mut Rng) -> Bytes {
        if self.lost && !rng.one_in(4) {
            return self.durable;
        }
        let choice = |n: usize| if n == 0 { &self.durable } else { &self.versions[n - 1] };
        let n = rng.below(self.versions.len() as u64 + 1) as usize;
        let mut block = *choice(n);
        if n > 0 && rng.one_in(4) {
            let cut = rng.below(BLOCK as u64) as usize;
            block[cut..].copy_from_slice(&choice(n - 1)[cut..]);
        }
        block
    }
}

impl Kernel {
    /// Makes an object's data durable, with its size; if `quietly`, adds no entry to the journal.
    pub(super) fn flush_data(&mut self, serial: Serial, quietly: bool) {
        let Some(meta) = self.peek(serial).cloned() else { return };
        for extent in meta.map.iter().filter(|e| **e != 0) {
            self.extents[*extent as usize].flush();
        }
        if meta.hard != meta.size {
            self.edit(serial).hard = meta.size;
            if quietly {
                self.touched.retain(|s| *s != serial);
            } else {
                self.changed();
            }
        }
    }

    /// A flush has failed: some of the data is on disk; the rest is lost and counts as clean.
    pub(super) fn lose_data(&mut self, serial: Serial) {
        let Some(meta) = self.peek(serial).cloned() else { return };
        let mut lost = false;
        for extent in meta.map.iter().filter(|e| **e != 0) {
            let extent = &mut self.extents[*extent as usize];
            if self.rng.one_in(2) {
                extent.flush();
            } else if !extent.versions.is_empty() {
                extent.lost = true;
                lost = true;
            }
        }
        if lost {
            self.note_error(serial);
        }
    }

    /// What a power cut leaves of an object: its blocks and its size.
    pub(super) fn settle(&mut self, meta: Rc<Meta>, extents: &mut Vec<Extent>) -> Meta {
        let mut meta = (*meta).clone();
        if meta.hard < meta.size {
            meta.size = match self.rng.below(3) {
                0 => meta.size,
                1 => meta.hard,
                _ => meta.hard + self.rng.below(meta.size - meta.hard + 1),
            };
        }
        meta.hard = meta.size;
        let mut map = Vec::with_capacity(meta.map.len());
        for (n, extent) in meta.map.iter().enumerate() {
            if *extent == 0 {
                map.push(0);
                continue;
            }
            let mut block = self.extents[*extent as usize].survivor(&mut self.rng);
            // Beyond the end there are zeroes, whatever the disk holds.
            let left = meta.size.saturating_sub((n * BLOCK) as u64).min(BLOCK as u64) as usize;
            block[left..].fill(0);
            map.push(extents.len() as u32);
            extents.push(Extent { durable: block, ..Extent::default() });
        }
        meta.map = Rc::new(map);
        meta
    }

    pub fn contents(&self, meta: &Meta) -> Vec<u8> {
        let mut bytes = vec![0; meta.size as usize];
        for (block, extent) in bytes.chunks_mut(BLOCK).zip(meta.map.iter()) {
            if *extent != 0 {
                block.copy_from_slice(&self.extents[*extent as usize].now()[..block.len()]);
            }
        }
        bytes
    }

    fn free_blocks(&self) -> u64 {
        self.blocks.saturating_sub(self.blocks_used)
    }

    pub(super) fn has_room(&self, blocks: u64) -> Result<()> {
        if self.free_blocks() < blocks { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// (all blocks, free blocks)
    pub(super) fn room(&self) -> (u64, u64) {
        (self.blocks, self.free_blocks())
    }

    fn extent_for(&mut self, map: &mut Vec<u32>, block: usize) -> Result<u32> {
        if map.len() <= block {
            map.resize(block + 1, 0);
        }
        if map[block] == 0 {
            self.has_room(1)?;
            self.blocks_used += 1;
            map[block] = self.extents.len() as u32;
            self.extents.push(Extent::default());
        }
        Ok(map[block])
    }

    /// Writes into a file; fewer bytes if the disk is full.
    pub(super) fn put(&mut self, serial: Serial, data: &[u8], offset: u64) -> Result<usize> {
        if offset + data.len() as u64 > FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let mut map = (*self.meta(serial).map).clone();
        let mut done = 0;
        while done < data.len() {
            let at = offset as usize + done;
            let (block, within) = (at / BLOCK, at % BLOCK);
            let len = (BLOCK - within).min(data.len() - done);
            let extent = match self.extent_for(&mut map, block) {
                Ok(extent) => extent as usize,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            };
            let mut bytes = *self.extents[extent].now();
            bytes[within..within + len].copy_from_slice(&data[done..done + len]);
            self.extents[extent].put(bytes, &mut self.rng);
            done += len;
        }
        let now = self.tick();
        let meta = self.edit(serial);
        meta.map = Rc::new(map);
        meta.size = meta.size.max(offset + done as u64);
        (meta.mtime, meta.ctime) = (now, now);
        if meta.xattrs.contains_key(CAPABILITIES) {
            Rc::make_mut(&mut meta.xattrs).remove(CAPABILITIES);
        }
        self.changed();
        self.data.push((self.pos, serial, DataEvent::Write(offset, data[..done].into())));
        Ok(done)
    }

    /// Zeroes a range within one block. The zeroes reach the disk with the metadata, so it is a new extent.
    fn zero_within(&mut self, map: &mut [u32], block: usize, from: usize, to: usize) {
        let Some(slot) = map.get_mut(block).filter(|e| **e != 0) else { return };
        let mut extent = self.extents[*slot as usize].clone();
        for bytes in std::iter::once(&mut extent.durable).chain(&mut extent.versions) {
            bytes[from..to].fill(0);
        }
        *slot = self.extents.len() as u32;
        self.extents.push(extent);
    }

    fn zero_range(&mut self, map: &mut [u32], start: u64, end: u64) {
        let mut at = start as usize;
        while at < end as usize {
            let (block, within) = (at / BLOCK, at % BLOCK);
            let to = (end as usize - block * BLOCK).min(BLOCK);
            if within == 0 && to == BLOCK {
                if let Some(slot) = map.get_mut(block).filter(|e| **e != 0) {
                    *slot = 0;
                    self.blocks_used -= 1;
                }
            } else {
                self.zero_within(map, block, within, to);
            }
            at = block * BLOCK + to;
        }
    }

    pub(super) fn set_size(&mut self, serial: Serial, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let mut map = (*self.meta(serial).map).clone();
        let before = self.meta(serial).size;
        if size < before {
            let end = (map.len() * BLOCK) as u64;
            self.zero_range(&mut map, size, end.max(size));
            map.truncate(Meta::blocks_of(size));
        }
        let now = self.tick();
        let meta = self.edit(serial);
        meta.map = Rc::new(map);
        (meta.size, meta.hard) = (size, size);
        (meta.mtime, meta.ctime) = (now, now);
        self.changed();
        self.data.push((self.pos, serial, DataEvent::Size(size)));
        Ok(())
    }

    pub(super) fn make_hole(&mut self, serial: Serial, offset: u64, len: u64) {
        let end = self.meta(serial).size.min(offset.saturating_add(len));
        let mut map = (*self.meta(serial).map).clone();
        if offset < end {
            self.zero_range(&mut map, offset, end);
        }
        let now = self.tick();
        let meta = self.edit(serial);
        meta.map = Rc::new(map);
        (meta.mtime, meta.ctime) = (now, now);
        self.changed();
        self.data.push((self.pos, serial, DataEvent::Zero(offset, end.saturating_sub(offset))));
    }

    pub(super) fn reserve(&mut self, serial: Serial, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len);
        if end > FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let mut map = (*self.meta(serial).map).clone();
        let missing = (offset as usize / BLOCK..Meta::blocks_of(end))
            .filter(|b| map.get(*b).is_none_or(|e| *e == 0))
            .count() as u64;
        self.has_room(missing)?;
        for block in offset as usize / BLOCK..Meta::blocks_of(end) {
            self.extent_for(&mut map, block)?;
        }
        let now = self.tick();
        let meta = self.edit(serial);
        meta.map = Rc::new(map);
        meta.size = meta.size.max(end);
        meta.ctime = now;
        self.changed();
        self.data.push((self.pos, serial, DataEvent::Write(end, [].into())));
        Ok(())
    }

    /// Shares blocks. Flushes the source first, as real filesystems do.
    pub(super) fn share(&mut self, from: Serial, offset: u64, len: u64, to: Serial, at: u64) -> Result<()> {
        self.flush_data(from, false);
        let source = self.contents(&self.meta(from).clone());
        let start = source.len().min(offset as usize);
        let end = if len == 0 { source.len() } else { source.len().min((offset + len) as usize) };
        let bytes = &source[start..end];
        if at + bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let mut map = (*self.meta(to).map).clone();
        self.has_room(Meta::blocks_of(bytes.len() as u64) as u64)?;
        for (n, chunk) in bytes.chunks(BLOCK).enumerate() {
            let block = at as usize / BLOCK + n;
            self.extent_for(&mut map, block)?;
            let mut whole = *self.extents[map[block] as usize].now();
            whole[..chunk.len()].copy_from_slice(chunk);
            map[block] = self.extents.len() as u32;
            self.extents.push(Extent { durable: whole, ..Extent::default() });
        }
        let now = self.tick();
        let meta = self.edit(to);
        meta.map = Rc::new(map);
        meta.size = meta.size.max(at + bytes.len() as u64);
        meta.hard = meta.hard.max(at + bytes.len() as u64).min(meta.size);
        (meta.mtime, meta.ctime) = (now, now);
        self.changed();
        self.data.push((self.pos, to, DataEvent::Write(at, bytes.into())));
        Ok(())
    }
}
