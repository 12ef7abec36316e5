//! The emulated disk as the kernel sees it: FUSE, loop device, filesystems, power cuts. Needs root.
//!
//! The lab starts its disks from its own binary, which is this test here: so it has a `main`.

use landfast_lab::disk::{DiskOptions, DiskProcess};
use landfast_lab::loopdev::LoopDevice;
use landfast_lab::mounts::{Filesystem, Mount, syncfs};
use landfast_lab::{child, namespace};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

type Test = (&'static str, fn(&Path));

const TESTS: [Test; 5] = [
    ("flushes_are_counted_at_the_device", flushes_are_counted_at_the_device),
    ("each_filesystem_keeps_what_was_synced_over_a_cut", each_filesystem_keeps_what_was_synced_over_a_cut),
    ("signals_switch_the_power", signals_switch_the_power),
    ("a_dropped_disk_leaves_nothing_behind", a_dropped_disk_leaves_nothing_behind),
    (
        "a_private_namespace_holds_no_mount_of_somebody_else",
        a_private_namespace_holds_no_mount_of_somebody_else,
    ),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let Some(ended) = child::if_asked(&args) {
        return ended;
    }
    let filter = args.iter().skip(1).find(|a| !a.starts_with('-'));
    let able = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    println!("\nrunning {} tests", TESTS.len());
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for (name, test) in TESTS {
        if filter.is_some_and(|f| !name.contains(f.as_str())) {
            continue;
        }
        if !able {
            println!("test {name} ... ignored, needs root and FUSE");
            ignored += 1;
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let run = || std::panic::catch_unwind(|| namespace::run_private(|| test(dir.path())).unwrap());
        let ok = run().is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if ok { passed += 1 } else { failed += 1 }
    }
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed; {ignored} ignored",
        if failed == 0 { "ok" } else { "FAILED" }
    );
    ExitCode::from(u8::from(failed > 0))
}

fn disk(dir: &Path, mib: u64, settings: &str) -> DiskProcess {
    DiskProcess::start(DiskOptions {
        mountpoint: dir.join("disk"),
        size: mib << 20,
        settings: settings.into(),
        ..DiskOptions::default()
    })
    .unwrap()
}

fn flushes_are_counted_at_the_device(dir: &Path) {
    let disk = disk(dir, 64, "flush_us=2000");
    let dev = LoopDevice::attach(&disk.image()).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(dev.path()).unwrap();
    file.sync_all().unwrap();
    let before = disk.stats().unwrap();
    let start = std::time::Instant::now();
    for i in 0..10 {
        file.write_all_at(&[i; 4096], u64::from(i) * 4096).unwrap();
        file.sync_data().unwrap();
    }
    let took = start.elapsed();
    let did = disk.stats().unwrap().since(&before);
    assert_eq!((did.flushes, did.writes), (10, 10), "{did:?}");
    assert!(took.as_millis() >= 20, "{took:?}");
}

fn each_filesystem_keeps_what_was_synced_over_a_cut(dir: &Path) {
    for fs in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        let disk = disk(dir, fs.size_min() >> 20, "keep_permille=300 torn=1 seed=5");
        let at = dir.join("mnt");
        {
            let dev = LoopDevice::attach(&disk.image()).unwrap();
            fs.make(dev.path()).unwrap();
            let mount = Mount::new(dev.path(), &at, fs).unwrap();
            fs::write(at.join("synced"), vec![7; 100_000]).unwrap();
            syncfs(&at).unwrap();
            for i in 0..200 {
                fs::write(at.join(format!("lost{i}")), vec![8; 5000]).unwrap();
            }
            disk.cut().unwrap();
            assert!(File::create(at.join("x")).and_then(|f| f.sync_all()).is_err());
            drop(mount);
        }
        disk.power_on().unwrap();
        let dev = LoopDevice::attach(&disk.image()).unwrap();
        let mount = Mount::new(dev.path(), &at, fs).unwrap();
        assert!(fs::read(at.join("synced")).unwrap() == vec![7; 100_000], "{fs}");
        assert!(!at.join("lost199").exists(), "{fs}: a file that was never flushed is there");
        mount.unmount().unwrap();
        fs.check(dev.path()).unwrap();
    }
}

fn signals_switch_the_power(dir: &Path) {
    use rustix::process::{Pid, Signal, kill_process};
    let disk = disk(dir, 8, "");
    let pid = Pid::from_raw(disk.pid().try_into().unwrap()).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(disk.image()).unwrap();
    file.write_all_at(b"safe", 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(b"lost", 0).unwrap();
    kill_process(pid, Signal::USR1).unwrap();
    // Every write fails once the signal is served; until then it succeeds and is lost.
    while file.write_all_at(b"lost", 0).is_ok() {}
    kill_process(pid, Signal::USR2).unwrap();
    let mut got = [0; 4];
    while file.read_exact_at(&mut got, 0).is_err() {}
    assert_eq!(&got, b"safe");
    let mut ctl = fs::OpenOptions::new().write(true).open(disk.mountpoint().join("ctl")).unwrap();
    assert!(ctl.write_all(b"flush_us=banana").is_err());
}

fn a_dropped_disk_leaves_nothing_behind(dir: &Path) {
    let disk = disk(dir, 64, "");
    let (pid, at) = (disk.pid(), disk.mountpoint().to_owned());
    let dev = LoopDevice::attach(&disk.image()).unwrap();
    let name = dev.path().file_name().unwrap().to_owned();
    Filesystem::Ext4.make(dev.path()).unwrap();
    let mount = Mount::new(dev.path(), &dir.join("mnt"), Filesystem::Ext4).unwrap();
    drop(mount);
    drop(dev);
    drop(disk);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains(at.to_str().unwrap()));
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    let left = fs::read_to_string(backing).unwrap_or_default();
    assert!(!left.contains(dir.to_str().unwrap()), "{left}");
}

/// A filesystem ends with the last of its mounts, in whatever namespace that is.
fn a_private_namespace_holds_no_mount_of_somebody_else(dir: &Path) {
    let disk = disk(dir, 8, "");
    let at = disk.mountpoint().to_str().unwrap().to_owned();
    let mounts = || fs::read_to_string("/proc/thread-self/mounts").unwrap();
    assert!(mounts().contains(&at));
    let inside = namespace::run_private(mounts).unwrap();
    assert!(!inside.contains(&at), "{inside}");
    assert!(mounts().contains(&at), "it stays where it is used");
}
