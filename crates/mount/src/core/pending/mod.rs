//! Changes of names and attributes that programs were told are done, and that the server has not heard of. No I/O; time is an argument.
//!
//! Each directory has a lane: the changes of its names, of its own attributes and of those of its entries, in the order in which programs
//! made them. A lane is sent from its front, one COMPOUND at a time, so what the server has of a directory's names is always what it was
//! at some moment for the programs. Lanes of different directories are sent side by side.
//!
//! | a change | waits for |
//! |---|---|
//! | any | those before it in its lane |
//! | any in a directory that the server does not know | the directory's creation, in the lane above |
//! | the removal of a directory | the directory's own lane |
//! | attributes of an entry | its creation, whose reply brings the handle |
//!
//! | what is folded | into | if |
//! |---|---|---|
//! | data and attributes of a new file | its creation, outside of this module ([`super::file`]) | it is not sent |
//! | the removal of something new | nothing: both go | no other name has changed in the directory in between |
//! | a new name of something new | its creation, which gets the name | the same, and nobody has the name |
//! | attributes | attributes of the same object, of the same user, that are not sent | of a directory: nothing has changed in it in between |
//!
//! The condition of the second and third keeps the order: the server never has a later name without an earlier one.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;

use super::attrs::Set;
use super::bugs::{Bug, bug};
use super::{Ino, Time};

/// What is to be done. Names are those of the lane's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A new file. What it is like is told when it is sent.
    File {
        name: Bytes,
    },
    Dir {
        name: Bytes,
        mode: u32,
    },
    Link {
        name: Bytes,
        text: Bytes,
        set: Set,
    },
    Remove {
        name: Bytes,
        is_dir: bool,
    },
    /// `over`: what has the new name.
    Rename {
        from: Bytes,
        to: Bytes,
        over: Option<Ino>,
    },
    /// Attributes of an entry, or of the directory itself.
    Set(Set),
}

impl What {
    /// Whether it makes something new.
    pub fn makes(&self) -> bool {
        matches!(self, What::File { .. } | What::Dir { .. } | What::Link { .. })
    }

    /// The name that it gives to something.
    pub fn gives(&self) -> Option<&Bytes> {
        match self {
            What::File { name } | What::Dir { name, .. } | What::Link { name, .. } => Some(name),
            What::Rename { to, .. } => Some(to),
            What::Remove { .. } | What::Set(_) => None,
        }
    }

    /// What it takes the name from.
    pub fn replaces(&self) -> Option<Ino> {
        match self {
            What::Rename { over, .. } => *over,
            _ => None,
        }
    }

    fn is_of_names(&self) -> bool {
        !matches!(self, What::Set(_))
    }
}

/// A change. `W`: who made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<W> {
    pub number: u64,
    pub since: Time,
    pub who: W,
    /// The directory in whose lane it is.
    pub dir: Ino,
    /// The object that it is about.
    pub node: Ino,
    pub what: What,
}

#[derive(Debug)]
struct Lane<W> {
    changes: VecDeque<Change<W>>,
    /// So many at the front are on their way.
    sent: usize,
    /// Somebody waits for all up to this number.
    urgent: u64,
    /// A change has failed: those behind it may find something else under their names.
    damaged: bool,
}

impl<W> Default for Lane<W> {
    fn default() -> Lane<W> {
        Lane { changes: VecDeque::new(), sent: 0, urgent: 0, damaged: false }
    }
}

/// What has become of a change.
#[derive(Debug, PartialEq, Eq)]
pub enum Added<W> {
    Queued,
    /// Another change does it.
    Folded,
    /// Nothing is left to do. These are not sent any more.
    Cancelled(Vec<Change<W>>),
}

/// See the module.
#[derive(Debug)]
pub struct Pending<W> {
    lanes: BTreeMap<Ino, Lane<W>>,
    /// Objects that the server does not know: the lane with their creation, and its number.
    unmade: HashMap<Ino, (Ino, u64)>,
    count: usize,
    last: u64,
}

impl<W> Default for Pending<W> {
    fn default() -> Pending<W> {
        Pending { lanes: BTreeMap::new(), unmade: HashMap::new(), count: 0, last: 0 }
    }
}

impl<W: Clone + PartialEq> Pending<W> {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Changes in all lanes.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The number of the last change that was added.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// When the oldest was made.
    pub fn oldest(&self) -> Option<Time> {
        self.lanes.values().filter_map(|l| l.changes.front()).map(|c| c.since).min()
    }

    /// Directories with changes.
    pub fn dirs(&self) -> Vec<Ino> {
        self.lanes.keys().copied().collect()
    }

    /// Whether the server does not know this object yet.
    pub fn is_unmade(&self, node: Ino) -> bool {
        self.unmade.contains_key(&node)
    }

    /// The lane and number of an object's creation.
    pub fn creation(&self, node: Ino) -> Option<(Ino, u64)> {
        self.unmade.get(&node).copied()
    }

    /// Whether the lane has changes up to a number.
    pub fn has(&self, dir: Ino, upto: u64) -> bool {
        self.lanes.get(&dir).and_then(|l| l.changes.front()).is_some_and(|c| c.number <= upto)
    }

    /// The last change in a lane that is about an object.
    pub fn last_of(&self, dir: Ino, node: Ino) -> Option<u64> {
        let lane = self.lanes.get(&dir)?;
        lane.changes.iter().rev().find(|c| c.node == node).map(|c| c.number)
    }

    /// The last change in a lane of who may do what with an object.
    pub fn last_rights_of(&self, dir: Ino, node: Ino) -> Option<u64> {
        let lane = self.lanes.get(&dir)?;
        let is_it =
            |c: &&Change<W>| c.node == node && matches!(&c.what, What::Set(set) if set.changes_rights());
        lane.changes.iter().rev().find(is_it).map(|c| c.number)
    }

    /// Adds a change.
    pub fn add(&mut self, who: &W, (dir, node): (Ino, Ino), what: What, now: Time) -> Added<W> {
        let folded = match &what {
            What::Remove { .. } => self.cancel(dir, node).map(Added::Cancelled),
            What::Rename { to, over: None, .. } => self.renamed(dir, node, to).then_some(Added::Folded),
            What::Set(set) => self.set(who, dir, node, set).then_some(Added::Folded),
            _ => None,
        };
        if let Some(folded) = folded {
            return folded;
        }
        self.last += 1;
        let number = self.last;
        if what.makes() {
            self.unmade.insert(node, (dir, number));
        }
        self.count += 1;
        let change = Change { number, since: now, who: who.clone(), dir, node, what };
        let lane = self.lanes.entry(dir).or_default();
        match change.what {
            What::File { .. } if lane.sent == 0 && bug(Bug::OrderLost) => lane.changes.push_front(change),
            _ => lane.changes.push_back(change),
        }
        Added::Queued
    }

    /// The place of an object's creation in its lane, if it is not sent and nothing has happened to the lane's names since.
    fn last_name_is(&self, dir: Ino, node: Ino) -> Option<usize> {
        let lane = self.lanes.get(&dir)?;
        let is_it = |c: &Change<W>| match bug(Bug::FoldedAcross) {
            true => c.node == node && c.what.makes(),
            false => c.what.is_of_names(),
        };
        let at = lane.changes.iter().rposition(is_it)?;
        let change = lane.changes.get(at)?;
        let unsent = at >= lane.sent || bug(Bug::FoldedSent);
        (unsent && change.node == node && change.what.makes()).then_some(at)
    }

    fn cancel(&mut self, dir: Ino, node: Ino) -> Option<Vec<Change<W>>> {
        let at = self.last_name_is(dir, node)?;
        let lane = self.lanes.get_mut(&dir)?;
        debug_assert!(at >= lane.sent);
        // With its creation go attributes that another user has set.
        let all = std::mem::take(&mut lane.changes);
        let (mut gone, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|c| c.node == node);
        lane.changes = left.into();
        self.count -= gone.len();
        if lane.changes.is_empty() {
            self.lanes.remove(&dir);
        }
        self.unmade.remove(&node);
        self.drop_lane(node, &mut gone);
        Some(gone)
    }

    /// Drops all that is below a directory that will never be.
    fn drop_lane(&mut self, dir: Ino, gone: &mut Vec<Change<W>>) {
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            let changes = self.lanes.remove(&dir).map(|l| l.changes).unwrap_or_default();
            self.count -= changes.len();
            for change in changes {
                if change.what.makes() {
                    self.unmade.remove(&change.node);
                    dirs.push(change.node);
                }
                gone.push(change);
            }
        }
    }

    fn renamed(&mut self, dir: Ino, node: Ino, to: &Bytes) -> bool {
        let Some(at) = self.last_name_is(dir, node) else { return false };
        match self.lanes.get_mut(&dir).and_then(|l| l.changes.get_mut(at)).map(|c| &mut c.what) {
            Some(What::File { name } | What::Dir { name, .. } | What::Link { name, .. }) => {
                *name = to.clone();
                true
            }
            _ => false,
        }
    }

    fn set(&mut self, who: &W, dir: Ino, node: Ino, later: &Set) -> bool {
        let Some(lane) = self.lanes.get_mut(&dir) else { return false };
        let sent = lane.sent;
        let mut unsent = lane.changes.iter_mut().skip(sent).rev();
        let found = match node == dir {
            true => unsent.next().filter(|c| c.node == node),
            false => unsent.find(|c| c.node == node),
        };
        match found.filter(|c| c.who == *who).map(|c| &mut c.what) {
            Some(What::Set(set) | What::Link { set, .. }) => {
                set.then(later);
                true
            }
            _ => false,
        }
    }

    /// Has a lane sent up to a number, and what that waits for.
    pub fn urge(&mut self, dir: Ino, upto: u64) {
        let (mut dir, mut upto) = (dir, upto);
        while let Some((above, creation)) = self.urge_one(dir, upto) {
            (dir, upto) = (above, creation);
        }
    }

    fn urge_one(&mut self, dir: Ino, upto: u64) -> Option<(Ino, u64)> {
        if let Some(lane) = self.lanes.get_mut(&dir) {
            lane.urgent = lane.urgent.max(upto);
        }
        self.unmade.get(&dir).copied()
    }

    /// Lanes of which something should be sent now and can be: somebody waits for it, it is older than `age`, or `all` are to be sent. The
    /// oldest comes first.
    pub fn due(&mut self, now: Time, age: Time, all: bool) -> Vec<Ino> {
        let old = |c: &Change<W>| all || !bug(Bug::AgeForgotten) && now.saturating_sub(c.since) >= age;
        while self.urge_what_is_waited_for(old) {}
        let ready = |(dir, lane): (&Ino, &Lane<W>)| {
            let first = lane.changes.front()?;
            let due = old(first) || first.number <= lane.urgent;
            (due && lane.sent == 0 && !self.unmade.contains_key(dir)).then_some((first.number, *dir))
        };
        let mut due: Vec<(u64, Ino)> = self.lanes.iter().filter_map(ready).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, dir)| dir).collect()
    }

    /// Has what changes wait for sent as well, if they are to be sent. Returns whether that was news.
    fn urge_what_is_waited_for(&mut self, old: impl Fn(&Change<W>) -> bool) -> bool {
        let mut wanted = Vec::new();
        for (dir, lane) in &self.lanes {
            let Some(first) = lane.changes.front() else { continue };
            if !old(first) && first.number > lane.urgent {
                continue;
            }
            let upto = lane.urgent.max(first.number);
            wanted.extend(self.creation(*dir));
            for change in lane.changes.iter().take_while(|c| c.number <= upto) {
                if matches!(change.what, What::Remove { is_dir: true, .. }) {
                    wanted.push((change.node, change.number));
                }
            }
        }
        let before = |p: &Self, dir: Ino| p.lanes.get(&dir).map(|l| l.urgent);
        let news: Vec<_> = wanted
            .into_iter()
            .filter(|(dir, upto)| before(self, *dir).is_some_and(|urgent| urgent < *upto))
            .collect();
        news.iter().for_each(|(dir, upto)| self.urge(*dir, *upto));
        !news.is_empty()
    }

    /// Takes changes of one user from the front of a lane, to send them in one COMPOUND: as many as `takes` accepts. It is told whether
    /// somebody waits for the change.
    pub fn take(&mut self, dir: Ino, mut takes: impl FnMut(&Change<W>, bool) -> bool) -> Vec<Change<W>> {
        let Some(lane) = self.lanes.get(&dir) else { return Vec::new() };
        if lane.sent > 0 || self.unmade.contains_key(&dir) {
            return Vec::new();
        }
        let mut taken: Vec<Change<W>> = Vec::new();
        for change in &lane.changes {
            let waits = match &change.what {
                What::Remove { is_dir: true, .. } => {
                    self.lanes.contains_key(&change.node) && !bug(Bug::DirBeforeNames)
                }
                What::Set(_) => self.unmade.contains_key(&change.node),
                _ => false,
            };
            let same = taken.first().is_none_or(|first| first.who == change.who);
            if waits || !same || !takes(change, change.number <= lane.urgent) {
                break;
            }
            taken.push(change.clone());
        }
        if let Some(lane) = self.lanes.get_mut(&dir) {
            lane.sent = taken.len();
        }
        taken
    }

    /// The first `count` of what was taken are over, done or failed; the others wait again. Returns them as they were sent.
    pub fn settle(&mut self, dir: Ino, count: usize) -> Vec<Change<W>> {
        let Some(lane) = self.lanes.get_mut(&dir) else { return Vec::new() };
        let count = count.min(lane.sent);
        lane.sent = 0;
        let over: Vec<Change<W>> = lane.changes.drain(..count).collect();
        if lane.changes.is_empty() {
            self.lanes.remove(&dir);
        }
        self.count -= over.len();
        for change in over.iter().filter(|c| c.what.makes()) {
            self.unmade.remove(&change.node);
        }
        over
    }

    /// A change in a lane has failed.
    pub fn damage(&mut self, dir: Ino) {
        if let Some(lane) = self.lanes.get_mut(&dir) {
            lane.damaged = !bug(Bug::DamageIgnored);
        }
    }

    /// Whether a change has failed before those that wait in a lane: each of them is sent after a look at its names.
    pub fn is_damaged(&self, dir: Ino) -> bool {
        self.lanes.get(&dir).is_some_and(|lane| lane.damaged)
    }

    /// The data of a file is lost: it does not get the name of another one. Returns what is not sent any more.
    pub fn drop_renames(&mut self, dir: Ino, node: Ino) -> Vec<Change<W>> {
        self.drop_unsent(dir, |c| c.node == node && matches!(c.what, What::Rename { .. }))
    }

    /// An object could not be made: its attributes cannot be set. Returns what is not sent any more.
    pub fn drop_sets(&mut self, dir: Ino, node: Ino) -> Vec<Change<W>> {
        self.drop_unsent(dir, |c| c.node == node && matches!(c.what, What::Set(_)))
    }

    fn drop_unsent(&mut self, dir: Ino, is: impl Fn(&Change<W>) -> bool) -> Vec<Change<W>> {
        let Some(lane) = self.lanes.get_mut(&dir) else { return Vec::new() };
        let unsent = lane.changes.split_off(lane.sent);
        let (gone, left): (Vec<_>, Vec<_>) = unsent.into_iter().partition(is);
        lane.changes.extend(left);
        self.count -= gone.len();
        if lane.changes.is_empty() {
            self.lanes.remove(&dir);
        }
        gone
    }

    /// A directory could not be made: nothing in it can be done. Returns all that is not sent any more.
    pub fn abandon(&mut self, dir: Ino) -> Vec<Change<W>> {
        let mut gone = Vec::new();
        self.unmade.remove(&dir);
        self.drop_lane(dir, &mut gone);
        gone
    }
}

#[cfg(test)]
mod tests;
