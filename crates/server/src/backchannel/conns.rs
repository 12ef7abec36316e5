//! The connections on which callbacks may be sent.

use crate::state::ids::ConnId;
use landfast_rpc::conn::ConnInfo;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// The connections that may be bound to a back channel.
#[derive(Debug, Default)]
pub(crate) struct CallbackConns {
    by_id: Mutex<HashMap<ConnId, Weak<ConnInfo>>>,
    /// Notified when a slot of a back channel is free again.
    pub(super) freed: Notify,
}

impl CallbackConns {
    /// Adds a connection on which CREATE_SESSION or BIND_CONN_TO_SESSION came.
    pub(crate) fn add(&self, conn: &Arc<ConnInfo>) {
        self.by_id.lock().insert(conn.id(), Arc::downgrade(conn));
    }

    pub(crate) fn remove(&self, conn: ConnId) {
        self.by_id.lock().remove(&conn);
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<Arc<ConnInfo>> {
        self.by_id.lock().get(&conn).and_then(Weak::upgrade).filter(|c| !c.is_closed())
    }
}
