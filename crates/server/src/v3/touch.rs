//! Before a call runs: are delegations in its way (RFC 8881 section 10.4)? NFSv3 has no clients that could hold any, so each
//! holder is somebody else.
//!
//! This is the one place in NFSv3 that asks, but for those that know an object only on the way: LOOKUP, REMOVE, RMDIR and RENAME (`names.rs`), READDIRPLUS,
//! which asks for each entry, and a CREATE that takes a file that is there. Each procedure is listed, so that a new one is not forgotten.

use super::DecodedCall;
use super::context::{Context, Obj};
use super::readdir::Found;
use crate::looks::{Looker, gone_among};
use crate::state::delegations::Touch;
use crate::state::notes::Stamped;
use crate::touches::can_be_delegated;
use landfast_nfs::v3::args::{CreateArgs, MkdirArgs, MknodArgs, SymlinkArgs};
use landfast_nfs::v3::{Call, FileHandle, NfsStat3};
use landfast_volume::{Kind, Node};

impl Context<'_> {
    /// Announces what the call does to files, and makes sure that no delegation is in its way.
    /// Errors: `JUKEBOX` while one is.
    pub(super) fn before(&mut self, call: &DecodedCall) -> Result<(), NfsStat3> {
        match call {
            DecodedCall::Getacl(a) => self.touch_handle(&a.object, Touch::Looks),
            DecodedCall::Setacl(a) => self.touch_handle(&a.object, Touch::Changes),
            DecodedCall::V3(call) => self.before_v3(call),
        }
    }

    fn before_v3(&mut self, call: &Call) -> Result<(), NfsStat3> {
        match call {
            // Their results have the object's attributes.
            Call::Getattr(fh) => self.touch_handle(fh, Touch::Looks),
            Call::Access(a) => self.touch_handle(&a.object, Touch::Looks),
            Call::Fsstat(fh) | Call::Fsinfo(fh) | Call::Pathconf(fh) => self.touch_handle(fh, Touch::Looks),
            Call::Lookup(a) => self.looks_into(&a.dir),
            Call::Read(a) => self.touch_handle(&a.file, Touch::Reads),
            Call::Setattr(a) => self.touch_handle(&a.object, Touch::Changes),
            Call::Write(a) => self.touch_handle(&a.file, Touch::Changes),
            Call::Commit(a) => self.touch_handle(&a.file, Touch::Changes),
            // Of the names in a directory that changes, its holder thinks to know all.
            Call::Create(CreateArgs { at, .. })
            | Call::Mkdir(MkdirArgs { at, .. })
            | Call::Symlink(SymlinkArgs { at, .. })
            | Call::Mknod(MknodArgs { at, .. }) => self.touch_handle(&at.dir, Touch::Changes),
            Call::Remove(a) | Call::Rmdir(a) => self.touch_handle(&a.dir, Touch::Changes),
            Call::Rename(a) => {
                let from = self.touch_handle(&a.from.dir, Touch::Changes);
                self.touch_handle(&a.to.dir, Touch::Changes).and(from)
            }
            Call::Link(a) => {
                let file = self.touch_handle(&a.file, Touch::Changes);
                self.touch_handle(&a.link.dir, Touch::Changes).and(file)
            }
            // It asks itself about its entries.
            Call::Readdirplus(a) => self.looks_into(&a.dir),
            Call::Readdir(a) => self.looks_into(&a.dir),
            // It fails for a directory, and tells its attributes.
            Call::Readlink(fh) => self.looks_into(fh),
            Call::Null => Ok(()),
        }
    }

    /// What it looks at matters only of a directory.
    fn looks_into(&mut self, fh: &FileHandle) -> Result<(), NfsStat3> {
        match self.obj(fh) {
            Ok(obj) if obj.node.kind() == Kind::Dir => self.touch(&obj, Touch::Looks),
            _ => Ok(()),
        }
    }

    /// What may not be used has no delegation to ask for; the call will say what is wrong.
    fn touch_handle(&mut self, fh: &FileHandle, touch: Touch) -> Result<(), NfsStat3> {
        match self.obj(fh) {
            // The refusal tells a directory's attributes.
            Ok(obj) if touch == Touch::Changes && obj.access.read_only => self.looks_into(fh),
            Ok(obj) => {
                self.touch(&obj, touch)?;
                self.rests_on_told(&obj, &obj.node);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// What the call is told of a file, in the export of `obj`, has to be durable when it is answered.
    pub(super) fn rests_on_told(&mut self, obj: &Obj, node: &Node) {
        if self.looks.is_told(node) {
            self.txs.rests_on(&obj.export, node);
        }
    }

    /// Announces what is done to this object until the call ends; and see [`Context::before`].
    pub(super) fn touch(&mut self, obj: &Obj, touch: Touch) -> Result<(), NfsStat3> {
        let (node, kind) = (&obj.node, obj.node.kind());
        if !can_be_delegated(kind) {
            return Ok(());
        }
        self.touching.push(self.sh.touches.begin_as(kind, touch, node.wire()));
        if kind == Kind::Dir && obj.export.features.write_delegations {
            self.sh.looks_into(node.wire(), None);
        }
        if self.sh.touches.any_in_the_way(kind, touch) {
            self.clear_of_delegations(node, touch)
        } else {
            Ok(())
        }
    }

    fn clear_of_delegations(&mut self, node: &Node, touch: Touch) -> Result<(), NfsStat3> {
        let by = self.looker();
        let gone = self.looks.touch(&mut self.sh.state(), by, node.wire(), touch);
        let gone = gone.ok_or_else(|| self.waits())?;
        self.rests_on_gone(gone);
        Ok(())
    }

    /// The answer rests on these clients being gone.
    pub(super) fn rests_on_gone(&mut self, gone: Vec<Stamped>) {
        let gone = self.exports.relied_on(gone);
        self.note(gone);
    }

    /// The call waits, if it may.
    pub(super) fn waits(&mut self) -> NfsStat3 {
        self.parks = self.looker().may_wait;
        NfsStat3::JUKEBOX
    }

    pub(super) fn looker(&self) -> Looker {
        let may_wait = self.may_park && !self.noted && !self.txs.modified();
        Looker { now: self.now, client: None, may_wait }
    }

    /// The same for entries of a listing that show attributes. Returns how many may be shown.
    pub(super) fn look_at_entries(&mut self, entries: &[Found]) -> Result<usize, NfsStat3> {
        if !self.sh.touches.any_delegation() && !self.sh.touches.any_holder_gone() {
            return Ok(entries.len());
        }
        let by = self.looker();
        let nodes = entries.iter().map(|e| e.object.as_ref().map(|(node, _)| node));
        let (shown, gone) = {
            let mut st = self.sh.state();
            let shown = match st.files.delegations.others_have_any(None) {
                true => self.looks.look_at_entries(&mut st, by, nodes.clone(), false),
                false => Some(entries.len()),
            };
            (shown, gone_among(&st, nodes.flatten()))
        };
        let shown = shown.ok_or_else(|| self.waits())?;
        self.rests_on_gone(gone);
        Ok(shown)
    }
}
