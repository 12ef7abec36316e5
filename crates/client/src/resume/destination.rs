//! Finds out which results of an earlier run still exist at the destination.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{Fattr, FileHandle, FileType, NfsStat};

use super::done::DoneBefore;
use super::key::Key;
use super::partial::PartialFile;
use crate::archive::{Kind, Member};
use crate::compound::fattr;
use crate::fs::{Meta, Nfs, Outcome, Start, WalkOptions, join};
use crate::overflow::{Key as TableKey, Table};

/// A destination on this machine. Paths are relative to it.
pub trait Local: Send + Sync {
    fn has(&self, path: &[u8], member: &Member) -> bool;

    /// Whether the file with this identity exists at the path and has at least `upto` bytes.
    fn holds(&self, path: &[u8], identity: &[u8], upto: u64) -> bool;
}

pub(super) enum Destination {
    /// On a server.
    Listed(Box<Listed>),
    /// On this machine. Each path is examined when it is asked for.
    Here(Box<dyn Local>),
}

/// What the server listed, by the hashes of the paths.
#[derive(Default)]
pub(super) struct Listed {
    names: Names,
    /// Unfinished files, with their sizes.
    parts: HashMap<u64, (FileHandle, u64)>,
    /// Directories that cannot be listed. For these the journal is trusted.
    blind: HashSet<u64>,
}

/// Kinds and sizes by the hashes of paths. A long table goes to a temporary file.
#[derive(Default)]
struct Names(Table);

impl Names {
    /// The kind is above the size, which is cut off there: a file is never as large.
    const SIZE_BITS: u32 = 60;
    const KINDS: [FileType; 7] = {
        use FileType::*;
        [Reg, Dir, Blk, Chr, Lnk, Sock, Fifo]
    };

    fn add(&mut self, path: u64, kind: Option<FileType>, size: u64) {
        let kind = kind.and_then(|kind| Names::KINDS.iter().position(|known| *known == kind));
        let number = kind.map_or(0, |kind| kind as u64 + 1) << Names::SIZE_BITS | Names::cut_off(size);
        self.0.insert(TableKey::of_hash(path), number);
        if let Some(trouble) = self.0.trouble() {
            tracing::warn!("{trouble}");
        }
    }

    /// What cannot be read back is done again, as if it were not there.
    fn get(&self, path: u64) -> Option<(Option<FileType>, u64)> {
        let number = self.0.get(TableKey::of_hash(path)).ok().flatten()?;
        let kind =
            (number >> Names::SIZE_BITS).checked_sub(1).and_then(|kind| Names::KINDS.get(kind as usize));
        Some((kind.copied(), Names::cut_off(number)))
    }

    fn cut_off(size: u64) -> u64 {
        size & ((1 << Names::SIZE_BITS) - 1)
    }
}

impl Destination {
    #[cfg(test)]
    pub(super) fn here(has: impl Fn(&[u8], &Member) -> bool + Send + Sync + 'static) -> Destination {
        struct Has<F>(F);
        impl<F: Fn(&[u8], &Member) -> bool + Send + Sync> Local for Has<F> {
            fn has(&self, path: &[u8], member: &Member) -> bool {
                self.0(path, member)
            }

            fn holds(&self, _: &[u8], _: &[u8], _: u64) -> bool {
                false
            }
        }
        Destination::Here(Box::new(Has(has)))
    }

    /// The unfinished file, if it still exists. `path` is the hash of its path, `names` the path itself.
    pub(super) fn part(
        &self,
        path: u64,
        names: impl FnOnce() -> Vec<u8>,
        unfinished: &PartialFile,
    ) -> Option<FileHandle> {
        let listed = match self {
            Destination::Listed(listed) => listed,
            Destination::Here(here) => {
                let holds = here.holds(&names(), &unfinished.fh, unfinished.upto);
                return holds.then(|| FileHandle(Bytes::copy_from_slice(&unfinished.fh)));
            }
        };
        let (fh, size) = listed.parts.get(&path)?;
        (fh.0 == unfinished.fh && *size >= unfinished.upto).then(|| fh.clone())
    }

    /// Whether the object at `path` may be the extracted member.
    pub(super) fn has(&self, key: Key, path: &[Bytes], member: &Member) -> bool {
        let names = |names: &[Bytes]| key.names(names.iter().map(|n| &n[..]));
        match self {
            Destination::Here(here) => here.has(&path.join(&b'/'), member),
            Destination::Listed(listed) => match listed.names.get(names(path)) {
                Some((kind, size)) => fits(kind, size, member),
                None => listed.blind.contains(&names(&path[..path.len().saturating_sub(1)])),
            },
        }
    }
}

/// Whether an object of this kind and size may be the extracted member. An unknown kind may be any.
pub(crate) fn fits(kind: Option<FileType>, size: u64, member: &Member) -> bool {
    let Some(kind) = kind else { return true };
    match member.kind {
        Kind::File => kind == FileType::Reg && size == member.size,
        Kind::HardLink => kind != FileType::Dir,
        Kind::Dir => kind == FileType::Dir,
        Kind::Symlink => kind == FileType::Lnk,
        Kind::Char => kind == FileType::Chr,
        Kind::Block => kind == FileType::Blk,
        Kind::Fifo => kind == FileType::Fifo,
        Kind::Socket => kind == FileType::Sock,
    }
}

/// Directories whose owner needs access again: filehandle, new mode, path.
pub(crate) type Closed = Vec<(FileHandle, Fattr, Vec<u8>)>;

/// One level of directories, which are listed together.
pub(super) struct Level {
    pub(super) starts: Vec<Start>,
    /// Directories that earlier runs made, and whose final mode keeps their owner from filling them.
    pub(super) closed: Closed,
}

impl Listed {
    /// Lists one level of the directories that the journal names. Returns the next level.
    pub(super) async fn level(
        &mut self,
        nfs: &Nfs,
        (before, key): (&DoneBefore, Key),
        starts: Vec<Start>,
    ) -> Level {
        let mut next = Level { starts: Vec::new(), closed: Vec::new() };
        let options = WalkOptions { depth_max: 0, ..WalkOptions::default() };
        nfs.walk_from(starts, options, |listing| {
            let dir = listing.path;
            let entries = match listing.entries {
                Outcome::Committed(entries) => entries,
                Outcome::Failed(failure) if is_gone(failure.status()) => Vec::new(),
                // If the session failed, the next request says so.
                _ => {
                    self.blind.insert(key.path(&dir));
                    Vec::new()
                }
            };
            for entry in entries {
                let path = join(&dir, &entry.name);
                let number = key.path(&path);
                match (entry.meta.is_dir(), entry.fh) {
                    (false, fh) => {
                        if let Some(fh) = fh.filter(|_| before.parts.contains_key(&number)) {
                            self.parts.insert(number, (fh, entry.meta.size));
                        }
                        self.names.add(number, entry.meta.kind, entry.meta.size);
                    }
                    (true, Some(fh)) if before.dir(number) => {
                        next.closed.extend(closed(
                            &entry.meta,
                            &fh,
                            &path,
                            before.made_dirs.contains(&number),
                        ));
                        next.starts.push(Start::new(path, fh));
                    }
                    (true, _) => {}
                }
            }
        })
        .await;
        next
    }
}

fn is_gone(status: NfsStat) -> bool {
    matches!(status, NfsStat::NFS4ERR_NOENT | NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_NOTDIR)
}

/// The mode that lets the owner fill the directory. The final mode is set again at the end.
fn closed(meta: &Meta, fh: &FileHandle, path: &[u8], ours: bool) -> Option<(FileHandle, Fattr, Vec<u8>)> {
    let open = meta.mode | 0o700;
    (ours && open != meta.mode).then(|| {
        let attrs = fattr(&AttrValues { mode: Some(open), ..AttrValues::default() });
        (fh.clone(), attrs, path.to_vec())
    })
}
