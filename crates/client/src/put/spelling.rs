//! Detects names that are equal for a server that ignores case. The attribute `case_insensitive` (RFC 8881 section 5.8.2.3) is
//! no help: Linux gives false for directories that ignore case. So if a name exists unexpectedly, it is looked up again with
//! another spelling.
//!
//! An object found under another spelling belongs to somebody else, or is another member of the archive. It is not replaced.

use bytes::Bytes;
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};

use super::plan::SlowTask;
use super::report::{Cause, MemberError};
use super::trouble::Trouble;
use crate::fs::step::look_up;
use crate::limits;
use crate::ops;
use crate::session::Session;

/// Refuses the item if the existing object has another spelling of the name.
pub(super) async fn check<P>(session: &Session, task: &SlowTask<P>) -> Result<(), Trouble> {
    let Some(other) = swapped(&task.name) else { return Ok(()) };
    // Look up the other spelling first: mostly it does not exist.
    let Some(other) = look_up(session, &task.dir, &other).await? else { return Ok(()) };
    let Some(this) = look_up(session, &task.dir, &task.name).await? else { return Ok(()) };
    if !same(&other.1, &this.1) {
        return Ok(());
    }
    // Both spellings lead to the same file. It may be a hard link, or the file may have exactly this spelling.
    const WANTED: Bitmap = Bitmap::of(&[number::FSID, number::FILEID]);
    let listed = ops::list(session, &task.dir, WANTED, limits::LISTING_MAX).await;
    let listed = listed.map_err(|e| Trouble::other(e.to_string()))?;
    let Some(listed) = listed else {
        return refuse("as another name");
    };
    if listed.iter().any(|entry| entry.name == task.name) {
        return Ok(());
    }
    match listed.iter().find(|entry| same(&entry.attrs, &this.1)) {
        Some(entry) => refuse(&format!("as `{}`", entry.name.escape_ascii())),
        None => refuse("as another name"),
    }
}

fn refuse(how: &str) -> Result<(), Trouble> {
    let text = format!("the server ignores case there, and has this name {how}");
    Err(Trouble::Refused(MemberError::new(Cause::OtherSpelling, text)))
}

fn same(a: &AttrValues, b: &AttrValues) -> bool {
    a.fileid.is_some() && (a.fsid, a.fileid) == (b.fsid, b.fileid)
}

/// The name with the case of each letter swapped. `None`: it has no letters, or is not UTF-8.
fn swapped(name: &[u8]) -> Option<Bytes> {
    let name = std::str::from_utf8(name).ok()?;
    let mut other = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_uppercase() {
            other.extend(c.to_lowercase());
        } else {
            other.extend(c.to_uppercase());
        }
    }
    (other != name).then(|| Bytes::from(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_case() {
        let other =
            |name: &str| swapped(name.as_bytes()).map(|n| String::from_utf8(n.to_vec()).expect("UTF-8"));
        assert_eq!(other("Makefile.in").as_deref(), Some("mAKEFILE.IN"));
        assert_eq!(other("Ärger").as_deref(), Some("äRGER"));
        assert_eq!(other("2026-11-22"), None);
        assert_eq!(swapped(b"a\xff"), None);
    }
}
