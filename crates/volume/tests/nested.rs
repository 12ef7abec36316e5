//! Two server processes on directories of which one lies inside the other. The second is refused, in either order and by whatever
//! path; the locks end with the process; nobody else enters what a crashed server has left.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

/// The variable with the directory that the child serves.
const DIR: &str = "LANDFAST_NESTED_DIR";

fn options_of(dir: &Path) -> OpenOptions {
    let mut log = dir.as_os_str().to_owned();
    log.push("-log");
    // Beside the outermost directory: never within a volume.
    let name = PathBuf::from(log).to_string_lossy().replace('/', "_");
    let log = PathBuf::from(std::env::var_os("LANDFAST_NESTED_LOGS").expect("set")).join(name);
    OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(dir, log) }
}

/// Not a test of its own: runs in the other process.
#[test]
fn child_serves() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    match Volume::open(options_of(Path::new(&dir))) {
        Ok((volume, _)) => {
            volume.start(Arc::new(NoNotes)).expect("start");
            println!("\nserves");
            // Until it is killed, or the end of its input tells it to stop.
            std::io::stdin().read_line(&mut String::new()).expect("its input");
            volume.shutdown().expect("a clean stop");
            println!("\nstopped");
        }
        Err(refused) => println!("\nrefused: {refused}"),
    }
}

/// A server in a process of its own; killed when dropped.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    out: BufReader<std::process::ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn next(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.out.read_line(&mut line).expect("its output") > 0, "it ended");
            if ["serves", "stopped", "refused"].iter().any(|word| line.starts_with(word)) {
                return line.trim().to_owned();
            }
        }
    }

    fn stop(mut self) {
        self.stdin = None;
        assert_eq!(self.next(), "stopped");
    }

    fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Where the logs are; one for all children of this process.
struct Logs(tempfile::TempDir);

impl Logs {
    fn new() -> Logs {
        Logs(tempfile::tempdir().expect("tempdir"))
    }

    /// Tries to serve a directory in another process, perhaps within its own namespaces.
    fn serve_by(&self, dir: &Path, by: &[&str]) -> Result<Server, String> {
        let exe = std::env::current_exe().expect("this program");
        let mut command = match by.split_first() {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(exe);
                command
            }
            None => Command::new(exe),
        };
        let command = command.args(["--exact", "child_serves", "--nocapture", "--test-threads=1"]);
        let command = command.env(DIR, dir).env("LANDFAST_NESTED_LOGS", self.0.path());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("another process");
        let (stdin, out) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("a pipe")));
        let mut server = Server { child, stdin, out };
        match server.next().split_once("refused: ") {
            None => Ok(server),
            Some((_, why)) => Err(why.to_owned()),
        }
    }

    fn serve(&self, dir: &Path) -> Result<Server, String> {
        self.serve_by(dir, &[])
    }

    fn served(&self, dir: &Path) -> Server {
        self.serve(dir).unwrap_or_else(|why| panic!("{}: {why}", dir.display()))
    }

    #[track_caller]
    fn refused(&self, dir: &Path, words: &[&str]) {
        self.refused_by(dir, &[], words);
    }

    #[track_caller]
    fn refused_by(&self, dir: &Path, by: &[&str], words: &[&str]) {
        let Err(why) = self.serve_by(dir, by) else { panic!("{} is served", dir.display()) };
        for word in words {
            assert!(why.contains(word), "no '{word}' in: {why}");
        }
    }
}

/// `a` and `a/b/c`, and their names.
fn tree(base: &Path) -> [PathBuf; 2] {
    let base = fs::canonicalize(base).expect("a path");
    fs::create_dir_all(base.join("a/b/c")).expect("mkdir");
    [base.join("a"), base.join("a/b/c")]
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_second_is_refused_in_either_order_and_names_both_and_the_process() {
    if !tempdir_suits() {
        return;
    }
    let (base, logs) = (tempfile::tempdir().expect("tempdir"), Logs::new());
    let [outer, inner] = tree(base.path());
    for (first, second) in [(&outer, &inner), (&inner, &outer)] {
        let server = logs.served(first);
        let process = format!("process {}", server.id());
        logs.refused(
            second,
            &[text(&outer), text(&inner), "lies within", &process, "each object belongs to one log"],
        );
        assert!(!second.join(".landfast").exists(), "a refusal leaves no trace");
        // Directories side by side do not conflict.
        let beside = outer.with_file_name(format!("beside-{}", second.components().count()));
        fs::create_dir(&beside).expect("mkdir");
        logs.served(&beside).stop();
        server.stop();
        // After a clean stop the other one may start.
        logs.served(second).stop();
        for dir in [&outer, &inner] {
            let _ = fs::remove_dir_all(dir.join(".landfast"));
            let _ = rustix::fs::removexattr(dir, "trusted.landfast.tag");
        }
        for log in fs::read_dir(logs.0.path()).expect("the logs").flatten() {
            fs::remove_file(log.path()).expect("a log");
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn by_a_symbolic_link_too() {
    if !tempdir_suits() {
        return;
    }
    let (base, logs) = (tempfile::tempdir().expect("tempdir"), Logs::new());
    let [outer, inner] = tree(base.path());
    let link = base.path().join("link");
    std::os::unix::fs::symlink(&inner, &link).expect("a link");
    let _outer = logs.served(&outer);
    logs.refused(&link, &["lies within", text(&outer)]);
}

/// In a mount namespace of its own that has only the inner directory's mount and the filesystem's own.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn by_bind_mounts_too_in_either_order() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let logs = Logs::new();
    let [outer, inner] = tree(image.path());
    let bound = image.beside().join("bound");
    fs::create_dir(&bound).expect("mkdir");
    let bind = |from: &Path| {
        assert!(
            Command::new("mount")
                .args(["--bind", text(from), text(&bound)])
                .status()
                .expect("mount")
                .success()
        );
    };
    let unbind = || assert!(Command::new("umount").arg(&bound).status().expect("umount").success());
    bind(&inner);
    let server = logs.served(&outer);
    logs.refused(&bound, &["lies within", text(&outer), "process"]);
    server.stop();
    let server = logs.served(&bound);
    logs.refused(&outer, &["lies within", text(&outer), "process"]);
    server.stop();
    unbind();
    // The outer one by a bind mount.
    for log in fs::read_dir(logs.0.path()).expect("the logs").flatten() {
        fs::remove_file(log.path()).expect("a log");
    }
    bind(&outer);
    let server = logs.served(&bound);
    logs.refused(&inner, &["lies within", "process"]);
    server.stop();
    unbind();
}

/// A file that a bind mount does not show is not inside.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_beside_a_bind_mounts_directory_on_the_same_filesystem() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let [outer, inner] = tree(image.path());
    let (bound, beside) = (image.beside().join("bound"), image.path().join("logs"));
    for dir in [&bound, &beside] {
        fs::create_dir(dir).expect("mkdir");
    }
    let mounted = Command::new("mount").args(["--bind", text(&outer), text(&bound)]).status();
    assert!(mounted.expect("mount").success());
    let with = |log: PathBuf| OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&bound, log) };
    for (log, at) in [("log", &inner), ("log", &bound)] {
        let refused = Volume::open(with(at.join(log))).expect_err("the log lies inside").to_string();
        assert!(refused.contains("may not lie inside the exported directory"), "{refused}");
    }
    let (volume, _) = open(with(beside.join("log")));
    volume.shutdown().expect("a clean stop");
    drop(volume);
    assert!(Command::new("umount").arg(&bound).status().expect("umount").success());
}

/// A local process moves a directory out of a bind mount that is served: nothing above it may be reached, and it is not the root.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_directory_that_leaves_a_bind_mount_has_no_parent() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let (logs, served, bound) = (Logs::new(), image.path().join("served"), image.beside().join("bound"));
    for dir in [&served.join("moved/in"), &bound] {
        fs::create_dir_all(dir).expect("mkdir");
    }
    let mounted = Command::new("mount").args(["--bind", text(&served), text(&bound)]).status();
    assert!(mounted.expect("mount").success());
    let log = logs.0.path().join("log");
    let (volume, _) = open(OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&bound, log) });
    let moved = volume.lookup(&root(), &volume.root(), b"moved").expect("it is there");
    let within = volume.lookup(&root(), &moved, b"in").expect("it is there");
    assert_eq!(volume.lookup_parent(&root(), &within), Ok(moved.clone()));
    assert_eq!(volume.lookup_parent(&root(), &moved), Ok(volume.root()));
    fs::rename(served.join("moved"), image.path().join("outside")).expect("moved");
    for dir in [&moved, &within] {
        assert_eq!(volume.lookup_parent(&root(), dir), Err(Error::Stale));
    }
    volume.shutdown().expect("a clean stop");
    drop((moved, within, volume));
    assert!(Command::new("umount").arg(&bound).status().expect("umount").success());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_locks_go_with_the_process_and_what_it_left_is_nobody_elses() {
    if !tempdir_suits() {
        return;
    }
    let (base, logs) = (tempfile::tempdir().expect("tempdir"), Logs::new());
    let [outer, inner] = tree(base.path());
    // It was killed, so its log may have changes that the tree lacks: nobody else may be above or below it.
    drop(logs.served(&outer));
    logs.refused(
        &inner,
        &[text(&inner), text(&outer), "was not stopped cleanly", "start that server and stop it"],
    );
    logs.served(&outer).stop();
    logs.served(&inner).stop();
    drop(logs.served(&inner));
    // The outer one starts and does not enter it.
    let rig = {
        let log = logs.0.path().join("outer-log");
        fs::remove_dir_all(outer.join(".landfast")).expect("the state directory");
        rustix::fs::removexattr(&outer, "trusted.landfast.tag").expect("the tag");
        open(OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&outer, log) }).0
    };
    let b = rig.lookup(&root(), &rig.root(), b"b").expect("what is above it is served");
    assert_eq!(rig.lookup(&root(), &b, b"c").unwrap_err(), Error::Mounted);
    let mut tx = rig.tx();
    let removed = rig.remove(&mut tx, &root(), &b, b"c");
    tx.finish().wait_blocking().expect("stable");
    assert!(removed.is_err() && inner.is_dir());
    rig.shutdown().expect("a clean stop");
    drop(rig);
    // Once that is stopped cleanly, it is an ordinary directory.
    logs.served(&inner).stop();
    let (volume, _) = open(OpenOptions::with_log(&outer, logs.0.path().join("outer-log")));
    let b = volume.lookup(&root(), &volume.root(), b"b").expect("b");
    volume.lookup(&root(), &b, b"c").expect("c");
}

/// A copy of a volume that was not stopped cleanly is an ordinary directory: no log is about it.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_copy_of_a_volume_is_none() {
    if !tempdir_suits() {
        return;
    }
    let (base, logs) = (tempfile::tempdir().expect("tempdir"), Logs::new());
    let original = fs::canonicalize(base.path()).expect("a path").join("original");
    fs::create_dir(&original).expect("mkdir");
    drop(logs.served(&original));
    let export = base.path().join("export");
    fs::create_dir(&export).expect("mkdir");
    let copied = Command::new("cp").args(["-a", text(&original), text(&export)]).status();
    assert!(copied.expect("cp").success());
    assert!(
        rustix::fs::getxattr(export.join("original"), "trusted.landfast.tag", &mut [0u8; 64][..]).is_ok()
    );
    let (volume, _) = open(OpenOptions {
        log_size: 16 << 20,
        ..OpenOptions::with_log(&export, logs.0.path().join("export-log"))
    });
    volume.lookup(&root(), &volume.root(), b"original").expect("a backup is served");
}

/// The checks above detect a server that takes no locks.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
#[cfg(debug_assertions)]
fn the_deliberate_bug_is_seen() {
    use landfast_volume::faults::{Bug, with};
    if !tempdir_suits() {
        return;
    }
    let (base, logs) = (tempfile::tempdir().expect("tempdir"), Logs::new());
    let [outer, inner] = tree(base.path());
    let _outer = logs.served(&outer);
    let log = || logs.0.path().join("inner-log");
    let options = || OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&inner, log()) };
    drop(with(Some(Bug::OverlapUnlocked), || Volume::open(options())).expect("both are served"));
    fs::remove_dir_all(inner.join(".landfast")).expect("the state directory");
    let refused = Volume::open(options()).expect_err("refused without the bug");
    assert!(matches!(refused, OpenError::Within { .. }), "{refused}");
}

/// A hard link can lead from one to the other, and each log knows only its own volume.
#[test]
fn volumes_beside_each_other_on_one_filesystem_are_recognised() {
    let rigs = [Durability::Sync, Durability::Sync].map(Rig::new);
    let [a, b] = rigs.each_ref().map(|rig| &rig.volume);
    assert_eq!(Volume::on_one_filesystem(&[a, b]), None, "no log");
    if !tempdir_suits() {
        return;
    }
    let logged = Rig::log();
    let logged = &logged.volume;
    assert_eq!(Volume::on_one_filesystem(&[logged]), None);
    assert_eq!(Volume::on_one_filesystem(&[a, b, logged]), Some((0, 2)));
    assert_eq!(Volume::on_one_filesystem(&[logged, a]), Some((0, 1)));
}
