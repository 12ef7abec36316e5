//! Extended attributes that are the mount's own: whoever reads one asks the mount for something. Any object of the mount has them; no
//! list shows them.

/// Makes everything stable. The value: what was lost since the last time, one line a path. For root and who runs the mount.
pub const SYNC: &str = "landfast.sync";
/// The value: the mount's state, a line each.
pub const STATUS: &str = "landfast.status";
