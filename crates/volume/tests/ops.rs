//! Each operation on a real directory: on the filesystem of the temporary directory, on XFS and on btrfs.

mod common;

use bytes::Bytes;
use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

/// Runs all checks on a fresh volume each.
fn on(kernel: Kernel) {
    let Some(image) = Image::new(kernel) else { return };
    for (name, check) in ALL {
        println!("{name}");
        // On a thread of its own, since a thread that ran operations acts as their last caller.
        let done = std::thread::scope(|s| {
            s.spawn(|| check(&Rig::at(tempfile::tempdir_in(image.path()).unwrap(), Durability::Log))).join()
        });
        assert!(done.is_ok(), "{name} on {kernel:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_xfs() {
    on(Kernel::Xfs);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_btrfs() {
    on(Kernel::Btrfs);
}

/// Nothing is known after a start: the listing itself makes the nodes.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_listing_of_what_is_not_known_yet() {
    if !tempdir_suits() {
        return;
    }
    let r = root();
    let rig = Rig::log();
    let dir = rig.mkdir(&r, &rig.volume.root(), "d").unwrap();
    let node = rig.create(&r, &dir, "file").unwrap().node;
    rig.mkdir(&r, &dir, "dir").unwrap();
    rig.run(|tx| rig.volume.link(tx, &r, &node, &dir, b"other")).unwrap();
    let (d, fh) = (dir.fh(), node.fh());
    drop((dir, node));
    let rig = rig.restart();
    let v = &rig.volume;
    let dir = v.resolve(&d).unwrap();
    let list = || v.readdir(&r, &dir, 0, 10, EntryDetail::Attrs).unwrap().entries;
    let first = list();
    assert_eq!(first.len(), 3);
    for e in &first {
        let (node, attrs) = e.object.clone().unwrap().unwrap();
        assert_eq!(v.lookup(&r, &dir, &e.name).unwrap(), node);
        assert_eq!(v.resolve(&node.fh()).unwrap(), node);
        assert_eq!((v.getattr(&node).unwrap(), node.fileid()), (attrs, e.fileid));
        assert_eq!(node.fh() == fh, e.name != "dir");
    }
    // A change by one name shows at once under both.
    let node = v.resolve(&fh).unwrap();
    rig.setattr(&r, &node, mode(0o600)).unwrap();
    let now = v.getattr(&node).unwrap();
    for e in list().into_iter().filter(|e| e.name != "dir") {
        assert_eq!(e.object.unwrap().unwrap(), (node.clone(), now));
        assert_eq!(now.mode, 0o600);
    }
}

/// A directory that has not changed for a while is listed from memory; any change shows at once, whoever made it.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_kept_listing_is_as_good_as_the_directory() {
    if !tempdir_suits() {
        return;
    }
    let (rig, r) = (Rig::log(), root());
    let v = &rig.volume;
    let dir = rig.mkdir(&r, &v.root(), "d").unwrap();
    rig.setattr(&r, &dir, mode(0o705)).unwrap();
    let path = rig.dir().join("d");
    for n in 0..300 {
        std::fs::write(path.join(format!("file{n}")), b"x").unwrap();
    }
    let names = |from, detail| -> Vec<Bytes> {
        let page = v.readdir(&r, &dir, from, 10_000, detail).unwrap();
        assert!(page.eof);
        page.entries.into_iter().map(|e| e.name).collect()
    };
    let both = |from| {
        let found = names(from, EntryDetail::Names);
        assert_eq!(names(from, EntryDetail::Attrs), found);
        found
    };
    // Until no later change can get the directory's ctime.
    let settle = || {
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(80) {
            std::thread::yield_now();
        }
    };
    settle();
    let all = both(0);
    assert_eq!(all.len(), 300);
    let entries = v.readdir(&r, &dir, 0, 10_000, EntryDetail::Names).unwrap().entries;
    for (i, e) in entries.iter().enumerate().step_by(7) {
        assert_eq!(both(e.cookie), all[i + 1..], "behind entry {i}");
    }
    // Rights are checked each time.
    rig.setattr(&r, &dir, mode(0o701)).unwrap();
    settle();
    assert_eq!(both(0), all);
    assert_eq!(v.readdir(&user(1001), &dir, 0, 10, EntryDetail::Names).unwrap_err(), Error::Access);
    rig.setattr(&r, &dir, mode(0o704)).unwrap();
    settle();
    assert_eq!(both(0), all);
    let page = v.readdir(&user(1001), &dir, 0, 10, EntryDetail::Attrs).unwrap();
    assert!(page.entries.iter().all(|e| matches!(e.object, Some(Err(Error::Access)))));
    let sorted = |mut names: Vec<Bytes>| {
        names.sort();
        names
    };
    let mut expected = sorted(all);
    // This thread must be the superuser's again for what a local process does.
    assert_eq!(sorted(both(0)), expected);
    std::fs::remove_file(path.join("file7")).unwrap();
    expected.retain(|name| name != "file7");
    assert_eq!(sorted(both(0)), expected);
    settle();
    assert_eq!(sorted(both(0)), expected);
    rig.create(&r, &dir, "new").unwrap();
    expected = sorted([&expected[..], &[Bytes::from("new")]].concat());
    assert_eq!(sorted(both(0)), expected);
    settle();
    assert_eq!(sorted(both(0)), expected);
    rig.run(|tx| v.remove(tx, &r, &dir, b"new")).unwrap();
    expected.retain(|name| name != "new");
    assert_eq!(sorted(both(0)), expected);
}

/// The bug: a local process removes files and makes others, which get their inode numbers. A listing within the same second gave
/// the new names the handles and attributes of the removed files.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn numbers_that_a_local_process_has_given_to_other_files() {
    if !tempdir_suits() {
        return;
    }
    let r = root();
    let rig = Rig::log();
    let v = &rig.volume;
    let dir = rig.mkdir(&r, &v.root(), "d").unwrap();
    let names: Vec<String> = (0..50).map(|n| format!("file{n}")).collect();
    for name in &names {
        rig.create(&r, &dir, name).unwrap();
    }
    let list = || v.readdir(&r, &dir, 0, 100, EntryDetail::Attrs).unwrap().entries;
    let numbers: std::collections::HashSet<u64> = list().iter().map(|e| e.fileid).collect();
    let local = rig.dir().join("d");
    for name in &names {
        std::fs::remove_file(local.join(name)).unwrap();
    }
    for name in names.iter().rev() {
        std::fs::write(local.join(name), name).unwrap();
    }
    let mut again = 0;
    for e in list() {
        let (node, attrs) = e.object.unwrap().unwrap();
        again += u64::from(numbers.contains(&attrs.fileid));
        assert_eq!(attrs.size, e.name.len() as u64, "{:?}", e.name);
        assert_eq!(v.lookup(&r, &dir, &e.name).unwrap(), node, "{:?}", e.name);
    }
    println!("{again} numbers came again");
}

/// Where the temporary directory is on something else.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_ext4() {
    if !tempdir_suits() {
        on(Kernel::Ext4);
    }
}

macro_rules! checks {
    ($($name:ident)*) => {
        const ALL: &[(&str, fn(&Rig))] = &[$((stringify!($name), $name)),*];

        /// On the filesystem of the temporary directory.
        mod here {
            $(#[test]
            #[cfg_attr(not(root), ignore = "needs root")]
            fn $name() {
                if crate::common::tempdir_suits() {
                    super::$name(&crate::common::Rig::log());
                }
            })*
        }
    };
}

checks! {
    bad_names the_state_directory_cannot_be_reached create_modes attributes_at_creation umask_or_default_acl
    exclusive_create_can_be_repeated a_verifier_kept_apart_leaves_the_times_alone guarded_attributes how_things_looked_around_a_change other_users_get_what_the_modes_give opening_needs_rights sticky_directories
    setting_attributes what_fails_in_the_middle set_uid_bits_fall size_by_the_owner data an_unlinked_file_stays_usable
    unstable_data_and_commit links removing renaming renaming_onto_another_name_of_the_same_object
    handles_of_what_is_gone change_grows_with_every_change
    attributes_that_were_looked_at_are_good_until_something_changes foreign_changes_show parents special_files symbolic_links
    listing listing_while_entries_go cookies_that_were_never_given wrong_kinds
}

fn at(secs: i64, nanos: u32) -> Option<TimeSet> {
    Some(TimeSet::At(Timestamp { secs, nanos }))
}

fn bad_names(rig: &Rig) {
    let (v, dir) = (&rig.volume, rig.volume.root());
    let node = rig.create(&root(), &dir, "there").unwrap().node;
    let long = [b'x'; 256];
    let bad: [(&[u8], Error); 6] = [
        (b"", Error::NameEmpty),
        (b".", Error::NameDots),
        (b"..", Error::NameDots),
        (b"a/b", Error::NameChar),
        (b"a\0", Error::NameChar),
        (&long, Error::NameTooLong),
    ];
    for (name, error) in bad {
        let r = root();
        let how = CreateHow::Guarded(mode(0o644));
        assert_eq!(v.lookup(&r, &dir, name).unwrap_err(), error);
        assert_eq!(rig.run(|tx| v.create(tx, &r, &dir, name, how, OpenMode::BOTH)).unwrap_err(), error);
        assert_eq!(rig.run(|tx| v.mkdir(tx, &r, &dir, name, mode(0o755))).unwrap_err(), error);
        assert_eq!(rig.run(|tx| v.symlink(tx, &r, &dir, name, b"t", mode(0))).unwrap_err(), error);
        assert_eq!(rig.run(|tx| v.mknod(tx, &r, &dir, name, Special::Fifo, mode(0o600))).unwrap_err(), error);
        assert_eq!(rig.run(|tx| v.link(tx, &r, &node, &dir, name)).unwrap_err(), error);
        assert_eq!(rig.run(|tx| v.remove(tx, &r, &dir, name)).unwrap_err(), error);
        assert_eq!(rig.run(|tx| v.rename(tx, &r, &dir, name, &dir, b"n")).unwrap_err(), error);
        assert_eq!(rig.run(|tx| v.rename(tx, &r, &dir, b"there", &dir, name)).unwrap_err(), error);
    }
    assert_eq!(rig.names(&dir, 10), ["there"]);
    // Names are bytes.
    let odd = [0xffu8, b'\n', b'\\'];
    rig.run(|tx| v.mkdir(tx, &root(), &dir, &odd, mode(0o755))).unwrap();
    assert!(v.lookup(&root(), &dir, &odd).is_ok());
}

fn the_state_directory_cannot_be_reached(rig: &Rig) {
    let (dir, r) = (rig.volume.root(), root());
    let node = rig.create(&r, &dir, "f").unwrap().node;
    let sub = rig.mkdir(&r, &dir, "sub").unwrap();
    let hidden = ".landfast";
    assert_eq!(rig.lookup(&r, &dir, hidden).unwrap_err(), Error::NoEnt);
    assert_eq!(rig.create(&r, &dir, hidden).unwrap_err(), Error::Access);
    assert_eq!(rig.mkdir(&r, &dir, hidden).unwrap_err(), Error::Access);
    assert_eq!(rig.link(&r, &node, &dir, hidden).unwrap_err(), Error::Access);
    assert_eq!(rig.remove(&r, &dir, hidden).unwrap_err(), Error::NoEnt);
    assert_eq!(rig.rename(&r, (&dir, hidden), (&sub, "x")).unwrap_err(), Error::NoEnt);
    assert_eq!(rig.rename(&r, (&dir, "sub"), (&dir, hidden)).unwrap_err(), Error::Access);
    let mut names = rig.names(&dir, 100);
    names.sort();
    assert_eq!(names, ["f", "sub"]);
    // Elsewhere it is a name like any other.
    assert!(rig.mkdir(&r, &sub, hidden).is_ok());
    assert_eq!(rig.names(&sub, 100), [hidden]);
}

fn create_modes(rig: &Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let made = rig.create(&r, &dir, "f").unwrap();
    assert!(made.created && made.attrs_set.mode && !made.attrs_set.size);
    rig.write(&made.file, 0, b"content").unwrap();
    assert_eq!(rig.create(&r, &dir, "f").unwrap_err(), Error::Exists);
    let open = |size| {
        let attrs = SetAttrs { size, ..mode(0o600) };
        rig.create_how(&r, &dir, "f", CreateHow::Unchecked(attrs)).unwrap()
    };
    let before = rig.change(&dir);
    let found = open(None);
    assert!(!found.created && found.node == made.node && found.attrs_set == AttrsSet::default());
    assert_eq!((found.dir_change.before, found.dir_change.after), (before, before));
    assert_eq!(rig.attrs(&found.node).size, 7);
    assert_eq!(rig.attrs(&found.node).mode, 0o644, "the attributes are for new files");
    let cut = open(Some(0));
    assert!(!cut.created && cut.attrs_set.size);
    assert_eq!(rig.attrs(&cut.node).size, 0);
    let new = rig.create_how(&r, &dir, "g", CreateHow::Unchecked(mode(0o600))).unwrap();
    assert!(new.created);
    rig.mkdir(&r, &dir, "d").unwrap();
    let how = CreateHow::Unchecked(mode(0o600));
    assert_eq!(rig.create_how(&r, &dir, "d", how).unwrap_err(), Error::IsDir);
    rig.run(|tx| v.symlink(tx, &r, &dir, b"l", b"f", mode(0))).unwrap();
    assert_eq!(rig.create_how(&r, &dir, "l", how).unwrap_err(), Error::Symlink);
    rig.run(|tx| v.mknod(tx, &r, &dir, b"p", Special::Fifo, mode(0o600))).unwrap();
    assert_eq!(rig.create_how(&r, &dir, "p", how).unwrap_err(), Error::WrongKind);
}

fn attributes_at_creation(rig: &Rig) {
    let (dir, r) = (rig.volume.root(), root());
    let all = SetAttrs {
        uid: Some(1000),
        gid: Some(1001),
        size: Some(10_000),
        atime: at(1_000, 5),
        mtime: at(-5, 999_999_999),
        ..mode(0o6755)
    };
    let made = rig.create_how(&r, &dir, "f", CreateHow::Guarded(all)).unwrap();
    let set = made.attrs_set;
    assert!(set.mode && set.uid && set.gid && set.size && set.atime && set.mtime && !set.mode_umask);
    let a = rig.attrs(&made.node);
    assert_eq!(
        (a.mode, a.uid, a.gid, a.size),
        (0o6755, 1000, 1001, 10_000),
        "bits outlive the change of owner"
    );
    assert_eq!(a.atime, Timestamp { secs: 1_000, nanos: 5 });
    assert_eq!(a.mtime, Timestamp { secs: -5, nanos: 999_999_999 });
    assert_eq!(a.fileid, made.node.fileid());
    // New objects in a directory get its group and its set-gid bit.
    let shared = SetAttrs { gid: Some(77), ..mode(0o2777) };
    let shared = rig.run(|tx| rig.volume.mkdir(tx, &r, &dir, b"shared", shared)).unwrap().node;
    assert_eq!((rig.attrs(&shared).mode, rig.attrs(&shared).gid), (0o2777, 77));
    let sub = rig.mkdir(&user(1000), &shared, "sub").unwrap();
    assert_eq!((rig.attrs(&sub).mode, rig.attrs(&sub).uid, rig.attrs(&sub).gid), (0o2755, 1000, 77));
    // Only the superuser can give files away; for others the rest of the request holds.
    let gift = SetAttrs { uid: Some(0), ..mode(0o640) };
    let made = rig.create_how(&user(1000), &shared, "gift", CreateHow::Guarded(gift)).unwrap();
    assert!(!made.attrs_set.uid && made.attrs_set.mode);
    assert_eq!((rig.attrs(&made.node).uid, rig.attrs(&made.node).mode), (1000, 0o640));
    let nothing = rig.create_how(&r, &dir, "bare", CreateHow::Guarded(SetAttrs::default())).unwrap();
    assert_eq!(rig.attrs(&nothing.node).mode, 0);
    // An impossible size leaves nothing behind.
    let huge = SetAttrs { size: Some(u64::MAX), ..mode(0o644) };
    assert_eq!(rig.create_how(&r, &dir, "huge", CreateHow::Guarded(huge)).unwrap_err(), Error::TooBig);
    assert_eq!(rig.lookup(&r, &dir, "huge").unwrap_err(), Error::NoEnt);
}

fn umask_or_default_acl(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let plain = rig.mkdir(&r, &v.root(), "plain").unwrap();
    let masked = SetAttrs { mode_umask: Some((0o666, 0o027)), ..SetAttrs::default() };
    let made = rig.create_how(&r, &plain, "f", CreateHow::Guarded(masked)).unwrap();
    assert!(made.attrs_set.mode_umask && !made.attrs_set.mode);
    assert_eq!(rig.attrs(&made.node).mode, 0o640);
    assert_eq!(rig.attrs(&rig.create(&r, &plain, "g").unwrap().node).mode, 0o644, "and only for that call");
    // user::rwx group::r-x other::r-x as the default ACL: the umask does not apply.
    let entry =
        |tag: u16, perm: u16| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    let acl = [&2u32.to_le_bytes()[..], &entry(1, 7), &entry(4, 5), &entry(0x20, 5)].concat();
    let with = rig.mkdir(&r, &v.root(), "acl").unwrap();
    // Known as a directory without an ACL before it gets one.
    rig.create(&r, &with, "before").unwrap();
    let path = rig.dir().join("acl");
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "system.posix_acl_default", &acl, none).unwrap();
    let made = rig.create_how(&r, &with, "f", CreateHow::Guarded(masked)).unwrap();
    assert_eq!(rig.attrs(&made.node).mode, 0o644, "666 cut by the ACL, not by the umask");
    let dir = SetAttrs { mode_umask: Some((0o777, 0o077)), ..SetAttrs::default() };
    let sub = rig.run(|tx| v.mkdir(tx, &r, &with, b"d", dir)).unwrap().node;
    assert_eq!(rig.attrs(&sub).mode, 0o755);
}

fn exclusive_create_can_be_repeated(rig: &Rig) {
    let (dir, u) = (rig.volume.root(), user(1000));
    rig.setattr(&root(), &dir, mode(0o777)).unwrap();
    for (name, instance) in [("times", None), ("apart", Some(*b"instance"))] {
        let how = |verf: &[u8; 8]| CreateHow::Exclusive {
            verifier: Verifier { create: *verf, instance },
            attrs: mode(0o400),
        };
        let first = rig.create_how(&u, &dir, name, how(b"\xff2345678")).unwrap();
        assert!(first.created && first.attrs_set.mode && !first.attrs_set.atime && !first.attrs_set.mtime);
        let again = rig.create_how(&u, &dir, name, how(b"\xff2345678")).unwrap();
        assert!(again.created && again.node == first.node && again.attrs_set == first.attrs_set);
        assert_eq!(again.kept, first.kept);
        assert_eq!(again.dir_change.before, again.dir_change.after);
        // Its maker may write, though the mode forbids it.
        rig.write(&again.file, 0, b"").unwrap();
        // Every bit of the verifier counts.
        for bit in 0..64 {
            let other = (u64::from_be_bytes(*b"\xff2345678") ^ (1 << bit)).to_be_bytes();
            let other = rig.create_how(&u, &dir, name, how(&other));
            assert_eq!(other.unwrap_err(), Error::Exists, "{name}, bit {bit}");
        }
        rig.write(&again.file, 0, b"x").unwrap();
        assert_eq!(rig.create_how(&u, &dir, name, how(b"\xff2345678")).unwrap_err(), Error::Exists);
    }
}

/// An exclusive create whose verifier is kept apart.
fn apart(instance: [u8; 8]) -> CreateHow {
    let verifier = Verifier { create: *b"verifier", instance: Some(instance) };
    CreateHow::Exclusive { verifier, attrs: SetAttrs { size: Some(5), ..mode(0o600) } }
}

const VERIFIER: &str = "trusted.landfast.made";

fn attribute(rig: &Rig, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 64];
    let len = rustix::fs::getxattr(rig.dir().join(name), VERIFIER, &mut value[..]).ok()?;
    Some(value[..len].to_vec())
}

fn a_verifier_kept_apart_leaves_the_times_alone(rig: &Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let before = rig.attrs(&rig.create(&r, &dir, "before").unwrap().node);
    let made = rig.create_how(&r, &dir, "f", apart([1; 8])).unwrap();
    assert_eq!(made.kept, Some(Kept::Apart));
    let attrs = rig.attrs(&made.node);
    let after = rig.attrs(&rig.create(&r, &dir, "after").unwrap().node);
    assert!(before.mtime <= attrs.mtime && attrs.mtime <= after.mtime, "{before:?} {attrs:?} {after:?}");
    assert!(before.atime <= attrs.atime && attrs.atime <= after.atime);
    assert!(v.listxattrs(&r, &made.node, 0).unwrap().is_empty(), "clients do not see it");
    // It is the client's instance's, and this file's.
    assert_eq!(rig.create_how(&r, &dir, "f", apart([2; 8])).unwrap_err(), Error::Exists);
    let verifier = Verifier { create: *b"verifier", instance: None };
    let how = CreateHow::Exclusive { verifier, attrs: SetAttrs { size: Some(5), ..mode(0o600) } };
    assert_eq!(rig.create_how(&r, &dir, "f", how).unwrap_err(), Error::Exists);
    let copied = attribute(rig, "f").expect("it is there");
    let of_copy = rig.create_how(&r, &dir, "copy", apart([3; 8])).unwrap();
    rustix::fs::setxattr(rig.dir().join("copy"), VERIFIER, &copied, rustix::fs::XattrFlags::empty()).unwrap();
    let times = SetAttrs {
        atime: Some(TimeSet::At(attrs.atime)),
        mtime: Some(TimeSet::At(attrs.mtime)),
        ..SetAttrs::default()
    };
    // Through the filesystem: the volume's own SETATTR would take it away.
    let time = |t: Timestamp| rustix::fs::Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() };
    let same =
        rustix::fs::Timestamps { last_access: time(attrs.atime), last_modification: time(attrs.mtime) };
    let (cwd, flags) = (rustix::fs::CWD, rustix::fs::AtFlags::empty());
    rustix::fs::utimensat(cwd, rig.dir().join("copy"), &same, flags).unwrap();
    assert_eq!(rig.create_how(&r, &dir, "copy", apart([1; 8])).unwrap_err(), Error::Exists);
    drop(of_copy);
    // Other attributes do not end it, as they did not when it was in the times.
    rig.setattr(&r, &made.node, mode(0o644)).unwrap();
    assert!(rig.create_how(&r, &dir, "f", apart([1; 8])).is_ok());
    // Its times do, even if they are as before; and nothing is left.
    rig.setattr(&r, &made.node, times).unwrap();
    assert_eq!(attribute(rig, "f"), None);
    assert_eq!(rig.create_how(&r, &dir, "f", apart([1; 8])).unwrap_err(), Error::Exists);
    // So do the size and a write.
    let made = rig.create_how(&r, &dir, "sized", apart([1; 8])).unwrap();
    rig.setattr(&r, &made.node, SetAttrs { size: Some(5), ..SetAttrs::default() }).unwrap();
    assert_eq!(attribute(rig, "sized"), None);
    assert_eq!(rig.create_how(&r, &dir, "sized", apart([1; 8])).unwrap_err(), Error::Exists);
    let made = rig.create_how(&r, &dir, "written", apart([1; 8])).unwrap();
    rig.write(&made.file, 0, b"x").unwrap();
    assert_eq!(attribute(rig, "written"), None);
    assert_eq!(rig.create_how(&r, &dir, "written", apart([1; 8])).unwrap_err(), Error::Exists);
}

/// Nothing in memory is needed to recognise it.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_verifier_kept_apart_outlasts_the_server() {
    if !tempdir_suits() {
        return;
    }
    let r = root();
    for durability in [Durability::Log, Durability::Sync, Durability::Unsafe] {
        let rig = Rig::new(durability);
        for name in ["repeated", "written", "touched"] {
            rig.create_how(&r, &rig.volume.root(), name, apart([1; 8])).unwrap();
        }
        let rig = rig.crash();
        let (v, dir) = (&rig.volume, rig.volume.root());
        let again = rig.create_how(&r, &dir, "repeated", apart([1; 8])).unwrap();
        assert_eq!((again.created, again.kept), (true, Some(Kept::Apart)), "{durability:?}");
        assert_eq!(rig.create_how(&r, &dir, "repeated", apart([2; 8])).unwrap_err(), Error::Exists);
        // That it is there is not known here, so it stays; it means nothing.
        let node = rig.lookup(&r, &dir, "written").unwrap();
        let file = v.open_file(&r, &node, OpenMode::WRITE).unwrap();
        rig.write(&file, 5, b"x").unwrap();
        drop((again, file));
        assert!(attribute(&rig, "written").is_some());
        assert_eq!(rig.create_how(&r, &dir, "written", apart([1; 8])).unwrap_err(), Error::Exists);
        let node = rig.lookup(&r, &dir, "touched").unwrap();
        let long_ago = Some(TimeSet::At(Timestamp { secs: 1_000_000, nanos: 0 }));
        rig.setattr(&r, &node, SetAttrs { mtime: long_ago, ..SetAttrs::default() }).unwrap();
        assert_eq!(rig.create_how(&r, &dir, "touched", apart([1; 8])).unwrap_err(), Error::Exists);
        drop((dir, node));
        let rig = rig.restart();
        assert!(rig.create_how(&r, &rig.volume.root(), "repeated", apart([1; 8])).is_ok(), "{durability:?}");
    }
}

fn guarded_attributes(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let node = rig.create(&r, &v.root(), "f").unwrap().node;
    let now = rig.attrs(&node).ctime;
    let before = Timestamp { secs: now.secs - 1, nanos: now.nanos };
    let set = |guard, bits| rig.run(|tx| v.setattr_guarded(tx, &r, &node, None, mode(bits), Some(guard)));
    assert_eq!(set(Guard::Ctime(before), 0o600).unwrap(), None);
    assert_eq!(rig.attrs(&node).mode, 0o644, "nothing was done");
    assert!(set(Guard::Ctime(now), 0o600).unwrap().unwrap().mode);
    assert_eq!(rig.attrs(&node).mode, 0o600);
    // Changes within one tick of the kernel's clock differ, too.
    for _ in 0..20 {
        let is = rig.attrs(&node);
        let guard = Guard::Change(is.change, is.ctime);
        assert!(set(guard, 0o640).unwrap().is_some());
        assert_eq!(set(guard, 0o600).unwrap(), None);
        assert_eq!(rig.attrs(&node).mode, 0o640);
    }
    // What somebody else has just written is as it was seen, though its change attribute grows for a moment.
    std::fs::write(rig.dir().join("foreign"), b"x").unwrap();
    let node = rig.lookup(&r, &v.root(), "foreign").unwrap();
    let is = rig.attrs(&node);
    let guard = Some(Guard::Change(is.change, is.ctime));
    let set = || rig.run(|tx| v.setattr_guarded(tx, &r, &node, None, mode(0o600), guard));
    assert!(set().unwrap().is_some());
    assert_eq!(set().unwrap(), None);
}

fn how_things_looked_around_a_change(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let dir = v.root();
    let mut tx = v.tx();
    v.mkdir(&mut tx, &r, &dir, b"unwatched", mode(0o755)).unwrap();
    assert!(tx.around(&dir).is_none());
    tx.watch();
    let was = rig.attrs(&dir);
    let how = CreateHow::Guarded(mode(0o644));
    let made = v.create(&mut tx, &r, &dir, b"f", how, OpenMode::BOTH).unwrap();
    let seen = tx.around(&dir).unwrap();
    assert_eq!((seen.before.size, seen.before.mtime, seen.before.ctime), (was.size, was.mtime, was.ctime));
    assert_eq!(seen.after.change, made.dir_change.after);
    assert!(tx.around(&made.node).is_none());
    for stable in [Stable::FileSync, Stable::Unstable] {
        let was = rig.attrs(&made.node);
        v.write(&mut tx, &made.file, was.size, Bytes::from_static(b"abc"), stable).unwrap();
        let seen = tx.around(&made.node).unwrap();
        assert_eq!((seen.before.size, seen.before.ctime), (was.size, was.ctime));
        assert_eq!(seen.after.size, was.size + 3);
        assert_eq!(seen.after.change, rig.attrs(&made.node).change);
    }
    let sub = v.mkdir(&mut tx, &r, &dir, b"sub", mode(0o755)).unwrap().node;
    let was = rig.attrs(&dir);
    v.rename(&mut tx, &r, &dir, b"f", &sub, b"g").unwrap();
    assert_eq!(tx.around(&dir).unwrap().before.mtime, was.mtime);
    assert_eq!(tx.around(&sub).unwrap().after.mtime, rig.attrs(&sub).mtime);
    // An operation that changes nothing has no before and after.
    let empty = v.tx();
    assert!(empty.around(&dir).is_none());
    tx.finish().wait_blocking().unwrap();
}

fn other_users_get_what_the_modes_give(rig: &Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let (alice, mut bob) = (user(1000), user(1001));
    let home = SetAttrs { uid: Some(1000), gid: Some(500), ..mode(0o750) };
    let home = rig.run(|tx| v.mkdir(tx, &r, &dir, b"home", home)).unwrap().node;
    let secret = rig.create_how(&alice, &home, "secret", CreateHow::Guarded(mode(0o640))).unwrap().node;
    rig.setattr(&r, &secret, SetAttrs { gid: Some(500), ..SetAttrs::default() }).unwrap();
    assert_eq!(rig.lookup(&bob, &home, "secret").unwrap_err(), Error::Access);
    assert_eq!(rig.create(&bob, &home, "x").unwrap_err(), Error::Access);
    assert_eq!(rig.mkdir(&bob, &dir, "x").unwrap_err(), Error::Access);
    assert_eq!(rig.remove(&bob, &home, "secret").unwrap_err(), Error::Access);
    assert_eq!(v.readdir(&bob, &home, 0, 10, EntryDetail::Names).unwrap_err(), Error::Access);
    assert_eq!(v.open_file(&bob, &secret, OpenMode::READ).unwrap_err(), Error::Access);
    let asked = AccessMask { read: true, write: true, execute: true };
    let got = |read, write, execute| AccessMask { read, write, execute };
    assert_eq!(v.access(&bob, &home, asked).unwrap(), got(false, false, false));
    assert_eq!(v.access(&alice, &home, asked).unwrap(), got(true, true, true));
    assert_eq!(v.access(&alice, &secret, asked).unwrap(), got(true, true, false));
    assert_eq!(v.access(&alice, &secret, got(true, false, false)).unwrap(), got(true, false, false));
    assert_eq!(v.access(&r, &secret, asked).unwrap(), got(true, true, false));
    // A member of the group through a supplementary one.
    bob.groups = std::sync::Arc::from([400, 500]);
    assert_eq!(v.access(&bob, &home, asked).unwrap(), got(true, false, true));
    assert_eq!(v.access(&bob, &secret, asked).unwrap(), got(true, false, false));
    assert!(v.open_file(&bob, &secret, OpenMode::READ).is_ok());
    assert_eq!(v.open_file(&bob, &secret, OpenMode::WRITE).unwrap_err(), Error::Access);
    assert_eq!(rig.create(&bob, &home, "x").unwrap_err(), Error::Access);
    bob.groups = std::sync::Arc::from([400]);
    assert_eq!(v.access(&bob, &home, asked).unwrap(), got(false, false, false), "nothing stays from before");
    // In a listing, an entry that may not be looked at has its own error.
    rig.setattr(&r, &home, mode(0o704)).unwrap();
    let page = v.readdir(&bob, &home, 0, 10, EntryDetail::Attrs).unwrap();
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.entries[0].object.as_ref().unwrap().as_ref().unwrap_err(), &Error::Access);
}

fn opening_needs_rights(rig: &Rig) {
    let (v, dir) = (&rig.volume, rig.volume.root());
    rig.setattr(&root(), &dir, mode(0o777)).unwrap();
    let (alice, bob) = (user(1000), user(1001));
    let node = rig.create_how(&alice, &dir, "f", CreateHow::Guarded(mode(0o111))).unwrap().node;
    assert!(v.open_file(&bob, &node, OpenMode::READ).is_ok(), "what may be run may be read");
    assert_eq!(v.open_file(&bob, &node, OpenMode::BOTH).unwrap_err(), Error::Access);
    rig.setattr(&alice, &node, mode(0)).unwrap();
    assert_eq!(v.open_file(&bob, &node, OpenMode::READ).unwrap_err(), Error::Access);
    assert_eq!(v.open_file(&alice, &node, OpenMode::WRITE).unwrap_err(), Error::Access);
    let mine = OpenMode { owner_override: true, ..OpenMode::BOTH };
    assert!(v.open_file(&alice, &node, mine).is_ok());
    assert_eq!(v.open_file(&bob, &node, mine).unwrap_err(), Error::Access);
    let file = v.open_file(&root(), &node, OpenMode::READ).unwrap();
    assert!(file.can_read() && !file.can_write() && file.node() == &node);
    assert_eq!(rig.write(&file, 0, b"x").unwrap_err(), Error::Access);
    let file = v.open_file(&root(), &node, OpenMode::WRITE).unwrap();
    assert_eq!(v.read(&file, 0, 1).unwrap_err(), Error::Access);
}

fn sticky_directories(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let tmp = rig.run(|tx| v.mkdir(tx, &r, &v.root(), b"tmp", mode(0o1777))).unwrap().node;
    assert_eq!(rig.attrs(&tmp).mode, 0o1777);
    rig.create(&user(1000), &tmp, "f").unwrap();
    assert_eq!(rig.remove(&user(1001), &tmp, "f").unwrap_err(), Error::Perm);
    assert_eq!(rig.rename(&user(1001), (&tmp, "f"), (&tmp, "g")).unwrap_err(), Error::Perm);
    rig.remove(&user(1000), &tmp, "f").unwrap();
}

fn setting_attributes(rig: &Rig) {
    let (dir, alice) = (rig.volume.root(), user(1000));
    rig.setattr(&root(), &dir, mode(0o777)).unwrap();
    let node = rig.create(&alice, &dir, "f").unwrap().node;
    assert_eq!(rig.setattr(&user(1001), &node, mode(0o777)).unwrap_err(), Error::Perm);
    let give = SetAttrs { uid: Some(1001), ..SetAttrs::default() };
    assert_eq!(rig.setattr(&alice, &node, give).unwrap_err(), Error::Perm);
    let nobody = SetAttrs { uid: Some(u32::MAX), ..SetAttrs::default() };
    assert_eq!(rig.setattr(&root(), &node, nobody).unwrap_err(), Error::Inval);
    let times = SetAttrs { atime: at(7, 8), mtime: Some(TimeSet::Now), ..SetAttrs::default() };
    let a = rig.setattr(&alice, &node, times).unwrap();
    assert_eq!(a.atime, Timestamp { secs: 7, nanos: 8 });
    assert!(a.mtime.secs > 1_600_000_000);
    // Whoever may write may set the time to now, but to no other time.
    rig.setattr(&alice, &node, mode(0o666)).unwrap();
    let now = SetAttrs { atime: Some(TimeSet::Now), mtime: Some(TimeSet::Now), ..SetAttrs::default() };
    assert!(rig.setattr(&user(1001), &node, now).is_ok());
    assert_eq!(rig.setattr(&user(1001), &node, times).unwrap_err(), Error::Perm);
    let odd = SetAttrs { mtime: at(0, 1_000_000_000), ..SetAttrs::default() };
    assert_eq!(rig.setattr(&alice, &node, odd).unwrap_err(), Error::Inval);
    // The set-gid bit is cleared if the owner is not in the group, as locally.
    rig.setattr(&root(), &node, SetAttrs { gid: Some(9), ..SetAttrs::default() }).unwrap();
    assert_eq!(rig.setattr(&alice, &node, mode(0o2755)).unwrap().mode, 0o755);
    assert_eq!(rig.setattr(&root(), &node, mode(0o2755)).unwrap().mode, 0o2755);
    // A new owner (which clears these bits) and a new mode with them, in one request.
    let both = SetAttrs { uid: Some(5), ..mode(0o4755) };
    let a = rig.setattr(&root(), &node, both).unwrap();
    assert_eq!((a.uid, a.mode), (5, 0o4755));
    let a = rig.setattr(&root(), &node, SetAttrs { uid: Some(6), ..SetAttrs::default() }).unwrap();
    assert_eq!((a.uid, a.mode), (6, 0o755), "a new owner alone takes them away");
}

fn what_fails_in_the_middle(rig: &Rig) {
    let dir = rig.volume.root();
    rig.setattr(&root(), &dir, mode(0o777)).unwrap();
    let made = rig.create(&user(1000), &dir, "f").unwrap();
    let before = rig.change(&made.node);
    // The size comes first and is done; the owner is refused; the mode is not reached.
    let wish = SetAttrs { size: Some(77), uid: Some(0), ..mode(0o600) };
    assert_eq!(rig.setattr(&user(1000), &made.node, wish).unwrap_err(), Error::Perm);
    let a = rig.attrs(&made.node);
    assert_eq!((a.size, a.uid, a.mode), (77, 1000, 0o644));
    assert!(a.change > before);
}

fn set_uid_bits_fall(rig: &Rig) {
    let (v, dir) = (&rig.volume, rig.volume.root());
    let made = rig.create(&root(), &dir, "f").unwrap();
    let bits = |m| rig.setattr(&root(), &made.node, mode(m)).unwrap().mode;
    assert_eq!(bits(0o6777), 0o6777);
    let theirs = v.open_file(&user(1000), &made.node, OpenMode::BOTH).unwrap();
    rig.write(&theirs, 0, b"x").unwrap();
    assert_eq!(rig.attrs(&made.node).mode, 0o777, "another's write takes them away");
    bits(0o6777);
    rig.write(&made.file, 0, b"x").unwrap();
    assert_eq!(rig.attrs(&made.node).mode, 0o6777, "the superuser's does not");
    let cut = SetAttrs { size: Some(0), ..SetAttrs::default() };
    rig.setattr(&user(1000), &made.node, cut).unwrap();
    assert_eq!(rig.attrs(&made.node).mode, 0o777);
}

fn size_by_the_owner(rig: &Rig) {
    let dir = rig.volume.root();
    rig.setattr(&root(), &dir, mode(0o777)).unwrap();
    let alice = user(1000);
    let made = rig.create_how(&alice, &dir, "f", CreateHow::Guarded(mode(0o444))).unwrap();
    let size = |n| SetAttrs { size: Some(n), ..SetAttrs::default() };
    // Through the file as it was opened, and as the owner; nobody else.
    rig.run(|tx| rig.volume.setattr(tx, &alice, &made.node, Some(&made.file), size(10))).unwrap();
    assert_eq!(rig.setattr(&alice, &made.node, size(20)).unwrap().size, 20);
    assert_eq!(rig.setattr(&user(1001), &made.node, size(30)).unwrap_err(), Error::Access);
    assert_eq!(rig.setattr(&root(), &made.node, size(u64::MAX)).unwrap_err(), Error::TooBig);
    assert_eq!(rig.setattr(&root(), &dir, size(0)).unwrap_err(), Error::IsDir);
    assert_eq!(rig.attrs(&made.node).size, 20);
}

fn data(rig: &Rig) {
    let v = &rig.volume;
    let made = rig.create(&root(), &v.root(), "f").unwrap();
    assert_eq!(v.read(&made.file, 0, 10).unwrap(), (Bytes::new(), true));
    assert_eq!(rig.write(&made.file, 100_000, b"end").unwrap(), (3, Stable::FileSync));
    let (hole, eof) = v.read(&made.file, 99_998, 100).unwrap();
    assert_eq!((&hole[..], eof), (&b"\0\0end"[..], true));
    assert!(!v.read(&made.file, 0, 100_002).unwrap().1);
    assert!(v.read(&made.file, 0, 100_003).unwrap().1);
    assert_eq!(v.read(&made.file, u64::MAX, 10).unwrap(), (Bytes::new(), true));
    assert_eq!(rig.write(&made.file, u64::MAX, b"x").unwrap_err(), Error::TooBig);
    assert_eq!(rig.write(&made.file, i64::MAX as u64, b"x").unwrap_err(), Error::TooBig);
    assert_eq!(rig.write(&made.file, 5, b"").unwrap().0, 0);
    let big = vec![5u8; (3 << 20) + 17];
    assert_eq!(rig.write(&made.file, 1, &big).unwrap().0 as usize, big.len());
    assert_eq!(v.read(&made.file, 1, big.len() as u32).unwrap(), (Bytes::from(big), true));
    assert!(rig.attrs(&made.node).used > 0);
}

fn an_unlinked_file_stays_usable(rig: &Rig) {
    let (v, dir) = (&rig.volume, rig.volume.root());
    let made = rig.create(&root(), &dir, "f").unwrap();
    let fh = made.node.fh();
    rig.remove(&root(), &dir, "f").unwrap();
    rig.write(&made.file, 0, b"still").unwrap();
    assert_eq!(v.read(&made.file, 0, 9).unwrap().0, "still");
    assert_eq!(rig.attrs(&made.node).nlink, 0);
    assert_eq!(v.resolve(&fh).unwrap(), made.node, "while it is open");
    rig.run(|tx| v.commit(tx, &made.node, 0, 0)).unwrap();
    rig.setattr(&root(), &made.node, mode(0o600)).unwrap();
    assert_eq!(rig.link(&root(), &made.node, &dir, "back").unwrap_err(), Error::Stale);
    let node = made.node.clone();
    drop(made);
    assert_eq!(v.resolve(&fh).unwrap_err(), Error::Stale);
    assert_eq!(v.getattr(&node).unwrap_err(), Error::Stale);
}

fn unstable_data_and_commit(rig: &Rig) {
    let v = &rig.volume;
    let made = rig.create(&root(), &v.root(), "f").unwrap();
    let write = |offset, data: &'static [u8]| {
        rig.run(|tx| v.write(tx, &made.file, offset, Bytes::from_static(data), Stable::Unstable)).unwrap()
    };
    let verifier = v.write_verifier();
    let before = v.stats();
    assert_eq!(write(0, b"abc"), (3, Stable::Unstable));
    write(5000, b"def");
    let batches = |s: &Stats| s.log.as_ref().unwrap().batches;
    assert_eq!(batches(&v.stats()), batches(&before), "nothing is flushed for it");
    rig.run(|tx| v.commit(tx, &made.node, 0, 0)).unwrap();
    let after = v.stats();
    assert_eq!(batches(&after), batches(&before) + 1, "a small commit is one flush of the log");
    assert_eq!(after.fdatasyncs, before.fdatasyncs);
    // Data larger than the log accepts goes to the file.
    let chunk = Bytes::from(vec![1u8; 1 << 20]);
    for i in 0..3u64 {
        rig.run(|tx| v.write(tx, &made.file, i << 20, chunk.clone(), Stable::Unstable)).unwrap();
    }
    rig.run(|tx| v.commit(tx, &made.node, 0, 0)).unwrap();
    let last = v.stats();
    // btrfs flushes the whole filesystem, since files do not reach the disk in order there.
    assert!(last.fdatasyncs == after.fdatasyncs + 1 || last.syncfs > after.syncfs);
    // Through an open file that cannot be read.
    let blind = v.open_file(&root(), &made.node, OpenMode::WRITE).unwrap();
    rig.run(|tx| v.write(tx, &blind, 9, Bytes::from_static(b"x"), Stable::Unstable)).unwrap();
    rig.run(|tx| v.commit(tx, &made.node, 0, 0)).unwrap();
    assert_eq!(v.write_verifier(), verifier);
}

fn links(rig: &Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let node = rig.create(&r, &dir, "f").unwrap().node;
    let sub = rig.mkdir(&r, &dir, "sub").unwrap();
    let before = (rig.change(&sub), rig.change(&node));
    let change = rig.link(&r, &node, &sub, "g").unwrap();
    assert_eq!(change.before, before.0);
    assert!(change.atomic && change.after > change.before && rig.change(&sub) == change.after);
    assert!(rig.change(&node) > before.1);
    assert_eq!(rig.attrs(&node).nlink, 2);
    assert_eq!(rig.lookup(&r, &sub, "g").unwrap(), node);
    assert_eq!(rig.link(&r, &node, &sub, "g").unwrap_err(), Error::Exists);
    assert_eq!(rig.link(&r, &sub, &dir, "x").unwrap_err(), Error::IsDir);
    assert_eq!(rig.link(&r, &node, &node, "x").unwrap_err(), Error::NotDir);
    rig.remove(&r, &dir, "f").unwrap();
    assert_eq!(rig.attrs(&node).nlink, 1);
    assert_eq!(v.resolve(&node.fh()).unwrap(), node);
    let link = rig.run(|tx| v.symlink(tx, &r, &dir, b"l", b"nowhere", mode(0))).unwrap().node;
    rig.link(&r, &link, &dir, "m").unwrap();
    assert_eq!(rig.lookup(&r, &dir, "m").unwrap(), link, "a link itself, not its target");
}

fn removing(rig: &Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    assert_eq!(rig.remove(&r, &dir, "f").unwrap_err(), Error::NoEnt);
    let sub = rig.mkdir(&r, &dir, "sub").unwrap();
    rig.create(&r, &sub, "f").unwrap();
    assert_eq!(rig.remove(&r, &dir, "sub").unwrap_err(), Error::NotEmpty);
    let before = rig.change(&sub);
    let change = rig.remove(&r, &sub, "f").unwrap();
    assert_eq!((change.before, change.after), (before, rig.change(&sub)));
    rig.remove(&r, &dir, "sub").unwrap();
    assert_eq!(v.getattr(&sub).unwrap_err(), Error::Stale);
    assert_eq!(rig.lookup(&r, &sub, "f").unwrap_err(), Error::Stale);
    assert_eq!(rig.create(&r, &sub, "f").unwrap_err(), Error::Stale);
    let f = rig.create(&r, &dir, "f").unwrap().node;
    assert_eq!(rig.remove(&r, &f, "x").unwrap_err(), Error::NotDir);
}

fn renaming(rig: &Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let a = rig.mkdir(&r, &dir, "a").unwrap();
    let b = rig.mkdir(&r, &dir, "b").unwrap();
    let f = rig.create(&r, &a, "f").unwrap().node;
    let before = (rig.change(&a), rig.change(&b), rig.change(&f));
    let (from, to) = rig.rename(&r, (&a, "f"), (&b, "g")).unwrap();
    assert_eq!((from.before, to.before), (before.0, before.1));
    assert_eq!((from.after, to.after), (rig.change(&a), rig.change(&b)));
    assert!(from.after > from.before && to.after > to.before && from.atomic && to.atomic);
    assert!(rig.change(&f) > before.2);
    assert_eq!(rig.lookup(&r, &b, "g").unwrap(), f);
    assert_eq!(rig.lookup(&r, &a, "f").unwrap_err(), Error::NoEnt);
    assert_eq!(v.resolve(&f.fh()).unwrap(), f, "the handle stays");
    // In one directory, over another file.
    let victim = rig.create(&r, &b, "h").unwrap().node;
    let (from, to) = rig.rename(&r, (&b, "g"), (&b, "h")).unwrap();
    assert_eq!(from, to);
    assert_eq!(rig.lookup(&r, &b, "h").unwrap(), f);
    assert_eq!(v.resolve(&victim.fh()).unwrap_err(), Error::Stale);
    assert_eq!(rig.names(&b, 10), ["h"]);
    // What is not compatible.
    rig.create(&r, &a, "file").unwrap();
    assert_eq!(rig.rename(&r, (&a, "file"), (&dir, "b")).unwrap_err(), Error::IsDir);
    assert_eq!(rig.rename(&r, (&dir, "b"), (&a, "file")).unwrap_err(), Error::NotDir);
    assert_eq!(rig.rename(&r, (&dir, "a"), (&dir, "b")).unwrap_err(), Error::NotEmpty);
    assert_eq!(rig.rename(&r, (&dir, "a"), (&a, "self")).unwrap_err(), Error::Inval);
    assert_eq!(rig.rename(&r, (&dir, "none"), (&a, "x")).unwrap_err(), Error::NoEnt);
    // A directory over an empty one, and into another.
    let empty = rig.mkdir(&r, &dir, "empty").unwrap();
    rig.rename(&r, (&dir, "a"), (&dir, "empty")).unwrap();
    assert_eq!(v.resolve(&empty.fh()).unwrap_err(), Error::Stale);
    rig.rename(&r, (&dir, "empty"), (&b, "a")).unwrap();
    assert_eq!(v.lookup_parent(&r, &a).unwrap(), b);
    assert_eq!(rig.names(&a, 10), ["file"]);
    // Over one of several names.
    let two = rig.create(&r, &b, "two").unwrap().node;
    rig.link(&r, &two, &b, "names").unwrap();
    rig.rename(&r, (&b, "h"), (&b, "two")).unwrap();
    assert_eq!(rig.attrs(&two).nlink, 1);
    assert_eq!(v.resolve(&two.fh()).unwrap(), two);
}

fn renaming_onto_another_name_of_the_same_object(rig: &Rig) {
    let (dir, r) = (rig.volume.root(), root());
    let sub = rig.mkdir(&r, &dir, "sub").unwrap();
    let f = rig.create(&r, &dir, "f").unwrap().node;
    rig.link(&r, &f, &sub, "g").unwrap();
    let before = (rig.change(&dir), rig.change(&sub), rig.change(&f));
    let (from, to) = rig.rename(&r, (&dir, "f"), (&sub, "g")).unwrap();
    assert_eq!((from.before, from.after, to.before, to.after), (before.0, before.0, before.1, before.1));
    assert_eq!((rig.change(&dir), rig.change(&sub), rig.change(&f)), before);
    assert_eq!(rig.attrs(&f).nlink, 2);
    let (from, _) = rig.rename(&r, (&dir, "f"), (&dir, "f")).unwrap();
    assert_eq!(from.before, from.after);
}

fn handles_of_what_is_gone(rig: &Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let node = rig.create(&r, &dir, "f").unwrap().node;
    let fh = node.fh();
    assert!(fh.len() <= 64 && fh[0] == HANDLE_VERSION);
    assert_eq!(v.resolve(&fh).unwrap(), node);
    for at in 0..fh.len() {
        let mut forged = fh.to_vec();
        forged[at] ^= 1;
        assert_eq!(v.resolve(&forged).unwrap_err(), Error::BadHandle);
    }
    assert_eq!(v.resolve(b"").unwrap_err(), Error::BadHandle);
    assert_eq!(v.resolve(&[1; 128]).unwrap_err(), Error::BadHandle);
    // As a client does: while another test's process is reusing the number, the answer is to retry.
    let resolve = || loop {
        match v.resolve(&fh) {
            Err(Error::Resources) => std::thread::yield_now(),
            answer => return answer,
        }
    };
    drop(node);
    rig.remove(&r, &dir, "f").unwrap();
    assert_eq!(resolve().unwrap_err(), Error::Stale);
    // Another file may take its number, but not its handle.
    for i in 0..20 {
        rig.create(&r, &dir, &format!("n{i}")).unwrap();
        assert_eq!(resolve().unwrap_err(), Error::Stale);
    }
    assert_eq!(v.resolve(&dir.fh()).unwrap(), dir);
}

fn change_grows_with_every_change(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let dir = rig.mkdir(&r, &v.root(), "d").unwrap();
    let mut last = rig.change(&dir);
    for i in 0..200 {
        let name = format!("f{}", i / 2);
        let info = if i % 2 == 0 {
            rig.create(&r, &dir, &name).unwrap().dir_change
        } else {
            rig.remove(&r, &dir, &name).unwrap()
        };
        assert_eq!(info.before, last);
        assert!(info.after > last);
        last = rig.change(&dir);
        assert_eq!(info.after, last, "the same number space");
    }
    let made = rig.create(&r, &dir, "f").unwrap();
    let mut last = rig.change(&made.node);
    for i in 0..200u64 {
        rig.write(&made.file, 0, &i.to_be_bytes()).unwrap();
        let now = rig.change(&made.node);
        assert!(now > last);
        assert_eq!(rig.change(&made.node), now, "and only then");
        last = now;
        rig.setattr(&r, &made.node, mode(0o644)).unwrap();
        let now = rig.change(&made.node);
        assert!(now > last);
        last = now;
    }
}

/// The attributes of the one entry of a directory, as a listing has them.
fn listed(rig: &Rig, dir: &Node) -> Attrs {
    let page = rig.volume.readdir(&root(), dir, 0, 10, EntryDetail::Attrs).unwrap();
    assert_eq!(page.entries.len(), 1);
    page.entries[0].object.clone().unwrap().unwrap().1
}

fn attributes_that_were_looked_at_are_good_until_something_changes(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let dir = rig.mkdir(&r, &v.root(), "d").unwrap();
    let node = rig.create(&r, &dir, "f").unwrap().node;
    let both = |what: &str| {
        let (got, listed) = (v.getattr(&node).unwrap(), listed(rig, &dir));
        assert_eq!(got, listed, "{what}");
        // Both again, now that the nodes are known.
        assert_eq!((v.getattr(&node).unwrap(), self::listed(rig, &dir)), (got, listed), "{what}");
        got
    };
    let mut last = both("new");
    let mut step = |what: &str, expected: &dyn Fn(&Attrs) -> bool| {
        let now = both(what);
        assert!(expected(&now), "{what}: {now:?}");
        assert!(now.change > last.change, "{what}");
        last = now;
    };
    rig.setattr(&r, &node, mode(0o604)).unwrap();
    step("mode", &|a| a.mode == 0o604);
    let file = v.open_file(&r, &node, OpenMode::BOTH).unwrap();
    for (i, stable) in [Stable::Unstable, Stable::FileSync].into_iter().enumerate() {
        let mut tx = v.tx();
        v.write(&mut tx, &file, 5 * i as u64, Bytes::from_static(b"12345"), stable).unwrap();
        tx.finish().wait_blocking().unwrap();
        step("write", &|a| a.size == 5 * (i as u64 + 1));
        assert_eq!(v.read(&file, 0, 5 * (i as u32 + 1)).unwrap(), (Bytes::from("12345".repeat(i + 1)), true));
    }
    rig.setattr(&r, &node, SetAttrs { size: Some(2), ..SetAttrs::default() }).unwrap();
    step("size", &|a| a.size == 2);
    assert_eq!(v.read(&file, 0, 2).unwrap(), (Bytes::from_static(b"12"), true));
    let mut tx = v.tx();
    v.link(&mut tx, &r, &node, &v.root(), b"g").unwrap();
    tx.finish().wait_blocking().unwrap();
    step("link", &|a| a.nlink == 2);
    let mut tx = v.tx();
    v.remove(&mut tx, &r, &v.root(), b"g").unwrap();
    tx.finish().wait_blocking().unwrap();
    step("remove", &|a| a.nlink == 1);
    // Who may not search the directory learns nothing of known nodes.
    rig.setattr(&r, &dir, mode(0o704)).unwrap();
    let page = v.readdir(&user(1001), &dir, 0, 10, EntryDetail::Attrs).unwrap();
    assert_eq!(page.entries[0].object.as_ref().unwrap().as_ref().unwrap_err(), &Error::Access);
    // A local process's change shows a little later. This thread must be the superuser's again.
    listed(rig, &dir);
    let path = rig.dir().join("d/f");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let changed = std::time::Instant::now();
    while v.getattr(&node).unwrap().mode != 0o640 || listed(rig, &dir).mode != 0o640 {
        assert!(changed.elapsed() < 10 * landfast_volume::limits::ATTRS_FRESH);
        std::thread::yield_now();
    }
}

fn foreign_changes_show(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let dir = rig.mkdir(&r, &v.root(), "d").unwrap();
    let path = rig.dir().join("d");
    let before = rig.change(&dir);
    // Waits until the kernel's coarse clock has moved on, and until earlier looks are too old.
    let begun = std::time::Instant::now();
    while rig.change(&dir) == before {
        std::fs::write(path.join("local"), b"x").unwrap();
        std::fs::remove_file(path.join("local")).unwrap();
        assert!(begun.elapsed() < 10 * landfast_volume::limits::ATTRS_FRESH);
    }
    assert!(rig.change(&dir) > before);
    std::fs::write(path.join("local"), b"here").unwrap();
    let node = rig.lookup(&r, &dir, "local").unwrap();
    let file = v.open_file(&r, &node, OpenMode::READ).unwrap();
    assert_eq!(v.read(&file, 0, 10).unwrap().0, "here");
    drop(file);
    std::fs::remove_file(path.join("local")).unwrap();
    assert_eq!(rig.lookup(&r, &dir, "local").unwrap_err(), Error::NoEnt);
    assert_eq!(v.getattr(&node).unwrap_err(), Error::Stale);
}

fn parents(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let a = rig.mkdir(&r, &v.root(), "a").unwrap();
    let b = rig.mkdir(&r, &a, "b").unwrap();
    assert_eq!(v.lookup_parent(&r, &b).unwrap(), a);
    assert_eq!(v.lookup_parent(&r, &a).unwrap(), v.root());
    assert_eq!(v.lookup_parent(&r, &v.root()).unwrap_err(), Error::NoEnt);
    let f = rig.create(&r, &a, "f").unwrap().node;
    assert_eq!(v.lookup_parent(&r, &f).unwrap_err(), Error::NotDir);
    // A local process has moved it out of the volume: nothing above may be reached.
    let outside = rig.temp.path().join("outside");
    std::fs::rename(rig.dir().join("a"), &outside).unwrap();
    assert_eq!(v.lookup_parent(&r, &a).unwrap_err(), Error::Stale);
    assert_eq!(v.lookup_parent(&r, &b).unwrap_err(), Error::Stale);
}

fn special_files(rig: &Rig) {
    let (v, dir) = (&rig.volume, rig.volume.root());
    rig.setattr(&root(), &dir, mode(0o777)).unwrap();
    let make = |cred: &Cred, name: &str, special| {
        rig.run(|tx| v.mknod(tx, cred, &dir, name.as_bytes(), special, mode(0o640))).map(|m| m.node)
    };
    let fifo = make(&user(1000), "fifo", Special::Fifo).unwrap();
    assert_eq!((fifo.kind(), rig.attrs(&fifo).uid, rig.attrs(&fifo).mode), (Kind::Fifo, 1000, 0o640));
    assert_eq!(make(&user(1000), "socket", Special::Socket).unwrap().kind(), Kind::Socket);
    assert_eq!(make(&user(1000), "tty", Special::CharDev(4, 1)).unwrap_err(), Error::Perm);
    let tty = make(&root(), "tty", Special::CharDev(4, 300)).unwrap();
    assert_eq!((tty.kind(), rig.attrs(&tty).rdev), (Kind::CharDev, (4, 300)));
    let disk = make(&root(), "disk", Special::BlockDev(8, 0)).unwrap();
    assert_eq!((disk.kind(), rig.attrs(&disk).rdev), (Kind::BlockDev, (8, 0)));
    assert_eq!(v.open_file(&root(), &tty, OpenMode::READ).unwrap_err(), Error::WrongKind);
    assert_eq!(make(&root(), "tty", Special::Fifo).unwrap_err(), Error::Exists);
    rig.setattr(&root(), &tty, SetAttrs { uid: Some(3), ..mode(0o600) }).unwrap();
    assert_eq!((rig.attrs(&tty).uid, rig.attrs(&tty).mode), (3, 0o600));
}

fn symbolic_links(rig: &Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let make = |name: &str, target: &[u8], attrs| {
        rig.run(|tx| v.symlink(tx, &r, &dir, name.as_bytes(), target, attrs))
    };
    let owner = SetAttrs { uid: Some(5), mtime: at(9, 9), ..mode(0o777) };
    let made = make("l", b"../some/\xff", owner).unwrap();
    assert!(made.attrs_set.uid && made.attrs_set.mtime && !made.attrs_set.mode);
    assert_eq!(v.readlink(&r, &made.node).unwrap(), &b"../some/\xff"[..]);
    assert_eq!((rig.attrs(&made.node).uid, rig.attrs(&made.node).mtime.secs), (5, 9));
    assert_eq!(make("m", b"", mode(0)).unwrap_err(), Error::Inval);
    assert_eq!(make("m", b"a\0b", mode(0)).unwrap_err(), Error::Inval);
    assert_eq!(make("m", &[b'x'; 5000], mode(0)).unwrap_err(), Error::NameTooLong);
    assert_eq!(v.readlink(&r, &dir).unwrap_err(), Error::WrongKind);
    assert_eq!(v.open_file(&r, &made.node, OpenMode::READ).unwrap_err(), Error::Symlink);
    assert_eq!(rig.lookup(&r, &made.node, "x").unwrap_err(), Error::Symlink);
    let before = rig.attrs(&made.node).mode;
    let both = SetAttrs { uid: Some(6), mtime: at(8, 8), ..mode(0o600) };
    let set = rig.run(|tx| v.setattr(tx, &r, &made.node, None, both)).unwrap();
    assert!(set.uid && set.mtime && !set.mode, "the mode of a symbolic link is left alone");
    let now = rig.setattr(&r, &made.node, mode(0o600)).unwrap();
    assert_eq!((now.mode, now.uid, now.mtime.secs), (before, 6, 8));
    let long = vec![b'x'; 1000];
    assert_eq!(v.readlink(&r, &make("n", &long, mode(0)).unwrap().node).unwrap(), long);
}

fn listing(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let dir = rig.mkdir(&r, &v.root(), "d").unwrap();
    assert_eq!(rig.names(&dir, 5), Vec::<String>::new());
    let mut expected = Vec::new();
    let mut tx = v.tx();
    for i in 0..2_000 {
        let name = format!("a-rather-long-name-{i}");
        v.mkdir(&mut tx, &r, &dir, name.as_bytes(), mode(0o755)).unwrap();
        expected.push(name);
    }
    tx.finish().wait_blocking().unwrap();
    expected.sort();
    for limit in [1_000_000, 700, 7] {
        let mut names = rig.names(&dir, limit);
        names.sort();
        assert_eq!(names, expected, "each once, in pages of {limit}");
    }
    let page = v.readdir(&r, &dir, 0, 100, EntryDetail::Attrs).unwrap();
    assert_eq!((page.entries.len(), page.eof), (100, false));
    for entry in &page.entries {
        let (node, attrs) = entry.object.as_ref().unwrap().as_ref().unwrap();
        assert_eq!(v.lookup(&r, &dir, &entry.name).unwrap(), *node);
        assert_eq!((attrs.fileid, attrs.kind), (entry.fileid, Kind::Dir));
        assert_eq!(*attrs, rig.attrs(node));
    }
    assert_eq!(v.readdir(&r, &dir, 0, 0, EntryDetail::Names).unwrap().entries.len(), 0);
}

fn listing_while_entries_go(rig: &Rig) {
    let (v, r) = (&rig.volume, root());
    let dir = rig.mkdir(&r, &v.root(), "d").unwrap();
    for i in 0..500 {
        rig.create(&r, &dir, &format!("f{i}")).unwrap();
    }
    // As rm -r does: removes what a page names, then continues after it.
    let (mut cookie, mut removed) = (0, 0);
    loop {
        let page = v.readdir(&r, &dir, cookie, 37, EntryDetail::Names).unwrap();
        for entry in &page.entries {
            rig.run(|tx| v.remove(tx, &r, &dir, &entry.name)).unwrap();
            removed += 1;
        }
        if page.eof {
            break;
        }
        cookie = page.entries.last().unwrap().cookie;
    }
    assert_eq!(removed, 500);
    rig.remove(&r, &v.root(), "d").unwrap();
    assert_eq!(v.readdir(&r, &dir, 0, 10, EntryDetail::Names).unwrap_err(), Error::Stale);
}

fn cookies_that_were_never_given(rig: &Rig) {
    let dir = rig.volume.root();
    let read = |cookie| rig.volume.readdir(&root(), &dir, cookie, 10, EntryDetail::Names);
    for cookie in [1, 2, 1 << 63, u64::MAX] {
        assert_eq!(read(cookie).unwrap_err(), Error::BadCookie);
    }
    // Any other cookie is a position at which there may be no entry; it never repeats an entry or fails.
    for cookie in [3, 4, 5, 1 << 20, 1 << 40, i64::MAX as u64] {
        assert!(read(cookie).unwrap().entries.len() <= 1);
    }
}

fn wrong_kinds(rig: &Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let f = rig.create(&r, &dir, "f").unwrap().node;
    assert_eq!(rig.lookup(&r, &f, "x").unwrap_err(), Error::NotDir);
    assert_eq!(rig.create(&r, &f, "x").unwrap_err(), Error::NotDir);
    assert_eq!(v.readdir(&r, &f, 0, 10, EntryDetail::Names).unwrap_err(), Error::NotDir);
    assert_eq!(v.open_file(&r, &dir, OpenMode::READ).unwrap_err(), Error::IsDir);
    assert_eq!(rig.run(|tx| v.commit(tx, &dir, 0, 0)).unwrap_err(), Error::IsDir);
    assert_eq!(rig.rename(&r, (&dir, "f"), (&f, "x")).unwrap_err(), Error::NotDir);
    let s = v.statfs().unwrap();
    assert!(s.total_bytes >= s.free_bytes && s.free_bytes >= s.avail_bytes && s.name_max == 255);
}

/// Recovery could not move anything into it or out of it, and its inodes share numbers with others.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_subvolume_of_btrfs_is_another_filesystem() {
    let Some(image) = common::image::Image::new(common::image::Kernel::Btrfs) else { return };
    let dir = image.path().join("export");
    std::fs::create_dir_all(&dir).expect("the export");
    let below = dir.join("below");
    let made = std::process::Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(&below).status();
    assert!(made.expect("btrfs").success());
    std::fs::write(below.join("file"), b"x").expect("a file in it");
    let (v, _) =
        open(OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) });
    assert_eq!(v.lookup(&root(), &v.root(), b"below").unwrap_err(), Error::Mounted);
    let page = v.readdir(&root(), &v.root(), 0, 10, EntryDetail::Attrs).expect("readdir");
    assert_eq!(page.entries[0].object.as_ref().unwrap().as_ref().unwrap_err(), &Error::Mounted);
    let mut tx = v.tx();
    assert_eq!(v.remove(&mut tx, &root(), &v.root(), b"below").unwrap_err(), Error::Mounted);
}
