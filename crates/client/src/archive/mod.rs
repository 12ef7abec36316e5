//! Reads tar archives (v7, ustar, GNU, pax; plain or compressed), and writes pax archives. Blocking.
//!
//! ACLs are ignored. The input is not trusted: sizes only bound loops, and memory grows only with bytes that were really
//! read. The reader returns names unchanged; [`Filter`] decides which of them may be extracted.

mod compress;
mod counts;
mod decompress;
mod error;
mod filter;
mod header;
mod pax;
mod reader;
mod sparse;
mod writer;

pub use compress::Compressor;
pub use counts::Counts;
pub(crate) use decompress::is_plain;
pub use decompress::{Compression, open};
pub use error::ArchiveError;
pub use filter::{Filter, PathError, Verdict, components};
pub use header::{Kind, Time};
pub use reader::{ArchiveReader, Member};
pub use sparse::Segment;
pub(crate) use writer::holds_xattr;
pub use writer::{ArchiveWriter, DeviceRange, check_device};
