//! Members as a tree of this machine. Blocking.
//!
//! Names lead through real directories only: each is opened from the one above it, and a symbolic link in a directory's
//! place is not followed. Nothing is counted as done before the filesystem has been synced (syncfs) behind it; of the
//! directories' attributes, which come last, that is a second sync. Of a large file the journal of `--resume` learns what an fdatasync
//! has made stable, and by [`identity`] in which file that is.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use landfast_nfs::v4::{FileType, NfsStat, NfsTime};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmodat,
    chownat, fchmod, fchown, fsetxattr, futimens, linkat, mkdirat, mknodat, openat, renameat, statat, statx,
    symlinkat, syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::{last_attributes, system_text, unknown};
use crate::archive::components;
use crate::archive::{Kind, Member, Segment, Time};
use crate::limits::{
    JOURNAL_SYNC_BYTES, JOURNAL_SYNC_LOCAL_INTERVAL, JOURNAL_SYNC_MEMBERS, KEYS_IN_MEMORY, PIECE_BYTES,
    SPARSE_BLOCK_BYTES, SYNC_EVERY_BYTES, SYNC_EVERY_MEMBERS,
};
use crate::overflow::{Keys, Records, Table, TempFile};
use crate::put::{
    Cause, DataError, Existing, ExistingObject, MemberError, Members, NewKind, Over, Progress, PutOptions,
    Report, SourceItem, Verdict, When, Xattrs, kept_bits,
};
use crate::resume::{Item, Local, Part, fits};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Leave out blocks of zeroes.
    pub zeroes_to_holes: bool,
    /// Give everything but directories a temporary name until it is on stable storage; then its own name, in place of
    /// what had it.
    pub under_other_names: bool,
    /// Objects that are remembered in memory; `None`: as many as usual. Tests reduce it.
    #[doc(hidden)]
    pub keys_in_memory: Option<usize>,
}

/// Puts members in the directory `root`, as GNU cp does ([`Existing::Look`]; others count as that with its defaults).
/// What the report counts is on stable storage.
pub fn write(
    members: &mut dyn Members,
    root: File,
    options: &PutOptions,
    how: WriteOptions,
    progress: &dyn Progress,
) -> Report {
    let over = match options.existing {
        Existing::Look(over) => over,
        _ => Over::default(),
    };
    let root = Arc::new(OwnedFd::from(root));
    if let Some(resume) = &options.resume {
        let root = root.clone();
        resume.examine_local(Box::new(EarlierDestination(root)));
    }
    let mut writer = Writer {
        over,
        options,
        how,
        progress,
        dirs: vec![(Bytes::new(), root.clone())],
        remembered: Table::new(how.keys_in_memory.unwrap_or(KEYS_IN_MEMORY), TempFile::new()),
        keys: Keys::default(),
        devices: HashMap::new(),
        finals: Records::default(),
        pending: Vec::new(),
        pending_bytes: 0,
        unnamed: Vec::new(),
        meanwhiles: HashMap::new(),
        number: 0,
        synced: Instant::now(),
        report: Report::default(),
        done: (0, 0),
    };
    writer.device(&root);
    progress.opened(None);
    loop {
        let given = members.next_member().map(|given| given.map(SourceItem::parts));
        match given {
            Ok(None) => break,
            Ok(Some((SourceItem::Agreed(_), _))) => {}
            Ok(Some((SourceItem::Unreadable(path, why), _))) => writer.failed(&path, why),
            Ok(Some((SourceItem::DoneEarlier(path), _))) => {
                writer.report.resumed += 1;
                progress.resumed(&path);
            }
            Ok(Some((SourceItem::Member(member), agreed))) => writer.take((member, agreed), members),
            Ok(Some((SourceItem::Copy(member, _), _))) => {
                let why = "a server copies to itself only";
                writer.failed(&member.path, MemberError::new(Cause::Other, why));
            }
            Err(e) => {
                writer.report.stopped = Some(e.to_string());
                break;
            }
        }
        if writer.is_due() {
            writer.sync();
        }
        if let Some(trouble) = writer.remembered.trouble().or_else(|| writer.finals.trouble()) {
            progress.warning(&trouble.to_string());
        }
    }
    writer.finish();
    writer.report
}

struct Writer<'a> {
    over: Over,
    options: &'a PutOptions,
    how: WriteOptions,
    progress: &'a dyn Progress,
    /// The root, and the directories on the path of the last member.
    dirs: Vec<(Bytes, Arc<OwnedFd>)>,
    /// See [`Fact`].
    remembered: Table,
    keys: Keys,
    /// A handle on each filesystem that was written to.
    devices: HashMap<u64, Arc<OwnedFd>>,
    /// Directories whose attributes are set at the end. No handles: there may be more directories than a process may
    /// have descriptors.
    finals: Records,
    /// Written but not synced.
    pending: Vec<Pending>,
    pending_bytes: u64,
    /// Objects that have a temporary name until they are stable.
    unnamed: Vec<Unnamed>,
    /// The temporary names, by path.
    meanwhiles: HashMap<Vec<u8>, CString>,
    number: u64,
    synced: Instant,
    report: Report,
    done: (u64, u64),
}

/// What is remembered of a tree, however long it is.
#[derive(Debug, Hash)]
enum Fact<'a> {
    /// This run has made this object, which is no directory: device and inode number.
    Made(u64, u64),
    /// An earlier run made this directory.
    Ours(&'a [u8]),
    /// Under this name an existing object stays instead of the member.
    Left(&'a [u8]),
    /// The member of this name failed. What has the name is another object, or a part of the member.
    Failed(&'a [u8]),
}

/// An object with a temporary name.
struct Unnamed {
    dir: Vec<Bytes>,
    meanwhile: CString,
    name: CString,
    path: Vec<u8>,
}

struct Pending {
    path: Vec<u8>,
    kind: Kind,
    bytes: u64,
    /// Its entry in the journal.
    item: Option<Item>,
}

enum MemberOutcome {
    Made(u64),
    Met,
    Skipped,
}

impl Writer<'_> {
    fn failed(&mut self, path: &[u8], why: MemberError) {
        let lacks_something = why.is_incomplete() || why.cause == Cause::Unset;
        // A temporary object that lacks something was removed again, and the name is still that of what was there before.
        let made = why.cause == Cause::Parent || lacks_something && !self.how.under_other_names;
        if !made && !matches!(why.kind, Some(Kind::Dir | Kind::HardLink)) {
            self.remember(&Fact::Failed(path));
        }
        self.progress.failed(path, &why);
        self.report.fail(path, &why);
    }

    fn remember(&mut self, fact: &Fact<'_>) {
        self.remembered.insert(self.keys.of(fact), 0);
    }

    fn knows(&self, fact: &Fact<'_>) -> Result<bool, MemberError> {
        let known = self.remembered.get(self.keys.of(fact)).map_err(|e| unknown(&e))?;
        Ok(known.is_some())
    }

    fn take(&mut self, (member, agreed): (Member, bool), members: &mut dyn Members) {
        self.progress.member(&member.path);
        let (path, kind) = (member.path.clone(), member.kind);
        let resume = self.options.resume.as_ref().filter(|_| kind != Kind::Dir);
        let item = resume.map(|resume| resume.item_of(&member));
        match self.place((member, agreed), members) {
            // The directory existed.
            Ok(MemberOutcome::Met) => {
                self.progress.dir_existed(&path);
                self.report.count(Some(kind), 0);
                if let Some(resume) = &self.options.resume {
                    resume.stable_dir(&path, true);
                }
            }
            Ok(MemberOutcome::Made(bytes)) => {
                self.pending_bytes += bytes;
                self.pending.push(Pending { path, kind, bytes, item });
            }
            Ok(MemberOutcome::Skipped) => {
                self.progress.skipped(&path);
                self.report.skipped += 1;
            }
            Err(why) => self.failed(&path, MemberError { kind: Some(kind), ..why }),
        }
    }

    fn place(
        &mut self,
        (member, agreed): (Member, bool),
        members: &mut dyn Members,
    ) -> Result<MemberOutcome, MemberError> {
        let mut names = components(&member.path).map_err(|e| MemberError::from(e.to_string()))?;
        let Some(name) = names.pop() else {
            self.finals.add(&last_attributes::write(member, true));
            return Ok(MemberOutcome::Met);
        };
        let dir = self.enter(&names)?;
        let mut part = self.options.resume.as_ref().filter(|_| member.kind == Kind::File).map(|resume| {
            let path: Vec<Bytes> = names.iter().chain([&name]).cloned().collect();
            Part::new(resume, &resume.item_of(&member), &path)
        });
        let name = CString::new(&name[..]).map_err(|e| MemberError::from(e.to_string()))?;
        if let Some(part) = part.take_if(|part| part.unfinished().is_some()) {
            return self.rest(&dir, &name, (&member, part), members);
        }
        let seen = match statat(&*dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(crate::local::meta(&stat)),
            Err(Errno::NOENT) => None,
            Err(e) => return Err(self.refused(Cause::Other, e)),
        };
        let mut into = false;
        if let Some(meta) = &seen {
            let new = match member.kind {
                Kind::Dir => NewKind::Dir,
                Kind::File => NewKind::File,
                _ => NewKind::Other,
            };
            if new != NewKind::Dir
                && member.kind != Kind::HardLink
                && self.knows(&Fact::Made(meta.fsid.major, meta.fileid))?
            {
                return Err(MemberError::new(Cause::JustMade, "this run has just made it"));
            }
            let modified = NfsTime { seconds: member.mtime.seconds, nseconds: member.mtime.nanos };
            let kind = meta.kind.unwrap_or(FileType::Reg);
            let seen = ExistingObject { kind, links: meta.links, modified: meta.modified, id: None };
            match self.over.judge(new, modified, agreed, &seen) {
                Verdict::Into => into = true,
                Verdict::Skip => {
                    if member.kind != Kind::HardLink && self.over.when == When::Never {
                        self.remember(&Fact::Left(&member.path));
                    }
                    return Ok(MemberOutcome::Skipped);
                }
                Verdict::Refuse(why) => return Err(why),
                Verdict::Replace if self.how.under_other_names => {}
                Verdict::Replace => {
                    // An older object goes only if the link can be made.
                    if member.kind == Kind::HardLink {
                        self.may_link(&member.link)?;
                    }
                    unlinkat(&*dir, &name, AtFlags::empty()).map_err(|e| self.refused(Cause::Other, e))?;
                }
            }
        }
        if member.kind == Kind::Dir {
            return self.directory(&dir, &name, member, into);
        }
        if !self.how.under_other_names {
            return match member.kind {
                Kind::File => self.file(&dir, &name, (&member, &mut part), into, members),
                _ => self.other(&dir, &name, &member),
            };
        }
        let meanwhile = self.meanwhile();
        let made = match member.kind {
            Kind::File => self.file(&dir, &meanwhile, (&member, &mut None), false, members),
            _ => self.other(&dir, &meanwhile, &member),
        };
        if made.is_err() {
            // If it cannot be removed, its name tells what it is.
            let _ = unlinkat(&*dir, &meanwhile, AtFlags::empty());
        } else {
            let path = member.path.clone();
            self.meanwhiles.insert(path.clone(), meanwhile.clone());
            self.unnamed.push(Unnamed { dir: names, meanwhile, name, path });
        }
        made
    }

    /// A temporary name that does not exist.
    fn meanwhile(&mut self) -> CString {
        self.number += 1;
        let name = format!(".landfast-{}-{}", std::process::id(), self.number);
        CString::new(name).unwrap_or_default()
    }

    /// Gives all stable objects their names.
    fn name(&mut self, synced: bool) {
        self.meanwhiles.clear();
        for Unnamed { dir, meanwhile, name, path } in std::mem::take(&mut self.unnamed) {
            let dir = match self.enter(&dir) {
                Ok(dir) => dir,
                Err(why) => {
                    self.pending.retain(|pending| pending.path != path);
                    self.failed(&path, MemberError { cause: Cause::Unmade, ..why });
                    continue;
                }
            };
            let named = match synced {
                true => renameat(&*dir, &meanwhile, &*dir, &name),
                // It is reported as failed with the others.
                false => {
                    let _ = unlinkat(&*dir, &meanwhile, AtFlags::empty());
                    continue;
                }
            };
            if let Err(e) = named {
                let _ = unlinkat(&*dir, &meanwhile, AtFlags::empty());
                self.pending.retain(|pending| pending.path != path);
                let why = self.refused(Cause::Other, e);
                self.failed(&path, why);
            }
        }
    }

    /// Opens the directory of these names, through directories only.
    fn enter(&mut self, names: &[Bytes]) -> Result<Arc<OwnedFd>, MemberError> {
        let same = self.dirs[1..].iter().zip(names).take_while(|((name, _), wanted)| name == *wanted).count();
        self.dirs.truncate(same + 1);
        for name in &names[same..] {
            let above = &self.dirs[self.dirs.len() - 1].1;
            let opened =
                descend(above, name).map_err(|e| MemberError::new(Cause::Parent, system_text(&e.into())))?;
            self.dirs.push((name.clone(), Arc::new(opened)));
        }
        Ok(self.dirs[self.dirs.len() - 1].1.clone())
    }

    fn directory(
        &mut self,
        dir: &OwnedFd,
        name: &CString,
        member: Member,
        there: bool,
    ) -> Result<MemberOutcome, MemberError> {
        if !there {
            // It is filled first, whatever its mode will be.
            let mode = self.mode(&member, 0o1777) | 0o700;
            mkdirat(dir, name, Mode::from_raw_mode(mode)).map_err(|e| self.refused(Cause::Other, e))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(dir, name, flags, Mode::empty()).map_err(|e| self.refused(Cause::Other, e))?;
        let opened = Arc::new(opened);
        self.device(&opened);
        let known = self.options.resume.as_ref().is_some_and(|resume| resume.made_before(&member.path));
        let above = member.path.iter().rposition(|b| *b == b'/').map(|at| &member.path[..at]);
        // An earlier run that made the directory also made its contents, though it may not have noted that.
        let above = above.filter(|_| there && !known);
        let ours = there && (known || above.map_or(Ok(false), |above| self.knows(&Fact::Ours(above)))?);
        if ours {
            self.remember(&Fact::Ours(&member.path));
        }
        self.finals.add(&last_attributes::write(member, there && !ours));
        Ok(if there { MemberOutcome::Met } else { MemberOutcome::Made(0) })
    }

    fn file(
        &mut self,
        dir: &OwnedFd,
        name: &CString,
        (member, part): (&Member, &mut Option<Part>),
        into: bool,
        members: &mut dyn Members,
    ) -> Result<MemberOutcome, MemberError> {
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let old = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(self.mode(member, 0o777));
        // Owner and group are not set yet: nobody else may read the data.
        let mode = if self.options.same_owner == Some(true) { mode & Mode::RWXU } else { mode };
        let opened = match openat(dir, name, if into { old } else { new }, mode) {
            Err(Errno::ACCESS | Errno::PERM) if into && self.over.force => {
                unlinkat(dir, name, AtFlags::empty()).and_then(|()| openat(dir, name, new, mode))
            }
            other => other,
        };
        let file = File::from(opened.map_err(|e| self.refused(Cause::Other, e))?);
        self.fill(&file, (member, part), !into, members)
    }

    /// Continues what an earlier run has begun, after what is stable of it.
    fn rest(
        &mut self,
        dir: &OwnedFd,
        name: &CString,
        (member, part): (&Member, Part),
        members: &mut dyn Members,
    ) -> Result<MemberOutcome, MemberError> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(dir, name, flags, Mode::empty()).map(File::from);
        let begun = part.unfinished().map(|(fh, upto)| (fh.0.clone(), upto));
        let (file, new) = match (opened, begun) {
            (Ok(file), Some((begun, upto))) if let Some(new) = is_of(&file, &begun, upto) => {
                // What follows may differ from the source.
                file.set_len(upto).map_err(|e| self.refused(Cause::Unwritten, errno(&e)))?;
                (file, new)
            }
            _ => {
                part.forget();
                let why = "what an earlier run has copied of it is there no more; copy it again";
                return Err(MemberError::new(Cause::Other, why));
            }
        };
        self.fill(&file, (member, &mut Some(part)), new, members)
    }

    /// Writes the missing data and the attributes of an open file, new or existing.
    fn fill(
        &mut self,
        file: &File,
        (member, part): (&Member, &mut Option<Part>),
        new: bool,
        members: &mut dyn Members,
    ) -> Result<MemberOutcome, MemberError> {
        let meta = file.metadata().map_err(|e| self.refused(Cause::Other, errno(&e)))?;
        {
            use std::os::unix::fs::MetadataExt;
            self.remember(&Fact::Made(meta.dev(), meta.ino()));
        }
        let bytes = self.data(file, (member, part), new, members)?;
        self.xattrs(file, member)?;
        self.attributes(file, member, new || self.over.set_mode)?;
        Ok(MemberOutcome::Made(bytes))
    }

    fn data(
        &self,
        file: &File,
        (member, part): (&Member, &mut Option<Part>),
        new: bool,
        members: &mut dyn Members,
    ) -> Result<u64, MemberError> {
        let whole = [Segment { offset: 0, len: member.stored }];
        let segments = member.sparse.as_deref().unwrap_or(&whole);
        let unread = |e| match e {
            DataError::Member(why) => MemberError::new(Cause::Unread, why),
            DataError::All(e) => MemberError::new(Cause::Unread, e.to_string()),
        };
        let from = part.as_ref().map_or(0, Part::from);
        let behind = |segment: &Segment| from.saturating_sub(segment.offset).min(segment.len);
        members.skip(segments.iter().map(behind).sum()).map_err(unread)?;
        let mut end = from;
        for segment in segments {
            let mut at = segment.offset + behind(segment);
            while at < segment.offset + segment.len {
                let left = segment.offset + segment.len - at;
                let max = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
                let data = match members.data(max) {
                    Ok(data) if data.is_empty() => {
                        return Err(MemberError::new(Cause::Unread, "it became shorter while it was read"));
                    }
                    other => other.map_err(unread)?,
                };
                for block in
                    data.chunks(if self.how.zeroes_to_holes { SPARSE_BLOCK_BYTES } else { PIECE_BYTES })
                {
                    if !self.how.zeroes_to_holes || block.iter().any(|b| *b != 0) {
                        file.write_all_at(block, at)
                            .map_err(|e| self.refused(Cause::Unwritten, errno(&e)))?;
                        end = at + block.len() as u64;
                    }
                    at += block.len() as u64;
                }
                if let Some(part) = part.as_mut().filter(|part| part.is_due(at)) {
                    // Zeroes that were not written are part of it.
                    end = at.max(end);
                    let stable = file.metadata().and_then(|meta| {
                        if meta.len() < end {
                            file.set_len(end)?;
                        }
                        file.sync_data()
                    });
                    stable.map_err(|e| self.refused(Cause::Unwritten, errno(&e)))?;
                    if let Some(identity) = identity(file, new) {
                        part.stable(&identity, end, None);
                    }
                }
            }
        }
        if end < member.size {
            file.set_len(member.size).map_err(|e| self.refused(Cause::Unwritten, errno(&e)))?;
        }
        Ok(member.size)
    }

    fn other(
        &mut self,
        dir: &OwnedFd,
        name: &CString,
        member: &Member,
    ) -> Result<MemberOutcome, MemberError> {
        let mode = Mode::from_raw_mode(self.mode(member, 0o777));
        let device = rustix::fs::makedev(member.device.0, member.device.1);
        let node = |kind| mknodat(dir, name, kind, mode, device);
        use rustix::fs::FileType as Local;
        match member.kind {
            Kind::Symlink => symlinkat(&member.link[..], dir, name),
            Kind::Fifo => node(Local::Fifo),
            Kind::Char => node(Local::CharacterDevice),
            Kind::Block => node(Local::BlockDevice),
            Kind::Socket => node(Local::Socket),
            Kind::HardLink => return self.link(dir, name, member),
            Kind::File | Kind::Dir => Ok(()),
        }
        .map_err(|e| self.refused(Cause::Other, e))?;
        if let Ok(stat) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            let meta = crate::local::meta(&stat);
            self.remember(&Fact::Made(meta.fsid.major, meta.fileid));
        }
        let (owner, group) = self.owners(member);
        chownat(dir, name, owner, group, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| self.unset(e))?;
        if member.kind != Kind::Symlink && self.options.same_permissions == Some(true) {
            let mode = Mode::from_raw_mode(self.mode(member, 0o7777));
            chmodat(dir, name, mode, AtFlags::empty()).map_err(|e| self.unset(e))?;
        }
        if !self.options.touch {
            utimensat(dir, name, &times(member), AtFlags::SYMLINK_NOFOLLOW).map_err(|e| self.unset(e))?;
        }
        Ok(MemberOutcome::Made(0))
    }

    /// Whether what has this name is the member of this name.
    fn may_link(&self, to: &[u8]) -> Result<(), MemberError> {
        if self.knows(&Fact::Left(to))? {
            return Err(MemberError::left_out(to));
        }
        if self.knows(&Fact::Failed(to))? {
            return Err(MemberError::link_to_failed(to));
        }
        Ok(())
    }

    fn link(&mut self, dir: &OwnedFd, name: &CString, member: &Member) -> Result<MemberOutcome, MemberError> {
        let mut names = components(&member.link).map_err(|e| MemberError::from(e.to_string()))?;
        let Some(target) = names.pop() else { return Err(MemberError::from("a hard link to a directory")) };
        self.may_link(&member.link)?;
        let keep = self.dirs.clone();
        let from = self.enter(&names);
        self.dirs = keep;
        let target = match self.meanwhiles.get(&member.link) {
            Some(meanwhile) => meanwhile.clone(),
            None => CString::new(&target[..]).map_err(|e| MemberError::from(e.to_string()))?,
        };
        linkat(&*from?, &target, dir, name, AtFlags::empty()).map_err(|e| self.refused(Cause::Other, e))?;
        Ok(MemberOutcome::Made(0))
    }

    /// Attributes of users. A filesystem without any is an error only if they must be kept.
    fn xattrs(&self, file: &File, member: &Member) -> Result<(), MemberError> {
        if self.options.xattrs == Xattrs::No {
            return Ok(());
        }
        for (name, value) in member.xattrs.iter().filter(|(name, _)| name.starts_with(b"user.")) {
            match fsetxattr(file, &name[..], value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) if self.options.xattrs == Xattrs::Try => return Ok(()),
                Err(Errno::OPNOTSUPP) => {
                    let text = "extended attributes are not set: Operation not supported";
                    return Err(MemberError::new(Cause::Xattrs(NfsStat::NFS4ERR_NOTSUPP), text));
                }
                Err(e) => return Err(self.unset(e)),
            }
        }
        Ok(())
    }

    /// Owner, mode and times, in this order: a change of owner clears the set-ID bits.
    fn attributes(&self, file: &File, member: &Member, mode: bool) -> Result<(), MemberError> {
        let (owner, group) = self.owners(member);
        if owner.is_some() || group.is_some() {
            fchown(file, owner, group).map_err(|e| self.unset(e))?;
        }
        if mode && (self.options.same_permissions == Some(true) || owner.is_some()) {
            let mode = self.mode(member, 0o777);
            fchmod(file, Mode::from_raw_mode(mode)).map_err(|e| self.unset(e))?;
        }
        if !self.options.touch {
            futimens(file, &times(member)).map_err(|e| self.unset(e))?;
        }
        Ok(())
    }

    /// The mode of a new object: its bits in `mask`, or all if the mode is kept.
    fn mode(&self, member: &Member, mask: u32) -> u32 {
        let kept = match (&self.options.own, self.options.same_owner) {
            (Some(own), Some(false)) => kept_bits(member, own),
            _ => 0o7777,
        };
        match self.options.same_permissions {
            Some(true) => member.mode & kept,
            _ => member.mode & mask & !self.options.umask,
        }
    }

    fn owners(&self, member: &Member) -> (Option<Uid>, Option<Gid>) {
        let all = self.options.same_owner == Some(true);
        let own = self.options.own.as_ref().is_some_and(|own| own.is_in(member.gid));
        (all.then(|| Uid::from_raw(member.uid)), (all || own).then(|| Gid::from_raw(member.gid)))
    }

    fn refused(&self, cause: Cause, e: Errno) -> MemberError {
        let cause = if cause == Cause::Other { Cause::Unmade } else { cause };
        MemberError::new(cause, system_text(&e.into()))
    }

    fn unset(&self, e: Errno) -> MemberError {
        MemberError::new(Cause::Unset, system_text(&e.into()))
    }

    /// Notes the filesystem of a directory, to sync it.
    fn device(&mut self, dir: &Arc<OwnedFd>) {
        if let Ok(stat) = rustix::fs::fstat(&**dir) {
            self.devices.entry(crate::local::meta(&stat).fsid.major).or_insert_with(|| dir.clone());
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.devices.values().try_for_each(|dir| Ok(syncfs(&**dir)?))
    }

    /// Whether much is pending, or, with a journal, has been for long.
    fn is_due(&self) -> bool {
        let (members, bytes) = match &self.options.resume {
            None => (SYNC_EVERY_MEMBERS, SYNC_EVERY_BYTES),
            Some(_) => (JOURNAL_SYNC_MEMBERS, JOURNAL_SYNC_BYTES),
        };
        let late = self.options.resume.is_some()
            && !self.pending.is_empty()
            && self.synced.elapsed() >= JOURNAL_SYNC_LOCAL_INTERVAL;
        self.pending.len() >= members || self.pending_bytes >= bytes || late
    }

    /// Syncs what is pending, and counts it.
    fn sync(&mut self) {
        let mut synced = self.sync_all();
        if !self.unnamed.is_empty() {
            self.name(synced.is_ok());
            synced = synced.and_then(|()| self.sync_all());
        }
        (self.pending_bytes, self.synced) = (0, Instant::now());
        for Pending { path, kind, bytes, item } in std::mem::take(&mut self.pending) {
            if let Err(e) = &synced {
                self.failed(
                    &path,
                    MemberError { kind: Some(kind), ..MemberError::new(Cause::Unwritten, system_text(e)) },
                );
                continue;
            }
            self.report.count(Some(kind), bytes);
            self.progress.stable(&path);
            match (&self.options.resume, &item) {
                (Some(resume), Some(item)) => resume.stable(item),
                (Some(resume), None) => resume.stable_dir(&path, false),
                (None, _) => {}
            }
            self.done = (self.done.0 + 1, self.done.1 + bytes);
        }
        self.progress.committed(self.done.0, self.done.1);
    }

    /// Sets the attributes of directories, which get no more entries, and syncs for the last time.
    fn finish(&mut self) {
        self.sync();
        let mut last = self.finals.end();
        let any = last > 0;
        // Directories before those that they are in, whose modes may forbid to enter them.
        loop {
            let (bytes, at) = match self.finals.before(last) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(e) => {
                    self.report.stopped = Some(format!("{e}; attributes of directories may be missing"));
                    break;
                }
            };
            last = at;
            let Some((member, there)) = last_attributes::read(bytes) else { continue };
            let opened =
                components(&member.path).map_err(|e| MemberError::from(e.to_string())).and_then(|names| {
                    let dir = self.enter(&names)?;
                    dir.try_clone().map_err(|e| MemberError::new(Cause::Unset, system_text(&e)))
                });
            let file = match opened {
                Ok(dir) => File::from(dir),
                Err(why) => {
                    self.failed(&member.path, MemberError { cause: Cause::Unset, ..why });
                    continue;
                }
            };
            let kept = self.options.same_permissions == Some(true);
            let mode = self.mode(&member, 0o1777);
            let set = self.xattrs(&file, &member);
            let done = match there {
                true => self.attributes(&file, &member, self.over.set_mode && kept),
                false => self.attributes(&file, &member, false).and_then(|()| {
                    let plain = kept || mode & 0o700 != 0o700;
                    match plain {
                        true => fchmod(&file, Mode::from_raw_mode(mode)).map_err(|e| self.unset(e)),
                        false => Ok(()),
                    }
                    .and_then(|()| match self.options.touch {
                        true => Ok(()),
                        false => futimens(&file, &times(&member)).map_err(|e| self.unset(e)),
                    })
                }),
            };
            if let Err(why) = set.and(done) {
                self.failed(&member.path, MemberError { kind: Some(Kind::Dir), ..why });
            }
        }
        if any && let Err(e) = self.sync_all() {
            self.report.stopped =
                Some(format!("directories' attributes may not be stable: {}", system_text(&e)));
        }
    }
}

/// Opens a directory in a directory, never through a symbolic link.
pub(crate) fn descend(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, &CString::new(name).map_err(|_| Errno::INVAL)?, flags, Mode::empty())
}

/// The destination, to find out what an earlier run left there. Paths lead through directories only.
struct EarlierDestination(Arc<OwnedFd>);

impl EarlierDestination {
    /// The directory of a path, and the last name.
    fn at<'a>(&self, path: &'a [u8]) -> Option<(Arc<OwnedFd>, &'a [u8])> {
        let mut names: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
        let name = names.pop()?;
        let mut at = self.0.clone();
        for name in names {
            at = Arc::new(descend(&at, name).ok()?);
        }
        Some((at, name))
    }
}

impl Local for EarlierDestination {
    fn has(&self, path: &[u8], member: &Member) -> bool {
        let Some((dir, name)) = self.at(path) else { return false };
        let Ok(stat) = statat(&*dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        let meta = crate::local::meta(&stat);
        fits(meta.kind, meta.size, member)
    }

    fn holds(&self, path: &[u8], identity: &[u8], upto: u64) -> bool {
        let Some((dir, name)) = self.at(path) else { return false };
        // Opened as for writing.
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&*dir, name, flags, Mode::empty()).map(File::from);
        opened.is_ok_and(|file| is_of(&file, identity, upto).is_some())
    }
}

/// Distinguishes a file from all others, even from a later one with the same inode number: device, inode number, time
/// of creation, and whether this program made it. `None`: the filesystem does not tell.
fn identity(file: &File, new: bool) -> Option<Vec<u8>> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    if !StatxFlags::from_bits_retain(stat.stx_mask).contains(wanted) {
        return None;
    }
    let mut bytes = vec![u8::from(new)];
    bytes.extend(stat.stx_dev_major.to_le_bytes());
    bytes.extend(stat.stx_dev_minor.to_le_bytes());
    bytes.extend(stat.stx_ino.to_le_bytes());
    bytes.extend(stat.stx_btime.tv_sec.to_le_bytes());
    bytes.extend(stat.stx_btime.tv_nsec.to_le_bytes());
    Some(bytes)
}

/// Whether a file of at least this size has this [`identity`]; if so, whether this program made it.
fn is_of(file: &File, begun: &[u8], upto: u64) -> Option<bool> {
    let new = *begun.first()? == 1;
    let is_it = identity(file, new)? == begun && file.metadata().ok()?.len() >= upto;
    is_it.then_some(new)
}

fn errno(e: &io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

fn times(member: &Member) -> Timestamps {
    let of = |t: Time| Timespec { tv_sec: t.seconds, tv_nsec: i64::from(t.nanos) };
    let access = member.atime.map_or(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, of);
    Timestamps { last_access: access, last_modification: of(member.mtime) }
}
