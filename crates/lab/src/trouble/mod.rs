//! Disks that fail while they have power: requests to the log's disk or the data disk fail at a random moment in the middle of
//! work. From the first refusal on nothing that modifies may succeed, reads go on, and the server says what happened and
//! what is to be done; then the disk is mended (or the power goes), and all that was acknowledged must be there.
//!
//! | room | subject |
//! |---|---|
//! | `fault` | which requests fail, and what must come of it |
//! | `probe` | a client that checks a failed server: what it refuses, what it still answers, what it reports |
//! | `unreadable` | a file of which a block cannot be read |
//! | `unwritten` | files with a block that cannot be written back, while the error goes to another process |
//! | `run` | the harness |
//!
//! The oracle is that of the power cuts ([`crate::powercut`]).

mod fault;
mod probe;
mod run;
mod unreadable;
pub(crate) mod unwritten;

pub use fault::{ALL, Fault};
pub use run::{Options, Report, Round, run};
