//! Captures out of files: also compressed, and what a compression that ends early leaves of them.

use landfast_client::archive::{self, ArchiveError, Compression};
use landfast_trace::source::{Capture, End, Frame, SourceError};
use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What the readers below the capture have seen.
#[derive(Default)]
struct Seen {
    /// The file itself could not be read on.
    failed: AtomicBool,
    /// Where decompression ended before its end.
    end: Mutex<Option<End>>,
}

impl Seen {
    fn ended(&self) -> Option<End> {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file as it is.
struct Raw {
    inner: Box<dyn Read + Send>,
    seen: Arc<Seen>,
}

impl Read for Raw {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf);
        if read.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::Interrupted) {
            self.seen.failed.store(true, Ordering::Relaxed);
        }
        read
    }
}

/// The file decompressed: up to where that goes.
struct Plain {
    inner: Box<dyn Read + Send>,
    seen: Arc<Seen>,
    bytes: u64,
}

impl Read for Plain {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buf) {
            Ok(n) => {
                self.bytes += n as u64;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Err(e),
            Err(e) if self.seen.failed.load(Ordering::Relaxed) => Err(e),
            Err(e) => {
                let cut = e.kind() == io::ErrorKind::UnexpectedEof;
                let end = if cut { End::CutOff } else { End::Damaged(self.bytes) };
                *self.seen.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
                Ok(0)
            }
        }
    }
}

/// A capture that is being read.
pub(super) struct Input {
    capture: Capture,
    seen: Arc<Seen>,
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub(super) fn open(file: &Path) -> Result<Input, Box<dyn Error>> {
        let seen = Arc::new(Seen::default());
        let inner: Box<dyn Read + Send> =
            if file == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(file)?) };
        let opened = archive::open(Box::new(Raw { inner, seen: seen.clone() }));
        let (compression, inner) = opened.map_err(|e| match e {
            ArchiveError::Io(e) => Box::<dyn Error>::from(e),
            e => e.into(),
        })?;
        let capture = match compression {
            Compression::None => Capture::open(inner)?,
            _ => Capture::open(Plain { inner, seen: seen.clone(), bytes: 0 }).map_err(|e| match e {
                SourceError::Empty if seen.ended().is_some() => Box::<dyn Error>::from(
                    "its compression is cut off or damaged before the first frame is whole",
                ),
                e => e.into(),
            })?,
        };
        Ok(Input { capture, seen })
    }

    /// Hands each frame to `f`, up to the end of what can be read.
    pub(super) fn each(&mut self, f: impl FnMut(&Frame<'_>)) -> Result<End, SourceError> {
        let end = self.capture.each(f)?;
        Ok(self.seen.ended().unwrap_or(end))
    }

    /// Frames that are there but cannot be told the link layer or the length of.
    pub(super) fn strange(&self) -> u64 {
        self.capture.strange()
    }
}
