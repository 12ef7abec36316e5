//! Delegations: asked for, tested, recalled, returned.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use landfast_client::Asked;
use landfast_nfs::v4::{FileHandle, Stateid};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::changes::{settle_all, settle_dir, settle_node, settle_seen, urge_all};
use super::flush;
use super::room::{self, Found};
use super::shared::{Open, Shared};
use crate::core::bugs::{Bug, bug};
use crate::core::space::Needs;
use crate::core::tree::Tree;
use crate::core::tree::right::Right;
use crate::core::{Ino, Time};
use crate::errno::Errno;
use crate::limits::{
    BACK_CHANNEL_LOOKED_EACH, COMPLETE_DIR_MAX, DELEGATION_ASKED_EACH, EARLY_RECALLS_MAX, HOLD_LOOKED_EACH,
    PENDING_MAX, RETURNED_TOGETHER,
};
use crate::remote::{Caller, Delegation};
use crate::tasks;

/// What is looked after once in a while.
pub(super) async fn look_after(shared: &Arc<Shared>) {
    // While the server is away the one before is not over.
    let Ok(_one) = shared.lanes.looking_after.try_lock() else { return };
    shared.remote.session().binds_back_channel().await;
    check(shared).await;
    room::renew(shared).await;
    let mut surplus = shared.tree().take_surplus();
    let now = shared.now();
    // The reply that gave it is lost, or has no directory here any more, or is late.
    let old = shared.lanes.early.lock().take_old(now, BACK_CHANNEL_LOOKED_EACH);
    surplus.extend(old.into_iter().map(|recall| (recall.fh, recall.stateid)));
    shared.remote.return_delegations(&surplus).await;
}

/// Whether the delegations were tested in the session in force, and since the server's last restart.
pub(super) fn is_tested(shared: &Shared) -> bool {
    let (lanes, standing) = (&shared.lanes, shared.remote.session().standing());
    standing.session == lanes.session.load(Ordering::Acquire)
        && standing.restarts == lanes.restarts.load(Ordering::Acquire)
}

/// Tests the delegations, if the server may have given them up.
pub(super) async fn check(shared: &Arc<Shared>) {
    let lanes = &shared.lanes;
    let _one = lanes.checking.lock().await;
    let session = shared.remote.session();
    let standing = session.standing();
    let tested = is_tested(shared);
    if tested && !standing.revoked {
        return;
    }
    // What was kept may be gone.
    shared.space.lock().forget();
    let all = shared.tree().delegations();
    let ids: Vec<Stateid> = all.iter().map(|(_, _, id)| *id).collect();
    let stand = match shared.remote.which_stand(&ids).await {
        Ok(stand) => stand,
        Err(e) => {
            // Nothing is known: it is tried again, and nothing is sent in the new session before.
            tracing::warn!("delegations cannot be tested: {}", e.errno());
            return;
        }
    };
    for ((dir, _, stateid), stands) in all.into_iter().zip(stand) {
        if !stands && !bug(Bug::Untested) {
            let mut tree = shared.tree();
            tracing::warn!("{}: the server has taken the delegation back", tree.path(dir));
            if tree.right(dir).is_some_and(|right| right_is(right, &stateid)) {
                tree.disown(dir);
            }
            let mut pending = lanes.pending();
            let last = pending.last();
            pending.urge(dir, last);
        }
    }
    lanes.restarts.store(standing.restarts, Ordering::Release);
    lanes.session.store(standing.session, Ordering::Release);
    lanes.changed.notify_waiters();
    lanes.work.notify_one();
}

fn right_is(right: Right, stateid: &Stateid) -> bool {
    matches!(right, Right::Delegated(id) | Right::Returning(id) if id.other == stateid.other)
}

/// Hears recalls.
pub(super) async fn hear(weak: Weak<Shared>, mut asked: mpsc::Receiver<Asked>) {
    while let Some(asked) = asked.recv().await {
        let Some(shared) = weak.upgrade() else { return };
        let recall = match asked {
            Asked::One(recall) => recall,
            Asked::Any { keep } => {
                give_idle_back(&shared, keep as usize);
                continue;
            }
        };
        shared.lanes.recalls.fetch_add(1, Ordering::Relaxed);
        // The tree stays locked until an early recall is noted: in between, a reply could make the directory this mount's own and not see it.
        let mut tree = shared.tree();
        match tree.recalled(&recall.stateid) {
            Some(dir) => {
                drop(tree);
                give_back(&shared, dir, recall.stateid);
            }
            None => {
                let now = shared.now();
                let mut early = shared.lanes.early.lock();
                if early.waiting.len() >= EARLY_RECALLS_MAX {
                    // The server asks again.
                    early.waiting.pop_front();
                }
                early.waiting.push_back((recall, now));
            }
        }
    }
}

/// Returns so many that no more than `keep` are left, those first in which nothing was changed for longest (RFC 8881 section 20.6).
fn give_idle_back(shared: &Arc<Shared>, keep: usize) {
    let idle = {
        let mut tree = shared.tree();
        let idle = tree.idle_delegations(keep);
        idle.iter().for_each(|(dir, _, stateid)| tree.is_returning(*dir, *stateid));
        idle
    };
    shared.lanes.given_back.fetch_add(idle.len() as u64, Ordering::Relaxed);
    let shared = shared.clone();
    tasks::spawn(async move {
        for some in idle.chunks(RETURNED_TOGETHER) {
            for (dir, ..) in some {
                settle_seen(&shared, *dir).await;
            }
            give_up(&shared, some).await;
        }
    });
}

/// Returns a delegation once all that it covers is on the server.
fn give_back(shared: &Arc<Shared>, dir: Ino, stateid: Stateid) {
    let shared = shared.clone();
    tasks::spawn(async move {
        if !bug(Bug::ReturnedEarly) {
            settle_seen(&shared, dir).await;
        }
        let handle = shared.tree().get(dir).and_then(|n| n.handle.clone());
        if let Some(handle) = handle {
            give_up(&shared, &[(dir, handle, stateid)]).await;
        }
    });
}

/// Returns delegations of directories of which the server has heard all. Memory answers for them no longer than until that is sent: when the
/// reply is late, or lost, others have changed them. Nobody asks for them again before.
async fn give_up(shared: &Arc<Shared>, all: &[(Ino, FileHandle, Stateid)]) {
    let mut returning = Vec::new();
    for (dir, _, stateid) in all {
        returning.push(Asking::begin(shared, *dir).await);
        note_refusal(shared, *dir, shared.now());
        let mut tree = shared.tree();
        if tree.right(*dir).is_some_and(|right| right_is(right, stateid)) {
            tree.disown(*dir);
        }
    }
    shared.lanes.changed.notify_waiters();
    let returned: Vec<_> = all.iter().map(|(_, handle, stateid)| (handle.clone(), *stateid)).collect();
    shared.remote.return_delegations(&returned).await;
    let now = shared.now();
    all.iter().for_each(|(dir, ..)| note_refusal(shared, *dir, now));
}

/// Returns all delegations, at the end of the mount.
pub(super) async fn give_all_back(shared: &Arc<Shared>) {
    settle_all(shared).await;
    let all: Vec<(FileHandle, Stateid)> =
        shared.tree().delegations().into_iter().map(|(_, handle, id)| (handle, id)).collect();
    shared.remote.return_delegations(&all).await;
}

/// Takes a delegation that the server has given with the creation of a directory, or that it has not given.
pub(super) fn given(shared: &Arc<Shared>, tree: &mut Tree<Open>, dir: Ino, given: Delegation, who: &Caller) {
    let lanes = &shared.lanes;
    match given {
        Delegation::Write(stateid) => {
            tree.delegated(dir, stateid, Some(who.uid));
            given_late(shared, tree, dir, stateid);
        }
        Delegation::Read(stateid) => {
            let handle = tree.get(dir).and_then(|n| n.handle.clone());
            tree.disown(dir);
            if let Some(handle) = handle {
                let shared = shared.clone();
                tasks::spawn(async move { shared.remote.return_delegations(&[(handle, stateid)]).await });
            }
            note_refusal(shared, dir, shared.now());
        }
        Delegation::None => {
            tree.disown(dir);
            note_refusal(shared, dir, shared.now());
        }
        Delegation::Never => {
            tree.disown(dir);
            lanes.never.store(true, Ordering::Relaxed);
        }
    }
    if !tree.is_own(dir) {
        // What is in it can only be sent now: others may come.
        let mut pending = lanes.pending();
        let last = pending.last();
        pending.urge(dir, last);
    }
}

fn note_refusal(shared: &Shared, dir: Ino, now: Time) {
    let mut refused = shared.lanes.refused.lock();
    if refused.len() >= PENDING_MAX {
        refused.clear();
    }
    refused.insert(dir, now);
}

/// Whether a directory that is made on the server now is to be this mount's own.
pub(super) fn asks(shared: &Shared) -> bool {
    shared.options.local && shared.lanes.asks(shared.tree().names())
}

/// Gets ready for a change of names in a directory by `who`. Returns whether it may be made here. Otherwise the server is to be asked,
/// and has heard of all before.
pub(super) async fn prepare(shared: &Arc<Shared>, who: &Caller, dir: Ino) -> Result<bool, Errno> {
    let mut asked = false;
    loop {
        let changed = shared.lanes.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let (right, takes, too_large) = {
            let tree = shared.tree();
            (tree.right(dir), tree.takes_changes(dir, who.uid), tree.is_too_large(dir))
        };
        match right {
            None => {
                if asked || !acquire(shared, who, dir).await {
                    settle_dir(shared, dir).await;
                    return Ok(false);
                }
                asked = true;
            }
            Some(Right::Returning(_)) => {
                // Whoever wants it comes first.
                asked = true;
                changed.await;
            }
            Some(Right::New) if too_large => {
                asked = true;
                settle_node(shared, dir).await;
            }
            Some(Right::Delegated(stateid)) if too_large => {
                asked = true;
                if shared.tree().recalled(&stateid).is_some() {
                    give_back(shared, dir, stateid);
                }
            }
            Some(_) if takes => {
                if shared.lanes.have_room() && !shared.is_full() {
                    match room::look(shared, who, Needs::CHANGE).await {
                        Found::Room => return Ok(true),
                        // The server's answer is the program's.
                        Found::None => {
                            settle_dir(shared, dir).await;
                            return Ok(false);
                        }
                        // What is not on the server yet has nothing that it could be asked of.
                        Found::NoDirectory => {
                            settle_node(shared, dir).await;
                            settle_dir(shared, dir).await;
                            if shared.tree().stateid(dir).is_none() {
                                return Ok(false);
                            }
                            continue;
                        }
                    }
                }
                urge_all(shared);
                // Room that files take which are not made here is given back without a word.
                let _ = timeout(HOLD_LOOKED_EACH, changed).await;
            }
            Some(_) if asked => {
                settle_dir(shared, dir).await;
                return Ok(false);
            }
            Some(_) => {
                asked = true;
                settle_node(shared, dir).await;
                let handle = shared.server_handle(dir)?;
                if shared.remote.may_change(who, &handle).await? {
                    shared.tree().admit(dir, who.uid);
                }
            }
        }
    }
}

/// Whether a directory that is not this mount's own may become that, and would be of use.
pub(super) fn is_worth_asking(shared: &Shared, tree: &Tree<Open>, dir: Ino) -> bool {
    // Two requests are too much for a single change.
    if !shared.lanes.asks(tree.names()) || tree.is_own(dir) || tree.changes(dir) == 0 {
        return false;
    }
    let (now, refused) = (shared.now(), shared.lanes.refused.lock());
    refused.get(&dir).is_none_or(|at| now.saturating_sub(*at) >= DELEGATION_ASKED_EACH)
}

/// A directory whose delegation is being asked for, or returned.
struct Asking<'a>(&'a Shared, Ino);

impl Asking<'_> {
    /// Waits until nobody else does either.
    async fn begin(shared: &Shared, dir: Ino) -> Asking<'_> {
        loop {
            let changed = shared.lanes.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if shared.lanes.asking.lock().insert(dir) {
                return Asking(shared, dir);
            }
            changed.await;
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.lanes.asking.lock().remove(&self.1);
        self.0.lanes.changed.notify_waiters();
    }
}

/// Asks for a delegation of a directory that is there, and for all its names. Returns whether it is this mount's own now. One at a time
/// asks for each directory: the server gives all the same delegation.
async fn acquire(shared: &Arc<Shared>, who: &Caller, dir: Ino) -> bool {
    let _asking = Asking::begin(shared, dir).await;
    shared.tree().is_own(dir) || acquire_now(shared, who, dir).await
}

async fn acquire_now(shared: &Arc<Shared>, who: &Caller, dir: Ino) -> bool {
    let handle = {
        let tree = shared.tree();
        if !is_worth_asking(shared, &tree, dir) {
            return false;
        }
        match tree.get(dir).and_then(|n| n.handle.clone()) {
            Some(handle) => handle,
            None => return false,
        }
    };
    // What waits since it was this mount's own before is sent while it is not: others may have come, so each change needs a look.
    settle_dir(shared, dir).await;
    let now = shared.now();
    // New files that are held back would not be among the names.
    let _ = flush::make_held(shared, dir).await;
    // The session is that in which all are good, and nothing else changes names until they are listed.
    check(shared).await;
    let (session, changes) = (shared.lanes.session.load(Ordering::Acquire), shared.tree().changes(dir));
    let asked = shared.space.lock().ask(shared.now());
    let Ok((given, may, has)) = shared.remote.delegate(who, &handle).await else { return false };
    if let Delegation::Write(_) = given {
        shared.space.lock().told(who.uid, asked, has, shared.now());
    }
    let stateid = match given {
        Delegation::Write(stateid) => stateid,
        other => {
            let mut tree = shared.tree();
            self::given(shared, &mut tree, dir, other, who);
            return false;
        }
    };
    let names = all_names(shared, who, dir, &handle).await;
    if let Some(names) = names
        && take_names(shared, dir, (stateid, may.then_some(who.uid)), (session, changes), names)
    {
        return true;
    }
    note_refusal(shared, dir, now);
    shared.remote.return_delegations(&[(handle, stateid)]).await;
    false
}

/// A directory is this mount's own, with these names. `false`: a new file is held back in it, another session than that in which it was
/// asked for is in force, or its names have changed since.
fn take_names(
    shared: &Arc<Shared>,
    dir: Ino,
    (stateid, user): (Stateid, Option<u32>),
    (session, changes): (u64, u64),
    names: Vec<(Bytes, Option<Ino>)>,
) -> bool {
    let mut tree = shared.tree();
    if !tree.held_in(dir).is_empty() || tree.get(dir).is_none() {
        return false;
    }
    if !is_tested(shared)
        || session != shared.lanes.session.load(Ordering::Acquire)
        || changes != tree.changes(dir)
    {
        return false;
    }
    tree.delegated(dir, stateid, user);
    tree.names_of_own(dir, names);
    given_late(shared, &mut tree, dir, stateid);
    tree.is_own(dir)
}

/// A recall may have overtaken the delegation, which may even be returned already: then the directory is nobody's.
fn given_late(shared: &Arc<Shared>, tree: &mut Tree<Open>, dir: Ino, stateid: Stateid) {
    let mut early = shared.lanes.early.lock();
    if early.take_returned(&stateid) {
        return tree.disown(dir);
    }
    let before = early.waiting.len();
    early.waiting.retain(|(recall, _)| recall.stateid.other != stateid.other);
    if early.waiting.len() < before && tree.recalled(&stateid).is_some() {
        give_back(shared, dir, stateid);
    }
}

/// All names of a directory, if they are not too many.
async fn all_names(
    shared: &Arc<Shared>,
    who: &Caller,
    dir: Ino,
    handle: &FileHandle,
) -> Option<Vec<(Bytes, Option<Ino>)>> {
    let (mut cookie, mut verifier, mut names) = (0, Default::default(), Vec::new());
    loop {
        let asked = shared.now();
        let page = shared.remote.list(who, handle, cookie, verifier).await.ok()?;
        {
            let mut tree = shared.tree();
            for (next, name, object) in &page.entries {
                cookie = *next;
                let ino = object.as_ref().map(|(handle, attrs)| {
                    let ino = tree.node(handle, attrs.clone(), asked);
                    if let Some(node) = tree.get_mut(ino) {
                        node.place = Some((dir, name.clone()));
                    }
                    tree.is_listed(ino);
                    ino
                });
                names.push((name.clone(), ino));
            }
        }
        if page.eof {
            return Some(names);
        }
        if page.entries.is_empty() || names.len() > COMPLETE_DIR_MAX {
            return None;
        }
        verifier = page.verifier;
    }
}
