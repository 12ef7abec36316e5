//! Makes a local tree the same as a server's: removes objects, writes what differs, sets attributes.
//!
//! - Paths are resolved from the top's file descriptor through real directories only. If somebody replaces a directory by a
//!   symbolic link meanwhile, the link is not followed.
//! - A file is written under a temporary name (`.landfast-...`), synced, and then renamed. So nobody sees an incomplete file
//!   under its own name.
//! - Nothing is reported as done before the filesystem has been synced.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    AtFlags, CWD, Dir, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmodat,
    chownat, fremovexattr, fsetxattr, fstat, openat, statat, syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::plan::{Plan, XattrChange};
use super::sync::{SentCollector, SyncProgress, SyncReport, objects_to_send};
use super::tree::{Node, Origin, Tree};
use crate::copy::{self, RemoteOptions, RemoteTrees, descend};
use crate::fs::{AsNamed, OwnerNames};
use crate::fs::{Owner, join};
use crate::put::{Existing, Over, PutOptions, Xattrs};

#[derive(Debug, Clone)]
pub struct LocalTarget {
    /// The destination, which must exist.
    pub dir: PathBuf,
    /// Whether to set owners and groups.
    pub owners: bool,
    /// Whether to set extended attributes.
    pub xattrs: bool,
    /// When it is set, nothing new is started.
    pub stop: Arc<AtomicBool>,
}

impl Tree {
    /// Turns owners and groups that the server gives as names into numbers.
    pub fn number_owners(&mut self, who: &dyn OwnerNames) {
        for node in self.nodes.values_mut() {
            if let Owner::Name(_) = node.meta.owner {
                node.meta.owner = Owner::Id(who.user(&node.meta.owner).0);
            }
            if let Owner::Name(_) = node.meta.group {
                node.meta.group = Owner::Id(who.group(&node.meta.group).0);
            }
        }
    }
}

/// Carries out the plan. `source` must be a server's tree with numeric owners ([`Tree::number_owners`]). Fails when the
/// destination cannot be opened.
pub async fn sync_local(
    source: &Tree,
    plan: &Plan,
    here: &LocalTarget,
    progress: Arc<dyn SyncProgress>,
) -> io::Result<SyncReport> {
    let Origin::Server(nfs) = &source.origin else { return Ok(SyncReport::default()) };
    let top = File::open(&here.dir)?;
    if !top.metadata()?.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    let mut report = SyncReport::default();
    let (to_remove, stop) = (plan.remove.clone(), here.stop.clone());
    blocking(&top, &progress, &mut report, move |work| {
        for path in to_remove.iter().take_while(|_| !stop.load(Ordering::Acquire)) {
            work.remove(path);
        }
    })
    .await?;
    if !plan.send.is_empty() && !here.stop.load(Ordering::Acquire) {
        let objects = objects_to_send(source, plan);
        let options = RemoteOptions {
            links: true,
            xattrs: here.xattrs,
            exact: true,
            stop: here.stop.clone(),
            ..RemoteOptions::default()
        };
        let mut members = RemoteTrees::of(nfs, objects, options, Box::new(AsNamed));
        let collector = Arc::new(SentCollector::new(progress.clone(), plan.touched.clone()));
        let options = PutOptions {
            same_permissions: Some(true),
            same_owner: Some(here.owners),
            existing: Existing::Look(Over { set_mode: true, remove: true, ..Over::default() }),
            xattrs: if here.xattrs { Xattrs::Must } else { Xattrs::No },
            ..PutOptions::default()
        };
        let (root, collected) = (top.try_clone()?, collector.clone());
        let written = tokio::task::spawn_blocking(move || {
            let how = copy::WriteOptions { under_other_names: true, ..copy::WriteOptions::default() };
            copy::write(&mut members, root, &options, how, &*collected)
        });
        let written = written.await.map_err(io::Error::other)?;
        collector.report(&written, &mut report);
    }
    let only: BTreeSet<Vec<u8>> = plan.xattrs_only().cloned().collect();
    let (changes, stop) = (plan.xattrs.clone(), here.stop.clone());
    blocking(&top, &progress, &mut report, move |work| {
        for change in changes.iter().take_while(|_| !stop.load(Ordering::Acquire)) {
            let set = work.set_xattrs(change);
            if set.is_err() || only.contains(&change.path) {
                work.done.push((change.path.clone(), set.map(|()| Done::Set)));
            }
        }
    })
    .await?;
    let set: Vec<(Vec<u8>, Node)> =
        plan.set.iter().filter_map(|path| Some((path.clone(), source.nodes.get(path)?.clone()))).collect();
    let (owners, stop) = (here.owners, here.stop.clone());
    blocking(&top, &progress, &mut report, move |work| {
        for (path, node) in set.iter().take_while(|_| !stop.load(Ordering::Acquire)) {
            work.set(path, node, owners);
        }
    })
    .await?;
    Ok(report)
}

/// Runs `does` on a thread that may block, syncs, and then reports what is durable.
async fn blocking(
    top: &File,
    progress: &Arc<dyn SyncProgress>,
    report: &mut SyncReport,
    does: impl FnOnce(&mut Work) + Send + 'static,
) -> io::Result<()> {
    let mut work = Work { top: top.try_clone()?.into(), touched: HashMap::new(), done: Vec::new() };
    let done = tokio::task::spawn_blocking(move || {
        does(&mut work);
        let synced = work.touched.values().try_for_each(syncfs);
        (work.done, synced)
    });
    let (done, synced) = done.await.map_err(io::Error::other)?;
    for (path, what) in done {
        match (what, synced) {
            (Ok(Done::Removed), Ok(())) => {
                report.removed += 1;
                progress.removed(&path);
            }
            (Ok(Done::Set), Ok(())) => {
                report.set += 1;
                progress.set(&path);
            }
            (Err(e), _) | (Ok(_), Err(e)) => {
                report.failures += 1;
                progress.failed(&path, &copy::system_text(&e.into()));
            }
        }
    }
    Ok(())
}

enum Done {
    Removed,
    Set,
}

/// Changes that are made but not yet synced.
struct Work {
    top: OwnedFd,
    /// One directory of each filesystem that was changed, for syncfs.
    touched: HashMap<u64, OwnedFd>,
    done: Vec<(Vec<u8>, Result<Done, Errno>)>,
}

impl Work {
    /// The parent directory of a path, and the last name.
    fn place(&self, path: &[u8]) -> Result<(OwnedFd, CString), Errno> {
        let mut names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
        let last = names.pop().ok_or(Errno::INVAL)?;
        let mut dir = self.top.try_clone().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        for name in names {
            dir = descend(&dir, name)?;
        }
        Ok((dir, CString::new(last).map_err(|_| Errno::INVAL)?))
    }

    fn touch(&mut self, dir: &OwnedFd) {
        if let (Ok(stat), Ok(dir)) = (fstat(dir), dir.try_clone()) {
            self.touched.entry(crate::local::meta(&stat).fsid.major).or_insert(dir);
        }
    }

    fn remove(&mut self, path: &[u8]) {
        let removed = self.place(path).and_then(|(dir, name)| {
            self.touch(&dir);
            self.remove_from(&dir, &name, path)
        });
        self.done.push((path.to_vec(), removed.map(|()| Done::Removed)));
    }

    /// Removes a name and everything in it, depth first. A missing name counts as removed.
    fn remove_from(&mut self, dir: &OwnedFd, name: &CString, path: &[u8]) -> Result<(), Errno> {
        let gone = |e| if e == Errno::NOENT { Ok(()) } else { Err(e) };
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(e) => return gone(e),
        };
        if !crate::local::meta(&stat).is_dir() {
            return unlinkat(dir, name, AtFlags::empty()).or_else(gone);
        }
        let inner = descend(dir, name.to_bytes())?;
        self.touch(&inner);
        let mut names = Vec::new();
        for entry in Dir::read_from(&inner)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        names.sort_unstable();
        for name in names {
            let path = join(path, name.to_bytes());
            let removed = self.remove_from(&inner, &name, &path);
            self.done.push((path, removed.map(|()| Done::Removed)));
        }
        unlinkat(dir, name, AtFlags::REMOVEDIR).or_else(gone)
    }

    /// For a file or directory. Does not follow a symbolic link.
    fn set_xattrs(&mut self, change: &XattrChange) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let object = match change.path.is_empty() {
            true => openat(&self.top, c".", flags, Mode::empty())?,
            false => {
                let (dir, name) = self.place(&change.path)?;
                openat(&dir, &name, flags, Mode::empty())?
            }
        };
        self.touch(&object);
        let whole = |name: &[u8]| [b"user.", name].concat();
        for (name, value) in &change.set {
            fsetxattr(&object, &whole(name)[..], value, XattrFlags::empty())?;
        }
        for name in &change.remove {
            match fremovexattr(&object, &whole(name)[..]) {
                Err(Errno::NODATA) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn set(&mut self, path: &[u8], node: &Node, owners: bool) {
        let done = self.try_set(path, node, owners);
        self.done.push((path.to_vec(), done.map(|()| Done::Set)));
    }

    /// Sets attributes only if the object still has the type that was listed. Does not follow a symbolic link.
    fn try_set(&mut self, path: &[u8], node: &Node, owners: bool) -> Result<(), Errno> {
        let (dir, name) = self.place(path)?;
        self.touch(&dir);
        let file = openat(&dir, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let meta = &node.meta;
        if crate::local::meta(&fstat(&file)?).kind != meta.kind {
            return Err(Errno::STALE);
        }
        // fchmod and futimens do not take an O_PATH descriptor, so go through /proc.
        let itself = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        if let (true, Owner::Id(uid), Owner::Id(gid)) = (owners, &meta.owner, &meta.group) {
            let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
            chownat(&file, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
        }
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec { tv_sec: meta.modified.seconds, tv_nsec: i64::from(meta.modified.nseconds) };
        let times = Timestamps { last_access: omit, last_modification: modified };
        if meta.is_link() {
            return utimensat(&dir, &name, &times, AtFlags::SYMLINK_NOFOLLOW);
        }
        chmodat(CWD, Path::new(&itself), Mode::from_raw_mode(meta.mode), AtFlags::empty())?;
        utimensat(CWD, Path::new(&itself), &times, AtFlags::empty())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use bytes::Bytes;

    use super::*;
    use crate::archive::Filter;

    #[test]
    fn nothing_is_removed_or_set_through_a_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        std::fs::create_dir_all(top.join("d")).unwrap();
        std::fs::create_dir_all(outside.join("d")).unwrap();
        std::fs::write(outside.join("f"), b"kept").unwrap();
        std::fs::write(outside.join("d/f"), b"kept").unwrap();
        symlink(&outside, top.join("link")).unwrap();
        symlink(outside.join("f"), top.join("file")).unwrap();
        symlink(&outside, top.join("d/up")).unwrap();
        let before = std::fs::metadata(outside.join("f")).unwrap();
        let mut work =
            Work { top: File::open(&top).unwrap().into(), touched: HashMap::new(), done: Vec::new() };
        let tree = Tree::local(&outside, &Filter::default(), &(Arc::new(|_| ()) as _));
        let mut node = Node::new(tree.nodes[&b"f"[..]].meta.clone(), Bytes::new(), None);
        node.meta.mode = 0o777;
        work.set(b"link/f", &node, false);
        work.set(b"file", &node, false);
        work.remove(b"link/f");
        work.remove(b"link/d");
        for (path, done) in &work.done {
            assert!(done.is_err(), "{}", path.escape_ascii());
        }
        work.remove(b"d");
        work.remove(b"link");
        work.remove(b"gone");
        let all: Vec<bool> = work.done[4..].iter().map(|(_, done)| done.is_ok()).collect();
        assert_eq!(all, [true; 4], "d/up, d, link, gone");
        assert!(!top.join("d").exists() && top.join("link").symlink_metadata().is_err());
        assert_eq!(std::fs::read(outside.join("d/f")).unwrap(), b"kept");
        use std::os::unix::fs::MetadataExt;
        let after = std::fs::metadata(outside.join("f")).unwrap();
        assert_eq!((after.mode(), after.ctime_nsec()), (before.mode(), before.ctime_nsec()));
    }
}
