//! Who looks at delegated files: whom to ask and when, and against a model of a holder that what is told never repeats or goes back.

use super::asked::{Answer, AsGiven, Asking, Told, times_of_holder, wanted};
use super::delegations::{GivenTo, Right, Touch};
use super::looking::{Look, Question};
use super::tests_delegations::{client, file, state};
use super::{Bounds, State};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::{AttrValues, NfsTime, Stateid};
use landfast_volume::{Attrs, Kind, TimeSet, Timestamp};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const GIVEN_TO: GivenTo = GivenTo { session: [7; 16], slot: 0, sequence: 1, minor: 2 };
const GIVEN: AsGiven = AsGiven { change: 100, by_owner: true };

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

fn attrs(size: u64, change: u64, secs: i64) -> Attrs {
    Attrs {
        kind: Kind::File,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: (0, 0),
        size,
        used: 0,
        fsid: (1, 1),
        fileid: 1,
        atime: at(secs),
        mtime: at(secs),
        ctime: at(secs),
        btime: at(secs),
        change,
    }
}

fn given(st: &mut State<u32>, c: u64, f: &Bytes, asking: Asking) -> Stateid {
    let holder = (false, GIVEN_TO, f.clone());
    st.files.delegate(c, f, Right::Write, holder, asking, (HERE, Some(5))).expect("a delegation")
}

/// A client with write delegations of so many files, and another.
fn held(files: u8) -> (State<u32>, u64, u64, Vec<Stateid>) {
    let mut st = state();
    let (a, b) = (client(&mut st, b"a"), client(&mut st, b"b"));
    let all = (0..files).map(|n| given(&mut st, a, &file(n), Asking::new(Some(GIVEN)))).collect();
    (st, a, b, all)
}

fn questions(st: &mut State<u32>) -> Vec<Question> {
    std::iter::from_fn(|| st.files.take_question(|_| true)).collect()
}

fn recalls(st: &mut State<u32>) -> usize {
    std::iter::from_fn(|| st.files.take_recall(|_| true)).count()
}

fn waits(look: Look) -> bool {
    matches!(look, Look::Waits(_))
}

#[test]
fn rfc8881_10_4_3_an_answer_serves_who_began_to_look_before_the_question_was_sent() {
    let (mut st, a, b, _) = held(1);
    let f = file(0);
    let told = Told::of(&attrs(5, 200, 1));
    assert_eq!(st.look(0, &f, Some(a), 0, true), Look::Clear, "the holder itself");
    assert_eq!(st.look(0, &file(1), Some(b), 0, true), Look::Clear, "another file");
    let first = st.files.questions_sent();
    assert!(waits(st.look(0, &f, Some(b), first, true)));
    assert!(waits(st.look(0, &f, None, first, true)));
    let sent = questions(&mut st);
    assert_eq!((sent.len(), sent[0].client, sent[0].given), (1, a, GIVEN), "one for both");
    // Whoever comes now may know of what was not so when the holder answers.
    let second = st.files.questions_sent();
    assert!(waits(st.look(0, &f, None, second, true)));
    st.files.is_told(&sent[0], told);
    assert!(st.files.delegations.signals().answered);
    assert_eq!(st.look(0, &f, Some(b), first, true), Look::Told(told));
    assert!(waits(st.look(0, &f, None, second, true)) && st.files.look_would_wait(&f, None, second));
    let again = questions(&mut st);
    assert_eq!(again.len(), 1);
    let later = Told::of(&attrs(6, 201, 1));
    st.files.is_told(&again[0], later);
    // An answer that was overtaken by a later one.
    st.files.is_told(&sent[0], told);
    assert_eq!(st.look(0, &f, None, second, true), Look::Told(later));
    assert_eq!(recalls(&mut st), 0);
    let counts = st.files.delegations.counts;
    assert_eq!((counts.asked, counts.answered, counts.unanswered, counts.recalled), (2, 3, 0, 0));
}

#[test]
fn rfc8881_10_4_3_a_delegation_is_recalled_where_its_holder_is_not_asked_or_says_nothing() {
    let (mut st, a, b, stateids) = held(6);
    let look = |st: &mut State<u32>, n: u8, may_wait| {
        let since = st.files.questions_sent();
        assert!(waits(st.look(0, &file(n), Some(b), since, may_wait)));
        (questions(st), recalls(st))
    };
    let (asked, recalled) = look(&mut st, 0, false);
    assert_eq!((asked.len(), recalled), (0, 1), "it cannot wait");
    let (asked, recalled) = look(&mut st, 0, true);
    assert_eq!((asked.len(), recalled), (0, 0), "it waits for the end of what is recalled already");
    // No answer.
    let (asked, recalled) = look(&mut st, 1, true);
    assert_eq!((asked.len(), recalled), (1, 0));
    let Look::Waits(id) = st.look(0, &file(1), Some(b), asked[0].number - 1, true) else {
        panic!("it waits")
    };
    st.files.is_not_told(0, &asked[0]);
    assert_eq!(recalls(&mut st), 1);
    assert!(st.files.is_waited_for(id, 0), "until it is back");
    st.files.return_delegation(a, &file(1), &stateids[1]).expect("returned");
    assert!(!st.files.is_waited_for(id, 0) && st.look(0, &file(1), Some(b), 9, true) == Look::Clear);
    // A holder that left a question unanswered, until it answers something.
    st.files.answers(a, false);
    let (asked, recalled) = look(&mut st, 2, true);
    assert_eq!((asked.len(), recalled), (0, 1));
    st.files.answers(a, true);
    assert_eq!(look(&mut st, 3, true).0.len(), 1);
    // A question that was not sent when the delegation was recalled for somebody else is not sent any more.
    let since = st.files.questions_sent();
    assert!(waits(st.look(0, &file(4), Some(b), since, true)));
    assert!(!st.clear_delegations(0, &file(4), Some(b), Touch::Changes));
    assert_eq!((questions(&mut st).len(), recalls(&mut st)), (0, 1));
    // So often, and not once more.
    for _ in 0..limits::GETATTRS_MAX {
        let (asked, recalled) = look(&mut st, 5, true);
        assert_eq!((asked.len(), recalled), (1, 0));
        st.files.is_told(&asked[0], Told::of(&attrs(5, 200, 1)));
    }
    let (asked, recalled) = look(&mut st, 5, true);
    assert_eq!((asked.len(), recalled), (0, 1));
}

#[test]
fn after_a_restart_holders_are_not_asked() {
    let (mut st, _, b, stateids) = held(1);
    let note = st.log_given(&stateids[0]).expect("room in the log");
    let notes: Vec<_> = st.snapshot().into_iter().chain([note]).collect();
    let mut next: State<u32> = State::new(9, 90_000, Bounds::new(Some(1 << 30)));
    next.restore(notes, 0);
    assert!(waits(next.look(0, &file(0), Some(b), 0, true)));
    assert_eq!((questions(&mut next).len(), recalls(&mut next)), (0, 1));
}

#[test]
fn who_is_asked_much_keeps_nobody_elses_questions_back() {
    let (mut st, a, b, _) = held(3);
    given(&mut st, b, &file(9), Asking::new(Some(GIVEN)));
    for n in [0, 1, 2, 9] {
        assert!(waits(st.look(0, &file(n), None, 0, true)));
    }
    assert_eq!(st.files.take_question(|client| client != a).map(|q| q.client), Some(b));
    assert!(st.files.take_question(|client| client != a).is_none());
    assert_eq!(questions(&mut st).len(), 3);
}

#[test]
fn rfc9754_8_2_which_of_a_holders_times_are_set() {
    let is = attrs(5, 200, 1000);
    let set = |atime, mtime, chosen| {
        let set = times_of_holder(
            Some(TimeSet::At(at(atime))),
            Some(TimeSet::At(at(mtime))),
            &is,
            at(2000),
            chosen,
        );
        (set.atime, set.mtime)
    };
    assert_eq!(set(1000, 1000, true), (None, None), "they are as they are");
    assert_eq!(set(1500, 1000, true), (None, None), "an access time alone does not advance the change time");
    assert_eq!(set(500, 1000, true), (Some(TimeSet::At(at(500))), None));
    assert_eq!(set(1500, 700, true), (Some(TimeSet::At(at(1500))), Some(TimeSet::At(at(700)))));
    assert_eq!(set(1000, 3000, true), (None, Some(TimeSet::Now)), "one that has not come");
    assert_eq!(set(1000, 700, false), (None, Some(TimeSet::Now)), "who may not choose it");
}

fn answer(change: u64, size: u64, times: Option<(i64, i64)>) -> Option<Answer> {
    let time = |seconds| NfsTime { seconds, nseconds: 0 };
    let said = AttrValues {
        change: Some(change),
        size: Some(size),
        time_deleg_access: times.map(|(access, _)| time(access)),
        time_deleg_modify: times.map(|(_, modify)| time(modify)),
        ..AttrValues::default()
    };
    Answer::of(&said.to_fattr(&wanted(times.is_some())), times.is_some())
}

#[test]
fn rfc8881_10_4_3_when_a_holder_has_more_than_the_server() {
    let is = attrs(5, 200, 1000);
    let follows = |change, size, times| {
        let (set, ahead) = answer(change, size, times).expect("an answer").follows(GIVEN, &is, at(2000));
        (ahead, set.mtime)
    };
    assert_eq!(follows(100, 5, None), (false, None));
    assert_eq!(follows(200, 5, None), (false, None), "it has asked for the change attribute since");
    assert_eq!(follows(101, 5, None), (true, Some(TimeSet::Now)));
    assert_eq!(follows(100, 4, None), (true, Some(TimeSet::Now)));
    assert_eq!(follows(100, 5, Some((1000, 1000))), (false, None));
    assert_eq!(follows(100, 5, Some((1000, 900))), (false, Some(TimeSet::At(at(900)))));
    assert_eq!(
        follows(101, 5, Some((1000, 1000))),
        (true, Some(TimeSet::At(at(1000)))),
        "for the change attribute"
    );
    // What holders say that have more is so even if the server happens to be there.
    let next = attrs(5, 101, 1000);
    assert!(answer(101, 5, None).expect("an answer").follows(GIVEN, &next, at(2000)).1);
    assert!(answer(100, u64::MAX, None).is_none() && answer(u64::MAX, i64::MAX as u64, None).is_some());
}

/// What a holder of a write delegation does, and others.
#[derive(Debug, Clone)]
enum Step {
    /// It changes the file in its memory, to this size.
    Changes(u64),
    /// It sends all that it has.
    Sends,
    /// It throws away what it has not sent.
    Drops,
    /// Somebody looks: the volume's change attribute grows by so much with each change.
    Look(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        (0..4u64).prop_map(Step::Changes),
        Just(Step::Sends),
        Just(Step::Drops),
        (1..3u64).prop_map(Step::Look),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    /// Whatever a holder keeps, sends or loses: the change attribute that others see grows whenever what they see of the file differs, and never
    /// goes back; and it is the same while nothing happens.
    #[test]
    fn rfc8881_10_4_3_the_change_attribute_tells_all_that_was_told_apart(all in steps()) {
        // The file on the server: attributes, and a number for its content.
        let (mut is, mut content) = (attrs(2, GIVEN.change, 1000), 0);
        // The same at its holder, with what it has not sent.
        let (mut size, mut kept) = (2, None);
        let mut contents = 0;
        let mut now = 1000;
        // What was seen last.
        let mut last = (GIVEN.change, 2, 0);
        for step in all.into_iter().chain([Step::Drops, Step::Look(1)]) {
            now += 1;
            match step {
                Step::Changes(to) => {
                    contents += 1;
                    (size, kept) = (to, Some(contents));
                }
                Step::Sends => if let Some(sent) = kept.take() {
                    content = sent;
                    is = Attrs { size, change: is.change + 1, mtime: at(now), ctime: at(now), ..is };
                }
                Step::Drops => (size, kept) = (is.size, None),
                Step::Look(by) => {
                    let said = answer(GIVEN.change + u64::from(kept.is_some()), size, None).expect("an answer");
                    let (set, ahead) = said.follows(GIVEN, &is, at(now));
                    prop_assert_eq!(ahead, kept.is_some());
                    let before = is.change;
                    let mut told = None;
                    for _ in 0..2 {
                        if !set.is_empty() {
                            is = Attrs { change: is.change + by, mtime: at(now), ctime: at(now), ..is };
                        }
                        told = told.or(if ahead { Told::ahead(&said, before, &is) } else { Some(Told::of(&is)) });
                        if told.is_some() {
                            break;
                        }
                    }
                    let mut seen = is;
                    told.expect("two changes leave a number").show_in(&mut seen);
                    let seen = (seen.change, seen.size, kept.unwrap_or(content));
                    prop_assert!(seen == last || seen.0 > last.0, "{:?} after {:?}", seen, last);
                    // What the server alone would say now is later than that, or the same.
                    prop_assert!(is.change > seen.0 || (is.change, is.size, content) == seen);
                    last = seen;
                }
            }
        }
    }
}
