//! Recalls of delegations, and revocation (RFC 8881 sections 10.2.1, 10.4.5, 20.2): the shell around [`crate::state::delegations`].
//!
//! | the client's answer to CB_RECALL | then |
//! |---|---|
//! | OK | wait for DELEGRETURN |
//! | DELAY, none, no connection | again after 100 ms, doubling to 1 s |
//! | BADHANDLE, BAD_STATEID | again twice since the reply with the delegation was sent, as it may be on its way; then the client has none |
//! | a lease after the recall | revoke |
//!
//! Clients are asked for delegations of their choice (CB_RECALL_ANY, section 20.6) when [`crate::state`] says so.
//!
//! A revocation is in the log before anybody goes on. Questions to holders, which leave them their delegations: [`super::getattr`].

use super::{Error, getattr, referring};
use crate::limits;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::state::delegations::Recall;
use crate::state::recall_any::RecallAny;
use landfast_nfs::v4::callback::{
    CB_PROC_NULL, CB_VERSION, CbOp, CbRecallAnyArgs, CbRecallArgs, RCA4_TYPE_MASK_DIR_DLG,
    RCA4_TYPE_MASK_RDATA_DLG, RCA4_TYPE_MASK_WDATA_DLG,
};
use landfast_nfs::v4::{Bitmap, FileHandle, NfsStat, SessionId};
use landfast_rpc::conn::Target;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Sends what callbacks delegations need. Never returns.
pub(crate) async fn run(sh: Arc<Shared>, pool: Arc<Pool>) {
    // Each yields what it was about.
    let mut tasks: JoinSet<About> = JoinSet::new();
    let (mut recalls, mut questions) = (UnderWay::default(), UnderWay::default());
    loop {
        let mut due = pin!(sh.callbacks_due());
        due.as_mut().enable();
        for session in sh.state().files.delegations.take_untried() {
            let sh = sh.clone();
            tasks.spawn(async move {
                try_out(&sh, session).await;
                About::Nothing
            });
        }
        while let Some(client) = { sh.state().files.delegations.take_lapsed() } {
            let sh = sh.clone();
            tasks.spawn(async move {
                expel(&sh, client).await;
                About::Nothing
            });
        }
        // Each client once a lease.
        while let Some(what) = { sh.state().files.delegations.take_any() } {
            let sh = sh.clone();
            tasks.spawn(async move {
                any(&sh, what).await;
                About::Nothing
            });
        }
        loop {
            let may = |client| recalls.of(client) < limits::RECALLS_AT_ONCE;
            let Some(recall) = sh.state().files.take_recall(may) else { break };
            recalls.begin(recall.client);
            let sh = sh.clone();
            tasks.spawn(async move {
                let client = recall.client;
                one(&sh, recall).await;
                About::Recall(client)
            });
        }
        loop {
            let may = |client| questions.of(client) < limits::GETATTRS_AT_ONCE;
            let Some(question) = sh.state().files.take_question(may) else { break };
            questions.begin(question.client);
            let (sh, pool) = (sh.clone(), pool.clone());
            tasks.spawn(async move {
                let client = question.client;
                getattr::ask(&sh, &pool, question).await;
                About::Question(client)
            });
        }
        let ended = tokio::select! {
            () = due => continue,
            Some(ended) = tasks.join_next() => ended,
        };
        // A task that panicked says nothing; its client has one place less.
        match ended {
            Ok(About::Recall(client)) => recalls.end(client),
            Ok(About::Question(client)) => questions.end(client),
            Ok(About::Nothing) | Err(_) => {}
        }
    }
}

/// What a task was about: something of this client.
enum About {
    Recall(u64),
    Question(u64),
    Nothing,
}

/// How many tasks are under way, by client.
#[derive(Default)]
struct UnderWay(HashMap<u64, usize>);

impl UnderWay {
    fn of(&self, client: u64) -> usize {
        self.0.get(&client).copied().unwrap_or(0)
    }

    fn begin(&mut self, client: u64) {
        *self.0.entry(client).or_default() += 1;
    }

    fn end(&mut self, client: u64) {
        if let Some(n) = self.0.get_mut(&client) {
            *n -= 1;
            if *n == 0 {
                self.0.remove(&client);
            }
        }
    }
}

/// Calls CB_NULL (RFC 8881 section 20.1). A client that answers can be told of recalls.
async fn try_out(sh: &Shared, session: SessionId) {
    let path = sh.state().sessions.get(&session).and_then(|s| s.back_path());
    let Some((conns, program, cred)) = path else { return };
    let to = Target { prog: program, vers: CB_VERSION, proc: CB_PROC_NULL };
    let patience = Duration::from_millis(limits::CALLBACK_PATIENCE_MS);
    for conn in sh.callback_conns.open_ones(&conns) {
        if conn.call(to, &cred, Vec::new(), patience).await.is_ok() {
            if let Some(mut s) = sh.state().sessions.get_mut(&session) {
                s.back_tried = true;
            }
            return;
        }
    }
}

/// Asks a client for delegations of its choice. Whether it returns any is its own affair; it is asked again a lease later.
async fn any(sh: &Shared, what: RecallAny) {
    let kinds: &[u32] = match (what.files, what.directories) {
        (true, false) => &[RCA4_TYPE_MASK_RDATA_DLG, RCA4_TYPE_MASK_WDATA_DLG],
        (false, _) => &[RCA4_TYPE_MASK_DIR_DLG],
        (true, true) => &[RCA4_TYPE_MASK_RDATA_DLG, RCA4_TYPE_MASK_WDATA_DLG, RCA4_TYPE_MASK_DIR_DLG],
    };
    let args = CbRecallAnyArgs { objects_to_keep: what.keep, types: Bitmap::of(kinds) };
    let op = CbOp::RecallAny(args);
    let answer = super::call(sh, what.client, what.session, what.minor, &[], op).await;
    if answer.is_ok() {
        sh.state().files.answers(what.client, true);
    }
    tracing::debug!(client = what.client, keep = what.keep, "asked for delegations: {answer:?}");
}

/// Recalls one delegation, and sees that it ends.
async fn one(sh: &Shared, recall: Recall) {
    let until = Instant::now() + Duration::from_secs(u64::from(sh.lease_seconds));
    let by = recall.given_to;
    let args = CbRecallArgs { stateid: recall.stateid, truncate: false, fh: FileHandle(recall.fh.clone()) };
    let (mut pause, mut unknown) = (limits::RECALL_PAUSE, 0);
    let mut answered = false;
    while !answered {
        if !sh.state().files.is_delegated(recall.id) {
            return;
        }
        let referring = referring(sh, &by);
        let op = CbOp::Recall(args.clone());
        let call = super::call(sh, recall.client, by.session, by.minor, referring.as_slice(), op);
        let result = timeout_at(until, call).await;
        if let Ok(Ok(_)) = result {
            sh.state().files.answers(recall.client, true);
        }
        match result {
            Ok(Ok(NfsStat::NFS4_OK)) => answered = true,
            Ok(Ok(NfsStat::NFS4ERR_BADHANDLE | NfsStat::NFS4ERR_BAD_STATEID)) => {
                let mut st = sh.state();
                // It cannot know what it was not told yet: the reply may wait for the log.
                unknown += u32::from(!st.sessions.is_under_way(&by.session, by.slot, by.sequence));
                if unknown >= limits::RECALL_UNKNOWN_TRIES {
                    return st.files.delegation_is_unknown(recall.id);
                }
            }
            Ok(Ok(_) | Err(Error::Unreachable | Error::Gone)) => {}
            Err(_) => break,
        }
        if !answered && !ends_within(sh, recall.id, until.min(Instant::now() + pause)).await {
            if Instant::now() >= until {
                break;
            }
            pause = (pause * 2).min(limits::RECALL_PAUSE_MAX);
        }
    }
    if !ends_within(sh, recall.id, until).await {
        revoke(sh, &recall).await;
    }
}

/// Waits for the delegation's end, until then. Returns whether it came.
async fn ends_within(sh: &Shared, id: u64, until: Instant) -> bool {
    loop {
        let mut ended = pin!(sh.delegation_ended().notified());
        ended.as_mut().enable();
        if !sh.state().files.is_delegated(id) {
            return true;
        }
        if timeout_at(until, ended).await.is_err() {
            return !sh.state().files.is_delegated(id);
        }
    }
}

/// Removes a client whose lease is over.
async fn expel(sh: &Shared, client: u64) {
    let notes = sh.state().note_expulsion(client);
    if !sh.write_down(notes).await {
        return sh.state().is_not_expelled(client);
    }
    let notes = sh.state().remove_client(client);
    // The log has said so already; this says it of what has come since.
    sh.write_down(notes).await;
}

async fn revoke(sh: &Shared, recall: &Recall) {
    let mut pause = limits::REVOCATION_PAUSE;
    loop {
        let notes = sh.state().note_revocation(recall.id);
        if sh.write_down(notes).await {
            tracing::warn!(
                "client {:x} did not return a delegation within a lease of its recall: it is revoked",
                recall.client
            );
            break;
        }
        // If no log takes it, nobody goes on: after a restart the client might reclaim what others had changed.
        if ends_within(sh, recall.id, Instant::now() + pause).await {
            break;
        }
        pause = (pause * 2).min(Duration::from_secs(u64::from(sh.lease_seconds)).max(pause));
    }
    let notes = sh.state().revoke(recall.client, recall.id);
    sh.write_down(notes).await;
}
