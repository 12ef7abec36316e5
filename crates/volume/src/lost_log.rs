//! What a volume does when its log or its state directory is lost: removed, replaced, truncated, overwritten.
//!
//! The log looks several times a second ([`landfast_intentlog::Checkpoint::look`]). Once something is lost, nothing more is
//! acknowledged. All acknowledged changes, including those between the loss and its detection, are applied to the filesystem.
//! So `syncfs` makes them durable without the log, and the volume is marked as after a clean stop. The next start then accepts
//! a new log, and knows the lost one as old if it comes back.
//!
//! If the log can make a new one at once, it does, the volume is marked as in use again, and service continues
//! ([`landfast_intentlog::Checkpoint::set_aside`]). If the state directory is lost, it is written again from memory, and the
//! next start recovers as after a crash.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use landfast_intentlog::Renewed;
use landfast_intentlog::device::is_block_device;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::faults::point;
use crate::flush;
use crate::identity::IDENTITY_FILE;
use crate::kernel::random_u64;
use crate::kernel::{self, OwnedFd};
use crate::limits::MISSING_LOOKS;
use crate::marker::MARKER_FILE;
use crate::remap::REMAP_FILE;
use crate::state::STATE_DIR;
use crate::tag;
use crate::volume::Volume;

/// Files that must stay in the state directory while the volume is served.
const FILES: [&str; 3] = [IDENTITY_FILE, REMAP_FILE, MARKER_FILE];

/// Checks whether the state directory is still there. Has its own descriptors, so it keeps no volume alive.
pub(crate) struct Present {
    root: OwnedFd,
    /// The state directory, without its lock.
    state: OwnedFd,
    /// Device and inode number of the state directory, and of the marker, whose time is set through a descriptor.
    state_dir: (u64, u64),
    marker: (u64, u64),
    path: String,
    /// How many looks in a row found something missing.
    missing: AtomicU32,
}

fn identity(stat: &rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

impl Present {
    pub(crate) fn of(volume: &Volume) -> io::Result<Present> {
        let state_dir = &volume.0.state_dir;
        let marker = kernel::statat(state_dir, MARKER_FILE, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Present {
            root: kernel::reopen(&volume.0.mount, OFlags::PATH | OFlags::DIRECTORY)?,
            state: kernel::reopen(state_dir, OFlags::PATH | OFlags::DIRECTORY)?,
            state_dir: identity(&kernel::fstat(state_dir)?),
            marker: identity(&marker),
            path: volume.0.dir.join(STATE_DIR).display().to_string(),
            missing: AtomicU32::new(0),
        })
    }

    /// `Err` with what is missing, once it has been missing for long enough.
    pub(crate) fn look(&self) -> Result<(), String> {
        let Some(what) = self.missing() else {
            self.missing.store(0, Ordering::Relaxed);
            return Ok(());
        };
        let looks = self.missing.fetch_add(1, Ordering::Relaxed) + 1;
        if looks < MISSING_LOOKS { Ok(()) } else { Err(what) }
    }

    /// Whether enough looks in a row have found something missing.
    pub(crate) fn lost(&self) -> bool {
        self.missing.load(Ordering::Relaxed) >= MISSING_LOOKS
    }

    fn missing(&self) -> Option<String> {
        let path = &self.path;
        match kernel::statat(&self.root, STATE_DIR, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if identity(&there) == self.state_dir => {}
            Ok(_) => return Some(format!("{path} was replaced: something else stands there")),
            // An export that is deleted as a whole has nothing left to promise: its handles are stale.
            Err(Errno::NOENT) if self.is_deleted() => return None,
            Err(Errno::NOENT | Errno::NOTDIR) => return Some(format!("{path} was removed or renamed")),
            // An error of the look itself does not mean that the directory is lost.
            Err(_) => return None,
        }
        for file in FILES {
            // `path` is still this directory, as checked above.
            match kernel::statat(&self.state, file, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(there) if file == MARKER_FILE && identity(&there) != self.marker => {
                    return Some(format!("{path}/{file} was replaced: another file stands there"));
                }
                Err(Errno::NOENT) => return Some(format!("{path}/{file} was removed")),
                Ok(_) | Err(_) => {}
            }
        }
        None
    }

    fn is_deleted(&self) -> bool {
        kernel::look(&self.root).is_ok_and(|look| look.stx_nlink == 0)
    }
}

/// What an operator does with one half of a log. (Not removing it, if it is a device: that would remove its name in `/dev`.)
fn how_to_empty(log: &Path) -> String {
    let is_device = is_block_device(log);
    let log = log.display();
    if is_device {
        format!("erase all of {log} (blkdiscard -z {log})")
    } else {
        format!("remove {log} if it is still there")
    }
}

/// What is kept, and what to do, when the disk refuses to take it.
fn nothing_kept(e: &io::Error) -> (String, String) {
    (
        format!(
            "Making the directory durable has failed, too ({e}): what was acknowledged since the last checkpoint may be lost"
        ),
        "mend the disk, keep what is left of the log, and see docs/faults.md before the server is started again".to_owned(),
    )
}

impl Volume {
    /// Called when the log is lost, for the reason `why`, while no transaction is open and none can begin. Makes applied changes
    /// durable and marks the volume as after a clean stop.
    pub(crate) fn set_log_aside(&self, number: u64, why: &str, present: &Present) -> io::Result<()> {
        if let Some(missing) = present.missing() {
            return Err(io::Error::other(missing));
        }
        self.assume_root().map_err(io::Error::other)?;
        self.check().map_err(io::Error::other)?;
        // Like a checkpoint, until all is durable.
        self.0.syncing.store(number, Ordering::SeqCst);
        self.set_tag_locked(number)?;
        // Whoever shares this flush must find that the volume has failed.
        self.0.shared_syncfs.flush(|| self.syncfs().inspect_err(|e| self.give_up_with_nothing(why, e)))?;
        self.check().map_err(io::Error::other)?;
        point("lost.synced");
        self.mark_without_log(number).inspect_err(|e| self.give_up_with_nothing(why, e))?;
        point("lost.marked");
        Ok(())
    }

    fn set_tag_locked(&self, number: u64) -> io::Result<()> {
        let _identity = self.0.identity.lock();
        self.set_tag(number, false)
    }

    /// A new log has replaced the lost one: the volume is no longer marked as after a clean stop.
    pub(crate) fn is_in_use_again(&self) -> io::Result<()> {
        self.assume_root().map_err(io::Error::other)?;
        let mut identity = self.0.identity.lock();
        identity.clean = false;
        identity.save(&self.0.state_dir)
    }

    pub(crate) fn say_renewed(&self, renewed: &Renewed) {
        let aside: Vec<String> = renewed.aside.iter().map(|path| path.display().to_string()).collect();
        let aside = match aside.as_slice() {
            [] => String::new(),
            [one] => format!("What stood in its place is {one} now. "),
            all => format!("What stood in their places is {} now. ", all.join(" and ")),
        };
        tracing::error!(
            "{}: {}. Nothing was acknowledged for {:.1} s since this was noticed; all that was before is on the disk, a new log was \
             made in the same place, and work goes on. {aside}To do: find out who did that (docs/faults.md)",
            self.0.dir.display(),
            renewed.why,
            renewed.took.as_secs_f64()
        );
    }

    /// Like [`Volume::give_up`], after the flush of the directory has failed: that is not tried again.
    fn give_up_with_nothing(&self, why: &str, e: &io::Error) {
        self.0.verifier.store(random_u64(), Ordering::Release);
        if self.0.failed.set(why.to_owned()).is_err() {
            return;
        }
        if let Some((log, _)) = self.log() {
            log.fail(why);
        }
        let (kept, to_do) = nothing_kept(e);
        self.say_given_up(why, &kept, &to_do);
    }

    fn say_given_up(&self, why: &str, kept: &str, to_do: &str) {
        tracing::error!(
            "{} has FAILED: {why}. Nothing that modifies is acknowledged any more, reads go on. {kept}. To do: {to_do} \
             (docs/faults.md)",
            self.0.dir.display()
        );
    }

    /// Called when the log or (`state_lost`) the state directory is lost. Acknowledges nothing more, makes acknowledged changes
    /// durable, and reports it.
    pub(crate) fn give_up(&self, why: &str, state_lost: bool) {
        let Some((log, marker)) = self.log() else { return };
        // The verifier changes first, so that no client trusts its unstable writes.
        self.0.verifier.store(random_u64(), Ordering::Release);
        if self.0.failed.set(why.to_owned()).is_err() {
            return;
        }
        log.fail(why);
        // Nothing changes any more once the running transactions have ended. One that hangs was not acknowledged.
        log.await_transactions();
        let kept = self.assume_root().map_err(io::Error::other).and_then(|()| self.flush_failed_volume());
        let (kept, to_do) = match kept {
            Err(e) => nothing_kept(&e),
            Ok(()) if state_lost => match self.write_state_again(marker) {
                Ok(()) => (
                    "All that was acknowledged is on the disk, and the state directory was written again from memory".to_owned(),
                    "stop the server and start it again".to_owned(),
                ),
                Err(e) => (
                    format!("All that was acknowledged is on the disk, but the state directory could not be written again ({e})"),
                    format!("put {STATE_DIR} back, stop the server and start it again"),
                ),
            },
            Ok(()) => match self.mark_without_log(log.stats().checkpoint) {
                Ok(()) => (
                    "All that was acknowledged is on the disk, without the log; the replies that it kept for clients that repeat a \
                     request are gone"
                        .to_owned(),
                    format!("stop the server, {}, start the server: it makes a new log", self.how_to_empty_log()),
                ),
                Err(e) => (
                    format!(
                        "All that was acknowledged is on the disk, without the log, but the directory could not be marked so ({e})"
                    ),
                    "see \"giving a log up\" in docs/internals/recovery.md".to_owned(),
                ),
            },
        };
        self.say_given_up(why, &kept, &to_do);
    }

    /// Makes durable what a failed volume has acknowledged. Fails if any flush has failed before, even one that was under way just now.
    fn flush_failed_volume(&self) -> io::Result<()> {
        self.0.shared_syncfs.flush(|| self.syncfs())?;
        match self.0.flush_failed.load(Ordering::SeqCst) {
            true => Err(io::Error::other("an earlier flush of the filesystem failed")),
            false => Ok(()),
        }
    }

    /// What an operator does with the rest of the log, so that a new one can be made there.
    fn how_to_empty_log(&self) -> String {
        let first = self.0.identity.lock().log_in_use.as_ref().map(|log| log.path.clone());
        let others = self.0.log_place.iter().flat_map(|place| place.paths().iter().skip(1));
        let each: Vec<String> = first.iter().chain(others).map(|path| how_to_empty(path)).collect();
        if each.is_empty() { "remove the log".to_owned() } else { each.join(", ") }
    }

    fn mark_without_log(&self, checkpoint: u64) -> io::Result<()> {
        // A checkpoint that began earlier sets its tag first, or finds that the volume has failed.
        let mut identity = self.0.identity.lock();
        // In this order: with only the file marked, the lost log, put back, would still be replayed; with only the tag, both it and
        // a new log would be refused.
        identity.clean = true;
        identity.save(&self.0.state_dir)?;
        if !self.0.unprivileged {
            self.set_tag(checkpoint, true)?;
        }
        flush::all(&self.0.mount)
    }

    /// Writes the state directory as it was, so that the next start recovers from the log as after a crash.
    fn write_state_again(&self, marker: &crate::marker::Marker) -> io::Result<()> {
        let made = match kernel::mkdirat(&self.0.mount, STATE_DIR, Mode::from_raw_mode(0o700)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(e.into()),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = kernel::openat(&self.0.mount, STATE_DIR, flags, Mode::empty())?;
        let own = identity(&kernel::fstat(&dir)?) == identity(&kernel::fstat(&self.0.state_dir)?);
        if !made && !own {
            return Err(io::Error::other("something else stands in its place"));
        }
        // The number of the last checkpoint, which stands on the directory itself.
        if let Some(tag) = tag::read(&self.0.state_dir)? {
            tag::write(&dir, tag)?;
        }
        marker.make_again(&dir)?;
        self.0.remap.read().save(&dir)?;
        self.0.identity.lock().save(&dir)?;
        flush::all(&self.0.mount)
    }
}
