//! Files that lose their last name while they are open, on ext4, XFS and btrfs: kept over a crash and a power cut, removed with
//! the caller's rights only.

mod common;

use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

const KERNELS: [Kernel; 3] = [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs];

fn removed(v: &Volume, cred: &Cred, dir: &Node, name: &str) -> Result<bool, Error> {
    let mut tx = v.tx();
    let done = v.remove_keeping(&mut tx, cred, dir, name.as_bytes(), |_| Ok(()), |_| Held::Promised);
    tx.finish().wait_blocking().expect("stable");
    done.map(|removed| removed.kept.is_some())
}

fn renamed(v: &Volume, cred: &Cred, dir: &Node, from: &str, to: &str) -> Result<bool, Error> {
    let mut tx = v.tx();
    let (from, to) = ((dir, from.as_bytes()), (dir, to.as_bytes()));
    let done = v.rename_keeping(&mut tx, cred, from, to, |_| Ok(()), |_| Held::Promised);
    tx.finish().wait_blocking().expect("stable");
    done.map(|renamed| renamed.kept.is_some())
}

fn released(v: &Volume, node: &Node) -> bool {
    let mut tx = v.tx();
    let gone = v.release(&mut tx, node, || true).expect("released");
    tx.finish().wait_blocking().expect("stable");
    gone
}

fn made(v: &Volume, cred: &Cred, dir: &Node, name: &str, data: &[u8]) -> (Node, OpenFile) {
    let mut tx = v.tx();
    let how = CreateHow::Guarded(mode(0o600));
    let made = v.create(&mut tx, cred, dir, name.as_bytes(), how, OpenMode::BOTH).expect("made");
    wrote(v, &mut tx, &made.file, 0, data);
    tx.finish().wait_blocking().expect("stable");
    (made.node, made.file)
}

fn wrote(v: &Volume, tx: &mut Tx, file: &OpenFile, offset: u64, data: &[u8]) {
    v.write(tx, file, offset, bytes::Bytes::copy_from_slice(data), Stable::FileSync).expect("written");
}

fn contents(v: &Volume, node: &Node) -> Vec<u8> {
    let file = v.open_file(&root(), node, OpenMode { write: false, ..OpenMode::BOTH }).expect("opened");
    v.read(&file, 0, 100).expect("read").0.to_vec()
}

fn places(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(dir.join(".landfast/open")).expect("the orphans' directory");
    entries.filter(|e| e.as_ref().expect("an entry").file_type().expect("its type").is_file()).count()
}

/// What is acknowledged before the power goes is there: names, contents, owner, link count; whether the disk had any of it or all.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn orphans_outlast_a_power_cut() {
    for kernel in KERNELS {
        for flushed in [false, true] {
            let Some(mut image) = Image::new(kernel) else { return };
            let export = image.path().join("export");
            std::fs::create_dir(&export).expect("mkdir");
            let mut options = OpenOptions::new(export.clone(), Durability::Log);
            options.log = Some(image.beside().join("log").into());
            options.log_size = 16 << 20;
            let (volume, _) = open(options.clone());
            let (r, top) = (root(), volume.root());
            // One from before the checkpoint that a clean stop and a start are, and one that the log has from its birth on.
            let (old, file) = made(&volume, &r, &top, "old", b"from before");
            let old_fh = old.fh();
            drop((file, old, top));
            volume.shutdown().expect("a clean stop");
            drop(volume);
            let (volume, _) = open(options.clone());
            let top = volume.root();
            let old = volume.resolve(&old_fh).expect("there");
            let (new, file) = made(&volume, &r, &top, "new", b"lost and ");
            let (over, over_file) = made(&volume, &r, &top, "over", b"replaced");
            let (gone, gone_file) = made(&volume, &r, &top, "gone", b"");
            let chown =
                SetAttrs { uid: Some(1001), gid: Some(1002), mode: Some(0o640), ..SetAttrs::default() };
            let mut tx = volume.tx();
            volume.setattr(&mut tx, &r, &new, None, chown).expect("set");
            tx.finish().wait_blocking().expect("stable");
            for name in ["old", "new", "gone"] {
                assert!(removed(&volume, &r, &top, name).expect("removed"), "{name}");
            }
            drop(made(&volume, &r, &top, "by", b"the new one"));
            assert!(renamed(&volume, &r, &top, "by", "over").expect("renamed"));
            assert_eq!(volume.orphans_len(), 4);
            let mut tx = volume.tx();
            wrote(&volume, &mut tx, &file, 9, b"found");
            tx.finish().wait_blocking().expect("stable");
            assert!(released(&volume, &gone));
            let handles = [old.fh(), new.fh(), over.fh(), gone.fh()];
            let ids = [&old, &new, &over].map(Node::fileid);
            if flushed {
                image.commit();
            }
            image.power_off();
            drop((file, over_file, gone_file, old, new, over, gone, top));
            drop(volume);
            image.power_on();
            let (volume, report) = open(options.clone());
            let what = format!("{kernel:?}, flushed {flushed}: {report:?}");
            assert_eq!(report.local, Vec::<String>::new(), "{what}");
            assert_eq!(volume.orphans_len(), 3, "{what}");
            let [old, new, over, gone] = handles.map(|fh| volume.resolve(&fh));
            assert_eq!(gone.err(), Some(Error::Stale), "{what}");
            let there = [old, new, over].map(|node| node.unwrap_or_else(|e| panic!("{e}: {what}")));
            assert_eq!(there.each_ref().map(Node::fileid), ids, "{what}");
            let wanted: [&[u8]; 3] = [b"from before", b"lost and found", b"replaced"];
            for (node, wanted) in there.iter().zip(wanted) {
                assert_eq!(contents(&volume, node), wanted, "{what}");
                assert_eq!(volume.getattr(node).expect("attributes").nlink, 0, "{what}");
            }
            let attrs = volume.getattr(&there[1]).expect("attributes");
            assert_eq!((attrs.uid, attrs.gid, attrs.mode), (1001, 1002, 0o640), "{what}");
            let page = volume.readdir(&r, &volume.root(), 0, 10, EntryDetail::Names).expect("a listing");
            let names: Vec<_> = page.entries.into_iter().map(|e| e.name).collect();
            assert_eq!(names, ["over"], "{what}");
            for node in &there {
                assert!(released(&volume, node), "{what}");
                assert_eq!(volume.resolve(&node.fh()).err(), Some(Error::Stale), "{what}");
            }
            drop(there);
            drop(volume);
            assert_eq!(places(&export), 0, "{what}");
            let (volume, _) = open(options);
            assert_eq!((volume.orphans_len(), places(&export)), (0, 0), "{what}");
        }
    }
}

/// The kernel says who may remove a name; the place among the orphans takes no right from anybody and gives none.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn whoever_may_not_remove_it_changes_nothing() {
    for kernel in KERNELS {
        let Some(image) = Image::new(kernel) else { return };
        let done = std::thread::scope(|s| {
            s.spawn(|| {
                let rig = Rig::at(tempfile::tempdir_in(image.path()).expect("a directory"), Durability::Log);
                let (v, r, owner, other) = (&rig.volume, root(), user(1000), user(1001));
                let top = v.root();
                let shared = rig.mkdir(&r, &top, "shared").expect("mkdir");
                rig.setattr(&r, &shared, mode(0o1777)).expect("chmod");
                let (node, file) = made(v, &owner, &shared, "f", b"mine");
                drop(made(v, &other, &shared, "g", b"his"));
                assert_eq!(removed(v, &other, &shared, "f"), Err(Error::Perm), "a sticky directory");
                assert_eq!(renamed(v, &other, &shared, "g", "f"), Err(Error::Perm));
                assert_eq!((v.orphans_len(), v.getattr(&node).expect("attributes").nlink), (0, 1));
                // It has the rights that it had, and the caller his own.
                assert!(removed(v, &owner, &shared, "f").expect("removed"));
                assert_eq!(v.open_file(&other, &node, OpenMode::BOTH).err(), Some(Error::Access));
                let again = v.open_file(&owner, &node, OpenMode::BOTH).expect("opened");
                let mut tx = v.tx();
                wrote(v, &mut tx, &again, 4, b" still");
                tx.finish().wait_blocking().expect("stable");
                assert_eq!(contents(v, &node), b"mine still");
                assert_eq!(rig.link(&owner, &node, &shared, "back").err(), Some(Error::Stale));
                assert_eq!(rig.setattr(&owner, &node, mode(0o644)).expect("chmod").nlink, 0);
                // This thread must be the superuser's again.
                assert_eq!(rig.names(&top, 10), ["shared"]);
                drop((file, again, top, shared));
                let fh = node.fh();
                drop(node);
                let rig = rig.crash();
                let node = rig.volume.resolve(&fh).expect("there");
                assert_eq!(rig.attrs(&node).mode, 0o644);
                assert!(released(&rig.volume, &node));
            })
            .join()
        });
        assert!(done.is_ok(), "{kernel:?}");
    }
}

/// Somebody has removed the orphans' directory: a file is removed as ever, and there for those who have it open.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_gets_no_place_is_removed_as_ever() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    let (v, r) = (&rig.volume, root());
    let (node, file) = made(v, &r, &v.root(), "f", b"open");
    std::fs::remove_dir_all(rig.dir().join(".landfast/open")).expect("removed");
    assert!(!removed(v, &r, &v.root(), "f").expect("removed"));
    assert_eq!((v.orphans_len(), rig.names(&v.root(), 10).len()), (0, 0));
    assert_eq!(v.read(&file, 0, 10).expect("read").0, "open");
    drop(file);
    assert_eq!(v.resolve(&node.fh()).err(), Some(Error::Stale));
}

/// Fills the disk or uses up the quota, and removes files that were promised to outlast it: they are kept, or keep their names. Returns how many are
/// kept, of so many.
fn removed_on_a_full_disk(kernel: Kernel, fill: impl Fn(&Image) -> bool + Sync) -> Option<(usize, usize)> {
    let image = Image::new(kernel)?;
    let dir = image.path().join("export");
    std::fs::create_dir(&dir).expect("mkdir");
    let run = || {
        let options = || {
            let log = image.beside().join("log");
            OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(dir.clone(), log) }
        };
        let (v, _) = open(options());
        let (r, top) = (root(), v.root());
        let files: Vec<_> = (0..limits::ORPHANS_ON_A_FULL_DISK)
            .map(|n| made(&v, &r, &top, &format!("f{n}"), b"kept").0)
            .collect();
        if !fill(&image) {
            return None;
        }
        let mut kept = Vec::new();
        for (n, node) in files.iter().enumerate() {
            match removed(&v, &r, &top, &format!("f{n}")) {
                Ok(true) => kept.push(node.fh()),
                Ok(false) => panic!("{kernel:?}: file {n} is not kept"),
                Err(Error::Busy | Error::NoSpace | Error::Quota) => {
                    let entry = v.lookup(&r, &top, format!("f{n}").as_bytes());
                    assert_eq!(entry.as_ref(), Ok(node), "{kernel:?}: file {n} keeps its name");
                }
                Err(e) => panic!("{kernel:?}: file {n}: {e}"),
            }
        }
        assert_eq!((v.orphans_len(), v.failed()), (kept.len(), None));
        let all = files.len();
        drop((files, top, v));
        // The disk is still full.
        let (v, _) = open(options());
        assert_eq!(v.orphans_len(), kept.len());
        for fh in &kept {
            let node = v.resolve(fh).expect("there");
            assert_eq!(contents(&v, &node), b"kept");
            // Its place is free for the next.
            assert!(released(&v, &node));
        }
        assert_eq!(places(&dir), 0);
        Some((kept.len(), all))
    };
    // Other threads may not act as the superuser.
    std::thread::scope(|s| s.spawn(run).join()).expect("no panic")
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_a_full_disk_files_are_kept_as_ever() {
    for kernel in [Kernel::Ext4, Kernel::Xfs] {
        let full = |image: &Image| {
            image.fill();
            true
        };
        let Some((kept, all)) = removed_on_a_full_disk(kernel, full) else { continue };
        assert_eq!(kept, all, "{kernel:?}");
    }
}

/// There each name needs space, which the filesystem may not have.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_a_full_btrfs_what_cannot_be_kept_keeps_its_name() {
    let full = |image: &Image| {
        image.fill();
        true
    };
    let quota = |image: &Image| image.limited("12M") && full(image);
    if let Some((kept, all)) = removed_on_a_full_disk(Kernel::Btrfs, full) {
        println!("a full disk: {kept} of {all} are kept");
    }
    if let Some((kept, all)) = removed_on_a_full_disk(Kernel::Btrfs, quota) {
        println!("a used-up quota: {kept} of {all} are kept");
        assert!(kept < all, "the quota was not used up");
    }
}

/// A start that made room was cut off, and has left names.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_a_cut_has_left_of_the_room_goes() {
    for kernel in [Kernel::Ext4, Kernel::Xfs] {
        let Some(image) = Image::new(kernel) else { return };
        let options = || OpenOptions {
            log_size: 16 << 20,
            ..OpenOptions::with_log(image.path().to_owned(), image.beside().join("log"))
        };
        drop(open(options()));
        let places = image.path().join(".landfast/open");
        let look = || {
            let names = std::fs::read_dir(&places).expect("the orphans' directory");
            let mut names: Vec<_> = names.map(|e| e.expect("an entry").file_name()).collect();
            names.sort();
            (names, std::fs::metadata(&places).expect("its length").len())
        };
        let (names, length) = look();
        assert!(length >= limits::ORPHANS_ROOM_BYTES, "{kernel:?}: {length}");
        std::fs::hard_link(places.join("room"), places.join("room-once-left")).expect("a link");
        let (volume, _) = open(options());
        assert_eq!((volume.orphans_len(), look()), (0, (names, length)), "{kernel:?}");
    }
}
