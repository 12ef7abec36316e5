//! Copies that continue after the reply to their COPY: the shell around [`crate::state::copies`].
//!
//! Copies run on threads of their own, a few megabytes at a time. So several copies share the threads, and one can be
//! stopped in between. Nobody waits for them, so these threads have a low priority. What CB_OFFLOAD reports is durable:
//! the destination was flushed and the log has it.

use crate::backchannel;
use crate::errors::status;
use crate::limits;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::state::copies::Progress;
use crate::touches::Touching;
use bytes::Bytes;
use landfast_nfs::v4::callback::{CbOffloadArgs, CbOp};
use landfast_nfs::v4::data::WriteResponse;
use landfast_nfs::v4::{FileHandle, NfsStat, SessionId, StableHow, Stateid};
use landfast_volume::{Error, OpenFile, Volume};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

pub(crate) struct Offload {
    pub(crate) stateid: Stateid,
    pub(crate) client: u64,
    /// The client whose turn it is when a step runs.
    pub(crate) addr: IpAddr,
    pub(crate) session: SessionId,
    pub(crate) minor: u32,
    /// The destination as the client knows it.
    pub(crate) fh: Bytes,
    pub(crate) volume: Volume,
    pub(crate) source: OpenFile,
    pub(crate) source_offset: u64,
    pub(crate) dest: OpenFile,
    pub(crate) dest_offset: u64,
    pub(crate) count: u64,
    pub(crate) verifier: [u8; 8],
    pub(crate) progress: Arc<Progress>,
    pub(crate) permit: OwnedSemaphorePermit,
    /// Source and destination are at work until it has ended.
    pub(crate) touching: Vec<Touching>,
}

/// Copies, then tells the client.
pub(crate) async fn run(sh: Arc<Shared>, pool: Arc<Pool>, job: Offload) {
    let Offload { stateid, client, session, minor, fh, count, verifier, .. } = job;
    let (source, dest) = ((job.source, job.source_offset), (job.dest, job.dest_offset));
    let progress = job.progress;
    let pool = (&*pool, job.addr);
    let copied = copy(&sh, pool, &job.volume, source, dest, count, &progress).await;
    drop((job.volume, job.permit, job.touching));
    if progress.is_cancelled() {
        return;
    }
    let outcome = match copied {
        Ok(count) => Ok(WriteResponse {
            callback_id: None,
            count,
            committed: StableHow::FileSync,
            writeverf: verifier,
        }),
        Err(e) => Err((status(e), progress.bytes())),
    };
    let ended = outcome.as_ref().err().map_or(NfsStat::NFS4_OK, |(status, _)| *status);
    sh.state().copies.ended(&stateid, ended, sh.now());
    let args = CbOffloadArgs { fh: FileHandle(fh), stateid, outcome };
    for tried in 0..limits::CALLBACK_TRIES {
        if tried > 0 {
            tokio::time::sleep(Duration::from_millis(limits::CALLBACK_PAUSE_MS)).await;
        }
        match backchannel::call(&sh, client, session, minor, &[], CbOp::Offload(args.clone())).await {
            Ok(NfsStat::NFS4ERR_DELAY) | Err(backchannel::Error::Unreachable) => {}
            // The client knows of the end, or does not want to.
            Ok(_) => return sh.state().copies.forget(&stateid),
            Err(backchannel::Error::Gone) => return,
        }
    }
    tracing::debug!(client, "a client could not be told of the end of a copy; it may ask");
}

/// Copies to the end or the first error.
async fn copy(
    sh: &Arc<Shared>,
    (pool, client): (&Pool, IpAddr),
    volume: &Volume,
    source: (OpenFile, u64),
    dest: (OpenFile, u64),
    count: u64,
    progress: &Arc<Progress>,
) -> Result<u64, Error> {
    let mut copied = 0;
    let mut failed = None;
    while copied < count {
        let (done, step) = oneshot::channel();
        let (volume, progress, held) = (volume.clone(), progress.clone(), sh.clone());
        let (source, dest) = (source.clone(), dest.clone());
        pool.run_for(client, move || {
            let piece = progress.step(|| {
                volume.copy_piece(&source.0, source.1 + copied, &dest.0, dest.1 + copied, count - copied)
            });
            drop((volume, source, dest, held));
            // The receiver waits until the step has run or was dropped.
            let _ = done.send(piece);
        });
        match step.await {
            Ok(Some(Ok(0))) => break,
            Ok(Some(Ok(n))) => copied += n,
            Ok(Some(Err(e))) => {
                failed = Some(e);
                break;
            }
            // Cancelled, or the step ended in a panic.
            Ok(None) | Err(_) => return Err(Error::Io),
        }
    }
    if copied == 0
        && let Some(e) = failed
    {
        return Err(e);
    }
    // Ignore the result: a volume that has failed reports it again below.
    let _ = volume.admit().await;
    let (done, settled) = oneshot::channel();
    let (volume, held) = (volume.clone(), sh.clone());
    pool.run_for(client, move || {
        let mut tx = volume.tx();
        let settled = volume.copy_settle(&mut tx, &dest.0).map(|()| tx.finish());
        drop((volume, source, dest, held));
        // As above.
        let _ = done.send(settled);
    });
    settled.await.map_err(|_| Error::Io)??.wait().await?;
    // What was copied before an error is there, and durable.
    failed.map_or(Ok(copied), Err)
}
