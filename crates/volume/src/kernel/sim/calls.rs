//! The system calls of the simulated kernel, with Linux's errors and side effects.

use std::ffi::CString;
use std::rc::Rc;

use rustix::fs::{FileType, OFlags, Timestamps, XattrFlags};
use rustix::io::Errno;

use super::files::BLOCK;
use super::meta::{Entry, Meta, Serial};
use super::{Class, Flavour, Kernel, Listed, MOUNT, Open, ROOT, Result, Seen, What};
use crate::acl::Acl;
use crate::record::KernelHandle;
use crate::types::Kind;

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;

const UTIME_NOW: i64 = 0x3fff_ffff;
const UTIME_OMIT: i64 = 0x3fff_fffe;

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// A new object has its directory's.
pub(super) const LABEL: &[u8] = b"security.selinux";

/// A write clears it.
pub(super) const CAPABILITIES: &[u8] = b"security.capability";

const MAGIC: [(Flavour, u32); 3] =
    [(Flavour::Ext4, 0xef53), (Flavour::Xfs, 0x5846_5342), (Flavour::Btrfs, 0x9123_683e)];

/// Kinds of handles: the kernel's generic one, and btrfs's.
const HANDLE_INO32: i32 = 1;
const HANDLE_BTRFS: i32 = 0x4d;

pub(super) fn numbers(kh: &KernelHandle) -> Result<(u64, u32)> {
    let number = |at: usize| {
        let bytes = kh.bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or(Errno::STALE)
    };
    if kh.kind == HANDLE_BTRFS {
        let bytes = kh.bytes.get(..8).and_then(|b| b.try_into().ok());
        return Ok((bytes.map(u64::from_ne_bytes).ok_or(Errno::STALE)?, number(16)?));
    }
    Ok((u64::from(number(0)?), number(4)?))
}

impl Kernel {
    fn fd(&self, n: u32) -> Result<&Open> {
        self.fds.get(n as usize).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    fn at(&self, n: u32) -> Result<Serial> {
        Ok(self.fd(n)?.serial)
    }

    fn directory(&self, n: u32) -> Result<Serial> {
        let serial = self.at(n)?;
        if self.meta(serial).kind == Kind::Dir { Ok(serial) } else { Err(Errno::NOTDIR) }
    }

    fn opened(&mut self, serial: Serial, read: bool, write: bool) -> u32 {
        self.opens[serial as usize] += 1;
        let file_errors = self.file_errors.get(&serial).map_or(0, |errors| errors.sample());
        let errors = self.errors.sample();
        let open = Some(Open { serial, read, write, position: 0, file_errors, errors });
        match self.fds_free.pop() {
            Some(n) => {
                self.fds[n as usize] = open;
                n
            }
            None => {
                self.fds.push(open);
                self.fds.len() as u32 - 1
            }
        }
    }

    pub(super) fn close(&mut self, n: u32) {
        if let Some(open) = self.fds.get_mut(n as usize).and_then(Option::take) {
            self.fds_free.push(n);
            self.opens[open.serial as usize] -= 1;
            self.reap(open.serial);
        }
    }

    fn may(&self, meta: &Meta, want: u32) -> bool {
        if self.user == 0 {
            let any = meta.mode & 0o111 != 0 || meta.kind == Kind::Dir;
            return want & EXECUTE == 0 || any;
        }
        let bits = if meta.uid == self.user {
            meta.mode >> 6
        } else if meta.gid == self.group || self.groups.contains(&meta.gid) {
            meta.mode >> 3
        } else {
            meta.mode
        };
        bits & want == want
    }

    fn check(&self, serial: Serial, want: u32) -> Result<()> {
        if self.may(self.meta(serial), want) { Ok(()) } else { Err(Errno::ACCESS) }
    }

    fn own(&self, serial: Serial) -> Result<()> {
        if self.user == 0 || self.meta(serial).uid == self.user { Ok(()) } else { Err(Errno::PERM) }
    }

    fn find(&self, dir: Serial, name: &[u8]) -> Result<Serial> {
        let meta = self.meta(dir);
        match name {
            b"." | b"" => Ok(dir),
            b".." => Ok(meta.parent),
            _ if name.len() > 255 => Err(Errno::NAMETOOLONG),
            _ => match meta.entries.get(name) {
                None if self.folds_case => {
                    let mut entries = meta.entries.iter();
                    entries.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, e)| e.serial)
                }
                found => found.map(|e| e.serial),
            }
            .ok_or(Errno::NOENT),
        }
    }

    fn writable_dir(&self, n: u32) -> Result<Serial> {
        let dir = self.directory(n)?;
        self.check(dir, WRITE | EXECUTE)?;
        Ok(dir)
    }

    pub(crate) fn new_inode(&mut self, kind: Kind, mode: u32) -> Serial {
        let (ino, generation) = match self.flavour {
            Flavour::Btrfs => {
                self.next_ino += 1;
                (self.next_ino - 1, self.transid)
            }
            _ => {
                let ino = (11..).find(|n| !self.by_ino.contains_key(n)).unwrap_or(11);
                (ino, self.rng.next() as u32)
            }
        };
        let serial = self.live.len() as Serial;
        let now = self.tick();
        // Birth times have the clock's full resolution; the others do not.
        let meta = Meta {
            kind,
            ino,
            generation,
            btime: now,
            mode,
            uid: self.user,
            gid: self.group,
            nlink: 1,
            atime: now,
            mtime: now,
            ctime: now,
            rdev: (0, 0),
            size: 0,
            hard: 0,
            map: Rc::default(),
            entries: Rc::default(),
            parent: 0,
            project: 0,
            target: Rc::from([]),
            xattrs: Rc::default(),
        };
        self.by_ino.insert(ino, serial);
        self.live.push(Some(Rc::new(meta)));
        self.opens.push(0);
        self.blocks_used += 1;
        self.touched.push(serial);
        serial
    }

    fn enter_name(&mut self, dir: Serial, name: &[u8], serial: Serial) {
        let now = self.tick();
        let meta = self.edit(dir);
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for b in name {
            hash = (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
        // Positions do not depend on other entries, except for two names with one hash.
        let mut position = (hash >> 24) + 2;
        while meta.entries.values().any(|e| e.position == position) {
            position += 1;
        }
        Rc::make_mut(&mut meta.entries).insert(name.into(), Entry { serial, position });
        (meta.mtime, meta.ctime) = (now, now);
    }

    fn remove_name(&mut self, dir: Serial, name: &[u8]) {
        let now = self.tick();
        let meta = self.edit(dir);
        Rc::make_mut(&mut meta.entries).remove(name);
        (meta.mtime, meta.ctime) = (now, now);
    }

    /// Makes an object in a directory; it inherits what the directory passes on.
    pub(super) fn create(&mut self, dir: Serial, name: &[u8], kind: Kind, mode: u32) -> Result<Serial> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        let parent = self.meta(dir).clone();
        if parent.nlink == 0 {
            return Err(Errno::NOENT);
        }
        if parent.entries.contains_key(name) || matches!(name, b"." | b"..") {
            return Err(Errno::EXIST);
        }
        self.check(dir, WRITE | EXECUTE)?;
        self.has_room(1)?;
        let default = parent.xattrs.get(DEFAULT_ACL).filter(|_| kind != Kind::Symlink).cloned();
        let mode = if default.is_some() || kind == Kind::Symlink { mode } else { mode & !self.umask };
        let serial = self.new_inode(kind, mode & 0o7777);
        let setgid = parent.mode & 0o2000 != 0;
        let meta = self.edit(serial);
        (meta.parent, meta.project) = (dir, parent.project);
        if let Some(label) = parent.xattrs.get(LABEL) {
            Rc::make_mut(&mut meta.xattrs).insert(LABEL.to_vec(), label.clone());
        }
        if setgid {
            meta.gid = parent.gid;
            meta.mode |= if kind == Kind::Dir { 0o2000 } else { 0 };
        }
        if let Some(default) = default {
            if kind == Kind::Dir {
                Rc::make_mut(&mut meta.xattrs).insert(DEFAULT_ACL.to_vec(), default.clone());
            }
            let mut acl = Acl::decode(&default).map_err(|_| Errno::IO)?;
            acl.owner &= (mode >> 6 & 7) as u8;
            acl.other &= (mode & 7) as u8;
            let group = (mode >> 3 & 7) as u8;
            match &mut acl.mask {
                Some(mask) => *mask &= group,
                None => acl.group &= group,
            }
            meta.mode = meta.mode & !0o777 | acl.mode();
            if !acl.is_mode() {
                Rc::make_mut(&mut meta.xattrs).insert(ACCESS_ACL.to_vec(), acl.encode().into());
            }
        }
        if kind == Kind::Dir {
            meta.nlink = 2;
            self.edit(dir).nlink += 1;
        }
        self.enter_name(dir, name, serial);
        Ok(serial)
    }

    pub fn open_root(&mut self, flags: OFlags) -> Result<u32> {
        self.enter("open", Class::Look)?;
        let _ = flags;
        Ok(self.opened(ROOT, true, false))
    }

    pub fn open_at(&mut self, dir: u32, name: &[u8], flags: OFlags, mode: u32) -> Result<u32> {
        let creates = flags.contains(OFlags::CREATE);
        self.enter(
            if creates { "openat that creates" } else { "openat" },
            if creates { Class::Change } else { Class::Look },
        )?;
        let dir = self.directory(dir)?;
        self.check(dir, EXECUTE)?;
        let found = match self.find(dir, name) {
            Ok(_) if creates && flags.contains(OFlags::EXCL) => return Err(Errno::EXIST),
            Err(Errno::NOENT) if creates => {
                let serial = self.create(dir, name, Kind::File, mode)?;
                self.changed();
                return Ok(self.opened(serial, true, true));
            }
            found => found?,
        };
        if flags.contains(OFlags::PATH) {
            if flags.contains(OFlags::DIRECTORY) && self.meta(found).kind != Kind::Dir {
                return Err(Errno::NOTDIR);
            }
            return Ok(self.opened(found, false, false));
        }
        let n = self.open_serial(found, flags)?;
        if flags.contains(OFlags::TRUNC) && self.meta(found).size > 0 {
            self.set_size(found, 0)?;
        }
        Ok(n)
    }

    fn open_serial(&mut self, serial: Serial, flags: OFlags) -> Result<u32> {
        let (read, write) = match flags & OFlags::RWMODE {
            m if m == OFlags::WRONLY => (false, true),
            m if m == OFlags::RDWR => (true, true),
            _ => (true, false),
        };
        let meta = self.meta(serial).clone();
        match meta.kind {
            Kind::Symlink => return Err(Errno::LOOP),
            Kind::Dir if write => return Err(Errno::ISDIR),
            kind if kind != Kind::Dir && flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            _ => {}
        }
        let want = if read { READ } else { 0 } | if write { WRITE } else { 0 };
        if !self.may(&meta, want) {
            return Err(Errno::ACCESS);
        }
        Ok(self.opened(serial, read, write))
    }

    pub fn reopen(&mut self, n: u32, flags: OFlags) -> Result<u32> {
        self.enter("open of /proc/self/fd", Class::Look)?;
        let serial = self.at(n)?;
        self.open_serial(serial, flags)
    }

    fn handle(&self, serial: Serial) -> KernelHandle {
        let meta = self.meta(serial);
        let mut bytes = Vec::with_capacity(20);
        match self.flavour {
            Flavour::Btrfs => {
                bytes.extend_from_slice(&meta.ino.to_ne_bytes());
                bytes.extend_from_slice(&5u64.to_ne_bytes());
                bytes.extend_from_slice(&meta.generation.to_ne_bytes());
                KernelHandle { kind: HANDLE_BTRFS, bytes: bytes.into() }
            }
            _ => {
                bytes.extend_from_slice(&(meta.ino as u32).to_ne_bytes());
                bytes.extend_from_slice(&meta.generation.to_ne_bytes());
                KernelHandle { kind: HANDLE_INO32, bytes: bytes.into() }
            }
        }
    }

    pub fn handle_of(&mut self, n: u32) -> Result<(KernelHandle, u64)> {
        self.enter("name_to_handle_at", Class::Look)?;
        let serial = self.at(n)?;
        Ok((self.handle(serial), MOUNT))
    }

    pub fn handle_by_name(&mut self, dir: u32, name: &[u8]) -> Result<(KernelHandle, u64)> {
        self.enter("name_to_handle_at", Class::Look)?;
        let dir = self.directory(dir)?;
        self.check(dir, EXECUTE)?;
        let found = self.find(dir, name)?;
        Ok((self.handle(found), MOUNT))
    }

    pub fn open_handle(&mut self, kh: &KernelHandle) -> Result<u32> {
        self.enter("open_by_handle_at", Class::Look)?;
        let (ino, generation) = numbers(kh)?;
        let serial = self.by_ino.get(&ino).copied().ok_or(Errno::STALE)?;
        if self.meta(serial).generation != generation {
            return Err(Errno::STALE);
        }
        Ok(self.opened(serial, false, false))
    }

    pub fn set_user(&mut self, uid: u32) -> Result<()> {
        self.user = uid;
        Ok(())
    }

    pub fn set_group(&mut self, gid: u32) -> Result<()> {
        self.group = gid;
        Ok(())
    }

    pub fn set_groups(&mut self, groups: &[u32]) -> Result<()> {
        self.groups = groups.to_vec();
        Ok(())
    }

    pub fn set_umask(&mut self, mask: u32) -> u32 {
        std::mem::replace(&mut self.umask, mask)
    }

    pub fn access(&mut self, n: u32, want: u32) -> Result<bool> {
        self.enter("faccessat2", Class::Look)?;
        let serial = self.at(n)?;
        Ok(self.may(self.meta(serial), want))
    }

    pub fn chmod(&mut self, n: u32, mode: u32) -> Result<()> {
        self.enter("fchmod", Class::Change)?;
        let serial = self.at(n)?;
        self.own(serial)?;
        if self.meta(serial).kind == Kind::Symlink {
            return Err(Errno::OPNOTSUPP);
        }
        let now = self.tick();
        let meta = self.edit(serial);
        meta.mode = mode & 0o7777;
        meta.ctime = now;
        if let Some(acl) = meta.xattrs.get(ACCESS_ACL).and_then(|acl| Acl::decode(acl).ok()) {
            let acl = acl.with_mode(mode);
            Rc::make_mut(&mut meta.xattrs).insert(ACCESS_ACL.to_vec(), acl.encode().into());
        }
        self.changed();
        Ok(())
    }

    pub fn chown(&mut self, n: u32, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.enter("fchownat", Class::Change)?;
        let serial = self.at(n)?;
        let meta = self.meta(serial);
        let gives_away = uid.is_some_and(|uid| uid != meta.uid);
        let foreign_group =
            gid.is_some_and(|gid| gid != meta.gid && gid != self.group && !self.groups.contains(&gid));
        if self.user != 0 && (gives_away || meta.uid != self.user || foreign_group) {
            return Err(Errno::PERM);
        }
        let now = self.tick();
        let meta = self.edit(serial);
        meta.uid = uid.unwrap_or(meta.uid);
        meta.gid = gid.unwrap_or(meta.gid);
        meta.ctime = now;
        if meta.kind != Kind::Dir {
            meta.mode &= !0o4000;
            if meta.mode & 0o010 != 0 {
                meta.mode &= !0o2000;
            }
        }
        self.changed();
        Ok(())
    }

    pub fn set_times(&mut self, n: u32, times: &Timestamps) -> Result<()> {
        self.enter("utimensat", Class::Change)?;
        let serial = self.at(n)?;
        self.own(serial)?;
        let now = self.tick();
        let meta = self.edit(serial);
        for (to, time) in [(&mut meta.atime, times.last_access), (&mut meta.mtime, times.last_modification)] {
            match time.tv_nsec {
                UTIME_OMIT => {}
                UTIME_NOW => *to = now,
                nanos => *to = time.tv_sec * 1_000_000_000 + nanos,
            }
        }
        meta.ctime = now;
        self.changed();
        Ok(())
    }

    pub fn look(&mut self, n: u32) -> Result<Seen> {
        self.enter("statx", Class::Look)?;
        let serial = self.at(n)?;
        Ok(Seen { meta: self.meta(serial).clone() })
    }

    pub fn look_at(&mut self, dir: u32, name: &[u8]) -> Result<Seen> {
        self.enter("statx", Class::Look)?;
        let dir = self.directory(dir)?;
        self.check(dir, EXECUTE)?;
        let found = self.find(dir, name)?;
        Ok(Seen { meta: self.meta(found).clone() })
    }

    pub fn magic(&self) -> u32 {
        MAGIC.iter().find(|(f, _)| *f == self.flavour).map_or(0, |(_, magic)| *magic)
    }

    pub fn may_clone(&self) -> bool {
        self.flavour != Flavour::Ext4
    }

    pub fn is_btrfs(&self) -> bool {
        self.flavour == Flavour::Btrfs
    }

    pub fn space(&mut self, _n: u32) -> Result<(u64, u64)> {
        self.enter("fstatvfs", Class::Look)?;
        Ok(self.room())
    }

    pub fn make(&mut self, dir: u32, name: &[u8], what: What<'_>, mode: u32) -> Result<()> {
        self.enter("mkdir, mknod or symlink", Class::Change)?;
        let dir = self.writable_dir(dir)?;
        let kind = match what {
            What::Dir => Kind::Dir,
            What::Symlink(_) => Kind::Symlink,
            What::Special(FileType::RegularFile, _) => Kind::File,
            What::Special(FileType::Fifo, _) => Kind::Fifo,
            What::Special(FileType::Socket, _) => Kind::Socket,
            What::Special(_, _) if self.user != 0 => return Err(Errno::PERM),
            What::Special(FileType::CharacterDevice, _) => Kind::CharDev,
            What::Special(FileType::BlockDevice, _) => Kind::BlockDev,
            What::Special(..) => return Err(Errno::INVAL),
        };
        // mkdir(2) ignores the set-id bits.
        let mode = if kind == Kind::Dir { mode & 0o1777 } else { mode };
        let serial = self.create(dir, name, kind, mode)?;
        let meta = self.edit(serial);
        match what {
            What::Symlink(target) => {
                meta.target = target.into();
                meta.size = target.len() as u64;
                meta.hard = meta.size;
            }
            What::Special(_, rdev) => meta.rdev = rdev,
            What::Dir => {}
        }
        self.changed();
        Ok(())
    }

    pub fn path_below(&self, top: u32, dir: u32) -> Option<String> {
        let (top, mut at) = (self.directory(top).ok()?, self.directory(dir).ok()?);
        let mut parts = Vec::new();
        while at != top {
            let parent = self.peek(self.meta(at).parent).filter(|_| at != ROOT)?;
            let (name, _) = parent.entries.iter().find(|(_, entry)| entry.serial == at)?;
            parts.push(String::from_utf8_lossy(name).escape_debug().to_string());
            at = self.meta(at).parent;
        }
        parts.reverse();
        Some(parts.join("/"))
    }

    pub fn link(&mut self, n: u32, dir: u32, name: &[u8]) -> Result<()> {
        self.enter("linkat", Class::Change)?;
        let serial = self.at(n)?;
        let dir = self.writable_dir(dir)?;
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        if self.meta(dir).entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if self.meta(serial).kind == Kind::Dir {
            return Err(Errno::PERM);
        }
        if self.meta(serial).nlink == 0 || self.meta(dir).nlink == 0 {
            return Err(Errno::NOENT);
        }
        self.takes(dir, serial)?;
        let now = self.tick();
        let meta = self.edit(serial);
        meta.nlink += 1;
        meta.ctime = now;
        self.enter_name(dir, name, serial);
        self.changed();
        Ok(())
    }

    pub fn unlink(&mut self, dir: u32, name: &[u8], directory: bool) -> Result<()> {
        self.enter("unlinkat", Class::Change)?;
        let dir = self.writable_dir(dir)?;
        let serial = self.find(dir, name)?;
        let meta = self.meta(serial);
        match (meta.kind == Kind::Dir, directory) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            (true, true) if !meta.entries.is_empty() => return Err(self.not_empty()),
            _ => {}
        }
        self.drop_link(dir, name, serial);
        self.changed();
        Ok(())
    }

    fn takes(&self, dir: Serial, serial: Serial) -> Result<()> {
        let project = self.meta(dir).project;
        if project == 0 || project == self.meta(serial).project { Ok(()) } else { Err(Errno::XDEV) }
    }

    pub fn hands_down(&mut self, n: u32) -> Result<bool> {
        self.enter("ioctl", Class::Look)?;
        Ok(self.meta(self.directory(n)?).project != 0)
    }

    fn not_empty(&self) -> Errno {
        if self.flavour == Flavour::Xfs { Errno::EXIST } else { Errno::NOTEMPTY }
    }

    pub(super) fn drop_link(&mut self, dir: Serial, name: &[u8], serial: Serial) {
        let now = self.tick();
        let meta = self.edit(serial);
        meta.ctime = now;
        let is_dir = meta.kind == Kind::Dir;
        meta.nlink = if is_dir { 0 } else { meta.nlink - 1 };
        self.remove_name(dir, name);
        if is_dir {
            self.edit(dir).nlink -= 1;
        }
    }

    pub fn rename(
        &mut self,
        from_dir: u32,
        from: &[u8],
        to_dir: u32,
        to: &[u8],
        noreplace: bool,
    ) -> Result<()> {
        self.enter("renameat", Class::Change)?;
        let (from_dir, to_dir) = (self.writable_dir(from_dir)?, self.writable_dir(to_dir)?);
        self.move_name((from_dir, from), (to_dir, to), noreplace)
    }

    pub(super) fn move_name(
        &mut self,
        (from_dir, from): (Serial, &[u8]),
        (to_dir, to): (Serial, &[u8]),
        noreplace: bool,
    ) -> Result<()> {
        if to.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        let moved = self.find(from_dir, from)?;
        let victim = self.meta(to_dir).entries.get(to).map(|e| e.serial);
        if self.meta(to_dir).nlink == 0 {
            return Err(Errno::NOENT);
        }
        if victim.is_some() && noreplace {
            return Err(Errno::EXIST);
        }
        if victim == Some(moved) {
            return Ok(());
        }
        let is_dir = self.meta(moved).kind == Kind::Dir;
        if is_dir {
            let mut above = to_dir;
            loop {
                if above == moved {
                    return Err(Errno::INVAL);
                }
                if above == ROOT {
                    break;
                }
                above = self.meta(above).parent;
            }
        }
        self.takes(to_dir, moved)?;
        if let Some(victim) = victim {
            let meta = self.meta(victim);
            match (is_dir, meta.kind == Kind::Dir) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !meta.entries.is_empty() => return Err(self.not_empty()),
                _ => {}
            }
            self.drop_link(to_dir, to, victim);
        }
        self.remove_name(from_dir, from);
        self.enter_name(to_dir, to, moved);
        let now = self.tick();
        let meta = self.edit(moved);
        meta.ctime = now;
        meta.parent = to_dir;
        if is_dir && from_dir != to_dir {
            self.edit(from_dir).nlink -= 1;
            self.edit(to_dir).nlink += 1;
        }
        self.changed();
        Ok(())
    }

    pub fn read_link(&mut self, n: u32) -> Result<Vec<u8>> {
        self.enter("readlinkat", Class::Look)?;
        let meta = self.meta(self.at(n)?);
        if meta.kind == Kind::Symlink { Ok(meta.target.to_vec()) } else { Err(Errno::INVAL) }
    }

    pub fn write(&mut self, n: u32, data: &[u8], offset: u64) -> Result<usize> {
        self.enter("pwrite", Class::Change)?;
        let open = self.fd(n)?;
        if !open.write {
            return Err(Errno::BADF);
        }
        let serial = open.serial;
        if data.is_empty() {
            return Ok(0);
        }
        // Now and then fewer bytes than were asked for.
        let len =
            if self.rng.one_in(40) { 1 + self.rng.below(data.len() as u64) as usize } else { data.len() };
        self.put(serial, &data[..len], offset)
    }

    pub fn read(&mut self, n: u32, into: &mut Vec<u8>, offset: u64, room: usize) -> Result<usize> {
        self.enter("pread", Class::Look)?;
        let open = self.fd(n)?;
        if !open.read {
            return Err(Errno::BADF);
        }
        let meta = self.meta(open.serial).clone();
        let bytes = self.contents(&meta);
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min(start.saturating_add(room));
        into.extend_from_slice(&bytes[start..end]);
        Ok(end - start)
    }

    fn writable(&self, n: u32) -> Result<Serial> {
        let open = self.fd(n)?;
        if open.write { Ok(open.serial) } else { Err(Errno::BADF) }
    }

    pub fn truncate(&mut self, n: u32, size: u64) -> Result<()> {
        self.enter("ftruncate", Class::Change)?;
        let serial = self.writable(n)?;
        self.set_size(serial, size)
    }

    pub fn punch(&mut self, n: u32, offset: u64, len: u64) -> Result<()> {
        self.enter("fallocate that punches", Class::Change)?;
        let serial = self.writable(n)?;
        self.make_hole(serial, offset, len);
        Ok(())
    }

    pub fn allocate(&mut self, n: u32, offset: u64, len: u64) -> Result<()> {
        self.enter("fallocate", Class::Change)?;
        let serial = self.writable(n)?;
        self.reserve(serial, offset, len)
    }

    pub fn set_position(&mut self, n: u32, at: u64) -> Result<u64> {
        self.enter("lseek", Class::Look)?;
        match self.fds.get_mut(n as usize).and_then(Option::as_mut) {
            Some(open) => {
                open.position = at;
                Ok(at)
            }
            None => Err(Errno::BADF),
        }
    }

    pub fn seek(&mut self, n: u32, at: u64, data: bool) -> Result<u64> {
        self.enter("lseek", Class::Look)?;
        let meta = self.meta(self.at(n)?);
        if at >= meta.size {
            return Err(Errno::NXIO);
        }
        for block in at as usize / BLOCK..Meta::blocks_of(meta.size) {
            if (meta.map.get(block).is_some_and(|e| *e != 0)) == data {
                return Ok(at.max((block * BLOCK) as u64));
            }
        }
        if data { Err(Errno::NXIO) } else { Ok(meta.size) }
    }

    pub fn copy(&mut self, from: u32, offset: u64, to: u32, at: u64, len: usize) -> Result<usize> {
        self.enter("copy_file_range", Class::Change)?;
        let (source, dest) = (self.fd(from)?.serial, self.writable(to)?);
        let bytes = self.contents(&self.meta(source).clone());
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min(start.saturating_add(len));
        if start == end {
            return Ok(0);
        }
        let bytes = bytes[start..end].to_vec();
        self.put(dest, &bytes, at)
    }

    pub fn clone_range(&mut self, from: u32, offset: u64, len: u64, to: u32, at: u64) -> Result<()> {
        self.enter("FICLONERANGE", Class::Change)?;
        if !self.may_clone() {
            return Err(Errno::OPNOTSUPP);
        }
        let (source, dest) = (self.fd(from)?.serial, self.writable(to)?);
        let size = self.meta(source).size;
        let end = if len == 0 { size } else { offset + len };
        let aligned = |n: u64| n.is_multiple_of(BLOCK as u64);
        if source == dest || !aligned(offset) || !aligned(at) || end > size || (!aligned(end) && end != size)
        {
            return Err(Errno::INVAL);
        }
        if !aligned(end) && at + (end - offset) < self.meta(dest).size {
            return Err(Errno::INVAL);
        }
        self.share(source, offset, end - offset, dest, at)
    }

    pub fn fsync(&mut self, n: u32) -> Result<()> {
        let serial = self.at(n)?;
        match self.enter("fsync", Class::Flush) {
            Ok(()) => {}
            Err(e) => {
                if !self.down {
                    self.lose_data(serial);
                    let _ = self.tell_file(n);
                }
                return Err(e);
            }
        }
        if self.journal_lost {
            return self.tell_file(n);
        }
        self.flush_data(serial, false);
        if self.flavour == Flavour::Btrfs {
            // The model has no log tree, which would bring a file ahead of other changes. With a log the volume never flushes single
            // files of clients, and the state directory's files do not depend on others.
            self.btrfs_commit();
        }
        let entries = match self.flavour {
            Flavour::Xfs => {
                self.journal.iter().rposition(|c| c.iter().any(|(s, _)| *s == serial)).map_or(0, |n| n + 1)
            }
            _ => self.journal.len(),
        };
        self.advance_base(entries);
        self.tell_file(n)
    }

    pub fn sync_all(&mut self, n: u32) -> Result<()> {
        match self.enter("syncfs", Class::Flush) {
            Ok(()) => {}
            Err(e) => {
                if !self.down {
                    for serial in 1..self.live.len() {
                        self.lose_data(serial as Serial);
                    }
                    let _ = self.tell_filesystem(n);
                }
                return Err(e);
            }
        }
        if !self.journal_lost {
            self.flush_everything();
        }
        self.tell_filesystem(n)
    }

    pub fn get_xattr(&mut self, n: u32, name: &[u8], value: &mut [u8]) -> Result<usize> {
        self.enter("getxattr", Class::Look)?;
        let serial = self.at(n)?;
        let meta = self.meta(serial);
        if name.starts_with(b"user.") {
            self.check(serial, READ)?;
        }
        let found = meta.xattrs.get(name).ok_or(Errno::NODATA)?;
        if value.is_empty() {
            return Ok(found.len());
        }
        value.get_mut(..found.len()).ok_or(Errno::RANGE)?.copy_from_slice(found);
        Ok(found.len())
    }

    pub fn set_xattr(&mut self, n: u32, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.enter("setxattr", Class::Change)?;
        let serial = self.at(n)?;
        let acl = name == ACCESS_ACL || name == DEFAULT_ACL;
        if acl {
            self.own(serial)?;
        } else if name.starts_with(b"user.") {
            if !matches!(self.meta(serial).kind, Kind::File | Kind::Dir) {
                return Err(Errno::PERM);
            }
            self.check(serial, WRITE)?;
        }
        let there = self.meta(serial).xattrs.contains_key(name);
        if there && flags.contains(XattrFlags::CREATE) {
            return Err(Errno::EXIST);
        }
        if !there && flags.contains(XattrFlags::REPLACE) {
            return Err(Errno::NODATA);
        }
        let now = self.tick();
        let meta = self.edit(serial);
        meta.ctime = now;
        if name == ACCESS_ACL {
            let Ok(acl) = Acl::decode(value) else {
                self.touched.clear();
                return Err(Errno::INVAL);
            };
            meta.mode = meta.mode & !0o777 | acl.mode();
            let xattrs = Rc::make_mut(&mut meta.xattrs);
            if acl.is_mode() {
                xattrs.remove(name);
            } else {
                xattrs.insert(name.to_vec(), acl.encode().into());
            }
        } else {
            Rc::make_mut(&mut meta.xattrs).insert(name.to_vec(), value.into());
        }
        self.changed();
        Ok(())
    }

    pub fn remove_xattr(&mut self, n: u32, name: &[u8]) -> Result<()> {
        self.enter("removexattr", Class::Change)?;
        let serial = self.at(n)?;
        if name.starts_with(b"user.") {
            self.check(serial, WRITE)?;
        } else if !name.starts_with(b"trusted.") {
            // Those need a capability, which the server's threads have whoever they act as.
            self.own(serial)?;
        }
        if !self.meta(serial).xattrs.contains_key(name) {
            return Err(Errno::NODATA);
        }
        let now = self.tick();
        let meta = self.edit(serial);
        Rc::make_mut(&mut meta.xattrs).remove(name);
        meta.ctime = now;
        self.changed();
        Ok(())
    }

    pub fn list_xattrs(&mut self, n: u32, list: &mut [u8]) -> Result<usize> {
        self.enter("listxattr", Class::Look)?;
        let meta = self.meta(self.at(n)?);
        let mut names = Vec::new();
        for name in meta.xattrs.keys() {
            names.extend_from_slice(name);
            names.push(0);
        }
        list.get_mut(..names.len()).ok_or(Errno::RANGE)?.copy_from_slice(&names);
        Ok(names.len())
    }

    pub fn list(&mut self, n: u32) -> Result<Vec<Listed>> {
        self.enter("getdents", Class::Look)?;
        let open = self.fd(n)?;
        let meta = self.meta(open.serial);
        if meta.kind != Kind::Dir {
            return Err(Errno::NOTDIR);
        }
        if meta.nlink == 0 {
            return Err(Errno::NOENT);
        }
        let mut found: Vec<_> = meta.entries.iter().filter(|(_, e)| e.position > open.position).collect();
        found.sort_by_key(|(_, e)| e.position);
        let mut listed = Vec::with_capacity(found.len() + 1);
        let mut list = |name: &[u8], serial: Serial, position: u64| {
            let of = self.meta(serial);
            if let Ok(name) = CString::new(name) {
                listed.push(Listed { name, ino: of.ino, kind: of.kind, position });
            }
        };
        if open.position == 0 {
            list(b".", open.serial, 1);
        }
        for (name, entry) in found {
            list(name, entry.serial, entry.position);
        }
        Ok(listed)
    }
}
