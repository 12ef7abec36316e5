//! The equation, change by change.

use super::*;

fn terms() -> Terms {
    Terms {
        round_trip_s: 1e-3,
        server_s: 50e-6,
        persistence_s: 4e-3,
        think_s: 0.0,
        upload_bytes_per_s: None,
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
    // 63 COMPOUNDs; three things a file to be made stable, or one a COMPOUND.
    let compound = |at_once| one(&terms(), &v3, Change::Compound { files: 16, at_once });
    near(compound(true), 68e-3 + 6000.0 * 50e-6 + 63.0 * 4e-3);
    near(compound(false), 68e-3 + 6000.0 * 50e-6 + 3000.0 * 4e-3);
}

#[test]
fn streams_share_flushes_and_wait_for_them() {
    let streams = |persistence_s, n| {
        one(&Terms { persistence_s, ..terms() }, &job(Version::V3), Change::Streams { streams: n })
    };
    near(streams(4e-3, 1), 6000.0 * 5.05e-3);
    // A flush is longer than what is between two: each call waits for the rest of one and for its own.
    near(streams(4e-3, 4), 6000.0 * 8e-3 / 4.0);
    // The other way round nobody meets.
    near(streams(0.5e-3, 4), 6000.0 * 1.55e-3 / 4.0);
    // No more streams than files.
    near(streams(0.0, 1_000_000), 6.0 * 1.05e-3);
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
    let work = crate::Work { files: 0, bytes: 0, calls: 10, synchronous_calls: 5, span_s: Some(1.0) };
    let seen = Job::repeat(&work, 1.0, None).unwrap();
    let p = predict(&terms(), &seen, &[Change::Compound { files: 16, at_once: true }]).unwrap();
    assert_eq!(p.each[0].unknown, Some(Unknown::Files));
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
    let outlook = now(None);
    let (low, high) = outlook.within_s.unwrap();
    near(low, outlook.seconds / 1.1);
    near(high, outlook.seconds / 0.9);
    let (low, high) = now(Some(outlook.seconds / 1.5)).within_s.unwrap();
    near(low, outlook.seconds / 1.5);
    near(high, outlook.seconds / 0.5);
    assert_eq!(
        predict_with(&terms(), &job(Version::V3), &[], &Earned::default()).unwrap().now.within_s,
        None
    );
}
