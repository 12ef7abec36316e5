//! Many threads at once, while local processes change the tree.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::*;
use landfast_volume::*;

/// Ends the test program when it hangs, so that a deadlock is a failure and not somebody else's timeout.
fn watch(limit: Duration) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    std::thread::spawn(move || {
        let begun = Instant::now();
        while !seen.load(Ordering::Relaxed) {
            if begun.elapsed() > limit {
                eprintln!("deadlock");
                std::process::abort();
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
    });
    done
}

/// The whole tree by names, with sizes and link counts.
fn tree(rig: &Rig) -> BTreeSet<String> {
    fn walk(rig: &Rig, dir: &Node, path: &str, seen: &mut BTreeSet<String>) {
        for entry in rig.volume.readdir(&root(), dir, 0, 100_000, EntryDetail::Attrs).unwrap().entries {
            let (node, a) = entry.object.unwrap().unwrap();
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let nlink = if a.kind == Kind::Dir { 0 } else { a.nlink };
            seen.insert(format!("{path} {:?} {:o} {nlink} {} {:?}", a.kind, a.mode, a.size, a.mtime));
            if a.kind == Kind::Dir {
                walk(rig, &node, &path, seen);
            }
        }
    }
    let mut seen = BTreeSet::new();
    walk(rig, &rig.volume.root(), "", &mut seen);
    seen
}

/// A small generator of numbers that only need to differ.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// One operation of any kind on shared directories; most errors are expected.
fn anything(v: &Volume, tx: &mut Tx, dirs: &[Node], n: &mut Numbers) -> Result<(), Error> {
    let r = root();
    let dir = dirs[n.below(dirs.len() as u64) as usize].clone();
    let other = dirs[n.below(dirs.len() as u64) as usize].clone();
    let names: [String; 2] = std::array::from_fn(|_| format!("n{}", n.below(12)));
    let [name, other_name] = names.each_ref().map(String::as_bytes);
    match n.below(13) {
        0 | 1 => {
            let made = v.create(tx, &r, &dir, name, CreateHow::Unchecked(mode(0o644)), OpenMode::BOTH)?;
            v.write(tx, &made.file, n.below(5000), Bytes::from_static(b"some data"), Stable::FileSync)?;
        }
        2 => drop(v.mkdir(tx, &r, &dir, name, mode(0o755))?),
        3 | 4 => drop(v.remove(tx, &r, &dir, name)?),
        5 | 6 => drop(v.rename(tx, &r, &dir, name, &other, other_name)?),
        7 => {
            let node = v.lookup(&r, &dir, name)?;
            v.link(tx, &r, &node, &other, other_name)?;
        }
        8 => {
            let node = v.lookup(&r, &dir, name)?;
            v.setattr(tx, &r, &node, None, mode(0o600 + n.below(0o100) as u32))?;
        }
        9 => drop(v.readdir(&r, &dir, 0, 100, EntryDetail::Attrs)?),
        10 => {
            let node = v.lookup(&r, &dir, name)?;
            v.getattr(&node)?;
            v.resolve(&node.fh())?;
        }
        11 => {
            let node = v.lookup(&r, &dir, name)?;
            let file = v.open_file(&r, &node, OpenMode::BOTH)?;
            v.write(tx, &file, n.below(5000), Bytes::from_static(b"unstable"), Stable::Unstable)?;
            v.commit(tx, &node, 0, 0)?;
        }
        _ => {
            let node = v.lookup(&r, &dir, name)?;
            let size = SetAttrs { size: Some(n.below(100)), ..SetAttrs::default() };
            v.setattr(tx, &r, &node, None, size)?;
        }
    }
    Ok(())
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rivals_neither_deadlock_nor_disagree_with_the_log() {
    if !tempdir_suits() {
        return;
    }
    let done = watch(Duration::from_secs(300));
    let rig = Rig::log();
    let dirs: Vec<Node> =
        (0..4).map(|i| rig.mkdir(&root(), &rig.volume.root(), &format!("d{i}")).unwrap()).collect();
    let worked = AtomicU64::new(0);
    std::thread::scope(|s| {
        for thread in 0..8 {
            let (v, dirs, worked) = (&rig.volume, &dirs, &worked);
            s.spawn(move || {
                let mut n = Numbers(thread);
                for _ in 0..150 {
                    let mut tx = v.tx();
                    for _ in 0..1 + n.below(4) {
                        worked.fetch_add(
                            u64::from(anything(v, &mut tx, dirs, &mut n).is_ok()),
                            Ordering::Relaxed,
                        );
                    }
                    tx.finish().wait_blocking().unwrap();
                }
            });
        }
    });
    assert_eq!(rig.volume.failed(), None);
    assert!(worked.load(Ordering::Relaxed) > 500, "most operations find something to work on");
    let before = tree(&rig);
    drop(dirs);
    // Recovery over a complete disk must find it complete: every record is in the order of its effect.
    let rig = rig.crash();
    assert!(rig.report.records > 500);
    let after = tree(&rig);
    assert_eq!(after.symmetric_difference(&before).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(rig.report.remade, 0);
    done.store(true, Ordering::Relaxed);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_name_is_created_by_one_only() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    for round in 0..20 {
        let name = format!("f{round}");
        let wins: usize = std::thread::scope(|s| {
            let tries: Vec<_> =
                (0..4).map(|_| s.spawn(|| rig.create(&root(), &rig.volume.root(), &name).is_ok())).collect();
            tries.into_iter().map(|t| usize::from(t.join().unwrap())).sum()
        });
        assert_eq!(wins, 1);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn requests_at_once_share_flushes() {
    if !tempdir_suits() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("dir")).unwrap();
    let logs = beside();
    let slow = OpenOptions {
        experiment: Experiment {
            injected_log_flush: Some(Duration::from_millis(5)),
            ..Experiment::default()
        },
        ..options(temp.path(), logs.path(), Durability::Log)
    };
    let (volume, _) = open(slow);
    let before = volume.stats().log.unwrap().batches;
    std::thread::scope(|s| {
        for thread in 0..8 {
            let volume = &volume;
            s.spawn(move || {
                for i in 0..50 {
                    let mut tx = volume.tx();
                    let name = format!("d{thread}-{i}");
                    volume.mkdir(&mut tx, &root(), &volume.root(), name.as_bytes(), mode(0o755)).unwrap();
                    tx.finish().wait_blocking().unwrap();
                }
            });
        }
    });
    let flushes = volume.stats().log.unwrap().batches - before;
    assert!(flushes <= 200, "{flushes} flushes for 400 requests of 8 threads");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn other_filesystems_below_are_not_entered() {
    // In a mount namespace of this thread's own, so that nothing outside sees or keeps the mount.
    // SAFETY: the flag changes nothing that this program relies on.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    let sh = |args: &[&str]| {
        assert!(std::process::Command::new("mount").args(args).status().unwrap().success());
    };
    sh(&["--make-rprivate", "/"]);
    let rig = Rig::new(Durability::Sync);
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let below = rig.mkdir(&r, &dir, "below").unwrap();
    let path = rig.dir().join("below");
    sh(&["-t", "tmpfs", "none", path.to_str().unwrap()]);
    std::fs::write(path.join("secret"), b"x").unwrap();
    assert_eq!(rig.lookup(&r, &dir, "below").unwrap_err(), Error::Mounted);
    let page = v.readdir(&r, &dir, 0, 10, EntryDetail::Attrs).unwrap();
    assert_eq!(page.entries[0].object.as_ref().unwrap().as_ref().unwrap_err(), &Error::Mounted);
    assert!(rig.remove(&r, &dir, "below").is_err());
    assert!(rig.rename(&r, (&dir, "below"), (&dir, "x")).is_err());
    // The old handle still means what is under the mount.
    assert_eq!(v.resolve(&below.fh()).unwrap(), below);
    assert_eq!(rig.names(&below, 10), Vec::<String>::new());
}
