//! Operations over a real socket: names, handles, attributes, opens, locks, data.

use crate::common;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;
use std::os::unix::fs::MetadataExt;

fn cinfo(res: &ResOp) -> ChangeInfo {
    match &res.body {
        ResBody::Create(c) => c.cinfo,
        ResBody::Remove(c) | ResBody::Link(c) => *c,
        ResBody::Open(o) => o.cinfo,
        other => panic!("no change_info: {other:?}"),
    }
}

fn opened(res: &ResOp) -> OpenRes {
    match &res.body {
        ResBody::Open(o) => o.clone(),
        other => panic!("OPEN gave {:?} {other:?}", res.status),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_14_names_that_are_none() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let long = vec![b'x'; 256];
    for (bad, status) in [
        (&b""[..], NfsStat::NFS4ERR_INVAL),
        (b".", NfsStat::NFS4ERR_BADNAME),
        (b"..", NfsStat::NFS4ERR_BADNAME),
        (b"a/b", NfsStat::NFS4ERR_BADCHAR),
        (b"a\0b", NfsStat::NFS4ERR_BADCHAR),
        (&long, NfsStat::NFS4ERR_NAMETOOLONG),
    ] {
        let bad = Bytes::copy_from_slice(bad);
        let owner = landfast_nfs::v4::args::owner(0, b"o");
        let create = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
        let open = |openhow| {
            ArgOp::Open(OpenArgs {
                seqid: 0,
                share_access: 1,
                share_deny: 0,
                owner: owner.clone(),
                openhow,
                claim: OpenClaim::Null(bad.clone()),
            })
        };
        let ops = [
            ArgOp::Lookup(bad.clone()),
            ArgOp::Remove(bad.clone()),
            ArgOp::Secinfo(bad.clone()),
            ArgOp::Create(CreateArgs { kind: CreateType::Dir, name: bad.clone(), attrs: mode(0o755) }),
            open(OpenHow::NoCreate),
            open(create),
            ArgOp::Rename(RenameArgs { oldname: name("a"), newname: bad.clone() }),
            ArgOp::Rename(RenameArgs { oldname: bad.clone(), newname: name("a") }),
        ];
        for op in ops {
            let number = op.op();
            let got = c.status(vec![ArgOp::Putrootfh, ArgOp::Savefh, op]).await;
            assert_eq!(got, status, "{number} of {bad:?}");
        }
    }
    // Any other bytes are a name.
    let odd = Bytes::from_static(b"\xff\xfe\n\\ \x01");
    let make = ArgOp::Create(CreateArgs { kind: CreateType::Dir, name: odd.clone(), attrs: mode(0o755) });
    assert_ok(&c.run(vec![ArgOp::Putrootfh, make, ArgOp::Putrootfh, ArgOp::Lookup(odd)]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn handles_that_are_none() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (good, _) = c.open("f", 3).await;
    for i in 0..good.0.len() {
        let mut forged = good.0.to_vec();
        forged[i] ^= 0x10;
        let status = c.status(vec![ArgOp::Putfh(FileHandle(forged.into()))]).await;
        assert_eq!(status, NfsStat::NFS4ERR_BADHANDLE, "byte {i}");
    }
    for len in [0, 1, 4, 20, 127, 128] {
        let junk = FileHandle(Bytes::from(vec![1; len]));
        assert_eq!(c.status(vec![ArgOp::Putfh(junk)]).await, NfsStat::NFS4ERR_BADHANDLE);
    }
    let long = FileHandle(Bytes::from(vec![1; 129]));
    assert_eq!(c.status(vec![ArgOp::Putfh(long)]).await, NfsStat::NFS4ERR_BADXDR);
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d"), ArgOp::Getfh]).await);
    let dir = c.handle(&["d"]).await;
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Remove(name("d"))]).await);
    assert_eq!(
        c.status(vec![ArgOp::Putfh(dir), ArgOp::Getattr(Bitmap::of(&[4]))]).await,
        NfsStat::NFS4ERR_STALE
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_operation_that_is_none_or_not_served() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    for number in [0, 1, 2, 76, 4711, 10044, u32::MAX] {
        let last = c.last(vec![ArgOp::Putrootfh, ArgOp::Other(OpNum(number))]).await;
        assert_eq!((last.op, last.status), (OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL));
    }
    for op in [OpNum::OPENATTR, OpNum::LAYOUTGET, OpNum::WRITE_SAME, OpNum::COPY_NOTIFY, OpNum::SETCLIENTID] {
        let last = c.last(vec![ArgOp::Putrootfh, ArgOp::Other(op)]).await;
        assert_eq!((last.op, last.status), (op, NfsStat::NFS4ERR_NOTSUPP));
    }
    // What 4.2 added does not exist in 4.1.
    c.raw.minor = 1;
    let last = c.last(vec![ArgOp::Putrootfh, ArgOp::Other(OpNum::SEEK)]).await;
    assert_eq!((last.op, last.status), (OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL));
    for minor in [3, 77] {
        c.raw.minor = minor;
        let res = c.again(vec![ArgOp::Putrootfh]).await;
        assert_eq!((res.status, res.results.len()), (NfsStat::NFS4ERR_MINOR_VERS_MISMATCH, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_16_2_3_1_2_the_current_stateid() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
    let open = |f, how| open_op(b"o", f, 3, 0, how);
    // A whole file in one COMPOUND.
    let res = c
        .run(vec![
            ArgOp::Putrootfh,
            ArgOp::Savefh,
            open("a", how.clone()),
            write_op(Stateid::CURRENT, 0, b"hello"),
            read_op(Stateid::CURRENT, 1, 3),
            close_op(Stateid::CURRENT),
            ArgOp::Restorefh,
            open("b", how.clone()),
            close_op(Stateid::CURRENT),
        ])
        .await;
    assert_ok(&res);
    assert!(matches!(&res[4].body, ResBody::Read(r) if r.data == "ell" && !r.eof));
    assert_eq!(rig.server().stats().opens, 0);
    // None after CLOSE, none after an operation that sets the filehandle, none at the beginning.
    let after_close = vec![
        ArgOp::Putrootfh,
        open("a", OpenHow::NoCreate),
        close_op(Stateid::CURRENT),
        read_op(Stateid::CURRENT, 0, 1),
    ];
    assert_eq!(c.status(after_close).await, NfsStat::NFS4ERR_BAD_STATEID);
    let a = c.handle(&["a"]).await;
    let after_putfh = vec![
        ArgOp::Putrootfh,
        open("a", OpenHow::NoCreate),
        ArgOp::Putfh(a.clone()),
        read_op(Stateid::CURRENT, 0, 1),
    ];
    assert_eq!(c.status(after_putfh).await, NfsStat::NFS4ERR_BAD_STATEID);
    let at_first = vec![ArgOp::Putfh(a.clone()), read_op(Stateid::CURRENT, 0, 1)];
    assert_eq!(c.status(at_first).await, NfsStat::NFS4ERR_BAD_STATEID);
    // SAVEFH and RESTOREFH take it along.
    let saved = vec![
        ArgOp::Putrootfh,
        open("a", OpenHow::NoCreate),
        ArgOp::Savefh,
        ArgOp::Putrootfh,
        ArgOp::Restorefh,
        read_op(Stateid::CURRENT, 0, 1),
        close_op(Stateid::CURRENT),
    ];
    assert_ok(&c.run(saved).await);
    let invalid = vec![ArgOp::Putfh(a.clone()), read_op(Stateid::INVALID, 0, 1)];
    assert_eq!(c.status(invalid).await, NfsStat::NFS4ERR_BAD_STATEID);
    let anonymous = vec![ArgOp::Putfh(a), read_op(Stateid::ANONYMOUS, 0, 1)];
    assert_eq!(c.status(anonymous).await, NfsStat::NFS4_OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_16_creating() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let attrs = AttrValues {
        mode: Some(0o640),
        owner: Some(name("1000")),
        owner_group: Some(name("1001")),
        size: Some(10),
        ..AttrValues::default()
    };
    let guarded = OpenHow::Create(CreateHow::Guarded(fattr(attrs)));
    let res = c.run(vec![ArgOp::Putrootfh, open_op(b"o", "g", 2, 0, guarded.clone())]).await;
    assert_ok(&res);
    let first = opened(&res[1]);
    assert!(first.cinfo.atomic && first.cinfo.after > first.cinfo.before);
    assert_eq!(first.attrset, Bitmap::of(&[n::MODE, n::OWNER, n::OWNER_GROUP, n::SIZE]));
    let meta = std::fs::metadata(rig.export().join("g")).expect("made");
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.len()), (0o640, 1000, 1001, 10));
    assert_eq!(
        c.status(vec![ArgOp::Putrootfh, open_op(b"o", "g", 2, 0, guarded)]).await,
        NfsStat::NFS4ERR_EXIST
    );
    // UNCHECKED opens what is there; a size of 0 empties it, other attributes do not apply.
    let empty = AttrValues { mode: Some(0o777), size: Some(0), ..AttrValues::default() };
    let unchecked = OpenHow::Create(CreateHow::Unchecked(fattr(empty)));
    let res = c.run(vec![ArgOp::Putrootfh, open_op(b"o", "g", 2, 0, unchecked)]).await;
    assert_ok(&res);
    assert_eq!(opened(&res[1]).attrset, Bitmap::of(&[n::SIZE]));
    assert_eq!(opened(&res[1]).cinfo.before, opened(&res[1]).cinfo.after);
    let meta = std::fs::metadata(rig.export().join("g")).expect("there");
    assert_eq!((meta.mode() & 0o7777, meta.len()), (0o640, 0));
    // Exclusive: the same verifier is the same create, another is not; no attribute holds it that the client would have to set.
    let exclusive = |v: u8| OpenHow::Create(CreateHow::Exclusive41 { verf: [v; 8], attrs: mode(0o600) });
    let res = c.run(vec![ArgOp::Putrootfh, open_op(b"o", "x", 2, 0, exclusive(1))]).await;
    assert_ok(&res);
    assert_eq!(opened(&res[1]).attrset, Bitmap::of(&[n::MODE]));
    let again = c.run(vec![ArgOp::Putrootfh, open_op(b"o", "x", 2, 0, exclusive(1))]).await;
    assert_ok(&again);
    assert_eq!(opened(&again[1]).stateid.other, opened(&res[1]).stateid.other);
    assert_eq!(opened(&again[1]).attrset, Bitmap::of(&[n::MODE]));
    let other = vec![ArgOp::Putrootfh, open_op(b"o", "x", 2, 0, exclusive(2))];
    assert_eq!(c.status(other).await, NfsStat::NFS4ERR_EXIST);
    let old = OpenHow::Create(CreateHow::Exclusive([3; 8]));
    // Of two sessions the one that outlasts the server has no use for it, and may not have it.
    let open = vec![ArgOp::Putrootfh, open_op(b"o", "y", 2, 0, old)];
    assert_eq!(c.status(open.clone()).await, NfsStat::NFS4ERR_INVAL);
    let mut plain = Client::not_persistent(rig.raw().await, b"plain").await;
    // EXCLUSIVE4's client sets everything afterwards, so the times may hold the verifier until then.
    let res = plain.run(open).await;
    assert_ok(&res);
    assert_eq!(opened(&res[1]).attrset, Bitmap::of(&[n::TIME_ACCESS, n::TIME_MODIFY]));
    // A name that is no regular file.
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    let link = ArgOp::Create(CreateArgs {
        kind: CreateType::Lnk(name("d")),
        name: name("l"),
        attrs: Fattr::default(),
    });
    assert_ok(&c.run(vec![ArgOp::Putrootfh, link]).await);
    for (f, status) in
        [("d", NfsStat::NFS4ERR_ISDIR), ("l", NfsStat::NFS4ERR_SYMLINK), ("-", NfsStat::NFS4ERR_NOENT)]
    {
        let open = vec![ArgOp::Putrootfh, open_op(b"o", f, 1, 0, OpenHow::NoCreate)];
        assert_eq!(c.status(open).await, status);
    }
    let none = vec![ArgOp::Putrootfh, open_op(b"o", "g", 0, 0, OpenHow::NoCreate)];
    assert_eq!(c.status(none).await, NfsStat::NFS4ERR_INVAL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_9_7_shares_between_clients() {
    let rig = Rig::with(landfast_volume::Durability::Log, 1).await;
    let mut a = rig.client(b"a").await;
    let mut b = rig.client(b"b").await;
    let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    let deny = vec![ArgOp::Putrootfh, open_op(b"o", "f", 3, 2, how.clone())];
    let res = a.run(deny).await;
    let held = opened(&res[1]).stateid;
    let write = vec![ArgOp::Putrootfh, open_op(b"o", "f", 2, 0, OpenHow::NoCreate)];
    let read = vec![ArgOp::Putrootfh, open_op(b"o", "f", 1, 0, OpenHow::NoCreate)];
    assert_eq!(b.status(write.clone()).await, NfsStat::NFS4ERR_SHARE_DENIED);
    assert_eq!(b.status(read).await, NfsStat::NFS4_OK);
    let fh = b.handle(&["f"]).await;
    let anonymous = vec![ArgOp::Putfh(fh.clone()), write_op(Stateid::ANONYMOUS, 0, b"x")];
    assert_eq!(b.status(anonymous.clone()).await, NfsStat::NFS4ERR_LOCKED);
    // Truncation meets the reservation before anything is lost.
    assert_ok(&a.run(vec![ArgOp::Putfh(fh.clone()), write_op(held, 0, b"data")]).await);
    let empty = fattr(AttrValues { size: Some(0), ..AttrValues::default() });
    let truncate = OpenHow::Create(CreateHow::Unchecked(empty));
    let truncate = vec![ArgOp::Putrootfh, open_op(b"o", "f", 2, 0, truncate)];
    assert_eq!(b.status(truncate).await, NfsStat::NFS4ERR_SHARE_DENIED);
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file"), b"data");
    // A client that lets its lease go is no longer in the way, and learns it.
    let patience = std::time::Instant::now();
    let status = loop {
        let status = b.status(write.clone()).await;
        if status.is_ok() || patience.elapsed() > PATIENCE {
            break status;
        }
    };
    assert_eq!(status, NfsStat::NFS4_OK);
    assert_eq!(a.again(Vec::new()).await.status, NfsStat::NFS4ERR_BADSESSION);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_10_locks_between_clients() {
    let rig = Rig::new().await;
    let mut a = rig.client(b"a").await;
    let mut b = rig.client(b"b").await;
    let (fh, oa) = a.open("f", 3).await;
    let (_, ob) = b.open("f", 3).await;
    let lock = |open_stateid, locktype, offset, length| {
        ArgOp::Lock(LockArgs {
            locktype,
            reclaim: false,
            offset,
            length,
            locker: Locker::New {
                open_seqid: 0,
                open_stateid,
                lock_seqid: 0,
                lock_owner: owner(0, b"lock owner"),
            },
        })
    };
    let res = a.run(vec![ArgOp::Putfh(fh.clone()), lock(oa, LockType::Write, 5, 5)]).await;
    assert_ok(&res);
    let ResBody::Lock(held) = res[1].body else { panic!("LOCK gave {:?}", res[1]) };
    let refused = b.last(vec![ArgOp::Putfh(fh.clone()), lock(ob, LockType::Read, 0, u64::MAX)]).await;
    assert_eq!(refused.status, NfsStat::NFS4ERR_DENIED);
    let ResBody::Denied(d) = refused.body else { panic!("DENIED without a holder") };
    assert_eq!((d.offset, d.length, d.locktype), (5, 5, LockType::Write));
    assert_eq!((d.owner.clientid, d.owner.owner.0), (a.id, name("lock owner")));
    let test = |offset| {
        ArgOp::Lockt(LocktArgs {
            locktype: LockType::ReadW,
            offset,
            length: 1,
            owner: owner(0, b"lock owner"),
        })
    };
    assert_eq!(b.status(vec![ArgOp::Putfh(fh.clone()), test(9)]).await, NfsStat::NFS4ERR_DENIED);
    assert_eq!(b.status(vec![ArgOp::Putfh(fh.clone()), test(10)]).await, NfsStat::NFS4_OK);
    assert_eq!(a.status(vec![ArgOp::Putfh(fh.clone()), test(9)]).await, NfsStat::NFS4_OK, "its own");
    let zero = vec![ArgOp::Putfh(fh.clone()), lock(oa, LockType::Write, 5, 0)];
    assert_eq!(a.status(zero).await, NfsStat::NFS4ERR_INVAL);
    assert_eq!(a.status(vec![ArgOp::FreeStateid(held)]).await, NfsStat::NFS4ERR_LOCKS_HELD);
    // I/O under the lock's stateid.
    assert_ok(
        &a.run(vec![ArgOp::Putfh(fh.clone()), write_op(held, 0, b"locked"), read_op(held, 0, 6)]).await,
    );
    let unlock = ArgOp::Locku(LockuArgs {
        locktype: LockType::Write,
        seqid: 0,
        lock_stateid: held,
        offset: 0,
        length: u64::MAX,
    });
    assert_ok(&a.run(vec![ArgOp::Putfh(fh.clone()), unlock]).await);
    assert_eq!(a.status(vec![ArgOp::FreeStateid(held)]).await, NfsStat::NFS4ERR_OLD_STATEID);
    assert_eq!(a.status(vec![ArgOp::FreeStateid(Stateid { seqid: 0, ..held })]).await, NfsStat::NFS4_OK);
    assert_ok(&b.run(vec![ArgOp::Putfh(fh), lock(ob, LockType::Read, 0, u64::MAX)]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_3_3_3_change_info_follows_the_change_attribute() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let root = c.handle(&[]).await;
    let change = Bitmap::of(&[n::CHANGE]);
    // What the test itself has done to the export a moment ago, as a local process, may hide a later change of that kind: so after
    // one of the server's own.
    let res = c.run(vec![ArgOp::Putrootfh, mkdir("first")]).await;
    let mut last = cinfo(res.last().expect("a result")).after;
    let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
    let kinds = [CreateType::Dir, CreateType::Fifo, CreateType::Sock, CreateType::Lnk(name("target"))];
    let mut steps: Vec<Vec<ArgOp>> = kinds
        .into_iter()
        .enumerate()
        .map(|(i, kind)| {
            vec![ArgOp::Create(CreateArgs { kind, name: name(&format!("n{i}")), attrs: Fattr::default() })]
        })
        .collect();
    steps.push(vec![open_op(b"o", "f", 3, 0, how)]);
    steps.push(vec![ArgOp::Lookup(name("f")), ArgOp::Savefh, ArgOp::Putrootfh, ArgOp::Link(name("f2"))]);
    steps.push(vec![ArgOp::Remove(name("f2"))]);
    steps.push(vec![ArgOp::Remove(name("n0"))]);
    for step in steps {
        let mut ops = vec![ArgOp::Putrootfh];
        ops.extend(step);
        let res = c.run(ops).await;
        assert_ok(&res);
        let c_info = cinfo(res.last().expect("a result"));
        assert!(c_info.atomic);
        assert_eq!(c_info.before, last, "{:?}", res.last());
        assert!(c_info.after > c_info.before);
        last = c_info.after;
        assert_eq!(c.attrs(&root, change).await.change, Some(last));
    }
    // RENAME over, RENAME within, and RENAME of two names of one object, which does nothing.
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d"), ArgOp::Putrootfh]).await);
    let rename = |from: &str, to: &str| ArgOp::Rename(RenameArgs { oldname: name(from), newname: name(to) });
    let res = c.run(vec![ArgOp::Putrootfh, ArgOp::Savefh, ArgOp::Lookup(name("d")), rename("f", "g")]).await;
    assert_ok(&res);
    let ResBody::Rename(r) = &res[3].body else { panic!("RENAME gave {:?}", res[3]) };
    assert!(r.source_cinfo.after > r.source_cinfo.before && r.target_cinfo.after > r.target_cinfo.before);
    let dir = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("d")), ArgOp::Savefh];
    let mut link = dir.clone();
    link.extend([ArgOp::Lookup(name("g")), ArgOp::Savefh, ArgOp::Lookupp]);
    // LOOKUPP of a file is refused: a file has no one parent.
    assert_eq!(c.status(link).await, NfsStat::NFS4ERR_NOTDIR);
    let mut link = vec![ArgOp::Putrootfh, ArgOp::Lookup(name("d")), ArgOp::Lookup(name("g")), ArgOp::Savefh];
    link.extend([ArgOp::Putrootfh, ArgOp::Lookup(name("d")), ArgOp::Link(name("h"))]);
    assert_ok(&c.run(link).await);
    let mut same = dir;
    same.push(rename("g", "h"));
    let res = c.run(same).await;
    let ResBody::Rename(r) = &res[3].body else { panic!("RENAME gave {:?}", res[3]) };
    assert_eq!(r.source_cinfo.before, r.source_cinfo.after);
    assert!(rig.export().join("d/g").exists() && rig.export().join("d/h").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_26_and_18_25_what_cannot_be_renamed_or_removed() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d"), mkdir("sub")]).await);
    c.open("f", 3).await;
    let rename = |from: &str, to: &str| {
        let rename = ArgOp::Rename(RenameArgs { oldname: name(from), newname: name(to) });
        vec![ArgOp::Putrootfh, ArgOp::Savefh, rename]
    };
    assert_eq!(c.status(rename("f", "d")).await, NfsStat::NFS4ERR_EXIST);
    assert_eq!(c.status(rename("d", "f")).await, NfsStat::NFS4ERR_EXIST);
    assert_eq!(c.status(rename("none", "x")).await, NfsStat::NFS4ERR_NOENT);
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::Remove(name("d"))]).await, NfsStat::NFS4ERR_NOTEMPTY);
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::Remove(name("none"))]).await, NfsStat::NFS4ERR_NOENT);
    let file = c.handle(&["f"]).await;
    for op in [ArgOp::Lookup(name("x")), ArgOp::Remove(name("x")), mkdir("x"), readdir_op(0, 0, 4096, &[20])]
    {
        let number = op.op();
        assert_eq!(c.status(vec![ArgOp::Putfh(file.clone()), op]).await, NfsStat::NFS4ERR_NOTDIR, "{number}");
    }
    let into_itself = vec![
        ArgOp::Putrootfh,
        ArgOp::Savefh,
        ArgOp::Lookup(name("d")),
        ArgOp::Rename(RenameArgs { oldname: name("d"), newname: name("d") }),
    ];
    assert_eq!(c.status(into_itself).await, NfsStat::NFS4ERR_INVAL);
    assert_eq!(
        c.status(vec![ArgOp::Putrootfh, ArgOp::Lookup(name(".landfast"))]).await,
        NfsStat::NFS4ERR_NOENT
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_23_reading_a_directory() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let root = vec![ArgOp::Putrootfh];
    let mut expected = std::collections::BTreeSet::new();
    for i in 0..300 {
        let n = format!("an-entry-of-some-length-{i:04}");
        std::fs::write(rig.export().join(&n), b"x").expect("a file");
        expected.insert(n.into_bytes());
    }
    let with = |op| [root.clone(), vec![op]].concat();
    for bad in [1, 2] {
        let op = with(readdir_op(bad, 0, 8192, &[n::FILEID]));
        assert_eq!(c.status(op).await, NfsStat::NFS4ERR_BAD_COOKIE);
    }
    for small in [0, 15, 40] {
        let op = with(readdir_op(0, 0, small, &[n::FILEID]));
        assert_eq!(c.status(op).await, NfsStat::NFS4ERR_TOOSMALL, "maxcount {small}");
    }
    let few: &[u32] = &[n::RDATTR_ERROR, n::MOUNTED_ON_FILEID];
    let many: &[u32] = &[n::TYPE, n::CHANGE, n::SIZE, n::FILEID, n::FILEHANDLE, n::MODE, n::TIME_MODIFY];
    for (attrs, dircount, maxcount) in
        [(few, 0, 1024), (few, 200, 8192), (many, 0, 2000), (many, 400, 100_000)]
    {
        let (mut cookie, mut seen, mut pages) = (0, std::collections::BTreeSet::new(), 0);
        loop {
            let res = c.last(with(readdir_op(cookie, dircount, maxcount, attrs))).await;
            let size = landfast_xdr::Encode::to_bytes(&res.body).len();
            let ResBody::Readdir(page) = res.body else { panic!("READDIR gave {:?}", res.status) };
            assert!(size <= maxcount as usize, "{size} bytes");
            assert_eq!(page.cookieverf, [0; 8]);
            let names: usize = page.entries.iter().map(|e| 12 + e.name.len()).sum();
            assert!(dircount == 0 || names <= dircount as usize + 64);
            for e in &page.entries {
                assert!(e.cookie > 2 && e.name != "." && e.name != "..");
                assert!(seen.insert(e.name.to_vec()), "{:?} twice", e.name);
                cookie = e.cookie;
                let v = AttrValues::from_fattr(&e.attrs).expect("values");
                assert_eq!(v.mask(), Bitmap::of(attrs));
            }
            pages += 1;
            if page.eof {
                break;
            }
            assert!(!page.entries.is_empty());
        }
        assert!(pages > 1);
        assert_eq!(seen, expected);
    }
    // Removing while reading: nothing is skipped.
    let (mut cookie, mut removed) = (0, 0);
    loop {
        let ResBody::Readdir(page) = c.last(with(readdir_op(cookie, 0, 2048, few))).await.body else {
            panic!("READDIR failed")
        };
        for e in &page.entries {
            cookie = e.cookie;
            assert_ok(&c.run(with(ArgOp::Remove(e.name.clone()))).await);
            removed += 1;
        }
        if page.eof {
            break;
        }
    }
    assert_eq!(removed, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_5_what_linux_asks_for_at_mount() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let root = c.handle(&[]).await;
    let all = Bitmap::of(&(0..128).collect::<Vec<_>>());
    let writable = Bitmap::of(&[n::TIME_ACCESS_SET, n::TIME_MODIFY_SET, n::MODE_UMASK]);
    let status = c.status(vec![ArgOp::Putfh(root.clone()), ArgOp::Getattr(all)]).await;
    assert_eq!(status, NfsStat::NFS4ERR_INVAL, "attributes that can only be set");
    let v = c.attrs(&root, all.minus(&writable)).await;
    let supported = v.supported_attrs.expect("supported_attrs");
    assert_eq!(v.mask(), supported.minus(&writable), "all that is promised is given");
    assert_eq!((v.fh_expire_type, v.link_support, v.symlink_support), (Some(0), Some(true), Some(true)));
    assert_eq!((v.lease_time, v.aclsupport, v.xattr_support), (Some(90), Some(3), Some(true)));
    assert!(v.maxread >= Some(1 << 20) && v.maxwrite >= Some(1 << 20) && v.maxfilesize > Some(1 << 40));
    assert_eq!(v.change_attr_type, Some(flags::CHANGE_TYPE_IS_MONOTONIC_INCR));
    assert!(v.fileid > Some(0) && v.mounted_on_fileid == v.fileid);
    assert!(v.suppattr_exclcreat.is_some_and(|b| b.has(n::MODE) && !b.has(n::TIME_MODIFY_SET)));
    assert_eq!((v.owner, v.owner_group), (Some(name("0")), Some(name("0"))));
    assert!(v.space_total > v.space_free && v.files_total > Some(0));
    c.raw.minor = 1;
    let v = c.attrs(&root, all.minus(&Bitmap::of(&[n::TIME_ACCESS_SET, n::TIME_MODIFY_SET]))).await;
    assert!(v.change_attr_type.is_none() && v.xattr_support.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_30_setting_and_18_31_verifying_attributes() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, stateid) = c.open("f", 3).await;
    let time = NfsTime { seconds: 1_000_000_000, nseconds: 5 };
    let v = AttrValues {
        mode: Some(0o4711),
        owner: Some(name("7")),
        size: Some(3),
        time_modify_set: Some(SetTime::ClientTime(time)),
        ..AttrValues::default()
    };
    let set = |stateid, v| ArgOp::Setattr(SetattrArgs { stateid, attrs: fattr(v) });
    let last = c.last(vec![ArgOp::Putfh(fh.clone()), set(stateid, v.clone())]).await;
    let ResBody::Setattr(done) = last.body else { panic!("SETATTR gave {:?}", last.status) };
    assert_eq!(done, v.mask());
    let got = c.attrs(&fh, Bitmap::of(&[n::MODE, n::OWNER, n::SIZE, n::TIME_MODIFY])).await;
    assert_eq!(
        (got.mode, got.owner, got.size, got.time_modify),
        (Some(0o4711), Some(name("7")), Some(3), Some(time))
    );
    let same = fattr(AttrValues { size: Some(3), mode: Some(0o4711), ..AttrValues::default() });
    let other = fattr(AttrValues { size: Some(4), ..AttrValues::default() });
    for (op, status) in [
        (ArgOp::Verify(same.clone()), NfsStat::NFS4_OK),
        (ArgOp::Verify(other.clone()), NfsStat::NFS4ERR_NOT_SAME),
        (ArgOp::Nverify(other), NfsStat::NFS4_OK),
        (ArgOp::Nverify(same), NfsStat::NFS4ERR_SAME),
    ] {
        assert_eq!(c.status(vec![ArgOp::Putfh(fh.clone()), op]).await, status);
    }
    // Somebody else may not; and what is no owner is none.
    let mut stranger = c.clone();
    stranger.raw.cred = user(1000);
    let chmod = AttrValues { mode: Some(0o777), ..AttrValues::default() };
    let last = stranger.last(vec![ArgOp::Putfh(fh.clone()), set(Stateid::ANONYMOUS, chmod)]).await;
    assert_eq!(last.status, NfsStat::NFS4ERR_PERM);
    assert_eq!(last.body, ResBody::Setattr(Bitmap::default()));
    c.seq = stranger.seq;
    let strange = AttrValues { owner: Some(name("root@here")), ..AttrValues::default() };
    let last = c.status(vec![ArgOp::Putfh(fh.clone()), set(Stateid::ANONYMOUS, strange)]).await;
    assert_eq!(last, NfsStat::NFS4ERR_BADOWNER);
    let readonly = AttrValues { fileid: Some(1), ..AttrValues::default() };
    let last = c.status(vec![ArgOp::Putfh(fh), set(Stateid::ANONYMOUS, readonly)]).await;
    assert_eq!(last, NfsStat::NFS4ERR_INVAL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_1_access_is_the_callers() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, _) = c.open("f", 3).await;
    let all = 0x1ff;
    let access = |res: ResOp| match res.body {
        ResBody::Access(a) => (a.supported, a.access),
        other => panic!("ACCESS gave {other:?}"),
    };
    let ask = vec![ArgOp::Putfh(fh), ArgOp::Access(all)];
    assert_eq!(access(c.last(ask.clone()).await), (0x1ed, 0x1cd));
    c.raw.cred = user(1000);
    assert_eq!(access(c.last(ask).await), (0x1ed, 0x141));
    assert_eq!(access(c.last(vec![ArgOp::Putrootfh, ArgOp::Access(all)]).await), (0x1df, 0x143));
    let make = vec![ArgOp::Putrootfh, mkdir("d")];
    assert_eq!(c.status(make).await, NfsStat::NFS4ERR_ACCESS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_32_and_18_3_writing() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, stateid) = c.open("f", 3).await;
    let put = ArgOp::Putfh(fh.clone());
    let write = |stable, offset, data: &[u8]| {
        ArgOp::Write(WriteArgs { stateid, offset, stable, data: Bytes::copy_from_slice(data) })
    };
    let wrote = |res: ResOp| match res.body {
        ResBody::Write(w) => w,
        other => panic!("WRITE gave {:?} {other:?}", res.status),
    };
    for stable in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
        let w = wrote(c.last(vec![put.clone(), write(stable, 0, b"some data")]).await);
        assert_eq!(w.count, 9);
        assert!(w.committed >= stable);
    }
    let w = wrote(c.last(vec![put.clone(), write(StableHow::Unstable, 9, &[7; 4096])]).await);
    let commit = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
    let last = c.last(vec![put.clone(), commit]).await;
    assert_eq!(last.body, ResBody::Commit(w.writeverf));
    let w = wrote(c.last(vec![put.clone(), write(StableHow::FileSync, 0, b"")]).await);
    assert_eq!(w.count, 0);
    assert_eq!(
        c.status(vec![put.clone(), write(StableHow::FileSync, u64::MAX - 1, b"xyz")]).await,
        NfsStat::NFS4ERR_FBIG
    );
    let read = c.last(vec![put.clone(), read_op(stateid, 4100, 1000)]).await;
    assert!(matches!(read.body, ResBody::Read(r) if r.eof && r.data == [7u8; 5][..]));
    let beyond = c.last(vec![put.clone(), read_op(stateid, u64::MAX - 5, 10)]).await;
    assert!(matches!(beyond.body, ResBody::Read(r) if r.eof && r.data.is_empty()));
    // The open decides, not what the file's mode says now.
    let open = open_op(b"reader", "f", 1, 0, OpenHow::NoCreate);
    let res = c.run(vec![ArgOp::Putrootfh, open]).await;
    let reader = opened(&res[1]).stateid;
    assert_eq!(c.status(vec![put.clone(), write_op(reader, 0, b"x")]).await, NfsStat::NFS4ERR_OPENMODE);
    let dir = vec![ArgOp::Putrootfh, read_op(Stateid::ANONYMOUS, 0, 1)];
    assert_eq!(c.status(dir).await, NfsStat::NFS4ERR_ISDIR);
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file").len(), 4105);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_7_3_the_exports_own_path_leads_to_it() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let root = c.handle(&[]).await;
    let export = rig.export();
    let path: Vec<&str> = export.to_str().expect("a path").split('/').skip(1).collect();
    assert_eq!(c.handle(&path).await, root);
    let fsid = Bitmap::of(&[n::FSID, n::FILEID, n::MOUNTED_ON_FILEID, n::TYPE]);
    let of_root = c.attrs(&root, fsid).await;
    let (mut above, mut seen) = (root.clone(), Vec::new());
    for i in 1..path.len() {
        let dir = c.handle(&path[..i]).await;
        let v = c.attrs(&dir, fsid).await;
        assert_ne!(v.fsid, of_root.fsid);
        assert!(!seen.contains(&v.fileid) && v.fileid != Some(0));
        seen.push(v.fileid);
        let ResBody::Readdir(page) = c
            .last(vec![ArgOp::Putfh(dir.clone()), readdir_op(0, 0, 4096, &[n::MOUNTED_ON_FILEID])])
            .await
            .body
        else {
            panic!("READDIR failed")
        };
        assert_eq!(page.entries.iter().map(|e| &e.name[..]).collect::<Vec<_>>(), [path[i].as_bytes()]);
        let up = c.last(vec![ArgOp::Putfh(dir.clone()), ArgOp::Lookupp, ArgOp::Getfh]).await;
        assert_eq!(up.body, ResBody::Getfh(above));
        let make = vec![ArgOp::Putfh(dir.clone()), mkdir("x")];
        assert_eq!(c.status(make).await, NfsStat::NFS4ERR_ROFS);
        let other = vec![ArgOp::Putfh(dir.clone()), ArgOp::Lookup(name("x"))];
        assert_eq!(c.status(other).await, NfsStat::NFS4ERR_NOENT);
        above = dir;
    }
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::Lookupp]).await, NfsStat::NFS4ERR_NOENT);
    // A real entry of that name is what the name means, and the path still leads to the export.
    let synthetic = c.handle(&path[..path.len() - 1]).await;
    for i in 1..path.len() {
        let above = c.handle(&path[..i - 1]).await;
        assert_ok(&c.run(vec![ArgOp::Putfh(above), mkdir(path[i - 1])]).await);
        let real = c.handle(&path[..i]).await;
        assert_eq!(c.attrs(&real, fsid).await.fsid, of_root.fsid);
        assert_eq!(c.handle(&path).await, root, "below {i} real directories");
        if i < path.len() - 1 {
            assert_eq!(c.handle(&path[..path.len() - 1]).await, synthetic);
        }
        // In no other directory, and under no other name.
        assert_ok(&c.run(vec![ArgOp::Putfh(real.clone()), mkdir("other")]).await);
        let ops = |dir: &str| {
            vec![ArgOp::Putfh(real.clone()), ArgOp::Lookup(name("other")), ArgOp::Lookup(name(dir))]
        };
        assert_eq!(c.status(ops(path[i])).await, NfsStat::NFS4ERR_NOENT);
        let nothing = vec![ArgOp::Putfh(real.clone()), ArgOp::Lookup(name("nothing"))];
        assert_eq!(c.status(nothing).await, NfsStat::NFS4ERR_NOENT);
    }
    // Real to its end it is that directory.
    let above = c.handle(&path[..path.len() - 1]).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(above), mkdir(path[path.len() - 1])]).await);
    assert_ne!(c.handle(&path).await, root);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_7_3_an_export_path_of_one_component() {
    let rig = Rig::named("/data").await;
    let mut c = rig.client(b"c").await;
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    let wanted = Bitmap::of(&[n::FSID, n::FILEID, n::MOUNTED_ON_FILEID, n::FILEHANDLE]);
    let (root, by_path) = (c.handle(&[]).await, c.handle(&["data"]).await);
    assert_ne!(root, by_path);
    let (r, p) = (c.attrs(&root, wanted).await, c.attrs(&by_path, wanted).await);
    assert!(r.fsid != p.fsid && r.fileid == p.fileid && p.mounted_on_fileid != p.fileid);
    // Below it everything stays in that filesystem, and is the same objects.
    let d = c.handle(&["data", "d"]).await;
    let of_d = c.attrs(&d, wanted).await;
    assert_eq!(of_d.fsid, p.fsid);
    assert_eq!(of_d.filehandle, Some(d.clone()));
    let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
    let make = vec![ArgOp::Putfh(d.clone()), open_op(b"o", "f", 3, 0, how), ArgOp::Getattr(wanted)];
    assert_ok(&c.run(make).await);
    assert!(rig.export().join("d/f").exists());
    let ResBody::Readdir(page) = c
        .last(vec![ArgOp::Putfh(by_path.clone()), readdir_op(0, 0, 4096, &[n::FSID, n::FILEHANDLE])])
        .await
        .body
    else {
        panic!("READDIR failed")
    };
    let entry = AttrValues::from_fattr(&page.entries[0].attrs).expect("values");
    assert_eq!((entry.fsid, entry.filehandle), (p.fsid, Some(d.clone())));
    let up = c.last(vec![ArgOp::Putfh(d), ArgOp::Lookupp, ArgOp::Getfh]).await;
    assert_eq!(up.body, ResBody::Getfh(by_path.clone()));
    let up = c.last(vec![ArgOp::Putfh(by_path), ArgOp::Lookupp, ArgOp::Getfh]).await;
    assert_eq!(up.body, ResBody::Getfh(root));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_29_secinfo_consumes_the_filehandle() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.open("f", 1).await;
    // Without rules anonymous callers are let in as well.
    let flavors = vec![SecInfo::Flavor(flags::AUTH_SYS), SecInfo::Flavor(flags::AUTH_NONE)];
    let secinfo = ArgOp::Secinfo(name("f"));
    assert_eq!(c.last(vec![ArgOp::Putrootfh, secinfo.clone()]).await.body, ResBody::Secinfo(flavors.clone()));
    for op in [secinfo, ArgOp::SecinfoNoName(0)] {
        assert_eq!(c.status(vec![ArgOp::Putrootfh, op, ArgOp::Getfh]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    }
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::SecinfoNoName(1)]).await, NfsStat::NFS4ERR_NOENT);
    assert_eq!(c.status(vec![ArgOp::Putrootfh, ArgOp::Secinfo(name("no"))]).await, NfsStat::NFS4ERR_NOENT);
}
