//! The client's end of a back channel.

use super::*;
use landfast_nfs::v4::callback::*;
use landfast_nfs::v4::flags::CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
use landfast_rpc::conn::{CallHeader, ConnInfo, Program, Response, Service};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The answer to a CB_GETATTR.
pub enum Says {
    Attrs(Box<AttrValues>),
    Fails(NfsStat),
    /// None comes.
    Nothing,
}

impl Says {
    pub fn attrs(values: AttrValues) -> Says {
        Says::Attrs(Box::new(values))
    }
}

pub type Saying = Arc<dyn Fn(&CbGetattrArgs) -> Says + Send + Sync>;

/// The client's end of a back channel: passes on what it gets and answers with the next of `answers`, then with OK.
pub struct Listener {
    heard: UnboundedSender<(CallHeader, CbCompoundArgs)>,
    answers: Mutex<Vec<NfsStat>>,
    /// What it answers to CB_GETATTR.
    says: Option<Saying>,
    /// It answers CB_NULL, and nothing else.
    mute: bool,
    /// Calls of CB_NULL.
    nulls: Arc<AtomicUsize>,
}

pub const CALLBACKS: &[Program] = &[Program { number: 0x4000_0000, low: CB_VERSION, high: CB_VERSION }];

impl Service for Listener {
    fn programs(&self) -> &[Program] {
        CALLBACKS
    }

    async fn call(&self, _conn: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        if call.proc == CB_PROC_NULL {
            self.nulls.fetch_add(1, Ordering::Relaxed);
            return Response::Success(Bytes::new());
        }
        let Ok(args) = CbCompoundArgs::from_bytes(body) else { return Response::GarbageArgs };
        let Some(CbOp::Sequence(s)) = args.ops.first() else { return Response::GarbageArgs };
        if self.mute {
            // The test has ended when nobody listens.
            let _ = self.heard.send((call, args));
            return std::future::pending().await;
        }
        let said = match (args.ops.get(1), &self.says) {
            (Some(CbOp::Getattr(asked)), Some(says)) => Some((says(asked), asked.wanted)),
            // Who does not know what to say says so, and is asked to return the delegation.
            (Some(CbOp::Getattr(asked)), None) => {
                Some((Says::Fails(NfsStat::NFS4ERR_BADHANDLE), asked.wanted))
            }
            _ => None,
        };
        let mut attrs = None;
        let said = match said {
            None => None,
            Some((Says::Fails(status), _)) => Some(status),
            Some((Says::Nothing, _)) => return std::future::pending().await,
            Some((Says::Attrs(values), wanted)) => {
                attrs = Some(values.to_fattr(&wanted));
                Some(NfsStat::NFS4_OK)
            }
        };
        let next = || self.answers.lock().expect("no panic").pop().unwrap_or(NfsStat::NFS4_OK);
        let status = said.unwrap_or_else(next);
        let sequence = CbSequenceRes {
            sessionid: s.sessionid,
            sequenceid: s.sequenceid,
            slotid: s.slotid,
            highest_slotid: 7,
            target_highest_slotid: 7,
        };
        let results = vec![
            CbRes { op: OP_CB_SEQUENCE, status: NfsStat::NFS4_OK, sequence: Some(sequence), attrs: None },
            CbRes { op: args.ops.get(1).map_or(OP_CB_SEQUENCE, CbOp::op), status, sequence: None, attrs },
        ];
        // The test has ended when nobody listens.
        if said.is_none() {
            let _ = self.heard.send((call, args));
        }
        Response::Success(CbCompoundRes { status, tag: Bytes::new(), results }.to_bytes())
    }
}

/// A connection on which callbacks can be answered, and what it hears.
pub async fn callable(
    addr: SocketAddr,
    answers: Vec<NfsStat>,
) -> (Raw, UnboundedReceiver<(CallHeader, CbCompoundArgs)>) {
    let (raw, listening, _) = connected(addr, answers, false).await;
    (raw, listening)
}

/// The same; with `mute`, nothing but CB_NULL is answered. Also how often CB_NULL was called.
pub async fn connected(
    addr: SocketAddr,
    answers: Vec<NfsStat>,
    mute: bool,
) -> (Raw, UnboundedReceiver<(CallHeader, CbCompoundArgs)>, Arc<AtomicUsize>) {
    listening(addr, answers, mute, None).await
}

/// The same; answers CB_GETATTR with what `says` gives.
pub async fn listening(
    addr: SocketAddr,
    answers: Vec<NfsStat>,
    mute: bool,
    says: Option<Saying>,
) -> (Raw, UnboundedReceiver<(CallHeader, CbCompoundArgs)>, Arc<AtomicUsize>) {
    let (heard, listening) = unbounded_channel();
    let nulls = Arc::new(AtomicUsize::new(0));
    let answers = Mutex::new(answers);
    let service = Arc::new(Listener { heard, answers, says, mute, nulls: nulls.clone() });
    let conn = Connection::connect(addr, service, &ConnConfig::default()).await.expect("connected");
    (Raw { conn, cred: user(0), minor: 2 }, listening, nulls)
}

/// A client with a back channel.
pub async fn with_back_channel(
    rig: &Rig,
    answers: Vec<NfsStat>,
) -> (Client, UnboundedReceiver<(CallHeader, CbCompoundArgs)>) {
    let (raw, listening) = callable(rig.addr(), answers).await;
    (with_back_channel_on(raw, vec![CallbackSecParms::None]).await, listening)
}

/// A client whose back channel is this connection, on which the server shows these credentials.
pub async fn with_back_channel_on(raw: Raw, sec_parms: Vec<CallbackSecParms>) -> Client {
    let ex = raw.exchange_id(b"back", 1).await;
    let mut args = session_args(ex.clientid, ex.sequenceid);
    args.flags |= CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    args.sec_parms = sec_parms;
    let s = raw.create_session(args).await;
    assert_ne!(s.flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN, 0);
    let (session, flags, fore) = (s.sessionid, s.flags, s.fore_chan_attrs);
    let mut c = Client { raw, id: ex.clientid, session, seq: 0, cachethis: true, flags, fore };
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    c
}
