//! System calls that have no safe wrapper: the only module of this crate with `unsafe`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

fn check(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// Makes a file, and writes so many bytes of it through a shared mapping; all are on the disk at the end.
pub fn fill_mapped(path: &Path, bytes: u64, with: u8) -> io::Result<()> {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    file.set_len(bytes)?;
    let len = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses a range that is free, of this length. The file is new, and nobody else makes it shorter. The range is
    // not used after it was given back.
    unsafe {
        let at = mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, &file, 0)?;
        std::ptr::write_bytes(at.cast::<u8>(), with, len);
        let done = msync(at, len, MsyncFlags::SYNC);
        munmap(at, len)?;
        done?;
    }
    file.sync_all()
}

/// Processor time of all threads of a process so far, those that have ended included, in nanoseconds.
pub fn process_cpu_ns(pid: u32) -> io::Result<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the clock's id is written to a live local.
    let found = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    if found != 0 {
        return Err(io::Error::from_raw_os_error(found));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a live local.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok((time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64)
}

/// The program that this command starts is killed when the calling thread ends, so that nothing is left of a lab that was
/// interrupted. For a thread that waits for the program.
pub fn end_with_this_thread(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let parent = rustix::process::getpid();
    let set = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have gone before the signal was set.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::ErrorKind::Interrupted.into())
        }
    };
    // SAFETY: the closure makes two system calls, allocates nothing and takes no lock, as is required between fork and exec.
    unsafe { command.pre_exec(set) };
}

/// From now on the calling thread has open files of its own, and none but the standard ones at first: a process that another thread
/// starts does not inherit what this one opens. It would close that before its program begins, and the close of a file on a
/// [`crate::fuse_mount::FuseMount`] waits for the server, which may be the very process that is being started.
///
/// # Errors
/// A kernel before 5.9.
pub fn own_files() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_UNSHARE.cast_signed();
    // SAFETY: the files stay open in the table of the other threads, which are who owns them.
    check(unsafe { libc::close_range(3, libc::c_uint::MAX, flags) }).map(drop)
}

/// Closes a file, and tells what the close says: on a filesystem over a network that is whether what was written is there. Dropping a
/// file does not tell.
/// Errors: What close(2) returns. The file is closed all the same.
pub fn close(file: File) -> io::Result<()> {
    let fd = std::os::fd::IntoRawFd::into_raw_fd(file);
    // SAFETY: the descriptor was the file's alone, and nobody uses it after this.
    check(unsafe { libc::close(fd) }).map(drop)
}

/// What a process needed, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Processor time of all its threads, user and system together.
    pub cpu: std::time::Duration,
    /// The most memory that it had resident, in bytes; what started it counts as its beginning, so never less than that
    /// had then.
    pub peak_rss_bytes: u64,
}

/// Waits for the end of a child process: its wait status, and what it needed.
pub fn wait_usage(pid: u32) -> io::Result<(std::process::ExitStatus, Usage)> {
    let mut status: libc::c_int = 0;
    loop {
        // SAFETY: rusage is plain data, for which all zeros is a valid value; both pointers are to live locals.
        let (ended, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid as libc::pid_t, &raw mut status, 0, &raw mut usage), usage)
        };
        match check(ended) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
            Ok(_) => {
                let time =
                    |t: libc::timeval| std::time::Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
                let cpu = time(usage.ru_utime) + time(usage.ru_stime);
                // The kernel counts it in KiB.
                let peak_rss_bytes = (usage.ru_maxrss as u64) << 10;
                let status = std::os::unix::process::ExitStatusExt::from_raw(status);
                return Ok((status, Usage { cpu, peak_rss_bytes }));
            }
        }
    }
}

/// Processor time of all child processes that have ended and been waited for.
pub fn ended_children_cpu() -> io::Result<std::time::Duration> {
    cpu_of(libc::RUSAGE_CHILDREN)
}

/// Processor time of this process.
pub fn own_cpu() -> io::Result<std::time::Duration> {
    cpu_of(libc::RUSAGE_SELF)
}

fn cpu_of(who: libc::c_int) -> io::Result<std::time::Duration> {
    // SAFETY: rusage is plain data, for which all zeros is a valid value; the pointer is to a live local.
    let (done, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(who, &raw mut usage), usage)
    };
    check(done)?;
    let time = |t: libc::timeval| std::time::Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// Gives the calling thread, and what it starts from now on, a mount namespace of its own.
/// Errors: EPERM without CAP_SYS_ADMIN.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: CLONE_NEWNS unshares the namespace and the thread's current directory and umask.
    // Nothing in this program relies on threads sharing these; no memory or descriptor changes.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }).map(drop)
}

/// What a signal asks of an emulated disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerSignal {
    /// SIGUSR1.
    Cut,
    /// SIGUSR2.
    On,
    /// SIGTERM, SIGINT.
    End,
}

/// SIGUSR1, SIGUSR2, SIGTERM and SIGINT, blocked in this thread and all it starts, to be taken by
/// [`Self::next`].
pub struct PowerSignals(libc::sigset_t);

impl PowerSignals {
    pub fn block() -> io::Result<Self> {
        // SAFETY: sigset_t is plain data, for which all zeros is a valid value; sigemptyset then
        // makes it the empty set. All pointers are to live locals.
        let (set, ret) = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGTERM, libc::SIGINT] {
                libc::sigaddset(&mut set, signal);
            }
            (set, libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()))
        };
        if ret == 0 { Ok(PowerSignals(set)) } else { Err(io::Error::from_raw_os_error(ret)) }
    }

    pub fn next(&self) -> io::Result<PowerSignal> {
        let mut signal = 0;
        // SAFETY: both pointers are to live values; the set was made by `block`.
        let ret = unsafe { libc::sigwait(&self.0, &mut signal) };
        match (ret, signal) {
            (0, libc::SIGUSR1) => Ok(PowerSignal::Cut),
            (0, libc::SIGUSR2) => Ok(PowerSignal::On),
            (0, _) => Ok(PowerSignal::End),
            (e, _) => Err(io::Error::from_raw_os_error(e)),
        }
    }
}

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// The number of a loop device that was free a moment ago.
pub fn loop_free(control: &File) -> io::Result<u32> {
    // SAFETY: this ioctl takes no argument and returns a number.
    let n = check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })?;
    u32::try_from(n).map_err(io::Error::other)
}

/// Puts a loop device on `backing`, with direct I/O, to be cleared at its last close.
/// Errors: EBUSY when another process took the device first; EINVAL when direct I/O is not possible.
pub fn loop_configure(device: &File, backing: RawFd) -> io::Result<()> {
    let config = LoopConfig {
        fd: u32::try_from(backing).map_err(io::Error::other)?,
        block_size: 0,
        info: LoopInfo64 {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the argument points to a live, fully initialised struct of the kernel's layout,
    // which the kernel only reads.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) }).map(drop)
}

/// Takes the backing file off a loop device, now or at its last close.
pub fn loop_clear(device: &File) -> io::Result<()> {
    // SAFETY: this ioctl takes no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) }).map(drop)
}

/// Waits until what the machine has written before (a build, a download) is on its own disks: while that is under way,
/// what is timed on a small machine takes several times as long.
pub(crate) fn settle() {
    rustix::fs::sync();
}
