//! Exports that show no access control lists or no extended attributes: clients then do not ask for them, file by file.

use crate::common;

use common::v3::V3;
use common::*;
use landfast_nfs::nfsacl::{self, GetaclArgs, GetaclRes, Lists, SetaclArgs, SetaclRes, mask};
use landfast_nfs::v3::{NfsStat3, Res};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::res::AccessRes;
use landfast_nfs::v4::types::NfsAce;
use landfast_nfs::v4::*;
use landfast_server::exports::Features;
use landfast_xdr::{Bytes, Decode, Encode};

/// A server with these features, a client and a file in the root.
async fn with_file(features: Features) -> (Rig, Client, FileHandle) {
    let mut rig = Rig::new().await;
    rig.features = features;
    rig.restart().await;
    let mut c = rig.client(b"c").await;
    let fh = file(&mut c).await;
    (rig, c, fh)
}

fn xattr_ops() -> Vec<ArgOp> {
    let key = || name("k");
    let value = Bytes::from_static(b"v");
    vec![
        ArgOp::Setxattr(SetxattrArgs { option: SetxattrOption::Either, key: key(), value }),
        ArgOp::Getxattr(key()),
        ArgOp::Listxattrs(ListxattrsArgs { cookie: 0, maxcount: 4096 }),
        ArgOp::Removexattr(key()),
    ]
}

fn set_acl() -> ArgOp {
    let who = Bytes::from_static(b"EVERYONE@");
    let everyone = NfsAce { kind: ACE4_ACCESS_ALLOWED_ACE_TYPE, flag: 0, access_mask: ACE4_READ_DATA, who };
    let attrs = fattr(AttrValues { acl: Some(vec![everyone]), ..AttrValues::default() });
    ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs })
}

async fn xattr_access(c: &mut Client, fh: &FileHandle) -> u32 {
    let all = ACCESS4_XAREAD | ACCESS4_XAWRITE | ACCESS4_XALIST;
    match on(c, fh, ArgOp::Access(all)).await.body {
        ResBody::Access(AccessRes { supported, access }) if supported == access => access,
        other => panic!("ACCESS gave {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn without_acls_there_is_no_such_attribute() {
    let (mut rig, mut c, fh) = with_file(Features { acls: false, ..Features::default() }).await;
    let v = c.attrs(&fh, Bitmap::of(&[n::SUPPORTED_ATTRS, n::ACL, n::ACLSUPPORT, n::MODE])).await;
    assert_eq!((v.aclsupport, &v.acl), (Some(0), &None));
    assert!(v.supported_attrs.is_some_and(|b| !b.has(n::ACL) && b.has(n::MODE)));
    let mode = v.mode;
    assert_eq!(on(&mut c, &fh, set_acl()).await.status, NfsStat::NFS4ERR_ATTRNOTSUPP);
    assert_eq!(c.attrs(&fh, Bitmap::of(&[n::MODE])).await.mode, mode);
    // Extended attributes are another matter.
    for op in xattr_ops() {
        assert_eq!(on(&mut c, &fh, op).await.status, NfsStat::NFS4_OK);
    }
    let v3 = V3::new(&rig).await;
    let object = landfast_nfs::v3::FileHandle(fh.0.clone());
    let get = GetaclArgs { object: object.clone(), mask: mask::ACL }.to_bytes();
    let set = SetaclArgs { object, lists: Lists { mask: mask::ACL, ..Lists::default() } }.to_bytes();
    let program =
        async |proc, body| v3.program(nfsacl::PROGRAM, nfsacl::VERSION, proc, body).await.expect("an answer");
    let got = GetaclRes::from_bytes(program(nfsacl::proc::GETACL, get).await).expect("a result");
    assert!(matches!(got, Res::Fail(NfsStat3::NOTSUPP, _)), "{got:?}");
    let set = SetaclRes::from_bytes(program(nfsacl::proc::SETACL, set).await).expect("a result");
    assert!(matches!(set, Res::Fail(NfsStat3::NOTSUPP, _)), "{set:?}");
    // Shown again after a restart.
    rig.features = Features::default();
    rig.restart().await;
    let mut c = rig.client(b"d").await;
    assert_eq!(on(&mut c, &fh, set_acl()).await.status, NfsStat::NFS4_OK);
    assert!(c.attrs(&fh, Bitmap::of(&[n::ACL])).await.acl.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn without_xattrs_there_are_no_such_operations() {
    let (_rig, mut c, fh) = with_file(Features { xattrs: false, ..Features::default() }).await;
    let v = c.attrs(&fh, Bitmap::of(&[n::XATTR_SUPPORT, n::ACL])).await;
    assert!(v.xattr_support == Some(false) && v.acl.is_some());
    for op in xattr_ops() {
        assert_eq!(on(&mut c, &fh, op).await.status, NfsStat::NFS4ERR_NOTSUPP);
    }
    let root = c.handle(&[]).await;
    assert_eq!((xattr_access(&mut c, &fh).await, xattr_access(&mut c, &root).await), (0, 0));
    let (_rig, mut c, fh) = with_file(Features::default()).await;
    assert_ne!(xattr_access(&mut c, &fh).await, 0);
}
