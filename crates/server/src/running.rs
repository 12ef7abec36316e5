//! A server that runs, and how it is stopped.

use crate::background::Background;
use crate::limited::Limit;
use crate::limits;
use crate::memory::Load;
use crate::portmap::Registered;
use crate::shared::Shared;
use crate::state::restore::Restored;
use crate::stats::Stats;
use landfast_rpc::server;
use landfast_volume::{ShutdownReport, Volume};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// How long a clean stop waits for requests under way.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// A server that runs. Dropping it stops listening; [`Running::stop`] ends it cleanly.
pub struct Running {
    pub(crate) rpc: server::Server,
    pub(crate) background: Background,
    pub(crate) threads: Threads,
    pub(crate) sh: Arc<Shared>,
    pub(crate) restored: Restored,
    pub(crate) registered: Option<Registered>,
    pub(crate) load: Load,
    pub(crate) metrics: Option<SocketAddr>,
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
        drop(self.background);
        // Copies under way end within one of their steps.
        self.sh.state().copies.cancel_all();
        let idle = self.sh.copies_running.acquire_many(limits::COPIES_MAX as u32);
        let drained = tokio::time::timeout(STOP_GRACE, idle).await.is_ok() && drained;
        // Written down: where nothing else has changed since, there is no other snapshot.
        let settled = self.sh.state().settle_holders();
        self.sh.write_down(settled).await;
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
        let Running { sh, rpc, background, threads, .. } = self;
        rpc.shutdown(Duration::ZERO).await;
        drop((background, threads));
        // The volume's locks are free when the last task has let go of it.
        while Arc::strong_count(&sh) > 1 {
            tokio::task::yield_now().await;
        }
    }
}

/// The server's own runtime. It may end where waiting is not allowed, so nothing waits for its threads.
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    pub(crate) fn new(workers: usize) -> std::io::Result<Self> {
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

    pub(crate) fn handle(&self) -> Handle {
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

/// What the metrics say.
pub(crate) fn stats(sh: &Shared, load: &Load) -> Stats {
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
