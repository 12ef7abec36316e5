//! Traffic of a line that is made so that it is known what it does to the work: how far it is, how narrow, what it loses.

#[allow(dead_code)]
mod wire;

use landfast_model::Bound;
use landfast_nfs::v3::proc;
use landfast_trace::analysis::Analysis;
use landfast_trace::analysis::findings::{Findings, Side};
use landfast_trace::trace::Trace;
use wire::{Wire, call, reply};

const MS: i64 = 1_000_000;
const US: i64 = 1_000;

/// Two segments at 20 Mbit/s.
const TWO_SEGMENTS: i64 = 1211 * US;

fn find(wire: &Wire) -> Findings {
    let mut trace = Trace::new(Analysis::new());
    wire.frames.iter().for_each(|frame| trace.frame(&frame.frame(1)));
    trace.finish().1.finish()
}

fn assert_bound(wire: &Wire, bound: Bound, least: f64) -> Findings {
    let found = find(wire);
    assert_eq!(found.verdict.expect("a verdict").bound, bound, "{:?}", found.shares);
    let (_, most) = found.shares.parts()[0];
    assert!(most > least * found.shares.total(), "{:?}", found.shares);
    found
}

/// A connection whose handshake is no more than a round trip.
fn opened(to_server: i64, to_client: i64) -> Wire {
    let mut wire = Wire::new(700);
    wire.gap = US;
    wire.acks = true;
    wire.open();
    wire.wait(to_client);
    wire.ack(true);
    for xid in 1..=3 {
        ask(&mut wire, xid, to_server, to_client);
    }
    wire
}

/// A GETATTR.
fn ask(wire: &mut Wire, xid: u32, to_server: i64, to_client: i64) {
    wire.send(true, &call(xid, landfast_nfs::PROGRAM, 3, proc::GETATTR, &[0; 36]));
    wire.wait(to_server + 50 * US);
    wire.send(false, &reply(xid, &[0; 88]));
    wire.wait(to_client + 50 * US);
    wire.ack(true);
}

fn write(xid: u32, bytes: usize) -> Vec<u8> {
    let word = |n: usize| u32::try_from(n).expect("a length").to_be_bytes();
    let head = [word(8), [1; 4], [2; 4], [0; 4], [0; 4], word(bytes), word(2), word(bytes)].concat();
    call(xid, landfast_nfs::PROGRAM, 3, proc::WRITE, &[head, vec![7; bytes]].concat())
}

/// Who was sent bytes between these numbers hears of two segments at a time.
fn heard(wire: &mut Wire, by_client: bool, from: u32, to: u32) {
    let who = usize::from(!by_client);
    let mut at = from;
    while to.wrapping_sub(at) > 2896 {
        at = at.wrapping_add(2896);
        wire.heard[who] = Some(at);
        wire.wait(TWO_SEGMENTS);
        wire.ack(by_client);
    }
    wire.heard[who] = None;
}

#[test]
fn what_was_sent_at_once_is_on_its_way_until_it_is_heard() {
    // At the client: a queue before a narrow line takes a whole WRITE.
    let mut wire = opened(500 * US, 0);
    for xid in 10..20 {
        let from = wire.seq.0;
        wire.send(true, &write(xid, 256 << 10));
        let to = wire.seq.0;
        heard(&mut wire, false, from, to);
        wire.wait(500 * US);
        wire.send(false, &reply(xid, &[0; 140]));
        wire.wait(200 * US);
        ask(&mut wire, 100 + xid, 500 * US, 0);
    }
    let found = assert_bound(&wire, Bound::Bandwidth, 0.9);
    let rate = found.terms.upload_bytes_per_s.expect("a rate");
    assert!((rate / 2.4e6 - 1.0).abs() < 0.1, "{rate}");
    // At the server: what is read.
    let mut wire = opened(0, 500 * US);
    for xid in 10..20 {
        wire.send(true, &call(xid, landfast_nfs::PROGRAM, 3, proc::READ, &[0; 48]));
        wire.wait(100 * US);
        let from = wire.seq.1;
        wire.send(false, &reply(xid, &vec![0; 256 << 10]));
        let to = wire.seq.1;
        heard(&mut wire, true, from, to);
        wire.wait(700 * US);
    }
    assert_bound(&wire, Bound::Bandwidth, 0.9);
}

#[test]
fn an_answer_in_the_middle_of_the_next_call_waits_for_its_bytes() {
    // Each WRITE is answered when half of the next one was sent; the line is never idle.
    let mut wire = opened(500 * US, 0);
    wire.gap = TWO_SEGMENTS / 2;
    for xid in 10..30 {
        let bytes = write(xid, 128 << 10);
        let (one, two) = bytes.split_at(64 << 10);
        wire.send(true, one);
        wire.ack(false);
        if xid > 10 {
            wire.send(false, &reply(xid - 1, &[0; 140]));
        }
        wire.send(true, two);
        wire.ack(false);
    }
    wire.send(false, &reply(29, &[0; 140]));
    assert_bound(&wire, Bound::Bandwidth, 0.95);
}

/// WRITEs over a round trip of 10 ms by a sender that may have so many segments outstanding at first, and eight later; of so many windows
/// one loses a segment.
fn windows(first: usize, loses: usize) -> Wire {
    let mut wire = opened(10 * MS, 0);
    let mut window = 0;
    for xid in 10..20 {
        let segments = if xid < 12 { first } else { 8 };
        for piece in write(xid, 64 << 10).chunks(segments * 1448) {
            window += 1;
            wire.send(true, piece);
            wire.wait(10 * MS);
            if loses > 0 && window % loses == 0 {
                let last = wire.seq.0;
                let lost = piece.chunks(1448).last().expect("a segment");
                wire.seq.0 = last.wrapping_sub(u32::try_from(lost.len()).expect("a length"));
                wire.heard[1] = Some(wire.seq.0);
                wire.ack(false);
                wire.send(true, lost);
                wire.heard[1] = None;
                wire.wait(10 * MS);
            }
            wire.ack(false);
        }
        wire.send(false, &reply(xid, &[0; 140]));
        wire.wait(100 * US);
    }
    wire
}

#[test]
fn a_sender_that_lost_something_sends_less_at_a_time() {
    assert_bound(&windows(8, 0), Bound::Rtt, 0.8);
    assert_bound(&windows(64, 3), Bound::Loss, 0.6);
    // One that sends as much as before has lost a round trip each time.
    let found = find(&windows(8, 3));
    assert_eq!(found.verdict.expect("a verdict").first, Bound::Rtt);
    assert!((found.shares.loss / found.shares.total() - 0.25).abs() < 0.1, "{:?}", found.shares);
}

#[test]
fn a_connection_whose_beginning_is_lost_waits_from_there() {
    let mut wire = opened(MS, 0);
    wire.wait(500 * MS);
    wire.ports.0 = 701;
    let seq = wire.seq;
    wire.open();
    wire.wait(1000 * MS);
    wire.seq = seq;
    wire.open();
    ask(&mut wire, 9, MS, 0);
    let found = find(&wire);
    assert!((found.shares.loss - 1.0).abs() < 0.01, "{:?}", found.shares);
}

#[test]
fn what_is_behind_a_lost_call_waits_for_it() {
    // Four programs, each with a call every 5 ms; one in forty calls is lost, and sent again when the three behind it have shown that.
    let mut wire = opened(MS, 0);
    let mut stood = 0;
    for round in 0..100u32 {
        let lost = round % 10 == 5;
        let at = wire.seq.0;
        let calls =
            [0, 1, 2, 3].map(|n| call(4 * round + n + 10, landfast_nfs::PROGRAM, 3, proc::GETATTR, &[0; 36]));
        for call in &calls {
            wire.send(true, call);
            wire.wait(300 * US);
            if lost {
                // The others go on, and nothing of them is acknowledged.
                wire.heard[1] = Some(at);
                wire.wait(30 * MS);
                stood += 30 * MS + 300 * US;
            }
        }
        if lost {
            let end = wire.seq.0;
            wire.seq.0 = at;
            wire.send(true, &calls[0]);
            wire.seq.0 = end;
            wire.heard[1] = None;
        }
        wire.wait(MS);
        for n in 0..4 {
            wire.send(false, &reply(4 * round + n + 10, &[0; 88]));
        }
        wire.wait(100 * US);
        wire.ack(true);
    }
    let found = assert_bound(&wire, Bound::Loss, 0.8);
    assert!((found.shares.loss / (stood as f64 / 1e9) - 1.0).abs() < 0.05, "{stood} {:?}", found.shares);
}

/// How long so many bytes of payload are on a line of 2 Mbit/s.
fn on_the_line(bytes: usize) -> i64 {
    (bytes + bytes.div_ceil(1448).max(1) * 66) as i64 * 4 * US
}

/// Small files over such a line, as both ends see them: the server takes 0.2 ms, a program as much.
fn small_files_on_a_narrow_line(at_server: bool) -> Wire {
    let host = 200 * US;
    let mut wire = Wire::new(700);
    wire.gap = US;
    wire.acks = true;
    wire.open();
    wire.wait(if at_server { 2 * on_the_line(0) } else { host });
    wire.ack(true);
    let work = [(100, 100), (150, 120), (6000, 140), (120, 140), (120, 140)];
    for (xid, (bytes, answer)) in (1..).zip([work; 60].concat()) {
        let message = match bytes {
            6000 => write(xid, bytes),
            _ => call(xid, landfast_nfs::PROGRAM, 3, proc::GETATTR, &vec![0; bytes]),
        };
        let (from, answer) = (wire.seq.0, reply(xid, &vec![0; answer]));
        if at_server {
            wire.gap = on_the_line(1448);
            wire.wait(on_the_line(message.len().min(1448)) - wire.gap);
            wire.send(true, &message);
            wire.gap = US;
        } else {
            wire.send(true, &message);
            let mut passed = from;
            for two in message.chunks(2 * 1448) {
                wire.wait(on_the_line(two.len()));
                passed = passed.wrapping_add(u32::try_from(two.len()).expect("a length"));
                if passed != wire.seq.0 {
                    wire.heard[1] = Some(passed);
                    wire.ack(false);
                    wire.heard[1] = None;
                }
            }
        }
        wire.wait(host);
        wire.wait(if at_server { 0 } else { on_the_line(answer.len()) });
        wire.send(false, &answer);
        wire.wait(if at_server { on_the_line(answer.len()) } else { 0 });
        wire.wait(host);
    }
    wire
}

#[test]
fn small_messages_take_their_time_on_a_narrow_line() {
    for at_server in [false, true] {
        let found = assert_bound(&small_files_on_a_narrow_line(at_server), Bound::Bandwidth, 0.8);
        assert_eq!(found.side, if at_server { Side::Server } else { Side::Client });
    }
}

#[test]
fn programs_that_write_one_after_another_make_no_narrow_line() {
    // On a fast line that is 10 ms long each of four programs writes 1,200 bytes, 3 ms after the one before it.
    let mut wire = opened(10 * MS, 0);
    for xid in 10..400 {
        let mut heard = wire.seq.0;
        wire.send(true, &write(xid, 1200));
        if xid >= 13 {
            heard = heard.wrapping_sub(2 * u32::try_from(write(0, 1200).len()).expect("a length"));
            wire.wait(MS);
            wire.heard[1] = Some(heard);
            wire.send(false, &reply(xid - 3, &[0; 140]));
            wire.heard[1] = None;
        }
        wire.wait(2 * MS);
    }
    let found = find(&wire);
    assert!(found.shares.bandwidth < 0.05 * found.shares.total(), "{:?}", found.shares);
}

#[test]
fn two_programs_at_once_are_no_shorter_way() {
    // At the server: each program waits 10 ms for the way, its call comes right behind an answer to the other one.
    let (far, near) = (10 * MS, 300 * US);
    let mut wire = opened(0, far);
    for xid in 10..110 {
        // When a call leaves, the client has not heard the answer to the other.
        wire.heard[0] = Some(wire.seq.1);
        for (xid, pause) in [(2 * xid, near), (2 * xid + 1, far - near)] {
            wire.send(true, &call(xid, landfast_nfs::PROGRAM, 3, proc::GETATTR, &[0; 36]));
            wire.wait(50 * US);
            wire.send(false, &reply(xid, &[0; 88]));
            wire.wait(pause);
        }
    }
    let found = assert_bound(&wire, Bound::Rtt, 0.9);
    assert_eq!(found.side, Side::Server);
    assert!((found.terms.round_trip_s - 0.0101).abs() < 0.0005, "{:?}", found.terms);
}

#[test]
fn frames_that_the_capture_lost_are_no_loss() {
    // One in forty frames is not in the file; what came behind it waits there for nothing.
    let (far, mut at) = (10 * MS, 0u32);
    for (to_server, to_client) in [(far, 0), (0, far)] {
        let mut wire = opened(to_server, to_client);
        for xid in 10..300 {
            ask(&mut wire, xid, to_server, to_client);
        }
        wire.frames.retain(|_| {
            at += 1;
            at < 10 || at % 41 > 0
        });
        let found = assert_bound(&wire, Bound::Rtt, 0.9);
        assert!(found.shares.loss < 0.02 * found.shares.total(), "{:?}", found.shares);
    }
}

#[test]
fn a_program_that_reads_late_is_no_narrow_line() {
    // The server hears of the end of a WRITE when its program reads it.
    let mut wire = opened(200 * US, 0);
    for xid in 10..60 {
        let from = wire.seq.0;
        wire.send(true, &write(xid, 12_000));
        wire.heard[1] = Some(from.wrapping_add(2896));
        wire.wait(200 * US);
        wire.ack(false);
        wire.heard[1] = None;
        wire.wait(8 * MS);
        wire.ack(false);
        wire.send(false, &reply(xid, &[0; 140]));
        wire.wait(50 * US);
    }
    let found = find(&wire);
    assert!(found.shares.bandwidth < 0.1 * found.shares.total(), "{:?}", found.shares);
}

#[test]
fn an_answer_that_is_sent_again_ends_no_loss() {
    // At the client: a call is lost behind here, and with it what it said of the answer before, which comes again first.
    let mut wire = opened(MS, 0);
    for xid in 10..40 {
        let before = wire.seq.1;
        wire.send(false, &[]);
        ask(&mut wire, 2 * xid, MS, 0);
        let end = wire.seq.1;
        let next = call(2 * xid + 1, landfast_nfs::PROGRAM, 3, proc::GETATTR, &[0; 36]);
        let at = wire.seq.0;
        wire.send(true, &next);
        wire.wait(195 * MS);
        wire.seq.1 = before;
        wire.heard[1] = Some(at);
        wire.send(false, &reply(2 * xid, &[0; 88]));
        assert_eq!(wire.seq.1, end);
        wire.heard[1] = None;
        wire.wait(5 * MS);
        wire.seq.0 = at;
        wire.send(true, &next);
        wire.wait(MS);
        wire.send(false, &reply(2 * xid + 1, &[0; 88]));
        wire.wait(50 * US);
        wire.ack(true);
    }
    let found = assert_bound(&wire, Bound::Loss, 0.95);
    assert!((found.shares.loss - 30.0 * 0.2).abs() < 0.1, "{:?}", found.shares);
}
