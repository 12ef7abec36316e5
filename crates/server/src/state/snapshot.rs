//! Snapshots: all of the state as notes, for the log at a checkpoint (part by part) and at a clean stop.

use super::State;
use super::call_key::CallKey;
use super::notes::{EndsNote, LogId, Note, Stamped};
use landfast_nfs::v4::SessionId;
use std::mem;

/// A snapshot in progress, taken part by part so that nobody waits longer than for one part.
///
/// The state may change between two parts; the note of such a change is written to a log between them. While a part is taken, the
/// snapshot's log has no open transaction, and the part follows all transactions before it.
///
/// This is as good as a snapshot taken at once:
///
/// - Each note says how one thing is at some time after the beginning. A later change has a higher version, and its note follows the
///   beginning of this snapshot or is in another log.
/// - Both marks carry the version of the beginning. So a thing that is newer, and may be missing here, is not taken for gone
///   ([`super::merge`]); and a thing that has gone since then has a note that says so.
/// - No reply precedes its effect: a part has only replies of transactions before it.
/// - Without its end mark a snapshot does not count as one; its notes count like others.
#[derive(Debug)]
pub struct Snapshot {
    log: Option<LogId>,
    version: u64,
    names: Names,
}

/// What is still to be visited. Each list is made when the snapshot comes to it.
#[derive(Debug)]
enum Names {
    Logs,
    Clients(std::vec::IntoIter<u64>),
    Hosts(std::vec::IntoIter<u64>),
    Sessions(std::vec::IntoIter<SessionId>),
    /// Slots of the first session, from this one on; then the other sessions.
    Slots(SessionId, usize, std::vec::IntoIter<SessionId>),
    Calls(std::vec::IntoIter<CallKey>),
    Delegations(std::vec::IntoIter<u64>),
    Locks(std::vec::IntoIter<u64>),
    Opens(std::vec::IntoIter<u64>),
    Nothing,
}

/// The size limit of a part, in notes and in bytes of replies. It may exceed it by one note.
#[derive(Debug, Clone, Copy)]
pub struct PartMax {
    /// Visited things, whether they have a note or not.
    pub notes: usize,
    /// Bytes of replies.
    pub bytes: usize,
}

impl Snapshot {
    /// The mark before all its notes.
    pub fn begins(&self) -> Stamped {
        Stamped { v: self.version, note: Note::Begins }
    }

    /// The mark after all its notes, which completes it.
    pub fn ends(&self, server: [u8; 16], epoch: u32) -> Stamped {
        Stamped { v: self.version, note: Note::Ends(EndsNote { server, epoch }) }
    }

    /// Have all its notes been taken?
    pub fn is_over(&self) -> bool {
        matches!(self.names, Names::Nothing)
    }
}

impl<F> State<F> {
    /// The whole state as notes, where there is one log.
    pub fn snapshot(&self) -> Vec<Stamped> {
        self.whole(None).0
    }

    /// The whole state as notes for this log, with the marks of a snapshot.
    pub fn snapshot_in(&self, log: LogId, server: [u8; 16], epoch: u32) -> Vec<Stamped> {
        let (mut all, snapshot) = self.whole(Some(log));
        all.insert(0, snapshot.begins());
        all.push(snapshot.ends(server, epoch));
        all
    }

    fn whole(&self, log: Option<LogId>) -> (Vec<Stamped>, Snapshot) {
        let mut snapshot = self.begin_snapshot(log);
        let all = self.snapshot_part(&mut snapshot, PartMax { notes: usize::MAX, bytes: usize::MAX });
        (all, snapshot)
    }

    /// Begins a snapshot for this log, or for the only one.
    pub fn begin_snapshot(&self, log: Option<LogId>) -> Snapshot {
        let names = match self.logs {
            Some(_) => Names::Logs,
            None => Names::Clients(self.clients.ids().into_iter()),
        };
        Snapshot { log, version: self.version, names }
    }

    /// The next notes of a snapshot.
    pub fn snapshot_part(&self, snapshot: &mut Snapshot, most: PartMax) -> Vec<Stamped> {
        let log = snapshot.log;
        // What the other notes of this part rest on may be in no log yet.
        let mut out: Vec<Stamped> = self.unwritten.notes().to_vec();
        let (mut looked_at, mut bytes) = (0, 0);
        while looked_at < most.notes && bytes < most.bytes {
            looked_at += 1;
            let before = out.len();
            match &mut snapshot.names {
                Names::Logs => {
                    out.extend(self.logs.clone());
                    snapshot.names = Names::Clients(self.clients.ids().into_iter());
                }
                Names::Clients(left) => match left.next() {
                    Some(id) => {
                        if self.clients.get(id).is_some_and(|c| c.confirmed) {
                            out.extend(self.client_notes(id));
                        }
                    }
                    None => snapshot.names = Names::Hosts(self.hosts.ids().into_iter()),
                },
                Names::Hosts(left) => match left.next() {
                    Some(id) => {
                        let monitored = self.hosts.get(id).filter(|h| h.monitored);
                        out.extend(
                            monitored.map(|h| Stamped { v: h.version, note: Note::NlmHost(h.to_note()) }),
                        );
                    }
                    None => snapshot.names = Names::Sessions(self.sessions.ids().into_iter()),
                },
                Names::Sessions(left) => match left.next() {
                    Some(id) => {
                        out.extend(self.sessions.get(&id).into_iter().flat_map(|s| s.notes()));
                        snapshot.names = Names::Slots(id, 0, mem::take(left));
                    }
                    None => snapshot.names = Names::Calls(self.drc.keys().into_iter()),
                },
                Names::Slots(id, from, left) => {
                    // The session may have gone since the last part.
                    let next = self.sessions.get(id).and_then(|s| s.slot_notes(*from, log).next());
                    match next {
                        Some((v, note)) => {
                            *from = note.slot as usize + 1;
                            out.push(Stamped { v, note: Note::Slot(note) });
                        }
                        None => snapshot.names = Names::Sessions(mem::take(left)),
                    }
                }
                Names::Calls(left) => match left.next() {
                    Some(key) => {
                        let call = self.drc.note(&key, log);
                        out.extend(call.map(|(v, note)| Stamped { v, note: Note::Call(note) }));
                    }
                    None => {
                        snapshot.names = Names::Delegations(self.files.logged_delegations().into_iter());
                    }
                },
                Names::Delegations(left) => match left.next() {
                    Some(id) => out.extend(self.files.delegation_note(id)),
                    None => snapshot.names = Names::Locks(self.files.logged_locks.ids().into_iter()),
                },
                Names::Locks(left) => match left.next() {
                    Some(id) => out.extend(self.files.locks_note(id)),
                    None => snapshot.names = Names::Opens(self.files.preserved.logged_ids().into_iter()),
                },
                Names::Opens(left) => match left.next() {
                    Some(id) => out.extend(self.files.open_note(id)),
                    None => snapshot.names = Names::Nothing,
                },
                Names::Nothing => break,
            }
            bytes += out.iter().skip(before).map(Stamped::reply_bytes).sum::<usize>();
        }
        out
    }

    /// For a clean stop, before its last snapshot: returns notes that clients which hold nothing have nothing to reclaim.
    pub fn settle_holders(&mut self) -> Vec<Stamped> {
        let mut out = self.nlm_settle();
        for id in self.clients.ids() {
            let v = self.version + 1;
            let holds = self.unlogged_of(id) > 0;
            // A client that has still not reclaimed keeps its right to.
            if let Some(c) = self.clients.get_mut(id).filter(|c| c.holds && !holds && !c.needs_reclaim) {
                c.holds = false;
                c.version = v;
                self.version = v;
                out.push(Stamped { v, note: c.note() });
            }
        }
        out
    }
}
