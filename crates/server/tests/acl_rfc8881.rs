//! Access control lists, `mode_umask` and `open_arguments` over a real socket (RFC 8881 sections 5 and 6, RFC 8275, RFC 9754).

use crate::common;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::{ModeUmask, number as n};
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;
use std::os::unix::fs::PermissionsExt;

const INHERIT: u32 = ACE4_FILE_INHERIT_ACE | ACE4_DIRECTORY_INHERIT_ACE;
const R: u32 = ACE4_READ_DATA;
const W: u32 = ACE4_WRITE_DATA | ACE4_APPEND_DATA;
const DW: u32 = W | ACE4_DELETE_CHILD;
const X: u32 = ACE4_EXECUTE;

fn ace(kind: u32, flag: u32, access_mask: u32, who: &str) -> NfsAce {
    NfsAce { kind, flag, access_mask, who: name(who) }
}

fn allow(access_mask: u32, who: &str) -> NfsAce {
    ace(ACE4_ACCESS_ALLOWED_ACE_TYPE, 0, access_mask, who)
}

fn with_acl(acl: Vec<NfsAce>) -> Fattr {
    fattr(AttrValues { acl: Some(acl), ..AttrValues::default() })
}

fn setattr(attrs: Fattr) -> ArgOp {
    ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs })
}

fn attrset(res: &ResOp) -> Bitmap {
    match &res.body {
        ResBody::Setattr(b) => *b,
        ResBody::Open(o) => o.attrset,
        ResBody::Create(c) => c.attrset,
        other => panic!("no attrset: {:?} {other:?}", res.status),
    }
}

async fn acl_of(c: &mut Client, fh: &FileHandle) -> (Vec<NfsAce>, u32) {
    let attrs = c.attrs(fh, Bitmap::of(&[n::ACL, n::MODE])).await;
    (attrs.acl.expect("an ACL"), attrs.mode.expect("a mode"))
}

async fn access(c: &mut Client, fh: &FileHandle) -> u32 {
    match on(c, fh, ArgOp::Access(ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXECUTE)).await.body {
        ResBody::Access(a) => a.access,
        other => panic!("ACCESS gave {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_6_2_1_a_list_is_read_set_and_applied() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let fh = file(&mut c).await;
    for minor in [1, 2] {
        c.raw.minor = minor;
        let attrs = c.attrs(&fh, Bitmap::of(&[n::ACLSUPPORT, n::SUPPORTED_ATTRS])).await;
        assert_eq!(attrs.aclsupport, Some(ACL4_SUPPORT_ALLOW_ACL | ACL4_SUPPORT_DENY_ACL));
        assert!(attrs.supported_attrs.is_some_and(|s| s.has(n::ACL)));
    }
    let always = ACE4_READ_ATTRIBUTES | ACE4_READ_ACL | ACE4_SYNCHRONIZE;
    let owners = always | ACE4_WRITE_ATTRIBUTES | ACE4_WRITE_ACL;
    let by_mode =
        vec![allow(R | W | owners, "OWNER@"), allow(R | always, "GROUP@"), allow(R | always, "EVERYONE@")];
    assert_eq!(acl_of(&mut c, &fh).await, (by_mode, 0o644));
    let wanted = vec![
        allow(R | W, "OWNER@"),
        allow(R | W, "1001"),
        ace(ACE4_ACCESS_ALLOWED_ACE_TYPE, ACE4_IDENTIFIER_GROUP, R, "2001"),
        allow(R, "GROUP@"),
    ];
    let res = on(&mut c, &fh, setattr(with_acl(wanted))).await;
    assert_eq!((res.status, attrset(&res)), (NfsStat::NFS4_OK, Bitmap::of(&[n::ACL])));
    let (now, bits) = acl_of(&mut c, &fh).await;
    assert_eq!(bits, 0o660, "the mask stands for the group");
    let mut other = rig.client(b"other").await;
    other.raw.cred = user(1001);
    assert_eq!(access(&mut other, &fh).await, ACCESS4_READ | ACCESS4_MODIFY);
    other.raw.cred = user(2001);
    assert_eq!(access(&mut other, &fh).await, ACCESS4_READ);
    other.raw.cred = user(3001);
    assert_eq!(access(&mut other, &fh).await, 0);
    // What was read is set again, and nothing changes.
    assert_eq!(on(&mut c, &fh, setattr(with_acl(now.clone()))).await.status, NfsStat::NFS4_OK);
    assert_eq!(acl_of(&mut c, &fh).await, (now.clone(), 0o660));
    // VERIFY compares it.
    assert_eq!(on(&mut c, &fh, ArgOp::Verify(with_acl(now.clone()))).await.status, NfsStat::NFS4_OK);
    let not = on(&mut c, &fh, ArgOp::Nverify(with_acl(now))).await.status;
    assert_eq!(not, NfsStat::NFS4ERR_SAME);
    // Only the owner sets it.
    let res = on(&mut other, &fh, setattr(with_acl(vec![allow(R, "EVERYONE@")]))).await;
    assert_eq!((res.status, attrset(&res)), (NfsStat::NFS4ERR_PERM, Bitmap::default()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_6_2_1_what_posix_cannot_say_is_refused_and_changes_nothing() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let fh = file(&mut c).await;
    let before = c.attrs(&fh, Bitmap::of(&[n::CHANGE, n::MODE])).await;
    for (list, status) in [
        (vec![ace(ACE4_SYSTEM_AUDIT_ACE_TYPE, 0, R, "EVERYONE@")], NfsStat::NFS4ERR_ATTRNOTSUPP),
        (vec![allow(R, "joe@example.org")], NfsStat::NFS4ERR_BADOWNER),
        (vec![ace(0, INHERIT, R, "OWNER@")], NfsStat::NFS4ERR_INVAL),
        (vec![ace(9, 0, R, "OWNER@")], NfsStat::NFS4ERR_INVAL),
        (vec![ace(1, 0, ACE4_READ_ACL, "EVERYONE@")], NfsStat::NFS4ERR_ATTRNOTSUPP),
        (vec![allow(R, "EVERYONE@"); 8193], NfsStat::NFS4ERR_NOSPC),
    ] {
        // Not even the mode that came with it.
        let attrs = fattr(AttrValues { acl: Some(list), mode: Some(0o777), ..AttrValues::default() });
        let res = on(&mut c, &fh, setattr(attrs)).await;
        assert_eq!((res.status, attrset(&res)), (status, Bitmap::default()));
    }
    assert_eq!(c.attrs(&fh, Bitmap::of(&[n::CHANGE, n::MODE])).await, before);
    // A count of entries that are not there.
    let broken = Fattr { mask: Bitmap::of(&[n::ACL]), values: Bytes::from_static(&[0, 0, 0, 9]) };
    assert_eq!(on(&mut c, &fh, setattr(broken)).await.status, NfsStat::NFS4ERR_BADXDR);
    // A symbolic link has none.
    let link = CreateArgs { kind: CreateType::Lnk(name("x")), name: name("l"), attrs: Fattr::default() };
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Create(link)]).await);
    let link = c.handle(&["l"]).await;
    assert_eq!(c.attrs(&link, Bitmap::of(&[n::ACL, n::TYPE])).await.acl, None);
    let list = with_acl(vec![allow(R, "OWNER@")]);
    for op in [setattr(list.clone()), ArgOp::Verify(list.clone()), ArgOp::Nverify(list)] {
        assert_eq!(on(&mut c, &link, op).await.status, NfsStat::NFS4ERR_ATTRNOTSUPP);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_6_4_1_3_mode_and_list_together() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let list = vec![allow(R | W, "OWNER@"), allow(R, "1001")];
    let both =
        |mode| fattr(AttrValues { acl: Some(list.clone()), mode: Some(mode), ..AttrValues::default() });
    let set = Bitmap::of(&[n::ACL, n::MODE]);
    // The list comes after the mode, whose special bits stay.
    let fh = file(&mut c).await;
    let res = on(&mut c, &fh, setattr(both(0o4777))).await;
    assert_eq!((res.status, attrset(&res)), (NfsStat::NFS4_OK, set));
    assert_eq!(acl_of(&mut c, &fh).await.1, 0o4640);
    for how in [
        CreateHow::Guarded(both(0o777)),
        CreateHow::Unchecked(both(0o777)),
        CreateHow::Exclusive41 { verf: [1; 8], attrs: both(0o777) },
    ] {
        let open = open_op(b"o", "new", 3, 0, OpenHow::Create(how));
        let res = c.run(vec![ArgOp::Putrootfh, open, ArgOp::Getfh]).await;
        assert_ok(&res);
        assert_eq!(attrset(&res[1]), set);
        let ResBody::Getfh(new) = res[2].body.clone() else { panic!("GETFH gave {:?}", res[2]) };
        assert_eq!(acl_of(&mut c, &new).await.1, 0o640);
        assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Remove(name("new"))]).await);
    }
    // Of a file that is there an UNCHECKED4 create changes nothing.
    let create = OpenHow::Create(CreateHow::Unchecked(with_acl(vec![allow(R | W | X, "EVERYONE@")])));
    let res = c.run(vec![ArgOp::Putrootfh, open_op(b"o", "f", 3, 0, create)]).await;
    assert_eq!(attrset(&res[1]), Bitmap::default());
    assert_eq!(acl_of(&mut c, &fh).await.1, 0o4640);
    // A list that cannot be makes no file.
    let bad = OpenHow::Create(CreateHow::Guarded(with_acl(vec![ace(2, 0, R, "OWNER@")])));
    let status = c.status(vec![ArgOp::Putrootfh, open_op(b"o", "bad", 3, 0, bad)]).await;
    assert_eq!(status, NfsStat::NFS4ERR_ATTRNOTSUPP);
    assert!(!rig.export().join("bad").exists());
    assert!(
        c.attrs(&fh, Bitmap::of(&[n::SUPPATTR_EXCLCREAT]))
            .await
            .suppattr_exclcreat
            .is_some_and(|s| s.has(n::ACL))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_6_2_1_4_entries_to_be_inherited() {
    let mut rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let list = vec![
        ace(0, INHERIT, R | DW | X, "OWNER@"),
        ace(0, INHERIT | ACE4_INHERIT_ONLY_ACE, R | DW | X, "1001"),
        allow(R | X, "EVERYONE@"),
    ];
    let dir = CreateArgs { kind: CreateType::Dir, name: name("d"), attrs: with_acl(list) };
    let res = c.run(vec![ArgOp::Putrootfh, ArgOp::Create(dir), ArgOp::Getfh]).await;
    assert_ok(&res);
    assert_eq!(attrset(&res[1]), Bitmap::of(&[n::ACL]));
    let dir = c.handle(&["d"]).await;
    let (acl, mode_now) = acl_of(&mut c, &dir).await;
    assert_eq!(mode_now, 0o755);
    assert!(acl.iter().any(|a| a.who == "1001" && a.flag == INHERIT | ACE4_INHERIT_ONLY_ACE));
    assert!(!acl.iter().any(|a| a.who == "1001" && a.flag & ACE4_INHERIT_ONLY_ACE == 0));
    // RFC 8275 section 4.2: the umask does not count where something is inherited; where nothing is, it does.
    let mode_umask = Some(ModeUmask { mode: 0o666, umask: 0o077 });
    let masked = || fattr(AttrValues { mode_umask, ..AttrValues::default() });
    let make = |n: &str| open_op(b"o", n, 3, 0, OpenHow::Create(CreateHow::Guarded(masked())));
    let res = c.run(vec![ArgOp::Putfh(dir.clone()), make("f")]).await;
    assert_ok(&res);
    assert_eq!(attrset(&res[1]), Bitmap::of(&[n::MODE_UMASK]));
    assert_ok(&c.run(vec![ArgOp::Putrootfh, make("plain")]).await);
    let (fh, plain) = (c.handle(&["d", "f"]).await, c.handle(&["plain"]).await);
    assert_eq!(acl_of(&mut c, &plain).await.1, 0o600);
    let (acl, bits) = acl_of(&mut c, &fh).await;
    assert_eq!(bits, 0o660);
    let mut other = rig.client(b"other").await;
    other.raw.cred = user(1001);
    assert_eq!(access(&mut other, &fh).await, ACCESS4_READ | ACCESS4_MODIFY);
    // Both directories and files have them after a crash.
    rig.crash().await;
    let mut c = rig.client(b"again").await;
    assert_eq!(acl_of(&mut c, &fh).await, (acl, 0o660));
    // READDIR gives each entry its own.
    let res = c.last(vec![ArgOp::Putrootfh, readdir_op(0, 0, 100_000, &[n::ACL])]).await;
    let ResBody::Readdir(r) = res.body else { panic!("READDIR gave {res:?}") };
    let lists = r.entries.iter().map(|e| AttrValues::from_fattr(&e.attrs).expect("values").acl);
    assert_eq!(lists.filter(Option::is_some).count(), 2);
    // A mode alone, afterwards: the mask.
    assert_eq!(on(&mut c, &fh, setattr(mode(0o600))).await.status, NfsStat::NFS4_OK);
    let path = rig.export().join("d/f");
    assert_eq!(std::fs::metadata(path).expect("the file").permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc9754_open_arguments_say_what_is_served() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let root = c.handle(&[]).await;
    let wanted = Bitmap::of(&[n::SUPPORTED_ATTRS, n::OPEN_ARGUMENTS]);
    let attrs = c.attrs(&root, wanted).await;
    let args = attrs.open_arguments.expect("open_arguments");
    assert!(attrs.supported_attrs.is_some_and(|s| s.has(n::OPEN_ARGUMENTS) && s.has(n::MODE_UMASK)));
    assert_eq!(args.share_access, Bitmap::of(&[1, 2, 3]));
    assert_eq!(args.share_deny, Bitmap::of(&[0, 1, 2, 3]));
    // Each create mode and each claim that is said to be there is there, and no other. But one of them is not for a session that
    // outlasts the server (RFC 8881 section 18.16.3).
    for (number, how) in [
        (0, CreateHow::Unchecked(mode(0o600))),
        (1, CreateHow::Guarded(mode(0o600))),
        (2, CreateHow::Exclusive([1; 8])),
        (3, CreateHow::Exclusive41 { verf: [1; 8], attrs: mode(0o600) }),
    ] {
        assert!(args.create_mode.has(number));
        let open = open_op(b"o", &format!("f{number}"), 3, 0, OpenHow::Create(how));
        let expected = if number == 2 { NfsStat::NFS4ERR_INVAL } else { NfsStat::NFS4_OK };
        assert_eq!(c.status(vec![ArgOp::Putrootfh, open]).await, expected);
    }
    let fh = c.handle(&["f0"]).await;
    for (number, claim, served) in [
        (1, OpenClaim::Previous(0), NfsStat::NFS4ERR_NO_GRACE),
        (
            2,
            OpenClaim::DelegateCur { delegate_stateid: Stateid::ANONYMOUS, file: name("f0") },
            NfsStat::NFS4_OK,
        ),
        (3, OpenClaim::DelegatePrev(name("f0")), NfsStat::NFS4_OK),
        (4, OpenClaim::Fh, NfsStat::NFS4_OK),
        (5, OpenClaim::DelegCurFh(Stateid::ANONYMOUS), NfsStat::NFS4_OK),
        (6, OpenClaim::DelegPrevFh, NfsStat::NFS4_OK),
    ] {
        let ArgOp::Open(mut open) = open_op(b"o", "", 3, 0, OpenHow::NoCreate) else { unreachable!() };
        open.claim = claim;
        let got = on(&mut c, &fh, ArgOp::Open(open)).await.status;
        assert_eq!(args.open_claim.has(number), got == served, "claim {number} gave {got}");
    }
    c.raw.minor = 1;
    assert_eq!(c.attrs(&root, wanted).await.open_arguments, None);
}
