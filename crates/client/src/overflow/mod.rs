//! What a command has to remember of a long tree, in bounded memory: up to a limit as it is, beyond it in an anonymous temporary
//! file.
//!
//! | file | subject |
//! |---|---|
//! | `file` | the temporary file; what does not fit there stays in memory |
//! | `table` | numbers by 64-bit keys, with a filter in memory that says of nearly all keys that they are not there |
//! | `records` | records that are given back in their order |

mod file;
mod records;
mod table;

pub(crate) use file::{OverflowError, TempFile};
pub(crate) use records::Records;
pub(crate) use table::{Key, Keys, Table};
