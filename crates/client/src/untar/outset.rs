//! What goes over the wire between the making of a session and the answer to its first request: files behind their directories
//! ([`super::behind`]).

use landfast_nfs::v4::CompoundRes;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::attrs::AttrRules;
use super::behind::Behind;
use super::engine::stops;
use super::pack::Batch;
use super::source::{Event, Reading};
use crate::session::{Answer, Session, SessionError};

/// A compound that is under way.
pub(super) struct Sent {
    pub(super) batch: Batch,
    pub(super) reply: JoinHandle<Result<CompoundRes, SessionError>>,
}

/// Sends files until the answer comes, and waits for it. What was read meanwhile stands behind `events`.
pub(super) async fn send(
    session: &Session,
    behind: &mut Behind,
    rules: &mut AttrRules,
    (reading, events): (&mut Reading, &mut Vec<Event>),
    window: usize,
    answer: &mut Answer,
    stop: &mut Option<watch::Receiver<bool>>,
) -> (Vec<Sent>, Option<CompoundRes>) {
    let mut sent: Vec<Sent> = Vec::new();
    let mut reads = true;
    loop {
        reads = reads && reading.take_ready(events);
        let batch = if sent.len() < window { behind.next(events, rules) } else { None };
        let goes_on = batch.is_some();
        if let Some(batch) = batch {
            let (session, body, ops, cached) =
                (session.clone(), batch.body.clone(), batch.ops, batch.cachethis);
            let reply = tokio::spawn(async move { session.compound_encoded(body, ops, cached).await });
            sent.push(Sent { batch, reply });
        }
        tokio::select! {
            biased;
            results = answer.come() => return (sent, results),
            () = stops(stop) => break,
            // No more is sent in vain than the network takes while the answer is on its way.
            () = session.flushed(), if goes_on => {}
            event = reading.events.recv(), if reads && !goes_on => match event {
                Some(event) => events.push(event),
                None => reads = false,
            },
        }
    }
    let results = answer.come().await;
    (sent, results)
}
