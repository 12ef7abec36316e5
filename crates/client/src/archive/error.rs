//! Errors of reading an archive.

use std::io;

/// Why an archive cannot be read. Nothing more can be read after an error.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file could not be read or decompressed.
    #[error("cannot read the archive: {0}")]
    Io(#[from] io::Error),
    /// The first block is not a tar header.
    #[error("this does not look like a tar archive")]
    NotTar,
    #[error("{0} compression is not supported")]
    Compression(&'static str),
    /// The archive ends inside a member, or without its end marker.
    #[error("the archive is cut off after {0} bytes")]
    Truncated(u64),
    /// The archive to resume is not the one that the earlier run began.
    #[error("this is not the archive that the journal is of: it differs before member {0}")]
    Another(u64),
    #[error("bad header at byte {at}: {what}")]
    Header {
        /// The offset in the decompressed archive, in bytes.
        at: u64,
        what: &'static str,
    },
}
