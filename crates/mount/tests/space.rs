//! A server that becomes full, with `close=local`: the program that writes is told, and nothing that it was told is done is lost.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use common::{Rig, shell};
use landfast_mount::control;

/// What a program was told is there: the file's name, and so much of its data.
type Done = Vec<(String, usize)>;

/// The data of file `n`.
fn data(n: usize) -> Vec<u8> {
    // From less than a block to more than a file that is sent in one COMPOUND.
    let len = [100, 9_000, 70_000, 300_000, 1_500_000][n % 5];
    (0..len).map(|at| (at / 7 + n) as u8).collect()
}

/// Makes files until the disk is full. Returns what was done before, and the error.
fn fill(dir: &Path) -> (Done, i32) {
    let mut done = Vec::new();
    for n in 0.. {
        let name = format!("{}/{n}", n / 20);
        if n % 20 == 0
            && let Err(e) = fs::create_dir(dir.join(format!("{}", n / 20)))
        {
            return (done, e.raw_os_error().unwrap());
        }
        let mut file = match File::create_new(dir.join(&name)) {
            Ok(file) => file,
            Err(e) => return (done, e.raw_os_error().unwrap()),
        };
        let data = data(n);
        done.push((name, 0));
        while done.last().unwrap().1 < data.len() {
            let at = done.last().unwrap().1;
            match file.write(&data[at..data.len().min(at + 250_000)]) {
                Ok(more) => done.last_mut().unwrap().1 += more,
                Err(e) => return (done, e.raw_os_error().unwrap()),
            }
        }
    }
    unreachable!("it is full one day")
}

/// All that the program was told is there.
fn check(there: &Path, done: &Done) {
    for (n, (name, len)) in done.iter().enumerate() {
        let found = fs::read(there.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found.len() >= *len && found[..*len] == data(n)[..*len], "{name}: {} of {len}", found.len());
    }
}

#[test]
fn who_fills_the_disk_is_told_when_he_writes_and_loses_nothing() {
    let Some(rig) = Rig::delegating_on_disk(64) else { return };
    let one = rig.mount_local("close=local,flush_age=5");
    let dir = one.own_dir("full");
    let before = one.state("rpcs");
    let (done, error) = fill(&dir);
    eprintln!("{} files, {} requests", done.len(), one.state("rpcs") - before);
    assert_eq!(error, libc::ENOSPC);
    assert_eq!(control::sync(one.path()).unwrap(), Vec::<String>::new());
    let there = rig.dest().join(dir.file_name().unwrap());
    check(&there, &done);
    let bytes: usize = done.iter().map(|(_, len)| len).sum();
    assert!(bytes > 40 << 20, "{bytes}");
    // There is room again, and most of it need not be asked for.
    shell(&dir, "rm -r 0 1");
    assert_eq!(control::sync(one.path()).unwrap(), Vec::<String>::new());
    fs::write(dir.join("small"), "text").unwrap();
    assert_eq!(one.unmount(), Vec::<String>::new());
    assert_eq!(fs::read_to_string(there.join("small")).unwrap(), "text");
}

#[test]
fn two_who_fill_the_disk_at_once_take_nothing_from_each_other() {
    let Some(rig) = Rig::delegating_on_disk(64) else { return };
    let (one, two) = (rig.mount_local("close=local,flush_age=5"), rig.mount_local("close=local,flush_age=5"));
    let dirs = [one.own_dir("one"), two.own_dir("two")];
    let filled = std::thread::scope(|scope| {
        let work = dirs.each_ref().map(|dir| scope.spawn(|| fill(dir)));
        work.map(|work| work.join().unwrap())
    });
    for (at, (dir, (done, error))) in [&one, &two].into_iter().zip(dirs.iter().zip(&filled)) {
        assert_eq!(*error, libc::ENOSPC);
        assert_eq!(control::sync(at.path()).unwrap(), Vec::<String>::new());
        check(&rig.dest().join(dir.file_name().unwrap()), done);
    }
    assert_eq!((one.unmount(), two.unmount()), (Vec::<String>::new(), Vec::<String>::new()));
}

#[test]
fn what_is_kept_for_one_is_not_taken_by_a_client_without_delegations() {
    let Some(rig) = Rig::delegating_on_disk(64) else { return };
    let one = rig.mount_local("close=local,flush_age=30");
    let dir = one.own_dir("own");
    for n in 0..40 {
        fs::write(dir.join(n.to_string()), vec![n as u8; 100_000]).unwrap();
    }
    assert!(one.state("changes on their way") >= 40);
    // It takes all that it gets, by another version.
    let two = rig.mount_with("3", "");
    let mut all = File::create(two.join("all")).unwrap();
    let taken = all.write_all(&vec![1; 64 << 20]).and_then(|()| all.sync_all()).unwrap_err();
    drop(all);
    assert_eq!(taken.raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(control::sync(one.path()).unwrap(), Vec::<String>::new());
    for n in 0..40 {
        let there = rig.dest().join(dir.file_name().unwrap()).join(n.to_string());
        assert!(fs::read(there).unwrap() == vec![n as u8; 100_000]);
    }
    assert_eq!(one.unmount(), Vec::<String>::new());
}

/// Bytes that a filesystem has for users.
fn left(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).unwrap();
    stat.f_bavail * stat.f_frsize
}

/// Files that wait: close=local, and nothing is due.
fn waiting(at: &common::At, dir: &Path) -> u64 {
    for n in 0..30 {
        fs::write(dir.join(n.to_string()), vec![n as u8; 100_000]).unwrap();
    }
    let waits = at.state("dirty bytes");
    assert!(waits >= 3_000_000, "{waits}");
    waits
}

#[test]
fn space_that_a_program_allocates_is_not_that_of_what_waits() {
    let Some(rig) = Rig::delegating_on_disk(64) else { return };
    let one = rig.mount_local("close=local,flush_age=30");
    let dir = one.own_dir("own");
    let file = File::create(dir.join("large")).unwrap();
    file.sync_all().unwrap();
    let waits = waiting(&one, &dir);
    // Where there is room for both, nothing waits for the other.
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert!(one.state("changes on their way") >= 30);
    // There is so much, but not for both.
    let most = left(&rig.dest()) - waits / 2;
    let refused =
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 1 << 20, most).unwrap_err();
    assert_eq!(refused, rustix::io::Errno::NOSPC);
    one.sync();
    drop(file);
    assert_eq!(one.unmount(), Vec::<String>::new());
    let there = rig.dest().join(dir.file_name().unwrap());
    for n in 0..30 {
        assert!(fs::read(there.join(n.to_string())).unwrap() == vec![n as u8; 100_000]);
    }
}

#[test]
fn space_that_a_copy_takes_is_not_that_of_what_waits() {
    let Some(rig) = Rig::delegating_on_disk(64) else { return };
    let one = rig.mount_local("close=local,flush_age=30");
    let dir = one.own_dir("own");
    let source_len = 16 << 20;
    fs::write(dir.join("source"), vec![7; source_len]).unwrap();
    let copy = File::create(dir.join("copy")).unwrap();
    copy.sync_all().unwrap();
    one.sync();
    let source = File::open(dir.join("source")).unwrap();
    let waits = waiting(&one, &dir);
    // Somebody on the server leaves room for the copy, but not for all that waits beside it.
    let other = File::create(rig.dest().join("other")).unwrap();
    let taken = left(&rig.dest()) - source_len as u64 - waits / 2;
    rustix::fs::fallocate(&other, rustix::fs::FallocateFlags::empty(), 0, taken).unwrap();
    let done = rustix::fs::copy_file_range(source.as_fd(), None, copy.as_fd(), None, source_len);
    eprintln!("copied: {done:?}");
    assert!(done.map_or(true, |count| count < source_len), "the others have the first claim: {done:?}");
    one.sync();
    drop((source, copy));
    assert_eq!(one.unmount(), Vec::<String>::new());
}
