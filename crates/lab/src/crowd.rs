//! Many clients of one server, each with a client record, a session and a connection of its own, of which some work at a time.

use crate::error::{Error, Result};
use crate::latencies::Latencies;
use crate::load::{ATTRS, all, connect_asking, failed, pattern, write};
use landfast_client::{Session, SessionLimits, ops};
use landfast_nfs::v4::{ArgOp, FileHandle, StableHow, Stateid};
use landfast_xdr::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What each client asks for its session: as Linux's client does.
const ASK: SessionLimits =
    SessionLimits { request: 1 << 20, response: 1 << 20, response_cached: 4096, ops: 16, slots: 64 };

/// Clients that connect at the same time.
const CONNECT_AT_ONCE: u64 = 16;

/// Bytes of a WRITE.
const WRITE_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// PUTFH, GETATTR of the client's file.
    Getattr,
    /// PUTFH, WRITE of 4 KiB FILE_SYNC to the client's file, GETATTR.
    Write,
}

/// Clients that are connected to a server. Each works on at least one file. Dropping them closes their connections; their sessions stay.
pub struct Crowd {
    runtime: tokio::runtime::Runtime,
    members: Vec<Arc<Member>>,
}

struct Member {
    session: Session,
    /// The files that it works on, in turn.
    files: Vec<FileHandle>,
}

/// The path of the file of client `n`, as the server's directory has it.
pub fn file_name(n: u64) -> String {
    format!("client-{n:05}")
}

impl Crowd {
    /// Connects so many clients, each of which finds its own file ([`file_name`]) in the server's root.
    ///
    /// # Errors
    /// The first client that is refused.
    pub fn new(addr: SocketAddr, clients: u64) -> Result<Crowd> {
        Crowd::connect(addr, clients, |n| vec![vec![file_name(n).into_bytes()]])
    }

    /// The same with the paths of the files on which each client works.
    pub fn connect(
        addr: SocketAddr,
        clients: u64,
        paths: impl Fn(u64) -> Vec<Vec<Vec<u8>>>,
    ) -> Result<Crowd> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| failed("threads", e))?;
        let members = runtime.block_on(async {
            let mut members = Vec::new();
            let mut n = 0;
            while n < clients {
                let tasks: Vec<_> = (n..(n + CONNECT_AT_ONCE).min(clients))
                    .map(|n| tokio::spawn(Member::connect(addr, paths(n))))
                    .collect();
                n += tasks.len() as u64;
                for task in tasks {
                    members.push(Arc::new(task.await.map_err(|e| failed("task", e))??));
                }
            }
            Ok::<_, Error>(members)
        })?;
        Ok(Crowd { runtime, members })
    }

    /// Does `count` operations, `at_once` of them at a time, each the next client's turn. Returns the whole time and each
    /// operation's.
    ///
    /// # Errors
    /// The first answer that is an error.
    pub fn work(&self, work: Work, count: u64, at_once: u64) -> Result<(Duration, Latencies)> {
        let next = Arc::new(AtomicU64::new(0));
        let data = pattern(WRITE_BYTES);
        let start = Instant::now();
        let took = self.runtime.block_on(async {
            let tasks: Vec<_> = (0..at_once)
                .map(|_| {
                    let (next, data, members) = (next.clone(), data.clone(), self.members.clone());
                    tokio::spawn(async move {
                        let mut took = Vec::new();
                        loop {
                            let n = next.fetch_add(1, Ordering::Relaxed);
                            if n >= count {
                                return Ok::<_, Error>(took);
                            }
                            let clients = members.len() as u64;
                            let member = &members[turn(n, clients) as usize];
                            let file = &member.files[(n / clients) as usize % member.files.len()];
                            let start = Instant::now();
                            member.one(work, file, &data).await?;
                            took.push(start.elapsed());
                        }
                    })
                })
                .collect();
            let mut took = Vec::new();
            for task in tasks {
                took.extend(task.await.map_err(|e| failed("task", e))??);
            }
            Ok::<_, Error>(took)
        })?;
        Ok((start.elapsed(), Latencies::new(took)))
    }
}

/// Whose turn is number `n`: everybody's in turn, and neighbours in time are not neighbours in the tables of the server.
fn turn(n: u64, clients: u64) -> u64 {
    // Prime to every number of clients that is a power of ten.
    const STEP: u64 = 7919;
    n.wrapping_mul(STEP) % clients
}

impl Member {
    async fn connect(addr: SocketAddr, paths: Vec<Vec<Vec<u8>>>) -> Result<Member> {
        let session = connect_asking(addr, ASK).await?;
        let mut files = Vec::new();
        for path in paths {
            files.push(ops::resolve(&session, &path).await.map_err(|e| failed("path", e))?.0);
        }
        Ok(Member { session, files })
    }

    async fn one(&self, work: Work, file: &FileHandle, data: &Bytes) -> Result<()> {
        match work {
            Work::Getattr => {
                let ops = vec![ArgOp::Putfh(file.clone()), ArgOp::Getattr(ATTRS)];
                all(&self.session, ops).await?.getattr()?;
            }
            Work::Write => {
                let (open, how) = (Stateid::ANONYMOUS, StableHow::FileSync);
                write(&self.session, file, open, 0, how, data).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn() {
        for clients in [1, 10, 100, 1000, 10_000] {
            let mut seen: Vec<_> = (0..clients).map(|n| turn(n, clients)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..clients));
        }
    }
}
