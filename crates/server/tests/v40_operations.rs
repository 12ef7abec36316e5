//! NFSv4.0: which operations and attributes there are, and where their meaning or their errors differ from NFSv4.1 (RFC 7530
//! sections 13, 15, 16).

use crate::common;
use crate::v40;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;
use v40::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_15_2_compounds_need_no_session() {
    let rig = Rig::new().await;
    let mut raw = rig.raw().await;
    raw.minor = 0;
    let res = raw.compound(Vec::new()).await;
    assert_eq!((res.status, res.results.len()), (NfsStat::NFS4_OK, 0));
    let res = raw.compound(vec![ArgOp::Putrootfh, mkdir("d"), ArgOp::Getfh, ArgOp::Lookupp]).await;
    assert_ok(&res.results);
    assert_eq!(res.results.len(), 4);
    let res = raw.compound(vec![ArgOp::Getattr(Bitmap::of(&[n::TYPE]))]).await;
    assert_eq!(res.status, NfsStat::NFS4ERR_NOFILEHANDLE);
    // Too many operations.
    let res = raw.compound(vec![ArgOp::Putrootfh; 4097]).await;
    assert_eq!((res.status, res.results.len()), (NfsStat::NFS4ERR_RESOURCE, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_16_which_operations_there_are() {
    let rig = Rig::new().await;
    let c = Client40::new(&rig, b"x").await;
    for number in [0, 1, 2, 10044, u32::MAX].into_iter().chain(OpNum::BACKCHANNEL_CTL.0..80) {
        let last = c.last(vec![ArgOp::Putrootfh, ArgOp::Other(OpNum(number))]).await;
        assert_eq!((last.op, last.status), (OpNum::ILLEGAL, NfsStat::NFS4ERR_OP_ILLEGAL), "{number}");
    }
    for op in [OpNum::DELEGPURGE, OpNum::DELEGRETURN, OpNum::OPENATTR] {
        let last = c.last(vec![ArgOp::Putrootfh, ArgOp::Other(op)]).await;
        assert_eq!((last.op, last.status), (op, NfsStat::NFS4ERR_NOTSUPP));
    }
    // And those of NFSv4.0 alone are not served in the later versions.
    let mut later = rig.client(b"y").await;
    for minor in [1, 2] {
        later.raw.minor = minor;
        for op in [ArgOp::Renew(later.id), ArgOp::ReleaseLockowner(owner(later.id, b"o"))] {
            assert_eq!(later.status(vec![op]).await, NfsStat::NFS4ERR_NOTSUPP);
        }
        let ops = vec![ArgOp::Putrootfh, confirm_op(Stateid::ANONYMOUS, 1)];
        assert_eq!(later.status(ops).await, NfsStat::NFS4ERR_NOTSUPP);
        let alone = later.raw.alone(setclientid_op(b"z", 1, "")).await;
        assert_eq!(alone.status, NfsStat::NFS4ERR_NOTSUPP, "RFC 8881 section 8.8");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_5_attributes() {
    let rig = Rig::new().await;
    let c = Client40::new(&rig, b"x").await;
    let asked = Bitmap::of(&[n::SUPPORTED_ATTRS, n::LEASE_TIME, n::SUPPATTR_EXCLCREAT, n::XATTR_SUPPORT]);
    let res = c.last(vec![ArgOp::Putrootfh, ArgOp::Getattr(asked)]).await;
    let ResBody::Getattr(f) = res.body else { panic!("{res:?}") };
    let v = AttrValues::from_fattr(&f).expect("values");
    assert_eq!(f.mask, Bitmap::of(&[n::SUPPORTED_ATTRS, n::LEASE_TIME]));
    assert!(v.supported_attrs.expect("a set").iter().all(|a| a <= n::MOUNTED_ON_FILEID));
    let later = AttrValues { suppattr_exclcreat: Some(Bitmap::default()), ..AttrValues::default() };
    let verify = vec![ArgOp::Putrootfh, ArgOp::Verify(fattr(later))];
    assert_eq!(c.status(verify).await, NfsStat::NFS4ERR_ATTRNOTSUPP);
}

/// No version has `NOTSUPP` for SETATTR (RFC 7530 section 13.2, RFC 8881 section 15.2); Linux' server and ganesha leave the
/// mode alone, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_16_32_the_mode_of_a_symbolic_link_is_left_alone() {
    let rig = Rig::new().await;
    let mut old = Client40::new(&rig, b"x").await;
    let mut later = rig.client(b"y").await;
    std::os::unix::fs::symlink("to", rig.export().join("l")).expect("a link");
    for minor in [0, 1, 2] {
        (old.raw.minor, later.raw.minor) = (0, minor);
        let link = [ArgOp::Putrootfh, ArgOp::Lookup(name("l"))];
        let with_time = AttrValues { time_modify_set: Some(SetTime::ServerTime), ..AttrValues::default() };
        let both = AttrValues { mode: Some(0o600), ..with_time };
        let set = |attrs| ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs });
        for (attrs, done) in [(mode(0o600), vec![]), (fattr(both), vec![n::TIME_MODIFY_SET])] {
            let ops = [&link[..], &[set(attrs)]].concat();
            let last = if minor == 0 { old.last(ops).await } else { later.last(ops).await };
            let body = ResBody::Setattr(Bitmap::of(&done));
            assert_eq!((last.status, last.body), (NfsStat::NFS4_OK, body), "in 4.{minor}");
        }
        let mode = std::fs::symlink_metadata(rig.export().join("l")).expect("a link").permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o777);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_6_2_1_acl_is_there_and_dacl_and_sacl_are_not() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, _) = c.open("f", 3, 0).await;
    // RFC 8881 section 5.6: the lists that only later versions have.
    let [dacl, sacl] = [58, 59];
    let res = c.on(&fh, ArgOp::Getattr(Bitmap::of(&[n::ACL, n::ACLSUPPORT, dacl, sacl]))).await;
    let ResBody::Getattr(f) = res.body else { panic!("{res:?}") };
    assert_eq!(f.mask, Bitmap::of(&[n::ACL, n::ACLSUPPORT]));
    let v = AttrValues::from_fattr(&f).expect("values");
    let acl = v.acl.expect("a list");
    assert!(acl.iter().any(|a| a.who == name("OWNER@")), "{acl:?}");
    let set = |attrs| ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs });
    let same = || fattr(AttrValues { acl: Some(acl.clone()), ..AttrValues::default() });
    assert_eq!(c.on(&fh, set(same())).await.status, NfsStat::NFS4_OK);
    assert_eq!(c.on(&fh, ArgOp::Verify(same())).await.status, NfsStat::NFS4_OK);
    for later in [dacl, sacl] {
        let list = || Fattr { mask: Bitmap::of(&[later]), values: Bytes::from_static(&[0; 8]) };
        assert_eq!(c.on(&fh, set(list())).await.status, NfsStat::NFS4ERR_ATTRNOTSUPP, "{later}");
        assert_eq!(c.on(&fh, ArgOp::Verify(list())).await.status, NfsStat::NFS4ERR_ATTRNOTSUPP, "{later}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_16_16_what_an_open_may_say() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, _) = c.open("f", 3, 0).await;
    let mut at = 3;
    // What only the later versions have is not XDR of this one, and does not count.
    let fh_claim = match c.open_with(at, 1, 0, OpenHow::NoCreate, "") {
        ArgOp::Open(a) => ArgOp::Open(OpenArgs { claim: OpenClaim::Fh, ..a }),
        other => other,
    };
    assert_eq!(c.on(&fh, fh_claim).await.status, NfsStat::NFS4ERR_BADXDR);
    let how = OpenHow::Create(CreateHow::Exclusive41 { verf: [1; 8], attrs: mode(0o600) });
    let ops = vec![ArgOp::Putrootfh, c.open_with(at, 1, 0, how, "g")];
    assert_eq!(c.status(ops).await, NfsStat::NFS4ERR_BADXDR);
    let ops = vec![c.open_op(at, "f", 1, 0)];
    assert_eq!(c.status(ops).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    // Everything else counts.
    let mut fails = async |access, deny, how, file: &str, status| {
        let ops = vec![ArgOp::Putrootfh, c.open_with(at, access, deny, how, file)];
        at += 1;
        assert_eq!(c.status(ops).await, status, "{file} {access} {deny}");
    };
    let no = || OpenHow::NoCreate;
    fails(0, 0, no(), "f", NfsStat::NFS4ERR_INVAL).await;
    fails(1 | 0x100, 0, no(), "f", NfsStat::NFS4ERR_INVAL).await;
    fails(1, 4, no(), "f", NfsStat::NFS4ERR_INVAL).await;
    fails(1, 0, no(), "", NfsStat::NFS4ERR_INVAL).await;
    fails(1, 0, no(), "none", NfsStat::NFS4ERR_NOENT).await;
    let root = rig.export();
    std::fs::create_dir(root.join("dir")).expect("a directory");
    std::os::unix::fs::symlink("f", root.join("link")).expect("a link");
    std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a socket");
    fails(1, 0, no(), "dir", NfsStat::NFS4ERR_ISDIR).await;
    fails(1, 0, no(), "link", NfsStat::NFS4ERR_SYMLINK).await;
    fails(1, 0, no(), "socket", NfsStat::NFS4ERR_SYMLINK).await;
    fails(1, 0, OpenHow::Create(CreateHow::Guarded(mode(0o600))), "f", NfsStat::NFS4ERR_EXIST).await;
    let reclaim = c.reclaim_op(at, 1);
    assert_eq!(c.on(&fh, reclaim).await.status, NfsStat::NFS4ERR_NO_GRACE);
    // EXCLUSIVE4: the same verifier finds the same file.
    let exclusive = |v: u8| OpenHow::Create(CreateHow::Exclusive([v; 8]));
    c.seqid = at;
    let mut made = Vec::new();
    for _ in 0..2 {
        let seqid = c.next();
        let ops = vec![ArgOp::Putrootfh, c.open_with(seqid, 3, 0, exclusive(7), "once"), ArgOp::Getfh];
        let res = c.run(ops).await;
        assert_ok(&res);
        made.push(res[2].body.clone());
    }
    assert_eq!(made[0], made[1]);
    let seqid = c.next();
    let ops = vec![ArgOp::Putrootfh, c.open_with(seqid, 3, 0, exclusive(8), "once")];
    assert_eq!(c.status(ops).await, NfsStat::NFS4ERR_EXIST);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_13_errors_of_this_version() {
    let rig = Rig::new().await;
    let c = Client40::new(&rig, b"x").await;
    let root = rig.export();
    std::fs::write(root.join("f"), b"").expect("a file");
    std::os::unix::fs::symlink("f", root.join("link")).expect("a link");
    std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a socket");
    let at = |file: &str, op: ArgOp| vec![ArgOp::Putrootfh, ArgOp::Lookup(name(file)), op];
    for (file, op, status) in [
        ("f", ArgOp::Readlink, NfsStat::NFS4ERR_INVAL),
        ("socket", read_op(Stateid::ANONYMOUS, 0, 1), NfsStat::NFS4ERR_INVAL),
        ("socket", write_op(Stateid::ANONYMOUS, 0, b"a"), NfsStat::NFS4ERR_INVAL),
        ("link", readdir_op(0, 0, 4096, &[]), NfsStat::NFS4ERR_NOTDIR),
        ("link", ArgOp::Lookup(name("a")), NfsStat::NFS4ERR_SYMLINK),
        ("link", mkdir("a"), NfsStat::NFS4ERR_NOTDIR),
        ("f", ArgOp::Lookup(name("a")), NfsStat::NFS4ERR_NOTDIR),
    ] {
        assert_eq!(c.status(at(file, op)).await, status, "{file}");
    }
    // SECINFO leaves the filehandle where it was.
    let res = c.run(vec![ArgOp::Putrootfh, ArgOp::Secinfo(name("f")), ArgOp::Getfh]).await;
    assert_ok(&res);
    assert_eq!(res.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn reads_writes_and_sizes_under_the_stateid_of_an_open() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"x").await;
    let (fh, s) = c.open("f", 3, 0).await;
    assert_eq!(c.on(&fh, write_op(s, 0, b"hello")).await.status, NfsStat::NFS4_OK);
    let read = c.on(&fh, read_op(s, 1, 3)).await;
    assert!(matches!(&read.body, ResBody::Read(r) if r.data == "ell"), "{read:?}");
    let size = |stateid, size| {
        let attrs = fattr(AttrValues { size: Some(size), ..AttrValues::default() });
        ArgOp::Setattr(SetattrArgs { stateid, attrs })
    };
    assert_eq!(c.on(&fh, size(s, 2)).await.status, NfsStat::NFS4_OK);
    assert_eq!(c.on(&fh, size(stale(s), 1)).await.status, NfsStat::NFS4ERR_STALE_STATEID);
    assert_eq!(c.on(&fh, size(Stateid::ANONYMOUS, 1)).await.status, NfsStat::NFS4_OK);
    assert_eq!(std::fs::read(rig.export().join("f")).expect("the file"), b"h");
    // An open for reading does not write.
    let (fh, s) = c.open("g", 1, 0).await;
    assert_eq!(c.on(&fh, write_op(s, 0, b"a")).await.status, NfsStat::NFS4ERR_OPENMODE);
    assert_eq!(c.on(&fh, c.new_lock(s, 4, b"l", 0, (0, 1))).await.status, NfsStat::NFS4ERR_OPENMODE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_16_29_nothing_to_restore() {
    let rig = Rig::new().await;
    let c = Client40::new(&rig, b"x").await;
    for ops in [vec![ArgOp::Restorefh], vec![ArgOp::Putrootfh, ArgOp::Restorefh]] {
        assert_eq!(c.status(ops).await, NfsStat::NFS4ERR_RESTOREFH);
    }
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Savefh, ArgOp::Restorefh]).await);
}
