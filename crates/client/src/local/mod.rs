//! Reads local trees. Blocking.
//!
//! | module | what it does |
//! |---|---|
//! | `walk` | walks a tree depth first; names are sorted by their bytes |
//! | `data` | data segments of sparse files; extended attributes |
//! | `links` | which names are the same file |
//!
//! Directories are opened by file descriptor, never by path. So if somebody replaces a directory meanwhile, the replacement
//! is not entered; and paths may have any length. Attributes are [`crate::fs::Meta`], as for NFS trees: `fsid.major` is the
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
