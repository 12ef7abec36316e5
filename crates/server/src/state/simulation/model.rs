//! The oracle: who believes what, and whether it may be so.

use super::super::clock::Millis;
use super::super::opens::Share;
use super::rights::{Effect, File, Kind, Knows, Right, Who, excludes, forbids};
use landfast_nfs::v4::Stateid;

/// What was done and found in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub steps: u64,
    pub requests: u64,
    pub given: u64,
    pub recalled: u64,
    pub returned: u64,
    pub revoked: u64,
    pub told: u64,
    pub restarts: u64,
    pub reclaimed: u64,
    pub lapsed: u64,
    pub locks: u64,
    pub went_on: u64,
    pub forged: u64,
    /// The same seed gives the same.
    pub digest: u64,
}

impl Figures {
    #[cfg(test)]
    pub(super) fn add(&mut self, other: &Figures) {
        self.steps += other.steps;
        self.requests += other.requests;
        self.given += other.given;
        self.recalled += other.recalled;
        self.returned += other.returned;
        self.revoked += other.revoked;
        self.told += other.told;
        self.restarts += other.restarts;
        self.reclaimed += other.reclaimed;
        self.lapsed += other.lapsed;
        self.locks += other.locks;
        self.went_on += other.went_on;
        self.forged += other.forged;
        self.digest ^= other.digest;
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} steps, {} requests executed", self.steps, self.requests)?;
        writeln!(
            f,
            "{} delegations given, {} recalled, {} returned, {} revoked; {} answers of holders told",
            self.given, self.recalled, self.returned, self.revoked, self.told
        )?;
        write!(
            f,
            "{} restarts; {} rights reclaimed; {} opens went on; {} clients lost all; {} locks; {} forged stateids",
            self.restarts, self.reclaimed, self.went_on, self.lapsed, self.locks, self.forged
        )
    }
}

pub(super) struct Model {
    pub(super) now: Millis,
    pub(super) lease: Millis,
    /// When the server started last.
    pub(super) started: Millis,
    pub(super) rights: Vec<Right>,
    pub(super) knows: Vec<Knows>,
    /// The client ID of each.
    pub(super) ids: Vec<u64>,
    /// What the server has begun to recall, and when it may be revoked.
    pub(super) recalled: Vec<([u8; 12], Millis)>,
    /// What was seen that must not be.
    pub(super) fault: Option<String>,
    pub(super) history: Option<Vec<String>>,
    pub(super) figures: Figures,
}

impl Model {
    pub(super) fn fails(&mut self, what: String) {
        if self.fault.is_none() {
            self.fault = Some(what);
        }
    }

    /// Writes a line of the history, if one is kept.
    pub(super) fn tells(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(history) = &mut self.history {
            history.push(format!("{:>9.3}  {}", now as f64 / 1000.0, line()));
        }
    }

    fn is_sure_of(&self, right: &Right) -> bool {
        !right.reclaim
            && right.until.is_none_or(|until| self.now < until)
            && self.knows.get(right.who).is_some_and(|k| k.is_sure(self.now, self.lease))
    }

    /// Somebody does something to a file. `excused`: the client that is told at its next request that it has lost all.
    pub(super) fn effect(
        &mut self,
        by: Option<Who>,
        file: File,
        effect: Effect,
        what: &str,
        excused: impl Fn(Who) -> bool,
    ) {
        for i in 0..self.rights.len() {
            let Some(right) = self.rights.get(i) else { break };
            if Some(right.who) == by || right.file != file || !forbids(&right.kind, effect) {
                continue;
            }
            let why = format!("{what} of file {file} by {by:?}");
            if excused(right.who) {
                continue;
            }
            if self.is_sure_of(right) {
                let held = format!("{:?}", right.kind);
                let who = right.who;
                self.fails(format!("{why} while client {who} holds {held}"));
            } else if let Some(right) = self.rights.get_mut(i) {
                if std::mem::take(&mut right.beside_an_open) {
                    right.broken = None;
                }
                right.broken.get_or_insert(why);
            }
        }
    }

    /// A client reads or writes, with an open or without. Nobody else may deny that.
    /// `reads`: the request, if it only reads.
    pub(super) fn reads_or_writes(&mut self, by: Who, file: File, want: Share, reads: Option<u64>) {
        // An open that was entered beside this one's delegation denies nothing under that.
        let is_delegated = |r: &Right| r.by_delegation || matches!(r.kind, Kind::Delegation { .. });
        let delegated = self.of(by).any(|r| r.file == file && is_delegated(r));
        for i in 0..self.rights.len() {
            let Some(right) = self.rights.get(i).filter(|r| !(r.beside && delegated)) else { continue };
            let denies = matches!(right.kind, Kind::Open { deny, .. } if deny & want != 0);
            if right.who == by || right.file != file || !denies {
                continue;
            }
            let why = format!("I/O ({want}) on file {file} by {by}");
            if self.is_sure_of(right) {
                let told = format!("{why} while client {} holds {:?}", right.who, right.kind);
                self.fails(told);
            } else if let Some(right) = self.rights.get_mut(i)
                && right.broken.is_none()
            {
                (right.broken, right.broken_by) = (Some(why), reads);
            }
        }
    }

    /// These requests are never answered.
    pub(super) fn are_lost(&mut self, requests: &[u64]) {
        let lost = |right: &&mut Right| right.broken_by.is_some_and(|by| requests.contains(&by));
        self.rights.iter_mut().filter(lost).for_each(|right| (right.broken, right.broken_by) = (None, None));
    }

    /// A client has heard that it holds this.
    pub(super) fn given(&mut self, mut new: Right) {
        let sure = self.is_sure_of(&new);
        let (now, since) = (self.now, self.started + self.lease);
        let recalled = self.recalled.iter().find(|(other, _)| *other == new.stateid.other);
        new.until = new.until.or(recalled.map(|(_, until)| *until));
        let sure = sure && new.until.is_none_or(|until| now < until);
        let mut fault = None;
        let knows = &self.knows;
        let lease = self.lease;
        for old in &mut self.rights {
            let known = knows.get(old.who).is_some_and(|k| k.is_sure(now, lease))
                && !old.reclaim
                && old.until.is_none_or(|until| now < until);
            if !excludes(old, &new) {
                continue;
            }
            // An open that nobody has used for a lease after a restart is not seen by a later share reservation.
            // The new one may have been given by a former instance, whose reply is heard only now.
            if let (Kind::Open { access, deny: 0, known, .. }, Kind::Open { deny, known: anew, .. }) =
                (&mut old.kind, &new.kind)
                && *deny & *known == 0
                && (now >= since || *anew == 0)
            {
                *access = *known;
                continue;
            }
            // The same, and the reply of the first comes last.
            if let (Kind::Open { deny, .. }, Kind::Open { access, deny: 0, known: anew, .. }) =
                (&old.kind, &mut new.kind)
                && *deny & *anew == 0
                && new.at < old.at
            {
                *access = *anew;
                continue;
            }
            if known && sure && is_in_nobodys_way(&new, old) {
                continue;
            }
            if known && sure {
                fault.get_or_insert_with(|| format!("{old:?} and {new:?} exclude each other"));
            } else if known || !sure && new.at < old.at {
                // Whose lease is over does not use what a late reply brings.
                new.broken.get_or_insert_with(|| format!("{:?} of client {}", old.kind, old.who));
            } else {
                let opened = matches!(new.kind, Kind::Open { deny: 0, .. });
                old.beside_an_open = opened && (old.broken.is_none() || old.beside_an_open);
                if !opened || old.broken.is_none() {
                    old.broken = Some(format!("{:?} of client {}", new.kind, new.who));
                }
            }
        }
        if let Some(fault) = fault {
            self.fails(fault);
        }
        match self.rights.iter_mut().find(|r| same(r, &new)) {
            Some(old) => {
                let (reclaimed, broken) = (old.reclaim, old.broken.take());
                *old = new;
                old.broken = old.broken.take().or(broken.filter(|_| reclaimed));
            }
            None => self.rights.push(new),
        }
    }

    /// The client has given this up, or was told that it has lost it.
    pub(super) fn gone(&mut self, who: Who, stateid: &Stateid) {
        self.rights.retain(|r| r.who != who || r.stateid.other != stateid.other);
    }

    pub(super) fn of(&self, who: Who) -> impl Iterator<Item = &Right> {
        self.rights.iter().filter(move |r| r.who == who)
    }

    pub(super) fn find(&mut self, who: Who, stateid: &Stateid) -> Option<&mut Right> {
        self.rights.iter_mut().find(|r| r.who == who && r.stateid.other == stateid.other)
    }

    /// An owner has opened a file. A former open of that client whose owner the server does not know may have been that one's, so it ends until it is used.
    pub(super) fn may_be_unknown_again(&mut self, who: Who, file: File, mark: [u8; 4]) {
        for right in self.rights.iter_mut().filter(|r| r.who == who && r.file == file) {
            if let Kind::Open { deny: 0, known, .. } = &mut right.kind
                && right.stateid.other[..4] != mark
            {
                *known = 0;
            }
        }
    }

    /// The server begins to recall a delegation: it may revoke it a lease later.
    pub(super) fn is_recalled(&mut self, client: u64, stateid: &Stateid) {
        let until = self.now + self.lease;
        if let Some(who) = self.ids.iter().position(|id| *id == client)
            && let Some(right) = self.find(who, stateid)
        {
            right.until.get_or_insert(until);
        }
        self.recalled.push((stateid.other, until));
    }

    /// A client has used an open: now the server knows it.
    pub(super) fn used(&mut self, who: Who, stateid: &Stateid, want: Share) {
        let (mut broken, mut went_on) = (None, false);
        if let Some(right) = self.find(who, stateid)
            && let Kind::Open { access, known, .. } = &mut right.kind
        {
            went_on = *known == 0;
            *known |= want & *access;
            broken = right.broken.clone();
        }
        self.figures.went_on += u64::from(went_on);
        if let Some(broken) = broken {
            self.fails(format!("client {who} goes on with {stateid:?}, which was broken: {broken}"));
        }
    }

    /// The server has answered a client that all is as it was: nothing that it holds may have been broken.
    pub(super) fn is_told_all_is_well(&mut self, who: Who) {
        let broken = self.of(who).find(|r| !r.reclaim && r.broken.is_some()).cloned();
        if let Some(right) = broken {
            self.fails(format!("client {who} is told that all is well, but lost {right:?}"));
        }
    }
}

/// What the last instance did not know of an open is in nobody's way when it is reclaimed, until it is used: that instance may have given a share reservation beside
/// it, whose holder has not heard of the restart yet. Its use waits until nobody may reclaim any more.
fn is_in_nobodys_way(reclaimed: &Right, old: &Right) -> bool {
    let of_former = old.stateid.other[..4] != reclaimed.stateid.other[..4];
    let (Kind::Open { deny, .. }, Kind::Open { known, .. }) = (&old.kind, &reclaimed.kind) else {
        return false;
    };
    reclaimed.reclaimed && of_former && *deny & *known == 0
}

fn same(a: &Right, b: &Right) -> bool {
    if a.who != b.who || a.file != b.file {
        return false;
    }
    match (&a.kind, &b.kind) {
        (Kind::Open { owner: o, .. }, Kind::Open { owner: p, .. }) => o == p,
        (Kind::Locks { owner: o, .. }, Kind::Locks { owner: p, .. }) => o == p,
        (Kind::Delegation { .. }, Kind::Delegation { .. }) => true,
        (Kind::Names { .. }, Kind::Names { .. }) => true,
        _ => false,
    }
}
