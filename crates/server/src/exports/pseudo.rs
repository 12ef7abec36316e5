//! The pseudo root (RFC 8881 section 7.3): synthetic directories that lead from `/` to the exports.
//!
//! Two shapes:
//! - *Whole*: one export is the root itself, and synthetic directories make its own absolute path reachable below the
//!   root.
//!   - LOOKUP of the first component in the root finds a synthetic directory, unless a real entry has that name. Each
//!     one holds only the next component, and the last leads to the export's root again.
//!   - In a real directory with the name of a component, the next component is synthetic, unless it exists there. So
//!     the path is hidden only by a real entry for each component, or by one that is no directory ([`hidden_by`]).
//!   - A path of one component leaves no room for a synthetic directory. Its name leads to the export *by path*: the
//!     same objects, with a prefix on their handles and another fsid.
//! - *Named*: the root is synthetic, and each export hangs under its name. No name lies below another.
//!
//! Synthetic directories form a filesystem of their own (another fsid). So a client that mounts by path crosses into an
//! export as into any other filesystem, and no directory is its own ancestor. Handles and fileids are computed from
//! paths, so they stay the same after a restart or a reload. Handles carry no signature, because they lead only to
//! names, and names that a caller may not use are left out.

use crate::fnv;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// First byte of a synthetic directory's handle; handles of volumes begin with another.
const HANDLE_TAG: u8 = 0xF0;
/// First byte of the handle of an object of an export by path; the object's own handle follows.
pub(crate) const BY_PATH_TAG: u8 = 0xF1;
/// Added to a digest of its path, this gives a synthetic directory's fileid; beyond the inode numbers of real
/// filesystems.
const FILEID_BASE: u64 = 1 << 62;
/// Digests stay below [`FILEID_BASE`], so that cookies are not negative; they are also at least 3, since cookies 0 to 2
/// are special.
const DIGEST_MASK: u64 = FILEID_BASE - 1;

pub(crate) fn components(path: &Path) -> Vec<Bytes> {
    use std::os::unix::ffi::OsStrExt;
    path.components()
        .filter_map(|c| match c {
            Component::Normal(name) => Some(Bytes::copy_from_slice(name.as_bytes())),
            _ => None,
        })
        .collect()
}

/// A synthetic directory, as its index in the tree; 0 is the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PseudoDir(usize);

pub const ROOT: PseudoDir = PseudoDir(0);

/// Where a name in the root or in a synthetic directory leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Dir(PseudoDir),
    /// To the root of the export at this index of the table.
    Export {
        export: usize,
        /// The objects below have handles by path.
        by_path: bool,
    },
}

#[derive(Debug, Clone)]
struct Dir {
    digest: u64,
    parent: Option<PseudoDir>,
    /// By cookie, which is the digest of the entry's whole path.
    entries: BTreeMap<u64, (Bytes, Step)>,
}

#[derive(Debug, Clone)]
pub struct Pseudo {
    dirs: Vec<Dir>,
    server: [u8; 16],
    /// Where the root is synthetic: for each export the directory that holds it.
    above: Vec<Option<PseudoDir>>,
}

/// Two names that cannot exist together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameClash(pub usize, pub usize);

/// A digest of a path that never changes: 64-bit FNV-1a with a separator before each component, masked, at least 3.
fn digest(above: u64, name: &[u8]) -> u64 {
    let h = fnv::add(above ^ fnv::BEGIN, std::iter::once(&b'/').chain(name));
    (h & DIGEST_MASK).max(3)
}

/// The path that hides the own path of a directory exported as the root of the server: an entry in it for each
/// component, or one that is no directory. With NFSv4, `mount server:PATH` then finds that entry instead.
pub fn hidden_by(export: &Path) -> Option<PathBuf> {
    let mut at = export.to_path_buf();
    let parts = || export.components().filter(|c| matches!(c, Component::Normal(_)));
    parts().next()?;
    for part in parts() {
        at.push(part);
        let entry = at.symlink_metadata().ok()?;
        if !entry.is_dir() {
            break;
        }
    }
    Some(at)
}

impl Pseudo {
    /// The tree of a server whose root is its only export, at this path. Components from the 255th on are cut off.
    pub fn whole(path: &[Bytes], server: [u8; 16]) -> Self {
        let mut tree = Pseudo::empty(server, 1);
        let path = path.get(..path.len().min(255)).unwrap_or_default();
        let export = Step::Export { export: 0, by_path: path.len() == 1 };
        // The first name clashes with nothing.
        let _ = tree.add(path, export);
        tree
    }

    /// The tree of exports with these names, none of which is empty.
    /// Errors: Two names are the same, or one lies below another.
    pub fn named(names: &[Vec<Bytes>], server: [u8; 16]) -> Result<Self, NameClash> {
        let mut tree = Pseudo::empty(server, names.len());
        for (export, name) in names.iter().enumerate() {
            let dir = tree
                .add(name, Step::Export { export, by_path: false })
                .map_err(|other| NameClash(other.unwrap_or(export), export))?;
            if let Some(above) = tree.above.get_mut(export) {
                *above = Some(dir);
            }
        }
        Ok(tree)
    }

    fn empty(server: [u8; 16], exports: usize) -> Self {
        let root = Dir { digest: digest(0, b""), parent: None, entries: BTreeMap::new() };
        Pseudo { dirs: vec![root], server, above: vec![None; exports] }
    }

    /// Hangs `leaf` under a name and returns the directory that holds it. The error is the export in the way.
    fn add(&mut self, name: &[Bytes], leaf: Step) -> Result<PseudoDir, Option<usize>> {
        let (last, dirs) = name.split_last().ok_or(None)?;
        let mut at = ROOT;
        for part in dirs {
            at = match self.entry(at, part) {
                Some(Step::Dir(dir)) => dir,
                Some(Step::Export { export, .. }) => return Err(Some(export)),
                None => {
                    let digest = digest(self.dir(at).map_or(0, |d| d.digest), part);
                    let new = PseudoDir(self.dirs.len());
                    self.dirs.push(Dir { digest, parent: Some(at), entries: BTreeMap::new() });
                    self.insert(at, digest, part, Step::Dir(new));
                    new
                }
            };
        }
        match self.entry(at, last) {
            None => {
                let digest = digest(self.dir(at).map_or(0, |d| d.digest), last);
                self.insert(at, digest, last, leaf);
                Ok(at)
            }
            Some(Step::Export { export, .. }) => Err(Some(export)),
            Some(Step::Dir(dir)) => Err(self.exports_below(dir).first().copied()),
        }
    }

    fn insert(&mut self, dir: PseudoDir, digest: u64, name: &Bytes, step: Step) {
        if let Some(dir) = self.dirs.get_mut(dir.0) {
            // If two names have the same digest, the later one gets the next free number.
            let free = (digest..).find(|d| !dir.entries.contains_key(d)).unwrap_or(digest);
            dir.entries.insert(free, (name.clone(), step));
        }
    }

    fn dir(&self, dir: PseudoDir) -> Option<&Dir> {
        self.dirs.get(dir.0)
    }

    pub fn entry(&self, dir: PseudoDir, name: &[u8]) -> Option<Step> {
        self.dir(dir)?.entries.values().find(|(n, _)| *n == name).map(|(_, step)| *step)
    }

    /// The entries of a synthetic directory after a cookie, with their cookies.
    pub fn entries(&self, dir: PseudoDir, after: u64) -> impl Iterator<Item = (u64, &Bytes, Step)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let dir = self.dir(dir).into_iter();
        dir.flat_map(move |d| d.entries.range((Excluded(after), Unbounded))).map(|(c, (n, s))| (*c, n, *s))
    }

    /// The components of the path of a single export that is the root, and where each leads. Meaningless for named
    /// exports.
    pub fn own_path(&self) -> impl Iterator<Item = (&Bytes, Step)> {
        self.dirs.iter().filter_map(|d| d.entries.values().next()).map(|(name, step)| (name, *step))
    }

    /// The indexes of all exports below a synthetic directory.
    pub fn exports_below(&self, dir: PseudoDir) -> Vec<usize> {
        let mut found = Vec::new();
        let mut to_see = vec![dir];
        while let Some(dir) = to_see.pop() {
            for (_, _, step) in self.entries(dir, 0) {
                match step {
                    Step::Dir(below) => to_see.push(below),
                    Step::Export { export, .. } => found.push(export),
                }
            }
        }
        found
    }

    pub fn parent(&self, dir: PseudoDir) -> Option<PseudoDir> {
        self.dir(dir)?.parent
    }

    /// The synthetic directory that holds an export's root; `None` when the export is the root of the server.
    pub fn above(&self, export: usize) -> Option<PseudoDir> {
        self.above.get(export).copied().flatten()
    }

    pub fn handle(&self, dir: PseudoDir) -> Bytes {
        let mut h = vec![HANDLE_TAG];
        h.extend_from_slice(&self.dir(dir).map_or(0, |d| d.digest).to_be_bytes());
        h.extend_from_slice(&self.server);
        Bytes::from(h)
    }

    /// Whether a handle names a synthetic directory of any server, past or present.
    pub fn is_pseudo(handle: &[u8]) -> bool {
        handle.first() == Some(&HANDLE_TAG)
    }

    /// The synthetic directory of a wire handle, if it belongs to this tree.
    pub fn resolve(&self, handle: &[u8]) -> Option<PseudoDir> {
        let (tag, rest) = handle.split_first()?;
        let (digest, server) = rest.split_first_chunk::<8>()?;
        if *tag != HANDLE_TAG || server != self.server {
            return None;
        }
        let digest = u64::from_be_bytes(*digest);
        self.dirs.iter().position(|d| d.digest == digest).map(PseudoDir)
    }

    /// Turns a volume's handle into a handle by path.
    pub fn by_path(handle: &Bytes) -> Bytes {
        let mut h = vec![BY_PATH_TAG];
        h.extend_from_slice(handle);
        Bytes::from(h)
    }

    /// The volume's handle inside a handle by path.
    pub fn strip<'h>(&self, handle: &'h [u8]) -> Option<&'h [u8]> {
        match handle.split_first() {
            Some((&BY_PATH_TAG, rest)) if self.has_by_path() => Some(rest),
            _ => None,
        }
    }

    fn has_by_path(&self) -> bool {
        self.entries(ROOT, 0).any(|(_, _, step)| matches!(step, Step::Export { by_path: true, .. }))
    }

    /// The fileid of the entry on which the export by path is mounted.
    pub fn by_path_entry() -> u64 {
        FILEID_BASE
    }

    /// The fileid of the entry on which an export's root is mounted; `None` when the export is the root of the server.
    pub fn mounted_on(&self, export: usize) -> Option<u64> {
        let above = self.above(export)?;
        let at = self.entries(above, 0).find(|(_, _, s)| *s == Step::Export { export, by_path: false });
        at.map(|(cookie, _, _)| FILEID_BASE | cookie)
    }

    /// The fsid of the export by path, computed from the export's own.
    pub fn by_path_fsid(export: (u64, u64)) -> (u64, u64) {
        (export.0, !export.1)
    }

    pub fn fileid(&self, dir: PseudoDir) -> u64 {
        FILEID_BASE | self.dir(dir).map_or(0, |d| d.digest)
    }

    /// The fsid, computed from the server's own id so that no volume has it.
    pub fn fsid(&self) -> (u64, u64) {
        let n = u128::from_be_bytes(self.server);
        (!((n >> 64) as u64), (n as u64).wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(p: &str) -> Vec<Bytes> {
        p.split('/').filter(|c| !c.is_empty()).map(|c| Bytes::from(c.to_owned())).collect()
    }

    fn dir(p: &Pseudo, at: PseudoDir, name: &str) -> PseudoDir {
        match p.entry(at, name.as_bytes()) {
            Some(Step::Dir(dir)) => dir,
            other => panic!("{name} is {other:?}"),
        }
    }

    #[test]
    fn the_path_leads_to_the_export_and_back() {
        let p = Pseudo::whole(&path("/srv/web/data"), [7; 16]);
        let srv = dir(&p, ROOT, "srv");
        assert_eq!(p.entry(ROOT, b"web"), None);
        let web = dir(&p, srv, "web");
        let all: Vec<_> = p.entries(web, 0).map(|(_, n, s)| (n.clone(), s)).collect();
        assert_eq!(all, [(Bytes::from("data"), Step::Export { export: 0, by_path: false })]);
        assert_eq!((p.parent(web), p.parent(srv)), (Some(srv), Some(ROOT)));
        assert_eq!(p.resolve(&p.handle(web)), Some(web));
        assert_ne!(p.fileid(web), p.fileid(srv));
        assert_eq!(p.above(0), None, "the export is the root");
    }

    #[test]
    fn another_servers_handles_and_malformed_ones_are_not_resolved() {
        let p = Pseudo::whole(&path("/srv/data"), [7; 16]);
        let other = Pseudo::whole(&path("/srv/data"), [8; 16]);
        let elsewhere = Pseudo::whole(&path("/home/data"), [7; 16]);
        let srv = dir(&p, ROOT, "srv");
        assert_eq!(p.resolve(&p.handle(srv)), Some(srv));
        assert_eq!(p.resolve(&other.handle(dir(&other, ROOT, "srv"))), None);
        assert_eq!(p.resolve(&elsewhere.handle(dir(&elsewhere, ROOT, "home"))), None);
        assert_eq!(p.resolve(&[HANDLE_TAG]), None);
        assert_eq!(p.resolve(&[&p.handle(srv)[..], &[0]].concat()), None);
    }

    #[test]
    fn an_export_of_one_component_or_none() {
        let one = Pseudo::whole(&path("/data"), [0; 16]);
        assert_eq!(one.entry(ROOT, b"data"), Some(Step::Export { export: 0, by_path: true }));
        assert_eq!(one.strip(&[BY_PATH_TAG, 1, 2]), Some(&[1, 2][..]));
        let none = Pseudo::whole(&path("/"), [0; 16]);
        assert_eq!((none.entry(ROOT, b""), none.entries(ROOT, 0).count()), (None, 0));
        assert_eq!(none.strip(&[BY_PATH_TAG, 1, 2]), None);
    }

    #[test]
    fn named_exports_share_directories_and_have_one_above() {
        let names = [path("/srv/a"), path("/srv/b"), path("/home")];
        let p = Pseudo::named(&names, [7; 16]).expect("no clash");
        let srv = dir(&p, ROOT, "srv");
        assert_eq!(p.entry(ROOT, b"home"), Some(Step::Export { export: 2, by_path: false }));
        assert_eq!((p.above(0), p.above(1), p.above(2)), (Some(srv), Some(srv), Some(ROOT)));
        let mut below = p.exports_below(ROOT);
        below.sort_unstable();
        assert_eq!(below, [0, 1, 2]);
        let cookies: Vec<u64> = p.entries(srv, 0).map(|(c, _, _)| c).collect();
        assert!(cookies.len() == 2 && cookies[0] < cookies[1] && cookies[0] >= 3);
        assert_eq!(p.entries(srv, cookies[0]).map(|(c, _, _)| c).collect::<Vec<_>>(), cookies[1..]);
        assert_ne!(p.mounted_on(0), p.mounted_on(1));
        // Another order, and one more: what clients hold still means the same.
        let names = [path("/home"), path("/x/y"), path("/srv/b"), path("/srv/a")];
        let q = Pseudo::named(&names, [7; 16]).expect("no clash");
        assert_eq!(q.resolve(&p.handle(srv)).map(|d| q.fileid(d)), Some(p.fileid(srv)));
        assert_eq!(q.entries(dir(&q, ROOT, "srv"), 0).map(|(c, _, _)| c).collect::<Vec<_>>(), cookies);
    }

    #[test]
    fn what_hides_an_exports_own_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let export = dir.path().canonicalize().expect("a path");
        let parts: Vec<_> = export.components().skip(1).collect();
        assert_eq!(hidden_by(&export), None);
        let mut real = export.clone();
        for part in &parts {
            assert_eq!(hidden_by(&export), None, "{real:?}");
            real.push(part);
            std::fs::create_dir(&real).expect("a directory");
        }
        assert_eq!(hidden_by(&export), Some(real.clone()), "all of it");
        std::fs::remove_dir(&real).expect("an empty directory");
        std::fs::write(&real, b"").expect("a file");
        assert_eq!(hidden_by(&export), Some(real), "a file, where it leads on");
        assert_eq!(hidden_by(Path::new("/")), None);
    }

    #[test]
    fn names_that_cannot_both_be() {
        let clash = |a: &str, b: &str| Pseudo::named(&[path(a), path(b)], [0; 16]).err();
        assert_eq!(clash("/a", "/a"), Some(NameClash(0, 1)));
        assert_eq!(clash("/a", "/a/b/c"), Some(NameClash(0, 1)));
        assert_eq!(clash("/a/b/c", "/a"), Some(NameClash(0, 1)));
        assert_eq!(clash("/a", "/ab"), None);
        assert_eq!(clash("/a", "/"), Some(NameClash(1, 1)));
    }
}
