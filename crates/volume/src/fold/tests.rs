//! The fold's rules, one by one. Whole histories: `recover::tests`.

use super::*;
use crate::record::KernelHandle;

fn id(n: u8) -> ObjId {
    ObjId { kh: KernelHandle { kind: 1, bytes: Bytes::copy_from_slice(&[n; 8]) }, btime_ns: i64::from(n) }
}

fn birth(kind: Kind) -> Birth {
    let target = if kind == Kind::Symlink { Bytes::from_static(b"t") } else { Bytes::new() };
    Birth { kind, owned: Owned { mode: 0o644, ..Owned::default() }, rdev: (0, 0), target, fileid: 1 }
}

fn born(n: u8, kind: Kind) -> Fact {
    Fact::Born { obj: id(n), birth: birth(kind) }
}

fn bind(dir: u8, name: &'static str, n: u8) -> Fact {
    Fact::Bind { dir: id(dir), name: Bytes::from_static(name.as_bytes()), obj: id(n) }
}

fn unbind(dir: u8, name: &'static str, n: u8) -> Fact {
    Fact::Unbind { dir: id(dir), name: Bytes::from_static(name.as_bytes()), obj: id(n) }
}

fn data(n: u8, offset: u64, bytes: &'static [u8]) -> Fact {
    Fact::Data { obj: id(n), offset, bytes: Bytes::from_static(bytes) }
}

fn fold(facts: Vec<Fact>) -> Result<Fold, FoldError> {
    Fold::of(facts.into_iter().enumerate().map(|(i, f)| Record { seq: i as u64 + 1, facts: vec![f] }))
}

fn contradiction(facts: Vec<Fact>) -> &'static str {
    match fold(facts) {
        Err(FoldError::Contradiction { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn made_and_removed_again_is_dead() {
    let f = fold(vec![born(2, Kind::File), bind(1, "a", 2), unbind(1, "a", 2)]).unwrap();
    assert!(f.objects[&id(2)].dead);
    assert_eq!(f.entries[&id(1)][&b"a"[..]], None);
    let f = fold(vec![born(2, Kind::File), bind(1, "a", 2), unbind(1, "a", 2), bind(1, "b", 2)]).unwrap();
    assert!(!f.objects[&id(2)].dead);
    assert_eq!(f.objects[&id(2)].names, vec![(id(1), Bytes::from_static(b"b"))]);
    assert_eq!(f.last_seq, 4);
}

#[test]
fn an_older_object_that_lost_a_name_lives_until_its_links_are_gone() {
    let f = fold(vec![unbind(1, "a", 2)]).unwrap();
    assert!(!f.objects[&id(2)].dead);
    let f = fold(vec![unbind(1, "a", 2), Fact::Links { obj: id(2), nlink: 0 }, data(2, 0, b"late")]).unwrap();
    assert!(f.objects[&id(2)].dead);
    assert!(f.objects[&id(2)].content.is_empty());
}

#[test]
fn contradictions_are_refused() {
    assert_eq!(contradiction(vec![bind(1, "a", 2), bind(1, "a", 3)]), "a name that is taken already");
    assert_eq!(
        contradiction(vec![bind(1, "a", 2), unbind(1, "a", 3)]),
        "taken from an entry that does not name it"
    );
    assert_eq!(
        contradiction(vec![unbind(1, "a", 2), unbind(1, "a", 2)]),
        "taken from an entry that does not name it"
    );
    let gone = Fact::Links { obj: id(2), nlink: 0 };
    assert_eq!(contradiction(vec![gone.clone(), bind(1, "a", 2)]), "a name for an object that is gone");
    assert_eq!(contradiction(vec![gone.clone(), bind(2, "a", 3)]), "an entry in a directory that is gone");
    assert_eq!(contradiction(vec![bind(1, "a", 2), gone]), "gone, but an entry names it");
    assert_eq!(contradiction(vec![born(2, Kind::File), born(2, Kind::File)]), "born twice");
    assert_eq!(
        contradiction(vec![born(2, Kind::Dir), bind(1, "a", 2), bind(1, "b", 2)]),
        "a directory with two names"
    );
    assert_eq!(
        contradiction(vec![born(2, Kind::Dir), bind(2, "a", 3), Fact::Links { obj: id(2), nlink: 0 }]),
        "in a directory that is gone"
    );
}

#[test]
fn durable_drops_all_but_the_last() {
    let mut facts = vec![data(2, 0, b"aaaa"), Fact::Size { obj: id(2), size: 2 }, data(2, 8, b"bb")];
    facts.push(Fact::Durable { obj: id(2), keep: 1 });
    let f = fold(facts.clone()).unwrap();
    let plan = &f.objects[&id(2)];
    assert!(plan.relies_on_disk);
    assert_eq!(plan.content, Content { cut: None, writes: vec![(8, Bytes::from_static(b"bb"))], size: None });
    facts.push(Fact::Durable { obj: id(2), keep: 0 });
    assert!(fold(facts).unwrap().objects[&id(2)].content.is_empty());
}

#[test]
fn truncation_clips_what_was_written_before() {
    let f = fold(vec![
        data(2, 0, b"abcdef"),
        data(2, 10, b"gone"),
        Fact::Size { obj: id(2), size: 4 },
        data(2, 6, b"xy"),
        Fact::Size { obj: id(2), size: 20 },
    ])
    .unwrap();
    let want = vec![(0, Bytes::from_static(b"abcd")), (6, Bytes::from_static(b"xy"))];
    assert_eq!(f.objects[&id(2)].content, Content { cut: Some(4), writes: want, size: Some(20) });
}

#[test]
fn notes_keep_their_order() {
    let note = |b: &'static [u8]| Fact::Note { bytes: Bytes::from_static(b) };
    let f = fold(vec![note(b"1"), data(2, 0, b"x"), note(b"2")]).unwrap();
    assert_eq!(f.notes, vec![b"1".to_vec(), b"2".to_vec()]);
}

#[test]
fn a_bad_record_is_named() {
    let good = Record::default().encode().unwrap();
    let e = Fold::new(vec![good, vec![77]]).unwrap_err();
    assert_eq!(e.to_string(), "record 1 of the log: record version 77, this program reads version 1");
}
