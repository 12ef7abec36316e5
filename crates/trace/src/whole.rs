//! Collects whole records together with the frames that contained their bytes, for code that rewrites these bytes. No
//! I/O.

use crate::limits::{WHOLE_ALL_MAX, WHOLE_MAX};
use crate::skim::Kind;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a record that were in one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Number of the frame in the capture, from 1.
    pub frame: u64,
    /// Where they begin, in bytes before the end of the captured payload.
    pub from_end: usize,
    pub len: usize,
    /// Offset in the record. `None`: they belong to a record mark.
    pub at: Option<usize>,
}

/// Memory of a piece in a vector that has grown.
const PIECE_BYTES: usize = 2 * size_of::<Piece>();

#[derive(Debug, Default)]
pub struct Whole {
    /// Where its bytes were.
    pub pieces: Vec<Piece>,
    /// Its record marks.
    pub marks: Vec<u8>,
    /// Its bytes without record marks; zeros where they were not captured. Very long records are truncated.
    pub bytes: Vec<u8>,
    /// For a reply: the call that it answers.
    pub answers: Option<Kind>,
    /// The record is incomplete, or not an RPC message.
    pub broken: bool,
}

/// Fed bytes that are not consumed yet, and the record that they belong to.
#[derive(Debug)]
pub(crate) struct Gathered {
    fed: VecDeque<Fed>,
    record: Whole,
    len: usize,
    /// The part of `all` that this record accounts for.
    counted: usize,
    done: Vec<Whole>,
    /// Bytes of memory held by all incomplete records.
    all: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Fed {
    frame: u64,
    from_end: usize,
    bytes: Vec<u8>,
    used: usize,
}

impl Gathered {
    /// `all` counts the memory of all of them.
    pub fn new(all: Arc<AtomicUsize>) -> Self {
        let (fed, record) = (VecDeque::new(), Whole::default());
        Gathered { fed, record, len: 0, counted: 0, done: Vec::new(), all }
    }

    pub fn feed(&mut self, frame: u64, bytes: &[u8]) {
        self.fed.push_back(Fed { frame, from_end: bytes.len(), bytes: bytes.to_vec(), used: 0 });
    }

    /// The next `n` bytes belong to no record.
    pub fn pass(&mut self, n: usize) {
        self.take(n, |_, _, _, _| {});
    }

    /// The next `n` bytes belong to a record mark.
    pub fn mark(&mut self, n: usize) {
        self.take(n, |this, frame, from_end, bytes| {
            if this.counts(PIECE_BYTES + bytes.len()) {
                this.record.pieces.push(Piece { frame, from_end, len: bytes.len(), at: None });
                this.record.marks.extend_from_slice(bytes);
            }
        });
    }

    /// The next `n` bytes belong to a record.
    pub fn record(&mut self, n: usize) {
        self.take(n, |this, frame, from_end, bytes| {
            let at = Some(this.len);
            if this.has_room(bytes.len(), PIECE_BYTES) {
                this.record.pieces.push(Piece { frame, from_end, len: bytes.len(), at });
                this.record.bytes.extend_from_slice(bytes);
            }
            this.len += bytes.len();
        });
    }

    /// Whether `n` more bytes may be held, which takes `more` memory besides. A truncated record stays truncated.
    fn has_room(&mut self, n: usize, more: usize) -> bool {
        let cut = self.len > self.record.bytes.len();
        // A growing vector may have up to twice the needed capacity.
        !cut && self.len.saturating_add(n) <= WHOLE_MAX && self.counts(2 * n + more)
    }

    /// Reserves memory from the common limit, if available.
    fn counts(&mut self, bytes: usize) -> bool {
        let fits = self.all.load(Ordering::Relaxed).saturating_add(bytes) <= WHOLE_ALL_MAX;
        if fits {
            self.all.fetch_add(bytes, Ordering::Relaxed);
            self.counted += bytes;
        }
        fits
    }

    /// A hole of `n` bytes in the record.
    pub fn hole(&mut self, n: u64) {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        if self.has_room(n, 0) {
            self.record.bytes.resize(self.record.bytes.len() + n, 0);
        }
        self.len = self.len.saturating_add(n);
    }

    fn take(&mut self, mut n: usize, mut f: impl FnMut(&mut Self, u64, usize, &[u8])) {
        while n > 0 {
            let Some(mut fed) = self.fed.pop_front() else { return };
            let some = n.min(fed.bytes.len() - fed.used);
            f(self, fed.frame, fed.from_end - fed.used, &fed.bytes[fed.used..fed.used + some]);
            fed.used += some;
            n -= some;
            if fed.used < fed.bytes.len() {
                self.fed.push_front(fed);
            }
        }
    }

    /// Drops the bytes that are not consumed yet.
    pub fn forget_fed(&mut self) {
        self.fed.clear();
    }

    /// The record is complete, or never will be.
    pub fn end(&mut self, answers: Option<Kind>, broken: bool) {
        let record = std::mem::take(&mut self.record);
        self.all.fetch_sub(std::mem::take(&mut self.counted), Ordering::Relaxed);
        self.len = 0;
        if !record.pieces.is_empty() {
            self.done.push(Whole { answers, broken, ..record });
        }
    }

    pub fn done(&mut self) -> std::vec::Drain<'_, Whole> {
        self.done.drain(..)
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
    }
}
