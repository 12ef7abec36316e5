//! The sending side of a connection: a task that owns the socket's write half. It sends together what has collected
//! during the last write.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::limits::{WRITE_BATCH_MAX, WRITE_COPY_MAX, WRITE_PROGRESS_MIN, WRITE_SEGMENTS_MAX};
use crate::record::{HEADER_LEN, last_fragment_header};
use crate::shares::ShareGuard;

/// A message to send, with its record header, and what is released when it has been written.
pub(crate) struct Outgoing {
    pub(crate) head: Bytes,
    pub(crate) rest: Vec<Bytes>,
    pub(crate) _permits: Permits,
}

/// What a call occupies until its reply is in the socket.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    pub(crate) held: Vec<OwnedSemaphorePermit>,
    pub(crate) shares: Vec<ShareGuard>,
}

/// Room for a message header, its first four bytes reserved for the record header.
pub(crate) fn head_buffer() -> BytesMut {
    let mut head = BytesMut::with_capacity(256);
    head.extend_from_slice(&[0; HEADER_LEN]);
    head
}

/// Fills in the record header of a message of `head` (from [`head_buffer`]) and `rest`.
pub(crate) fn seal(mut head: BytesMut, rest: Vec<Bytes>, permits: Permits) -> Outgoing {
    let len = head.len() - HEADER_LEN + rest.iter().map(Bytes::len).sum::<usize>();
    head[..HEADER_LEN].copy_from_slice(&last_fragment_header(len));
    Outgoing { head: head.freeze(), rest, _permits: permits }
}

/// No message: releases something when all messages before it have been written.
pub(crate) fn mark(permits: Permits) -> Outgoing {
    Outgoing { head: Bytes::new(), rest: Vec::new(), _permits: permits }
}

/// How slowly a peer may take what is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// The peer took no byte for this long.
    pub(crate) stall_max: Duration,
    /// The peer took less than [`WRITE_PROGRESS_MIN`] in this time.
    pub(crate) time_max: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("the peer takes no data")]
struct TooSlow;

/// Whether this end gave up, by [`Patience`].
pub(crate) fn too_slow(e: &io::Error) -> bool {
    e.get_ref().is_some_and(|inner| inner.is::<TooSlow>())
}

/// What a writer needs of its connection.
#[derive(Debug)]
pub(crate) struct WriteHalf {
    pub(crate) socket: OwnedWriteHalf,
    pub(crate) queue: mpsc::UnboundedReceiver<Outgoing>,
}

/// The write half of a connection. It is here while the writer waits for messages, so that somebody else may take it from a writer whose
/// thread does not go on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writing(Arc<Mutex<Option<WriteHalf>>>);

impl Writing {
    pub(crate) fn put(&self, half: WriteHalf) {
        *self.lock() = Some(half);
    }

    pub(crate) fn take(&self) -> Option<WriteHalf> {
        self.lock().take()
    }

    /// Takes it if it is here and `may`, while it stays here.
    pub(crate) fn take_if(&self, may: impl FnOnce() -> bool) -> Option<WriteHalf> {
        self.lock().take_if(|_| may())
    }

    /// Waits for messages, and takes the write half with them. `None`: somebody else has it.
    async fn receive(&self, batch: &mut Vec<Outgoing>) -> Option<(usize, Taken<'_>)> {
        poll_fn(|cx| {
            let mut here = self.lock();
            let Some(half) = here.as_mut() else { return Poll::Ready(None) };
            let taken = ready!(half.queue.poll_recv_many(cx, batch, WRITE_BATCH_MAX));
            Poll::Ready(Some((taken, Taken { from: self, half: here.take() })))
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Option<WriteHalf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write half in use. It goes back also when the writer is stopped in the middle of a message.
struct Taken<'a> {
    from: &'a Writing,
    half: Option<WriteHalf>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(half) = self.half.take() {
            self.from.put(half);
        }
    }
}

/// Why a writer ended without an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    QueueClosed,
    Paused,
    /// Somebody else writes from now on.
    Taken,
}

/// Writes messages until the socket fails, the channel closes, or `paused` says so; then all that was taken from the queue is
/// written. `written` is told how many messages have been written.
pub(crate) async fn run(
    writing: &Writing,
    patience: Patience,
    mut paused: oneshot::Receiver<()>,
    written: impl Fn(usize),
) -> io::Result<End> {
    let mut batch = Vec::with_capacity(WRITE_BATCH_MAX);
    let mut small = BytesMut::new();
    // Nobody can pause it any more if the sender is gone.
    let mut may_pause = true;
    loop {
        let received = tokio::select! {
            biased;
            asked = &mut paused, if may_pause => {
                if asked.is_ok() {
                    return Ok(End::Paused);
                }
                may_pause = false;
                continue;
            }
            received = writing.receive(&mut batch) => received,
        };
        let Some((taken, mut half)) = received else { return Ok(End::Taken) };
        if taken == 0 {
            return Ok(End::QueueClosed);
        }
        let mut pending: VecDeque<Bytes> = VecDeque::new();
        for message in &mut batch {
            let head = std::mem::take(&mut message.head);
            pending.extend(std::iter::once(head).chain(message.rest.drain(..)).filter(|b| !b.is_empty()));
        }
        if pending.len() > 1 && pending.iter().map(Bytes::len).sum::<usize>() <= WRITE_COPY_MAX {
            small.clear();
            pending.drain(..).for_each(|b| small.extend_from_slice(&b));
            pending.push_back(small.split().freeze());
        }
        let Some(WriteHalf { socket, .. }) = &mut half.half else { return Ok(End::Taken) };
        write_all(socket, &mut pending, patience).await?;
        written(batch.len());
        batch.clear();
    }
}

async fn write_all(
    socket: &mut OwnedWriteHalf,
    pending: &mut VecDeque<Bytes>,
    patience: Patience,
) -> io::Result<()> {
    let too_slow = || io::Error::new(io::ErrorKind::TimedOut, TooSlow);
    // Since when, and how much since then, once one write was not enough.
    let mut progress: Option<(Instant, usize)> = None;
    while !pending.is_empty() {
        let slices: Vec<IoSlice<'_>> =
            pending.iter().take(WRITE_SEGMENTS_MAX).map(|b| IoSlice::new(b)).collect();
        let mut n =
            timeout(patience.stall_max, socket.write_vectored(&slices)).await.map_err(|_| too_slow())??;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let taken = n;
        while let Some(front) = pending.front_mut() {
            if front.len() > n {
                front.advance(n);
                break;
            }
            n -= front.len();
            pending.pop_front();
        }
        if !pending.is_empty() {
            let now = Instant::now();
            progress = match progress {
                Some((since, before)) if before + taken < WRITE_PROGRESS_MIN => {
                    if now - since > patience.time_max {
                        return Err(too_slow());
                    }
                    Some((since, before + taken))
                }
                _ => Some((now, 0)),
            };
        }
    }
    Ok(())
}
