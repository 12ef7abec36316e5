//! What people get wrong, and what attackers try: one line that says what to do, an exit code, nothing outside.

mod common;

use common::{Serving, landfast, one_line_with, path, run, stderr};
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

#[test]
fn a_directory_that_does_not_exist() {
    let o = run(&["serve", "/no/such/directory", "--log", "/tmp/none"]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["/no/such/directory", "no such directory"]);
}

#[test]
fn a_log_is_needed() {
    let o = run(&["serve", "/tmp"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(stderr(&o).contains("--log"), "{}", stderr(&o));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_filesystem_that_is_not_on_the_list() {
    let log = tempfile::tempdir().expect("a directory");
    let shm = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let o =
        run(&["serve", path(shm.path()), "--log", path(&log.path().join("log")), "--listen", "127.0.0.1:0"]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &[path(shm.path()), "ext4", "--durability sync"]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_port_in_use() {
    let dir = tempfile::tempdir().expect("a directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("an address").to_string();
    let o = run(&["serve", path(dir.path()), "--durability", "sync", "--listen", &addr]);
    assert_eq!(o.status.code(), Some(2));
    let said = stderr(&o);
    one_line_with(said.lines().last().unwrap_or_default(), &[&addr, "--listen"]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_directory_and_a_log_in_use_and_a_log_of_another_volume() {
    let dir = tempfile::tempdir().expect("a directory");
    let (a, b, log) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("log"));
    fs::create_dir(&a).expect("a directory");
    fs::create_dir(&b).expect("a directory");
    let first = Serving::start(&a, &log);
    let serve = |d: &Path, l: &Path| {
        run(&["serve", path(d), "--log", path(l), "--log-size", "32M", "--listen", "127.0.0.1:0"])
    };
    let o = serve(&a, &dir.path().join("log2"));
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &[path(&a), "in use"]);
    let o = serve(&b, &log);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &[path(&log), "in use"]);
    first.end(rustix::process::Signal::TERM);
    let o = serve(&b, &log);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &[path(&log), "another volume"]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn serving_without_root_names_the_capabilities() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(dir.path(), open).expect("a mode");
    // The binary may lie where others cannot go. What writes the copy is no process of ours: a child that another test starts meanwhile
    // would have it open for writing, and what is so cannot be run.
    let copy = dir.path().join("landfast");
    let copied =
        std::process::Command::new("cp").args([env!("CARGO_BIN_EXE_landfast"), path(&copy)]).status();
    assert!(copied.expect("cp runs").success());
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let o = std::process::Command::new(&copy)
        .args(["serve", path(&volume), "--log", path(&dir.path().join("log")), "--listen", "127.0.0.1:0"])
        .uid(65534)
        .gid(65534)
        .output()
        .expect("it runs");
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["root", "CAP_DAC_READ_SEARCH", "CAP_SETUID"]);
}

#[test]
fn urls_servers_and_archives_that_are_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = dir.path().join("text");
    fs::write(&text, "this is no archive\n".repeat(100)).expect("a file");
    for (archive, url, says) in [
        ("/no/such.tar", "nfs://127.0.0.1:1/", "/no/such.tar"),
        (path(&text), "nfs://127.0.0.1:1/", "text"),
        (path(&text), "http://127.0.0.1/", "nfs://"),
        (path(&text), "nfs:///", ""),
    ] {
        let o = run(&["untar", archive, url]);
        assert_eq!(o.status.code(), Some(2), "{archive} {url}: {}", stderr(&o));
        one_line_with(&stderr(&o), &[says]);
    }
    let tar = dir.path().join("t.tar");
    let mut t = tar::Builder::new(fs::File::create(&tar).expect("a file"));
    t.append_data(&mut header(1), "a", &b"x"[..]).expect("a member");
    t.finish().expect("an archive");
    drop(t);
    // Shorter than what is said meanwhile takes.
    let o = run(&["untar", "--timeout", "300ms", path(&tar), "nfs://127.0.0.1:1/"]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["127.0.0.1:1"]);
}

fn header(size: u64) -> tar::Header {
    let mut h = tar::Header::new_gnu();
    h.set_size(size);
    h.set_mode(0o644);
    h.set_mtime(1_000_000_000);
    h
}

/// A header whose name the crate would refuse.
fn raw_name(mut h: tar::Header, name: &[u8]) -> tar::Header {
    h.as_mut_bytes()[..name.len()].copy_from_slice(name);
    h.set_cksum();
    h
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn archives_that_climb_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
    fs::create_dir_all(volume.join("dest")).expect("a directory");
    fs::create_dir(&outside).expect("a directory");
    fs::write(volume.join("precious"), b"as it was").expect("a file");
    let tar = dir.path().join("evil.tar");
    let mut t = tar::Builder::new(fs::File::create(&tar).expect("a file"));
    t.append_data(&mut header(4), "good", &b"good"[..]).expect("a member");
    t.append(&raw_name(header(4), b"../precious"), &b"evil"[..]).expect("a member");
    t.append(&raw_name(header(4), b"a/../../precious"), &b"evil"[..]).expect("a member");
    let absolute = format!("{}/new", outside.display());
    t.append(&raw_name(header(4), absolute.as_bytes()), &b"evil"[..]).expect("a member");
    for (name, target) in [("up", ".."), ("away", path(&outside))] {
        let mut h = header(0);
        h.set_entry_type(tar::EntryType::Symlink);
        h.set_link_name(target).expect("a link");
        t.append_data(&mut h, name, &b""[..]).expect("a member");
    }
    t.append_data(&mut header(4), "up/precious", &b"evil"[..]).expect("a member");
    t.append_data(&mut header(4), "away/new", &b"evil"[..]).expect("a member");
    let mut h = header(0);
    h.set_entry_type(tar::EntryType::Link);
    h.set_link_name("up/precious").expect("a link");
    t.append_data(&mut h, "stolen", &b""[..]).expect("a member");
    t.append_data(&mut header(4), "last", &b"good"[..]).expect("a member");
    t.finish().expect("an archive");
    drop(t);

    let server = Serving::start(&volume, &dir.path().join("log"));
    let o = run(&["untar", path(&tar), &format!("{}dest", server.url)]);
    assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
    for name in ["../precious", "a/../../precious", "up/precious", "away/new", "stolen"] {
        assert!(stderr(&o).contains(name), "{name} is named: {}", stderr(&o));
    }
    assert_eq!(fs::read(volume.join("precious")).expect("there"), b"as it was");
    assert_eq!(fs::read_dir(&outside).expect("there").count(), 0);
    assert!(!volume.join("dest/stolen").exists());
    assert_eq!(fs::read(volume.join("dest/good")).expect("there"), b"good");
    assert_eq!(fs::read(volume.join("dest/last")).expect("there"), b"good");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_archive_that_is_cut_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let server = Serving::start(&volume, &dir.path().join("log"));
    let mut t = tar::Builder::new(Vec::new());
    for i in 0..50 {
        t.append_data(&mut header(1000), format!("f{i:02}"), &[b'x'; 1000][..]).expect("a member");
    }
    let whole = t.into_inner().expect("an archive");
    for cut in [1536 * 20 + 700, 1536 * 20 + 200] {
        let mut child = landfast()
            .args(["untar", "-", &server.url])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(&whole[..cut]).expect("it reads");
        let o = child.wait_with_output().expect("it ends");
        assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
        assert!(!stderr(&o).is_empty());
        assert_eq!(fs::read(volume.join("f19")).expect("there"), [b'x'; 1000]);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_file_on_fuse() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: needs FUSE");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (volume, disk) = (dir.path().join("volume"), dir.path().join("disk"));
    fs::create_dir(&volume).expect("a directory");
    fs::create_dir(&disk).expect("a directory");
    let mut child = landfast()
        .args(["lab", "disk", path(&disk), "64M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut ready = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut ready)
        .expect("it says when it is ready");
    let log = disk.join("disk.img");
    let o = run(&["serve", path(&volume), "--log", path(&log), "--listen", "127.0.0.1:0"]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
    child.wait().expect("it ends");
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &[path(&log), "FUSE", "block device"]);
}

/// The filesystem is not mounted, so DIR is the empty directory below it: that is no place to play the log into, or to
/// begin a new one.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_directory_whose_filesystem_is_not_mounted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (a, away, log) = (dir.path().join("a"), dir.path().join("away"), dir.path().join("log"));
    fs::create_dir(&a).expect("a directory");
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        Serving::start(&a, &log).end(signal);
        fs::rename(&a, &away).expect("moved away");
        fs::create_dir(&a).expect("the mount point");
        let o = run(&["serve", path(&a), "--log", path(&log), "--listen", "127.0.0.1:0"]);
        assert_eq!(o.status.code(), Some(2), "after {signal:?}");
        one_line_with(&stderr(&o), &[path(&log)]);
        // Of the server there may be its state directory, of the log's content nothing.
        let names = fs::read_dir(&a).expect("a directory").map(|e| e.expect("an entry").file_name());
        assert!(names.into_iter().all(|n| n == ".landfast"), "something was made there");
        fs::remove_dir_all(&a).expect("removed");
        // Nor is there anything to serve when the path leads nowhere.
        let o = run(&["serve", path(&a), "--log", path(&log), "--listen", "127.0.0.1:0"]);
        assert_eq!(o.status.code(), Some(2));
        one_line_with(&stderr(&o), &[path(&a), "no such directory"]);
        fs::rename(&away, &a).expect("mounted again");
    }
    Serving::start(&a, &log).end(rustix::process::Signal::TERM);
}
