//! Ranges of files: allocating and freeing space, finding data and holes, copying, cloning, advice (RFC 7862).
//!
//! How each operation becomes stable:
//!
//! | operation | with a log |
//! |---|---|
//! | deallocate | a `Zero` fact: recovery makes the hole again |
//! | copy of up to [`LOGGED_DATA_MAX`] bytes | the bytes are in the log, like those of a write |
//! | allocate, clone, larger copy | the file is flushed, then `Durable` |
//!
//! Recovery cannot repeat the last three: space may be gone by then, and the source may have changed. They take no lock,
//! since a `Durable` fact covers every fact about the file that was appended before its flush began. Whatever other
//! operations do to the file at the same time is either covered by the flush, too, or recorded later and replayed over it.

use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::attr::attr_facts;
use super::file::{pread_all, pwrite_all};
use super::record;
use crate::dirty::Dirty;
use crate::error::Error;
use crate::faults::point;
use crate::kernel::{self, AsFd};
use crate::limits::{COPY_BUFFER_BYTES, COPY_PIECE_BYTES, FILE_SIZE_MAX, LOGGED_DATA_MAX};
use crate::open_file::OpenFile;
use crate::options::Durability;
use crate::record::Fact;
use crate::tx::Tx;
use crate::types::{Hint, Piece, Sought, Stable};
use crate::volume::Volume;
use crate::witness::Witness;

impl Volume {
    /// Reserves space for a range; the file grows to hold it. Afterwards no write into the range fails for lack of space,
    /// even after a crash.
    pub fn allocate(&self, tx: &mut Tx, file: &OpenFile, offset: u64, len: u64) -> Result<(), Error> {
        tx.rests_on(&file.0.node);
        check_writable(file, offset, len)?;
        self.check()?;
        tx.split();
        tx.changes(&[&file.0.node]);
        let witness = self.witness_change(file)?;
        let flags = FallocateFlags::empty();
        let done = uninterrupted(|| kernel::fallocate(&*file.0.fd, flags, offset, len));
        // Also after a failure: part of the space may be allocated, and the size may have grown.
        self.unsettled(file, witness);
        done?;
        self.settle_file(tx, file)
    }

    /// Makes a hole: the range reads as zeroes, the size stays the same.
    pub fn deallocate(&self, tx: &mut Tx, file: &OpenFile, offset: u64, len: u64) -> Result<(), Error> {
        let node = &file.0.node;
        tx.rests_on(node);
        check_writable(file, offset, len)?;
        self.check()?;
        tx.join()?;
        let witness = if self.0.durability == Durability::Sync { self.witness_change(file)? } else { None };
        self.assume(&file.0.cred)?;
        let mut state = node.0.state.lock();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let done = uninterrupted(|| kernel::fallocate(&*file.0.fd, flags, offset, len));
        let look =
            kernel::look(&*file.0.fd).map_err(|e| self.fail(format!("looking at a changed file: {e}")))?;
        self.changed(node, &mut state, Some(&look));
        if done.is_ok() && !node.0.is_dead() && look.stx_nlink != 0 {
            let len = look.stx_size.saturating_sub(offset).min(len);
            self.content_logged(&mut state, u64::from(tx.logs()));
            record(tx, &[node], || {
                let mut facts = vec![Fact::Zero { obj: node.0.id.clone(), offset, len }];
                facts.extend(attr_facts(node, false, &look));
                facts
            })?;
        } else {
            tx.touch();
        }
        drop(state);
        done?;
        if self.0.durability == Durability::Sync {
            self.assume_root()?;
            self.fsync(&*file.0.fd)?;
            if let Some(witness) = &witness {
                let _state = node.0.state.lock();
                self.written_back(witness)?;
            }
            tx.has_settled();
        }
        Ok(())
    }

    /// The next data or hole at or after `offset`. There is a hole at the end of each file.
    pub fn seek(&self, file: &OpenFile, offset: u64, what: Piece) -> Result<Sought, Error> {
        if !file.can_read() {
            return Err(Error::Access);
        }
        let fd = &*file.0.fd;
        // Under the lock no operation changes the file between the two looks.
        let _state = file.0.node.0.state.lock();
        let size = kernel::look(fd)?.stx_size;
        if offset > size || offset > FILE_SIZE_MAX {
            return Err(Error::BeyondEnd);
        }
        let to = match what {
            Piece::Data => SeekFrom::Data(offset),
            Piece::Hole => SeekFrom::Hole(offset),
        };
        match uninterrupted(|| kernel::seek(fd, to)) {
            Ok(found) => Ok(Sought { found: found.min(size), size }),
            // No data from there on, or none at all: at the end.
            Err(Errno::NXIO) => Ok(Sought { found: size, size }),
            Err(e) => Err(e.into()),
        }
    }

    /// Copies at most `len` bytes from one file into another, possibly on another volume. The copy is as stable as
    /// a [`Volume::write`] with [`Stable::FileSync`]. Returns the number of bytes; it is smaller only at the end of the source or
    /// after a failure. `self` is the volume of `dest`.
    pub fn copy_range(
        &self,
        tx: &mut Tx,
        source: &OpenFile,
        offset: u64,
        dest: &OpenFile,
        dest_offset: u64,
        len: u64,
    ) -> Result<u64, Error> {
        self.copy_range_while(tx, (source, offset), (dest, dest_offset), len, || true)
    }

    /// As [`Volume::copy_range`], while `wanted` returns true; it is called after each [`COPY_PIECE_BYTES`]. What was copied until
    /// then becomes stable.
    pub fn copy_range_while(
        &self,
        tx: &mut Tx,
        (source, offset): (&OpenFile, u64),
        (dest, dest_offset): (&OpenFile, u64),
        len: u64,
        wanted: impl Fn() -> bool,
    ) -> Result<u64, Error> {
        tx.rests_on(&dest.0.node);
        if len <= LOGGED_DATA_MAX && self.0.durability == Durability::Log {
            check_copy(source, offset, dest, dest_offset, len)?;
            let bytes = pread_all(&*source.0.fd, offset, len)?;
            source.verified()?;
            return if bytes.is_empty() {
                Ok(0)
            } else {
                self.write(tx, dest, dest_offset, bytes, Stable::FileSync).map(|(count, _)| count.into())
            };
        }
        tx.split();
        tx.changes(&[&dest.0.node]);
        let mut copied = 0;
        while copied < len && (copied == 0 || wanted()) {
            match self.copy_piece(source, offset + copied, dest, dest_offset + copied, len - copied) {
                Ok(0) => break,
                Ok(n) => copied += n,
                Err(e) if copied == 0 => return Err(e),
                Err(_) => break,
            }
        }
        self.copy_settle(tx, dest)?;
        Ok(copied)
    }

    /// Copies the next few megabytes of a copy, unstably: [`Volume::copy_settle`] must follow. Returns the number of bytes; 0 at
    /// the end of the source.
    pub fn copy_piece(
        &self,
        source: &OpenFile,
        offset: u64,
        dest: &OpenFile,
        dest_offset: u64,
        len: u64,
    ) -> Result<u64, Error> {
        check_copy(source, offset, dest, dest_offset, len)?;
        self.check()?;
        let witness = self.witness_change(dest)?;
        let piece = len.min(COPY_PIECE_BYTES);
        let done = copy_some(&*source.0.fd, offset, dest, dest_offset, piece);
        if let Ok(count) = done {
            let node = &dest.0.node;
            let mut state = node.0.state.lock();
            self.written_unstably(node, &mut state, dest_offset, count);
            let replaced = self.put_witness_back(&mut state, witness);
            drop(state);
            drop(replaced);
        }
        self.own_change(dest);
        source.verified()?;
        done
    }

    pub fn copy_settle(&self, tx: &mut Tx, dest: &OpenFile) -> Result<(), Error> {
        tx.rests_on(&dest.0.node);
        self.settle_file(tx, dest)
    }

    /// Makes `dest` share a range of `source` instead of copying it, all or nothing. `len` 0 means up to the end of the
    /// source. [`Error::NotSupported`] if the filesystem cannot, [`Error::Inval`] if the range is not aligned
    /// to [`Volume::clone_block`].
    pub fn clone_range(
        &self,
        tx: &mut Tx,
        source: &OpenFile,
        offset: u64,
        dest: &OpenFile,
        dest_offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        tx.rests_on(&dest.0.node);
        check_copy(source, offset, dest, dest_offset, len)?;
        self.check()?;
        tx.split();
        tx.changes(&[&dest.0.node]);
        let witness = self.witness_change(dest)?;
        let done = kernel::clone_range(&*source.0.fd, offset, len, &*dest.0.fd, dest_offset);
        if done.is_ok() {
            self.unsettled(dest, witness);
        }
        match done {
            Ok(()) => {
                self.settle_file(tx, dest)?;
                source.verified()
            }
            // Other volumes may be on another filesystem; some kinds of files cannot be cloned.
            Err(Errno::XDEV) => Err(Error::CrossDevice),
            Err(e) => Err(e.into()),
        }
    }

    /// The offsets of [`Volume::clone_range`] must be multiples of this, bytes; 0 on filesystems known not to clone.
    pub fn clone_block(&self) -> Result<u32, Error> {
        if !kernel::may_clone(&self.0.mount)? {
            return Ok(0);
        }
        let s = kernel::fstatvfs(&self.0.mount)?;
        Ok(u32::try_from(s.f_frsize).unwrap_or(u32::MAX))
    }

    /// Tells the system how a range will be used; 0 bytes mean up to the end. Only a hint.
    pub fn advise(&self, file: &OpenFile, offset: u64, len: u64, hint: Hint) -> Result<(), Error> {
        let advice = match hint {
            Hint::Normal => Advice::Normal,
            Hint::Sequential => Advice::Sequential,
            Hint::Random => Advice::Random,
            Hint::WillNeed => Advice::WillNeed,
            Hint::DontNeed => Advice::DontNeed,
            Hint::NoReuse => Advice::NoReuse,
        };
        let offset = offset.min(FILE_SIZE_MAX);
        let len = std::num::NonZeroU64::new(len.min(FILE_SIZE_MAX - offset));
        Ok(kernel::fadvise(&*file.0.fd, offset, len, advice)?)
    }

    /// Notes a change of the file that only a flush makes stable. If that flush fails to happen, the next COMMIT makes up for it.
    /// `witness` is from [`Volume::witness_change`].
    fn unsettled(&self, file: &OpenFile, witness: Option<Witness>) {
        let mut state = file.0.node.0.state.lock();
        state.dirty_writes += 1;
        if self.witnesses_matter() && !file.0.node.0.is_dead() {
            state.dirty = Dirty::Unknown;
        }
        let replaced = self.put_witness_back(&mut state, witness);
        drop(state);
        drop(replaced);
        self.own_change(file);
    }

    /// Prepares a change of the file's data that is not stable at once. Returns the file's witness, if it needs one: the change may
    /// take long, and until its end the file counts as clean and may lose the witness. Leaves the thread acting as the file's opener.
    fn witness_change(&self, file: &OpenFile) -> Result<Option<Witness>, Error> {
        let node = &file.0.node;
        let mut state = node.0.state.lock();
        self.witness(node, &mut state, &file.0.fd, true)?;
        let witness = state.witness.clone();
        drop(state);
        self.assume(&file.0.cred)?;
        point("range.watched");
        Ok(witness)
    }

    fn own_change(&self, file: &OpenFile) {
        let node = &file.0.node;
        let mut state = node.0.state.lock();
        let look = kernel::look(&*file.0.fd).ok();
        self.changed(node, &mut state, look.as_ref());
    }

    /// Makes a change of the file itself stable. Call split.
    fn settle_file(&self, tx: &mut Tx, file: &OpenFile) -> Result<(), Error> {
        tx.touch();
        if self.0.durability == Durability::Unsafe {
            return Ok(());
        }
        tx.split();
        self.flush_file(tx, &file.0.node, &file.0.fd, true)
    }
}

fn check_writable(file: &OpenFile, offset: u64, len: u64) -> Result<(), Error> {
    if !file.can_write() {
        return Err(Error::Access);
    }
    if len == 0 {
        return Err(Error::Inval);
    }
    match offset.checked_add(len) {
        Some(end) if end <= FILE_SIZE_MAX => Ok(()),
        _ => Err(Error::TooBig),
    }
}

fn check_copy(
    source: &OpenFile,
    offset: u64,
    dest: &OpenFile,
    dest_offset: u64,
    len: u64,
) -> Result<(), Error> {
    if !source.can_read() || !dest.can_write() {
        return Err(Error::Access);
    }
    let in_range = |offset: u64| offset.checked_add(len).is_some_and(|end| end <= FILE_SIZE_MAX);
    if in_range(offset) && in_range(dest_offset) { Ok(()) } else { Err(Error::TooBig) }
}

/// Copies at most `len` bytes within the kernel, or through a buffer if the kernel cannot (between two kinds of filesystems).
fn copy_some(
    source: impl AsFd,
    offset: u64,
    dest: &OpenFile,
    dest_offset: u64,
    len: u64,
) -> Result<u64, Error> {
    let (mut from, mut to) = (offset, dest_offset);
    let want = usize::try_from(len).unwrap_or(usize::MAX);
    let copied =
        uninterrupted(|| kernel::copy_file_range(&source, Some(&mut from), &*dest.0.fd, Some(&mut to), want));
    match copied {
        Ok(n) => Ok(n as u64),
        Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            let bytes = pread_all(&source, offset, len.min(COPY_BUFFER_BYTES))?;
            if bytes.is_empty() {
                return Ok(0);
            }
            pwrite_all(dest, dest_offset, &bytes).map(u64::from)
        }
        Err(e) => Err(e.into()),
    }
}

fn uninterrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
