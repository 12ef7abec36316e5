//! Finds names that are the same file.

use std::collections::HashMap;

use crate::fs::Meta;

/// Remembers files with several names, until all their names have come.
#[derive(Debug, Default)]
pub struct Links {
    seen: HashMap<(u64, u64, u64), (Vec<u8>, u32)>,
}

impl Links {
    /// The name under which this object came first.
    pub(crate) fn first(&self, meta: &Meta) -> Option<&[u8]> {
        if meta.links < 2 || meta.is_dir() {
            return None;
        }
        self.seen.get(&key(meta)).map(|(first, _)| &first[..])
    }

    /// The name under which this object came first. The first time `None`, and `path` is remembered.
    pub fn earlier(&mut self, meta: &Meta, path: &[u8]) -> Option<Vec<u8>> {
        if meta.links < 2 || meta.is_dir() {
            return None;
        }
        let key = key(meta);
        let Some((first, left)) = self.seen.get_mut(&key) else {
            self.seen.insert(key, (path.to_vec(), meta.links - 1));
            return None;
        };
        *left -= 1;
        if *left > 0 {
            return Some(first.clone());
        }
        self.seen.remove(&key).map(|(first, _)| first)
    }
}

fn key(meta: &Meta) -> (u64, u64, u64) {
    (meta.fsid.major, meta.fsid.minor, meta.fileid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_nfs::v4::attr::AttrValues;

    #[test]
    fn the_first_name_stands_for_all_until_the_last_has_come() {
        let meta = |fileid, links| {
            let attrs = AttrValues { fileid: Some(fileid), numlinks: Some(links), ..AttrValues::default() };
            Meta::of(&attrs)
        };
        let mut links = Links::default();
        assert_eq!(links.earlier(&meta(1, 1), b"single"), None);
        assert_eq!(links.earlier(&meta(2, 3), b"a"), None);
        assert_eq!(links.earlier(&meta(2, 3), b"b").as_deref(), Some(&b"a"[..]));
        assert_eq!(links.earlier(&meta(3, 2), b"c"), None);
        assert_eq!(links.earlier(&meta(2, 3), b"d").as_deref(), Some(&b"a"[..]));
        assert_eq!(links.seen.len(), 1, "only the one whose other name has not come");
    }
}
