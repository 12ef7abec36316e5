//! The filesystem under the server in trouble: full, read-only, gone. What was acknowledged stays; what cannot be is refused
//! before it is promised; the server goes on.

use crate::common;
use crate::small;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use small::image::Kernel;
use small::{blow_up, on_an_image};
use std::process::Command;

const FILE_BYTES: usize = 64 << 10;

fn content(i: usize) -> Vec<u8> {
    vec![(i % 255) as u8 + 1; FILE_BYTES]
}

/// Makes a file in one COMPOUND; the status of what failed.
async fn whole_file(c: &mut Client, i: usize, stable: StableHow) -> NfsStat {
    let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
    let data = content(i).into();
    let write = ArgOp::Write(WriteArgs { stateid: Stateid::CURRENT, offset: 0, stable, data });
    let open = open_op(b"o", &format!("f{i}"), 3, 0, how);
    c.status(vec![ArgOp::Putrootfh, open, write, close_op(Stateid::CURRENT)]).await
}

#[tokio::test]
async fn a_filesystem_that_fills_up_says_so_before_the_promise() {
    let Some((image, mut rig)) = on_an_image(Kernel::Ext4).await else { return };
    blow_up(&image, 6 << 20);
    let mut c = rig.client(b"c").await;
    let mut acknowledged = 0;
    let full = loop {
        match whole_file(&mut c, acknowledged, StableHow::FileSync).await {
            NfsStat::NFS4_OK => acknowledged += 1,
            status => break status,
        }
        assert!(acknowledged < 1000, "6 MiB take no 64 MiB");
    };
    assert_eq!(full, NfsStat::NFS4ERR_NOSPC);
    assert!(acknowledged > 10, "{acknowledged} files");
    // What was acknowledged is there, also after the death of the server.
    rig.crash().await;
    // The last file was opened and not closed, so its session is dead; the client could reclaim that, and does not.
    c = Client::without_reclaim(rig.raw().await, b"c", 1).await;
    // A reply that is to be kept would be cut to what may be kept.
    c.cachethis = false;
    c.last(vec![ArgOp::ReclaimComplete(false)]).await;
    for i in 0..acknowledged {
        let look = vec![ArgOp::Putrootfh, ArgOp::Lookup(name(&format!("f{i}")))];
        let read = [look, vec![read_op(Stateid::READ_BYPASS, 0, FILE_BYTES as u32)]].concat();
        let last = c.last(read).await;
        assert_eq!((last.op, last.status), (OpNum::READ, NfsStat::NFS4_OK), "f{i}");
        assert!(matches!(last.body, ResBody::Read(r) if r.data[..] == content(i)), "f{i}");
    }
    // Space that is given back can be used.
    for i in 0..4 {
        let remove = vec![ArgOp::Putrootfh, ArgOp::Remove(name(&format!("f{i}")))];
        assert_ok(&c.run(remove).await);
    }
    let commit =
        vec![ArgOp::Putrootfh, ArgOp::Lookup(name("f5")), ArgOp::Commit(CommitArgs { offset: 0, count: 0 })];
    assert_ok(&c.run(commit).await);
    let patience = std::time::Instant::now();
    while whole_file(&mut c, 2000, StableHow::FileSync).await != NfsStat::NFS4_OK {
        let _ = c.run(vec![ArgOp::Putrootfh, ArgOp::Remove(name("f2000"))]).await;
        assert!(patience.elapsed() < PATIENCE, "no space comes back");
    }
    rig.running.take().expect("a server").stop().await.expect("a clean stop");
    drop(rig);
    drop(image);
}

#[tokio::test]
async fn a_filesystem_that_turns_read_only_is_still_read() {
    let Some((image, mut rig)) = on_an_image(Kernel::Ext4).await else { return };
    let mut c = rig.client(b"c").await;
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    assert!(whole_file(&mut c, 1, StableHow::FileSync).await.is_ok());
    // As after an error of the disk: ext4 gives up its journal and goes on read-only.
    let abort = Command::new("mount").args(["-o", "remount,abort"]).arg(image.path()).output();
    assert!(abort.is_ok_and(|o| o.status.success()), "remount");
    for op in [mkdir("e"), ArgOp::Remove(name("d"))] {
        let number = op.op();
        let status = c.status(vec![ArgOp::Putrootfh, op]).await;
        assert!(matches!(status, NfsStat::NFS4ERR_ROFS | NfsStat::NFS4ERR_IO), "{number} gave {status:?}");
    }
    let status = whole_file(&mut c, 2, StableHow::FileSync).await;
    assert!(matches!(status, NfsStat::NFS4ERR_ROFS | NfsStat::NFS4ERR_IO), "{status:?}");
    // Reading goes on.
    c.cachethis = false;
    let read = vec![
        ArgOp::Putrootfh,
        ArgOp::Lookup(name("f1")),
        ArgOp::Getattr(Bitmap::of(&[1, 4])),
        read_op(Stateid::READ_BYPASS, 0, FILE_BYTES as u32),
    ];
    let last = c.last(read).await;
    assert_eq!((last.op, last.status), (OpNum::READ, NfsStat::NFS4_OK));
    assert!(matches!(last.body, ResBody::Read(r) if r.data[..] == content(1)));
    let look = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("d")), ArgOp::Access(0x1f)];
    assert_ok(&c.run(look).await);
    // The server can be stopped; whether it could make everything durable it says.
    let _ = rig.running.take().expect("a server").stop().await;
    drop(rig);
    drop(image);
}

#[tokio::test]
async fn an_export_that_vanishes_is_stale_and_the_server_goes_on() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s) = c.open("f", 3).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), write_op(s, 0, b"data")]).await);
    std::fs::remove_dir_all(rig.export()).expect("the export is gone");
    for ops in [
        vec![ArgOp::Putrootfh, ArgOp::Lookup(name("f"))],
        vec![ArgOp::Putrootfh, mkdir("d")],
        vec![ArgOp::Putrootfh, readdir_op(0, 0, 4096, &[1])],
    ] {
        let last = c.last(ops).await;
        let gone = matches!(
            last.status,
            NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_NOENT | NfsStat::NFS4ERR_IO | NfsStat::NFS4_OK
        );
        assert!(gone, "{} gave {:?}", last.op, last.status);
    }
    assert_ne!(c.status(vec![ArgOp::Putrootfh, mkdir("d")]).await, NfsStat::NFS4_OK);
    // Sessions and clients do not need the directory.
    let mut d = rig.client(b"d").await;
    assert_eq!(d.status_flags().await, 0);
    assert_ok(&c.run(vec![ArgOp::Putfh(fh), close_op(s)]).await);
    assert!(!rig.export().exists());
}
