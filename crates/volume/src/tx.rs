//! Transactions: what one request changes, and the receipt that it is stable.

use crate::error::Error;

/// What one request changes. Joins the log lazily, at its first modifying operation; everything between two
/// [`Tx::split`]s is atomic on disk. While a transaction is joined the log cannot be sealed, so finish it soon: never
/// wait for a client, a lock of unknown duration or a disk without `split`.
#[derive(Debug)]
pub struct Tx {}

impl Tx {
    /// Adds an opaque record of the server (a reply, a session, a client), atomic with the operations since the last
    /// split. Does nothing where there is no log ([`crate::Volume::keeps_notes`]).
    pub fn note(&mut self, _bytes: Vec<u8>) {
        todo!()
    }

    /// True when an operation of this transaction changed something.
    pub fn modified(&self) -> bool {
        todo!()
    }

    /// Ends the transaction. What it did is stable when the receipt's wait returns `Ok`.
    pub fn finish(self) -> Receipt {
        todo!()
    }

    /// Ends the part so far, before something that may block; the receipt of [`Tx::finish`] covers it.
    pub fn split(&mut self) {
        todo!()
    }
}

/// Proof of stability to wait for.
#[derive(Debug)]
pub struct Receipt {}

impl Receipt {
    /// Waits until everything of the transaction is stable. [`Error::Failed`] when it may not be.
    pub async fn wait(self) -> Result<(), Error> {
        todo!()
    }

    /// As [`Receipt::wait`], blocking the thread.
    pub fn wait_blocking(self) -> Result<(), Error> {
        todo!()
    }
}
