//! An anonymous temporary file: written at its end, read anywhere, gone with its process.
//!
//! Nothing is lost when it cannot be written, for example because the directory is full: what does not fit stays in memory, and
//! [`TempFile::trouble`] says so. What cannot be read back is an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::limits::OVERFLOW_BUFFER;

/// Where large temporary files go unless TMPDIR says otherwise. `/tmp` is memory on many systems.
const DIRECTORIES: [&str; 2] = ["/var/tmp", "/tmp"];

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum OverflowError {
    /// Not fatal.
    #[error(
        "cannot write to a temporary file in {dir}: {why}. What is remembered of the tree stays in memory instead; to bound it, \
         make room there, or set TMPDIR to a directory that has room"
    )]
    Write { dir: String, why: String },
    #[error("cannot read a temporary file in {dir} back: {why}. Set TMPDIR to a directory on another disk")]
    Read { dir: String, why: String },
}

#[derive(Debug)]
pub(crate) struct TempFile {
    dir: PathBuf,
    file: Option<File>,
    /// Bytes in the file. What follows them is in `buffer`.
    written: u64,
    buffer: Vec<u8>,
    /// The buffer is written when it is as large as this; and after that was possible.
    write_at: usize,
    write_usually_at: usize,
    trouble: Option<OverflowError>,
}

impl TempFile {
    /// A file in TMPDIR, or else in the first directory for temporary files that there is. It is made when it is needed.
    pub(crate) fn new() -> TempFile {
        let set = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let usual = || DIRECTORIES.map(PathBuf::from).into_iter().find(|dir| dir.is_dir());
        TempFile::in_dir(&set.or_else(usual).unwrap_or_else(std::env::temp_dir))
    }

    pub(crate) fn in_dir(dir: &Path) -> TempFile {
        TempFile {
            dir: dir.to_owned(),
            file: None,
            written: 0,
            buffer: Vec::new(),
            write_at: OVERFLOW_BUFFER,
            write_usually_at: OVERFLOW_BUFFER,
            trouble: None,
        }
    }

    /// A file that is written at once.
    #[cfg(test)]
    pub(crate) fn unbuffered() -> TempFile {
        TempFile { write_at: 1, write_usually_at: 1, ..TempFile::new() }
    }

    /// Where the next bytes go.
    pub(crate) fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Adds bytes at the end and returns where they are.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> u64 {
        let at = self.end();
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= self.write_at {
            self.write_buffer();
        }
        at
    }

    fn write_buffer(&mut self) {
        match self.write(&self.buffer, self.written) {
            Ok(file) => {
                self.file = file.or_else(|| self.file.take());
                self.written += self.buffer.len() as u64;
                self.buffer = Vec::new();
                self.write_at = self.write_usually_at;
            }
            Err(e) => {
                // There may be room later.
                self.write_at = self.buffer.len() * 2;
                self.trouble.get_or_insert(OverflowError::Write { dir: self.shown(), why: text(&e) });
            }
        }
    }

    /// Writes to the file, and returns it if it is new.
    fn write(&self, bytes: &[u8], at: u64) -> io::Result<Option<File>> {
        match &self.file {
            Some(file) => file.write_all_at(bytes, at).map(|()| None),
            None => {
                let file = tempfile::tempfile_in(&self.dir)?;
                file.write_all_at(bytes, at)?;
                Ok(Some(file))
            }
        }
    }

    /// Changes bytes that were written before.
    ///
    /// # Errors
    /// [`OverflowError::Read`] when they cannot be changed: what would be read back is no longer right.
    pub(crate) fn change(&mut self, at: u64, bytes: &[u8]) -> Result<(), OverflowError> {
        match at.checked_sub(self.written) {
            Some(at) => {
                self.buffer[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            None => self.write(bytes, at).map(drop).map_err(|e| self.unread(&e)),
        }
    }

    /// Fills `bytes` with what was appended at `at`. A record is either in the file or in the buffer.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), OverflowError> {
        match (at.checked_sub(self.written), &self.file) {
            (Some(at), _) => {
                bytes.copy_from_slice(&self.buffer[at as usize..at as usize + bytes.len()]);
                Ok(())
            }
            (None, Some(file)) => file.read_exact_at(bytes, at).map_err(|e| self.unread(&e)),
            (None, None) => Err(self.unread(&io::ErrorKind::NotFound.into())),
        }
    }

    /// Why something is in memory that should be in the file; once.
    pub(crate) fn trouble(&mut self) -> Option<OverflowError> {
        match &self.trouble {
            Some(OverflowError::Write { why, .. }) if !why.is_empty() => {
                let told = OverflowError::Write { dir: self.shown(), why: String::new() };
                self.trouble.replace(told)
            }
            _ => None,
        }
    }

    fn unread(&self, e: &io::Error) -> OverflowError {
        OverflowError::Read { dir: self.shown(), why: text(e) }
    }

    fn shown(&self) -> String {
        self.dir.display().to_string()
    }
}

fn text(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_comes_back_whether_written_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = TempFile::in_dir(dir.path());
        let pieces: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; OVERFLOW_BUFFER / 40 + n as usize]).collect();
        let at: Vec<u64> = pieces.iter().map(|piece| file.append(piece)).collect();
        assert!(file.written > 0 && !file.buffer.is_empty());
        for (piece, at) in pieces.iter().zip(&at) {
            let mut bytes = vec![0; piece.len()];
            file.read(*at, &mut bytes).unwrap();
            assert_eq!(&bytes, piece);
        }
        for at in [at[0], at[99]] {
            file.change(at, b"new").unwrap();
            let mut bytes = [0; 3];
            file.read(at, &mut bytes).unwrap();
            assert_eq!(&bytes, b"new");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
        assert!(file.trouble().is_none());
    }

    #[test]
    fn without_room_all_stays_in_memory_and_that_is_told_once() {
        let mut file = TempFile::in_dir(Path::new("/dev/null/none"));
        let at: Vec<u64> = (0..4u8).map(|n| file.append(&vec![n; OVERFLOW_BUFFER])).collect();
        for (n, at) in at.into_iter().enumerate() {
            let mut bytes = vec![9; OVERFLOW_BUFFER];
            file.read(at, &mut bytes).unwrap();
            assert_eq!(bytes, vec![n as u8; OVERFLOW_BUFFER]);
        }
        let told = file.trouble().unwrap().to_string();
        assert!(told.contains("/dev/null/none: Not a directory.") && told.contains("TMPDIR"), "{told}");
        assert!(file.trouble().is_none());
    }
}
