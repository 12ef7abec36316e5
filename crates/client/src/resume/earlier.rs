//! Decides whether an earlier run extracted a member. No I/O.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher as _;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use siphasher::sip::SipHasher13;

use super::destination::Destination;
use super::done::DoneBefore;
use super::key::Key;
use crate::archive::{Kind, Member};
use crate::overflow::{Key as PathKey, OverflowError, Table};

/// What an earlier run did of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EarlierResult {
    /// The earlier run did not do it, or the result is missing at the destination.
    NotDone,
    Done,
    /// Done, but it replaced the target of an earlier hard link that must be done again. That link, whose path is given,
    /// cannot be made any more: it would refer to this member.
    DoneTooSoon(Vec<u8>),
    /// This run has made something else under its name.
    JustMade,
}

/// What this run has decided so far.
#[derive(Debug, Default)]
pub(super) struct MembersSoFar {
    /// Paths of members that are done again although later ones were done. Later members at these paths are done again, too.
    again: Paths,
    /// Targets of hard links that are done again, with the path of the link.
    targets: HashMap<u64, Vec<u8>>,
    done: Paths,
}

/// A set of paths, by their hashes. A long one is in a temporary file.
#[derive(Debug, Default)]
struct Paths(Table);

impl Paths {
    /// `Err`: it cannot be read back.
    fn has(&self, path: u64) -> Result<bool, OverflowError> {
        self.0.get(PathKey::of_hash(path)).map(|found| found.is_some())
    }

    fn add(&mut self, path: u64) {
        self.0.insert(PathKey::of_hash(path), 0);
        if let Some(trouble) = self.0.trouble() {
            tracing::warn!("{trouble}");
        }
    }
}

impl MembersSoFar {
    /// For a member of an archive. Not for directories: they are always done again, because their attributes are set last.
    pub(super) fn member(
        &mut self,
        key: Key,
        (before, destination): (&DoneBefore, &Destination),
        (number, member): (u64, &Member),
        [path, target]: [&[bytes::Bytes]; 2],
    ) -> EarlierResult {
        let numbered = |names: &[bytes::Bytes]| key.names(names.iter().map(|n| &n[..]));
        let own = numbered(path);
        let link = (member.kind == Kind::HardLink).then(|| numbered(target));
        // What cannot be read back is done again.
        let again = |path| self.again.has(path).unwrap_or(true);
        let again = again(own) || link.is_some_and(again);
        let done = before.members.has(number);
        if done && !again && destination.has(key, path, member) {
            return match self.targets.get(&own) {
                Some(link) => EarlierResult::DoneTooSoon(link.clone()),
                None => EarlierResult::Done,
            };
        }
        if number < before.members.end() {
            self.again.add(own);
            if let Some(target) = link {
                self.targets.insert(target, member.path.clone());
            }
        }
        EarlierResult::NotDone
    }

    /// For an object of a tree. Not for directories.
    pub(super) fn object(
        &mut self,
        key: Key,
        (before, destination): (&DoneBefore, &Destination),
        member: &Member,
    ) -> EarlierResult {
        let own = key.path(&member.path);
        if self.done.has(own).unwrap_or(false) {
            return EarlierResult::JustMade;
        }
        if !before.objects.has_path(own) {
            return EarlierResult::NotDone;
        }
        let names: Vec<bytes::Bytes> = member
            .path
            .split(|b| *b == b'/')
            .filter(|name| !name.is_empty())
            .map(bytes::Bytes::copy_from_slice)
            .collect();
        // If the journal does not have the first name, that copy failed, and this is a link to what there was of it.
        let first = (member.kind == Kind::HardLink).then(|| key.path(&member.link));
        let linked = first
            .is_some_and(|first| !before.objects.has_path(first) || self.again.has(first).unwrap_or(true));
        if before.objects.has(own, key.object(member)) && !linked && destination.has(key, &names, member) {
            self.done.add(own);
            return EarlierResult::Done;
        }
        self.again.add(own);
        EarlierResult::NotDone
    }
}

/// The digest of an archive that is being read.
#[derive(Clone)]
pub(crate) struct Running(Arc<Mutex<SipHasher13>>);

impl Running {
    pub(super) fn new(key: Key) -> Running {
        Running(Arc::new(Mutex::new(SipHasher13::new_with_keys(key.0, key.1))))
    }

    /// The digest of everything read so far.
    pub(crate) fn now(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

/// A reader that adds what it reads to a digest.
pub(crate) struct Digested<R>(pub(crate) R, pub(crate) Running);

impl<R: Read> Read for Digested<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buf)?;
        self.1.0.lock().unwrap_or_else(PoisonError::into_inner).write(&buf[..n]);
        Ok(n)
    }
}

/// Knows up to which member all are settled. For an archive that cannot be read twice: the next run sends later members
/// only if it has read the same bytes up to there.
#[derive(Debug, Default)]
pub(super) struct Watermark {
    /// All members below this number are settled.
    low: u64,
    /// Settled members above it, each with the digest after it, once that is known.
    above: BTreeMap<u64, Arc<OnceLock<u64>>>,
}

impl Watermark {
    /// Notes that a member is settled. Returns the new marks: the number of a member, and the digest before it.
    pub(super) fn settled(&mut self, number: u64, digest: Arc<OnceLock<u64>>) -> Vec<(u64, u64)> {
        self.above.insert(number, digest);
        let mut marks = Vec::new();
        while let Some(digest) = self.above.remove(&self.low) {
            self.low += 1;
            if let Some(digest) = digest.get() {
                put_mark(&mut marks, (self.low, *digest));
            }
        }
        marks
    }
}

/// Keeps only the latest mark and the very first one. The first one is enough to detect most other archives.
pub(super) fn put_mark(marks: &mut Vec<(u64, u64)>, mark: (u64, u64)) {
    marks.truncate(usize::from(marks.first().is_some_and(|(n, _)| *n == 1)));
    marks.push(mark);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Time;
    use bytes::Bytes;

    const KEY: Key = Key(3, 4);

    fn member(path: &str, kind: Kind, size: u64, link: &str) -> Member {
        Member {
            mode: 0o644,
            uid: 1,
            gid: 2,
            mtime: Time { seconds: 5, nanos: 6 },
            link: link.into(),
            size,
            stored: size,
            ..Member::plain(path.as_bytes(), kind)
        }
    }

    fn names(path: &str) -> Vec<Bytes> {
        path.split('/').filter(|n| !n.is_empty()).map(|n| Bytes::copy_from_slice(n.as_bytes())).collect()
    }

    /// What becomes of an archive whose members in `done` were, when all is there but `lost`.
    fn archive(members: &[Member], done: &[u64], lost: &[&str]) -> Vec<EarlierResult> {
        let mut before = DoneBefore::default();
        done.iter().for_each(|n| before.members.add(*n, n + 1));
        let lost: Vec<Vec<u8>> = lost.iter().map(|p| p.as_bytes().to_vec()).collect();
        let destination = Destination::here(move |path, _| !lost.iter().any(|l| l == path));
        let mut so_far = MembersSoFar::default();
        (0..)
            .zip(members)
            .map(|(n, m)| {
                let (path, target) = (
                    names(std::str::from_utf8(&m.path).unwrap()),
                    names(std::str::from_utf8(&m.link).unwrap()),
                );
                so_far.member(KEY, (&before, &destination), (n, m), [&path, &target])
            })
            .collect()
    }

    #[test]
    fn an_archive_goes_on_in_its_order() {
        let all = [
            member("a", Kind::File, 1, ""),
            member("b", Kind::HardLink, 0, "a"),
            member("a", Kind::File, 2, ""),
            member("c", Kind::File, 3, ""),
        ];
        use EarlierResult::{Done, NotDone};
        assert_eq!(archive(&all, &[0, 1], &[]), [Done, Done, NotDone, NotDone]);
        assert_eq!(archive(&all, &[0, 1, 2, 3], &[]), [Done, Done, Done, Done]);
        // One that failed, or is gone, is done again, and so is what came behind it under its name or as a link to it.
        assert_eq!(archive(&all, &[1, 2, 3], &[]), [NotDone, NotDone, NotDone, Done]);
        assert_eq!(archive(&all, &[0, 1, 2, 3], &["a"]), [NotDone, NotDone, NotDone, Done]);
        assert_eq!(archive(&all, &[0, 1, 2, 3], &["c"]), [Done, Done, Done, NotDone]);
        // The link would be to what took the name later.
        assert_eq!(
            archive(&all, &[0, 2, 3], &[]),
            [Done, NotDone, EarlierResult::DoneTooSoon(b"b".to_vec()), Done]
        );
    }

    #[test]
    fn objects_are_known_by_what_they_were() {
        let (a, b) = (member("t/a", Kind::File, 1, ""), member("t/b", Kind::HardLink, 0, "t/a"));
        let mut before = DoneBefore::default();
        for m in [&a, &b] {
            before.objects.insert(KEY.path(&m.path), KEY.object(m));
        }
        let run = |lost: bool, members: &[&Member]| -> Vec<EarlierResult> {
            let destination = Destination::here(move |path, _| !lost || path != b"t/a");
            let mut so_far = MembersSoFar::default();
            members.iter().map(|m| so_far.object(KEY, (&before, &destination), m)).collect()
        };
        use EarlierResult::{Done, JustMade, NotDone};
        let changed = Member { mtime: Time { seconds: 5, nanos: 7 }, ..a.clone() };
        assert_eq!(run(false, &[&a, &b]), [Done, Done]);
        assert_eq!(run(true, &[&a, &b]), [NotDone, NotDone]);
        assert_eq!(run(false, &[&changed, &b]), [NotDone, NotDone]);
        assert_eq!(run(false, &[&a, &changed]), [Done, JustMade]);
        assert_eq!(run(false, &[&member("t/c", Kind::File, 1, "")]), [NotDone]);
    }

    #[test]
    fn a_link_to_a_file_that_failed_is_not_done() {
        let (a, b) = (member("t/a", Kind::File, 1, ""), member("t/b", Kind::HardLink, 0, "t/a"));
        let mut before = DoneBefore::default();
        before.objects.insert(KEY.path(&b.path), KEY.object(&b));
        let destination = Destination::here(|_, _| true);
        let mut so_far = MembersSoFar::default();
        for m in [&a, &b] {
            assert_eq!(so_far.object(KEY, (&before, &destination), m), EarlierResult::NotDone);
        }
    }

    #[test]
    fn numbers_of_paths_do_not_depend_on_how_they_are_written() {
        assert_eq!(KEY.path(b"./a//b/"), KEY.names([&b"a"[..], b"b"]));
        assert_ne!(KEY.path(b"a/b"), KEY.path(b"ab"));
        assert_ne!(KEY.path(b"a/b"), Key(4, 3).path(b"a/b"));
    }

    #[test]
    fn marks_stand_where_all_before_is_settled() {
        let known = |digest: u64| Arc::new(OnceLock::from(digest));
        let mut watermark = Watermark::default();
        assert!(watermark.settled(2, known(12)).is_empty());
        assert!(watermark.settled(1, known(11)).is_empty());
        assert_eq!(watermark.settled(0, known(10)), [(1, 10), (3, 12)]);
        assert!(watermark.settled(4, known(14)).is_empty());
        assert_eq!(watermark.settled(3, known(13)), [(5, 14)]);
        // A file that was given up, of which not all has been read.
        assert!(watermark.settled(5, Arc::default()).is_empty());
        assert_eq!(watermark.settled(6, known(16)), [(7, 16)]);
    }
}
