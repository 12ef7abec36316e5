//! A regular file or block device, opened with O_DIRECT where possible, and locked.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf, absolute};
use std::time::Instant;

use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use super::below::{Below, Gravity, Weakness};
use super::read_back::ReadBack;
use super::report::{Report, takes_blocks};
use super::selftest::{self, SyncMethod};
use super::successor::{self, Nameless};
use super::{Device, ReadAt};
use crate::aligned::AlignedBuf;
use crate::config::Config;
use crate::error::OpenError;
use crate::examine::{self, io_error, is_unused, scan_error};
use crate::faults::{self, Bug};
use crate::limits::{
    BLOCK_BYTES, BUSY_POLL, BUSY_WAIT_MAX, DEVICE_BYTES_MAX, DEVICE_BYTES_MIN, SCRATCH_OFFSET, STREAM_BYTES,
};

/// `statfs` type of FUSE mounts (linux/magic.h).
const FUSE_MAGIC: u32 = 0x6573_5546;

/// A log file or block device. Locked until it is dropped.
#[derive(Debug)]
pub struct FileDevice {
    fd: OwnedFd,
    path: PathBuf,
    /// `path`, independent of the working directory.
    absolute: PathBuf,
    /// `path` without symbolic links, when it was opened.
    resolved: PathBuf,
    bytes: u64,
    is_file: bool,
    written: ReadBack,
    /// The block device was in sysfs when it was opened.
    listed: bool,
    direct: bool,
    method: SyncMethod,
    measured: String,
    report: Report,
    /// Set while the file has no name yet and is to replace a lost one.
    nameless: Option<Nameless>,
    /// The file below a loop device, locked as well, because another server may open the file itself.
    _below: Option<File>,
}

fn filesystem(fd: &OwnedFd) -> Option<u32> {
    rustix::fs::fstatfs(fd).ok().and_then(|fs| u32::try_from(fs.f_type).ok())
}

/// Opens the only device of a log, and makes it ready for use.
pub(super) fn open(path: &Path, config: &Config) -> Result<Box<dyn Device>, OpenError> {
    let (mut device, _) = FileDevice::open_filled(path, config.create_size)?;
    // Everything that refuses the log comes before the self-test writes to it.
    examine::check(&device, path, &config.volume_id)?;
    device.make_ready(config)?;
    Ok(Box::new(device))
}

impl FileDevice {
    /// As [`FileDevice::open`]; also writes the device once if nothing but zeroes is on it. Whether that was so.
    pub(crate) fn open_filled(path: &Path, create_size: u64) -> Result<(FileDevice, bool), OpenError> {
        let (device, is_new) = FileDevice::open(path, create_size)?;
        if is_new {
            return Ok((device, true));
        }
        let unused = is_unused(&device).map_err(|error| scan_error(path, error))?;
        if unused {
            // Left by a creation that did not finish, or a device that was erased.
            device.fill().map_err(|source| io_error(path, "preallocate", source))?;
        }
        Ok((device, unused))
    }

    /// Opens `path`, creating a file of `create_size` bytes if nothing is there or if the file is empty, and locks it.
    /// Whether it created the file's contents.
    pub fn open(path: &Path, create_size: u64) -> Result<(FileDevice, bool), OpenError> {
        let fail = |action| move |source: Errno| io_error(path, action, source.into());
        if let Ok(stat) = rustix::fs::stat(path)
            && !matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::BlockDevice)
        {
            return Err(OpenError::Kind { path: path.into() });
        }
        if matches!(rustix::fs::stat(path), Err(Errno::NOENT)) && rustix::fs::lstat(path).is_ok() {
            // To create the file that a dangling link points to could put the log anywhere.
            return Err(io_error(path, "follow the symbolic link", io::ErrorKind::NotFound.into()));
        }
        let (fd, direct) = open_fd(path)?;
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => OpenError::InUse { path: path.into(), holder: crate::holder::of(&fd) },
            other => io_error(path, "lock", other.into()),
        })?;
        let stat = rustix::fs::fstat(&fd).map_err(fail("examine"))?;
        if device_says(stat.st_rdev, "ro").is_some_and(|ro| ro.trim() == "1") {
            return Err(io_error(path, "write to", Errno::ROFS.into()));
        }
        let below = file_below(stat.st_rdev);
        if let Some(file) = &below
            && rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        {
            return Err(OpenError::InUse { path: path.into(), holder: crate::holder::of(file) });
        }
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if is_file && filesystem(&fd) == Some(FUSE_MAGIC) {
            return Err(OpenError::Fuse { path: path.into() });
        }
        let report = Report::of(path);
        if !takes_blocks(&report) {
            let bytes = report.logical().unwrap_or_default();
            return Err(OpenError::Blocks { path: path.into(), bytes });
        }
        let mut bytes = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(fail("size"))?;
        let is_new = is_file && bytes == 0;
        if is_new {
            bytes = create_size / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
            check_size(path, bytes)?;
        }
        let all = bytes;
        let bytes = bytes.min(DEVICE_BYTES_MAX) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let device = FileDevice {
            fd,
            path: path.into(),
            absolute: absolute(path).unwrap_or_else(|_| path.into()),
            resolved: std::fs::canonicalize(path).unwrap_or_else(|_| path.into()),
            bytes,
            is_file,
            written: ReadBack::default(),
            listed: device_says(stat.st_rdev, "dev").is_some(),
            direct,
            method: SyncMethod::Flush,
            measured: String::new(),
            report,
            nameless: None,
            _below: below,
        };
        if let Err(small) = check_size(path, all) {
            // It may be a log that was cut off.
            return Err(crate::superblocks::cut_off(&device, all, path).unwrap_or(small));
        }
        if is_new && let Err(source) = device.fill() {
            // Empty, so that the next attempt starts from the beginning.
            let _ = rustix::fs::ftruncate(&device.fd, 0);
            return Err(io_error(path, "preallocate", source));
        }
        Ok((device, is_new))
    }

    /// Allocates a file's blocks and writes each once, so that no later flush has to carry metadata.
    pub fn fill(&self) -> io::Result<()> {
        if self.is_file {
            // Checked beforehand, so that a failure does not fill up a filesystem that others use.
            let space = rustix::fs::fstatvfs(&self.fd)?;
            let held = rustix::fs::fstat(&self.fd)?.st_blocks as u64 * 512;
            if space.f_bavail.saturating_mul(space.f_frsize).saturating_add(held) < self.bytes {
                return Err(Errno::NOSPC.into());
            }
            // The size first: after an interruption the next start finds a file of this size, and fills it.
            rustix::fs::ftruncate(&self.fd, self.bytes)?;
            self.preallocate(0, self.bytes)?;
        }
        self.zero(0, self.bytes)?;
        rustix::fs::fsync(&self.fd)?;
        sync_parent(&self.path)
    }

    /// Where the filesystem cannot preallocate, the zeroes that the caller writes allocate the blocks.
    fn preallocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), offset, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn zero(&self, mut offset: u64, end: u64) -> io::Result<()> {
        let zeroes = AlignedBuf::zeroed(STREAM_BYTES);
        while offset < end {
            let length = (end - offset).min(STREAM_BYTES as u64);
            self.write(offset, &zeroes[..length as usize], ReadWriteFlags::empty())?;
            offset += length;
        }
        Ok(())
    }

    /// Resizes a file; what is added is allocated and written once. A block device keeps its size.
    pub fn set_size(&mut self, bytes: u64) -> io::Result<()> {
        if !self.is_file {
            return if bytes <= self.bytes { Ok(()) } else { Err(Errno::NOSPC.into()) };
        }
        if bytes > self.bytes {
            let (from, more) = (self.bytes, bytes - self.bytes);
            let space = rustix::fs::fstatvfs(&self.fd)?;
            if space.f_bavail.saturating_mul(space.f_frsize) < more {
                return Err(Errno::NOSPC.into());
            }
            self.preallocate(from, more)?;
            self.zero(from, bytes)?;
        } else {
            rustix::fs::ftruncate(&self.fd, bytes)?;
        }
        rustix::fs::fsync(&self.fd)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Makes sure that the device can be trusted, and chooses how it is flushed.
    pub(super) fn make_ready(&mut self, config: &Config) -> Result<(), OpenError> {
        self.check_below(config.accept_weak)?;
        let chosen = self.choose(config.sync_method);
        chosen.map_err(|source| io_error(&self.path, "self-test", source))
    }

    /// Refuses a filesystem or device that cannot keep what a flush promises; with `accept` only warns. Writes to the scratch
    /// blocks.
    pub fn check_below(&self, accept: bool) -> Result<(), OpenError> {
        if faults::bug(Bug::VolatileUnnoticed) {
            return Ok(());
        }
        let below = Below::of(&self.path);
        let block = AlignedBuf::zeroed(BLOCK_BYTES);
        let unflushed = below.flushes(|| self.write_with(SyncMethod::Flush, SCRATCH_OFFSET, &block));
        let unflushed = unflushed.map_err(|source| io_error(&self.path, "self-test", source))?;
        for Weakness { gravity, what } in below.weaknesses().into_iter().chain(unflushed) {
            match gravity {
                Gravity::Refuse if !accept => {
                    return Err(OpenError::Weak { path: self.path.clone(), why: what });
                }
                Gravity::Refuse | Gravity::Warn if !faults::weak_accepted() => {
                    tracing::warn!("the log {} {what}", self.path.display());
                }
                _ => tracing::info!("the log {} {what}", self.path.display()),
            }
        }
        Ok(())
    }

    /// Chooses how to flush; `None`: the faster method, measured in the scratch blocks.
    pub fn choose(&mut self, method: Option<SyncMethod>) -> io::Result<()> {
        if let Some(method) = method {
            self.method = method;
            self.measured = format!("{method} as configured");
            return Ok(());
        }
        let (method, measured) =
            selftest::run(|method, offset, bytes| self.write_with(method, offset, bytes))?;
        self.method = method;
        self.measured = measured;
        Ok(())
    }

    /// Why the file or device is lost, apart from its contents; `None`: it is not.
    fn loss(&self) -> Option<String> {
        let open = match rustix::fs::fstat(&self.fd) {
            Ok(open) => open,
            Err(error) => return Some(format!("cannot be looked at: {error}")),
        };
        if self.is_file && open.st_nlink == 0 {
            return Some("was removed".into());
        }
        let size = rustix::fs::seek(&self.fd, SeekFrom::End(0)).unwrap_or(0);
        if size < self.bytes {
            return Some(format!("was truncated: {size} bytes are left of {}", self.bytes));
        }
        if !self.is_file {
            // Its node may be replaced; the device itself must be there.
            let gone = self.listed && device_says(open.st_rdev, "dev").is_none();
            return gone.then(|| "is a device that is not there any more".into());
        }
        match rustix::fs::stat(&self.absolute) {
            Ok(there) if (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino) => None,
            Ok(_) => Some(format!("was replaced: another file stands there{}", self.current_path())),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                Some(format!("is not there any more{}", self.current_path()))
            }
            // An error such as a refused permission does not mean that it is lost.
            Err(_) => None,
        }
    }

    /// The current path of the open file, for a message.
    fn current_path(&self) -> String {
        use std::os::fd::AsRawFd;
        let now = std::fs::read_link(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        now.ok()
            .filter(|now| *now != self.absolute)
            .map_or_else(String::new, |now| format!(" (it is at {} now)", now.display()))
    }

    fn write_parts(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        if let [(offset, bytes)] = parts {
            return self.write_with(self.method, *offset, bytes);
        }
        // Several parts: one flush for all, whichever method was chosen for single writes.
        for (offset, bytes) in parts {
            self.write(*offset, bytes, ReadWriteFlags::empty())?;
        }
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }

    fn write_with(&self, method: SyncMethod, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match method {
            SyncMethod::WriteThrough => self.write(offset, bytes, ReadWriteFlags::DSYNC),
            SyncMethod::Flush => {
                self.write(offset, bytes, ReadWriteFlags::empty())?;
                Ok(rustix::fs::fdatasync(&self.fd)?)
            }
        }
    }

    fn write(&self, offset: u64, bytes: &[u8], flags: ReadWriteFlags) -> io::Result<()> {
        write_all(offset, bytes, |offset, bytes| {
            rustix::io::pwritev2(&self.fd, &[IoSlice::new(bytes)], offset, flags)
        })
    }
}

/// Writes all of `bytes`: continues after a short write, and fails if a write takes nothing. If a short write does not end
/// on a block, `O_DIRECT` refuses the next one, which is an error as well. So a part never counts as the whole.
fn write_all(
    mut offset: u64,
    mut bytes: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(offset, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = bytes.get(written..).ok_or(io::ErrorKind::InvalidData)?;
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Drop for FileDevice {
    /// To close the file is not enough: a child process between fork and exec shares the open file, and with it the lock.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.fd, FlockOperation::Unlock) {
            tracing::warn!(path = %self.path.display(), %error, "cannot unlock the log");
        }
    }
}

impl ReadAt for FileDevice {
    fn read_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match rustix::io::pread(&self.fd, &mut *buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buf = &mut buf[read..];
                    offset += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Device for FileDevice {
    fn warning(&self) -> Option<String> {
        Some(format!("the log {}: {}", self.path.display(), self.report.warning()?))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write_durable(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        self.written.begins(parts);
        let written = self.write_parts(parts);
        self.written.ended(parts, written.is_ok());
        written
    }

    fn look(&self, contents: bool) -> Result<(), String> {
        let lost = self.loss().or_else(|| contents.then(|| self.written.compare(self)).flatten());
        lost.map_or(Ok(()), |what| Err(format!("the log {} {what}", self.path.display())))
    }

    fn successor(&self) -> Result<Box<dyn Device>, String> {
        let fail = |why| format!("no new log {}: {why}", self.path.display());
        if !self.is_file {
            // The program that has written to it may do so again.
            return Err(fail("it is a device, which somebody else may be using".to_owned()));
        }
        let made = successor::make(&self.resolved, &self.fd, self.bytes, self.direct);
        let (fd, nameless) = made.map_err(fail)?;
        Ok(Box::new(FileDevice {
            fd,
            path: self.path.clone(),
            absolute: self.absolute.clone(),
            resolved: self.resolved.clone(),
            bytes: self.bytes,
            is_file: true,
            written: ReadBack::default(),
            listed: false,
            direct: self.direct,
            method: self.method,
            measured: self.measured.clone(),
            report: self.report.clone(),
            nameless: Some(nameless),
            _below: None,
        }))
    }

    fn take_place(&self) -> Result<Vec<PathBuf>, String> {
        let Some(nameless) = &self.nameless else { return Ok(Vec::new()) };
        let placed = nameless.take_name(&self.fd).and_then(|aside| match self.loss() {
            // The path may lead to another file by now.
            Some(what) => Err(what),
            None => Ok(Vec::from_iter(aside)),
        });
        placed.map_err(|why| format!("no new log {}: {why}", self.path.display()))
    }

    fn describe(&self) -> String {
        let kind = if self.is_file { "file" } else { "block device" };
        let cache = if self.direct { "O_DIRECT" } else { "through the page cache (no O_DIRECT here)" };
        let mib = self.bytes as f64 / (1 << 20) as f64;
        format!(
            "{kind} {}, {mib:.1} MiB, {cache}, {}, on {}",
            self.path.display(),
            self.measured,
            self.report
        )
    }
}

/// Opens with O_DIRECT where the filesystem supports it; returns whether it does.
fn open_fd(path: &Path) -> Result<(OwnedFd, bool), OpenError> {
    let mode = Mode::RUSR | Mode::WUSR;
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    match rustix::fs::stat(path) {
        // On a block device O_EXCL fails if it is mounted or claimed.
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice => flags |= OFlags::EXCL,
        _ => flags |= OFlags::CREATE,
    }
    let opened = match open_when_free(path, flags, mode) {
        Err(Errno::INVAL) => open_when_free(path, flags - OFlags::DIRECT, mode).map(|fd| (fd, false)),
        other => other.map(|fd| (fd, true)),
    };
    opened.map_err(|error| match error {
        Errno::BUSY => OpenError::InUse { path: path.into(), holder: crate::holder::of_device(path) },
        other => io_error(path, "open", other.into()),
    })
}

/// Waits for programs that open a device exclusively for a moment, to see what is on it.
fn open_when_free(path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let begun = Instant::now();
    loop {
        match rustix::fs::open(path, flags, mode) {
            // The kernel has no event for the end of a claim, so this polls.
            Err(Errno::BUSY) if begun.elapsed() < BUSY_WAIT_MAX => std::thread::sleep(BUSY_POLL),
            done => return done,
        }
    }
}

/// The file of a loop device (not of a partition of it); `None` for everything else, and if it cannot be opened.
fn file_below(device: rustix::fs::Dev) -> Option<File> {
    let name = device_says(device, "loop/backing_file")?;
    File::open(name.trim_end_matches('\n')).ok()
}

/// A file in sysfs about a block device; `None` for other device numbers.
fn device_says(device: rustix::fs::Dev, what: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{what}")).ok()
}

/// Makes the name of a new file durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

fn check_size(path: &Path, bytes: u64) -> Result<(), OpenError> {
    if bytes < DEVICE_BYTES_MIN {
        return Err(OpenError::TooSmall { path: path.into(), bytes, min: DEVICE_BYTES_MIN });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that takes at most `most` bytes at a time, and is interrupted before every third write.
    fn written(most: usize, fail_after: Option<usize>, bytes: &[u8]) -> (Vec<u8>, io::Result<()>) {
        let mut disk = vec![0; 64 + bytes.len()];
        let mut calls = 0;
        let done = write_all(64, bytes, |offset, part| {
            calls += 1;
            if calls % 3 == 0 {
                return Err(Errno::INTR);
            }
            if fail_after.is_some_and(|n| calls > n) {
                return Err(Errno::IO);
            }
            let count = part.len().min(most);
            disk[offset as usize..offset as usize + count].copy_from_slice(&part[..count]);
            Ok(count)
        });
        (disk[64..].to_vec(), done)
    }

    #[test]
    fn a_short_write_is_gone_on_with_and_never_taken_for_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        for most in [1, 7, 4096, 9_999, 10_000, 20_000] {
            let (disk, done) = written(most, None, &bytes);
            assert!(done.is_ok() && disk == bytes, "{most}");
        }
        assert_eq!(written(0, None, &bytes).1.unwrap_err().kind(), io::ErrorKind::WriteZero);
        let (disk, done) = written(4096, Some(2), &bytes);
        assert_eq!(done.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
        assert_ne!(disk, bytes);
    }
}
