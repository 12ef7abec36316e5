//! Makes a copy of a capture that can be shared: the same calls at the same times, without names, addresses and data.
//!
//! What is not known to be harmless is hashed with a key or zeroed; lengths stay. Payload of TCP and UDP is kept only
//! as part of a parsed RPC record. So the copy gives the same tables, listings and findings as the original, except
//! for names.

mod frames;
mod key;
mod others;
mod record;
mod scrub;
mod v3;
mod v4;

use crate::frame::{fragment, packet};
use crate::limits::WAITING_MAX;
use crate::path::Shortest;
use crate::source::Frame;
use crate::trace::{Call, Ends, Observer, Reply, Totals, Trace};
use crate::whole::Whole;
use key::Key;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// What a copy lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Frames with another link layer than the first.
    pub frames: u64,
    /// Records whose frames had to be written before the record was complete.
    pub late: u64,
}

pub struct Anonymiser<W: Write> {
    trace: Trace<Waiting<W>>,
}

/// Frames that wait until the records in them are complete.
struct Waiting<W> {
    key: Key,
    out: W,
    frames: VecDeque<Pending>,
    /// Number of the first of them.
    first: u64,
    bytes: usize,
    link: Option<i32>,
    counted: Arc<AtomicUsize>,
    left_out: LeftOut,
    failed: Option<io::Error>,
}

struct Pending {
    ns: i64,
    wire_len: u32,
    data: Vec<u8>,
    /// Where the payload of TCP or UDP ends.
    payload_end: usize,
    /// It has the link layer of the copy.
    kept: bool,
}

impl Pending {
    /// Memory in bytes: up to half of a grown queue is unused, and each allocation has some overhead.
    fn held(&self) -> usize {
        2 * size_of::<Pending>() + self.data.len() + 32
    }
}

impl<W: Write> Anonymiser<W> {
    /// Begins a copy that is written to `out` as pcap with nanoseconds.
    pub fn new(key: &[u8; 16], out: W) -> Self {
        let waiting = Waiting {
            key: Key::new(key),
            out,
            frames: VecDeque::new(),
            first: 1,
            bytes: 0,
            link: None,
            counted: Arc::default(),
            left_out: LeftOut::default(),
            failed: None,
        };
        Anonymiser { trace: Trace::new(waiting) }
    }

    /// Takes the next frame. Fails if the copy cannot be written.
    pub fn frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.trace.observer().push(frame);
        self.trace.frame(frame);
        self.trace.observer().write(WAITING_MAX)
    }

    /// Ends the copy. Fails if it cannot be written.
    pub fn finish(self) -> io::Result<(Totals, LeftOut, W)> {
        let (totals, mut waiting) = self.trace.finish();
        waiting.write(0)?;
        if waiting.link.is_none() {
            waiting.header(1)?;
        }
        waiting.out.flush()?;
        Ok((totals, waiting.left_out, waiting.out))
    }
}

impl<W: Write> Waiting<W> {
    fn push(&mut self, frame: &Frame<'_>) {
        let mut data = frame.data.to_vec();
        let payload = packet(frame).map(|packet| packet.payload).ok();
        let payload = payload.or_else(|| fragment(frame).map(|fragment| fragment.payload));
        let payload_end = payload.map_or(0, |payload| {
            let end = payload.as_ptr_range().end as usize;
            end.saturating_sub(frame.data.as_ptr() as usize).min(data.len())
        });
        frames::scrub(frame.link, &mut data, &self.key);
        if self.link.is_none()
            && let Err(e) = self.header(frame.link)
        {
            self.failed = Some(e);
        }
        let kept = self.link == Some(frame.link);
        let frame = Pending { ns: frame.ns, wire_len: frame.wire_len, data, payload_end, kept };
        self.bytes += frame.held();
        self.frames.push_back(frame);
    }

    fn header(&mut self, link: i32) -> io::Result<()> {
        self.link = Some(link);
        let words = [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 0x4_0000, link.cast_unsigned()];
        self.out.write_all(&words.map(u32::to_le_bytes).concat())
    }

    /// Writes frames until those that wait have at most this many bytes.
    fn write(&mut self, waiting_max: usize) -> io::Result<()> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        while self.bytes > waiting_max
            && let Some(frame) = self.frames.pop_front()
        {
            self.first += 1;
            self.bytes -= frame.held();
            if !frame.kept {
                self.left_out.frames += 1;
                continue;
            }
            let ns = u64::try_from(frame.ns).unwrap_or(0);
            let len = u32::try_from(frame.data.len()).unwrap_or(u32::MAX);
            let second = u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX);
            let head = [second, (ns % 1_000_000_000) as u32, len, frame.wire_len];
            self.out.write_all(&head.map(u32::to_le_bytes).concat())?;
            self.out.write_all(&frame.data)?;
        }
        Ok(())
    }

    /// Bytes of a record in a frame that is not written yet.
    fn place(&mut self, frame: u64, from_end: usize, len: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(frame.checked_sub(self.first)?).ok()?;
        let frame = self.frames.get_mut(at)?;
        let from = frame.payload_end.checked_sub(from_end)?;
        frame.data.get_mut(from..from + len)
    }
}

impl<W: Write> Observer for Waiting<W> {
    fn wants_whole(&self) -> Option<&Arc<AtomicUsize>> {
        Some(&self.counted)
    }

    fn whole(&mut self, mut record: Whole) {
        if !record.broken {
            record::record(&mut record.bytes, record.answers, &self.key);
        }
        let (mut marked, mut late) = (0, false);
        for piece in &record.pieces {
            let bytes = match piece.at {
                None => {
                    marked += piece.len;
                    &record.marks[marked - piece.len..marked]
                }
                Some(_) if record.broken => continue,
                Some(at) => &record.bytes[at..at + piece.len],
            };
            match self.place(piece.frame, piece.from_end, piece.len) {
                Some(place) => place.copy_from_slice(bytes),
                None => late = true,
            }
        }
        self.left_out.late += u64::from(late);
    }

    fn call(&mut self, _: Ends, _: &Call) {}
    fn reply(&mut self, _: Ends, _: &Call, _: &Reply) {}
    fn stall(&mut self, _: Ends, _: i64, _: i64) {}
    fn path(&mut self, _: Ends, _: [Option<Shortest>; 2]) {}
}
