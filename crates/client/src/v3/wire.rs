//! The NFS, MOUNT and lock manager programs of a server of version 3, and single calls to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use landfast_nfs::PROGRAM;
use landfast_nfs::mount::{self, MntRes, MountStat};
use landfast_nfs::nlm::{self, NetObj};
use landfast_nfs::v3::res::FsinfoRes;
use landfast_nfs::v3::{self, Call, FileHandle, Res};
use landfast_rpc::Target;
use landfast_xdr::{Decode, Encode};

use super::beside::Beside;
use crate::error::SessionError;
use crate::limits;
use crate::options::SessionOptions;
use crate::peer::{Connections, Peer};

pub(super) struct Wire {
    lines: Connections,
    mount: Beside,
    locks: Beside,
    lock_caller: NetObj,
    /// The size of one WRITE that the server takes; 0: not known yet.
    write_bytes: AtomicUsize,
}

impl Wire {
    /// Connects to the NFS program. The others are connected when they are needed.
    pub(super) async fn connect(options: SessionOptions) -> Result<Wire, SessionError> {
        let port = options.mount_port;
        let lock_caller = options.client_owner()?.owner_id;
        let lines = Connections::connect(Arc::new(Peer::new(options))).await?;
        let wire = Wire {
            lines,
            mount: Beside::new("MOUNT", (mount::PROGRAM, mount::VERSION), port),
            locks: Beside::new("the lock manager", (nlm::PROGRAM, nlm::VERSION), None),
            lock_caller,
            write_bytes: AtomicUsize::new(0),
        };
        // NULL shows whether the server speaks version 3.
        wire.call::<()>(Call::Null).await?;
        Ok(wire)
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.lines.peer
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
        let args = Bytes::copy_from_slice(path).to_bytes();
        let call = self.mount.call(&self.lines, self.peer().cred(), mount::proc::MNT, args);
        match MntRes::from_bytes(self.peer().waited(call).await?) {
            Ok(MntRes::Ok(mounted)) => Ok(Ok(mounted.handle)),
            Ok(MntRes::Fail(status)) => Ok(Err(status)),
            Err(_) => Err(SessionError::Unknown("the reply to MNT cannot be decoded".into())),
        }
    }

    /// Calls a procedure of the Network Lock Manager for the caller of this task.
    pub(super) async fn lock_manager<R: Decode>(&self, proc: u32, args: Bytes) -> Result<R, SessionError> {
        let cred = self.peer().caller();
        let reply = self.peer().waited(self.locks.call(&self.lines, &cred, proc, args)).await?;
        R::from_bytes(reply)
            .map_err(|_| SessionError::Unknown("the lock manager's reply cannot be decoded".into()))
    }

    /// The name by which the lock manager knows this client. No other client has it.
    pub(super) fn lock_caller(&self) -> &NetObj {
        &self.lock_caller
    }
}
