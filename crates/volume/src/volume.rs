//! The volume: opening, starting, stopping, failing; and the operations' signatures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, OpenError};
use crate::node::{Node, OpenFile};
use crate::tx::Tx;
use crate::types::*;

/// When an answered operation is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the intent log is flushed.
    Log,
    /// Before the operation returns: fsync of what changed and of its directory.
    Sync,
    /// Some time later. A crash loses answered operations.
    Unsafe,
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The directory to serve.
    pub dir: PathBuf,
    /// The log file or device; needed with [`Durability::Log`], forbidden otherwise.
    pub log: Option<PathBuf>,
    /// Size in bytes of a log file that does not exist yet.
    pub log_size: u64,
    /// When an answered operation is stable.
    pub durability: Durability,
    /// For experiments: each sync call of the volume (fsync, fdatasync, syncfs) also sleeps this long.
    pub injected_flush: Option<Duration>,
    /// For experiments: run without capabilities as the process's own user, whoever the caller is. Handles are known
    /// only until the process ends. Nothing served this way may be offered to anyone else.
    pub unprivileged: bool,
}

/// What opening a volume found and did.
#[derive(Clone, Debug)]
pub struct RecoveryReport {
    /// True when the last stop was clean: nothing to recover, no client lost anything.
    pub clean: bool,
    /// Grows by one with every opening of the volume, from 1.
    pub epoch: u64,
    /// Log records replayed.
    pub records: u64,
    /// Log bytes replayed.
    pub bytes: u64,
    /// Objects that the crash lost and recovery made again.
    pub remade: u64,
    /// Seconds that opening and recovery took.
    pub seconds: f64,
    /// The server's own records ([`Tx::note`]) since the last checkpoint, in order.
    pub notes: Vec<Vec<u8>>,
}

/// What a clean stop did.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShutdownReport {
    /// Seconds that it took.
    pub seconds: f64,
    /// Checkpoints over the volume's whole run.
    pub checkpoints: u64,
}

/// Counters since opening.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// fsync calls.
    pub fsyncs: u64,
    /// fdatasync calls.
    pub fdatasyncs: u64,
    /// syncfs calls.
    pub syncfs: u64,
    /// Nodes in the cache.
    pub nodes: u64,
    /// Descriptors that nodes hold.
    pub node_fds: u64,
}

/// Keeper of the server's state that must survive a crash in the log.
pub trait NoteKeeper: Send + Sync {
    /// The whole state as records for [`RecoveryReport::notes`]. Called at each checkpoint while no transaction is
    /// joined: must be quick, must not call the volume, must not wait for anybody who holds a transaction.
    fn snapshot(&self) -> Vec<Vec<u8>>;
}

/// A directory tree served through handles. Cheap to clone.
///
/// Operations block in system calls: run them on worker threads. They change the calling thread's filesystem
/// credentials, umask and capabilities; such threads should do nothing else with files.
#[derive(Clone, Debug)]
pub struct Volume {}

#[allow(unused_variables)]
impl Volume {
    /// Opens a volume: checks the filesystem, locks the state directory, opens the log and recovers what a crash left.
    /// Nothing is served until [`Volume::start`].
    pub fn open(o: OpenOptions) -> Result<(Volume, RecoveryReport), OpenError> {
        todo!()
    }

    /// Empties the log after recovery and starts it. The server must have restored its state from the report's notes,
    /// since `notes` is asked for it at each checkpoint from here on.
    pub fn start(&self, notes: Arc<dyn NoteKeeper>) -> Result<(), OpenError> {
        todo!()
    }

    /// The directory itself.
    pub fn root(&self) -> Node {
        todo!()
    }

    /// The object of a wire handle. [`Error::BadHandle`] when it is not one of this volume, [`Error::Stale`] when the
    /// object is gone.
    pub fn resolve(&self, fh: &[u8]) -> Result<Node, Error> {
        todo!()
    }

    /// Back-pressure: waits while the log is nearly full. Call before running a request that modifies.
    pub async fn admit(&self) -> Result<(), Error> {
        todo!()
    }

    /// A new transaction.
    pub fn tx(&self) -> Tx {
        todo!()
    }

    /// True when [`Tx::note`]s survive a crash: with [`Durability::Log`].
    pub fn keeps_notes(&self) -> bool {
        todo!()
    }

    /// When an answered operation is stable.
    pub fn durability(&self) -> Durability {
        todo!()
    }

    /// Random identity of the volume, the same for ever.
    pub fn id(&self) -> [u8; 16] {
        todo!()
    }

    /// Clean stop: checkpoint, mark clean. Operations afterwards fail with [`Error::Failed`].
    pub fn shutdown(&self) -> Result<ShutdownReport, Error> {
        todo!()
    }

    /// Why the volume has failed, if it has.
    pub fn failed(&self) -> Option<String> {
        todo!()
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// Attributes of an object.
    pub fn getattr(&self, node: &Node) -> Result<Attrs, Error> {
        todo!()
    }

    /// Which of the rights in `mask` the caller has.
    pub fn access(&self, cred: &Cred, node: &Node, mask: AccessMask) -> Result<AccessMask, Error> {
        todo!()
    }

    /// The object that `name` names in `dir`.
    pub fn lookup(&self, cred: &Cred, dir: &Node, name: &[u8]) -> Result<Node, Error> {
        todo!()
    }

    /// The directory that holds `dir`. [`Error::NoEnt`] for the root.
    pub fn lookup_parent(&self, cred: &Cred, dir: &Node) -> Result<Node, Error> {
        todo!()
    }

    /// Target of a symbolic link. [`Error::WrongKind`] for anything else.
    pub fn readlink(&self, cred: &Cred, node: &Node) -> Result<Bytes, Error> {
        todo!()
    }

    /// At most `limit` entries after `cookie` (0: from the beginning). `.` and `..` are not among them.
    pub fn readdir(
        &self,
        cred: &Cred,
        dir: &Node,
        cookie: u64,
        limit: usize,
        detail: EntryDetail,
    ) -> Result<DirPage, Error> {
        todo!()
    }

    /// Opens a regular file.
    pub fn open_file(&self, cred: &Cred, node: &Node, mode: OpenMode) -> Result<OpenFile, Error> {
        todo!()
    }

    /// Creates and opens a regular file, or opens the existing one where `how` allows that.
    pub fn create(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        how: CreateHow,
        mode: OpenMode,
    ) -> Result<Created, Error> {
        todo!()
    }

    /// Makes a directory.
    pub fn mkdir(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        attrs: SetAttrs,
    ) -> Result<Made, Error> {
        todo!()
    }

    /// Makes a symbolic link; a mode among the attributes is ignored.
    pub fn symlink(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        target: &[u8],
        attrs: SetAttrs,
    ) -> Result<Made, Error> {
        todo!()
    }

    /// Makes a named pipe, socket or device node.
    pub fn mknod(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        special: Special,
        attrs: SetAttrs,
    ) -> Result<Made, Error> {
        todo!()
    }

    /// Gives `node` (not a directory) the further name `name` in `dir`.
    pub fn link(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        node: &Node,
        dir: &Node,
        name: &[u8],
    ) -> Result<ChangeInfo, Error> {
        todo!()
    }

    /// Removes a name, of a directory (which must be empty) or of anything else.
    pub fn remove(&self, tx: &mut Tx, cred: &Cred, dir: &Node, name: &[u8]) -> Result<ChangeInfo, Error> {
        todo!()
    }

    /// Renames; a compatible object at the new name is replaced. Two names of one object: nothing happens. Gives the
    /// changes of the source and the target directory.
    pub fn rename(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        from_dir: &Node,
        from: &[u8],
        to_dir: &Node,
        to: &[u8],
    ) -> Result<(ChangeInfo, ChangeInfo), Error> {
        todo!()
    }

    /// Sets attributes, all or (after an error) those that came before the failing one in the order size, owner and
    /// group, mode, times. A size is set through `file` when given, else with the caller's own right to write.
    pub fn setattr(
        &self,
        tx: &mut Tx,
        cred: &Cred,
        node: &Node,
        file: Option<&OpenFile>,
        attrs: SetAttrs,
    ) -> Result<AttrsSet, Error> {
        todo!()
    }

    /// Reads at most `len` bytes at `offset`; true when the data reaches the end of the file.
    pub fn read(&self, file: &OpenFile, offset: u64, len: u32) -> Result<(Bytes, bool), Error> {
        todo!()
    }

    /// Writes `data` at `offset`, at least as stable as `stable` once the transaction's receipt is good. Gives the
    /// number of bytes written and how stable they are then. Large stable writes are flushed to the file itself.
    pub fn write(
        &self,
        tx: &mut Tx,
        file: &OpenFile,
        offset: u64,
        data: Bytes,
        stable: Stable,
    ) -> Result<(u32, Stable), Error> {
        todo!()
    }

    /// Makes what was written unstably to the file stable (the whole file, whatever the range).
    pub fn commit(&self, tx: &mut Tx, node: &Node, offset: u64, len: u64) -> Result<(), Error> {
        todo!()
    }

    /// The write verifier: changes whenever unstable data may have been lost.
    pub fn write_verifier(&self) -> [u8; 8] {
        todo!()
    }

    /// Space and object counts.
    pub fn statfs(&self) -> Result<FsStat, Error> {
        todo!()
    }
}
