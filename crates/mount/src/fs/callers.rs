//! Who makes a request of the kernel: user, group, and the supplementary groups that `/proc` tells.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::{GROUPS_AGE, KILLED_ASKED_EACH, OWNERS_KNOWN_MAX};
use crate::remote::Caller;

/// Groups of a process and user, and when they were read.
type Known = (Instant, Arc<[u32]>);

pub(super) struct Callers {
    /// All requests are made in this name.
    always: Option<Caller>,
    none: Arc<[u32]>,
    groups: Mutex<HashMap<(u32, u32), Known>>,
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

/// Returns when a process or thread has been killed. One that only waits is looked at once a second.
pub(super) async fn killed(pid: u32) {
    loop {
        tokio::time::sleep(KILLED_ASKED_EACH).await;
        if is_killed(pid) {
            return;
        }
    }
}

/// Whether SIGKILL is pending for it, which the kernel delivers once its request is answered.
pub(super) fn is_killed(pid: u32) -> bool {
    let kill = 1u64 << (libc::SIGKILL - 1);
    pending(pid, &["SigPnd:", "ShdPnd:"]) & kill != 0
}

/// Whether it has ended, though its parent may not have asked for its status yet. Of a process without a number here (of another PID
/// namespace, or the kernel itself) nobody knows.
pub(super) fn is_gone(pid: u32) -> bool {
    if pid == 0 {
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => is_dead(&status),
        Err(e) => matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
    }
}

/// Whether `State:` is that of a zombie or of something dead (proc(5)).
fn is_dead(status: &str) -> bool {
    let state = status.lines().find_map(|l| l.strip_prefix("State:"));
    state.is_some_and(|s| s.trim_start().starts_with(['Z', 'X']))
}

/// Whether a signal is pending that it neither blocks nor ignores, or it has ended.
pub(super) fn is_signalled(pid: u32) -> bool {
    if is_gone(pid) {
        return true;
    }
    let (pending, none) = (pending(pid, &["SigPnd:", "ShdPnd:"]), pending(pid, &["SigBlk:", "SigIgn:"]));
    pending & !none != 0
}

/// The signals in these lines of `/proc/PID/status` (proc(5)). None if it is gone.
fn pending(pid: u32, lines: &[&str]) -> u64 {
    // Requests of the kernel itself have no process.
    let status = match pid {
        0 => String::new(),
        pid => std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(),
    };
    signals(&status, lines)
}

fn signals(status: &str, lines: &[&str]) -> u64 {
    let of = |line: &&str| {
        status.lines().find_map(|l| u64::from_str_radix(l.strip_prefix(*line)?.trim(), 16).ok())
    };
    lines.iter().filter_map(of).fold(0, |all, s| all | s)
}

/// The line `Groups:` of `/proc/PID/status` (proc(5)).
fn parse(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|l| l.strip_prefix("Groups:"));
    line.unwrap_or_default().split_whitespace().filter_map(|g| g.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn pending_signals_are_sets() {
        let status = "SigPnd:\t0000000000000100\nShdPnd:\t0000000000004000\nSigBlk:\t0000000000000000\n";
        assert_eq!(super::signals(status, &["SigPnd:", "ShdPnd:"]), 0x4100);
        assert_eq!(super::signals("", &["SigPnd:"]), 0);
        assert!(!super::is_killed(std::process::id()));
    }

    #[test]
    fn who_has_ended_waits_for_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(super::is_gone(pid) && super::is_signalled(pid));
        assert!(super::is_dead("Name:\tsh\nState:\tZ (zombie)\n"));
        assert!(!super::is_dead("Name:\tZ\nState:\tS (sleeping)\n"));
        assert!(!super::is_gone(std::process::id()) && !super::is_gone(0) && !super::is_signalled(0));
    }

    #[test]
    fn groups_stand_in_one_line() {
        assert_eq!(super::parse("Name:\tsh\nGroups:\t4 24 1000 \nNStgid:\t1\n"), [4, 24, 1000]);
        assert!(super::parse("Name:\tsh\n").is_empty());
    }
}
