//! Overwrites a few files again and again: unstable writes and COMMITs as a kernel client makes them, some stable writes and
//! truncations, and sometimes more data than the log takes at once.

use super::model::{Kind, Model};
use super::workload::Workload;
use crate::serial::{Action, Change};
use landfast_verify::rng::Rng;
use landfast_xdr::Bytes;
use std::collections::VecDeque;

const FILES: u64 = 6;

/// Where writes to a small file begin at most, in bytes.
const OFFSET_MAX: u64 = 60_000;

/// Bytes of one write to the large file, and how many of them come together: more than a COMMIT copies into the log.
const LARGE_WRITE_BYTES: u64 = 128 << 10;
const LARGE_WRITES: u64 = 11;

pub struct Overwrite {
    rng: Rng,
    queue: VecDeque<Action>,
}

impl Overwrite {
    /// The same seed and the same tree give the same sequence.
    pub fn new(seed: u64) -> Self {
        Overwrite { rng: Rng::new(seed), queue: VecDeque::new() }
    }

    fn data(&mut self, len: u64) -> Bytes {
        let mut data = vec![0; len as usize];
        self.rng.fill(&mut data);
        data.into()
    }

    fn write(&mut self, path: &[u8], offset: u64, len: u64, stable: bool) -> Action {
        Action::Write { path: path.to_vec(), offset, data: self.data(len), stable }
    }

    /// Many large writes, and what makes them stable.
    fn large(&mut self, path: &[u8]) {
        for n in 0..LARGE_WRITES {
            let write = self.write(path, n * LARGE_WRITE_BYTES, LARGE_WRITE_BYTES, false);
            self.queue.push_back(write);
        }
        self.queue.push_back(Action::Commit { path: path.to_vec() });
        // Over the data that the COMMIT has just moved to its place.
        let offset = self.rng.below(LARGE_WRITES * LARGE_WRITE_BYTES);
        let write = self.write(path, offset, 5000, true);
        self.queue.push_back(write);
    }
}

impl Workload for Overwrite {
    fn next(&mut self, model: &Model) -> Action {
        if let Some(action) = self.queue.pop_front() {
            return action;
        }
        let path = format!("f{}", self.rng.below(FILES)).into_bytes();
        let Some(Kind::File(contents)) = model.find(&path).and_then(|id| model.object(id)).map(|o| &o.kind)
        else {
            let len = 1 + self.rng.below(OFFSET_MAX);
            let write = self.write(&path, 0, len, true);
            self.queue.extend([write, Action::Close { path: path.clone() }]);
            return Action::Create { path, mode: 0o644 };
        };
        let dirty = !contents.pending.is_empty();
        let (offset, len) = (self.rng.below(OFFSET_MAX), 1 + self.rng.below(16_000));
        match self.rng.below(100) {
            0..=2 if path == b"f0" => {
                self.large(&path);
                self.next(model)
            }
            3..=7 => {
                let size = Some(self.rng.below(OFFSET_MAX + 16_000));
                Action::Set { path, change: Change { size, ..Change::default() } }
            }
            8..=24 => self.write(&path, offset, len, true),
            25..=49 if dirty => Action::Commit { path },
            _ => self.write(&path, offset, len, false),
        }
    }

    fn interrupt(&mut self) {
        self.queue.clear();
    }
}
