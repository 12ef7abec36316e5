//! `landfast mount`: a FUSE filesystem over the compound client, for any server of NFSv3, 4.0, 4.1 and 4.2.
//!
//! | room | subject |
//! |---|---|
//! | [`options`] | what `-o` takes (pure) |
//! | [`core`] | what is known and held back (pure) |
//! | `asked` | how a mount is asked for something |
//! | [`errno`] | statuses as error numbers (pure) |
//! | `remote` | requests to the server |
//! | `fs` | the kernel's requests |
//! | `simulation` | three mounts and a model of a server, by seeds (tests only) |
//! | [`control`] | the ends of a mount: mounting, flushing, unmounting |
//!
//! Promises: `close` and `fsync` return when the data is on the server's stable storage, or report why it is not. An error is reported
//! once to each open file, and never turned into success. What the docs call a limit is in [`limits`].

#![forbid(unsafe_code)]

mod asked;
pub mod control;
pub mod core;
pub mod errno;
mod fs;
pub mod limits;
pub mod options;
mod remote;
#[cfg(test)]
mod simulation;
mod tasks;
