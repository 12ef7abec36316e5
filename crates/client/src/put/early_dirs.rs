//! Directories that are made in the session's first request: those of the members that were read by then. No I/O.
//!
//! They follow the listing of the destination in that request, so that no file waits for them in a round trip of its own. If a
//! directory's name exists already, the COMPOUND ends there. The directories after it are then made in the usual way. This earns a round trip ([`super::start`]).

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::args::{CreateArgs, CreateType};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{ArgOp, Fattr, FileHandle, NfsTime, OpNum, ResBody, ResOp, SetTime};
use landfast_xdr::Encode;

use super::attrs::{AttrRules, merge};
use super::source::Event;
use crate::archive::Kind;
use crate::compound::{detached, fattr};
use crate::cost::result_bytes;
use crate::session::SessionLimits;

/// A directory below the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewDir {
    /// Its names below the destination.
    pub(super) path: Vec<Bytes>,
    /// The index of its parent; `None`: the destination.
    pub(super) parent: Option<usize>,
    /// No member names it before those that are in it.
    pub(super) implied: bool,
    /// How many operations make it.
    ops: usize,
}

/// Directories, each after its parent.
#[derive(Debug, Default)]
pub(super) struct EarlyDirs {
    pub(super) dirs: Vec<NewDir>,
}

/// Bytes of a time of access among attributes.
const ACCESSED_BYTES: u32 = 24;

impl EarlyDirs {
    /// The directories of these members, as many as fit into `room`, with the encoded operations that make them in the current
    /// directory, and their count. The last directory gets the access time `accessed`.
    pub(super) fn of(
        events: &[Event],
        rules: &mut AttrRules,
        room: &SessionLimits,
        accessed: Option<NfsTime>,
    ) -> Option<(EarlyDirs, Bytes, usize)> {
        let request = room.request.saturating_sub(accessed.map_or(0, |_| ACCESSED_BYTES));
        let room = SessionLimits { request, ..*room };
        let mut packer = Packer::new(&room);
        // What has a name: a directory, or something else.
        let mut names: HashMap<Vec<Bytes>, Option<usize>> = HashMap::new();
        let mut last: &[Bytes] = &[];
        let implied = rules.implied_dir();
        'members: for event in events {
            let Event::Member(taken) = event else { continue };
            let Some((_, parents)) = taken.path.split_last() else { continue };
            if parents != last {
                for depth in 1..=parents.len() {
                    match names.get(&parents[..depth]) {
                        Some(Some(_)) => {}
                        Some(None) => continue 'members,
                        None if packer.add(&names, &parents[..depth], true, &implied) => {
                            names.insert(parents[..depth].to_vec(), Some(packer.dirs.len() - 1));
                        }
                        None => break 'members,
                    }
                }
                last = parents;
            }
            if taken.member.kind != Kind::Dir {
                names.entry(taken.path.clone()).or_insert(None);
            } else if !names.contains_key(&taken.path) {
                if !packer.add(&names, &taken.path, false, &rules.of(&taken.member).create) {
                    break;
                }
                names.insert(taken.path.clone(), Some(packer.dirs.len() - 1));
            }
        }
        if let Some(time) = accessed {
            packer.accessed(time);
        }
        let Packer { dirs, body, ops, .. } = packer;
        (!dirs.is_empty()).then(|| (EarlyDirs { dirs }, body.freeze(), ops))
    }

    /// The directories that were made, with their handles, according to the results of the operations.
    pub(super) fn made(self, results: Vec<ResOp>) -> Vec<(NewDir, FileHandle)> {
        let mut results = results.into_iter();
        let first = results.next();
        if !first.is_some_and(|r| r.op == OpNum::SAVEFH && r.status.is_ok()) {
            return Vec::new();
        }
        let made = |dir: NewDir| {
            let mine: Vec<ResOp> = results.by_ref().take(dir.ops).collect();
            let whole = mine.len() == dir.ops && mine.iter().all(|r| r.status.is_ok());
            match mine.into_iter().last().map(|r| r.body) {
                Some(ResBody::Getfh(fh)) if whole => Some((dir, detached(&fh))),
                _ => None,
            }
        };
        self.dirs.into_iter().map_while(made).collect()
    }
}

struct Packer<'a> {
    room: &'a SessionLimits,
    dirs: Vec<NewDir>,
    body: BytesMut,
    ops: usize,
    reply: usize,
    /// The CREATE of the last directory, and its offset in `body`.
    last: Option<(usize, CreateArgs)>,
}

impl Packer<'_> {
    fn new(room: &SessionLimits) -> Packer<'_> {
        let mut packer =
            Packer { room, dirs: Vec::new(), body: BytesMut::new(), ops: 0, reply: 0, last: None };
        packer.op(&ArgOp::Savefh);
        packer
    }

    fn op(&mut self, op: &ArgOp) {
        op.encode(&mut self.body);
        self.ops += 1;
        self.reply += result_bytes(op);
    }

    /// Adds a directory, unless there is no room for it. The current one is that which was made last.
    fn add(
        &mut self,
        names: &HashMap<Vec<Bytes>, Option<usize>>,
        path: &[Bytes],
        implied: bool,
        attrs: &Fattr,
    ) -> bool {
        let Some((name, parents)) = path.split_last() else { return false };
        let (bytes, ops, reply) = (self.body.len(), self.ops, self.reply);
        let parent = names.get(parents).copied().flatten();
        let is_current = self.dirs.last().map_or(parents.is_empty(), |last| last.path == parents);
        if !is_current {
            self.op(&ArgOp::Restorefh);
            parents.iter().for_each(|name| self.op(&ArgOp::Lookup(name.clone())));
        }
        let make = CreateArgs { kind: CreateType::Dir, name: name.clone(), attrs: attrs.clone() };
        let at = self.body.len();
        self.op(&ArgOp::Create(make.clone()));
        self.op(&ArgOp::Getfh);
        let fits = self.ops <= self.room.ops as usize
            && self.body.len() <= self.room.request as usize
            && self.reply <= self.room.response as usize;
        if fits {
            self.last = Some((at, make));
            self.dirs.push(NewDir { path: path.to_vec(), parent, implied, ops: self.ops - ops });
        } else {
            self.body.truncate(bytes);
            (self.ops, self.reply) = (ops, reply);
        }
        fits
    }

    /// Gives the last directory this access time.
    fn accessed(&mut self, time: NfsTime) {
        let Some((at, make)) = self.last.take() else { return };
        let time = AttrValues { time_access_set: Some(SetTime::ClientTime(time)), ..AttrValues::default() };
        let attrs = merge(&make.attrs, &fattr(&time));
        self.body.truncate(at);
        ArgOp::Create(CreateArgs { attrs, ..make }).encode(&mut self.body);
        ArgOp::Getfh.encode(&mut self.body);
    }
}

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::res::CreateRes;
    use landfast_nfs::v4::{ChangeInfo, NfsStat};
    use landfast_xdr::Reader;

    use super::super::options::PutOptions;
    use super::super::source::{Data, PendingMember};
    use super::*;
    use crate::archive::{Member, Time};

    fn events(members: &[&str]) -> Vec<Event> {
        let member = |name: &&str| {
            let kind = if name.ends_with('/') { Kind::Dir } else { Kind::Fifo };
            let path = name
                .split('/')
                .filter(|c| !matches!(*c, "" | "."))
                .map(|c| Bytes::from(c.to_owned()))
                .collect();
            let member = Member {
                mode: 0o755,
                mtime: Time { seconds: 1, nanos: 0 },
                ..Member::plain(name.as_bytes(), kind)
            };
            let (_, pieces) = tokio::sync::mpsc::channel(1);
            let (target, data, item, part) = (Vec::new(), Data::Pieces(pieces), None, None);
            Event::Member(Box::new(PendingMember { member, path, target, agreed: false, data, item, part }))
        };
        members.iter().map(member).collect()
    }

    fn early_dirs(members: &[&str], ops: u32) -> Option<(EarlyDirs, Vec<ArgOp>)> {
        let mut rules = AttrRules::new(&PutOptions::default(), true);
        let room = SessionLimits { ops, ..SessionLimits::ASK };
        let (dirs, body, count) = EarlyDirs::of(&events(members), &mut rules, &room, None)?;
        let mut r = Reader::new(body);
        let ops: Vec<ArgOp> = (0..count).map(|_| ArgOp::decode_lenient(&mut r).unwrap()).collect();
        assert_eq!(r.remaining(), 0);
        Some((dirs, ops))
    }

    fn shown(dir: &NewDir) -> String {
        String::from_utf8(dir.path.join(&b'/')).unwrap() + if dir.implied { "*" } else { "" }
    }

    fn dirs(members: &[&str]) -> Vec<String> {
        early_dirs(members, 1000).map(|(dirs, _)| dirs.dirs.iter().map(shown).collect()).unwrap_or_default()
    }

    #[test]
    fn each_directory_once_and_behind_the_one_that_holds_it() {
        assert_eq!(dirs(&["a/", "a/b/", "a/b/f", "a/c/d/f", "a/c/", "./"]), ["a", "a/b", "a/c*", "a/c/d*"]);
        assert_eq!(dirs(&["f", "g"]), [""; 0]);
        // What is no directory in the archive first is nothing to go through.
        assert_eq!(dirs(&["a", "a/", "a/b/", "a/c/f", "d/"]), ["d"]);
        let (dirs, _) = early_dirs(&["a/", "a/b/", "c/"], 1000).unwrap();
        assert_eq!(dirs.dirs.iter().map(|d| d.parent).collect::<Vec<_>>(), [None, Some(0), None]);
    }

    #[test]
    fn what_one_request_has_room_for() {
        let all: Vec<String> = (0..10).map(|i| format!("d{i}/")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        // SAVEFH; CREATE and GETFH; RESTOREFH, CREATE and GETFH.
        let (some, ops) = early_dirs(&all, 8).unwrap();
        assert_eq!((some.dirs.len(), ops.len()), (2, 6));
        assert!(early_dirs(&all, 2).is_none());
    }

    #[test]
    fn what_was_made_ends_at_the_first_failure() {
        let (some, ops) = early_dirs(&["a/", "a/b/", "c/"], 1000).unwrap();
        let result = |(i, op): (usize, &ArgOp)| match op {
            ArgOp::Create(args) => {
                let cinfo = ChangeInfo::default();
                ResOp::ok(op.op(), ResBody::Create(CreateRes { cinfo, attrset: args.attrs.mask }))
            }
            ArgOp::Getfh => ResOp::ok(op.op(), ResBody::Getfh(FileHandle(Bytes::from(vec![i as u8])))),
            _ => ResOp::ok(op.op(), ResBody::Empty),
        };
        let all: Vec<ResOp> = ops.iter().enumerate().map(result).collect();
        let mut most = all.clone();
        most.truncate(6);
        most.push(ResOp::failed(OpNum::CREATE, NfsStat::NFS4ERR_EXIST));
        let made = |results: Vec<ResOp>| {
            let (some, _) = early_dirs(&["a/", "a/b/", "c/"], 1000).unwrap();
            some.made(results).iter().map(|(dir, fh)| (shown(dir), fh.0[0])).collect::<Vec<_>>()
        };
        let [a, b, c] = [("a".to_owned(), 2), ("a/b".to_owned(), 4), ("c".to_owned(), 7)];
        assert_eq!((some.dirs.len(), made(all)), (3, vec![a.clone(), b.clone(), c]));
        assert_eq!(made(most), [a, b]);
        assert_eq!(made(Vec::new()), []);
    }
}
