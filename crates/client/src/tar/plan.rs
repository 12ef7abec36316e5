//! Turns the objects of a walk into members, and decides which are fetched in one call. No I/O.

use std::collections::HashSet;

use bytes::Bytes;
use landfast_nfs::v4::{FileHandle, Fsid};

use super::report::Complaint;
use crate::archive::Filter;
use crate::archive::{Kind, Member, Time, check_device};
use crate::fs::{Meta, OwnerNames, Wanted};
use crate::limits::{FETCHED_TOGETHER, FETCHED_TOGETHER_BYTES, FETCHED_WHOLE_MAX, MEMBER_OVERHEAD};

/// Identifies a file with several names: the server's number, the filesystem, the file.
pub(super) type Key = (usize, Fsid, u64);

#[derive(Debug)]
pub(super) enum Job {
    Member(Box<Planned>),
    Complaint(Vec<u8>, Complaint),
}

/// A member whose data is not read yet.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) member: Member,
    pub(super) fh: Option<FileHandle>,
    /// The attributes from the listing.
    pub(super) meta: Meta,
    /// Set if the object has several names.
    pub(super) key: Option<Key>,
    /// An earlier member has the same key. If that one is in the archive, this one becomes a hard link.
    pub(super) again: bool,
}

impl Planned {
    /// Whether the data is read while it is written.
    pub(super) fn in_pieces(&self) -> bool {
        self.member.kind == Kind::File && self.member.stored > FETCHED_WHOLE_MAX
    }

    /// What to fetch for it.
    pub(super) fn wanted(&self, xattrs: bool) -> Option<Wanted> {
        let fh = self.fh.clone()?;
        let bytes = match self.member.kind {
            Kind::File if !self.in_pieces() => self.member.stored,
            _ => 0,
        };
        let xattrs = xattrs && matches!(self.member.kind, Kind::File | Kind::Dir);
        (bytes > 0 || xattrs).then_some(Wanted { fh, bytes, xattrs })
    }
}

/// Jobs whose data is fetched in one call.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    /// Bytes of memory that they count for.
    pub(super) bytes: usize,
}

pub(super) struct Plan<'a> {
    filter: Filter,
    who: &'a dyn OwnerNames,
    /// The number of the server that the next objects are on.
    pub(super) server: usize,
    /// An object may come twice under the same name, because operands overlap.
    twice: bool,
    seen: HashSet<Key>,
    batch: Batch,
    data: u64,
    give: Box<dyn FnMut(Batch) + 'a>,
}

impl<'a> Plan<'a> {
    /// Passes full batches to `give`.
    pub(super) fn new(
        filter: Filter,
        who: &'a dyn OwnerNames,
        twice: bool,
        give: impl FnMut(Batch) + 'a,
    ) -> Plan<'a> {
        Plan {
            filter,
            who,
            server: 0,
            twice,
            seen: HashSet::new(),
            batch: Batch::default(),
            data: 0,
            give: Box::new(give),
        }
    }

    /// Adds an object. `text`: the target of a symbolic link.
    pub(super) fn object(
        &mut self,
        path: Vec<u8>,
        meta: &Meta,
        fh: Option<&FileHandle>,
        text: Option<&Bytes>,
    ) {
        if self.filter.excludes(&path) {
            return;
        }
        match self.member(path, meta, text) {
            Ok(member) => {
                let several = (self.twice || meta.links > 1) && member.kind != Kind::Dir;
                let key = several.then_some((self.server, meta.fsid, meta.fileid));
                let again = key.is_some_and(|key| !self.seen.insert(key));
                let planned = Planned { member, fh: fh.cloned(), meta: meta.clone(), key, again };
                let fetched = if again || planned.in_pieces() { 0 } else { planned.member.stored };
                self.data += fetched;
                // Files that are fetched whole are small enough for `usize`.
                self.batch.bytes += usize::try_from(fetched).unwrap_or_default();
                self.add(Job::Member(Box::new(planned)));
            }
            Err((path, complaint)) => self.add(Job::Complaint(path, complaint)),
        }
    }

    pub(super) fn complain(&mut self, path: Vec<u8>, complaint: Complaint) {
        if !self.filter.excludes(&path) {
            self.add(Job::Complaint(path, complaint));
        }
    }

    /// Passes on the last batch.
    pub(super) fn end(&mut self) {
        if !self.batch.jobs.is_empty() {
            self.flush();
        }
    }

    fn add(&mut self, job: Job) {
        self.batch.jobs.push(job);
        self.batch.bytes += MEMBER_OVERHEAD;
        if self.batch.jobs.len() >= FETCHED_TOGETHER || self.data >= FETCHED_TOGETHER_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.data = 0;
        (self.give)(std::mem::take(&mut self.batch));
    }

    fn member(
        &self,
        mut path: Vec<u8>,
        meta: &Meta,
        text: Option<&Bytes>,
    ) -> Result<Member, (Vec<u8>, Complaint)> {
        let kind = match meta.kind.and_then(Kind::of) {
            Some(Kind::Socket) => return Err((path, Complaint::Socket)),
            Some(kind) => kind,
            None => return Err((path, Complaint::UnknownType)),
        };
        let is_device = matches!(kind, Kind::Char | Kind::Block);
        if let (true, Err(e)) = (is_device, check_device(meta.rdev)) {
            return Err((path, Complaint::Device(e)));
        }
        let link = match (kind, text) {
            (Kind::Symlink, Some(text)) => text.to_vec(),
            (Kind::Symlink, None) => return Err((path, Complaint::Unlinked)),
            _ => Vec::new(),
        };
        if kind == Kind::Dir && !path.ends_with(b"/") {
            path.push(b'/');
        }
        let size = if kind == Kind::File { meta.size } else { 0 };
        let ((uid, user), (gid, group)) = (self.who.user(&meta.owner), self.who.group(&meta.group));
        Ok(Member {
            path,
            kind,
            mode: meta.mode & 0o7777,
            uid,
            gid,
            user,
            group,
            mtime: Time { seconds: meta.modified.seconds, nanos: meta.modified.nseconds },
            atime: None,
            link,
            device: if is_device { meta.rdev } else { (0, 0) },
            size,
            stored: size,
            sparse: None,
            xattrs: Vec::new(),
        })
    }
}
