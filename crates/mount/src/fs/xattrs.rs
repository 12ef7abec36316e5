//! Extended attributes: those of users (`user.`), on servers of version 4.2 (RFC 8276). And those by which the
//! command line asks the mount for something.

use std::sync::Arc;

use bytes::Bytes;
use fuser::ReplyXattr;
use landfast_client::Version;
use landfast_nfs::v4::args::SetxattrOption;

use super::flush::{self, Until};
use super::reply::data;
use super::shared::{Failures, Shared};
use crate::asked::{STATUS, SYNC};
use crate::core::Ino;
use crate::errno::Errno;
use crate::limits::ANSWER_BYTES_MAX;
use crate::remote::Caller;

/// The name as the server has it.
fn of_users(shared: &Shared, name: &[u8]) -> Result<Bytes, Errno> {
    let name = name.strip_prefix(b"user.").filter(|n| !n.is_empty()).ok_or(Errno::NOTSUP)?;
    match shared.remote.version() {
        Version::V42 => Ok(Bytes::copy_from_slice(name)),
        _ => Err(Errno::NOTSUP),
    }
}

/// Whether a user may ask for [`SYNC`]: root, and who runs the mount. The answer names paths that others may not see, and names them once.
fn may_sync(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

/// What needs no request: what the kernel itself asks for, and what this version of NFS, or the user, does not have.
pub(super) fn from_memory(shared: &Shared, uid: u32, name: &[u8]) -> Option<Errno> {
    if name == SYNC.as_bytes() && !may_sync(uid) {
        return Some(Errno(libc::EPERM));
    }
    let own = [SYNC.as_bytes(), STATUS.as_bytes()].contains(&name);
    match own {
        true => None,
        false => of_users(shared, name).err(),
    }
}

async fn made(shared: &Arc<Shared>, who: &Caller, ino: Ino) {
    let open = shared.tree().get(ino).and_then(|n| n.file.clone());
    if let Some(open) = open {
        flush::send(shared, ino, &open, &shared.writer(ino).unwrap_or_else(|| who.clone()), Until::Made)
            .await;
    }
    super::changes::settle_node(shared, ino).await;
}

/// The value of an extended attribute, or what the command line is answered.
pub(super) struct Answer {
    value: Bytes,
    /// What it names, if it answers [`SYNC`].
    pub(super) failures: Option<Failures>,
}

impl From<Bytes> for Answer {
    fn from(value: Bytes) -> Answer {
        Answer { value, failures: None }
    }
}

/// Gives the kernel an answer, for which it has `size` bytes. Failures stay for whoever asks next if it has no room for them: it may have
/// asked for their size alone.
pub(super) fn give(shared: &Arc<Shared>, reply: ReplyXattr, size: u32, answer: Result<Answer, Errno>) {
    let value = answer.map(|answer| {
        match (answer.value.len() <= size as usize, answer.failures) {
            (_, None) => {}
            (true, Some(_)) => shared.failures_are_told(),
            (false, Some(failures)) => shared.give_failures_back(failures),
        }
        answer.value
    });
    data(reply, size, value);
}

pub(super) async fn get(shared: &Arc<Shared>, who: &Caller, ino: Ino, name: &[u8]) -> Result<Answer, Errno> {
    if name == SYNC.as_bytes() {
        // The kernel writes what a mapping has changed when it forgets the pages.
        for ino in shared.mapped() {
            shared.drop_pages(ino).await;
        }
        flush::send_all(shared).await;
        let failures = shared.take_failures();
        return Ok(Answer { value: text_of(&failures), failures: Some(failures) });
    }
    if name == STATUS.as_bytes() {
        return Ok(Bytes::from(super::status::text(shared)).into());
    }
    let key = of_users(shared, name)?;
    made(shared, who, ino).await;
    let handle = shared.server_handle(ino)?;
    Ok(shared.remote.get_xattr(who, &handle, key).await?.into())
}

/// Paths whose data was lost since the last time, one a line.
fn text_of(failures: &Failures) -> Bytes {
    let mut text = String::new();
    let mut more = failures.more;
    for line in &failures.named {
        match text.len() + line.len() + 64 < ANSWER_BYTES_MAX {
            true => text.extend([line.as_str(), "\n"]),
            false => more += 1,
        }
    }
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    text.into()
}

pub(super) async fn set(
    shared: &Arc<Shared>,
    who: &Caller,
    ino: Ino,
    name: &[u8],
    value: Bytes,
    flags: i32,
) -> Result<(), Errno> {
    let key = of_users(shared, name)?;
    made(shared, who, ino).await;
    let handle = shared.server_handle(ino)?;
    let option = match flags {
        libc::XATTR_CREATE => SetxattrOption::Create,
        libc::XATTR_REPLACE => SetxattrOption::Replace,
        _ => SetxattrOption::Either,
    };
    shared.remote.set_xattr(who, &handle, key, value, option).await?;
    let now = shared.now();
    shared.tree().changed(ino, None, now);
    Ok(())
}

pub(super) async fn remove(shared: &Arc<Shared>, who: &Caller, ino: Ino, name: &[u8]) -> Result<(), Errno> {
    let key = of_users(shared, name)?;
    made(shared, who, ino).await;
    let handle = shared.server_handle(ino)?;
    shared.remote.remove_xattr(who, &handle, key).await?;
    let now = shared.now();
    shared.tree().changed(ino, None, now);
    Ok(())
}

/// The names, each with a NUL byte behind it.
pub(super) async fn list(shared: &Arc<Shared>, who: &Caller, ino: Ino) -> Result<Bytes, Errno> {
    if shared.remote.version() != Version::V42 {
        return Ok(Bytes::new());
    }
    made(shared, who, ino).await;
    let handle = shared.server_handle(ino)?;
    let names = match shared.remote.list_xattrs(who, &handle).await {
        Err(e) if super::files::is_unknown(e) => return Ok(Bytes::new()),
        other => other?,
    };
    Ok(names.iter().flat_map(|n| [&b"user."[..], n, b"\0"].concat()).collect())
}
