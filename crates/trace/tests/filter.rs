//! A part of a capture: which calls pass, and what is counted of them.

#[allow(dead_code)]
mod wire;

use landfast_nfs::v4::args as a;
use landfast_nfs::v4::{ArgOp, Bitmap, CompoundArgs};
use landfast_nfs::{PROGRAM, v3, v4};
use landfast_trace::filter::{Counted, File, Filter, Moment, Wanted};
use landfast_trace::trace::Trace;
use landfast_xdr::{Bytes, Encode};
use wire::{Captured, Seen, Wire, call, reply};

const MS: i64 = 1_000_000;

fn compound(xid: u32, op: ArgOp) -> Vec<u8> {
    let handle = v4::FileHandle(Bytes::from_static(&[7; 32]));
    let ops = vec![ArgOp::Putfh(handle), op, ArgOp::Getattr(Bitmap::default())];
    let args = CompoundArgs { tag: Bytes::new(), minor_version: 1, announced: 3, ops };
    call(xid, PROGRAM, 4, 1, &args.to_bytes())
}

/// Two clients, on NFSv3 and NFSv4, one call every 10 ms, answered after 1 ms; and what a server asks of a lock manager.
fn capture() -> Vec<Captured> {
    let mut handle = 4u32.to_be_bytes().to_vec();
    handle.extend(b"ABCD");
    let v3 = |xid, procedure| call(xid, PROGRAM, 3, procedure, &handle);
    let close = ArgOp::Close(a::CloseArgs { seqid: 0, open_stateid: v4::Stateid::default() });
    let calls = [
        (1, v3(1, 1)),
        (1, v3(2, 21)),
        (2, compound(3, close)),
        (2, compound(4, ArgOp::Access(1))),
        (2, compound(5, ArgOp::Remove(Bytes::from_static(b"x")))),
        (1, v3(6, 1)),
    ];
    let mut wires = [1, 2, 3].map(|n| {
        let mut wire = Wire::new(700);
        wire.addrs.0 = [10, 0, n, 2];
        wire.open();
        wire
    });
    for (n, (client, call)) in (0i64..).zip(&calls) {
        let wire = &mut wires[client - 1];
        wire.now = 1_000_000 * MS + n * 10 * MS;
        wire.send(true, call);
        wire.wait(MS);
        let xid = u32::from_be_bytes(call[4..8].try_into().expect("four bytes"));
        // The last has no reply.
        if xid < 6 {
            wire.send(false, &reply(xid, &[0; 12]));
        }
    }
    // GRANTED, from the server to the third client.
    wires[2].now = 1_000_070 * MS;
    wires[2].send(false, &call(7, 100_021, 4, 5, &[0; 64]));
    wires[2].send(true, &reply(7, &[0; 8]));
    let mut frames = wires.map(|wire| wire.frames).concat();
    frames.sort_by_key(|frame| frame.ns);
    frames
}

/// The transaction ids that passed, with a reply and without, and what was counted.
fn passed(wanted: Wanted) -> (Vec<u32>, Vec<u32>, Option<Counted>) {
    let frames = capture();
    let mut trace = Trace::new(Filter::new(wanted, Seen::default()));
    frames.iter().for_each(|captured| trace.frame(&captured.frame(1)));
    let (totals, filter) = trace.finish();
    assert_eq!((totals.calls_seen, totals.calls_matched, totals.other_calls), (6, 5, 1));
    let (counted, seen) = filter.finish();
    let answered = seen.answered.iter().map(|(call, _)| call.head.xid).collect();
    (seen.calls.iter().map(|call| call.head.xid).collect(), answered, counted)
}

fn procedures(names: &str) -> Wanted {
    let procedures = names.split(',').map(|name| name.parse().expect(name)).collect();
    Wanted { procedures, ..Wanted::default() }
}

fn counted(calls_seen: u64, calls_matched: u64, other_calls: u64) -> Option<Counted> {
    Some(Counted { calls_seen, calls_matched, other_calls, ..Counted::default() })
}

#[test]
fn without_a_wish_everything_passes() {
    let (calls, answered, counted) = passed(Wanted::default());
    assert_eq!((calls, answered, counted), (vec![1, 2, 3, 4, 5, 6, 7], vec![1, 2, 3, 4, 5, 7], None));
}

#[test]
fn calls_pass_by_client_and_server() {
    let client = |net: &str| passed(Wanted { client: net.parse().ok(), ..Wanted::default() });
    assert_eq!(client("10.0.1.2"), (vec![1, 2, 6], vec![1, 2], counted(3, 2, 0)));
    assert_eq!(client("10.0.2.0/23").0, [3, 4, 5, 7], "what is sent back to a client is of that client");
    assert_eq!(client("10.0.0.1").0, [0u32; 0], "that is the server");
    let server = |net: &str| passed(Wanted { server: net.parse().ok(), ..Wanted::default() });
    assert_eq!(server("10.0.0.1").0.len(), 7);
    assert_eq!(server("10.0.0.2"), (vec![], vec![], counted(0, 0, 0)));
}

#[test]
fn calls_pass_by_procedure_and_by_what_a_compound_was_sent_for() {
    assert_eq!(
        passed(procedures("getattr")),
        (vec![1, 6], vec![1], counted(2, 1, 0)),
        "not those of COMPOUNDs"
    );
    assert_eq!(passed(procedures("close,COMMIT")).0, [2, 3]);
    assert_eq!(passed(procedures("ACCESS")).0, [4]);
    assert_eq!(passed(procedures("PUTFH")).0, [0u32; 0]);
    assert_eq!(passed(procedures("compound")).1, [3, 4, 5]);
    assert_eq!(passed(procedures("GRANTED")), (vec![7], vec![7], counted(0, 0, 1)));
}

#[test]
fn calls_pass_by_time_and_all_that_is_given_has_to_fit() {
    // The first frame is a SYN of 999.999998 s before the first call, more or less; calls are 10 ms apart.
    let begun = capture()[0].ns;
    let at = |from: Option<Moment>, to| passed(Wanted { from, to, ..Wanted::default() }).0;
    assert_eq!(at(Some(Moment::At(1_000_020 * MS)), None), [3, 4, 5, 6, 7]);
    assert_eq!(at(None, Some(Moment::At(1_000_020 * MS))), [1, 2]);
    let since = |ms: i64| Some(Moment::Since(1_000_000 * MS - begun + ms * MS));
    assert_eq!(at(since(10), since(40)), [2, 3, 4]);
    assert_eq!(at(None, Some(Moment::Since(0))), [0u32; 0]);
    let both = Wanted { client: "10.0.1.2".parse().ok(), from: since(5), ..procedures("GETATTR,COMMIT") };
    assert_eq!(passed(both), (vec![2, 6], vec![2], counted(2, 1, 0)));
}

/// What is wanted of a file: names end with the pattern.
fn file(name: &str) -> Wanted {
    let file =
        File::Name { pattern: name.as_bytes().to_vec(), matches: |pattern, name| name.ends_with(pattern) };
    Wanted { file: Some(file), ..Wanted::default() }
}

/// The transaction ids that pass of calls one after another, each with its reply.
fn of_file(wanted: Wanted, calls: &[(Vec<u8>, Vec<u8>)]) -> Vec<u32> {
    let mut wire = Wire::new(700);
    wire.open();
    for (xid, (call, result)) in (1..).zip(calls) {
        let mut call = call.clone();
        call[4..8].copy_from_slice(&u32::to_be_bytes(xid));
        wire.send(true, &call);
        wire.wait(MS);
        wire.send(false, &reply(xid, result));
    }
    let mut trace = Trace::new(Filter::new(wanted, Seen::default()));
    wire.frames.iter().for_each(|captured| trace.frame(&captured.frame(1)));
    let (counted, seen) = trace.finish().1.finish();
    let answered: Vec<u32> = seen.answered.iter().map(|(call, _)| call.head.xid).collect();
    assert_eq!(counted.map(|c| c.calls_matched), Some(answered.len() as u64));
    answered
}

/// XDR of handles and names.
fn opaques(all: &[&str]) -> Vec<u8> {
    all.iter().flat_map(|text| Bytes::copy_from_slice(text.as_bytes()).to_bytes()).collect()
}

#[test]
fn calls_of_version_3_pass_by_the_file_that_they_are_about() {
    let call = |procedure, args: &[&str]| call(0, PROGRAM, 3, procedure, &opaques(args));
    let found = |handle: &str| [&[0; 4], &opaques(&[handle])[..]].concat();
    let made = |handle: &str| [&[0, 0, 0, 0, 0, 0, 0, 1], &opaques(&[handle])[..]].concat();
    let calls = [
        (call(v3::proc::LOOKUP, &["root", "a.txt"]), found("A")),
        (call(v3::proc::GETATTR, &["A"]), vec![0; 8]),
        (call(v3::proc::GETATTR, &["root"]), vec![0; 8]),
        (call(v3::proc::CREATE, &["root", "b.txt"]), made("B")),
        (call(v3::proc::SETATTR, &["B"]), vec![0; 8]),
        (call(v3::proc::RENAME, &["root", "b.txt", "root", "c.txt"]), vec![0; 8]),
        (call(v3::proc::LINK, &["A", "root", "d.txt"]), vec![0; 8]),
        (call(v3::proc::LOOKUP, &["root", "sub"]), found("S")),
        (call(v3::proc::LOOKUP, &["S", "x"]), found("X")),
        (call(v3::proc::GETATTR, &["X"]), vec![0; 8]),
        (call(v3::proc::LOOKUP, &["root", "gone.txt"]), vec![0, 0, 0, 2]),
    ];
    let of = |name: &str| of_file(file(name), &calls);
    assert_eq!(of("a.txt"), [1, 2, 7]);
    assert_eq!(of("b.txt"), [4, 5, 6]);
    assert_eq!(of("c.txt"), [6]);
    assert_eq!(of("d.txt"), [7]);
    assert_eq!(of(".txt"), [1, 2, 4, 5, 6, 7, 11]);
    assert_eq!(of("sub"), [8, 9], "of a directory what is done in it, but not to what was found there");
    assert_eq!(of("nothing"), [0u32; 0]);
    let mut crc = flate2::Crc::new();
    crc.update(b"A");
    let digest = Wanted { file: Some(File::Digest(crc.sum())), ..Wanted::default() };
    assert_eq!(of_file(digest, &calls), [2, 7]);
}

#[test]
fn compounds_pass_by_any_file_that_they_name_and_by_the_handle_that_they_found() {
    let name = |name: &str| Bytes::copy_from_slice(name.as_bytes());
    let putfh = |handle: &str| ArgOp::Putfh(v4::FileHandle(name(handle)));
    let close = || ArgOp::Close(a::CloseArgs { seqid: 0, open_stateid: v4::Stateid::default() });
    let call = |ops: Vec<ArgOp>| {
        let announced = u32::try_from(ops.len()).expect("a count");
        let args = CompoundArgs { tag: Bytes::new(), minor_version: 1, announced, ops };
        call(0, PROGRAM, 4, 1, &args.to_bytes())
    };
    // Statuses of PUTFH, LOOKUP (and LOOKUP) and GETFH, and what GETFH gives.
    let found = |lookups: u32, handle: &str| {
        let mut out: Vec<u8> = [0, 0, lookups + 2, 22, 0].iter().flat_map(|n| u32::to_be_bytes(*n)).collect();
        (0..lookups).for_each(|_| out.extend([0, 0, 0, 15, 0, 0, 0, 0]));
        out.extend([0, 0, 0, 10, 0, 0, 0, 0]);
        out.extend(opaques(&[handle]));
        out
    };
    let done = || vec![0; 12];
    let calls = [
        (call(vec![putfh("root"), ArgOp::Lookup(name("a.txt")), ArgOp::Getfh]), found(1, "A")),
        (call(vec![putfh("A"), ArgOp::Getattr(Bitmap::default())]), done()),
        (
            call(vec![putfh("root"), ArgOp::Lookup(name("d")), ArgOp::Lookup(name("x")), ArgOp::Getfh]),
            found(2, "X"),
        ),
        (call(vec![putfh("X"), close()]), done()),
        (call(vec![putfh("root"), ArgOp::Savefh, putfh("A"), ArgOp::Remove(name("y"))]), done()),
        (call(vec![putfh("root"), ArgOp::Access(1)]), done()),
    ];
    let of = |name: &str| of_file(file(name), &calls);
    assert_eq!(of("a.txt"), [1, 2, 5]);
    assert_eq!(of("d"), [3], "what was found is another");
    assert_eq!(of("x"), [3, 4]);
    assert_eq!(of("y"), [5]);
    assert_eq!(of("root"), [0u32; 0], "nothing has this name");
}
