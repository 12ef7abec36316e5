//! The shell: a server starts, runs, stops.
//!
//! The server has a Tokio runtime of its own, whose threads run requests where they are received: their system calls
//! go to the page cache, and handing them to another thread and back would cost more than most of them take. Only
//! what is known to wait for the disk goes to other threads ([`Pool`]). All waiting for the log is asynchronous. What
//! answers a call is [`crate::service`]'s, the order of its steps [`crate::path`]'s.

use crate::descriptors;
use crate::exports::Served;
use crate::exports::down::Unavailable;
use crate::exports::known::{Known, System};
use crate::exports::rules::{From, Rule, Rules};
use crate::limited::{Limit, Limits};
use crate::limits;
use crate::listen;
use crate::memory;
use crate::metrics;
use crate::mount::Mounts;
use crate::nlm::{self, Nlm};
use crate::pool::Pool;
use crate::portmap::{PortMapper, Registered};
use crate::protocols::Protocols;
use crate::released::Released;
use crate::reload::{self, ReloadError};
use crate::server::{Instance, Shared};
use crate::service::Nfs;
use crate::state::ids::Secret;
use crate::state::merge;
use crate::state::notes::Stamped;
use crate::state::restore::Restored;
use crate::stats::Stats;
use crate::workers::Workers;
use landfast_rpc::conn::ConnConfig;
use landfast_rpc::rpcbind::{self, Rpcbind};
use landfast_rpc::{server, udp};
use landfast_volume::{RecoveryReport, ShutdownReport, Volume};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::runtime::{Handle, Runtime};

/// How long a clean stop waits for requests under way.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// How often what goes on by time alone is looked at.
const TICK: Duration = Duration::from_secs(5);

/// How to serve volumes.
pub struct ServerConfig {
    /// The volumes, opened and not started.
    pub exports: Vec<Served>,
    /// Exports whose volumes could not be opened: their clients wait, and a reload tries again.
    pub unavailable: Vec<Unavailable>,
    /// Where to listen; port 0 takes any.
    pub listen: Vec<SocketAddr>,
    /// What clients may have and hold.
    pub limits: Limits,
    /// Which protocols are served.
    pub protocols: Protocols,
    /// Where to give the metrics by HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Lease time and grace period in seconds.
    pub lease_seconds: u32,
    /// Threads that receive and run requests.
    pub workers: usize,
    /// Threads for requests that wait for the disk.
    pub slow_workers: usize,
    /// The port of the clients' port mappers, which say where their lock managers are.
    pub portmapper: u16,
    /// Whether to register with the machine's port mapper.
    pub port_mapper: PortMapper,
    /// Where that listens.
    pub port_mapper_socket: PathBuf,
}

impl ServerConfig {
    /// Serves `volume`, found at `export`, to all at `listen`, with the default times and threads.
    #[must_use]
    pub fn new(volume: Volume, recovery: RecoveryReport, listen: SocketAddr, export: PathBuf) -> Self {
        let served = Served {
            volume,
            recovery,
            path: export,
            log: None,
            name: PathBuf::from("/"),
            rules: Rules(vec![Rule::open(vec![From::Anyone])]),
            manage_gids: false,
        };
        ServerConfig::of(vec![served], vec![listen])
    }

    /// Serves these at these addresses, with the default times and threads.
    #[must_use]
    pub fn of(exports: Vec<Served>, listen: Vec<SocketAddr>) -> Self {
        ServerConfig {
            exports,
            unavailable: Vec::new(),
            listen,
            limits: Limits::default(),
            protocols: Protocols::default(),
            metrics: None,
            lease_seconds: limits::LEASE_SECONDS,
            workers: default_workers(),
            slow_workers: limits::SLOW_WORKERS,
            portmapper: limits::PORTMAPPER_PORT,
            port_mapper: PortMapper::Off,
            port_mapper_socket: rpcbind::SOCKET.into(),
        }
    }
}

fn default_workers() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus * limits::WORKERS_PER_CPU).clamp(limits::WORKERS_MIN, limits::WORKERS_MAX)
}

/// Why a server does not start. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {err}; stop what uses the port, or choose another with --listen")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        err: std::io::Error,
    },
    /// Two exports cannot both be.
    #[error(transparent)]
    Exports(#[from] ReloadError),
    /// The volume does not start.
    #[error(transparent)]
    Volume(#[from] landfast_volume::OpenError),
    /// No port mapper, and one is required.
    #[error("cannot register with the port mapper: {0}; start rpcbind, or choose --rpcbind auto")]
    PortMapper(#[from] rpcbind::RpcbindError),
    /// No thread could be started.
    #[error("cannot start worker threads: {0}")]
    Threads(std::io::Error),
    /// No client ID or stateid could be made that nobody guesses.
    #[error("the system gives no random numbers, without which clients' names could be guessed: {0}")]
    Random(getrandom::Error),
}

/// An NFS server: see [`Server::start`].
pub struct Server;

impl Server {
    /// Listens, restores the clients' state, starts the volume, serves, on threads of its own.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: ServerConfig) -> Result<Running, StartError> {
        let ServerConfig {
            mut exports,
            unavailable,
            listen,
            limits: configured,
            protocols,
            metrics,
            lease_seconds,
            workers,
            slow_workers,
            portmapper,
            port_mapper,
            port_mapper_socket,
        } = config;
        let configured = descriptors::bounded(configured, exports.len());
        let threads = Threads::new(workers).map_err(StartError::Threads)?;
        let (listening, metrics_listener) = {
            let _inside = threads.handle().enter();
            let at = |(addr, err)| StartError::Listen { addr, err };
            let listening = listen::all(&listen, protocols.datagrams()).map_err(at)?;
            (listening, metrics.map(|addr| listen::tcp(addr).map_err(|e| at((addr, e)))).transpose()?)
        };
        let (listeners, sockets): (Vec<_>, Vec<_>) = listening.into_iter().map(|l| (l.tcp, l.udp)).unzip();
        let merged = merge::merge(&take_notes(&mut exports));
        let server = merged.server.or(exports.first().map(|e| e.volume.id())).unwrap_or_default();
        // Different from every earlier life's, whichever volumes that had.
        let epoch = exports.iter().map(|e| e.recovery.epoch as u32).max().unwrap_or(1).max(merged.epoch + 1);
        let known = Known::new(Box::new(System)).map_err(StartError::Threads)?;
        unavailable.iter().for_each(reload::say_unavailable);
        let exports = reload::table(exports, unavailable, server, Vec::new())?;
        let mut secret = Secret::default();
        getrandom::fill(&mut secret).map_err(StartError::Random)?;
        let instance = Instance { server, epoch, secret };
        let sh = Arc::new(Shared::new(exports, instance, lease_seconds, known, configured, protocols));
        let nlm = Nlm::new(sh.clone(), epoch, portmapper);
        let restored = restore(&sh, merged.notes)?;
        let slow = Arc::new(Pool::new(slow_workers).map_err(StartError::Threads)?);
        let copying = Pool::giving_way("nfs-copy", limits::COPY_WORKERS, limits::COPY_NICE);
        let copying = Arc::new(copying.map_err(StartError::Threads)?);
        let watch = Workers::new(threads.handle()).map_err(StartError::Threads)?;
        let service = Arc::new(Nfs {
            sh: sh.clone(),
            nlm: nlm.clone(),
            slow,
            copying,
            workers: watch.clone(),
            released: Released::new(),
            mounts: Mounts::default(),
            programs: protocols.programs(),
        });
        let rpc = server::ServerConfig {
            conn: ConnConfig {
                record_max: limits::REQUEST_BYTES_MAX as usize + 4096,
                calls_in_flight_max: configured[Limit::ConnectionRequests],
                bytes_in_flight_max: configured[Limit::ConnectionRequestBytes],
                reply_bytes_max: configured[Limit::ConnectionReplyBytes],
                ..server::ServerConfig::default().conn
            },
            connections_max: configured[Limit::Connections],
            client_connections_max: configured[Limit::ClientConnections],
            client_calls_in_flight_max: configured[Limit::ClientRequests],
            client_bytes_in_flight_max: configured[Limit::ClientRequestBytes],
            calls_in_flight_max: configured[Limit::Requests],
            bytes_in_flight_max: configured[Limit::RequestBytes],
            client_reply_bytes_max: configured[Limit::ClientReplyBytes],
            reply_bytes_max: configured[Limit::ReplyBytes],
            turns: workers.max(2) * limits::TURNS_PER_WORKER,
            ..server::ServerConfig::default()
        };
        let handle = threads.handle();
        let rpc = {
            let _inside = handle.enter();
            let addr = listen.first().copied().unwrap_or_else(|| SocketAddr::from(([0; 4], 0)));
            server::Server::start_all(listeners, service, rpc)
                .map_err(|err| StartError::Listen { addr, err })?
        };
        let datagrams =
            handle.spawn(datagrams(sockets.into_iter().flatten().collect(), nlm.clone(), watch.clone()));
        let mut ticking = Ticking(vec![
            handle.spawn(watched(watch.clone(), tick(sh.clone()))),
            handle.spawn(close_idle(sh.clone())),
            datagrams,
        ]);
        if protocols.locks() {
            ticking.0.push(handle.spawn(watched(watch, nlm.run())));
        }
        let load: Load = Arc::new(rpc.load());
        ticking.0.push(handle.spawn(memory::give_back(load.clone())));
        let metrics = match metrics_listener {
            Some(listener) => {
                let addr = listener.local_addr();
                let addr = addr.map_err(|err| StartError::Listen { addr: rpc.local_addr(), err })?;
                let (sh, load) = (sh.clone(), load.clone());
                let page = move || metrics::page(stats(&sh, &load), &sh.exports());
                ticking.0.push(handle.spawn(metrics::http::serve(listener, page)));
                Some(addr)
            }
            None => None,
        };
        let rpcbind = Rpcbind::at(port_mapper_socket);
        let programs = protocols.programs();
        // Clients of version 4 ask no port mapper.
        let port_mapper = if protocols.three() { port_mapper } else { PortMapper::Off };
        let by_datagram = protocols.by_datagram();
        let registered =
            Registered::new(port_mapper, rpcbind, (&programs, by_datagram), rpc.local_addrs()).await?;
        Ok(Running { rpc, ticking, threads, sh, restored, registered, load, metrics })
    }
}

/// What each log kept.
fn take_notes(exports: &mut [Served]) -> Vec<Vec<Stamped>> {
    let of = |e: &mut Served| {
        let notes = std::mem::take(&mut e.recovery.notes);
        notes.iter().filter_map(|n| Stamped::from_bytes(n)).collect()
    };
    exports.iter_mut().map(of).collect()
}

/// Puts back what the logs kept, then starts the volumes, which ask for it again before they empty their logs.
fn restore(sh: &Arc<Shared>, notes: Vec<Stamped>) -> Result<Restored, StartError> {
    let now = sh.now();
    let restored = sh.state().restore(notes, now);
    for export in sh.exports().iter() {
        export.volume.start(sh.keeper(&export.volume))?;
    }
    Ok(restored)
}

/// A server that runs. Dropping it stops listening; [`Running::stop`] ends it cleanly.
pub struct Running {
    rpc: server::Server,
    ticking: Ticking,
    threads: Threads,
    pub(crate) sh: Arc<Shared>,
    restored: Restored,
    registered: Option<Registered>,
    load: Load,
    metrics: Option<SocketAddr>,
}

/// Tells what the connections hold.
pub(crate) type Load = Arc<dyn Fn() -> landfast_rpc::Load + Send + Sync>;

fn stats(sh: &Shared, load: &Load) -> Stats {
    let (done, load) = (sh.counters.stats(), load());
    let st = sh.state();
    let (sessions_most, session_slots, session_operations) = st.sessions.most();
    let (opens_most, locks_most) = st.files.most();
    Stats {
        calls_kept: st.drc.len(),
        calls_kept_bytes: (st.drc.bytes(), st.bounds.call_bytes),
        connections: load.connections,
        clients: st.clients.len(),
        sessions: st.sessions.len(),
        opens: st.files.len(),
        locks: st.files.locked_ranges(),
        most: [sessions_most, opens_most, locks_most],
        session_slots,
        session_operations,
        cached: st.sessions.reserved(),
        nlm_hosts: (st.hosts.len(), st.bounds.nlm_hosts),
        nlm_waiters: st.files.waiters.len(),
        load,
        limits: st.bounds.limits.with(Limit::Clients, st.bounds.clients),
        ..done
    }
}

/// The server's own runtime. It may end where waiting is not allowed, so nothing waits for its threads.
struct Threads(Option<Runtime>);

impl Threads {
    fn new(workers: usize) -> std::io::Result<Self> {
        let workers = workers.max(2);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            // Each call that may wait for a device has a turn, and needs one thread that takes over from it. Without a bound a flood on busy
            // processors starts hundreds: a thread that was told to take over and did not run yet is none that is free.
            .max_blocking_threads(workers * limits::TURNS_PER_WORKER + limits::SPARE_THREADS)
            .thread_name("nfs")
            .enable_all()
            .build()?;
        Ok(Threads(Some(runtime)))
    }

    fn handle(&self) -> Handle {
        // Taken only by drop.
        self.0.as_ref().map_or_else(Handle::current, |r| r.handle().clone())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What goes on besides the connections: [`tick`], [`close_idle`], [`datagrams`], the lock manager, the metrics. It ends with this.
struct Ticking(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// A task that may flush a log itself.
async fn watched(workers: Workers, task: impl Future<Output = ()>) {
    workers.during(pin!(task)).await;
}

/// The lock manager and the status monitor by UDP.
async fn datagrams(sockets: Vec<UdpSocket>, nlm: Nlm, workers: Workers) {
    let mut all = tokio::task::JoinSet::new();
    for socket in sockets {
        let (nlm, workers) = (nlm.clone(), workers.clone());
        let serve = move |peer, call, body| {
            let (nlm, workers) = (nlm.clone(), workers.clone());
            async move { workers.during(pin!(nlm.datagram(peer, call, body))).await }
        };
        all.spawn(udp::serve(socket, nlm::PROGRAMS, serve));
    }
    while all.join_next().await.is_some() {}
}

/// What a clean stop did.
#[derive(Debug, Clone, Copy)]
pub struct Stopped {
    /// All requests under way were answered.
    pub drained: bool,
    /// What the volumes did.
    pub volume: ShutdownReport,
}

/// Stops each volume, also after one has failed to.
fn shut_down(volumes: &[Volume]) -> Result<ShutdownReport, landfast_volume::Error> {
    let mut result = Ok(ShutdownReport::default());
    for volume in volumes {
        result = match (volume.shutdown(), result) {
            (Ok(one), Ok(sum)) => Ok(ShutdownReport {
                seconds: sum.seconds + one.seconds,
                checkpoints: sum.checkpoints + one.checkpoints,
            }),
            (Err(e), _) | (Ok(_), Err(e)) => Err(e),
        };
    }
    result
}

impl Running {
    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.rpc.local_addr()
    }

    /// The addresses that are listened on.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        self.rpc.local_addrs()
    }

    /// Where the metrics are given.
    #[must_use]
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// What of the clients' state survived the last stop.
    #[must_use]
    pub fn restored(&self) -> Restored {
        self.restored
    }

    /// The volumes that are served.
    #[must_use]
    pub fn volumes(&self) -> Vec<Volume> {
        self.sh.exports().iter().map(|e| e.volume.clone()).collect()
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats(&self.sh, &self.load)
    }

    /// Stops cleanly: no new requests, answers those under way, then a checkpoint and the mark of a clean stop.
    ///
    /// # Errors
    /// When the volume could not be made durable: the log is kept, the next start recovers.
    pub async fn stop(self) -> Result<Stopped, landfast_volume::Error> {
        let volumes = self.volumes();
        if let Some(registered) = self.registered {
            registered.withdraw().await;
        }
        let drained = self.rpc.shutdown(STOP_GRACE).await;
        drop(self.ticking);
        // Copies under way end within one of their steps.
        self.sh.state().copies.cancel_all();
        let idle = self.sh.copies_running.acquire_many(limits::COPIES_MAX as u32);
        let drained = tokio::time::timeout(STOP_GRACE, idle).await.is_ok() && drained;
        // Written down: where nothing else has changed since, there is no other snapshot.
        let settled = self.sh.state().settle_holders();
        write_down(&self.sh, settled).await;
        let report = tokio::task::spawn_blocking(move || shut_down(&volumes))
            .await
            .map_err(|_| landfast_volume::Error::Failed)??;
        Ok(Stopped { drained, volume: report })
    }
}

impl Running {
    /// Ends at once: no checkpoint, no mark of a clean stop, requests under way are not answered. What is left is what the
    /// death of the process would leave; for tests.
    pub async fn abandon(self) {
        let Running { sh, rpc, ticking, threads, .. } = self;
        rpc.shutdown(Duration::ZERO).await;
        drop((ticking, threads));
        // The volume's locks are free when the last task has let go of it.
        while Arc::strong_count(&sh) > 1 {
            tokio::task::yield_now().await;
        }
    }
}

/// Forgets what time alone ends.
async fn tick(sh: Arc<Shared>) {
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        // A log that failed while nobody waited for it is told of now, and not with the next request.
        sh.exports().iter().for_each(|export| drop(export.volume.failed()));
        let now = sh.now();
        let refusals = sh.state().files.refusals.due(now);
        for (limit, times) in refusals {
            tracing::warn!(
                "a limit was reached, and {times} requests of clients were refused for it: {limit} (docs/limits.md)"
            );
        }
        let (mut gone, freed, over) = {
            let mut st = sh.state();
            (st.tick(now), st.tick_owners(now), st.end_grace(now))
        };
        drop(freed);
        let grace_ends = over.is_some();
        gone.extend(over.unwrap_or_default());
        let told = write_down(&sh, gone).await;
        // Otherwise it is tried again, with the log of another volume where there is one that has not failed.
        if grace_ends && told {
            sh.state().grace.ended();
        }
    }
}

/// Closes files that were accessed without an open a moment ago. On a thread of its own: what a local process has removed
/// meanwhile is freed there.
async fn close_idle(sh: Arc<Shared>) {
    let mut every = tokio::time::interval(landfast_volume::limits::BRIEF_OPEN);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let all = sh.exports();
        let idle: Vec<_> = all.iter().map(|e| e.volume.clone()).filter(Volume::has_idle).collect();
        drop(all);
        if !idle.is_empty() {
            tokio::task::spawn_blocking(move || idle.iter().for_each(Volume::close_idle));
        }
    }
}

/// Puts notes into the log that belong to no request; whether it took them.
pub(crate) async fn write_down(sh: &Shared, notes: Vec<Stamped>) -> bool {
    let exports = sh.exports();
    let Some(keeper) = exports.keeper().filter(|_| !notes.is_empty()) else { return true };
    let receipt = {
        let mut tx = keeper.volume.tx();
        for note in &notes {
            tx.note(note.to_bytes());
        }
        tx.finish()
    };
    let told = receipt.wait().await;
    if let Err(e) = &told {
        tracing::error!(
            "the log took no record of what belongs to no request (clients that are gone, the end of the grace period, callbacks): {e}"
        );
    }
    told.is_ok()
}
