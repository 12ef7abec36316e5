//! Before a call runs: are delegations in its way (RFC 8881 section 10.4)? NFSv3 has no clients that could hold any, so each
//! holder is somebody else.
//!
//! This is the one place in NFSv3 that asks, but for READDIRPLUS, which asks for each entry, and a CREATE that takes a file that is
//! there. Each procedure is listed, so that a new one is not forgotten.

use super::DecodedCall;
use super::context::Context;
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
            DecodedCall::Getacl(a) => self.touch_handle(&a.object, Touch::Reads),
            DecodedCall::Setacl(a) => self.touch_handle(&a.object, Touch::Changes),
            DecodedCall::V3(call) => self.before_v3(call),
        }
    }

    fn before_v3(&mut self, call: &Call) -> Result<(), NfsStat3> {
        match call {
            // Their results have the object's attributes.
            Call::Getattr(fh) => self.touch_handle(fh, Touch::Reads),
            Call::Access(a) => self.touch_handle(&a.object, Touch::Reads),
            Call::Lookup(a) => self.touch_name(a, Touch::Reads),
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
            // It asks itself.
            Call::Readdirplus(_) => Ok(()),
            // They concern no file's content, attributes or names.
            Call::Null
            | Call::Readlink(_)
            | Call::Readdir(_)
            | Call::Fsstat(_)
            | Call::Fsinfo(_)
            | Call::Pathconf(_) => Ok(()),
        }
    }

    /// What may not be used has no delegation to ask for; the call will say what is wrong.
    fn touch_handle(&mut self, fh: &FileHandle, touch: Touch) -> Result<(), NfsStat3> {
        match self.obj(fh) {
            Ok(obj) if touch == Touch::Changes && obj.access.read_only => Ok(()),
            Ok(obj) => self.touch(&obj.node, touch),
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
        match dir.volume().lookup(dir.cred(), &dir.node, &at.name) {
            Ok(node) => self.touch(&node, touch),
            // It may be there, and delegated, before the call gets to it.
            Err(_) => {
                self.touching.push(announced);
                Ok(())
            }
        }
    }

    /// Announces what is done to this object until the call ends; and see [`Context::before`].
    pub(super) fn touch(&mut self, node: &Node, touch: Touch) -> Result<(), NfsStat3> {
        if !can_be_delegated(node.kind(), touch) {
            return Ok(());
        }
        self.touching.push(self.sh.touches.begin(node.wire()));
        if self.sh.touches.any_delegation() { self.clear_of_delegations(node, touch) } else { Ok(()) }
    }

    fn clear_of_delegations(&mut self, node: &Node, touch: Touch) -> Result<(), NfsStat3> {
        if self.sh.state().clear_delegations(self.now, &node.fh(), None, touch) {
            return Ok(());
        }
        self.parks = !self.noted && !self.txs.modified();
        Err(NfsStat3::JUKEBOX)
    }

    /// The same for entries of a listing that show attributes; all that are in the way are recalled at once.
    pub(super) fn look_at_entries<'a>(
        &mut self,
        entries: impl IntoIterator<Item = &'a Node>,
    ) -> Result<(), NfsStat3> {
        if !self.sh.touches.any_delegation() || !self.sh.state().files.delegations.others_have_any(None) {
            return Ok(());
        }
        let mut result = Ok(());
        for node in entries.into_iter().filter(|node| node.kind() == Kind::File) {
            result = self.clear_of_delegations(node, Touch::Reads).and(result);
        }
        result
    }
}
