//! Compares trees (local, on servers, in archives), and makes one the same as another.
//!
//! | module | what it does | I/O |
//! |---|---|---|
//! | `tree` | a whole tree, by path; which names are the same file | no |
//! | `list` | lists trees: local, on a server, in an archive | all |
//! | `contents` | digests of file data, extended attributes; many files of a server in one COMPOUND | all |
//! | `diff` | what differs | no |
//! | `plan` | what to remove, send and set | no |
//! | `sync` | carries out a plan on a server | local, server |
//! | `local` | carries out a plan on this machine | local, server |
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use landfast_client::fs::Nfs;
//! use landfast_client::trees::{Compare, OnProgress, Tree, compare};
//! use landfast_client::archive::Filter;
//!
//! let nfs = Nfs::connect(&"nfs://server/export/src".parse()?).await?;
//! let top = nfs.getattrs([""]).await.remove(0).into_result()?;
//! let (all, heard): (_, OnProgress) = (Filter::default(), std::sync::Arc::new(|_| ()));
//! let here = Tree::local("src".as_ref(), &all, &heard);
//! let there = Tree::server(&nfs, &top, &all, &heard, ToString::to_string).await;
//! let (differences, _) = compare(&here, &there, &Compare::default());
//! println!("{} differences", differences.len());
//! # Ok(()) }
//! ```
//!
//! Listings are kept in memory: about 400 bytes for each object of each tree. File data is not, except what is being read.

mod contents;
mod diff;
mod list;
mod local;
mod plan;
mod sync;
mod tree;

pub use contents::{ByPath, Contents, ContentsOptions, Key, contents};
pub use diff::{Compare, Difference, What, compare, of_contents};
pub use local::{LocalTarget, sync_local};
pub use plan::{Plan, PlanOptions, XattrChange, plan, to_digest, with_xattrs};
pub use sync::{SyncProgress, SyncReport, Target, sync};
pub use tree::{Node, OnProgress, Tree};
