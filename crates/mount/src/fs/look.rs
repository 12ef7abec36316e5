//! Attributes, asked of the server if memory may not answer, and what they say of the data in memory.

use std::sync::Arc;

use super::shared::Shared;
use crate::core::Ino;
use crate::core::attrs::Attrs;
use crate::errno::Errno;
use crate::remote::Caller;

/// The attributes, asked of the server.
pub(super) async fn attrs(shared: &Arc<Shared>, who: &Caller, ino: Ino) -> Result<Attrs, Errno> {
    if let Some(attrs) = shared.view(ino) {
        return Ok(attrs);
    }
    let asked = shared.now();
    let known = shared.tree().fresh(ino, asked).is_some();
    if !known {
        let handle = shared.server_handle(ino)?;
        let attrs = shared.remote.get_attrs(who, &handle).await?;
        shared.tree().learn(ino, attrs, asked);
    }
    renew(shared, ino).await;
    let tree = shared.tree();
    let attrs = tree.get(ino).map(|n| n.attrs.clone()).ok_or(Errno::STALE)?;
    Ok(shared.seen_by_programs(&tree, ino, attrs))
}

/// If somebody else has changed a file that is open here, what was read of it before is forgotten. Must come before the kernel gets the
/// new attributes: with a new size it would read what lies behind the old end from a page that has zeros there.
pub(super) async fn renew(shared: &Arc<Shared>, ino: Ino) {
    let change = {
        let tree = shared.tree();
        if !shared.is_outdated(&tree, ino) {
            return;
        }
        let Some(node) = tree.get(ino) else { return };
        if let Some(open) = &node.file {
            // What came with an open is as old as the pages.
            open.state.lock().generation += 1;
        }
        node.attrs.change
    };
    shared.drop_pages(ino).await;
    if let Some(node) = shared.tree().get_mut(ino) {
        node.pages = Some(change);
    }
}
