//! Captures: as files, as frames, and as TCP segments with right headers. Nothing in them makes the reader panic, more replies than
//! calls are never found, what was found can be listed, and copied without names.

use landfast_trace::analysis::Analysis;
use landfast_trace::anonymise::Anonymiser;
use landfast_trace::listing;
use landfast_trace::source::{Capture, End, Frame};
use landfast_trace::table::Table;
use landfast_trace::trace::{Call, Ends, Observer, Reply, Shortest, Trace};

#[derive(Default)]
struct Seen {
    table: Table,
    analysis: Analysis,
    matched: u64,
}

impl Observer for Seen {
    fn stall(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        self.analysis.stall(ends, from_ns, to_ns);
    }

    fn moving(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        self.analysis.moving(ends, from_ns, to_ns);
    }
    fn path(&mut self, ends: Ends, shortest: [Option<Shortest>; 2]) {
        self.analysis.path(ends, shortest);
    }
    fn wants_detail(&self) -> bool {
        true
    }
    fn call(&mut self, ends: Ends, call: &Call) {
        assert!(!listing::call(0, ends, call).contains('\n'));
        self.analysis.call(ends, call);
    }
    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        assert!(!listing::reply(0, ends, call, reply).contains('\n'));
        assert_eq!(call.head.xid, reply.head.xid);
        self.table.add(call, reply);
        self.analysis.reply(ends, call, reply);
        self.matched += 1;
    }
}

/// The target.
pub fn trace(data: &[u8]) {
    let Some((&form, mut data)) = data.split_first() else { return };
    let mut trace = Trace::new(Seen::default());
    let mut copy = Anonymiser::new(&[1; 16], Vec::new());
    match form % 4 {
        0 => {
            if let Ok(mut capture) = Capture::open(std::io::Cursor::new(data.to_vec())) {
                let _ = capture.each(|frame| {
                    trace.frame(frame);
                    copy.frame(frame).expect("memory");
                });
            }
        }
        1 => {
            const LINKS: [i32; 8] = [0, 1, 12, 101, 108, 113, 276, 147];
            while let Some((&[link, len, more], rest)) = data.split_first_chunk() {
                let (frame, rest) = rest.split_at(rest.len().min(len.into()));
                let wire_len = u32::from(len) + u32::from(more);
                let link = LINKS[usize::from(link) % LINKS.len()];
                let frame = Frame { ns: 0, link, data: frame, wire_len };
                trace.frame(&frame);
                copy.frame(&frame).expect("memory");
                data = rest;
            }
        }
        form => {
            let mut next = [0u32, u32::MAX - 300];
            let mut ns = 0;
            while let Some((&[kind, len, off, missing], rest)) = data.split_first_chunk() {
                let (payload, rest) = rest.split_at(rest.len().min(len.into()));
                let up = usize::from(kind & 1);
                // In order, or off by something.
                let off = if form == 2 { 0 } else { i32::from(off.cast_signed()) << (kind >> 4) };
                let missing = if form == 2 { 0 } else { u32::from(missing) << (kind >> 4) };
                let seq = next[up].wrapping_add_signed(off);
                if off == 0 {
                    next[up] = next[up].wrapping_add(payload.len() as u32 + missing);
                }
                ns += i64::from(kind);
                let packet = packet(up == 1, kind & 6 == 6, seq, next[1 - up], payload, missing);
                let wire_len = packet.len() as u32 + missing;
                let frame = Frame { ns, link: 101, data: &packet, wire_len };
                trace.frame(&frame);
                copy.frame(&frame).expect("memory");
                data = rest;
            }
        }
    }
    let (totals, seen) = trace.finish();
    let (copied, left_out, file) = copy.finish().expect("memory");
    assert_eq!((copied.frames, copied.calls_seen), (totals.frames, totals.calls_seen));
    if totals.frames > left_out.frames {
        let mut capture = Capture::open(std::io::Cursor::new(file)).expect("a capture");
        let mut frames = 0;
        let end = capture.each(|_| frames += 1).expect("frames");
        assert_eq!((end, frames), (End::Whole, totals.frames - left_out.frames));
    }
    assert!(totals.calls_matched + totals.calls_unmeasured <= totals.calls_seen);
    assert!(totals.calls_matched <= seen.matched);
    let found = seen.analysis.finish();
    let span: f64 = found.pairs.iter().map(|pair| pair.span_s).sum();
    for (_, part) in found.shares.parts() {
        assert!(part >= 0.0 && part <= span * 1.001 + 1e-3, "{part} of {span}");
    }
    for (place, row) in seen.table.rows() {
        assert!(!place.name().is_empty() && row.calls > 0 && row.min_ns <= row.avg_ns());
        assert!(row.avg_ns() <= row.max_ns && row.percentile_ns(50.0) <= row.percentile_ns(99.0));
    }
}

fn packet(up: bool, syn: bool, seq: u32, ack: u32, payload: &[u8], missing: u32) -> Vec<u8> {
    let total = (40 + payload.len() as u32 + missing).min(65535) as u16;
    let (from, to) = if up { (2, 1) } else { (1, 2) };
    let mut out = vec![0x45, 0];
    out.extend(total.to_be_bytes());
    out.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to, 3, from, 3, to]);
    out.extend(seq.to_be_bytes());
    out.extend(ack.to_be_bytes());
    out.extend([0x50, if syn { 0x12 } else { 0x10 }, 1, 0, 0, 0, 0, 0]);
    out.extend(payload);
    out
}
