//! System calls that no safe wrapper covers, and the few conventions around those that one does.
//!
//! Everything `unsafe` of the operations half of this crate is here. Functions give [`Errno`] and take descriptors
//! that may be opened with `O_PATH`, unless they say otherwise.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::limits::HANDLE_BYTES_MAX;
use crate::record::KernelHandle;

type Result<T> = std::result::Result<T, Errno>;

/// `f_type` of btrfs.
const BTRFS_MAGIC: u32 = 0x9123_683e;

/// `f_type` of XFS.
const XFS_MAGIC: u32 = 0x5846_5342;

/// What every look at an object asks for.
const LOOK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

/// Layout of `struct file_handle` with room for the largest handle that is taken.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; HANDLE_BYTES_MAX],
}

fn check(ret: libc::c_long) -> Result<libc::c_long> {
    if ret < 0 {
        // The C library has just set errno for this thread.
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
    let kh = KernelHandle { kind: raw.handle_type, bytes: Bytes::copy_from_slice(&raw.f_handle[..len]) };
    Ok((kh, mount as u64))
}

/// The kernel's handle of an open object, and the id of its mount.
pub(crate) fn handle_of(fd: impl AsFd) -> Result<(KernelHandle, u64)> {
    handle_at(fd.as_fd(), c"", libc::AT_EMPTY_PATH)
}

/// The kernel's handle of what `name` names in `dir` (a symbolic link itself, not its target), and its mount.
pub(crate) fn handle_by_name(dir: impl AsFd, name: &[u8]) -> Result<(KernelHandle, u64)> {
    with_c_str(name, |name| handle_at(dir.as_fd(), name, 0))
}

/// Opens (`O_PATH`) the object of a kernel handle on the filesystem of `mount` (not `O_PATH`). Needs
/// `CAP_DAC_READ_SEARCH`.
pub(crate) fn open_handle(mount: impl AsFd, kh: &KernelHandle) -> Result<OwnedFd> {
    let mut raw = RawHandle {
        handle_bytes: kh.bytes.len() as u32,
        handle_type: kh.kind,
        f_handle: [0; HANDLE_BYTES_MAX],
    };
    raw.f_handle.get_mut(..kh.bytes.len()).ok_or(Errno::STALE)?.copy_from_slice(&kh.bytes);
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `raw` holds `handle_bytes` bytes and outlives the call; the result is a new descriptor of our own.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_fd().as_raw_fd(), &raw mut raw, flags)
    })?;
    // SAFETY: the call gave a descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Calls `f` with `name` as a C string on the stack. `EINVAL` when it contains NUL, `ENAMETOOLONG` beyond 255 bytes.
fn with_c_str<T>(name: &[u8], f: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
    let mut buf = [0u8; 256];
    buf.get_mut(..name.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(name);
    let end = buf.get(..=name.len()).ok_or(Errno::NAMETOOLONG)?;
    f(CStr::from_bytes_with_nul(end).map_err(|_| Errno::INVAL)?)
}

/// Sets the filesystem user of the calling thread, and with it whether it has the superuser's file capabilities.
pub(crate) fn set_fs_uid(uid: u32) -> Result<()> {
    // SAFETY: the call takes a plain number and changes this thread only.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    // The call reports no failure (an id that this user namespace does not know), so look.
    // SAFETY: as above; -1 is no valid id, so this one only reports the present one.
    let now = unsafe { libc::syscall(libc::SYS_setfsuid, -1i32) } as u32;
    if now == uid { Ok(()) } else { Err(Errno::PERM) }
}

/// Sets the filesystem group of the calling thread.
pub(crate) fn set_fs_gid(gid: u32) -> Result<()> {
    // SAFETY: the call takes a plain number and changes this thread only.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    // SAFETY: as above; -1 is no valid id, so this one only reports the present one.
    let now = unsafe { libc::syscall(libc::SYS_setfsgid, -1i32) } as u32;
    if now == gid { Ok(()) } else { Err(Errno::PERM) }
}

/// The filesystem user and group of the calling thread.
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

/// Sets the permission bits of an open object.
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

/// Lets `len` bytes (0: up to the end) of `source` at `offset` be shared by `dest` at `dest_offset`. All or nothing.
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

/// `/proc/self/fd/N`: a path to what an `O_PATH` descriptor is open on, for calls that take no such descriptor. Must
/// not be used on symbolic links with calls that follow.
pub(crate) fn proc_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Opens what `fd` is open on again with other flags, under the thread's rights.
pub(crate) fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(proc_path(fd), flags | OFlags::CLOEXEC, Mode::empty())
}

/// Opens (`O_PATH`) what `name` names in `dir`: a symbolic link itself, never across a mount point.
pub(crate) fn open_path(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), ResolveFlags::NO_XDEV)
}

/// Looks at an open object.
pub(crate) fn look(fd: impl AsFd) -> Result<Statx> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, LOOK)
}

/// Looks at what `name` names in `dir`, not following a symbolic link.
pub(crate) fn look_at(dir: impl AsFd, name: &[u8]) -> Result<Statx> {
    rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, LOOK)
}

/// True when `fd` is on a filesystem that shares blocks between files: btrfs, XFS.
pub(crate) fn may_clone(fd: impl AsFd) -> Result<bool> {
    Ok(matches!(rustix::fs::fstatfs(fd)?.f_type as u32, BTRFS_MAGIC | XFS_MAGIC))
}

/// True when `fd` is on btrfs.
pub(crate) fn is_btrfs(fd: impl AsFd) -> Result<bool> {
    Ok(rustix::fs::fstatfs(fd)?.f_type as u32 == BTRFS_MAGIC)
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
