//! Extended attributes and ACLs on a real directory: on the filesystem of the temporary directory, on XFS and on btrfs, and
//! after a crash of the server.

mod common;

use std::collections::BTreeMap;

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
            s.spawn(|| check(Rig::at(tempfile::tempdir_in(image.path()).unwrap(), Durability::Log))).join()
        });
        assert!(done.is_ok(), "{name} on {kernel:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn on_ext4() {
    on(Kernel::Ext4);
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

type Check = fn(Rig);

const ALL: &[(&str, Check)] = &[
    ("attributes", attributes),
    ("names_and_sizes", names_and_sizes),
    ("lists_go_on_where_they_stopped", lists_go_on_where_they_stopped),
    ("rights", rights),
    ("what_is_not_a_clients", what_is_not_a_clients),
    ("wrong_kinds", wrong_kinds),
    ("an_unlinked_file_keeps_its_attributes", an_unlinked_file_keeps_its_attributes),
    ("acls", acls),
    ("chmod_and_acls", chmod_and_acls),
    ("default_acls_are_inherited", default_acls_are_inherited),
    ("made_with_acls", made_with_acls),
    ("who_may_set_acls", who_may_set_acls),
];

fn set(rig: &Rig, cred: &Cred, node: &Node, name: &str, value: &str) -> Result<ChangeInfo, Error> {
    set_how(rig, cred, node, name, value.as_bytes(), SetXattr::Either)
}

fn set_how(
    rig: &Rig,
    cred: &Cred,
    node: &Node,
    name: &str,
    value: &[u8],
    how: SetXattr,
) -> Result<ChangeInfo, Error> {
    let value = Bytes::copy_from_slice(value);
    rig.run(|tx| rig.volume.setxattr(tx, cred, node, name.as_bytes(), &value, how))
}

fn remove(rig: &Rig, cred: &Cred, node: &Node, name: &str) -> Result<ChangeInfo, Error> {
    rig.run(|tx| rig.volume.removexattr(tx, cred, node, name.as_bytes()))
}

fn get(rig: &Rig, node: &Node, name: &str) -> Result<Bytes, Error> {
    rig.volume.getxattr(&root(), node, name.as_bytes())
}

fn list(rig: &Rig, node: &Node) -> Vec<String> {
    let names = rig.volume.listxattrs(&root(), node, 0).unwrap();
    let mut names: Vec<_> = names.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
    names.sort();
    names
}

fn attributes(rig: Rig) {
    let (dir, r) = (rig.volume.root(), root());
    assert!(rig.volume.has_xattrs() && rig.volume.has_acls());
    let file = rig.create(&r, &dir, "f").unwrap().node;
    for node in [&file, &dir] {
        assert_eq!(get(&rig, node, "a").unwrap_err(), Error::NoXattr);
        let before = rig.change(node);
        let ctime = rig.attrs(node).ctime;
        let first = set(&rig, &r, node, "a", "one").unwrap();
        assert_eq!(first.before, before);
        assert!(first.atomic && first.after > first.before && rig.attrs(node).ctime >= ctime);
        assert_eq!(rig.change(node), first.after, "the same number space as the attribute");
        assert_eq!(set_how(&rig, &r, node, "a", b"x", SetXattr::Create).unwrap_err(), Error::Exists);
        assert_eq!(set_how(&rig, &r, node, "b", b"x", SetXattr::Replace).unwrap_err(), Error::NoXattr);
        assert_eq!(get(&rig, node, "a").unwrap(), "one");
        set_how(&rig, &r, node, "a", b"two", SetXattr::Replace).unwrap();
        set_how(&rig, &r, node, "b", b"", SetXattr::Create).unwrap();
        assert_eq!((get(&rig, node, "a").unwrap(), get(&rig, node, "b").unwrap()), ("two".into(), "".into()));
        assert_eq!(list(&rig, node), ["a", "b"]);
        let gone = remove(&rig, &r, node, "a").unwrap();
        assert!(gone.after > gone.before);
        assert_eq!(remove(&rig, &r, node, "a").unwrap_err(), Error::NoXattr);
        assert_eq!(list(&rig, node), ["b"]);
    }
}

fn names_and_sizes(rig: Rig) {
    let (dir, r) = (rig.volume.root(), root());
    let file = rig.create(&r, &dir, "f").unwrap().node;
    assert_eq!(set(&rig, &r, &file, "", "x").unwrap_err(), Error::NameEmpty);
    assert_eq!(set(&rig, &r, &file, "a\0b", "x").unwrap_err(), Error::NameChar);
    assert_eq!(set(&rig, &r, &file, &"n".repeat(251), "x").unwrap_err(), Error::NameTooLong);
    let odd = rig.run(|tx| {
        rig.volume.setxattr(tx, &r, &file, b"\xff/\n.", &Bytes::from_static(b"x"), SetXattr::Either)
    });
    odd.expect("a name of any other bytes");
    let longest = "n".repeat(250);
    set(&rig, &r, &file, &longest, "x").unwrap();
    assert_eq!(get(&rig, &file, &longest).unwrap(), "x");
    assert_eq!(
        set_how(&rig, &r, &file, "big", &vec![1; 65_537], SetXattr::Either).unwrap_err(),
        Error::XattrTooBig
    );
    // ext4 with 1 KiB blocks accepts little more.
    let value = vec![7; 400];
    set_how(&rig, &r, &file, "big", &value, SetXattr::Either).unwrap();
    assert_eq!(get(&rig, &file, "big").unwrap(), value);
}

fn lists_go_on_where_they_stopped(rig: Rig) {
    let (dir, r) = (rig.volume.root(), root());
    for n in 0..20 {
        set(&rig, &r, &dir, &format!("n{n}"), "x").unwrap();
    }
    let all = rig.volume.listxattrs(&r, &dir, 0).unwrap();
    assert_eq!(all.len(), 20);
    // The names already read are removed and a new one is added; the rest is listed once and completely.
    let (read, rest) = all.split_at(7);
    for entry in read {
        remove(&rig, &r, &dir, std::str::from_utf8(&entry.name).unwrap()).unwrap();
    }
    set(&rig, &r, &dir, "new", "x").unwrap();
    let on = rig.volume.listxattrs(&r, &dir, read[6].cookie).unwrap();
    assert_eq!(on.iter().filter(|e| e.name != "new").collect::<Vec<_>>(), rest.iter().collect::<Vec<_>>());
}

fn rights(rig: Rig) {
    let (dir, r, u) = (rig.volume.root(), root(), user(1001));
    let file = rig.create(&r, &dir, "f").unwrap().node;
    set(&rig, &r, &file, "a", "x").unwrap();
    rig.setattr(&r, &file, mode(0o644)).unwrap();
    assert_eq!(rig.volume.getxattr(&u, &file, b"a").unwrap(), "x");
    assert_eq!(rig.volume.listxattrs(&u, &file, 0).unwrap().len(), 1);
    assert_eq!(set(&rig, &u, &file, "a", "y").unwrap_err(), Error::Access);
    assert_eq!(remove(&rig, &u, &file, "a").unwrap_err(), Error::Access);
    rig.setattr(&r, &file, mode(0o620)).unwrap();
    assert_eq!(rig.volume.getxattr(&u, &file, b"a").unwrap_err(), Error::Access);
    assert_eq!(rig.volume.listxattrs(&u, &file, 0).unwrap_err(), Error::Access);
    rig.setattr(&r, &file, mode(0o602)).unwrap();
    set(&rig, &u, &file, "a", "y").unwrap();
    assert_eq!(get(&rig, &file, "a").unwrap(), "y");
}

/// Clients cannot name the server's own attributes, nor the system's.
fn what_is_not_a_clients(rig: Rig) {
    let (dir, r) = (rig.volume.root(), root());
    rustix::fs::setxattr(rig.dir(), "trusted.other", b"x", rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(list(&rig, &dir), [""; 0]);
    for name in ["trusted.landfast.tag", "landfast.tag", "trusted.other", "other"] {
        assert_eq!(get(&rig, &dir, name).unwrap_err(), Error::NoXattr, "{name}");
        assert_eq!(remove(&rig, &r, &dir, name).unwrap_err(), Error::NoXattr, "{name}");
    }
    let tag = |path: std::path::PathBuf| {
        let mut value = [0u8; 256];
        rustix::fs::getxattr(path, "trusted.landfast.tag", &mut value[..])
            .map(|n| value[..n].to_vec())
            .unwrap()
    };
    let before = tag(rig.dir());
    set(&rig, &r, &dir, "trusted.landfast.tag", "mine").unwrap();
    assert_eq!(tag(rig.dir()), before);
    assert_eq!(list(&rig, &dir), ["trusted.landfast.tag"]);
}

fn wrong_kinds(rig: Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let link = rig.run(|tx| v.symlink(tx, &r, &dir, b"l", b"nowhere", SetAttrs::default())).unwrap().node;
    let fifo = rig.run(|tx| v.mknod(tx, &r, &dir, b"p", Special::Fifo, mode(0o644))).unwrap().node;
    for node in [&link, &fifo] {
        assert_eq!(get(&rig, node, "a").unwrap_err(), Error::NoXattr);
        assert_eq!(set(&rig, &r, node, "a", "x").unwrap_err(), Error::Perm);
        assert_eq!(list(&rig, node), [""; 0]);
    }
    assert_eq!(v.acls(&link).unwrap_err(), Error::NotSupported);
    let access = SetAcls { access: Some(Acl::from_mode(0o600)), default: None };
    assert_eq!(rig.run(|tx| v.set_acls(tx, &r, &link, &access)).unwrap_err(), Error::NotSupported);
    rig.run(|tx| v.set_acls(tx, &r, &fifo, &access)).unwrap();
    assert_eq!(rig.attrs(&fifo).mode, 0o600);
    let default = SetAcls { access: None, default: Some(Some(Acl::from_mode(0o600))) };
    assert_eq!(rig.run(|tx| v.set_acls(tx, &r, &fifo, &default)).unwrap_err(), Error::Inval);
}

fn an_unlinked_file_keeps_its_attributes(rig: Rig) {
    let (dir, r) = (rig.volume.root(), root());
    let made = rig.create(&r, &dir, "f").unwrap();
    rig.remove(&r, &dir, "f").unwrap();
    set(&rig, &r, &made.node, "a", "x").unwrap();
    assert_eq!(get(&rig, &made.node, "a").unwrap(), "x");
    let node = made.node.clone();
    drop(made);
    assert_eq!(set(&rig, &r, &node, "a", "x").unwrap_err(), Error::Stale);
    // None of it hinders recovery.
    rig.crash();
}

fn extended() -> Acl {
    Acl {
        owner: 6,
        users: BTreeMap::from([(1001, 7), (1002, 4)]),
        group: 4,
        groups: BTreeMap::from([(2001, 6)]),
        mask: Some(6),
        other: 0,
    }
}

fn acls(rig: Rig) {
    let (v, dir, r) = (&rig.volume, rig.volume.root(), root());
    let file = rig.create(&r, &dir, "f").unwrap().node;
    assert_eq!(v.acls(&file).unwrap().1, Acls { access: Acl::from_mode(0o644), default: None });
    let before = rig.change(&file);
    let set = SetAcls { access: Some(extended()), default: None };
    rig.run(|tx| v.set_acls(tx, &r, &file, &set)).unwrap();
    let (attrs, now) = v.acls(&file).unwrap();
    assert_eq!((now.access, attrs.mode), (extended(), 0o660));
    assert!(attrs.change > before);
    // The kernel decides by it.
    let may =
        |cred: &Cred| v.access(cred, &file, AccessMask { read: true, write: true, execute: true }).unwrap();
    assert_eq!(
        may(&user(1001)),
        AccessMask { read: true, write: true, execute: false },
        "7, cut by the mask"
    );
    assert_eq!(may(&user(1002)), AccessMask { read: true, write: false, execute: false });
    assert_eq!(may(&user(1003)), AccessMask::default());
    let member = Cred { groups: std::sync::Arc::from([2001]), ..user(1003) };
    assert_eq!(may(&member), AccessMask { read: true, write: true, execute: false });
    // What permission bits can express is stored as permission bits.
    let set = SetAcls { access: Some(Acl::from_mode(0o640)), default: None };
    rig.run(|tx| v.set_acls(tx, &r, &file, &set)).unwrap();
    assert_eq!(v.acls(&file).unwrap().1.access, Acl::from_mode(0o640));
    assert_eq!(rig.attrs(&file).mode, 0o640);
    let bad = SetAcls { access: Some(Acl { mask: None, ..extended() }), default: None };
    assert_eq!(rig.run(|tx| v.set_acls(tx, &r, &file, &bad)).unwrap_err(), Error::Inval);
}

fn chmod_and_acls(rig: Rig) {
    let (dir, r) = (rig.volume.root(), root());
    let file = rig.create(&r, &dir, "f").unwrap().node;
    let set = SetAcls { access: Some(extended()), default: None };
    rig.run(|tx| rig.volume.set_acls(tx, &r, &file, &set)).unwrap();
    rig.setattr(&r, &file, mode(0o4751)).unwrap();
    let want = Acl { owner: 7, mask: Some(5), other: 1, ..extended() };
    assert_eq!(rig.volume.acls(&file).unwrap().1.access, want);
    let fh = file.fh();
    drop(file);
    let rig = rig.crash();
    let file = rig.volume.resolve(&fh).unwrap();
    let (attrs, acls) = rig.volume.acls(&file).unwrap();
    assert_eq!((attrs.mode, acls.access), (0o4751, want));
}

fn default_acls_are_inherited(rig: Rig) {
    let (r, root_dir) = (root(), rig.volume.root());
    let v = &rig.volume;
    let dir = rig.mkdir(&r, &root_dir, "d").unwrap();
    rig.setattr(&r, &dir, mode(0o2755)).unwrap();
    let default =
        Acl { owner: 7, users: BTreeMap::from([(1001, 7)]), mask: Some(7), group: 5, ..Acl::default() };
    let set = SetAcls { access: None, default: Some(Some(default.clone())) };
    let plain = rig.create(&r, &dir, "before").unwrap().node;
    rig.run(|tx| v.set_acls(tx, &r, &dir, &set)).unwrap();
    // RFC 8275: the umask does not apply where there is a default ACL.
    let masked = SetAttrs { mode_umask: Some((0o664, 0o077)), ..SetAttrs::default() };
    let file = rig.create_how(&r, &dir, "f", CreateHow::Guarded(masked)).unwrap().node;
    let sub = rig.mkdir(&r, &dir, "sub").unwrap();
    let of = |node: &Node| v.acls(node).unwrap();
    assert_eq!(of(&plain).1.access, Acl::from_mode(0o644));
    assert_eq!(of(&file).1.access, Acl { owner: 6, mask: Some(6), other: 0, ..default.clone() });
    assert_eq!(of(&file).0.mode, 0o660);
    assert_eq!(of(&sub).1.default, Some(default.clone()));
    assert_eq!(of(&sub).1.access, Acl { owner: 7, mask: Some(5), other: 0, ..default.clone() });
    assert_eq!(of(&sub).0.mode, 0o2750, "set-group-id is inherited, too");
    let handles = [&dir, &file, &sub].map(|node| node.fh());
    let want = [&dir, &file, &sub].map(|node| of(node).1);
    drop((dir, plain, file, sub));
    let rig = rig.crash();
    let now = handles.map(|fh| rig.volume.acls(&rig.volume.resolve(&fh).unwrap()).unwrap().1);
    assert_eq!(now, want);
    // Removed again: the umask applies.
    let dir = rig.lookup(&r, &rig.volume.root(), "d").unwrap();
    let none = SetAcls { access: None, default: Some(None) };
    rig.run(|tx| rig.volume.set_acls(tx, &r, &dir, &none)).unwrap();
    rig.run(|tx| rig.volume.set_acls(tx, &r, &dir, &none)).expect("twice is no error");
    let file = rig.create_how(&r, &dir, "g", CreateHow::Guarded(masked)).unwrap().node;
    assert_eq!(rig.attrs(&file).mode, 0o600);
}

fn made_with_acls(rig: Rig) {
    let (v, r, dir) = (&rig.volume, root(), rig.volume.root());
    let set = SetAcls { access: Some(extended()), default: None };
    let how = CreateHow::Guarded(mode(0o4777));
    let made = rig.run(|tx| v.create_with_acls(tx, &r, &dir, b"f", how, OpenMode::BOTH, &set)).unwrap();
    assert_eq!((rig.attrs(&made.node).mode, v.acls(&made.node).unwrap().1.access), (0o4660, extended()));
    drop(made);
    let both = SetAcls { default: Some(Some(extended())), ..set.clone() };
    let made = rig.run(|tx| v.mkdir_with_acls(tx, &r, &dir, b"d", mode(0o755), &both)).unwrap();
    assert_eq!(v.acls(&made.node).unwrap().1, Acls { access: extended(), default: Some(extended()) });
    let fifo = rig.run(|tx| v.mknod_with_acls(tx, &r, &dir, b"p", Special::Fifo, mode(0), &set)).unwrap();
    assert_eq!(v.acls(&fifo.node).unwrap().1.access, extended());
    // More entries than the filesystem accepts, or than are possible: nothing is made.
    let wrong = SetAcls { default: Some(Some(extended())), access: None };
    let how = CreateHow::Guarded(mode(0o600));
    let made = rig.run(|tx| v.create_with_acls(tx, &r, &dir, b"x", how, OpenMode::BOTH, &wrong));
    assert_eq!(made.unwrap_err(), Error::Inval);
    let many = Acl { users: (0..1100).map(|n| (n, 7)).collect(), ..extended() };
    let many = SetAcls { access: Some(many), default: None };
    let made = rig.run(|tx| v.create_with_acls(tx, &r, &dir, b"x", how, OpenMode::BOTH, &many));
    assert_eq!(made.unwrap_err(), Error::NoSpace);
    let mut names = rig.names(&dir, 100);
    names.sort();
    assert_eq!(names, ["d", "f", "p"]);
    let handles = ["f", "d", "p"].map(|name| rig.lookup(&r, &dir, name).unwrap().fh());
    let rig = rig.crash();
    for fh in handles {
        let node = rig.volume.resolve(&fh).unwrap();
        assert_eq!(rig.volume.acls(&node).unwrap().1.access, extended());
    }
}

fn who_may_set_acls(rig: Rig) {
    let (v, r, dir) = (&rig.volume, root(), rig.volume.root());
    rig.setattr(&r, &dir, mode(0o777)).unwrap();
    let owner = user(1001);
    let file = rig.create(&owner, &dir, "f").unwrap().node;
    let set = SetAcls { access: Some(extended()), default: None };
    assert_eq!(rig.run(|tx| v.set_acls(tx, &user(1002), &file, &set)).unwrap_err(), Error::Perm);
    rig.run(|tx| v.set_acls(tx, &owner, &file, &set)).unwrap();
    assert_eq!(v.acls(&file).unwrap().1.access, extended());
}
