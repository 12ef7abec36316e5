//! A few bytes of request must not have the disk work for minutes: what a COMPOUND may copy, clone, reserve and give back is
//! bounded, and ends with the connection that asked for it (`crate::v4::work`).

use crate::common;

use common::*;
use landfast_nfs::v4::data::*;
use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_BOTH;
use landfast_nfs::v4::*;
use landfast_server::limits::COMPOUND_WORK_BYTES;
use std::os::unix::fs::{FileExt, MetadataExt};

const PIECE: u64 = 8 << 20;
/// COPYs that use up what a COMPOUND may do.
const FULL: u64 = COMPOUND_WORK_BYTES / PIECE;
const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH;

fn copy_op(dst_offset: u64, count: u64) -> ArgOp {
    ArgOp::Copy(CopyArgs {
        src_stateid: Stateid::ANONYMOUS,
        dst_stateid: Stateid::ANONYMOUS,
        src_offset: 0,
        dst_offset,
        count,
        consecutive: true,
        synchronous: true,
        source_server: Vec::new(),
    })
}

/// A source with data, and an empty destination.
async fn files(rig: &Rig, c: &mut Client) -> [FileHandle; 2] {
    let (source, _) = c.open("source", BOTH).await;
    let (dest, _) = c.open("dest", BOTH).await;
    let file = std::fs::File::options().write(true).open(rig.export().join("source")).expect("the file");
    file.write_all_at(&vec![7; PIECE as usize], 0).expect("written");
    until_it_has(c, &source, PIECE).await;
    [source, dest]
}

/// What is done beside the server to a file's size it sees after a second at the latest.
async fn until_it_has(c: &mut Client, fh: &FileHandle, size: u64) {
    while c.attrs(fh, Bitmap::of(&[attr::number::SIZE])).await.size != Some(size) {
        tokio::task::yield_now().await;
    }
}

fn between([source, dest]: &[FileHandle; 2], work: impl IntoIterator<Item = ArgOp>) -> Vec<ArgOp> {
    let to = [ArgOp::Putfh(source.clone()), ArgOp::Savefh, ArgOp::Putfh(dest.clone())];
    to.into_iter().chain(work).collect()
}

fn counts(results: &[ResOp]) -> Vec<u64> {
    let copied = |r: &ResOp| match &r.body {
        ResBody::Copy(c) if r.status.is_ok() => Some(c.response.count),
        _ => None,
    };
    results.iter().filter_map(copied).collect()
}

/// Bytes of the destination that were ever written: each COPY goes to a place of its own.
fn written(rig: &Rig) -> u64 {
    std::fs::metadata(rig.export().join("dest")).expect("the file").blocks() * 512
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_compound_of_copies_ends_where_it_has_copied_enough() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let files = files(&rig, &mut c).await;
    let res = c.run(between(&files, (0..5 * FULL).map(|i| copy_op(i * PIECE, PIECE)))).await;
    assert_eq!(res.last().map(|r| (r.op, r.status)), Some((OpNum::COPY, NfsStat::NFS4ERR_DELAY)));
    assert_eq!(counts(&res), vec![PIECE; FULL as usize]);
    assert!(written(&rig) < COMPOUND_WORK_BYTES + PIECE, "{} bytes", written(&rig));
    // Small ones, each of which would go by itself through the log, are counted too.
    let small = 1 << 20;
    let res = c.run(between(&files, (0..100).map(|i| copy_op(i * small, small)))).await;
    assert_eq!(counts(&res).iter().sum::<u64>(), COMPOUND_WORK_BYTES);
    assert_eq!(res.last().map(|r| r.status), Some(NfsStat::NFS4ERR_DELAY));
    // And so are those of next to nothing, each of which may flush a file.
    let tiny = |i: u64| ArgOp::Allocate(RangeArgs { stateid: Stateid::ANONYMOUS, offset: i, length: 1 });
    let res = c.run(between(&files, [copy_op(0, PIECE)].into_iter().chain((0..120).map(tiny)))).await;
    assert_ok(&res);
    // The next COMPOUND has all of it again.
    let res = c.run(between(&files, [copy_op(0, PIECE), copy_op(PIECE, PIECE)])).await;
    assert_ok(&res);
    assert_eq!(counts(&res), [PIECE; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_large_copy_is_cut_short_and_what_has_no_parts_is_done_once() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let files = files(&rig, &mut c).await;
    let source = std::fs::File::options().write(true).open(rig.export().join("source")).expect("the file");
    source.set_len(3 * COMPOUND_WORK_BYTES).expect("a longer file");
    until_it_has(&mut c, &files[0], 3 * COMPOUND_WORK_BYTES).await;
    // RFC 7862 section 15.2.3: the client goes on from where the COPY ended.
    let res = c.run(between(&files, [copy_op(0, 0), copy_op(COMPOUND_WORK_BYTES, 0)])).await;
    assert_eq!(counts(&res), [COMPOUND_WORK_BYTES]);
    assert_eq!(res.last().map(|r| r.status), Some(NfsStat::NFS4ERR_DELAY));
    let range = |offset, length| RangeArgs { stateid: Stateid::ANONYMOUS, offset, length };
    let whole = 2 * COMPOUND_WORK_BYTES;
    for op in [ArgOp::Allocate(range(0, whole)), ArgOp::Deallocate(range(0, whole))] {
        let res = c.run(between(&files, [op.clone(), op])).await;
        let last: Vec<_> = res.iter().rev().take(2).map(|r| r.status).collect();
        assert_eq!(last, [NfsStat::NFS4ERR_DELAY, NfsStat::NFS4_OK], "{:?}", res.last().map(|r| r.op));
    }
}

/// An attacker sends two gigabytes' worth of COPYs in a few kilobytes and leaves. What runs is stopped, what waits is not begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn copies_end_when_nobody_waits_for_them() {
    const SESSIONS: u64 = 4;
    const SLOTS: u64 = 8;
    let mut rig = Rig::stopped(
        tempfile::Builder::new().prefix("landfast-server-").tempdir_in("/var/tmp").expect("a directory"),
        landfast_volume::Durability::Log,
        90,
        None,
    );
    std::fs::create_dir(rig.export()).expect("the export");
    rig.slow_workers = Some(1);
    rig.start().await;
    let mut c = rig.client(b"c").await;
    let files = files(&rig, &mut c).await;
    let raw = rig.raw().await;
    let mut calls = tokio::task::JoinSet::new();
    for session in 0..SESSIONS {
        let attacker = Client::new(raw.clone(), format!("attacker {session}").as_bytes()).await;
        for slot in 0..SLOTS {
            let at = (session * SLOTS + slot) * COMPOUND_WORK_BYTES;
            let mut ops = between(&files, (0..FULL).map(|i| copy_op(at + i * PIECE, PIECE)));
            // Slot 0 has been used by RECLAIM_COMPLETE.
            let sequenceid = if slot == 0 { attacker.seq + 1 } else { 1 };
            let ArgOp::Sequence(mut args) = attacker.sequence() else { panic!("no SEQUENCE") };
            (args.slotid, args.highest_slotid, args.sequenceid) = (slot as u32, slot as u32, sequenceid);
            ops.insert(0, ArgOp::Sequence(args));
            let raw = raw.clone();
            let body = raw.encode(ops);
            calls.spawn(async move { raw.call(PROC_COMPOUND, body).await.is_ok() });
        }
    }
    while written(&rig) < PIECE {
        assert!(calls.try_join_next().is_none(), "answered without a copy");
        tokio::task::yield_now().await;
    }
    raw.conn.flushed().await;
    raw.conn.close();
    let answered = calls.join_all().await.into_iter().filter(|ok| *ok).count() as u64;
    // Waits until the last thread has let go of the server: until then all that is queued is run.
    rig.running.take().expect("a server").abandon().await;
    let asked = SESSIONS * SLOTS * COMPOUND_WORK_BYTES;
    println!("{} of {asked} bytes were copied, {answered} COMPOUNDs answered", written(&rig));
    assert!(written(&rig) < asked / 4, "{} of {asked} bytes were copied", written(&rig));
}
