//! The connections that callbacks may go to.

use crate::state::ids::ConnId;
use landfast_rpc::conn::ConnInfo;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// The connections that sessions may use for callbacks.
#[derive(Debug, Default)]
pub(crate) struct CallbackConns {
    by_id: Mutex<HashMap<ConnId, Weak<ConnInfo>>>,
    /// A slot has been freed.
    pub(super) freed: Notify,
}

impl CallbackConns {
    /// A connection that may become part of a back channel.
    pub(crate) fn add(&self, conn: &Arc<ConnInfo>) {
        self.by_id.lock().insert(conn.id(), Arc::downgrade(conn));
    }

    /// A connection has ended.
    pub(crate) fn remove(&self, conn: ConnId) {
        self.by_id.lock().remove(&conn);
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<Arc<ConnInfo>> {
        self.by_id.lock().get(&conn).and_then(Weak::upgrade).filter(|c| !c.is_closed())
    }
}
