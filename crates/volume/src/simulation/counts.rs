//! Which system calls operations make. Every client pays for an additional one with every file.

use bytes::Bytes;

use super::found::Served;
use crate::Cred;
use crate::kernel::sim::{self, Flavour};
use crate::node::Node;
use crate::tx::Tx;
use crate::types::{CreateHow, OpenMode, SetAttrs, Stable, TimeSet, Timestamp};
use crate::volume::Volume;

/// The calls since the last question. A write that the kernel takes in parts counts once. (Closing is not counted.)
fn calls() -> Vec<&'static str> {
    let mut called = sim::with(|k| k.called.replace(Vec::new())).unwrap_or_default();
    called.dedup_by(|a, b| a == b && *a == "pwrite");
    called
}

/// A small file in two writes, as `landfast untar` makes many in one request, with or without setting times.
fn small_file(v: &Volume, tx: &mut Tx, dir: &Node, name: &[u8], timed: bool) {
    let how = CreateHow::Guarded(SetAttrs { mode: Some(0o644), ..SetAttrs::default() });
    let made = v.create(tx, &Cred::root(), dir, name, how, OpenMode::BOTH).unwrap();
    for half in 0..2 {
        let data = Bytes::from_static(&[7; 2048]);
        v.write(tx, &made.file, half * 2048, data, Stable::FileSync).unwrap();
    }
    if timed {
        let mtime = Some(TimeSet::At(Timestamp { secs: 1_000_000_000, nanos: 0 }));
        let times = SetAttrs { mtime, ..SetAttrs::default() };
        v.setattr(tx, &Cred::root(), &made.node, Some(&made.file), times).unwrap();
    }
}

#[test]
fn small_files_of_one_request() {
    const MAKE: [&str; 5] = ["statx", "openat that creates", "statx", "name_to_handle_at", "statx"];
    for flavour in [Flavour::Ext4, Flavour::Xfs, Flavour::Btrfs] {
        let mut served = Served::first(flavour, 1);
        let dir = served.mkdir(b"d", SetAttrs::default()).unwrap();
        let (timed, untimed) = served.request(|v, tx| {
            // The first one makes the transaction join the log and look for the directory's ACL.
            small_file(v, tx, &dir, b"first", true);
            calls();
            small_file(v, tx, &dir, b"timed", true);
            let timed = calls();
            small_file(v, tx, &dir, b"untimed", false);
            (timed, calls())
        });
        assert_eq!(timed, [&MAKE[..], &["pwrite", "utimensat", "statx"]].concat(), "{flavour:?}");
        // The last file is looked at when the request ends, however often it was written to.
        assert_eq!(untimed, [&MAKE[..], &["pwrite"]].concat(), "{flavour:?}");
        assert_eq!(calls().iter().filter(|call| **call == "statx").count(), 1, "{flavour:?}");
        // In a request of its own, a write looks at the file at once: somebody may have removed it.
        served.request(|v, tx| {
            let node = v.lookup(&Cred::root(), &dir, b"timed").unwrap();
            let file = v.open_file(&Cred::root(), &node, OpenMode::BOTH).unwrap();
            calls();
            v.write(tx, &file, 0, Bytes::from_static(b"x"), Stable::FileSync).unwrap();
            assert_eq!(calls(), ["utimensat", "pwrite", "statx"], "{flavour:?}");
        });
    }
}
