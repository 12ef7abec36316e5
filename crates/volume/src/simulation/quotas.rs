//! Recovery may exceed quotas, and nobody else: what it makes again was within them when it was promised.

use super::found::Served;
use crate::kernel::sim::{self, Flavour, Kernel};
use crate::types::SetAttrs;

/// Changes since the last question that no quota could refuse.
fn changes_beyond_quotas() -> u64 {
    sim::with(|k| std::mem::take(&mut k.changes_beyond_quotas))
}

#[test]
fn only_recovery_may_exceed_quotas() {
    for flavour in [Flavour::Ext4, Flavour::Xfs, Flavour::Btrfs] {
        let mut served = Served::first(flavour, 1);
        changes_beyond_quotas();
        served.mkdir(b"d", SetAttrs::default()).unwrap();
        served.checkpoint();
        assert_eq!(changes_beyond_quotas(), 0, "{flavour:?}: no client's");
        served.mkdir(b"e", SetAttrs::default()).unwrap();
        served.end();
        sim::with(Kernel::reboot);
        changes_beyond_quotas();
        let mut served = Served::open();
        assert!(changes_beyond_quotas() > 0, "{flavour:?}: recovery's");
        served.mkdir(b"f", SetAttrs::default()).unwrap();
        assert_eq!(changes_beyond_quotas(), 0, "{flavour:?}: no client's afterwards");
        served.end();
    }
    sim::install(None);
}
