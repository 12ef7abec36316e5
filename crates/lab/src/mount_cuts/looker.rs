//! A second client that lists and reads all the time.
//!
//! | what | must be so |
//! |---|---|
//! | a listing | the directory's names at a moment between the request and its answer: all that was done before is there, nothing vanishes |
//! | a file | the version that was closed before the request, or a later one; of a version that is open perhaps the beginning |

use super::history::{History, Id, Kind, Naming, Object};
use super::oracle::{Entries, described, steps_there, version_there};
use super::record::Record;
use crate::error::{Error, Result};
use crate::powercut::found::{FoundObject, Type};
use crate::serial::{Actor, Node};
use landfast_nfs::v4::{AttrValues, FileHandle, FileType, NfsStat};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a file that are read: the long ones are compared at the end.
const READ_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, Default)]
pub struct Seen {
    pub names: u64,
    /// The longest that a request took, with all its repetitions.
    pub longest: Duration,
    pub wrong: Vec<String>,
}

/// Looks at what programs do in the directories `tops`, each below the client's root, until `over`.
/// Errors: The server cannot be reached.
pub fn look(client: &mut Actor, tops: &[(String, Id, &Record)], over: &AtomicBool) -> Result<Seen> {
    let mut seen = Seen::default();
    while !over.load(Ordering::Acquire) && seen.wrong.is_empty() {
        for (path, top, record) in tops {
            let handle = timed(&mut seen, || client.handle(path.as_bytes()))?;
            let mut left = vec![(path.clone(), *top, handle)];
            while let Some((path, id, handle)) = left.pop() {
                if over.load(Ordering::Acquire) {
                    break;
                }
                let below = directory(client, (&path, id, &handle), record, &mut seen)?;
                left.extend(below);
            }
        }
    }
    Ok(seen)
}

fn timed<T>(seen: &mut Seen, request: impl FnOnce() -> Result<T>) -> Result<T> {
    let begin = Instant::now();
    let done = request();
    seen.longest = seen.longest.max(begin.elapsed());
    done
}

fn is_gone(e: &Error) -> bool {
    matches!(e, Error::Nfs { status: NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_NOENT, .. })
}

type Below = Vec<(String, Id, FileHandle)>;

fn directory(
    client: &mut Actor,
    (path, id, handle): (&str, Id, &FileHandle),
    record: &Record,
    seen: &mut Seen,
) -> Result<Below> {
    let before = record.now();
    let listed = match timed(seen, || client.list(handle)) {
        Err(e) if is_gone(&e) => {
            if !record.with(|h, _| is_removed(h, id)) {
                seen.wrong.push(format!("{path}: has vanished"));
            }
            return Ok(Vec::new());
        }
        listed => listed?,
    };
    let after = record.now();
    let mut handles = BTreeMap::new();
    let mut objects: BTreeMap<String, FoundObject> = BTreeMap::new();
    for (name, attrs) in listed {
        let name = String::from_utf8_lossy(&name).into_owned();
        let Some(object) = object(client, &attrs, seen)? else {
            // What was listed was removed or replaced before it was read: then the program has begun with that.
            if !record.with(|h, _| h.get(id).is_some_and(|dir| takes_away(dir, &name))) {
                seen.wrong.push(format!("{path}/{name}: has vanished"));
            }
            return Ok(Vec::new());
        };
        if let Some(handle) = &attrs.filehandle {
            handles.insert(name.clone(), handle.clone());
        }
        objects.insert(name, object);
    }
    let mut below = Vec::new();
    record.with(|h, _| {
        let Some(dir) = h.get(id) else { return };
        // What was done before is seen; what had not begun is not.
        let least = dir.steps.iter().rposition(|s| s.done.is_some_and(|t| t <= before)).map_or(0, |n| n + 1);
        let most = dir.steps.iter().filter(|s| s.begun <= after).count();
        let entries: Entries<'_> = objects.iter().map(|(name, object)| (name.clone(), object)).collect();
        let Some((_, names)) = steps_there(h, dir, &entries, (least, most), before) else {
            let shown: Vec<String> =
                objects.iter().map(|(name, object)| format!("{name}: {}", described(object))).collect();
            let steps: Vec<String> = dir.steps[least.saturating_sub(3)..most]
                .iter()
                .map(|s| format!("{:?} ({:?} to {:?})", s.what, s.begun, s.done))
                .collect();
            seen.wrong.push(format!(
                "{path}: listed from {before:?} to {after:?}, and its names were never these between steps {least} and {most}: {}; steps: {}",
                shown.join(", "),
                steps.join(", ")
            ));
            return;
        };
        for (name, object) in names {
            seen.names += 1;
            let Some((node, found)) = h.get(object).zip(objects.get(&name)) else { continue };
            match node.kind {
                Kind::Dir => {
                    let handle = handles.get(&name).cloned();
                    below.extend(handle.map(|handle| (format!("{path}/{name}"), object, handle)));
                }
                Kind::File => {
                    let closed = node.versions.iter().rposition(|v| v.done.is_some_and(|t| t <= before));
                    let long = found.bytes.len() as u64 >= READ_BYTES_MAX;
                    let least = closed.unwrap_or(0);
                    if !long && version_there((object, node), &found.bytes, least, before).is_none() {
                        seen.wrong.push(format!(
                            "{path}/{name}: has {} bytes, and had never these since {before:?}",
                            found.bytes.len()
                        ));
                    }
                }
                Kind::Symlink => {}
            }
        }
    });
    Ok(below)
}

/// Whether the removal of a directory has begun.
fn is_removed(history: &History, id: Id) -> bool {
    let removes =
        |dir: &Object| dir.steps.iter().any(|s| s.object == id && matches!(s.what, Naming::Remove { .. }));
    history.objects.values().any(removes)
}

/// Whether a step of a directory takes a name from what has it.
fn takes_away(dir: &Object, name: &str) -> bool {
    dir.steps.iter().any(|s| match &s.what {
        Naming::Add { .. } => false,
        Naming::Remove { name: gone } => gone == name,
        Naming::Rename { from, to } => from == name || to == name,
    })
}

/// What a listing has told of, with its content. `None`: it is gone meanwhile.
fn object(client: &mut Actor, attrs: &AttrValues, seen: &mut Seen) -> Result<Option<FoundObject>> {
    let what = || Error::Protocol("READDIR leaves attributes out".to_owned());
    let (handle, kind) = attrs.filehandle.as_ref().zip(attrs.kind).ok_or_else(what)?;
    let mut bytes = Vec::new();
    let kind = match kind {
        FileType::Reg => {
            match timed(seen, || client.read(handle, 0, READ_BYTES_MAX as u32)) {
                Ok(data) => bytes = data.to_vec(),
                Err(e) if is_gone(&e) => return Ok(None),
                Err(e) => return Err(e),
            }
            Type::File
        }
        FileType::Lnk => match timed(seen, || client.readlink(handle)) {
            Ok(to) => Type::Other(Node::Symlink(to)),
            Err(e) if is_gone(&e) => return Ok(None),
            Err(e) => return Err(e),
        },
        _ => Type::Other(Node::Dir),
    };
    Ok(Some(FoundObject {
        kind,
        mode: attrs.mode.unwrap_or(0),
        owner: (0, 0),
        mtime: (0, 0),
        links: 1,
        number: attrs.fileid.unwrap_or(0),
        bytes,
        wire: None,
    }))
}
