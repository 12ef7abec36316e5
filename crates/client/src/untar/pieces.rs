//! Files that come in pieces: large ones, and sparse ones.
//!
//! A file of one piece is written stably. Of a larger one, pieces go out UNSTABLE, several at a time, and
//! every [`limits::PIECES_PER_COMMIT`] of them a COMMIT follows; they are held until its verifier is that
//! of their writes, and written again when it is not (RFC 8881 section 18.3.3).

use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::args::CommitArgs;
use landfast_nfs::v4::{ArgOp, OpNum, StableHow, Verifier};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::careful::{self, How, OpenFile, Trouble};
use super::existing::Existing;
use super::plan::{Leftover, SlowDone, SlowTask};
use super::report::{Cause, Why};
use super::source::Piece;
use super::spelling;
use crate::limits;
use crate::session::Session;

/// Extracts a file of `size` bytes. `pieces` end when all have come.
pub(super) async fn extract<P>(
    session: &Session,
    task: &SlowTask<P>,
    size: u64,
    pieces: &mut mpsc::Receiver<Result<Piece, String>>,
    existing: Existing,
) -> Result<SlowDone, Trouble> {
    if let Leftover::Opened(fh, stateid) = &task.leftover {
        careful::close(session, fh, *stateid).await;
    }
    let Some((file, _)) = open(session, task, existing).await? else { return Ok(SlowDone::Skipped) };
    let file = Arc::new(file);
    let done = match fill(session, &file, pieces).await {
        Ok(end) => careful::finish(session, &file, task, (end != size).then_some(size)).await,
        Err(e) => Err(e),
    };
    careful::close(session, &file.fh, file.stateid()).await;
    done.map(|()| SlowDone::Done)
}

/// Makes the file, or opens and empties what has its name, and how that came; `None`: what is there stays, as asked.
pub(super) async fn open<P>(
    session: &Session,
    task: &SlowTask<P>,
    existing: Existing,
) -> Result<Option<(OpenFile, How)>, Trouble> {
    let mut how = match careful::how(session, task, existing).await? {
        Some(how) => how,
        None => return Ok(None),
    };
    let mut tries = 0;
    loop {
        tries += 1;
        match careful::open(session, task, how, existing).await {
            Err(Trouble::Unknown(_)) if tries < limits::REPLACE_TRIES => {
                if how == How::New {
                    spelling::check(session, task).await?;
                    how = How::Replace;
                }
            }
            Err(e) if e.status() == Some(landfast_nfs::v4::NfsStat::NFS4ERR_EXIST) => match existing {
                Existing::Keep => return Err(Trouble::Other("File exists".into())),
                Existing::Look(over) if tries < limits::REPLACE_TRIES => {
                    spelling::check(session, task).await?;
                    match careful::look(session, task, over).await? {
                        Some(now) => how = now,
                        None => return Ok(None),
                    }
                }
                _ if tries < limits::REPLACE_TRIES => {
                    spelling::check(session, task).await?;
                    how = if existing == Existing::Overwrite { How::Into } else { How::Replace };
                }
                _ => return Err(e),
            },
            other => return other.map(|file| Some((file, how))),
        }
    }
}

/// Writes all pieces; the end of the last one.
async fn fill(
    session: &Session,
    file: &Arc<OpenFile>,
    pieces: &mut mpsc::Receiver<Result<Piece, String>>,
) -> Result<u64, Trouble> {
    let mut end = 0;
    loop {
        let mut group = Vec::with_capacity(limits::PIECES_PER_COMMIT);
        let mut over = false;
        while group.len() < limits::PIECES_PER_COMMIT && !over {
            match pieces.recv().await {
                Some(piece) => {
                    group.push(piece.map_err(|why| Trouble::Refused(Why::of(Cause::Unread, why)))?)
                }
                None => over = true,
            }
        }
        end = group.last().map_or(end, |p| p.offset + p.data.len() as u64);
        match &group[..] {
            [] => return Ok(end),
            [one] => {
                careful::write(session, file, one.offset, &one.data, StableHow::FileSync).await?;
            }
            _ => {
                let parts: Vec<_> = group.iter().map(|p| (p.offset, p.data.clone())).collect();
                commit_group(session, file, &parts).await?;
            }
        }
        if over {
            return Ok(end);
        }
    }
}

/// Writes parts of a file, each with its place, several at a time, and makes them stable.
pub(super) async fn commit_group(
    session: &Session,
    file: &Arc<OpenFile>,
    group: &[(u64, Bytes)],
) -> Result<(), Trouble> {
    for _ in 0..limits::REWRITES_MAX {
        let mut writes = JoinSet::new();
        for (offset, data) in group {
            let (session, file, offset, data) = (session.clone(), file.clone(), *offset, data.clone());
            writes.spawn(
                async move { careful::write(&session, &file, offset, &data, StableHow::Unstable).await },
            );
        }
        // Writes that were stable at once have no verifier.
        let mut verifiers: Vec<Verifier> = Vec::new();
        let mut again = false;
        while let Some(written) = writes.join_next().await {
            match written.map_err(|e| Trouble::Other(e.to_string()))? {
                Ok(verifier) => verifiers.extend(verifier),
                Err(Trouble::Unknown(_)) => again = true,
                Err(e) => return Err(e),
            }
        }
        if again {
            continue;
        }
        if verifiers.is_empty() {
            return Ok(());
        }
        let ops = vec![ArgOp::Putfh(file.fh.clone()), ArgOp::Commit(CommitArgs { offset: 0, count: 0 })];
        let mut results = match careful::step(session, ops).await {
            Err(Trouble::Unknown(_)) => continue,
            other => other?,
        };
        results.skip(&[OpNum::PUTFH])?;
        let committed = results.commit()?;
        if verifiers.iter().all(|v| *v == committed) {
            return Ok(());
        }
    }
    Err(Trouble::Other("the server keeps losing what was written".into()))
}
