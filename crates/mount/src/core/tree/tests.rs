use std::collections::BTreeMap;

use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{FileType, Fsid};
use proptest::prelude::*;

use super::*;

const AGE: Time = Time::from_secs(1);
const DIR_AGE: Time = Time::from_secs(30);

fn attrs(kind: FileType, fileid: u64, change: u64) -> Attrs {
    let values = AttrValues {
        kind: Some(kind),
        fileid: Some(fileid),
        change: Some(change),
        fsid: Some(Fsid::default()),
        ..AttrValues::default()
    };
    Attrs::of(&values, |_, _| 0).unwrap()
}

fn handle(n: u64) -> FileHandle {
    FileHandle(Bytes::from(n.to_string()))
}

fn name(n: u8) -> Bytes {
    Bytes::from(format!("n{n}"))
}

fn tree() -> Tree<()> {
    Tree::new(handle(100), attrs(FileType::Dir, 100, 0), Time::ZERO, Ages { files: AGE, dirs: DIR_AGE })
}

/// A directory of the server: names, and what they lead to.
#[derive(Debug, Clone, Default, PartialEq)]
struct Server {
    names: BTreeMap<u8, u64>,
    change: u64,
    objects: u64,
}

impl Server {
    /// Makes the name, or removes it if it is there. What the change attribute was before and is now.
    fn toggle(&mut self, n: u8) -> ChangeInfo {
        let before = self.change;
        if self.names.remove(&n).is_none() {
            self.objects += 1;
            self.names.insert(n, 200 + self.objects);
        }
        self.change += 1;
        ChangeInfo { atomic: true, before, after: self.change }
    }

    fn found(&self, n: u8) -> Option<(FileHandle, Attrs)> {
        self.names.get(&n).map(|id| (handle(*id), attrs(FileType::Reg, *id, 1)))
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// This mount makes or removes a name.
    Ours(u8),
    /// Somebody else does.
    Theirs(u8),
    LookUp(u8),
    List,
    /// The directory's attributes are asked for.
    Look,
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..5u8).prop_map(Event::Ours),
        1 => (0..5u8).prop_map(Event::Theirs),
        2 => (0..5u8).prop_map(Event::LookUp),
        1 => Just(Event::List),
        1 => Just(Event::Look),
        3 => (1..700u64).prop_map(Event::Wait),
    ]
}

proptest! {
    #[test]
    fn an_answer_from_memory_was_true_at_the_server_a_short_while_ago(events in proptest::collection::vec(event(), 1..60)) {
        let (mut tree, mut server, mut now) = (tree(), Server::default(), Time::ZERO);
        let mut history: Vec<(Time, Server)> = vec![(now, server.clone())];
        for event in events {
            now += Time::from_millis(1);
            match event {
                Event::Ours(n) => {
                    tree.begin(ROOT);
                    let change = server.toggle(n);
                    let found = server.found(n);
                    tree.end(ROOT, Some((Some(change), Some(attrs(FileType::Dir, 100, server.change)))), now, now);
                    let ino = found.map(|(h, a)| tree.node(&h, a, now));
                    tree.named(ROOT, &name(n), ino);
                }
                Event::Theirs(n) => drop(server.toggle(n)),
                Event::LookUp(n) => {
                    let changes = tree.changes(ROOT);
                    tree.looked_up(ROOT, &name(n), (server.change, now, changes), server.found(n));
                }
                Event::List => {
                    let changes = tree.changes(ROOT);
                    let names = server.names.keys().map(|n| {
                        let (h, a) = server.found(*n).unwrap();
                        (name(*n), Some(tree.node(&h, a, now)))
                    });
                    let names = names.collect();
                    tree.listed(ROOT, Listing { change: server.change, asked: now, changes, names });
                }
                Event::Look => tree.learn(ROOT, attrs(FileType::Dir, 100, server.change), now),
                Event::Wait(ms) => now += Time::from_millis(ms),
            }
            history.push((now, server.clone()));
            for n in 0..5 {
                let said = match tree.lookup(ROOT, &name(n), now) {
                    Found::Ask => continue,
                    Found::Nobody => None,
                    Found::Node(ino) => tree.get(ino).unwrap().handle.clone(),
                };
                let begin = now.saturating_sub(AGE);
                let first = history.iter().rposition(|(at, _)| *at <= begin).unwrap_or(0);
                let was = history[first..].iter().any(|(_, s)| s.found(n).map(|f| f.0) == said);
                prop_assert!(was, "{n}: {said:?} at {now:?}");
            }
            let counted: usize = tree.nodes.values().filter_map(|n| n.dir.as_ref()).map(|d| d.names.len()).sum();
            prop_assert_eq!(tree.names(), counted);
        }
    }
}

#[test]
fn all_names_of_a_directory_made_here_are_known() {
    let mut tree = tree();
    let dir = tree.node(&handle(5), attrs(FileType::Dir, 5, 1), Time::ZERO);
    tree.made_dir(dir, Time::ZERO);
    assert_eq!(tree.lookup(dir, b"x", Time::ZERO), Found::Nobody);
    assert_eq!(tree.lookup(dir, b"x", AGE), Found::Ask);
    // A change of ours shows that nobody else has made one.
    tree.begin(dir);
    let info = ChangeInfo { atomic: true, before: 1, after: 2 };
    tree.end(dir, Some((Some(info), None)), AGE, AGE);
    assert_eq!(tree.lookup(dir, b"x", AGE), Found::Nobody);
}

#[test]
fn a_way_to_a_directory_is_remembered_for_longer_than_a_file() {
    let mut tree = tree();
    let changes = tree.changes(ROOT);
    for (n, kind) in [(1, FileType::Dir), (2, FileType::Reg)] {
        let found = Some((handle(n.into()), attrs(kind, n.into(), 1)));
        tree.looked_up(ROOT, &name(n), (0, Time::ZERO, changes), found);
    }
    let later = AGE + Time::from_millis(1);
    assert!(matches!(tree.lookup(ROOT, b"n1", later), Found::Node(_)));
    assert_eq!(tree.lookup(ROOT, b"n2", later), Found::Ask);
    assert_eq!(tree.lookup(ROOT, b"n1", DIR_AGE), Found::Ask);
    // Somebody else changes the directory: then nothing of it is known.
    tree.learn(ROOT, attrs(FileType::Dir, 100, 9), later);
    assert_eq!(tree.lookup(ROOT, b"n1", later), Found::Ask);
}

#[test]
fn a_held_file_is_there_until_it_is_made_and_then_still() {
    let mut tree = tree();
    tree.begin(ROOT);
    let ino = tree.hold(ROOT, &name(1), attrs(FileType::Reg, 0, 0), Arc::new(()), Time::ZERO);
    assert!(ino > LOCAL);
    assert_eq!(tree.lookup(ROOT, b"n1", Time::from_secs(99)), Found::Node(ino));
    tree.forget(ino, 1);
    assert!(tree.get(ino).is_some(), "it is on its way");
    tree.made(ino, handle(7), Some(attrs(FileType::Reg, 7, 1)), Time::ZERO);
    assert!(tree.held_in(ROOT).is_empty());
    assert_eq!(tree.node(&handle(7), attrs(FileType::Reg, 7, 1), Time::ZERO), ino, "it keeps its number");
    tree.get_mut(ino).unwrap().file = None;
    tree.unpin(ino);
    assert!(tree.get(ino).is_none());
}

#[test]
fn an_old_reply_changes_nothing() {
    let mut tree = tree();
    let at = Time::from_millis;
    let ino = tree.node(&handle(5), attrs(FileType::Reg, 5, 1), at(10));
    tree.changed_since(at(25), ino, Some(attrs(FileType::Reg, 5, 3)), at(30));
    tree.learn(ino, attrs(FileType::Reg, 5, 2), at(20));
    assert_eq!(tree.get(ino).unwrap().attrs.change, 3);
    tree.learn(ino, attrs(FileType::Reg, 5, 4), at(40));
    assert_eq!(tree.get(ino).unwrap().attrs.change, 4);
}

#[test]
fn attributes_after_changes_that_were_under_way_together_are_asked_for() {
    let mut tree = tree();
    let at = Time::from_millis;
    let after = |change| Some((None, Some(attrs(FileType::Dir, 100, change))));
    tree.begin(ROOT);
    tree.end(ROOT, after(1), at(0), at(10));
    assert_eq!(tree.fresh(ROOT, at(20)).unwrap().change, 1);
    // Sent at 20 and at 30; the server did the second one first, or its reply came first.
    tree.begin(ROOT);
    tree.changed_since(at(30), ROOT, Some(attrs(FileType::Dir, 100, 3)), at(40));
    tree.end(ROOT, after(2), at(20), at(50));
    assert_eq!(tree.fresh(ROOT, at(60)), None);
    tree.learn(ROOT, attrs(FileType::Dir, 100, 3), at(60));
    assert_eq!(tree.fresh(ROOT, at(70)).unwrap().change, 3);
}

#[test]
fn two_objects_of_one_number_are_two_nodes() {
    let mut tree = tree();
    let one = tree.node(&handle(5), attrs(FileType::Reg, 5, 1), Time::ZERO);
    let two = tree.node(&handle(6), attrs(FileType::Reg, 5, 1), Time::ZERO);
    let top = tree.node(&handle(7), attrs(FileType::Reg, ROOT, 1), Time::ZERO);
    assert_eq!(one, 5);
    assert!(two > LOCAL && top > LOCAL && two != top);
}

#[test]
fn paths_are_shown_as_far_as_they_are_known() {
    let mut tree = tree();
    let dir = tree.node(&handle(5), attrs(FileType::Dir, 5, 1), Time::ZERO);
    tree.get_mut(dir).unwrap().place = Some((ROOT, name(1)));
    let file = tree.node(&handle(6), attrs(FileType::Reg, 6, 1), Time::ZERO);
    tree.get_mut(file).unwrap().place = Some((dir, name(2)));
    assert_eq!(tree.path(file), "n1/n2");
    // Two that are in each other, as a false reply may say.
    tree.get_mut(dir).unwrap().place = Some((file, name(1)));
    assert_eq!(tree.path(file), "n1/n2");
}

#[test]
fn of_listed_nodes_the_last_ones_are_kept_and_those_that_somebody_refers_to() {
    let mut tree = tree();
    let first = 1000;
    let more = 10;
    for n in first..first + LISTED_NODES_MAX as u64 + more {
        let ino = tree.node(&handle(n), attrs(FileType::Reg, n, 1), Time::ZERO);
        tree.is_listed(ino);
        // Listed again, it does not count twice.
        tree.is_listed(ino);
        if n == first {
            tree.refer(ino);
        }
    }
    // The top, and the one that the kernel has.
    assert_eq!(tree.len(), LISTED_NODES_MAX + 2);
    assert!(tree.get(first).is_some() && tree.get(first + 1).is_none() && tree.get(first + more).is_some());
    tree.forget(first, 1);
    assert!(tree.get(first).is_none());
}

#[test]
fn a_new_file_that_a_listing_showed_before_its_reply_came_has_one_node() {
    let mut t = tree();
    let ino = t.hold(ROOT, &name(1), attrs(FileType::Reg, 0, 0), Arc::new(()), Time::ZERO);
    let listed = t.node(&handle(7), attrs(FileType::Reg, 7, 1), Time::ZERO);
    assert_ne!(listed, ino);
    t.made(ino, handle(7), Some(attrs(FileType::Reg, 7, 2)), Time::ZERO);
    assert_eq!(t.node(&handle(7), attrs(FileType::Reg, 7, 2), Time::ZERO), ino);
    // The kernel forgets the other one, which takes nothing with it.
    t.forget(listed, 0);
    assert!(t.get(listed).is_none());
    assert_eq!(t.node(&handle(7), attrs(FileType::Reg, 7, 2), Time::ZERO), ino);
}

#[test]
fn a_node_that_is_open_keeps_its_handle() {
    let mut t = tree();
    let ino = t.hold(ROOT, &name(1), attrs(FileType::Reg, 0, 0), Arc::new(()), Time::ZERO);
    let open = t.node(&handle(7), attrs(FileType::Reg, 7, 1), Time::ZERO);
    t.get_mut(open).unwrap().file = Some(Arc::new(()));
    t.made(ino, handle(7), Some(attrs(FileType::Reg, 7, 2)), Time::ZERO);
    assert_eq!(t.node(&handle(7), attrs(FileType::Reg, 7, 2), Time::ZERO), open);
}

#[test]
fn of_too_many_nodes_the_oldest_files_that_are_not_open_are_given_back() {
    let mut t = tree();
    let add = |t: &mut Tree<()>, n: u64, kind: FileType, asked: u64| {
        let ino = t.node(&handle(n), attrs(kind, n, 1), Time::from_secs(asked));
        t.get_mut(ino).unwrap().place = Some((ROOT, Bytes::from(n.to_string())));
        t.refer(ino);
        ino
    };
    // The oldest of all, but a directory, and a file that is open.
    add(&mut t, 1000, FileType::Dir, 0);
    let open = add(&mut t, 1001, FileType::Reg, 0);
    t.get_mut(open).unwrap().file = Some(Arc::new(()));
    let files = 2000..2000 + NODES_MAX as u64 - 3;
    for n in files.clone() {
        add(&mut t, n, FileType::Reg, n);
    }
    assert_eq!((t.len(), t.surplus().len()), (NODES_MAX, 0));
    // Nobody in the kernel knows it.
    t.node(&handle(999), attrs(FileType::Reg, 999, 1), Time::ZERO);
    let names: HashSet<_> = t.surplus().into_iter().collect();
    let oldest = files.take(NODES_GIVEN_BACK + 1).map(|n| (ROOT, Bytes::from(n.to_string())));
    assert!(names == oldest.collect::<HashSet<_>>());
}

fn of_size(size: u64) -> Attrs {
    Attrs { size, ..attrs(FileType::Reg, 5, size) }
}

#[test]
fn a_reply_tells_the_size_of_a_file_of_which_the_server_has_not_heard_all() {
    let mut tree = tree();
    let at = Time::from_millis;
    let ino = tree.node(&handle(5), of_size(1), at(10));
    let size = |tree: &Tree<()>| tree.get(ino).unwrap().attrs.size;
    tree.get_mut(ino).unwrap().attrs.mode = 0o600;
    tree.pin(ino);
    // A rename waits, and a WRITE is answered.
    tree.owe(ino, at(20));
    tree.changed(ino, Some(of_size(2)), at(30));
    assert_eq!((size(&tree), tree.get(ino).unwrap().attrs.mode), (2, 0o600));
    // What was asked before the WRITE says nothing new; what was asked behind it does.
    tree.learn(ino, of_size(1), at(25));
    assert_eq!(size(&tree), 2);
    tree.learn(ino, of_size(3), at(35));
    assert_eq!((size(&tree), tree.get(ino).unwrap().attrs.mode), (3, 0o600));
}

#[test]
fn attributes_that_were_set_before_a_write_do_not_bring_the_size_before_it() {
    let mut tree = tree();
    let at = Time::from_millis;
    let ino = tree.node(&handle(5), of_size(1), at(10));
    tree.refer(ino);
    tree.owe(ino, at(15));
    // Sent at 20, executed before the WRITE, answered behind it.
    tree.changed(ino, Some(of_size(2)), at(30));
    let alone = tree.is_alone_since(ino, at(20));
    tree.pay(ino, at(40));
    tree.changed_beside_data(alone, ino, Some(of_size(1)), at(40));
    assert_eq!(tree.get(ino).unwrap().attrs.size, 2);
    assert_eq!(tree.fresh(ino, at(41)), None, "nobody knows which was the last");
    // With nothing beside it, it is right.
    let alone = tree.is_alone_since(ino, at(50));
    tree.changed_beside_data(alone, ino, Some(of_size(7)), at(60));
    assert_eq!(tree.fresh(ino, at(61)).unwrap().size, 7);
}

/// Below a mount's root there may be several filesystems of the server, with objects of the same number.
#[test]
fn an_object_of_another_filesystem_has_a_number_of_its_own() {
    let mut tree = tree();
    let there = |major| Attrs { fsid: Fsid { major, minor: 0 }, ..attrs(FileType::Reg, 7, 1) };
    let here = tree.node(&handle(1), there(0), Time::ZERO);
    assert_eq!(here, 7);
    let mut forgotten = |n, major| {
        let ino = tree.node(&handle(n), there(major), Time::ZERO);
        tree.refer(ino);
        tree.forget(ino, 1);
        assert!(tree.get(ino).is_none(), "it is forgotten");
        ino
    };
    let (one, other) = (forgotten(2, 1), forgotten(3, 2));
    assert!(one != 7 && other != 7 && one != other, "{one} and {other}");
    assert_eq!((forgotten(2, 1), forgotten(3, 2)), (one, other), "it is found by its number again");
}
