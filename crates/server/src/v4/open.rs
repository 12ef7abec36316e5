//! OPEN, OPEN_DOWNGRADE, CLOSE (RFC 8881 sections 18.2, 18.16, 18.18), TEST_STATEID and FREE_STATEID (18.38, 18.48).
//!
//! A file is first opened on the volume. Then the open is entered into the state, in one step with the check of share
//! reservations. An OPEN that truncates waits until that check has passed once. So a caller that may not open a file
//! gets `ACCESS`, and does not learn by `SHARE_DENIED` whether others have it open.

use super::context::{Context, Fh, Obj, OpError, OpResult, key, must_be_file};
use super::delegation::{Given, Wish};
use super::names::cinfo;
use crate::attr::{self, Purpose};
use crate::errors::{check_name, status, status_of_acls};
use crate::limits;
use crate::state::delegations::Touch;
use crate::state::opens::{FileKey, READ, Share, ShareConflict, WRITE};
use crate::unlinked;
use bytes::Bytes;
use landfast_nfs::v4::args::{
    CloseArgs, CreateHow as WireHow, OpenArgs, OpenClaim, OpenDowngradeArgs, OpenHow,
};
use landfast_nfs::v4::attr::number::ACL;
use landfast_nfs::v4::flags::{
    CREATE_SESSION4_FLAG_PERSIST, OPEN4_RESULT_LOCKTYPE_POSIX, OPEN4_RESULT_NO_OPEN_STATEID,
    OPEN4_RESULT_PRESERVE_UNLINKED, WND4_RESOURCE,
};
use landfast_nfs::v4::res::OpenRes;
use landfast_nfs::v4::{Bitmap, ChangeInfo, NfsStat, ResBody, Stateid};
use landfast_rpc::share_of;
use landfast_volume::{CreateHow, Error, Kept, Kind, OpenFile, OpenMode, SetAcls, SetAttrs, Verifier};

/// How often an OPEN looks again when a name comes and goes under it.
const TRIES: usize = 4;

/// What an OPEN asks for, checked.
struct OpenRequest {
    client: u64,
    owner: Bytes,
    access: Share,
    deny: Share,
    mode: OpenMode,
    /// A new file is opened for reading, too: it will be delegated.
    both: bool,
    /// The client says that it had this open before the server restarted.
    reclaims: bool,
}

struct OpenedFile {
    obj: Obj,
    file: OpenFile,
    cinfo: ChangeInfo,
    attrset: Bitmap,
}

impl Context<'_> {
    pub(super) fn open(&mut self, a: &OpenArgs) -> OpResult {
        let request = self.request(a)?;
        if matches!(a.claim, OpenClaim::Null(_) | OpenClaim::DelegateCur { .. }) {
            self.looks_into_current()?;
        }
        let found = match (&a.claim, &a.openhow) {
            (OpenClaim::Null(name), OpenHow::NoCreate) => {
                self.may_open_anew(request.client)?;
                self.open_name(name, &request)?
            }
            (OpenClaim::Null(name), OpenHow::Create(how)) => {
                self.may_open_anew(request.client)?;
                self.open_create(name, how, &request)?
            }
            (OpenClaim::Fh, OpenHow::NoCreate) => {
                self.may_open_anew(request.client)?;
                self.open_current(&request)?
            }
            (OpenClaim::Previous(_), OpenHow::NoCreate) => {
                let file = key(&self.file()?.node);
                {
                    let st = self.sh.state();
                    st.may_reclaim(request.client, self.now)?;
                    if st.files.is_barred(request.client, &file) {
                        return Err(NfsStat::NFS4ERR_RECLAIM_BAD.into());
                    }
                }
                self.open_current(&request)?
            }
            (OpenClaim::Fh | OpenClaim::Previous(_), OpenHow::Create(_)) => {
                return Err(NfsStat::NFS4ERR_INVAL.into());
            }
            (OpenClaim::DelegCurFh(stateid), OpenHow::NoCreate) => {
                self.may_open_by(&self.file()?, stateid, request.access)?;
                self.open_current(&request)?
            }
            (OpenClaim::DelegateCur { delegate_stateid, file }, OpenHow::NoCreate) => {
                let dir = self.dir_or_symlink()?;
                check_name(file)?;
                let obj = Obj { node: dir.volume().lookup(dir.cred(), &dir.node, file)?, ..dir.clone() };
                self.may_open_by(&obj, delegate_stateid, request.access)?;
                let cinfo = self.unchanged(&dir)?;
                self.open_existing(obj, cinfo, None, &request)?
            }
            (OpenClaim::DelegateCur { .. } | OpenClaim::DelegCurFh(_), OpenHow::Create(_)) => {
                return Err(NfsStat::NFS4ERR_INVAL.into());
            }
            (OpenClaim::DelegatePrev(_) | OpenClaim::DelegPrevFh, _) => {
                return Err(NfsStat::NFS4ERR_NOTSUPP.into());
            }
        };
        let wish = Wish::of(a.share_access);
        let given = match &a.claim {
            OpenClaim::Null(_) | OpenClaim::Fh => {
                self.delegate(&found.obj, request.access, &found.file, wish)
            }
            _ => Err(WND4_RESOURCE),
        };
        if let Ok(given) = &given {
            self.note_given(request.client, &key(&found.obj.node), &given.stateid);
        }
        let alone =
            given.is_ok() && wish.instead && request.deny == 0 && !self.has_open(&found.obj, &request);
        let stateid = if alone {
            let notes = self.sh.state().is_opened_anew(request.client, &key(&found.obj.node));
            self.note(notes);
            Stateid::ANONYMOUS
        } else {
            self.enter(&found.obj, &request, found.file).inspect_err(|_| self.withdraw(&found.obj, &given))?
        };
        if !matches!(a.claim, OpenClaim::Fh | OpenClaim::Previous(_) | OpenClaim::DelegCurFh(_)) {
            self.set_fh(found.obj.to(found.obj.node.clone()));
        }
        let outlasts = match (&given, alone) {
            (Ok(given), true) => self.delegation_outlasts(&found.obj, &given.stateid),
            _ => self.open_outlasts(&found.obj, &stateid),
        };
        let mut rflags = OPEN4_RESULT_LOCKTYPE_POSIX;
        rflags |= if alone { OPEN4_RESULT_NO_OPEN_STATEID } else { 0 };
        rflags |= if outlasts { OPEN4_RESULT_PRESERVE_UNLINKED } else { 0 };
        self.stateid = if let (true, Ok(given)) = (alone, &given) { given.stateid } else { stateid };
        let delegation = given.map_or_else(|why| wish.none(why), |given| given.says);
        Ok(ResBody::Open(OpenRes { stateid, cinfo: found.cinfo, rflags, attrset: found.attrset, delegation }))
    }

    /// Whether the open is known after a restart, and the file with it, whether the file has a name then or not. An OPEN that changes nothing would have to wait for a
    /// flush to say so: its open goes into the log later.
    fn open_outlasts(&mut self, obj: &Obj, stateid: &Stateid) -> bool {
        if self.minor == 0 || !obj.volume().keeps_orphans() {
            return false;
        }
        if !self.txs.modified() {
            let promised = self.sh.state().is_promised(stateid);
            if promised {
                // The OPEN that was told so first may be under way.
                self.txs.rests_on(&obj.export, &obj.node);
            }
            return promised && obj.volume().outlasts(&obj.node);
        }
        if self.home().is_none_or(|home| home.id() != obj.export.id()) {
            // Its note would go into the log of another export, which has changed.
            let _ = self.sh.state().is_promised(stateid);
            return false;
        }
        self.txs.of(&obj.export).announces_note_about(&obj.node);
        let note = self.sh.state().promise_open(stateid);
        let logged = note.is_some();
        self.note(note);
        // After the open was entered: a removal sees it from here on.
        logged && obj.volume().outlasts(&obj.node)
    }

    /// The same of a delegation that takes the place of an open.
    fn delegation_outlasts(&self, obj: &Obj, stateid: &Stateid) -> bool {
        let volume = obj.volume();
        if !volume.keeps_orphans() || !self.txs.modified() {
            return false;
        }
        let promised = self.sh.state().files.delegation_is_promised(stateid);
        promised && volume.outlasts(&obj.node)
    }

    /// Whether this owner has the file open already: then that open is widened, whatever delegation there is.
    fn has_open(&self, obj: &Obj, request: &OpenRequest) -> bool {
        self.sh.state().files.has_open(request.client, &request.owner, &key(&obj.node))
    }

    /// Takes a delegation back when its OPEN fails.
    fn withdraw(&self, obj: &Obj, given: &Result<Given, u32>) {
        if let (Ok(given), Ok(client)) = (given, self.client()) {
            self.sh.state().files.withdraw_delegation(client, &key(&obj.node), &given.stateid);
        }
    }

    fn request(&self, a: &OpenArgs) -> Result<OpenRequest, NfsStat> {
        let access = (a.share_access & 3) as Share;
        // NFSv4.0 has no wishes for delegations.
        if access == 0 || a.share_deny > 3 || (self.minor == 0 && a.share_access > 3) {
            return Err(NfsStat::NFS4ERR_INVAL);
        }
        Ok(OpenRequest {
            client: self.client()?,
            owner: a.owner.owner.0.clone(),
            access,
            deny: a.share_deny as Share,
            reclaims: matches!(a.claim, OpenClaim::Previous(_)),
            both: access == WRITE && Wish::of(a.share_access).instead,
            mode: OpenMode {
                read: access & READ != 0,
                write: access & WRITE != 0,
                // The client has been let in before the server restarted. Not with CLAIM_FH: Linux opens with it what it has
                // asked nobody about, so the mode counts, as with Linux' server.
                owner_override: matches!(
                    a.claim,
                    OpenClaim::Previous(_) | OpenClaim::DelegCurFh(_) | OpenClaim::DelegateCur { .. }
                ),
            },
        })
    }

    fn may_open_anew(&self, client: u64) -> Result<(), NfsStat> {
        if self.sh.state().must_wait_for_grace(client, self.now) {
            Err(NfsStat::NFS4ERR_GRACE)
        } else {
            Ok(())
        }
    }

    fn unchanged(&self, dir: &Obj) -> Result<ChangeInfo, NfsStat> {
        let change = dir.volume().getattr(&dir.node).map_err(status)?.change;
        Ok(ChangeInfo { atomic: true, before: change, after: change })
    }

    fn open_current(&mut self, request: &OpenRequest) -> Result<OpenedFile, OpError> {
        let obj = self.file()?;
        let file = self.open_allowed(&obj, request)?;
        Ok(OpenedFile { obj, file, cinfo: ChangeInfo::default(), attrset: Bitmap::default() })
    }

    fn open_name(&mut self, name: &[u8], request: &OpenRequest) -> Result<OpenedFile, OpError> {
        let dir = self.dir_or_symlink()?;
        check_name(name)?;
        let node = dir.volume().lookup(dir.cred(), &dir.node, name)?;
        let cinfo = self.unchanged(&dir)?;
        self.open_existing(Obj { node, ..dir }, cinfo, None, request)
    }

    fn open_existing(
        &mut self,
        obj: Obj,
        cinfo: ChangeInfo,
        size: Option<u64>,
        request: &OpenRequest,
    ) -> Result<OpenedFile, OpError> {
        must_be_file(&obj.node)?;
        let file = self.open_allowed(&obj, request)?;
        let mut attrset = Bitmap::default();
        // RFC 8881 section 18.16.3: of the attributes of an UNCHECKED4 create only a size of 0 applies to what is there.
        if size == Some(0) {
            // Who is refused for want of room must find the file as it was.
            self.room_to_open(request.client, Some((&request.owner, &key(&obj.node))))?;
            let attrs = SetAttrs { size: Some(0), ..SetAttrs::default() };
            let by = request.mode.write.then_some(&file);
            let set = obj.volume().setattr(self.modify(&obj)?, obj.cred(), &obj.node, by, attrs)?;
            attrset = attr::set_mask(&set);
        }
        Ok(OpenedFile { obj, file, cinfo, attrset })
    }

    /// Opens on the volume what the export, the file's mode and the share reservations allow, asked in this order.
    fn open_allowed(&mut self, obj: &Obj, request: &OpenRequest) -> Result<OpenFile, OpError> {
        if request.mode.write {
            obj.writable()?;
        }
        let file = obj.volume().open_file(obj.cred(), &obj.node, request.mode)?;
        // Nobody recalls what he may not open.
        let changes = request.mode.write || request.deny != 0;
        self.touch(obj, if changes { Touch::Changes } else { Touch::Reads })?;
        self.share(obj, request)?;
        Ok(file)
    }

    /// Whether the client was told that the session outlasts the server.
    fn is_persistent(&self) -> bool {
        let Some(on) = &self.session else { return false };
        let st = self.sh.state();
        st.sessions.get(&on.id).is_some_and(|s| s.flags & CREATE_SESSION4_FLAG_PERSIST != 0)
    }

    fn open_create(
        &mut self,
        name: &[u8],
        how: &WireHow,
        request: &OpenRequest,
    ) -> Result<OpenedFile, OpError> {
        let dir = self.dir_or_symlink()?;
        check_name(name)?;
        let wire = how;
        let (how, exclusive) = match how {
            WireHow::Unchecked(f) => {
                (CreateHow::Unchecked(attr::to_set(f, self.minor, Purpose::Create)?), false)
            }
            WireHow::Guarded(f) => (CreateHow::Guarded(attr::to_set(f, self.minor, Purpose::Create)?), false),
            // RFC 8881 section 18.16.3: such a session's reply cache makes GUARDED4 as good, and files have attributes at once.
            WireHow::Exclusive(_) if self.is_persistent() => return Err(NfsStat::NFS4ERR_INVAL.into()),
            WireHow::Exclusive(verf) => {
                // RFC 8881 section 18.16.3: its client sets all attributes afterwards in any case.
                let verifier = Verifier { create: *verf, instance: None };
                (CreateHow::Exclusive { verifier, attrs: SetAttrs::default() }, true)
            }
            WireHow::Exclusive41 { verf, attrs } => {
                let attrs = attr::to_set(attrs, self.minor, Purpose::Exclusive)?;
                // Linux makes the verifier of the time since the machine's start and a process's number. Both come again after the
                // next start, and in another machine.
                let instance = self.sh.state().clients.get(request.client).map(|c| c.verifier);
                (CreateHow::Exclusive { verifier: Verifier { create: *verf, instance }, attrs }, true)
            }
        };
        let (CreateHow::Unchecked(attrs) | CreateHow::Guarded(attrs) | CreateHow::Exclusive { attrs, .. }) =
            how;
        let owner = attrs.uid.unwrap_or(dir.cred().uid);
        let acls = match wire {
            WireHow::Unchecked(f) | WireHow::Guarded(f) | WireHow::Exclusive41 { attrs: f, .. } => {
                attr::acls_to_set(f, Kind::File, owner, dir.export.features)?
            }
            WireHow::Exclusive(_) => SetAcls::default(),
        };
        let CreateHow::Unchecked(attrs) = how else {
            return self.make(&dir, name, how, &acls, exclusive, request);
        };
        // What is there is opened, under the share reservations that others hold on it; what is not there is made, and
        // nobody else's can be in the way. Between the look and the making either may become the other.
        for _ in 0..TRIES {
            match dir.volume().lookup(dir.cred(), &dir.node, name) {
                Ok(node) => {
                    self.txs.rests_on(&dir.export, &node);
                    let cinfo = self.unchanged(&dir)?;
                    return self.open_existing(Obj { node, ..dir }, cinfo, attrs.size, request);
                }
                Err(Error::NoEnt) => {
                    match self.make(&dir, name, CreateHow::Guarded(attrs), &acls, false, request) {
                        Err(f) if f.status == NfsStat::NFS4ERR_EXIST => {}
                        done => return done,
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
        Err(NfsStat::NFS4ERR_DELAY.into())
    }

    fn make(
        &mut self,
        dir: &Obj,
        name: &[u8],
        how: CreateHow,
        acls: &SetAcls,
        exclusive: bool,
        request: &OpenRequest,
    ) -> Result<OpenedFile, OpError> {
        dir.writable()?;
        self.touch(dir, Touch::Changes)?;
        // Who is told to come again later must not find what it was to make. What is there already may be open.
        if !exclusive {
            self.room_to_open(request.client, None)?;
        }
        self.leaves(dir, 0)?;
        let mode = OpenMode { read: request.mode.read || request.both, ..request.mode };
        let made = dir
            .volume()
            .create_with_acls(self.modify(dir)?, dir.cred(), &dir.node, name, how, mode, acls)
            .map_err(|e| if acls.is_empty() { status(e) } else { status_of_acls(e) })?;
        self.uses_room_of_a_name(dir);
        let mut attrset = match made.kept {
            Some(Kept::InTimes) => attr::set_mask_exclusive(&made.attrs_set),
            Some(Kept::Apart) | None => attr::set_mask(&made.attrs_set),
        };
        if made.created && !acls.is_empty() {
            attrset.set(ACL);
        }
        let obj = Obj { node: made.node, ..dir.clone() };
        // Others may have found it already, and have a delegation of it. It is recalled, and what this client does to the file waits for that.
        // The OPEN must not fail any more: it has made the file.
        if self.touch(&obj, Touch::Changes).is_err() {
            self.parks = false;
            let client = self.session.as_ref().map(|s| s.client);
            let notes = self.sh.state().log_beside(&key(&obj.node), client);
            self.note(notes);
        }
        Ok(OpenedFile { obj, file: made.file, cinfo: cinfo(made.dir_change), attrset })
    }

    /// Whether the share reservations allow it. A client in the way whose lease is over loses what it holds.
    fn share(&mut self, obj: &Obj, request: &OpenRequest) -> Result<(), NfsStat> {
        if request.deny != 0 && !request.reclaims && self.sh.state().may_have_unknown_opens(self.now) {
            return Err(NfsStat::NFS4ERR_GRACE);
        }
        let file = key(&obj.node);
        self.clear_the_way(NfsStat::NFS4ERR_SHARE_DENIED, |st| {
            st.files.check_share(&file, request.access, request.deny)
        })
    }

    /// Asks `check` until nobody is in the way but a client with a lease; the others are removed.
    pub(super) fn clear_the_way(
        &mut self,
        denied: NfsStat,
        check: impl Fn(&crate::state::State<OpenFile>) -> Result<(), ShareConflict>,
    ) -> Result<(), NfsStat> {
        let mut notes = Vec::new();
        let (result, unsettled) = {
            let mut st = self.sh.state();
            let result = loop {
                match check(&st) {
                    Ok(()) => break Ok(()),
                    Err(ShareConflict { client }) if st.lapsed(client, self.now) => {
                        notes.extend(st.remove_client(client));
                    }
                    Err(_) => break Err(denied),
                }
            };
            (result, st.removals.unsettled())
        };
        notes.extend(self.exports.relied_on(unsettled));
        self.note(notes);
        result
    }

    fn enter(&mut self, obj: &Obj, request: &OpenRequest, file: OpenFile) -> Result<Stateid, NfsStat> {
        let file_key = key(&obj.node);
        self.room_to_open(request.client, Some((&request.owner, &file_key)))?;
        self.share(obj, request)?;
        let from = share_of(self.caller.addr);
        let (stateid, notes) = {
            let mut st = self.sh.state();
            if st.clients.get(request.client).is_none() {
                return Err(NfsStat::NFS4ERR_STALE_CLIENTID);
            }
            st.files
                .check_share(&file_key, request.access, request.deny)
                .map_err(|_| NfsStat::NFS4ERR_SHARE_DENIED)?;
            let stateid = st.files.open_from(
                from,
                &file_key,
                request.client,
                &request.owner,
                request.access,
                request.deny,
                Some(file),
            )?;
            // Of a file that was revoked nothing is reclaimed: this is no reclaim.
            (stateid, st.is_opened_anew(request.client, &file_key))
        };
        self.note(notes);
        Ok(stateid)
    }

    fn room_to_open(&mut self, client: u64, known: Option<(&Bytes, &FileKey)>) -> Result<(), NfsStat> {
        let from = share_of(self.caller.addr);
        let (room, gone) = self.sh.state().make_room_for_open(self.now, client, known, from);
        self.note(gone);
        room
    }

    pub(super) fn open_downgrade(&mut self, a: &OpenDowngradeArgs) -> OpResult {
        let access = (a.share_access & 3) as Share;
        if access == 0 || a.share_deny > 3 || (self.minor == 0 && a.share_access > 3) {
            return Err(NfsStat::NFS4ERR_INVAL.into());
        }
        let stateid = self.resolve_stateid(&a.open_stateid, true)?;
        let (client, file) = (self.client()?, self.stateful()?);
        let new = {
            let mut st = self.sh.state();
            // OPEN_DOWNGRADE is not told of a grace period (RFC 8881 section 15.2).
            let usable = st.may_use_in_grace(self.now, client, &file, &stateid, access);
            let adopted = usable.and_then(|()| st.adopt(self.now, client, &file, &stateid, access));
            adopted.map_err(|_| NfsStat::NFS4ERR_DELAY)?;
            st.files.downgrade(client, &file, &stateid, access, a.share_deny as Share)?
        };
        self.stateid = new;
        Ok(ResBody::OpenDowngrade(new))
    }

    /// CLOSE. The current stateid is none afterwards.
    pub(super) fn close(&mut self, a: &CloseArgs) -> OpResult {
        let stateid = self.resolve_stateid(&a.open_stateid, true)?;
        let (client, file) = (self.client()?, self.stateful()?);
        // The descriptors are closed when the lock is not held any more.
        let (handles, notes, orphaned) = {
            let mut st = self.sh.state();
            let (mut handles, mut releases) = (Vec::new(), false);
            if !st.close_unused_former(client, &file, &stateid) {
                let open = st.files.find_open(client, &file, &stateid)?;
                releases = st.files.has_logged_locks(open);
                handles = st.files.close(client, &file, &stateid)?;
            }
            let orphaned = st.files.preserved.take_released_file(&file);
            let unlinked = orphaned || st.files.preserved.is_orphan(&file);
            (handles, if releases || unlinked { st.take_gone() } else { Vec::new() }, orphaned)
        };
        drop(handles);
        self.note(notes);
        if orphaned {
            self.remove_orphan()?;
        }
        self.stateid = Stateid::INVALID;
        Ok(ResBody::Close(Stateid::INVALID))
    }

    /// The last open of a file without a name is closed: the file goes.
    fn remove_orphan(&mut self) -> Result<(), NfsStat> {
        let Fh::Node { export, node, .. } = self.fh()?.clone() else { return Ok(()) };
        let sh = self.sh;
        let tx = self.txs.of(&export);
        // What fails is tried again at the next tick, which says so.
        let _ = unlinked::remove(sh, &export.volume, tx, &node);
        Ok(())
    }

    pub(super) fn test_stateid(&mut self, stateids: &[Stateid]) -> OpResult {
        if stateids.len() > limits::TEST_STATEIDS_MAX {
            return Err(NfsStat::NFS4ERR_INVAL.into());
        }
        let client = self.client()?;
        let st = self.sh.state();
        let each = |s: &Stateid| match st.files.find(client, s) {
            Ok(_) => NfsStat::NFS4_OK,
            Err(status) => status,
        };
        Ok(ResBody::TestStateid(stateids.iter().map(each).collect()))
    }

    pub(super) fn free_stateid(&mut self, stateid: &Stateid) -> OpResult {
        let stateid = self.resolve_stateid(stateid, false)?;
        let client = self.client()?;
        let notes = {
            let mut st = self.sh.state();
            let revoked = st.files.find(client, &stateid) == Err(NfsStat::NFS4ERR_DELEG_REVOKED);
            st.files.free(client, &stateid)?;
            if revoked { st.note_client(client) } else { Vec::new() }
        };
        self.note(notes);
        Ok(ResBody::Empty)
    }
}
