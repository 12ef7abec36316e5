//! The oracle: a recovered tree against the model, by names, contents and attributes on the disk,
//! and by the handles from before over the wire.

use super::model::{Kind, Model, ROOT};
use crate::error::{Context, Error, Result};
use crate::serial::action::Path;
use crate::serial::{Actor, Node};
use crate::tarball::{Kind as MemberKind, Member};
use landfast_nfs::v4::{FileHandle, FileType};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

/// At most so many differences are described.
const SHOWN_MAX: usize = 12;

/// One object as the disk has it.
#[derive(Debug, Clone)]
pub struct Found {
    meta: std::fs::Metadata,
    /// A file's contents, a symbolic link's text.
    bytes: Vec<u8>,
}

impl Found {
    /// A file's contents.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How it differs from a member of an archive that was extracted to its end; of a directory only
    /// the type counts, its attributes come last.
    pub fn differs_from(&self, member: &Member) -> Option<String> {
        let t = self.meta.file_type();
        let MemberKind::File(data) = &member.kind else {
            return (matches!(member.kind, MemberKind::Dir) != t.is_dir()).then(|| format!("is {t:?}"));
        };
        if !t.is_file() || self.bytes != data[..] {
            return Some(contents_difference(data, &self.bytes));
        }
        let owner = (self.meta.uid(), self.meta.gid());
        if (self.meta.mode() & 0o7777, owner) != (member.mode, (member.uid, member.gid)) {
            return Some(format!("has mode {:o}, owner {owner:?}", self.meta.mode() & 0o7777));
        }
        (self.mtime() != member.mtime).then(|| format!("has mtime {:?}", self.mtime()))
    }

    /// Modification time.
    pub fn mtime(&self) -> (i64, u32) {
        (self.meta.mtime(), u32::try_from(self.meta.mtime_nsec()).unwrap_or(0))
    }
}

/// All that is below a directory.
pub type Tree = BTreeMap<Path, Found>;

/// Reads what is below `root`, without the server's own directory.
///
/// # Errors
/// When something cannot be read.
pub fn read_tree(root: &std::path::Path) -> Result<Tree> {
    let mut out = Tree::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        let at = root.join(&dir);
        let what = || format!("read {}", at.display());
        for entry in std::fs::read_dir(&at).context(what)? {
            let entry = entry.context(what)?;
            if dir.as_os_str().is_empty() && entry.file_name() == ".landfast" {
                continue;
            }
            let path = dir.join(entry.file_name());
            let full = root.join(&path);
            let what = || format!("read {}", full.display());
            let meta = std::fs::symlink_metadata(&full).context(what)?;
            let bytes = if meta.is_file() {
                std::fs::read(&full).context(what)?
            } else if meta.is_symlink() {
                std::fs::read_link(&full).context(what)?.into_os_string().into_vec()
            } else {
                Vec::new()
            };
            if meta.is_dir() {
                dirs.push(path.clone());
            }
            out.insert(path.as_os_str().as_bytes().to_vec(), Found { meta, bytes });
        }
    }
    Ok(out)
}

/// How the tree differs from the model; empty when it does not.
pub fn differences(model: &Model, tree: &Tree) -> Vec<String> {
    let mut out = Vec::new();
    let mut inodes: HashMap<usize, u64> = HashMap::new();
    let mut objects: HashMap<u64, usize> = HashMap::new();
    let paths = model.paths();
    for (path, id) in &paths {
        let name = path.escape_ascii();
        let Some(found) = tree.get(path) else {
            out.push(format!("{name}: is missing"));
            continue;
        };
        let ino = found.meta.ino();
        if *inodes.entry(*id).or_insert(ino) != ino || *objects.entry(ino).or_insert(*id) != *id {
            out.push(format!("{name}: is not the object that it was"));
        }
        if let Some(difference) = object_difference(model, *id, found) {
            out.push(format!("{name}: {difference}"));
        }
    }
    let known: std::collections::HashSet<&Path> = paths.iter().map(|(p, _)| p).collect();
    out.extend(tree.keys().filter(|p| !known.contains(p)).map(|p| format!("{}: appeared", p.escape_ascii())));
    out
}

fn object_difference(model: &Model, id: usize, found: &Found) -> Option<String> {
    let object = model.object(id)?;
    let meta = &found.meta;
    let t = meta.file_type();
    let device = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    let same = match &object.kind {
        Kind::File(contents) if t.is_file() => {
            if !contents.allows(&found.bytes) {
                return Some(contents_difference(&contents.stable, &found.bytes));
            }
            true
        }
        Kind::Dir(_) => t.is_dir(),
        Kind::Special(Node::Symlink(to)) => t.is_symlink() && found.bytes == *to,
        Kind::Special(Node::Fifo) => t.is_fifo(),
        Kind::Special(Node::Socket) => t.is_socket(),
        Kind::Special(Node::Char(a, b)) => t.is_char_device() && device == (*a, *b),
        Kind::Special(Node::Block(a, b)) => t.is_block_device() && device == (*a, *b),
        Kind::File(_) | Kind::Special(Node::Dir) => false,
    };
    if !same {
        return Some(format!("is of another type ({t:?})"));
    }
    if !t.is_symlink() && meta.mode() & 0o7777 != object.mode {
        return Some(format!("has mode {:o}, not {:o}", meta.mode() & 0o7777, object.mode));
    }
    if (meta.uid(), meta.gid()) != object.owner {
        return Some(format!("belongs to {}:{}, not {:?}", meta.uid(), meta.gid(), object.owner));
    }
    if object.mtime.is_some_and(|t| t != found.mtime()) {
        return Some(format!("has mtime {:?}, not {:?}", found.mtime(), object.mtime));
    }
    let links = model.links(id) as u64;
    if !t.is_dir() && meta.nlink() != links {
        return Some(format!("has {} links, not {links}", meta.nlink()));
    }
    None
}

fn contents_difference(wanted: &[u8], got: &[u8]) -> String {
    let first = wanted.iter().zip(got).position(|(a, b)| a != b);
    let at = first.map_or_else(String::new, |i| format!(", first difference at byte {i}"));
    format!("has wrong contents: {} bytes, {} of them stable{at}", got.len(), wanted.len())
}

/// Finds the variant that the tree agrees with.
///
/// # Errors
/// [`Error::Unable`] with the differences from the nearest variant when it agrees with none.
pub fn agree(variants: &[Model], tree: &Tree) -> Result<usize> {
    let mut nearest: Option<Vec<String>> = None;
    for (i, model) in variants.iter().enumerate() {
        let differ = differences(model, tree);
        if differ.is_empty() {
            return Ok(i);
        }
        if nearest.as_ref().is_none_or(|n| differ.len() < n.len()) {
            nearest = Some(differ);
        }
    }
    let mut differ = nearest.unwrap_or_default();
    let count = differ.len();
    differ.truncate(SHOWN_MAX);
    Err(Error::Unable(format!("{count} differences from every allowed state: {}", differ.join("; "))))
}

/// The handles that clients had before the cut, over the wire: each still leads to its object, with
/// the same fileid, type and size; those of removed objects lead nowhere. Returns how many were
/// tried.
///
/// # Errors
/// [`Error::Unable`] with what is wrong.
pub fn handles(model: &Model, tree: &Tree, removed: &[FileHandle], actor: &mut Actor) -> Result<u64> {
    let mut tried = 0;
    let mut wrong = Vec::new();
    for (path, id) in model.paths().into_iter().chain([(Path::new(), ROOT)]) {
        let Some(object) = model.object(id) else { continue };
        let Some(fh) = &object.fh else { continue };
        tried += 1;
        let name = path.escape_ascii();
        match actor.getattr(fh) {
            Ok(attrs) => {
                if object.fileid.is_some() && attrs.fileid != object.fileid {
                    wrong.push(format!("{name}: fileid {:?}, was {:?}", attrs.fileid, object.fileid));
                }
                if let Kind::File(_) = object.kind
                    && (attrs.kind != Some(FileType::Reg)
                        || attrs.size != tree.get(&path).map(|f| f.bytes.len() as u64))
                {
                    wrong.push(format!("{name}: its handle leads to another object"));
                }
            }
            Err(e @ Error::Nfs { .. }) => wrong.push(format!("{name}: its handle: {e}")),
            Err(e) => return Err(e),
        }
    }
    for fh in removed {
        tried += 1;
        match actor.getattr(fh) {
            Ok(_) => wrong.push("the handle of a removed object leads to an object".to_owned()),
            Err(Error::Nfs { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    if wrong.is_empty() {
        return Ok(tried);
    }
    let count = wrong.len();
    wrong.truncate(SHOWN_MAX);
    Err(Error::Unable(format!("{count} handles of {tried} are wrong: {}", wrong.join("; "))))
}
