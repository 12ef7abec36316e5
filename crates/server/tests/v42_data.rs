//! The data operations of NFSv4.2 (RFC 7862), by section, over a real socket, callbacks included.

use crate::common;

use common::back::with_back_channel;
use common::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::callback::*;
use landfast_nfs::v4::data::*;
use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_BOTH;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_volume::Durability;
use landfast_xdr::Bytes;
use tokio::time::timeout;

const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH;

fn range(stateid: Stateid, offset: u64, length: u64) -> RangeArgs {
    RangeArgs { stateid, offset, length }
}

fn putfh(fh: &FileHandle) -> ArgOp {
    ArgOp::Putfh(fh.clone())
}

async fn filled(c: &mut Client, file: &str, data: &[u8]) -> (FileHandle, Stateid) {
    let (fh, stateid) = c.open(file, BOTH).await;
    assert_ok(&c.run(vec![putfh(&fh), write_op(stateid, 0, data)]).await);
    (fh, stateid)
}

async fn contents(c: &mut Client, fh: &FileHandle, stateid: Stateid) -> Bytes {
    match c.last(vec![putfh(fh), read_op(stateid, 0, 1 << 19)]).await.body {
        ResBody::Read(r) => r.data,
        other => panic!("READ gave {other:?}"),
    }
}

async fn seek(c: &mut Client, fh: &FileHandle, stateid: Stateid, offset: u64, what: u32) -> ResOp {
    c.last(vec![putfh(fh), ArgOp::Seek(SeekArgs { stateid, offset, what })]).await
}

async fn read_plus(
    c: &mut Client,
    fh: &FileHandle,
    stateid: Stateid,
    offset: u64,
    count: u32,
) -> (bool, Vec<ReadPlusContent>) {
    let args = landfast_nfs::v4::args::ReadPlusArgs { stateid, offset, count };
    match c.last(vec![putfh(fh), ArgOp::ReadPlus(args)]).await.body {
        ResBody::ReadPlus(r) => (r.eof, r.contents),
        other => panic!("READ_PLUS gave {other:?}"),
    }
}

fn copy_args(src: Stateid, dst: Stateid, src_offset: u64, dst_offset: u64, count: u64) -> CopyArgs {
    CopyArgs {
        src_stateid: src,
        dst_stateid: dst,
        src_offset,
        dst_offset,
        count,
        consecutive: true,
        synchronous: true,
        source_server: Vec::new(),
    }
}

/// COPY from one file to another.
async fn copy(c: &mut Client, from: &FileHandle, to: &FileHandle, args: CopyArgs) -> ResOp {
    c.last(vec![putfh(from), ArgOp::Savefh, putfh(to), ArgOp::Copy(args)]).await
}

fn response(res: ResOp) -> WriteResponse {
    match res.body {
        ResBody::Copy(r) => r.response,
        other => panic!("COPY gave {:?} {other:?}", res.status),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_4_and_15_11_a_hole_is_made_found_and_survives_a_crash() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let data = vec![7u8; 256 << 10];
    let (fh, s) = filled(&mut c, "f", &data).await;
    let hole = ArgOp::Deallocate(range(s, 64 << 10, 64 << 10));
    let change = Bitmap::of(&[n::CHANGE, n::SIZE]);
    let before = c.attrs(&fh, change).await;
    assert_ok(&c.run(vec![putfh(&fh), hole]).await);
    let after = c.attrs(&fh, change).await;
    assert!(after.size == before.size && after.change > before.change);
    let found = |res: ResOp| match res.body {
        ResBody::Seek(r) => (r.eof, r.offset),
        other => panic!("SEEK gave {:?} {other:?}", res.status),
    };
    assert_eq!(found(seek(&mut c, &fh, s, 0, CONTENT_HOLE).await), (false, 64 << 10));
    assert_eq!(found(seek(&mut c, &fh, s, 70 << 10, CONTENT_DATA).await), (false, 128 << 10));
    // The virtual hole at the end; no data from the end on; nothing behind it.
    assert_eq!(found(seek(&mut c, &fh, s, 130 << 10, CONTENT_HOLE).await), (true, 256 << 10));
    assert_eq!(found(seek(&mut c, &fh, s, 256 << 10, CONTENT_DATA).await), (true, 256 << 10));
    let beyond = seek(&mut c, &fh, s, (256 << 10) + 1, CONTENT_DATA).await;
    assert_eq!(beyond.status, NfsStat::NFS4ERR_NXIO);
    assert_eq!(seek(&mut c, &fh, s, 0, 2).await.status, NfsStat::NFS4ERR_UNION_NOTSUPP);
    c.deny("denied").await;
    rig.crash().await;
    let mut c = rig.client(b"other").await;
    let got = std::fs::read(rig.export().join("f")).expect("the file");
    assert!(got.len() == data.len() && got[64 << 10..128 << 10].iter().all(|b| *b == 0));
    let (fh, s) = (c.handle(&["f"]).await, Stateid::READ_BYPASS);
    // Until the grace period is over special stateids have to wait.
    assert_eq!(seek(&mut c, &fh, s, 0, CONTENT_DATA).await.status, NfsStat::NFS4ERR_GRACE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_10_read_plus_gives_data_and_holes() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (k64, k128) = (64u64 << 10, 128u64 << 10);
    // Replies that are to be kept are cut to what is kept.
    c.cachethis = false;
    let (fh, s) = filled(&mut c, "f", &[7; 64 << 10]).await;
    assert_ok(&c.run(vec![putfh(&fh), write_op(s, k128, &[8; 100])]).await);
    let data = |offset, bytes: Vec<u8>| ReadPlusContent::Data { offset, data: bytes.into() };
    let hole = |offset, length| ReadPlusContent::Hole { offset, length };
    // Data and the hole behind it; the hole alone; a hole and the data behind it.
    let got = read_plus(&mut c, &fh, s, 0, 100 << 10).await;
    assert_eq!(got, (false, vec![data(0, vec![7; 64 << 10]), hole(k64, 36 << 10)]));
    assert_eq!(read_plus(&mut c, &fh, s, 70 << 10, 4096).await, (false, vec![hole(70 << 10, 4096)]));
    let got = read_plus(&mut c, &fh, s, k64, 1 << 20).await;
    assert_eq!(got, (true, vec![hole(k64, k64), data(k128, vec![8; 100])]));
    // A hole that is not worth a segment is data, and so is one in the middle.
    let (eof, got) = read_plus(&mut c, &fh, s, k128 - 4096, 8192).await;
    assert_eq!((eof, got.len()), (true, 1));
    let (_, got) = read_plus(&mut c, &fh, s, 0, 1 << 18).await;
    let mut all = vec![7; 64 << 10];
    all.extend(vec![0; 64 << 10]);
    all.extend([8; 100]);
    assert_eq!(got, vec![data(0, all)]);
    // At the end and behind it.
    assert_eq!(read_plus(&mut c, &fh, s, k128 + 100, 10).await, (true, Vec::new()));
    assert_eq!(read_plus(&mut c, &fh, s, 1 << 60, 10).await, (true, Vec::new()));
    assert_eq!(read_plus(&mut c, &fh, s, 0, 0).await, (false, Vec::new()));
    // A file that ends with a hole.
    assert_ok(&c.run(vec![putfh(&fh), ArgOp::Deallocate(range(s, k128, 1 << 20))]).await);
    assert_eq!(read_plus(&mut c, &fh, s, k64, 1 << 20).await, (true, vec![hole(k64, k64 + 100)]));
    let args = landfast_nfs::v4::args::ReadPlusArgs { stateid: s, offset: 0, count: 1 };
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::ReadPlus(args)]).await, NfsStat::NFS4ERR_ISDIR);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_1_allocate_makes_the_file_grow_and_takes_space() {
    for durability in [Durability::Log, Durability::Sync] {
        let rig = Rig::with(durability, 90).await;
        let mut c = rig.client(b"c").await;
        let (fh, s) = filled(&mut c, "f", b"start").await;
        let wanted = Bitmap::of(&[n::SIZE, n::SPACE_USED, n::CLONE_BLKSIZE]);
        assert_ok(&c.run(vec![putfh(&fh), ArgOp::Allocate(range(s, 0, 1 << 20))]).await);
        let attrs = c.attrs(&fh, wanted).await;
        assert!(attrs.size == Some(1 << 20) && attrs.space_used >= Some(1 << 20));
        assert!(attrs.clone_blksize.is_some());
        assert_eq!(&contents(&mut c, &fh, s).await[..8], b"start\0\0\0");
        let mut status = async |op| c.status(vec![putfh(&fh), op]).await;
        assert_eq!(status(ArgOp::Allocate(range(s, 0, 0))).await, NfsStat::NFS4ERR_INVAL);
        assert_eq!(status(ArgOp::Allocate(range(s, 1, u64::MAX))).await, NfsStat::NFS4ERR_FBIG);
        let bad = Stateid { seqid: 1, other: [9; 12] };
        assert_eq!(status(ArgOp::Allocate(range(bad, 0, 1))).await, NfsStat::NFS4ERR_BAD_STATEID);
        assert_eq!(status(ArgOp::Deallocate(range(bad, 0, 1))).await, NfsStat::NFS4ERR_BAD_STATEID);
        let (_, only) = c.open("f", landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_READ).await;
        let root = vec![ArgOp::Putrootfh, ArgOp::Allocate(range(only, 0, 1))];
        assert_eq!(c.status(root).await, NfsStat::NFS4ERR_WRONG_TYPE);
        // Not in minor version 1.
        c.raw.minor = 1;
        let old = c.last(vec![putfh(&fh), ArgOp::Allocate(range(s, 0, 1))]).await;
        assert_eq!((old.op, old.status), (OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_5_advice_is_never_an_error() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, stateid) = filled(&mut c, "f", b"data").await;
    let cases: [(&[u32], &[u32]); 4] = [
        (&[advice::SEQUENTIAL], &[advice::SEQUENTIAL]),
        (&[advice::SEQUENTIAL, advice::RANDOM], &[advice::SEQUENTIAL]),
        (&[advice::INIT_PROXIMITY, advice::READ], &[]),
        (&[100, advice::WILLNEED], &[advice::WILLNEED]),
    ];
    for (hints, taken) in cases {
        let args = IoAdviseArgs { stateid, offset: 1 << 40, count: u64::MAX, hints: Bitmap::of(hints) };
        let res = c.last(vec![putfh(&fh), ArgOp::IoAdvise(args)]).await;
        assert_eq!(res.body, ResBody::IoAdvise(Bitmap::of(taken)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_2_copy_and_its_rules() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let data: Vec<u8> = (0..200_000u32).map(|n| (n / 7) as u8).collect();
    let (from, src) = filled(&mut c, "from", &data).await;
    let (to, dst) = filled(&mut c, "to", b"old contents").await;
    let done = response(copy(&mut c, &from, &to, copy_args(src, dst, 100, 4, 1000)).await);
    assert_eq!((done.callback_id, done.count, done.committed), (None, 1000, StableHow::FileSync));
    let mut want = b"old ".to_vec();
    want.extend(&data[100..1100]);
    assert_eq!(contents(&mut c, &to, dst).await, want);
    // All to the end; nothing at the end.
    let done = response(copy(&mut c, &from, &to, copy_args(src, dst, 0, 0, 0)).await);
    assert_eq!(done.count, 200_000);
    let done = response(copy(&mut c, &from, &to, copy_args(src, dst, 200_000, 0, 0)).await);
    assert_eq!(done.count, 0);
    // The stateid that was saved with the source's handle.
    let open = |file| open_op(b"another", file, BOTH, 0, landfast_nfs::v4::args::OpenHow::NoCreate);
    let ops = vec![
        ArgOp::Putrootfh,
        open("from"),
        ArgOp::Savefh,
        ArgOp::Putrootfh,
        open("to"),
        ArgOp::Copy(copy_args(Stateid::CURRENT, Stateid::CURRENT, 0, 0, 10)),
    ];
    assert_eq!(response(c.last(ops).await).count, 10);
    let mut status =
        async |from: &FileHandle, to: &FileHandle, args| copy(&mut c, from, to, args).await.status;
    let bad = Stateid { seqid: 1, other: [9; 12] };
    let inval = NfsStat::NFS4ERR_INVAL;
    assert_eq!(status(&from, &to, copy_args(src, dst, 200_001, 0, 0)).await, inval);
    assert_eq!(status(&from, &to, copy_args(src, dst, 1, 0, 200_000)).await, inval);
    assert_eq!(status(&from, &to, copy_args(src, dst, 1, 0, u64::MAX)).await, inval);
    assert_eq!(status(&from, &from, copy_args(src, src, 0, 1000, 10)).await, inval);
    assert_eq!(status(&from, &to, copy_args(bad, dst, 0, 0, 1)).await, NfsStat::NFS4ERR_BAD_STATEID);
    assert_eq!(status(&from, &to, copy_args(src, bad, 0, 0, 1)).await, NfsStat::NFS4ERR_BAD_STATEID);
    assert_eq!(status(&from, &to, copy_args(dst, src, 0, 0, 1)).await, NfsStat::NFS4ERR_BAD_STATEID);
    let source_server = vec![NetLoc::Name(Bytes::from_static(b"elsewhere"))];
    let inter = CopyArgs { source_server, ..copy_args(src, dst, 0, 0, 1) };
    assert_eq!(status(&from, &to, inter).await, NfsStat::NFS4ERR_OFFLOAD_DENIED);
    let lone = vec![putfh(&to), ArgOp::Copy(copy_args(src, dst, 0, 0, 1))];
    assert_eq!(c.status(lone).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    let dir = vec![ArgOp::Putrootfh, ArgOp::Savefh, putfh(&to), ArgOp::Copy(copy_args(src, dst, 0, 0, 1))];
    assert_eq!(c.status(dir).await, NfsStat::NFS4ERR_WRONG_TYPE);
    // Without a back channel a large copy is made before it is answered, and what was answered is stable.
    std::fs::write(rig.export().join("large"), vec![5; 20 << 20]).expect("a large file");
    let (large, src) = c.open("large", BOTH).await;
    let args = CopyArgs { synchronous: false, ..copy_args(src, dst, 0, 0, 0) };
    let done = response(copy(&mut c, &large, &to, args).await);
    assert_eq!((done.callback_id, done.count, done.committed), (None, 20 << 20, StableHow::FileSync));
    rig.crash().await;
    assert!(std::fs::read(rig.export().join("to")).expect("the copy") == vec![5; 20 << 20]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_13_clone_where_the_filesystem_can() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (from, src) = filled(&mut c, "from", &[7; 10_000]).await;
    let (to, dst) = filled(&mut c, "to", b"old").await;
    let block = c.attrs(&to, Bitmap::of(&[n::CLONE_BLKSIZE])).await.clone_blksize.expect("the attribute");
    let args = |src_offset, count| CloneArgs {
        src_stateid: src,
        dst_stateid: dst,
        src_offset,
        dst_offset: 0,
        count,
    };
    let ops = |from: &FileHandle, args| vec![putfh(from), ArgOp::Savefh, putfh(&to), ArgOp::Clone(args)];
    assert_eq!(c.status(ops(&from, args(10_001, 0))).await, NfsStat::NFS4ERR_INVAL);
    assert_eq!(c.status(ops(&to, args(0, 0))).await, NfsStat::NFS4ERR_BAD_STATEID);
    let whole = c.status(ops(&from, args(0, 0))).await;
    if block == 0 {
        assert_eq!(whole, NfsStat::NFS4ERR_NOTSUPP);
        assert_eq!(contents(&mut c, &to, dst).await, "old");
    } else {
        assert_eq!(whole, NfsStat::NFS4_OK);
        assert_eq!(contents(&mut c, &to, dst).await, vec![7; 10_000]);
        assert_eq!(c.status(ops(&from, args(1, 4096))).await, NfsStat::NFS4ERR_INVAL);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_16_1_a_large_copy_ends_with_a_callback_and_is_stable_then() {
    let mut rig = Rig::new().await;
    let data: Vec<u8> = (0..(40u32 << 20)).map(|n| (n >> 10) as u8).collect();
    std::fs::write(rig.export().join("from"), &data).expect("a large file");
    // The first callback finds the client busy: it comes again, with the slot's next number.
    let (mut c, mut listening) = with_back_channel(&rig, vec![NfsStat::NFS4ERR_DELAY]).await;
    let (from, src) = c.open("from", BOTH).await;
    let (to, dst) = filled(&mut c, "to", b"old contents").await;
    let args = CopyArgs { synchronous: false, ..copy_args(src, dst, 0, 0, 40 << 20) };
    let begun = response(copy(&mut c, &from, &to, args).await);
    let stateid = begun.callback_id.expect("it goes on by itself");
    for sequenceid in [1, 2] {
        let (call, args) = timeout(PATIENCE, listening.recv()).await.expect("in time").expect("a callback");
        assert_eq!((call.prog, call.vers, call.proc), (0x4000_0000, CB_VERSION, CB_PROC_COMPOUND));
        assert_eq!((args.minor_version, args.callback_ident), (2, 0));
        let want = CbSequenceArgs {
            sessionid: c.session,
            sequenceid,
            slotid: 0,
            highest_slotid: 0,
            cachethis: false,
            referring: Vec::new(),
        };
        assert_eq!(args.ops[0], CbOp::Sequence(want));
        let writeverf = begun.writeverf;
        let outcome = Ok(WriteResponse {
            callback_id: None,
            count: 40 << 20,
            committed: StableHow::FileSync,
            writeverf,
        });
        assert_eq!(args.ops[1], CbOp::Offload(CbOffloadArgs { fh: to.clone(), stateid, outcome }));
    }
    // Once the client has answered, the copy's stateid is no more.
    loop {
        let res = c.last(vec![putfh(&to), ArgOp::OffloadStatus(stateid)]).await;
        match res.body {
            ResBody::OffloadStatus(s) => {
                assert_eq!((s.count, s.complete), (40 << 20, Some(NfsStat::NFS4_OK)));
            }
            _ => break assert_eq!(res.status, NfsStat::NFS4ERR_BAD_STATEID),
        }
    }
    rig.crash().await;
    assert!(std::fs::read(rig.export().join("to")).expect("the copy") == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_8_and_15_9_a_copy_can_be_watched_and_stopped() {
    let mut rig = Rig::new().await;
    // A hole, which the copy fills with zeroes on some filesystems: far more than can be copied before it is stopped.
    let large = std::fs::File::create(rig.export().join("from")).expect("a file");
    large.set_len(8 << 30).expect("a large file");
    let (mut c, mut listening) = with_back_channel(&rig, Vec::new()).await;
    let (from, src) = c.open("from", BOTH).await;
    let (to, dst) = c.open("to", BOTH).await;
    let args = CopyArgs { synchronous: false, ..copy_args(src, dst, 0, 0, 0) };
    let stateid = response(copy(&mut c, &from, &to, args.clone()).await).callback_id.expect("it goes on");
    // It is its client's, whoever else has heard of its stateid.
    let mut other = rig.client(b"another client").await;
    for op in [ArgOp::OffloadStatus(stateid), ArgOp::OffloadCancel(stateid)] {
        assert_eq!(other.status(vec![putfh(&to), op]).await, NfsStat::NFS4ERR_BAD_STATEID);
    }
    let mut ask = async |fh: &FileHandle, op| c.last(vec![putfh(fh), op]).await;
    match ask(&to, ArgOp::OffloadStatus(stateid)).await.body {
        ResBody::OffloadStatus(s) => assert!(s.count < 8 << 30 && s.complete.is_none()),
        other => panic!("OFFLOAD_STATUS gave {other:?}"),
    }
    // Named by file and stateid, both.
    let bad = NfsStat::NFS4ERR_BAD_STATEID;
    assert_eq!(ask(&from, ArgOp::OffloadStatus(stateid)).await.status, bad);
    assert_eq!(ask(&from, ArgOp::OffloadCancel(stateid)).await.status, bad);
    assert_eq!(ask(&to, ArgOp::OffloadCancel(dst)).await.status, bad);
    assert_eq!(ask(&to, ArgOp::OffloadCancel(stateid)).await.status, NfsStat::NFS4_OK);
    let size = std::fs::metadata(rig.export().join("to")).expect("the copy").len();
    assert!(size < 8 << 30);
    assert_eq!(ask(&to, ArgOp::OffloadStatus(stateid)).await.status, bad);
    assert_eq!(ask(&to, ArgOp::OffloadCancel(stateid)).await.status, bad);
    // Another, which the server's clean stop stops.
    assert!(response(copy(&mut c, &from, &to, args).await).callback_id.is_some());
    rig.restart().await;
    assert!(listening.try_recv().is_err(), "nobody is told of a copy that was stopped");
    assert!(std::fs::metadata(rig.export().join("to")).expect("the copy").len() < 8 << 30);
}
