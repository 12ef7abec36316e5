//! NFS version 2 (RFC 1094), which old machines still use. Its procedures map to those of version 3. No I/O.

use super::cursor::Cursor;
use super::facts::{self, Facts, WantedFiles, digest};
use landfast_nfs::v3::proc;

pub(crate) const VERSION: u32 = 2;

/// Names of procedures by number (RFC 1094 section 2.2).
pub(crate) const PROC_NAMES: [&str; 18] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
];

/// Length of a handle (section 2.3.3).
const HANDLE_BYTES: usize = 32;

/// The equivalent procedure of version 3. `None`: there is none. ROOT and WRITECACHE are never called.
pub(crate) fn as_v3(procedure: u32) -> Option<u32> {
    match *PROC_NAMES.get(usize::try_from(procedure).ok()?)? {
        "STATFS" => Some(proc::FSSTAT),
        name => u32::try_from(landfast_nfs::v3::PROC_NAMES.iter().position(|known| *known == name)?).ok(),
    }
}

/// What is known of a call. `None`: too few bytes to tell. A WRITE is durable when it is answered (section 2.2.9).
pub(super) fn facts(procedure: u32, c: &mut Cursor<'_>, asked: Option<&dyn WantedFiles>) -> Option<Facts> {
    let Some(same) = as_v3(procedure).filter(|same| *same != proc::NULL) else {
        return Some(Facts::default());
    };
    let handle = c.take(HANDLE_BYTES)?;
    let mut facts = Facts {
        class: facts::of_name(None, same),
        handle: Some(digest(handle)),
        makes: facts::v3_makes(same),
        asked: asked.is_some_and(|asked| asked.handle(handle)),
        ..Facts::default()
    };
    if matches!(
        same,
        proc::LOOKUP | proc::CREATE | proc::MKDIR | proc::SYMLINK | proc::REMOVE | proc::RMDIR | proc::RENAME
    ) {
        let name = c.opaque()?;
        facts.name = Some(digest(name));
        facts.asked |= asked.is_some_and(|asked| asked.name(name));
    }
    Some(facts)
}

/// Whether results begin with a status.
pub(super) fn has_status(procedure: u32) -> bool {
    as_v3(procedure).is_some_and(|same| same != proc::NULL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_are_those_of_version_3_by_what_they_do() {
        let same = |n: usize| as_v3(n as u32).map(|n| landfast_nfs::v3::PROC_NAMES[n as usize]);
        for (n, name) in PROC_NAMES.iter().enumerate() {
            match *name {
                "ROOT" | "WRITECACHE" => assert_eq!(same(n), None),
                "STATFS" => assert_eq!(same(n), Some("FSSTAT")),
                name => assert_eq!(same(n), Some(name)),
            }
        }
        assert_eq!(as_v3(18), None);
    }
}
