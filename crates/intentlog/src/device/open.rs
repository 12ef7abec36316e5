//! The one place where a log's place becomes a device.

use super::{Device, LogPlace, file, mirror_open};
use crate::config::Config;
use crate::error::OpenError;

/// Opens, locks and checks the device of a log, and chooses how it is flushed.
pub(crate) fn open(config: &Config) -> Result<Box<dyn Device>, OpenError> {
    match &config.place {
        LogPlace::File(path) => file::open(path, config),
        LogPlace::Mirror(paths) => mirror_open::open(paths, config),
    }
}
