//! `tar`: writes trees of servers into an archive. It reads many files in one COMPOUND, and has many COMPOUNDs in flight. The
//! archive's order is always the same: operands as given, and the names in a directory sorted by their bytes.
//!
//! | module | what it does | I/O |
//! |---|---|---|
//! | `plan` | turns the objects of a walk into members, and decides which are fetched in one call | no |
//! | `engine` | walks, fetches, and passes members on in order | server |
//! | `sink` | a thread that writes and compresses the archive | archive |
//! | `report` | complaints in the words of GNU tar; the result | no |
//!
//! After a file's data its attributes are read again. If they changed since the file was listed, that is reported. Files of
//! more than [`crate::limits::FETCHED_WHOLE_MAX`] bytes are read in pieces while they are written. Data in memory is bounded
//! by [`crate::limits::FETCHED_BYTES_MAX`].
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

/// A tree to put into the archive.
pub struct Root {
    pub nfs: Nfs,
    /// The name in the archive, without a `/` at the end.
    pub name: Vec<u8>,
    /// The object, or why it cannot be read. The error is reported in the order of the operands.
    pub object: Result<Object, ItemError>,
}

pub struct TarOptions {
    pub compression: Compression,
    /// Include extended attributes, where the server and the protocol version have them.
    pub xattrs: bool,
    /// Patterns of names to leave out, as with GNU tar's `--exclude`.
    pub exclude: Vec<String>,
    /// Translates owners for the archive.
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
