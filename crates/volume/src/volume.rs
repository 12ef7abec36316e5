//! The volume: the state that all operations share; start, stop and failure.
//!
//! Opening is in [`crate::open`], operations in [`crate::ops`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use landfast_intentlog::{Log, LogError, LogPlace};
use parking_lot::{Mutex, RwLock};
use rustix::fs::Statx;
use rustix::io::Errno;

use crate::cache::Cache;
use crate::clock::Clock;
use crate::cred;
use crate::damage::Damage;
use crate::dependencies::OngoingFlushes;
use crate::descriptor_queue::DescriptorQueue;
use crate::error::Error;
use crate::faults::point;
use crate::flush;
use crate::handle::HandleCodec;
use crate::identity::{Identity, LogInUse};
use crate::kernel::btime_ns;
use crate::kernel::{self, AsFd, OwnedFd};
use crate::listing::Listings;
use crate::marker::Marker;
use crate::nested::{self, TreeLocks};
use crate::node::{Node, NodeInner};
use crate::node_fd::NodeFd;
use crate::options::Durability;
use crate::orphans::Orphans;
use crate::record::{KernelHandle, ObjId};
use crate::remap::Remap;
use crate::reserve;
use crate::shared_syncfs::SharedSyncfs;
use crate::tag::{self, Tag};
use crate::types::{Cred, Kind};
use crate::witnesses::Witnesses;

#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// There was no volume in the directory before.
    pub made: bool,
    /// The last stop was clean: there was nothing to recover, and no client lost anything.
    pub clean: bool,
    /// Starts at 1 and grows by one with every opening of the volume.
    pub epoch: u64,
    pub records: u64,
    pub bytes: u64,
    pub remade: u64,
    /// Changes by others and how recovery resolved them: the first ones, one line each with a path below the volume's root.
    pub local: Vec<String>,
    /// How many more such changes there are.
    pub local_more: u64,
    pub seconds: f64,
    /// The server's own records ([`Tx::note`]) since the last checkpoint, in order.
    pub notes: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ShutdownReport {
    pub seconds: f64,
    /// Checkpoints since the volume was opened.
    pub checkpoints: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub fsyncs: u64,
    pub fdatasyncs: u64,
    pub syncfs: u64,
    pub file_opens: u64,
    /// Files kept open after an access without an open; reading and writing count apart.
    pub cached_descriptors: u64,
    /// Descriptors that report write-back errors of unstable data, one per file.
    pub unstable_files: u64,
    pub nodes: u64,
    pub node_fds: u64,
    /// `None` without a log.
    pub log: Option<landfast_intentlog::Stats>,
}

/// A directory tree served through handles. Cheap to clone.
///
/// Operations block in system calls: run them on worker threads. They change the calling thread's filesystem
/// credentials, umask and capabilities, so such threads should do nothing else with files.
#[derive(Clone)]
pub struct Volume(pub(crate) Arc<VolumeInner>);

pub(crate) struct VolumeInner {
    pub(crate) dir: PathBuf,
    /// Dropped before what holds the filesystem and the lock on the directory: that takes some milliseconds.
    pub(crate) damage: Damage,
    /// The directory, open for reading since before anything was served. Handles are opened relative to its mount, and
    /// syncfs on it reports every write-back error since then.
    pub(crate) mount: OwnedFd,
    /// Locked exclusively while the volume lives.
    pub(crate) state_dir: OwnedFd,
    /// Locks on the directory and on those above it.
    pub(crate) _tree_locks: TreeLocks,
    pub(crate) identity: Mutex<Identity>,
    pub(crate) volume_id: [u8; 16],
    pub(crate) mount_id: u64,
    /// The directory's device as the system reports it, major and minor.
    pub(crate) device: (u32, u32),
    pub(crate) durability: Durability,
    pub(crate) unprivileged: bool,
    pub(crate) injected_flush: Option<Duration>,
    /// A flush must cover the whole filesystem. On btrfs the flush of a single file brings it to disk ahead of earlier
    /// changes elsewhere, and recovery relies on metadata changes reaching the disk in their order.
    pub(crate) flush_whole: bool,
    /// A flush of one object also makes all earlier changes of metadata durable, so with `sync` an operation needs only one.
    pub(crate) one_journal: bool,
    pub(crate) codec: HandleCodec,
    pub(crate) remap: RwLock<Remap>,
    /// `None` where files without a name are not kept over a restart.
    pub(crate) orphans: Option<Orphans>,
    pub(crate) cache: Cache,
    pub(crate) listings: Listings,
    pub(crate) root: OnceLock<Node>,
    /// Part of every change attribute.
    pub(crate) clock: Clock,
    pub(crate) log: Option<(Log, Marker)>,
    /// A log that may still hold records from before a time without a log. The volume's own file names the log once it is
    /// emptied; until then nothing is served.
    pub(crate) log_to_enter: Mutex<Option<LogInUse>>,
    pub(crate) log_place: Option<LogPlace>,
    /// The tag of the root says that the volume is in use ([`tag`]).
    pub(crate) root_tagged: AtomicBool,
    /// The largest transaction number known to be durable in the log.
    pub(crate) durable_seq: AtomicU64,
    /// The number of the last checkpoint whose syncing has begun.
    pub(crate) syncing: AtomicU64,
    pub(crate) failed: OnceLock<String>,
    /// A flush, or writing back, has failed. The kernel tells of an error only once, so a later flush may succeed though data is
    /// lost.
    pub(crate) flush_failed: AtomicBool,
    pub(crate) verifier: AtomicU64,
    pub(crate) fsyncs: AtomicU64,
    pub(crate) fdatasyncs: AtomicU64,
    pub(crate) syncfs: AtomicU64,
    pub(crate) file_opens: AtomicU64,
    pub(crate) descriptor_queue: DescriptorQueue,
    /// The log's batch in which an object last lost its last name.
    pub(crate) last_removal: AtomicU64,
    /// Without a log: changes that are not flushed yet.
    pub(crate) ongoing_flushes: OngoingFlushes,
    pub(crate) witnesses: Witnesses,
    /// Orders the flushes through `mount`.
    pub(crate) shared_syncfs: SharedSyncfs,
}

impl Volume {
    /// Back-pressure: waits while the log is nearly full. Call before running a modifying request.
    pub async fn admit(&self) -> Result<(), Error> {
        self.check()?;
        match self.log() {
            Some((log, _)) => log.admit().await.map_err(|e| self.log_error(&e)),
            None => Ok(()),
        }
    }

    /// Announces a modifying request, so that requests of several clients can share a flush. Only a hint. Hold it from
    /// receipt to [`Tx::finish`], but not while waiting for anything.
    pub fn expect(&self) -> Option<landfast_intentlog::Intent> {
        self.log().map(|(log, _)| log.expect())
    }

    /// True when [`Tx::note`]s survive a crash, that is, with [`Durability::Log`].
    pub fn keeps_notes(&self) -> bool {
        self.log().is_some()
    }

    pub fn durability(&self) -> Durability {
        self.0.durability
    }

    /// Random identity of the volume; never changes.
    pub fn id(&self) -> [u8; 16] {
        self.0.volume_id
    }

    /// Stops cleanly: makes a checkpoint and marks the volume clean. Operations after it fail with [`Error::Failed`].
    pub fn shutdown(&self) -> Result<ShutdownReport, Error> {
        let begun = kernel::instant();
        self.check()?;
        // A witness check now would find the log closed.
        let _quiet = self.0.witnesses.quiet();
        self.assume_root()?;
        match self.log() {
            Some((log, _)) => log.shutdown().map_err(|e| self.fail(format!("log: {e}")))?,
            // Unsafely answered changes become safe now; the other modes have nothing left to flush.
            None => self.flush_all()?,
        }
        self.mark_stopped()?;
        let checkpoints = self.log().map_or(0, |(log, _)| log.stats().checkpoints);
        Ok(ShutdownReport { seconds: begun.elapsed().as_secs_f64(), checkpoints })
    }

    /// Makes a checkpoint now, if the log has anything. Without a log this does nothing.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.check()?;
        self.log().map_or(Ok(()), |(log, _)| log.checkpoint_now().map_err(|e| self.log_error(&e)))
    }

    /// Marks the volume as stopped, after a clean stop of the log. No operation succeeds any more.
    pub(crate) fn mark_stopped(&self) -> Result<(), Error> {
        if let (Some((log, _)), false) = (self.log(), self.0.unprivileged) {
            let number = log.stats().checkpoint;
            self.set_tag(number, true).map_err(|e| self.fail(format!("tag: {e}")))?;
            self.flush_all()?;
        }
        let marked = {
            let mut identity = self.0.identity.lock();
            identity.clean = true;
            identity.save(&self.0.state_dir)
        };
        marked.map_err(|e| self.fail(format!("state directory: {e}")))?;
        // Whoever still holds the volume must get no further success, since nothing would mark the volume unclean.
        let _ = self.0.failed.set("stopped".to_owned());
        Ok(())
    }

    pub fn log_info(&self) -> Option<String> {
        self.log().map(|(log, _)| log.info().to_owned())
    }

    /// Where the log stands, as the options named it.
    pub fn log_place(&self) -> Option<&LogPlace> {
        self.0.log_place.as_ref()
    }

    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Why the volume has failed, if it has. Also takes note of a failure of the log that nobody waited for.
    pub fn failed(&self) -> Option<String> {
        if self.0.failed.get().is_none()
            && let Some(why) = self.log().and_then(|(log, _)| log.failed())
        {
            self.fail(format!("log: {why}"));
        }
        self.0.failed.get().cloned()
    }

    pub fn stats(&self) -> Stats {
        Stats {
            fsyncs: self.0.fsyncs.load(Ordering::Relaxed),
            fdatasyncs: self.0.fdatasyncs.load(Ordering::Relaxed),
            syncfs: self.0.syncfs.load(Ordering::Relaxed),
            file_opens: self.0.file_opens.load(Ordering::Relaxed),
            cached_descriptors: self.0.descriptor_queue.len() as u64,
            unstable_files: self.0.witnesses.len() as u64,
            nodes: self.0.cache.len() as u64,
            node_fds: self.0.cache.fds() as u64,
            log: self.log().map(|(log, _)| log.stats()),
        }
    }

    /// The write verifier. It changes whenever unstable data may be lost.
    pub fn write_verifier(&self) -> [u8; 8] {
        self.0.verifier.load(Ordering::Acquire).to_be_bytes()
    }

    pub(crate) fn log(&self) -> Option<&(Log, Marker)> {
        self.0.log.as_ref()
    }

    /// `Err` once the volume has failed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.failed.get().is_some() { Err(Error::Failed) } else { Ok(()) }
    }

    /// The answer to a request that the log did not take.
    pub(crate) fn log_error(&self, e: &LogError) -> Error {
        match e {
            // The volume is being stopped: the request came too late, and nothing is wrong.
            LogError::Closed => Error::Failed,
            e => self.fail(format!("log: {e}")),
        }
    }

    /// Marks the volume as failed: it can no longer keep its promises. The first reason counts.
    pub(crate) fn fail(&self, why: String) -> Error {
        // The verifier changes first, so that no client trusts its unstable writes.
        self.0.verifier.store(kernel::random_u64(), Ordering::Release);
        if self.0.failed.set(why.clone()).is_ok() {
            if let Some((log, _)) = self.log() {
                // A half-done operation has not recorded all that it did: recovery must not replay any of its batch.
                log.fail(&why);
            }
            let kept = match self.durability() {
                Durability::Log => {
                    "all that was acknowledged as stable is on the disk or in the log and comes back, and clients write \
                     again what was not committed"
                }
                Durability::Sync => {
                    "all that was acknowledged as stable is on the disk, and clients write again what was not committed"
                }
                Durability::Unsafe => "what was acknowledged of late may be lost",
            };
            tracing::error!(
                "{} has FAILED: {why}. Nothing that modifies is acknowledged any more, reads go on. To do: find the device in \
                 the kernel's log, mend or replace it, stop the server, unmount the directory's filesystem and mount it \
                 again, start the server: {kept} (docs/faults.md)",
                self.0.dir.display()
            );
        }
        Error::Failed
    }

    pub(crate) fn assume(&self, cred: &Cred) -> Result<(), Error> {
        if self.0.unprivileged { cred::prepare_once() } else { cred::assume(cred) }
    }

    pub(crate) fn assume_root(&self) -> Result<(), Error> {
        if self.0.unprivileged { cred::prepare_once() } else { cred::assume_root() }
    }

    pub(crate) fn now_ns() -> u64 {
        kernel::wall_clock_ns()
    }

    /// The wall clock, and the floor of change attributes at that time.
    pub(crate) fn now_and_floor_ns(&self) -> (u64, u64) {
        let now_ns = Volume::now_ns();
        let (floor_ns, raised) = self.0.clock.floor_at(now_ns);
        if raised {
            self.keep_floor();
        }
        (now_ns, floor_ns)
    }

    /// Saves the clock's floor after the wall clock was set back, so that the next start knows it. Runs on a thread of its
    /// own as the superuser, since this thread acts as a caller.
    #[cold]
    fn keep_floor(&self) {
        let save = || {
            self.assume_root().map_err(std::io::Error::other)?;
            let mut identity = self.0.identity.lock();
            identity.floor_ns = self.0.clock.floor_ns();
            identity.save(&self.0.state_dir)
        };
        let panicked = |_| Err(std::io::Error::other("a thread panicked"));
        match kernel::on_another_thread(save).unwrap_or_else(panicked) {
            Ok(()) => tracing::warn!("the clock was set back; change attributes go on from where they were"),
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NOSPC | Errno::DQUOT)) => {
                tracing::error!(
                    "the clock was set back, and that could not be written to {}: {e}; clients that are connected after the \
                 next start may show old contents",
                    self.0.dir.display()
                )
            }
            // The error may come from a flush, which makes it final.
            Err(e) => _ = self.fail(format!("writing down that the clock was set back: {e}")),
        }
    }

    /// The node of an object that has just been looked at through a descriptor.
    pub(crate) fn node_of(&self, kh: KernelHandle, mount_id: u64, sx: &Statx) -> Result<Node, Error> {
        if mount_id != self.0.mount_id {
            return Err(Error::Mounted);
        }
        if let Some(node) = self.0.cache.get(&kh) {
            return Ok(node);
        }
        let kind = Kind::from_mode(u32::from(sx.stx_mode)).ok_or(Error::Io)?;
        // A subvolume of btrfs has its own inode numbers, and nothing can be moved into or out of it.
        let subvolume = kind == Kind::Dir && (sx.stx_dev_major, sx.stx_dev_minor) != self.0.device;
        let anothers =
            || !self.0.unprivileged && nested::is_anothers(&self.0.mount, self.0.volume_id, &kh, sx);
        if subvolume || kind == Kind::Dir && self.0.root.get().is_some() && anothers() {
            return Err(Error::Mounted);
        }
        let id = ObjId { kh, btime_ns: btime_ns(sx) };
        let (fileid, fh, created_ns) = {
            let remap = self.0.remap.read();
            let known = remap.outward(&id).unwrap_or(&id);
            (remap.fileid(&id, sx.stx_ino), self.0.codec.encode(known), known.btime_ns)
        };
        let state = self.0.cache.unknown();
        let mut new = NodeInner::new(id, kind, sx.stx_ino, fileid, fh.ok_or(Error::NotSupported)?, state);
        new.created_ns = created_ns;
        let orphan = self.0.orphans.as_ref().is_some_and(|orphans| orphans.contains(&new.id));
        new.orphan.store(orphan, Ordering::Relaxed);
        Ok(self.0.cache.intern(new, Volume::now_ns()))
    }

    /// A descriptor of the node's object; always `O_PATH` for a directory. May leave the thread acting as the superuser: take
    /// descriptors before [`Volume::assume`].
    pub(crate) fn fd(&self, node: &Node) -> Result<Arc<NodeFd>, Error> {
        if let Some(fd) = node.0.open_fd() {
            return Ok(fd);
        }
        if node.0.is_dead() {
            return Err(Error::Stale);
        }
        self.assume_root()?;
        let fd = match kernel::open_handle(&self.0.mount, &node.0.id.kh) {
            Ok(fd) => fd,
            // For an unknown handle the kernel gives ESTALE, some filesystems ENOENT.
            Err(Errno::STALE | Errno::NOENT) => return Err(Error::Stale),
            Err(e) => return Err(e.into()),
        };
        if btime_ns(&kernel::look(&fd)?) != node.0.id.btime_ns {
            return Err(Error::Stale);
        }
        Ok(self.0.cache.keep_fd(node, fd))
    }

    pub(crate) fn forget(&self, node: &Node) {
        if node.kind() == Kind::Dir {
            self.0.listings.forget(node);
        }
        self.0.cache.forget(node);
    }

    /// Tags the directory with the number of a checkpoint; the following `syncfs` makes the tag durable. The root itself is
    /// tagged only at the first checkpoint of a run and at the end, since clients see it change.
    pub(crate) fn set_tag(&self, checkpoint: u64, clean: bool) -> std::io::Result<()> {
        // An experiment may run where root's attributes cannot be set; it is never recovered.
        if self.0.unprivileged {
            return Ok(());
        }
        let tag = Tag { volume_id: self.0.volume_id, checkpoint, clean };
        let write = || {
            if clean || !self.0.root_tagged.load(Ordering::Acquire) {
                // With a new log the numbers start again. While the root's tag is clean, an empty log is accepted; once it is not,
                // the state directory must not hold a larger number from before.
                if tag::read_both(&self.0.mount, &self.0.state_dir)?
                    .is_some_and(|old| old.checkpoint > checkpoint)
                {
                    tag::write(&self.0.state_dir, tag)?;
                }
                tag::write(&self.0.mount, tag)?;
                self.0.root_tagged.store(!clean, Ordering::Release);
            }
            tag::write(&self.0.state_dir, tag)
        };
        let full = |done: &std::io::Result<()>| {
            let errno = done.as_ref().err().and_then(Errno::from_io_error);
            matches!(errno, Some(Errno::NOSPC | Errno::DQUOT))
        };
        let done = write();
        if !full(&done) {
            return done;
        }
        // btrfs counts the space reserved by its transaction until the transaction ends; even a change that needs no space may
        // exceed the quota.
        self.flush_all().map_err(std::io::Error::other)?;
        let done = write();
        if !full(&done) {
            return done;
        }
        reserve::release(&self.0.state_dir)?;
        write()?;
        reserve::take(&self.0.state_dir)
    }

    fn injected(&self) {
        if let Some(pause) = self.0.injected_flush {
            kernel::pause(pause);
        }
    }

    /// Calls fsync; an error is final.
    pub(crate) fn fsync(&self, fd: impl AsFd) -> Result<(), Error> {
        self.0.fsyncs.fetch_add(1, Ordering::Relaxed);
        point("volume.flushing");
        let done = flush::file(fd, &self.0.state_dir).and_then(|()| self.0.damage.check());
        self.injected();
        done.map_err(|e| self.flush_error("fsync", &e))
    }

    /// Calls fdatasync, or syncfs where fdatasync is not enough; an error is final.
    pub(crate) fn fdatasync(&self, fd: impl AsFd) -> Result<(), Error> {
        if self.0.flush_whole {
            return self.flush_all();
        }
        self.0.fdatasyncs.fetch_add(1, Ordering::Relaxed);
        point("volume.flushing");
        let done = flush::data(fd, &self.0.state_dir).and_then(|()| self.0.damage.check());
        self.injected();
        done.map_err(|e| self.flush_error("fdatasync", &e))
    }

    /// Checks that what was written to a file can still be read from it. The kernel sooner or later drops pages that it
    /// could not write back, and then reads return what is on the disk. An error is final.
    pub(crate) fn written_back(&self, fd: impl AsFd) -> Result<(), Error> {
        let done =
            kernel::written_back(fd).map_err(std::io::Error::from).and_then(|()| self.0.damage.check());
        done.map_err(|e| self.flush_error("writing back a file's data", &e))
    }

    /// Calls syncfs, or shares one that began after this call; an error is final.
    pub(crate) fn flush_all(&self) -> Result<(), Error> {
        self.0.shared_syncfs.flush(|| self.syncfs().map_err(|e| self.flush_error("syncfs", &e)))?;
        // Another thread's flush may have failed.
        self.check()
    }

    /// Calls syncfs; an error is final. Only for [`SharedSyncfs::flush`].
    pub(crate) fn syncfs(&self) -> std::io::Result<()> {
        point("volume.flushing");
        self.0.syncfs.fetch_add(1, Ordering::Relaxed);
        let done = flush::all(&self.0.mount).and_then(|()| self.0.damage.check());
        if done.is_err() {
            self.0.flush_failed.store(true, Ordering::SeqCst);
        }
        point("volume.flushed");
        self.injected();
        done
    }

    fn flush_error(&self, what: &str, e: &std::io::Error) -> Error {
        self.0.flush_failed.store(true, Ordering::SeqCst);
        self.fail(format!("{what}: {e}"))
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("dir", &self.0.dir)
            .field("durability", &self.0.durability)
            .finish_non_exhaustive()
    }
}
