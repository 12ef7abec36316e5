//! What the operations of one compound share: the caller, the filehandles, the current stateid, the transaction.

use crate::attr::Subject;
use crate::errors::status;
use crate::pseudo::{Pseudo, PseudoDir};
use crate::server::Shared;
use crate::state::notes::Stamped;
use crate::state::opens::FileKey;
use crate::state::sessions::ConnId;
use crate::state::{Millis, Principal};
use bytes::Bytes;
use landfast_nfs::v4::{NfsStat, ResBody, SessionId, Stateid};
use landfast_volume::{Attrs, Cred, Kind, Node, Timestamp, Tx};

/// A filehandle.
#[derive(Debug, Clone)]
pub(crate) enum Fh {
    /// An object of the volume; `by_path` when the client came by the export's own path (see [`crate::pseudo`]).
    Node { node: Node, by_path: bool },
    /// A synthetic directory.
    Pseudo(PseudoDir),
}

/// Why an operation failed, with the result that goes with it.
#[derive(Debug)]
pub(crate) struct Fail {
    pub(crate) status: NfsStat,
    /// Only some operations have a result with an error.
    pub(crate) body: Option<Box<ResBody>>,
}

impl From<NfsStat> for Fail {
    fn from(status: NfsStat) -> Self {
        Fail { status, body: None }
    }
}

/// The error of the volume where nothing better is known.
impl From<landfast_volume::Error> for Fail {
    fn from(e: landfast_volume::Error) -> Self {
        status(e).into()
    }
}

pub(crate) type Done = Result<ResBody, Fail>;

/// What the SEQUENCE of this compound established.
#[derive(Debug, Clone)]
pub(crate) struct InSession {
    pub(crate) id: SessionId,
    pub(crate) client: u64,
    pub(crate) slot: u32,
}

/// One compound under way.
pub(crate) struct Ctx<'a> {
    pub(crate) sh: &'a Shared,
    pub(crate) now: Millis,
    pub(crate) conn: ConnId,
    pub(crate) principal: Principal,
    pub(crate) cred: Cred,
    pub(crate) minor: u32,
    pub(crate) session: Option<InSession>,
    pub(crate) fh: Option<Fh>,
    pub(crate) saved: Option<(Fh, Stateid)>,
    /// The current stateid; the anonymous one when there is none (RFC 8881 section 16.2.3.1.2).
    pub(crate) stateid: Stateid,
    pub(crate) tx: Tx,
    /// Notes were written: the reply waits for the log.
    pub(crate) noted: bool,
    /// Bytes that the present operation's result may take.
    pub(crate) room: usize,
    /// The present operation is the compound's last.
    pub(crate) last: bool,
}

impl Ctx<'_> {
    /// Sets the current filehandle; the current stateid is then none.
    pub(crate) fn set_fh(&mut self, fh: Fh) {
        self.fh = Some(fh);
        self.stateid = Stateid::ANONYMOUS;
    }

    /// Sets the current filehandle to an object reached from the present one.
    pub(crate) fn go(&mut self, node: Node) {
        let by_path = matches!(self.fh, Some(Fh::Node { by_path: true, .. }));
        self.set_fh(Fh::Node { node, by_path });
    }

    pub(crate) fn fh(&self) -> Result<&Fh, NfsStat> {
        self.fh.as_ref().ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)
    }

    /// The current object, for an operation that would change it: a synthetic directory is read-only.
    pub(crate) fn node(&self) -> Result<Node, NfsStat> {
        match self.fh()? {
            Fh::Node { node, .. } => Ok(node.clone()),
            Fh::Pseudo(_) => Err(NfsStat::NFS4ERR_ROFS),
        }
    }

    /// The current object, which must be a directory.
    pub(crate) fn dir(&self) -> Result<Node, NfsStat> {
        let node = self.node()?;
        must_be_dir(&node)?;
        Ok(node)
    }

    /// The current object, which must be a regular file.
    pub(crate) fn file(&self) -> Result<Node, NfsStat> {
        let node = match self.fh()? {
            Fh::Node { node, .. } => node.clone(),
            Fh::Pseudo(_) => return Err(NfsStat::NFS4ERR_ISDIR),
        };
        must_be_file(&node)?;
        Ok(node)
    }

    /// The client of the session.
    pub(crate) fn client(&self) -> Result<u64, NfsStat> {
        self.session.as_ref().map(|s| s.client).ok_or(NfsStat::NFS4ERR_OP_NOT_IN_SESSION)
    }

    /// The stateid that an operation means: the current one stands in where it is asked for (RFC 8881 section 8.2.3), with
    /// its seqid only where `exact` (CLOSE, OPEN_DOWNGRADE).
    pub(crate) fn meant(&self, stateid: &Stateid, exact: bool) -> Result<Stateid, NfsStat> {
        if *stateid != Stateid::CURRENT {
            return Ok(*stateid);
        }
        if is_special(&self.stateid) {
            return Err(NfsStat::NFS4ERR_BAD_STATEID);
        }
        Ok(if exact { self.stateid } else { Stateid { seqid: 0, other: self.stateid.other } })
    }

    /// Writes notes into the log, atomic with what this compound changes.
    pub(crate) fn note(&mut self, notes: impl IntoIterator<Item = Stamped>) {
        if self.sh.persist {
            for note in notes {
                self.tx.note(note.to_bytes());
                self.noted = true;
            }
        }
    }

    /// The wire form of a filehandle.
    pub(crate) fn wire(&self, fh: &Fh) -> Bytes {
        match fh {
            Fh::Node { node, by_path: false } => node.fh(),
            Fh::Node { node, by_path: true } => Pseudo::by_path(&node.fh()),
            Fh::Pseudo(dir) => self.sh.pseudo.handle(*dir),
        }
    }

    /// The object whose attributes are asked for.
    pub(crate) fn subject(&self, fh: &Fh) -> Result<Subject, NfsStat> {
        let handle = self.wire(fh);
        match fh {
            Fh::Node { node, by_path } => {
                let attrs = self.sh.volume.getattr(node).map_err(status)?;
                Ok(self.subject_of(handle, node, *by_path, attrs))
            }
            Fh::Pseudo(dir) => {
                let export = self.sh.volume.getattr(&self.sh.root).map_err(status)?;
                let fileid = self.sh.pseudo.fileid(*dir);
                Ok(Subject { handle, mounted_on: fileid, attrs: pseudo_attrs(self.sh, fileid, &export) })
            }
        }
    }

    /// As [`Ctx::subject`], of an object of the volume whose attributes are known.
    pub(crate) fn subject_of(&self, handle: Bytes, node: &Node, by_path: bool, mut attrs: Attrs) -> Subject {
        let mut mounted_on = attrs.fileid;
        if by_path {
            attrs.fsid = Pseudo::by_path_fsid(attrs.fsid);
            if *node == self.sh.root {
                mounted_on = Pseudo::by_path_entry();
            }
        }
        Subject { handle, attrs, mounted_on }
    }
}

/// A synthetic directory: readable by all, never changed. `export` is the export's root.
fn pseudo_attrs(sh: &Shared, fileid: u64, export: &Attrs) -> Attrs {
    Attrs {
        kind: Kind::Dir,
        mode: 0o555,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: (0, 0),
        size: 4096,
        used: 0,
        fsid: sh.pseudo.fsid(export.fsid),
        fileid,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        btime: Timestamp::default(),
        change: 1,
    }
}

/// How the state names a file.
pub(crate) fn key(node: &Node) -> FileKey {
    node.fh()
}

/// Whether a stateid names no state.
pub(crate) fn is_special(s: &Stateid) -> bool {
    s.other == [0; 12] || s.other == [0xff; 12]
}

pub(crate) fn must_be_dir(node: &Node) -> Result<(), NfsStat> {
    match node.kind() {
        Kind::Dir => Ok(()),
        Kind::Symlink => Err(NfsStat::NFS4ERR_SYMLINK),
        _ => Err(NfsStat::NFS4ERR_NOTDIR),
    }
}

pub(crate) fn must_be_file(node: &Node) -> Result<(), NfsStat> {
    match node.kind() {
        Kind::File => Ok(()),
        Kind::Dir => Err(NfsStat::NFS4ERR_ISDIR),
        Kind::Symlink => Err(NfsStat::NFS4ERR_SYMLINK),
        _ => Err(NfsStat::NFS4ERR_WRONG_TYPE),
    }
}
