//! Callers that use a file which is already open ([`Volume::as_caller`]).

mod common;

use common::*;
use landfast_volume::*;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Runs on a fresh volume whose root everybody may write, where this machine can have one.
fn check(on: fn(&Rig)) {
    if tempdir_suits() {
        let rig = Rig::log();
        rig.setattr(&root(), &rig.volume.root(), mode(0o777)).unwrap();
        on(&rig);
    }
}

fn made(rig: &Rig, by: &Cred, file_mode: u32) -> Created {
    rig.create_how(by, &rig.volume.root(), "f", CreateHow::Guarded(mode(file_mode))).unwrap()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn each_caller_needs_the_right_himself_and_loses_it_at_once() {
    check(|rig| {
        let (v, alice, bob, carol) = (&rig.volume, user(1000), user(1001), user(1002));
        let Created { node, file, .. } = made(rig, &alice, 0o604);
        let may = |cred: &Cred, mode| v.as_caller(cred, &file, mode).map(|_| ());
        let both = |cred: &Cred| (may(cred, OpenMode::READ), may(cred, OpenMode::WRITE));
        let denied = Err(Error::Access);
        for _ in 0..2 {
            assert_eq!((both(&alice), both(&root())), ((Ok(()), Ok(())), (Ok(()), Ok(()))));
            assert_eq!(both(&bob), (Ok(()), denied));
            assert_eq!(may(&bob, OpenMode::BOTH), denied);
        }
        // Another set of groups makes another caller.
        let member = Cred { groups: std::sync::Arc::from([1000]), ..user(1001) };
        assert_eq!(may(&member, OpenMode::READ), denied, "the group has no right");
        // What is remembered of the opener no longer counts. He is still the owner, and then no longer.
        rig.setattr(&alice, &node, mode(0)).unwrap();
        assert_eq!((both(&alice), both(&bob)), ((Ok(()), Ok(())), (denied, denied)));
        let gone = SetAttrs { uid: Some(1001), ..SetAttrs::default() };
        rig.setattr(&root(), &node, gone).unwrap();
        assert_eq!((both(&alice), both(&bob)), ((denied, denied), (Ok(()), Ok(()))));
        // By an access list.
        let acl = |other: u8| {
            let mut acl = Acl::from_mode(0o600);
            acl.other = other;
            SetAcls { access: Some(acl), ..SetAcls::default() }
        };
        rig.run(|tx| v.set_acls(tx, &bob, &node, &acl(4))).unwrap();
        assert_eq!(
            (both(&alice), both(&carol)),
            ((denied, denied), (Ok(()), denied)),
            "her group has no right"
        );
        rig.run(|tx| v.set_acls(tx, &bob, &node, &acl(0))).unwrap();
        assert_eq!(both(&carol), (denied, denied));
        // Without an open file the question goes to the file itself.
        assert_eq!(v.may(&alice, &node, OpenMode::READ), denied);
        assert_eq!(v.may(&bob, &node, OpenMode::BOTH), Ok(()));
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_may_be_run_may_be_read() {
    check(|rig| {
        let (v, alice, bob) = (&rig.volume, user(1000), user(1001));
        let Created { node, file, .. } = made(rig, &alice, 0o711);
        assert!(v.as_caller(&bob, &file, OpenMode::READ).is_ok());
        assert_eq!(v.as_caller(&bob, &file, OpenMode::WRITE).unwrap_err(), Error::Access);
        assert_eq!(v.may(&bob, &node, OpenMode::READ), Ok(()));
        assert_eq!(v.may(&bob, &node, OpenMode::BOTH), Err(Error::Access));
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_a_local_process_takes_away_is_gone_soon() {
    check(|rig| {
        let (v, alice) = (&rig.volume, user(1000));
        // Not her file: she opened it while everybody could.
        let node = made(rig, &root(), 0o666).node;
        let file = v.open_file(&alice, &node, OpenMode::BOTH).unwrap();
        // This thread acts as alice.
        let local = |file_mode: &str| {
            let done = std::process::Command::new("chmod").arg(file_mode).arg(rig.dir().join("f")).status();
            assert!(done.unwrap().success());
        };
        local("600");
        let begun = Instant::now();
        while v.as_caller(&alice, &file, OpenMode::WRITE).is_ok() {
            assert!(begun.elapsed() < limits::DESCRIPTOR_CACHE_TIME + Duration::from_secs(1), "she goes on");
            std::thread::yield_now();
        }
        assert_eq!(v.as_caller(&alice, &file, OpenMode::READ).unwrap_err(), Error::Access);
        local("666");
        assert!(v.as_caller(&alice, &file, OpenMode::BOTH).is_ok(), "what is refused is not remembered");
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_is_written_is_written_by_the_caller() {
    check(|rig| {
        let (v, alice) = (&rig.volume, user(1000));
        let Created { node, file, .. } = made(rig, &root(), 0o777);
        rig.setattr(&root(), &node, mode(0o4777)).unwrap();
        let is = || std::fs::metadata(rig.dir().join("f")).unwrap().mode() & 0o7777;
        rig.write(&file, 0, b"root's").unwrap();
        assert_eq!(is(), 0o4777);
        rig.write(&v.as_caller(&alice, &file, OpenMode::WRITE).unwrap(), 0, b"hers").unwrap();
        assert_eq!(is(), 0o777);
    });
}
