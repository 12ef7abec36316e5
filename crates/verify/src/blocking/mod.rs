//! A small blocking NFS client: one call after another, in each version of the protocol. It shares no code with the engine of
//! `landfast-client`, so that each is a witness of the other. `landfast verify`, `probe` and the experiments of the lab use it.
//!
//! | room | subject |
//! |---|---|
//! | `wire` | RPCs over a blocking socket |
//! | `nfs` | what a client of any version can do |
//! | `v3` | MOUNT and NFS version 3 |
//! | `session` | the client ids and sessions of 4.x; COMPOUNDs and their results |
//! | `v4` | NFS 4.0, 4.1 and 4.2 over one session or one open owner |

pub mod nfs;
pub mod session;
pub mod v3;
pub mod v4;
pub mod wire;

use crate::error::Result;
use crate::url::{Target, Version};
use nfs::Nfs;
use std::time::Duration;

/// Connects in the version that the URL names.
/// Errors: No server, or it refuses.
pub fn connect(target: &Target, patience: Duration) -> Result<Box<dyn Nfs>> {
    Ok(match target.version {
        Version::V3 => Box::new(v3::Client::connect(target, patience)?),
        Version::V4(minor) => Box::new(v4::Client::connect(target, minor, patience)?),
    })
}
