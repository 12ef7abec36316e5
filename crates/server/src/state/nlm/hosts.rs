use crate::limits;
use crate::state::clock::Millis;
use crate::state::notes::NlmHostNote;
use bytes::Bytes;
use landfast_rpc::share_of;
use std::collections::HashMap;
use std::net::IpAddr;

/// Client IDs with this bit are NLM hosts.
pub const NLM_BIT: u64 = 1 << 63;

pub fn is_nlm(client: u64) -> bool {
    client & NLM_BIT != 0
}

/// A host that locks by NLM.
#[derive(Debug, Clone)]
pub struct Host {
    pub id: u64,
    pub addr: IpAddr,
    /// `caller_name`.
    pub name: Bytes,
    pub used: Millis,
    /// The log has, or is about to get, a note that it may hold locks.
    pub monitored: bool,
    /// That note is durable.
    pub noted: bool,
    /// It may have held locks before the restart.
    pub restored: bool,
    /// It held nothing at the end of a grace period or at a clean stop, and its note says so.
    pub(super) settled: bool,
    /// The state of its status monitor in which it asked for all that it holds or waits for, if it said so each time.
    pub(super) asked_in: Option<i32>,
    /// Since when.
    pub(super) asked_since: Millis,
    pub version: u64,
}

#[derive(Debug, Default)]
pub struct Hosts {
    pub(super) by_id: HashMap<u64, Host>,
    by_name: HashMap<(IpAddr, Bytes), u64>,
    /// How many an address has.
    by_addr: HashMap<IpAddr, usize>,
    pub(super) last: u64,
    pub(super) reported: Reported,
}

/// The state that each status monitor reported last (SM_NOTIFY), by its address and its name up to the first dot, with the
/// number of the last report and the time of the first one.
#[derive(Debug, Default)]
pub(super) struct Reported {
    by_name: HashMap<(IpAddr, Vec<u8>), Report>,
    reports: u64,
}

#[derive(Debug)]
struct Report {
    state: i32,
    number: u64,
    since: Millis,
}

impl Reported {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Notes a report; returns whether it repeats the one before: the same state, for as long as monitors repeat one. (A machine whose disk
    /// is as it was at each start reports the same state again and again.) An address that uses many names forgets its own
    /// oldest one; at the limit the oldest of all is forgotten.
    pub(super) fn hears(&mut self, addr: IpAddr, name: &[u8], state: i32, now: Millis) -> bool {
        let key = (addr, first_label(name));
        self.reports += 1;
        let number = self.reports;
        if let Some(known) = self.by_name.get_mut(&key) {
            let again = known.state == state && is_of_one_restart(known.since, now);
            let since = if again { known.since } else { now };
            *known = Report { state, number, since };
            return again;
        }
        let same = |at: &IpAddr| share_of(*at) == share_of(addr);
        let own = self.by_name.keys().filter(|(at, _)| same(at)).count();
        let own = own >= limits::NSM_STATES_PER_ADDRESS_MAX;
        if own || self.by_name.len() >= limits::NSM_STATES_MAX {
            let may_go = self.by_name.iter().filter(|((at, _), _)| !own || same(at));
            let oldest = may_go.min_by_key(|(_, report)| report.number).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.by_name.remove(&key));
        }
        self.by_name.insert(key, Report { state, number, since: now });
        false
    }
}

/// Whether something that is from `since` is of the restart that is reported now.
pub(super) fn is_of_one_restart(since: Millis, now: Millis) -> bool {
    now.saturating_sub(since) < limits::NSM_REPEATED_MS
}

/// A host's name up to the first dot, in lower case.
fn first_label(name: &[u8]) -> Vec<u8> {
    name.split(|b| *b == b'.').next().unwrap_or_default().to_ascii_lowercase()
}

impl Hosts {
    pub fn get(&self, id: u64) -> Option<&Host> {
        self.by_id.get(&id)
    }

    pub fn find(&self, addr: IpAddr, name: &Bytes) -> Option<u64> {
        self.by_name.get(&(addr, name.clone())).copied()
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Whether there is any at this address.
    pub fn any_at(&self, addr: IpAddr) -> bool {
        self.by_addr.contains_key(&addr)
    }

    pub fn ids(&self) -> Vec<u64> {
        self.by_id.keys().copied().collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Host> {
        self.by_id.values()
    }

    pub(super) fn insert(&mut self, host: Host) {
        self.last = self.last.max(host.id & !NLM_BIT);
        self.by_name.insert((host.addr, host.name.clone()), host.id);
        let addr = host.addr;
        if self.by_id.insert(host.id, host).is_none() {
            *self.by_addr.entry(addr).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Host> {
        let host = self.by_id.remove(&id)?;
        self.by_name.remove(&(host.addr, host.name.clone()));
        if let Some(n) = self.by_addr.get_mut(&host.addr) {
            *n -= 1;
            if *n == 0 {
                self.by_addr.remove(&host.addr);
            }
        }
        Some(host)
    }
}

impl Host {
    /// Whether a status monitor at `addr` that calls itself `name` means this host. Case and domain are ignored, since
    /// a status monitor may use another form of the name than the lock manager. If the name is an address, it is
    /// compared as a whole.
    pub fn is_called(&self, name: &[u8], addr: IpAddr) -> bool {
        match std::str::from_utf8(name).ok().and_then(|n| n.parse::<IpAddr>().ok()) {
            Some(literal) => literal.to_canonical() == addr && self.addr == addr,
            None => first_label(&self.name) == first_label(name),
        }
    }

    pub fn to_note(&self) -> NlmHostNote {
        NlmHostNote { id: self.id, addr: self.addr, name: self.name.to_vec(), holds: !self.settled }
    }
}
