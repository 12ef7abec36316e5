//! What one request changes, over all volumes that it touches.
//!
//! At most one of the transactions is joined to its log at any time: before another volume's is handed out, the others
//! are split. Two requests that held one log's batch open while they wait for the other's would wait for each other for
//! ever. So what a request does to several volumes is not one atom on disk: a power cut may keep some of it and lose the rest.
//! Its reply waits for all of it, and is written down only then ([`Txs::waits_elsewhere`]): a retry after such a cut is
//! executed anew, and told what is so.

use super::Export;
use crate::state_lock::not_under_the_state;
use landfast_volume::faults::{self, Bug};
use landfast_volume::{Error, Node, Receipt, Tx};
use std::sync::Arc;

/// The transactions of one request.
#[derive(Debug, Default)]
pub(crate) struct Txs {
    /// In the order in which they were first asked for; the one asked for last may be joined.
    all: Vec<(Arc<Export>, Tx)>,
    last: Option<usize>,
}

impl Txs {
    /// Where the transaction of this export's volume is.
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

    /// The transaction of this export's volume.
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

    /// Whether anything was changed.
    pub(crate) fn modified(&self) -> bool {
        self.all.iter().any(|(_, tx)| tx.modified())
    }

    /// Whether anything was changed that has to outlast a crash, as the reply has to then: more than unstable data.
    pub(crate) fn lasting(&self) -> bool {
        self.all.iter().any(|(_, tx)| tx.lasting())
    }

    /// The export of the last such change: its log takes the reply.
    pub(crate) fn home(&self) -> Option<&Arc<Export>> {
        let last = self.last.and_then(|at| self.all.get(at)).filter(|(_, tx)| tx.lasting());
        last.or_else(|| self.all.iter().rev().find(|(_, tx)| tx.lasting())).map(|(e, _)| e)
    }

    /// Whether the request did something, notes included, that is stable with another log than that of `home`, or its answer
    /// rests on what others have done there. Then the log of `home` may not have its reply before that is stable: it is kept
    /// with [`crate::path::Pending::later`].
    pub(crate) fn waits_elsewhere(&mut self, home: &Export) -> bool {
        let elsewhere =
            self.all.iter_mut().filter(|(e, _)| e.id() != home.id()).any(|(e, tx)| {
                e.volume.keeps_notes() && (tx.lasting() || tx.waits()) || tx.rests_on_pending()
            });
        elsewhere && !faults::bug(Bug::ReplyKeptEarly)
    }

    /// Ends all of them.
    pub(crate) fn finish(self) -> Receipts {
        Receipts(self.all.into_iter().map(|(_, tx)| tx.finish()).collect())
    }
}

/// Proof of stability to wait for.
#[derive(Debug)]
#[must_use]
pub(crate) struct Receipts(Vec<Receipt>);

impl Receipts {
    /// Whether there is anything to wait for.
    pub(crate) fn waits(&self) -> bool {
        self.0.iter().any(Receipt::waits)
    }

    /// Whether an answer has to wait, or has to become one that says that something failed ([`Receipt::is_refused`]). One that
    /// says so itself (`says_failed`) stays as it is.
    pub(crate) fn settle(&self, says_failed: bool) -> bool {
        self.waits() || !says_failed && self.0.iter().any(Receipt::is_refused)
    }

    /// See [`Receipt::request`].
    pub(crate) fn request(&self) {
        self.0.iter().for_each(Receipt::request);
    }

    /// Waits until everything is stable in all logs.
    ///
    /// # Errors
    /// When something of it may not be; all were waited for.
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
