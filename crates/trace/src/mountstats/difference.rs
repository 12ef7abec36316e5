//! The difference between two readings of the counters.

use super::{Counters, Mount, Mountstats, Transport};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    /// The mounts of the later reading. Their ages are the seconds between the readings.
    pub mounts: Vec<Mount>,
    /// Mounts whose counters start at their mount, because they are new or were mounted again in between.
    pub new: Vec<String>,
    pub gone: Vec<String>,
}

/// Subtracts the earlier reading from the later one.
pub fn difference(before: &Mountstats, after: &Mountstats) -> Difference {
    let mut found = Difference::default();
    // The same may be mounted on one directory several times.
    let mut earlier: BTreeMap<(&str, &str), VecDeque<&Mount>> = BTreeMap::new();
    for mount in &before.mounts {
        earlier.entry((&mount.device, &mount.on)).or_default().push_back(mount);
    }
    for mount in &after.mounts {
        let was = earlier.get_mut(&(mount.device.as_str(), mount.on.as_str())).and_then(VecDeque::pop_front);
        match was.and_then(|was| since(was, mount)) {
            Some(mount) => found.mounts.push(mount),
            None => {
                found.new.push(mount.on.clone());
                found.mounts.push(mount.clone());
            }
        }
    }
    found.gone = earlier.into_values().flatten().map(|mount| mount.on.clone()).collect();
    found
}

/// `None`: the counters have been reset.
fn since(was: &Mount, is: &Mount) -> Option<Mount> {
    let mut operations = BTreeMap::new();
    for (name, now) in &is.operations {
        let then = was.operations.get(name).copied().unwrap_or_default();
        operations.insert(name.clone(), minus(now, &then)?);
    }
    // Connections have no names. Those in the same position are the same unless their counters have been reset.
    let transports = is.transports.iter().enumerate().map(|(n, now)| {
        let then = was.transports.get(n).filter(|then| then.kind == now.kind);
        then.and_then(|then| sent(now, then)).unwrap_or_else(|| now.clone())
    });
    Some(Mount {
        age_s: is.age_s.checked_sub(was.age_s)?,
        server_bytes: (
            is.server_bytes.0.checked_sub(was.server_bytes.0)?,
            is.server_bytes.1.checked_sub(was.server_bytes.1)?,
        ),
        transports: transports.collect(),
        operations,
        ..is.clone()
    })
}

fn minus(now: &Counters, then: &Counters) -> Option<Counters> {
    Some(Counters {
        ops: now.ops.checked_sub(then.ops)?,
        transmissions: now.transmissions.checked_sub(then.transmissions)?,
        timeouts: now.timeouts.checked_sub(then.timeouts)?,
        bytes_sent: now.bytes_sent.checked_sub(then.bytes_sent)?,
        bytes_received: now.bytes_received.checked_sub(then.bytes_received)?,
        queue_ms: now.queue_ms.checked_sub(then.queue_ms)?,
        rtt_ms: now.rtt_ms.checked_sub(then.rtt_ms)?,
        execute_ms: now.execute_ms.checked_sub(then.execute_ms)?,
        errors: match (now.errors, then.errors) {
            (Some(now), then) => Some(now.checked_sub(then.unwrap_or(0))?),
            (None, _) => None,
        },
    })
}

fn sent(now: &Transport, then: &Transport) -> Option<Transport> {
    Some(Transport {
        kind: now.kind.clone(),
        sends: now.sends.checked_sub(then.sends)?,
        receives: now.receives.checked_sub(then.receives)?,
        bad_xids: now.bad_xids.checked_sub(then.bad_xids)?,
        under_way: now.under_way.checked_sub(then.under_way)?,
        backlog: now.backlog.checked_sub(then.backlog)?,
        pending: match (now.pending, then.pending) {
            (Some(now), Some(then)) => Some(now.checked_sub(then)?),
            _ => None,
        },
        unanswered: now.unanswered.min(then.unanswered),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mountstats::parse;

    fn reading(age: u64, lookups: u64, sends: u64) -> Mountstats {
        let text = format!(
            "device s:/ mounted on /m with fstype nfs statvers=1.1\n\tage:\t{age}\n\txprt:\ttcp 1 1 1 1 1 {sends} {sends} 0 {sends} 0\n\
             \tLOOKUP: {lookups} {lookups} 0 {lookups} {lookups} 0 {lookups} {lookups} 0\n"
        );
        parse(text.as_bytes())
    }

    #[test]
    fn between_two_readings() {
        let found = difference(&reading(10, 100, 100), &reading(15, 130, 140));
        assert_eq!((found.new.len(), found.gone.len()), (0, 0));
        let [m] = &found.mounts[..] else { panic!("{found:?}") };
        assert_eq!((m.age_s, m.ops(), m.transports[0].sends), (5, 30, 40));
    }

    #[test]
    fn requests_that_were_lost_before_are_not_in_flight() {
        // 64 requests were lost with their connection. Since then there is one at a time.
        let reading = |age: u64, sends: u64, more: &str| {
            let (receives, under_way) = (sends - 64, 65 * sends);
            let text = format!(
                "device s:/ mounted on /m with fstype nfs statvers=1.1\n\tage:\t{age}\n\
                 \txprt:\ttcp 1 1 1 1 1 {sends} {receives} 0 {under_way} 0{more}\n\
                 \tLOOKUP: {sends} {sends} 0 {sends} {sends} 0 {sends} {sends} 0\n"
            );
            parse(text.as_bytes())
        };
        for more in ["", " 64 0 0"] {
            let found = difference(&reading(10, 1000, more), &reading(15, 2000, more));
            assert!((found.mounts[0].in_flight() - 1.0).abs() < 1e-9, "{more:?} {found:?}");
            assert!((reading(10, 1000, more).mounts[0].in_flight() - 1.0).abs() < 1e-9, "{more:?}");
        }
    }

    #[test]
    fn mounts_that_come_and_go_and_begin_anew() {
        let none = Mountstats::default();
        let found = difference(&none, &reading(1, 7, 7));
        assert_eq!((found.new, found.mounts[0].ops()), (vec!["/m".to_owned()], 7));
        assert_eq!(difference(&reading(1, 7, 7), &none).gone, ["/m"]);
        let found = difference(&reading(100, 1000, 1000), &reading(2, 7, 7));
        assert_eq!((found.new, found.mounts[0].ops()), (vec!["/m".to_owned()], 7));
        // The same twice on one directory.
        let twice = |age, lookups| Mountstats {
            mounts: [reading(age, lookups, 7).mounts, reading(age, 1, 7).mounts].concat(),
            ..Mountstats::default()
        };
        let found = difference(&twice(1, 7), &twice(2, 9));
        assert_eq!(found.mounts.iter().map(Mount::ops).collect::<Vec<_>>(), [2, 0]);
        assert_eq!((found.new.len(), found.gone.len()), (0, 0));
        // A connection may restart while the mount stays.
        let found = difference(&reading(100, 1000, 1000), &reading(105, 1010, 4));
        assert_eq!((found.new.len(), found.mounts[0].ops(), found.mounts[0].transports[0].sends), (0, 10, 4));
    }
}
