//! A thread that writes members into an archive, compresses it, and makes it durable.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::report::TarError;
use crate::archive::{ArchiveWriter, Compression, Compressor, Member};
use crate::limits::{ARCHIVE_WRITE_BUFFER, ORDERS_MAX};

pub enum Sink {
    /// A file, which is created or truncated. At the end the file and its name are durable.
    File(PathBuf),
    /// An open file, such as standard output. It is synced at the end if it is a regular file.
    Open(File),
    Writer(Box<dyn Write + Send>),
}

/// A message to the thread. Without [`Order::End`] the archive gets no end marker.
pub(super) enum Order {
    Member(Box<Member>, Payload),
    End,
}

/// A member's data. Missing bytes are written as zeroes.
pub(super) enum Payload {
    Nothing,
    Whole(Bytes, Arc<OwnedSemaphorePermit>),
    Pieces(mpsc::Receiver<Bytes>),
}

/// The channel to the thread, and the thread. It returns the number of bytes written.
pub(super) type Writing = (mpsc::Sender<Order>, tokio::task::JoinHandle<Result<u64, TarError>>);

pub(super) fn start(sink: Sink, compression: Compression) -> Writing {
    let (send, orders) = mpsc::channel(ORDERS_MAX);
    let thread = tokio::task::spawn_blocking(move || {
        let (out, to_sync) = open(sink).map_err(TarError::Open)?;
        let out = BufWriter::with_capacity(ARCHIVE_WRITE_BUFFER, out);
        let bytes = write(orders, out, compression).map_err(TarError::Write)?;
        for file in to_sync {
            file.sync_all().map_err(TarError::Sync)?;
        }
        Ok(bytes)
    });
    (send, thread)
}

/// The writer, and the files to sync at the end, in this order.
fn open(sink: Sink) -> io::Result<(Box<dyn Write + Send>, Vec<File>)> {
    Ok(match sink {
        Sink::File(path) => {
            let file = File::create(&path)?;
            let mut to_sync = Vec::new();
            if file.metadata()?.is_file() {
                let above = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                to_sync = vec![file.try_clone()?, File::open(above)?];
            }
            (Box::new(file), to_sync)
        }
        Sink::Open(file) => {
            let to_sync = if file.metadata()?.is_file() { vec![file.try_clone()?] } else { Vec::new() };
            (Box::new(file), to_sync)
        }
        Sink::Writer(out) => (out, Vec::new()),
    })
}

fn write(mut orders: mpsc::Receiver<Order>, out: impl Write, how: Compression) -> io::Result<u64> {
    let mut archive = ArchiveWriter::new(Compressor::new(out, how)?);
    loop {
        match orders.blocking_recv() {
            Some(Order::Member(member, payload)) => match payload {
                Payload::Nothing => archive.member(&member, io::empty())?,
                Payload::Whole(data, _permit) => {
                    archive.member(&member, data.reader().chain(io::repeat(0)))?
                }
                Payload::Pieces(pieces) => {
                    let pieces = Pieces { pieces, current: Bytes::new() };
                    archive.member(&member, pieces.chain(io::repeat(0)))?;
                }
            },
            Some(Order::End) => {
                let bytes = archive.written();
                archive.finish()?;
                return Ok(bytes);
            }
            None => return Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let n = buf.len().min(self.current.len());
        self.current.split_to(n).copy_to_slice(&mut buf[..n]);
        Ok(n)
    }
}
