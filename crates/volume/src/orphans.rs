//! The directory of orphans: files that have lost their last name while clients have them open, and are kept over restarts
//! (RFC 8881 section 18.16, `OPEN4_RESULT_PRESERVE_UNLINKED`). The operations are in [`crate::ops`].
//!
//! An orphan has a name in `.landfast/open`, where no client gets. For the log and for recovery that is a name like any other. It
//! comes from the object's identity, so no two objects want the same one.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::flush;
use crate::kernel::{self, OwnedFd, btime_ns};
use crate::limits::ORPHANS_MAX;
use crate::record::ObjId;
use crate::recover::disk;
use crate::types::Kind;

/// The directory's name in the state directory.
pub(crate) const ORPHANS_DIR: &str = "open";

pub(crate) struct Orphans {
    dir: OwnedFd,
    id: ObjId,
    /// The name of each. An object that recovery has made again still has its first one's.
    names: Mutex<BTreeMap<ObjId, Vec<u8>>>,
    /// How many there are, to be asked without the lock.
    count: AtomicUsize,
}

impl Orphans {
    /// Opens the directory, making it durably if it is missing, and finds out what is in it. `None` if there is no room for it. Call after
    /// recovery.
    pub(crate) fn open(state_dir: &OwnedFd) -> io::Result<Option<Orphans>> {
        let id = match disk::private_dir(state_dir, ORPHANS_DIR) {
            Ok(id) => id,
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NOSPC | Errno::DQUOT)) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = kernel::openat(state_dir, ORPHANS_DIR, flags, Mode::empty())?;
        // A record that names the directory must find it after a power cut.
        flush::file(&dir, state_dir)?;
        flush::file(state_dir, state_dir)?;
        let names = found(&dir)?;
        let count = AtomicUsize::new(names.len());
        Ok(Some(Orphans { dir, id, names: Mutex::new(names), count }))
    }

    pub(crate) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// The directory's own identity, for records.
    pub(crate) fn id(&self) -> &ObjId {
        &self.id
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn all(&self) -> Vec<ObjId> {
        self.names.lock().keys().cloned().collect()
    }

    pub(crate) fn contains(&self, id: &ObjId) -> bool {
        self.len() > 0 && self.names.lock().contains_key(id)
    }

    pub(crate) fn name(&self, id: &ObjId) -> Option<Vec<u8>> {
        self.names.lock().get(id).cloned()
    }

    /// Takes a place for one more. `None` if there are as many as may be. Call under the object's lock.
    pub(crate) fn reserve(&self, id: &ObjId) -> Option<Vec<u8>> {
        let mut names = self.names.lock();
        if names.len() >= ORPHANS_MAX {
            return None;
        }
        let name = name_of(id);
        names.insert(id.clone(), name.clone());
        self.count.store(names.len(), Ordering::Release);
        Some(name)
    }

    pub(crate) fn forget(&self, id: &ObjId) {
        let mut names = self.names.lock();
        names.remove(id);
        self.count.store(names.len(), Ordering::Release);
    }
}

/// The kernel's handle and the time of birth, in hexadecimal: at most 153 characters.
pub(crate) fn name_of(id: &ObjId) -> Vec<u8> {
    let handle: String = id.kh.bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{:x}-{handle}-{:x}", id.kh.kind, id.btime_ns).into_bytes()
}

/// The files in the directory. One that has another name as well is no orphan: a crash has kept the first half of a removal. It
/// loses its name here.
fn found(dir: &OwnedFd) -> io::Result<BTreeMap<ObjId, Vec<u8>>> {
    let mut names = BTreeMap::new();
    let listing = kernel::reopen(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in kernel::Dir::new(listing)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes().to_vec();
        if name == b"." || name == b".." {
            continue;
        }
        let look = kernel::look_at(dir, &name)?;
        // Somebody else's.
        if Kind::from_mode(u32::from(look.stx_mode)) != Some(Kind::File) {
            continue;
        }
        if look.stx_nlink > 1 {
            match kernel::unlinkat(dir, name.as_slice(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(e) => return Err(e.into()),
            }
        }
        let (kh, _) = kernel::handle_by_name(dir, &name)?;
        names.insert(ObjId { kh, btime_ns: btime_ns(&look) }, name);
    }
    Ok(names)
}
