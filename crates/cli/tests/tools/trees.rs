//! `diff-tree` and `sync-tree`.

use super::archiving::assert_trees;
use super::*;

/// A tree of this machine beside the export.
fn local_tree(rig: &Rig) -> PathBuf {
    odd_tree(rig, "made");
    let local = rig.dir.path().join("local");
    rig.shell(&format!("cp -a made {}; rm -rf made", path(&local)));
    local
}

/// Another first byte, and nothing else.
const OTHER_BYTE: &str = "cp -p five ../five; byte=$(od -An -tu1 -N1 five); \
    printf \"\\x$(printf %02x $(( (byte + 1) % 256 )))\" | dd of=five bs=1 conv=notrunc status=none; touch -r ../five five";

pub fn shell_in(dir: &Path, script: &str) {
    let done = Command::new("bash").args(["-ec", script]).current_dir(dir).output().expect("a shell");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn diff_tree_tells_each_difference_and_nothing_else() {
    let rig = Rig::new();
    let local = local_tree(&rig);
    let archive = rig.dir.path().join("a.tar.gz");
    shell_in(
        &local,
        "truncate -s 9000001 huge equal; touch -d '2020-01-01' . empty huge; tar --format=pax -czf ../a.tar.gz .",
    );
    // The server does not see at once what is changed behind its back: each tree is as it is before it is first listed.
    rig.shell(&format!("cp -a {0} t; cp -a {0} u", path(&local)));
    for version in VERSIONS {
        let end = rig.ours(version, &["diff-tree", path(&local)], &["t"]);
        assert_eq!((end.code, end.text().as_str(), end.errors().as_str()), (Some(0), "", ""), "{version}");
    }
    let end = rig.ours("4.2", &["diff-tree", path(&archive)], &["t"]);
    assert_eq!((end.code, end.text().as_str(), end.errors().as_str()), (Some(0), "", ""));
    rig.shell(
        "cd u; printf 'X' | dd of=huge bs=1 seek=9000000 conv=notrunc status=none; touch -r empty huge; printf 'X' | dd of=large bs=1 seek=1999999 conv=notrunc status=none; touch -r many/f1 large; \
         touch -d '2001-01-01 UTC' many/f2; chmod 600 many/f3; chown 7:8 many/f4; echo more >> many/f5; \
         rm many/f6 hard1; cp -a five hard1; mkdir new; touch new/below; ln -sfn five broken; \
         rm fifo; echo x > fifo; rm -rf deep/1/2; rm chr; mknod chr c 1 5",
    );
    let ignored = "--ignore=dir-mtime";
    let expected = |from: &Path| {
        let end = rig.ours("4.2", &["diff-tree", "--json", ignored, path(from)], &["u"]);
        assert_eq!((end.code, end.errors().as_str()), (Some(1), ""));
        let mut all: Vec<(String, String)> = Vec::new();
        for line in end.text().lines() {
            let value: serde_json::Value = serde_json::from_str(line).expect("an object");
            if let (Some(path), Some(what)) = (value["path"].as_str(), value["difference"].as_str()) {
                all.push((path.to_owned(), what.to_owned()));
            }
        }
        all.retain(|(path, what)| what != "mtime" || path == "many/f2");
        all
    };
    let wanted: Vec<(String, String)> = [
        ("broken", "target"),
        ("chr", "device"),
        ("deep/1/2", "only-first"),
        ("deep/1/hard2", "links"),
        ("fifo", "type"),
        ("five", "links"),
        ("hard1", "links"),
        ("huge", "contents"),
        ("large", "contents"),
        ("many/f2", "mtime"),
        ("many/f3", "mode"),
        ("many/f4", "group"),
        ("many/f4", "owner"),
        ("many/f5", "size"),
        ("many/f6", "only-first"),
        ("new", "only-second"),
    ]
    .map(|(path, what)| (path.to_owned(), what.to_owned()))
    .to_vec();
    for from in [&local, &archive] {
        let mut found = expected(from);
        found.sort();
        // `deep/1/hard2` and `five` are still one file, whose first name is the same.
        let wanted: Vec<_> =
            wanted.iter().filter(|(p, _)| p != "deep/1/hard2" && p != "five").cloned().collect();
        assert_eq!(found, wanted, "{}", from.display());
    }
    // Extended attributes count when they are asked for.
    let key = "user.k";
    for (at, value) in [(local.join("five"), &b"1"[..]), (rig.at("u/five"), b"2"), (rig.at("u/many/f7"), b"")]
    {
        rustix::fs::setxattr(at, key, value, rustix::fs::XattrFlags::empty()).expect("set");
    }
    let with = rig.ours("4.2", &["diff-tree", "--quick", "--xattrs", path(&local)], &["u"]);
    let lines: Vec<String> =
        with.text().lines().filter(|l| l.contains("extended")).map(str::to_owned).collect();
    let differs = |name: &str| format!("{name}: extended attribute user.k differs");
    assert_eq!(lines, ["deep/1/hard2", "five", "hard1", "many/f7"].map(differs)[..], "{with:?}");
    // The lines for people, and what is left when nothing of it counts.
    let end = rig.ours("4.1", &["diff-tree", ignored, path(&local)], &["u"]);
    for line in [
        "many/f3: mode: 0644, 0600\n",
        "many/f2: mtime: ",
        "fifo: type: fifo, regular file\n",
        "new: only in B\n",
        "large: contents differ\n",
        "hard1: links: deep/1/hard2, -\n",
    ] {
        assert!(end.text().contains(line), "{line} in {end:?}");
    }
    let end = rig.ours(
        "4.2",
        &["diff-tree", "--quick", "--ignore=mode,owner,group,mtime,links", "--exclude=new", path(&local)],
        &["u"],
    );
    assert!(
        !end.text().contains("large") && !end.text().contains("new") && end.text().contains("many/f5: size"),
        "{end:?}"
    );
    for wrong in [&["diff-tree", "/no/such/tree"][..], &["diff-tree", "/etc/passwd"]] {
        assert_eq!(rig.ours("4.2", wrong, &["t"]).code, Some(2), "{wrong:?}");
    }
    assert_eq!(rig.ours("4.2", &["diff-tree", path(&local)], &["nothing"]).code, Some(2));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_tree_makes_the_destination_as_the_source_is() {
    let rig = Rig::new();
    let local = local_tree(&rig);
    let src = path(&local);
    for (n, version) in VERSIONS.into_iter().enumerate() {
        let dest = format!("d{n}/new");
        let name = dest.as_str();
        let to = rig.at(name);
        let sync = |options: &[&str]| {
            let args = [&["sync-tree", "--json"][..], options, &[src]].concat();
            let end = rig.ours(version, &args, &[name]);
            assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{version} {options:?}: {end:?}");
            end.summary()["synchronised"].as_u64().expect("a number")
        };
        let all = names(&local).len() as u64 + 1;
        assert_eq!(sync(&["--dry-run"]), all, "{version}");
        assert!(!to.exists(), "{version}");
        assert_eq!(sync(&[]), all, "{version}");
        assert_trees(&to, &local, version);
        assert_eq!(sync(&["--delete"]), 0, "{version}");
        // On the destination something changes, on the source something else.
        rig.shell(&format!(
            "cd {name}; rm -rf deep/1/2 five; mkdir five; touch five/x; rm link; \
             echo extra > extra; mkdir -p more/of/it; rm hard1; echo apart > hard1"
        ));
        // The server does not see at once that attributes are changed behind its back.
        shell_in(
            &local,
            &format!(
                "chmod 64{n} many/f1; echo other{n} > many/f2; chown {n}:{n} many/f2{n}; touch -d '2020-01-0{n} 1:00' many/f3{n} many/f299; touch -h -d '2020-01-0{n} 1:00' link; \
                 ln -sfn {n} todir; chmod 75{n} many",
                n = n + 1
            ),
        );
        let before = names(&to);
        sync(&["--dry-run", "--delete"]);
        assert_eq!(names(&to), before, "{version}");
        assert!(sync(&[]) > 0, "{version}");
        assert!(to.join("extra").exists() && to.join("more/of/it").exists(), "{version}");
        let removed = sync(&["--delete"]);
        assert!(removed >= 4, "{version}: {removed}");
        assert_trees(&to, &local, version);
        if matches!(version, "4.1" | "4.0") {
            continue;
        }
        // The same size and time: only the data tells.
        shell_in(&local, OTHER_BYTE);
        assert_eq!(sync(&[]), 0, "{version}");
        assert_eq!(sync(&["--checksum"]), 3, "{version}: all names of the file");
        assert_trees(&to, &local, version);
        // Nothing that was asked to be left alone is touched.
        rig.shell(&format!("cd {name}; echo kept > many/kept; touch -r {src}/many many"));
        assert_eq!(sync(&["--delete", "--exclude=kept"]), 0, "{version}");
        let list = rig.dir.path().join("kept");
        fs::write(&list, "nothing\nkept\n").expect("a file");
        assert_eq!(sync(&["-artH", "--delete", "--exclude-from", path(&list)]), 0, "{version}");
        assert!(to.join("many/kept").exists(), "{version}");
        fs::remove_file(to.join("many/kept")).expect("removed");
    }
}

/// `old` is not in the source, and `other` is a file there; both hold what is excluded.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_tree_removes_nothing_that_is_excluded() {
    let rig = Rig::new();
    let local = rig.dir.path().join("local");
    fs::create_dir(&local).expect("a directory");
    let source = "mkdir -p from; cd from; echo new > new; echo file > other";
    let dest = "mkdir -p to/old/sub/deep to/old/gone to/other/sub; cd to; \
        for f in old/secret.key old/x old/sub/deep/a.key old/sub/y old/gone/z other/b.key other/sub/w; do echo $f > $f; done";
    let kept = [
        "new",
        "old",
        "old/secret.key",
        "old/sub",
        "old/sub/deep",
        "old/sub/deep/a.key",
        "other",
        "other/b.key",
    ];
    for version in VERSIONS {
        for push in [true, false] {
            let what = format!("{version}, to the server: {push}");
            rig.shell("rm -rf from to");
            shell_in(&local, "rm -rf from to");
            let here = local.join(if push { "from" } else { "to" });
            let there = rig.url(if push { "to" } else { "from" }, version);
            let (from, to, at) = match push {
                true => (path(&here), there.as_str(), rig.at("to")),
                false => (there.as_str(), path(&here), here.clone()),
            };
            shell_in(&local, if push { source } else { dest });
            rig.shell(if push { dest } else { source });
            let sync = |options: &[&str]| said(landfast().arg("sync-tree").args(options).args([from, to]));
            let before = names(&at);
            // Without --delete nothing in the way of the file is removed either.
            let end = sync(&["--exclude", "*.key"]);
            assert_eq!(end.code, Some(1), "{what}: {end:?}");
            assert!(before.iter().all(|name| at.join(name).exists()), "{what}: {end:?}");
            assert!(end.errors().starts_with("sync-tree: other: not sent: "), "{what}: {end:?}");
            for dry_run in [true, false] {
                let dry: &[&str] = if dry_run { &["--dry-run"] } else { &[] };
                let end = sync(&[&["--delete", "-v", "--exclude", "*.key"], dry].concat());
                assert_eq!(end.code, Some(1), "{what}: {end:?}");
                let named: Vec<&str> = end
                    .err
                    .split(|b| *b == b'\n')
                    .filter_map(|l| std::str::from_utf8(l).ok()?.split(": ").nth(1))
                    .collect();
                assert_eq!(named, ["old", "other"], "{what}: {end:?}");
                let removed: Vec<String> = end
                    .text()
                    .lines()
                    .filter_map(|line| line.strip_prefix("remove "))
                    .map(str::to_owned)
                    .collect();
                for name in ["old/x", "old/sub/y", "old/gone", "other/sub"] {
                    assert!(removed.iter().any(|r| r == name), "{what}: {name}: {end:?}");
                }
            }
            assert_eq!(names(&at), kept.map(PathBuf::from), "{what}");
            // Only the file in the place of a directory is a failure.
            let end = sync(&["--delete", "--exclude", "*.key", "--exclude", "other"]);
            assert_eq!(end.code, Some(0), "{what}: {end:?}");
            assert!(end.errors().starts_with("sync-tree: old: the directory is kept, "), "{what}: {end:?}");
            let end = sync(&["--delete"]);
            assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{what}: {end:?}");
            assert_eq!(names(&at), ["new", "other"].map(PathBuf::from), "{what}");
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_tree_says_what_did_not_land_and_asks_little_when_nothing_differs() {
    let rig = Rig::new();
    let local = rig.dir.path().join("local");
    fs::create_dir(&local).expect("a directory");
    shell_in(&local, "mkdir d{0..19}; for d in d*; do for f in $(seq 50); do echo $f > $d/$f; done; done");
    let first = rig.ours("4.2", &["sync-tree", "--rpc-counts", path(&local)], &["t"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.errors().contains(" RPCs, 0.0"), "what is sent counts, and is little: {first:?}");
    assert_trees(&rig.at("t"), &local, "first");
    let second = rig.ours("4.2", &["sync-tree", "--json", path(&local)], &["t"]);
    let summary = second.summary();
    assert_eq!((&summary["synchronised"], second.code), (&serde_json::json!(0), Some(0)), "{second:?}");
    let rpcs = summary["rpcs"].as_u64().expect("a number");
    assert!(rpcs <= 25, "{rpcs} RPCs to look at 1,000 files");
    // A name that the server does not take away: an immutable file.
    shell_in(&local, "echo longer > d1/7; echo longer > d2/7; rm d3/7");
    rig.shell("chattr +i t/d1/7 t/d3/7");
    let end = rig.ours("4.2", &["sync-tree", "-v", "--delete", path(&local)], &["t"]);
    rig.shell("chattr -i t/d1/7 t/d3/7");
    assert_eq!(end.code, Some(1), "{end:?}");
    for (path, why) in [("d1/7", ""), ("d3/7", "Operation not permitted")] {
        let said =
            end.errors().lines().any(|l| l.starts_with(&format!("sync-tree: {path}: ")) && l.ends_with(why));
        assert!(said, "{path}: {end:?}");
        assert!(!end.text().lines().any(|l| l.ends_with(path)), "{end:?}");
    }
    assert!(end.text().contains("send d2/7\n"), "{end:?}");
    assert_eq!(fs::read(rig.at("t/d1/7")).expect("there"), b"7\n");
    let end = rig.ours("4.2", &["sync-tree", "--delete", path(&local)], &["t"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_trees(&rig.at("t"), &local, "last");
    for wrong in ["/no/such/tree", "/etc/passwd"] {
        assert_eq!(rig.ours("4.2", &["sync-tree", wrong], &["t"]).code, Some(2), "{wrong}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_tree_makes_a_directory_of_this_machine_as_a_server_s_is() {
    let rig = Rig::new();
    odd_tree(&rig, "s");
    let from = rig.at("s");
    for (n, version) in VERSIONS.into_iter().enumerate() {
        let to = rig.dir.path().join(format!("here{n}/new"));
        let sync = |options: &[&str]| {
            let mut command = landfast();
            command.args(["sync-tree", "--json"]).args(options).arg(rig.url("s", version)).arg(&to);
            let end = said(&mut command);
            assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{version} {options:?}: {end:?}");
            end.summary()["synchronised"].as_u64().expect("a number")
        };
        let all = names(&from).len() as u64 + 1;
        assert_eq!(sync(&["--dry-run"]), all, "{version}");
        assert!(!to.exists(), "{version}");
        assert_eq!(sync(&[]), all, "{version}");
        assert_trees(&to, &from, version);
        assert_eq!(sync(&["--delete"]), 0, "{version}");
        // On the destination something changes: also what would lead out of it.
        let outside = rig.dir.path().join("outside");
        shell_in(
            &to,
            &format!(
                "mkdir -p {out}/many {out}/empty; echo kept > {out}/many/f1; rm -rf deep/1/2 five many empty; mkdir five; touch five/x; \
                 ln -s {out}/many many; ln -s {out}/empty empty; rm link; ln -s {out}/many/f1 link; rm large; ln -s {out}/many/f1 large; \
                 echo extra > extra; mkdir -p more/of/it; ln -s {out} more/out; rm hard1; echo apart > hard1; chmod 600 quote*; touch todir",
                out = path(&outside)
            ),
        );
        let before = names(&to);
        sync(&["--dry-run", "--delete"]);
        assert_eq!(names(&to), before, "{version}");
        assert!(sync(&[]) > 0, "{version}");
        assert!(to.join("extra").exists() && to.join("more/of/it").exists(), "{version}");
        assert!(sync(&["--delete"]) >= 4, "{version}");
        assert_trees(&to, &from, version);
        assert_eq!(names(&outside), ["empty", "many", "many/f1"].map(PathBuf::from));
        assert_eq!(fs::read(outside.join("many/f1")).expect("a file"), b"kept\n", "{version}");
        if matches!(version, "4.1" | "4.0") {
            continue;
        }
        // The same size and time: only the data tells.
        shell_in(&to, OTHER_BYTE);
        assert_eq!(sync(&[]), 0, "{version}");
        assert_eq!(sync(&["--checksum"]), 3, "{version}: all names of the file");
        assert_trees(&to, &from, version);
        shell_in(&to, &format!("echo kept > many/kept; touch -r {}/many many", path(&from)));
        assert_eq!(sync(&["--delete", "--exclude=kept"]), 0, "{version}");
        assert!(to.join("many/kept").exists(), "{version}");
    }
    let url = rig.url("s", "4.2");
    for wrong in [
        [&url[..], "/etc/passwd"],
        [&rig.url("s/five", "4.2"), "/tmp"],
        [&url, &rig.url("s/empty/x", "4.2")],
        [&rig.url("s/deep", "4.2"), &url],
        [&rig.url("s/deep", "4.1"), &url],
        [&url, &url],
        ["/etc", "/tmp/x"],
    ] {
        assert_eq!(said(landfast().arg("sync-tree").args(wrong)).code, Some(2), "{wrong:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_tree_makes_a_server_s_directory_as_another_server_s_is() {
    let (one, two) = (Rig::new(), Rig::new());
    odd_tree(&one, "s");
    // Another owner than all others, a large file that is no zeroes.
    one.shell("head -c 3000000 /dev/urandom > s/random; chown 4321:8765 s/random");
    let from = one.at("s");
    let pairs = [("4.2", "4.2", true), ("3", "4.1", false), ("4.1", "4.0", true), ("4.0", "3", false)];
    for (n, (theirs, ours, within)) in pairs.into_iter().enumerate() {
        let rig = if within { &one } else { &two };
        // With version 3 what is above has to be there.
        rig.shell(&format!("mkdir d{n}"));
        let (name, what) = (format!("d{n}/new"), format!("{theirs} to {ours}"));
        let to = rig.at(&name);
        let sync = |options: &[&str]| {
            let mut command = landfast();
            command
                .args(["sync-tree", "--json"])
                .args(options)
                .args([one.url("s", theirs), rig.url(&name, ours)]);
            let end = said(&mut command);
            assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{what} {options:?}: {end:?}");
            end.summary()["synchronised"].as_u64().expect("a number")
        };
        let all = names(&from).len() as u64 + 1;
        assert_eq!(sync(&["--dry-run"]), all, "{what}");
        assert!(!to.exists(), "{what}");
        assert_eq!(sync(&[]), all, "{what}");
        assert_trees(&to, &from, &what);
        assert_eq!(sync(&["--delete"]), 0, "{what}");
        // On the destination something changes, by NFS.
        let at = |below: &str| rig.url(&format!("{name}/{below}"), ours);
        let done = said(landfast().args(["rm", "-r"]).args(["deep/1/2", "five", "random"].map(at)));
        assert_eq!(done.code, Some(0), "{done:?}");
        let done = said(landfast().args(["mkdir", "-p"]).args(["five/x", "more/of/it"].map(at)));
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(sync(&[]) > 0, "{what}");
        assert!(to.join("more/of/it").exists(), "{what}");
        assert!(sync(&["--delete"]) >= 3, "{what}");
        assert_trees(&to, &from, &what);
        assert_eq!(sync(&["--checksum", "--delete"]), 0, "{what}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_tree_that_is_interrupted_leaves_no_half_file_under_its_name() {
    let rig = Rig::new();
    rig.shell("mkdir s s/d; for f in a b c d/e; do head -c 12000000 /dev/urandom > s/$f; done; for n in $(seq 200); do echo $n > s/d/$n; done");
    let (from, to) = (rig.at("s"), rig.dir.path().join("here"));
    shell_in(rig.dir.path(), "mkdir here; echo old > here/a; echo old > here/c");
    let child = landfast().arg("sync-tree").arg(rig.url("s", "4.2")).arg(&to).stdout(Stdio::null()).spawn();
    let child = child.expect("it starts");
    let is_other = |name: &PathBuf| name.to_string_lossy().contains(".landfast-");
    // Something is on its way, or all was too quick to be seen.
    while !names(&to).iter().any(is_other) && !to.join("d/200").exists() {
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .expect("sent");
    let end = child.wait_with_output().expect("it ends");
    assert!(matches!(end.status.code(), Some(0 | 1 | 130)), "{end:?}");
    let all = names(&to);
    assert!(!all.iter().any(is_other), "{all:?}");
    for name in all.iter().filter(|name| to.join(name).is_file()) {
        let (now, wanted) =
            (fs::read(to.join(name)).expect("a file"), fs::read(from.join(name)).expect("a file"));
        assert!(now == wanted || now == b"old\n", "{}", name.display());
    }
    let end = said(landfast().args(["sync-tree", "--delete"]).arg(rig.url("s", "4.2")).arg(&to));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_trees(&to, &from, "after");
}

/// RFC 8276; both ways.
/// Waits until the server shows a directory as it is: what is done behind its back it shows up to a second later, such as the time
/// of a directory, which a first run would then take for right and the next one for wrong.
fn shown(rig: &Rig, name: &str) {
    let begun = std::time::Instant::now();
    loop {
        let end = said(landfast().args(["diff-tree", path(&rig.at(name)), &rig.url(name, "4.2")]));
        if end.code == Some(0) {
            return;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{end:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_tree_makes_extended_attributes_the_same_when_asked() {
    let rig = Rig::new();
    let local = rig.dir.path().join("local");
    shell_in(
        rig.dir.path(),
        "mkdir -p local/d/e; cd local; for n in $(seq 20); do echo $n > d/$n; done; echo x > same; ln same hard",
    );
    let set = |name: &str, key: &str, value: &str| {
        let none = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(local.join(name), key, value.as_bytes(), none).expect("set");
    };
    for n in 1..=20 {
        set(&format!("d/{n}"), "user.n", &n.to_string());
    }
    set("d", "user.dir", "d");
    set("same", "user.same", "s");
    let all =
        |dir: &Path| names(dir).iter().map(|name| super::copying::xattrs(dir, name)).collect::<String>();
    let back = rig.dir.path().join("back");
    let sync = |from: &str, to: &str, options: &[&str]| {
        let end = said(landfast().args(["sync-tree", "--json"]).args(options).args([from, to]));
        assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{options:?} {from} {to}: {end:?}");
        end.summary()["synchronised"].as_u64().expect("a number")
    };
    let url = rig.url("t", "4.2");
    for (from, to, there) in [(path(&local), &url[..], rig.at("t")), (&url, path(&back), back.clone())] {
        assert_eq!(sync(from, to, &[]), 25, "{to}");
        assert_eq!(all(&there), "", "{to}");
        assert_eq!(sync(from, to, &["-Xn"]), 23, "{to}");
        assert_eq!(all(&there), "", "{to}");
        assert_eq!(sync(from, to, &["-X"]), 23, "{to}: 20, d, and two names of one file");
        assert_eq!(all(&there), all(&local), "{to}");
        assert_eq!(sync(from, to, &["-X"]), 0, "{to}");
        // What is new comes with its own.
        shell_in(&there, "rm -r d hard; ln same hard; mkdir d; echo other > d/3");
        shown(&rig, "t");
        sync(from, to, &["-X", "--delete"]);
        assert_eq!(all(&there), all(&local), "{to}");
        // What is too much goes.
        for (name, key) in [("d/7", "user.more"), ("d/e", "user.dir")] {
            let none = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(there.join(name), key, b"much", none).expect("set");
        }
        assert_eq!(sync(from, to, &["-Xc"]), 2, "{to}");
        assert_eq!(all(&there), all(&local), "{to}");
    }
    let end = rig.ours("4.1", &["sync-tree", "-X", path(&local)], &["t"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.errors().contains("does not support extended attributes"), "{end:?}");
}
