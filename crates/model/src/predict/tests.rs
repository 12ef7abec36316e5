//! The equation, change by change.

use super::job::CALL_BYTES;
use super::*;

fn terms() -> Terms {
    Terms {
        round_trip_s: 1e-3,
        server_s: 50e-6,
        persistence_s: 4e-3,
        think_s: 0.0,
        file_think_s: 0.0,
        upload_bytes_per_s: None,
        download_bytes_per_s: None,
        in_flight: 1.0,
    }
}

fn job(version: Version) -> Job {
    let mut tree = Tree::default();
    tree.add_files(1000, 4096, WRITE_BYTES);
    Job::extract(&tree, &Manner::new(version))
}

fn one(terms: &Terms, job: &Job, change: Change) -> f64 {
    let prediction = predict(terms, job, &[change]).unwrap();
    prediction.each[0].outlook.unwrap().seconds
}

#[track_caller]
fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a} is not {b}");
}

#[test]
fn one_at_a_time_takes_what_the_equation_says() {
    let now = predict(&terms(), &job(Version::V3), &[]).unwrap().now;
    near(now.seconds, 6000.0 * 1.05e-3 + 6000.0 * 4e-3);
    near(now.shares.rtt, 6.0);
    near(now.shares.persistence, 24.0);
    assert_eq!(now.calls, 6000);
    let slow = Terms { think_s: 1e-3, upload_bytes_per_s: Some(4096.0 * 100.0), ..terms() };
    near(predict(&slow, &job(Version::V3), &[]).unwrap().now.seconds, now.seconds + 6.0 + 10.0);
}

#[test]
fn each_change_changes_its_term() {
    let (v3, v4) = (job(Version::V3), job(Version::V4));
    near(one(&terms(), &v3, Change::LogDevice { persistence_s: 50e-6 }), 6000.0 * 1.1e-3);
    near(one(&terms(), &v3, Change::LogDevice { persistence_s: 1.0 }), 6000.0 * 5.05e-3);
    near(one(&terms(), &v3, Change::RoundTrip { round_trip_s: 0.1e-3 }), 6000.0 * 4.15e-3);
    near(one(&terms(), &v4, Change::Delegations), 5000.0 * 5.05e-3);
    // 63 COMPOUNDs; three durable operations per file, or one per COMPOUND; three or five round trips for a session,
    // three of them durable.
    let compound = |at_once| one(&terms(), &v3, Change::Compound { files: 16, at_once });
    near(compound(true), 66e-3 + 1063.0 * 50e-6 + 66.0 * 4e-3);
    near(compound(false), 68e-3 + 1063.0 * 50e-6 + 3003.0 * 4e-3);
    // One COMPOUND at a time: the two ends do not work in parallel.
    let quick = Terms { server_s: 0.0, persistence_s: 0.0, ..terms() };
    let quick = one(&quick, &v3, Change::Compound { files: 16, at_once: true });
    near(quick, 66e-3 + 1000.0 * (FILE_WORK_S + FILE_IN_TURN_S));
}

#[test]
fn streams_share_flushes_and_wait_for_them() {
    let streams = |persistence_s, n| {
        one(&Terms { persistence_s, ..terms() }, &job(Version::V3), Change::Streams { streams: n })
    };
    near(streams(4e-3, 1), 6000.0 * 5.05e-3);
    // A flush takes longer than the time between two: each call waits for the rest of one flush and for its own.
    near(streams(4e-3, 4), 6000.0 * 8e-3 / 4.0);
    // Otherwise they meet as often as the others' flushes are in progress.
    near(streams(1e-3, 2), 6000.0 * (1.05e-3 + 1e-3 + 0.5e-3 / 2.05) / 2.0);
    // No more streams than files, and the processor time per file stays.
    near(streams(1e-3, 1_000_000), 6.0 * (1e-3 + 1.5e-3) + 1000.0 * FILE_WORK_S);
    near(streams(0.0, 1_000_000), 6.0 * 1e-3 + 1000.0 * FILE_WORK_S);
}

#[test]
fn work_that_was_seen_under_several_streams_takes_what_it_took() {
    let work = crate::Work {
        files: 100,
        bytes: 0,
        bytes_down: 0,
        calls: 6000,
        synchronous_calls: 6000,
        span_s: Some(6000.0 * 5.05e-3 / 3.0),
    };
    let job = Job::repeat(&work, 3.0, None).unwrap();
    let p =
        predict(&terms(), &job, &[Change::Streams { streams: 2 }, Change::Streams { streams: 6 }]).unwrap();
    near(p.now.seconds, work.span_s.unwrap());
    // Fewer streams would be slower, and nobody asks for that. With more, each waits as long as before, because every
    // call met a flush before.
    near(p.each[0].outlook.unwrap().seconds, p.now.seconds);
    near(p.each[1].outlook.unwrap().seconds, p.now.seconds / 2.0);
}

#[test]
fn compounds_of_files_replace_no_other_work() {
    let work = |calls| crate::Work {
        files: 100,
        bytes: 0,
        bytes_down: 0,
        calls,
        synchronous_calls: 600,
        span_s: None,
    };
    let change = Change::Compound { files: 16, at_once: true };
    let seconds = |calls| one(&terms(), &Job::repeat(&work(calls), 1.0, None).unwrap(), change);
    assert!(seconds(900) < 0.2);
    near(seconds(900), seconds(1200));
    // 100,000 additional reads.
    near(seconds(101_400) - seconds(900), 100_000.0 * 1.05e-3);
}

#[test]
fn a_prediction_is_read_back_from_its_json() {
    let p = predict(&terms(), &job(Version::V3), &Change::usual(&terms())).unwrap();
    let text = serde_json::to_string(&p).unwrap();
    let read: Prediction = serde_json::from_str(&text).unwrap();
    near(read.now.seconds, p.now.seconds);
    for (read, written) in read.each.iter().zip(&p.each) {
        assert_eq!((&read.name, read.change.kind()), (&written.name, written.change.kind()));
        assert_eq!((read.outlook.is_some(), read.unknown), (written.outlook.is_some(), written.unknown));
    }
    assert_eq!(read.each.len(), p.each.len());
    near(read.together.unwrap().seconds, p.together.unwrap().seconds);
}

#[test]
fn all_at_once_is_at_least_as_good_as_each() {
    let changes = Change::usual(&terms());
    let p = predict(&terms(), &job(Version::V4), &changes).unwrap();
    let together = p.together.unwrap().seconds;
    for outcome in &p.each {
        assert!(together <= outcome.outlook.unwrap().seconds, "{}", outcome.name);
        assert!(outcome.outlook.unwrap().seconds <= p.now.seconds, "{}", outcome.name);
    }
    assert_eq!(predict(&terms(), &job(Version::V4), &changes[..1]).unwrap().together, None);
}

#[test]
fn what_cannot_be_known_says_so() {
    let p = predict(&terms(), &job(Version::V3), &[Change::Delegations]).unwrap();
    assert_eq!((p.each[0].outlook, p.each[0].unknown), (None, Some(Unknown::Delegations)));
    let work =
        crate::Work { files: 0, bytes: 0, bytes_down: 0, calls: 10, synchronous_calls: 5, span_s: Some(1.0) };
    let seen = Job::repeat(&work, 1.0, None).unwrap();
    let p = predict(&terms(), &seen, &[Change::Compound { files: 16, at_once: true }]).unwrap();
    assert_eq!(p.each[0].unknown, Some(Unknown::Files));
}

#[test]
fn what_a_program_does_for_each_file_stays() {
    let slow = Terms { think_s: 1e-3, file_think_s: 40e-3, ..terms() };
    let job = job(Version::V4);
    let client = |change: Change| {
        let p = predict(&slow, &job, &[change]).unwrap();
        p.each[0].outlook.unwrap().shares.client
    };
    near(predict(&slow, &job, &[]).unwrap().now.shares.client, 7.0 + 40.0);
    near(client(Change::Delegations), 5.0 + 40.0);
    near(client(Change::LogDevice { persistence_s: 50e-6 }), 7.0 + 40.0);
    // 63 COMPOUNDs, and three calls for the session.
    near(client(Change::Compound { files: 16, at_once: true }), 66e-3 + 40.0);
    // Several programs, each with its files; one program with several COMPOUNDs in flight.
    near(client(Change::Streams { streams: 4 }), 47.0 / 4.0);
    let both = [Change::Compound { files: 16, at_once: true }, Change::Streams { streams: 4 }];
    near(predict(&slow, &job, &both).unwrap().together.unwrap().shares.client, 66e-3 + 40.0);
    assert!(predict(&Terms { file_think_s: f64::NAN, ..slow }, &job, &[]).is_err());
}

#[test]
fn what_was_never_tried_has_no_error_bar_alone_or_with_others() {
    let within = |changes: &[Change]| {
        let p = predict(&terms(), &job(Version::V4), changes).unwrap();
        let each: Vec<bool> = p.each.iter().map(|o| o.outlook.unwrap().within_s.is_some()).collect();
        (each, p.together.and_then(|o| o.within_s).is_some())
    };
    let log = Change::LogDevice { persistence_s: 50e-6 };
    assert_eq!(within(&[log, Change::Streams { streams: 4 }]), (vec![true, true], true));
    assert_eq!(within(&[log, Change::Delegations]), (vec![true, false], false));
    // With COMPOUNDs of files they change nothing.
    let compound = Change::Compound { files: 16, at_once: true };
    assert_eq!(within(&[Change::Delegations, compound]), (vec![false, true], true));
}

#[test]
fn a_faster_link_and_a_faster_server_change_their_terms() {
    let narrow = Terms { upload_bytes_per_s: Some(1e6), ..terms() };
    let v3 = job(Version::V3);
    let now = predict(&narrow, &v3, &[]).unwrap().now;
    near(now.shares.bandwidth, 4.096);
    // The time of calls and replies without data is part of the terms, and disappears with the link.
    let messages = 6000.0 * CALL_BYTES as f64 / 1e6;
    near(one(&narrow, &v3, Change::Link { bytes_per_s: 4e6 }), now.seconds - (4.096 + messages) * 0.75);
    // If the link was never saturated, it is not part of the terms.
    near(one(&terms(), &v3, Change::Link { bytes_per_s: 1e6 }), now.seconds + messages);
    // For observed work these bytes are part of `bytes`.
    let work = crate::Work {
        files: 10,
        bytes: 1_000_000,
        bytes_down: 0,
        calls: 60,
        synchronous_calls: 60,
        span_s: None,
    };
    let seen = Job::repeat(&work, 1.0, None).unwrap();
    near(one(&terms(), &seen, Change::Link { bytes_per_s: 1e6 }), 60.0 * 5.05e-3 + 1.0);
    // Bytes that the server sent take time on the way back, whatever the other way has.
    let read = Job::repeat(&crate::Work { bytes: 0, bytes_down: 1_000_000, ..work }, 1.0, None).unwrap();
    let narrow_down = Terms { download_bytes_per_s: Some(1e6), ..terms() };
    near(predict(&narrow_down, &read, &[]).unwrap().now.shares.bandwidth, 1.0);
    near(predict(&narrow, &read, &[]).unwrap().now.shares.bandwidth, 0.0);
    near(one(&narrow_down, &read, Change::Link { bytes_per_s: 4e6 }), 60.0 * 5.05e-3 + 0.25);
    near(one(&terms(), &read, Change::Link { bytes_per_s: 1e6 }), 60.0 * 5.05e-3 + 1.0);
    // Terms of work that read say nothing of the way up, but a narrow link bounds an extraction all the same.
    near(one(&narrow_down, &seen, Change::Link { bytes_per_s: 1e6 }), 60.0 * 5.05e-3 + 1.0);
    near(one(&terms(), &v3, Change::Server { times: 2.0 }), 6000.0 * 1.025e-3 + 6000.0 * 4e-3);
    let p = predict(&narrow, &v3, &[Change::Link { bytes_per_s: 12.5e6 }, Change::Server { times: 2.0 }])
        .unwrap();
    let named: Vec<&str> = p.each.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(named, ["link of 100 Mbit/s", "server 2 times as fast"]);
    for tried in &p.each {
        let outlook = tried.outlook.unwrap();
        let (from, to) = outlook.within_s.expect("tried over links");
        assert!(from < outlook.seconds && outlook.seconds < to, "{}: {from} to {to}", tried.name);
    }
}

#[test]
fn streams_send_while_others_wait_until_the_link_is_full() {
    let four = |bytes_per_s| {
        let narrow = Terms { upload_bytes_per_s: Some(bytes_per_s), persistence_s: 0.0, ..terms() };
        one(&narrow, &job(Version::V3), Change::Streams { streams: 4 })
    };
    // 1.575 s besides the data of each; data of 4.096 s saturate the link.
    near(four(1e6), 4.096);
    // Data of 0.4096 s: the other three send a sixth of the time, and then half a message is waited for.
    let own = 0.1024;
    let busy = 3.0 * own / (1.575 + own);
    near(four(1e7), 1.575 + own * (1.0 + busy / 2.0));
}

#[test]
fn streams_may_find_no_more_processors() {
    let slow = Terms { server_s: 5e-3, ..terms() };
    let p = predict(&slow, &job(Version::V3), &[Change::Streams { streams: 4 }]).unwrap();
    let outlook = p.each[0].outlook.unwrap();
    // As long as that of one stream.
    assert!(outlook.within_s.unwrap().1 > outlook.seconds + 6000.0 * 5e-3 * 0.75, "{outlook:?}");
}

#[test]
fn nonsense_is_refused() {
    let bad = |t: Terms| assert!(predict(&t, &job(Version::V3), &[]).is_err(), "{t:?}");
    bad(Terms { round_trip_s: 0.0, ..terms() });
    bad(Terms { round_trip_s: f64::NAN, ..terms() });
    bad(Terms { persistence_s: -1.0, ..terms() });
    bad(Terms { think_s: f64::INFINITY, ..terms() });
    bad(Terms { server_s: 1e9, ..terms() });
    bad(Terms { upload_bytes_per_s: Some(0.0), ..terms() });
    let nothing = Job::extract(&Tree::default(), &Manner::new(Version::V3));
    assert_eq!(predict(&terms(), &nothing, &[]), Err(Refused::Nothing));
    assert!(predict(&terms(), &job(Version::V3), &[Change::Streams { streams: 0 }]).is_err());
}

#[test]
fn the_error_bar_holds_what_was_off_before_and_what_is_off_here() {
    let case = Case { kind: Kind::Now, name: String::new(), predicted_s: 1.1, measured_s: 1.0 };
    let earned = Earned::of(vec![case]);
    let now = |measured_s| {
        let job = Job { measured_s, ..job(Version::V3) };
        predict_with(&terms(), &job, &[], &earned).unwrap().now
    };
    // With one case, the margin is four times its error.
    let outlook = now(None);
    let (low, high) = outlook.within_s.unwrap();
    near(low, outlook.seconds / 1.4);
    near(high, outlook.seconds / 0.6);
    // Off by half for the observed work: both errors combine.
    let (low, high) = now(Some(outlook.seconds / 1.5)).within_s.unwrap();
    let part = 0.4f64.hypot(0.5);
    near(low, outlook.seconds / (1.0 + part));
    near(high, outlook.seconds / (1.0 - part));
    assert_eq!(
        predict_with(&terms(), &job(Version::V3), &[], &Earned::default()).unwrap().now.within_s,
        None
    );
}

/// Captures of `tar -x` of 200 files by Linux 6.1 onto nfs-ganesha, with latency added to the network or to
/// durability, on a busy machine: version, added milliseconds of each, calls, synchronous calls, seconds. Then, in
/// milliseconds: the shortest call, the mean of calls that change nothing and of those that do, and the time between
/// calls.
struct Seen {
    name: &'static str,
    calls: u64,
    synchronous: u64,
    span_s: f64,
    round_trip_ms: f64,
    looked_ms: f64,
    stable_ms: f64,
    think_ms: f64,
}

const fn seen(name: &'static str, counts: (u64, u64), span_s: f64, ms: [f64; 4]) -> Seen {
    let [round_trip_ms, looked_ms, stable_ms, think_ms] = ms;
    Seen {
        name,
        calls: counts.0,
        synchronous: counts.1,
        span_s,
        round_trip_ms,
        looked_ms,
        stable_ms,
        think_ms,
    }
}

const CAPTURES: [Seen; 9] = [
    // Without added latency. For v3 and v4.1 only the total time is known, and all of it counts as the client's.
    seen("v3", (1877, 1236), 8.13, [0.1, 0.1, 0.1, 8.13 / 1.877 - 0.1]),
    seen("v4.0", (2496, 1236), 8.51, [0.061, 0.422, 1.284, 2.559]),
    seen("v4.1", (2498, 1236), 9.72, [0.1, 0.1, 0.1, 9.72 / 2.498 - 0.1]),
    seen("v3, 10 ms", (1877, 1236), 31.94, [10.207, 12.062, 13.227, 4.186]),
    seen("v3, WRITE 20 ms", (1877, 1236), 14.86, [0.072, 0.665, 5.226, 4.251]),
    seen("v4.0, 10 ms", (2496, 1236), 36.0, [10.2, 10.2, 10.2, 4.22]),
    seen("v4.1, 10 ms", (2498, 1236), 36.09, [10.212, 11.270, 11.979, 2.827]),
    seen("v4.1, 5 ms, stable 5 ms", (2498, 1236), 35.18, [5.192, 6.659, 13.915, 3.832]),
    seen("v4.1, stable 10 ms", (2497, 1236), 25.10, [0.101, 0.856, 12.772, 3.297]),
];

impl Seen {
    fn of(name: &str) -> &'static Seen {
        CAPTURES.iter().find(|c| c.name == name).unwrap()
    }

    fn terms(&self) -> Terms {
        Terms {
            round_trip_s: self.round_trip_ms / 1e3,
            server_s: (self.looked_ms - self.round_trip_ms) / 1e3,
            persistence_s: (self.stable_ms - self.looked_ms) / 1e3,
            think_s: self.think_ms / 1e3,
            file_think_s: 0.0,
            upload_bytes_per_s: None,
            download_bytes_per_s: None,
            in_flight: 1.0,
        }
    }

    fn job(&self) -> Job {
        let (calls, synchronous_calls) = (self.calls, self.synchronous);
        let work = crate::Work {
            files: 200,
            bytes: 0,
            bytes_down: 0,
            calls,
            synchronous_calls,
            span_s: Some(self.span_s),
        };
        Job::repeat(&work, 1.0, None).unwrap()
    }
}

#[test]
fn the_equation_makes_up_the_time_of_each_capture() {
    for capture in CAPTURES {
        let seconds = predict(&capture.terms(), &capture.job(), &[]).unwrap().now.seconds;
        assert!((seconds / capture.span_s - 1.0).abs() < 0.01, "{}: {seconds}", capture.name);
    }
}

#[test]
fn what_one_capture_says_of_another_is_right_within_20_percent_in_eight_of_ten() {
    // Milliseconds added to the round trip; then the additional time of a durable call, in milliseconds.
    let cases: [(&str, &str, f64, Option<f64>); 10] = [
        ("v3", "v3, 10 ms", 10.0, None),
        ("v4.0", "v4.0, 10 ms", 10.0, None),
        ("v4.1", "v4.1, 10 ms", 10.0, None),
        ("v3, WRITE 20 ms", "v3, 10 ms", 10.0, Some(1.165)),
        ("v4.1, 5 ms, stable 5 ms", "v4.1, 10 ms", 5.0, Some(0.709)),
        ("v4.1, stable 10 ms", "v4.1, 10 ms", 10.0, Some(0.709)),
        ("v4.1, stable 10 ms", "v4.1", 0.0, Some(0.709)),
        ("v4.1, 10 ms", "v4.1", -10.0, None),
        // During these two captures the client was slower than during the others: 4 ms between calls.
        ("v3, 10 ms", "v3", -10.0, None),
        ("v4.1, 5 ms, stable 5 ms", "v4.1", -5.0, Some(0.709)),
    ];
    let mut off = Vec::new();
    for (from, to, added_ms, stable_ms) in cases {
        let (from, to) = (Seen::of(from), Seen::of(to));
        let mut changes = vec![Change::RoundTrip { round_trip_s: (from.round_trip_ms + added_ms) / 1e3 }];
        changes.extend(stable_ms.map(|ms| Change::LogDevice { persistence_s: ms / 1e3 }));
        let p = predict(&from.terms(), &from.job(), &changes).unwrap();
        let seconds = p.together.or(p.each[0].outlook).unwrap().seconds;
        off.push((seconds / to.span_s - 1.0, from.name, to.name));
    }
    let within = off.iter().filter(|(error, ..)| error.abs() <= 0.20).count();
    assert!(within >= 8, "{off:?}");
}
