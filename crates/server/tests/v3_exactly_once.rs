//! The duplicate request cache on a socket (RFC 1813 section 4.5): a call that is repeated is executed once, over
//! reconnects and restarts.

use crate::common;

use common::v3::*;
use common::{PATIENCE, Rig};
use landfast_nfs::v3::args::*;
use landfast_nfs::v3::types::*;
use landfast_nfs::v3::{Call, NfsStat3};
use landfast_xdr::{Bytes, Decode};

fn status(reply: &Bytes) -> NfsStat3 {
    NfsStat3::from_bytes(reply.slice(..4)).expect("a status")
}

/// One call of each kind that is not harmless to repeat, and what it would be answered if it were executed again.
fn calls(c: &V3) -> Vec<(Call, NfsStat3)> {
    let root = &c.root;
    vec![
        (create(root, "f", CreateHow::Guarded(mode(0o644))), NfsStat3::EXIST),
        (Call::Mkdir(MkdirArgs { at: at(root, "d"), attrs: mode(0o755) }), NfsStat3::EXIST),
        (
            Call::Symlink(SymlinkArgs { at: at(root, "l"), attrs: mode(0o777), target: name("t") }),
            NfsStat3::EXIST,
        ),
        (Call::Mknod(MknodArgs { at: at(root, "p"), what: MknodWhat::Fifo(mode(0o600)) }), NfsStat3::EXIST),
        (Call::Rename(RenameArgs { from: at(root, "f"), to: at(root, "g") }), NfsStat3::NOENT),
        (Call::Remove(at(root, "g")), NfsStat3::NOENT),
        (Call::Rmdir(at(root, "d")), NfsStat3::NOENT),
    ]
}

/// Sends all calls, each for the first time.
async fn all(wire: &mut Wire, calls: &[(Call, NfsStat3)]) -> Vec<Bytes> {
    let mut replies = Vec::new();
    for (n, (call, _)) in calls.iter().enumerate() {
        let reply = wire.call(1000 + n as u32, call).await;
        assert_eq!(status(&reply), NfsStat3::OK, "{call:?}");
        replies.push(reply);
    }
    replies
}

/// Sends all calls again: each gets its first reply.
async fn again(wire: &mut Wire, calls: &[(Call, NfsStat3)], replies: &[Bytes]) {
    for (n, (call, _)) in calls.iter().enumerate() {
        assert_eq!(wire.call(1000 + n as u32, call).await, replies[n], "{call:?}");
    }
}

/// Sends all calls under other ids: they are others.
async fn others(wire: &mut Wire, calls: &[(Call, NfsStat3)]) {
    let made = calls.iter().enumerate().filter(|(n, _)| *n == 2 || *n >= 4);
    for (n, (call, second)) in made {
        assert_eq!(status(&wire.call(2000 + n as u32, call).await), *second, "{call:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_4_5_a_retry_gets_the_first_reply() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let calls = calls(&c);
    let mut wire = Wire::new(rig.addr(), 0).await;
    let replies = all(&mut wire, &calls).await;
    again(&mut wire, &calls, &replies).await;
    let port = wire.port();
    wire.reset();
    let mut same_port = Wire::new(rig.addr(), port).await;
    again(&mut same_port, &calls, &replies).await;
    let mut other_port = Wire::new(rig.addr(), 0).await;
    again(&mut other_port, &calls, &replies).await;
    others(&mut other_port, &calls).await;
    assert_eq!(rig.server().stats().replays, 3 * calls.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_4_5_a_retry_after_a_crash_gets_the_first_reply() {
    let mut rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let calls = calls(&c);
    let mut wire = Wire::new(rig.addr(), 0).await;
    let replies = all(&mut wire, &calls).await;
    drop(wire);
    let restored = rig.crash().await;
    assert!(restored.replies >= calls.len());
    let mut wire = Wire::new(rig.addr(), 0).await;
    again(&mut wire, &calls, &replies).await;
    // Over a clean stop as well, out of the snapshot.
    rig.restart().await;
    let mut wire = Wire::new(rig.addr(), 0).await;
    again(&mut wire, &calls, &replies).await;
    others(&mut wire, &calls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn two_copies_of_a_call_at_once_are_one() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    for n in 0..50 {
        let call = create(&c.root, &format!("f{n}"), CreateHow::Guarded(mode(0o644)));
        let (mut one, mut two) = (Wire::new(rig.addr(), 0).await, Wire::new(rig.addr(), 0).await);
        one.send(n, &call).await;
        two.send(n, &call).await;
        let (first, second) = (one.receive().await.1, two.receive().await.1);
        assert_eq!(status(&first), NfsStat3::OK);
        assert_eq!(first, second);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_program_that_is_started_again_and_counts_from_the_beginning_is_another_client() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let mkdir = Call::Mkdir(MkdirArgs { at: at(&c.root, "d"), attrs: mode(0o755) });
    let mut wire = Wire::new(rig.addr(), 0).await;
    assert_eq!(status(&wire.call(1, &mkdir).await), NfsStat3::OK);
    let connections = rig.server().stats().connections;
    drop(wire);
    // The server has seen the end when it does not count the connection any more.
    while rig.server().stats().connections >= connections {
        tokio::task::yield_now().await;
    }
    assert_eq!(c.status(Call::Rmdir(at(&c.root, "d"))).await, NfsStat3::OK);
    let mut wire = Wire::new(rig.addr(), 0).await;
    assert_eq!(status(&wire.call(1, &mkdir).await), NfsStat3::OK);
    c.lookup(&c.root, "d").await;
}

/// It closes its side in order, but the reply has not reached it: it waits behind data that the client does not take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_4_5_a_reply_that_has_not_arrived_is_kept_for_who_closes_its_connection() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let data = vec![7; 1 << 20];
    let fh = c.file("data").await;
    c.write(&fh, 0, &data, StableHow::FileSync).await;
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("an option");
    let mut wire = Wire { stream: socket.connect(rig.addr()).await.expect("connected") };
    let read = Call::Read(ReadArgs { file: fh.clone(), offset: 0, count: 1 << 20 });
    // More than the server's system takes for it.
    for xid in 0..16 {
        wire.send(xid, &read).await;
    }
    let mkdir = Call::Mkdir(MkdirArgs { at: at(&c.root, "d"), attrs: mode(0o755) });
    wire.send(1000, &mkdir).await;
    // The first to come is the one on this connection.
    let made = tokio::time::timeout(PATIENCE, async {
        while c.status(Call::Lookup(at(&c.root, "d"))).await != NfsStat3::OK {
            tokio::task::yield_now().await;
        }
    });
    made.await.expect("it is made");
    // A retry is answered when the reply to the first is on its way.
    let again = async || Wire::new(rig.addr(), 0).await.call(1000, &mkdir).await;
    assert_eq!(status(&again().await), NfsStat3::OK);
    tokio::io::AsyncWriteExt::shutdown(&mut wire.stream).await.expect("ended");
    for _ in 0..200 {
        assert_eq!(status(&again().await), NfsStat3::OK, "its first reply");
    }
    while wire.receive().await.0 != 1000 {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_write_that_is_repeated_late_does_not_undo_a_later_one() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let fh = c.file("f").await;
    let mut wire = Wire::new(rig.addr(), 0).await;
    for stable in [StableHow::FileSync, StableHow::Unstable] {
        let (old, new) = (write(&fh, 0, b"old", stable), write(&fh, 0, b"new", stable));
        let xid = stable as u32 * 10;
        let first = wire.call(xid, &old).await;
        assert_eq!(status(&wire.call(xid + 1, &new).await), NfsStat3::OK);
        assert_eq!(wire.call(xid, &old).await, first);
        assert_eq!(c.read(&fh, 0, 9).await.data, "new");
    }
}
