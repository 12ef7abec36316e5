//! Allocation, holes, copies and clones, also through power cuts.

mod common;

use bytes::Bytes;
use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

const MIB: u64 = 1 << 20;

fn request<T>(v: &Volume, op: impl FnOnce(&mut Tx) -> Result<T, Error>) -> Result<T, Error> {
    let mut tx = v.tx();
    let result = op(&mut tx);
    tx.finish().wait_blocking()?;
    result
}

fn file(v: &Volume, name: &str, data: &[u8]) -> OpenFile {
    let how = CreateHow::Guarded(mode(0o644));
    let made = request(v, |tx| v.create(tx, &root(), &v.root(), name.as_bytes(), how, OpenMode::BOTH));
    let file = made.expect("create").file;
    write(v, &file, 0, data, Stable::FileSync);
    file
}

fn write(v: &Volume, file: &OpenFile, offset: u64, data: &[u8], stable: Stable) {
    let bytes = Bytes::copy_from_slice(data);
    let done = request(v, |tx| v.write(tx, file, offset, bytes, stable)).expect("write");
    assert_eq!(done.0 as usize, data.len());
}

fn read(v: &Volume, file: &OpenFile) -> Vec<u8> {
    v.read(file, 0, 16 << 20).expect("read").0.to_vec()
}

fn reopen(v: &Volume, name: &str) -> OpenFile {
    let node = v.lookup(&root(), &v.root(), name.as_bytes()).expect("lookup");
    v.open_file(&root(), &node, OpenMode::BOTH).expect("open")
}

/// Bytes in which no two pages are equal.
fn pattern(len: u64, salt: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u8) ^ ((n >> 12) as u8).wrapping_mul(31) ^ salt | 1).collect()
}

/// A volume on a new image.
fn on(kernel: Kernel) -> Option<(Image, OpenOptions, Volume)> {
    let image = Image::new(kernel)?;
    let dir = image.path().join("export");
    std::fs::create_dir(&dir).expect("mkdir");
    let options =
        OpenOptions { log_size: 64 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) };
    let (volume, _) = open(options.clone());
    Some((image, options, volume))
}

/// The power fails and comes back.
fn cut(image: &mut Image, options: &OpenOptions, volume: Volume) -> Volume {
    image.power_off();
    drop(volume);
    image.power_on();
    open(options.clone()).0
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_hole_reads_as_zeroes_and_is_found() {
    if !tempdir_suits() {
        return;
    }
    for durability in [Durability::Log, Durability::Sync, Durability::Unsafe] {
        let rig = Rig::new(durability);
        let v = &rig.volume;
        let f = file(v, "f", &pattern(256 << 10, 0));
        let before = rig.attrs(f.node());
        rig.run(|tx| v.deallocate(tx, &f, 64 << 10, 64 << 10)).unwrap();
        let after = rig.attrs(f.node());
        assert_eq!(after.size, before.size);
        assert!(after.used < before.used && after.change > before.change && after.mtime > before.mtime);
        let mut want = pattern(256 << 10, 0);
        want[64 << 10..128 << 10].fill(0);
        assert_eq!(read(v, &f), want);
        let sought = |at, what| v.seek(&f, at, what).map(|s| s.found);
        assert_eq!(sought(0, Piece::Hole), Ok(64 << 10));
        assert_eq!(sought(0, Piece::Data), Ok(0));
        assert_eq!(sought(70 << 10, Piece::Data), Ok(128 << 10));
        assert_eq!(sought(70 << 10, Piece::Hole), Ok(70 << 10));
        // The hole at the end, no data after the end, and nothing beyond.
        assert_eq!(sought(200 << 10, Piece::Hole), Ok(256 << 10));
        assert_eq!(v.seek(&f, 256 << 10, Piece::Data), Ok(Sought { found: 256 << 10, size: 256 << 10 }));
        assert_eq!(sought((256 << 10) + 1, Piece::Hole), Err(Error::BeyondEnd));
        // Parts of blocks are zeroed; beyond the end nothing happens.
        rig.run(|tx| v.deallocate(tx, &f, 10, 20)).unwrap();
        rig.run(|tx| v.deallocate(tx, &f, 1 << 30, 1 << 30)).unwrap();
        want[10..30].fill(0);
        assert_eq!(read(v, &f), want);
        assert_eq!(rig.run(|tx| v.deallocate(tx, &f, 0, 0)), Err(Error::Inval));
        assert_eq!(rig.run(|tx| v.deallocate(tx, &f, 1, u64::MAX)), Err(Error::TooBig));
        let only = v.open_file(&root(), f.node(), OpenMode::READ).unwrap();
        assert_eq!(rig.run(|tx| v.deallocate(tx, &only, 0, 1)), Err(Error::Access));
        assert_eq!(rig.run(|tx| v.allocate(tx, &only, 0, 1)), Err(Error::Access));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn allocated_space_makes_the_file_grow_and_stays_after_a_crash() {
    for kernel in [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs] {
        let Some((mut image, options, v)) = on(kernel) else { return };
        let f = file(&v, "f", b"start");
        request(&v, |tx| {
            let size = SetAttrs { size: Some(3), ..SetAttrs::default() };
            v.setattr(tx, &root(), f.node(), None, size)
        })
        .unwrap();
        let change = v.getattr(f.node()).unwrap().change;
        request(&v, |tx| v.allocate(tx, &f, 0, 8 * MIB)).unwrap();
        let attrs = v.getattr(f.node()).unwrap();
        assert!(attrs.size == 8 * MIB && attrs.used >= 8 * MIB && attrs.change > change);
        let big = file(&v, "big", b"");
        let too_much = request(&v, |tx| v.allocate(tx, &big, 0, 4 << 30));
        assert_eq!(too_much, Err(Error::NoSpace), "{kernel:?}");
        request(&v, |tx| v.remove(tx, &root(), &v.root(), b"big")).unwrap();
        drop((f, big));
        let v = cut(&mut image, &options, v);
        // Somebody uses all the space. (btrfs needs new space for its own trees.)
        if kernel != Kernel::Btrfs {
            let mut hog = std::fs::File::create(image.path().join("hog")).unwrap();
            while std::io::Write::write_all(&mut hog, &vec![1u8; 4096]).is_ok() {}
            hog.sync_all().unwrap();
        }
        let f = reopen(&v, "f");
        let attrs = v.getattr(f.node()).unwrap();
        assert!(attrs.size == 8 * MIB && attrs.used >= 8 * MIB, "{kernel:?}: {attrs:?}");
        assert_eq!(read(&v, &f)[..5], *b"sta\0\0");
        for n in 0..8 {
            write(&v, &f, n * MIB, &pattern(MIB, n as u8), Stable::Unstable);
        }
        request(&v, |tx| v.commit(tx, f.node(), 0, 0)).unwrap();
        drop((f, v));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn holes_survive_a_power_cut_among_what_was_written_before_and_after() {
    for kernel in [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs] {
        let Some((mut image, options, v)) = on(kernel) else { return };
        let f = file(&v, "f", &pattern(300_000, 1));
        // Flushed to its place, so that only the log knows of the hole.
        let g = file(&v, "g", &pattern(2 * MIB, 2));
        for file in [&f, &g] {
            write(&v, file, 5000, b"unstable", Stable::Unstable);
            request(&v, |tx| v.deallocate(tx, file, 4000, 200_000)).unwrap();
            write(&v, file, 100_000, b"later", Stable::FileSync);
            request(&v, |tx| v.deallocate(tx, file, 299_990, 5 * MIB)).unwrap();
        }
        let want = [read(&v, &f), read(&v, &g)];
        assert_eq!(want[0][100_000..100_005], *b"later");
        assert!(want[1][5000..90_000].iter().all(|b| *b == 0) && want[1].len() as u64 == 2 * MIB);
        drop((f, g));
        let v = cut(&mut image, &options, v);
        assert!([read(&v, &reopen(&v, "f")), read(&v, &reopen(&v, "g"))] == want, "{kernel:?}");
        // They are holes, not zeroes written out.
        let f = reopen(&v, "f");
        assert_eq!(v.seek(&f, 0, Piece::Hole).unwrap().found, 4096);
        drop((f, v));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_copy_is_stable_when_it_is_answered_also_of_what_is_not() {
    for kernel in [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs] {
        let Some((mut image, options, v)) = on(kernel) else { return };
        let source = file(&v, "source", b"");
        let data = pattern(5 * MIB, 3);
        write(&v, &source, 0, &data, Stable::Unstable);
        // The log's data for the destinations must not replace the copies.
        let large = file(&v, "large", &pattern(600_000, 9));
        let small = file(&v, "small", &pattern(600_000, 9));
        let copied = request(&v, |tx| v.copy_range(tx, &source, 100, &large, 50, 4 * MIB));
        assert_eq!(copied, Ok(4 * MIB));
        let log = v.stats().log.unwrap();
        assert_eq!(request(&v, |tx| v.copy_range(tx, &source, 0, &small, 599_000, 70_000)), Ok(70_000));
        assert!(
            v.stats().log.unwrap().record_bytes >= log.record_bytes + 70_000,
            "a small copy is in the log"
        );
        // Short at the end of the source, nothing after it.
        assert_eq!(request(&v, |tx| v.copy_range(tx, &source, 5 * MIB - 10, &small, 0, 100)), Ok(10));
        assert_eq!(request(&v, |tx| v.copy_range(tx, &source, 5 * MIB, &small, 0, 100)), Ok(0));
        assert_eq!(request(&v, |tx| v.copy_range(tx, &source, 9 * MIB, &large, 0, 9 * MIB)), Ok(0));
        let mut want_large = pattern(600_000, 9);
        want_large.resize(50 + 4 * MIB as usize, 0);
        want_large[50..].copy_from_slice(&data[100..100 + 4 * MIB as usize]);
        let mut want_small = pattern(600_000, 9);
        want_small.resize(669_000, 0);
        want_small[599_000..].copy_from_slice(&data[..70_000]);
        want_small[..10].copy_from_slice(&data[data.len() - 10..]);
        let fhs = [large.node().fh(), small.node().fh()];
        drop((source, large, small));
        let v = cut(&mut image, &options, v);
        let (large, small) = (reopen(&v, "large"), reopen(&v, "small"));
        assert!(read(&v, &large) == want_large, "{kernel:?}: the large copy");
        assert!(read(&v, &small) == want_small, "{kernel:?}: the small copy");
        assert_eq!([large.node().fh(), small.node().fh()], fhs);
        drop((large, small, v));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_clone_is_whole_and_stable_where_the_filesystem_can() {
    for kernel in [Kernel::Ext4, Kernel::Xfs, Kernel::Btrfs] {
        let Some((mut image, options, v)) = on(kernel) else { return };
        assert_eq!(v.clone_block(), Ok(if kernel == Kernel::Ext4 { 0 } else { 4096 }));
        let data = pattern(3 * MIB + 100, 4);
        let source = file(&v, "source", b"");
        write(&v, &source, 0, &data, Stable::Unstable);
        let dest = file(&v, "dest", &pattern(500_000, 5));
        let change = v.getattr(dest.node()).unwrap().change;
        let clone = |from, to, len| request(&v, |tx| v.clone_range(tx, &source, from, &dest, to, len));
        if kernel == Kernel::Ext4 {
            assert_eq!(clone(0, 0, 0), Err(Error::NotSupported));
            continue;
        }
        assert_eq!(clone(100, 0, 4096), Err(Error::Inval));
        assert_eq!(clone(0, 100, 4096), Err(Error::Inval));
        assert_eq!(v.getattr(dest.node()).unwrap().change, change);
        assert_eq!(clone(0, 4096, 0), Ok(()));
        assert!(v.getattr(dest.node()).unwrap().change > change);
        // The source changes afterwards.
        write(&v, &source, 0, b"changed", Stable::FileSync);
        let mut want = pattern(4096, 5);
        want.extend_from_slice(&data);
        assert!(read(&v, &dest) == want);
        drop((source, dest));
        let v = cut(&mut image, &options, v);
        let dest = reopen(&v, "dest");
        assert!(read(&v, &dest) == want, "{kernel:?}");
        drop((dest, v));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn between_two_volumes_bytes_are_copied() {
    if !tempdir_suits() {
        return;
    }
    let (one, two) = (Rig::log(), Rig::new(Durability::Unsafe));
    let data = pattern(3 * MIB, 6);
    let source = file(&one.volume, "source", &data);
    let dest = file(&two.volume, "dest", b"");
    let copied = two.run(|tx| two.volume.copy_range(tx, &source, 0, &dest, 0, 3 * MIB));
    assert_eq!(copied, Ok(3 * MIB));
    assert!(read(&two.volume, &dest) == data);
    // And in the other direction, into the log.
    let back = file(&one.volume, "back", b"");
    assert_eq!(one.run(|tx| one.volume.copy_range(tx, &dest, 5, &back, 0, 1000)), Ok(1000));
    drop((source, back));
    let one = one.crash();
    assert_eq!(read(&one.volume, &reopen(&one.volume, "back")), data[5..1005]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn advice_is_taken() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::new(Durability::Unsafe);
    let f = file(&rig.volume, "f", &pattern(10_000, 7));
    for hint in [Hint::Sequential, Hint::Random, Hint::WillNeed, Hint::DontNeed, Hint::NoReuse, Hint::Normal]
    {
        for (offset, len) in [(0, 0), (5, 100), (u64::MAX, 1), (0, u64::MAX)] {
            assert_eq!(rig.volume.advise(&f, offset, len, hint), Ok(()), "{hint:?} {offset} {len}");
        }
    }
    assert_eq!(read(&rig.volume, &f), pattern(10_000, 7));
}
