//! `landfast demo`, interrupted in the middle of its rows: nothing is left of it.

#![cfg(feature = "lab")]

mod common;

use common::{landfast, path, stderr};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For so long after the end of the demo the kernel may need to end its processes and to take its loop devices off.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Command lines of processes that name a path within `dir`.
fn processes(dir: &Path) -> Vec<String> {
    let named = |pid: fs::DirEntry| {
        let line = fs::read(pid.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(path(dir)).then_some(line)
    };
    fs::read_dir("/proc").expect("/proc").flatten().filter_map(named).collect()
}

/// Loop devices on files within `dir`.
fn loop_devices(dir: &Path) -> Vec<String> {
    let backing = |device: fs::DirEntry| fs::read_to_string(device.path().join("loop/backing_file")).ok();
    let devices = fs::read_dir("/sys/block").expect("/sys/block").flatten();
    devices.filter_map(backing).filter(|file| file.contains(path(dir))).collect()
}

fn mounts(dir: &Path) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    all.lines().filter(|line| line.contains(path(dir))).map(str::to_owned).collect()
}

/// Looks again and again, until it is so or the time is over.
fn within(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if start.elapsed() > patience {
            return false;
        }
        // There is no event for "a process of this command line runs".
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn start(dir: &Path, archive: &Path) -> Child {
    landfast()
        .args(["demo", "--archive", path(archive), "--flush", "2ms"])
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("landfast starts")
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nothing_is_left_of_a_demo_that_is_interrupted_in_any_of_its_rows() {
    let beside = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let tree = beside.path().join("tree");
    fs::create_dir(&tree).expect("a directory");
    for n in 0..400 {
        fs::write(tree.join(format!("f{n:04}")), [b'x'; 2000]).expect("a file");
    }
    let archive = beside.path().join("a.tar");
    let made = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(beside.path()).arg("tree").status();
    assert!(made.is_ok_and(|status| status.success()), "an archive");
    let missing = landfast_lab::peers::packages::missing();
    // A word of the command line that runs in the row.
    let mut rows = vec![" serve ", " untar "];
    if !missing.contains(&"nfs-ganesha") && !missing.contains(&"xfsprogs") {
        rows.push("ganesha.nfsd");
    }
    if !missing.contains(&"libnfs-utils") {
        rows.push("nfs-cp");
    }
    for word in rows {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let mut demo = start(dir.path(), &archive);
        let runs = within(Duration::from_secs(120), || {
            assert!(demo.try_wait().expect("its status").is_none(), "{word}: the demo has ended");
            // The lab starts each through a process that names all of it in its order.
            processes(dir.path()).iter().any(|line| line.contains(word) && !line.contains(" lab child "))
        });
        assert!(runs, "{word}: does not run");
        kill_process(Pid::from_child(&demo), Signal::INT).expect("it is there");
        let o = demo.wait_with_output().expect("it ends");
        assert_eq!(o.status.code(), Some(130), "{word}: {}", stderr(&o));
        let left = || [processes(dir.path()), loop_devices(dir.path()), mounts(dir.path())].concat();
        assert!(within(GONE_WITHIN, || left().is_empty()), "{word}: {:#?}", left());
        let files: Vec<_> = fs::read_dir(dir.path()).expect("a directory").flatten().collect();
        assert!(files.is_empty(), "{word}: {files:?}");
    }
}
