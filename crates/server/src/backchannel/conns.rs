//! The connections on which callbacks may be sent.

use crate::state::ids::ConnId;
use landfast_rpc::conn::ConnInfo;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// The connections that may be bound to a back channel.
#[derive(Debug, Default)]
pub(crate) struct CallbackConns {
    by_id: Mutex<HashMap<ConnId, Weak<ConnInfo>>>,
    /// Notified when a slot of a back channel is free again, or a connection is bound to one.
    pub(super) freed: Notify,
}

impl CallbackConns {
    /// Adds a connection on which CREATE_SESSION or BIND_CONN_TO_SESSION came.
    pub(crate) fn add(&self, conn: &Arc<ConnInfo>) {
        self.by_id.lock().insert(conn.id(), Arc::downgrade(conn));
        if conn.is_closed() {
            // It was perhaps removed before.
            self.remove(conn.id());
        }
    }

    pub(crate) fn remove(&self, conn: ConnId) {
        self.by_id.lock().remove(&conn);
    }

    /// A connection was bound to a back channel.
    pub(crate) fn bound(&self) {
        self.freed.notify_waiters();
    }

    /// Those of these that are open; first the one on which something has come last: it most likely reaches the client.
    pub(super) fn open_ones(&self, of: &[ConnId]) -> Vec<Arc<ConnInfo>> {
        let by_id = self.by_id.lock();
        let mut conns: Vec<_> = of.iter().filter_map(|id| by_id.get(id).and_then(Weak::upgrade)).collect();
        drop(by_id);
        conns.retain(|conn| !conn.is_closed());
        conns.sort_by_key(|conn| Reverse(conn.active_ms()));
        conns
    }
}
