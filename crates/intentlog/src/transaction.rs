//! Transactions.

use std::sync::Arc;

use crate::core::Core;
use crate::error::LogError;
use crate::ticket::Ticket;

/// Records that are durable together or not at all. [`crate::Log::begin`] starts one.
///
/// While it is open no batch can be sealed. So its owner must not wait for a disk, a network, admission, a ticket,
/// or a lock whose holder may be waiting in [`crate::Log::begin`].
pub struct Txn {
    core: Arc<Core>,
    batch: u64,
    left: bool,
}

impl Txn {
    pub(crate) fn begin(core: Arc<Core>) -> Result<Txn, LogError> {
        let batch = core.begin()?;
        Ok(Txn { core, batch, left: false })
    }

    /// Number of the batch that its records are in (see [`Ticket::batch`]).
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Adds a record. The log keeps the records of all transactions in the order of their appends.
    /// After a failure of the log this does nothing; the ticket has the error.
    pub fn append(&mut self, record: &[u8]) {
        self.core.append(&[record]);
    }

    /// Adds one record given in parts, which saves the caller a copy.
    pub fn append_parts(&mut self, parts: &[&[u8]]) {
        self.core.append(parts);
    }

    /// Ends the transaction. The ticket succeeds when it is on stable storage.
    pub fn commit(mut self) -> Ticket {
        self.left = true;
        Ticket::new(self.core.clone(), self.core.leave())
    }
}

impl Drop for Txn {
    /// Dropping without [`Txn::commit`] commits: what was appended has already been done.
    fn drop(&mut self) {
        if !self.left {
            self.core.leave();
        }
    }
}

impl std::fmt::Debug for Txn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Txn")
    }
}
