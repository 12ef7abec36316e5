//! Lists trees: local ones, those of servers, those in archives.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{FileType, Fsid, NfsTime};

use super::contents::{Hasher, Key};
use super::tree::{Node, OnProgress, Origin, Tree, parent_path};
use crate::archive::{ArchiveError, ArchiveReader, Kind, Member, open};
use crate::archive::{Filter, components};
use crate::fs::{ItemError, Meta, Nfs, Object, Outcome, Owner, Start, WalkOptions, join};
use crate::local;

/// Bytes of a member that are read at a time.
const MEMBER_PART: usize = 1 << 20;

impl Tree {
    /// Lists a local tree. Blocks.
    #[must_use]
    pub fn local(top: &Path, filter: &Filter, on_progress: &OnProgress) -> Tree {
        let mut tree = Tree::new(Origin::Local(top.to_owned()));
        let options = local::WalkOptions { follow: local::Follow::Start, ..local::WalkOptions::default() };
        let mut walk = local::Walk::new(top, Vec::new(), options);
        while let Some(found) = walk.next() {
            match found {
                Ok(found) if filter.excludes(&found.path) => {
                    tree.holds_excluded(parent_path(&found.path));
                    walk.pass_over();
                }
                Ok(found) => {
                    on_progress(1);
                    tree.nodes.insert(found.path, Node::new(found.meta, found.text.into(), None));
                }
                Err(e) if filter.excludes(&e.path) => tree.holds_excluded(parent_path(&e.path)),
                Err(e) => {
                    // What it holds is not known.
                    if filter.has_patterns() {
                        tree.holds_excluded(&e.path);
                    }
                    tree.failures.push((e.path, e.error.to_string()));
                }
            }
        }
        tree.link();
        tree
    }

    /// Lists a tree on a server. `error_text` turns an error into the caller's words.
    pub async fn server(
        nfs: &Nfs,
        top: &Object,
        filter: &Filter,
        on_progress: &OnProgress,
        error_text: impl Fn(&ItemError) -> String,
    ) -> Tree {
        let mut tree = Tree::new(Origin::Server(nfs.clone()));
        let meta = Meta::of(&top.attrs);
        let is_dir = meta.is_dir();
        tree.nodes.insert(Vec::new(), Node::new(meta, Bytes::new(), Some(top.fh.clone())));
        if is_dir {
            let start = Start { path: Vec::new(), fh: top.fh.clone(), first_page: top.first_page.clone() };
            let walk = WalkOptions { texts: true, ..WalkOptions::default() };
            nfs.walk_from([start], walk, |listing| match listing.entries {
                // The walk enters excluded directories as well.
                entries if filter.excludes(&listing.path) => drop(entries),
                Outcome::Committed(entries) => {
                    on_progress(entries.len() as u64);
                    for entry in entries {
                        let path = join(&listing.path, &entry.name);
                        if filter.excludes(&path) {
                            tree.holds_excluded(&listing.path);
                        } else {
                            let text = entry.text.unwrap_or_default();
                            tree.nodes.insert(path, Node::new(entry.meta, text, entry.fh));
                        }
                    }
                }
                other => {
                    if let Err(e) = other.into_result() {
                        // What it holds is not known.
                        if filter.has_patterns() {
                            tree.holds_excluded(&listing.path);
                        }
                        tree.failures.push((listing.path, error_text(&e)));
                    }
                }
            })
            .await;
        }
        tree.link();
        tree
    }

    /// Reads the tree in an archive. Blocks. Fails when the archive cannot be read, or is not an archive.
    pub fn archive(
        input: Box<dyn Read + Send>,
        filter: &Filter,
        key: Key,
        on_progress: &OnProgress,
    ) -> Result<Tree, ArchiveError> {
        let (_, plain) = open(input)?;
        let mut archive = ArchiveReader::new(plain);
        let mut tree = Tree::new(Origin::Archive);
        let mut number = 0;
        while let Some(member) = archive.next_member()? {
            if filter.excludes(&member.path) {
                continue;
            }
            let whole = |name: &[u8]| components(name).map(|parts| parts.join(&b'/'));
            let path = match whole(&member.path) {
                Ok(path) => path,
                Err(e) => {
                    tree.failures.push((member.path, e.to_string()));
                    continue;
                }
            };
            number += 1;
            on_progress(1);
            let node = match member.kind {
                Kind::HardLink => match whole(&member.link).ok().and_then(|link| tree.nodes.get_mut(&link)) {
                    Some(target) => {
                        target.meta.links = 2;
                        target.clone()
                    }
                    None => {
                        tree.failures.push((path, "a hard link to nothing that comes before it".to_owned()));
                        continue;
                    }
                },
                _ => {
                    let digest = (member.kind == Kind::File).then(|| digest(&mut archive, &member, key));
                    let mut node = Node::new(meta(&member, number), Bytes::from(member.link), None);
                    node.digest = digest.transpose()?;
                    let short = |(name, value): (Vec<u8>, Bytes)| {
                        Some((Bytes::copy_from_slice(name.strip_prefix(b"user.")?), value))
                    };
                    node.xattrs = member.xattrs.into_iter().filter_map(short).collect();
                    node
                }
            };
            tree.nodes.insert(path, node);
        }
        imply(&mut tree.nodes);
        tree.link();
        Ok(tree)
    }
}

/// Adds the directories that contain members but that the archive does not name.
fn imply(nodes: &mut BTreeMap<Vec<u8>, Node>) {
    let mut missing: Vec<Vec<u8>> = vec![Vec::new()];
    for path in nodes.keys() {
        let mut at = parent_path(path);
        while !at.is_empty() && !nodes.contains_key(at) {
            missing.push(at.to_vec());
            at = parent_path(at);
        }
    }
    for path in missing {
        nodes.entry(path).or_insert_with(|| {
            let dir = AttrValues { kind: Some(FileType::Dir), ..AttrValues::default() };
            Node { implied: true, ..Node::new(Meta::of(&dir), Bytes::new(), None) }
        });
    }
}

fn meta(member: &Member, number: u64) -> Meta {
    let kind = match member.kind {
        Kind::File | Kind::HardLink => FileType::Reg,
        Kind::Symlink => FileType::Lnk,
        Kind::Char => FileType::Chr,
        Kind::Block => FileType::Blk,
        Kind::Dir => FileType::Dir,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Sock,
    };
    let time = NfsTime { seconds: member.mtime.seconds, nseconds: member.mtime.nanos };
    Meta {
        kind: Some(kind),
        mode: member.mode,
        links: 1,
        owner: Owner::Id(member.uid),
        group: Owner::Id(member.gid),
        size: member.size,
        fsid: Fsid { major: 0, minor: 0 },
        fileid: number,
        rdev: member.device,
        modified: time,
        ..Meta::of(&AttrValues::default())
    }
}

/// The digest of a member's data, with zeroes for the holes of a sparse file.
fn digest<R: Read>(
    archive: &mut ArchiveReader<R>,
    member: &Member,
    key: Key,
) -> Result<super::tree::Digest, ArchiveError> {
    let mut hasher = Hasher::new(key);
    let whole = [crate::archive::Segment { offset: 0, len: member.stored }];
    for segment in member.sparse.as_deref().unwrap_or(&whole) {
        hasher.zeroes_up_to(segment.offset);
        let mut left = segment.len;
        while left > 0 {
            let part = archive.data(usize::try_from(left).unwrap_or(usize::MAX).min(MEMBER_PART))?;
            if part.is_empty() {
                break;
            }
            left -= part.len() as u64;
            hasher.add(&part);
        }
    }
    hasher.zeroes_up_to(member.size);
    Ok(hasher.end())
}
