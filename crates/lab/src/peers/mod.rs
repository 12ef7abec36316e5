//! Others, beside whom ours is measured: NFS servers and clients, as they come in packages and crates.

pub mod ganesha;
pub mod libnfs;
pub mod packages;
pub mod program;
