//! CB_GETATTR (RFC 8881 sections 10.4.3 and 20.1): the shell around [`crate::state::looking`].
//!
//! What follows from an answer is done in the file before anybody is told, and whoever is told waits until that is durable: so a listing waits once.
//! Whatever else happens, the delegation is recalled.

use super::{Done, Error, referring};
use crate::limits;
use crate::pool::Pool;
use crate::shared::{Shared, now};
use crate::state::asked::{Answer, Told, wanted};
use crate::state::looking::Question;
use landfast_nfs::v4::callback::{CbGetattrArgs, CbOp};
use landfast_nfs::v4::{FileHandle, NfsStat};
use landfast_rpc::share_of;
use landfast_volume::{Cred, Node, SetAttrs, Volume};
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
    let is = volume.getattr(node).ok()?;
    let mut given = question.given;
    // The holder has written meanwhile: its times may be older than that.
    given.by_owner &= is.change == sent_at;
    let (set, ahead) = said.follows(given, &is, now());
    if set.is_empty() {
        return Some(Told::of(&is));
    }
    let addr = holder_of(sh, question);
    // The change attribute grows by at least one each time, and mostly by much more: it is made of the time.
    for _ in 0..2 {
        apply(sh, pool, addr, volume, node, set).await?;
        let after = volume.getattr(node).ok()?;
        match ahead {
            false => return Some(Told::of(&after)),
            true => {
                if let Some(told) = Told::ahead(&said, is.change, &after) {
                    return Some(told);
                }
            }
        }
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

/// Sets times in the file. The delegation gives the right to it, as it does to whoever writes.
async fn apply(
    sh: &Arc<Shared>,
    pool: &Pool,
    addr: IpAddr,
    volume: &Volume,
    node: &Node,
    set: SetAttrs,
) -> Option<()> {
    // Ignore the result: a volume that has failed reports it again below.
    let _ = volume.admit().await;
    let (done, settled) = oneshot::channel();
    let (of, file, held) = (volume.clone(), node.clone(), sh.clone());
    pool.run_for(addr, move || {
        let mut tx = of.tx();
        let settled = of.setattr(&mut tx, &Cred::root(), &file, None, set).map(|_| tx.finish());
        drop((of, file, held));
        // The receiver waits until the job has run or was dropped.
        let _ = done.send(settled);
    });
    let receipt = settled.await.ok()?.ok()?;
    // A log is flushed for those who are told: their replies rest on it.
    if volume.keeps_notes() { Some(()) } else { receipt.wait().await.ok() }
}
