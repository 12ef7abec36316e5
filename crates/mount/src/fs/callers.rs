//! Who makes a request of the kernel: user, group, and the supplementary groups that `/proc` tells.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::{GROUPS_AGE, OWNERS_KNOWN_MAX};
use crate::remote::Caller;

pub(super) struct Callers {
    /// All requests are made in this name.
    always: Option<Caller>,
    none: Arc<[u32]>,
    groups: Mutex<HashMap<(u32, u32), (Instant, Arc<[u32]>)>>,
}

impl Callers {
    pub(super) fn new(always: Option<Caller>) -> Callers {
        Callers { always, none: Arc::from([]), groups: Mutex::default() }
    }

    pub(super) fn of(&self, req: &fuser::Request) -> Caller {
        if let Some(caller) = &self.always {
            return caller.clone();
        }
        let (uid, gid) = (req.uid(), req.gid());
        // The superuser needs no groups.
        let groups = if uid == 0 { self.none.clone() } else { self.groups(req.pid(), uid) };
        Caller { uid, gid, groups }
    }

    fn groups(&self, pid: u32, uid: u32) -> Arc<[u32]> {
        let key = (pid, uid);
        if let Some((at, groups)) = self.groups.lock().get(&key)
            && at.elapsed() < GROUPS_AGE
        {
            return groups.clone();
        }
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let groups: Arc<[u32]> = parse(&status).into();
        let mut known = self.groups.lock();
        if known.len() >= OWNERS_KNOWN_MAX {
            known.clear();
        }
        known.insert(key, (Instant::now(), groups.clone()));
        groups
    }
}

/// The line `Groups:` of `/proc/PID/status` (proc(5)).
fn parse(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|l| l.strip_prefix("Groups:"));
    line.unwrap_or_default().split_whitespace().filter_map(|g| g.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn groups_stand_in_one_line() {
        assert_eq!(super::parse("Name:\tsh\nGroups:\t4 24 1000 \nNStgid:\t1\n"), [4, 24, 1000]);
        assert!(super::parse("Name:\tsh\n").is_empty());
    }
}
