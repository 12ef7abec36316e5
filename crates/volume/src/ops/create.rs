//! Creating regular files, or opening existing ones.

use std::sync::atomic::Ordering;

use parking_lot::RwLockWriteGuard;
use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;

use super::acl;
use super::{
    Before, HalfMade, NewLook, Umask, atime, born_facts, check_file, creation_mode, mtime, record, set_times,
};
use crate::acl::SetAcls;
use crate::error::Error;
use crate::exclusive;
use crate::kernel::{self, OwnedFd};
use crate::node::Node;
use crate::node_fd::NodeFd;
use crate::open_file::OpenFile;
use crate::record::Fact;
use crate::results::Created;
use crate::tx::Tx;
use crate::types::{
    AttrsSet, ChangeInfo, CreateHow, Cred, Kept, Kind, OpenMode, SetAttrs, TimeSet, Verifier,
};
use crate::volume::Volume;

struct Call<'a> {
    cred: &'a Cred,
    dir_fd: &'a NodeFd,
    name: &'a [u8],
    mode: OpenMode,
    /// Only for an exclusive create.
    verifier: Option<Verifier>,
    acls: &'a SetAcls,
}

/// What the steps of making a file that can still fail have made.
struct Completed {
    node: Node,
    set: AttrsSet,
    look: NewLook,
    /// Facts on its extended attributes.
    xattrs: Vec<Fact>,
    kept: Option<Kept>,
}

impl Volume {
    /// Creates and opens a regular file, or opens the existing one where `how` allows that.
    pub fn create(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        how: CreateHow,
        mode: OpenMode,
    ) -> Result<Created, Error> {
        self.create_with_acls(tx, cred, dir, name, how, mode, &SetAcls::default())
    }

    /// As [`Volume::create`]. A new file also gets these ACLs, after its other attributes, or is not made.
    #[allow(clippy::too_many_arguments)] // each is one of the request's
    pub fn create_with_acls(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        how: CreateHow,
        mode: OpenMode,
        acls: &SetAcls,
    ) -> Result<Created, Error> {
        tx.rests_on(dir);
        self.entry(dir, name, Error::Access)?;
        acl::check(Kind::File, acls)?;
        let (attrs, verifier) = match how {
            CreateHow::Unchecked(attrs) | CreateHow::Guarded(attrs) => (attrs, None),
            CreateHow::Exclusive { verifier, attrs } => {
                (SetAttrs { atime: None, mtime: None, ..attrs }, Some(verifier))
            }
        };
        tx.join()?;
        let dir_fd = self.fd(dir)?;
        self.assume(cred)?;
        let call = Call { cred, dir_fd: &dir_fd, name, mode, verifier, acls };
        let names = dir.0.names.write();
        let mut state = dir.0.state.lock();
        let before = self.before(&mut state, &dir_fd)?;
        let fd = match create_new(&call, &attrs) {
            Ok(fd) => NodeFd::uncounted(fd),
            Err(Errno::EXIST) => {
                drop(state);
                return self.open_existing(tx, &call, names, how, &before);
            }
            Err(e) => return Err(e.into()),
        };
        let inherits = tx.logs() && self.inherits_acl(&mut state, &dir_fd, &before);
        let Completed { node, set, look, xattrs, kept } = match self.complete(&call, &fd, &attrs, inherits) {
            Ok(made) => made,
            Err(e) => {
                let (state, before) = (&mut state, &before);
                let half = HalfMade { dir, dir_fd: &dir_fd, state, before, name, kind: Kind::File };
                return Err(self.undo(tx, half, e));
            }
        };
        let (dir_change, dir_mtime) = self.after(tx, dir, &mut state, &dir_fd, &before)?;
        // Nobody else knows of it yet.
        {
            let mut new = node.0.state.lock();
            self.changed(&node, &mut new, look.whole());
            new.holds_verifier = kept == Some(Kept::Apart);
        }
        let look = look.into_inner();
        // Open for reading and writing, whatever was asked for.
        let fd = node.0.share_fd(fd, true, true);
        let file = OpenFile::new(self, node.clone(), fd.clone(), mode.read, mode.write, cred);
        // Its owner may use it, whatever its mode.
        let owns = look.stx_uid == cred.uid || cred.uid == 0;
        let rights = owns.then(|| node.0.rights.load(Ordering::Acquire));
        if let Some(rights) = rights {
            file.0.access.note(mode, rights, kernel::instant());
        }
        record(tx, &[dir, &node], || {
            let mut facts = born_facts(dir, name, &node, &look, b"", dir_mtime);
            if look.stx_size > 0 {
                facts.push(Fact::Size { obj: node.0.id.clone(), size: look.stx_size });
            }
            facts.extend(xattrs);
            facts
        })?;
        tx.has_made(&node);
        if look.stx_size > 0 && tx.logs() {
            self.content_logged(&mut node.0.state.lock(), 1);
        }
        drop(state);
        drop(names);
        self.settle(tx, &[dir], Some((&node, &fd)))?;
        Ok(Created { node, file, dir_change, created: true, attrs_set: set, kept, rights })
    }

    /// The steps of making a file that can still fail.
    fn complete(
        &self,
        call: &Call<'_>,
        fd: &NodeFd,
        attrs: &SetAttrs,
        inherits_acl: bool,
    ) -> Result<Completed, Error> {
        let born = kernel::look(fd)?;
        let (kh, mount_id) = kernel::handle_of(fd)?;
        let (set, dressed) = self.dress(fd, Kind::File, &born, call.cred, attrs)?;
        let mut with_acls = false;
        acl::apply(fd, call.acls, &mut with_acls)?;
        let mut look = NewLook::of(born, dressed, with_acls, || kernel::look(fd))?;
        let node = self.node_of(kh, mount_id, look.get())?;
        if self.0.unprivileged {
            self.0.cache.keep_fd(&node, kernel::open_path(call.dir_fd, call.name)?);
        }
        let mut xattrs =
            if inherits_acl || with_acls { self.acl_facts(&node, fd, with_acls)? } else { Vec::new() };
        let kept = match &call.verifier {
            Some(verifier) => Some(self.keep_verifier(&node, fd, verifier, &mut look, &mut xattrs)?),
            None => None,
        };
        Ok(Completed { node, set, look, xattrs, kept })
    }

    /// Keeps the verifier of an exclusive create with its new file, the last step of making it.
    fn keep_verifier(
        &self,
        node: &Node,
        fd: &NodeFd,
        verifier: &Verifier,
        look: &mut NewLook,
        facts: &mut Vec<Fact>,
    ) -> Result<Kept, Error> {
        if let Some(digest) = self.digest_apart(node, verifier, look.get())
            && exclusive::leave(fd, &digest)?
        {
            look.has_another_ctime();
            facts.push(exclusive::fact(node, Some(digest)));
            return Ok(Kept::Apart);
        }
        let (atime, mtime) = self.0.codec.verifier_times(node.wire(), verifier.create);
        set_times(fd, Some(TimeSet::At(atime)), Some(TimeSet::At(mtime)))?;
        *look = NewLook::whole_of(kernel::look(fd)?);
        Ok(Kept::InTimes)
    }

    /// Where the verifier of an earlier create stands, if this file was made with it and nobody has written to it or set its size or
    /// its times since.
    fn kept_verifier(
        &self,
        node: &Node,
        verifier: &Verifier,
        attrs: &SetAttrs,
    ) -> Result<Option<Kept>, Error> {
        if node.kind() != Kind::File {
            return Ok(None);
        }
        let fd = self.fd(node)?;
        let mut state = node.0.state.lock();
        let look = kernel::look(&*fd)?;
        if look.stx_size != attrs.size.unwrap_or(0) {
            return Ok(None);
        }
        if let Some(digest) = self.digest_apart(node, verifier, &look)
            && exclusive::stands(&*fd, &digest)?
        {
            state.holds_verifier = true;
            return Ok(Some(Kept::Apart));
        }
        let times = self.0.codec.verifier_times(node.wire(), verifier.create);
        Ok(((atime(&look), mtime(&look)) == times).then_some(Kept::InTimes))
    }

    fn digest_apart(&self, node: &Node, verifier: &Verifier, look: &Statx) -> Option<[u8; 8]> {
        let instance = verifier.instance.filter(|_| !self.0.unprivileged)?;
        Some(self.0.codec.verifier_apart(node.wire(), verifier.create, instance, mtime(look)))
    }

    /// Opens the existing file. `names` is the directory's lock.
    fn open_existing(
        &self,
        tx: &mut Tx,
        call: &Call<'_>,
        names: RwLockWriteGuard<'_, ()>,
        how: CreateHow,
        before: &Before,
    ) -> Result<Created, Error> {
        let unchanged = ChangeInfo { before: before.change, after: before.change, atomic: true };
        let node = match (how, self.named(call.dir_fd, call.name)) {
            (CreateHow::Guarded(_), _) => return Err(Error::Exists),
            // Removed by a local process just now.
            (_, Err(Error::NoEnt)) => return Err(Error::Busy),
            (_, found) => found?,
        };
        tx.rests_on(&node);
        let (file, kept, set) = match how {
            CreateHow::Guarded(_) => return Err(Error::Exists),
            CreateHow::Exclusive { verifier, attrs } => {
                let kept = self.kept_verifier(&node, &verifier, &attrs)?.ok_or(Error::Exists)?;
                // A retry of a create whose reply was lost. It is allowed to the creator, who owns the file, and to whoever may open
                // the file. Appends an empty record, so that the reply is kept like that of the first request.
                let mode = OpenMode { owner_override: true, ..call.mode };
                let file = self.open_file(call.cred, &node, mode)?;
                record(tx, &[], Vec::new)?;
                let set = AttrsSet {
                    mode: attrs.mode.is_some(),
                    mode_umask: attrs.mode.is_none() && attrs.mode_umask.is_some(),
                    uid: attrs.uid.is_some(),
                    gid: attrs.gid.is_some(),
                    size: attrs.size.is_some(),
                    ..AttrsSet::default()
                };
                (file, Some(kept), set)
            }
            CreateHow::Unchecked(attrs) => {
                let file = self.open_file(call.cred, &node, call.mode)?;
                drop(names);
                let mut set = AttrsSet::default();
                if attrs.size == Some(0) {
                    let cut = SetAttrs { size: Some(0), ..SetAttrs::default() };
                    set = self.setattr(tx, call.cred, &node, Some(&file), cut)?;
                }
                (file, None, set)
            }
        };
        let created = kept.is_some();
        Ok(Created { node, file, dir_change: unchanged, created, attrs_set: set, kept, rights: None })
    }

    pub fn open_file(&self, cred: &Cred, node: &Node, mode: OpenMode) -> Result<OpenFile, Error> {
        check_file(node)?;
        let asked = kernel::instant();
        // Read before the kernel is asked: if somebody revokes the right meanwhile, the answer does not count.
        let rights = node.0.rights.load(Ordering::Acquire);
        let fd = self.fd(node)?;
        self.assume(cred)?;
        self.0.file_opens.fetch_add(1, Ordering::Relaxed);
        let opened = match open_with(&fd, mode) {
            Err(Error::Access) if self.may_pass(cred, &fd, mode)? => {
                self.assume_root()?;
                open_with(&fd, mode)?
            }
            // If the filesystem turned read-only after an error, the reason matters to the caller.
            Err(Error::ReadOnly) => return Err(self.check().err().unwrap_or(Error::ReadOnly)),
            opened => opened?,
        };
        let fd = node.0.share_fd(NodeFd::uncounted(opened), mode.read, mode.write);
        let file = OpenFile::new(self, node.clone(), fd, mode.read, mode.write, cred);
        file.0.access.note(mode, rights, asked);
        Ok(file)
    }

    /// Whether to allow an open that the mode forbids: a client must read a program to run it, and see
    /// [`OpenMode::owner_override`]. Call as the caller.
    pub(crate) fn may_pass(&self, cred: &Cred, fd: &NodeFd, mode: OpenMode) -> Result<bool, Error> {
        if !mode.write && kernel::access(fd, libc::X_OK)? {
            return Ok(true);
        }
        Ok(mode.owner_override && kernel::look(fd)?.stx_uid == cred.uid)
    }
}

/// Makes a new file, open for reading and writing, under the caller's rights.
fn create_new(call: &Call<'_>, attrs: &SetAttrs) -> Result<OwnedFd, Errno> {
    let (mode, umask) = creation_mode(attrs);
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let _umask = Umask::set(umask);
    kernel::openat(call.dir_fd, call.name, flags, Mode::from_raw_mode(mode))
}

/// Opens the file of an `O_PATH` descriptor for reading or writing.
fn open_with(fd: &NodeFd, mode: OpenMode) -> Result<OwnedFd, Error> {
    let access = match (mode.read, mode.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    Ok(kernel::reopen(fd, access | OFlags::NONBLOCK | OFlags::NOCTTY)?)
}
