//! The writing loop: plan an operation, note it in the journal, send it, note its reply; until the work is done, the server is
//! gone, or somebody interrupts.

use crate::blocking::connect;
use crate::blocking::nfs::{Fh, Nfs, patiently};
use crate::contents::OpNo;
use crate::error::{Error, Result};
use crate::journal::End;
use crate::journal::{Header, Journal, Record, VERSION};
use crate::limits::{CLIENTS_MAX, OPERATIONS_MAX, PAIRS_MAX, WRITE_PATIENCE};
use crate::model::Model;
use crate::op::{Kind, Op, Reply};
use crate::perform::perform;
use crate::plan::{Abilities, Plan};
use crate::rng::Rng;
use crate::rounds::Race;
use crate::url::Target;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone)]
pub struct Options {
    /// The journal's file, which must not exist.
    pub journal: PathBuf,
    /// End after so many operations.
    pub operations: Option<u64>,
    /// End after this time.
    pub time: Option<Duration>,
    /// Clients at work at the same time, 1 to [`CLIENTS_MAX`].
    pub clients: u32,
    /// `None`: a new one for each run.
    pub seed: Option<u64>,
    /// Which kinds of operations; empty is all.
    pub kinds: Vec<Kind>,
    /// Pairs of clients that race on one object, beside the others; up to [`PAIRS_MAX`].
    pub pairs: u32,
    /// Which races; empty is all.
    pub meetings: Vec<Race>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// So many operations are acknowledged.
    Acknowledged(u64),
    /// A COMMIT will be sent so late that the server may have closed its files.
    Late,
    /// So many pairs of which only the second client has been answered so far.
    Alone(u32),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub id: String,
    pub journal: PathBuf,
    pub url: String,
    pub nfs: String,
    pub seed: u64,
    pub end: End,
    /// Why it ended early.
    pub why: Option<String>,
    pub acknowledged: u64,
    pub by_kind: BTreeMap<Kind, u64>,
    /// Operations that were sent and not acknowledged.
    pub in_doubt: u64,
    pub seconds: f64,
}

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
    /// Pairs of which only the second client has been answered.
    alone: AtomicU32,
    ended: Mutex<Option<Error>>,
}

/// Works until everything is done, the server is gone, or `stop` is set. Calls `progress` meanwhile.
/// Errors: When nothing could be begun, or the journal cannot be written. A server that goes away is no error.
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

    pub(crate) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Acquire) && self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Takes `count` operation numbers, if as many are left.
    pub(crate) fn takes(&self, count: u64) -> bool {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        first + count <= self.options.operations.unwrap_or(OPERATIONS_MAX).min(OPERATIONS_MAX)
    }

    /// Counts a reply in a race.
    pub(crate) fn count_told(&self) {
        let all = self.acknowledged.fetch_add(1, Ordering::Relaxed) + 1;
        (self.progress)(Event::Acknowledged(all));
    }

    /// Counts one pair more, or one less, of which only the second client has been answered.
    pub(crate) fn alone(&self, more: bool) {
        let now = if more {
            self.alone.fetch_add(1, Ordering::AcqRel) + 1
        } else {
            self.alone.fetch_sub(1, Ordering::AcqRel) - 1
        };
        (self.progress)(Event::Alone(now));
    }

    /// One operation: notes it durably, sends it, notes its reply. `false` ends the client.
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
