//! Directories' entries, with attributes.

use bytes::Bytes;
use landfast_nfs::v4::args::ReaddirArgs;
use landfast_nfs::v4::attr::Bitmap;
use landfast_nfs::v4::{ArgOp, NfsStat, OpNum, Verifier};

use super::action::{Action, Answer, Room, Wants};
use crate::compound::{OpError, Results, values};
use crate::limits::{READDIR_BYTES, READDIR_FIRST_BYTES};
use crate::ops::Entry;

/// READDIR to the end. The first page is small, so that many directories fit in one reply.
#[derive(Debug)]
pub(super) struct List {
    mask: Bitmap,
    cookie: u64,
    verifier: Verifier,
    page: u32,
    entries: Vec<Entry>,
}

impl List {
    pub(super) fn new(mask: Bitmap) -> List {
        List {
            mask,
            cookie: 0,
            verifier: Verifier::default(),
            page: READDIR_FIRST_BYTES,
            entries: Vec::new(),
        }
    }
}

impl Action for List {
    type Out = Vec<Entry>;

    fn wants(&self) -> Wants {
        Wants::Object { follow: true }
    }

    fn ops(&mut self, _: Option<&Bytes>, room: &Room, out: &mut Vec<ArgOp>) {
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

    fn answer(&mut self, results: &mut Results) -> Result<Answer<Vec<Entry>>, OpError> {
        let page = match results.readdir() {
            Ok(page) => page,
            // One entry can be larger than a small page.
            Err(OpError::Failed { status: NfsStat::NFS4ERR_TOOSMALL, .. }) if self.page < READDIR_BYTES => {
                self.page = READDIR_BYTES;
                return Ok(Answer::More);
            }
            // The server can go on from no cookie of before: from the start.
            Err(OpError::Failed {
                status: NfsStat::NFS4ERR_BAD_COOKIE | NfsStat::NFS4ERR_NOT_SAME, ..
            }) if self.cookie != 0 => {
                *self = List { page: READDIR_BYTES, ..List::new(self.mask) };
                return Ok(Answer::More);
            }
            Err(e @ OpError::Failed { status: NfsStat::NFS4ERR_SYMLINK, .. }) => {
                return if self.cookie == 0 { Ok(Answer::Follow) } else { Err(e) };
            }
            Err(e) => return Err(e),
        };
        self.page = READDIR_BYTES;
        self.verifier = page.cookieverf;
        let before = self.cookie;
        for entry in page.entries {
            self.cookie = entry.cookie;
            self.entries.push(Entry { name: entry.name, attrs: values(&entry.attrs)? });
        }
        if page.eof {
            return Ok(Answer::Done(std::mem::take(&mut self.entries)));
        }
        if self.cookie == before {
            // Neither an entry nor the end: a server that does this would do it for ever.
            return Err(OpError::Failed { op: OpNum::READDIR, status: NfsStat::NFS4ERR_IO });
        }
        Ok(Answer::More)
    }
}
