//! What the mount knows and holds back, as values. No I/O; time is an argument.
//!
//! | file | subject |
//! |---|---|
//! | `attrs` | attributes of an object; changes of attributes, folded |
//! | [`bugs`] | deliberate bugs that the simulation and the lab must see |
//! | `change` | whether only this mount has changed a directory since its names were learnt |
//! | `extents` | bytes at offsets, not overlapping |
//! | `content` | a file's data on its way: waiting, in flight, waiting for its COMMIT |
//! | `file` | an open file: held back or on the server, its data, its errors |
//! | `pending` | changes that programs were told are done, in the order in which the server gets them |
//! | `replay` | changes of names that the server may have executed already, or that others may have come before |
//! | `space` | how much may wait, so that the server has room for it |
//! | `tree` | nodes and names: what may be answered from memory |
//!
//! | question | answered from memory |
//! |---|---|
//! | attributes | of a file that is held back; for `actimeo` (directories: `acdirmin`) after the server gave them |
//! | a name that is there | for as long after it was looked up, or after its directory was found unchanged |
//! | a name that is not there | for `actimeo`, if all names of the directory are known or this one was asked for |
//! | data | never; the kernel's page cache keeps it from one open to the next while the file's change attribute stays the same |

pub mod attrs;
pub mod bugs;
pub mod change;
pub mod content;
pub mod extents;
pub mod file;
pub mod pending;
pub mod replay;
pub mod space;
pub mod tree;

/// Time since the mount began.
pub type Time = std::time::Duration;
/// A node's number: what the kernel calls it, and its `st_ino`.
pub type Ino = u64;
