//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17).
//!
//! Cookies are the volume's, which stay valid while entries come and go. So the cookie verifier is not needed: it is
//! zero, and the client's is ignored. Cookies 1 and 2, which the volume never uses, stand for `.` and `..`, which NFSv3
//! clients expect.

use super::context::{Context, Obj, fattr, handle};
use super::errors::status;
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v3::NfsStat3;
use landfast_nfs::v3::args::{ReaddirArgs, ReaddirplusArgs};
use landfast_nfs::v3::res::{Entry, EntryPlus, ReaddirOk, ReaddirRes, ReaddirplusOk, ReaddirplusRes};
use landfast_nfs::v3::types::List;
use landfast_volume::{Attrs, Cred, DirEntry, EntryDetail, Error, Node};
use landfast_xdr::padding;

const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// What a result takes besides its entries: attributes of the directory, verifier, end of the list, end of directory.
const AROUND: usize = 4 + ATTRS + 8 + 4 + 4;
/// `fattr3`.
const ATTRS: usize = 84;
/// The least that an entry takes: whether one follows, file id, name of up to four bytes, cookie.
const ENTRY_MIN: usize = 4 + 8 + 8 + 8;
/// The least that READDIRPLUS adds to it: attributes, and a handle of 32 bytes.
const PLUS_MIN: usize = 4 + ATTRS + 4 + 4 + 32;

pub(super) struct Found {
    fileid: u64,
    name: Bytes,
    cookie: u64,
    pub(super) object: Option<(Node, Attrs)>,
}

/// Bytes of an entry on the wire: what READDIR gives of it, and what READDIRPLUS adds.
fn sizes(e: &Found) -> (usize, usize) {
    let plain = 4 + 8 + 4 + e.name.len() + padding(e.name.len()) + 8;
    let plus = match &e.object {
        Some((node, _)) => {
            let fh = node.fh().len();
            4 + ATTRS + 4 + 4 + fh + padding(fh)
        }
        None => 8,
    };
    (plain, plus)
}

/// Room that is left in a result.
struct Room {
    bytes: usize,
    /// Of names, cookies and file ids alone.
    names: Option<usize>,
    plus: bool,
}

impl Room {
    /// Takes an entry's part; false when it does not fit. The first entry may take more than `dircount`, which is a hint.
    fn take(&mut self, e: &Found, first: bool) -> bool {
        let (plain, plus) = sizes(e);
        let all = plain + if self.plus { plus } else { 0 };
        if all > self.bytes || (!first && self.names.is_some_and(|left| plain > left)) {
            return false;
        }
        self.bytes -= all;
        self.names = self.names.map(|left| left.saturating_sub(plain));
        true
    }

    /// How many entries may still fit.
    fn entries(&self) -> usize {
        let each = ENTRY_MIN + if self.plus { PLUS_MIN } else { 0 };
        (self.bytes / each).clamp(1, limits::V3_READDIR_PAGE)
    }
}

impl Context<'_> {
    pub(super) fn readdir(&mut self, a: &ReaddirArgs) -> ReaddirRes {
        self.reading(&a.dir, |ctx, dir| {
            let (found, eof) = list(dir, a.cookie, room(a.count, None, false))?;
            let entry = |e: Found| Entry { fileid: e.fileid, name: e.name, cookie: e.cookie };
            let entries = List(found.into_iter().map(entry).collect());
            Ok(ReaddirOk { dir: ctx.attrs(dir), cookieverf: [0; 8], entries, eof })
        })
    }

    pub(super) fn readdirplus(&mut self, a: &ReaddirplusArgs) -> ReaddirplusRes {
        self.reading(&a.dir, |ctx, dir| {
            let read = || list(dir, a.cookie, room(a.maxcount, Some(a.dircount), true));
            let ends = ctx.sh.touches.ends();
            let (mut found, mut eof) = read()?;
            let shown = ctx.look_at_entries(&found)?;
            let last = shown.checked_sub(1).and_then(|at| found.get(at)).map(|e| e.cookie);
            let all = shown == found.len();
            // One has come back meanwhile, maybe with something that was read too early.
            if ctx.sh.touches.ends() != ends {
                (found, eof) = read()?;
            }
            if !all {
                // The rest comes with the next call.
                let upto = found.iter().position(|e| Some(e.cookie) == last);
                found.truncate(upto.map_or(shown, |at| at + 1));
                eof = false;
            }
            for e in &mut found {
                if let Some((node, attrs)) = &mut e.object {
                    ctx.rests_on_told(dir, node);
                    ctx.looks.show_in(node, attrs);
                }
            }
            let entry = |e: Found| EntryPlus {
                fileid: e.fileid,
                name: e.name,
                cookie: e.cookie,
                attrs: e.object.as_ref().map(|(_, attrs)| fattr(attrs)),
                object: e.object.and_then(|(node, _)| handle(&node).ok()),
            };
            let entries = List(found.into_iter().map(entry).collect());
            Ok(ReaddirplusOk { dir: ctx.attrs(dir), cookieverf: [0; 8], entries, eof })
        })
    }
}

fn room(count: u32, dircount: Option<u32>, plus: bool) -> Option<Room> {
    let bytes = (count.min(limits::READDIR_BYTES_MAX) as usize).checked_sub(AROUND)?;
    Some(Room { bytes, names: dircount.filter(|n| *n > 0).map(|n| n as usize), plus })
}

/// The entries after `cookie`, as many as fit, and whether the directory ends with them.
fn list(dir: &Obj, cookie: u64, room: Option<Room>) -> Result<(Vec<Found>, bool), NfsStat3> {
    dir.must_be_dir()?;
    let mut room = room.ok_or(NfsStat3::TOOSMALL)?;
    let mut found: Vec<Found> = Vec::new();
    let full = |found: Vec<Found>| {
        if found.is_empty() { Err(NfsStat3::TOOSMALL) } else { Ok((found, false)) }
    };
    for (at, name) in [(DOT, &b"."[..]), (DOT_DOT, &b".."[..])] {
        if cookie < at {
            let node = if at == DOT { dir.node.clone() } else { above(dir)? };
            let attrs = dir.volume().getattr(&node).map_err(status)?;
            let e = Found {
                fileid: attrs.fileid,
                name: Bytes::copy_from_slice(name),
                cookie: at,
                object: room.plus.then_some((node, attrs)),
            };
            if !room.take(&e, found.is_empty()) {
                return full(found);
            }
            found.push(e);
        }
    }
    let detail = if room.plus { EntryDetail::Attrs } else { EntryDetail::Names };
    let mut at = if cookie <= DOT_DOT { 0 } else { cookie };
    loop {
        let page = dir.volume().readdir(dir.cred(), &dir.node, at, room.entries(), detail).map_err(status)?;
        if page.entries.is_empty() {
            return Ok((found, true));
        }
        for e in page.entries {
            at = e.cookie;
            let Some(e) = entry(e) else { continue };
            if !room.take(&e, found.is_empty()) {
                return full(found);
            }
            found.push(e);
        }
        if page.eof {
            return Ok((found, true));
        }
    }
}

/// An entry of the volume; `None` when it went away while it was looked at. What cannot be looked at has no attributes and
/// no handle: the client asks for them.
fn entry(e: DirEntry) -> Option<Found> {
    let object = match e.object {
        None => None,
        Some(Ok(object)) => Some(object),
        Some(Err(Error::NoEnt | Error::Stale)) => return None,
        Some(Err(_)) => None,
    };
    Some(Found { fileid: e.fileid, name: e.name, cookie: e.cookie, object })
}

/// The directory above, whoever asks: its file id is no secret. The export's root is above itself.
fn above(dir: &Obj) -> Result<Node, NfsStat3> {
    match dir.volume().lookup_parent(&Cred::root(), &dir.node) {
        Ok(node) => Ok(node),
        Err(Error::NoEnt) => Ok(dir.node.clone()),
        Err(e) => Err(status(e)),
    }
}
