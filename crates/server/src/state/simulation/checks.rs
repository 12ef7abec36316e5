//! What must hold of the tables at any time, and what must be left when all is given back.

use super::super::State;
use super::super::opens::{Open, WRITE};
use super::model::Model;
use landfast_nfs::v4::flags::SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
use std::collections::HashMap;

/// Counters agree with what they count, and each thing has its place in each table.
pub(super) fn holds(st: &State<u32>, m: &mut Model) {
    let f = &st.files;
    let mut wrong = Vec::new();
    let mut expect = |what: &str, counted: usize, there: usize| {
        if counted != there {
            wrong.push(format!("{what}: {counted} are counted, and {there} are there"));
        }
    };
    let ranges: usize = f.files.values().map(|file| file.ranges.len()).sum();
    expect("locked ranges", f.ranges, ranges);
    expect("descriptors", f.kept(), f.opens.values().map(|o| o.handles.len()).sum());
    expect("opens in files", f.files.values().map(|file| file.opens.len()).sum(), f.opens.len());
    expect("opens of clients", f.clients.values().map(|c| c.opens.len()).sum(), f.opens.len());
    expect("lock states of clients", f.clients.values().map(|c| c.locks.len()).sum(), f.locks.len());
    expect(
        "lock states of opens and hosts",
        f.opens.values().map(|o| o.lock_states.len()).sum(),
        f.locks.values().filter(|l| l.open.is_some()).count(),
    );
    let delegations = f.opens.values().filter(|o| o.delegation.is_some()).count();
    expect("delegations", f.delegations.live(), delegations);
    let logged =
        f.opens.values().filter(|o| o.delegation.as_ref().is_some_and(|d| d.logged.is_some())).count();
    expect("delegations in the log", f.delegations.logged.len(), logged);
    let lock_bytes: u64 = f.locks.values().filter_map(|l| l.logged.as_ref()).map(|l| l.bytes).sum();
    expect("bytes of locks in the log", f.logged_locks.bytes as usize, lock_bytes as usize);
    let mut denying: HashMap<u64, usize> = HashMap::new();
    let mut unlogged: HashMap<u64, usize> = HashMap::new();
    for o in f.opens.values() {
        *denying.entry(o.client).or_default() += usize::from(o.deny != 0);
    }
    for (id, l) in &f.locks {
        let settled = l.logged.is_some() && !f.logged_locks.no_room.contains(id);
        *unlogged.entry(l.client).or_default() += usize::from(!settled);
    }
    for (id, c) in &f.clients {
        expect("opens that deny something", c.denying, denying.get(id).copied().unwrap_or(0));
        expect("locks that are not settled", c.unlogged_locks, unlogged.get(id).copied().unwrap_or(0));
        let of =
            f.opens.values().filter(|o| o.client == *id && o.delegation.as_ref().is_some_and(|d| !d.settled));
        expect("delegations that are not settled", f.delegations.unsettled_of(*id), of.count());
    }
    for o in f.opens.values() {
        let live = st.clients.get(o.client).is_some() || st.hosts.get(o.client).is_some();
        if !live {
            wrong.push(format!("an open of client {:x}, which is gone", o.client));
        }
        if o.delegation.is_some() && o.access & WRITE != 0 {
            let others = f.of_file(&o.file).filter(|(_, p)| p.client != o.client && p.delegation.is_some());
            if others.count() > 0 {
                wrong.push(format!("a write delegation of {:x} beside another delegation", o.client));
            }
        }
    }
    for l in f.locks.values() {
        let open = l
            .open
            .is_none_or(|id| f.opens.get(&id).is_some_and(|o| o.client == l.client && o.file == l.file));
        if !open {
            wrong.push(format!("locks of client {:x} without their open", l.client));
        }
    }
    for s in st.sessions.iter() {
        if !st.clients.get(s.client).is_some_and(|c| c.confirmed) {
            wrong.push(format!("a session of client {:x}, which is gone", s.client));
        }
    }
    if let Some(first) = wrong.into_iter().next() {
        m.fails(first);
    }
}

/// Nothing is left. `cut`: power has gone.
pub(super) fn is_empty(st: &State<u32>, m: &mut Model, cut: bool) {
    let f = &st.files;
    let d = &f.delegations;
    // A request that names a former open may be executed after its CLOSE: then the server knows it again, until its client goes (documented).
    // So may be one whose CLOSE released no lock just before a power cut, with the lock states under it.
    let empty = |o: &&Open<u32>| {
        o.access == 0
            && o.lock_states.iter().all(|id| f.files.get(&o.file).is_none_or(|file| !file.ranges.holds(*id)))
    };
    let strays = || f.opens.values().filter(|o| o.former.is_some() && (o.lock_states.is_empty() || empty(o)));
    let stray = strays().count();
    let stray_locks: Vec<u64> = strays().flat_map(|o| o.lock_states.iter().copied()).collect();
    let stray_bytes: u64 =
        stray_locks.iter().filter_map(|id| f.locks.get(id)?.logged.as_ref()).map(|l| l.bytes).sum();
    let unless_stray = |count: usize| if stray > 0 { 0 } else { count };
    let left = [
        ("opens", f.opens.len() - stray),
        ("lock states", f.locks.len() - stray_locks.len()),
        ("files", unless_stray(f.files.len())),
        ("clients with opens", unless_stray(f.clients.len())),
        ("ranges", f.ranges),
        ("descriptors", f.kept()),
        ("delegations", d.live()),
        ("delegations in the log", d.logged.len()),
        ("ended delegations that the log has not heard of", d.gone.len()),
        ("ended locks that the log has not heard of", f.logged_locks.gone()),
        ("bytes of locks in the log", (f.logged_locks.bytes - stray_bytes) as usize),
        ("questions", d.questions.len()),
        ("waiting NLM requests", f.waiters.len()),
    ];
    if let Some((what, count)) = left.into_iter().find(|(_, count)| *count > 0) {
        m.fails(format!("all was given back, and there are {count} {what}"));
    }
    for (id, o) in &f.opens {
        let what = (o.delegation.as_ref().map(|d| d.recalled), o.former.is_some(), o.access, o.deny);
        m.tells(|| format!("left: {id:x} of file {:?}, client {:x}: {what:?}", o.file, o.client));
    }
    // What a client has returned may be revoked from it after a power cut, if it cannot be asked: it can never free that.
    let forgiven = if cut { SEQ4_STATUS_RECALLABLE_STATE_REVOKED } else { 0 };
    let told = |id| st.status_flags(id) & !forgiven;
    let holds = st.clients.iter().find(|c| c.holds || told(c.id) != 0).map(|c| (c.id, told(c.id)));
    if let Some((id, flags)) = holds {
        m.fails(format!("all was given back, and client {id:x} counts as a holder or is told {flags:x}"));
    }
}
