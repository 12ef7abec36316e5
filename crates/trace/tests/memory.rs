//! However a capture is made, reading it takes no more memory than the manual says. This is a program of its own with
//! one test, because it counts what the whole process allocates.

#[allow(dead_code)]
mod wire;

use landfast_nfs::v4::{ArgOp, CompoundArgs};
use landfast_nfs::{PROGRAM, v3};
use landfast_trace::analysis::Analysis;
use landfast_trace::source::{Capture, End, Frame};
use landfast_trace::table::Table;
use landfast_trace::trace::{Call, Ends, Observer, Reply, Shortest, Trace};
use landfast_xdr::{Bytes, Encode};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::{Wire, call, reply};

/// Bytes that are allocated, and the most since this was last set back.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn more(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: all that is asked for is asked of the system's allocator, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // For a moment both may exist.
        more(size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// The manual promises 64 MiB, which all limits together stay below (a test in `trace.rs`). Each of these captures
/// reaches only some of them.
const PROMISED: usize = 16 * MIB;

/// What `landfast trace` does with a capture.
struct Watch {
    table: Table,
    analysis: Analysis,
    detail: bool,
}

impl Observer for Watch {
    fn wants_detail(&self) -> bool {
        self.detail
    }
    fn call(&mut self, ends: Ends, call: &Call) {
        self.analysis.call(ends, call);
    }
    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        self.table.add(call, reply);
        self.analysis.reply(ends, call, reply);
    }
    fn stall(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        self.analysis.stall(ends, from_ns, to_ns);
    }
    fn moving(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        self.analysis.moving(ends, from_ns, to_ns);
    }
    fn path(&mut self, ends: Ends, shortest: [Option<Shortest>; 2]) {
        self.analysis.path(ends, shortest);
    }
}

/// Reads frames as they are made, and forgets them.
struct Reader {
    trace: Trace<Watch>,
    now: i64,
    connections: u16,
}

impl Reader {
    fn new(detail: bool) -> Self {
        let watch = Watch { table: Table::default(), analysis: Analysis::new(), detail };
        Reader { trace: Trace::new(watch), now: 1_000_000_000_000, connections: 0 }
    }

    /// Another connection of some client.
    fn connection(&mut self) -> Wire {
        self.connections += 1;
        let mut wire = Wire::new(1000 + self.connections);
        wire.addrs.0 = [10, 1, (self.connections % 100) as u8, 2];
        wire.seq = (1000, 1000);
        wire.segment = 60_000;
        self.open(&mut wire);
        wire
    }

    fn open(&mut self, wire: &mut Wire) {
        wire.now = self.now;
        wire.open();
        self.read(wire);
    }

    fn send(&mut self, wire: &mut Wire, up: bool, bytes: &[u8]) {
        wire.now = self.now;
        wire.send(up, bytes);
        self.read(wire);
    }

    fn read(&mut self, wire: &mut Wire) {
        self.now = wire.now;
        for captured in wire.frames.drain(..) {
            self.trace.frame(&captured.frame(1));
        }
    }
}

fn getattr(xid: u32) -> Vec<u8> {
    call(xid, PROGRAM, 3, v3::proc::GETATTR, &[0, 0, 0, 4, 1, 2, 3, 4])
}

/// A COMPOUND of as many operations as are remembered.
fn long_compound(xid: u32) -> Vec<u8> {
    let ops = vec![ArgOp::Putrootfh; 1024];
    let args = CompoundArgs { tag: Bytes::new(), minor_version: 1, announced: 1024, ops };
    call(xid, PROGRAM, 4, 1, &args.to_bytes())
}

/// Segments behind a hole which is filled but for the last of them.
fn holes(reader: &mut Reader) {
    for _ in 0..30 {
        let mut wire = reader.connection();
        reader.send(&mut wire, true, &getattr(1));
        let begun = wire.seq.0;
        let segments = 5000;
        wire.seq.0 = begun + 1;
        for n in 0..segments {
            // The last one has a hole before it.
            wire.seq.0 += u32::from(n + 1 == segments);
            reader.send(&mut wire, true, &[0]);
        }
        wire.seq.0 = begun;
        reader.send(&mut wire, true, &[0]);
    }
}

/// Many small calls behind a hole.
fn calls_behind_a_hole(reader: &mut Reader) {
    let mut wire = reader.connection();
    let first = getattr(0);
    let begun = wire.seq.0;
    wire.seq.0 = begun + first.len() as u32;
    let null = call(0, PROGRAM, 3, 0, &[]);
    let mut null = null.clone();
    // Without credentials it is smaller.
    null.truncate(4 + 24);
    null.extend([0; 16]);
    null[..4].copy_from_slice(&(0x8000_0000 | 40u32).to_be_bytes());
    for segment in 0..90u32 {
        let calls: Vec<u8> = (0..1000)
            .flat_map(|n| {
                null[4..8].copy_from_slice(&(segment * 1000 + n + 1).to_be_bytes());
                null.clone()
            })
            .collect();
        reader.send(&mut wire, true, &calls);
    }
    let behind = std::mem::replace(&mut wire.seq.0, begun);
    reader.send(&mut wire, true, &first);
    wire.seq.0 = behind;
}

/// Many calls at once on one connection after another, of which all but one are answered.
fn answered_calls(reader: &mut Reader) {
    for _ in 0..6 {
        let mut wire = reader.connection();
        for from in (0..15_000u32).step_by(500) {
            let calls: Vec<u8> = (from..from + 500).flat_map(getattr).collect();
            reader.send(&mut wire, true, &calls);
        }
        for from in (0..15_000u32).step_by(500) {
            let replies: Vec<u8> = (from.max(1)..from + 500).flat_map(|xid| reply(xid, &[0; 88])).collect();
            reader.send(&mut wire, false, &replies);
        }
    }
}

/// Many calls at once on one connection after another, none of which is answered.
fn forgotten_calls(reader: &mut Reader) {
    for _ in 0..8 {
        let mut wire = reader.connection();
        for from in (0..20_000u32).step_by(500) {
            let calls: Vec<u8> = (from..from + 500).flat_map(getattr).collect();
            reader.send(&mut wire, true, &calls);
        }
    }
}

/// Long COMPOUNDs that are not answered.
fn long_compounds(reader: &mut Reader) {
    let mut wire = reader.connection();
    (0..6000).for_each(|xid| reader.send(&mut wire, true, &long_compound(xid)));
}

/// Long COMPOUNDs that do not end.
fn unfinished_compounds(reader: &mut Reader) {
    for _ in 0..800 {
        let mut wire = reader.connection();
        let compound = long_compound(1);
        reader.send(&mut wire, true, &compound[..compound.len() - 4]);
    }
}

/// Connections on the same ports, each of which ends with calls that are not answered.
fn unanswered_calls(reader: &mut Reader) {
    for _ in 0..400 {
        let mut wire = reader.connection();
        let calls: Vec<u8> = (0..256).flat_map(getattr).collect();
        reader.send(&mut wire, true, &calls);
        wire.seq = (1_000_000, 1_000_000);
        reader.open(&mut wire);
    }
}

/// A file that is made and removed again and again, with a new handle each time.
fn lock_file(reader: &mut Reader) {
    let mut wire = reader.connection();
    let name = [&[0, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 4][..], b"lock"].concat();
    for from in (0..40_000u32).step_by(100) {
        let calls = (from..from + 100).flat_map(|xid| call(xid, PROGRAM, 3, v3::proc::LOOKUP, &name));
        let calls: Vec<u8> = calls.collect();
        reader.send(&mut wire, true, &calls);
        let found = |xid: u32| [&[0, 0, 0, 0, 0, 0, 0, 4][..], &xid.to_be_bytes(), &[0; 8]].concat();
        let replies: Vec<u8> = (from..from + 100).flat_map(|xid| reply(xid, &found(xid))).collect();
        reader.send(&mut wire, false, &replies);
    }
}

/// The most that was allocated while `f` ran, beyond what was allocated before.
fn most(f: impl FnOnce()) -> usize {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    f();
    MOST.load(Ordering::Relaxed) - before
}

/// A pcapng file with blocks of nearly as many bytes as may be, made while it is read.
struct LargeBlocks {
    head: Vec<u8>,
    left: usize,
}

impl LargeBlocks {
    fn new() -> Self {
        let mut head = Vec::new();
        for word in [0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28] {
            head.extend(word.to_le_bytes());
        }
        for word in [1u32, 20, 1, 0, 20] {
            head.extend(word.to_le_bytes());
        }
        // A block that is none of a frame.
        for word in [0x0bad_u32, 15 << 20] {
            head.extend(word.to_le_bytes());
        }
        LargeBlocks { head, left: (15 << 20) - 12 }
    }
}

impl Read for LargeBlocks {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.head.is_empty() {
            let n = buf.len().min(self.head.len());
            buf[..n].copy_from_slice(&self.head[..n]);
            self.head.drain(..n);
            return Ok(n);
        }
        let n = buf.len().min(self.left);
        buf[..n].fill(0);
        self.left -= n;
        if self.left == 0 && n > 0 {
            self.head = (15u32 << 20).to_le_bytes().to_vec();
            // And a frame.
            for word in [6u32, 36, 0, 0, 0, 4, 4, 0, 36] {
                self.head.extend(word.to_le_bytes());
            }
        }
        Ok(n)
    }
}

#[test]
fn no_capture_takes_more_memory_than_the_manual_says() {
    type Kind = (&'static str, fn(&mut Reader));
    let kinds: [Kind; 8] = [
        ("holes", holes),
        ("calls behind a hole", calls_behind_a_hole),
        ("answered calls", answered_calls),
        ("forgotten calls", forgotten_calls),
        ("long COMPOUNDs", long_compounds),
        ("unfinished COMPOUNDs", unfinished_compounds),
        ("unanswered calls", unanswered_calls),
        ("a lock file", lock_file),
    ];
    let mut failed = Vec::new();
    for detail in [false, true] {
        let mut reader = Reader::new(detail);
        let before = NOW.load(Ordering::Relaxed);
        for (name, make) in kinds {
            MOST.store(before, Ordering::Relaxed);
            make(&mut reader);
            let most = MOST.load(Ordering::Relaxed) - before;
            eprintln!("{name}, with detail {detail}: {:.1} MiB", most as f64 / MIB as f64);
            if most >= PROMISED {
                failed.push((name, most));
            }
        }
    }
    let mut frames = 0;
    let large = most(|| {
        let mut capture = Capture::open(LargeBlocks::new()).expect("a capture");
        let end = capture.each(|_: &Frame<'_>| frames += 1).expect("its end");
        assert_eq!((end, frames), (End::Whole, 1));
    });
    eprintln!("large blocks: {:.1} MiB", large as f64 / MIB as f64);
    if large >= 3 * MIB {
        failed.push(("large blocks", large));
    }
    assert!(failed.is_empty(), "{failed:?}");
}
