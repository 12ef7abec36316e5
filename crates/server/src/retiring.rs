//! Removed exports on their way out.

use crate::state::notes::LogId;
use landfast_volume::Volume;
use std::sync::{Mutex, PoisonError};

/// Volumes whose exports a reload has removed and that are not stopped yet. A server that stops meanwhile stops them, too.
#[derive(Debug, Default)]
pub(crate) struct Retiring {
    volumes: Mutex<Vec<Volume>>,
    /// Held while one is being stopped.
    pub(crate) stopping: tokio::sync::Mutex<()>,
}

impl Retiring {
    pub(crate) fn put(&self, volume: Volume) {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner).push(volume);
    }

    /// Only who gets it may stop it.
    pub(crate) fn take(&self, id: &LogId) -> Option<Volume> {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = volumes.iter().position(|volume| volume.id() == *id)?;
        Some(volumes.swap_remove(at))
    }

    pub(crate) fn take_all(&self) -> Vec<Volume> {
        std::mem::take(&mut *self.volumes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
