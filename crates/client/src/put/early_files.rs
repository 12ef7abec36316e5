//! Files that are sent after the request that makes their directories, before its reply. No I/O. This earns a round trip
//! ([`super::start`]).
//!
//! COMPOUNDs in flight together have no order. So each of these begins with a guard: VERIFY that the last of the directories
//! exists, with the access time that the first request gives it. If it does, that request has made all of them, and they hold only what
//! this run has put there. Otherwise nothing of the COMPOUND is executed, and its members are sent again in the usual way.
//!
//! Sent this way are:
//! - whole files in these directories, up to the first hard link, if no earlier member has the same path;
//! - the final attributes of directories into which nothing else is put.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{ArgOp, Fattr, NfsTime};

use super::attrs::AttrRules;
use super::early_dirs::{EarlyDirs, NewDir};
use super::pack::{Batch, Capacity, Mark, Packer, Parts, Piece, Route};
use super::plan::leaves_open;
use super::source::{Data, Event};
use super::tree::{DirId, ItemId};
use crate::archive::Kind;
use crate::compound::fattr;

/// A directory that is being made.
struct Place {
    /// Its names, from the server's root.
    names: Vec<Bytes>,
    /// Its final attributes, if its member has come.
    finish: Option<Fattr>,
    /// The final attributes must wait for members that are not sent here.
    waits: bool,
    /// Files that are sent here and not yet finished.
    files: usize,
}

/// The files that can be sent. A COMPOUND names its members by their indices among the events, and directories by their indices in
/// [`EarlyDirs`].
pub(super) struct EarlyFiles {
    capacity: Capacity,
    guard: Vec<ArgOp>,
    places: Vec<Place>,
    by_path: HashMap<Vec<Bytes>, usize>,
    /// Paths of all members so far.
    seen: HashSet<Vec<Bytes>>,
    /// How many events were looked at.
    looked: usize,
    /// Files to send: the index of the event, and that of the directory.
    files: VecDeque<(usize, usize)>,
    /// A hard link came.
    linked: bool,
    ended: bool,
    /// Compounds so far.
    pub(super) number: u64,
}

impl EarlyFiles {
    /// `top`: the destination's names, from the server's root. `accessed`: the access time of the last directory.
    pub(super) fn new(
        dirs: &EarlyDirs,
        top: &[Vec<u8>],
        accessed: NfsTime,
        capacity: Capacity,
    ) -> EarlyFiles {
        let top: Vec<Bytes> = top.iter().map(|name| Bytes::copy_from_slice(name)).collect();
        let place = |dir: &NewDir| {
            let names = [&top[..], &dir.path].concat();
            Place { names, finish: None, waits: dir.implied, files: 0 }
        };
        let places: Vec<Place> = dirs.dirs.iter().map(place).collect();
        let by_path = dirs.dirs.iter().enumerate().map(|(i, dir)| (dir.path.clone(), i)).collect();
        let mut guard = vec![ArgOp::Putrootfh];
        let last = places.last().map(|last| last.names.as_slice()).unwrap_or_default();
        guard.extend(last.iter().cloned().map(ArgOp::Lookup));
        let accessed = AttrValues { time_access: Some(accessed), ..AttrValues::default() };
        guard.push(ArgOp::Verify(fattr(&accessed)));
        EarlyFiles {
            capacity,
            guard,
            places,
            by_path,
            seen: HashSet::new(),
            looked: 0,
            files: VecDeque::new(),
            linked: false,
            ended: false,
            number: 0,
        }
    }

    fn look(&mut self, events: &[Event], rules: &mut AttrRules) {
        for (i, event) in events.iter().enumerate().skip(self.looked) {
            let taken = match event {
                Event::Member(taken) => taken,
                Event::End(_) => {
                    self.ended = true;
                    continue;
                }
                _ => continue,
            };
            let Some((_, parents)) = taken.path.split_last() else { continue };
            let (again, kind) = (!self.seen.insert(taken.path.clone()), taken.member.kind);
            self.linked |= kind == Kind::HardLink;
            let attrs = rules.of(&taken.member);
            // Extended ones may be none that the destination has.
            let plain = attrs.xattrs.is_empty();
            if let Some(place) = self.by_path.get(&taken.path).map(|dir| &mut self.places[*dir]) {
                place.finish = Some(attrs.finish);
                place.waits |= again || kind != Kind::Dir || !plain;
                continue;
            }
            let whole = matches!(taken.data, Data::Whole(..)) && plain;
            let goes = kind == Kind::File && whole && !again && !self.linked;
            match self.by_path.get(parents) {
                Some(&dir) if goes => {
                    self.places[dir].files += 1;
                    self.files.push_back((i, dir));
                }
                _ => self.put_later(parents),
            }
        }
        self.looked = events.len();
    }

    /// A member that is not sent here goes into this directory.
    fn put_later(&mut self, parents: &[Bytes]) {
        let nearest = (1..=parents.len()).rev().find_map(|n| self.by_path.get(&parents[..n]));
        if let Some(&dir) = nearest {
            self.places[dir].waits = true;
        }
    }

    /// The next COMPOUND; `None` if it would not be full and more files may come, or if there are no files.
    pub(super) fn next(&mut self, events: &[Event], rules: &mut AttrRules) -> Option<Batch> {
        self.look(events, rules);
        while self.files.len() >= self.capacity.members || (self.ended && !self.files.is_empty()) {
            let mut packer = Packer::guarded(self.capacity, self.number + 1, &self.guard);
            let filled = self.fill(&mut packer, events, rules);
            if packer.is_empty() {
                // Alone it does not fit either.
                if let Some((_, dir)) = self.files.pop_front() {
                    self.places[dir].waits = true;
                }
                continue;
            }
            self.number += 1;
            if self.ended {
                self.finish(&mut packer, &filled);
            }
            return Some(packer.finish());
        }
        None
    }

    /// Packs as many files as fit. Returns how many are in each directory.
    fn fill(
        &mut self,
        packer: &mut Packer,
        events: &[Event],
        rules: &mut AttrRules,
    ) -> HashMap<usize, usize> {
        let mut filled: HashMap<usize, usize> = HashMap::new();
        // The directory that is being filled, and where that began if there was much before it already.
        let mut filling: Option<(usize, Option<Mark>)> = None;
        let mut taken = 0;
        while !packer.is_full()
            && let Some(&(i, dir)) = self.files.get(taken)
            && let Some(Event::Member(member)) = events.get(i)
            && let (Some(name), Data::Whole(data, _)) = (member.path.last(), &member.data)
        {
            let begins = filling.is_none_or(|(last, _)| last != dir);
            let mark = (begins && packer.is_half_full()).then(|| packer.mark());
            let attrs = rules.of(&member.member);
            let piece = Piece {
                at: self.route(dir),
                name,
                replace: false,
                create: &attrs.create,
                xattrs: &[],
                finish: &attrs.finish,
                look: true,
                parts: Parts::File(data),
                stay: self.files.get(taken + 1).is_some_and(|next| next.1 == dir),
            };
            if !packer.add(ItemId(i as u32), &piece) {
                break;
            }
            if begins {
                filling = Some((dir, mark));
            }
            *filled.entry(dir).or_default() += 1;
            taken += 1;
        }
        // A directory that does not fit as a whole goes with the next one, which can then finish it.
        if let (true, Some((dir, Some(mark)))) = (self.ended, filling)
            && self.files.get(taken).is_some_and(|next| next.1 == dir)
        {
            taken -= packer.back_to(mark).len();
            filled.remove(&dir);
        }
        self.files.drain(..taken);
        filled
    }

    /// Lets directories have their last attributes: those whose files are all in it, and behind the last file those that hold none.
    fn finish(&mut self, packer: &mut Packer, filled: &HashMap<usize, usize>) {
        for dir in 0..self.places.len() {
            let place = &self.places[dir];
            let here = filled.get(&dir).copied();
            let all = here == Some(place.files) || (place.files == 0 && self.files.is_empty());
            if let Some(attrs) =
                place.finish.as_ref().filter(|attrs| all && !place.waits && leaves_open(attrs))
                && !attrs.mask.is_empty()
            {
                packer.finish_dir(&self.route(dir), attrs);
            }
        }
    }

    fn route(&self, dir: usize) -> Route {
        Route { dir: DirId(dir as u32), from: None, names: self.places[dir].names.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use landfast_xdr::Reader;
    use tokio::sync::Semaphore;

    use super::super::options::PutOptions;
    use super::super::source::PendingMember;
    use super::*;
    use crate::archive::{Member, Time};
    use crate::session::SessionLimits;

    const WHEN: NfsTime = NfsTime { seconds: 9, nseconds: 8 };

    /// `d/` is a directory, `l=` a hard link, `s@` a symbolic link, `big+` a file that comes in pieces.
    fn event(name: &str) -> Event {
        let (path, kind) = match name.as_bytes().last() {
            Some(b'/') => (&name[..name.len() - 1], Kind::Dir),
            Some(b'=') => (&name[..name.len() - 1], Kind::HardLink),
            Some(b'@') => (&name[..name.len() - 1], Kind::Symlink),
            Some(b'+') => (&name[..name.len() - 1], Kind::File),
            _ => (name, Kind::File),
        };
        let member = Member {
            mode: 0o755,
            mtime: Time { seconds: 1, nanos: 0 },
            size: 1,
            stored: 1,
            ..Member::plain(path.as_bytes(), kind)
        };
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let data = match name.ends_with('+') {
            true => Data::Pieces(tokio::sync::mpsc::channel(1).1),
            false => Data::Whole(Bytes::from_static(b"x"), permit),
        };
        let path = path.split('/').map(|c| Bytes::from(c.to_owned())).collect();
        Event::Member(Box::new(PendingMember {
            member,
            path,
            target: Vec::new(),
            data,
            item: None,
            part: None,
            agreed: false,
        }))
    }

    fn rules() -> AttrRules {
        AttrRules::new(&PutOptions::default(), true)
    }

    /// What goes behind the directories of so many of these members: of each compound its files, and the directories that it
    /// finishes.
    fn sent(members: &[&str], known: usize, files: usize) -> Vec<(Vec<String>, Vec<String>)> {
        let mut events: Vec<Event> = members.iter().map(|name| event(name)).collect();
        let (dirs, ..) = EarlyDirs::of(&events[..known], &mut rules(), &SessionLimits::ASK, Some(WHEN))
            .expect("directories");
        let capacity = Capacity::new(&SessionLimits::ASK, files, 1 << 20);
        let mut early = EarlyFiles::new(&dirs, &[b"top".to_vec()], WHEN, capacity);
        let mut all = Vec::new();
        let mut rules = rules();
        let unended = early.next(&events, &mut rules);
        assert!(
            unended.as_ref().is_none_or(|batch| batch.members.len() == files && batch.finished.is_empty())
        );
        all.extend(unended);
        events.push(Event::End(None));
        all.extend(std::iter::from_fn(|| early.next(&events, &mut rules)));
        assert_eq!(early.number, all.len() as u64);
        let shown = |batch: &Batch| {
            let mut r = Reader::new(batch.body.clone());
            let ops: Vec<ArgOp> = (0..batch.ops).map(|_| ArgOp::decode_lenient(&mut r).unwrap()).collect();
            assert_eq!(ops[..batch.guard], early.guard);
            assert!(matches!(ops[batch.guard - 1], ArgOp::Verify(_)));
            let files = batch.members.iter().map(|(id, _)| members[id.0 as usize].to_owned()).collect();
            let path = |dir: &Bytes| String::from_utf8(dir.to_vec()).unwrap();
            let dirs = batch.finished.iter().map(|(id, _)| {
                early.places[id.0 as usize].names.iter().skip(1).map(path).collect::<Vec<_>>().join("/")
            });
            (files, dirs.collect())
        };
        all.iter().map(shown).collect()
    }

    fn shown(compounds: &[(&[&str], &[&str])]) -> Vec<(Vec<String>, Vec<String>)> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        compounds.iter().map(|(files, dirs)| (owned(files), owned(dirs))).collect()
    }

    #[test]
    fn files_whose_directories_are_being_made() {
        let all = ["a/", "a/b/", "a/b/f", "a/b/g", "a/c/", "a/c/f", "top", "n/f"];
        // Those that the first request did not make are not named; what is in the destination itself may be there.
        assert_eq!(sent(&all, 6, 10), shown(&[(&["a/b/f", "a/b/g", "a/c/f"], &["a", "a/b", "a/c"])]));
        assert_eq!(sent(&all, 4, 10), shown(&[(&["a/b/f", "a/b/g"], &["a/b"])]));
        // A directory is finished by the compound that has all of its files.
        assert_eq!(
            sent(&all, 6, 2),
            shown(&[(&["a/b/f", "a/b/g"], &[]), (&["a/c/f"], &["a", "a/c"])]),
            "the first was full before the end was known"
        );
    }

    #[test]
    fn what_has_an_order_keeps_it() {
        // A second member of the same name, what is no plain file, and all behind a hard link.
        assert_eq!(sent(&["a/", "a/f", "a/f", "a/g"], 4, 9), shown(&[(&["a/f", "a/g"], &[])]));
        assert_eq!(sent(&["a/", "a/s@", "a/big+", "a/g"], 4, 9), shown(&[(&["a/g"], &[])]));
        assert_eq!(sent(&["a/", "a/f", "a/l=", "a/g", "b/"], 5, 9), shown(&[(&["a/f"], &["b"])]));
        // Directories that are named again, or later than what is in them, or get more at the end.
        assert_eq!(sent(&["a/", "b/", "b/f", "b/", "a/d/e/f"], 4, 9), shown(&[(&["b/f"], &[])]));
        assert_eq!(sent(&["a/f", "a/"], 2, 9), shown(&[(&["a/f"], &[])]));
    }
}
