//! Other NFS servers, as they come in packages, beside which ours is measured.

pub mod ganesha;
