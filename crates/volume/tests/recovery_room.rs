//! An operation that found room must find it again when recovery does it, in whatever order recovery goes.

mod common;

use bytes::Bytes;
use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

const PIECE: usize = 512 << 10;

fn options(image: &Image) -> OpenOptions {
    let dir = image.path().join("dir");
    std::fs::create_dir_all(&dir).expect("a directory");
    OpenOptions { log_size: 64 << 20, ..OpenOptions::with_log(dir, image.beside().join("log")) }
}

fn run<T>(volume: &Volume, op: impl FnOnce(&mut Tx) -> Result<T, Error>) -> Result<T, Error> {
    let mut tx = volume.tx();
    let done = op(&mut tx);
    tx.finish().wait_blocking().expect("stable");
    done
}

fn create(volume: &Volume, name: &str) -> Result<Created, Error> {
    let how = CreateHow::Guarded(mode(0o644));
    run(volume, |tx| volume.create(tx, &root(), &volume.root(), name.as_bytes(), how, OpenMode::BOTH))
}

fn fill(volume: &Volume, file: &OpenFile, bytes: usize) {
    for at in (0..bytes).step_by(PIECE) {
        let data = Bytes::from(vec![b'x'; PIECE]);
        let done = run(volume, |tx| volume.write(tx, file, at as u64, data, Stable::FileSync));
        assert_eq!(done.expect("there is room").0 as usize, PIECE);
    }
}

/// Loses everything since the last checkpoint, then recovers it from the log.
fn cut(image: &mut Image, volume: Volume) -> (Volume, RecoveryReport) {
    image.power_off();
    drop(volume);
    image.power_on();
    open(options(image))
}

/// ext4 has room for extended attributes of one block.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_attribute_takes_the_room_of_another() {
    let Some(mut image) = Image::with(Kernel::Ext4, &["-b", "4096"], "noatime") else { return };
    let (volume, _) = open(options(&image));
    let node = create(&volume, "f").expect("made").node;
    let value = Bytes::from(vec![b'v'; 3000]);
    let set = |volume: &Volume, node: &Node, name: &[u8], value: &Bytes| {
        run(volume, |tx| volume.setxattr(tx, &root(), node, name, value, SetXattr::Either)).map(drop)
    };
    set(&volume, &node, b"b", &value).expect("room for one");
    assert_eq!(set(&volume, &node, b"a", &value), Err(Error::NoSpace));
    volume.checkpoint().expect("a checkpoint");
    run(&volume, |tx| volume.removexattr(tx, &root(), &node, b"b")).expect("removed");
    set(&volume, &node, b"a", &value).expect("room for one");
    drop(node);
    let (volume, report) = cut(&mut image, volume);
    assert!(report.records > 0);
    let node = volume.lookup(&root(), &volume.root(), b"f").expect("it is there");
    assert_eq!(volume.getxattr(&root(), &node, b"a"), Ok(value));
    assert_eq!(volume.getxattr(&root(), &node, b"b"), Err(Error::NoXattr));
    volume.shutdown().expect("stopped");
}

/// Files and directories that are made with the inodes of removed ones.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_object_takes_the_inode_of_another() {
    for dirs in [false, true] {
        let Some(mut image) = Image::with(Kernel::Ext4, &["-N", "128"], "noatime") else { return };
        let (volume, _) = open(options(&image));
        let make = |volume: &Volume, name: &str| match dirs {
            false => create(volume, name).map(drop),
            true => {
                let top = volume.root();
                run(volume, |tx| volume.mkdir(tx, &root(), &top, name.as_bytes(), mode(0o755))).map(drop)
            }
        };
        let mut old = 0;
        while make(&volume, &format!("old{old}")).is_ok() {
            old += 1;
        }
        assert!(old > 20, "{old}");
        volume.checkpoint().expect("a checkpoint");
        let all = old - 10;
        for n in 0..all {
            let name = format!("old{n}");
            run(&volume, |tx| volume.remove(tx, &root(), &volume.root(), name.as_bytes())).expect("removed");
        }
        let new = (0..all).take_while(|n| make(&volume, &format!("new{n}")).is_ok()).count();
        assert_eq!(new, all, "the inodes are used again");
        let (volume, report) = cut(&mut image, volume);
        assert_eq!(report.remade as usize, new);
        let lookup = |name: String| volume.lookup(&root(), &volume.root(), name.as_bytes());
        for n in 0..new {
            assert!(lookup(format!("new{n}")).is_ok() && lookup(format!("old{n}")).is_err(), "{n}");
        }
        assert_eq!(report.local, Vec::<String>::new());
        let lost_found = image.path().join("dir/.landfast/lost+found");
        assert_eq!(std::fs::read_dir(lost_found).expect("a directory").count(), 0);
        volume.shutdown().expect("stopped");
    }
}

/// A file is cut or gets a hole, and another one takes the room. Recovery meets the two in either order.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_file_takes_the_room_of_another() {
    const BYTES: usize = 24 << 20;
    // So little that ext4 does not commit anything to make sure of the room, and more than the reserve for recovery.
    const NEW_BYTES: usize = 12 << 20;
    for (first, hole) in [("a", false), ("b", false), ("a", true), ("b", true)] {
        let Some(mut image) = Image::with(Kernel::Ext4, &[], "noatime,commit=600") else { return };
        let (volume, _) = open(options(&image));
        let second = if first == "a" { "b" } else { "a" };
        let [(old, old_file), (new, new_file)] = {
            let made = [first, second].map(|name| create(&volume, name).expect("made"));
            let mut made = made.map(|made| (made.node, made.file));
            if first == "b" {
                made.reverse();
            }
            made
        };
        fill(&volume, &old_file, BYTES);
        volume.checkpoint().expect("a checkpoint");
        image.fill();
        volume.checkpoint().expect("a checkpoint");
        if hole {
            run(&volume, |tx| volume.deallocate(tx, &old_file, 0, BYTES as u64)).expect("a hole");
        } else {
            let cut = SetAttrs { size: Some(0), ..SetAttrs::default() };
            run(&volume, |tx| volume.setattr(tx, &root(), &old, Some(&old_file), cut)).expect("cut");
        }
        fill(&volume, &new_file, NEW_BYTES);
        drop((old, old_file, new, new_file));
        let (volume, report) = cut(&mut image, volume);
        assert!(report.records > 0);
        let read = |name: &str| std::fs::read(image.path().join("dir").join(name)).expect("a file");
        assert_eq!(read("b").len(), NEW_BYTES);
        assert!(read("b").iter().all(|byte| *byte == b'x'));
        assert_eq!(read("a").len(), if hole { BYTES } else { 0 });
        assert!(read("a").iter().all(|byte| *byte == 0));
        volume.shutdown().expect("stopped");
    }
}
