//! Room at the server for what programs are told is done. The sums are those of [`crate::core::space`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shared::Shared;
use super::{changes, flush};
use crate::core::Ino;
use crate::core::space::Needs;
use crate::remote::Caller;

/// Something that is admitted: it counts until this is dropped, when it is among what waits, or was sent.
pub(super) struct Admitted<'a>(&'a Shared, Needs);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.space.lock().is_in(self.1);
    }
}

/// What waits.
fn waits(shared: &Shared) -> Needs {
    Needs::changes(shared.lanes.pending().len()).plus(Needs::data(shared.dirty_bytes()))
}

/// Admits something of a user's, if there is room for it.
pub(super) fn admit<'a>(shared: &'a Shared, who: &Caller, needs: Needs) -> Option<Admitted<'a>> {
    if shared.lanes.overdue.load(Ordering::Acquire) {
        return None;
    }
    let waits = waits(shared);
    let time = (shared.now(), shared.remote.session().lease());
    let admitted = shared.space.lock().admit(who.uid, needs, waits, time);
    admitted.then_some(Admitted(shared, needs))
}

/// Has something count that is sent whether there is room or not.
pub(super) fn pass(shared: &Shared, needs: Needs) -> Admitted<'_> {
    shared.space.lock().pass(needs);
    Admitted(shared, needs)
}

/// The same as [`admit`] of data, which only needs it where directories are this mount's own.
pub(super) fn admit_data<'a>(shared: &'a Shared, who: &Caller, len: usize) -> Option<Option<Admitted<'a>>> {
    if !shared.space.lock().has_begun() {
        return Some(None);
    }
    admit(shared, who, Needs::data(len as u64)).map(Some)
}

/// A directory that the server can be asked of.
fn own_directory(shared: &Shared) -> Option<Ino> {
    let last = shared.lanes.asked_of.load(Ordering::Relaxed);
    let tree = shared.tree();
    if tree.stateid(last).is_some() {
        return Some(last);
    }
    let found = tree.delegations().first().map(|(ino, ..)| *ino)?;
    shared.lanes.asked_of.store(found, Ordering::Relaxed);
    Some(found)
}

/// Asks the server. Returns whether there was a directory to ask of.
async fn ask(shared: &Arc<Shared>, who: &Caller) -> bool {
    let Some(dir) = own_directory(shared) else { return false };
    let Ok(handle) = shared.server_handle(dir) else { return false };
    let asked = shared.space.lock().ask(shared.now());
    let has = shared.remote.ask_for_room(who, &handle).await;
    // What was returned meanwhile may have been returned before.
    let own = shared.tree().stateid(dir).is_some();
    let has = has.ok().flatten().filter(|_| own);
    shared.space.lock().told(who.uid, asked, has, shared.now());
    true
}

/// What comes of looking for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Room,
    /// There is none, and nothing waits any more.
    None,
    /// No directory is this mount's own.
    NoDirectory,
}

/// Looks for room: asks the server, and then again when all that waits is sent.
pub(super) async fn look(shared: &Arc<Shared>, who: &Caller, needs: Needs) -> Found {
    for _ in 0..2 {
        if admit(shared, who, needs).is_some() {
            return Found::Room;
        }
        // While the server is away this waits.
        if !ask(shared, who).await {
            return Found::NoDirectory;
        }
        if admit(shared, who, needs).is_some() {
            return Found::Room;
        }
        if !drain(shared).await {
            break;
        }
    }
    Found::None
}

/// Lets something in that the server does at once (fallocate, a copy): what waits keeps its room beside it. If there is not enough for both,
/// all that waits is sent first, and then the server's answer is the program's. It counts until it is dropped.
pub(super) async fn admit_at_once<'a>(
    shared: &'a Arc<Shared>,
    who: &Caller,
    needs: Needs,
) -> Option<Admitted<'a>> {
    if needs == Needs::default() || !shared.space.lock().has_begun() {
        return None;
    }
    let mut admitted = admit(shared, who, needs);
    if admitted.is_none() && ask(shared, who).await {
        admitted = admit(shared, who, needs);
    }
    if admitted.is_none() {
        // Before: nothing is let in meanwhile that would wait beside it.
        admitted = Some(pass(shared, needs));
        drain(shared).await;
    }
    admitted
}

/// Sends all that waits, so that what has no room takes none of theirs. Returns whether there was something.
async fn drain(shared: &Arc<Shared>) -> bool {
    let some = waits(shared) != Needs::default();
    if some {
        changes::settle_all(shared).await;
        flush::send_all(shared).await;
    }
    some
}

/// Keeps what the server keeps for users alive while something waits.
pub(super) async fn renew(shared: &Arc<Shared>) {
    if waits(shared) == Needs::default() {
        return;
    }
    let users = shared.space.lock().aging(shared.now(), shared.remote.session().lease());
    for uid in users {
        let own = shared.remote.own().clone();
        let who = Caller { uid, gid: own.gid, groups: Arc::default() };
        ask(shared, &who).await;
    }
}
