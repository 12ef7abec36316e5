//! What the procedures of one call share: the caller, the export table, the transactions. Also turns handles into
//! objects and the volume's values into the protocol's.

use super::errors::status;
use crate::exports::{Access, Accesses, Caller, Export, Exports, Refused, Txs};
use crate::looks::Looks;
use crate::shared::Shared;
use crate::state::Millis;
use crate::state::notes::Stamped;
use crate::state::opens::{Share, WRITE};
use crate::state::removals::Removals;
use crate::touches::Touching;
use landfast_nfs::v3::res::PostOp;
use landfast_nfs::v3::types::{FileType, SetTime, SpecData};
use landfast_nfs::v3::{FHSIZE, Fattr, FileHandle, NfsStat3, Res, Sattr, Time, WccAttr, WccData};
use landfast_volume::{Attrs, Cred, Error, Kind, Node, SetAttrs, TimeSet, Timestamp, Tx, Volume};
use std::sync::Arc;

/// An object that the caller may use, and as which user.
#[derive(Debug, Clone)]
pub(super) struct Obj {
    pub(super) export: Arc<Export>,
    pub(super) node: Node,
    pub(super) access: Access,
}

impl Obj {
    pub(super) fn volume(&self) -> &Volume {
        &self.export.volume
    }

    pub(super) fn cred(&self) -> &Cred {
        &self.access.cred
    }

    pub(super) fn to(&self, node: Node) -> Obj {
        Obj { node, ..self.clone() }
    }

    pub(super) fn must_be_dir(&self) -> Result<(), NfsStat3> {
        if self.node.kind() == Kind::Dir { Ok(()) } else { Err(NfsStat3::NOTDIR) }
    }

    pub(super) fn must_be_file(&self) -> Result<(), NfsStat3> {
        match self.node.kind() {
            Kind::File => Ok(()),
            Kind::Dir => Err(NfsStat3::ISDIR),
            _ => Err(NfsStat3::INVAL),
        }
    }

    pub(super) fn handle(&self) -> Result<FileHandle, NfsStat3> {
        handle(&self.node)
    }
}

/// The wire handle of an object; handles of the supported filesystems fit.
pub(super) fn handle(node: &Node) -> Result<FileHandle, NfsStat3> {
    let fh = node.fh();
    if fh.len() > FHSIZE { Err(NfsStat3::SERVERFAULT) } else { Ok(FileHandle(fh)) }
}

pub(super) struct Context<'a> {
    pub(super) sh: &'a Shared,
    pub(super) exports: Arc<Exports>,
    pub(super) caller: &'a Caller,
    /// What the exports let it do.
    pub(super) accesses: Accesses,
    pub(super) now: Millis,
    pub(super) txs: Txs,
    /// Notes were written, so the reply waits for the log.
    pub(super) noted: bool,
    /// The versions of notes of clients that are gone.
    pub(super) gone: Vec<u64>,
    /// What the call does to files.
    pub(super) touching: Vec<Touching>,
    /// What it waits for that clients have delegations of, and is told of it.
    pub(super) looks: Looks,
    /// It has not waited long enough.
    pub(super) may_park: bool,
    /// A delegation is in its way, and it has changed nothing yet: it waits for that.
    pub(super) parks: bool,
}

impl<'a> Context<'a> {
    pub(super) fn new(sh: &'a Shared, caller: &'a Caller) -> Context<'a> {
        Context {
            sh,
            exports: sh.exports(),
            caller,
            accesses: Accesses::default(),
            now: sh.now(),
            txs: Txs::default(),
            noted: false,
            gone: Vec::new(),
            touching: Vec::new(),
            looks: Looks::default(),
            may_park: true,
            parks: false,
        }
    }

    /// The object of a handle.
    /// Errors: `BADHANDLE`, `STALE`; `ACCES` if the caller may not use the export.
    pub(super) fn obj(&self, fh: &FileHandle) -> Result<Obj, NfsStat3> {
        let found = self.exports.object(&fh.0).map_err(status)?;
        let access = self.accesses.to(found.export.place, || found.export.access(self.caller));
        let access = access.map_err(|why| match why {
            Refused::Access => {
                self.sh.refused_clients.log_export(self.caller, &found.export, true);
                NfsStat3::ACCES
            }
            Refused::Flavor => NfsStat3::ACCES,
            Refused::NotYet => NfsStat3::JUKEBOX,
        })?;
        Ok(Obj { export: found.export, node: found.node, access })
    }

    /// The attributes of an object, as whoever has a delegation of it says they are.
    pub(super) fn look(&self, obj: &Obj) -> Result<Attrs, Error> {
        let mut attrs = obj.volume().getattr(&obj.node)?;
        self.looks.show_in(&obj.node, &mut attrs);
        Ok(attrs)
    }

    pub(super) fn attrs(&self, obj: &Obj) -> PostOp {
        self.look(obj).ok().as_ref().map(fattr)
    }

    /// A procedure that changes nothing: runs it on the object of a handle.
    pub(super) fn reading<T>(
        &mut self,
        fh: &FileHandle,
        run: impl FnOnce(&mut Self, &Obj) -> Result<T, NfsStat3>,
    ) -> Res<T, PostOp> {
        let obj = match self.obj(fh) {
            Ok(obj) => obj,
            Err(status) => return Res::Fail(status, None),
        };
        match run(self, &obj) {
            Ok(ok) => Res::Ok(ok),
            Err(status) => Res::Fail(status, self.attrs(&obj)),
        }
    }

    /// A procedure that changes the object of a handle: runs it, then makes its result with the attributes before and
    /// after.
    pub(super) fn changing<T, R>(
        &mut self,
        fh: &FileHandle,
        run: impl FnOnce(&mut Self, &Obj) -> Result<T, NfsStat3>,
        result: impl FnOnce(T, WccData) -> R,
    ) -> Res<R, WccData> {
        let obj = match self.obj(fh) {
            Ok(obj) => obj,
            Err(status) => return Res::Fail(status, WccData::default()),
        };
        let done = run(self, &obj);
        let wcc = self.wcc(&obj);
        match done {
            Ok(done) => Res::Ok(result(done, wcc)),
            Err(status) => Res::Fail(status, wcc),
        }
    }

    /// The transaction of the object's volume, which keeps the attributes from before. The answer depends on the
    /// object. `ROFS` if the caller may change nothing.
    pub(super) fn modify(&mut self, obj: &Obj) -> Result<&mut Tx, NfsStat3> {
        let tx = self.write_unstably(obj)?;
        tx.rests_on(&obj.node);
        Ok(tx)
    }

    /// Whether something new leaves what is kept for holders of write directory delegations.
    pub(super) fn leaves(&self, dir: &Obj) -> Result<(), NfsStat3> {
        let sh = self.sh;
        sh.space.leaves(sh.now(), dir.volume(), dir.cred(), None, 0).map_err(status)
    }

    /// [`Context::modify`] for data that a later COMMIT makes durable: the answer depends on nothing.
    pub(super) fn write_unstably(&mut self, obj: &Obj) -> Result<&mut Tx, NfsStat3> {
        if obj.access.read_only {
            return Err(NfsStat3::ROFS);
        }
        let tx = self.txs.of(&obj.export);
        tx.watch();
        Ok(tx)
    }

    /// Weak cache consistency data of an object that this call was to change. The "before" part is there only if
    /// nothing else happened in between (RFC 1813 section 2.6).
    pub(super) fn wcc(&mut self, obj: &Obj) -> WccData {
        match self.txs.of(&obj.export).around(&obj.node) {
            Some(seen) => WccData {
                before: Some(WccAttr {
                    size: seen.before.size,
                    mtime: time(seen.before.mtime),
                    ctime: time(seen.before.ctime),
                }),
                after: Some(fattr(&seen.after)),
            },
            None => WccData { before: None, after: self.attrs(obj) },
        }
    }

    /// Checks share reservations of NFSv4 opens, which bind everybody (RFC 8881 section 9.9). Opens of a client whose
    /// lease has expired are removed. The error is `ACCES`, or `JUKEBOX` while such a client may reclaim what it had denied
    /// (section 8.4.2.1), and for what is to be written until the log knows that the client is gone: it may outlast a crash
    /// that the note does not, and the client would reclaim what it lost (section 8.4.3, the first edge condition).
    pub(super) fn not_denied(&mut self, obj: &Obj, want: Share) -> Result<(), NfsStat3> {
        let key = obj.node.fh();
        let (before, mut notes) = (self.gone.len(), Vec::new());
        let (result, unsettled) = {
            let mut st = self.sh.state();
            // While the log does not take the end of the grace period nobody reclaims, and reads go on.
            if st.grace.waits_for_nfs4(self.now) && (want == WRITE || st.grace.may_reclaim(self.now)) {
                return Err(NfsStat3::JUKEBOX);
            }
            let result = loop {
                match st.files.check_anonymous(&key, want) {
                    Ok(()) => break Ok(()),
                    Err(holder) if st.lapsed(holder.client, self.now) => {
                        notes.extend(st.remove_client(holder.client));
                    }
                    Err(_) => break Err(NfsStat3::ACCES),
                }
            };
            (result, st.removals.unsettled())
        };
        notes.extend(self.exports.relied_on(unsettled));
        self.note(notes);
        if want == WRITE && self.gone.len() > before { Err(NfsStat3::JUKEBOX) } else { result }
    }

    /// Writes notes into the log of an object's volume, atomically with what the call changes there.
    pub(super) fn note_in(&mut self, obj: &Obj, notes: Vec<Stamped>) {
        for note in notes {
            self.txs.of(&obj.export).note(note.to_bytes());
            self.noted = true;
        }
    }

    pub(super) fn note(&mut self, notes: Vec<Stamped>) {
        let Some(keeper) = self.exports.keeper().cloned() else { return };
        for note in notes {
            self.gone.extend(Removals::among(std::slice::from_ref(&note)));
            self.txs.of(&keeper).note(note.to_bytes());
            self.noted = true;
        }
    }
}

/// Encodes a time; one before 1970 or after 2106 becomes the nearest possible.
pub(super) fn time(t: Timestamp) -> Time {
    match u32::try_from(t.secs) {
        Ok(seconds) => Time { seconds, nseconds: t.nanos },
        Err(_) => Time { seconds: if t.secs < 0 { 0 } else { u32::MAX }, nseconds: 0 },
    }
}

/// Decodes a time; `INVAL` for a second or more of nanoseconds.
pub(super) fn timestamp(t: Time) -> Result<Timestamp, NfsStat3> {
    if t.nseconds >= 1_000_000_000 {
        return Err(NfsStat3::INVAL);
    }
    Ok(Timestamp { secs: i64::from(t.seconds), nanos: t.nseconds })
}

pub(super) fn fattr(a: &Attrs) -> Fattr {
    Fattr {
        file_type: match a.kind {
            Kind::File => FileType::Reg,
            Kind::Dir => FileType::Dir,
            Kind::Symlink => FileType::Lnk,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Sock,
            Kind::CharDev => FileType::Chr,
            Kind::BlockDev => FileType::Blk,
        },
        mode: a.mode,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        size: a.size,
        used: a.used,
        rdev: SpecData { major: a.rdev.0, minor: a.rdev.1 },
        fsid: a.fsid.0 ^ a.fsid.1,
        fileid: a.fileid,
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
    }
}

/// Decodes attributes to set; `INVAL` for an invalid owner, group or time.
pub(super) fn set_attrs(a: &Sattr) -> Result<SetAttrs, NfsStat3> {
    let when = |t| {
        Ok(match t {
            SetTime::Dont => None,
            SetTime::Server => Some(TimeSet::Now),
            SetTime::Client(t) => Some(TimeSet::At(timestamp(t)?)),
        })
    };
    if a.uid == Some(u32::MAX) || a.gid == Some(u32::MAX) {
        return Err(NfsStat3::INVAL);
    }
    Ok(SetAttrs {
        mode: a.mode.map(|m| m & 0o7777),
        uid: a.uid,
        gid: a.gid,
        size: a.size,
        atime: when(a.atime)?,
        mtime: when(a.mtime)?,
        ..SetAttrs::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc1813_2_5_times_that_do_not_fit_become_the_nearest() {
        let at = |secs| time(Timestamp { secs, nanos: 5 });
        assert_eq!(at(7), Time { seconds: 7, nseconds: 5 });
        assert_eq!(at(-1), Time { seconds: 0, nseconds: 0 });
        assert_eq!(at(1 << 32), Time { seconds: u32::MAX, nseconds: 0 });
        assert_eq!(timestamp(Time { seconds: 1, nseconds: 1_000_000_000 }), Err(NfsStat3::INVAL));
    }

    #[test]
    fn rfc1813_3_3_2_what_cannot_be_set_is_refused() {
        assert_eq!(set_attrs(&Sattr { uid: Some(u32::MAX), ..Sattr::default() }), Err(NfsStat3::INVAL));
        let odd = SetTime::Client(Time { seconds: 0, nseconds: u32::MAX });
        assert_eq!(set_attrs(&Sattr { mtime: odd, ..Sattr::default() }), Err(NfsStat3::INVAL));
        let mode = set_attrs(&Sattr { mode: Some(0o100_644), ..Sattr::default() }).expect("a mode");
        assert_eq!(mode.mode, Some(0o644), "the kind is not set");
    }
}
