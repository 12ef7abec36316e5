//! Changes that have lost against somebody else's: a name that was free, or a file that was to be replaced, is somebody else's now. What the
//! program has made is kept beside it under another name, `NAME.landfast-conflict-HOST-N`.

use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::args::CreateType;
use landfast_nfs::v4::{FileHandle, NfsStat};

use super::changes;
use super::shared::{Open, Shared};
use crate::core::Ino;
use crate::core::pending::{Change, What};
use crate::core::tree::Tree;
use crate::errno::Errno;
use crate::limits::{CONFLICT_NAMES_MAX, NAME_BYTES_MAX};
use crate::remote::{Also, Caller, Delegation, Doubt, Fault, Step, StepDone};

/// A change that has failed, with the directory that it is in.
pub(super) struct Lost<'a> {
    pub(super) who: &'a Caller,
    pub(super) dir: Ino,
    pub(super) handle: &'a FileHandle,
    pub(super) change: &'a Change<Caller>,
    pub(super) step: &'a Step,
    /// What it is about, if the server has that.
    pub(super) ours: Option<FileHandle>,
}

/// The `number`th name for what was to be `name`, on a machine of this name.
fn name_beside(name: &[u8], host: &[u8], number: u32) -> Bytes {
    let plain = |b: &u8| if b.is_ascii_alphanumeric() || b"-._".contains(b) { *b } else { b'_' };
    let host: Vec<u8> = host.iter().take(64).map(plain).collect();
    let mut end = b".landfast-conflict-".to_vec();
    end.extend(host);
    end.extend(format!("-{number}").into_bytes());
    let mut all = name[..name.len().min(NAME_BYTES_MAX - end.len())].to_vec();
    all.extend(end);
    all.into()
}

/// This machine's name.
fn host() -> Vec<u8> {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_ascii().to_vec()
}

/// Keeps what a failed change has made, if it has lost against somebody else's. Returns its name, and what came of it.
pub(super) async fn keep(shared: &Arc<Shared>, lost: Lost<'_>, e: Fault) -> Option<(Bytes, StepDone)> {
    let taken = e.status() == Some(NfsStat::NFS4ERR_EXIST);
    let stale = matches!(e, Fault::Failed(Errno::STALE));
    let name = match (lost.step, &lost.change.what) {
        (Step::File(new), _) if taken => &new.name,
        (Step::Dir { name, .. } | Step::Link { name, .. }, _) if taken => name,
        // In an own directory it is a change of this mount's that has failed before.
        (Step::Rename { to, .. }, What::Rename { .. }) if stale && !shared.tree().is_own(lost.dir) => to,
        _ => return None,
    };
    let host = host();
    for number in 1..=CONFLICT_NAMES_MAX {
        let beside = name_beside(name, &host, number);
        match keep_as(shared, &lost, &beside).await {
            Ok(Some(done)) => return Some((beside, done)),
            Ok(None) => return None,
            Err(e) if e.status() == Some(NfsStat::NFS4ERR_EXIST) => {}
            Err(e) => {
                let dir = shared.tree().path(lost.dir);
                tracing::error!("{dir}: {} cannot be kept: {}", String::from_utf8_lossy(&beside), e.errno());
                return None;
            }
        }
    }
    None
}

/// `None`: there is nothing to keep.
async fn keep_as(shared: &Arc<Shared>, lost: &Lost<'_>, beside: &Bytes) -> Result<Option<StepDone>, Fault> {
    let (remote, who, dir) = (&shared.remote, lost.who, lost.handle);
    match lost.step {
        Step::File(new) => {
            let mut new = new.clone();
            new.name = beside.clone();
            Ok(Some(StepDone::File(Box::new(remote.create(who, dir, &new, Doubt::None).await?))))
        }
        Step::Dir { mode, delegate, .. } => {
            let asked = shared.space.lock().ask(shared.now());
            let made =
                remote.make(who, dir, beside, (CreateType::Dir, Some(*mode)), (Doubt::None, *delegate));
            let made = made.await?;
            let (handle, attrs) = made.object.ok_or(Fault::Failed(Errno::IO))?;
            let delegation = made.delegation.unwrap_or(Delegation::None);
            if let Delegation::Write(_) = delegation {
                shared.space.lock().told(who.uid, asked, made.room, shared.now());
            }
            Ok(Some(StepDone::Object { handle, attrs: Some(attrs), delegation, unset: None }))
        }
        Step::Link { text, set, .. } => {
            let made =
                remote.make(who, dir, beside, (CreateType::Lnk(text.clone()), None), (Doubt::None, false));
            let (handle, attrs) = made.await?.object.ok_or(Fault::Failed(Errno::IO))?;
            let unset = match set.is_empty() {
                true => None,
                false => remote.set_attrs(who, &handle, set).await.err(),
            };
            Ok(Some(StepDone::Object { handle, attrs: Some(attrs), delegation: Delegation::None, unset }))
        }
        Step::Rename { from, .. } => {
            let ours = &lost.ours;
            let found = remote.look_up(who, dir, from, Also::Nothing).await?.found;
            if ours.is_none() || found.map(|(handle, _)| handle) != *ours {
                return Ok(None);
            }
            if remote.look_up(who, dir, beside, Also::Nothing).await?.found.is_some() {
                return Err(Fault::Op(landfast_nfs::v4::OpNum::RENAME, NfsStat::NFS4ERR_EXIST));
            }
            remote.rename(who, (dir, from), (dir, beside), ours.as_ref(), false).await?;
            Ok(Some(StepDone::Name))
        }
        Step::Remove { .. } | Step::Set { .. } => Ok(None),
    }
}

/// Tells of what was kept, and has memory know its name.
pub(super) fn note(shared: &Shared, tree: &mut Tree<Open>, change: &Change<Caller>, kept: &Bytes) {
    let (old, new) = match &change.what {
        What::File { name } | What::Dir { name, .. } | What::Link { name, .. } => (None, name),
        What::Rename { from, to, .. } => (Some(from), to),
        What::Remove { .. } | What::Set(_) => return,
    };
    let path = tree.path(change.dir);
    let at = |name: &Bytes| match path.is_empty() {
        true => String::from_utf8_lossy(name).into_owned(),
        false => format!("{path}/{}", String::from_utf8_lossy(name)),
    };
    let (path, beside) = (at(new), at(kept));
    shared
        .failed(&path, &format!("this name is taken on the server: what was made here is kept as {beside}"));
    changes::failed(shared, tree, change.dir, Errno::EXIST);
    shared.lanes.pending().damage(change.dir);
    tree.is_beside(change.dir, change.node, kept);
    old.into_iter().for_each(|name| tree.unknown(change.dir, name));
    let open = tree.get(change.node).and_then(|n| n.file.clone());
    if let Some(open) = open {
        open.state.lock().errors.add(Errno::EXIST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_are_no_longer_than_names_may_be() {
        assert_eq!(name_beside(b"a b", b"box", 2), &b"a b.landfast-conflict-box-2"[..]);
        assert_eq!(name_beside(b"f", b"a/b\0", 1), &b"f.landfast-conflict-a_b_-1"[..]);
        let long = name_beside(&[b'x'; 255], &[b'h'; 300], 1000);
        assert_eq!(long.len(), NAME_BYTES_MAX);
        assert!(long.ends_with(b"h-1000"));
    }
}
