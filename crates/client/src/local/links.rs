//! Finds names that are the same file.

use std::collections::HashMap;

use bytes::Bytes;
use landfast_xdr::{Decode, Encode, Reader};

use crate::fs::Meta;
use crate::limits::LINKS_IN_MEMORY;
use crate::overflow::{Keys, OverflowError, Records, Table};

/// The filesystem and the number of a file.
type FileId = (u64, u64, u64);

/// A file in the temporary file.
#[derive(Debug, Encode, Decode)]
struct Seen {
    major: u64,
    minor: u64,
    fileid: u64,
    left: u32,
    first: Bytes,
}

/// Remembers files with several names, until all their names have come: many of them in a temporary file.
#[derive(Debug)]
pub struct Links {
    /// The first name, and how many names have not come.
    seen: HashMap<FileId, (Vec<u8>, u32)>,
    /// How many are in memory, at most.
    most: usize,
    keys: Keys,
    places: Table,
    records: Records,
}

impl Default for Links {
    fn default() -> Links {
        Links::within(LINKS_IN_MEMORY)
    }
}

impl Links {
    fn within(most: usize) -> Links {
        let (keys, places, records) = (Keys::default(), Table::default(), Records::default());
        Links { seen: HashMap::new(), most, keys, places, records }
    }

    /// The name under which this object came first.
    pub(crate) fn first(&mut self, meta: &Meta) -> Result<Option<&[u8]>, OverflowError> {
        if meta.links < 2 || meta.is_dir() {
            return Ok(None);
        }
        self.take_back(id(meta))?;
        Ok(self.seen.get(&id(meta)).map(|(first, _)| &first[..]))
    }

    /// The name under which this object came first. The first time `None`, and `path` is remembered.
    pub(crate) fn earlier(&mut self, meta: &Meta, path: &[u8]) -> Result<Option<Vec<u8>>, OverflowError> {
        if meta.links < 2 || meta.is_dir() {
            return Ok(None);
        }
        let id = id(meta);
        self.take_back(id)?;
        let first = match self.seen.get_mut(&id) {
            None => {
                self.seen.insert(id, (path.to_vec(), meta.links - 1));
                None
            }
            Some((_, 1)) => return Ok(self.seen.remove(&id).map(|(first, _)| first)),
            Some((first, left)) => {
                *left -= 1;
                Some(first.clone())
            }
        };
        if self.seen.len() >= self.most {
            self.put_away();
        }
        Ok(first)
    }

    fn put_away(&mut self) {
        for ((major, minor, fileid), (first, left)) in self.seen.drain() {
            let seen = Seen { major, minor, fileid, left, first: first.into() };
            let place = self.records.add(&seen.to_bytes());
            self.places.insert(self.keys.of((major, minor, fileid)), place);
        }
        if let Some(trouble) = self.records.trouble().or_else(|| self.places.trouble()) {
            tracing::warn!("{trouble}");
        }
    }

    fn take_back(&mut self, id: FileId) -> Result<(), OverflowError> {
        let key = self.keys.of(id);
        let Some(place) = self.places.get(key)? else { return Ok(()) };
        let bytes = self.records.get(place)?;
        let Ok(seen) = Seen::decode(&mut Reader::new(bytes.into())) else { return Ok(()) };
        if (seen.major, seen.minor, seen.fileid) == id {
            self.places.remove(key)?;
            self.records.drop(place)?;
            self.seen.insert(id, (seen.first.into(), seen.left));
        }
        Ok(())
    }
}

fn id(meta: &Meta) -> FileId {
    (meta.fsid.major, meta.fsid.minor, meta.fileid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_nfs::v4::attr::AttrValues;

    fn meta(fileid: u64, links: u32) -> Meta {
        let attrs = AttrValues { fileid: Some(fileid), numlinks: Some(links), ..AttrValues::default() };
        Meta::of(&attrs)
    }

    #[test]
    fn the_first_name_stands_for_all_until_the_last_has_come() {
        let mut links = Links::default();
        let mut earlier = |file, path: &[u8]| links.earlier(&file, path).unwrap();
        assert_eq!(earlier(meta(1, 1), b"single"), None);
        assert_eq!(earlier(meta(2, 3), b"a"), None);
        assert_eq!(earlier(meta(2, 3), b"b").as_deref(), Some(&b"a"[..]));
        assert_eq!(earlier(meta(3, 2), b"c"), None);
        assert_eq!(earlier(meta(2, 3), b"d").as_deref(), Some(&b"a"[..]));
        assert_eq!(links.seen.len(), 1, "only the one whose other name has not come");
    }

    #[test]
    fn beyond_the_limit_it_is_the_same() {
        let mut links = Links::within(10);
        let name = |n: u64, of: u32| format!("{n}-{of}").into_bytes();
        for of in 0..4 {
            for n in 0..100 {
                let first = links.first(&meta(n, 4)).unwrap().map(<[u8]>::to_vec);
                assert_eq!(first, (of > 0).then(|| name(n, 0)));
                assert_eq!(links.earlier(&meta(n, 4), &name(n, of)).unwrap(), first);
                assert!(links.seen.len() <= 11);
            }
        }
        assert_eq!(links.earlier(&meta(7, 4), b"new").unwrap(), None, "all its names had come");
    }
}
