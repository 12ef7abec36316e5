//! NFS version 3 (RFC 1813).
//!
//! - [`status`]: the status of a result, `nfsstat3`;
//! - [`types`]: handles, attributes, weak cache consistency data (section 2.5, 2.6);
//! - [`args`]: the arguments of the 22 procedures; [`res`]: their results;
//! - [`valid`]: which statuses a procedure may have.

pub mod args;
pub mod res;
pub mod status;
#[cfg(test)]
mod tests;
pub mod types;
pub mod valid;

pub use args::Call;
pub use res::Res;
pub use status::NfsStat3;
pub use types::{Fattr, FileHandle, Sattr, Time, WccAttr, WccData};

/// The version number of the program.
pub const VERSION: u32 = 3;

/// Procedure numbers (RFC 1813 section 3).
pub mod proc {
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const PATHCONF: u32 = 20;
    pub const COMMIT: u32 = 21;
}

/// The names of the procedures, by number.
pub const PROC_NAMES: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];

/// Largest filehandle (`NFS3_FHSIZE`).
pub const FHSIZE: usize = 64;

/// Bits of ACCESS (section 3.3.4).
pub mod access {
    pub const READ: u32 = 0x01;
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
}

/// `properties` of FSINFO (section 3.3.19).
pub mod fsf {
    pub const LINK: u32 = 0x01;
    pub const SYMLINK: u32 = 0x02;
    pub const HOMOGENEOUS: u32 = 0x08;
    pub const CANSETTIME: u32 = 0x10;
}
