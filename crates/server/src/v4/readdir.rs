//! READDIR (RFC 8881 section 18.23).
//!
//! Cookies are the volume's: 0 is the start, 1 and 2 are never given, others mean "after this entry" and stay good while
//! entries come and go. So the cookie verifier says nothing: it is zero, and what the client sends is not looked at.

use super::context::{Ctx, Done, Fh, Obj};
use crate::attr;
use crate::errors::status;
use crate::exports::pseudo::Pseudo;
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::args::ReaddirArgs;
use landfast_nfs::v4::attr::number::RDATTR_ERROR;
use landfast_nfs::v4::res::{DirEntry, ReaddirRes};
use landfast_nfs::v4::{Bitmap, Fattr, NfsStat, ResBody};
use landfast_volume::{EntryDetail, Error};
use landfast_xdr::padding;

/// What a result takes besides its entries: verifier, end of the list, end of directory.
const AROUND: usize = 8 + 4 + 4;
/// Entries asked of the volume at once.
const PAGE: usize = 256;

/// A result that grows up to its limits.
struct Page {
    entries: Vec<DirEntry>,
    /// Bytes left of `maxcount` and of the reply.
    left: usize,
    /// Bytes left of `dircount`: names and cookies.
    names_left: Option<usize>,
}

impl Page {
    /// Adds an entry; false when it does not fit.
    fn add(&mut self, cookie: u64, name: &Bytes, attrs: Fattr) -> bool {
        let name_bytes = 8 + 4 + name.len() + padding(name.len());
        let bytes = 4 + name_bytes + attrs.encoded_len();
        let names_fit = self.entries.is_empty() || self.names_left.is_none_or(|left| name_bytes <= left);
        if bytes > self.left || !names_fit {
            return false;
        }
        self.left -= bytes;
        self.names_left = self.names_left.map(|left| left.saturating_sub(name_bytes));
        self.entries.push(DirEntry { cookie, name: name.clone(), attrs });
        true
    }

    fn done(self, eof: bool) -> Done {
        if self.entries.is_empty() && !eof {
            return Err(NfsStat::NFS4ERR_TOOSMALL.into());
        }
        Ok(ResBody::Readdir(ReaddirRes { cookieverf: [0; 8], entries: self.entries, eof }))
    }
}

impl Ctx<'_> {
    /// READDIR.
    pub(super) fn readdir(&mut self, a: &ReaddirArgs) -> Done {
        if matches!(a.cookie, 1 | 2) {
            return Err(NfsStat::NFS4ERR_BAD_COOKIE.into());
        }
        let wanted = attr::readable(&a.attr_request, self.minor)?;
        let max = a.maxcount.min(limits::READDIR_BYTES_MAX) as usize;
        let max = max.min(self.room.saturating_sub(8));
        let page = Page {
            entries: Vec::new(),
            left: max.checked_sub(AROUND).ok_or(NfsStat::NFS4ERR_TOOSMALL)?,
            names_left: (a.dircount > 0).then_some(a.dircount as usize),
        };
        match self.fh()?.clone() {
            Fh::Node { .. } => self.read_volume(&self.dir()?, a.cookie, &wanted, page),
            Fh::Pseudo(dir) => {
                let mut page = page;
                for (cookie, name, step) in self.exports.pseudo.entries(dir, a.cookie) {
                    let Some(fh) = self.step_to(step)? else { continue };
                    let subject = self.subject(&fh, &wanted)?;
                    let fattr = attr::values(self.sh, self.minor, &subject, &wanted)?;
                    if !page.add(cookie, name, fattr) {
                        return page.done(false);
                    }
                }
                page.done(true)
            }
        }
    }

    fn read_volume(&self, dir: &Obj, mut cookie: u64, wanted: &Bitmap, mut page: Page) -> Done {
        let detail = if attr::needs_object(wanted) { EntryDetail::Attrs } else { EntryDetail::Names };
        loop {
            let found = dir.volume().readdir(dir.cred(), &dir.node, cookie, PAGE, detail)?;
            if found.entries.is_empty() && !found.eof {
                // Nothing but what is hidden: an end that the volume did not call one would loop for ever.
                return page.done(true);
            }
            for e in found.entries {
                let fattr = match e.object {
                    None => attr::entry_values(e.fileid, NfsStat::NFS4_OK, wanted),
                    Some(Ok((node, attrs))) => {
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
                    Some(Err(err)) if page.entries.is_empty() => return Err(err.into()),
                    Some(Err(_)) => return page.done(false),
                };
                if !page.add(e.cookie, &e.name, fattr) {
                    return page.done(false);
                }
                cookie = e.cookie;
            }
            if found.eof {
                return page.done(true);
            }
        }
    }
}
