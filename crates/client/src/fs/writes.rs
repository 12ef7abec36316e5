//! Files that are queued one by one and made stable together.

use std::collections::VecDeque;

use landfast_nfs::v4::FileHandle;
use tokio::task::JoinSet;

use super::{NewFile, Nfs, Outcome};
use crate::limits::{WRITES_BYTES_MAX, WRITES_CALLS_MAX, WRITES_TOGETHER, WRITES_TOGETHER_BYTES};

/// Files to be written, any number of them, with one wait until all are on the server's stable storage.
///
/// Writing begins while files are still being queued, in large COMPOUNDs; what is held of them in memory is bounded by
/// [`WRITES_BYTES_MAX`]. A file is stable by WRITEs that the server says are, or by a COMMIT under the verifier of all its
/// WRITEs: one that the server has lost since, as its changed verifier tells, is written again (RFC 8881 section 18.3.3).
///
/// Files of one queue are independent: two under the same name may come in either order. Dropping the queue drops what was
/// not yet sent; what is under way then may still be written.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use landfast_client::fs::{NewFile, Nfs};
///
/// let nfs = Nfs::connect(&"nfs://server/export/spool".parse()?).await?;
/// let mut writes = nfs.writes();
/// for n in 0..10_000 {
///     writes.add(NewFile::new(format!("mail{n}"), "Subject: ...\n")).await;
/// }
/// for outcome in writes.sync().await {
///     outcome.into_result()?; // stable, each of them
/// }
/// # Ok(()) }
/// ```
pub struct Writes {
    nfs: Nfs,
    queue: Vec<NewFile>,
    queue_bytes: usize,
    /// Calls in flight: the number of the first file, the bytes of all, and the results.
    under_way: JoinSet<(usize, usize, Vec<Outcome<FileHandle>>)>,
    bytes_under_way: usize,
    /// One for each file since the last `sync`.
    outcomes: VecDeque<Option<Outcome<FileHandle>>>,
}

impl Writes {
    pub(super) fn new(nfs: Nfs) -> Writes {
        Writes {
            nfs,
            queue: Vec::new(),
            queue_bytes: 0,
            under_way: JoinSet::new(),
            bytes_under_way: 0,
            outcomes: VecDeque::new(),
        }
    }

    /// Queues a file and returns its index in the result of the next [`Writes::sync`]. Waits while too much is in
    /// flight.
    pub async fn add(&mut self, file: NewFile) -> usize {
        let bytes = file.data.len();
        while self.under_way.len() >= WRITES_CALLS_MAX
            || (!self.under_way.is_empty()
                && self.bytes_under_way + self.queue_bytes + bytes > WRITES_BYTES_MAX)
        {
            self.settle_one().await;
        }
        self.queue.push(file);
        self.queue_bytes += bytes;
        self.outcomes.push_back(None);
        if self.queue.len() >= WRITES_TOGETHER || self.queue_bytes >= WRITES_TOGETHER_BYTES {
            self.send();
        }
        self.outcomes.len() - 1
    }

    /// Files queued since the last [`Writes::sync`].
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Waits until each file queued since the last call is stable or has failed. Returns one result a file, in the
    /// order of queuing. Committed: all of the file is on the server's stable storage.
    ///
    /// A caller that stops waiting loses nothing: the writes go on, and the next call returns all results.
    pub async fn sync(&mut self) -> Vec<Outcome<FileHandle>> {
        self.send();
        while !self.under_way.is_empty() {
            self.settle_one().await;
        }
        let lost = || Outcome::Unknown("its task has ended".to_owned());
        std::mem::take(&mut self.outcomes).into_iter().map(|o| o.unwrap_or_else(lost)).collect()
    }

    fn send(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let files = std::mem::take(&mut self.queue);
        let bytes = std::mem::take(&mut self.queue_bytes);
        let first = self.outcomes.len() - files.len();
        let nfs = self.nfs.clone();
        self.bytes_under_way += bytes;
        self.under_way.spawn(async move { (first, bytes, nfs.write_files(files).await) });
    }

    async fn settle_one(&mut self) {
        match self.under_way.join_next().await {
            Some(Ok((first, bytes, outcomes))) => {
                self.bytes_under_way -= bytes;
                for (place, outcome) in self.outcomes.iter_mut().skip(first).zip(outcomes) {
                    *place = Some(outcome);
                }
            }
            // A task panicked. The runtime has reported it; the panic continues here.
            Some(Err(e)) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Some(Err(_)) | None => {}
        }
    }
}
