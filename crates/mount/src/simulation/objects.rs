//! What is on the model's disk.

use std::collections::BTreeMap;

use bytes::Bytes;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{FileHandle, FileType, Fsid, NfsTime, SetTime};

/// An object's number.
pub(crate) type Id = u64;

/// Tells objects apart: the lowest six bits of the mode that it was made with, or of what a link's text says. Nobody changes it.
pub(crate) type Tag = u8;

/// Space for objects and data: its end is not in question here.
const FILES: u64 = 1 << 24;
const BYTES: u64 = 1 << 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Dir(BTreeMap<Bytes, Id>),
    /// What the server has in memory, and what a power cut leaves of it.
    File {
        data: Vec<u8>,
        stable: Vec<u8>,
    },
    Link(Bytes),
}

#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) tag: Tag,
    pub(crate) links: u32,
    pub(crate) mtime: NfsTime,
    pub(crate) ctime: NfsTime,
    pub(crate) change: u64,
}

pub(crate) fn tag_of(mode: u32) -> Tag {
    (mode & 0o77) as Tag
}

/// The tag in a link's text, which begins with its number.
pub(crate) fn tag_of_link(text: &[u8]) -> Tag {
    text.first().copied().unwrap_or(0) & 0o77
}

impl Object {
    pub(crate) fn new(kind: Kind, mode: u32, now: NfsTime, change: u64) -> Object {
        let tag = match &kind {
            Kind::Link(text) => tag_of_link(text),
            _ => tag_of(mode),
        };
        let links = if matches!(kind, Kind::Dir(_)) { 2 } else { 1 };
        Object { kind, mode, tag, links, mtime: now, ctime: now, change }
    }

    pub(crate) fn names(&self) -> Option<&BTreeMap<Bytes, Id>> {
        match &self.kind {
            Kind::Dir(names) => Some(names),
            _ => None,
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Dir(_))
    }

    pub(crate) fn values(&self, id: Id) -> AttrValues {
        let (kind, size) = match &self.kind {
            Kind::Dir(_) => (FileType::Dir, 4096),
            Kind::File { data, .. } => (FileType::Reg, data.len() as u64),
            Kind::Link(text) => (FileType::Lnk, text.len() as u64),
        };
        AttrValues {
            kind: Some(kind),
            change: Some(self.change),
            size: Some(size),
            fsid: Some(Fsid { major: 1, minor: 0 }),
            filehandle: Some(handle(id)),
            fileid: Some(id),
            mode: Some(self.mode),
            numlinks: Some(self.links),
            owner: Some(Bytes::from_static(b"0")),
            owner_group: Some(Bytes::from_static(b"0")),
            space_used: Some(size),
            time_access: Some(self.mtime),
            time_metadata: Some(self.ctime),
            time_modify: Some(self.mtime),
            files_avail: Some(FILES),
            files_total: Some(FILES),
            space_avail: Some(BYTES),
            ..AttrValues::default()
        }
    }

    /// SETATTR.
    pub(crate) fn set(&mut self, values: &AttrValues, now: NfsTime) {
        if let (Some(size), Kind::File { data, stable }) = (values.size, &mut self.kind) {
            data.resize(size as usize, 0);
            // The model's server makes a size stable at once, with what is below it.
            *stable = data.clone();
            self.mtime = now;
        }
        self.mode = values.mode.unwrap_or(self.mode);
        match values.time_modify_set {
            Some(SetTime::ClientTime(t)) => self.mtime = t,
            Some(SetTime::ServerTime) => self.mtime = now,
            None => {}
        }
        self.ctime = now;
    }
}

pub(crate) fn handle(id: Id) -> FileHandle {
    FileHandle(Bytes::copy_from_slice(&id.to_be_bytes()))
}

pub(crate) fn id_of(handle: &FileHandle) -> Id {
    handle.0.first_chunk().map_or(0, |b| u64::from_be_bytes(*b))
}
