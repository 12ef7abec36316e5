//! Starts the log, and does the volume's part of its checkpoints.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use landfast_intentlog::{Checkpoint, Part, Renewed, Snapshot};

use crate::error::OpenError;
use crate::faults::{self, Bug, point};
use crate::kernel;
use crate::limits::ROOM_PAUSE;
use crate::lost_log::Present;
use crate::record::{Fact, Record};
use crate::reserve;
use crate::state;
use crate::volume::{Volume, VolumeInner};

pub trait NoteKeeper: Send + Sync {
    /// Starts to write the whole state as records for [`crate::RecoveryReport::notes`]. Called at each checkpoint, like each
    /// [`Snapshot::part`], while no transaction is joined. It must be quick, must not call the volume, and must not wait for
    /// anybody who holds a transaction. Between two parts transactions may note their changes.
    fn snapshot(&self) -> Box<dyn Snapshot>;
}

impl Volume {
    /// Empties the log after recovery and starts it. First restore the server's state from the report's notes, since each
    /// checkpoint asks `notes` for it from here on.
    pub fn start(&self, notes: Arc<dyn NoteKeeper>) -> Result<(), OpenError> {
        if let Some((log, _)) = self.log() {
            let keeper = Checkpoints::new(self, notes)?;
            log.start(Arc::new(keeper)).map_err(|e| {
                self.fail(format!("log: {e}"));
                OpenError::Failed(e.to_string())
            })?;
        }
        self.enter_log()
    }

    /// Called when the log is empty: from here on its notes count.
    fn enter_log(&self) -> Result<(), OpenError> {
        let Some(in_use) = self.0.log_to_enter.lock().take() else { return Ok(()) };
        let entered = self.assume_root().map_err(std::io::Error::other).and_then(|()| {
            let mut identity = self.0.identity.lock();
            identity.log_in_use = Some(in_use);
            identity.save(&self.0.state_dir)
        });
        entered.map_err(|e| OpenError::Failed(self.fail(format!("state directory: {e}")).to_string()))
    }

    /// As [`Volume::start`], without threads: the simulation drives the log.
    #[cfg(test)]
    pub(crate) fn start_stepped(
        &self,
        notes: Arc<dyn NoteKeeper>,
    ) -> Result<landfast_intentlog::Stepper, OpenError> {
        let keeper = Arc::new(Checkpoints::new(self, notes)?);
        let Some((log, _)) = self.log() else { return Err(OpenError::Options("no log".to_owned())) };
        let stepper = log.start_stepped(keeper);
        let stepper = stepper.map_err(|e| OpenError::Failed(self.fail(format!("log: {e}")).to_string()))?;
        self.enter_log()?;
        Ok(stepper)
    }
}

struct Checkpoints {
    /// Weak, since the volume owns the log and the log owns this.
    volume: Weak<VolumeInner>,
    notes: Arc<dyn NoteKeeper>,
    present: Present,
}

impl Checkpoints {
    fn new(volume: &Volume, notes: Arc<dyn NoteKeeper>) -> Result<Checkpoints, OpenError> {
        let present = Present::of(volume)
            .map_err(|e| OpenError::io(format!("state directory of {}", volume.0.dir.display()), e))?;
        Ok(Checkpoints { volume: Arc::downgrade(&volume.0), notes, present })
    }
}

struct Notes {
    volume: Weak<VolumeInner>,
    notes: Box<dyn Snapshot>,
}

impl Snapshot for Notes {
    fn part(&mut self, bytes: usize) -> Part {
        let Part { records: notes, last } = self.notes.part(bytes);
        let record =
            |bytes: Vec<u8>| Record { seq: 0, facts: vec![Fact::Note { bytes: bytes.into() }] }.encode();
        match notes.into_iter().map(record).collect() {
            Ok(records) => Part { records, last },
            Err(e) => {
                if let Some(volume) = self.volume.upgrade().map(Volume) {
                    volume.fail(format!("state snapshot: {e}"));
                }
                Part { records: Vec::new(), last: true }
            }
        }
    }
}

impl Checkpoints {
    fn volume(&self) -> std::io::Result<Volume> {
        self.volume.upgrade().map(Volume).ok_or_else(|| std::io::Error::other("the volume is closed"))
    }

    /// Tags the volume with the number of a checkpoint. On btrfs that needs room. If there is none, it waits for some while the volume
    /// is served, since an error would be final.
    fn tag(&self, number: u64) -> std::io::Result<Volume> {
        let mut waited = false;
        loop {
            // Nobody is kept from closing the volume meanwhile.
            let volume = self.volume()?;
            volume.assume_root().map_err(std::io::Error::other)?;
            match volume.tag_as_syncing(number) {
                Ok(()) if waited => {
                    reserve::take(&volume.0.state_dir)?;
                    return Ok(volume);
                }
                Ok(()) => return Ok(volume),
                Err(e)
                    if state::is_full(&e)
                        && volume.log().is_some_and(|(log, _)| log.takes_transactions()) =>
                {
                    if !waited {
                        tracing::error!(
                            "{}: a checkpoint waits for room ({e}); when the log is full, all that modifies waits. To do: make \
                             room or raise the quota",
                            volume.0.dir.display()
                        );
                    }
                    waited = true;
                }
                Err(e) => return Err(e),
            }
            drop(volume);
            kernel::pause(ROOM_PAUSE);
        }
    }
}

impl Volume {
    fn tag_as_syncing(&self, number: u64) -> std::io::Result<()> {
        // A volume that gives up its log marks itself clean under this lock, and that mark must stay.
        let _identity = self.0.identity.lock();
        self.check().map_err(std::io::Error::other)?;
        self.0.syncing.store(number, Ordering::SeqCst);
        self.set_tag(number, false)
    }
}

impl Checkpoint for Checkpoints {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        let Some(volume) = self.volume.upgrade().map(Volume) else { return Box::new(Vec::new()) };
        volume.0.remap.write().cut();
        Box::new(Notes { volume: self.volume.clone(), notes: self.notes.snapshot() })
    }

    fn sync(&self, number: u64) -> std::io::Result<()> {
        let volume = self.tag(number)?;
        point("volume.tagged");
        if !faults::bug(Bug::CheckpointBeforeSyncfs) {
            volume.flush_all().map_err(std::io::Error::other)?;
        }
        let purged = {
            let mut remap = volume.0.remap.write();
            remap.drop_purged().then(|| remap.clone())
        };
        // On a full disk a later checkpoint saves it.
        if let Some(remap) = purged
            && remap.save_if_room(&volume.0.state_dir)?
        {
            volume.0.remap.write().is_saved();
        }
        Ok(())
    }

    fn look(&self) -> Result<(), String> {
        self.present.look()
    }

    fn set_aside(&self, number: u64, why: &str) -> std::io::Result<()> {
        self.volume()?.set_log_aside(number, why, &self.present)
    }

    fn resume(&self, number: u64) -> std::io::Result<()> {
        if let Some(volume) = self.volume.upgrade().map(Volume) {
            volume.is_in_use_again()?;
        }
        self.sync(number)
    }

    fn renewed(&self, renewed: &Renewed) {
        if let Some(volume) = self.volume.upgrade().map(Volume) {
            volume.say_renewed(renewed);
        }
    }

    fn lost(&self, why: &str) {
        if let Some(volume) = self.volume.upgrade().map(Volume) {
            volume.give_up(why, self.present.lost());
        }
    }
}
