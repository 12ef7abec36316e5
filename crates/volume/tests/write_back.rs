//! Data that the kernel could not write back: whoever else is told of it, a COMMIT fails, and the write verifier changes
//! (RFC 1813 section 3.3.21, RFC 8881 section 18.3).

mod common;

use bytes::Bytes;
use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;
use rustix::fs::Advice;

const WRITE: OpenMode = OpenMode { read: false, write: true, owner_override: true };
const KERNELS: [Kernel; 3] = [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs];

/// Size of the written data: more than a filesystem keeps within an inode.
const BYTES: usize = 64 << 10;

/// The modes that promise something.
const PROMISING: [Durability; 2] = [Durability::Log, Durability::Sync];

/// A volume on a filesystem of its own.
fn check(kernels: &[Kernel], modes: &[Durability], each: impl Fn(&Rig, &Image)) {
    for kernel in kernels {
        for durability in modes.iter().copied() {
            let Some(image) = Image::new(*kernel) else { return };
            println!("{kernel:?}, {durability:?}");
            let temp = tempfile::tempdir_in(image.path()).expect("a directory on the image");
            let rig = Rig::at(temp, durability);
            each(&rig, &image);
        }
    }
}

/// Writes as NFSv3 and the special stateids do: the file is closed some time later.
fn write(rig: &Rig, node: &Node, data: Bytes) -> Stable {
    let v = &rig.volume;
    let (count, stable) = rig
        .run(|tx| {
            let file = v.open_stateless(&root(), node, WRITE, Keep::Now)?;
            v.write(tx, &file, 0, data.clone(), Stable::Unstable)
        })
        .expect("write");
    assert_eq!(count as usize, data.len());
    stable
}

fn commit(rig: &Rig, node: &Node) -> Result<(), Error> {
    rig.run(|tx| rig.volume.commit(tx, node, 0, 0))
}

/// Waits until files that were accessed without an open are closed.
fn all_closed(rig: &Rig) {
    while rig.volume.stats().cached_descriptors > 0 {
        rig.volume.close_idle();
        std::thread::yield_now();
    }
}

/// The disk fails while this file's data, written by `write`, is written back. Somebody else is told of it, and the kernel drops
/// the data.
fn lose(rig: &Rig, image: &Image, name: &str, lost: &[u8], write: impl Fn()) {
    // A checkpoint may come first and leave nothing to write.
    while !lost_now(rig, image, name, lost, &write) {}
}

fn lost_now(rig: &Rig, image: &Image, name: &str, lost: &[u8], write: impl Fn()) -> bool {
    write();
    let path = rig.dir().join(name);
    let stranger = std::fs::File::open(&path).expect("open");
    image.breaks(true);
    let told = rustix::fs::fdatasync(&stranger).is_err();
    image.breaks(false);
    if !told {
        return false;
    }
    rustix::fs::fdatasync(&stranger).expect("nobody remembers");
    rustix::fs::fadvise(&stranger, 0, None, Advice::DontNeed).expect("fadvise");
    assert_ne!(std::fs::read(&path).ok().as_deref(), Some(lost), "the kernel has it no longer");
    true
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_commit_fails_though_somebody_else_was_told_of_the_error() {
    check(&KERNELS, &PROMISING, |rig, image| {
        let v = &rig.volume;
        let node = rig.create(&root(), &v.root(), "lost").expect("create").node;
        let other = rig.create(&root(), &v.root(), "other").expect("create").node;
        let (verifier, data) = (v.write_verifier(), Bytes::from(vec![7; BYTES]));
        lose(rig, image, "lost", &data, || {
            assert_eq!(write(rig, &node, data.clone()), Stable::Unstable);
            all_closed(rig);
        });
        // Another file has lost nothing. (A flush of the whole filesystem, at a checkpoint or on btrfs, gets the error all the same.)
        let written = rig.run(|tx| {
            let file = v.open_stateless(&root(), &other, WRITE, Keep::Now)?;
            v.write(tx, &file, 0, data, Stable::Unstable)
        });
        if written.is_ok() && commit(rig, &other).is_ok() {
            assert_eq!(v.write_verifier(), verifier);
        }
        assert_eq!(commit(rig, &node), Err(Error::Failed));
        assert_ne!(v.write_verifier(), verifier, "clients write it again");
        assert_eq!(commit(rig, &other), Err(Error::Failed), "nothing is promised any more");
    });
}

/// A large COMMIT records that the log's older data of the file is not needed any more. It must not, if that data could not be
/// written back before the file had a witness.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_large_commit_does_not_take_out_of_the_log_what_was_lost() {
    for kernel in KERNELS {
        let Some(image) = Image::new(kernel) else { return };
        println!("{kernel:?}");
        let rig =
            Rig::at(tempfile::tempdir_in(image.path()).expect("a directory on the image"), Durability::Log);
        let v = &rig.volume;
        let made = rig.create(&root(), &v.root(), "lost").expect("create");
        let stable = vec![7; BYTES];
        let node = made.node.clone();
        drop(made);
        lose(&rig, &image, "lost", &stable, || {
            let file = v.open_file(&root(), &node, OpenMode::BOTH).expect("open");
            rig.write(&file, 0, &stable).expect("a stable write");
        });
        // More than goes into the log, elsewhere in the file. The log asks nobody.
        let written = rig.run(|tx| {
            let file = v.open_stateless(&root(), &node, WRITE, Keep::Now)?;
            v.write(tx, &file, 1 << 20, Bytes::from(vec![9; 3 << 20]), Stable::Unstable)
        });
        assert_eq!(written.map(|(_, stable)| stable), Ok(Stable::Unstable), "{kernel:?}");
        assert_eq!(commit(&rig, &node), Err(Error::Failed), "{kernel:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_was_not_committed_is_copied_from_only_if_it_is_whole() {
    check(&[Kernel::Ext4], &PROMISING, |rig, image| {
        let v = &rig.volume;
        let node = rig.create(&root(), &v.root(), "lost").expect("create").node;
        let dest = rig.create(&root(), &v.root(), "copy").expect("create");
        let data = Bytes::from(vec![7; BYTES]);
        lose(rig, image, "lost", &data, || {
            write(rig, &node, data.clone());
            all_closed(rig);
        });
        let source = v.open_file(&root(), &node, OpenMode::READ).expect("open");
        let copied = rig.run(|tx| v.copy_range(tx, &source, 0, &dest.file, 0, BYTES as u64));
        assert_eq!(copied, Err(Error::Failed));
    });
}

/// A file's witness does not count as an open, and it is closed when nothing is unstable any more.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn watching_over_unstable_data_costs_few_descriptors_and_keeps_nothing_busy() {
    check(&[Kernel::Ext4], &[Durability::Log], |rig, _| {
        let v = &rig.volume;
        let watched = || v.stats().unstable_files;
        let how = || CreateHow::Guarded(mode(0o755));
        let made = rig.create_how(&root(), &v.root(), "program", how()).expect("create");
        let program = std::fs::read("/bin/true").expect("a program");
        let node = made.node.clone();
        drop(made);
        write(rig, &node, program.into());
        all_closed(rig);
        assert_eq!(watched(), 1);
        let run = std::process::Command::new(rig.dir().join("program")).status();
        assert!(run.expect("it is not busy").success());
        commit(rig, &node).expect("commit");
        // A dead file's space is free.
        let dead = rig.create(&root(), &v.root(), "dead").expect("create").node;
        write(rig, &dead, Bytes::from_static(b"data"));
        assert_eq!(watched(), 2);
        rig.remove(&root(), &v.root(), "dead").expect("remove");
        assert_eq!(watched(), 1);
        // No more than there are places: further writes are stable at once, or take the place of a clean file.
        let most = u64::try_from(limits::WITNESSES_MAX).expect("a number");
        let nodes: Vec<Node> = (0..most + 3)
            .map(|n| rig.create(&root(), &v.root(), &format!("f{n}")).expect("create").node)
            .collect();
        let stable: Vec<Stable> = nodes.iter().map(|n| write(rig, n, Bytes::from_static(b"data"))).collect();
        let unstable = stable.iter().filter(|s| **s == Stable::Unstable).count() as u64;
        assert!(watched() <= most && (1..=most).contains(&unstable), "{} {unstable}", watched());
        assert!(stable.ends_with(&[Stable::FileSync]), "the last ones found no place");
        commit(rig, &nodes[0]).expect("commit");
        assert_eq!(write(rig, nodes.last().expect("some"), Bytes::from_static(b"more")), Stable::Unstable);
        // The server commits what nobody commits.
        let begun = std::time::Instant::now();
        while watched() > 0 {
            assert!(begun.elapsed() < 6 * limits::UNSTABLE_OLD, "{} are watched", watched());
            v.close_idle();
            // Nobody tells of the time that passes.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(v.failed(), None);
    });
}

/// ext4 drops data without an error if it finds no place for it ("This should not happen!! Data will be lost"). It only counts
/// that it has found itself damaged. Here it is told that it has.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nothing_is_acknowledged_once_ext4_has_found_itself_damaged() {
    for promise in ["commit", "large commit", "stable write", "checkpoint"] {
        check(&[Kernel::Ext4], &PROMISING, |rig, image| {
            let v = &rig.volume;
            let made = rig.create(&root(), &v.root(), "file").expect("create");
            let (node, large) = (made.node.clone(), Bytes::from(vec![7; 3 << 20]));
            let data = if promise == "large commit" { large.clone() } else { large.slice(..BYTES) };
            write(rig, &node, data);
            let verifier = v.write_verifier();
            let name = image.device().rsplit('/').next().expect("a name");
            let trigger = format!("/sys/fs/ext4/{name}/trigger_fs_error");
            if let Err(e) = std::fs::write(&trigger, "as if the block bitmap were damaged") {
                println!("skipped: {trigger}: {e}");
                return;
            }
            let done = match promise {
                "stable write" => {
                    rig.run(|tx| v.write(tx, &made.file, 0, large.clone(), Stable::FileSync)).map(drop)
                }
                "checkpoint" => v.shutdown().map(drop),
                _ => commit(rig, &node),
            };
            assert_eq!(done, Err(Error::Failed), "{promise}");
            assert_ne!(v.write_verifier(), verifier, "{promise}");
            assert!(v.failed().is_some_and(|why| why.contains("damaged")), "{:?}", v.failed());
        });
    }
}
