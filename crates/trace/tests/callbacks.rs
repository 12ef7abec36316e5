//! What an NFSv4 server asks of its clients: counted, timed and asked for by operation, without a listing.

#[allow(dead_code)]
mod wire;

use landfast_trace::filter::{Counted, File, Filter, Procedure, Wanted};
use landfast_trace::table::{Item, Place, Row, Table};
use landfast_trace::trace::{Call, Ends, Observer, Reply, Shortest, Totals, Trace};
use wire::{Captured, Wire, call, reply};

/// RFC 8881 section 20: numbers of operations.
const RECALL: u32 = 4;
const LAYOUTRECALL: u32 = 5;
const RECALL_ANY: u32 = 8;
const SEQUENCE: u32 = 11;

const CALLBACKS: u32 = 0x4000_0000;
const MS: i64 = 1_000_000;

/// Asks for no lines.
#[derive(Default)]
struct Counts {
    table: Table,
    answered: Vec<u32>,
}

impl Observer for Counts {
    fn call(&mut self, _: Ends, call: &Call) {
        assert!(call.head.shown.is_empty());
    }
    fn reply(&mut self, _: Ends, call: &Call, reply: &Reply) {
        self.table.add(call, reply);
        self.answered.push(call.head.xid);
    }
    fn stall(&mut self, _: Ends, _: i64, _: i64) {}
    fn path(&mut self, _: Ends, _: [Option<Shortest>; 2]) {}
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn arguments(op: u32, handle: u8) -> Vec<u8> {
    let handle = [words(&[8]), vec![handle; 8]].concat();
    let rest = match op {
        SEQUENCE => words(&[9, 9, 9, 9, 2, 1, 0, 0, 0]),
        RECALL => [words(&[1, 1, 1, 1, 0]), handle].concat(),
        LAYOUTRECALL => [words(&[1, 2, 0, 1]), handle, words(&[0, 0, 0, 9, 1, 1, 1, 1])].concat(),
        RECALL_ANY => words(&[9, 1, 3]),
        _ => Vec::new(),
    };
    [words(&[op]), rest].concat()
}

fn callback(xid: u32, minor: u32, ops: &[u32], handle: u8) -> Vec<u8> {
    let body: Vec<u8> = ops.iter().flat_map(|op| arguments(*op, handle)).collect();
    call(xid, CALLBACKS, 1, 1, &[words(&[0, minor, 0, ops.len() as u32]), body].concat())
}

/// Of so many operations, the last with this status.
fn done(xid: u32, ops: &[u32], status: u32) -> Vec<u8> {
    let result = |(n, op): (usize, &u32)| {
        let status = if n + 1 == ops.len() { status } else { 0 };
        let more = if *op == SEQUENCE && status == 0 { 8 } else { 0 };
        words(&[&[*op, status][..], &vec![0; more]].concat())
    };
    let results: Vec<u8> = ops.iter().enumerate().flat_map(result).collect();
    reply(xid, &[words(&[status, 0, ops.len() as u32]), results].concat())
}

/// One callback after another, each answered after a millisecond more than the one before, on the connection of the client's calls.
fn capture(segment: usize) -> Vec<Captured> {
    let mut wire = Wire::new(700);
    wire.segment = segment;
    wire.open();
    let all: [(u32, &[u32], &[u32], u32); 6] = [
        (1, &[SEQUENCE, RECALL], &[SEQUENCE, RECALL], 0),
        (0, &[RECALL], &[RECALL], 0),
        (1, &[SEQUENCE, LAYOUTRECALL], &[SEQUENCE, LAYOUTRECALL], 10060),
        (1, &[SEQUENCE, RECALL_ANY], &[SEQUENCE, RECALL_ANY], 0),
        // It has no slot for this one.
        (1, &[SEQUENCE, RECALL], &[SEQUENCE], 10053),
        (1, &[SEQUENCE], &[SEQUENCE], 0),
    ];
    for (xid, (minor, asked, carried_out, status)) in (1..).zip(all) {
        wire.send(false, &callback(xid, minor, asked, xid as u8));
        wire.wait(i64::from(xid) * MS - wire.gap);
        wire.send(true, &done(xid, carried_out, status));
    }
    wire.send(false, &call(7, CALLBACKS, 1, 0, &[]));
    wire.send(true, &reply(7, &[]));
    wire.frames
}

fn passed(wanted: Wanted, frames: &[Captured]) -> (Totals, Option<Counted>, Counts) {
    let mut trace = Trace::new(Filter::new(wanted, Counts::default()));
    frames.iter().for_each(|captured| trace.frame(&captured.frame(1)));
    let (totals, filter) = trace.finish();
    let (counted, counts) = filter.finish();
    (totals, counted, counts)
}

fn rows(table: &Table) -> Vec<(String, u64, u64)> {
    let row = |(place, row): (&Place, &Row)| {
        assert_eq!(
            matches!(place.item, Item::Operation(_)),
            !matches!(&*place.name(), "CB_NULL" | "CB_COMPOUND")
        );
        (place.name(), row.calls, (row.sum_ns / 1_000_000) as u64)
    };
    table.rows().map(row).collect()
}

#[test]
fn callbacks_have_rows_by_operation() {
    let row = |name: &str, calls, ms| (name.to_owned(), calls, ms);
    let expected = [
        row("CB_NULL", 1, 0),
        row("CB_COMPOUND", 6, 21),
        row("CB_RECALL", 2, 3),
        row("CB_LAYOUTRECALL", 1, 3),
        row("CB_RECALL_ANY", 1, 4),
        row("CB_SEQUENCE", 2, 11),
    ];
    for segment in [1448, 5] {
        let (totals, _, counts) = passed(Wanted::default(), &capture(segment));
        assert_eq!((totals.calls_seen, totals.other_calls), (0, 7));
        if segment > 1000 {
            assert_eq!(rows(&counts.table), expected);
        } else {
            let named: Vec<_> =
                rows(&counts.table).into_iter().map(|(name, calls, _)| (name, calls)).collect();
            assert_eq!(named, expected.clone().map(|(name, calls, _)| (name, calls)));
        }
        assert_eq!(counts.table.operations_unknown(), 0);
    }
}

#[test]
fn of_a_frame_that_was_cut_short_the_operation_is_known_all_the_same() {
    let mut frames = capture(1448);
    // A CB_RECALL's number is there, and not all of its arguments.
    frames.iter_mut().for_each(|frame| frame.data.truncate(200));
    let (_, _, counts) = passed(Wanted::default(), &frames);
    let named: Vec<_> = rows(&counts.table).into_iter().map(|(name, calls, _)| (name, calls)).collect();
    assert!(named.contains(&("CB_RECALL".into(), 2)), "{named:?}");
}

#[test]
fn callbacks_are_asked_for_by_operation_and_by_file() {
    let frames = capture(1448);
    let of = |names: &str| {
        let procedures = names.split(',').map(|name| name.parse().expect(name)).collect();
        let (_, counted, counts) = passed(Wanted { procedures, ..Wanted::default() }, &frames);
        assert_eq!(counted.map(|c| c.other_calls), Some(counts.answered.len() as u64), "{names}");
        counts.answered
    };
    assert_eq!(of("CB_RECALL"), [1, 2, 5]);
    assert_eq!(of("cb_layoutrecall,CB_RECALL_ANY"), [3, 4]);
    assert_eq!(of("CB_SEQUENCE"), [6], "not those that have one beside another");
    assert_eq!(of("CB_COMPOUND"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(of("CB_NULL"), [7]);
    assert_eq!(of("NULL,OPEN,LAYOUTRETURN,CB_OFFLOAD"), [0u32; 0]);
    for wrong in ["CB_REMOVE", "CB_", "RECALL"] {
        assert!(wrong.parse::<Procedure>().is_err(), "{wrong}");
    }
    for (handle, xids) in [(1, &[1][..]), (3, &[3]), (5, &[5]), (6, &[])] {
        let mut crc = flate2::Crc::new();
        crc.update(&[handle; 8]);
        let wanted = Wanted { file: Some(File::Digest(crc.sum())), ..Wanted::default() };
        assert_eq!(passed(wanted, &frames).2.answered, xids);
    }
}

#[test]
fn words_that_lie_end_in_no_more_rows_than_calls() {
    let (asked, answer) =
        (callback(1, 1, &[SEQUENCE, LAYOUTRECALL], 1), done(1, &[SEQUENCE, LAYOUTRECALL], 0));
    for at in (4..asked.len() + answer.len() - 3).step_by(4) {
        for word in [0, 1, 2, 16, 10_044, 65_536, u32::MAX / 2, u32::MAX] {
            let mut both = [&asked[..], &answer].concat();
            both[at..at + 4].copy_from_slice(&word.to_be_bytes());
            let mut wire = Wire::new(700);
            wire.open();
            wire.send(false, &both[..asked.len()]);
            wire.send(true, &both[asked.len()..]);
            let (_, _, counts) = passed(Wanted::default(), &wire.frames);
            assert!(counts.table.rows().count() <= 2 && counts.answered.len() <= 1, "word {at} as {word}");
        }
    }
}
