//! Random operations on one file, compared with an array of bytes after each: as fsx does it.

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use common::{Rig, can_mount};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

const LARGEST: u64 = 3 << 20;

/// Numbers that are the same in each run (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn run(version: &str, seed: u64, steps: u32) {
    let local = version == "close=local";
    // Versions before 4.2 have no operations for holes and copies.
    let holes = local || version == "4.2";
    let rig = if local { Rig::delegating() } else { Rig::new() };
    // Data that waits for a second is sent while the next operations run.
    let at = if local { rig.mount_local("close=local,flush_age=0.1") } else { rig.mount(version) };
    let path = at.join("f");
    let mut dice = Dice(seed);
    let mut model: Vec<u8> = Vec::new();
    let mut files = [open(&path), open(&path)];
    for step in 0..steps {
        let said = |what: &str| format!("version {version}, seed {seed}, step {step}: {what}");
        let which = dice.below(2) as usize;
        match dice.below(if holes { 16 } else { 12 }) {
            0..=3 => {
                let (offset, len) =
                    (dice.below(LARGEST), dice.below(if step % 7 == 0 { 1_500_000 } else { 40_000 }));
                let data = vec![(step % 255) as u8 + 1; len as usize];
                let end = (offset + len) as usize;
                if len > 0 {
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].copy_from_slice(&data);
                }
                files[which]
                    .write_all_at(&data, offset)
                    .unwrap_or_else(|e| panic!("{}", said(&e.to_string())));
            }
            4..=6 => {
                let (offset, len) = (dice.below(LARGEST), dice.below(200_000) as usize);
                let mut got = vec![0; len];
                let mut count = 0;
                while count < len {
                    match files[which].read_at(&mut got[count..], offset + count as u64).unwrap() {
                        0 => break,
                        n => count += n,
                    }
                }
                let from = (offset as usize).min(model.len());
                let wanted = &model[from..model.len().min(from + len)];
                assert!(got[..count] == *wanted, "{}", said(&format!("{len} bytes at {offset}")));
            }
            7 => {
                let size = dice.below(LARGEST);
                files[which].set_len(size).unwrap();
                model.resize(size as usize, 0);
            }
            8 => files[which].sync_all().unwrap(),
            9 => files[which] = open(&path),
            12 => {
                let (offset, len) = (dice.below(LARGEST), dice.below(300_000) + 1);
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&files[which], flags, offset, len).unwrap();
                let from = (offset as usize).min(model.len());
                let end = ((offset + len) as usize).min(model.len());
                model[from..end].fill(0);
            }
            13 => {
                let (offset, len) = (dice.below(LARGEST), dice.below(300_000) + 1);
                let zero = dice.below(2) == 0;
                let flags = if zero { FallocateFlags::ZERO_RANGE } else { FallocateFlags::empty() };
                fallocate(&files[which], flags, offset, len).unwrap();
                let end = (offset + len) as usize;
                model.resize(model.len().max(end), 0);
                if zero {
                    model[offset as usize..end].fill(0);
                }
            }
            14 => {
                // Out of the file and back into it at another place, by way of a second one.
                let (mut source, mut target) = (dice.below(LARGEST), 0);
                let other = at.join("other");
                let into = open(&other);
                into.set_len(0).unwrap();
                let mut len = dice.below(300_000) as usize;
                let from = (source as usize).min(model.len());
                let wanted = model[from..model.len().min(from + len)].to_vec();
                while len > 0 {
                    match copy_file_range(&files[which], Some(&mut source), &into, Some(&mut target), len)
                        .unwrap()
                    {
                        0 => break,
                        n => len -= n,
                    }
                }
                assert!(fs::read(&other).unwrap() == wanted, "{}", said("what was copied out of it"));
                let (mut source, start) = (0, dice.below(LARGEST));
                let mut target = start;
                let mut len = wanted.len();
                while len > 0 {
                    match copy_file_range(&into, Some(&mut source), &files[which], Some(&mut target), len)
                        .unwrap()
                    {
                        0 => break,
                        n => len -= n,
                    }
                }
                if !wanted.is_empty() {
                    let end = start as usize + wanted.len();
                    model.resize(model.len().max(end), 0);
                    model[start as usize..end].copy_from_slice(&wanted);
                }
            }
            15 => {
                let offset = dice.below(LARGEST);
                match seek(&files[which], SeekFrom::Data(offset)) {
                    Ok(found) => {
                        let hole = &model[offset as usize..found as usize];
                        assert!(
                            hole.iter().all(|b| *b == 0),
                            "{}",
                            said(&format!("no data from {offset} to {found}"))
                        );
                    }
                    Err(e) => {
                        assert_eq!(e, Errno::NXIO, "{}", said("SEEK_DATA"));
                        let rest = &model[(offset as usize).min(model.len())..];
                        assert!(
                            rest.iter().all(|b| *b == 0),
                            "{}",
                            said(&format!("no data behind {offset}"))
                        );
                    }
                }
            }
            10 => {
                assert_eq!(files[which].metadata().unwrap().len(), model.len() as u64, "{}", said("its size"))
            }
            _ => {
                files[which].sync_all().unwrap();
                assert!(fs::read(rig.dest().join("f")).unwrap() == model, "{}", said("what the server has"));
            }
        }
    }
    drop(files);
    at.sync();
    assert!(fs::read(rig.dest().join("f")).unwrap() == model, "version {version}, seed {seed}: the end");
    assert!(fs::read(&path).unwrap() == model, "version {version}, seed {seed}: read back");
}

#[test]
fn a_file_is_as_an_array_of_bytes_whatever_is_done_to_it() {
    if !can_mount() {
        return;
    }
    // More of them: LANDFAST_RANDOM_RUNS.
    let runs = std::env::var("LANDFAST_RANDOM_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    for seed in 1..=runs {
        run("4.2", seed * 7919, 250);
        run("3", seed * 104_729, 150);
        run("close=local", seed * 1_299_709, 150);
    }
}
