//! Back channels over a restart of the server (RFC 8881 sections 2.10.3, 18.34 and 18.46.3), over a real socket.

use crate::common;
use crate::delegations;

use common::back::*;
use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::callback::*;
use landfast_nfs::v4::data::*;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::*;
use landfast_rpc::client::Connection;
use landfast_rpc::conn::{CallHeader, ConnConfig, ConnInfo, Program, Response, Service};
use landfast_server::exports::Delegate;
use landfast_xdr::{Bytes, Decode, Encode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{interval, timeout};

fn bind(sessid: SessionId, dir: u32) -> ArgOp {
    ArgOp::BindConnToSession(BindConnToSessionArgs { sessid, dir, use_conn_in_rdma_mode: false })
}

/// A file that is large enough to be copied after its COPY was answered.
fn make_source(rig: &Rig) {
    let file = std::fs::File::create(rig.export().join("from")).expect("a file");
    file.set_len(32 << 20).expect("a large file");
    std::fs::write(rig.export().join("to"), b"").expect("a file");
}

/// A COPY that goes on by itself, by a client that holds nothing.
async fn copy_without_opens(c: &mut Client) -> Stateid {
    let (from, to) = (c.handle(&["from"]).await, c.handle(&["to"]).await);
    let copy = ArgOp::Copy(CopyArgs {
        src_stateid: Stateid::ANONYMOUS,
        dst_stateid: Stateid::ANONYMOUS,
        src_offset: 0,
        dst_offset: 0,
        count: 32 << 20,
        consecutive: true,
        synchronous: false,
        source_server: Vec::new(),
    });
    match c.last(vec![ArgOp::Putfh(from), ArgOp::Savefh, ArgOp::Putfh(to), copy]).await.body {
        ResBody::Copy(r) => r.response.callback_id.expect("it goes on by itself"),
        other => panic!("COPY gave {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_3_a_restored_session_asks_for_a_connection_and_then_serves_callbacks() {
    let mut rig = Rig::new().await;
    make_source(&rig);
    let (mut c, _) = with_back_channel(&rig, Vec::new()).await;
    let mut plain = rig.client(b"plain").await;
    assert_eq!((c.status_flags().await, plain.status_flags().await), (0, 0));
    for crash in [true, false] {
        let restored = if crash { rig.crash().await } else { rig.restart().await };
        assert_eq!((restored.sessions, restored.reclaiming), (2, 0));
        c.raw = rig.raw().await;
        plain.raw = rig.raw().await;
        let down = SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION;
        assert_eq!((c.status_flags().await, plain.status_flags().await), (down, 0));
        assert_ok(&[c.raw.alone(bind(c.session, CDFC4_FORE)).await]);
        assert_eq!(c.status_flags().await, down, "bound for requests only");
    }
    // As Linux does when it is told.
    let (raw, mut listening) = callable(rig.addr(), Vec::new()).await;
    c.raw = raw;
    assert_ok(&[c.raw.alone(bind(c.session, CDFC4_FORE_OR_BOTH)).await]);
    assert_eq!(c.status_flags().await, 0);
    let stateid = copy_without_opens(&mut c).await;
    let (call, args) = timeout(PATIENCE, listening.recv()).await.expect("in time").expect("a callback");
    assert_eq!((call.prog, args.ops.len()), (0x4000_0000, 2));
    assert!(
        matches!(&args.ops[0], CbOp::Sequence(s) if (s.sessionid, s.sequenceid, s.slotid) == (c.session, 1, 0))
    );
    assert!(matches!(&args.ops[1], CbOp::Offload(o) if o.stateid == stateid && o.outcome.is_ok()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_3_a_back_channel_whose_numbers_a_restart_lost_is_at_fault() {
    let mut rig = Rig::new().await;
    make_source(&rig);
    let (mut c, mut listening) = with_back_channel(&rig, Vec::new()).await;
    copy_without_opens(&mut c).await;
    timeout(PATIENCE, listening.recv()).await.expect("in time").expect("a callback");
    for crash in [true, false] {
        let restored = if crash { rig.crash().await } else { rig.restart().await };
        assert_eq!((restored.sessions, restored.reclaiming), (1, 0));
        c.raw = rig.raw().await;
        assert_eq!(c.status_flags().await, SEQ4_STATUS_BACKCHANNEL_FAULT);
        // No connection mends that. Requests are served all the same.
        assert_ok(&[c.raw.alone(bind(c.session, CDFC4_FORE_OR_BOTH)).await]);
        assert_eq!(c.status_flags().await, SEQ4_STATUS_BACKCHANNEL_FAULT);
        c.handle(&["from"]).await;
    }
    // What the client has to do: end the session and make another. That one is whole.
    let (raw, mut listening) = callable(rig.addr(), Vec::new()).await;
    assert_ok(&[raw.alone(ArgOp::DestroySession(c.session)).await]);
    let mut args = session_args(c.id, raw.exchange_id(b"back", 1).await.sequenceid);
    args.flags |= CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    let session = raw.create_session(args).await.sessionid;
    let mut c = Client { raw, session, seq: 0, ..c };
    assert_eq!(c.status_flags().await, 0);
    copy_without_opens(&mut c).await;
    let (_, args) = timeout(PATIENCE, listening.recv()).await.expect("in time").expect("a callback");
    assert!(matches!(&args.ops[0], CbOp::Sequence(s) if (s.sessionid, s.sequenceid) == (session, 1)));
}

/// A client with a delegation of a file, whose back channel is this connection and whose requests go on another.
async fn holder_beside(
    rig: &Rig,
    mute: bool,
) -> (Client, Connection, delegations::Heard, Stateid, FileHandle) {
    let (raw, heard, _) = connected(rig.addr(), Vec::new(), mute).await;
    let back = raw.conn.clone();
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    delegations::tried_out(&mut c).await;
    c.raw = rig.raw().await;
    let (res, fh) = delegations::open(&mut c, "f", 2 | delegations::XOR).await;
    let stateid = delegations::stateid_of(&res.delegation).expect("a delegation");
    (c, back, heard, stateid, fh)
}

async fn returned(c: &mut Client, fh: &FileHandle, stateid: Stateid, mut rival: Client) {
    assert_ok(&[on(c, fh, ArgOp::DelegReturn(stateid)).await]);
    assert_eq!(on(&mut rival, fh, read_op(Stateid::ANONYMOUS, 0, 9)).await.status, NfsStat::NFS4_OK);
}

/// Its address has changed, say, and nobody has told the server that the connection is no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_3_a_client_is_told_of_a_connection_on_which_nothing_comes_any_more() {
    let rig = delegations::rig(Delegate::Write).await;
    let (mut c, _back, mut dead, stateid, fh) = holder_beside(&rig, true).await;
    let mut rival = rig.client(b"rival").await;
    let read = read_op(Stateid::ANONYMOUS, 0, 9);
    assert_eq!(on(&mut rival, &fh, read).await.status, NfsStat::NFS4ERR_DELAY);
    assert_eq!(delegations::recalled(&mut dead).await.stateid, stateid, "it gets there, and is not answered");
    assert_eq!(c.status_flags().await, 0);
    let down = SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION;
    let until = Instant::now() + PATIENCE;
    let mut looks = interval(Duration::from_millis(100));
    while c.status_flags().await != down {
        assert!(Instant::now() < until);
        looks.tick().await;
    }
    let (raw, mut heard) = callable(rig.addr(), Vec::new()).await;
    c.raw = raw;
    assert_ok(&[c.raw.alone(bind(c.session, CDFC4_FORE_OR_BOTH)).await]);
    assert_eq!(delegations::recalled(&mut heard).await.stateid, stateid);
    assert_eq!(c.status_flags().await, 0, "nothing is revoked");
    returned(&mut c, &fh, stateid, rival).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_recall_that_waits_for_a_connection_goes_out_when_one_is_bound() {
    let rig = delegations::rig(Delegate::Write).await;
    let (mut c, back, _dead, stateid, fh) = holder_beside(&rig, false).await;
    back.close();
    while c.status_flags().await == 0 {}
    let mut rival = rig.client(b"rival").await;
    let read = read_op(Stateid::ANONYMOUS, 0, 9);
    assert_eq!(on(&mut rival, &fh, read).await.status, NfsStat::NFS4ERR_DELAY);
    let (raw, mut heard) = callable(rig.addr(), Vec::new()).await;
    c.raw = raw;
    assert_ok(&[c.raw.alone(bind(c.session, CDFC4_FORE_OR_BOTH)).await]);
    let soon = Duration::from_millis(landfast_server::limits::CALLBACK_SLOT_WAIT_MS / 4);
    let recall = timeout(soon, delegations::recalled(&mut heard)).await.expect("at once");
    assert_eq!(recall.stateid, stateid);
    returned(&mut c, &fh, stateid, rival).await;
}

/// Answers the callbacks that come with these statuses of CB_SEQUENCE and of the operation after it, the last first; then none.
struct Scripted {
    heard: UnboundedSender<CbSequenceArgs>,
    answers: Mutex<Vec<(NfsStat, Option<NfsStat>)>>,
}

impl Service for Scripted {
    fn programs(&self) -> &[Program] {
        CALLBACKS
    }

    async fn call(&self, _conn: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        if call.proc == CB_PROC_NULL {
            return Response::Success(Bytes::new());
        }
        let args = CbCompoundArgs::from_bytes(body).expect("a callback");
        let Some(CbOp::Sequence(s)) = args.ops.first() else { return Response::GarbageArgs };
        // The test has ended when nobody listens.
        let _ = self.heard.send(s.clone());
        let next = self.answers.lock().expect("no panic").pop();
        let Some((sequence, op)) = next else { return std::future::pending().await };
        let ok = CbSequenceRes {
            sessionid: s.sessionid,
            sequenceid: s.sequenceid,
            slotid: s.slotid,
            highest_slotid: 0,
            target_highest_slotid: 0,
        };
        let (number, said) = (OP_CB_SEQUENCE, sequence.is_ok().then_some(ok));
        let mut results = vec![CbRes { op: number, status: sequence, sequence: said, attrs: None }];
        results.extend(op.map(|status| CbRes { op: OP_CB_OFFLOAD, status, sequence: None, attrs: None }));
        let status = op.unwrap_or(sequence);
        Response::Success(CbCompoundRes { status, tag: Bytes::new(), results }.to_bytes())
    }
}

async fn scripted(
    rig: &Rig,
    heard: UnboundedSender<CbSequenceArgs>,
    answers: Vec<(NfsStat, Option<NfsStat>)>,
) -> Raw {
    let service = Arc::new(Scripted { heard, answers: Mutex::new(answers) });
    let conn = Connection::connect(rig.addr(), service, &ConnConfig::default()).await.expect("connected");
    Raw { conn, cred: user(0), minor: 2 }
}

/// The client executes a callback on one connection, and has it wait on the other: its number may be used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_10_6_1_3_a_callback_that_may_be_under_way_elsewhere_is_not_taken_for_done() {
    let rig = Rig::new().await;
    make_source(&rig);
    let (ok, used_up) = (NfsStat::NFS4_OK, NfsStat::NFS4ERR_RETRY_UNCACHED_REP);
    let answers = vec![(ok, Some(ok)), (ok, Some(used_up)), (NfsStat::NFS4ERR_DELAY, None)];
    let (heard, mut listening) = unbounded_channel();
    let second = scripted(&rig, heard.clone(), answers).await;
    let first = scripted(&rig, heard, Vec::new()).await;
    let ex = first.exchange_id(b"back", 1).await;
    let mut args = session_args(ex.clientid, ex.sequenceid);
    args.flags |= CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    args.back_chan_attrs.max_requests = 1;
    let s = first.create_session(args).await;
    let (session, flags, fore) = (s.sessionid, s.flags, s.fore_chan_attrs);
    assert_ok(&[second.alone(bind(session, CDFC4_FORE_OR_BOTH)).await]);
    let mut c = Client { raw: first, id: ex.clientid, session, seq: 0, cachethis: true, flags, fore };
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    copy_without_opens(&mut c).await;
    let mut numbers = Vec::new();
    for _ in 0..4 {
        let sequence = timeout(PATIENCE, listening.recv()).await.expect("in time").expect("a callback");
        numbers.push(sequence.sequenceid);
    }
    assert_eq!(numbers, [1, 1, 1, 2]);
}
