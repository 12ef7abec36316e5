//! `landfast mount`, `umount`, `sync`, `status` and `mount.landfast` from outside.

#![cfg(feature = "mount")]

mod common;

use common::*;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Whether this machine can mount. Says so where it cannot.
fn mounts() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        println!("skipped: mounting needs /dev/fuse");
    }
    there
}

struct Rig {
    dir: tempfile::TempDir,
    serving: Serving,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        ["data", "at"].iter().for_each(|d| fs::create_dir(dir.path().join(d)).expect("made"));
        let serving = Serving::start(&dir.path().join("data"), &dir.path().join("log"));
        Rig { dir, serving }
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join("at").join(name).display().to_string()
    }

    fn top(&self) -> String {
        self.dir.path().join("at").display().to_string()
    }

    /// A mount that stays in its process, and says its promise to a pipe.
    fn foreground(&self) -> Command {
        let mut mount = landfast();
        mount.args(["mount", "--foreground", &self.serving.url, &self.top()]).stdout(Stdio::piped());
        mount
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Left behind by a test that fails.
        let _ = Command::new("umount").arg("-lq").arg(self.top()).stderr(Stdio::null()).status();
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn it_mounts_in_the_background_and_unmounts_with_everything_stable() {
    if !mounts() {
        return;
    }
    let rig = Rig::new();
    let mounted = run(&["mount", &rig.serving.url, &rig.top(), "-o", "hold=30,nosuid"]);
    assert!(mounted.status.success(), "{}", stderr(&mounted));
    one_line_with(
        &stdout(&mounted),
        &["NFS 4.2", "stable on the server when close or fsync returns", &rig.top()],
    );
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(mounts.lines().any(|l| l.contains(&rig.top()) && l.contains("fuse")), "{mounts}");
    fs::write(rig.at("f"), "text").expect("written");
    assert_eq!(fs::read_to_string(rig.dir.path().join("data/f")).expect("there"), "text");
    // Open in another process, which waits for more to write: one that starts others closes their copies, and each close makes the file
    // stable.
    let mut other = Command::new("dd")
        .args(["of=open", "bs=5", "count=2", "status=none"])
        .current_dir(rig.top())
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    std::io::Write::write_all(other.stdin.as_mut().expect("a pipe"), b"held\n").expect("written");
    let begin = std::time::Instant::now();
    while fs::metadata(rig.at("open")).map_or(0, |m| m.len()) < 5 {
        assert!(begin.elapsed().as_secs() < 20);
        std::thread::yield_now();
    }
    assert_eq!(fs::read_to_string(rig.dir.path().join("data/open")).expect("there"), "");
    let status = run(&["status", &rig.top()]);
    assert!(stdout(&status).contains("dirty files: 1\n"), "{}", stdout(&status));
    assert!(run(&["sync", &rig.top()]).status.success());
    assert_eq!(fs::read_to_string(rig.dir.path().join("data/open")).expect("there"), "held\n");
    let busy = run(&["umount", &rig.top()]);
    assert_eq!(busy.status.code(), Some(2), "{}", stderr(&busy));
    one_line_with(&stderr(&busy), &[&rig.top(), "busy"]);
    drop(other.stdin.take());
    other.wait().expect("gone");
    let done = run(&["umount", &rig.top()]);
    assert!(done.status.success(), "{}", stderr(&done));
    let again = run(&["umount", &rig.top()]);
    assert_eq!(again.status.code(), Some(2));
    one_line_with(&stderr(&again), &["not in a filesystem that landfast has mounted"]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_was_lost_is_told_by_an_umount_that_fails() {
    if !mounts() {
        return;
    }
    let rig = Rig::new();
    let there = rig.dir.path().join("data/f");
    fs::write(&there, "as it was").expect("written");
    let immutable = |how: &str| {
        let done = Command::new("chattr").arg(how).arg(&there).status();
        assert!(done.is_ok_and(|status| status.success()), "chattr {how}");
    };
    immutable("+i");
    assert!(run(&["mount", &rig.serving.url, &rig.top()]).status.success());
    let file = fs::File::options().write(true).open(rig.at("f")).expect("it opens");
    std::os::unix::fs::FileExt::write_at(&file, b"changed", 0).expect("it waits here");
    // In use; the process has the only copy.
    let busy = run(&["umount", &rig.top()]);
    immutable("-i");
    assert_eq!(busy.status.code(), Some(2), "{}", stderr(&busy));
    let said = stderr(&busy);
    assert!(said.lines().any(|line| line.starts_with("f: what was written is lost: ")), "{said}");
    assert!(said.lines().any(|line| line.contains("busy")), "{said}");
    drop(file);
    let done = run(&["umount", &rig.top()]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(fs::read_to_string(&there).expect("there"), "as it was");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_cannot_be_mounted_is_said_in_one_line() {
    if !mounts() {
        return;
    }
    let rig = Rig::new();
    let url = rig.serving.url.clone();
    for (args, part) in [
        (vec!["mount", "nfs://127.0.0.1:1/", "/nowhere"], "cannot connect to 127.0.0.1:1"),
        (vec!["mount", &url, "/nowhere"], "cannot mount on /nowhere"),
        (vec!["mount", &format!("{url}missing"), "/tmp"], "NFS4ERR_NOENT"),
        (vec!["mount", &url, "/tmp", "-o", "wibble"], "unknown mount option 'wibble'"),
        (vec!["mount", "what", "/tmp"], "what"),
    ] {
        let refused = run(&args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&refused), "");
        one_line_with(&stderr(&refused), &["landfast: ", part]);
    }
    let no_mount = run(&["sync", &rig.top()]);
    assert_eq!(no_mount.status.code(), Some(2));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_death_of_its_process_is_an_error_for_programs() {
    if !mounts() {
        return;
    }
    let rig = Rig::new();
    let mut process = rig.foreground().spawn().expect("it starts");
    let mut promise = String::new();
    let mut out = std::io::BufReader::new(process.stdout.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut out, &mut promise).expect("a line");
    fs::write(rig.at("f"), "text").expect("written");
    process.kill().expect("killed");
    process.wait().expect("gone");
    let e = fs::read(rig.at("f")).expect_err("nobody serves it");
    assert_eq!(e.raw_os_error(), Some(libc::ENOTCONN));
    assert_eq!(fs::read_to_string(rig.dir.path().join("data/f")).expect("there"), "text");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_signal_that_finds_it_in_use_leaves_it_and_the_next_one_unmounts_it() {
    if !mounts() {
        return;
    }
    let rig = Rig::new();
    let mut process = rig.foreground().stderr(Stdio::piped()).spawn().expect("it starts");
    let line = |out: &mut dyn BufRead| {
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        line
    };
    let mut promise = BufReader::new(process.stdout.take().expect("a pipe"));
    let mut said = BufReader::new(process.stderr.take().expect("a pipe"));
    line(&mut promise);
    let mut user =
        Command::new("cat").current_dir(rig.top()).stdin(Stdio::piped()).spawn().expect("it starts");
    let pid = rustix::process::Pid::from_child(&process);
    let send = move |signal| rustix::process::kill_process(pid, signal).expect("sent");
    let end = || send(rustix::process::Signal::TERM);
    // Who waits for a line that never comes hears the end of the process.
    let (ended, end_of_test) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let late = end_of_test.recv_timeout(Duration::from_secs(60));
        late.is_err_and(|e| e == RecvTimeoutError::Timeout).then(|| send(rustix::process::Signal::KILL))
    });
    for _ in 0..2 {
        end();
        one_line_with(&line(&mut said), &[&rig.top(), "busy"]);
    }
    fs::write(rig.at("f"), "text").expect("it is there still");
    drop(user.stdin.take());
    user.wait().expect("gone");
    end();
    assert!(process.wait().expect("it ends").success());
    drop(ended);
    assert_eq!(fs::read_dir(rig.top()).expect("nothing is mounted").count(), 0);
    assert_eq!(fs::read_to_string(rig.dir.path().join("data/f")).expect("there"), "text");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn mount_8_finds_it_by_its_name() {
    if !mounts() {
        return;
    }
    let rig = Rig::new();
    let helper = rig.dir.path().join("mount.landfast");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_landfast"), &helper).expect("linked");
    let (host, port) = rig.serving.address().rsplit_once(':').expect("a port");
    let options = format!("rw,port={port},vers=4.1,_netdev");
    let args = [&format!("{host}:/"), &rig.top(), "-s", "-o", &options];
    let mounted = Command::new(&helper).args(args).output().expect("it runs");
    assert!(mounted.status.success(), "{}", stderr(&mounted));
    one_line_with(&stdout(&mounted), &["NFS 4.1"]);
    // All users may use what root mounts, each with rights of his own.
    fs::create_dir(rig.at("open")).expect("made");
    let script = "chmod 1777 open; setpriv --reuid 1234 --regid 4321 --clear-groups sh -c 'echo hers >open/f; ! echo x >not'";
    let done = Command::new("sh").args(["-ec", script]).current_dir(rig.top()).output().expect("it runs");
    assert!(done.status.success(), "{}", stderr(&done));
    let m = fs::metadata(rig.dir.path().join("data/open/f")).expect("there");
    use std::os::unix::fs::MetadataExt;
    assert_eq!((m.uid(), m.gid(), m.size()), (1234, 4321, 5));
    assert!(run(&["umount", &rig.top()]).status.success());
    let fake = Command::new(&helper).args(["nowhere:/", "/nowhere", "-f"]).status().expect("it runs");
    assert!(fake.success());
}

/// Debian's user `nobody`: fusermount3 wants a user that has a name.
const NOBODY: u32 = 65534;

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_user_without_privileges_mounts_with_fusermount3() {
    if !mounts() || !common::has_program("fusermount3") || !common::has_program("setpriv") {
        return;
    }
    let rig = Rig::new();
    std::os::unix::fs::chown(rig.top(), Some(NOBODY), Some(NOBODY)).expect("given away");
    std::os::unix::fs::chown(rig.dir.path().join("data"), Some(NOBODY), Some(NOBODY)).expect("given away");
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(rig.dir.path(), open_to_all).expect("chmod");
    let script = format!(
        "{0} mount {1} {2} && echo text >{2}/f && cat {2}/f && {0} umount {2}",
        env!("CARGO_BIN_EXE_landfast"),
        rig.serving.url,
        rig.top()
    );
    let id = NOBODY.to_string();
    let user = ["--reuid", &id, "--regid", &id, "--clear-groups", "sh", "-c", &script];
    let done = Command::new("setpriv").args(user).output().expect("it runs");
    let why = stderr(&done);
    if why.contains("Permission denied")
        && !Path::new("/dev/fuse")
            .metadata()
            .is_ok_and(|m| std::os::unix::fs::PermissionsExt::mode(&m.permissions()) & 0o002 != 0)
    {
        println!("skipped: /dev/fuse is root's");
        return;
    }
    assert!(done.status.success(), "{why}");
    assert!(stdout(&done).ends_with("text\n"), "{}", stdout(&done));
    assert_eq!(fs::read_to_string(rig.dir.path().join("data/f")).expect("there"), "text\n");
}
