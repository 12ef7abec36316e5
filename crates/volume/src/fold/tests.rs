//! The fold's rules, one by one. Whole histories: `recover::tests`.

use super::*;
use crate::record::KernelHandle;
use proptest::prelude::*;

fn id(n: u8) -> ObjId {
    ObjId { kh: KernelHandle { kind: 1, bytes: [n; 8][..].into() }, btime_ns: i64::from(n) }
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
    assert_eq!(
        plan.content,
        Content { cut: None, writes: vec![(8, Fill::Bytes(Bytes::from_static(b"bb")))], size: None }
    );
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
    let bytes = |b: &'static [u8]| Fill::Bytes(Bytes::from_static(b));
    let want = vec![(0, bytes(b"abcd")), (6, bytes(b"xy"))];
    assert_eq!(f.objects[&id(2)].content, Content { cut: Some(4), writes: want, size: Some(20) });
}

#[test]
fn holes_stand_in_their_order_among_the_writes_and_do_not_make_the_file_grow() {
    let zero = |offset, len| Fact::Zero { obj: id(2), offset, len };
    let f = fold(vec![
        data(2, 0, b"abcdef"),
        zero(2, 4),
        zero(3, 0),
        data(2, 3, b"x"),
        Fact::Size { obj: id(2), size: 5 },
        zero(0, 1),
    ])
    .unwrap();
    let bytes = |b: &'static [u8]| Fill::Bytes(Bytes::from_static(b));
    let want = vec![(0, bytes(b"abcde")), (2, Fill::Zero(3)), (3, bytes(b"x")), (0, Fill::Zero(1))];
    assert_eq!(f.objects[&id(2)].content, Content { cut: Some(5), writes: want, size: Some(5) });
    // A flush covers holes as it covers data.
    let f =
        fold(vec![zero(0, 9), data(2, 0, b"a"), zero(0, 1), Fact::Durable { obj: id(2), keep: 1 }]).unwrap();
    assert_eq!(f.objects[&id(2)].content.writes, vec![(0, Fill::Zero(1))]);
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

fn any_fact() -> impl Strategy<Value = Fact> {
    let (n, name) = (0u8..6, prop_oneof![Just("a"), Just("b")]);
    (0u8..11, n.clone(), n, name, 0u64..40).prop_map(|(what, a, b, name, at)| match what {
        0..3 => bind(a, name, b),
        3..5 => unbind(a, name, b),
        5 => born(b, if at % 2 == 0 { Kind::Dir } else { Kind::File }),
        6 => Fact::Links { obj: id(b), nlink: (at % 3) as u32 },
        7 => Fact::Size { obj: id(b), size: at },
        9 => Fact::Zero { obj: id(b), offset: at, len: 5 },
        8 => Fact::Durable { obj: id(b), keep: (at % 4) as u32 },
        _ => data(b, at, b"0123456"),
    })
}

proptest! {
    /// Whatever is said in whatever order: an error, or a state that keeps the invariants of the module.
    #[test]
    fn any_facts_make_a_sound_state_or_none(facts in proptest::collection::vec(any_fact(), 0..30)) {
        let Ok(f) = fold(facts) else { return Ok(()) };
        for (dir, names) in &f.entries {
            for (name, obj) in names {
                let Some(obj) = obj else { continue };
                prop_assert!(!f.objects[obj].dead && !f.objects[dir].dead);
                prop_assert!(f.objects[obj].names.contains(&(dir.clone(), name.clone())));
            }
        }
        for plan in f.objects.values() {
            prop_assert!(plan.birth.is_none() || plan.dead == plan.names.is_empty());
            if let (Some(cut), Some(size)) = (plan.content.cut, plan.content.size) {
                prop_assert!(cut <= size);
                for (at, fill) in &plan.content.writes {
                    prop_assert!(matches!(fill, Fill::Zero(_)) || at + fill.len() <= size);
                }
            }
        }
    }

    /// The steps of a file give the same bytes as the operations, over any contents that a crash may have left.
    #[test]
    fn contents_are_as_if_done_in_order(
        ops in proptest::collection::vec((0u8..4, 0u64..30, 1u8..9), 1..12),
        before in proptest::collection::vec(any::<u8>(), 0..30),
        garbage in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut right = before.clone();
        let mut ours = Vec::new();
        for (n, (what, at, len)) in ops.iter().enumerate() {
            if *what == 0 {
                right.resize(*at as usize, 0);
                ours.push(Op::Size(*at));
            } else if *what == 1 {
                let end = right.len().min(*at as usize + usize::from(*len));
                if let Some(hole) = right.get_mut(*at as usize..end) {
                    hole.fill(0);
                    ours.push(Op::Zero(*at, end as u64 - at));
                }
            } else {
                let bytes = vec![n as u8 | 0x80; *len as usize];
                let end = *at as usize + bytes.len();
                right.resize(right.len().max(end), 0);
                right[*at as usize..end].copy_from_slice(&bytes);
                ours.push(Op::Data(*at, bytes.into()));
            }
        }
        // A crash leaves the old contents where nothing was written or cut, and anything elsewhere, at any size that the
        // file had.
        let touched = |x: usize| ours.iter().any(|op| match op {
            Op::Size(at) => x as u64 >= *at,
            Op::Data(at, bytes) => (*at..*at + bytes.len() as u64).contains(&(x as u64)),
            Op::Zero(at, len) => (*at..*at + *len).contains(&(x as u64)),
        });
        let largest = ops.iter().map(|o| if o.0 == 1 { 0 } else { (o.1 + if o.0 == 0 { 0 } else { u64::from(o.2) }) as usize }).max().unwrap_or(0);
        let mut disk = before;
        disk.resize(disk.len().max(garbage.len().min(largest)), 0);
        for (x, byte) in disk.iter_mut().enumerate() {
            if touched(x) && x < garbage.len() {
                *byte = garbage[x];
            }
        }
        let c = Content::from_ops(ours);
        if let Some(cut) = c.cut.filter(|cut| (*cut as usize) < disk.len()) {
            disk.truncate(cut as usize);
        }
        for (at, fill) in &c.writes {
            let end = (*at + fill.len()) as usize;
            match fill {
                Fill::Bytes(bytes) => {
                    disk.resize(disk.len().max(end), 0);
                    disk[*at as usize..end].copy_from_slice(bytes);
                }
                Fill::Zero(_) => {
                    let end = end.min(disk.len());
                    disk.get_mut(*at as usize..end).into_iter().for_each(|hole| hole.fill(0));
                }
            }
        }
        if let Some(size) = c.size {
            disk.resize(size as usize, 0);
        }
        prop_assert_eq!(&disk, &right);
        // In pieces, over anything of the right size, they give the same.
        let mut again = disk.clone();
        for (x, byte) in again.iter_mut().enumerate() {
            let written = c.writes.iter().any(|(at, fill)| (*at..*at + fill.len()).contains(&(x as u64)));
            if written || c.cut.is_some_and(|cut| x as u64 >= cut) {
                *byte = garbage.get(x).copied().unwrap_or(7);
            }
        }
        for (n, piece) in again.chunks_mut(7).enumerate() {
            c.do_to(piece, n as u64 * 7, c.cut, None);
        }
        prop_assert_eq!(again, disk);
    }
}
