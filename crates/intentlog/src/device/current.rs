//! The device of a running log, which can be replaced when it is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use super::Device;
use crate::limits::SPIN_BELOW;
use crate::replay::ReadAt;

/// The device has one user at a time ([`crate::lead`]), so no write is under way when it is replaced.
pub(crate) struct Current {
    device: RwLock<Arc<dyn Device>>,
    /// Shared by a device and its successors.
    half_lost: Arc<AtomicBool>,
    /// For experiments: the shortest time that a write takes.
    flush_min: Option<Duration>,
}

impl Current {
    pub(crate) fn new(device: Arc<dyn Device>, flush_min: Option<Duration>) -> Current {
        Current { half_lost: device.half_lost(), device: RwLock::new(device), flush_min }
    }

    pub(crate) fn replace(&self, device: Box<dyn Device>) {
        let old = std::mem::replace(&mut *self.device.write(), device.into());
        drop(old);
    }

    fn get(&self) -> Arc<dyn Device> {
        self.device.read().clone()
    }
}

/// A sleep is less precise than [`SPIN_BELOW`], so the last part is spun.
fn wait_until(until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    if left > SPIN_BELOW {
        std::thread::sleep(left - SPIN_BELOW);
    }
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

impl ReadAt for Current {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.get().read_at(offset, buf)
    }
}

impl Device for Current {
    fn bytes(&self) -> u64 {
        self.get().bytes()
    }

    fn write_durable(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        let until = self.flush_min.map(|least| Instant::now() + least);
        self.get().write_durable(parts)?;
        until.into_iter().for_each(wait_until);
        Ok(())
    }

    fn describe(&self) -> String {
        let device = self.get().describe();
        match self.flush_min {
            None => device,
            Some(least) => format!("{device}, emulated flush of {least:?}"),
        }
    }

    fn warning(&self) -> Option<String> {
        self.get().warning()
    }

    fn trouble(&self) -> Option<String> {
        self.get().trouble()
    }

    fn look(&self, contents: bool) -> Result<(), String> {
        self.get().look(contents)
    }

    fn half_lost(&self) -> Arc<AtomicBool> {
        self.half_lost.clone()
    }

    fn successor(&self) -> Result<Box<dyn Device>, String> {
        self.get().successor()
    }
}
