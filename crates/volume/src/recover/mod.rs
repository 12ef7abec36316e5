//! Recovery: makes the volume agree with the state that the log's records add up to.
//!
//! Redoing operations one by one over whatever a crash left is wrong in many histories; see
//! `docs/internals/recovery.md`. Recovery works on the final state instead:
//!
//! 1. [`crate::fold`]: from records to the wanted state.
//! 2. [`materialise`]: objects that the log saw born, that live and that the disk has lost are made in staging.
//! 3. [`barrier`]: `syncfs`; then the remap rows are durable.
//! 4. [`enforce`]: entries, contents, attributes, times; staging is emptied; `syncfs`.
//!
//! The caller empties the log only then. Each step may be cut short by a crash at any point, any number of times:
//! the next run starts at 1 with the same records.
//!
//! If the marker says that the disk is *ahead* of the log ([`crate::marker`]), every change of metadata in the log is
//! on disk, and so may be some that were never acknowledged. Names and attributes are left alone then; only contents
//! are brought up to date.
//!
//! Nothing that the log does not know is ever deleted: it is left alone, or moved to `lost+found` in the state directory. A state
//! that no crash can leave (somebody else wrote to the volume) is resolved ([`strangers`]): what exists locally stays, what was
//! removed locally stays removed, the rest is replayed, and each case is said by its path. If the caller is strict about
//! it, recovery stops instead, and the log is kept.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

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

/// What recovery did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// The server's own bytes in the log, in order.
    pub notes: Vec<Vec<u8>>,
    /// The largest transaction number in the log; to be given to [`crate::marker::Marker::raise`].
    pub last_seq: u64,
    /// Records folded.
    pub records: u64,
    /// Objects and entries that they concern.
    pub objects: u64,
    /// Entries that they concern.
    pub entries: u64,
    /// The disk held more than the log: names and attributes were left alone.
    pub ahead: bool,
    /// What was done.
    pub done: Counts,
    /// What others than this server have changed and how it was resolved, one line each; the first of them.
    pub local: Vec<String>,
    /// How many more there are.
    pub local_more: u64,
    /// How long it took.
    pub seconds: f64,
}

/// What recovery had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects that the crash had lost and that were made again.
    pub made: u64,
    /// Entries taken away.
    pub detached: u64,
    /// Entries put in place.
    pub attached: u64,
    /// Dead objects removed.
    pub removed: u64,
    /// Files whose contents were brought up to date.
    pub contents: u64,
    /// Bytes written to them.
    pub bytes: u64,
    /// Holes made in them.
    pub holes: u64,
    /// Objects whose owner, mode, times or extended attributes were set.
    pub attrs: u64,
    /// Unknown objects moved to `lost+found`.
    pub foreign: u64,
    /// Objects whose link count is not what the log says in the end (names that somebody else made or removed).
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

/// How recovery is to be done.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Stop where somebody else has changed the volume, instead of resolving it.
    pub strict: bool,
    /// The kernel has been keeping the tree in memory since it was served: a process has ended, no power was lost.
    pub unbroken: bool,
}

/// Makes `disk` agree with `records`, which came in batches with these `ends`. `marker` is the number on the volume
/// ([`crate::marker::Marker::last`]).
///
/// `places` tells where objects were before these records, as far as anybody knows; it is asked only for messages.
///
/// Errors leave the volume in a state from which the next run goes on.
pub(crate) fn run(
    disk: &mut Disk<'_>,
    records: Vec<Vec<u8>>,
    ends: &[usize],
    marker: u64,
    how: How,
    places: &dyn Fn() -> ObjMap<Place>,
) -> Result<Recovered, Error> {
    let start = kernel::instant();
    let certain = match how {
        How { strict: true, .. } => 0,
        How { unbroken: true, .. } => records.len(),
        _ => fold::certain(&records, ends, marker),
    };
    let mut fold = Fold::resolved(records, certain)?;
    if how.strict {
        fold = fold.unanimous()?;
    }
    disk.prepare(&fold)?;
    let mut r = reconcile(disk, &fold, marker, how, places).inspect_err(|_| {
        // As far as that can be; what cannot is noted for the next start.
        let _ = disk.lock_again();
    })?;
    disk.finish(&fold)?;
    r.notes = std::mem::take(&mut fold.notes);
    // Millions of small blocks: the start need not wait for it.
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

/// The algorithm, on any filesystem.
pub(crate) fn reconcile(
    tree: &mut impl Tree,
    fold: &Fold,
    marker: u64,
    how: How,
    places: &dyn Fn() -> ObjMap<Place>,
) -> Result<Recovered, Error> {
    let ahead = marker > fold.last_seq && fold.last_seq != 0;
    let mut run = Run::new(tree, fold, how.strict, places);
    point("recovery.begin");
    let result = run.all(marker, ahead, how.unbroken);
    result.map_err(|e| run.located(e))?;
    Ok(run.report(ahead))
}

/// What an object of the log is.
#[derive(Clone, Debug)]
struct Now {
    id: ObjId,
    came: Came,
    /// This run made it and everything but its names is as it must be.
    complete: bool,
}

/// Where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// It was there.
    Found,
    /// This run made it in staging.
    Staged,
    /// This run made it at its first name, in a directory that recovery had made.
    Placed,
}

/// A directory and a name in it.
pub(crate) type Place = (ObjId, bytes::Bytes);

/// Looked for when somebody wants to know.
type Places<'a> = LazyCell<ObjMap<Place>, &'a dyn Fn() -> ObjMap<Place>>;

/// One run.
struct Run<'a, T> {
    tree: &'a mut T,
    fold: &'a Fold,
    /// What the objects of the log are now; those that are not on disk are missing here.
    now: ObjMap<Now>,
    /// Directories that this recovery has made, in this run or in an earlier one that did not come to the rows: what is in
    /// them it made, too.
    ours: ObjSet,
    /// The other way round, for those that were made again.
    then: ObjMap<ObjId>,
    /// Names that are not for good, in staging or beside the final ones, by present identity.
    staged: BTreeMap<ObjId, Vec<Place>>,
    /// Directories of the log that hand something down ([`Tree::hands_down`]), and what they are now: objects are made in them.
    /// `None`: they hand down nothing.
    native: ObjMap<Option<ObjId>>,
    /// What an earlier run left in staging, by name.
    left_staged: HashMap<bytes::Bytes, (ObjId, Kind)>,
    /// Stop where somebody else has changed the volume.
    strict: bool,
    /// Entries that stay as somebody else has left them.
    conceded: BTreeSet<(ObjId, bytes::Bytes)>,
    /// What was resolved, see [`Recovered::local`].
    local: Vec<String>,
    local_more: u64,
    /// Where objects were before the records begin, for messages; asked for once it is wanted.
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
            // All changes of metadata that the log knows have been made; what else was, by whom is seen only if no client had
            // anything under way.
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

    /// True if this run has made it: it is empty but for what this run has put there, and its attributes are not as they must be.
    fn is_fresh(&self, obj: &ObjId) -> bool {
        self.now.get(obj).is_some_and(|now| now.came != Came::Found)
    }

    /// What the log calls the object that is `now`; `None` if the log does not know it.
    fn logged<'b>(&'b self, now: &'b ObjId) -> Option<&'b ObjId> {
        match self.then.get(now) {
            Some(then) => Some(then),
            None => self.fold.objects.contains_key(now).then_some(now),
        }
    }

    /// After everything, before the log is emptied.
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
/// wrong entry (`park`, with its present one).
fn staging_name(why: &str, id: &ObjId) -> bytes::Bytes {
    let mut name = format!("{why}-{:x}-{:x}-", id.kh.kind, id.btime_ns);
    for b in id.kh.bytes.iter() {
        // Writing to a String does not fail.
        let _ = write!(name, "{b:02x}");
    }
    name.into()
}
