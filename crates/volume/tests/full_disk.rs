//! Every operation on a full filesystem:
//! - it succeeds, or is refused for lack of space or quota, before anything is promised;
//! - nothing of a refused operation is there;
//! - the volume does not fail;
//! - when power fails at that moment, recovery works on the full filesystem.
//!
//! The operations are those of `src/ops/`: a new one without a line in [`attempt`] fails the test.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

/// Maximum number of tries per operation, each with a new name or place.
const TRIES: usize = 60;
const PIECE: usize = 64 << 10;

/// The public operations that take a transaction.
fn operations() -> BTreeSet<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops");
    let mut all = BTreeSet::new();
    for file in std::fs::read_dir(dir).expect("the sources") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("a file");
        for function in text.split("pub fn ").skip(1) {
            let (name, rest) = function.split_once('(').expect("arguments");
            let arguments = rest.split_once('{').expect("a body").0;
            if arguments.contains("tx: &mut Tx") {
                all.insert(name.to_owned());
            }
        }
    }
    assert!(all.len() > 15, "{all:?}");
    all
}

/// What was made beforehand, while there was space.
struct Fixture {
    dirs: BTreeMap<String, Node>,
    source: OpenFile,
    files: BTreeMap<String, OpenFile>,
}

/// What must be there in the end.
#[derive(Default)]
struct Expected {
    /// Entries below an operation's directory, and whether each must exist.
    entries: BTreeMap<(String, String), bool>,
    /// Bytes at the start of an operation's file, all of one value.
    filled: BTreeMap<String, usize>,
}

const FILLED: &[&str] = &[
    "write",
    "commit",
    "allocate",
    "deallocate",
    "copy_range",
    "copy_range_while",
    "copy_settle",
    "clone_range",
];

/// Long enough that a directory soon needs another block.
fn long(prefix: &str, i: usize) -> String {
    format!("{prefix}{i:0>200}")
}

fn acls() -> SetAcls {
    let named = Acl { users: BTreeMap::from([(1001, 7)]), mask: Some(7), ..Acl::from_mode(0o640) };
    SetAcls { access: Some(named), default: None }
}

/// The `i`-th attempt at an operation: notes in `e` what it leaves on success, and what must not be there after a refusal.
fn attempt(v: &Volume, f: &Fixture, op: &str, i: usize, e: &mut Expected) -> Result<(), Error> {
    let r = root();
    let dir = f.dirs[op].clone();
    let new = long("n", i);
    let name = new.as_bytes();
    let data = |len| Bytes::from(vec![b'x'; len]);
    let mut tx = v.tx();
    let mut makes = None;
    let mut takes = None;
    let mut fills = None;
    let at = (i * PIECE) as u64;
    let done = match op {
        "create" => {
            makes = Some(new.clone());
            v.create(&mut tx, &r, &dir, name, CreateHow::Guarded(mode(0o644)), OpenMode::BOTH).map(drop)
        }
        "create_with_acls" => {
            makes = Some(new.clone());
            let how = CreateHow::Guarded(mode(0o644));
            v.create_with_acls(&mut tx, &r, &dir, name, how, OpenMode::BOTH, &acls()).map(drop)
        }
        "mkdir" => {
            makes = Some(new.clone());
            v.mkdir(&mut tx, &r, &dir, name, mode(0o755)).map(drop)
        }
        "mkdir_with_acls" => {
            makes = Some(new.clone());
            v.mkdir_with_acls(&mut tx, &r, &dir, name, mode(0o755), &acls()).map(drop)
        }
        "symlink" => {
            makes = Some(new.clone());
            v.symlink(&mut tx, &r, &dir, name, &[b't'; 1000], SetAttrs::default()).map(drop)
        }
        "mknod" => {
            makes = Some(new.clone());
            v.mknod(&mut tx, &r, &dir, name, Special::Fifo, mode(0o644)).map(drop)
        }
        "mknod_with_acls" => {
            makes = Some(new.clone());
            v.mknod_with_acls(&mut tx, &r, &dir, name, Special::Fifo, mode(0o644), &acls()).map(drop)
        }
        "link" => {
            makes = Some(new.clone());
            let old = v.lookup(&r, &dir, b"old0")?;
            v.link(&mut tx, &r, &old, &dir, name).map(drop)
        }
        "rename" => {
            makes = Some(new.clone());
            takes = Some(format!("old{i}"));
            v.rename(&mut tx, &r, &dir, format!("old{i}").as_bytes(), &dir, name).map(drop)
        }
        "remove" => {
            takes = Some(format!("old{i}"));
            v.remove(&mut tx, &r, &dir, format!("old{i}").as_bytes()).map(drop)
        }
        "remove_if" => {
            takes = Some(format!("old{i}"));
            v.remove_if(&mut tx, &r, &dir, format!("old{i}").as_bytes(), |_| Ok(())).map(drop)
        }
        "remove_keeping" => {
            takes = Some(format!("old{i}"));
            let old = format!("old{i}");
            v.remove_keeping(&mut tx, &r, &dir, old.as_bytes(), |_| Ok(()), |_| Held::Promised).map(drop)
        }
        "rename_keeping" => {
            takes = Some(format!("old{i}"));
            let old = format!("old{i}");
            v.rename_keeping(
                &mut tx,
                &r,
                (&dir, old.as_bytes()),
                (&dir, b"over"),
                |_| Ok(()),
                |_| Held::Promised,
            )
            .map(drop)
        }
        "release" => {
            let old = format!("old{i}");
            let node = v.lookup(&r, &dir, old.as_bytes())?;
            let removed = v.remove_keeping(&mut tx, &r, &dir, old.as_bytes(), |_| Ok(()), |_| Held::Promised);
            takes = Some(old);
            removed.map(|_| match v.release(&mut tx, &node, || true) {
                Ok(_) | Err(Error::NoSpace | Error::Quota) => {}
                Err(e) => panic!("release: {e}"),
            })
        }
        "setattr" => {
            let node = v.lookup(&r, &dir, format!("old{i}").as_bytes())?;
            v.setattr(&mut tx, &r, &node, None, SetAttrs { size: Some(1 << 20), ..mode(0o600) }).map(drop)
        }
        "setattr_guarded" => {
            let node = v.lookup(&r, &dir, format!("old{i}").as_bytes())?;
            v.setattr_guarded(&mut tx, &r, &node, None, mode(0o640), None).map(drop)
        }
        "set_acls" => {
            let node = v.lookup(&r, &dir, format!("old{i}").as_bytes())?;
            v.set_acls(&mut tx, &r, &node, &acls())
        }
        "setxattr" => {
            let node = v.lookup(&r, &dir, format!("old{i}").as_bytes())?;
            v.setxattr(&mut tx, &r, &node, b"large", &data(2500), SetXattr::Either).map(drop)
        }
        "removexattr" => {
            let node = v.lookup(&r, &dir, format!("old{i}").as_bytes())?;
            v.removexattr(&mut tx, &r, &node, b"small").map(drop)
        }
        "write" => v.write(&mut tx, &f.files[op], at, data(PIECE), Stable::FileSync).map(|(n, _)| {
            fills = Some((at as usize, n as usize));
        }),
        "commit" => match v.write(&mut tx, &f.files[op], at, data(PIECE), Stable::Unstable) {
            Ok((n, _)) => {
                fills = Some((at as usize, n as usize));
                let mut settled = v.tx();
                let node = f.files[op].node().clone();
                v.commit(&mut settled, &node, 0, 0).expect("what was taken is made stable");
                settled.finish().wait_blocking().expect("stable");
                Ok(())
            }
            Err(refused) => Err(refused),
        },
        "allocate" => v.allocate(&mut tx, &f.files[op], at, PIECE as u64),
        "deallocate" => v.deallocate(&mut tx, &f.files[op], at, 4096),
        "copy_range_while" => {
            v.copy_range_while(&mut tx, (&f.source, 0), (&f.files[op], at), PIECE as u64, || true).map(|n| {
                fills = Some((at as usize, n as usize));
            })
        }
        "copy_range" => v.copy_range(&mut tx, &f.source, 0, &f.files[op], at, PIECE as u64).map(|n| {
            fills = Some((at as usize, n as usize));
        }),
        "copy_settle" => match v.copy_piece(&f.source, 0, &f.files[op], at, PIECE as u64) {
            Ok(n) => {
                fills = Some((at as usize, n as usize));
                v.copy_settle(&mut tx, &f.files[op]).expect("what was copied is made stable");
                Ok(())
            }
            Err(refused) => Err(refused),
        },
        "clone_range" => v.clone_range(&mut tx, &f.source, 0, &f.files[op], at, PIECE as u64).map(|()| {
            fills = Some((at as usize, PIECE));
        }),
        other => panic!("{other} is new: say here how it meets a full filesystem"),
    };
    tx.finish().wait_blocking().unwrap_or_else(|e| panic!("{op}, after {done:?}: {e}; {:?}", v.failed()));
    if let Some(name) = makes {
        e.entries.insert((op.to_owned(), name), done.is_ok());
    }
    if let Some(name) = takes {
        e.entries.insert((op.to_owned(), name), done.is_err());
    }
    if let Some((from, n)) = fills {
        let so_far = e.filled.entry(op.to_owned()).or_default();
        if *so_far == from {
            *so_far = from + n;
        }
    }
    done
}

fn fixture(v: &Volume) -> Fixture {
    let (r, top) = (root(), v.root());
    let run = |f: &mut dyn FnMut(&mut Tx) -> Result<(), Error>| {
        let mut tx = v.tx();
        f(&mut tx).expect("there is room");
        tx.finish().wait_blocking().expect("stable");
    };
    let made = |dir: &Node, name: &str| {
        let mut file = None;
        run(&mut |tx| {
            let how = CreateHow::Guarded(mode(0o644));
            file = Some(v.create(tx, &r, dir, name.as_bytes(), how, OpenMode::BOTH)?);
            Ok(())
        });
        file.expect("made")
    };
    let mut dirs = BTreeMap::new();
    for op in operations() {
        run(&mut |tx| {
            dirs.insert(op.clone(), v.mkdir(tx, &r, &top, op.as_bytes(), mode(0o755))?.node);
            Ok(())
        });
        if [
            "link",
            "rename",
            "remove",
            "remove_if",
            "setattr",
            "setattr_guarded",
            "set_acls",
            "setxattr",
            "removexattr",
            "remove_keeping",
            "rename_keeping",
            "release",
        ]
        .contains(&op.as_str())
        {
            for i in 0..TRIES {
                let old = made(&dirs[&op], &format!("old{i}"));
                if op == "removexattr" {
                    let small = Bytes::from_static(b"value");
                    run(&mut |tx| {
                        v.setxattr(tx, &r, &old.node, b"small", &small, SetXattr::Either).map(drop)
                    });
                }
            }
        }
    }
    let files = FILLED.iter().map(|op| ((*op).to_owned(), made(&top, &format!("file-{op}")).file)).collect();
    let source = made(&top, "source").file;
    run(&mut |tx| v.write(tx, &source, 0, vec![b'x'; PIECE].into(), Stable::FileSync).map(drop));
    Fixture { dirs, source, files }
}

fn check(dir: &Path, e: &Expected) {
    for ((op, name), there) in &e.entries {
        let path = dir.join(op).join(name);
        assert_eq!(path.symlink_metadata().is_ok(), *there, "{op}: {name}");
    }
    for (op, length) in &e.filled {
        let found = std::fs::read(dir.join(format!("file-{op}"))).expect("a file");
        assert!(found.len() >= *length, "{op}: {} bytes of {length}", found.len());
        assert!(found[..*length].iter().all(|byte| *byte == b'x'), "{op}: other bytes");
    }
}

/// How often each operation succeeded, and its refusals.
fn every_operation(kernel: Kernel, take: impl FnOnce(&Image) -> bool, refusal: Error) {
    let Some(mut image) = Image::new(kernel) else { return };
    let dir = image.path().join("dir");
    std::fs::create_dir(&dir).expect("a directory");
    let options = || OpenOptions {
        log_size: 32 << 20,
        ..OpenOptions::with_log(image.path().join("dir"), image.beside().join("log"))
    };
    let (volume, _) = open(options());
    let fixture = fixture(&volume);
    if !take(&image) {
        return;
    }
    let mut expected = Expected::default();
    let mut refused = BTreeSet::new();
    for op in operations() {
        for i in 0..TRIES {
            match attempt(&volume, &fixture, &op, i, &mut expected) {
                Ok(()) => {}
                Err(Error::NotSupported) if op == "clone_range" => break,
                // What was promised to outlast its last name keeps it where it cannot be kept without.
                Err(Error::Busy)
                    if ["remove_keeping", "rename_keeping", "release"].contains(&op.as_str()) =>
                {
                    refused.insert(op.clone());
                    break;
                }
                Err(e) => {
                    assert_eq!(e, refusal, "{kernel:?}: {op}, attempt {i}: {:?}", volume.failed());
                    refused.insert(op.clone());
                    break;
                }
            }
        }
    }
    println!("{kernel:?}: {refusal} for {refused:?}");
    for op in ["write", "commit", "copy_range"] {
        assert!(refused.contains(op), "{kernel:?}: there was room for {op}");
    }
    // btrfs reserves space for names.
    assert!(refused.len() > 6 || kernel == Kernel::Btrfs, "{kernel:?}: {refused:?}");
    check(&dir, &expected);
    let options = options();
    let log = image.beside().join("log");
    // A copy of a btrfs takes a while, and a checkpoint meanwhile would bring the log ahead of it.
    let copied = kernel == Kernel::Btrfs;
    if copied {
        image.cut_as("cut", &[&log])
    } else {
        image.power_off()
    }
    drop((fixture, volume));
    if copied {
        image.load_when_free("cut", &[&log])
    } else {
        image.power_on()
    }
    let (volume, report) = open(options);
    println!("{kernel:?}: {} records, {} objects made again", report.records, report.remade);
    assert!(report.records > 0);
    check(&dir, &expected);
    // A full filesystem can be emptied; a used-up quota can be raised.
    if refusal == Error::Quota {
        assert!(image.limited("none"));
    }
    let mut tx = volume.tx();
    for op in FILLED {
        volume.remove(&mut tx, &root(), &volume.root(), format!("file-{op}").as_bytes()).expect("removed");
    }
    tx.finish().wait_blocking().expect("stable");
    volume.shutdown().expect("stopped");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nospc_on_ext4() {
    every_operation(
        Kernel::Ext4,
        |image| {
            image.fill();
            true
        },
        Error::NoSpace,
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nospc_on_xfs() {
    every_operation(
        Kernel::Xfs,
        |image| {
            image.fill();
            true
        },
        Error::NoSpace,
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nospc_on_btrfs() {
    every_operation(
        Kernel::Btrfs,
        |image| {
            image.fill();
            true
        },
        Error::NoSpace,
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn dquot_on_btrfs() {
    every_operation(Kernel::Btrfs, |image| image.limited("12M"), Error::Quota);
}

/// A checkpoint needs room to drop the rows of objects that were removed after recovery had made them again. It has time for that.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_checkpoint_that_drops_rows_on_a_full_disk() {
    let Some(mut image) = Image::new(Kernel::Xfs) else { return };
    let dir = image.path().join("dir");
    std::fs::create_dir(&dir).expect("a directory");
    let options =
        OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) };
    let (volume, _) = open(options.clone());
    let run = |volume: &Volume, op: &dyn Fn(&mut Tx) -> Result<(), Error>| {
        let mut tx = volume.tx();
        op(&mut tx).expect("done");
        tx.finish().wait_blocking().expect("stable");
    };
    volume.checkpoint().expect("a checkpoint");
    for name in [b"gone", b"kept"] {
        let how = || CreateHow::Guarded(mode(0o644));
        run(&volume, &|tx| volume.create(tx, &root(), &volume.root(), name, how(), OpenMode::BOTH).map(drop));
    }
    image.power_off();
    drop(volume);
    image.power_on();
    let (volume, report) = open(options);
    assert_eq!(report.remade, 2);
    std::fs::remove_file(dir.join(".landfast/reserve")).expect("the reserve");
    image.fill();
    let table = || std::fs::read(dir.join(".landfast/remap")).expect("the remap table");
    let before = table();
    run(&volume, &|tx| volume.remove(tx, &root(), &volume.root(), b"gone").map(drop));
    volume.checkpoint().expect("nothing need be written");
    assert!(table() == before && !dir.join(".landfast/remap.new").exists(), "there is no room");
    image.free();
    run(&volume, &|tx| volume.mkdir(tx, &root(), &volume.root(), b"d", mode(0o755)).map(drop));
    volume.checkpoint().expect("a checkpoint");
    assert!(table().len() < before.len(), "the row is gone");
    volume.shutdown().expect("a clean stop");
}

/// On btrfs a checkpoint needs room for its number. It waits for that: an error would fail the volume until it is started again.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_checkpoint_waits_for_room_for_its_number() {
    let Some(image) = Image::new(Kernel::Btrfs) else { return };
    let dir = image.path().join("dir");
    std::fs::create_dir(&dir).expect("a directory");
    let options =
        || OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) };
    let (volume, _) = open(options());
    if !image.limited("12M") {
        return;
    }
    image.fill();
    std::fs::remove_file(dir.join(".landfast/reserve")).expect("the reserve");
    image.fill();
    let mkdir = || {
        let mut tx = volume.tx();
        let made = volume.mkdir(&mut tx, &root(), &volume.root(), b"d", mode(0o755)).map(drop);
        tx.finish().wait_blocking().expect("stable");
        made
    };
    // Nothing is done, but the log has an empty record.
    assert_eq!(mkdir(), Err(Error::Quota));
    let before = volume.stats().syncfs;
    std::thread::scope(|s| {
        let checkpoint = s.spawn(|| volume.checkpoint());
        // Each try begins with a flush.
        while volume.stats().syncfs < before + 2 {
            assert_eq!(volume.failed(), None);
            std::thread::yield_now();
        }
        assert!(image.limited("none"));
        checkpoint.join().expect("a thread").expect("a checkpoint");
    });
    mkdir().expect("there is room");
    volume.shutdown().expect("stopped");
}
