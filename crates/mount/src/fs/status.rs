//! What `landfast status` prints.

use std::sync::atomic::Ordering;

use super::shared::Shared;

pub(super) fn text(shared: &Shared) -> String {
    let stats = shared.remote.session().stats();
    let (nodes, names) = {
        let tree = shared.tree();
        (tree.len(), tree.names())
    };
    let delegations = shared.tree().delegations().len();
    let (changes, oldest) = {
        let pending = shared.lanes.pending();
        (pending.len(), pending.oldest().map_or(0, |at| shared.now().saturating_sub(at).as_millis()))
    };
    [
        format!("server: {}", shared.remote.session().server()),
        format!("version: {}", shared.remote.version()),
        format!("dirty files: {}", shared.dirty_count()),
        format!("dirty bytes: {}", shared.dirty_bytes()),
        format!("changes on their way: {changes}"),
        format!("age of the oldest, ms: {oldest}"),
        format!("programs wait for the server: {}", u8::from(shared.lanes.overdue.load(Ordering::Acquire))),
        format!("directory delegations: {delegations}"),
        format!("recalls: {}", shared.lanes.recalls()),
        format!("delegations given back, of our choice: {}", shared.lanes.given_back.load(Ordering::Relaxed)),
        format!("nodes: {nodes}"),
        format!("names: {names}"),
        format!("rpcs: {}", stats.rpcs),
        format!("bytes sent: {}", stats.bytes_sent),
        format!("bytes received: {}", stats.bytes_received),
        format!("retransmissions: {}", stats.retransmissions),
        format!("sessions made again: {}", stats.renewals),
        String::new(),
    ]
    .join("\n")
}
