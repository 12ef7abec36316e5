//! One large file, written and read by several clients at once: each has a session and a connection of its own, and a range of
//! the file.

use crate::error::Result;
use crate::load::{ATTRS, all, close, connect, create, failed, pattern, read, write};
use landfast_client::{Session, ops};
use landfast_nfs::v4::args::CommitArgs;
use landfast_nfs::v4::{ArgOp, FileHandle, StableHow, Stateid};
use landfast_xdr::Bytes;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one READ or WRITE.
pub const REQUEST_BYTES: u64 = 1 << 20;

/// Clients that have one file of a server open.
pub struct Streams {
    runtime: tokio::runtime::Runtime,
    clients: Vec<Arc<Client>>,
    name: Bytes,
}

struct Client {
    session: Session,
    root: FileHandle,
    file: FileHandle,
    open: Stateid,
}

impl Streams {
    /// Connects so many clients. The first makes the file `name` in the export's root, the others open it.
    pub fn new(addr: SocketAddr, name: &str, clients: u64) -> Result<Streams> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| failed("threads", e))?;
        let name = Bytes::from(name.to_owned());
        let clients = runtime.block_on(async {
            let mut connected = Vec::new();
            for _ in 0..clients {
                connected.push(Arc::new(Client::open(addr, &name).await?));
            }
            Ok::<_, crate::error::Error>(connected)
        })?;
        Ok(Streams { runtime, clients, name })
    }

    /// Writes `bytes` bytes, `in_flight` requests of each client at a time, UNSTABLE, and a COMMIT of each client's range.
    /// Returns the time until the last COMMIT is answered: then all bytes are durable.
    ///
    /// # Errors
    /// An answer that is an error, or that is short; another verifier in the COMMIT than in a WRITE: the server has forgotten
    /// what it was given.
    pub fn write(&self, bytes: u64, in_flight: u64) -> Result<Duration> {
        self.ranges(bytes, in_flight, true)
    }

    /// Reads them again and compares each byte.
    pub fn read(&self, bytes: u64, in_flight: u64) -> Result<Duration> {
        self.ranges(bytes, in_flight, false)
    }

    fn ranges(&self, bytes: u64, in_flight: u64, writes: bool) -> Result<Duration> {
        let data = pattern(REQUEST_BYTES as usize);
        let start = Instant::now();
        self.runtime.block_on(async {
            let ranges = ranges(bytes, self.clients.len() as u64);
            let tasks: Vec<_> = self
                .clients
                .iter()
                .zip(ranges)
                .map(|(client, range)| {
                    tokio::spawn(client.clone().stream(range, in_flight, data.clone(), writes))
                })
                .collect();
            for task in tasks {
                task.await.map_err(|e| failed("task", e))??;
            }
            Ok(start.elapsed())
        })
    }

    /// Removes the file and ends the sessions.
    pub fn end(self) -> Result<()> {
        self.runtime.block_on(async {
            for client in &self.clients {
                close(&client.session, &client.file, client.open).await?;
            }
            if let Some(client) = self.clients.first() {
                let remove = vec![ArgOp::Putfh(client.root.clone()), ArgOp::Remove(self.name.clone())];
                all(&client.session, remove).await?;
            }
            for client in self.clients {
                client.session.clone().destroy().await;
            }
            Ok(())
        })
    }
}

impl Client {
    async fn open(addr: SocketAddr, name: &[u8]) -> Result<Client> {
        let session = connect(addr).await?;
        let (root, _) = ops::resolve(&session, &[]).await.map_err(|e| failed("root", e))?;
        let (file, open) = create(&session, &root, name).await?;
        Ok(Client { session, root, file, open })
    }

    async fn stream(
        self: Arc<Self>,
        range: Range<u64>,
        in_flight: u64,
        data: Bytes,
        writes: bool,
    ) -> Result<()> {
        let next = Arc::new(AtomicU64::new(range.start));
        let tasks: Vec<_> = (0..in_flight)
            .map(|_| {
                let (client, next, data) = (self.clone(), next.clone(), data.clone());
                let end = range.end;
                tokio::spawn(async move {
                    let mut verifier = None;
                    loop {
                        let offset = next.fetch_add(REQUEST_BYTES, Ordering::Relaxed);
                        if offset >= end {
                            return Ok::<_, crate::error::Error>(verifier);
                        }
                        if !writes {
                            read(&client.session, &client.file, client.open, offset, &data).await?;
                            continue;
                        }
                        let how = StableHow::Unstable;
                        let wrote =
                            write(&client.session, &client.file, client.open, offset, how, &data).await?;
                        if *verifier.get_or_insert(wrote.writeverf) != wrote.writeverf {
                            return Err(failed("WRITE", "another verifier than before"));
                        }
                    }
                })
            })
            .collect();
        let mut verifiers = Vec::new();
        for task in tasks {
            verifiers.extend(task.await.map_err(|e| failed("task", e))??);
        }
        if !writes {
            return Ok(());
        }
        let commit = vec![
            ArgOp::Putfh(self.file.clone()),
            // A count of 0 is the rest of the file; a range of 4 GiB and more fits into no count.
            ArgOp::Commit(CommitArgs { offset: range.start, count: 0 }),
            ArgOp::Getattr(ATTRS),
        ];
        let committed = all(&self.session, commit).await?.commit()?;
        if verifiers.iter().any(|of_write| *of_write != committed) {
            return Err(failed("COMMIT", "another verifier than the WRITEs had"));
        }
        Ok(())
    }
}

/// The file's ranges, one for each client, whole requests but for the file's end.
fn ranges(bytes: u64, clients: u64) -> impl Iterator<Item = Range<u64>> {
    let share = bytes.div_ceil(clients).next_multiple_of(REQUEST_BYTES);
    (0..clients).map(move |n| (n * share).min(bytes)..((n + 1) * share).min(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_requests_and_cover_the_file_once() {
        for (bytes, clients) in [(64 << 20, 1), (64 << 20, 4), (64 << 20, 16), (50 << 20, 16), (1 << 20, 4)] {
            let all: Vec<_> = ranges(bytes, clients).collect();
            assert_eq!(all.len() as u64, clients);
            let mut end = 0;
            for range in all {
                assert_eq!(range.start, end);
                assert_eq!(range.start % REQUEST_BYTES, 0);
                end = range.end;
            }
            assert_eq!(end, bytes);
        }
    }
}
