//! NFSv4.0: what no owner's number tells from its retry is known by address, transaction id and contents (RFC 7530 section
//! 3.1.1), also after a crash.

use crate::common;
use crate::v40;

use common::v3::Wire;
use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_nfs::{PROGRAM, v4};
use landfast_xdr::{Decode, Encode};
use tokio::io::AsyncWriteExt;
use v40::*;

/// A COMPOUND of minor version 0 under this transaction id.
pub async fn compound(wire: &mut Wire, xid: u32, ops: &[ArgOp]) -> CompoundRes {
    send(wire, xid, ops).await;
    let (answered, reply) = wire.receive().await;
    assert_eq!(answered, xid);
    CompoundRes::from_bytes(reply).expect("a COMPOUND result")
}

async fn send(wire: &mut Wire, xid: u32, ops: &[ArgOp]) {
    let announced = ops.len() as u32;
    let args = CompoundArgs { tag: name("tag"), minor_version: 0, announced, ops: ops.to_vec() };
    let cred = user(0).to_opaque();
    let mut record = Vec::new();
    for n in [xid, 0, 2, PROGRAM, v4::VERSION, v4::PROC_COMPOUND, cred.flavor] {
        record.extend(n.to_be_bytes());
    }
    record.extend(cred.body.to_bytes());
    record.extend([0; 8]);
    record.extend(args.to_bytes());
    let mark = (0x8000_0000 | record.len() as u32).to_be_bytes();
    wire.stream.write_all(&[&mark[..], &record].concat()).await.expect("sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_3_1_1_a_retry_gets_the_first_reply() {
    let rig = Rig::new().await;
    let mut wire = Wire::new(rig.addr(), 0).await;
    let make = [ArgOp::Putrootfh, mkdir("d"), ArgOp::Getfh];
    let first = compound(&mut wire, 1, &make).await;
    assert_eq!(first.status, NfsStat::NFS4_OK);
    assert_eq!(compound(&mut wire, 1, &make).await, first, "not EXIST");
    assert_eq!(compound(&mut wire, 2, &make).await.status, NfsStat::NFS4ERR_EXIST, "another call");
    let other = [ArgOp::Putrootfh, mkdir("e"), ArgOp::Getfh];
    assert_eq!(compound(&mut wire, 1, &other).await.status, NfsStat::NFS4_OK, "another call of the same id");
    // From another connection, when the first one broke.
    wire.reset();
    let mut wire = Wire::new(rig.addr(), 0).await;
    assert_eq!(compound(&mut wire, 1, &make).await, first);
    // What reads is executed again.
    let read = [ArgOp::Putrootfh, ArgOp::Lookup(name("d")), ArgOp::Getfh];
    assert_eq!(compound(&mut wire, 5, &read).await.status, NfsStat::NFS4_OK);
    let remove = [ArgOp::Putrootfh, ArgOp::Remove(name("d"))];
    assert_eq!(compound(&mut wire, 6, &remove).await.status, NfsStat::NFS4_OK);
    assert_eq!(compound(&mut wire, 6, &remove).await.status, NfsStat::NFS4_OK);
    assert_eq!(compound(&mut wire, 5, &read).await.status, NfsStat::NFS4ERR_NOENT);
    // SETCLIENTID: the same client ID and confirmation.
    let set = [setclientid_op(b"x", 1, "")];
    let first = compound(&mut wire, 7, &set).await;
    assert_eq!(compound(&mut wire, 7, &set).await, first);
    assert_ne!(compound(&mut wire, 8, &set).await, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_3_1_1_also_after_a_crash() {
    let mut rig = Rig::new().await;
    let mut wire = Wire::new(rig.addr(), 0).await;
    let make = [ArgOp::Putrootfh, mkdir("d"), ArgOp::Getfh];
    let first = compound(&mut wire, 1, &make).await;
    let rename = |from, to| {
        let args = RenameArgs { oldname: name(from), newname: name(to) };
        [ArgOp::Putrootfh, ArgOp::Savefh, ArgOp::Rename(args)]
    };
    let renamed = compound(&mut wire, 2, &rename("d", "e")).await;
    assert_eq!(renamed.status, NfsStat::NFS4_OK);
    wire.reset();
    for _ in 0..2 {
        assert!(rig.crash().await.replies >= 2);
        let mut wire = Wire::new(rig.addr(), 0).await;
        assert_eq!(compound(&mut wire, 1, &make).await, first);
        assert_eq!(compound(&mut wire, 2, &rename("d", "e")).await, renamed);
        wire.reset();
    }
    let mut wire = Wire::new(rig.addr(), 0).await;
    assert_eq!(compound(&mut wire, 3, &rename("d", "e")).await.status, NfsStat::NFS4ERR_NOENT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_3_1_1_a_retry_that_overtakes_its_request_is_executed_once() {
    let rig = Rig::new().await;
    let (mut a, mut b) = (Wire::new(rig.addr(), 0).await, Wire::new(rig.addr(), 0).await);
    for xid in 0..50 {
        let make = [ArgOp::Putrootfh, mkdir(&format!("d{xid}")), ArgOp::Getfh];
        let (one, other) = tokio::join!(compound(&mut a, xid, &make), compound(&mut b, xid, &make));
        assert_eq!(one.status, NfsStat::NFS4_OK);
        assert_eq!(one, other);
    }
}
