//! Requests to the server. Each is one COMPOUND, sent again for as long as the server is away or busy, and until its outcome is known.
//!
//! | file | subject |
//! |---|---|
//! | `send` | sending, again and again; callers |
//! | `in_order` | requests of a soft mount that were given up |
//! | `owners` | names of owners as numbers |
//! | `names` | LOOKUP, READDIR, and changes of names |
//! | `files` | attributes, data, extended attributes of an object by its handle |
//! | `locks` | byte-range locks |
//! | `create` | a whole new file in one COMPOUND |

mod create;
mod files;
mod in_order;
mod locks;
mod names;
mod owners;
mod send;

pub use create::NewFile;
pub use files::Space;
pub use locks::LockRange;
pub use names::{Also, Changed, Page};
pub use send::{Caller, Fault, Remote};
