//! Reading files: the server's data, under what is on its way to the server.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::changes;
use super::shared::{Handle, Shared};
use crate::core::extents::overlay;
use crate::errno::Errno;

/// What can be answered without the server.
pub(super) fn from_memory(
    shared: &Shared,
    handle: &Handle,
    offset: u64,
    count: usize,
) -> Option<Result<Bytes, Errno>> {
    let tree = shared.tree();
    let node = tree.get(handle.ino)?;
    let file = handle.open.state.lock();
    if let Some(e) = file.dead {
        return Some(Err(e));
    }
    let size = node.attrs.size.max(file.content.end());
    let end = offset.saturating_add(count as u64).min(size);
    if file.held.is_none() && !(offset < end && file.content.covers(offset, end)) {
        let mut ahead = handle.ahead.lock();
        if ahead.generation != file.generation {
            ahead.first = None;
        }
        return ahead.part(offset, count).map(Ok);
    }
    let mut out = vec![0; usize::try_from(end.saturating_sub(offset)).unwrap_or(0)];
    file.content.read_over(offset, &mut out);
    Some(Ok(out.into()))
}

/// Reads from the server.
pub(super) async fn read(
    shared: &Arc<Shared>,
    handle: &Handle,
    offset: u64,
    count: usize,
) -> Result<Bytes, Errno> {
    let end = offset.saturating_add(count as u64);
    let server = match shared.server_handle(handle.ino) {
        Ok(server) => server,
        // It is being made: then memory has it, or it has a handle now.
        Err(e) => {
            let _turn = handle.open.turn.lock().await;
            match from_memory(shared, handle, offset, count) {
                Some(done) => return done,
                None => shared.server_handle(handle.ino).map_err(|_| e)?,
            }
        }
    };
    changes::settle_rights(shared, handle.ino).await;
    // What is on its way now may be gone from memory before the reply comes, and the reply may be older.
    let (before, ours) = {
        let file = handle.open.state.lock();
        (file.content.copy(offset, end), file.content.end())
    };
    let mut data = BytesMut::new();
    loop {
        let want = count - data.len();
        let at = offset + data.len() as u64;
        let (part, eof) = shared.remote.read(&handle.who, &server, at, want as u32).await?;
        if data.is_empty() && (eof || part.len() >= want) && before.is_empty() {
            let part = part.slice(..part.len().min(want));
            if handle.open.state.lock().content.is_empty() {
                return Ok(part);
            }
            data.extend_from_slice(&part);
            break;
        }
        data.extend_from_slice(&part[..part.len().min(want)]);
        if eof || data.len() >= count {
            break;
        }
    }
    let tree = shared.tree();
    let file = handle.open.state.lock();
    if before.is_empty() && file.content.is_empty() {
        return Ok(data.freeze());
    }
    // The file is at least as long as what was written here.
    let known = tree.get(handle.ino).map_or(0, |n| n.attrs.size);
    let size = ours.max(file.content.end()).max(known).min(end);
    let len = usize::try_from(size.saturating_sub(offset)).unwrap_or(0).max(data.len());
    data.resize(len, 0);
    before.iter().for_each(|(at, bytes)| overlay(*at, bytes, offset, &mut data));
    file.content.read_over(offset, &mut data);
    Ok(data.freeze())
}
