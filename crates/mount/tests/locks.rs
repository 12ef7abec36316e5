//! Locks between two mounts, and programs that are killed while they wait.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{At, Rig, VERSIONS, can_mount, has, shell};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Two mounts of one directory.
fn exclude_each_other(one: &At, two: &At) {
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
    drop(a);
    fs::remove_file(one.join("f")).unwrap();
}

#[test]
fn a_lock_at_one_mount_excludes_the_other() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let rig = Rig::new();
        exclude_each_other(&rig.mount(version), &rig.mount(version));
    }
    // Directories of other servers, with the version in each URL, separated by spaces.
    for url in std::env::var("LANDFAST_MOUNT_URLS").unwrap_or_default().split_whitespace() {
        eprintln!("{url}");
        exclude_each_other(&At::new(url, ""), &At::new(url, ""));
    }
}

#[test]
fn who_has_closed_a_file_is_no_lock_owner_of_it_any_more() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    for version in ["4.1", "4.2"] {
        let (one, two) = (rig.mount(version), rig.mount(version));
        fs::write(one.join("f"), "0").unwrap();
        let [a, b, c] = [(); 3].map(|()| open(&one.join("f")));
        fcntl_lock(&a, FlockOperation::NonBlockingLockExclusive).unwrap();
        let none = one.rpcs(|| ());
        let gives_up = one.rpcs(|| drop(a));
        assert!(gives_up > none, "version {version}: LOCKU");
        assert_eq!(one.rpcs(|| drop(b)), none, "version {version}: nothing is left to be given up");
        // The server takes it for a new one, and so does the mount.
        fcntl_lock(&c, FlockOperation::NonBlockingLockExclusive).unwrap();
        let other = open(&two.join("f"));
        assert_eq!(fcntl_lock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
        drop(c);
        fcntl_lock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}

#[test]
fn what_one_writes_under_a_lock_the_next_reads_under_it() {
    if !can_mount() {
        return;
    }
    const ROUNDS: u32 = 15;
    for version in ["3", "4.0", "4.2"] {
        let rig = Rig::new();
        let (one, two) = (rig.mount(version), rig.mount(version));
        fs::write(one.join("f"), "0").unwrap();
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
        let told = fs::read_to_string(rig.dest().join("f")).unwrap();
        assert_eq!(told, (2 * ROUNDS).to_string(), "{version}");
    }
}

/// Ranges, owners and readers, as fcntl(2) has them: programs of both mounts and of one.
#[test]
fn ranges_of_several_owners_are_kept_apart_and_told() {
    if !can_mount() || !has("python3") {
        return;
    }
    for version in VERSIONS {
        let rig = Rig::new();
        let (one, two) = (rig.mount(version), rig.mount(version));
        fs::write(one.join("f"), vec![0; 100]).unwrap();
        // Tries ranges of the file, and prints those that it gets.
        let tries = "import fcntl, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
got = []
for kind, start, length in ((fcntl.LOCK_EX, 0, 10), (fcntl.LOCK_SH, 10, 10), (fcntl.LOCK_EX, 10, 10), (fcntl.LOCK_EX, 20, 10), (fcntl.LOCK_EX, 30, 0)):
    try:
        fcntl.lockf(f, kind | fcntl.LOCK_NB, length, start)
        got.append((kind, start))
        fcntl.lockf(f, fcntl.LOCK_UN, length, start)
    except OSError as e:
        assert e.errno == 11, e
print(*(f'{kind}:{start}' for kind, start in got))";
        let others = |at: &At| {
            let told = Command::new("python3").args(["-c", tries]).arg(at.join("f")).output().unwrap();
            assert!(told.status.success(), "{version}: {}", String::from_utf8_lossy(&told.stderr));
            String::from_utf8_lossy(&told.stdout).trim().to_owned()
        };
        // Holds [0, 10) for writing and [10, 20) for reading, until its input ends; then gives the first five up, and waits again.
        let holds = "import fcntl, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
fcntl.lockf(f, fcntl.LOCK_SH, 10, 10)
print('held', flush=True)
sys.stdin.readline()
fcntl.lockf(f, fcntl.LOCK_UN, 10, 0)
print('given up', flush=True)
sys.stdin.readline()";
        let mut holder = Command::new("python3")
            .args(["-c", holds])
            .arg(one.join("f"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = holder.stdin.take().unwrap();
        let mut output = BufReader::new(holder.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "held\n", "{version}");
        for at in [&one, &two] {
            assert_eq!(others(at), "1:10 2:20 2:30", "{version}");
        }
        input.write_all(b"\n").unwrap();
        line.clear();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "given up\n", "{version}");
        for at in [&one, &two] {
            assert_eq!(others(at), "2:0 1:10 2:20 2:30", "{version}");
        }
        drop(input);
        assert!(holder.wait().unwrap().success());
        // Its end has given up the rest.
        assert_eq!(others(&two), "2:0 1:10 2:10 2:20 2:30", "{version}");
    }
}

/// As a lock file is used: the open file is renamed and removed while it is locked.
#[test]
fn a_lock_outlives_the_name_of_its_file() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let rig = Rig::new();
        // The second one asks for each name.
        let (one, two) = (rig.mount(version), rig.mount_with(version, "noac"));
        fs::write(one.join("f"), "0").unwrap();
        let (a, b) = (open(&one.join("f")), open(&two.join("f")));
        fs::rename(one.join("f"), one.join("g")).unwrap();
        // Its first lock is taken under the new name.
        assert_eq!(flock(&a, FlockOperation::NonBlockingLockExclusive), Ok(()), "{version}");
        let c = open(&two.join("g"));
        assert_eq!(flock(&c, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN), "{version}");
        fs::remove_file(one.join("g")).unwrap();
        flock(&a, FlockOperation::Unlock).unwrap();
        flock(&a, FlockOperation::NonBlockingLockShared).unwrap();
        drop((a, b, c));
    }
}

#[test]
fn who_appends_under_a_lock_writes_behind_the_others() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount("4.2"), rig.mount("4.2"));
    fs::write(one.join("f"), "").unwrap();
    let append = |at: &At| OpenOptions::new().append(true).open(at.join("f")).unwrap();
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
fn locks_are_kept_here_if_told_to() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let rig = Rig::new();
        let (one, two) = (rig.mount_with(version, "nolock"), rig.mount_with(version, "nolock"));
        fs::write(one.join("f"), "0").unwrap();
        let (a, b) = (open(&one.join("f")), open(&two.join("f")));
        fcntl_lock(&a, FlockOperation::NonBlockingLockExclusive).unwrap();
        fcntl_lock(&b, FlockOperation::NonBlockingLockExclusive).unwrap();
        flock(open(&one.join("f")), FlockOperation::NonBlockingLockExclusive).unwrap();
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
    for version in ["3", "4.0", "4.2"] {
        killed(version);
    }
}

fn killed(version: &str) {
    let mut rig = Rig::new();
    let at = rig.mount(version);
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
    let insert = |(n, at): (usize, &At)| {
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
