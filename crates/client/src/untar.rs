//! `untar`: extracts a tar archive onto a server, through [`crate::put`].

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use bytes::Bytes;

use crate::archive::{ArchiveError, ArchiveReader, Filter, is_plain, open};
use crate::put::{ArchiveSource, DataError, Members, OpenArchive, ReadCount, Source, SourceItem};
pub use crate::put::{run, run_as};
use crate::resume::{Digested, Resume};

/// An archive to extract, plain or compressed.
pub struct Archive {
    input: Input,
    filter: Filter,
}

enum Input {
    File(PathBuf),
    Reader(Box<dyn Read + Send>),
}

impl Archive {
    pub fn file(path: impl Into<PathBuf>) -> Archive {
        Archive { input: Input::File(path.into()), filter: Filter::default() }
    }

    /// An archive that can be read only once, such as standard input.
    pub fn reader(reader: impl Read + Send + 'static) -> Archive {
        Archive { input: Input::Reader(Box::new(reader)), filter: Filter::default() }
    }

    /// Extracts only the members that `filter` accepts, under the names that it gives.
    pub fn filtered(self, filter: Filter) -> Archive {
        Archive { filter, ..self }
    }
}

impl From<Archive> for Source {
    fn from(archive: Archive) -> Source {
        Source::archive(Box::new(archive))
    }
}

impl ArchiveSource for Archive {
    fn name(&self) -> String {
        match &self.input {
            Input::File(path) => path.display().to_string(),
            Input::Reader(_) => "-".to_owned(),
        }
    }

    fn filter(&self) -> Filter {
        self.filter.clone()
    }

    fn open(self: Box<Self>, resume: Option<&Resume>, read: ReadCount) -> Result<OpenArchive, ArchiveError> {
        let (input, size): (Box<dyn Read + Send>, _) = match self.input {
            Input::File(path) => {
                let mut file = File::open(path)?;
                let meta = file.metadata()?;
                let resumes = resume.is_some_and(Resume::has_earlier_run);
                if meta.is_file() && resumes && is_plain(&mut file)? {
                    let members = Box::new(ArchiveReader::seeking(Counted(file, read)));
                    return Ok(OpenArchive { members, size: Some(meta.len()), digest: None });
                }
                (Box::new(file), meta.is_file().then_some(meta.len()))
            }
            Input::Reader(input) => (input, None),
        };
        let (_, plain) = open(Box::new(Counted(input, read)))?;
        let digest = resume.filter(|_| size.is_none()).map(Resume::running);
        let members: Box<dyn Members> = match digest.clone() {
            None => Box::new(ArchiveReader::new(plain)),
            Some(running) => Box::new(ArchiveReader::new(Digested(plain, running))),
        };
        Ok(OpenArchive { members, size, digest })
    }
}

impl<R: Read + Send> Members for ArchiveReader<R> {
    fn next_member(&mut self) -> Result<Option<SourceItem>, ArchiveError> {
        Ok(ArchiveReader::next_member(self)?.map(SourceItem::Member))
    }

    fn data(&mut self, max: usize) -> Result<Bytes, DataError> {
        ArchiveReader::data(self, max).map_err(DataError::All)
    }
}

struct Counted<R>(R, ReadCount);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buf)?;
        self.1.add(n as u64);
        Ok(n)
    }
}

impl Seek for Counted<File> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = self.0.seek(to)?;
        // A seek to the end only finds out the size.
        if !matches!(to, SeekFrom::End(_)) {
            self.1.set(at);
        }
        Ok(at)
    }
}
