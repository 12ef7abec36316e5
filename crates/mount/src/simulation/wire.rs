//! What is between a mount and the model's server: the way, lost replies, sessions, callbacks. It does what
//! [`landfast_client::Session`] promises: each request once, or [`SessionError::Unknown`].

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use landfast_client::session::SessionStats;
use landfast_client::{Asked, Recall, SessionError, SessionLimits, Standing, Version};
use landfast_nfs::v4::{ArgOp, CompoundRes, NfsStat, NfsTime, OpNum};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};

use super::choices::Choices;
use super::server::{Done, Server, Who};

/// How long the server has a request wait for somebody's delegation.
const WAITS: Duration = Duration::from_secs(2);
/// How long a client takes to find that a connection is gone, and to connect again.
const CONNECTS: Duration = Duration::from_millis(300);
/// Recalls that wait for the mount.
const RECALLS: usize = 64;

/// The network, with the server at its end.
pub(crate) struct Net {
    pub(crate) server: Mutex<Server>,
    pub(crate) choices: Mutex<Choices>,
    begun: Instant,
    /// Notified when a delegation has ended.
    changed: Notify,
    /// Longest time that a message is on its way, in milliseconds.
    pub(crate) way: u64,
    /// In how many of a thousand cases a request or reply is lost.
    pub(crate) lost: u64,
    pub(crate) history: Mutex<Option<Vec<String>>>,
    ticks: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) recalls: AtomicU64,
    /// The first request with this operation is executed, and nobody hears of that.
    pub(crate) loses_reply: Mutex<Option<OpNum>>,
    /// The reply to the first request of just these operations comes so much later.
    pub(crate) late_reply: Mutex<Option<(Vec<OpNum>, Duration)>>,
    /// The clients' ends.
    pub(crate) lines: Mutex<Vec<Line>>,
}

struct End {
    net: Arc<Net>,
    who: Who,
    /// The session that the client has, as the server numbers it, and as the mount does.
    state: Mutex<State>,
    recalls: Mutex<Option<mpsc::Sender<Asked>>>,
    dead: AtomicBool,
    /// Requests whose outcome nobody can tell.
    unknown: AtomicU64,
    /// Those among them that make files.
    unknown_files: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct State {
    theirs: u64,
    ours: u64,
    revoked: bool,
    restarts: u64,
    heard: Duration,
}

/// A client's end.
#[derive(Clone)]
pub(crate) struct Line(Arc<End>);

impl Net {
    pub(crate) fn new(server: Server, choices: Choices, (way, lost): (u64, u64), history: bool) -> Net {
        Net {
            server: Mutex::new(server),
            choices: Mutex::new(choices),
            begun: Instant::now(),
            changed: Notify::new(),
            way,
            lost,
            history: Mutex::new(history.then(Vec::new)),
            ticks: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            loses_reply: Mutex::default(),
            late_reply: Mutex::default(),
            recalls: AtomicU64::new(0),
            lines: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn tells(&self, line: impl FnOnce() -> String) {
        let now = self.now();
        if let Some(history) = self.history.lock().as_mut() {
            history.push(format!("{:>9.3}  {}", now.as_secs_f64(), line()));
        }
    }

    fn delay(&self) -> Duration {
        if self.way == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(self.choices.lock().below(self.way + 1))
    }

    fn loses(&self) -> bool {
        self.lost > 0 && self.choices.lock().below(1000) < self.lost
    }

    /// When the server can be reached from this client, if not now.
    fn blocked_until(&self, who: Who) -> Option<Duration> {
        let server = self.server.lock();
        let unreachable = server.clients.get(who).map_or(Duration::ZERO, |c| c.unreachable);
        Some(server.up.max(unreachable)).filter(|until| *until > self.now())
    }

    /// Sends callbacks.
    pub(super) fn deliver(self: &Arc<Self>, recalls: Vec<(Who, Recall)>) {
        for (who, recall) in recalls {
            self.recalls.fetch_add(1, Ordering::Relaxed);
            let Some(line) = self.lines.lock().get(who).cloned() else { continue };
            let (net, delay) = (self.clone(), self.delay());
            tokio::spawn(async move {
                sleep(delay).await;
                let sender = line.0.recalls.lock().clone();
                if net.blocked_until(who).is_none()
                    && let Some(sender) = sender
                {
                    net.tells(|| {
                        format!("    client {who} hears a recall of {}", super::objects::id_of(&recall.fh))
                    });
                    let _ = sender.try_send(Asked::One(recall));
                }
            });
        }
    }

    /// A delegation may have ended.
    pub(crate) fn news(&self) {
        self.changed.notify_waiters();
    }
}

impl Line {
    pub(crate) fn new(net: Arc<Net>, who: Who) -> Line {
        let theirs = net.server.lock().clients.get(who).map_or(0, |c| c.session);
        let heard = net.now();
        let state = State { theirs, ours: 1, revoked: false, restarts: 0, heard };
        Line(Arc::new(End {
            net,
            who,
            state: Mutex::new(state),
            recalls: Mutex::new(None),
            dead: AtomicBool::new(false),
            unknown: AtomicU64::new(0),
            unknown_files: AtomicU64::new(0),
        }))
    }

    /// The machine of the mount is switched off.
    pub(crate) fn kill(&self) {
        self.0.dead.store(true, Ordering::Release);
        *self.0.recalls.lock() = None;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::Acquire)
    }

    /// Requests so far whose outcome the client could not tell.
    pub(crate) fn unknown(&self) -> u64 {
        self.0.unknown.load(Ordering::Relaxed)
    }

    /// Those among them that make files.
    pub(crate) fn unknown_files(&self) -> u64 {
        self.0.unknown_files.load(Ordering::Relaxed)
    }

    /// One way through the network. Returns once the message could arrive.
    async fn pass(&self) {
        let net = &self.0.net;
        let delay = net.delay();
        if !delay.is_zero() {
            sleep(delay).await;
        }
        loop {
            if self.is_dead() {
                pending::<()>().await;
            }
            let Some(until) = net.blocked_until(self.0.who) else { return };
            sleep(until.saturating_sub(net.now())).await;
        }
    }

    /// Takes what the server says of this client at the end of a request. Returns whether the session is that of before.
    fn learn(&self, server: &mut Server) -> bool {
        let now = self.0.net.now();
        server.heard(self.0.who, now);
        let Some(client) = server.clients.get(self.0.who) else { return false };
        let mut state = self.0.state.lock();
        let same = state.theirs == client.session;
        state.ours += u64::from(!same);
        (state.theirs, state.heard) = (client.session, now);
        (state.revoked, state.restarts) = (!client.revoked.is_empty(), client.restarts);
        same
    }

    fn in_doubt(&self, ops: &[ArgOp], why: &str) -> SessionError {
        self.0.unknown.fetch_add(1, Ordering::Relaxed);
        if ops.iter().any(|op| op.op() == OpNum::OPEN) {
            self.0.unknown_files.fetch_add(1, Ordering::Relaxed);
        }
        self.0
            .net
            .tells(|| format!("    client {} does not know what became of a request: {why}", self.0.who));
        SessionError::Unknown(why.to_owned())
    }

    /// A request that the server was executing when its power went: no reply, and some of it is there.
    fn half(&self, ops: &[ArgOp], theirs: u64) {
        let net = &self.0.net;
        let mut server = net.server.lock();
        let same = server.clients.get(self.0.who).is_some_and(|client| client.session == theirs);
        let mut choices = net.choices.lock();
        if !same || !choices.percent(30) {
            return;
        }
        let some = choices.below(ops.len() as u64) as usize;
        let _ = server.execute(self.0.who, &ops[..some], net.now(), &mut choices);
        net.tells(|| format!("    client {}: {some} operations of a request survive the cut", self.0.who));
    }

    async fn run(&self, ops: &[ArgOp], only: Option<u64>) -> Result<CompoundRes, SessionError> {
        let net = &self.0.net;
        net.requests.fetch_add(1, Ordering::Relaxed);
        let (theirs, ours) = {
            let state = self.0.state.lock();
            (state.theirs, state.ours)
        };
        if only.is_some_and(|only| only != ours) {
            return Err(SessionError::Refused(NfsStat::NFS4ERR_BADSESSION));
        }
        let mut theirs = theirs;
        // A request or reply of this call was lost.
        let mut doubt = false;
        let mut kept: Option<CompoundRes> = None;
        let mut waiting: Option<Duration> = None;
        loop {
            let cut = net.server.lock().verifier;
            self.pass().await;
            // What was on its way when power went is sent again. The server may have begun with it: some of its operations are on the disk,
            // and the log knows nothing of them.
            if net.server.lock().verifier != cut {
                doubt = true;
                if kept.is_none() {
                    self.half(ops, theirs);
                }
            }
            if net.loses() {
                doubt = true;
                sleep(CONNECTS).await;
                continue;
            }
            let (reply, recalls) = {
                let mut server = net.server.lock();
                if !self.learn(&mut server) || self.0.state.lock().theirs != theirs {
                    let session = self.0.state.lock().theirs;
                    drop(server);
                    net.tells(|| format!("    client {} has a new session", self.0.who));
                    if doubt {
                        return Err(self.in_doubt(ops, "the session is lost"));
                    }
                    if only.is_some() {
                        return Err(SessionError::Refused(NfsStat::NFS4ERR_BADSESSION));
                    }
                    theirs = session;
                    continue;
                }
                let done = match kept.take() {
                    Some(reply) => Some(reply),
                    None => {
                        let mut choices = net.choices.lock();
                        match server.execute(self.0.who, ops, net.now(), &mut choices) {
                            Done::Reply(reply) => Some(reply),
                            Done::Blocked => None,
                        }
                    }
                };
                (done, std::mem::take(&mut server.recalls))
            };
            if !recalls.is_empty() {
                net.deliver(recalls);
            }
            net.news();
            let Some(reply) = reply else {
                let since = *waiting.get_or_insert(net.now());
                let left = WAITS.saturating_sub(net.now().saturating_sub(since));
                if !left.is_zero() {
                    let _ = timeout(left, net.changed.notified()).await;
                    continue;
                }
                let first = ops.first().map_or(OpNum::PUTFH, ArgOp::op);
                let results = vec![landfast_nfs::v4::ResOp::failed(first, NfsStat::NFS4ERR_DELAY)];
                return Ok(CompoundRes { status: NfsStat::NFS4ERR_DELAY, tag: Default::default(), results });
            };
            net.tells(|| {
                let names: Vec<String> = ops.iter().map(|op| format!("{:?}", op.op())).collect();
                format!("    client {}: {} -> {:?}", self.0.who, names.join(" "), reply.status)
            });
            if self.0.net.loses_reply.lock().take_if(|op| ops.iter().any(|o| o.op() == *op)).is_some() {
                return Err(self.in_doubt(ops, "its reply is lost"));
            }
            let is_it =
                |(of, _): &mut (Vec<OpNum>, Duration)| ops.iter().map(ArgOp::op).eq(of.iter().copied());
            let late = net.late_reply.lock().take_if(is_it);
            if let Some((_, late)) = late {
                sleep(late).await;
            }
            let cut = net.server.lock().verifier;
            self.pass().await;
            let lost = net.loses() || net.server.lock().verifier != cut;
            if lost {
                doubt = true;
                kept = Some(reply);
                sleep(CONNECTS).await;
                continue;
            }
            if doubt && !reply.status.is_ok() {
                return Err(self.in_doubt(ops, "sent again after its reply was lost"));
            }
            return Ok(reply);
        }
    }

    pub(crate) async fn compound(
        &self,
        ops: Vec<ArgOp>,
        _cachethis: bool,
    ) -> Result<CompoundRes, SessionError> {
        self.run(&ops, None).await
    }

    pub(crate) async fn compound_in(
        &self,
        number: u64,
        ops: &[ArgOp],
        _cachethis: bool,
    ) -> Result<CompoundRes, SessionError> {
        self.run(ops, Some(number)).await
    }

    pub(crate) fn limits(&self) -> SessionLimits {
        SessionLimits { ops: 64, ..SessionLimits::ASK }
    }

    pub(crate) fn version(&self) -> Version {
        Version::V42
    }

    pub(crate) fn packs_data(&self) -> bool {
        true
    }

    pub(crate) fn lease(&self) -> Duration {
        self.0.net.server.lock().lease
    }

    /// A client renews its lease by itself, so that what the server says of it is never old.
    pub(crate) fn standing(&self) -> Standing {
        let net = &self.0.net;
        if !self.is_dead() && net.blocked_until(self.0.who).is_none() {
            let same = self.learn(&mut net.server.lock());
            if !same {
                net.tells(|| format!("    client {} has a new session", self.0.who));
            }
        }
        let state = *self.0.state.lock();
        let silence = net.now().saturating_sub(state.heard);
        Standing { session: state.ours, revoked: state.revoked, restarts: state.restarts, silence }
    }

    pub(crate) fn recalls(&self) -> Option<mpsc::Receiver<Asked>> {
        let (sender, receiver) = mpsc::channel(RECALLS);
        *self.0.recalls.lock() = Some(sender);
        Some(receiver)
    }

    pub(crate) async fn binds_back_channel(&self) -> bool {
        true
    }

    pub(crate) fn server(&self) -> &str {
        "the model"
    }

    pub(crate) fn stats(&self) -> SessionStats {
        SessionStats::default()
    }

    pub(crate) async fn destroy(self) {}

    /// The time of day. It differs from call to call.
    pub(crate) fn clock(&self) -> NfsTime {
        let now = self.0.net.now();
        let tick = self.0.net.ticks.fetch_add(1, Ordering::Relaxed);
        NfsTime {
            seconds: 1_000_000 + now.as_secs() as i64,
            nseconds: now.subsec_millis() * 1_000_000 + (tick % 1_000_000) as u32,
        }
    }
}
