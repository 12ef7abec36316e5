//! System calls: re-exported safe wrappers, calls that have none, and the few conventions around both.
//!
//! All `unsafe` code of the operations half of this crate is here. Functions return [`Errno`] and accept `O_PATH`
//! descriptors, unless they say otherwise.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use landfast_intentlog::{Config, Log, Replay};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags, XattrFlags};
use rustix::io::Errno;
use rustix::path::Arg;

pub(crate) use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) use rustix::fs::{
    Dir, RawDir, chownat, copy_file_range, fadvise, fallocate, fchmod, fdatasync, fgetxattr, flock,
    fremovexattr, fsetxattr, fstat, fstatvfs, fsync, ftruncate, futimens, linkat, makedev, mkdirat, mknodat,
    open, openat, renameat, renameat_with, seek, statat, symlinkat, syncfs, unlinkat, utimensat,
};
pub(crate) use rustix::io::pwrite;
pub(crate) use rustix::process::{geteuid, getrlimit, setrlimit, umask};
pub(crate) use rustix::thread::{capabilities, set_capabilities};

use crate::limits::{FILE_SIZE_MAX, HANDLE_BYTES_MAX, HANDLE_TRIES};
use crate::quota::Quota;
use crate::record::KernelHandle;

type Result<T> = std::result::Result<T, Errno>;

const BTRFS_MAGIC: u32 = 0x9123_683e;

const EXT4_MAGIC: u32 = 0xef53;

const XFS_MAGIC: u32 = 0x5846_5342;

/// The mask of every `statx`.
const LOOK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

/// `struct file_handle` with room for the largest handle that this crate accepts.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; HANDLE_BYTES_MAX],
}

fn check(ret: libc::c_long) -> Result<libc::c_long> {
    if ret < 0 {
        return Err(Errno::from_raw_os_error(
            std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        ));
    }
    Ok(ret)
}

fn handle_at(dir: BorrowedFd<'_>, name: &CStr, flags: libc::c_int) -> Result<(KernelHandle, u64)> {
    let mut raw =
        RawHandle { handle_bytes: HANDLE_BYTES_MAX as u32, handle_type: 0, f_handle: [0; HANDLE_BYTES_MAX] };
    let mut mount: libc::c_int = 0;
    // SAFETY: `name` is NUL-terminated, `raw` has room for the `handle_bytes` it announces, both outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut raw,
            &raw mut mount,
            flags,
        )
    })?;
    let len = (raw.handle_bytes as usize).min(HANDLE_BYTES_MAX);
    let kh = KernelHandle { kind: raw.handle_type, bytes: raw.f_handle[..len].into() };
    Ok((kh, mount as u64))
}

/// The kernel's handle of an open object, and its mount's id.
pub(crate) fn handle_of(fd: impl AsFd) -> Result<(KernelHandle, u64)> {
    handle_at(fd.as_fd(), c"", libc::AT_EMPTY_PATH)
}

/// The kernel's handle of what `name` names in `dir` (a symbolic link itself, not its target), and its mount's id.
pub(crate) fn handle_by_name(dir: impl AsFd, name: &[u8]) -> Result<(KernelHandle, u64)> {
    with_c_str(name, |name| handle_at(dir.as_fd(), name, 0))
}

/// Fails if data of a file could not be written back since the descriptor was opened, or since the last call through it, or
/// ever if nobody has been told yet. Starts no write-back and waits for none: it is `sync_file_range` of the last byte that a file can have.
pub(crate) fn written_back(fd: impl AsFd) -> Result<()> {
    let last = FILE_SIZE_MAX as i64 - 1;
    // SAFETY: no memory is passed.
    check(unsafe {
        libc::sync_file_range(fd.as_fd().as_raw_fd(), last, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE).into()
    })
    .map(drop)
}

/// The file in which a filesystem counts how often it has found itself damaged: ext4's, where the system shows it.
pub(crate) fn error_counter(fd: impl AsFd) -> Option<OwnedFd> {
    if magic(&fd).ok()? != EXT4_MAGIC {
        return None;
    }
    let device = rustix::fs::fstat(&fd).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let counter = Path::new("/sys/fs/ext4").join(device.file_name()?).join("errors_count");
    rustix::fs::open(counter, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Becomes readable when ext4 finds itself damaged, before the call that found it returns: a fanotify group with a mark for
/// `FAN_FS_ERROR` (Linux 5.16 and later). `None` for other filesystems and where the kernel refuses (older, without
/// `CAP_SYS_ADMIN`, more than `fs.fanotify.max_user_groups`).
pub(crate) fn error_notices(fd: impl AsFd) -> Option<OwnedFd> {
    if magic(&fd).ok()? != EXT4_MAGIC {
        return None;
    }
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_FID;
    // SAFETY: no memory is passed; the result is a new descriptor of our own.
    let group = unsafe {
        let group = check(libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint).into()).ok()?;
        OwnedFd::from_raw_fd(group as libc::c_int)
    };
    let how = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    // SAFETY: without a path the mark is for the filesystem of the descriptor.
    check(unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            how,
            libc::FAN_FS_ERROR,
            fd.as_fd().as_raw_fd(),
            std::ptr::null(),
        )
        .into()
    })
    .ok()?;
    Some(group)
}

/// Something can be read from the descriptor now.
pub(crate) fn is_readable(fd: impl AsFd) -> Result<bool> {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&now)))? > 0)
}

/// Opens (`O_PATH`) the object of a kernel handle on the filesystem of `mount` (not `O_PATH`). Needs
/// `CAP_DAC_READ_SEARCH`.
pub(crate) fn open_handle(mount: impl AsFd, kh: &KernelHandle) -> Result<OwnedFd> {
    open_handle_for(mount, kh, OFlags::PATH | OFlags::NOFOLLOW)
}

/// As [`open_handle`], with other flags, under the thread's rights.
///
/// Linux gives `ENOMEM` for a stale handle while its inode number is just being reused. A moment later the answer is
/// `ESTALE`, so the call is repeated a few times.
pub(crate) fn open_handle_for(mount: impl AsFd, kh: &KernelHandle, flags: OFlags) -> Result<OwnedFd> {
    let mut raw = RawHandle {
        handle_bytes: kh.bytes.len() as u32,
        handle_type: kh.kind,
        f_handle: [0; HANDLE_BYTES_MAX],
    };
    raw.f_handle.get_mut(..kh.bytes.len()).ok_or(Errno::STALE)?.copy_from_slice(&kh.bytes);
    let flags = (flags | OFlags::CLOEXEC).bits() as libc::c_int;
    let mut tries = 1..HANDLE_TRIES;
    loop {
        // SAFETY: `raw` holds `handle_bytes` bytes and outlives the call; the result is a new descriptor of our own.
        let opened = check(unsafe {
            libc::syscall(libc::SYS_open_by_handle_at, mount.as_fd().as_raw_fd(), &raw mut raw, flags)
        });
        match opened {
            Err(Errno::NOMEM) if tries.next().is_some() => std::thread::yield_now(),
            // SAFETY: the call gave a descriptor that nobody else owns.
            opened => return opened.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) }),
        }
    }
}

/// Calls `f` with `name` as a C string on the stack. Fails with `EINVAL` if it contains NUL, `ENAMETOOLONG` beyond 255 bytes.
fn with_c_str<T>(name: &[u8], f: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
    let mut buf = [0u8; 256];
    buf.get_mut(..name.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(name);
    let end = buf.get(..=name.len()).ok_or(Errno::NAMETOOLONG)?;
    f(CStr::from_bytes_with_nul(end).map_err(|_| Errno::INVAL)?)
}

/// Sets the filesystem user of the calling thread; this also decides whether it has the superuser's file capabilities.
pub(crate) fn set_fs_uid(uid: u32) -> Result<()> {
    // SAFETY: the call takes a plain number and changes this thread only.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    // The call reports no failure (an id that this user namespace does not know), so look.
    // SAFETY: as above; -1 is no valid id, so this one only reports the present one.
    let now = unsafe { libc::syscall(libc::SYS_setfsuid, -1i32) } as u32;
    if now == uid { Ok(()) } else { Err(Errno::PERM) }
}

pub(crate) fn set_fs_gid(gid: u32) -> Result<()> {
    // SAFETY: the call takes a plain number and changes this thread only.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    // SAFETY: as above; -1 is no valid id, so this one only reports the present one.
    let now = unsafe { libc::syscall(libc::SYS_setfsgid, -1i32) } as u32;
    if now == gid { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
pub(crate) fn fs_ids() -> (u32, u32) {
    // SAFETY: -1 is no valid id, so both calls only report the present one.
    unsafe {
        (libc::syscall(libc::SYS_setfsuid, -1i32) as u32, libc::syscall(libc::SYS_setfsgid, -1i32) as u32)
    }
}

/// Sets the supplementary groups of the calling thread only (the C library's function would change all threads).
pub(crate) fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the pointer is to `len` group ids; on Linux `gid_t` is `u32`.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    Ok(())
}

/// A user's quota. `None`: the filesystem, or the kernel, has none for users.
pub(crate) fn quota(fd: impl AsFd, uid: u32) -> Result<Option<Quota>> {
    let mut found = std::mem::MaybeUninit::<libc::dqblk>::zeroed();
    // SAFETY: the kernel writes one `struct if_dqblk`, which has this layout, and all of whose bits may be zero.
    let asked = check(unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            fd.as_fd().as_raw_fd(),
            libc::QCMD(libc::Q_GETQUOTA, libc::USRQUOTA),
            uid,
            found.as_mut_ptr(),
        )
    });
    match asked {
        // No quotas here; not for this kind; none of this user; no such call in this kernel.
        Err(Errno::NOTSUP | Errno::SRCH | Errno::NOENT | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
            return Ok(None);
        }
        asked => asked?,
    };
    // SAFETY: zeroed at first, and written by the kernel.
    let q = unsafe { found.assume_init() };
    Ok(Some(Quota {
        blocks_hard: q.dqb_bhardlimit,
        blocks_soft: q.dqb_bsoftlimit,
        bytes: q.dqb_curspace,
        files_hard: q.dqb_ihardlimit,
        files_soft: q.dqb_isoftlimit,
        files: q.dqb_curinodes,
        blocks_until: q.dqb_btime,
        files_until: q.dqb_itime,
    }))
}

/// Gives the calling thread a umask (and working directory) of its own.
pub(crate) fn unshare_fs() -> Result<()> {
    // SAFETY: CLONE_FS only separates the thread's umask, root and working directory from the process's.
    check(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_FS) }))?;
    Ok(())
}

/// True when the thread's effective capabilities (and filesystem ids) grant `mode` (`R_OK` etc.) on `fd`.
pub(crate) fn access(fd: impl AsFd, mode: libc::c_int) -> Result<bool> {
    // SAFETY: the path is an empty C string, the rest plain numbers.
    let ret = check(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            mode,
            libc::AT_EMPTY_PATH | libc::AT_EACCESS,
        )
    });
    match ret {
        Ok(_) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => Ok(false),
        Err(e) => Err(e),
    }
}

pub(crate) fn chmod(fd: impl AsFd, mode: u32) -> Result<()> {
    // SAFETY: the path is an empty C string, the rest plain numbers.
    let ret = check(unsafe {
        libc::syscall(libc::SYS_fchmodat2, fd.as_fd().as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH)
    });
    match ret {
        Ok(_) => Ok(()),
        // Before Linux 6.6.
        Err(Errno::NOSYS) => rustix::fs::chmod(proc_path(fd), Mode::from_raw_mode(mode)),
        Err(e) => Err(e),
    }
}

/// Lets `dest` at `dest_offset` share `len` bytes (0: up to the end) of `source` at `offset`. All or nothing.
pub(crate) fn clone_range(
    source: impl AsFd,
    offset: u64,
    len: u64,
    dest: impl AsFd,
    dest_offset: u64,
) -> Result<()> {
    let range = libc::file_clone_range {
        src_fd: i64::from(source.as_fd().as_raw_fd()),
        src_offset: offset,
        src_length: len,
        dest_offset,
    };
    // SAFETY: the request takes a pointer to this structure, which outlives the call and is only read.
    let ret = unsafe { libc::ioctl(dest.as_fd().as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    check(libc::c_long::from(ret))?;
    Ok(())
}

/// `/proc/self/fd/N`: a path to the object of an `O_PATH` descriptor, for calls that accept no such descriptor. Must
/// not be used on symbolic links with calls that follow.
pub(crate) fn proc_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// The path of an open directory below another one, without the leading `/`; `None` if it is not below or not known.
pub(crate) fn path_below(top: impl AsFd, dir: impl AsFd) -> io::Result<Option<String>> {
    let path = |fd: BorrowedFd<'_>| std::fs::read_link(proc_path(fd));
    let (top, dir) = (path(top.as_fd())?, path(dir.as_fd())?);
    Ok(dir.strip_prefix(&top).ok().map(|below| below.to_string_lossy().escape_debug().to_string()))
}

/// Opens the object of `fd` again with other flags, under the thread's rights.
pub(crate) fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(proc_path(fd), flags | OFlags::CLOEXEC, Mode::empty())
}

/// Opens (`O_PATH`) what `name` names in `dir`: a symbolic link itself, never across a mount point.
pub(crate) fn open_path(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), ResolveFlags::NO_XDEV)
}

pub(crate) fn look(fd: impl AsFd) -> Result<Statx> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, LOOK)
}

/// The inode flags ([`FLAGS_THAT_LOCK`]) of an object that can be opened for reading.
pub(crate) fn inode_flags(fd: impl AsFd) -> Result<u32> {
    let fd = reopen(fd, OFlags::RDONLY | OFlags::NONBLOCK)?;
    Ok(rustix::fs::ioctl_getflags(fd)?.bits())
}

/// Sets the inode flags in `mask` to `flags` and leaves the others.
pub(crate) fn set_inode_flags(fd: impl AsFd, mask: u32, flags: u32) -> Result<()> {
    let fd = reopen(fd, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let now = rustix::fs::ioctl_getflags(&fd)?.bits();
    let wanted = now & !mask | flags & mask;
    if wanted == now {
        return Ok(());
    }
    rustix::fs::ioctl_setflags(fd, rustix::fs::IFlags::from_bits_retain(wanted))
}

/// `struct fsxattr` of the kernel's `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Extended {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820_u32 as libc::Ioctl;

fn extended(fd: BorrowedFd<'_>) -> Result<Extended> {
    let mut found = Extended::default();
    // SAFETY: the request fills this structure, which is of the kernel's layout and outlives the call.
    let ret = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut found) };
    check(libc::c_long::from(ret))?;
    Ok(found)
}

/// The flags that a new object inherits from its directory, as `FS_IOC_GETFLAGS` gives them: s u c S d A m E j t D C x P F.
const HANDED_DOWN: u32 = 0x6281_ccc7 | 0x8;
/// The same flags as `FS_IOC_FSGETXATTR` gives them: S A d, rtinherit, projinherit, nosymlinks, extszinherit, nodefrag,
/// filestreams, dax, cowextsize.
const HANDED_DOWN_EXTENDED: u32 = 0x1_f7e0;

/// Whether a new object inherits more from a directory than mode, group and ACL: a project, a flag, a hint, a key.
pub(crate) fn hands_down(dir: impl AsFd) -> Result<bool> {
    let fd = reopen(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let flags = match rustix::fs::ioctl_getflags(&fd) {
        Ok(flags) => flags.bits(),
        Err(Errno::NOTTY | Errno::OPNOTSUPP) => 0,
        Err(e) => return Err(e),
    };
    let extended = match extended(fd.as_fd()) {
        Ok(extended) => extended.flags,
        Err(Errno::NOTTY | Errno::OPNOTSUPP) => 0,
        Err(e) => return Err(e),
    };
    Ok(flags & HANDED_DOWN != 0 || extended & HANDED_DOWN_EXTENDED != 0)
}

/// Makes a directory pass on nothing to new objects, as far as possible.
pub(crate) fn hand_down_nothing(dir: impl AsFd) -> Result<()> {
    if !hands_down(&dir)? {
        return Ok(());
    }
    let fd = reopen(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut extended = extended(fd.as_fd())?;
    extended.flags &= !HANDED_DOWN_EXTENDED;
    (extended.extent_size, extended.cow_extent_size, extended.project) = (0, 0, 0);
    // SAFETY: the request reads this structure, which is of the kernel's layout and outlives the call.
    let ret = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const extended) };
    check(libc::c_long::from(ret))?;
    // A flag that the filesystem does not let go, such as its own key, stays.
    let flags = rustix::fs::ioctl_getflags(&fd)?.bits() & !HANDED_DOWN;
    match rustix::fs::ioctl_setflags(fd, rustix::fs::IFlags::from_bits_retain(flags)) {
        Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// What tells the mount of `fd` from every other one, also of other boots: the kernel's mount number, which is never reused,
/// and the boot's id. `None` where the kernel has no such number (before Linux 6.8).
pub(crate) fn mount_identity(fd: impl AsFd) -> Option<Vec<u8>> {
    const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let look = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, MNT_ID_UNIQUE).ok()?;
    if look.stx_mask & MNT_ID_UNIQUE.bits() == 0 {
        return None;
    }
    let mut identity = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    identity.extend_from_slice(&look.stx_mnt_id.to_le_bytes());
    Some(identity)
}

pub(crate) fn look_at(dir: impl AsFd, name: &[u8]) -> Result<Statx> {
    rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, LOOK)
}

pub(crate) fn magic(fd: impl AsFd) -> Result<u32> {
    Ok(rustix::fs::fstatfs(fd)?.f_type as u32)
}

/// Reads an extended attribute and returns its length. The object must not be a symbolic link.
pub(crate) fn getxattr(fd: impl AsFd, name: impl Arg, value: &mut [u8]) -> Result<usize> {
    rustix::fs::getxattr(proc_path(fd), name, value)
}

/// The object must not be a symbolic link.
pub(crate) fn setxattr(fd: impl AsFd, name: impl Arg, value: &[u8], flags: XattrFlags) -> Result<()> {
    rustix::fs::setxattr(proc_path(fd), name, value, flags)
}

/// The object must not be a symbolic link.
pub(crate) fn removexattr(fd: impl AsFd, name: impl Arg) -> Result<()> {
    rustix::fs::removexattr(proc_path(fd), name)
}

/// Lists the extended attributes of an object that is no symbolic link; each name ends with NUL.
pub(crate) fn listxattr(fd: impl AsFd, list: &mut [u8]) -> Result<usize> {
    rustix::fs::listxattr(proc_path(fd), list)
}

/// Gives an open object one more name. Goes through /proc, since linking the descriptor itself needs a capability that
/// callers do not have.
pub(crate) fn link_open(fd: impl AsFd, dir: impl AsFd, name: &[u8]) -> Result<()> {
    rustix::fs::linkat(CWD, proc_path(fd), dir, name, AtFlags::SYMLINK_FOLLOW)
}

pub(crate) fn read_link(fd: impl AsFd) -> Result<CString> {
    rustix::fs::readlinkat(fd, c"", Vec::new())
}

/// Reads into the spare capacity of `data`, at most as much as fits, and appends that to it.
pub(crate) fn pread_spare(fd: impl AsFd, data: &mut Vec<u8>, offset: u64) -> Result<usize> {
    rustix::io::pread(fd, rustix::buffer::spare_capacity(data), offset)
}

/// Reads through a descriptor that bypasses the page cache (`O_DIRECT`) up to `len` bytes. `offset` and `len` are multiples of the
/// device's block size.
pub(crate) fn read_direct(fd: impl AsFd, offset: u64, len: usize) -> Result<Vec<u8>> {
    // The most that a device may want.
    const ALIGNMENT: usize = 4096;
    let mut buf = vec![0; len + ALIGNMENT];
    let start = buf.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    loop {
        match rustix::io::pread(&fd, &mut buf[start..start + len], offset) {
            Err(Errno::INTR) => {}
            read => {
                let end = start + read?;
                return Ok(buf[start..end].to_vec());
            }
        }
    }
}

pub(crate) fn write_all(file: impl AsFd, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::write(&file, rest) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

pub(crate) fn read_to_end(file: impl AsFd) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(512);
    loop {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Ok(_) | Err(Errno::INTR) => bytes.reserve(512),
            Err(e) => return Err(e),
        }
    }
}

pub(crate) fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

/// True when nothing or an empty file is at a path.
pub(crate) fn is_empty_file(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |m| m.is_file() && m.len() == 0)
}

/// What is left of a log; takes no lock.
pub(crate) fn log_remains(path: &Path) -> Option<landfast_intentlog::scavenge::Remains> {
    landfast_intentlog::scavenge::Remains::open(path).ok()
}

pub(crate) fn open_log(config: Config) -> std::result::Result<(Log, Replay), landfast_intentlog::OpenError> {
    Log::open(config)
}

#[cfg(not(test))]
pub(crate) fn has_tree() -> bool {
    true
}

pub(crate) fn process_id() -> u32 {
    std::process::id()
}

pub(crate) fn has_xattr(fd: impl AsFd, name: &str) -> bool {
    getxattr(fd, name, &mut [0u8; 0][..]).is_ok()
}

pub(crate) fn path_of(fd: impl AsFd) -> PathBuf {
    std::fs::read_link(proc_path(fd)).unwrap_or_default()
}

/// Other mounts of the same filesystem that show more of what is above this mount's root; the widest first.
pub(crate) fn wider_mounts(id: u64) -> Vec<landfast_intentlog::device::below::Mount> {
    landfast_intentlog::device::below::wider(id)
}

/// Who holds a lock on a directory that we were refused and, where visible, the directory below `dir` that it serves: one
/// whose `state_dir` it has open.
pub(crate) fn below_locked_by(fd: impl AsFd, dir: &Path, state_dir: &str) -> (String, Option<PathBuf>) {
    let holder = lock_holder(fd);
    let pid = holder.strip_prefix("process ").and_then(|pid| pid.parse::<u32>().ok());
    let inner = pid.and_then(|pid| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let open = open.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let mut served = open.filter(|path| path.ends_with(state_dir));
        served.find_map(|path| path.parent().filter(|p| p.starts_with(dir)).map(Path::to_owned))
    });
    (holder, inner)
}

/// What is known of a path: its mount, and whether its device counts flushes.
pub(crate) fn below(path: &Path) -> landfast_intentlog::device::below::Below {
    landfast_intentlog::device::below::Below::of(path)
}

pub(crate) fn lock_holder(fd: impl AsFd) -> String {
    landfast_intentlog::holder::of(fd)
}

pub(crate) fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

pub(crate) fn instant() -> Instant {
    Instant::now()
}

pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> std::result::Result<(), getrandom::Error> {
    getrandom::fill(bytes)
}

/// Runs `work` on a new thread, which has the process's credentials, and waits for it.
pub(crate) fn on_another_thread<T: Send>(work: impl FnOnce() -> T + Send) -> std::thread::Result<T> {
    std::thread::scope(|s| s.spawn(work).join())
}

/// Drops a large value on a thread of its own, if there can be one.
pub(crate) fn drop_aside<T: Send + 'static>(large: T) {
    // If no thread can be made, the closure is dropped here.
    drop(std::thread::Builder::new().name("drop".into()).spawn(move || drop(large)));
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// True when `fd` is on a filesystem whose files can share blocks: btrfs, XFS.
pub(crate) fn may_clone(fd: impl AsFd) -> Result<bool> {
    Ok(matches!(magic(fd)?, BTRFS_MAGIC | XFS_MAGIC))
}

pub(crate) fn is_btrfs(fd: impl AsFd) -> Result<bool> {
    Ok(magic(fd)? == BTRFS_MAGIC)
}

/// True when `fd`, which is on the filesystem of `dir`, is on one whose changes of metadata all go through one journal in their
/// order: XFS, and ext4 with a journal. There a flush of an object also makes durable what was changed before that object, and
/// what was changed together with it (a new name and what it names, both directories of a rename are one transaction).
pub(crate) fn has_one_journal(fd: impl AsFd, dir: &Path) -> Result<bool> {
    Ok(match magic(fd)? {
        XFS_MAGIC => true,
        EXT4_MAGIC => below(dir).has_journal(),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_nul_or_too_long_never_reach_the_kernel() {
        let dir = std::fs::File::open("/").unwrap();
        assert_eq!(handle_by_name(&dir, b"a\0b").unwrap_err(), Errno::INVAL);
        assert_eq!(handle_by_name(&dir, &[b'a'; 256]).unwrap_err(), Errno::NAMETOOLONG);
        assert_eq!(handle_by_name(&dir, &[b'a'; 255]).unwrap_err(), Errno::NOENT);
    }
}
