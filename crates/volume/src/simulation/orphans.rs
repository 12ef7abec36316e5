//! Files that have lost their last name and are kept: limits, and what stops in the middle.

use super::found::Served;
use crate::kernel::sim::{self, Flavour, Kernel};
use crate::limits::ORPHANS_MAX;
use crate::node::Node;
use crate::types::SetAttrs;
use crate::{Cred, Error, Held};

const FLAVOURS: [Flavour; 3] = [Flavour::Ext4, Flavour::Xfs, Flavour::Btrfs];

/// REMOVE of a file in the root that somebody has open. Returns whether it is kept.
fn remove(served: &mut Served, name: &[u8]) -> Result<bool, Error> {
    let removed = served.request(|v, tx| {
        v.remove_keeping(tx, &Cred::root(), &v.root(), name, |_| Ok(()), |_| Held::Promised)
    });
    removed.map(|removed| removed.kept.is_some())
}

fn release(served: &mut Served, node: &Node) -> bool {
    served.request(|v, tx| v.release(tx, node, || true)).unwrap()
}

#[test]
fn a_volume_keeps_so_many_orphans() {
    let mut served = Served::first(Flavour::Ext4, 1);
    let names: Vec<Vec<u8>> = (0..=ORPHANS_MAX as u8).map(|n| vec![b'a' + n]).collect();
    let mut nodes = Vec::new();
    for (n, name) in names.iter().enumerate() {
        nodes.push(served.create(name, SetAttrs::default()).unwrap().0);
        assert_eq!(remove(&mut served, name).unwrap(), n < ORPHANS_MAX);
    }
    let last = nodes.pop().unwrap();
    assert_eq!(served.volume().resolve(&last.fh()).err(), Some(Error::Stale));
    assert_eq!(served.volume().orphans_len(), ORPHANS_MAX);
    assert!(!served.request(|v, tx| v.release(tx, &nodes[0], || false)).unwrap(), "it is open");
    assert!(release(&mut served, &nodes[0]));
    assert!(!release(&mut served, &nodes[0]), "it is gone");
    assert_eq!(served.volume().resolve(&nodes[0].fh()).err(), Some(Error::Stale));
    let (mut gone, mut kept) = (false, false);
    served.volume().unless_orphan(&nodes[0], || gone = true);
    served.volume().unless_orphan(&nodes[1], || kept = true);
    assert!(gone && !kept);
    served.create(b"again", SetAttrs::default()).unwrap();
    assert!(remove(&mut served, b"again").unwrap(), "there is a place");
    sim::install(None);
}

/// Whatever call fails: the file has its name and no place among the orphans, or the other way round.
#[test]
fn a_removal_that_fails_takes_the_place_back() {
    let (mut failed, mut done) = (0, 0);
    for call in 1..30 {
        let mut served = Served::first(Flavour::Ext4, 1);
        let node = served.create(b"f", SetAttrs::default()).unwrap().0;
        sim::with(|k| k.faults(vec![call]));
        let removed = remove(&mut served, b"f");
        sim::with(|k| k.faults(Vec::new()));
        if served.volume().failed().is_some() || sim::with(|k| k.must_reboot()) {
            continue;
        }
        let named = !served.names().is_empty();
        match removed {
            Ok(kept) => assert_eq!((named, served.volume().orphans_len()), (false, usize::from(kept))),
            Err(_) => assert_eq!((named, served.volume().orphans_len()), (true, 0), "call {call}"),
        }
        if named {
            assert_eq!(served.volume().getattr(&node).unwrap().nlink, 1, "call {call}");
        }
        failed += u32::from(removed.is_err());
        done += u32::from(removed.is_ok());
    }
    sim::install(None);
    assert!(failed > 0 && done > 0, "{failed} failed, {done} were done");
}

/// The power goes at any call of a removal, and the disk has any first part of it.
#[test]
fn after_a_power_cut_it_has_its_name_or_is_kept() {
    let (mut kept, mut named) = (0, 0);
    for seed in 0..150 {
        let mut served = Served::first(FLAVOURS[seed as usize % 3], seed);
        let node = served.create(b"f", SetAttrs::default()).unwrap().0;
        let fh = node.fh();
        served.checkpoint();
        let cut = seed % 30 > 0;
        if cut {
            sim::with(|k| k.cut_at(Some(seed % 30)));
        }
        let mut tx = served.volume().tx();
        let v = served.volume().clone();
        let removed =
            v.remove_keeping(&mut tx, &Cred::root(), &v.root(), b"f", |_| Ok(()), |_| Held::Promised);
        drop((tx, v, node));
        drop(removed);
        served.end();
        sim::with(|k| k.cut_at(None));
        sim::with(Kernel::reboot);
        let served = Served::open();
        let node = served.volume().resolve(&fh).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let links = served.volume().getattr(&node).unwrap().nlink;
        match (served.names().len(), served.volume().orphans_len(), links) {
            (1, 0, 1) => named += 1,
            (0, 1, 0) => kept += 1,
            other => panic!("seed {seed}: names, orphans, links {other:?}"),
        }
    }
    sim::install(None);
    assert!(kept > 0 && named > 0, "{kept} kept, {named} with their names");
}
