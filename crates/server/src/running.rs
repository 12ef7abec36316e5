//! A running server, and how it stops.

use crate::background::Background;
use crate::limited::Limit;
use crate::limits;
use crate::memory::Load;
use crate::parallel;
use crate::portmap::Registered;
use crate::retiring::Retiring;
use crate::shared::Shared;
use crate::state::restore::Restored;
use crate::stats::Stats;
use landfast_rpc::server;
use landfast_volume::{ShutdownReport, Volume};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

const STOP_GRACE: Duration = Duration::from_secs(10);

/// A running server. Dropping it stops listening; [`Running::stop`] ends it cleanly.
pub struct Running {
    pub(crate) rpc: server::Server,
    pub(crate) background: Background,
    pub(crate) threads: Threads,
    pub(crate) sh: Arc<Shared>,
    pub(crate) restored: Restored,
    pub(crate) registered: Option<Registered>,
    pub(crate) load: Load,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) retiring: Arc<Retiring>,
}

#[derive(Debug, Clone, Copy)]
pub struct Stopped {
    pub drained: bool,
    /// The sum over all volumes.
    pub volume: ShutdownReport,
}

/// Stops each volume, even if an earlier one failed to stop.
fn shut_down(volumes: &[Volume]) -> Result<ShutdownReport, landfast_volume::Error> {
    let stopped = parallel::each(volumes, limits::EXPORTS_AT_ONCE, Volume::shutdown);
    stopped.into_iter().try_fold(ShutdownReport::default(), |sum, one| {
        let one = one?;
        // They were stopped at the same time.
        let seconds = sum.seconds.max(one.seconds);
        Ok(ShutdownReport { seconds, checkpoints: sum.checkpoints + one.checkpoints })
    })
}

impl Running {
    pub fn local_addr(&self) -> SocketAddr {
        self.rpc.local_addr()
    }

    pub fn local_addrs(&self) -> &[SocketAddr] {
        self.rpc.local_addrs()
    }

    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// How much client state the start restored from the logs.
    pub fn restored(&self) -> Restored {
        self.restored
    }

    pub fn volumes(&self) -> Vec<Volume> {
        self.sh.exports().iter().map(|e| e.volume.clone()).collect()
    }

    pub fn stats(&self) -> Stats {
        stats(&self.sh, &self.load)
    }

    /// Stops cleanly: takes no new requests, answers those in flight, makes a checkpoint, writes the mark of a clean
    /// stop. Then the directories are free: another server may open them.
    /// Errors: A volume could not be made durable. Its log is kept, and the next start recovers.
    pub async fn stop(self) -> Result<Stopped, landfast_volume::Error> {
        let mut volumes = self.volumes();
        volumes.extend(self.retiring.take_all());
        if let Some(registered) = self.registered {
            registered.withdraw().await;
        }
        let drained = self.rpc.shutdown(STOP_GRACE).await;
        drop(self.background);
        // A running copy ends after its current step.
        self.sh.state().copies.cancel_all();
        let idle = self.sh.copies_running.acquire_many(limits::COPIES_MAX as u32);
        let drained = tokio::time::timeout(STOP_GRACE, idle).await.is_ok() && drained;
        // If nothing else changed since the last snapshot, no other snapshot is taken. So this note goes into the log
        // itself.
        let settled = self.sh.change_and_write_down(|st| (st.settle_holders(), ()));
        // A log whose disk is full may take it only when there is room again, which a stop does not wait for.
        let _ = tokio::time::timeout(STOP_GRACE, settled).await;
        let exports = self.sh.exports();
        let here = exports.logs();
        let told = {
            let st = self.sh.state();
            // A reload that was refused or has not ended may have said that there are others.
            st.may_be_in_others(&here) || here.len() > 1 && !st.is_as_logs_have_it()
        };
        if told {
            // With something new in it, each log gets a snapshot of the whole state, and goes without the others.
            let _ = tokio::time::timeout(STOP_GRACE, self.sh.note_logs(&exports, Vec::new())).await;
        }
        drop(exports);
        // The thread that a reload has told to stop a removed export may still be at it.
        let _ = tokio::time::timeout(STOP_GRACE, self.retiring.stopping.lock()).await;
        let report = tokio::task::spawn_blocking(move || shut_down(&volumes))
            .await
            .map_err(|_| landfast_volume::Error::Failed)??;
        drop(self.threads);
        if drained {
            // What is waited for is not the disk any more, only that threads have a turn.
            let _ = tokio::time::timeout(STOP_GRACE, released(&self.sh)).await;
        }
        Ok(Stopped { drained, volume: report })
    }
}

impl Running {
    /// Ends at once, as if the process had died: no checkpoint, no mark of a clean stop, no answer to requests in flight. For tests.
    pub async fn abandon(self) {
        let Running { sh, rpc, background, threads, .. } = self;
        rpc.shutdown(Duration::ZERO).await;
        drop((background, threads));
        released(&sh).await;
    }
}

/// Waits until the last task has dropped the volumes: then their locks are free.
async fn released(sh: &Arc<Shared>) {
    while Arc::strong_count(sh) > 1 {
        tokio::task::yield_now().await;
    }
}

/// The server's own Tokio runtime. It may be dropped in async code, so dropping it does not wait for its threads.
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    pub(crate) fn new(workers: usize) -> std::io::Result<Self> {
        let workers = workers.max(2);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            // Each call that may wait for a device has a turn, and needs one thread that takes over from it. Without
            // this bound a flood on busy processors starts hundreds: a thread that was told to take over but has not
            // run yet does not count as free.
            .max_blocking_threads(workers * limits::TURNS_PER_WORKER + limits::SPARE_THREADS)
            .thread_name("nfs")
            .enable_all()
            .build()?;
        Ok(Threads(Some(runtime)))
    }

    pub(crate) fn handle(&self) -> Handle {
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
        delegations: st.files.delegations.live(),
        write_directory_delegations: st.files.delegations.whole_directories(),
        delegations_unlogged: st.files.delegations.unlogged(),
        delegation_counts: st.files.delegations.counts,
        unlinked_files: st.files.preserved.orphans_len(),
        open_descriptors: st.files.kept(),
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
