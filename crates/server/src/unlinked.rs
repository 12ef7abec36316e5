//! Files that lose their last name while clients have them open: the shell between [`crate::state`], which knows who has a file open, and the volume,
//! which keeps it.

use crate::exports::Exports;
use crate::limits;
use crate::shared::Shared;
use crate::state::notes::Stamped;
use crate::state::opens::FileKey;
use landfast_volume::{Error, Held, Node, Tx, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A removal or a renaming that may take a file's last name away.
pub(crate) struct Unlinking<'a> {
    sh: &'a Shared,
    volume: &'a Volume,
    /// The file that the volume was told to keep.
    asked: Option<Node>,
    /// The notes of who has it open.
    notes: Vec<Stamped>,
}

impl<'a> Unlinking<'a> {
    pub(crate) fn new(sh: &'a Shared, volume: &'a Volume) -> Unlinking<'a> {
        Unlinking { sh, volume, asked: None, notes: Vec::new() }
    }

    /// For [`Volume::remove_keeping`]: who has the file open.
    pub(crate) fn held(&mut self, node: &Node) -> Held {
        let (file, now) = (node.fh(), self.sh.now());
        let mut st = self.sh.state();
        let Some(notes) = st.keep_unlinked(&file) else { return Held::ByNobody };
        let promised = st.was_promised_to_the_living(now, &file);
        drop(st);
        (self.asked, self.notes) = (Some(node.clone()), notes);
        if promised { Held::Promised } else { Held::Open }
    }

    /// The removal is over. What the volume has not kept is no orphan, unless another removal has had it kept meanwhile: so the volume is asked under the file's
    /// lock. Returns the notes, which go into the log in the same transaction, and in any case: the state takes them for logged.
    pub(crate) fn done(self, kept: bool) -> Vec<Stamped> {
        if let Some(node) = self.asked.filter(|_| !kept) {
            self.volume.unless_orphan(&node, || self.sh.state().is_not_kept(&node.fh()));
        }
        self.notes
    }
}

/// Removes a file without a name that was released, unless somebody has it open again. Returns whether it is gone.
pub(crate) fn remove(sh: &Shared, volume: &Volume, tx: &mut Tx, node: &Node) -> Result<bool, Error> {
    let file = node.fh();
    let done = volume.release(tx, node, || sh.state().may_remove(&file));
    if done.is_err() {
        sh.state().is_still_there(file);
    }
    done
}

/// Tells the state which files without a name a volume keeps. Call when its export is in the table: what is released before, nobody removes.
pub(crate) fn take_over(sh: &Shared, volume: &Volume) {
    let files: Vec<FileKey> = volume.orphans().iter().map(Node::fh).collect();
    sh.state().has_orphans(files);
}

/// What came of an attempt to remove some files.
#[derive(Default)]
struct Attempt {
    receipts: Vec<landfast_volume::Receipt>,
    /// Exports of which some was removed.
    removed: BTreeSet<PathBuf>,
    /// How many could not be removed, by export, and the first error.
    failed: BTreeMap<PathBuf, (usize, Error)>,
}

impl Attempt {
    fn failed(&mut self, export: &Path, times: usize, e: Error) {
        self.failed.entry(export.to_owned()).or_insert((0, e)).0 += times;
    }

    fn add(&mut self, other: Attempt) {
        self.removed.extend(other.removed);
        other.failed.into_iter().for_each(|(export, (times, e))| self.failed(&export, times, e));
    }
}

/// Exports whose files could not be removed, and how many it was said of. They are tried again at each tick.
#[derive(Default)]
struct Told(BTreeMap<PathBuf, usize>);

impl Told {
    /// What is to be said now: where none was removed since the last time, only of more files.
    fn news(&mut self, attempt: Attempt) -> Vec<(PathBuf, usize, Error)> {
        self.0.retain(|export, _| !attempt.removed.contains(export));
        let mut news = Vec::new();
        for (export, (times, e)) in attempt.failed {
            let told = self.0.entry(export.clone()).or_default();
            if times > *told {
                *told = times;
                news.push((export, times, e));
            }
        }
        news
    }
}

/// Removes files without a name that nobody has open any more, but those whose CLOSE does. Never returns.
pub(crate) async fn run(sh: Arc<Shared>) {
    let mut told = Told::default();
    loop {
        sh.orphans_released().await;
        let mut files = sh.state().files.preserved.take_released();
        let mut all = Attempt::default();
        while !files.is_empty() {
            let rest = files.split_off(files.len().min(limits::ORPHANS_REMOVED_AT_ONCE));
            let some = std::mem::replace(&mut files, rest);
            let of = sh.clone();
            // The disk may make it wait.
            let attempt = tokio::task::spawn_blocking(move || remove_all(&of, &of.exports(), &some)).await;
            let mut attempt = attempt.unwrap_or_default();
            for receipt in std::mem::take(&mut attempt.receipts) {
                // A failure has been reported by the volume.
                let _ = receipt.wait().await;
            }
            all.add(attempt);
        }
        for (export, times, e) in told.news(all) {
            tracing::warn!(
                "{}: {times} files that were removed while they were open stay for now: {e}",
                export.display()
            );
        }
    }
}

fn remove_all(sh: &Shared, exports: &Exports, files: &[FileKey]) -> Attempt {
    let mut attempt = Attempt::default();
    for file in files {
        let Some(export) = exports.of_handle(file) else { continue };
        // It has been reported, and removes nothing any more.
        if export.volume.failed().is_some() {
            sh.state().is_still_there(file.clone());
            continue;
        }
        let node = match export.volume.resolve(file) {
            Ok(node) => node,
            Err(Error::Stale) => continue,
            Err(e) => {
                sh.state().is_still_there(file.clone());
                attempt.failed(&export.path, 1, e);
                continue;
            }
        };
        let mut tx = export.volume.tx();
        match remove(sh, &export.volume, &mut tx, &node) {
            Ok(true) => drop(attempt.removed.insert(export.path.clone())),
            // Somebody has it open again.
            Ok(false) => {}
            Err(e) => attempt.failed(&export.path, 1, e),
        }
        attempt.receipts.push(tx.finish());
    }
    attempt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_stay_are_told_of_once() {
        let mut told = Told::default();
        let export = Path::new("/export");
        let stays = |times| {
            let mut attempt = Attempt::default();
            (0..times).for_each(|_| attempt.failed(export, 1, Error::NoSpace));
            attempt
        };
        let said = |told: &mut Told, attempt| told.news(attempt).into_iter().map(|n| n.1).collect::<Vec<_>>();
        assert_eq!(said(&mut told, stays(2)), [2]);
        assert!(said(&mut told, stays(2)).is_empty(), "the next tick");
        assert!(said(&mut told, stays(1)).is_empty(), "a file whose CLOSE could not remove it");
        assert_eq!(said(&mut told, stays(3)), [3]);
        let removed = Attempt { removed: [export.to_owned()].into(), ..Attempt::default() };
        assert!(said(&mut told, removed).is_empty());
        assert_eq!(said(&mut told, stays(1)), [1], "it went well in between");
    }
}
