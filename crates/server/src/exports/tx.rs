//! The changes of one request, over all volumes that it touches.
//!
//! At most one of its transactions is joined to its log at any time: before it gets another volume's, the others are
//! split. Otherwise two requests could each hold one log's batch open and wait for each other for ever. So changes to
//! several volumes are not atomic on disk: a power cut may keep some and lose the rest. The reply waits for all of them
//! and is recorded only then ([`Txs::waits_elsewhere`]). A retry after such a cut is executed anew and gets an answer
//! for the state that it finds.

use super::Export;
use crate::state_lock::not_under_the_state;
use landfast_volume::faults::{self, Bug};
use landfast_volume::{Error, Node, Receipt, Tx};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Txs {
    /// In the order in which they were first requested; only the one requested last may be joined.
    all: Vec<(Arc<Export>, Tx)>,
    last: Option<usize>,
}

impl Txs {
    fn place(&mut self, export: &Arc<Export>) -> usize {
        match self.all.iter().position(|(e, _)| e.id() == export.id()) {
            Some(at) => at,
            None => {
                self.all.push((export.clone(), export.volume.tx()));
                self.all.len() - 1
            }
        }
    }

    /// See [`Tx::rests_on`].
    pub(crate) fn rests_on(&mut self, export: &Arc<Export>, node: &Node) {
        let at = self.place(export);
        self.all[at].1.rests_on(node);
    }

    /// See [`Tx::rests_on_removals`].
    pub(crate) fn rests_on_removals(&mut self, export: &Arc<Export>) {
        let at = self.place(export);
        self.all[at].1.rests_on_removals();
    }

    pub(crate) fn of(&mut self, export: &Arc<Export>) -> &mut Tx {
        not_under_the_state();
        let at = self.place(export);
        for (i, (_, tx)) in self.all.iter_mut().enumerate() {
            if i != at {
                tx.split();
            }
        }
        self.last = Some(at);
        &mut self.all[at].1
    }

    pub(crate) fn modified(&self) -> bool {
        self.all.iter().any(|(_, tx)| tx.modified())
    }

    /// Whether anything but unstable data was changed. Then change and reply must survive a crash.
    pub(crate) fn lasting(&self) -> bool {
        self.all.iter().any(|(_, tx)| tx.lasting())
    }

    /// The export of the last such change: its log takes the reply.
    pub(crate) fn home(&self) -> Option<&Arc<Export>> {
        let last = self.last.and_then(|at| self.all.get(at)).filter(|(_, tx)| tx.lasting());
        last.or_else(|| self.all.iter().rev().find(|(_, tx)| tx.lasting())).map(|(e, _)| e)
    }

    /// Whether the request depends on a log other than that of `home`: it did something there, notes included, or its
    /// answer rests on what others did there. Then the log of `home` may have its reply only once that is durable
    /// ([`crate::path::Pending::later`]).
    pub(crate) fn waits_elsewhere(&mut self, home: &Export) -> bool {
        let elsewhere =
            self.all.iter_mut().filter(|(e, _)| e.id() != home.id()).any(|(e, tx)| {
                e.volume.keeps_notes() && (tx.lasting() || tx.waits()) || tx.rests_on_pending()
            });
        elsewhere && !faults::bug(Bug::ReplyKeptEarly)
    }

    pub(crate) fn finish(self) -> Receipts {
        Receipts(self.all.into_iter().map(|(_, tx)| tx.finish()).collect())
    }
}

#[derive(Debug)]
#[must_use]
pub(crate) struct Receipts(Vec<Receipt>);

impl Receipts {
    pub(crate) fn waits(&self) -> bool {
        self.0.iter().any(Receipt::waits)
    }

    /// Whether an answer must wait, or must be turned into a failure ([`Receipt::is_refused`]). An answer that already
    /// reports one (`says_failed`) stays.
    pub(crate) fn settle(&self, says_failed: bool) -> bool {
        self.waits() || !says_failed && self.0.iter().any(Receipt::is_refused)
    }

    /// See [`Receipt::request`].
    pub(crate) fn request(&self) {
        self.0.iter().for_each(Receipt::request);
    }

    /// As [`Receipts::wait`], on a thread that nobody else waits for: a single log is flushed on it.
    pub(crate) async fn wait_here(mut self) -> Result<(), Error> {
        match self.0.pop() {
            Some(only) if self.0.is_empty() => only.wait_here().await,
            last => {
                self.0.extend(last);
                self.wait().await
            }
        }
    }

    /// Waits for all logs, even after an error. An error means that something may not be durable.
    pub(crate) async fn wait(self) -> Result<(), Error> {
        if self.0.len() > 1 {
            // The logs flush at the same time.
            self.request();
        }
        let mut result = Ok(());
        for receipt in self.0 {
            result = receipt.wait().await.and(result);
        }
        result
    }
}
