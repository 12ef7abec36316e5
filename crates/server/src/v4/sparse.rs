//! ALLOCATE, DEALLOCATE, IO_ADVISE, READ_PLUS, SEEK (RFC 7862 sections 15.1, 15.4, 15.5, 15.10, 15.11).

use super::context::{Context, Obj, OpError, OpResult};
use crate::limits;
use crate::state::opens::{READ, Share, WRITE};
use landfast_nfs::v4::args::ReadPlusArgs;
use landfast_nfs::v4::data::{
    CONTENT_DATA, CONTENT_HOLE, IoAdviseArgs, RangeArgs, SeekArgs, SeekRes, advice,
};
use landfast_nfs::v4::res::{ReadPlusContent, ReadPlusRes};
use landfast_nfs::v4::{Bitmap, NfsStat, ResBody, Stateid};
use landfast_volume::faults::point;
use landfast_volume::{Error, Hint, Kind, OpenFile, Piece, Volume};

/// Bytes of a READ_PLUS result besides its data: number, status, end of file, count; two segments with kind, offset and
/// length; padding.
const READ_PLUS_AROUND: usize = 8 + 4 + 4 + 2 * 20 + 3;

/// The hints that are passed on to the kernel; of several the first in this list counts.
const HINTS: [(u32, Hint); 7] = [
    (advice::WILLNEED, Hint::WillNeed),
    (advice::WILLNEED_OPPORTUNISTIC, Hint::WillNeed),
    (advice::DONTNEED, Hint::DontNeed),
    (advice::NOREUSE, Hint::NoReuse),
    (advice::SEQUENTIAL, Hint::Sequential),
    (advice::RANDOM, Hint::Random),
    (advice::NORMAL, Hint::Normal),
];

impl Context<'_> {
    /// [`Context::file_for`] for operations that return `WRONG_TYPE` for anything but a regular file.
    fn plain_file_for(&mut self, stateid: &Stateid, want: Share) -> Result<(Obj, OpenFile), OpError> {
        if self.node().is_ok_and(|obj| obj.node.kind() != Kind::File) {
            return Err(NfsStat::NFS4ERR_WRONG_TYPE.into());
        }
        self.file_for(stateid, want)
    }

    pub(super) fn allocate(&mut self, a: &RangeArgs) -> OpResult {
        let (obj, file) = self.plain_file_for(&a.stateid, WRITE)?;
        self.work.whole(a.length)?;
        self.leaves(&obj, a.length)?;
        obj.volume().allocate(self.modify(&obj)?, &file, a.offset, a.length)?;
        Ok(ResBody::Empty)
    }

    pub(super) fn deallocate(&mut self, a: &RangeArgs) -> OpResult {
        let (obj, file) = self.plain_file_for(&a.stateid, WRITE)?;
        let size = obj.volume().getattr(&obj.node)?.size;
        self.work.whole(size.saturating_sub(a.offset).min(a.length))?;
        obj.volume().deallocate(self.modify(&obj)?, &file, a.offset, a.length)?;
        Ok(ResBody::Empty)
    }

    pub(super) fn seek(&mut self, a: &SeekArgs) -> OpResult {
        let what = match a.what {
            CONTENT_DATA => Piece::Data,
            CONTENT_HOLE => Piece::Hole,
            _ => return Err(NfsStat::NFS4ERR_UNION_NOTSUPP.into()),
        };
        let (obj, file) = self.file_for(&a.stateid, READ)?;
        let sought = obj.volume().seek(&file, a.offset, what)?;
        Ok(ResBody::Seek(SeekRes { eof: sought.found >= sought.size, offset: sought.found }))
    }

    /// IO_ADVISE: a hint that cannot be honoured is no error.
    pub(super) fn io_advise(&mut self, a: &IoAdviseArgs) -> OpResult {
        let (obj, file) = self.plain_file_for(&a.stateid, READ)?;
        let mut taken = Bitmap::default();
        if let Some((number, hint)) = HINTS.iter().find(|(number, _)| a.hints.has(*number))
            && obj.volume().advise(&file, a.offset, a.count, *hint).is_ok()
        {
            taken.set(*number);
        }
        Ok(ResBody::IoAdvise(taken))
    }

    pub(super) fn read_plus(&mut self, a: &ReadPlusArgs) -> OpResult {
        let (obj, file) = self.file_for(&a.stateid, READ)?;
        let room = self.room.saturating_sub(READ_PLUS_AROUND);
        let count = (a.count.min(limits::IO_BYTES_MAX) as usize).min(room) as u32;
        if a.count > 0 && count == 0 {
            return Err(NfsStat::NFS4ERR_REP_TOO_BIG.into());
        }
        Ok(ResBody::ReadPlus(segments(obj.volume(), &file, a.offset, count)?))
    }
}

/// At most two segments: a hole and then data, or data and then a hole. Holes that are too small for a segment are
/// data. As with READ, each byte is what the file held at some moment of the request. If the file is truncated
/// meanwhile, the answer ends where the file does.
fn segments(volume: &Volume, file: &OpenFile, offset: u64, count: u32) -> Result<ReadPlusRes, Error> {
    let hole = |from: u64, to: u64| ReadPlusContent::Hole { offset: from, length: to - from };
    let (first, size) = match volume.seek(file, offset, Piece::Data) {
        Ok(s) => (s.found, s.size),
        Err(Error::BeyondEnd) => return Ok(ReadPlusRes { eof: true, contents: Vec::new() }),
        Err(e) => return Err(e),
    };
    let end = offset.saturating_add(u64::from(count)).min(size);
    let mut contents = Vec::new();
    if first >= end {
        if offset < end {
            contents.push(hole(offset, end));
        }
        return Ok(ReadPlusRes { eof: end == size, contents });
    }
    let worth = |from: u64, to: u64| to.saturating_sub(from) >= limits::READ_PLUS_HOLE_MIN;
    let (mut from, mut to, mut behind) = (offset, end, None);
    if worth(offset, first) {
        contents.push(hole(offset, first));
        from = first;
    } else {
        point("sparse.data-found");
        let gap = match volume.seek(file, first, Piece::Hole) {
            Ok(sought) => sought.found,
            // Truncated meanwhile: READ says what is still there.
            Err(Error::BeyondEnd) => end,
            Err(e) => return Err(e),
        };
        if worth(gap, end) && gap < end {
            let next = volume.seek(file, gap, Piece::Data).map_or(end, |s| s.found);
            if next >= end {
                (to, behind) = (gap, Some(hole(gap, end)));
            }
        }
    }
    let len = u32::try_from(to - from).unwrap_or(u32::MAX);
    let (data, mut eof) = volume.read(file, from, len)?;
    let whole = data.len() as u64 == to - from;
    if data.is_empty() {
        eof &= contents.is_empty();
    } else {
        contents.push(ReadPlusContent::Data { offset: from, data });
    }
    if let Some(behind) = behind.filter(|_| whole) {
        contents.push(behind);
        eof = end == size;
    }
    Ok(ReadPlusRes { eof, contents })
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use landfast_volume::faults::hold;
    use landfast_volume::{Cred, Durability, OpenMode, OpenOptions};
    use std::time::Duration;

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn rfc7862_15_10_a_file_that_is_truncated_between_two_looks_is_read_as_it_is_then() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7; 64 << 10]).expect("written");
        let options = OpenOptions { accept_weak: true, ..OpenOptions::new(dir.path(), Durability::Sync) };
        let (volume, _) = Volume::open(options).expect("the volume opens");
        let node = volume.lookup(&Cred::root(), &volume.root(), b"f").expect("there");
        let mode = OpenMode { read: true, write: false, owner_override: false };
        let file = volume.open_file(&Cred::root(), &node, mode).expect("opened");
        let held = hold("sparse.data-found");
        std::thread::scope(|s| {
            let reader = s.spawn(|| segments(&volume, &file, 8 << 10, 4 << 10));
            assert!(held.has(1, Duration::from_secs(30)), "it has found data");
            std::fs::File::options()
                .write(true)
                .open(&path)
                .and_then(|f| f.set_len(4 << 10))
                .expect("truncated");
            drop(held);
            let found = reader.join().expect("no panic");
            assert_eq!(found, Ok(ReadPlusRes { eof: true, contents: Vec::new() }));
        });
    }
}
