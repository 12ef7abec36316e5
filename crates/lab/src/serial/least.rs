//! A server that does the least for a durable answer: it receives a request, writes 4 KiB to a device durably, answers. One thread, blocking calls.
//!
//! The time of such an exchange is more than that of a round trip and that of a flush, each measured by itself: a processor that has slept
//! during the flush takes a while to wake, and its caches are cold. What a real server takes beyond it is its own.

use crate::error::{Context, Result};
use landfast_intentlog::aligned::AlignedBuf;
use landfast_intentlog::limits::BLOCK_BYTES;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread::JoinHandle;

/// About as long as the calls and replies of CREATE and SETATTR.
const MESSAGE_BYTES: usize = 200;

/// How a write is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// O_DSYNC.
    Through,
    /// A write, then fdatasync.
    Flushed,
}

/// A device that is written to durably, one block after another.
pub struct BlockWriter {
    through: File,
    cached: File,
    block: AlignedBuf,
    place: Range<u64>,
    next: u64,
}

impl BlockWriter {
    pub fn open(path: &Path, place: Range<u64>) -> Result<BlockWriter> {
        let open = |flags: OFlags| {
            let file = File::options().write(true).custom_flags(flags.bits() as i32).open(path);
            file.context(|| format!("open {}", path.display()))
        };
        Ok(BlockWriter {
            through: open(OFlags::DIRECT | OFlags::DSYNC)?,
            cached: open(OFlags::DIRECT)?,
            block: AlignedBuf::zeroed(BLOCK_BYTES),
            next: place.start,
            place,
        })
    }

    pub fn write(&mut self, method: Method) -> io::Result<()> {
        let at = self.next;
        self.next += BLOCK_BYTES as u64;
        if self.next >= self.place.end {
            self.next = self.place.start;
        }
        match method {
            Method::Through => self.through.write_all_at(&self.block, at),
            Method::Flushed => {
                self.cached.write_all_at(&self.block, at).and_then(|()| self.cached.sync_data())
            }
        }
    }
}

/// The server, and its only client.
pub struct LeastServer {
    /// Closed before the thread is waited for.
    client: Option<TcpStream>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl LeastServer {
    pub fn start(device: BlockWriter) -> Result<LeastServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(|| "listen".to_owned())?;
        let client = listener.local_addr().and_then(TcpStream::connect).context(|| "connect".to_owned())?;
        let (served, _) = listener.accept().context(|| "accept".to_owned())?;
        for socket in [&client, &served] {
            socket.set_nodelay(true).context(|| "set TCP_NODELAY".to_owned())?;
        }
        let thread = std::thread::spawn(move || serve(served, device));
        Ok(LeastServer { client: Some(client), thread: Some(thread) })
    }

    /// One request and its answer.
    pub fn call(&mut self, method: Method) -> Result<()> {
        let mut message = [u8::from(method == Method::Through); MESSAGE_BYTES];
        let Some(client) = &mut self.client else { return Ok(()) };
        let answered = client.write_all(&message).and_then(|()| client.read_exact(&mut message));
        answered.context(|| "the server that does the least".to_owned())
    }
}

impl Drop for LeastServer {
    fn drop(&mut self) {
        self.client = None;
        if let Some(thread) = self.thread.take() {
            // An error of its own has been seen by the call that got no answer.
            let _ = thread.join();
        }
    }
}

fn serve(mut socket: TcpStream, mut device: BlockWriter) -> io::Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    loop {
        match socket.read_exact(&mut message) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        device.write(if message[0] == 1 { Method::Through } else { Method::Flushed })?;
        socket.write_all(&message)?;
    }
}
