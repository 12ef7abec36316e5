//! READ, WRITE, COMMIT (RFC 8881 sections 18.3, 18.22, 18.32).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::res::{ReadRes, WriteRes};
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;

const TEXT: &[u8] = b"This is the file test data.";

fn read(res: ResOp) -> ReadRes {
    match res.body {
        ResBody::Read(r) => r,
        other => panic!("READ gave {:?} {other:?}", res.status),
    }
}

fn wrote(res: ResOp) -> WriteRes {
    match res.body {
        ResBody::Write(w) => w,
        other => panic!("WRITE gave {:?} {other:?}", res.status),
    }
}

fn write(stateid: Stateid, stable: StableHow, offset: u64, data: &[u8]) -> ArgOp {
    ArgOp::Write(WriteArgs { stateid, offset, stable, data: Bytes::copy_from_slice(data) })
}

fn commit(offset: u64, count: u32) -> ArgOp {
    ArgOp::Commit(CommitArgs { offset, count })
}

async fn with_text(rig: &Rig) -> (Client, ArgOp, Stateid) {
    let mut c = rig.client(b"c").await;
    let (fh, s) = c.open("f", 3).await;
    let put = ArgOp::Putfh(fh);
    assert_ok(&c.run(vec![put.clone(), write_op(s, 0, TEXT)]).await);
    (c, put, s)
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_22_3_eof_and_counts() {
    let rig = Rig::new().await;
    let (mut c, put, s) = with_text(&rig).await;
    let len = TEXT.len() as u64;
    for (offset, count, expected, eof) in [
        (0u64, 1000u32, TEXT, true),
        (0, TEXT.len() as u32, TEXT, true),
        (2, 2, &TEXT[2..4], false),
        (5, 1000, &TEXT[5..], true),
        (5, 0, &[][..], false),
        (len, 10, &[][..], true),
        (len, 0, &[][..], true),
        (1000, 10, &[][..], true),
        (i64::MAX as u64, 10, &[][..], true),
        (u64::MAX, u32::MAX, &[][..], true),
    ] {
        for stateid in [s, Stateid::ANONYMOUS, Stateid::READ_BYPASS] {
            let r = read(c.last(vec![put.clone(), read_op(stateid, offset, count)]).await);
            assert_eq!((&r.data[..], r.eof), (expected, eof), "{count} bytes at {offset}");
        }
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_what_is_no_regular_file_has_no_data() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let d = SpecData { major: 1, minor: 2 };
    for (i, (kind, status)) in [
        (CreateType::Dir, NfsStat::NFS4ERR_ISDIR),
        (CreateType::Lnk(name("x")), NfsStat::NFS4ERR_SYMLINK),
        (CreateType::Fifo, NfsStat::NFS4ERR_WRONG_TYPE),
        (CreateType::Sock, NfsStat::NFS4ERR_WRONG_TYPE),
        (CreateType::Blk(d), NfsStat::NFS4ERR_WRONG_TYPE),
        (CreateType::Chr(d), NfsStat::NFS4ERR_WRONG_TYPE),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("o{i}");
        let make = ArgOp::Create(CreateArgs { kind, name: name(&file), attrs: mode(0o755) });
        assert_ok(&c.run(vec![ArgOp::Putrootfh, make]).await);
        let put = ArgOp::Putfh(c.handle(&[&file]).await);
        for op in [read_op(Stateid::ANONYMOUS, 0, 1), write_op(Stateid::ANONYMOUS, 0, b"x"), commit(0, 0)] {
            let number = op.op();
            assert_eq!(c.status(vec![put.clone(), op]).await, status, "{number} of object {i}");
        }
    }
    for op in [read_op(Stateid::ANONYMOUS, 0, 1), write_op(Stateid::ANONYMOUS, 0, b"x"), commit(0, 0)] {
        assert_eq!(c.status(vec![op]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_32_3_writing() {
    let rig = Rig::new().await;
    let (mut c, put, s) = with_text(&rig).await;
    for (stateid, stable) in [
        (Stateid::ANONYMOUS, StableHow::Unstable),
        (Stateid::READ_BYPASS, StableHow::DataSync),
        (s, StableHow::FileSync),
    ] {
        let w = wrote(c.last(vec![put.clone(), write(stateid, stable, 30, b"write data")]).await);
        assert_eq!(w.count, 10);
        assert!(w.committed >= stable, "never less than asked for");
    }
    // The gap reads as zeroes.
    let r = read(c.last(vec![put.clone(), read_op(s, 25, 20)]).await);
    assert_eq!(&r.data[..], b"a.\0\0\0write data");
    // Two in one COMPOUND.
    let two = vec![
        put.clone(),
        write(Stateid::ANONYMOUS, StableHow::Unstable, 0, b"one"),
        write(Stateid::ANONYMOUS, StableHow::Unstable, 3, b"two"),
        read_op(Stateid::ANONYMOUS, 0, 6),
    ];
    assert_eq!(&read(c.last(two).await).data[..], b"onetwo");
    // Nothing is written, nothing changes.
    let times = Bitmap::of(&[n::TIME_MODIFY, n::CHANGE, n::SIZE]);
    let fh = c.handle(&["f"]).await;
    let before = c.attrs(&fh, times).await;
    let w = wrote(c.last(vec![put.clone(), write(s, StableHow::FileSync, 5, b"")]).await);
    assert_eq!(w.count, 0);
    assert_eq!(c.attrs(&fh, times).await, before);
    // Every length, aligned or not.
    for len in (0..64).chain([1023, 1024, 1025, 4095, 4096, 4097]) {
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let ops = vec![put.clone(), write(s, StableHow::Unstable, 0, &data), read_op(s, 0, len as u32)];
        assert_eq!(&read(c.last(ops).await).data[..], &data[..], "{len} bytes");
    }
    for offset in [u64::MAX, i64::MAX as u64] {
        let status = c.status(vec![put.clone(), write(s, StableHow::Unstable, offset, b"xx")]).await;
        assert_eq!(status, NfsStat::NFS4ERR_FBIG);
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_32_3_as_much_as_maxwrite_and_maxread_say() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let ex = raw.exchange_id(b"large", 1).await;
    let mut args = session_args(ex.clientid, ex.sequenceid);
    (args.fore_chan_attrs.max_request_size, args.fore_chan_attrs.max_response_size) = (8 << 20, 8 << 20);
    let session = raw.create_session(args).await;
    let mut c = Client {
        raw,
        id: ex.clientid,
        session: session.sessionid,
        seq: 0,
        cachethis: false,
        flags: 0,
        fore: session.fore_chan_attrs,
    };
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    let (fh, s) = c.open("f", 3).await;
    let v = c.attrs(&fh, Bitmap::of(&[n::MAXREAD, n::MAXWRITE])).await;
    let max = v.maxwrite.expect("maxwrite") as usize;
    assert_eq!(v.maxread, v.maxwrite);
    let data = vec![b'A'; max];
    let put = ArgOp::Putfh(fh);
    let w = wrote(c.last(vec![put.clone(), write(s, StableHow::Unstable, 0, &data)]).await);
    assert_eq!(w.count as usize, max);
    let r = read(c.last(vec![put.clone(), read_op(s, 0, u32::MAX)]).await);
    assert!(r.data.len() <= max && !r.data.is_empty() && r.data.iter().all(|b| *b == b'A'));
    assert_eq!(r.eof, r.data.len() == max);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_3_3_commit() {
    let rig = Rig::new().await;
    let (mut c, put, s) = with_text(&rig).await;
    let w = wrote(c.last(vec![put.clone(), write(s, StableHow::Unstable, 0, TEXT)]).await);
    for (offset, count) in [(0, 0), (1, 0), (1, 1), (0, u32::MAX), (1 << 40, 5)] {
        let last = c.last(vec![put.clone(), commit(offset, count)]).await;
        assert_eq!(last.body, ResBody::Commit(w.writeverf), "{count} bytes at {offset}");
    }
    for (offset, count) in [(0xffff_ffff_ffff_fff0, 64), (u64::MAX, 1)] {
        assert_eq!(c.status(vec![put.clone(), commit(offset, count)]).await, NfsStat::NFS4ERR_INVAL);
    }
    assert_ok(&c.run(vec![put.clone(), commit(u64::MAX, 0)]).await);
    // The verifier is one for all files, and the same while nothing is lost.
    let (other, t) = c.open("g", 3).await;
    let g = wrote(c.last(vec![ArgOp::Putfh(other), write(t, StableHow::Unstable, 0, b"x")]).await);
    assert_eq!(g.writeverf, w.writeverf);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_2_3_share_denial_and_io_without_an_open() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.open("f", 3).await;
    let fh = c.handle(&["f"]).await;
    let put = ArgOp::Putfh(fh);
    for (deny, reading, writing) in [
        (0, NfsStat::NFS4_OK, NfsStat::NFS4_OK),
        (1, NfsStat::NFS4ERR_LOCKED, NfsStat::NFS4_OK),
        (2, NfsStat::NFS4_OK, NfsStat::NFS4ERR_LOCKED),
        (3, NfsStat::NFS4ERR_LOCKED, NfsStat::NFS4ERR_LOCKED),
    ] {
        let rig = Rig::new().await;
        let mut c = rig.client(b"c").await;
        let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
        let res = c.run(vec![ArgOp::Putrootfh, open_op(b"o", "f", 3, deny, how), ArgOp::Getfh]).await;
        assert_ok(&res);
        let ResBody::Getfh(fh) = res[2].body.clone() else { panic!("GETFH gave {:?}", res[2]) };
        let put = ArgOp::Putfh(fh);
        let anonymous = Stateid::ANONYMOUS;
        assert_eq!(c.status(vec![put.clone(), read_op(anonymous, 0, 1)]).await, reading, "deny {deny}");
        assert_eq!(c.status(vec![put.clone(), write_op(anonymous, 0, b"x")]).await, writing, "deny {deny}");
        // Bypassing is for reading only.
        assert!(c.status(vec![put.clone(), read_op(Stateid::READ_BYPASS, 0, 1)]).await.is_ok());
        let bypass = c.status(vec![put, write_op(Stateid::READ_BYPASS, 0, b"x")]).await;
        assert_eq!(bypass, writing, "deny {deny}");
    }
    assert_ok(&c.run(vec![put, read_op(Stateid::ANONYMOUS, 0, 1)]).await);
}

/// The first edge condition of RFC 8881 section 8.4.3: what is written against a share reservation whose lease is over may outlast a
/// crash, so the log knows first that it has ended.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_3_nothing_is_written_before_the_log_knows_who_is_gone() {
    let rig = Rig::with(landfast_volume::Durability::Log, 1).await;
    let mut holder = rig.client(b"holder").await;
    let (fh, open) = holder.open("f", 3).await;
    assert_ok(&holder.run(vec![ArgOp::Putfh(fh.clone()), write_op(open, 0, b"kept"), close_op(open)]).await);
    holder.deny("f").await;
    let mut rival = rig.client(b"rival").await;
    let write = vec![ArgOp::Putfh(fh.clone()), write_op(Stateid::ANONYMOUS, 0, b"lost")];
    assert_eq!(rival.status(write.clone()).await, NfsStat::NFS4ERR_LOCKED);
    let silent = std::time::Instant::now();
    while silent.elapsed() < std::time::Duration::from_millis(1500) {
        rival.status_flags().await;
    }
    assert_eq!(rival.status(write.clone()).await, NfsStat::NFS4ERR_DELAY);
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file"), b"kept");
    assert_eq!(holder.sequence_status().await, NfsStat::NFS4ERR_BADSESSION);
    assert_ok(&rival.run(write).await);
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file"), b"lost");
}
