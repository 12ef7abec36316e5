//! Reads members on a thread of its own, as far ahead as the limit on bytes in memory allows.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::options::Tuning;
use super::report::{Cause, MemberError};
use crate::archive::{ArchiveError, Kind, Member, Segment};
use crate::archive::{Filter, Verdict};
use crate::fs::Original;
use crate::limits;
use crate::resume::{EarlierResult, Item, Part, Resume, Running};

/// Where members come from.
pub struct Source(SourceKind);

enum SourceKind {
    Archive(Box<dyn ArchiveSource>),
    Members(Box<dyn Members>),
}

/// An archive that is not open yet.
pub(crate) trait ArchiveSource: Send {
    /// Its name for messages.
    fn name(&self) -> String;

    /// Which of its members are taken, and under which names.
    fn filter(&self) -> Filter;

    /// Opens it. Called on the reading thread, and may block.
    ///
    /// # Errors
    /// When it cannot be opened or is no archive.
    fn open(self: Box<Self>, resume: Option<&Resume>, read: ReadCount) -> Result<OpenArchive, ArchiveError>;
}

pub(crate) struct OpenArchive {
    pub(crate) members: Box<dyn Members>,
    /// Bytes of the archive as it lies on disk, if it is a file.
    pub(crate) size: Option<u64>,
    /// The digest of what was read of it, if it cannot be read twice and a journal is kept.
    pub(crate) digest: Option<Running>,
}

/// A sequence of members. Its methods are called on a thread of their own, and may block.
pub trait Members: Send {
    /// The next one.
    ///
    /// # Errors
    /// When nothing more can be read.
    fn next_member(&mut self) -> Result<Option<SourceItem>, ArchiveError>;

    /// Up to `max` bytes of the data of the member that came last; those of its segments, if it is sparse. Less: there is
    /// no more.
    fn data(&mut self, max: usize) -> Result<Bytes, DataError>;

    /// Passes over so many bytes of that data, or to its end.
    fn skip(&mut self, mut bytes: u64) -> Result<(), DataError> {
        while bytes > 0 {
            let max = usize::try_from(bytes).unwrap_or(usize::MAX).min(limits::PIECE_BYTES);
            let data = self.data(max)?;
            if data.is_empty() {
                break;
            }
            bytes -= data.len() as u64;
        }
        Ok(())
    }
}

/// The next item of a source.
#[derive(Debug)]
pub enum SourceItem {
    Member(Member),
    /// A file that the destination's own server is to copy: its data is not asked for.
    Copy(Member, Original),
    /// A member that may replace an existing object, where others may not ([`super::When::Agreed`]).
    Agreed(Box<SourceItem>),
    /// A member that cannot be read, by its name.
    Unreadable(Vec<u8>, MemberError),
    /// A member, by its name, that an earlier run has done.
    DoneEarlier(Vec<u8>),
}

impl SourceItem {
    /// The item, and whether it may replace an existing object.
    pub(crate) fn parts(self) -> (SourceItem, bool) {
        match self {
            SourceItem::Agreed(item) => (item.parts().0, true),
            item => (item, false),
        }
    }
}

/// Why a member's data cannot be read.
#[derive(Debug)]
pub enum DataError {
    /// Others can.
    Member(String),
    /// Nothing more can be read.
    All(ArchiveError),
}

impl Source {
    /// Members that come from elsewhere than an archive, such as a tree.
    pub fn members(members: Box<dyn Members>) -> Source {
        Source(SourceKind::Members(members))
    }

    pub(crate) fn archive(archive: Box<dyn ArchiveSource>) -> Source {
        Source(SourceKind::Archive(archive))
    }

    /// The archive's name for messages.
    pub(super) fn name(&self) -> String {
        match &self.0 {
            SourceKind::Archive(archive) => archive.name(),
            SourceKind::Members(_) => "-".to_owned(),
        }
    }
}

/// A member that is to be extracted.
pub(super) struct PendingMember {
    pub(super) member: Member,
    /// Its place below the destination; empty: the destination itself.
    pub(super) path: Vec<Bytes>,
    /// A hard link's target.
    pub(super) target: Vec<Bytes>,
    /// It may take the place of what has its name.
    pub(super) agreed: bool,
    pub(super) data: Data,
    /// What enters the journal when it is stable.
    pub(super) item: Option<Item>,
    /// And before that, if it is large.
    pub(super) part: Option<Part>,
}

/// A member's data, or the way to it.
pub(super) enum Data {
    /// All of it, and its share of what may be in hand.
    Whole(Bytes, OwnedSemaphorePermit),
    /// With the destination's server.
    Copy(Box<Original>, OwnedSemaphorePermit),
    /// To come in pieces, behind what has been done of it.
    Pieces(mpsc::Receiver<Result<Piece, String>>),
}

/// A part of a large file.
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) data: Bytes,
    /// That of an archive that cannot be read twice, behind this.
    pub(super) digest: Option<u64>,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// What the reading thread says.
pub(super) enum Event {
    /// The archive is one.
    Opened(Option<u64>),
    Member(Box<PendingMember>),
    Skipped,
    /// A member that an earlier run has done.
    Resumed(Vec<u8>),
    /// A member that must not be extracted.
    Rejected(Vec<u8>, MemberError),
    /// The end, or why it came too soon.
    End(Option<ArchiveError>),
}

/// Bytes read from the archive as it lies on disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadCount(Arc<AtomicU64>);

impl ReadCount {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// So many more bytes were read.
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reading goes on at this offset.
    pub(crate) fn set(&self, offset: u64) {
        self.0.store(offset, Ordering::Relaxed);
    }
}

pub(super) struct Reading {
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) count: ReadCount,
    /// What is in hand; empty when the reader waits for something to be done.
    pub(super) budget: Arc<Semaphore>,
}

impl Reading {
    /// Puts what was read already behind `events`, as long as these are not too many; `false`: nothing more comes, or is to.
    pub(super) fn take_ready(&mut self, events: &mut Vec<Event>) -> bool {
        while events.len() < limits::MEMBERS_AHEAD {
            match self.events.try_recv() {
                Ok(event) => events.push(event),
                Err(e) => return e == mpsc::error::TryRecvError::Empty,
            }
        }
        false
    }
}

/// Starts the thread. It ends when the archive does, or when nobody listens any more.
pub(super) fn start(source: Source, tuning: &Tuning, resume: Option<Arc<Resume>>) -> io::Result<Reading> {
    let (send, events) = mpsc::channel(limits::MEMBERS_AHEAD);
    let count = ReadCount::default();
    let budget_bytes = tuning.bytes_in_flight.clamp(limits::PIECE_BYTES * 2, 1 << 31);
    let budget = Arc::new(Semaphore::new(budget_bytes));
    let filter = match &source.0 {
        SourceKind::Archive(archive) => archive.filter(),
        SourceKind::Members(_) => Filter::default(),
    };
    let mut worker = Worker {
        send,
        filter,
        budget: budget.clone(),
        runtime: Handle::current(),
        budget_bytes,
        whole_max: tuning.whole_file_max,
        resume,
        archive: false,
        running: None,
        unchecked: None,
    };
    let counted = count.clone();
    std::thread::Builder::new().name("archive".into()).spawn(move || {
        let end = worker.run(source, counted);
        // Nobody may be listening any more.
        let _ = worker.send.blocking_send(Event::End(end.err()));
    })?;
    Ok(Reading { events, count, budget })
}

struct Worker {
    send: mpsc::Sender<Event>,
    filter: Filter,
    budget: Arc<Semaphore>,
    runtime: Handle,
    budget_bytes: usize,
    whole_max: u64,
    resume: Option<Arc<Resume>>,
    /// Members have numbers; those of a tree are known by their paths.
    archive: bool,
    /// The digest of an archive that cannot be read twice.
    running: Option<Running>,
    /// What waits until this is known to be the archive that it was, and its bytes.
    unchecked: Option<(Vec<Event>, usize)>,
}

/// Nobody listens any more.
struct Abandoned;

impl Worker {
    fn run(&mut self, source: Source, count: ReadCount) -> Result<(), ArchiveError> {
        match source.0 {
            SourceKind::Members(mut members) => self.all(&mut *members, None),
            SourceKind::Archive(archive) => {
                self.archive = true;
                let OpenArchive { mut members, size, digest } =
                    archive.open(self.resume.as_deref(), count)?;
                self.running = digest;
                self.all(&mut *members, size)
            }
        }
    }

    fn all(&mut self, members: &mut dyn Members, size: Option<u64>) -> Result<(), ArchiveError> {
        let mut first = true;
        let mut number = 0;
        loop {
            if self.check(number)?.is_err() {
                return Ok(());
            }
            let Some((item, agreed)) = members.next_member()?.map(SourceItem::parts) else { break };
            if std::mem::take(&mut first) && self.send_event(Event::Opened(size)).is_err() {
                return Ok(());
            }
            let digest = Arc::new(OnceLock::new());
            let mut taken = false;
            let sent = match item {
                SourceItem::Agreed(_) => Ok(()),
                SourceItem::Unreadable(path, why) => self.send_event(Event::Rejected(path, why)),
                SourceItem::Copy(member, original) => match self.judge(member) {
                    Ok(Some((member, path, target))) => match self.permit(limits::MEMBER_OVERHEAD) {
                        Some(permit) => {
                            let item = self.item(number, &member, &digest);
                            let part = self.part(item.as_ref(), &path);
                            let data = Data::Copy(Box::new(original), permit);
                            self.send_event(Event::Member(Box::new(PendingMember {
                                member,
                                path,
                                target,
                                agreed,
                                data,
                                item,
                                part,
                            })))
                        }
                        None => Err(Abandoned),
                    },
                    Ok(None) => self.send_event(Event::Skipped),
                    Err((path, why)) => self.send_event(Event::Rejected(path, why.into())),
                },
                SourceItem::DoneEarlier(path) => self.send_event(Event::Resumed(path)),
                SourceItem::Member(member) => match self.judge(member) {
                    Ok(Some((member, path, target))) => match self.known(number, &member, &path, &target) {
                        EarlierResult::NotDone => {
                            taken = true;
                            let item = self.item(number, &member, &digest);
                            self.take(members, (number, member, agreed), (path, target), item, &digest)?
                        }
                        known => self.pass(member, known),
                    },
                    Ok(None) => self.send_event(Event::Skipped),
                    Err((path, why)) => self.send_event(Event::Rejected(path, why.into())),
                },
            };
            if sent.is_err() {
                return Ok(());
            }
            if let (Some(resume), Some(running)) = (&self.resume, &self.running) {
                drain(members)?;
                let _ = digest.set(running.now());
                if !taken {
                    resume.settled(number, digest);
                }
            }
            number += 1;
        }
        if self.resume.as_ref().is_some_and(|resume| self.archive && resume.marks_behind(number)) {
            return Err(ArchiveError::Another(number));
        }
        if first {
            // An archive without members is one.
            let _ = self.send_event(Event::Opened(size));
        }
        Ok(())
    }

    /// What enters the journal when a member is stable.
    fn item(&self, number: u64, member: &Member, digest: &Arc<OnceLock<u64>>) -> Option<Item> {
        let digest = self.running.as_ref().map(|_| digest.clone());
        self.resume.as_ref().map(|resume| match self.archive {
            true => Item::Member { number, digest },
            false => resume.item_of(member),
        })
    }

    /// What is known, and noted, of a large file's parts.
    fn part(&self, item: Option<&Item>, path: &[Bytes]) -> Option<Part> {
        Some(Part::new(self.resume.as_ref()?, item?, path))
    }

    /// All of a member's data has been read.
    fn read_to_its_end(&self, digest: &OnceLock<u64>) {
        if let Some(running) = &self.running {
            let _ = digest.set(running.now());
        }
    }

    /// Before member `number`: whether a stream is what it was up to here. What was held because of that goes.
    fn check(&mut self, number: u64) -> Result<Result<(), Abandoned>, ArchiveError> {
        let (Some(resume), Some(running)) = (&self.resume, &self.running) else { return Ok(Ok(())) };
        if let Some(digest) = resume.mark(number) {
            if digest != running.now() {
                return Err(ArchiveError::Another(number));
            }
            if self.release().is_err() {
                return Ok(Err(Abandoned));
            }
        }
        if self.resume.as_ref().is_some_and(|resume| resume.marks_behind(number)) && self.unchecked.is_none()
        {
            self.unchecked = Some((Vec::new(), 0));
        }
        Ok(Ok(()))
    }

    /// What an earlier run has done of a member. Directories are met again: their attributes come last.
    fn known(&self, number: u64, member: &Member, path: &[Bytes], target: &[Bytes]) -> EarlierResult {
        match &self.resume {
            Some(resume) if self.archive && member.kind != Kind::Dir => {
                resume.member(number, member, path, target)
            }
            _ => EarlierResult::NotDone,
        }
    }

    /// Passes over a member that is done.
    fn pass(&mut self, member: Member, known: EarlierResult) -> Result<(), Abandoned> {
        if let EarlierResult::DoneTooSoon(link) = known {
            let why = format!(
                "hard link to `{}`, which a later member had replaced when this was done: extract it by itself",
                member.path.escape_ascii()
            );
            self.send_event(Event::Rejected(link, why.into()))?;
        }
        self.send_event(Event::Resumed(member.path))
    }

    #[allow(clippy::type_complexity)] // two paths and what they belong to
    fn judge(&self, member: Member) -> Result<Option<(Member, Vec<Bytes>, Vec<Bytes>)>, (Vec<u8>, String)> {
        let path = match self.filter.judge(&member.path) {
            Ok(Verdict::Take(path)) => path,
            Ok(Verdict::Skip) => return Ok(None),
            Err(e) => return Err((member.path, e.to_string())),
        };
        let target = match member.kind {
            Kind::HardLink => match self.filter.link_target(&member.link) {
                Ok(target) => target,
                Err(e) => {
                    return Err((member.path, format!("hard link to `{}`: {e}", member.link.escape_ascii())));
                }
            },
            _ => Vec::new(),
        };
        Ok(Some((member, path, target)))
    }

    fn take(
        &mut self,
        members: &mut dyn Members,
        (number, member, agreed): (u64, Member, bool),
        (path, target): (Vec<Bytes>, Vec<Bytes>),
        item: Option<Item>,
        digest: &OnceLock<u64>,
    ) -> Result<Result<(), Abandoned>, ArchiveError> {
        if member.sparse.is_none() && member.stored <= self.whole_max {
            let data = match members.data(member.stored as usize) {
                Ok(data) => data,
                Err(DataError::All(e)) => return Err(e),
                Err(DataError::Member(why)) => {
                    return Ok(
                        self.send_event(Event::Rejected(member.path, MemberError::new(Cause::Unread, why)))
                    );
                }
            };
            let Some(permit) = self.permit(data.len() + limits::MEMBER_OVERHEAD) else {
                return Ok(Err(Abandoned));
            };
            self.read_to_its_end(digest);
            let data = Data::Whole(data, permit);
            let taken = PendingMember { member, path, target, agreed, data, item, part: None };
            return Ok(self.send_event(Event::Member(Box::new(taken))));
        }
        let (send, pieces) = mpsc::channel(limits::PIECES_PER_COMMIT);
        let whole = [Segment { offset: 0, len: member.stored }];
        let segments = member.sparse.clone().unwrap_or_else(|| whole.to_vec());
        let part = self.part(item.as_ref(), &path);
        let from = part.as_ref().map_or(0, Part::from);
        let behind = |segment: &Segment| from.saturating_sub(segment.offset).min(segment.len);
        // What is there is passed over before anything else is sent of it: it must be what it was.
        match members.skip(segments.iter().map(behind).sum()) {
            Ok(()) => {}
            Err(DataError::All(e)) => return Err(e),
            Err(DataError::Member(why)) => {
                return Ok(
                    self.send_event(Event::Rejected(member.path, MemberError::new(Cause::Unread, why)))
                );
            }
        }
        if let (Some(running), Some(digest)) = (&self.running, part.as_ref().and_then(Part::digest))
            && running.now() != digest
        {
            return Err(ArchiveError::Another(number + 1));
        }
        let taken = PendingMember { member, path, target, agreed, data: Data::Pieces(pieces), item, part };
        // Its pieces are taken from now on.
        if self.release().is_err() || self.send_now(Event::Member(Box::new(taken))).is_err() {
            return Ok(Err(Abandoned));
        }
        let broken = |e| match e {
            DataError::Member(why) => {
                let _ = send.blocking_send(Err(why));
                Ok(Ok(()))
            }
            DataError::All(e) => {
                let _ = send.blocking_send(Err(e.to_string()));
                Err(e)
            }
        };
        for segment in segments {
            let mut at = behind(&segment);
            while at < segment.len {
                let n = (segment.len - at).min(limits::PIECE_BYTES as u64) as usize;
                // A file that fails must not pass for whole.
                let data = match members.data(n) {
                    Ok(data) if data.is_empty() => {
                        let _ = send.blocking_send(Err("it became shorter while it was read".into()));
                        return Ok(Ok(()));
                    }
                    Ok(data) => data,
                    Err(e) => return broken(e),
                };
                let n = data.len();
                let Some(permit) = self.permit(n) else { return Ok(Err(Abandoned)) };
                let digest = self.running.as_ref().map(Running::now);
                let piece = Piece { offset: segment.offset + at, data, digest, _permit: permit };
                if send.blocking_send(Ok(piece)).is_err() {
                    // The file was given up: the archive's reader passes over the rest.
                    return Ok(Ok(()));
                }
                at += n as u64;
            }
        }
        self.read_to_its_end(digest);
        Ok(Ok(()))
    }

    fn permit(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let n = u32::try_from(bytes).ok()?;
        if let Ok(permit) = self.budget.clone().try_acquire_many_owned(n) {
            return Some(permit);
        }
        self.runtime.block_on(self.budget.clone().acquire_many_owned(n)).ok()
    }

    /// Tells, or holds, what comes next.
    fn send_event(&mut self, event: Event) -> Result<(), Abandoned> {
        let Some((unchecked, bytes)) = self.unchecked.as_mut().filter(|_| !matches!(event, Event::Opened(_)))
        else {
            return self.send_now(event);
        };
        *bytes += limits::MEMBER_OVERHEAD;
        if let Event::Member(taken) = &event {
            *bytes += taken.member.stored as usize;
        }
        unchecked.push(event);
        // More is not held: what may be sent is of an archive that was the same at every mark so far.
        if *bytes > limits::HELD_UNCHECKED_BYTES_MAX.min(self.budget_bytes / 2) {
            self.release()
        } else {
            Ok(())
        }
    }

    /// What was held goes.
    fn release(&mut self) -> Result<(), Abandoned> {
        let unchecked = self.unchecked.take().map(|(unchecked, _)| unchecked).unwrap_or_default();
        unchecked.into_iter().try_for_each(|event| self.send_now(event))
    }

    fn send_now(&self, event: Event) -> Result<(), Abandoned> {
        self.send.blocking_send(event).map_err(|_| Abandoned)
    }
}

/// Reads what is left of a member's data.
fn drain(members: &mut dyn Members) -> Result<(), ArchiveError> {
    loop {
        match members.data(limits::PIECE_BYTES) {
            Ok(data) if data.is_empty() => return Ok(()),
            Err(DataError::All(e)) => return Err(e),
            Ok(_) => {}
            Err(DataError::Member(_)) => return Ok(()),
        }
    }
}
