//! Events as operations of a lone client, and the steps of the typical one.
//!
//! An operation begins when something that is not the server itself wakes one of its threads (the socket has become readable), or, if a
//! thread was awake, with the system call that receives the request. It ends with the system call that sends the reply. What the server does then until
//! the next request belongs to it as well, but not to its time.

use super::event::{Event, What};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// System calls with which the server receives and sends.
const RECEIVES: [&str; 4] = ["recvfrom", "read", "readv", "recvmsg"];
const SENDS: [&str; 4] = ["sendto", "write", "writev", "sendmsg"];

/// A step of an operation. Times are in microseconds since its beginning.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// Threads are numbered in the order in which they appear in the operation.
    pub(crate) thread: usize,
    pub(crate) what: String,
    pub(crate) at_us: f64,
    pub(crate) took_us: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Operation {
    /// Until the reply has been sent.
    pub(crate) steps: Vec<Step>,
    pub(crate) took_us: f64,
    /// System calls by name, those after the reply included.
    pub(crate) calls: BTreeMap<String, u64>,
    /// How often one of the server's threads was woken, by other threads of the server and by anybody else.
    pub(crate) own_wakeups: u64,
    pub(crate) other_wakeups: u64,
    /// How often one of the server's threads left the processor.
    pub(crate) switches: u64,
}

impl Operation {
    pub(crate) fn system_calls(&self) -> u64 {
        self.calls.values().sum()
    }

    /// What tells this operation from others of its kind: its steps without their times.
    fn shape(&self) -> Vec<(usize, &str)> {
        self.steps.iter().map(|step| (step.thread, step.what.as_str())).collect()
    }
}

/// The operations in these events. The first and the last one are left out, because they may be incomplete.
pub(crate) fn operations(events: &[Event]) -> Vec<Operation> {
    let own: BTreeSet<u32> = events
        .iter()
        .filter(|event| matches!(event.what, What::Enter { .. } | What::Exit { .. }))
        .map(|event| event.tid)
        .collect();
    let ends: Vec<usize> = events
        .iter()
        .enumerate()
        .filter(|(_, event)| {
            matches!(&event.what, What::Exit { call, result } if *result > 8 && SENDS.contains(&call.as_str()))
        })
        .map(|(i, _)| i)
        .collect();
    let windows = ends.windows(3).map(|w| (&events[w[0] + 1..=w[1]], &events[w[1] + 1..=w[2]]));
    windows.filter_map(|(this, next)| operation(this, next, &own)).collect()
}

/// `this` ends with the reply; `next` begins after it.
fn operation(this: &[Event], next: &[Event], own: &BTreeSet<u32>) -> Option<Operation> {
    let begin = beginning(this, own)?;
    let after = &next[..beginning(next, own)?];
    let this = &this[begin..];
    let start = this.first()?.at_us;
    let mut operation = Operation { took_us: (this.last()?.at_us - start) as f64, ..Operation::default() };
    for event in this.iter().chain(after) {
        match &event.what {
            What::Enter { call } => *operation.calls.entry(call.clone()).or_default() += 1,
            What::Woken { tid } if own.contains(tid) => {
                let by_itself = own.contains(&event.tid);
                operation.own_wakeups += u64::from(by_itself);
                operation.other_wakeups += u64::from(!by_itself);
            }
            What::Switch { from, .. } if own.contains(from) => operation.switches += 1,
            _ => {}
        }
    }
    operation.steps = steps(this, own, start);
    Some(operation)
}

/// The first event of the request: see the module's comment.
fn beginning(window: &[Event], own: &BTreeSet<u32>) -> Option<usize> {
    let received = window.iter().position(|event| {
        matches!(&event.what, What::Exit { call, result } if *result > 8 && RECEIVES.contains(&call.as_str()))
    })?;
    let receiver = window[received].tid;
    let before = &window[..received];
    let woken = before.iter().rposition(|event| {
        matches!(event.what, What::Woken { tid } if tid == receiver) && !own.contains(&event.tid)
    });
    let entered =
        before.iter().rposition(|event| event.tid == receiver && matches!(event.what, What::Enter { .. }));
    woken.or(entered)
}

fn steps(events: &[Event], own: &BTreeSet<u32>, start: u64) -> Vec<Step> {
    let mut threads: Vec<u32> = Vec::new();
    // Of each thread, the step of the system call that it is in.
    let mut within: HashMap<u32, usize> = HashMap::new();
    let mut steps: Vec<Step> = Vec::new();
    for event in events {
        let at_us = (event.at_us - start) as f64;
        let thread = match event.what {
            What::Woken { tid } | What::Switch { to: tid, .. } if own.contains(&tid) => tid,
            What::Enter { .. } | What::Exit { .. } => event.tid,
            _ => continue,
        };
        let number = threads.iter().position(|tid| *tid == thread).unwrap_or_else(|| {
            threads.push(thread);
            threads.len() - 1
        });
        let mut push = |what: String| {
            steps.push(Step { thread: number, what, at_us, took_us: 0.0 });
            steps.len() - 1
        };
        match &event.what {
            What::Woken { .. } if own.contains(&event.tid) => drop(push("is woken by the server".into())),
            What::Woken { .. } => drop(push("is woken".into())),
            What::Switch { .. } => drop(push("gets a processor".into())),
            What::Enter { call } => {
                let step = push(call.clone());
                within.insert(thread, step);
            }
            What::Exit { call, .. } => match within.remove(&thread) {
                Some(step) => steps[step].took_us = at_us - steps[step].at_us,
                // It was entered before the operation began.
                None => drop(push(format!("{call} returns"))),
            },
        }
    }
    steps
}

/// The most frequent shape of these operations, with the median of each time, and the share of operations that have it.
pub(crate) fn typical(operations: &[Operation]) -> Option<(Operation, f64)> {
    let mut shapes: BTreeMap<Vec<(usize, &str)>, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        shapes.entry(operation.shape()).or_default().push(operation);
    }
    let same = shapes.into_values().max_by_key(Vec::len)?;
    let mut typical = (*same.first()?).clone();
    typical.took_us = median(same.iter().map(|operation| operation.took_us));
    for (i, step) in typical.steps.iter_mut().enumerate() {
        step.at_us = median(same.iter().map(|operation| operation.steps[i].at_us));
        step.took_us = median(same.iter().map(|operation| operation.steps[i].took_us));
    }
    // What comes after the reply may differ between operations of one shape: the usual number counts.
    typical.own_wakeups = median(same.iter().map(|operation| operation.own_wakeups as f64)) as u64;
    typical.other_wakeups = median(same.iter().map(|operation| operation.other_wakeups as f64)) as u64;
    typical.switches = median(same.iter().map(|operation| operation.switches as f64)) as u64;
    let calls: BTreeSet<String> = same.iter().flat_map(|operation| operation.calls.keys().cloned()).collect();
    typical.calls = calls
        .into_iter()
        .map(|call| {
            let count = median(same.iter().map(|op| op.calls.get(&call).copied().unwrap_or(0) as f64));
            (call, count as u64)
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    Some((typical, same.len() as f64 / operations.len() as f64))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: u32 = 9;

    fn enter(at_us: u64, tid: u32, call: &str) -> Event {
        Event { at_us, tid, what: What::Enter { call: call.into() } }
    }

    fn exit(at_us: u64, tid: u32, call: &str, result: i64) -> Event {
        Event { at_us, tid, what: What::Exit { call: call.into(), result } }
    }

    fn woken(at_us: u64, by: u32, tid: u32) -> Event {
        Event { at_us, tid: by, what: What::Woken { tid } }
    }

    /// A request as thread 1 serves it from `at` on, with a write that takes `flush`.
    fn request(at: u64, flush: u64) -> Vec<Event> {
        vec![
            woken(at, CLIENT, 1),
            exit(at + 3, 1, "epoll_wait", 1),
            enter(at + 4, 1, "recvfrom"),
            exit(at + 6, 1, "recvfrom", 200),
            enter(at + 9, 1, "pwrite64"),
            exit(at + 9 + flush, 1, "pwrite64", 4096),
            woken(at + 10 + flush, 1, 2),
            enter(at + 11 + flush, 1, "sendto"),
            exit(at + 15 + flush, 1, "sendto", 100),
            enter(at + 16 + flush, 1, "epoll_wait"),
        ]
    }

    #[test]
    fn an_operation_is_from_the_wakeup_to_the_reply() {
        // Thread 2 is the server's because it makes system calls.
        let mut events = vec![enter(0, 2, "futex")];
        events.extend((0..5).flat_map(|i| request(1000 * i, 100 + i)));
        let operations = operations(&events);
        assert_eq!(operations.len(), 3, "the first and the last are left out");
        let (operation, share) = typical(&operations).expect("there are some");
        assert!((share - 1.0).abs() < 1e-9);
        assert!((operation.took_us - 117.0).abs() < 1e-9, "{}", operation.took_us);
        let names: Vec<&str> = operation.steps.iter().map(|step| step.what.as_str()).collect();
        assert_eq!(
            names,
            ["is woken", "epoll_wait returns", "recvfrom", "pwrite64", "is woken by the server", "sendto"]
        );
        let write = &operation.steps[3];
        assert!((write.at_us - 9.0).abs() < 1e-9 && (write.took_us - 102.0).abs() < 1e-9, "{write:?}");
        assert_eq!((operation.own_wakeups, operation.other_wakeups), (1, 1));
        // epoll_wait, recvfrom, pwrite64, sendto
        assert_eq!(operation.system_calls(), 4);
    }

    #[test]
    fn the_most_frequent_shape_is_the_typical_one() {
        let mut events: Vec<Event> = (0..6).flat_map(|i| request(1000 * i, 100)).collect();
        // In one of them somebody else is woken too.
        let odd = events.iter().position(|event| event.at_us == 3009).expect("there");
        events.insert(odd, woken(3008, 1, 3));
        events.splice(0..0, [enter(0, 2, "futex"), enter(0, 3, "futex")]);
        let operations = operations(&events);
        let (operation, share) = typical(&operations).expect("there are some");
        assert_eq!(operation.own_wakeups, 1);
        assert!((share - 0.75).abs() < 1e-9, "{share}");
        assert!(typical(&[]).is_none());
    }
}
