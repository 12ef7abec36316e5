//! Files that lose their last name while clients have them open: the shell between [`crate::state`], which knows who has a file open, and the volume,
//! which keeps it.

use crate::exports::Exports;
use crate::limits;
use crate::shared::Shared;
use crate::state::notes::Stamped;
use crate::state::opens::FileKey;
use landfast_volume::{Error, Node, Tx, Volume};
use std::collections::BTreeMap;
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

    /// For [`Volume::remove_keeping`]: whether somebody has the file open.
    pub(crate) fn is_open(&mut self, node: &Node) -> bool {
        let Some(notes) = self.sh.state().keep_unlinked(&node.fh()) else { return false };
        (self.asked, self.notes) = (Some(node.clone()), notes);
        true
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
    /// How many could not be removed, by export, and the first error.
    failed: BTreeMap<PathBuf, (usize, Error)>,
}

impl Attempt {
    fn failed(&mut self, export: &Path, times: usize, e: Error) {
        self.failed.entry(export.to_owned()).or_insert((0, e)).0 += times;
    }
}

/// Removes files without a name that nobody has open any more, but those whose CLOSE does. Never returns.
pub(crate) async fn run(sh: Arc<Shared>) {
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
            let attempt = attempt.unwrap_or_default();
            for receipt in attempt.receipts {
                // A failure has been reported by the volume.
                let _ = receipt.wait().await;
            }
            attempt.failed.into_iter().for_each(|(export, (times, e))| all.failed(&export, times, e));
        }
        for (export, (times, e)) in all.failed {
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
        if let Err(e) = remove(sh, &export.volume, &mut tx, &node) {
            attempt.failed(&export.path, 1, e);
        }
        attempt.receipts.push(tx.finish());
    }
    attempt
}
