//! How much of what programs are told is done may wait, so that the server has room for all of it
//! (docs/internals/write-directory-delegations.md, "Space that is kept"). No I/O; time is an argument.
//!
//! The server tells how much a user has, and keeps a part of that for him for a lease. Against this part count
//!
//! - all that waits, of all users ([`Needs`]; the caller knows it),
//! - all that was sent since the request was sent that asked ([`Space::spend`]): the answer may not know of it,
//! - what is being admitted in this moment ([`Space::admit`]).
//!
//! What finds no room waits until all else is sent, and then for the server's answer.

use std::collections::HashMap;

use super::Time;
use crate::limits::{
    ROOM_BYTES_MARGIN, ROOM_BYTES_MAX, ROOM_FILES_MARGIN, ROOM_FILES_MAX, ROOM_OF_CHANGE, ROOM_PART,
    ROOM_USERS_MAX,
};

/// Bytes and objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    pub bytes: u64,
    pub files: u64,
}

impl Needs {
    /// Of one change of names: a block of its directory, an inode, the end of its last block.
    pub const CHANGE: Needs = Needs { bytes: ROOM_OF_CHANGE, files: 1 };

    /// Of changes of names.
    pub fn changes(count: usize) -> Needs {
        let count = count as u64;
        Needs { bytes: count.saturating_mul(ROOM_OF_CHANGE), files: count }
    }

    pub fn data(bytes: u64) -> Needs {
        Needs { bytes, files: 0 }
    }

    pub fn plus(self, other: Needs) -> Needs {
        Needs { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    pub fn less(self, other: Needs) -> Needs {
        Needs { bytes: self.bytes.saturating_sub(other.bytes), files: self.files.saturating_sub(other.files) }
    }

    fn is_in(self, room: Needs) -> bool {
        self.bytes <= room.bytes && self.files <= room.files
    }

    /// What the server keeps for who is told that he has so much.
    fn part(self) -> Needs {
        Needs {
            bytes: (self.bytes / ROOM_PART).min(ROOM_BYTES_MAX),
            files: (self.files / ROOM_PART).min(ROOM_FILES_MAX),
        }
    }
}

/// When a request that asks is sent, and what was spent before.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    sent: Time,
    spent: Needs,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    part: Needs,
    asked: Asked,
    heard: Time,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Space {
    users: HashMap<u32, Told>,
    /// In all, since the mount began.
    spent: Needs,
    admitting: Needs,
    /// The server has told once.
    begun: bool,
}

impl Space {
    /// Before a request is sent that asks.
    pub fn ask(&self, now: Time) -> Asked {
        Asked { sent: now, spent: self.spent }
    }

    /// What the server says that a user has; `None`: it keeps nothing for him.
    pub fn told(&mut self, user: u32, asked: Asked, has: Option<Needs>, now: Time) {
        let Some(has) = has else {
            self.users.remove(&user);
            return;
        };
        self.begun = true;
        let mut told = Told { part: has.part(), asked, heard: now };
        if let Some(before) = self.users.get(&user)
            && asked.sent < before.heard
        {
            // They have crossed: the server may have executed this one first.
            told.part.bytes = told.part.bytes.min(before.part.bytes);
            told.part.files = told.part.files.min(before.part.files);
            told.asked = if before.asked.sent < asked.sent { before.asked } else { asked };
        }
        if self.users.len() >= ROOM_USERS_MAX && !self.users.contains_key(&user) {
            self.users.clear();
        }
        self.users.insert(user, told);
    }

    /// Something has left what waits, and takes room at the server, or none any more.
    pub fn spend(&mut self, needs: Needs) {
        self.spent = self.spent.plus(needs);
    }

    /// What the server keeps is not known any more.
    pub fn forget(&mut self) {
        self.users.clear();
    }

    /// Whether room is needed at all: the server has given directories.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Admits something of a user's, if the room is there beside what `waits`. It counts until [`Space::is_in`] says that it waits itself.
    pub fn admit(&mut self, user: u32, needs: Needs, waits: Needs, (now, lease): (Time, Time)) -> bool {
        let there = self.users.get(&user).is_some_and(|told| {
            // What is let in now is sent before the lease is over.
            let lives = now.saturating_sub(told.asked.sent) < lease / 2;
            let used = waits.plus(self.admitting).plus(self.spent.less(told.asked.spent));
            let margin = Needs { bytes: ROOM_BYTES_MARGIN, files: ROOM_FILES_MARGIN };
            lives && used.plus(needs).plus(margin).is_in(told.part)
        });
        if there {
            self.admitting = self.admitting.plus(needs);
        }
        there
    }

    /// Has something count that is sent whether there is room or not, until [`Space::is_in`].
    pub fn pass(&mut self, needs: Needs) {
        self.admitting = self.admitting.plus(needs);
    }

    /// What was admitted is among what waits, or was sent.
    pub fn is_in(&mut self, needs: Needs) {
        self.admitting = self.admitting.less(needs);
    }

    /// Users whose room is to be asked for again, since something waits.
    pub fn aging(&self, now: Time, lease: Time) -> Vec<u32> {
        let old = |told: &Told| now.saturating_sub(told.asked.sent) >= lease / 4;
        self.users.iter().filter(|(_, told)| old(told)).map(|(user, _)| *user).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Time = Time::from_secs(90);
    const MIB: u64 = 1 << 20;
    const NOTHING: Needs = Needs { bytes: 0, files: 0 };

    fn at(seconds: u64) -> (Time, Time) {
        (Time::from_secs(seconds), LEASE)
    }

    fn has(mib: u64) -> Option<Needs> {
        Some(Needs { bytes: mib * MIB, files: 80_000 })
    }

    /// A user who was told at second 1 that he has 80 MiB: 10 MiB are kept.
    fn told() -> Space {
        let mut space = Space::default();
        let asked = space.ask(Time::from_secs(1));
        space.told(7, asked, has(80), Time::from_secs(2));
        space
    }

    #[test]
    fn a_part_of_what_a_user_has_may_wait() {
        let mut space = told();
        let most = 10 * MIB - ROOM_BYTES_MARGIN;
        assert!(!space.admit(7, Needs::data(most + 1), NOTHING, at(2)));
        assert!(space.admit(7, Needs::data(most), NOTHING, at(2)));
        assert!(!space.admit(7, Needs::data(1), NOTHING, at(2)), "the other is not in yet");
        space.is_in(Needs::data(most));
        assert!(!space.admit(7, Needs::data(1), Needs::data(most), at(2)), "now it is");
        assert!(!space.admit(8, Needs::data(1), NOTHING, at(2)), "of another user nothing is known");
        assert!(!told().admit(7, Needs { bytes: 0, files: 10_000 }, NOTHING, at(2)));
    }

    #[test]
    fn what_is_sent_counts_until_an_answer_knows_of_it() {
        let mut space = told();
        let early = space.ask(Time::from_secs(3));
        space.spend(Needs::data(9 * MIB));
        assert!(!space.admit(7, Needs::data(MIB), NOTHING, at(3)));
        space.told(7, early, has(80), Time::from_secs(4));
        assert!(!space.admit(7, Needs::data(MIB), NOTHING, at(4)), "it was asked before");
        let asked = space.ask(Time::from_secs(5));
        space.told(7, asked, has(72), Time::from_secs(6));
        assert!(space.admit(7, Needs::data(8 * MIB), NOTHING, at(6)));
    }

    #[test]
    fn of_answers_that_may_have_crossed_the_smaller_one_counts() {
        let mut space = told();
        let (one, two) = (space.ask(Time::from_secs(3)), space.ask(Time::from_secs(4)));
        space.told(7, two, has(40), Time::from_secs(5));
        space.told(7, one, has(80), Time::from_secs(6));
        assert!(!space.admit(7, Needs::data(5 * MIB), NOTHING, at(6)));
        let later = space.ask(Time::from_secs(7));
        space.told(7, later, has(80), Time::from_secs(8));
        assert!(space.admit(7, Needs::data(5 * MIB), NOTHING, at(8)));
    }

    #[test]
    fn what_is_kept_ends_with_its_lease_and_is_asked_for_before() {
        let mut space = told();
        assert!(space.admit(7, Needs::CHANGE, NOTHING, at(45)));
        assert!(!space.admit(7, Needs::CHANGE, NOTHING, at(46)));
        assert_eq!(
            (space.aging(Time::from_secs(23), LEASE), space.aging(Time::from_secs(24), LEASE)),
            (vec![], vec![7])
        );
        let asked = space.ask(Time::from_secs(50));
        space.told(7, asked, None, Time::from_secs(50));
        assert!(!space.admit(7, Needs::CHANGE, NOTHING, at(50)), "nothing is kept");
    }
}
