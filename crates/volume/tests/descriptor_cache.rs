//! Files that stay open between accesses without an open ([`Volume::open_stateless`]).

mod common;

use bytes::Bytes;
use common::*;
use landfast_volume::*;

const READ: OpenMode = OpenMode { owner_override: true, ..OpenMode::READ };
const WRITE: OpenMode = OpenMode { owner_override: true, ..OpenMode::WRITE };

/// Runs on a fresh volume, where this machine can have one.
fn check(on: fn(&Rig)) {
    if tempdir_suits() {
        on(&Rig::log());
    }
}

fn opens(rig: &Rig) -> u64 {
    rig.volume.stats().file_opens
}

/// Whether this process has a file open that had this name.
fn is_open(name: &str) -> bool {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|e| std::fs::read_link(e.unwrap().path()).ok())
        .any(|p| p.to_string_lossy().contains(name))
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_hundred_accesses_are_few_opens() {
    check(|rig| {
        let v = &rig.volume;
        let node = rig.create(&root(), &v.root(), "f").unwrap().node;
        let before = opens(rig);
        let begun = std::time::Instant::now();
        for n in 0..100u8 {
            let file = v.open_stateless(&root(), &node, WRITE, Keep::Now).unwrap();
            rig.write(&file, u64::from(n), &[n]).unwrap();
            let file = v.open_stateless(&root(), &node, READ, Keep::Now).unwrap();
            assert_eq!(v.read(&file, u64::from(n), 1).unwrap().0, Bytes::copy_from_slice(&[n]));
        }
        // Each file is opened again once in that time.
        let times = (begun.elapsed().as_millis() / limits::DESCRIPTOR_CACHE_TIME.as_millis()) as u64 + 1;
        let count = opens(rig) - before;
        assert!((2..=2 * times).contains(&count), "{count} opens in {times} times");
        assert_eq!(v.stats().cached_descriptors, 2);
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn each_caller_needs_the_right_itself_and_loses_it_at_once() {
    check(|rig| {
        let (v, dir, alice, bob) = (&rig.volume, rig.volume.root(), user(1000), user(1001));
        rig.setattr(&root(), &dir, mode(0o777)).unwrap();
        let node = rig.create_how(&alice, &dir, "f", CreateHow::Guarded(mode(0o604))).unwrap().node;
        let reads = |cred: &Cred| {
            v.open_stateless(cred, &node, READ, Keep::Now).and_then(|f| v.read(&f, 0, 1)).map(|_| ())
        };
        let writes = |cred: &Cred| v.open_stateless(cred, &node, WRITE, Keep::Now).map(|_| ());
        assert_eq!((writes(&alice), writes(&bob)), (Ok(()), Err(Error::Access)));
        assert_eq!((reads(&alice), reads(&bob), reads(&bob)), (Ok(()), Ok(()), Ok(())));
        // Another set of groups makes another caller.
        let member = Cred { groups: std::sync::Arc::from([1000]), ..user(1001) };
        assert_eq!(reads(&member), Err(Error::Access), "the group has no right");
        assert_eq!(reads(&bob), Ok(()));
        rig.setattr(&alice, &node, mode(0o600)).unwrap();
        assert_eq!((reads(&bob), reads(&alice)), (Err(Error::Access), Ok(())));
        // By an access list.
        let acl = |other: u8| {
            let mut acl = Acl::from_mode(0o600);
            acl.other = other;
            SetAcls { access: Some(acl), ..SetAcls::default() }
        };
        rig.run(|tx| v.set_acls(tx, &alice, &node, &acl(4))).unwrap();
        assert_eq!(reads(&bob), Ok(()));
        rig.run(|tx| v.set_acls(tx, &alice, &node, &acl(0))).unwrap();
        assert_eq!(reads(&bob), Err(Error::Access));
        // By another owner.
        assert_eq!(writes(&alice), Ok(()));
        rig.setattr(&root(), &node, SetAttrs { uid: Some(1001), ..SetAttrs::default() }).unwrap();
        assert_eq!((writes(&alice), writes(&bob)), (Err(Error::Access), Ok(())));
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_first_write_to_a_new_file_needs_no_open() {
    check(|rig| {
        let (v, dir, alice, bob) = (&rig.volume, rig.volume.root(), user(1000), user(1001));
        rig.setattr(&root(), &dir, mode(0o777)).unwrap();
        let writes = |cred: &Cred, node: &Node, keep| {
            v.open_stateless(cred, node, WRITE, keep).and_then(|f| rig.write(&f, 0, b"x"))
        };
        // Even where the mode would let nobody open it.
        let made = rig.create_how(&alice, &dir, "once-kept", CreateHow::Guarded(mode(0o444))).unwrap();
        v.keep_for_first_write(&alice, &made);
        let node = made.node.clone();
        drop(made);
        let before = opens(rig);
        assert!(is_open("once-kept"));
        writes(&alice, &node, Keep::IfAgain).unwrap();
        assert_eq!(opens(rig), before, "the descriptor was there");
        assert!(!is_open("once-kept"), "a small file is written in one go");
        writes(&alice, &node, Keep::IfAgain).unwrap();
        assert!(is_open("once-kept"), "writes go on");
        // Who did not make it has no use of it, and who has lost the right neither.
        let made = rig.create_how(&alice, &dir, "given", CreateHow::Guarded(mode(0o644))).unwrap();
        v.keep_for_first_write(&alice, &made);
        assert_eq!(writes(&bob, &made.node, Keep::IfAgain).map(drop), Err(Error::Access));
        rig.setattr(&root(), &made.node, SetAttrs { uid: Some(1001), ..SetAttrs::default() }).unwrap();
        assert_eq!(writes(&alice, &made.node, Keep::IfAgain).map(drop), Err(Error::Access));
        writes(&bob, &made.node, Keep::IfAgain).unwrap();
        // Revoked between the creation and the keeping.
        let made = rig.create_how(&alice, &dir, "revoked", CreateHow::Guarded(mode(0o644))).unwrap();
        rig.setattr(&root(), &made.node, SetAttrs { uid: Some(1001), ..SetAttrs::default() }).unwrap();
        v.keep_for_first_write(&alice, &made);
        assert_eq!(writes(&alice, &made.node, Keep::IfAgain).map(drop), Err(Error::Access));
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_loses_its_last_name_is_closed_and_gone() {
    check(|rig| {
        let (v, dir) = (&rig.volume, rig.volume.root());
        for (gone, by_rename) in [("removed-brief", false), ("replaced-brief", true)] {
            let node = rig.create(&root(), &dir, gone).unwrap().node;
            let file = v.open_stateless(&root(), &node, WRITE, Keep::Now).unwrap();
            rig.write(&file, 0, b"data").unwrap();
            drop(file);
            drop(v.open_stateless(&root(), &node, READ, Keep::Now).unwrap());
            assert!(is_open(gone), "kept open");
            if by_rename {
                rig.create(&root(), &dir, "other").unwrap();
                rig.rename(&root(), (&dir, "other"), (&dir, gone)).unwrap();
            } else {
                rig.remove(&root(), &dir, gone).unwrap();
            }
            assert!(!is_open(&format!("{gone} (deleted)")), "its space is free");
            assert_eq!(v.open_stateless(&root(), &node, READ, Keep::Now).unwrap_err(), Error::Stale);
            assert_eq!(v.getattr(&node).unwrap_err(), Error::Stale);
        }
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn kept_descriptors_are_bounded_and_go_with_time() {
    check(|rig| {
        let (v, dir) = (&rig.volume, rig.volume.root());
        for n in 0..limits::DESCRIPTOR_CACHE_MAX + 50 {
            let node = rig.create(&root(), &dir, &format!("f{n}")).unwrap().node;
            v.open_stateless(&root(), &node, READ, Keep::Now).unwrap();
            assert!(v.stats().cached_descriptors <= limits::DESCRIPTOR_CACHE_MAX as u64);
        }
        assert!(v.stats().cached_descriptors > 0);
        let begun = std::time::Instant::now();
        while v.stats().cached_descriptors > 0 {
            assert!(begun.elapsed().as_secs() < 60, "{} are kept", v.stats().cached_descriptors);
            std::thread::yield_now();
            v.close_idle();
        }
    });
}

/// The error that a local process gets when it runs this file.
fn run(path: &std::path::Path) -> Option<std::io::ErrorKind> {
    std::process::Command::new(path).status().err().map(|e| e.kind())
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_program_that_was_just_written_can_be_run() {
    check(|rig| {
        let (v, dir) = (&rig.volume, rig.volume.root());
        let program = std::fs::read("/bin/true").unwrap();
        let made = rig.create_how(&root(), &dir, "program", CreateHow::Guarded(mode(0o755))).unwrap();
        let node = made.node.clone();
        drop(made);
        let path = rig.dir().join("program");
        let write = |keep| {
            let file = v.open_stateless(&root(), &node, WRITE, keep).unwrap();
            rig.write(&file, 0, &program).unwrap();
        };
        // Written once, as small files are: it does not stay open.
        write(Keep::IfAgain);
        assert_eq!((run(&path), v.stats().cached_descriptors), (None, 0));
        // Written repeatedly: it stays open until its mode or list changes, until COMMIT, or for a time.
        for end in ["mode", "list", "commit", "time"] {
            for _ in 0..3 {
                write(Keep::Now);
            }
            assert_eq!(v.stats().cached_descriptors, 1, "{end}");
            match end {
                "mode" => drop(rig.setattr(&root(), &node, mode(0o755)).unwrap()),
                "list" => {
                    let set = SetAcls { access: Some(Acl::from_mode(0o755)), ..SetAcls::default() };
                    rig.run(|tx| v.set_acls(tx, &root(), &node, &set)).unwrap();
                }
                "commit" => rig.run(|tx| v.commit(tx, &node, 0, 0)).unwrap(),
                _ => {
                    while v.stats().cached_descriptors > 0 {
                        v.close_idle();
                        std::thread::yield_now();
                    }
                }
            }
            assert_eq!((run(&path), v.stats().cached_descriptors), (None, 0), "{end}");
        }
        // Repeated stable writes keep it open from the second one on.
        let before = opens(rig);
        let begun = std::time::Instant::now();
        for _ in 0..20 {
            write(Keep::IfAgain);
        }
        let times = (begun.elapsed().as_millis() / limits::DESCRIPTOR_CACHE_TIME.as_millis()) as u64 + 1;
        assert!((1..=2 * times).contains(&(opens(rig) - before)));
    });
}
