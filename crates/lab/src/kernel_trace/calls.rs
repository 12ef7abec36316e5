//! What each kind of system call costs a process that does many of them: how often, and how long its thread had a processor meanwhile.

use super::event::{Event, What};
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CallCost {
    pub(crate) calls: u64,
    /// Microseconds on a processor between the calls' beginnings and ends, interrupts included.
    pub(crate) on_cpu_us: u64,
}

/// A system call that a thread is in.
struct Within {
    call: String,
    /// Since when it is on a processor; `None` while it is not.
    since_us: Option<u64>,
    on_cpu_us: u64,
}

/// The costs of the system calls that begin and end in these events, by their names.
pub(crate) fn call_costs(events: &[Event]) -> BTreeMap<String, CallCost> {
    let mut within: HashMap<u32, Within> = HashMap::new();
    let mut costs: BTreeMap<String, CallCost> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Enter { call } => {
                let begun = Within { call: call.clone(), since_us: Some(event.at_us), on_cpu_us: 0 };
                within.insert(event.tid, begun);
            }
            What::Exit { call, .. } => {
                let Some(ended) = within.remove(&event.tid).filter(|ended| ended.call == *call) else {
                    continue;
                };
                let last = ended.since_us.map_or(0, |since| event.at_us.saturating_sub(since));
                let cost = costs.entry(ended.call).or_default();
                cost.calls += 1;
                cost.on_cpu_us += ended.on_cpu_us + last;
            }
            What::Switch { from, to, .. } => {
                if let Some(left) = within.get_mut(from)
                    && let Some(since) = left.since_us.take()
                {
                    left.on_cpu_us += event.at_us.saturating_sub(since);
                }
                if let Some(back) = within.get_mut(to) {
                    back.since_us = Some(event.at_us);
                }
            }
            What::Woken { .. } => {}
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_us: u64, tid: u32, what: What) -> Event {
        Event { at_us, tid, what }
    }

    fn enter(at_us: u64, tid: u32, call: &str) -> Event {
        at(at_us, tid, What::Enter { call: call.into() })
    }

    fn exit(at_us: u64, tid: u32, call: &str) -> Event {
        at(at_us, tid, What::Exit { call: call.into(), result: 0 })
    }

    #[test]
    fn time_off_the_processor_does_not_count() {
        let switch = |at_us, from, to| at(at_us, from, What::Switch { from, to, waits: true });
        let events = [
            exit(5, 1, "epoll_wait"),
            enter(10, 1, "pwritev2"),
            enter(12, 2, "statx"),
            exit(15, 2, "statx"),
            switch(20, 1, 3),
            switch(90, 3, 1),
            exit(95, 1, "pwritev2"),
            enter(96, 2, "statx"),
            exit(97, 2, "statx"),
            enter(98, 1, "futex"),
        ];
        let costs = call_costs(&events);
        assert_eq!(costs["pwritev2"], CallCost { calls: 1, on_cpu_us: 15 });
        assert_eq!(costs["statx"], CallCost { calls: 2, on_cpu_us: 4 });
        assert_eq!(costs.len(), 2, "what began before or ends later is left out");
    }
}
