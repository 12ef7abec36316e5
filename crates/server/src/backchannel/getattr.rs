//! CB_GETATTR (RFC 8881 sections 10.4.3 and 20.1): the shell around [`crate::state::looking`].
//!
//! What follows from an answer is done in the file before anybody is told, and whoever is told waits until that is durable: so a listing waits once.
//! Whatever else happens, the delegation is recalled.

use super::{Done, Error, referring};
use crate::limits;
use crate::pool::Pool;
use crate::shared::{Shared, now};
use crate::state::asked::{Answer, Told, wanted, was_given_a_time};
use crate::state::looking::Question;
use landfast_nfs::v4::callback::{CbGetattrArgs, CbOp};
use landfast_nfs::v4::{FileHandle, NfsStat};
use landfast_rpc::share_of;
use landfast_volume::faults::point;
use landfast_volume::{Attrs, Cred, Guard, Node, SetAttrs, Timestamp, Volume};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Asks the holder of a delegation, and tells those who wait.
pub(super) async fn ask(sh: &Arc<Shared>, pool: &Pool, question: Question) {
    let told = tell(sh, pool, &question).await;
    let mut st = sh.state();
    match told {
        Some(told) => st.files.is_told(&question, told),
        None => st.files.is_not_told(sh.now(), &question),
    }
}

async fn tell(sh: &Arc<Shared>, pool: &Pool, question: &Question) -> Option<Told> {
    let exports = sh.exports();
    let file = exports.object(&question.file).ok()?;
    let (volume, node) = (&file.export.volume, &file.node);
    let sent_at = volume.getattr(node).ok()?.change;
    let said = say(sh, question).await?;
    let addr = holder_of(sh, question);
    // Set already, but the change attribute has not grown far enough: it grows by at least one each time, and mostly by much more, as it is made of the time.
    let mut first = None;
    for _ in 0..limits::GETATTR_SETS {
        let is = volume.getattr(node).ok()?;
        // Whoever has set a time since must keep it, and who has no delegation any more answers for nothing.
        let asked_at = first.map_or(sent_at, |(_, set_at)| set_at);
        if was_given_a_time(asked_at, &is) || !sh.state().files.is_delegated(question.id) {
            return None;
        }
        let mut given = question.given;
        // The holder has written meanwhile: its times may be older than that.
        given.by_owner &= is.change == asked_at;
        let (set, ahead) = said.follows(given, &is, now());
        if set.is_empty() {
            return Some(Told::of(&is));
        }
        let Some(after) = apply(sh, pool, addr, volume, node, (set, is.change, is.ctime)).await? else {
            continue;
        };
        if !ahead {
            return Some(Told::of(&after));
        }
        let (before, _) = *first.get_or_insert((is.change, after.change));
        if let Some(told) = Told::ahead(&said, before, &after) {
            return Some(told);
        }
        first = Some((before, after.change));
    }
    None
}

/// What the holder says; `None` if it says nothing that can be used.
async fn say(sh: &Shared, question: &Question) -> Option<Answer> {
    let (client, by) = (question.client, question.given_to);
    let can_be_called = {
        let st = sh.state();
        let sessions = st.sessions.of_client(client);
        sessions.iter().any(|id| st.sessions.get(id).is_some_and(|s| s.can_call_back()))
    };
    if !can_be_called {
        return None;
    }
    let fh = FileHandle(question.fh.clone());
    let op = CbOp::Getattr(CbGetattrArgs { fh, wanted: wanted(question.times) });
    let referring = referring(sh, &by);
    let call =
        super::ask(sh, client, by.session, by.minor, referring.as_slice(), op, limits::GETATTR_PATIENCE);
    let answer = timeout(limits::RECALL_WAIT, call).await.unwrap_or(Err(Error::Unreachable));
    sh.state().files.answers(client, answer.is_ok());
    match answer {
        Ok(Done { status: NfsStat::NFS4_OK, attrs: Some(attrs) }) => Answer::of(&attrs, question.times),
        _ => None,
    }
}

/// The address whose share of the threads is used.
fn holder_of(sh: &Shared, question: &Question) -> IpAddr {
    let st = sh.state();
    let addr = st.clients.get(question.client).and_then(|client| client.addrs.latest());
    share_of(addr.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
}

/// Sets times in the file, unless its change attribute is another by now: then `Some(None)`. The delegation gives the right to it, as it does to whoever
/// writes. Returns the file as it is then.
async fn apply(
    sh: &Arc<Shared>,
    pool: &Pool,
    addr: IpAddr,
    volume: &Volume,
    node: &Node,
    (set, change, ctime): (SetAttrs, u64, Timestamp),
) -> Option<Option<Attrs>> {
    // Ignore the result: a volume that has failed reports it again below.
    let _ = volume.admit().await;
    let (done, settled) = oneshot::channel();
    let (of, file, held) = (volume.clone(), node.clone(), sh.clone());
    pool.run_for(addr, move || {
        point("cross.times");
        let mut tx = of.tx();
        let guard = Some(Guard::Change(change, ctime));
        let set = of.setattr_guarded(&mut tx, &Cred::root(), &file, None, set, guard);
        let settled = set.map(|set| set.map(|_| tx.finish()));
        drop((of, file, held));
        // The receiver waits until the job has run or was dropped.
        let _ = done.send(settled);
    });
    let Some(receipt) = settled.await.ok()?.ok()? else { return Some(None) };
    // A log is flushed for those who are told: their replies rest on it.
    if !volume.keeps_notes() {
        receipt.wait().await.ok()?;
    }
    volume.getattr(node).ok().map(Some)
}
