//! Compares two trees. No I/O.

use std::collections::BTreeSet;

use bytes::Bytes;
use landfast_nfs::v4::FileType;

use super::contents::{ByPath, Contents};
use super::tree::{Node, Origin, Tree, parent_path};
use crate::fs::Meta;

/// What to compare besides names, types, sizes and link targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compare {
    pub mode: bool,
    pub owner: bool,
    pub group: bool,
    /// Modification times of everything but directories.
    pub times: bool,
    /// Modification times of directories.
    pub dir_times: bool,
    /// Which names are the same file.
    pub links: bool,
}

impl Default for Compare {
    fn default() -> Self {
        Compare { mode: true, owner: true, group: true, times: true, dir_times: true, links: true }
    }
}

#[derive(Debug, Clone)]
pub struct Difference {
    /// The top's path is empty.
    pub path: Vec<u8>,
    pub what: What,
}

/// What differs. Two values are those of the first and of the second tree.
#[derive(Debug, Clone)]
pub enum What {
    /// Only the first tree has the object, and everything in it.
    OnlyFirst,
    /// Only the second tree has the object, and everything in it.
    OnlySecond,
    /// The objects have different types. Nothing else is compared.
    Type,
    Mode,
    Owner,
    Group,
    Size,
    Modified,
    /// The target of a symbolic link.
    Target(Bytes, Bytes),
    Device,
    /// The first name of the same file.
    Links(Option<Vec<u8>>, Option<Vec<u8>>),
    /// The data of files of the same size.
    Contents,
    Xattr(Bytes),
}

impl What {
    /// The name of this difference in JSON and in messages.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            What::OnlyFirst => "only-first",
            What::OnlySecond => "only-second",
            What::Type => "type",
            What::Mode => "mode",
            What::Owner => "owner",
            What::Group => "group",
            What::Size => "size",
            What::Modified => "mtime",
            What::Target(..) => "target",
            What::Device => "device",
            What::Links(..) => "links",
            What::Contents => "contents",
            What::Xattr(_) => "xattr",
        }
    }
}

/// All differences but those of contents, and the paths whose contents may differ: files of the same size, and
/// directories, which may have extended attributes.
#[must_use]
pub fn compare(a: &Tree, b: &Tree, what: &Compare) -> (Vec<Difference>, Vec<Vec<u8>>) {
    let mut all = Vec::new();
    let mut same = Vec::new();
    let paths: BTreeSet<&Vec<u8>> = a.nodes.keys().chain(b.nodes.keys()).collect();
    let whole_seconds =
        |tree: &Tree, node: &Node| matches!(tree.origin, Origin::Archive) && node.meta.modified.nseconds == 0;
    for path in paths {
        let mut say = |what| all.push(Difference { path: path.clone(), what });
        let (x, y) = match (a.nodes.get(path), b.nodes.get(path)) {
            (Some(x), Some(y)) => (x, y),
            (Some(_), None) => {
                if path.is_empty() || b.is_dir(parent_path(path)) {
                    say(What::OnlyFirst);
                }
                continue;
            }
            (None, _) => {
                if path.is_empty() || a.is_dir(parent_path(path)) {
                    say(What::OnlySecond);
                }
                continue;
            }
        };
        if x.meta.kind != y.meta.kind {
            say(What::Type);
            continue;
        }
        if x.implied || y.implied {
            continue;
        }
        let seconds_only = whole_seconds(a, x) || whole_seconds(b, y);
        for what in of_pair(x, y, what, seconds_only) {
            say(what);
        }
        if matches!(x.meta.kind, Some(FileType::Reg | FileType::Dir))
            && x.meta.size_of_file() == y.meta.size_of_file()
        {
            same.push(path.clone());
        }
    }
    (all, same)
}

/// Compares two objects of the same type.
pub(super) fn of_pair(x: &Node, y: &Node, compare: &Compare, seconds_only: bool) -> Vec<What> {
    let (m, n) = (&x.meta, &y.meta);
    let kind = m.kind;
    let is_link = kind == Some(FileType::Lnk);
    let mut all = Vec::new();
    let mut differs = |yes: bool, what: What| {
        if yes {
            all.push(what);
        }
    };
    differs(compare.mode && !is_link && m.mode != n.mode, What::Mode);
    differs(compare.owner && m.owner != n.owner, What::Owner);
    differs(compare.group && m.group != n.group, What::Group);
    differs(m.size_of_file() != n.size_of_file(), What::Size);
    let times = if m.is_dir() { compare.dir_times } else { compare.times };
    let same_time = match seconds_only {
        true => m.modified.seconds == n.modified.seconds,
        false => m.modified == n.modified,
    };
    differs(times && !same_time, What::Modified);
    differs(is_link && x.text != y.text, What::Target(x.text.clone(), y.text.clone()));
    let is_device = matches!(kind, Some(FileType::Chr | FileType::Blk));
    differs(is_device && m.rdev != n.rdev, What::Device);
    let links = || What::Links(x.first.clone(), y.first.clone());
    differs(compare.links && x.first != y.first, links());
    all
}

impl Meta {
    /// The size of a regular file, else 0: the sizes of other objects mean different things on different filesystems.
    pub(super) fn size_of_file(&self) -> u64 {
        if self.kind == Some(FileType::Reg) { self.size } else { 0 }
    }
}

/// Differences of contents. Objects that could not be read are left out.
#[must_use]
pub fn of_contents(a: &ByPath, b: &ByPath) -> Vec<Difference> {
    let mut all = Vec::new();
    for (path, x) in a {
        let (Ok(x), Some(Ok(y))) = (x, b.get(path)) else { continue };
        let mut say = |what| all.push(Difference { path: path.clone(), what });
        if x.digest != y.digest {
            say(What::Contents);
        }
        if let (Contents { xattrs: Some(x), .. }, Contents { xattrs: Some(y), .. }) = (x, y) {
            let names: BTreeSet<&Bytes> = x.iter().chain(y).map(|(name, _)| name).collect();
            for name in names {
                let of = |all: &[(Bytes, Bytes)]| all.iter().find(|(n, _)| n == name).cloned();
                if of(x) != of(y) {
                    say(What::Xattr(name.clone()));
                }
            }
        }
    }
    all
}
