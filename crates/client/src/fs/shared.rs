//! What all calls of an [`super::Nfs`] share.

use std::future::Future;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfast_nfs::v4::ArgOp;
use tokio::sync::{OnceCell, watch};

use super::dirs::Dirs;
use super::pack::Capacity;
use super::server_copy::ServerCopies;
use crate::limits::WINDOW_MAX;
use crate::session::Session;

pub(super) struct Shared {
    pub(super) session: Session,
    /// Goes to the directory where paths begin.
    pub(super) top: ArgOp,
    pub(super) dirs: Mutex<Dirs>,
    pub(super) capacity: Mutex<Capacity>,
    pub(super) numbers: AtomicU64,
    /// How files are copied; known after the first question.
    pub(super) copies: OnceCell<Arc<ServerCopies>>,
    pub(super) stop: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn dirs(&self) -> MutexGuard<'_, Dirs> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn capacity(&self) -> MutexGuard<'_, Capacity> {
        self.capacity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing new may be started.
    pub(super) fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Resolves when [`super::Nfs::stop`] is called after this; never if it was called before.
    pub(super) fn stop_comes(&self) -> impl Future<Output = ()> + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            if stop.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The most COMPOUNDs in flight.
    pub(super) fn window(&self) -> usize {
        WINDOW_MAX.min(self.session.limits().slots as usize).max(1)
    }
}
