//! Connections to the NFS and MOUNT programs of version 3, and single calls on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use landfast_nfs::mount::{self, MntRes, MountStat};
use landfast_nfs::v3::res::FsinfoRes;
use landfast_nfs::v3::{self, Call, FileHandle, Res};
use landfast_nfs::{PORT, PROGRAM};
use landfast_rpc::{CallError, ConnConfig, Connection, NoService, OpaqueAuth, Target};
use landfast_xdr::{Decode, Encode};
use tokio::sync::Mutex;
use tokio::time::sleep;
use tracing::debug;

use crate::limits;
use crate::session::{SessionError, SessionOptions, SessionStats};

/// The port mapper (RFC 1833 section 3): version 2, GETPORT.
const PORTMAP: Target = Target { prog: 100_000, vers: 2, proc: 3 };
const PORTMAP_PORT: u16 = 111;
const IPPROTO_TCP: u32 = 6;

/// Whether a call may be executed twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Twice {
    /// The second execution leaves all as the first did.
    Harmless,
    /// It fails, or undoes what somebody else did meanwhile.
    Harmful,
}

/// See the module.
pub(super) struct Wire {
    options: SessionOptions,
    server: String,
    cred: OpaqueAuth,
    links: Vec<Mutex<Option<Connection>>>,
    next: AtomicUsize,
    mount: Mutex<Option<Connection>>,
    /// What the server takes in one WRITE; 0: not asked yet.
    write_bytes: AtomicUsize,
    ended: AtomicBool,
    rpcs: AtomicU64,
    retransmissions: AtomicU64,
    bytes_sent: AtomicU64,
}

impl Wire {
    /// Connects to the NFS program; MOUNT is looked for when it is needed.
    pub(super) async fn connect(options: &SessionOptions) -> Result<Wire, SessionError> {
        let server = match options.host.contains(':') {
            true => format!("[{}]:{}", options.host, options.port),
            false => format!("{}:{}", options.host, options.port),
        };
        let first = open(options, options.port).await.map_err(|e| SessionError::connect(&server, &e))?;
        let wire = Wire {
            cred: options.identity.credential().to_opaque(),
            links: (0..options.connections.max(1)).map(|_| Mutex::new(None)).collect(),
            next: AtomicUsize::new(0),
            mount: Mutex::new(None),
            write_bytes: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            rpcs: AtomicU64::new(0),
            retransmissions: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            options: options.clone(),
            server,
        };
        if let Some(link) = wire.links.first() {
            *link.lock().await = Some(first);
        }
        // NULL: whether there is a version 3 at all.
        wire.call::<()>(Call::Null, Twice::Harmless).await?;
        Ok(wire)
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn stats(&self) -> SessionStats {
        SessionStats {
            rpcs: self.rpcs.load(Ordering::Relaxed),
            retransmissions: self.retransmissions.load(Ordering::Relaxed),
            renewals: 0,
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
        }
    }

    /// Bytes of one WRITE.
    pub(super) fn write_bytes(&self) -> usize {
        self.write_bytes.load(Ordering::Relaxed).clamp(limits::WRITE3_BYTES_MIN, limits::WRITE3_BYTES_MAX)
    }

    /// FSINFO of an export, once (RFC 1813 section 3.3.19).
    pub(super) async fn learn_sizes(&self, root: &FileHandle) -> Result<(), SessionError> {
        if self.write_bytes.load(Ordering::Relaxed) == 0 {
            let res = self.call::<FsinfoRes>(Call::Fsinfo(root.clone()), Twice::Harmless).await?;
            let bytes = if let Res::Ok(info) = res { info.wtmax as usize } else { 0 };
            self.write_bytes.store(bytes.max(1), Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn close(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// One call of a procedure, sent again after a lost connection when that does no harm.
    pub(super) async fn call<R: Decode>(&self, call: Call, twice: Twice) -> Result<R, SessionError> {
        let to = Target { prog: PROGRAM, vers: v3::VERSION, proc: call.number() };
        let args = call.to_bytes();
        let start = Instant::now();
        let mut pause = limits::BACKOFF_MIN;
        let mut first = true;
        loop {
            if self.ended.load(Ordering::Acquire) {
                return Err(SessionError::Ended);
            }
            let link = self.link().await?;
            self.rpcs.fetch_add(1, Ordering::Relaxed);
            self.bytes_sent.fetch_add(args.len() as u64, Ordering::Relaxed);
            if !std::mem::take(&mut first) {
                self.retransmissions.fetch_add(1, Ordering::Relaxed);
            }
            let why = match link.call(to, &self.cred, vec![args.clone()], self.options.call_patience).await {
                Ok(reply) => {
                    return R::from_bytes(reply)
                        .map_err(|_| SessionError::Unknown("the server's reply cannot be decoded".into()));
                }
                Err(e @ CallError::Timeout(_)) => {
                    link.close();
                    e
                }
                Err(e @ CallError::Closed(_)) => e,
                Err(e) => return Err(SessionError::Rpc(e)),
            };
            if twice == Twice::Harmful || start.elapsed() > self.options.reconnect_patience {
                return Err(SessionError::Unknown(why.to_string()));
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
        }
    }

    /// A connection in its turn.
    async fn link(&self) -> Result<Connection, SessionError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.links.len();
        let Some(place) = self.links.get(index) else { return Err(SessionError::Ended) };
        let mut place = place.lock().await;
        if let Some(link) = place.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let start = Instant::now();
        let mut pause = limits::BACKOFF_MIN;
        loop {
            match open(&self.options, self.options.port).await {
                Ok(link) => return Ok(place.insert(link).clone()),
                Err(e) if start.elapsed() + pause > self.options.reconnect_patience => {
                    return Err(SessionError::connect(&self.server, &e));
                }
                Err(e) => debug!("cannot connect to {}: {e}", self.server),
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
        }
    }

    /// MNT: the handle of a path, if that is one of an export.
    pub(super) async fn mount(&self, path: &[u8]) -> Result<Result<FileHandle, MountStat>, SessionError> {
        let to = Target { prog: mount::PROGRAM, vers: mount::VERSION, proc: mount::proc::MNT };
        let args = Bytes::copy_from_slice(path).to_bytes();
        let mut place = self.mount.lock().await;
        for again in [true, false] {
            let link = match place.as_ref().filter(|link| !link.is_closed()) {
                Some(link) => link.clone(),
                None => place.insert(self.find_mount().await?).clone(),
            };
            self.rpcs.fetch_add(1, Ordering::Relaxed);
            match link.call(to, &self.cred, vec![args.clone()], self.options.call_patience).await {
                Ok(reply) => {
                    return match MntRes::from_bytes(reply) {
                        Ok(MntRes::Ok(mounted)) => Ok(Ok(mounted.handle)),
                        Ok(MntRes::Fail(status)) => Ok(Err(status)),
                        Err(_) => Err(SessionError::Unknown("the reply to MNT cannot be decoded".into())),
                    };
                }
                Err(CallError::Closed(_)) if again => {}
                Err(e) => return Err(SessionError::Rpc(e)),
            }
        }
        Err(SessionError::Ended)
    }

    /// The MOUNT program: where the URL or the port mapper says, or else on the port of NFS.
    async fn find_mount(&self) -> Result<Connection, SessionError> {
        let mut ports = Vec::new();
        match self.options.mount_port {
            Some(port) => ports.push(port),
            None if self.options.port == PORT => {
                ports.extend(self.ask_port_mapper().await);
                ports.push(self.options.port);
            }
            None => {
                // A server on a port of its own is mostly one that has no port mapper either.
                ports.push(self.options.port);
                ports.extend(self.ask_port_mapper().await);
            }
        }
        let null = Target { prog: mount::PROGRAM, vers: mount::VERSION, proc: mount::proc::NULL };
        let mut last = None;
        for port in ports {
            let link = match open(&self.options, port).await {
                Ok(link) => link,
                Err(e) => {
                    last = Some(SessionError::connect(&format!("{} (MOUNT, port {port})", self.server), &e));
                    continue;
                }
            };
            self.rpcs.fetch_add(1, Ordering::Relaxed);
            match link.call(null, &self.cred, Vec::new(), self.options.call_patience).await {
                Ok(_) => return Ok(link),
                Err(e) => last = Some(SessionError::Rpc(e)),
            }
        }
        Err(last.unwrap_or(SessionError::Ended))
    }

    async fn ask_port_mapper(&self) -> Option<u16> {
        let link = open(&self.options, PORTMAP_PORT).await.ok()?;
        let mut args = bytes::BytesMut::new();
        for word in [mount::PROGRAM, mount::VERSION, IPPROTO_TCP, 0] {
            word.encode(&mut args);
        }
        self.rpcs.fetch_add(1, Ordering::Relaxed);
        let none = OpaqueAuth::NONE;
        let reply = link.call(PORTMAP, &none, vec![args.freeze()], self.options.call_patience).await.ok()?;
        u16::try_from(u32::from_bytes(reply).ok()?).ok().filter(|port| *port != 0)
    }
}

async fn open(options: &SessionOptions, port: u16) -> std::io::Result<Connection> {
    let config = ConnConfig {
        record_max: (options.ask.response as usize).max(1 << 20) + (64 << 10),
        ..ConnConfig::default()
    };
    Connection::connect((options.host.as_str(), port), Arc::new(NoService), &config).await
}
