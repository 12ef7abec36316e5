//! The devices of a log: a small trait, and the files and block devices that implement it.

pub mod below;
mod current;
mod file;
mod mirror;
mod mirror_open;
mod open;
mod place;
pub(crate) mod read_back;
pub(crate) mod report;
mod selftest;
mod successor;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) use current::Current;
pub use file::FileDevice;
pub use mirror::Mirror;
pub(crate) use mirror_open::open_devices;
pub(crate) use open::open;
pub use place::LogPlace;
pub use report::{Layer, Report, is_block_device};
pub use selftest::SyncMethod;

use crate::replay::ReadAt;

/// Stores blocks. Offsets and lengths are multiples of [`BLOCK_BYTES`](crate::limits::BLOCK_BYTES) and
/// buffers are aligned to it.
pub trait Device: ReadAt + Send + Sync {
    /// Usable bytes, from offset 0.
    fn bytes(&self) -> u64;

    /// Writes every part at its offset and makes all of them durable with at most one flush of the device.
    /// After an error any part may be there, whole, torn or not at all.
    fn write_durable(&self, parts: &[(u64, &[u8])]) -> io::Result<()>;

    /// One line for people: what it is, its size, how it is flushed.
    fn describe(&self) -> String;

    /// What weakens the promise of durability on this device, if anything does.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Trouble that needs the operator, although the device still works.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Checks that it is still there and the same; with `contents`, also that it still holds what was written last. Called
    /// while writes go on. The error says, with the path, what is wrong: then no further write to it may be acknowledged.
    fn look(&self, _contents: bool) -> Result<(), String> {
        Ok(())
    }

    /// A blank device of the same size to replace this one, which [`Device::look`] has found lost. The caller writes a log to
    /// it and then calls [`Device::take_place`]. The error says why there is none.
    fn successor(&self) -> Result<Box<dyn Device>, String> {
        Err("where it was, no other one can be made".to_owned())
    }

    /// For a [`Device::successor`]: takes the place of the lost one, durably. Returns the new names of the files that were
    /// there. The error says why it cannot.
    fn take_place(&self) -> Result<Vec<PathBuf>, String> {
        Ok(Vec::new())
    }

    /// Set when one copy of the log is lost, which could later be mistaken for a complete log; before the write returns that
    /// noticed the loss.
    fn half_lost(&self) -> Arc<AtomicBool> {
        Arc::default()
    }
}
