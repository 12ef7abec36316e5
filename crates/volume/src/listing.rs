//! Directory listings, kept for the next reader.
//!
//! A listing is valid exactly while the directory's ctime is the one under which it was read. It is kept only if that ctime
//! had settled before the reading began, so that every later change gives another ctime (see [`crate::change`]). It does
//! not contain the entries' attributes.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::{LISTING_BYTES_MAX, LISTINGS_MAX};
use crate::node::Node;
use crate::types::Kind;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) position: u64,
    pub(crate) ino: u64,
    /// The kind according to the directory, if it tells.
    pub(crate) kind: Option<Kind>,
}

struct Entry {
    position: u64,
    ino: u64,
    name_at: u32,
    name_len: u16,
    kind: Option<Kind>,
}

#[derive(Default)]
pub(crate) struct Listing {
    entries: Vec<Entry>,
    names: Vec<u8>,
}

impl Listing {
    /// Adds an entry. Returns false if the listing has reached its maximum size.
    pub(crate) fn add(&mut self, e: Found<'_>) -> bool {
        let bytes = self.names.len() + e.name.len() + (self.entries.len() + 1) * size_of::<Entry>();
        let (Ok(name_at), Ok(name_len)) = (u32::try_from(self.names.len()), u16::try_from(e.name.len()))
        else {
            return false;
        };
        if bytes > LISTING_BYTES_MAX {
            return false;
        }
        self.names.extend_from_slice(e.name);
        self.entries.push(Entry { position: e.position, ino: e.ino, name_at, name_len, kind: e.kind });
        true
    }

    /// The entries after a position; 0 is the beginning. `None` if no entry ends there.
    pub(crate) fn after(&self, position: u64) -> Option<impl Iterator<Item = Found<'_>>> {
        let first = match position {
            0 => 0,
            _ => self.entries.iter().position(|e| e.position == position)? + 1,
        };
        let rest = self.entries.get(first..)?;
        Some(rest.iter().map(|e| {
            let name = self.names.get(e.name_at as usize..).and_then(|n| n.get(..usize::from(e.name_len)));
            Found { name: name.unwrap_or_default(), position: e.position, ino: e.ino, kind: e.kind }
        }))
    }
}

struct CachedListing {
    dir: Node,
    ctime_ns: u64,
    listing: Arc<Listing>,
}

/// The latest listings, bounded in number and size.
#[derive(Default)]
pub(crate) struct Listings(Mutex<VecDeque<CachedListing>>);

impl Listings {
    /// The kept listing of a directory, if it was read under this ctime.
    pub(crate) fn get(&self, dir: &Node, ctime_ns: u64) -> Option<Arc<Listing>> {
        let kept = self.0.lock();
        kept.iter().find(|k| k.dir == *dir && k.ctime_ns == ctime_ns).map(|k| k.listing.clone())
    }

    /// Keeps a listing in place of an earlier one of the same directory, or of the oldest one.
    pub(crate) fn keep(&self, dir: &Node, ctime_ns: u64, mut listing: Listing) {
        listing.entries.shrink_to_fit();
        listing.names.shrink_to_fit();
        let mut kept = self.0.lock();
        kept.retain(|k| k.dir != *dir);
        while kept.len() >= LISTINGS_MAX {
            kept.pop_front();
        }
        kept.push_back(CachedListing { dir: dir.clone(), ctime_ns, listing: Arc::new(listing) });
    }

    /// Forgets a dead directory, so that its node can be dropped.
    pub(crate) fn forget(&self, dir: &Node) {
        self.0.lock().retain(|k| k.dir != *dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(n: u64, name: &[u8]) -> Found<'_> {
        Found { name, position: n, ino: 100 + n, kind: n.is_multiple_of(2).then_some(Kind::File) }
    }

    #[test]
    fn a_listing_goes_on_behind_any_entry_and_nowhere_else() {
        let mut listing = Listing::default();
        let names = [&b"a"[..], b"bcd", b"ef"];
        for (n, name) in (1..).zip(names) {
            assert!(listing.add(found(10 * n, name)));
        }
        let after = |p| listing.after(p).map(|all| all.map(|e| e.name.to_vec()).collect::<Vec<_>>());
        assert_eq!(after(0).unwrap(), names);
        assert_eq!(after(10).unwrap(), names[1..]);
        assert_eq!(after(30).unwrap(), names[3..]);
        assert_eq!(after(11), None);
        let last = listing.after(20).unwrap().next().unwrap();
        assert_eq!((last.position, last.ino, last.kind), (30, 130, Some(Kind::File)));
    }

    #[test]
    fn a_listing_is_bounded() {
        let mut listing = Listing::default();
        let taken = (1..).take_while(|n| listing.add(found(*n, &[b'x'; 200]))).count();
        assert!(taken * (200 + size_of::<Entry>()) <= LISTING_BYTES_MAX);
        assert!((taken + 1) * (200 + size_of::<Entry>()) > LISTING_BYTES_MAX);
    }
}
