//! Traffic that is made so that it is known what bounds it: the same work as both ends see it.

#[allow(dead_code)]
mod wire;

use landfast_model::{Bound, Change, Device, Job, predict};
use landfast_nfs::v3::proc;
use landfast_trace::analysis::Analysis;
use landfast_trace::analysis::both::OtherEnd;
use landfast_trace::analysis::findings::{Findings, Side};
use landfast_trace::analysis::stalls::Place;
use landfast_trace::analysis::words::{Confidence, Words};
use landfast_trace::filter::{Filter, Wanted};
use landfast_trace::trace::{Totals, Trace};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wire::{Wire, call, reply};

const MS: i64 = 1_000_000;
const US: i64 = 1_000;

/// How a network, a server and a client are. Nanoseconds.
#[derive(Debug, Clone)]
struct World {
    rtt: i64,
    /// What any call takes the server, and how much more it may take.
    server: (i64, i64),
    /// What is stable takes so much more.
    flush: (i64, i64),
    think: i64,
    /// A pause before each file.
    file_pause: i64,
    /// Between the segments of a message.
    segment: i64,
    /// Bytes of a WRITE.
    len: usize,
    /// One in so many calls is lost on its way.
    loses: u32,
    /// In one of so many calls, whichever, the server gets no processor for so long.
    waits: (u32, i64),
    /// From when on the server answers nobody, and for how long; again after each period, if there is one.
    stops: Option<(i64, i64, Option<i64>)>,
}

fn lan() -> World {
    World {
        rtt: 200 * US,
        server: (50 * US, 20 * US),
        flush: (100 * US, 20 * US),
        think: 150 * US,
        file_pause: 0,
        segment: 2 * US,
        len: 4096,
        loses: 0,
        waits: (0, 0),
        stops: None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Client,
    Server,
}

/// `tar -x` of small files over version 3.
fn untar(world: &World, end: End, files: u32) -> Wire {
    let mut rng = StdRng::seed_from_u64(7);
    let mut wire = Wire::new(700);
    wire.gap = world.segment;
    let (inside, outside) = if end == End::Client { (world.rtt, 0) } else { (0, world.rtt) };
    wire.acks = true;
    wire.open();
    wire.wait(outside);
    wire.ack(true);
    let (mut xid, mut sent, begun) = (0, 0, wire.now);
    for file in 0..files {
        let name = format!("file{file:05}");
        let handle = |of: u32| [8u32.to_be_bytes(), of.to_be_bytes(), 77u32.to_be_bytes()].concat();
        let named: Vec<u8> = [handle(0), 9u32.to_be_bytes().to_vec(), name.into_bytes(), vec![0; 3]].concat();
        let own = handle(file + 1);
        let made = [&0u32.to_be_bytes()[..], &1u32.to_be_bytes(), &own].concat();
        let mut offset = own.clone();
        offset.extend([0; 8]);
        let len = u32::try_from(world.len).unwrap().to_be_bytes();
        for (part, word) in [(&len, 0), (&2u32.to_be_bytes(), 1), (&len, 2)] {
            let _ = word;
            offset.extend(part);
        }
        offset.extend(vec![7; world.len]);
        let noent = 2u32.to_be_bytes().to_vec();
        let ok = vec![0; 4];
        let work = [
            (proc::LOOKUP, &named, &noent, false),
            (proc::CREATE, &named, &made, true),
            (proc::SETATTR, &own, &ok, true),
            (proc::WRITE, &offset, &ok, true),
            (proc::SETATTR, &own, &ok, true),
        ];
        wire.wait(world.file_pause);
        for (procedure, arguments, results, stable) in work {
            xid += 1;
            let mut random = |(least, more): (i64, i64)| least + rng.random_range(0..=more);
            let mut server = random(world.server) + if stable { random(world.flush) } else { 0 };
            let think = random((world.think, world.think / 4));
            if world.waits.0 > 0 && rng.random_ratio(1, world.waits.0) {
                server += world.waits.1;
            }
            let message = call(xid, 100_003, 3, procedure, arguments);
            sent += 1;
            let lost = world.loses > 0 && sent % world.loses == 0;
            // Of the server's answers some are lost, too: it sends them again.
            let answer_lost = lost && end == End::Server && sent / world.loses % 2 == 1;
            let lost = lost && !answer_lost;
            if lost && end == End::Server {
                // It goes by only when it is sent again.
                wire.wait(200 * MS);
                wire.missed(true);
            }
            let seq = wire.seq.0;
            wire.send(true, &message);
            if lost && end == End::Client {
                wire.wait(200 * MS);
                wire.seq.0 = seq;
                wire.send(true, &message);
            }
            wire.wait(inside);
            server += stopped(world, wire.now - inside + server - begun);
            wire.wait(server);
            let answer = wire.seq.1;
            wire.send(false, &reply(xid, results));
            if answer_lost {
                wire.wait(200 * MS);
                wire.seq.1 = answer;
                wire.send(false, &reply(xid, results));
            }
            wire.wait(outside);
            wire.ack(true);
            wire.wait(think);
        }
    }
    wire
}

/// How much later an answer comes that would come so long after the beginning.
fn stopped(world: &World, at: i64) -> i64 {
    let Some((from, length, period)) = world.stops else { return 0 };
    let into = match period {
        Some(period) => (at - from).rem_euclid(period),
        None => at - from,
    };
    if (0..length).contains(&into) { length - into } else { 0 }
}

fn find(wire: &Wire) -> (Findings, Words) {
    let mut trace = Trace::new(Analysis::new());
    for captured in &wire.frames {
        trace.frame(&captured.frame(1));
    }
    let (totals, analysis) = trace.finish();
    let found = analysis.finish();
    let words = found.words(&totals).expect("words");
    (found, words)
}

/// What both ends say of a world.
fn bounds(world: &World, files: u32) -> [Findings; 2] {
    [End::Client, End::Server].map(|end| find(&untar(world, end, files)).0)
}

fn assert_bound(world: &World, files: u32, bound: Bound) {
    for found in bounds(world, files) {
        let verdict = found.verdict.expect("a verdict");
        assert_eq!(verdict.bound, bound, "{:?} {:?} of {world:?}", found.side, found.shares);
        let span = found.work.span_s.expect("a span");
        let all = found.shares.total() + found.irregular_s + found.stalls.time_s;
        assert!((all - span).abs() < 0.02 * span, "{all} s of {span} s are accounted for");
        assert_eq!((found.work.files, found.work.calls), (u64::from(files), 5 * u64::from(files)));
        assert_eq!(found.work.synchronous_calls, 4 * u64::from(files));
    }
}

#[test]
fn round_trips() {
    let world = World { rtt: 10 * MS, ..lan() };
    assert_bound(&world, 50, Bound::Rtt);
    let [client, server] = bounds(&world, 50);
    assert_eq!((client.side, server.side), (Side::Client, Side::Server));
    for found in [client, server] {
        assert!((found.terms.round_trip_s - 0.0102).abs() < 0.0003, "{:?}", found.terms);
        assert!((found.terms.in_flight - 1.0).abs() < 1e-9);
    }
}

#[test]
fn making_things_stable() {
    // A disk: half a turn on average.
    let world = World { flush: (4 * MS, 8 * MS), ..lan() };
    assert_bound(&world, 50, Bound::Persistence);
    for found in bounds(&world, 50) {
        assert!((found.terms.persistence_s - 0.008).abs() < 0.0005, "{:?}", found.terms);
        assert_eq!(found.device().map(|(device, _)| device), Some(Device::Disk));
    }
    // And a device that is stable at once is no bound.
    let world = World { flush: (30 * US, 10 * US), rtt: 2 * MS, ..lan() };
    assert_bound(&world, 50, Bound::Rtt);
}

#[test]
fn frames_of_which_little_was_captured() {
    let world = World { flush: (4 * MS, 8 * MS), ..lan() };
    for end in [End::Client, End::Server] {
        let mut wire = untar(&world, end, 50);
        let (whole, _) = find(&wire);
        wire.frames.iter_mut().for_each(|frame| frame.data.truncate(96));
        // Not how stable a WRITE has to be, nor what it is about.
        let (cut, _) = find(&wire);
        assert_eq!(cut.verdict, whole.verdict, "{:?}", cut.shares);
        assert!((cut.shares.persistence / whole.shares.persistence - 1.0).abs() < 0.02, "{:?}", cut.shares);
    }
    // With nothing to wait for it is no disk.
    let mut wire = untar(&World { waits: (3, 9 * MS), ..lan() }, End::Server, 100);
    wire.frames.iter_mut().for_each(|frame| frame.data.truncate(96));
    assert_eq!(find(&wire).0.verdict.expect("a verdict").bound, Bound::Server);
}

#[test]
fn two_alike() {
    let world = World { rtt: 5 * MS, flush: (6 * MS, MS), ..lan() };
    assert_bound(&world, 50, Bound::Mixed);
}

#[test]
fn the_client() {
    assert_bound(&World { think: 8 * MS, ..lan() }, 50, Bound::Client);
    assert_bound(&World { file_pause: 40 * MS, ..lan() }, 50, Bound::Client);
}

#[test]
fn the_server() {
    assert_bound(&World { server: (0, 12 * MS), ..lan() }, 100, Bound::Server);
}

#[test]
fn a_server_that_waits_for_its_processor() {
    // Most calls are quick, and four of five have to be stable: neither makes it a disk.
    assert_bound(&World { waits: (3, 9 * MS), ..lan() }, 100, Bound::Server);
    // And a disk is one, however the server waits now and then.
    assert_bound(&World { waits: (10, 9 * MS), flush: (8 * MS, 8 * MS), ..lan() }, 100, Bound::Persistence);
}

#[test]
fn a_server_that_stops_once_is_no_slow_disk() {
    // What bounds the rest is found, and the two seconds are told with their time.
    for (world, bound) in [
        (World { stops: Some((150 * MS, 2000 * MS, None)), ..lan() }, Bound::Rtt),
        (
            World { stops: Some((150 * MS, 2000 * MS, None)), flush: (4 * MS, 8 * MS), ..lan() },
            Bound::Persistence,
        ),
        (World { stops: Some((150 * MS, 2000 * MS, None)), rtt: 10 * MS, ..lan() }, Bound::Rtt),
    ] {
        for end in [End::Client, End::Server] {
            let (found, words) = find(&untar(&world, end, 100));
            let first = found.verdict.expect("a verdict").first;
            // Over so short a way client and round trip are alike.
            let alike = world.rtt == 200 * US && world.flush.0 < MS;
            assert!(
                first == bound || (alike && first == Bound::Client),
                "{end:?} {:?} of {world:?}",
                found.shares
            );
            assert!((found.stalls.time_s - 2.0).abs() < 0.1, "{end:?} {:?}", found.stalls);
            assert_eq!((found.stalls.count, found.stalls.calls, found.stalls.rhythm), (1, 1, None));
            let stall = found.stalls.longest[0];
            assert!(stall.nobody && (stall.length_s() - 2.0).abs() < 0.1, "{stall:?}");
            assert!(words.evidence[0].starts_with("At 0.1"), "{words:?}");
            let length = (stall.length_s() * 100.0).round() / 100.0;
            assert!(
                words.evidence[0].contains(&format!("the server answered nobody for {length:.2} s (1 call")),
                "{words:?}"
            );
            if bound != Bound::Persistence {
                assert!(
                    !words.advice.iter().any(|advice| advice.contains("landfast serve --log")),
                    "{words:?}"
                );
            }
            if found.stalls.time_s > found.shares.parts()[0].1 {
                assert!(
                    words.verdict.starts_with("At 0.1") && words.verdict.contains(". The rest: bound by "),
                    "{words:?}"
                );
            }
        }
    }
}

#[test]
fn a_quota_is_known_by_its_period() {
    // Each 100 ms the server may work for 20.
    let world = World { stops: Some((20 * MS, 80 * MS, Some(100 * MS))), ..lan() };
    for end in [End::Client, End::Server] {
        let (found, words) = find(&untar(&world, end, 200));
        let rhythm = found.stalls.rhythm.expect("a rhythm");
        assert!((rhythm.period_s - 0.1).abs() < 0.002, "{rhythm:?}");
        assert!((rhythm.each_s - 0.08).abs() < 0.005, "{rhythm:?}");
        assert!(words.verdict.starts_with("Every 100 ms the server answered nobody for "), "{words:?}");
        assert!(words.advice[0].contains("cpu.max"), "{words:?}");
        assert_ne!(found.verdict.expect("a verdict").first, Bound::Persistence, "{:?}", found.shares);
        let span = found.work.span_s.expect("a span");
        let all = found.shares.total() + found.irregular_s + found.stalls.time_s;
        assert!((all - span).abs() < 0.02 * span, "{all} of {span}");
    }
}

#[test]
fn both_ends_tell_who_let_others_wait() {
    let world = World { rtt: 4 * MS, ..lan() };
    let stops = World { stops: Some((500 * MS, 2000 * MS, None)), ..world.clone() };
    // What the server's capture has, too, is the server's.
    for (at_server, place, said) in [
        (&stops, Place::Server, "the server answered nobody"),
        (&world, Place::Network, "the network delivered no answer"),
    ] {
        let mut other = Trace::new(OtherEnd::default());
        untar(at_server, End::Server, 100).frames.iter().for_each(|captured| other.frame(&captured.frame(1)));
        let mut trace = Trace::new(Analysis::with_other_end(other.finish().1));
        untar(&stops, End::Client, 100).frames.iter().for_each(|captured| trace.frame(&captured.frame(1)));
        let (totals, analysis) = trace.finish();
        let found = analysis.finish();
        let words = found.words(&totals).expect("words");
        assert_eq!(found.stalls.longest.first().map(|stall| stall.place), Some(place), "{:?}", found.stalls);
        assert!((found.stalls.time_s - 2.0).abs() < 0.1, "{:?}", found.stalls);
        assert!(words.evidence[0].contains(said), "{words:?}");
        assert_eq!(found.verdict.expect("a verdict").first, Bound::Rtt, "{:?}", found.shares);
    }
}

#[test]
fn several_calls_wait_for_one_stall() {
    // Eight at a time; the server stops for a second.
    let mut wire = Wire::new(700);
    wire.acks = true;
    wire.open();
    for round in 0..60u32 {
        for n in 0..8 {
            wire.send(true, &call(8 * round + n + 1, 100_003, 3, proc::GETATTR, &[0; 36]));
        }
        wire.wait(if round == 30 { 1000 * MS } else { 2 * MS });
        for n in 0..8 {
            wire.wait(100 * US);
            wire.send(false, &reply(8 * round + n + 1, &[0; 88]));
        }
    }
    let (found, words) = find(&wire);
    assert_eq!((found.stalls.count, found.stalls.calls), (1, 8), "{:?}", found.stalls);
    assert!((found.stalls.time_s - 1.0).abs() < 0.05, "{:?}", found.stalls);
    assert!(words.evidence[0].contains("(8 calls waited)"), "{words:?}");
}

#[test]
fn a_client_that_stops_is_told_with_its_time() {
    let mut wire = untar(&lan(), End::Client, 50);
    // Three frames open the connection, and each file has seventeen.
    let at = 3 + 17 * 25;
    wire.frames[at..].iter_mut().for_each(|frame| frame.ns += 3000 * MS);
    let (found, words) = find(&wire);
    assert_eq!(found.stalls.time_s, 0.0);
    assert!(words.evidence[0].starts_with("The client asked for nothing at 0."), "{words:?}");
    assert!(words.evidence[0].contains("for 3.00 s"), "{words:?}");
}

#[test]
fn what_is_slow_each_time_is_no_stall() {
    // One call of each file waits for a disk, at equal distances.
    let world = World { file_pause: 0, ..lan() };
    let mut wire = untar(&world, End::Client, 0);
    for xid in 1..=600u32 {
        wire.send(
            true,
            &call(xid, 100_003, 3, if xid % 6 == 0 { proc::LOOKUP } else { proc::GETATTR }, &[0; 36]),
        );
        wire.wait(if xid % 6 == 0 { 60 * MS } else { 300 * US });
        wire.send(false, &reply(xid, &[0; 88]));
        wire.wait(100 * US);
    }
    let (found, _) = find(&wire);
    assert_eq!(found.stalls.count, 0, "{:?}", found.stalls);
    assert_eq!(found.verdict.expect("a verdict").first, Bound::Server);
}

#[test]
fn bandwidth() {
    // 20 Mbit/s.
    let world = World { segment: 579 * US, len: 256 << 10, ..lan() };
    for found in bounds(&world, 5) {
        assert_eq!(found.verdict.expect("a verdict").bound, Bound::Bandwidth, "{:?}", found.shares);
        let rate = found.terms.upload_bytes_per_s.expect("a rate");
        assert!((rate / 2.5e6 - 1.0).abs() < 0.1, "{rate}");
    }
}

#[test]
fn losses() {
    let world = World { loses: 20, ..lan() };
    for (end, found) in [End::Client, End::Server].into_iter().zip(bounds(&world, 80)) {
        assert_eq!(found.verdict.expect("a verdict").bound, Bound::Loss, "{end:?} {:?}", found.shares);
        assert!((found.shares.loss - 4.0).abs() < 0.2, "{end:?}: twenty times 200 ms: {:?}", found.shares);
    }
}

/// What becomes of a capture when only frames with data are exported.
fn without_bare_acknowledgements(wire: &mut Wire) {
    // Ethernet, IPv4 and TCP without options.
    wire.frames.retain(|frame| frame.data.len() > 14 + 20 + 20 || frame.data[47] & 2 != 0);
}

#[test]
fn the_numbers_of_packets_alone_are_no_loss() {
    // What looks lost to the server is a client that works; nothing was sent again, and nobody missed anything.
    let mut wire = Wire::new(700);
    wire.acks = true;
    wire.open();
    wire.ack(true);
    for xid in 1..=200u32 {
        if xid % 10 == 0 {
            wire.missed(true);
            wire.wait(200 * MS);
        }
        wire.send(true, &call(xid, 100_003, 3, proc::GETATTR, &[0; 36]));
        wire.wait(200 * US);
        wire.send(false, &reply(xid, &[0; 88]));
        wire.ack(true);
        wire.wait(150 * US);
    }
    assert_eq!(find(&wire).0.shares.loss, 0.0);
    // One row of numbers for all that a host sends, and something that was sent again.
    let mut random = StdRng::seed_from_u64(1);
    let mut wire = untar(&World { loses: 90, ..lan() }, End::Client, 100);
    let before = find(&wire).0;
    for frame in &mut wire.frames {
        let number = u16::from_be_bytes([frame.data[18], frame.data[19]])
            .wrapping_mul(3)
            .wrapping_add(random.random_range(0..3));
        frame.data[18..20].copy_from_slice(&number.to_be_bytes());
    }
    for (at, frame) in wire.frames.iter_mut().enumerate() {
        frame.ns += at as i64 / 100 * 30 * MS;
    }
    let after = find(&wire).0;
    assert!((after.shares.loss - before.shares.loss).abs() < 0.1, "{:?} {:?}", before.shares, after.shares);
}

#[test]
fn verdicts_stay_without_bare_acknowledgements() {
    for (world, files) in [
        (World { rtt: 10 * MS, ..lan() }, 50),
        (World { flush: (4 * MS, 8 * MS), ..lan() }, 50),
        (World { think: 8 * MS, ..lan() }, 50),
        (World { file_pause: 40 * MS, ..lan() }, 50),
        (World { server: (0, 12 * MS), ..lan() }, 100),
        (World { loses: 20, ..lan() }, 80),
    ] {
        for end in [End::Client, End::Server] {
            let mut wire = untar(&world, end, files);
            let (before, _) = find(&wire);
            without_bare_acknowledgements(&mut wire);
            let (after, words) = find(&wire);
            let [before, after] = [before, after].map(|found| found.verdict.expect("a verdict").first);
            let same = before == after;
            // At the server a long way, or a lost call, looks like a client that thinks. It is said.
            assert!(
                same || end == End::Server && after == Bound::Client,
                "{end:?} {before:?} {after:?} {world:?}"
            );
            assert!(
                words.doubts.iter().any(|doubt| doubt.contains("acknowledgements without data")),
                "{words:?}"
            );
            assert!(words.confidence < Confidence::High, "{words:?}");
        }
    }
}

#[test]
fn frames_that_were_captured_twice_count_once() {
    for world in [World { flush: (4 * MS, 8 * MS), ..lan() }, World { rtt: 10 * MS, ..lan() }] {
        for end in [End::Client, End::Server] {
            let mut wire = untar(&world, end, 50);
            let (before, _) = find(&wire);
            let copies = wire.frames.clone();
            wire.frames = copies
                .into_iter()
                .flat_map(|frame| {
                    let mut copy = frame.clone();
                    copy.ns += 3 * US;
                    [frame, copy]
                })
                .collect();
            let (after, words) = find(&wire);
            assert_eq!(after.shares.loss, 0.0);
            assert_eq!(before.shares, after.shares);
            assert!(words.doubts.iter().any(|doubt| doubt.contains("captured twice")), "{words:?}");
        }
    }
}

#[test]
fn the_calls_of_each_file() {
    let (found, words) = find(&untar(&lan(), End::Client, 40));
    assert_eq!(found.shapes.len(), 1, "{:?}", found.shapes);
    let (sequence, shape) = &found.shapes[0];
    let names: Vec<_> =
        sequence.iter().map(|item| (landfast_trace::analysis::name(item.label), item.synchronous)).collect();
    let expected =
        [("LOOKUP", false), ("CREATE", true), ("SETATTR", true), ("WRITE", true), ("SETATTR", true)];
    assert_eq!(names, expected.map(|(name, stable)| (name.to_owned(), stable)));
    assert_eq!((shape.files, shape.calls, shape.synchronous), (40, 200, 160));
    assert!(words.verdict.starts_with("Bound by "), "{}", words.verdict);
}

#[test]
fn answers_that_are_too_quick_to_be_stable_are_doubted() {
    let (_, words) = find(&untar(&World { flush: (0, 0), server: (50 * US, 0), ..lan() }, End::Server, 40));
    assert!(words.doubts.iter().any(|d| d.contains("landfast verify")), "{words:?}");
    let (_, words) = find(&untar(&World { flush: (5 * MS, MS), ..lan() }, End::Client, 40));
    assert!(!words.doubts.iter().any(|d| d.contains("landfast verify")), "{words:?}");
}

#[test]
fn a_clock_that_is_set_back_makes_no_part_longer_than_the_whole() {
    let mut wire = Wire::new(700);
    wire.open();
    for xid in 1..=2 {
        wire.send(true, &call(xid, landfast_nfs::PROGRAM, 3, proc::GETATTR, &[0; 36]));
        wire.wait(500 * US);
        if xid == 2 {
            wire.wait(-4 * MS);
        }
        wire.send(false, &reply(xid, &[0; 88]));
        wire.wait(3500 * US);
    }
    let mut trace = Trace::new(Analysis::new());
    wire.frames.iter().for_each(|frame| trace.frame(&frame.frame(1)));
    let found = trace.finish().1.finish();
    let span = found.pairs[0].span_s;
    for (what, part) in found.shares.parts() {
        assert!((0.0..=span * 1.001).contains(&part), "{what:?}: {part} of {span}");
    }
    assert!((span - 0.004).abs() < 1e-4, "{span}");
}

/// What a capture's words say of how sure it is.
fn confidence(wire: &Wire) -> (Confidence, Vec<String>) {
    let words = find(wire).1;
    (words.confidence, words.doubts)
}

#[test]
fn confidence_comes_from_the_evidence() {
    let disk = World { rtt: 2 * MS, flush: (40 * MS, 8 * MS), ..lan() };
    assert_eq!(confidence(&untar(&disk, End::Client, 50)).0, Confidence::High);
    let expect = |wire: &Wire, said: &str| {
        let (confidence, doubts) = confidence(wire);
        assert!(confidence < Confidence::High, "{said}: {doubts:?}");
        assert!(doubts.iter().any(|doubt| doubt.contains(said)), "{said}: {doubts:?}");
    };
    // A clock that is set back.
    let mut wire = untar(&disk, End::Client, 50);
    let middle = wire.frames.len() / 2;
    wire.frames[middle..].iter_mut().for_each(|frame| frame.ns -= 300 * MS);
    expect(&wire, "set back 1 time, by at least 2");
    assert_eq!(confidence(&wire).0, Confidence::Low, "a part of the whole that decides");
    let mut wire = untar(&disk, End::Client, 400);
    let middle = wire.frames.len() / 2;
    wire.frames[middle..].iter_mut().for_each(|frame| frame.ns -= 100 * MS);
    assert_eq!(confidence(&wire).0, Confidence::Medium, "a small step of a long capture");
    // Holes.
    let mut wire = untar(&disk, End::Client, 200);
    let mut at = 0;
    wire.frames.retain(|_| {
        at += 1;
        at < 10 || at % 90 > 0
    });
    expect(&wire, "holes in the capture");
    // Nothing to compare with.
    let mut wire = untar(&lan(), End::Client, 0);
    for xid in 1..=300u32 {
        wire.send(true, &call(xid, 100_003, 3, proc::SETATTR, &[0; 36]));
        wire.ack(false);
        wire.wait(10 * MS + i64::from(xid % 7) * MS / 10);
        wire.send(false, &reply(xid, &[0; 88]));
        wire.wait(100 * US);
        wire.ack(true);
    }
    expect(&wire, "No call with nothing to make stable");
    // A few calls that have it all, each as long as no stall is.
    let mut wire = Wire::new(700);
    wire.acks = true;
    wire.open();
    wire.ack(true);
    for xid in 1..=400u32 {
        let slow = xid % 80 == 0;
        wire.send(true, &call(xid, 100_003, 3, if slow { proc::SETATTR } else { proc::GETATTR }, &[0; 36]));
        wire.wait(if slow { 45 * MS } else { 200 * US });
        wire.send(false, &reply(xid, &[0; 88]));
        wire.ack(true);
        wire.wait(50 * US);
    }
    expect(&wire, "Half of the time of persistence is in 3 calls");
}

/// The frames of several clients, one after another in time.
fn together(clients: &[(u8, Wire)]) -> Wire {
    let mut all = Wire::new(700);
    for (client, wire) in clients {
        for captured in &wire.frames {
            let mut captured = captured.clone();
            let server = captured.data[26..30] == [10, 0, 0, 1];
            captured.data[if server { 33 } else { 29 }] = *client;
            all.frames.push(captured);
        }
    }
    all.frames.sort_by_key(|captured| captured.ns);
    all
}

#[test]
fn each_client_has_its_verdict() {
    let slow = untar(&World { flush: (8 * MS, 8 * MS), ..lan() }, End::Server, 100);
    let thinks = untar(&World { file_pause: 60 * MS, ..lan() }, End::Server, 40);
    let far = untar(&World { rtt: 10 * MS, ..lan() }, End::Server, 40);
    let (found, words) = find(&together(&[(2, thinks), (3, slow), (4, far)]));
    assert!(found.several);
    let of: Vec<_> = found
        .pairs
        .iter()
        .map(|pair| (pair.ends.expect("addresses").0.to_string(), pair.verdict.expect("a verdict").bound))
        .collect();
    let expected = [("10.0.0.3", Bound::Persistence), ("10.0.0.2", Bound::Client), ("10.0.0.4", Bound::Rtt)];
    assert_eq!(of, expected.map(|(client, bound)| (client.to_owned(), bound)));
    assert_eq!(found.verdict.map(|verdict| verdict.bound), Some(Bound::Persistence));
    assert!(
        words.verdict.starts_with(
            "3 clients are bound by different things. Most time is lost by 10.0.0.3: bound by persistence"
        ),
        "{words:?}"
    );
    for (line, said) in words.evidence.iter().zip([
        "10.0.0.3: bound by persistence",
        "10.0.0.2: bound by the client",
        "10.0.0.4: bound by round trips",
    ]) {
        assert!(line.starts_with(said), "{words:?}");
    }
    assert_eq!(words.advice.len(), 3, "{words:?}");
    // Those that are bound by the same have one verdict.
    let one = || untar(&World { flush: (8 * MS, 8 * MS), ..lan() }, End::Server, 50);
    let (found, words) = find(&together(&[(2, one()), (3, one())]));
    assert!(!found.several && words.verdict.starts_with("Bound by persistence"), "{words:?}");
}

#[test]
fn a_client_that_thinks_makes_no_other_one_think() {
    // Pauses are told from each other by client: those of one are not measured by the other's.
    let quick = untar(&lan(), End::Client, 100);
    let alone = find(&untar(&World { think: 8 * MS, ..lan() }, End::Client, 30)).0;
    let slow = untar(&World { think: 8 * MS, ..lan() }, End::Client, 30);
    let (found, _) = find(&together(&[(2, quick), (3, slow)]));
    let pair = found
        .pairs
        .iter()
        .find(|pair| pair.ends.expect("addresses").0.to_string() == "10.0.0.3")
        .expect("it");
    assert!((pair.shares.client - alone.shares.client).abs() < 0.01, "{:?} {:?}", pair.shares, alone.shares);
}

/// What the equation makes of a capture, beside what it took.
fn again(found: &Findings) -> (f64, f64) {
    let job = Job::repeat(&found.work, found.terms.in_flight, None).expect("work");
    let now = predict(&found.terms, &job, &[]).expect("a prediction").now;
    (now.seconds, found.work.span_s.expect("a span"))
}

#[test]
fn the_equation_makes_up_the_time_of_narrow_lines_and_of_several_clients() {
    // Bytes are two fifths of the time, and not the largest part.
    let narrow = World { segment: 579 * US, len: 16 << 10, flush: (10 * MS, MS), ..lan() };
    // Four clients at once, each with one thing at a time.
    let one = |n: u32| untar(&World { rtt: 2 * MS, flush: (4 * MS, 4 * MS), ..lan() }, End::Server, 60 + n);
    let four = together(&[(2, one(0)), (3, one(1)), (4, one(2)), (5, one(3))]);
    for wire in [untar(&narrow, End::Client, 40), four] {
        let found = find(&wire).0;
        let (seconds, took) = again(&found);
        assert!(
            (seconds / took - 1.0).abs() < 0.1,
            "{seconds} of {took}: {:?} {:?}",
            found.terms,
            found.shares
        );
    }
    let found = find(&untar(&narrow, End::Client, 40)).0;
    assert_ne!(found.verdict.expect("a verdict").first, Bound::Bandwidth, "{:?}", found.shares);
    let rate = found.terms.upload_bytes_per_s.expect("a rate");
    assert!((rate / 2.5e6 - 1.0).abs() < 0.15, "{rate}");
}

#[test]
fn who_waits_for_mount_does_not_think() {
    // A program that mounts for each file, as libnfs's do: the server stops while it waits for MNT.
    let mut wire = Wire::new(700);
    wire.acks = true;
    wire.open();
    let mut xid = 0;
    let mut ask = |wire: &mut Wire, program: u32, procedure: u32, takes: i64| {
        xid += 1;
        let handle = [8u32.to_be_bytes(), 1u32.to_be_bytes(), 77u32.to_be_bytes()].concat();
        wire.send(true, &call(xid, program, 3, procedure, &handle));
        wire.wait(takes);
        wire.send(false, &reply(xid, &[0; 4]));
        wire.wait(150 * US);
    };
    for file in 0..60 {
        ask(&mut wire, 100_005, 1, if file == 20 { 2000 * MS } else { 300 * US });
        ask(&mut wire, 100_003, 1, 300 * US);
        ask(&mut wire, 100_003, 2, 400 * US);
    }
    let (found, words) = find(&wire);
    assert!((found.stalls.time_s - 2.0).abs() < 0.01, "{:?}", found.stalls);
    let stall = found.stalls.longest[0];
    assert_eq!((stall.place, stall.calls, stall.nobody), (Place::Server, 1, true));
    assert!(words.verdict.contains("the server answered nobody for 2.00 s"), "{words:?}");
    // Nor is what it waits for MNT each time its own time.
    assert!(found.shares.client < 0.031, "{:?}", found.shares);
    assert!(found.shapes.iter().all(|shape| !format!("{shape:?}").contains("label: 254")));
}

#[test]
fn what_could_not_be_read_makes_nobody_sure() {
    // COMPOUNDs of which some 100 bytes were captured: whether they wait for a disk or for the server, nobody knows.
    let cut = |bytes: Option<usize>| {
        let mut wire = Wire::new(700);
        wire.acks = true;
        wire.open();
        for xid in 1..=200 {
            // PUTFH, and WRITE or GETATTR behind it.
            let handle: Vec<u8> = [16u32.to_be_bytes().to_vec(), vec![7; 16]].concat();
            let op: Vec<u8> = match xid % 2 {
                0 => vec![0, 0, 0, 9, 0, 0, 0, 0],
                _ => [&38u32.to_be_bytes()[..], &[0; 24], &2u32.to_be_bytes(), &4u32.to_be_bytes(), &[1; 4]]
                    .concat(),
            };
            let counts = [0u32, 0, 2, 22].map(u32::to_be_bytes).concat();
            wire.send(true, &call(xid, 100_003, 4, 1, &[counts, handle, op].concat()));
            wire.wait(if xid % 2 == 0 { 300 * US } else { 15 * MS });
            wire.send(false, &reply(xid, &[0; 300]));
            wire.wait(100 * US);
            wire.ack(true);
        }
        if let Some(bytes) = bytes {
            wire.frames.iter_mut().for_each(|frame| frame.data.truncate(bytes));
        }
        find(&wire)
    };
    let (whole, _) = cut(None);
    assert_eq!(whole.unread, 0);
    let (found, words) = cut(Some(110));
    assert_eq!(found.verdict.expect("a verdict").first, Bound::Server, "{:?}", found.shares);
    assert_eq!(found.unread, 200);
    assert_eq!(words.confidence, Confidence::Low, "{words:?}");
    assert!(
        words.doubts.iter().any(|doubt| doubt.contains("not even the operation was captured")),
        "{words:?}"
    );
}

#[test]
fn a_link_that_reads_fill_is_worth_being_faster() {
    // 20 Mbit/s, and READs of 256 KiB.
    let mut wire = Wire::new(700);
    wire.acks = true;
    wire.open();
    wire.ack(true);
    for xid in 1..=20 {
        wire.gap = 2 * US;
        wire.send(true, &call(xid, 100_003, 3, proc::READ, &[0; 48]));
        wire.wait(400 * US);
        wire.gap = 579 * US;
        wire.send(false, &reply(xid, &vec![0; 256 << 10]));
        wire.gap = 2 * US;
        wire.ack(true);
        wire.wait(100 * US);
    }
    let (found, words) = find(&wire);
    assert_eq!(found.verdict.expect("a verdict").bound, Bound::Bandwidth, "{:?}", found.shares);
    assert_eq!(found.terms.upload_bytes_per_s, None);
    let rate = found.terms.download_bytes_per_s.expect("a rate");
    assert!((rate / 2.5e6 - 1.0).abs() < 0.1, "{rate}");
    assert!(words.evidence.iter().any(|line| line.contains("MB/s")), "{words:?}");
    let (now, took) = again(&found);
    assert!((now / took - 1.0).abs() < 0.2, "{now} of {took}");
    let job = Job::repeat(&found.work, found.terms.in_flight, None).expect("work");
    let prediction = predict(&found.terms, &job, &Change::usual(&found.terms)).expect("a prediction");
    let link = prediction.each.iter().find(|outcome| matches!(outcome.change, Change::Link { .. }));
    let then = link.expect("a faster link").outlook.expect("an outlook").seconds;
    assert!(then < 0.3 * now, "{then} instead of {now}");
}

/// Some frames as those of several connections, in the order of time.
fn merged(wires: impl IntoIterator<Item = Wire>) -> Wire {
    let mut all = Wire::new(700);
    all.frames = wires.into_iter().flat_map(|wire| wire.frames).collect();
    all.frames.sort_by_key(|captured| captured.ns);
    all
}

/// Two connections of one client, to two servers.
fn two_servers() -> [Wire; 2] {
    [1, 9].map(|server| {
        let mut wire = Wire::new(700);
        wire.acks = true;
        wire.addrs.1 = [10, 0, 0, server];
        wire.open();
        wire.ack(true);
        wire
    })
}

/// A GETATTR that is answered after `takes`, and the client's acknowledgement. Returns when all of it is over.
fn ask(wire: &mut Wire, now: i64, xid: u32, procedure: u32, takes: i64) -> i64 {
    wire.now = now;
    wire.send(true, &call(xid, 100_003, 3, procedure, &[0; 36]));
    wire.wait(takes);
    wire.send(false, &reply(xid, &[0; 88]));
    wire.ack(true);
    wire.now
}

/// The time of all parts, of all pairs.
fn accounted_s(found: &Findings) -> f64 {
    found.shares.total() + found.irregular_s + found.stalls.time_s
}

#[test]
fn a_client_of_two_servers_does_not_wait_for_itself() {
    // `cp` from one server to another: a call there, a call here.
    let [mut from, mut to] = two_servers();
    let mut now = from.now;
    for xid in 1..=200 {
        now = ask(&mut from, now + 20 * US, xid, proc::GETATTR, 5 * MS);
        now = ask(&mut to, now + 20 * US, xid, proc::SETATTR, 5 * MS);
    }
    let (found, words) = find(&merged([from, to]));
    let span = found.work.span_s.expect("a span");
    assert!(found.shares.client < 0.05 * span, "{:?} of {span}", found.shares);
    assert_ne!(found.verdict.expect("a verdict").first, Bound::Client, "{words:?}");
    let all = accounted_s(&found);
    assert!((0.98 * span..=1.001 * span).contains(&all), "{all} of {span}");
    assert_eq!(found.pairs.len(), 2);
    for pair in &found.pairs {
        assert!((pair.shares.total() - span / 2.0).abs() < 0.02 * span, "{pair:?}");
        assert!((pair.in_flight - 1.0).abs() < 1e-9, "{pair:?}");
    }
    assert!((found.terms.in_flight - 1.0).abs() < 1e-9, "{:?}", found.terms);
    let (seconds, took) = again(&found);
    assert!((seconds / took - 1.0).abs() < 0.1, "{seconds} of {took}: {:?}", found.terms);
}

#[test]
fn calls_to_two_servers_at_once_share_the_time() {
    let [mut one, mut other] = two_servers();
    let mut now = one.now;
    for xid in 1..=200 {
        let ended = ask(&mut one, now, xid, proc::GETATTR, 5 * MS);
        now = ask(&mut other, now + US, xid, proc::GETATTR, 5 * MS).max(ended) + 20 * US;
    }
    let (found, _) = find(&merged([one, other]));
    let span = found.work.span_s.expect("a span");
    let all = accounted_s(&found);
    assert!((0.98 * span..=1.001 * span).contains(&all), "{all} of {span}");
    assert!((found.terms.in_flight - 2.0).abs() < 0.01, "{:?}", found.terms);
    let (seconds, took) = again(&found);
    assert!((seconds / took - 1.0).abs() < 0.1, "{seconds} of {took}: {:?}", found.terms);
}

#[test]
fn hosts_that_mount_each_other_keep_their_losses_and_round_trips_apart() {
    // From .2 to .1 a long way on which answers are lost too; from .1 to .2 neither.
    let far = untar(&World { rtt: 10 * MS, loses: 20, ..lan() }, End::Server, 40);
    let mut near = Wire::new(900);
    near.acks = true;
    near.addrs = ([10, 0, 0, 1], [10, 0, 0, 2]);
    near.open();
    near.ack(true);
    let mut now = near.now;
    for xid in 1..=1000 {
        now = ask(&mut near, now + 50 * US, xid, proc::GETATTR, 200 * US);
    }
    let (far_alone, near_alone) = (find(&far).0, find(&near).0);
    let (found, _) = find(&merged([near, far]));
    let of = |client: &str| {
        found.pairs.iter().find(|pair| pair.ends.expect("addresses").0.to_string() == client).expect("it")
    };
    for (pair, alone) in [(of("10.0.0.2"), &far_alone.pairs[0]), (of("10.0.0.1"), &near_alone.pairs[0])] {
        assert!((pair.shares.loss - alone.shares.loss).abs() < 0.01, "{:?} {:?}", pair.shares, alone.shares);
        assert!((pair.round_trip_ns / alone.round_trip_ns - 1.0).abs() < 0.01, "{pair:?} {alone:?}");
    }
    assert!(far_alone.shares.loss > 1.0);
}

/// What is found in the part of a capture that is wanted.
fn find_of(wire: &Wire, wanted: Wanted) -> (Findings, Totals) {
    let mut trace = Trace::new(Filter::new(wanted, Analysis::new()));
    wire.frames.iter().for_each(|captured| trace.frame(&captured.frame(1)));
    let (totals, filter) = trace.finish();
    (filter.finish().1.finish(), totals)
}

#[test]
fn calls_that_are_not_wanted_are_no_pauses_of_the_client() {
    let mut wire = Wire::new(700);
    wire.acks = true;
    wire.open();
    wire.ack(true);
    let mut now = wire.now;
    for xid in 1..=200 {
        now = ask(&mut wire, now + 10 * US, 2 * xid, proc::SETATTR, 4 * MS);
        now = ask(&mut wire, now + 10 * US, 2 * xid + 1, proc::WRITE, MS);
    }
    let writes = || Wanted { procedures: vec!["WRITE".parse().expect("a procedure")], ..Wanted::default() };
    let (found, _) = find_of(&wire, writes());
    assert_eq!(found.work.calls, 200);
    assert!(found.shares.client < 0.01, "{:?}", found.shares);
    assert_ne!(found.verdict.expect("a verdict").first, Bound::Client);
    assert!((accounted_s(&found) - 0.2).abs() < 0.01, "{:?}", found.shares);
    // What the client really waits before each of them stays.
    let mut slow = wire.clone();
    for (at, frame) in (0i64..).zip(&mut slow.frames) {
        frame.ns += (at / 6 + 1) * 2 * MS;
    }
    let (found, _) = find_of(&slow, writes());
    assert!(found.shares.client < 0.45, "{:?}", found.shares);
    // Nor is what another server is asked meanwhile a pause.
    let [mut from, mut to] = two_servers();
    let mut now = from.now;
    for xid in 1..=100 {
        now = ask(&mut from, now + 10 * US, xid, proc::GETATTR, 5 * MS);
        now = ask(&mut to, now + 10 * US, xid, proc::GETATTR, MS);
    }
    let server = "10.0.0.9".parse().ok();
    let (found, _) = find_of(&merged([from, to]), Wanted { server, ..Wanted::default() });
    assert_eq!((found.work.calls, found.pairs.len()), (100, 1));
    assert!(found.shares.client < 0.01, "{:?}", found.shares);
}

#[test]
fn segments_of_connections_that_are_not_wanted_are_not_counted() {
    let clean = untar(&lan(), End::Client, 20);
    let loses = untar(&World { loses: 10, ..lan() }, End::Client, 20);
    let both = together(&[(2, clean), (3, loses)]);
    let retransmitted = |client: &str| {
        find_of(&both, Wanted { client: client.parse().ok(), ..Wanted::default() }).1.tcp.retransmitted
    };
    assert_eq!(retransmitted("10.0.0.2"), 0);
    assert!(retransmitted("10.0.0.3") > 0);
}

#[test]
fn an_outage_after_which_a_call_is_sent_again_is_no_pause_of_the_client() {
    let mut wire = Wire::new(700);
    wire.acks = true;
    wire.open();
    wire.ack(true);
    let mut now = wire.now;
    for xid in 1..=100 {
        now = ask(&mut wire, now + 100 * US, xid, proc::GETATTR, 500 * US);
    }
    wire.send(true, &call(101, 100_003, 3, proc::GETATTR, &[0; 36]));
    wire.wait(40_000 * MS);
    wire.seq = (5, 4_000_000_000);
    wire.open();
    wire.ack(true);
    now = wire.now;
    now = ask(&mut wire, now, 101, proc::GETATTR, 500 * US);
    for xid in 102..=200 {
        now = ask(&mut wire, now + 100 * US, xid, proc::GETATTR, 500 * US);
    }
    let (found, words) = find(&wire);
    assert_eq!((found.stalls.count, found.stalls.calls), (1, 1), "{:?}", found.stalls);
    assert!((found.stalls.time_s - 40.0).abs() < 0.1, "{:?}", found.stalls);
    assert!(found.irregular_s < 0.01, "{}", found.irregular_s);
    assert!(!words.evidence.iter().any(|line| line.contains("asked for nothing")), "{words:?}");
}
