//! Before an operation runs: are delegations of other clients in its way (RFC 8881 section 10.4)?
//!
//! This is the one place in NFSv4 that asks. Each operation is listed, so that a new one is not forgotten. OPEN asks itself
//! (`open.rs`), as it knows its file only on the way, REMOVE and RENAME about the objects that their names lead to (`names.rs`), and READDIR about each entry.
//!
//! An operation on a directory announces itself even if it only looks: whoever gives a write directory delegation must see it.

use super::context::{Context, Fh, Obj};
use crate::attr;
use crate::exports::Export;
use crate::looks::{Looker, gone_among};
use crate::state::delegations::Touch;
use crate::state::locks::exclusive;
use crate::state::notes::Stamped;
use crate::touches::can_be_delegated;
use landfast_nfs::v4::args::LockArgs;
use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_WRITE;
use landfast_nfs::v4::{ArgOp, Bitmap, NfsStat};
use landfast_volume::{DirEntry, Kind, Node};
use std::sync::Arc;

impl Context<'_> {
    /// Announces what the operation does to its files, and makes sure that no delegation is in its way.
    /// Errors: `DELAY` while one is; [`Context::parks`] says whether the request may wait for it.
    pub(super) fn before(&mut self, op: &ArgOp) -> Result<(), NfsStat> {
        match op {
            ArgOp::Getattr(wanted) => self.looks(wanted),
            ArgOp::Verify(given) | ArgOp::Nverify(given) => self.looks(&given.mask),
            // What they ask of a directory its holder may change.
            ArgOp::Access(_) | ArgOp::Getxattr(_) | ArgOp::Listxattrs(_) => self.looks_into_current(),
            // Names, which its holder may make and take away.
            ArgOp::Lookup(_) | ArgOp::Secinfo(_) | ArgOp::Readdir(_) => self.looks_into_current(),
            ArgOp::Read(_) | ArgOp::ReadPlus(_) | ArgOp::Seek(_) => self.touch_current(Touch::Reads),
            ArgOp::Write(_)
            | ArgOp::Commit(_)
            | ArgOp::Setattr(_)
            | ArgOp::Allocate(_)
            | ArgOp::Deallocate(_)
            | ArgOp::Setxattr(_)
            | ArgOp::Removexattr(_) => self.touch_current(Touch::Changes),
            ArgOp::Copy(_) | ArgOp::Clone(_) => {
                self.touch_saved(Touch::Reads)?;
                self.touch_current(Touch::Changes)
            }
            // Of the names in a directory that changes, its holder thinks to know all.
            ArgOp::Create(_) => self.touch_current(Touch::Changes),
            ArgOp::Link(_) => {
                let file = self.touch_saved(Touch::Changes);
                self.touch_current(Touch::Changes).and(file)
            }
            ArgOp::Remove(_) => self.touch_current(Touch::Changes),
            ArgOp::Rename(_) => {
                let from = self.touch_saved(Touch::Changes);
                self.touch_current(Touch::Changes).and(from)
            }
            ArgOp::Lockt(a) => self.touch_current(Touch::of_lock(exclusive(a.locktype))),
            // Who has the file open is in no delegation's way, but for an open that the server did not know: one of before a restart, and one
            // that has made its file.
            ArgOp::Lock(a) if self.session.is_some() => self.touches_lock(a),
            // The same; opens of NFSv4.0 do not go on after a restart.
            ArgOp::OpenDowngrade(a) if self.session.is_some() => {
                self.touch_current(Touch::of_lock(a.share_access & OPEN4_SHARE_ACCESS_WRITE != 0))
            }
            // They ask themselves: in NFSv4.0 their owner's number counts before (RFC 7530 section 9.1.7).
            ArgOp::Open(_) | ArgOp::Lock(_) => Ok(()),
            // They concern no file's content, attributes or names; or only what this client holds itself.
            ArgOp::BackchannelCtl(_)
            | ArgOp::BindConnToSession(_)
            | ArgOp::Close(_)
            | ArgOp::CreateSession(_)
            | ArgOp::DelegReturn(_)
            | ArgOp::DestroyClientid(_)
            | ArgOp::DestroySession(_)
            | ArgOp::ExchangeId(_)
            | ArgOp::FreeStateid(_)
            | ArgOp::GetDirDelegation(_)
            | ArgOp::Getfh
            | ArgOp::IoAdvise(_)
            | ArgOp::Locku(_)
            | ArgOp::Lookupp
            | ArgOp::Malformed(_)
            | ArgOp::OffloadCancel(_)
            | ArgOp::OffloadStatus(_)
            | ArgOp::OpenConfirm(_)
            | ArgOp::OpenDowngrade(_)
            | ArgOp::Other(_)
            | ArgOp::Putfh(_)
            | ArgOp::Putpubfh
            | ArgOp::Putrootfh
            | ArgOp::Readlink
            | ArgOp::ReclaimComplete(_)
            | ArgOp::ReleaseLockowner(_)
            | ArgOp::Renew(_)
            | ArgOp::Restorefh
            | ArgOp::Savefh
            | ArgOp::SecinfoNoName(_)
            | ArgOp::Sequence(_)
            | ArgOp::Setclientid(_)
            | ArgOp::SetclientidConfirm(_)
            | ArgOp::TestStateid(_) => Ok(()),
        }
    }

    pub(super) fn touches_lock(&mut self, a: &LockArgs) -> Result<(), NfsStat> {
        self.touch_current(Touch::of_lock(exclusive(a.locktype)))
    }

    fn looks(&mut self, wanted: &Bitmap) -> Result<(), NfsStat> {
        if attr::a_writer_changes(wanted) {
            self.touch_current(Touch::Looks)
        } else if attr::a_directory_holder_changes(wanted) {
            self.looks_into_current()
        } else {
            Ok(())
        }
    }

    /// What it looks at matters only of a directory.
    pub(super) fn looks_into_current(&mut self) -> Result<(), NfsStat> {
        match &self.fh {
            Some(Fh::Node { node, .. }) if node.kind() == Kind::Dir => self.touch_current(Touch::Looks),
            _ => Ok(()),
        }
    }

    fn touch_current(&mut self, touch: Touch) -> Result<(), NfsStat> {
        self.touch_fh(self.fh.clone(), touch)
    }

    fn touch_saved(&mut self, touch: Touch) -> Result<(), NfsStat> {
        self.touch_fh(self.saved.as_ref().map(|(fh, _)| fh.clone()), touch)
    }

    /// What has no delegations, or may not be used, has no delegation to ask for; the operation will say what is wrong.
    fn touch_fh(&mut self, fh: Option<Fh>, touch: Touch) -> Result<(), NfsStat> {
        match fh.map(|fh| self.object(&fh)) {
            Some(Ok(Some(obj))) if touch == Touch::Changes && obj.writable().is_err() => Ok(()),
            Some(Ok(Some(obj))) => {
                self.touch(&obj, touch)?;
                self.rests_on_told(&obj.export, &obj.node);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Announces what is done to this object until the operation ends; and see [`Context::before`].
    pub(super) fn touch(&mut self, obj: &Obj, touch: Touch) -> Result<(), NfsStat> {
        let (node, kind) = (&obj.node, obj.node.kind());
        if !can_be_delegated(kind) {
            return Ok(());
        }
        self.touching.push(self.sh.touches.begin_as(kind, touch, node.wire()));
        if kind == Kind::Dir && obj.export.features.write_delegations {
            self.sh.looks_into(node.wire(), self.session.as_ref().map(|s| s.client));
        }
        if self.sh.touches.any_in_the_way(kind, touch) {
            self.clear_of_delegations(node, touch)
        } else {
            Ok(())
        }
    }

    fn clear_of_delegations(&mut self, node: &Node, touch: Touch) -> Result<(), NfsStat> {
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

    /// The request waits, if it may.
    pub(super) fn waits(&mut self) -> NfsStat {
        self.parks = self.looker().may_wait;
        NfsStat::NFS4ERR_DELAY
    }

    pub(super) fn looker(&self) -> Looker {
        Looker {
            now: self.now,
            client: self.session.as_ref().map(|s| s.client),
            may_wait: self.may_park && !self.noted && !self.txs.modified(),
        }
    }

    /// What the request is told of a file has to be durable when it is answered.
    pub(super) fn rests_on_told(&mut self, export: &Arc<Export>, node: &Node) {
        if self.looks.is_told(node) {
            self.txs.rests_on(export, node);
        }
    }

    /// Whether clients but this one have any delegation, or had, as far as the log knows.
    pub(super) fn others_have_delegations(&self) -> bool {
        let by = self.session.as_ref().map(|s| s.client);
        let touches = &self.sh.touches;
        if !touches.any_delegation() && !touches.any_holder_gone() {
            return false;
        }
        let st = self.sh.state();
        st.files.delegations.others_have_any(by) || st.removals.of_holders() > 0
    }

    /// The same for entries of a listing that show attributes. Returns how many may be shown; fewer only if some were shown before (`ends`) or
    /// are among them.
    pub(super) fn look_at_entries(
        &mut self,
        entries: &[DirEntry],
        wanted: &Bitmap,
        ends: bool,
    ) -> Result<usize, NfsStat> {
        let by = self.looker();
        let concerned = |node: &&Node| match node.kind() {
            Kind::Dir => attr::a_directory_holder_changes(wanted),
            _ => attr::a_writer_changes(wanted),
        };
        let nodes = entries.iter().map(|e| node_of(e).filter(concerned));
        let (shown, gone) = {
            let mut st = self.sh.state();
            let shown = self.looks.look_at_entries(&mut st, by, nodes.clone(), ends);
            (shown, gone_among(&st, nodes.flatten()))
        };
        let shown = shown.ok_or_else(|| self.waits())?;
        self.rests_on_gone(gone);
        Ok(shown)
    }
}

fn node_of(entry: &DirEntry) -> Option<&Node> {
    entry.object.as_ref()?.as_ref().ok().map(|(node, _)| node)
}
