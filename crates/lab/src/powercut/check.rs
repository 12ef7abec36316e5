//! The oracle: compares a recovered tree, as the disk and as NFS show it, with the model; and change attributes and handles
//! with what the server gave before the cut.

use super::found::{FoundObject, Tree, Type, contents_difference};
use super::model::{Kind, Model, ROOT};
use super::peer::Peer;
use crate::error::{Error, Result};
use crate::limits::{REMOVED_GONE_WITHIN, REMOVED_LOOKED_EACH};
use crate::serial::Node;
use crate::serial::action::Path;
use landfast_nfs::v4::{FileHandle, FileType};
use std::collections::HashMap;
use std::time::Instant;

/// Differences that are described at most.
const SHOWN_MAX: usize = 12;

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
        let ino = found.number;
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

fn object_difference(model: &Model, id: usize, found: &FoundObject) -> Option<String> {
    let object = model.object(id)?;
    let same = match (&object.kind, &found.kind) {
        (Kind::File(contents), Type::File) => {
            if !contents.allows(&found.bytes) {
                return Some(format!(
                    "{}; {}",
                    contents_difference(&contents.stable, &found.bytes),
                    contents.why_not(&found.bytes)
                ));
            }
            true
        }
        (Kind::Dir(_), Type::Other(node)) => *node == Node::Dir,
        (Kind::Special(wanted), Type::Other(node)) => wanted == node,
        _ => false,
    };
    if !same {
        return Some(format!("is of another type ({:?})", found.kind));
    }
    let is_link = matches!(found.kind, Type::Other(Node::Symlink(_)));
    if !is_link && object.mode_known && found.mode != object.mode {
        return Some(format!("has mode {:o}, not {:o}", found.mode, object.mode));
    }
    if found.owner != object.owner {
        return Some(format!("belongs to {:?}, not {:?}", found.owner, object.owner));
    }
    if object.mtime.is_some_and(|t| t != found.mtime) {
        return Some(format!("has mtime {:?}, not {:?}", found.mtime, object.mtime));
    }
    let links = model.links(id) as u64;
    if !matches!(object.kind, Kind::Dir(_)) && found.links != links {
        return Some(format!("has {} links, not {links}", found.links));
    }
    let wire = found.wire.as_ref()?;
    if let Some(xattrs) = wire.xattrs.as_ref().filter(|x| **x != object.xattrs) {
        let names = |x: &std::collections::BTreeMap<Vec<u8>, _>| {
            x.keys().map(|k| k.escape_ascii().to_string()).collect::<Vec<_>>()
        };
        return Some(format!(
            "has other extended attributes: {:?}, not {:?}",
            names(xattrs),
            names(&object.xattrs)
        ));
    }
    match (&wire.acl, &object.acl) {
        (Some(got), Some(wanted)) if got != wanted => {
            Some(format!("has another access list: {got:?}, not {wanted:?}"))
        }
        _ => None,
    }
}

/// Finds the variant that the tree agrees with.
/// Errors: [`Error::Unable`] with the differences from the nearest variant when it agrees with none.
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
    let differ = nearest.unwrap_or_default();
    Err(Error::Unable(format!("{} differences from every allowed state: {}", differ.len(), shown(differ))))
}

fn shown(mut what: Vec<String>) -> String {
    what.truncate(SHOWN_MAX);
    what.join("; ")
}

/// Compares change attributes with those that the server gave before the cut (`before` has what was acknowledged then): none
/// decreases, and an equal one means an equal object (RFC 8881 section 5.8.1.4). Notes the new ones.
pub fn changes(before: &Model, model: &mut Model, tree: &Tree, top: Option<&FoundObject>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, id) in model.paths().into_iter().chain([(Path::new(), ROOT)]) {
        let found = if id == ROOT { top } else { tree.get(&path) };
        let now = found.and_then(|f| f.wire.as_ref()?.change);
        let (Some(now), Some(object)) = (now, model.object(id)) else { continue };
        let old = before.object(id);
        let name = path.escape_ascii();
        match old.and_then(|o| o.change) {
            Some(was) if now < was => {
                wrong.push(format!("{name}: change attribute {was} went back to {now}"))
            }
            Some(was) if now == was && !old.is_some_and(|o| o.looks_like(object)) => {
                wrong.push(format!("{name}: change attribute {was} as before, for something else"));
            }
            _ => {}
        }
        if let Some(object) = model.object_mut(id) {
            object.change = Some(now);
        }
    }
    wrong
}

/// Tries the handles that clients had before the cut: each must still lead to its object, with the same fileid, type and size;
/// those of removed objects must be stale. Returns how many were tried.
/// Errors: [`Error::Unable`] with what is wrong.
pub fn handles(model: &Model, tree: &Tree, removed: &[FileHandle], peer: &mut Peer) -> Result<u64> {
    let mut tried = 0;
    let mut wrong = Vec::new();
    for (path, id) in model.paths().into_iter().chain([(Path::new(), ROOT)]) {
        let Some(object) = model.object(id) else { continue };
        let Some(fh) = &object.fh else { continue };
        tried += 1;
        let name = path.escape_ascii();
        match peer.getattr(fh) {
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
    let begun = Instant::now();
    for fh in removed {
        tried += 1;
        loop {
            match peer.getattr(fh) {
                // A file that was open when its last name went goes with the client that had it open, soon after that is known to be gone.
                Ok(_) if begun.elapsed() < REMOVED_GONE_WITHIN => std::thread::sleep(REMOVED_LOOKED_EACH),
                Ok(_) => {
                    wrong.push("the handle of a removed object leads to an object".to_owned());
                    break;
                }
                Err(Error::Nfs { .. }) => break,
                Err(e) => return Err(e),
            }
        }
    }
    if wrong.is_empty() {
        return Ok(tried);
    }
    Err(Error::Unable(format!("{} handles of {tried} are wrong: {}", wrong.len(), shown(wrong))))
}
