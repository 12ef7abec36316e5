//! Locks between two mounts, and programs that are killed while they wait.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Rig, can_mount, has, shell};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_lock_at_one_mount_excludes_the_other() {
    if !can_mount() {
        return;
    }
    for version in ["4.1", "4.2"] {
        let rig = Rig::new();
        let (one, two) = (rig.mount(version), rig.mount(version));
        fs::write(one.join("f"), "0").unwrap();
        let (a, b) = (open(&one.join("f")), open(&two.join("f")));
        fcntl_lock(&a, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(fcntl_lock(&b, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
        assert_eq!(flock(&b, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
        fcntl_lock(&a, FlockOperation::Unlock).unwrap();
        fcntl_lock(&b, FlockOperation::NonBlockingLockShared).unwrap();
        fcntl_lock(&a, FlockOperation::NonBlockingLockShared).unwrap();
        fcntl_lock(&b, FlockOperation::Unlock).unwrap();
        // A close gives them up.
        drop(a);
        fcntl_lock(&b, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(b);
        let a = open(&one.join("f"));
        flock(&a, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}

#[test]
fn what_one_writes_under_a_lock_the_next_reads_under_it() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount("4.2"), rig.mount("4.2"));
    fs::write(one.join("f"), "0").unwrap();
    const ROUNDS: u32 = 15;
    std::thread::scope(|scope| {
        for at in [&one, &two] {
            scope.spawn(|| {
                // Open all the time: only the lock makes the other's data visible.
                let mut f = open(&at.join("f"));
                for _ in 0..ROUNDS {
                    fcntl_lock(&f, FlockOperation::LockExclusive).unwrap();
                    let mut text = String::new();
                    f.seek(SeekFrom::Start(0)).unwrap();
                    f.read_to_string(&mut text).unwrap();
                    let next = (text.parse::<u32>().unwrap() + 1).to_string();
                    f.seek(SeekFrom::Start(0)).unwrap();
                    f.write_all(next.as_bytes()).unwrap();
                    fcntl_lock(&f, FlockOperation::Unlock).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(rig.dest().join("f")).unwrap(), (2 * ROUNDS).to_string());
}

#[test]
fn who_appends_under_a_lock_writes_behind_the_others() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount("4.2"), rig.mount("4.2"));
    fs::write(one.join("f"), "").unwrap();
    let append = |at: &common::At| OpenOptions::new().append(true).open(at.join("f")).unwrap();
    let (mut a, mut b) = (append(&one), append(&two));
    for n in 0..10 {
        for f in [&mut a, &mut b] {
            fcntl_lock(&*f, FlockOperation::LockExclusive).unwrap();
            f.write_all(format!("line {n}\n").as_bytes()).unwrap();
            fcntl_lock(&*f, FlockOperation::Unlock).unwrap();
        }
    }
    drop((a, b));
    let text = fs::read_to_string(one.join("f")).unwrap();
    let wanted: String = (0..10).map(|n| format!("line {n}\nline {n}\n")).collect();
    assert_eq!(text, wanted);
}

#[test]
fn locks_survive_a_restart_of_a_server_that_keeps_them() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new();
    let (one, two) = (rig.mount("4.2"), rig.mount("4.2"));
    fs::write(one.join("f"), "0").unwrap();
    let (a, b) = (open(&one.join("f")), open(&two.join("f")));
    fcntl_lock(&a, FlockOperation::LockExclusive).unwrap();
    rig.stop();
    rig.start();
    assert_eq!(fcntl_lock(&b, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
    fcntl_lock(&a, FlockOperation::Unlock).unwrap();
    fcntl_lock(&b, FlockOperation::NonBlockingLockExclusive).unwrap();
}

#[test]
fn versions_without_locks_say_so_and_keep_them_here_if_told_to() {
    if !can_mount() {
        return;
    }
    for version in ["3", "4.0"] {
        let rig = Rig::new();
        let (one, two) = (rig.mount(version), rig.mount_with(version, "nolock"));
        fs::write(one.join("f"), "0").unwrap();
        assert_eq!(fcntl_lock(open(&one.join("f")), FlockOperation::LockShared), Err(Errno::NOLCK));
        fcntl_lock(open(&two.join("f")), FlockOperation::LockExclusive).unwrap();
    }
}

fn ends(child: &mut std::process::Child) -> std::process::ExitStatus {
    let begin = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None => assert!(begin.elapsed() < Duration::from_secs(20), "it cannot be killed"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_program_that_waits_for_a_lock_or_a_server_can_be_killed() {
    if !can_mount() || !has("flock") {
        return;
    }
    let mut rig = Rig::new();
    let at = rig.mount("4.2");
    shell(at.path(), "echo 1 >f");
    let a = open(&at.join("f"));
    flock(&a, FlockOperation::LockExclusive).unwrap();
    for signal in ["TERM", "KILL"] {
        let mut waits = Command::new("flock").arg(at.join("f")).arg("true").spawn().unwrap();
        shell(
            at.path(),
            &format!("while ! grep -q ' [SD] ' /proc/{0}/stat; do :; done; kill -{signal} {0}", waits.id()),
        );
        assert!(ends(&mut waits).signal().is_some());
    }
    rig.stop();
    let mut cat = Command::new("cat").arg(at.join("other")).stderr(Stdio::null()).spawn().unwrap();
    shell(rig.dir.path(), &format!("kill -KILL {}", cat.id()));
    assert_eq!(ends(&mut cat).signal(), Some(libc::SIGKILL));
    rig.start();
    drop(a);
}

#[test]
fn two_mounts_write_one_database() {
    if !can_mount() || !has("python3") {
        return;
    }
    const EACH: u32 = 10;
    let rig = Rig::new();
    let mounts = [rig.mount("4.2"), rig.mount("4.2")];
    let script = format!(
        "import sqlite3, sys
c = sqlite3.connect(sys.argv[1], timeout=300)
c.execute('create table if not exists t(a, b)')
for i in range({EACH}):
    c.execute('insert into t values(?, ?)', (sys.argv[2], i))
    c.commit()"
    );
    let insert = |(n, at): (usize, &common::At)| {
        Command::new("python3").args(["-c", &script]).arg(at.join("db")).arg(n.to_string()).spawn().unwrap()
    };
    let programs: Vec<_> = mounts.iter().enumerate().map(insert).collect();
    for mut program in programs {
        assert!(program.wait().unwrap().success());
    }
    let count = "import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
print(c.execute('select count(*) from t').fetchone()[0], c.execute('pragma integrity_check').fetchone()[0])";
    let told = Command::new("python3").args(["-c", count]).arg(rig.dest().join("db")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout), format!("{} ok\n", 2 * EACH));
}
