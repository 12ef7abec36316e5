//! The server goes away and comes back while programs work on a mount.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Rig, VERSIONS, can_mount, shell};

#[test]
fn programs_go_on_over_restarts_of_the_server() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        eprintln!("version {version}");
        let mut rig = Rig::new();
        shell(
            &rig.work(),
            "mkdir a; for f in $(seq 300); do echo $f >a/$f; done; head -c 4000000 /dev/urandom >a/large; tar cf a.tar a",
        );
        let at = rig.mount(version);
        let mut tar = Command::new("tar")
            .arg("xf")
            .arg(rig.work().join("a.tar"))
            .current_dir(at.path())
            .spawn()
            .unwrap();
        for _ in 0..3 {
            rig.stop();
            rig.start();
        }
        assert!(tar.wait().unwrap().success());
        shell(at.path(), &format!("diff -r a {}", rig.work().join("a").display()));
        assert_eq!(at.unmount(), Vec::<String>::new());
    }
}

#[test]
fn data_that_was_not_stable_is_written_again_after_a_restart() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new();
    let at = rig.mount("4.2");
    let f = File::create(at.join("f")).unwrap();
    let data: Vec<u8> = (0..6_000_000u32).map(|n| (n % 251) as u8).collect();
    for (n, part) in data.chunks(1_000_000).enumerate() {
        f.write_all_at(part, n as u64 * 1_000_000).unwrap();
        if n == 3 {
            rig.stop();
            rig.start();
        }
    }
    f.sync_all().unwrap();
    assert!(fs::read(rig.dest().join("f")).unwrap() == data);
}

#[test]
fn a_soft_mount_gives_up_and_says_what_is_lost() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new();
    let at = rig.mount_with("4.2", "soft,timeo=10");
    let mut f = File::create(at.join("f")).unwrap();
    f.sync_all().unwrap();
    rig.stop();
    f.write_all(b"lost").unwrap();
    assert_eq!(f.sync_all().unwrap_err().raw_os_error(), Some(libc::ETIMEDOUT));
    assert_eq!(fs::metadata(at.join("other")).unwrap_err().raw_os_error(), Some(libc::ETIMEDOUT));
    rig.start();
    drop(f);
    let lost = landfast_mount::control::sync(at.path()).unwrap();
    assert!(lost.len() == 1 && lost[0].starts_with("f: what was written is lost"), "{lost:?}");
    fs::write(at.join("g"), "kept").unwrap();
    assert_eq!(fs::read_to_string(rig.dest().join("g")).unwrap(), "kept");
}

#[test]
fn a_hard_mount_waits_for_the_server() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new();
    let at = rig.mount("4.2");
    fs::write(at.join("f"), "one").unwrap();
    rig.stop();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            fs::write(at.join("f"), "two").unwrap();
            done.store(true, Ordering::Release);
        });
        // What memory knows is answered without the server; the write is not.
        let _ = fs::metadata(at.path());
        assert!(!done.load(Ordering::Acquire));
        rig.start();
    });
    assert_eq!(fs::read_to_string(rig.dest().join("f")).unwrap(), "two");
}
