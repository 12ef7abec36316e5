//! What the operations of one COMPOUND share: the caller, the filehandles, the current stateid, the transactions.
//!
//! An operation on an object gets it as an [`Obj`], which has passed the export's access check. An operation that
//! changes something gets its transaction from [`Context::modify`], which refuses on a read-only export.

use super::allowance::Allowance;
use crate::acl;
use crate::attr::Subject;
use crate::errors::status;
use crate::exports::pseudo::{Pseudo, PseudoDir};
use crate::exports::{Access, Accesses, Caller, Export, Exports, Features, Object, Refused, Txs};
use crate::limits;
use crate::looks::Looks;
use crate::offload::Offload;
use crate::reservations::Room;
use crate::shared::Shared;
use crate::state::identity::Requester;
use crate::state::notes::Stamped;
use crate::state::opens::FileKey;
use crate::state::owners::OwnerKey;
use crate::state::removals::Removals;
use crate::state::sessions::ConnId;
use crate::state::{Millis, Principal};
use crate::state_lock::not_under_the_state;
use crate::touches::Touching;
use crate::wakeups::Awaited;
use bytes::Bytes;
use landfast_nfs::v4::attr::number::ACL;
use landfast_nfs::v4::{Bitmap, NfsStat, ResBody, SessionId, Stateid};
use landfast_volume::{Acl, Acls, Attrs, Cred, Kind, Node, Timestamp, Tx, Volume};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) enum Fh {
    /// An object of an export; `by_path` if the client came by the export's own path (see [`crate::exports::pseudo`]).
    Node {
        export: Arc<Export>,
        node: Node,
        by_path: bool,
    },
    Pseudo(PseudoDir),
}

impl From<Object> for Fh {
    fn from(o: Object) -> Fh {
        Fh::Node { export: o.export, node: o.node, by_path: o.by_path }
    }
}

/// An object that the caller may use, and as which user.
#[derive(Debug, Clone)]
pub(crate) struct Obj {
    pub(crate) export: Arc<Export>,
    pub(crate) node: Node,
    pub(crate) by_path: bool,
    pub(crate) access: Access,
}

impl Obj {
    pub(crate) fn volume(&self) -> &Volume {
        &self.export.volume
    }

    /// The caller as the volume sees it.
    pub(crate) fn cred(&self) -> &Cred {
        &self.access.cred
    }

    pub(crate) fn to(&self, node: Node) -> Fh {
        Fh::Node { export: self.export.clone(), node, by_path: self.by_path }
    }

    /// `ROFS` if the caller may change nothing.
    pub(crate) fn writable(&self) -> Result<(), NfsStat> {
        if self.access.read_only { Err(NfsStat::NFS4ERR_ROFS) } else { Ok(()) }
    }
}

/// The status for a caller that may not use an export.
pub(crate) fn refusal(why: Refused) -> NfsStat {
    match why {
        Refused::Access => NfsStat::NFS4ERR_ACCESS,
        Refused::Flavor => NfsStat::NFS4ERR_WRONGSEC,
        Refused::NotYet => NfsStat::NFS4ERR_DELAY,
    }
}

/// The error of an operation, and its result.
#[derive(Debug)]
pub(crate) struct OpError {
    pub(crate) status: NfsStat,
    /// Only a few operations have a result with an error.
    pub(crate) body: Option<Box<ResBody>>,
}

impl From<NfsStat> for OpError {
    fn from(status: NfsStat) -> Self {
        OpError { status, body: None }
    }
}

/// The general translation of the volume's errors.
impl From<landfast_volume::Error> for OpError {
    fn from(e: landfast_volume::Error) -> Self {
        status(e).into()
    }
}

pub(crate) type OpResult = Result<ResBody, OpError>;

/// What this COMPOUND's SEQUENCE established.
#[derive(Debug, Clone)]
pub(crate) struct InSession {
    pub(crate) id: SessionId,
    pub(crate) client: u64,
    pub(crate) slot: u32,
}

pub(crate) struct Context<'a> {
    pub(crate) sh: &'a Shared,
    pub(crate) now: Millis,
    pub(crate) conn: ConnId,
    pub(crate) principal: Principal,
    pub(crate) caller: Caller,
    /// The export table as it was when the COMPOUND began.
    pub(crate) exports: Arc<Exports>,
    /// The caller's access to the exports used so far.
    pub(crate) accesses: Accesses,
    pub(crate) minor: u32,
    pub(crate) session: Option<InSession>,
    /// The client that the current NFSv4.0 operation speaks for.
    pub(crate) client40: Option<u64>,
    /// The NFSv4.0 owners that this COMPOUND has made busy.
    pub(crate) owners: Vec<OwnerKey>,
    pub(crate) fh: Option<Fh>,
    pub(crate) saved: Option<(Fh, Stateid)>,
    /// The current stateid; the anonymous one when there is none (RFC 8881 section 16.2.3.1.2).
    pub(crate) stateid: Stateid,
    pub(crate) txs: Txs,
    /// Notes were written, so the reply waits for the log.
    pub(crate) noted: bool,
    /// Directories that it has made, in exports that give write directory delegations.
    pub(crate) made: Vec<FileKey>,
    /// The versions of those that say of clients that they are gone.
    pub(crate) gone: Vec<u64>,
    /// The disk work that it may still cause.
    pub(crate) work: Allowance<'a>,
    /// Copies to start once the reply is known.
    pub(crate) offloads: Vec<Offload>,
    /// A failed operation may succeed once other requests have been answered, within this time.
    pub(crate) waits: Option<(Awaited, Duration)>,
    /// What the current operation does to files.
    pub(crate) touching: Vec<Touching>,
    /// What it waits for that other clients have delegations of, and is told of it.
    pub(crate) looks: Looks,
    /// Nothing has been done yet that could not be done again, and it has not waited long enough.
    pub(crate) may_park: bool,
    /// The operation failed because a delegation is in its way, and the request waits for that.
    pub(crate) parks: bool,
    /// Bytes that the current operation's result may take.
    pub(crate) room: usize,
    pub(crate) last: bool,
    /// The next operation that is no SAVEFH may itself get `WRONGSEC`, or never gets it. Then an operation that sets a
    /// filehandle does not get it (RFC 8881 section 2.6.3.1.1).
    pub(crate) flavor_later: bool,
}

impl Context<'_> {
    pub(crate) fn requester(&self) -> Requester {
        Requester { principal: self.principal, addr: self.caller.addr }
    }

    /// Sets the current filehandle and clears the current stateid.
    pub(crate) fn set_fh(&mut self, fh: Fh) {
        self.fh = Some(fh);
        self.stateid = Stateid::ANONYMOUS;
    }

    pub(crate) fn fh(&self) -> Result<&Fh, NfsStat> {
        self.fh.as_ref().ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)
    }

    pub(crate) fn access_to(&self, export: &Export) -> Result<Access, Refused> {
        self.accesses.to(export.place, || {
            let access = export.access(&self.caller);
            if let Err(Refused::Access) = access {
                self.sh.refused_clients.log_export(&self.caller, export, false);
            }
            access
        })
    }

    /// The object of a filehandle; `None` for a synthetic directory.
    pub(crate) fn object(&self, fh: &Fh) -> Result<Option<Obj>, NfsStat> {
        match fh {
            Fh::Node { export, node, by_path } => {
                let access = self.access_to(export).map_err(|why| {
                    if why == Refused::Access {
                        self.sh.refused_clients.log_export(&self.caller, export, true);
                    }
                    refusal(why)
                })?;
                Ok(Some(Obj { export: export.clone(), node: node.clone(), by_path: *by_path, access }))
            }
            Fh::Pseudo(_) => Ok(None),
        }
    }

    /// The current object, for an operation that would change it; a synthetic directory is read-only.
    pub(crate) fn node(&self) -> Result<Obj, NfsStat> {
        self.object(self.fh()?)?.ok_or(NfsStat::NFS4ERR_ROFS)
    }

    pub(crate) fn dir(&self) -> Result<Obj, NfsStat> {
        let obj = self.node()?;
        must_be_dir(&obj.node)?;
        Ok(obj)
    }

    /// [`Context::dir`] for the operations that tell a client to follow a symbolic link (RFC 8881 section 15.2: LOOKUP,
    /// LOOKUPP, OPEN).
    pub(crate) fn dir_or_symlink(&self) -> Result<Obj, NfsStat> {
        let obj = self.node()?;
        match obj.node.kind() {
            Kind::Symlink => Err(NfsStat::NFS4ERR_SYMLINK),
            _ => must_be_dir(&obj.node).map(|()| obj),
        }
    }

    /// The state's key of the current object, whatever its type. For operations that find state by a stateid (CLOSE,
    /// OPEN_DOWNGRADE, LOCKU), which is valid only for a file.
    pub(crate) fn stateful(&self) -> Result<FileKey, NfsStat> {
        match self.object(self.fh()?)? {
            Some(obj) => Ok(key(&obj.node)),
            None => Err(NfsStat::NFS4ERR_BAD_STATEID),
        }
    }

    pub(crate) fn file(&self) -> Result<Obj, NfsStat> {
        let obj = self.object(self.fh()?)?.ok_or(NfsStat::NFS4ERR_ISDIR)?;
        must_be_file(&obj.node)?;
        Ok(obj)
    }

    /// The transaction of the object's volume; `ROFS` if the caller may change nothing.
    pub(crate) fn modify(&mut self, obj: &Obj) -> Result<&mut Tx, NfsStat> {
        obj.writable()?;
        Ok(self.txs.of(&obj.export))
    }

    /// Whether something new of so many bytes leaves what is kept for other clients.
    pub(crate) fn leaves(&self, obj: &Obj, bytes: u64) -> Result<(), NfsStat> {
        let (sh, by) = (self.sh, self.client().ok());
        sh.space.leaves(sh.now(), obj.volume(), obj.cred(), by, bytes).map_err(status)
    }

    /// Its client has made something new.
    pub(crate) fn uses_room_of_a_name(&self, obj: &Obj) {
        let used = Room { bytes: limits::RESERVED_FOR_NAME, files: 1 };
        self.sh.space.uses(obj.volume(), self.client().ok(), used);
    }

    /// The client of the session; in NFSv4.0 that of the client ID or stateid.
    pub(crate) fn client(&self) -> Result<u64, NfsStat> {
        if self.minor == 0 {
            return self.client40.ok_or(NfsStat::NFS4ERR_STALE_CLIENTID);
        }
        self.session.as_ref().map(|s| s.client).ok_or(NfsStat::NFS4ERR_OP_NOT_IN_SESSION)
    }

    /// The stateid that an operation means. The special value for the current stateid is replaced by that one (RFC 8881
    /// section 8.2.3), with its seqid only if `exact` (CLOSE, OPEN_DOWNGRADE).
    pub(crate) fn resolve_stateid(&self, stateid: &Stateid, exact: bool) -> Result<Stateid, NfsStat> {
        // NFSv4.0 has no current stateid.
        if *stateid != Stateid::CURRENT || self.minor == 0 {
            return Ok(*stateid);
        }
        if is_special(&self.stateid) {
            return Err(NfsStat::NFS4ERR_BAD_STATEID);
        }
        Ok(if exact { self.stateid } else { Stateid { seqid: 0, other: self.stateid.other } })
    }

    /// The export whose log takes this COMPOUND's notes: the one that it changed, if any. `None` where no notes are
    /// kept.
    pub(crate) fn home(&self) -> Option<Arc<Export>> {
        self.txs.home().filter(|e| e.volume.keeps_notes()).or_else(|| self.exports.keeper()).cloned()
    }

    /// Writes notes into the log, atomically with the COMPOUND's changes.
    pub(crate) fn note(&mut self, notes: impl IntoIterator<Item = Stamped>) {
        not_under_the_state();
        let Some(home) = self.home() else { return };
        for note in notes {
            self.gone.extend(Removals::among(std::slice::from_ref(&note)));
            self.txs.of(&home).note(note.to_bytes());
            self.noted = true;
        }
    }

    pub(crate) fn wire(&self, fh: &Fh) -> Bytes {
        match fh {
            Fh::Node { node, by_path: false, .. } => node.fh(),
            Fh::Node { node, by_path: true, .. } => Pseudo::by_path(&node.fh()),
            Fh::Pseudo(dir) => self.exports.pseudo.handle(*dir),
        }
    }

    pub(crate) fn subject(&self, fh: &Fh, wanted: &Bitmap) -> Result<Subject, NfsStat> {
        let handle = self.wire(fh);
        match fh {
            Fh::Node { export, node, by_path } => {
                let attrs = export.volume.getattr(node).map_err(status)?;
                self.subject_of(handle, export, node, *by_path, attrs, wanted)
            }
            Fh::Pseudo(dir) => {
                let fileid = self.exports.pseudo.fileid(*dir);
                let attrs = pseudo_attrs(&self.exports, fileid);
                let acls = Acls { access: Acl::from_mode(attrs.mode), default: None };
                let acl = wanted.has(ACL).then(|| acl::to_nfs4(&acls, true));
                let features = Features::default();
                Ok(Subject { handle, mounted_on: fileid, attrs, volume: None, features, acl, room: None })
            }
        }
    }

    /// [`Context::subject`] of a volume's object whose attributes are known.
    pub(crate) fn subject_of(
        &self,
        handle: Bytes,
        export: &Export,
        node: &Node,
        by_path: bool,
        mut attrs: Attrs,
        wanted: &Bitmap,
    ) -> Result<Subject, NfsStat> {
        let mut acl = None;
        if wanted.has(ACL) && node.kind() != Kind::Symlink && export.features.acls {
            match export.volume.acls(node) {
                Ok((now, acls)) => {
                    attrs = now;
                    acl = Some(acl::to_nfs4(&acls, node.kind() == Kind::Dir));
                }
                // A local process has set an ACL that is longer than the server accepts: do not report it.
                Err(landfast_volume::Error::TooBig) => {}
                Err(e) => return Err(status(e)),
            }
        }
        self.looks.show_in(node, &mut attrs);
        let mut mounted_on = attrs.fileid;
        if by_path {
            attrs.fsid = Pseudo::by_path_fsid(attrs.fsid);
        }
        if *node == export.root {
            let entry = if by_path { Some(Pseudo::by_path_entry()) } else { export.mounted_on };
            mounted_on = entry.unwrap_or(mounted_on);
        }
        let volume = Some(export.volume.clone());
        Ok(Subject { handle, attrs, mounted_on, volume, features: export.features, acl, room: None })
    }
}

/// The attributes of a synthetic directory: readable by all, changed only by a reload.
fn pseudo_attrs(exports: &Exports, fileid: u64) -> Attrs {
    Attrs {
        kind: Kind::Dir,
        mode: 0o555,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: (0, 0),
        size: 4096,
        used: 0,
        fsid: exports.pseudo.fsid(),
        fileid,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        btime: Timestamp::default(),
        change: exports.change,
    }
}

pub(crate) fn key(node: &Node) -> FileKey {
    node.fh()
}

pub(crate) fn is_special(s: &Stateid) -> bool {
    s.other == [0; 12] || s.other == [0xff; 12]
}

pub(crate) fn must_be_dir(node: &Node) -> Result<(), NfsStat> {
    match node.kind() {
        Kind::Dir => Ok(()),
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
