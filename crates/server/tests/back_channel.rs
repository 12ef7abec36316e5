//! Back channels over a restart of the server (RFC 8881 sections 2.10.3, 18.34 and 18.46.3), over a real socket.

use crate::common;

use common::back::*;
use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::callback::*;
use landfast_nfs::v4::data::*;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::*;
use tokio::time::timeout;

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
