//! A file that is open while it is written. Reads and writes survive a restart of the server.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use landfast_nfs::v4::args::{
    CloseArgs, CommitArgs, CreateHow, OpenArgs, OpenClaim, OpenHow, SetattrArgs, WriteArgs, owner,
};
use landfast_nfs::v4::attr::Bitmap;
use landfast_nfs::v4::flags::{
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_NONE,
};
use landfast_nfs::v4::{ArgOp, Fattr, FileHandle, NfsStat, OpNum, StableHow, Stateid, Verifier};
use tokio::task::JoinSet;

use super::step::{StepError, repeat, step};
use crate::patience::Patience;
use crate::session::Session;

#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) fh: FileHandle,
    /// The number of the open owner. No other open file has it, so no other CLOSE ends this open.
    owner: u64,
    /// Changes when the file is opened again after a restart of the server.
    stateid: Mutex<Stateid>,
    /// Held while the file is opened again.
    reopening: tokio::sync::Mutex<()>,
    /// Attributes that were requested at creation but not set.
    pub(crate) missing: Bitmap,
    pub(crate) access: u32,
}

impl OpenFile {
    /// A file that was just made, opened for writing by the open owner of this number.
    pub(crate) fn new(fh: FileHandle, stateid: Stateid, owner: u64, missing: Bitmap) -> OpenFile {
        let (stateid, access) = (Mutex::new(stateid), OPEN4_SHARE_ACCESS_WRITE);
        OpenFile { fh, owner, stateid, reopening: tokio::sync::Mutex::default(), missing, access }
    }

    /// An existing file, opened for `access`.
    pub(crate) fn of(fh: FileHandle, stateid: Stateid, owner: u64, access: u32) -> OpenFile {
        OpenFile { access, ..OpenFile::new(fh, stateid, owner, Bitmap::default()) }
    }

    pub(crate) fn stateid(&self) -> Stateid {
        *self.stateid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a file by its handle for `access`, with the open owner of this number.
pub(crate) async fn open_as(
    session: &Session,
    fh: FileHandle,
    access: u32,
    number: u64,
) -> Result<OpenFile, StepError> {
    let stateid = open_by_handle(session, &fh, access, number).await?;
    Ok(OpenFile::of(fh, stateid, number, access))
}

/// Writes all of `data`. Returns the verifier if the data is not stable yet.
pub(crate) async fn write(
    session: &Session,
    file: &OpenFile,
    offset: u64,
    data: &Bytes,
    stable: StableHow,
) -> Result<Option<landfast_nfs::v4::Verifier>, StepError> {
    let mut done = 0;
    let mut patience = Patience::new();
    let mut verifier = None;
    while done < data.len() {
        let max = (session.limits().request as usize).saturating_sub(1024).max(512);
        let part = data.slice(done..data.len().min(done + max));
        let stateid = file.stateid();
        let write = WriteArgs { stateid, offset: offset + done as u64, stable, data: part };
        let ops = vec![ArgOp::Putfh(file.fh.clone()), ArgOp::Write(write)];
        // Writing the same data again does no harm.
        let mut results = repeat(session, ops).await?;
        results.skip(&[OpNum::PUTFH])?;
        let res = match results.write() {
            Err(e) if state_lost(e.status()) && patience.turn().await => {
                reopen(session, file, stateid).await?;
                continue;
            }
            other => other?,
        };
        patience.progress();
        if res.count == 0 || res.count as usize > data.len() - done {
            return Err(StepError::Other("the server writes nothing".into()));
        }
        if res.committed != StableHow::FileSync {
            if verifier.is_some_and(|v| v != res.writeverf) {
                return Err(StepError::Unknown("the server restarted in the middle of a write".into()));
            }
            verifier = Some(res.writeverf);
        }
        done += res.count as usize;
    }
    match verifier {
        Some(_) if stable == StableHow::FileSync => {
            Err(StepError::Other("the server does not write stably".into()))
        }
        verifier => Ok(verifier),
    }
}

/// Whether the stateid is no longer valid: the server restarted, the lease expired, or the file was opened again.
pub(crate) fn state_lost(status: NfsStat) -> bool {
    matches!(
        status,
        NfsStat::NFS4ERR_BAD_STATEID
            | NfsStat::NFS4ERR_STALE_STATEID
            | NfsStat::NFS4ERR_OLD_STATEID
            | NfsStat::NFS4ERR_EXPIRED
            | NfsStat::NFS4ERR_ADMIN_REVOKED
    )
}

/// Opens a file again by its handle, unless that was done since `old`. One at a time: a second OPEN by the same owner
/// outdates the stateid of the first (RFC 8881 section 18.16.3).
pub(crate) async fn reopen(session: &Session, file: &OpenFile, old: Stateid) -> Result<(), StepError> {
    let _one_at_a_time = file.reopening.lock().await;
    if file.stateid() != old {
        return Ok(());
    }
    let stateid = match open_by_handle(session, &file.fh, file.access, file.owner).await {
        // The mode has changed and now denies it. The owner may write the data all the same.
        Err(e) if matches!(e.status(), Some(NfsStat::NFS4ERR_ACCESS | NfsStat::NFS4ERR_PERM)) => {
            Stateid::ANONYMOUS
        }
        opened => opened?,
    };
    *file.stateid.lock().unwrap_or_else(PoisonError::into_inner) = stateid;
    Ok(())
}

/// Opens a file by its handle for `access`. Opening it twice does no harm.
pub(crate) async fn open_by_handle(
    session: &Session,
    fh: &FileHandle,
    access: u32,
    owner: u64,
) -> Result<Stateid, StepError> {
    let mut args = open_args(owner, &Bytes::new(), &Fattr::default());
    args.share_access = access | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
    (args.openhow, args.claim) = (OpenHow::NoCreate, OpenClaim::Fh);
    let mut results = repeat(session, vec![ArgOp::Putfh(fh.clone()), ArgOp::Open(args)]).await?;
    results.skip(&[OpNum::PUTFH])?;
    Ok(results.open()?.stateid)
}

pub(crate) async fn set(session: &Session, fh: &FileHandle, attrs: &Fattr) -> Result<(), StepError> {
    let ops = vec![
        ArgOp::Putfh(fh.clone()),
        ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: attrs.clone() }),
    ];
    // Setting the same values again does no harm.
    let mut results = repeat(session, ops).await?;
    Ok(results.skip(&[OpNum::PUTFH, OpNum::SETATTR])?)
}

/// Closes a file. Its data is already stable: after a failure only the open stays on the server until the lease
/// expires.
pub(crate) async fn close(session: &Session, fh: &FileHandle, stateid: Stateid) {
    let ops = vec![ArgOp::Putfh(fh.clone()), ArgOp::Close(CloseArgs { seqid: 0, open_stateid: stateid })];
    let closed = repeat(session, ops).await.map(|mut r| r.skip(&[OpNum::PUTFH, OpNum::CLOSE]));
    if let Err(e) | Ok(Err(e)) = closed.map(|r| r.map_err(StepError::from)) {
        tracing::debug!("CLOSE: {e}");
    }
}

/// Writes parts of a file at their offsets, several at a time, and makes them stable.
pub(crate) async fn commit_group(
    session: &Session,
    file: &Arc<OpenFile>,
    group: &[(u64, Bytes)],
) -> Result<(), StepError> {
    let mut patience = Patience::new();
    while patience.turn().await {
        let mut writes = JoinSet::new();
        for (offset, data) in group {
            let (session, file, offset, data) = (session.clone(), file.clone(), *offset, data.clone());
            writes.spawn(async move { write(&session, &file, offset, &data, StableHow::Unstable).await });
        }
        // WRITEs that were stable at once have no verifier.
        let mut verifiers: Vec<Verifier> = Vec::new();
        let mut again = false;
        while let Some(written) = writes.join_next().await {
            match written.map_err(|e| StepError::Other(e.to_string()))? {
                Ok(verifier) => verifiers.extend(verifier),
                Err(StepError::Unknown(_)) => again = true,
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
        let mut results = match step(session, ops).await {
            Err(StepError::Unknown(_)) => continue,
            other => other?,
        };
        results.skip(&[OpNum::PUTFH])?;
        let committed = results.commit()?;
        if verifiers.iter().all(|v| *v == committed) {
            return Ok(());
        }
    }
    Err(StepError::Other("the server keeps losing what was written".into()))
}

/// An OPEN that makes a new file. Opens of different COMPOUNDs have different owners, so that they do not wait for one
/// owner's lock in the server.
pub(crate) fn open_args(number: u64, name: &Bytes, create: &Fattr) -> OpenArgs {
    OpenArgs {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: owner(0, &[b'u', b'n', b't', b'a', b'r', b' ', (number % 64) as u8]),
        openhow: OpenHow::Create(CreateHow::Guarded(create.clone())),
        claim: OpenClaim::Null(name.clone()),
    }
}
