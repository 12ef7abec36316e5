//! A connection in the version that a URL names.

use std::time::Duration;

use crate::client::Nfs;
use crate::error::Result;
use crate::url::{Target, Version};

/// Connects.
///
/// # Errors
/// No server, or it refuses.
pub fn connect(target: &Target, patience: Duration) -> Result<Box<dyn Nfs>> {
    Ok(match target.version {
        Version::V3 => Box::new(crate::v3::Client::connect(target, patience)?),
        Version::V4(minor) => Box::new(crate::v4::Client::connect(target, minor, patience)?),
    })
}
