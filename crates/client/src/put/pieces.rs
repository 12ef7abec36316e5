//! Files that come in pieces: large ones, and sparse ones.
//!
//! A file of one piece is written FILE_SYNC. The pieces of a larger one are written UNSTABLE, several at a time. After
//! [`limits::PIECES_PER_COMMIT`] of them a COMMIT follows. The pieces stay in memory until the COMMIT's verifier equals that
//! of their writes; if it differs, they are written again (RFC 8881 section 18.3.3).

use std::ops::RangeInclusive;
use std::sync::Arc;

use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_WRITE;
use landfast_nfs::v4::{ArgOp, FileHandle, FileType, OpNum, StableHow, Stateid};
use tokio::sync::mpsc;

use super::existing::Existing;
use super::plan::{Leftover, SlowDone, SlowTask};
use super::report::{Cause, MemberError};
use super::source::Piece;
use super::spelling;
use super::stepwise::{self, WriteMode};
use super::trouble::Trouble;
use crate::compound::{fattr, values};
use crate::fs::open_file::{self, OpenFile, commit_group};
use crate::fs::step::{self, StepError};
use crate::limits;
use crate::patience::Patience;
use crate::resume::Part;
use crate::session::Session;
use crate::url::Version;

/// Extracts a file of `size` bytes. `pieces` ends after the last one. The part that an earlier run wrote does not come.
pub(super) async fn extract<P>(
    session: &Session,
    task: &SlowTask<P>,
    (size, pieces): (u64, &mut mpsc::Receiver<Result<Piece, String>>),
    existing: Existing,
    part: &mut Option<Part>,
) -> Result<SlowDone, Trouble> {
    if let Leftover::Opened(fh, stateid) = &task.leftover {
        open_file::close(session, fh, *stateid).await;
    }
    let Some((file, _)) = open_part(session, task, existing, (part.as_ref(), size)).await? else {
        return Ok(SlowDone::Skipped);
    };
    let file = Arc::new(file);
    let done = match fill(session, &file, pieces, part).await {
        Ok(end) => stepwise::finish(session, &file, task, (end != size).then_some(size)).await,
        Err(e) => Err(e),
    };
    close(session, &file).await;
    done.map(|()| SlowDone::Done)
}

pub(super) async fn close(session: &Session, file: &OpenFile) {
    if file.stateid() != Stateid::ANONYMOUS {
        open_file::close(session, &file.fh, file.stateid()).await;
    }
}

/// Opens the unfinished file of an earlier run, if there is one. Otherwise as [`open`].
pub(super) async fn open_part<P>(
    session: &Session,
    task: &SlowTask<P>,
    existing: Existing,
    (part, size): (Option<&Part>, u64),
) -> Result<Option<(OpenFile, WriteMode)>, Trouble> {
    let Some((part, (fh, from))) = part.and_then(|part| Some((part, part.unfinished()?))) else {
        return open(session, task, existing).await;
    };
    match open_unfinished(session, task, fh, from..=size).await {
        Ok(file) => Ok(Some((file, WriteMode::Overwrite))),
        Err(e) => {
            // Another run may succeed if the server can be reached. Otherwise none will.
            if !matches!(e, Trouble::Step(StepError::Fatal(_) | StepError::Unknown(_))) {
                part.forget();
            }
            Err(e)
        }
    }
}

/// Opens an unfinished file that still has its name, and a size between these.
async fn open_unfinished<P>(
    session: &Session,
    task: &SlowTask<P>,
    fh: &FileHandle,
    sizes: RangeInclusive<u64>,
) -> Result<OpenFile, Trouble> {
    let mask = Bitmap::of(&[number::TYPE, number::SIZE]);
    let ops = vec![
        ArgOp::Putfh(task.dir.clone()),
        ArgOp::Lookup(task.name.clone()),
        ArgOp::Getfh,
        ArgOp::Getattr(mask),
    ];
    let mut results = step::ask(session, ops).await?;
    results.skip(&[OpNum::PUTFH, OpNum::LOOKUP])?;
    let named = results.getfh()?;
    let attrs = values(&results.getattr()?)?;
    let is_it = attrs.kind == Some(FileType::Reg) && attrs.size.is_some_and(|size| sizes.contains(&size));
    if named != *fh || !is_it {
        return Err(Trouble::other("what an earlier run has copied of it is there no more; copy it again"));
    }
    let mut file = match session.version() {
        Version::V41 | Version::V42 => {
            open_file::open_as(session, named, OPEN4_SHARE_ACCESS_WRITE, u64::from(task.id.0)).await?
        }
        // Earlier versions cannot open by filehandle. They write without an open.
        _ => OpenFile::of(named, Stateid::ANONYMOUS, u64::from(task.id.0), OPEN4_SHARE_ACCESS_WRITE),
    };
    // All attributes except the size, which was set to zero.
    let create =
        AttrValues { size: None, ..AttrValues::from_fattr(&task.job.attrs.create).unwrap_or_default() };
    file.missing = fattr(&create).mask;
    Ok(file)
}

/// Creates the file, or opens and truncates the existing one. `None`: the existing object stays, as requested.
pub(super) async fn open<P>(
    session: &Session,
    task: &SlowTask<P>,
    existing: Existing,
) -> Result<Option<(OpenFile, WriteMode)>, Trouble> {
    let mut write_mode = match stepwise::write_mode(session, task, existing).await? {
        Some(write_mode) => write_mode,
        None => return Ok(None),
    };
    let mut tries = 0;
    let mut patience = Patience::new();
    loop {
        tries += 1;
        match stepwise::open(session, task, write_mode, existing).await {
            Err(Trouble::Step(StepError::Unknown(_)))
                if stepwise::may_be_older(task, write_mode, existing) =>
            {
                return Err(Trouble::Refused(MemberError::outcome_unknown()));
            }
            Err(Trouble::Step(StepError::Unknown(_))) if patience.wait().await => {
                tries -= 1;
                if write_mode == WriteMode::New {
                    spelling::check(session, task).await?;
                    write_mode = WriteMode::Replace;
                }
            }
            Err(e) if e.status() == Some(landfast_nfs::v4::NfsStat::NFS4ERR_EXIST) => match existing {
                Existing::Keep => return Err(Trouble::Refused(MemberError::exists())),
                Existing::Look(over) if tries < limits::REPLACE_TRIES => {
                    spelling::check(session, task).await?;
                    match stepwise::look(session, task, over).await? {
                        Some(now) => write_mode = now,
                        None => return Ok(None),
                    }
                }
                _ if tries < limits::REPLACE_TRIES => {
                    spelling::check(session, task).await?;
                    write_mode = if existing == Existing::Overwrite {
                        WriteMode::Overwrite
                    } else {
                        WriteMode::Replace
                    };
                }
                _ => return Err(e),
            },
            other => return other.map(|file| Some((file, write_mode))),
        }
    }
}

/// Writes all pieces. Returns the end offset of the last one.
async fn fill(
    session: &Session,
    file: &Arc<OpenFile>,
    pieces: &mut mpsc::Receiver<Result<Piece, String>>,
    part: &mut Option<Part>,
) -> Result<u64, Trouble> {
    let mut end = part.as_ref().map_or(0, Part::from);
    let mut digest = None;
    loop {
        let mut group = Vec::with_capacity(limits::PIECES_PER_COMMIT);
        let mut over = false;
        while group.len() < limits::PIECES_PER_COMMIT && !over {
            match pieces.recv().await {
                Some(piece) => {
                    group.push(piece.map_err(|why| Trouble::Refused(MemberError::new(Cause::Unread, why)))?)
                }
                None => over = true,
            }
        }
        (end, digest) = group.last().map_or((end, digest), |p| (p.offset + p.data.len() as u64, p.digest));
        match &group[..] {
            [] => return Ok(end),
            [one] => {
                open_file::write(session, file, one.offset, &one.data, StableHow::FileSync).await?;
            }
            _ => {
                let parts: Vec<_> = group.iter().map(|p| (p.offset, p.data.clone())).collect();
                commit_group(session, file, &parts).await?;
            }
        }
        if over {
            return Ok(end);
        }
        if let Some(part) = part {
            part.stable(&file.fh.0, end, digest);
        }
    }
}
