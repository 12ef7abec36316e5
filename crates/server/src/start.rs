//! The shell: starts a server.
//!
//! The server has its own Tokio runtime, whose threads run requests where they are received. Their system calls go to
//! the page cache; for most of them, handing over to another thread and back would cost more than the call. Only work
//! that is known to wait for the disk goes to other threads ([`Pool`]). Requests wait for the log asynchronously, except
//! that a lone client's request flushes it itself ([`crate::workers`]). [`crate::dispatcher`] chooses who answers a
//! call, [`crate::path`] the order of its steps.

use crate::backchannel;
use crate::background::{Background, close_idle, datagrams, settle, tick, watched};
use crate::descriptors;
use crate::dispatcher::Dispatcher;
use crate::exports::name_cache::{NameCache, System};
use crate::exports::rules::{ClientSpec, Rule, Rules};
use crate::exports::unavailable::Unavailable;
use crate::exports::{Exports, Features, Served};
use crate::limited::{Limit, Limits};
use crate::limits;
use crate::listen;
use crate::memory::{self, Load};
use crate::metrics;
use crate::mount::Mounts;
use crate::nlm::Nlm;
use crate::path::Executor;
use crate::pool::Pool;
use crate::portmap::{PortMapper, Registered};
use crate::protocols::Protocols;
use crate::reload::{self, ReloadError};
use crate::running::{Running, Threads, stats};
use crate::shared::{Instance, Shared};
use crate::state::ids::Secret;
use crate::state::merge;
use crate::state::notes::Stamped;
use crate::state::restore::{Known, Restored};
use crate::sys;
use crate::unlinked;
use crate::wakeups::Wakeups;
use crate::workers::Workers;
use landfast_rpc::conn::ConnConfig;
use landfast_rpc::rpcbind::{self, Rpcbind};
use landfast_rpc::server;
use landfast_volume::{OpenError, RecoveryReport, Volume};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

pub struct ServerConfig {
    /// The volumes, opened but not started.
    pub exports: Vec<Served>,
    /// Exports whose volumes could not be opened: their clients wait, and a reload tries again.
    pub unavailable: Vec<Unavailable>,
    /// Where to listen; port 0 takes any.
    pub listen: Vec<SocketAddr>,
    pub limits: Limits,
    pub protocols: Protocols,
    pub metrics: Option<SocketAddr>,
    /// In seconds; also the length of the grace period.
    pub lease_seconds: u32,
    pub workers: usize,
    /// Threads for requests that wait for the disk.
    pub slow_workers: usize,
    /// The port of the clients' port mappers, which say where their lock managers are.
    pub portmapper: u16,
    pub port_mapper: PortMapper,
    pub port_mapper_socket: PathBuf,
}

impl ServerConfig {
    /// Serves `volume`, found at `export`, to all at `listen`, with the default times and threads.
    pub fn new(volume: Volume, recovery: RecoveryReport, listen: SocketAddr, export: PathBuf) -> Self {
        let served = Served {
            volume,
            recovery,
            path: export,
            name: PathBuf::from("/"),
            rules: Rules(vec![Rule::open(vec![ClientSpec::Anyone])]),
            manage_gids: false,
            features: Features::default(),
        };
        ServerConfig::of(vec![served], vec![listen])
    }

    /// Serves these exports at these addresses, with the default times and threads.
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

/// Why a server does not start. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {addr}: {err}; stop what uses the port, or choose another with --listen")]
    Listen { addr: SocketAddr, err: std::io::Error },
    #[error(transparent)]
    Exports(#[from] ReloadError),
    #[error(transparent)]
    Volume(#[from] landfast_volume::OpenError),
    #[error("cannot register with the port mapper: {0}; start rpcbind, or choose --rpcbind auto")]
    PortMapper(#[from] rpcbind::RpcbindError),
    #[error("cannot start worker threads: {0}")]
    Threads(std::io::Error),
    /// The system gives no random key for client IDs and stateids.
    #[error("the system gives no random numbers, without which clients' names could be guessed: {0}")]
    Random(getrandom::Error),
}

pub struct Server;

impl Server {
    /// Listens, restores the clients' state, starts the volumes, then serves on threads of its own.
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
        sys::keep_freed_memory();
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
        let known = merged.known(&exports.iter().map(|e| e.volume.id()).collect::<Vec<_>>());
        let server = merged.server.or(exports.first().map(|e| e.volume.id())).unwrap_or_default();
        // Differs from the epoch of every earlier instance, whichever volumes that had.
        let last = exports.iter().map(|e| e.recovery.epoch as u32).max().unwrap_or(1).max(merged.epoch + 1);
        let epoch = last + apart(known)?;
        let names = NameCache::new(Box::new(System)).map_err(StartError::Threads)?;
        unavailable.iter().for_each(reload::say_unavailable);
        let table = reload::table(exports.clone(), unavailable.clone(), server, None)?;
        let mut secret = Secret::default();
        getrandom::fill(&mut secret).map_err(StartError::Random)?;
        let instance = Instance { server, epoch, secret };
        let sh = Arc::new(Shared::new(table, instance, lease_seconds, names, configured, protocols));
        let nlm = Nlm::new(sh.clone(), epoch, portmapper);
        let restored = restore(&sh, merged.notes, known, exports, unavailable).await?;
        let slow = Arc::new(Pool::new(slow_workers).map_err(StartError::Threads)?);
        let copying = Pool::with_nice("nfs-copy", limits::COPY_WORKERS, limits::COPY_NICE);
        let copying = Arc::new(copying.map_err(StartError::Threads)?);
        let watch = Workers::new(&threads.handle()).map_err(StartError::Threads)?;
        let service = Arc::new(Dispatcher {
            executor: Executor {
                sh: sh.clone(),
                slow: slow.clone(),
                copying,
                workers: watch.clone(),
                wakeups: Wakeups::new(sh.delegation_ended().clone()),
            },
            nlm: nlm.clone(),
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
        let mut background = Background(vec![
            handle.spawn(watched(watch.clone(), tick(sh.clone()))),
            handle.spawn(watched(watch.clone(), settle(sh.clone()))),
            handle.spawn(close_idle(sh.clone())),
            handle.spawn(unlinked::run(sh.clone())),
            handle.spawn(watched(watch.clone(), backchannel::recall::run(sh.clone(), slow.clone()))),
            datagrams,
        ]);
        if protocols.locks() {
            background.0.push(handle.spawn(watched(watch, nlm.run())));
        }
        let load: Load = Arc::new(rpc.load());
        background.0.push(handle.spawn(memory::give_back(load.clone())));
        let metrics = match metrics_listener {
            Some(listener) => {
                let addr = listener.local_addr();
                let addr = addr.map_err(|err| StartError::Listen { addr: rpc.local_addr(), err })?;
                let (sh, load) = (sh.clone(), load.clone());
                let page = move || metrics::page(stats(&sh, &load), &sh.exports());
                background.0.push(handle.spawn(metrics::http::serve(listener, page)));
                Some(addr)
            }
            None => None,
        };
        let rpcbind = Rpcbind::at(port_mapper_socket);
        let programs = protocols.programs();
        // NFSv4 clients do not use the port mapper.
        let port_mapper = if protocols.v3() { port_mapper } else { PortMapper::Off };
        let by_datagram = protocols.by_datagram();
        let registered =
            Registered::new(port_mapper, rpcbind, (&programs, by_datagram), rpc.local_addrs()).await?;
        let retiring = Arc::default();
        Ok(Running { rpc, background, threads, sh, restored, registered, load, metrics, retiring })
    }
}

/// Where logs are missing, another instance may have been started with them, and counted on from the same number: what is added to it.
fn apart(known: Known) -> Result<u32, StartError> {
    if known == Known::All {
        return Ok(0);
    }
    tracing::warn!(
        "logs of this server are missing, or there are logs of another one: clients have one lease to reclaim what they hold, and nothing new is given meanwhile"
    );
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(StartError::Random)?;
    Ok(u32::from(u16::from_ne_bytes(random)))
}

/// Takes exports whose volumes have not started out of the table; has the logs of the others know that notes are in them alone.
async fn without(
    sh: &Shared,
    mut served: Vec<Served>,
    mut unavailable: Vec<Unavailable>,
    failed: Vec<(usize, OpenError)>,
) -> Result<Arc<Exports>, StartError> {
    // From the last, so that the places of the others stay.
    for (n, err) in failed.iter().rev() {
        let down = served.remove(*n).unavailable(err);
        reload::say_unavailable(&down);
        unavailable.push(down);
    }
    let table = reload::table(served, unavailable, sh.server, Some(&sh.exports()))?;
    sh.replace_exports(table);
    let exports = sh.exports();
    // Each has started with a snapshot of all that was restored.
    sh.note_logs(&exports, exports.logs()).await;
    Ok(exports)
}

/// Takes the notes out of each export's recovery.
fn take_notes(exports: &mut [Served]) -> Vec<Vec<Stamped>> {
    let of = |e: &mut Served| {
        let notes = std::mem::take(&mut e.recovery.notes);
        notes.iter().filter_map(|n| Stamped::from_bytes(n)).collect()
    };
    exports.iter_mut().map(of).collect()
}

/// Restores the state from the logs' notes, then starts the volumes. They ask for the notes again before they empty
/// their logs. Exports whose volumes do not start become unavailable, unless that is all.
async fn restore(
    sh: &Arc<Shared>,
    notes: Vec<Stamped>,
    known: Known,
    served: Vec<Served>,
    unavailable: Vec<Unavailable>,
) -> Result<Restored, StartError> {
    let now = sh.now();
    let exports = sh.exports();
    let restored = {
        let mut state = sh.state();
        let restored = state.restore_known(notes, known, now);
        // It goes into each log with the state.
        let _ = state.note_logs(exports.logs());
        restored
    };
    let volumes: Vec<_> = served.iter().map(|e| e.volume.clone()).collect();
    let mut failed = reload::start_volumes(sh, &volumes);
    if failed.len() == volumes.len()
        && let Some((_, err)) = failed.pop()
    {
        return Err(err.into());
    }
    let exports = match failed.is_empty() {
        true => exports,
        false => without(sh, served, unavailable, failed).await?,
    };
    exports.iter().for_each(|export| unlinked::take_over(sh, &export.volume));
    let holders = sh.state().files.delegations.holders_of_whole_directories();
    for export in exports.iter().filter(|export| export.features.write_delegations) {
        sh.space.keep_after_start(now + u64::from(sh.lease_seconds) * 1000, &export.volume, &holders);
    }
    Ok(restored)
}
