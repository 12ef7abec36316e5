//! How the log comes to know delegations that were given where nothing else goes into it: to an OPEN of a file that was there, to a GET_DIR_DELEGATION.
//!
//! What the log does not know its client has to reclaim after a restart, and with it all else ([`super::clients::Client::holds`]). It cannot be left out, as
//! opens can ([`super::former`]): an open is in nobody's way, but the holder of a delegation is not asked before others change its file, and may never show
//! its stateid again. So either
//! - the OPEN waits until the log has the delegation's note. A client may have so many of these at once and so many a second; or
//! - its client is noted to hold something, as before, before the first of these is answered, and the others wait for nothing. When the client was given
//!   none for a while, the notes of all go into the log, together with the one that it holds nothing else, if that is so.
//!
//! A request that still runs counts as one that is not answered, however long it runs: nothing is noted of its delegation but by itself.
//!
//! A delegation that its client knows may be noted by a later request, which makes it one for writing ([`super::whole_directories`]). What that request has written may
//! come into the log after what was written later, into another log, or not at all. So this does not settle the delegation: it is noted once more, together with the one that its client holds nothing else.
//!
//! Invariant: whenever a delegation's OPEN is answered, the log has its note, or that its client holds something; and that it holds nothing is in no
//! record before the notes of all delegations whose OPENs were answered.

use super::clock::Millis;
use super::ids::FileKey;
use super::notes::Stamped;
use super::opens::number;
use super::tables::State;
use landfast_nfs::v4::{SessionId, Stateid};

impl<F> State<F> {
    /// [`State::log_given`] where the OPEN changes nothing: `None` also if it is not to wait for the log.
    pub fn log_given_alone(&mut self, now: Millis, client: u64, stateid: &Stateid) -> Option<Stamped> {
        // What its client holds is lost with that mark in any case; then it waits for nothing.
        let marked = self.clients.get(client).is_none_or(|c| c.holding_noted);
        if marked
            || !self.has_room_to_log(number(stateid))
            || !self.files.delegations.grants.waits(now, client)
        {
            return None;
        }
        self.log_given(stateid)
    }

    /// The request on this slot is about to be answered, and that its client holds something is noted if need be.
    pub fn grants_are_answered(&mut self, now: Millis, client: u64, session: SessionId, slot: u32) {
        let opens = &self.files.opens;
        let is_its = |id| {
            let given_to = opens.get(&id).and_then(|o| o.delegation.as_ref()).map(|d| d.given_to);
            given_to.is_some_and(|by| by.session == session && by.slot == slot)
        };
        let is_settled = |id| opens.get(&id).and_then(|o| o.delegation.as_ref()).is_none_or(|d| d.settled);
        let d = &mut self.files.delegations;
        d.grants.answered(now, client, is_its, is_settled);
    }

    /// When [`State::settle`] is due next.
    pub fn settle_due(&self) -> Option<Millis> {
        self.files.delegations.grants.due()
    }

    /// Has the delegations stand in the log of clients that were given none for a while. A client that holds nothing else then has nothing to reclaim.
    pub fn settle(&mut self, now: Millis) -> Vec<Stamped> {
        // One that has come back is not to be there after a restart beside the next of the same file.
        let (mut notes, mut clients) = (self.take_gone(), Vec::new());
        for (client, ids) in self.files.delegations.grants.take_quiet(now) {
            notes.extend(self.log_all(ids));
            clients.push(client);
        }
        // After the notes of what they hold, with which they go into the log together.
        notes.extend(clients.into_iter().filter_map(|client| self.note_if_nothing_is_held(client)));
        notes
    }

    /// The same for all clients, at a tick.
    pub(super) fn log_delegations(&mut self) -> Vec<Stamped> {
        let opens = &self.files.opens;
        let lives = |id| opens.get(&id).is_some_and(|o| o.delegation.is_some());
        let ids = self.files.delegations.grants.take_at_tick(lives);
        self.log_all(ids)
    }

    fn log_all(&mut self, ids: Vec<u64>) -> Vec<Stamped> {
        let mut notes = Vec::new();
        for id in ids {
            match self.files.opens.get(&id).and_then(|o| o.delegation.as_ref()) {
                Some(d) if !d.settled => match self.log_delegation(id) {
                    Some(note) => notes.push(note),
                    None => self.files.delegations.grants.put_back(id),
                },
                _ => {}
            }
        }
        notes
    }

    /// Has a delegation stand in the log, in the transaction of its OPEN: after a restart the client goes on with it. `None` when the log
    /// has its fill of them; then the client has to reclaim.
    pub fn log_given(&mut self, stateid: &Stateid) -> Option<Stamped> {
        self.log_delegation(number(stateid))
    }

    /// An OPEN that has made its file is entered beside delegations that others were given in between. They stand in the log with it: after a restart the opener may go on,
    /// and is kept from the file by a delegation that is there, but not by one that is still to be reclaimed.
    pub fn log_beside(&mut self, file: &FileKey, client: Option<u64>) -> Vec<Stamped> {
        let others = |open: &&(u64, u64, bool)| Some(open.1) != client && open.2;
        let of_file = self.files.of_file(file).map(|(id, open)| (id, open.client, open.delegation.is_some()));
        let beside: Vec<_> = of_file.collect();
        let mut notes = Vec::new();
        for (id, holder, _) in beside.iter().filter(others) {
            let (of_it, nothing) = (self.log_all(vec![*id]), self.note_if_nothing_is_held(*holder));
            if !of_it.is_empty() && nothing.is_none() && self.clients.get(*holder).is_some_and(|c| c.holds) {
                // That it holds nothing is written later, perhaps into another log.
                self.settles(*id, false);
            }
            notes.extend(of_it.into_iter().chain(nothing));
        }
        notes
    }

    /// Whether the log takes this one. One that is there already takes no more room.
    pub(super) fn has_room_to_log(&self, id: u64) -> bool {
        let logged = &self.files.delegations.logged;
        logged.len() < self.bounds.delegations || logged.contains(&id)
    }

    /// Has a delegation stand in the log, and settles it.
    fn log_delegation(&mut self, id: u64) -> Option<Stamped> {
        let note = self.note_delegation(id)?;
        self.settles(id, true);
        Some(note)
    }

    /// Has a delegation stand in the log as it is now.
    pub(super) fn note_delegation(&mut self, id: u64) -> Option<Stamped> {
        if !self.has_room_to_log(id) {
            return None;
        }
        let v = self.next_version();
        let d = self.files.opens.get_mut(&id)?.delegation.as_mut()?;
        d.logged = Some(v);
        self.files.delegations.logged.insert(id);
        self.files.delegation_note(id)
    }

    fn settles(&mut self, id: u64, is: bool) {
        if let Some(open) = self.files.opens.get_mut(&id)
            && let Some(d) = &mut open.delegation
            && d.settled != is
        {
            d.settled = is;
            self.files.delegations.is_settled(open.client, is);
        }
    }
}
