//! Files that a server copies itself (RFC 7862): no data comes here.
//!
//! | module | subject |
//! |---|---|
//! | `choice` | whether a file is cloned, copied or read, by what the server has refused so far |
//! | `original` | a file to copy |
//! | `batch` | [`super::Nfs::copy`]: small files, many in one COMPOUND |
//! | `single` | one file: large ones, and those that did not go with others |

mod batch;
mod choice;
mod original;
mod single;

pub(crate) use choice::{CopyMethod, clone, copy};
pub use choice::{Reflink, ServerCopies};
pub use original::Original;
pub(crate) use single::{CopyError, Stable, fill};
