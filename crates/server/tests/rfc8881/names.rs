//! Names and objects of every type: LOOKUP, LOOKUPP, CREATE, LINK, REMOVE, RENAME, READLINK, SECINFO (RFC 8881 sections 14, 18.4,
//! 18.9, 18.13, 18.14, 18.24 to 18.26, 18.29, 18.45).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;

fn make(file: &str, kind: CreateType) -> ArgOp {
    ArgOp::Create(CreateArgs { kind, name: name(file), attrs: mode(0o755) })
}

fn rename(from: &str, to: &str) -> ArgOp {
    ArgOp::Rename(RenameArgs { oldname: name(from), newname: name(to) })
}

/// A server with one object of each type in its root, named by its type, and their handles.
async fn zoo(rig: &Rig) -> (Client, Vec<(&'static str, FileHandle)>) {
    let mut c = rig.client(b"c").await;
    let d = SpecData { major: 1, minor: 2 };
    for (file, kind) in [
        ("dir", CreateType::Dir),
        ("link", CreateType::Lnk(name("/etc/X11"))),
        ("fifo", CreateType::Fifo),
        ("sock", CreateType::Sock),
        ("blk", CreateType::Blk(d)),
        ("chr", CreateType::Chr(d)),
    ] {
        assert_ok(&c.run(vec![ArgOp::Putrootfh, make(file, kind)]).await);
    }
    let (_, s) = c.open("file", 3).await;
    let mut all = Vec::new();
    for file in ["dir", "file", "link", "fifo", "sock", "blk", "chr"] {
        all.push((file, c.handle(&[file]).await));
    }
    assert_ok(&c.run(vec![ArgOp::Putfh(all[1].1.clone()), close_op(s)]).await);
    (c, all)
}

/// What an operation on names says when its directory is this object: only some may say that it is a link.
fn no_directory(file: &str, op: OpNum) -> NfsStat {
    match op {
        OpNum::LOOKUP | OpNum::LOOKUPP if file == "link" => NfsStat::NFS4ERR_SYMLINK,
        _ => NfsStat::NFS4ERR_NOTDIR,
    }
}

#[tokio::test]
async fn rfc8881_18_4_3_each_type_is_made_and_is_what_it_is() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let (mut c, all) = zoo(&rig).await;
    let types = [
        FileType::Dir,
        FileType::Reg,
        FileType::Lnk,
        FileType::Fifo,
        FileType::Sock,
        FileType::Blk,
        FileType::Chr,
    ];
    for ((file, fh), kind) in all.iter().zip(types) {
        let v = c.attrs(fh, Bitmap::of(&[n::TYPE, n::RAWDEV, n::FILEHANDLE])).await;
        assert_eq!((v.kind, v.filehandle.as_ref()), (Some(kind), Some(fh)), "{file}");
        if matches!(kind, FileType::Blk | FileType::Chr) {
            assert_eq!(v.rawdev, Some(SpecData { major: 1, minor: 2 }));
        }
        // Its handle leads back to it.
        let got = c.last(vec![ArgOp::Putfh(fh.clone()), ArgOp::Getfh]).await;
        assert_eq!(got.body, ResBody::Getfh(fh.clone()));
        // Nothing is made over it.
        for other in [CreateType::Dir, CreateType::Fifo, CreateType::Lnk(name("x"))] {
            let status = c.status(vec![ArgOp::Putrootfh, make(file, other)]).await;
            assert_eq!(status, NfsStat::NFS4ERR_EXIST);
        }
        // CREATE makes the new object the current one.
        assert_eq!(
            c.status(vec![ArgOp::Putfh(fh.clone()), ArgOp::Lookup(name(""))]).await,
            match *file {
                "dir" => NfsStat::NFS4ERR_INVAL,
                other => no_directory(other, OpNum::LOOKUP),
            }
        );
    }
    let res = c.run(vec![ArgOp::Putrootfh, make("dir2", CreateType::Dir), ArgOp::Getfh]).await;
    let there = c.handle(&["dir2"]).await;
    assert_eq!(res[2].body, ResBody::Getfh(there));
}

#[tokio::test]
async fn rfc8881_18_4_3_types_that_create_does_not_make() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    for number in [0, 1, 8, 9, 10, u32::MAX] {
        let status = c.status(vec![ArgOp::Putrootfh, make("x", CreateType::Other(number))]).await;
        assert_eq!(status, NfsStat::NFS4ERR_BADTYPE, "{number}");
    }
    let empty = make("x", CreateType::Lnk(Bytes::new()));
    assert_eq!(c.status(vec![ArgOp::Putrootfh, empty]).await, NfsStat::NFS4ERR_INVAL);
    let create = |attrs| ArgOp::Create(CreateArgs { kind: CreateType::Dir, name: name("x"), attrs });
    let read_only = fattr(AttrValues { link_support: Some(true), ..AttrValues::default() });
    let unsupported = Fattr { mask: Bitmap::of(&[14]), values: Bytes::from_static(&[0, 0, 0, 1]) };
    let garbage = Fattr { mask: Bitmap::of(&[n::MODE]), values: Bytes::new() };
    for (attrs, status) in [
        (read_only, NfsStat::NFS4ERR_INVAL),
        (unsupported, NfsStat::NFS4ERR_ATTRNOTSUPP),
        (garbage, NfsStat::NFS4ERR_BADXDR),
    ] {
        assert_eq!(c.status(vec![ArgOp::Putrootfh, create(attrs)]).await, status);
    }
    assert!(!rig.export().join("x").exists());
}

#[tokio::test]
async fn rfc8881_18_what_is_no_directory_holds_no_names() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let (mut c, all) = zoo(&rig).await;
    for (file, fh) in &all[1..] {
        let put = ArgOp::Putfh(fh.clone());
        for op in [
            ArgOp::Lookup(name("x")),
            ArgOp::Lookupp,
            make("x", CreateType::Dir),
            ArgOp::Remove(name("x")),
            readdir_op(0, 0, 4096, &[n::FILEID]),
            ArgOp::Secinfo(name("x")),
            ArgOp::SecinfoNoName(1),
        ] {
            let number = op.op();
            let expected = no_directory(file, number);
            assert_eq!(c.status(vec![put.clone(), op]).await, expected, "{number} on {file}");
        }
        let expected = NfsStat::NFS4ERR_NOTDIR;
        // As source and as target of RENAME, as target of LINK.
        let dir = ArgOp::Putfh(all[0].1.clone());
        let source = vec![put.clone(), ArgOp::Savefh, dir.clone(), rename("x", "y")];
        assert_eq!(c.status(source).await, expected, "RENAME from {file}");
        let target = vec![ArgOp::Putrootfh, ArgOp::Savefh, put.clone(), rename("file", "y")];
        assert_eq!(c.status(target).await, expected, "RENAME to {file}");
        let link = vec![ArgOp::Putfh(all[1].1.clone()), ArgOp::Savefh, put, ArgOp::Link(name("y"))];
        assert_eq!(c.status(link).await, expected, "LINK into {file}");
    }
}

#[tokio::test]
async fn rfc8881_18_9_what_can_be_linked() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let (mut c, all) = zoo(&rig).await;
    for (file, fh) in &all {
        let to = format!("{file}2");
        let link = vec![
            ArgOp::Putfh(fh.clone()),
            ArgOp::Savefh,
            ArgOp::Putrootfh,
            ArgOp::Link(name(&to)),
            ArgOp::Getfh,
        ];
        let links = c.attrs(fh, Bitmap::of(&[n::NUMLINKS])).await.numlinks.expect("numlinks");
        let res = c.run(link.clone()).await;
        if *file == "dir" {
            assert_eq!(res.last().map(|r| r.status), Some(NfsStat::NFS4ERR_ISDIR));
            continue;
        }
        assert_ok(&res);
        assert_eq!(c.attrs(fh, Bitmap::of(&[n::NUMLINKS])).await.numlinks, Some(links + 1));
        assert_eq!(c.handle(&[&to]).await, *fh, "the same object");
        assert_eq!(c.status(link).await, NfsStat::NFS4ERR_EXIST);
    }
    let none = vec![ArgOp::Putrootfh, ArgOp::Link(name("x"))];
    assert_eq!(c.status(none).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    assert_eq!(c.status(vec![ArgOp::Link(name("x"))]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
}

#[tokio::test]
async fn rfc8881_18_25_each_type_is_removed() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let (mut c, all) = zoo(&rig).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(all[0].1.clone()), make("in", CreateType::Fifo)]).await);
    let remove = |file: &str| vec![ArgOp::Putrootfh, ArgOp::Remove(name(file))];
    assert_eq!(c.status(remove("dir")).await, NfsStat::NFS4ERR_NOTEMPTY);
    assert_ok(&c.run(vec![ArgOp::Putfh(all[0].1.clone()), ArgOp::Remove(name("in"))]).await);
    for (file, fh) in &all {
        assert_ok(&c.run(remove(file)).await);
        assert_eq!(c.status(remove(file)).await, NfsStat::NFS4ERR_NOENT);
        let stale = c.status(vec![ArgOp::Putfh(fh.clone()), ArgOp::Getattr(Bitmap::of(&[n::TYPE]))]).await;
        assert_eq!(stale, NfsStat::NFS4ERR_STALE, "{file}");
    }
    assert_eq!(c.status(vec![ArgOp::Remove(name("x"))]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
}

#[tokio::test]
async fn rfc8881_18_26_3_renaming_over() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let (mut c, all) = zoo(&rig).await;
    let inside = |ops: Vec<ArgOp>| [vec![ArgOp::Putrootfh, ArgOp::Savefh], ops].concat();
    assert_ok(&c.run(vec![ArgOp::Putrootfh, make("empty", CreateType::Dir)]).await);
    assert_ok(
        &c.run(vec![ArgOp::Putrootfh, make("full", CreateType::Dir), make("in", CreateType::Fifo)]).await,
    );
    // A directory over what is none, what is no directory over one, over a directory that is not empty.
    for (file, _) in &all[1..] {
        assert_eq!(c.status(inside(vec![rename("dir", file)])).await, NfsStat::NFS4ERR_EXIST, "{file}");
        for dir in ["empty", "full"] {
            assert_eq!(c.status(inside(vec![rename(file, dir)])).await, NfsStat::NFS4ERR_EXIST, "{file}");
        }
    }
    assert_eq!(c.status(inside(vec![rename("dir", "full")])).await, NfsStat::NFS4ERR_EXIST);
    assert_ok(&c.run(inside(vec![rename("dir", "empty")])).await);
    // Onto itself nothing happens, also in the change attributes.
    for same in ["empty", "file", "fifo"] {
        let res = c.last(inside(vec![rename(same, same)])).await;
        let ResBody::Rename(r) = res.body else { panic!("RENAME gave {:?}", res.status) };
        assert_eq!(r.source_cinfo.before, r.source_cinfo.after);
        assert_eq!(r.target_cinfo.before, r.target_cinfo.after);
    }
    // Files, links and the like over each other.
    for (from, to) in [("fifo", "sock"), ("sock", "blk"), ("blk", "chr"), ("chr", "link"), ("link", "file")] {
        assert_ok(&c.run(inside(vec![rename(from, to)])).await);
    }
    let v = c.handle(&["file"]).await;
    assert_eq!(v, all[3].1, "the FIFO has come all the way");
    assert_eq!(c.status(inside(vec![rename("none", "x")])).await, NfsStat::NFS4ERR_NOENT);
    assert_eq!(c.status(vec![ArgOp::Putrootfh, rename("a", "b")]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
}

#[tokio::test]
async fn rfc8881_18_24_readlink() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let (mut c, all) = zoo(&rig).await;
    for (file, fh) in &all {
        let res = c.last(vec![ArgOp::Putfh(fh.clone()), ArgOp::Readlink]).await;
        if *file == "link" {
            assert_eq!(res.body, ResBody::Readlink(name("/etc/X11")));
        } else {
            assert_eq!(res.status, NfsStat::NFS4ERR_WRONG_TYPE, "{file}");
        }
    }
}

#[tokio::test]
async fn rfc8881_14_any_bytes_but_nul_and_slash_are_a_name_and_come_back_as_they_were() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let mut names: Vec<Vec<u8>> =
        (1..=255u8).filter(|b| *b != b'/').map(|b| vec![b'a', b'a', b, b'b']).collect();
    for odd in
        [&b"\xc0\xc1"[..], b"\xe0\x8a", b"\xc0\xaf", b"\xed\xa0\x80", b"\xff", b"C:", b"...", b" ", b"\xc0 "]
    {
        names.push(odd.to_vec());
    }
    names.push(vec![b'x'; 255]);
    names.push(vec![0xff; 255]);
    for batch in names.chunks(30) {
        let ops = batch.iter().flat_map(|b| {
            let name = Bytes::copy_from_slice(b);
            [ArgOp::Putrootfh, ArgOp::Create(CreateArgs { kind: CreateType::Fifo, name, attrs: mode(0o644) })]
        });
        assert_ok(&c.run(ops.collect()).await);
    }
    let mut found = Vec::new();
    let mut cookie = 0;
    loop {
        let res = c.last(vec![ArgOp::Putrootfh, readdir_op(cookie, 0, 8192, &[n::FILEID])]).await;
        let ResBody::Readdir(page) = res.body else { panic!("READDIR gave {:?}", res.status) };
        found.extend(page.entries.iter().map(|e| e.name.to_vec()));
        cookie = page.entries.last().map_or(cookie, |e| e.cookie);
        if page.eof {
            break;
        }
    }
    found.sort();
    names.sort();
    assert_eq!(found, names);
    for batch in names.chunks(30) {
        let ops = batch.iter().flat_map(|b| {
            let n = Bytes::copy_from_slice(b);
            [ArgOp::Putrootfh, ArgOp::Lookup(n.clone()), ArgOp::Putrootfh, ArgOp::Remove(n)]
        });
        assert_ok(&c.run(ops.collect()).await);
    }
}

#[tokio::test]
async fn rfc8881_18_13_4_lookup_follows_nothing() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    assert_ok(&c.run(vec![ArgOp::Putrootfh, make("d", CreateType::Dir), make("e", CreateType::Dir)]).await);
    assert_ok(&c.run(vec![ArgOp::Putrootfh, make("l", CreateType::Lnk(name("d")))]).await);
    let below = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("l")), ArgOp::Lookup(name("e"))];
    assert_eq!(c.status(below).await, NfsStat::NFS4ERR_SYMLINK);
    let up = c.last(vec![
        ArgOp::Putrootfh,
        ArgOp::Lookup(name("d")),
        ArgOp::Lookup(name("e")),
        ArgOp::Lookupp,
        ArgOp::Getfh,
    ]);
    let up = up.await;
    assert_eq!(up.body, ResBody::Getfh(c.handle(&["d"]).await));
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::Lookupp]).await, NfsStat::NFS4ERR_NOENT);
    for op in [ArgOp::Lookup(name("x")), ArgOp::Lookupp, ArgOp::Readlink, ArgOp::Getfh, ArgOp::Savefh] {
        assert_eq!(c.status(vec![op]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    }
}

#[tokio::test]
async fn rfc8881_2_6_3_1_1_8_secinfo_consumes_the_filehandle() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    assert_ok(&c.run(vec![ArgOp::Putrootfh, make("d", CreateType::Dir), make("e", CreateType::Dir)]).await);
    for op in [ArgOp::Secinfo(name("d")), ArgOp::SecinfoNoName(0)] {
        assert_ok(&c.run(vec![ArgOp::Putrootfh, op.clone()]).await);
        let after = c.status(vec![ArgOp::Putrootfh, op.clone(), ArgOp::Getfh]).await;
        assert_eq!(after, NfsStat::NFS4ERR_NOFILEHANDLE);
        assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Savefh, op, ArgOp::Restorefh, ArgOp::Getfh]).await);
    }
    let parent = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("d")), ArgOp::SecinfoNoName(1)];
    assert_ok(&c.run(parent).await);
    for (op, status) in [
        (ArgOp::SecinfoNoName(1), NfsStat::NFS4ERR_NOENT),
        (ArgOp::SecinfoNoName(2), NfsStat::NFS4ERR_BADXDR),
        (ArgOp::Secinfo(name("none")), NfsStat::NFS4ERR_NOENT),
        (ArgOp::Secinfo(name("")), NfsStat::NFS4ERR_INVAL),
    ] {
        assert_eq!(c.status(vec![ArgOp::Putrootfh, op]).await, status);
    }
}
