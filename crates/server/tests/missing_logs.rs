//! A server starts without a log that it had: what clients hold may stand in that one alone, wherever their files are.

use crate::common::*;
use crate::exports::{Many, RW, open_broken};
use crate::goes_on::lock;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;

/// Opens a file of export `b`.
async fn open(c: &mut Client, how: OpenHow) -> (FileHandle, Stateid) {
    let dir = c.handle(&["x", "b"]).await;
    let res = c.run(vec![ArgOp::Putfh(dir), open_op(b"o", "f", 3, 0, how), ArgOp::Getfh]).await;
    match (&res[1].body, &res[2].body) {
        (ResBody::Open(opened), ResBody::Getfh(fh)) => (fh.clone(), opened.stateid),
        _ => panic!("OPEN gave {res:?}"),
    }
}

async fn connected(many: &Many, c: &mut Client) {
    c.raw.conn = Raw::new(many.server().local_addrs()[0]).await.conn;
}

/// Two exports; a client has locked a file of the second after each log has had its last snapshot. The notes of that are in the first log.
async fn locked() -> (Many, Client, FileHandle, Stateid) {
    let mut many = Many::new(&[("a", RW), ("b", RW)]).await;
    let mut c = many.v4(b"c").await;
    open(&mut c, OpenHow::Create(CreateHow::Guarded(mode(0o666)))).await;
    many.restart().await;
    connected(&many, &mut c).await;
    let (fh, s) = open(&mut c, OpenHow::NoCreate).await;
    let res = on(&mut c, &fh, lock(s, 0)).await;
    let ResBody::Lock(held) = res.body else { panic!("LOCK gave {res:?}") };
    (many, c, fh, held)
}

/// What another client hears who asks for the same lock.
async fn other_locks(many: &Many, name: &[u8], fh: &FileHandle) -> NfsStat {
    let mut d = many.v4(name).await;
    let open = OpenArgs {
        claim: OpenClaim::Fh,
        openhow: OpenHow::NoCreate,
        share_access: 3,
        share_deny: 0,
        seqid: 0,
        owner: owner(0, b"o"),
    };
    let res = on(&mut d, fh, ArgOp::Open(open)).await;
    match res.body {
        ResBody::Open(opened) => on(&mut d, fh, lock(opened.stateid, 0)).await.status,
        _ => res.status,
    }
}

/// The lock is still there, and nobody has to reclaim.
async fn is_held(many: &Many, c: &mut Client, fh: &FileHandle, held: Stateid) {
    assert_eq!(many.server().restored().reclaiming, 0);
    connected(many, c).await;
    assert_eq!(c.status_flags().await, 0);
    assert_ok(&[on(c, fh, write_op(Stateid { seqid: 0, ..held }, 0, b"x")).await]);
    assert_eq!(other_locks(many, b"d", fh).await, NfsStat::NFS4ERR_DENIED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn after_a_clean_stop_each_log_has_all() {
    let (mut many, mut c, fh, held) = locked().await;
    many.running.take().expect("a server").stop().await.expect("a clean stop");
    many.config.exports.remove(0);
    many.start().await;
    is_held(&many, &mut c, &fh, held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn when_an_export_is_removed_the_other_logs_have_all() {
    let (mut many, mut c, fh, held) = locked().await;
    let done = many.reload(&[("b", RW)]).await.expect("a reload");
    assert_eq!((done.removed.len(), done.not_clean), (1, Vec::<String>::new()));
    many.running.take().expect("a server").abandon().await;
    many.start().await;
    is_held(&many, &mut c, &fh, held).await;
}

/// RFC 8881 section 8.4.2.1: a server that does not know what clients hold lets them reclaim first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn where_a_log_is_missing_after_a_crash_clients_reclaim() {
    let (mut many, mut c, fh, held) = locked().await;
    many.running.take().expect("a server").abandon().await;
    let first = many.config.exports.remove(0);
    many.start().await;
    assert_eq!(many.server().restored().reclaiming, 1);
    connected(&many, &mut c).await;
    // Replies of its session may have stood in that log alone.
    assert_ne!(c.sequence_status().await, NfsStat::NFS4_OK);
    let mut again = Client::without_reclaim(c.raw, b"c", 1).await;
    let written = on(&mut again, &fh, write_op(Stateid { seqid: 0, ..held }, 0, b"x")).await;
    assert_ne!(written.status, NfsStat::NFS4_OK, "it may not be its lock any more");
    let reclaim = OpenArgs {
        claim: OpenClaim::Previous(0),
        openhow: OpenHow::NoCreate,
        share_access: 3,
        share_deny: 0,
        seqid: 0,
        owner: owner(0, b"o"),
    };
    let ResBody::Open(opened) = on(&mut again, &fh, ArgOp::Open(reclaim)).await.body else {
        panic!("it may not reclaim")
    };
    let ArgOp::Lock(lock_again) = lock(opened.stateid, 0) else { panic!("LOCK") };
    assert_ok(&[on(&mut again, &fh, ArgOp::Lock(LockArgs { reclaim: true, ..lock_again })).await]);
    assert_eq!(other_locks(&many, b"d", &fh).await, NfsStat::NFS4ERR_GRACE);
    // The grace period lasts for those who are not known any more, too: the one who is known is not all.
    assert_ok(&again.run(vec![ArgOp::ReclaimComplete(false)]).await);
    assert_eq!(other_locks(&many, b"e", &fh).await, NfsStat::NFS4ERR_GRACE);
    // The log that comes back is of an earlier instance.
    many.running.take().expect("a server").abandon().await;
    many.config.exports.insert(0, first);
    many.start().await;
    assert_eq!(many.server().restored().sessions, 3, "the newer log counts");
}

/// A reload that is refused has said that notes may be in a further log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_refused_reload_costs_no_client_its_session_at_the_next_start() {
    for clean in [true, false] {
        let mut many = Many::new(&[("b", RW)]).await;
        let mut c = many.v4(b"c").await;
        let (fh, s) = open(&mut c, OpenHow::Create(CreateHow::Guarded(mode(0o666)))).await;
        let res = on(&mut c, &fh, lock(s, 0)).await;
        let ResBody::Lock(held) = res.body else { panic!("LOCK gave {res:?}") };
        many.reload_with(&[("b", RW), ("new", RW)], open_broken).await.expect_err("it does not start");
        let running = many.running.take().expect("a server");
        match clean {
            true => drop(running.stop().await.expect("a clean stop")),
            false => running.abandon().await,
        }
        many.start().await;
        is_held(&many, &mut c, &fh, held).await;
    }
}
