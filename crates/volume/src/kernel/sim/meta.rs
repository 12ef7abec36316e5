//! The metadata of an object of the simulated filesystem.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::files::BLOCK;
use crate::types::Kind;

/// The number of an object in the simulation. Unlike an inode number it is never reused.
pub type Serial = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub serial: Serial,
    pub position: u64,
}

/// Times are nanoseconds since 1970.
#[derive(Clone, Debug)]
pub struct Meta {
    pub kind: Kind,
    pub ino: u64,
    pub generation: u32,
    pub btime: i64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub rdev: (u32, u32),
    pub size: u64,
    /// The minimum size after a power cut.
    pub hard: u64,
    /// The extent of each block of a file, 0 for a hole.
    pub map: Rc<Vec<u32>>,
    pub entries: Rc<BTreeMap<Rc<[u8]>, Entry>>,
    pub parent: Serial,
    /// XFS: new objects in a directory inherit its project, and objects with another project cannot be moved there; 0: none.
    pub project: u32,
    pub target: Rc<[u8]>,
    pub xattrs: Rc<BTreeMap<Vec<u8>, Rc<[u8]>>>,
}

impl Meta {
    pub fn blocks(&self) -> u64 {
        1 + self.map.iter().filter(|e| **e != 0).count() as u64
    }

    pub fn blocks_of(size: u64) -> usize {
        size.div_ceil(BLOCK as u64) as usize
    }
}
