//! `untar` through a power cut: what the client was told is there when the server comes back, and the
//! client, which only saw its connection break, brings the rest of the archive to its end.

use super::found::{Tree, take_subtree};
use super::moment::{Acks, Moment};
use crate::error::{Context, Error, Result};
use crate::net::Link;
use crate::tarball::{self, Kind, Member, Shape};
use crate::verify;
use landfast_client::untar::{self, Progress, Source, UntarOptions};
use landfast_client::{NfsUrl, SessionOptions};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Shape of each archive but for its seed: enough that a cut meets it in the middle.
const FILES: u64 = 800;
const PER_DIR: u64 = 24;

/// Largest of three file sizes, in bytes; the seed chooses.
const FILE_BYTES: [usize; 3] = [700, 5000, 20_000];

/// So many differences of one tree are described.
const SHOWN_MAX: usize = 4;

/// How long the client may wait for a server that is being restarted.
const PATIENCE: Duration = Duration::from_secs(120);

/// An archive that is extracted while the power goes.
pub struct Archive {
    /// Its directory below the export.
    pub dir: String,
    tar: Vec<u8>,
    members: HashMap<Vec<u8>, Member>,
}

/// Members that the client was told are stable.
#[derive(Default)]
struct Journal {
    stable: Mutex<HashSet<Vec<u8>>>,
    acks: Acks,
}

impl Progress for Journal {
    fn stable(&self, path: &[u8]) {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        self.stable.lock().insert(path.to_vec());
        self.acks.note();
    }
}

/// An extraction under way.
pub struct Extraction {
    journal: Arc<Journal>,
    thread: std::thread::JoinHandle<Result<untar::Report>>,
}

impl Archive {
    /// The archive number `n` of a run.
    ///
    /// # Errors
    /// None that can be expected: it is made in memory.
    pub fn new(n: u64, seed: u64) -> Result<Self> {
        let mut tar = Vec::new();
        let file_bytes = FILE_BYTES[(seed % 3) as usize];
        let shape = Shape { files: FILES, file_bytes, per_dir: PER_DIR, seed };
        tarball::write_random(shape, &mut tar).context(|| "make an archive".to_owned())?;
        let mut members = HashMap::new();
        tarball::read(&tar[..], |m| {
            members.insert(m.path.clone(), m);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Archive { dir: format!("untar{n}"), tar, members })
    }

    /// Starts `untar` of the archive through `link`, on a thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn extract(&self, link: &Link) -> Result<Extraction> {
        let url = NfsUrl {
            host: link.addr().ip().to_string(),
            port: link.addr().port(),
            path: vec![self.dir.clone().into_bytes()],
            version: None,
            mount_port: None,
            uid: None,
            gid: None,
            nconnect: None,
        };
        let journal = Arc::new(Journal::default());
        let (hears, tar) = (journal.clone(), self.tar.clone());
        let work = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .context(|| "start the client".to_owned())?;
            let session = SessionOptions { reconnect_patience: PATIENCE, ..SessionOptions::for_url(&url) };
            let source = Source::Reader(Box::new(std::io::Cursor::new(tar)));
            runtime
                .block_on(untar::run_as(UntarOptions::default(), session, source, &url, hears))
                .map_err(|e| Error::Unable(format!("untar: {e}")))
        };
        let thread = std::thread::Builder::new().name("untar".into());
        let thread = thread.spawn(work).context(|| "start a thread".to_owned())?;
        Ok(Extraction { journal, thread })
    }

    /// What is wrong with what the client was told so far, and with the rest: each member that was not acknowledged is
    /// there or not, of a file any part of its data; nothing else is.
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

    /// What is there without having been acknowledged, and is not a part of a member.
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

    /// Compares the finished tree with the archive.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn compare(&self, export: &Path) -> Result<Vec<String>> {
        let c = verify::compare(&self.tar[..], &export.join(&self.dir))?;
        let count = c.differences;
        Ok(c.shown.into_iter().take(SHOWN_MAX).map(|d| format!("at the end, one of {count}: {d}")).collect())
    }
}

impl Extraction {
    /// Waits for a moment in the middle of it: at least one member is acknowledged, so that the client
    /// has its session.
    pub fn wait_for(&self, moment: Moment) {
        self.journal.acks.wait(1);
        moment.wait(&self.journal.acks);
    }

    /// The members that were acknowledged so far.
    pub fn stable(&self) -> HashSet<Vec<u8>> {
        self.journal.stable.lock().clone()
    }

    /// Waits for the end of the extraction; what is wrong with it.
    pub fn end(self) -> Vec<String> {
        match self.thread.join() {
            Ok(Ok(report)) if report.complete() => Vec::new(),
            Ok(Ok(report)) => {
                let why = report.stopped.into_iter();
                let failed = report.failed.iter().take(3).map(|f| format!("{}: {}", f.path, f.why));
                why.chain(failed).map(|w| format!("untar did not finish: {w}")).collect()
            }
            Ok(Err(e)) => vec![format!("untar did not finish: {e}")],
            Err(_) => vec!["untar panicked".to_owned()],
        }
    }
}
