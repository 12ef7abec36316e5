//! Large files of which a part is durable.
//!
//! While a large file is written, the journal notes how many bytes are durable, and in which file: by its filehandle on a
//! server, by its identity on this machine. The next run continues there if three things hold: the source is unchanged, the
//! file still has its name, and it is not shorter. For an archive that cannot be read twice the journal also has the digest
//! up to there, and what the next run reads must have the same digest.

use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::FileHandle;

use super::file::Resume;
use super::key::Item;
use super::partial::PartialFile;
use crate::limits::JOURNAL_PART_BYTES;

/// A large file that is being written.
#[derive(Debug)]
pub(crate) struct Part {
    resume: Arc<Resume>,
    path: u64,
    object: u64,
    unfinished: Option<(FileHandle, u64)>,
    digest: Option<u64>,
    streamed: bool,
    noted: u64,
}

impl Part {
    pub(crate) fn new(resume: &Arc<Resume>, item: &Item, path: &[Bytes]) -> Part {
        let (number, object, streamed) = match item {
            Item::Member { number, digest } => {
                (resume.key.names(path.iter().map(|n| &n[..])), *number, digest.is_some())
            }
            Item::Object { path, object } => (*path, *object, false),
        };
        let unfinished = resume.unfinished_part((number, object), || path.join(&b'/'));
        let unfinished = unfinished.filter(|(_, unfinished)| unfinished.digest.is_some() == streamed);
        let digest = unfinished.as_ref().and_then(|(_, unfinished)| unfinished.digest);
        let unfinished = unfinished.map(|(fh, unfinished)| (fh, unfinished.upto));
        let noted = unfinished.as_ref().map_or(0, |(_, upto)| *upto);
        Part { resume: resume.clone(), path: number, object, unfinished, digest, streamed, noted }
    }

    /// The digest that the archive must have up to the end of the durable part.
    pub(crate) fn digest(&self) -> Option<u64> {
        self.digest
    }

    /// The file that an earlier run began, and how many bytes of it are durable.
    pub(crate) fn unfinished(&self) -> Option<(&FileHandle, u64)> {
        self.unfinished.as_ref().map(|(fh, upto)| (fh, *upto))
    }

    /// The offset at which to continue.
    pub(crate) fn from(&self) -> u64 {
        self.unfinished.as_ref().map_or(0, |(_, upto)| *upto)
    }

    /// Whether enough bytes are new since the last entry to write another one.
    pub(crate) fn is_due(&self, upto: u64) -> bool {
        upto >= self.noted + JOURNAL_PART_BYTES
    }

    /// Notes that all bytes before `upto` are durable in this file. `digest`: the archive's up to there, if it cannot be read
    /// twice.
    pub(crate) fn stable(&mut self, fh: &[u8], upto: u64, digest: Option<u64>) {
        if self.is_due(upto) && digest.is_some() == self.streamed {
            self.noted = upto;
            self.note(upto, fh.to_vec(), digest);
        }
    }

    /// Makes the next run start this file over.
    pub(crate) fn forget(&self) {
        self.note(0, Vec::new(), self.streamed.then_some(0));
    }

    fn note(&self, upto: u64, fh: Vec<u8>, digest: Option<u64>) {
        self.resume.note_part(self.path, PartialFile { object: self.object, upto, fh, digest });
    }
}
