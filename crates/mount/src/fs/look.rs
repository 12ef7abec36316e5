//! Attributes, asked of the server if memory may not answer.

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
    let handle = shared.server_handle(ino)?;
    let asked = shared.now();
    let attrs = shared.remote.get_attrs(who, &handle).await?;
    let mut tree = shared.tree();
    tree.learn(ino, attrs, asked);
    let attrs = tree.get(ino).map(|n| n.attrs.clone()).ok_or(Errno::STALE)?;
    Ok(shared.seen_by_programs(&tree, ino, attrs))
}
