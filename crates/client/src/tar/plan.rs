//! Objects in the order of a walk, as members to be, and how many of them are fetched in one call. Pure.

use std::collections::HashSet;

use bytes::Bytes;
use landfast_nfs::v4::{FileHandle, Fsid};

use super::report::Complaint;
use crate::archive::Filter;
use crate::archive::{Kind, Member, Time, check_device};
use crate::fs::{Meta, OwnerNames, Wanted};
use crate::limits::{FETCHED_TOGETHER, FETCHED_TOGETHER_BYTES, FETCHED_WHOLE_MAX, MEMBER_OVERHEAD};

/// What is the same under several names: server, filesystem, file.
pub(super) type Key = (usize, Fsid, u64);

/// What comes next in the archive.
#[derive(Debug)]
pub(super) enum Job {
    Member(Box<Planned>),
    /// Nothing but words.
    Complaint(Vec<u8>, Complaint),
}

/// A member to be.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) member: Member,
    pub(super) fh: Option<FileHandle>,
    /// What it was when it was listed.
    pub(super) meta: Meta,
    /// It has several names.
    pub(super) key: Option<Key>,
    /// An earlier job has the same key: it is a hard link, if that one made it into the archive.
    pub(super) again: bool,
}

impl Planned {
    /// Its data is to be read while it is written.
    pub(super) fn in_pieces(&self) -> bool {
        self.member.kind == Kind::File && self.member.stored > FETCHED_WHOLE_MAX
    }

    /// What is to be fetched for it, if anything is.
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
    /// What they count for in memory, bytes.
    pub(super) bytes: usize,
}

/// See the module.
pub(super) struct Plan<'a> {
    filter: Filter,
    who: &'a dyn OwnerNames,
    /// Which server the next objects are on.
    pub(super) server: usize,
    /// Objects may come twice under one name.
    twice: bool,
    seen: HashSet<Key>,
    batch: Batch,
    data: u64,
    give: Box<dyn FnMut(Batch) + 'a>,
}

impl<'a> Plan<'a> {
    /// Complete batches go to `give`. `twice`: an object may come twice under one name, and is a link then.
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

    /// An object. `text`: a symbolic link's.
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
                // No file in memory is larger than what one call may take.
                self.batch.bytes += usize::try_from(fetched).unwrap_or_default();
                self.add(Job::Member(Box::new(planned)));
            }
            Err((path, complaint)) => self.add(Job::Complaint(path, complaint)),
        }
    }

    /// Something went wrong.
    pub(super) fn complain(&mut self, path: Vec<u8>, complaint: Complaint) {
        if !self.filter.excludes(&path) {
            self.add(Job::Complaint(path, complaint));
        }
    }

    /// All objects have been given.
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
