//! Whole objects by handle: data, extended attributes, and their attributes after the data was read.

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::args::{ListxattrsArgs, ReadArgs};
use landfast_nfs::v4::attr::{Bitmap, number};
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat, OpNum, Stateid};

use super::action::{Action, Answer, Budget, Wants};
use super::data::Read;
use super::item::Item;
use super::meta::Meta;
use super::together::together;
use super::{Nfs, Outcome};
use crate::compound::{OpError, Results, values};
use crate::limits::{LISTXATTRS_BYTES, READ_BYTES, READ_BYTES_MIN, XATTR_BYTES_MAX, XATTRS_MAX};
use crate::ops::STAT;
use crate::url::Version;

/// Name (without a namespace, RFC 8276 section 1) and value.
pub type Xattr = (Bytes, Bytes);

#[derive(Debug, Clone)]
pub struct Wanted {
    pub fh: FileHandle,
    /// The first so many bytes of the data. With 0 it need not be a file.
    pub bytes: u64,
    /// Whether extended attributes are wanted.
    pub xattrs: bool,
}

#[derive(Debug, Clone)]
pub struct Fetched {
    /// Fewer bytes than wanted if the file is shorter.
    pub data: Bytes,
    /// The attributes after all data was read.
    pub meta: Meta,
    /// Sorted by name.
    pub xattrs: Vec<Xattr>,
}

/// READ, GETATTR and LISTXATTRS; further READs and GETXATTRs.
#[derive(Debug)]
struct Fetch {
    left: u64,
    at: u64,
    data: BytesMut,
    last: Bytes,
    meta: Option<Meta>,
    /// The cookie where listing extended attributes continues, if they are not all listed.
    list: Option<u64>,
    /// Whether the last segment lists them.
    listing: bool,
    names: Vec<Bytes>,
    xattrs: Vec<Xattr>,
    doing: FetchStep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FetchStep {
    Read,
    List,
    Values(usize),
}

impl Fetch {
    fn new(bytes: u64, xattrs: bool) -> Fetch {
        Fetch {
            left: bytes,
            at: 0,
            data: BytesMut::new(),
            last: Bytes::new(),
            meta: None,
            list: xattrs.then_some(0),
            listing: false,
            names: Vec::new(),
            xattrs: Vec::new(),
            doing: FetchStep::Read,
        }
    }

    fn list_op(&mut self, out: &mut Vec<ArgOp>) {
        if let Some(cookie) = self.list {
            self.listing = true;
            out.push(ArgOp::Listxattrs(ListxattrsArgs { cookie, maxcount: LISTXATTRS_BYTES }));
        }
    }

    fn listed(&mut self, results: &mut Results) -> Result<(), OpError> {
        if !std::mem::take(&mut self.listing) {
            return Ok(());
        }
        self.list = match results.listxattrs() {
            Ok(page) => {
                let more = !page.eof && !page.names.is_empty() && self.names.len() < XATTRS_MAX;
                self.names.extend(page.names);
                more.then_some(page.cookie)
            }
            // The object or its filesystem has no extended attributes.
            Err(OpError::Failed {
                status: NfsStat::NFS4ERR_NOTSUPP | NfsStat::NFS4ERR_WRONG_TYPE | NfsStat::NFS4ERR_NOXATTR,
                ..
            }) => None,
            Err(e) => return Err(e),
        };
        Ok(())
    }

    fn next(&mut self) -> Answer<Fetched> {
        if self.list.is_some() {
            self.doing = FetchStep::List;
            return Answer::More;
        }
        if !self.names.is_empty() {
            self.doing = FetchStep::Values(0);
            return Answer::More;
        }
        let Some(meta) = self.meta.take() else {
            return Answer::Failed(OpError::Missing { op: OpNum::GETATTR }.into());
        };
        self.xattrs.sort();
        let data = match self.data.is_empty() {
            true => std::mem::take(&mut self.last),
            false => std::mem::take(&mut self.data).freeze(),
        };
        Answer::Done(Fetched { data, meta, xattrs: std::mem::take(&mut self.xattrs) })
    }

    fn read(&mut self, results: &mut Results) -> Result<Answer<Fetched>, OpError> {
        let mut ended = true;
        if self.left > 0 {
            let part = results.data()?;
            let count = part.data.len() as u64;
            self.at += count;
            self.left = self.left.saturating_sub(count);
            ended = part.eof || self.left == 0;
            if ended && self.data.is_empty() {
                self.last = part.data;
            } else {
                self.data.extend_from_slice(&part.data);
            }
        }
        self.meta = Some(Meta::of(&values(&results.getattr()?)?));
        self.listed(results)?;
        // A server may return less than requested.
        if !ended {
            return Ok(Answer::More);
        }
        self.left = 0;
        Ok(self.next())
    }

    fn values(&mut self, count: usize, results: &mut Results) -> Result<Answer<Fetched>, OpError> {
        let mut answered = 0;
        for name in self.names.iter().take(count) {
            answered += 1;
            match results.getxattr() {
                Ok(value) => self.xattrs.push((name.clone(), value)),
                // It was removed meanwhile. The results end here, and those after it are requested again.
                Err(OpError::Failed { status: NfsStat::NFS4ERR_NOXATTR, .. }) => break,
                Err(e) => return Err(e),
            }
        }
        self.names.drain(..answered);
        Ok(self.next())
    }
}

together!(Fetch);

impl Action for Fetch {
    type Out = Fetched;

    fn wants(&self) -> Wants {
        Wants::Object { follow: false }
    }

    fn ops(&mut self, _: Option<&Bytes>, room: &Budget, out: &mut Vec<ArgOp>) {
        self.listing = false;
        match self.doing {
            FetchStep::Read => {
                let room = u32::try_from(room.reply).unwrap_or(u32::MAX).saturating_sub(1024);
                let most = room.saturating_sub(LISTXATTRS_BYTES).clamp(READ_BYTES_MIN, READ_BYTES);
                let count = u32::try_from(self.left).unwrap_or(u32::MAX).min(most);
                if count > 0 {
                    let (stateid, offset) = (Stateid::ANONYMOUS, self.at);
                    out.push(ArgOp::Read(ReadArgs { stateid, offset, count }));
                }
                out.push(ArgOp::Getattr(STAT));
                // Only after the last part.
                if u64::from(count) == self.left {
                    self.list_op(out);
                }
            }
            FetchStep::List => self.list_op(out),
            FetchStep::Values(_) => {
                let fit = (room.reply / (XATTR_BYTES_MAX + 64)).min(room.ops).max(1);
                let count = fit.min(self.names.len());
                self.doing = FetchStep::Values(count);
                out.extend(self.names.iter().take(count).cloned().map(ArgOp::Getxattr));
            }
        }
    }

    fn changes(&self) -> bool {
        false
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<Fetched>, OpError> {
        match self.doing {
            FetchStep::Read => self.read(results),
            FetchStep::List => {
                self.listed(results)?;
                Ok(self.next())
            }
            FetchStep::Values(count) => self.values(count, results),
        }
    }
}

impl Nfs {
    /// Fetches data, attributes and extended attributes of objects with known handles, many in one COMPOUND. All data
    /// is held in memory.
    pub async fn fetch(&self, wanted: impl IntoIterator<Item = Wanted>) -> Vec<Outcome<Fetched>> {
        self.all(wanted.into_iter().map(|w| Item::at(w.fh, Fetch::new(w.bytes, w.xattrs)))).await
    }

    /// Reads parts of files with known handles: offset and length. A part may be shorter at the end of the file.
    pub async fn read_of(
        &self,
        parts: impl IntoIterator<Item = (FileHandle, u64, u64)>,
    ) -> Vec<Outcome<Bytes>> {
        let items = parts.into_iter().map(|(fh, offset, count)| {
            let read = Read { fh: Some(fh.clone()), ..Read::range(offset, count) };
            Item::at(fh, read)
        });
        self.all(items).await
    }

    /// Whether objects in the same filesystem can have extended attributes (RFC 8276), and the version can read them.
    pub async fn has_xattrs(&self, fh: &FileHandle) -> bool {
        if self.session().version() != Version::V42 {
            return false;
        }
        let mask = Bitmap::of(&[number::XATTR_SUPPORT]);
        let asked = Item::at(fh.clone(), super::attrs::Getattrs { mask, follow: false });
        let found = self.all([asked]).await.pop().and_then(|outcome| outcome.into_result().ok());
        found.is_some_and(|(_, attrs)| attrs.xattr_support == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::{CompoundRes, ResBody, ResOp};

    use super::*;

    #[test]
    fn what_stands_behind_an_attribute_that_went_away_is_asked_for_again() {
        let mut fetch = Fetch::new(0, true);
        fetch.meta = Some(Meta::of(&Default::default()));
        (fetch.list, fetch.names) = (None, ["a", "b", "c"].map(Bytes::from).to_vec());
        fetch.doing = FetchStep::Values(3);
        let reply = |results: Vec<ResOp>| {
            let status = results.last().map_or(NfsStat::NFS4_OK, |last| last.status);
            Results::new(CompoundRes { status, tag: Bytes::new(), results })
        };
        let value = |v: &'static str| ResOp::ok(OpNum::GETXATTR, ResBody::Getxattr(Bytes::from(v)));
        let gone = ResOp::failed(OpNum::GETXATTR, NfsStat::NFS4ERR_NOXATTR);
        assert!(matches!(fetch.answer(&mut reply(vec![value("1"), gone])), Ok(Answer::More)));
        assert_eq!(fetch.names, ["c"]);
        fetch.doing = FetchStep::Values(1);
        let Ok(Answer::Done(fetched)) = fetch.answer(&mut reply(vec![value("3")])) else {
            panic!("not done")
        };
        assert_eq!(fetched.xattrs, [("a".into(), "1".into()), ("c".into(), "3".into())]);
    }
}
