//! Trees of this machine as members. Blocking.
//!
//! A file is opened before it is announced, so its announced size is that of the file that is read. A file that grows
//! is copied up to that size. A large one that shrinks meanwhile is reported as failed. A name that cannot be read is
//! reported and skipped.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::{member, named, system_text, unknown};
use crate::archive::{ArchiveError, Kind, Member, Segment};
use crate::fs::AsNamed;
use crate::limits::{PIECE_BYTES, SPARSE_BLOCK_BYTES};
use crate::local::{Attempt, Follow, Found, Links, Trouble, Walk, WalkOptions, segments, xattrs};
use crate::put::{Cause, DataError, MemberError, Members, SourceItem};
use crate::resume::{EarlierResult, Resume};

/// A tree or a single file to copy.
#[derive(Debug, Clone)]
pub struct LocalStart {
    pub path: PathBuf,
    /// Its path below the destination, with `/` between names. Empty: its contents go in the destination itself.
    pub name: Vec<u8>,
}

/// What happens to holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sparse {
    /// Holes stay holes.
    #[default]
    Auto,
    /// Blocks of zeroes become holes as well.
    Always,
    Never,
}

#[derive(Debug, Clone, Default)]
pub struct LocalOptions {
    pub follow: Follow,
    /// Copy directories of other filesystems, but not what is in them.
    pub one_file_system: bool,
    /// Enter directories, and copy special files as such.
    pub recursive: bool,
    /// Copy several names of one file as names of one file.
    pub links: bool,
    pub sparse: Sparse,
    /// Copy extended attributes; leave out those that cannot be read.
    pub xattrs: bool,
    /// When it is set, no further members are given.
    pub stop: Arc<AtomicBool>,
    /// What an earlier run did is not read again.
    pub resume: Option<Arc<Resume>>,
}

pub struct LocalTrees {
    options: LocalOptions,
    starts: VecDeque<LocalStart>,
    walk: Option<Walk>,
    links: Links,
    reading: Option<Reading>,
}

/// The file whose data is being read.
struct Reading {
    file: File,
    /// What is still to be read, in order.
    left: VecDeque<Segment>,
}

impl LocalTrees {
    /// The trees are read in this order.
    pub fn new(starts: impl IntoIterator<Item = LocalStart>, options: LocalOptions) -> LocalTrees {
        let starts = starts.into_iter().collect();
        LocalTrees { options, starts, walk: None, links: Links::default(), reading: None }
    }

    fn found(&mut self) -> Option<Result<Found, Trouble>> {
        if self.options.stop.load(Ordering::Acquire) {
            return None;
        }
        loop {
            if let Some(found) = self.walk.as_mut().and_then(Iterator::next) {
                return Some(found);
            }
            let LocalStart { path, name } = self.starts.pop_front()?;
            let LocalOptions { follow, one_file_system, recursive, .. } = self.options;
            let options = WalkOptions { follow, one_file_system, flat: !recursive };
            self.walk = Some(Walk::new(&path, name, options));
        }
    }

    fn member(&mut self, found: Found) -> Result<SourceItem, (Vec<u8>, MemberError)> {
        let Some(kind) = found.meta.kind.and_then(Kind::of) else {
            return Err((found.path, MemberError::new(Cause::Other, "it has a type that NFS does not have")));
        };
        let mut member = member(&found.path, kind, &found.meta, found.text.clone(), &AsNamed);
        if let Some(known) = self.known(&found, &member) {
            return known;
        }
        match kind {
            Kind::File => {
                let opened = self.open(&found, &mut member);
                self.reading = Some(opened.map_err(|e| (found.path.clone(), why(Cause::Unopened, &e)))?);
            }
            Kind::Char | Kind::Block | Kind::Fifo | Kind::Socket if !self.options.recursive => {
                let why = MemberError::new(Cause::Other, "a special file is copied with --recursive only");
                return Err((found.path, why));
            }
            _ => {}
        }
        if self.options.xattrs {
            let read = match (&self.reading, kind) {
                (Some(reading), _) => xattrs(&reading.file),
                (None, Kind::Dir) => found.open().and_then(|dir| xattrs(&dir)),
                _ => Ok(Vec::new()),
            };
            member.xattrs = named(read.unwrap_or_default());
        }
        if self.options.links
            && let Some(first) =
                self.links.earlier(&found.meta, &found.path).map_err(|e| (found.path.clone(), unknown(&e)))?
        {
            (member.kind, member.link) = (Kind::HardLink, first);
            (member.size, member.stored, member.sparse, member.xattrs) = (0, 0, None, Vec::new());
            self.reading = None;
        }
        Ok(SourceItem::Member(member))
    }

    /// What an earlier run did with it; `None`: it must be copied.
    fn known(
        &mut self,
        found: &Found,
        member: &Member,
    ) -> Option<Result<SourceItem, (Vec<u8>, MemberError)>> {
        let resume = self.options.resume.as_ref()?;
        if member.kind == Kind::Dir {
            return None;
        }
        let mut member = member.clone();
        if member.kind == Kind::File {
            member.size = found.meta.size;
        }
        let first = match self.options.links.then(|| self.links.first(&found.meta)) {
            Some(Err(e)) => return Some(Err((member.path, unknown(&e)))),
            Some(Ok(first)) => first,
            None => None,
        };
        if let Some(first) = first {
            (member.kind, member.link, member.size) = (Kind::HardLink, first.to_vec(), 0);
        }
        match resume.object(&member) {
            EarlierResult::Done => {
                if self.options.links
                    && let Err(e) = self.links.earlier(&found.meta, &found.path)
                {
                    return Some(Err((member.path, unknown(&e))));
                }
                Some(Ok(SourceItem::DoneEarlier(member.path)))
            }
            EarlierResult::JustMade => {
                Some(Err((member.path, MemberError::new(Cause::JustMade, "this run has just made it"))))
            }
            EarlierResult::NotDone | EarlierResult::DoneTooSoon(_) => None,
        }
    }

    fn open(&self, found: &Found, member: &mut Member) -> io::Result<Reading> {
        let file = found.open()?;
        let now = file.metadata()?;
        if !now.is_file() {
            return Err(io::Error::other("it has become something else"));
        }
        member.size = now.len();
        let whole = vec![Segment { offset: 0, len: member.size }];
        let data = match self.options.sparse {
            Sparse::Never => whole.clone(),
            Sparse::Auto if found.meta.used >= member.size => whole.clone(),
            Sparse::Auto => segments(&file, member.size)?,
            Sparse::Always => nonzero(&file, segments(&file, member.size)?)?,
        };
        member.stored = data.iter().map(|s| s.len).sum();
        member.sparse = (data != whole && member.size > 0).then(|| data.clone());
        Ok(Reading { file, left: data.into() })
    }
}

impl Members for LocalTrees {
    fn next_member(&mut self) -> Result<Option<SourceItem>, ArchiveError> {
        self.reading = None;
        Ok(match self.found() {
            None => None,
            Some(Err(Trouble { path, attempt, error })) => {
                let cause = match attempt {
                    Attempt::Stat => Cause::Unseen,
                    Attempt::List => Cause::Unlisted,
                };
                Some(SourceItem::Unreadable(path, why(cause, &error)))
            }
            Some(Ok(found)) => Some(match self.member(found) {
                Ok(given) => given,
                Err((path, why)) => SourceItem::Unreadable(path, why),
            }),
        })
    }

    fn data(&mut self, max: usize) -> Result<Bytes, DataError> {
        let Some(Reading { file, left }) = &mut self.reading else { return Ok(Bytes::new()) };
        let Some(segment) = left.front_mut() else { return Ok(Bytes::new()) };
        let n = usize::try_from(segment.len).unwrap_or(usize::MAX).min(max);
        let mut data = vec![0; n];
        let got = read_at(file, &mut data, segment.offset).map_err(|e| DataError::Member(system_text(&e)))?;
        data.truncate(got);
        (segment.offset, segment.len) = (segment.offset + got as u64, segment.len - got as u64);
        if segment.len == 0 {
            left.pop_front();
        }
        Ok(data.into())
    }

    fn skip(&mut self, mut bytes: u64) -> Result<(), DataError> {
        let Some(Reading { left, .. }) = &mut self.reading else { return Ok(()) };
        while let Some(segment) = left.front_mut().filter(|_| bytes > 0) {
            let n = segment.len.min(bytes);
            (segment.offset, segment.len, bytes) = (segment.offset + n, segment.len - n, bytes - n);
            if segment.len == 0 {
                left.pop_front();
            }
        }
        Ok(())
    }
}

/// The parts of these segments that do not read as zeroes, in whole blocks.
fn nonzero(file: &File, segments: Vec<Segment>) -> io::Result<Vec<Segment>> {
    let mut all: Vec<Segment> = Vec::new();
    let mut buf = vec![0; PIECE_BYTES];
    for segment in segments {
        let end = segment.offset + segment.len;
        let mut at = segment.offset;
        while at < end {
            let n = usize::try_from(end - at).unwrap_or(usize::MAX).min(buf.len());
            let got = read_at(file, &mut buf[..n], at)?;
            if got == 0 {
                break;
            }
            for block in buf[..got].chunks(SPARSE_BLOCK_BYTES) {
                let len = block.len() as u64;
                if block.iter().any(|b| *b != 0) {
                    match all.last_mut().filter(|last| last.offset + last.len == at) {
                        Some(last) => last.len += len,
                        None => all.push(Segment { offset: at, len }),
                    }
                }
                at += len;
            }
        }
    }
    Ok(all)
}

/// Reads until `buf` is full or the file ends.
fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn why(cause: Cause, error: &io::Error) -> MemberError {
    MemberError::new(cause, system_text(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn zeroes_are_holes_when_asked() {
        let mut file = tempfile::tempfile().unwrap();
        for byte in [1, 0, 0, 2] {
            file.write_all(&[byte; SPARSE_BLOCK_BYTES]).unwrap();
        }
        file.write_all(b"end").unwrap();
        let block = SPARSE_BLOCK_BYTES as u64;
        let whole = vec![Segment { offset: 0, len: 4 * block + 3 }];
        let want = [Segment { offset: 0, len: block }, Segment { offset: 3 * block, len: block + 3 }];
        assert_eq!(nonzero(&file, whole).unwrap(), want);
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_rest_comes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"data").unwrap();
        std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        let start = |path: PathBuf, name: &str| LocalStart { path, name: name.into() };
        let starts = [start(dir.path().join("none"), "x"), start(dir.path().to_owned(), "t")];
        let options = LocalOptions { recursive: true, links: true, ..LocalOptions::default() };
        let mut trees = LocalTrees::new(starts, options);
        let mut all = Vec::new();
        while let Some(given) = trees.next_member().unwrap() {
            all.push(match given {
                SourceItem::Member(m) => {
                    let data = trees.data(100).unwrap();
                    format!("{} {:?} {:?} {}", m.path.escape_ascii(), m.kind, data, m.link.escape_ascii())
                }
                SourceItem::Copy(..) | SourceItem::Agreed(_) => {
                    unreachable!("nothing here is on a server, or asks")
                }
                SourceItem::Unreadable(path, why) => format!("{} {:?} {why}", path.escape_ascii(), why.cause),
                SourceItem::DoneEarlier(path) => format!("{} done", path.escape_ascii()),
            });
        }
        let want = [
            "x Unseen No such file or directory",
            "t Dir b\"\" ",
            "t/a File b\"data\" ",
            "t/b HardLink b\"\" t/a",
        ];
        assert_eq!(all, want);
    }
}
