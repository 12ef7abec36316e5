//! What the server does for one operation of a lone client: each step between the moment when its socket becomes readable and the moment when
//! the reply has been sent, with system calls, wake-ups and changes of threads, from the kernel's tracepoints.
//!
//! Counts are those of the typical operation: the most frequent sequence of steps of its kind.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Error, Result};
use crate::kernel_trace::{Operation, Tracer, events, operations, typical};
use crate::rig::{Latency, Rig, RigOptions};
use crate::serial::lone::{KINDS, Kind, Lone, Version};
use crate::served::{Durability, ServeOptions, Served};
use std::time::Duration;

/// Operations of each kind that are traced, unless chosen otherwise, and those before them that are not.
const TRACED: u64 = 200;
const WARM: u64 = 50;

/// The most system calls of each kind, in NFSv3 and NFSv4.2, where a write and a flush of the log's device are two calls.
const CALLS_MAX: [(Kind, [u64; 2]); 8] = [
    (Kind::Getattr, [3, 3]),
    (Kind::Lookup, [4, 4]),
    (Kind::Read4k, [5, 5]),
    (Kind::Readdir, [9, 7]),
    (Kind::Create, [12, 12]),
    (Kind::Write4k, [10, 8]),
    (Kind::Setattr, [11, 8]),
    (Kind::Remove, [12, 11]),
];

/// The most wake-ups of an operation that waits for a flush: by the client, and by the device once for each of the two calls that a device without
/// write-through needs.
const WAKEUPS_MAX: f64 = 3.0;

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let count = choices.files.unwrap_or(TRACED);
    crate::namespace::run_private(|| measure(count, progress))?
}

fn measure(count: u64, progress: Progress<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions::default())?;
    let mut findings = Findings::default();
    for (version, column) in [(Version::V3, 0), (Version::V42, 1)] {
        rig.format()?;
        rig.set_latency(Latency { data_flush: Duration::ZERO, log_flush: Duration::from_micros(50) })?;
        let log = rig.log_device()?.to_owned();
        let server = Served::start(&ServeOptions::new(&rig.export(), Some(&log), Durability::Log))?;
        let mut client = Lone::connect(server.addr(), version, "steps")?;
        let tracer = Tracer::new(server.pid())?;
        for kind in KINDS {
            progress(&format!("{}, {}", version.name(), kind.name()));
            if kind == Kind::Remove {
                client.close_all()?;
            }
            client.run(kind, WARM)?;
            let text = tracer.during(|| client.run(kind, count))?;
            let found = operations(&events(&text));
            let Some((operation, share)) = typical(&found) else {
                return Err(Error::Unable(format!("no {} was seen in the kernel's trace", kind.name())));
            };
            let what = format!("{} {}", version.name(), kind.name());
            findings.lines.push(row(&what, &operation, share, &found));
            findings.notes.extend(table(&what, &operation));
            let max = CALLS_MAX.iter().find(|(k, _)| *k == kind).map_or(0, |(_, max)| max[column]);
            findings.checks.push(Check::at_most(
                &format!("system calls of {what}"),
                operation.system_calls() as f64,
                max as f64,
            ));
            if kind.is_durable() {
                let woken = operation.own_wakeups + operation.other_wakeups;
                findings.checks.push(Check::at_most(
                    &format!("wake-ups of {what}"),
                    woken as f64,
                    WAKEUPS_MAX,
                ));
            }
        }
        drop(tracer);
        rig.set_latency(Latency::default())?;
        drop(client);
        server.stop()?;
    }
    Ok(findings)
}

fn row(what: &str, operation: &Operation, share: f64, all: &[Operation]) -> Row {
    let mean = |f: fn(&Operation) -> u64| all.iter().map(f).sum::<u64>() as f64 / all.len() as f64;
    Row::new(
        what,
        [
            ("us", operation.took_us),
            ("system_calls", operation.system_calls() as f64),
            ("wakeups_by_others", operation.other_wakeups as f64),
            ("wakeups_by_itself", operation.own_wakeups as f64),
            ("changes_of_thread", operation.switches as f64),
            ("share_with_these_steps", share),
            ("system_calls_mean", mean(Operation::system_calls)),
            ("wakeups_mean", mean(|op| op.own_wakeups + op.other_wakeups)),
        ],
    )
}

/// The steps as lines, and the system calls by name.
fn table(what: &str, operation: &Operation) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        format!("{what}: {:.0} us from the first wake-up to the reply", operation.took_us),
        format!("{:>7} {:>6}  {:6}  step", "at us", "us", "thread"),
    ];
    // A listing has thousands of them.
    const SHOWN: usize = 60;
    for step in operation.steps.iter().take(SHOWN) {
        let took = if step.took_us > 0.0 { format!("{:.0}", step.took_us) } else { String::new() };
        lines.push(format!("{:7.0} {took:>6}  {:6}  {}", step.at_us, step.thread + 1, step.what));
    }
    if operation.steps.len() > SHOWN {
        lines.push(format!("        and {} more steps", operation.steps.len() - SHOWN));
    }
    let calls: Vec<String> = operation.calls.iter().map(|(call, n)| format!("{call} {n}")).collect();
    lines.push(format!("system calls: {}", calls.join(", ")));
    lines
}
