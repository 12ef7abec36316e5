//! Recovery with several threads: they make what one would have made, and stop at the first error.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use bytes::Bytes;

use super::filesystems::Volume;
use super::filesystems::image::{Image, Kernel};
use crate::objmap::ObjMap;
use crate::record::{Birth, Fact, KernelHandle, Kind, ObjId, Owned, Record, Timestamp};
use crate::recover::tree::Tree;
use crate::recover::{Disk, Error, RecoveryMode, disk, run};

const DIRS: u32 = 12;
/// Each directory has more than one portion of the work.
const FILES: u32 = 300;

/// An identity that is on no disk.
fn lost(n: u32) -> ObjId {
    let mut bytes = [0xff; 8];
    bytes[4..].copy_from_slice(&n.to_le_bytes());
    ObjId { kh: KernelHandle { kind: 1, bytes: bytes[..].into() }, btime_ns: i64::from(n) }
}

fn at(n: u32) -> Timestamp {
    Timestamp { secs: i64::from(n) + 1, nanos: n }
}

fn born(n: u32, kind: Kind, dir: &ObjId, name: String) -> [Fact; 2] {
    let owned = Owned { mode: 0o640 | (n & 7), uid: n % 3, gid: n % 5, atime: at(n), mtime: at(n) };
    let target = if kind == Kind::Symlink { Bytes::from(format!("to {n}")) } else { Bytes::new() };
    let birth = Birth { kind, owned, rdev: (0, 0), target, fileid: u64::from(n) };
    [Fact::Born { obj: lost(n), birth }, Fact::Bind { dir: dir.clone(), name: name.into(), obj: lost(n) }]
}

/// Directories with files, symbolic links and second names, all missing on disk; and a few files in the root.
fn records(root: &ObjId) -> Vec<Vec<u8>> {
    let mut facts = Vec::new();
    for d in 0..DIRS {
        let n = d * 1000;
        facts.push(born(n, Kind::Dir, root, format!("dir{d}")).to_vec());
        for f in 1..=FILES {
            let kind = if f % 7 == 0 { Kind::Symlink } else { Kind::File };
            let mut file = born(n + f, kind, &lost(n), format!("file{f}")).to_vec();
            if kind == Kind::File {
                let bytes = Bytes::from(format!("contents of {}", n + f));
                file.push(Fact::Data { obj: lost(n + f), offset: u64::from(f % 3), bytes });
                file.push(Fact::Size { obj: lost(n + f), size: u64::from(8 + f % 9) });
                file.push(Fact::Mtime { obj: lost(n + f), mtime: at(n + f + 1) });
            }
            facts.push(file);
        }
        let second = Fact::Bind { dir: root.clone(), name: format!("second{d}").into(), obj: lost(n + 1) };
        facts.push(vec![second, Fact::Links { obj: lost(n + 1), nlink: 2 }]);
        facts.push(vec![Fact::Mtime { obj: lost(n), mtime: at(n) }]);
        facts.push(born(n + 999, Kind::File, root, format!("file{d}")).to_vec());
    }
    let record = |(n, facts)| Record { seq: n as u64 + 1, facts }.encode().expect("a record in range");
    facts.into_iter().enumerate().map(record).collect()
}

fn tree(dir: &Path, top: &Path, lines: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.ends_with(".landfast") {
            continue;
        }
        let meta = path.symlink_metadata().expect("an object");
        let says = match () {
            () if meta.is_symlink() => format!("{:?}", std::fs::read_link(&path).expect("a link")),
            () if meta.is_dir() => String::new(),
            () => format!("{:?}", Bytes::from(std::fs::read(&path).expect("a file"))),
        };
        let times = [meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec()];
        // Looking at a directory or a link sets its atime.
        let times = if meta.is_file() { &times[..] } else { &times[2..] };
        let name = path.strip_prefix(top).expect("below the top").display();
        lines.insert(format!(
            "{name}: {:o} {}:{} {} names, {times:?} {says}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.nlink()
        ));
        if meta.is_dir() {
            tree(&path, top, lines);
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn several_threads_make_what_one_makes() {
    for kernel in [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs] {
        let mut trees = Vec::new();
        for threads in [1, 4] {
            let Some(image) = Image::new(kernel) else { return };
            let mut v = Volume::open(&image);
            let root = disk::identity(&v.root).expect("identity");
            let mut disk = Disk::new(&v.root, &v.state, &mut v.remap, threads).expect("disk");
            let done = run(&mut disk, records(&root), &[], 0, RecoveryMode::default(), &ObjMap::default)
                .expect("recovered")
                .done;
            let top = image.path().join("export");
            let mut lines = BTreeSet::new();
            tree(&top, &top, &mut lines);
            let rows: Vec<u64> = (0..DIRS * 1000)
                .filter_map(|n| {
                    let now = v.remap.inward(&lost(n))?;
                    Some(v.remap.fileid(now, 1))
                })
                .collect();
            assert_eq!(std::fs::read_dir(top.join(".landfast/stage")).expect("staging").count(), 0);
            trees.push((lines, rows, done));
        }
        let objects = DIRS * (FILES + 2);
        let (lines, rows, done) = &trees[0];
        assert_eq!((lines.len(), rows.len()), ((objects + DIRS) as usize, objects as usize), "{kernel:?}");
        assert_eq!(done.made, u64::from(objects), "{kernel:?}");
        assert!(
            lines.contains(
                "dir2/file8: 100640 1:3 1 names, [2009, 2008, 2010, 2009] b\"\\0\\0contents of 20\""
            )
        );
        assert!(trees[0] == trees[1], "{kernel:?}: {:#?}", trees[0].0.difference(&trees[1].0));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_first_error_ends_it_and_results_are_in_order() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let mut v = Volume::open(&image);
    let mut disk = Disk::new(&v.root, &v.state, &mut v.remap, 4).expect("disk");
    let items: Vec<u32> = (0..1000).collect();
    // Nobody goes on before all four are there.
    let (all, seen) = (Barrier::new(4), Mutex::new(BTreeSet::new()));
    let done = disk.spread(&items, |_, n| {
        let name = std::thread::current().id();
        if seen.lock().expect("nobody panics").insert(format!("{name:?}")) {
            all.wait();
        }
        Ok(n * 2)
    });
    assert_eq!(done.expect("no error"), items.iter().map(|n| n * 2).collect::<Vec<_>>());
    let asked = AtomicUsize::new(0);
    let failed: Result<Vec<()>, Error> = disk.spread(&items, |tree, n| {
        asked.fetch_add(1, Ordering::Relaxed);
        match n {
            0..10 => Ok(()),
            _ => Err(Error::Surprise { what: "as wished", obj: tree.stage(), path: None, name: None }),
        }
    });
    assert!(matches!(failed, Err(Error::Surprise { what: "as wished", .. })));
    assert!((11..=14).contains(&asked.into_inner()));
}
