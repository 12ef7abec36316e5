//! Snapshots of the state in the log, and restarts.

use super::super::model::Model;
use super::{ID, LOG, Server, TICK, instance};
use crate::state::merge::merge;
use crate::state::notes::Stamped;
use crate::state::snapshot::PartMax;
use crate::touches::Touches;

impl Server {
    /// One more part of a snapshot, which makes the log begin anew.
    pub(in super::super) fn snapshots(&mut self) {
        if self.working.iter().any(|work| work.modified) {
            return;
        }
        // While a part is taken no transaction is joined: a reply is in its slot only when its request has joined the log.
        while self.log.late() > 0 {
            self.log.arrives(0);
        }
        let (mut snapshot, first) = match self.snapshot.take() {
            Some(begun) => begun,
            None => {
                let snapshot = self.st.begin_snapshot(Some(LOG));
                let first = self.log.append(vec![snapshot.begins()], Some(self.names));
                (snapshot, first)
            }
        };
        let part = self.st.snapshot_part(&mut snapshot, PartMax { notes: 5, bytes: usize::MAX });
        self.log.append(part, None);
        if snapshot.is_over() {
            let ends = snapshot.ends(ID, self.epoch);
            self.log.append(vec![ends], None);
            self.log.flush();
            self.log.forget_before(first);
        } else {
            self.snapshot = Some((snapshot, first));
        }
    }

    /// Power goes, and takes so much of what was not flushed; then the server starts again.
    pub(in super::super) fn restarts(&mut self, m: &mut Model, takes: usize, in_order: bool) {
        let counts = self.st.files.delegations.counts;
        m.figures.recalled += counts.recalled;
        m.figures.returned += counts.returned;
        m.figures.revoked += counts.revoked;
        if in_order {
            let settled = self.st.settle_holders();
            self.log.append(settled, None);
            let whole = self.st.snapshot_in(LOG, ID, self.epoch);
            self.log.append(whole, Some(self.names));
            self.log.flush();
        }
        let (notes, names) = self.log.cut(takes);
        let notes: Vec<Stamped> =
            notes.iter().filter_map(|note| Stamped::from_bytes(&note.to_bytes())).collect();
        let merged = merge(&[notes]);
        self.epoch += 1;
        self.executed_before = self.executed;
        self.st = instance(self.epoch, self.bounds);
        self.st.restore(merged.notes, self.now);
        self.touches = Touches::new();
        self.names = names;
        let first = self.st.snapshot_in(LOG, ID, self.epoch);
        self.log.begins_with(first, names);
        self.parked.clear();
        self.working.clear();
        let lost: Vec<u64> = self.pending.iter().map(|pending| pending.call.print).collect();
        m.are_lost(&lost);
        self.pending.clear();
        self.sent.clear();
        self.recalls.clear();
        self.questions.clear();
        self.tells.clear();
        self.expelling.clear();
        self.revoking.clear();
        self.ends_grace = None;
        self.snapshot = None;
        self.next_tick = self.now + TICK;
        self.lets_go();
    }
}
