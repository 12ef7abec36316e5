//! Compresses an archive while it is written.

use std::io::{self, Write};

use super::Compression;

pub struct Compressor<W: Write>(Inner<W>);

enum Inner<W: Write> {
    None(W),
    Gzip(flate2::write::GzEncoder<W>),
    Bzip2(bzip2::write::BzEncoder<W>),
    Xz(liblzma::write::XzEncoder<W>),
    Zstd(zstd::stream::write::Encoder<'static, W>),
}

/// The default level of `xz`.
const XZ_LEVEL: u32 = 6;

impl Compression {
    /// The compression that a file name's suffix asks for, as with GNU tar's `--auto-compress`.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Compression {
        let end = name.rsplit(|b| *b == b'.').next().unwrap_or_default();
        match end {
            b"gz" | b"tgz" | b"taz" => Compression::Gzip,
            b"bz2" | b"tbz" | b"tbz2" | b"tz2" => Compression::Bzip2,
            b"xz" | b"txz" => Compression::Xz,
            b"zst" | b"tzst" => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

impl<W: Write> Compressor<W> {
    /// Uses each format's default level.
    pub fn new(out: W, how: Compression) -> io::Result<Compressor<W>> {
        Ok(Compressor(match how {
            Compression::None => Inner::None(out),
            Compression::Gzip => {
                Inner::Gzip(flate2::write::GzEncoder::new(out, flate2::Compression::default()))
            }
            Compression::Bzip2 => Inner::Bzip2(bzip2::write::BzEncoder::new(out, bzip2::Compression::best())),
            Compression::Xz => Inner::Xz(liblzma::write::XzEncoder::new(out, XZ_LEVEL)),
            Compression::Zstd => {
                Inner::Zstd(zstd::stream::write::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?)
            }
        }))
    }

    /// Writes the rest, and returns the output.
    pub fn finish(self) -> io::Result<W> {
        let mut out = match self.0 {
            Inner::None(out) => out,
            Inner::Gzip(encoder) => encoder.finish()?,
            Inner::Bzip2(encoder) => encoder.finish()?,
            Inner::Xz(encoder) => encoder.finish()?,
            Inner::Zstd(encoder) => encoder.finish()?,
        };
        out.flush()?;
        Ok(out)
    }
}

impl<W: Write> Write for Compressor<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Inner::None(out) => out.write(buf),
            Inner::Gzip(encoder) => encoder.write(buf),
            Inner::Bzip2(encoder) => encoder.write(buf),
            Inner::Xz(encoder) => encoder.write(buf),
            Inner::Zstd(encoder) => encoder.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Inner::None(out) => out.flush(),
            Inner::Gzip(encoder) => encoder.flush(),
            Inner::Bzip2(encoder) => encoder.flush(),
            Inner::Xz(encoder) => encoder.flush(),
            Inner::Zstd(encoder) => encoder.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::open;
    use super::*;

    #[test]
    fn what_is_compressed_is_recognised_and_read_again() {
        let text = b"landfast ".repeat(5000);
        for (name, how) in [
            ("a.tar", Compression::None),
            ("a.tar.gz", Compression::Gzip),
            ("a.tbz2", Compression::Bzip2),
            ("a.tar.xz", Compression::Xz),
            ("a.b.tzst", Compression::Zstd),
        ] {
            assert_eq!(Compression::of_name(name.as_bytes()), how);
            let mut compressor = Compressor::new(Vec::new(), how).unwrap();
            compressor.write_all(&text).unwrap();
            let bytes = compressor.finish().unwrap();
            let (recognised, mut plain) = open(Box::new(io::Cursor::new(bytes))).unwrap();
            let mut again = Vec::new();
            plain.read_to_end(&mut again).unwrap();
            assert_eq!((recognised, again == text), (how, true), "{name}");
        }
    }
}
