//! Reads captures from files, also compressed ones, and from what an incomplete compressed file still has.

use landfast_client::archive::{self, ArchiveError, Compression};
use landfast_trace::source::{Capture, End, Frame, SourceError};
use parking_lot::Mutex;
use std::error::Error;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state of the readers below the capture.
#[derive(Default)]
struct ReadState {
    /// Reading the file itself has failed.
    failed: AtomicBool,
    /// How decompression ended too early.
    end: Mutex<Option<End>>,
}

struct Raw {
    inner: Box<dyn Read + Send>,
    state: Arc<ReadState>,
}

impl Read for Raw {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf);
        if read.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::Interrupted) {
            self.state.failed.store(true, Ordering::Relaxed);
        }
        read
    }
}

/// The decompressed file, as far as it can be decompressed.
struct Plain {
    inner: Box<dyn Read + Send>,
    state: Arc<ReadState>,
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
            Err(e) if self.state.failed.load(Ordering::Relaxed) => Err(e),
            Err(e) => {
                let cut = e.kind() == io::ErrorKind::UnexpectedEof;
                let end = if cut { End::CutOff } else { End::Damaged(self.bytes) };
                *self.state.end.lock() = Some(end);
                Ok(0)
            }
        }
    }
}

pub(super) struct Input {
    capture: Capture,
    state: Arc<ReadState>,
}

impl Input {
    pub(super) fn open(file: &Path) -> Result<Input, Box<dyn Error>> {
        let state = Arc::new(ReadState::default());
        let raw = Raw { inner: crate::input::open(file)?, state: state.clone() };
        let opened = archive::open(Box::new(raw));
        let (compression, inner) = opened.map_err(|e| match e {
            ArchiveError::Io(e) => Box::<dyn Error>::from(e),
            e => e.into(),
        })?;
        let capture = match compression {
            Compression::None => Capture::open(inner)?,
            _ => Capture::open(Plain { inner, state: state.clone(), bytes: 0 }).map_err(|e| match e {
                SourceError::Empty if state.end.lock().is_some() => Box::<dyn Error>::from(
                    "its compression is cut off or damaged before the first frame is whole",
                ),
                e => e.into(),
            })?,
        };
        Ok(Input { capture, state })
    }

    pub(super) fn each(&mut self, f: impl FnMut(&Frame<'_>)) -> Result<End, SourceError> {
        let end = self.capture.each(f)?;
        Ok(self.state.end.lock().unwrap_or(end))
    }

    /// Frames whose link layer or length is unknown.
    pub(super) fn strange(&self) -> u64 {
        self.capture.strange()
    }
}
