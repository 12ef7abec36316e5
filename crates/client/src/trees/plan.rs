//! Plans how to make one tree the same as another: what to remove, send and set. No I/O.
//!
//! Files are equal if size and modification time are equal; with digests, if the data is. A file that is not equal is sent
//! as a whole. If one name of a file with several names has to be sent, all of them are.

use std::collections::BTreeSet;

use bytes::Bytes;
use landfast_nfs::v4::FileType;

use super::contents::{ByPath, Contents};
use super::diff::{Compare, What, of_pair};
use super::tree::{Node, Tree, parent_path};
use crate::fs::{Owner, Xattr, join};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// Remove from the destination what is not in the source.
    pub delete: bool,
    /// Compare and set owners and groups.
    pub owners: bool,
}

/// Changes to the extended attributes of an object that is not sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrChange {
    pub path: Vec<u8>,
    pub set: Vec<Xattr>,
    pub remove: Vec<Bytes>,
}

/// What to do. Each list is sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Objects to remove first, with everything in them.
    pub remove: Vec<Vec<u8>>,
    /// Objects to send. For directories only the attributes are sent.
    pub send: Vec<Vec<u8>>,
    /// Objects that need only their attributes set.
    pub set: Vec<Vec<u8>>,
    pub xattrs: Vec<XattrChange>,
    /// Directories that are not in the source but stay, because something in them is excluded. What is listed in them is
    /// removed. A directory in one of these is not named.
    pub kept: Vec<Vec<u8>>,
    /// Objects that are not sent, because such a directory has their name.
    pub blocked: Vec<Vec<u8>>,
    /// Directories that are equal now, but whose attributes must be set again because something in them changes.
    pub touched: BTreeSet<Vec<u8>>,
}

impl Plan {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.send.is_empty() && self.set.is_empty() && self.xattrs.is_empty()
    }
}

/// Files whose digests [`plan`] needs, if it compares by digest: those with the same size on both sides.
#[must_use]
pub fn to_digest(source: &Tree, dest: &Tree) -> Vec<Vec<u8>> {
    let same = |path: &Vec<u8>, x: &Node| {
        let is_file = |n: &Node| n.meta.kind == Some(FileType::Reg);
        dest.nodes.get(path).is_some_and(|y| is_file(x) && is_file(y) && x.meta.size == y.meta.size)
    };
    source.nodes.iter().filter(|(path, node)| same(path, node)).map(|(path, _)| path.clone()).collect()
}

/// Objects whose extended attributes have to be compared: files and directories that exist on both sides.
#[must_use]
pub fn with_xattrs(source: &Tree, dest: &Tree) -> Vec<Vec<u8>> {
    let same = |path: &Vec<u8>, x: &Node| {
        let kind = x.meta.kind.filter(|kind| matches!(kind, FileType::Reg | FileType::Dir));
        kind.is_some() && dest.nodes.get(path).is_some_and(|y| y.meta.kind == kind)
    };
    source.nodes.iter().filter(|(path, node)| same(path, node)).map(|(path, _)| path.clone()).collect()
}

impl Plan {
    /// Adds the changes of extended attributes, for objects that are not sent again. Objects whose attributes could not be
    /// read are left alone.
    pub fn with_xattrs(mut self, source: &Tree, ours: &ByPath, theirs: &ByPath) -> Plan {
        let all = |contents: Option<&Result<Contents, String>>| contents?.as_ref().ok()?.xattrs.clone();
        for (path, wanted) in ours {
            let stays = source.is_dir(path) || self.send.binary_search(path).is_err();
            let (Some(wanted), Some(there), true) = (all(Some(wanted)), all(theirs.get(path)), stays) else {
                continue;
            };
            let set: Vec<Xattr> = wanted.iter().filter(|xattr| !there.contains(xattr)).cloned().collect();
            let gone = |name: &Bytes| !wanted.iter().any(|(wanted, _)| wanted == name);
            let remove: Vec<Bytes> = there.into_iter().map(|(name, _)| name).filter(gone).collect();
            if !(set.is_empty() && remove.is_empty()) {
                self.xattrs.push(XattrChange { path: path.clone(), set, remove });
            }
        }
        self
    }

    /// Objects of which only extended attributes change.
    pub fn xattrs_only(&self) -> impl Iterator<Item = &Vec<u8>> {
        let other = |path: &Vec<u8>| {
            let sent = self.send.binary_search(path).is_ok() && !self.touched.contains(path);
            sent || self.set.binary_search(path).is_ok()
        };
        self.xattrs.iter().map(|change| &change.path).filter(move |path| !other(path))
    }
}

/// See the module. `digests`: those of the source, and those of the destination.
#[must_use]
pub fn plan(source: &Tree, dest: &Tree, options: PlanOptions, digests: Option<(&ByPath, &ByPath)>) -> Plan {
    let mut plan = Plan::default();
    let mut send: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut set: BTreeSet<Vec<u8>> = BTreeSet::new();
    for (path, x) in &source.nodes {
        if x.meta.kind.is_none() || x.meta.kind == Some(FileType::Sock) {
            continue;
        }
        let Some(y) = dest.nodes.get(path) else {
            send.insert(path.clone());
            continue;
        };
        if x.meta.kind != y.meta.kind {
            if dest.with_excluded.contains(path) {
                plan.blocked.push(path.clone());
            } else {
                plan.remove.push(path.clone());
                send.insert(path.clone());
            }
            continue;
        }
        // An owner's name cannot be compared with a number.
        let known = |owner: &Owner| matches!(owner, Owner::Id(_));
        let compare = Compare {
            owner: options.owners && known(&y.meta.owner),
            group: options.owners && known(&y.meta.group),
            ..Compare::default()
        };
        let differences = of_pair(x, y, &compare, false);
        let has = |f: fn(&What) -> bool| differences.iter().any(f);
        let digests = digests.and_then(|(a, b)| Some((a.get(path)?, b.get(path)?)));
        let same_data = digests.map(|(a, b)| matches!((a, b), (Ok(a), Ok(b)) if a.digest == b.digest));
        let other_data = match same_data {
            Some(same) => !same,
            None => x.meta.kind == Some(FileType::Reg) && has(|w| matches!(w, What::Modified)),
        };
        let other = |w: &What| matches!(w, What::Size | What::Target(..) | What::Device | What::Links(..));
        if other_data || has(other) {
            send.insert(path.clone());
        } else if !differences.is_empty() {
            // Directories are sent, which costs nothing more and comes after all that is in them.
            if x.meta.is_dir() {
                send.insert(path.clone())
            } else {
                set.insert(path.clone())
            };
        }
    }
    // All names of a file together.
    let firsts: BTreeSet<&Vec<u8>> =
        send.iter().filter_map(|path| source.nodes.get(path)?.first.as_ref()).collect();
    let groups: Vec<Vec<u8>> = source
        .nodes
        .iter()
        .filter(|(_, node)| node.first.as_ref().is_some_and(|first| firsts.contains(first)))
        .map(|(path, _)| path.clone())
        .collect();
    send.extend(groups);
    send.retain(|path| plan.blocked.binary_search(path).is_err());
    if options.delete {
        for (path, _) in dest.nodes.iter().filter(|(path, _)| !source.nodes.contains_key(*path)) {
            // What is in a directory that goes goes with it.
            if !dest.is_dir(parent_path(path)) || !source.is_dir(parent_path(path)) {
                continue;
            }
            if dest.with_excluded.contains(path) {
                plan.kept.push(path.clone());
            } else {
                plan.remove.push(path.clone());
            }
        }
        for dir in plan.kept.iter().chain(&plan.blocked) {
            plan.remove.extend(removable_in(dest, dir));
        }
        plan.remove.sort();
    }
    // A directory's time of modification is another one when something in it has changed.
    let changed = send.iter().filter(|path| !source.is_dir(path) || !dest.nodes.contains_key(*path));
    for path in changed.chain(&plan.remove) {
        let dir = parent_path(path);
        if !path.is_empty() && source.is_dir(dir) && !send.contains(dir) {
            plan.touched.insert(dir.to_vec());
        }
    }
    set.retain(|path| !send.contains(path));
    send.extend(plan.touched.iter().cloned());
    plan.send = send.into_iter().collect();
    plan.set = set.into_iter().collect();
    plan
}

/// What can be removed of a directory that holds something excluded.
fn removable_in<'a>(dest: &'a Tree, dir: &[u8]) -> impl Iterator<Item = Vec<u8>> + 'a {
    let below = join(dir, b"");
    let from = dest.nodes.range(below.clone()..).map(|(path, _)| path);
    from.take_while(move |path| path.starts_with(&below))
        .filter(|path| dest.with_excluded.contains(parent_path(path)) && !dest.with_excluded.contains(*path))
        .cloned()
}

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::NfsTime;
    use landfast_nfs::v4::attr::AttrValues;

    use super::super::tree::Origin;
    use super::*;
    use crate::fs::Meta;

    /// `d` directory, `f` file, `h` a file of which there are several; then size and time.
    fn tree(objects: &[(&str, char, u64)]) -> Tree {
        let mut tree = Tree::new(Origin::Archive);
        for (path, kind, number) in objects {
            let kind_ = if *kind == 'd' { FileType::Dir } else { FileType::Reg };
            let mut meta = Meta::of(&AttrValues { kind: Some(kind_), ..AttrValues::default() });
            (meta.owner, meta.group) = (Owner::Id(0), Owner::Id(0));
            meta.links = if *kind == 'h' { 2 } else { 1 };
            meta.fileid = *number;
            meta.size = if *kind == 'd' { 0 } else { number % 10 };
            let seconds = if *kind == 'd' { 0 } else { (number / 10).cast_signed() };
            meta.modified = NfsTime { seconds, nseconds: 0 };
            tree.nodes.insert(path.as_bytes().to_vec(), Node::new(meta, Bytes::new(), None));
        }
        tree.link();
        tree
    }

    fn planned(source: &[(&str, char, u64)], dest: &[(&str, char, u64)], delete: bool) -> String {
        let options = PlanOptions { delete, owners: true };
        let plan = plan(&tree(source), &tree(dest), options, None);
        let words = |paths: &[Vec<u8>]| {
            paths.iter().map(|p| format!("/{}", String::from_utf8_lossy(p))).collect::<Vec<_>>().join(" ")
        };
        format!("- {}; > {}; = {}", words(&plan.remove), words(&plan.send), words(&plan.set))
    }

    #[test]
    fn only_what_differs_is_sent_and_directories_around_it() {
        let source = [("", 'd', 0), ("a", 'd', 0), ("a/f", 'f', 11), ("b", 'd', 0), ("b/g", 'f', 23)];
        assert_eq!(planned(&source, &source, true), "- ; > ; = ");
        // Another size, another time, nothing there at all.
        assert_eq!(
            planned(
                &source,
                &[("", 'd', 0), ("a", 'd', 0), ("a/f", 'f', 12), ("b", 'd', 0), ("b/g", 'f', 23)],
                true
            ),
            "- ; > /a /a/f; = "
        );
        assert_eq!(
            planned(
                &source,
                &[("", 'd', 0), ("a", 'd', 0), ("a/f", 'f', 21), ("b", 'd', 0), ("b/g", 'f', 23)],
                true
            ),
            "- ; > /a /a/f; = "
        );
        assert_eq!(planned(&source, &[], false), "- ; > / /a /a/f /b /b/g; = ");
    }

    #[test]
    fn what_is_too_much_goes_as_a_whole_and_only_when_asked() {
        let source = [("", 'd', 0), ("a", 'd', 0)];
        let dest = [("", 'd', 0), ("a", 'd', 0), ("a/x", 'd', 0), ("a/x/y", 'f', 1), ("z", 'f', 1)];
        assert_eq!(planned(&source, &dest, false), "- ; > ; = ");
        assert_eq!(planned(&source, &dest, true), "- /a/x /z; > / /a; = ");
        // What is in the way goes always.
        let dest = [("", 'd', 0), ("a", 'f', 1)];
        assert_eq!(planned(&source, &dest, false), "- /a; > / /a; = ");
        let dest = [("", 'd', 0), ("a", 'd', 0), ("a/x", 'f', 0)];
        assert_eq!(planned(&[("", 'd', 0), ("a", 'f', 1)], &dest, true), "- /a; > / /a; = ");
    }

    #[test]
    fn a_directory_that_holds_something_excluded_stays() {
        let all = [
            ("", 'd', 0),
            ("a", 'd', 0),
            ("a/b", 'd', 0),
            ("a/b/f", 'f', 1),
            ("a/c", 'd', 0),
            ("a-", 'f', 1),
        ];
        let mut dest = tree(&all);
        dest.holds_excluded(b"a/b");
        let options = |delete| PlanOptions { delete, owners: true };
        let paths = |paths: &[&str]| paths.iter().map(|p| p.as_bytes().to_vec()).collect::<Vec<_>>();
        let gone = plan(&tree(&[("", 'd', 0)]), &dest, options(true), None);
        assert_eq!((gone.remove, gone.kept), (paths(&["a-", "a/b/f", "a/c"]), paths(&["a"])));
        // `a` is the first name of a file, whose other name is sent.
        let source = tree(&[("", 'd', 0), ("a", 'h', 11), ("b", 'h', 11)]);
        let blocked = plan(&source, &dest, options(true), None);
        assert_eq!((blocked.remove, blocked.blocked), (paths(&["a-", "a/b/f", "a/c"]), paths(&["a"])));
        assert_eq!(blocked.send, paths(&["", "b"]));
        assert!(plan(&source, &dest, options(false), None).remove.is_empty());
    }

    #[test]
    fn names_of_one_file_stay_together() {
        let source = [("", 'd', 0), ("a", 'h', 11), ("b", 'h', 11), ("c", 'f', 31)];
        assert_eq!(planned(&source, &source, true), "- ; > ; = ");
        let apart = [("", 'd', 0), ("a", 'f', 11), ("b", 'f', 11), ("c", 'f', 31)];
        assert_eq!(planned(&source, &apart, true), "- ; > / /a /b; = ");
        assert_eq!(planned(&apart, &source, true), "- ; > / /a /b; = ");
        let one = [("", 'd', 0), ("a", 'h', 11), ("c", 'f', 31)];
        assert_eq!(planned(&source, &one, true), "- ; > / /a /b; = ");
    }
}
