//! Connections to the NFS and MOUNT programs of version 3, and single calls on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use landfast_nfs::mount::{self, MntRes, MountStat};
use landfast_nfs::v3::res::FsinfoRes;
use landfast_nfs::v3::{self, Call, FileHandle, Res};
use landfast_nfs::{PORT, PROGRAM};
use landfast_rpc::{CallError, Connection, OpaqueAuth, Target};
use landfast_xdr::{Decode, Encode};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::error::SessionError;
use crate::limits;
use crate::options::SessionOptions;
use crate::peer::{Connections, Peer};
use crate::requests;

/// The port mapper (RFC 1833 section 3): version 2, GETPORT.
const PORTMAP: Target = Target { prog: 100_000, vers: 2, proc: 3 };
const PORTMAP_PORT: u16 = 111;
const IPPROTO_TCP: u32 = 6;

pub(super) struct Wire {
    lines: Connections,
    mount: Mutex<Option<Connection>>,
    /// The size of one WRITE that the server takes; 0: not known yet.
    write_bytes: AtomicUsize,
}

impl Wire {
    /// Connects to the NFS program. MOUNT is connected when it is needed.
    pub(super) async fn connect(options: SessionOptions) -> Result<Wire, SessionError> {
        let lines = Connections::connect(Arc::new(Peer::new(options))).await?;
        let wire = Wire { lines, mount: Mutex::new(None), write_bytes: AtomicUsize::new(0) };
        // NULL shows whether the server speaks version 3.
        wire.call::<()>(Call::Null).await?;
        Ok(wire)
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.lines.peer
    }

    fn options(&self) -> &SessionOptions {
        self.peer().options()
    }

    pub(super) fn write_bytes(&self) -> usize {
        self.write_bytes.load(Ordering::Relaxed).clamp(limits::WRITE3_BYTES_MIN, limits::WRITE3_BYTES_MAX)
    }

    /// Asks an export's FSINFO once (RFC 1813 section 3.3.19).
    pub(super) async fn learn_sizes(&self, root: &FileHandle) -> Result<(), SessionError> {
        if self.write_bytes.load(Ordering::Relaxed) == 0 {
            let res = self.call::<FsinfoRes>(Call::Fsinfo(root.clone())).await?;
            let bytes = if let Res::Ok(info) = res { info.wtmax as usize } else { 0 };
            self.write_bytes.store(bytes.max(1), Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) async fn close(&self) {
        self.peer().end();
        self.lines.close().await;
    }

    /// Calls a procedure whose second execution changes nothing more.
    pub(super) async fn call<R: Decode>(&self, call: Call) -> Result<R, SessionError> {
        self.call_again(call).await.map(|(res, _)| res)
    }

    /// Calls a procedure. Returns also whether the call was sent more than once.
    pub(super) async fn call_again<R: Decode>(&self, call: Call) -> Result<(R, bool), SessionError> {
        let to = Target { prog: PROGRAM, vers: v3::VERSION, proc: call.number() };
        let answer = self.lines.call(to, vec![call.to_bytes()]).await?;
        let res = R::from_bytes(answer.results)
            .map_err(|_| SessionError::Unknown("the server's reply cannot be decoded".into()))?;
        Ok((res, answer.again))
    }

    /// MNT: the handle of a path, if it is an export's.
    pub(super) async fn mount(&self, path: &[u8]) -> Result<Result<FileHandle, MountStat>, SessionError> {
        self.peer().waited(self.mount_on(path)).await
    }

    async fn mount_on(&self, path: &[u8]) -> Result<Result<FileHandle, MountStat>, SessionError> {
        let to = Target { prog: mount::PROGRAM, vers: mount::VERSION, proc: mount::proc::MNT };
        let args = Bytes::copy_from_slice(path).to_bytes();
        let mut place = self.mount.lock().await;
        let start = Instant::now();
        let mut pause = limits::BACKOFF_MIN;
        let mut looked = false;
        let reply = loop {
            let link = match place.as_ref().filter(|link| !link.is_closed()) {
                Some(link) => Ok(link.clone()),
                None => self.find_mount().await.map(|link| place.insert(link).clone()),
            };
            let tried = match link {
                Ok(link) => {
                    self.peer().counters.sent(&[], false);
                    let (cred, patience) = (self.peer().cred(), self.options().call_patience);
                    let done = link.call(to, cred, vec![args.clone()], patience);
                    let done = requests::logged(to, std::slice::from_ref(&args), done).await;
                    self.peer().called(&done);
                    done.map_err(SessionError::Rpc)
                }
                Err(e) => Err(e),
            };
            let again = match &tried {
                Ok(_) => false,
                Err(SessionError::Rpc(CallError::Closed(_) | CallError::Timeout(_))) => true,
                // The whole server was away, or only MOUNT is not there. It may be back before it is asked.
                Err(SessionError::Connect { .. }) => {
                    self.call_again::<()>(Call::Null).await?.1 || !std::mem::replace(&mut looked, true)
                }
                Err(_) => false,
            };
            if !again || start.elapsed() > self.peer().patience() {
                break tried?;
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
        };
        match MntRes::from_bytes(reply) {
            Ok(MntRes::Ok(mounted)) => Ok(Ok(mounted.handle)),
            Ok(MntRes::Fail(status)) => Ok(Err(status)),
            Err(_) => Err(SessionError::Unknown("the reply to MNT cannot be decoded".into())),
        }
    }

    /// The MOUNT program, at the port of the URL or of the port mapper, or else at the port of NFS.
    async fn find_mount(&self) -> Result<Connection, SessionError> {
        let mut ports = Vec::new();
        match self.options().mount_port {
            Some(port) => ports.push(port),
            None if self.options().port == PORT => {
                ports.extend(self.ask_port_mapper().await);
                ports.push(self.options().port);
            }
            None => {
                // A server on another port usually has no port mapper.
                ports.push(self.options().port);
                ports.extend(self.ask_port_mapper().await);
            }
        }
        let null = Target { prog: mount::PROGRAM, vers: mount::VERSION, proc: mount::proc::NULL };
        let mut last = None;
        for port in ports {
            let link = match self.peer().open(port).await {
                Ok(link) => link,
                Err(e) => {
                    last = Some(SessionError::connect(
                        &format!("{} (MOUNT, port {port})", self.peer().server()),
                        &e,
                    ));
                    continue;
                }
            };
            self.peer().counters.sent(&[], false);
            match link.call(null, self.peer().cred(), Vec::new(), self.options().call_patience).await {
                Ok(_) => return Ok(link),
                Err(e) => last = Some(SessionError::Rpc(e)),
            }
        }
        Err(last.unwrap_or(SessionError::Ended))
    }

    async fn ask_port_mapper(&self) -> Option<u16> {
        let link = self.peer().open(PORTMAP_PORT).await.ok()?;
        let mut args = bytes::BytesMut::new();
        for word in [mount::PROGRAM, mount::VERSION, IPPROTO_TCP, 0] {
            word.encode(&mut args);
        }
        self.peer().counters.sent(&[], false);
        let none = OpaqueAuth::NONE;
        let reply =
            link.call(PORTMAP, &none, vec![args.freeze()], self.options().call_patience).await.ok()?;
        u16::try_from(u32::from_bytes(reply).ok()?).ok().filter(|port| *port != 0)
    }
}
