//! Transactions: the changes of one request, and the receipt that they are stable.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use landfast_intentlog::{LogError, Ticket, Txn};
use rustix::io::Errno;

use crate::dependencies::{Dependencies, OngoingFlush};
use crate::error::Error;
use crate::faults::{self, Bug, point};
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::options::Durability;
use crate::record::{Fact, Record};
use crate::results::Around;
use crate::volume::Volume;

/// The changes of one request. Joins the log at its first modifying operation. Everything between two [`Tx::split`]s is
/// atomic on disk. The log cannot seal its batch while a transaction is joined, so finish soon: never wait for a client,
/// a lock of unknown duration or a disk without `split`.
pub struct Tx {
    volume: Volume,
    joined: Option<Joined>,
    /// Ticket and number of the last part that has records. The log is flushed in order, so it covers the earlier parts.
    ticket: Option<(Ticket, u64)>,
    /// It made a change that must outlast a crash.
    modified: bool,
    /// It wrote data that a crash may undo until its COMMIT.
    unstable: bool,
    broken: bool,
    /// The objects that it changed, if [`Tx::watch`] was called.
    watched: Option<Vec<Around>>,
    /// The file that this part made last. Its birth is in the same batch as everything that this part records of it.
    made: Option<Node>,
    /// `made`, if it was written to and its attributes are not recorded yet.
    unsaid: Option<OpenFile>,
    /// What its reply rests on.
    rests: Dependencies,
    /// Without a log: its entry among the pending changes, and whether all of them are flushed.
    settling: Option<(Arc<OngoingFlush>, bool)>,
    /// Notes that [`Bug::ReplyApart`] holds back.
    apart: Vec<Vec<u8>>,
}

/// This transaction's part of the log's open batch.
struct Joined {
    txn: Txn,
    seq: u64,
    /// The volume's marker holds the number, so changes may begin.
    marked: bool,
    /// It has a record; each number needs one.
    appended: bool,
    /// It has a record that the request must wait for.
    wanted: bool,
}

impl Volume {
    pub fn tx(&self) -> Tx {
        Tx::new(self.clone())
    }

    /// Without a log: waits until the changes that `rests` has seen are flushed.
    fn await_flushes(&self, rests: &Dependencies) -> Result<(), Error> {
        let all_flushed = self.0.ongoing_flushes.wait(rests);
        self.check()?;
        if !all_flushed {
            self.assume_root()?;
            self.flush_all()?;
        }
        Ok(())
    }
}

impl Tx {
    pub(crate) fn new(volume: Volume) -> Tx {
        Tx {
            volume,
            joined: None,
            ticket: None,
            modified: false,
            unstable: false,
            broken: false,
            watched: None,
            made: None,
            unsaid: None,
            rests: Dependencies::default(),
            settling: None,
            apart: Vec::new(),
        }
    }

    /// Joins the log's open batch. Call before any change and before taking any lock. May leave the thread acting as the
    /// superuser.
    pub(crate) fn join(&mut self) -> Result<(), Error> {
        self.volume.check()?;
        if self.joined.as_ref().is_some_and(|joined| joined.marked) {
            return Ok(());
        }
        if self.volume.log().is_none() {
            return Ok(());
        }
        // Only the marker's owner may set its time.
        self.volume.assume_root()?;
        self.begin()?;
        let (Some((_, marker)), Some(joined)) = (self.volume.log(), &mut self.joined) else { return Ok(()) };
        match marker.mark(joined.seq) {
            Ok(()) => joined.marked = true,
            // Nothing has changed, so this is an ordinary error. (On btrfs setting a time needs space, too.)
            Err(e) => {
                return Err(match Errno::from_io_error(&e) {
                    Some(Errno::NOSPC) => Error::NoSpace,
                    Some(Errno::DQUOT) => Error::Quota,
                    _ => self.volume.fail(format!("transaction marker: {e}")),
                });
            }
        }
        point("tx.joined");
        Ok(())
    }

    /// Joins the log's open batch without the right to change the volume.
    fn begin(&mut self) -> Result<(), Error> {
        self.volume.check()?;
        if self.joined.is_some() {
            return Ok(());
        }
        let Some((log, marker)) = self.volume.log() else { return Ok(()) };
        let txn = log.begin().map_err(|e| self.volume.log_error(&e))?;
        let seq = marker.take();
        self.joined = Some(Joined { txn, seq, marked: false, appended: false, wanted: false });
        Ok(())
    }

    /// From here on keeps how directories, written files and objects with new attributes looked before and after a change,
    /// for [`Tx::around`].
    pub fn watch(&mut self) {
        self.watched.get_or_insert_default();
    }

    /// How `node` looked around the last operation of this transaction that changed it, if known.
    pub fn around(&self, node: &Node) -> Option<&Around> {
        self.watched.as_ref()?.iter().rev().find(|seen| seen.node == *node)
    }

    /// True when [`Tx::saw`] has a use.
    pub(crate) fn watches(&self) -> bool {
        self.watched.is_some()
    }

    /// Notes the change of an object. Call with what was seen under the locks that order its changes.
    pub(crate) fn saw(&mut self, seen: Around) {
        if let Some(watched) = &mut self.watched {
            watched.push(seen);
        }
    }

    pub(crate) fn has_made(&mut self, file: &Node) {
        if self.logs() {
            self.made = Some(file.clone());
        }
    }

    /// Whether the record of `file`'s attributes may wait: this part made the file, and nobody watches.
    pub(crate) fn may_say_later(&self, file: &Node) -> bool {
        self.made.as_ref() == Some(file) && !self.watches()
    }

    /// Leaves the attributes of `file` to be recorded at the end of this part, unless [`Tx::has_said`] comes first: one
    /// batch needs them only once. Records those of another waiting file now, so that few descriptors are kept.
    pub(crate) fn says_later(&mut self, file: &OpenFile) -> Result<(), Error> {
        if self.unsaid.as_ref().is_some_and(|unsaid| unsaid.node() == file.node()) {
            return Ok(());
        }
        self.say()?;
        self.unsaid = Some(file.clone());
        Ok(())
    }

    /// Notes that the attributes of `node` were recorded, under the lock that orders its changes.
    pub(crate) fn has_said(&mut self, node: &Node) {
        self.unsaid.take_if(|unsaid| unsaid.node() == node);
    }

    /// Records the attributes that were left to be recorded. Call without locks.
    fn say(&mut self) -> Result<(), Error> {
        match self.unsaid.take() {
            Some(file) => self.volume.clone().say_attrs(self, &file),
            None => Ok(()),
        }
    }

    /// True when facts are wanted. Check it first, since building facts costs time.
    pub(crate) fn logs(&self) -> bool {
        self.joined.is_some()
    }

    pub(crate) fn seq(&self) -> Option<u64> {
        self.joined.as_ref().map(|joined| joined.seq)
    }

    /// Makes the reply wait until everything that has happened to `node` is durable, since the reply may depend on it
    /// ([`crate::dependencies`]). The volume's operations call this for their arguments and for what they find; a server calls it for
    /// what it looks at itself. Call without the node's locks.
    pub fn rests_on(&mut self, node: &Node) {
        self.rests.on(node, self.volume.durability() == Durability::Log);
    }

    /// As [`Tx::rests_on`], for a reply which reveals that an object is gone that has no node.
    pub fn rests_on_removals(&mut self) {
        self.rests.on_removals();
    }

    /// Whether the reply rests on others' changes that may not be durable yet. Call without locks.
    pub fn rests_on_pending(&mut self) -> bool {
        match self.volume.durability() {
            Durability::Log => {
                let batch = self.rests.batch(&self.volume.0.last_removal);
                self.volume.log().is_some_and(|(log, _)| log.pending(batch).is_some())
            }
            // Pending changes of others are found at the end.
            Durability::Sync => self.rests.any(),
            Durability::Unsafe => false,
        }
    }

    /// Notes that these objects are being changed. Call under the locks that order the change, while joined.
    pub(crate) fn changes(&mut self, nodes: &[&Node]) {
        if let Some(joined) = &self.joined {
            for node in nodes {
                node.0.last_batch.fetch_max(joined.txn.batch(), Ordering::Release);
            }
        } else if let Some(settling) = self.settling() {
            settling.changes(nodes);
        }
    }

    /// Announces a note about this object ([`Tx::note`]). Whoever sees what it says from now on rests on it, if it rests on the object
    /// ([`Tx::rests_on`]). So call it before anybody can see that, without the object's locks. The note must follow before the next split.
    pub fn announces_note_about(&mut self, node: &Node) {
        if self.volume.durability() != Durability::Log {
            return;
        }
        self.broken |= self.begin().is_err();
        let _state = node.0.state.lock();
        self.changes(&[node]);
    }

    /// Notes that an object is about to lose its last name. Call before it does, while joined.
    pub(crate) fn removes_last_name(&mut self) {
        if let Some(joined) = &self.joined {
            self.volume.0.last_removal.fetch_max(joined.txn.batch(), Ordering::Release);
        } else if let Some(settling) = self.settling() {
            settling.removes();
        }
    }

    /// Without a log: notes that everything changed so far is flushed.
    pub(crate) fn has_settled(&mut self) {
        if let Some((_, flushed)) = &mut self.settling {
            *flushed = true;
        }
    }

    /// Without a log: this request's entry among the pending changes.
    fn settling(&mut self) -> Option<&OngoingFlush> {
        if self.volume.durability() != Durability::Sync {
            return None;
        }
        let (settling, flushed) =
            self.settling.get_or_insert_with(|| (self.volume.0.ongoing_flushes.begin(), false));
        *flushed = false;
        Some(settling)
    }

    /// Records the facts of one operation that changed something, or found it done already. Call under the locks that order
    /// the operation.
    pub(crate) fn record(&mut self, facts: Vec<Fact>) -> Result<(), Error> {
        point("op.applied");
        self.append(facts)
    }

    fn append(&mut self, facts: Vec<Fact>) -> Result<(), Error> {
        self.modified = true;
        let Some(joined) = &mut self.joined else { return Ok(()) };
        match (Record { seq: joined.seq, facts }).encode_parts() {
            Ok(parts) => {
                joined.txn.append_parts(&parts.slices());
                joined.appended = true;
                joined.wanted = true;
                Ok(())
            }
            // The change is made but cannot be promised.
            Err(e) => Err(self.volume.fail(format!("record: {e}"))),
        }
    }

    /// Notes a change that needs no record.
    pub(crate) fn touch(&mut self) {
        self.modified = true;
    }

    pub(crate) fn touch_unstable(&mut self) {
        self.unstable = true;
    }

    /// Adds an opaque record of the server (a reply, a session, a client), atomic with the operations since the last
    /// split. Does nothing without a log ([`crate::Volume::keeps_notes`]).
    pub fn note(&mut self, bytes: Vec<u8>) {
        if self.volume.durability() != Durability::Log {
            return;
        }
        let modified = self.modified;
        if faults::bug(Bug::ReplyApart) && modified {
            return self.apart.push(bytes);
        }
        let noted = self.begin().and_then(|()| self.append(vec![Fact::Note { bytes: Bytes::from(bytes) }]));
        self.modified = modified;
        self.broken |= noted.is_err();
    }

    /// True when an operation of this transaction changed something, even if only unstable data.
    pub fn modified(&self) -> bool {
        self.modified || self.unstable
    }

    /// True when an operation made a change that must outlast a crash, so that its reply must, too. Unstable data need not:
    /// the client writes it again after a loss, and may do so without one.
    pub fn lasting(&self) -> bool {
        self.modified
    }

    /// True when the log has, or will have, a record of this transaction to wait for.
    pub fn waits(&self) -> bool {
        self.ticket.is_some() || self.joined.as_ref().is_some_and(|joined| joined.wanted)
    }

    /// Ends the transaction. Its changes, and what its reply rests on, are stable when the receipt's wait returns `Ok`.
    /// Without a log this call blocks while others flush what the reply rests on.
    pub fn finish(mut self) -> Receipt {
        // Everything that this request has seen is in its own batch or an earlier one.
        let covered = self.joined.as_ref().is_some_and(|joined| joined.wanted);
        self.split();
        let (mut ticket, number) = self.ticket.take().unzip();
        let mut rests = std::mem::take(&mut self.rests);
        let mut unsettled = false;
        if !covered && rests.any() && !faults::bug(Bug::AnswerUnflushed) {
            match self.volume.durability() {
                Durability::Log => {
                    let batch = rests.batch(&self.volume.0.last_removal);
                    if ticket.as_ref().is_none_or(|own| own.batch() < batch)
                        && let Some((log, _)) = self.volume.log()
                        && let Some(pending) = log.pending(batch)
                    {
                        ticket = Some(pending);
                    }
                }
                Durability::Sync => {
                    self.has_ended();
                    unsettled = self.volume.await_flushes(&rests).is_err();
                    self.broken |= unsettled;
                }
                Durability::Unsafe => {}
            }
        }
        Receipt {
            volume: self.volume.clone(),
            ticket,
            number: number.unwrap_or(0),
            checked: self.modified() || self.broken,
            broken: self.broken,
            unsettled,
            apart: std::mem::take(&mut self.apart),
        }
    }

    /// Ends the current part, before something that may block. The receipt of [`Tx::finish`] covers it.
    pub fn split(&mut self) {
        self.broken |= self.say().is_err();
        self.made = None;
        let Some(mut joined) = self.joined.take() else { return };
        if !joined.appended {
            match (Record { seq: joined.seq, facts: Vec::new() }).encode() {
                Ok(bytes) => joined.txn.append(&bytes),
                Err(e) => {
                    self.volume.fail(format!("record: {e}"));
                }
            }
        }
        let ticket = joined.txn.commit();
        if joined.wanted {
            self.ticket = Some((ticket, joined.seq));
        }
    }
}

impl Tx {
    /// Without a log: whoever rests on this request's changes need not wait any more.
    fn has_ended(&mut self) {
        if let Some((settling, flushed)) = self.settling.take() {
            self.volume.0.ongoing_flushes.end(&settling, flushed);
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.split();
        self.has_ended();
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx")
            .field("joined", &self.joined.is_some())
            .field("modified", &self.modified())
            .finish_non_exhaustive()
    }
}

pub struct Receipt {
    volume: Volume,
    ticket: Option<Ticket>,
    number: u64,
    /// A failed volume refuses it. Not set for pure reads, which may be answered after a failure.
    checked: bool,
    broken: bool,
    /// It rests on a change by others that will never be stable.
    unsettled: bool,
    /// As in [`Tx`].
    apart: Vec<Vec<u8>>,
}

impl Receipt {
    /// Asks for the flush without waiting. A thread that hands the receipt to another calls this, so that the flush runs
    /// during the handover.
    pub fn request(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.request();
        }
    }

    pub fn waits(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether what it rests on has failed already, so that [`Receipt::wait`] returns an error.
    pub fn is_refused(&self) -> bool {
        self.unsettled
    }

    /// Waits until the whole transaction is stable. Returns [`Error::Failed`] when it may not be.
    pub async fn wait(mut self) -> Result<(), Error> {
        let flushed = match self.ticket.take() {
            Some(ticket) => ticket.wait().await,
            None => Ok(()),
        };
        self.conclude(flushed)
    }

    /// Like [`Receipt::wait`], but flushes on this thread, which nobody else waits for, unless others share the flush.
    pub async fn wait_here(mut self) -> Result<(), Error> {
        let flushed = match self.ticket.take() {
            Some(ticket) => ticket.wait_here().await,
            None => Ok(()),
        };
        self.conclude(flushed)
    }

    /// Like [`Receipt::wait`], but blocks the thread.
    pub fn wait_blocking(mut self) -> Result<(), Error> {
        let flushed = match self.ticket.take() {
            Some(ticket) => ticket.wait_blocking(),
            None => Ok(()),
        };
        self.conclude(flushed)
    }

    #[cfg(test)]
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// `Some` once the outcome is known. Asks for the flush but does not wait for it.
    pub fn poll_now(&self) -> Option<Result<(), Error>> {
        let flushed = match &self.ticket {
            Some(ticket) => {
                ticket.request();
                ticket.poll_now()?
            }
            None => Ok(()),
        };
        Some(self.conclude(flushed))
    }

    fn conclude(&self, flushed: Result<(), LogError>) -> Result<(), Error> {
        flushed.map_err(|e| self.volume.log_error(&e))?;
        // A batch is in the log as a whole, and its numbers are larger than those of the batches before it.
        self.volume.0.durable_seq.fetch_max(self.number, Ordering::SeqCst);
        if !self.apart.is_empty() {
            let mut later = self.volume.tx();
            self.apart.iter().for_each(|bytes| later.note(bytes.clone()));
        }
        if self.broken {
            return Err(Error::Failed);
        }
        if self.checked { self.volume.check() } else { Ok(()) }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("waits", &self.waits()).finish_non_exhaustive()
    }
}
