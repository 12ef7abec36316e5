//! Bugs that the simulation has found in the product, each with the shortest way to it. Seeds lead elsewhere when the
//! simulation changes; these tests do not.

use std::sync::Arc;

use bytes::Bytes;
use landfast_intentlog::Stepper;
use landfast_intentlog::step::Step;

use super::replies::Replies;
use crate::kernel::sim::{self, Flavour, Kernel};
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::options::{Durability, OpenOptions};
use crate::tx::Tx;
use crate::types::{CreateHow, EntryDetail, Kind, OpenMode, SetAttrs, Stable};
use crate::volume::Volume;
use crate::{Cred, Error, Keep, OpenError};

const FLAVOURS: [Flavour; 3] = [Flavour::Ext4, Flavour::Xfs, Flavour::Btrfs];

pub(super) struct Served {
    volume: Volume,
    stepper: Stepper,
}

impl Served {
    /// A new volume on a kernel of its own.
    pub(super) fn first(flavour: Flavour, seed: u64) -> Served {
        sim::install(Some(Kernel::new(flavour, seed, 8192, 256 << 10)));
        Served::open()
    }

    pub(super) fn open() -> Served {
        let log = Some(sim::LOG.into());
        let options = OpenOptions { log, ..OpenOptions::new(sim::DIR, Durability::Log) };
        let (volume, _) = Volume::open(options).unwrap();
        let stepper = volume.start_stepped(Arc::new(Replies::default())).unwrap();
        Served { volume, stepper }
    }

    pub(super) fn request<T>(&mut self, f: impl FnOnce(&Volume, &mut Tx) -> T) -> T {
        let mut tx = self.volume.tx();
        let done = f(&self.volume, &mut tx);
        let receipt = tx.finish();
        while receipt.poll_now().is_none() {
            assert!(!matches!(self.stepper.write(), Step::Idle), "the log does not come to an end");
        }
        done
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(super) fn create(&mut self, name: &[u8], attrs: SetAttrs) -> Result<(Node, OpenFile), Error> {
        let how = CreateHow::Guarded(attrs);
        let made = self.request(|v, tx| v.create(tx, &Cred::root(), &v.root(), name, how, OpenMode::BOTH))?;
        Ok((made.node, made.file))
    }

    pub(super) fn mkdir(&mut self, name: &[u8], attrs: SetAttrs) -> Result<Node, Error> {
        Ok(self.request(|v, tx| v.mkdir(tx, &Cred::root(), &v.root(), name, attrs))?.node)
    }

    pub(super) fn names(&self) -> Vec<Vec<u8>> {
        let page = self.volume.readdir(&Cred::root(), &self.volume.root(), 0, usize::MAX, EntryDetail::Names);
        page.unwrap().entries.into_iter().map(|e| e.name.to_vec()).collect()
    }

    pub(super) fn checkpoint(&mut self) {
        self.stepper.ask_checkpoint();
        for _ in 0..20 {
            self.stepper.checkpoint();
            self.stepper.write();
        }
    }

    /// Ends the process with everything that it had open.
    pub(super) fn end(self) {
        sim::with(Kernel::cut);
    }
}

fn position() -> u64 {
    sim::with(|k| k.position())
}

/// The bug: an allocate was forgotten if its flush succeeded but its record failed. A COMMIT had nothing to record, and
/// recovery cut the file to the last size in the log.
#[test]
fn what_a_failed_allocate_left_is_stable_after_a_commit() {
    let mut seen = 0;
    for call in 1..20 {
        let mut served = Served::first(Flavour::Ext4, 1);
        let (node, file) = served.create(b"a", SetAttrs::default()).unwrap();
        let cut = SetAttrs { size: Some(0), ..SetAttrs::default() };
        served.request(|v, tx| v.setattr(tx, &Cred::root(), &node, Some(&file), cut)).unwrap();
        sim::with(|k| k.faults(vec![call]));
        let done = served.request(|v, tx| v.allocate(tx, &file, 600, 485));
        sim::with(|k| k.faults(Vec::new()));
        if served.volume.failed().is_some() || sim::with(|k| k.must_reboot()) {
            continue;
        }
        let size = served.volume.getattr(&node).unwrap().size;
        served.request(|v, tx| v.commit(tx, &node, 0, 0)).unwrap();
        seen += u64::from(done.is_err() && size > 0);
        drop((node, file));
        served.end();
        sim::with(Kernel::restart_process);
        let served = Served::open();
        let node = served.volume.lookup(&Cred::root(), &served.volume.root(), b"a").unwrap();
        assert_eq!(served.volume.getattr(&node).unwrap().size, size, "call {call} fails, allocate: {done:?}");
    }
    sim::install(None);
    assert!(seen > 0, "no call failed after the change");
}

/// The bug: after a mere `kill -9`, a start that could not read the last mount assumed another mount, as after a power cut. It
/// reset the times of a directory into which somebody had moved something.
#[test]
fn what_somebody_has_moved_stays_though_a_call_fails_at_the_start() {
    let (mut opened, mut refused) = (0, 0);
    for call in 1..200 {
        let mut served = Served::first(Flavour::Btrfs, 1);
        let dir = served.mkdir(b"d", SetAttrs::default()).unwrap();
        let dir_serial = sim::with(|k| k.serial_of(&dir.0.id)).unwrap();
        drop(served.create(b"f", SetAttrs::default()).unwrap());
        drop(dir);
        served.end();
        sim::with(|k| {
            k.restart_process();
            k.wait(2_000_000_000);
            assert!(k.rename_as_stranger((sim::ROOT, b"f"), (dir_serial, b"moved")));
        });
        let left = sim::with(|k| k.peek(dir_serial).unwrap().mtime);
        sim::with(|k| k.faults(vec![call]));
        let log = Some(sim::LOG.into());
        let started = Volume::open(OpenOptions { log, ..OpenOptions::new(sim::DIR, Durability::Log) });
        sim::with(|k| k.faults(Vec::new()));
        refused += u32::from(started.is_err());
        if started.is_ok() {
            opened += 1;
            let now = sim::with(|k| k.peek(dir_serial).unwrap().mtime);
            assert_eq!(now, left, "call {call} failed");
        }
    }
    sim::install(None);
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
}

/// The bug: without a log, the reply that an object is gone was sent after the flush of its removal had failed, since nobody
/// waited for the receipt. (Power cuts found it: the object was there again.)
#[test]
fn what_rests_on_a_flush_that_has_failed_is_not_answered() {
    let mut seen = 0;
    for call in 1..20 {
        sim::install(Some(Kernel::new(Flavour::Btrfs, 1, 8192, 256 << 10)));
        let (volume, _) = Volume::open(OpenOptions::new(sim::DIR, Durability::Sync)).unwrap();
        let mut tx = volume.tx();
        volume.mkdir(&mut tx, &Cred::root(), &volume.root(), b"d", SetAttrs::default()).unwrap();
        tx.finish().wait_blocking().unwrap();
        sim::with(|k| k.faults(vec![call]));
        let mut tx = volume.tx();
        let _ = volume.remove(&mut tx, &Cred::root(), &volume.root(), b"d");
        let _ = tx.finish().wait_blocking();
        sim::with(|k| k.faults(Vec::new()));
        if volume.failed().is_none() {
            continue;
        }
        seen += 1;
        let mut tx = volume.tx();
        tx.rests_on_removals();
        let receipt = tx.finish();
        assert!(receipt.is_refused(), "call {call}: it is answered at once");
        assert_eq!(receipt.wait_blocking(), Err(Error::Failed), "call {call}");
    }
    sim::install(None);
    assert!(seen > 0, "no flush failed");
}

/// The bug: a file was made in a lost directory that passes a project on, and had a second name elsewhere. It was made again in
/// staging without the project, so its name in that directory could not be added (`EXDEV`).
#[test]
fn a_lost_directory_hands_its_project_down_to_what_has_another_name() {
    for seed in 1..40 {
        let mut served = Served::first(Flavour::Xfs, seed);
        let above = served.mkdir(b"p", SetAttrs::default()).unwrap();
        let serial = sim::with(|k| k.serial_of(&above.0.id)).unwrap();
        assert!(sim::with(|k| k.set_project_as_stranger(serial, 42)));
        let root = Cred::root();
        served.request(|v, tx| {
            let dir = v.mkdir(tx, &root, &above, b"d", SetAttrs::default()).unwrap().node;
            let how = CreateHow::Guarded(SetAttrs::default());
            let file = v.create(tx, &root, &dir, b"f", how, OpenMode::BOTH).unwrap().node;
            v.link(tx, &root, &file, &v.root(), b"g").unwrap();
        });
        drop(above);
        served.end();
        sim::with(Kernel::reboot);
        let served = Served::open();
        let v = &served.volume;
        let find = |dir: &Node, name: &[u8]| v.lookup(&root, dir, name).map_err(|e| (seed, e));
        let dir = find(&find(&v.root(), b"p").unwrap(), b"d").unwrap();
        assert_eq!(find(&dir, b"f").unwrap().fh(), find(&v.root(), b"g").unwrap().fh());
    }
    sim::install(None);
}

/// The bug: a file was made in a directory, then moved away; then somebody removed the place of that directory. The directory was
/// made again without its project, hence the file, too, which could then not be moved to its place (`EXDEV`).
#[test]
fn what_was_made_in_a_directory_without_a_place_is_where_it_was_moved_to() {
    let mut lost = 0;
    for seed in 1..40 {
        let mut served = Served::first(Flavour::Xfs, seed);
        let root = Cred::root();
        assert!(sim::with(|k| k.set_project_as_stranger(sim::ROOT, 42)));
        let above = served.mkdir(b"p", SetAttrs::default()).unwrap();
        served.checkpoint();
        served.request(|v, tx| {
            let dir = v.mkdir(tx, &root, &above, b"d", SetAttrs::default()).unwrap().node;
            let how = CreateHow::Guarded(SetAttrs::default());
            drop(v.create(tx, &root, &dir, b"f", how, OpenMode::BOTH).unwrap());
            v.rename(tx, &root, &dir, b"f", &v.root(), b"g").unwrap();
        });
        drop(above);
        served.end();
        sim::with(Kernel::reboot);
        // Only an empty directory can be removed: the one in it must have been lost.
        if !sim::with(|k| k.remove_as_stranger(sim::ROOT, b"p")) {
            continue;
        }
        lost += 1;
        let served = Served::open();
        let v = &served.volume;
        assert!(v.lookup(&root, &v.root(), b"g").is_ok(), "seed {seed}");
    }
    sim::install(None);
    assert!(lost > 0, "the directory was never lost");
}

/// The bug: a directory made in one with a project, then moved to one that recovery handled earlier, was made again without the project.
#[test]
fn a_lost_directory_has_the_project_of_the_directory_in_which_it_was_made() {
    let mut lost = 0;
    for seed in 1..40 {
        let mut served = Served::first(Flavour::Xfs, seed);
        let root = Cred::root();
        // Frees an inode number for the lost directory, so that it is handled before the one in which it was made.
        drop(served.mkdir(b"x", SetAttrs::default()).unwrap());
        let above = served.mkdir(b"p", SetAttrs::default()).unwrap();
        served.request(|v, tx| v.remove(tx, &root, &v.root(), b"x")).unwrap();
        let serial = sim::with(|k| k.serial_of(&above.0.id)).unwrap();
        assert!(sim::with(|k| k.set_project_as_stranger(serial, 42)));
        served.checkpoint();
        let made = served.request(|v, tx| {
            let dir = v.mkdir(tx, &root, &above, b"d", SetAttrs::default()).unwrap().node;
            v.rename(tx, &root, &above, b"d", &v.root(), b"e").unwrap();
            let how = CreateHow::Guarded(SetAttrs::default());
            drop(v.create(tx, &root, &dir, b"f", how, OpenMode::BOTH).unwrap());
            dir.0.id.clone()
        });
        let within = above.0.id.clone();
        drop(above);
        served.end();
        sim::with(Kernel::reboot);
        lost += u64::from(made < within && sim::with(|k| k.serial_of(&made)).is_none());
        let served = Served::open();
        let v = &served.volume;
        let dir = v.lookup(&root, &v.root(), b"e").unwrap();
        for node in [&dir, &v.lookup(&root, &dir, b"f").unwrap()] {
            let project =
                sim::with(|k| k.serial_of(&node.0.id).and_then(|serial| k.peek(serial)).map(|m| m.project));
            assert_eq!(project, Some(42), "seed {seed}");
        }
    }
    sim::install(None);
    assert!(lost > 0, "the directory was never lost");
}

/// The same for a clone.
#[test]
fn what_a_failed_clone_left_is_stable_after_a_commit() {
    let mut seen = 0;
    for call in 1..20 {
        let mut served = Served::first(Flavour::Xfs, 1);
        let (_, from) = served.create(b"a", SetAttrs::default()).unwrap();
        let (node, file) = served.create(b"b", SetAttrs::default()).unwrap();
        for (file, byte) in [(&from, b"x"), (&file, b"y")] {
            let bytes = Bytes::from(byte.repeat(sim::BLOCK));
            served.request(|v, tx| v.write(tx, file, 0, bytes, Stable::FileSync)).unwrap();
        }
        sim::with(|k| k.faults(vec![call]));
        let done = served.request(|v, tx| v.clone_range(tx, &from, 0, &file, 0, 0));
        sim::with(|k| k.faults(Vec::new()));
        if served.volume.failed().is_some() || sim::with(|k| k.must_reboot()) {
            continue;
        }
        let bytes = served.volume.read(&file, 0, 1000).unwrap().0;
        served.request(|v, tx| v.commit(tx, &node, 0, 0)).unwrap();
        seen += u64::from(done.is_err() && bytes[0] == b'x');
        drop((from, node, file));
        served.end();
        sim::with(Kernel::restart_process);
        let served = Served::open();
        let node = served.volume.lookup(&Cred::root(), &served.volume.root(), b"b").unwrap();
        let file = served.volume.open_file(&Cred::root(), &node, OpenMode::BOTH).unwrap();
        assert!(served.volume.read(&file, 0, 1000).unwrap().0 == bytes, "call {call} fails, clone: {done:?}");
    }
    sim::install(None);
    assert!(seen > 0, "no call failed after the change");
}

/// The bug: an object that was made and undone (no quota for its owner) was there again after a power cut in between.
#[test]
fn what_was_taken_back_does_not_come_again() {
    let attrs = || SetAttrs { mode: Some(0o4755), uid: Some(1000), gid: Some(1000), ..SetAttrs::default() };
    let mut between = 0;
    for seed in 0..100 {
        for kind in [Kind::File, Kind::Dir] {
            let mut served = Served::first(FLAVOURS[seed as usize % 3], seed);
            served.checkpoint();
            let before = position();
            sim::with(|k| k.faults(vec![4 + seed % 9]));
            let done = match kind {
                Kind::Dir => served.mkdir(b"a", attrs()).map(drop),
                _ => served.create(b"a", attrs()).map(drop),
            };
            sim::with(|k| k.faults(Vec::new()));
            let after = position();
            if done.is_ok() || served.volume.failed().is_some() {
                continue;
            }
            // The log has this one, so it is not older than the disk.
            served.create(b"b", SetAttrs::default()).unwrap();
            served.end();
            let kept = sim::with(Kernel::reboot);
            between += u64::from(before + 1 < kept && kept < after);
            let served = Served::open();
            assert_eq!(served.names(), [b"b"], "seed {seed}, {kind:?}, {done:?}: {before} {kept} {after}");
            assert_eq!(set_aside(), 0, "seed {seed}");
        }
    }
    sim::install(None);
    assert!(between > 0, "no power cut between making and taking back");
}

fn set_aside() -> usize {
    sim::with(|k| {
        let within = |dir, name: &[u8]| k.peek(dir).unwrap().entries[name].serial;
        let own = within(sim::ROOT, crate::state::STATE_DIR.as_bytes());
        k.peek(within(own, b"lost+found")).unwrap().entries.len()
    })
}

/// The bug: if somebody put something into a removed directory before recovery, the whole directory was set aside, and its handle
/// led to lost+found.
#[test]
fn the_handle_of_a_removed_directory_leads_nowhere() {
    let mut crowded = 0;
    for seed in 0..30 {
        let mut served = Served::first(FLAVOURS[seed as usize % 3], seed);
        let dir = served.mkdir(b"d", SetAttrs::default()).unwrap();
        let (fh, serial) = (dir.fh(), sim::with(|k| k.serial_of(&dir.0.id)).unwrap());
        drop(dir);
        served.checkpoint();
        served.request(|v, tx| v.remove(tx, &Cred::root(), &v.root(), b"d")).unwrap();
        served.end();
        sim::with(Kernel::reboot);
        let stranger = sim::with(|k| k.intrude(serial, b"mine"));
        let served = Served::open();
        assert!(served.names().is_empty());
        assert_eq!(served.volume.resolve(&fh).err(), Some(Error::Stale), "seed {seed}");
        if let Some(stranger) = stranger {
            crowded += 1;
            assert_eq!(sim::with(|k| k.peek(stranger).map(|m| m.nlink)), Some(1));
            assert_eq!(set_aside(), 1);
        }
    }
    sim::install(None);
    assert!(crowded > 0, "the directory was never there again");
}

/// The bug: when the clock was set back and the flush of the file that notes it failed, that was only a message for the operator.
#[test]
fn nothing_is_acknowledged_after_the_flush_of_a_state_file_has_failed() {
    let mut seen = 0;
    for call in 1..30 {
        let mut served = Served::first(Flavour::Ext4, 1);
        let (node, _file) = served.create(b"a", SetAttrs::default()).unwrap();
        sim::with(|k| {
            k.wait(2_000_000_000);
            k.set_clock(-10_000_000_000);
            k.faults(vec![call]);
        });
        let _ = served.volume.getattr(&node);
        sim::with(|k| k.faults(Vec::new()));
        if sim::with(|k| k.flush_failed) {
            seen += 1;
            assert_eq!(served.create(b"b", SetAttrs::default()).err(), Some(Error::Failed), "call {call}");
        }
    }
    sim::install(None);
    assert!(seen > 0, "no flush of a state file failed");
}

/// The bug: a truncation that was on disk but not in the log was undone as far as the log reached; older data became zeros.
#[test]
fn sizes_that_are_ahead_of_the_log_are_there_as_a_whole() {
    for sizes in [&[300][..], &[300, 1100], &[300, 1100, 1000], &[1150, 200, 1500], &[100, 0]] {
        let mut served = Served::first(Flavour::Ext4, 1);
        let (node, file) = served.create(b"a", SetAttrs::default()).unwrap();
        for (offset, byte) in [(0, b"x"), (800, b"y")] {
            let bytes = Bytes::from(byte.repeat(if offset == 0 { 1000 } else { 400 }));
            served.request(|v, tx| v.write(tx, &file, offset, bytes, Stable::FileSync)).unwrap();
            // In the end only the last one is in the log.
            served.stepper.ask_checkpoint();
            while offset == 0 && !served.stepper.covered() {
                let steps = [served.stepper.checkpoint(), served.stepper.write()];
                assert!(
                    steps.iter().any(|s| matches!(s, Step::Did(_))),
                    "the checkpoint does not come to an end"
                );
            }
        }
        let mut tx = served.volume.tx();
        for size in sizes {
            let cut = SetAttrs { size: Some(*size), ..SetAttrs::default() };
            served.volume.setattr(&mut tx, &Cred::root(), &node, Some(&file), cut).unwrap();
        }
        drop(tx.finish());
        let before = served.volume.read(&file, 0, 2000).unwrap().0;
        drop((node, file));
        served.end();
        sim::with(Kernel::restart_process);
        let served = Served::open();
        let node = served.volume.lookup(&Cred::root(), &served.volume.root(), b"a").unwrap();
        let file = served.volume.open_file(&Cred::root(), &node, OpenMode::BOTH).unwrap();
        assert!(served.volume.read(&file, 0, 2000).unwrap().0 == before, "{sizes:?}");
        drop((node, file));
        served.end();
    }
    sim::install(None);
}

/// Recovery would take two spellings of one name for two names.
#[test]
fn a_directory_that_ignores_case_is_refused_and_left_as_it_was() {
    for flavour in FLAVOURS {
        let mut kernel = Kernel::new(flavour, 1, 8192, 256 << 10);
        kernel.folds_case = true;
        sim::install(Some(kernel));
        let open = || Volume::open(OpenOptions::new(sim::DIR, Durability::Sync));
        assert!(matches!(open(), Err(OpenError::FoldsCase(_))), "{flavour:?}");
        // It leaves nothing behind, and once the directory distinguishes case, it is served.
        sim::with(|kernel| kernel.folds_case = false);
        assert!(open().is_ok(), "{flavour:?}");
    }
}

/// The bug: the kernel failed to write back data that was also in the log, and told somebody else. A COMMIT of other data of the
/// file then recorded that nothing older was needed, and recovery left a hole.
#[test]
fn the_log_keeps_what_was_lost_before_a_large_commit() {
    for (seed, flavour) in (1..).zip(FLAVOURS) {
        let mut served = Served::first(flavour, seed);
        let (node, file) = served.create(b"a", SetAttrs::default()).unwrap();
        let logged = Bytes::from(b"x".repeat(500));
        served.request(|v, tx| v.write(tx, &file, 0, logged.clone(), Stable::FileSync)).unwrap();
        drop(file);
        let serial = sim::with(|k| k.serial_of(&node.0.id)).unwrap();
        sim::with(|k| {
            while !k.fail_write_back(serial) {}
            k.told_to_stranger(serial);
            k.drop_clean(serial);
        });
        let large = Bytes::from(b"y".repeat(crate::limits::LOGGED_DATA_MAX as usize + 1));
        let done = served.request(|v, tx| {
            let file = v.open_stateless(&Cred::root(), &node, OpenMode::BOTH, Keep::Now)?;
            v.write(tx, &file, 1024, large, Stable::Unstable)?;
            v.commit(tx, &node, 0, 0)
        });
        assert_eq!(done, Err(Error::Failed), "{flavour:?}");
        drop(node);
        served.end();
        sim::with(Kernel::reboot);
        let served = Served::open();
        let node = served.volume.lookup(&Cred::root(), &served.volume.root(), b"a").unwrap();
        let file = served.volume.open_file(&Cred::root(), &node, OpenMode::BOTH).unwrap();
        assert_eq!(served.volume.read(&file, 0, 500).unwrap().0, logged, "{flavour:?}");
        drop((node, file));
        served.end();
    }
    sim::install(None);
}

/// The server itself commits data that no client commits, and a later COMMIT flushes nothing.
#[test]
fn old_unstable_data_is_committed_by_the_server() {
    for (seed, flavour) in (1..).zip(FLAVOURS) {
        let mut served = Served::first(flavour, seed);
        let (node, file) = served.create(b"a", SetAttrs::default()).unwrap();
        let [older, newer] = [b"x", b"y"].map(|byte| Bytes::from(byte.repeat(900)));
        served.request(|v, tx| v.write(tx, &file, 0, older, Stable::FileSync)).unwrap();
        served.request(|v, tx| v.write(tx, &file, 0, newer.clone(), Stable::Unstable)).unwrap();
        assert!(!served.volume.has_idle());
        sim::with(|k| k.wait(crate::limits::UNSTABLE_OLD.as_nanos() as u64));
        assert!(served.volume.has_idle());
        served.volume.close_idle();
        assert_eq!(served.volume.stats().unstable_files, 0, "{flavour:?}");
        sim::with(|k| k.called = Some(Vec::new()));
        served.request(|v, tx| v.commit(tx, &node, 0, 0)).unwrap();
        let called = sim::with(|k| k.called.take()).unwrap();
        assert!(!called.iter().any(|call| ["fsync", "syncfs"].contains(call)), "{called:?}");
        drop((node, file));
        served.end();
        sim::with(Kernel::reboot);
        let served = Served::open();
        let node = served.volume.lookup(&Cred::root(), &served.volume.root(), b"a").unwrap();
        let file = served.volume.open_file(&Cred::root(), &node, OpenMode::BOTH).unwrap();
        assert_eq!(served.volume.read(&file, 0, 1000).unwrap().0, newer, "{flavour:?}");
        drop((node, file));
        served.end();
    }
    sim::install(None);
}

/// The bug: only the time of the start was known after a power cut, and of hours since then the clock that came up behind could take back
/// more than an unclean start adds.
#[test]
fn change_attributes_grow_though_the_clock_comes_up_behind() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    for (seed, flavour) in (1..).zip(FLAVOURS) {
        let mut served = Served::first(flavour, seed);
        let (node, file) = served.create(b"a", SetAttrs::default()).unwrap();
        sim::with(|k| k.wait(5 * HOUR_NS));
        let data = Bytes::from_static(b"data");
        served.request(|v, tx| v.write(tx, &file, 0, data, Stable::FileSync)).unwrap();
        let before = served.volume.getattr(&node).unwrap().change;
        served.checkpoint();
        drop((node, file));
        served.end();
        sim::with(Kernel::reboot);
        sim::with(|k| k.set_clock(-4 * HOUR_NS as i64));
        let served = Served::open();
        let node = served.volume.lookup(&Cred::root(), &served.volume.root(), b"a").unwrap();
        let after = served.volume.getattr(&node).unwrap().change;
        assert!(after >= before, "{flavour:?}: {after} after {before}");
        drop(node);
        served.end();
    }
    sim::install(None);
}

/// The bug: what was made again came with the label of staging, and SELinux kept others from it.
#[test]
fn what_is_made_again_has_the_security_label_of_its_directory() {
    let mut lost = 0;
    for seed in 1..40 {
        let mut served = Served::first(Flavour::Ext4, seed);
        let root = Cred::root();
        let dir = served.mkdir(b"d", SetAttrs::default()).unwrap();
        let serial = sim::with(|k| k.serial_of(&dir.0.id)).unwrap();
        sim::with(|k| k.set_xattr_as_stranger(serial, b"security.selinux", b"public_content_rw_t"));
        served.checkpoint();
        served.request(|v, tx| {
            let how = CreateHow::Guarded(SetAttrs::default());
            drop(v.create(tx, &root, &dir, b"f", how, OpenMode::BOTH).unwrap());
        });
        drop(dir);
        served.end();
        sim::with(Kernel::reboot);
        lost += u32::from(!sim::with(|k| k.peek(serial).unwrap().entries.contains_key(&b"f"[..])));
        let served = Served::open();
        let file = sim::with(|k| k.peek(serial).unwrap().entries.get(&b"f"[..]).unwrap().serial);
        let label = sim::with(|k| k.peek(file).unwrap().xattrs.get(&b"security.selinux"[..]).cloned());
        assert_eq!(label.as_deref(), Some(&b"public_content_rw_t"[..]), "seed {seed}");
        served.end();
    }
    sim::install(None);
    assert!(lost > 0, "the file was never lost");
}
