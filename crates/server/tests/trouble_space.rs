//! No space left, no quota left, no writing any more, on every version: refused before anything is promised, and what was
//! promised is there after a crash. Each test needs root, loop devices and the filesystem's tools, and says so when it is skipped.

use crate::common;
use crate::small;
use crate::v40;

use common::v3::{self as three, V3};
use common::*;
use landfast_nfs::v3::args as args3;
use landfast_nfs::v3::types::StableHow as Stable3;
use landfast_nfs::v3::{Call, NfsStat3};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;
use small::image::{Image, Kernel};
use small::{blow_up, on_an_image};
use std::process::Command;
use v40::Client40;

/// Bytes of a WRITE.
const PIECE: usize = 128 << 10;

fn piece(i: usize) -> Vec<u8> {
    vec![(i % 251) as u8 + 1; PIECE]
}

/// One file, written piece by piece, without waiting for the disk until COMMIT.
enum Writer {
    Three(V3, landfast_nfs::v3::FileHandle),
    Zero(Client40, FileHandle, Stateid),
    Two(Client, FileHandle, Stateid),
}

#[derive(Debug, PartialEq)]
enum Said {
    Ok([u8; 8]),
    NoSpace,
    Quota,
    Other(String),
}

fn said4(res: ResOp) -> Said {
    match (res.status, res.body) {
        (NfsStat::NFS4_OK, ResBody::Write(w)) => Said::Ok(w.writeverf),
        (NfsStat::NFS4_OK, ResBody::Commit(verf)) => Said::Ok(verf),
        (NfsStat::NFS4ERR_NOSPC, _) => Said::NoSpace,
        (NfsStat::NFS4ERR_DQUOT, _) => Said::Quota,
        (status, _) => Said::Other(status.to_string()),
    }
}

fn said3(status: NfsStat3) -> Said {
    match status {
        NfsStat3::NOSPC => Said::NoSpace,
        NfsStat3::DQUOT => Said::Quota,
        other => Said::Other(other.to_string()),
    }
}

impl Writer {
    async fn new(rig: &Rig, version: &str) -> Writer {
        match version {
            "3" => {
                let c = V3::new(rig).await;
                let f = c.file("f").await;
                Writer::Three(c, f)
            }
            "4.0" => {
                let mut c = Client40::new(rig, b"c").await;
                let (f, s) = c.open("f", 3, 0).await;
                Writer::Zero(c, f, s)
            }
            _ => {
                let mut c = rig.client(b"c").await;
                c.cachethis = false;
                let (f, s) = c.open("f", 3).await;
                Writer::Two(c, f, s)
            }
        }
    }

    /// A piece; less of it may be taken at once, then the rest is sent.
    async fn write(&mut self, i: usize) -> Said {
        let (from, data) = (i * PIECE, Bytes::from(piece(i)));
        let mut done = 0;
        loop {
            let (count, said) = self.some((from + done) as u64, data.slice(done..)).await;
            done += count;
            if done == PIECE || !matches!(said, Said::Ok(_)) {
                return said;
            }
            assert!(count > 0, "nothing was taken and nothing is wrong");
        }
    }

    /// How many bytes were taken.
    async fn some(&mut self, offset: u64, data: Bytes) -> (usize, Said) {
        let op = |stateid| {
            let stable = StableHow::Unstable;
            ArgOp::Write(WriteArgs { stateid, offset, stable, data: data.clone() })
        };
        let res = match self {
            Writer::Three(c, f) => {
                let call = three::write(f, offset, &data, Stable3::Unstable);
                let res = c.call::<landfast_nfs::v3::res::WriteOk, landfast_nfs::v3::WccData>(call).await;
                return match res {
                    landfast_nfs::v3::Res::Ok(w) => (w.count as usize, Said::Ok(w.verf)),
                    landfast_nfs::v3::Res::Fail(status, _) => (0, said3(status)),
                };
            }
            Writer::Zero(c, f, s) => c.on(f, op(*s)).await,
            Writer::Two(c, f, s) => c.last(vec![ArgOp::Putfh(f.clone()), op(*s)]).await,
        };
        let count = if let ResBody::Write(w) = &res.body { w.count as usize } else { 0 };
        (count, said4(res))
    }

    async fn commit(&mut self) -> Said {
        let op = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
        match self {
            Writer::Three(c, f) => {
                let call = Call::Commit(args3::CommitArgs { file: f.clone(), offset: 0, count: 0 });
                match c.call::<landfast_nfs::v3::res::CommitOk, landfast_nfs::v3::WccData>(call).await {
                    landfast_nfs::v3::Res::Ok(ok) => Said::Ok(ok.verf),
                    landfast_nfs::v3::Res::Fail(status, _) => said3(status),
                }
            }
            Writer::Zero(c, f, _) => said4(c.on(f, op).await),
            Writer::Two(c, f, _) => said4(c.last(vec![ArgOp::Putfh(f.clone()), op]).await),
        }
    }

    /// Writes until it is refused: how many pieces were taken, and the last answer.
    async fn fill(&mut self) -> (usize, [u8; 8], Said) {
        let mut verifier = None;
        for i in 0..1000 {
            match self.write(i).await {
                Said::Ok(v) => {
                    assert!(verifier.is_none_or(|was| was == v), "the verifier changed: data was lost");
                    verifier = Some(v);
                }
                refused => return (i, verifier.expect("something was written"), refused),
            }
        }
        panic!("125 MiB were taken where there is no room for them");
    }
}

/// All pieces are in the file.
fn whole(rig: &Rig, pieces: usize) {
    let content = std::fs::read(rig.export().join("f")).expect("the file");
    assert!(content.len() >= pieces * PIECE, "{} bytes of {pieces} pieces", content.len());
    for i in 0..pieces {
        assert!(content[i * PIECE..(i + 1) * PIECE] == piece(i)[..], "piece {i}");
    }
}

async fn unstable_writes_are_refused_before_they_are_taken(
    version: &str,
    image: Image,
    mut rig: Rig,
    expected: Said,
) {
    let mut w = Writer::new(&rig, version).await;
    let (pieces, verifier, refused) = w.fill().await;
    assert_eq!(refused, expected, "version {version}");
    assert!(pieces > 10, "{pieces} pieces");
    // What was taken can be made stable: never is it said now that there is no room.
    assert_eq!(w.commit().await, Said::Ok(verifier), "version {version}");
    drop(w);
    rig.crash().await;
    whole(&rig, pieces);
    drop(rig);
    drop(image);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nospc_comes_before_the_promise_on_version_3() {
    let Some((image, rig)) = on_an_image(Kernel::Ext4).await else { return };
    blow_up(&image, 12 << 20);
    unstable_writes_are_refused_before_they_are_taken("3", image, rig, Said::NoSpace).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nospc_comes_before_the_promise_on_version_4_0() {
    let Some((image, rig)) = on_an_image(Kernel::Ext4).await else { return };
    blow_up(&image, 12 << 20);
    unstable_writes_are_refused_before_they_are_taken("4.0", image, rig, Said::NoSpace).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nospc_comes_before_the_promise_on_version_4_2() {
    let Some((image, rig)) = on_an_image(Kernel::Ext4).await else { return };
    blow_up(&image, 12 << 20);
    unstable_writes_are_refused_before_they_are_taken("4.2", image, rig, Said::NoSpace).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn dquot_comes_before_the_promise_on_version_3() {
    let Some((image, rig)) = on_an_image(Kernel::Btrfs).await else { return };
    if image.limited("40M") {
        unstable_writes_are_refused_before_they_are_taken("3", image, rig, Said::Quota).await;
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn dquot_comes_before_the_promise_on_version_4_0() {
    let Some((image, rig)) = on_an_image(Kernel::Btrfs).await else { return };
    if image.limited("40M") {
        unstable_writes_are_refused_before_they_are_taken("4.0", image, rig, Said::Quota).await;
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn dquot_comes_before_the_promise_on_version_4_2() {
    let Some((image, rig)) = on_an_image(Kernel::Btrfs).await else { return };
    if image.limited("40M") {
        unstable_writes_are_refused_before_they_are_taken("4.2", image, rig, Said::Quota).await;
    }
}

/// What is logged with its data, and what only names it, on a full filesystem of version 3.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_3_3_8_stable_writes_and_new_names_on_a_full_filesystem() {
    let Some((image, mut rig)) = on_an_image(Kernel::Ext4).await else { return };
    blow_up(&image, 6 << 20);
    let c = V3::new(&rig).await;
    let mut kept = Vec::new();
    let refused = loop {
        let i = kept.len();
        assert!(i < 200, "6 MiB take no 25 MiB");
        let f = c.file(&format!("f{i}")).await;
        match c.status(three::write(&f, 0, &piece(i), Stable3::FileSync)).await {
            NfsStat3::OK => kept.push(f),
            status => break status,
        }
    };
    assert_eq!(refused, NfsStat3::NOSPC);
    assert!(kept.len() > 10, "{} files", kept.len());
    rig.crash().await;
    let c = V3::new(&rig).await;
    for (i, f) in kept.iter().enumerate() {
        let read = c.read(f, 0, PIECE as u32).await;
        assert!(read.data[..] == piece(i)[..], "f{i}, by the handle from before the crash");
    }
    // A full filesystem can be emptied.
    for i in 0..kept.len() {
        let at = three::at(&c.root, &format!("f{i}"));
        assert_eq!(c.status(Call::Remove(at)).await, NfsStat3::OK);
    }
    rig.running.take().expect("a server").stop().await.expect("a clean stop");
    drop(rig);
    drop(image);
}

/// As after an error of the disk: ext4 gives up its journal and goes on read-only. (An administrator cannot make it so
/// while the server has anything open for writing.)
fn turn_read_only(image: &Image) {
    let done = Command::new("mount").args(["-o", "remount,abort"]).arg(image.path()).output();
    assert!(done.is_ok_and(|o| o.status.success()), "remount");
}

/// Every change is refused as that, on each version; reading goes on.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rofs_is_said_by_every_change_on_every_version() {
    let Some((image, mut rig)) = on_an_image(Kernel::Ext4).await else { return };
    let three = V3::new(&rig).await;
    let f = three.file("f").await;
    three.write(&f, 0, b"content", Stable3::FileSync).await;
    let d = three.dir("d").await;
    // What was written to may still be open for writing.
    rig.restart().await;
    let three = V3::new(&rig).await;
    let mut zero = Client40::new(&rig, b"zero").await;
    let mut two = rig.client(b"two").await;
    turn_read_only(&image);
    let at = |n: &str| three::at(&three.root, n);
    let plain = three::mode(0o600);
    let rename = args3::RenameArgs { from: at("f"), to: at("g") };
    let link = args3::LinkArgs { file: f.clone(), link: at("l") };
    for call in [
        three::setattr(&f, plain.clone()),
        three::write(&f, 0, b"x", Stable3::FileSync),
        three::write(&f, 0, b"x", Stable3::Unstable),
        three::create(&three.root, "n", args3::CreateHow::Unchecked(plain.clone())),
        three::create(&three.root, "n", args3::CreateHow::Guarded(plain.clone())),
        three::create(&three.root, "n", args3::CreateHow::Exclusive([1; 8])),
        Call::Mkdir(args3::MkdirArgs { at: at("n"), attrs: plain.clone() }),
        Call::Symlink(args3::SymlinkArgs { at: at("n"), attrs: plain.clone(), target: name("t") }),
        Call::Mknod(args3::MknodArgs { at: at("n"), what: args3::MknodWhat::Fifo(plain) }),
        Call::Remove(at("f")),
        Call::Rmdir(at("d")),
        Call::Rename(rename),
        Call::Link(link),
    ] {
        let number = call.number();
        let status = three.status(call).await;
        assert!(matches!(status, NfsStat3::ROFS | NfsStat3::IO), "procedure {number} gave {status}");
    }
    assert_eq!(three.read(&f, 0, 100).await.data[..], b"content"[..]);
    assert_eq!(three.readdir(&three.root, 0, 4096).await.entries.0.len(), 4);
    assert_eq!(three.attrs(&d).await.nlink, 2);
    let refused = |s| matches!(s, NfsStat::NFS4ERR_ROFS | NfsStat::NFS4ERR_IO);
    let change = |op| vec![ArgOp::Putrootfh, ArgOp::Savefh, op];
    let ops = || {
        [
            mkdir("n"),
            ArgOp::Remove(name("f")),
            ArgOp::Rename(RenameArgs { oldname: name("f"), newname: name("g") }),
            ArgOp::Create(CreateArgs {
                kind: CreateType::Lnk(name("t")),
                name: name("n"),
                attrs: mode(0o777),
            }),
        ]
    };
    for op in ops() {
        let number = op.op();
        let status = two.status(change(op.clone())).await;
        assert!(refused(status), "{number} of 4.2 gave {status}");
        let status = zero.status(change(op)).await;
        assert!(refused(status), "{number} of 4.0 gave {status}");
    }
    let how = || OpenHow::Create(CreateHow::Guarded(mode(0o644)));
    let open = vec![ArgOp::Putrootfh, open_op(b"o", "n", 3, 0, how())];
    assert!(refused(two.status(open).await));
    let seqid = zero.next();
    let open = vec![ArgOp::Putrootfh, zero.open_with(seqid, 3, 0, how(), "n")];
    assert!(refused(zero.status(open).await));
    let chmod = SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(0o600) };
    let set = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("f")), ArgOp::Setattr(chmod)];
    assert!(refused(two.status(set).await));
    two.cachethis = false;
    let read = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("f")), read_op(Stateid::READ_BYPASS, 0, 100)];
    let last = two.last(read).await;
    assert!(matches!(last.body, ResBody::Read(r) if r.data[..] == b"content"[..]));
    // The server can be stopped; whether it could make everything durable it says.
    let _ = rig.running.take().expect("a server").stop().await;
    drop(rig);
    drop(image);
}
