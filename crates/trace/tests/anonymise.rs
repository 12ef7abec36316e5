//! Copies without names: what is found in them is what is found in the original.

#[allow(dead_code)]
mod wire;

use landfast_nfs::v3::args::WriteArgs;
use landfast_nfs::v3::types::{DirOp, StableHow};
use landfast_nfs::{PROGRAM, v3};
use landfast_trace::anonymise::{Anonymiser, LeftOut};
use landfast_trace::source::{Capture, End};
use landfast_trace::table::{Place, Row};
use landfast_trace::trace::{Totals, Trace};
use landfast_xdr::{Bytes, Encode};
use proptest::prelude::*;
use std::io::Cursor;
use wire::{Captured, Seen, Wire, call, fragments, look, reply};

const MS: i64 = 1_000_000;

/// The copy, as a file.
fn copy(frames: &[Captured]) -> (Totals, LeftOut, Vec<u8>) {
    let mut copy = Anonymiser::new(&[5; 16], Vec::new());
    frames.iter().for_each(|captured| copy.frame(&captured.frame(1)).expect("memory"));
    copy.finish().expect("memory")
}

fn read(file: &[u8]) -> (Totals, Seen) {
    let mut trace = Trace::new(Seen::default());
    let mut capture = Capture::open(Cursor::new(file.to_vec())).expect("a capture");
    assert_eq!(capture.each(|frame| trace.frame(frame)).expect("frames"), End::Whole);
    trace.finish()
}

fn rows(seen: &Seen) -> Vec<(Place, u64, u64, u64, u128)> {
    let row = |(place, row): (&Place, &Row)| (*place, row.calls, row.min_ns, row.max_ns, row.sum_ns);
    seen.table.rows().map(row).collect()
}

fn has(file: &[u8], bytes: &[u8]) -> bool {
    file.windows(bytes.len()).any(|w| w == bytes)
}

fn opaque(bytes: &'static [u8]) -> Bytes {
    Bytes::from_static(bytes)
}

/// Looks a file up, writes it, lists its directory.
fn work(wire: &mut Wire, files: u32) {
    let handle = || v3::FileHandle(opaque(b"the handle of something"));
    for n in 0..files {
        let name = format!("secret-{n:04}.txt");
        let lookup = DirOp { dir: handle(), name: Bytes::copy_from_slice(name.as_bytes()) };
        wire.send(true, &call(3 * n, PROGRAM, 3, v3::proc::LOOKUP, &lookup.to_bytes()));
        wire.wait(MS);
        let found = [&[0u8; 4][..], &handle().0.to_bytes(), &[0; 8]].concat();
        wire.send(false, &reply(3 * n, &found));
        let data = Bytes::from(b"confidential text".repeat(300));
        let count = u32::try_from(data.len()).expect("a length");
        let write = WriteArgs { file: handle(), offset: 7, count, stable: StableHow::FileSync, data };
        wire.send(true, &call(3 * n + 1, PROGRAM, 3, v3::proc::WRITE, &write.to_bytes()));
        wire.wait(2 * MS);
        wire.send(false, &reply(3 * n + 1, &[0; 28]));
        let mut args = handle().0.to_bytes().to_vec();
        args.extend([0; 20]);
        wire.send(true, &call(3 * n + 2, PROGRAM, 3, v3::proc::READDIR, &args));
        wire.wait(MS);
        let mut entries = vec![0; 16];
        for _ in 0..3 {
            entries.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]);
            entries.extend(Bytes::copy_from_slice(name.as_bytes()).to_bytes());
            entries.extend([0, 0, 0, 0, 0, 0, 0, 5]);
        }
        entries.extend([0; 8]);
        wire.send(false, &reply(3 * n + 2, &entries));
    }
}

#[test]
fn a_copy_has_the_calls_and_times_but_no_names() {
    let mut wire = Wire::new(995);
    wire.segment = 700;
    wire.open();
    work(&mut wire, 10);
    let (totals, before) = look(&wire.frames);
    let (_, left_out, file) = copy(&wire.frames);
    let (after_totals, after) = read(&file);
    assert_eq!(left_out, LeftOut::default());
    assert_eq!((totals, rows(&before)), (after_totals, rows(&after)));
    for secret in [&b"secret"[..], b"confidential", b"handle of", &[10, 0, 0, 2], &[10, 0, 0, 1]] {
        assert!(!has(&file, secret), "{}", secret.escape_ascii());
    }
    // But for what names and handles are, and addresses, the listings are the same.
    let form = |line: &String| {
        let words = line.split(' ').enumerate();
        let words = words.filter(|(n, word)| !matches!(n, 3 | 5) && !word.starts_with("0x"));
        words.map(|(_, word)| word.to_owned()).collect::<Vec<_>>()
    };
    let forms = |seen: &Seen| seen.lines.iter().map(form).collect::<Vec<_>>();
    assert_eq!(forms(&before), forms(&after));
    let names = |seen: &Seen| {
        let lines = seen.lines.iter().filter_map(|line| line.split_once("DH: "));
        lines.map(|(_, name)| name.to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((names(&before).len(), names(&after).len()), (10, 10));
    assert_ne!(copy(&wire.frames).2.len(), 0);
    let mut other = Anonymiser::new(&[6; 16], Vec::new());
    wire.frames.iter().for_each(|captured| other.frame(&captured.frame(1)).expect("memory"));
    assert_ne!(other.finish().expect("memory").2, file, "another key");
}

#[test]
fn what_came_in_fragments_is_in_the_copy_too() {
    let handle = v3::FileHandle(opaque(b"the handle of something"));
    let data = Bytes::from(b"confidential text".repeat(300));
    let count = u32::try_from(data.len()).expect("a length");
    let write = WriteArgs { file: handle, offset: 7, count, stable: StableHow::FileSync, data };
    let message = call(1, PROGRAM, 3, v3::proc::WRITE, &write.to_bytes());
    let mut frames = fragments(true, 7, 0, &message[4..], 1480);
    frames.swap(1, 2);
    frames.extend(fragments(false, 9, MS, &reply(1, &[0; 28])[4..], 16));
    let mut lost = fragments(true, 8, 2 * MS, &message[4..], 1480);
    lost.remove(2);
    frames.extend(lost);
    let (totals, before) = look(&frames);
    let (_, left_out, file) = copy(&frames);
    let (after_totals, after) = read(&file);
    assert_eq!((totals.calls_matched, left_out), (1, LeftOut::default()));
    assert_eq!((totals, rows(&before)), (after_totals, rows(&after)));
    for secret in [&b"confidential"[..], b"handle of", &[10, 0, 0, 2]] {
        assert!(!has(&file, secret), "{}", secret.escape_ascii());
    }
}

#[test]
fn what_is_no_rpc_becomes_zeros() {
    let mut wire = Wire::new(2222);
    wire.open();
    wire.send(true, b"a password of somebody, in the open, in a protocol that nobody knows here");
    wire.frames.push(Captured {
        ns: wire.now,
        data: [&[1; 12][..], &[8, 6], b"an ARP frame"].concat(),
        wire_len: 60,
    });
    let (_, left_out, file) = copy(&wire.frames);
    assert!(!has(&file, b"password") && !has(&file, b"ARP"));
    let (totals, _) = read(&file);
    assert_eq!((totals.frames, totals.connections, totals.rpc_connections), (4, 1, 0));
    let mut copy = Anonymiser::new(&[5; 16], Vec::new());
    copy.frame(&wire.frames[0].frame(1)).expect("memory");
    copy.frame(&wire.frames[0].frame(101)).expect("memory");
    let (_, of_two_links, file) = copy.finish().expect("memory");
    assert_eq!((left_out.frames, of_two_links.frames, read(&file).0.frames), (0, 1, 1));
}

proptest! {
    /// Frames doubled, left out, brought out of order and cut short: the same is found in the copy.
    #[test]
    fn the_same_is_found_whatever_happened_on_the_way(
        steps in proptest::collection::vec((0u8..5, any::<proptest::sample::Index>(), any::<u16>()), 0..12),
        segment in 20usize..3000,
    ) {
        let mut wire = Wire::new(995);
        wire.segment = segment;
        wire.open();
        work(&mut wire, 6);
        let mut frames = wire.frames.clone();
        for (step, at, how) in steps {
            let i = at.index(frames.len());
            match step {
                0 => { let again = frames[i].clone(); frames.insert(i, again); }
                1 => { let again = frames[i].clone(); frames.push(again); }
                2 if frames.len() > 1 => { frames.remove(i); }
                3 => { let j = (i + usize::from(how % 30)).min(frames.len() - 1); frames.swap(i, j); }
                4 => { let keep = usize::from(how) % 200; frames[i].data.truncate(keep); }
                _ => {}
            }
        }
        let (before, seen) = look(&frames);
        let (_, left_out, file) = copy(&frames);
        let (after, seen_after) = read(&file);
        prop_assert_eq!(left_out, LeftOut::default());
        prop_assert_eq!((before.calls_seen, before.calls_matched), (after.calls_seen, after.calls_matched));
        prop_assert_eq!((before.calls_unmeasured, before.repeated_calls), (after.calls_unmeasured, after.repeated_calls));
        prop_assert_eq!(rows(&seen), rows(&seen_after));
        for secret in [&b"secret"[..], b"confidential", b"handle of"] {
            prop_assert!(!has(&file, secret));
        }
    }
}
