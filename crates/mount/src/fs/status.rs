//! What `landfast status` prints.

use super::shared::Shared;

pub(super) fn text(shared: &Shared) -> String {
    let stats = shared.remote.session().stats();
    let (nodes, names) = {
        let tree = shared.tree();
        (tree.len(), tree.names())
    };
    [
        format!("server: {}", shared.remote.session().server()),
        format!("version: {}", shared.remote.version()),
        format!("dirty files: {}", shared.dirty_count()),
        format!("dirty bytes: {}", shared.dirty_bytes()),
        format!("nodes: {nodes}"),
        format!("names: {names}"),
        format!("rpcs: {}", stats.rpcs),
        format!("retransmissions: {}", stats.retransmissions),
        format!("sessions made again: {}", stats.renewals),
        String::new(),
    ]
    .join("\n")
}
