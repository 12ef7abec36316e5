//! Background tasks of a server: expire state, close idle files, serve the lock manager by UDP.

use crate::nlm::Nlm;
use crate::protocols::LOCK_PROGRAMS;
use crate::shared::Shared;
use crate::workers::Workers;
use landfast_rpc::udp;
use landfast_volume::Volume;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;

/// How often [`tick`] runs.
const TICK: Duration = Duration::from_secs(5);

/// All background tasks: [`tick`], [`settle`], [`close_idle`], [`datagrams`], the lock manager, the metrics. Dropping this ends them.
pub(crate) struct Background(pub(crate) Vec<tokio::task::JoinHandle<()>>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Runs a task that may flush a log itself, so that another thread takes over meanwhile.
pub(crate) async fn watched(workers: Workers, task: impl Future<Output = ()>) {
    workers.during(pin!(task)).await;
}

/// The lock manager and the status monitor by UDP.
pub(crate) async fn datagrams(sockets: Vec<UdpSocket>, nlm: Nlm, workers: Workers) {
    let mut all = tokio::task::JoinSet::new();
    for socket in sockets {
        let (nlm, workers) = (nlm.clone(), workers.clone());
        // A socket that listens on all addresses does not say to which a datagram came.
        let at = socket.local_addr().ok().map(|at| at.ip().to_canonical()).filter(|at| !at.is_unspecified());
        let serve = move |peer, call, body| {
            let (nlm, workers) = (nlm.clone(), workers.clone());
            async move { workers.during(pin!(nlm.datagram(peer, at, call, body))).await }
        };
        all.spawn(udp::serve(socket, LOCK_PROGRAMS, serve));
    }
    while all.join_next().await.is_some() {}
}

/// Expires state that only time ends: leases, the grace period, owners without opens. Never returns.
pub(crate) async fn tick(sh: Arc<Shared>) {
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        // Asking reports a log that failed while nobody waited for it.
        sh.exports().iter().for_each(|export| drop(export.volume.failed()));
        let now = sh.now();
        let refusals = sh.state().files.refusals.due(now);
        for (limit, times) in refusals {
            tracing::warn!(
                "a limit was reached, and {times} requests of clients were refused for it: {limit} (docs/limits.md)"
            );
        }
        let work = sh.change_and_write_down(|st| {
            let (mut gone, freed, over) = (st.tick(now), st.tick_owners(now), st.end_grace(now));
            let grace_ends = over.is_some();
            gone.extend(over.unwrap_or_default());
            (gone, (freed, grace_ends))
        });
        let ((freed, grace_ends), told) = work.await;
        // Not under the state's lock: closing a file takes time.
        drop(freed);
        // If the log refused the notes, the next tick tries again, with another volume's log if there is one that works.
        if grace_ends && told {
            sh.state().grace.ended();
        }
    }
}

/// Tells the log of delegations that it does not know, when their clients were given none for a while. Never returns.
pub(crate) async fn settle(sh: Arc<Shared>) {
    loop {
        let due = sh.state().settle_due();
        let Some(due) = due else {
            sh.grants_unsettled().await;
            continue;
        };
        let now = sh.now();
        if due > now {
            tokio::time::sleep(Duration::from_millis(due - now)).await;
            continue;
        }
        sh.change_and_write_down(|st| (st.settle(now), ())).await;
    }
}

/// Closes files that were opened for I/O without an open stateid and are idle now. Closing may free a file that a local process has
/// removed, which takes time, so it runs on a blocking thread.
pub(crate) async fn close_idle(sh: Arc<Shared>) {
    let mut every = tokio::time::interval(landfast_volume::limits::DESCRIPTOR_CACHE_TIME);
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
