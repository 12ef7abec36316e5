//! Transactions: what one request changes, and the receipt that it is stable.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use landfast_intentlog::{Ticket, Txn};
use rustix::io::Errno;

use crate::error::Error;
use crate::faults::{self, Bug, point};
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::options::Durability;
use crate::record::{Fact, Record};
use crate::rests::{Rests, Settling};
use crate::results::Around;
use crate::volume::Volume;

/// What one request changes. Joins the log lazily, at its first modifying operation; everything between two
/// [`Tx::split`]s is atomic on disk. While a transaction is joined the log cannot be sealed, so finish it soon: never
/// wait for a client, a lock of unknown duration or a disk without `split`.
pub struct Tx {
    volume: Volume,
    joined: Option<Joined>,
    /// Of the last part that said anything, with its number; the log is flushed in order, so it covers the earlier ones.
    ticket: Option<(Ticket, u64)>,
    /// Something changed that has to outlast a crash.
    modified: bool,
    /// Data was written that a crash may take back until its COMMIT.
    unstable: bool,
    broken: bool,
    /// What was changed, when somebody wants to know.
    watched: Option<Vec<Around>>,
    /// The file that this part made last: that it is there stands in the same batch as all that this part says of it.
    made: Option<Node>,
    /// It was written to since, and how it looks is still to be said.
    unsaid: Option<OpenFile>,
    /// What its answer rests on.
    rests: Rests,
    /// Without a log: what it has changed, and whether all of that is flushed.
    settling: Option<(Arc<Settling>, bool)>,
    /// Notes that [`Bug::ReplyApart`] keeps back.
    apart: Vec<Vec<u8>>,
}

/// Part of the log's open batch.
struct Joined {
    txn: Txn,
    seq: u64,
    /// The number is on the volume: something may be changed.
    marked: bool,
    /// Any record at all: each number needs one.
    appended: bool,
    /// A record that the request must wait for.
    wanted: bool,
}

impl Volume {
    /// A new transaction.
    pub fn tx(&self) -> Tx {
        Tx::new(self.clone())
    }

    /// Waits until the changes that `rests` has seen are flushed, without a log.
    fn await_settlings(&self, rests: &Rests) -> Result<(), Error> {
        let all_flushed = self.0.settlings.wait(rests);
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
            rests: Rests::default(),
            settling: None,
            apart: Vec::new(),
        }
    }

    /// Before anything is changed and before any lock is taken: joins the log's open batch. May leave the thread acting
    /// as the superuser.
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
            // Nothing has been changed, so this is an answer as any other. (On btrfs a time takes room, too.)
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

    /// Joins the log's open batch for what changes nothing on the volume.
    fn begin(&mut self) -> Result<(), Error> {
        self.volume.check()?;
        if self.joined.is_some() {
            return Ok(());
        }
        let Some((log, marker)) = self.volume.log() else { return Ok(()) };
        let txn = log.begin().map_err(|e| self.volume.fail(format!("log: {e}")))?;
        let seq = marker.take();
        self.joined = Some(Joined { txn, seq, marked: false, appended: false, wanted: false });
        Ok(())
    }

    /// From here on keeps how directories, files written and objects with new attributes looked before and after, for
    /// [`Tx::around`].
    pub fn watch(&mut self) {
        self.watched.get_or_insert_default();
    }

    /// How `node` looked around the last operation of this transaction that changed it, if that is known.
    #[must_use]
    pub fn around(&self, node: &Node) -> Option<&Around> {
        self.watched.as_ref()?.iter().rev().find(|seen| seen.node == *node)
    }

    /// True when [`Tx::saw`] is of use.
    pub(crate) fn watches(&self) -> bool {
        self.watched.is_some()
    }

    /// An operation changed an object; call with what was seen under the locks that order its changes.
    pub(crate) fn saw(&mut self, seen: Around) {
        if let Some(watched) = &mut self.watched {
            watched.push(seen);
        }
    }

    /// A file was made, and recorded.
    pub(crate) fn has_made(&mut self, file: &Node) {
        if self.logs() {
            self.made = Some(file.clone());
        }
    }

    /// Whether how `file` looks may be left to be said: the file is new in this part, and nobody wants to know it now.
    pub(crate) fn may_say_later(&self, file: &Node) -> bool {
        self.made.as_ref() == Some(file) && !self.watches()
    }

    /// How `file` looks is left to be said at the end of this part, unless [`Tx::has_said`] comes before: what stands in one
    /// batch needs to be said once. Of any other file it is said now, so that few descriptors are kept for that.
    pub(crate) fn says_later(&mut self, file: &OpenFile) -> Result<(), Error> {
        if self.unsaid.as_ref().is_some_and(|unsaid| unsaid.node() == file.node()) {
            return Ok(());
        }
        self.say()?;
        self.unsaid = Some(file.clone());
        Ok(())
    }

    /// How `node` looks was recorded, under the lock that orders its changes.
    pub(crate) fn has_said(&mut self, node: &Node) {
        self.unsaid.take_if(|unsaid| unsaid.node() == node);
    }

    /// Says what was left to be said. Call without locks.
    fn say(&mut self) -> Result<(), Error> {
        match self.unsaid.take() {
            Some(file) => self.volume.clone().say_attrs(self, &file),
            None => Ok(()),
        }
    }

    /// True when facts are wanted: building them costs.
    pub(crate) fn logs(&self) -> bool {
        self.joined.is_some()
    }

    /// The number under which the operations since the last split stand in the log.
    pub(crate) fn seq(&self) -> Option<u64> {
        self.joined.as_ref().map(|joined| joined.seq)
    }

    /// The answer may tell of `node`, so it waits until all that has happened to it is durable ([`crate::rests`]). The volume's
    /// operations say this of what they are given and of what they find; a server says it of what it looks at before it
    /// calls one. Call without the node's locks.
    pub fn rests_on(&mut self, node: &Node) {
        self.rests.on(node, self.volume.durability() == Durability::Log);
    }

    /// The answer tells that an object is gone which there is no node for.
    pub fn rests_on_removals(&mut self) {
        self.rests.on_removals();
    }

    /// Whether its answer rests on what others have done and what may not be durable yet. Call without locks.
    pub fn rests_on_pending(&mut self) -> bool {
        match self.volume.durability() {
            Durability::Log => {
                let batch = self.rests.batch(&self.volume.0.last_removal);
                self.volume.log().is_some_and(|(log, _)| log.pending(batch).is_some())
            }
            // Whether others are at it is seen at the end.
            Durability::Sync => self.rests.any(),
            Durability::Unsafe => false,
        }
    }

    /// These objects are changed. Call under the locks that order the change, with the transaction joined.
    pub(crate) fn changes(&mut self, nodes: &[&Node]) {
        if let Some(joined) = &self.joined {
            for node in nodes {
                node.0.last_batch.fetch_max(joined.txn.batch(), Ordering::Release);
            }
        } else if let Some(settling) = self.settling() {
            settling.changes(nodes);
        }
    }

    /// An object is about to lose its last name. Call before it does, joined.
    pub(crate) fn removes_last_name(&mut self) {
        if let Some(joined) = &self.joined {
            self.volume.0.last_removal.fetch_max(joined.txn.batch(), Ordering::Release);
        } else if let Some(settling) = self.settling() {
            settling.removes();
        }
    }

    /// Without a log: all that was changed so far is flushed.
    pub(crate) fn has_settled(&mut self) {
        if let Some((_, flushed)) = &mut self.settling {
            *flushed = true;
        }
    }

    /// Without a log: the entry of this request, which is changing something.
    fn settling(&mut self) -> Option<&Settling> {
        if self.volume.durability() != Durability::Sync {
            return None;
        }
        let (settling, flushed) =
            self.settling.get_or_insert_with(|| (self.volume.0.settlings.begin(), false));
        *flushed = false;
        Some(settling)
    }

    /// One operation has changed something (or found it done already): these are its facts. Call under the locks that
    /// order the operation.
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
            // The change has been made and cannot be promised.
            Err(e) => Err(self.volume.fail(format!("record: {e}"))),
        }
    }

    /// Something changed that needs no record.
    pub(crate) fn touch(&mut self) {
        self.modified = true;
    }

    /// Unstable data was written, and nothing else.
    pub(crate) fn touch_unstable(&mut self) {
        self.unstable = true;
    }

    /// Adds an opaque record of the server (a reply, a session, a client), atomic with the operations since the last
    /// split. Does nothing where there is no log ([`crate::Volume::keeps_notes`]).
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

    /// True when an operation of this transaction changed something, be it unstable data.
    pub fn modified(&self) -> bool {
        self.modified || self.unstable
    }

    /// True when an operation changed something that has to outlast a crash, so that its reply should, too. Unstable data
    /// need not: it is written again when it was lost, and may be when it was not.
    pub fn lasting(&self) -> bool {
        self.modified
    }

    /// True when the log has, or will have, a record of it that is to be waited for.
    pub fn waits(&self) -> bool {
        self.ticket.is_some() || self.joined.as_ref().is_some_and(|joined| joined.wanted)
    }

    /// Ends the transaction. What it did, and what its answer rests on, is stable when the receipt's wait returns `Ok`. Without a
    /// log this blocks while others flush what the answer rests on.
    pub fn finish(mut self) -> Receipt {
        // What this request has seen is in its own batch or an earlier one.
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
                    unsettled = self.volume.await_settlings(&rests).is_err();
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

    /// Ends the part so far, before something that may block; the receipt of [`Tx::finish`] covers it.
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
    /// Without a log: whoever rests on what this request has changed need not wait any more.
    fn has_ended(&mut self) {
        if let Some((settling, flushed)) = self.settling.take() {
            self.volume.0.settlings.end(&settling, flushed);
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

/// Proof of stability to wait for.
pub struct Receipt {
    volume: Volume,
    ticket: Option<Ticket>,
    /// Of the transaction; 0 without a ticket.
    number: u64,
    /// Nothing that modified may be answered after a failure; pure reads may.
    checked: bool,
    broken: bool,
    /// What it rests on, and did not do itself, will never be stable.
    unsettled: bool,
    /// As in [`Tx`].
    apart: Vec<Vec<u8>>,
}

impl Receipt {
    /// Asks for the flush without waiting for it: for a thread that hands the receipt to another, so that the flush
    /// runs while that one is being told.
    pub fn request(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.request();
        }
    }

    /// Whether there is anything to wait for.
    pub fn waits(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether what it rests on has failed already: whatever it was about to be told, [`Receipt::wait`] says so.
    pub fn is_refused(&self) -> bool {
        self.unsettled
    }

    /// Waits until everything of the transaction is stable. [`Error::Failed`] when it may not be.
    pub async fn wait(mut self) -> Result<(), Error> {
        let flushed = match self.ticket.take() {
            Some(ticket) => ticket.wait().await.map_err(|e| e.to_string()),
            None => Ok(()),
        };
        self.conclude(flushed)
    }

    /// As [`Receipt::wait`], blocking the thread.
    pub fn wait_blocking(mut self) -> Result<(), Error> {
        let flushed = match self.ticket.take() {
            Some(ticket) => ticket.wait_blocking().map_err(|e| e.to_string()),
            None => Ok(()),
        };
        self.conclude(flushed)
    }

    /// What it waits for.
    #[cfg(test)]
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// `Some` once the outcome is known. Asks for the flush, and does not wait for it.
    pub fn poll_now(&self) -> Option<Result<(), Error>> {
        let flushed = match &self.ticket {
            Some(ticket) => {
                ticket.request();
                ticket.poll_now()?.map_err(|e| e.to_string())
            }
            None => Ok(()),
        };
        Some(self.conclude(flushed))
    }

    fn conclude(&self, flushed: Result<(), String>) -> Result<(), Error> {
        flushed.map_err(|e| self.volume.fail(format!("log: {e}")))?;
        // A batch has larger numbers than the ones before, and is in the log as a whole.
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
