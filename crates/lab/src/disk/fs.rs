//! The emulated disk as a FUSE mount with three files: `disk.img`, `stats`, `ctl`.

use super::ctl;
use super::device::Device;
use crate::limits::{DISK_QUEUE_MAX, DISK_TRANSFER_BYTES_MAX};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, ReplyXattr, Request, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

const ROOT: INodeNo = INodeNo(1);
const DISK: INodeNo = INodeNo(2);
const STATS: INodeNo = INodeNo(3);
const CTL: INodeNo = INodeNo(4);
const NAMES: [(INodeNo, &str); 3] = [(DISK, "disk.img"), (STATS, "stats"), (CTL, "ctl")];
/// Nothing here ever changes its attributes.
const TTL: Duration = Duration::from_secs(3600);

thread_local! {
    /// One transfer buffer for each serving thread, so that a read allocates nothing.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; DISK_TRANSFER_BYTES_MAX as usize]);
}

fn errno(e: std::io::Error) -> Errno {
    if e.raw_os_error() == Some(libc::ENOSPC) { Errno::ENOSPC } else { Errno::EIO }
}

pub struct DiskFs(pub Arc<Device>);

impl DiskFs {
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            ROOT => (FileType::Directory, 0o755, 0),
            DISK => (FileType::RegularFile, 0o600, self.0.size()),
            STATS => (FileType::RegularFile, 0o444, 0),
            CTL => (FileType::RegularFile, 0o600, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn text(&self, ino: INodeNo) -> String {
        if ino == STATS { ctl::stats(&self.0) } else { ctl::HELP.to_owned() }
    }

    fn control(&self, data: &[u8]) -> Result<(), Errno> {
        let commands = ctl::parse(&String::from_utf8_lossy(data)).map_err(|e| {
            tracing::warn!("{e}");
            Errno::EINVAL
        })?;
        ctl::apply(&self.0, &commands).map_err(|_| Errno::EIO)
    }
}

impl Filesystem for DiskFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without ASYNC_DIO each write of the loop device waits for the one before it. A kernel
        // that has neither serves all the same, more slowly.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES);
        let _ = config.set_max_write(DISK_TRANSFER_BYTES_MAX);
        let _ = config.set_max_background(DISK_QUEUE_MAX);
        let _ = config.set_congestion_threshold(DISK_QUEUE_MAX);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = NAMES.iter().find(|(_, n)| parent == ROOT && name == *n);
        match found.and_then(|(ino, _)| self.attr(*ino)) {
            Some(a) => reply.entry(&TTL, &a, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(a) => reply.attr(&TTL, &a),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Nothing changes; `echo x >ctl` wants its truncation to succeed.
        match self.attr(ino) {
            Some(a) => reply.attr(&TTL, &a),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // DIRECT_IO: no page cache between the loop device and the disk, so no dirty pages of
        // ours that the kernel would wait for.
        let mut flags = FopenFlags::FOPEN_DIRECT_IO;
        if ino == DISK {
            flags |= FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH;
        }
        reply.opened(FileHandle(ino.0), flags);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino != DISK {
            let text = self.text(ino);
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
            let to = from.saturating_add(size as usize).min(text.len());
            return reply.data(&text.as_bytes()[from..to]);
        }
        BUFFER.with_borrow_mut(|buf| {
            let len = (size as usize).min(buf.len());
            match self.0.read(offset, &mut buf[..len]) {
                Ok(n) => reply.data(&buf[..n]),
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let done = match ino {
            DISK => self.0.write(offset, data).map_err(errno),
            CTL => self.control(data),
            _ => Err(Errno::EACCES),
        };
        match done {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok(); // close(2), not a flush of the device
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let done = if ino == DISK { self.0.flush() } else { Ok(()) };
        match done {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (i, (ino, name)) in NAMES.iter().enumerate().skip(skip) {
            if reply.add(*ino, i as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    /// ENOSYS makes the loop device give up discard and write-zeroes, which would bypass the write
    /// path.
    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    /// ENOSYS makes the kernel not ask again.
    fn getxattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}
