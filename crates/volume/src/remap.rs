//! The remap table: objects that a crash lost and recovery made again.
//!
//! Such an object has a new kernel handle and a new inode number, but a client must see the same file as before. A
//! row says: what clients and older records call `old` is now `new`, and its fileid is still `fileid`. Handles are
//! translated on the way in ([`Remap::inward`]) and on the way out ([`Remap::outward`]).
//!
//! The filesystem may give the number of a lost inode to another file, but two live files must never share a fileid. So
//! the numbers of lost inodes are *claimed*: an inode with a claimed number reports it with a distinguishing top byte
//! ([`Remap::fileid`]). A claim outlives its row, since the other file keeps the fileid that it has reported.
//!
//! When an object is removed its row is purged, but on disk only by a checkpoint that also made the removal durable
//! ([`Remap::cut`], [`Remap::drop_purged`]): until then a crash may bring the object back.
//!
//! Invariants: each `new` has one outward identity, the first that clients ever saw (a chain of several crashes is
//! compressed). A row is durable before its object can be reached by a name.

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::kernel::OwnedFd;
use crate::limits::CLAIMS_MAX;
use crate::objmap::{ObjMap, ObjSet};
use crate::record::ObjId;
use crate::state;

pub(crate) const REMAP_FILE: &str = "remap";

/// First value of the top byte of a fileid whose inode number another object has claimed.
const CLASH_FIRST: u64 = 0x80;

/// One object that was made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub old: ObjId,
    pub new: ObjId,
    pub fileid: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    rows: Vec<Row>,
    /// (new, outward) of each object.
    outward: Vec<(ObjId, ObjId)>,
    claims: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Remap {
    /// From old identity to row.
    rows: ObjMap<Row>,
    /// From new identity to the one that clients know.
    outward: ObjMap<ObjId>,
    /// Inode numbers of lost objects, oldest first.
    claims: VecDeque<u64>,
    claimed: HashSet<u64>,
    /// Objects (by `new`) removed since the last cut; below, those removed before it.
    purged: Vec<ObjId>,
    purged_before_cut: Vec<ObjId>,
    /// Rows were dropped since the table was last saved.
    unsaved: bool,
}

impl Remap {
    /// Reads the table from a volume's state directory; `None` if there is none.
    pub fn load(state_dir: &OwnedFd) -> std::io::Result<Option<Remap>> {
        match state::read(state_dir, REMAP_FILE)? {
            None => Ok(None),
            Some(bytes) => Remap::decode(&bytes).map(Some).map_err(|e| {
                std::io::Error::new(std::io::ErrorKind::InvalidData, format!("state file {REMAP_FILE}: {e}"))
            }),
        }
    }

    pub fn save(&self, state_dir: &OwnedFd) -> std::io::Result<()> {
        state::replace(state_dir, REMAP_FILE, &self.encode()?)
    }

    /// As [`Remap::save`], where there is no hurry: returns false if the filesystem is full.
    pub fn save_if_room(&self, state_dir: &OwnedFd) -> std::io::Result<bool> {
        state::replace_if_room(state_dir, REMAP_FILE, &self.encode()?)
    }

    /// The table as [`Remap::drop_purged`] left it is saved.
    pub fn is_saved(&mut self) {
        self.unsaved = false;
    }

    pub(crate) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut stored = Stored {
            rows: self.rows.values().cloned().collect(),
            outward: self.outward.iter().map(|(n, o)| (n.clone(), o.clone())).collect(),
            claims: self.claims.iter().copied().collect(),
        };
        stored.rows.sort_by(|a, b| a.old.cmp(&b.old));
        stored.outward.sort();
        postcard::to_allocvec(&stored).map_err(std::io::Error::other)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Remap, postcard::Error> {
        let stored: Stored = postcard::from_bytes(bytes)?;
        Ok(Remap {
            rows: stored.rows.into_iter().map(|r| (r.old.clone(), r)).collect(),
            outward: stored.outward.into_iter().collect(),
            claimed: stored.claims.iter().copied().collect(),
            claims: stored.claims.into(),
            ..Remap::default()
        })
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when every object is known by its own handle and number.
    pub fn is_trivial(&self) -> bool {
        self.rows.is_empty() && self.claims.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All identities in the table, old and new.
    pub fn identities(&self) -> impl Iterator<Item = &ObjId> {
        self.rows.values().flat_map(|r| [&r.old, &r.new])
    }

    /// The present identity for one from a client or an older record, if the object was made again.
    pub fn inward(&self, old: &ObjId) -> Option<&ObjId> {
        self.rows.get(old).map(|r| &r.new)
    }

    /// The identity by which clients know `new`, if it differs.
    pub fn outward(&self, new: &ObjId) -> Option<&ObjId> {
        self.outward.get(new)
    }

    /// The fileid to report for the object `id` with this inode number; never that of another live object.
    pub fn fileid(&self, id: &ObjId, ino: u64) -> u64 {
        if let Some(row) = self.outward.get(id).and_then(|old| self.rows.get(old)) {
            return row.fileid;
        }
        if !self.claimed.contains(&ino) {
            return ino;
        }
        (CLASH_FIRST..=0xff)
            .map(|k| ino | k << 56)
            .find(|f| !self.claimed.contains(f))
            .unwrap_or(ino | 0xff << 56)
    }

    /// Enters that `old` was made again as `new`. If `old` had itself been made again from an older identity, that one also
    /// leads to `new` now and remains what clients know.
    pub fn insert(&mut self, old: ObjId, new: ObjId, fileid: u64) {
        let known = match self.outward.remove(&old) {
            Some(known) => {
                self.rows.values_mut().filter(|r| r.new == old).for_each(|r| r.new = new.clone());
                known
            }
            None => match self.rows.get(&old).map(|r| r.new.clone()) {
                // Made again once more: the first copy was lost before it was used.
                Some(lost) => self.outward.remove(&lost).unwrap_or_else(|| old.clone()),
                None => old.clone(),
            },
        };
        let fileid = self.rows.get(&known).map_or(fileid, |r| r.fileid);
        if known != old {
            self.rows.insert(known.clone(), Row { old: known.clone(), new: new.clone(), fileid });
        }
        self.rows.insert(old.clone(), Row { old, new: new.clone(), fileid });
        self.outward.insert(new, known);
        if self.claimed.insert(fileid) {
            self.claims.push_back(fileid);
            if self.claims.len() > CLAIMS_MAX {
                self.claims.pop_front().inspect(|oldest| _ = self.claimed.remove(oldest));
            }
        }
    }

    /// Notes that the object `new` is gone. The second half of the next checkpoint removes it on disk.
    pub fn purge(&mut self, new: &ObjId) {
        if self.outward.contains_key(new) {
            self.purged.push(new.clone());
        }
    }

    /// First half, at a checkpoint's cut: the coming `syncfs` covers all removals up to here.
    pub fn cut(&mut self) {
        self.purged_before_cut.append(&mut self.purged);
    }

    /// Second half, after the `syncfs`: drops the rows of objects removed before the cut. Returns true if the table has changed
    /// and is to be saved, until [`Remap::is_saved`]. (A saved row whose object is gone is harmless: its handle is stale either way.)
    pub fn drop_purged(&mut self) -> bool {
        let gone = std::mem::take(&mut self.purged_before_cut);
        for new in &gone {
            self.outward.remove(new);
        }
        let gone: ObjSet = gone.into_iter().collect();
        if !gone.is_empty() {
            self.rows.retain(|_, r| !gone.contains(&r.new));
            self.unsaved = true;
        }
        self.unsaved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel;
    use crate::record::KernelHandle;

    fn id(n: u8) -> ObjId {
        ObjId { kh: KernelHandle { kind: 1, bytes: [n; 8][..].into() }, btime_ns: i64::from(n) }
    }

    #[test]
    fn chains_are_compressed_and_clients_see_the_first_identity() {
        let mut m = Remap::default();
        m.insert(id(1), id(2), 10);
        m.insert(id(2), id(3), 20);
        m.insert(id(3), id(4), 30);
        for old in 1..=3 {
            assert_eq!(m.inward(&id(old)), Some(&id(4)));
        }
        assert_eq!(m.outward(&id(4)), Some(&id(1)));
        assert_eq!(m.outward(&id(3)), None);
        assert_eq!(m.fileid(&id(4), 99), 10);
        let again = Remap::decode(&m.encode().unwrap()).unwrap();
        assert_eq!(again.outward(&id(4)), Some(&id(1)));
        assert_eq!(again.fileid(&id(4), 99), 10);
        assert_eq!(again.fileid(&id(9), 10), 10 | 0x80 << 56);
    }

    #[test]
    fn a_copy_that_was_lost_is_replaced() {
        let mut m = Remap::default();
        m.insert(id(1), id(2), 10);
        m.insert(id(1), id(3), 10);
        assert_eq!(m.inward(&id(1)), Some(&id(3)));
        assert_eq!(m.outward(&id(2)), None);
        assert_eq!(m.outward(&id(3)), Some(&id(1)));
    }

    #[test]
    fn no_two_live_objects_share_a_fileid() {
        let mut m = Remap::default();
        m.insert(id(1), id(2), 258);
        assert_eq!(m.fileid(&id(7), 258), 258 | 0x80 << 56);
        // and that one is lost in its turn, and its number taken by a third
        m.insert(id(7), id(8), m.fileid(&id(7), 258));
        assert_eq!(m.fileid(&id(9), 258), 258 | 0x81 << 56);
        assert_eq!(m.fileid(&id(8), 300), 258 | 0x80 << 56);
        assert_eq!(m.fileid(&id(9), 300), 300);
    }

    #[test]
    fn purged_only_by_a_checkpoint_that_began_later() {
        let mut m = Remap::default();
        m.insert(id(1), id(2), 10);
        m.insert(id(3), id(4), 11);
        m.purge(&id(2));
        assert!(!m.drop_purged());
        assert_eq!(m.inward(&id(1)), Some(&id(2)));
        m.cut();
        m.purge(&id(4));
        assert!(m.drop_purged());
        assert!(m.drop_purged(), "until it is saved");
        m.is_saved();
        assert!(!m.drop_purged());
        assert_eq!(m.inward(&id(1)), None);
        assert_eq!(m.inward(&id(3)), Some(&id(4)));
        // the other file goes on reporting what it did
        assert_eq!(m.fileid(&id(5), 10), 10 | 0x80 << 56);
        m.purge(&id(5));
        m.cut();
        assert!(m.drop_purged());
        assert!(m.is_empty());
    }

    #[test]
    fn survives_in_its_file() {
        let temp = tempfile::tempdir().unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let dir = kernel::open(temp.path(), flags, rustix::fs::Mode::empty()).unwrap();
        assert!(Remap::load(&dir).unwrap().is_none());
        let mut m = Remap::default();
        m.insert(id(1), id(2), 10);
        m.save(&dir).unwrap();
        assert_eq!(Remap::load(&dir).unwrap().unwrap().inward(&id(1)), Some(&id(2)));
        std::fs::write(temp.path().join(REMAP_FILE), b"nonsense").unwrap();
        assert_eq!(Remap::load(&dir).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    }
}
