//! READDIR (RFC 8881 section 18.23).
//!
//! Cookies are the volume's: 0 is the start, 1 and 2 are never used, others mean "after this entry" and stay valid
//! while entries come and go. So the cookie verifier is not needed: it is zero, and the client's is ignored.

use super::context::{Context, Fh, Obj, OpError, OpResult};
use crate::attr;
use crate::errors::status;
use crate::exports::pseudo::Pseudo;
use crate::exports::pseudo::Step;
use crate::limits;
use crate::state::delegations::Touch;
use bytes::{BufMut, BytesMut};
use landfast_nfs::v4::args::ReaddirArgs;
use landfast_nfs::v4::attr::number::RDATTR_ERROR;
use landfast_nfs::v4::{Bitmap, Fattr, NfsStat, ResBody};
use landfast_volume::faults::point;
use landfast_volume::{DirEntry, EntryDetail, Error};
use landfast_xdr::{Encode, padding, put_opaque};

/// What a result takes besides its entries: verifier, end of the list, end of directory.
const AROUND: usize = 8 + 4 + 4;
/// Room that a result is given at first, bytes.
const FIRST_ROOM: usize = 32 << 10;
/// Entries asked of the volume at once.
const PAGE: usize = 256;

/// A result that grows up to its limits.
struct Page {
    /// The verifier and the entries, encoded.
    out: BytesMut,
    entries: usize,
    /// Bytes left of `maxcount` and of the reply.
    left: usize,
    /// Bytes left of `dircount`: names and cookies.
    names_left: Option<usize>,
}

impl Page {
    /// Adds an entry; false when it does not fit.
    fn add(&mut self, cookie: u64, name: &[u8], attrs: &Fattr) -> bool {
        self.add_with(cookie, name, |out| attrs.encode(out))
    }

    /// Adds an entry whose attributes `put` appends; false when it does not fit.
    fn add_with(&mut self, cookie: u64, name: &[u8], put: impl FnOnce(&mut BytesMut)) -> bool {
        let before = self.out.len();
        let name_bytes = 8 + 4 + name.len() + padding(name.len());
        if self.entries > 0 && self.names_left.is_some_and(|left| name_bytes > left) {
            return false;
        }
        true.encode(&mut self.out);
        self.out.put_u64(cookie);
        put_opaque(name, &mut self.out);
        put(&mut self.out);
        let bytes = self.out.len() - before;
        if bytes > self.left {
            self.out.truncate(before);
            return false;
        }
        self.left -= bytes;
        self.names_left = self.names_left.map(|left| left.saturating_sub(name_bytes));
        self.entries += 1;
        true
    }

    /// How many of these entries may fit, but at least one.
    fn may_fit(&self, entries: &[DirEntry], wanted: &Bitmap) -> usize {
        let (mut left, mut names_left) = (self.left, self.names_left);
        let takes = |e: &DirEntry| {
            let name_bytes = 8 + 4 + e.name.len() + padding(e.name.len());
            let attrs = e.object.as_ref().and_then(|o| o.as_ref().ok());
            let attrs = attrs.map_or(0, |(node, attrs)| attr::bytes_min(attrs, node.wire(), wanted));
            let fits = 4 + name_bytes + attrs <= left && names_left.is_none_or(|left| name_bytes <= left);
            left = left.saturating_sub(4 + name_bytes + attrs);
            names_left = names_left.map(|left| left.saturating_sub(name_bytes));
            fits
        };
        entries.iter().map(takes).take_while(|fits| *fits).count().max(1)
    }

    fn done(mut self, eof: bool) -> OpResult {
        if self.entries == 0 && !eof {
            return Err(NfsStat::NFS4ERR_TOOSMALL.into());
        }
        false.encode(&mut self.out);
        eof.encode(&mut self.out);
        Ok(ResBody::Encoded(self.out.freeze()))
    }
}

impl Context<'_> {
    pub(super) fn readdir(&mut self, a: &ReaddirArgs) -> OpResult {
        if matches!(a.cookie, 1 | 2) {
            return Err(NfsStat::NFS4ERR_BAD_COOKIE.into());
        }
        let wanted = attr::readable(&a.attr_request, self.minor)?;
        let max = a.maxcount.min(limits::READDIR_BYTES_MAX) as usize;
        let max = max.min(self.room.saturating_sub(8));
        let mut out = BytesMut::with_capacity(FIRST_ROOM.min(max + 8));
        // The cookie verifier.
        out.put_u64(0);
        let page = Page {
            out,
            entries: 0,
            left: max.checked_sub(AROUND).ok_or(NfsStat::NFS4ERR_TOOSMALL)?,
            names_left: (a.dircount > 0).then_some(a.dircount as usize),
        };
        match self.fh()?.clone() {
            Fh::Node { .. } => self.read_volume(&self.dir()?, a.cookie, &wanted, page),
            Fh::Pseudo(dir) => {
                let mut page = page;
                let exports = self.exports.clone();
                for (cookie, name, step) in exports.pseudo.entries(dir, a.cookie) {
                    // Nobody waits who only looks.
                    if matches!(step, Step::Export { export, .. } if self.exports.down_at(export).is_some()) {
                        continue;
                    }
                    let Some(fh) = self.step_to(step)? else { continue };
                    if attr::a_directory_holder_changes(&wanted)
                        // Who may not use it with his flavor sees it all the same.
                        && let Ok(Some(root)) = self.object(&fh)
                    {
                        self.touch(&root, Touch::Looks)?;
                    }
                    let subject = self.subject(&fh, &wanted)?;
                    let fattr = attr::values(self.sh, self.minor, &subject, &wanted)?;
                    if !page.add(cookie, name, &fattr) {
                        return page.done(false);
                    }
                }
                page.done(true)
            }
        }
    }

    fn read_volume(&mut self, dir: &Obj, mut cookie: u64, wanted: &Bitmap, mut page: Page) -> OpResult {
        let detail = if attr::needs_object(wanted) { EntryDetail::Attrs } else { EntryDetail::Names };
        let looks = attr::a_writer_changes(wanted) || attr::a_directory_holder_changes(wanted);
        let given = self.sh.touches.given();
        if attr::only_stat_attrs(wanted) && !(looks && self.others_have_delegations()) {
            point("listing.begun");
            let goes_on = || !looks || self.sh.touches.given() == given;
            if let Some(eof) = list_own(dir, &mut cookie, wanted, detail, &mut page, goes_on)? {
                return page.done(eof);
            }
        }
        let mut ends_here = false;
        loop {
            let read = |cookie| dir.volume().readdir(dir.cred(), &dir.node, cookie, PAGE, detail);
            let ends = self.sh.touches.ends();
            let mut found = read(cookie)?;
            // Of what is given from now on, this has been read before.
            let asks = looks && self.others_have_delegations();
            if found.entries.is_empty() && !found.eof {
                // Nothing but what is hidden: an end that the volume did not call one would loop for ever.
                return page.done(true);
            }
            // How many are shown, and the last of them, where not all are.
            let mut cut = None;
            if asks {
                let fit = page.may_fit(&found.entries, wanted).min(found.entries.len());
                let fitting = found.entries.get(..fit).unwrap_or_default();
                let shown = self.look_at_entries(fitting, wanted, page.entries > 0)?;
                let last = shown.checked_sub(1).and_then(|at| found.entries.get(at)).map(|e| e.cookie);
                cut = (shown < found.entries.len()).then_some((shown, last));
            }
            // One has come back meanwhile, maybe with something that was read too early.
            if looks && self.sh.touches.ends() != ends {
                found = read(cookie)?;
            }
            if let Some((shown, last)) = cut {
                // The rest comes with the next READDIR.
                let Some(last) = last else { return page.done(false) };
                let upto = found.entries.iter().position(|e| e.cookie == last);
                found.entries.truncate(upto.map_or(shown, |at| at + 1));
                found.eof = false;
                ends_here = true;
            }
            for e in found.entries {
                let fattr = match e.object {
                    None => attr::entry_values(e.fileid, NfsStat::NFS4_OK, wanted),
                    Some(Ok((node, attrs))) => {
                        self.rests_on_told(&dir.export, &node);
                        let handle = if dir.by_path { Pseudo::by_path(&node.fh()) } else { node.fh() };
                        let subject = self.subject_of(handle, &dir.export, &node, dir.by_path, attrs, wanted);
                        match subject {
                            Ok(subject) => attr::values(self.sh, self.minor, &subject, wanted)?,
                            Err(NfsStat::NFS4ERR_STALE) => {
                                cookie = e.cookie;
                                continue;
                            }
                            Err(why) if wanted.has(RDATTR_ERROR) => attr::entry_values(e.fileid, why, wanted),
                            Err(why) => return Err(why.into()),
                        }
                    }
                    // It went away in between.
                    Some(Err(Error::NoEnt | Error::Stale)) => {
                        cookie = e.cookie;
                        continue;
                    }
                    Some(Err(err)) if wanted.has(RDATTR_ERROR) => {
                        attr::entry_values(e.fileid, status(err), wanted)
                    }
                    Some(Err(err)) if page.entries == 0 => return Err(err.into()),
                    Some(Err(_)) => return page.done(false),
                };
                if !page.add(e.cookie, &e.name, &fattr) {
                    return page.done(false);
                }
                cookie = e.cookie;
            }
            if found.eof || ends_here {
                return page.done(found.eof);
            }
        }
    }
}

/// The entries with attributes for which no further question is needed, from the directory straight into the result, as long as it `goes_on` without
/// delegations of others. Returns whether the directory ends here; `None` when it does not go on after the entry of `cookie`.
fn list_own(
    dir: &Obj,
    cookie: &mut u64,
    wanted: &Bitmap,
    detail: EntryDetail,
    page: &mut Page,
    goes_on: impl Fn() -> bool,
) -> Result<Option<bool>, OpError> {
    let (mut failed, mut interrupted) = (None, false);
    let mut mask = BytesMut::new();
    wanted.encode(&mut mask);
    let eof = dir.volume().list(dir.cred(), &dir.node, *cookie, detail, |e| {
        // After its attributes were read.
        interrupted = !goes_on();
        if interrupted {
            return false;
        }
        *cookie = e.cookie;
        let error = match e.object {
            None => NfsStat::NFS4_OK,
            Some(Ok((node, attrs))) => {
                let (handle, mut attrs) = (node.wire(), *attrs);
                let by_path;
                let handle = if dir.by_path {
                    attrs.fsid = Pseudo::by_path_fsid(attrs.fsid);
                    by_path = Pseudo::by_path(handle);
                    &by_path
                } else {
                    handle
                };
                return page.add_with(e.cookie, e.name, |out| {
                    out.extend_from_slice(&mask);
                    let values = attr::StatValues::new(&attrs, handle, attrs.fileid, wanted);
                    put_opaque(values.bytes(), out);
                });
            }
            // It went away in between.
            Some(Err(Error::NoEnt | Error::Stale)) => return true,
            Some(Err(err)) if wanted.has(RDATTR_ERROR) => status(err),
            Some(Err(err)) => {
                failed = Some(err);
                return false;
            }
        };
        page.add(e.cookie, e.name, &attr::entry_values(e.fileid, error, wanted))
    })?;
    match failed {
        Some(err) if page.entries == 0 => Err(err.into()),
        _ => Ok((!interrupted).then_some(eof)),
    }
}
