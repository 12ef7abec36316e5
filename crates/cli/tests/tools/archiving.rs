//! `tar`, beside GNU tar: the same members, the same messages, and trees that come out of the archive as they were.

use super::*;
use std::os::unix::fs::MetadataExt;

/// All of a tree that an archive keeps: a line for each object.
fn tree(dir: &Path) -> Vec<String> {
    let mut first_names = std::collections::HashMap::new();
    let mut all = vec![PathBuf::new()];
    all.extend(names(dir));
    let mut lines = Vec::new();
    for name in all {
        let path = dir.join(&name);
        let meta = fs::symlink_metadata(&path).expect("there");
        let kind = meta.file_type();
        let what = if kind.is_symlink() {
            format!("{:?}", fs::read_link(&path).expect("a link"))
        } else if kind.is_file() {
            let data = fs::read(&path).expect("a file");
            let word = |c: &[u8]| c.iter().fold(0, |w, b| w << 8 | u64::from(*b));
            let words = data.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().expect("eight")));
            let rest = word(data.chunks_exact(8).remainder());
            let sum = words.chain([rest]).fold(7u64, |h, w| h.wrapping_mul(0x1_0000_01b3).wrapping_add(w));
            format!("{} bytes, {sum:x}", data.len())
        } else {
            format!("device {:x}", meta.rdev())
        };
        let first = match meta.nlink() > 1 && !kind.is_dir() {
            true => first_names.entry(meta.ino()).or_insert_with(|| name.clone()).clone(),
            false => name.clone(),
        };
        lines.push(format!(
            "{:?} {:o} {}:{} {}.{:09} {what} {}",
            name,
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec(),
            if first == name { String::new() } else { format!("as {first:?}") },
        ));
    }
    lines
}

#[track_caller]
pub fn assert_trees(ours: &Path, theirs: &Path, what: &str) {
    let (ours, theirs) = (tree(ours), tree(theirs));
    let differs = ours.iter().zip(&theirs).find(|(a, b)| a != b);
    assert!(ours == theirs, "{what}: {} and {} objects; {differs:?}", ours.len(), theirs.len());
}

/// What GNU tar says is in an archive.
fn members(archive: &Path) -> Vec<String> {
    let said = said(Command::new("tar").args(["--full-time", "-tvf"]).arg(archive));
    assert_eq!((said.code, said.errors().as_str()), (Some(0), ""), "{said:?}");
    said.text().lines().map(str::to_owned).collect()
}

#[track_caller]
fn assert_members(ours: &Path, theirs: &Path, what: &str) {
    let (ours, theirs) = (members(ours), members(theirs));
    let differs = ours.iter().zip(&theirs).find(|(a, b)| a != b);
    assert!(ours == theirs, "{what}: {} and {} members; {differs:?}", ours.len(), theirs.len());
}

/// A tree with all that an archive has to keep, and names and files that need more than a header block.
fn kept_tree(rig: &Rig, name: &str) {
    odd_tree(rig, name);
    rig.shell(&format!(
        "cd {name}; truncate -s 3000000 middle; truncate -s 9000001 piecewise; \
         for i in 0 1048570 2097148 4194300 8388600 8999990; do echo $i | tee >(dd of=middle bs=1 seek=$((i / 3)) conv=notrunc status=none) | dd of=piecewise bs=1 seek=$i conv=notrunc status=none; done; \
         d={long}; mkdir -p $d/$d; echo > $d/$d/f; ln -s /$d/$d/f far; ln $d/$d/f $d/$d/g; ln -s x linked; ln linked lnhard; \
         touch -d '1901-02-03 04:05:06.5' old; touch -d 'now' now; chown 3000000:4000000 now; mkdir last; chmod 2755 last; \
         touch -h -d '2022-01-01 00:00:00.25' linked; touch -d '2011-11-11 11:11:11.123456789' last deep many",
        long = "l".repeat(120),
    ));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn archives_hold_what_gnu_tar_puts_into_them_and_come_out_as_they_were() {
    let rig = Rig::new();
    kept_tree(&rig, "t");
    let scratch = rig.dir.path().join("scratch");
    fs::create_dir(&scratch).expect("a directory");
    let at = |name: &str| scratch.join(name);
    let gnu = |archive: &str, of: &str| {
        let done = Command::new("tar")
            .args(["--sort=name", "--format=pax", "-cf", path(&at(archive)), "-C", path(&rig.at(of)), "t"])
            .env("LC_ALL", "C.UTF-8")
            .status();
        assert!(done.expect("tar").success());
    };
    // Version 3 has no times before 1970.
    rig.shell("mkdir later; cp -a t later; touch later/t/old");
    gnu("gnu.tar", "");
    gnu("later.tar", "later");
    for (version, file, flags, of, theirs) in [
        ("4.2", "plain.tar", "-cf", "", "gnu.tar"),
        ("4.1", "second.tar", "-caf", "", "gnu.tar"),
        ("4.0", "third", "-cf", "", "gnu.tar"),
        ("3", "short.tar", "-cf", "later", "later.tar"),
    ] {
        let said = said(landfast().args(["tar", flags, path(&at(file)), "-C", &rig.url(of, version), "t"]));
        assert_eq!((said.code, said.errors().as_str(), said.text().as_str()), (Some(0), "", ""), "{version}");
        assert_members(&at(file), &at(theirs), version);
        let out = at("out");
        fs::create_dir(&out).expect("a directory");
        let done =
            Command::new("tar").args(["-xpf", path(&at(file)), "--numeric-owner", "-C", path(&out)]).status();
        assert!(done.expect("tar").success(), "{version}");
        assert_trees(&out.join("t"), &rig.at(of).join("t"), version);
        fs::remove_dir_all(&out).expect("removed");
    }
    // To standard output, and through `landfast untar` back onto the server.
    rig.shell("mkdir back");
    let mut shell = Command::new("bash");
    shell.args(["-ec", "set -o pipefail; \"$0\" tar --zstd -c -C \"$1\" . --exclude=back --exclude=.landfast* | \"$0\" untar - \"$2\""]);
    shell.args([env!("CARGO_BIN_EXE_landfast"), &rig.url("t", "4.2"), &rig.url("back", "4.1")]);
    let end = said(&mut shell);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_trees(&rig.at("back"), &rig.at("t"), "back");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn tar_says_what_gnu_tar_says() {
    let rig = Rig::new();
    odd_tree(&rig, "t");
    rig.shell("mkdir u; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"u/sock\")' || true; echo x > u/x");
    let list = rig.dir.path().join("list");
    fs::write(&list, "u/x\nt/five\n").expect("a file");
    let list = path(&list);
    let all: &[&[&str]] = &[
        &["-v", "t", "u", "t/five"],
        &["-z", "t/many"],
        &["-J", "t/many", "-v"],
        &["u", "nothing", "t/nothing/x", "t/five/x"],
        &["-v", "./t/empty/", "u//", "t/todir/", "t/todir", "t/a b"],
        &["-v", "--exclude", ".landfast*", "--exclude=t/*e*", "--exclude", "f2?", "."],
        &["-v", "-T", list, "u/x"],
        &["-v", "--exclude=f3?", "-X", list, "t/many", "u"],
        &["-T", "/no/such/list"],
        &[],
    ];
    for version in VERSIONS {
        for args in some(version, all, 3).iter().copied() {
            let url = rig.url("", version);
            let out = |name: &str| path(&rig.dir.path().join(name)).to_owned();
            let (ours_at, gnu_at) = (out("ours.tar"), out("gnu.tar"));
            let ours = said(landfast().args(["tar", "-cf", &ours_at, "-C", &url]).args(args));
            let gnu = said(
                Command::new("tar")
                    .args(["-c", "--sort=name", "--format=pax", "-f", &gnu_at, "-C", path(&rig.at(""))])
                    .args(args),
            );
            let plain = |said: Said| {
                let lines = said
                    .errors()
                    .lines()
                    .filter(|l| !l.contains("--help"))
                    .map(|l| format!("{l}\n"))
                    .collect::<String>();
                Said { err: lines.into_bytes(), ..said }
            };
            assert_same(&plain(ours), &plain(gnu), &format!("{version} {args:?}"));
            if !args.is_empty() && !args.contains(&"/no/such/list") {
                assert_members(Path::new(&ours_at), Path::new(&gnu_at), &format!("{version} {args:?}"));
            }
        }
    }
    // Letters without a dash.
    let (at, url) = (rig.dir.path().join("old.tar"), rig.url("", "4.2"));
    let old = said(landfast().args(["tar", "cvfC", path(&at), &url, "t/many"]));
    assert_eq!(old.code, Some(0), "{old:?}");
    let new = said(landfast().args(["tar", "-cv", "-f", path(&at), "-C", &url, "t/many"]));
    assert_same(&old, &new, "letters without a dash");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn tar_takes_few_requests_and_ends_as_gnu_when_it_cannot_write() {
    let rig = Rig::new();
    rig.shell("mkdir t; cd t; mkdir -p d{0..19}/s{0..1}; for d in d*; do for f in $(seq 50); do echo $f > $d/f$f; done; touch $d/s0/g{0..24} $d/s1/h{0..24}; done");
    let archive = path(&rig.dir.path().join("x.tar")).to_owned();
    let end = rig.ours("4.2", &["tar", "-cf", &archive, "--json"], &["t"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    let summary = end.summary();
    assert_eq!(summary["archived"], 1 + 20 + 40 + 2000, "{summary}");
    let rpcs = summary["rpcs"].as_u64().expect("a number");
    assert!(rpcs <= 40, "{rpcs} RPCs for 2,000 files");
    assert_eq!(members(Path::new(&archive)).len(), 1 + 20 + 40 + 2000);
    for (file, why) in [
        ("/no/such/file", "tar: /no/such/file: Cannot open: No such file or directory\n"),
        ("/dev/full", "tar: /dev/full: Cannot write: No space left on device\n"),
    ] {
        let end = rig.ours("4.2", &["tar", "-cf", file], &["t"]);
        assert_eq!(end.code, Some(2), "{end:?}");
        assert_eq!(end.errors(), format!("{why}tar: Error is not recoverable: exiting now\n"));
    }
    assert_eq!(said(landfast().args(["tar", "-x"])).code, Some(2));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn extended_attributes_go_into_archives_when_they_are_asked_for() {
    let rig = Rig::new();
    rig.shell("mkdir -p t/d; echo f > t/f; echo g > t/g; ln -s f t/l; head -c 6000000 /dev/zero > t/large; ln t/g t/h");
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(rig.at(name), key, value, rustix::fs::XattrFlags::empty()).expect("set");
    };
    let value = (0..=255).collect::<Vec<u8>>();
    for (name, key, value) in [
        ("t/f", "user.one", &b"1"[..]),
        ("t/f", "user.two", &value),
        ("t/d", "user.dir", b"d"),
        ("t/g", "user.g", b""),
        ("t/large", "user.large", &[b'x'; 3000]),
    ] {
        set(name, key, value);
    }
    let archive = path(&rig.dir.path().join("x.tar")).to_owned();
    let out = rig.dir.path().join("out");
    for (version, flags, kept) in
        [("4.2", &["--xattrs"][..], true), ("4.2", &[], false), ("4.1", &["--xattrs"], false)]
    {
        let end = rig.ours(version, &[&["tar", "-cf", &archive][..], flags].concat(), &["t"]);
        assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{end:?}");
        fs::create_dir(&out).expect("a directory");
        let done = Command::new("tar").args(["--xattrs", "-xf", &archive, "-C", path(&out)]).status();
        assert!(done.expect("tar").success());
        let top = fs::canonicalize(out.join(
            rig.shown("t", version).split_once("nfs://").expect("a URL").1.split_once('/').expect("a path").1,
        ))
        .expect("it came out");
        let get = |name: &str, key: &str| {
            let mut value = vec![0; 4096];
            let len = rustix::fs::getxattr(top.join(name), key, &mut value[..]).ok()?;
            value.truncate(len);
            Some(value)
        };
        for (name, key, wanted) in [
            ("f", "user.one", &b"1"[..]),
            ("f", "user.two", &value),
            ("d", "user.dir", b"d"),
            ("h", "user.g", b""),
            ("large", "user.large", &[b'x'; 3000]),
        ] {
            assert_eq!(get(name, key).as_deref(), kept.then_some(wanted), "{version} {flags:?} {name} {key}");
        }
        fs::remove_dir_all(&out).expect("removed");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_archive_does_not_come_out_where_there_is_no_directory_and_why_is_told_in_words() {
    let rig = Rig::new();
    rig.shell("echo x > file; tar -cf ../x.tar file");
    let archive = path(&rig.dir.path().join("x.tar")).to_owned();
    for version in VERSIONS {
        for (name, why) in [
            ("missing/dir", "no such directory; --mkdir makes it, and so does: landfast mkdir -p "),
            ("file", "not a directory"),
            ("file/dir", "/file: Not a directory"),
        ] {
            let url = rig.url(name, version);
            let o = said(landfast().args(["untar", &archive, &url]));
            let (code, text) = (o.code, o.errors());
            assert_eq!((code, text.lines().count()), (Some(2), 1), "{version} {name}: {text}");
            assert!(text.contains(why) && !text.contains("NFS4ERR"), "{version} {name}: {text}");
        }
        // What it proposes does it.
        let o = said(landfast().args(["untar", &archive, &rig.url("missing/dir", version)]));
        let (_, made) =
            o.errors().split_once("landfast mkdir").map(|(a, b)| (a.to_owned(), b.to_owned())).expect("said");
        let mkdir = format!("{} mkdir{made}", env!("CARGO_BIN_EXE_landfast"));
        assert_eq!(said(Command::new("sh").args(["-c", &mkdir])).code, Some(0), "{version}: {mkdir}");
        let o = said(landfast().args(["untar", &archive, &rig.url("missing/dir", version)]));
        assert_eq!(o.code, Some(0), "{version}: {o:?}");
        assert_eq!(fs::read(rig.at("missing/dir/file")).expect("there"), b"x\n");
        fs::remove_dir_all(rig.at("missing")).expect("removed");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn tar_tells_of_an_extended_attribute_that_no_archive_holds() {
    let rig = Rig::new();
    rig.shell("mkdir t; echo x > t/f");
    for key in ["user.a=b", "user.k"] {
        rustix::fs::setxattr(rig.at("t/f"), key, b"v", rustix::fs::XattrFlags::empty()).expect("set");
    }
    let archive = rig.dir.path().join("a.tar");
    let end =
        said(landfast().args(["tar", "--xattrs", "-cf", path(&archive), "-C", &rig.url("", "4.2"), "t"]));
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(end.errors().contains("t/f: Extended attribute user.a=b left out"), "{end:?}");
    assert!(!end.errors().contains("user.k"), "{end:?}");
    let bytes = fs::read(&archive).expect("an archive");
    assert!(bytes.windows(18).any(|part| part == b"SCHILY.xattr.user."));
}
