//! A mounted filesystem as recovery sees it: the [`Tree`] of ext4, XFS and btrfs.
//!
//! Each call opens its object by handle (a few descriptors are kept), so memory and descriptors do not grow with the log.
//! Runs as root, since recovery must not be subject to access checks.

use std::ffi::CString;
use std::io::{Error as IoError, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Statx, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;

use super::tree::{KeptTimes, Made, Meta, Tree};
use super::{Error, io};
use crate::faults::{Bug, bug};
use crate::fold::Fold;
use crate::kernel::{self, OwnedFd, btime_ns};
use crate::limits::{BTRFS_COMMITS_MAX, BTRFS_COMMITS_MIN, DESCRIPTORS_KEPT, XATTR_VALUE_BYTES_MAX};
use crate::objmap::ObjMap;
use crate::record::{Birth, KernelHandle, Kind, ObjId, Owned, Timestamp};
use crate::remap::Remap;
use crate::{flush, reserve, state};

/// The name of staging in the state directory.
const STAGE: &str = "stage";
/// For objects in recovery's way that it does not know.
pub(crate) const LOST_FOUND: &str = "lost+found";
/// Made and removed to advance btrfs' transaction number.
const BUMP: &str = "bump";

/// Holds times that must survive while contents are brought up to date.
const TIMES_FILE: &str = "times";

/// Holds inode flags to restore.
const FLAGS_FILE: &str = "flags";

/// Append-only and immutable, as in `FS_IOC_GETFLAGS`.
const FLAGS_THAT_LOCK: u32 = 0x20 | 0x10;
/// The same flags as in `statx`.
const ATTRIBUTES_THAT_LOCK: u64 = 0x20 | 0x10;

/// All kinds of btrfs handles (without and with parent) start with object id, root id (8 bytes each), generation (4).
const BTRFS_GENERATION: std::ops::Range<usize> = 16..20;

/// Where SELinux and Smack keep an object's label, which new objects mostly have from their directory.
const LABELS: [&[u8]; 2] = [b"security.selinux", b"security.SMACK64"];

/// Reads past the page cache begin at multiples of this, bytes: a block of any device.
const DIRECT_ALIGNMENT: u64 = 4096;
/// The length of such a read, bytes; a multiple of [`DIRECT_ALIGNMENT`].
const DIRECT_BYTES: usize = 1 << 20;

pub struct Disk<'a> {
    root: &'a OwnedFd,
    state_dir: &'a OwnedFd,
    remap: &'a mut Remap,
    stage: ObjId,
    lost_found: ObjId,
    mount: u64,
    /// Objects in use: the descriptor (`O_PATH`, or open for writing), and whether it is for writing.
    open: ObjMap<(Arc<OwnedFd>, bool)>,
    /// Buffer for the value of an extended attribute.
    value: Vec<u8>,
    /// How many threads may work at a time.
    threads: usize,
    /// Objects that have temporarily lost flags which forbid changes, and those flags.
    unlocked: Arc<Mutex<Vec<(ObjId, u32)>>>,
}

impl<'a> Disk<'a> {
    /// `root` is the volume's directory and `state_dir` its `.landfast`, both open for reading. Releases the space reserve first,
    /// and makes staging and `lost+found` if they are missing. Uses up to `threads` threads.
    pub fn new(
        root: &'a OwnedFd,
        state_dir: &'a OwnedFd,
        remap: &'a mut Remap,
        threads: usize,
    ) -> Result<Disk<'a>> {
        reserve::release(state_dir)?;
        let unlocked = match state::read(state_dir, FLAGS_FILE)? {
            Some(bytes) => {
                postcard::from_bytes(&bytes).map_err(|e| IoError::new(ErrorKind::InvalidData, e))?
            }
            None => Vec::new(),
        };
        let unlocked = Arc::new(Mutex::new(unlocked));
        let stage = private_dir(state_dir, STAGE)?;
        let lost_found = private_dir(state_dir, LOST_FOUND)?;
        let (_, mount) = kernel::handle_of(root)?;
        Ok(Disk {
            root,
            state_dir,
            remap,
            stage,
            lost_found,
            mount,
            open: ObjMap::default(),
            value: Vec::new(),
            threads,
            unlocked,
        })
    }

    /// Call first: on btrfs, advances the transaction number past that of each handle that clients or the log may know.
    /// Otherwise btrfs would issue the same handles again.
    pub(super) fn prepare(&mut self, fold: &Fold) -> std::result::Result<(), Error> {
        let stage = self.stage.clone();
        let known = fold.objects.keys().chain(self.remap.identities());
        let newest = known.filter_map(btrfs_generation).max().unwrap_or(0);
        self.bump(newest).map_err(io("bringing the filesystem's generation forward", &stage))
    }

    /// Call when everything is durable: drops rows of objects that are gone.
    pub(super) fn finish(&mut self, fold: &Fold) -> std::result::Result<(), Error> {
        let stage = self.stage.clone();
        self.open.clear();
        for (id, _) in fold.objects.iter().filter(|(_, plan)| plan.dead) {
            let now = self.remap.inward(id).unwrap_or(id).clone();
            self.remap.purge(&now);
        }
        self.remap.cut();
        if self.remap.drop_purged() {
            self.remap.save(self.state_dir).map_err(io("writing the remap table", &stage))?;
            self.remap.is_saved();
        }
        self.lock_again().map_err(io("giving flags back (chattr)", &stage))
    }

    /// Call last: takes the space reserve again, as far as there is space.
    pub(super) fn take_reserve(&mut self) -> std::result::Result<(), Error> {
        reserve::take(self.state_dir).map_err(io("taking the space reserve", &self.stage))
    }

    #[cfg(test)]
    pub(super) fn root_fd(&self) -> &OwnedFd {
        self.root
    }

    fn bump(&self, newest: u32) -> Result<()> {
        if !kernel::is_btrfs(self.root)? {
            return Ok(());
        }
        for commits in 1..=BTRFS_COMMITS_MAX {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = kernel::openat(self.state_dir, BUMP, flags, Mode::from_raw_mode(0o600))?;
            let id = identity(&file)?;
            drop(file);
            kernel::unlinkat(self.state_dir, BUMP, AtFlags::empty())?;
            flush::all(self.root)?;
            if commits >= BTRFS_COMMITS_MIN && btrfs_generation(&id).is_some_and(|now| now > newest) {
                return Ok(());
            }
        }
        Err(IoError::other(format!("btrfs is far behind generation {newest}: an older copy of this volume?")))
    }

    /// A descriptor of a live object and a look at it; `None` if the identity is stale.
    fn open(&mut self, obj: &ObjId) -> Result<Option<(Arc<OwnedFd>, Statx)>> {
        let kept = self.open.get(obj).map(|(fd, _)| fd.clone());
        let fresh = kept.is_none();
        let fd = match kept {
            Some(fd) => fd,
            None => match kernel::open_handle(self.root, &obj.kh) {
                Ok(fd) => Arc::new(fd),
                Err(Errno::STALE | Errno::NOENT) => return Ok(None),
                Err(e) => return Err(e.into()),
            },
        };
        let look = kernel::look(&*fd)?;
        if look.stx_nlink == 0 || btime_ns(&look) != obj.btime_ns {
            self.open.remove(obj);
            return Ok(None);
        }
        if look.stx_attributes.bits() & ATTRIBUTES_THAT_LOCK != 0 {
            self.unlock(obj, &fd)?;
        }
        if fresh {
            self.keep(obj, &fd, false);
        }
        Ok(Some((fd, look)))
    }

    /// Clears the append-only and immutable flags of an object until recovery is done. Somebody may have set them after clients
    /// changed the object, or before, since some changes inside a directory are allowed with them. Saves the flags first.
    fn unlock(&self, obj: &ObjId, fd: &OwnedFd) -> Result<()> {
        let flags = kernel::inode_flags(fd)? & FLAGS_THAT_LOCK;
        let mut unlocked = self.unlocked.lock();
        if unlocked.iter().all(|(known, _)| known != obj) {
            unlocked.push((obj.clone(), flags));
            let bytes = postcard::to_allocvec(&*unlocked).map_err(IoError::other)?;
            state::replace(self.state_dir, FLAGS_FILE, &bytes)?;
        }
        Ok(kernel::set_inode_flags(fd, FLAGS_THAT_LOCK, 0)?)
    }

    pub(super) fn lock_again(&mut self) -> Result<()> {
        let unlocked = std::mem::take(&mut *self.unlocked.lock());
        if unlocked.is_empty() {
            return Ok(());
        }
        self.open.clear();
        for (obj, flags) in &unlocked {
            match kernel::open_handle(self.root, &obj.kh) {
                Ok(fd) => kernel::set_inode_flags(&fd, FLAGS_THAT_LOCK, *flags)?,
                Err(Errno::STALE | Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
        flush::all(self.root)?;
        Ok(kernel::unlinkat(self.state_dir, FLAGS_FILE, AtFlags::empty())?)
    }

    fn keep(&mut self, obj: &ObjId, fd: &Arc<OwnedFd>, for_writing: bool) {
        if self.open.len() >= DESCRIPTORS_KEPT {
            self.open.clear();
        }
        self.open.insert(obj.clone(), (fd.clone(), for_writing));
    }

    /// A descriptor of an object that must live. A kept descriptor always refers to the same object, so it needs no new look.
    fn need(&mut self, obj: &ObjId) -> Result<Arc<OwnedFd>> {
        if let Some((fd, _)) = self.open.get(obj) {
            return Ok(fd.clone());
        }
        match self.open(obj)? {
            Some((fd, _)) => Ok(fd),
            None => Err(IoError::new(ErrorKind::NotFound, "the object has gone")),
        }
    }

    /// A descriptor for writing of a file that was looked at or made just before.
    fn writable(&mut self, obj: &ObjId) -> Result<Arc<OwnedFd>> {
        if let Some((fd, true)) = self.open.get(obj) {
            return Ok(fd.clone());
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let fd = Arc::new(kernel::open_handle_for(self.root, &obj.kh, flags)?);
        self.keep(obj, &fd, true);
        Ok(fd)
    }

    /// What an entry names, and a look at it, if the entry exists.
    fn look_up(&mut self, dir: &ObjId, name: &[u8]) -> Result<Option<(ObjId, Statx)>> {
        let dir = self.need(dir)?;
        let Some(kh) = self.handle_at(&dir, name)? else { return Ok(None) };
        let look = kernel::look_at(&*dir, name)?;
        if kh.ino() == Some(look.stx_ino) {
            return Ok(Some((ObjId { kh, btime_ns: btime_ns(&look) }, look)));
        }
        // Somebody may change the entry meanwhile.
        let fd = match kernel::open_path(&*dir, name) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        Ok(Some(identity_and_look(&fd)?))
    }

    /// The handle of what an entry names, if the entry exists.
    fn handle_at(&self, dir: &OwnedFd, name: &[u8]) -> Result<Option<KernelHandle>> {
        match kernel::handle_by_name(dir, name) {
            Ok((kh, mount)) if mount == self.mount => Ok(Some(kh)),
            // Something is mounted there.
            Ok(_) => Err(Errno::XDEV.into()),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

pub fn identity(fd: &OwnedFd) -> Result<ObjId> {
    Ok(identity_and_look(fd)?.0)
}

fn identity_and_look(fd: &OwnedFd) -> Result<(ObjId, Statx)> {
    let (kh, _mount) = kernel::handle_of(fd)?;
    let look = kernel::look(fd)?;
    Ok((ObjId { kh, btime_ns: btime_ns(&look) }, look))
}

fn meta(s: &Statx) -> Result<Meta> {
    let time = |t: &rustix::fs::StatxTimestamp| Timestamp { secs: t.tv_sec, nanos: t.tv_nsec };
    let owned = Owned {
        mode: u32::from(s.stx_mode) & 0o7777,
        uid: s.stx_uid,
        gid: s.stx_gid,
        atime: time(&s.stx_atime),
        mtime: time(&s.stx_mtime),
    };
    Ok(Meta { kind: kind(s)?, nlink: s.stx_nlink, size: s.stx_size, owned })
}

fn btrfs_generation(id: &ObjId) -> Option<u32> {
    Some(u32::from_le_bytes(id.kh.bytes.get(BTRFS_GENERATION)?.try_into().ok()?))
}

/// Opens or makes a directory that only root can enter and that passes nothing on to its entries.
pub(crate) fn private_dir(parent: &OwnedFd, name: &str) -> Result<ObjId> {
    match kernel::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = kernel::openat(parent, name, flags, Mode::empty())?;
    for acl in ["system.posix_acl_default", "system.posix_acl_access"] {
        match kernel::fremovexattr(&dir, acl) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e.into()),
        }
    }
    kernel::fchmod(&dir, Mode::from_raw_mode(0o700))?;
    kernel::hand_down_nothing(&dir)?;
    identity(&dir)
}

fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| IoError::new(ErrorKind::InvalidInput, "NUL in a name"))
}

fn spec(t: Timestamp) -> Timespec {
    Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() }
}

fn kind(s: &Statx) -> Result<Kind> {
    Kind::from_mode(u32::from(s.stx_mode))
        .ok_or_else(|| IoError::new(ErrorKind::InvalidData, "unknown kind of object"))
}

impl Tree for Disk<'_> {
    fn probe(&mut self, obj: &ObjId) -> Result<Option<Meta>> {
        self.open(obj)?.map(|(_, look)| meta(&look)).transpose()
    }

    fn lookup(&mut self, dir: &ObjId, name: &[u8]) -> Result<Option<(ObjId, Kind)>> {
        self.look_up(dir, name)?.map(|(id, look)| Ok((id, kind(&look)?))).transpose()
    }

    fn path(&mut self, dir: &ObjId) -> Result<Option<String>> {
        let Some((fd, look)) = self.open(dir)? else { return Ok(None) };
        if kind(&look)? != Kind::Dir {
            return Ok(None);
        }
        kernel::path_below(self.root, &*fd)
    }

    fn hands_down(&mut self, dir: &ObjId) -> Result<bool> {
        if bug(Bug::ProjectIgnored) {
            return Ok(false);
        }
        let fd = self.need(dir)?;
        if kernel::hands_down(&*fd)? {
            return Ok(true);
        }
        let stage = self.stage.clone();
        for label in LABELS {
            if self.xattr(dir, label)? != self.xattr(&stage, label)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Comparing handles is enough: two live objects have different ones.
    fn names(&mut self, dir: &ObjId, name: &[u8], obj: &ObjId) -> Result<bool> {
        let dir = self.need(dir)?;
        Ok(self.handle_at(&dir, name)?.is_some_and(|kh| kh == obj.kh))
    }

    fn list(&mut self, dir: &ObjId) -> Result<Vec<Bytes>> {
        let fd = self.need(dir)?;
        let fd = kernel::reopen(&*fd, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in kernel::Dir::new(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(Bytes::copy_from_slice(name));
            }
        }
        Ok(names)
    }

    fn stage(&self) -> ObjId {
        self.stage.clone()
    }

    fn lost_found(&self) -> ObjId {
        self.lost_found.clone()
    }

    fn make(&mut self, dir: &ObjId, name: &[u8], birth: &Birth, mode: u32) -> Result<Made> {
        let dir_fd = self.need(dir)?;
        let at = c_name(name)?;
        let node = |kind: FileType, dev: u64| {
            kernel::mknodat(&*dir_fd, at.as_c_str(), kind, Mode::from_raw_mode(mode), dev)
        };
        let dev = kernel::makedev(birth.rdev.0, birth.rdev.1);
        match birth.kind {
            Kind::File => {
                // Its data comes next.
                let flags =
                    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = kernel::openat(&*dir_fd, at.as_c_str(), flags, Mode::from_raw_mode(mode))?;
                let (id, look) = identity_and_look(&file)?;
                self.keep(&id, &Arc::new(file), true);
                return Ok((id, meta(&look)?));
            }
            Kind::Dir => kernel::mkdirat(&*dir_fd, at.as_c_str(), Mode::from_raw_mode(0o700))?,
            Kind::Symlink => kernel::symlinkat(c_name(&birth.target)?.as_c_str(), &*dir_fd, at.as_c_str())?,
            Kind::Fifo => node(FileType::Fifo, 0)?,
            Kind::Socket => node(FileType::Socket, 0)?,
            Kind::CharDev => node(FileType::CharacterDevice, dev)?,
            Kind::BlockDev => node(FileType::BlockDevice, dev)?,
        }
        match self.look_up(dir, name)? {
            Some((id, look)) => Ok((id, meta(&look)?)),
            None => Err(IoError::new(ErrorKind::NotFound, "just made, and gone")),
        }
    }

    fn link(&mut self, obj: &ObjId, dir: &ObjId, name: &[u8]) -> Result<()> {
        let (obj, dir) = (self.need(obj)?, self.need(dir)?);
        Ok(kernel::linkat(&*obj, c"", &*dir, c_name(name)?.as_c_str(), AtFlags::EMPTY_PATH)?)
    }

    fn rename(&mut self, from: (&ObjId, &[u8]), to: (&ObjId, &[u8])) -> Result<()> {
        let (a, b) = (self.need(from.0)?, self.need(to.0)?);
        let (from, to) = (c_name(from.1)?, c_name(to.1)?);
        Ok(kernel::renameat_with(&*a, from.as_c_str(), &*b, to.as_c_str(), RenameFlags::NOREPLACE)?)
    }

    fn unlink(&mut self, dir: &ObjId, name: &[u8]) -> Result<()> {
        let dir = self.need(dir)?;
        Ok(kernel::unlinkat(&*dir, c_name(name)?.as_c_str(), AtFlags::empty())?)
    }

    fn rmdir(&mut self, dir: &ObjId, name: &[u8]) -> Result<bool> {
        let dir = self.need(dir)?;
        match kernel::unlinkat(&*dir, c_name(name)?.as_c_str(), AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn write(&mut self, obj: &ObjId, offset: u64, bytes: &Bytes) -> Result<()> {
        let fd = self.writable(obj)?;
        let fd = &*fd;
        let mut done = 0;
        while done < bytes.len() {
            match kernel::pwrite(fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// A read past the page cache first writes back what is dirty in that range. (btrfs reads compressed data and the smallest
    /// files through the page cache all the same.)
    fn read_disk(&mut self, obj: &ObjId, offset: u64) -> Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let fd = kernel::open_handle_for(self.root, &obj.kh, flags)?;
        let begin = offset - offset % DIRECT_ALIGNMENT;
        let bytes = kernel::read_direct(&fd, begin, DIRECT_BYTES)?;
        Ok(bytes.get((offset - begin) as usize..).unwrap_or_default().to_vec())
    }

    fn punch(&mut self, obj: &ObjId, offset: u64, len: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match kernel::fallocate(&*self.writable(obj)?, flags, offset, len) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    fn truncate(&mut self, obj: &ObjId, size: u64) -> Result<()> {
        Ok(kernel::ftruncate(&*self.writable(obj)?, size)?)
    }

    fn chown(&mut self, obj: &ObjId, uid: u32, gid: u32) -> Result<()> {
        let fd = self.need(obj)?;
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        Ok(kernel::chownat(&*fd, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
    }

    fn chmod(&mut self, obj: &ObjId, mode: u32) -> Result<()> {
        let fd = self.need(obj)?;
        Ok(kernel::chmod(&*fd, mode)?)
    }

    fn set_times(&mut self, obj: &ObjId, atime: Option<Timestamp>, mtime: Timestamp) -> Result<()> {
        let fd = self.need(obj)?;
        let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let times = Timestamps { last_access: atime.map_or(omit, spec), last_modification: spec(mtime) };
        Ok(kernel::utimensat(&*fd, c"", &times, AtFlags::EMPTY_PATH)?)
    }

    fn xattr(&mut self, obj: &ObjId, name: &[u8]) -> Result<Option<Bytes>> {
        let fd = self.need(obj)?;
        self.value.resize(XATTR_VALUE_BYTES_MAX, 0);
        match kernel::getxattr(&*fd, c_name(name)?.as_c_str(), &mut self.value[..]) {
            Ok(n) => Ok(self.value.get(..n).map(Bytes::copy_from_slice)),
            // Without support for extended attributes, this one does not exist.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn set_xattr(&mut self, obj: &ObjId, name: &[u8], value: Option<&Bytes>) -> Result<()> {
        let fd = self.need(obj)?;
        let name = c_name(name)?;
        match value {
            Some(value) => Ok(kernel::setxattr(&*fd, name.as_c_str(), value, XattrFlags::empty())?),
            None => Ok(kernel::removexattr(&*fd, name.as_c_str())?),
        }
    }

    fn sync(&mut self) -> Result<()> {
        flush::all(self.root)
    }

    fn let_go(&mut self) {
        self.open.clear();
    }

    fn room(&mut self) -> Result<u64> {
        let fs = kernel::fstatvfs(self.state_dir)?;
        Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
    }

    fn spread<I: Sync, R: Send>(
        &mut self,
        items: &[I],
        each: impl Fn(&mut dyn Tree, &I) -> std::result::Result<R, Error> + Sync,
    ) -> std::result::Result<Vec<R>, Error> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let work = |disk: &mut Disk<'_>| {
            let mut results = Vec::new();
            while !failed.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { break };
                let result = each(disk, item);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                results.push((at, result));
            }
            results
        };
        let (root, state_dir, mount, unlocked) =
            (self.root, self.state_dir, self.mount, self.unlocked.clone());
        let helper = |(stage, lost_found): (ObjId, ObjId)| {
            let unlocked = unlocked.clone();
            let (open, value) = (ObjMap::default(), Vec::new());
            let remap = &mut Remap::default();
            work(&mut Disk {
                root,
                state_dir,
                remap,
                stage,
                lost_found,
                mount,
                open,
                value,
                threads: 1,
                unlocked,
            })
        };
        let mut results = std::thread::scope(|scope| {
            let helpers = (1..self.threads.min(items.len())).map_while(|_| {
                let (dirs, helper) = ((self.stage.clone(), self.lost_found.clone()), &helper);
                let thread = std::thread::Builder::new().name("recovery".into());
                // If no more threads can be made, fewer do the work.
                thread.spawn_scoped(scope, move || helper(dirs)).ok()
            });
            let helpers: Vec<_> = helpers.collect();
            let mut results = work(self);
            for helper in helpers {
                results.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results
        });
        results.sort_unstable_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }

    fn remapped(&self, old: &ObjId) -> Option<ObjId> {
        self.remap.inward(old).cloned()
    }

    fn save_rows(&mut self, rows: Vec<(ObjId, ObjId, u64)>) -> Result<()> {
        for (old, new, fileid) in rows {
            self.remap.insert(old, new, fileid);
        }
        self.remap.save(self.state_dir)
    }

    fn kept_times(&mut self, marker: u64) -> Result<Option<KeptTimes>> {
        let Some(bytes) = state::read(self.state_dir, TIMES_FILE)? else { return Ok(None) };
        let (of, times): (u64, KeptTimes) =
            postcard::from_bytes(&bytes).map_err(|e| IoError::new(ErrorKind::InvalidData, e))?;
        Ok((of == marker).then_some(times))
    }

    fn keep_times(&mut self, marker: u64, times: Option<&KeptTimes>) -> Result<()> {
        match times {
            Some(times) => {
                let bytes = postcard::to_allocvec(&(marker, times)).map_err(IoError::other)?;
                state::replace(self.state_dir, TIMES_FILE, &bytes)
            }
            None => match kernel::unlinkat(self.state_dir, TIMES_FILE, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(e) => Err(e.into()),
            },
        }
    }
}
