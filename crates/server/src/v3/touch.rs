//! Before a call runs: are delegations in its way (RFC 8881 section 10.4)? NFSv3 has no clients that could hold any, so each
//! holder is somebody else.
//!
//! This is the one place in NFSv3 that asks, but for READDIRPLUS, which asks for each entry, and a CREATE that takes a file that is
//! there. Each procedure is listed, so that a new one is not forgotten.

use super::DecodedCall;
use super::context::{Context, Obj};
use super::names::find;
use super::readdir::Found;
use crate::looks::Looker;
use crate::state::delegations::Touch;
use crate::touches::can_be_delegated;
use landfast_nfs::v3::args::{CreateArgs, MkdirArgs, MknodArgs, SymlinkArgs};
use landfast_nfs::v3::types::DirOp;
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
            Call::Lookup(a) => {
                let dir = self.looks_into(&a.dir);
                self.touch_name(a, Touch::Looks).and(dir)
            }
            Call::Read(a) => self.touch_handle(&a.file, Touch::Reads),
            Call::Setattr(a) => self.touch_handle(&a.object, Touch::Changes),
            Call::Write(a) => self.touch_handle(&a.file, Touch::Changes),
            Call::Commit(a) => self.touch_handle(&a.file, Touch::Changes),
            // Of the names in a directory that changes, its holder thinks to know all.
            Call::Create(CreateArgs { at, .. })
            | Call::Mkdir(MkdirArgs { at, .. })
            | Call::Symlink(SymlinkArgs { at, .. })
            | Call::Mknod(MknodArgs { at, .. }) => self.touch_handle(&at.dir, Touch::Changes),
            Call::Remove(a) | Call::Rmdir(a) => {
                let dir = self.touch_handle(&a.dir, Touch::Changes);
                self.touch_name(a, Touch::Changes).and(dir)
            }
            Call::Rename(a) => {
                let from = self.touch_handle(&a.from.dir, Touch::Changes);
                self.touch_handle(&a.to.dir, Touch::Changes).and(from)?;
                self.touch_name(&a.from, Touch::Changes)?;
                self.touch_name(&a.to, Touch::Changes)
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

    fn touch_name(&mut self, at: &DirOp, touch: Touch) -> Result<(), NfsStat3> {
        // Whoever is given the first delegation sees this one.
        let announced = self.sh.touches.begin_names();
        if !self.sh.touches.any_delegation() {
            self.touching.push(announced);
            return Ok(());
        }
        let Ok(dir) = self.obj(&at.dir) else { return Ok(()) };
        if touch == Touch::Changes && dir.access.read_only {
            return Ok(());
        }
        let found = match touch {
            // Also `.` and `..`.
            Touch::Looks => find(&dir, &at.name).ok(),
            _ => dir.volume().lookup(dir.cred(), &dir.node, &at.name).ok(),
        };
        match found {
            Some(node) => {
                let obj = dir.to(node);
                self.touch(&obj, touch)?;
                self.rests_on_told(&dir, &obj.node);
                Ok(())
            }
            // It may be there, and delegated, before the call gets to it.
            None => {
                self.touching.push(announced);
                Ok(())
            }
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
        let clear = if touch == Touch::Looks {
            self.looks.look(&mut self.sh.state(), by, node.wire())
        } else {
            let in_the_way = self.sh.state().recall_from_others(self.now, node.wire(), None, touch);
            let clear = in_the_way.is_empty();
            self.looks.wait_for_ends(in_the_way);
            clear
        };
        if clear { Ok(()) } else { Err(self.waits()) }
    }

    /// The call waits, if it may.
    fn waits(&mut self) -> NfsStat3 {
        self.parks = self.looker().may_wait;
        NfsStat3::JUKEBOX
    }

    fn looker(&self) -> Looker {
        let may_wait = self.may_park && !self.noted && !self.txs.modified();
        Looker { now: self.now, client: None, may_wait }
    }

    /// The same for entries of a listing that show attributes. Returns how many may be shown.
    pub(super) fn look_at_entries(&mut self, entries: &[Found]) -> Result<usize, NfsStat3> {
        if !self.sh.touches.any_delegation() || !self.sh.state().files.delegations.others_have_any(None) {
            return Ok(entries.len());
        }
        let by = self.looker();
        let nodes = entries.iter().map(|e| e.object.as_ref().map(|(node, _)| node));
        let shown = self.looks.look_at_entries(&mut self.sh.state(), by, nodes, false);
        shown.ok_or_else(|| self.waits())
    }
}
