//! Recovery, and whether the volume is then what it must be ([`super`] has the rules).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use landfast_intentlog::{Config, Log};

use super::past::{Apart, Past};
use super::replies::read_note;
use super::strangers::{has_orphans, lost_found, marker, paths};
use super::world::{Told, World};
use crate::fold::{Fold, Plan};
use crate::kernel::sim::{self, Kernel, LogDisk, LogLoss, Serial};
use crate::orphans::name_of;
use crate::record::{Fact, ObjId, Record};
use crate::types::{EntryDetail, Kind};
use crate::volume::{RecoveryReport, Volume};
use crate::{Cred, Error};

#[derive(Clone, Copy)]
struct RecoveryStart {
    /// The server was stopped cleanly.
    clean: bool,
    /// No power cut or error has ended an earlier attempt.
    undisturbed: bool,
    /// The number on the volume's marker.
    marker: Option<u64>,
}

impl World {
    /// Opens the volume, with more power cuts and errors on the way, until clients can be let in; checks the result.
    pub(super) fn recover(&mut self, past: &Past, mut position: u64, clean: bool) -> Result<(), String> {
        let mut logged = match self.without {
            Some(_) => Logged::default(),
            None => logged(self.seed)?,
        };
        self.say(|| format!("the log holds transactions up to {}", logged.last_seq));
        // What he does to files without a name is another test's.
        let orphans = logged.orphans || sim::with(|k| has_orphans(k));
        if self.squatters.is_empty() && self.rng.one_in(6) && !orphans {
            self.touched = Some(Rc::new(self.administrator(&logged)));
        }
        let mut undisturbed = true;
        let mut troubles = if self.rng.one_in(2) { self.rng.below(4) } else { 0 };
        loop {
            if troubles > 0 {
                let within = *self.rng.pick(&[40, 200, 600]);
                let n = 1 + self.rng.below(within);
                if self.rng.one_in(5) {
                    if self.rng.one_in(3) {
                        sim::with(|k| k.lose_journal_in(Some(1 + n % 8)));
                    } else {
                        sim::with(|k| k.faults(vec![n]));
                    }
                } else {
                    sim::with(|k| k.cut_at(Some(n)));
                }
            }
            let strangers: Vec<Serial> =
                self.strangers.iter().copied().filter(|s| sim::with(|k| k.peek(*s).is_some())).collect();
            self.figures.recoveries += 1;
            let how = RecoveryStart { clean, undisturbed, marker: sim::with(|k| marker(k)) };
            let opened = Volume::open(World::options());
            let mut pairs = None;
            match opened {
                Ok((volume, report)) => {
                    self.say(|| format!("opened: {report:?}"));
                    self.volume = Some(volume);
                    if self.without.is_some() {
                        // Only the lost log had the replies. From here on the new log is needed.
                        self.acked.clear();
                        self.set_aside = true;
                    }
                    if !sim::with(|k| k.is_down()) {
                        let quiet = sim::with(|k| k.hold_troubles());
                        pairs = Some(self.check(past, position, &logged, &report, &strangers, how)?);
                        sim::with(|k| k.resume_troubles(quiet));
                    }
                    if self.start()?
                        && !sim::with(|k| k.is_down())
                        && let Some(pairs) = pairs
                    {
                        sim::with(|k| {
                            k.cut_at(None);
                            k.faults(Vec::new());
                            k.lose_journal_in(None);
                            k.struck.clear();
                        });
                        let pairs = self.within_reach(pairs);
                        return self.begin_life(&pairs);
                    }
                }
                Err(e) => {
                    let excused = sim::with(|k| k.is_down() || !k.struck.is_empty());
                    self.say(|| format!("opening: {e}"));
                    match self.without.take() {
                        without if excused => self.without = without,
                        // Its creation was interrupted; somebody removes it, as the message says.
                        Some(without) if e.to_string().contains("superblock") => {
                            sim::with(|k| k.log.fill(0));
                            self.without = Some(without);
                        }
                        Some((loss, bytes)) if !self.set_aside => {
                            if loss != LogLoss::Away {
                                // The log had acknowledged changes. The message says so; nothing more can be done.
                                self.figures.logs_forgotten += 1;
                                self.over = true;
                                return Ok(());
                            }
                            self.say(|| "the lost log is put back".to_owned());
                            sim::with(|k| k.log = bytes);
                            logged = self::logged(self.seed)?;
                        }
                        _ => return Err(format!("the volume does not open: {e}")),
                    }
                }
            }
            self.figures.cuts_in_recovery += 1;
            undisturbed = false;
            troubles = troubles.saturating_sub(1);
            self.stop_process();
            sim::with(|k| k.struck.clear());
            if sim::with(|k| k.must_reboot()) || self.rng.one_in(2) {
                let call = sim::with(|k| {
                    k.cut();
                    k.cut_in
                });
                let at = sim::with(Kernel::reboot);
                self.unbroken = false;
                // After a kill, a power cut may still take what was not flushed.
                position = position.min(at);
                self.say(|| format!("power goes in recovery, in {call}; position {at} is left"));
            } else {
                sim::with(|k| k.restart_process());
            }
        }
    }

    /// An object that recovery has kept in `lost+found`, because a stranger took its place away, is now the stranger's: he takes
    /// it from there.
    fn within_reach(&mut self, pairs: Vec<(Serial, Serial)>) -> Vec<(Serial, Serial)> {
        let Some(touched) = self.touched.take() else { return pairs };
        let reach = sim::with(|k| paths(k));
        let (there, beside): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|(_, now)| reach.contains_key(now));
        for (then, _) in beside {
            self.told.remove(&then);
        }
        sim::with(|k| {
            lost_found(k).into_iter().for_each(|dir| k.empty_as_stranger(dir));
            k.flush_as_stranger();
            // Such changes become visible up to a second late.
            k.wait(2_000_000_000);
        });
        let gone = |s: &Serial| sim::with(|k| k.peek(*s).is_none_or(|m| m.nlink == 0));
        let gone: Vec<Serial> = self.strangers.iter().copied().filter(|s| gone(s)).collect();
        gone.into_iter().for_each(|stranger| self.forget_stranger(stranger));
        self.told
            .retain(|serial, _| !touched.has_moved(*serial) || there.iter().any(|(then, _)| then == serial));
        there
    }

    fn check(
        &mut self,
        past: &Past,
        position: u64,
        logged: &Logged,
        report: &RecoveryReport,
        strangers: &[Serial],
        how: RecoveryStart,
    ) -> Result<Vec<(Serial, Serial)>, String> {
        self.figures.checked += 1;
        let RecoveryStart { clean, undisturbed, marker } = how;
        self.figures.said += report.local.len() as u64 + report.local_more;
        self.figures.remade += report.remade;
        let volume = self.volume();
        // The moments that the state may stand for, each with what was logged then.
        let mut moments = Vec::new();
        if clean {
            moments.push((past.end, past.end));
        } else {
            // What is certainly in the log; a log that ends between two parts of an operation lacks the operation's flush.
            let ends = self.ends.range(..=logged.last_seq).map(|(_, end)| *end);
            let by = ends.max().unwrap_or(0).max(self.acked_position);
            if logged.last_seq > 0 {
                let (first, last) = self.moments(logged.last_seq);
                moments.extend((first..=last).map(|p| (p, by.min(p))));
            }
            let ahead = moments.last().map_or(by, |m| by.max(m.0));
            if position >= ahead || logged.last_seq == 0 {
                moments.push((position, by.min(position)));
            }
        }
        // Recovery leaves names as they are on the disk; the marker and the mount tell it to.
        let touched = self.touched.clone();
        let ahead = marker.is_none_or(|marker| marker > logged.last_seq);
        let stands = clean || logged.last_seq == 0 || ahead || self.unbroken;
        if touched.is_some() && stands && !clean {
            let by = moments.last().map_or(position, |m| m.1);
            moments = vec![(position, by.min(position))];
        }
        let leads = touched.as_ref().filter(|_| !stands).map(|_| self.leads()).unwrap_or_default();
        let none = HashMap::new();
        let mut wrong = Vec::new();
        let mut found = None;
        for (at, by) in moments.iter().rev().copied().filter(|(at, _)| *at >= self.acked_position) {
            let by_seq = (by, logged.last_seq);
            let apart = Apart { strangers: &self.strangers, edits: &none, dirs: None };
            let compared = sim::with(|k| match &touched {
                None => past.compare(k, &past.at(at), at, by_seq, &apart),
                Some(touched) if stands => {
                    past.compare(k, &touched.disk, at, by_seq, &Apart { edits: &touched.edits, ..apart })
                }
                Some(touched) => touched.beside(k, past, (at, by_seq), &self.strangers, &leads),
            });
            // What a stranger has touched may differ from that moment, so the handles must also lead to the right objects.
            let judged = compared.and_then(|pairs| match touched.is_some() && !stands {
                true => self.handles_lead(&pairs).map(|_| pairs),
                false => Ok(pairs),
            });
            match judged {
                Ok(pairs) => {
                    found = Some((at, pairs));
                    break;
                }
                Err(e) => wrong.push(format!("not that of {at} (logged {by}): {e}")),
            }
        }
        let Some((at, pairs)) = found else {
            return Err(format!(
                "the volume is of no moment since the last acknowledged operation (position {}, power went at {}, {} was left): {}",
                self.acked_position,
                past.end,
                position,
                if wrong.is_empty() {
                    format!("the log and the disk are older: {moments:?}")
                } else {
                    wrong.join("; ")
                }
            ));
        };
        self.figures.ahead +=
            u64::from(logged.last_seq > 0 && at == position && moments.first().is_some_and(|m| m.0 != at));
        self.say(|| format!("the volume is that of position {at}"));
        self.check_replies(logged, report, clean, at)?;
        self.check_handles(&pairs)?;
        // A call that failed during the search for a path leaves the path out of the message.
        let with_paths = sim::with(|k| k.struck.is_empty());
        match touched {
            None if self.strangers.is_empty() && !report.local.is_empty() => {
                return Err(format!("nobody has changed anything, and it says {:?}", report.local));
            }
            Some(touched) if undisturbed && !stands && report.local_more == 0 => {
                touched.check_said_of_old(past, &past.at(at), &report.local, with_paths)?;
            }
            Some(touched) if undisturbed && !clean && logged.last_seq > 0 && !ahead => {
                touched.check_said(&report.local, report.local_more, with_paths)?;
            }
            _ => {}
        }
        for stranger in strangers {
            if sim::with(|k| k.peek(*stranger).is_none_or(|m| m.nlink == 0)) {
                return Err(format!("a stranger's object {stranger} is gone"));
            }
        }
        if self.unclean && volume.write_verifier() == self.verifier {
            return Err("the write verifier is the same after an unclean start".to_owned());
        }
        Ok(pairs)
    }

    /// Where the handles of all objects lead.
    fn leads(&self) -> BTreeMap<Serial, Serial> {
        let volume = self.volume();
        let led = self.told.iter().filter_map(|(serial, told)| {
            let node = volume.resolve(&told.fh).ok()?;
            Some((*serial, sim::with(|k| k.serial_of(&node.0.id))?))
        });
        led.collect()
    }

    /// First and last position that a log whose last transaction is `seq` can stand for.
    fn moments(&self, seq: u64) -> (u64, u64) {
        if let Some((first, last)) = self.bounds.get(&seq) {
            // The operation in which the volume failed has recorded nothing.
            return (self.failed_from.map_or(*first, |from| from.min(*first)), *last);
        }
        // Between two parts of one operation.
        let before = self.bounds.range(..seq).next_back().map_or(0, |(_, (_, last))| *last);
        let after = self.bounds.range(seq..).next().map_or(u64::MAX, |(_, (first, _))| *first);
        (before.max(self.acked_position), after.min(before + 200))
    }

    /// Checks that all sent replies are known, and that a reply is known exactly when its effect is there.
    fn check_replies(
        &mut self,
        logged: &Logged,
        report: &RecoveryReport,
        clean: bool,
        at: u64,
    ) -> Result<(), String> {
        if self.notes_are_old && !report.notes.is_empty() {
            return Err("replies from before a time without the log come back".to_owned());
        }
        let mut known: BTreeMap<u8, u32> = BTreeMap::new();
        for bytes in &report.notes {
            known.extend(read_note(bytes));
        }
        for (client, n) in &self.acked {
            let has = known.get(client).copied().unwrap_or(0);
            if has < *n {
                return Err(format!(
                    "the reply {n} to client {client} was sent and is forgotten; {has} is known"
                ));
            }
        }
        // A transaction is in the log as a whole: where its number is, its reply is, too.
        let in_log = |seq: u64| logged.last_seq >= seq && !clean;
        for noted in self.noted.iter().filter(|n| n.seq.is_some_and(in_log)) {
            let has = known.get(&noted.client).copied().unwrap_or(0);
            if has < noted.n {
                return Err(format!(
                    "request {} of client {} is done, and its reply is not known",
                    noted.n, noted.client
                ));
            }
        }
        for noted in &self.noted {
            if known.get(&noted.client).is_some_and(|has| *has >= noted.n) && noted.position > at {
                return Err(format!(
                    "the reply {} to client {} is known, and its effect is not there",
                    noted.n, noted.client
                ));
            }
        }
        self.acked.extend(known);
        Ok(())
    }

    /// Checks that handles and fileids lead to the same objects as before.
    pub(super) fn handles_lead(&self, pairs: &[(Serial, Serial)]) -> Result<(), String> {
        let volume = self.volume();
        let now: HashMap<Serial, Serial> = pairs.iter().copied().collect();
        let mut told: Vec<(Serial, Told)> = self.told.iter().map(|(s, t)| (*s, t.clone())).collect();
        told.sort_by_key(|(s, _)| *s);
        for (serial, told) in &told {
            let resolved = volume.resolve(&told.fh);
            match (now.get(serial), resolved) {
                (Some(now), Ok(node)) => {
                    let found = sim::with(|k| k.serial_of(&node.0.id));
                    if found != Some(*now) {
                        return Err(format!("the handle of object {serial}, now {now}, leads to {found:?}"));
                    }
                    if node.0.created_ns != told.created_ns {
                        return Err(format!(
                            "object {serial} was made at {} and says {}",
                            told.created_ns, node.0.created_ns
                        ));
                    }
                    if node.fileid() != told.fileid || node.fh() != told.fh {
                        return Err(format!(
                            "object {serial} had fileid {} and has {}",
                            told.fileid,
                            node.fileid()
                        ));
                    }
                }
                (Some(now), Err(e)) => return Err(format!("the handle of object {serial}, now {now}: {e}")),
                (None, Err(Error::Stale)) => {}
                (None, Err(e)) => return Err(format!("the handle of the dead object {serial}: {e}")),
                (None, Ok(_)) if self.touched.as_ref().is_some_and(|t| t.has_moved(*serial)) => {}
                (None, Ok(node)) => {
                    let found = sim::with(|k| k.serial_of(&node.0.id));
                    let path = found.and_then(|found| sim::with(|k| paths(k).remove(&found)));
                    return Err(format!(
                        "the handle of the dead object {serial} leads to {found:?}, called {path:?}"
                    ));
                }
            }
        }
        for told in &self.gone {
            if let Ok(node) = volume.resolve(&told.fh) {
                let found = sim::with(|k| k.serial_of(&node.0.id));
                return Err(format!("the handle of an object that is gone leads to {found:?}"));
            }
        }
        Ok(())
    }

    /// As [`World::handles_lead`], and checks what a client finds by its names.
    pub(super) fn check_handles(&mut self, pairs: &[(Serial, Serial)]) -> Result<(), String> {
        self.handles_lead(pairs)?;
        let volume = self.volume();
        let mut fileids = HashMap::new();
        let mut dirs = vec![volume.root()];
        while let Some(dir) = dirs.pop() {
            let page = volume
                .readdir(&Cred::root(), &dir, 0, usize::MAX, EntryDetail::Attrs)
                .map_err(|e| format!("listing: {e}"))?;
            for entry in page.entries {
                let Some(Ok((node, attrs))) = entry.object else {
                    return Err(format!("entry {:?} cannot be looked at", entry.name));
                };
                if fileids.insert(node.fileid(), node.fh()).is_some_and(|fh| fh != node.fh()) {
                    return Err(format!("two objects have the fileid {}", node.fileid()));
                }
                self.seen(&node, attrs.change)?;
                if node.kind() == Kind::Dir {
                    dirs.push(node);
                }
            }
        }
        Ok(())
    }
}

/// What the log holds, read without the volume.
#[derive(Default)]
pub(super) struct Logged {
    last_seq: u64,
    /// Living objects in the log, and whether its last mention of their place says that they are there.
    pub(super) live: Vec<(ObjId, bool)>,
    notes: HashSet<(u8, u32)>,
    /// It has put a file among those that are kept without a name.
    orphans: bool,
}

fn logged(seed: u64) -> Result<Logged, String> {
    // The log's own id, whichever volume it belongs to.
    let superblock = |at: usize| sim::with(|k| k.log[at + 32..at + 48].to_vec());
    let mut found = Logged::default();
    let mut last = None;
    for slot in [0, 4096] {
        let Ok(volume_id) = <[u8; 16]>::try_from(superblock(slot)) else { continue };
        let config = Config { seed: Some(seed), ..Config::new(sim::LOG, 0, volume_id) };
        match Log::open_device(Box::new(LogDisk::there()), config) {
            Ok((_, replay)) => {
                let fold = Fold::resolved(replay.records.iter().cloned(), 0).map_err(|e| e.to_string())?;
                let live = fold.objects.iter().filter(|(_, plan)| !plan.dead);
                let bound = |plan: &Plan| plan.place.as_ref().is_some_and(|at| plan.names.contains(at));
                found.live = live.map(|(id, plan)| (id.clone(), bound(plan))).collect();
                found.live.sort();
                for bytes in &replay.records {
                    let record = Record::decode(bytes).map_err(|e| format!("a record of the log: {e}"))?;
                    found.last_seq = found.last_seq.max(record.seq);
                    for fact in record.facts {
                        match fact {
                            Fact::Note { bytes } => found.notes.extend(read_note(&bytes)),
                            Fact::Bind { name, obj, .. } => found.orphans |= *name == name_of(&obj),
                            _ => {}
                        }
                    }
                }
                return Ok(found);
            }
            Err(e) => last = Some(e),
        }
    }
    Err(format!("the log does not open: {}", last.map_or_else(String::new, |e| e.to_string())))
}
