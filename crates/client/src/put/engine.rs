//! The loop around the plan: members in from the reading thread, compounds out, replies back in.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfast_nfs::v4::args::{CreateType, SetattrArgs};
use landfast_nfs::v4::attr::{Bitmap, number};
use landfast_nfs::v4::{ArgOp, CompoundRes, FileHandle, NfsStat, NfsTime, OpNum, SpecData, Stateid};
use landfast_rpc::{AcceptStat, CallError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::attrs::{self, AttrRules, user_xattrs};
use super::capacity::{capacity, window};
use super::early_dirs::NewDir;
use super::early_results::{EarlyResults, InFlight};
use super::existing::{Existing, listed_attrs};
use super::input::{Input, begin};
use super::options::{PutOptions, Tuning, Xattrs};
use super::pack::Batch;
use super::pieces;
use super::plan::{Final, Job, Make, Plan, Settled, SlowDone, SlowTask, Success};
use super::replies::Feedback;
use super::report::{Cause, FatalError, MemberError, Progress, Report};
use super::server_copy;
use super::source::{Data, Event, PendingMember, Piece, Reading};
use super::stepwise;
use super::stop::stopped;
use super::tree::{DirId, ROOT, Tree};
use super::trouble::Trouble;
use crate::archive::{ArchiveError, Kind, Member};
use crate::compound::{Results, values};
use crate::cost::{REPLY_HEAD, REQUEST_HEAD};
use crate::fs::{Nfs, StepError};
use crate::limits;
use crate::ops::{self, Entry};
use crate::overflow::{Records, Table, TempFile};
use crate::patience::Patience;
use crate::resume::{Item, Part, Resume};
use crate::session::{Session, SessionError};
use crate::url::Version;

/// What is kept for a member until it is settled.
#[derive(Default)]
pub(super) struct MemberState {
    /// The member's share of the memory budget.
    _permit: Option<OwnedSemaphorePermit>,
    pieces: Option<mpsc::Receiver<Result<Piece, String>>>,
    bytes: u64,
    kind: Option<Kind>,
    item: Option<Item>,
    part: Option<Part>,
}

/// Finds out which results of earlier runs still exist, and gives the owner access again to directories that they made.
async fn examine(session: &Session, root: &FileHandle, resume: &Resume) {
    let Some(mut examination) = resume.examine(root.clone()) else { return };
    let nfs = Nfs::rooted(session.clone());
    while examination.has_next_level() {
        let closed = resume.examine_level(&nfs, &mut examination).await;
        for part in closed.chunks(limits::GATHERED_MIN) {
            // If that fails, the error shows when something is put into the directory.
            let opened = part.iter().cloned();
            let opened = opened.map(|(fh, attrs, shown)| Final { fh, attrs, xattrs: Vec::new(), shown });
            if let Err(e) = set_all(session, opened.collect()).await {
                tracing::debug!("modes of directories: {e}");
            }
        }
    }
    resume.finish_examination(examination);
}

pub(super) async fn extract(
    session: &Session,
    root: FileHandle,
    first: EarlyResults,
    options: &PutOptions,
    input: Input,
    progress: Arc<dyn Progress>,
) -> (Report, Option<FatalError>) {
    let reading = match input {
        Input::Reading(reading) => reading,
        Input::Unopened(source) => {
            if let Some(resume) = &options.resume {
                examine(session, &root, resume).await;
            }
            match begin(options, source, &*progress).await {
                Ok(reading) => reading,
                Err(e) => return (Report::default(), Some(e)),
            }
        }
    };
    let mut rules = AttrRules::new(options, session.options().identity.uid == 0);
    let no_xattrs = options.xattrs != Xattrs::No
        && !match first.has_xattrs {
            Some(there) => there,
            None => has_xattrs(session, &root).await,
        };
    if no_xattrs {
        rules.forget_xattrs();
    }
    let capacity = capacity(session, &options.tuning);
    let Tuning { keys_in_memory, dirs_in_memory, .. } = options.tuning;
    let tree =
        Tree::new(root, dirs_in_memory, Table::new(keys_in_memory, TempFile::new()), Records::default());
    let mut plan = Plan::new(tree, options.existing, rules.implied_dir(), capacity);
    // What `cp` has made is not replaced in the same run.
    plan.journalled = options.resume.is_some() && !matches!(options.existing, Existing::Look(_));
    let mut made: Vec<DirId> = Vec::with_capacity(first.dirs.len());
    for (NewDir { path, parent, implied, .. }, fh) in first.dirs {
        let parent = parent.and_then(|i| made.get(i).copied()).unwrap_or(ROOT);
        made.push(plan.made_early(parent, path, implied, fh));
    }
    let mut sent = first.sent;
    for (id, _) in sent.iter_mut().flat_map(|sent| &mut sent.batch.finished) {
        // The reply has a directory for each of these numbers.
        *id = made.get(id.0 as usize).copied().unwrap_or(ROOT);
    }
    let finishing = sent.iter().flat_map(|sent| &sent.batch.finished).map(|(id, _)| *id);
    plan.sent_early(first.number, finishing);
    let mut engine = Engine::new(session.clone(), plan, rules, options, progress);
    engine.refuses_xattrs = no_xattrs && options.xattrs == Xattrs::Must;
    engine.entries = first.entries;
    engine.run(reading, first.events, sent).await
}

/// Whether objects at the destination can have extended attributes. `true` if the request fails: setting them shows it
/// then.
async fn has_xattrs(session: &Session, root: &FileHandle) -> bool {
    if session.version() != Version::V42 {
        return false;
    }
    let mask = Bitmap::of(&[number::XATTR_SUPPORT]);
    let reply = ops::repeatable(session, vec![ArgOp::Putfh(root.clone()), ArgOp::Getattr(mask)]).await;
    let Ok(mut results) = reply.map(Results::new) else { return true };
    let found = results.skip(&[OpNum::PUTFH]).and_then(|()| results.getattr());
    found.and_then(|attrs| values(&attrs)).is_ok_and(|attrs| attrs.xattr_support == Some(true))
}

/// The result of a task.
enum Done {
    Batch(Batch, Result<CompoundRes, SessionError>),
    /// A compound that was sent before its members were planned.
    Sent(Batch, Result<CompoundRes, SessionError>),
    Slow(Box<SlowTask<MemberState>>, Result<SlowDone, Trouble>),
    Listing(DirId, Result<Option<Vec<Entry>>, ops::Error>),
    /// So many links are in the journal.
    Journalled(u64),
}

struct Engine {
    session: Session,
    /// The entries of the destination, if they are known already. The plan takes them when it asks for a listing.
    entries: Option<Vec<Entry>>,
    plan: Plan<MemberState>,
    rules: AttrRules,
    existing: Existing,
    window: usize,
    progress: Arc<dyn Progress>,
    report: Report,
    send: mpsc::Sender<Done>,
    done: mpsc::Receiver<Done>,
    batches: usize,
    /// Replies to compounds that were sent before their members were planned. They wait here until then.
    early: Vec<(Batch, Result<CompoundRes, SessionError>)>,
    tasks: usize,
    slow_turns: Arc<Semaphore>,
    /// After NFS4ERR_DELAY: send nothing before this time. And the length of the next such pause.
    pause_until: Option<Instant>,
    pause: Duration,
    fatal: Option<SessionError>,
    /// The destination has no extended attributes, and members that have some are to be reported.
    refuses_xattrs: bool,
    /// The archive is not the one that the earlier run began.
    another: Option<ArchiveError>,
    committed: (u64, u64),
    made: bool,
    /// Why nothing more can be made.
    hopeless: Option<NfsStat>,
    resume: Option<Arc<Resume>>,
    /// The journal is being flushed.
    flushing: bool,
    stop: Option<watch::Receiver<bool>>,
}

impl Engine {
    fn new(
        session: Session,
        plan: Plan<MemberState>,
        rules: AttrRules,
        options: &PutOptions,
        progress: Arc<dyn Progress>,
    ) -> Engine {
        let (send, done) = mpsc::channel(limits::REPLIES_WAITING_MAX);
        let window = window(&session, &options.tuning);
        Engine {
            session,
            entries: None,
            plan,
            rules,
            existing: options.existing,
            window,
            progress,
            report: Report::default(),
            send,
            done,
            batches: 0,
            early: Vec::new(),
            tasks: 0,
            slow_turns: Arc::new(Semaphore::new(limits::STEPWISE_MAX)),
            pause_until: None,
            pause: limits::BACKOFF_MIN,
            fatal: None,
            refuses_xattrs: false,
            another: None,
            committed: (0, 0),
            made: false,
            hopeless: None,
            resume: options.resume.clone(),
            flushing: false,
            stop: options.stop.clone(),
        }
    }

    async fn run(
        mut self,
        mut reading: Reading,
        before: Vec<Event>,
        sent: Vec<InFlight>,
    ) -> (Report, Option<FatalError>) {
        let mut ended = false;
        let members: HashSet<u32> =
            sent.iter().flat_map(|sent| &sent.batch.members).map(|(number, _)| number.0).collect();
        for InFlight { batch, reply } in sent {
            self.batches += 1;
            let send = self.send.clone();
            tokio::spawn(async move {
                let reply = reply.await.unwrap_or(Err(SessionError::Ended));
                let _ = send.send(Done::Sent(batch, reply)).await;
            });
        }
        // On a slow network it pays to learn first which directories are complete: their final attributes then need no separate
        // request.
        let at_once = match self.session.response_time() > limits::SHORT_ANSWER {
            true => limits::MEMBERS_AHEAD,
            false => limits::MEMBERS_AT_ONCE,
        };
        let mut events = Vec::new();
        let mut before = before.into_iter().enumerate();
        let mut linger: Option<Instant> = None;
        loop {
            // Take what has been read, a little at a time, so that compounds can be sent meanwhile.
            for (number, event) in before.by_ref().take(at_once) {
                ended |= self.event(event, members.get(&(number as u32)).copied());
            }
            if ended {
                self.plan.end();
            }
            self.start_listings();
            self.take_early();
            self.start_slow();
            let read = before.len() == 0;
            let starved = ended
                || (read
                    && reading.events.is_empty()
                    && reading.budget.available_permits() < limits::PIECE_BYTES);
            let linger_over = linger.is_some_and(|t| t <= Instant::now());
            self.start_batches(starved || linger_over);
            self.settle(&reading);
            self.start_flush();
            if let Some(e) = self.plan.unread().filter(|_| !ended) {
                // What is known is done; what is not known cannot be planned.
                self.report.stopped.get_or_insert(e.to_string());
                ended = true;
                before = Vec::new().into_iter().enumerate();
                give_up(&mut reading);
            }
            if let Some(trouble) = self.plan.trouble() {
                self.progress.warning(&trouble.to_string());
            }
            if let Some(status) = self.hopeless.filter(|_| !ended) {
                ended = true;
                for (number, event) in std::mem::replace(&mut before, Vec::new().into_iter().enumerate()) {
                    if let (true, Event::Member(sent)) = (members.contains(&(number as u32)), event) {
                        self.fail(&sent.member, &not_finished(status));
                    }
                }
                give_up(&mut reading);
            }
            if (self.fatal.is_some() || self.hopeless.is_some()) && self.batches + self.tasks == 0 {
                break;
            }
            if ended && self.plan.open() == 0 && self.batches + self.tasks == 0 {
                break;
            }
            // If nothing is in flight, a compound that is not full waits a moment for more members.
            linger = match (self.batches, self.plan.ready()) {
                (0, 1..) if !linger_over => linger.or(Some(Instant::now() + limits::LINGER)),
                _ => None,
            };
            let wake = [linger, self.pause_until].into_iter().flatten().min();
            let timer = async {
                match wake {
                    Some(t) => sleep_until(t.into()).await,
                    None => std::future::pending().await,
                }
            };
            let reads = !ended && self.fatal.is_none();
            tokio::select! {
                biased;
                () = stopped(&mut self.stop), if !ended => {
                    // Finish what was started. Nothing more is taken from the reader.
                    (self.report.interrupted, ended) = (true, true);
                    before = Vec::new().into_iter().enumerate();
                    give_up(&mut reading);
                }
                Some(done) = self.done.recv() => {
                    self.take(done);
                }
                () = std::future::ready(()), if !read => {}
                n = reading.events.recv_many(&mut events, at_once), if reads => {
                    // The thread always ends with `End`. Without it, it has panicked.
                    if n == 0 {
                        self.report.stopped = Some("the archive's reader stopped".into());
                        ended = true;
                    }
                    for event in events.drain(..) {
                        ended |= self.event(event, None);
                    }
                }
                () = timer => {}
            }
        }
        drop(reading.events);
        if let Some(e) = self.fatal.take() {
            let why = e.to_string().into();
            self.plan.abandon(&why, &why);
            self.count_settled();
            self.report.stopped = Some(e.to_string());
            return (self.report, Some(e.into()));
        }
        if let Some(e) = self.another.take() {
            return (self.report, Some(FatalError::Another(e)));
        }
        if let Some(status) = self.hopeless {
            self.plan.abandon(&not_begun(), &not_finished(status));
            self.count_settled();
            self.report.stopped = Some(words(status).to_owned());
        }
        let mut fatal = None;
        while fatal.is_none() {
            let finals = self.plan.next_finals();
            if finals.is_empty() {
                break;
            }
            fatal = self.finish_dirs(finals).await;
        }
        if let Some(e) = self.plan.unread() {
            self.report.stopped = Some(format!("{e}; modes, owners and times of directories may be missing"));
        }
        if let Some(e) = &fatal {
            self.report.stopped = Some(e.to_string());
        }
        (self.report, fatal.map(FatalError::from))
    }

    /// Returns whether this was the last event. `sent`: the number under which the member was sent early.
    fn event(&mut self, event: Event, sent: Option<u32>) -> bool {
        match event {
            Event::Opened(_) => {}
            Event::Member(pending) => {
                self.progress.member(&pending.member.path);
                let job = self.job(*pending);
                self.plan.add(Job { sent, ..job });
            }
            Event::Skipped => self.report.skipped += 1,
            Event::Rejected(path, why) => {
                if !why.is_incomplete() {
                    self.plan.unread_member(&path);
                }
                self.progress.failed(&path, &why);
                self.report.fail(&path, &why);
            }
            Event::Resumed(path) => {
                self.report.resumed += 1;
                self.progress.resumed(&path);
            }
            Event::End(Some(e @ ArchiveError::Another(_))) => {
                self.report.stopped = Some(e.to_string());
                self.another = Some(e);
                return true;
            }
            Event::End(error) => {
                self.report.stopped = error.map(|e| e.to_string());
                return true;
            }
        }
        false
    }

    /// Reports a failure of a member that is not settled by the plan.
    fn fail(&mut self, member: &Member, why: &MemberError) {
        let why = MemberError { kind: Some(member.kind), ..why.clone() };
        self.progress.failed(&member.path, &why);
        self.report.fail(&member.path, &why);
    }

    fn job(&mut self, pending: PendingMember) -> Job<MemberState> {
        let PendingMember { member, path, target, agreed, data, item, part } = pending;
        let attrs = self.rules.of(&member);
        if self.refuses_xattrs && !user_xattrs(&member).is_empty() {
            self.fail(&member, &stepwise::no_xattrs(NfsStat::NFS4ERR_NOTSUPP));
        }
        let modified = NfsTime { seconds: member.mtime.seconds, nseconds: member.mtime.nanos };
        let mut cargo =
            MemberState { bytes: member.size, kind: Some(member.kind), item, part, ..MemberState::default() };
        let mut copy = None;
        let whole = match data {
            Data::Whole(data, permit) => {
                cargo._permit = Some(permit);
                Some(data)
            }
            Data::Copy(original, permit) => {
                cargo._permit = Some(permit);
                copy = Some(original);
                None
            }
            Data::Pieces(pieces) => {
                cargo.pieces = Some(pieces);
                None
            }
        };
        let make = match (member.kind, whole) {
            (Kind::File, None) if let Some(original) = copy => Make::Copy(original),
            (Kind::File, Some(data)) => Make::File(data),
            (Kind::File, None) => Make::Pieces(member.size),
            (Kind::Dir, _) => Make::Dir,
            (Kind::HardLink, _) => Make::Link(target),
            (Kind::Symlink, _) => Make::Other(CreateType::Lnk(member.link.clone().into())),
            (Kind::Socket, _) => Make::Other(CreateType::Sock),
            (Kind::Fifo, _) => Make::Other(CreateType::Fifo),
            (Kind::Char, _) => Make::Other(CreateType::Chr(device(&member))),
            (Kind::Block, _) => Make::Other(CreateType::Blk(device(&member))),
        };
        let ours = member.kind == Kind::Dir
            && self.resume.as_ref().is_some_and(|resume| resume.made_before(&path.join(&b'/')));
        Job { shown: member.path, path, make, attrs, modified, ours, agreed, sent: None, payload: cargo }
    }

    /// Sends full compounds. Also sends one that is not full if nothing is in flight, or if nothing more will come soon.
    fn start_batches(&mut self, not_full: bool) {
        if let Some(until) = self.pause_until {
            if Instant::now() < until {
                return;
            }
            self.pause_until = None;
        }
        let full = self.plan.capacity().members;
        while self.fatal.is_none()
            && self.hopeless.is_none()
            && self.batches < self.window
            && self.plan.ready() > 0
        {
            if self.plan.ready() < full && !not_full {
                break;
            }
            let Some(batch) = self.plan.next_batch() else { break };
            self.batches += 1;
            let (session, send) = (self.session.clone(), self.send.clone());
            tokio::spawn(async move {
                let reply = session.compound_encoded(batch.body.clone(), batch.ops, batch.cachethis).await;
                let _ = send.send(Done::Batch(batch, reply)).await;
            });
        }
        // Packing may have found members that need single steps.
        self.start_slow();
    }

    fn start_listings(&mut self) {
        let wanted = listed_attrs(self.existing);
        let mut wants = self.plan.take_listings();
        // Entries that are known already may lead to further directories.
        if wants.iter().any(|(id, _)| *id == ROOT)
            && let Some(entries) = self.entries.take()
        {
            wants.retain(|(id, _)| *id != ROOT);
            self.plan.listed(ROOT, Some(entries));
            wants.extend(self.plan.take_listings());
        }
        for (id, fh) in wants {
            self.tasks += 1;
            let (session, send) = (self.session.clone(), self.send.clone());
            tokio::spawn(async move {
                let listed = ops::list(&session, &fh, wanted, limits::LISTING_MAX).await;
                let _ = send.send(Done::Listing(id, listed)).await;
            });
        }
    }

    fn start_slow(&mut self) {
        while self.fatal.is_none()
            && self.hopeless.is_none()
            && let Some(mut task) = self.plan.next_slow()
        {
            self.tasks += 1;
            let (session, send, existing) = (self.session.clone(), self.send.clone(), self.existing);
            let turns = self.slow_turns.clone();
            tokio::spawn(async move {
                // The semaphore is closed when nothing more can be made.
                let Ok(_turn) = turns.acquire_owned().await else {
                    let _ = send.send(Done::Slow(Box::new(task), Ok(SlowDone::Failed(not_begun())))).await;
                    return;
                };
                let mut part = task.job.payload.part.take();
                let outcome = match (task.job.make.clone(), task.job.payload.pieces.take()) {
                    (Make::Pieces(size), Some(mut pieces)) => {
                        pieces::extract(&session, &task, (size, &mut pieces), existing, &mut part).await
                    }
                    (Make::Copy(original), _) => {
                        server_copy::extract(&session, &task, &original, existing, &mut part).await
                    }
                    _ => stepwise::extract(&session, &task, existing).await,
                };
                let _ = send.send(Done::Slow(Box::new(task), outcome)).await;
            });
        }
    }

    /// Makes the journal durable, if something waits for the links that it has been told of.
    fn start_flush(&mut self) {
        let (Some(links), Some(resume)) = (self.plan.unjournalled_links(), self.resume.clone()) else {
            return;
        };
        if std::mem::replace(&mut self.flushing, true) {
            return;
        }
        self.tasks += 1;
        let send = self.send.clone();
        tokio::task::spawn_blocking(move || {
            // A journal that cannot be written is reported at the end. Nothing waits for it.
            if let Err(e) = resume.flush() {
                tracing::debug!("{e}");
            }
            let _ = send.blocking_send(Done::Journalled(links));
        });
    }

    /// Processes the early replies whose members are planned now.
    fn take_early(&mut self) {
        for (batch, outcome) in std::mem::take(&mut self.early) {
            match self.plan.planned(&batch) {
                Some(batch) => self.replied(&batch, outcome),
                None => self.early.push((batch, outcome)),
            }
        }
    }

    fn replied(&mut self, batch: &Batch, outcome: Result<CompoundRes, SessionError>) {
        let feedback = match outcome {
            Ok(reply) => self.plan.replied(batch, reply),
            Err(SessionError::Refused(status)) => self.plan.refused(batch, status),
            // Ganesha decodes at most 1,024 operations, whatever it has granted.
            Err(SessionError::Rpc(CallError::Failed(AcceptStat::GarbageArgs)))
                if batch.ops > limits::OPS_MIN as usize =>
            {
                self.plan.refused(batch, NfsStat::NFS4ERR_TOO_MANY_OPS)
            }
            Err(SessionError::Unknown(_)) => {
                self.plan.lost(batch);
                Feedback::GoOn
            }
            Err(e) => {
                self.fatal.get_or_insert(e);
                return;
            }
        };
        match feedback {
            Feedback::GoOn => self.pause = limits::BACKOFF_MIN,
            Feedback::Pause(refused) => {
                if let Some(id) = refused {
                    self.plan.paused(id, self.pause);
                }
                self.pause_until = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(limits::BACKOFF_MAX);
            }
        }
    }

    fn take(&mut self, done: Done) {
        match done {
            Done::Batch(batch, outcome) => {
                self.batches -= 1;
                self.replied(&batch, outcome);
                self.plan.recycle(batch.body);
            }
            Done::Sent(batch, outcome) => {
                self.batches -= 1;
                self.early.push((batch, outcome));
            }
            Done::Slow(task, outcome) => {
                self.tasks -= 1;
                let done = match (outcome, self.hopeless) {
                    (Ok(SlowDone::Failed(why)), Some(status))
                        if why.cause == Cause::NotBegun && task.begun =>
                    {
                        SlowDone::Failed(not_finished(status))
                    }
                    (Ok(done), _) => done,
                    (Err(Trouble::Step(StepError::Fatal(e))), _) => {
                        let why = e.to_string();
                        self.fatal.get_or_insert(e);
                        SlowDone::Failed(why.into())
                    }
                    (Err(e), _) => SlowDone::Failed(e.into()),
                };
                let task = *task;
                self.plan.slow_done(task.id, task.job, done);
            }
            Done::Journalled(links) => {
                self.tasks -= 1;
                self.flushing = false;
                self.plan.links_journalled(links);
            }
            Done::Listing(id, entries) => {
                self.tasks -= 1;
                match entries {
                    Err(ops::Error::Session(e)) if !matches!(e, SessionError::Refused(_)) => {
                        self.fatal.get_or_insert(e);
                    }
                    // A directory that may be written but not read: attempts show what is in it.
                    other => self.plan.listed(id, other.unwrap_or_default()),
                }
            }
        }
    }

    fn settle(&mut self, reading: &Reading) {
        if self.count_settled() {
            self.progress.committed(self.committed.0, self.committed.1);
        }
        self.progress.read(reading.count.get());
    }

    fn count_settled(&mut self) -> bool {
        let settled = self.plan.take_settled();
        let any = !settled.is_empty();
        for Settled { job, result, implied } in settled {
            let met = matches!(result, Ok(Success::Existed));
            self.made |= matches!(result, Ok(Success::Made));
            if let Some(resume) = &self.resume {
                note(resume, &job, &result);
            }
            match result {
                Ok(Success::Made | Success::Existed) => {}
                Ok(Success::Skipped) => {
                    self.progress.skipped(&job.shown);
                    self.report.skipped += 1;
                    continue;
                }
                // One line reports this for all of them.
                Err(why) if why.cause == Cause::NotBegun => continue,
                Err(why) => {
                    let why = MemberError { kind: job.payload.kind, ..why };
                    self.progress.failed(&job.shown, &why);
                    self.report.fail(&job.shown, &why);
                    if why.is_incomplete() {
                        self.made = true;
                        self.report.count(job.payload.kind, job.payload.bytes);
                    }
                    self.stop_if_hopeless(&why);
                    continue;
                }
            }
            self.report.count(job.payload.kind, job.payload.bytes);
            if !implied {
                match met {
                    true => self.progress.dir_existed(&job.shown),
                    false => self.progress.stable(&job.shown),
                }
                self.committed.0 += 1;
                self.committed.1 += job.payload.bytes;
            }
        }
        any
    }

    /// Stops the run if this failure holds for all later members, too.
    fn stop_if_hopeless(&mut self, why: &MemberError) {
        let Cause::Refused(_, status) = why.cause else { return };
        // GNU cp tries every member, so do the same.
        if matches!(self.existing, Existing::Look(_)) {
            return;
        }
        let all = match status {
            NfsStat::NFS4ERR_NOSPC => true,
            // A read-only filesystem may be mounted below a writable one. A quota may apply to one owner only.
            NfsStat::NFS4ERR_ROFS => !self.made,
            NfsStat::NFS4ERR_DQUOT => !self.rules.sets_owners(),
            _ => false,
        };
        if all && self.hopeless.is_none() {
            self.hopeless = Some(status);
            self.slow_turns.close();
        }
    }

    /// Sets the final attributes of directories, when nothing more is put into them.
    async fn finish_dirs(&mut self, finals: Vec<Final>) -> Option<SessionError> {
        let capacity = self.plan.capacity();
        let by_ops = capacity.ops.saturating_sub(1) / 2;
        let by_reply = capacity.reply.saturating_sub(REPLY_HEAD) / 40;
        let by_request = capacity.request.saturating_sub(REQUEST_HEAD) / 280;
        let each = by_ops.min(by_reply).min(by_request).clamp(1, 256);
        // Extended attributes can be many and large, so they get separate requests.
        let (many, finals): (Vec<Final>, Vec<Final>) = finals.into_iter().partition(|f| !f.xattrs.is_empty());
        for Final { fh, xattrs, shown, .. } in &many {
            let failed = match stepwise::set_xattrs(&self.session, fh, xattrs).await {
                Ok(()) => continue,
                Err(Trouble::Step(StepError::Fatal(e))) => return Some(e),
                Err(e) => MemberError { kind: Some(Kind::Dir), ..MemberError::from(e) },
            };
            self.progress.failed(shown, &failed);
            self.report.fail(shown, &failed);
        }
        let mut tasks = JoinSet::new();
        let turns = Arc::new(Semaphore::new(self.window));
        let finals: Vec<Final> = many.into_iter().chain(finals).collect();
        for part in finals.chunks(each) {
            let (session, part, turns) = (self.session.clone(), part.to_vec(), turns.clone());
            tasks.spawn(async move {
                let _turn = turns.acquire_owned().await;
                set_all(&session, part).await
            });
        }
        while let Some(done) = tasks.join_next().await {
            match done {
                Ok(Ok(failed)) => {
                    for (shown, why) in failed {
                        self.progress.failed(&shown, &why);
                        self.report.fail(&shown, &why);
                    }
                }
                Ok(Err(e)) => return Some(e),
                Err(e) => return Some(SessionError::Unknown(e.to_string())),
            }
        }
        None
    }
}

/// The error of members that are not started any more.
fn not_begun() -> MemberError {
    MemberError::new(Cause::NotBegun, "not begun")
}

/// The error of members of which something was executed, but which nothing more is done for. An older object of the name may be gone.
fn not_finished(status: NfsStat) -> MemberError {
    let text = format!("begun, and not finished: {}", words(status));
    MemberError::new(Cause::Refused(OpNum::OPEN, status), text)
}

fn words(status: NfsStat) -> &'static str {
    match status {
        NfsStat::NFS4ERR_ROFS => "the server's filesystem, or its export to this machine, is read-only",
        NfsStat::NFS4ERR_DQUOT => "the quota on the server is used up",
        _ => "there is no space left on the server",
    }
}

/// Stops the reading thread.
fn give_up(reading: &mut Reading) {
    reading.events.close();
    // The events that wait in the channel give back their share of the memory budget.
    while reading.events.try_recv().is_ok() {}
}

/// Notes a member's result in the journal.
fn note(resume: &Resume, job: &Job<MemberState>, result: &Result<Success, MemberError>) {
    if let Ok(good @ (Success::Made | Success::Existed)) = result {
        if matches!(job.make, Make::Dir) {
            resume.stable_dir(&job.path.join(&b'/'), *good == Success::Existed);
        }
        if let Some(item) = &job.payload.item {
            resume.stable(item);
        }
    }
    if let Some(Item::Member { number, digest: Some(digest) }) = &job.payload.item {
        resume.settled(*number, digest.clone());
    }
}

/// Sets attributes of many objects. Returns which failed, and why.
async fn set_all(
    session: &Session,
    mut rest: Vec<Final>,
) -> Result<Vec<(Vec<u8>, MemberError)>, SessionError> {
    let mut failed = Vec::new();
    let mut patience = Patience::new();
    while !rest.is_empty() {
        let mut ops = Vec::with_capacity(rest.len() * 2);
        for Final { fh, attrs, .. } in &rest {
            ops.push(ArgOp::Putfh(fh.clone()));
            ops.push(ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: attrs.clone() }));
        }
        let reply = match session.compound(ops, false).await {
            Ok(reply) => reply,
            // Setting the same attributes again does no harm.
            Err(SessionError::Unknown(_)) if patience.wait().await => continue,
            Err(SessionError::Refused(_)) if rest.len() > 1 => {
                let tail = rest.split_off(rest.len() / 2);
                failed.extend(Box::pin(set_all(session, rest)).await?);
                rest = tail;
                continue;
            }
            Err(e) => return Err(e),
        };
        let mut results = Results::new(reply);
        let mut done = 0;
        let trouble = loop {
            if done == rest.len() {
                break None;
            }
            match results.skip(&[OpNum::PUTFH, OpNum::SETATTR]) {
                Ok(()) => done += 1,
                Err(e) => break Some(e),
            }
        };
        rest.drain(..done);
        match trouble {
            None => {}
            Some(e)
                if matches!(e.status(), NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE)
                    && patience.wait().await => {}
            // The server does not take so many operations. The rest is shorter, or is split.
            Some(e) if is_too_long(e.status()) && done > 0 => {}
            Some(e) if is_too_long(e.status()) && rest.len() > 1 => {
                let tail = rest.split_off(rest.len() / 2);
                failed.extend(Box::pin(set_all(session, rest)).await?);
                rest = tail;
            }
            Some(e) if e.status() == NfsStat::NFS4ERR_RESOURCE && patience.wait().await => {}
            // A caller that may not change the owner may still set the rest.
            Some(e) if stepwise::may_be_owner(e.status()) && stepwise::has_owner(&rest[0].attrs) => {
                let text = format!("extracted, but its owner is not set: {e}");
                failed.push((rest[0].shown.clone(), MemberError::new(Cause::Attributes(e.status()), text)));
                rest[0].attrs = attrs::without_its_owner(&rest[0].attrs);
                if rest[0].attrs.mask.is_empty() {
                    rest.remove(0);
                }
            }
            Some(e) => {
                let Final { shown, .. } = rest.remove(0);
                if failed.last().is_some_and(|(last, _)| *last == shown) {
                    continue;
                }
                let text = format!("extracted, but its mode, owner or time is not set: {e}");
                failed.push((shown, MemberError::new(Cause::Attributes(e.status()), text)));
            }
        }
    }
    Ok(failed)
}

/// Whether a COMPOUND with fewer operations may succeed.
fn is_too_long(status: NfsStat) -> bool {
    matches!(status, NfsStat::NFS4ERR_RESOURCE | NfsStat::NFS4ERR_TOO_MANY_OPS | NfsStat::NFS4ERR_REP_TOO_BIG)
}

fn device(member: &Member) -> SpecData {
    SpecData { major: member.device.0, minor: member.device.1 }
}
