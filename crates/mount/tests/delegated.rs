//! Mounts with `close=local` of a server that gives write directory delegations: programs do not wait for the server, and nobody sees
//! what was not flushed, or half of it.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use common::{At, Rig, can_mount, own_dir, shell};
use landfast_mount::control;

/// A mount of which nothing is sent before somebody wants it.
const LOCAL: &str = "close=local,flush_age=30";

/// An archive of so many files in five directories, and what is in it.
fn archive(rig: &Rig, files: u32) -> std::path::PathBuf {
    let work = rig.work();
    let script = format!(
        "mkdir a; for d in 1 2 3 4 5; do mkdir a/$d; for f in $(seq {}); do echo $d $f >a/$d/$f; done; done; \
         ln -s 1/1 a/link; chmod 750 a/3; touch -d @1000000 a/2/1 a/4; tar cf a.tar a",
        files / 5
    );
    shell(&work, &script);
    work.join("a.tar")
}

fn extract(at: &Path, tar: &Path) {
    shell(at, &format!("tar xf {}", tar.display()));
}

/// The second mount sees all at once: what was made is asked for by its name, so no memory of it is old.
fn same(one: &Path, other: &Path) {
    shell(one, &format!("diff -r . {}", other.display()));
    let list =
        |dir: &Path| shell(dir, "find . -printf '%P %y %m %s %l %T@\\n' | sed 's/\\.[0-9]*$//' | sort");
    // Sizes of directories are their filesystem's.
    let list = |dir: &Path| {
        let all = list(dir);
        let line = |l: &str| {
            let mut f: Vec<&str> = l.split(' ').collect();
            if f.get(1) == Some(&"d") {
                f[3] = "";
            }
            f.join(" ")
        };
        all.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(list(one), list(other));
}

#[test]
fn tar_does_not_wait_and_a_second_client_sees_all_of_it() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let tar = archive(&rig, 200);
    let (one, two) = (rig.mount_local(LOCAL), rig.mount_with("4.2", "actimeo=0"));
    let cost = one.rpcs(|| extract(one.path(), &tar));
    eprintln!("tar: {cost} requests before it ends");
    assert!(cost <= 12, "{cost}");
    assert!(one.state("changes on their way") >= 200);
    assert!(!rig.dest().join("a/1").exists());
    let cost = one.rpcs(|| assert!(control::sync(one.path()).unwrap().is_empty()));
    eprintln!("sync: {cost} requests for 200 files");
    assert!(cost <= 40, "{cost}");
    assert_eq!((one.state("changes on their way"), one.state("dirty files")), (0, 0));
    same(&rig.work().join("a"), &two.join("a"));
    same(&rig.work().join("a"), &one.join("a"));
    // Its directories were recalled by who looked.
    assert!(one.state("recalls") > 0);
    assert_eq!(one.unmount(), Vec::<String>::new());
}

#[test]
fn who_looks_sees_what_was_made_before_with_its_content() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let tar = archive(&rig, 100);
    let (one, two) = (rig.mount_local(LOCAL), rig.mount_with("4.2", "actimeo=0"));
    extract(one.path(), &tar);
    assert!(one.state("changes on their way") >= 100);
    // Nobody syncs.
    same(&rig.work().join("a"), &two.join("a"));
    // And the first one goes on after that.
    fs::write(one.join("a/1/more"), "more").unwrap();
    assert_eq!(fs::read_to_string(two.join("a/1/more")).unwrap(), "more");
    fs::remove_file(two.join("a/1/more")).unwrap();
    assert_eq!(one.unmount(), Vec::<String>::new());
}

#[test]
fn names_and_attributes_change_here_and_there_alike() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let one = rig.mount_local(LOCAL);
    fs::create_dir(one.join("d")).unwrap();
    let d = one.join("d");
    let cost = one.rpcs(|| {
        fs::write(d.join("a"), "a").unwrap();
        fs::rename(d.join("a"), d.join("b")).unwrap();
        fs::write(d.join("gone"), "gone").unwrap();
        fs::remove_file(d.join("gone")).unwrap();
        fs::create_dir(d.join("e")).unwrap();
        fs::write(d.join("e/x"), "x").unwrap();
        fs::write(d.join("e/y"), "y").unwrap();
        fs::rename(d.join("e/x"), d.join("e/y")).unwrap();
        fs::create_dir(d.join("empty")).unwrap();
        fs::remove_dir(d.join("empty")).unwrap();
        symlink("e/y", d.join("l")).unwrap();
        fs::set_permissions(d.join("b"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(d.join("e"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(fs::read_to_string(d.join("l")).unwrap(), "x");
        assert_eq!(fs::read_link(d.join("l")).unwrap(), Path::new("e/y"));
        assert!(fs::remove_dir(d.join("e")).unwrap_err().raw_os_error() == Some(libc::ENOTEMPTY));
        assert!(File::create_new(d.join("b")).is_err() && fs::create_dir(d.join("b")).is_err());
        let names: Vec<_> = fs::read_dir(&d).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["b", "e", "l"]);
    });
    // What the test itself asks for the state.
    assert!(cost <= 2, "{cost}");
    assert!(!rig.dest().join("d/b").exists());
    // fsync of a directory makes all below it stable.
    File::open(&d).unwrap().sync_all().unwrap();
    let there = rig.dest().join("d");
    assert_eq!(shell(&there, "find . | sort"), ".\n./b\n./e\n./e/y\n./l\n");
    assert_eq!(fs::read_to_string(there.join("e/y")).unwrap(), "x");
    let mode = |p: &str| fs::metadata(there.join(p)).unwrap().mode() & 0o7777;
    assert_eq!((mode("b"), mode("e")), (0o640, 0o700));
    // And what the server knows changes here first, too.
    let cost = one.rpcs(|| {
        fs::rename(d.join("b"), d.join("c")).unwrap();
        fs::set_permissions(d.join("c"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(d.join("e/y")).unwrap();
        fs::remove_dir(d.join("e")).unwrap();
    });
    assert!(cost <= 2, "{cost}");
    assert!(there.join("b").exists() && there.join("e/y").exists());
    assert!(control::sync(one.path()).unwrap().is_empty());
    assert_eq!(shell(&there, "find . | sort"), ".\n./c\n./l\n");
    assert_eq!(mode("c"), 0o600);
    assert_eq!(one.unmount(), Vec::<String>::new());
}

#[test]
fn fsync_of_a_file_makes_it_and_its_directories_stable_and_nothing_else_waits() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let one = rig.mount_local(LOCAL);
    fs::create_dir(one.join("d")).unwrap();
    fs::create_dir_all(one.join("d/e/f")).unwrap();
    fs::create_dir(one.join("d/other")).unwrap();
    fs::write(one.join("d/other/x"), "x").unwrap();
    let mut f = File::create_new(one.join("d/e/f/file")).unwrap();
    f.write_all(b"text").unwrap();
    f.sync_all().unwrap();
    assert_eq!(fs::read_to_string(rig.dest().join("d/e/f/file")).unwrap(), "text");
    assert!(!rig.dest().join("d/other/x").exists());
    // What is written to it now goes as with any file.
    f.write_all(b" more").unwrap();
    drop(f);
    assert_eq!(fs::read_to_string(rig.dest().join("d/e/f/file")).unwrap(), "text more");
    // A large file is made as it grows.
    fs::write(one.join("d/other/large"), vec![7; 3 << 20]).unwrap();
    assert_eq!(fs::metadata(one.join("d/other/large")).unwrap().len(), 3 << 20);
    assert!(control::sync(one.path()).unwrap().is_empty());
    assert!(fs::read(rig.dest().join("d/other/large")).unwrap() == vec![7; 3 << 20]);
    // One that is removed while it is open stays until its close.
    let mut kept =
        OpenOptions::new().read(true).write(true).create_new(true).open(one.join("d/kept")).unwrap();
    kept.write_all(b"kept").unwrap();
    fs::remove_file(one.join("d/kept")).unwrap();
    let mut text = String::new();
    std::io::Seek::rewind(&mut kept).unwrap();
    std::io::Read::read_to_string(&mut kept, &mut text).unwrap();
    assert_eq!(text, "kept");
    drop(kept);
    assert_eq!(one.unmount(), Vec::<String>::new());
    assert_eq!(shell(&rig.dest().join("d"), "ls -A"), "e\nother\n");
}

#[test]
fn what_is_appended_goes_behind_what_was_synced_whatever_was_renamed_in_between() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let one = rig.mount_local(LOCAL);
    let own = one.own_dir("own");
    let mut f = OpenOptions::new().append(true).create_new(true).open(own.join("f")).unwrap();
    f.write_all(b"0").unwrap();
    f.sync_all().unwrap();
    fs::rename(own.join("f"), own.join("g")).unwrap();
    f.write_all(b"A").unwrap();
    f.sync_all().unwrap();
    f.write_all(b"B").unwrap();
    drop(f);
    one.sync();
    let there = rig.dest().join(own.file_name().unwrap());
    assert_eq!(fs::read_to_string(there.join("g")).unwrap(), "0AB");
    assert_eq!(one.unmount(), Vec::<String>::new());
}

#[test]
fn what_is_old_is_sent_by_itself_and_unmounting_sends_the_rest() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let one = rig.mount_local("close=local,flush_age=0.1");
    fs::create_dir(one.join("d")).unwrap();
    fs::write(one.join("d/f"), "text").unwrap();
    let begin = std::time::Instant::now();
    while !fs::read_to_string(rig.dest().join("d/f")).is_ok_and(|t| t == "text") {
        assert!(begin.elapsed().as_secs() < 20);
        std::thread::yield_now();
    }
    drop(one);
    let one = rig.mount_local(LOCAL);
    for n in 0..50 {
        fs::write(one.join(&format!("d/{n}")), "text").unwrap();
    }
    assert_eq!(one.unmount(), Vec::<String>::new());
    assert_eq!(fs::read_dir(rig.dest().join("d")).unwrap().count(), 51);
}

#[test]
fn an_error_after_the_program_was_told_otherwise_is_told_to_whoever_asks() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let one = rig.mount_local(LOCAL);
    fs::create_dir(one.join("d")).unwrap();
    assert!(control::sync(one.path()).unwrap().is_empty());
    // A program on the server itself is not seen by delegations.
    fs::write(rig.dest().join("d/taken"), "theirs").unwrap();
    fs::create_dir(rig.dest().join("d/dir")).unwrap();
    let mut f = File::create_new(one.join("d/taken")).unwrap();
    f.write_all(b"ours").unwrap();
    fs::write(one.join("d/between"), "fine").unwrap();
    fs::create_dir(one.join("d/dir")).unwrap();
    fs::write(one.join("d/dir/below"), "lost").unwrap();
    fs::write(one.join("d/last"), "fine").unwrap();
    assert_eq!(f.sync_all().unwrap_err().raw_os_error(), Some(libc::EEXIST));
    // It is kept beside the other one, and the program goes on in it.
    f.write_all(b" and more").unwrap();
    drop(f);
    let dir = File::open(one.join("d")).unwrap();
    assert_eq!(dir.sync_all().unwrap_err().raw_os_error(), Some(libc::EEXIST));
    dir.sync_all().unwrap();
    drop(dir);
    let lost = control::sync(one.path()).unwrap();
    let mut paths: Vec<&str> = lost.iter().filter_map(|l| l.split(':').next()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["d/dir", "d/taken"], "{lost:?}");
    assert!(control::sync(one.path()).unwrap().is_empty());
    assert_eq!(fs::read_to_string(rig.dest().join("d/taken")).unwrap(), "theirs");
    let found =
        "cat between last; ls dir; cat dir.landfast-conflict-*-1/below; cat taken.landfast-conflict-*-1";
    assert_eq!(shell(&rig.dest().join("d"), found), "finefinelostours and more");
    assert_eq!(shell(&one.join("d"), found), "finefinelostours and more");
    assert_eq!(fs::read_to_string(one.join("d/taken")).unwrap(), "theirs");
    assert_eq!(one.unmount(), Vec::<String>::new());
}

#[test]
fn what_comes_behind_a_rename_that_failed_replaces_nothing_else() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let one = rig.mount_local(LOCAL);
    fs::create_dir(one.join("d")).unwrap();
    fs::write(one.join("d/a"), "good").unwrap();
    fs::write(one.join("d/a.new"), "new").unwrap();
    assert!(control::sync(one.path()).unwrap().is_empty());
    // A program on the server itself is not seen by delegations.
    shell(&rig.dest(), "mkdir -p d/a.bak/full");
    fs::rename(one.join("d/a"), one.join("d/a.bak")).unwrap();
    fs::rename(one.join("d/a.new"), one.join("d/a")).unwrap();
    fs::write(one.join("d/last"), "fine").unwrap();
    let lost = control::sync(one.path()).unwrap();
    let paths: Vec<&str> = lost.iter().filter_map(|l| l.split(':').next()).collect();
    assert_eq!(paths, ["d/a", "d/a.new"], "{lost:?}");
    assert_eq!(shell(&rig.dest().join("d"), "cat a a.new last"), "goodnewfine");
    assert_eq!(shell(&one.join("d"), "cat a a.new last"), "goodnewfine");
    assert_eq!(one.unmount(), Vec::<String>::new());
}

#[test]
fn a_server_that_restarts_gets_everything_once() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::delegating();
    let tar = archive(&rig, 100);
    let one = rig.mount_local("close=local,flush_age=0.05");
    let mut tar = Command::new("tar").arg("xf").arg(tar).current_dir(one.path()).spawn().unwrap();
    rig.stop();
    rig.start();
    assert!(tar.wait().unwrap().success());
    assert_eq!(control::sync(one.path()).unwrap(), Vec::<String>::new());
    same(&rig.work().join("a"), &rig.dest().join("a"));
    let own = one.own_dir("own");
    rig.stop();
    fs::write(own.join("while it is away"), "text").unwrap();
    rig.start();
    let there = rig.dest().join(own.file_name().unwrap());
    assert_eq!(one.unmount(), Vec::<String>::new());
    assert_eq!(fs::read_to_string(there.join("while it is away")).unwrap(), "text");
}

#[test]
fn programs_go_on_for_a_while_without_the_server_and_then_wait_and_can_be_killed() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::delegating();
    let one = rig.mount_local("close=local,flush_age=0.05,offline=1");
    let own = one.own_dir("own");
    rig.stop();
    let program = "n=0; while : ; do n=$((n+1)); echo $n >$n; echo $n; done";
    let mut writer = Command::new("sh");
    let writer = writer.args(["-c", program]).current_dir(&own);
    let mut writer = writer.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let begin = std::time::Instant::now();
    while one.state("programs wait for the server") == 0 {
        assert!(begin.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    assert!(begin.elapsed().as_secs_f64() > 1.0, "not before its time");
    // It waits now, and hears that it is to end.
    writer.kill().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut writer.stdout.take().unwrap(), &mut said).unwrap();
    writer.wait().unwrap();
    let done = said.lines().count();
    assert!(done > 0);
    rig.start();
    assert_eq!(control::sync(one.path()).unwrap(), Vec::<String>::new());
    let there = rig.dest().join(own.file_name().unwrap());
    for n in 1..=done {
        assert_eq!(fs::read_to_string(there.join(n.to_string())).unwrap(), format!("{n}\n"));
    }
    assert_eq!(one.state("programs wait for the server"), 0);
    fs::write(own.join("after"), "after").unwrap();
    assert_eq!(one.unmount(), Vec::<String>::new());
    assert!(there.join("after").exists());
}

#[test]
fn rfc8881_20_6_the_directories_that_were_not_used_for_longest_are_returned_before_there_are_too_many() {
    if !can_mount() {
        return;
    }
    const OPENS: u64 = 64;
    let rig = Rig::delegating_with(OPENS as usize);
    let one = rig.mount_local("close=local,flush_age=0.05");
    let mut most = 0;
    for n in 0..4 * OPENS {
        fs::create_dir(one.join(&n.to_string())).unwrap();
        fs::write(one.join(&format!("{n}/f")), n.to_string()).unwrap();
        one.sync();
        most = most.max(one.state("directory delegations"));
    }
    // The server asks when seven eighths are used, and gives none beyond fifteen sixteenths.
    assert!((OPENS / 8 * 6..=OPENS).contains(&most), "{most}");
    assert!(one.state("delegations given back, of our choice") > 0);
    for n in 0..4 * OPENS {
        assert_eq!(fs::read_to_string(rig.dest().join(format!("{n}/f"))).unwrap(), n.to_string());
    }
    assert_eq!(one.unmount(), Vec::<String>::new());
}

#[test]
fn a_directory_that_is_there_becomes_this_mounts_own_and_another_clients_look_ends_that() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    shell(&rig.dest(), "mkdir d; for f in $(seq 30); do echo $f >d/$f; done");
    let one = rig.mount_local(LOCAL);
    let before = one.state("directory delegations");
    fs::write(one.join("d/new"), "new").unwrap();
    fs::write(one.join("d/second"), "second").unwrap();
    assert_eq!(one.state("directory delegations"), before + 1);
    let cost = one.rpcs(|| {
        for f in 1..=30 {
            fs::remove_file(one.join(&format!("d/{f}"))).unwrap();
        }
    });
    assert!(cost <= 2, "{cost}");
    assert!(rig.dest().join("d/30").exists());
    let two = rig.mount_with("4.2", "actimeo=0");
    assert_eq!(shell(&two.join("d"), "ls"), "new\nsecond\n");
    assert!(one.state("directory delegations") <= before);
    // Both may work in it.
    fs::write(two.join("d/theirs"), "theirs").unwrap();
    assert_eq!(fs::read_to_string(one.join("d/theirs")).unwrap(), "theirs");
    assert_eq!(one.unmount(), Vec::<String>::new());
}

#[test]
fn across_directories_the_server_is_asked() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let one = rig.mount_local(LOCAL);
    fs::create_dir(one.join("a")).unwrap();
    fs::create_dir(one.join("b")).unwrap();
    fs::write(one.join("a/f"), "f").unwrap();
    fs::rename(one.join("a/f"), one.join("b/g")).unwrap();
    assert_eq!(fs::read_to_string(rig.dest().join("b/g")).unwrap(), "f");
    fs::hard_link(one.join("b/g"), one.join("a/h")).unwrap();
    assert_eq!(fs::metadata(rig.dest().join("a/h")).unwrap().nlink(), 2);
    fs::create_dir_all(one.join("a/x/y")).unwrap();
    fs::write(one.join("a/x/y/z"), "z").unwrap();
    fs::rename(one.join("a/x"), one.join("b/x")).unwrap();
    assert_eq!(fs::read_to_string(one.join("b/x/y/z")).unwrap(), "z");
    shell(one.path(), "mkfifo a/fifo; rm -r b");
    assert_eq!(one.unmount(), Vec::<String>::new());
    assert_eq!(shell(&rig.dest(), "find . | sort"), ".\n./a\n./a/fifo\n./a/h\n");
}

#[test]
fn close_waits_where_the_server_gives_no_delegations() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    for version in ["3", "4.0", "4.2"] {
        let one = rig.mount_with(version, LOCAL);
        let d = format!("d{version}");
        fs::create_dir(one.join(&d)).unwrap();
        for n in 0..5 {
            fs::write(one.join(&format!("{d}/{n}")), "text").unwrap();
            assert_eq!(fs::read_to_string(rig.dest().join(format!("{d}/{n}"))).unwrap(), "text");
        }
        assert_eq!(one.state("directory delegations"), 0);
    }
}

/// The files of a tree and their content.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => {
                all.extend(files(&entry.path()).into_iter().map(|(k, v)| (format!("{name}/{k}"), v)));
            }
            false => _ = all.insert(name, fs::read(entry.path()).unwrap()),
        }
    }
    all
}

const CHILD: &str = "LANDFAST_TEST_MOUNT_OF_ITS_OWN";

/// A mount in a process of its own: this program, called again for one of its tests.
struct Child {
    process: std::process::Child,
    at: std::path::PathBuf,
}

impl Child {
    /// In that process: serves the mount until it is told to end, and ends. Elsewhere: nothing.
    fn serve() {
        if let Some(url) = std::env::var_os(CHILD) {
            let at = At::new(&url.into_string().unwrap(), &std::env::var("OPTIONS").unwrap());
            println!("{}", at.path().display());
            // Until it is killed, or its caller ends.
            std::io::stdin().read_line(&mut String::new()).unwrap();
            drop(at);
            std::process::exit(0);
        }
    }

    fn new(rig: &Rig, test: &str, options: &str) -> Child {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .env(CHILD, format!("nfs://{}/dest?version=4.2", rig.addr()))
            .env("OPTIONS", options)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = Child { process, at: std::path::PathBuf::new() };
        let mut out = std::io::BufReader::new(child.process.stdout.take().unwrap());
        loop {
            let mut line = String::new();
            assert!(std::io::BufRead::read_line(&mut out, &mut line).unwrap() > 0);
            if let Some(path) = line.find("/var/tmp/").map(|p| line[p..].trim().to_owned()) {
                child.at = path.into();
                return child;
            }
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.at);
    }
}

#[test]
fn a_mount_that_dies_leaves_a_prefix_of_each_directory_with_whole_files() {
    Child::serve();
    if !can_mount() {
        return;
    }
    const ROUNDS: usize = 2;
    let mut rig = Rig::delegating();
    for round in 0..ROUNDS {
        let name = format!("r{round}");
        let test = "a_mount_that_dies_leaves_a_prefix_of_each_directory_with_whole_files";
        let child = Child::new(&rig, test, "close=local,flush_age=0.02");
        let dir = child.at.join(&name);
        fs::create_dir(&dir).unwrap();
        let killed = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // It writes until it cannot any more.
                for d in 0..1000 {
                    let one = dir.join(d.to_string());
                    let made = fs::create_dir(&one).and_then(|()| {
                        (0..20).try_for_each(|f| fs::write(one.join(format!("{f:02}")), [f as u8 + 1; 700]))
                    });
                    if made.is_err() {
                        return;
                    }
                }
                assert!(killed.load(std::sync::atomic::Ordering::Acquire), "nobody killed it");
            });
            // Some of it is there.
            while files(&rig.dest()).len() < 30 + 40 * round {
                std::thread::yield_now();
            }
            killed.store(true, std::sync::atomic::Ordering::Release);
            drop(child);
        });
    }
    // A request that was under way is executed to its end.
    rig.stop();
    for round in 0..ROUNDS {
        let there = rig.dest().join(format!("r{round}"));
        let dirs = fs::read_dir(&there).unwrap().count();
        for d in 0..dirs {
            let found = files(&there.join(d.to_string()));
            let expected: BTreeMap<String, Vec<u8>> =
                (0..found.len()).map(|f| (format!("{f:02}"), vec![f as u8 + 1; 700])).collect();
            let sizes: Vec<_> = found.iter().map(|(name, data)| (name, data.len())).collect();
            assert!(found == expected, "{round}/{d}: {sizes:?}");
        }
    }
}

#[test]
#[ignore = "waits for two leases"]
fn what_somebody_has_taken_after_a_delegation_was_lost_is_theirs_and_an_error() {
    Child::serve();
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let test = "what_somebody_has_taken_after_a_delegation_was_lost_is_theirs_and_an_error";
    let one = Child::new(&rig, test, LOCAL);
    let two = rig.mount_with("4.2", "actimeo=0");
    let own = own_dir(&one.at, "d");
    let d = own.file_name().unwrap().to_str().unwrap();
    for name in ["old", "replaced", "moved", "gone", "saved"] {
        fs::write(own.join(name), name).unwrap();
    }
    assert!(control::sync(&one.at).unwrap().is_empty());
    fs::write(own.join("new"), "new").unwrap();
    fs::write(own.join("taken"), "ours").unwrap();
    for name in ["old", "replaced"] {
        fs::remove_file(own.join(name)).unwrap();
    }
    fs::rename(own.join("moved"), own.join("to")).unwrap();
    fs::write(own.join("ours"), "ours").unwrap();
    fs::rename(own.join("ours"), own.join("saved")).unwrap();
    fs::create_dir(own.join("dir")).unwrap();
    fs::write(own.join("dir/below"), "below").unwrap();
    one.signal(rustix::process::Signal::STOP);
    // It does not answer the recall, so the server takes the directory back after a lease.
    fs::write(two.join(d).join("taken"), "theirs").unwrap();
    fs::write(two.join(d).join("other"), "theirs").unwrap();
    fs::rename(two.join(d).join("other"), two.join(d).join("replaced")).unwrap();
    fs::write(two.join(d).join("other"), "theirs").unwrap();
    fs::rename(two.join(d).join("other"), two.join(d).join("saved")).unwrap();
    one.signal(rustix::process::Signal::CONT);
    let lost = control::sync(&one.at).unwrap();
    let mut paths: Vec<&str> = lost.iter().filter_map(|l| l.split(": ").next()).collect();
    paths.sort_unstable();
    let expected = ["replaced", "saved", "taken"].map(|name| format!("{d}/{name}"));
    assert_eq!(paths, expected, "{lost:?}");
    let names = shell(
        &two.join(d),
        "find . -type f | sed s/conflict-.*-/conflict-HOST-/ | sort; cat taken replaced saved new to dir/below; \
         cat saved.* taken.*",
    );
    let expected = "./dir/below\n./gone\n./new\n./replaced\n./saved\n./saved.landfast-conflict-HOST-1\n./taken\n\
                    ./taken.landfast-conflict-HOST-1\n./to\n";
    assert_eq!(names, format!("{expected}theirstheirstheirsnewmovedbelowoursours"));
    let here = shell(&own, "cat taken; ls | sed s/conflict-.*-/conflict-HOST-/");
    let expected = "dir\ngone\nnew\nreplaced\nsaved\nsaved.landfast-conflict-HOST-1\ntaken\n\
                    taken.landfast-conflict-HOST-1\nto\n";
    assert_eq!(here, format!("theirs{expected}"));
}
