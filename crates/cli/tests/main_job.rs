//! The main job as a user runs it: serve, untar, stop, crash, start again.

mod common;

use common::{Serving, path, run, stderr, stdout};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small tree with everything that an archive may hold, and its archive by GNU tar.
fn archive(at: &Path, flags: &[&str]) -> PathBuf {
    let tree = at.join("tree");
    fs::create_dir_all(tree.join("sub/deeper")).expect("directories");
    for i in 0..200 {
        fs::write(tree.join(format!("sub/file{i}")), vec![i as u8; i * 37]).expect("a file");
    }
    fs::write(tree.join("big"), (0..3_000_000u32).map(|i| i as u8).collect::<Vec<_>>()).expect("a file");
    fs::write(tree.join("x".repeat(200)), b"a long name").expect("a file");
    std::os::unix::fs::symlink("sub/file1", tree.join("link")).expect("a link");
    fs::hard_link(tree.join("sub/file2"), tree.join("hard")).expect("a link");
    let sh = "cd tree && mkfifo fifo && truncate -s 5M sparse && printf x | dd of=sparse bs=1 seek=1000000 conv=notrunc \
              status=none && chmod 4755 sub/file3 && chmod 0555 sub/deeper && touch -d '2001-02-03 04:05:06.7' sub";
    assert!(Command::new("sh").args(["-c", sh]).current_dir(at).status().expect("sh").success());
    let out = at.join("tree.tar");
    let status = Command::new("tar")
        .args(["-cSf", path(&out)])
        .args(flags)
        .arg("tree")
        .current_dir(at)
        .status()
        .expect("tar");
    assert!(status.success());
    out
}

/// Names, kinds, modes, owners, times, contents.
fn assert_same(a: &Path, b: &Path) {
    let (x, y) = (fs::symlink_metadata(a).expect("there"), fs::symlink_metadata(b).expect("there"));
    let key = |m: &fs::Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec(), m.nlink());
    assert_eq!(key(&x), key(&y), "{}", b.display());
    if x.is_dir() {
        let names = |d: &Path| {
            let mut v: Vec<_> =
                fs::read_dir(d).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
            v.sort();
            v
        };
        assert_eq!(names(a), names(b));
        names(a).iter().for_each(|n| assert_same(&a.join(n), &b.join(n)));
    } else if x.is_symlink() {
        assert_eq!(fs::read_link(a).expect("a link"), fs::read_link(b).expect("a link"));
    } else if x.is_file() {
        assert!(fs::read(a).expect("a file") == fs::read(b).expect("a file"), "{}", b.display());
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_archive_lands_as_tar_would_extract_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let server = Serving::start(&volume, &dir.path().join("log"));
    for (i, flags) in
        [&["--format=gnu"][..], &["--format=pax", "-z"], &["--format=pax", "--sparse-version=0.1", "-J"]]
            .iter()
            .enumerate()
    {
        let at = dir.path().join(format!("a{i}"));
        fs::create_dir(&at).expect("a directory");
        let tar = archive(&at, flags);
        let local = at.join("local");
        fs::create_dir(&local).expect("a directory");
        assert!(
            Command::new("tar")
                .args(["-xpf", path(&tar), "-C", path(&local)])
                .status()
                .expect("tar")
                .success()
        );
        let url = format!("{}to{i}", server.url);
        fs::create_dir(volume.join(format!("to{i}"))).expect("a directory");
        let o = run(&["untar", path(&tar), &url, "--json"]);
        assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
        assert!(o.stderr.is_empty(), "quiet in a pipe: {}", stderr(&o));
        let report: serde_json::Value = serde_json::from_slice(&o.stdout).expect("JSON");
        assert_eq!(report["files"], 203);
        assert_same(&local.join("tree"), &volume.join(format!("to{i}/tree")));
        if i == 0 {
            assert!(report["rpcs_per_file"].as_f64().expect("a number") < 0.2, "{report}");
        }
    }
    let (code, words) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("stopped cleanly"), "{words}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_landed_is_there_after_a_kill_and_the_next_start_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let (volume, log) = (dir.path().join("volume"), dir.path().join("log"));
    fs::create_dir(&volume).expect("a directory");
    let tar = archive(dir.path(), &["--format=pax"]);
    let server = Serving::start(&volume, &log);
    let o = run(&["untar", path(&tar), &server.url]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert!(stdout(&o).contains("all on stable storage"), "{}", stdout(&o));
    server.end(Signal::KILL);
    let server = Serving::start(&volume, &log);
    assert!(server.words.contains("recovered"), "{}", server.words);
    assert_same(&dir.path().join("tree/sub"), &volume.join("tree/sub"));
    let (code, _) = server.end(Signal::INT);
    assert_eq!(code, Some(0));
    let server = Serving::start(&volume, &log);
    assert!(server.words.contains("nothing to recover"), "{}", server.words);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn unsafe_warns_and_says_what_it_risks() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Serving::with(dir.path(), &["--durability", "unsafe"]);
    assert!(server.words.contains("WARNING") && server.words.contains("seconds"), "{}", server.words);
    // One tree, one server.
    drop(server);
    let server = Serving::with(
        &{
            let d = dir.path().join("sub");
            fs::create_dir(&d).expect("a directory");
            d
        },
        &["--durability", "sync"],
    );
    assert!(!server.words.contains("WARNING"), "{}", server.words);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn flags_of_gnu_tar() {
    let dir = tempfile::tempdir().expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let tar = archive(dir.path(), &[]);
    let server = Serving::start(&volume, &dir.path().join("log"));
    let url = &server.url;
    let o = run(&[
        "untar",
        path(&tar),
        url,
        "-v",
        "-m",
        "--strip-components",
        "1",
        "--exclude",
        "*file1*",
        "--exclude",
        "big",
    ]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert!(stdout(&o).contains("sub/file2\n"), "names with -v");
    assert!(
        volume.join("sub/file2").exists()
            && !volume.join("sub/file1").exists()
            && !volume.join("big").exists()
    );
    let fresh = fs::metadata(volume.join("sub")).expect("there").mtime();
    assert!(fresh > 1_500_000_000, "-m leaves times alone");

    fs::write(volume.join("sub/file2"), b"mine").expect("a file");
    let ino = fs::metadata(volume.join("sub/file2")).expect("there").ino();
    let only = ["--strip-components", "1", "--exclude", "fifo", "--exclude", "link", "--exclude", "hard"];
    let keep = [&["untar", path(&tar), url, "--keep-old-files"][..], &only].concat();
    let o = run(&keep);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("sub/file2"), "{}", stderr(&o));
    assert_eq!(fs::read(volume.join("sub/file2")).expect("there"), b"mine");
    let over = [&["untar", path(&tar), url, "--overwrite"][..], &only].concat();
    let o = run(&over);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert_eq!(
        fs::metadata(volume.join("sub/file2")).expect("there").ino(),
        ino,
        "--overwrite keeps the file"
    );
    let o = run(&[&["untar", path(&tar), url][..], &only].concat());
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert_eq!(fs::metadata(volume.join("sub/file2")).expect("there").len(), 2 * 37);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_export_also_appears_under_its_own_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let volume = fs::canonicalize(dir.path()).expect("a path").join("volume");
    fs::create_dir(&volume).expect("a directory");
    let tar = archive(dir.path(), &[]);
    let server = Serving::start(&volume, &dir.path().join("log"));
    let url = format!("{}{}", server.url.trim_end_matches('/'), volume.display());
    let o = run(&["untar", path(&tar), &url, "--exclude", "big"]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert!(volume.join("tree/sub/file7").exists());
}
