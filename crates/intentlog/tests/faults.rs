//! Deliberate faults: each point is passed, and a process stops where it was told to.
#![cfg(debug_assertions)]

mod common;

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{Model, config, start};
use landfast_intentlog::faults::{POINTS, from_environment, passes, point};
use landfast_intentlog::sim::{Fault, SimDisk};
use landfast_intentlog::{Config, Log, LogPlace};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const BYTES: usize = 64 * 1024 + 256 * 1024;
/// Set for the processes that these tests start.
const CHILD: &str = "LANDFAST_TEST_CHILD";

#[test]
fn each_point_of_the_log_is_passed() {
    let disks = [SimDisk::new(BYTES, 1), SimDisk::new(BYTES, 2)];
    let config = Config { place: LogPlace::new("simulated", Some("second".into())), ..config() };
    let (log, _) = Log::open_mirror(disks.clone().map(Some), config).unwrap();
    let model = Arc::new(Model::default());
    log.start(model.clone()).unwrap();
    // Where a batch lies depends on when checkpoints come, so a batch goes over the end of the ring in some lap only.
    for size in [9000, 13_000, 17_000, 25_000].into_iter().cycle().take(10_000) {
        model.operate(&log, &[size]).unwrap().1.wait_blocking().unwrap();
        if passes("log.wrapped") > 0 {
            break;
        }
    }
    log.checkpoint_now().unwrap();
    disks[0].set_fault(Fault::Error(0));
    model.operate(&log, &[10]).unwrap().1.wait_blocking().unwrap();
    log.shutdown().unwrap();
    for (name, _) in POINTS {
        let of_the_log =
            ["log.", "checkpoint.", "mirror.", "recovery.emptied"].iter().any(|p| name.starts_with(p));
        assert_eq!(passes(name) > 0, of_the_log, "{name}: {} passes", passes(name));
    }
}

/// What the processes run that the tests below start.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match from_environment() {
        Ok(what) => eprintln!("chosen: {what:?}"),
        Err(error) => return eprintln!("refused: {error}"),
    }
    let model = Arc::new(Model::default());
    let log = start(&SimDisk::new(BYTES, 1), &model, config());
    for _ in 0..5 {
        model.operate(&log, &[10]).unwrap().1.wait_blocking().unwrap();
        eprintln!("acknowledged");
    }
    log.shutdown().unwrap();
}

/// What the processes run that stop at a point at once.
#[test]
fn child_at_a_point() {
    if std::env::var_os(CHILD).is_some() {
        point("op.applied");
        eprintln!("went on");
    }
}

fn run(test: &str, variable: &str, value: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .env(variable, value)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn said(child: std::process::Child) -> String {
    String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
}

#[test]
fn the_thread_that_passes_a_point_does_nothing_more_before_it_is_continued() {
    for _ in 0..20 {
        let mut child = run("child_at_a_point", "LANDFAST_STOP_AT", "op.applied");
        let pid = Pid::from_child(&child);
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped());
        let mut stderr = child.stderr.take().unwrap();
        let mut before = vec![0; ioctl_fionread(&stderr).unwrap() as usize];
        stderr.read_exact(&mut before).unwrap();
        let before = String::from_utf8(before).unwrap();
        assert!(before.ends_with("stopped at op.applied\n"), "{before}");
        kill_process(pid, Signal::CONT).unwrap();
        let mut after = String::new();
        stderr.read_to_string(&mut after).unwrap();
        assert!(after.starts_with("went on\n"), "{after}");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_process_stops_at_the_third_pass_and_nowhere_else() {
    let child = run("child", "LANDFAST_STOP_AT", "log.before-write:3");
    let pid = Pid::from_child(&child);
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped() && status.stopping_signal() == Some(Signal::STOP.as_raw()));
    // It goes on as if nothing had been, so nothing was done but stopped.
    kill_process(pid, Signal::CONT).unwrap();
    let said = said(child);
    let before = said.split("stopped at log.before-write").next().unwrap();
    assert_eq!(before.matches("acknowledged").count(), 2, "{said}");
    assert_eq!(said.matches("stopped at").count(), 1, "{said}");
    assert_eq!(said.matches("acknowledged").count(), 5, "{said}");
    assert!(said.contains("this process stops at log.before-write, pass 3"), "{said}");
}

#[test]
fn what_does_not_exist_is_refused() {
    for (variable, value) in [("LANDFAST_BUG", "none"), ("LANDFAST_STOP_AT", "log.begin")] {
        let said = said(run("child", variable, value));
        assert!(said.contains(&format!("refused: {variable}={value}: no such")), "{said}");
    }
    let said = said(run("child", "LANDFAST_BUG", "cut-late"));
    assert!(said.contains("the deliberate bug cut-late is in"), "{said}");
}
