//! Each of the kernel's requests, and who does it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle as Fh, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use landfast_nfs::v4::SpecData;
use landfast_nfs::v4::args::CreateType;

use super::convert::{TTL, attr, errno, major_minor, name, set_time};
use super::reply::{attributes, bytes, data, empty, entry, fopen, named};
use super::{Mount, dirs, files, local, locks, look, names, ranges, read, write, xattrs};
use crate::core::attrs::Set;
use crate::core::bugs::{Bug, bug};
use crate::errno::Errno;
use crate::limits;

impl Filesystem for Mount {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        super::agreed::ask(config, &self.shared.options);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = named!(name, reply);
        let known = names::from_memory(&self.shared, parent.0, &name);
        if let Some(found) = &known
            && found.as_ref().is_none_or(|(ino, _)| !self.shared.is_outdated(&self.shared.tree(), *ino))
        {
            return entry(reply, Ok(known.flatten()));
        }
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        let work = async move {
            let found = match known {
                Some(found) => found,
                None => names::look_up(&shared, &who, parent.0, &name).await?,
            };
            if let Some((ino, _)) = &found {
                look::renew(&shared, *ino).await;
            }
            Ok(found)
        };
        self.run(req, work, |done| entry(reply, done));
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.shared.tree().forget(ino.0, nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _: Option<Fh>, reply: ReplyAttr) {
        if let Some(attrs) = self.shared.view(ino.0) {
            return reply.attr(&TTL, &attr(ino.0, &attrs));
        }
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        self.run(req, async move { look::attrs(&shared, &who, ino.0).await }, move |done| {
            attributes(reply, ino.0, done);
        });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<Fh>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
        let set = Set { mode: mode.map(|m| m & 0o7777), uid, gid, size, atime, mtime };
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        if let Some(attrs) = files::set_held(&shared, &who, ino.0, &set) {
            return reply.attr(&TTL, &attr(ino.0, &attrs));
        }
        if let Some(attrs) = local::set(&shared, &who, ino.0, &set) {
            return reply.attr(&TTL, &attr(ino.0, &attrs));
        }
        let work = async move {
            match set.is_empty() {
                // The kernel asks for nothing that the server keeps (ctime alone).
                true => look::attrs(&shared, &who, ino.0).await,
                false => files::set_attrs(&shared, &who, ino.0, &set).await,
            }
        };
        self.run(req, work, move |done| attributes(reply, ino.0, done));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        if let Some(text) = local::text(&self.shared, ino.0) {
            return bytes(reply, Ok(text));
        }
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        let work = async move {
            let handle = shared.server_handle(ino.0)?;
            let text = shared.remote.read_link(&who, &handle).await?;
            match text.len() <= limits::LINK_BYTES_MAX {
                true => Ok(text),
                false => Err(Errno(libc::ENAMETOOLONG)),
            }
        };
        self.run(req, work, |done| bytes(reply, done));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let name = named!(name, reply);
        let (major, minor) = major_minor(rdev);
        let data = SpecData { major, minor };
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG => None,
            libc::S_IFIFO => Some(CreateType::Fifo),
            libc::S_IFSOCK => Some(CreateType::Sock),
            libc::S_IFCHR => Some(CreateType::Chr(data)),
            libc::S_IFBLK => Some(CreateType::Blk(data)),
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        let work = async move {
            let mode = mode & 0o7777;
            let made = match kind {
                Some(kind) => names::make(&shared, &who, parent.0, &name, kind, Some(mode)).await,
                None => files::make(&shared, &who, parent.0, &name, mode).await,
            };
            made.map(Some)
        };
        self.run(req, work, |done| entry(reply, done));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let name = named!(name, reply);
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        if let Some(made) = local::make(&shared, &who, parent.0, &name, local::New::Dir(mode & 0o7777)) {
            return entry(reply, made.map(Some));
        }
        let work = async move {
            let mode = Some(mode & 0o7777);
            names::make(&shared, &who, parent.0, &name, CreateType::Dir, mode).await.map(Some)
        };
        self.run(req, work, |done| entry(reply, done));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link: &OsStr, target: &Path, reply: ReplyEntry) {
        let name = named!(link, reply);
        let text = Bytes::copy_from_slice(target.as_os_str().as_bytes());
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        if let Some(made) = local::make(&shared, &who, parent.0, &name, local::New::Link(text.clone())) {
            return entry(reply, made.map(Some));
        }
        let work = async move {
            names::make(&shared, &who, parent.0, &name, CreateType::Lnk(text), None).await.map(Some)
        };
        self.run(req, work, |done| entry(reply, done));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = named!(name, reply);
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        if let Some(done) = local::remove(&shared, &who, parent.0, &name, false) {
            return empty(reply, done);
        }
        self.run(req, async move { names::unlink(&shared, &who, parent.0, &name).await }, |done| {
            empty(reply, done)
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = named!(name, reply);
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        if let Some(done) = local::remove(&shared, &who, parent.0, &name, true) {
            return empty(reply, done);
        }
        self.run(req, async move { names::rmdir(&shared, &who, parent.0, &name).await }, |done| {
            empty(reply, done)
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        old: &OsStr,
        newparent: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        // NFS has neither RENAME_NOREPLACE nor RENAME_EXCHANGE.
        if !flags.is_empty() {
            return reply.error(fuser::Errno::EINVAL);
        }
        let (old, new) = (named!(old, reply), named!(new, reply));
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        if parent == newparent
            && let Some(done) = local::rename(&shared, &who, parent.0, &old, &new)
        {
            return empty(reply, done);
        }
        let work = async move { names::rename(&shared, &who, (parent.0, &old), (newparent.0, &new)).await };
        self.run(req, work, |done| empty(reply, done));
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let name = named!(newname, reply);
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        let work = async move {
            let attrs = names::link(&shared, &who, ino.0, newparent.0, &name).await?;
            Ok(Some((ino.0, attrs)))
        };
        self.run(req, work, |done| entry(reply, done));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        let work = async move { files::open(&shared, &who, ino.0, flags.0).await };
        self.run(req, work, |done| match done {
            Ok(opened) => reply.opened(Fh(opened.number), fopen(opened.keep_pages)),
            Err(e) => reply.error(errno(e)),
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = named!(name, reply);
        let who = self.shared.callers.of(req);
        let mode = mode & 0o7777;
        if let Some((attrs, ino, number)) = files::hold(&self.shared, &who, parent.0, &name, mode, flags) {
            return reply.created(&TTL, &attr(ino, &attrs), Generation(0), Fh(number), FopenFlags::empty());
        }
        let shared = self.shared.clone();
        let work = async move { files::create(&shared, &who, parent.0, &name, mode, flags).await };
        self.run(req, work, |done| match done {
            Ok((attrs, ino, opened)) => {
                let flags = fopen(opened.keep_pages);
                reply.created(&TTL, &attr(ino, &attrs), Generation(0), Fh(opened.number), flags);
            }
            Err(e) => reply.error(errno(e)),
        });
    }

    fn read(
        &self,
        req: &Request,
        _: INodeNo,
        fh: Fh,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let handle = match self.shared.handle(fh.0) {
            Ok(handle) => handle,
            Err(e) => return reply.error(errno(e)),
        };
        if let Some(done) = read::from_memory(&self.shared, &handle, offset, size as usize) {
            return bytes(reply, done);
        }
        let shared = self.shared.clone();
        self.run(req, async move { read::read(&shared, &handle, offset, size as usize).await }, |done| {
            bytes(reply, done)
        });
    }

    fn write(
        &self,
        req: &Request,
        _: INodeNo,
        fh: Fh,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.shared.handle(fh.0) {
            Ok(handle) => write::request(self, req, handle, (offset, data), (write_flags, flags), reply),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn flush(&self, req: &Request, _: INodeNo, fh: Fh, owner: LockOwner, reply: ReplyEmpty) {
        let handle = match self.shared.handle(fh.0) {
            Ok(handle) => handle,
            Err(e) => return reply.error(errno(e)),
        };
        handle.set_flushed();
        if bug(Bug::CloseEarly) {
            return empty(reply, Ok(()));
        }
        let locked = locks::has_some(&handle, owner.0);
        if !locked && let Some(done) = files::is_flushed(&handle) {
            return empty(reply, done);
        }
        let shared = self.shared.clone();
        let work = async move {
            let done = files::flush(&shared, &handle).await;
            if locked {
                locks::closed(&shared, &handle, owner.0).await;
            }
            done
        };
        self.run(req, work, |done| empty(reply, done));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: Fh,
        _flags: OpenFlags,
        owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let Some(handle) = self.shared.take_handle(fh.0) else { return reply.ok() };
        let shared = self.shared.clone();
        self.spawn(async move {
            // A lock of flock(2) belongs to the open file description.
            if let Some(owner) = owner.filter(|o| locks::has_some(&handle, o.0)) {
                locks::released(&shared, &handle, owner.0).await;
            }
            files::release(&shared, &handle).await;
            reply.ok();
        });
    }

    fn fsync(&self, req: &Request, _: INodeNo, fh: Fh, _datasync: bool, reply: ReplyEmpty) {
        let handle = match self.shared.handle(fh.0) {
            Ok(handle) => handle,
            Err(e) => return reply.error(errno(e)),
        };
        let shared = self.shared.clone();
        self.run(req, async move { files::flush(&shared, &handle).await }, |done| empty(reply, done));
    }

    fn getlk(
        &self,
        req: &Request,
        _: INodeNo,
        fh: Fh,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        let handle = match self.shared.handle(fh.0) {
            Ok(handle) => handle,
            Err(e) => return reply.error(errno(e)),
        };
        let (shared, wanted) = (self.shared.clone(), locks::Wanted { owner: owner.0, start, end, kind });
        let work = async move { locks::get(&shared, &handle, wanted).await };
        self.run(req, work, move |done| match done {
            // The owner is on another machine: it has no process here.
            Ok(Some(l)) => reply.locked(l.start, l.end, l.kind, 0),
            Ok(None) => reply.locked(start, end, libc::F_UNLCK, 0),
            Err(e) => reply.error(errno(e)),
        });
    }

    fn setlk(
        &self,
        req: &Request,
        _: INodeNo,
        fh: Fh,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let handle = match self.shared.handle(fh.0) {
            Ok(handle) => handle,
            Err(e) => return reply.error(errno(e)),
        };
        let (shared, wanted) = (self.shared.clone(), locks::Wanted { owner: owner.0, start, end, kind });
        let pid = req.pid();
        let work = async move { locks::set(&shared, &handle, wanted, sleep.then_some(pid)).await };
        self.run(req, work, |done| empty(reply, done));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let number = self.shared.number();
        self.shared.tree().pin(ino.0);
        self.dirs.lock().insert(number, Arc::new(dirs::DirHandle::new(ino.0)));
        reply.opened(Fh(number), FopenFlags::empty());
    }

    fn readdir(&self, req: &Request, _: INodeNo, fh: Fh, offset: u64, mut reply: ReplyDirectory) {
        let Some(dir) = self.dirs.lock().get(&fh.0).cloned() else {
            return reply.error(fuser::Errno::EBADF);
        };
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        let work = async move { dirs::list(&shared, &who, &dir, offset).await };
        self.run(req, work, |done| match done {
            Ok(items) => {
                dirs::plain(&mut reply, &items);
                reply.ok();
            }
            Err(e) => reply.error(errno(e)),
        });
    }

    fn readdirplus(&self, req: &Request, _: INodeNo, fh: Fh, offset: u64, mut reply: ReplyDirectoryPlus) {
        let Some(dir) = self.dirs.lock().get(&fh.0).cloned() else {
            return reply.error(fuser::Errno::EBADF);
        };
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        let own = self.shared.clone();
        let work = async move { dirs::list(&shared, &who, &dir, offset).await };
        self.run(req, work, move |done| match done {
            Ok(items) => {
                dirs::plus(&own, &mut reply, &items);
                reply.ok();
            }
            Err(e) => reply.error(errno(e)),
        });
    }

    fn releasedir(&self, _: &Request, ino: INodeNo, fh: Fh, _flags: OpenFlags, reply: ReplyEmpty) {
        if self.dirs.lock().remove(&fh.0).is_some() {
            self.shared.tree().unpin(ino.0);
        }
        reply.ok();
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, _fh: Fh, _datasync: bool, reply: ReplyEmpty) {
        let shared = self.shared.clone();
        self.run(req, async move { files::sync_dir(&shared, ino.0).await }, |done| empty(reply, done));
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        let work = async move {
            let root = || shared.server_handle(crate::core::tree::ROOT);
            let handle = shared.server_handle(ino.0).or_else(|_| root())?;
            Ok(shared.remote.room(&who, &handle).await?)
        };
        self.run(req, work, |done| match done {
            Ok(s) => {
                let (total, free, available) = (s.total / BLOCK, s.free / BLOCK, s.available / BLOCK);
                let block = BLOCK as u32;
                // A server may say more than names here can have.
                let longest = s.name_max.min(limits::NAME_BYTES_MAX as u32);
                reply.statfs(total, free, available, s.files, s.files_free, block, longest, block);
            }
            Err(e) => reply.error(errno(e)),
        });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (named!(name, reply), Bytes::copy_from_slice(value));
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        self.run(req, async move { xattrs::set(&shared, &who, ino.0, &name, value, flags).await }, |done| {
            empty(reply, done)
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = named!(name, reply);
        if let Some(e) = xattrs::from_memory(&self.shared, req.uid(), &name) {
            return reply.error(errno(e));
        }
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        let told = self.shared.clone();
        self.run(req, async move { xattrs::get(&shared, &who, ino.0, &name).await }, move |done| {
            xattrs::give(&told, reply, size, done)
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        self.run(req, async move { xattrs::list(&shared, &who, ino.0).await }, move |done| {
            data(reply, size, done)
        });
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = named!(name, reply);
        let (shared, who) = (self.shared.clone(), self.shared.callers.of(req));
        self.run(req, async move { xattrs::remove(&shared, &who, ino.0, &name).await }, |done| {
            empty(reply, done)
        });
    }

    /// The kernel decides by the mode bits (`default_permissions`), and the server when something is done.
    fn access(&self, _: &Request, _: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    /// ENOSYS: the kernel takes the whole file for data.
    fn lseek(&self, req: &Request, _: INodeNo, fh: Fh, offset: i64, whence: i32, reply: ReplyLseek) {
        if !self.shared.remote.knows_ranges() {
            return reply.error(fuser::Errno::ENOSYS);
        }
        let handle = match self.shared.handle(fh.0) {
            Ok(handle) => handle,
            Err(e) => return reply.error(errno(e)),
        };
        let shared = self.shared.clone();
        self.run(
            req,
            async move { ranges::seek(&shared, &handle, offset, whence).await },
            |done| match done {
                Ok(found) => reply.offset(found as i64),
                Err(e) => reply.error(errno(e)),
            },
        );
    }

    /// ENOSYS: programs get EOPNOTSUPP.
    fn fallocate(
        &self,
        req: &Request,
        _: INodeNo,
        fh: Fh,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if !self.shared.remote.knows_ranges() {
            return reply.error(fuser::Errno::ENOSYS);
        }
        let Some(how) = ranges::space(mode) else { return reply.error(fuser::Errno::EOPNOTSUPP) };
        let handle = match self.shared.handle(fh.0) {
            Ok(handle) => handle,
            Err(e) => return reply.error(errno(e)),
        };
        let shared = self.shared.clone();
        let work = async move { ranges::allocate(&shared, &handle, how, (offset, length)).await };
        self.run(req, work, |done| empty(reply, done));
    }

    /// ENOSYS: the kernel reads and writes.
    fn copy_file_range(
        &self,
        req: &Request,
        _: INodeNo,
        from: Fh,
        from_offset: u64,
        _: INodeNo,
        to: Fh,
        to_offset: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        if !self.shared.remote.knows_ranges() {
            return reply.error(fuser::Errno::ENOSYS);
        }
        let (from, to) = match (self.shared.handle(from.0), self.shared.handle(to.0)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(e), _) | (_, Err(e)) => return reply.error(errno(e)),
        };
        let shared = self.shared.clone();
        let work = async move { ranges::copy(&shared, (&from, from_offset), (&to, to_offset), len).await };
        self.run(req, work, |done| match done {
            Ok(count) => reply.written(count as u32),
            Err(e) => reply.error(errno(e)),
        });
    }
}

/// The unit in which sizes of filesystems are told.
const BLOCK: u64 = 4096;
