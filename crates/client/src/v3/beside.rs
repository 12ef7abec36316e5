//! A program that a server has beside NFS, at a port that is found when it is needed: MOUNT and the Network Lock Manager.

use std::time::Instant;

use bytes::Bytes;
use landfast_nfs::{PORT, PROGRAM, v3};
use landfast_rpc::{CallError, Connection, OpaqueAuth, Target};
use landfast_xdr::{Decode, Encode};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::error::SessionError;
use crate::limits;
use crate::peer::Connections;
use crate::requests;

/// The port mapper (RFC 1833 section 3): version 2, GETPORT.
const PORTMAP: Target = Target { prog: 100_000, vers: 2, proc: 3 };
const PORTMAP_PORT: u16 = 111;
const IPPROTO_TCP: u32 = 6;

/// A program in one version, and the connection to it.
pub(super) struct Beside {
    name: &'static str,
    prog: u32,
    vers: u32,
    /// The port that the user names.
    port: Option<u16>,
    line: Mutex<Option<Connection>>,
}

impl Beside {
    pub(super) fn new(name: &'static str, (prog, vers): (u32, u32), port: Option<u16>) -> Beside {
        Beside { name, prog, vers, port, line: Mutex::new(None) }
    }

    /// Calls a procedure whose second execution changes nothing more, for `cred`.
    ///
    /// # Errors
    /// [`SessionError::Connect`] when the server is there and the program is not.
    pub(super) async fn call(
        &self,
        lines: &Connections,
        cred: &OpaqueAuth,
        proc: u32,
        args: Bytes,
    ) -> Result<Bytes, SessionError> {
        let to = Target { prog: self.prog, vers: self.vers, proc };
        let peer = &lines.peer;
        let start = Instant::now();
        let mut pause = limits::BACKOFF_MIN;
        let mut looked = false;
        loop {
            let tried = match self.open(lines).await {
                Ok(line) => {
                    peer.counters.sent(&[], false);
                    let done = line.call(to, cred, vec![args.clone()], peer.options().call_patience);
                    let done = requests::logged(to, std::slice::from_ref(&args), done).await;
                    peer.called(&done);
                    done.map_err(SessionError::Rpc)
                }
                Err(e) => Err(e),
            };
            let again = match &tried {
                Ok(_) => false,
                Err(SessionError::Rpc(CallError::Closed(_) | CallError::Timeout(_))) => true,
                // The whole server was away, or only this program is not there. It may be back before it is asked.
                Err(SessionError::Connect { .. }) => {
                    was_away(lines).await? || !std::mem::replace(&mut looked, true)
                }
                Err(_) => false,
            };
            if !again || start.elapsed() > peer.patience() {
                return tried;
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
        }
    }

    /// The connection, made if there is none.
    async fn open(&self, lines: &Connections) -> Result<Connection, SessionError> {
        let mut place = self.line.lock().await;
        match place.as_ref().filter(|line| !line.is_closed()) {
            Some(line) => Ok(line.clone()),
            None => Ok(place.insert(self.find(lines).await?).clone()),
        }
    }

    /// The program, at the port that the user names or of the port mapper, or else at the port of NFS.
    async fn find(&self, lines: &Connections) -> Result<Connection, SessionError> {
        let (peer, options) = (&lines.peer, lines.peer.options());
        let mut ports = Vec::new();
        match self.port {
            Some(port) => ports.push(port),
            None if options.port == PORT => {
                ports.extend(self.ask_port_mapper(lines).await);
                ports.push(options.port);
            }
            None => {
                // A server on another port usually has no port mapper.
                ports.push(options.port);
                ports.extend(self.ask_port_mapper(lines).await);
            }
        }
        let null = Target { prog: self.prog, vers: self.vers, proc: 0 };
        let mut last = None;
        for port in ports {
            let line = match peer.open(port).await {
                Ok(line) => line,
                Err(e) => {
                    let server = format!("{} ({}, port {port})", peer.server(), self.name);
                    last = Some(SessionError::connect(&server, &e));
                    continue;
                }
            };
            peer.counters.sent(&[], false);
            match line.call(null, peer.cred(), Vec::new(), options.call_patience).await {
                Ok(_) => return Ok(line),
                Err(e) => last = Some(SessionError::Rpc(e)),
            }
        }
        Err(last.unwrap_or(SessionError::Ended))
    }

    async fn ask_port_mapper(&self, lines: &Connections) -> Option<u16> {
        let peer = &lines.peer;
        let line = peer.open(PORTMAP_PORT).await.ok()?;
        let mut args = bytes::BytesMut::new();
        for word in [self.prog, self.vers, IPPROTO_TCP, 0] {
            word.encode(&mut args);
        }
        peer.counters.sent(&[], false);
        let none = OpaqueAuth::NONE;
        let reply =
            line.call(PORTMAP, &none, vec![args.freeze()], peer.options().call_patience).await.ok()?;
        u16::try_from(u32::from_bytes(reply).ok()?).ok().filter(|port| *port != 0)
    }
}

/// NULL of the NFS program. Returns whether it was sent more than once: the server was away.
async fn was_away(lines: &Connections) -> Result<bool, SessionError> {
    let null = Target { prog: PROGRAM, vers: v3::VERSION, proc: v3::proc::NULL };
    Ok(lines.call(null, Vec::new()).await?.again)
}
