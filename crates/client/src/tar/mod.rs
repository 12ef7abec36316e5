//! `tar`: trees of servers into an archive. Many files are read in one COMPOUND, many COMPOUNDs are under way, and the
//! archive's order is always the same: operands as given, names in a directory by their bytes.
//!
//! | module | what it does | I/O |
//! |---|---|---|
//! | `plan` | steps of a walk as members to be, and how many of them are fetched in one call | no |
//! | `engine` | walks, fetches, and hands on in order | server |
//! | `sink` | a thread that writes and compresses the archive | archive |
//! | `report` | what went wrong, in the words of GNU tar; the result | no |
//!
//! A file is read whole, and its attributes again right behind it: what changed since it was listed is said. Files of more
//! than [`crate::limits::FETCHED_WHOLE_MAX`] are read in pieces while they are written. Data in memory is bounded by
//! [`crate::limits::FETCHED_BYTES_MAX`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use landfast_client::fs::Nfs;
//! use landfast_client::tar::{self, Root, Silent, Sink, TarOptions};
//!
//! let nfs = Nfs::connect(&"nfs://server/export".parse()?).await?;
//! let object = nfs.getattrs(["src"]).await.remove(0).into_result();
//! let root = Root { nfs, name: b"src".to_vec(), object };
//! let sink = Sink::File("src.tar".into()); // on stable storage when the call returns
//! let report = tar::create(vec![root], sink, TarOptions::default(), &Silent).await?;
//! assert!(report.complete());
//! # Ok(()) }
//! ```

mod engine;
mod plan;
mod report;
mod sink;

pub use engine::create;
pub use report::{Complaint, Report, Severity, Silent, TarError, Watch};
pub use sink::Sink;

use crate::archive::Compression;
use crate::fs::{AsNamed, ItemError, Nfs, Object, OwnerNames};

/// Where a tree begins, and what it is called in the archive.
pub struct Root {
    /// The server.
    pub nfs: Nfs,
    /// Its name in the archive, without a `/` at the end.
    pub name: Vec<u8>,
    /// What is there; what is not is told when it is its turn.
    pub object: Result<Object, ItemError>,
}

/// How an archive is made.
pub struct TarOptions {
    pub compression: Compression,
    /// Extended attributes as well, where the server and the version have them.
    pub xattrs: bool,
    /// Patterns of names to leave out, as GNU tar's `--exclude`.
    pub exclude: Vec<String>,
    /// Owners in the archive.
    pub who: Box<dyn OwnerNames>,
}

impl Default for TarOptions {
    fn default() -> Self {
        TarOptions {
            compression: Compression::None,
            xattrs: false,
            exclude: Vec::new(),
            who: Box::new(AsNamed),
        }
    }
}
