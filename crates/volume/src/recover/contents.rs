//! Contents of files: performs the steps that the fold left, in order.
//!
//! Any subset of the unflushed data may be on disk, and later data, too. Cutting, writing and punching in order, then
//! setting the size, gives the same bytes whatever was there.
//!
//! On a disk that is ahead of the log, sizes are right, or too small where appended data is missing: the filesystem keeps them
//! in order. So nothing is cut there, with one exception: a truncation that the log lacks, but that left a note
//! ([`crate::truncation_notes`]), may be on disk, so it is completed.

use std::collections::HashMap;

use super::work::{Object, Work};
use super::{Error, Run, io, surprise};
use crate::faults::point;
use crate::fold::{Content, Fill};
use crate::record::{Kind, ObjId};
use crate::recover::tree::{Meta, Tree};
use crate::truncation_notes::{TRUNCATION_XATTR, TruncationNotes};

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
        let now = &object.now;
        self.cut(object, &meta)?;
        self.fill(now, content, None)?;
        match content.size {
            Some(size) if object.made.is_none() || content.filled() != size => {
                self.tree.truncate(now, size).map_err(io("setting a file's size", id))
            }
            _ => Ok(()),
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
        self.cut(object, &meta)?;
        for (offset, fill) in &content.writes {
            if let Fill::Zero(len) = fill {
                self.tree.punch(&object.now, *offset, *len).map_err(io("punching a hole", id))?;
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
        let mut work = Work::new(self.tree);
        work.fill(obj, content, cuts.lowest())?;
        self.done.add(work.done);
        let size = self.probe(obj)?.map_or(0, |meta| meta.size);
        let wanted = cuts.last().unwrap_or_else(|| content.size.unwrap_or(0).max(size));
        if wanted != size {
            self.tree.truncate(obj, wanted).map_err(io("setting a file's size", obj))?;
        }
        Ok(())
    }
}
