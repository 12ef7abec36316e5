//! Recovery: makes the volume agree with the state that the log's records add up to.
//!
//! Redoing operations one by one over whatever a crash left is wrong in many histories; see
//! `docs/internals/recovery.md`. Recovery works on the final state instead:
//!
//! 1. [`crate::fold`] computes the wanted state from the records.
//! 2. [`materialise`] makes in staging each living object that was born in the log and that the disk has lost.
//! 3. [`barrier`] calls `syncfs`; then it makes the remap rows durable.
//! 4. [`enforce`] fixes entries, contents, attributes and times, empties staging and calls `syncfs`.
//!
//! Only then does the caller empty the log. A crash may interrupt any step, any number of times: the next run starts at 1
//! with the same records.
//!
//! If the marker says that the disk is *ahead* of the log ([`crate::marker`]), every metadata change in the log is on
//! disk, perhaps with some that were never acknowledged. Then recovery leaves names and attributes alone and updates only
//! contents.
//!
//! Recovery never deletes what the log does not know: it leaves it alone or moves it to `lost+found` in the state directory.
//! If the state is one that no crash can leave, somebody else wrote to the volume. Recovery resolves that ([`strangers`]):
//! - what exists locally stays;
//! - what was removed locally stays removed;
//! - the rest is replayed, and each case is reported by its path.
//!
//! If the caller asks for strictness, recovery stops instead and the log is kept.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use crate::cred;
use crate::faults::{self, Bug, point};
use crate::fold::{self, Fold};
use crate::kernel;
use crate::objmap::{ObjMap, ObjSet};
use crate::record::{Kind, ObjId};

mod barrier;
mod contents;
pub mod disk;
mod enforce;
mod error;
mod materialise;
mod names;
#[cfg(test)]
mod sim;
mod strangers;
pub mod tree;
mod work;

pub use disk::Disk;
pub use error::Error;
use error::{io, surprise};
use tree::{Meta, Tree};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// The server's own bytes in the log, in order.
    pub notes: Vec<Vec<u8>>,
    /// The largest transaction number in the log; to be given to [`crate::marker::Marker::raise`].
    pub last_seq: u64,
    pub records: u64,
    /// Objects that the records concern.
    pub objects: u64,
    /// Entries that the records concern.
    pub entries: u64,
    /// The disk held more than the log: names and attributes were left alone.
    pub ahead: bool,
    pub done: Counts,
    /// Changes by others and how they were resolved, one line each; only the first ones.
    pub local: Vec<String>,
    /// How many more changes by others there are.
    pub local_more: u64,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects that the crash had lost and that were made again.
    pub made: u64,
    pub detached: u64,
    pub attached: u64,
    pub removed: u64,
    pub contents: u64,
    pub bytes: u64,
    pub holes: u64,
    pub attrs: u64,
    /// Unknown objects moved to `lost+found`.
    pub foreign: u64,
    /// Objects whose final link count differs from the log's, because somebody else made or removed names.
    pub odd_links: u64,
}

impl Counts {
    fn add(&mut self, more: Counts) {
        let Counts { made, detached, attached, removed, contents, bytes, holes, attrs, foreign, odd_links } =
            more;
        self.made += made;
        self.detached += detached;
        self.attached += attached;
        self.removed += removed;
        self.contents += contents;
        self.bytes += bytes;
        self.holes += holes;
        self.attrs += attrs;
        self.foreign += foreign;
        self.odd_links += odd_links;
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryMode {
    /// Stop where somebody else has changed the volume, instead of resolving it.
    pub strict: bool,
    /// The kernel has kept the tree in memory since it was served: only a process ended, no power was lost.
    pub unbroken: bool,
}

/// Makes `disk` agree with `records`; `ends` says where each batch of records ends. `marker` is the number on the volume
/// ([`crate::marker::Marker::last`]).
///
/// `places` tells where objects were before these records, as far as known. It is called only for messages.
///
/// After an error the next run can go on from the volume's state.
pub(crate) fn run(
    disk: &mut Disk<'_>,
    records: Vec<Vec<u8>>,
    ends: &[usize],
    marker: u64,
    how: RecoveryMode,
    places: &dyn Fn() -> ObjMap<Place>,
) -> Result<Recovered, Error> {
    let start = kernel::instant();
    let certain = match how {
        RecoveryMode { strict: true, .. } => 0,
        RecoveryMode { unbroken: true, .. } => records.len(),
        _ => fold::certain(&records, ends, marker),
    };
    let mut fold = Fold::resolved(records, certain)?;
    if how.strict {
        fold = fold.unanimous()?;
    }
    let beyond = cred::beyond_quotas();
    disk.prepare(&fold)?;
    let mut r = reconcile(disk, &fold, marker, how, places).inspect_err(|_| {
        // As far as possible: what fails is noted for the next start.
        let _ = disk.lock_again();
    })?;
    disk.finish(&fold)?;
    drop(beyond);
    disk.take_reserve()?;
    r.notes = std::mem::take(&mut fold.notes);
    // Dropping millions of small blocks takes time; the start need not wait for it.
    kernel::drop_aside(fold);
    r.seconds = start.elapsed().as_secs_f64();
    for line in &r.local {
        tracing::warn!("changed behind the server's back: {line}");
    }
    if r.local_more > 0 {
        tracing::warn!("changed behind the server's back: {} more", r.local_more);
    }
    if r.done.foreign > 0 {
        tracing::warn!(
            objects = r.done.foreign,
            "recovery moved what the log does not know to .landfast/lost+found"
        );
    }
    if r.done.odd_links > 0 {
        tracing::warn!(
            objects = r.done.odd_links,
            "some objects have other link counts than the log says: names were made or removed locally"
        );
    }
    Ok(r)
}

impl std::fmt::Display for Recovered {
    /// One line for people: what was found and what was done.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let local = match self.local.len() as u64 + self.local_more {
            0 => String::new(),
            n => format!(", {n} local changes resolved"),
        };
        let (d, ahead) = (&self.done, if self.ahead { ", the disk was ahead of the log" } else { "" });
        write!(
            f,
            "{} records about {} objects and {} names{ahead}: {} objects made again, {} removed, {} names attached, \
             {} detached, {} files written ({} bytes), {} attributes set, {} unknown objects set aside{local}, in {:.2} s",
            self.records,
            self.objects,
            self.entries,
            d.made,
            d.removed,
            d.attached,
            d.detached,
            d.contents,
            d.bytes,
            d.attrs,
            d.foreign,
            self.seconds
        )
    }
}

/// The algorithm, for any [`Tree`].
pub(crate) fn reconcile(
    tree: &mut impl Tree,
    fold: &Fold,
    marker: u64,
    how: RecoveryMode,
    places: &dyn Fn() -> ObjMap<Place>,
) -> Result<Recovered, Error> {
    let ahead = marker > fold.last_seq && fold.last_seq != 0;
    let mut run = Run::new(tree, fold, how.strict, places);
    point("recovery.begin");
    let result = run.all(marker, ahead, how.unbroken);
    result.map_err(|e| run.located(e))?;
    Ok(run.report(ahead))
}

#[derive(Clone, Debug)]
struct Now {
    id: ObjId,
    came: FoundHow,
    /// This run made it, and everything but its names is as it must be.
    complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundHow {
    Found,
    Staged,
    /// This run made it at its first name, in a directory made by recovery.
    Placed,
}

pub(crate) type Place = (ObjId, bytes::Bytes);

/// Computed when first asked for.
type Places<'a> = LazyCell<ObjMap<Place>, &'a dyn Fn() -> ObjMap<Place>>;

struct Run<'a, T> {
    tree: &'a mut T,
    fold: &'a Fold,
    /// What each object of the log is now; objects that are not on disk are missing here.
    now: ObjMap<Now>,
    /// Directories that recovery has made, in this run or in an earlier one that did not reach the remap rows. So recovery
    /// also made everything in them.
    ours: ObjSet,
    /// The inverse of `now`, for objects that were made again.
    then: ObjMap<ObjId>,
    /// Temporary names, in staging or beside the final ones, by present identity.
    staged: BTreeMap<ObjId, Vec<Place>>,
    /// Directories of the log whose new entries inherit something ([`Tree::hands_down`]), and what they are now: objects are
    /// made in them directly. `None`: nothing is inherited there.
    native: ObjMap<Option<ObjId>>,
    /// What an earlier run left in staging, by name.
    left_staged: HashMap<bytes::Bytes, (ObjId, Kind)>,
    /// What is dead was removed before everything lost was made ([`Run::make_room`]).
    room_made: bool,
    strict: bool,
    /// Entries that stay as somebody else left them.
    conceded: BTreeSet<(ObjId, bytes::Bytes)>,
    /// See [`Recovered::local`].
    local: Vec<String>,
    local_more: u64,
    /// Where objects were before the first record, for messages.
    places: Places<'a>,
    done: Counts,
}

impl<'a, T: Tree> Run<'a, T> {
    fn new(
        tree: &'a mut T,
        fold: &'a Fold,
        strict: bool,
        places: &'a dyn Fn() -> ObjMap<Place>,
    ) -> Run<'a, T> {
        Run {
            tree,
            fold,
            now: ObjMap::default(),
            ours: ObjSet::default(),
            then: ObjMap::default(),
            staged: BTreeMap::new(),
            native: ObjMap::default(),
            left_staged: HashMap::new(),
            room_made: false,
            strict,
            conceded: BTreeSet::new(),
            local: Vec::new(),
            local_more: 0,
            places: LazyCell::new(places),
            done: Counts::default(),
        }
    }

    fn all(&mut self, marker: u64, ahead: bool, unbroken: bool) -> Result<(), Error> {
        if self.fold.is_empty() {
            return Ok(());
        }
        for strange in &self.fold.strange {
            self.concede(strange.what, &strange.obj, None, "what the log says of it later counts")?;
        }
        if ahead || unbroken {
            // Every metadata change in the log is on disk, perhaps more. Changes by others are recognisable only if no client
            // had a request in flight.
            if !ahead {
                self.look_for_all()?;
                self.concede_the_gone()?;
            }
            self.contents_only(marker)?;
        } else {
            self.find_staged()?;
            self.materialise()?;
            self.enforce()?;
            self.last_sync()?;
        }
        point("recovery.synced");
        Ok(())
    }

    fn report(&self, ahead: bool) -> Recovered {
        Recovered {
            notes: Vec::new(),
            last_seq: self.fold.last_seq,
            records: self.fold.records as u64,
            objects: self.fold.objects.len() as u64,
            entries: self.fold.entries.values().map(|names| names.len() as u64).sum(),
            ahead,
            done: self.done,
            local: self.local.clone(),
            local_more: self.local_more,
            seconds: 0.0,
        }
    }

    fn probe(&mut self, obj: &ObjId) -> Result<Option<Meta>, Error> {
        self.tree.probe(obj).map_err(io("looking at an object", obj))
    }

    /// True if this run made it: it holds only what this run put there, and its attributes are not yet right.
    fn is_fresh(&self, obj: &ObjId) -> bool {
        self.now.get(obj).is_some_and(|now| now.came != FoundHow::Found)
    }

    /// The log's identity of the object that is `now`; `None` if the log does not know it.
    fn logged<'b>(&'b self, now: &'b ObjId) -> Option<&'b ObjId> {
        match self.then.get(now) {
            Some(then) => Some(then),
            None => self.fold.objects.contains_key(now).then_some(now),
        }
    }

    /// Runs last, before the log is emptied.
    fn last_sync(&mut self) -> Result<(), Error> {
        if faults::bug(Bug::EmptyBeforeSync) { Ok(()) } else { self.sync() }
    }

    fn sync(&mut self) -> Result<(), Error> {
        let stage = self.tree.stage();
        self.tree.sync().map_err(io("flushing the filesystem", &stage))
    }
}

fn present(now: &ObjMap<Now>, obj: &ObjId) -> Result<ObjId, Error> {
    let now = now.get(obj).map(|now| now.id.clone());
    now.ok_or_else(|| surprise("an object that must be there is not", obj, None))
}

/// The name in staging of an object that is made again (`made`, with its old identity), or of one that stood at a
/// wrong entry (`park`, with its present identity).
fn staging_name(why: &str, id: &ObjId) -> bytes::Bytes {
    let mut name = format!("{why}-{:x}-{:x}-", id.kh.kind, id.btime_ns);
    for b in id.kh.bytes.iter() {
        // Writing to a String does not fail.
        let _ = write!(name, "{b:02x}");
    }
    name.into()
}
