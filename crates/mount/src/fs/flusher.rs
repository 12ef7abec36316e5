//! Sends the changes that programs were told are done. The decisions are in [`crate::core::pending`].
//!
//! A lane's changes go as one COMPOUND in the session in which the directory's delegation was found good. If that session is gone, the
//! delegations are tested first. A directory whose delegation is lost has its changes sent one by one, each after a look whether it is
//! still what the program meant: a name that somebody else has is an error, and nobody else's file is removed or replaced.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use landfast_nfs::v4::args::CreateType;
use landfast_nfs::v4::{FileHandle, NfsStat, NfsTime, OpNum, SetTime};
use tokio::time::sleep;

use super::changes::{self, forget};
use super::conflict::{self, Lost};
use super::delegations::{check, given, hear, is_tested, look_after};
use super::flush::{self, Until, close_unused};
use super::shared::{Open, Shared};
use crate::core::bugs::{Bug, bug};
use crate::core::pending::{Change, What};
use crate::core::replay::{self, Replay};
use crate::core::space::{Asked, Needs};
use crate::core::tree::Tree;
use crate::core::tree::own::Entry;
use crate::core::tree::right::Right;
use crate::core::{Ino, Time};
use crate::errno::Errno;
use crate::limits::{
    BACK_CHANNEL_LOOKED_EACH, DIRTY_BYTES_MAX, FLUSH_AGE_MAX, HOLD_AGE, HOLD_LOOKED_EACH, LANES_IN_FLIGHT,
    PAUSE_MIN, PENDING_MANY, PENDING_MAX,
};
use crate::remote::{
    Also, Caller, Delegation, Doubt, Fault, NewFile, Sent, Step, StepDone, is_busy, patiently,
};
use crate::tasks;

/// Begins: callbacks, and sending. Without `close=local` there is nothing to do.
pub(super) async fn start(shared: &Arc<Shared>) {
    let session = shared.remote.session();
    if !shared.options.local {
        return;
    }
    let Some(recalls) = session.recalls() else { return };
    let standing = session.standing();
    shared.lanes.restarts.store(standing.restarts, Ordering::Release);
    shared.lanes.session.store(standing.session, Ordering::Release);
    session.binds_back_channel().await;
    tasks::spawn(hear(Arc::downgrade(shared), recalls));
    tasks::spawn(run(Arc::downgrade(shared)));
}

async fn run(weak: Weak<Shared>) {
    let mut looked = Time::ZERO;
    while let Some(shared) = weak.upgrade() {
        let (lanes, now) = (shared.lanes.clone(), shared.now());
        lanes.look_at_age(now, shared.options.flush_age.max(HOLD_AGE) + shared.options.offline);
        if now.saturating_sub(looked) >= BACK_CHANNEL_LOOKED_EACH {
            looked = now;
            let shared = shared.clone();
            tasks::spawn(async move { look_after(&shared).await });
        }
        dispatch(&shared);
        drop(shared);
        tokio::select! {
            () = lanes.work.notified() => {}
            () = sleep(HOLD_LOOKED_EACH) => {}
        }
    }
}

/// A new file that is sent, and the data taken out of it: number, offset, bytes.
struct FileSent {
    open: Arc<Open>,
    pieces: Vec<(u64, u64, Bytes)>,
    /// When data was written last.
    written: Option<NfsTime>,
}

/// Changes of a lane that are sent.
struct Batch {
    dir: Ino,
    handle: FileHandle,
    who: Caller,
    changes: Vec<Change<Caller>>,
    steps: Vec<Step>,
    files: Vec<Option<FileSent>>,
    /// The directory is not this mount's own any more, or a change before these has failed.
    guarded: bool,
    /// When it is asked how much space there is.
    asked: Asked,
    taken: Time,
}

/// Sends what is due.
fn dispatch(shared: &Arc<Shared>) {
    let lanes = &shared.lanes;
    if lanes.in_flight.load(Ordering::Acquire) >= LANES_IN_FLIGHT {
        return;
    }
    let due = {
        let mut pending = lanes.pending();
        let all = pending.len() >= PENDING_MANY || shared.dirty_bytes() > DIRTY_BYTES_MAX / 2;
        let age = if bug(Bug::FlushLate) { FLUSH_AGE_MAX } else { shared.options.flush_age };
        pending.due(shared.now(), age, all)
    };
    for dir in due {
        if lanes.in_flight.load(Ordering::Acquire) >= LANES_IN_FLIGHT {
            return;
        }
        let Some(batch) = take(shared, dir) else { continue };
        lanes.in_flight.fetch_add(1, Ordering::AcqRel);
        let shared = shared.clone();
        tasks::spawn(async move {
            patiently(send(&shared, batch)).await;
            shared.lanes.in_flight.fetch_sub(1, Ordering::AcqRel);
            shared.lanes.changed.notify_waiters();
            shared.lanes.work.notify_one();
        });
    }
}

/// Takes changes of a lane for one COMPOUND.
fn take(shared: &Shared, dir: Ino) -> Option<Batch> {
    let (now, age) = (shared.now(), shared.options.flush_age);
    let tree = shared.tree();
    let handle = tree.get(dir)?.handle.clone()?;
    let shared_with_others = !tree.is_own(dir);
    // Others see the directory now, or right after this: they are to see whole files.
    let seen = shared_with_others || matches!(tree.right(dir), Some(Right::Returning(_)));
    let delegate = shared.lanes.asks(tree.names());
    let mut room = shared.remote.batch_room();
    let (mut steps, mut files) = (Vec::new(), Vec::new());
    let asked = shared.space.lock().ask(now);
    let mut pending = shared.lanes.pending();
    let guarded = shared_with_others || pending.is_damaged(dir);
    let unfinished = shared.lanes.unfinished();
    let all = pending.len() >= PENDING_MAX;
    let mut made: HashSet<Bytes> = HashSet::new();
    let changes = pending.take(dir, |change, urgent| {
        if change.what.gives().is_some_and(|name| made.contains(name)) {
            // If the reply is lost, what has the name is what this batch has made, and nothing that has come behind it.
            return false;
        }
        if unfinished.contains_key(&change.node) {
            // Its data comes before its new name, and before its times.
            return false;
        }
        let node = tree.get(change.node);
        let (step, file) = match &change.what {
            What::File { name } => {
                let Some((open, attrs)) = node.and_then(|n| Some((n.file.clone()?, n.attrs.clone()))) else {
                    return false;
                };
                let mut file = open.state.lock();
                // Its program has not closed it yet: what it has is not whole.
                let young =
                    now.saturating_sub(change.since) < if seen { HOLD_AGE } else { age.max(HOLD_AGE) };
                if file.opens > 0 && young && (!urgent || seen) && !all {
                    return false;
                }
                let content = file.content.waiting();
                if !room.take(content.bytes() as usize + name.len(), content.count()) {
                    return false;
                }
                let mut set = file.set_at_close(&attrs);
                // Times are those of the program's calls: lanes do not keep the order of theirs.
                set.mtime.get_or_insert(SetTime::ClientTime(attrs.mtime));
                let Some(held) = &mut file.held else { return false };
                held.sent = true;
                let mode = held.mode;
                let mut pieces = Vec::new();
                while !bug(Bug::ContentLate)
                    && let Some(piece) = file.content.take()
                {
                    pieces.push(piece);
                }
                let written = file.written;
                drop(file);
                let data = pieces.iter().map(|(_, at, data)| (*at, data.clone())).collect();
                let new = NewFile { name: name.clone(), mode, data, set };
                (Step::File(new), Some(FileSent { open, pieces, written }))
            }
            What::Dir { name, mode } => (Step::Dir { name: name.clone(), mode: *mode, delegate }, None),
            What::Link { name, text, set } => {
                (Step::Link { name: name.clone(), text: text.clone(), set: *set }, None)
            }
            What::Remove { name, .. } => (Step::Remove { name: name.clone() }, None),
            What::Rename { from, to, .. } => (Step::Rename { from: from.clone(), to: to.clone() }, None),
            What::Set(set) => match node.and_then(|n| n.handle.clone()) {
                Some(handle) => (Step::Set { handle, set: *set }, None),
                None => return false,
            },
        };
        if file.is_none() && !room.take(text_of(&step), 0) {
            return false;
        }
        if change.what.makes() {
            made.extend(change.what.gives().cloned());
        }
        steps.push(step);
        files.push(file);
        true
    });
    drop(unfinished);
    drop(pending);
    drop(tree);
    let who = changes.first()?.who.clone();
    Some(Batch { dir, handle, who, changes, steps, files, guarded, asked, taken: now })
}

/// Bytes of names and texts.
fn text_of(step: &Step) -> usize {
    match step {
        Step::Link { name, text, .. } => name.len() + text.len(),
        Step::Rename { from, to } => from.len() + to.len(),
        Step::Dir { name, .. } | Step::Remove { name } => name.len(),
        Step::File(_) | Step::Set { .. } => 0,
    }
}

/// Sends a batch until it is known how far it came.
async fn send(shared: &Arc<Shared>, batch: Batch) {
    let mut sent = None;
    if !batch.guarded {
        sent = send_together(shared, &batch).await;
    }
    let mut sent = match sent {
        Some(sent) => sent,
        None => one_by_one(shared, &batch).await,
    };
    let kept = match (batch.changes.get(sent.done.len()), batch.steps.get(sent.done.len()), sent.failed) {
        (Some(change), Some(step), Some(e)) => {
            let made =
                sent.done.iter().zip(&batch.changes).filter(|(_, earlier)| earlier.node == change.node);
            let made = made.filter_map(|(done, _)| done.handle()).next_back().cloned();
            let ours = made.or_else(|| shared.tree().get(change.node).and_then(|n| n.handle.clone()));
            let lost = Lost { who: &batch.who, dir: batch.dir, handle: &batch.handle, change, step, ours };
            conflict::keep(shared, lost, e).await
        }
        _ => None,
    };
    let kept = kept.map(|(name, done)| {
        sent.failed = None;
        sent.done.push(done);
        (sent.done.len() - 1, name)
    });
    take_reply(shared, batch, sent, kept).await;
}

/// `None`: the outcome is not known, or the delegation is lost: they are looked at one by one.
async fn send_together(shared: &Arc<Shared>, batch: &Batch) -> Option<Sent> {
    let lanes = &shared.lanes;
    loop {
        let session = shared.remote.session();
        if session.standing().silence > session.lease() / 2 {
            // The server may have given the delegations up meanwhile. Whatever it answers says so.
            let _ = shared.remote.ask(&batch.who, Vec::new()).await;
        }
        check(shared).await;
        if !shared.tree().is_own(batch.dir) {
            return None;
        }
        let number = lanes.session.load(Ordering::Acquire);
        match shared.remote.batch(&batch.who, &batch.handle, &batch.steps, number).await {
            Ok(sent) => return Some(sent),
            // Once more with the delegations tested in the new session.
            Err(Fault::Op(OpNum::SEQUENCE, NfsStat::NFS4ERR_BADSESSION)) => sleep(PAUSE_MIN).await,
            Err(Fault::Op(OpNum::PUTFH, e)) if is_busy(e) => sleep(HOLD_LOOKED_EACH).await,
            Err(Fault::Op(OpNum::PUTFH, e)) => {
                let failed = Some(Fault::Op(OpNum::PUTFH, e));
                return Some(Sent { done: Vec::new(), failed, dir: None, room: None });
            }
            Err(e) => {
                tracing::debug!("changes are looked at one by one: {e:?}");
                return None;
            }
        }
    }
}

/// Handles of what was made just now, which the tree does not have yet.
type New = HashMap<Ino, FileHandle>;

/// Sends changes one by one, each until its outcome is known. They may have been executed already.
async fn one_by_one(shared: &Arc<Shared>, batch: &Batch) -> Sent {
    let mut sent = Sent { done: Vec::new(), failed: None, dir: None, room: None };
    // A session keeps its number until something finds it dead: the delegations are tested in the one in force.
    let sure = !batch.guarded && shared.remote.ask(&batch.who, Vec::new()).await.is_ok();
    if sure {
        check(shared).await;
    }
    let mut new = New::new();
    for (step, change) in batch.steps.iter().zip(&batch.changes) {
        let owned = sure && is_surely_own(shared, batch.dir) || bug(Bug::GuardLost);
        match one(shared, batch, (step, change), owned, &new).await {
            Ok(mut done) => {
                // What the server has executed in part is finished before the file gets another name, or is removed. The changes behind it
                // may have been executed as well: they stay in doubt, and so are not left to another batch.
                if let StepDone::File(made) = &mut done {
                    shared.remote.complete(&batch.who, made).await;
                }
                new.extend(done.handle().map(|handle| (change.node, handle.clone())));
                sent.done.push(done);
            }
            Err(e) => {
                sent.failed = Some(e);
                break;
            }
        }
    }
    sent
}

/// Whether a directory is this mount's own in the session in force.
fn is_surely_own(shared: &Shared, dir: Ino) -> bool {
    is_tested(shared) && shared.tree().is_own(dir)
}

async fn one(
    shared: &Arc<Shared>,
    batch: &Batch,
    (step, change): (&Step, &Change<Caller>),
    owned: bool,
    new: &New,
) -> Result<StepDone, Fault> {
    let (remote, who, dir) = (&shared.remote, &batch.who, &batch.handle);
    let doubt = match (owned || bug(Bug::AdoptsAnything), batch.guarded) {
        (true, _) => Doubt::OursIfThere,
        // It was never sent.
        (false, true) => Doubt::None,
        (false, false) => Doubt::Maybe,
    };
    let known = |ino: Ino| {
        let made = new.get(&ino).cloned();
        made.or_else(|| shared.tree().get(ino).and_then(|n| n.handle.clone()))
    };
    let ours = known(change.node);
    match step {
        Step::File(file) => Ok(StepDone::File(Box::new(remote.create(who, dir, file, doubt).await?))),
        Step::Dir { name, mode, delegate } => {
            let kind = (CreateType::Dir, Some(*mode));
            let made = remote.make(who, dir, name, kind, (doubt, *delegate)).await?;
            let (handle, attrs) = made.object.ok_or(Fault::Failed(Errno::IO))?;
            let delegation = made.delegation.unwrap_or(Delegation::None);
            Ok(StepDone::Object { handle, attrs: Some(attrs), delegation, unset: None })
        }
        Step::Link { name, text, set } => {
            let kind = (CreateType::Lnk(text.clone()), None);
            let made = remote.make(who, dir, name, kind, (doubt, false)).await?;
            let (handle, mut attrs) = made.object.ok_or(Fault::Failed(Errno::IO))?;
            let mut unset = None;
            if !set.is_empty() {
                match remote.set_attrs(who, &handle, set).await {
                    Ok(after) => attrs = after,
                    Err(e) => unset = Some(e),
                }
            }
            Ok(StepDone::Object { handle, attrs: Some(attrs), delegation: Delegation::None, unset })
        }
        Step::Remove { name } => {
            let found = named(shared, batch, name).await?;
            match replay::removal(owned, ours.as_ref(), found.as_ref()) {
                Replay::Send => remote.remove(who, dir, name, true).await.map(|_| StepDone::Name),
                Replay::Done => Ok(StepDone::Name),
                Replay::Stale => Err(Fault::Failed(Errno::STALE)),
            }
        }
        Step::Rename { from, to } => {
            let replaced = change.what.replaces().map(known);
            let over = replaced.as_ref().map(|handle| handle.as_ref());
            let (at_from, at_to) = (named(shared, batch, from).await?, named(shared, batch, to).await?);
            match replay::rename(owned, ours.as_ref(), over, (at_from.as_ref(), at_to.as_ref())) {
                Replay::Send => {
                    remote.rename(who, (dir, from), (dir, to), ours.as_ref(), true).await?;
                    Ok(StepDone::Name)
                }
                Replay::Done => Ok(StepDone::Name),
                Replay::Stale => Err(Fault::Failed(Errno::STALE)),
            }
        }
        Step::Set { handle, set } => Ok(StepDone::Set(Some(remote.set_attrs(who, handle, set).await?))),
    }
}

/// What the server has under a name.
async fn named(shared: &Shared, batch: &Batch, name: &Bytes) -> Result<Option<FileHandle>, Fault> {
    let found = shared.remote.look_up(&batch.who, &batch.handle, name, Also::Nothing).await?.found;
    Ok(found.map(|(handle, _)| handle))
}

/// Takes what has become of a batch.
async fn take_reply(shared: &Arc<Shared>, batch: Batch, sent: Sent, kept: Option<(usize, Bytes)>) {
    let Batch { dir, who, changes, files, asked, taken, .. } = batch;
    let (count, now) = (sent.done.len(), shared.now());
    let busy = sent.failed.is_some_and(|e| e.status().is_some_and(is_busy));
    let failed = sent.failed.filter(|_| !busy);
    let mut unfinished = Vec::new();
    {
        let mut tree = shared.tree();
        let mut files = files.into_iter();
        for (at, ((change, done), file)) in changes.iter().zip(sent.done).zip(files.by_ref()).enumerate() {
            if let Some((_, name)) = kept.as_ref().filter(|(of, _)| *of == at) {
                conflict::note(shared, &mut tree, change, name);
            }
            // It stays until all is noted.
            tree.pin(change.node);
            let alone = tree.is_alone_since(change.node, taken);
            tree.pay(change.node, now);
            let before = unfinished.len();
            done_one(shared, &mut tree, (change, &who, alone), done, file, &mut unfinished);
            if unfinished.len() > before {
                // Until the data is written (`finished`).
                tree.keep(dir);
            }
            change.what.replaces().into_iter().for_each(|ino| tree.unpin(ino));
            tree.unpin(change.node);
            tree.pay(change.dir, now);
        }
        // What was not executed waits again.
        for file in files.flatten() {
            let mut state = file.open.state.lock();
            for (number, at, data) in file.pieces {
                state.content.failed(number);
                if !bug(Bug::DataDropped) {
                    state.content.again(at, &data);
                }
            }
            if let Some(held) = &mut state.held {
                held.sent = false;
            }
            shared.charge(&mut state);
        }
        // Before anybody finds that the lane has come so far.
        shared.lanes.unfinished().extend(unfinished.iter().map(|(ino, _)| (*ino, dir)));
        tree.changed(dir, sent.dir, now);
        let over = count + usize::from(failed.is_some());
        // First: what leaves the one sum is in the other.
        shared.space.lock().spend(Needs::changes(over));
        shared.lanes.pending().settle(dir, over);
        if let Some(has) = sent.room
            && tree.stateid(dir).is_some()
        {
            shared.space.lock().told(who.uid, asked, has, now);
        }
        if let (Some(e), Some(change)) = (failed, changes.get(count)) {
            fail(shared, &mut tree, change, e.errno());
        }
    }
    shared.lanes.changed.notify_waiters();
    for (ino, open) in unfinished {
        let (shared, who) = (shared.clone(), who.clone());
        tasks::spawn(async move {
            flush::send(&shared, ino, &open, &who, Until::Stable).await;
            finished(&shared, dir, ino, &open);
        });
    }
    if busy {
        sleep(HOLD_LOOKED_EACH).await;
    }
}

/// All of a file's data is on the server, or lost.
fn finished(shared: &Arc<Shared>, dir: Ino, ino: Ino, open: &Open) {
    let lost = open.state.lock().lost;
    if let Some(e) = lost {
        let mut tree = shared.tree();
        changes::failed(shared, &mut tree, dir, e);
        // What it was to replace stays.
        let gone = shared.lanes.pending().drop_renames(dir, ino);
        if gone.is_empty() {
            shared.lanes.lose(ino, e);
        }
        gone.iter().for_each(|change| fail(shared, &mut tree, change, e));
    }
    shared.lanes.unfinished().remove(&ino);
    shared.tree().unkeep(dir);
    close_unused(shared, ino);
    shared.lanes.changed.notify_waiters();
    shared.lanes.work.notify_one();
}

/// A change was executed.
fn done_one(
    shared: &Arc<Shared>,
    tree: &mut Tree<Open>,
    (change, who, alone): (&Change<Caller>, &Caller, bool),
    done: StepDone,
    file: Option<FileSent>,
    unfinished: &mut Vec<(Ino, Arc<Open>)>,
) {
    let now = shared.now();
    let ino = change.node;
    match done {
        StepDone::File(made) => {
            let change = made.attrs.as_ref().map(|a| a.change);
            tree.made(ino, made.handle, made.attrs, now);
            if let Some(node) = tree.get_mut(ino) {
                // All of it is what the kernel's pages hold, and nobody else has touched it.
                node.pages = change;
            }
            let Some(FileSent { open, pieces, written }) = file else { return };
            let mut state = open.state.lock();
            pieces.iter().for_each(|(number, _, _)| state.content.written(*number, None));
            made.unwritten.iter().for_each(|(at, data)| state.content.again(*at, data));
            state.held = None;
            // Before data that was written meanwhile: it may lie behind this size.
            state.left = (!made.unset.is_empty()).then_some((made.unset, written));
            shared.charge(&mut state);
            let (clean, closed) = (state.is_finished(), state.opens == 0);
            drop(state);
            if clean {
                shared.is_clean(ino);
                if closed && let Some(node) = tree.get_mut(ino) {
                    node.file = None;
                }
            } else {
                // Also what was written meanwhile comes before later names, and is below its directory.
                unfinished.push((ino, open));
            }
        }
        StepDone::Object { handle, attrs, delegation, unset } => {
            let is_dir = matches!(change.what, What::Dir { .. });
            tree.made(ino, handle, attrs, now);
            if is_dir {
                given(shared, tree, ino, delegation, who);
            }
            if let Some(e) = unset {
                let path = tree.path(ino);
                shared.failed(&path, &format!("attributes could not be set: {}", e.errno()));
                changes::failed(shared, tree, change.dir, e.errno());
            }
        }
        StepDone::Name => {
            let gone = matches!(change.what, What::Remove { is_dir: true, .. });
            if gone {
                // Its delegation went with it.
                tree.disown(ino);
            }
            // Its change time is the server's, and its other names have one less beside them.
            tree.changed(ino, None, now);
        }
        StepDone::Set(attrs) => {
            if let (Some(node), Some(attrs)) = (tree.get_mut(ino), &attrs) {
                let same = node.pages == Some(node.attrs.change);
                node.pages = same.then_some(attrs.change);
            }
            tree.changed_beside_data(alone, ino, attrs, now);
        }
    }
}

/// A change has failed for good.
fn fail(shared: &Shared, tree: &mut Tree<Open>, change: &Change<Caller>, e: Errno) {
    let dir = tree.path(change.dir);
    let path = |name: &Bytes| match dir.is_empty() {
        true => String::from_utf8_lossy(name).into_owned(),
        false => format!("{dir}/{}", String::from_utf8_lossy(name)),
    };
    let unknown: Vec<&Bytes> = match &change.what {
        What::File { name } | What::Dir { name, .. } | What::Link { name, .. } => {
            shared.failed(&path(name), &format!("it could not be made: {e}"));
            vec![name]
        }
        What::Remove { name, .. } => {
            shared.failed(&path(name), &format!("it could not be removed: {e}"));
            vec![name]
        }
        What::Rename { from, to, .. } => {
            let to_path = path(to);
            shared.failed(&path(from), &format!("it could not be renamed to {to_path}: {e}"));
            vec![from, to]
        }
        What::Set(_) => {
            let path = tree.path(change.node);
            shared.failed(&path, &format!("attributes could not be set: {e}"));
            Vec::new()
        }
    };
    changes::failed(shared, tree, change.dir, e);
    shared.lanes.pending().damage(change.dir);
    for name in unknown {
        // What programs have done with the name since is behind this.
        let ours = tree.entry(change.dir, name);
        if !matches!(ours, Entry::Node(ino) if ino != change.node) {
            tree.unknown(change.dir, name);
        }
    }
    let open = tree.get(change.node).and_then(|n| n.file.clone());
    if let (What::Set(_), Some(open)) = (&change.what, open) {
        open.state.lock().errors.add(e);
    }
    if let What::Dir { .. } = change.what
        && !bug(Bug::AbandonedKept)
    {
        abandon(shared, tree, change.node, e);
    }
    tree.pin(change.node);
    if change.what.makes() {
        // There will never be a handle to set them of.
        let gone = shared.lanes.pending().drop_sets(change.dir, change.node);
        gone.iter().for_each(|change| forget(shared, tree, change, Some(e)));
    }
    forget(shared, tree, change, Some(e));
    tree.changed(change.node, None, shared.now());
    tree.unpin(change.node);
}

/// A directory could not be made: what is in it is lost.
fn abandon(shared: &Shared, tree: &mut Tree<Open>, dir: Ino, e: Errno) {
    let gone = shared.lanes.pending().abandon(dir);
    let mut dirs = HashSet::from([dir]);
    for change in &gone {
        if let What::File { name } | What::Dir { name, .. } | What::Link { name, .. } = &change.what {
            let path = format!("{}/{}", tree.path(change.dir), String::from_utf8_lossy(name));
            shared.failed(&path, &format!("it could not be made: {e}"));
        }
        if let What::Dir { .. } = &change.what {
            dirs.insert(change.node);
        }
    }
    gone.iter().for_each(|change| forget(shared, tree, change, Some(e)));
    for dir in dirs {
        tree.disown(dir);
        // A program may sync it by a descriptor of its own.
        changes::failed(shared, tree, dir, e);
    }
}
