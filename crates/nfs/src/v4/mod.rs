//! NFSv4.0, 4.1 and 4.2 (RFC 7530, RFC 8881, RFC 7862): COMPOUND, its operations, attributes.

pub mod args;
pub mod attr;
pub mod callback;
pub mod compound;
pub mod data;
pub mod flags;
pub mod limits;
pub mod op;
pub mod res;
pub mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_requests;
pub mod types;
pub mod v40;
pub mod valid;

pub use args::ArgOp;
pub use attr::{AttrValues, Bitmap, Fattr};
pub use compound::{CompoundArgs, CompoundRes};
pub use op::OpNum;
pub use res::{ResBody, ResOp};
pub use status::NfsStat;
pub use types::*;

/// The RPC version of all NFSv4 minor versions (RFC 8881 section 2.2).
pub const VERSION: u32 = 4;
/// The procedure that does nothing (RFC 8881 section 16.1).
pub const PROC_NULL: u32 = 0;
/// The procedure that carries operations (RFC 8881 section 16.2).
pub const PROC_COMPOUND: u32 = 1;
