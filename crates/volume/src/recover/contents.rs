//! Contents of files: performs the steps that the fold left, in order.
//!
//! Any subset of the unflushed data may be on disk, and later data, too. Cutting, writing and punching in order, then
//! setting the size, gives the same bytes whatever was there.
//!
//! On a disk that is ahead of the log, sizes are right, or too small where appended data is missing: the filesystem keeps them
//! in order. So nothing is cut there, with one exception: a truncation that the log lacks, but that left a note
//! ([`crate::truncation_notes`]), may be on disk, so it is completed.

use std::collections::HashMap;

use bytes::Bytes;
use rustix::io::Errno;

use super::work::{Object, Work};
use super::{Error, Run, io, surprise};
use crate::faults::point;
use crate::fold::{Content, Fill};
use crate::record::{Kind, ObjId};
use crate::recover::tree::{Meta, Tree};
use crate::truncation_notes::{TRUNCATION_XATTR, TruncationNotes};

const CAPABILITIES: &[u8] = b"security.capability";

impl Work<'_> {
    pub(super) fn contents(&mut self, object: &Object<'_>) -> Result<(), Error> {
        let (id, content) = (object.id, &object.plan.content);
        if content.is_empty() {
            return Ok(());
        }
        let meta = self.look(object)?;
        if meta.kind != Kind::File {
            return Err(surprise("data for something that is no file", id, None));
        }
        match self.cut_and_fill(object, &meta) {
            Err(e) if e.is_busy() && self.is_as_wanted(object, &meta)? => Ok(()),
            done => done,
        }
    }

    fn cut_and_fill(&mut self, object: &Object<'_>, meta: &Meta) -> Result<(), Error> {
        let (id, content, now) = (object.id, &object.plan.content, &object.now);
        self.cut(object, meta)?;
        self.fill(now, content, None)?;
        match content.size {
            Some(size) if object.made.is_none() || content.filled() != size => {
                self.tree.truncate(now, size).map_err(io("setting a file's size", id))
            }
            _ => Ok(()),
        }
    }

    fn is_as_wanted(&mut self, object: &Object<'_>, meta: &Meta) -> Result<bool, Error> {
        let content = &object.plan.content;
        let size = content.size.unwrap_or(content.filled().max(meta.size));
        Ok(meta.size == size && self.has_bytes(&object.now, content, content.cut, None)?)
    }

    /// Whether a file that cannot be opened for writing has these contents on the disk already.
    fn has_bytes(
        &mut self,
        obj: &ObjId,
        content: &Content,
        cut: Option<u64>,
        end: Option<u64>,
    ) -> Result<bool, Error> {
        let Some(mut at) = content.writes.iter().map(|(offset, _)| *offset).chain(cut).min() else {
            return Ok(true);
        };
        loop {
            let found = match self.tree.read_disk(obj, at) {
                // The filesystem always reads through memory, so nobody knows what is on the disk.
                Err(e) if Errno::from_io_error(&e) == Some(Errno::INVAL) => return Ok(false),
                found => found.map_err(io("reading a file that is in use", obj))?,
            };
            let mut wanted = found.clone();
            content.do_to(&mut wanted, at, cut, end);
            match found.len() as u64 {
                0 => return Ok(at >= content.filled().min(end.unwrap_or(u64::MAX))),
                _ if wanted != found => return Ok(false),
                len => at += len,
            }
        }
    }

    /// Cuts a file and makes its holes, ahead of everything else that [`Work::contents`] does: the room may be what another file needs.
    /// Doing it again in order gives the same bytes.
    pub(super) fn give_room(&mut self, object: &Object<'_>) -> Result<(), Error> {
        let (id, content) = (object.id, &object.plan.content);
        if !content.gives_room() {
            return Ok(());
        }
        let meta = self.look(object)?;
        if meta.kind != Kind::File {
            return Err(surprise("data for something that is no file", id, None));
        }
        match self.cut_and_punch(object, &meta) {
            // A hole within an extent needs a block: it is made in its turn, when what others give back is free.
            Err(e) if e.is_full() => Ok(()),
            Err(e) if e.is_busy() && self.is_as_wanted(object, &meta)? => Ok(()),
            done => done,
        }
    }

    fn cut_and_punch(&mut self, object: &Object<'_>, meta: &Meta) -> Result<(), Error> {
        self.cut(object, meta)?;
        for (offset, fill) in &object.plan.content.writes {
            if let Fill::Zero(len) = fill {
                self.tree.punch(&object.now, *offset, *len).map_err(io("punching a hole", object.id))?;
            }
        }
        Ok(())
    }

    fn cut(&mut self, object: &Object<'_>, meta: &Meta) -> Result<(), Error> {
        match object.plan.content.cut {
            Some(cut) if cut < meta.size => {
                self.tree.truncate(&object.now, cut).map_err(io("cutting a file", object.id))
            }
            _ => Ok(()),
        }
    }

    fn fill(&mut self, obj: &ObjId, content: &Content, end: Option<u64>) -> Result<(), Error> {
        for (offset, fill) in &content.writes {
            let len = end.map_or(fill.len(), |end| end.saturating_sub(*offset).min(fill.len()));
            match fill {
                _ if len == 0 => {}
                Fill::Bytes(bytes) => {
                    let bytes = bytes.slice(..len as usize);
                    self.tree.write(obj, *offset, &bytes).map_err(io("writing data", obj))?;
                    self.done.bytes += len;
                }
                Fill::Zero(_) => {
                    self.tree.punch(obj, *offset, len).map_err(io("punching a hole", obj))?;
                    self.done.holes += 1;
                }
            }
        }
        self.done.contents += 1;
        Ok(())
    }
}

impl<T: Tree> Run<'_, T> {
    /// For a disk that is ahead of the log. Names and attributes are right, or changed by operations that were never
    /// acknowledged; only data may be missing. Files that such an operation removed are left alone. Times are kept: they are
    /// saved durably before anything is written, since after a crash in here the files would have the times of our own
    /// writes.
    pub(super) fn contents_only(&mut self, marker: u64) -> Result<(), Error> {
        let stage = self.tree.stage();
        let kept = self.tree.kept_times(marker).map_err(io("reading the times to keep", &stage))?;
        let first_run = kept.is_none();
        let mut times = kept.unwrap_or_default();
        let kept: HashMap<_, _> = times.drain(..).map(|(id, atime, mtime)| (id, (atime, mtime))).collect();
        let mut files = Vec::new();
        for (id, plan) in self.sorted(|_, plan| !plan.content.is_empty()) {
            let Some(now) = self.find(id)? else { continue };
            let Some(meta) = self.probe(&now)? else { continue };
            if meta.kind != Kind::File {
                return Err(surprise("data for something that is no file", id, None));
            }
            let (atime, mtime) = kept.get(&now).copied().unwrap_or((meta.owned.atime, meta.owned.mtime));
            times.push((now.clone(), atime, mtime));
            files.push((now, &plan.content));
        }
        if first_run {
            self.tree.keep_times(marker, Some(&times)).map_err(io("noting the times to keep", &stage))?;
        }
        for ((now, content), (_, atime, mtime)) in files.iter().zip(&times) {
            self.contents_ahead(now, content)?;
            self.tree.set_times(now, Some(*atime), *mtime).map_err(io("setting times", now))?;
        }
        point("recovery.contents");
        self.last_sync()?;
        self.tree.keep_times(marker, None).map_err(io("forgetting the times to keep", &stage))
    }

    fn contents_ahead(&mut self, obj: &ObjId, content: &Content) -> Result<(), Error> {
        let said = self
            .tree
            .xattr(obj, TRUNCATION_XATTR.as_bytes())
            .map_err(io("reading what was to be cut", obj))?;
        let cuts = TruncationNotes::after(self.fold.last_seq, obj, &said.unwrap_or_default());
        let capabilities = self.capabilities(obj)?;
        let written = self.fill_ahead(obj, content, &cuts);
        // Also after an error: the next start would not know them any more.
        self.keep_capabilities(obj, capabilities)?;
        written
    }

    fn fill_ahead(&mut self, obj: &ObjId, content: &Content, cuts: &TruncationNotes) -> Result<(), Error> {
        let mut work = Work::new(self.tree);
        match work.fill(obj, content, cuts.lowest()) {
            Err(e) if e.is_busy() && work.has_bytes(obj, content, None, cuts.lowest())? => {}
            done => done?,
        }
        self.done.add(work.done);
        let size = self.probe(obj)?.map_or(0, |meta| meta.size);
        let wanted = cuts.last().unwrap_or_else(|| content.size.unwrap_or(0).max(size));
        if wanted != size {
            self.tree.truncate(obj, wanted).map_err(io("setting a file's size", obj))?;
        }
        Ok(())
    }

    /// What a program may do beyond its user's rights. A write clears it, and the writes of the log have done so. What is there now,
    /// an administrator has given since.
    fn capabilities(&mut self, obj: &ObjId) -> Result<Option<Bytes>, Error> {
        self.tree.xattr(obj, CAPABILITIES).map_err(io("reading a program's capabilities", obj))
    }

    fn keep_capabilities(&mut self, obj: &ObjId, kept: Option<Bytes>) -> Result<(), Error> {
        if kept.is_none() || self.capabilities(obj)? == kept {
            return Ok(());
        }
        match self.tree.set_xattr(obj, CAPABILITIES, kept.as_ref()) {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::PERM) => {
                let path = self.path_of(obj);
                tracing::warn!(
                    "{path}: its capabilities are gone (setcap): the server lacks CAP_SETFCAP to keep them"
                );
                Ok(())
            }
            done => done.map_err(io("keeping a program's capabilities", obj)),
        }
    }
}
