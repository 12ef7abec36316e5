//! Extended attributes over a real socket (RFC 8276).

use crate::common;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_xdr::{Bytes, Encode};

fn set(option: SetxattrOption, key: &str, value: &[u8]) -> ArgOp {
    ArgOp::Setxattr(SetxattrArgs { option, key: name(key), value: Bytes::copy_from_slice(value) })
}

fn either(key: &str, value: &[u8]) -> ArgOp {
    set(SetxattrOption::Either, key, value)
}

fn get(key: &str) -> ArgOp {
    ArgOp::Getxattr(name(key))
}

fn list(cookie: u64, maxcount: u32) -> ArgOp {
    ArgOp::Listxattrs(ListxattrsArgs { cookie, maxcount })
}

fn listed(res: ResOp) -> ListxattrsRes {
    match res.body {
        ResBody::Listxattrs(l) => l,
        other => panic!("LISTXATTRS gave {:?} {other:?}", res.status),
    }
}

fn changed(res: &ResOp) -> ChangeInfo {
    match &res.body {
        ResBody::Setxattr(c) | ResBody::Removexattr(c) => *c,
        other => panic!("no change_info: {:?} {other:?}", res.status),
    }
}

/// A server, a client and a file in the root.
async fn with_file() -> (Rig, Client, FileHandle) {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let fh = file(&mut c).await;
    (rig, c, fh)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8276_8_4_values_and_options() {
    let (rig, mut c, fh) = with_file().await;
    assert_eq!(on(&mut c, &fh, get("a")).await.status, NfsStat::NFS4ERR_NOXATTR);
    let replace = set(SetxattrOption::Replace, "a", b"x");
    assert_eq!(on(&mut c, &fh, replace).await.status, NfsStat::NFS4ERR_NOXATTR);
    let before = c.attrs(&fh, Bitmap::of(&[n::CHANGE, n::TIME_METADATA])).await;
    let first = changed(&on(&mut c, &fh, set(SetxattrOption::Create, "a", b"one")).await);
    let after = c.attrs(&fh, Bitmap::of(&[n::CHANGE, n::TIME_METADATA])).await;
    assert!(first.atomic);
    assert_eq!((Some(first.before), Some(first.after)), (before.change, after.change));
    assert!(first.after > first.before && after.time_metadata >= before.time_metadata);
    let again = set(SetxattrOption::Create, "a", b"two");
    assert_eq!(on(&mut c, &fh, again).await.status, NfsStat::NFS4ERR_EXIST);
    let second = changed(&on(&mut c, &fh, set(SetxattrOption::Replace, "a", b"two")).await);
    assert_eq!(second.before, first.after, "nobody else changed it");
    assert_eq!(on(&mut c, &fh, get("a")).await.body, ResBody::Getxattr("two".into()));
    // What the client calls `a` is `user.a` for local processes.
    let mut local = [0u8; 16];
    let path = std::ffi::CString::new(rig.export().join("f").to_str().expect("a path")).expect("no NUL");
    // SAFETY: both strings end with NUL, and the buffer has as many bytes as are said.
    let len = unsafe { libc::getxattr(path.as_ptr(), c"user.a".as_ptr(), local.as_mut_ptr().cast(), 16) };
    assert_eq!(local.get(..len.max(0) as usize), Some(&b"two"[..]));
    let gone = changed(&on(&mut c, &fh, ArgOp::Removexattr(name("a"))).await);
    assert!(gone.after > gone.before);
    assert_eq!(on(&mut c, &fh, ArgOp::Removexattr(name("a"))).await.status, NfsStat::NFS4ERR_NOXATTR);
    assert_eq!(on(&mut c, &fh, get("a")).await.status, NfsStat::NFS4ERR_NOXATTR);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8276_8_4_2_names_and_sizes() {
    let (_rig, mut c, fh) = with_file().await;
    let long = "n".repeat(251);
    for (key, status) in [
        ("", NfsStat::NFS4ERR_INVAL),
        ("a\0", NfsStat::NFS4ERR_BADCHAR),
        (&long, NfsStat::NFS4ERR_NAMETOOLONG),
    ] {
        assert_eq!(on(&mut c, &fh, either(key, b"x")).await.status, status, "{key:?}");
        // RFC 8276 section 8.4.5: GETXATTR has no BADCHAR.
        let status = if status == NfsStat::NFS4ERR_BADCHAR { NfsStat::NFS4ERR_INVAL } else { status };
        assert_eq!(on(&mut c, &fh, get(key)).await.status, status, "{key:?}");
    }
    let big = vec![1; 65_537];
    assert_eq!(on(&mut c, &fh, either("a", &big)).await.status, NfsStat::NFS4ERR_XATTR2BIG);
    assert_eq!(on(&mut c, &fh, either("a", b"")).await.status, NfsStat::NFS4_OK);
    assert_eq!(on(&mut c, &fh, get("a")).await.body, ResBody::Getxattr(Bytes::new()));
    // Another option than the three.
    let mut bad = either("a", b"x").to_bytes().to_vec();
    bad[7] = 3;
    c.seq += 1;
    let ops = vec![c.sequence(), ArgOp::Putfh(fh.clone()), ArgOp::Getfh];
    let mut body = c.raw.encode(ops).to_vec();
    body.truncate(body.len() - 4);
    body.extend(bad);
    let res = c.raw.call(landfast_nfs::v4::PROC_COMPOUND, body.into()).await.expect("an answer");
    let res = <CompoundRes as landfast_xdr::Decode>::from_bytes(res).expect("a COMPOUND result");
    assert_eq!(res.status, NfsStat::NFS4ERR_BADXDR);
    // No current filehandle.
    for op in [get("a"), either("a", b"x"), list(0, 1000), ArgOp::Removexattr(name("a"))] {
        assert_eq!(c.status(vec![op]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    }
    // RFC 8276 section 8.4.1.3: a value that the reply has no room for.
    assert_eq!(on(&mut c, &fh, either("a", &[1; 3000])).await.status, NfsStat::NFS4_OK);
    let mut narrow = session_args(c.id, 0);
    narrow.fore_chan_attrs.max_response_size = 1024;
    let raw = c.raw.clone();
    let ex = raw.exchange_id(b"narrow", 1).await;
    let s = raw
        .create_session(CreateSessionArgs { clientid: ex.clientid, sequence: ex.sequenceid, ..narrow })
        .await;
    let mut d = Client { id: ex.clientid, session: s.sessionid, seq: 0, cachethis: false, ..c.clone() };
    assert_ok(&d.run(vec![ArgOp::ReclaimComplete(false)]).await);
    assert_eq!(on(&mut d, &fh, get("a")).await.status, NfsStat::NFS4ERR_REP_TOO_BIG);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8276_8_4_3_lists_in_pieces() {
    let (_rig, mut c, fh) = with_file().await;
    let empty = listed(on(&mut c, &fh, list(0, 16)).await);
    assert_eq!((empty.names.len(), empty.eof), (0, true));
    assert_eq!(on(&mut c, &fh, list(0, 15)).await.status, NfsStat::NFS4ERR_TOOSMALL);
    let mut want: Vec<Bytes> = Vec::new();
    for i in 0..25 {
        let key = format!("name-{i}");
        assert_eq!(on(&mut c, &fh, either(&key, b"x")).await.status, NfsStat::NFS4_OK);
        want.push(key.into());
    }
    // One name takes 12 bytes; an empty list 16.
    assert_eq!(on(&mut c, &fh, list(0, 27)).await.status, NfsStat::NFS4ERR_TOOSMALL);
    let (mut got, mut cookie, mut pieces) = (Vec::new(), 0, 0);
    loop {
        let piece = listed(on(&mut c, &fh, list(cookie, 100)).await);
        assert!(piece.to_bytes().len() <= 100);
        assert!(!piece.names.is_empty());
        got.extend(piece.names);
        (cookie, pieces) = (piece.cookie, pieces + 1);
        if piece.eof {
            break;
        }
    }
    got.sort();
    want.sort();
    assert_eq!(got, want);
    assert!(pieces > 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8276_8_5_rights_and_the_bits_of_access() {
    let (rig, mut c, fh) = with_file().await;
    assert_eq!(on(&mut c, &fh, either("a", b"x")).await.status, NfsStat::NFS4_OK);
    let mut other = rig.client(b"other").await;
    other.raw.cred = user(1001);
    let all = ACCESS4_XAREAD | ACCESS4_XAWRITE | ACCESS4_XALIST;
    for (bits, may) in [(0o644, ACCESS4_XAREAD | ACCESS4_XALIST), (0o602, ACCESS4_XAWRITE), (0o600, 0)] {
        let args = SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(bits) };
        assert_eq!(on(&mut c, &fh, ArgOp::Setattr(args)).await.status, NfsStat::NFS4_OK);
        let res = on(&mut other, &fh, ArgOp::Access(all)).await;
        assert_eq!(res.body, ResBody::Access(AccessRes { supported: all, access: may }));
        let status = |granted: u32| match may & granted {
            0 => NfsStat::NFS4ERR_ACCESS,
            _ => NfsStat::NFS4_OK,
        };
        assert_eq!(on(&mut other, &fh, get("a")).await.status, status(ACCESS4_XAREAD));
        assert_eq!(on(&mut other, &fh, list(0, 1000)).await.status, status(ACCESS4_XALIST));
        assert_eq!(on(&mut other, &fh, either("a", b"y")).await.status, status(ACCESS4_XAWRITE));
    }
    // Before minor version 2 the bits mean nothing, nor do the operations exist.
    c.raw.minor = 1;
    let res = on(&mut c, &fh, ArgOp::Access(all | ACCESS4_READ)).await;
    assert_eq!(res.body, ResBody::Access(AccessRes { supported: ACCESS4_READ, access: ACCESS4_READ }));
    assert_eq!(on(&mut c, &fh, get("a")).await.status, NfsStat::NFS4ERR_OP_ILLEGAL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8276_8_2_support_is_said_where_clients_ask() {
    let rig = Rig::named("/srv/data").await;
    let mut c = rig.client(b"c").await;
    let root = c.handle(&[]).await;
    let synthetic = c.handle(&["srv"]).await;
    for fh in [&root, &synthetic] {
        let attrs = c.attrs(fh, Bitmap::of(&[n::SUPPORTED_ATTRS, n::XATTR_SUPPORT])).await;
        assert_eq!(attrs.xattr_support, Some(true));
        assert!(attrs.supported_attrs.is_some_and(|s| s.has(n::XATTR_SUPPORT)));
    }
    assert_eq!(on(&mut c, &synthetic, get("a")).await.status, NfsStat::NFS4ERR_NOXATTR);
    assert_eq!(on(&mut c, &synthetic, either("a", b"x")).await.status, NfsStat::NFS4ERR_ROFS);
    assert_eq!(on(&mut c, &synthetic, ArgOp::Removexattr(name("a"))).await.status, NfsStat::NFS4ERR_ROFS);
    assert!(listed(on(&mut c, &synthetic, list(0, 1000)).await).eof);
    c.raw.minor = 1;
    let attrs = c.attrs(&root, Bitmap::of(&[n::SUPPORTED_ATTRS, n::XATTR_SUPPORT])).await;
    assert_eq!(attrs.xattr_support, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_was_set_is_there_after_a_crash_and_a_retry_gets_the_first_answer() {
    let (mut rig, mut c, fh) = with_file().await;
    assert_eq!(on(&mut c, &fh, either("kept", b"x")).await.status, NfsStat::NFS4_OK);
    let ops = vec![ArgOp::Putfh(fh.clone()), set(SetxattrOption::Create, "a", b"one")];
    let first = c.run(ops.clone()).await;
    assert_ok(&first);
    rig.crash().await;
    c.raw = rig.raw().await;
    let again = c.again(ops).await;
    assert_eq!(again.results.get(1..), Some(&first[..]), "not NFS4ERR_EXIST");
    // It left a file open, so its session does nothing new.
    let mut c = rig.client(b"later").await;
    assert_eq!(on(&mut c, &fh, get("a")).await.body, ResBody::Getxattr("one".into()));
    assert_eq!(on(&mut c, &fh, get("kept")).await.body, ResBody::Getxattr("x".into()));
}
