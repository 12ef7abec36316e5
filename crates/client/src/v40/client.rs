//! A client ID and what depends on it: owners, opens, the lease (RFC 7530 sections 9.1.1 and 9.5).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::v40::{
    CallbackClient, ClientAddr, NfsClientId, SetclientidArgs, SetclientidConfirmArgs,
};
use landfast_nfs::v4::{ArgOp, ClientOwner, CompoundRes, NfsStat, OpNum, ResBody, Stateid, Verifier};
use landfast_xdr::{Decode, Encode};
use tokio::time::sleep;
use tracing::debug;

use super::owners::{LockOwner, Owner, Owners};
use crate::compound::{COMPOUND, OpError, Results, compound_header};
use crate::error::SessionError;
use crate::limits;
use crate::options::{SessionLimits, SessionOptions};
use crate::patience::Patience;
use crate::peer::{Connections, Peer};

/// A client of an NFSv4.0 server. See the parent module.
pub(crate) struct Client {
    pub(super) lines: Connections,
    owner: ClientOwner,
    client: tokio::sync::Mutex<()>,
    /// When the server was last asked whether it knows the client ID.
    asked: tokio::sync::Mutex<Option<Instant>>,
    /// The holder asks a server that is in its grace period.
    grace: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    limits: SessionLimits,
    lease: Duration,
    /// The most operations of one COMPOUND, as far as known.
    leg_ops: AtomicU64,
}

#[derive(Default)]
struct State {
    clientid: u64,
    /// The number of client IDs so far; 0: none.
    generation: u64,
    owners: Owners,
    /// Opens that outlive their COMPOUND.
    opens: HashMap<[u8; 12], Owner>,
    /// Lock owners by their stateids. Those of an open end with it.
    locks: HashMap<[u8; 12], LockOwner>,
    /// The current client ID has had an open.
    held: bool,
    /// Since when the server answers GRACE.
    grace_since: Option<Instant>,
    /// Client IDs that the server did not know, since the last successful OPEN or RENEW.
    in_a_row: u32,
}

/// The turn to ask a server that is in its grace period.
pub(super) type Turn<'a> = tokio::sync::MutexGuard<'a, ()>;

/// A reply, and whether the COMPOUND was sent more than once.
pub(super) struct Replied {
    pub(super) reply: CompoundRes,
    pub(super) again: bool,
}

impl Client {
    /// Connects. Fails when the server cannot be reached or does not speak NFSv4.0.
    pub(crate) async fn connect(options: SessionOptions) -> Result<Arc<Client>, SessionError> {
        let lines = Connections::connect(Arc::new(Peer::new(options))).await?;
        let owner = lines.peer.options().client_owner()?;
        let server = lines.peer.server().to_owned();
        let mut client = Client {
            lines,
            owner,
            client: tokio::sync::Mutex::new(()),
            asked: tokio::sync::Mutex::default(),
            grace: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            limits: SessionLimits::ASK,
            lease: limits::LEASE_DEFAULT,
            leg_ops: AtomicU64::new(limits::LEG_OPS),
        };
        let wanted = Bitmap::of(&[number::LEASE_TIME, number::MAXREAD, number::MAXWRITE]);
        let ops = [ArgOp::Putrootfh, ArgOp::Getattr(wanted)];
        let reply = client.patiently(&ops).await?;
        let mut results = Results::new(reply);
        let refused =
            |step, e: OpError| SessionError::Setup { server: server.clone(), step, status: e.status() };
        results.take(OpNum::PUTROOTFH).map_err(|e| refused("PUTROOTFH", e))?;
        let fattr = results.getattr().map_err(|e| refused("GETATTR", e))?;
        let values = AttrValues::from_fattr(&fattr).unwrap_or_default();
        client.lease = values
            .lease_time
            .map_or(limits::LEASE_DEFAULT, |seconds| Duration::from_secs(u64::from(seconds.max(1))));
        client.limits = granted(&client.lines.peer.options().ask, &values);
        let client = Arc::new(client);
        tokio::spawn(keep_alive(Arc::downgrade(&client)));
        Ok(client)
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.lines.peer
    }

    pub(crate) fn limits(&self) -> SessionLimits {
        self.limits
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// NFSv4.0 has no operation that ends a client ID. If this one has had an open, a new instance of the client, which
    /// holds nothing, takes its place. So a server that restarts does not wait for a client that is gone.
    pub(crate) async fn destroy(&self) {
        let held = !self.peer().has_ended() && self.state().held;
        if held {
            let verifier = self.verifier(u64::MAX);
            // If this fails, the server forgets the client after its lease.
            match tokio::time::timeout(limits::GOODBYE_PATIENCE, self.ask_client(verifier)).await {
                Ok(Ok(_)) => {}
                other => debug!("the end of the client ID of {}: {other:?}", self.peer().server()),
            }
        }
        self.peer().end();
        self.lines.close().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most operations of one COMPOUND.
    pub(super) fn leg_ops(&self) -> usize {
        self.leg_ops.load(Ordering::Relaxed) as usize
    }

    /// Learns that the server refused a COMPOUND of so many operations. Returns `false` if there is nothing left to
    /// give up.
    pub(super) fn shorter_legs(&self, used: usize) -> bool {
        let half = (used as u64 / 2).max(limits::LEG_OPS_MIN);
        half < used as u64 && self.leg_ops.fetch_min(half, Ordering::Relaxed) > 0
    }

    pub(super) async fn send(&self, ops: &[ArgOp]) -> Result<Replied, SessionError> {
        let mut args = BytesMut::new();
        compound_header(0, ops.len(), &mut args);
        ops.iter().for_each(|op| op.encode(&mut args));
        let answer = self.lines.call(COMPOUND, vec![args.freeze()]).await?;
        let reply = CompoundRes::from_bytes(answer.results)
            .map_err(|_| SessionError::Unknown("the server's reply cannot be decoded".into()))?;
        Ok(Replied { reply, again: answer.again })
    }

    /// Sends a COMPOUND that may be executed twice, until the server answers neither DELAY nor GRACE.
    async fn patiently(&self, ops: &[ArgOp]) -> Result<CompoundRes, SessionError> {
        let mut patience = Patience::new();
        loop {
            let reply = self.send(ops).await?.reply;
            let busy = matches!(reply.status, NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE);
            if !busy || !patience.wait().await {
                return Ok(reply);
            }
        }
    }

    /// The current client ID and an owner of it. Gets a client ID if there is none; fails if the server gives none.
    pub(super) async fn take_owner(&self) -> Result<(u64, Owner), SessionError> {
        self.client_id().await?;
        let mut state = self.state();
        Ok((state.clientid, state.owners.take()))
    }

    pub(super) fn give_back(&self, owner: Owner) {
        self.state().owners.give_back(owner);
    }

    /// Notes that an OPEN succeeded.
    pub(super) fn opened(&self) {
        let mut state = self.state();
        (state.in_a_row, state.grace_since) = (0, None);
    }

    /// Waits before something that was answered GRACE is tried again. One asks the server, as often as
    /// [`limits::CLIENT_ASKED_EACH`] says, and all others wait until it has another answer: else each of them would ask by itself
    /// for as long as the period lasts, and learn of its end late. `asking` belongs to what is tried: it lets go of it with the
    /// answer. `false`: the period is too long.
    pub(super) async fn grace<'a>(&'a self, asking: &mut Option<Turn<'a>>) -> bool {
        let since = *self.state().grace_since.get_or_insert_with(Instant::now);
        let left = limits::DELAY_PATIENCE.saturating_sub(since.elapsed());
        if left.is_zero() {
            return false;
        }
        if asking.is_none() {
            match self.grace.try_lock() {
                Ok(turn) => *asking = Some(turn),
                Err(_) => return tokio::time::timeout(left, self.grace.lock()).await.is_ok(),
            }
        }
        sleep(limits::CLIENT_ASKED_EACH.min(left)).await;
        true
    }

    /// Keeps an open that outlives its COMPOUND.
    pub(super) fn keep(&self, stateid: Stateid, owner: Owner) {
        let mut state = self.state();
        if owner.generation == state.generation {
            state.held = true;
            state.opens.insert(stateid.other, owner);
        }
    }

    /// The current client ID. Gets one if there is none; fails if the server gives none.
    pub(super) async fn client_id(&self) -> Result<u64, SessionError> {
        if self.state().generation == 0 {
            self.renew_client(0).await?;
        }
        Ok(self.state().clientid)
    }

    /// Keeps a lock owner that has a stateid.
    pub(super) fn keep_lock(&self, owner: LockOwner) {
        let mut state = self.state();
        if owner.generation == state.generation
            && let Some(stateid) = owner.stateid
        {
            state.locks.insert(stateid.other, owner);
        }
    }

    /// The lock owner of a stateid, which is no longer kept.
    pub(super) fn lock_owner_of(&self, stateid: Stateid) -> Option<LockOwner> {
        self.state().locks.remove(&stateid.other)
    }

    /// An open is closed: its lock owners end with it.
    pub(super) fn forget_locks(&self, open: Stateid) {
        self.state().locks.retain(|_, owner| owner.open != open.other);
    }

    /// The owner of such an open, which is no longer kept.
    pub(super) fn owner_of(&self, stateid: Stateid) -> Option<Owner> {
        self.state().opens.remove(&stateid.other)
    }

    /// SETCLIENTID and SETCLIENTID_CONFIRM in place of the client ID of `generation`, unless somebody has: the server does
    /// not know it any more (RFC 7530 sections 16.33, 16.34). Owners and opens go with it.
    ///
    /// The new one is that of another instance of the client, whose verifier says that nothing of the one before will be reclaimed
    /// (section 9.1.1): a server that has restarted need not wait for that, and can end its grace period.
    ///
    /// # Errors
    /// The server gives none, or none that it knows afterwards.
    pub(super) async fn renew_client(&self, generation: u64) -> Result<(), SessionError> {
        let _one_at_a_time = self.client.lock().await;
        let in_a_row = {
            let mut state = self.state();
            if state.generation != generation {
                return Ok(());
            }
            state.in_a_row += 1;
            if state.in_a_row > limits::RENEWALS_MAX {
                return Err(self.refused("OPEN with a new client ID", NfsStat::NFS4ERR_STALE_CLIENTID));
            }
            state.in_a_row - 1
        };
        if in_a_row > 0 {
            // A server that restarts repeatedly gets more time.
            sleep((limits::BACKOFF_MIN * in_a_row * in_a_row).min(limits::BACKOFF_MAX)).await;
        }
        if generation > 0 {
            self.peer().counters.renewals.fetch_add(1, Ordering::Relaxed);
        }
        let clientid = self.ask_client(self.verifier(generation)).await?;
        let mut state = self.state();
        (state.clientid, state.held) = (clientid, false);
        state.grace_since = None;
        state.generation += 1;
        state.opens.clear();
        state.locks.clear();
        let generation = state.generation;
        state.owners.start_over(generation);
        Ok(())
    }

    /// The verifier of an instance of this client.
    fn verifier(&self, instance: u64) -> Verifier {
        let mut verifier = self.owner.verifier;
        for (byte, number) in verifier.iter_mut().zip(instance.to_le_bytes()) {
            *byte ^= number;
        }
        verifier
    }

    /// SETCLIENTID and SETCLIENTID_CONFIRM: returns the client ID.
    async fn ask_client(&self, verifier: Verifier) -> Result<u64, SessionError> {
        let mut last = NfsStat::NFS4_OK;
        // A server that restarts between the two does not know the first.
        for _ in 0..limits::RENEWALS_MAX {
            let set = ArgOp::Setclientid(SetclientidArgs {
                client: NfsClientId { verifier, id: self.owner.owner_id.clone() },
                // Nobody listens there, so the server gives no delegations and never calls back.
                callback: CallbackClient {
                    program: 0x4000_0000,
                    location: ClientAddr {
                        netid: Bytes::from_static(b"tcp"),
                        addr: Bytes::from_static(b"0.0.0.0.0.0"),
                    },
                },
                callback_ident: 0,
            });
            let got = match Results::new(self.patiently(&[set]).await?).take(OpNum::SETCLIENTID) {
                Ok(ResBody::Setclientid(got)) => got,
                Ok(_) => return Err(self.refused("SETCLIENTID", NfsStat::NFS4ERR_IO)),
                Err(e) => return Err(self.refused("SETCLIENTID", e.status())),
            };
            let confirm = SetclientidConfirmArgs { clientid: got.clientid, confirm: got.confirm };
            let reply = self.patiently(&[ArgOp::SetclientidConfirm(confirm)]).await?;
            match Results::new(reply).take(OpNum::SETCLIENTID_CONFIRM) {
                Ok(_) => return Ok(got.clientid),
                Err(e) if e.status() == NfsStat::NFS4ERR_STALE_CLIENTID => last = e.status(),
                Err(e) => return Err(self.refused("SETCLIENTID_CONFIRM", e.status())),
            }
        }
        Err(self.refused("SETCLIENTID_CONFIRM", last))
    }

    fn refused(&self, step: &'static str, status: NfsStat) -> SessionError {
        SessionError::Setup { server: self.peer().server().to_owned(), step, status }
    }

    /// Sends RENEW if there is a lease. Gets a new client ID if the server has forgotten this one.
    async fn renew_lease(&self) {
        let (clientid, generation) = {
            let state = self.state();
            (state.clientid, state.generation)
        };
        if generation == 0 {
            return;
        }
        let forgotten = match self.send(&[ArgOp::Renew(clientid)]).await.map(|replied| replied.reply.status) {
            Ok(status) if status.is_ok() => {
                self.state().in_a_row = 0;
                false
            }
            Ok(status) => {
                debug!("RENEW at {}: {status}", self.peer().server());
                matches!(status, NfsStat::NFS4ERR_STALE_CLIENTID | NfsStat::NFS4ERR_EXPIRED)
            }
            Err(e) => {
                debug!("RENEW at {}: {e}", self.peer().server());
                false
            }
        };
        // A failure shows in the next OPEN.
        if forgotten && let Err(e) = self.renew_client(generation).await {
            debug!("a new client ID of {}: {e}", self.peer().server());
        }
    }

    /// The server has forgotten an open or is in its grace period: it may have restarted and may wait for this client.
    pub(super) async fn look_after_client(&self) {
        let Ok(mut asked) = self.asked.try_lock() else { return };
        if asked.is_none_or(|when| when.elapsed() >= limits::CLIENT_ASKED_EACH) {
            self.renew_lease().await;
            *asked = Some(Instant::now());
        }
    }
}

/// Limits of COMPOUNDs, which the server does not state: as large as the reads and writes that it must accept.
fn granted(ask: &SessionLimits, values: &AttrValues) -> SessionLimits {
    let of = |most: Option<u64>, ask: u32| {
        let most = most.and_then(|most| u32::try_from(most).ok()).unwrap_or(limits::MESSAGE40_MIN);
        most.max(limits::MESSAGE40_MIN).min(ask)
    };
    SessionLimits {
        request: of(values.maxwrite, ask.request),
        response: of(values.maxread, ask.response),
        response_cached: limits::RESPONSE40_CACHED.min(ask.response_cached),
        ops: ask.ops.min(limits::LEG_OPS as u32),
        slots: limits::CALLS_IN_FLIGHT_MAX.min(ask.slots.max(1)),
    }
}

/// Renews the lease. COMPOUNDs that name no state do not.
async fn keep_alive(server: Weak<Client>) {
    loop {
        let Some(client) = server.upgrade() else { return };
        let pause = (client.lease / limits::RENEWALS_PER_LEASE).max(Duration::from_secs(1));
        drop(client);
        sleep(pause).await;
        match server.upgrade() {
            Some(client) if !client.peer().has_ended() => client.renew_lease().await,
            _ => return,
        }
    }
}
