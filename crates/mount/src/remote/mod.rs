//! Requests to the server. Each is one COMPOUND, sent again for as long as the server is away or busy, and until its outcome is known.
//!
//! | file | subject |
//! |---|---|
//! | `send` | sending, again and again; callers |
//! | `wire` | what requests go over |
//! | `in_order` | requests of a soft mount that were given up |
//! | `owners` | names of owners as numbers |
//! | `names` | LOOKUP, READDIR, and changes of names |
//! | `files` | attributes, data, extended attributes of an object by its handle |
//! | `ranges` | space, holes, copies by the server |
//! | `locks` | byte-range locks |
//! | `create` | a whole new file in one COMPOUND |
//! | `batch` | many changes in one directory in one COMPOUND |
//! | `delegations` | write delegations of directories |

mod batch;
mod create;
mod delegations;
mod files;
mod in_order;
mod locks;
mod names;
mod owners;
mod ranges;
mod send;
mod wire;

pub use batch::{Sent, Step, StepDone};
pub use create::NewFile;
pub use delegations::Delegation;
pub use files::Room;
pub use locks::{LockName, LockRange};
pub use names::{Also, Changed, Page};
pub use ranges::{Copied, Space};
pub(crate) use send::is_busy;
pub use send::{Caller, Doubt, Fault, Remote, patiently};
#[cfg(test)]
pub(crate) use wire::Wire;
