//! A load of one kind of operation on any NFSv4.1 server: so many operations, so many of them in flight, each answer
//! checked.
//!
//! The operations are put together as Linux's client does it (what a compound holds, which attributes it asks for), so
//! that the server's share of the work is the one that it has in real life.

use crate::error::{Error, Result};
use landfast_client::compound::{OpError, Results};
use landfast_client::{NfsUrl, Session, SessionError, SessionLimits, SessionOptions, ops};
use landfast_nfs::v4::args::{
    CloseArgs, CommitArgs, CreateArgs, CreateHow, CreateType, OpenArgs, OpenClaim, OpenHow, ReadArgs,
    ReaddirArgs, SetattrArgs, WriteArgs,
};
use landfast_nfs::v4::attr::{AttrValues, number};
use landfast_nfs::v4::flags::{
    OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_DENY_NONE,
};
use landfast_nfs::v4::res::WriteRes;
use landfast_nfs::v4::{
    ArgOp, Bitmap, FileHandle, NfsTime, OpNum, Opaque1024, SetTime, StableHow, StateOwner, Stateid, Verifier,
};
use landfast_xdr::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What Linux's client asks for in a GETATTR.
pub(crate) const ATTRS: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FSID,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::MOUNTED_ON_FILEID,
]);

pub const SMALL_BYTES: usize = 4096;
/// Bytes of one request of a stream.
const STREAM_BYTES: u32 = 1 << 20;
/// Files in the directory that is looked up and listed.
const DIR_FILES: u64 = 1000;

const LISTED: &[u8] = b"listed";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PUTFH, GETATTR.
    Getattr,
    /// PUTFH, LOOKUP, GETFH, GETATTR.
    Lookup,
    /// PUTFH, READ of 4 KiB.
    Read4k,
    /// READDIR with attributes, a whole directory of 1,000 entries an operation.
    Readdirplus,
    /// OPEN that creates, WRITE of 4 KiB FILE_SYNC, SETATTR of times, CLOSE: four compounds, one operation.
    CreateWriteSetattr,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Getattr => "GETATTR",
            Kind::Lookup => "LOOKUP",
            Kind::Read4k => "READ 4K",
            Kind::Readdirplus => "READDIR with attributes",
            Kind::CreateWriteSetattr => "CREATE + WRITE + SETATTR",
        }
    }
}

/// A client with its files on a server.
pub struct Load {
    runtime: tokio::runtime::Runtime,
    client: Arc<Client>,
}

struct Client {
    session: Session,
    root: FileHandle,
    /// A directory of [`DIR_FILES`] files.
    dir: FileHandle,
    file: FileHandle,
    open: Stateid,
    content: Bytes,
    /// What the names of files that this client makes begin with.
    prefix: String,
    /// Numbers of files that are made, so that no name is used twice.
    made: AtomicU64,
}

pub(crate) fn failed(what: &str, why: impl std::fmt::Display) -> Error {
    Error::Child { role: "load", what: format!("{what}: {why}") }
}

impl From<OpError> for Error {
    fn from(e: OpError) -> Self {
        failed("operation", e)
    }
}

impl From<SessionError> for Error {
    fn from(e: SessionError) -> Self {
        failed("session", e)
    }
}

/// Bytes that are not zero and differ from place to place.
pub(crate) fn pattern(len: usize) -> Bytes {
    (0..len).map(|i| (i.wrapping_mul(31) >> 3) as u8 | 1).collect::<Vec<_>>().into()
}

impl Load {
    /// Connects and makes the files that are read, unless they are there. `prefix` tells what this client makes from what
    /// others make in the same directory.
    pub fn new(addr: SocketAddr, prefix: &str) -> Result<Load> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|e| failed("threads", e))?;
        let client = Arc::new(runtime.block_on(Client::prepare(addr, prefix))?);
        Ok(Load { runtime, client })
    }

    /// Does `count` operations of this kind, `in_flight` of them at a time. The time that it took.
    /// Errors: The first answer that is an error, or wrong.
    pub fn run(&self, kind: Kind, count: u64, in_flight: u64) -> Result<Duration> {
        let left = Arc::new(AtomicU64::new(count));
        let start = Instant::now();
        self.runtime.block_on(self.at_once(in_flight, |client| {
            let left = left.clone();
            async move {
                while take(&left) {
                    client.one(kind).await?;
                }
                Ok::<_, Error>(())
            }
        }))?;
        Ok(start.elapsed())
    }

    /// Runs `count` tasks with this client at once.
    async fn at_once<F>(&self, count: u64, work: impl Fn(Arc<Client>) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let tasks: Vec<_> = (0..count).map(|_| tokio::spawn(work(self.client.clone()))).collect();
        for task in tasks {
            task.await.map_err(|e| failed("task", e))??;
        }
        Ok(())
    }

    /// Writes a file of `bytes` bytes, UNSTABLE with a COMMIT at the end, then reads it and removes it. The time of
    /// writing and of reading.
    pub fn stream(&self, bytes: u64, in_flight: u64) -> Result<(Duration, Duration)> {
        self.runtime.block_on(async {
            let name = Bytes::from(format!("{}stream", self.client.prefix));
            let (file, open) = self.client.create(&self.client.root, &name).await?;
            let start = Instant::now();
            self.pieces(bytes, in_flight, &file, open, true).await?;
            let commit = vec![ArgOp::Putfh(file.clone()), ArgOp::Commit(CommitArgs { offset: 0, count: 0 })];
            self.client.all(commit).await?;
            let written = start.elapsed();
            let start = Instant::now();
            self.pieces(bytes, in_flight, &file, open, false).await?;
            let read = start.elapsed();
            self.client.close(&file, open).await?;
            let remove = vec![ArgOp::Putfh(self.client.root.clone()), ArgOp::Remove(name)];
            self.client.all(remove).await?;
            Ok((written, read))
        })
    }

    async fn pieces(
        &self,
        bytes: u64,
        in_flight: u64,
        file: &FileHandle,
        open: Stateid,
        write: bool,
    ) -> Result<()> {
        let data = pattern(STREAM_BYTES as usize);
        let next = Arc::new(AtomicU64::new(0));
        self.at_once(in_flight, |client| {
            let (next, file, data) = (next.clone(), file.clone(), data.clone());
            async move {
                loop {
                    let offset = next.fetch_add(u64::from(STREAM_BYTES), Ordering::Relaxed);
                    if offset >= bytes {
                        return Ok::<_, Error>(());
                    }
                    if write {
                        client.write(&file, open, offset, StableHow::Unstable, &data).await?;
                    } else {
                        client.read(&file, open, offset, &data).await?;
                    }
                }
            }
        })
        .await
    }
}

/// Lists a directory of the export's root with its entries' attributes: how many there are, and how long it took.
pub fn list_root_entry(addr: SocketAddr, name: &str) -> Result<(u64, Duration)> {
    list_root_entries(addr, &[name.to_owned()])
}

/// The same with several directories, one after the other: how many entries they have together.
pub fn list_root_entries(addr: SocketAddr, names: &[String]) -> Result<(u64, Duration)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| failed("threads", e))?;
    runtime.block_on(async {
        let session = connect(addr).await?;
        let start = Instant::now();
        let mut entries = 0;
        for name in names {
            let path = [name.as_bytes().to_vec()];
            let (dir, _) = ops::resolve(&session, &path).await.map_err(|e| failed("path", e))?;
            entries += list(&session, &dir).await?;
        }
        let took = start.elapsed();
        session.destroy().await;
        Ok((entries, took))
    })
}

pub(crate) async fn connect(addr: SocketAddr) -> Result<Session> {
    connect_asking(addr, SessionLimits::ASK).await
}

/// A session of one connection that asks for these limits.
pub(crate) async fn connect_asking(addr: SocketAddr, ask: SessionLimits) -> Result<Session> {
    let url: NfsUrl = format!("nfs://{addr}/?version=4.1").parse().map_err(|e| failed("address", e))?;
    Ok(Session::connect(SessionOptions { connections: 1, ask, ..SessionOptions::for_url(&url) }).await?)
}

/// A compound of which every operation succeeds: the results after the first.
pub(crate) async fn all(session: &Session, ops: Vec<ArgOp>) -> Result<Results> {
    let first = ops.first().map_or(OpNum::ILLEGAL, ArgOp::op);
    let reply = session.compound(ops, false).await?;
    if !reply.status.is_ok() {
        let last = reply.results.last().map_or(first, |r| r.op);
        return Err(OpError::Failed { op: last, status: reply.status }.into());
    }
    let mut results = Results::new(reply);
    results.take(first)?;
    Ok(results)
}

/// Opens a file for reading and writing; makes it, if it is not there.
pub(crate) async fn create(
    session: &Session,
    dir: &FileHandle,
    name: &[u8],
) -> Result<(FileHandle, Stateid)> {
    let attrs = AttrValues { mode: Some(0o644), ..AttrValues::default() };
    let open = OpenArgs {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: StateOwner { clientid: 0, owner: Opaque1024(Bytes::from_static(b"load")) },
        openhow: OpenHow::Create(CreateHow::Unchecked(attrs.to_fattr(&AttrValues::KNOWN))),
        claim: OpenClaim::Null(Bytes::copy_from_slice(name)),
    };
    let ops = vec![ArgOp::Putfh(dir.clone()), ArgOp::Open(open), ArgOp::Getfh, ArgOp::Getattr(ATTRS)];
    let mut results = all(session, ops).await?;
    let stateid = results.open()?.stateid;
    Ok((results.getfh()?, stateid))
}

/// A WRITE that must take all the data and be as stable as asked for.
pub(crate) async fn write(
    session: &Session,
    file: &FileHandle,
    open: Stateid,
    offset: u64,
    stable: StableHow,
    data: &Bytes,
) -> Result<WriteRes> {
    let write = WriteArgs { stateid: open, offset, stable, data: data.clone() };
    let ops = vec![ArgOp::Putfh(file.clone()), ArgOp::Write(write), ArgOp::Getattr(ATTRS)];
    let wrote = all(session, ops).await?.write()?;
    if wrote.count as usize != data.len() || (stable == StableHow::FileSync && wrote.committed != stable) {
        return Err(failed("WRITE", "short, or less stable than asked for"));
    }
    Ok(wrote)
}

pub(crate) async fn read(
    session: &Session,
    file: &FileHandle,
    open: Stateid,
    offset: u64,
    expected: &Bytes,
) -> Result<()> {
    let read = ReadArgs { stateid: open, offset, count: expected.len() as u32 };
    let got = all(session, vec![ArgOp::Putfh(file.clone()), ArgOp::Read(read)]).await?.read()?;
    if got.data != *expected {
        return Err(failed("READ", "not what was written"));
    }
    Ok(())
}

pub(crate) async fn close(session: &Session, file: &FileHandle, open: Stateid) -> Result<()> {
    let close = CloseArgs { seqid: 0, open_stateid: open };
    all(session, vec![ArgOp::Putfh(file.clone()), ArgOp::Close(close)]).await.map(drop)
}

/// Reads a directory to its end, with attributes; the number of its entries.
async fn list(session: &Session, dir: &FileHandle) -> Result<u64> {
    let (mut cookie, mut cookieverf, mut seen) = (0, Verifier::default(), 0);
    loop {
        let read =
            ReaddirArgs { cookie, cookieverf, dircount: 32 << 10, maxcount: 128 << 10, attr_request: ATTRS };
        let page = all(session, vec![ArgOp::Putfh(dir.clone()), ArgOp::Readdir(read)]).await?.readdir()?;
        seen += page.entries.len() as u64;
        cookieverf = page.cookieverf;
        match page.entries.last() {
            Some(last) if !page.eof => cookie = last.cookie,
            _ if page.eof => return Ok(seen),
            _ => return Err(failed("READDIR", "neither entries nor an end")),
        }
    }
}

fn take(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
}

fn file_name(n: u64) -> Bytes {
    Bytes::from(format!("file{n:06}"))
}

impl Client {
    async fn prepare(addr: SocketAddr, prefix: &str) -> Result<Client> {
        let session = connect(addr).await?;
        let (root, _) = ops::resolve(&session, &[]).await.map_err(|e| failed("root", e))?;
        let mut client = Client {
            session,
            dir: root.clone(),
            file: root.clone(),
            root,
            open: Stateid::ANONYMOUS,
            content: pattern(SMALL_BYTES),
            prefix: prefix.to_owned(),
            made: AtomicU64::new(0),
        };
        let there = ops::resolve(&client.session, &[LISTED.to_vec()]).await;
        client.dir = match &there {
            Ok((dir, _)) => dir.clone(),
            Err(_) => client.mkdir(LISTED).await?,
        };
        // Of those that are there the first is opened.
        for n in 0..if there.is_ok() { 1 } else { DIR_FILES } {
            let (file, open) = client.create(&client.dir, &file_name(n)).await?;
            if n == 0 {
                client.write(&file, open, 0, StableHow::FileSync, &client.content).await?;
                (client.file, client.open) = (file, open);
            } else {
                client.close(&file, open).await?;
            }
        }
        Ok(client)
    }

    async fn all(&self, ops: Vec<ArgOp>) -> Result<Results> {
        all(&self.session, ops).await
    }

    async fn mkdir(&self, name: &'static [u8]) -> Result<FileHandle> {
        let attrs = AttrValues { mode: Some(0o755), ..AttrValues::default() };
        let make = CreateArgs {
            kind: CreateType::Dir,
            name: Bytes::from_static(name),
            attrs: attrs.to_fattr(&AttrValues::KNOWN),
        };
        let ops = vec![ArgOp::Putfh(self.root.clone()), ArgOp::Create(make), ArgOp::Getfh];
        let mut results = self.all(ops).await?;
        results.take(OpNum::CREATE)?;
        Ok(results.getfh()?)
    }

    async fn create(&self, dir: &FileHandle, name: &[u8]) -> Result<(FileHandle, Stateid)> {
        create(&self.session, dir, name).await
    }

    async fn write(
        &self,
        file: &FileHandle,
        open: Stateid,
        offset: u64,
        stable: StableHow,
        data: &Bytes,
    ) -> Result<()> {
        write(&self.session, file, open, offset, stable, data).await.map(drop)
    }

    async fn read(&self, file: &FileHandle, open: Stateid, offset: u64, expected: &Bytes) -> Result<()> {
        read(&self.session, file, open, offset, expected).await
    }

    async fn close(&self, file: &FileHandle, open: Stateid) -> Result<()> {
        close(&self.session, file, open).await
    }

    async fn one(&self, kind: Kind) -> Result<()> {
        match kind {
            Kind::Getattr => {
                let ops = vec![ArgOp::Putfh(self.file.clone()), ArgOp::Getattr(ATTRS)];
                self.all(ops).await?.getattr()?;
            }
            Kind::Lookup => {
                let name = file_name(self.made.fetch_add(1, Ordering::Relaxed) % DIR_FILES);
                let ops = vec![
                    ArgOp::Putfh(self.dir.clone()),
                    ArgOp::Lookup(name),
                    ArgOp::Getfh,
                    ArgOp::Getattr(ATTRS),
                ];
                let mut results = self.all(ops).await?;
                results.take(OpNum::LOOKUP)?;
                results.getfh()?;
            }
            Kind::Read4k => self.read(&self.file, self.open, 0, &self.content).await?,
            Kind::Readdirplus => {
                let seen = list(&self.session, &self.dir).await?;
                if seen != DIR_FILES {
                    return Err(failed("READDIR", format!("{seen} entries instead of {DIR_FILES}")));
                }
            }
            Kind::CreateWriteSetattr => {
                let name = format!("{}{}", self.prefix, self.made.fetch_add(1, Ordering::Relaxed));
                let (file, open) = self.create(&self.root, name.as_bytes()).await?;
                self.write(&file, open, 0, StableHow::FileSync, &self.content).await?;
                let at = Some(SetTime::ClientTime(NfsTime { seconds: 1_000_000_000, nseconds: 5 }));
                let times = AttrValues { time_access_set: at, time_modify_set: at, ..AttrValues::default() };
                let set =
                    SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: times.to_fattr(&AttrValues::KNOWN) };
                let ops = vec![ArgOp::Putfh(file.clone()), ArgOp::Setattr(set), ArgOp::Getattr(ATTRS)];
                self.all(ops).await?;
                self.close(&file, open).await?;
            }
        }
        Ok(())
    }
}
