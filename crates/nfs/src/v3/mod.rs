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

macro_rules! procedures {
    ($($name:ident = $number:literal;)*) => {
        /// Procedure numbers (RFC 1813 section 3).
        pub mod proc {
            $(pub const $name: u32 = $number;)*
        }

        /// The names of the procedures, by number.
        pub const PROC_NAMES: [&str; 22] = [$(stringify!($name)),*];
    };
}

procedures! {
    NULL = 0;
    GETATTR = 1;
    SETATTR = 2;
    LOOKUP = 3;
    ACCESS = 4;
    READLINK = 5;
    READ = 6;
    WRITE = 7;
    CREATE = 8;
    MKDIR = 9;
    SYMLINK = 10;
    MKNOD = 11;
    REMOVE = 12;
    RMDIR = 13;
    RENAME = 14;
    LINK = 15;
    READDIR = 16;
    READDIRPLUS = 17;
    FSSTAT = 18;
    FSINFO = 19;
    PATHCONF = 20;
    COMMIT = 21;
}

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
