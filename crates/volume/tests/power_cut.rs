//! The whole volume, with log and recovery, through power cuts. Several threads send random operations through [`Volume`], and
//! the filesystem stops without a flush. After the next opening everything acknowledged must be as it was: names, kinds,
//! modes, owners, times, link counts, sizes, data, ACLs, and the handles and fileids that clients know.

mod common;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_thread_that_acted_for_a_user_goes_on() {
    let rig = Rig::log();
    let root_dir = rig.volume.root();
    let dir = rig.mkdir(&root(), &root_dir, "d").unwrap();
    rig.setattr(&root(), &dir, mode(0o777)).unwrap();
    for name in ["a", "b", "c"] {
        rig.create(&user(1000), &dir, name).unwrap();
    }
}

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// One client: runs operations one after the other and waits for each.
struct Client<'a> {
    volume: &'a Volume,
    rng: Rng,
    cred: Cred,
    done: usize,
}

type Outcome = std::result::Result<(), Error>;

impl Client<'_> {
    fn names(&self, dir: &Node) -> Vec<bytes::Bytes> {
        let page = self.volume.readdir(&root(), dir, 0, 1000, EntryDetail::Names);
        page.map(|p| p.entries.into_iter().map(|e| e.name).collect()).unwrap_or_default()
    }

    fn dir(&mut self) -> Node {
        let mut dir = self.volume.root();
        for _ in 0..self.rng.below(4) {
            let names = self.names(&dir);
            let Some(name) = names.get(self.rng.below(names.len())) else { break };
            match self.volume.lookup(&root(), &dir, name) {
                Ok(node) if node.kind() == Kind::Dir => dir = node,
                _ => {}
            }
        }
        dir
    }

    fn entry(&mut self) -> Option<(Node, bytes::Bytes, Node)> {
        let dir = self.dir();
        let names = self.names(&dir);
        let name = names.get(self.rng.below(names.len()))?.clone();
        let node = self.volume.lookup(&root(), &dir, &name).ok()?;
        Some((dir, name, node))
    }

    fn name(&mut self) -> Vec<u8> {
        vec![b'a' + self.rng.below(6) as u8]
    }

    fn attrs(&mut self) -> SetAttrs {
        let mut attrs = SetAttrs::default();
        if self.rng.below(2) == 0 {
            attrs.mode = Some(self.rng.below(0o10000) as u32 | 0o700);
        }
        if self.rng.below(3) == 0 {
            attrs.uid = Some(self.rng.below(3) as u32);
            attrs.gid = Some(self.rng.below(3) as u32);
        }
        if self.rng.below(3) == 0 {
            let at = Timestamp {
                secs: self.rng.below(1 << 30) as i64,
                nanos: self.rng.below(1_000_000_000) as u32,
            };
            attrs.mtime = Some(TimeSet::At(at));
            attrs.atime = Some(TimeSet::At(at));
        }
        attrs
    }

    fn step(&mut self) {
        let mut tx = self.volume.tx();
        let mut outcome = Ok(());
        // Now and then several operations in one request.
        for _ in 0..1 + self.rng.below(5) / 4 {
            outcome = self.operation(&mut tx);
        }
        tx.finish().wait_blocking().expect("the log is flushed");
        assert_ne!(outcome, Err(Error::Failed));
        self.done += usize::from(outcome.is_ok());
    }

    fn operation(&mut self, tx: &mut Tx) -> Outcome {
        let (v, cred) = (self.volume.clone(), self.cred.clone());
        let (dir, name) = (self.dir(), self.name());
        match self.rng.below(100) {
            0..20 => {
                let attrs = self.attrs();
                let how = match self.rng.below(3) {
                    0 => CreateHow::Guarded(attrs),
                    1 => CreateHow::Unchecked(attrs),
                    _ => {
                        let instance = (self.rng.below(2) == 0).then_some([7; 8]);
                        let verifier = Verifier { create: [self.rng.below(9) as u8; 8], instance };
                        CreateHow::Exclusive { verifier, attrs: mode(0o4755) }
                    }
                };
                let made = v.create(tx, &cred, &dir, &name, how, OpenMode::BOTH)?;
                self.write(tx, &made.file)
            }
            20..32 => {
                let attrs = self.attrs();
                v.mkdir(tx, &cred, &dir, &name, attrs).map(drop)
            }
            32..35 => v.symlink(tx, &cred, &dir, &name, b"../somewhere", SetAttrs::default()).map(drop),
            35..37 => {
                v.mknod(tx, &root(), &dir, &name, Special::CharDev(5, 1), SetAttrs::default()).map(drop)
            }
            37..39 => v.mknod(tx, &cred, &dir, &name, Special::Fifo, mode(0o640)).map(drop),
            39..46 => match self.entry() {
                Some((_, _, node)) => v.link(tx, &cred, &node, &dir, &name).map(drop),
                None => Ok(()),
            },
            46..60 => match self.entry() {
                Some((dir, name, _)) => v.remove(tx, &cred, &dir, &name).map(drop),
                None => Ok(()),
            },
            60..75 => match self.entry() {
                Some((from, from_name, _)) => v.rename(tx, &cred, &from, &from_name, &dir, &name).map(drop),
                None => Ok(()),
            },
            75..85 => match self.entry() {
                Some((_, _, node)) => {
                    let mut attrs = self.attrs();
                    if self.rng.below(2) == 0 {
                        attrs.size = Some(self.rng.below(9000) as u64);
                    }
                    v.setattr(tx, &cred, &node, None, attrs).map(drop)
                }
                None => Ok(()),
            },
            _ => match self.entry() {
                Some((_, _, node)) if node.kind() == Kind::File => {
                    let file = v.open_file(&cred, &node, OpenMode::BOTH)?;
                    self.write(tx, &file)
                }
                _ => Ok(()),
            },
        }
    }

    fn write(&mut self, tx: &mut Tx, file: &OpenFile) -> Outcome {
        let big = self.rng.below(60) == 0;
        let len = if big { (1 << 20) + 5 } else { 1 + self.rng.below(6000) };
        let data = bytes::Bytes::from(vec![self.rng.below(256) as u8; len]);
        let offset = self.rng.below(20_000) as u64;
        if self.rng.below(3) == 0 {
            self.volume.write(tx, file, offset, data.clone(), Stable::Unstable)?;
            self.volume.write(tx, file, offset + 7, data.slice(..len / 2), Stable::Unstable)?;
            return self.volume.commit(tx, file.node(), 0, 0);
        }
        self.volume.write(tx, file, offset, data, Stable::FileSync).map(drop)
    }
}

/// Everything that a client can see of an object, except ctime and atime.
#[derive(Debug, PartialEq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    nlink: u64,
    rdev: u64,
    mtime: (i64, i64),
    data: Vec<u8>,
    acl: Option<Vec<u8>>,
    fh: bytes::Bytes,
    fileid: u64,
    created: Timestamp,
}

fn look(volume: &Volume, dir: &Node, path: &Path, shown: &Path, all: &mut BTreeMap<PathBuf, Seen>) {
    for entry in std::fs::read_dir(path).expect("a directory") {
        let entry = entry.expect("an entry");
        if entry.file_name() == ".landfast" {
            continue;
        }
        let (path, shown) = (entry.path(), shown.join(entry.file_name()));
        let node = volume.lookup(&root(), dir, entry.file_name().as_bytes()).expect("lookup");
        let meta = std::fs::symlink_metadata(&path).expect("metadata");
        let data = match meta.mode() & 0o170000 {
            0o100000 => std::fs::read(&path).expect("data"),
            0o120000 => std::fs::read_link(&path).expect("target").as_os_str().as_bytes().to_vec(),
            _ => Vec::new(),
        };
        let mut acl = vec![0u8; 1000];
        let acl = rustix::fs::lgetxattr(&path, "system.posix_acl_access", &mut acl[..])
            .ok()
            .map(|n| acl[..n].to_vec());
        let attrs = volume.getattr(&node).expect("getattr");
        let seen = Seen {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            nlink: if meta.is_dir() { 0 } else { meta.nlink() },
            rdev: meta.rdev(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            data,
            acl,
            fh: node.fh(),
            fileid: attrs.fileid,
            created: attrs.btime,
        };
        all.insert(shown.clone(), seen);
        if meta.is_dir() {
            look(volume, &node, &path, &shown, all);
        }
    }
}

/// A default ACL, which new objects inherit.
const DEFAULT_ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 232, 3, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16,
    0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

fn lives(kernel: Kernel) {
    let Some(mut image) = Image::new(kernel) else { return };
    let seed = std::env::var("LANDFAST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1u64);
    let lives = std::env::var("LANDFAST_LIVES").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    let dir = image.path().join("export");
    std::fs::create_dir(&dir).expect("mkdir");
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("chmod");
    rustix::fs::setxattr(&dir, "system.posix_acl_default", &DEFAULT_ACL, rustix::fs::XattrFlags::empty())
        .expect("default ACL");
    let mut rng = Rng(seed);
    let (mut before, mut remade, mut records): (Option<BTreeMap<PathBuf, Seen>>, u64, u64) = (None, 0, 0);
    for life in 0..lives {
        let at = format!("{kernel:?}, LANDFAST_SEED={seed}, life {life}");
        let options =
            OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) };
        let (volume, report) = open(options);
        (remade, records) = (remade + report.remade, records + report.records);
        if let Some(before) = &before {
            let mut after = BTreeMap::new();
            look(&volume, &volume.root(), &dir, Path::new("/"), &mut after);
            for (path, seen) in before {
                let now = after.get(path).unwrap_or_else(|| panic!("{at}: {} is gone", path.display()));
                assert!(now == seen, "{at}: {} is {}, not {}", path.display(), brief(now), brief(seen));
                assert!(volume.resolve(&seen.fh).is_ok(), "{at}: the handle of {} is stale", path.display());
            }
            let mut fileids = BTreeMap::new();
            for seen in after.values() {
                let other = fileids.insert(seen.fileid, seen.fh.clone()).filter(|fh| *fh != seen.fh);
                assert_eq!(other, None, "{at}: two files share the fileid {}", seen.fileid);
            }
            let extra = after.keys().find(|path| !before.contains_key(*path));
            assert_eq!(extra, None, "{at}: came back");
        }
        std::thread::scope(|scope| {
            for n in 0..3 {
                let (volume, seed) = (&volume, rng.below(1 << 30) as u64);
                let cred = if n == 0 { user(1000) } else { root() };
                scope.spawn(move || {
                    let mut client = Client { volume, rng: Rng(seed), cred, done: 0 };
                    for _ in 0..60 {
                        client.step();
                    }
                    assert!(n == 0 || client.done > 5);
                });
            }
            for _ in 0..rng.below(3) {
                std::thread::sleep(std::time::Duration::from_millis(rng.below(60) as u64));
                image.commit();
            }
        });
        let mut all = BTreeMap::new();
        look(&volume, &volume.root(), &dir, Path::new("/"), &mut all);
        before = Some(all);
        image.power_off();
        drop(volume);
        image.power_on();
    }
    println!("{kernel:?}: {lives} lives (seed {seed}), {records} records, {remade} objects made again");
    assert!(remade > 0 && records > 0);
}

fn brief(seen: &Seen) -> String {
    let Seen { data, .. } = seen;
    let sum = data.iter().fold(0u32, |s, b| s.wrapping_mul(31).wrapping_add(u32::from(*b)));
    format!(
        "{:?} {} bytes (sum {sum:x})",
        Seen { data: Vec::new(), acl: seen.acl.clone(), fh: seen.fh.clone(), ..*seen },
        data.len()
    )
}

/// A volume on a fresh image after a power cut. `before` is flushed; `after` is only in the log.
fn cut_off(
    kernel: Kernel,
    before: impl FnOnce(&Volume),
    after: impl FnOnce(&Volume, &Image),
) -> Option<(Image, OpenOptions)> {
    let mut image = Image::new(kernel)?;
    let dir = image.path().join("export");
    std::fs::create_dir(&dir).expect("mkdir");
    let options =
        OpenOptions { log_size: 64 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) };
    let (volume, _) = open(options.clone());
    before(&volume);
    volume.shutdown().expect("clean stop");
    drop(volume);
    let (volume, _) = open(options.clone());
    after(&volume, &image);
    image.power_off();
    drop(volume);
    image.power_on();
    Some((image, options))
}

fn request<T>(volume: &Volume, op: impl FnOnce(&mut Tx) -> Result<T, Error>) -> T {
    let mut tx = volume.tx();
    let result = op(&mut tx);
    tx.finish().wait_blocking().expect("flushed");
    result.expect("the operation")
}

fn make_file(volume: &Volume, dir: &Node, name: &str, data: &'static [u8]) {
    request(volume, |tx| {
        let how = CreateHow::Guarded(mode(0o644));
        let made = volume.create(tx, &root(), dir, name.as_bytes(), how, OpenMode::BOTH)?;
        volume.write(tx, &made.file, 0, bytes::Bytes::from_static(data), Stable::FileSync)
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_the_log_does_not_know_is_kept_aside() {
    for kernel in [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs] {
        let done = cut_off(
            kernel,
            |v| make_file(v, &v.root(), "gone", b"old"),
            |v, _| {
                make_file(v, &v.root(), "taken", b"ours");
                request(v, |tx| v.mkdir(tx, &root(), &v.root(), b"dir", mode(0o755)));
                request(v, |tx| v.remove(tx, &root(), &v.root(), b"gone"));
            },
        );
        let Some((image, options)) = done else { return };
        let dir = image.path().join("export");
        // Before recovery somebody put something at a name that the log wants, a directory with contents at another, and
        // something at a name that must be free.
        std::fs::write(dir.join("taken"), b"foreign").unwrap();
        std::fs::create_dir(dir.join("dir")).unwrap();
        std::fs::write(dir.join("dir/inside"), b"also foreign").unwrap();
        let _ = std::fs::remove_file(dir.join("gone"));
        std::fs::write(dir.join("gone"), b"foreign, too").unwrap();
        let (volume, report) = open(options);
        assert_eq!((report.local.len(), report.local_more), (3, 0), "{:?}", report.local);
        assert_eq!(std::fs::read(dir.join("taken")).unwrap(), b"ours");
        assert_eq!(std::fs::read_dir(dir.join("dir")).unwrap().count(), 0);
        // The log has nothing there, so it stays.
        assert_eq!(std::fs::read(dir.join("gone")).unwrap(), b"foreign, too");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir.join(".landfast/lost+found")).unwrap() {
            let path = entry.unwrap().path();
            let file = if path.is_dir() { path.join("inside") } else { path };
            found.push(String::from_utf8(std::fs::read(file).unwrap()).unwrap());
        }
        found.sort();
        assert_eq!(found, ["also foreign", "foreign"], "{kernel:?}");
        drop(volume);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_object_that_somebody_removed_stops_a_strict_recovery_and_no_other() {
    let done = cut_off(
        Kernel::Ext4,
        |v| {
            make_file(v, &v.root(), "old", b"old");
            make_file(v, &v.root(), "old too", b"old");
        },
        |v, _| {
            let old = v.lookup(&root(), &v.root(), b"old").expect("lookup");
            request(v, |tx| v.setattr(tx, &root(), &old, None, mode(0o600)));
            request(v, |tx| v.rename(tx, &root(), &v.root(), b"old too", &v.root(), b"new name"));
            make_file(v, &v.root(), "beside", b"acknowledged");
        },
    );
    let Some((mut image, options)) = done else { return };
    let dir = image.path().join("export");
    std::fs::remove_file(dir.join("old")).unwrap();
    for name in ["old too", "new name"] {
        let _ = std::fs::remove_file(dir.join(name));
    }
    for _ in 0..2 {
        let strict = OpenOptions { strict_recovery: true, ..options.clone() };
        match Volume::open(strict) {
            Err(OpenError::Recovery(why)) => {
                assert!(why.starts_with("an object older than the log is missing ("), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    image.save_as("stopped");
    let log = image.beside().join("log");
    std::fs::copy(&log, log.with_extension("stopped")).unwrap();
    let (volume, report) = open(options.clone());
    assert_eq!(report.local.len(), 2, "{:?}", report.local);
    assert!(report.local.iter().any(|line| line.starts_with("new name: ")), "{:?}", report.local);
    assert_eq!(std::fs::read(dir.join("beside")).unwrap(), b"acknowledged");
    assert!(!dir.join("old").exists() && !dir.join("old too").exists() && !dir.join("new name").exists());
    volume.shutdown().expect("clean stop");
    drop(volume);
    // The way out when recovery stops (docs/internals/recovery.md): giving up what the log holds.
    image.load("stopped");
    std::fs::copy(log.with_extension("stopped"), &log).unwrap();
    std::fs::rename(dir.join(".landfast"), image.path().join("aside")).unwrap();
    let new_log = OpenOptions { log: Some(image.beside().join("new log").into()), ..options };
    rustix::fs::removexattr(&dir, "trusted.landfast.tag").unwrap();
    let (volume, report) = open(new_log);
    assert_eq!(report.records, 0);
    drop(volume);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_is_not_replayed_over_a_directory_that_was_put_back() {
    let stop = |volume: Volume| volume.shutdown().expect("clean stop");
    let done = cut_off(Kernel::Ext4, |v| make_file(v, &v.root(), "one", b"1"), |_, _| ());
    let Some((mut image, options)) = done else { return };
    stop(open(options.clone()).0);
    image.keep();
    let (volume, _) = open(options.clone());
    make_file(&volume, &volume.root(), "two", b"2");
    stop(volume);
    // Both are clean, but from different times.
    image.put_back();
    match Volume::open(options) {
        Err(OpenError::WrongVolume { why, .. }) => {
            assert!(why.contains("an older copy or snapshot was put back"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_full_disk_is_recovered_from_the_reserve() {
    for kernel in [Kernel::Ext4, Kernel::Xfs] {
        let after = |v: &Volume, _: &Image| {
            (0..200).for_each(|n| make_file(v, &v.root(), &format!("f{n}"), &[7; 9000]))
        };
        let Some((image, options)) = cut_off(kernel, |_| (), after) else { return };
        let dir = image.path().join("export");
        assert!(!dir.join("f0").exists(), "the crash lost nothing");
        // Somebody uses all the space.
        let mut hog = std::fs::File::create(image.path().join("hog")).unwrap();
        for piece in [1 << 20, 4096, 1] {
            while std::io::Write::write_all(&mut hog, &vec![1u8; piece]).is_ok() {}
        }
        hog.sync_all().unwrap();
        let (volume, report) = open(options);
        assert_eq!(report.remade, 200);
        for n in 0..200 {
            assert_eq!(std::fs::read(dir.join(format!("f{n}"))).unwrap(), [7; 9000]);
        }
        drop(volume);
        drop(hog);
    }
}

/// The disk has operations that the log never got: names stay as they are on disk, and data of acknowledged writes comes
/// from the log.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_disk_that_is_ahead_of_the_log_keeps_its_names() {
    for kernel in [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs] {
        let root_cred = root();
        let done = cut_off(
            kernel,
            |v| {
                make_file(v, &v.root(), "victim", b"old");
                make_file(v, &v.root(), "removed", b"old");
                request(v, |tx| v.mkdir(tx, &root_cred, &v.root(), b"dir", mode(0o755)));
            },
            |v, image| {
                let top = v.root();
                make_file(v, &top, "new", b"acknowledged");
                let removed = v.lookup(&root_cred, &top, b"removed").expect("lookup");
                request(v, |tx| v.setattr(tx, &root_cred, &removed, None, mode(0o640)));
                let (log, kept) = (image.beside().join("log"), image.beside().join("log.kept"));
                std::fs::copy(&log, &kept).expect("copy of the log");
                // What the log "never got".
                request(v, |tx| v.rename(tx, &root_cred, &top, b"new", &top, b"victim"));
                request(v, |tx| v.remove(tx, &root_cred, &top, b"removed"));
                let dir = v.lookup(&root_cred, &top, b"dir").expect("lookup");
                request(v, |tx| v.setattr(tx, &root_cred, &dir, None, mode(0o711)));
                request(v, |tx| v.rename(tx, &root_cred, &top, b"dir", &top, b"moved"));
                image.commit();
            },
        );
        let Some((image, options)) = done else { return };
        std::fs::rename(image.beside().join("log.kept"), image.beside().join("log")).unwrap();
        let dir = image.path().join("export");
        let (volume, report) = open(options);
        assert!(report.records > 0);
        let mut names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".landfast", "moved", "victim"], "{kernel:?}");
        assert_eq!(std::fs::read(dir.join("victim")).unwrap(), b"acknowledged");
        assert_eq!(std::fs::metadata(dir.join("moved")).unwrap().mode() & 0o7777, 0o711);
        assert_eq!(std::fs::read_dir(dir.join(".landfast/lost+found")).unwrap().count(), 0);
        drop(volume);
    }
}

/// Prints how fast recovery is; `LANDFAST_FILES` says for how many files.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn very_many_lost_files_are_made_again() {
    let files = std::env::var("LANDFAST_FILES").ok().and_then(|s| s.parse().ok()).unwrap_or(1000u64);
    for kernel in [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs] {
        let after = |v: &Volume, _: &Image| {
            let root_dir = v.root();
            let mut tx = v.tx();
            for n in 0..files {
                let (how, data) = (CreateHow::Guarded(mode(0o644)), bytes::Bytes::from_static(&[9; 4096]));
                let name = format!("f{n}");
                let made =
                    v.create(&mut tx, &root(), &root_dir, name.as_bytes(), how, OpenMode::BOTH).unwrap();
                v.write(&mut tx, &made.file, 0, data, Stable::FileSync).unwrap();
                if n % 64 == 63 {
                    std::mem::replace(&mut tx, v.tx()).finish().wait_blocking().unwrap();
                }
            }
            tx.finish().wait_blocking().unwrap();
        };
        let Some((image, options)) = cut_off(kernel, |_| (), after) else { return };
        let (volume, report) = open(options);
        println!(
            "{kernel:?}: {} records, {} of {files} files made again in {:.2} s",
            report.records, report.remade, report.seconds
        );
        assert_eq!(std::fs::read_dir(image.path().join("export")).unwrap().count() as u64, files + 1);
        drop(volume);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn ext4_keeps_what_was_acknowledged() {
    lives(Kernel::Ext4);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn xfs_keeps_what_was_acknowledged() {
    lives(Kernel::Xfs);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn btrfs_keeps_what_was_acknowledged() {
    lives(Kernel::Btrfs);
}
