//! For the crate's own tests: a descriptor of the system or of the simulated kernel ([`super::sim`]), so that the same code runs
//! on both. The calls have the names and meanings of those in [`super::real`]. On a thread with a simulated kernel, that
//! kernel also answers calls without a descriptor (time, randomness, credentials).

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::AsFd as RealAsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfast_intentlog::{Config, Log, Replay};
use rustix::fs::{
    Advice, AtFlags, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, SeekFrom,
    Stat, StatVfs, Statx, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::real;
use super::sim::{self, Listed};
use crate::quota::Quota;
use crate::record::KernelHandle;

pub(crate) use super::real::{getrlimit, makedev, setrlimit};

type Result<T> = std::result::Result<T, Errno>;

#[derive(Debug)]
pub enum OwnedFd {
    Real(std::os::fd::OwnedFd),
    Simulated(sim::Descriptor),
}

#[derive(Clone, Copy, Debug)]
pub enum BorrowedFd<'a> {
    Real(std::os::fd::BorrowedFd<'a>),
    Simulated(u32),
}

pub trait AsFd {
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            OwnedFd::Real(fd) => BorrowedFd::Real(RealAsFd::as_fd(fd)),
            OwnedFd::Simulated(fd) => BorrowedFd::Simulated(fd.number()),
        }
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl AsFd for std::fs::File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd::Real(RealAsFd::as_fd(self))
    }
}

impl AsFd for std::os::fd::OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd::Real(RealAsFd::as_fd(self))
    }
}

impl<T: AsFd + ?Sized> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        T::as_fd(self)
    }
}

impl<T: AsFd + ?Sized> AsFd for Arc<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        T::as_fd(self)
    }
}

impl From<std::fs::File> for OwnedFd {
    fn from(file: std::fs::File) -> OwnedFd {
        OwnedFd::Real(file.into())
    }
}

impl OwnedFd {
    /// The system's descriptor, for tests that bypass this layer.
    pub fn real(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            OwnedFd::Real(fd) => RealAsFd::as_fd(fd),
            OwnedFd::Simulated(_) => unreachable!("a descriptor of the system"),
        }
    }
}

/// Calls by descriptor: first the form for the system, then the form for the simulation.
macro_rules! by_fd {
    ($fd:expr, |$real:ident| $on_real:expr, |$kernel:ident, $n:ident| $on_sim:expr) => {
        match $fd.as_fd() {
            BorrowedFd::Real($real) => $on_real,
            BorrowedFd::Simulated($n) => sim::with(|$kernel| $on_sim),
        }
    };
}

pub fn proc_path(fd: &OwnedFd) -> String {
    real::proc_path(fd.real())
}

pub fn path_below(top: impl AsFd, dir: impl AsFd) -> io::Result<Option<String>> {
    match (top.as_fd(), dir.as_fd()) {
        (BorrowedFd::Real(top), BorrowedFd::Real(dir)) => real::path_below(top, dir),
        (BorrowedFd::Simulated(top), BorrowedFd::Simulated(dir)) => Ok(sim::with(|k| k.path_below(top, dir))),
        _ => Ok(None),
    }
}

pub fn inode_flags(fd: impl AsFd) -> Result<u32> {
    by_fd!(fd, |fd| real::inode_flags(fd), |_k, _n| Ok(0))
}

pub fn set_inode_flags(fd: impl AsFd, mask: u32, flags: u32) -> Result<()> {
    by_fd!(fd, |fd| real::set_inode_flags(fd, mask, flags), |_k, _n| Ok(()))
}

pub fn hands_down(dir: impl AsFd) -> Result<bool> {
    by_fd!(dir, |dir| real::hands_down(dir), |k, n| k.hands_down(n))
}

pub fn hand_down_nothing(dir: impl AsFd) -> Result<()> {
    by_fd!(dir, |dir| real::hand_down_nothing(dir), |_k, _n| Ok(()))
}

pub fn mount_identity(fd: impl AsFd) -> Option<Vec<u8>> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => real::mount_identity(fd),
        BorrowedFd::Simulated(_) => sim::with(|k| k.mount_identity()),
    }
}

fn bytes<T>(path: impl Arg, f: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    path.into_with_c_str(|path| f(path.to_bytes()))
}

fn owned(fd: Result<std::os::fd::OwnedFd>) -> Result<OwnedFd> {
    fd.map(OwnedFd::Real)
}

fn simulated(n: Result<u32>) -> Result<OwnedFd> {
    n.map(|n| OwnedFd::Simulated(sim::Descriptor::new(n)))
}

pub fn openat(dir: impl AsFd, path: impl Arg, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    match dir.as_fd() {
        BorrowedFd::Real(dir) => owned(rustix::fs::openat(dir, path, flags, mode)),
        BorrowedFd::Simulated(n) => {
            bytes(path, |name| simulated(sim::with(|k| k.open_at(n, name, flags, mode.as_raw_mode()))))
        }
    }
}

/// The simulated kernel knows only the path of the volume's directory.
pub fn open(path: impl Arg, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    if sim::active() {
        return bytes(path, |path| match path == sim::DIR.as_bytes() {
            true => simulated(sim::with(|k| k.open_root(flags))),
            false => Err(Errno::NOENT),
        });
    }
    owned(rustix::fs::open(path, flags, mode))
}

pub fn open_handle(mount: impl AsFd, kh: &KernelHandle) -> Result<OwnedFd> {
    match mount.as_fd() {
        BorrowedFd::Real(fd) => owned(real::open_handle(fd, kh)),
        BorrowedFd::Simulated(_) => simulated(sim::with(|k| k.open_handle(kh))),
    }
}

pub fn open_handle_for(mount: impl AsFd, kh: &KernelHandle, flags: OFlags) -> Result<OwnedFd> {
    match mount.as_fd() {
        BorrowedFd::Real(fd) => owned(real::open_handle_for(fd, kh, flags)),
        BorrowedFd::Simulated(_) => reopen(open_handle(mount, kh)?, flags),
    }
}

pub fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => owned(real::reopen(fd, flags)),
        BorrowedFd::Simulated(n) => simulated(sim::with(|k| k.reopen(n, flags))),
    }
}

pub fn open_path(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd> {
    match dir.as_fd() {
        BorrowedFd::Real(dir) => owned(real::open_path(dir, name)),
        BorrowedFd::Simulated(n) => simulated(sim::with(|k| k.open_at(n, name, OFlags::PATH, 0))),
    }
}

pub fn handle_of(fd: impl AsFd) -> Result<(KernelHandle, u64)> {
    by_fd!(fd, |fd| real::handle_of(fd), |k, n| k.handle_of(n))
}

pub fn handle_by_name(dir: impl AsFd, name: &[u8]) -> Result<(KernelHandle, u64)> {
    by_fd!(dir, |dir| real::handle_by_name(dir, name), |k, n| k.handle_by_name(n, name))
}

pub fn set_fs_uid(uid: u32) -> Result<()> {
    if sim::active() { sim::with(|k| k.set_user(uid)) } else { real::set_fs_uid(uid) }
}

pub fn set_fs_gid(gid: u32) -> Result<()> {
    if sim::active() { sim::with(|k| k.set_group(gid)) } else { real::set_fs_gid(gid) }
}

pub fn fs_ids() -> (u32, u32) {
    real::fs_ids()
}

pub fn set_groups(groups: &[u32]) -> Result<()> {
    if sim::active() { sim::with(|k| k.set_groups(groups)) } else { real::set_groups(groups) }
}

pub fn unshare_fs() -> Result<()> {
    if sim::active() { Ok(()) } else { real::unshare_fs() }
}

pub fn umask(mask: Mode) -> Mode {
    if sim::active() {
        Mode::from_raw_mode(sim::with(|k| k.set_umask(mask.as_raw_mode())))
    } else {
        rustix::process::umask(mask)
    }
}

pub fn geteuid() -> Uid {
    if sim::active() { Uid::ROOT } else { rustix::process::geteuid() }
}

pub fn capabilities(pid: Option<rustix::thread::Pid>) -> Result<CapabilitySets> {
    if sim::active() {
        let mut effective = CapabilitySet::all();
        effective.set(CapabilitySet::SYS_RESOURCE, sim::with(|k| k.beyond_quotas));
        let (permitted, inheritable) = (CapabilitySet::all(), CapabilitySet::empty());
        return Ok(CapabilitySets { effective, permitted, inheritable });
    }
    rustix::thread::capabilities(pid)
}

pub fn set_capabilities(pid: Option<rustix::thread::Pid>, sets: CapabilitySets) -> Result<()> {
    if sim::active() {
        sim::with(|k| k.beyond_quotas = sets.effective.contains(CapabilitySet::SYS_RESOURCE));
        return Ok(());
    }
    rustix::thread::set_capabilities(pid, sets)
}

pub fn try_switch() -> std::result::Result<(), super::switch::Fault> {
    if sim::active() { Ok(()) } else { super::switch::try_switch() }
}

pub fn access(fd: impl AsFd, mode: libc::c_int) -> Result<bool> {
    by_fd!(fd, |fd| real::access(fd, mode), |k, n| k.access(n, mode as u32))
}

pub fn chmod(fd: impl AsFd, mode: u32) -> Result<()> {
    by_fd!(fd, |fd| real::chmod(fd, mode), |k, n| k.chmod(n, mode))
}

pub fn fchmod(fd: impl AsFd, mode: Mode) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::fchmod(fd, mode), |k, n| k.chmod(n, mode.as_raw_mode()))
}

/// Only with an empty path.
pub fn chownat(fd: impl AsFd, path: &CStr, uid: Option<Uid>, gid: Option<Gid>, flags: AtFlags) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::chownat(fd, path, uid, gid, flags), |k, n| {
        k.chown(n, uid.map(Uid::as_raw), gid.map(Gid::as_raw))
    })
}

/// Only with an empty path.
pub fn utimensat(fd: impl AsFd, path: &CStr, times: &Timestamps, flags: AtFlags) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::utimensat(fd, path, times, flags), |k, n| k.set_times(n, times))
}

pub fn futimens(fd: impl AsFd, times: &Timestamps) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::futimens(fd, times), |k, n| k.set_times(n, times))
}

pub fn look(fd: impl AsFd) -> Result<Statx> {
    by_fd!(fd, |fd| real::look(fd), |k, n| k.look(n).map(|seen| statx(&seen)))
}

pub fn look_at(dir: impl AsFd, name: &[u8]) -> Result<Statx> {
    by_fd!(dir, |dir| real::look_at(dir, name), |k, n| k.look_at(n, name).map(|seen| statx(&seen)))
}

pub fn fstat(fd: impl AsFd) -> Result<Stat> {
    by_fd!(fd, |fd| rustix::fs::fstat(fd), |k, n| k.look(n).map(|seen| stat(&seen)))
}

pub fn statat(dir: impl AsFd, path: &str, flags: AtFlags) -> Result<Stat> {
    by_fd!(dir, |dir| rustix::fs::statat(dir, path, flags), |k, n| {
        k.look_at(n, path.as_bytes()).map(|seen| stat(&seen))
    })
}

fn statx(seen: &sim::Seen) -> Statx {
    // SAFETY: a plain C structure of numbers, for which zeroes are values.
    let mut s: Statx = unsafe { MaybeUninit::zeroed().assume_init() };
    let meta = &seen.meta;
    s.stx_mask = u32::MAX;
    s.stx_blksize = sim::BLOCK as u32;
    s.stx_nlink = meta.nlink;
    s.stx_uid = meta.uid;
    s.stx_gid = meta.gid;
    s.stx_mode = (meta.mode | meta.kind.mode_bits()) as u16;
    s.stx_ino = meta.ino;
    s.stx_size = meta.size;
    s.stx_blocks = meta.map.iter().filter(|e| **e != 0).count() as u64 * (sim::BLOCK as u64 / 512).max(1);
    for (to, ns) in [
        (&mut s.stx_atime, meta.atime),
        (&mut s.stx_mtime, meta.mtime),
        (&mut s.stx_ctime, meta.ctime),
        (&mut s.stx_btime, meta.btime),
    ] {
        to.tv_sec = ns.div_euclid(1_000_000_000);
        to.tv_nsec = ns.rem_euclid(1_000_000_000) as u32;
    }
    (s.stx_rdev_major, s.stx_rdev_minor) = meta.rdev;
    s.stx_mnt_id = sim::MOUNT;
    s
}

fn stat(seen: &sim::Seen) -> Stat {
    // SAFETY: a plain C structure of numbers, for which zeroes are values.
    let mut s: Stat = unsafe { MaybeUninit::zeroed().assume_init() };
    let meta = &seen.meta;
    s.st_ino = meta.ino as _;
    s.st_uid = meta.uid;
    s.st_mode = meta.mode | meta.kind.mode_bits();
    s.st_size = meta.size as _;
    s.st_mtime = meta.mtime.div_euclid(1_000_000_000) as _;
    s.st_mtime_nsec = meta.mtime.rem_euclid(1_000_000_000) as _;
    s.st_ctime = meta.ctime.div_euclid(1_000_000_000) as _;
    s.st_ctime_nsec = meta.ctime.rem_euclid(1_000_000_000) as _;
    s
}

pub fn has_tree() -> bool {
    !sim::active()
}

pub fn has_xattr(fd: &OwnedFd, name: &str) -> bool {
    real::has_xattr(fd.real(), name)
}

pub fn path_of(fd: &OwnedFd) -> PathBuf {
    real::path_of(fd.real())
}

pub(crate) use super::real::{process_id, wider_mounts};

pub fn below_locked_by(fd: &OwnedFd, dir: &Path, state_dir: &str) -> (String, Option<PathBuf>) {
    real::below_locked_by(fd.real(), dir, state_dir)
}

pub fn below(path: &Path) -> landfast_intentlog::device::below::Below {
    if sim::active() { Default::default() } else { real::below(path) }
}

pub fn magic(fd: impl AsFd) -> Result<u32> {
    by_fd!(fd, |fd| real::magic(fd), |k, _n| Ok(k.magic()))
}

pub fn may_clone(fd: impl AsFd) -> Result<bool> {
    by_fd!(fd, |fd| real::may_clone(fd), |k, _n| Ok(k.may_clone()))
}

pub fn is_btrfs(fd: impl AsFd) -> Result<bool> {
    by_fd!(fd, |fd| real::is_btrfs(fd), |k, _n| Ok(k.is_btrfs()))
}

pub fn has_one_journal(fd: impl AsFd, dir: &Path) -> Result<bool> {
    by_fd!(fd, |fd| real::has_one_journal(fd, dir), |k, _n| Ok(!k.is_btrfs()))
}

pub fn quota(fd: impl AsFd, uid: u32) -> Result<Option<Quota>> {
    by_fd!(fd, |fd| real::quota(fd, uid), |_k, _n| Ok(None))
}

pub fn fstatvfs(fd: impl AsFd) -> Result<StatVfs> {
    by_fd!(fd, |fd| rustix::fs::fstatvfs(fd), |k, n| {
        let (total, free) = k.space(n)?;
        Ok(StatVfs {
            f_bsize: sim::BLOCK as u64,
            f_frsize: sim::BLOCK as u64,
            f_blocks: total,
            f_bfree: free,
            f_bavail: free,
            f_files: 0,
            f_ffree: 0,
            f_favail: 0,
            f_fsid: 1,
            f_flag: rustix::fs::StatVfsMountFlags::empty(),
            f_namemax: 255,
        })
    })
}

pub fn flock(fd: impl AsFd, operation: FlockOperation) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::flock(fd, operation), |k, n| k.look(n).map(drop))
}

pub fn written_back(fd: impl AsFd) -> Result<()> {
    by_fd!(fd, |fd| real::written_back(fd), |k, n| k.written_back(n))
}

/// Simulated filesystems detect no damage.
pub fn error_counter(fd: impl AsFd) -> Option<OwnedFd> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => real::error_counter(fd).map(OwnedFd::Real),
        BorrowedFd::Simulated(_) => None,
    }
}

/// Simulated filesystems detect no damage.
pub fn error_notices(fd: impl AsFd) -> Option<OwnedFd> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => real::error_notices(fd).map(OwnedFd::Real),
        BorrowedFd::Simulated(_) => None,
    }
}

pub fn is_readable(fd: impl AsFd) -> Result<bool> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => real::is_readable(fd),
        BorrowedFd::Simulated(_) => Ok(false),
    }
}

pub fn fadvise(fd: impl AsFd, offset: u64, len: Option<NonZeroU64>, advice: Advice) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::fadvise(fd, offset, len, advice), |k, n| k.look(n).map(drop))
}

pub fn mkdirat(dir: impl AsFd, path: impl Arg, mode: Mode) -> Result<()> {
    match dir.as_fd() {
        BorrowedFd::Real(dir) => rustix::fs::mkdirat(dir, path, mode),
        BorrowedFd::Simulated(n) => {
            bytes(path, |name| sim::with(|k| k.make(n, name, sim::What::Dir, mode.as_raw_mode())))
        }
    }
}

pub fn mknodat(dir: impl AsFd, path: impl Arg, kind: FileType, mode: Mode, dev: u64) -> Result<()> {
    match dir.as_fd() {
        BorrowedFd::Real(dir) => rustix::fs::mknodat(dir, path, kind, mode, dev),
        BorrowedFd::Simulated(n) => {
            let dev = (rustix::fs::major(dev), rustix::fs::minor(dev));
            bytes(path, |name| {
                sim::with(|k| k.make(n, name, sim::What::Special(kind, dev), mode.as_raw_mode()))
            })
        }
    }
}

pub fn symlinkat(target: impl Arg, dir: impl AsFd, path: impl Arg) -> Result<()> {
    match dir.as_fd() {
        BorrowedFd::Real(dir) => rustix::fs::symlinkat(target, dir, path),
        BorrowedFd::Simulated(n) => bytes(path, |name| {
            bytes(target, |target| sim::with(|k| k.make(n, name, sim::What::Symlink(target), 0o777)))
        }),
    }
}

/// Only with an empty first path.
pub fn linkat(fd: impl AsFd, path: &CStr, dir: impl AsFd, name: impl Arg, flags: AtFlags) -> Result<()> {
    match (fd.as_fd(), dir.as_fd()) {
        (BorrowedFd::Real(fd), BorrowedFd::Real(dir)) => rustix::fs::linkat(fd, path, dir, name, flags),
        (BorrowedFd::Simulated(n), BorrowedFd::Simulated(dir)) => {
            bytes(name, |name| sim::with(|k| k.link(n, dir, name)))
        }
        _ => Err(Errno::XDEV),
    }
}

pub fn link_open(fd: impl AsFd, dir: impl AsFd, name: &[u8]) -> Result<()> {
    match (fd.as_fd(), dir.as_fd()) {
        (BorrowedFd::Real(fd), BorrowedFd::Real(dir)) => real::link_open(fd, dir, name),
        (BorrowedFd::Simulated(n), BorrowedFd::Simulated(dir)) => sim::with(|k| k.link(n, dir, name)),
        _ => Err(Errno::XDEV),
    }
}

pub fn unlinkat(dir: impl AsFd, path: impl Arg, flags: AtFlags) -> Result<()> {
    match dir.as_fd() {
        BorrowedFd::Real(dir) => rustix::fs::unlinkat(dir, path, flags),
        BorrowedFd::Simulated(n) => {
            bytes(path, |name| sim::with(|k| k.unlink(n, name, flags.contains(AtFlags::REMOVEDIR))))
        }
    }
}

pub fn renameat(from_dir: impl AsFd, from: impl Arg, to_dir: impl AsFd, to: impl Arg) -> Result<()> {
    renameat_with(from_dir, from, to_dir, to, RenameFlags::empty())
}

pub fn renameat_with(
    from_dir: impl AsFd,
    from: impl Arg,
    to_dir: impl AsFd,
    to: impl Arg,
    flags: RenameFlags,
) -> Result<()> {
    match (from_dir.as_fd(), to_dir.as_fd()) {
        (BorrowedFd::Real(a), BorrowedFd::Real(b)) => rustix::fs::renameat_with(a, from, b, to, flags),
        (BorrowedFd::Simulated(a), BorrowedFd::Simulated(b)) => bytes(from, |from| {
            bytes(to, |to| sim::with(|k| k.rename(a, from, b, to, flags.contains(RenameFlags::NOREPLACE))))
        }),
        _ => Err(Errno::XDEV),
    }
}

pub fn read_link(fd: impl AsFd) -> Result<CString> {
    by_fd!(fd, |fd| real::read_link(fd), |k, n| {
        k.read_link(n).and_then(|target| CString::new(target).map_err(|_| Errno::INVAL))
    })
}

pub fn pwrite(fd: impl AsFd, data: &[u8], offset: u64) -> Result<usize> {
    by_fd!(fd, |fd| rustix::io::pwrite(fd, data, offset), |k, n| k.write(n, data, offset))
}

pub fn pread_spare(fd: impl AsFd, data: &mut Vec<u8>, offset: u64) -> Result<usize> {
    by_fd!(fd, |fd| real::pread_spare(fd, data, offset), |k, n| {
        let room = data.capacity() - data.len();
        k.read(n, data, offset, room)
    })
}

pub fn read_direct(fd: impl AsFd, offset: u64, len: usize) -> Result<Vec<u8>> {
    by_fd!(fd, |fd| real::read_direct(fd, offset, len), |k, n| {
        let mut data = Vec::new();
        k.read(n, &mut data, offset, len).map(|_| data)
    })
}

pub fn write_all(file: impl AsFd, data: &[u8]) -> Result<()> {
    by_fd!(file, |file| real::write_all(file, data), |k, n| {
        let mut done = 0;
        while done < data.len() {
            done += k.write(n, &data[done..], done as u64)?;
        }
        Ok(())
    })
}

pub fn read_to_end(file: impl AsFd) -> Result<Vec<u8>> {
    by_fd!(file, |file| real::read_to_end(file), |k, n| {
        let mut data = Vec::new();
        k.read(n, &mut data, 0, usize::MAX).map(|_| data)
    })
}

pub fn ftruncate(fd: impl AsFd, size: u64) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::ftruncate(fd, size), |k, n| k.truncate(n, size))
}

pub fn fallocate(fd: impl AsFd, flags: FallocateFlags, offset: u64, len: u64) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::fallocate(fd, flags, offset, len), |k, n| {
        if flags.contains(FallocateFlags::PUNCH_HOLE) {
            k.punch(n, offset, len)
        } else {
            k.allocate(n, offset, len)
        }
    })
}

pub fn seek(fd: impl AsFd, to: SeekFrom) -> Result<u64> {
    by_fd!(fd, |fd| rustix::fs::seek(fd, to), |k, n| match to {
        SeekFrom::Start(at) => k.set_position(n, at),
        SeekFrom::Data(at) => k.seek(n, at, true),
        SeekFrom::Hole(at) => k.seek(n, at, false),
        _ => Err(Errno::INVAL),
    })
}

pub fn copy_file_range(
    source: impl AsFd,
    from: Option<&mut u64>,
    dest: impl AsFd,
    to: Option<&mut u64>,
    len: usize,
) -> Result<usize> {
    match (source.as_fd(), dest.as_fd()) {
        (BorrowedFd::Real(a), BorrowedFd::Real(b)) => rustix::fs::copy_file_range(a, from, b, to, len),
        (BorrowedFd::Simulated(a), BorrowedFd::Simulated(b)) => {
            let (from, to) = (from.map_or(0, |n| *n), to.map_or(0, |n| *n));
            sim::with(|k| k.copy(a, from, b, to, len))
        }
        _ => Err(Errno::XDEV),
    }
}

pub fn clone_range(
    source: impl AsFd,
    offset: u64,
    len: u64,
    dest: impl AsFd,
    dest_offset: u64,
) -> Result<()> {
    match (source.as_fd(), dest.as_fd()) {
        (BorrowedFd::Real(a), BorrowedFd::Real(b)) => real::clone_range(a, offset, len, b, dest_offset),
        (BorrowedFd::Simulated(a), BorrowedFd::Simulated(b)) => {
            sim::with(|k| k.clone_range(a, offset, len, b, dest_offset))
        }
        _ => Err(Errno::XDEV),
    }
}

pub fn fsync(fd: impl AsFd) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::fsync(fd), |k, n| k.fsync(n))
}

pub fn fdatasync(fd: impl AsFd) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::fdatasync(fd), |k, n| k.fsync(n))
}

pub fn syncfs(fd: impl AsFd) -> Result<()> {
    by_fd!(fd, |fd| rustix::fs::syncfs(fd), |k, n| k.sync_all(n))
}

pub fn getxattr(fd: impl AsFd, name: impl Arg, value: &mut [u8]) -> Result<usize> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => real::getxattr(fd, name, value),
        BorrowedFd::Simulated(n) => bytes(name, |name| sim::with(|k| k.get_xattr(n, name, value))),
    }
}

pub fn fgetxattr(fd: impl AsFd, name: impl Arg, value: &mut [u8]) -> Result<usize> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => rustix::fs::fgetxattr(fd, name, value),
        BorrowedFd::Simulated(n) => bytes(name, |name| sim::with(|k| k.get_xattr(n, name, value))),
    }
}

pub fn setxattr(fd: impl AsFd, name: impl Arg, value: &[u8], flags: XattrFlags) -> Result<()> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => real::setxattr(fd, name, value, flags),
        BorrowedFd::Simulated(n) => bytes(name, |name| sim::with(|k| k.set_xattr(n, name, value, flags))),
    }
}

pub fn fsetxattr(fd: impl AsFd, name: impl Arg, value: &[u8], flags: XattrFlags) -> Result<()> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => rustix::fs::fsetxattr(fd, name, value, flags),
        BorrowedFd::Simulated(n) => bytes(name, |name| sim::with(|k| k.set_xattr(n, name, value, flags))),
    }
}

pub fn removexattr(fd: impl AsFd, name: impl Arg) -> Result<()> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => real::removexattr(fd, name),
        BorrowedFd::Simulated(n) => bytes(name, |name| sim::with(|k| k.remove_xattr(n, name))),
    }
}

pub fn fremovexattr(fd: impl AsFd, name: impl Arg) -> Result<()> {
    match fd.as_fd() {
        BorrowedFd::Real(fd) => rustix::fs::fremovexattr(fd, name),
        BorrowedFd::Simulated(n) => bytes(name, |name| sim::with(|k| k.remove_xattr(n, name))),
    }
}

pub fn listxattr(fd: impl AsFd, list: &mut [u8]) -> Result<usize> {
    by_fd!(fd, |fd| real::listxattr(fd, list), |k, n| k.list_xattrs(n, list))
}

pub enum Dir {
    Real(rustix::fs::Dir),
    Simulated(std::vec::IntoIter<Listed>),
}

pub enum DirEntry {
    Real(rustix::fs::DirEntry),
    Simulated(Listed),
}

impl Dir {
    pub fn new(fd: OwnedFd) -> Result<Dir> {
        match fd {
            OwnedFd::Real(fd) => rustix::fs::Dir::new(fd).map(Dir::Real),
            OwnedFd::Simulated(fd) => Ok(Dir::Simulated(sim::with(|k| k.list(fd.number()))?.into_iter())),
        }
    }
}

impl Iterator for Dir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Dir::Real(dir) => Some(dir.next()?.map(DirEntry::Real)),
            Dir::Simulated(entries) => Some(Ok(DirEntry::Simulated(entries.next()?))),
        }
    }
}

impl DirEntry {
    pub fn file_name(&self) -> &CStr {
        match self {
            DirEntry::Real(e) => e.file_name(),
            DirEntry::Simulated(e) => &e.name,
        }
    }
}

/// As [`Dir`], without copying entries.
pub enum RawDir<'a> {
    Real(rustix::fs::RawDir<'a, std::os::fd::BorrowedFd<'a>>),
    Simulated(Option<Result<Vec<Listed>>>, usize),
}

pub enum RawDirEntry<'a> {
    Real(rustix::fs::RawDirEntry<'a>),
    Simulated(&'a Listed),
}

impl<'a> RawDir<'a> {
    pub fn new(fd: &'a OwnedFd, buffer: &'a mut [MaybeUninit<u8>]) -> RawDir<'a> {
        match fd.as_fd() {
            BorrowedFd::Real(fd) => RawDir::Real(rustix::fs::RawDir::new(fd, buffer)),
            BorrowedFd::Simulated(n) => RawDir::Simulated(Some(sim::with(|k| k.list(n))), 0),
        }
    }

    pub fn is_buffer_empty(&self) -> bool {
        match self {
            RawDir::Real(dir) => dir.is_buffer_empty(),
            RawDir::Simulated(_, at) => *at % 4 == 0,
        }
    }

    #[allow(clippy::should_implement_trait)] // as that of the system
    pub fn next(&mut self) -> Option<Result<RawDirEntry<'_>>> {
        match self {
            RawDir::Real(dir) => dir.next().map(|e| e.map(RawDirEntry::Real)),
            RawDir::Simulated(entries, at) => match entries {
                Some(Ok(entries)) => {
                    *at += 1;
                    entries.get(*at - 1).map(|e| Ok(RawDirEntry::Simulated(e)))
                }
                Some(Err(e)) => {
                    let e = *e;
                    *entries = None;
                    Some(Err(e))
                }
                None => None,
            },
        }
    }
}

impl RawDirEntry<'_> {
    pub fn file_name(&self) -> &CStr {
        match self {
            RawDirEntry::Real(e) => e.file_name(),
            RawDirEntry::Simulated(e) => &e.name,
        }
    }

    pub fn file_type(&self) -> FileType {
        match self {
            RawDirEntry::Real(e) => e.file_type(),
            RawDirEntry::Simulated(e) => FileType::from_raw_mode(e.kind.mode_bits()),
        }
    }

    pub fn next_entry_cookie(&self) -> u64 {
        match self {
            RawDirEntry::Real(e) => e.next_entry_cookie(),
            RawDirEntry::Simulated(e) => e.position,
        }
    }

    pub fn ino(&self) -> u64 {
        match self {
            RawDirEntry::Real(e) => e.ino(),
            RawDirEntry::Simulated(e) => e.ino,
        }
    }
}

pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    if sim::active() { Ok(path.to_owned()) } else { real::canonicalize(path) }
}

pub fn is_empty_file(path: &Path) -> bool {
    !sim::active() && real::is_empty_file(path)
}

pub fn open_log(config: Config) -> std::result::Result<(Log, Replay), landfast_intentlog::OpenError> {
    if sim::active() {
        let config = Config { seed: Some(sim::with(|k| k.rng.next())), ..config };
        return Log::open_device(Box::new(sim::LogDisk::there()), config);
    }
    real::open_log(config)
}

pub fn log_remains(path: &Path) -> Option<landfast_intentlog::scavenge::Remains> {
    if sim::active() { None } else { real::log_remains(path) }
}

pub fn lock_holder(fd: &OwnedFd) -> String {
    real::lock_holder(fd.real())
}

pub fn wall_clock_ns() -> u64 {
    if sim::active() { sim::with(|k| k.wall_clock_ns()) } else { real::wall_clock_ns() }
}

pub fn instant() -> Instant {
    if sim::active() { sim::with(|k| k.instant()) } else { real::instant() }
}

pub fn pause(time: Duration) {
    if !sim::active() {
        real::pause(time);
    }
}

pub fn fill_random(bytes: &mut [u8]) -> std::result::Result<(), getrandom::Error> {
    if sim::active() {
        sim::with(|k| k.fill_random(bytes));
        return Ok(());
    }
    real::fill_random(bytes)
}

pub fn on_another_thread<T: Send>(work: impl FnOnce() -> T + Send) -> std::thread::Result<T> {
    if sim::active() { Ok(work()) } else { real::on_another_thread(work) }
}

/// The simulation has only one thread.
pub fn drop_aside<T: Send + 'static>(large: T) {
    if sim::active() { drop(large) } else { real::drop_aside(large) }
}

/// The simulation has one, so that a seed determines what happens.
pub fn cores() -> usize {
    if sim::active() { 1 } else { real::cores() }
}
