//! What all requests to one server share: the export table, the state, the identity, the clock.

use crate::backchannel::conns::CallbackConns;
use crate::exports::name_cache::{NameCache, Wait};
use crate::exports::rules::Names;
use crate::exports::{Caller, Exports};
use crate::limited::{Limit, Limits};
use crate::limits;
use crate::lookers::{Lookers, Who};
use crate::protocols::Protocols;
use crate::refused_clients::RefusedClients;
use crate::space::{self, Space};
use crate::state::ids::{FileKey, Secret};
use crate::state::notes::{LogId, Stamped};
use crate::state::opens::Files;
use crate::state::removals::Removals;
use crate::state::snapshot::{PartMax, Snapshot};
use crate::state::{Bounds, Millis, State};
use crate::state_lock::{Signals, StateGuard};
use crate::stats::Counters;
use crate::touches::Touches;
use bytes::Bytes;
use landfast_rpc::Credential;
use landfast_volume::{Cred, Error, NoteKeeper, OpenFile, Part, Timestamp, Volume};
use parking_lot::RwLock;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore};

/// The longest host name (RFC 1123 section 2.1).
const HOST_NAME_MAX: usize = 255;

/// The time of day.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

pub struct Shared {
    exports: RwLock<Arc<Exports>>,
    /// How often the export table has been replaced.
    tables: AtomicU64,
    known: NameCache,
    pub(crate) server: [u8; 16],
    /// The number of this start of the server; different at each start.
    epoch: u32,
    /// `so_major_id` and `eir_server_scope`: the server's identity, unique and the same after a restart.
    pub(crate) name: Bytes,
    /// Lease time in seconds.
    pub(crate) lease_seconds: u32,
    /// Replies, sessions and clients survive a crash.
    pub(crate) persist: bool,
    pub(crate) counters: Counters,
    pub(crate) refused_clients: RefusedClients,
    started: Instant,
    pub(crate) callback_conns: CallbackConns,
    pub(crate) protocols: Protocols,
    /// The most operations of an NFSv4.0 COMPOUND; a session negotiates its own number.
    pub(crate) operations_max: u32,
    /// One permit for each copy that may continue after the reply to its COPY.
    pub(crate) copies_running: Arc<Semaphore>,
    state: SharedState,
    signals: Signals,
    pub(crate) touches: Arc<Touches>,
    /// Of exports that give write directory delegations. A leaf.
    lookers: parking_lot::Mutex<Lookers>,
    /// Space that is kept for holders of write directory delegations.
    pub(crate) space: Space,
}

/// Separate from [`Shared`]: the log holds this to take snapshots, and must not keep the volume alive.
type SharedState = Arc<Mutex<State<OpenFile>>>;

/// One run of a server, from start to stop.
pub(crate) struct Instance {
    /// The server's identity, the same in each run.
    pub(crate) server: [u8; 16],
    pub(crate) epoch: u32,
    /// A random key that makes client IDs and stateids unguessable.
    pub(crate) secret: Secret,
}

impl Shared {
    pub(crate) fn new(
        exports: Exports,
        Instance { server, epoch, secret }: Instance,
        lease_seconds: u32,
        known: NameCache,
        limits: Limits,
        protocols: Protocols,
    ) -> Self {
        // Each log holds everything that is kept, so the smallest log decides.
        let bounds = Bounds::with(exports.smallest_log(), limits);
        let operations_max = limits[Limit::CompoundOperations] as u32;
        known.forget(exports.asked.clone());
        let id: String = server.iter().map(|b| format!("{b:02x}")).collect();
        Shared {
            name: Bytes::from(format!("landfast-{id}")),
            lease_seconds,
            persist: exports.all_keep_notes(),
            counters: Counters::default(),
            refused_clients: RefusedClients::default(),
            started: Instant::now(),
            signals: Signals::default(),
            touches: Touches::new(),
            lookers: parking_lot::Mutex::default(),
            space: Space::default(),
            callback_conns: CallbackConns::default(),
            protocols,
            operations_max,
            copies_running: Arc::new(Semaphore::new(limits::COPIES_MAX)),
            state: Arc::new(Mutex::new(State::of_instance(
                epoch,
                secret,
                u64::from(lease_seconds) * 1000,
                bounds,
            ))),
            exports: RwLock::new(Arc::new(exports)),
            tables: AtomicU64::new(0),
            known,
            server,
            epoch,
        }
    }

    /// Replaces the export table for requests that begin from now on.
    pub(crate) fn replace_exports(&self, exports: Exports) {
        let asked = exports.asked.clone();
        *self.exports.write() = Arc::new(exports);
        self.known.forget(asked);
        self.tables.fetch_add(1, Ordering::Release);
    }

    /// The sender of a request, with the names and groups that the exports' rules need, as far as they are known in time.
    pub(crate) async fn caller(&self, peer: SocketAddr, credential: Credential, wait: Wait) -> Caller {
        let exports = self.exports();
        let mut caller = self.host(&exports, peer, credential, wait).await;
        if let (true, Credential::Sys(a)) = (exports.needs_groups(), &caller.credential) {
            caller.groups =
                Box::pin(self.known.groups(caller.addr, a.uid, wait)).await.map(|g| Arc::from(g.as_slice()));
        }
        caller
    }

    /// [`Shared::caller`] without groups, for where only the host matters.
    pub(crate) async fn caller_as_host(&self, peer: SocketAddr, credential: Credential) -> Caller {
        self.host(&self.exports(), peer, credential, Wait::ALittle).await
    }

    async fn host(&self, exports: &Exports, peer: SocketAddr, credential: Credential, wait: Wait) -> Caller {
        let mut caller = Caller::new(peer, credential);
        caller.names = self.names_of(caller.addr, exports, wait).await;
        caller
    }

    /// The names of an address, if they are known already.
    pub(crate) fn names_now(&self, addr: IpAddr) -> Option<Arc<Names>> {
        self.known.names_now(addr)
    }

    /// A number that grows whenever the export table is replaced.
    pub(crate) fn tables(&self) -> u64 {
        self.tables.load(Ordering::Acquire)
    }

    /// The names of an address, if a rule needs them and they are known in time.
    pub(crate) async fn names_of(&self, addr: IpAddr, exports: &Exports, wait: Wait) -> Option<Arc<Names>> {
        if !exports.needs_names(addr) {
            return None;
        }
        Box::pin(self.known.names(addr, wait)).await
    }

    /// The addresses that a host name resolves to, if known in time; the look-up counts for the share of `by`.
    pub(crate) async fn addresses_of_host(&self, by: IpAddr, name: &[u8]) -> Arc<Vec<IpAddr>> {
        let found = match std::str::from_utf8(name) {
            Ok(name) if name.len() <= HOST_NAME_MAX => self.known.addresses(by, name).await,
            _ => None,
        };
        found.unwrap_or_default()
    }

    pub(crate) fn exports(&self) -> Arc<Exports> {
        self.exports.read().clone()
    }

    pub(crate) fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }

    pub(crate) fn keeper(&self, volume: &Volume) -> Arc<dyn NoteKeeper> {
        let (server, epoch) = (self.server, self.epoch);
        Arc::new(Keeper { state: self.state.clone(), log: volume.id(), server, epoch })
    }

    pub(crate) fn state(&self) -> StateGuard<'_> {
        StateGuard::lock(&self.state, &self.signals, &self.touches)
    }

    /// Writes notes that belong to no request into the log and waits until they are durable. Returns whether they are.
    pub(crate) async fn write_down(&self, notes: Vec<Stamped>) -> bool {
        let exports = self.exports();
        let Some(keeper) = exports.keeper().filter(|_| !notes.is_empty()) else { return true };
        let told = keeper.write_down(&notes).wait().await;
        if told.is_ok() {
            let mut state = self.state();
            state.removals.settled(Removals::among(&notes));
            state.unwritten.end(&notes);
        }
        if let Err(e) = &told {
            tracing::error!(
                "the log took no record of what belongs to no request (clients that are gone, the end of the grace period, callbacks): {e}"
            );
        }
        told.is_ok()
    }

    /// Changes the state, and writes the notes of that into the log. Until they are durable each part of a snapshot has them, too: otherwise it
    /// could say, in whichever log, that a client holds nothing before any log knows what it holds. Returns also whether they are durable.
    pub(crate) async fn change_and_write_down<T>(
        &self,
        change: impl FnOnce(&mut State<OpenFile>) -> (Vec<Stamped>, T),
    ) -> (T, bool) {
        let written = self.exports().keeper().is_some();
        let (notes, result) = {
            let mut state = self.state();
            let (notes, result) = change(&mut state);
            if written {
                state.unwritten.begin(&notes);
            }
            (notes, result)
        };
        let told = self.write_down(notes).await;
        (result, told)
    }

    /// From now on notes may be in these logs: has each log of the exports know it, if it still takes a note.
    pub(crate) async fn note_logs(&self, exports: &Exports, logs: Vec<LogId>) {
        let note = self.state().note_logs(logs);
        let taking = exports.iter().filter(|e| e.volume.keeps_notes() && e.volume.failed().is_none());
        let receipts: Vec<_> = taking.map(|e| e.write_down(std::slice::from_ref(&note))).collect();
        for receipt in receipts {
            // A log that fails says so itself, and its export with it.
            let _ = receipt.wait().await;
        }
    }

    /// [`Space::leaves`] for data that is written to a file.
    pub(crate) fn leaves_for_write(
        &self,
        volume: &Volume,
        cred: &Cred,
        by: Option<u64>,
        file: &OpenFile,
        (offset, len): (u64, usize),
    ) -> Result<(), Error> {
        let leaves = self.space.leaves(self.now(), volume, cred, by, len as u64);
        match leaves {
            Err(e) if !space::is_in_place(&volume.getattr(file.node())?, offset, len) => Err(e),
            _ => Ok(()),
        }
    }

    /// Somebody looks into a directory of an export that gives write directory delegations.
    pub(crate) fn looks_into(&self, dir: &FileKey, who: Who) {
        self.lookers.lock().looks(self.now(), dir, who);
    }

    /// Whether this client was alone in the directory for a while; in one that was made after `since`, ever.
    pub(crate) fn was_alone(&self, dir: &FileKey, client: u64, made_since: Option<Millis>) -> bool {
        let lookers = self.lookers.lock();
        match made_since {
            Some(since) => lookers.is_untouched(dir, client, since),
            None => lookers.was_alone(self.now(), dir, client),
        }
    }

    /// Waits until an NLM lock that somebody waits for has become free.
    pub(crate) async fn freed(&self) {
        self.signals.lock_freed.notified().await;
    }

    /// Notified when a delegation has ended, or its holder has said what it was asked.
    pub(crate) fn delegation_ended(&self) -> &Arc<Notify> {
        &self.signals.delegation_ended
    }

    /// Waits until there are files without a name that nobody has open any more.
    pub(crate) async fn orphans_released(&self) {
        self.signals.orphans_released.notified().await;
    }

    /// Notified when there are callbacks to send that have to do with delegations.
    pub(crate) fn callbacks_due(&self) -> Notified<'_> {
        self.signals.callbacks_due.notified()
    }

    /// Waits until a client was given delegations that the log does not know.
    pub(crate) async fn grants_unsettled(&self) {
        self.signals.grants_unsettled.notified().await;
    }
}

impl Drop for Shared {
    /// Breaks a reference cycle: open files hold their volume, whose log holds the state, which holds the open files.
    fn drop(&mut self) {
        let none = Files::new(0, Limits::default(), Secret::default());
        let files = std::mem::replace(&mut self.state().files, none);
        drop(files);
    }
}

/// Gives a log the notes for each checkpoint.
#[derive(Clone)]
struct Keeper {
    state: SharedState,
    log: LogId,
    server: [u8; 16],
    epoch: u32,
}

impl Keeper {
    fn with_state<T>(&self, ask: impl FnOnce(&State<OpenFile>) -> T) -> T {
        // Before it is asked again the log writes a part and flushes it. So who waits for the lock now is awake by then, and has it first.
        ask(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl NoteKeeper for Keeper {
    fn snapshot(&self) -> Box<dyn landfast_volume::Snapshot> {
        let snapshot = self.with_state(|state| state.begin_snapshot(Some(self.log)));
        Box::new(Keeping { keeper: self.clone(), begins: Some(snapshot.begins()), snapshot })
    }
}

/// A snapshot that is being written to the log.
struct Keeping {
    keeper: Keeper,
    snapshot: Snapshot,
    /// The mark for the first part.
    begins: Option<Stamped>,
}

impl landfast_volume::Snapshot for Keeping {
    fn part(&mut self, bytes: usize) -> Part {
        let Keeping { keeper, snapshot, begins } = self;
        let most = PartMax { notes: limits::SNAPSHOT_PART, bytes };
        let mut notes = keeper.with_state(|state| state.snapshot_part(snapshot, most));
        let last = snapshot.is_over();
        if last {
            notes.push(snapshot.ends(keeper.server, keeper.epoch));
        }
        Part { records: begins.take().iter().chain(&notes).map(Stamped::to_bytes).collect(), last }
    }
}
