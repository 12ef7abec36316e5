//! Somebody changes the exported directory behind the server's back; then the server is killed or power fails. Afterwards the
//! volume starts, his changes stay, nothing of his is deleted, and everything that he did not touch is exact.
//! `src/recover/sim/admin.rs` does this with tens of thousands of histories.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The server is killed; the kernel keeps the tree.
    Killed,
    /// Power fails after all metadata changes have reached the disk.
    PowerLate,
    /// Power fails before anything since the last checkpoint has reached the disk.
    PowerEarly,
    /// Power fails, and the disk has changes that the log lacks.
    Ahead,
}

fn request<T>(volume: &Volume, op: impl FnOnce(&mut Tx) -> Result<T, Error>) -> T {
    let mut tx = volume.tx();
    let result = op(&mut tx);
    tx.finish().wait_blocking().expect("flushed");
    result.expect("the operation")
}

fn make_file(volume: &Volume, dir: &Node, name: &str, data: &'static [u8]) -> Vec<u8> {
    request(volume, |tx| {
        let how = CreateHow::Guarded(mode(0o644));
        let made = volume.create(tx, &root(), dir, name.as_bytes(), how, OpenMode::BOTH)?;
        volume.write(tx, &made.file, 0, bytes::Bytes::from_static(data), Stable::FileSync)?;
        Ok(made.node.fh().to_vec())
    })
}

fn make_dir(volume: &Volume, dir: &Node, name: &str) -> Node {
    request(volume, |tx| volume.mkdir(tx, &root(), dir, name.as_bytes(), mode(0o755))).node
}

fn find(volume: &Volume, dir: &Node, name: &str) -> Node {
    volume.lookup(&root(), dir, name.as_bytes()).expect("lookup")
}

/// All files below a directory with their contents, without the state directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(top: &Path, dir: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if path != top.join(".landfast") {
                    walk(top, &path, all);
                }
            } else {
                let below = path.strip_prefix(top).expect("below").to_owned();
                all.insert(below, std::fs::read(&path).expect("data"));
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(dir, dir, &mut all);
    all
}

/// The clients' changes before the last checkpoint.
fn old_work(v: &Volume) {
    for name in
        ["removed", "renamed", "replaced", "edited", "linked", "mode", "untouched", "written", "taken-name"]
    {
        make_file(v, &v.root(), name, b"old");
    }
    for name in ["tree", "moved-dir", "parent", "quiet"] {
        let dir = make_dir(v, &v.root(), name);
        make_file(v, &dir, "inside", b"old");
        let deep = make_dir(v, &dir, "deep");
        make_file(v, &deep, "bottom", b"old");
    }
}

/// The clients' changes since then.
fn new_work(v: &Volume) -> Vec<(PathBuf, Vec<u8>)> {
    let top = v.root();
    let mut handles = Vec::new();
    for name in ["removed", "renamed", "replaced", "edited", "linked", "mode", "written"] {
        let node = find(v, &top, name);
        request(v, |tx| v.setattr(tx, &root(), &node, None, mode(0o640)));
        let file = v.open_file(&root(), &node, OpenMode::BOTH).expect("open");
        let data = bytes::Bytes::from_static(b"new");
        request(v, |tx| v.write(tx, &file, 1, data, Stable::FileSync));
    }
    for name in ["tree", "moved-dir", "parent", "quiet"] {
        let dir = find(v, &top, name);
        make_file(v, &dir, "new", b"acknowledged");
        let sub = make_dir(v, &dir, "new-dir");
        make_file(v, &sub, "below", b"acknowledged, too");
        request(v, |tx| v.rename(tx, &root(), &dir, b"inside", &sub, b"inside"));
    }
    for name in ["new-removed", "new-kept"] {
        handles.push((PathBuf::from(name), make_file(v, &top, name, b"acknowledged")));
    }
    request(v, |tx| v.remove(tx, &root(), &top, b"taken-name"));
    // A kill leaves only the last batch in doubt.
    make_file(v, &top, "last", b"acknowledged");
    handles
}

/// The administrator's changes, as far as their objects exist.
fn changes(dir: &Path) {
    let at = |name: &str| dir.join(name);
    let _ = std::fs::remove_file(at("removed"));
    let _ = std::fs::remove_file(at("new-removed"));
    let _ = std::fs::remove_dir_all(at("tree"));
    let _ = std::fs::remove_dir_all(at("parent"));
    let _ = std::fs::rename(at("renamed"), at("renamed-by-him"));
    let _ = std::fs::rename(at("moved-dir"), at("quiet/moved-by-him"));
    std::fs::write(at(".swp"), b"his").expect("a file of his");
    std::fs::rename(at(".swp"), at("replaced")).expect("as editors do");
    std::fs::write(at("taken-name"), b"his").expect("a file of his");
    std::fs::hard_link(at("linked"), at("linked-by-him")).expect("a link");
    std::fs::set_permissions(at("mode"), PermissionsExt::from_mode(0o604)).expect("chmod");
    let edited = std::fs::File::options().append(true).open(at("edited")).expect("open");
    std::io::Write::write_all(&mut &edited, b" and his").expect("append");
    // All his changes are to stay.
    rustix::fs::syncfs(&edited).expect("syncfs");
}

fn scenario(kernel: Kernel, end: End, while_served: bool) {
    let Some(mut image) = Image::new(kernel) else { return };
    let dir = image.path().join("export");
    std::fs::create_dir(&dir).expect("mkdir");
    let options =
        OpenOptions { log_size: 64 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) };
    let (volume, _) = open(options.clone());
    old_work(&volume);
    volume.shutdown().expect("clean stop");
    drop(volume);
    let (volume, _) = open(options.clone());
    if end == End::PowerEarly {
        // The state directory of this opening is to stay.
        image.commit();
    }
    let handles = new_work(&volume);
    if while_served && end != End::PowerEarly {
        changes(&dir);
    }
    let (log, kept) = (image.beside().join("log"), image.beside().join("log.kept"));
    match end {
        End::Killed | End::PowerEarly => {}
        End::PowerLate => image.commit(),
        End::Ahead => {
            std::fs::copy(&log, &kept).expect("a copy of the log");
            make_file(&volume, &volume.root(), "never-acknowledged", b"");
            image.commit();
        }
    }
    if end == End::Killed {
        drop(volume);
    } else {
        image.power_off();
        drop(volume);
        image.power_on();
    }
    if end == End::Ahead {
        std::fs::rename(&kept, &log).expect("the log as it was");
    }
    if !while_served || end == End::PowerEarly {
        changes(&dir);
    }
    let (volume, report) = open(options);
    let told = format!("{kernel:?}, {end:?}, while served: {while_served}: {:#?}", report.local);
    println!("{told}");
    let now = files(&dir);
    let is = |name: &str, wanted: &[u8]| {
        let data = now.get(Path::new(name)).map(Vec::as_slice);
        assert_eq!(data, Some(wanted), "{name}: {told}; there is {:?}", now.keys());
    };
    let is_gone = |name: &str| assert!(!dir.join(name).exists(), "{name} is there: {told}");

    // What he did stays done.
    is_gone("removed");
    is("replaced", b"his");
    if end == End::PowerEarly {
        // The file into which he wrote was the clients' own, and they had removed it.
        is_gone("taken-name");
    } else {
        is("taken-name", b"his");
    }
    is("renamed-by-him", b"onew");
    is_gone("tree/deep");
    is_gone("parent/deep");
    assert_eq!(std::fs::metadata(dir.join("linked")).expect("linked").nlink(), 2, "{told}");
    is("linked", b"onew");
    if end != End::PowerEarly {
        // The disk certainly had it, or nothing was lost at all.
        is_gone("new-removed");
        is_gone("renamed");
        assert_eq!(std::fs::metadata(dir.join("mode")).expect("mode").mode() & 0o7777, 0o604, "{told}");
    }
    let edited = now.get(Path::new("edited")).expect("edited");
    assert!(edited.starts_with(b"onew"), "{edited:?}: {told}");

    // What he did not touch is exact.
    is("untouched", b"old");
    is("written", b"onew");
    assert_eq!(std::fs::metadata(dir.join("written")).expect("written").mode() & 0o7777, 0o640);
    for (name, data) in [
        ("quiet/new", &b"acknowledged"[..]),
        ("quiet/new-dir/below", b"acknowledged, too"),
        ("quiet/new-dir/inside", b"old"),
        ("quiet/deep/bottom", b"old"),
        ("new-kept", b"acknowledged"),
        ("last", b"acknowledged"),
        // He has moved the directory; what clients made in it is at its new place.
        ("quiet/moved-by-him/new", b"acknowledged"),
        ("quiet/moved-by-him/new-dir/below", b"acknowledged, too"),
        ("quiet/moved-by-him/new-dir/inside", b"old"),
    ] {
        is(name, data);
    }
    for (name, handle) in handles {
        let there = dir.join(&name).exists();
        assert_eq!(volume.resolve(&handle).is_ok(), there, "the handle of {}: {told}", name.display());
    }

    // What belonged into directories that he removed is in `lost+found`, unless it was removed with them.
    let beside = files(&dir.join(".landfast/lost+found"));
    if end == End::PowerEarly {
        let all: Vec<_> = beside.values().map(Vec::as_slice).collect();
        assert_eq!(all.iter().filter(|data| **data == b"acknowledged").count(), 2, "{beside:?}: {told}");
        assert_eq!(all.iter().filter(|data| **data == b"acknowledged, too").count(), 2, "{beside:?}: {told}");
        assert!(report.local.iter().any(|line| line.contains("parent/new: ")), "{told}");
        assert!(report.local.iter().any(|line| line.contains("lost+found")), "{told}");
    } else if end != End::Ahead {
        for name in ["new-removed", "removed", "tree", "tree/new-dir/below", "parent/new"] {
            assert!(report.local.iter().any(|line| line.starts_with(&format!("{name}: "))), "{name}: {told}");
        }
    }
    assert!(report.local.iter().all(|line| !line.contains('@')), "no handles: {told}");
    assert!(std::fs::read_dir(dir.join(".landfast/stage")).expect("staging").next().is_none(), "{told}");

    // Service continues.
    make_file(&volume, &volume.root(), "afterwards", b"new");
    volume.shutdown().expect("clean stop");
}

fn all(kernel: Kernel) {
    for end in [End::Killed, End::PowerLate, End::PowerEarly, End::Ahead] {
        for while_served in [true, false] {
            scenario(kernel, end, while_served);
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_administrator_on_ext4() {
    all(Kernel::Ext4);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_administrator_on_xfs() {
    all(Kernel::Xfs);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_administrator_on_btrfs() {
    all(Kernel::Btrfs);
}
