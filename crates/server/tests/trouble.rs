//! The filesystem under the server in trouble: full, read-only, gone. What was acknowledged stays; what cannot be is refused
//! before it is promised; the server goes on.

use crate::common;
use crate::delegations;
use crate::small;
use crate::v40;

use common::*;
use delegations::{holder, stateid_of};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_server::exports::{Delegate, Features};
use landfast_volume::Durability;
use small::image::{Image, Kernel};
use small::{blow_up, on_an_image, on_an_image_with};
use std::process::Command;
use v40::Client40;

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
#[cfg_attr(not(root), ignore = "needs root")]
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
#[cfg_attr(not(root), ignore = "needs root")]
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
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_export_that_vanishes_is_stale_and_the_server_goes_on() {
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

/// What was sent before the disk failed, and what has to be durable after it: the status of each result.
async fn each(c: &mut Any, ops: Vec<ArgOp>) -> Vec<(OpNum, NfsStat)> {
    let results = match c {
        Any::Zero(c) => c.run(ops).await,
        Any::Sessions(c) => c.run(ops).await,
    };
    results.iter().map(|r| (r.op, r.status)).collect()
}

/// A client of any minor version.
enum Any {
    Zero(Client40),
    Sessions(Box<Client>),
}

/// RFC 8881 section 15.2, RFC 7530 section 13.2: a flush that failed is said by an operation that may say so, and by nothing before it:
/// `PUTFH` may not, and what it said stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_15_2_a_failed_flush_is_said_by_an_operation_that_may() {
    for minor in 0..=2 {
        let Some((image, rig)) = on_an_image_with(Kernel::Ext4, Durability::Sync).await else { return };
        let mut made = rig.client(b"maker").await;
        let (fh, stateid) = made.open("f", 3).await;
        assert_ok(&made.run(vec![ArgOp::Putfh(fh.clone()), close_op(stateid)]).await);
        let mut c = match minor {
            0 => Any::Zero(Client40::new(&rig, b"c").await),
            _ => {
                let mut c = rig.client(b"c").await;
                c.raw.minor = minor;
                Any::Sessions(Box::new(c))
            }
        };
        image.breaks(true);
        let setattr = ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(0o600) });
        let look = ArgOp::Getattr(Bitmap::of(&[1]));
        let ops = vec![ArgOp::Putfh(fh.clone()), ArgOp::Savefh, ArgOp::Getfh, setattr, look];
        let mut said = each(&mut c, ops).await;
        image.breaks(false);
        said.retain(|(op, _)| *op != OpNum::SEQUENCE);
        let ok = NfsStat::NFS4_OK;
        let expected = [
            (OpNum::PUTFH, ok),
            (OpNum::SAVEFH, ok),
            (OpNum::GETFH, ok),
            (OpNum::SETATTR, NfsStat::NFS4ERR_IO),
        ];
        assert_eq!(said, expected, "4.{minor}");
        drop(c);
        drop(made);
        drop(rig);
        drop(image);
    }
}

/// The log has failed, and could not be told of a delegation: so none is given, and the OPEN, which changes nothing, succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn with_a_failed_log_files_are_still_opened_for_reading() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("data")).expect("the export");
    let log = Some(image.path().join("log"));
    let mut rig = Rig::stopped(dir, Durability::Log, 90, log);
    rig.features = Features { delegations: Delegate::Write, ..Features::default() };
    rig.start().await;
    let (mut c, _heard) = holder(&rig, Vec::new()).await;
    let (fh, stateid) = c.open("f", 3).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh), close_op(stateid)]).await);
    image.breaks(true);
    assert_eq!(c.status(vec![ArgOp::Putrootfh, mkdir("d")]).await, NfsStat::NFS4ERR_IO);
    image.breaks(false);
    c.cachethis = false;
    let open = open_op(b"o", "f", 1, 0, OpenHow::NoCreate);
    let res = c.run(vec![ArgOp::Putrootfh, open, read_op(Stateid::CURRENT, 0, 1)]).await;
    assert_ok(&res);
    assert!(matches!(&res[1].body, ResBody::Open(open) if stateid_of(&open.delegation).is_none()));
    let _ = rig.running.take().expect("a server").stop().await;
    drop(rig);
    drop(image);
}
