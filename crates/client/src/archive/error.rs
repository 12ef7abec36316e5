//! What can be wrong with an archive.

use std::io;

/// Why an archive cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file or the decompressor failed.
    #[error("cannot read the archive: {0}")]
    Io(#[from] io::Error),
    /// The first block is no tar header.
    #[error("this does not look like a tar archive")]
    NotTar,
    /// A compression that is not supported.
    #[error("{0} compression is not supported")]
    Compression(&'static str),
    /// The archive ends inside a member, or without its end marker.
    #[error("the archive is cut off after {0} bytes")]
    Truncated(u64),
    /// An archive that is gone on with is not the one that was begun.
    #[error("this is not the archive that the journal is of: it differs before member {0}")]
    Another(u64),
    /// A header is malformed.
    #[error("bad header at byte {at}: {what}")]
    Header {
        /// Where, in bytes of the decompressed archive.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}
