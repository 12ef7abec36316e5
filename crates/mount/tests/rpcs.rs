//! How many requests each thing costs: what a network makes programs wait for.

mod common;

use std::fs::{self, File};
use std::io::Write;

use common::{Rig, can_mount, shell};

#[test]
fn a_new_small_file_takes_one_request() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let at = rig.mount("4.2");
    fs::create_dir(at.join("d")).unwrap();
    const FILES: u64 = 100;
    let cost = at.rpcs(|| {
        for n in 0..FILES {
            let mut f = File::create_new(at.join(&format!("d/{n}"))).unwrap();
            f.write_all(b"some text").unwrap();
            f.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
    });
    // And what an older memory makes the mount ask again, once a second for each directory.
    assert!(cost <= FILES + 10, "{cost}");
    assert_eq!(fs::read_dir(rig.dest().join("d")).unwrap().count() as u64, FILES);
}

#[test]
fn tar_takes_one_request_for_each_file_in_new_and_old_directories() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let work = rig.work();
    shell(
        &work,
        "mkdir a; for d in 1 2 3 4 5; do mkdir a/$d; for f in $(seq 40); do echo $d $f >a/$d/$f; done; done; tar cf a.tar a",
    );
    let at = rig.mount("4.2");
    let tar = work.join("a.tar");
    let tar = tar.display();
    let cost = at.rpcs(|| drop(shell(at.path(), &format!("tar xf {tar}"))));
    eprintln!("tar: {cost} requests for 200 files and 6 directories");
    // A directory is looked up, made, and given its attributes at the end.
    assert!(cost <= 200 + 6 * 4 + 20, "{cost}");
    shell(at.path(), "rm a/*/*");
    let cost = at.rpcs(|| drop(shell(at.path(), &format!("tar xf {tar}"))));
    eprintln!("tar into directories that are there: {cost} requests");
    assert!(cost <= 200 + 6 * 8 + 20, "{cost}");
    shell(at.path(), &format!("diff -r a {}", work.join("a").display()));
}

#[test]
fn a_small_file_is_opened_and_read_in_one_request_and_a_second_time_without_its_data() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    shell(&rig.dest(), "for f in $(seq 50); do echo $f >$f; done");
    let at = rig.mount("4.2");
    let cost = at.rpcs(|| drop(shell(at.path(), "ls >/dev/null; cat $(seq 50) >/dev/null")));
    eprintln!("ls and cat: {cost} requests for 50 files");
    assert!(cost <= 50 + 10, "{cost}");
}
