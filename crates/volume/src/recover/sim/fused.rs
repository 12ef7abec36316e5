//! A filesystem that stops recovery at a chosen call, as a power cut would.

use std::io::{Error, Result};

use bytes::Bytes;

use crate::record::{Birth, Kind, ObjId, Timestamp};
use crate::recover::tree::{KeptTimes, Made, Meta, Tree};

/// Passes all calls on until the fuse blows; after that no change gets through. While `over_quota` says so, nothing gets room.
pub(super) struct Fused<'a, T> {
    pub(super) tree: &'a mut T,
    /// How many more calls get through; `None`: all.
    pub(super) left: Option<usize>,
    pub(super) over_quota: &'a dyn Fn() -> bool,
}

impl<T: Tree> Fused<'_, T> {
    fn on(&mut self) -> Result<&mut T> {
        match &mut self.left {
            Some(0) => Err(Error::other("power cut")),
            Some(left) => {
                *left -= 1;
                Ok(self.tree)
            }
            None => Ok(self.tree),
        }
    }

    fn charged(&mut self) -> Result<&mut T> {
        if (self.over_quota)() { Err(rustix::io::Errno::DQUOT.into()) } else { self.on() }
    }
}

impl<T: Tree> Tree for Fused<'_, T> {
    fn probe(&mut self, obj: &ObjId) -> Result<Option<Meta>> {
        self.tree.probe(obj)
    }
    fn lookup(&mut self, dir: &ObjId, name: &[u8]) -> Result<Option<(ObjId, Kind)>> {
        self.tree.lookup(dir, name)
    }
    fn path(&mut self, dir: &ObjId) -> Result<Option<String>> {
        self.tree.path(dir)
    }
    fn hands_down(&mut self, dir: &ObjId) -> Result<bool> {
        self.tree.hands_down(dir)
    }
    fn list(&mut self, dir: &ObjId) -> Result<Vec<Bytes>> {
        self.tree.list(dir)
    }
    fn stage(&self) -> ObjId {
        self.tree.stage()
    }
    fn lost_found(&self) -> ObjId {
        self.tree.lost_found()
    }
    fn make(&mut self, dir: &ObjId, name: &[u8], birth: &Birth, mode: u32) -> Result<Made> {
        self.charged()?.make(dir, name, birth, mode)
    }
    fn link(&mut self, obj: &ObjId, dir: &ObjId, name: &[u8]) -> Result<()> {
        self.on()?.link(obj, dir, name)
    }
    fn rename(&mut self, from: (&ObjId, &[u8]), to: (&ObjId, &[u8])) -> Result<()> {
        self.on()?.rename(from, to)
    }
    fn unlink(&mut self, dir: &ObjId, name: &[u8]) -> Result<()> {
        self.on()?.unlink(dir, name)
    }
    fn rmdir(&mut self, dir: &ObjId, name: &[u8]) -> Result<bool> {
        self.on()?.rmdir(dir, name)
    }
    fn write(&mut self, obj: &ObjId, offset: u64, bytes: &Bytes) -> Result<()> {
        self.charged()?.write(obj, offset, bytes)
    }
    fn read_disk(&mut self, obj: &ObjId, offset: u64) -> Result<Vec<u8>> {
        self.tree.read_disk(obj, offset)
    }
    fn punch(&mut self, obj: &ObjId, offset: u64, len: u64) -> Result<()> {
        self.on()?.punch(obj, offset, len)
    }
    fn truncate(&mut self, obj: &ObjId, size: u64) -> Result<()> {
        self.on()?.truncate(obj, size)
    }
    fn chown(&mut self, obj: &ObjId, uid: u32, gid: u32) -> Result<()> {
        self.charged()?.chown(obj, uid, gid)
    }
    fn chmod(&mut self, obj: &ObjId, mode: u32) -> Result<()> {
        self.on()?.chmod(obj, mode)
    }
    fn set_times(&mut self, obj: &ObjId, atime: Option<Timestamp>, mtime: Timestamp) -> Result<()> {
        self.on()?.set_times(obj, atime, mtime)
    }
    fn xattr(&mut self, obj: &ObjId, name: &[u8]) -> Result<Option<Bytes>> {
        self.tree.xattr(obj, name)
    }
    fn set_xattr(&mut self, obj: &ObjId, name: &[u8], value: Option<&Bytes>) -> Result<()> {
        self.on()?.set_xattr(obj, name, value)
    }
    fn sync(&mut self) -> Result<()> {
        self.on()?.sync()
    }
    fn let_go(&mut self) {
        self.tree.let_go();
    }
    fn room(&mut self) -> Result<u64> {
        self.tree.room()
    }
    fn remapped(&self, old: &ObjId) -> Option<ObjId> {
        self.tree.remapped(old)
    }
    fn save_rows(&mut self, rows: Vec<(ObjId, ObjId, u64)>) -> Result<()> {
        self.on()?.save_rows(rows)
    }
    fn kept_times(&mut self, marker: u64) -> Result<Option<KeptTimes>> {
        self.tree.kept_times(marker)
    }
    fn keep_times(&mut self, marker: u64, times: Option<&KeptTimes>) -> Result<()> {
        self.on()?.keep_times(marker, times)
    }
}
