//! How much space a caller has, and whether a change leaves what is kept for others ([`crate::reservations`]).

use crate::reservations::{Reservations, Room};
use crate::state::Millis;
use landfast_volume::{Attrs, Cred, Error, FsStat, Volume};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// The reservations, and whether there are any. A leaf in the order of locks.
#[derive(Debug, Default)]
pub(crate) struct Space {
    any: AtomicBool,
    kept: Mutex<Reservations>,
}

/// What a filesystem has for users other than root.
fn available(fs: &FsStat) -> Room {
    // Some filesystems make objects as long as there is space.
    let files = if fs.total_files == 0 { u64::MAX } else { fs.free_files };
    Room { bytes: fs.avail_bytes, files }
}

fn quota(volume: &Volume, uid: u32) -> Result<Option<Room>, Error> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let left = volume.quota_left(uid, now.as_secs())?;
    Ok(left.map(|left| Room { bytes: left.bytes, files: left.files }))
}

impl Space {
    /// Whether something is kept for anybody. All that a change costs where nobody has a write directory delegation.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn others(&self, now: Millis, volume: &Volume, by: Option<u64>, uid: u32) -> (Room, Room) {
        if !self.any() {
            return (Room::default(), Room::default());
        }
        let mut kept = self.kept.lock();
        if let Some(any) = kept.sweep(now) {
            self.any.store(any, Ordering::Release);
        }
        let device = volume.device();
        (kept.of_others(now, device, by), kept.of_user_elsewhere(now, device, by, uid))
    }

    /// The smallest limit of this user's: of the filesystem, and of the quota; less what is kept for others.
    pub(crate) fn of_user(
        &self,
        now: Millis,
        volume: &Volume,
        cred: &Cred,
        by: Option<u64>,
    ) -> Result<Room, Error> {
        let (others, elsewhere) = self.others(now, volume, by, cred.uid);
        let of_fs = available(&volume.statfs()?).less(others);
        Ok(match quota(volume, cred.uid)? {
            Some(left) => of_fs.least(left.less(elsewhere)),
            None => of_fs,
        })
    }

    /// The same, and keeps a part of it for the client. `None`: nothing can be kept now.
    pub(crate) fn keep(
        &self,
        (now, until): (Millis, Millis),
        volume: &Volume,
        cred: &Cred,
        client: u64,
    ) -> Result<Option<Room>, Error> {
        let told = self.of_user(now, volume, cred, Some(client))?;
        let mut kept = self.kept.lock();
        let keeps = kept.keep(now, until, (volume.device(), client, Some(cred.uid)), told);
        self.any.store(true, Ordering::Release);
        Ok(keeps.then_some(told))
    }

    /// After a start nobody knows what clients were told before: as much as may be is kept for each that has a delegation.
    pub(crate) fn keep_after_start(&self, until: Millis, volume: &Volume, clients: &[u64]) {
        let Ok(fs) = volume.statfs() else { return };
        // They may have been told of more: others have used space since.
        let told = available(&fs).plus(available(&fs));
        let mut kept = self.kept.lock();
        for client in clients {
            kept.keep(0, until, (volume.device(), *client, None), told);
            self.any.store(true, Ordering::Release);
        }
    }

    /// A client has written so much, or made something.
    pub(crate) fn uses(&self, volume: &Volume, client: Option<u64>, used: Room) {
        if let Some(client) = client
            && self.any.load(Ordering::Acquire)
        {
            self.kept.lock().uses(volume.device(), client, used);
        }
    }

    /// Whether a change that needs so much leaves what is kept for others than its caller's client.
    ///
    /// # Errors
    /// `NoSpace`, `Quota`.
    pub(crate) fn leaves(
        &self,
        now: Millis,
        volume: &Volume,
        cred: &Cred,
        by: Option<u64>,
        bytes: u64,
    ) -> Result<(), Error> {
        let (others, elsewhere) = self.others(now, volume, by, cred.uid);
        if others != Room::default() && !available(&volume.statfs()?).fits(others, bytes) {
            return Err(Error::NoSpace);
        }
        if elsewhere != Room::default()
            && quota(volume, cred.uid)?.is_some_and(|left| !left.fits(elsewhere, bytes))
        {
            return Err(Error::Quota);
        }
        Ok(())
    }
}

/// Whether a write needs no space: all of it is where the file has some.
pub(crate) fn is_in_place(attrs: &Attrs, offset: u64, len: usize) -> bool {
    let end = offset.saturating_add(len as u64);
    end <= attrs.size && attrs.used >= attrs.size
}
