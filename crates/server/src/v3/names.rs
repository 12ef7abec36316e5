//! LOOKUP, READLINK, REMOVE, RMDIR, RENAME, LINK (RFC 1813 sections 3.3.3, 3.3.5, 3.3.12 to 3.3.15).

use super::context::{Context, Obj};
use super::errors::{NameUse, check_name, status, status_of_names};
use crate::renamed::{Found, Renaming};
use crate::state::delegations::Touch;
use crate::unlinked::Unlinking;
use landfast_nfs::v3::args::{LinkArgs, RenameArgs};
use landfast_nfs::v3::res::{
    LinkRes, LinkWcc, LookupOk, LookupRes, ReadlinkOk, ReadlinkRes, RemoveRes, RenameRes, RenameWcc,
};
use landfast_nfs::v3::types::DirOp;
use landfast_nfs::v3::{FileHandle, NfsStat3, Res};
use landfast_volume::{Error, Kind, Node, Tx};

impl Context<'_> {
    pub(super) fn lookup(&mut self, a: &DirOp) -> LookupRes {
        self.reading(&a.dir, |ctx, dir| {
            let obj = dir.to(find(dir, &a.name)?);
            ctx.touch(&obj, Touch::Looks)?;
            ctx.rests_on_told(dir, &obj.node);
            Ok(LookupOk { object: obj.handle()?, attrs: ctx.attrs(&obj), dir: ctx.attrs(dir) })
        })
    }

    pub(super) fn readlink(&mut self, link: &FileHandle) -> ReadlinkRes {
        self.reading(link, |ctx, obj| {
            let target = obj.volume().readlink(obj.cred(), &obj.node).map_err(status)?;
            Ok(ReadlinkOk { attrs: ctx.attrs(obj), target })
        })
    }

    /// REMOVE of anything but a directory, RMDIR of nothing else.
    pub(super) fn remove(&mut self, a: &DirOp, wants_dir: bool) -> RemoveRes {
        self.changing(&a.dir, |ctx, dir| ctx.remove_from(dir, &a.name, wants_dir), |(), wcc| wcc)
    }

    fn remove_from(&mut self, dir: &Obj, name: &[u8], wants_dir: bool) -> Result<(), NfsStat3> {
        dir.must_be_dir()?;
        match (name, wants_dir) {
            // It is never empty: this directory is in it.
            (b"..", true) => return Err(NfsStat3::EXIST),
            _ => check_name(name, NameUse::Existing)?,
        }
        self.names_may_change()?;
        self.modify(dir)?;
        let mut unlinking = Unlinking::new(self.sh, dir.volume());
        let held = |node: &Node| unlinking.held(node);
        let (tx, mut renaming) = self.renaming(dir);
        let allows = |node: &Node| match (node.kind() == Kind::Dir, wants_dir) {
            (true, false) => Err(Error::IsDir),
            (false, true) => Err(Error::NotDir),
            _ => renaming.allows(node),
        };
        let removed = dir.volume().remove_keeping(tx, dir.cred(), &dir.node, name, allows, held);
        let found = renaming.found;
        let kept = removed.as_ref().is_ok_and(|removed| removed.kept.is_some());
        self.note_in(dir, unlinking.done(kept));
        if found.in_the_way {
            return Err(self.waits());
        }
        self.rests_on_gone(found.gone);
        removed.map(drop).map_err(status_of_names)
    }

    /// The transaction of a call that takes names away from this directory or changes them, and what asks for delegations in its way.
    fn renaming(&mut self, dir: &Obj) -> (&mut Tx, Renaming<'_>) {
        let (sh, by, write_delegations) = (self.sh, self.looker(), dir.export.features.write_delegations);
        let (looks, touching) = (&mut self.looks, &mut self.touching);
        let renaming = Renaming { sh, by, write_delegations, looks, touching, found: Found::default() };
        (self.txs.of(&dir.export), renaming)
    }

    pub(super) fn rename(&mut self, a: &RenameArgs) -> RenameRes {
        let dirs = self.obj(&a.from.dir).and_then(|from| Ok((from, self.obj(&a.to.dir)?)));
        let (from, to) = match dirs {
            Ok(dirs) => dirs,
            Err(status) => return Res::Fail(status, RenameWcc::default()),
        };
        let done = self.move_between(&from, &to, a);
        let wcc = RenameWcc { from: self.wcc(&from), to: self.wcc(&to) };
        match done {
            Ok(()) => Res::Ok(wcc),
            Err(status) => Res::Fail(status, wcc),
        }
    }

    fn move_between(&mut self, from: &Obj, to: &Obj, a: &RenameArgs) -> Result<(), NfsStat3> {
        from.must_be_dir()?;
        to.must_be_dir()?;
        check_name(&a.from.name, NameUse::Existing)?;
        check_name(&a.to.name, NameUse::Existing)?;
        same_export(from, to)?;
        self.names_may_change()?;
        self.modify(from)?;
        self.modify(to)?;
        let mut unlinking = Unlinking::new(self.sh, from.volume());
        let (source, target) = ((&from.node, &a.from.name[..]), (&to.node, &a.to.name[..]));
        let held = |node: &Node| unlinking.held(node);
        let (tx, mut renaming) = self.renaming(to);
        let allows = |node: &Node| renaming.allows(node);
        let renamed = from.volume().rename_keeping(tx, from.cred(), source, target, allows, held);
        let found = renaming.found;
        let kept = renamed.as_ref().is_ok_and(|renamed| renamed.kept.is_some());
        self.note_in(to, unlinking.done(kept));
        if found.in_the_way {
            return Err(self.waits());
        }
        self.rests_on_gone(found.gone);
        renamed.map(drop).map_err(status_of_names)
    }

    pub(super) fn link(&mut self, a: &LinkArgs) -> LinkRes {
        let objects = self.obj(&a.file).and_then(|file| Ok((file, self.obj(&a.link.dir)?)));
        let (file, dir) = match objects {
            Ok(objects) => objects,
            Err(status) => return Res::Fail(status, LinkWcc::default()),
        };
        let done = self.link_into(&file, &dir, &a.link.name);
        let wcc = LinkWcc { attrs: self.attrs(&file), dir: self.wcc(&dir) };
        match done {
            Ok(()) => Res::Ok(wcc),
            Err(status) => Res::Fail(status, wcc),
        }
    }

    fn link_into(&mut self, file: &Obj, dir: &Obj, name: &[u8]) -> Result<(), NfsStat3> {
        dir.must_be_dir()?;
        check_name(name, NameUse::New)?;
        same_export(file, dir)?;
        self.modify(file)?;
        self.leaves(dir)?;
        let tx = self.modify(dir)?;
        dir.volume().link(tx, dir.cred(), &file.node, &dir.node, name).map_err(status)?;
        Ok(())
    }

    /// Names that an NFSv4 client may reclaim by are not to go away before it could (RFC 8881 section 8.4.2.1).
    fn names_may_change(&self) -> Result<(), NfsStat3> {
        if self.sh.state().grace.active(self.now) { Err(NfsStat3::JUKEBOX) } else { Ok(()) }
    }
}

fn same_export(a: &Obj, b: &Obj) -> Result<(), NfsStat3> {
    if a.export.id() == b.export.id() { Ok(()) } else { Err(NfsStat3::XDEV) }
}

/// The object of a name; `.` and `..` are served (RFC 1813 section 3.2), and the directory above the export is the export.
pub(super) fn find(dir: &Obj, name: &[u8]) -> Result<Node, NfsStat3> {
    dir.must_be_dir()?;
    let found = match name {
        b"." => Ok(dir.node.clone()),
        b".." => match dir.volume().lookup_parent(dir.cred(), &dir.node) {
            Err(Error::NoEnt) => Ok(dir.node.clone()),
            found => found,
        },
        _ => dir.volume().lookup(dir.cred(), &dir.node, name),
    };
    found.map_err(status)
}
