//! Recovery against a model: random histories, power cuts at any point, also inside recovery, and the oracle *what
//! was acknowledged is there; what was not is there whole or not at all*.
//!
//! A failing seed is printed and can be run alone: `LANDFAST_SEED=n cargo test -p landfast-volume sim`.
//! `LANDFAST_HISTORIES=n` runs more.

mod admin;
mod filesystems;
mod fused;
mod history;
mod model;
mod several;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;

use super::tree::Tree;
use super::{Counts, Error, Recovered, RecoveryMode, Run, reconcile};
#[cfg(debug_assertions)]
use crate::faults;
use crate::fold::{self, Fold};
use crate::objmap::ObjMap;
use crate::record::{Fact, Kind, ObjId, Record};
use history::{Loose, Server, outward};
use model::{Inode, LOST, Model, ROOT, STAGE, State};

/// A deliberate fault in recovery or its surroundings: the oracle must see each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// An object with the wanted name and kind is taken for the wanted object.
    TrustNames,
    /// Objects that were made and removed again are made.
    MakeTheDead,
    /// Entries are attached before the wrong ones are detached.
    AttachFirst,
    /// Staging is emptied before entries are attached.
    DropStageFirst,
    /// Times are set before the steps that change them.
    TimesFirst,
    /// The mode is set before the owner, which clears setuid bits.
    ModeBeforeOwner,
    /// The mode is set before an ACL, which sets permission bits.
    ModeBeforeAcl,
    /// Extended attributes are not restored.
    NoXattrs,
    /// Extended attributes are restored only where other attributes are stated, too.
    XattrsWithAttrs,
    /// Files are not cut before data is written.
    NoCut,
    /// Rows of the remap table are not durable before objects are put in place.
    NoBarrier,
    NumbersOnly,
    NoBirthTimes,
    NoDurable,
    NoKeep,
    NoMarker,
    /// The server omits records without facts.
    NoEmptyRecords,
    NoZero,
    /// The server does not count `Zero` facts among those that a flush did not cover.
    ZeroUncounted,
    /// A large copy is recorded as durable without a flush.
    CopyUnflushed,
    /// Data in the log from before a copy into a file is written over the copy.
    OldDataOverCopy,
}

#[derive(Default)]
struct Tally {
    histories: u64,
    records: u64,
    crashes: u64,
    ahead: u64,
    /// Records whose metadata was certainly on disk.
    certain: u64,
    local: u64,
    /// How often there was no inode for a lost object.
    refused: u64,
    done: Counts,
}

/// One history: up to three lives, each ended by a power cut and a recovery, which up to three more power cuts interrupt.
fn history(seed: u64, fault: Fault, tally: &mut Tally) -> Result<(), String> {
    history_with(seed, fault, tally, false)
}

/// The same, with or without an administrator.
fn history_with(seed: u64, fault: Fault, tally: &mut Tally, administrator: bool) -> Result<(), String> {
    let mut s = Server::new(seed);
    s.projects = true;
    // What an administrator makes needs inodes, too.
    s.few_inodes = !administrator && seed.is_multiple_of(3);
    s.model.volatile_rows = fault == Fault::NoBarrier;
    s.model.numbers_only = fault == Fault::NumbersOnly;
    s.model.no_birth_times = fault == Fault::NoBirthTimes;
    s.copy_unflushed = fault == Fault::CopyUnflushed;
    s.copy_unsaid = fault == Fault::OldDataOverCopy;
    let mut last_seq = 0;
    for _ in 0..1 + s.rng.below(3) {
        s.begin(last_seq);
        let batches = [4, 12, 40][s.rng.below(3)];
        for _ in 0..1 + s.rng.below(batches) {
            s.batch();
            if administrator && s.rng.chance(10) {
                s.administrator();
            }
        }
        s.stranger_at_work = administrator;
        last_seq = life_ends(&mut s, fault, tally)?;
    }
    tally.histories += 1;
    tally.refused += s.model.refused;
    Ok(())
}

fn life_ends(s: &mut Server, fault: Fault, tally: &mut Tally) -> Result<u64, String> {
    // What reached the log, and what reached the disk.
    let flushed = if s.rng.chance(50) {
        s.batches.len()
    } else {
        s.log_start + s.rng.below(s.batches.len() - s.log_start + 1)
    };
    let logged_end = flushed.checked_sub(1).map_or(0, |last| s.batches[last].end);
    let survivors = s.model.survivors();
    let mut want = Want::of(s, flushed, logged_end.max(survivors));
    let mut records: Vec<Record> =
        s.batches[s.log_start..flushed].iter().flat_map(|b| b.records.iter().cloned()).collect();
    match fault {
        Fault::NoDurable => {
            records.iter_mut().for_each(|r| r.facts.retain(|f| !matches!(f, Fact::Durable { .. })));
        }
        Fault::NoKeep => records.iter_mut().flat_map(|r| &mut r.facts).for_each(|f| {
            if let Fact::Durable { keep, .. } = f {
                *keep = 0;
            }
        }),
        Fault::NoZero => {
            records.iter_mut().for_each(|r| r.facts.retain(|f| !matches!(f, Fact::Zero { .. })));
        }
        Fault::ZeroUncounted => records.iter_mut().for_each(|r| {
            let zero = r.facts.iter().any(|f| matches!(f, Fact::Zero { .. }));
            r.facts.iter_mut().for_each(|f| match f {
                Fact::Durable { keep, .. } if zero => *keep = 0,
                _ => {}
            });
        }),
        Fault::NoEmptyRecords => records.retain(|r| !r.facts.is_empty()),
        _ => {}
    }
    tally.records += records.len() as u64;
    tally.crashes += 1;
    s.model.crash(survivors);
    let ends = ends(s, flushed, fault);
    if !s.stranger_at_work {
        let last_seq = recover(s, &records, &ends, fault, tally)?;
        want.check(&s.model)?;
        return Ok(last_seq);
    }
    s.touched.removed.clear();
    while s.rng.chance(60) {
        s.administrator();
    }
    s.model.flush();
    want.touched = s.touched.clone();
    let certain = certain(&records, &ends, s.model.live.marker);
    let fold = Fold::resolved_of(records.iter().cloned(), certain).map_err(|e| e.to_string())?;
    // What a client has removed since is no longer his.
    let his = admin::his(s, |id| fold.objects.get(id).is_some_and(|plan| plan.dead));
    let last_seq = recover(s, &records, &ends, fault, tally)?;
    want.check_beside(&s.model, &his)?;
    let again = |id: &&ObjId| {
        let gone = fold.objects.get(*id).is_some_and(|plan| plan.must_be_there);
        gone && s.model.live.inodes.values().any(|i| outward(&s.model, &i.id).0 == **id)
    };
    if let Some(id) = s.touched.removed.iter().find(again) {
        return Err(format!("{id}, which the administrator has removed, is there again"));
    }
    admin::clear_lost_found(s);
    Ok(last_seq)
}

fn ends(s: &Server, flushed: usize, fault: Fault) -> Vec<usize> {
    let mut end = 0;
    let counted = |r: &&Record| fault != Fault::NoEmptyRecords || !r.facts.is_empty();
    let batches = s.batches[s.log_start..flushed].iter();
    let ends = batches.map(|b| {
        end += b.records.iter().filter(counted).count();
        end
    });
    ends.collect()
}

/// How many records are certainly on disk.
fn certain(records: &[Record], ends: &[usize], marker: u64) -> usize {
    let bytes: Vec<Vec<u8>> = records
        .iter()
        .map(|r| Record { seq: r.seq, facts: Vec::new() }.encode().expect("a record in range"))
        .collect();
    fold::certain(&bytes, ends, marker)
}

fn recover(
    s: &mut Server,
    records: &[Record],
    ends: &[usize],
    fault: Fault,
    tally: &mut Tally,
) -> Result<u64, String> {
    let mut cuts_left = s.rng.below(4);
    let mut again = s.rng.chance(30);
    let facts: usize = records.iter().map(|r| r.facts.len()).sum();
    loop {
        let marker = if fault == Fault::NoMarker { 0 } else { s.model.live.marker };
        let certain = certain(records, ends, marker);
        tally.certain += certain as u64;
        let fold = if s.rng.chance(10) {
            Fold::resolved(records.iter().map(|r| r.encode().expect("a record in range")), certain)
        } else {
            Fold::resolved_of(records.iter().cloned(), certain)
        };
        let fold = match s.stranger_at_work {
            true => fold,
            false => fold.and_then(Fold::unanimous),
        };
        let fold = fold.map_err(|e| e.to_string())?;
        s.model.fuse = (cuts_left > 0).then(|| s.rng.below(2 + facts));
        match faulty(&mut s.model, fold, marker, fault) {
            Ok(r) => {
                tally.local += r.local.len() as u64;
                if !s.stranger_at_work && !r.local.is_empty() && fault == Fault::None {
                    return Err(format!("nobody has changed anything, but it says {:?}", r.local));
                }
                tally.ahead += u64::from(r.ahead);
                tally.done.add(r.done);
                s.model.fuse = None;
                if !again {
                    return Ok(r.last_seq);
                }
                // Power fails before the log is emptied.
                again = false;
                cuts_left = 0;
            }
            Err(Error::Io { why, .. }) if why.to_string() == "power cut" => cuts_left -= 1,
            Err(e) => return Err(e.to_string()),
        }
        tally.crashes += 1;
        let survivors = s.model.survivors();
        s.model.crash(survivors);
    }
}

fn faulty(model: &mut Model, mut fold: Fold, marker: u64, fault: Fault) -> Result<Recovered, Error> {
    model.mistaken.clear();
    match fault {
        Fault::MakeTheDead => {
            fold.objects.values_mut().filter(|p| p.birth.is_some()).for_each(|p| p.dead = false);
        }
        Fault::NoCut => fold.objects.values_mut().for_each(|p| p.content.cut = None),
        Fault::ModeBeforeOwner => model.mode_before_owner = true,
        Fault::ModeBeforeAcl => model.mode_before_acl = true,
        Fault::NoXattrs => fold.objects.values_mut().for_each(|p| p.xattrs.clear()),
        Fault::XattrsWithAttrs => {
            fold.objects.values_mut().filter(|p| p.owned.is_none()).for_each(|p| p.xattrs.clear());
        }
        Fault::TrustNames => {
            for (id, plan) in fold.objects.iter().filter(|(_, p)| p.birth.is_some() && !p.dead) {
                for (dir, name) in &plan.names {
                    if model.ino(id).is_none()
                        && model.ino(dir).is_some()
                        && let Ok(Some((found, kind))) = model.lookup(dir, name)
                        && plan.birth.as_ref().is_some_and(|b| b.kind == kind)
                        && !model.mistaken.contains_key(&found)
                    {
                        model.mistaken.insert(id.clone(), found);
                    }
                }
            }
        }
        _ => {}
    }
    let ahead = marker > fold.last_seq && fold.last_seq != 0;
    let names: fn(&mut Run<'_, Model>) -> Result<(), Error> = match fault {
        Fault::AttachFirst => |r| r.attach().and_then(|()| r.detach()).and_then(|()| r.empty_stage()),
        Fault::DropStageFirst => |r| r.detach().and_then(|()| r.empty_stage()).and_then(|()| r.attach()),
        Fault::TimesFirst => |r| r.detach().and_then(|()| r.attach()).and_then(|()| r.empty_stage()),
        _ => return reconcile(model, &fold, marker, RecoveryMode::default(), &ObjMap::default),
    };
    if ahead || fold.is_empty() {
        return reconcile(model, &fold, marker, RecoveryMode::default(), &ObjMap::default);
    }
    let mut run = Run::new(model, &fold, false, &ObjMap::default);
    run.find_staged()?;
    run.materialise()?;
    if fault == Fault::TimesFirst {
        run.objects(|work, object| work.times(object))?;
    }
    names(&mut run)?;
    run.objects(|work, object| work.contents(object))?;
    run.objects(|work, object| work.attributes(object))?;
    if fault != Fault::TimesFirst {
        run.objects(|work, object| work.times(object))?;
    }
    run.sync()?;
    Ok(run.report(ahead))
}

/// What clients were told of each object: identity and fileid.
struct ToldIdentities(BTreeMap<ObjId, (ObjId, u64)>);

impl ToldIdentities {
    /// `last` holds the latest objects; older ones are looked up when needed.
    fn of(model: &Model, last: &State) -> ToldIdentities {
        ToldIdentities(last.inodes.values().map(|i| (i.id.clone(), outward(model, &i.id))).collect())
    }
}

struct Want {
    state: State,
    contents: BTreeMap<ObjId, Vec<u8>>,
    loose: Vec<Loose>,
    cut: Vec<ObjId>,
    seen: ToldIdentities,
    before: State,
    touched: admin::Touched,
}

impl Want {
    /// For a state that was read back with each object under the identity that clients know.
    fn told_by_identity(&mut self) {
        self.seen.0.iter_mut().for_each(|(id, seen)| *seen = (id.clone(), model::number(id)));
    }

    /// The log has the first `flushed` batches, and the disk should have the first `changes` metadata changes.
    fn of(s: &Server, flushed: usize, changes: usize) -> Want {
        Want {
            state: s.model.after(changes),
            contents: match flushed.checked_sub(1) {
                Some(last) => s.batches[last].contents.clone(),
                None => BTreeMap::new(),
            },
            loose: s.loose.iter().filter(|l| l.stable.is_none_or(|b| b >= flushed)).cloned().collect(),
            cut: s.cuts.iter().filter(|c| c.batch >= flushed).map(|c| c.obj.clone()).collect(),
            seen: ToldIdentities::of(&s.model, &s.model.after(s.model.changes.len())),
            before: s.model.after(0),
            touched: admin::Touched::default(),
        }
    }

    fn check(&self, model: &Model) -> Result<(), String> {
        let mut fileids = BTreeSet::new();
        let mut done = BTreeSet::new();
        self.dir(model, ROOT, ROOT, "", &mut fileids, &mut done)?;
        for (ino, what) in [(STAGE, "staging"), (LOST, "lost+found")] {
            let left = &model.live.get(ino).entries;
            if !left.is_empty() {
                return Err(format!("{what} is not empty: {left:?}"));
            }
        }
        Ok(())
    }

    fn dir(
        &self,
        model: &Model,
        want: u64,
        got: u64,
        path: &str,
        fileids: &mut BTreeSet<u64>,
        done: &mut BTreeSet<u64>,
    ) -> Result<(), String> {
        let (want, got) = (self.state.get(want), model.live.get(got));
        let names = |i: &Inode| i.entries.keys().cloned().collect::<Vec<Bytes>>();
        if names(want) != names(got) {
            return Err(format!("{path}/ holds {:?}, not {:?}", names(got), names(want)));
        }
        for (name, ino) in &want.entries {
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            let (want_ino, got_ino) = (*ino, got.entries[name]);
            self.object(model, want_ino, got_ino, &path, true)?;
            if done.insert(got_ino) {
                let id = &model.live.get(got_ino).id;
                if !fileids.insert(model.remap.fileid(id, got_ino)) {
                    return Err(format!("{path} shares its fileid with another object"));
                }
                if self.state.get(want_ino).kind == Kind::Dir {
                    self.dir(model, want_ino, got_ino, &path, fileids, done)?;
                }
            }
        }
        Ok(())
    }

    /// `links`: nobody else has changed where it is.
    fn object(&self, model: &Model, want: u64, got: u64, path: &str, links: bool) -> Result<(), String> {
        let (want, got) = (self.state.get(want), model.live.get(got));
        if let Some(seen) = self.seen.0.get(&want.id) {
            let now = outward(model, &got.id);
            if *seen != now {
                return Err(format!("{path} is {now:?} for clients, not {seen:?}"));
            }
        }
        if want.kind != got.kind {
            return Err(format!("{path} is a {:?}, not a {:?}", got.kind, want.kind));
        }
        if self.touched.changed.contains(&want.id) {
            return Ok(());
        }
        let loose: Vec<&Loose> = self.loose.iter().filter(|l| l.obj == want.id).collect();
        // Where he has moved directories, new objects in them have their project.
        if want.project != got.project && self.touched.entries.is_empty() {
            return Err(format!("{path} has project {}, not {}", got.project, want.project));
        }
        let (mut a, mut b) = (want.owned, got.owned);
        if !loose.is_empty() || self.touched.dirs.contains(&want.id) {
            (a.mtime, b.mtime) = Default::default();
        }
        if a != b {
            return Err(format!("{path} has {b:?}, not {a:?}"));
        }
        if links && want.kind != Kind::Dir && want.nlink != got.nlink {
            return Err(format!("{path} has {} links, not {}", got.nlink, want.nlink));
        }
        if (want.rdev, &want.target, &want.xattrs) != (got.rdev, &got.target, &got.xattrs) {
            return Err(format!("{path} has another device, target or extended attribute"));
        }
        if want.kind == Kind::File { self.content(want, got, &loose, path) } else { Ok(()) }
    }

    fn content(&self, want: &Inode, got: &Inode, loose: &[&Loose], path: &str) -> Result<(), String> {
        if self.cut.contains(&want.id) {
            return Ok(());
        }
        let empty = Vec::new();
        let stable = match self.contents.get(&want.id) {
            Some(c) => c,
            None => self.before.inodes.values().find(|i| i.id == want.id).map_or(&empty, |i| &i.data),
        };
        let end = loose.iter().map(|l| l.offset + l.bytes.len()).fold(stable.len(), usize::max);
        if got.data.len() < stable.len() || got.data.len() > end {
            return Err(format!("{path} has {} bytes, not {} to {end}", got.data.len(), stable.len()));
        }
        for (at, byte) in got.data.iter().enumerate() {
            let may = stable.get(at).copied().unwrap_or(0) == *byte
                || loose.iter().any(|l| at.checked_sub(l.offset).and_then(|n| l.bytes.get(n)) == Some(byte));
            if !may {
                return Err(format!("{path} has {byte} at {at}, not {:?} ({:?})", stable.get(at), stable));
            }
        }
        Ok(())
    }
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn what_was_acknowledged_is_there_and_what_was_not_is_whole_or_not_at_all() {
    let mut tally = Tally::default();
    if let Some(seed) = env("LANDFAST_SEED") {
        if let Err(e) = history(seed, Fault::None, &mut tally) {
            panic!("seed {seed}: {e}");
        }
        return;
    }
    let (first, count) = (1, env("LANDFAST_HISTORIES").unwrap_or(10_000));
    let start = Instant::now();
    for seed in first..first + count {
        if let Err(e) = history(seed, Fault::None, &mut tally) {
            panic!("seed {seed} (LANDFAST_SEED={seed} runs it alone): {e}");
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} histories (seeds {first} to {}), {} records, {} power cuts, {} ahead of the log: {:.0} histories/s; {:?}",
        tally.histories,
        first + count - 1,
        tally.records,
        tally.crashes,
        tally.ahead,
        tally.histories as f64 / seconds,
        tally.done,
    );
    // The histories are useless if they do not exercise these cases.
    let d = tally.done;
    assert!(d.made > 0 && d.detached > 0 && d.attached > 0 && d.removed > 0 && d.contents > 0 && d.attrs > 0);
    assert!(tally.ahead > 0 && tally.certain > 0 && d.holes > 0 && tally.refused > 0);
    assert_eq!(d.foreign, 0);
    #[cfg(debug_assertions)]
    for (point, _) in faults::POINTS.iter().filter(|(name, _)| name.starts_with("recovery.")) {
        assert!(
            faults::passes(point) > 0 || *point == "recovery.emptied",
            "recovery does not come by {point}"
        );
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_barrier_without_rows_is_seen() {
    let mut tally = Tally::default();
    let lost = || (1..2_000).find_map(|seed| history(seed, Fault::None, &mut tally).err());
    assert!(faults::with(Some(faults::Bug::LostRemapRow), lost).is_some());
}

#[test]
#[cfg(debug_assertions)]
fn objects_made_without_their_project_are_seen() {
    let mut tally = Tally::default();
    let stopped = || (1..2_000).find_map(|seed| history(seed, Fault::None, &mut tally).err());
    let seen = faults::with(Some(faults::Bug::ProjectIgnored), stopped);
    println!("{}", seen.expect("it is seen"));
}

/// Each of these faults is a plausible mistake. An oracle that misses one of them proves nothing.
#[test]
fn each_deliberate_fault_is_seen() {
    let faults = [
        Fault::TrustNames,
        Fault::MakeTheDead,
        Fault::AttachFirst,
        Fault::DropStageFirst,
        Fault::TimesFirst,
        Fault::ModeBeforeOwner,
        Fault::ModeBeforeAcl,
        Fault::NoXattrs,
        Fault::XattrsWithAttrs,
        Fault::NoCut,
        Fault::NoBarrier,
        Fault::NumbersOnly,
        Fault::NoBirthTimes,
        Fault::NoDurable,
        Fault::NoKeep,
        Fault::NoMarker,
        Fault::NoEmptyRecords,
        Fault::NoZero,
        Fault::ZeroUncounted,
        Fault::CopyUnflushed,
        Fault::OldDataOverCopy,
    ];
    for fault in faults {
        let mut tally = Tally::default();
        let seen = (1..20_000).find_map(|seed| history(seed, fault, &mut tally).err().map(|e| (seed, e)));
        let Some((seed, how)) = seen else { panic!("{fault:?} is not seen in 20,000 histories") };
        println!("{fault:?}: seen at seed {seed}: {how}");
    }
}
