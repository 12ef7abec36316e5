//! Copies one file within a server: a large one, or one that did not go with others in a COMPOUND.
//!
//! Both files are open meanwhile, as COPY requires (RFC 7862 section 15.2.3). After each [`limits::COPY_PIECE_BYTES`] a COMMIT makes
//! unstable data durable. If its verifier differs from that of the COPYs, the piece is copied again. A file that the server does not
//! copy is read and written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfast_nfs::v4::args::CommitArgs;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::data::WriteResponse;
use landfast_nfs::v4::flags::{OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE};
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat, OpNum, ResBody, StableHow, Stateid, Verifier};

use super::choice::{CopyMethod, clone, copy};
use super::original::Original;
use crate::compound::{OpError, fattr};
use crate::fs::open_file::{self, OpenFile, commit_group};
use crate::fs::step::{self, StepError};
use crate::fs::{Failure, Nfs, Outcome};
use crate::limits;
use crate::patience::Patience;
use crate::session::Session;
use crate::url::Version;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error("{text}")]
    Unopened { status: Option<NfsStat>, text: String },
    #[error("{text}")]
    Unread { status: Option<NfsStat>, text: String },
    /// Only CLONE was allowed, and the server refuses it.
    #[error("{0}")]
    Uncloned(OpError),
}

impl From<OpError> for CopyError {
    fn from(e: OpError) -> CopyError {
        CopyError::Step(e.into())
    }
}

/// How much of a copy is stable, as known and noted.
pub(crate) trait Stable: Send {
    /// All before this offset is stable.
    fn from(&self) -> u64;

    /// Notes that all before `upto` is stable in the file `fh`.
    fn note(&mut self, fh: &[u8], upto: u64);
}

struct NoNotes;

impl Stable for NoNotes {
    fn from(&self) -> u64 {
        0
    }

    fn note(&mut self, _fh: &[u8], _upto: u64) {}
}

/// Copies over an existing file and returns the number of bytes. `number`: an open owner that no other copy in flight
/// uses.
pub(super) async fn over(nfs: &Nfs, fh: FileHandle, original: &Original, number: u64) -> Outcome<u64> {
    let session = nfs.session();
    let done = async {
        // Earlier versions cannot open by handle; they write without an open.
        let opens = matches!(session.version(), Version::V41 | Version::V42);
        let file = match opens {
            true => open_file::open_as(session, fh, OPEN4_SHARE_ACCESS_WRITE, number).await?,
            false => OpenFile::of(fh, Stateid::ANONYMOUS, number, OPEN4_SHARE_ACCESS_WRITE),
        };
        let file = Arc::new(file);
        let done = fill_over(session, &file, original, number).await;
        if opens {
            open_file::close(session, &file.fh, file.stateid()).await;
        }
        done
    };
    let failed = |status| Outcome::Failed(Failure::Status { op: OpNum::COPY, status });
    match done.await {
        Ok(()) => Outcome::Committed(original.size),
        Err(CopyError::Step(e)) => match e {
            StepError::Op(e) => Outcome::Failed(e.into()),
            StepError::Unknown(why) => Outcome::Unknown(why),
            StepError::Fatal(e) => Outcome::from(e),
            StepError::Other(_) => failed(NfsStat::NFS4ERR_IO),
        },
        Err(CopyError::Unopened { status, .. } | CopyError::Unread { status, .. }) => {
            failed(status.unwrap_or(NfsStat::NFS4ERR_IO))
        }
        Err(CopyError::Uncloned(e)) => failed(e.status()),
    }
}

async fn fill_over(
    session: &Session,
    file: &Arc<OpenFile>,
    original: &Original,
    number: u64,
) -> Result<(), CopyError> {
    if file.fh == original.fh {
        // As a server refuses it. Where this client reads and writes the data, no server would.
        return Err(OpError::Failed { op: OpNum::COPY, status: NfsStat::NFS4ERR_INVAL }.into());
    }
    let source = match original.way() {
        CopyMethod::Read => None,
        CopyMethod::Clone | CopyMethod::Copy => {
            Some(open_file::open_as(session, original.fh.clone(), OPEN4_SHARE_ACCESS_READ, number).await?)
        }
    };
    let done = fill(session, file, source.as_ref(), original, &mut NoNotes).await;
    if let Some(source) = source {
        open_file::close(session, &source.fh, source.stateid()).await;
    }
    done?;
    let size = fattr(&AttrValues { size: Some(original.size), ..AttrValues::default() });
    Ok(open_file::set(session, &file.fh, &size).await?)
}

/// Copies all data in the best way that the server supports.
pub(crate) async fn fill(
    session: &Session,
    file: &Arc<OpenFile>,
    source: Option<&OpenFile>,
    original: &Original,
    stable: &mut dyn Stable,
) -> Result<(), CopyError> {
    if original.size == 0 {
        return Ok(());
    }
    let mut way = original.way();
    loop {
        let refused = match (way, source) {
            (CopyMethod::Clone, Some(source)) => cloned(session, file, source).await?,
            (CopyMethod::Copy, Some(source)) => copied(session, file, source, original.size, stable).await?,
            _ => return through_here(session, file, original, stable).await,
        };
        let Some((op, status)) = refused else { return Ok(()) };
        if !original.copies.refused(original.fsid, op, status) {
            let e = OpError::Failed { op, status };
            return Err(match op {
                OpNum::CLONE => CopyError::Uncloned(e),
                _ => e.into(),
            });
        }
        way = original.way().max(if way == CopyMethod::Clone { CopyMethod::Copy } else { CopyMethod::Read });
    }
}

/// Why the server did not copy; `None`: it did.
type Refusal = Option<(OpNum, NfsStat)>;

/// Operations after which the source is the saved filehandle and the destination the current one.
fn both(file: &OpenFile, source: &OpenFile, then: Vec<ArgOp>) -> Vec<ArgOp> {
    let mut ops = vec![ArgOp::Putfh(source.fh.clone()), ArgOp::Savefh, ArgOp::Putfh(file.fh.clone())];
    ops.extend(then);
    ops
}

const BOTH: [OpNum; 3] = [OpNum::PUTFH, OpNum::SAVEFH, OpNum::PUTFH];

/// Opens again what the server has forgotten. Returns `true` if that was the cause.
async fn forgotten(
    session: &Session,
    file: &OpenFile,
    source: &OpenFile,
    stateids: (Stateid, Stateid),
    status: NfsStat,
) -> Result<bool, CopyError> {
    if !open_file::state_lost(status) {
        return Ok(false);
    }
    open_file::reopen(session, source, stateids.0).await?;
    open_file::reopen(session, file, stateids.1).await?;
    Ok(true)
}

async fn cloned(session: &Session, file: &OpenFile, source: &OpenFile) -> Result<Refusal, CopyError> {
    let mut patience = Patience::new();
    while patience.turn().await {
        let stateids = (source.stateid(), file.stateid());
        // CLONE has no verifier. The COMMIT is in the same COMPOUND, so the same instance of the server executes both.
        let commit = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
        let ops = both(file, source, vec![clone(stateids.0, stateids.1), commit]);
        let mut results = match step::step(session, ops).await {
            // Cloning twice does no harm.
            Err(StepError::Unknown(_)) => continue,
            other => other?,
        };
        results.skip(&BOTH)?;
        match results.take(OpNum::CLONE) {
            Ok(_) => {
                results.commit()?;
                return Ok(None);
            }
            Err(e) if forgotten(session, file, source, stateids, e.status()).await? => {}
            Err(e) => return Ok(Some((OpNum::CLONE, e.status()))),
        }
    }
    Err(StepError::Unknown("the server keeps losing what it cloned".into()).into())
}

async fn copied(
    session: &Session,
    file: &OpenFile,
    source: &OpenFile,
    size: u64,
    stable: &mut dyn Stable,
) -> Result<Refusal, CopyError> {
    // All before it is stable.
    let mut durable = stable.from();
    // A server that shall reply at the end of a copy replies after a small part of a large one, or not for a long time.
    let (mut goes_on, mut otherwise) = (size > limits::COPY_PIECE_BYTES, false);
    let mut patience = Patience::new();
    'again: while patience.turn().await {
        let (mut at, mut verifier): (u64, Option<Verifier>) = (durable, None);
        while at < size {
            let stateids = (source.stateid(), file.stateid());
            let count = (size - at).min(limits::COPY_PIECE_BYTES);
            let waits = !(goes_on && session.binds_back_channel().await);
            let ops = both(file, source, vec![copy(stateids.0, stateids.1, at, count, waits)]);
            let mut results = match step::step(session, ops).await {
                Err(StepError::Unknown(_)) => continue 'again,
                other => other?,
            };
            results.skip(&BOTH)?;
            let done = match results.take(OpNum::COPY) {
                Ok(ResBody::Copy(done)) => done.response,
                Ok(_) => return Err(OpError::Missing { op: OpNum::COPY }.into()),
                // The server copies only in the other way.
                Err(e) if e.status() == NfsStat::NFS4ERR_OFFLOAD_NO_REQS && !otherwise => {
                    (goes_on, otherwise) = (waits, true);
                    continue;
                }
                Err(e) if forgotten(session, file, source, stateids, e.status()).await? => continue 'again,
                Err(e) => return Ok(Some((OpNum::COPY, e.status()))),
            };
            let done = match done.callback_id {
                None => done,
                Some(id) => match ended(session, file, id, done).await? {
                    End::Copied(done) => done,
                    End::Refused(status) => return Ok(Some((OpNum::COPY, status))),
                    End::Unknown => {
                        goes_on = false;
                        continue 'again;
                    }
                },
            };
            if done.count == 0 || done.count > count {
                let text = "it became shorter while it was copied".to_owned();
                return Err(CopyError::Unread { status: None, text });
            }
            if done.committed != StableHow::FileSync {
                if verifier.is_some_and(|v| v != done.writeverf) {
                    continue 'again;
                }
                verifier = Some(done.writeverf);
            }
            at += done.count;
            if at < size && at - durable < limits::COPY_PIECE_BYTES {
                continue;
            }
            if let Some(verifier) = verifier.take() {
                let commit = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
                let mut results = match step::step(session, vec![ArgOp::Putfh(file.fh.clone()), commit]).await
                {
                    Err(StepError::Unknown(_)) => continue 'again,
                    other => other?,
                };
                results.skip(&[OpNum::PUTFH])?;
                if results.commit()? != verifier {
                    continue 'again;
                }
            }
            durable = at;
            patience.progress();
            stable.note(&file.fh.0, durable);
        }
        return Ok(None);
    }
    Err(StepError::Unknown("the server keeps losing what it copied".into()).into())
}

/// How an asynchronous copy ended.
enum End {
    Copied(WriteResponse),
    Refused(NfsStat),
    /// The server does not know the copy any more, or does not continue it.
    Unknown,
}

/// Waits for the end of a copy that goes on by itself, `begun`.
///
/// The server tells it (CB_OFFLOAD) and is asked beside that: its call may be lost, and some forget a copy at its end. What it says
/// when it is asked counts as unstable: only a COMMIT behind it makes it stable.
async fn ended(
    session: &Session,
    file: &OpenFile,
    id: Stateid,
    begun: WriteResponse,
) -> Result<End, CopyError> {
    let mut pause = limits::BACKOFF_MIN;
    let mut last = (0, Instant::now());
    let told = async |patience| {
        session.copy_end(&file.fh, &id, patience).await.map(|end| match end {
            Ok(done) => End::Copied(WriteResponse { callback_id: None, ..done }),
            Err((status, _)) => End::Refused(status),
        })
    };
    loop {
        if let Some(end) = told(pause).await {
            return Ok(end);
        }
        pause = (pause * 2).min(limits::BACKOFF_MAX);
        let ops = vec![ArgOp::Putfh(file.fh.clone()), ArgOp::OffloadStatus(id)];
        let mut results = match step::step(session, ops).await {
            Err(StepError::Unknown(_)) => continue,
            other => other?,
        };
        results.skip(&[OpNum::PUTFH])?;
        let (count, complete) = match results.take(OpNum::OFFLOAD_STATUS) {
            Ok(ResBody::OffloadStatus(status)) => (status.count, status.complete),
            Ok(_) => return Err(OpError::Missing { op: OpNum::OFFLOAD_STATUS }.into()),
            Err(e) if open_file::state_lost(e.status()) => {
                // A server that has restarted sends no call for it.
                let patience =
                    if session.has_back_channel().await { limits::COPY_END_PATIENCE } else { Duration::ZERO };
                return Ok(told(patience).await.unwrap_or(End::Unknown));
            }
            // The server cannot be asked: wait for its call.
            Err(e) if e.status() == NfsStat::NFS4ERR_NOTSUPP => (last.0, None),
            Err(e) => return Err(e.into()),
        };
        match complete {
            Some(status) if status.is_ok() => {
                let committed = StableHow::Unstable;
                return Ok(End::Copied(WriteResponse { callback_id: None, count, committed, ..begun }));
            }
            Some(status) => return Ok(End::Refused(status)),
            None => {}
        }
        if count != last.0 {
            last = (count, Instant::now());
        } else if last.1.elapsed() > limits::DELAY_PATIENCE {
            // Cancel it, so that it writes nothing more while the file is copied in another way.
            let ops = vec![ArgOp::Putfh(file.fh.clone()), ArgOp::OffloadCancel(id)];
            let mut results = step::step(session, ops).await?;
            results.skip(&[OpNum::PUTFH])?;
            match results.take(OpNum::OFFLOAD_CANCEL) {
                Err(e) if !open_file::state_lost(e.status()) => return Err(e.into()),
                _ => return Ok(End::Unknown),
            }
        }
    }
}

/// Reads and writes a few pieces at a time.
async fn through_here(
    session: &Session,
    file: &Arc<OpenFile>,
    original: &Original,
    stable: &mut dyn Stable,
) -> Result<(), CopyError> {
    let mut at = stable.from();
    while at < original.size {
        let end = original.size.min(at + (limits::PIECE_BYTES * limits::COPIED_PIECES) as u64);
        let ranges: Vec<_> = (at..end)
            .step_by(limits::PIECE_BYTES)
            .map(|from| (original.fh.clone(), from, (end - from).min(limits::PIECE_BYTES as u64)))
            .collect();
        let wanted: Vec<(u64, u64)> = ranges.iter().map(|(_, from, len)| (*from, *len)).collect();
        let mut group = Vec::with_capacity(wanted.len());
        for (read, (from, len)) in original.nfs.read_of(ranges).await.into_iter().zip(wanted) {
            let data = read.into_result().map_err(|e| {
                let (status, text) = (e.status(), e.to_string());
                match at {
                    0 => CopyError::Unopened { status, text },
                    _ => CopyError::Unread { status, text },
                }
            })?;
            if (data.len() as u64) < len {
                let text = "it became shorter while it was read".to_owned();
                return Err(CopyError::Unread { status: None, text });
            }
            group.push((from, data));
        }
        match &group[..] {
            [(offset, data)] => {
                open_file::write(session, file, *offset, data, StableHow::FileSync).await?;
            }
            _ => commit_group(session, file, &group).await?,
        }
        at = end;
        stable.note(&file.fh.0, at);
    }
    Ok(())
}
