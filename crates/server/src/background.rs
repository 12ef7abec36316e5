//! What goes on besides the answers to calls: what time alone ends, files that nobody uses any more, the lock manager by UDP.

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

/// How often what goes on by time alone is looked at.
const TICK: Duration = Duration::from_secs(5);

/// What goes on besides the connections: [`tick`], [`close_idle`], [`datagrams`], the lock manager, the metrics. It ends with this.
pub(crate) struct Background(pub(crate) Vec<tokio::task::JoinHandle<()>>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// A task that may flush a log itself.
pub(crate) async fn watched(workers: Workers, task: impl Future<Output = ()>) {
    workers.during(pin!(task)).await;
}

/// The lock manager and the status monitor by UDP.
pub(crate) async fn datagrams(sockets: Vec<UdpSocket>, nlm: Nlm, workers: Workers) {
    let mut all = tokio::task::JoinSet::new();
    for socket in sockets {
        let (nlm, workers) = (nlm.clone(), workers.clone());
        let serve = move |peer, call, body| {
            let (nlm, workers) = (nlm.clone(), workers.clone());
            async move { workers.during(pin!(nlm.datagram(peer, call, body))).await }
        };
        all.spawn(udp::serve(socket, LOCK_PROGRAMS, serve));
    }
    while all.join_next().await.is_some() {}
}

/// Forgets what time alone ends.
pub(crate) async fn tick(sh: Arc<Shared>) {
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
        let told = sh.write_down(gone).await;
        // Otherwise it is tried again, with the log of another volume where there is one that has not failed.
        if grace_ends && told {
            sh.state().grace.ended();
        }
    }
}

/// Closes files that were accessed without an open a moment ago. On a thread of its own: what a local process has removed
/// meanwhile is freed there.
pub(crate) async fn close_idle(sh: Arc<Shared>) {
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
