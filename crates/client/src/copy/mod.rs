//! Trees as sequences of members, for [`crate::put`] to put onto a server as if they came out of an archive.
//!
//! | module | what it does |
//! |---|---|
//! | `local` | trees of this machine |
//! | `remote` | trees of a server |
//! | `write` | the other way: members as a tree of this machine |
//! | `last_attributes` | the attributes of its directories as bytes, until they are set (pure) |

mod last_attributes;
mod local;
mod remote;
mod write;

use std::io;

use bytes::Bytes;
use landfast_nfs::v4::NfsTime;

use crate::archive::{Kind, Member, Time};
use crate::fs::OwnerNames;
use crate::fs::{Meta, Xattr};
use crate::overflow::OverflowError;
use crate::put::{Cause, MemberError};

pub use local::{LocalOptions, LocalStart, LocalTrees, Sparse};
pub use remote::{RemoteObject, RemoteOptions, RemoteStart, RemoteTrees};
pub(crate) use write::descend;
pub use write::{WriteOptions, write};

/// A member with the attributes of a file. Its data is read later.
fn member(path: &[u8], kind: Kind, meta: &Meta, link: Vec<u8>, who: &dyn OwnerNames) -> Member {
    let time = |t: NfsTime| Time { seconds: t.seconds, nanos: t.nseconds };
    Member {
        path: path.to_vec(),
        kind,
        mode: meta.mode,
        uid: who.user(&meta.owner).0,
        gid: who.group(&meta.group).0,
        mtime: time(meta.modified),
        atime: Some(time(meta.accessed)),
        link,
        device: meta.rdev,
        size: 0,
        stored: 0,
        sparse: None,
        user: Vec::new(),
        group: Vec::new(),
        xattrs: Vec::new(),
    }
}

/// Extended attributes in the form that members have.
pub(crate) fn named(xattrs: Vec<Xattr>) -> Vec<(Vec<u8>, Bytes)> {
    xattrs.into_iter().map(|(name, value)| ([b"user.", &name[..]].concat(), value)).collect()
}

/// The failure of a member of which it is not known what it has to do with earlier ones.
fn unknown(e: &OverflowError) -> MemberError {
    MemberError::new(Cause::Other, e.to_string())
}

/// The system's text for an error, without its number.
pub(crate) fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
