//! Giving memory back: the kernel remembers files for as long as it has memory itself, and each of them is a node here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Weak;

use super::shared::Shared;
use crate::limits::{NODES_COUNTED_EACH, NODES_GIVEN_BACK};

/// Has the kernel forget files whenever there are too many nodes, for as long as the mount lives.
pub(super) async fn give_back(shared: Weak<Shared>) {
    // The fewest nodes since it was asked: what it does not give back is not asked for again and again.
    let mut fewest = 0;
    loop {
        tokio::time::sleep(NODES_COUNTED_EACH).await;
        let Some(shared) = shared.upgrade() else { return };
        let surplus = {
            let tree = shared.tree();
            fewest = tree.len().min(fewest);
            if tree.len() < fewest + NODES_GIVEN_BACK { Vec::new() } else { tree.surplus() }
        };
        if surplus.is_empty() {
            continue;
        }
        fewest = shared.tree().len();
        // The kernel waits for requests that are under way in the directory: not on a thread that others need.
        let done = tokio::task::spawn_blocking(move || {
            let Some(notifier) = shared.notifier.get() else { return };
            for (dir, name) in surplus {
                // It may have forgotten the name meanwhile.
                let _ = notifier.inval_entry(fuser::INodeNo(dir), OsStr::from_bytes(&name));
            }
        });
        if let Err(e) = done.await {
            tracing::debug!("nodes are not given back: {e}");
        }
    }
}
