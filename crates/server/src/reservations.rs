//! Space that is kept back for clients with write directory delegations, so that what they were told is free is still free when they send
//! what their programs have written (`docs/internals/write-directory-delegations.md`). Pure: time is an argument.
//!
//! A client is told how much space a user of it has, and a part of that is kept for this user of this client for one lease. Nobody else's
//! request takes it. Not logged: a start keeps some for each client that had a delegation before.

use crate::limits::{
    PROMISES_MAX, RESERVATION_BYTES_MAX, RESERVATION_FILES_MAX, RESERVATION_PART, RESERVATIONS_MAX,
    RESERVATIONS_SWEPT_MS, RESERVED_FILES_MARGIN, RESERVED_MARGIN,
};
use crate::state::Millis;
use std::collections::BTreeMap;

/// A filesystem: its device, major and minor.
pub(crate) type Device = (u32, u32);

/// Space and objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

impl Room {
    pub(crate) fn least(self, other: Room) -> Room {
        Room { bytes: self.bytes.min(other.bytes), files: self.files.min(other.files) }
    }

    fn most(self, other: Room) -> Room {
        Room { bytes: self.bytes.max(other.bytes), files: self.files.max(other.files) }
    }

    pub(crate) fn plus(self, other: Room) -> Room {
        Room { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    pub(crate) fn less(self, other: Room) -> Room {
        Room { bytes: self.bytes.saturating_sub(other.bytes), files: self.files.saturating_sub(other.files) }
    }

    /// Whether something new of so many bytes fits behind what is kept for others.
    pub(crate) fn fits(self, kept: Room, bytes: u64) -> bool {
        let needs = Room { bytes: bytes.saturating_add(RESERVED_MARGIN), files: RESERVED_FILES_MARGIN };
        let needs = needs.plus(kept);
        self.bytes >= needs.bytes && self.files >= needs.files
    }

    /// What is kept for whom this is told as his.
    pub(crate) fn part(self) -> Room {
        Room {
            bytes: (self.bytes / RESERVATION_PART).min(RESERVATION_BYTES_MAX),
            files: (self.files / RESERVATION_PART).min(RESERVATION_FILES_MAX),
        }
    }
}

/// What was promised to one user of one client: so much, until then. An answer that tells of less does not take the one before back.
#[derive(Debug, Default)]
struct Kept(Vec<(Room, Millis)>);

impl Kept {
    fn room(&self, now: Millis) -> Room {
        let live = self.0.iter().filter(|(_, until)| *until > now);
        live.fold(Room::default(), |most, (room, _)| most.most(*room))
    }

    fn is_over(&self, now: Millis) -> bool {
        self.0.iter().all(|(_, until)| *until <= now)
    }

    fn promise(&mut self, now: Millis, room: Room, until: Millis) {
        self.0.retain(|(before, over)| *over > now && before.most(room) != room);
        if self.0.len() >= PROMISES_MAX {
            // The oldest lasts as long as the one behind it.
            let (oldest, _) = self.0.remove(0);
            if let Some((next, _)) = self.0.first_mut() {
                *next = next.most(oldest);
            }
        }
        self.0.push((room, until));
    }

    fn uses(&mut self, used: Room) {
        self.0.iter_mut().for_each(|(room, _)| *room = room.less(used));
    }
}

/// For whom: filesystem, client, user. `None`: any user.
type Holder = (Device, u64, Option<u32>);

#[derive(Debug, Default)]
pub(crate) struct Reservations {
    kept: BTreeMap<Holder, Kept>,
    swept: Millis,
}

impl Reservations {
    /// Keeps the part of `told` until then, as well as what was promised before. Returns whether it does: there may be too many.
    pub(crate) fn keep(&mut self, now: Millis, until: Millis, holder: Holder, told: Room) -> bool {
        if self.kept.len() >= RESERVATIONS_MAX && !self.kept.contains_key(&holder) {
            self.kept.retain(|_, kept| !kept.is_over(now));
            if self.kept.len() >= RESERVATIONS_MAX {
                return false;
            }
        }
        self.kept.entry(holder).or_default().promise(now, told.part(), until);
        true
    }

    fn live(&self, now: Millis, device: Device) -> impl Iterator<Item = (u64, Option<u32>, Room)> {
        let all = self.kept.range((device, 0, None)..=(device, u64::MAX, Some(u32::MAX)));
        all.map(move |((_, client, user), kept)| (*client, *user, kept.room(now)))
    }

    /// A client has used some of what was promised to it. It counts this against each of its users, too.
    pub(crate) fn uses(&mut self, device: Device, client: u64, used: Room) {
        let his = self.kept.range_mut((device, client, None)..=(device, client, Some(u32::MAX)));
        his.for_each(|(_, kept)| kept.uses(used));
    }

    /// What is kept for other clients than `by`. A client counts all that waits against each of its users, so the largest of theirs is all
    /// that it uses.
    pub(crate) fn of_others(&self, now: Millis, device: Device, by: Option<u64>) -> Room {
        let mut of_clients: BTreeMap<u64, Room> = BTreeMap::new();
        for (client, _, room) in self.live(now, device).filter(|(client, ..)| Some(*client) != by) {
            let most = of_clients.entry(client).or_default();
            *most = most.most(room);
        }
        of_clients.into_values().fold(Room::default(), Room::plus)
    }

    /// The same of this user's quota.
    pub(crate) fn of_user_elsewhere(&self, now: Millis, device: Device, by: Option<u64>, uid: u32) -> Room {
        let his = |(client, user, _): &(u64, Option<u32>, Room)| Some(*client) != by && *user == Some(uid);
        self.live(now, device).filter(his).fold(Room::default(), |sum, (_, _, room)| sum.plus(room))
    }

    /// Forgets once in a while what is not kept any more. Returns then whether something is left.
    pub(crate) fn sweep(&mut self, now: Millis) -> Option<bool> {
        if now < self.swept + RESERVATIONS_SWEPT_MS {
            return None;
        }
        self.swept = now;
        self.kept.retain(|_, kept| !kept.is_over(now));
        Some(!self.kept.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Device = (8, 1);
    const A: u64 = 1;
    const B: u64 = 2;

    fn room(bytes: u64) -> Room {
        Room { bytes, files: 80 }
    }

    #[test]
    fn what_is_kept_for_a_client_is_in_everybody_elses_way() {
        let mut r = Reservations::default();
        assert!(r.keep(0, 100, (DISK, A, Some(0)), room(8000)));
        assert!(r.keep(0, 100, (DISK, A, Some(5)), room(1600)));
        assert_eq!(r.of_others(0, DISK, Some(A)), Room::default());
        // The larger one of its users.
        assert_eq!(r.of_others(99, DISK, Some(B)), Room { bytes: 1000, files: 10 });
        assert_eq!(r.of_others(99, DISK, None), Room { bytes: 1000, files: 10 });
        assert_eq!(r.of_others(99, (8, 2), None), Room::default());
        assert_eq!(r.of_others(100, DISK, None), Room::default(), "its time is over");
        assert!(r.keep(50, 150, (DISK, B, None), room(80)));
        assert_eq!(r.of_others(60, DISK, None).bytes, 1010);
        assert_eq!(r.of_user_elsewhere(60, DISK, Some(B), 5).bytes, 200);
        assert_eq!(r.of_user_elsewhere(60, DISK, Some(A), 5).bytes, 0);
        assert_eq!((r.sweep(999), r.kept.len()), (None, 3));
        assert_eq!((r.sweep(1000), r.kept.len()), (Some(false), 0));
    }

    #[test]
    fn an_answer_that_tells_of_less_takes_nothing_back_before_it_is_used_or_over() {
        let mut r = Reservations::default();
        r.keep(0, 100, (DISK, A, Some(0)), room(8000));
        r.keep(10, 110, (DISK, A, Some(0)), room(800));
        assert_eq!(r.of_others(99, DISK, None).bytes, 1000);
        r.uses(DISK, A, Room { bytes: 300, files: 1 });
        r.uses(DISK, B, Room { bytes: 300, files: 1 });
        assert_eq!(r.of_others(99, DISK, None), Room { bytes: 700, files: 9 });
        assert_eq!(r.of_others(100, DISK, None).bytes, 0);
        r.keep(100, 200, (DISK, A, Some(0)), room(4000));
        assert_eq!((r.of_others(199, DISK, None).bytes, r.kept.len()), (500, 1));
        for at in 100..100 + 2 * PROMISES_MAX as u64 {
            // Less each time: all stand.
            r.keep(at, at + 100, (DISK, A, Some(0)), room(4000 - 8 * at));
        }
        assert_eq!(r.kept[&(DISK, A, Some(0))].0.len(), PROMISES_MAX);
        assert_eq!(r.of_others(200, DISK, None).bytes, 500, "longer than it had to, but not less");
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_to_remember() {
        let mut r = Reservations::default();
        for client in 0..RESERVATIONS_MAX as u64 {
            assert!(r.keep(0, 100, (DISK, client, Some(0)), room(80)));
        }
        assert!(!r.keep(99, 200, (DISK, u64::MAX, Some(0)), room(80)));
        assert!(r.keep(99, 200, (DISK, 3, Some(0)), room(80)), "that one has a place");
        assert!(r.keep(100, 200, (DISK, u64::MAX, Some(0)), room(80)));
        assert_eq!(r.kept.len(), 2);
    }

    #[test]
    fn a_part_has_a_limit() {
        assert_eq!(Room { bytes: u64::MAX, files: u64::MAX }.part().bytes, RESERVATION_BYTES_MAX);
        assert!(room(RESERVED_MARGIN + 110).fits(Room { bytes: 10, files: 0 }, 100));
        assert!(!room(RESERVED_MARGIN + 109).fits(Room { bytes: 10, files: 0 }, 100));
        assert!(!room(u64::MAX).fits(Room { bytes: 0, files: 80 }, 0));
    }
}
