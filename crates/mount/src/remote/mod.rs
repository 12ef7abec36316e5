//! Requests to the server. Each is one COMPOUND, sent again for as long as the server is away or busy, and until its outcome is known.
//!
//! | file | subject |
//! |---|---|
//! | `send` | sending, again and again; callers |
//! | `owners` | names of owners as numbers |
//! | `names` | LOOKUP, READDIR, and changes of names |
//! | `files` | attributes, data, extended attributes of an object by its handle |
//! | `create` | a whole new file in one COMPOUND |

mod create;
mod files;
mod names;
mod owners;
mod send;

pub use create::NewFile;
pub use names::{Also, Changed, Page};
pub use send::{Caller, Fault, Remote};
