//! Files without a name that are open: who has them open, over restarts; against a model.

use super::locks::{Locker, Span};
use super::notes::{Note, OpenNote, Stamped};
use super::opens::{FileKey, READ};
use super::tests_delegations::{HERE, client, file};
use super::{Bounds, Millis, State};
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::{LockType, NfsStat, Stateid};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const LEASE: Millis = 90_000;

fn instance(epoch: u32) -> State<u32> {
    State::new(epoch, LEASE, Bounds::new(Some(1 << 30)))
}

fn owner(n: u8) -> Bytes {
    Bytes::from(vec![b'o', n])
}

fn open(st: &mut State<u32>, c: u64, o: u8, f: &FileKey) -> Stateid {
    st.files.open(f, c, &owner(o), READ, 0, None).expect("an open")
}

/// The server dies and comes back with these notes.
fn restarted(epoch: u32, log: &[Stamped]) -> State<u32> {
    let mut st = instance(epoch);
    st.restore(log.to_vec(), 0);
    st
}

fn with_clients(st: &State<u32>, notes: Vec<Stamped>) -> Vec<Stamped> {
    let mut log = st.snapshot();
    log.extend(notes);
    log
}

#[test]
fn what_the_log_has_no_room_for_is_not_promised() {
    let bounds = Bounds { open_bytes: 250, ..Bounds::new(Some(1 << 30)) };
    let mut st: State<u32> = State::new(1, LEASE, bounds);
    let c = client(&mut st, b"c");
    let opens: Vec<_> = (0..4).map(|n| open(&mut st, c, n, &file(n))).collect();
    let promised: Vec<_> = opens.iter().map(|s| st.promise_open(s).is_some()).collect();
    assert_eq!(promised, [true, true, false, false]);
    st.files.close(c, &file(0), &opens[0]).expect("closed");
    assert!(st.promise_open(&opens[3]).is_some());
    assert!(st.promise_open(&opens[2]).is_none());
    // Without a log nothing is.
    let mut st: State<u32> = State::new(1, LEASE, Bounds::new(None));
    let c = client(&mut st, b"c");
    let s = open(&mut st, c, 1, &file(1));
    assert!(st.promise_open(&s).is_none() && !st.is_promised(&s));
}

#[test]
fn a_note_takes_no_more_than_is_counted() {
    let (owner, file) = (vec![1; 1024], vec![2; 128]);
    let names = (owner.len() + file.len()) as u64;
    let note = OpenNote { id: u64::MAX, mark: u32::MAX, client: u64::MAX, owner, file, promised: true };
    let bytes = Stamped { v: u64::MAX, note: Note::Open(note) }.to_bytes().len() as u64;
    /// The record around it: version, number, one fact, its length.
    const RECORD: u64 = 16;
    assert!(bytes + RECORD <= limits::OPEN_NOTE_BYTES + names, "{bytes} bytes");
}

#[test]
fn there_is_a_place_for_each_file_that_was_promised_one() {
    let mut st = instance(1);
    let c = client(&mut st, b"c");
    let (mine, other) = (file(1), file(2));
    let (s, o) = (open(&mut st, c, 1, &mine), open(&mut st, c, 1, &other));
    assert!(st.promise_open(&s).is_some());
    let many = |n: usize| (0..n).map(|n| Bytes::from(n.to_be_bytes().to_vec()));
    st.has_orphans(many(limits::ORPHANS_MAX - 2));
    assert!(st.promise_open(&o).is_some(), "the last place");
    st.files.close(c, &other, &o).expect("closed");
    st.has_orphans(many(limits::ORPHANS_MAX - 1));
    let o = open(&mut st, c, 1, &other);
    assert!(st.promise_open(&o).is_none());
    assert!(st.keep_unlinked(&other).is_none(), "nobody was told that it is kept");
    assert!(st.keep_unlinked(&mine).is_some());
    assert_eq!(st.files.preserved.orphans_len(), limits::ORPHANS_MAX);
}

#[test]
fn an_open_that_stays_goes_into_the_log_after_a_tick() {
    let mut st = instance(1);
    let c = client(&mut st, b"c");
    let (f, short) = (file(1), file(2));
    let s = open(&mut st, c, 1, &f);
    let gone = open(&mut st, c, 1, &short);
    assert!(!st.is_promised(&s) && !st.is_promised(&gone));
    let of_opens =
        |notes: Vec<Stamped>| notes.into_iter().filter(|n| matches!(n.note, Note::Open(_))).count();
    assert_eq!(of_opens(st.tick(1)), 0);
    st.files.close(c, &short, &gone).expect("closed");
    assert_eq!(of_opens(st.tick(2)), 1);
    assert_eq!(of_opens(st.tick(3)), 0);
    assert!(!st.is_promised(&s), "its client was told nothing");
    let mut st = restarted(2, &st.snapshot());
    assert!(st.keep_unlinked(&f).is_some() && st.keep_unlinked(&short).is_none());
}

fn opens_noted(notes: &[Stamped]) -> usize {
    notes.iter().filter(|n| matches!(n.note, Note::Open(_))).count()
}

#[test]
fn an_open_that_could_not_be_promised_goes_into_the_log_when_there_is_room() {
    let bounds = Bounds { open_bytes: 130, ..Bounds::new(Some(1 << 30)) };
    let mut st: State<u32> = State::new(1, LEASE, bounds);
    let c = client(&mut st, b"c");
    let (first, second) = (open(&mut st, c, 1, &file(1)), open(&mut st, c, 1, &file(2)));
    assert!(st.promise_open(&first).is_some() && st.promise_open(&second).is_none());
    st.files.close(c, &file(1), &first).expect("closed");
    st.tick(1);
    assert_eq!(opens_noted(&st.tick(2)), 1);
}

#[test]
fn a_former_open_that_the_log_does_not_know_goes_into_it() {
    let mut st = instance(1);
    let c = client(&mut st, b"c");
    let f = file(1);
    let s = open(&mut st, c, 1, &f);
    let mut st = restarted(2, &st.snapshot());
    st.adopt(1, c, &f, &s, READ).expect("nobody reclaims");
    st.tick(1);
    assert_eq!(opens_noted(&st.tick(2)), 1);
    let mut st = restarted(3, &st.snapshot());
    assert!(st.keep_unlinked(&f).is_some(), "it is known, used or not");
}

/// In the very transaction in which the log forgets what its owner had before the restart.
#[test]
fn an_orphan_that_is_opened_anew_outlasts_the_next_restart() {
    for used in [false, true] {
        let mut st = instance(1);
        let c = client(&mut st, b"c");
        let f = file(1);
        let s = open(&mut st, c, 1, &f);
        let notes = st.keep_unlinked(&f).expect("open");
        let mut log = with_clients(&st, notes);
        let mut st = restarted(2, &log);
        st.has_orphans([f.clone()]);
        if used {
            st.adopt(1, c, &f, &s, READ).expect("nobody reclaims");
        }
        open(&mut st, c, 1, &f);
        log.extend(st.take_gone());
        let mut st = restarted(3, &log);
        st.has_orphans([f.clone()]);
        st.tick(1);
        assert!(!st.files.preserved.any_released(), "it is open, {used}");
    }
}

/// An open whose owner the log does not know goes when another owner of its client opens the file, but not if the file has no name.
#[test]
fn of_an_orphan_an_open_of_an_unknown_owner_stays() {
    for (orphan, used) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut st = instance(1);
        let c = client(&mut st, b"c");
        let f = file(1);
        let s = open(&mut st, c, 1, &f);
        let mut st = restarted(2, &st.snapshot());
        st.adopt(1, c, &f, &s, READ).expect("nobody reclaims");
        let notes = st.keep_unlinked(&f).expect("open");
        let mut st = restarted(3, &with_clients(&st, notes));
        if orphan {
            st.has_orphans([f.clone()]);
        }
        if used {
            st.adopt(1, c, &f, &s, READ).expect("nobody reclaims");
        }
        let other = open(&mut st, c, 2, &f);
        st.files.close(c, &f, &other).expect("closed");
        assert_eq!(st.keep_unlinked(&f).is_some(), orphan, "{orphan} {used}");
        if orphan {
            if !st.close_unused_former(c, &f, &s) {
                st.files.close(c, &f, &s).expect("closed");
            }
            assert_eq!(st.files.preserved.take_released(), [f], "{used}");
        }
    }
}

#[test]
fn of_a_client_that_reclaims_all_stays_until_nobody_may() {
    let mut st = instance(1);
    let (c, d) = (client(&mut st, b"c"), client(&mut st, b"d"));
    let f = file(1);
    st.files.open(&file(9), c, &owner(9), READ, 2, None).expect("it denies");
    let (mine, theirs) = (open(&mut st, c, 1, &f), open(&mut st, d, 1, &f));
    let mut notes = st.keep_unlinked(&f).expect("open");
    assert_eq!(notes.len(), 2);
    notes.extend(st.note_holding(c));
    let mut st = restarted(2, &with_clients(&st, notes));
    st.has_orphans([f.clone()]);
    st.adopt(1, d, &f, &theirs, READ).expect("nobody reclaims");
    st.files.close(d, &f, &theirs).expect("closed");
    st.tick(1);
    assert!(!st.files.preserved.any_released(), "c may reclaim it");
    assert_eq!(st.files.find(c, &mine), Err(NfsStat::NFS4ERR_BAD_STATEID));
    st.reclaim_complete(c).expect("it has reclaimed nothing");
    st.tick(2);
    assert_eq!(st.files.preserved.take_released(), [f]);
}

/// After a restart nobody comes back: the file is kept as long as what else a silent client has.
#[test]
fn of_a_client_that_is_silent_for_very_long_nothing_stays() {
    let mut st = instance(1);
    let c = client(&mut st, b"c");
    let f = file(1);
    open(&mut st, c, 1, &f);
    let notes = st.keep_unlinked(&f).expect("open");
    let mut st = restarted(2, &with_clients(&st, notes));
    st.has_orphans([f.clone()]);
    st.tick(limits::COURTESY_MS);
    assert!(!st.files.preserved.any_released());
    st.tick(limits::COURTESY_MS + 1);
    assert_eq!((st.files.preserved.take_released(), st.clients.len()), (vec![f], 0));
}

/// Linux sends FREE_STATEID when a lock owner has no locks left, and goes on with the open.
#[test]
fn the_open_of_a_lock_that_came_back_outlasts_the_lock() {
    for unlinked in [true, false] {
        let mut st = instance(1);
        let c = client(&mut st, b"c");
        let f = file(1);
        let s = open(&mut st, c, 1, &f);
        let mut notes: Vec<_> = st.promise_open(&s).into_iter().collect();
        let span = Span::new(0, 10).expect("bytes");
        let locker = Locker::New { open: s, owner: owner(9) };
        let lock = st.files.lock(c, &f, &locker, LockType::Read, span).expect("nobody is in the way");
        notes.extend(st.log_locks(&lock));
        if unlinked {
            notes.extend(st.keep_unlinked(&f).expect("open"));
        }
        let mut st = restarted(2, &with_clients(&st, notes));
        if unlinked {
            st.has_orphans([f.clone()]);
        }
        let any = Stateid { seqid: 0, ..lock };
        let lock = st.files.unlock(c, &f, &any, span).expect("its lock");
        st.files.free(c, &lock).expect("nothing is locked");
        assert!(!st.files.preserved.any_released());
        assert!(st.files.find_on(c, &f, &Stateid { seqid: 0, ..s }).is_ok());
        if unlinked {
            assert!(st.files.preserved.is_orphan(&f));
            st.files.close(c, &f, &s).expect("closed");
            assert_eq!(st.files.preserved.take_released(), [f]);
        } else {
            assert!(st.keep_unlinked(&f).is_some(), "it was promised");
        }
    }
}

/// Room for one more client is made of those that hold nothing, also where the server does not know all yet.
#[test]
fn who_has_opens_of_before_the_restart_makes_no_room_for_others() {
    for (logged, orphan) in [(true, true), (true, false), (false, false)] {
        let mut st = instance(1);
        let c = client(&mut st, b"c");
        let f = file(1);
        open(&mut st, c, 1, &f);
        let notes = if logged { st.keep_unlinked(&f).expect("open") } else { Vec::new() };
        let mut st = restarted(2, &with_clients(&st, notes));
        if orphan {
            st.has_orphans([f.clone()]);
        }
        assert_eq!(st.make_room_for_client(1, HERE), Err(NfsStat::NFS4ERR_DELAY), "{logged} {orphan}");
        // A lease later it has used what only it knew of.
        st.clients.renew(c, LEASE);
        let room = st.make_room_for_client(LEASE + 1, HERE);
        assert_eq!(room.is_err(), logged, "{logged} {orphan}");
        assert!(!st.files.preserved.any_released());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Open(u8, u8),
    Close(u8, u8),
    Unlink(u8),
    Tick,
    /// The notes so far are durable, and those that wait go along.
    Flush,
    Crash,
    Use(u8, u8),
    ClientGoes(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (c, f) = (0..2u8, 0..3u8);
    prop_oneof![
        4 => (c.clone(), f.clone()).prop_map(|(c, f)| Step::Open(c, f)),
        3 => (c.clone(), f.clone()).prop_map(|(c, f)| Step::Close(c, f)),
        2 => f.clone().prop_map(Step::Unlink),
        1 => Just(Step::Tick),
        2 => Just(Step::Flush),
        2 => Just(Step::Crash),
        2 => (c.clone(), f).prop_map(|(c, f)| Step::Use(c, f)),
        1 => c.prop_map(Step::ClientGoes),
    ]
}

proptest! {
    /// Each open was promised to outlast its file's last name, and each step is durable when it is answered. So an orphan is there exactly as long as somebody has it
    /// open.
    #[test]
    fn an_orphan_is_there_as_long_as_it_is_open(steps in prop::collection::vec(step(), 1..60)) {
        let mut epoch = 1;
        let mut st = instance(epoch);
        let mut clients = [client(&mut st, b"c"), client(&mut st, b"d")];
        let mut log = st.snapshot();
        let mut opens: BTreeMap<(u8, u8), Stateid> = BTreeMap::new();
        // Which files have no name and are kept; each file of a number is another one after it is gone.
        let (mut unlinked, mut generation): (BTreeSet<u8>, BTreeMap<u8, u8>) = Default::default();
        let mut now = 0;
        for step in steps {
            now += 1;
            let key = |f: u8, generation: &BTreeMap<u8, u8>| {
                Bytes::from(vec![f, generation.get(&f).copied().unwrap_or(0)])
            };
            match step {
                Step::Open(c, f) if !unlinked.contains(&f) => {
                    let file = key(f, &generation);
                    let s = open(&mut st, clients[c as usize], 1, &file);
                    log.extend(st.promise_open(&s));
                    log.extend(st.take_gone());
                    opens.insert((c, f), s);
                }
                Step::Close(c, f) => if let Some(s) = opens.remove(&(c, f)) {
                    let (client, file) = (clients[c as usize], key(f, &generation));
                    let any = Stateid { seqid: 0, ..s };
                    if !st.close_unused_former(client, &file, &any) {
                        st.files.close(client, &file, &any).expect("closed");
                    }
                    log.extend(st.take_gone());
                }
                Step::Unlink(f) if !unlinked.contains(&f) => {
                    let open = opens.keys().any(|(_, of)| *of == f);
                    let notes = st.keep_unlinked(&key(f, &generation));
                    prop_assert_eq!(notes.is_some(), open);
                    log.extend(notes.unwrap_or_default());
                    if open {
                        unlinked.insert(f);
                    } else {
                        *generation.entry(f).or_default() += 1;
                    }
                }
                Step::Tick => log.extend(st.tick(now)),
                Step::Flush => log = st.snapshot(),
                Step::Crash => {
                    epoch += 1;
                    st = restarted(epoch, &log);
                    st.has_orphans(unlinked.iter().map(|f| key(*f, &generation)));
                    log.extend(st.tick(now));
                }
                Step::Use(c, f) => if let Some(s) = opens.get(&(c, f)) {
                    let (client, file) = (clients[c as usize], key(f, &generation));
                    let any = Stateid { seqid: 0, ..*s };
                    st.adopt(1, client, &file, &any, READ).expect("nobody reclaims");
                    prop_assert!(st.files.find_on(client, &file, &any).is_ok());
                }
                Step::ClientGoes(c) => {
                    log.extend(st.remove_client(clients[c as usize]));
                    opens.retain(|(of, _), _| *of != c);
                    clients[c as usize] = client(&mut st, if c == 0 { b"c" } else { b"d" });
                    log.extend(st.client_notes(clients[c as usize]));
                }
                Step::Open(..) | Step::Unlink(_) => {}
            }
            for file in st.files.preserved.take_released() {
                prop_assert!(st.may_remove(&file));
                let f = file[0];
                prop_assert_eq!(&file, &key(f, &generation));
                prop_assert!(unlinked.remove(&f), "it was kept");
                *generation.entry(f).or_default() += 1;
                prop_assert!(!opens.keys().any(|(_, of)| *of == f), "nobody has it open");
            }
            for f in &unlinked {
                prop_assert!(opens.keys().any(|(_, of)| of == f), "somebody has {} open", f);
            }
        }
    }
}
