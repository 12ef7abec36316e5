//! Data: reading, writing, committing.

use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;

use super::attr::attr_facts;
use super::{check_file, record};
use crate::dirty::Dirty;
use crate::error::Error;
use crate::exclusive;
use crate::faults::point;
use crate::kernel::{self, AsFd};
use crate::limits::{FILE_SIZE_MAX, LOGGED_DATA_MAX, READ_BYTES_MAX};
use crate::node::{AtFlush, Node, NodeState};
use crate::node_fd::NodeFd;
use crate::open_file::OpenFile;
use crate::options::Durability;
use crate::record::Fact;
use crate::tx::Tx;
use crate::types::Stable;
use crate::volume::Volume;
use crate::witness::Witness;

impl Volume {
    /// Reads at most `len` bytes at `offset`. Also returns whether the data reaches the end of the file.
    pub fn read(&self, file: &OpenFile, offset: u64, len: u32) -> Result<(Bytes, bool), Error> {
        if !file.can_read() {
            return Err(Error::Access);
        }
        let fd = &*file.0.fd;
        if offset > FILE_SIZE_MAX {
            return Ok((Bytes::new(), true));
        }
        let len = len.min(READ_BYTES_MAX);
        let data = pread_all(fd, offset, u64::from(len))?;
        let end = offset.saturating_add(data.len() as u64);
        let mut state = file.0.node.0.state.lock();
        // A short read has met the end of the file; a full one may have ended there, too.
        let eof = data.len() < len as usize
            || match state.fresh(kernel::instant()) {
                Some(attrs) => attrs.size <= end,
                None => self.attrs(&file.0.node, &mut state, &kernel::look(fd)?).size <= end,
            };
        state.was_read();
        Ok((data, eof))
    }

    /// Writes `data` at `offset`, at least as stable as `stable` once the transaction's receipt is good. Returns the
    /// number of bytes written and their stability then. Large stable writes are flushed to the file itself.
    pub fn write(
        &self,
        tx: &mut Tx,
        file: &OpenFile,
        offset: u64,
        data: Bytes,
        stable: Stable,
    ) -> Result<(u32, Stable), Error> {
        if !file.can_write() {
            return Err(Error::Access);
        }
        let len = data.len() as u64;
        if u32::try_from(len).is_err() || offset.checked_add(len).is_none_or(|end| end > FILE_SIZE_MAX) {
            return Err(Error::TooBig);
        }
        self.check()?;
        if stable != Stable::Unstable {
            tx.rests_on(&file.0.node);
        }
        let logged = self.0.durability == Durability::Log && stable != Stable::Unstable;
        match (self.0.durability, stable) {
            (_, Stable::Unstable) | (Durability::Unsafe, _) => {
                let Some(count) = self.write_dirty(tx, file, offset, &data, false)? else {
                    return self.write_in_place_of_unstable(tx, file, offset, data);
                };
                match stable {
                    Stable::Unstable => tx.touch_unstable(),
                    _ => tx.touch(),
                }
                // Unsafe by the operator's choice: the reply claims the stability that the client asked for.
                Ok((count, stable))
            }
            _ if logged && len <= LOGGED_DATA_MAX => self.write_logged(tx, file, offset, data),
            _ => self.write_flushed(tx, file, offset, &data),
        }
    }

    /// Writes stably because no witness is available ([`crate::witness`]). With a log it writes at most what fits into the log,
    /// so that nobody waits for the disk here: the client sends the rest again.
    fn write_in_place_of_unstable(
        &self,
        tx: &mut Tx,
        file: &OpenFile,
        offset: u64,
        data: Bytes,
    ) -> Result<(u32, Stable), Error> {
        match self.0.durability {
            Durability::Log => {
                let len = data.len().min(usize::try_from(LOGGED_DATA_MAX).unwrap_or(usize::MAX));
                self.write_logged(tx, file, offset, data.slice(..len))
            }
            _ => self.write_flushed(tx, file, offset, &data),
        }
    }

    fn write_flushed(
        &self,
        tx: &mut Tx,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
    ) -> Result<(u32, Stable), Error> {
        // Nobody must wait for the log while this waits for the disk.
        tx.split();
        tx.changes(&[&file.0.node]);
        let count = self.write_dirty(tx, file, offset, data, true)?.unwrap_or(0);
        self.flush_file(tx, &file.0.node, &file.0.fd, false)?;
        Ok((count, Stable::FileSync))
    }

    /// Writes into the page cache only. Returns `None` if the file needs a witness and none is available; with `must` there is
    /// always one.
    fn write_dirty(
        &self,
        tx: &mut Tx,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
        must: bool,
    ) -> Result<Option<u32>, Error> {
        let node = &file.0.node;
        let mut state = node.0.state.lock();
        if !self.witness(node, &mut state, &file.0.fd, must)? {
            return Ok(None);
        }
        self.assume(&file.0.cred)?;
        let before = look_if(tx.watches(), file)?;
        let count = pwrite_all(file, offset, data)?;
        // With a log, this has no record. The next operation that has one removes it.
        if count > 0 && self.0.durability != Durability::Log {
            exclusive::end(node, &mut state, &*file.0.fd);
        }
        self.written_unstably(node, &mut state, offset, u64::from(count));
        let look = look_if(before.is_some(), file)?;
        self.changed(node, &mut state, look.as_ref());
        if let Some(look) = &look {
            self.watched(tx, node, &mut state, before.as_ref(), look);
        }
        Ok(Some(count))
    }

    /// Notes that `count` bytes are only in the page cache.
    pub(super) fn written_unstably(&self, node: &Node, state: &mut NodeState, offset: u64, count: u64) {
        state.dirty_writes += 1;
        // A dead file cannot come back, so its data need not, either.
        if self.witnesses_matter() && !node.0.is_dead() {
            state.dirty.add(offset, count);
        }
    }

    fn write_logged(
        &self,
        tx: &mut Tx,
        file: &OpenFile,
        offset: u64,
        data: Bytes,
    ) -> Result<(u32, Stable), Error> {
        let node = &file.0.node;
        tx.join()?;
        // A file that this request made comes back after a crash, whatever a local process did to its name meanwhile. The
        // next operation on it, usually its SETATTR, also records the attributes for this write.
        let later = tx.may_say_later(node);
        if later {
            tx.says_later(file)?;
        }
        self.assume(&file.0.cred)?;
        let mut state = node.0.state.lock();
        let before = look_if(tx.watches(), file)?;
        let count = pwrite_all(file, offset, &data)?;
        let ended = if count > 0 { exclusive::end(node, &mut state, &*file.0.fd) } else { None };
        let look = match later && !node.0.is_dead() {
            true => None,
            false => Some(
                kernel::look(&*file.0.fd)
                    .map_err(|e| self.fail(format!("looking at a written file: {e}")))?,
            ),
        };
        self.changed(node, &mut state, look.as_ref());
        if let Some(look) = &look {
            self.watched(tx, node, &mut state, before.as_ref(), look);
            if node.0.is_dead() || look.stx_nlink == 0 {
                // It cannot come back after a crash: there is nothing to keep.
                tx.touch();
                return Ok((count, Stable::FileSync));
            }
        }
        self.content_logged(&mut state, 1);
        record(tx, &[node], || {
            let bytes = data.slice(..count as usize);
            let mut facts = vec![Fact::Data { obj: node.0.id.clone(), offset, bytes }];
            facts.extend(ended);
            facts.extend(look.iter().flat_map(|look| attr_facts(node, false, look)));
            facts
        })?;
        Ok((count, Stable::FileSync))
    }

    /// Records the attributes of a file once for all writes to it.
    pub(crate) fn say_attrs(&self, tx: &mut Tx, file: &OpenFile) -> Result<(), Error> {
        let node = &file.0.node;
        let mut state = node.0.state.lock();
        if node.0.is_dead() {
            return Ok(());
        }
        let look =
            kernel::look(&*file.0.fd).map_err(|e| self.fail(format!("looking at a written file: {e}")))?;
        self.attrs(node, &mut state, &look);
        if look.stx_nlink == 0 { Ok(()) } else { record(tx, &[node], || attr_facts(node, false, &look)) }
    }

    /// Makes unstable writes to the file stable: all of them, whatever the range.
    pub fn commit(&self, tx: &mut Tx, node: &Node, _offset: u64, _len: u64) -> Result<(), Error> {
        check_file(node)?;
        self.check()?;
        if self.0.durability == Durability::Unsafe {
            return Ok(());
        }
        tx.rests_on(node);
        if node.0.is_dead() {
            // Nothing of it comes back after a crash once its removal is durable.
            tx.touch_unstable();
            return Ok(());
        }
        // Any descriptor can flush; the witness knows of errors.
        let fd = match node.0.file_fd() {
            Some(fd) => fd,
            None => {
                self.assume_root()?;
                // For reading only: a program that runs cannot be opened for writing.
                NodeFd::uncounted(kernel::reopen(&*self.fd(node)?, OFlags::RDONLY | OFlags::NONBLOCK)?)
            }
        };
        let logged = self.0.durability == Durability::Log && self.commit_logged(tx, node)?;
        if !logged {
            tx.split();
            self.flush_file(tx, node, &fd, false)?;
        }
        // A client that commits has usually finished writing.
        node.0.cached_descriptors.close_writing();
        Ok(())
    }

    /// Copies the unstable bytes of a file into the log. Returns false if there are too many. The copy counts only if no
    /// write-back has failed from before the bytes were written until after the copy; the witness knows.
    fn commit_logged(&self, tx: &mut Tx, node: &Node) -> Result<bool, Error> {
        if node.0.state.lock().dirty.loggable().is_none() {
            return Ok(false);
        }
        tx.join()?;
        let mut state = node.0.state.lock();
        if node.0.is_dead() {
            // Removed since the look above: the log may no longer know that it is gone.
            tx.touch_unstable();
            state.dirty = Dirty::Clean;
            return Ok(true);
        }
        let Some(ranges) = state.dirty.loggable() else { return Ok(false) };
        // A file without a witness is clean, so there is nothing to copy.
        let facts = match &state.witness {
            Some(witness) => self.data_facts(node, witness, ranges)?,
            None => Vec::new(),
        };
        self.verified(&state)?;
        let logged = facts.iter().filter(|f| matches!(f, Fact::Data { .. })).count() as u64;
        self.content_logged(&mut state, logged);
        // Also with nothing to copy: another request's copy may not be flushed yet, so this one needs something to wait for.
        tx.changes(&[node]);
        tx.record(facts)?;
        self.now_clean(node, &mut state);
        Ok(true)
    }

    /// The present bytes of `ranges` and the attributes, as facts. [`Error::Access`] if the descriptor is not open for
    /// reading.
    fn data_facts(&self, node: &Node, fd: impl AsFd, ranges: &[(u64, u64)]) -> Result<Vec<Fact>, Error> {
        let mut facts = Vec::with_capacity(ranges.len() + 1);
        for &(start, end) in ranges {
            let bytes = pread_all(&fd, start, end.saturating_sub(start))?;
            // It may have been cut off since.
            if !bytes.is_empty() {
                facts.push(Fact::Data { obj: node.0.id.clone(), offset: start, bytes });
            }
        }
        if !facts.is_empty() {
            let look = kernel::look(&fd)?;
            if look.stx_nlink == 0 {
                // A local process removed it: nothing of it comes back after a crash.
                return Ok(Vec::new());
            }
            facts.extend(attr_facts(node, false, &look));
        }
        Ok(facts)
    }

    /// Flushes a file to its own place on disk (with `whole`, all that the filesystem knows of it) and records that. Call
    /// without locks, and split.
    pub(super) fn flush_file(
        &self,
        tx: &mut Tx,
        node: &Node,
        fd: &Arc<NodeFd>,
        whole: bool,
    ) -> Result<(), Error> {
        let begun = kernel::instant();
        let (at, covered) = {
            let state = node.0.state.lock();
            (state.at_flush(), self.is_covered(&state))
        };
        if self.0.durability == Durability::Sync || whole && !self.0.flush_whole {
            self.fsync(&**fd)?;
        } else {
            self.fdatasync(&**fd)?;
        }
        if !covered && !self.0.flush_whole {
            self.flush_all()?;
        }
        tx.has_settled();
        point("commit.flushed");
        tx.join()?;
        let mut state = node.0.state.lock();
        self.flushed(tx, node, &mut state, &**fd, at)?;
        if !covered {
            self.renew_witness(node, &mut state, begun);
        }
        Ok(())
    }

    /// Whether the file's witness would also know of errors in writing back what the log holds of the file. A `Durable` fact gives
    /// all of that up. So if the witness would not know, only a flush of the whole filesystem can tell that it is on disk.
    fn is_covered(&self, state: &NodeState) -> bool {
        !self.may_hold_from(state.witness.as_ref().map_or(state.logged_at, Witness::doubtful))
    }

    /// Records that a flush which began `at` has succeeded. Call joined.
    pub(crate) fn flushed(
        &self,
        tx: &mut Tx,
        node: &Node,
        state: &mut NodeState,
        fd: impl AsFd,
        at: AtFlush,
    ) -> Result<(), Error> {
        self.verified(state)?;
        // If this fails, the log does not know of the flush, so the next COMMIT must record it.
        let look = kernel::look(fd)?;
        // The flush does not cover later writes.
        if state.dirty_writes == at.writes {
            self.now_clean(node, state);
        }
        if node.0.is_dead() || look.stx_nlink == 0 || !tx.logs() {
            tx.touch();
            return Ok(());
        }
        let keep = u32::try_from(state.data_facts.saturating_sub(at.facts)).unwrap_or(u32::MAX);
        let mut facts = vec![Fact::Durable { obj: node.0.id.clone(), keep }];
        facts.extend(attr_facts(node, false, &look));
        tx.changes(&[node]);
        tx.record(facts)
    }
}

fn look_if(wanted: bool, file: &OpenFile) -> Result<Option<Statx>, Error> {
    Ok(if wanted { Some(kernel::look(&*file.0.fd)?) } else { None })
}

/// Writes as much as possible; fails only if that is nothing.
pub(super) fn pwrite_all(file: &OpenFile, offset: u64, data: &[u8]) -> Result<u32, Error> {
    let mut done = 0;
    while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
        match kernel::pwrite(&*file.0.fd, rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) if done == 0 => return Err(e.into()),
            Err(_) => break,
        }
    }
    u32::try_from(done).map_err(|_| Error::TooBig)
}

/// Reads `len` bytes, or up to the end of the file.
pub(super) fn pread_all(fd: impl AsFd, offset: u64, len: u64) -> Result<Bytes, Error> {
    let len = usize::try_from(len).map_err(|_| Error::TooBig)?;
    let mut data = Vec::with_capacity(len);
    while data.len() < len {
        let at = offset + data.len() as u64;
        // Reads into uninitialised capacity, which may be more than was asked for.
        match kernel::pread_spare(&fd, &mut data, at) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(Errno::BADF) => return Err(Error::Access),
            Err(e) => return Err(e.into()),
        }
    }
    data.truncate(len);
    Ok(Bytes::from(data))
}
