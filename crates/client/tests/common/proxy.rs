//! Between clients and a server: connections that are cut, replies that are held back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

pub struct Proxy {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    connections: AtomicU64,
    cuts: AtomicU64,
    /// Bytes from the server, over all connections.
    passed: AtomicU64,
    /// After so many of them nothing more is passed on.
    hold_after: AtomicU64,
    held: Notify,
    /// What becomes of what was held back: whether it goes on.
    release: watch::Sender<bool>,
    /// The server is another one by its own name.
    renames: bool,
}

const OURS: &[u8] = b"landfast 0.";
const STRANGERS: &[u8] = b"stranger 0.";

impl Proxy {
    /// Resets each connection after so many bytes from the server, a little more each time, so that every part of a reply
    /// is once the last that comes.
    pub async fn cutting(server: SocketAddr, first: u64) -> Proxy {
        Proxy::start(server, Some(first), 997, false).await
    }

    /// Resets the first connection at once, and each further one after `more` bytes more: before its first replies.
    pub async fn cutting_early(server: SocketAddr, more: u64) -> Proxy {
        Proxy::start(server, Some(0), more, false).await
    }

    /// Passes everything on, until it is told to hold replies back.
    pub async fn holding(server: SocketAddr) -> Proxy {
        Proxy::start(server, None, 0, false).await
    }

    /// Passes everything on; Landfast calls itself otherwise.
    pub async fn renaming(server: SocketAddr) -> Proxy {
        Proxy::start(server, None, 0, true).await
    }

    async fn start(server: SocketAddr, cut_after: Option<u64>, more: u64, renames: bool) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server,
            connections: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            hold_after: AtomicU64::new(u64::MAX),
            held: Notify::new(),
            release: watch::Sender::new(true),
            renames,
        });
        let all = shared.clone();
        tokio::spawn(async move {
            let mut allowed = cut_after;
            while let Ok((client, _)) = listener.accept().await {
                all.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(all.clone().serve(client, allowed.unwrap_or(u64::MAX)));
                allowed = allowed.map(|bytes| bytes + more);
            }
        });
        Proxy { addr, shared }
    }

    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// From so many bytes from now on, replies are held back.
    pub fn hold_after(&self, bytes: u64) {
        self.shared.hold_after.store(self.shared.passed.load(Ordering::SeqCst) + bytes, Ordering::SeqCst);
    }

    /// Waits until one is.
    pub async fn held(&self) {
        self.shared.held.notified().await;
    }

    /// What was held back is lost: its connections are reset. From now on everything is passed on.
    pub fn lose(&self) {
        self.release(false);
    }

    /// What was held back goes on, as everything from now on.
    pub fn pass(&self) {
        self.release(true);
    }

    /// What was held back goes on, and so many bytes behind it.
    pub fn pass_until(&self, bytes: u64) {
        self.hold_after(bytes);
        self.shared.release.send_replace(true);
    }

    fn release(&self, passes: bool) {
        self.shared.hold_after.store(u64::MAX, Ordering::SeqCst);
        self.shared.release.send_replace(passes);
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, mut client: TcpStream, allowed: u64) {
        let Ok(mut server) = TcpStream::connect(self.server).await else { return };
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let down = async {
            let mut buf = vec![0; 4096];
            let mut left = allowed;
            while let Ok(n @ 1..) = from_server.read(&mut buf).await {
                let n = n.min(left.min(4096) as usize);
                let mut release = self.release.subscribe();
                let passed = self.passed.fetch_add(n as u64, Ordering::SeqCst) + n as u64;
                if passed > self.hold_after.load(Ordering::SeqCst) {
                    self.held.notify_one();
                    if release.changed().await.is_ok() && !*release.borrow() {
                        return true;
                    }
                }
                if self.renames
                    && let Some(at) = buf[..n].windows(OURS.len()).position(|w| w == OURS)
                {
                    buf[at..at + OURS.len()].copy_from_slice(STRANGERS);
                }
                if to_client.write_all(&buf[..n]).await.is_err() {
                    return false;
                }
                left -= n as u64;
                if left == 0 {
                    return true;
                }
            }
            false
        };
        let cut = tokio::select! {
            _ = tokio::io::copy(&mut from_client, &mut to_server) => false,
            cut = down => cut,
        };
        if !cut {
            // The end comes to the server behind all that the client has sent. To close with replies unread would reset the
            // connection, and the server might lose what it has not read yet.
            let _ = to_server.shutdown().await;
            let _ = tokio::io::copy(&mut from_server, &mut tokio::io::sink()).await;
        }
        if cut {
            self.cuts.fetch_add(1, Ordering::SeqCst);
            // Neither side has ended it in order.
            client.set_zero_linger().unwrap();
            server.set_zero_linger().unwrap();
        }
    }
}
