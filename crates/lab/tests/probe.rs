//! `landfast-probe` finds what was injected into a server that is not ours: a slow disk under nfs-ganesha, which makes data stable and
//! names not; and a long way to it. Needs root.
//!
//! The lab starts its disks from its own binary, which is this test here: so it has a `main`.

use landfast_lab::net::Link;
use landfast_lab::peers::ganesha::{self, Ganesha};
use landfast_lab::rig::{self, Latency, Rig, RigOptions};
use landfast_lab::{child, namespace};
use landfast_model::{Bound, Device};
use landfast_probe::ask::Operation;
use landfast_probe::findings::RemarkKind;
use landfast_probe::progress::Progress;
use landfast_probe::{Options, Report};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let Some(ended) = child::if_asked(&args) {
        return ended;
    }
    if rig::possible().is_err() || ganesha::possible().is_err() {
        println!(
            "test result: ok. 0 passed; 0 failed; 1 ignored, needs root, FUSE, loop devices and nfs-ganesha"
        );
        return ExitCode::SUCCESS;
    }
    // Panics, and so fails, at the first difference.
    namespace::run_private(what_was_injected_is_found).expect("a namespace");
    ExitCode::SUCCESS
}

struct Silent;

impl Progress for Silent {
    fn doing(&self, _: &str) {}

    fn notice(&self, what: &str) {
        panic!("{what}");
    }
}

fn probe(addr: SocketAddr, version: &str) -> Report {
    let target = format!("nfs://{addr}/?version={version}").parse().expect("a URL");
    let options = Options { time: Duration::from_secs(3), ..Options::default() };
    let report = landfast_probe::run(&target, &options, &AtomicBool::new(false), &Silent).expect("a report");
    println!("{version}: {:?} {:?}", report.terms, report.verdict);
    report
}

fn median_s(report: &Report, operation: Operation) -> f64 {
    let found = report.latencies.iter().find(|l| l.operation == operation);
    found.unwrap_or_else(|| panic!("{operation:?}")).times.median_s
}

/// How often a measurement is repeated that was disturbed: a busy machine makes all slower, now and then.
const TRIES: usize = 5;

/// The first report whose times are as they should be.
fn timely(measure: impl Fn() -> Report, is: impl Fn(&Report) -> bool) -> Report {
    let mut reports = (0..TRIES).map(|_| measure());
    reports.find(is).unwrap_or_else(|| panic!("{TRIES} times other times than were injected"))
}

fn what_was_injected_is_found() {
    let mut rig = Rig::new(&RigOptions { data_bytes: 256 << 20, ..RigOptions::default() }).expect("disks");
    rig.format().expect("a filesystem");
    let server = Ganesha::start(&rig.export()).expect("ganesha");
    let flush = Duration::from_millis(10);
    rig.set_latency(Latency { data_flush: flush, log_flush: Duration::ZERO }).expect("a latency");
    for version in ["4.0", "4.2"] {
        let report = timely(
            || probe(server.addr(), version),
            |report| {
                // A flush at least; ext4 may need one for the data and others for its journal.
                let waits = [Operation::WriteFileSync, Operation::Commit].map(|op| median_s(report, op));
                assert!(waits.iter().all(|s| *s >= 0.010), "{waits:?}");
                let quick =
                    [Operation::Null, Operation::Getattr, Operation::WriteUnstable, Operation::Create];
                waits.iter().all(|s| *s < 0.060) && quick.iter().all(|op| median_s(report, *op) < 0.005)
            },
        );
        let kinds: Vec<RemarkKind> = report.verdict.remarks.iter().map(|r| r.kind).collect();
        assert!(kinds.contains(&RemarkKind::MetadataFast), "{kinds:?}");
        assert!(!kinds.contains(&RemarkKind::SyncAsFast), "{kinds:?}");
        assert_eq!(report.verdict.bound, Bound::Persistence, "{:?}", report.verdict);
        let slow = [Device::Disk, Device::Even, Device::Slow];
        assert!(report.verdict.device.is_some_and(|d| slow.contains(&d)), "{:?}", report.verdict.device);
    }
    rig.set_latency(Latency::default()).expect("no latency");
    let link = Link::start(server.addr(), Duration::from_millis(10)).expect("a link");
    // What was injected, and what this machine adds to it when it is busy.
    let report =
        timely(|| probe(link.addr(), "4.1"), |report| (0.0095..0.014).contains(&report.terms.round_trip_s));
    assert_eq!(report.verdict.bound, Bound::Rtt, "{:?}", report.verdict);
    assert_eq!(std::fs::read_dir(rig.export()).expect("a directory").count(), 0);
    server.kill();
}
