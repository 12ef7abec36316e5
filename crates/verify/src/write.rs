//! The writing loop: plan, note, send, note, until the work is done, the server is gone, or somebody interrupts.

use crate::client::{Fh, Nfs, patiently, perform};
use crate::connect::connect;
use crate::contents::OpNo;
use crate::error::{Error, Result};
pub use crate::journal::End;
use crate::journal::{Header, Journal, Record, VERSION};
use crate::limits::{CLIENTS_MAX, OPERATIONS_MAX, PAIRS_MAX, WRITE_PATIENCE};
use crate::model::Model;
use crate::op::{Kind, Op, Reply, Rng};
use crate::plan::{Abilities, Plan};
use crate::rounds::Meeting;
use crate::url::Target;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the journal goes; nothing may be there.
    pub journal: PathBuf,
    /// End after so many operations.
    pub operations: Option<u64>,
    /// End after this time.
    pub time: Option<Duration>,
    /// Clients at work at the same time, 1 to [`CLIENTS_MAX`].
    pub clients: u32,
    /// What is done depends on it; `None`: another one each time.
    pub seed: Option<u64>,
    /// Which kinds of operations; empty is all.
    pub kinds: Vec<Kind>,
    /// Pairs of clients that meet on the same objects, beside the others; up to [`PAIRS_MAX`].
    pub pairs: u32,
    /// Which meetings; empty is all.
    pub meetings: Vec<Meeting>,
}

/// What is told of a run while it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// So many operations are acknowledged.
    Acknowledged(u64),
    /// A COMMIT is going to be sent so late that the server may have closed its files.
    Late,
    /// Of so many pairs only the second has been answered so far.
    Alone(u32),
}

/// What was done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The run's id.
    pub id: String,
    /// The journal.
    pub journal: PathBuf,
    /// The URL.
    pub url: String,
    /// The version of NFS.
    pub nfs: String,
    /// The seed.
    pub seed: u64,
    /// How it ended.
    pub end: End,
    /// Why, when it ended early.
    pub why: Option<String>,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// The same by kind.
    pub by_kind: BTreeMap<Kind, u64>,
    /// Operations that were sent and not acknowledged.
    pub in_doubt: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// What the clients share.
pub(crate) struct Run<'a> {
    pub(crate) target: &'a Target,
    pub(crate) options: &'a Options,
    pub(crate) journal: &'a Journal,
    stop: &'a AtomicBool,
    pub(crate) progress: &'a (dyn Fn(Event) + Sync),
    until: Option<Instant>,
    next: AtomicU64,
    acknowledged: AtomicU64,
    in_doubt: AtomicU64,
    by_kind: Mutex<BTreeMap<Kind, u64>>,
    /// Pairs of which only the second has been answered.
    alone: AtomicU32,
    /// The first that went wrong.
    ended: Mutex<Option<Error>>,
}

/// Works until it is done, the server is gone, or `stop` is set; `progress` hears of it.
///
/// # Errors
/// When nothing could be begun, or the journal cannot be written. A server that goes away is no error.
pub fn run(
    target: &Target,
    options: &Options,
    stop: &AtomicBool,
    progress: &(dyn Fn(Event) + Sync),
) -> Result<Report> {
    if !(1..=CLIENTS_MAX).contains(&options.clients) {
        return Err(Error::Unable(format!("clients: 1 to {CLIENTS_MAX}")));
    }
    if options.pairs > PAIRS_MAX {
        return Err(Error::Unable(format!("pairs: up to {PAIRS_MAX}")));
    }
    let random = || getrandom::u64().map_err(|e| Error::Unable(format!("no random numbers: {e}")));
    let (id, seed) = (format!("{:016x}", random()?), options.seed.map_or_else(random, Ok)?);
    if options.journal.exists() {
        let why = "it exists; each run needs a journal of its own".to_owned();
        return Err(Error::Journal { path: options.journal.clone(), why });
    }
    let mut nfs = connect(target, WRITE_PATIENCE)?;
    let (base, attr) = patiently(|| nfs.base())?;
    let abilities = nfs.abilities()?;
    let header = Header {
        landfast_verify: VERSION,
        id: id.clone(),
        url: target.text.clone(),
        nfs: target.version.to_string(),
        base_fileid: attr.fileid,
        clients: options.clients,
        pairs: options.pairs,
        seed,
        started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    };
    let journal = Journal::create(&options.journal, header.clone())?;
    let start = Instant::now();
    let run = Run {
        target,
        options,
        journal: &journal,
        stop,
        progress,
        until: options.time.map(|t| start + t),
        next: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
        in_doubt: AtomicU64::new(0),
        by_kind: Mutex::new(BTreeMap::new()),
        alone: AtomicU32::new(0),
        ended: Mutex::new(None),
    };
    // The directory of the run is made by the first client, before the others begin.
    let mut model = Model::new();
    let top = Op::Mkdir { path: header.top(), mode: 0o755 };
    if run.step(nfs.as_mut(), &base, &mut model, 0, top) {
        model.share(&header.top());
        std::thread::scope(|s| {
            let mut first = Some(nfs);
            for pair in 0..options.pairs {
                let (run, header, base, model) = (&run, &header, &base, model.clone());
                s.spawn(move || run.pair(base, &model, header, pair, abilities));
            }
            for client in 0..options.clients {
                let (run, header, base, model) = (&run, &header, &base, model.clone());
                let nfs = first.take();
                s.spawn(move || {
                    let connected = nfs.map_or_else(|| connect(run.target, WRITE_PATIENCE), Ok);
                    match connected {
                        Ok(nfs) => run.client(nfs, base, model, header, client, abilities),
                        Err(e) => run.end(e),
                    }
                });
            }
        });
    }
    let failed = match run.ended.into_inner() {
        // A journal that cannot be written ends everything.
        Some(e @ Error::File { .. }) => return Err(e),
        failed => failed,
    };
    let interrupted = stop.load(Ordering::Acquire);
    let end = match &failed {
        Some(e) if e.is_gone() => End::Gone,
        Some(_) => End::Refused,
        None if interrupted => End::Interrupted,
        None => End::Done,
    };
    let last = journal.append(&Record::End(end));
    journal.sync(last)?;
    Ok(Report {
        id,
        journal: options.journal.clone(),
        url: target.text.clone(),
        nfs: target.version.to_string(),
        seed,
        end,
        why: failed.map(|e| e.to_string()),
        acknowledged: run.acknowledged.into_inner(),
        by_kind: run.by_kind.into_inner(),
        in_doubt: run.in_doubt.into_inner(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

impl Run<'_> {
    /// Ends the run for this reason, if there is none yet.
    pub(crate) fn end(&self, why: Error) {
        self.ended.lock().get_or_insert(why);
        self.stop.store(true, Ordering::Release);
    }

    fn client(
        &self,
        mut nfs: Box<dyn Nfs>,
        base: &Fh,
        mut model: Model,
        header: &Header,
        client: u32,
        abilities: Abilities,
    ) {
        let dir = header.client_dir(client);
        let seed = Rng::new(header.seed ^ (u64::from(client) << 32)).next_u64();
        let mut plan = Plan::new(seed, dir.clone(), &self.options.kinds, abilities);
        let mut op = Op::Mkdir { path: dir, mode: 0o755 };
        while self.step(nfs.as_mut(), base, &mut model, client, op) {
            op = plan.next(&model);
        }
        nfs.leave();
    }

    /// Whether there is more to do.
    pub(crate) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Acquire) && self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Takes so many numbers of operations, if there are any left.
    pub(crate) fn takes(&self, count: u64) -> bool {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        first + count <= self.options.operations.unwrap_or(OPERATIONS_MAX).min(OPERATIONS_MAX)
    }

    /// An answer of two that meet.
    pub(crate) fn count_told(&self) {
        let all = self.acknowledged.fetch_add(1, Ordering::Relaxed) + 1;
        (self.progress)(Event::Acknowledged(all));
    }

    /// One pair more, or one less, of which only the second has been answered.
    pub(crate) fn alone(&self, more: bool) {
        let now = if more {
            self.alone.fetch_add(1, Ordering::AcqRel) + 1
        } else {
            self.alone.fetch_sub(1, Ordering::AcqRel) - 1
        };
        (self.progress)(Event::Alone(now));
    }

    /// One operation: noted durably, sent, its reply noted. `false` ends the client.
    fn step(&self, nfs: &mut dyn Nfs, base: &Fh, model: &mut Model, client: u32, op: Op) -> bool {
        if !self.goes_on() {
            return false;
        }
        let no = self.next.fetch_add(1, Ordering::Relaxed);
        if no >= self.options.operations.unwrap_or(OPERATIONS_MAX).min(OPERATIONS_MAX) {
            return false;
        }
        let no = no as OpNo;
        // Behind the acknowledgement of this client's last operation, in the same or an earlier flush.
        let line = self.journal.append(&Record::Intent { no, client, op: op.clone() });
        if let Err(e) = self.journal.sync(line) {
            self.end(e);
            return false;
        }
        if matches!(op, Op::Commit { late: Some(1..), .. }) {
            (self.progress)(Event::Late);
        }
        match perform(nfs, base, model, &op) {
            Ok(reply) => self.acknowledge(model, no, &op, reply),
            Err(e) => {
                self.in_doubt.fetch_add(1, Ordering::Relaxed);
                if !e.is_gone() {
                    self.journal.append(&Record::Refused { no, status: e.to_string() });
                }
                self.end(e);
                false
            }
        }
    }

    fn acknowledge(&self, model: &mut Model, no: OpNo, op: &Op, reply: Reply) -> bool {
        let applied = model.apply(no, op, &reply);
        *self.by_kind.lock().entry(op.kind(&reply)).or_default() += 1;
        self.journal.append(&Record::Ack { no, reply });
        let all = self.acknowledged.fetch_add(1, Ordering::Relaxed) + 1;
        (self.progress)(Event::Acknowledged(all));
        match applied {
            Ok(()) => true,
            Err(e) => {
                self.end(Error::Nonsense(e.to_string()));
                false
            }
        }
    }
}
