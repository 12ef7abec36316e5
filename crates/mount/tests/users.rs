//! Several users of one mount: each one's data is written in that one's name.

mod common;

use std::fs::{self, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{At, Rig, VERSIONS, can_mount, has};

const ALICE: u32 = 1001;
const BOB: u32 = 1002;
const PATIENCE: Duration = Duration::from_secs(20);

/// `program` run by a user in the mount's top.
fn run_as(at: &At, user: u32, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(at.path()).uid(user).gid(user);
    command
}

#[test]
fn a_reader_who_may_not_write_closes_the_file_before_its_writer() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        eprintln!("version {version}");
        let rig = Rig::new();
        let at = rig.mount_with(version, "hold=30,allow_other");
        fs::write(rig.dest().join("old"), "").unwrap();
        // Held back; and one that the server has, with data on its way.
        for name in ["new", "old"] {
            // Before the file is opened: the process has no copy of the descriptor, whose close would send the data.
            let mut cat = run_as(&at, BOB, "sh", &["-ec", "read go; cat $go"]);
            let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut f = OpenOptions::new().create(true).append(true).open(at.join(name)).unwrap();
            f.write_all(b"text").unwrap();
            cat.stdin.take().unwrap().write_all(format!("{name}\n").as_bytes()).unwrap();
            let seen = cat.wait_with_output().unwrap();
            assert!(seen.status.success() && seen.stdout == b"text", "{name}: {seen:?}");
            f.write_all(b" more").unwrap();
            f.sync_all().unwrap_or_else(|e| panic!("{name}: {e}"));
            drop(f);
            assert_eq!(fs::read_to_string(rig.dest().join(name)).unwrap(), "text more");
            assert_eq!(fs::metadata(rig.dest().join(name)).unwrap().uid(), 0);
        }
        assert_eq!(at.unmount(), Vec::<String>::new());
    }
}

/// What root wrote before a user did is sent first: a server takes nothing away when root writes.
#[test]
fn who_writes_without_privileges_takes_those_of_the_file_away() {
    if !can_mount() {
        return;
    }
    for (version, uid) in VERSIONS.into_iter().flat_map(|version| [(version, ""), (version, ",uid=0,gid=0")])
    {
        let rig = Rig::new();
        let there = rig.dest().join("f");
        fs::write(&there, "program").unwrap();
        chown(&there, Some(0), Some(BOB)).unwrap();
        fs::set_permissions(&there, Permissions::from_mode(0o4775)).unwrap();
        let at = rig.mount_with(version, &format!("hold=30,allow_other{uid}"));
        let mut bob = run_as(&at, BOB, "sh", &["-ec", "exec 3<>f; echo open; read go; printf bob >&3"]);
        let mut bob = bob.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        bob.stdout.take().unwrap().read_exact(&mut [0; 5]).unwrap();
        let f = OpenOptions::new().write(true).open(at.join("f")).unwrap();
        f.write_at(b"root", 4).unwrap();
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o7777, 0o4775, "root may");
        // Where the mount takes them away, it gives nothing back that somebody else has taken away meanwhile.
        let rest = if uid.is_empty() { 0o775 } else { 0o700 };
        let other = rig.mount(version);
        fs::set_permissions(other.join("f"), Permissions::from_mode(0o4000 | rest)).unwrap();
        bob.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(bob.wait().unwrap().success(), "{version}{uid}");
        drop(f);
        assert_eq!(fs::read_to_string(&there).unwrap(), "bobgroot");
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o7777, rest, "{version}{uid}");
    }
}

#[test]
fn the_superuser_gives_away_a_file_that_a_user_has_open() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    fs::set_permissions(rig.dest(), Permissions::from_mode(0o777)).unwrap();
    let at = rig.mount_with("4.2", "hold=30,allow_other");
    // It keeps the descriptor that it has opened.
    let mut tee = run_as(&at, ALICE, "tee", &["f"]);
    let mut tee = tee.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    tee.stdin.as_mut().unwrap().write_all(b"text").unwrap();
    let begin = Instant::now();
    while fs::metadata(at.join("f")).map_or(0, |m| m.len()) < 4 {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert!(!rig.dest().join("f").exists(), "it is held back");
    chown(at.join("f"), Some(BOB), Some(BOB)).unwrap();
    let done = tee.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let there = fs::metadata(rig.dest().join("f")).unwrap();
    assert_eq!((there.uid(), there.gid(), there.len()), (BOB, BOB, 4));
    assert_eq!(at.unmount(), Vec::<String>::new());
}

/// The server hears of a change of rights later than the programs of this machine, but before anybody relies on it: who reads, and who locks.
#[test]
fn who_was_told_that_he_may_read_or_lock_a_file_is_not_refused() {
    for locks in [false, true] {
        read_or_lock(locks);
    }
}

fn read_or_lock(locks: bool) {
    if !can_mount() || !has("flock") {
        return;
    }
    let rig = Rig::delegating();
    let at = rig.mount_local("close=local,flush_age=30,allow_other");
    let dir = at.own_dir("own");
    let do_as =
        |user, program: &str, args: &[&str]| run_as(&at, user, program, args).current_dir(&dir).output();
    fs::write(dir.join("f"), "text").unwrap();
    fs::set_permissions(dir.join("f"), Permissions::from_mode(0o600)).unwrap();
    at.sync();
    // Past the pages that the kernel has.
    let read = || do_as(BOB, "dd", &["if=f", "iflag=direct", "status=none"]).unwrap();
    let refused = read();
    assert!(!refused.status.success(), "it is root's: {refused:?}");
    fs::set_permissions(dir.join("f"), Permissions::from_mode(0o644)).unwrap();
    assert!(at.state("changes on their way") > 0, "the server has not heard of it");
    let done = if locks { do_as(BOB, "flock", &["-s", "f", "true"]).unwrap() } else { read() };
    assert!(done.status.success() && (locks || done.stdout == b"text"), "{done:?}");
    assert_eq!(at.unmount(), Vec::<String>::new());
}

#[test]
fn only_root_and_who_mounts_get_the_list_of_what_was_lost() {
    if !can_mount() || !has("python3") {
        return;
    }
    let rig = Rig::new();
    let at = rig.mount_with("4.2", "allow_other");
    fs::set_permissions(rig.dest(), Permissions::from_mode(0o777)).unwrap();
    let ask = |name: &str| format!("import os; print(len(os.getxattr('.', '{name}')))");
    let all = |user, name: &str| run_as(&at, user, "python3", &["-c", &ask(name)]).output().unwrap();
    let refused = all(BOB, "landfast.sync");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("PermissionError"), "{refused:?}");
    assert!(all(BOB, "landfast.status").status.success());
    assert!(all(0, "landfast.sync").status.success());
    at.sync();
}
