//! A directory of the destination as bytes, while it is not in memory. No I/O.

use bytes::Bytes;
use landfast_nfs::v4::{Fattr, FileHandle};
use landfast_xdr::{Decode, Encode, Reader};

use super::dir::{Dir, DirState, new_dir};
use super::ids::DirId;
use crate::fs::Xattr;

const OPEN: u32 = 0;
const UNLISTED: u32 = 1;
const FAILED: u32 = 2;

/// See the module.
#[derive(Debug, Encode, Decode)]
pub(super) struct DirRecord {
    number: u64,
    /// The number of the directory that it is in.
    pub(super) parent: u64,
    pub(super) name: Bytes,
    state: u32,
    /// The handle, or why it failed.
    of_state: Bytes,
    all_known: bool,
    ours: bool,
    ahead: bool,
    finish: Option<FinalRecord>,
    xattrs: Vec<XattrRecord>,
}

#[derive(Debug, Encode, Decode)]
struct FinalRecord {
    attrs: Fattr,
    shown: Bytes,
}

#[derive(Debug, Encode, Decode)]
struct XattrRecord {
    name: Bytes,
    value: Bytes,
}

impl DirRecord {
    /// `parent`: the number of the directory that it is in.
    pub(super) fn of(dir: Dir, parent: u64) -> DirRecord {
        let (state, of_state) = match dir.state {
            DirState::Open(fh) if !dir.listed => (OPEN, fh.0),
            // What was listed is listed again.
            DirState::Open(fh) | DirState::Unlisted(fh) | DirState::Listing(fh) => (UNLISTED, fh.0),
            DirState::Failed(why) => (FAILED, why.into()),
            DirState::Making => (FAILED, Bytes::new()),
        };
        let finish = dir.finish.map(|(attrs, shown)| FinalRecord { attrs, shown: shown.into() });
        DirRecord {
            number: dir.number,
            parent,
            name: dir.name,
            state,
            of_state,
            all_known: dir.all_known && state != UNLISTED,
            ours: dir.ours,
            ahead: dir.ahead,
            finish,
            xattrs: dir.xattrs.into_iter().map(|(name, value)| XattrRecord { name, value }).collect(),
        }
    }

    pub(super) fn read(bytes: Vec<u8>) -> Option<DirRecord> {
        DirRecord::decode(&mut Reader::new(bytes.into())).ok()
    }

    pub(super) fn dir(self, parent: DirId) -> Dir {
        let state = match self.state {
            OPEN => DirState::Open(FileHandle(self.of_state)),
            UNLISTED => DirState::Unlisted(FileHandle(self.of_state)),
            _ => DirState::Failed(String::from_utf8_lossy(&self.of_state).into_owned()),
        };
        let finish = self.finish.map(|last| (last.attrs, last.shown.to_vec()));
        let xattrs = self.xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect();
        let (ours, ahead) = (self.ours, self.ahead);
        Dir { ours, ahead, finish, xattrs, ..new_dir(self.number, parent, self.name, state, self.all_known) }
    }

    /// The handle, the final attributes, the extended attributes and the name in the archive, if there are attributes to set.
    pub(super) fn last(self) -> Option<(FileHandle, Fattr, Vec<Xattr>, Vec<u8>)> {
        let dir = self.dir(DirId(0));
        let fh = dir.fh()?.clone();
        let (attrs, shown) = dir.finish?;
        Some((fh, attrs, dir.xattrs, shown))
    }
}
