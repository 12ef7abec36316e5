//! Random programs on a tree of directories, sent in random portions to a server that is a model, too.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;

use super::*;

const TOP: Ino = 1;

/// An object as programs or the server have it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Object {
    mode: u32,
    content: Vec<u8>,
    names: Option<BTreeMap<Bytes, Ino>>,
}

type World = HashMap<Ino, Object>;

#[derive(Debug, Clone)]
enum Do {
    File(u8, u8),
    Dir(u8, u8),
    Link(u8, u8),
    Write(u8),
    Remove(u8, u8),
    Rename(u8, u8, u8),
    Chmod(u8, u32, u8),
    /// Sends a COMPOUND of one of the lanes that are due, of which so many changes are executed.
    Send(u8, u8, u8),
    /// Somebody waits for a directory.
    Urge(u8),
}

fn what() -> impl Strategy<Value = Do> {
    let dir = || 0..4u8;
    let name = || 0..3u8;
    prop_oneof![
        4 => (dir(), name()).prop_map(|(d, n)| Do::File(d, n)),
        2 => (dir(), name()).prop_map(|(d, n)| Do::Dir(d, n)),
        1 => (dir(), name()).prop_map(|(d, n)| Do::Link(d, n)),
        2 => any::<u8>().prop_map(Do::Write),
        3 => (dir(), name()).prop_map(|(d, n)| Do::Remove(d, n)),
        3 => (dir(), name(), name()).prop_map(|(d, n, m)| Do::Rename(d, n, m)),
        2 => (any::<u8>(), 0..0o1000u32, 0..2u8).prop_map(|(o, m, w)| Do::Chmod(o, m, w)),
        3 => (any::<u8>(), any::<u8>(), 1..6u8).prop_map(|(l, done, most)| Do::Send(l, done, most)),
        1 => dir().prop_map(Do::Urge),
    ]
}

fn name(n: u8) -> Bytes {
    Bytes::from(vec![b'a' + n])
}

/// Programs, the changes on their way, and the server.
struct Rig {
    ours: World,
    theirs: World,
    pending: Pending<u8>,
    /// All that a directory has been for the programs, and how far the server is at least.
    history: HashMap<Ino, (Vec<BTreeMap<Bytes, Ino>>, usize)>,
    next: Ino,
    clock: u64,
}

impl Rig {
    fn new() -> Rig {
        let top = Object { names: Some(BTreeMap::new()), ..Object::default() };
        let world: World = [(TOP, top)].into();
        let history = [(TOP, (vec![BTreeMap::new()], 0))].into();
        Rig { ours: world.clone(), theirs: world, pending: Pending::default(), history, next: TOP, clock: 0 }
    }

    fn dirs(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> =
            self.ours.iter().filter(|(_, o)| o.names.is_some()).map(|(i, _)| *i).collect();
        all.sort_unstable();
        all
    }

    fn dir(&self, n: u8) -> Ino {
        let all = self.dirs();
        all[n as usize % all.len()]
    }

    fn names(&mut self, dir: Ino) -> &mut BTreeMap<Bytes, Ino> {
        self.ours.get_mut(&dir).and_then(|o| o.names.as_mut()).expect("a directory")
    }

    fn noted(&mut self, dir: Ino) {
        let names = self.names(dir).clone();
        self.history.get_mut(&dir).expect("a directory").0.push(names);
    }

    fn add(&mut self, who: u8, dir: Ino, node: Ino, what: What) {
        self.clock += 1;
        self.pending.add(&who, (dir, node), what, Time::from_secs(self.clock));
    }

    fn make(&mut self, d: u8, n: u8, object: Object, what: impl Fn(Bytes) -> What) {
        let (dir, name) = (self.dir(d), name(n));
        if self.names(dir).contains_key(&name) {
            return;
        }
        self.next += 1;
        let node = self.next;
        if object.names.is_some() {
            self.history.insert(node, (vec![BTreeMap::new()], 0));
        }
        self.ours.insert(node, object);
        self.names(dir).insert(name.clone(), node);
        self.noted(dir);
        self.add(0, dir, node, what(name));
    }

    /// The directory of an object that has a name, and the object.
    fn named(&self, n: u8) -> Option<(Ino, Ino)> {
        let dirs = self.dirs();
        let all: Vec<(Ino, Ino)> = dirs
            .iter()
            .flat_map(|d| self.ours[d].names.iter().flatten().map(|(_, node)| (*d, *node)))
            .collect();
        (!all.is_empty()).then(|| all[n as usize % all.len()])
    }

    fn act(&mut self, what: Do) {
        match what {
            Do::File(d, n) => {
                let object = Object { content: vec![0], ..Object::default() };
                self.make(d, n, object, |name| What::File { name });
            }
            Do::Dir(d, n) => {
                let object = Object { names: Some(BTreeMap::new()), ..Object::default() };
                self.make(d, n, object, |name| What::Dir { name, mode: 0 });
            }
            Do::Link(d, n) => {
                let text = Bytes::from_static(b"text");
                let object = Object { content: text.to_vec(), ..Object::default() };
                self.make(d, n, object, |name| What::Link { name, text: text.clone(), set: Set::default() });
            }
            Do::Write(n) => {
                // A new file that is not sent: later ones are not this module's.
                let file = self.named(n).filter(|(_, node)| {
                    let is_file = self.ours[node].names.is_none() && self.ours[node].content[0] == 0;
                    let lane = self.pending.creation(*node).and_then(|(d, _)| self.pending.lanes.get(&d));
                    is_file && lane.is_some_and(|l| l.changes.iter().skip(l.sent).any(|c| c.node == *node))
                });
                if let Some((_, node)) = file {
                    self.ours.get_mut(&node).expect("a file").content.push(n);
                }
            }
            Do::Remove(d, n) => {
                let (dir, name) = (self.dir(d), name(n));
                let Some(node) = self.names(dir).get(&name).copied() else { return };
                let is_dir = match &self.ours[&node].names {
                    Some(names) if !names.is_empty() => return,
                    names => names.is_some(),
                };
                self.names(dir).remove(&name);
                self.noted(dir);
                self.add(0, dir, node, What::Remove { name, is_dir });
                self.ours.remove(&node);
            }
            Do::Rename(d, from, to) => {
                let (dir, from, to) = (self.dir(d), name(from), name(to));
                let Some(node) = self.names(dir).get(&from).copied() else { return };
                let over = self.names(dir).get(&to).copied();
                let file = |rig: &Rig, node: &Ino| rig.ours[node].names.is_none();
                if from == to || over.is_some_and(|o| !file(self, &o)) || over.is_some() && !file(self, &node)
                {
                    return;
                }
                self.names(dir).remove(&from);
                self.names(dir).insert(to.clone(), node);
                self.noted(dir);
                if let Some(over) = over {
                    self.ours.remove(&over);
                }
                self.add(0, dir, node, What::Rename { from, to, over });
            }
            Do::Chmod(n, mode, who) => {
                let Some((above, node)) = self.named(n) else { return };
                self.ours.get_mut(&node).expect("an object").mode = mode;
                let lane = if self.ours[&node].names.is_some() { node } else { above };
                self.add(who, lane, node, What::Set(Set { mode: Some(mode), ..Set::default() }));
            }
            Do::Send(lane, done, most) => self.send(lane, done, most),
            Do::Urge(d) => {
                let (dir, last) = (self.dir(d), self.pending.last());
                self.pending.urge(dir, last);
            }
        }
    }

    fn send(&mut self, lane: u8, done: u8, most: u8) {
        let now = Time::from_secs(self.clock);
        let due = self.pending.due(now, Time::from_secs(5), false);
        if !due.is_empty() {
            let dir = due[lane as usize % due.len()];
            self.send_of(dir, most.into(), |taken| done as usize % (taken + 1));
        }
    }

    /// Sends at most `most` changes of a lane, of which so many as `done` says are executed.
    fn send_of(&mut self, dir: Ino, most: usize, done: impl Fn(usize) -> usize) -> usize {
        let mut count = 0;
        let taken = self.pending.take(dir, |_, _| {
            count += 1;
            count <= most
        });
        let executed = done(taken.len());
        for change in &taken[..executed] {
            self.execute(change);
            self.check();
        }
        assert_eq!(self.pending.settle(dir, executed), taken[..executed]);
        executed
    }

    fn execute(&mut self, change: &Change<u8>) {
        let Change { dir, node, .. } = *change;
        let made = |rig: &Rig, fallback: Object| rig.ours.get(&node).cloned().unwrap_or(fallback);
        let object = match &change.what {
            What::File { .. } => {
                let content = made(self, Object { content: vec![0], ..Object::default() }).content;
                Some(Object { content, ..Object::default() })
            }
            What::Dir { .. } => Some(Object { names: Some(BTreeMap::new()), ..Object::default() }),
            What::Link { text, set, .. } => Some(Object {
                mode: set.mode.unwrap_or_default(),
                content: text.to_vec(),
                ..Object::default()
            }),
            _ => None,
        };
        if let Some(object) = object {
            assert!(self.theirs.insert(node, object).is_none(), "made twice");
        }
        let names = self.theirs.get_mut(&dir).and_then(|o| o.names.as_mut());
        match &change.what {
            What::File { name } | What::Dir { name, .. } | What::Link { name, .. } => {
                let names = names.expect("its directory is there");
                assert!(names.insert(name.clone(), node).is_none(), "the name is taken");
            }
            What::Remove { name, is_dir } => {
                assert_eq!(names.expect("its directory is there").remove(name), Some(node));
                let gone = self.theirs.remove(&node).expect("it is there");
                assert_eq!(gone.names.is_some(), *is_dir);
                assert!(gone.names.is_none_or(|n| n.is_empty()), "a directory that is not empty");
            }
            What::Rename { from, to, .. } => {
                let names = names.expect("its directory is there");
                assert_eq!(names.remove(from), Some(node));
                if let Some(over) = names.insert(to.clone(), node) {
                    self.theirs.remove(&over);
                }
            }
            What::Set(set) => {
                let object = self.theirs.get_mut(&node).expect("it is there");
                object.mode = set.mode.unwrap_or(object.mode);
            }
        }
    }

    /// Each directory is, on the server, what it once was for the programs, and never goes back; each name leads to whole content.
    fn check(&mut self) {
        for (dir, object) in &self.theirs {
            let Some(names) = &object.names else { continue };
            let (states, least) = self.history.get_mut(dir).expect("a directory");
            let found = states[*least..].iter().position(|state| state == names);
            let found = found.unwrap_or_else(|| panic!("{names:?} of {dir} is none of {states:?}"));
            *least += found;
            for node in names.values() {
                let there = self.theirs.get(node);
                assert!(there.is_some_and(|o| o.names.is_some() || !o.content.is_empty()));
            }
        }
    }

    /// All is sent.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            let due = self.pending.due(Time::from_secs(self.clock), Time::ZERO, true);
            if due.is_empty() {
                break;
            }
            for dir in due {
                assert!(self.send_of(dir, 3, |taken| taken) <= 3);
            }
        }
        assert!(self.pending.is_empty() && self.pending.lanes.is_empty() && self.pending.unmade.is_empty());
        let reached = reached(&self.ours);
        assert_eq!(reached, reached_all(&self.theirs));
        for node in reached {
            assert_eq!(self.ours[&node], self.theirs[&node]);
        }
    }
}

fn reached(world: &World) -> HashSet<Ino> {
    let (mut found, mut next) = (HashSet::new(), vec![TOP]);
    while let Some(node) = next.pop() {
        if found.insert(node) {
            next.extend(world[&node].names.iter().flatten().map(|(_, n)| *n));
        }
    }
    found
}

/// Everything that the server has, has a name.
fn reached_all(world: &World) -> HashSet<Ino> {
    assert_eq!(reached(world), world.keys().copied().collect());
    reached(world)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_server_has_a_prefix_of_each_directory_and_all_of_it_at_last(all in proptest::collection::vec(what(), 0..60)) {
        let mut rig = Rig::new();
        for what in all {
            rig.act(what);
            rig.check();
        }
        rig.finish();
    }
}

fn file(n: u8) -> What {
    What::File { name: name(n) }
}

fn remove(n: u8) -> What {
    What::Remove { name: name(n), is_dir: false }
}

fn pending() -> Pending<u8> {
    Pending::default()
}

fn add(p: &mut Pending<u8>, node: Ino, what: What) -> Added<u8> {
    p.add(&0, (TOP, node), what, Time::ZERO)
}

fn sent(p: &mut Pending<u8>, dir: Ino) -> Vec<What> {
    let taken = p.take(dir, |_, _| true);
    p.settle(dir, taken.len());
    taken.into_iter().map(|c| c.what).collect()
}

#[test]
fn what_is_removed_before_it_was_sent_is_never_made() {
    let mut p = pending();
    add(&mut p, 2, file(0));
    assert!(matches!(add(&mut p, 2, remove(0)), Added::Cancelled(gone) if gone.len() == 1));
    assert!(p.is_empty() && !p.is_unmade(2));
    // With another name in between, which would be seen without the first, both are sent.
    add(&mut p, 3, file(0));
    add(&mut p, 4, file(1));
    assert_eq!(add(&mut p, 3, remove(0)), Added::Queued);
    assert_eq!(sent(&mut p, TOP), [file(0), file(1), remove(0)]);
}

#[test]
fn a_new_directory_that_is_removed_takes_all_below_it_along() {
    let mut p = pending();
    add(&mut p, 2, What::Dir { name: name(0), mode: 0 });
    for what in [file(0), file(1)] {
        let node = if what == file(0) { 3 } else { 4 };
        p.add(&0, (2, node), what, Time::ZERO);
    }
    p.add(&0, (2, 3), remove(0), Time::ZERO);
    p.add(&0, (2, 4), remove(1), Time::ZERO);
    let gone = add(&mut p, 2, What::Remove { name: name(0), is_dir: true });
    // The second file goes with its removal.
    assert!(matches!(gone, Added::Cancelled(gone) if gone.len() >= 3));
    assert!(p.is_empty() && p.lanes.is_empty() && p.unmade.is_empty());
}

#[test]
fn a_new_file_is_made_under_its_last_name_if_nobody_has_that() {
    let mut p = pending();
    add(&mut p, 2, file(0));
    let to = |n, over| What::Rename { from: name(0), to: name(n), over };
    assert_eq!(add(&mut p, 2, to(1, None)), Added::Folded);
    assert_eq!(sent(&mut p, TOP), [file(1)]);
    add(&mut p, 3, file(0));
    assert_eq!(add(&mut p, 3, to(1, Some(2))), Added::Queued);
    assert_eq!(sent(&mut p, TOP), [file(0), to(1, Some(2))]);
}

#[test]
fn of_attributes_the_last_are_sent_and_each_in_the_name_of_its_user() {
    let mut p = pending();
    let mode = |m| What::Set(Set { mode: Some(m), ..Set::default() });
    add(&mut p, 9, mode(1));
    assert_eq!(add(&mut p, 9, mode(2)), Added::Folded);
    assert_eq!(p.add(&1, (TOP, 9), mode(3), Time::ZERO), Added::Queued);
    assert_eq!(sent(&mut p, TOP), [mode(2)]);
    assert_eq!(sent(&mut p, TOP), [mode(3)]);
    // Of the directory itself: a name in between moves its times.
    add(&mut p, TOP, mode(1));
    add(&mut p, 2, file(0));
    assert_eq!(add(&mut p, TOP, mode(2)), Added::Queued);
    assert_eq!(sent(&mut p, TOP), [mode(1), file(0), mode(2)]);
}

#[test]
fn what_is_sent_is_not_changed_any_more() {
    let mut p = pending();
    add(&mut p, 2, file(0));
    assert_eq!(p.take(TOP, |_, _| true).len(), 1);
    assert_eq!(add(&mut p, 2, remove(0)), Added::Queued);
    assert!(p.take(TOP, |_, _| true).is_empty(), "one COMPOUND of a directory at a time");
    p.settle(TOP, 0);
    assert_eq!(sent(&mut p, TOP), [file(0), remove(0)]);
}

#[test]
fn a_directory_waits_for_its_creation_and_its_removal_for_its_entries() {
    let mut p = pending();
    add(&mut p, 2, What::Dir { name: name(0), mode: 0 });
    p.add(&0, (2, 3), file(0), Time::from_secs(9));
    // Somebody waits for what is in it.
    p.urge(2, p.last());
    assert_eq!(p.due(Time::ZERO, Time::from_secs(60), false), [TOP]);
    assert!(p.take(2, |_, _| true).is_empty());
    assert_eq!(sent(&mut p, TOP).len(), 1);
    p.add(&0, (2, 5), file(1), Time::from_secs(9));
    p.add(&0, (2, 3), remove(0), Time::from_secs(9));
    p.add(&0, (2, 5), remove(1), Time::from_secs(9));
    add(&mut p, 4, file(1));
    add(&mut p, 2, What::Remove { name: name(0), is_dir: true });
    assert_eq!(sent(&mut p, TOP), [file(1)]);
    p.urge(TOP, p.last());
    let due = |p: &mut Pending<u8>| p.due(Time::ZERO, Time::from_secs(60), false);
    assert_eq!(due(&mut p), [2, TOP]);
    assert!(sent(&mut p, TOP).is_empty());
    assert_eq!(sent(&mut p, 2), [file(0), file(1), remove(0), remove(1)]);
    assert_eq!(due(&mut p), [TOP]);
    assert_eq!(sent(&mut p, TOP).len(), 1);
    assert!(p.is_empty());
}

#[test]
fn what_is_in_a_directory_that_cannot_be_made_is_given_up() {
    let mut p = pending();
    add(&mut p, 2, What::Dir { name: name(0), mode: 0 });
    p.add(&0, (2, 3), file(0), Time::ZERO);
    let taken = p.take(TOP, |_, _| true);
    p.settle(TOP, taken.len());
    assert_eq!(p.abandon(2).len(), 1);
    assert!(p.is_empty());
}

#[test]
fn attributes_of_what_cannot_be_made_are_given_up() {
    let mut p = pending();
    let mode = || What::Set(Set { mode: Some(1), ..Set::default() });
    add(&mut p, 2, What::Link { name: name(0), text: Bytes::from_static(b"text"), set: Set::default() });
    let taken = p.take(TOP, |_, _| true);
    // It is on its way, so they are a change of their own.
    assert_eq!(add(&mut p, 2, mode()), Added::Queued);
    add(&mut p, 3, file(1));
    p.settle(TOP, taken.len());
    let gone = p.drop_sets(TOP, 2);
    assert_eq!(gone.into_iter().map(|c| c.what).collect::<Vec<_>>(), [mode()]);
    assert_eq!((p.len(), sent(&mut p, TOP)), (1, vec![file(1)]));
    assert!(p.is_empty() && p.lanes.is_empty());
    // What is under way is not taken from under it.
    add(&mut p, 3, mode());
    assert_eq!(p.take(TOP, |_, _| true).len(), 1);
    assert!(p.drop_sets(TOP, 3).is_empty() && p.len() == 1);
}

#[test]
fn what_waits_behind_a_failed_change_is_looked_at() {
    let mut p = pending();
    let rename = |from, to, over| What::Rename { from: name(from), to: name(to), over };
    add(&mut p, 2, rename(0, 1, None));
    add(&mut p, 3, rename(2, 0, None));
    let taken = p.take(TOP, |_, _| true);
    assert!(taken.len() == 2 && !p.is_damaged(TOP));
    // The first has failed.
    p.settle(TOP, 1);
    p.damage(TOP);
    assert!(p.is_damaged(TOP));
    assert_eq!(sent(&mut p, TOP), [rename(2, 0, None)]);
    assert!(!p.is_damaged(TOP));
    // Nothing is behind it.
    p.damage(TOP);
    add(&mut p, 4, file(4));
    assert!(!p.is_damaged(TOP));
}

#[test]
fn a_file_that_lost_its_data_replaces_no_other() {
    let mut p = pending();
    let over = What::Rename { from: name(0), to: name(1), over: Some(9) };
    add(&mut p, 2, over.clone());
    add(&mut p, 3, file(2));
    let gone = p.drop_renames(TOP, 2);
    assert_eq!(gone.into_iter().map(|c| c.what).collect::<Vec<_>>(), [over]);
    assert_eq!((p.len(), sent(&mut p, TOP)), (1, vec![file(2)]));
}
