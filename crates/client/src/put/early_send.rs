//! Sends files between the session's first request and its reply ([`super::early_files`]).

use landfast_nfs::v4::CompoundRes;
use tokio::sync::watch;

use super::attrs::AttrRules;
use super::early_files::EarlyFiles;
use super::early_results::InFlight;
use super::source::{Event, Reading};
use super::stop::stopped;
use crate::session::{FirstReply, Session};

/// Sends files until the reply to the first request comes, and waits for it. What is read meanwhile is appended to `events`.
pub(super) async fn send(
    session: &Session,
    files: &mut EarlyFiles,
    rules: &mut AttrRules,
    (reading, events): (&mut Reading, &mut Vec<Event>),
    window: usize,
    reply: &mut FirstReply,
    stop: &mut Option<watch::Receiver<bool>>,
) -> (Vec<InFlight>, Option<CompoundRes>) {
    let mut sent: Vec<InFlight> = Vec::new();
    let mut reads = true;
    loop {
        reads = reads && reading.take_ready(events);
        let batch = if sent.len() < window { files.next(events, rules) } else { None };
        let goes_on = batch.is_some();
        if let Some(batch) = batch {
            let (session, body, ops, cached) =
                (session.clone(), batch.body.clone(), batch.ops, batch.cachethis);
            let reply = tokio::spawn(async move { session.compound_encoded(body, ops, cached).await });
            sent.push(InFlight { batch, reply });
        }
        tokio::select! {
            biased;
            results = reply.wait() => return (sent, results),
            () = stopped(stop) => break,
            // No more is sent in vain than the network takes while the answer is on its way.
            () = session.flushed(), if goes_on => {}
            event = reading.events.recv(), if reads && !goes_on => match event {
                Some(event) => events.push(event),
                None => reads = false,
            },
        }
    }
    let results = reply.wait().await;
    (sent, results)
}
