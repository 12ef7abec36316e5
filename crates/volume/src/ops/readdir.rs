//! Listing directories.
//!
//! A cookie is the filesystem's own position after an entry, plus [`COOKIE_BASE`]: 0, 1 and 2 are reserved by NFSv4
//! (RFC 8881 section 18.23.3). On the filesystems of the allow-list positions do not depend on other entries, so
//! cookies stay valid while entries come and go, and each call may use a descriptor of its own.

use std::time::Instant;

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, SeekFrom};

use super::check_dir;
use crate::error::Error;
use crate::limits::{READDIR_BUFFER_BYTES, READDIR_ENTRIES_MAX};
use crate::node::{Node, NodeFd};
use crate::open::STATE_DIR;
use crate::sys;
use crate::types::{Attrs, Cred, DirEntry, DirPage, EntryDetail, Kind};
use crate::volume::Volume;

/// What is added to positions.
const COOKIE_BASE: u64 = 3;

/// ext4 and others give this position to the last entry: the end.
const POSITION_END: u64 = i64::MAX as u64;

/// The cookie of a position. Cookies fit 63 bits, as some clients keep them in a signed number.
fn cookie_of(position: u64) -> u64 {
    position.saturating_add(COOKIE_BASE).min(POSITION_END)
}

/// The position of a cookie; 0 is the beginning.
fn position_of(cookie: u64) -> Result<u64, Error> {
    match cookie {
        0 => Ok(0),
        POSITION_END => Ok(POSITION_END),
        _ if cookie > POSITION_END => Err(Error::BadCookie),
        _ => cookie.checked_sub(COOKIE_BASE).ok_or(Error::BadCookie),
    }
}

impl Volume {
    /// At most `limit` entries after `cookie` (0: from the beginning). `.` and `..` are not among them.
    pub fn readdir(
        &self,
        cred: &Cred,
        dir: &Node,
        cookie: u64,
        limit: usize,
        detail: EntryDetail,
    ) -> Result<DirPage, Error> {
        check_dir(dir)?;
        let position = position_of(cookie)?;
        let limit = limit.min(READDIR_ENTRIES_MAX);
        let dir_fd = self.fd(dir)?;
        self.assume(cred)?;
        let listing = sys::reopen(&*dir_fd, OFlags::RDONLY | OFlags::DIRECTORY)?;
        if position > 0 {
            rustix::fs::seek(&listing, SeekFrom::Start(position))?;
        }
        let at_root = self.0.root.get() == Some(dir);
        // Who may read the directory and not search it learns names, and nothing about what they name.
        let known_counts = detail == EntryDetail::Attrs
            && rustix::fs::statat(&listing, c".", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let mut buffer = Box::new_uninit_slice(READDIR_BUFFER_BYTES);
        let mut page = DirPage { entries: Vec::new(), eof: false };
        let mut more = false;
        // The nodes of entries, as far as their inode's number tells.
        let mut known: Vec<Option<Node>> = Vec::new();
        let mut raw = RawDir::new(&listing, &mut buffer);
        while let Some(entry) = raw.next() {
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
            if page.entries.len() >= limit {
                more = true;
                break;
            }
            let cookie = cookie_of(entry.next_entry_cookie());
            // What stands below a directory of that number may be another filesystem or subvolume.
            known.push(if known_counts && entry.file_type() != FileType::Directory {
                self.0.cache.by_number(entry.ino())
            } else {
                None
            });
            page.entries.push(DirEntry {
                name: Bytes::copy_from_slice(name),
                cookie,
                fileid: entry.ino(),
                object: None,
            });
        }
        page.eof = !more;
        let plain_ids = self.0.remap.read().is_trivial();
        if detail == EntryDetail::Names && plain_ids {
            return Ok(page);
        }
        // Shared with lookups: an entry that is looked at must not be in the middle of being made.
        let _names = dir.0.names.read();
        let now = Instant::now();
        for (entry, known) in page.entries.iter_mut().zip(known) {
            let object = match known.and_then(|node| fresh(node, now)) {
                Some(known) => Ok(known),
                None => self.named_attrs(&dir_fd, &entry.name, now),
            };
            if let Ok((node, _)) = &object {
                entry.fileid = node.fileid();
            }
            if detail == EntryDetail::Attrs {
                entry.object = Some(object);
            }
        }
        Ok(page)
    }

    /// As [`Volume::named`], with the attributes. Nodes that were not known keep no descriptor, but for directories:
    /// whoever lists a large directory would drive all others' out.
    fn named_attrs(&self, dir_fd: &NodeFd, name: &[u8], now: Instant) -> Result<(Node, Attrs), Error> {
        let (kh, mount_id) = sys::handle_by_name(dir_fd, name)?;
        if mount_id == self.0.mount_id
            && let Some(node) = self.0.cache.get(&kh)
        {
            if let Some(known) = fresh(node.clone(), now) {
                return Ok(known);
            }
            if let Some(fd) = node.0.open_fd() {
                let mut state = node.0.state.lock();
                let attrs = self.attrs(&node, &mut state, &sys::look(&*fd)?);
                drop(state);
                return Ok((node, attrs));
            }
        }
        let fd = sys::open_path(dir_fd, name)?;
        let (kh, mount_id) = sys::handle_of(&fd)?;
        let node = self.node_of(kh, mount_id, &sys::look(&fd)?)?;
        let mut state = node.0.state.lock();
        let attrs = self.attrs(&node, &mut state, &sys::look(&fd)?);
        drop(state);
        if node.kind() == Kind::Dir || self.0.unprivileged {
            self.0.cache.keep_fd(&node, fd);
        }
        Ok((node, attrs))
    }
}

/// A node with its attributes, if they are known without looking.
fn fresh(node: Node, now: Instant) -> Option<(Node, Attrs)> {
    let attrs = *node.0.state.lock().fresh(now).filter(|_| !node.0.is_dead())?;
    Some((node, attrs))
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
