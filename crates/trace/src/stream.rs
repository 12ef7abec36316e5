//! Splits one direction of a connection into RPC records (RFC 5531 section 11). No I/O.
//!
//! If the record marks are lost (the capture began later, or bytes are missing), it searches for the next record mark
//! with a plausible header after it.

use crate::limits::{HELD_IDLE_MAX, PIECE_MAX, RECORD_MAX, SEARCHED_MAX};
use crate::skim::facts::WantedFiles;
use crate::skim::{Head, Kind, Progress, Skim, plausible};
use crate::whole::{Gathered, Whole};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Identifies a frame and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Nanoseconds since 1970.
    pub ns: i64,
    /// Number of the frame in the capture, from 1.
    pub frame: u64,
    /// Nanoseconds since the frame before.
    pub gap_ns: i64,
    /// The frame's length on the wire.
    pub wire_len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Time of the segment with the first byte.
    pub first: Stamp,
    /// Time of the segment that completed the message. `None`: its end is not in the capture.
    pub last: Option<Stamp>,
    /// The capture misses bytes of it because frames were truncated.
    pub cut: bool,
    /// Its length in bytes.
    pub bytes: u64,
    /// Nanoseconds in which the sender waited for acknowledgements within the message.
    pub paused_ns: i64,
    /// Further nanoseconds on a slow link: before its first byte was captured, and after its last.
    pub on_line_ns: [i64; 2],
}

impl Times {
    /// The stamp that service times are measured from and to: the last segment or, if frames were truncated, the
    /// first, as tshark does.
    pub fn counted(&self) -> Option<Stamp> {
        if self.cut { Some(self.first) } else { self.last }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub head: Head,
    pub times: Times,
}

#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub detail: bool,
    pub asked: Option<&'a dyn WantedFiles>,
    /// Keep the bytes of records as well; this counts the bytes held.
    pub whole: Option<&'a Arc<AtomicUsize>>,
}

/// What a stream needs and where its output goes.
pub(crate) struct Around<'a> {
    /// Finds the call that a reply in this direction would answer.
    pub known: &'a dyn Fn(u32) -> Option<Kind>,
    pub out: &'a mut Vec<Message>,
    pub wish: Wish<'a>,
    /// The range of pauses, in nanoseconds, in which a sender waits for acknowledgements.
    pub pauses: Range<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The next bytes are a record mark.
    Mark,
    /// The next bytes belong to a fragment.
    Fragment,
    /// The position within the records is unknown.
    Search,
}

#[derive(Debug, Default)]
struct Record {
    skim: Skim,
    /// Bytes held until more arrive.
    held: Vec<u8>,
    /// Bytes of data still to come.
    data: u64,
    bytes: u64,
    begun: bool,
    enough: bool,
    cut: bool,
    open_end: bool,
    first: Stamp,
    last: Stamp,
    paused_ns: i64,
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    mode: Mode,
    mark: [u8; 4],
    marked: usize,
    mark_at: Stamp,
    left: u32,
    last_fragment: bool,
    record: Record,
    /// The end of the searched bytes, in which a record may begin.
    tail: Vec<u8>,
    searched: u64,
    /// Records that were read at least to their headers.
    pub records: u64,
    /// How often the position within the records was lost.
    pub lost: u64,
    gathered: Option<Box<Gathered>>,
}

impl Stream {
    /// `at_beginning`: the connection starts here, so a record mark comes first.
    pub fn new(at_beginning: bool) -> Self {
        Stream {
            mode: if at_beginning { Mode::Mark } else { Mode::Search },
            mark: [0; 4],
            marked: 0,
            mark_at: Stamp::default(),
            left: 0,
            last_fragment: false,
            record: Record::default(),
            tail: Vec::new(),
            searched: 0,
            records: 0,
            lost: 0,
            gathered: None,
        }
    }

    /// Another connection begins.
    pub fn begin(&mut self, at_beginning: bool) {
        let gathered = self.gathered.take().map(|mut gathered| {
            gathered.forget_fed();
            gathered.end(None, true);
            gathered
        });
        *self = Stream { gathered, ..Stream::new(at_beginning) };
    }

    /// Since when a message is incomplete. `None`: there is none, or fewer than `bytes_min` bytes of it are there.
    pub fn inside_since_ns(&self, bytes_min: u64) -> Option<i64> {
        let inside = self.mode == Mode::Fragment && self.record.begun && self.record.bytes >= bytes_min;
        inside.then_some(self.record.first.ns)
    }

    /// Whether it searches for the beginning of a record.
    pub fn searches(&self) -> bool {
        self.mode == Mode::Search
    }

    pub fn whole(&mut self, mut f: impl FnMut(Whole)) {
        if let Some(gathered) = &mut self.gathered {
            gathered.done().for_each(&mut f);
        }
    }

    pub fn end(&mut self) {
        if let Some(gathered) = &mut self.gathered {
            gathered.end(None, true);
        }
    }

    fn gather(&mut self, f: impl FnOnce(&mut Gathered)) {
        if let Some(gathered) = &mut self.gathered {
            f(gathered);
        }
    }

    /// Bytes of memory held until more data arrives.
    pub fn held(&self) -> usize {
        self.record.held.capacity() + self.tail.capacity() + self.record.skim.held()
    }

    /// Drops what is held until more data arrives.
    pub fn let_go(&mut self) {
        if !self.record.held.is_empty() || self.record.skim.held() > 0 {
            self.record.stop();
            self.record.skim.let_go();
        }
        self.record.held = Vec::new();
        self.tail = Vec::new();
        self.gather(Gathered::forget_fed);
    }

    /// How many of the next bytes are skipped whatever they are.
    pub fn indifferent(&self) -> u64 {
        match self.mode {
            _ if self.gathered.is_some() => 0,
            Mode::Fragment if self.record.enough && self.record.begun => self.left.into(),
            Mode::Fragment => self.record.data.min(self.left.into()),
            _ => 0,
        }
    }

    pub fn feed(&mut self, bytes: &[u8], at: Stamp, around: &mut Around<'_>) {
        if let Some(all) = around.wish.whole {
            self.gathered.get_or_insert_with(|| Box::new(Gathered::new(all.clone()))).feed(at.frame, bytes);
        }
        if self.mode == Mode::Search {
            self.searched = self.searched.saturating_add(bytes.len() as u64);
        }
        if self.tail.is_empty() {
            self.run(bytes, at, around);
        } else {
            let mut joined = std::mem::take(&mut self.tail);
            joined.extend_from_slice(bytes);
            self.run(&joined, at, around);
        }
    }

    fn run(&mut self, mut bytes: &[u8], at: Stamp, around: &mut Around<'_>) {
        while !bytes.is_empty() {
            match self.mode {
                Mode::Search => match self.find(bytes, around.known) {
                    Some(from) => {
                        self.gather(|g| g.pass(from));
                        self.mode = Mode::Mark;
                        bytes = &bytes[from..];
                    }
                    None => {
                        let passed = bytes.len() - self.tail.len();
                        self.gather(|g| g.pass(passed));
                        return;
                    }
                },
                Mode::Mark => {
                    if self.marked == 0 {
                        self.mark_at = at;
                    }
                    let n = bytes.len().min(4 - self.marked);
                    self.mark[self.marked..self.marked + n].copy_from_slice(&bytes[..n]);
                    self.marked += n;
                    if self.marked < 4 {
                        self.gather(|g| g.mark(n));
                        return;
                    }
                    let mark = u32::from_be_bytes(self.mark);
                    if !self.begin_fragment(mark, around) {
                        self.out_of_step();
                        // A call could begin right here.
                        continue;
                    }
                    self.gather(|g| g.mark(n));
                    if self.left == 0 {
                        self.end_fragment(around);
                    }
                    bytes = &bytes[n..];
                }
                Mode::Fragment => {
                    let n = bytes.len().min(self.left as usize);
                    let ends = self.last_fragment && n == self.left as usize;
                    if !self.record.push(&bytes[..n], ends, at, around) {
                        self.out_of_step();
                        continue;
                    }
                    self.gather(|g| g.record(n));
                    bytes = &bytes[n..];
                    self.left -= u32::try_from(n).unwrap_or(self.left);
                    self.end_fragment(around);
                }
            }
        }
    }

    /// A hole of `len` bytes. `at` is set if the frame that contained them was truncated.
    pub fn hole(&mut self, mut len: u64, at: Option<Stamp>, around: &mut Around<'_>) {
        while len > 0 {
            match self.mode {
                Mode::Search => {
                    self.tail.clear();
                    self.gather(Gathered::forget_fed);
                    return;
                }
                Mode::Mark => {
                    self.lose();
                    return;
                }
                Mode::Fragment => {
                    let n = len.min(self.left.into());
                    self.record.hole(n, at, &around.pauses);
                    self.gather(|g| g.hole(n));
                    len -= n;
                    self.left -= u32::try_from(n).unwrap_or(self.left);
                    self.end_fragment(around);
                }
            }
        }
    }

    /// Bytes that are there, but that [`Stream::indifferent`] said do not matter.
    pub fn pass(&mut self, len: u32, at: Stamp, around: &mut Around<'_>) {
        if u64::from(len) > self.indifferent() {
            self.hole(len.into(), None, around);
            return;
        }
        self.record.seen(at, &around.pauses);
        self.record.bytes += u64::from(len);
        self.record.open_end = false;
        self.record.data = self.record.data.saturating_sub(len.into());
        self.left -= len;
        self.end_fragment(around);
    }

    fn begin_fragment(&mut self, mark: u32, around: &mut Around<'_>) -> bool {
        self.marked = 0;
        self.left = mark & 0x7fff_ffff;
        self.last_fragment = mark >> 31 == 1;
        if !self.record.begun {
            self.record.begin(self.mark_at, around.wish.detail);
        }
        if self.left > RECORD_MAX || self.record.bytes + u64::from(self.left) > RECORD_MAX.into() {
            return false;
        }
        self.mode = Mode::Fragment;
        true
    }

    fn end_fragment(&mut self, around: &mut Around<'_>) {
        if self.left > 0 {
            return;
        }
        self.mode = Mode::Mark;
        if !self.last_fragment {
            return;
        }
        let message = self.record.end();
        if let Some(gathered) = &mut self.gathered {
            let answers = match &message {
                Some(Message { head: Head::Reply(reply), .. }) => (around.known)(reply.xid),
                _ => None,
            };
            gathered.end(answers, message.is_none());
        }
        if let Some(message) = message {
            self.records += 1;
            self.searched = 0;
            around.out.push(message);
        }
    }

    /// The position within the records is lost.
    pub fn lose(&mut self) {
        self.gather(Gathered::forget_fed);
        self.out_of_step();
    }

    fn out_of_step(&mut self) {
        self.gather(|g| g.end(None, true));
        if self.mode != Mode::Search {
            self.lost += 1;
        }
        self.mode = Mode::Search;
        self.marked = 0;
        self.tail.clear();
        self.record.forget();
    }

    /// Searches for the beginning of a record. What is too short to decide is kept for the next bytes.
    fn find(&mut self, bytes: &[u8], known: &dyn Fn(u32) -> Option<Kind>) -> Option<usize> {
        let tried = if self.searched > SEARCHED_MAX { 1 } else { bytes.len() };
        for from in 0..tried {
            match plausible(&bytes[from..], RECORD_MAX, known) {
                Some(true) => return Some(from),
                Some(false) => {}
                None => {
                    self.tail.extend_from_slice(&bytes[from..]);
                    return None;
                }
            }
        }
        None
    }
}

impl Record {
    fn begin(&mut self, at: Stamp, detail: bool) {
        self.forget();
        self.skim = Skim::new(detail);
        self.begun = true;
        self.first = at;
        self.last = at;
        self.paused_ns = 0;
    }

    fn forget(&mut self) {
        self.held.clear();
        self.held.shrink_to(HELD_IDLE_MAX);
        (self.data, self.bytes) = (0, 0);
        (self.begun, self.enough, self.cut, self.open_end) = (false, false, false, false);
    }

    fn seen(&mut self, at: Stamp, pauses: &Range<i64>) {
        let gap = at.ns.saturating_sub(self.last.ns);
        if pauses.contains(&gap) {
            self.paused_ns = self.paused_ns.saturating_add(gap);
        }
        if at.ns < self.first.ns {
            self.first = at;
        }
        if at.ns >= self.last.ns {
            self.last = at;
        }
    }

    /// Takes bytes. `false`: not an RPC message.
    fn push(&mut self, bytes: &[u8], ends: bool, at: Stamp, around: &Around<'_>) -> bool {
        let (known, asked) = (around.known, around.wish.asked);
        self.seen(at, &around.pauses);
        self.open_end = false;
        self.bytes += bytes.len() as u64;
        if self.enough {
            return true;
        }
        if self.held.is_empty() {
            let Some(done) = self.read(bytes, ends, known, asked) else { return false };
            self.held.extend_from_slice(&bytes[done..]);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(bytes);
            let Some(done) = self.read(&held, ends, known, asked) else { return false };
            held.drain(..done);
            self.held = held;
        }
        if self.held.len() > PIECE_MAX {
            self.stop();
        }
        true
    }

    /// Reads as far as possible and returns how far. `None`: not an RPC message.
    fn read(
        &mut self,
        bytes: &[u8],
        ends: bool,
        known: &dyn Fn(u32) -> Option<Kind>,
        asked: Option<&dyn WantedFiles>,
    ) -> Option<usize> {
        let mut at = 0;
        loop {
            let data = usize::try_from(self.data).unwrap_or(usize::MAX).min(bytes.len() - at);
            at += data;
            self.data -= data as u64;
            if self.data > 0 {
                return Some(at);
            }
            match self.skim.advance(&bytes[at..], ends, known, asked) {
                Progress::Used(n) => at += n,
                Progress::Data(n, data) => {
                    at += n;
                    self.data = data;
                }
                Progress::More => return Some(at),
                Progress::Enough => {
                    self.enough = true;
                    return Some(bytes.len());
                }
                Progress::Strange => return None,
            }
        }
    }

    fn hole(&mut self, len: u64, at: Option<Stamp>, pauses: &Range<i64>) {
        self.bytes += len;
        match at {
            Some(at) => {
                self.seen(at, pauses);
                self.cut = true;
            }
            None => self.open_end = true,
        }
        if self.enough || self.data >= len {
            self.data = self.data.saturating_sub(len);
        } else {
            self.stop();
        }
    }

    /// Reads no more of the record.
    fn stop(&mut self) {
        self.skim.blind(&self.held);
        self.held = Vec::new();
        self.data = 0;
        self.enough = true;
    }

    fn end(&mut self) -> Option<Message> {
        let head = self.skim.finish();
        let message = head.map(|head| Message {
            head,
            times: Times {
                first: self.first,
                last: (!self.open_end).then_some(self.last),
                cut: self.cut,
                bytes: self.bytes,
                paused_ns: self.paused_ns,
                on_line_ns: [0; 2],
            },
        });
        self.forget();
        message
    }
}
