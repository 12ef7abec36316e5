//! The pseudo root (RFC 8881 section 7.3): one export, reached as `host:/` and as `host:/its/own/path`.
//!
//! The root filehandle is the export's root. The directories of the export's own absolute path, seen from the root,
//! are synthetic: LOOKUP of the first component in the root finds one unless a real entry has that name, each
//! holds just the next, and the last is the export's root again. They form a filesystem of their own (another fsid), so
//! a client that mounts by path crosses into the export as into any other filesystem, and no directory is its
//! own ancestor.
//!
//! A path of one component leaves no room for a synthetic directory: there the name leads to the export *by path*, the
//! same objects under handles with a prefix and under another fsid.

use bytes::Bytes;
use std::path::{Component, Path};

/// First byte of a synthetic directory's handle; a volume's handles begin with another.
const HANDLE_TAG: u8 = 0xF0;
/// First byte of the handle of an object of the export by path; the object's own handle follows.
const BY_PATH_TAG: u8 = 0xF1;
/// A synthetic directory's fileid, before its depth is added: beyond the inode numbers of real filesystems.
const FILEID_BASE: u64 = 1 << 62;

/// A synthetic directory: how many components of the export's path lead to it, 1 to one less than all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PseudoDir(u8);

/// Where a name in a synthetic directory, or in the root, leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To a synthetic directory.
    Dir(PseudoDir),
    /// To the export's root; by path or not.
    Export {
        /// The objects below carry handles by path.
        by_path: bool,
    },
}

/// The synthetic directories.
#[derive(Debug, Clone)]
pub struct Pseudo {
    path: Vec<Bytes>,
    volume: [u8; 16],
}

impl Pseudo {
    /// For an export at this absolute path. A path of more components than a handle can count is cut.
    #[must_use]
    pub fn new(export: &Path, volume: [u8; 16]) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let path = export
            .components()
            .filter_map(|c| match c {
                Component::Normal(name) => Some(Bytes::copy_from_slice(name.as_bytes())),
                _ => None,
            })
            .take(usize::from(u8::MAX))
            .collect();
        Pseudo { path, volume }
    }

    fn step(&self, depth: usize) -> Step {
        if depth >= self.path.len() {
            Step::Export { by_path: self.path.len() == 1 }
        } else {
            Step::Dir(PseudoDir(depth as u8))
        }
    }

    /// Where `name` in the root leads, if no real entry has that name.
    #[must_use]
    pub fn in_root(&self, name: &[u8]) -> Option<Step> {
        self.path.first().filter(|first| *first == name).map(|_| self.step(1))
    }

    /// The one entry of a synthetic directory, and where it leads.
    #[must_use]
    pub fn entry(&self, dir: PseudoDir) -> Option<(&Bytes, Step)> {
        let depth = usize::from(dir.0);
        Some((self.path.get(depth)?, self.step(depth + 1)))
    }

    /// The directory above; `None` is the root.
    #[must_use]
    pub fn parent(&self, dir: PseudoDir) -> Option<PseudoDir> {
        if dir.0 <= 1 { None } else { Some(PseudoDir(dir.0 - 1)) }
    }

    /// The wire handle.
    #[must_use]
    pub fn handle(&self, dir: PseudoDir) -> Bytes {
        let mut h = vec![HANDLE_TAG, dir.0];
        h.extend_from_slice(&self.volume);
        Bytes::from(h)
    }

    /// The synthetic directory of a wire handle, if it is one of this export's.
    #[must_use]
    pub fn resolve(&self, handle: &[u8]) -> Option<PseudoDir> {
        let depth = *handle.get(1)?;
        let dir = PseudoDir(depth);
        let known = depth >= 1 && usize::from(depth) < self.path.len();
        (known && self.handle(dir) == handle).then_some(dir)
    }

    /// The wire handle, by path, of an object of the volume.
    #[must_use]
    pub fn by_path(handle: &Bytes) -> Bytes {
        let mut h = vec![BY_PATH_TAG];
        h.extend_from_slice(handle);
        Bytes::from(h)
    }

    /// The volume's handle in a wire handle by path.
    #[must_use]
    pub fn strip<'h>(&self, handle: &'h [u8]) -> Option<&'h [u8]> {
        match handle.split_first() {
            Some((&BY_PATH_TAG, rest)) if self.path.len() == 1 => Some(rest),
            _ => None,
        }
    }

    /// The fileid of the entry that the export by path is mounted on.
    #[must_use]
    pub fn by_path_entry() -> u64 {
        FILEID_BASE
    }

    /// The filesystem's id of the export by path, given the export's own.
    #[must_use]
    pub fn by_path_fsid(export: (u64, u64)) -> (u64, u64) {
        (export.0, !export.1)
    }

    /// The fileid.
    #[must_use]
    pub fn fileid(&self, dir: PseudoDir) -> u64 {
        FILEID_BASE + u64::from(dir.0)
    }

    /// The filesystem's id, given the export's.
    #[must_use]
    pub fn fsid(&self, export: (u64, u64)) -> (u64, u64) {
        (!export.0, export.1.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_leads_to_the_export_and_back() {
        let p = Pseudo::new(Path::new("/srv/web/data"), [7; 16]);
        let Some(Step::Dir(srv)) = p.in_root(b"srv") else { panic!("srv is synthetic") };
        assert_eq!(p.in_root(b"web"), None);
        let (name, step) = p.entry(srv).expect("one entry");
        assert_eq!(name, "web");
        let Step::Dir(web) = step else { panic!("web is synthetic") };
        assert_eq!(
            p.entry(web).map(|(n, s)| (n.clone(), s)),
            Some((Bytes::from("data"), Step::Export { by_path: false }))
        );
        assert_eq!((p.parent(web), p.parent(srv)), (Some(srv), None));
        assert_eq!(p.resolve(&p.handle(web)), Some(web));
        assert_ne!(p.fileid(web), p.fileid(srv));
    }

    #[test]
    fn forged_handles_are_not_resolved() {
        let p = Pseudo::new(Path::new("/srv/data"), [7; 16]);
        let other = Pseudo::new(Path::new("/srv/data"), [8; 16]);
        let Some(Step::Dir(srv)) = p.in_root(b"srv") else { panic!("srv is synthetic") };
        assert_eq!(p.resolve(&other.handle(srv)), None);
        assert_eq!(p.resolve(&p.handle(PseudoDir(2))), None);
        assert_eq!(p.resolve(&p.handle(PseudoDir(0))), None);
        assert_eq!(p.resolve(&[HANDLE_TAG]), None);
    }

    #[test]
    fn an_export_of_one_component_or_none() {
        assert_eq!(
            Pseudo::new(Path::new("/data"), [0; 16]).in_root(b"data"),
            Some(Step::Export { by_path: true })
        );
        assert_eq!(Pseudo::new(Path::new("/"), [0; 16]).in_root(b""), None);
    }
}
