//! OPEN, CLOSE, OPEN_DOWNGRADE (RFC 8881 sections 9.7 to 9.11, 18.2, 18.16, 18.18).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;

fn open_at(claim: OpenClaim, who: &[u8], share_access: u32, share_deny: u32, openhow: OpenHow) -> ArgOp {
    ArgOp::Open(OpenArgs { seqid: 0, share_access, share_deny, owner: owner(0, who), openhow, claim })
}

fn opened(res: &ResOp) -> OpenRes {
    match &res.body {
        ResBody::Open(o) => o.clone(),
        other => panic!("OPEN gave {:?} {other:?}", res.status),
    }
}

fn by_name(file: &str, who: &[u8], access: u32, deny: u32) -> Vec<ArgOp> {
    let claim = OpenClaim::Null(name(file));
    vec![ArgOp::Putrootfh, open_at(claim, who, access, deny, OpenHow::NoCreate)]
}

fn unchecked(attrs: Fattr) -> OpenHow {
    OpenHow::Create(CreateHow::Unchecked(attrs))
}

#[tokio::test]
async fn rfc8881_9_7_every_pair_of_access_and_deny() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut a = rig.client(b"a").await;
    let mut b = rig.client(b"b").await;
    a.open("f", 3).await;
    let (fh, first) = a.open("f", 1).await;
    assert_ok(&a.run(vec![ArgOp::Putfh(fh.clone()), close_op(Stateid { seqid: 0, ..first })]).await);
    for access in 1..4 {
        for deny in 0..4 {
            let res = a.run(by_name("f", b"a", access, deny)).await;
            let held = opened(res.last().expect("a result")).stateid;
            for (wanted, denied) in (1..4).flat_map(|w| (0..4).map(move |d| (w, d))) {
                let conflict = wanted & deny != 0 || denied & access != 0;
                let expected = if conflict { NfsStat::NFS4ERR_SHARE_DENIED } else { NfsStat::NFS4_OK };
                let last = b.last(by_name("f", b"b", wanted, denied)).await;
                assert_eq!(last.status, expected, "{access}/{deny} and {wanted}/{denied}");
                if !conflict {
                    let close = vec![ArgOp::Putfh(fh.clone()), close_op(opened(&last).stateid)];
                    assert_ok(&b.run(close).await);
                }
            }
            // The same owner is no exception.
            let own = a.last(by_name("f", b"a", access, 0)).await;
            let expected = if access & deny != 0 { NfsStat::NFS4ERR_SHARE_DENIED } else { NfsStat::NFS4_OK };
            assert_eq!(own.status, expected, "the same owner, {access}/{deny}");
            let close = close_op(Stateid { seqid: 0, ..held });
            assert_ok(&a.run(vec![ArgOp::Putfh(fh.clone()), close]).await);
        }
    }
    assert_eq!(rig.server().stats().opens, 0);
}

#[tokio::test]
async fn rfc8881_9_7_values_that_are_none() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.open("f", 3).await;
    for (access, deny) in [(0, 0), (4, 0), (8, 0), (1, 4), (1, 7), (3, u32::MAX), (0, 3)] {
        assert_eq!(
            c.status(by_name("f", b"x", access, deny)).await,
            NfsStat::NFS4ERR_INVAL,
            "{access}/{deny}"
        );
    }
}

#[tokio::test]
async fn rfc8881_9_9_opens_of_one_owner_are_one() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s1) = c.open("f", 1).await;
    let (_, s2) = c.open("f", 2).await;
    let (_, s3) = c.open("f", 3).await;
    assert_eq!((s1.other, s2.other), (s2.other, s3.other));
    assert_eq!((s1.seqid, s2.seqid, s3.seqid), (1, 2, 3));
    assert_eq!(rig.server().stats().opens, 1);
    let put = ArgOp::Putfh(fh);
    let down = |open_stateid, share_access, share_deny| {
        ArgOp::OpenDowngrade(OpenDowngradeArgs { open_stateid, seqid: 0, share_access, share_deny })
    };
    // Only to what was opened so.
    for (access, deny) in [(1, 1), (0, 0), (4, 0), (1, 4)] {
        let status = c.status(vec![put.clone(), down(s3, access, deny)]).await;
        assert_eq!(status, NfsStat::NFS4ERR_INVAL, "{access}/{deny}");
    }
    let res = c.last(vec![put.clone(), down(s3, 1, 0)]).await;
    let ResBody::OpenDowngrade(s4) = res.body else { panic!("OPEN_DOWNGRADE gave {:?}", res.status) };
    assert_eq!((s4.other, s4.seqid), (s3.other, 4));
    assert_eq!(c.status(vec![put.clone(), write_op(s4, 0, b"x")]).await, NfsStat::NFS4ERR_OPENMODE);
    assert_eq!(c.status(vec![put.clone(), down(s4, 2, 0)]).await, NfsStat::NFS4ERR_INVAL, "given up already");
    assert_eq!(c.status(vec![put.clone(), close_op(s3)]).await, NfsStat::NFS4ERR_OLD_STATEID);
    let close = c.last(vec![put.clone(), close_op(s4)]).await;
    assert_eq!(close.body, ResBody::Close(Stateid::INVALID));
    assert_eq!(c.status(vec![put, close_op(s4)]).await, NfsStat::NFS4ERR_BAD_STATEID);
    assert_eq!(rig.server().stats().opens, 0);
}

#[tokio::test]
async fn rfc8881_18_16_3_what_is_no_regular_file() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let d = SpecData { major: 1, minor: 2 };
    for (file, kind, status) in [
        ("dir", CreateType::Dir, NfsStat::NFS4ERR_ISDIR),
        ("link", CreateType::Lnk(name("x")), NfsStat::NFS4ERR_SYMLINK),
        ("fifo", CreateType::Fifo, NfsStat::NFS4ERR_WRONG_TYPE),
        ("sock", CreateType::Sock, NfsStat::NFS4ERR_WRONG_TYPE),
        ("blk", CreateType::Blk(d), NfsStat::NFS4ERR_WRONG_TYPE),
        ("chr", CreateType::Chr(d), NfsStat::NFS4ERR_WRONG_TYPE),
    ] {
        let make = ArgOp::Create(CreateArgs { kind, name: name(file), attrs: mode(0o755) });
        assert_ok(&c.run(vec![ArgOp::Putrootfh, make]).await);
        assert_eq!(c.status(by_name(file, b"o", 1, 0)).await, status, "{file}");
        let claim = OpenClaim::Null(name(file));
        let create = open_at(claim, b"o", 1, 0, unchecked(mode(0o644)));
        assert_eq!(c.status(vec![ArgOp::Putrootfh, create]).await, status, "{file}, UNCHECKED4");
        let claim = OpenClaim::Null(name(file));
        let guarded = open_at(claim, b"o", 1, 0, OpenHow::Create(CreateHow::Guarded(mode(0o644))));
        assert_eq!(c.status(vec![ArgOp::Putrootfh, guarded]).await, NfsStat::NFS4ERR_EXIST, "{file}");
        let fh = c.handle(&[file]).await;
        let current = open_at(OpenClaim::Fh, b"o", 1, 0, OpenHow::NoCreate);
        assert_eq!(c.status(vec![ArgOp::Putfh(fh.clone()), current]).await, status, "{file}, CLAIM_FH");
        // As the directory that a name is in.
        let below = open_at(OpenClaim::Null(name("x")), b"o", 1, 0, OpenHow::NoCreate);
        let expected = match status {
            NfsStat::NFS4ERR_ISDIR => NfsStat::NFS4ERR_NOENT,
            NfsStat::NFS4ERR_SYMLINK => NfsStat::NFS4ERR_SYMLINK,
            _ => NfsStat::NFS4ERR_NOTDIR,
        };
        assert_eq!(c.status(vec![ArgOp::Putfh(fh), below]).await, expected, "below {file}");
    }
}

#[tokio::test]
async fn rfc8881_18_16_3_claims() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, stateid) = c.open("f", 3).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), close_op(stateid)]).await);
    let put = ArgOp::Putfh(fh);
    let at = |claim, how| open_at(claim, b"p", 3, 0, how);
    let res = c.run(vec![put.clone(), at(OpenClaim::Fh, OpenHow::NoCreate), ArgOp::Getfh]).await;
    assert_ok(&res);
    let s = opened(&res[1]).stateid;
    assert_ok(&c.run(vec![put.clone(), write_op(s, 5, b"data"), close_op(Stateid { seqid: 0, ..s })]).await);
    let none = Stateid { seqid: 1, other: [9; 12] };
    for (claim, how, status) in [
        (OpenClaim::Previous(0), OpenHow::NoCreate, NfsStat::NFS4ERR_NO_GRACE),
        (OpenClaim::DelegCurFh(none), OpenHow::NoCreate, NfsStat::NFS4ERR_BAD_STATEID),
        (OpenClaim::DelegPrevFh, OpenHow::NoCreate, NfsStat::NFS4ERR_NOTSUPP),
        (OpenClaim::DelegatePrev(name("f")), OpenHow::NoCreate, NfsStat::NFS4ERR_NOTSUPP),
        (OpenClaim::Fh, unchecked(mode(0o644)), NfsStat::NFS4ERR_INVAL),
    ] {
        let what = format!("{claim:?}");
        assert_eq!(c.status(vec![put.clone(), at(claim, how)]).await, status, "{what}");
    }
    let cur = OpenClaim::DelegateCur { delegate_stateid: none, file: name("f") };
    let cur = vec![ArgOp::Putrootfh, at(cur, OpenHow::NoCreate)];
    assert_eq!(c.status(cur).await, NfsStat::NFS4ERR_BAD_STATEID);
    assert_eq!(c.status(vec![at(OpenClaim::Fh, OpenHow::NoCreate)]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
}

#[tokio::test]
async fn rfc8881_18_16_3_an_open_by_handle_is_held_to_the_mode() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    std::os::unix::fs::chown(rig.export(), Some(1000), Some(1000)).expect("given away");
    let mut c = rig.client(b"c").await;
    c.raw.cred = user(1000);
    // Who makes a file may fill it, whatever mode it asks for.
    let claim = OpenClaim::Null(name("f"));
    let guarded = open_at(claim, b"o", 3, 0, OpenHow::Create(CreateHow::Guarded(mode(0o444))));
    let res = c.run(vec![ArgOp::Putrootfh, guarded, ArgOp::Getfh]).await;
    assert_ok(&res);
    let s = opened(&res[1]).stateid;
    let put = ArgOp::Putfh(c.handle(&["f"]).await);
    assert_ok(&c.run(vec![put.clone(), write_op(s, 0, b"data"), close_op(Stateid { seqid: 0, ..s })]).await);
    // After that the mode counts, by name as by handle.
    for (access, status) in
        [(1, NfsStat::NFS4_OK), (2, NfsStat::NFS4ERR_ACCESS), (3, NfsStat::NFS4ERR_ACCESS)]
    {
        for minor in [1, 2] {
            c.raw.minor = minor;
            let by_handle = open_at(OpenClaim::Fh, b"p", access, 0, OpenHow::NoCreate);
            assert_eq!(c.status(vec![put.clone(), by_handle]).await, status, "4.{minor}, access {access}");
            assert_eq!(c.status(by_name("f", b"p", access, 0)).await, status, "4.{minor}, access {access}");
        }
    }
}

#[tokio::test]
async fn rfc8881_18_16_3_why_there_is_no_delegation() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.open("f", 3).await;
    let wants = flags::OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
    let res = c.last(by_name("f", b"o", 1, 0)).await;
    assert_eq!(opened(&res).delegation, OpenDelegation::None, "nothing wanted, nothing said");
    let res = c.last(by_name("f", b"o", 1 | wants, 0)).await;
    let not_wanted = OpenDelegation::NoneExt(WhyNone { why: 0, will_signal: false });
    assert_eq!(opened(&res).delegation, not_wanted);
    for want in [0x100, 0x200, 0x300] {
        let res = c.last(by_name("f", b"o", 1 | want, 0)).await;
        assert!(matches!(opened(&res).delegation, OpenDelegation::NoneExt(_)), "{want:#x}");
    }
}

#[tokio::test]
async fn rfc8881_18_16_3_attributes_of_a_create() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let create = |how: OpenHow| {
        let claim = OpenClaim::Null(name("f"));
        vec![ArgOp::Putrootfh, open_at(claim, b"o", 3, 0, how)]
    };
    let read_only = fattr(AttrValues { link_support: Some(true), ..AttrValues::default() });
    // 12 is the ACL's neighbour 14, `archive`, which nobody supports.
    let unsupported = Fattr { mask: Bitmap::of(&[14]), values: Bytes::from_static(&[0, 0, 0, 1]) };
    let set_only = AttrValues {
        time_modify_set: Some(SetTime::ClientTime(NfsTime { seconds: 1, nseconds: 2 })),
        ..AttrValues::default()
    };
    for how in [CreateHow::Unchecked as fn(Fattr) -> CreateHow, CreateHow::Guarded] {
        assert_eq!(c.status(create(OpenHow::Create(how(read_only.clone())))).await, NfsStat::NFS4ERR_INVAL);
        assert_eq!(
            c.status(create(OpenHow::Create(how(unsupported.clone())))).await,
            NfsStat::NFS4ERR_ATTRNOTSUPP
        );
    }
    let exclusive = |attrs| OpenHow::Create(CreateHow::Exclusive41 { verf: [1; 8], attrs });
    assert_eq!(c.status(create(exclusive(fattr(set_only.clone())))).await, NfsStat::NFS4ERR_INVAL);
    assert!(!rig.export().join("f").exists());
    let res = c.last(create(unchecked(fattr(set_only)))).await;
    assert_eq!(opened(&res).attrset, Bitmap::of(&[n::TIME_MODIFY_SET]));
    // What is there already is left as it is, but for a size of zero.
    let fh = c.handle(&["f"]).await;
    let s = opened(&res).stateid;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), write_op(s, 0, &[7; 32])]).await);
    let attrs = |size| fattr(AttrValues { mode: Some(0o600), size: Some(size), ..AttrValues::default() });
    for (size, expected) in [(16, 32), (64, 32), (0, 0)] {
        assert_ok(&c.run(create(unchecked(attrs(size)))).await);
        let v = c.attrs(&fh, Bitmap::of(&[n::SIZE, n::MODE])).await;
        assert_eq!(v.size, Some(expected));
        assert_ne!(v.mode, Some(0o600));
    }
}

#[tokio::test]
async fn rfc8881_9_1_4_1_opening_checks_the_caller_and_not_the_open() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s) = c.open("f", 3).await;
    let chmod = |mode| {
        ArgOp::Setattr(SetattrArgs {
            stateid: Stateid::ANONYMOUS,
            attrs: fattr(AttrValues { mode: Some(mode), ..AttrValues::default() }),
        })
    };
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), chmod(0o700)]).await);
    c.raw.cred = user(1000);
    // Whether others have it open (c has, for writing) is nothing that who may not open it is told.
    for (access, deny) in [(1, 0), (1, 2), (3, 3)] {
        assert_eq!(c.status(by_name("f", b"stranger", access, deny)).await, NfsStat::NFS4ERR_ACCESS);
    }
    c.raw.cred = user(0);
    assert_eq!(c.status(by_name("f", b"stranger", 1, 2)).await, NfsStat::NFS4ERR_SHARE_DENIED);
    // The failed open left nothing behind.
    assert_eq!(rig.server().stats().opens, 1);
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), write_op(s, 0, b"x")]).await);
    assert_ok(&c.run(vec![ArgOp::Putfh(fh), close_op(s)]).await);
}

#[tokio::test]
async fn rfc8881_18_16_3_an_open_file_that_is_removed_stays_until_it_is_closed() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s) = c.open("f", 3).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), write_op(s, 0, b"still here")]).await);
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Remove(name("f"))]).await);
    let res = c.last(vec![ArgOp::Putfh(fh.clone()), read_op(s, 0, 100)]).await;
    assert!(matches!(res.body, ResBody::Read(r) if r.data == "still here"));
    assert_eq!(c.attrs(&fh, Bitmap::of(&[n::NUMLINKS])).await.numlinks, Some(0));
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), close_op(s)]).await);
    let gone = c.status(vec![ArgOp::Putfh(fh), ArgOp::Getattr(Bitmap::of(&[n::SIZE]))]).await;
    assert_eq!(gone, NfsStat::NFS4ERR_STALE);
}
