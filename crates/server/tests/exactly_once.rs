//! Requests under way while the server dies, repeated after it is back: each has its effect exactly once.
//!
//! The death of the process leaves the page cache, and with it what was applied and not yet in the log, without its
//! reply. A request that was under way then may be told that it has been done already (EXIST, NOENT); a request that was
//! answered before, or sent after, may not.

use crate::common;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_rpc::client::Connection;
use landfast_rpc::conn::ConnConfig;
use landfast_rpc::{CallError, NoService};
use landfast_xdr::Decode;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;

const CLIENTS: usize = 4;
const CRASHES: usize = 4;
const STEPS: usize = 120;

/// Sends until there is an answer: after each loss of the connection again, with the same number, to where the server is
/// then. True when the request was under way at a death of the server.
async fn insist(
    c: &mut Client,
    addr: &mut watch::Receiver<Option<SocketAddr>>,
    ops: Vec<ArgOp>,
) -> (CompoundRes, bool) {
    let mut interrupted = false;
    c.seq += 1;
    let body = c.raw.encode([vec![c.sequence()], ops].concat());
    loop {
        match c.raw.call(1, body.clone()).await {
            Ok(res) => return (CompoundRes::from_bytes(res).expect("a COMPOUND result"), interrupted),
            Err(CallError::Closed(_)) => {
                interrupted = true;
                let there =
                    addr.wait_for(Option::is_some).await.expect("the test goes on").expect("an address");
                let config = ConnConfig::default();
                if let Ok(conn) = Connection::connect(there, Arc::new(NoService), &config).await {
                    c.raw.conn = conn;
                }
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// Makes, renames and removes.
async fn work(mut c: Client, who: usize, mut addr: watch::Receiver<Option<SocketAddr>>) -> Client {
    let root = vec![ArgOp::Putrootfh];
    for i in 0..STEPS {
        let (a, b) = (format!("{who}-{i}"), format!("{who}-{i}-renamed"));
        let open =
            open_op(b"o", &format!("{a}-file"), 3, 0, OpenHow::Create(CreateHow::Guarded(mode(0o600))));
        let rename = ArgOp::Rename(RenameArgs { oldname: name(&a), newname: name(&b) });
        let steps = [
            vec![mkdir(&a)],
            vec![open, write_op(Stateid::CURRENT, 0, a.as_bytes()), close_op(Stateid::CURRENT)],
            vec![ArgOp::Savefh, rename],
            vec![ArgOp::Remove(name(&b))],
        ];
        for step in steps {
            let described = format!("{:?}", step.iter().map(ArgOp::op).collect::<Vec<_>>());
            let (res, interrupted) = insist(&mut c, &mut addr, [root.clone(), step].concat()).await;
            let done_already = matches!(res.status, NfsStat::NFS4ERR_EXIST | NfsStat::NFS4ERR_NOENT);
            assert!(
                res.status.is_ok() || (interrupted && done_already),
                "client {who}, step {i}: {described} gave {:?}, interrupted: {interrupted}",
                res.status
            );
        }
    }
    c
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_5_effects_exactly_once_over_the_death_of_the_server() {
    let mut rig = Rig::new().await;
    let (tell, addr) = watch::channel(Some(rig.addr()));
    let mut workers = Vec::new();
    for who in 0..CLIENTS {
        let c = rig.client(format!("client {who}").as_bytes()).await;
        workers.push(tokio::spawn(work(c, who, addr.clone())));
    }
    for crash in 1..=CRASHES {
        // Once a part of the work is done.
        let part = (CLIENTS * STEPS * crash / (CRASHES + 2)) as u64;
        let files = || std::fs::read_dir(rig.export()).map_or(0, Iterator::count) as u64;
        while files() < part && workers.iter().any(|w| !w.is_finished()) {
            tokio::task::yield_now().await;
        }
        tell.send_replace(None);
        let restored = rig.crash().await;
        assert_eq!(restored.sessions, CLIENTS);
        assert_eq!(restored.reclaiming, 0, "every COMPOUND closed what it opened");
        tell.send_replace(Some(rig.addr()));
    }
    for w in workers {
        w.await.expect("no step was refused");
    }
    let names: Vec<_> = std::fs::read_dir(rig.export())
        .expect("the export")
        .map(|e| e.expect("an entry").file_name().into_string().expect("a name"))
        .filter(|n| n != ".landfast")
        .collect();
    assert_eq!(names.len(), CLIENTS * STEPS);
    for n in names {
        let content = std::fs::read_to_string(rig.export().join(&n)).expect("a file");
        assert_eq!(format!("{content}-file"), n);
    }
}
