//! The journal's file.
//!
//! One run at a time owns it (flock). Durable members are queued. A thread appends them in batches, each with an
//! fdatasync. After one failure nothing more is written, so that the file stays true.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use landfast_nfs::v4::FileHandle;
use rustix::fs::{FlockOperation, OFlags, flock};
use tokio::sync::watch;

use super::batch::Batch;
use super::destination::{Closed, Destination, Level, Listed, Local};
use super::done::{DoneBefore, Ranges};
use super::earlier::{EarlierResult, MembersSoFar, Running, Watermark, put_mark};
use super::journal::{self, BEGINNING, Contents, Flaw, Header, Job, Record, VERSION};
use super::key::{Item, Key};
use super::partial;
use crate::archive::Member;
use crate::fs::{Nfs, Start};
use crate::limits::{JOURNAL_QUEUE_MAX, JOURNAL_READ_BYTES, JOURNAL_SYNC_ENTRIES, JOURNAL_SYNC_INTERVAL};

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// An I/O error.
    #[error("cannot use the journal {}: {why}", path.display())]
    File { path: PathBuf, why: io::Error },
    /// The file is not a journal.
    #[error("{} is no journal of --resume: it was left as it is; name a file that does not exist yet", .0.display())]
    Foreign(PathBuf),
    /// The journal has another format.
    #[error("the journal {} has format {found}, this program knows {VERSION}: finish that job with the program that began it", path.display())]
    Version { path: PathBuf, found: u64 },
    /// The file was changed after it was written.
    #[error("the journal {} is damaged at line {line} (byte {at}), which was on stable storage once: what was done cannot be told; remove it and begin anew", path.display())]
    Damaged {
        path: PathBuf,
        line: u64,
        /// The offset of the damaged line.
        at: usize,
    },
    /// The journal belongs to another job.
    #[error("the journal {} is of another job: {what}; give this one a journal of its own", path.display())]
    OtherJob {
        path: PathBuf,
        /// In what the jobs differ.
        what: String,
    },
    /// Another run uses the journal.
    #[error("the journal {} is in use by another run", .0.display())]
    Busy(PathBuf),
}

/// An open journal and its contents.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
    /// `None`: the journal is new.
    contents: Option<Contents>,
    key: Vec<u64>,
}

/// What [`JournalFile::begin`] found.
pub enum JournalStart {
    /// An earlier run has finished the job.
    Finished {
        /// How many objects were done.
        done: u64,
        /// When it was finished, in seconds since 1970.
        when: u64,
    },
    /// The job, or the rest of it, is to be done.
    Go(Arc<Resume>),
}

impl JournalFile {
    /// Opens the journal at `path`, or creates an empty one. A file that is not a journal is left unchanged.
    pub fn open(path: &Path) -> Result<JournalFile, ResumeError> {
        let fail = |why: io::Error| ResumeError::File { path: path.to_owned(), why };
        // Do not block on a FIFO, whether or not it has a writer.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let opened =
            File::options().read(true).append(true).create(true).custom_flags(flags).mode(0o600).open(path);
        let file = opened.map_err(fail)?;
        if !file.metadata().map_err(fail)?.is_file() {
            return Err(ResumeError::Foreign(path.to_owned()));
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            rustix::io::Errno::WOULDBLOCK => ResumeError::Busy(path.to_owned()),
            e => fail(e.into()),
        })?;
        let mut bytes = Vec::new();
        (&file).take(BEGINNING as u64).read_to_end(&mut bytes).map_err(fail)?;
        let mut contents = match &bytes[..] {
            [] => None,
            beginning if !journal::begins(beginning) => return Err(ResumeError::Foreign(path.to_owned())),
            _ => {
                let rest = BufReader::with_capacity(JOURNAL_READ_BYTES, &file);
                let parsed = journal::parse(Cursor::new(bytes).chain(rest)).map_err(fail)?;
                let path = path.to_owned();
                Some(parsed.map_err(|flaw| match flaw {
                    Flaw::Foreign => ResumeError::Foreign(path),
                    Flaw::Version(found) => ResumeError::Version { path, found },
                    Flaw::Damaged(line, at) => ResumeError::Damaged { path, line, at },
                })?)
            }
        };
        if let Some(trouble) = contents.as_mut().and_then(|contents: &mut Contents| contents.before.trouble())
        {
            tracing::warn!("{trouble}");
        }
        let key = contents.as_ref().map_or_else(random_key, |contents| contents.header.key.clone());
        Ok(JournalFile { path: path.to_owned(), file, contents, key })
    }

    /// The instance number under which servers know all runs of the job. Each run replaces the one before it
    /// ([`crate::SessionOptions::instance`]).
    #[must_use]
    pub fn instance(&self) -> u64 {
        Key(self.key[0], self.key[1]).path(b"the client's own number")
    }

    /// A fact that the first run found, by its name.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.contents.as_ref()?.header.facts.get(name).map(String::as_str)
    }

    /// Begins or resumes the job. `facts` are stored when the job begins.
    ///
    /// # Errors
    /// [`ResumeError`]: the journal is of another job, or its disk fails.
    pub fn begin(self, job: Job, facts: BTreeMap<String, String>) -> Result<JournalStart, ResumeError> {
        let JournalFile { path, mut file, contents, key } = self;
        let fail = |why: io::Error| ResumeError::File { path: path.clone(), why };
        let (header, before, lines) = match contents {
            Some(Contents { header, before, ended, lines, len }) => {
                if let Some(what) = header.job.differs(&job) {
                    return Err(ResumeError::OtherJob { path, what });
                }
                if let Some(when) = ended {
                    return Ok(JournalStart::Finished { done: before.count(), when });
                }
                file.set_len(len as u64).and_then(|()| file.sync_all()).map_err(fail)?;
                (header, before, lines)
            }
            None => {
                let header = Header { landfast_resume: VERSION, job, facts, key, started: now() };
                let line = journal::encode(1, 0, &Record::Job(header.clone()));
                file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(fail)?;
                let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                File::open(dir).and_then(|dir| dir.sync_all()).map_err(fail)?;
                (header, DoneBefore::default(), 1)
            }
        };
        let key = Key(header.key[0], header.key[1]);
        let shared = Arc::new(Shared::default());
        let writer = Writer { file, lines, shared: shared.clone() };
        let thread = std::thread::Builder::new().name("journal".into()).spawn(move || writer.run());
        let thread = Mutex::new(Some(thread.map_err(fail)?));
        Ok(JournalStart::Go(Arc::new(Resume {
            path,
            key,
            before,
            destination: OnceLock::new(),
            ready: watch::Sender::new(false),
            members_so_far: Mutex::default(),
            first_members: Mutex::default(),
            watermark: Mutex::default(),
            shared,
            thread,
        })))
    }
}

fn random_key() -> Vec<u64> {
    let number = || getrandom::u64().unwrap_or_else(|_| std::process::id().into());
    vec![number(), number()]
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A running job: what earlier runs did, and the journal of this run.
pub struct Resume {
    path: PathBuf,
    pub(super) key: Key,
    before: DoneBefore,
    destination: OnceLock<Destination>,
    /// The destination has been examined.
    ready: watch::Sender<bool>,
    members_so_far: Mutex<MembersSoFar>,
    first_members: Mutex<partial::FirstMembers>,
    watermark: Mutex<Watermark>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Resume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resume").field("path", &self.path).finish_non_exhaustive()
    }
}

/// An examination of a destination, in progress.
pub(crate) struct Examination {
    listed: Listed,
    starts: Vec<Start>,
}

impl Examination {
    pub(crate) fn has_next_level(&self) -> bool {
        !self.starts.is_empty()
    }
}

/// State shared by the job and the journal's thread.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    batch: Batch,
    members: Ranges,
    /// Entries queued in total, and those that are durable.
    queued: usize,
    durable: usize,
    waiting: usize,
    /// Somebody waits for durability.
    urgent: bool,
    end: Option<Record>,
    closing: bool,
    broken: Option<String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, put: impl FnOnce(&mut State)) {
        let mut state = self.state();
        while state.waiting >= JOURNAL_QUEUE_MAX && state.broken.is_none() {
            state = self.wait(state);
        }
        if state.broken.is_some() {
            return;
        }
        put(&mut state);
        (state.queued, state.waiting) = (state.queued + 1, state.waiting + 1);
        if state.waiting == 1 || state.waiting == JOURNAL_SYNC_ENTRIES {
            self.changed.notify_all();
        }
    }

    /// Waits until everything queued is durable.
    fn flush(&self) -> Result<(), String> {
        let mut state = self.state();
        let upto = state.queued;
        while state.durable < upto && state.broken.is_none() {
            state.urgent = true;
            self.changed.notify_all();
            state = self.wait(state);
        }
        state.broken.clone().map_or(Ok(()), Err)
    }
}

struct Writer {
    file: File,
    /// Lines that are durable in the file.
    lines: u64,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self) {
        let shared = self.shared.clone();
        let mut state = shared.state();
        loop {
            while state.waiting == 0 && !state.closing {
                state = shared.wait(state);
            }
            let until = Instant::now() + JOURNAL_SYNC_INTERVAL;
            while state.waiting < JOURNAL_SYNC_ENTRIES && !state.urgent && !state.closing {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            let mut batch = std::mem::take(&mut state.batch);
            batch.members = std::mem::take(&mut state.members).pairs();
            let (upto, some) = (state.queued, state.waiting > 0);
            (state.waiting, state.urgent) = (0, false);
            let end = state.end.take();
            let closing = state.closing;
            drop(state);
            let batch = some.then_some(Record::Done(batch));
            let written = batch.into_iter().chain(end).try_for_each(|record| self.write(&record));
            state = shared.state();
            match written {
                Ok(()) => state.durable = upto,
                Err(e) => state.broken = Some(e.to_string()),
            }
            shared.changed.notify_all();
            if state.broken.is_some() || (closing && state.waiting == 0) {
                return;
            }
        }
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let line = journal::encode(self.lines + 1, self.lines, record);
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.lines += 1;
        Ok(())
    }
}

impl Resume {
    /// Whether an earlier run exists.
    #[must_use]
    pub fn has_earlier_run(&self) -> bool {
        !self.before.is_empty()
    }

    /// A lower bound of the objects that earlier runs removed.
    #[must_use]
    pub fn removed_before(&self) -> u64 {
        self.before.removed
    }

    /// Closes the journal; `whole`: the job is finished.
    ///
    /// # Errors
    /// What went wrong with the journal, as a text for people. Another run would then repeat more than necessary.
    pub fn close(&self, whole: bool) -> Result<(), String> {
        {
            let mut state = self.shared.state();
            if whole && !state.closing {
                state.end = Some(Record::End(now()));
            }
            state.closing = true;
        }
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread has reported its own panic.
            let _ = thread.join();
        }
        let broken = self.shared.state().broken.clone();
        broken.map_or(Ok(()), |why| {
            Err(format!(
                "the journal {} could not be written: {why}; what was done since then is not noted in it",
                self.path.display()
            ))
        })
    }

    /// Returns when everything that was begun is durable in the journal. Blocks.
    ///
    /// # Errors
    /// The journal's disk failed, as a text for people.
    pub fn flush(&self) -> Result<(), String> {
        self.shared.flush().map_err(|why| format!("cannot write the journal {}: {why}", self.path.display()))
    }

    fn members_so_far(&self) -> MutexGuard<'_, MembersSoFar> {
        self.members_so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to examine what is still at a destination on a server, level by level. Until that is finished nothing
    /// counts as present. `None`: nothing was done before, or it has been examined.
    pub(crate) fn examine(&self, root: FileHandle) -> Option<Examination> {
        let starts = vec![Start::new(Vec::new(), root)];
        (self.has_earlier_run() && self.destination.get().is_none())
            .then(|| Examination { listed: Listed::default(), starts })
    }

    /// Examines one level. Returns directories of an earlier run whose owner needs access before the next level.
    pub(crate) async fn examine_level(&self, nfs: &Nfs, examination: &mut Examination) -> Closed {
        let starts = std::mem::take(&mut examination.starts);
        let Level { starts, closed } = examination.listed.level(nfs, (&self.before, self.key), starts).await;
        examination.starts = starts;
        closed
    }

    pub(crate) fn finish_examination(&self, examination: Examination) {
        let _ = self.destination.set(Destination::Listed(Box::new(examination.listed)));
        self.ready.send_replace(true);
    }

    /// Sets how to examine a destination on this machine.
    pub fn examine_local(&self, here: Box<dyn Local>) {
        let _ = self.destination.set(Destination::Here(here));
        self.ready.send_replace(true);
    }

    /// Waits until it is known what is still at the destination. Nothing may be asked before.
    pub(crate) async fn ready(&self) {
        if self.has_earlier_run() {
            // The channel does not close before this ends.
            let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
        }
    }

    /// Whether a member of an archive was done. Not for directories.
    pub(crate) fn member(
        &self,
        number: u64,
        member: &Member,
        path: &[Bytes],
        target: &[Bytes],
    ) -> EarlierResult {
        let known = match self.destination.get() {
            Some(destination) if self.has_earlier_run() => self.members_so_far().member(
                self.key,
                (&self.before, destination),
                (number, member),
                [path, target],
            ),
            _ => EarlierResult::NotDone,
        };
        if known == EarlierResult::NotDone {
            self.note_start(self.key.names(path.iter().map(|n| &n[..])), number);
        }
        known
    }

    /// Whether an object of a tree was done. Not for directories.
    pub(crate) fn object(&self, member: &Member) -> EarlierResult {
        let known = match self.destination.get() {
            Some(destination) if self.has_earlier_run() => {
                self.members_so_far().object(self.key, (&self.before, destination), member)
            }
            _ => EarlierResult::NotDone,
        };
        if known == EarlierResult::NotDone {
            self.note_start(self.key.path(&member.path), self.key.object(member));
        }
        known
    }

    fn first_members(&self) -> MutexGuard<'_, partial::FirstMembers> {
        self.first_members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an object at a path begins.
    fn note_start(&self, path: u64, object: u64) {
        if self.before.parts.contains_key(&path) {
            self.first_members().add(path, object);
        }
    }

    /// The unfinished file of an earlier run for this member, and how much of it is durable. `names`: the path.
    pub(super) fn unfinished_part(
        &self,
        (path, object): (u64, u64),
        names: impl FnOnce() -> Vec<u8>,
    ) -> Option<(FileHandle, &partial::PartialFile)> {
        let unfinished = self
            .before
            .parts
            .get(&path)
            .filter(|unfinished| unfinished.object == object && unfinished.upto > 0)?;
        let fh = self.destination.get()?.part(path, names, unfinished)?;
        self.first_members().is_first(path, object).then_some((fh, unfinished))
    }

    /// How far an object of a tree has been copied already.
    pub(crate) fn object_from(&self, member: &Member) -> u64 {
        let numbers = (self.key.path(&member.path), self.key.object(member));
        self.unfinished_part(numbers, || member.path.clone()).map_or(0, |(_, unfinished)| unfinished.upto)
    }

    /// Notes that a part of a large file is durable.
    pub(super) fn note_part(&self, path: u64, unfinished: partial::PartialFile) {
        let partial::PartialFile { object, upto, fh, digest } = unfinished;
        self.shared.add(|state| match digest {
            None => state.batch.parts.push((path, object, upto, fh)),
            Some(digest) => state.batch.streamed.push((path, object, upto, fh, digest)),
        });
    }

    /// The entry for the journal once this object is durable.
    pub(crate) fn item_of(&self, member: &Member) -> Item {
        Item::Object { path: self.key.path(&member.path), object: self.key.object(member) }
    }

    /// Whether an earlier run made this directory, so that it is not foreign.
    pub(crate) fn made_before(&self, path: &[u8]) -> bool {
        self.before.made_dirs.contains(&self.key.path(path))
    }

    pub(crate) fn stable(&self, item: &Item) {
        self.shared.add(|state| match item {
            Item::Member { number, .. } => state.members.add(*number, number + 1),
            Item::Object { path, object } => state.batch.objects.push((*path, *object)),
        });
    }

    /// A directory is durable. `existed`: this run found it.
    pub(crate) fn stable_dir(&self, path: &[u8], existed: bool) {
        let number = self.key.path(path);
        if self.before.made_dirs.contains(&number) || existed && self.before.existing_dirs.contains(&number) {
            return;
        }
        self.shared.add(|state| match existed {
            true => state.batch.met.push(number),
            false => state.batch.made.push(number),
        });
    }

    /// The running digest of an archive that is being read.
    pub(crate) fn running(&self) -> Running {
        Running::new(self.key)
    }

    /// A member is settled, successfully or not. `digest`: the one of the archive after it.
    pub(crate) fn settled(&self, number: u64, digest: Arc<OnceLock<u64>>) {
        let marks = self.watermark.lock().unwrap_or_else(PoisonError::into_inner).settled(number, digest);
        let last = self.before.marks.last_key_value().map_or(0, |(n, _)| *n);
        for mark in marks.into_iter().filter(|(n, _)| *n > last) {
            self.shared.add(|state| put_mark(&mut state.batch.marks, mark));
        }
    }

    /// The archive's digest before this member, if known.
    pub(crate) fn mark(&self, number: u64) -> Option<u64> {
        self.before.marks.get(&number).copied()
    }

    /// Whether the journal has such digests for later members.
    pub(crate) fn has_marks_after(&self, number: u64) -> bool {
        self.before.marks.range(number + 1..).next().is_some()
    }

    /// The filehandle that an operand had when its removal started.
    #[must_use]
    pub fn removal_started(&self, operand: u32) -> Option<&[u8]> {
        self.before.removals_started.get(&operand).map(Vec::as_slice)
    }

    /// Whether an earlier run removed the operand.
    #[must_use]
    pub fn removal_done(&self, operand: u32) -> bool {
        self.before.removals_done.contains(&operand)
    }

    /// The removal of an operand begins. Call [`Resume::flush`] before it does.
    pub fn begin_removal(&self, operand: u32, handle: &[u8]) {
        self.shared.add(|state| state.batch.begun.push((operand, handle.to_vec())));
    }

    /// An object was removed. `operand`: the object is this operand itself.
    pub fn removed(&self, operand: Option<u32>) {
        self.shared.add(|state| {
            state.batch.removed += 1;
            state.batch.gone.extend(operand);
        });
    }
}

impl Drop for Resume {
    fn drop(&mut self) {
        // Callers that need the result have called `close` already.
        let _ = self.close(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(path: &Path, job: &str) -> Result<JournalStart, ResumeError> {
        JournalFile::open(path)?.begin(Job::new("untar").about("archive", job), BTreeMap::new())
    }

    fn go(path: &Path) -> Arc<Resume> {
        match begin(path, "a") {
            Ok(JournalStart::Go(resume)) => resume,
            Ok(JournalStart::Finished { .. }) => panic!("finished"),
            Err(e) => panic!("{e}"),
        }
    }

    fn refused(path: &Path, job: &str) -> String {
        match begin(path, job) {
            Err(e) => e.to_string(),
            Ok(_) => panic!("not refused"),
        }
    }

    #[test]
    fn a_journal_has_one_job_and_one_user_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let first = go(&path);
        assert!(!first.has_earlier_run());
        for number in [0, 1, 2, 7] {
            first.stable(&Item::Member { number, digest: None });
        }
        first.stable_dir(b"d", false);
        first.flush().unwrap();
        assert!(refused(&path, "a").contains("in use"));
        first.close(false).unwrap();
        drop(first);
        assert!(refused(&path, "b").contains("its archive was `a`, now it is `b`"));
        let second = go(&path);
        assert!(second.has_earlier_run() && second.made_before(b"./d/"));
        assert_eq!(second.before.members.pairs(), [(0, 3), (7, 8)]);
        second.stable(&Item::Member { number: 3, digest: None });
        second.close(true).unwrap();
        drop(second);
        assert!(matches!(begin(&path, "a"), Ok(JournalStart::Finished { done: 5, .. })));
    }

    #[test]
    fn what_is_no_journal_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        for text in ["important\n", "0123456789 important and longer than a beginning\n"] {
            std::fs::write(&path, text).unwrap();
            assert!(refused(&path, "a").contains("no journal"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert!(refused(dir.path(), "a").contains("cannot use the journal"));
        assert!(refused(&dir.path().join("no/such"), "a").contains("No such file"));
        // An empty file has nothing to lose.
        std::fs::write(&path, "").unwrap();
        go(&path).close(false).unwrap();
    }

    #[test]
    fn a_torn_tail_is_cut_off_and_the_journal_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let first = go(&path);
        first.stable(&Item::Member { number: 0, digest: None });
        first.close(false).unwrap();
        drop(first);
        let whole = std::fs::read(&path).unwrap();
        let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
        for cut in last..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let again = go(&path);
            assert_eq!(again.has_earlier_run(), cut == whole.len(), "{cut}");
            again.stable(&Item::Member { number: 5, digest: None });
            again.close(false).unwrap();
            drop(again);
            assert!(go(&path).before.members.has(5), "{cut}");
        }
    }

    #[test]
    fn a_disk_that_fails_is_told_once_and_what_was_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let shared = Arc::new(Shared::default());
        // Not open for writing.
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let writer = Writer { file, lines: 1, shared: shared.clone() };
        let thread = std::thread::spawn(move || writer.run());
        shared.add(|state| state.members.add(0, 1));
        assert!(shared.flush().is_err());
        thread.join().unwrap();
        // Nobody waits for it any more.
        for n in 0..JOURNAL_QUEUE_MAX as u64 + 10 {
            shared.add(|state| state.members.add(n, n + 1));
        }
        assert!(shared.flush().is_err());
    }
}
