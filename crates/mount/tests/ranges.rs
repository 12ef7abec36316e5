//! Holes, space and copies through the kernel: fallocate(2), lseek(2) with SEEK_HOLE and SEEK_DATA, copy_file_range(2).

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use common::{At, Rig, can_mount, has, shell};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

const BLOCK: u64 = 4096;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Mounts on which files are held back, are made at once, or belong to a directory of the mount's own; with their names.
fn mounts() -> Vec<(Rig, At, &'static str)> {
    let plain = || Rig::new();
    let with = |rig: Rig, options: &str| {
        let at = rig.mount_with("4.2", options);
        (rig, at)
    };
    let mut all = Vec::new();
    for (name, options) in [("held", ""), ("at once", "hold=0")] {
        let (rig, at) = with(plain(), options);
        all.push((rig, at, name));
    }
    let rig = Rig::delegating();
    let at = rig.mount_local("close=local");
    all.push((rig, at, "close=local"));
    all
}

#[test]
fn a_hole_is_punched_into_what_is_still_on_its_way() {
    if !can_mount() {
        return;
    }
    for (rig, at, name) in mounts() {
        let f = open(&at.join("f"));
        f.write_all_at(&[7; 5 * BLOCK as usize], 0).unwrap();
        fallocate(&f, PUNCH, BLOCK, 2 * BLOCK).unwrap();
        let mut wanted = vec![7; 5 * BLOCK as usize];
        wanted[BLOCK as usize..3 * BLOCK as usize].fill(0);
        assert!(fs::read(at.join("f")).unwrap() == wanted, "{name}");
        assert_eq!(seek(&f, SeekFrom::Hole(0)), Ok(BLOCK), "{name}");
        assert_eq!(seek(&f, SeekFrom::Data(BLOCK)), Ok(3 * BLOCK), "{name}");
        assert_eq!(seek(&f, SeekFrom::Hole(3 * BLOCK)), Ok(5 * BLOCK), "{name}: the end is a hole");
        assert_eq!(seek(&f, SeekFrom::Data(5 * BLOCK)), Err(Errno::NXIO), "{name}");
        // Written and not synced, it is data.
        f.write_all_at(b"x", BLOCK).unwrap();
        assert_eq!(seek(&f, SeekFrom::Data(BLOCK)), Ok(BLOCK), "{name}");
        drop(f);
        at.sync();
        wanted[BLOCK as usize] = b'x';
        assert!(fs::read(rig.dest().join("f")).unwrap() == wanted, "{name}");
    }
}

#[test]
fn space_is_allocated_and_the_size_moves_as_on_a_local_disk() {
    if !can_mount() {
        return;
    }
    for (rig, at, name) in mounts() {
        let f = open(&at.join("f"));
        f.write_all_at(b"begin", 0).unwrap();
        fallocate(&f, FallocateFlags::empty(), 0, 4 * BLOCK).unwrap();
        assert_eq!(f.metadata().unwrap().len(), 4 * BLOCK, "{name}");
        assert_eq!(fs::metadata(rig.dest().join("f")).unwrap().blocks() * 512, 4 * BLOCK, "{name}");
        // Zeros in place of data, and beyond the end.
        f.write_all_at(&[9; BLOCK as usize], BLOCK).unwrap();
        fallocate(&f, FallocateFlags::ZERO_RANGE, BLOCK, 5 * BLOCK).unwrap();
        let mut wanted = vec![0; 6 * BLOCK as usize];
        wanted[..5].copy_from_slice(b"begin");
        assert!(fs::read(at.join("f")).unwrap() == wanted, "{name}");
        for flags in [FallocateFlags::KEEP_SIZE, FallocateFlags::COLLAPSE_RANGE] {
            assert_eq!(fallocate(&f, flags, 0, BLOCK), Err(Errno::OPNOTSUPP), "{name}: {flags:?}");
        }
        // Holes change no size.
        fallocate(&f, PUNCH, 5 * BLOCK, 9 * BLOCK).unwrap();
        assert_eq!(f.metadata().unwrap().len(), 6 * BLOCK, "{name}");
    }
}

#[test]
fn the_server_copies_what_was_written_before_and_no_byte_passes_here() {
    if !can_mount() {
        return;
    }
    for (rig, at, name) in mounts() {
        let data: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
        let (from, to) = (open(&at.join("from")), open(&at.join("to")));
        from.write_all_at(&data, 0).unwrap();
        to.write_all_at(&[1; 100], 0).unwrap();
        let (mut source, mut target) = (1000, 50);
        let (sent, received) = (at.state("bytes sent"), at.state("bytes received"));
        let mut copied = 0;
        loop {
            match copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 1 << 30).unwrap() {
                0 => break,
                n => copied += n,
            }
        }
        assert_eq!(copied, data.len() - 1000, "{name}");
        // What was written before is sent, once; nothing is read.
        assert!(at.state("bytes sent") - sent < data.len() as u64 + 100_000, "{name}");
        assert!(at.state("bytes received") - received < 100_000, "{name}");
        let mut wanted = vec![1; 50];
        wanted.extend_from_slice(&data[1000..]);
        assert!(fs::read(at.join("to")).unwrap() == wanted, "{name}");
        drop((from, to));
        at.sync();
        assert!(fs::read(rig.dest().join("to")).unwrap() == wanted, "{name}");
        // Within a file the kernel reads and writes.
        let f = open(&at.join("to"));
        let (mut source, mut target) = (0, 3_500_000);
        assert_eq!(copy_file_range(&f, Some(&mut source), &f, Some(&mut target), 10), Ok(10), "{name}");
        assert_eq!(fs::read(at.join("to")).unwrap()[3_500_000..], [1; 10], "{name}");
    }
}

#[test]
fn a_mapping_that_is_not_written_yet_is_data() {
    if !can_mount() || !has("python3") {
        return;
    }
    let rig = Rig::new();
    let at = rig.mount("4.2");
    let script = "import mmap, os, sys
f = os.open('f', os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 1 << 20)
os.fsync(f)
m = mmap.mmap(f, 1 << 20)
m[8192] = 1
print(os.lseek(f, 0, os.SEEK_DATA))";
    let told = Command::new("python3").args(["-c", script]).current_dir(at.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout), "8192\n", "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn programs_keep_holes_and_others_versions_read_and_write() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    for version in ["3", "4.0", "4.1", "4.2"] {
        let at = rig.mount(version);
        let script = format!(
            "truncate -s 10M a{version}; printf end >>a{version}; cp --sparse=auto a{version} b{version}; cmp a{version} b{version}
            dd if=/dev/zero of=c{version} bs=4k count=8 status=none"
        );
        shell(at.path(), &script);
        let known = version == "4.2";
        let f = open(&at.join(&format!("c{version}")));
        let wanted = if known { Ok(()) } else { Err(Errno::OPNOTSUPP) };
        assert_eq!(fallocate(&f, PUNCH, 0, BLOCK), wanted, "{version}");
        assert_eq!(fallocate(&f, FallocateFlags::empty(), 0, 1 << 20), wanted, "{version}");
        // Where version 4.2 finds a hole is what the server's filesystem says: pages that it has in memory may count as data.
        let there = open(&rig.dest().join(format!("c{version}")));
        let hole = if known { seek(&there, SeekFrom::Hole(0)) } else { Ok(8 * BLOCK) };
        assert_eq!(seek(&f, SeekFrom::Hole(0)), hole, "{version}");
        let used = fs::metadata(rig.dest().join(format!("b{version}"))).unwrap().blocks() * 512;
        assert!(!known || used < 1 << 20, "{version}: {used} bytes of the copy");
    }
}
