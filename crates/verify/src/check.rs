//! The check: the journal's tree, the server's tree, and the difference by operation.

use crate::blocking::connect;
use crate::blocking::nfs::{Fh, Nfs, patiently};
use crate::contents::OpNo;
use crate::error::{Error, Meaning, Result};
use crate::journal::{self, Contents, Record};
use crate::judge::{Verdict, decide, judge};
use crate::limits::{
    CHECK_REPLY_PATIENCE, CLIENTS_MAX, COMMITS_TRIED_MAX, ENTRIES_MAX, EXAMPLES_MAX, FILE_BYTES_MAX,
    PAIRS_MAX, RECONNECT_PAUSE,
};
use crate::model::{Model, Node};
use crate::observe::Observer;
use crate::op::{Kind, Op, Reply, hex, unhex};
use crate::report::{Examples, RaceResult, Report, Row, Verifier};
use crate::rounds::{self, Judgement, Race, Round};
use crate::url::Target;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub struct Options {
    pub journal: PathBuf,
    /// How long to wait for a server that is not back.
    pub patience: Duration,
    /// Remove the run's directory from the server afterwards.
    pub remove: bool,
}

/// What a journal says of one client.
#[derive(Debug, Clone, Default)]
pub struct ClientHistory {
    /// The tree that acknowledged operations make.
    pub model: Model,
    /// The operation that was sent and not acknowledged.
    pub in_doubt: Option<(OpNo, Op)>,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub clients: Vec<ClientHistory>,
    /// The kind of each acknowledged operation.
    pub kinds: HashMap<OpNo, Kind>,
    pub verf: Option<String>,
    /// How the run ended, if the journal says so.
    pub ended: Option<journal::End>,
    /// WRITEs that were to be FILE_SYNC and were answered with less.
    pub weaker: u64,
    pub rounds: Vec<Round>,
}

/// Replays a journal. Pure.
/// Errors: In words, when no run can have written it.
pub fn play(contents: &Contents) -> std::result::Result<History, String> {
    let header = &contents.header;
    if !(1..=CLIENTS_MAX).contains(&header.clients) {
        return Err(format!("it is of {} clients, but there are 1 to {CLIENTS_MAX}", header.clients));
    }
    let mut history =
        History { clients: vec![ClientHistory::default(); header.clients as usize], ..History::default() };
    if header.pairs > PAIRS_MAX {
        return Err(format!("it is of {} pairs, but there are up to {PAIRS_MAX}", header.pairs));
    }
    let mut sent: HashMap<OpNo, (u32, Op)> = HashMap::new();
    // The last round of each pair, as an index of all.
    let mut last: HashMap<u32, usize> = HashMap::new();
    for record in &contents.records {
        match record {
            Record::Header(_) => return Err("it has a second header".to_owned()),
            Record::Intent { no, client, op } => {
                if op.reach() > FILE_BYTES_MAX {
                    return Err(format!("operation {no} goes further than any file of ours"));
                }
                let client_history = history.clients.get_mut(*client as usize);
                let told = client_history
                    .ok_or_else(|| format!("operation {no} is of client {client}, who is none"))?;
                if told.in_doubt.is_some() || sent.insert(*no, (*client, op.clone())).is_some() {
                    return Err(format!("operation {no} was sent before another one was answered"));
                }
                told.in_doubt = Some((*no, op.clone()));
            }
            Record::Ack { no, reply } => {
                let (client, op) = sent.get(no).ok_or_else(|| format!("operation {no} was never sent"))?;
                let told = &mut history.clients[*client as usize];
                if told.in_doubt.take().is_none_or(|(doubted, _)| doubted != *no) {
                    return Err(format!("operation {no} was acknowledged twice"));
                }
                history.kinds.insert(*no, op.kind(reply));
                history.weaker += u64::from(matches!(op, Op::Write { stable: true, .. }) && !reply.stable);
                history.verf = reply.verf.clone().or(history.verf);
                // The directory of the run is everybody's.
                let whose =
                    if *no == 0 { 0..history.clients.len() } else { *client as usize..*client as usize + 1 };
                for told in &mut history.clients[whose] {
                    told.model.apply(*no, op, reply).map_err(|e| e.to_string())?;
                    if *no == 0 {
                        told.model.share(&header.top());
                    }
                }
            }
            Record::Meet { pair, round, meeting, tag, before } => {
                let next = last.get(pair).map_or(0, |n| history.rounds[*n].no.saturating_add(1));
                if *pair >= header.pairs || *round != next {
                    return Err(format!("round {round} of pair {pair} has no place"));
                }
                last.insert(*pair, history.rounds.len());
                let (pair, no, meeting) = (*pair, *round, *meeting);
                let (tag, before, told) = (*tag, before.clone(), [None, None]);
                history.rounds.push(Round { pair, no, meeting, tag, before, told });
            }
            Record::Told { pair, round, second, answer } => {
                let met = last.get(pair).and_then(|n| history.rounds.get_mut(*n)).filter(|r| r.no == *round);
                let told = met.map(|r| &mut r.told[usize::from(*second)]);
                match told {
                    Some(told) if told.is_none() => *told = Some(answer.clone()),
                    _ => return Err(format!("round {round} of pair {pair} was answered and not under way")),
                }
            }
            // Whether it was done is not known.
            Record::Refused { .. } => {}
            Record::End(end) => history.ended = Some(*end),
        }
    }
    Ok(history)
}

/// What was found of all clients, before it becomes a report. Pure.
#[derive(Debug, Default)]
struct Sums {
    lost: BTreeMap<OpNo, String>,
    partly: Examples,
    strange: Examples,
    stale: Examples,
    renumbered: Examples,
    objects: u64,
    handles: u64,
    unstable: Vec<(OpNo, String, String)>,
    met: BTreeMap<Race, RaceResult>,
    unexplained: Examples,
}

impl Sums {
    fn add(&mut self, verdict: Verdict) {
        self.objects += verdict.objects;
        self.handles += verdict.handles;
        verdict.stale.into_iter().for_each(|p| self.stale.add(p));
        verdict.renumbered.into_iter().for_each(|p| self.renumbered.add(p));
        for w in verdict.wrong {
            let example = format!("{}: {}", w.path, w.why);
            match w.op {
                Some(op) => {
                    self.lost.entry(op).or_insert(example);
                }
                None => self.strange.add(example),
            }
        }
        for (w, verf) in verdict.unstable {
            if let Some(op) = w.op {
                self.unstable.push((op, verf, format!("{}: {}", w.path, w.why)));
            }
        }
    }
}

/// Checks the server against the journal.
pub fn run(target: &Target, options: &Options, waiting: &dyn Fn(&Error)) -> Result<Report> {
    let journal = journal::read(&options.journal)?;
    let bad = |why: String| Error::Journal { path: options.journal.clone(), why };
    let target = &of_version(target, &journal.header.nfs)?;
    let (mut nfs, base) = reach(target, options.patience, waiting)?;
    let attr = patiently(|| nfs.getattr(&base))?;
    if attr.fileid != journal.header.base_fileid {
        return Err(bad(format!(
            "it was written to another directory: {} had file id {}, {} has {}",
            journal.header.url, journal.header.base_fileid, target.text, attr.fileid
        )));
    }
    let report = examine(nfs.as_mut(), &base, target, &journal).map_err(|e| match e {
        Error::Unable(why) => bad(why),
        e => e,
    })?;
    if options.remove {
        remove(nfs.as_mut(), &base, &journal.header.top())?;
    }
    nfs.leave();
    Ok(report)
}

/// Compares what is below the directory `base` with what the journal says. Changes nothing, but for a COMMIT on one file, to
/// learn the write verifier.
/// Errors: The server is gone, or refuses to be looked at; [`Error::Unable`] when no run can have written the journal.
pub fn examine(nfs: &mut dyn Nfs, base: &Fh, target: &Target, journal: &Contents) -> Result<Report> {
    let history = play(journal).map_err(Error::Unable)?;
    let mut sum = Sums::default();
    let mut some_files: Vec<String> = Vec::new();
    for told in &history.clients {
        let mut observer = Observer::new(nfs, base.clone());
        let models = match &told.in_doubt {
            Some((no, op)) => told.model.variants(*no, op).map_err(|e| Error::Unable(e.to_string()))?,
            None => vec![told.model.clone()],
        };
        let mut verdicts = Vec::new();
        for model in &models {
            let seen = observer.observe(model)?;
            let is_file = |id: &&u32| matches!(model.object(**id).map(|o| &o.what), Some(Node::File(_)));
            let room = COMMITS_TRIED_MAX.saturating_sub(some_files.len());
            let handles = seen.objects.keys().filter(is_file).filter_map(|id| model.object(*id)?.fh.clone());
            some_files.extend(handles.take(room));
            verdicts.push(judge(model, &seen));
        }
        let outcome = decide(verdicts);
        if let (true, Some((_, op))) = (outcome.partly, &told.in_doubt) {
            sum.partly.add(format!("{}: {}", op.path(), op.kind(&Reply::default()).label()));
        }
        sum.add(outcome.verdict);
    }
    check_races(nfs, base, journal, &history, &mut sum)?;
    // One file's COMMIT may be refused.
    let tried = some_files.iter().filter_map(|fh| unhex(fh));
    let verifier_now = tried.filter_map(|fh| patiently(|| nfs.commit(&fh)).ok()).map(|v| hex(&v)).next();
    Ok(report(target, journal, &history, sum, verifier_now.as_deref()))
}

fn check_races(
    nfs: &mut dyn Nfs,
    base: &Fh,
    journal: &Contents,
    history: &History,
    sum: &mut Sums,
) -> Result<()> {
    let mut observer = Observer::new(nfs, base.clone());
    let mut dirs: HashMap<u32, Option<Fh>> = HashMap::new();
    for round in &history.rounds {
        let dir = match dirs.get(&round.pair) {
            Some(dir) => dir.clone(),
            None => {
                let dir = observer.below(&[journal.header.top(), journal.header.pair_name(round.pair)])?;
                dirs.insert(round.pair, dir.clone());
                dir
            }
        };
        let found = match &dir {
            Some(dir) => observer.round(dir, round)?,
            None => rounds::ObservedNames::default(),
        };
        let met = sum.met.entry(round.meeting).or_insert_with(|| RaceResult::new(round.meeting));
        met.rounds += 1;
        met.second_alone += u64::from(round.told[0].is_none() && round.told[1].is_some());
        met.first_alone += u64::from(round.told[0].is_some() && round.told[1].is_none());
        let at = |what: String| format!("{}/{} round {}: {what}", journal.header.top(), round.pair, round.no);
        match rounds::judge(round, &found) {
            Judgement::Kept => {}
            Judgement::Unexplained => sum.unexplained.add(at(round.shown())),
            Judgement::Broken(why) => {
                met.broken += 1;
                if met.examples.len() < EXAMPLES_MAX {
                    met.examples.push(at(why));
                }
            }
        }
    }
    Ok(())
}

fn report(
    target: &Target,
    journal: &Contents,
    history: &History,
    mut sum: Sums,
    now: Option<&str>,
) -> Report {
    let verifier = match (history.verf.as_deref(), now) {
        (Some(before), Some(now)) if before == now => Verifier::Kept,
        (Some(_), Some(_)) => Verifier::Changed,
        _ => Verifier::Unknown,
    };
    let mut unstable_lost = 0;
    for (op, verf, example) in std::mem::take(&mut sum.unstable) {
        match now {
            Some(now) if now != verf => unstable_lost += 1,
            Some(_) => {
                sum.lost.entry(op).or_insert(example);
            }
            // Nothing tells the client that it has to write it again.
            None => {
                sum.lost.entry(op).or_insert(format!("{example}; and no COMMIT tells a write verifier"));
            }
        }
    }
    let checked: HashSet<OpNo> = history.clients.iter().flat_map(|t| t.model.ops()).collect();
    let mut rows: BTreeMap<Kind, Row> = BTreeMap::new();
    for (no, kind) in &history.kinds {
        let row = rows.entry(*kind).or_insert_with(|| Row {
            kind: *kind,
            operation: kind.label().to_owned(),
            acknowledged: 0,
            checked: 0,
            lost: 0,
            examples: Vec::new(),
        });
        row.acknowledged += 1;
        let lost = sum.lost.get(no);
        row.checked += u64::from(checked.contains(no) || lost.is_some());
        if let Some(example) = lost {
            row.lost += 1;
            if row.examples.len() < EXAMPLES_MAX {
                row.examples.push(format!("operation {no}, {example}"));
            }
        }
    }
    let rows: Vec<Row> = rows.into_values().collect();
    Report {
        id: journal.header.id.clone(),
        url: target.text.clone(),
        nfs: target.version.to_string(),
        ended: history.ended,
        journal_torn: journal.torn as u64,
        acknowledged: rows.iter().map(|r| r.acknowledged).sum(),
        checked: rows.iter().map(|r| r.checked).sum(),
        lost: rows.iter().map(|r| r.lost).sum(),
        rows,
        in_doubt: history.clients.iter().filter(|t| t.in_doubt.is_some()).count() as u64,
        partly: sum.partly,
        strange: sum.strange,
        objects: sum.objects,
        handles: sum.handles,
        stale: sum.stale,
        renumbered: sum.renumbered,
        verifier,
        unstable_lost,
        weaker: history.weaker,
        met: sum.met.into_values().collect(),
        unexplained: sum.unexplained,
    }
}

/// The target in the journal's version, which handles and extended attributes belong to. A URL without a version means that one.
fn of_version(target: &Target, journal: &str) -> Result<Target> {
    let version = journal.parse()?;
    if target.version_given && target.version != version {
        let text = format!(
            "the journal was written over NFS {journal}: check it over the same (?version={journal})"
        );
        return Err(Error::Url(text));
    }
    Ok(Target { version, ..target.clone() })
}

/// Waits for the server, and for the end of its grace period if it has one for this.
fn reach(target: &Target, patience: Duration, waiting: &dyn Fn(&Error)) -> Result<(Box<dyn Nfs>, Fh)> {
    let since = Instant::now();
    let mut said = false;
    loop {
        let reached = connect(target, CHECK_REPLY_PATIENCE.min(patience.max(RECONNECT_PAUSE)))
            .and_then(|mut nfs| nfs.base().map(|(base, _)| (nfs, base)));
        match reached {
            Err(e) if (e.is_gone() || e.meaning() == Some(Meaning::Later)) && since.elapsed() < patience => {
                if !said {
                    waiting(&e);
                    said = true;
                }
                // There is no event for "the server is back".
                std::thread::sleep(RECONNECT_PAUSE);
            }
            reached => return reached,
        }
    }
}

/// Removes a name and all below it.
fn remove(nfs: &mut dyn Nfs, dir: &Fh, name: &str) -> Result<()> {
    let (fh, attr) = match patiently(|| nfs.lookup(dir, name)) {
        Err(e) if e.meaning() == Some(Meaning::NoEntry) => return Ok(()),
        found => found?,
    };
    let is_dir = attr.kind == crate::judge::FileKind::Dir;
    if is_dir {
        for below in patiently(|| nfs.names(&fh, ENTRIES_MAX))? {
            remove(nfs, &fh, &below)?;
        }
    }
    patiently(|| nfs.remove(dir, name, is_dir))
}
