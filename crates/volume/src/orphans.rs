//! The directory of orphans: files that have lost their last name while clients have them open, and are kept over restarts
//! (RFC 8881 section 18.16, `OPEN4_RESULT_PRESERVE_UNLINKED`). The operations are in [`crate::ops`].
//!
//! An orphan has a name in `.landfast/open`, where no client gets. For the log and for recovery that is a name like any other. It
//! comes from the object's identity, so no two objects want the same one.
//!
//! Room for names is made ahead, so that a full disk or quota keeps nobody from keeping a promise: ext4 never takes blocks from a
//! directory, and XFS none that hold a name. So the directory is made long once, by names that are removed again but for one in
//! each block. These are names of a FIFO, and no orphans. On btrfs each name needs space: there a promised file keeps its own name on a full disk
//! ([`crate::Held::Promised`]).

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::flush;
use crate::kernel::{self, OwnedFd, btime_ns};
use crate::limits::{NAME_BYTES_MAX, ORPHANS_MAX, ORPHANS_ROOM_BYTES, ORPHANS_ROOM_NAMES_MAX};
use crate::record::ObjId;
use crate::recover::disk;
use crate::types::Kind;

/// The directory's name in the state directory.
pub(crate) const ORPHANS_DIR: &str = "open";

/// How the names begin that keep the directory long, and those that have made it so.
const ROOM: &[u8] = b"room-kept-";
const ROOM_ONCE: &[u8] = b"room-once-";

/// The FIFO whose names these are.
const ROOM_FILE: &[u8] = b"room";

/// One name of so many stays: one in each block of XFS, which has 14 names of this length in 4096 bytes.
const ROOM_KEPT_EVERY: usize = 13;

pub(crate) struct Orphans {
    dir: OwnedFd,
    id: ObjId,
    /// The name of each. An object that recovery has made again still has its first one's.
    names: Mutex<BTreeMap<ObjId, Vec<u8>>>,
    /// How many there are, to be asked without the lock.
    count: AtomicUsize,
    /// There was no space for the last one that was promised a place. It was said.
    pub(crate) full: AtomicBool,
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
        make_room(&dir)?;
        // A record that names the directory must find it after a power cut.
        flush::file(&dir, state_dir)?;
        flush::file(state_dir, state_dir)?;
        let names = found(&dir)?;
        let count = AtomicUsize::new(names.len());
        Ok(Some(Orphans { dir, id, names: Mutex::new(names), count, full: AtomicBool::new(false) }))
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

/// Makes the directory long, unless it is. As long as can be where there is little space: the next start goes on.
fn make_room(dir: &OwnedFd) -> io::Result<()> {
    let is_long = || {
        let length = kernel::fstat(dir)?.st_size as u64;
        io::Result::Ok(ORPHANS_ROOM_BYTES.saturating_sub(length) == 0)
    };
    if is_long()? || kernel::is_btrfs(dir)? {
        return Ok(());
    }
    let full = |e: Errno| matches!(e, Errno::NOSPC | Errno::DQUOT);
    match kernel::mknodat(dir, ROOM_FILE, FileType::Fifo, Mode::empty(), 0) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) if full(e) => return Ok(()),
        Err(e) => return Err(e.into()),
    }
    let fifo = kernel::open_path(dir, ROOM_FILE)?;
    let mut once = Vec::new();
    for n in 0..ORPHANS_ROOM_NAMES_MAX {
        let kept = n % ROOM_KEPT_EVERY == 0;
        let mut name = if kept { ROOM } else { ROOM_ONCE }.to_vec();
        name.extend(format!("{n:0width$}", width = NAME_BYTES_MAX - name.len()).bytes());
        match kernel::link_open(&fifo, dir, &name) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) if full(e) => break,
            Err(e) => return Err(e.into()),
        }
        if !kept {
            once.push(name);
        }
        if kept && is_long()? {
            break;
        }
    }
    for name in once {
        kernel::unlinkat(dir, name.as_slice(), AtFlags::empty())?;
    }
    Ok(())
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
        // The start that made room was cut off.
        if name.starts_with(ROOM_ONCE) {
            kernel::unlinkat(dir, name.as_slice(), AtFlags::empty())?;
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
