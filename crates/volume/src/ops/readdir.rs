//! Listing directories.
//!
//! A cookie is the filesystem's own position after an entry, plus [`COOKIE_BASE`], since NFSv4 reserves 0, 1 and 2
//! (RFC 8881 section 18.23.3). On the allowed filesystems positions do not depend on other entries. So cookies stay valid
//! while entries come and go, and each call may use its own descriptor. The names of small directories are kept
//! ([`crate::listing`]).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::RwLockReadGuard;
use rustix::fs::{FileType, OFlags, SeekFrom};

use super::{check_dir, ctime_ns};
use crate::change::{REMEMBER_NS, SETTLED_NS};
use crate::error::Error;
use crate::kernel::btime_ns;
use crate::kernel::{self, RawDir};
use crate::limits::{READDIR_BUFFER_BYTES, READDIR_ENTRIES_MAX};
use crate::listing::{Found, Listing};
use crate::node::Node;
use crate::node_fd::NodeFd;
use crate::record::KernelHandle;
use crate::results::{DirEntry, DirPage, ListedEntry};
use crate::state::STATE_DIR;
use crate::types::{Attrs, Cred, EntryDetail, Kind};
use crate::volume::Volume;

/// How long a changed node stays in the cache.
const REMEMBER: Duration = Duration::from_nanos(REMEMBER_NS);

const COOKIE_BASE: u64 = 3;

/// ext4 and others give the last entry this position.
const POSITION_END: u64 = i64::MAX as u64;

/// The cookie of a position. Cookies fit into 63 bits, since some clients keep them in a signed number.
fn cookie_of(position: u64) -> u64 {
    position.saturating_add(COOKIE_BASE).min(POSITION_END)
}

fn position_of(cookie: u64) -> Result<u64, Error> {
    match cookie {
        0 => Ok(0),
        POSITION_END => Ok(POSITION_END),
        _ if cookie > POSITION_END => Err(Error::BadCookie),
        _ => cookie.checked_sub(COOKIE_BASE).ok_or(Error::BadCookie),
    }
}

impl Volume {
    /// Returns at most `limit` entries after `cookie` (0: from the beginning), without `.` and `..`.
    pub fn readdir(
        &self,
        cred: &Cred,
        dir: &Node,
        cookie: u64,
        limit: usize,
        detail: EntryDetail,
    ) -> Result<DirPage, Error> {
        let limit = limit.min(READDIR_ENTRIES_MAX);
        let mut entries = Vec::new();
        let eof = self.list(cred, dir, cookie, detail, |e| {
            if entries.len() >= limit {
                return false;
            }
            let object = e.object.map(|o| o.map(|(node, attrs)| (node.clone(), *attrs)));
            let name = Bytes::copy_from_slice(e.name);
            entries.push(DirEntry { name, cookie: e.cookie, fileid: e.fileid, object });
            true
        })?;
        Ok(DirPage { entries, eof })
    }

    /// Calls `each` with the entries after `cookie` (0: from the beginning), without `.` and `..`, until it returns false,
    /// which means that it has not taken the entry. Returns true if all were taken: the directory ends there.
    ///
    /// `each` runs under the lock of the directory's names, as the caller: it must not use the volume.
    pub fn list(
        &self,
        cred: &Cred,
        dir: &Node,
        cookie: u64,
        detail: EntryDetail,
        mut each: impl FnMut(ListedEntry<'_>) -> bool,
    ) -> Result<bool, Error> {
        check_dir(dir)?;
        let position = position_of(cookie)?;
        let dir_fd = self.fd(dir)?;
        self.assume(cred)?;
        let (look, foreign_at) = {
            let mut state = dir.0.state.lock();
            let look = self.before_change(&mut state, &dir_fd)?.look;
            (look, state.foreign_at)
        };
        let ctime = ctime_ns(&look);
        let attrs = detail == EntryDetail::Attrs;
        // Most callers may both search and read it, and one question tells.
        let may_all = attrs && kernel::access(&*dir_fd, libc::X_OK | libc::R_OK)?;
        let mut lister = Lister {
            volume: self,
            dir,
            dir_fd: &dir_fd,
            attrs,
            plain_ids: self.0.remap.read().is_trivial(),
            // Who may read the directory but not search it sees names, but nothing about the objects.
            known_counts: may_all || (attrs && kernel::access(&*dir_fd, libc::X_OK)?),
            foreign_at,
            names: None,
            now: kernel::instant(),
        };
        if look.stx_nlink > 0
            && let Some(kept) = self.0.listings.get(dir, ctime)
            && let Some(mut entries) = kept.after(position)
            && (may_all || kernel::access(&*dir_fd, libc::R_OK)?)
        {
            return Ok(entries.all(|e| lister.one(e, &mut each)));
        }
        let listing = kernel::reopen(&*dir_fd, OFlags::RDONLY | OFlags::DIRECTORY)?;
        if position > 0 {
            kernel::seek(&listing, SeekFrom::Start(position))?;
        }
        // A kept listing starts at the beginning, and its ctime must be one that no later change can have.
        let settled = Volume::now_ns() > ctime.saturating_add(SETTLED_NS);
        let mut kept = (position == 0 && settled).then(Listing::default);
        let at_root = self.0.root.get() == Some(dir);
        let mut buffer = Box::new_uninit_slice(READDIR_BUFFER_BYTES);
        let mut raw = RawDir::new(&listing, &mut buffer);
        let mut all_taken = true;
        loop {
            if raw.is_buffer_empty() {
                lister.names = None;
            }
            let Some(entry) = raw.next() else { break };
            let entry = match entry {
                Ok(entry) => entry,
                // Removed since it was opened.
                Err(rustix::io::Errno::NOENT) => return Err(Error::Stale),
                Err(e) => return Err(e.into()),
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || (at_root && name == STATE_DIR.as_bytes()) {
                continue;
            }
            let kind = kind_of(entry.file_type());
            let found = Found { name, position: entry.next_entry_cookie(), ino: entry.ino(), kind };
            if let Some(listing) = &mut kept
                && !listing.add(found)
            {
                kept = None;
            }
            all_taken = all_taken && lister.one(found, &mut each);
            // Reads the rest for later requests, if it is not much.
            if !all_taken && kept.is_none() {
                return Ok(false);
            }
        }
        if let Some(listing) = kept {
            self.0.listings.keep(dir, ctime, listing);
        }
        Ok(all_taken)
    }

    /// As [`Volume::named`], with the attributes. New nodes keep no descriptor, except those of directories: a listing of a
    /// large directory would evict everybody else's.
    fn named_attrs(&self, dir_fd: &NodeFd, name: &[u8], now: Instant) -> Result<(Node, Attrs), Error> {
        let kh = self.handle_within(dir_fd, name)?;
        if let Some(node) = self.0.cache.get(&kh) {
            if let Some(attrs) = fresh(&node, now, None) {
                return Ok((node, attrs));
            }
            let mut state = node.0.state.lock();
            let look = match node.0.open_fd() {
                Some(fd) => kernel::look(&*fd)?,
                None => kernel::look_at(dir_fd, name)?,
            };
            // A local process may have given the name to another object.
            if look.stx_ino == node.0.ino && btime_ns(&look) == node.0.id.btime_ns {
                let attrs = self.attrs(&node, &mut state, &look);
                drop(state);
                return Ok((node, attrs));
            }
        }
        if !self.0.unprivileged
            && let Some(found) = self.unknown_attrs(dir_fd, name, kh)?
        {
            return Ok(found);
        }
        let fd = kernel::open_path(dir_fd, name)?;
        let (kh, mount_id) = kernel::handle_of(&fd)?;
        let node = self.node_of(kh, mount_id, &kernel::look(&fd)?)?;
        let mut state = node.0.state.lock();
        let attrs = self.attrs(&node, &mut state, &kernel::look(&fd)?);
        drop(state);
        if node.kind() == Kind::Dir || self.0.unprivileged {
            self.0.cache.keep_fd(&node, fd);
        }
        Ok((node, attrs))
    }

    /// The attributes of an object without a node, from one look at its name and without a descriptor. `None` unless it is
    /// certain that the look was at the handle's object and that nobody has changed it since.
    fn unknown_attrs(
        &self,
        dir_fd: &NodeFd,
        name: &[u8],
        kh: KernelHandle,
    ) -> Result<Option<(Node, Attrs)>, Error> {
        let begun = kernel::instant();
        let look = kernel::look_at(dir_fd, name)?;
        if kh.ino() != Some(look.stx_ino) || look.stx_nlink == 0 {
            return Ok(None);
        }
        let node = self.node_of(kh, self.0.mount_id, &look)?;
        let mut state = node.0.state.lock();
        // A change meanwhile would have left its trace in the node: changed nodes are remembered for a while, so `node` would
        // be the node with which the change was made.
        let unchanged =
            node.0.changed_ns.load(Ordering::Relaxed) == 0 && node.0.id.btime_ns == btime_ns(&look);
        if !unchanged || begun.elapsed() > REMEMBER / 2 {
            return Ok(None);
        }
        let attrs = self.attrs(&node, &mut state, &look);
        drop(state);
        Ok(Some((node, attrs)))
    }
}

struct Lister<'a> {
    volume: &'a Volume,
    dir: &'a Node,
    dir_fd: &'a NodeFd,
    attrs: bool,
    plain_ids: bool,
    /// A node found by its inode number may stand in for a look.
    known_counts: bool,
    /// Except those looked at before this time, when somebody else changed the directory: the number may now belong to
    /// another object.
    foreign_at: Option<Instant>,
    /// Shared with lookups: the object of an entry must not be half made when it is looked at.
    names: Option<RwLockReadGuard<'a, ()>>,
    /// When `names` was taken.
    now: Instant,
}

impl Lister<'_> {
    /// Passes one entry to `each` and returns its answer.
    fn one(&mut self, e: Found<'_>, each: &mut impl FnMut(ListedEntry<'_>) -> bool) -> bool {
        let cookie = cookie_of(e.position);
        let mut listed = ListedEntry { name: e.name, cookie, fileid: e.ino, object: None };
        if !self.attrs && self.plain_ids {
            return each(listed);
        }
        if self.names.is_none() {
            self.names = Some(self.dir.0.names.read());
            self.now = kernel::instant();
        }
        // Not for a directory, since another filesystem may be mounted there; nor where a local process may have given the
        // number of one object to another.
        if self.known_counts
            && e.kind.is_some_and(|kind| kind != Kind::Dir)
            && let Some(node) = self.volume.0.cache.by_number(e.ino)
            && e.kind == Some(node.kind())
            && let Some(attrs) = fresh(&node, self.now, self.foreign_at)
        {
            listed.fileid = node.fileid();
            listed.object = self.attrs.then_some(Ok((&node, &attrs)));
            return each(listed);
        }
        let object = self.volume.named_attrs(self.dir_fd, e.name, self.now);
        if let Ok((node, _)) = &object {
            listed.fileid = node.fileid();
        }
        if self.attrs {
            listed.object = Some(match &object {
                Ok((node, attrs)) => Ok((node, attrs)),
                Err(e) => Err(*e),
            });
        }
        each(listed)
    }
}

fn kind_of(kind: FileType) -> Option<Kind> {
    Some(match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDev,
        FileType::BlockDevice => Kind::BlockDev,
        FileType::Unknown => return None,
    })
}

/// An object's attributes, if known without a look and looked up after `since`.
fn fresh(node: &Node, now: Instant, since: Option<Instant>) -> Option<Attrs> {
    node.0.state.lock().fresh_since(now, since).filter(|_| !node.0.is_dead()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_positions_and_never_reserved() {
        for position in [0, 1, 2, 12345, POSITION_END - 100, POSITION_END] {
            let cookie = cookie_of(position);
            assert!(cookie > 2 && cookie <= POSITION_END);
            assert_eq!(position_of(cookie), Ok(position));
        }
        assert_eq!(position_of(0), Ok(0));
        assert_eq!(position_of(1), Err(Error::BadCookie));
        assert_eq!(position_of(2), Err(Error::BadCookie));
        assert_eq!(position_of(POSITION_END + 1), Err(Error::BadCookie));
        assert_eq!(position_of(u64::MAX), Err(Error::BadCookie));
    }
}
