//! Reading tar archives: v7, ustar, GNU and pax, plain or compressed; writing them, as pax. Blocking.
//!
//! ACLs are passed over. What is read is not trusted: sizes only bound loops, memory grows with bytes that are there, and
//! the reader returns names as they stand. [`Filter`] says which of them may be extracted.

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
pub use writer::{ArchiveWriter, DeviceRange, check_device};
