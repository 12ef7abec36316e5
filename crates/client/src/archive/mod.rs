//! Reading tar archives: v7, ustar, GNU and pax, plain or compressed. Blocking.
//!
//! Numeric owners only (names in the archive are not looked at); extended attributes and ACLs are passed
//! over. What is read is not trusted: sizes only bound loops, memory grows with bytes that are there, and
//! names are handed on as they stand, for the one who extracts to judge.

mod decompress;
mod error;
mod header;
mod pax;
mod reader;
mod sparse;

pub use decompress::{Compression, open};
pub use error::ArchiveError;
pub use header::{Kind, Time};
pub use reader::{ArchiveReader, Member};
pub use sparse::Segment;
