//! A whole tree, by path. No I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::{FileHandle, FileType};

use crate::fs::{Meta, Nfs, Xattr};

/// A digest of a file's data.
pub(super) type Digest = u128;

#[derive(Debug, Clone)]
pub struct Node {
    pub meta: Meta,
    /// The target of a symbolic link.
    pub text: Bytes,
    /// If the file has several names in the tree: the first of them.
    pub first: Option<Vec<u8>>,
    /// A directory that the archive does not name, but that contains members. Its attributes are unknown.
    pub implied: bool,
    pub(super) fh: Option<FileHandle>,
    /// Of an archive's file.
    pub(super) digest: Option<Digest>,
    /// Of an archive's file.
    pub(super) xattrs: Vec<Xattr>,
}

impl Node {
    pub(super) fn new(meta: Meta, text: Bytes, fh: Option<FileHandle>) -> Node {
        Node { meta, text, first: None, implied: false, fh, digest: None, xattrs: Vec::new() }
    }
}

/// Where a tree's data comes from.
#[derive(Clone)]
pub(super) enum Origin {
    Local(PathBuf),
    Server(Nfs),
    Archive,
}

/// Called with the number of objects that are done since the last call.
pub type OnProgress = Arc<dyn Fn(u64) + Send + Sync>;

/// A tree. Paths are relative to its top, whose path is empty.
pub struct Tree {
    pub nodes: BTreeMap<Vec<u8>, Node>,
    /// Paths that could not be listed, and why.
    pub failures: Vec<(Vec<u8>, String)>,
    /// Directories that hold something excluded, directly or further down. They are not removed.
    pub(super) with_excluded: BTreeSet<Vec<u8>>,
    pub(super) origin: Origin,
}

impl Tree {
    pub(super) fn new(origin: Origin) -> Tree {
        Tree { nodes: BTreeMap::new(), failures: Vec::new(), with_excluded: BTreeSet::new(), origin }
    }

    /// Notes that a directory holds something excluded, and so do all directories above it.
    pub(super) fn holds_excluded(&mut self, dir: &[u8]) {
        let mut at = dir;
        while self.with_excluded.insert(at.to_vec()) && !at.is_empty() {
            at = parent_path(at);
        }
    }

    /// An empty tree on a server, without even a top.
    #[must_use]
    pub fn nothing(nfs: Nfs) -> Tree {
        Tree::new(Origin::Server(nfs))
    }

    /// A local directory that does not exist yet.
    #[must_use]
    pub fn missing(dir: &std::path::Path) -> Tree {
        Tree::new(Origin::Local(dir.to_owned()))
    }

    /// Finds the names that are the same file. Called when everything is listed.
    pub(super) fn link(&mut self) {
        let mut groups: HashMap<(u64, u64, u64), Vec<Vec<u8>>> = HashMap::new();
        for (path, node) in &self.nodes {
            if node.meta.links > 1 && !node.meta.is_dir() {
                let key = (node.meta.fsid.major, node.meta.fsid.minor, node.meta.fileid);
                groups.entry(key).or_default().push(path.clone());
            }
        }
        for names in groups.into_values().filter(|names| names.len() > 1) {
            for name in &names {
                if let Some(node) = self.nodes.get_mut(name) {
                    node.first = Some(names[0].clone());
                }
            }
        }
    }

    pub(super) fn is_file(&self, path: &[u8]) -> bool {
        self.nodes.get(path).is_some_and(|node| node.meta.kind == Some(FileType::Reg))
    }

    pub(super) fn is_dir(&self, path: &[u8]) -> bool {
        self.nodes.get(path).is_some_and(|node| node.meta.is_dir())
    }
}

/// The path of the parent directory. The top is its own parent.
pub(super) fn parent_path(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(b"", |slash| &path[..slash])
}

pub(super) fn last_name(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(path, |slash| &path[slash + 1..])
}
