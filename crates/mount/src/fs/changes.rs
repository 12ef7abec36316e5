//! Changes that programs were told are done: added to their lanes, and waited for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::shared::{Open, Shared};
use crate::core::Ino;
use crate::core::bugs::{Bug, bug};
use crate::core::pending::{Added, Change, What};
use crate::core::tree::{ROOT, Tree};
use crate::errno::Errno;
use crate::limits::PENDING_MANY;
use crate::remote::Caller;

/// Adds a change that was made in the tree.
pub(super) fn add(shared: &Shared, tree: &mut Tree<Open>, who: &Caller, at: (Ino, Ino), what: What) {
    let now = shared.now();
    let replaces = what.replaces();
    let added = shared.lanes.pending().add(who, at, what, now);
    match added {
        Added::Queued => {
            // Its handle tells it from what others put in its place.
            replaces.into_iter().for_each(|ino| tree.pin(ino));
            tree.owe(at.0, now);
            tree.owe(at.1, now);
        }
        Added::Folded => {}
        Added::Cancelled(gone) => gone.iter().for_each(|change| forget(shared, tree, change, None)),
    }
    if shared.lanes.pending().len() >= PENDING_MANY {
        shared.lanes.work.notify_one();
    }
}

/// A change is not sent any more. `why`: it has failed.
pub(super) fn forget(shared: &Shared, tree: &mut Tree<Open>, change: &Change<Caller>, why: Option<Errno>) {
    let now = shared.now();
    let open = tree.get(change.node).and_then(|n| n.file.clone());
    if let (What::File { .. }, Some(open)) = (&change.what, open) {
        let mut file = open.state.lock();
        file.content.drop_all();
        file.held = None;
        if let Some(e) = why {
            file.errors.add(e);
            file.dead = Some(e);
        }
        shared.charge(&mut file);
        shared.is_clean(change.node);
        let closed = file.opens == 0;
        drop(file);
        if closed && let Some(node) = tree.get_mut(change.node) {
            node.file = None;
        }
    }
    change.what.replaces().into_iter().for_each(|ino| tree.unpin(ino));
    tree.pay(change.node, now);
    tree.pay(change.dir, now);
}

/// Waits until the server knows a directory and has heard of all changes in it that were made before.
pub(super) async fn settle_dir(shared: &Arc<Shared>, dir: Ino) {
    let until: Vec<(Ino, u64)> = {
        let pending = shared.lanes.pending();
        [Some((dir, pending.last())), pending.creation(dir)].into_iter().flatten().collect()
    };
    wait(shared, &until, Of::All).await;
}

/// Waits until the server knows an object.
pub(super) async fn settle_creation(shared: &Arc<Shared>, ino: Ino) {
    let until: Vec<(Ino, u64)> = shared.lanes.pending().creation(ino).into_iter().collect();
    wait(shared, &until, Of::Names).await;
}

/// The same of an object: its creation, its name, its attributes.
pub(super) async fn settle_node(shared: &Arc<Shared>, ino: Ino) {
    let above = shared.tree().above(ino);
    let until: Vec<(Ino, u64)> = {
        let pending = shared.lanes.pending();
        if pending.is_empty() {
            return;
        }
        let named = above.and_then(|dir| Some((dir, pending.last_of(dir, ino)?)));
        let own = pending.last_of(ino, ino).map(|number| (ino, number));
        [pending.creation(ino), named, own].into_iter().flatten().collect()
    };
    // Not for data: whoever writes it may wait for this.
    wait(shared, &until, Of::Names).await;
}

/// The same with all directories above it: it is found where programs have it.
pub(super) async fn settle_path(shared: &Arc<Shared>, ino: Ino) {
    settle_node(shared, ino).await;
    let until: Vec<(Ino, u64)> = {
        let tree = shared.tree();
        let pending = shared.lanes.pending();
        if pending.is_empty() {
            return;
        }
        let dirs = tree.all_above(ino);
        let named = |(dir, above): (&Ino, &Ino)| Some((*above, pending.last_of(*above, *dir)?));
        dirs.iter().zip(dirs.iter().skip(1)).filter_map(named).collect()
    };
    wait(shared, &until, Of::Names).await;
}

/// Waits until the server has heard who may do what with an object. Whoever may do more since is not refused there.
pub(super) async fn settle_rights(shared: &Arc<Shared>, ino: Ino) {
    let until: Vec<(Ino, u64)> = {
        let tree = shared.tree();
        if !tree.owes(ino) {
            return;
        }
        let pending = shared.lanes.pending();
        // Those of a directory are in its own lane, those of a file in the lane of the directory above.
        let lanes = [tree.above(ino), Some(ino)].into_iter().flatten();
        lanes.filter_map(|dir| Some((dir, pending.last_rights_of(dir, ino)?))).collect()
    };
    wait(shared, &until, Of::Names).await;
}

/// Waits until the server has heard of all that was changed in a directory and below it, and of the directory itself.
pub(super) async fn settle_below(shared: &Arc<Shared>, top: Ino) {
    settle_path(shared, top).await;
    let (dirs, last) = dirs(shared);
    let until: Vec<(Ino, u64)> = {
        let tree = shared.tree();
        dirs.into_iter()
            .filter(|dir| match bug(Bug::BelowUnsynced) {
                true => *dir == top,
                // One of which that is not known may be below.
                false => tree.is_below(*dir, top) != Some(false),
            })
            .map(|dir| (dir, last))
            .collect()
    };
    wait(shared, &until, Of::All).await;
}

/// Waits until others who come into a directory find all that was made in it before: also in directories below that are nobody's own, as the
/// server gave no delegation of them.
pub(super) async fn settle_seen(shared: &Arc<Shared>, top: Ino) {
    loop {
        settle_dir(shared, top).await;
        let (dirs, last) = dirs(shared);
        let until: Vec<(Ino, u64)> = {
            let tree = shared.tree();
            let open = |dir: &Ino| *dir != top && tree.is_open_from(*dir, top);
            dirs.into_iter().filter(open).map(|dir| (dir, last)).collect()
        };
        if until.is_empty() {
            return;
        }
        wait(shared, &until, Of::All).await;
    }
}

pub(super) async fn settle_all(shared: &Arc<Shared>) {
    let (dirs, last) = dirs(shared);
    let until: Vec<(Ino, u64)> = dirs.into_iter().map(|dir| (dir, last)).collect();
    wait(shared, &until, Of::All).await;
}

/// Directories with changes, or with files whose data is still being written, and the number of the last change.
fn dirs(shared: &Shared) -> (BTreeSet<Ino>, u64) {
    let pending = shared.lanes.pending();
    let mut dirs: BTreeSet<Ino> = pending.dirs().into_iter().collect();
    dirs.extend(shared.lanes.unfinished().values());
    (dirs, pending.last())
}

/// The error of a change in a directory, or below it, that nobody was told of.
pub(super) fn take_failure(shared: &Shared, top: Ino) -> Option<Errno> {
    let mut tree = shared.tree();
    let is_below = |dir| tree.is_below(dir, top).unwrap_or(top == ROOT);
    let (taken, failure) = shared.lanes.take_failures(is_below);
    taken.into_iter().for_each(|dir| tree.unkeep(dir));
    failure
}

/// A change in a directory has failed.
pub(super) fn failed(shared: &Shared, tree: &mut Tree<Open>, dir: Ino, e: Errno) {
    if shared.lanes.failed(dir, e) {
        tree.keep(dir);
    }
}

pub(super) fn urge_all(shared: &Shared) {
    let mut pending = shared.lanes.pending();
    let last = pending.last();
    for dir in pending.dirs() {
        pending.urge(dir, last);
    }
    drop(pending);
    shared.lanes.work.notify_one();
}

/// `Names`: changes. `All`: also data of files that were made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Names,
    All,
}

async fn wait(shared: &Arc<Shared>, until: &[(Ino, u64)], of: Of) {
    loop {
        let changed = shared.lanes.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        {
            let mut pending = shared.lanes.pending();
            let left: Vec<_> = until.iter().filter(|(dir, upto)| pending.has(*dir, *upto)).collect();
            let data = of == Of::All && {
                let unfinished = shared.lanes.unfinished();
                unfinished.values().any(|above| until.iter().any(|(dir, _)| dir == above))
            };
            if left.is_empty() && !data {
                return;
            }
            left.into_iter().for_each(|(dir, upto)| pending.urge(*dir, *upto));
        }
        shared.lanes.work.notify_one();
        changed.await;
    }
}
