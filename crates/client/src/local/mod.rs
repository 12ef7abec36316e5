//! Trees of this machine, read. Blocking.
//!
//! | module | what it does |
//! |---|---|
//! | `walk` | a tree depth first, in the order of names' bytes |
//! | `data` | where the data of sparse files lies; extended attributes |
//! | `links` | which names are the same file |
//!
//! Directories are entered by handles, never by paths, so that what somebody puts in a directory's place meanwhile is not
//! entered, and paths may be of any length. Attributes are [`crate::fs::Meta`], as those of NFS trees: `fsid.major` is the
//! device, `fileid` the inode number.
//!
//! ```no_run
//! use landfast_client::local::{Walk, WalkOptions};
//!
//! for found in Walk::new("src".as_ref(), b"src".to_vec(), WalkOptions::default()) {
//!     match found {
//!         Ok(found) => println!("{} {}", found.path.escape_ascii(), found.meta.size),
//!         Err(e) => eprintln!("{e}"),
//!     }
//! }
//! ```

mod data;
mod links;
mod walk;

pub use data::{segments, xattrs};
pub use links::Links;
pub(crate) use walk::meta;
pub use walk::{Attempt, Follow, Found, Trouble, Walk, WalkOptions, meta_of, writable};
