//! Reads members on a separate thread, as far ahead as the limit on bytes in memory allows.

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
    /// The name that messages show.
    fn name(&self) -> String;

    /// Which members to extract, and under which names.
    fn filter(&self) -> Filter;

    /// Opens the archive, on the reading thread. May block. Fails when it cannot be opened or is not an archive.
    fn open(self: Box<Self>, resume: Option<&Resume>, read: ReadCount) -> Result<OpenArchive, ArchiveError>;
}

pub(crate) struct OpenArchive {
    pub(crate) members: Box<dyn Members>,
    /// Bytes of the archive on disk, compressed or not. `None`: it is not a regular file.
    pub(crate) size: Option<u64>,
    /// The digest of what has been read. Kept only with a journal, and only for an archive that cannot be read twice.
    pub(crate) digest: Option<Running>,
}

/// A sequence of members. The reading thread calls the methods, so they may block.
pub trait Members: Send {
    /// The next item; `None` at the end. An error means that nothing more can be read.
    fn next_member(&mut self) -> Result<Option<SourceItem>, ArchiveError>;

    /// Up to `max` bytes of the latest member's data. Of a sparse file only the segments' bytes come. Fewer than `max`
    /// bytes mean the end of the data.
    fn data(&mut self, max: usize) -> Result<Bytes, DataError>;

    /// Skips this many bytes of the latest member's data, at most to its end.
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
    /// A file that the destination's server copies itself: the client does not read its data.
    Copy(Member, Original),
    /// A member that may replace an existing object because the user agreed ([`super::When::Agreed`]).
    Agreed(Box<SourceItem>),
    /// The name of a member that cannot be read, and why.
    Unreadable(Vec<u8>, MemberError),
    /// The name of a member that an earlier run extracted.
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
    /// Other members can be read.
    Member(String),
    /// Nothing more can be read.
    All(ArchiveError),
}

impl Source {
    /// Members that do not come from an archive, for example those of a tree.
    pub fn members(members: Box<dyn Members>) -> Source {
        Source(SourceKind::Members(members))
    }

    pub(crate) fn archive(archive: Box<dyn ArchiveSource>) -> Source {
        Source(SourceKind::Archive(archive))
    }

    pub(super) fn name(&self) -> String {
        match &self.0 {
            SourceKind::Archive(archive) => archive.name(),
            SourceKind::Members(_) => "-".to_owned(),
        }
    }
}

/// A member to extract.
pub(super) struct PendingMember {
    pub(super) member: Member,
    /// The path below the destination. Empty: the destination itself.
    pub(super) path: Vec<Bytes>,
    /// A hard link's target.
    pub(super) target: Vec<Bytes>,
    /// See [`SourceItem::Agreed`].
    pub(super) agreed: bool,
    pub(super) data: Data,
    /// The journal's entry for the member, written when the member is durable.
    pub(super) item: Option<Item>,
    /// The journal's entries for a large file that is not complete yet.
    pub(super) part: Option<Part>,
}

pub(super) enum Data {
    /// All data, with its share of the memory budget.
    Whole(Bytes, OwnedSemaphorePermit),
    /// The server copies the data from this file.
    Copy(Box<Original>, OwnedSemaphorePermit),
    /// The data comes in pieces, and starts after the part that an earlier run made durable.
    Pieces(mpsc::Receiver<Result<Piece, String>>),
}

/// A part of a large file.
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) data: Bytes,
    /// The archive's digest up to the end of this piece. Only for an archive that cannot be read twice.
    pub(super) digest: Option<u64>,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// What the reading thread sends.
pub(super) enum Event {
    /// The first header was valid. The size is that of [`OpenArchive`].
    Opened(Option<u64>),
    Member(Box<PendingMember>),
    Skipped,
    Resumed(Vec<u8>),
    /// A member that cannot be read, or whose name or link target is not allowed.
    Rejected(Vec<u8>, MemberError),
    /// The end, or why nothing more can be read.
    End(Option<ArchiveError>),
}

/// Bytes read from the archive on disk, before decompression.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadCount(Arc<AtomicU64>);

impl ReadCount {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The reader seeked to this offset.
    pub(crate) fn set(&self, offset: u64) {
        self.0.store(offset, Ordering::Relaxed);
    }
}

pub(super) struct Reading {
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) count: ReadCount,
    /// The bytes that may still be read into memory. When it is used up, the reader waits until members are done.
    pub(super) budget: Arc<Semaphore>,
}

impl Reading {
    /// Appends what has been read to `events`, up to [`limits::MEMBERS_AHEAD`]. Returns whether more may come.
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

/// Starts the thread. It ends with the archive, or when the receiver is gone.
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
        // The receiver may be gone.
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
    /// The source is an archive: the journal knows its members by number. It knows those of a tree by path.
    archive: bool,
    /// See [`OpenArchive::digest`].
    running: Option<Running>,
    /// Events that wait until the next mark shows that this is still the archive of the earlier run; and their bytes.
    unchecked: Option<(Vec<Event>, usize)>,
}

/// The receiver of the events is gone.
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
        if self.resume.as_ref().is_some_and(|resume| self.archive && resume.has_marks_after(number)) {
            return Err(ArchiveError::Another(number));
        }
        if first {
            // An archive without members is valid.
            let _ = self.send_event(Event::Opened(size));
        }
        Ok(())
    }

    fn item(&self, number: u64, member: &Member, digest: &Arc<OnceLock<u64>>) -> Option<Item> {
        let digest = self.running.as_ref().map(|_| digest.clone());
        self.resume.as_ref().map(|resume| match self.archive {
            true => Item::Member { number, digest },
            false => resume.item_of(member),
        })
    }

    fn part(&self, item: Option<&Item>, path: &[Bytes]) -> Option<Part> {
        Some(Part::new(self.resume.as_ref()?, item?, path))
    }

    /// Fixes the digest after a member's data.
    fn read_to_its_end(&self, digest: &OnceLock<u64>) {
        if let Some(running) = &self.running {
            let _ = digest.set(running.now());
        }
    }

    /// Called before member `number`. If the journal has a mark here, compares the stream's digest with it: a difference
    /// means another archive. If they agree, the waiting events are sent.
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
        if self.resume.as_ref().is_some_and(|resume| resume.has_marks_after(number))
            && self.unchecked.is_none()
        {
            self.unchecked = Some((Vec::new(), 0));
        }
        Ok(Ok(()))
    }

    /// What an earlier run did of a member. Directories always run again, because their attributes are set last.
    fn known(&self, number: u64, member: &Member, path: &[Bytes], target: &[Bytes]) -> EarlierResult {
        match &self.resume {
            Some(resume) if self.archive && member.kind != Kind::Dir => {
                resume.member(number, member, path, target)
            }
            _ => EarlierResult::NotDone,
        }
    }

    /// Reports a member that is not extracted again.
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

    #[allow(clippy::type_complexity)] // the member, its path and its link target
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
        // Skip the durable part first. Its digest must agree before the rest is sent.
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
        // Send the waiting events now: the receiver must take this member's pieces before the reader can go on.
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
                // A file that breaks off must not look complete.
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
                    // The receiver gave up this file. The archive's reader skips the rest.
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

    /// Sends an event, or lets it wait ([`Worker::unchecked`]).
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
        // The wait is bounded. What is sent then comes from an archive that agreed at every mark so far.
        if *bytes > limits::HELD_UNCHECKED_BYTES_MAX.min(self.budget_bytes / 2) {
            self.release()
        } else {
            Ok(())
        }
    }

    fn release(&mut self) -> Result<(), Abandoned> {
        let unchecked = self.unchecked.take().map(|(unchecked, _)| unchecked).unwrap_or_default();
        unchecked.into_iter().try_for_each(|event| self.send_now(event))
    }

    fn send_now(&self, event: Event) -> Result<(), Abandoned> {
        self.send.blocking_send(event).map_err(|_| Abandoned)
    }
}

/// Reads the rest of a member's data, so that the digest includes it.
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
