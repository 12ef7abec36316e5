//! Recognises compression by content.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek};

use super::ArchiveError;
use crate::limits::{ARCHIVE_READ_BUFFER, XZ_MEMORY_MAX};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    /// gzip (RFC 1952), one member or several.
    Gzip,
    /// bzip2, one stream or several.
    Bzip2,
    /// xz, one stream or several.
    Xz,
    /// Zstandard (RFC 8878), one frame or several.
    Zstd,
}

/// Length of the longest magic number below.
const MAGIC_MAX: usize = 6;

fn recognise(start: &[u8]) -> Result<Compression, ArchiveError> {
    Ok(match start {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Compression::Bzip2,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
        // A frame, or a skippable frame before one.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        [0x1f, 0x9d, ..] => return Err(ArchiveError::Compression("compress (.Z)")),
        [0x04, 0x22, 0x4d, 0x18, ..] => return Err(ArchiveError::Compression("lz4")),
        [b'L', b'Z', b'I', b'P', ..] => return Err(ArchiveError::Compression("lzip")),
        [0x5d, 0, 0, ..] => return Err(ArchiveError::Compression("lzma")),
        _ => Compression::None,
    })
}

/// Whether a file is not compressed. Afterwards the file is positioned at its start.
pub(crate) fn is_plain(file: &mut File) -> Result<bool, ArchiveError> {
    let mut start = Vec::with_capacity(MAGIC_MAX);
    (&mut *file).take(MAGIC_MAX as u64).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(recognise(&start)? == Compression::None)
}

/// Detects the compression from the first bytes of `input`, and returns a reader of the decompressed archive. Fails when
/// nothing can be read, or the compression is not supported.
pub fn open(mut input: Box<dyn Read + Send>) -> Result<(Compression, Box<dyn Read + Send>), ArchiveError> {
    let mut start = Vec::with_capacity(MAGIC_MAX);
    input.by_ref().take(MAGIC_MAX as u64).read_to_end(&mut start)?;
    let compression = recognise(&start)?;
    let input = BufReader::with_capacity(ARCHIVE_READ_BUFFER, Cursor::new(start).chain(input));
    let plain: Box<dyn Read + Send> = match compression {
        Compression::None => Box::new(input),
        Compression::Gzip => Box::new(buffered(flate2::bufread::MultiGzDecoder::new(input))),
        Compression::Bzip2 => Box::new(buffered(bzip2::bufread::MultiBzDecoder::new(input))),
        Compression::Xz => {
            let stream =
                liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_MAX, liblzma::stream::CONCATENATED)
                    .map_err(io::Error::from)?;
            Box::new(buffered(liblzma::bufread::XzDecoder::new_stream(input, stream)))
        }
        Compression::Zstd => Box::new(buffered(zstd::stream::read::Decoder::with_buffer(input)?)),
    };
    Ok((compression, plain))
}

/// Headers are read in small pieces, so buffer what the decompressor gives.
fn buffered<R: Read>(inner: R) -> BufReader<R> {
    BufReader::with_capacity(ARCHIVE_READ_BUFFER, inner)
}
