//! Answers that hold, answers that do not, and that neither is taken for the other.

use super::*;

/// A round before which everything is there.
fn round(meeting: &str, told: [Option<Answer>; 2]) -> Round {
    let before = Prepared { x: Some(10), z: Some(11), d: Some(12), ..Prepared::default() };
    Round { pair: 0, no: 0, meeting: meeting.parse().unwrap(), tag: 5, before, told }
}

fn done() -> Option<Answer> {
    Some(Answer::Done(Reply::default()))
}

fn file(fileid: u64, bytes: Vec<u8>) -> ObservedFile {
    ObservedFile { dir: false, symlink: false, fileid, mode: MODE_MADE, bytes, xattrs: BTreeSet::new() }
}

/// What is there before the two begin.
fn start(round: &Round) -> ObservedNames {
    let dir = ObservedFile { dir: true, ..file(12, Vec::new()) };
    ObservedNames(BTreeMap::from([
        (Name::X, file(10, bytes(round.tag, Bytes::X))),
        (Name::Z, file(11, bytes(round.tag, Bytes::Z))),
        (Name::D, dir),
    ]))
}

fn broken(round: &Round, found: &ObservedNames) -> bool {
    match judge(round, found) {
        Judgement::Broken(_) => true,
        Judgement::Kept => false,
        Judgement::Unexplained => panic!("{round:?}"),
    }
}

#[test]
fn rfc1813_3_3_21_a_commit_that_was_answered_holds_whether_the_removal_beside_it_was_done_or_not() {
    let reply = Reply { verf: Some("aa".into()), ..Reply::default() };
    let mut r = round("remove:commit", [None, Some(Answer::Done(reply))]);
    r.before.verf = Some("aa".into());
    let mut found = start(&r);
    // There with the data of before: neither the removal nor the COMMIT is stable.
    assert!(broken(&r, &found));
    found.0.insert(Name::X, file(10, bytes(r.tag, Bytes::Unstable)));
    assert!(!broken(&r, &found), "committed and not removed");
    found.0.remove(&Name::X);
    assert!(!broken(&r, &found), "removed");
    // Under another verifier the client sends its data again.
    r.before.verf = Some("bb".into());
    assert!(!broken(&r, &start(&r)));
    // Both answered: the removal is certain.
    r.told[0] = done();
    assert!(broken(&r, &start(&r)));
}

#[test]
fn rfc1813_3_3_8_a_file_that_exists_for_one_client_is_there_after_a_cut() {
    for (meeting, answer) in [
        ("create:create-unchecked", Answer::Done(Reply { fileid: Some(20), ..Reply::default() })),
        ("create-exclusive:create-exclusive", Answer::Done(Reply { fileid: Some(20), ..Reply::default() })),
        ("create:create", Answer::Exists),
        ("mkdir:symlink", Answer::Exists),
        ("link:create", Answer::Exists),
        ("create:rename-self", Answer::Done(Reply::default())),
    ] {
        let r = round(meeting, [None, Some(answer)]);
        assert!(broken(&r, &start(&r)), "{meeting}");
        let mut found = start(&r);
        let y = match meeting {
            "mkdir:symlink" => ObservedFile { dir: true, ..file(20, Vec::new()) },
            "link:create" => found.0[&Name::X].clone(),
            _ => file(20, Vec::new()),
        };
        found.0.insert(Name::Y, y);
        assert!(!broken(&r, &found), "{meeting}");
    }
}

#[test]
fn rfc8881_18_26_3_a_rename_of_two_names_of_one_object_tells_that_the_other_name_is_there() {
    let r = round("link:rename", [None, done()]);
    let mut found = start(&r);
    assert!(broken(&r, &found), "neither renamed nor linked");
    let x = found.0[&Name::X].clone();
    found.0.insert(Name::Y, x.clone());
    assert!(!broken(&r, &found), "linked first");
    found.0.remove(&Name::X);
    assert!(!broken(&r, &found), "renamed first");
    found.0.insert(Name::X, file(21, x.bytes));
    assert!(broken(&r, &found), "x is another file");
}

#[test]
fn errors_tell_of_what_is_there_and_what_is_gone() {
    for (meeting, answer, gone) in [
        ("remove:remove", Answer::NoEntry, Name::X),
        ("remove:rename", Answer::NoEntry, Name::X),
        ("rename-over:rename-over", Answer::NoEntry, Name::Z),
        ("rmdir:rmdir", Answer::NoEntry, Name::D),
        ("remove:write", Answer::Stale, Name::X),
        ("remove:link", Answer::Stale, Name::X),
    ] {
        let r = round(meeting, [None, Some(answer)]);
        let mut found = start(&r);
        assert!(broken(&r, &found), "{meeting}");
        let was = found.0.remove(&gone).unwrap();
        if meeting.starts_with("rename-over") {
            found.0.insert(Name::X, was);
        }
        assert!(!broken(&r, &found), "{meeting}");
    }
    let r = round("fill:rmdir", [None, Some(Answer::NotEmpty)]);
    let mut found = start(&r);
    assert!(broken(&r, &found));
    found.0.insert(Name::Inner, file(22, Vec::new()));
    assert!(!broken(&r, &found));
}

#[test]
fn what_was_not_answered_may_be_there_or_not() {
    for meeting in Race::all() {
        let r = round(&meeting.to_string(), [None, None]);
        assert_eq!(judge(&r, &start(&r)), Judgement::Kept, "{meeting}");
    }
    // Part of a write is enough.
    let r = round("write:commit", [None, None]);
    let mut found = start(&r);
    let mut bytes_there = bytes(r.tag, Bytes::X);
    bytes_there[100..200].copy_from_slice(&bytes(r.tag, Bytes::First)[100..200]);
    found.0.insert(Name::X, file(10, bytes_there.clone()));
    assert_eq!(judge(&r, &found), Judgement::Kept);
    bytes_there[300] ^= 1;
    found.0.insert(Name::X, file(10, bytes_there));
    assert!(broken(&r, &found));
}

#[test]
fn what_nobody_was_told_may_be_there_without_the_name_by_which_it_was_found() {
    let written = |told| {
        let r = round("link:write-found", [None, told]);
        let mut found = start(&r);
        found.0.insert(Name::X, file(10, bytes(r.tag, Bytes::Second)));
        (r, found)
    };
    let (r, mut found) = written(None);
    assert!(!broken(&r, &found), "the data came to the disk before the name");
    found.0.insert(Name::X, file(10, bytes(r.tag, Bytes::Z)));
    assert!(broken(&r, &found), "nobody wrote that");
    // Who was told of the write was told of the name.
    let (r, found) =
        written(Some(Answer::Done(Reply { stable: true, count: Some(1024), ..Reply::default() })));
    assert!(broken(&r, &found));
}

#[test]
fn of_two_that_were_both_answered_either_may_have_been_the_last() {
    let stable = |who| Some(Answer::Done(Reply { stable: true, count: Some(who), ..Reply::default() }));
    let r = round("write:write", [stable(1024), stable(1024)]);
    assert!(broken(&r, &start(&r)));
    for which in [Bytes::First, Bytes::Second] {
        let mut found = start(&r);
        found.0.insert(Name::X, file(10, bytes(r.tag, which)));
        assert!(!broken(&r, &found));
    }
}

#[test]
fn answers_of_no_order_prove_nothing_and_unknown_errors_neither() {
    let r = round("create:create", [done(), done()]);
    assert_eq!(judge(&r, &start(&r)), Judgement::Unexplained);
    let other = Some(Answer::Other("NFS3ERR_IO".into()));
    let r = round("create:create", [None, other]);
    assert_eq!(judge(&r, &start(&r)), Judgement::Kept);
}

/// What the server is in the next test: it executes at once, flushes in order, and its answers wait for their flush, or
/// not.
fn serve(meeting: Race, order: [bool; 2], flushed: usize, prompt: Option<bool>) -> (Round, ObservedNames) {
    let mut r = round(&meeting.to_string(), [None, None]);
    let mut state = State::of(&r);
    state.xattrs = r.looks_at_xattrs();
    let mut states = vec![state.clone()];
    for (n, second) in order.into_iter().enumerate() {
        let reply = Reply {
            fileid: Some(30 + u64::from(second)),
            verf: Some("aa".into()),
            stable: true,
            ..Reply::default()
        };
        let answers = [
            Answer::Done(reply.clone()),
            Answer::Done(Reply { fileid: None, ..reply }),
            Answer::Exists,
            Answer::NoEntry,
            Answer::NotEmpty,
            Answer::Stale,
        ];
        let (answer, after) = answers
            .into_iter()
            .find_map(|answer| Some((answer.clone(), state.after(&r, second, Some(&answer)).pop()?)))
            .unwrap_or((Answer::Other("ISDIR".into()), state.clone()));
        state = after;
        states.push(state.clone());
        if n < flushed || prompt == Some(second) {
            r.told[usize::from(second)] = Some(answer);
        }
    }
    let there = &states[flushed];
    let seen = |o: &Object| ObservedFile {
        dir: o.kind == Kind::Dir,
        symlink: o.kind == Kind::Symlink,
        fileid: o.fileid.unwrap_or(40),
        mode: o.mode.unwrap_or(0o600),
        bytes: {
            let mut contents = o.contents.clone();
            contents.commit(Some("aa"), 9);
            contents.bytes().to_vec()
        },
        xattrs: o.xattrs.clone(),
    };
    let found = there.names.iter().map(|(n, o)| (*n, seen(&there.objects[*o]))).collect();
    (r, ObservedNames(found))
}

#[test]
fn no_false_alarm_on_a_server_whose_answers_wait_for_their_flush() {
    for meeting in Race::all() {
        for order in [[false, true], [true, false]] {
            for flushed in 0..=2 {
                let (r, found) = serve(meeting, order, flushed, None);
                assert_eq!(judge(&r, &found), Judgement::Kept, "{meeting} {order:?} {flushed} {r:?}");
            }
        }
    }
}

#[test]
fn a_server_that_answers_the_second_at_once_is_found_out() {
    let mut found_out = BTreeSet::new();
    for meeting in Race::all() {
        let (r, found) = serve(meeting, [false, true], 0, Some(true));
        if matches!(judge(&r, &found), Judgement::Broken(_)) {
            found_out.insert(meeting.to_string());
        }
    }
    for shown in [
        "create:create",
        "create:create-unchecked",
        "create-exclusive:create-exclusive",
        "link:rename",
        "remove:remove",
        "remove:write",
        "setattr-mode:setattr-mode",
        "setattr-size:setattr-size",
        "allocate:allocate",
        "setxattr:setxattr",
        "fill:rmdir",
        "create:rename-self",
    ] {
        assert!(found_out.contains(shown), "{shown} is not among {found_out:?}");
    }
}

#[test]
fn meetings_have_words() {
    assert!(Race::all().count() > 150);
    for meeting in Race::all() {
        assert_eq!(meeting.to_string().parse(), Ok(meeting));
    }
    for bad in ["remove", "remove:tar", "mkdir:rmdir"] {
        assert!(bad.parse::<Race>().is_err(), "{bad}");
    }
}
