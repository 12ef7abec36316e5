//! `untar` through a power cut: everything acknowledged is there when the server is back, and the client, which only saw its
//! connection break, extracts the rest of the archive. The same for a tree that the server copies itself; and for a client that
//! dies with the server, whose next run resumes from its journal.

use super::found::{Tree, take_subtree};
use super::moment::{Acks, Moment};
use crate::error::{Context, Error, Result};
use crate::net::Link;
use crate::tarball::{self, Kind, Member, Shape};
use crate::verify;
use landfast_client::copy::{RemoteOptions, RemoteStart, RemoteTrees};
use landfast_client::fs::{AsNamed, Nfs, Outcome, Reflink, ServerCopies};
use landfast_client::put::{self, Progress, PutOptions, Source};
use landfast_client::resume::{Job, JournalFile, JournalStart, Resume, ResumeError};
use landfast_client::untar;
use landfast_client::{NfsUrl, Session, SessionOptions};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Shape of each archive without its seed: large enough that a cut comes in the middle.
const FILES: u64 = 800;
const PER_DIR: u64 = 24;

/// Largest of three file sizes, in bytes; the seed chooses.
const FILE_BYTES: [usize; 3] = [700, 5000, 20_000];

/// Number and sizes of files for some copies: large enough that a server clones them if it can.
const CLONED: (u64, usize) = (200, 100_000);

/// Differences of one tree that are described.
const SHOWN_MAX: usize = 4;

/// How long the client may wait for a server that is being restarted.
const PATIENCE: Duration = Duration::from_secs(120);

/// How an archive's members get into the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    Extracted,
    /// By `untar --resume`: the client dies with the server, and another one continues.
    Resumed,
    /// Extracted before the work begins, then copied within the server.
    Copied,
}

/// An archive that is extracted while the power goes.
pub struct Archive {
    pub dir: String,
    way: Transfer,
    journal: PathBuf,
    tar: Vec<u8>,
    members: HashMap<Vec<u8>, Member>,
}

/// The members that the client knows to be stable.
#[derive(Default)]
struct Journal {
    stable: Mutex<HashSet<Vec<u8>>>,
    acks: Acks,
}

impl Progress for Journal {
    fn stable(&self, path: &[u8]) {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        // The destination itself is no member.
        if !path.is_empty() {
            self.stable.lock().insert(path.to_vec());
            self.acks.note();
        }
    }
}

pub struct Extraction {
    journal: Arc<Journal>,
    thread: std::thread::JoinHandle<Result<Option<put::Report>>>,
    /// The client dies when this is dropped.
    alive: tokio::sync::oneshot::Sender<()>,
}

type Work = Pin<Box<dyn Future<Output = Result<put::Report>>>>;

impl Archive {
    /// The archive number `n` of a run, which keeps its journal in `scratch`.
    pub fn new(n: u64, seed: u64, way: Transfer, scratch: &Path) -> Result<Self> {
        let mut tar = Vec::new();
        let (files, file_bytes) = match (way, seed % 3) {
            (Transfer::Copied, 2) => CLONED,
            (_, third) => (FILES, FILE_BYTES[third as usize]),
        };
        let shape = Shape { files, file_bytes, per_dir: PER_DIR, seed };
        tarball::write_random(shape, &mut tar).context(|| "make an archive".to_owned())?;
        let mut members = HashMap::new();
        tarball::read(&tar[..], |m| {
            members.insert(m.path.clone(), m);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Archive {
            dir: format!("untar{n}"),
            way,
            journal: scratch.join(format!("journal{n}")),
            tar,
            members,
        })
    }

    /// Directories that must exist before the power may go.
    pub fn dirs(&self) -> Vec<String> {
        let source = (self.way == Transfer::Copied).then(|| self.source());
        source.into_iter().chain([self.dir.clone()]).collect()
    }

    fn source(&self) -> String {
        format!("{}-source", self.dir)
    }

    /// Whether there is something to extract before the power may go.
    pub fn has_source(&self) -> bool {
        self.way == Transfer::Copied
    }

    /// Puts what is to be copied onto the server at `link`.
    pub fn prepare(&self, link: &Link) -> Result<()> {
        match self.start(link, Transfer::Extracted, &self.source())?.end() {
            wrong if wrong.is_empty() => Ok(()),
            wrong => Err(Error::Unable(wrong.join("; "))),
        }
    }

    /// Starts the transfer through `link` on a thread of its own.
    pub fn extract(&self, link: &Link) -> Result<Extraction> {
        self.start(link, self.way, &self.dir)
    }

    fn start(&self, link: &Link, way: Transfer, dir: &str) -> Result<Extraction> {
        let url = |dir: &str| NfsUrl {
            host: link.addr().ip().to_string(),
            port: link.addr().port(),
            path: vec![dir.as_bytes().to_vec()],
            version: None,
            mount_port: None,
            uid: None,
            gid: None,
            nconnect: None,
        };
        let (from, to) = (url(&self.source()), url(dir));
        let journal = Arc::new(Journal::default());
        let (hears, tar, noted) = (journal.clone(), self.tar.clone(), self.journal.clone());
        let (alive, mut dies) = tokio::sync::oneshot::channel();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .context(|| "start the client".to_owned())?;
            let work: Work = match way {
                Transfer::Extracted => Box::pin(extracted(to, tar, (None, None), hears)),
                Transfer::Resumed => Box::pin(resumed(to, tar, noted, hears)),
                Transfer::Copied => Box::pin(copied(from, to, hears)),
            };
            let done = runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = &mut dies => Ok(None),
                    done = work => done.map(Some),
                }
            });
            // Its requests in flight end with it.
            runtime.shutdown_timeout(PATIENCE);
            done
        };
        let thread = std::thread::Builder::new().name("untar".into());
        let thread = thread.spawn(work).context(|| "start a thread".to_owned())?;
        Ok(Extraction { journal, thread, alive })
    }

    /// After the cut: the client that was at work, which continues as soon as it reaches a server; `None` if it died.
    /// Errors: When a client that was to die has failed before.
    pub fn after_cut(&self, extraction: Extraction) -> Result<(HashSet<Vec<u8>>, Option<Extraction>)> {
        if self.way != Transfer::Resumed {
            return Ok((extraction.stable(), Some(extraction)));
        }
        let Extraction { journal, thread, alive } = extraction;
        drop(alive);
        match thread.join() {
            Ok(Ok(_)) => Ok((journal.stable.lock().clone(), None)),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(Error::Unable("untar panicked".to_owned())),
        }
    }

    /// Checks acknowledged members, and the rest: a member that was not acknowledged may be there or not, of a file any part of its
    /// data; nothing else may be there. Returns what is wrong.
    pub fn check(&self, mut all: Tree, stable: &HashSet<Vec<u8>>) -> (u64, Vec<String>) {
        let (top, tree) = take_subtree(&mut all, &self.dir);
        if top.is_none() {
            return (0, vec![format!("{}: the destination was acknowledged and is missing", self.dir)]);
        }
        let mut wrong = Vec::new();
        for path in stable {
            let name = path.escape_ascii();
            match (self.members.get(path), tree.get(path)) {
                (Some(member), Some(found)) => {
                    wrong.extend(found.differs_from(member).map(|d| format!("{name}: {d}")));
                }
                (Some(_), None) => wrong.push(format!("{name}: was acknowledged and is missing")),
                (None, _) => wrong.push(format!("{name}: was acknowledged and is not in the archive")),
            }
        }
        wrong.extend(self.strangers(&tree, stable));
        (tree.len() as u64, wrong)
    }

    /// Objects that were not acknowledged and are not a part of a member.
    fn strangers(&self, tree: &Tree, stable: &HashSet<Vec<u8>>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (path, found) in tree.iter().filter(|(p, _)| !stable.contains(*p)) {
            let name = path.escape_ascii();
            match self.members.get(path).map(|m| &m.kind) {
                None => wrong.push(format!("{name}: appeared")),
                Some(Kind::File(data)) => {
                    let part =
                        found.bytes.iter().zip(data.iter()).all(|(got, want)| got == want || *got == 0);
                    if found.bytes.len() > data.len() || !part {
                        wrong.push(format!("{name}: holds what was never written to it"));
                    }
                }
                Some(_) => {}
            }
        }
        wrong
    }

    pub fn compare(&self, export: &Path) -> Result<Vec<String>> {
        let c = verify::compare(&self.tar[..], &export.join(&self.dir))?;
        let count = c.differences;
        Ok(c.shown.into_iter().take(SHOWN_MAX).map(|d| format!("at the end, one of {count}: {d}")).collect())
    }
}

impl Extraction {
    /// Waits for a moment in the middle: at least one member is acknowledged, so the client has its session.
    pub fn wait_for(&self, moment: Moment) {
        self.journal.acks.wait(1);
        moment.wait(&self.journal.acks);
    }

    pub fn stable(&self) -> HashSet<Vec<u8>> {
        self.journal.stable.lock().clone()
    }

    /// Waits for the end of the extraction; what is wrong with it.
    pub fn end(self) -> Vec<String> {
        let Extraction { thread, alive: _alive, .. } = self;
        match thread.join() {
            Ok(Ok(Some(report))) if report.complete() => Vec::new(),
            Ok(Ok(None)) => vec!["untar has died".to_owned()],
            Ok(Ok(Some(report))) => {
                let why = report.stopped.into_iter();
                let failed = report.failed.iter().take(3).map(|f| format!("{}: {}", f.path, f.why));
                why.chain(failed).map(|w| format!("untar did not finish: {w}")).collect()
            }
            Ok(Err(e)) => vec![format!("untar did not finish: {e}")],
            Err(_) => vec!["untar panicked".to_owned()],
        }
    }
}

async fn extracted(
    url: NfsUrl,
    tar: Vec<u8>,
    (resume, instance): (Option<Arc<Resume>>, Option<u64>),
    hears: Arc<Journal>,
) -> Result<put::Report> {
    let session = SessionOptions { reconnect_patience: PATIENCE, instance, ..SessionOptions::for_url(&url) };
    let source = untar::Archive::reader(std::io::Cursor::new(tar));
    let options = PutOptions { resume, ..PutOptions::default() };
    untar::run_as(options, session, source, &url, hears)
        .await
        .map_err(|e| Error::Unable(format!("untar: {e}")))
}

/// The address may be another one after the cut: the job does not name it.
async fn resumed(url: NfsUrl, tar: Vec<u8>, journal: PathBuf, hears: Arc<Journal>) -> Result<put::Report> {
    let unable = |e: ResumeError| Error::Unable(e.to_string());
    let file = JournalFile::open(&journal).map_err(unable)?;
    // The next one takes the place of the one that died.
    let instance = Some(file.instance());
    match file.begin(Job::new("untar"), BTreeMap::new()).map_err(unable)? {
        JournalStart::Finished { .. } => Ok(put::Report::default()),
        JournalStart::Go(resume) => {
            let report = extracted(url, tar, (Some(resume.clone()), instance), hears).await?;
            resume.close(report.complete()).map_err(Error::Unable)?;
            Ok(report)
        }
    }
}

/// Copies within the server, by COPY and CLONE.
async fn copied(from: NfsUrl, to: NfsUrl, hears: Arc<Journal>) -> Result<put::Report> {
    let unable = |what: String| Error::Unable(format!("cp: {what}"));
    let options = SessionOptions { reconnect_patience: PATIENCE, ..SessionOptions::for_url(&to) };
    let session = Session::connect(options).await.map_err(|e| unable(e.to_string()))?;
    let nfs = Nfs::rooted(session.clone());
    let mut found = nfs.getattrs([from.path, to.path].map(|path| path.concat())).await.into_iter();
    let mut next = || found.next().map(Outcome::into_result).transpose().map_err(|e| unable(e.to_string()));
    let (Some(source), Some(root)) = (next()?, next()?) else { return Err(unable("no directories".into())) };
    let copies = ServerCopies::of(&session, Reflink::Auto).await.map_err(|e| unable(e.to_string()))?;
    if copies.is_none() {
        return Err(unable("the server copies nothing".into()));
    }
    let start = RemoteStart::of(source, Vec::new());
    let trees = RemoteOptions { links: true, copies, ..RemoteOptions::default() };
    let members = RemoteTrees::new(&nfs, vec![start], trees, Box::new(AsNamed));
    let source = Source::members(Box::new(members));
    let report = put::run_in(PutOptions::default(), &session, root.fh, source, hears).await;
    drop(nfs);
    session.destroy().await;
    report.map_err(|e| unable(e.to_string()))
}
