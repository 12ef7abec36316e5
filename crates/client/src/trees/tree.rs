//! A whole tree by its paths. Pure.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::{FileHandle, FileType};

use crate::fs::{Meta, Nfs, Xattr};

/// What stands for a file's data.
pub(super) type Digest = u128;

/// An object of a tree.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its attributes.
    pub meta: Meta,
    /// A symbolic link's text.
    pub text: Bytes,
    /// The first name of the same file, if it has several ones in the tree.
    pub first: Option<Vec<u8>>,
    /// It is there because something is in it, and nothing else is known.
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

/// Hears how many further objects are done.
pub type OnProgress = Arc<dyn Fn(u64) + Send + Sync>;

/// A tree. Paths begin at its top, which is the empty one.
pub struct Tree {
    /// Its objects.
    pub nodes: BTreeMap<Vec<u8>, Node>,
    /// What could not be listed, and why.
    pub failures: Vec<(Vec<u8>, String)>,
    pub(super) origin: Origin,
}

impl Tree {
    pub(super) fn new(origin: Origin) -> Tree {
        Tree { nodes: BTreeMap::new(), failures: Vec::new(), origin }
    }

    /// A tree on a server that has nothing in it, not even a top.
    #[must_use]
    pub fn nothing(nfs: Nfs) -> Tree {
        Tree::new(Origin::Server(nfs))
    }

    /// A directory of this machine that is not there yet.
    #[must_use]
    pub fn missing(dir: &std::path::Path) -> Tree {
        Tree::new(Origin::Local(dir.to_owned()))
    }

    /// All is listed: which names are one file.
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

    /// Whether a path is that of a regular file.
    pub(super) fn is_file(&self, path: &[u8]) -> bool {
        self.nodes.get(path).is_some_and(|node| node.meta.kind == Some(FileType::Reg))
    }

    pub(super) fn is_dir(&self, path: &[u8]) -> bool {
        self.nodes.get(path).is_some_and(|node| node.meta.is_dir())
    }
}

/// The path of the directory that a path is in; the top's is itself.
pub(super) fn parent_path(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(b"", |slash| &path[..slash])
}

/// The last name of a path.
pub(super) fn last_name(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(path, |slash| &path[slash + 1..])
}
