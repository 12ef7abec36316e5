//! Walks, fetches, and passes members on in order: three loops, each limited by the speed of the next one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::FileHandle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::plan::{Batch, Job, Key, Plan, Planned};
use super::report::{Complaint, Report, Severity, TarError, Watch};
use super::sink::{self, Order, Payload, Sink};
use super::{Root, TarOptions};
use crate::archive::Filter;
use crate::archive::{Kind, holds_xattr};
use crate::fs::untaken::{Given, Untaken};
use crate::fs::{Fetched, FirstPage, ItemError, Meta, Nfs, Outcome, Start, Step, WalkOptions, Wanted, Xattr};
use crate::limits::{
    FETCHED_BYTES_MAX, FETCHES_MAX, PIECES_WAITING, PLANNED_AHEAD_MAX, READ_BYTES, STRETCH_BYTES,
    STRETCHES_MAX,
};
use crate::session::SessionError;

/// The extended attributes of NFS belong to this namespace (RFC 8276 section 1).
const NAMESPACE: &[u8] = b"user.";

/// Puts trees into an archive. Objects that cannot be read are reported to `watch`, counted, and left out.
///
/// # Errors
/// When the archive cannot be written. What was written until then has no end marker.
pub async fn create(
    roots: Vec<Root>,
    sink: Sink,
    options: TarOptions,
    watch: &dyn Watch,
) -> Result<Report, TarError> {
    let (orders, thread) = sink::start(sink, options.compression);
    // Bounded by the semaphore that the walk waits for.
    let (planned, batches) = mpsc::unbounded_channel();
    let (fetching, fetched) = mpsc::channel(FETCHES_MAX);
    let mut writer = Writer { orders, watch, report: Report::default(), written: HashMap::new() };
    let work = async {
        let walk = async {
            walk(roots, &options, &planned).await;
            drop(planned);
            Ok(())
        };
        let write = async { writer.run(fetched).await.and(Ok(())) };
        let fetch = async {
            fetch(batches, fetching, options.xattrs).await;
            Ok(())
        };
        tokio::try_join!(walk, fetch, write).is_ok()
    };
    let done = work.await && writer.orders.send(Order::End).await.is_ok();
    let Writer { orders, mut report, .. } = writer;
    drop(orders);
    let end = match thread.await {
        Ok(end) => end,
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => Err(TarError::Write(std::io::ErrorKind::Interrupted.into())),
    };
    report.archive_bytes = end?;
    debug_assert!(done, "only a thread that failed stops the work");
    Ok(report)
}

/// A batch, its server, and its share of [`PLANNED_AHEAD_MAX`].
type Planning = (Nfs, Batch, Given);

async fn walk(roots: Vec<Root>, options: &TarOptions, planned: &mpsc::UnboundedSender<Planning>) {
    let current: std::cell::RefCell<Option<Nfs>> = std::cell::RefCell::new(None);
    let untaken = Untaken::new(PLANNED_AHEAD_MAX);
    let give = |batch: Batch| {
        if let Some(nfs) = &*current.borrow() {
            // What has come is passed on. The walk waits after that.
            let given = untaken.give(batch.jobs.len());
            // The receiver is gone if the archive cannot be written.
            let _ = planned.send((nfs.clone(), batch, given));
        }
    };
    let mut plan = Plan::new(Filter::new(0, &options.exclude), &*options.who, overlap(&roots), give);
    let mut servers: Vec<&str> = Vec::new();
    let mut rest = &roots[..];
    while let [first, ..] = rest {
        let server = first.nfs.session().server();
        let together = rest.iter().take_while(|root| root.nfs.session().server() == server).count();
        let (now, later) = rest.split_at(together);
        rest = later;
        current.replace(Some(first.nfs.clone()));
        plan.server = servers.iter().position(|known| *known == server).unwrap_or(servers.len());
        servers.push(server);
        walk_server(&first.nfs, now, &mut plan, &untaken).await;
        plan.end();
    }
}

/// Whether a root lies inside another one, or is named twice.
fn overlap(roots: &[Root]) -> bool {
    let mut names: Vec<Vec<&[u8]>> = roots
        .iter()
        .map(|root| root.name.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".").collect())
        .collect();
    names.sort();
    names.windows(2).any(|pair| pair[1].starts_with(&pair[0]))
}

struct Top {
    fh: FileHandle,
    meta: Meta,
    first_page: Option<FirstPage>,
}

impl Top {
    fn of(root: &Root) -> Result<Top, ItemError> {
        let object = root.object.as_ref().map_err(ItemError::clone)?;
        let first_page = object.first_page.clone();
        Ok(Top { fh: object.fh.clone(), meta: Meta::of(&object.attrs), first_page })
    }
}

async fn walk_server(nfs: &Nfs, roots: &[Root], plan: &mut Plan<'_>, untaken: &Untaken) {
    let tops: Vec<_> = roots.iter().map(Top::of).collect();
    let links = tops.iter().filter_map(|top| top.as_ref().ok().filter(|top| top.meta.is_link()));
    let texts = nfs.readlinks_of(links.map(|top| top.fh.clone())).await;
    let mut texts = texts.into_iter().map(|text| text.into_result().ok());
    let dirs = tops.iter().enumerate().filter_map(|(n, top)| Some((n, top.as_ref().ok()?)));
    let (dirs, starts): (Vec<usize>, Vec<Start>) = dirs
        .filter(|(_, top)| top.meta.is_dir())
        .map(|(n, top)| {
            let path = [&roots[n].name[..], b"/"].concat();
            (n, Start { path, fh: top.fh.clone(), first_page: top.first_page.clone() })
        })
        .unzip();
    let mut shown = 0;
    // Roots up to one, as far as they were not there yet: only the last of them is a directory.
    let mut up_to = |end: usize, plan: &mut Plan<'_>| {
        for (root, top) in roots.iter().zip(&tops).take(end).skip(shown) {
            let top = match top {
                Ok(top) => top,
                Err(e) => {
                    plan.complain(root.name.clone(), Complaint::Unseen(e.clone()));
                    continue;
                }
            };
            let text = if top.meta.is_link() { texts.next().flatten() } else { None };
            plan.object(root.name.clone(), &top.meta, Some(&top.fh), text.as_ref());
        }
        shown = end;
    };
    let walk = WalkOptions { texts: true, by_name: true, ..WalkOptions::default() };
    nfs.walk_within(untaken, starts, walk, |step| match step {
        Step::Start(n) => up_to(dirs[n] + 1, plan),
        Step::Entry { dir, entry, .. } => {
            let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
            let path = [&dir, slash, &entry.name].concat();
            plan.object(path, &entry.meta, entry.fh.as_ref(), entry.text.as_ref());
        }
        Step::Unlisted { path, outcome } => {
            if let Err(e) = outcome.into_result() {
                plan.complain(path, Complaint::unlisted(e));
            }
        }
        Step::Left => {}
    })
    .await;
    up_to(roots.len(), plan);
}

/// A batch that is being fetched: one outcome for each job that needs data or attributes.
struct Fetching {
    nfs: Nfs,
    xattrs: bool,
    jobs: Vec<Job>,
    permit: Arc<OwnedSemaphorePermit>,
    outcomes: JoinHandle<Vec<Outcome<Fetched>>>,
}

async fn fetch(
    mut batches: mpsc::UnboundedReceiver<Planning>,
    fetching: mpsc::Sender<Fetching>,
    xattrs: bool,
) {
    let budget = Arc::new(Semaphore::new(FETCHED_BYTES_MAX));
    let mut asked: Option<(String, bool)> = None;
    while let Some((nfs, batch, planned)) = batches.recv().await {
        let share = u32::try_from(batch.bytes.min(FETCHED_BYTES_MAX)).unwrap_or(u32::MAX);
        let Ok(permit) = budget.clone().acquire_many_owned(share).await else { return };
        let has = xattrs && has_xattrs(&nfs, &batch, &mut asked).await;
        let wanted: Vec<Wanted> = batch.jobs.iter().filter_map(|job| wanted(job, has)).collect();
        let reader = nfs.clone();
        let outcomes = tokio::spawn(async move { reader.fetch(wanted).await });
        let permit = Arc::new(permit);
        drop(planned);
        if fetching.send(Fetching { nfs, xattrs: has, jobs: batch.jobs, permit, outcomes }).await.is_err() {
            return;
        }
    }
}

fn wanted(job: &Job, xattrs: bool) -> Option<Wanted> {
    match job {
        Job::Member(planned) if !planned.again => planned.wanted(xattrs),
        _ => None,
    }
}

/// Whether the server of a batch has extended attributes. Its first object is asked.
async fn has_xattrs(nfs: &Nfs, batch: &Batch, asked: &mut Option<(String, bool)>) -> bool {
    let server = nfs.session().server();
    if let Some((known, has)) = asked
        && known == server
    {
        return *has;
    }
    let fh = batch.jobs.iter().find_map(|job| match job {
        Job::Member(planned) => planned.fh.clone(),
        Job::Complaint(..) => None,
    });
    let Some(fh) = fh else { return false };
    let has = nfs.has_xattrs(&fh).await;
    *asked = Some((server.to_owned(), has));
    has
}

/// The writing thread has ended. It returns the reason.
struct Gone;

struct Writer<'a> {
    orders: mpsc::Sender<Order>,
    watch: &'a dyn Watch,
    report: Report,
    /// Members in the archive that have several names.
    written: HashMap<Key, Vec<u8>>,
}

impl Writer<'_> {
    async fn run(&mut self, mut fetched: mpsc::Receiver<Fetching>) -> Result<(), Gone> {
        while let Some(Fetching { nfs, xattrs, jobs, permit, outcomes }) = fetched.recv().await {
            let outcomes = match outcomes.await {
                Ok(outcomes) => outcomes,
                Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
                Err(_) => Vec::new(),
            };
            let mut outcomes = outcomes.into_iter();
            for job in jobs {
                let wanted = wanted(&job, xattrs).is_some();
                match job {
                    Job::Complaint(path, complaint) => self.complain(&path, &complaint),
                    Job::Member(planned) => {
                        let fetched = if wanted { Some(next(&mut outcomes)) } else { None };
                        self.member(&nfs, *planned, fetched, &permit, xattrs).await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn complain(&mut self, path: &[u8], complaint: &Complaint) {
        match complaint.severity() {
            Severity::Remark => {}
            Severity::Differs => self.report.differing += 1,
            Severity::Missing => self.report.missing += 1,
        }
        self.watch.complaint(path, complaint);
    }

    async fn member(
        &mut self,
        nfs: &Nfs,
        mut planned: Planned,
        mut fetched: Option<Result<Fetched, ItemError>>,
        permit: &Arc<OwnedSemaphorePermit>,
        xattrs: bool,
    ) -> Result<(), Gone> {
        if let Some(first) = planned.key.and_then(|key| self.written.get(&key)) {
            planned.member.kind = Kind::HardLink;
            planned.member.link = first.clone();
            (planned.member.size, planned.member.stored) = (0, 0);
            return self.order(planned, Payload::Nothing).await;
        }
        if planned.again {
            // The member to link to is not in the archive.
            fetched = match planned.wanted(xattrs) {
                Some(wanted) => Some(next(&mut nfs.fetch([wanted]).await.into_iter())),
                None => None,
            };
        }
        let mut data = Bytes::new();
        match fetched {
            Some(Ok(got)) => {
                data = got.data;
                let whole = |(name, value): Xattr| ([NAMESPACE, &name].concat(), value);
                planned.member.xattrs = got.xattrs.into_iter().map(whole).collect();
                for (name, _) in planned.member.xattrs.iter().filter(|(name, _)| !holds_xattr(name)) {
                    self.complain(&planned.member.path, &Complaint::Xattr(name.clone()));
                }
                if planned.in_pieces() {
                    return self.pieces(nfs, planned).await;
                }
                self.compare(&planned, data.len() as u64, &got.meta);
            }
            Some(Err(e)) => {
                self.complain(&planned.member.path, &Complaint::unopened(e));
                return Ok(());
            }
            None if planned.in_pieces() => return self.pieces(nfs, planned).await,
            None => {}
        }
        let payload = if data.is_empty() { Payload::Nothing } else { Payload::Whole(data, permit.clone()) };
        let payload = match payload {
            // All of the file is written as zeroes.
            Payload::Nothing if planned.member.stored > 0 => Payload::Whole(Bytes::new(), permit.clone()),
            payload => payload,
        };
        self.order(planned, payload).await
    }

    /// Reports what changed since the object was listed.
    fn compare(&mut self, planned: &Planned, read: u64, now: &Meta) {
        let Planned { member, meta, .. } = planned;
        if member.kind != Kind::File {
            return;
        }
        if read < member.stored {
            self.complain(&member.path, &Complaint::Shrank(member.stored - read));
        } else if now.changed != meta.changed || now.size != meta.size {
            self.complain(&member.path, &Complaint::Changed);
        }
    }

    async fn order(&mut self, planned: Planned, payload: Payload) -> Result<(), Gone> {
        let Planned { member, key, .. } = planned;
        self.watch.member(&member.path);
        self.report.counts.add(member.kind);
        self.report.bytes += member.stored;
        if let Some(key) = key {
            self.written.entry(key).or_insert_with(|| member.path.clone());
        }
        self.orders.send(Order::Member(Box::new(member), payload)).await.map_err(|_| Gone)
    }

    async fn pieces(&mut self, nfs: &Nfs, planned: Planned) -> Result<(), Gone> {
        let Some(fh) = planned.fh.clone() else {
            self.complain(&planned.member.path, &Complaint::UnknownType);
            return Ok(());
        };
        let (size, path, meta) = (planned.member.stored, planned.member.path.clone(), planned.meta.clone());
        let mut stretches = Stretches { nfs, fh: &fh, size, asked: 0, under_way: VecDeque::new() };
        // Leave out a file that cannot be read at all, like one that cannot be opened.
        let mut first = Some(match stretches.next().await {
            Some(Err(e)) => {
                self.complain(&path, &Complaint::unopened(e));
                return Ok(());
            }
            stretch => stretch,
        });
        let (send, pieces) = mpsc::channel(PIECES_WAITING);
        self.order(planned, Payload::Pieces(pieces)).await?;
        let mut at = 0;
        loop {
            let stretch = match first.take() {
                Some(stretch) => stretch,
                None => stretches.next().await,
            };
            let Some(stretch) = stretch else { break };
            match stretch {
                Ok((wanted, pieces)) => {
                    let mut got = 0;
                    for piece in pieces {
                        got += piece.len() as u64;
                        send.send(piece).await.map_err(|_| Gone)?;
                    }
                    at += got;
                    if got < wanted {
                        self.complain(&path, &Complaint::Shrank(size - at));
                        return Ok(());
                    }
                }
                Err(e) => {
                    self.complain(&path, &Complaint::Unread(at, e));
                    return Ok(());
                }
            }
        }
        drop(send);
        let after = nfs.fetch([Wanted { fh, bytes: 0, xattrs: false }]).await;
        match next(&mut after.into_iter()) {
            Ok(now) if now.meta.changed == meta.changed && now.meta.size == size => {}
            _ => self.complain(&path, &Complaint::Changed),
        }
        Ok(())
    }
}

fn next(outcomes: &mut impl Iterator<Item = Outcome<Fetched>>) -> Result<Fetched, ItemError> {
    outcomes.next().unwrap_or_else(|| Outcome::from(SessionError::Ended)).into_result()
}

/// Reads a large file in order, some stretches ahead.
struct Stretches<'a> {
    nfs: &'a Nfs,
    fh: &'a FileHandle,
    size: u64,
    asked: u64,
    under_way: VecDeque<(u64, JoinHandle<Vec<Outcome<Bytes>>>)>,
}

impl Stretches<'_> {
    /// The expected size of the next stretch, and its pieces.
    async fn next(&mut self) -> Option<Result<(u64, Vec<Bytes>), ItemError>> {
        while self.under_way.len() < STRETCHES_MAX && self.asked < self.size {
            let (from, len) = (self.asked, STRETCH_BYTES.min(self.size - self.asked));
            self.asked += len;
            let piece = u64::from(READ_BYTES);
            let parts = (0..len.div_ceil(piece)).map(|n| (from + n * piece, piece.min(len - n * piece)));
            let parts: Vec<_> = parts.map(|(from, len)| (self.fh.clone(), from, len)).collect();
            let nfs = self.nfs.clone();
            self.under_way.push_back((len, tokio::spawn(async move { nfs.read_of(parts).await })));
        }
        let (wanted, stretch) = self.under_way.pop_front()?;
        let outcomes = match stretch.await {
            Ok(outcomes) => outcomes,
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(_) => return Some(Outcome::from(SessionError::Ended).into_result()),
        };
        let mut pieces = Vec::with_capacity(outcomes.len());
        let mut left = wanted;
        for outcome in outcomes {
            match outcome.into_result() {
                Ok(piece) => {
                    let should = left.min(READ_BYTES.into());
                    let short = (piece.len() as u64) < should;
                    left -= should;
                    pieces.push(piece);
                    // Ignore what follows the end of a file that shrank.
                    if short {
                        break;
                    }
                }
                Err(e) => return Some(Err(e)),
            }
        }
        Some(Ok((wanted, pieces)))
    }
}
