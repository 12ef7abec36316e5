//! What stands for the kernel in the simulation: it makes the requests that the kernel's virtual file system makes for a program's call,
//! and answers them as the mount does: from memory if that may be, else by a task.

use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::FileHandle;
use landfast_nfs::v4::args::CreateType;
use tokio::runtime::Handle as Runtime;

use super::files::Opened;
use super::flush::Until;
use super::shared::Shared;
use super::{dirs, files, flush, flusher, local, locks, look, names, read, write};
use crate::core::Ino;
use crate::core::attrs::{Attrs, Set};
use crate::core::file::Next;
use crate::errno::Errno;
use crate::options::Options;
use crate::remote::{Caller, Remote};
use crate::tasks;

/// A mount and the kernel above it.
#[derive(Clone)]
pub(crate) struct Kernel {
    shared: Arc<Shared>,
    who: Caller,
}

impl Kernel {
    /// Mounts, in the runtime of this task.
    pub(crate) async fn mount(
        remote: Remote,
        options: Options,
        root: (FileHandle, Attrs),
        unique: u64,
    ) -> Kernel {
        let who = remote.own().clone();
        let shared = Arc::new(Shared::new(remote, options, Runtime::current(), root, unique));
        tasks::spawn(flush::clean(Arc::downgrade(&shared)));
        flusher::start(&shared).await;
        Kernel { shared, who }
    }

    /// LOOKUP. The kernel refers to what is found.
    pub(crate) async fn lookup(&self, dir: Ino, name: &Bytes) -> Result<Option<(Ino, Attrs)>, Errno> {
        let known = names::from_memory(&self.shared, dir, name);
        let found = match known {
            Some(found) => found,
            None => names::look_up(&self.shared, &self.who, dir, name).await?,
        };
        if let Some((ino, _)) = &found {
            look::renew(&self.shared, *ino).await;
        }
        Ok(found)
    }

    pub(crate) fn forget(&self, ino: Ino) {
        self.shared.tree().forget(ino, 1);
    }

    pub(crate) async fn setattr(&self, ino: Ino, set: &Set) -> Result<Attrs, Errno> {
        if let Some(attrs) = files::set_held(&self.shared, &self.who, ino, set) {
            return Ok(attrs);
        }
        if let Some(attrs) = local::set(&self.shared, &self.who, ino, set) {
            return Ok(attrs);
        }
        files::set_attrs(&self.shared, &self.who, ino, set).await
    }

    /// The kernel refers to what is made.
    pub(crate) async fn mkdir(&self, dir: Ino, name: &Bytes, mode: u32) -> Result<(Ino, Attrs), Errno> {
        match local::make(&self.shared, &self.who, dir, name, local::New::Dir(mode)) {
            Some(made) => made,
            None => names::make(&self.shared, &self.who, dir, name, CreateType::Dir, Some(mode)).await,
        }
    }

    pub(crate) async fn symlink(&self, dir: Ino, name: &Bytes, text: &Bytes) -> Result<(Ino, Attrs), Errno> {
        match local::make(&self.shared, &self.who, dir, name, local::New::Link(text.clone())) {
            Some(made) => made,
            None => {
                let kind = CreateType::Lnk(text.clone());
                names::make(&self.shared, &self.who, dir, name, kind, None).await
            }
        }
    }

    pub(crate) async fn readlink(&self, ino: Ino) -> Result<Bytes, Errno> {
        if let Some(text) = local::text(&self.shared, ino) {
            return Ok(text);
        }
        let handle = self.shared.server_handle(ino)?;
        Ok(self.shared.remote.read_link(&self.who, &handle).await?)
    }

    pub(crate) async fn unlink(&self, dir: Ino, name: &Bytes) -> Result<(), Errno> {
        match local::remove(&self.shared, &self.who, dir, name, false) {
            Some(done) => done,
            None => names::unlink(&self.shared, &self.who, dir, name).await,
        }
    }

    pub(crate) async fn rmdir(&self, dir: Ino, name: &Bytes) -> Result<(), Errno> {
        match local::remove(&self.shared, &self.who, dir, name, true) {
            Some(done) => done,
            None => names::rmdir(&self.shared, &self.who, dir, name).await,
        }
    }

    pub(crate) async fn rename(
        &self,
        (from, old): (Ino, &Bytes),
        (to, new): (Ino, &Bytes),
    ) -> Result<(), Errno> {
        if from == to
            && let Some(done) = local::rename(&self.shared, &self.who, from, old, new)
        {
            return done;
        }
        names::rename(&self.shared, &self.who, (from, old), (to, new)).await
    }

    /// The kernel refers to what is made. Returns the open file, too.
    pub(crate) async fn create(&self, dir: Ino, name: &Bytes, mode: u32) -> Result<(Ino, u64), Errno> {
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        if let Some((_, ino, number)) = files::hold(&self.shared, &self.who, dir, name, mode, flags) {
            return Ok((ino, number));
        }
        let (_, ino, Opened { number, .. }) =
            files::create(&self.shared, &self.who, dir, name, mode, flags).await?;
        Ok((ino, number))
    }

    /// mknod(2) of a regular file.
    pub(crate) async fn mknod(&self, dir: Ino, name: &Bytes, mode: u32) -> Result<(Ino, Attrs), Errno> {
        files::make(&self.shared, &self.who, dir, name, mode).await
    }

    pub(crate) async fn open(&self, ino: Ino) -> Result<u64, Errno> {
        files::open(&self.shared, &self.who, ino, libc::O_RDWR).await.map(|opened| opened.number)
    }

    /// Whether the pages that the kernel may have are taken for those of the server's file, as it was seen last.
    pub(crate) fn trusts_pages(&self, ino: Ino) -> bool {
        self.shared.tree().get(ino).is_some_and(|node| node.pages == Some(node.attrs.change))
    }

    pub(crate) async fn read(&self, fh: u64, offset: u64, count: usize) -> Result<Bytes, Errno> {
        let handle = self.shared.handle(fh)?;
        match read::from_memory(&self.shared, &handle, offset, count) {
            Some(done) => done,
            None => read::read(&self.shared, &handle, offset, count).await,
        }
    }

    pub(crate) async fn write(&self, fh: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let handle = self.shared.handle(fh)?;
        let (next, _) = write::take(&self.shared, &handle, offset, data, write::How::default())?;
        match next {
            Next::Done => {}
            Next::Write | Next::Make => {
                let until = if next == Next::Make { Until::Made } else { Until::Pieces };
                let shared = self.shared.clone();
                if handle.open.turn.try_lock().is_ok() {
                    tasks::spawn(async move {
                        flush::send(&shared, handle.ino, &handle.open, &handle.who, until).await;
                    });
                }
            }
            Next::Wait => write::make_room(&self.shared, &handle).await,
        }
        Ok(())
    }

    /// write(2) with `O_APPEND`.
    pub(crate) async fn append(&self, fh: u64, data: &[u8]) -> Result<(), Errno> {
        let handle = self.shared.handle(fh)?;
        let how = write::How { append: true, ..write::How::default() };
        write::take(&self.shared, &handle, 0, data, how)?;
        Ok(())
    }

    /// write(2) where there is no room for data that waits.
    pub(crate) async fn write_through(&self, fh: u64, offset: u64, data: &Bytes) -> Result<usize, Errno> {
        let handle = self.shared.handle(fh)?;
        write::write_through(&self.shared, &handle, (offset, write::How::default()), data.clone()).await
    }

    /// fcntl(2): a lock of the whole file.
    pub(crate) async fn lock(&self, fh: u64) -> Result<(), Errno> {
        let handle = self.shared.handle(fh)?;
        let wanted = locks::Wanted { owner: fh, start: 0, end: i64::MAX as u64, kind: libc::F_WRLCK };
        locks::set(&self.shared, &handle, wanted, None).await
    }

    /// FLUSH of a close(2). RELEASE comes later.
    pub(crate) async fn flush(&self, fh: u64) -> Result<(), Errno> {
        let handle = self.shared.handle(fh)?;
        handle.set_flushed();
        files::flush(&self.shared, &handle).await
    }

    /// RELEASE.
    pub(crate) fn release(&self, fh: u64) {
        files::give_back(&self.shared, fh);
    }

    /// Bytes of data on their way, as they are counted.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.shared.dirty_bytes()
    }

    /// close(2): FLUSH, then RELEASE, for which the kernel does not wait.
    pub(crate) async fn close(&self, fh: u64) -> Result<(), Errno> {
        let handle = self.shared.handle(fh)?;
        let done = match files::is_flushed(&handle) {
            Some(done) => done,
            None => files::flush(&self.shared, &handle).await,
        };
        files::give_back(&self.shared, fh);
        done
    }

    pub(crate) async fn fsync(&self, fh: u64) -> Result<(), Errno> {
        let handle = self.shared.handle(fh)?;
        files::flush(&self.shared, &handle).await
    }

    pub(crate) async fn fsync_dir(&self, dir: Ino) -> Result<(), Errno> {
        files::sync_dir(&self.shared, dir).await
    }

    pub(crate) async fn readdir(&self, dir: Ino) -> Result<Vec<Bytes>, Errno> {
        self.readdir_beside(dir, async || ()).await
    }

    /// Something else happens when each part has been read.
    pub(crate) async fn readdir_beside(
        &self,
        dir: Ino,
        mut beside: impl AsyncFnMut(),
    ) -> Result<Vec<Bytes>, Errno> {
        let handle = dirs::DirHandle::new(dir);
        let (mut at, mut all) = (0, Vec::new());
        loop {
            let items = dirs::list(&self.shared, &self.who, &handle, at).await?;
            let Some(next) = items.last().map(dirs::Item::place) else { return Ok(all) };
            at = next;
            all.extend(
                items.iter().map(dirs::Item::name).filter(|n| n.as_ref() != b"." && n.as_ref() != b".."),
            );
            beside().await;
        }
    }

    /// `landfast sync`: paths that failed, with their reasons.
    pub(crate) async fn sync(&self) -> Vec<String> {
        flush::send_all(&self.shared).await;
        self.shared.tell_failures().named
    }

    /// Whether the directory is this mount's own.
    pub(crate) fn is_own(&self, dir: Ino) -> bool {
        self.shared.tree().is_own(dir)
    }

    /// Changes and files on their way.
    pub(crate) fn on_its_way(&self) -> usize {
        let pending = self.shared.lanes.pending().len();
        pending + self.shared.lanes.unfinished().len()
    }

    /// What must be nothing when all is stable.
    pub(crate) fn left_over(&self) -> Option<String> {
        let tree = self.shared.tree();
        let owed = tree.owing();
        let (bytes, dirty) = (self.shared.dirty_bytes(), self.shared.dirty_count());
        drop(tree);
        let none = owed == 0 && bytes == 0 && dirty == 0 && self.on_its_way() == 0;
        (!none).then(|| {
            format!(
                "{owed} changes owed, {bytes} bytes and {dirty} files on their way, {} changes",
                self.on_its_way()
            )
        })
    }
}
