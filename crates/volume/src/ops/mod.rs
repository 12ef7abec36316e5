//! The operations, one file per family, and what they share.
//!
//! First, an operation checks its names. Every modifying operation then takes the same steps:
//! 1. join the log's batch ([`Tx::join`]);
//! 2. get descriptors;
//! 3. act as the caller;
//! 4. take locks;
//! 5. look, change, look again;
//! 6. record the facts, release the locks;
//! 7. with `sync`, flush.
//!
//! It calls [`Tx::rests_on`] for its arguments and for what it finds, since its reply rests on them, and [`record`] for what it
//! changes.

mod acl;
mod attr;
mod caller;
mod create;
mod file;
mod lookup;
mod make;
mod orphan;
mod range;
mod readdir;
mod rename;
mod stateless;
mod unstable;
mod xattr;

use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Statx, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::error::Error;
use crate::identity::Identity;
use crate::kernel;
use crate::kernel::btime_ns;
use crate::limits::{ATIME_STAYS_SECS, FILE_SIZE_MAX, NAME_BYTES_MAX};
use crate::node::{Looked, Node, NodeState};
use crate::node_fd::NodeFd;
use crate::options::Durability;
use crate::record::{Birth, Fact, KernelHandle, ObjId, Owned};
use crate::results::Around;
use crate::state::STATE_DIR;
use crate::tx::Tx;
use crate::types::{Attrs, AttrsSet, ChangeInfo, Cred, Kind, PreOp, SetAttrs, TimeSet, Timestamp};
use crate::volume::Volume;

const UTIME_NOW: i64 = 0x3fff_ffff;
const UTIME_OMIT: i64 = 0x3fff_fffe;

const SETID_BITS: u32 = 0o6000;

const ACL_ACCESS: &str = "system.posix_acl_access";
const ACL_DEFAULT: &str = "system.posix_acl_default";

struct Before {
    change: u64,
    look: Statx,
}

/// How a new object looks different from what the creating call has made.
#[derive(Default)]
struct Dressed {
    uid: Option<u32>,
    gid: Option<u32>,
    otherwise: bool,
}

/// How a new object looks. If it only got another owner, nobody looks at it again: all but its ctime is known, and an archive's files all
/// get one.
struct NewLook {
    look: Statx,
    has_ctime: bool,
}

impl NewLook {
    fn of(
        born: Statx,
        dressed: Dressed,
        otherwise: bool,
        again: impl FnOnce() -> Result<Statx, Errno>,
    ) -> Result<NewLook, Errno> {
        let Dressed { uid, gid, otherwise: also } = dressed;
        // The kernel may take these bits away with the owner.
        let special = u32::from(born.stx_mode) & SETID_BITS != 0;
        let chowned = uid.is_some() || gid.is_some();
        if otherwise || also || chowned && special {
            return Ok(NewLook { look: again()?, has_ctime: true });
        }
        let mut look = born;
        look.stx_uid = uid.unwrap_or(look.stx_uid);
        look.stx_gid = gid.unwrap_or(look.stx_gid);
        Ok(NewLook { look, has_ctime: !chowned })
    }

    fn whole_of(look: Statx) -> NewLook {
        NewLook { look, has_ctime: true }
    }

    /// Nothing but its ctime is other than before.
    fn has_another_ctime(&mut self) {
        self.has_ctime = false;
    }

    fn get(&self) -> &Statx {
        &self.look
    }

    /// `None` if the ctime is not known.
    fn whole(&self) -> Option<&Statx> {
        self.has_ctime.then_some(&self.look)
    }

    fn into_inner(self) -> Statx {
        self.look
    }
}

/// An object that an operation has made but cannot complete.
struct HalfMade<'a> {
    dir: &'a Node,
    dir_fd: &'a NodeFd,
    /// The directory's locked state.
    state: &'a mut NodeState,
    before: &'a Before,
    name: &'a [u8],
    kind: Kind,
}

fn check_name(name: &[u8]) -> Result<(), Error> {
    match name {
        b"" => Err(Error::NameEmpty),
        b"." | b".." => Err(Error::NameDots),
        _ if name.len() > NAME_BYTES_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|b| matches!(b, b'/' | 0)) => Err(Error::NameChar),
        _ => Ok(()),
    }
}

fn check_dir(node: &Node) -> Result<(), Error> {
    match node.kind() {
        Kind::Dir => Ok(()),
        Kind::Symlink => Err(Error::Symlink),
        _ => Err(Error::NotDir),
    }
}

fn check_file(node: &Node) -> Result<(), Error> {
    match node.kind() {
        Kind::File => Ok(()),
        Kind::Dir => Err(Error::IsDir),
        Kind::Symlink => Err(Error::Symlink),
        _ => Err(Error::WrongKind),
    }
}

fn ctime_ns(sx: &Statx) -> u64 {
    u64::try_from(ctime(sx).as_nanos()).unwrap_or(0)
}

fn ctime(sx: &Statx) -> Timestamp {
    Timestamp { secs: sx.stx_ctime.tv_sec, nanos: sx.stx_ctime.tv_nsec }
}

fn mtime(sx: &Statx) -> Timestamp {
    Timestamp { secs: sx.stx_mtime.tv_sec, nanos: sx.stx_mtime.tv_nsec }
}

fn atime(sx: &Statx) -> Timestamp {
    Timestamp { secs: sx.stx_atime.tv_sec, nanos: sx.stx_atime.tv_nsec }
}

fn owned(sx: &Statx) -> Owned {
    Owned {
        mode: u32::from(sx.stx_mode) & 0o7777,
        uid: sx.stx_uid,
        gid: sx.stx_gid,
        atime: atime(sx),
        mtime: mtime(sx),
    }
}

fn rdev(node: &Node, sx: &Statx) -> (u32, u32) {
    match node.kind() {
        Kind::CharDev | Kind::BlockDev => (sx.stx_rdev_major, sx.stx_rdev_minor),
        _ => (0, 0),
    }
}

fn timespec(time: Option<TimeSet>) -> Result<Timespec, Error> {
    Ok(match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeSet::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeSet::At(t)) if t.nanos < 1_000_000_000 => {
            Timespec { tv_sec: t.secs, tv_nsec: i64::from(t.nanos) }
        }
        Some(TimeSet::At(_)) => return Err(Error::Inval),
    })
}

fn set_times(fd: &NodeFd, atime: Option<TimeSet>, mtime: Option<TimeSet>) -> Result<(), Error> {
    let times = Timestamps { last_access: timespec(atime)?, last_modification: timespec(mtime)? };
    Ok(kernel::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?)
}

fn set_owner(fd: &NodeFd, uid: Option<u32>, gid: Option<u32>) -> Result<(), Error> {
    // The system call takes that number as "leave unchanged".
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Error::Inval);
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    Ok(kernel::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)?)
}

/// The umask for one creating call; otherwise the thread's umask is 0.
struct Umask(bool);

impl Umask {
    fn set(mask: Option<u32>) -> Umask {
        match mask.filter(|m| *m != 0) {
            Some(mask) => {
                kernel::umask(Mode::from_raw_mode(mask & 0o777));
                Umask(true)
            }
            None => Umask(false),
        }
    }
}

impl Drop for Umask {
    fn drop(&mut self) {
        if self.0 {
            kernel::umask(Mode::empty());
        }
    }
}

/// Mode and umask for the creating call. Without either, the object gets no permissions, as on Linux.
fn creation_mode(attrs: &SetAttrs) -> (u32, Option<u32>) {
    match (attrs.mode, attrs.mode_umask) {
        (Some(mode), _) => (mode & 0o7777, None),
        (None, Some((mode, umask))) => (mode & 0o7777, Some(umask)),
        (None, None) => (0, None),
    }
}

fn born_facts(
    dir: &Node,
    name: &[u8],
    node: &Node,
    sx: &Statx,
    target: &[u8],
    dir_mtime: Timestamp,
) -> Vec<Fact> {
    let birth = Birth {
        kind: node.kind(),
        owned: owned(sx),
        rdev: rdev(node, sx),
        target: Bytes::copy_from_slice(target),
        fileid: node.fileid(),
    };
    let mut facts = Vec::with_capacity(4);
    facts.push(Fact::Born { obj: node.0.id.clone(), birth });
    facts.push(Fact::Bind {
        dir: dir.0.id.clone(),
        name: Bytes::copy_from_slice(name),
        obj: node.0.id.clone(),
    });
    facts.push(Fact::Mtime { obj: dir.0.id.clone(), mtime: dir_mtime });
    facts
}

/// Records a change of these objects, if there is a log. Call under the locks that order the change.
fn record(tx: &mut Tx, changed: &[&Node], facts: impl FnOnce() -> Vec<Fact>) -> Result<(), Error> {
    tx.changes(changed);
    if tx.logs() {
        return tx.record(facts());
    }
    tx.touch();
    Ok(())
}

impl Volume {
    /// Checks a directory and a name in it. Returns `hidden` for the state directory's name.
    fn entry(&self, dir: &Node, name: &[u8], hidden: Error) -> Result<(), Error> {
        check_dir(dir)?;
        check_name(name)?;
        if name == STATE_DIR.as_bytes() && self.0.root.get() == Some(dir) {
            return Err(hidden);
        }
        Ok(())
    }

    /// Attributes from a look taken under the attribute lock.
    fn attrs(&self, node: &Node, state: &mut NodeState, sx: &Statx) -> Attrs {
        let (now_ns, floor_ns) = self.now_and_floor_ns();
        let attrs = Attrs {
            kind: node.kind(),
            mode: u32::from(sx.stx_mode) & 0o7777,
            nlink: sx.stx_nlink.saturating_sub(u32::from(node.0.is_orphan())),
            uid: sx.stx_uid,
            gid: sx.stx_gid,
            rdev: rdev(node, sx),
            size: sx.stx_size,
            used: sx.stx_blocks.saturating_mul(512),
            fsid: Identity::fsid(&self.0.volume_id),
            fileid: node.fileid(),
            atime: atime(sx),
            mtime: mtime(sx),
            ctime: ctime(sx),
            btime: Timestamp::from_nanos(node.0.created_ns),
            change: state.seen(ctime_ns(sx), now_ns, floor_ns),
        };
        let since_read = (now_ns / 1_000_000_000).cast_signed().saturating_sub(attrs.atime.secs);
        let atime_stays =
            attrs.atime > attrs.mtime && attrs.atime > attrs.ctime && since_read < ATIME_STAYS_SECS;
        state.looked = Some(Looked { attrs, at: kernel::instant(), atime_stays });
        attrs
    }

    /// Call under the locks, before an operation on a directory's entries or an object's extended attributes.
    fn before(&self, state: &mut NodeState, fd: &NodeFd) -> Result<Before, Error> {
        let before = self.before_change(state, fd)?;
        if before.look.stx_nlink == 0 { Err(Error::Stale) } else { Ok(before) }
    }

    /// As [`Volume::before`], for an object that may have lost its last name.
    fn before_change(&self, state: &mut NodeState, fd: &NodeFd) -> Result<Before, Error> {
        let look = kernel::look(fd)?;
        let (now_ns, floor_ns) = self.now_and_floor_ns();
        let change = state.seen(ctime_ns(&look), now_ns, floor_ns);
        Ok(Before { change, look })
    }

    /// Call under the locks, after the operation. Returns the change and the object's new mtime.
    fn after(
        &self,
        tx: &mut Tx,
        dir: &Node,
        state: &mut NodeState,
        fd: &NodeFd,
        before: &Before,
    ) -> Result<(ChangeInfo, Timestamp), Error> {
        let look = kernel::look(fd).map_err(|e| self.fail(format!("looking at a changed object: {e}")))?;
        let (now, floor_ns) = self.now_and_floor_ns();
        dir.0.changed_ns.store(now, Ordering::Relaxed);
        let (old, new) = (ctime_ns(&before.look), ctime_ns(&look));
        // This operation did not touch the default ACL, so what is known of it stays valid at the new ctime.
        state.default_acl = state.default_acl.filter(|(at, _)| *at == old).map(|(_, has)| (new, has));
        let after = state.change.changed(new, now, floor_ns);
        self.attrs(dir, state, &look);
        self.watched(tx, dir, state, Some(&before.look), &look);
        Ok((ChangeInfo { before: before.change, after, atomic: true }, mtime(&look)))
    }

    /// Call under the locks, after an own change. Keeps how the object looked, if wanted.
    fn watched(
        &self,
        tx: &mut Tx,
        node: &Node,
        state: &mut NodeState,
        before: Option<&Statx>,
        after: &Statx,
    ) {
        if let Some(before) = before.filter(|_| tx.watches()) {
            let before = PreOp { size: before.stx_size, mtime: mtime(before), ctime: ctime(before) };
            tx.saw(Around { node: node.clone(), before, after: self.attrs(node, state, after) });
        }
    }

    /// Notes an own change of an object; `look` is its new look, if known.
    fn changed(&self, node: &Node, state: &mut NodeState, look: Option<&Statx>) {
        let (now, floor_ns) = self.now_and_floor_ns();
        state.looked = None;
        node.0.changed_ns.store(now, Ordering::Relaxed);
        state.change.bump(now, floor_ns);
        if let Some(look) = look {
            self.attrs(node, state, look);
        }
    }

    /// Whether new objects in the directory inherit an ACL. Call under its locks, after [`Volume::before`].
    fn inherits_acl(&self, state: &mut NodeState, fd: &NodeFd, before: &Before) -> bool {
        let ctime = ctime_ns(&before.look);
        if let Some((_, has)) = state.default_acl.filter(|(at, _)| *at == ctime) {
            return has;
        }
        let found = kernel::getxattr(fd, ACL_DEFAULT, &mut [0u8; 0][..]);
        // If in doubt, each new object is checked.
        let has = !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP));
        state.default_acl = Some((ctime, has));
        has
    }

    /// Sets on a new object what the creating call could not: owner, special bits, size, times. Returns which of the requested
    /// attributes are set, and how the object looks different now.
    fn dress(
        &self,
        fd: &NodeFd,
        kind: Kind,
        born: &Statx,
        cred: &Cred,
        attrs: &SetAttrs,
    ) -> Result<(AttrsSet, Dressed), Error> {
        let takes_mode = kind != Kind::Symlink;
        let mut set = AttrsSet {
            mode: attrs.mode.is_some() && takes_mode,
            mode_umask: attrs.mode.is_none() && attrs.mode_umask.is_some() && takes_mode,
            uid: attrs.uid.is_some(),
            gid: attrs.gid.is_some(),
            ..AttrsSet::default()
        };
        let uid = attrs.uid.filter(|uid| *uid != born.stx_uid);
        let gid = attrs.gid.filter(|gid| *gid != born.stx_gid);
        let mut dressed = Dressed::default();
        if uid.is_some() || gid.is_some() {
            match set_owner(fd, uid, gid) {
                Ok(()) => (dressed.uid, dressed.gid) = (uid, gid),
                // Only the superuser can give files away; for others the request is ignored, as on Linux.
                Err(Error::Perm) if cred.uid != 0 => {
                    set.uid &= uid.is_none();
                    set.gid &= gid.is_none();
                }
                Err(e) => return Err(e),
            }
        }
        let chowned = dressed.uid.is_some() || dressed.gid.is_some();
        let (special, have) = (creation_mode(attrs).0 & SETID_BITS, u32::from(born.stx_mode) & 0o7777);
        // A change of owner clears these bits, and mkdir(2) does not set them.
        if takes_mode && special != 0 && (chowned || special & !have != 0) {
            kernel::chmod(fd, have | special)?;
            dressed.otherwise = true;
        }
        if let Some(size) = attrs.size.filter(|_| kind == Kind::File) {
            if size > FILE_SIZE_MAX {
                return Err(Error::TooBig);
            }
            if size > 0 {
                kernel::ftruncate(fd, size)?;
                dressed.otherwise = true;
            }
            set.size = true;
        }
        if attrs.atime.is_some() || attrs.mtime.is_some() {
            set_times(fd, attrs.atime, attrs.mtime)?;
            (set.atime, set.mtime) = (attrs.atime.is_some(), attrs.mtime.is_some());
            dressed.otherwise = true;
        }
        Ok((set, dressed))
    }

    /// With `sync`: makes an object and the directories that name it durable. The last change of an operation is one of the object, or
    /// where none is given, one of all directories together. Call without locks.
    fn settle(&self, tx: &mut Tx, dirs: &[&Node], object: Option<(&Node, &NodeFd)>) -> Result<(), Error> {
        if self.0.durability != Durability::Sync {
            return Ok(());
        }
        self.flush_each(dirs, object)?;
        tx.has_settled();
        Ok(())
    }

    fn flush_each(&self, dirs: &[&Node], object: Option<(&Node, &NodeFd)>) -> Result<(), Error> {
        self.assume_root()?;
        if let Some((node, fd)) = object {
            match node.kind() {
                Kind::File | Kind::Dir => {
                    self.fsync(kernel::reopen(fd, OFlags::RDONLY | OFlags::NONBLOCK)?)?;
                    self.verified_node(node)?;
                    if self.0.one_journal {
                        return Ok(());
                    }
                }
                // Other kinds cannot be opened. New ones become durable with their directory.
                _ if !dirs.is_empty() => {}
                _ => self.flush_all()?,
            }
        }
        for (i, dir) in dirs.iter().enumerate() {
            if dirs.get(..i).is_some_and(|earlier| earlier.contains(dir)) {
                continue;
            }
            self.fsync(kernel::reopen(&*self.fd(dir)?, OFlags::RDONLY | OFlags::DIRECTORY)?)?;
            if self.0.one_journal {
                break;
            }
        }
        Ok(())
    }

    /// The kernel's handle of what a name in a directory names. [`Error::Mounted`] for a mount point, even of a filesystem
    /// without handles.
    fn handle_within(&self, dir_fd: &NodeFd, name: &[u8]) -> Result<KernelHandle, Error> {
        match kernel::handle_by_name(dir_fd, name) {
            Ok((kh, mount_id)) if mount_id == self.0.mount_id => Ok(kh),
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => Err(Error::Mounted),
            Err(e) => Err(e.into()),
        }
    }

    /// The object that `name` names in a directory, as the caller may see it. Call under the directory's names lock.
    fn named(&self, dir_fd: &NodeFd, name: &[u8]) -> Result<Node, Error> {
        let kh = self.handle_within(dir_fd, name)?;
        if let Some(node) = self.0.cache.get(&kh) {
            return Ok(node);
        }
        let fd = kernel::open_path(dir_fd, name)?;
        let (kh, mount_id) = kernel::handle_of(&fd)?;
        let node = self.node_of(kh, mount_id, &kernel::look(&fd)?)?;
        self.0.cache.keep_fd(&node, fd);
        Ok(node)
    }

    fn unlink(dir_fd: &NodeFd, name: &[u8], kind: Kind) -> Result<(), Error> {
        let flags = if kind == Kind::Dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match kernel::unlinkat(dir_fd, name, flags) {
            // XFS's error for a directory that is not empty.
            Err(Errno::EXIST) => Err(Error::NotEmpty),
            done => Ok(done?),
        }
    }

    /// Undoes what an operation has just made and could not complete. Returns the error to answer with. Call under the
    /// directory's locks.
    fn undo(&self, tx: &mut Tx, half: HalfMade<'_>, why: Error) -> Error {
        match self.take_back(tx, half) {
            Ok(()) => why,
            Err(e) => self.fail(format!("taking back a half made object: {e}")),
        }
    }

    /// Also records that the object is gone: a power cut in between leaves it on disk.
    fn take_back(&self, tx: &mut Tx, half: HalfMade<'_>) -> Result<(), Error> {
        let HalfMade { dir, dir_fd, state, before, name, kind } = half;
        self.changed(dir, state, None);
        self.assume_root()?;
        let obj = if tx.logs() {
            let (kh, _) = kernel::handle_by_name(dir_fd, name)?;
            Some(ObjId { kh, btime_ns: btime_ns(&kernel::look_at(dir_fd, name)?) })
        } else {
            None
        };
        Volume::unlink(dir_fd, name, kind)?;
        let (_, mtime) = self.after(tx, dir, state, dir_fd, before)?;
        tx.changes(&[dir]);
        let Some(obj) = obj else { return Ok(()) };
        let (dir, name) = (dir.0.id.clone(), Bytes::copy_from_slice(name));
        tx.record(vec![
            Fact::Bind { dir: dir.clone(), name: name.clone(), obj: obj.clone() },
            Fact::Unbind { dir: dir.clone(), name, obj: obj.clone() },
            Fact::Links { obj, nlink: 0 },
            Fact::Mtime { obj: dir, mtime },
        ])
    }

    /// Called when an object has lost its last name: from here on its node serves only those who have it open. Call without
    /// locks, while the transaction that removed the name is still joined, and after marking the node as dead under the locks.
    fn bury(&self, node: &Node) {
        self.0.remap.write().purge(&node.0.id);
        node.0.cached_descriptors.close();
        self.dismiss_witness(node);
        if !node.0.is_open() {
            self.forget(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_name_has_its_own_error() {
        assert_eq!(check_name(b""), Err(Error::NameEmpty));
        assert_eq!(check_name(b"."), Err(Error::NameDots));
        assert_eq!(check_name(b".."), Err(Error::NameDots));
        assert_eq!(check_name(b"a/b"), Err(Error::NameChar));
        assert_eq!(check_name(b"a\0"), Err(Error::NameChar));
        assert_eq!(check_name(&[b'a'; 256]), Err(Error::NameTooLong));
        assert_eq!(check_name(&[0xff; 255]), Ok(()));
        assert_eq!(check_name(b"..."), Ok(()));
    }
}
