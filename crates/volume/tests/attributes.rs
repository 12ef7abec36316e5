//! Attributes that somebody set on a directory or a file before it was served, and mount options. Each operation there is either
//! refused at once, or its result survives a power cut, with what the new object inherited.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

use Kernel::{Btrfs, Ext4, Xfs};

/// One row: a name, the filesystems that support it, and the command that sets it (`$d`: the directory, `$f`: a file in it).
type Row = (&'static str, &'static [Kernel], &'static str);

const ALL: &[Kernel] = &[Ext4, Xfs, Btrfs];

const ATTRIBUTES: &[Row] = &[
    ("none", ALL, "true"),
    ("chattr +a on the directory", ALL, "chattr +a $d"),
    ("chattr +i on the directory", ALL, "chattr +i $d"),
    ("chattr +a on a file", ALL, "chattr +a $f"),
    ("chattr +i on a file", ALL, "chattr +i $f"),
    ("chattr +A", ALL, "chattr +A $d $f"),
    ("chattr +c", &[Ext4, Btrfs], "chattr +c $d $f"),
    ("chattr +m", &[Btrfs], "chattr +m $d $f"),
    ("chattr +C", &[Btrfs], "chattr +C $d"),
    ("chattr +d", ALL, "chattr +d $d $f"),
    ("chattr +D", ALL, "chattr +D $d"),
    ("chattr +j", &[Ext4], "chattr +j $d $f"),
    ("chattr +s", &[Ext4], "chattr +s $d $f"),
    ("chattr +S", ALL, "chattr +S $d $f"),
    ("chattr +t", &[Ext4], "chattr +t $d $f"),
    ("chattr +T", &[Ext4], "chattr +T $d"),
    ("chattr +u", &[Ext4], "chattr +u $d $f"),
    ("chattr +x", &[Ext4, Xfs], "chattr +x $d"),
    ("a project that is inherited", &[Ext4, Xfs], "chattr +P -p 42 $d $f"),
    ("a project that is not inherited", &[Ext4, Xfs], "chattr -p 42 $d"),
    ("a project that is inherited, and append only", &[Ext4, Xfs], "chattr +P -p 42 $d && chattr +a $d"),
    ("a project of a file", &[Ext4, Xfs], "chattr -p 42 $f"),
    ("extsize", &[Xfs], "xfs_io -c 'extsize 64k' $d"),
    ("cowextsize", &[Xfs], "xfs_io -c 'cowextsize 64k' $d"),
    ("xfs_io chattr +n (no defragmentation)", &[Xfs], "xfs_io -c 'chattr +f' $d"),
    ("xfs_io chattr +S (filestreams)", &[Xfs], "xfs_io -c 'chattr +S' $d"),
    ("no symbolic links", &[Xfs], "xfs_io -c 'chattr +s' $d"),
    ("a realtime device", &[Xfs], "xfs_io -c 'chattr +t' $d"),
    ("compression as a property", &[Btrfs], "btrfs property set $d compression zstd"),
    ("set-group-id", ALL, "chgrp 1234 $d && chmod 2775 $d"),
    ("sticky", ALL, "chmod 1777 $d"),
];

/// Mount options, with the mkfs options that they need.
const MOUNTS: &[(&str, Kernel, &[&str])] = &[
    ("grpid", Ext4, &[]),
    ("bsdgroups,nosuid,nodev,noexec", Ext4, &[]),
    ("noacl,nouser_xattr", Ext4, &[]),
    ("sync", Ext4, &[]),
    ("dirsync", Ext4, &[]),
    ("lazytime", Ext4, &[]),
    ("strictatime", Ext4, &[]),
    ("data=journal", Ext4, &[]),
    ("data=writeback", Ext4, &[]),
    ("nodelalloc", Ext4, &[]),
    ("journal_async_commit", Ext4, &[]),
    ("prjquota", Ext4, &["-O", "quota,project", "-E", "quotatype=prjquota"]),
    ("grpid", Xfs, &[]),
    ("sync,nosuid,nodev,noexec", Xfs, &[]),
    ("dirsync", Xfs, &[]),
    ("wsync", Xfs, &[]),
    ("lazytime", Xfs, &[]),
    ("inode32,swalloc,allocsize=64k", Xfs, &[]),
    ("filestreams", Xfs, &[]),
    ("prjquota", Xfs, &[]),
    ("usrquota,grpquota", Xfs, &[]),
    ("noacl", Btrfs, &[]),
    ("sync,nosuid,nodev,noexec", Btrfs, &[]),
    ("lazytime", Btrfs, &[]),
    ("compress-force=zstd", Btrfs, &[]),
    ("nodatacow", Btrfs, &[]),
    ("flushoncommit,noatime", Btrfs, &[]),
    ("autodefrag,max_inline=0", Btrfs, &[]),
];

/// An object as seen on the server itself.
#[derive(Debug, PartialEq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    nlink: u64,
    mtime: (i64, i64),
    data: Vec<u8>,
    /// As shown by `lsattr -p`: what it inherited.
    attributes: String,
}

/// Attributes that show how the filesystem has stored something; they are not inherited.
const STORED: [char; 5] = ['e', 'E', 'I', 'N', 'V'];

fn look(dir: &Path, top: &Path, all: &mut BTreeMap<PathBuf, Seen>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path == top.join(".landfast") {
            continue;
        }
        let meta = std::fs::symlink_metadata(&path).expect("metadata");
        let data = match meta.mode() & 0o170000 {
            0o100000 => std::fs::read(&path).expect("data"),
            0o120000 => std::fs::read_link(&path).expect("target").into_os_string().into_encoded_bytes(),
            _ => Vec::new(),
        };
        let attributes = match meta.is_file() || meta.is_dir() {
            true => {
                let out = Command::new("lsattr").args(["-pd"]).arg(&path).output().expect("lsattr");
                let line = String::from_utf8_lossy(&out.stdout).into_owned();
                let words: Vec<String> = line.split_whitespace().take(2).map(str::to_owned).collect();
                words.join(" ").replace(STORED, "-")
            }
            false => String::new(),
        };
        let seen = Seen {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            nlink: if meta.is_dir() { 0 } else { meta.nlink() },
            mtime: (meta.mtime(), meta.mtime_nsec()),
            data,
            attributes,
        };
        all.insert(path.strip_prefix(top).expect("below").to_owned(), seen);
        if meta.is_dir() {
            look(&path, top, all);
        }
    }
}

struct Work<'a> {
    volume: &'a Volume,
    done: Vec<&'static str>,
    refused: Vec<(&'static str, Error)>,
}

impl Work<'_> {
    /// One request; returns its result, unless it was refused.
    fn ask<T>(
        &mut self,
        what: &'static str,
        op: impl FnOnce(&Volume, &mut Tx) -> Result<T, Error>,
    ) -> Option<T> {
        let mut tx = self.volume.tx();
        let result = op(self.volume, &mut tx);
        tx.finish().wait_blocking().expect("the log is flushed");
        match result {
            Ok(result) => {
                self.done.push(what);
                Some(result)
            }
            Err(e) => {
                self.refused.push((what, e));
                None
            }
        }
    }

    fn file(&mut self, what: &'static str, dir: &Node, name: &str) -> Option<Node> {
        self.ask(what, |v, tx| {
            let how = CreateHow::Guarded(mode(0o640));
            let made = v.create(tx, &root(), dir, name.as_bytes(), how, OpenMode::BOTH)?;
            v.write(tx, &made.file, 0, Bytes::from_static(b"acknowledged"), Stable::FileSync)?;
            Ok(made.node)
        })
    }

    /// Operations of every kind.
    fn all(&mut self) {
        let (v, cred) = (self.volume, root());
        let top = v.root();
        let find = |name: &str| {
            let dir = v.lookup(&root(), &top, b"d").expect("the directory");
            v.lookup(&root(), &dir, name.as_bytes()).expect("what is in it")
        };
        let dir = v.lookup(&cred, &top, b"d").expect("the directory");
        self.file("create", &dir, "new");
        self.ask("symlink", |v, tx| v.symlink(tx, &root(), &dir, b"symlink", b"../x", SetAttrs::default()));
        self.ask("mknod", |v, tx| v.mknod(tx, &root(), &dir, b"fifo", Special::Fifo, mode(0o600)));
        self.ask("device", |v, tx| v.mknod(tx, &root(), &dir, b"dev", Special::CharDev(1, 3), mode(0o600)));
        if let Some(made) = self.ask("mkdir", |v, tx| v.mkdir(tx, &root(), &dir, b"sub", mode(0o750))) {
            let sub = made.node;
            self.file("create below", &sub, "below");
            self.ask("mkdir below", |v, tx| v.mkdir(tx, &root(), &sub, b"deep", mode(0o755)));
        }
        let (f, g) = (find("f"), find("g"));
        self.ask("link", |v, tx| v.link(tx, &root(), &f, &dir, b"link"));
        self.ask("link from without", |v, tx| {
            let other = v.lookup(&root(), &top, b"other")?;
            v.link(tx, &root(), &other, &dir, b"link-of-other")
        });
        self.ask("link to without", |v, tx| v.link(tx, &root(), &f, &top, b"link-without"));
        self.ask("rename", |v, tx| v.rename(tx, &root(), &dir, b"g", &dir, b"renamed"));
        self.ask("rename in", |v, tx| v.rename(tx, &root(), &top, b"h", &dir, b"in"));
        self.ask("rename out", |v, tx| v.rename(tx, &root(), &dir, b"out", &top, b"out"));
        self.ask("rename a new one in", |v, tx| {
            let how = CreateHow::Guarded(mode(0o600));
            v.create(tx, &root(), &top, b"made-without", how, OpenMode::BOTH)?;
            v.rename(tx, &root(), &top, b"made-without", &dir, b"made-without")
        });
        if self.file("create another", &dir, "made-within").is_some() {
            self.ask("rename a new one out", |v, tx| {
                v.rename(tx, &root(), &dir, b"made-within", &top, b"made-within")
            });
            self.ask("link it back", |v, tx| {
                let made = v.lookup(&root(), &top, b"made-within")?;
                v.link(tx, &root(), &made, &dir, b"made-within")
            });
        }
        self.ask("remove", |v, tx| v.remove(tx, &root(), &dir, b"victim"));
        self.ask("rename over", |v, tx| v.rename(tx, &root(), &dir, b"new", &dir, b"over"));
        self.ask("chmod", |v, tx| v.setattr(tx, &root(), &f, None, mode(0o604)));
        self.ask("chown", |v, tx| {
            v.setattr(tx, &root(), &g, None, SetAttrs { uid: Some(7), gid: Some(8), ..SetAttrs::default() })
        });
        self.ask("chmod of the directory", |v, tx| v.setattr(tx, &root(), &dir, None, mode(0o711)));
        self.ask("write", |v, tx| {
            let file = v.open_file(&root(), &f, OpenMode::BOTH)?;
            v.write(tx, &file, 2, Bytes::from_static(b"more"), Stable::FileSync)
        });
        self.ask("append", |v, tx| {
            let file = v.open_file(&root(), &f, OpenMode::BOTH)?;
            v.write(tx, &file, 4000, Bytes::from_static(b"end"), Stable::FileSync)
        });
        self.ask("truncate", |v, tx| {
            v.setattr(tx, &root(), &f, None, SetAttrs { size: Some(3), ..SetAttrs::default() })
        });
    }
}

/// True if the row could be tried.
fn row(kernel: Kernel, row: &Row, mkfs: &[&str], options: &str) -> bool {
    let Some(image) = Image::with(kernel, mkfs, options) else { return false };
    std::fs::create_dir_all(image.path().join("export/d")).expect("mkdir");
    row_on(image, row, options, |_, _| {})
}

/// The same in an existing directory; `unlock` runs between the power cut and the start.
fn row_on(
    mut image: Image,
    (name, _, command): &Row,
    options: &str,
    unlock: impl FnOnce(&Image, &OpenOptions),
) -> bool {
    let kernel = image.kernel;
    let dir = image.path().join("export");
    let d = dir.join("d");
    for name in ["f", "g", "out", "victim", "over"] {
        std::fs::write(d.join(name), "old").expect("a file");
    }
    for name in ["h", "other"] {
        std::fs::write(dir.join(name), "old").expect("a file");
    }
    let set =
        Command::new("sh").args(["-c", command]).env("d", &d).env("f", d.join("f")).output().expect("sh");
    let told = format!("{kernel:?} ({options}), {name}");
    if !set.status.success() {
        println!("skipped: {told}: {}", String::from_utf8_lossy(&set.stderr).trim());
        return false;
    }
    let options =
        OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) };
    let (volume, _) = match Volume::open(options.clone()) {
        Ok(opened) => opened,
        Err(e) => {
            println!("{told}: not served: {e}");
            return true;
        }
    };
    volume.start(std::sync::Arc::new(NoNotes)).expect("start");
    let mut work = Work { volume: &volume, done: Vec::new(), refused: Vec::new() };
    work.all();
    let (done, refused) = (work.done, work.refused);
    let mut before = BTreeMap::new();
    look(&dir, &dir, &mut before);
    image.power_off();
    drop(volume);
    image.power_on();
    unlock(&image, &options);
    let (volume, report) = match Volume::open(options) {
        Ok(opened) => opened,
        Err(e) => panic!("{told}: {} operations were acknowledged ({done:?}), and then: {e}", done.len()),
    };
    let mut after = BTreeMap::new();
    look(&dir, &dir, &mut after);
    for (path, seen) in &before {
        let now = after.get(path).unwrap_or_else(|| panic!("{told}: {} is gone", path.display()));
        assert_eq!(now, seen, "{told}: {}", path.display());
    }
    let extra: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    assert!(extra.is_empty(), "{told}: {extra:?}");
    assert_eq!(report.local, Vec::<String>::new(), "{told}");
    assert!(
        std::fs::read_dir(dir.join(".landfast/lost+found")).expect("lost+found").next().is_none(),
        "{told}"
    );
    println!("{told}: {} done, {} made again, refused: {refused:?}", done.len(), report.remade);
    volume.start(std::sync::Arc::new(NoNotes)).expect("start");
    volume.shutdown().expect("clean stop");
    // Flags that forbid removal would keep the image's directory.
    let _ = Command::new("chattr").args(["-R", "-a", "-i"]).arg(&dir).output();
    true
}

fn rows(kernel: Kernel) {
    let only = std::env::var("LANDFAST_ROW").unwrap_or_default();
    let (mut tried, mut failed) = (0, Vec::new());
    let mut one = |each: &Row, mkfs: &[&str], options: &str| {
        // All rows are tried, so that one run shows each that fails.
        match std::panic::catch_unwind(|| row(kernel, each, mkfs, options)) {
            Ok(done) => tried += u32::from(done),
            Err(_) => failed.push(format!("{} ({options})", each.0)),
        }
    };
    for each in ATTRIBUTES.iter().filter(|(name, on, _)| on.contains(&kernel) && name.contains(&only)) {
        one(each, &[], "noatime");
    }
    for (options, on, mkfs) in MOUNTS {
        if *on == kernel && options.contains(&only) {
            one(&("mounted so", &[], "true"), mkfs, options);
        }
    }
    println!("{kernel:?}: {tried} rows");
    assert!(failed.is_empty(), "{kernel:?}: {failed:#?}");
    assert!(tried > 0 || !rustix::process::geteuid().is_root());
}

/// Runs the command with `$m` for the mount and `$d` for the directory. Returns its output, if it succeeded.
fn said(image: &Image, command: &str) -> Option<String> {
    let d = image.path().join("export/d");
    let out = Command::new("sh").args(["-c", command]).env("d", d).env("m", image.path()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// With its key it works like any other directory; without the key the start says what to do.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_encrypted_directory() {
    let Some(image) = Image::with(Ext4, &["-O", "encrypt"], "noatime") else { return };
    std::fs::create_dir_all(image.path().join("export/d")).expect("mkdir");
    let add_key = "printf '%064d' 7 | xfs_io -c add_enckey $m";
    // "Added encryption key with identifier 69b2f6edeee720cce0577937eb8a6751"
    let key = said(&image, add_key).and_then(|line| Some(line.split_whitespace().last()?.to_owned()));
    let set = |key: String| {
        said(&image, &format!("xfs_io -c 'set_encpolicy -v 2 {key}' $d && xfs_io -c get_encpolicy $d"))
    };
    if !key.and_then(set).is_some_and(|policy| policy.contains("version: 2")) {
        return println!("skipped: no fscrypt here");
    }
    let tried = row_on(image, &("an encrypted directory", &[Ext4], "true"), "noatime", |image, options| {
        let refused = Volume::open(options.clone()).expect_err("it has no key").to_string();
        for words in ["d/", "is encrypted (fscrypt)", "add the key and start again"] {
            assert!(refused.contains(words), "no '{words}' in: {refused}");
        }
        said(image, add_key).expect("the key");
    });
    assert!(tried);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn attributes_on_ext4() {
    rows(Ext4);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn attributes_on_xfs() {
    rows(Xfs);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn attributes_on_btrfs() {
    rows(Btrfs);
}

/// Somebody makes objects append-only or immutable after the crash: recovery does its work and restores the flags.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn flags_that_forbid_changes_are_given_back() {
    for kernel in [Ext4, Xfs, Btrfs] {
        let Some(mut image) = Image::new(kernel) else { return };
        let dir = image.path().join("export");
        let d = dir.join("d");
        std::fs::create_dir_all(&d).expect("mkdir");
        for name in ["f", "g", "gone"] {
            std::fs::write(d.join(name), "old").expect("a file");
        }
        let options =
            OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) };
        let (volume, _) = open(options.clone());
        let mut work = Work { volume: &volume, done: Vec::new(), refused: Vec::new() };
        let node = volume.lookup(&root(), &volume.root(), b"d").expect("lookup");
        let f = volume.lookup(&root(), &node, b"f").expect("lookup");
        work.file("create", &node, "new");
        work.ask("write", |v, tx| {
            let file = v.open_file(&root(), &f, OpenMode::BOTH)?;
            v.write(tx, &file, 0, Bytes::from_static(b"new"), Stable::FileSync)
        });
        work.ask("chmod", |v, tx| v.setattr(tx, &root(), &f, None, mode(0o604)));
        work.ask("link", |v, tx| v.link(tx, &root(), &f, &node, b"link"));
        work.ask("rename", |v, tx| v.rename(tx, &root(), &node, b"g", &node, b"renamed"));
        work.ask("remove", |v, tx| v.remove(tx, &root(), &node, b"gone"));
        assert_eq!(work.refused, []);
        image.power_off();
        drop((node, f));
        drop(volume);
        image.power_on();
        assert!(!d.join("new").exists(), "{kernel:?}: the crash lost nothing");
        let chattr = |args: &[&str]| Command::new("chattr").args(args).status().expect("chattr").success();
        let (dir_path, file_path) = (d.to_str().expect("a path"), d.join("f"));
        let file_path = file_path.to_str().expect("a path");
        assert!(chattr(&["+i", file_path]) && chattr(&["+a", dir_path]));
        let (volume, report) = open(options);
        assert_eq!(report.local, Vec::<String>::new());
        let mut names: Vec<_> =
            std::fs::read_dir(&d).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
        names.sort();
        assert_eq!(names, ["f", "link", "new", "renamed"], "{kernel:?}");
        assert_eq!(std::fs::read(d.join("link")).expect("data"), b"new", "{kernel:?}");
        assert_eq!(std::fs::metadata(d.join("f")).expect("metadata").mode() & 0o7777, 0o604, "{kernel:?}");
        for (path, flag) in [(dir_path, 'a'), (file_path, 'i')] {
            let out = Command::new("lsattr").args(["-d", path]).output().expect("lsattr").stdout;
            let words = String::from_utf8_lossy(&out).into_owned();
            assert!(words.split(' ').next().is_some_and(|flags| flags.contains(flag)), "{kernel:?}: {words}");
        }
        assert!(!dir.join(".landfast/flags").exists(), "{kernel:?}");
        assert!(chattr(&["-i", file_path]) && chattr(&["-a", dir_path]));
        drop(volume);
    }
}

/// If recovery made objects without their directory's project, it could not put them there: they would go to `lost+found`.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
#[cfg(debug_assertions)]
fn a_project_that_is_ignored_is_seen() {
    use landfast_volume::faults::{Bug, with};
    let each = ATTRIBUTES.iter().find(|(name, ..)| *name == "a project that is inherited").expect("the row");
    if std::panic::catch_unwind(|| row(Xfs, each, &[], "noatime")).expect("it is recovered") {
        let ignored = || std::panic::catch_unwind(|| row(Xfs, each, &[], "noatime"));
        let wrong = with(Some(Bug::ProjectIgnored), ignored).expect_err("it is seen");
        let told = wrong.downcast_ref::<String>().expect("words");
        assert!(told.contains("made-within is gone"), "{told}");
    }
}
