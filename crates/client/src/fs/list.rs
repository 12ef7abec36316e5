//! Entries of directories, with attributes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use landfast_nfs::v4::args::ReaddirArgs;
use landfast_nfs::v4::attr::{AttrValues, Bitmap};
use landfast_nfs::v4::{ArgOp, FileHandle, FileType, NfsStat, OpNum, Verifier};

use super::action::{Action, Answer, Budget, Wants};
use super::meta::{Entry, LISTED, LOOKED};
use super::together::together;
use crate::compound::{OpError, Results, values};
use crate::limits::{LISTING_RESTARTS_MAX, READDIR_BYTES, READDIR_FIRST_BYTES};
use crate::overflow::{Key, Keys};

/// READDIR to the end. The first page is small, so that many directories fit in one reply.
#[derive(Debug, Clone)]
pub(super) struct List {
    mask: Bitmap,
    follow: bool,
    most: usize,
    cookie: u64,
    verifier: Verifier,
    page: u32,
    /// How often the server has refused to continue in this part.
    restarts: u32,
    given: Given,
    /// The listing began anew after a part: names that were given come again.
    again: bool,
    entries: Vec<Entry>,
}

#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) entries: Vec<Entry>,
    pub(super) rest: Option<Rest>,
}

/// Where a listing in parts continues.
#[derive(Debug, Clone, Default)]
pub(super) struct Rest {
    cookie: u64,
    verifier: Verifier,
    given: Given,
    again: bool,
}

/// The names in the parts that were given, by their hashes. If the server refuses to continue (its cookies hold no longer), the listing
/// begins anew, and these are left out. A million names take 18 MiB.
#[derive(Debug, Clone, Default)]
struct Given(Arc<Mutex<(Keys, HashSet<Key>)>>);

impl Given {
    fn add(&self, entries: &[Entry]) {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (keys, names) = &mut *given;
        names.extend(entries.iter().map(|entry| keys.of(&entry.name)));
    }

    fn has(&self, name: &[u8]) -> bool {
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (keys, names) = &*given;
        !names.is_empty() && names.contains(&keys.of(name))
    }
}

impl List {
    /// All entries. `follow`: follow a symbolic link at the end of the path.
    pub(super) fn new(mask: Bitmap, follow: bool) -> List {
        List {
            mask,
            follow,
            most: usize::MAX,
            cookie: 0,
            verifier: Verifier::default(),
            page: READDIR_FIRST_BYTES,
            restarts: 0,
            given: Given::default(),
            again: false,
            entries: Vec::new(),
        }
    }

    /// The same, but no further page after `most` entries.
    pub(super) fn up_to(self, most: usize) -> List {
        List { most, ..self }
    }

    /// The entries after `from` (`None`: from the first); no further page after `most` of them.
    pub(super) fn part(mask: Bitmap, from: Option<Rest>, most: usize) -> List {
        let page = if from.is_some() { READDIR_BYTES } else { READDIR_FIRST_BYTES };
        let Rest { cookie, verifier, given, again } = from.unwrap_or_default();
        List { most, cookie, verifier, page, given, again, ..List::new(mask, false) }
    }
}

together!(List);

impl Action for List {
    type Out = Listed;

    fn wants(&self) -> Wants {
        Wants::Object { follow: self.follow }
    }

    fn ops(&mut self, _: Option<&Bytes>, room: &Budget, out: &mut Vec<ArgOp>) {
        let room = u32::try_from(room.reply).unwrap_or(u32::MAX).saturating_sub(64);
        let maxcount = self.page.min(room);
        out.push(ArgOp::Readdir(ReaddirArgs {
            cookie: self.cookie,
            cookieverf: self.verifier,
            dircount: maxcount,
            maxcount,
            attr_request: self.mask,
        }));
    }

    fn changes(&self) -> bool {
        false
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<Listed>, OpError> {
        let page = match results.readdir() {
            Ok(page) => page,
            // One entry can be larger than a small page.
            Err(OpError::Failed { status: NfsStat::NFS4ERR_TOOSMALL, .. }) if self.page < READDIR_BYTES => {
                self.page = READDIR_BYTES;
                return Ok(Answer::More);
            }
            // The server cannot continue from an old cookie: start again.
            Err(OpError::Failed {
                status: NfsStat::NFS4ERR_BAD_COOKIE | NfsStat::NFS4ERR_NOT_SAME, ..
            }) if self.cookie != 0 && self.restarts < LISTING_RESTARTS_MAX => {
                (self.restarts, self.again) = (self.restarts + 1, true);
                (self.cookie, self.verifier) = (0, Verifier::default());
                self.entries.clear();
                return Ok(Answer::More);
            }
            Err(e @ OpError::Failed { status: NfsStat::NFS4ERR_SYMLINK, .. }) => {
                return if self.cookie == 0 && self.follow { Ok(Answer::Follow) } else { Err(e) };
            }
            Err(e) => return Err(e),
        };
        self.page = READDIR_BYTES;
        self.verifier = page.cookieverf;
        let before = self.cookie;
        for entry in page.entries {
            self.cookie = entry.cookie;
            let listed = Entry::of(&entry.name, &values(&entry.attrs)?)
                .map_err(|status| OpError::Failed { op: OpNum::READDIR, status })?;
            self.entries.extend(listed.filter(|entry| !self.again || !self.given.has(&entry.name)));
        }
        if page.eof || self.entries.len() >= self.most {
            let rest = (!page.eof).then(|| {
                self.given.add(&self.entries);
                let given = self.given.clone();
                Rest { cookie: self.cookie, verifier: self.verifier, given, again: self.again }
            });
            return Ok(Answer::Done(Listed { entries: std::mem::take(&mut self.entries), rest }));
        }
        if self.cookie == before {
            // A page without entries and without the end would repeat for ever.
            return Err(OpError::Failed { op: OpNum::READDIR, status: NfsStat::NFS4ERR_IO });
        }
        Ok(Answer::More)
    }
}

#[derive(Debug, Clone)]
pub struct FirstPage(pub(super) Page);

impl FirstPage {
    /// What has come, and where the listing continues.
    pub(super) fn listed(self) -> Listed {
        match self.0 {
            Page::Whole(entries) => Listed { entries, rest: None },
            Page::First(list) => {
                list.given.add(&list.entries);
                let List { cookie, verifier, given, again, entries, .. } = list;
                Listed { entries, rest: Some(Rest { cookie, verifier, given, again }) }
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Page {
    Whole(Vec<Entry>),
    /// The listing continues.
    First(List),
}

/// GETFH and GETATTR, and the first page of a directory's entries if it can be read.
#[derive(Debug)]
pub(super) struct LookInto {
    pub(super) follow: bool,
}

together!(LookInto);

impl Action for LookInto {
    type Out = (FileHandle, AttrValues, Option<FirstPage>);

    fn wants(&self) -> Wants {
        Wants::Object { follow: self.follow }
    }

    fn ops(&mut self, name: Option<&Bytes>, room: &Budget, out: &mut Vec<ArgOp>) {
        out.extend([ArgOp::Getfh, ArgOp::Getattr(LOOKED)]);
        List::new(LISTED, false).ops(name, room, out);
    }

    fn changes(&self) -> bool {
        false
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<Self::Out>, OpError> {
        let fh = results.getfh()?;
        let attrs = values(&results.getattr()?)?;
        match attrs.kind {
            Some(FileType::Lnk) if self.follow => return Ok(Answer::Follow),
            Some(FileType::Dir) => {}
            _ => return Ok(Answer::Done((fh, attrs, None))),
        }
        let mut list = List::new(LISTED, false);
        let first_page = match list.answer(results) {
            Ok(Answer::Done(listed)) => Some(Page::Whole(listed.entries)),
            Ok(Answer::More) => Some(Page::First(list)),
            // The error shows again when it is listed.
            _ => None,
        };
        Ok(Answer::Done((fh, attrs, first_page.map(FirstPage))))
    }
}

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::CompoundRes;
    use landfast_nfs::v4::res::{DirEntry, ReaddirRes, ResBody, ResOp};

    use super::*;
    use crate::compound::fattr;

    const NAMES: u64 = 100;
    const PAGE: u64 = 7;
    const PART: usize = 20;

    /// A directory of [`NAMES`] files. The cookie of a file is its number plus `from`, which is another one after each refusal, as is
    /// the order of the names.
    fn page(args: &ReaddirArgs, refusals: u64) -> ResOp {
        let from = 1 + refusals * 1000;
        let first = if args.cookie == 0 { 0 } else { args.cookie - from + 1 };
        let last = NAMES.min(first + PAGE);
        let entries = (first..last).map(|n| DirEntry {
            cookie: from + n,
            name: format!("name-{}", (n + 13 * refusals) % NAMES).into(),
            attrs: fattr(&AttrValues { kind: Some(FileType::Reg), ..AttrValues::default() }),
        });
        let body = ReaddirRes { cookieverf: [0; 8], entries: entries.collect(), eof: last == NAMES };
        ResOp { op: OpNum::READDIR, status: NfsStat::NFS4_OK, body: ResBody::Readdir(body) }
    }

    fn refused() -> ResOp {
        ResOp { op: OpNum::READDIR, status: NfsStat::NFS4ERR_BAD_COOKIE, body: ResBody::Empty }
    }

    /// The names that come in parts, if `refuses` says of each request with a cookie, by its number, whether it is refused.
    fn listed(refuses: impl Fn(u64) -> bool) -> Result<Vec<Bytes>, OpError> {
        let (mut names, mut asked, mut refusals) = (Vec::new(), 0, 0);
        let mut from = None;
        loop {
            let mut list = List::part(LISTED, from, PART);
            let part = loop {
                let mut ops = Vec::new();
                let room = Budget { ops: 8, request: 1 << 16, reply: 1 << 16, packs_data: false };
                list.ops(None, &room, &mut ops);
                let [ArgOp::Readdir(args)] = &ops[..] else { panic!("{ops:?}") };
                asked += u64::from(args.cookie != 0);
                let result = match args.cookie != 0 && refuses(asked) {
                    true => {
                        refusals += 1;
                        refused()
                    }
                    false => page(args, refusals),
                };
                let reply = CompoundRes { status: result.status, tag: Bytes::new(), results: vec![result] };
                match list.answer(&mut Results::new(reply))? {
                    Answer::Done(part) => break part,
                    Answer::More => {}
                    other => panic!("{other:?}"),
                }
            };
            names.extend(part.entries.into_iter().map(|entry| Bytes::from(entry.name.to_vec())));
            from = part.rest;
            if from.is_none() {
                return Ok(names);
            }
        }
    }

    #[test]
    fn each_entry_comes_once_whenever_the_server_refuses_to_continue() {
        for at in 1..=15 {
            let names = listed(|n| n == at || n == at + 3).unwrap();
            let different: HashSet<&Bytes> = names.iter().collect();
            assert_eq!((names.len(), different.len()), (NAMES as usize, NAMES as usize), "refused at {at}");
        }
    }

    #[test]
    fn a_server_that_never_continues_is_an_error() {
        let refused = listed(|_| true).unwrap_err();
        assert!(
            matches!(refused, OpError::Failed { status: NfsStat::NFS4ERR_BAD_COOKIE, .. }),
            "{refused:?}"
        );
    }
}
