//! Reads a tree from the disk or over NFS.

use crate::error::{Context, Result};
use crate::serial::action::Path;
use crate::serial::{Actor, Node};
use crate::tarball::{Kind as MemberKind, Member};
use landfast_nfs::v4::types::NfsAce;
use landfast_nfs::v4::{AttrValues, FileHandle, FileType};
use landfast_xdr::Bytes;
use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    File,
    /// Anything else. `bytes` has the target of a symbolic link.
    Other(Node),
}

#[derive(Debug, Clone)]
pub struct FoundObject {
    pub kind: Type,
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    pub mtime: (i64, u32),
    pub links: u64,
    /// Inode number, or fileid.
    pub number: u64,
    pub bytes: Vec<u8>,
    pub wire: Option<Wire>,
}

/// Attributes that only NFS shows.
#[derive(Debug, Clone)]
pub struct Wire {
    pub change: Option<u64>,
    pub fh: FileHandle,
    /// Extended attributes, when they were asked for.
    pub xattrs: Option<BTreeMap<Vec<u8>, Bytes>>,
    pub acl: Option<Vec<NfsAce>>,
}

pub type Tree = BTreeMap<Path, FoundObject>;

impl FoundObject {
    /// A file with this content, for tests.
    #[cfg(test)]
    pub(crate) fn file(bytes: &[u8]) -> FoundObject {
        FoundObject {
            kind: Type::File,
            mode: 0o644,
            owner: (0, 0),
            mtime: (0, 0),
            links: 1,
            number: 1,
            bytes: bytes.to_vec(),
            wire: None,
        }
    }

    /// How it differs from a member of an archive that was extracted to its end. Of a directory only the type counts, because
    /// `untar` sets its attributes last.
    pub fn differs_from(&self, member: &Member) -> Option<String> {
        let is_dir = self.kind == Type::Other(Node::Dir);
        let MemberKind::File(data) = &member.kind else {
            return (matches!(member.kind, MemberKind::Dir) != is_dir).then(|| format!("is {:?}", self.kind));
        };
        if self.kind != Type::File || self.bytes != data[..] {
            return Some(contents_difference(data, &self.bytes));
        }
        if (self.mode, self.owner) != (member.mode, (member.uid, member.gid)) {
            return Some(format!("has mode {:o}, owner {:?}", self.mode, self.owner));
        }
        (self.mtime != member.mtime).then(|| format!("has mtime {:?}", self.mtime))
    }
}

/// Reads what is below `root` from the disk, without the server's own directory.
pub fn on_disk(root: &std::path::Path) -> Result<Tree> {
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
            let found = one_on_disk(&root.join(&path))?;
            if found.kind == Type::Other(Node::Dir) {
                dirs.push(path.clone());
            }
            out.insert(path.as_os_str().as_bytes().to_vec(), found);
        }
    }
    Ok(out)
}

fn one_on_disk(full: &std::path::Path) -> Result<FoundObject> {
    let what = || format!("read {}", full.display());
    let meta = std::fs::symlink_metadata(full).context(what)?;
    let t = meta.file_type();
    let device = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    let mut bytes = Vec::new();
    let kind = if t.is_file() {
        bytes = std::fs::read(full).context(what)?;
        Type::File
    } else if t.is_symlink() {
        bytes = std::fs::read_link(full).context(what)?.into_os_string().into_vec();
        Type::Other(Node::Symlink(bytes.clone()))
    } else if t.is_dir() {
        Type::Other(Node::Dir)
    } else if t.is_fifo() {
        Type::Other(Node::Fifo)
    } else if t.is_socket() {
        Type::Other(Node::Socket)
    } else if t.is_char_device() {
        Type::Other(Node::Char(device.0, device.1))
    } else {
        Type::Other(Node::Block(device.0, device.1))
    };
    Ok(FoundObject {
        kind,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        mtime: (meta.mtime(), u32::try_from(meta.mtime_nsec()).unwrap_or(0)),
        links: meta.nlink(),
        number: meta.ino(),
        bytes,
        wire: None,
    })
}

/// Reads what is below the actor's root over NFS.
pub fn over_nfs(actor: &mut Actor, xattrs: bool) -> Result<Tree> {
    let root = actor.handle(b"")?;
    let mut out = Tree::new();
    let mut dirs = vec![(Path::new(), root)];
    while let Some((dir, fh)) = dirs.pop() {
        for (name, attrs) in actor.list(&fh)? {
            let path = if dir.is_empty() { name } else { [&dir[..], b"/", &name[..]].concat() };
            let Some(found) = one_over_nfs(actor, attrs, xattrs)? else {
                let what = format!("{}: READDIR leaves attributes out", path.escape_ascii());
                return Err(crate::Error::Protocol(what));
            };
            if let (Type::Other(Node::Dir), Some(wire)) = (&found.kind, &found.wire) {
                dirs.push((path.clone(), wire.fh.clone()));
            }
            out.insert(path, found);
        }
    }
    Ok(out)
}

/// `None` when an attribute is missing.
fn one_over_nfs(actor: &mut Actor, attrs: AttrValues, xattrs: bool) -> Result<Option<FoundObject>> {
    let id = |who: &Option<Bytes>| std::str::from_utf8(who.as_ref()?).ok()?.parse::<u32>().ok();
    let (Some(fh), Some(kind), Some(mode), Some(time), Some(number), Some(size), Some(uid), Some(gid)) = (
        attrs.filehandle.clone(),
        attrs.kind,
        attrs.mode,
        attrs.time_modify,
        attrs.fileid,
        attrs.size,
        id(&attrs.owner),
        id(&attrs.owner_group),
    ) else {
        return Ok(None);
    };
    let device = attrs.rawdev.unwrap_or_default();
    let mut bytes = Vec::new();
    let kind = match kind {
        FileType::Reg => {
            while (bytes.len() as u64) < size {
                let piece = actor.read(&fh, bytes.len() as u64, 1 << 20)?;
                if piece.is_empty() {
                    break;
                }
                bytes.extend_from_slice(&piece);
            }
            Type::File
        }
        FileType::Lnk => {
            bytes = actor.readlink(&fh)?;
            Type::Other(Node::Symlink(bytes.clone()))
        }
        FileType::Fifo => Type::Other(Node::Fifo),
        FileType::Sock => Type::Other(Node::Socket),
        FileType::Chr => Type::Other(Node::Char(device.major, device.minor)),
        FileType::Blk => Type::Other(Node::Block(device.major, device.minor)),
        _ => Type::Other(Node::Dir),
    };
    let has_xattrs = xattrs && matches!(kind, Type::File | Type::Other(Node::Dir));
    let xattrs = if has_xattrs { Some(actor.xattrs(&fh)?.into_iter().collect()) } else { None };
    Ok(Some(FoundObject {
        kind,
        mode,
        owner: (uid, gid),
        mtime: (time.seconds, time.nseconds),
        links: u64::from(attrs.numlinks.unwrap_or(0)),
        number,
        bytes,
        wire: Some(Wire { change: attrs.change, fh, xattrs, acl: attrs.acl }),
    }))
}

/// Moves everything below `dir` out of a tree, with paths relative to `dir`. Returns `dir` itself, too.
pub fn take_subtree(tree: &mut Tree, dir: &str) -> (Option<FoundObject>, Tree) {
    let top = tree.remove(dir.as_bytes());
    let prefix = format!("{dir}/").into_bytes();
    let below: Vec<Path> = tree.keys().filter(|p| p.starts_with(&prefix)).cloned().collect();
    let moved = below.into_iter().filter_map(|p| Some((p[prefix.len()..].to_vec(), tree.remove(&p)?)));
    (top, moved.collect())
}

pub fn contents_difference(wanted: &[u8], got: &[u8]) -> String {
    let first = wanted.iter().zip(got).position(|(a, b)| a != b);
    let at = first.map_or_else(String::new, |i| format!(", first difference at byte {i}"));
    format!("has wrong contents: {} bytes, {} of them stable{at}", got.len(), wanted.len())
}
