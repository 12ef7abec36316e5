//! What the simulation has found in the product, each in the shortest way that leads there. Seeds change their way with the
//! simulation; these do not.

use std::sync::Arc;

use bytes::Bytes;
use landfast_intentlog::step::{Step, Stepper};

use super::world::Replies;
use crate::kernel::sim::{self, Flavour, Kernel};
use crate::node::{Node, OpenFile};
use crate::tx::Tx;
use crate::types::{CreateHow, OpenMode, SetAttrs, Stable};
use crate::volume::{Durability, OpenOptions, Volume};
use crate::{Cred, Error};

/// A volume on this thread's kernel, with its log.
struct Served {
    volume: Volume,
    stepper: Stepper,
}

impl Served {
    /// On a kernel of its own.
    fn first(flavour: Flavour, seed: u64) -> Served {
        sim::install(Some(Kernel::new(flavour, seed, 8192, 256 << 10)));
        Served::open()
    }

    fn open() -> Served {
        let log = Some(sim::LOG.into());
        let options = OpenOptions { log, ..OpenOptions::new(sim::DIR, Durability::Log) };
        let (volume, _) = Volume::open(options).unwrap();
        let stepper = volume.start_stepped(Arc::new(Replies::default())).unwrap();
        Served { volume, stepper }
    }

    /// One request, up to its reply.
    fn request<T>(&mut self, f: impl FnOnce(&Volume, &mut Tx) -> T) -> T {
        let mut tx = self.volume.tx();
        let done = f(&self.volume, &mut tx);
        let receipt = tx.finish();
        while receipt.poll_now().is_none() {
            assert!(!matches!(self.stepper.write(), Step::Idle), "the log does not come to an end");
        }
        done
    }

    fn create(&mut self, name: &[u8], attrs: SetAttrs) -> Result<(Node, OpenFile), Error> {
        let how = CreateHow::Guarded(attrs);
        let made = self.request(|v, tx| v.create(tx, &Cred::root(), &v.root(), name, how, OpenMode::BOTH))?;
        Ok((made.node, made.file))
    }

    /// The process ends. What it had open goes with it.
    fn end(self) {
        sim::with(Kernel::cut);
    }
}

/// An allocate whose flush had come to its end and whose record had not was forgotten: a COMMIT had nothing to say, and
/// recovery cut the file to the last size that the log knew.
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
        if served.volume.failed().is_some() {
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

/// The same for what a clone brought.
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
        if served.volume.failed().is_some() {
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
